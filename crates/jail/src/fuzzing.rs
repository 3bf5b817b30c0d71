//! Entrances of the fuzz targets (`fuzz/`), for nobody else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::protocol::{Fork, Order, Reply, Report, Request, ZygoteReport, receive, send};
use crate::{JailError, seccomp};

/// An instruction of a filter, as the kernel knows it: code, jump if true, jump if false, operand.
pub type Instruction = (u16, u8, u8, u32);

/// Filters of a sandbox and, with `zygote`, of a zygote; a call goes through all of them.
///
/// # Errors
/// When they cannot be compiled.
pub fn filters(zygote: bool) -> Result<Vec<Vec<Instruction>>, JailError> {
    let filters = if zygote { seccomp::compile_for_zygote()? } else { seccomp::compile()? };
    Ok(filters
        .programs()
        .map(|program| program.iter().map(|step| (step.code, step.jt, step.jf, step.k)).collect())
        .collect())
}

/// A kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Server to jailer.
    Request,
    /// Jailer to server.
    Reply,
    /// Process 1 to jailer.
    Report,
    /// Jailer to process 1.
    Order,
    /// Jailer to zygote.
    Fork,
    /// Zygote to jailer.
    ZygoteReport,
}

/// A message as it was understood, as JSON again, and the descriptors beside it; `None` at the end of the conversation.
pub type Understood = io::Result<Option<(String, Vec<OwnedFd>)>>;

/// Receives a message of a kind.
///
/// # Errors
/// As when it is received.
pub fn understand(kind: Kind, socket: BorrowedFd<'_>) -> Understood {
    fn of<T: DeserializeOwned + Serialize>(socket: BorrowedFd<'_>) -> Understood {
        let Some((message, fds)) = receive::<T>(socket)? else { return Ok(None) };
        Ok(Some((serde_json::to_string(&message)?, fds)))
    }
    match kind {
        Kind::Request => of::<Request>(socket),
        Kind::Reply => of::<Reply>(socket),
        Kind::Report => of::<Report>(socket),
        Kind::Order => of::<Order>(socket),
        Kind::Fork => of::<Fork>(socket),
        Kind::ZygoteReport => of::<ZygoteReport>(socket),
    }
}

/// Sends JSON as a message.
///
/// # Errors
/// As when it is sent.
pub fn tell(socket: impl AsFd, json: &serde_json::Value, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send(socket, json, fds)
}
