//! Sessions: a sandbox that stays, with an interpreter that keeps its variables from one execution to the next.
//!
//! ```text
//! creating --interpreter loaded--> idle <--> running
//!      \--failed--> lost           idle <--> paused
//!                                  any of them --deleted, idle too long, too old--> closed
//!                                  any of them --its sandbox went away--> lost
//! ```
//!
//! One task owns a session and does one thing after the other; what must not wait (interrupting, closing) goes past it. An interpreter that ends is
//! replaced by a fresh one in the same sandbox: files stay, variables do not, and the execution says so.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep_until;
use utoipa::ToSchema;

use crate::backend::{
    BackendReport, Control, ExitReport, KeptSandbox, Meter, Programs, SandboxProcess, SandboxSpec, StartError,
};
use crate::clock::Clock;
use crate::driver::{self, Job, Live, Means, Running, Site};
use crate::execution::{Execution, ExecutionError, Fault, Isolation, Members, Notice, Outcome, Status};
use crate::files;
use crate::ids::{ExecutionId, SessionId, TenantId};
use crate::record::{Completion, Record};
use crate::spec::{ExecutionSpec, SessionSpec};

/// Where a session is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Its interpreter is being started; executions wait.
    Creating,
    /// It waits for an execution.
    Idle,
    /// An execution runs.
    Running,
    /// Everything in it stands still until it is resumed, or the next execution comes.
    Paused,
    /// It was ended on purpose; `reason` says by whom or what.
    Closed,
    /// Its sandbox went away; `reason` says why.
    Lost,
}

impl SessionState {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Closed | Self::Lost)
    }
}

/// A session as `GET /v1/sessions/{id}` shows it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SessionInfo {
    /// Its id.
    pub id: SessionId,
    /// Where it is in its life.
    pub state: SessionState,
    /// Why it is closed or lost.
    pub reason: Option<String>,
    /// Template with version.
    pub template: String,
    /// Isolation in force.
    pub isolation: Isolation,
    /// Execution that runs now.
    pub running: Option<ExecutionId>,
    /// Executions that wait for it.
    pub queued: usize,
    /// Processes and threads there are now: the interpreter's own, and those that earlier executions left running.
    pub tasks: u64,
    /// MiB of memory in use now, files included.
    pub memory_mb: f64,
    /// MiB that were given back when it was paused: what the kernel could take without losing anything. Without swap that is cached files only.
    pub memory_given_back_mb: Option<f64>,
    /// Executions that ended.
    pub executions: u64,
    /// How often its interpreter was replaced by a fresh one: by a reset, or because it ended.
    pub restarts: u64,
    /// Seconds without an execution after which it is closed.
    pub idle_timeout_s: u64,
    /// Seconds that it was to live, when it was created or its life was prolonged.
    pub ttl_s: u64,
    /// When it is closed whatever happens, RFC 3339 UTC.
    pub expires_at: String,
    /// Whatever the caller gave.
    #[schema(value_type = Object)]
    pub metadata: Members,
    /// When it was created, RFC 3339 UTC.
    pub created_at: String,
    /// When the last execution ended, or it was created.
    pub last_used_at: String,
    /// When it ended.
    pub closed_at: Option<String>,
}

/// Why something could not be done with a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It has ended.
    #[error("the session is {state}: {reason}")]
    Over {
        /// `closed` or `lost`.
        state: &'static str,
        /// Why.
        reason: String,
    },
    /// Others are before this, and it was not to wait.
    #[error("the session is busy: {queued} executions run or wait in it")]
    Busy {
        /// How many.
        queued: usize,
    },
    /// It could not be paused.
    #[error("the session could not be paused: {0}")]
    Pause(String),
    /// A fresh interpreter could not be started.
    #[error("a fresh interpreter could not be started: {0}")]
    Restart(String),
}

/// One session.
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// What was asked for.
    pub spec: SessionSpec,
    state: Mutex<State>,
    commands: mpsc::UnboundedSender<Command>,
    clock: Arc<dyn Clock>,
    /// It is no longer being created.
    created: watch::Sender<bool>,
    /// Nothing of it is left.
    gone: watch::Sender<bool>,
}

struct State {
    info: SessionInfo,
    /// Once there is a sandbox.
    place: Option<Place>,
    /// Given up for good once it is closed.
    ttl_ends: Instant,
    variables: Members,
}

