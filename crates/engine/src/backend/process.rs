//! The process level: namespaces, cgroups, seccomp and Landlock on the host's kernel, through the jailer.
//!
//! One task talks to the jailer; everybody else holds channels. When the jailer is gone every sandbox of it is gone too (the kernel
//! saw to that): each is reported lost, and a new jailer is started.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fumehood_jail::Step;
use fumehood_jail::cgroup::Gauges;
use fumehood_jail::jailer::JailerLink;
use fumehood_jail::protocol::{self, JailSpec, Reply, Request};
use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;
use tokio::net::{UnixDatagram, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    Backend, BackendReport, Control, Ended, ExitReport, FailedStep, Guest, KeptSandbox, Sandbox, SandboxSpec,
    StartError, with_causes,
};
use crate::execution::Denial;
use crate::image::Image;
use crate::refusals::Refusals;
use crate::spec::{ExecutionSpec, FieldError, IsolationLevel, Language};
use crate::template::SandboxKind;

mod base;
mod images;
mod kept;
mod kinds;
mod processes;
mod refused;
mod zygote;

pub use images::ImageSource;
pub use zygote::ZygoteConfig;

use base::{Base, cores};
use images::Images;
use kept::{KeptMeter, KeptPrograms};
use kinds::Kinds;
use zygote::Listener;

/// The backend.
pub struct ProcessBackend {
    shared: Arc<Shared>,
    images: Arc<Images>,
    own_uids: bool,
    zygotes: Option<Arc<Kinds>>,
}

/// Starts a jailer; blocks while it does.
pub type Launch = Box<dyn Fn() -> Result<JailerLink, fumehood_jail::jailer::StartError> + Send + Sync>;

#[derive(Default)]
struct Shared {
    /// To the jailer; `None` while there is none.
    requests: Mutex<Option<mpsc::UnboundedSender<Outgoing>>>,
    /// What the present jailer, or the last, gives its sandboxes.
    features: Mutex<BTreeMap<String, String>>,
    waiting: Mutex<Waiting>,
    next_id: AtomicU64,
}

struct Outgoing {
    request: Request,
    fds: Vec<OwnedFd>,
}

#[derive(Default)]
struct Waiting {
    starting: HashMap<u64, oneshot::Sender<Started>>,
    exits: HashMap<u64, oneshot::Sender<ExitReport>>,
    /// Dropped when nothing is left of a sandbox.
    going: HashMap<u64, oneshot::Sender<()>>,
    /// Programs of sandboxes that are kept: who waits for them to come in, and for their end.
    coming: HashMap<u64, (u64, oneshot::Sender<()>)>,
    programs: HashMap<u64, (u64, oneshot::Sender<ExitReport>)>,
    /// Sandboxes that are to stand still: who waits until they do.
    pausing: HashMap<u64, oneshot::Sender<Result<(), StartError>>>,
    /// Who counts the interrupts of a sandbox that is kept.
    interrupts: HashMap<u64, Arc<watch::Sender<Interrupts>>>,
    /// Where it is noted what a sandbox is refused.
    refusals: HashMap<u64, Arc<Refusals>>,
    zygotes: HashMap<u64, Listener>,
}

struct Started {
    disk: OwnedFd,
    uid: u32,
    /// Beside the disk, for one that is kept.
    gauges: Option<Gauges>,
}

impl ProcessBackend {
    /// Takes over a jailer; `launch` starts another one should it ever die. Every sandbox has `extra_env`, and sees the folder `shared_dir` of the host. Must be
    /// called on the runtime.
    ///
    /// # Errors
    /// When its socket cannot be watched.
    pub fn new(
        link: JailerLink,
        launch: Launch,
        image: Image,
        runner: String,
        extra_env: Vec<(String, String)>,
        shared_dir: Option<String>,
    ) -> std::io::Result<Self> {
        let own_uids = link.own_uids;
        let shared = Arc::new(Shared { next_id: AtomicU64::new(1), ..Shared::default() });
        let conversation = shared.begin(link)?;
        // Ends with the runtime; the socket goes with it, and the jailer with the socket.
        tokio::spawn(supervise(Arc::clone(&shared), conversation, launch));
        let images = Arc::new(Images::new(Base::new(image, runner, extra_env, shared_dir, 0)));
        Ok(Self { shared, images, own_uids, zygotes: None })
    }

