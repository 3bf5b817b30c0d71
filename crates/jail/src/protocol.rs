//! Messages between the server, the jailer and process 1 of a sandbox.
//!
//! Sequenced-packet sockets: one message is one JSON value, with descriptors beside it. Both ends are this binary, so a
//! message that cannot be read is a bug or an attack and ends the conversation.

use std::fs;
use std::io::{self, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{JailError, Without};

/// Longest message sent in the packet itself, in bytes; the kernel bounds packets to somewhat more.
const MAX_PACKET: usize = 64 << 10;

/// Longest message at all, in bytes. A spawn carries environment and arguments, which the engine bounds to far less.
pub const MAX_MESSAGE: usize = 4 << 20;

/// A packet of this one byte, which no JSON begins with, says that the message is in the last descriptor beside it.
const IN_FILE: &[u8] = &[0];

/// Most descriptors beside one message.
const MAX_FDS: usize = 24;

/// How one sandbox is to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JailSpec {
    /// Unique among the sandboxes of this jailer.
    pub id: u64,
    /// Name of its cgroup: letters, digits, `_` and `-`.
    pub name: String,
    /// What its root consists of.
    pub root: Vec<RootEntry>,
    /// Its writable disk, in bytes.
    pub disk_bytes: u64,
    /// Files it may create.
    pub disk_inodes: u64,
    /// `/dev/shm`, in bytes.
    pub shm_bytes: u64,
    /// Program and arguments; the program is an absolute path.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Working directory; made if it is missing.
    pub cwd: String,
    /// Limits.
    pub limits: JailLimits,
    /// Folders of the root that are to be seen on the disk too: where they are, and where they appear.
    #[serde(default)]
    pub shown: Vec<(String, String)>,
    /// Programs can write nowhere on its disk, nor in `/dev/shm`; the host can, through the descriptor that it gets.
    #[serde(default)]
    pub read_only: bool,
    /// It waits for somebody to need it: until `Hurry` its program yields to those of others.
    pub waits: bool,
    /// It outlives its program: nothing is started yet, no descriptors are beside the request, and programs follow each other with
    /// [`Request::Begin`]. It ends only when it is killed.
    pub keep: bool,
    /// Whether a control socket follows the pipes; it becomes descriptor 3.
    pub control: bool,
    /// The program is a fork of this zygote instead of `argv`, with the zygote's environment. It is confined before it says a word on its
    /// control socket, and does not wait at the gate.
    pub zygote: Option<u64>,
}

/// How a preloaded interpreter that is to be forked is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ZygoteSpec {
    /// Unique among the zygotes of this jailer.
    pub id: u64,
    /// Zygotes of a family have a uid in common, which no other family has: a zygote can enter the sandboxes that were made for its own.
    #[serde(default)]
    pub family: u32,
    /// Name of its cgroup: letters, digits, `_` and `-`.
    pub name: String,
    /// What its root consists of; that of the sandboxes forked from it.
    pub root: Vec<RootEntry>,
    /// Its own writable disk, in bytes.
    pub disk_bytes: u64,
    /// Symbolic links made on that disk: where they point, and where they are.
    pub links: Vec<(String, String)>,
    /// Program and arguments; descriptor 3 is the socket on which it is asked to fork ([`crate::forked::serve`]).
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Limits of the zygote itself. Those of single processes (files, descriptors) are not applied: its forks could not raise them.
    pub limits: JailLimits,
}

/// One entry of a sandbox's root, made in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RootEntry {
    /// A host file or folder, read-only.
    Bind {
        /// Absolute path on the host.
        source: String,
        /// Absolute path inside.
        target: String,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points.
        to: String,
        /// Absolute path of the link.
        at: String,
    },
    /// A small file.
    File {
        /// Absolute path inside.
        at: String,
        /// Its text.
        text: String,
    },
    /// A folder.
    Dir {
        /// Absolute path inside.
        at: String,
    },
}