/// What can be reached past the task.
#[derive(Clone)]
struct Place {
    control: Arc<dyn Control>,
    disk: Arc<OwnedFd>,
    owner: Option<(u32, u32)>,
    meter: Arc<dyn Meter>,
    shared: Option<Arc<OwnedFd>>,
}

enum Command {
    Execute {
        spec: Box<ExecutionSpec>,
        accepted: Instant,
        done: Completion,
    },
    Reset(oneshot::Sender<Result<(), SessionError>>),
    Pause(oneshot::Sender<Result<(), SessionError>>),
    Resume(oneshot::Sender<Result<(), SessionError>>),
    /// The state says why.
    Close,
    /// The life was prolonged.
    Extended,
}

impl Session {
    /// A session that starts itself; `end` is told when nothing is left of it. Must be called on a tokio runtime.
    pub(crate) fn start(
        id: SessionId,
        spec: SessionSpec,
        means: Arc<Means>,
        end: impl FnOnce(&Self) + Send + 'static,
    ) -> Arc<Self> {
        let (commands, received) = mpsc::unbounded_channel();
        let now = means.clock.stamp();
        let expires_at = means.clock.stamp_after(spec.ttl);
        let info = SessionInfo {
            id: id.clone(),
            state: SessionState::Creating,
            reason: None,
            template: spec.base.template.clone(),
            isolation: Isolation {
                requested: spec.base.isolation.to_string(),
                effective: "none".to_owned(),
                features: BTreeMap::new(),
            },
            running: None,
            queued: 0,
            tasks: 0,
            memory_mb: 0.0,
            memory_given_back_mb: None,
            executions: 0,
            restarts: 0,
            idle_timeout_s: spec.idle_timeout.as_secs(),
            ttl_s: spec.ttl.as_secs(),
            expires_at,
            metadata: spec.metadata.clone(),
            created_at: now.clone(),
            last_used_at: now,
            closed_at: None,
        };
        let state = State { info, place: None, ttl_ends: Instant::now() + spec.ttl, variables: Members::new() };
        let session = Arc::new(Self {
            id,
            spec,
            state: Mutex::new(state),
            commands,
            clock: Arc::clone(&means.clock),
            created: watch::Sender::new(false),
            gone: watch::Sender::new(false),
        });
        let task = Task { session: Arc::clone(&session), means, received };
        tokio::spawn(task.run(end));
        session
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> &TenantId {
        &self.spec.base.owner
    }

    /// As it is now.
    #[must_use]
    pub fn info(&self) -> SessionInfo {
        let (info, meter) = {
            let state = self.state.lock();
            (state.info.clone(), state.place.as_ref().map(|place| Arc::clone(&place.meter)))
        };
        let usage = meter.map(|meter| meter.usage()).unwrap_or_default();
        SessionInfo { tasks: usage.tasks, memory_mb: mebibytes(usage.memory_bytes), ..info }
    }

    /// The processes in it now, its interpreter included; none before there is a sandbox and after the end. Blocks.
    #[must_use]
    pub fn processes(&self) -> Vec<SandboxProcess> {
        let meter = self.state.lock().place.as_ref().map(|place| Arc::clone(&place.meter));
        meter.map(|meter| meter.processes()).unwrap_or_default()
    }

    /// Where it is in its life.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.state.lock().info.state
    }

