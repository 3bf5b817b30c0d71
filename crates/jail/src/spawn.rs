//! Starting one sandbox, seen from the jailer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::cgroup::{Doors, Group, Hierarchy};
use crate::error::{At, JailError, Step};
use crate::identity;
use crate::image::{Images, namespace_of};
use crate::init::{self, Inheritance};
use crate::layer::{Layer, Without};
use crate::mounts;
use crate::protocol::{Fork, JailLimits, JailSpec, packet_pair, send};
use crate::renounce::Rights;
use crate::seccomp::Filters;
use crate::sys::{self, Side};

/// A sandbox that is building itself.
pub(crate) struct Spawned {
    pub(crate) pidfd: OwnedFd,
    pub(crate) pid: i32,
    pub(crate) group: Group,
    /// Where process 1 reports.
    pub(crate) report: OwnedFd,
    /// What is needed to fork its program from a zygote, once it is built.
    pub(crate) forking: Option<Forking>,
    /// What the zygote gets besides, unless programs come later.
    pub(crate) channels: Vec<OwnedFd>,
}

/// Who sandboxes are, outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The jailer is root, so the ids are the sandbox's own.
    pub(crate) privileged: bool,
    /// Who owns the sandbox's user namespace, and thereby may put processes into it: the zygote that its program is forked from, or the sandbox itself. Run by
    /// an ordinary user it is that user.
    pub(crate) namespace: Option<u32>,
}

/// What sandboxes are made with.
pub(crate) struct Means<'a> {
    pub(crate) hierarchy: &'a Hierarchy,
    pub(crate) images: &'a mut Images,
    pub(crate) filters: &'a Filters,
    pub(crate) without: &'a Without,
}

/// The program of a sandbox that is to be forked from a zygote.
pub(crate) struct Forking {
    fork: Fork,
    /// Doors and namespaces, in the order in which the zygote wants them.
    ways: Vec<OwnedFd>,
    /// Inode of the sandbox's pid namespace, in which the fork is to be.
    pub(crate) pid_namespace: u64,
}

impl Forking {
    /// Asks the zygote. `channels` are standard input, output, error, control and report.
    pub(crate) fn ask(&self, zygote: &OwnedFd, channels: &[OwnedFd]) -> std::io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = self.ways.iter().chain(channels).map(AsFd::as_fd).collect();
        send(zygote, &self.fork, &fds)
    }
}

/// Starts a sandbox; it goes on building itself while this returns.
pub(crate) fn spawn(
    spec: &JailSpec,
    fds: Vec<OwnedFd>,
    means: &mut Means<'_>,
    owner: Owner,
) -> Result<Spawned, JailError> {
    // A fork passes through the group in company of the process that brings it.
    let unlimited = JailLimits { memory_bytes: 1 << 40, cpu_millis: 1 << 20, processes: 1 << 20, ..spec.limits };
    let limits = if means.without.keeps(Layer::Cgroup) { &spec.limits } else { &unlimited };
    let group = means.hierarchy.create(&spec.name, limits, spec.zygote.is_some(), spec.keep)?;
    let started = start(spec, fds, &group, means, owner);
    match started {
        Ok(Parts { pid, pidfd, report, forking, channels }) => {
            Ok(Spawned { pidfd, pid, group, report, forking, channels })
        }
        Err(error) => {
            // The process, if there ever was one, ends by itself as its pipe from here is closed; its group is swept later.
            group.remove().ok();
            Err(error)
        }
    }
}

fn namespaces(without: &Without) -> u64 {
    let optional =
        [(Layer::PidNamespace, sys::PIDS), (Layer::IpcNamespace, sys::IPC), (Layer::NetworkNamespace, sys::NETWORK)];
    optional.into_iter().filter(|(layer, _)| !without.keeps(*layer)).fold(sys::NAMESPACES, |all, (_, one)| all & !one)
}

struct Parts {
    pid: i32,
    pidfd: OwnedFd,
    report: OwnedFd,
    forking: Option<Forking>,
    channels: Vec<OwnedFd>,
}

