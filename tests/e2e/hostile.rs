//! Programs that attack the host side: the guest protocol, the event log, the files. Each asserts what it did not get.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::forks::forking;
use crate::limits::resident;
use crate::server::{brief, server, wait_for};

/// Python that speaks the guest protocol on the runner's own socket.
const FRAMES: &str = "\
import json, os, struct, time
def frame(kind, value, raw=None):
    payload = json.dumps(value).encode() if raw is None else raw
    os.write(3, struct.pack('>IB', len(payload), kind) + payload)
";

#[test]
fn a_forged_result_changes_nothing_of_what_the_host_saw() {
    let server = server!(&[], &[]);
    // With a process beside it the program's word is not enough for its end.
    let forged = "import subprocess\nsubprocess.Popen(['sleep', '60'])\nframe(21, {'exit_code': 0, 'result': 'forged', 'error': None})\n";
    let failed = server.execute(&format!("{FRAMES}{forged}os._exit(3)"), json!({}));
    assert_eq!(
        (&failed["status"], &failed["outcome"], &failed["exit_code"]),
        (&json!("failed"), &json!("exited"), &json!(3))
    );
    let killed = server.execute(&format!("{FRAMES}{forged}os.kill(os.getpid(), 11)"), json!({}));
    assert_eq!(killed["outcome"], "signaled", "{}", brief(&killed));
    let late = server.execute(&format!("{FRAMES}{forged}time.sleep(60)"), json!({"timeout_ms": 500}));
    assert_eq!((&late["status"], &late["outcome"]), (&json!("failed"), &json!("timed_out")), "{}", brief(&late));
}

#[test]
fn a_forged_result_is_the_last_word_as_an_exit_would_be() {
    let Some(server) = forking(&[]) else { return };
    for code in [0, 3] {
        let forged = format!("print('before')\nframe(21, {{'exit_code': {code}, 'result': 'forged'}})\n");
        let goes_on = "begun = time.time()\nwhile time.time() < begun + 60: time.sleep(0.01); print('after')";
        let ended = server.execute(&format!("{FRAMES}{forged}{goes_on}"), json!({"timeout_ms": 30000}));
        assert_eq!((&ended["outcome"], &ended["exit_code"]), (&json!("exited"), &json!(code)), "{}", brief(&ended));
        assert!(ended["stdout"].as_str().unwrap().starts_with("before\n"), "{}", brief(&ended));
        assert!(ended["metrics"]["duration_ms"].as_f64().unwrap() < 20000.0, "{}", brief(&ended));
    }
    // Its place is free again once it is gone.
    wait_for(|| (server.get("/v1/pool").1["running"] == 0).then_some(()));
}

#[test]
fn what_is_no_protocol_ends_the_sandbox_and_not_the_server() {
    let server = server!(&[], &[]);
    for attack in [
        "os.write(3, b'\\xff' * 100)",
        "frame(99, {})",
        "frame(18, None, raw=b'{not json')",
        "frame(18, {'seq': 'x', 'mime': 3})",
        "os.write(3, struct.pack('>IB', 2**32 - 1, 21))",
        "os.closerange(3, 50)",
    ] {
        let execution = server.execute(&format!("{FRAMES}print('before')\n{attack}\ntime.sleep(0.2); print('x'); [display(1) for _ in range(3)]; time.sleep(5)"), json!({"timeout_ms": 20000}));
        assert_eq!(
            (&execution["outcome"], &execution["fault"]),
            (&json!("lost"), &json!("user")),
            "{attack}: {}",
            brief(&execution)
        );
        assert!(execution["stdout"].as_str().unwrap().starts_with("before\n"));
    }
    assert_eq!(server.succeed("6*7", json!({}))["result"], 42);
}

#[test]
fn floods_of_frames_do_not_fill_the_servers_memory() {
    let server = server!(&[], &[]);
    server.succeed("1", json!({}));
    let before = resident(&server);
    for flood in [
        // Acknowledgements nobody reads.
        "while True: frame(19, {'seq': 1})",
        // Displays too small to count by their size, acknowledgements read.
        "import threading\nthreading.Thread(target=lambda: [os.read(3, 65536) for _ in iter(int, 1)], daemon=True).start()\nwhile True: frame(18, {'seq': 1, 'mime': {}})",
        "while True: frame(20, {'code': str(time.monotonic()), 'message': 'x' * 10000})",
        "while True: frame(16, {'version': 1}); frame(17, {})",
        "for i in range(200): frame(21, {'variables': {'x': 'y' * 1000000}})",
    ] {
        server.execute(&format!("{FRAMES}{flood}"), json!({"timeout_ms": 3000}));
        let grown = resident(&server).saturating_sub(before);
        assert!(grown < 64 << 20, "{flood} made the server grow by {grown} bytes");
    }
}