    /// Has programs forked from a preloaded interpreter where that gives the same as starting one. `ordinary` is an execution as most are.
    /// Must be called on the runtime.
    #[must_use]
    pub fn with_zygote(mut self, config: ZygoteConfig, ordinary: ExecutionSpec) -> Self {
        self.zygotes = Some(Kinds::start(config, ordinary, Arc::clone(&self.shared), Arc::clone(&self.images)));
        self
    }

    /// Has templates name other images, and `source` be asked every few seconds whether one has been built anew. To be called last, on the runtime.
    #[must_use]
    pub fn with_images(self, source: Arc<dyn ImageSource>) -> Self {
        self.images.set_source(source);
        tokio::spawn(Arc::clone(&self.images).renew(self.zygotes.clone()));
        self
    }

    /// What a sandbox of this kind is made from now. While the interpreter of a new version is being loaded it is still the old one.
    fn base(&self, kind: &SandboxKind) -> Result<Arc<Base>, FieldError> {
        let served = self.zygotes.as_ref().and_then(|zygotes| zygotes.of(kind)).and_then(|zygotes| zygotes.base());
        match served {
            Some(base) => Ok(base),
            None => Ok(Arc::clone(&self.images.line(kind.image.as_deref())?.lock())),
        }
    }

    /// The zygote to fork for this execution, if a fork is what starting an interpreter for it would give.
    fn zygote_for(&self, execution: &ExecutionSpec) -> Option<(u64, Arc<Base>)> {
        let zygotes = self.zygotes.as_ref()?.of(&execution.kind)?;
        let same =
            execution.language == Language::Python && cores(execution) <= zygotes.cores() && execution.env_can_wait();
        if same { zygotes.take() } else { None }
    }

    async fn try_start(&self, spec: SandboxSpec<'_>) -> Result<Sandbox, StartError> {
        let Some((zygote, base)) = self.zygote_for(spec.execution) else {
            return self.start_one(&spec, self.base(&spec.execution.kind)?, None).await;
        };
        match self.start_one(&spec, Arc::clone(&base), Some(zygote)).await {
            // It died, or could not fork. Nothing of the caller's has run.
            Err(StartError::Step { step, cause }) if step == Step::ForkZygote.to_string() => {
                tracing::warn!(zygote, cause, "no fork of the preloaded interpreter; the sandbox loads its own");
                self.start_one(&spec, base, None).await
            }
            other => other,
        }
    }

