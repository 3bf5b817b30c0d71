//! `fumehood doctor`.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use fumehood_jail::survey::{Finding, State};

use super::Common;
use super::show::write_out;
use super::table::{table, word};
use crate::doctor::{Lack, Level, LevelState, Report, examine};
use crate::escape::escaped;

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  a server with this configuration can confine what it runs here, if need be without some layers
  1  it would refuse to start: the process level does not work, or isolation_floor or isolation_require is not met";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print every feature, those that are there too
    #[arg(long, conflicts_with = "json")]
    all: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn main(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let report = examine(&args.common.load(None)?)?;
    let text = if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { told(&report, args.all) };
    write_out(&text)?;
    Ok(if report.floor.met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// For people.
fn told(report: &Report, all: bool) -> String {
    let mut text = heading(report);
    let rows: Vec<_> =
        report.levels.iter().map(|level| [level.level.to_string(), word(&level.state), level.detail.clone()]).collect();
    text.push_str(&table(["LEVEL", "STATE", ""], &rows));
    for level in &report.levels {
        text.push_str(&troubles(level, &report.findings));
    }
    let asked = match report.floor.met {
        true => "met".to_owned(),
        false => format!("not met: {}", report.floor.unmet.join("; ")),
    };
    let layers: String = report.floor.require.iter().map(|layer| format!(", {layer}")).collect();
    let _infallible = writeln!(text, "\nthe configuration asks for: {}{layers}; {asked}", report.floor.level);
    for (what, check) in [("image", &report.image), ("data", &report.data_dir)] {
        let state = if check.ok { "" } else { "NOT USABLE: " };
        let _infallible = writeln!(text, "{what}: {state}{}", escaped(&check.detail));
    }
    if all {
        let row = |finding: &Finding| {
            let levels = if finding.levels.is_empty() { "-".to_owned() } else { finding.levels.join(", ") };
            [word(&finding.group), finding.name.clone(), word(&finding.state), levels, finding.detail.clone()]
        };
        let rows: Vec<_> = report.findings.iter().map(row).collect();
        let _infallible = write!(text, "\n{}", table(["GROUP", "FEATURE", "STATE", "WANTED BY", ""], &rows));
    } else {
        text.push_str("\nfumehood doctor --all lists every feature.\n");
    }
    text
}

fn heading(report: &Report) -> String {
    let host = &report.host;
    let who = if report.uid == 0 { "root".to_owned() } else { format!("uid {}", report.uid) };
    let place = host.place.words().map(|place| format!(", in {place}")).unwrap_or_default();
    let wsl = if host.wsl { ", under WSL" } else { "" };
    format!(
        "fumehood {} on {}, Linux {} {}{wsl}{place}; run as {who}; control groups: {}\n\n",
        report.version,
        escaped(&host.distribution.name),
        escaped(&host.kernel),
        host.architecture,
        report.cgroups.words()
    )
}

/// What keeps a level from working, or from working in full, each with what it is for; what one thing mends stands together.
fn troubles(level: &Level, findings: &[Finding]) -> String {
    let mut lacks = Vec::new();
    if let Some(remedy) = &level.remedy {
        let (name, detail) = (level.level.to_string(), level.detail.clone());
        lacks.push(Lack { name, detail, why: "", remedy: remedy.clone() });
    }
    lacks.extend(level.lacks.iter().cloned());
    if level.state == LevelState::Unusable && level.failed_step.is_some() {
        // The first step that fails hides the next: what can be seen is told at once.
        lacks.extend(findings.iter().filter_map(|finding| wanted(finding, &level.level.to_string())));
    }
    let mut text = String::new();
    while let Some(Lack { remedy, .. }) = lacks.first().cloned() {
        text.push('\n');
        for Lack { name, detail, why, .. } in lacks.extract_if(.., |lack| lack.remedy == remedy) {
            let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
            let _infallible = writeln!(text, "{name}: {}{why}", escaped(&detail));
        }
        let _infallible = writeln!(text, "    do: {}", escaped(&remedy));
    }
    text
}

/// A finding that a level wants and that is not there.
fn wanted(finding: &Finding, level: &str) -> Option<Lack> {
    let remedy = finding.remedy.clone().filter(|_| finding.state != State::Available)?;
    finding.levels.contains(&level).then(|| Lack {
        name: finding.name.clone(),
        detail: finding.detail.clone(),
        why: finding.why,
        remedy,
    })
}

#[cfg(test)]
mod tests {
    use fumehood_engine::spec::IsolationLevel;

    use super::*;

    #[test]
    fn what_one_thing_mends_is_told_once() {
        let lack = |name: &str, remedy: &str| Lack {
            name: name.to_owned(),
            detail: "gone".to_owned(),
            why: "something",
            remedy: remedy.to_owned(),
        };
        let level = Level {
            level: IsolationLevel::Process,
            state: LevelState::Degraded,
            detail: String::new(),
            failed_step: None,
            remedy: None,
            lacks: vec![lack("a", "mend"), lack("b", "other\u{1b}[2J"), lack("c", "mend")],
            features: std::collections::BTreeMap::new(),
        };
        let expected = "\na: gone (something)\nc: gone (something)\n    do: mend\n\nb: gone (something)\n    do: other\\u{1b}[2J\n";
        assert_eq!(troubles(&level, &[]), expected);
    }
}
