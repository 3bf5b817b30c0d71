//! Control groups, version 1 and 2, hybrid hosts included.
//!
//! [`Hierarchy::discover`] finds where this process may make groups; a limit that cannot be enforced there is an error, never
//! ignored. Each sandbox gets one [`Group`]. All groups of one jailer live below a folder that names the jailer ([`instance_name`]),
//! so that the next jailer can tell orphans from the living.

mod v1;
mod v2;

pub(crate) use v1::above as v1_folder;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::error::{At, JailError, Step};
use crate::protocol::JailLimits;

/// What the processes of a group have used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Processes killed for memory.
    pub oom_kills: u64,
    /// Times that the process limit refused one.
    pub process_limit_hits: u64,
    /// Bytes.
    pub memory_peak_bytes: u64,
    /// Microseconds.
    pub cpu_us: u64,
    /// Most processes at once, where the kernel counts.
    pub processes_peak: Option<u64>,
}

/// Where groups of this jailer are made.
#[derive(Debug)]
pub enum Hierarchy {
    /// A folder in each version 1 hierarchy.
    V1(v1::Hierarchy),
    /// One folder.
    V2(v2::Hierarchy),
}

/// The group of one sandbox.
#[derive(Debug)]
pub enum Group {
    /// A folder in each version 1 hierarchy.
    V1(v1::Group),
    /// One folder.
    V2(v2::Group),
}

/// Ways into a group, for a fork and the process that brings it.
#[derive(Debug)]
pub struct Doors {
    /// For the bringer, before it forks: what a fork costs counts for the group.
    pub early: Vec<OwnedFd>,
    /// For the fork alone: only it is to count as a process.
    pub late: Vec<OwnedFd>,
}

impl Doors {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &OwnedFd> {
        self.early.iter().chain(&self.late)
    }

    /// Moves this process in.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn enter(self) -> Result<(), JailError> {
        self.all().try_for_each(enter)
    }
}

/// Moves this process through one door.
///
/// # Errors
/// As the kernel says.
pub fn enter(door: &OwnedFd) -> Result<(), JailError> {
    rustix::io::write(door, b"0").map(drop).at(Step::JoinCgroup, "")
}

