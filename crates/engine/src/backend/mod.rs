//! What provides an isolation level: the [`Backend`] trait and its implementations.
//!
//! A backend is probed first ([`Backend::report`]) and then asked for sandboxes. It hands out a [`Sandbox`] that is ready but held at
//! its gate: nothing of the caller's runs until [`Sandbox::open_gate`]. Everything a sandbox says about itself is a claim;
//! what the host saw comes in the [`ExitReport`].

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use fumehood_jail::cgroup::Counters;
use fumehood_wire::Program;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use crate::execution::Denial;
use crate::spec::{ExecutionSpec, FieldError, IsolationLevel};
use crate::template::SandboxKind;

pub mod process;

/// What to start.
#[derive(Debug, Clone)]
pub struct SandboxSpec<'a> {
    /// Unique name, used for cgroups and logs.
    pub name: &'a str,
    /// The execution it is for.
    pub execution: &'a ExecutionSpec,
    /// Nobody needs it yet: until [`Control::hurry`] it yields to those that somebody waits for.
    pub waits: bool,
}

/// Whether and how a level works here.
#[derive(Debug, Clone)]
pub struct BackendReport {
    /// The level.
    pub level: IsolationLevel,
    /// Each layer and whether it is in force.
    pub features: BTreeMap<String, String>,
}

/// A sandbox could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The request asks for something this node cannot do; the caller can mend it.
    #[error(transparent)]
    Refused(#[from] FieldError),
    /// A step of setting up failed; our fault.
    #[error("{step} failed: {cause}")]
    Step {
        /// The step, for example `mount proc`.
        step: String,
        /// Why.
        cause: String,
    },
}

/// How the program was started, which decides whether it speaks the guest protocol.
#[derive(Debug)]
pub enum Guest {
    /// The runner: frames on this socket.
    Runner(UnixStream),
    /// Any program: its exit status is the whole answer.
    Program,
}

/// What can be done to a sandbox from outside.
pub trait Control: Send + Sync {
    /// Asks for the end of everything in it. Idempotent; the exit report follows.
    fn kill(&self);

    /// Somebody needs it now, if it was started to wait ([`SandboxSpec::waits`]).
    fn hurry(&self) {}

    /// Sends SIGINT to the program, where it is one of a sandbox that is kept or was forked. Whether it is.
    fn interrupt(&self) -> bool {
        false
    }

    /// Waits until every interrupt asked for has been sent, so that none of them strikes what begins afterwards. Whether there were any since the last time.
    fn settled(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// What programs in it were refused since this was asked last.
    fn refusals(&self) -> Vec<Denial> {
        Vec::new()
    }

    /// The program has said that it ends now with this exit code, and nothing of what it does afterwards counts: whoever can tell its end at once,
    /// without waiting until its memory was given back, may do so. Its end is awaited as ever otherwise.
    fn conclude(&self, _code: u8) {}
}

/// A sandbox held at its gate.
pub struct Sandbox {
    /// What runs in it.
    pub guest: Guest,
    /// Its standard input.
    pub stdin: pipe::Sender,
    /// Its standard output.
    pub stdout: pipe::Receiver,
    /// Its standard error.
    pub stderr: pipe::Receiver,
    /// Write end of the gate: one byte lets the program start.
    pub gate: OwnedFd,
    /// Root of its disk: `data`, `tmp` and `home` are below it. Stays readable after the end until dropped.
    pub disk: OwnedFd,
    /// Owner of files below `disk`, when this process has to set it.
    pub owner: Option<(u32, u32)>,
    /// Ends it.
    pub control: Box<dyn Control>,
    /// What the host saw at the end.
    pub exit: oneshot::Receiver<ExitReport>,
    /// Resolves, with a value or without, when nothing is left of it: at the exit report or some milliseconds later.
    pub gone: oneshot::Receiver<()>,
    /// Level and layers in force.
    pub isolation: BackendReport,
}

/// A sandbox that outlives its programs: the place of a session. It ends when it is killed or dropped.
pub struct KeptSandbox {
    /// Root of its disk, as in [`Sandbox`].
    pub disk: OwnedFd,
    /// Owner of files below `disk`, when this process has to set it.
    pub owner: Option<(u32, u32)>,
    /// Ends it, and interrupts what runs in it.
    pub control: Arc<dyn Control>,
    /// What the host saw at the end of the whole.
    pub exit: oneshot::Receiver<ExitReport>,
    /// Level and layers in force.
    pub isolation: BackendReport,
    /// Starts its programs.
    pub programs: Box<dyn Programs>,
    /// Measures it.
    pub meter: Arc<dyn Meter>,
}

/// What a sandbox uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of memory, files and all that the kernel holds for it included.
    pub memory_bytes: u64,
    /// Processes and threads, ours not counted.
    pub tasks: u64,
}

/// A process of a sandbox, as the host sees it. Name and arguments are the sandbox's own words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SandboxProcess {
    /// Number inside the sandbox.
    pub pid: u32,
    /// Program and arguments, cut when they are long.
    pub command: String,
    /// Threads.
    pub threads: u32,
    /// MiB in memory, shared ones included.
    pub memory_mb: f64,
    /// `R` runs, `S` and `D` wait, `T` is stopped, `Z` has ended.
    pub state: String,
}