/// Python that ends with a result of its own making.
fn claims(claim: &str) -> String {
    format!(
        "{FRAMES}claim = {claim}\nos.write(3, struct.pack('>IB', len(claim), 21)); view = memoryview(claim)\nwhile view: view = view[os.write(3, view):]\nos._exit(0)"
    )
}

#[test]
fn values_as_large_as_frames_may_be_take_the_server_little_memory() {
    let server = server!(&[], &[]);
    server.succeed("1", json!({}));
    let before = resident(&server);
    for (claim, dropped) in [
        ("b'{\"result\":[' + b'0,' * (3 << 20) + b'0]}'", "a result of 6291459 bytes"),
        ("b'{\"variables\":{\"x\":[' + b'{},' * (3 << 20) + b'0]}}'", "a description of tables and variables"),
        (
            "b'{\"warnings\":[' + b'{\"code\":\"\",\"message\":\"\"},' * 400000 + b'{\"code\":\"c\",\"message\":\"\"}]}'",
            "",
        ),
    ] {
        let execution = server.execute(&claims(claim), json!({"timeout_ms": 60000}));
        assert!(execution["warnings"].to_string().contains(dropped), "{}", brief(&execution));
        let grown = resident(&server).saturating_sub(before);
        assert!(grown < 128 << 20, "{claim} made the server grow by {grown} bytes");
    }
    assert_eq!(server.succeed("6*7", json!({}))["result"], 42);
}

