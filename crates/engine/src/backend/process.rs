//! The process level: namespaces, cgroups, seccomp and Landlock on the host's kernel, through the jailer.
//!
//! One task talks to the jailer; everybody else holds channels. When the jailer is gone every sandbox of it is gone too (the kernel
//! saw to that): each is reported lost, and a new jailer is started.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fumehood_jail::Step;
use fumehood_jail::jailer::JailerLink;
use fumehood_jail::protocol::{self, JailLimits, JailSpec, Reply, Request, RootEntry, ZygoteSpec};
use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;
use tokio::net::{UnixDatagram, UnixStream};
use tokio::sync::{mpsc, oneshot};

use super::{Backend, BackendReport, Ended, ExitReport, FailedStep, Guest, Kill, Sandbox, SandboxSpec, StartError};
use crate::files;
use crate::image::Image;
use crate::runner::LIBRARY_NAME;
use crate::spec::{ExecutionSpec, FieldError, IsolationLevel, Language, Limits};

/// Where the runner appears inside.
const RUNNER_DIR: &str = "/opt/fumehood/runner";

/// The home inside, and matplotlib's folder in it.
const HOME: &str = "/home/sandbox";
const MATPLOTLIB: &str = ".config/matplotlib";

/// Runs before JavaScript code: `require` as in older code, and blocking output, since `process.exit()` otherwise loses what does not
/// fit into the pipe at once.
const NODE_PRELOAD: &str = "import { createRequire } from 'node:module';
globalThis.require = createRequire(process.cwd() + '/');
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);";

/// Variables that libraries take their number of threads from. One per core allowed: more would only fight over the quota, and each takes memory.
const THREADS: [&str; 6] = [
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
];

/// Longest single argument that the kernel takes; longer scripts travel as a file.
const LONGEST_ARGUMENT: usize = 120 << 10;

mod zygote;

pub use zygote::ZygoteConfig;

use zygote::{Listener, Zygotes};

/// The backend.
pub struct ProcessBackend {
    shared: Arc<Shared>,
    image: Image,
    /// What the root of every sandbox consists of: the image and the runner.
    root: Vec<RootEntry>,
    /// Environment added to every sandbox, by the operator.
    extra_env: Vec<(String, String)>,
    features: BTreeMap<String, String>,
    own_uids: bool,
    zygotes: Option<Arc<Zygotes>>,
}

/// Starts a jailer; blocks while it does.
pub type Launch = Box<dyn Fn() -> Result<JailerLink, fumehood_jail::jailer::StartError> + Send + Sync>;

struct Shared {
    /// To the jailer; `None` while there is none.
    requests: Mutex<Option<mpsc::UnboundedSender<Outgoing>>>,
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
    zygotes: HashMap<u64, Listener>,
}

struct Started {
    disk: OwnedFd,
    uid: u32,
}

impl ProcessBackend {
    /// Takes over a jailer; `launch` starts another one should it ever die. Must be called on the runtime.
    ///
    /// # Errors
    /// When its socket cannot be watched.
    pub fn new(
        link: JailerLink,
        launch: Launch,
        image: Image,
        runner: String,
        extra_env: Vec<(String, String)>,
    ) -> std::io::Result<Self> {
        let features = link.features.iter().cloned().collect();
        let own_uids = link.own_uids;
        let shared =
            Arc::new(Shared { requests: Mutex::new(None), waiting: Mutex::default(), next_id: AtomicU64::new(1) });
        let conversation = shared.begin(link)?;
        // Ends with the runtime; the socket goes with it, and the jailer with the socket.
        tokio::spawn(supervise(Arc::clone(&shared), conversation, launch));
        let mut root = image.entries.clone();
        root.push(RootEntry::Bind { source: runner, target: RUNNER_DIR.to_owned() });
        Ok(Self { shared, image, root, extra_env, features, own_uids, zygotes: None })
    }

