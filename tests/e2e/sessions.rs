//! Sessions: variables stay, interpreters come and go, nothing outlives the end.

use std::time::Instant;

use serde_json::{Value, json};

use crate::forks::{NO_ZYGOTE, forking};
use crate::limits::{kill, sandbox_processes};
use crate::server::{Server, brief, server, wait_for};

pub(crate) struct Session<'a> {
    server: &'a Server,
    pub(crate) id: String,
}

impl<'a> Session<'a> {
    pub(crate) fn open(server: &'a Server, body: &Value) -> Self {
        let (status, session) = server.post("/v1/sessions", body);
        assert_eq!(status, 201, "{session}");
        Self { server, id: session["id"].as_str().unwrap().to_owned() }
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.id)
    }

    pub(crate) fn run_with(&self, code: &str, more: Value) -> Value {
        let mut body = json!({"code": code});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, execution) = self.server.post(&self.path("/executions"), &body);
        assert_eq!(status, 200, "{execution}");
        execution
    }

    pub(crate) fn run(&self, code: &str) -> Value {
        self.run_with(code, json!({}))
    }

    pub(crate) fn result(&self, code: &str) -> Value {
        let execution = self.run(code);
        assert_eq!(execution["status"], "completed", "{}", brief(&execution));
        execution["result"].clone()
    }

    pub(crate) fn info(&self) -> Value {
        self.server.get(&self.path("")).1
    }

    pub(crate) fn post(&self, rest: &str) -> (u16, Value) {
        self.server.post(&self.path(rest), &json!({}))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.server.request("DELETE", &self.path(""), None);
    }
}

/// What a session has to do however its interpreter was started.
fn keeps_and_replaces(server: &Server) {
    let session = Session::open(server, &json!({}));
    session.run("x = 41\ndef f(): return x + 1\nopen('kept.txt', 'w').write('1')");
    assert_eq!(session.result("f(), open('kept.txt').read()"), json!([42, "1"]));
    // The interpreter is interrupted at its timeout, and keeps its variables.
    for code in [
        "while True: pass",
        "import time; time.sleep(60)",
        "import subprocess; subprocess.run(['sleep', '60'])",
        "import numpy\na = numpy.random.rand(200, 200)\nwhile True: a = a @ a; a /= a.max()",
    ] {
        let late = session.run_with(code, json!({"timeout_ms": 300}));
        assert_eq!((&late["outcome"], &late["interpreter_restarted"]), (&json!("timed_out"), &json!(false)), "{code}");
        assert_eq!(session.result("x"), 41, "after {code}");
    }
    // What does not heed that is ended with its interpreter.
    let stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
    let ended = session.run_with(stubborn, json!({"timeout_ms": 300}));
    assert_eq!(
        (&ended["outcome"], &ended["interpreter_restarted"]),
        (&json!("timed_out"), &json!(true)),
        "{}",
        brief(&ended)
    );
    let fresh = "import os\n('x' in globals(), os.path.exists('kept.txt'))";
    assert_eq!(session.result(fresh), json!([false, true]));
    for (code, outcome) in [
        ("import os; os._exit(7)", "exited"),
        ("import os; os.kill(os.getpid(), 11)", "signaled"),
        ("l = []\nwhile True: l.append(bytearray(1 << 20))", "oom_killed"),
    ] {
        session.run("x = 1");
        let ended = session.run(code);
        let right = ended["outcome"] == outcome || (outcome == "oom_killed" && ended["outcome"] == "exception");
        assert!(right, "{code}: {}", brief(&ended));
        assert_eq!(session.result("'x' in globals()"), ended["interpreter_restarted"] == false, "{code}");
        assert_eq!(session.result(fresh)[1], true, "{code}");
    }
    let begun = Instant::now();
    let (status, reset) = session.post("/reset");
    assert_eq!(status, 200, "{reset}");
    let took = begun.elapsed();
    assert_eq!(session.result(fresh), json!([false, true]), "reset took {took:?}");
}

