//! Starting one sandbox, seen from the jailer.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::cgroup::{Group, Hierarchy};
use crate::error::{At, JailError, Step};
use crate::identity;
use crate::init::{self, Inheritance};
use crate::mounts;
use crate::protocol::{JailSpec, packet_pair};
use crate::seccomp::Filters;
use crate::sys::{self, Side};

/// A sandbox that is building itself.
pub(crate) struct Spawned {
    pub(crate) pidfd: OwnedFd,
    pub(crate) group: Group,
    /// Where process 1 reports.
    pub(crate) report: OwnedFd,
    /// Made here when the jailer is root.
    pub(crate) disk: Option<OwnedFd>,
}

/// Who sandboxes are, outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The jailer is root, so the ids are the sandbox's own.
    pub(crate) privileged: bool,
}

/// Starts a sandbox; it goes on building itself while this returns.
pub(crate) fn spawn(
    spec: &JailSpec,
    fds: Vec<OwnedFd>,
    hierarchy: &Hierarchy,
    filters: &Filters,
    owner: Owner,
) -> Result<Spawned, JailError> {
    let group = hierarchy.create(&spec.name, &spec.limits)?;
    let started = start(spec, fds, &group, filters, owner);
    match started {
        Ok((pidfd, report, disk)) => Ok(Spawned { pidfd, group, report, disk }),
        Err(error) => {
            // The process, if there ever was one, ends by itself as its pipe from here is closed; its group is swept later.
            group.remove().ok();
            Err(error)
        }
    }
}

type Parts = (OwnedFd, OwnedFd, Option<OwnedFd>);

fn start(
    spec: &JailSpec,
    fds: Vec<OwnedFd>,
    group: &Group,
    filters: &Filters,
    owner: Owner,
) -> Result<Parts, JailError> {
    let Owner { uid, gid, privileged } = owner;
    let disk = match privileged {
        true => {
            // Pipes belong to the sandbox, so that its programs can reopen them through /dev/stdout.
            for fd in &fds[..3] {
                rustix::fs::fchown(fd, Some(rustix::fs::Uid::from_raw(uid)), Some(rustix::fs::Gid::from_raw(gid)))
                    .at(Step::CreateChannel, "give the pipes away")?;
            }
            Some(mounts::create_disk(spec.disk_bytes, spec.disk_inodes, Some((uid, gid)))?)
        }
        false => None,
    };
    let (report, child_report) = packet_pair().at(Step::CreateChannel, "report")?;
    let (child_go, go) = pipe_with(PipeFlags::CLOEXEC).at(Step::CreateChannel, "go")?;
    match sys::clone_into(sys::NAMESPACES).at(Step::Clone, "")? {
        Side::Child => {
            // In the child: the parent's ends go first, or the end of the jailer would never be seen.
            drop((report, go));
            init::run(Inheritance { spec, filters, fds, disk, go: child_go, report: child_report, privileged })
        }
        Side::Parent { pid, pidfd } => {
            drop((child_report, child_go, fds));
            let prepared = group.join(pid).and_then(|()| identity::map_ids(pid, uid, gid, privileged));
            let prepared = prepared.and_then(|()| rustix::io::write(&go, &[1]).map(drop).at(Step::AwaitParent, ""));
            if let Err(error) = prepared {
                rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL).ok();
                reap(&pidfd);
                return Err(error);
            }
            Ok((pidfd, report, disk))
        }
    }
}

/// Waits for a process that is known to be ending.
pub(crate) fn reap(pidfd: &OwnedFd) {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    use std::os::fd::AsFd;
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}
