//! Version 2: one folder.
//!
//! Controllers can be handed down only from a folder without processes. This jailer therefore needs either a folder made for
//! it (`parent`), a folder that is its alone (a systemd unit with `Delegate=yes`: it then moves aside into a leaf), or, run by
//! root, a folder of its own below the root of the hierarchy.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Counters, instance_name, own_folder, read_keyed, read_number, sweep, write};
use crate::error::{At, JailError, Step};
use crate::protocol::JailLimits;

/// Where the server goes so that its folder can hand down controllers.
const LEAF: &str = "fumehood-server";

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// The folder of this jailer.
#[derive(Debug)]
pub struct Hierarchy {
    pub(super) folder: PathBuf,
    /// The folder is below this process's own, from which it moved aside.
    aside: bool,
}

/// The folder of one sandbox.
#[derive(Debug)]
pub struct Group {
    pub(super) folder: PathBuf,
    /// A process that brought a fork was counted too.
    passage: bool,
}

/// A folder in which a jailer may make its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Holds this process and has to be empty.
    Own,
    /// Held this process, which is in its leaf now.
    OwnLeft,
    Elsewhere,
}

impl Hierarchy {
    pub(super) fn open(mount: &(PathBuf, PathBuf), own: &str, parent: Option<&str>) -> Result<Self, JailError> {
        let (point, root) = mount;
        let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
        let own = own_folder(point, root, own);
        // A jailer that replaces a dead one starts where the server has stepped aside to.
        let (own, aside) = match own.parent() {
            Some(above) if own.file_name().is_some_and(|name| name == LEAF) => (above.to_owned(), true),
            _ => (own, false),
        };
        let mut tried = Vec::new();
        let candidates = match parent {
            Some(parent) => vec![point.join(parent.trim_start_matches('/'))],
            None if own == *point => vec![own.clone()],
            None => vec![own.clone(), point.clone()],
        };
        for above in candidates {
            // The root of the whole tree, the one folder without a type, hands controllers down in spite of its processes.
            let real_root = !above.join("cgroup.type").exists();
            let place = match (above == own && !real_root, aside) {
                (false, _) => Place::Elsewhere,
                (true, false) => Place::Own,
                (true, true) => Place::OwnLeft,
            };
            match Self::open_below(&above, place) {
                Ok(hierarchy) => return Ok(hierarchy),
                Err(error) => tried.push(format!("{}: {}", above.display(), error.cause)),
            }
        }
        Err(JailError::new(Step::PrepareCgroup, "", format!("no cgroup can be made ({})", tried.join("; "))))
    }

    fn open_below(above: &Path, place: Place) -> Result<Self, JailError> {
        sweep(above);
        let available = fs::read_to_string(above.join("cgroup.controllers"))
            .at(Step::PrepareCgroup, above.display().to_string())?;
        let missing: Vec<_> =
            CONTROLLERS.into_iter().filter(|name| !available.split_whitespace().any(|found| found == *name)).collect();
        if !missing.is_empty() {
            return Err(JailError::new(Step::PrepareCgroup, "", format!("has no controller {}", missing.join(", "))));
        }
        if place == Place::Own {
            step_aside(above)?;
        }
        hand_down(above)?;
        let folder = above.join(instance_name()?);
        fs::create_dir(&folder).or_else(already).at(Step::PrepareCgroup, folder.display().to_string())?;
        hand_down(&folder)?;
        Ok(Self { folder, aside: place != Place::Elsewhere })
    }

    /// Removes the folder and leaves the one above as it was found: a folder that hands controllers down takes in no process, so
    /// the next server could not be put there.
    pub(super) fn remove(self) {
        // What is still busy is swept by the next jailer.
        fs::remove_dir(&self.folder).ok();
        let Some(above) = self.folder.parent().filter(|_| self.aside) else { return };
        // What was busy when this jailer began.
        sweep(above);
        // Refused while another jailer has its folder here.
        let disable = CONTROLLERS.map(|name| format!("-{name}")).join(" ");
        if write(above, "cgroup.subtree_control", disable).is_err() {
            return;
        }
        let leaf = above.join(LEAF);
        for pid in fs::read_to_string(leaf.join("cgroup.procs")).unwrap_or_default().split_whitespace() {
            write(above, "cgroup.procs", pid).ok();
        }
        fs::remove_dir(leaf).ok();
    }