#[test]
fn a_session_keeps_its_variables_and_survives_its_interpreter() {
    let Some(server) = forking(&[]) else { return };
    keeps_and_replaces(&server);
    wait_for(|| (server.get("/v1/pool").1["running"] == 0).then_some(()));
    // Two processes for each sandbox that waits ready.
    wait_for(|| (sandbox_processes(&server).len() <= 2 * 8).then_some(()));
}

#[test]
fn a_session_without_a_zygote_is_the_same_but_slower() {
    let server = server!(&[], &[NO_ZYGOTE, ("FUMEHOOD_POOL__MAX_READY", "0"), ("FUMEHOOD_POOL__MIN_READY", "0")]);
    keeps_and_replaces(&server);
    wait_for(|| sandbox_processes(&server).is_empty().then_some(()));
}

#[test]
fn what_one_execution_left_running_is_kept_until_the_interpreter_goes() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    session.run("import subprocess, threading, time\nchild = subprocess.Popen(['sleep', '100'])\nticks = []\nthreading.Thread(target=lambda: [ticks.append(time.sleep(0.01)) for _ in iter(int, 1)], daemon=True).start()");
    wait_for(|| (session.result("len(ticks) > 3") == true).then_some(()));
    assert_eq!(session.result("child.poll()"), Value::Null);
    session.post("/reset");
    assert_eq!(session.result("import os\n[p for p in os.listdir('/proc') if p.isdigit() and 'sleep' in open(f'/proc/{p}/cmdline').read()]"), json!([]));
}

#[test]
fn executions_wait_for_each_other_or_are_refused() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    session.run("log = []");
    std::thread::scope(|scope| {
        for number in 0..6 {
            let session = &session;
            scope.spawn(move || {
                let code = format!(
                    "log.append({number}); import time; time.sleep(0.02); log.append({number}); print({number})"
                );
                assert_eq!(session.run(&code)["stdout"], format!("{number}\n"));
            });
        }
    });
    let log = session.result("log");
    let pairs = log.as_array().unwrap().chunks(2).all(|pair| pair[0] == pair[1]);
    assert!(pairs, "{log}");
    let (status, running) =
        server.post(&session.path("/executions"), &json!({"code": "import time; time.sleep(60)", "mode": "async"}));
    assert_eq!(status, 202, "{running}");
    let (status, refused) = server.post(&session.path("/executions?wait=false"), &json!({"code": "1"}));
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("conflict")), "{refused}");
    wait_for(|| (session.info()["running"] == running["id"]).then_some(()));
    assert_eq!(session.post("/interrupt").0, 202);
    let path = format!("/v1/executions/{}", running["id"].as_str().unwrap());
    let ended = wait_for(|| Some(server.get(&path).1).filter(|execution| execution["status"] == "failed"));
    assert_eq!((&ended["outcome"], &ended["error"]["type"]), (&json!("exception"), &json!("KeyboardInterrupt")));
    assert_eq!(session.result("len(log)"), 12);
    let listed = server.get(&format!("/v1/executions?session_id={}", session.id)).1;
    assert_eq!(listed["executions"].as_array().unwrap().len(), 10, "{}", brief(&listed));
}

#[test]
fn an_execution_that_waits_in_a_session_is_cancelled_at_once() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    let begin = |code: &str| {
        let (status, begun) = server.post(&session.path("/executions"), &json!({"code": code, "mode": "async"}));
        assert_eq!(status, 202, "{begun}");
        format!("/v1/executions/{}", begun["id"].as_str().unwrap())
    };
    let (first, second, third) = (begin("import time; time.sleep(60)"), begin("x = 2"), begin("'x' in globals()"));
    wait_for(|| (server.get(&first).1["status"] == "running").then_some(()));
    let (status, cancelled) = server.post(&format!("{second}/cancel"), &json!({}));
    assert_eq!((status, &cancelled["outcome"]), (200, &json!("cancelled")), "{cancelled}");
    assert_eq!(server.get(&first).1["status"], "running");
    session.post("/interrupt");
    let last = wait_for(|| Some(server.get(&third).1).filter(|execution| execution["finished_at"].is_string()));
    assert_eq!(last["result"], false, "{}", brief(&last));
    assert_eq!(session.info()["queued"], 0);
}

