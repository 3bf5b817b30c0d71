//! What this host has for confining processes, what it lacks, and how it can be given.
//!
//! ```text
//! texts below /proc, /sys and /etc ([`Files`]) --\
//!                                                 >-- [`Facts`] --> [`Finding`]s, and a remedy for a step that failed
//! calls that change nothing ([`Probes`]) --------/
//! ```
//!
//! Taking the facts has no side effect, and everything after that is a pure function of them: what is said of a kind of host is tested with
//! texts of such a host. What only trying can tell is tried by the jailer ([`crate::jailer::Jailer::start`]).

mod cgroups;
mod findings;
mod host;
mod kernel;
mod own;
mod probes;
mod remedies;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Serialize;

use crate::JailError;
use crate::protocol::JailerConfig;

pub use cgroups::{CgroupVersion, Cgroups};
pub use findings::findings;
pub(crate) use findings::hold_capabilities;
pub use host::{Distribution, Host, Place};
pub use kernel::Kernel;
pub use own::Own;
pub use probes::Probes;
pub(crate) use remedies::Trouble;

/// Where texts come from.
pub trait Files {
    /// The text of a file; `None` where there is none or it may not be read.
    fn read(&self, path: &str) -> Option<String>;
    /// Whether there is such a file or folder.
    fn exists(&self, path: &str) -> bool;
    /// Whether this process may write it.
    fn writable(&self, path: &str) -> bool;
}

/// The files of this host.
#[derive(Debug, Clone, Copy)]
pub struct HostFiles;

impl Files for HostFiles {
    fn read(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned())
    }

    fn exists(&self, path: &str) -> bool {
        Path::new(path).exists()
    }

    fn writable(&self, path: &str) -> bool {
        // With the rights that count when it is written, which are not those of the real uid.
        let flags = rustix::fs::AtFlags::EACCESS;
        rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::WRITE_OK, flags).is_ok()
    }
}

/// Everything known about this host and this process.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Kernel, distribution, and what surrounds this process.
    pub host: Host,
    /// Rights and limits of this process.
    pub own: Own,
    /// Features and switches of the kernel.
    pub kernel: Kernel,
    /// Control groups.
    pub cgroups: Cgroups,
    /// What calls said.
    pub probes: Probes,
    /// How a jailer would be told to work.
    config: JailerConfig,
}

impl Facts {
    /// Looks at this host. `data_dir` is where data will lie; it need not exist.
    #[must_use]
    pub fn take(config: &JailerConfig, data_dir: Option<&Path>) -> Self {
        Self::of(&HostFiles, Probes::take(data_dir), config)
    }

    /// The same from texts.
    #[must_use]
    pub fn of(files: &dyn Files, probes: Probes, config: &JailerConfig) -> Self {
        let mounts = Mount::parse(&files.read("/proc/self/mountinfo").unwrap_or_default());
        let own = Own::read(files);
        Self {
            host: Host::read(files, &mounts),
            kernel: Kernel::read(files, &mounts),
            cgroups: Cgroups::read(files, &mounts, own.pid, config.cgroup_parent.as_deref()),
            own,
            probes,
            config: config.clone(),
        }
    }

    /// What the operator can do about a step that failed here, where that is known.
    #[must_use]
    pub fn remedy_for(&self, error: &JailError) -> Option<String> {
        remedies::diagnose(error, self).map(|trouble| self.remedy(trouble))
    }

    pub(crate) fn remedy(&self, trouble: Trouble) -> String {
        remedies::remedy(trouble, self)
    }
}

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is there for this process.
    Available,
    /// The kernel or the machine has it, and something keeps this process from it.
    NotEnabled,
    /// It is not there.
    Missing,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Group {
    Namespaces,
    Calls,
    Seccomp,
    Landlock,
    Cgroups,
    Rights,
    Resources,
    Mounts,
    Devices,
    Programs,
}

/// One thing that matters for isolation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub group: Group,
    /// Its name, the same on every host.
    pub name: String,
    /// Whether it is there.
    pub state: State,
    /// What was seen.
    pub detail: String,
    /// What it is for.
    pub why: &'static str,
    /// The isolation levels that want it.
    pub levels: &'static [&'static str],
    /// How it can be given on this host, where it is not available.
    pub remedy: Option<String>,
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// What of the file system is mounted.
    root: String,
    point: String,
    read_only: bool,
    kind: String,
}

impl Mount {
    fn parse(text: &str) -> Vec<Self> {
        text.lines().filter_map(Self::line).collect()
    }

    fn line(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point, options) = (left.next()?, left.next()?, left.next()?);
        let kind = right.split(' ').next()?.to_owned();
        let read_only = options.split(',').any(|option| option == "ro");
        Some(Self { root: root.to_owned(), point: point.to_owned(), read_only, kind })
    }
}
