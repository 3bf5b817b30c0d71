//! Kernel confinement of one process.
//!
//! A module per kernel noun. The pieces meet in two places: [`jailer`], a small single-threaded process that does all privileged
//! set-up and owns every sandbox, and `init`, process 1 of each sandbox, which builds the sandbox from inside, starts the
//! program and reaps. The order of steps is fixed and each has a name ([`Step`]); a step that fails ends the sandbox
//! with that name, so that nothing ever runs with less confinement than the result says.
//!
//! ```text
//! server                 jailer                         init (pid 1)                program (pid 2)
//!   | Spawn + pipes ------>| cgroup, clone3 ------------->| waits
//!   |                      | id maps -------------------->| joins its cgroup; mounts, network
//!   |<---- Started + disk -|<------------- SetUp ---------| fork ------------------->| waits at the gate
//!   |------------------------------------------------ one byte through the gate ----->| drops everything, exec
//!   |<------ Exited -------|<------------- Ended ---------| reaps                     | ends
//! ```
//!
//! The crate is synchronous. `unsafe` is confined to the `sys` module (and the system calls it wraps).

pub mod cgroup;
mod error;
pub mod forked;
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod image;
mod init;
pub mod jailer;
mod keeper;
mod landlock;
mod layer;
mod mounts;
mod network;
mod probe;
pub mod protocol;
pub mod refusal;
mod renounce;
pub mod requirement;
mod rlimits;
mod seccomp;
mod spawn;
pub mod survey;
mod sys;
mod zygote;

pub use error::{JailError, Step};
pub use layer::{Layer, Without};
pub use rlimits::raise_descriptor_limit;

/// Gives this process a session keyring of its own with a key in it, for the attack suite to look for: the jailer that it starts inherits the
/// keyring, sandboxes must not.
///
/// # Errors
/// When the kernel has no keyrings, or no room.
pub fn plant_key(description: &std::ffi::CStr, payload: &[u8]) -> std::io::Result<()> {
    sys::join_new_session_keyring()?;
    sys::add_key_to_session(description, payload)
}
