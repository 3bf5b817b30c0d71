//! The jailer: a small single-threaded process that does all privileged set-up and owns every sandbox.
//!
//! The server starts it before any thread exists ([`Jailer::start`]) and talks to it over a packet socket. When the server goes away,
//! for whatever reason, the jailer kills every sandbox and ends; when the jailer dies, the kernel kills every sandbox
//! (parent-death signal). So nothing outlives the server.
//!
//! States of a sandbox here:
//!
//! ```text
//! Building --SetUp--> Running --Ended/killed--> (process 1 reaped) --> counters read, group removed, Exited sent
//!        \--Failed/killed--------------------^
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

use crate::cgroup::{Group, Hierarchy};
use crate::error::{JailError, Step};
use crate::identity::IdRange;
use crate::landlock;
use crate::probe;
use crate::protocol::{ExitReport, JailSpec, JailerConfig, Reply, Report, Request, packet_pair, receive, send};
use crate::seccomp::{self, Filters};
use crate::spawn::{self, Owner};
use crate::sys;

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
    Unusable(#[from] JailError),
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
        let process = command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        drop(theirs);
        send(&ours, &Request::Configure(config.clone()), &[])?;
        match receive::<Reply>(&ours)? {
            Some((Reply::Ready { features, own_uids }, _)) => {
                Ok(Self { link: JailerLink { socket: ours, features, own_uids }, process })
            }
            Some((Reply::Unusable(error), _)) => Err(error.into()),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the jailer ended before it was ready").into()),
        }
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

    let Some((Request::Configure(config), _)) = receive(&socket)? else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the first message is no configuration"));
    };
    match State::prepare(&config) {
        Ok(mut state) => {
            send(&socket, &state.ready(), &[])?;
            let ended = state.serve(&socket);
            state.end_all();
            ended
        }
        Err(error) => send(&socket, &Reply::Unusable(error), &[]),
    }
}

struct State {
    hierarchy: Option<Hierarchy>,
    filters: Filters,
    privileged: bool,
    gid: u32,
    /// Held so that no other jailer uses the same uids.
    _ids: Option<IdRange>,
    /// Host uids not in use; empty means that no more sandboxes fit.
    free_uids: VecDeque<u32>,
    sandboxes: BTreeMap<u64, Sandbox>,
    /// Groups the kernel was not done with yet.
    graveyard: Vec<Group>,
}

struct Sandbox {
    uid: u32,
    pidfd: OwnedFd,
    group: Group,
    report: OwnedFd,
    disk: Option<OwnedFd>,
    exit: ExitReport,
}

impl State {
    fn prepare(config: &JailerConfig) -> Result<Self, JailError> {
        let hierarchy = Hierarchy::discover(config.cgroup_parent.as_deref())?;
        let filters = seccomp::compile()?;
        let privileged = rustix::process::geteuid().is_root();
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let ids = if privileged { Some(IdRange::take(config.uid_base, config.uid_count)?) } else { None };
        let free_uids: VecDeque<u32> = match &ids {
            Some(ids) => (ids.first..ids.first + config.uid_count).collect(),
            None => VecDeque::from(vec![uid; config.uid_count as usize]),
        };
        let mut state = Self {
            hierarchy: Some(hierarchy),
            filters,
            privileged,
            gid,
            _ids: ids,
            free_uids,
            sandboxes: BTreeMap::new(),
            graveyard: Vec::new(),
        };
        let owner = state.owner(state.free_uids.front().copied().unwrap_or(uid));
        if let Err(error) = probe::run(state.hierarchy(), &state.filters, owner) {
            state.end_all();
            return Err(error);
        }
        Ok(state)
    }

    /// Who a sandbox with this host uid is. Run by root each has a group of its own too.
    fn owner(&self, uid: u32) -> Owner {
        Owner { uid, gid: if self.privileged { uid } else { self.gid }, privileged: self.privileged }
    }