impl Hierarchy {
    /// Finds the hierarchy and removes what crashed jailers left. That groups can be made, limited and joined is proven by `probe`.
    ///
    /// `parent` is a folder prepared by the operator, relative to the root of each hierarchy.
    ///
    /// # Errors
    /// When a limit cannot be enforced; the cause says what the operator can do.
    pub fn discover(parent: Option<&str>) -> Result<Self, JailError> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").at(Step::PrepareCgroup, "/proc/self/mountinfo")?;
        let own = fs::read_to_string("/proc/self/cgroup").at(Step::PrepareCgroup, "/proc/self/cgroup")?;
        let found = CgroupMounts::parse(&mounts);
        let hierarchy = if found.v1_controller("memory").is_some() {
            Self::V1(v1::Hierarchy::open(&found, &own, parent)?)
        } else if let Some(root) = &found.v2 {
            Self::V2(v2::Hierarchy::open(root, &own, parent)?)
        } else {
            return Err(JailError::new(
                Step::PrepareCgroup,
                "/sys/fs/cgroup",
                "no cgroup file system with a memory controller is mounted",
            ));
        };
        Ok(hierarchy)
    }

    /// Makes a group with limits. With `passage` one more process fits until the group is closed ([`Group::close`]): the one that brings a fork.
    /// One that is to be kept can be frozen, where that is possible at all ([`Self::freezer`]).
    ///
    /// # Errors
    /// When a limit is refused.
    pub fn create(&self, name: &str, limits: &JailLimits, passage: bool, keep: bool) -> Result<Group, JailError> {
        let processes = most_processes(limits);
        match self {
            Self::V1(hierarchy) => hierarchy.create(name, limits, processes, keep).map(Group::V1),
            Self::V2(hierarchy) => {
                hierarchy.create(name, limits, processes + u64::from(passage), passage).map(Group::V2)
            }
        }
    }

    /// `v1` or `v2`, for reports.
    #[must_use]
    pub fn version(&self) -> &'static str {
        match self {
            Self::V1(_) => "v1",
            Self::V2(_) => "v2",
        }
    }

    /// Whether the memory limit holds swapped memory too, for reports.
    #[must_use]
    pub fn swap(&self) -> &'static str {
        let accounted = match self {
            Self::V1(hierarchy) => hierarchy.folders()[0].join("memory.memsw.limit_in_bytes").exists(),
            Self::V2(hierarchy) => hierarchy.folder.join("memory.swap.max").exists(),
        };
        // One line is the heading.
        let none = || fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() <= 1);
        match accounted {
            true => "limited",
            false if none() => "none on this host",
            false => "not limited: the kernel does not account it",
        }
    }

    /// What freezes groups here, for reports; an error says why nothing does.
    ///
    /// # Errors
    /// A sentence with the remedy.
    pub fn freezer(&self) -> Result<&'static str, &'static str> {
        match self {
            Self::V1(hierarchy) if hierarchy.freezer().is_some() => Ok("freezer"),
            Self::V1(_) => Err("none: there is no folder for this server in the freezer hierarchy"),
            Self::V2(_) => Ok("cgroup.freeze"),
        }
    }

    /// Has whatever stands still or waits for its share of the processor go on: it cannot end otherwise, though it was killed. (Version 2 ends what it has
    /// frozen.)
    pub(crate) fn let_all_end(&self) {
        let groups = |folder: &PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|group| group.path());
        match self {
            Self::V1(hierarchy) => {
                groups(&hierarchy.folders()[2]).for_each(|group| v1::unthrottle(&group));
                hierarchy.freezer().into_iter().flat_map(groups).for_each(|group| v1::thaw(&group));
            }
            Self::V2(hierarchy) => groups(&hierarchy.folder).for_each(|group| v2::unthrottle(&group)),
        }
    }

    /// Removes every group and the folders of this jailer itself; its sandboxes must be dead.
    pub fn remove_all(self) {
        let folders: Vec<PathBuf> = match &self {
            Self::V1(hierarchy) => hierarchy.folders().iter().chain(hierarchy.freezer()).cloned().collect(),
            Self::V2(hierarchy) => vec![hierarchy.folder.clone()],
        };
        // What stays busy for longer is swept by the next jailer.
        within_a_second(|| {
            folders.iter().for_each(|folder| remove_groups(folder));
            Ok(!folders.iter().any(|folder| folder.exists()))
        })
        .ok();
        if let Self::V2(hierarchy) = self {
            hierarchy.remove();
        }
    }
}

/// Removes a jailer's folder with the groups in it, as far as they are empty.
fn remove_groups(folder: &Path) {
    for group in fs::read_dir(folder).into_iter().flatten().flatten().filter(|group| group.path().is_dir()) {
        // What is frozen there cannot end, though it was killed.
        v1::thaw(&group.path());
        fs::remove_dir(group.path()).ok();
    }
    fs::remove_dir(folder).ok();
}