#[test]
fn the_same_request_with_the_same_key_opens_one_session() {
    let Some(server) = forking(&[]) else { return };
    let open = |key: &str, ttl: u64| {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.post(format!("{}/v1/sessions", server.url)).header("idempotency-key", key);
        let mut answer = request.send_json(json!({"ttl_s": ttl})).unwrap();
        (answer.status().as_u16(), answer.body_mut().read_json::<Value>().unwrap())
    };
    let (first, again, other) = (open("a", 60), open("a", 60), open("b", 60));
    assert_eq!((first.0, again.0), (201, 201));
    assert_eq!(first.1["id"], again.1["id"]);
    assert_ne!(first.1["id"], other.1["id"]);
    assert_eq!(open("a", 61).0, 409);
    // When it ends is told, also after that has changed.
    let at = format!("/v1/sessions/{}", first.1["id"].as_str().unwrap());
    let (_, longer) = server.post(&format!("{at}/extend"), &json!({"ttl_s": 600}));
    assert_eq!(longer["ttl_s"], 600);
    assert!(longer["expires_at"].as_str() > first.1["expires_at"].as_str(), "{longer}");
}

#[test]
fn a_session_that_ended_says_why() {
    let Some(server) = forking(&[]) else { return };
    let idle = Session::open(&server, &json!({"idle_timeout_s": 1}));
    let old = Session::open(&server, &json!({"ttl_s": 1, "metadata": {"for": "test"}}));
    let deleted = Session::open(&server, &json!({}));
    deleted.run("1");
    // What runs there is ended with it.
    let (_, running) = server.post(&deleted.path("/executions"), &json!({"code": "while True: pass", "mode": "async"}));
    server.request("DELETE", &deleted.path(""), None);
    let path = format!("/v1/executions/{}", running["id"].as_str().unwrap());
    let ended = wait_for(|| Some(server.get(&path).1).filter(|execution| execution["finished_at"].is_string()));
    assert_eq!((&ended["status"], &ended["outcome"]), (&json!("cancelled"), &json!("cancelled")), "{}", brief(&ended));
    assert!(ended["error"]["message"].as_str().unwrap().contains("deleted"), "{}", brief(&ended));
    for (session, reason) in [(&idle, "nothing was executed"), (&old, "time to live"), (&deleted, "deleted")] {
        let info =
            wait_for(|| Some(session.info()).filter(|info| info["state"] == "closed" && info["closed_at"].is_string()));
        assert!(info["reason"].as_str().unwrap().contains(reason), "{info}");
        let (status, gone) = server.post(&session.path("/executions"), &json!({"code": "1"}));
        assert_eq!((status, &gone["error"]["code"]), (410, &json!("gone")));
        assert!(gone["error"]["message"].as_str().unwrap().contains(reason), "{gone}");
    }
    assert_eq!(old.info()["metadata"]["for"], "test");
    wait_for(|| (sandbox_processes(&server).len() <= 2 * 8).then_some(()));
}

#[test]
fn a_session_whose_interpreter_or_sandbox_is_killed_goes_on_or_says_so() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    session.run("x = 1");
    // While nothing runs: the interpreter, not process 1.
    let interpreter = session.result("__import__('os').getpid()");
    assert_eq!(interpreter, 2, "the second process of its namespace");
    let interpreters: Vec<_> = sandbox_processes(&server).into_iter().filter(|pid| name(*pid) == "python").collect();
    interpreters.into_iter().for_each(kill);
    // Told by the execution that met it, or by the next one.
    let told = wait_for(|| Some(session.run("'x' in globals()")).filter(|told| told["interpreter_restarted"] == true));
    let met_it = told["outcome"] != "exited";
    assert!(met_it || told["warnings"][0]["code"] == "interpreter_restarted", "{}", brief(&told));
    assert_eq!(session.result("'x' in globals()"), false);
    // All of it.
    sandbox_processes(&server).into_iter().filter(|pid| name(*pid) == "fumehood-init").for_each(kill);
    let info = wait_for(|| Some(session.info()).filter(|info| info["state"] == "lost"));
    assert!(info["reason"].as_str().unwrap().contains("went away"), "{info}");
    wait_for(|| session.info()["closed_at"].is_string().then_some(()));
}

