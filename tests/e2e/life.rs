//! Life and death of the server: graceful shutdown, sudden ends, and what is left after them.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::limits::{children, jailer, kill, sandbox_processes};
use crate::server::{Server, brief, server, wait_for};

/// Starts an execution in the background and waits until its code runs.
fn start(server: &Server, code: &str) -> String {
    let (status, accepted) = server.post("/v1/executions", &json!({"code": code, "mode": "async"}));
    assert_eq!(status, 202, "{accepted}");
    let path = format!("/v1/executions/{}", accepted["id"].as_str().unwrap());
    wait_for(|| server.get(&path).1["stdout"].as_str().is_some_and(|text| text.contains("up")).then_some(()));
    path
}

#[test]
fn running_executions_finish_before_a_graceful_end() {
    let mut server = server!(&[], &[]);
    let url = server.url.clone();
    let answer = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let body = json!({"code": "import time; time.sleep(1.5); 'finished'"}).to_string();
            let answer =
                ureq::post(format!("{url}/v1/executions")).header("content-type", "application/json").send(body);
            answer.unwrap().body_mut().read_json::<serde_json::Value>().unwrap()
        });
        wait_for(|| (server.get("/health").1["pool"]["busy"] == 1).then_some(()));
        let status = server.end(Signal::TERM);
        assert!(status.success(), "{status}\n{}", server.log());
        running.join().unwrap()
    });
    assert_eq!(answer["result"], "finished", "{}", brief(&answer));
}

#[test]
fn what_does_not_finish_in_time_is_cancelled_and_nothing_is_left() {
    let mut server = server!(&[], &[("FUMEHOOD_SERVER__SHUTDOWN_GRACE_S", "1"), ("FUMEHOOD_POOL__MAX_READY", "0")]);
    start(&server, "import subprocess, time; subprocess.Popen(['sleep', '999']); print('up'); time.sleep(600)");
    let processes = sandbox_processes(&server);
    assert!(processes.len() >= 3, "{processes:?}");
    let begun = Instant::now();
    assert!(server.end(Signal::INT).success());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for pid in processes {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left");
    }
}

#[test]
fn a_server_killed_outright_takes_jailer_and_sandboxes_with_it() {
    let mut server = server!(&[], &[]);
    start(&server, "import time; print('up'); time.sleep(600)");
    let mut processes = sandbox_processes(&server);
    processes.extend(jailer(&server));
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    for pid in processes {
        // Its new parent may take a moment to reap it.
        wait_for(|| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
            stat.is_none_or(|stat| stat.contains(") Z ")).then_some(())
        });
    }
}

#[test]
fn when_the_jailer_dies_its_executions_are_lost_and_new_ones_run_on_a_new_jailer() {
    let server = server!(&[], &[]);
    let path = start(&server, "import time; print('up'); time.sleep(600)");
    let [_, jailer] = jailer(&server);
    kill(jailer);
    let lost = wait_for(|| Some(server.get(&path).1).filter(|execution| execution["outcome"] != json!(null)));
    assert_eq!((&lost["outcome"], &lost["fault"]), (&json!("lost"), &json!("infra")), "{}", brief(&lost));
    let again = wait_for(|| Some(server.execute("6*7", json!({}))).filter(|execution| execution["result"] == 42));
    assert_eq!(again["status"], "completed");
    assert_eq!(server.get("/ready").0, 200);
}

#[test]
fn a_second_server_on_the_same_data_folder_is_refused() {
    let server = server!(&[], &[]);
    let output = std::process::Command::new(crate::server::BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(server.data.path())
        .arg("--images-dir")
        .arg(crate::server::images_dir())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("another server uses") && said.contains("--data-dir"), "{said}");
}

#[test]
fn cancelling_ends_a_waiting_and_a_running_execution() {
    let server = server!(&[], &[("FUMEHOOD_ENGINE__MAX_CONCURRENT", "1")]);
    let running = start(&server, "import time; print('up'); time.sleep(600)");
    let (_, waiting) = server.post("/v1/executions", &json!({"code": "1", "mode": "async"}));
    let waiting = format!("/v1/executions/{}", waiting["id"].as_str().unwrap());
    for path in [waiting, running] {
        let begun = Instant::now();
        let (status, execution) = server.post(&format!("{path}/cancel"), &json!({}));
        assert_eq!(
            (status, &execution["outcome"], &execution["status"]),
            (200, &json!("cancelled"), &json!("cancelled")),
            "{execution}"
        );
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert_eq!(server.post(&format!("{path}/cancel"), &json!({})).0, 200, "cancelling twice is no error");
    }
    assert_eq!(server.succeed("1", json!({}))["result"], 1);
}

#[test]
fn an_ordinary_execution_gets_a_sandbox_that_waits_ready_and_a_special_one_its_own() {
    let server = server!(&[], &[("FUMEHOOD_POOL__MIN_READY", "3")]);
    let full = || server.get("/v1/pool").1["ready"].as_u64().is_some_and(|ready| ready >= 3);
    wait_for(|| full().then_some(()));
    let quick = server
        .succeed("import os, random\nopen('mark', 'w').write('1'); x = 1\n[os.getpid(), random.random()]", json!({}));
    assert_eq!(server.get("/v1/pool").1["claims"], 1);
    // Not a time but a ratio: making a sandbox is what it saves.
    let own = server.succeed("1", json!({"limits": {"memory_mb": 300}}));
    let start = |execution: &serde_json::Value| execution["metrics"]["start_ms"].as_f64().unwrap();
    assert!(start(&quick) * 3.0 < start(&own), "{} against {}", start(&quick), start(&own));
    assert_eq!(server.get("/v1/pool").1["claims"], 1);
    // The next one is another sandbox, and knows nothing of the one before.
    let next =
        server.succeed("import os, random\n[os.path.exists('mark'), 'x' in globals(), random.random()]", json!({}));
    assert_eq!((&next["result"][0], &next["result"][1]), (&json!(false), &json!(false)));
    assert_ne!(next["result"][2], quick["result"][1]);
    wait_for(|| full().then_some(()));
}

#[test]
fn a_ready_sandbox_that_dies_is_replaced_and_no_execution_is_given_to_it() {
    let server = server!(&[], &[("FUMEHOOD_POOL__MIN_READY", "2"), ("FUMEHOOD_POOL__MAX_READY", "2")]);
    let full = || server.get("/v1/pool").1["ready"] == 2;
    wait_for(|| full().then_some(()));
    let [_, jailer] = jailer(&server);
    // Process 1 of each, their programs, and the zygote.
    for child in children(jailer) {
        kill(child);
        wait_for(|| (!children(jailer).contains(&child)).then_some(()));
    }
    for _ in 0..4 {
        server.succeed("1", json!({}));
    }
    wait_for(|| full().then_some(()));
}