impl Group {
    /// Files through which a process that has them open can move itself in, whatever its own rights.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub fn doors(&self) -> Result<Doors, JailError> {
        let open = |folder: &PathBuf| {
            let path = folder.join("cgroup.procs");
            fs::File::options()
                .write(true)
                .open(&path)
                .map(OwnedFd::from)
                .at(Step::JoinCgroup, path.display().to_string())
        };
        match self {
            Self::V1(group) => {
                let [memory, pids, cpu, cpuacct] = group.folders();
                let mut early = vec![open(memory)?, open(cpu)?];
                if cpu != cpuacct {
                    early.push(open(cpuacct)?);
                }
                if let Some(freezer) = group.freezer() {
                    early.push(open(freezer)?);
                }
                Ok(Doors { early, late: vec![open(pids)?] })
            }
            Self::V2(group) => Ok(Doors { early: vec![open(&group.folder)?], late: Vec::new() }),
        }
    }

    /// Makes room again for one process more, until [`Self::close`].
    ///
    /// # Errors
    /// As the kernel says.
    pub fn open(&self, limits: &JailLimits) -> Result<(), JailError> {
        match self {
            Self::V1(_) => Ok(()),
            Self::V2(group) => write(&group.folder, "pids.max", most_processes(limits) + 1),
        }
    }

    /// Has the kernel end only the process that is largest when memory runs out, instead of all of them.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn spare_others(&self) -> Result<(), JailError> {
        match self {
            // There it never does anything else, and what is kept has no alarm.
            Self::V1(_) => Ok(()),
            Self::V2(group) => write(&group.folder, "memory.oom.group", 0),
        }
    }

    /// Readable each time that memory has run out, where the kernel ends one process then and the others are to be ended by whoever reads this.
    #[must_use]
    pub fn alarm(&self) -> Option<&OwnedFd> {
        match self {
            Self::V1(group) => group.alarm(),
            Self::V2(_) => None,
        }
    }

    /// Gives its processes as much of the processor as they want, because they are to end: what used more than its share while the kernel worked for it
    /// has to wait until the share has caught up, for minutes even, before it can so much as die.
    pub fn unthrottle(&self) {
        // Only a courtesy: refused it costs nobody more than time.
        match self {
            Self::V1(group) => v1::unthrottle(&group.folders()[2]),
            Self::V2(group) => v2::unthrottle(&group.folder),
        }
    }

    /// Sets the share of the processor, after [`Self::unthrottle`].
    ///
    /// # Errors
    /// As the kernel says.
    pub fn limit_processor(&self, limits: &JailLimits) -> Result<(), JailError> {
        match self {
            Self::V1(group) => group.limit_processor(limits),
            Self::V2(group) => group.limit_processor(limits),
        }
    }

    /// Its counters as open files, for whoever may not look for them.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub fn gauges(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |(folder, name): (&PathBuf, &str)| fs::File::open(folder.join(name)).map(OwnedFd::from);
        let mut gauges = match self {
            Self::V1(group) => {
                let [memory, pids, _, cpuacct] = group.folders();
                let files = [
                    (memory, "memory.oom_control"),
                    (pids, "pids.events"),
                    (memory, "memory.max_usage_in_bytes"),
                    (cpuacct, "cpuacct.usage"),
                    (memory, "memory.usage_in_bytes"),
                    (pids, "pids.current"),
                    (memory, "cgroup.procs"),
                ];
                files.into_iter().map(open).collect::<io::Result<Vec<_>>>()
            }
            Self::V2(group) => {
                let names = [
                    "memory.events",
                    "pids.events",
                    "memory.peak",
                    "cpu.stat",
                    "memory.current",
                    "pids.current",
                    "cgroup.procs",
                ];
                names.into_iter().map(|name| open((&group.folder, name))).collect()
            }
        }?;
        // Older kernels of version 2 have none.
        let (folder, name) = match self {
            Self::V1(group) => (&group.folders()[0], "memory.force_empty"),
            Self::V2(group) => (&group.folder, "memory.reclaim"),
        };
        gauges.extend(fs::File::options().write(true).open(folder.join(name)).map(OwnedFd::from));
        Ok(gauges)
    }

    /// Stops every process of it, or lets them go on. Stopping takes the kernel a moment ([`Self::is_frozen`]).
    ///
    /// # Errors
    /// As the kernel says, and when nothing freezes groups here.
    pub fn freeze(&self, frozen: bool) -> Result<(), JailError> {
        match self {
            Self::V1(group) => group.freeze(frozen),
            Self::V2(group) => write(&group.folder, "cgroup.freeze", u8::from(frozen)),
        }
        .map_err(|error| JailError { step: Step::Freeze, ..error })
    }

    /// Whether every process of it stands still.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        match self {
            Self::V1(group) => group.is_frozen(),
            Self::V2(group) => read_keyed(&group.folder, "cgroup.events", "frozen") == Some(1),
        }
    }

    /// Takes back the room for one process more.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn close(&self, limits: &JailLimits) -> Result<(), JailError> {
        match self {
            // There the bringer does not count.
            Self::V1(_) => Ok(()),
            Self::V2(group) => write(&group.folder, "pids.max", most_processes(limits)),
        }
    }

    /// Sets the share of the processor where several want it. Only a courtesy: a kernel that refuses costs nobody more than time.
    pub fn set_weight(&self, weight: Weight) {
        match self {
            Self::V1(group) => {
                let shares = if weight == Weight::Full { 1024 } else { 10 };
                write(&group.folders()[2], "cpu.shares", shares).ok();
            }
            Self::V2(group) => {
                let weight = if weight == Weight::Full { 100 } else { 1 };
                write(&group.folder, "cpu.weight", weight).ok();
            }
        }
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        let (four, one) = match self {
            Self::V1(group) => (&group.folders()[..], group.freezer()),
            Self::V2(group) => (&[][..], Some(&group.folder)),
        };
        four.iter().chain(one)
    }

    /// Processes in it now; `None` when that cannot be told.
    #[must_use]
    pub fn processes(&self) -> Option<u64> {
        let folder = match self {
            Self::V1(group) => &group.folders()[1],
            Self::V2(group) => &group.folder,
        };
        read_number(folder, "pids.current")
    }

    /// Counters so far. What cannot be read counts as zero: the group outlives the sandbox, so this does not happen in practice.
    #[must_use]
    pub fn counters(&self) -> Counters {
        match self {
            Self::V1(group) => group.counters(),
            Self::V2(group) => group.counters(),
        }
    }

    /// Removes the group; `Ok(false)` when the kernel is not done with it yet.
    ///
    /// # Errors
    /// Anything but "busy".
    pub fn remove(&self) -> io::Result<bool> {
        let mut gone = true;
        for folder in self.folders() {
            match fs::remove_dir(folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => gone = false,
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }

    /// Removes the group, waiting a second for the kernel to let go of it, which is far more than it needs.
    ///
    /// # Errors
    /// As [`Self::remove`].
    pub fn remove_soon(&self) -> io::Result<bool> {
        within_a_second(|| self.remove())
    }
}

/// Tries until it is done, for a second: the kernel lets go of a group a moment after its last process.
fn within_a_second(mut done: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    for _ in 0..200 {
        if done()? {
            return Ok(true);
        }
        // Only a pause: cut short it is tried again a little earlier.
        rustix::event::poll(&mut [], Some(&pause)).ok();
    }
    Ok(false)
}

/// Counters of a group that go on counting, read without looking for the group ([`Group::gauges`]).
#[derive(Debug)]
pub struct Gauges {
    files: Vec<fs::File>,
}

impl Gauges {
    /// From what came beside a message; `None` when that is something else.
    #[must_use]
    pub fn new(files: Vec<OwnedFd>) -> Option<Self> {
        (7..=8).contains(&files.len()).then(|| Self { files: files.into_iter().map(fs::File::from).collect() })
    }

    fn text(&self, index: usize) -> String {
        use std::os::unix::fs::FileExt;
        let mut buffer = [0; 4096];
        let length = self.files.get(index).and_then(|file| file.read_at(&mut buffer, 0).ok()).unwrap_or(0);
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// Bytes of memory in use now, files and all that the kernel holds for it included.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.text(4).trim().parse().unwrap_or(0)
    }

    /// Processes and threads there are now, process 1 included.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.text(5).trim().parse().unwrap_or(0)
    }

    /// The processes as this process numbers them, process 1 included; the first few hundred.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let text = self.text(6);
        // A number may have been cut at the end.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Has the kernel take back what memory it can without losing anything. Blocks while it looks for some.
    pub fn reclaim(&self) {
        use std::os::unix::fs::FileExt;
        if let Some(file) = self.files.get(7) {
            // More than there is: an error says no more than that not all of it could be taken.
            let all = self.memory_bytes().to_string();
            file.write_at(all.as_bytes(), 0).ok();
        }
    }

    /// The counters so far. What a kernel does not count is zero.
    #[must_use]
    pub fn read(&self) -> Counters {
        let text = |index| self.text(index);
        let keyed = |text: &str, key: &str| keyed(text, key).unwrap_or(0);
        let (memory, cpu) = (text(0), text(3));
        Counters {
            oom_kills: keyed(&memory, "oom_kill"),
            process_limit_hits: keyed(&text(1), "max"),
            memory_peak_bytes: text(2).trim().parse().unwrap_or(0),
            // Nanoseconds alone in version 1.
            cpu_us: cpu
                .trim()
                .parse()
                .map_or_else(|_| keyed(&cpu, "usage_usec"), |nanoseconds: u64| nanoseconds / 1000),
            processes_peak: None,
        }
    }
}