    pub(super) fn create(
        &self,
        name: &str,
        limits: &JailLimits,
        processes: u64,
        passage: bool,
    ) -> Result<Group, JailError> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder).or_else(already).at(Step::PrepareCgroup, folder.display().to_string())?;
        let group = Group { folder, passage };
        let made = group.set_up(limits, processes);
        if made.is_err() {
            fs::remove_dir(&group.folder).ok();
        }
        made.map(|()| group)
    }
}

impl Group {
    fn set_up(&self, limits: &JailLimits, processes: u64) -> Result<(), JailError> {
        write(&self.folder, "memory.max", limits.memory_bytes)?;
        // Absent where the kernel does not account swap; then there is none to use either.
        if self.folder.join("memory.swap.max").exists() {
            write(&self.folder, "memory.swap.max", 0)?;
        }
        // Half a sandbox is no sandbox: when memory runs out all of it ends.
        write(&self.folder, "memory.oom.group", 1)?;
        write(&self.folder, "pids.max", processes)?;
        self.limit_processor(limits)
    }

    pub(super) fn limit_processor(&self, limits: &JailLimits) -> Result<(), JailError> {
        write(&self.folder, "cpu.max", format!("{} 100000", (limits.cpu_millis * 100).max(1000)))
    }

    pub(super) fn counters(&self) -> Counters {
        let folder = &self.folder;
        Counters {
            oom_kills: read_keyed(folder, "memory.events", "oom_kill").unwrap_or(0),
            process_limit_hits: read_keyed(folder, "pids.events", "max").unwrap_or(0),
            memory_peak_bytes: read_number(folder, "memory.peak").unwrap_or(0),
            cpu_us: read_keyed(folder, "cpu.stat", "usage_usec").unwrap_or(0),
            // Process 1 is ours. With the one that brought the fork three were counted at least: one or two of them the program's, nobody knows.
            processes_peak: read_number(folder, "pids.peak")
                .filter(|peak| !self.passage || *peak > 3)
                .map(|peak| peak.saturating_sub(1)),
        }
    }
}

/// Lifts the limit of the processor from a group.
pub(super) fn unthrottle(folder: &Path) {
    // Gone meanwhile it needs none.
    fs::write(folder.join("cpu.max"), "max").ok();
}

fn already(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

/// Moves this process and the server that started it into a leaf, if the folder holds nobody else.
fn step_aside(folder: &Path) -> Result<(), JailError> {
    let listed =
        fs::read_to_string(folder.join("cgroup.procs")).at(Step::PrepareCgroup, folder.display().to_string())?;
    let ours = [std::process::id(), std::os::unix::process::parent_id()];
    if listed.split_whitespace().any(|pid| !ours.iter().any(|our| our.to_string() == pid)) {
        return Err(JailError::new(Step::PrepareCgroup, "", "holds processes that are not this server's"));
    }
    let leaf = folder.join(LEAF);
    fs::create_dir(&leaf).or_else(already).at(Step::PrepareCgroup, leaf.display().to_string())?;
    for pid in listed.split_whitespace() {
        write(&leaf, "cgroup.procs", pid)?;
    }
    Ok(())
}

/// Enables the controllers for the folders below.
fn hand_down(folder: &Path) -> Result<(), JailError> {
    let enabled = fs::read_to_string(folder.join("cgroup.subtree_control"))
        .at(Step::PrepareCgroup, folder.display().to_string())?;
    for controller in CONTROLLERS {
        if !enabled.split_whitespace().any(|name| name == controller) {
            write(folder, "cgroup.subtree_control", format!("+{controller}"))?;
        }
    }
    Ok(())
}
