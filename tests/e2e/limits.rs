//! Limits: time, memory, processes, output, disk; and that nothing is left after them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Server, brief, server, wait_for};

/// Runs code that never ends by itself; how long after its timeout it was gone.
fn overrun(server: &Server, code: &str) -> Duration {
    let timeout = Duration::from_millis(1000);
    let execution = server.execute(code, json!({"timeout_ms": timeout.as_millis() as u64}));
    assert_eq!(execution["outcome"], "timed_out", "{}", brief(&execution));
    let ran = Duration::from_secs_f64(execution["metrics"]["duration_ms"].as_f64().unwrap() / 1000.0);
    ran.saturating_sub(timeout)
}

/// For tests that look at processes: none waits ready.
pub(crate) const NO_POOL: &[(&str, &str)] = &[("FUMEHOOD_POOL__MAX_READY", "0")];

#[test]
fn what_never_ends_is_dead_soon_after_its_timeout_with_every_process() {
    let server = server!(&[], NO_POOL);
    for code in [
        "while True: pass",
        "import time; time.sleep(1e9)",
        "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')",
        "import numpy as np\nwhile True: np.random.rand(400, 400) @ np.random.rand(400, 400)",
        "import subprocess; subprocess.run(['sleep', '1000'])",
        "import os, signal, time\nfor s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\nif os.fork() == 0:\n    os.setsid()\nwhile True: time.sleep(1)",
    ] {
        let late = overrun(&server, code);
        assert!(late < Duration::from_millis(200), "{code:?} was gone {late:?} after its timeout");
    }
    wait_for(|| sandbox_processes(&server).is_empty().then_some(()));
}

#[test]
fn a_gigabyte_under_256_megabytes_is_out_of_memory_and_the_server_goes_on() {
    let server = server!(&[], &[]);
    let before = resident(&server);
    let execution = server
        .execute("x = bytearray(1 << 30)\nx[::4096] = b'1' * len(x[::4096])", json!({"limits": {"memory_mb": 256}}));
    assert_eq!(execution["outcome"], "oom_killed", "{}", brief(&execution));
    assert_eq!(execution["fault"], "limit");
    assert!(execution["error"]["message"].as_str().unwrap().contains("256 MB"), "{}", brief(&execution));
    assert_eq!(server.succeed("6*7", json!({}))["result"], 42);
    assert!(resident(&server) < before + (64 << 20));
}

#[test]
fn memory_of_many_processes_counts_together() {
    let server = server!(&[], &[]);
    let code = "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = b'1' * (60 << 20); time.sleep(20); os._exit(0)\ntime.sleep(20)";
    let execution = server.execute(code, json!({"limits": {"memory_mb": 256}, "timeout_ms": 4000}));
    assert!(execution["metrics"]["memory_peak_mb"].as_f64().unwrap() <= 256.5, "{}", brief(&execution));
}

#[test]
fn a_fork_bomb_hits_its_limit_and_leaves_the_host_as_it_was() {
    let server = server!(&[], NO_POOL);
    let before = processes();
    let execution =
        server.execute("import os\nwhile True: os.fork()", json!({"limits": {"processes": 32}, "timeout_ms": 5000}));
    assert_eq!(execution["outcome"], "process_limit", "{}", brief(&execution));
    assert_eq!(execution["denials"][0]["kind"], "limit");
    let bash = json!({"language": "bash", "limits": {"processes": 32}, "timeout_ms": 3000});
    let execution = server.execute("f() { f | f & }; f; sleep 1; echo done", bash);
    let rules: Vec<_> =
        execution["denials"].as_array().unwrap().iter().map(|denial| denial["rule"].as_str().unwrap()).collect();
    assert!(rules.contains(&"limits.processes = 32"), "{}", brief(&execution));
    wait_for(|| (processes() <= before + 2).then_some(()));
}

#[test]
fn endless_output_is_cut_at_the_limit_and_the_servers_memory_stays_flat() {
    let server = server!(&[], &[]);
    server.succeed("1", json!({}));
    let before = resident(&server);
    for _ in 0..3 {
        let body = json!({"language": "bash", "limits": {"output_kb": 256}, "timeout_ms": 20000});
        let execution = server.execute("yes abcdefghij | head -c 10000000000", body);
        assert_eq!(execution["outcome"], "output_limit", "{}", brief(&execution));
        assert_eq!(execution["stdout_truncated"], true);
        assert!(execution["stdout"].as_str().unwrap().len() < 300 << 10);
    }
    let grown = resident(&server).saturating_sub(before);
    assert!(grown < 40 << 20, "grew by {grown} bytes");
}

