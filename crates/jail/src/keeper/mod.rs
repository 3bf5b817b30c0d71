//! The inner process of the jailer: process 1 of a pid namespace, which makes zygotes and sandboxes and sees their end.
//!
//! States of a sandbox here:
//!
//! ```text
//! Building --SetUp--> Running ---------------------Ended/killed--> process 1 reaped --> counters read, Exited sent, group removed
//!        \  \--SetUp--> Forking --Forked--> Running --program reaped or concluded: process 1 killed--^
//!         \--Failed/killed------------------------------------------------------------^
//! ```
//!
//! A sandbox that is kept goes from `SetUp` and from the end of a program to `Idle`, and from there, when the server asks for the next program, by way
//! of `Swept` (nothing of an earlier one runs) to `Running` again. Only a kill ends it.
//!
//! The program of a sandbox is a child of its process 1 when it was executed, and of this process when it was forked from a zygote.

mod kept;
mod zygotes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Signal, pidfd_send_signal};

use crate::cgroup::{Group, Hierarchy, Weight};
use crate::error::{At, JailError, Step};
use crate::identity::IdRange;
use crate::image::{Images, namespace_of};
use crate::init::await_byte;
use crate::landlock;
use crate::layer::{Layer, Without};
use crate::mounts;
use crate::probe;
use crate::protocol::{ExitReport, JailLimits, JailSpec, Reply, Report, Request, receive, send};
use crate::seccomp::{self, Filters};
use crate::spawn::{self, Forking, Means, Owner, Spawned, wait_status};
use crate::sys;

/// Requests that a zygote has at a time; the others wait here. More than one, so that it never waits for the next.
const FORKS_AHEAD: usize = 2;

/// So long after memory ran out the kernel has ended a process, if it is going to.
const STARVED_FOR: Duration = Duration::from_secs(1);

/// What the jailer has on its host.
pub(crate) struct Place {
    pub(crate) hierarchy: Hierarchy,
    /// Run by root: each sandbox has a uid of its own.
    pub(crate) privileged: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Host uids not in use; empty means that no more sandboxes fit.
    pub(crate) free_uids: VecDeque<u32>,
    /// Held so that no other jailer uses the same uids.
    pub(crate) _ids: Option<IdRange>,
    /// Layers left out.
    pub(crate) without: Without,
}

/// Body of the inner process; returns when the server is gone.
pub(crate) fn run(socket: &OwnedFd, place: Place, go: &OwnedFd) -> io::Result<()> {
    match State::prepare(place, go) {
        Ok(mut state) => {
            send(socket, &state.ready(), &[])?;
            let ended = state.serve(socket, go);
            state.end_all();
            // Nobody is left to be told; a server that has gone without reading all there was resets the connection.
            let gone =
                |error: &io::Error| matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
            ended.or_else(|error| if gone(&error) { Ok(()) } else { Err(error) })
        }
        Err(error) => send(socket, &Reply::Unusable(error), &[]),
    }
}

struct State {
    place: Place,
    images: Images,
    filters: Filters,
    zygote_filters: Filters,
    sandboxes: BTreeMap<u64, Sandbox>,
    zygotes: BTreeMap<u64, Zygote>,
    /// Of every zygote of a kind, one after the other: it owns the user namespaces of the sandboxes forked from it, and the next one is to be able to
    /// enter those that are kept.
    zygote_uids: BTreeMap<u32, u32>,
    /// Groups the kernel was not done with yet.
    graveyard: Vec<Group>,
    /// Sandboxes whose program did not come, until they are buried: a zygote that died may have forked it without telling, and process 1 cannot
    /// end before it is reaped.
    forkless: BTreeSet<u64>,
    /// Sandboxes that are being stopped, until they stand still.
    freezing: BTreeSet<u64>,
    /// Sandboxes whose memory has run out, until the kernel has counted whom it ended, or has found enough after all.
    starved: BTreeMap<u64, Instant>,
    /// Hosts hear of refused calls.
    refusals_told: bool,
    /// Everything that is waited for, named by [`Source`].
    watch: OwnedFd,
}

