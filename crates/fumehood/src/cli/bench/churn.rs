//! Everything that can happen to an execution, for a long time; then what is left over.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use fastrand::Rng;
use futures::future::join_all;
use serde_json::{Value, json};

use super::http::{Address, Connection, EXECUTIONS, brief};
use super::process::{memory, sandboxes};
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
}

impl Kind {
    /// Out of a hundred.
    const SHARES: [(Self, u32); 9] = [
        (Self::OneLine, 50),
        (Self::Files, 10),
        (Self::Children, 8),
        (Self::Exception, 10),
        (Self::ExitCode, 5),
        (Self::TimedOut, 4),
        (Self::OutOfMemory, 3),
        (Self::Cancelled, 5),
        (Self::ClientGone, 5),
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
        }
    }
}

pub(super) async fn churn(bench: &mut Bench) -> anyhow::Result<Section> {
    let duration = bench.duration(600.0, 5.0);
    let address = bench.server(Settings { pool: Some(READY), ..Settings::default() })?;
    let clients = bench.args.clients.unwrap_or(8);
    let what = format!("{clients} clients, executions of every kind, {} s; then what is left over", duration.as_secs());
    let mut section = Section::new("churn", what);
    // What is made once and kept is made now.
    load(&address, clients, Duration::from_secs(2), &mut bench.rng).await?;
    quiet(&address).await?;
    let before = Left::of(bench);
    let pid = bench.server_pid();
    let counts = RefCell::new(BTreeMap::new());
    let work = load(&address, clients, duration, &mut bench.rng);
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
    nothing_is_left(bench, &mut section, &before).await;
    Ok(section)
}

/// Waits until nothing is there that was not there before, and complains if there always is.
pub(super) async fn nothing_is_left(bench: &Bench, section: &mut Section, before: &Left) {
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
}

/// All clients until the time is over; how long executions took and how many of each kind there were.
async fn load(
    address: &Address,
    clients: u64,
    duration: Duration,
    rng: &mut Rng,
) -> anyhow::Result<(Run, BTreeMap<Kind, u64>)> {
    let run = RefCell::new(Run::default());
    let kinds = RefCell::new(BTreeMap::new());
    let begun = Instant::now();
    let client = async |mut rng: Rng| {
        let mut connection = address.connect().await?;
        while begun.elapsed() < duration {
            let kind = Kind::choose(&mut rng);
            let (body, outcome, printed) = kind.request(&mut rng);
            let body = Bytes::from(body.to_string());
            let sent = Instant::now();
            let done = match kind {
                Kind::Cancelled => cancelled(&mut connection, body, &mut rng).await,
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

fn check(answer: &[u8], outcome: &str, printed: &str) -> anyhow::Result<()> {
    let execution: Value = serde_json::from_slice(answer)?;
    let right = execution["outcome"] == outcome && execution["stdout"] == printed;
    anyhow::ensure!(right, "expected {outcome} and {printed:?}, got {}", brief(answer));
    Ok(())
}

/// What could be left over.
#[derive(Debug, Default)]
pub(in crate::cli) struct Left {
    counts: BTreeMap<&'static str, u64>,
    /// Of the server; told, not judged: it keeps finished executions.
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
        self.memory_mb = memory(server).proportional >> 20;
    }

    pub(in crate::cli) fn more_than(&self, before: &Self) -> bool {
        // Threads of the runtime come and go with its load.
        let judged = self.counts.iter().filter(|(what, _)| **what != "threads");
        judged.into_iter().any(|(what, count)| *count > before.counts.get(what).copied().unwrap_or(0))
    }

    pub(in crate::cli) fn text(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        format!("{}, server {} MiB", counts.join(", "), self.memory_mb)
    }
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
        let chosen: std::collections::BTreeSet<_> = (0..2000).map(|_| Kind::choose(&mut rng)).collect();
        assert_eq!(chosen.len(), Kind::SHARES.len());
    }

    #[test]
    fn only_more_of_something_is_left_over() {
        let left = |descriptors| Left { counts: BTreeMap::from([("descriptors", descriptors)]), memory_mb: 0 };
        assert!(left(5).more_than(&left(4)));
        assert!(!left(4).more_than(&left(4)) && !left(3).more_than(&left(4)));
    }
}