    async fn keep_one(&self, spec: SandboxSpec<'_>) -> Result<KeptSandbox, StartError> {
        let execution = spec.execution;
        let (zygote, base) = match self.zygote_for(execution) {
            Some((zygote, base)) => (Some(zygote), base),
            None => (None, self.base(&execution.kind)?),
        };
        let id = self.shared.next_id();
        // What is executed when nothing can be forked; a fork has its environment from the frames.
        let executed = base.jail_spec(id, spec.name, execution, None)?;
        let jail_spec = JailSpec { keep: true, zygote, ..executed };
        let (started_sender, started) = oneshot::channel();
        let (exit_sender, mut exit) = oneshot::channel();
        let interrupts = Arc::new(watch::Sender::new(Interrupts::default()));
        let refusals = Arc::<Refusals>::default();
        {
            let mut waiting = self.shared.waiting.lock();
            waiting.starting.insert(id, started_sender);
            waiting.exits.insert(id, exit_sender);
            waiting.interrupts.insert(id, Arc::clone(&interrupts));
            waiting.refusals.insert(id, Arc::clone(&refusals));
        }
        let remote = Remote {
            id,
            shared: Arc::clone(&self.shared),
            interrupts,
            refusals,
            interruptible: true,
            disk: OnceLock::new(),
            _base: Arc::clone(&base),
        };
        let request = Request::Spawn(Box::new(jail_spec));
        if !self.shared.ask(Outgoing { request, fds: Vec::new() }) {
            return Err(step("ask the jailer", &"it is being restarted"));
        }
        let Started { disk, uid, gauges } = tokio::select! {
            biased;
            started = started => started.map_err(|_| step("start the sandbox", &"the jailer is gone"))?,
            report = &mut exit => return Err(failed_start(report.unwrap_or_default())),
        };
        remote.hold(&disk);
        let owner = self.own_uids.then_some((uid, uid));
        base.furnish(&disk, owner, execution).map_err(|error| step("furnish the home", &error))?;
        let zygotes = self.zygotes.as_ref().and_then(|zygotes| zygotes.of(&execution.kind));
        let shared = Arc::clone(&self.shared);
        let programs = KeptPrograms { id, shared, zygotes, base, forked: zygote.is_some() };
        Ok(KeptSandbox {
            disk,
            owner,
            control: Arc::new(remote),
            exit,
            isolation: self.report(),
            programs: Box::new(programs),
            meter: Arc::new(KeptMeter(gauges)),
        })
    }

    async fn start_one(
        &self,
        spec: &SandboxSpec<'_>,
        base: Arc<Base>,
        zygote: Option<u64>,
    ) -> Result<Sandbox, StartError> {
        let begun = Instant::now();
        let execution = spec.execution;
        let id = self.shared.next_id();
        let jail_spec = JailSpec { waits: spec.waits, ..base.jail_spec(id, spec.name, execution, zygote)? };
        let channels = Channels::new(jail_spec.control).map_err(|error| step("create the pipes", &error))?;
        let Channels { inside, stdin, stdout, stderr, gate, control } = channels;

        let (started_sender, started) = oneshot::channel();
        let (exit_sender, mut exit) = oneshot::channel();
        let (gone_sender, gone) = oneshot::channel();
        let refusals = Arc::<Refusals>::default();
        {
            let mut waiting = self.shared.waiting.lock();
            waiting.starting.insert(id, started_sender);
            waiting.exits.insert(id, exit_sender);
            waiting.going.insert(id, gone_sender);
            waiting.refusals.insert(id, Arc::clone(&refusals));
        }
        // From here on dropping this future kills the sandbox.
        let interrupts = Arc::default();
        let remote = Remote {
            id,
            shared: Arc::clone(&self.shared),
            interrupts,
            refusals,
            interruptible: zygote.is_some(),
            disk: OnceLock::new(),
            _base: Arc::clone(&base),
        };
        let outgoing = Outgoing { request: Request::Spawn(Box::new(jail_spec)), fds: inside };
        if !self.shared.ask(outgoing) {
            return Err(step("ask the jailer", &"it is being restarted"));
        }

        let Started { disk, uid, .. } = tokio::select! {
            biased;
            started = started => started.map_err(|_| step("start the sandbox", &"the jailer is gone"))?,
            report = &mut exit => return Err(failed_start(report.unwrap_or_default())),
        };
        let how = if zygote.is_some() { "fork" } else { "exec" };
        metrics::histogram!("fumehood_sandbox_start_seconds", "how" => how).record(begun.elapsed());
        remote.hold(&disk);
        let owner = self.own_uids.then_some((uid, uid));
        base.furnish(&disk, owner, execution).map_err(|error| step("furnish the home", &error))?;
        Ok(Sandbox {
            guest: control.map_or(Guest::Program, Guest::Runner),
            stdin,
            stdout,
            stderr,
            gate,
            disk,
            owner,
            control: Box::new(remote),
            exit,
            gone,
            isolation: self.report(),
        })
    }
}

fn step(step: &str, cause: &dyn std::fmt::Display) -> StartError {
    StartError::Step { step: step.to_owned(), cause: cause.to_string() }
}

