//! Version 1: one folder per hierarchy.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, eventfd};

use super::{CgroupMounts, Counters, instance_name, own_folder, read_keyed, read_number, sweep, write};
use crate::error::{At, JailError, Step};
use crate::protocol::JailLimits;

/// What each controller is needed for; all of them are.
const CONTROLLERS: [&str; 4] = ["memory", "pids", "cpu", "cpuacct"];

/// The controller that has processes stand still, and its file.
const FREEZER: &str = "freezer";
const STATE: &str = "freezer.state";

/// Lets the processes of a group go on, if it is one that was frozen.
pub(super) fn thaw(folder: &Path) {
    let state = folder.join(STATE);
    if state.exists() {
        // Gone meanwhile it needs none.
        std::fs::write(state, "THAWED").ok();
    }
}

/// Lifts the limit of the processor from a group, if it has one.
pub(super) fn unthrottle(folder: &Path) {
    // Gone meanwhile it needs none.
    std::fs::write(folder.join("cpu.cfs_quota_us"), "-1").ok();
}

/// The folder of this jailer in each hierarchy, in the order of [`CONTROLLERS`] (two may be the same).
#[derive(Debug)]
pub struct Hierarchy {
    folders: [PathBuf; 4],
    /// In the freezer hierarchy, where there is one for this server: needed only to have a session stand still.
    freezer: Option<PathBuf>,
}

/// The folders of one sandbox, in the same order.
#[derive(Debug)]
pub struct Group {
    folders: [PathBuf; 4],
    freezer: Option<PathBuf>,
    /// Counts how often memory ran out, where all of the sandbox is to end then: this version ends one process and no more by itself.
    alarm: Option<OwnedFd>,
}

impl Hierarchy {
    pub(super) fn open(mounts: &CgroupMounts, own: &str, parent: Option<&str>) -> Result<Self, JailError> {
        let instance = instance_name()?;
        let mut folders: [PathBuf; 4] = Default::default();
        for (folder, controller) in folders.iter_mut().zip(CONTROLLERS) {
            let (point, root) = mounts.v1_controller(controller).ok_or_else(|| {
                JailError::new(Step::PrepareCgroup, controller, "this version 1 controller is not mounted")
            })?;
            let above = above(point, root, own, controller, parent);
            sweep(&above);
            *folder = above.join(&instance);
            make(folder).map_err(|error| {
                let cause = match error.kind() {
                    std::io::ErrorKind::NotFound => {
                        format!("{error}; the folder named in process.cgroup_parent does not exist there")
                    }
                    _ => error.to_string(),
                };
                JailError::new(Step::PrepareCgroup, folder.display().to_string(), cause)
            })?;
        }
        let freezer = mounts.v1_controller(FREEZER).and_then(|(point, root)| {
            let above = above(point, root, own, FREEZER, parent);
            sweep(&above);
            let folder = above.join(&instance);
            make(&folder).ok().map(|()| folder)
        });
        Ok(Self { folders, freezer })
    }

    pub(super) fn freezer(&self) -> Option<&PathBuf> {
        self.freezer.as_ref()
    }

    pub(super) fn folders(&self) -> &[PathBuf; 4] {
        &self.folders
    }

    pub(super) fn create(
        &self,
        name: &str,
        limits: &JailLimits,
        processes: u64,
        keep: bool,
    ) -> Result<Group, JailError> {
        let mut group = Group {
            folders: self.folders.clone().map(|folder| folder.join(name)),
            freezer: self.freezer.as_ref().filter(|_| keep).map(|folder| folder.join(name)),
            alarm: None,
        };
        let made = group.set_up(limits, processes).and_then(|()| if keep { Ok(()) } else { group.set_alarm() });
        if made.is_err() {
            super::Group::V1(group).remove().ok();
            return made.map(|()| unreachable!("it is an error"));
        }
        Ok(group)
    }
}

