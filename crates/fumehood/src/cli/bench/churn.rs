//! Everything that can happen to an execution, for a long time; then what is left over, and whether the server's memory has grown.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use fastrand::Rng;
use futures::future::join_all;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};

use super::http::{Address, Connection, EXECUTIONS, brief};
use super::load::Until;
use super::process::{Memory, memory, sandboxes};
use super::report::{Section, Series};
use super::server::Settings;
use super::stats::Run;
use super::throughput::quiet;
use super::{Bench, metered};

/// Sandboxes ready before and after, so that what belongs to them is the same.
const READY: u64 = 4;
/// What is not gone by then is left over.
const GONE_BY: Duration = Duration::from_secs(30);
/// How long a client that gives up has waited.
const GIVES_UP: Duration = Duration::from_millis(30);
/// What is made once and kept is made in this time, or with a tenth of the executions.
const WARM_UP: Duration = Duration::from_secs(2);
/// Executions after which the server keeps as many finished ones as it ever will.
const WARM: u64 = 500;
/// MiB that the memory of server and jailer may grow from the warm point to the end. What comes and goes between are pages that allocators of
/// several threads hold back; a kilobyte lost with each of 50,000 executions would be three times as much.
const GROWTH_MB: u64 = 16;

/// A way for an execution to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    OneLine,
    Files,
    Children,
    Exception,
    ExitCode,
    TimedOut,
    OutOfMemory,
    Cancelled,
    ClientGone,
    StreamLeft,
    KilledItself,
    KilledByChild,
    ChildKilled,
    DiskFull,
    InodesFull,
    TooManyProcesses,
    ForkBomb,
    Flood,
}

impl Kind {
    /// Out of a hundred.
    const SHARES: [(Self, u32); 18] = [
        (Self::OneLine, 35),
        (Self::Files, 8),
        (Self::Children, 7),
        (Self::Exception, 8),
        (Self::ExitCode, 4),
        (Self::TimedOut, 4),
        (Self::OutOfMemory, 3),
        (Self::Cancelled, 5),
        (Self::ClientGone, 4),
        (Self::StreamLeft, 4),
        (Self::KilledItself, 3),
        (Self::KilledByChild, 3),
        (Self::ChildKilled, 3),
        (Self::DiskFull, 3),
        (Self::InodesFull, 1),
        (Self::TooManyProcesses, 2),
        (Self::ForkBomb, 1),
        (Self::Flood, 2),
    ];

    fn choose(rng: &mut Rng) -> Self {
        let mut left = rng.u32(..100);
        for (kind, share) in Self::SHARES {
            match left.checked_sub(share) {
                None => return kind,
                Some(rest) => left = rest,
            }
        }
        Self::OneLine
    }

