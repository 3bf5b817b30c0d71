//! The last steps of every program, however it came into its sandbox: from here on it has no rights, and nothing leads back.

use std::os::fd::OwnedFd;

use crate::error::{At, JailError, Step};
use crate::identity;
use crate::landlock;
use crate::layer::{Layer, Without};
use crate::seccomp::{self, Filters};
use crate::sys;

/// What the last steps depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rights<'a> {
    pub(crate) filters: &'a Filters,
    pub(crate) without: &'a Without,
    /// Its host uid is its own, and so is what the kernel counts for that uid.
    pub(crate) own_uid: bool,
}

/// Gives everything up. Returns where the host hears of refused calls, if it can be told of them; the program must not keep that.
pub(crate) fn renounce(rights: Rights<'_>) -> Result<Option<OwnedFd>, JailError> {
    let Rights { filters, without, own_uid } = rights;
    // Keys count against their uid, of which all sandboxes of an ordinary user share one: these have the empty keyring of the jailer.
    if own_uid && without.keeps(Layer::Keyring) {
        sys::join_new_session_keyring().at(Step::Keyring, "")?;
    }
    // no_new_privs first: Landlock and seccomp ask for it, or for a capability.
    if without.keeps(Layer::NoNewPrivileges) {
        identity::forbid_new_privileges()?;
    }
    if without.keeps(Layer::Landlock) {
        landlock::restrict()?;
    }
    // Last, since it closes calls that earlier steps need; but what stands in for no_new_privs is gone without capabilities.
    let early = (!without.keeps(Layer::NoNewPrivileges)).then(|| install(filters, without)).transpose()?;
    if without.keeps(Layer::Capabilities) {
        identity::drop_capabilities()?;
    } else {
        identity::keep_capabilities_over_exec()?;
    }
    early.map_or_else(|| install(filters, without), Ok)
}

fn install(filters: &Filters, without: &Without) -> Result<Option<OwnedFd>, JailError> {
    if without.keeps(Layer::Seccomp) { seccomp::install(filters) } else { Ok(None) }
}
