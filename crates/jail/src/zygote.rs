//! Starting a zygote: a preloaded interpreter from which programs of sandboxes are forked.
//!
//! It is confined like they are (image, network, devices, limits, no capabilities, no_new_privs, seccomp), with two differences that forking needs.
//! It lives in the jailer's user and pid namespaces under a uid of its own, which owns the user namespaces of the sandboxes forked from it and
//! nothing else; and its seccomp filter leaves `setns` open. It never sees anything of a caller's.

use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::setsid;

use crate::cgroup::{Doors, Group, Hierarchy};
use crate::error::{At, JailError, Step};
use crate::identity;
use crate::image::Images;
use crate::init::{HIGH, c_strings};
use crate::landlock;
use crate::mounts;
use crate::protocol::{ZygoteReport, ZygoteSpec, packet_pair, send};
use crate::rlimits;
use crate::seccomp::{self, Filters};
use crate::spawn::Owner;
use crate::sys::{self, Side};

/// A zygote that is loading.
pub(crate) struct Started {
    pub(crate) pidfd: OwnedFd,
    pub(crate) group: Group,
    /// Where it is asked to fork.
    pub(crate) socket: OwnedFd,
}

/// Starts a zygote; `log` is where it prints.
pub(crate) fn start(
    spec: &ZygoteSpec,
    log: OwnedFd,
    hierarchy: &Hierarchy,
    images: &mut Images,
    filters: &Filters,
    owner: Owner,
) -> Result<Started, JailError> {
    let group = hierarchy.create(&spec.name, &spec.limits, false, false)?;
    let started = begin(spec, log, &group, images, filters, owner);
    match started {
        Ok((pidfd, socket)) => Ok(Started { pidfd, group, socket }),
        Err(error) => {
            group.remove().ok();
            Err(error)
        }
    }
}

fn begin(
    spec: &ZygoteSpec,
    log: OwnedFd,
    group: &Group,
    images: &mut Images,
    filters: &Filters,
    owner: Owner,
) -> Result<(OwnedFd, OwnedFd), JailError> {
    const INODES: u64 = 4096;
    // In both modes: run by a user too the jailer may mount in its own user namespace.
    let disk = mounts::create_disk(spec.disk_bytes, INODES, Some((owner.uid, owner.gid)))?;
    let (socket, theirs) = packet_pair().at(Step::CreateChannel, "zygote")?;
    let doors = group.doors()?;
    match images.clone_within(&spec.root, sys::MOUNTS | sys::COMMUNICATION, None)? {
        Side::Child => {
            drop(socket);
            let Err(error) = become_zygote(spec, log, disk, doors, &theirs, filters, owner);
            // Whether or not the jailer hears it, the end of the conversation says enough.
            send(&theirs, &ZygoteReport::Failed(error), &[]).ok();
            sys::exit_now(125)
        }
        Side::Parent { pidfd, .. } => Ok((pidfd, socket)),
    }
}

fn become_zygote(
    spec: &ZygoteSpec,
    log: OwnedFd,
    disk: OwnedFd,
    doors: Doors,
    socket: &OwnedFd,
    filters: &Filters,
    owner: Owner,
) -> Result<Infallible, JailError> {
    doors.enter()?;
    sys::enter_cgroup_namespace().at(Step::CgroupNamespace, "")?;
    mounts::complete_for_zygote(disk, spec.disk_bytes / 4)?;
    rustix::system::sethostname(b"sandbox").at(Step::SetHostname, "sandbox")?;
    setsid().at(Step::NewSession, "")?;
    sys::reset_signals().at(Step::NewSession, "signals")?;

    let nothing =
        open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).at(Step::ArrangeDescriptors, "")?;
    let high = [&nothing, &log, &log, socket]
        .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, HIGH).at(Step::ArrangeDescriptors, "move aside"));
    for (fd, target) in high.into_iter().zip(0..) {
        sys::place(fd?.as_fd(), target).at(Step::ArrangeDescriptors, "descriptors")?;
    }
    rlimits::apply_to_zygote()?;
    let program = CString::new(spec.argv[0].as_str()).at(Step::Exec, "program")?;
    let argv = c_strings(spec.argv.iter().cloned())?;
    let env = c_strings(spec.env.iter().map(|(name, value)| format!("{name}={value}")))?;
    rustix::process::chdir("/data").at(Step::EnterDirectory, "/data")?;

    identity::become_user(owner.uid, owner.gid, owner.privileged)?;
    // After the ids changed: a change of credentials cancels it.
    sys::die_with_parent().at(Step::FollowParent, "")?;
    for (to, at) in &spec.links {
        let folder = Path::new(at).parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder).at(Step::MountDisk, at.clone())?;
        std::os::unix::fs::symlink(to, at).at(Step::MountDisk, at.clone())?;
    }
    if owner.privileged {
        sys::join_new_session_keyring().at(Step::Keyring, "")?;
    }
    identity::forbid_new_privileges()?;
    landlock::restrict_scope()?;
    identity::drop_capabilities()?;
    sys::close_on_exec_from(4).at(Step::ArrangeDescriptors, "close the rest")?;
    seccomp::install_for_zygote(filters)?;
    Err(JailError::new(Step::Exec, spec.argv[0].clone(), sys::exec(&program, &argv, &env)))
}
