//! Tries the whole way into a sandbox once, before the first caller needs it.
//!
//! The probe is a real sandbox whose program does not exist: when the only step that fails is the last one, all others work here.
//! What fails earlier is told at start instead of by every execution; what the operator can do about it says [`crate::survey`].

use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::{At, JailError, Step};
use crate::protocol::{JailLimits, JailSpec, Report, receive};
use crate::spawn::{self, Means, Owner, Spawned};

/// A path that no image has.
const NO_PROGRAM: &str = "/fumehood-probe";

/// What was found.
pub(crate) struct Probed {
    /// The host hears of refused calls.
    pub(crate) refusals_told: bool,
}

/// Builds a sandbox and takes it down.
///
/// # Errors
/// The step that does not work on this host.
pub(crate) fn run(means: &mut Means<'_>, owner: Owner) -> Result<Probed, JailError> {
    let spec = JailSpec {
        id: 0,
        name: "probe".to_owned(),
        root: Vec::new(),
        disk_bytes: 1 << 20,
        disk_inodes: 1024,
        shm_bytes: 1 << 20,
        argv: vec![NO_PROGRAM.to_owned()],
        env: Vec::new(),
        cwd: "/data".to_owned(),
        limits: JailLimits {
            memory_bytes: 64 << 20,
            cpu_millis: 1000,
            processes: 8,
            file_size_bytes: 1 << 20,
            open_files: 64,
        },
        control: false,
        shown: Vec::new(),
        read_only: false,
        waits: false,
        keep: false,
        zygote: None,
    };
    let pipe = || pipe_with(PipeFlags::CLOEXEC).at(Step::CreateChannel, "probe");
    let ((stdin, _stdin), (_stdout, stdout), (_stderr, stderr), (gate, open)) = (pipe()?, pipe()?, pipe()?, pipe()?);
    rustix::io::write(&open, &[1]).at(Step::AwaitGate, "probe")?;
    let Spawned { pidfd, group, report, .. } = spawn::spawn(&spec, vec![stdin, stdout, stderr, gate], means, owner)?;
    let (failed, refusals_told) = first_failure(&report);
    spawn::reap(&pidfd);
    if !group.remove_soon().at(Step::PrepareCgroup, "probe")? {
        return Err(JailError::new(Step::PrepareCgroup, "probe", "the group stays busy"));
    }
    match failed {
        Some(error) if error.step == Step::Exec => Ok(Probed { refusals_told }),
        Some(error) => Err(error),
        None => Err(JailError::new(Step::ReportSetUp, "probe", "process 1 ended without a word")),
    }
}

/// The step that failed, and whether a listener came before.
fn first_failure(report: &OwnedFd) -> (Option<JailError>, bool) {
    let mut told = false;
    loop {
        match receive::<Report>(report.as_fd()) {
            Ok(Some((Report::SetUp | Report::Swept | Report::Interrupted, _))) => {}
            Ok(Some((Report::Confined { listener, .. }, _))) => told = listener,
            Ok(Some((Report::Failed(error), _))) => return (Some(error), told),
            Ok(Some((Report::Ended { .. }, _)) | None) | Err(_) => return (None, told),
        }
    }
}
