//! Tries the whole way into a sandbox once, before the first caller needs it.
//!
//! The probe is a real sandbox whose program does not exist: when the only step that fails is the last one, all others work here.
//! What fails earlier is told at start, with what the operator can do about it, instead of by every execution.

use std::fs;
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
/// The step that does not work on this host, with a remedy where there is a known one.
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
        waits: false,
        keep: false,
        zygote: None,
    };
    let pipe = || pipe_with(PipeFlags::CLOEXEC).at(Step::CreateChannel, "probe");
    let ((stdin, _stdin), (_stdout, stdout), (_stderr, stderr), (gate, open)) = (pipe()?, pipe()?, pipe()?, pipe()?);
    rustix::io::write(&open, &[1]).at(Step::AwaitGate, "probe")?;
    let Spawned { pidfd, group, report, .. } =
        spawn::spawn(&spec, vec![stdin, stdout, stderr, gate], means, owner).map_err(with_remedy)?;
    let (failed, refusals_told) = first_failure(&report);
    spawn::reap(&pidfd);
    if !group.remove_soon().at(Step::PrepareCgroup, "probe")? {
        return Err(JailError::new(Step::PrepareCgroup, "probe", "the group stays busy"));
    }
    match failed {
        Some(error) if error.step == Step::Exec => Ok(Probed { refusals_told }),
        Some(error) => Err(with_remedy(error)),
        None => Err(JailError::new(Step::ReportSetUp, "probe", "process 1 ended without a word")),
    }
}

/// The step that failed, and whether a listener came before.
fn first_failure(report: &OwnedFd) -> (Option<JailError>, bool) {
    let mut told = false;
    loop {
        match receive::<Report>(report.as_fd()) {
            Ok(Some((Report::SetUp | Report::Swept, _))) => {}
            Ok(Some((Report::Confined { listener, .. }, _))) => told = listener,
            Ok(Some((Report::Failed(error), _))) => return (Some(error), told),
            Ok(Some((Report::Ended { .. }, _)) | None) | Err(_) => return (None, told),
        }
    }
}

pub(crate) fn with_remedy(error: JailError) -> JailError {
    let switch = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let restricted = switch("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1";
    let remedy = match error.step {
        Step::JoinCgroup => {
            "the kernel lets an ordinary user move processes only within a part of the tree that is theirs, so this server must \
             itself be started in a folder of that part"
        }
        Step::Clone if switch("/proc/sys/kernel/unprivileged_userns_clone") == "0" => {
            "user namespaces are closed to ordinary users: sysctl kernel.unprivileged_userns_clone=1, or run it as root"
        }
        Step::Clone => {
            "user namespaces are not available: sysctl user.max_user_namespaces must be above 0, and a surrounding container must \
             allow them (for Docker a seccomp profile that does, see docs/operating.md)"
        }
        Step::MapIds | Step::BecomeUser | Step::PrivateMounts | Step::OpenImage | Step::MountRoot if restricted => {
            "AppArmor takes the rights of user namespaces away (kernel.apparmor_restrict_unprivileged_userns = 1, the default of \
             Ubuntu 24.04): run it as root, give it a profile with `userns,`, or set the switch to 0; see docs/operating.md"
        }
        Step::MapIds | Step::CreateChannel | Step::CreateDisk if inside_user_namespace() => {
            "this root is the root of a container with few ids and rights: choose process.uid_base and process.uid_count within \
             /proc/self/uid_map, give the container CAP_SYS_ADMIN, or run it as an ordinary user; see docs/operating.md"
        }
        Step::MountProc => {
            "a surrounding container covers parts of /proc, so no new one may be mounted: for Docker \
             --security-opt systempaths=unconfined, for Kubernetes procMount: Unmasked; see docs/operating.md"
        }
        _ => return error,
    };
    JailError { cause: format!("{}; {remedy}", error.cause), ..error }
}

/// Whether this process sees fewer ids than the machine has.
fn inside_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().ne(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_trouble_gets_its_remedy_and_keeps_its_cause() {
        let error = with_remedy(JailError::new(Step::MountProc, "proc", "Operation not permitted"));
        assert!(error.cause.starts_with("Operation not permitted; ") && error.cause.contains("systempaths=unconfined"));
        let plain = JailError::new(Step::RaiseLoopback, "lo", "No such device");
        assert_eq!(with_remedy(plain.clone()), plain);
    }
}