    /// The request, with how it must end and what it must print.
    fn request(self, rng: &mut Rng) -> (Value, &'static str, String) {
        let number = rng.u64(10_000..1_000_000_000);
        let plain = |code: String, outcome| (json!({"code": code}), outcome, format!("{number}\n"));
        match self {
            Self::OneLine => plain(format!("print({number})"), "exited"),
            Self::Files => plain(
                format!(
                    "for folder in ('/data', '/tmp', '/dev/shm'):\n    open(folder + '/left', 'wb').write(bytes(1 << 20))\nprint({number})"
                ),
                "exited",
            ),
            Self::Children => plain(
                format!(
                    "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nprint({number})"
                ),
                "exited",
            ),
            Self::Exception => plain(format!("print({number})\n1 / 0"), "exception"),
            Self::ExitCode => plain(format!("import sys\nprint({number})\nsys.exit(3)"), "exited"),
            Self::TimedOut => {
                let code = format!("print({number})\nwhile True:\n    pass");
                (json!({"code": code, "timeout_ms": 200}), "timed_out", format!("{number}\n"))
            }
            Self::OutOfMemory => {
                let code = format!("print({number})\nmemory = b'x' * (400 << 20)");
                (json!({"code": code, "limits": {"memory_mb": 200}}), "oom_killed", format!("{number}\n"))
            }
            Self::Cancelled => {
                let code = "import time\ntime.sleep(20)";
                (json!({"code": code, "mode": "async"}), "cancelled", String::new())
            }
            Self::ClientGone => plain(format!("import time\ntime.sleep(0.2)\nprint({number})"), "exited"),
            Self::StreamLeft => {
                plain(format!("import time\nprint({number}, flush=True)\ntime.sleep(0.2)\nprint('unread')"), "exited")
            }
            Self::KilledItself => {
                plain(format!("import os\nprint({number}, flush=True)\nos.kill(os.getpid(), 9)"), "signaled")
            }
            Self::KilledByChild => {
                let code = "if os.fork() == 0:\n    os.kill(os.getppid(), 9)\n    time.sleep(1000)\ntime.sleep(1000)";
                plain(format!("import os, time\nprint({number}, flush=True)\n{code}"), "signaled")
            }
            Self::ChildKilled => {
                let code = "child = subprocess.Popen(['sleep', '1000'])\nchild.kill()\nassert child.wait() == -9";
                plain(format!("import subprocess\n{code}\nprint({number})"), "exited")
            }
            Self::DiskFull => {
                let code = format!(
                    "print({number})\nwith open('big', 'wb') as file:\n    while True:\n        file.write(bytes(1 << 20))"
                );
                (json!({"code": code, "limits": {"disk_mb": 8}}), "disk_limit", format!("{number}\n"))
            }
            Self::InodesFull => {
                let code = format!(
                    "import itertools, os\nprint({number})\nfor name in itertools.count():\n    os.mknod(str(name))"
                );
                (json!({"code": code, "limits": {"disk_mb": 1}}), "disk_limit", format!("{number}\n"))
            }
            Self::TooManyProcesses => {
                let code = format!(
                    "import os, time\nprint({number}, flush=True)\nwhile True:\n    if os.fork() == 0:\n        time.sleep(1000)"
                );
                (json!({"code": code, "limits": {"processes": 32}}), "process_limit", format!("{number}\n"))
            }
            Self::ForkBomb => {
                let code = format!(
                    "import os\nprint({number}, flush=True)\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
                );
                (json!({"code": code, "timeout_ms": 300}), "timed_out", format!("{number}\n"))
            }
            Self::Flood => {
                let code =
                    format!("import os\nprint({number}, flush=True)\nwhile True:\n    os.write(1, b'x' * 65536)");
                (json!({"code": code, "limits": {"output_kb": 16}}), "output_limit", format!("{number}\nxxx"))
            }
        }
    }
}

pub(super) async fn churn(bench: &mut Bench) -> anyhow::Result<Section> {
    let address = bench.server(Settings { pool: Some(READY), frugal: true, ..Settings::default() })?;
    let clients = bench.args.clients.unwrap_or(8);
    // So many executions, or so much time.
    let (warm, until, how_long) = match bench.args.requests {
        Some(count) => {
            let warm = Until::Count((count / 10).clamp(1, WARM));
            (warm, Until::Count(count), format!("{count} executions"))
        }
        None => {
            let duration = bench.duration(600.0, 5.0);
            (Until::Elapsed(WARM_UP), Until::Elapsed(duration), format!("{} s", duration.as_secs()))
        }
    };
    let what = format!("{clients} clients, executions of every kind, {how_long}; then what is left over");
    let mut section = Section::new("churn", what);
    load(&address, clients, warm, &mut bench.rng).await?;
    quiet(&address).await?;
    let before = Left::of(bench);
    let pid = bench.server_pid();
    let counts = RefCell::new(BTreeMap::new());
    let work = load(&address, clients, until, &mut bench.rng);
    let (run, usage) = metered(pid, async {
        match work.await {
            Ok((run, kinds)) => {
                counts.replace(kinds);
                run
            }
            Err(error) => {
                let mut run = Run::default();
                run.complain(format!("{error:#}"));
                run
            }
        }
    })
    .await;
    let mut series = Series::new("fumehood, all kinds", "ms");
    series.add(&run, usage);
    section.figure(&series);
    let kinds: Vec<String> = counts.into_inner().iter().map(|(kind, count)| format!("{kind:?} {count}")).collect();
    section.note(format!("executions: {}", kinds.join(", ")));
    quiet(&address).await?;
    let after = nothing_is_left(bench, &mut section, &before).await;
    // Only ours keeps little enough of what has ended for its memory to have an end.
    if bench.args.server.is_none() && after.has_grown_since(&before) {
        let (before, after) = (before.memory_mb, after.memory_mb);
        section
            .complain(format!("server and jailer have grown from {before} to {after} MiB, by more than {GROWTH_MB}"));
    }
    Ok(section)
}

