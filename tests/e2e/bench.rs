//! `fumehood bench`: a document of the promised shape, no wrong answers, and nothing left behind.

use std::process::Command;

use serde_json::Value;

use crate::server::{BINARY, images_dir};

#[test]
fn a_quick_run_gives_figures_ratios_and_no_errors_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let run = Command::new(BINARY)
        .args(["bench", "claim", "--quick", "--json", "--images-dir"])
        .arg(images_dir())
        .env("TMPDIR", temp.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
    if stderr.contains("cannot confine") {
        return println!("SKIPPED process level: {stderr}");
    }
    assert!(run.status.success(), "{stderr}");
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    let scenario = &report["scenarios"][0];
    assert_eq!((&report["seed"], &report["quick"], &scenario["scenario"]), (&1.into(), &true.into(), &"claim".into()));
    let figures = scenario["figures"].as_array().unwrap();
    for name in ["echo", "plain fork", "fumehood"] {
        let figure = figures.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"));
        for field in ["min", "p50", "p90", "p99", "max", "rate"] {
            assert!(figure[field].as_f64().is_some_and(|value| value > 0.0), "{name} {field}: {figure}");
        }
        assert_eq!(figure["errors"], 0, "{figure}");
    }
    assert!(!scenario["ratios"].as_array().unwrap().is_empty(), "{report}");
    let left: Vec<_> = std::fs::read_dir(temp.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}
