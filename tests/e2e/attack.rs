//! `fumehood attack` on this host: everything it tries is held, as root and as an ordinary user; and it notices where a layer is missing.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

use crate::server::{BINARY, images_dir};
use crate::user::User;

/// Kinds of attack that must be there, whatever else is.
const CATEGORIES: [&str; 20] = [
    "descriptors",
    "devices",
    "environment",
    "exhaustion",
    "files",
    "forged",
    "host_files",
    "interface",
    "ipc",
    "kernel",
    "limits",
    "memory",
    "mounts",
    "namespaces",
    "network",
    "proc_and_sys",
    "rights",
    "signals",
    "time_bombs",
    "unix_sockets",
];

fn attack(arguments: &[&str]) -> Output {
    let data = tempfile::tempdir().unwrap();
    let mut command = Command::new(BINARY);
    command.args(["attack", "--json", "--data-dir"]).arg(data.path()).arg("--images-dir").arg(images_dir());
    command.args(arguments).output().unwrap()
}

/// The report; `None` where this host cannot confine processes.
fn report(output: &Output) -> Option<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot confine") {
        println!("SKIPPED process level: {said}");
        return None;
    }
    Some(serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}")))
}

/// Trials that did not come out as `held`, in a line each.
fn not_held(report: &Value) -> Vec<String> {
    let trials = report["trials"].as_array().unwrap().iter();
    let not_held = trials.filter(|trial| trial["verdict"] != "held" && trial["verdict"] != "inapplicable");
    not_held
        .map(|trial| {
            format!("{} {} {} {} {}", trial["verdict"], trial["name"], trial["way"], trial["got"], trial["why"])
        })
        .collect()
}

fn everything_held(output: &Output) {
    let Some(report) = report(output) else { return };
    assert_eq!(not_held(&report), Vec::<String>::new());
    assert_eq!(report["complaints"], serde_json::json!([]));
    assert!(output.status.success(), "{:?}", output.status);
    let trials = report["trials"].as_array().unwrap();
    let programs: BTreeSet<_> =
        trials.iter().filter(|trial| trial["way"] == "executed").map(|trial| trial["name"].as_str()).collect();
    assert!(programs.len() >= 150, "{} programs", programs.len());
    let categories = report["categories"].as_object().unwrap();
    assert!(CATEGORIES.iter().all(|category| categories.contains_key(*category)), "{categories:?}");
    for trial in trials.iter().filter(|trial| trial["verdict"] == "inapplicable") {
        println!("inapplicable here: {} {}", trial["name"], trial["why"]);
    }
}

#[test]
fn every_attack_is_held_as_this_user() {
    everything_held(&attack(&[]));
}

#[test]
fn every_attack_is_held_as_an_ordinary_user() {
    let user = match User::prepare() {
        Ok(user) => user,
        Err(reason) => return println!("SKIPPED ordinary user: {reason}"),
    };
    everything_held(&user.run(&["attack", "--json"]));
}

#[test]
fn without_a_layer_what_it_alone_stops_gets_through_and_the_rest_is_held() {
    let output = attack(&["--layers"]);
    let Some(reports) = report(&output) else { return };
    let reports = reports.as_array().unwrap();
    assert!(reports.len() >= 13, "{} layers", reports.len());
    for report in reports {
        let layer = &report["without"];
        assert_eq!(report["summary"]["broken"], 0, "{layer}: {:?}", not_held(report));
        assert_eq!(report["summary"]["untried"], 0, "{layer}: {:?}", not_held(report));
        assert!(report["summary"]["expected"].as_u64() > Some(0), "nothing got through without {layer}");
    }
}

#[test]
fn an_attack_that_gets_something_is_reported_with_what_it_got_and_by_the_exit_code() {
    let suite = tempfile::tempdir().unwrap();
    for folder in ["programs/x", "requests/x"] {
        std::fs::create_dir_all(suite.path().join(folder)).unwrap();
    }
    let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/attack");
    for file in ["prelude.py", "prelude.sh"] {
        std::fs::copy(own.join(file), suite.path().join(file)).unwrap();
    }
    let write = |name: &str, text: &str| std::fs::write(suite.path().join(name), text).unwrap();
    write("programs/x/gets.py", "# tries: what works\n# stopped by: disk\n\ngot('the\\x1b[2J moon')\n");
    write("programs/x/stops.py", "# tries: nothing\n# stopped by: disk\n\nraise ValueError('unforeseen')\n");
    write("programs/x/touches.sh", "# tries: what is not there\n# stopped by: disk\n\ncannot 'there is no moon'\n");
    write(
        "requests/x/answered.json",
        r#"{"tries": "what is answered", "stopped_by": ["interface"], "steps": [{"ask": "GET /health", "status": [404]}]}"#,
    );
    let folder = suite.path().to_str().unwrap();
    let output = attack(&["--suite", folder]);
    let Some(report) = report(&output) else { return };
    assert_eq!(output.status.code(), Some(1));
    let verdicts: BTreeSet<_> = report["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trial| (trial["name"].as_str().unwrap(), trial["verdict"].as_str().unwrap()))
        .collect();
    let expected =
        [("x/answered", "broken"), ("x/gets", "broken"), ("x/stops", "untried"), ("x/touches", "inapplicable")];
    assert_eq!(verdicts, BTreeSet::from(expected), "{report}");
    assert!(report.to_string().contains("unforeseen") && report.to_string().contains("no moon"));
    assert_eq!(attack(&["--suite", folder, "--only", "stops"]).status.code(), Some(2));
}