/// Limits of one sandbox; none of them is optional.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct JailLimits {
    /// Memory of all processes and files together, bytes.
    pub memory_bytes: u64,
    /// Processor time per wall-clock time, in thousandths of a core.
    pub cpu_millis: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Largest file, bytes.
    pub file_size_bytes: u64,
    /// Descriptors of a process.
    pub open_files: u64,
}

/// From the server to the jailer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Request {
    /// First message: how to work.
    Configure(JailerConfig),
    /// Make a sandbox. Beside it: standard input, output, error, gate, and the control socket if there is one.
    Spawn(Box<JailSpec>),
    /// Kill a sandbox; unknown ids are ignored, it may just have ended.
    Kill {
        /// The sandbox.
        id: u64,
    },
    /// A forked program has said that it ends now, with this exit code: nothing of what it does after that counts. If it is the only process left
    /// it is killed and `Exited` follows at once; otherwise its end is waited for as ever. Unknown ids are ignored.
    Conclude {
        /// The sandbox.
        id: u64,
        /// Exit code, 0 to 255.
        code: u8,
    },
    /// Somebody needs a sandbox that waited. Unknown ids are ignored.
    Hurry {
        /// The sandbox.
        id: u64,
    },
    /// End every process of a sandbox that is kept, then start its program anew. Beside it: standard input, output, error and control socket.
    Begin {
        /// The sandbox.
        id: u64,
        /// Number of the program, by which it is told of.
        program: u64,
        /// The program is a fork of this zygote, which owns the sandbox ([`JailSpec::zygote`]); otherwise the sandbox's `argv` is executed.
        zygote: Option<u64>,
    },
    /// Send SIGINT to the program of a sandbox that is kept, or one that was forked. `Interrupted` follows, whether or not there was one; not while it stands still.
    Interrupt {
        /// The sandbox.
        id: u64,
    },
    /// Have everything in a sandbox that is kept stand still. `Paused` follows.
    Pause {
        /// The sandbox.
        id: u64,
    },
    /// Let it go on. Unknown ids are ignored, and sandboxes that do not stand still.
    Resume {
        /// The sandbox.
        id: u64,
    },
    /// Start a zygote. Beside it: a pipe for what it prints.
    StartZygote(Box<ZygoteSpec>),
    /// End a zygote; what was forked from it lives on. Unknown ids are ignored.
    EndZygote {
        /// The zygote.
        id: u64,
    },
}

/// How the jailer is to work.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct JailerConfig {
    /// First host uid and gid for sandboxes, used when run by root. Several jailers of a host take ranges one after the other.
    pub uid_base: u32,
    /// How many uids a jailer takes; also the most sandboxes at once.
    pub uid_count: u32,
    /// A cgroup folder prepared by the operator, relative to each hierarchy's root; found out when absent.
    pub cgroup_parent: Option<String>,
    /// Layers left out, to show that the others hold. For the attack suite alone: nothing of a configuration leads here.
    #[serde(default)]
    pub without: Without,
}