#[test]
fn a_huge_file_sparse_or_real_hits_the_disk_limit_and_leaves_nothing_on_the_hosts_disk() {
    let server = server!(&[], &[]);
    for code in [
        "f = open('sparse', 'wb'); f.seek(10 << 30); f.write(b'x'); f.flush()",
        "f = open('sparse', 'wb'); f.truncate(10 << 30)",
        "open('real', 'wb').write(b'x' * (100 << 20))",
        "import os\nfor i in range(10**6):\n    open(f'{i}', 'w').write('x' * 5000)",
    ] {
        let execution = server.execute(code, json!({"limits": {"disk_mb": 50}, "timeout_ms": 20000}));
        assert_eq!(execution["outcome"], "disk_limit", "{code}: {}", brief(&execution));
        assert_eq!(execution["error"]["type"], "OSError", "{code}: {}", brief(&execution));
    }
    // A sandbox's disk is memory of its group; the server's folder, the only place on the host's disk it writes to, stays as it was.
    assert!(bytes_below(server.data.path()) < 1 << 20);
    assert_eq!(processes_with_deleted_files(&server), 0, "a file without a name would still take room");
}

#[test]
fn files_that_do_not_fit_are_refused_before_anything_runs() {
    let server = server!(&[], &[]);
    let files = json!([{"path": "big", "content": "x".repeat(3 << 20)}]);
    let (status, answer) =
        server.post("/v1/executions", &json!({"code": "1", "files": files, "limits": {"disk_mb": 2}}));
    assert_eq!((status, &answer["error"]["field"]), (400, &json!("files")), "{answer}");
}

#[test]
fn processor_time_is_limited_to_the_share_asked_for() {
    let server = server!(&[], &[]);
    let execution = server.execute("while True: pass", json!({"limits": {"cpu": 0.2}, "timeout_ms": 3000}));
    let metric = |name: &str| execution["metrics"][name].as_f64().unwrap();
    // The start of the interpreter counts in the sum; the quota is exact over periods of 100 ms.
    let share = metric("cpu_ms") / (metric("start_ms") + metric("duration_ms"));
    assert!(share < 0.3, "used {share} of a core");
}

#[test]
fn open_files_are_limited() {
    let server = server!(&[], &[]);
    let code =
        "fs = []\ntry:\n    while True: fs.append(open('/dev/null'))\nexcept OSError as e:\n    n = len(fs); del fs\nn";
    let opened = server.succeed(code, json!({"limits": {"open_files": 64}}))["result"].as_u64().unwrap();
    assert!((40..64).contains(&opened), "{opened}");
}

#[test]
fn a_thousand_in_a_row_leave_no_process_mount_cgroup_descriptor_or_file() {
    // What waits ready is there before and after; that it is replaced without anything left is part of the promise.
    let server = server!(&[], &[("FUMEHOOD_POOL__MIN_READY", "2"), ("FUMEHOOD_POOL__MAX_READY", "2")]);
    let full = || server.get("/v1/pool").1["ready"] == 2;
    // What grows once and stays (threads of the runtime, a first connection) is not a leak.
    for _ in 0..5 {
        server.succeed("open('f','w').write('x')", json!({"collect": ["*"]}));
    }
    wait_for(|| full().then_some(()));
    let before = Counts::at_rest(&server);
    for i in 0..1000 {
        // Every tenth ends badly, in one of the ways that take other paths; most are quick programs, every fourth an interpreter.
        let (code, fields) = match i % 40 {
            9 => ("1/0", json!({})),
            19 => ("import os; os.kill(os.getpid(), 9)", json!({})),
            29 => ("import time; time.sleep(60)", json!({"timeout_ms": 50})),
            39 => ("sleep 60 & exit 3", json!({"language": "bash"})),
            n if n % 4 == 0 => ("import subprocess; subprocess.Popen(['sleep', '60']); 1", json!({})),
            _ => {
                ("setsid sleep 60 & echo x > f", json!({"language": "bash", "files": [{"path": "in", "content": "x"}]}))
            }
        };
        server.execute(code, fields);
    }
    // The kernel may take a moment to let go of the last groups.
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut after = Counts::of(&server);
    while (after.but_files() != before.but_files() || !full()) && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(20));
        after = Counts::of(&server);
    }
    assert_eq!(after.but_files(), before.but_files());
    // Artifacts go when their execution is forgotten.
    assert!(after.files <= before.files, "{} files, before {}", after.files, before.files);
}

#[derive(Debug)]
struct Counts {
    sandbox_processes: usize,
    mounts: usize,
    cgroups: usize,
    server_descriptors: usize,
    jailer_descriptors: usize,
    files: usize,
}

impl Counts {
    fn but_files(&self) -> [usize; 5] {
        [self.sandbox_processes, self.mounts, self.cgroups, self.server_descriptors, self.jailer_descriptors]
    }

    /// Once they have stayed the same for a second: counted too early, what is opened last would look like a leak.
    fn at_rest(server: &Server) -> Self {
        let (mut last, mut since) = (Self::of(server), Instant::now());
        while since.elapsed() < Duration::from_secs(1) {
            std::thread::park_timeout(Duration::from_millis(20));
            let now = Self::of(server);
            if now.but_files() != last.but_files() {
                since = Instant::now();
            }
            last = now;
        }
        last
    }

    fn of(server: &Server) -> Self {
        let [outer, jailer] = jailer(server);
        let descriptors = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        Self {
            sandbox_processes: sandbox_processes(server).len(),
            mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
            cgroups: cgroups(outer),
            server_descriptors: descriptors(server.process.id()),
            jailer_descriptors: descriptors(jailer),
            files: files_below(server.data.path()),
        }
    }
}