#[test]
fn a_session_that_is_too_old_ends_what_runs_in_it() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({"ttl_s": 1}));
    let ended = session.run("import time; time.sleep(60)");
    assert_eq!(ended["outcome"], "cancelled", "{}", brief(&ended));
    assert!(ended["error"]["message"].as_str().unwrap().contains("time to live"), "{}", brief(&ended));
    // Nor does what waits there wait for ever.
    let (status, _) = server.post(&session.path("/executions"), &json!({"code": "1"}));
    assert_eq!(status, 410);
}

fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

#[test]
fn each_execution_of_a_session_has_its_own_input_environment_and_folder() {
    let Some(server) = forking(&[]) else { return };
    let session =
        Session::open(&server, &json!({"env": {"BASE": "b"}, "files": [{"path": "in.txt", "content": "hello"}]}));
    let first = json!({"stdin": "one\ntwo\n", "env": {"EXTRA": "e"}, "cwd": "/tmp", "files": [{"path": "more.txt", "content": "more"}]});
    let execution = session.run_with("import os\n[input(), input(), os.environ.get('EXTRA'), os.environ.get('BASE'), os.getcwd(), open('/data/in.txt').read(), open('/data/more.txt').read()]", first);
    assert_eq!(execution["result"], json!(["one", "two", "e", "b", "/tmp", "hello", "more"]), "{}", brief(&execution));
    let second = session.run(
        "try: input()\nexcept EOFError: print('eof')\n(os.environ.get('EXTRA'), os.environ.get('BASE'), os.getcwd())",
    );
    assert_eq!(
        (&second["stdout"], &second["result"]),
        (&json!("eof\n"), &json!([null, "b", "/data"])),
        "{}",
        brief(&second)
    );
    for (field, body) in
        [("limits.memory_mb", json!({"limits": {"memory_mb": 64}})), ("template", json!({"template": "default"}))]
    {
        let mut body = body;
        body["code"] = json!("1");
        let (status, refused) = server.post(&session.path("/executions"), &body);
        assert_eq!((status, &refused["error"]["field"]), (400, &json!(field)), "{refused}");
    }
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing_and_a_full_disk_is_told() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({"limits": {"disk_mb": 2}}));
    session.run("1");
    let (status, answer) = server.put(&session.path("/files/big"), &vec![7; 3 << 20]);
    assert_eq!(status, 507, "{}", String::from_utf8_lossy(&answer));
    assert_eq!(session.result("import os; os.listdir('.')"), json!([]), "nothing of it is left");
    let (status, _) = server.put(&session.path("/files/a/b.txt"), b"small");
    assert_eq!(status, 201);
    assert_eq!(server.put(&session.path("/files/a/b.txt/c"), b"x").0, 409);
    let (status, _) = server.put(&session.path("/files/a/b.txt"), b"other");
    assert_eq!(status, 200);
    assert_eq!(session.result("open('a/b.txt').read()"), "other");
    assert_eq!(server.request("DELETE", &session.path("/files/a"), None).0, 204);
    assert_eq!(server.request("GET", &session.path("/files/a/b.txt"), None).0, 404);
}

#[test]
fn what_a_result_leaves_out_can_be_read_page_by_page() {
    let Some(server) = forking(&[]) else { return };
    let code = "for i in range(200): print(f'\\r{i}%', end='')\nprint()\nprint('x' * 50000)";
    let execution = server.succeed(code, json!({"output": {"max_chars": 1000}}));
    let shown = execution["stdout"].as_str().unwrap();
    assert!(shown.starts_with("199%\nx") && shown.len() < 1300, "{shown}");
    assert_eq!((&execution["stdout_truncated"], &execution["stderr_truncated"]), (&json!(true), &json!(false)));
    let page = server
        .get(&format!("/v1/executions/{}/output?stream=stdout&offset=0&limit=8", execution["id"].as_str().unwrap()))
        .1;
    assert_eq!((&page["text"], &page["next_offset"]), (&json!("\r0%\r1%\r2"), &json!(8)), "{page}");
    assert!(page["total"].as_u64().unwrap() > 50_000);
}

