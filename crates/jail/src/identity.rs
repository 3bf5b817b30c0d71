//! User and group ids, and capabilities.
//!
//! Inside, the one mapped id is [`INSIDE`]. Outside it is a uid of the sandbox's own when the jailer is root, and the
//! jailer's own uid otherwise. Uid 0 is not mapped at all: nothing inside can become it.

use std::fs;

use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use crate::error::{At, JailError, Step};
use crate::sys;

/// Uid and gid of everything inside a sandbox.
pub(crate) const INSIDE: u32 = 1000;

/// Writes the id maps of a process that is waiting in a new user namespace.
pub(crate) fn map_ids(pid: i32, outside: u32, outside_gid: u32, privileged: bool) -> Result<(), JailError> {
    let write = |file: &str, text: String| {
        let path = format!("/proc/{pid}/{file}");
        fs::write(&path, text).at(Step::MapIds, path)
    };
    if !privileged {
        // Without this an ordinary user may not map a group.
        write("setgroups", "deny".to_owned())?;
    }
    write("uid_map", format!("{INSIDE} {outside} 1"))?;
    write("gid_map", format!("{INSIDE} {outside_gid} 1"))
}

/// Becomes the sandbox's user with capabilities kept, for set-up inside its own user namespace.
pub(crate) fn become_inside(drop_groups: bool) -> Result<(), JailError> {
    sys::keep_capabilities().at(Step::BecomeUser, "keep capabilities")?;
    sys::become_ids(INSIDE, INSIDE, drop_groups).at(Step::BecomeUser, INSIDE.to_string())?;
    // setresuid clears the effective set of what it keeps.
    let all = CapabilitySet::all();
    let permitted = rustix::thread::capabilities(None).at(Step::BecomeUser, "read capabilities")?.permitted & all;
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).at(Step::BecomeUser, "raise capabilities")
}

/// Gives up every capability for ever: bounding, ambient, then all three sets.
pub(crate) fn drop_capabilities() -> Result<(), JailError> {
    for capability in CapabilitySet::all().iter() {
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

/// Exec never raises privileges again; also the condition for an unprivileged seccomp filter.
pub(crate) fn forbid_new_privileges() -> Result<(), JailError> {
    set_no_new_privs(true).at(Step::NoNewPrivileges, "")
}