    /// Has programs forked from a preloaded interpreter where that gives the same as starting one. `ordinary` is an execution as most are.
    /// Must be called on the runtime.
    #[must_use]
    pub fn with_zygote(mut self, config: ZygoteConfig, ordinary: &ExecutionSpec) -> Self {
        let mut argv = self.python("zygote.py");
        argv.extend([format!("{RUNNER_DIR}/{LIBRARY_NAME}"), "3".to_owned()]);
        argv.extend(config.preload.iter().cloned());
        let mut env = self.environment(ordinary);
        for (_, threads) in env.iter_mut().filter(|(name, _)| THREADS.contains(&name.as_str())) {
            // Only a process with one thread can be forked.
            "1".clone_into(threads);
        }
        let limits = Limits { memory_bytes: config.memory_bytes, ..ordinary.limits };
        let recipe = ZygoteSpec {
            id: 0,
            name: String::new(),
            root: self.root.clone(),
            disk_bytes: 64 << 20,
            links: self.matplotlib_links(),
            argv,
            env,
            limits: jail_limits(&limits),
        };
        let zygotes = Zygotes::new(config, cores(ordinary));
        tokio::spawn(Arc::clone(&zygotes).keep(Arc::clone(&self.shared), recipe));
        self.zygotes = Some(zygotes);
        self
    }

    /// The zygote to fork for this execution, if a fork is what starting an interpreter for it would give.
    fn zygote_for(&self, execution: &ExecutionSpec) -> Option<u64> {
        let zygotes = self.zygotes.as_ref()?;
        let same =
            execution.language == Language::Python && cores(execution) <= zygotes.cores && execution.env_can_wait();
        if same { zygotes.take() } else { None }
    }

    /// What is put into the home for matplotlib, by its path.
    fn matplotlib_links(&self) -> Vec<(String, String)> {
        let links = self.image.matplotlib_links.iter();
        links.map(|(name, to)| (to.clone(), format!("{HOME}/{MATPLOTLIB}/{name}"))).collect()
    }

    fn python(&self, script: &str) -> Vec<String> {
        [&self.image.python, "-u", "-B", &format!("{RUNNER_DIR}/{script}")].map(str::to_owned).into()
    }

    fn jail_spec(
        &self,
        id: u64,
        name: &str,
        execution: &ExecutionSpec,
        zygote: Option<u64>,
    ) -> Result<JailSpec, FieldError> {
        let (argv, env) = match zygote {
            // It has them already; what the caller adds comes with the code.
            Some(_) => Default::default(),
            None => (self.argv(execution)?, self.environment(execution)),
        };
        Ok(JailSpec {
            id,
            name: name.to_owned(),
            root: self.root.clone(),
            disk_bytes: execution.limits.disk_bytes,
            disk_inodes: inodes(&execution.limits),
            shm_bytes: (execution.limits.memory_bytes / 2).max(1 << 20),
            argv,
            env,
            cwd: execution.cwd.clone(),
            limits: jail_limits(&execution.limits),
            control: execution.language == Language::Python,
            zygote,
        })
    }

    fn environment(&self, execution: &ExecutionSpec) -> Vec<(String, String)> {
        let threads = cores(execution).to_string();
        let mut env: BTreeMap<String, String> = [
            ("HOME", HOME),
            ("USER", "sandbox"),
            ("LOGNAME", "sandbox"),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
            ("TMPDIR", "/tmp"),
            ("TERM", "dumb"),
            ("PYTHONUNBUFFERED", "1"),
            // Without a network every retry of pip is time lost; but only when it retries does it say what is wrong.
            ("PIP_RETRIES", "1"),
            ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
            ("PIP_NO_INPUT", "1"),
            ("MPLCONFIGDIR", &format!("{HOME}/{MATPLOTLIB}")),
        ]
        .into_iter()
        .chain(THREADS.map(|name| (name, threads.as_str())))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        env.extend(self.image.env.clone());
        env.extend(self.extra_env.iter().cloned());
        env.extend(execution.env.clone());
        env.into_iter().collect()
    }

    async fn try_start(&self, spec: SandboxSpec<'_>) -> Result<Sandbox, StartError> {
        let Some(zygote) = self.zygote_for(spec.execution) else { return self.start_one(&spec, None).await };
        match self.start_one(&spec, Some(zygote)).await {
            // It died, or could not fork. Nothing of the caller's has run.
            Err(StartError::Step { step, cause }) if step == Step::ForkZygote.to_string() => {
                tracing::warn!(zygote, cause, "no fork of the preloaded interpreter; the sandbox loads its own");
                self.start_one(&spec, None).await
            }
            other => other,
        }
    }