/// How much of the processor a group gets where several want it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// As all that somebody waits for.
    Full,
    /// A hundredth of that.
    Least,
}

/// One more for process 1 of the sandbox, which is ours.
fn most_processes(limits: &JailLimits) -> u64 {
    limits.processes + 1
}

/// Name of the folder of one jailer: its pid and start time, so that a later process with the same pid is not taken for it.
fn instance_name() -> Result<String, JailError> {
    let pid = std::process::id();
    let start =
        start_time(pid).ok_or_else(|| JailError::new(Step::PrepareCgroup, "/proc/self/stat", "has no start time"))?;
    Ok(format!("fumehood-{pid}-{start}"))
}

/// Start time of a process in clock ticks since boot.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command may contain spaces and parentheses; fields are counted after the last one.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether a process has ended and only waits for its parent to take note.
fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Removes the folders of jailers that no longer live.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix("fumehood-")) else { continue };
        let Some((pid, start)) = rest.split_once('-') else { continue };
        let (Ok(pid), Ok(start)) = (pid.parse::<u32>(), start.parse::<u64>()) else { continue };
        // A server replaces a dead jailer before it reaps it.
        if start_time(pid) == Some(start) && !is_zombie(pid) {
            continue;
        }
        // Its sandboxes died with it; empty groups remain.
        remove_groups(&entry.path());
    }
}