fn failed_start(report: ExitReport) -> StartError {
    match report.failed_step {
        Some(FailedStep { step, cause, .. }) => StartError::Step { step, cause },
        None if report.oom_kills > 0 => step("build the sandbox", &"the memory limit is too small for it"),
        None => step("start the sandbox", &"it ended before it was ready"),
    }
}

/// Both ends of everything that connects a sandbox with its host.
struct Channels {
    /// For the sandbox: standard input, output, error, gate, control.
    inside: Vec<OwnedFd>,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    gate: OwnedFd,
    control: Option<UnixStream>,
}

impl Channels {
    fn new(control: bool) -> std::io::Result<Self> {
        let make = || pipe_with(PipeFlags::CLOEXEC);
        let ((stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr), (gate, to_gate)) =
            (make()?, make()?, make()?, make()?);
        let mut inside = vec![stdin, stdout, stderr, gate];
        let control = match control {
            true => {
                let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
                inside.push(theirs);
                let ours = std::os::unix::net::UnixStream::from(ours);
                ours.set_nonblocking(true)?;
                Some(UnixStream::from_std(ours)?)
            }
            false => None,
        };
        // Only our ends: non-blocking is a property of the open file, and the sandbox's programs expect blocking ones.
        for fd in [&to_stdin, &from_stdout, &from_stderr] {
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        Ok(Self {
            inside,
            stdin: pipe::Sender::from_owned_fd(to_stdin)?,
            stdout: pipe::Receiver::from_owned_fd(from_stdout)?,
            stderr: pipe::Receiver::from_owned_fd(from_stderr)?,
            gate: to_gate,
            control,
        })
    }
}

/// Process 1 passes an interrupt on within milliseconds, unless it stands still.
const INTERRUPTED_BY: Duration = Duration::from_secs(5);

/// Passes on what is asked of its sandbox; kills it when dropped.
struct Remote {
    id: u64,
    shared: Arc<Shared>,
    interrupts: Arc<watch::Sender<Interrupts>>,
    refusals: Arc<Refusals>,
    /// The jailer knows its program.
    interruptible: bool,
    /// Once it is there: closed after everybody else has closed theirs.
    disk: OnceLock<OwnedFd>,
    /// In use as long as this is.
    _base: Arc<Base>,
}

/// A disk with so many bytes in use is given back elsewhere than where requests are served.
const LARGE_DISK: u64 = 16 << 20;
/// Whoever had the sandbox has closed its disk by then.
const DISK_CLOSED_BY: Duration = Duration::from_millis(100);

/// Closes a disk. With its last descriptor the kernel gives back all its memory, there and then, which takes a second for some gigabytes.
fn close_disk(disk: OwnedFd) {
    let in_use = rustix::fs::fstatvfs(&disk).map_or(0, |disk| (disk.f_blocks - disk.f_bfree) * disk.f_frsize);
    if in_use < LARGE_DISK {
        return;
    }
    // At the end of a process there is no runtime, and nobody is served.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.clone().spawn(async move {
            tokio::time::sleep(DISK_CLOSED_BY).await;
            runtime.spawn_blocking(move || drop(disk));
        });
    }
}

/// Interrupts of one sandbox, counted.
#[derive(Debug, Clone, Copy, Default)]
struct Interrupts {
    asked: u64,
    /// The jailer has sent them.
    sent: u64,
    /// The interpreter was told that they are over.
    settled: u64,
}

impl Remote {
    fn hold(&self, disk: &OwnedFd) {
        // Without a descriptor of its own it is closed where the last user closes it.
        if let Ok(disk) = disk.try_clone() {
            self.disk.set(disk).ok();
        }
    }
}

impl Control for Remote {
    fn kill(&self) {
        // Without a jailer there is no sandbox.
        self.shared.ask(Outgoing { request: Request::Kill { id: self.id }, fds: Vec::new() });
    }

    fn hurry(&self) {
        self.shared.ask(Outgoing { request: Request::Hurry { id: self.id }, fds: Vec::new() });
    }