    async fn start_one(&self, spec: &SandboxSpec<'_>, zygote: Option<u64>) -> Result<Sandbox, StartError> {
        let begun = Instant::now();
        let execution = spec.execution;
        let id = self.shared.next_id();
        let jail_spec = self.jail_spec(id, spec.name, execution, zygote)?;
        let channels = Channels::new(jail_spec.control).map_err(|error| step("create the pipes", &error))?;
        let Channels { inside, stdin, stdout, stderr, gate, control } = channels;

        let (started_sender, started) = oneshot::channel();
        let (exit_sender, mut exit) = oneshot::channel();
        let (gone_sender, gone) = oneshot::channel();
        {
            let mut waiting = self.shared.waiting.lock();
            waiting.starting.insert(id, started_sender);
            waiting.exits.insert(id, exit_sender);
            waiting.going.insert(id, gone_sender);
        }
        // From here on dropping this future kills the sandbox.
        let kill = Killer { id, shared: Arc::clone(&self.shared) };
        let outgoing = Outgoing { request: Request::Spawn(Box::new(jail_spec)), fds: inside };
        if !self.shared.ask(outgoing) {
            return Err(step("ask the jailer", &"it is being restarted"));
        }

        let Started { disk, uid } = tokio::select! {
            biased;
            started = started => started.map_err(|_| step("start the sandbox", &"the jailer is gone"))?,
            report = &mut exit => return Err(failed_start(report.unwrap_or_default())),
        };
        let how = if zygote.is_some() { "fork" } else { "exec" };
        metrics::histogram!("fumehood_sandbox_start_seconds", "how" => how).record(begun.elapsed());
        let owner = self.own_uids.then_some((uid, uid));
        self.furnish(&disk, owner, execution).map_err(|error| step("furnish the home", &error))?;
        Ok(Sandbox {
            guest: control.map_or(Guest::Program, Guest::Runner),
            stdin,
            stdout,
            stderr,
            gate,
            disk,
            owner,
            kill: Box::new(kill),
            exit,
            gone,
            isolation: self.report(),
        })
    }

    /// Puts what belongs there into the fresh home.
    fn furnish(&self, disk: &OwnedFd, owner: files::Owner, execution: &ExecutionSpec) -> std::io::Result<()> {
        files::link_into_home(disk, owner, MATPLOTLIB, &self.image.matplotlib_links)?;
        if let Some((name, code)) = script_file(execution) {
            files::write_into_home(disk, owner, name, code.as_bytes())?;
        }
        Ok(())
    }

    fn argv(&self, execution: &ExecutionSpec) -> Result<Vec<String>, FieldError> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let code = execution.code.as_str();
        let file = script_file(execution).map(|(name, _)| format!("{HOME}/{name}"));
        Ok(match execution.language {
            Language::Python => self.python("start.py"),
            Language::Command => {
                let mut argv = execution.argv.clone();
                argv[0] = self.image.find_program(&argv[0]).ok_or_else(|| {
                    FieldError::new("argv[0]", format!("the image has no program {:?} on its PATH", argv[0]))
                })?;
                argv
            }
            Language::Bash => {
                let bash = self.program(execution, "bash")?;
                match &file {
                    Some(path) => words(&[&bash, path]),
                    None => words(&[&bash, "-c", code]),
                }
            }
            Language::Javascript | Language::Typescript => {
                let node = self.program(execution, "node")?;
                // In base64: in a plain data URL a question mark would begin the query.
                let preload = format!("data:text/javascript;base64,{}", BASE64.encode(NODE_PRELOAD));
                // As a module, so that `await` works at the top; the preload adds `require` for code written the older way.
                let kind = if execution.language == Language::Javascript { "module" } else { "module-typescript" };
                let kind = format!("--input-type={kind}");
                match &file {
                    Some(path) => words(&[&node, "--import", &preload, path]),
                    None => words(&[&node, "--import", &preload, &kind, "-e", code]),
                }
            }
        })
    }

    /// The interpreter of the execution's language, or why there is none.
    fn program(&self, execution: &ExecutionSpec, name: &str) -> Result<String, FieldError> {
        self.image.find_program(name).ok_or_else(|| {
            let language = format!("{:?}", execution.language).to_lowercase();
            FieldError::new(
                "language",
                format!("{language} needs {name}, which the image {:?} does not have", self.image.name),
            )
        })
    }
}