#[test]
fn files_that_code_has_replaced_by_something_else_are_refused_and_nothing_hangs() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    session.run("import os\nos.mkfifo('pipe'); os.symlink('/etc/passwd', 'link')");
    for path in ["pipe", "link"] {
        let refused = session.run_with("1", json!({"files": [{"path": path, "content": "x"}]}));
        assert_eq!(
            (&refused["status"], &refused["fault"]),
            (&json!("failed"), &json!("user")),
            "{path}: {}",
            brief(&refused)
        );
        assert!(server.request("GET", &session.path(&format!("/files/{path}")), None).0 >= 400, "{path}");
    }
    assert_eq!(session.result("1 + 1"), 2);
}

#[test]
fn the_tablemind_surface_runs_in_a_session() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    session.run("x = 41");
    let (status, text) =
        server.request("POST", "/exec", Some(&json!({"code": "print(x + 1)", "session_id": session.id})));
    let text = String::from_utf8(text).unwrap();
    assert!(status == 200 && text.starts_with("<txt>42"), "{status} {text}");
    let (status, text) = server.request("POST", "/exec", Some(&json!({"code": "1", "session_id": "ses_unknown"})));
    assert_eq!(status, 400, "{}", String::from_utf8_lossy(&text));
}

#[test]
fn a_paused_session_stands_still_and_the_next_execution_finds_it_as_it_was() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({"idle_timeout_s": 2}));
    session.run("x = 1\nticks = []\nimport threading, time, subprocess\ndef tick():\n  while True: ticks.append(0); time.sleep(0.001)\nthreading.Thread(target=tick, daemon=True).start()\nchild = subprocess.Popen(['sleep', '1000'])");
    let info = session.info();
    assert!(info["tasks"].as_u64().unwrap() >= 3 && info["memory_mb"].as_f64().unwrap() > 1.0, "{info}");
    let processes = server.get(&session.path("/processes")).1;
    let commands: Vec<_> =
        processes["processes"].as_array().unwrap().iter().map(|p| p["command"].as_str().unwrap()).collect();
    assert_eq!(commands.len(), 2, "{processes}");
    assert!(commands[0].contains("python") && commands[1] == "sleep 1000", "{processes}");

    let (status, paused) = session.post("/pause");
    assert_eq!((status, &paused["state"]), (200, &json!("paused")), "{paused}");
    assert!(paused["memory_given_back_mb"].is_number(), "{paused}");
    assert_eq!(session.post("/pause").1["state"], "paused");
    // Longer than it may be idle, and its files are there meanwhile.
    let begun = Instant::now();
    while begun.elapsed().as_millis() < 2500 {
        assert_eq!(server.put(&session.path("/files/uploads/new.txt"), b"1").0 / 100, 2);
        std::thread::park_timeout(std::time::Duration::from_millis(100));
    }
    assert_eq!(session.info()["state"], "paused");
    let (status, resumed) = session.post("/resume");
    assert_eq!((status, &resumed["state"]), (200, &json!("idle")), "{resumed}");
    assert!(resumed["memory_given_back_mb"].is_null(), "{resumed}");
    session.post("/pause");
    assert_eq!(session.result("x, child.poll(), open('uploads/new.txt').read()"), json!([1, null, "1"]));
    assert_eq!(session.info()["state"], "idle");
    session.post("/pause");
    assert_eq!(session.post("/reset").0, 200);
    assert_eq!(session.result("'x' in globals()"), false);
    // Paused it can be deleted.
    session.post("/pause");
    let (id, before) = (session.path(""), server.get(&session.path("/processes")).1);
    assert_eq!(before["processes"].as_array().unwrap().len(), 1, "{before}");
    drop(session);
    wait_for(|| (server.get(&id).1["closed_at"].is_string()).then_some(()));
    assert_eq!(server.post(&format!("{id}/pause"), &json!({})).0, 410);
}

