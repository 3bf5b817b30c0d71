//! Executions in sandboxes that were forked from a preloaded interpreter: each is as if it were the first one, and nothing is lost with the interpreter.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::limits::{jailer, kill, sandbox_processes, zygote};
use crate::server::{Server, brief, images_dir, server, wait_for};

pub(crate) const NO_ZYGOTE: (&str, &str) = ("FUMEHOOD_ZYGOTE__ENABLED", "false");

/// A server whose zygote serves.
pub(crate) fn forking(env: &[(&str, &str)]) -> Option<Server> {
    let server = Server::start_with(&[], env)?;
    wait_for(|| (forks(&server) > 0.0).then_some(()));
    Some(server)
}

/// Sandboxes made by forking so far.
fn forks(server: &Server) -> f64 {
    metric(server, "fumehood_sandbox_start_seconds_count{how=\"fork\"}")
}

fn metric(server: &Server, name: &str) -> f64 {
    let text = String::from_utf8(server.request("GET", "/metrics", None).1).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0.0)
}

#[test]
fn a_forked_sandbox_never_repeats_random_numbers() {
    let Some(server) = forking(&[]) else { return };
    let code = r"
import random, secrets, uuid, ssl, os, tempfile, multiprocessing, numpy as np, scipy.stats, pandas as pd
{
    'random': random.random(), 'numpy': float(np.random.rand()), 'generator': float(np.random.default_rng().random()),
    'scipy': float(scipy.stats.norm.rvs()), 'pandas': int(pd.Series(range(10**9 // 10**5)).sample(1).index[0]) + random.random(),
    'uuid1': str(uuid.uuid1()), 'uuid4': str(uuid.uuid4()), 'secrets': secrets.token_hex(8), 'ssl': ssl.RAND_bytes(8).hex(),
    'urandom': os.urandom(8).hex(), 'system': random.SystemRandom().random(), 'temp': tempfile.mktemp(),
    'authkey': bytes(multiprocessing.current_process().authkey).hex(),
}";
    let runs: Vec<Value> = (0..12).map(|_| server.succeed(code, json!({}))["result"].clone()).collect();
    for source in runs[0].as_object().unwrap().keys() {
        let different: BTreeSet<String> = runs.iter().map(|run| run[source].to_string()).collect();
        assert_eq!(different.len(), runs.len(), "{source}: {different:?}");
    }
    assert!(forks(&server) >= 12.0);
}

#[test]
fn a_forked_sandbox_has_its_own_pid_host_name_clock_and_proc() {
    let Some(server) = forking(&[]) else { return };
    let execution = server.succeed(
        r"
import os, socket, time
pids = sorted(int(name) for name in os.listdir('/proc') if name.isdigit())
[os.getpid(), os.getppid(), socket.gethostname(), pids, os.getcwd(), abs(time.time() - os.stat(open('/tmp/now', 'w').name).st_mtime) < 5,
 open('/proc/self/cgroup').read().count('fumehood'), sorted(os.listdir('/tmp')), os.listdir('/data'), len(os.listdir('/proc/self/task'))]",
        json!({}),
    );
    let expected = json!([2, 0, "sandbox", [1, 2], "/data", true, 0, ["now"], [], 1]);
    assert_eq!(execution["result"], expected, "{}", brief(&execution));
}

#[test]
fn no_byte_of_one_execution_can_be_found_by_the_next() {
    let Some(server) = forking(&[]) else { return };
    // Put together when it runs, so that the text that searches does not find itself.
    let mark = "''.join(['MARK', 'ED-', 'BY-THE', '-FIRST'])";
    server.succeed(
        &format!(
            r"
import os, socket, sys, builtins, numpy as np, multiprocessing.shared_memory as shm, tempfile
mark = {mark}
kept = [mark * 1000 for _ in range(1000)]
builtins.left = np.left = mark
os.environ[mark] = mark
for folder in ('/data', '/tmp', '/var/tmp', '/home/sandbox', '/dev/shm'):
    open(folder + '/' + mark, 'w').write(mark * 10000)
shared = shm.SharedMemory(mark[:8], create=True, size=4096); shared.buf[:4] = b'MARK'
s = socket.socket(socket.AF_UNIX); s.bind('\0' + mark); s.listen()
t = socket.socket(); t.bind(('127.0.0.1', 45678)); t.listen()
np.random.seed(42); sys.setrecursionlimit(4321)
try: os.symlink('/data', '/tmp/link')
except OSError: pass
import ctypes, platform
add_key = 248 if platform.machine() == 'x86_64' else 217
assert ctypes.CDLL(None).syscall(add_key, b'user', mark.encode(), mark.encode(), len(mark), -4) == -1"
        ),
        json!({}),
    );
    for _ in 0..6 {
        let execution = server.succeed(
            &format!(
                r"
import os, socket, sys, builtins, numpy as np
found = []
needle = {mark}
for name in ('left',):
    found += [where for where in (builtins, np) if hasattr(where, name)]
found += [name for name in os.environ if needle in name]
for top in ('/data', '/tmp', '/var/tmp', '/home', '/dev/shm', '/run'):
    for path, folders, files in os.walk(top):
        found += [os.path.join(path, f) for f in files if needle[:6] in f]
for address in ('\0' + needle, ('127.0.0.1', 45678)):
    s = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    try: s.connect(address); found.append(address)
    except OSError: pass
found += [sys.getrecursionlimit()] * (sys.getrecursionlimit() == 4321)
found += ['proc'] * (needle in open('/proc/net/unix').read())
try: found += ['keys'] * (needle in open('/proc/keys').read())
except OSError: pass
# Doubled, as the first one kept it a million times; a few copies are this program's own.
needle = (needle * 2).encode()
with open('/proc/self/mem', 'rb', 0) as memory:
    for line in open('/proc/self/maps'):
        start, end = (int(x, 16) for x in line.split()[0].split('-'))
        if 'r' not in line.split()[1] or '[v' in line: continue
        for at in range(start, end, 1 << 22):
            try: memory.seek(at); block = memory.read(min(1 << 22, end - at))
            except (OSError, ValueError, OverflowError): break
            if block.count(needle) > 4: found.append(line)
            del block
found"
            ),
            json!({"timeout_ms": 60000}),
        );
        assert_eq!(execution["result"], json!([]), "{}", brief(&execution));
    }
}

#[test]
fn environment_that_comes_after_loading_is_there_and_what_cannot_wait_is_obeyed() {
    let Some(server) = forking(&[]) else { return };
    let code = "import os, subprocess, time\n[os.environ['A'], subprocess.run(['sh', '-c', 'echo $A'], capture_output=True, text=True).stdout, time.strftime('%Z', time.localtime(0))]";
    let execution = server.succeed(code, json!({"env": {"A": "b", "TZ": "Asia/Tokyo"}}));
    assert_eq!(execution["result"], json!(["b", "b\n", "JST"]), "{}", brief(&execution));
    let seed = json!({"env": {"PYTHONHASHSEED": "7"}});
    let hashes: BTreeSet<String> =
        (0..3).map(|_| server.succeed("hash('x')", seed.clone())["result"].to_string()).collect();
    assert_eq!(hashes.len(), 1, "the seed of hashes is read at the start: {hashes:?}");
}

#[test]
fn a_zygote_is_replaced_after_so_many_forks_and_nobody_notices() {
    let env = [("FUMEHOOD_ZYGOTE__MAX_FORKS", "5"), ("FUMEHOOD_ZYGOTE__PRELOAD", "json")];
    let Some(server) = forking(&env) else { return };
    let first = wait_for(|| zygote(&server));
    wait_for(|| {
        server.succeed("1", json!({}));
        let now = zygote(&server)?;
        (now != first && metric(&server, "fumehood_zygote_start_seconds_count") >= 2.0).then_some(())
    });
    assert_eq!(metric(&server, "fumehood_zygote_losses_total"), 0.0);
}

#[test]
fn without_a_zygote_everything_is_the_same_but_slower() {
    let server = server!(&[], &[NO_ZYGOTE]);
    assert_eq!(server.succeed("import os\n[os.getpid(), 6 * 7]", json!({}))["result"], json!([2, 42]));
    assert_eq!((forks(&server), zygote(&server)), (0.0, None));
}

#[test]
fn a_module_that_the_image_lacks_is_left_out_and_logged() {
    let Some(server) = forking(&[("FUMEHOOD_ZYGOTE__PRELOAD", "json,no_such_module")]) else { return };
    assert_eq!(server.succeed("import json; json.dumps([1])", json!({}))["result"], "[1]");
    wait_for(|| server.log().contains("no_such_module").then_some(()));
}

#[test]
fn an_image_that_is_built_anew_is_taken_up_without_a_restart() {
    let first = images_dir().join("default").canonicalize().unwrap();
    let images = tempfile::tempdir().unwrap();
    let link = |to: &Path| {
        let next = images.path().join("next");
        std::os::unix::fs::symlink(to, &next).unwrap();
        std::fs::rename(&next, images.path().join("default")).unwrap();
    };
    link(&first);
    let Some(server) = Server::start_with(&["--images-dir", images.path().to_str().unwrap()], &[]) else { return };
    wait_for(|| (forks(&server) > 0.0).then_some(()));
    let version = "import os; open('/etc/version').read() if os.path.exists('/etc/version') else 'first'";
    assert_eq!(server.succeed(version, json!({}))["result"], "first");

    let second = images.path().join(".default-second");
    std::fs::create_dir(&second).unwrap();
    let manifest = std::fs::read_to_string(first.join("image.json")).unwrap();
    let mut manifest: Value = serde_json::from_str(&manifest).unwrap();
    manifest["fingerprint"] = json!("second-second-second");
    manifest["entries"].as_array_mut().unwrap().push(json!({"kind": "file", "at": "/etc/version", "text": "second"}));
    std::fs::write(second.join("image.json"), manifest.to_string()).unwrap();
    let forked = forks(&server);
    link(&second);
    // Whatever runs meanwhile succeeds, on the one or the other.
    wait_for(|| (server.succeed(version, json!({}))["result"] == "second").then_some(()));
    wait_for(|| (forks(&server) > forked).then_some(()));
    for _ in 0..10 {
        assert_eq!(server.succeed(version, json!({}))["result"], "second");
    }
    assert_eq!(metric(&server, "fumehood_zygote_losses_total"), 0.0);
}

/// Thirty-two clients ask all the time while `strike` is called three times; what they got.
fn under_fire(server: &Server, strike: impl Fn()) -> Vec<Value> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = |number: usize| {
            let mut got = Vec::new();
            for turn in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let expected = number * 100_000 + turn;
                let (status, execution) = server.post("/v1/executions", &json!({"code": format!("print({expected})")}));
                assert_eq!(status, 200, "{execution}");
                if execution["status"] == "completed" {
                    assert_eq!(execution["stdout"], format!("{expected}\n"));
                }
                got.push(execution);
            }
            got
        };
        let clients: Vec<_> = (0..32).map(|number| scope.spawn(move || client(number))).collect();
        for _ in 0..3 {
            std::thread::park_timeout(Duration::from_millis(400));
            strike();
        }
        std::thread::park_timeout(Duration::from_millis(400));
        over.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

/// What did not succeed ended with a clear error of ours; afterwards everything works and nothing is left over.
fn survived(server: &Server, executions: &[Value]) {
    for execution in executions.iter().filter(|execution| execution["status"] != "completed") {
        let outcome = execution["outcome"].as_str().unwrap_or_default();
        assert!(["infra", "lost", "signaled"].contains(&outcome), "{}", brief(execution));
        assert!(!execution["error"]["message"].as_str().unwrap_or_default().is_empty(), "{}", brief(execution));
    }
    assert!(executions.iter().any(|execution| execution["status"] == "completed"));
    wait_for(|| (server.execute("6*7", json!({}))["result"] == 42).then_some(()));
    // Two processes for each sandbox that waits ready.
    wait_for(|| (sandbox_processes(server).len() <= 2 * 8).then_some(()));
}

#[test]
fn a_zygote_killed_under_load_costs_no_execution() {
    let Some(server) = forking(&[]) else { return };
    let got = under_fire(&server, || zygote(&server).into_iter().for_each(kill));
    let failed: Vec<_> = got.iter().filter(|execution| execution["status"] != "completed").collect();
    assert!(failed.is_empty(), "{} of {}: {}", failed.len(), got.len(), brief(failed[0]));
    survived(&server, &got);
    assert!(metric(&server, "fumehood_zygote_losses_total") >= 1.0);
}

#[test]
fn programs_killed_under_load_are_told_and_the_next_ones_succeed() {
    let Some(server) = forking(&[]) else { return };
    let got = under_fire(&server, || sandbox_processes(&server).into_iter().for_each(kill));
    survived(&server, &got);
}

#[test]
fn a_jailer_killed_under_load_loses_what_runs_and_nothing_else() {
    let Some(server) = forking(&[]) else { return };
    let strike = || {
        let inner = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| jailer(&server)[1]));
        inner.into_iter().for_each(kill);
    };
    let got = under_fire(&server, strike);
    survived(&server, &got);
    let outer = jailer(&server)[0];
    assert!(outer > 0, "there is a new one");
}