    /// Executions that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.state.lock().info.queued
    }

    /// The variables after the last execution: name to `{type, shape, repr}`.
    #[must_use]
    pub fn variables(&self) -> Members {
        self.state.lock().variables.clone()
    }

    /// Why nothing can be done with it any more, once it is closed or lost.
    #[must_use]
    pub fn over(&self) -> Option<SessionError> {
        let state = self.state.lock();
        let name = match state.info.state {
            SessionState::Closed => "closed",
            SessionState::Lost => "lost",
            _ => return None,
        };
        Some(SessionError::Over { state: name, reason: state.info.reason.clone().unwrap_or_default() })
    }

    /// Puts an execution at the end of the queue.
    ///
    /// # Errors
    /// When the session is over, or busy and the execution is not to wait.
    pub(crate) fn execute(&self, spec: ExecutionSpec, wait: bool, done: Completion) -> Result<(), SessionError> {
        if let Some(over) = self.over() {
            done.discard();
            return Err(over);
        }
        {
            let mut state = self.state.lock();
            let before = state.info.queued + usize::from(state.info.running.is_some());
            if !wait && before > 0 {
                done.discard();
                return Err(SessionError::Busy { queued: before });
            }
            state.info.queued += 1;
        }
        let command = Command::Execute { spec: Box::new(spec), accepted: Instant::now(), done };
        // A task that has just ended says so by dropping it.
        self.commands.send(command).ok();
        Ok(())
    }

    /// Interrupts what runs, as Ctrl-C would. Whether anything did.
    ///
    /// # Errors
    /// When the session is over.
    pub fn interrupt(&self) -> Result<bool, SessionError> {
        if let Some(over) = self.over() {
            return Err(over);
        }
        let state = self.state.lock();
        if let (Some(place), Some(_)) = (&state.place, &state.info.running) {
            place.control.interrupt();
            return Ok(true);
        }
        Ok(false)
    }

    /// Starts a fresh interpreter, after what runs and waits now. Files stay.
    ///
    /// # Errors
    /// When the session is over, or no interpreter could be started.
    pub async fn reset(&self) -> Result<(), SessionError> {
        self.ask(Command::Reset).await
    }

    /// Has everything in it stand still, after what runs and waits now. The next execution resumes it, as does [`Self::resume`]; while it is paused it is
    /// not closed for being idle.
    ///
    /// # Errors
    /// When the session is over, or this host cannot do it.
    pub async fn pause(&self) -> Result<(), SessionError> {
        self.ask(Command::Pause).await
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn resume(&self) -> Result<(), SessionError> {
        self.ask(Command::Resume).await
    }

    /// Asks the task for something, in its turn.
    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), SessionError>>) -> Command,
    ) -> Result<(), SessionError> {
        let (done, ended) = oneshot::channel();
        self.commands.send(command(done)).ok();
        ended.await.unwrap_or_else(|_| Err(self.over().unwrap_or(SessionError::Restart("it is ending".to_owned()))))
    }

    /// Ends it with everything in it, whatever runs there.
    pub fn close(&self, reason: &str) {
        let place = {
            let mut state = self.state.lock();
            if state.info.state.is_final() {
                return;
            }
            state.info.state = SessionState::Closed;
            state.info.reason = Some(reason.to_owned());
            state.place.clone()
        };
        if let Some(place) = place {
            place.control.kill();
        }
        self.commands.send(Command::Close).ok();
    }

    /// Has it live for so long from now on, at most as long as a new one may.
    ///
    /// # Errors
    /// When the session is over.
    pub fn extend(&self, ttl: Duration) -> Result<(), SessionError> {
        if let Some(over) = self.over() {
            return Err(over);
        }
        {
            let mut state = self.state.lock();
            state.ttl_ends = Instant::now() + ttl;
            state.info.ttl_s = ttl.as_secs();
            state.info.expires_at = self.clock.stamp_after(ttl);
        }
        self.commands.send(Command::Extended).ok();
        Ok(())
    }

    /// Ends it when its time is over, whatever runs.
    async fn close_when_too_old(&self) -> Infallible {
        loop {
            let ends = self.state.lock().ttl_ends;
            if Instant::now() >= ends {
                self.close(TOO_OLD);
                return std::future::pending().await;
            }
            sleep_until(ends.into()).await;
        }
    }

    /// Waits until its interpreter has been started, or could not be.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn settled(&self) -> Result<(), SessionError> {
        let mut created = self.created.subscribe();
        // The sender is this object's own.
        created.wait_for(|created| *created).await.ok();
        self.over().map_or(Ok(()), Err)
    }

    /// Waits until it has ended with everything in it.
    pub async fn ended(&self) {
        let mut gone = self.gone.subscribe();
        // The sender is this object's own.
        gone.wait_for(|gone| *gone).await.ok();
    }

    /// Its files; `None` before there is a sandbox and after the end.
    #[must_use]
    pub fn files(&self) -> Option<files::Workspace> {
        let state = self.state.lock();
        if state.info.state.is_final() {
            return None;
        }
        let place = state.place.as_ref()?;
        Some(files::Workspace::new(Arc::clone(&place.disk), place.owner).with_shared(place.shared.clone()))
    }
}

/// MiB with two decimals.
fn mebibytes(bytes: u64) -> f64 {
    (bytes as f64 / f64::from(1 << 20) * 100.0).round() / 100.0
}

/// Why a session was closed.
const TOO_OLD: &str = "its time to live was over";

/// Owns one session.
struct Task {
    session: Arc<Session>,
    means: Arc<Means>,
    received: mpsc::UnboundedReceiver<Command>,
}

