//! User and group ids, and capabilities.
//!
//! Inside, the one mapped id is [`INSIDE`]. Outside it is a uid of the sandbox's own when the jailer is root, and the
//! jailer's own uid otherwise. Uid 0 is not mapped at all: nothing inside can become it.

use std::fs;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::error::{At, JailError, Step};
use crate::sys;

/// Uid and gid of everything inside a sandbox.
pub(crate) const INSIDE: u32 = 1000;

/// A range of host ids that no other jailer of this host uses, for as long as it is held.
#[derive(Debug)]
pub(crate) struct IdRange {
    pub(crate) first: u32,
    /// Locked; the lock goes with the process, however it ends.
    _lock: fs::File,
}

/// Where jailers run by root agree on their ranges.
const RANGES: &str = "/run/fumehood";

impl IdRange {
    /// Takes the first free range of `count` ids from `base` on.
    pub(crate) fn take(base: u32, count: u32) -> Result<Self, JailError> {
        fs::create_dir_all(RANGES).at(Step::MapIds, RANGES)?;
        let ranges = (0..).map_while(|slot: u32| base.checked_add(slot.checked_mul(count)?));
        // The last range must fit, and the highest id means "none" to the kernel.
        for first in ranges.take_while(|first| first.checked_add(count).is_some_and(|end| end < u32::MAX)).take(1000) {
            let path = format!("{RANGES}/uids-{first}");
            let lock = fs::File::create(&path).at(Step::MapIds, path.clone())?;
            match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { first, _lock: lock }),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(error) => return Err(JailError::new(Step::MapIds, path, error)),
            }
        }
        Err(JailError::new(Step::MapIds, "", "no range of uids is free; change process.uid_base or process.uid_count"))
    }
}

/// Writes the id maps of a process that is waiting in a new user namespace.
pub(crate) fn map_ids(pid: i32, outside: u32, outside_gid: u32, privileged: bool) -> Result<(), JailError> {
    write_maps(pid, (INSIDE, outside), (INSIDE, outside_gid), privileged)
}

/// The same for one in which an ordinary user stays who they are.
pub(crate) fn map_same(pid: i32, uid: u32, gid: u32) -> Result<(), JailError> {
    write_maps(pid, (uid, uid), (gid, gid), false)
}

fn write_maps(pid: i32, uid: (u32, u32), gid: (u32, u32), privileged: bool) -> Result<(), JailError> {
    let write = |file: &str, text: String| {
        let path = format!("/proc/{pid}/{file}");
        fs::write(&path, text).at(Step::MapIds, path)
    };
    if !privileged {
        // Without this an ordinary user may not map a group.
        write("setgroups", "deny".to_owned())?;
    }
    write("uid_map", format!("{} {} 1", uid.0, uid.1))?;
    write("gid_map", format!("{} {} 1", gid.0, gid.1))
}

/// Becomes the sandbox's user with capabilities kept, for set-up inside its own user namespace.
pub(crate) fn become_inside(drop_groups: bool) -> Result<(), JailError> {
    become_user(INSIDE, INSIDE, drop_groups)
}

/// Becomes a user with capabilities kept; they are dropped in a step of their own, which needs one of them.
pub(crate) fn become_user(uid: u32, gid: u32, drop_groups: bool) -> Result<(), JailError> {
    sys::keep_capabilities().at(Step::BecomeUser, "keep capabilities")?;
    sys::become_ids(uid, gid, drop_groups).at(Step::BecomeUser, uid.to_string())?;
    raise_capabilities()
}

/// Has this process act as another user for what it makes, with its capabilities still in effect: a kernel that keeps ordinary users from making user
/// namespaces must not take it for one.
pub(crate) fn act_as(uid: u32) -> Result<(), JailError> {
    sys::act_as(uid).at(Step::BecomeUser, uid.to_string())?;
    raise_capabilities()
}

/// Makes every capability that is permitted effective: a change of the effective uid clears that.
fn raise_capabilities() -> Result<(), JailError> {
    let all = CapabilitySet::all();
    let permitted = rustix::thread::capabilities(None).at(Step::BecomeUser, "read capabilities")?.permitted & all;
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).at(Step::BecomeUser, "raise capabilities")
}

/// Gives up every capability for ever: bounding, ambient, then all three sets.
pub(crate) fn drop_capabilities() -> Result<(), JailError> {
    for capability in CapabilitySet::all().iter() {
        // Taking away what is gone already would need a capability that is gone too.
        if capability_is_in_bounding_set(capability) == Ok(false) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            // The kernel does not know this one, so nobody can have it.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(JailError::new(Step::DropCapabilities, format!("{capability:?}"), error)),
        }
    }
    clear_ambient_capability_set().at(Step::DropCapabilities, "ambient set")?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).at(Step::DropCapabilities, "")
}

/// Keeps every capability that this process has, over exec too: what happens without the layer that drops them.
pub(crate) fn keep_capabilities_over_exec() -> Result<(), JailError> {
    let permitted =
        rustix::thread::capabilities(None).at(Step::DropCapabilities, "read")?.permitted & CapabilitySet::all();
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: permitted };
    set_capabilities(None, sets).at(Step::DropCapabilities, "keep")?;
    permitted.iter().try_for_each(|capability| {
        rustix::thread::configure_capability_in_ambient_set(capability, true)
            .at(Step::DropCapabilities, "keep over exec")
    })
}

/// Exec never raises privileges again; also the condition for an unprivileged seccomp filter.
pub(crate) fn forbid_new_privileges() -> Result<(), JailError> {
    set_no_new_privs(true).at(Step::NoNewPrivileges, "")
}