    fn hierarchy(&self) -> &Hierarchy {
        self.hierarchy.as_ref().expect("taken only at the end")
    }

    fn ready(&self) -> Reply {
        let uid =
            if self.privileged { "own uid per sandbox" } else { "shared: the server's own uid (not run by root)" };
        let features = [
            ("namespaces", "user, mount, pid, ipc, uts, net, cgroup"),
            ("capabilities", "none"),
            ("no_new_privs", "on"),
            ("seccomp", "on"),
            ("landlock", landlock::state()),
            ("cgroup", self.hierarchy().version()),
            ("host_uid", uid),
            ("network", "none"),
            ("root", "read-only"),
        ];
        let features = features.into_iter().map(|(layer, state)| (layer.to_owned(), state.to_owned())).collect();
        Reply::Ready { features, own_uids: self.privileged }
    }

    /// Serves until the server is gone.
    fn serve(&mut self, socket: &OwnedFd) -> io::Result<()> {
        loop {
            let (server, ready) = self.wait(socket)?;
            for id in ready {
                self.hear(id, socket)?;
            }
            if server {
                match receive::<Request>(socket)? {
                    None => return Ok(()),
                    Some((Request::Spawn(spec), fds)) => self.spawn(&spec, fds, socket)?,
                    Some((Request::Kill { id }, _)) => self.kill(id),
                    Some((Request::Configure(_), _)) => {
                        return Err(io::Error::new(io::ErrorKind::InvalidData, "configured twice"));
                    }
                }
            }
            self.graveyard.retain(|group| matches!(group.remove(), Ok(false)));
        }
    }