/// Waits until nothing is there that was not there before, and complains if there always is. What there is then.
pub(super) async fn nothing_is_left(bench: &Bench, section: &mut Section, before: &Left) -> Left {
    let deadline = Instant::now() + GONE_BY;
    let after = loop {
        let now = Left::of(bench);
        if !now.more_than(before) || Instant::now() > deadline {
            break now;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    section.note(format!("before: {}", before.text()));
    section.note(format!("after:  {}", after.text()));
    if after.more_than(before) {
        section.complain("something is left over; see before and after");
    }
    if bench.server_pid().is_none() {
        section.note("the server's process is not known (--pid), so only files were counted");
    }
    after
}

/// All clients until it is over; how long executions took and how many of each kind there were.
async fn load(
    address: &Address,
    clients: u64,
    until: Until,
    rng: &mut Rng,
) -> anyhow::Result<(Run, BTreeMap<Kind, u64>)> {
    let run = RefCell::new(Run::default());
    let kinds = RefCell::new(BTreeMap::new());
    let (begun, asked) = (Instant::now(), Cell::new(0));
    let goes_on = || match until {
        Until::Count(count) => asked.replace(asked.get() + 1) < count,
        Until::Elapsed(duration) => begun.elapsed() < duration,
    };
    let client = async |mut rng: Rng| {
        let mut connection = address.connect().await?;
        while goes_on() {
            let kind = Kind::choose(&mut rng);
            let (body, outcome, printed) = kind.request(&mut rng);
            let body = Bytes::from(body.to_string());
            let sent = Instant::now();
            let done = match kind {
                Kind::Cancelled => cancelled(&mut connection, body, &mut rng).await,
                Kind::StreamLeft => {
                    let left = left_in_the_middle(&mut connection, EXECUTIONS, body, "stdout").await;
                    connection = address.connect().await?;
                    left.map(|()| None)
                }
                Kind::ClientGone => {
                    // The connection goes with the request that waits on it.
                    let waited = tokio::time::timeout(GIVES_UP, connection.post(EXECUTIONS, body)).await;
                    connection = address.connect().await?;
                    match waited {
                        Err(_) => Ok(None),
                        Ok(answer) => answer.map(Some),
                    }
                }
                _ => connection.post(EXECUTIONS, body).await.map(Some),
            };
            let milliseconds = sent.elapsed().as_secs_f64() * 1e3;
            *kinds.borrow_mut().entry(kind).or_default() += 1;
            match done.and_then(|answer| answer.map_or(Ok(()), |answer| check(&answer, outcome, &printed))) {
                Ok(()) => run.borrow_mut().values.push(milliseconds),
                Err(error) => run.borrow_mut().complain(format!("{kind:?}: {error:#}")),
            }
        }
        anyhow::Ok(())
    };
    let done = join_all((0..clients).map(|_| client(rng.fork()))).await;
    done.into_iter().collect::<anyhow::Result<()>>()?;
    let mut run = run.into_inner();
    run.seconds = begun.elapsed().as_secs_f64();
    Ok((run, kinds.into_inner()))
}

async fn cancelled(connection: &mut Connection, body: Bytes, rng: &mut Rng) -> anyhow::Result<Option<Bytes>> {
    let accepted: Value = serde_json::from_slice(&connection.post(EXECUTIONS, body).await?)?;
    let id = accepted["id"].as_str().context("an execution without an id")?;
    tokio::time::sleep(Duration::from_millis(rng.u64(..50))).await;
    connection.post(&format!("{EXECUTIONS}/{id}/cancel"), Bytes::new()).await.map(Some)
}

/// Begins an execution and reads its events up to the first of a kind. The connection is to be given up then.
pub(super) async fn left_in_the_middle(
    connection: &mut Connection,
    path: &str,
    body: Bytes,
    kind: &str,
) -> anyhow::Result<()> {
    let mut answer = connection.send(Method::POST, path, "text/event-stream", body).await?.into_body();
    let mut seen = String::new();
    while let Some(frame) = answer.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        seen.push_str(&String::from_utf8_lossy(&data));
        if seen.contains(&format!("event: {kind}\n")) {
            return Ok(());
        }
    }
    anyhow::bail!("the stream ended without {kind}: {}", brief(seen.as_bytes()))
}

fn check(answer: &[u8], outcome: &str, printed: &str) -> anyhow::Result<()> {
    let execution: Value = serde_json::from_slice(answer)?;
    let stdout = execution["stdout"].as_str().unwrap_or_default();
    let as_expected = match outcome {
        // On a busy machine its time may be over before it has said anything.
        "timed_out" => printed.starts_with(stdout),
        // A flood goes on as it began.
        "output_limit" => stdout.starts_with(printed),
        _ => stdout == printed,
    };
    let right = execution["outcome"] == outcome && as_expected;
    anyhow::ensure!(right, "expected {outcome} and {printed:?}, got {}", brief(answer));
    Ok(())
}

/// What could be left over.
#[derive(Debug, Default)]
pub(in crate::cli) struct Left {
    counts: BTreeMap<&'static str, u64>,
    /// Of the server and its jailers, what they have for themselves.
    memory_mb: u64,
}

impl Left {
    /// Of a benchmark's server.
    pub(super) fn of(bench: &Bench) -> Self {
        Self::now(bench.server_pid(), bench.folder.path())
    }

    /// Of a server that is this process or another; its files are not counted.
    pub(in crate::cli) fn of_process(server: u32) -> Self {
        let mut now = Self::default();
        now.count(server);
        now
    }

    fn now(server: Option<u32>, folder: &Path) -> Self {
        let mut now = Self { counts: BTreeMap::from([("files", files(folder))]), memory_mb: 0 };
        if let Some(server) = server {
            now.count(server);
        }
        now
    }

    fn count(&mut self, server: u32) {
        let (groups, others) = sandboxes(server);
        let of = |what: &str| -> u64 { others.iter().map(|pid| entries(&format!("/proc/{pid}/{what}"))).sum() };
        self.counts.extend([
            ("sandboxes", groups.len() as u64),
            ("processes", (groups.iter().map(Vec::len).sum::<usize>() + others.len()) as u64),
            ("descriptors", of("fd")),
            ("mounts", others.iter().map(|pid| lines(&format!("/proc/{pid}/mountinfo"))).sum()),
            ("threads", of("task")),
            ("cgroups", cgroups(Path::new("/sys/fs/cgroup"), &others)),
        ]);
        // The zygote, which is replaced now and then, is another program.
        let ours = others.iter().filter(|pid| ours(**pid));
        self.memory_mb = ours.map(|pid| memory(*pid)).sum::<Memory>().unique >> 20;
    }

    pub(in crate::cli) fn more_than(&self, before: &Self) -> bool {
        // Threads of the runtime come and go with its load.
        let judged = self.counts.iter().filter(|(what, _)| **what != "threads");
        judged.into_iter().any(|(what, count)| *count > before.counts.get(what).copied().unwrap_or(0))
    }

    fn has_grown_since(&self, before: &Self) -> bool {
        self.memory_mb > before.memory_mb + GROWTH_MB
    }

    pub(in crate::cli) fn text(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        format!("{}, server and jailer {} MiB", counts.join(", "), self.memory_mb)
    }
}

/// A process of this binary, under whatever of its names.
fn ours(pid: u32) -> bool {
    // Of any process of the host, so not more of it than a path.
    let mut line = Vec::new();
    let opened = fs::File::open(format!("/proc/{pid}/cmdline"));
    if opened.and_then(|file| file.take(4096).read_to_end(&mut line)).is_err() {
        return false;
    }
    let name = line.split(|byte| *byte == 0).next().unwrap_or_default();
    Path::new(OsStr::from_bytes(name)).file_name().is_some_and(|name| name.as_bytes().starts_with(b"fumehood"))
}

fn entries(folder: &str) -> u64 {
    fs::read_dir(folder).map_or(0, |entries| entries.count() as u64)
}

fn lines(file: &str) -> u64 {
    fs::read_to_string(file).map_or(0, |text| text.lines().count() as u64)
}

/// Files and folders below a folder.
fn files(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| 1 + if entry.file_type().is_ok_and(|kind| kind.is_dir()) { files(&entry.path()) } else { 0 })
        .sum()
}