impl Group {
    fn set_up(&self, limits: &JailLimits, processes: u64) -> Result<(), JailError> {
        for folder in self.folders.iter().chain(&self.freezer) {
            make(folder).at(Step::PrepareCgroup, folder.display().to_string())?;
        }
        let [memory, pids, cpu, _] = &self.folders;
        write(memory, "memory.limit_in_bytes", limits.memory_bytes)?;
        // Where swap is accounted, it must not be a way around the limit; where it is not, the file does not exist.
        if memory.join("memory.memsw.limit_in_bytes").exists() {
            write(memory, "memory.memsw.limit_in_bytes", limits.memory_bytes)?;
        } else {
            write(memory, "memory.swappiness", 0)?;
        }
        write(pids, "pids.max", processes)?;
        write(cpu, "cpu.cfs_period_us", 100_000)?;
        self.limit_processor(limits)
    }

    pub(super) fn limit_processor(&self, limits: &JailLimits) -> Result<(), JailError> {
        write(&self.folders[2], "cpu.cfs_quota_us", (limits.cpu_millis * 100).max(1000))
    }

    fn set_alarm(&mut self) -> Result<(), JailError> {
        let path = self.folders[0].join("memory.oom_control");
        let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).at(Step::PrepareCgroup, "eventfd")?;
        let control = File::open(&path).at(Step::PrepareCgroup, path.display().to_string())?;
        let order = format!("{} {}", alarm.as_raw_fd(), control.as_raw_fd());
        write(&self.folders[0], "cgroup.event_control", order)?;
        self.alarm = Some(alarm);
        Ok(())
    }

    pub(super) fn alarm(&self) -> Option<&OwnedFd> {
        self.alarm.as_ref()
    }

    pub(super) fn folders(&self) -> &[PathBuf; 4] {
        &self.folders
    }

    pub(super) fn freezer(&self) -> Option<&PathBuf> {
        self.freezer.as_ref()
    }

    pub(super) fn freeze(&self, frozen: bool) -> Result<(), JailError> {
        let Some(folder) = &self.freezer else {
            let cause = "there is no folder for this server in the freezer hierarchy; let root make one and give it to its user, as in the others";
            return Err(JailError::new(Step::Freeze, FREEZER, cause));
        };
        write(folder, STATE, if frozen { "FROZEN" } else { "THAWED" })
    }

    pub(super) fn is_frozen(&self) -> bool {
        let state = self.freezer.as_ref().and_then(|folder| std::fs::read_to_string(folder.join(STATE)).ok());
        match state.as_deref().map(str::trim) {
            Some("FROZEN") => true,
            // A process that waits for what it has just forked (vfork) when it is told to stop is passed over, and stands in the way for ever: it has to be
            // told again (Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst).
            Some("FREEZING") => {
                self.freeze(true).ok();
                false
            }
            _ => false,
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let [memory, pids, _, cpuacct] = &self.folders;
        Counters {
            oom_kills: read_keyed(memory, "memory.oom_control", "oom_kill").unwrap_or(0),
            process_limit_hits: read_keyed(pids, "pids.events", "max").unwrap_or(0),
            memory_peak_bytes: read_number(memory, "memory.max_usage_in_bytes").unwrap_or(0),
            cpu_us: read_number(cpuacct, "cpuacct.usage").unwrap_or(0) / 1000,
            processes_peak: read_number(pids, "pids.peak").map(|peak| peak.saturating_sub(1)),
        }
    }
}

/// The folder below which this jailer makes its own, in one hierarchy.
pub(crate) fn above(point: &Path, root: &Path, own: &str, controller: &str, parent: Option<&str>) -> PathBuf {
    match parent {
        Some(parent) => point.join(parent.trim_start_matches('/')),
        None => own_folder(point, root, own_path(own, controller).unwrap_or("/")),
    }
}

fn make(folder: &Path) -> std::io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The path of this process in the hierarchy of `controller`, from `/proc/self/cgroup`.
fn own_path<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}
