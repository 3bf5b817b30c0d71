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

use crate::backend::{Control, Meter, SandboxProcess};
use crate::clock::Clock;
use crate::driver::Means;
use crate::execution::{Isolation, Members};
use crate::files;
use crate::ids::{ExecutionId, SessionId, TenantId};
use crate::record::Completion;
use crate::spec::{ExecutionSpec, SessionSpec};

mod state;
mod task;

pub use state::{Refused, SessionEvent, SessionState};
use task::Task;

/// Why a session was closed.
const TOO_OLD: &str = "its time to live was over";

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

impl State {
    /// Whether the session takes this step; one that it cannot take changes nothing.
    fn take(&mut self, event: SessionEvent) -> bool {
        match self.info.state.after(event) {
            Ok(next) => {
                self.info.state = next;
                true
            }
            Err(refused) => {
                // Whoever closes a session does not wait for what it is at.
                if !refused.state.is_final() {
                    tracing::error!(session = %self.info.id, %refused, "a step of a session is refused");
                }
                false
            }
        }
    }
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
            if !state.take(SessionEvent::Closed) {
                return;
            }
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
