//! What is shown: figures, ratios with their bounds, as a table for people or one JSON document.

use std::fmt::Write as _;

use serde::Serialize;

use super::process::Usage;
use super::stats::{Run, Summary, median};

/// Several runs of one thing.
#[derive(Debug, Clone)]
pub(super) struct Series {
    name: String,
    unit: &'static str,
    runs: Vec<Summary>,
    usage: Vec<Usage>,
    complaints: Vec<String>,
}

impl Series {
    pub(super) fn new(name: impl Into<String>, unit: &'static str) -> Self {
        Self { name: name.into(), unit, runs: Vec::new(), usage: Vec::new(), complaints: Vec::new() }
    }

    pub(super) fn add(&mut self, run: &Run, usage: Option<Usage>) {
        self.runs.push(Summary::of(run));
        self.usage.extend(usage);
        self.complaints.extend(run.complaints.iter().map(|complaint| format!("{}: {complaint}", self.name)));
    }

    /// One figure of each run.
    pub(super) fn each(&self, figure: impl Fn(&Summary) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }

    fn usage(&self) -> Option<Usage> {
        let mid = |field: fn(&Usage) -> f64| median(self.usage.iter().map(field).collect());
        (!self.usage.is_empty()).then(|| Usage {
            cpu_s: mid(|usage| usage.cpu_s),
            memory_mb: mid(|usage| usage.memory_mb),
            processes: mid(|usage| usage.processes as f64) as u64,
            unread: self.usage.iter().map(|usage| usage.unread).max().unwrap_or_default(),
        })
    }
}

/// A line of the table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    name: String,
    unit: &'static str,
    #[serde(flatten)]
    summary: Summary,
    /// Of the server and all its descendants, or of what else ran the programs; the median of the runs.
    usage: Option<Usage>,
    runs: Vec<Summary>,
}

/// Where a ratio has to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    Below(f64),
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Below(limit) => value < limit,
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Below(limit) => format!("below {limit}"),
            Self::AtMost(limit) => format!("at most {limit}"),
            Self::AtLeast(limit) => format!("at least {limit}"),
        }
    }
}

/// One figure against another, in each run; what is shown is the median.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Ratio {
    name: String,
    value: f64,
    bound: Option<Bound>,
    holds: Option<bool>,
    runs: Vec<f64>,
}

impl Ratio {
    /// From one value for each run; one that is no number means that there was nothing to compare with.
    pub(super) fn new(name: impl Into<String>, runs: Vec<f64>, bound: Option<Bound>) -> Option<Self> {
        let runs: Vec<f64> = runs.into_iter().filter(|value| value.is_finite()).collect();
        if runs.is_empty() {
            return None;
        }
        let value = median(runs.clone());
        Some(Self { name: name.into(), value, bound, holds: bound.map(|bound| bound.holds(value)), runs })
    }
}

/// What one scenario found.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Section {
    pub(super) scenario: &'static str,
    /// What was done, in a line.
    pub(super) what: String,
    figures: Vec<Figure>,
    ratios: Vec<Ratio>,
    /// Things to know, and what could not be measured and why.
    notes: Vec<String>,
    /// Missing and wrong answers, and leaks.
    errors: u64,
    /// The first of them in words.
    complaints: Vec<String>,
}

impl Section {
    pub(super) fn new(scenario: &'static str, what: impl Into<String>) -> Self {
        Self { scenario, what: what.into(), ..Self::default() }
    }

    /// Adds a line, unless nothing was measured for it.
    pub(super) fn figure(&mut self, series: &Series) {
        if series.runs.is_empty() {
            return;
        }
        let summary = Summary::median_of(&series.runs);
        self.errors += summary.errors;
        self.complaints.extend(series.complaints.iter().take(5).cloned());
        let Series { name, unit, runs, .. } = series.clone();
        self.figures.push(Figure { name, unit, summary, usage: series.usage(), runs });
    }

    /// Adds the ratio of two series, run by run.
    pub(super) fn ratio(&mut self, name: impl Into<String>, runs: Vec<f64>, bound: Option<Bound>) {
        self.ratios.extend(Ratio::new(name, runs, bound));
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds something that is wrong.
    pub(super) fn complain(&mut self, complaint: impl Into<String>) {
        self.errors += 1;
        self.complaints.push(complaint.into());
    }
}

/// `over / under` for each run.
pub(super) fn ratios(over: &[f64], under: &[f64]) -> Vec<f64> {
    over.iter().zip(under).map(|(over, under)| over / under).collect()
}

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Version of this document's shape.
    pub(super) format: u32,
    pub(super) version: &'static str,
    pub(super) seed: u64,
    pub(super) runs: u64,
    pub(super) quick: bool,
    pub(super) machine: super::machine::Machine,
    pub(super) scenarios: Vec<Section>,
}

