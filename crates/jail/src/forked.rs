//! The way of a fork from a zygote into its sandbox.
//!
//! A zygote cannot come back from another namespace, so it sends a bringer: a process that shares its memory (as after `vfork`, nothing is
//! copied), joins the sandbox's cgroup, enters its namespaces, and forks. That fork is the one copy of the page tables. The bringer
//! ends, which hands its child to process 1 of the zygote's pid namespace, the jailer; in the sandbox the child is the next pid after process 1.
//!
//! The child then takes the same last steps as a program that was started by `exec` ([`crate::init`]), in the same order and with the same
//! functions. It returns to its caller only when all of them are done.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::process::setsid;

use crate::cgroup;
use crate::error::{At, JailError, Step};
use crate::identity;
use crate::init::{HIGH, enter_directory, tell_confined};
use crate::layer::Without;
use crate::protocol::{FORK_CHANNELS, Fork, Report, ZygoteReport, receive, send};
use crate::renounce::{Rights, renounce};
use crate::rlimits;
use crate::seccomp::{self, Filters};
use crate::sys;

/// Where [`serve`] has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// In a fork: confined, in its sandbox, with its channels at descriptors 0 to 3.
    InFork,
    /// In the zygote: the jailer is gone.
    ToTheEnd,
}

/// Says that everything is loaded, then forks whenever the jailer asks. Returns in each fork. The process must have one thread.
///
/// What the forked program has to do around a fork it does there: a page that the zygote writes to is one that it shares no more.
///
/// # Errors
/// In the zygote, when the conversation with the jailer breaks down.
pub fn serve(jailer: OwnedFd) -> io::Result<Served> {
    let filters = seccomp::compile().map_err(io::Error::other)?;
    send(&jailer, &ZygoteReport::Ready, &[])?;
    while let Some(request) = next(&jailer)? {
        let mut journey = Journey { request, failed: None };
        // The fork must not run a handler before it is confined, nor the bringer at all.
        let blocked = sys::block_signals()?;
        let forked = sys::fork_through(&mut journey, Journey::enter);
        if matches!(forked, Ok(None)) {
            drop(jailer);
            journey.request.settle(&filters);
            sys::restore_signals(&blocked)?;
            return Ok(Served::InFork);
        }
        sys::restore_signals(&blocked)?;
        let Journey { request, failed } = journey;
        let id = request.fork.id;
        // Before it is told of: whoever then waits for the end of its report would wait for this copy too.
        drop(request);
        let report = match (forked, failed) {
            (Ok(Some(pid)), None) => ZygoteReport::Forked { id, pid },
            (_, Some(error)) => ZygoteReport::NotForked { id, error },
            (Err(error), None) => ZygoteReport::NotForked { id, error: JailError::new(Step::ForkZygote, "", error) },
            (Ok(None), None) => unreachable!("that is the fork"),
        };
        send(&jailer, &report, &[])?;
    }
    Ok(Served::ToTheEnd)
}

/// A request, on its way through the bringer. The bringer shares the zygote's memory, so what it notes here arrives.
struct Journey {
    request: ForkRequest,
    failed: Option<JailError>,
}

impl Journey {
    /// In the bringer. Whether it is in the sandbox.
    extern "C" fn enter(&mut self) -> bool {
        self.failed = self.request.enter().err();
        self.failed.is_none()
    }
}

struct ForkRequest {
    fork: Fork,
    doors: Vec<OwnedFd>,
    late_doors: Vec<OwnedFd>,
    namespaces: Vec<OwnedFd>,
    channels: Vec<OwnedFd>,
}

fn next(jailer: &OwnedFd) -> io::Result<Option<ForkRequest>> {
    let Some((fork, mut fds)) = receive::<Fork>(jailer)? else { return Ok(None) };
    let (early, late) = fork.doors;
    if fds.len() <= early + late + FORK_CHANNELS {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors are missing"));
    }
    let channels = fds.split_off(fds.len() - FORK_CHANNELS);
    let namespaces = fds.split_off(early + late);
    let late_doors = fds.split_off(early);
    Ok(Some(ForkRequest { fork, doors: fds, late_doors, namespaces, channels }))
}

impl ForkRequest {
    fn enter(&self) -> Result<(), JailError> {
        for door in &self.doors {
            cgroup::enter(door)?;
        }
        for (index, namespace) in self.namespaces.iter().enumerate() {
            sys::enter_namespace(namespace.as_fd()).at(Step::EnterSandbox, format!("namespace {index}"))?;
        }
        Ok(())
    }

    /// The steps of the fork. A failure is reported to the jailer, and the process ends.
    fn settle(self, filters: &Filters) {
        let Self { fork, doors, late_doors, namespaces, mut channels } = self;
        drop((doors, namespaces));
        let report = channels.pop().and_then(|report| rustix::io::fcntl_dupfd_cloexec(report, HIGH).ok());
        let Some(report) = report else { sys::exit_now(125) };
        if let Err(error) = confine(&fork, late_doors, channels, &report, filters) {
            // If even this fails the jailer sees a program that ended before it was ready.
            send(&report, &Report::Failed(error), &[]).ok();
            sys::exit_now(125);
        }
        // Closed by the last step.
        std::mem::forget(report);
    }
}

fn confine(
    fork: &Fork,
    late_doors: Vec<OwnedFd>,
    channels: Vec<OwnedFd>,
    report: &OwnedFd,
    filters: &Filters,
) -> Result<(), JailError> {
    for door in late_doors {
        cgroup::enter(&door)?;
    }
    sys::enter_cgroup_namespace().at(Step::CgroupNamespace, "")?;
    setsid().at(Step::NewSession, "")?;
    arrange(channels, report)?;
    rlimits::apply(&fork.limits)?;
    identity::become_inside(fork.drop_groups)?;
    enter_directory(&fork.cwd)?;

    // As in `init::become_program`; there is no exec to close the report, so the last step does.
    let without = Without::default();
    let listener = renounce(Rights { filters, without: &without, own_uid: fork.drop_groups })?;
    // Hidden since the ids changed, as it should be until here; a program has to see its own files in /proc.
    sys::show_memory(true).at(Step::DropCapabilities, "show memory")?;
    // A courtesy: a kernel without these counters gives none.
    let io = std::fs::File::open("/proc/self/io").ok();
    tell_confined(report, listener, io)?;
    rlimits::apply_to_descriptors(&fork.limits, fork.drop_groups)?;
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