#[test]
fn what_the_operator_shares_is_read_by_every_sandbox_and_written_by_none() {
    let shared = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(shared.path(), Some(0), Some(0)).ok();
    std::fs::set_permissions(shared.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::create_dir(shared.path().join("sets")).unwrap();
    std::fs::write(shared.path().join("sets/a b.csv"), "x\n1\n").unwrap();
    let Some(server) = forking(&[("FUMEHOOD_PROCESS__SHARED_DIR", shared.path().to_str().unwrap())]) else { return };
    let probe = "import os
found = [open('/data/shared/sets/a b.csv').read(), open('shared/sets/a b.csv').read(), os.listdir('/data/shared')]
for change in (lambda: open('/data/shared/new', 'w'), lambda: os.remove('/data/shared/sets/a b.csv'), lambda: os.rmdir('/data/shared'),
    lambda: os.rename('/data/shared', '/data/other'), lambda: os.chmod('/data/shared/sets', 0), lambda: open('/data/shared/sets/a b.csv', 'a')):
    try: found.append(change())
    except OSError as error: found.append(error.errno in (13, 16, 30, 1))
found";
    let expected = json!(["x\n1\n", "x\n1\n", ["sets"], true, true, true, true, true, true]);
    assert_eq!(server.succeed(probe, json!({}))["result"], expected);
    let executed = server.succeed(probe, json!({"env": {"PYTHONHASHSEED": "1"}}));
    assert_eq!(executed["result"], expected, "an interpreter of its own");
    let session = Session::open(&server, &json!({}));
    assert_eq!(session.result(probe), expected);
    // Over HTTP it is the same folder.
    let (status, content) = server.request("GET", &session.path("/files/shared/sets/a%20b.csv"), None);
    assert_eq!((status, &content[..]), (200, &b"x\n1\n"[..]));
    let listed = server.get(&session.path("/files?path=shared&recursive=true")).1;
    let paths: Vec<_> = listed["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["shared/sets", "shared/sets/a b.csv"]);
    assert_eq!(server.put(&session.path("/files/shared/x"), b"1").0, 403);
    assert_eq!(server.request("DELETE", &session.path("/files/shared/sets"), None).0, 403);
    assert_eq!(server.request("GET", &session.path("/files/shared/../shared/sets/a%20b.csv"), None).0, 400);
    assert!(shared.path().join("sets/a b.csv").exists());
    // Folders that code speaks of are there, and that of data sets is the operator's.
    std::fs::create_dir(shared.path().join("datasets")).unwrap();
    std::fs::write(shared.path().join("datasets/d"), "2").unwrap();
    assert_eq!(session.result("open('datasets/d').read(), os.listdir('outputs')"), json!(["2", []]));
}

#[test]
fn other_languages_run_in_a_session_with_its_files_and_leave_the_interpreter_alone() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({"limits": {"processes": 40}}));
    session.run("x = 1\nimport os\nos.environ['FROM_PYTHON'] = 'p'\nos.makedirs('sub')\nprint('one')");
    let bash = |code: &str, more: Value| {
        let mut fields = json!({"language": "bash"});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        session.run_with(code, fields)
    };
    let ran = bash(
        "echo $FROM_PYTHON $MINE; echo bad >&2; cat; echo hi > sub/f; exit 3",
        json!({"env": {"MINE": "m"}, "stdin": "in"}),
    );
    let seen = [
        &ran["stdout"],
        &ran["stderr"],
        &ran["exit_code"],
        &ran["outcome"],
        &ran["status"],
        &ran["interpreter_restarted"],
    ];
    assert_eq!(
        seen,
        [&json!("p m\nin"), &json!("bad\n"), &json!(3), &json!("exited"), &json!("failed"), &json!(false)],
        "{}",
        brief(&ran)
    );
    assert_eq!(session.result("x, open('sub/f').read(), os.environ.get('MINE')"), json!([1, "hi\n", null]));
    // What it leaves running goes on and holds up nobody.
    let begun = Instant::now();
    let left = bash("sleep 300 & echo started", json!({}));
    assert_eq!((&left["stdout"], &left["outcome"]), (&json!("started\n"), &json!("exited")));
    assert!(begun.elapsed().as_secs() < 30);
    assert_eq!(bash("pgrep -x sleep | wc -l", json!({}))["stdout"], "1\n");
    // Ended by a signal, by its timeout, and when it does not heed that.
    assert_eq!(bash("kill -SEGV $$", json!({}))["outcome"], "signaled");
    for code in ["sleep 60", "trap '' INT; while :; do sleep 0.1; done", "f() { f | f & }; f; sleep 20"] {
        let late = bash(code, json!({"timeout_ms": 500}));
        let seen = (&late["outcome"], &late["interpreter_restarted"]);
        assert_eq!(seen, (&json!("timed_out"), &json!(false)), "{code}: {}", brief(&late));
        assert_eq!(session.result("x"), 1, "after {code}");
    }
    let missing = bash("no_such_program_zz", json!({}));
    assert_eq!((&missing["exit_code"], missing["stderr"].as_str().unwrap().contains("not found")), (&json!(127), true));
    let command = session.run_with("", json!({"language": "command", "argv": ["printf", "%s|", "a b", "$x"]}));
    assert_eq!(command["stdout"], "a b|$x|", "{}", brief(&command));
    let (status, refused) =
        server.post(&session.path("/executions"), &json!({"code": "", "language": "command", "argv": ["zz-none"]}));
    assert_eq!((status, &refused["error"]["field"]), (400, &json!("argv[0]")), "{refused}");
    let long = format!("# {}\necho end", "x".repeat(200_000));
    assert_eq!(bash(&long, json!({}))["stdout"], "end\n");
    if server.speaks("javascript") {
        let node = session
            .run_with("console.log(await Promise.resolve(1 + 1)); process.exit(4)", json!({"language": "javascript"}));
        assert_eq!((&node["stdout"], &node["exit_code"]), (&json!("2\n"), &json!(4)), "{}", brief(&node));
    }
    // Open input comes to it too, and an interrupt ends it.
    let (_, begun) = server.post(
        &session.path("/executions"),
        &json!({"code": "read a; echo got $a; sleep 60", "language": "bash", "mode": "async", "stdin_open": true}),
    );
    let at = format!("/v1/executions/{}", begun["id"].as_str().unwrap());
    assert_eq!(server.post(&format!("{at}/stdin"), &json!({"data": "it\n"})).0, 202);
    wait_for(|| (server.get(&at).1["stdout"] == "got it\n").then_some(()));
    session.post("/interrupt");
    let ended = wait_for(|| Some(server.get(&at).1).filter(|execution| execution["finished_at"].is_string()));
    assert_eq!((&ended["outcome"], session.result("x")), (&json!("signaled"), json!(1)), "{}", brief(&ended));
    // The same limits again are no contradiction, others are.
    assert_eq!(session.run_with("x", json!({"limits": {"processes": 40, "network": false}}))["result"], 1);
    let (status, refused) =
        server.post(&session.path("/executions"), &json!({"code": "1", "limits": {"processes": 41}}));
    assert_eq!((status, &refused["error"]["field"]), (400, &json!("limits.processes")));
}