/// A sandbox with its interpreter.
struct Inhabited {
    programs: Box<dyn Programs>,
    meter: Arc<dyn Meter>,
    control: Arc<dyn Control>,
    disk: Arc<OwnedFd>,
    owner: Option<(u32, u32)>,
    isolation: BackendReport,
    /// `None` once it has been reported.
    exit: Option<oneshot::Receiver<ExitReport>>,
    /// `None` when it ended and no other could be started.
    live: Option<Live>,
    /// The next execution is the first of an interpreter that took the place of one that ended by itself.
    restarted: bool,
    /// Everything in it stands still.
    paused: bool,
}

/// What a session's task saw.
enum Seen {
    Command(Option<Command>),
    /// The interpreter ended while nothing ran.
    InterpreterEnded,
    SandboxEnded,
    Idle,
    TooOld,
}

impl Task {
    async fn run(mut self, end: impl FnOnce(&Session)) {
        let begun = self.begin().await;
        if let Err(error) = &begun {
            tracing::error!(session = %self.session.id, %error, "a session could not be started");
            self.end(SessionState::Lost, &format!("it could not be started: {error}"));
        }
        self.session.created.send_replace(true);
        if let Ok(mut inhabited) = begun {
            self.serve(&mut inhabited).await;
            inhabited.control.kill();
            // Files and memory are gone with it.
            if let Some(exit) = inhabited.exit.take() {
                tokio::time::timeout(driver::BURIAL_PATIENCE, exit).await.ok();
            }
        }
        let stamp = self.means.clock.stamp();
        {
            let mut state = self.session.state.lock();
            state.info.closed_at = Some(stamp);
            state.place = None;
        }
        self.refuse_the_rest().await;
        end(&self.session);
        self.session.gone.send_replace(true);
    }

    async fn begin(&mut self) -> Result<Inhabited, StartError> {
        let session = Arc::clone(&self.session);
        let name = session.id.to_string();
        let spec = SandboxSpec { name: &name, execution: &session.spec.base, waits: false };
        let KeptSandbox { disk, owner, control, exit, isolation, programs, meter } =
            self.means.backend.keep(spec).await?;
        let failed = |cause: &dyn std::fmt::Display| StartError::Step {
            step: "prepare the session's files".to_owned(),
            cause: cause.to_string(),
        };
        files::write_all(&disk, owner, &session.spec.base.files).map_err(|error| failed(&error))?;
        let disk = Arc::new(disk);
        {
            let mut state = session.state.lock();
            state.info.isolation.effective = isolation.level.to_string();
            state.info.isolation.features = isolation.features.clone();
            let (control, disk, meter) = (Arc::clone(&control), Arc::clone(&disk), Arc::clone(&meter));
            let shared = self.means.shared.clone();
            state.place = Some(Place { control, disk, owner, meter, shared });
        }
        let mut inhabited = Inhabited {
            programs,
            meter,
            control,
            disk,
            owner,
            isolation,
            exit: Some(exit),
            live: None,
            restarted: false,
            paused: false,
        };
        self.restart(&mut inhabited).await?;
        let mut state = session.state.lock();
        state.info.restarts = 0;
        if state.info.state == SessionState::Creating {
            state.info.state = SessionState::Idle;
        }
        drop(state);
        Ok(inhabited)
    }

    /// A fresh interpreter in place of what runs.
    async fn restart(&mut self, inhabited: &mut Inhabited) -> Result<(), StartError> {
        inhabited.live = None;
        let interpreter = inhabited.programs.begin().await?;
        let ready = Live::ready(interpreter, self.means.config.start_timeout).await;
        let step = "start the interpreter".to_owned();
        inhabited.live = Some(ready.map_err(|cause| StartError::Step { step, cause })?);
        let mut state = self.session.state.lock();
        state.info.restarts += 1;
        if state.info.state != SessionState::Creating {
            metrics::counter!("fumehood_session_restarts_total").increment(1);
        }
        state.variables = Members::new();
        Ok(())
    }