/// Groups below those named after one of these processes.
fn cgroups(folder: &Path, pids: &[u32]) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .map(|entry| {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix("fumehood-")?.split('-').next()?.parse().ok());
            match owner {
                Some(owner) if pids.contains(&owner) => folders_below(&entry.path()),
                _ => cgroups(&entry.path(), pids),
            }
        })
        .sum()
}

fn folders_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| 1 + folders_below(&entry.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_share_and_all_shares_make_a_hundred() {
        assert_eq!(Kind::SHARES.iter().map(|(_, share)| share).sum::<u32>(), 100);
        let mut rng = Rng::with_seed(1);
        let chosen: std::collections::BTreeSet<_> = (0..5000).map(|_| Kind::choose(&mut rng)).collect();
        assert_eq!(chosen.len(), Kind::SHARES.len());
    }

    #[test]
    fn pages_that_allocators_hold_back_are_no_growth() {
        let left = |memory_mb| Left { memory_mb, ..Left::default() };
        assert!(left(26).has_grown_since(&left(9)));
        assert!(!left(25).has_grown_since(&left(9)) && !left(3).has_grown_since(&left(9)));
    }

    #[test]
    fn an_answer_is_right_if_it_ends_and_says_what_it_must() {
        let answer = |outcome: &str, stdout: &str| json!({"outcome": outcome, "stdout": stdout}).to_string();
        for (outcome, stdout, right) in [
            ("exited", "1\n", true),
            ("exited", "", false),
            ("exited", "1\n2\n", false),
            ("timed_out", "", true),
            ("timed_out", "2\n", false),
            ("output_limit", "1\nxxx", true),
            ("output_limit", "", false),
        ] {
            assert_eq!(
                check(answer(outcome, stdout).as_bytes(), outcome, "1\n").is_ok(),
                right,
                "{outcome} {stdout:?}"
            );
        }
        assert!(check(answer("lost", "1\n").as_bytes(), "exited", "1\n").is_err());
    }

    #[test]
    fn only_more_of_something_is_left_over() {
        let left = |descriptors| Left { counts: BTreeMap::from([("descriptors", descriptors)]), memory_mb: 0 };
        assert!(left(5).more_than(&left(4)));
        assert!(!left(4).more_than(&left(4)) && !left(3).more_than(&left(4)));
    }
}
