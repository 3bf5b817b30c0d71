//! The jailer: a small single-threaded process that does all privileged set-up and owns every sandbox.
//!
//! The server starts it before any thread exists ([`Jailer::start`]) and talks to it over a packet socket. It consists of two processes. The
//! outer one finds its place on the host (cgroups, uids), then waits; the inner one is process 1 of a pid namespace, with mounts of its own, in
//! which it makes zygotes and sandboxes (`keeper`). When the server goes away, for whatever reason, the inner one kills every
//! sandbox and ends; when it dies, the kernel kills every process in its pid namespace, and the outer one removes the groups. So nothing
//! outlives the server.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::cgroup::Hierarchy;
use crate::error::{At, JailError, Step};
use crate::identity::{self, IdRange};
use crate::keeper::{self, Place};
use crate::protocol::{JailerConfig, Reply, Request, packet_pair, receive, send};
use crate::requirement::Lacking;
use crate::rlimits;
use crate::spawn::wait_status;
use crate::survey::{self, Facts};
use crate::sys::{self, Side};

/// Name of the jailer's process; the binary that finds itself called so is to call [`run`].
pub const NAME: &str = "fumehood-jailer";

/// Descriptor number of the server's socket in the jailer.
const SOCKET: i32 = 3;

/// A running jailer.
#[derive(Debug)]
pub struct Jailer {
    /// The way to talk to it.
    pub link: JailerLink,
    /// The process; it ends when the link's socket is closed.
    pub process: std::process::Child,
}

/// The server's end of the conversation with a jailer.
#[derive(Debug)]
pub struct JailerLink {
    /// Packets: [`Request`] out, [`Reply`] in.
    pub socket: OwnedFd,
    /// Layer to state, in force for every sandbox.
    pub features: Vec<(String, String)>,
    /// Whether files of a sandbox must be given to its uid.
    pub own_uids: bool,
}