/// Whole cores that an execution may use at once.
fn cores(execution: &ExecutionSpec) -> u64 {
    (execution.limits.cpu.ceil() as u64).max(1)
}

/// A script too long for an argument, as a file of the home.
fn script_file(execution: &ExecutionSpec) -> Option<(&'static str, &str)> {
    let name = match execution.language {
        Language::Bash => "script.sh",
        Language::Javascript => "script.mjs",
        Language::Typescript => "script.mts",
        Language::Python | Language::Command => return None,
    };
    (execution.code.len() > LONGEST_ARGUMENT).then_some((name, execution.code.as_str()))
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

/// A small file takes a page; more files than pages cannot be of use.
fn inodes(limits: &Limits) -> u64 {
    (limits.disk_bytes / 4096).clamp(1024, 1 << 20)
}

fn jail_limits(limits: &Limits) -> JailLimits {
    JailLimits {
        memory_bytes: limits.memory_bytes,
        cpu_millis: ((limits.cpu * 1000.0) as u64).max(1),
        processes: limits.processes,
        file_size_bytes: limits.file_size_bytes,
        open_files: limits.open_files,
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

/// Kills its sandbox when asked and when dropped.
struct Killer {
    id: u64,
    shared: Arc<Shared>,
}

impl Kill for Killer {
    fn kill(&self) {
        // Without a jailer there is no sandbox.
        self.shared.ask(Outgoing { request: Request::Kill { id: self.id }, fds: Vec::new() });
    }

    fn conclude(&self, code: u8) {
        self.shared.ask(Outgoing { request: Request::Conclude { id: self.id, code }, fds: Vec::new() });
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        let ended = {
            let mut waiting = self.shared.waiting.lock();
            waiting.starting.remove(&self.id);
            // Still there: the jailer has not reported the end.
            waiting.exits.remove(&self.id).is_none()
        };
        if !ended {
            self.kill();
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
                Ok(Err(error)) => error.to_string(),
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
                    // This one request cannot be told; the conversation goes on.
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
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

impl Shared {
    fn begin(&self, link: JailerLink) -> std::io::Result<Conversation> {
        // A packet socket in a datagram's clothes: the runtime only watches it, messages go through `protocol`.
        let socket = std::os::unix::net::UnixDatagram::from(link.socket);
        socket.set_nonblocking(true)?;
        let socket = UnixDatagram::from_std(socket)?;
        let (requests, outgoing) = mpsc::unbounded_channel();
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
                if let (Some(starting), Some(disk)) = (starting, fds.pop()) {
                    starting.send(Started { disk, uid }).ok();
                }
            }
            Reply::Exited { id, report, going } => {
                let mut waiting = self.waiting.lock();
                if !going {
                    waiting.going.remove(&id);
                }
                if let Some(exit) = waiting.exits.remove(&id) {
                    exit.send(translate(report)).ok();
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
        BackendReport { level: IsolationLevel::Process, features: self.features.clone() }
    }

    fn unavailable(&self) -> Option<String> {
        self.shared.requests.lock().is_none().then(|| "the process that makes sandboxes is being restarted".to_owned())
    }

    fn warmed_up(&self) -> BoxFuture<'_, ()> {
        match &self.zygotes {
            Some(zygotes) => zygotes.tried().boxed(),
            None => std::future::ready(()).boxed(),
        }
    }

    fn start<'a>(&'a self, spec: SandboxSpec<'a>) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        self.try_start(spec).boxed()
    }

    fn accepts(&self, execution: &ExecutionSpec) -> Result<(), FieldError> {
        match execution.isolation {
            IsolationLevel::Auto | IsolationLevel::Process => {}
            other => {
                let message = format!("level '{other}' is not available on this node; 'process' is");
                return Err(FieldError::new("isolation", message));
            }
        }
        if execution.language == Language::Typescript && !self.image.runs_typescript {
            let message = "typescript needs Node.js 22.18, 23.6 or later, which the image does not have";
            return Err(FieldError::new("language", message));
        }
        self.argv(execution).map(drop)
    }
}
