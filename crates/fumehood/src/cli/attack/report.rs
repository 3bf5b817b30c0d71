//! What all attacks came to: for people a table, for programs one JSON document.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::table::table;
use super::trial::{Trial, Verdict};

/// One run of the suite.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Of this document.
    pub(super) format: u32,
    pub(super) version: &'static str,
    /// Isolation level that was attacked.
    pub(super) level: &'static str,
    /// Layer to state, as the installation tells it.
    pub(super) features: Map<String, Value>,
    /// Layers that were left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) without: Vec<&'static str>,
    pub(super) seconds: f64,
    /// Attacks, however often each was tried.
    pub(super) attacks: usize,
    pub(super) summary: Summary,
    pub(super) categories: BTreeMap<String, Summary>,
    pub(super) trials: Vec<Trial>,
    /// Why the run as a whole is not all right, whatever single attacks came to.
    pub(super) complaints: Vec<String>,
}

/// How many came to what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    pub(super) tried: usize,
    pub(super) held: usize,
    pub(super) broken: usize,
    /// Broken, and it had to be: only the layer that is switched off stops it.
    #[serde(skip_serializing_if = "none")]
    pub(super) expected: usize,
    pub(super) untried: usize,
    pub(super) inapplicable: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "asked for by serde")]
fn none(count: &usize) -> bool {
    *count == 0
}

impl Summary {
    fn count(&mut self, trial: &Trial, without: &[&str]) {
        self.tried += 1;
        match trial.verdict {
            Verdict::Held => self.held += 1,
            Verdict::Broken if is_expected(trial, without) => self.expected += 1,
            Verdict::Broken => self.broken += 1,
            Verdict::Untried => self.untried += 1,
            Verdict::Inapplicable => self.inapplicable += 1,
        }
    }
}

/// Whether an attack that got something had to: nothing but what was left out stops it.
pub(super) fn is_expected(trial: &Trial, without: &[&str]) -> bool {
    trial.stopped_by.iter().all(|layer| without.contains(&layer.as_str()))
}

/// How the run is to be told to a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Judgement {
    /// Everything held.
    AllHeld,
    /// Something could not be tried, or was left behind.
    Incomplete,
    /// Something got what it must not get.
    Broken,
}

impl Judgement {
    pub(super) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::AllHeld => 0,
            Self::Broken => 1,
            Self::Incomplete => 2,
        })
    }
}

fn untested(layers: &[&str]) -> String {
    format!("no attack got through without {}: nothing here shows that it is needed", layers.join(" and "))
}

/// What came of leaving out one layer after the other, for people.
pub(super) fn layers_text(reports: &[Report]) -> String {
    let rows: Vec<_> = reports
        .iter()
        .map(|report| {
            let (alone, others): (Vec<_>, Vec<_>) =
                report.trials.iter().partition(|trial| is_expected(trial, &report.without));
            let held = others.iter().filter(|trial| trial.verdict == Verdict::Held).count();
            let others = format!("{held} of {}", others.len());
            let Summary { broken, expected, untried, .. } = report.summary;
            let numbers = [alone.len(), expected, broken, untried].map(|number| number.to_string());
            let [alone, expected, broken, untried] = numbers;
            [report.without.join(", "), alone, expected, others, broken, untried]
        })
        .collect();
    let head = ["WITHOUT", "IT ALONE STOPS", "GOT THROUGH", "OTHERS HELD", "BROKEN", "UNTRIED"];
    let details = reports.iter().filter(|report| report.judgement() != Judgement::AllHeld);
    let details: String = details.map(|report| format!("\n{}", report.details())).collect();
    table(head, &rows) + &details
}

impl Report {
    pub(super) fn new(
        features: Map<String, Value>,
        without: Vec<&'static str>,
        seconds: f64,
        trials: Vec<Trial>,
    ) -> Self {
        let (mut summary, mut categories) = (Summary::default(), BTreeMap::<String, Summary>::new());
        for trial in &trials {
            summary.count(trial, &without);
            let category = trial.name.split_once('/').map_or(&*trial.name, |(category, _)| category);
            categories.entry(category.to_owned()).or_default().count(trial, &without);
        }
        let attacks = trials.iter().map(|trial| &trial.name).collect::<BTreeSet<_>>().len();
        let version = env!("CARGO_PKG_VERSION");
        Self {
            format: 1,
            version,
            level: "process",
            features,
            seconds,
            attacks,
            summary,
            categories,
            trials,
            complaints: if summary.expected > 0 || without.is_empty() { Vec::new() } else { vec![untested(&without)] },
            without,
        }
    }