/// The jailer could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The process or its socket could not be made.
    #[error("the jailer process could not be started")]
    Process(#[from] io::Error),
    /// It says that it cannot confine anything on this host.
    #[error("this host cannot confine processes")]
    Unusable(#[from] Unusable),
    /// It works, but not with everything that the operator requires.
    #[error("the configuration requires more than this host gives")]
    Lacking(#[from] Lacking),
}

/// Why nothing can be confined here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}{}", .remedy.as_ref().map_or(String::new(), |remedy| format!("; {remedy}")))]
pub struct Unusable {
    /// The step that failed.
    pub error: JailError,
    /// What the operator can do about it, where that is known.
    pub remedy: Option<String>,
}

impl Jailer {
    /// Starts `command` (this binary with the arguments that lead to [`run`]) with an empty environment.
    ///
    /// # Errors
    /// When it cannot be started or cannot enforce a limit.
    pub fn start(mut command: Command, config: &JailerConfig) -> Result<Self, StartError> {
        let (ours, theirs) = packet_pair()?;
        // It is the only descriptor besides the standard ones; the number is part of the contract with `run`.
        let raw = theirs.as_raw_fd();
        sys::pass_descriptor(&mut command, raw, SOCKET);
        // Process 1 of every sandbox keeps this name, which should tell nothing about the host's folders.
        command.arg0(NAME);
        let mut process = command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        drop(theirs);
        send(&ours, &Request::Configure(config.clone()), &[])?;
        let error = match receive::<Reply>(&ours)? {
            Some((Reply::Ready { features, own_uids }, _)) => {
                return Ok(Self { link: JailerLink { socket: ours, features, own_uids }, process });
            }
            Some((Reply::Unusable(error), _)) => Some(error),
            _ => None,
        };
        // It ends by itself; not waited for, every attempt would leave a zombie.
        drop(ours);
        process.wait()?;
        Err(match error {
            Some(error) => {
                // Here, where the host is in sight: the jailer was in namespaces of its own, perhaps.
                let remedy = Facts::take(config, None).remedy_for(&error);
                Unusable { error, remedy }.into()
            }
            None => io::Error::new(io::ErrorKind::UnexpectedEof, "the jailer ended before it was ready").into(),
        })
    }
}

/// Body of the jailer process; returns when the server is gone.
///
/// # Errors
/// When the conversation with the server breaks down.
pub fn run() -> io::Result<()> {
    // SAFETY: the server passed its socket under this number and nothing else in this process has touched it.
    let socket = unsafe { OwnedFd::from_raw_fd(SOCKET) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    // A Ctrl-C in the server's terminal is the server's business; this process ends after it.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        sys::ignore_signal(signal)?;
    }
    rustix::process::setsid()?;
    sys::set_process_name(c"fumehood-jailer")?;
    // Every sandbox takes a few here.
    rlimits::raise_descriptor_limit()?;

    let Some((Request::Configure(config), _)) = receive(&socket)? else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the first message is no configuration"));
    };
    match find_place(&config) {
        Ok(place) => go_inside(socket, place),
        Err(error) => send(&socket, &Reply::Unusable(error), &[]),
    }
}

/// What has to be looked up while the host's processes and mounts are in sight.
fn find_place(config: &JailerConfig) -> Result<Place, JailError> {
    let privileged = rustix::process::geteuid().is_root();
    if privileged {
        survey::hold_capabilities()?;
    }
    let hierarchy = Hierarchy::discover(config.cgroup_parent.as_deref())?;
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let ids = if privileged { Some(IdRange::take(config.uid_base, config.uid_count)?) } else { None };
    let free_uids = match &ids {
        Some(ids) => (ids.first..ids.first + config.uid_count).collect(),
        None => std::iter::repeat_n(uid, config.uid_count as usize).collect(),
    };
    Ok(Place { hierarchy, privileged, uid, gid, free_uids, _ids: ids, without: config.without.clone() })
}

/// Waits until the other end of a pipe is closed.
fn await_reader(pipe: &OwnedFd) {
    // Nothing is asked for: that nobody reads is always told.
    while matches!(poll(&mut [PollFd::new(pipe, PollFlags::empty())], None), Ok(0) | Err(rustix::io::Errno::INTR)) {}
}

/// Starts the inner process, waits for its end, and removes what it leaves.
fn go_inside(socket: OwnedFd, place: Place) -> io::Result<()> {
    let (child_go, go) = pipe_with(PipeFlags::CLOEXEC)?;
    // An ordinary user may make namespaces only within a user namespace; the user stays the same in it.
    let namespaces = sys::PIDS | sys::MOUNTS | if place.privileged { 0 } else { sys::USER };
    let side = match sys::clone_into(namespaces).at(Step::Clone, "for the jailer") {
        Ok(side) => side,
        Err(error) => return send(&socket, &Reply::Unusable(error), &[]),
    };
    match side {
        Side::Child => {
            drop(go);
            let ended = keeper::run(&socket, place, &child_go);
            if let Err(error) = &ended {
                eprintln!("fumehood-jailer: {error}");
            }
            sys::exit_now(i32::from(ended.is_err()))
        }
        Side::Parent { pid, pidfd } => {
            drop(child_go);
            let mapped = match place.privileged {
                true => Ok(()),
                false => identity::map_same(pid, place.uid, place.gid),
            };
            // Held until the end: by its closing the inner process knows that this one is gone.
            let go = match mapped {
                Ok(()) => {
                    rustix::io::write(&go, &[1])?;
                    Some(go)
                }
                // It finds the pipe closed and ends.
                Err(error) => {
                    drop(go);
                    send(&socket, &Reply::Unusable(error), &[])?;
                    None
                }
            };
            drop(socket);
            if let Some(go) = &go {
                await_reader(go);
                // Killed outright it cannot end before its sandboxes, nor these while they stand still or have used up their share.
                place.hierarchy.let_all_end();
            }
            let status = wait_status(&pidfd);
            drop(go);
            place.hierarchy.remove_all();
            match status {
                Some(0) => Ok(()),
                _ => Err(io::Error::other("the jailer's inner process was ended")),
            }
        }
    }
}