    async fn serve(&mut self, inhabited: &mut Inhabited) {
        let mut idle_since = Instant::now();
        loop {
            let ttl_ends = {
                let state = self.session.state.lock();
                if state.info.state.is_final() {
                    return;
                }
                state.ttl_ends
            };
            let idle_ends = idle_since + self.session.spec.idle_timeout;
            let interpreter_ends = async {
                match &mut inhabited.live {
                    Some(live) => drop((&mut live.exit).await),
                    None => std::future::pending().await,
                }
            };
            let sandbox_ends = async {
                match &mut inhabited.exit {
                    Some(exit) => drop(exit.await),
                    None => std::future::pending().await,
                }
            };
            let seen = tokio::select! {
                biased;
                () = sandbox_ends => Seen::SandboxEnded,
                command = self.received.recv() => Seen::Command(command),
                () = interpreter_ends => Seen::InterpreterEnded,
                () = sleep_until(ttl_ends.into()) => Seen::TooOld,
                () = sleep_until(idle_ends.into()), if !inhabited.paused => Seen::Idle,
            };
            match seen {
                Seen::Command(Some(Command::Execute { spec, accepted, done })) => {
                    let Some(done) = self.its_turn(done) else { continue };
                    self.resume(inhabited);
                    let session = Arc::clone(&self.session);
                    let execution = tokio::select! {
                        execution = self.execute(inhabited, &done.record, &spec, accepted) => execution,
                        never = session.close_when_too_old() => match never {},
                    };
                    done.complete(execution);
                    idle_since = Instant::now();
                }
                Seen::Command(Some(Command::Pause(done))) => {
                    done.send(self.pause(inhabited).await).ok();
                }
                Seen::Command(Some(Command::Resume(done))) => {
                    self.resume(inhabited);
                    idle_since = Instant::now();
                    done.send(Ok(())).ok();
                }
                Seen::Command(Some(Command::Reset(done))) => {
                    self.resume(inhabited);
                    let reset = self.restart(inhabited).await.map_err(|error| SessionError::Restart(error.to_string()));
                    inhabited.restarted = false;
                    done.send(reset).ok();
                    idle_since = Instant::now();
                }
                Seen::Command(Some(Command::Extended)) => {}
                Seen::Command(None | Some(Command::Close)) => return,
                Seen::InterpreterEnded => {
                    inhabited.live = None;
                    inhabited.restarted = true;
                    if let Err(error) = self.restart(inhabited).await {
                        tracing::warn!(session = %self.session.id, %error, "no fresh interpreter");
                    }
                }
                Seen::SandboxEnded => {
                    inhabited.exit = None;
                    let why = "its sandbox went away with everything in it: the process that watches sandboxes was lost, or the kernel ended it";
                    return self.end(SessionState::Lost, why);
                }
                Seen::Idle => {
                    let why = format!("nothing was executed for {} s", self.session.spec.idle_timeout.as_secs());
                    return self.end(SessionState::Closed, &why);
                }
                Seen::TooOld => return self.end(SessionState::Closed, TOO_OLD),
            }
        }
    }

    async fn pause(&self, inhabited: &mut Inhabited) -> Result<(), SessionError> {
        if inhabited.paused {
            return Ok(());
        }
        inhabited.programs.pause().await.map_err(|error| SessionError::Pause(error.to_string()))?;
        inhabited.paused = true;
        let meter = Arc::clone(&inhabited.meter);
        let given_back = tokio::task::spawn_blocking(move || {
            let before = meter.usage().memory_bytes;
            meter.reclaim();
            before.saturating_sub(meter.usage().memory_bytes)
        });
        let given_back = given_back.await.ok().map(mebibytes);
        let mut state = self.session.state.lock();
        state.info.memory_given_back_mb = given_back;
        if state.info.state == SessionState::Idle {
            state.info.state = SessionState::Paused;
        }
        Ok(())
    }

    fn resume(&self, inhabited: &mut Inhabited) {
        if !std::mem::take(&mut inhabited.paused) {
            return;
        }
        inhabited.programs.resume();
        let mut state = self.session.state.lock();
        state.info.memory_given_back_mb = None;
        if state.info.state == SessionState::Paused {
            state.info.state = SessionState::Idle;
        }
    }

    /// Takes an execution from the queue; `None` when it was cancelled there.
    fn its_turn(&self, done: Completion) -> Option<Completion> {
        {
            let mut state = self.session.state.lock();
            state.info.queued = state.info.queued.saturating_sub(1);
        }
        if done.record.begin() {
            return Some(done);
        }
        done.discard();
        None
    }

    /// Ends it unless it has ended already.
    fn end(&self, to: SessionState, why: &str) {
        let mut state = self.session.state.lock();
        if !state.info.state.is_final() {
            state.info.state = to;
            state.info.reason = Some(why.to_owned());
        }
    }