    fn interrupt(&self) -> bool {
        let asked = self.interruptible
            && self.shared.ask(Outgoing { request: Request::Interrupt { id: self.id }, fds: Vec::new() });
        if asked {
            self.interrupts.send_modify(|interrupts| interrupts.asked += 1);
        }
        asked
    }

    fn settled(&self) -> BoxFuture<'_, bool> {
        async move {
            let Interrupts { asked, settled, .. } = *self.interrupts.borrow();
            if asked == settled {
                return false;
            }
            let mut interrupts = self.interrupts.subscribe();
            // Without a jailer there is nobody left to be struck.
            let sent = interrupts.wait_for(|interrupts| interrupts.sent >= asked);
            tokio::time::timeout(INTERRUPTED_BY, sent).await.ok();
            self.interrupts.send_modify(|interrupts| interrupts.settled = asked);
            true
        }
        .boxed()
    }

    fn refusals(&self) -> Vec<Denial> {
        self.refusals.take()
    }

    fn conclude(&self, code: u8) {
        self.shared.ask(Outgoing { request: Request::Conclude { id: self.id, code }, fds: Vec::new() });
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let ended = {
            let mut waiting = self.shared.waiting.lock();
            waiting.starting.remove(&self.id);
            waiting.forget_programs(self.id);
            waiting.refusals.remove(&self.id);
            // Still there: the jailer has not reported the end.
            waiting.exits.remove(&self.id).is_none()
        };
        if !ended {
            self.kill();
        }
        if let Some(disk) = self.disk.take() {
            close_disk(disk);
        }
    }
}

/// A conversation with one jailer.
struct Conversation {
    socket: UnixDatagram,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
}