fn bytes_below(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries
        .map(|entry| if entry.path().is_dir() { bytes_below(&entry.path()) } else { entry.metadata().unwrap().len() })
        .sum()
}

/// Whether server or jailer hold files that were removed.
fn processes_with_deleted_files(server: &Server) -> usize {
    let pids = jailer(server).into_iter().chain([server.process.id()]);
    let holds = |pid: &u32| {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        links.filter_map(|link| std::fs::read_link(link.path()).ok()).any(|target| {
            let target = target.to_string_lossy().into_owned();
            target.ends_with("(deleted)") && !target.starts_with("/memfd:")
        })
    };
    pids.filter(holds).count()
}

fn files_below(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries.map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 }).sum()
}

/// Folders of this jailer's sandboxes in the memory hierarchy.
fn cgroups(jailer: u32) -> usize {
    fn search(folder: &std::path::Path, name: &str, depth: usize) -> usize {
        let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
        let folders = entries.flatten().filter(|entry| entry.path().is_dir());
        folders
            .map(|entry| {
                if entry.file_name().to_string_lossy().starts_with(name) {
                    std::fs::read_dir(entry.path())
                        .map_or(0, |below| below.flatten().filter(|e| e.path().is_dir()).count())
                } else if depth > 0 {
                    search(&entry.path(), name, depth - 1)
                } else {
                    0
                }
            })
            .sum()
    }
    search(std::path::Path::new("/sys/fs/cgroup"), &format!("fumehood-{jailer}-"), 6)
}

pub(crate) fn children(parent: u32) -> Vec<u32> {
    stats().into_iter().filter(|(_, ppid)| *ppid == parent).map(|(pid, _)| pid).collect()
}

/// Both processes of the server's jailer: the outer one, after which its cgroups are named, and the inner one, which makes sandboxes.
pub(crate) fn jailer(server: &Server) -> [u32; 2] {
    let outer = *children(server.process.id()).first().expect("the server has a jailer");
    [outer, *children(outer).first().expect("the jailer has an inner process")]
}

/// Processes below the server's jailer that live in a sandbox: those of the zygote do not.
pub(crate) fn sandbox_processes(server: &Server) -> BTreeSet<u32> {
    let inner = jailer(server)[1];
    let mut below = descendants(inner);
    below.retain(|pid| depth(*pid) > depth(inner));
    below
}

/// The process that sandboxes are forked from.
pub(crate) fn zygote(server: &Server) -> Option<u32> {
    let inner = jailer(server)[1];
    children(inner).into_iter().find(|pid| depth(*pid) == depth(inner))
}

fn descendants(of: u32) -> BTreeSet<u32> {
    let stats = stats();
    let mut found = BTreeSet::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for (pid, ppid) in &stats {
            if *ppid == parent && found.insert(*pid) {
                parents.push(*pid);
            }
        }
    }
    found
}

/// In how many pid namespaces a process is; 0 when it is gone.
fn depth(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.map_or(0, |line| line.split_whitespace().count())
}

/// Kills a process of the server's, if it is still there.
pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
}

/// Every process with its parent.
fn stats() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?))
    })
    .collect()
}

fn processes() -> usize {
    stats().len()
}

/// Resident memory of the server, bytes.
pub(crate) fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn twenty_at_once_on_any_machine_are_all_right_and_nothing_is_mixed_up() {
    let server = server!(&[], &[]);
    let run = |i: usize| -> Value {
        let code = format!("import time\nfor _ in range(20):\n    print('{i:04}')\n    time.sleep(0.002)\n{i}");
        server.succeed(&code, json!({}))
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..20).map(|i| (i, scope.spawn(move || run(i)))).collect();
        for (i, run) in runs {
            let execution = run.join().unwrap();
            assert_eq!(execution["result"], i);
            assert_eq!(execution["stdout"], format!("{i:04}\n").repeat(20));
        }
    });
    println!("20 executions at once took {:?}", begun.elapsed());
}

#[test]
fn memory_limits_of_what_runs_at_once_never_add_up_to_more_than_the_node_gives() {
    let server = server!(&[], &[("FUMEHOOD_ENGINE__MEMORY_MB", "1000")]);
    let (status, refused) = server.post("/v1/executions", &json!({"code": "1", "limits": {"memory_mb": 1001}}));
    assert_eq!((status, &refused["error"]["field"]), (400, &json!("limits.memory_mb")), "{refused}");
    let submit = |code: &str| {
        let body = json!({"code": code, "mode": "async", "limits": {"memory_mb": 600}});
        format!("/v1/executions/{}", server.post("/v1/executions", &body).1["id"].as_str().unwrap())
    };
    let first = submit("import time; time.sleep(600)");
    wait_for(|| (server.get(&first).1["status"] == "running").then_some(()));
    let second = submit("6 * 7");
    // Both together would be more.
    assert_eq!(server.get(&second).1["status"], "queued");
    server.post(&format!("{first}/cancel"), &json!({}));
    let execution = wait_for(|| Some(server.get(&second).1).filter(|execution| execution["status"] == "completed"));
    assert_eq!(execution["result"], 42);
}