    async fn execute(
        &mut self,
        inhabited: &mut Inhabited,
        record: &Arc<Record>,
        spec: &ExecutionSpec,
        accepted: Instant,
    ) -> Execution {
        let stamp = self.means.clock.stamp();
        let session = Arc::clone(&self.session);
        {
            let mut state = session.state.lock();
            if record.cancel.is_cancelled() || state.info.state.is_final() {
                return record.never_ran(stamp);
            }
            state.info.state = SessionState::Running;
            state.info.running = Some(record.id.clone());
        }
        // Sessions share the processors with everybody else. Their memory is not counted: most are idle.
        let entrance = self.means.admission.enter(session.owner(), 0, usize::MAX);
        let place = tokio::select! {
            biased;
            () = record.cancel.cancelled() => None,
            place = async { Some(entrance.ok()?.await) } => place,
        };
        let Some(_place) = place else {
            self.rest();
            return record.never_ran(stamp);
        };
        let _running = Running::new(&self.means);
        if inhabited.live.is_none()
            && let Err(error) = self.restart(inhabited).await
        {
            self.rest();
            let message = format!("no fresh interpreter could be started: {error}");
            let error = ExecutionError::of(Outcome::Infra, message, Some("try again, or open a new session"));
            return record.ended_early(stamp, Outcome::Infra, Some(Fault::Infra), error);
        }
        let restarted = std::mem::take(&mut inhabited.restarted);
        if restarted {
            record.warn(Notice {
                code: "interpreter_restarted".to_owned(),
                message: "the session's interpreter ended since the last execution; this is a fresh one: files are kept, variables are not"
                    .to_owned(),
            });
        }
        let program = match inhabited.programs.program(spec) {
            Ok(program) => program,
            Err(error) => {
                self.rest();
                let error = ExecutionError::of(Outcome::Infra, error.to_string(), None);
                return record.ended_early(stamp, Outcome::Infra, Some(Fault::User), error);
            }
        };
        let Some(live) = inhabited.live.take() else { return record.broke_off(stamp) };
        let Inhabited { meter, control, disk, owner, isolation, .. } = &*inhabited;
        let counters = || meter.counters();
        let control = Arc::clone(control);
        let site = Site { control, disk, owner: *owner, isolation, program, counters: &counters };
        let job = Job { means: &self.means, record, spec, queued: accepted.elapsed() };
        let (mut execution, live) = driver::drive_in_session(job, live, site).await;
        execution.interpreter_restarted |= restarted;
        inhabited.live = live;
        let closing = session.over();
        if let Some(SessionError::Over { reason, .. }) = &closing {
            // Not what the end of its sandbox looked like from here.
            let message = format!("the session was closed: {reason}");
            execution.status = Status::Cancelled;
            execution.outcome = Some(Outcome::Cancelled);
            execution.fault = None;
            execution.error = Some(ExecutionError::of(Outcome::Cancelled, message, None));
        }
        if inhabited.live.is_none()
            && closing.is_none()
            && let Err(error) = self.restart(inhabited).await
        {
            tracing::warn!(session = %session.id, %error, "no fresh interpreter");
        }
        session.state.lock().variables = match execution.interpreter_restarted && inhabited.live.is_some() && !restarted
        {
            true => Members::new(),
            false => execution.variables.clone(),
        };
        self.rest();
        execution
    }

    /// Nothing runs any more.
    fn rest(&self) {
        let stamp = self.means.clock.stamp();
        let mut state = self.session.state.lock();
        state.info.running = None;
        state.info.executions += 1;
        state.info.last_used_at = stamp;
        if state.info.state == SessionState::Running {
            state.info.state = SessionState::Idle;
        }
    }

    /// Answers what came too late.
    async fn refuse_the_rest(&mut self) {
        self.received.close();
        while let Some(command) = self.received.recv().await {
            match command {
                Command::Execute { done, .. } => {
                    let Some(done) = self.its_turn(done) else { continue };
                    let reason = self.session.over().map_or_else(String::new, |over| over.to_string());
                    let error = ExecutionError::of(Outcome::Cancelled, reason, Some("open a new session"));
                    let stamp = self.means.clock.stamp();
                    let execution = done.record.ended_early(stamp, Outcome::Cancelled, None, error);
                    done.complete(execution);
                }
                Command::Reset(done) | Command::Pause(done) | Command::Resume(done) => drop(done),
                Command::Close | Command::Extended => {}
            }
        }
    }
}