impl Report {
    /// Missing and wrong answers of all scenarios.
    pub(super) fn errors(&self) -> u64 {
        self.scenarios.iter().map(|section| section.errors).sum()
    }

    /// Bounds that do not hold.
    pub(super) fn missed(&self) -> usize {
        let ratios = self.scenarios.iter().flat_map(|section| &section.ratios);
        ratios.filter(|ratio| ratio.holds == Some(false)).count()
    }
}

impl Section {
    /// The section as text.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.scenario, self.what);
        let mut rows: Vec<Vec<String>> = Vec::new();
        for Figure { name, unit, summary, usage, .. } in &self.figures {
            let mut row = vec![format!("  {name}"), (*unit).to_owned()];
            let Summary { min, p50, p90, p99, max, .. } = *summary;
            row.extend([min, p50, p90, p99, max].map(number));
            row.push(if summary.rate > 0.0 { number(summary.rate) } else { "-".to_owned() });
            row.push(summary.errors.to_string());
            row.extend(match usage {
                Some(usage) => [number(usage.cpu_s), format!("{:.0}", usage.memory_mb)],
                None => ["-".to_owned(), "-".to_owned()],
            });
            rows.push(row);
        }
        if !rows.is_empty() {
            let head = ["", "unit", "min", "p50", "p90", "p99", "max", "rate/s", "errors", "cpu s", "MB"];
            rows.insert(0, head.map(str::to_owned).to_vec());
        }
        text += &table(&rows);
        let ratios = self.ratios.iter().map(|ratio| {
            let bound = ratio.bound.map(Bound::text).unwrap_or_default();
            let verdict = match ratio.holds {
                Some(true) => "ok",
                Some(false) => "MISSED",
                None => "",
            };
            vec![format!("  {}", ratio.name), number(ratio.value), bound, verdict.to_owned()]
        });
        text += &table(&ratios.collect::<Vec<_>>());
        for line in self.notes.iter().map(|note| format!("  note: {note}")) {
            writeln!(text, "{line}").ok();
        }
        for line in self.complaints.iter().map(|complaint| format!("  ERROR: {complaint}")) {
            writeln!(text, "{line}").ok();
        }
        text
    }
}

/// Columns as wide as their widest cell: the first and the last to the left, numbers to the right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Three digits that mean something.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 => format!("{value:.3}"),
        size if size < 100.0 => format!("{value:.2}"),
        size if size < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, runs: &[&[f64]]) -> Series {
        let mut series = Series::new(name, "ms");
        for values in runs {
            series.add(&Run { values: values.to_vec(), seconds: 1.0, ..Run::default() }, None);
        }
        series
    }

    #[test]
    fn a_ratio_is_the_median_over_runs_and_is_judged() {
        let (over, under) = (series("a", &[&[2.0], &[9.0], &[1.0]]), series("b", &[&[4.0], &[6.0], &[4.0]]));
        let runs = ratios(&over.each(|run| run.p50), &under.each(|run| run.p50));
        let ratio = Ratio::new("a / b", runs.clone(), Some(Bound::Below(0.5))).unwrap();
        assert_eq!((ratio.value, ratio.holds), (0.5, Some(false)));
        assert_eq!(Ratio::new("a / b", runs, Some(Bound::AtMost(0.5))).unwrap().holds, Some(true));
        assert!(Ratio::new("nothing to compare with", vec![f64::NAN, f64::INFINITY], None).is_none());
    }

    #[test]
    fn a_section_is_a_table_in_columns() {
        let mut section = Section::new("claim", "two runs");
        section.figure(&series("fumehood", &[&[1.0, 2.0], &[3.0]]));
        section.figure(&series("a longer name", &[&[1500.0]]));
        section.figure(&series("never measured", &[]));
        section.ratio("p50 / p50", vec![0.25], Some(Bound::Below(0.4)));
        section.note("docker: not installed");
        section.complain("one was wrong");
        assert_eq!(
            section.text(),
            "\
claim: two runs
                 unit    min    p50    p90    p99    max  rate/s  errors  cpu s  MB
  fumehood         ms  2.000  2.000  2.500  2.500  2.500   1.500       0      -   -
  a longer name    ms   1500   1500   1500   1500   1500   1.000       0      -   -
  p50 / p50  0.250  below 0.4  ok
  note: docker: not installed
  ERROR: one was wrong
"
        );
    }
}