struct Sandbox {
    limits: JailLimits,
    uid: u32,
    pid: i32,
    init: OwnedFd,
    /// The server asked for its end.
    killed: bool,
    /// Nobody needs it yet.
    waits: bool,
    /// The server knows of its end.
    told: bool,
    /// `None` once it is closed at the other end.
    report: Option<OwnedFd>,
    group: Group,
    program: Program,
    /// What is needed to put a fork into it, where programs are forked.
    forking: Option<Forking>,
    /// Programs follow each other.
    keep: bool,
    /// It stands still, or is about to.
    paused: bool,
    /// Number of its present program, or the last.
    number: u64,
    /// The program that begins once everything else has ended.
    next: Option<Next>,
    /// Asked of process 1, which interrupts a program that was executed.
    interrupts: Interrupts,
    /// Where the present program of a sandbox that is kept reports; `None` once it is closed at the other end.
    program_report: Option<OwnedFd>,
    /// Counters of bytes of a program that was forked.
    io: Option<fs::File>,
    disk: Option<OwnedFd>,
    exit: ExitReport,
}

/// The program as far as this process has to do with it.
enum Program {
    /// A child of process 1.
    OfProcess1,
    /// To be forked from this zygote once the sandbox is built, with these channels.
    ToFork(u64, Vec<OwnedFd>),
    /// Executed in a sandbox that is kept, whose process 1 tells of its end.
    Executed,
    /// The zygote was asked to fork into the pid namespace with this inode.
    Asked(u64),
    /// A child of this process.
    Forked(OwnedFd, i32),
    /// Forked and reaped, or never to come.
    Over,
}

/// A program of a sandbox that is kept.
struct Next {
    number: u64,
    zygote: Option<u64>,
    /// Standard input, output, error and control.
    channels: Vec<OwnedFd>,
}

/// Interrupts that the server waits for.
#[derive(Default)]
struct Interrupts {
    /// Those that the order under way answers; none is under way at 0.
    under_way: u64,
    /// Those asked for since that was given.
    asked_since: u64,
}

struct Zygote {
    uid: u32,
    process: OwnedFd,
    socket: OwnedFd,
    group: Group,
    ready: bool,
    /// Sandboxes that wait to be asked for.
    waiting: VecDeque<u64>,
    /// Sandboxes it was asked for.
    asked: VecDeque<u64>,
    error: Option<JailError>,
}