/// MiB that a process has had in memory at most.
fn peak_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn a_large_file_goes_up_and_down_without_being_held_in_memory() {
    const MIB: usize = 300;
    let Some(server) = forking(&[]) else { return };
    let session =
        Session::open(&server, &json!({"limits": {"disk_mb": 2 * MIB, "file_size_mb": 2 * MIB, "memory_mb": 4 * MIB}}));
    session.run("1");
    let content: Vec<u8> = (0..MIB << 20).map(|at| (at >> 12) as u8).collect();
    let before = peak_mib(server.process.id());
    assert_eq!(server.put(&session.path("/files/large"), &content).0, 201);
    let (status, down) = server.request("GET", &session.path("/files/large"), None);
    assert!(status == 200 && down == content, "{status}, {} bytes", down.len());
    let (status, archive) = server.request("POST", &session.path("/files:archive"), Some(&json!({"format": "zip"})));
    assert!(status == 200 && archive.len() < content.len());
    let grown = peak_mib(server.process.id()) - before;
    assert!(grown < 40, "{grown} MiB more for {MIB} MiB");
    assert_eq!(session.result("import os; os.path.getsize('large')"), MIB << 20);
}

/// A form of files as browsers send it.
fn form(files: &[(&str, &str)]) -> (String, Vec<u8>) {
    let mut body = String::new();
    for (name, content) in files {
        body +=
            &format!("--XX\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n{content}\r\n");
    }
    ("multipart/form-data; boundary=XX".to_owned(), (body + "--XX--\r\n").into_bytes())
}

