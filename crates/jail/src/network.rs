//! The network namespace: empty but for the loopback interface.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::AsFd;

use crate::error::{At, JailError, Step};
use crate::sys;

/// Raises `lo`, so that programs which talk to themselves work and everything else fails at once as unreachable.
pub(crate) fn raise_loopback() -> Result<(), JailError> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .at(Step::RaiseLoopback, "socket")?;
    sys::raise_interface(socket.as_fd(), c"lo").at(Step::RaiseLoopback, "lo")
}