/// From the jailer to the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reply {
    /// Answer to `Configure`: what is in force for every sandbox.
    Ready {
        /// Layer to state.
        features: Vec<(String, String)>,
        /// Whether sandboxes have host uids of their own, so that files must be given to them.
        own_uids: bool,
    },
    /// Answer to `Configure`: it cannot work.
    Unusable(JailError),
    /// A sandbox waits at its gate. Beside it: its disk and, for one that is kept, its counters ([`crate::cgroup::Gauges`]).
    Started {
        /// The sandbox.
        id: u64,
        /// Host uid (and gid) of the sandbox.
        uid: u32,
    },
    /// A program is confined. Beside it: where its refused calls are heard of ([`crate::refusal::Listener`]).
    Listening {
        /// The sandbox.
        id: u64,
        /// Number of the program in a sandbox that is kept, 0 otherwise.
        program: u64,
    },
    /// The program of a sandbox that is kept has come in.
    Begun {
        /// The sandbox.
        id: u64,
        /// The program.
        program: u64,
    },
    /// The program of a sandbox that is kept ended, or could not be started; the sandbox waits for the next.
    ProgramEnded {
        /// The sandbox.
        id: u64,
        /// The program.
        program: u64,
        /// What was seen; the counters are those of the whole sandbox so far.
        report: ExitReport,
    },
    /// Everything in a sandbox stands still, or could not be stopped and goes on.
    Paused {
        /// The sandbox.
        id: u64,
        /// Why not.
        error: Option<JailError>,
    },
    /// Interrupts were sent.
    Interrupted {
        /// The sandbox.
        id: u64,
        /// How many of those that were asked for this answers: of several at a time a program that was executed is sent one.
        count: u64,
    },
    /// A zygote has loaded everything and can be forked.
    ZygoteReady {
        /// The zygote.
        id: u64,
    },
    /// A zygote ended, or could not be started.
    ZygoteGone {
        /// The zygote.
        id: u64,
        /// Why, where that is known.
        error: Option<JailError>,
    },
    /// A sandbox ended, or could not be made.
    Exited {
        /// The sandbox.
        id: u64,
        /// What was seen.
        report: ExitReport,
        /// Its memory and namespaces are still being taken down: `Gone` follows.
        going: bool,
    },
    /// Nothing is left of a sandbox that was going.
    Gone {
        /// The sandbox.
        id: u64,
    },
}

/// What the jailer saw of a sandbox.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExitReport {
    /// Wait status of the program; `None` when the sandbox was killed as a whole.
    pub wait_status: Option<i32>,
    /// The step that failed, before the program ran.
    pub error: Option<JailError>,
    /// Processes killed for memory.
    pub oom_kills: u64,
    /// Times that the process limit refused one.
    pub process_limit_hits: u64,
    /// Bytes.
    pub memory_peak_bytes: u64,
    /// Microseconds.
    pub cpu_us: u64,
    /// Most processes at once.
    pub processes_peak: Option<u64>,
    /// Bytes through read-like calls.
    pub bytes_read: Option<u64>,
    /// Bytes through write-like calls.
    pub bytes_written: Option<u64>,
}

/// From process 1 of a sandbox to the jailer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Report {
    /// The sandbox is built. Beside it: its disk, when the sandbox made it itself.
    SetUp,
    /// A step failed.
    Failed(JailError),
    /// A program is confined. Beside it, in this order and as far as they are there: where its refused calls are heard of, and its counters of
    /// bytes, which nobody else could open in every mode.
    Confined { listener: bool, io: bool },
    /// Nothing runs in a sandbox that is kept but process 1.
    Swept,
    /// The program of a sandbox that is kept has been sent SIGINT, if there is one.
    Interrupted,
    /// The program ended.
    Ended { wait_status: i32, bytes_read: Option<u64>, bytes_written: Option<u64> },
}

/// From the jailer to process 1 of a sandbox that is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Order {
    /// End everything else.
    Sweep,
    /// Execute the program. Beside it: standard input, output, error, control socket, and where to report a step that fails.
    Execute,
    /// Send SIGINT to the program that was executed.
    Interrupt,
}

/// From the jailer to a zygote.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Fork {
    /// The sandbox.
    pub(crate) id: u64,
    pub(crate) limits: JailLimits,
    pub(crate) cwd: String,
    /// The jailer is root: groups can and must be dropped.
    pub(crate) drop_groups: bool,
    /// How many of the descriptors beside it are `cgroup.procs` files for the bringer and for the fork. They come first, then the namespaces in
    /// the order in which they are to be entered, then standard input, output, error, control and report.
    pub(crate) doors: (usize, usize),
}

/// Descriptors at the end of those beside a [`Fork`].
pub(crate) const FORK_CHANNELS: usize = 5;

/// From a zygote to the jailer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum ZygoteReport {
    /// It waits to be forked.
    Ready,
    /// A step failed before it was one.
    Failed(JailError),
    /// A fork was made; its pid as this process and the jailer see it.
    Forked { id: u64, pid: i32 },
    /// A fork could not be made.
    NotForked { id: u64, error: JailError },
}