#[test]
fn several_files_go_up_in_one_request_and_a_folder_comes_down_as_an_archive() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    let upload = |query: &str, files: &[(&str, &str)]| {
        let (kind, body) = form(files);
        let (status, answer) = server.send_bytes("POST", &session.path(&format!("/files:upload{query}")), &kind, &body);
        (status, serde_json::from_slice::<Value>(&answer).unwrap())
    };
    let (status, stored) = upload("?path=uploads/x", &[("a.txt", "1"), ("下 b/-c.csv", "22"), ("empty", "")]);
    assert_eq!(status, 201, "{stored}");
    let expected = json!({"files": [{"path": "uploads/x/a.txt", "size": 1},
        {"path": "uploads/x/下 b/-c.csv", "size": 2}, {"path": "uploads/x/empty", "size": 0}]});
    assert_eq!(stored, expected);
    assert_eq!(session.result("open('/data/uploads/x/下 b/-c.csv').read()"), "22");

    // All or nothing, and nothing outside.
    let (status, refused) = upload("", &[("fine.txt", "1"), ("../out.txt", "2")]);
    assert_eq!((status, &refused["error"]["field"]), (400, &json!("part 2")), "{refused}");
    assert_eq!(session.result("import os; os.path.exists('fine.txt')"), false);
    assert_eq!(upload("", &[]).0, 400);
    let (status, answer) = server.send_bytes("POST", &session.path("/files:upload"), "text/plain", b"x");
    assert_eq!(status, 415, "{}", String::from_utf8_lossy(&answer));
    let (kind, body) = form(&[("cut.txt", "12345")]);
    let (status, _) = server.send_bytes("POST", &session.path("/files:upload"), &kind, &body[..body.len() - 12]);
    assert_eq!((status, session.result("os.path.exists('cut.txt')")), (400, json!(false)));

    session.run("os.symlink('/etc', 'uploads/x/etc'); os.symlink('/etc/passwd', 'uploads/x/passwd'); os.mkdir('uploads/x/none')");
    for (format, unpack) in [
        (
            "tar.gz",
            "import tarfile, io\nt = tarfile.open(fileobj=io.BytesIO(b))\n{m.name: m.isfile() and t.extractfile(m).read().decode() for m in t}",
        ),
        (
            "zip",
            "import zipfile, io\nz = zipfile.ZipFile(io.BytesIO(b))\nassert z.testzip() is None\n{n.rstrip('/'): not n.endswith('/') and z.read(n).decode() for n in z.namelist()}",
        ),
    ] {
        let body = json!({"path": "uploads/x", "format": format});
        let (status, archive) = server.request("POST", &session.path("/files:archive"), Some(&body));
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&archive));
        assert_eq!(server.put(&session.path("/files/archive"), &archive).0, 201);
        let unpacked = session.result(&format!("b = open('archive', 'rb').read(); os.remove('archive')\n{unpack}"));
        let expected = json!({"a.txt": "1", "下 b": false, "下 b/-c.csv": "22", "empty": "", "none": false});
        assert_eq!(unpacked, expected, "{format}");
    }
    for (body, status) in [
        (json!({"path": "uploads/none"}), 404),
        (json!({"path": "uploads/x/etc"}), 400),
        (json!({"path": "uploads/x/a.txt"}), 400),
        (json!({"path": "../x"}), 400),
        (json!({"format": "rar"}), 400),
    ] {
        let (got, answer) = server.post(&session.path("/files:archive"), &body);
        assert_eq!(got, status, "{body}: {answer}");
    }
}
