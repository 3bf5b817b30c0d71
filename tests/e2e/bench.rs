//! `fumehood bench`: a document of the promised shape, no wrong answers, and nothing left behind, even when it is interrupted.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::server::{BINARY, images_dir, server, wait_for};

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
    assert_nothing_left(temp.path());
}

/// Processes that name this folder in their arguments: the server and the plain interpreter do.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).filter(|line| line.contains(folder)).collect()
}

fn assert_nothing_left(temporary: &Path) {
    let left: Vec<_> = std::fs::read_dir(temporary).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(processes_of(temporary), Vec::<String>::new());
}

#[test]
fn whatever_is_done_with_sessions_in_whatever_order_ends_as_it_must_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let run = Command::new(BINARY)
        .args(["bench", "session-churn", "--json", "--duration", "15", "--seed"])
        .arg(std::process::id().to_string())
        .arg("--images-dir")
        .arg(images_dir())
        .env("TMPDIR", temp.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
    if stderr.contains("cannot confine") {
        return println!("SKIPPED process level: {stderr}");
    }
    let report = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{stderr}{report}");
    assert!(report.contains("KilledInside") && report.contains("Paused"), "{report}");
    assert_nothing_left(temp.path());
}

/// Runs a scenario on a server of its own; its section, or `None` where nothing can be confined.
fn measured(arguments: &[&str]) -> Option<Value> {
    let temp = tempfile::tempdir().unwrap();
    let run = Command::new(BINARY)
        .args(["bench", "--json"])
        .args(arguments)
        .arg("--images-dir")
        .arg(images_dir())
        .env("TMPDIR", temp.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr);
    if stderr.contains("cannot confine") {
        println!("SKIPPED process level: {stderr}");
        return None;
    }
    let report = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{stderr}{report}");
    assert_nothing_left(temp.path());
    Some(serde_json::from_str::<Value>(&report).unwrap()["scenarios"][0].clone())
}

#[test]
fn however_executions_go_wrong_nothing_is_left_and_the_server_does_not_grow() {
    let Some(section) = measured(&["churn", "--requests", "250", "--clients", "4"]) else { return };
    assert_eq!(section["figures"][0]["count"], 250, "{section:#}");
    let notes = section["notes"].to_string();
    for kind in ["OutOfMemory", "TimedOut", "DiskFull", "KilledByChild", "TooManyProcesses", "Flood", "StreamLeft"] {
        assert!(notes.contains(kind), "{kind}: {section:#}");
    }
}

#[test]
fn every_limit_that_strikes_is_answered_for_what_it_is() {
    let Some(section) = measured(&["limits", "--quick"]) else { return };
    let figures = section["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 4, "{section:#}");
    assert!(figures.iter().all(|figure| figure["errors"] == 0 && figure["count"] == 2), "{section:#}");
}

#[test]
fn a_tenant_is_measured_beside_another_that_is_refused_with_what_and_when() {
    let Some(section) = measured(&["tenants", "--quick"]) else { return };
    let figures = section["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 6, "{section:#}");
    // How large the ratios are is a matter of a machine that does nothing else.
    assert!(figures.iter().all(|figure| figure["errors"] == 0 && figure["p50"].as_f64() > Some(0.0)), "{section:#}");
    assert_eq!(section["ratios"].as_array().unwrap().len(), 2, "{section:#}");
}

#[test]
fn a_server_that_runs_already_can_be_measured_and_goes_on() {
    let server = server!(&[], &[]);
    let temporary = tempfile::tempdir().unwrap();
    let (url, pid) = (server.url.clone(), server.process.id().to_string());
    let arguments = ["bench", "burst", "--quick", "--json", "--requests", "6", "--server", &url, "--pid", &pid];
    let run = Command::new(BINARY)
        .args(arguments)
        .arg("--images-dir")
        .arg(images_dir())
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
    let burst = &document["scenarios"][0];
    assert_eq!((&burst["scenario"], &burst["errors"]), (&"burst".into(), &0.into()), "{document:#}");
    assert_nothing_left(temporary.path());
    assert_eq!(server.get("/ready").0, 200);
}

#[test]
fn an_interrupted_benchmark_leaves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let mut process = Command::new(BINARY)
        .args(["bench", "churn", "--duration", "120", "--images-dir"])
        .arg(images_dir())
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // As soon as there is a server, or it has ended because there can be none.
    let started = wait_for(|| {
        let ended = process.try_wait().unwrap().is_some();
        (ended || !processes_of(temporary.path()).is_empty()).then_some(!ended)
    });
    if started {
        kill_process(Pid::from_child(&process), Signal::INT).unwrap();
    }
    let output = process.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("cannot confine") {
        return println!("SKIPPED process level: {stderr}");
    }
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert_nothing_left(temporary.path());
}

#[test]
fn density_weighs_sandboxes_that_are_ready_and_those_whose_program_sleeps() {
    let temporary = tempfile::tempdir().unwrap();
    let run = Command::new(BINARY)
        .args(["bench", "density", "--requests", "3", "--json", "--images-dir"])
        .arg(images_dir())
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr);
    if stderr.contains("cannot confine") {
        return println!("SKIPPED process level: {stderr}");
    }
    assert!(run.status.success(), "{stderr}");
    let document: Value = serde_json::from_slice(&run.stdout).unwrap();
    let figures = document["scenarios"][0]["figures"].as_array().unwrap();
    let figure = |name: &str| figures.iter().find(|figure| figure["name"] == name).unwrap();
    for state in ["ready", "idle"] {
        for what in ["unique memory", "proportional memory", "page tables"] {
            let figure = figure(&format!("{state}, {what}"));
            assert_eq!(figure["count"], 3, "{figure}");
            // A fork that shares what was loaded before it has a few MiB of its own; an interpreter that loads the same has a hundred.
            assert!(figure["min"].as_f64().is_some_and(|size| size > 0.0), "{figure}");
        }
        assert!(figure(&format!("{state}, unique memory"))["max"].as_f64().unwrap() < 10.0, "{document:#}");
    }
    assert_nothing_left(temporary.path());
}
