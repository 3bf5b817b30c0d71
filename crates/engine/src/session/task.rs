//! What a session does, one thing after the other: starts its sandbox, serves what it is asked, ends.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use super::{Command, Place, Session, SessionError, SessionEvent, SessionState, TOO_OLD, mebibytes};
use crate::backend::{BackendReport, Control, ExitReport, KeptSandbox, Meter, Programs, SandboxSpec, StartError};
use crate::driver::{self, Job, Live, Means, Running, Site};
use crate::execution::{Execution, ExecutionError, Fault, Members, Notice, Outcome, Status};
use crate::files;
use crate::record::{Completion, Record};
use crate::spec::ExecutionSpec;

/// Owns one session.
pub(super) struct Task {
    pub(super) session: Arc<Session>,
    pub(super) means: Arc<Means>,
    pub(super) received: mpsc::UnboundedReceiver<Command>,
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
    /// Until nothing is left of the session; then `end` is told.
    pub(super) async fn run(mut self, end: impl FnOnce(&Session)) {
        let begun = self.begin().await;
        if let Err(error) = &begun {
            tracing::error!(session = %self.session.id, %error, "a session could not be started");
            self.end(SessionEvent::Lost, &format!("it could not be started: {error}"));
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
        state.take(SessionEvent::Started);
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
                    return self.end(SessionEvent::Lost, why);
                }
                Seen::Idle => {
                    let why = format!("nothing was executed for {} s", self.session.spec.idle_timeout.as_secs());
                    return self.end(SessionEvent::Closed, &why);
                }
                Seen::TooOld => return self.end(SessionEvent::Closed, TOO_OLD),
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
        state.take(SessionEvent::Paused);
        Ok(())
    }

    fn resume(&self, inhabited: &mut Inhabited) {
        if !std::mem::take(&mut inhabited.paused) {
            return;
        }
        inhabited.programs.resume();
        let mut state = self.session.state.lock();
        state.info.memory_given_back_mb = None;
        state.take(SessionEvent::Resumed);
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
    fn end(&self, how: SessionEvent, why: &str) {
        let mut state = self.session.state.lock();
        if state.take(how) {
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
            if record.cancel.is_cancelled() || !state.take(SessionEvent::Begun) {
                return record.never_ran(stamp);
            }
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
        state.take(SessionEvent::Rested);
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
