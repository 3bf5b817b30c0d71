//! Templates: what they promise of the sandboxes that run in them, and their files.

use std::process::Command;

use serde_json::{Value, json};

use crate::server::{BINARY, Server, brief, images_dir, server};

fn make(server: &Server, body: &Value) -> Value {
    let (status, made) = server.post("/v1/templates", body);
    assert_eq!(status, 201, "{made}");
    made
}

fn change(server: &Server, name: &str, body: &Value) -> Value {
    let (status, bytes) = server.request("PUT", &format!("/v1/templates/{name}"), Some(body));
    assert_eq!(status, 201, "{}", String::from_utf8_lossy(&bytes));
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_calculator_calculates_and_nothing_else() {
    let server = server!(&[], &[]);
    let fields = || json!({"template": "calculator"});
    let done = server.succeed(
        "import math\nfrom decimal import Decimal\nsorted([3, math.factorial(5), int(Decimal('1'))])",
        fields(),
    );
    assert_eq!((&done["result"], &done["template"]), (&json!([1, 3, 120]), &json!("calculator@1")));
    // What the document of such a service shows.
    let shown = "data = [{'n': 'A', 'age': 30}, {'n': 'B', 'age': 25}]\nprint(sorted(data, key=lambda x: x['age'])[0]['n'])\nimport re\nlen(re.findall('fox', 'fox fox'))";
    let done = server.succeed(shown, fields());
    assert_eq!((&done["stdout"], &done["result"]), (&json!("B\n"), &json!(2)));
    for (code, kind, told) in [
        ("open('/data/x', 'w')", "NameError", "open() is closed"),
        ("exec('1')", "NameError", "exec() is closed"),
        ("eval('1')", "NameError", "eval() is closed"),
        ("input()", "NameError", "input() is closed"),
        ("import os", "ImportError", "'os' is closed"),
        ("import numpy", "ImportError", "'numpy' is closed"),
        ("__import__('subprocess')", "ImportError", "'subprocess' is closed"),
        ("!ls", "NameError", "get_ipython"),
    ] {
        let failed = server.execute(code, fields());
        let error = &failed["error"];
        assert_eq!(error["type"], kind, "{code}: {}", brief(&failed));
        assert!(error["message"].as_str().unwrap().contains(told), "{code}: {}", brief(&failed));
    }
    let large = server.execute("len(b'x' * (300 << 20))", fields());
    assert_eq!(large["outcome"], "oom_killed", "{}", brief(&large));
}

#[test]
fn nothing_can_be_written_in_a_read_only_sandbox_however_it_was_started() {
    let server = server!(&[], &[]);
    make(&server, &json!({"name": "still", "read_only": true}));
    let code = "
import errno, os, socket
tried = {}
for folder in ['/data', '/tmp', '/var/tmp', '/home/sandbox', '/dev/shm', '/', '/usr', '/etc', '/run', '/mnt', '/dev', '/opt']:
    for make in [lambda p: open(p, 'w'), os.mkdir, lambda p: os.symlink('x', p), lambda p: os.mkfifo(p)]:
        try:
            make(folder + '/new')
            tried[folder] = 'written'
        except OSError as e:
            tried.setdefault(folder, errno.errorcode[e.errno])
try:
    open('in.txt', 'a')
except OSError as e:
    tried['in.txt'] = errno.errorcode[e.errno]
tried['read'] = open('in.txt').read()
import numpy
tried['sum'] = int(numpy.arange(4).sum())
tried
";
    let files = json!([{"path": "in.txt", "content": "given"}]);
    let fields = |env: Value| json!({"template": "still", "files": files, "env": env, "collect": ["*.txt"]});
    // Forked, then executed: such a variable is read when an interpreter starts.
    for env in [json!({}), json!({"PYTHONHASHSEED": "1"})] {
        let done = server.succeed(code, fields(env));
        let tried = done["result"].as_object().unwrap();
        for (place, what) in tried.iter().filter(|(place, _)| place.starts_with('/')) {
            assert!(matches!(what.as_str(), Some("EROFS" | "EACCES")), "{place}: {what}");
        }
        assert_eq!((&tried["in.txt"], &tried["read"], &tried["sum"]), (&json!("EROFS"), &json!("given"), &json!(6)));
        assert_eq!(done["artifacts"][0]["path"], "in.txt");
    }
    let refused = server.execute("open('/data/x', 'w')", json!({"template": "still"}));
    assert!(refused["error"]["hint"].as_str().unwrap().contains("read-only"), "{}", brief(&refused));
    assert_eq!(refused["denials"][0]["kind"], "path");
    let shell = json!({"template": "still", "language": "bash"});
    let done = server.execute(
        "touch /data/x || touch /tmp/x || touch /dev/shm/x || mount -o remount,rw /data || echo nowhere",
        shell,
    );
    assert_eq!(done["stdout"], "nowhere\n", "{}", brief(&done));
    let (status, refused) = server.post("/v1/executions", &json!({"code": "1", "template": "still", "cwd": "sub"}));
    assert_eq!((status, &refused["error"]["field"]), (400, &json!("cwd")));
}

#[test]
fn a_session_of_a_template_is_what_the_template_says() {
    let server = server!(&[], &[]);
    make(&server, &json!({"name": "still", "extends": "calculator", "env": {"GREETING": "hello"}, "builtins": "all"}));
    let (status, session) = server.post("/v1/sessions", &json!({"template": "still"}));
    assert_eq!((status, &session["template"]), (201, &json!("still@1")));
    let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    let run = |code: &str| server.post(&format!("{path}/executions"), &json!({"code": code})).1;
    assert_eq!(run("import os\nos.environ['GREETING']")["result"], "hello");
    assert_eq!(server.put(&format!("{path}/files/given.txt"), b"given").0, 201);
    assert_eq!(run("open('given.txt').read()")["result"], "given");
    assert_eq!(run("open('new.txt', 'w')")["error"]["errno"], Value::Null);
    assert_eq!(run("try:\n    open('new.txt', 'w')\nexcept OSError as e:\n    n = e.errno\nn")["result"], 30);
    let other = server.post(&format!("{path}/executions"), &json!({"code": "1", "language": "bash"})).1;
    assert_eq!(other["error"]["field"], "language");

    let (status, refused) = server.get("/v1/templates/still");
    assert_eq!(status, 200, "{refused}");
    let (status, in_use) = server.request("DELETE", "/v1/templates/still", None);
    assert_eq!(status, 409);
    assert!(String::from_utf8_lossy(&in_use).contains(session["id"].as_str().unwrap()));
    assert_eq!(server.request("DELETE", "/v1/templates/still?force=true", None).0, 204);
    assert_eq!(run("1 + 1")["result"], 2);
}

#[test]
fn a_function_has_little_memory_and_is_called() {
    let server = server!(&[], &[]);
    let fields = json!({"template": "function", "input": {"n": 20}});
    let done = server
        .succeed("def handler(input):\n    open('w.txt', 'w').write('x')\n    return sum(range(input['n']))", fields);
    assert_eq!(done["result"], 190);
    let large = server.execute("len(b'x' * (150 << 20))", json!({"template": "function"}));
    assert_eq!(large["outcome"], "oom_killed", "{}", brief(&large));
    let more = json!({"template": "function", "limits": {"memory_mb": 400}});
    assert_eq!(server.succeed("len(b'x' * (150 << 20))", more)["result"], 150 << 20);
}

#[test]
fn shell_and_node_run_what_they_are_for() {
    let server = server!(&[], &[]);
    let done =
        server.succeed("echo $((6 * 7)) > /data/x && cat /data/x", json!({"template": "shell", "language": "bash"}));
    assert_eq!(done["stdout"], "42\n");
    let (status, refused) = server.post("/v1/executions", &json!({"code": "1", "template": "shell"}));
    assert_eq!((status, &refused["error"]["field"]), (400, &json!("language")));
    if server.speaks("javascript") {
        let done = server.succeed("console.log(6 * 7)", json!({"template": "node", "language": "javascript"}));
        assert_eq!(done["stdout"], "42\n");
    }
}

#[test]
fn an_old_version_stays_what_it_was() {
    let server = server!(&[], &[]);
    make(&server, &json!({"name": "t", "env": {"WHICH": "first"}, "timeout_ms": 300}));
    change(&server, "t", &json!({"name": "t", "env": {"WHICH": "second"}}));
    let which = |template: &str, env: Value| {
        server.succeed("import os\nos.environ['WHICH']", json!({"template": template, "env": env}))["result"].clone()
    };
    assert_eq!((which("t@1", json!({})), which("t", json!({}))), (json!("first"), json!("second")));
    assert_eq!(which("t", json!({"WHICH": "mine"})), "mine");
    let slow = server.execute("import time\ntime.sleep(20)", json!({"template": "t@1"}));
    assert_eq!((&slow["outcome"], &slow["template"]), (&json!("timed_out"), &json!("t@1")));
}

#[test]
fn modules_of_a_template_are_preloaded_for_it() {
    let server = server!(&[], &[]);
    make(&server, &json!({"name": "light", "preload": ["json", "fractions"]}));
    let loaded = || {
        let code = "import sys\n['pandas' in sys.modules, 'fractions' in sys.modules]";
        server.succeed(code, json!({"template": "light"}))["result"].clone()
    };
    // Until its interpreter is loaded each sandbox starts one that has loaded nothing.
    let loaded = crate::server::wait_for(|| Some(loaded()).filter(|loaded| loaded[1] == true));
    assert_eq!(loaded, json!([false, true]));
    let default = || server.succeed("import sys\n'pandas' in sys.modules", json!({}))["result"] == true;
    crate::server::wait_for(|| default().then_some(()));
}

fn fumehood(server: &Server, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(BINARY).args(arguments).args(["--server", &server.url]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn templates_as_files_are_applied_and_shown_before() {
    let server = server!(&[], &[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("team.yaml");
    std::fs::write(&file, "name: child\nextends: base\ntimeout_ms: 500\n---\nname: base\nlimits: {memory_mb: 200}\n")
        .unwrap();
    let folder = folder.path().to_str().unwrap();

    let (code, out, err) = fumehood(&server, &["template", "apply", folder, "--dry-run"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("base@1 would be created") && out.contains("+timeout_ms: 500"), "{out}");
    assert!(out.contains("+extends: base@1") && out.contains("+  memory_mb: 200"), "{out}");
    assert_eq!(server.get("/v1/templates/base").0, 404);

    let (code, out, err) = fumehood(&server, &["template", "apply", folder]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("base@1 created") && out.contains("child@1 created"), "{out}");
    let (_, out, _) = fumehood(&server, &["template", "apply", folder]);
    assert_eq!(out, "base@1 unchanged\nchild@1 unchanged\n");

    std::fs::write(&file, "name: child\nextends: base\ntimeout_ms: 500\n---\nname: base\nlimits: {memory_mb: 300}\n")
        .unwrap();
    let (_, out, _) = fumehood(&server, &["template", "apply", folder, "--dry-run"]);
    assert!(out.contains("base@2 would be changed\n--- base@1\n+++ base@2\n"), "{out}");
    assert!(out.contains("-  memory_mb: 200\n+  memory_mb: 300") && out.contains("+extends: base@2"), "{out}");
    let (_, out, _) = fumehood(&server, &["template", "apply", folder]);
    assert!(out.contains("base@2 changed") && out.contains("child@2 changed"), "{out}");

    let (_, out, _) = fumehood(&server, &["template", "show", "child@1", "--resolved"]);
    assert!(out.contains("# child@1, made ") && out.contains("memory_mb: 200"), "{out}");
    let (_, out, _) = fumehood(&server, &["template", "ls"]);
    assert!(out.contains("calculator") && out.contains("child"), "{out}");
    let (code, _, err) = fumehood(&server, &["template", "rm", "base"]);
    assert!(code != 0 && err.contains("child"), "{err}");
    assert_eq!(fumehood(&server, &["template", "rm", "child", "base"]).0, 0);

    std::fs::write(&file, "name: a\nlimits: {memory_mb: 9999999}\n").unwrap();
    let (code, _, err) = fumehood(&server, &["template", "apply", folder, "--dry-run"]);
    assert!(code != 0 && err.contains("team.yaml: limits.memory_mb"), "{err}");
}

#[test]
fn a_folder_of_templates_is_loaded_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), "name: a\nextends: function\nenv: {FROM: file}\n").unwrap();
    let named = folder.path().to_str().unwrap().to_owned();
    let server = server!(&[], &[("FUMEHOOD_TEMPLATES__DIR", &named)]);
    let done = server.succeed("import os\nos.environ['FROM']", json!({"template": "a"}));
    assert_eq!((&done["result"], &done["template"]), (&json!("file"), &json!("a@1")));

    std::fs::write(folder.path().join("b.yaml"), "name: b\nlimits: {memory_mb: 0}\n").unwrap();
    let data = tempfile::tempdir().unwrap();
    let refused = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data.path())
        .arg("--images-dir")
        .arg(images_dir())
        .env("FUMEHOOD_TEMPLATES__DIR", &named)
        .output()
        .unwrap();
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && error.contains("b.yaml: limits.memory_mb"), "{error}");
}

#[test]
fn sandboxes_wait_ready_for_a_template_that_asks_for_it() {
    let server = server!(&[], &[]);
    make(&server, &json!({"name": "ready", "limits": {"memory_mb": 300}, "env": {"A": "1"}, "pool": {"min_ready": 1}}));
    let waiting = || {
        let pool = server.get("/v1/pool").1["templates"][0].clone();
        Some(pool).filter(|pool| pool["ready"].as_u64() >= Some(1))
    };
    assert_eq!(crate::server::wait_for(waiting)["template"], "ready@1");
    let done = server.succeed("import os\nos.environ['A']", json!({"template": "ready"}));
    assert_eq!(done["result"], "1");
    assert_eq!(server.get("/v1/pool").1["templates"][0]["claims"], 1);
    // Another version takes its place.
    change(&server, "ready", &json!({"name": "ready", "pool": {"min_ready": 1}}));
    assert_eq!(crate::server::wait_for(waiting)["template"], "ready@2");
}