impl Sandbox {
    /// Takes note of what a forked program read and wrote so far.
    fn count_bytes(&mut self) {
        let io = self.io.take().and_then(|file| io::read_to_string(file).ok()).unwrap_or_default();
        let counter =
            |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok());
        self.exit.bytes_read = counter("rchar");
        self.exit.bytes_written = counter("wchar");
    }

    /// Tells the server of the end before everything is taken down.
    fn tell_exited(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        self.told = true;
        send(server, &Reply::Exited { id, report: self.final_report(), going: true }, &[])
    }

    /// What was seen of it, counters included.
    fn final_report(&mut self) -> ExitReport {
        let counters = self.group.counters();
        ExitReport {
            oom_kills: counters.oom_kills,
            process_limit_hits: counters.process_limit_hits,
            memory_peak_bytes: counters.memory_peak_bytes,
            cpu_us: counters.cpu_us,
            processes_peak: counters.processes_peak,
            ..std::mem::take(&mut self.exit)
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Server,
    Outer,
    Report(u64),
    Init(u64),
    Program(u64),
    ProgramReport(u64),
    Zygote(u64),
    Memory(u64),
}

impl Source {
    fn to_data(self) -> epoll::EventData {
        let (kind, id) = match self {
            Self::Server => (0, 0),
            Self::Report(id) => (1, id),
            Self::Init(id) => (2, id),
            Self::Program(id) => (3, id),
            Self::Zygote(id) => (4, id),
            Self::ProgramReport(id) => (5, id),
            Self::Outer => (6, 0),
            Self::Memory(id) => (7, id),
        };
        epoll::EventData::new_u64(id << 3 | kind)
    }

    fn from_data(data: epoll::EventData) -> Self {
        let (kind, id) = (data.u64() & 7, data.u64() >> 3);
        match kind {
            0 => Self::Server,
            1 => Self::Report(id),
            2 => Self::Init(id),
            3 => Self::Program(id),
            5 => Self::ProgramReport(id),
            6 => Self::Outer,
            7 => Self::Memory(id),
            _ => Self::Zygote(id),
        }
    }
}

impl State {
    fn prepare(place: Place, go: &OwnedFd) -> Result<Self, JailError> {
        await_byte(go, Step::AwaitParent)?;
        sys::die_with_parent().at(Step::FollowParent, "jailer")?;
        mounts::make_private()?;
        mounts::mount_own_proc()?;
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).at(Step::CreateChannel, "epoll")?;
        let mut state = Self {
            images: Images::new(place.without.clone())?,
            filters: seccomp::compile()?,
            zygote_filters: seccomp::compile_for_zygote()?,
            place,
            sandboxes: BTreeMap::new(),
            zygotes: BTreeMap::new(),
            zygote_uids: BTreeMap::new(),
            graveyard: Vec::new(),
            forkless: BTreeSet::new(),
            freezing: BTreeSet::new(),
            starved: BTreeMap::new(),
            refusals_told: false,
            watch,
        };
        if state.place.without.keeps(Layer::Keyring) {
            // For sandboxes that get none of their own.
            sys::join_new_session_keyring().at(Step::Keyring, "jailer")?;
        }
        let owner = state.owner(state.place.free_uids.front().copied().unwrap_or(state.place.uid), None);
        state.refusals_told = probe::run(&mut state.means(), owner)?.refusals_told;
        Ok(state)
    }

    /// Who a sandbox with this host uid is. Run by root each has a group of its own too.
    fn owner(&self, uid: u32, namespace: Option<u32>) -> Owner {
        let Place { privileged, gid, .. } = self.place;
        // What the kernel counts for the owner of a user namespace (inotify instances, for example) is the sandbox's own, unless a zygote has to be it.
        let namespace = privileged.then(|| namespace.unwrap_or(uid));
        Owner { uid, gid: if privileged { uid } else { gid }, privileged, namespace }
    }

    fn means(&mut self) -> Means<'_> {
        let Place { hierarchy, without, .. } = &self.place;
        Means { hierarchy, images: &mut self.images, filters: &self.filters, without }
    }

    fn ready(&self) -> Reply {
        let uid = if self.place.privileged {
            "own uid per sandbox"
        } else {
            "shared: the server's own uid (not run by root)"
        };
        let told = if self.refusals_told { "told" } else { "not told: another filter of this process listens already" };
        let keyring = if self.place.privileged { "own" } else { "shared: an empty one (not run by root)" };
        let features = [
            ("namespaces", "user, mount, pid, ipc, uts, net, cgroup"),
            ("capabilities", "none"),
            ("no_new_privs", "on"),
            ("seccomp", "on"),
            ("refused_calls", told),
            ("landlock", landlock::state()),
            ("cgroup", self.place.hierarchy.version()),
            ("rlimits", "on"),
            ("swap", self.place.hierarchy.swap()),
            ("host_uid", uid),
            ("keyring", keyring),
            ("network", "none"),
            ("root", "read-only"),
            ("proc", "own, covered"),
            ("pause", self.place.hierarchy.freezer().unwrap_or_else(|why| why)),
        ];
        let left_out = |feature: &str| self.place.without.iter().any(|layer| feature_of(layer) == feature);
        let state = |feature: &str, state: &str| {
            if left_out(feature) { "OFF, for a test".to_owned() } else { state.to_owned() }
        };
        let features = features.into_iter().map(|(name, now)| (name.to_owned(), state(name, now))).collect();
        Reply::Ready { features, own_uids: self.place.privileged }
    }

    /// Serves until the server is gone, or the outer process, which holds the other end of `outer`.
    fn serve(&mut self, server: &OwnedFd, outer: &OwnedFd) -> io::Result<()> {
        self.watch(server.as_fd(), Source::Server)?;
        self.watch(outer.as_fd(), Source::Outer)?;
        let mut events = Vec::with_capacity(64);
        loop {
            // Groups that were busy are tried again soon, strays looked for, and what is to stand still or has no memory; otherwise there is nothing to do
            // but wait.
            let again = Timespec { tv_sec: 0, tv_nsec: Duration::from_millis(5).subsec_nanos().into() };
            events.clear();
            match epoll::wait(
                &self.watch,
                rustix::buffer::spare_capacity(&mut events),
                self.has_to_look_again().then_some(&again),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match Source::from_data(event.data) {
                    Source::Server => match receive::<Request>(server)? {
                        None => return Ok(()),
                        Some((request, fds)) => self.take(request, fds, server)?,
                    },
                    Source::Outer => return Ok(()),
                    Source::Report(id) => self.hear(id, server)?,
                    Source::ProgramReport(id) => self.hear_program(id, server)?,
                    Source::Program(id) => self.program_ended(id, server)?,
                    Source::Init(id) => self.bury(id, server)?,
                    Source::Zygote(id) => self.hear_zygote(id, server)?,
                    Source::Memory(id) => self.starves(id),
                }
            }
            if events.is_empty() && !self.forkless.is_empty() {
                self.reap_orphans();
            }
            self.graveyard.retain(|group| matches!(group.remove(), Ok(false)));
            self.tell_frozen(server)?;
            self.end_starved();
        }
    }

    fn has_to_look_again(&self) -> bool {
        !(self.graveyard.is_empty() && self.forkless.is_empty() && self.freezing.is_empty() && self.starved.is_empty())
    }

    /// Memory has run out there.
    fn starves(&mut self, id: u64) {
        let Some(alarm) = self.sandboxes.get(&id).and_then(|sandbox| sandbox.group.alarm()) else { return };
        // How often does not matter.
        rustix::io::read(alarm, &mut [0; 8]).ok();
        self.starved.insert(id, Instant::now());
    }

    /// Half a sandbox is no sandbox: when the kernel has ended a process for memory all of it ends.
    fn end_starved(&mut self) {
        let ended = |id: &u64| self.sandboxes.get(id).is_some_and(|sandbox| sandbox.group.counters().oom_kills > 0);
        let to_end: Vec<u64> = self.starved.keys().copied().filter(ended).collect();
        self.starved.retain(|id, since| !to_end.contains(id) && since.elapsed() < STARVED_FOR);
        for id in to_end {
            self.kill(id);
        }
    }

    fn watch(&self, fd: BorrowedFd<'_>, source: Source) -> io::Result<()> {
        Ok(epoll::add(&self.watch, fd, source.to_data(), epoll::EventFlags::IN)?)
    }

    /// Before a descriptor that children may share is closed: epoll watches the open file, not the number.
    fn unwatch(&self, fd: &OwnedFd) {
        epoll::delete(&self.watch, fd).ok();
    }

    fn take(&mut self, request: Request, fds: Vec<OwnedFd>, server: &OwnedFd) -> io::Result<()> {
        match request {
            Request::Spawn(spec) => {
                if let Err(error) = self.spawn(&spec, fds) {
                    let report = ExitReport { error: Some(error), ..ExitReport::default() };
                    send(server, &Reply::Exited { id: spec.id, report, going: false }, &[])?;
                }
            }
            Request::Begin { id, program, zygote } => self.begin(id, program, zygote, fds)?,
            Request::Interrupt { id } => self.interrupt(id, server)?,
            Request::Pause { id } => self.pause(id, server)?,
            Request::Resume { id } => self.resume(id),
            Request::Conclude { id, code } => self.conclude(id, code, server)?,
            Request::Hurry { id } => {
                if let Some(sandbox) = self.sandboxes.get_mut(&id) {
                    sandbox.waits = false;
                    sandbox.group.set_weight(Weight::Full);
                }
            }
            Request::Kill { id } => {
                if let Some(sandbox) = self.sandboxes.get_mut(&id) {
                    sandbox.killed = true;
                }
                self.kill(id);
            }
            Request::StartZygote(spec) => {
                if let Err(error) = self.start_zygote(&spec, fds) {
                    send(server, &Reply::ZygoteGone { id: spec.id, error: Some(error) }, &[])?;
                }
            }
            Request::EndZygote { id } => {
                if let Some(zygote) = self.zygotes.get(&id) {
                    pidfd_send_signal(&zygote.process, Signal::KILL).ok();
                }
            }
            Request::Configure(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "configured twice")),
        }
        Ok(())
    }

    fn take_uid(&mut self) -> Result<u32, JailError> {
        if !self.place.without.keeps(Layer::OwnUid)
            && let Some(shared) = self.place.free_uids.front()
        {
            return Ok(*shared);
        }
        self.place.free_uids.pop_front().ok_or_else(|| {
            JailError::new(Step::MapIds, "", "all uids of the range are in use; raise process.uid_count")
        })
    }

    fn give_back(&mut self, uid: u32) {
        if self.place.without.keeps(Layer::OwnUid) {
            self.place.free_uids.push_back(uid);
        }
    }

    fn spawn(&mut self, spec: &JailSpec, fds: Vec<OwnedFd>) -> Result<(), JailError> {
        let wanted = match (spec.keep, spec.control) {
            (true, _) => 0,
            (false, true) => 5,
            (false, false) => 4,
        };
        if fds.len() != wanted || (spec.argv.is_empty() && (spec.keep || spec.zygote.is_none())) {
            return Err(JailError::new(Step::CreateChannel, "", "the request is incomplete"));
        }
        check_name(&spec.name)?;
        let namespace = match spec.zygote {
            None => None,
            Some(id) if !spec.control => {
                return Err(JailError::new(Step::ForkZygote, id.to_string(), "needs a control socket"));
            }
            Some(id) => Some(self.zygotes.get(&id).filter(|zygote| zygote.ready).ok_or_else(|| no_zygote(id))?.uid),
        };
        let uid = self.take_uid()?;
        let owner = self.owner(uid, namespace);
        let Spawned { pid, pidfd, group, report, forking, channels } =
            match spawn::spawn(spec, fds, &mut self.means(), owner) {
                Ok(spawned) => spawned,
                Err(error) => {
                    self.give_back(uid);
                    return Err(error);
                }
            };
        let program = match spec.zygote {
            _ if spec.keep => Program::Over,
            Some(zygote) => Program::ToFork(zygote, channels),
            None => Program::OfProcess1,
        };
        let spared = if spec.keep { group.spare_others() } else { Ok(()) };
        let watched = self
            .watch(report.as_fd(), Source::Report(spec.id))
            .and_then(|()| self.watch(pidfd.as_fd(), Source::Init(spec.id)))
            .and_then(|()| group.alarm().map_or(Ok(()), |alarm| self.watch(alarm.as_fd(), Source::Memory(spec.id))));
        self.sandboxes.insert(
            spec.id,
            Sandbox {
                limits: spec.limits,
                uid,
                pid,
                init: pidfd,
                killed: false,
                waits: spec.waits,
                told: false,
                report: Some(report),
                group,
                program,
                forking,
                keep: spec.keep,
                paused: false,
                number: 0,
                next: None,
                interrupts: Interrupts::default(),
                program_report: None,
                io: None,
                disk: None,
                exit: ExitReport::default(),
            },
        );
        watched.at(Step::CreateChannel, "watch the sandbox")?;
        spared
    }

    fn kill(&mut self, id: u64) {
        if let Some(sandbox) = self.sandboxes.get(&id) {
            // It may have ended a moment ago; then there is nothing to kill.
            pidfd_send_signal(&sandbox.init, Signal::KILL).ok();
            sandbox.group.unthrottle();
            // What stands still cannot even end.
            self.resume(id);
        }
    }

    /// Takes in what a sandbox reported.
    fn hear(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return Ok(()) };
        let Some(report) = &sandbox.report else { return Ok(()) };
        if !readable(report.as_fd())? {
            // Taken in with an event before this one. Waiting here would be waiting for a sandbox.
            return Ok(());
        }
        match receive::<Report>(report) {
            Ok(Some((Report::SetUp, mut fds))) => {
                sandbox.disk = fds.pop();
                if let Program::ToFork(zygote, _) = sandbox.program {
                    self.queue_fork(zygote, id, server)?;
                    return Ok(());
                }
                self.tell_started(id, server)
            }
            Ok(Some((Report::Confined { listener, io }, fds))) => self.confined(id, (listener, io), fds, server),
            Ok(Some((Report::Failed(error), _))) => {
                sandbox.exit.error = Some(error);
                Ok(())
            }
            // Not before: what comes after the reply must not be struck.
            Ok(Some((Report::Interrupted, _))) => self.interrupted(id, server),
            Ok(Some((Report::Swept, _))) => self.begin_next(id, server),
            Ok(Some((Report::Ended { wait_status, .. }, _))) if sandbox.keep => {
                self.hear_program(id, server)?;
                self.program_over(id, Some(wait_status), server)
            }
            Ok(Some((Report::Ended { wait_status, bytes_read, bytes_written }, _))) => {
                let exit = std::mem::take(&mut sandbox.exit);
                sandbox.exit = ExitReport { wait_status: Some(wait_status), bytes_read, bytes_written, ..exit };
                // Of what it leaves nothing is to go on, and process 1 waits for that.
                sandbox.group.unthrottle();
                Ok(())
            }
            Ok(None) => {
                self.forget_report(id);
                Ok(())
            }
            Err(_) => {
                self.forget_report(id);
                self.kill(id);
                Ok(())
            }
        }
    }

    /// A program is confined; the server is to hear of what it is refused.
    fn confined(
        &mut self,
        id: u64,
        (listener, io): (bool, bool),
        fds: Vec<OwnedFd>,
        server: &OwnedFd,
    ) -> io::Result<()> {
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return Ok(()) };
        let mut fds = fds.into_iter();
        let listener = if listener { fds.next() } else { None };
        sandbox.io = if io { fds.next().map(fs::File::from) } else { None };
        let program = sandbox.number;
        // Closed here afterwards: with the server gone nobody holds a call.
        listener.map_or(Ok(()), |listener| send(server, &Reply::Listening { id, program }, &[listener.as_fd()]))
    }

    fn forget_report(&mut self, id: u64) {
        if let Some(report) = self.sandboxes.get_mut(&id).and_then(|sandbox| sandbox.report.take()) {
            self.unwatch(&report);
        }
    }

    fn tell_started(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return Ok(()) };
        if sandbox.waits {
            // Not before: a zygote waits while it is forked, and would wait longer.
            sandbox.group.set_weight(Weight::Least);
        }
        let disk = sandbox.disk.take();
        // Counters that cannot be opened are missed by whoever reads them, which is told there.
        let gauges = if sandbox.keep { sandbox.group.gauges().unwrap_or_default() } else { Vec::new() };
        let beside: Vec<BorrowedFd<'_>> = disk.iter().chain(&gauges).map(AsFd::as_fd).collect();
        send(server, &Reply::Started { id, uid: sandbox.uid }, &beside)
    }

    /// Ends a program that has said its last word. Giving back the memory of a large program takes longer than most programs run, and is no part
    /// of the answer.
    fn conclude(&mut self, id: u64, code: u8, server: &OwnedFd) -> io::Result<()> {
        self.hear_all(id, server)?;
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return Ok(()) };
        // Of several processes none is to go on after the answer, so their end is waited for.
        let alone = sandbox.report.is_none() && sandbox.group.processes() == Some(2);
        let Program::Forked(program, _) = &sandbox.program else { return Ok(()) };
        if !alone || sandbox.killed || sandbox.told {
            return Ok(());
        }
        for process in [program, &sandbox.init] {
            // It may have ended by itself a moment ago.
            pidfd_send_signal(process, Signal::KILL).ok();
        }
        sandbox.count_bytes();
        sandbox.exit.wait_status = Some(i32::from(code) << 8);
        sandbox.tell_exited(id, server)?;
        sandbox.group.unthrottle();
        Ok(())
    }

    /// Reaps a program that was forked from a zygote, and ends its sandbox.
    fn program_ended(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        self.hear_all(id, server)?;
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return Ok(()) };
        let Program::Forked(program, _) = &sandbox.program else { return Ok(()) };
        if !readable(program.as_fd())? {
            // The event was about the one before.
            return Ok(());
        }
        let Program::Forked(program, _) = std::mem::replace(&mut sandbox.program, Program::Over) else { return Ok(()) };
        if !sandbox.told {
            // While it is there, though dead: what it read and wrote, its children included that it waited for.
            sandbox.count_bytes();
        }
        epoll::delete(&self.watch, &program).ok();
        let status = wait_status(&program);
        if sandbox.keep {
            let status = status.filter(|_| !sandbox.killed);
            self.hear_program(id, server)?;
            return self.program_over(id, status, server);
        }
        pidfd_send_signal(&sandbox.init, Signal::KILL).ok();
        if sandbox.told {
            return Ok(());
        }
        sandbox.group.unthrottle();
        // Killed as a whole it has no end of its own to tell of.
        sandbox.exit.wait_status = status.filter(|_| !sandbox.killed);
        // Nothing of the caller's is left but what it has said; taking down namespaces and mounts is no part of the answer.
        if sandbox.report.is_none() && sandbox.group.processes() == Some(1) {
            sandbox.tell_exited(id, server)?;
        }
        Ok(())
    }

    /// Takes in what was reported just before an end.
    fn hear_all(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        while let Some(report) = self.sandboxes.get(&id).and_then(|sandbox| sandbox.report.as_ref()) {
            if !readable(report.as_fd())? {
                break;
            }
            self.hear(id, server)?;
        }
        Ok(())
    }

    /// Process 1 has ended, and with it every process of the sandbox.
    fn bury(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        self.hear_all(id, server)?;
        let Some(mut sandbox) = self.sandboxes.remove(&id) else { return Ok(()) };
        self.forkless.remove(&id);
        self.freezing.remove(&id);
        self.starved.remove(&id);
        let last_word = match sandbox.told {
            true => Reply::Gone { id },
            false => Reply::Exited { id, report: sandbox.final_report(), going: false },
        };
        let Sandbox { uid, init, report, group, program, program_report, .. } = sandbox;
        wait_status(&init);
        self.unwatch(&init);
        report.iter().chain(&program_report).chain(group.alarm()).for_each(|fd| self.unwatch(fd));
        match program {
            // Killed together with process 1, which is the end of the sandbox as a whole.
            Program::Forked(program, _) => {
                self.unwatch(&program);
                wait_status(&program);
            }
            Program::ToFork(zygote, _) => {
                if let Some(zygote) = self.zygotes.get_mut(&zygote) {
                    zygote.waiting.retain(|waiting| *waiting != id);
                }
            }
            Program::Asked(_) | Program::OfProcess1 | Program::Executed | Program::Over => {}
        }
        self.give_back(uid);
        self.remove(group);
        // Whoever hears of the end finds nothing of the sandbox left here.
        drop((init, report));
        send(server, &last_word, &[])
    }

    /// Removes a group, or notes that it has to be tried again.
    fn remove(&mut self, group: Group) {
        if matches!(group.remove(), Ok(false)) {
            self.graveyard.push(group);
        }
    }

    /// Kills everything. The outer process removes the groups.
    fn end_all(&mut self) {
        for id in self.sandboxes.keys().copied().collect::<Vec<_>>() {
            self.kill(id);
        }
        for zygote in self.zygotes.values() {
            pidfd_send_signal(&zygote.process, Signal::KILL).ok();
        }
    }
}