    pub(super) fn judgement(&self) -> Judgement {
        if self.summary.broken > 0 {
            Judgement::Broken
        } else if self.summary.untried > 0 || !self.complaints.is_empty() {
            Judgement::Incomplete
        } else {
            Judgement::AllHeld
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let cells = |name: &str, summary: &Summary| {
            let Summary { tried, held, broken, expected, untried, inapplicable } = *summary;
            let broken = if expected > 0 { format!("{broken} (+{expected} expected)") } else { broken.to_string() };
            [
                name.to_owned(),
                tried.to_string(),
                held.to_string(),
                broken,
                untried.to_string(),
                inapplicable.to_string(),
            ]
        };
        let mut rows: Vec<_> = self.categories.iter().map(|(name, summary)| cells(name, summary)).collect();
        rows.push(cells("all", &self.summary));
        let mut text = table(["CATEGORY", "TRIED", "HELD", "BROKEN", "UNTRIED", "INAPPLICABLE"], &rows);
        text += &self.details();
        let without =
            if self.without.is_empty() { String::new() } else { format!(" without {}", self.without.join(", ")) };
        text + &format!("\n{} attacks, {} tries in {:.0} s{without}\n", self.attacks, self.summary.tried, self.seconds)
    }

    /// What did not hold, and why something was not tried.
    fn details(&self) -> String {
        let mut text = String::new();
        for trial in self.trials.iter().filter(|trial| trial.verdict == Verdict::Broken) {
            let expected = is_expected(trial, &self.without);
            text += &format!(
                "\n{} {}: {}\n",
                if expected { "open, as expected:" } else { "BROKEN" },
                trial.name,
                trial.tries
            );
            for got in &trial.got {
                text += &format!("  got: {got}\n");
            }
        }
        for trial in &self.trials {
            let what = match trial.verdict {
                Verdict::Untried => "untried",
                Verdict::Inapplicable => "inapplicable",
                Verdict::Held | Verdict::Broken => continue,
            };
            text += &format!("\n{what} {}: {}\n", trial.name, trial.why.as_deref().unwrap_or_default());
        }
        for complaint in &self.complaints {
            text += &format!("\n{complaint}\n");
        }
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cli::attack::target::Way;

    pub(in crate::cli::attack) fn trial(name: &str, verdict: Verdict, stopped_by: &[&str]) -> Trial {
        Trial {
            name: name.to_owned(),
            tries: "something".to_owned(),
            stopped_by: stopped_by.iter().map(|&layer| layer.to_owned()).collect(),
            like: Vec::new(),
            way: Way::Executed,
            verdict,
            got: Vec::new(),
            why: None,
            ms: 1,
        }
    }

    #[test]
    fn one_that_got_something_breaks_it_and_one_that_was_not_tried_leaves_it_open() {
        let judged = |verdicts: &[Verdict]| {
            let trials = verdicts.iter().map(|verdict| trial("a/b", *verdict, &["disk"])).collect();
            Report::new(Map::new(), Vec::new(), 1.0, trials).judgement()
        };
        assert_eq!(judged(&[Verdict::Held, Verdict::Inapplicable]), Judgement::AllHeld);
        assert_eq!(judged(&[Verdict::Held, Verdict::Untried]), Judgement::Incomplete);
        assert_eq!(judged(&[Verdict::Untried, Verdict::Broken, Verdict::Held]), Judgement::Broken);
    }

    #[test]
    fn without_a_layer_only_what_it_alone_stops_may_succeed() {
        let trials = vec![
            trial("a/alone", Verdict::Broken, &["seccomp"]),
            trial("a/both", Verdict::Held, &["seccomp", "landlock"]),
        ];
        let report = Report::new(Map::new(), vec!["seccomp"], 1.0, trials.clone());
        assert_eq!((report.judgement(), report.summary.expected), (Judgement::AllHeld, 1));
        let report = Report::new(Map::new(), Vec::new(), 1.0, trials);
        assert_eq!(report.judgement(), Judgement::Broken);
        let both = vec![trial("a/both", Verdict::Broken, &["seccomp", "landlock"])];
        let report = Report::new(Map::new(), vec!["seccomp"], 1.0, both);
        assert_eq!(report.judgement(), Judgement::Broken);
    }

    #[test]
    fn names_and_catches_do_nothing_to_a_terminal() {
        let report = Report::new(Map::new(), Vec::new(), 1.0, vec![trial("a/b", Verdict::Held, &["disk"])]);
        assert!(report.text().contains("CATEGORY") && report.text().contains("1 attacks, 1 tries"));
    }
}