fn start(
    spec: &JailSpec,
    mut fds: Vec<OwnedFd>,
    group: &Group,
    means: &mut Means<'_>,
    owner: Owner,
) -> Result<Parts, JailError> {
    let Owner { uid, gid, privileged, namespace } = owner;
    let disk = match privileged {
        true => {
            // Pipes belong to the sandbox, so that its programs can reopen them through /dev/stdout.
            for fd in fds.iter().take(3) {
                rustix::fs::fchown(fd, Some(rustix::fs::Uid::from_raw(uid)), Some(rustix::fs::Gid::from_raw(gid)))
                    .at(Step::CreateChannel, "give the pipes away")?;
            }
            Some(mounts::create_disk(spec.disk_bytes, spec.disk_inodes, Some((uid, gid)))?)
        }
        false => None,
    };
    let doors = group.doors()?;
    let (report, child_report) = packet_pair().at(Step::CreateChannel, "report")?;
    let (child_go, go) = pipe_with(PipeFlags::CLOEXEC).at(Step::CreateChannel, "go")?;
    // The program's ends go to the zygote instead.
    let kept = if spec.zygote.is_some() { std::mem::take(&mut fds) } else { Vec::new() };
    match means.images.clone_within(&spec.root, namespaces(means.without), namespace)? {
        Side::Child => {
            // In the child: the parent's ends go first, or the end of the jailer would never be seen.
            drop((report, go, kept));
            let rights = Rights { filters: means.filters, without: means.without, own_uid: privileged };
            init::run(Inheritance { spec, rights, fds, disk, doors, go: child_go, report: child_report, privileged })
        }
        Side::Parent { pid, pidfd } => {
            drop((child_go, fds, disk));
            let prepared = identity::map_ids(pid, uid, gid, privileged);
            let forking = match spec.zygote {
                Some(_) => prepared.and_then(|()| forking(spec, pid, doors, privileged).map(Some)),
                None => prepared.map(|()| None),
            };
            // Without the gate: a fork is told what to run over its control socket.
            let channels = kept.into_iter().enumerate().filter(|(index, _)| *index != 3).map(|(_, fd)| fd);
            let forked_now = spec.zygote.is_some() && !spec.keep;
            let channels = if forked_now { channels.chain([child_report]).collect() } else { Vec::new() };
            let forking =
                forking.and_then(|forking| rustix::io::write(&go, &[1]).at(Step::AwaitParent, "").map(|_| forking));
            match forking {
                Ok(forking) => Ok(Parts { pid, pidfd, report, forking, channels }),
                Err(error) => {
                    rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL).ok();
                    reap(&pidfd);
                    Err(error)
                }
            }
        }
    }
}

/// Collects what the zygote needs to put a fork into this sandbox.
fn forking(spec: &JailSpec, pid: i32, doors: Doors, drop_groups: bool) -> Result<Forking, JailError> {
    let Doors { early, late } = doors;
    let doors = (early.len(), late.len());
    let mut fds: Vec<OwnedFd> = early.into_iter().chain(late).collect();
    // The user namespace first: it gives the rights to enter the others.
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts"] {
        fds.push(namespace_of(pid, kind)?);
    }
    let pid_namespace = inode(&fds[doors.0 + doors.1 + 2]).at(Step::EnterImage, "pid namespace")?;
    let fork = Fork { id: spec.id, limits: spec.limits, cwd: spec.cwd.clone(), drop_groups, doors };
    Ok(Forking { fork, ways: fds, pid_namespace })
}

/// What tells a namespace from others.
pub(crate) fn inode(namespace: &OwnedFd) -> std::io::Result<u64> {
    Ok(rustix::fs::fstat(namespace)?.st_ino)
}

/// Waits for a process that is known to be ending.
pub(crate) fn reap(pidfd: &OwnedFd) {
    wait_status(pidfd);
}

/// Waits for a process that is known to be ending; its wait status, where it is ours to wait for.
pub(crate) fn wait_status(pidfd: &OwnedFd) -> Option<i32> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(Some(status)) => {
                let code = status.exit_status().map(|code| (code & 0xff) << 8);
                return code.or_else(|| status.terminating_signal());
            }
            Ok(None) | Err(_) => return None,
        }
    }
}
