//! The way of a fork from a zygote into its sandbox.
//!
//! A zygote cannot come back from another namespace, so it sends a bringer: a process that shares its memory (as after `vfork`, nothing is
//! copied), joins the sandbox's cgroup, enters its namespaces, and forks. That fork is the one copy of the page tables. The bringer
//! ends, which hands its child to process 1 of the zygote's pid namespace, the jailer; in the sandbox the child is the next pid after process 1.
//!
//! The child then takes the same last steps as a program that was started by `exec` ([`crate::init`]), in the same order and with the same
//! functions. It returns to its caller only when all of them are done.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::process::setsid;

use crate::error::{At, JailError, Step};
use crate::identity;
use crate::init::{HIGH, enter_directory};
use crate::landlock;
use crate::protocol::{FORK_CHANNELS, Fork, Report, ZygoteReport, receive, send};
use crate::rlimits;
use crate::seccomp::{self, Filters};
use crate::sys;

/// What a zygote needs to serve.
pub struct Zygote {
    jailer: OwnedFd,
    filters: Filters,
}

/// A request to fork.
pub struct ForkRequest {
    fork: Fork,
    doors: Vec<OwnedFd>,
    late_doors: Vec<OwnedFd>,
    namespaces: Vec<OwnedFd>,
    channels: Vec<OwnedFd>,
}

/// A step of the bringer's that failed; it has no memory of its own to report from but shares that of the zygote.
#[derive(Debug, Default)]
pub struct Bringing {
    failed: Option<JailError>,
}

impl Zygote {
    /// A zygote that is asked on this socket.
    ///
    /// # Errors
    /// When the filters cannot be compiled.
    pub fn new(jailer: OwnedFd) -> Result<Self, JailError> {
        Ok(Self { jailer, filters: seccomp::compile()? })
    }

    /// Says that everything is loaded.
    ///
    /// # Errors
    /// When the jailer is gone.
    pub fn ready(&self) -> std::io::Result<()> {
        send(&self.jailer, &ZygoteReport::Ready, &[])
    }

    /// Waits for a request; `None` when the jailer is gone.
    ///
    /// # Errors
    /// When what arrives is no request.
    pub fn next(&self) -> std::io::Result<Option<ForkRequest>> {
        let Some((fork, mut fds)) = receive::<Fork>(&self.jailer)? else { return Ok(None) };
        let (early, late) = fork.doors;
        if fds.len() <= early + late + FORK_CHANNELS {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "descriptors are missing"));
        }
        let channels = fds.split_off(fds.len() - FORK_CHANNELS);
        let namespaces = fds.split_off(early + late);
        let late_doors = fds.split_off(early);
        Ok(Some(ForkRequest { fork, doors: fds, late_doors, namespaces, channels }))
    }

    /// Tells the jailer what became of a request.
    ///
    /// # Errors
    /// When the jailer is gone.
    pub fn answer(&self, request: &ForkRequest, forked: Result<i32, JailError>) -> std::io::Result<()> {
        let id = request.fork.id;
        let report = match forked {
            Ok(pid) => ZygoteReport::Forked { id, pid },
            Err(error) => ZygoteReport::NotForked { id, error },
        };
        send(&self.jailer, &report, &[])
    }

    /// The steps of the child, up to the last one. A failure is reported to the jailer, and the process ends.
    pub fn settle(self, request: ForkRequest) {
        let ForkRequest { fork, doors, late_doors, namespaces, mut channels } = request;
        drop((self.jailer, doors, namespaces));
        let Some(report) = channels.pop() else { sys::exit_now(125) };
        let Ok(report) = rustix::io::fcntl_dupfd_cloexec(&report, HIGH) else { sys::exit_now(125) };
        if let Err(error) = confine(&fork, &late_doors, channels, &report, &self.filters) {
            // If even this fails the jailer sees a program that ended before it was ready.
            send(&report, &Report::Failed(error), &[]).ok();
            sys::exit_now(125);
        }
        std::mem::forget(late_doors);
    }
}

impl ForkRequest {
    /// The steps of the bringer, before it forks. Whether they succeeded.
    pub fn bring(&self, bringing: &mut Bringing) -> bool {
        let failed = self.enter().err();
        let done = failed.is_none();
        bringing.failed = failed;
        done
    }

    fn enter(&self) -> Result<(), JailError> {
        for door in &self.doors {
            join(door)?;
        }
        for (index, namespace) in self.namespaces.iter().enumerate() {
            sys::enter_namespace(namespace.as_fd()).at(Step::EnterSandbox, format!("namespace {index}"))?;
        }
        Ok(())
    }
}

impl Bringing {
    /// Why the bringer did not get as far as forking, or why the fork failed.
    #[must_use]
    pub fn failure(self, fork_error: std::io::Error) -> JailError {
        self.failed.unwrap_or_else(|| JailError::new(Step::ForkZygote, "", fork_error))
    }
}

fn join(door: &OwnedFd) -> Result<(), JailError> {
    rustix::io::write(door, b"0").map(drop).at(Step::JoinCgroup, "")
}

fn confine(
    fork: &Fork,
    late_doors: &[OwnedFd],
    channels: Vec<OwnedFd>,
    report: &OwnedFd,
    filters: &Filters,
) -> Result<(), JailError> {
    for door in late_doors {
        join(door)?;
    }
    sys::enter_cgroup_namespace().at(Step::CgroupNamespace, "")?;
    setsid().at(Step::NewSession, "")?;
    arrange(channels, report)?;
    rlimits::apply(&fork.limits)?;
    identity::become_inside(fork.drop_groups)?;
    enter_directory(&fork.cwd)?;

    // As in `init::become_program`; there is no exec to close the report, so the last step does.
    identity::forbid_new_privileges()?;
    landlock::restrict()?;
    identity::drop_capabilities()?;
    seccomp::install(filters)?;
    // Hidden since the ids changed, as it should be until here; a program has to see its own files in /proc.
    sys::show_memory(true).at(Step::DropCapabilities, "show memory")?;
    let report = report.as_raw_fd().unsigned_abs();
    sys::close_range(report, report).at(Step::ArrangeDescriptors, "close the report")
}

/// Puts the channels where they belong and closes everything else but `report`.
fn arrange(channels: Vec<OwnedFd>, report: &OwnedFd) -> Result<(), JailError> {
    let high: Vec<OwnedFd> = channels
        .iter()
        .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, HIGH))
        .collect::<Result<_, _>>()
        .at(Step::ArrangeDescriptors, "move aside")?;
    for (fd, target) in high.iter().zip(0..) {
        sys::place(fd.as_fd(), target).at(Step::ArrangeDescriptors, "channels")?;
    }
    let report = report.as_raw_fd().unsigned_abs();
    sys::close_range(4, report - 1).at(Step::ArrangeDescriptors, "close the rest")?;
    sys::close_range(report + 1, u32::MAX).at(Step::ArrangeDescriptors, "close the rest")?;
    // Their numbers are closed already, and may be somebody else's by the time they would be dropped.
    channels.into_iter().chain(high).for_each(std::mem::forget);
    Ok(())
}
