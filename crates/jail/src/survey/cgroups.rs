//! Control groups: which version, which controllers, and where this process may make groups.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::{Files, Mount};
use crate::cgroup::{CgroupMounts, own_folder, v1_folder};

/// How control groups are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    /// Not at all.
    None,
    /// A hierarchy for each controller.
    V1,
    /// Controllers as in version 1, and a version 2 hierarchy without the memory controller beside them.
    Hybrid,
    /// One hierarchy.
    V2,
}

impl CgroupVersion {
    /// For people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::V1 => "version 1",
            Self::Hybrid => "hybrid (version 1 controllers)",
            Self::V2 => "version 2",
        }
    }
}

/// What there is of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// The kernel does not have it.
    Absent,
    /// Switched off on the kernel's command line.
    Disabled,
    /// Not mounted (version 1) or not handed down to this process (version 2).
    OutOfReach,
    /// There, but this process may not make groups with it.
    Closed,
    /// There for this process.
    Usable,
}

/// Control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    /// How they are mounted.
    pub version: CgroupVersion,
    /// Controllers that are needed, and freezer in version 1.
    pub controllers: BTreeMap<&'static str, Presence>,
    /// Where groups would be made: with version 1 the folder in the memory hierarchy.
    pub folder: String,
    /// Mounted read-only.
    pub read_only: bool,
    /// The folder holds processes of others, so that with version 2 it cannot hand controllers down.
    pub crowded: bool,
    /// The folder is the root of the whole tree, where files of groups are not seen.
    pub at_root: bool,
    /// Swapped memory counts; `None` where that cannot be seen.
    pub swap: Option<bool>,
    /// Files of version 2 that are there: `cgroup.kill`, `cgroup.freeze`, `memory.oom.group`.
    pub files: Vec<&'static str>,
}

/// Files of a group that later kernels have.
pub(super) const FILES: [&str; 3] = ["cgroup.kill", "cgroup.freeze", "memory.oom.group"];

const V1: [&str; 5] = ["memory", "pids", "cpu", "cpuacct", "freezer"];
const V2: [&str; 3] = ["memory", "pids", "cpu"];

impl Cgroups {
    pub(super) fn read(files: &dyn Files, mounts: &[Mount], pid: u32, parent: Option<&str>) -> Self {
        let found = CgroupMounts::parse(&files.read("/proc/self/mountinfo").unwrap_or_default());
        let own = files.read("/proc/self/cgroup").unwrap_or_default();
        let compiled = files.read("/proc/cgroups").unwrap_or_default();
        let look = Look { files, mounts, found: &found, own: &own, compiled: &compiled, parent, pid };
        match (found.v1_controller("memory").is_some(), &found.v2) {
            (true, v2) => look.v1(if v2.is_some() { CgroupVersion::Hybrid } else { CgroupVersion::V1 }),
            (false, Some(mount)) => look.v2(mount),
            (false, None) => look.none(),
        }
    }

    /// Whether groups can be made with all that is needed.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.version != CgroupVersion::None
            && !self.crowded
            && self.controllers.iter().all(|(name, presence)| *name == "freezer" || *presence == Presence::Usable)
    }
}

struct Look<'a> {
    files: &'a dyn Files,
    mounts: &'a [Mount],
    found: &'a CgroupMounts,
    own: &'a str,
    compiled: &'a str,
    parent: Option<&'a str>,
    pid: u32,
}