/// Where cgroup file systems are mounted.
#[derive(Debug, Default)]
pub(crate) struct CgroupMounts {
    /// Controller to (mount point, root of the mount within the hierarchy).
    v1: Vec<(String, PathBuf, PathBuf)>,
    pub(crate) v2: Option<(PathBuf, PathBuf)>,
}

impl CgroupMounts {
    pub(crate) fn parse(mountinfo: &str) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let left: Vec<_> = left.split(' ').collect();
            let mut right = right.split(' ');
            let (Some(root), Some(point)) = (left.get(3), left.get(4)) else { continue };
            let (point, root) = (PathBuf::from(point), PathBuf::from(root));
            match right.next() {
                Some("cgroup2") => found.v2 = Some((point, root)),
                Some("cgroup") => {
                    for controller in right.next_back().unwrap_or_default().split(',') {
                        found.v1.push((controller.to_owned(), point.clone(), root.clone()));
                    }
                }
                _ => {}
            }
        }
        found
    }

    pub(crate) fn v1_controller(&self, name: &str) -> Option<(&Path, &Path)> {
        self.v1
            .iter()
            .find(|(controller, ..)| controller == name)
            .map(|(_, point, root)| (point.as_path(), root.as_path()))
    }
}

/// The folder of this process below a mount point. Inside a container without a cgroup namespace the kernel tells paths of
/// the host; the mount's root is then a prefix of them.
pub(crate) fn own_folder(point: &Path, root: &Path, own: &str) -> PathBuf {
    let below = Path::new(own).strip_prefix(root).unwrap_or_else(|_| Path::new(own.trim_start_matches('/')));
    let below = below.strip_prefix("/").unwrap_or(below);
    // Joining with nothing would append a slash.
    if below.as_os_str().is_empty() { point.to_owned() } else { point.join(below) }
}

fn write(folder: &Path, file: &str, value: impl std::fmt::Display) -> Result<(), JailError> {
    let path = folder.join(file);
    fs::write(&path, value.to_string()).at(Step::PrepareCgroup, path.display().to_string())
}

fn read_number(folder: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
}

/// A `key value` line of a flat keyed file.
fn read_keyed(folder: &Path, file: &str, key: &str) -> Option<u64> {
    keyed(&fs::read_to_string(folder.join(file)).ok()?, key)
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 /docker/abc /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn controllers_are_found_on_shared_and_hybrid_mounts() {
        let found = CgroupMounts::parse(HYBRID);
        assert_eq!(found.v1_controller("cpuacct").unwrap().0, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found.v2.as_ref().unwrap().0, Path::new("/sys/fs/cgroup/unified"));
        assert!(found.v1_controller("pids").is_none());
    }

    #[test]
    fn the_own_folder_is_right_inside_a_container_without_cgroup_namespace() {
        let folder = own_folder(Path::new("/sys/fs/cgroup/memory"), Path::new("/docker/abc"), "/docker/abc/x");
        assert_eq!(folder, Path::new("/sys/fs/cgroup/memory/x"));
        assert_eq!(own_folder(Path::new("/c"), Path::new("/"), "/"), Path::new("/c"));
        assert_eq!(own_folder(Path::new("/c"), Path::new("/"), "/a/b"), Path::new("/c/a/b"));
    }
}