/// Where a layer stands in reports.
fn feature_of(layer: Layer) -> &'static str {
    match layer {
        Layer::PidNamespace | Layer::IpcNamespace => "namespaces",
        Layer::NetworkNamespace => "network",
        Layer::OwnUid => "host_uid",
        Layer::Capabilities => "capabilities",
        Layer::NoNewPrivileges => "no_new_privs",
        Layer::Seccomp => "seccomp",
        Layer::Landlock => "landlock",
        Layer::Cgroup => "cgroup",
        Layer::Rlimits => "rlimits",
        Layer::CoveredProc => "proc",
        Layer::ReadOnly => "root",
        Layer::Keyring => "keyring",
    }
}

/// Whether a process is in the pid namespace with this inode. (`/proc` here shows processes of this namespace and those below.)
fn in_pid_namespace(pid: i32, inode: u64) -> bool {
    namespace_of(pid, "pid").is_ok_and(|namespace| spawn::inode(&namespace).is_ok_and(|found| found == inode))
}

fn no_zygote(id: u64) -> JailError {
    JailError::new(Step::ForkZygote, id.to_string(), "it is gone")
}

fn check_name(name: &str) -> Result<(), JailError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(JailError::new(Step::PrepareCgroup, name, "is no name for a cgroup"));
    }
    Ok(())
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