/// A pair of connected packet sockets, both close-on-exec.
///
/// # Errors
/// As `socketpair`.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message with descriptors beside it.
///
/// # Errors
/// As `sendmsg`; `InvalidInput` when it is too long, which says nothing about the other end.
pub fn send<T: Serialize>(socket: impl AsFd, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, message, fds, SendFlags::NOSIGNAL)
}

/// The same without waiting for room: `WouldBlock` when the other end has not read what it was sent before.
///
/// # Errors
/// As [`send`].
pub(crate) fn send_now<T: Serialize>(socket: impl AsFd, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, message, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn send_with<T: Serialize>(socket: impl AsFd, message: &T, fds: &[BorrowedFd<'_>], flags: SendFlags) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() <= MAX_PACKET {
        return send_packet(socket, &bytes, fds, flags);
    }
    if bytes.len() > MAX_MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "message is too long"));
    }
    let mut file = fs::File::from(memfd_create("message", MemfdFlags::CLOEXEC)?);
    file.write_all(&bytes)?;
    file.rewind()?;
    let fds: Vec<_> = fds.iter().copied().chain([file.as_fd()]).collect();
    send_packet(socket, IN_FILE, &fds, flags)
}

fn send_packet(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: SendFlags) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    let sent = sendmsg(socket, &[io::IoSlice::new(bytes)], &mut ancillary, flags)?;
    if sent != bytes.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "a message was cut"));
    }
    Ok(())
}

/// Receives one message and the descriptors beside it; `None` at the end of the conversation.
///
/// # Errors
/// As `recvmsg`; `InvalidData` when it is not a message.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; MAX_PACKET + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [io::IoSliceMut::new(&mut buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    let packet = &buffer[..received.bytes];
    if packet.is_empty() {
        return Ok(None);
    }
    if packet != IN_FILE {
        return Ok(Some((serde_json::from_slice(packet)?, fds)));
    }
    let file = fds.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the message is missing"))?;
    let file = fs::File::from(file);
    if !file.metadata()?.is_file() {
        // Reading a pipe could take for ever.
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is in no file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_MESSAGE as u64).read_to_end(&mut bytes)?;
    Ok(Some((serde_json::from_slice(&bytes)?, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_with_its_descriptors() {
        let (left, right) = packet_pair().unwrap();
        let (extra, _) = packet_pair().unwrap();
        send(&left, &Request::Kill { id: 7 }, &[extra.as_fd()]).unwrap();
        let (request, fds) = receive::<Request>(&right).unwrap().unwrap();
        assert!(matches!(request, Request::Kill { id: 7 }));
        assert_eq!(fds.len(), 1);
        drop(left);
        assert!(receive::<Request>(&right).unwrap().is_none());
    }

    #[test]
    fn a_message_in_a_pipe_is_refused_instead_of_waited_for() {
        let ((left, right), (pipe, _to_pipe)) = (packet_pair().unwrap(), rustix::pipe::pipe().unwrap());
        send_packet(&left, IN_FILE, &[pipe.as_fd()], SendFlags::NOSIGNAL).unwrap();
        assert_eq!(receive::<Request>(&right).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_message_longer_than_a_packet_arrives_too_and_an_endless_one_is_refused() {
        let (left, right) = packet_pair().unwrap();
        let (extra, _) = packet_pair().unwrap();
        let config = |length| JailerConfig { cgroup_parent: Some("\u{1}".repeat(length)), ..JailerConfig::default() };
        send(&left, &Request::Configure(config(100_000)), &[extra.as_fd()]).unwrap();
        let (request, fds) = receive::<Request>(&right).unwrap().unwrap();
        assert!(
            matches!(request, Request::Configure(config) if config.cgroup_parent.as_ref().unwrap().len() == 100_000)
        );
        assert_eq!(fds.len(), 1);
        let error = send(&left, &Request::Configure(config(MAX_MESSAGE)), &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