impl Look<'_> {
    fn read_only(&self, point: &Path) -> bool {
        self.mounts.iter().rfind(|mount| Path::new(&mount.point) == point).is_some_and(|mount| mount.read_only)
    }

    /// What there is of a controller that is not to be found; for one that is, what `there` says.
    fn presence(&self, name: &str, there: Option<Presence>) -> Presence {
        // Later kernels leave controllers out of that table which version 2 alone uses.
        let at_root = self
            .found
            .v2
            .as_ref()
            .and_then(|(point, _)| self.files.read(&format!("{}/cgroup.controllers", point.display())));
        let at_root = at_root.is_some_and(|handed| handed.split_whitespace().any(|found| found == name));
        match (there, enabled(self.compiled, name)) {
            (Some(there), _) => there,
            (None, _) if at_root => Presence::OutOfReach,
            (None, Some(true)) => Presence::OutOfReach,
            (None, Some(false)) => Presence::Disabled,
            (None, None) => Presence::Absent,
        }
    }

    fn none(&self) -> Cgroups {
        Cgroups {
            version: CgroupVersion::None,
            controllers: V2.into_iter().map(|name| (name, self.presence(name, None))).collect(),
            folder: "/sys/fs/cgroup".to_owned(),
            read_only: false,
            crowded: false,
            at_root: false,
            swap: None,
            files: Vec::new(),
        }
    }

    fn v1(&self, version: CgroupVersion) -> Cgroups {
        let folder_of = |name: &str| {
            let (point, root) = self.found.v1_controller(name)?;
            Some(v1_folder(point, root, self.own, name, self.parent).display().to_string())
        };
        let presence = |name| {
            let there = folder_of(name)
                .map(|folder| if self.files.writable(&folder) { Presence::Usable } else { Presence::Closed });
            (name, self.presence(name, there))
        };
        let folder = folder_of("memory").unwrap_or_default();
        let read_only = self.found.v1_controller("memory").is_some_and(|(point, _)| self.read_only(point));
        Cgroups {
            version,
            controllers: V1.into_iter().map(presence).collect(),
            read_only,
            crowded: false,
            at_root: false,
            swap: Some(self.files.exists(&format!("{folder}/memory.memsw.limit_in_bytes"))),
            files: Vec::new(),
            folder,
        }
    }

    fn v2(&self, (point, root): &(std::path::PathBuf, std::path::PathBuf)) -> Cgroups {
        let own = self.own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
        let own = own_folder(point, root, own);
        let candidates = match self.parent {
            Some(parent) => vec![point.join(parent.trim_start_matches('/'))],
            None if own == *point => vec![own.clone()],
            None => vec![own.clone(), point.clone()],
        };
        let look = |folder: &std::path::PathBuf| self.v2_at(point, folder, *folder == own);
        let mut seen = candidates.iter().map(look);
        let Some(first) = seen.next() else { return self.none() };
        if first.usable() {
            return first;
        }
        // What is wrong with the one that is meant for this process says more.
        seen.find(Cgroups::usable).unwrap_or(first)
    }

    fn v2_at(&self, point: &Path, folder: &Path, own: bool) -> Cgroups {
        let path = folder.display().to_string();
        let file = |name: &str| format!("{path}/{name}");
        // The root of the whole tree, the one folder without a type, hands controllers down in spite of its processes.
        let at_root = !self.files.exists(&file("cgroup.type")) && folder == point;
        let handed = self.files.read(&file("cgroup.controllers")).unwrap_or_default();
        let open = [path.clone(), file("cgroup.procs"), file("cgroup.subtree_control")]
            .iter()
            .all(|path| self.files.writable(path));
        let presence = |name| {
            let there = handed.split_whitespace().any(|found| found == name);
            let there = there.then_some(if open { Presence::Usable } else { Presence::Closed });
            (name, self.presence(name, there))
        };
        let inside = self.files.read(&file("cgroup.procs")).unwrap_or_default();
        let others = inside.lines().any(|pid| pid != self.pid.to_string());
        Cgroups {
            version: CgroupVersion::V2,
            controllers: V2.into_iter().map(presence).collect(),
            read_only: self.read_only(point),
            crowded: own && !at_root && others,
            at_root,
            swap: (!at_root).then(|| self.files.exists(&file("memory.swap.max"))),
            files: FILES.into_iter().filter(|name| self.files.exists(&file(name))).collect(),
            folder: path,
        }
    }
}

/// Whether a controller is switched on, from `/proc/cgroups`; `None` for one that the kernel does not have.
fn enabled(table: &str, name: &str) -> Option<bool> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    Some(line.split_whitespace().nth(3) == Some("1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_switched_off_at_boot_is_told_from_one_that_is_not_there() {
        let table = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t80\t1\nmemory\t0\t80\t0\n";
        assert_eq!(
            (enabled(table, "cpu"), enabled(table, "memory"), enabled(table, "pids")),
            (Some(true), Some(false), None)
        );
    }
}
