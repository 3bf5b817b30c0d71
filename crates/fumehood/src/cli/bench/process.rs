//! What processes cost, from `/proc`: the processor time and memory of one and all its descendants.

use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

/// Memory is looked at so often; each look costs about a millisecond for ten processes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One line of `/proc/PID/stat`, as far as it is of use here.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) pid: u32,
    parent: u32,
    /// Clock ticks, those of reaped children included.
    ticks: u64,
}

fn read(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain spaces and parentheses; fields are counted after the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // utime, stime, cutime, cstime
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(Process { pid, parent: fields.get(1)?.parse().ok()?, ticks })
}

/// Every process that `/proc` shows.
fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// A process and all its descendants.
pub(super) fn family(root: u32) -> Vec<Process> {
    let mut children: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    let mut found: Vec<Process> = Vec::new();
    for process in all() {
        if process.pid == root {
            found.push(process);
        } else {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut next = 0;
    while let Some(process) = found.get(next) {
        let mut born = children.remove(&process.pid).unwrap_or_default();
        found.append(&mut born);
        next += 1;
    }
    found
}

/// Memory of some processes, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Memory {
    /// Each page divided by the number of processes that have it.
    pub(super) proportional: u64,
    /// Pages that one process alone has.
    pub(super) unique: u64,
    /// Page tables.
    pub(super) tables: u64,
    /// Processes of which the kernel told nothing.
    pub(super) unread: u64,
}

/// Memory of one process.
pub(super) fn memory(pid: u32) -> Memory {
    let Ok(rollup) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
        return Memory { unread: 1, ..Memory::default() };
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    Memory {
        proportional: kilobytes(&rollup, "Pss:"),
        unique: kilobytes(&rollup, "Private_Clean:") + kilobytes(&rollup, "Private_Dirty:"),
        tables: kilobytes(&status, "VmPTE:"),
        unread: 0,
    }
}

fn kilobytes(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix("kB")?.trim().parse().ok());
    value.unwrap_or(0_u64) * 1024
}

impl std::iter::Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            proportional: sum.proportional + part.proportional,
            unique: sum.unique + part.unique,
            tables: sum.tables + part.tables,
            unread: sum.unread + part.unread,
        })
    }
}

/// What a process and its descendants used during a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Usage {
    /// Seconds of processor time.
    pub(super) cpu_s: f64,
    /// Largest proportional memory seen, in MiB.
    pub(super) memory_mb: f64,
    /// Most processes seen.
    pub(super) processes: u64,
    /// Processes of which the kernel told no memory, at most.
    pub(super) unread: u64,
}

/// Measures a process and its descendants from its making to [`Self::stop`].
pub(super) struct Meter {
    root: u32,
    ticks: u64,
    stop: Sender<()>,
    looks: JoinHandle<Usage>,
}

impl Meter {
    pub(super) fn start(root: u32) -> Self {
        let (stop, stopped) = channel();
        let looks = std::thread::spawn(move || look(root, &stopped));
        Self { root, ticks: ticks(root), stop, looks }
    }

    pub(super) fn stop(self) -> Usage {
        let ticks = ticks(self.root).saturating_sub(self.ticks);
        // The last look of the thread is after this.
        self.stop.send(()).ok();
        let usage = self.looks.join().unwrap_or_default();
        Usage { cpu_s: ticks as f64 / rustix::param::clock_ticks_per_second() as f64, ..usage }
    }
}

/// Processor time of these processes so far, in clock ticks.
pub(super) fn ticks_of(pids: impl IntoIterator<Item = u32>) -> u64 {
    pids.into_iter().filter_map(read).map(|process| process.ticks).sum()
}

fn ticks(root: u32) -> u64 {
    family(root).iter().map(|process| process.ticks).sum()
}

fn look(root: u32, stopped: &Receiver<()>) -> Usage {
    let mut most = Usage::default();
    loop {
        let family = family(root);
        let memory: Memory = family.iter().map(|process| memory(process.pid)).sum();
        most.memory_mb = most.memory_mb.max(memory.proportional as f64 / f64::from(1 << 20));
        most.processes = most.processes.max(family.len() as u64);
        most.unread = most.unread.max(memory.unread);
        if stopped.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
            return most;
        }
    }
}

/// How deep in pid namespaces a process lives, and in which one; `None` when the kernel does not tell us.
fn namespace(pid: u32) -> Option<(usize, String)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let depth = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().count();
    Some((depth, fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?.to_str()?.to_owned()))
}

/// The processes below a server, those of each sandbox together, and those that belong to none. Each sandbox has a pid namespace of its
/// own, and nothing lives deeper.
pub(super) fn sandboxes(server: u32) -> (Vec<Vec<u32>>, Vec<u32>) {
    let placed: Vec<(u32, usize, String)> = family(server)
        .iter()
        .filter_map(|process| namespace(process.pid).map(|(depth, name)| (process.pid, depth, name)))
        .collect();
    let deepest = placed.iter().map(|(_, depth, _)| *depth).max().unwrap_or_default();
    let own = placed.iter().find(|(pid, ..)| *pid == server).map_or(deepest, |(_, depth, _)| *depth);
    let mut groups: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    let mut others = Vec::new();
    for (pid, depth, name) in &placed {
        if *depth == deepest && deepest > own {
            groups.entry(name).or_default().push(*pid);
        } else {
            others.push(*pid);
        }
    }
    (groups.into_values().collect(), others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_belongs_to_the_family_and_its_processor_time_stays_after_its_end() {
        let own = std::process::id();
        let before = ticks(own);
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; read x";
        let mut child = std::process::Command::new("sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
        assert!(family(own).iter().any(|process| process.pid == child.id()));
        let memory = memory(child.id());
        assert!(memory.unread == 1 || memory.proportional >= memory.unique, "{memory:?}");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(family(own).iter().all(|process| process.pid != child.id()));
        assert!(ticks(own) > before);
    }
}