/// Starts the interpreters of a sandbox, one after the other, and has all of it stand still.
pub trait Programs: Send + Sync {
    /// Ends whatever runs there and starts a fresh interpreter. When this is dropped before it is done, what it started ends with the sandbox.
    fn begin(&mut self) -> BoxFuture<'_, Result<Interpreter, StartError>>;

    /// The program of an execution that the interpreter cannot run itself, to be run as its child; `None` when it can.
    ///
    /// # Errors
    /// The field that asks for what the image does not have.
    fn program(&self, _execution: &ExecutionSpec) -> Result<Option<Program>, FieldError> {
        Ok(None)
    }

    /// Has everything in it stand still, and resolves when it does: no processor time is used until [`Self::resume`].
    fn pause(&mut self) -> BoxFuture<'_, Result<(), StartError>>;

    /// Lets it go on.
    fn resume(&mut self);
}

/// Measures a sandbox that is kept, whatever it does just now.
pub trait Meter: Send + Sync {
    /// Counters of the whole sandbox so far.
    fn counters(&self) -> Counters;

    /// What it uses now.
    fn usage(&self) -> Usage;

    /// The processes in it now, as far as they can be told. Blocks.
    fn processes(&self) -> Vec<SandboxProcess>;

    /// Has the kernel take back what memory it can without losing anything. Blocks while it looks for some.
    fn reclaim(&self);
}

/// An interpreter in a sandbox that is kept.
pub struct Interpreter {
    /// Its frames.
    pub socket: UnixStream,
    /// Its standard output.
    pub stdout: pipe::Receiver,
    /// Its standard error.
    pub stderr: pipe::Receiver,
    /// What the host saw at its end. Counters are those of the whole sandbox.
    pub exit: oneshot::Receiver<ExitReport>,
}

impl Sandbox {
    /// Lets the program start. One that does not wait at its gate, or is through it, is no error.
    ///
    /// # Errors
    /// When the gate cannot be written to.
    pub fn open_gate(&self) -> std::io::Result<()> {
        open_gate(&self.gate)
    }
}

/// As [`Sandbox::open_gate`].
pub(crate) fn open_gate(gate: &OwnedFd) -> std::io::Result<()> {
    match rustix::io::write(gate, &[1]) {
        Ok(_) | Err(rustix::io::Errno::PIPE) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// An error and what it came from, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

/// How the main program ended, as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

/// A step that failed before the program ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStep {
    /// The step, for example `mount /proc`.
    pub step: String,
    /// Why.
    pub cause: String,
    /// The step is about something the caller chose: the program or the working directory.
    pub caller: bool,
}

/// What the host saw of a sandbox that ended.
#[derive(Debug, Clone, Default)]
pub struct ExitReport {
    /// End of the main program; `None` when the whole sandbox was killed before it ended.
    pub ended: Option<Ended>,
    /// A set-up step that failed inside, before the program ran.
    pub failed_step: Option<FailedStep>,
    /// Processes killed for memory.
    pub oom_kills: u64,
    /// Times that the process limit refused a process.
    pub process_limit_hits: u64,
    /// Peak memory, bytes.
    pub memory_peak_bytes: u64,
    /// Processor time, microseconds.
    pub cpu_us: u64,
    /// Most processes at once, where the kernel counts.
    pub processes_peak: Option<u64>,
    /// Bytes through read-like calls.
    pub bytes_read: Option<u64>,
    /// Bytes through write-like calls.
    pub bytes_written: Option<u64>,
    /// The machinery that watches sandboxes is gone: nothing else here is known.
    pub lost: bool,
}

/// Provides one isolation level on this node.
pub trait Backend: Send + Sync + 'static {
    /// Level and layers that its sandboxes get.
    fn report(&self) -> BackendReport;

    /// Why no sandbox can be started right now; `None` when all is well.
    fn unavailable(&self) -> Option<String> {
        None
    }

    /// Waits until starting a sandbox is as quick as it gets, or is known not to become so soon.
    fn warmed_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Changes when sandboxes of a kind are made from something else than before, so that those made earlier are of no use to new executions.
    fn generation(&self, _kind: &SandboxKind) -> u64 {
        0
    }

    /// Python packages of an image, by normalized name, with their versions; of the node's own image when none is named. May block.
    ///
    /// # Errors
    /// When there is no such image; the field is `image`.
    fn packages(&self, image: Option<&str>) -> Result<BTreeMap<String, String>, FieldError> {
        let named =
            format!("{:?} cannot be used: level '{}' has one image", image.unwrap_or_default(), self.report().level);
        image.map_or_else(|| Ok(BTreeMap::new()), |_| Err(FieldError::new("image", named)))
    }

    /// Starts a sandbox and holds it at its gate.
    fn start<'a>(&'a self, spec: SandboxSpec<'a>) -> BoxFuture<'a, Result<Sandbox, StartError>>;

    /// Starts a sandbox in which interpreters follow each other.
    fn keep<'a>(&'a self, _spec: SandboxSpec<'a>) -> BoxFuture<'a, Result<KeptSandbox, StartError>> {
        let message = format!("level '{}' has no sessions", self.report().level);
        Box::pin(std::future::ready(Err(FieldError::new("isolation", message).into())))
    }

    /// Refuses at once, before queueing, what can never work here.
    ///
    /// # Errors
    /// The field to change.
    fn accepts(&self, execution: &ExecutionSpec) -> Result<(), FieldError>;
}