#[test]
fn names_that_mean_something_to_the_server_are_plain_data_of_callers_and_guests() {
    let server = server!(&[], &[]);
    let echo = "def handler(input):\n    display({'application/json': input}, raw=True)\n    return input";
    for name in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
        let odd = json!({"a": {name: "[1, 2"}, name: "{}"});
        // As text: this test's own reader would give the names their meaning.
        let body = format!(r#"{{"code":{},"input":{odd}}}"#, json!(echo));
        let (status, answer) = server.send_bytes("POST", "/v1/executions", "application/json", body.as_bytes());
        let answer = String::from_utf8(answer).unwrap();
        assert_eq!(status, 200, "{answer}");
        assert!(answer.contains(r#""outcome":"exited""#), "{answer}");
        assert_eq!(answer.matches(&odd.to_string()).count(), 2, "{answer}");
    }
    assert_eq!(server.succeed("6*7", json!({}))["result"], 42);
}

#[test]
fn floods_of_frames_are_paid_from_their_own_share() {
    let server = server!(&[], &[]);
    server.succeed("1", json!({}));
    // What costs the host much and the guest little, more of them than the server has threads.
    let drains = "import threading\nthreading.Thread(target=lambda: [os.read(3, 65536) for _ in iter(int, 1)], daemon=True).start()\n";
    let floods = [
        "pack = lambda p, k: struct.pack('>IB', len(p), k) + p\nmany = pack(b'{\"seq\":0,\"mime\":{}}', 18) * 3000\nwhile True: os.write(3, many)",
        "pack = lambda p, k: struct.pack('>IB', len(p), k) + p\nmany = pack(b'{\"code\":\"x\",\"message\":\"' + b'y' * 10000 + b'\"}', 20)\nwhile True: os.write(3, many)",
        "pack = lambda p, k: struct.pack('>IB', len(p), k) + p\nmany = pack(b'{\"seq\":1}', 19) * 3000\nwhile True: os.write(3, many)",
    ];
    let begun = Instant::now();
    let ids: Vec<_> = floods
        .iter()
        .map(|flood| {
            let body = json!({"code": format!("{FRAMES}{drains}{flood}"), "timeout_ms": 2000, "mode": "async"});
            let (status, accepted) = server.post("/v1/executions", &body);
            assert_eq!(status, 202, "{accepted}");
            accepted["id"].as_str().unwrap().to_owned()
        })
        .collect();
    let ended = |id: &String| {
        let (_, execution) = server.get(&format!("/v1/executions/{id}"));
        (!execution["finished_at"].is_null()).then_some(execution)
    };
    let mut asked = 0;
    while begun.elapsed() < Duration::from_secs(60) && !ids.iter().all(|id| ended(id).is_some()) {
        let asking = Instant::now();
        assert_eq!(server.succeed("1+1", json!({}))["result"], 2);
        let took = asking.elapsed();
        assert!(took < Duration::from_secs(5), "an answer beside the floods took {took:?}");
        asked += 1;
    }
    assert!(asked > 1);
    for id in &ids {
        let execution = ended(id).unwrap();
        // One may have filled the way back to it before, which ends it as well.
        assert!(["timed_out", "lost"].contains(&execution["outcome"].as_str().unwrap()), "{}", brief(&execution));
        assert!(execution["metrics"]["duration_ms"].as_f64().unwrap() < 6000.0, "{}", brief(&execution));
    }
}

#[test]
fn a_process_left_in_a_session_that_writes_for_ever_ends_with_its_interpreter() {
    let server = server!(&[], &[]);
    let (status, session) = server.post("/v1/sessions", &json!({}));
    assert_eq!(status, 201, "{session}");
    let path = format!("/v1/sessions/{}/executions", session["id"].as_str().unwrap());
    let run = |code: &str, timeout: u32| {
        let (status, execution) = server.post(&path, &json!({"code": code, "timeout_ms": timeout}));
        assert_eq!(status, 200, "{execution}");
        execution
    };
    // It has the interpreter's own pipes and socket.
    let left = "if os.fork() == 0:\n    os.setsid()\n    for fd in (1, 2): os.set_blocking(fd, True)\n    while True:\n        os.write(1, b'x' * 5000); frame(20, {'code': 'c', 'message': 'm'})\nos._exit(3)";
    let begun = Instant::now();
    let execution = run(&format!("{FRAMES}{left}"), 20_000);
    assert_eq!(execution["interpreter_restarted"], true, "{}", brief(&execution));
    assert!(begun.elapsed() < Duration::from_secs(15), "took {:?}", begun.elapsed());
    assert_eq!(run("6*7", 20_000)["result"], 42);
}

#[test]
fn output_in_single_bytes_is_complete_and_costs_little_memory() {
    let server = server!(&[], &[]);
    server.succeed("1", json!({}));
    let before = resident(&server);
    let execution =
        server.succeed("import os\nfor _ in range(300000): os.write(1, b'x')", json!({"timeout_ms": 30000}));
    assert_eq!(execution["stdout"].as_str().unwrap().len(), 300_000);
    let grown = resident(&server).saturating_sub(before);
    assert!(grown < 40 << 20, "grew by {grown} bytes");
}

#[test]
fn links_pipes_and_devices_are_not_returned_as_artifacts() {
    let server = server!(&[], &[]);
    let code = "import os\nos.symlink('/etc/passwd', 'link.csv'); os.symlink('/', 'root'); os.symlink('..', 'up'); os.mkfifo('pipe.csv'); os.mkdir('dir.csv')\n\
                import socket; socket.socket(1).bind('sock.csv')\nopen('real.csv', 'w').write('1'); os.link('real.csv', 'hard.csv')";
    let execution = server.succeed(code, json!({"collect": ["**/*"]}));
    let paths: Vec<_> =
        execution["artifacts"].as_array().unwrap().iter().map(|artifact| artifact["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["hard.csv", "real.csv"]);
}

#[test]
fn a_workspace_replaced_by_a_link_gives_nothing() {
    let server = server!(&[], &[]);
    // The mount point cannot be replaced; what can be tried is all that is tried.
    let code = "import os\nfor step in (lambda: os.rename('/data', '/data2'), lambda: os.rmdir('/data'), lambda: os.symlink('/etc', '/data')):\n    try: step(); print('did it')\n    except OSError: pass";
    let execution = server.succeed(code, json!({"collect": ["**"]}));
    assert_eq!((&execution["stdout"], &execution["artifacts"]), (&json!(""), &json!([])));
}

#[test]
fn a_script_and_an_environment_as_large_as_allowed_arrive_whole() {
    let server = server!(&[], &[]);
    // Control characters take six times their size on their way as JSON.
    let filler = "\u{1}".repeat(60_000);
    let script = format!("# {}\necho ${{#BIG}}", "\u{2}".repeat(100_000));
    let execution = server.succeed(&script, json!({"language": "bash", "env": {"BIG": filler}}));
    assert_eq!(execution["stdout"], "60000\n", "{}", brief(&execution));
    let longer = format!(": '{}'\necho end", "x".repeat(300_000));
    assert_eq!(server.succeed(&longer, json!({"language": "bash"}))["stdout"], "end\n");
}

#[test]
fn a_program_that_is_not_there_is_the_callers_fault() {
    let server = server!(&[], &[]);
    let execution = server.execute("", json!({"language": "command", "argv": ["/no/such/program"]}));
    assert_eq!((&execution["exit_code"], &execution["fault"]), (&json!(127), &json!("user")), "{}", brief(&execution));
    let (status, answer) =
        server.post("/v1/executions", &json!({"code": "", "language": "command", "argv": ["no-such-program"]}));
    assert_eq!((status, &answer["error"]["field"]), (400, &json!("argv[0]")), "{answer}");
}