/// Talks to jailers, one after the other, for as long as the runtime lives.
async fn supervise(shared: Arc<Shared>, mut conversation: Conversation, launch: Launch) {
    const LONGEST_PAUSE: Duration = Duration::from_secs(10);
    let launch = Arc::new(launch);
    loop {
        conversation.hold(&shared).await;
        tracing::error!("the jailer is gone; its sandboxes are lost and a new one is started");
        metrics::counter!("fumehood_jailer_restarts_total").increment(1);
        shared.lose_everything();
        let mut pause = Duration::from_millis(50);
        conversation = loop {
            let launch = Arc::clone(&launch);
            let started = tokio::task::spawn_blocking(move || launch()).await;
            let why = match started.map(|started| started.map(|link| shared.begin(link))) {
                Ok(Ok(Ok(conversation))) => break conversation,
                Ok(Ok(Err(error))) => error.to_string(),
                Ok(Err(error)) => with_causes(&error),
                Err(error) => error.to_string(),
            };
            tracing::error!(error = why, retry_in = ?pause, "no new jailer could be started");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
    }
}

impl Conversation {
    /// Until the jailer is gone.
    async fn hold(self, shared: &Shared) {
        let Self { socket, mut outgoing } = self;
        let write = async {
            while let Some(Outgoing { request, fds }) = outgoing.recv().await {
                let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                let send = || protocol::send(&socket, &request, &borrowed);
                match socket.async_io(tokio::io::Interest::WRITABLE, send).await {
                    Ok(()) => {}
                    // This one request cannot be told; the conversation goes on. Others of this user's may have too many descriptors under way.
                    Err(error)
                        if error.kind() == std::io::ErrorKind::InvalidInput
                            || error.raw_os_error() == Some(rustix::io::Errno::TOOMANYREFS.raw_os_error()) =>
                    {
                        tracing::error!(%error, "a request could not be sent");
                        shared.give_up(&request);
                    }
                    Err(error) => {
                        tracing::error!(%error, "the jailer does not take requests");
                        return;
                    }
                }
            }
        };
        let read = async {
            loop {
                let receive = || protocol::receive::<Reply>(&socket);
                match socket.async_io(tokio::io::Interest::READABLE, receive).await {
                    Ok(Some((reply, fds))) => shared.take(reply, fds),
                    Ok(None) => return,
                    Err(error) => {
                        tracing::error!(%error, "the jailer's replies cannot be read");
                        return;
                    }
                }
            }
        };
        tokio::select! {
            () = write => {}
            () = read => {}
        }
    }
}

impl Waiting {
    /// Has whoever waits for a program of a sandbox find that there will be none.
    fn forget_programs(&mut self, id: u64) {
        self.coming.remove(&id);
        self.programs.remove(&id);
        self.pausing.remove(&id);
        self.interrupts.remove(&id);
    }
}

impl Shared {
    fn begin(&self, link: JailerLink) -> std::io::Result<Conversation> {
        // A packet socket in a datagram's clothes: the runtime only watches it, messages go through `protocol`.
        let socket = std::os::unix::net::UnixDatagram::from(link.socket);
        socket.set_nonblocking(true)?;
        let socket = UnixDatagram::from_std(socket)?;
        let (requests, outgoing) = mpsc::unbounded_channel();
        *self.features.lock() = link.features.into_iter().collect();
        *self.requests.lock() = Some(requests);
        Ok(Conversation { socket, outgoing })
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn listen_to_zygote(&self, id: u64, listener: Listener) {
        self.waiting.lock().zygotes.insert(id, listener);
    }

    /// Whether there is a jailer to ask.
    fn ask(&self, outgoing: Outgoing) -> bool {
        self.requests.lock().as_ref().is_some_and(|requests| requests.send(outgoing).is_ok())
    }

    /// Has whoever waits for this request to start a sandbox find that nobody will answer.
    fn give_up(&self, request: &Request) {
        if let Request::Spawn(spec) = request {
            let mut waiting = self.waiting.lock();
            waiting.starting.remove(&spec.id);
            waiting.going.remove(&spec.id);
        }
    }

    fn lose_everything(&self) {
        *self.requests.lock() = None;
        let mut waiting = self.waiting.lock();
        waiting.starting.clear();
        waiting.zygotes.clear();
        waiting.going.clear();
        waiting.coming.clear();
        waiting.programs.clear();
        waiting.pausing.clear();
        waiting.interrupts.clear();
        waiting.refusals.clear();
        for (_, exit) in waiting.exits.drain() {
            // Whoever waited may have given up.
            exit.send(ExitReport { lost: true, ..ExitReport::default() }).ok();
        }
    }

    fn take(&self, reply: Reply, mut fds: Vec<OwnedFd>) {
        match reply {
            Reply::Started { id, uid } => {
                let starting = self.waiting.lock().starting.remove(&id);
                // Nobody waits any more: the execution was cancelled meanwhile, and the kill is on its way.
                if let (Some(starting), false) = (starting, fds.is_empty()) {
                    let disk = fds.remove(0);
                    starting.send(Started { disk, uid, gauges: Gauges::new(fds) }).ok();
                }
            }
            Reply::Exited { id, report, going } => {
                let mut waiting = self.waiting.lock();
                waiting.forget_programs(id);
                if !going {
                    waiting.going.remove(&id);
                }
                if let Some(exit) = waiting.exits.remove(&id) {
                    exit.send(translate(report)).ok();
                }
            }
            Reply::Listening { id, .. } => {
                // Nobody asks any more: the descriptor is closed here, and the kernel refuses by itself.
                let refusals = self.waiting.lock().refusals.get(&id).map(Arc::clone);
                if let (Some(refusals), Some(listener)) = (refusals, fds.pop()) {
                    refused::attend(listener, refusals);
                }
            }
            Reply::Begun { id, program } => {
                if let Some(coming) = take_numbered(&mut self.waiting.lock().coming, id, program) {
                    coming.send(()).ok();
                }
            }
            Reply::ProgramEnded { id, program, report } => {
                if let Some(ended) = take_numbered(&mut self.waiting.lock().programs, id, program) {
                    ended.send(translate(report)).ok();
                }
            }
            Reply::Paused { id, error } => {
                if let Some(waiting) = self.waiting.lock().pausing.remove(&id) {
                    let failed = |error: fumehood_jail::JailError| step(&error.step.to_string(), &detail(&error));
                    waiting.send(error.map_or(Ok(()), |error| Err(failed(error)))).ok();
                }
            }
            Reply::Interrupted { id, count } => {
                if let Some(interrupts) = self.waiting.lock().interrupts.get(&id) {
                    interrupts.send_modify(|interrupts| interrupts.sent += count);
                }
            }
            Reply::Gone { id } => drop(self.waiting.lock().going.remove(&id)),
            Reply::ZygoteReady { id } => {
                let mut waiting = self.waiting.lock();
                if let Some(ready) = waiting.zygotes.get_mut(&id).and_then(|listener| listener.ready.take()) {
                    ready.send(()).ok();
                }
            }
            Reply::ZygoteGone { id, error } => {
                let listener = self.waiting.lock().zygotes.remove(&id);
                if let Some(listener) = listener {
                    let why = error.map_or_else(|| "it ended".to_owned(), |error| error.to_string());
                    // Nobody listens to one that was replaced.
                    listener.gone.send(why).ok();
                }
            }
            Reply::Ready { .. } | Reply::Unusable(_) => tracing::error!("the jailer answered what nobody asked"),
        }
    }
}

/// Who waits for news of this program of a sandbox.
fn take_numbered<T>(waiting: &mut HashMap<u64, (u64, T)>, id: u64, program: u64) -> Option<T> {
    if waiting.get(&id).is_none_or(|(number, _)| *number != program) {
        return None;
    }
    waiting.remove(&id).map(|(_, waiter)| waiter)
}

fn translate(report: protocol::ExitReport) -> ExitReport {
    let ended = report.wait_status.map(|status| match status & 0x7f {
        0 => Ended::Exited(status >> 8 & 0xff),
        signal => Ended::Signaled(signal),
    });
    ExitReport {
        ended,
        failed_step: report.error.map(|error| FailedStep {
            caller: matches!(error.step, Step::Exec | Step::EnterDirectory),
            step: error.step.to_string(),
            cause: detail(&error),
        }),
        oom_kills: report.oom_kills,
        process_limit_hits: report.process_limit_hits,
        memory_peak_bytes: report.memory_peak_bytes,
        cpu_us: report.cpu_us,
        processes_peak: report.processes_peak,
        bytes_read: report.bytes_read,
        bytes_written: report.bytes_written,
        lost: false,
    }
}

fn detail(error: &fumehood_jail::JailError) -> String {
    if error.subject.is_empty() { error.cause.clone() } else { format!("{}: {}", error.subject, error.cause) }
}

impl Backend for ProcessBackend {
    fn report(&self) -> BackendReport {
        BackendReport { level: IsolationLevel::Process, features: self.shared.features.lock().clone() }
    }

    fn unavailable(&self) -> Option<String> {
        self.shared.requests.lock().is_none().then(|| "the process that makes sandboxes is being restarted".to_owned())
    }

    fn warmed_up(&self) -> BoxFuture<'_, ()> {
        match &self.zygotes {
            Some(zygotes) => zygotes.own().tried().boxed(),
            None => std::future::ready(()).boxed(),
        }
    }

    fn start<'a>(&'a self, spec: SandboxSpec<'a>) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        self.try_start(spec).boxed()
    }

    fn generation(&self, kind: &SandboxKind) -> u64 {
        self.base(kind).map_or(u64::MAX, |base| base.number)
    }

    fn packages(&self, image: Option<&str>) -> Result<BTreeMap<String, String>, FieldError> {
        self.images.packages(image)
    }

    fn keep<'a>(&'a self, spec: SandboxSpec<'a>) -> BoxFuture<'a, Result<KeptSandbox, StartError>> {
        self.keep_one(spec).boxed()
    }

    fn accepts(&self, execution: &ExecutionSpec) -> Result<(), FieldError> {
        self.base(&execution.kind)?.accepts(execution)
    }
}