    /// Whether the server wrote, and which sandboxes reported or ended.
    fn wait(&self, socket: &OwnedFd) -> io::Result<(bool, Vec<u64>)> {
        let mut fds = vec![PollFd::new(socket, PollFlags::IN)];
        for sandbox in self.sandboxes.values() {
            fds.push(PollFd::new(&sandbox.report, PollFlags::IN));
            fds.push(PollFd::new(&sandbox.pidfd, PollFlags::IN));
        }
        // Groups that were busy are tried again soon; otherwise there is nothing to do but wait.
        let again = Timespec { tv_sec: 0, tv_nsec: Duration::from_millis(5).subsec_nanos().into() };
        match poll(&mut fds, (!self.graveyard.is_empty()).then_some(&again)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let spoke = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let ready = self.sandboxes.keys().zip(fds[1..].chunks(2)).filter(|(_, pair)| pair.iter().any(spoke));
        Ok((spoke(&fds[0]), ready.map(|(id, _)| *id).collect()))
    }

    fn spawn(&mut self, spec: &JailSpec, fds: Vec<OwnedFd>, socket: &OwnedFd) -> io::Result<()> {
        let started = self.try_spawn(spec, fds);
        match started {
            Ok(()) => Ok(()),
            Err(error) => {
                let report = ExitReport { error: Some(error), ..ExitReport::default() };
                send(socket, &Reply::Exited { id: spec.id, report }, &[])
            }
        }
    }

    fn try_spawn(&mut self, spec: &JailSpec, fds: Vec<OwnedFd>) -> Result<(), JailError> {
        let wanted = if spec.control { 5 } else { 4 };
        if fds.len() != wanted || spec.argv.is_empty() {
            return Err(JailError::new(Step::CreateChannel, "", "the request is incomplete"));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if spec.name.is_empty() || !spec.name.chars().all(plain) {
            return Err(JailError::new(Step::PrepareCgroup, spec.name.clone(), "is no name for a cgroup"));
        }
        let uid = self.free_uids.pop_front().ok_or_else(|| {
            JailError::new(Step::MapIds, "", "all uids of the range are in use; raise process.uid_count")
        })?;
        match spawn::spawn(spec, fds, self.hierarchy(), &self.filters, self.owner(uid)) {
            Ok(spawned) => {
                let spawn::Spawned { pidfd, group, report, disk } = spawned;
                self.sandboxes
                    .insert(spec.id, Sandbox { uid, pidfd, group, report, disk, exit: ExitReport::default() });
                Ok(())
            }
            Err(error) => {
                self.free_uids.push_back(uid);
                Err(error)
            }
        }
    }

    fn kill(&mut self, id: u64) {
        if let Some(sandbox) = self.sandboxes.get(&id) {
            // It may have ended a moment ago; then there is nothing to kill.
            pidfd_send_signal(&sandbox.pidfd, Signal::KILL).ok();
        }
    }

    /// Takes in what a sandbox reported and, when process 1 has ended, buries it.
    fn hear(&mut self, id: u64, socket: &OwnedFd) -> io::Result<()> {
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return Ok(()) };
        let mut over = false;
        if readable(sandbox.report.as_fd())? {
            match receive::<Report>(&sandbox.report) {
                Ok(Some((Report::SetUp, mut fds))) => {
                    let disk = sandbox.disk.take().or_else(|| fds.pop());
                    let disk: Vec<BorrowedFd<'_>> = disk.iter().map(AsFd::as_fd).collect();
                    return send(socket, &Reply::Started { id, uid: sandbox.uid }, &disk);
                }
                Ok(Some((Report::Failed(error), _))) => sandbox.exit.error = Some(error),
                Ok(Some((Report::Ended { wait_status, bytes_read, bytes_written }, _))) => {
                    sandbox.exit.wait_status = Some(wait_status);
                    sandbox.exit.bytes_read = bytes_read;
                    sandbox.exit.bytes_written = bytes_written;
                }
                // The end of process 1, or something that is no report: either way it is over.
                Ok(None) => over = true,
                Err(_) => {
                    over = true;
                    pidfd_send_signal(&sandbox.pidfd, Signal::KILL).ok();
                }
            }
        }
        if !over && !readable(sandbox.pidfd.as_fd())? {
            return Ok(());
        }
        if !over && readable(sandbox.report.as_fd())? {
            // Something was reported just before the end: it is heard first, in the next round.
            return Ok(());
        }
        self.bury(id, socket)
    }

    fn bury(&mut self, id: u64, socket: &OwnedFd) -> io::Result<()> {
        let Some(sandbox) = self.sandboxes.remove(&id) else { return Ok(()) };
        let Sandbox { uid, pidfd, group, report, disk, mut exit } = sandbox;
        // Waits for the kernel to have killed every process of the namespace; that is what makes "nothing survives" true.
        spawn::reap(&pidfd);
        self.free_uids.push_back(uid);
        let counters = group.counters();
        exit.oom_kills = counters.oom_kills;
        exit.process_limit_hits = counters.process_limit_hits;
        exit.memory_peak_bytes = counters.memory_peak_bytes;
        exit.cpu_us = counters.cpu_us;
        exit.processes_peak = counters.processes_peak;
        if matches!(group.remove(), Ok(false)) {
            self.graveyard.push(group);
        }
        // Whoever hears of the end finds nothing of the sandbox left here.
        drop((pidfd, report, disk));
        send(socket, &Reply::Exited { id, report: exit }, &[])
    }

    /// Kills every sandbox and removes every group.
    fn end_all(&mut self) {
        for id in self.sandboxes.keys().copied().collect::<Vec<_>>() {
            self.kill(id);
        }
        for (_, sandbox) in std::mem::take(&mut self.sandboxes) {
            spawn::reap(&sandbox.pidfd);
            self.graveyard.push(sandbox.group);
        }
        for group in self.graveyard.drain(..) {
            // What stays busy is swept by the next jailer.
            group.remove_soon().ok();
        }
        if let Some(hierarchy) = self.hierarchy.take() {
            hierarchy.remove();
        }
    }
}

fn readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut fds, Some(&now)) {
            Ok(_) => return Ok(!fds[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
