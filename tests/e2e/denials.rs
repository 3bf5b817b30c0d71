//! What was refused is said, in words that whoever wrote the code can act on.

use serde_json::{Value, json};

use crate::forks::forking;
use crate::server::{brief, server};
use crate::sessions::Session;

fn denials(execution: &Value, kind: &str) -> Vec<String> {
    let all = execution["denials"].as_array().unwrap().iter().filter(|denial| denial["kind"] == kind);
    all.map(|denial| denial["what"].as_str().unwrap().to_owned()).collect()
}

/// Calls `mount`, and fails as a program does that checks.
const MOUNT: &str = "\
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def mount():
    if libc.mount(b'none', b'/mnt', b'tmpfs', 0, None): raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
";

#[test]
fn a_refused_system_call_is_named_with_its_rule_and_what_to_do_instead() {
    let server = server!(&[], &[]);
    let failed = server.execute(&format!("{MOUNT}mount()"), json!({}));
    assert_eq!((&failed["outcome"], &failed["fault"]), (&json!("denied"), &json!("policy")), "{}", brief(&failed));
    assert_eq!(denials(&failed, "syscall"), ["mount"]);
    let denial = &failed["denials"][0];
    assert!(denial["rule"].as_str().unwrap().contains("changes mounts"), "{denial}");
    assert!(denial["remedy"].as_str().unwrap().contains("/data"), "{denial}");
    assert_eq!(failed["error"]["line"], 4);
    assert!(failed["error"]["hint"].as_str().unwrap().contains("mount"), "{}", brief(&failed));
    assert_eq!(failed["isolation"]["features"]["refused_calls"], "told");
}

#[test]
fn a_program_that_copes_with_refusals_ends_well_and_they_are_counted() {
    let Some(server) = forking(&[]) else { return };
    let code =
        format!("{MOUNT}for n in range(3):\n    try: mount()\n    except PermissionError: pass\nprint('went on')");
    let ended = server.execute(&code, json!({}));
    assert_eq!((&ended["status"], &ended["stdout"]), (&json!("completed"), &json!("went on\n")), "{}", brief(&ended));
    assert_eq!(denials(&ended, "syscall"), ["mount, 3 times"]);
    // Other languages too.
    let shell = server.execute("unshare -U true || true; mount -t tmpfs none /mnt; true", json!({"language": "bash"}));
    assert!(denials(&shell, "syscall").contains(&"unshare(CLONE_NEWUSER)".to_owned()), "{}", brief(&shell));
}

#[test]
fn a_flood_of_refused_calls_slows_its_own_program_only() {
    let server = server!(&[], &[]);
    let flood = "\
import ctypes, threading
libc = ctypes.CDLL(None, use_errno=True)
def flood():
    while True: libc.ptrace(0, 0, 0, 0)
for _ in range(8): threading.Thread(target=flood, daemon=True).start()
import time; time.sleep(60)
";
    let flooded = server.execute(flood, json!({"timeout_ms": 1500}));
    assert_eq!(flooded["outcome"], "timed_out", "{}", brief(&flooded));
    let [ptrace] = &denials(&flooded, "syscall")[..] else { panic!("{}", brief(&flooded)) };
    let times: u64 = ptrace.strip_prefix("ptrace, ").unwrap().strip_suffix(" times").unwrap().parse().unwrap();
    // 256 at once, then at most one in five milliseconds.
    assert!((100..=256 + 300 + 50).contains(&times), "{ptrace}");
    assert_eq!(server.execute("1 + 1", json!({}))["result"], 2);
}

#[test]
fn in_a_session_each_execution_has_its_own_refusals() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    let first = session.run(&format!("{MOUNT}mount()"));
    assert_eq!((&first["outcome"], denials(&first, "syscall").len()), (&json!("denied"), 1), "{}", brief(&first));
    let second = session.run("2 + 2");
    assert_eq!((&second["result"], denials(&second, "syscall").len()), (&json!(4), 0), "{}", brief(&second));
}

#[test]
fn refused_places_and_ways_out_are_named() {
    let server = server!(&[], &[]);
    let place = server.execute("open('/usr/x', 'w')", json!({}));
    assert_eq!(denials(&place, "path"), ["/usr/x (Read-only file system)"], "{}", brief(&place));
    let code = "import urllib.request\nurllib.request.urlopen('http://192.0.2.1/data.csv')";
    let out = server.execute(code, json!({}));
    let [what] = &denials(&out, "network")[..] else { panic!("{}", brief(&out)) };
    assert!(what.contains("unreachable"), "{what}");
    assert!(out["denials"][0]["remedy"].as_str().unwrap().contains("upload"), "{}", brief(&out));
}

#[test]
fn a_timeout_says_where_the_code_was() {
    let Some(server) = forking(&[]) else { return };
    let code = "x = 0\ndef count():\n    global x\n    while True:\n        x += 1\ncount()";
    let ended = server.execute(code, json!({"timeout_ms": 300}));
    assert_eq!((&ended["outcome"], &ended["fault"]), (&json!("timed_out"), &json!("limit")), "{}", brief(&ended));
    let line = ended["error"]["line"].as_u64().unwrap_or(0);
    assert!((4..=5).contains(&line), "{}", brief(&ended));
    // Whoever does not listen is ended all the same.
    let deaf = "import time\nwhile True:\n    try:\n        while True: time.sleep(0.01)\n    except KeyboardInterrupt: print('never mind')";
    let ended = server.execute(deaf, json!({"timeout_ms": 300}));
    assert_eq!(ended["outcome"], "timed_out", "{}", brief(&ended));
    assert!(ended["metrics"]["duration_ms"].as_f64().unwrap() < 5000.0, "{}", brief(&ended));
}
