//! One execution from its place in the queue to its end: the one task that acts on it.
//!
//! ```text
//! start sandbox -> write files -> open gate -> [runner: ready -> execute -> started] -> follow until it ends -> verdict -> artifacts
//! ```
//!
//! While following, the order of things is kept: before any frame of the guest is taken in, the output pipes are drained, so
//! everything printed before an event is delivered before it; the guest waits for an acknowledgement after a display, so
//! nothing printed after it comes first.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fumehood_wire::{GuestDecoder, GuestResult, HostFrame, MAX_GUEST_PAYLOAD, Mode, Program};
use tokio::net::UnixStream;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::admission::Admission;
use crate::artifacts::ArtifactStore;
use crate::backend::{
    Backend, BackendReport, Control, Counters, Ended, ExitReport, Guest, Sandbox, SandboxSpec, StartError, open_gate,
};
use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::event::EventBody;
use crate::execution::{Execution, ExecutionError, Fault, Outcome, Status};
use crate::files;
use crate::pool::Busy;
use crate::pools::Pools;
use crate::record::{Record, Stream};
use crate::spec::ExecutionSpec;
use crate::verdict::KillReason;

mod claim;
mod conclude;
mod frames;
mod live;
mod pipes;
mod share;

pub(crate) use live::Live;

use live::{ToGuest, feed};
use pipes::{Held, paced};
use share::Share;

/// A killed sandbox must be reported gone by then, or the machinery is broken.
pub(crate) const BURIAL_PATIENCE: Duration = Duration::from_secs(20);

/// What executions are run with; the same for all of an engine.
pub(crate) struct Means {
    pub(crate) config: EngineConfig,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) artifacts: Arc<ArtifactStore>,
    pub(crate) pools: Pools,
    /// The operator's folder that sandboxes see.
    pub(crate) shared: Option<Arc<OwnedFd>>,
    /// Executions that may run at once, those of sessions included.
    pub(crate) admission: Admission,
    /// How many do.
    pub(crate) running: Arc<AtomicUsize>,
}

/// Counts something as running as long as it lives.
pub(crate) struct Running(Arc<AtomicUsize>);

impl Running {
    pub(crate) fn new(means: &Means) -> Self {
        means.running.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&means.running))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One execution to be driven.
pub(crate) struct Job<'a> {
    pub(crate) means: &'a Means,
    pub(crate) record: &'a Arc<Record>,
    pub(crate) spec: &'a ExecutionSpec,
    pub(crate) queued: Duration,
}

/// What is left of a sandbox after the answer.
pub(crate) struct Remains {
    /// Resolves, in whatever way, when nothing is.
    pub(crate) gone: oneshot::Receiver<()>,
    /// The pool counts it until then.
    _busy: Option<Busy>,
}

/// An execution at its end.
pub(crate) type Driven = (Execution, Option<Remains>);

/// Drives one execution to its end.
pub(crate) async fn drive(job: Job<'_>) -> Driven {
    let Job { means, record, spec, queued } = &job;
    record.update(|execution| {
        execution.status = Status::Running;
        execution.metrics.queue_ms = milliseconds(*queued);
    });
    let name = record.id.to_string();
    let begun = Instant::now();
    let (ready, busy) = match means.pools.claim(spec) {
        Some((ready, busy)) => (ready, Some(busy)),
        None => (None, None),
    };
    let started = match ready {
        Some(sandbox) => Ok(sandbox),
        None => tokio::select! {
            started = means.backend.start(SandboxSpec { name: &name, execution: spec, waits: false }) => started,
            // Dropping the start gives the sandbox up; the backend kills what it finds.
            () = record.cancel.cancelled() => return (record.never_ran(means.clock.stamp()), None),
        },
    };
    match started {
        Ok(sandbox) => {
            let (follower, gone) = Follower::new(&job, sandbox, begun);
            (follower.follow().await, Some(Remains { gone, _busy: busy }))
        }
        Err(error) => (never_started(&job, &error), None),
    }
}

fn never_started(job: &Job<'_>, error: &StartError) -> Execution {
    let fault = if matches!(error, StartError::Refused(_)) { Fault::User } else { Fault::Infra };
    tracing::error!(%error, "a sandbox could not be started");
    let error = ExecutionError::of(Outcome::Infra, format!("the sandbox could not be started: {error}"), None);
    job.record.ended_early(job.means.clock.stamp(), Outcome::Infra, Some(fault), error)
}

fn milliseconds(duration: Duration) -> f64 {
    // Microseconds are as fine as these clocks are worth.
    duration.as_micros() as f64 / 1000.0
}

/// What the select loop saw.
enum Seen {
    Frames(std::io::Result<usize>),
    /// The beginning of a line has waited long enough.
    HeldLong,
    Output(Stream),
    Exit(ExitReport),
    Deadline,
    Cancel,
}

/// Where an execution of a session runs.
pub(crate) struct Site<'a> {
    pub(crate) control: Arc<dyn Control>,
    pub(crate) disk: &'a OwnedFd,
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) isolation: &'a BackendReport,
    /// Run as a child of the interpreter, instead of code in it.
    pub(crate) program: Option<Program>,
    /// What the sandbox has used so far.
    pub(crate) counters: &'a (dyn Fn() -> Counters + Sync),
}

/// Runs one execution of a session. The interpreter comes back unless it has ended, or must.
pub(crate) async fn drive_in_session(job: Job<'_>, live: Live, site: Site<'_>) -> (Execution, Option<Live>) {
    job.record.update(|execution| {
        execution.status = Status::Running;
        execution.metrics.queue_ms = milliseconds(job.queued);
        execution.isolation.effective = site.isolation.level.to_string();
        execution.isolation.features = site.isolation.features.clone();
    });
    let Ok(disk) = site.disk.try_clone() else {
        let message = "the server has no descriptor left to reach the session's files".to_owned();
        let error = ExecutionError::of(Outcome::Infra, message, None);
        let stamp = job.means.clock.stamp();
        return (job.record.ended_early(stamp, Outcome::Infra, Some(Fault::Infra), error), Some(live));
    };
    let now = Instant::now();
    let place = (site.owner, None);
    let mut follower = Follower::on(&job, Arc::clone(&site.control), live, disk, place, Mode::Cell, now);
    follower.program = site.program;
    // What threads of earlier executions were refused meanwhile is not this one's.
    follower.control.refusals();
    if site.control.settled().await {
        follower.send(&HostFrame::Settle, None);
    }
    follower.follow_in_session(site.counters).await
}

/// An interpreter that was interrupted has so long to come to itself.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(1);
/// One that is interrupted before it is killed has so long to say where it was.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// It is interrupted again so often meanwhile: code may have swallowed one, or been within a callback that does.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(250);

/// Follows a running sandbox.
struct Follower<'a> {
    job: &'a Job<'a>,
    /// The writer of standard input; it ends with this.
    feeder: JoinSet<()>,
    /// In a session: run as a child of the interpreter, instead of code in it.
    program: Option<Program>,
    control: Arc<dyn Control>,
    live: Live,
    disk: OwnedFd,
    owner: Option<(u32, u32)>,
    /// `None` for one in a session, whose interpreter is through it.
    gate: Option<OwnedFd>,
    runner: bool,
    mode: Mode,
    /// When starting began.
    starting: Instant,
    /// When the user's code began.
    running: Option<Instant>,
    deadline: Instant,
    killed: Option<KillReason>,
    /// It was interrupted and may say where it was.
    last_words: bool,
    /// In a session: an interpreter that does not heed interrupts is given up then.
    given_up: Option<Instant>,
    claim: Option<GuestResult>,
    display_bytes: usize,
    displays: usize,
    output_events: u32,
    held: Held,
    /// It was killed, and counts as lost when it is not gone by then.
    buried_by: Option<Instant>,
    /// Output is not read before this.
    output_after: Instant,
}

impl<'a> Follower<'a> {
    fn new(job: &'a Job<'a>, sandbox: Sandbox, starting: Instant) -> (Self, oneshot::Receiver<()>) {
        let Sandbox { guest, stdin, stdout, stderr, gate, disk, owner, control, exit, gone, isolation } = sandbox;
        job.record.update(|execution| {
            execution.isolation.effective = isolation.level.to_string();
            execution.isolation.features = isolation.features;
        });
        let (frames, to_guest) = match guest {
            Guest::Program => (None, None),
            Guest::Runner(socket) => {
                let (read, write) = UnixStream::into_split(socket);
                (Some(read), Some(ToGuest::AtOnce(write)))
            }
        };
        let live = Live {
            stdout,
            stderr,
            open: [true; 2],
            frames,
            decoder: GuestDecoder::new(MAX_GUEST_PAYLOAD),
            to_guest,
            writers: JoinSet::new(),
            share: Share::new(Instant::now()),
            exit,
        };
        let place = (owner, Some(gate));
        let mut follower = Self::on(job, Arc::from(control), live, disk, place, Mode::Script, starting);
        if !job.spec.stdin.is_empty() || job.spec.stdin_open {
            follower.feeder.spawn(feed(stdin, Arc::clone(job.record)));
        }
        (follower, gone)
    }

    fn on(
        job: &'a Job<'a>,
        control: Arc<dyn Control>,
        live: Live,
        disk: OwnedFd,
        (owner, gate): (Option<(u32, u32)>, Option<OwnedFd>),
        mode: Mode,
        starting: Instant,
    ) -> Self {
        Self {
            job,
            feeder: JoinSet::new(),
            program: None,
            control,
            runner: live.to_guest.is_some(),
            live,
            disk,
            owner,
            gate,
            mode,
            starting,
            running: None,
            deadline: Instant::now() + job.means.config.start_timeout,
            killed: None,
            last_words: false,
            given_up: None,
            claim: None,
            display_bytes: 0,
            displays: 0,
            output_events: 0,
            held: Held::default(),
            buried_by: None,
            output_after: Instant::now(),
        }
    }

    /// As [`Self::follow`], in an interpreter that stays.
    async fn follow_in_session(mut self, counters: &(dyn Fn() -> Counters + Sync)) -> (Execution, Option<Live>) {
        self.make_standing_folders();
        if let Err(error) = files::write_all(&self.disk, self.owner, &self.job.spec.files) {
            return (self.conclude_unprepared(&ExitReport::default(), &error), Some(self.live));
        }
        self.execute();
        // While the guest begins: what it uses until then is next to nothing.
        let before = counters();
        let died = loop {
            match self.next().await {
                Seen::HeldLong => self.tell_held(),
                Seen::Output(stream) => {
                    self.drain(stream);
                }
                Seen::Frames(read) => self.take_frames(read).await,
                Seen::Exit(report) => break Some(report),
                Seen::Deadline => self.press(KillReason::TimedOut),
                Seen::Cancel => self.press(KillReason::Cancelled),
            }
            if self.claim.is_some() {
                break None;
            }
            if self.given_up.is_some_and(|given_up| Instant::now() >= given_up) {
                break Some(ExitReport::default());
            }
        };
        let ended = Instant::now();
        let stays = died.is_none();
        if stays {
            self.drain_both();
            self.job.record.end_of_output();
        } else {
            self.take_the_rest();
        }
        let after = counters();
        let exit = match died {
            // What a program of its own would have ended with.
            None => {
                let code = self.claim.as_ref().map_or(0, |claim| claim.exit_code);
                let ended =
                    if self.program.is_some() && code < 0 { Ended::Signaled(-code) } else { Ended::Exited(code) };
                ExitReport { ended: Some(ended), ..ExitReport::default() }
            }
            Some(report) => report,
        };
        let exit = ExitReport {
            oom_kills: after.oom_kills.saturating_sub(before.oom_kills),
            process_limit_hits: after.process_limit_hits.saturating_sub(before.process_limit_hits),
            memory_peak_bytes: after.memory_peak_bytes,
            cpu_us: after.cpu_us.saturating_sub(before.cpu_us),
            ..exit
        };
        let mut execution = self.conclude(&exit, ended).await;
        execution.interpreter_restarted = !stays;
        (execution, stays.then_some(self.live))
    }

    /// Interrupts what runs in a session; the first reason counts. If that does not help for long the interpreter is given up.
    fn press(&mut self, reason: KillReason) {
        let now = Instant::now();
        self.killed.get_or_insert(reason);
        self.given_up.get_or_insert(now + INTERRUPT_PATIENCE);
        self.deadline = now + INTERRUPT_AGAIN;
        self.control.interrupt();
    }

    async fn follow(mut self) -> Execution {
        if let Err(error) = self.prepare() {
            // Only the disk's size can stand in the way here; the files were checked before.
            self.control.kill();
            let report = self.bury().await;
            return self.conclude_unprepared(&report, &error);
        }
        let report = loop {
            match self.next().await {
                Seen::HeldLong => self.tell_held(),
                Seen::Output(stream) => {
                    self.drain(stream);
                }
                Seen::Frames(read) => self.take_frames(read).await,
                Seen::Exit(report) => break report,
                Seen::Deadline if self.running.is_none() => self.end(KillReason::StartTimeout),
                Seen::Deadline => self.time_out(),
                Seen::Cancel => self.end(KillReason::Cancelled),
            }
        };
        let ended = Instant::now();
        self.take_the_rest();
        self.conclude(&report, ended).await
    }

    /// Ends what has run too long. An interpreter is interrupted first, so that it can say where it was; it has no time for more.
    fn time_out(&mut self) {
        let asked = self.killed.is_none() && self.runner && self.claim.is_none() && self.control.interrupt();
        self.killed.get_or_insert(KillReason::TimedOut);
        self.last_words = asked;
        if asked {
            self.deadline = Instant::now() + LAST_WORDS;
        } else {
            self.kill();
        }
    }

    /// Writes files and lets the program start.
    fn prepare(&mut self) -> std::io::Result<()> {
        // Tens of megabytes into memory at most: quick enough to stay on this thread.
        self.make_standing_folders();
        files::write_all(&self.disk, self.owner, &self.job.spec.files)?;
        if !self.runner {
            self.begin();
        }
        self.gate.as_ref().map_or(Ok(()), open_gate)
    }

    fn make_standing_folders(&self) {
        let Job { means, spec, .. } = self.job;
        files::make_standing_folders(&self.disk, self.owner, means.shared.as_deref(), &spec.code);
    }

    /// The user's code begins now.
    fn begin(&mut self) {
        let now = Instant::now();
        self.running = Some(now);
        self.deadline = now + self.job.spec.timeout;
        let stamp = self.job.means.clock.stamp();
        let id = self.job.record.id.clone();
        self.job.record.update(|execution| {
            execution.started_at = Some(stamp.clone());
            execution.metrics.start_ms = milliseconds(self.starting.elapsed());
        });
        self.job.record.log.push(EventBody::Started { id, at: stamp });
    }

    async fn next(&mut self) -> Seen {
        let stopping = self.killed.is_some();
        // In a session the end is asked for again and again.
        let over = stopping && self.mode == Mode::Script && !self.last_words;
        let now = Instant::now();
        let deadline = if over { self.buried_by.unwrap_or(now + BURIAL_PATIENCE) } else { self.deadline };
        let at_deadline = || if over { Seen::Exit(lost()) } else { Seen::Deadline };
        // Asked for on every turn: the timers behind the futures below are looked at only when nothing else is to be done, and a guest
        // can see to it that something always is. What was written before the end is still there after it.
        if !stopping && self.job.record.cancel.is_cancelled() {
            return Seen::Cancel;
        }
        match self.live.exit.try_recv() {
            Ok(report) => return Seen::Exit(report),
            Err(TryRecvError::Closed) => return Seen::Exit(lost()),
            Err(TryRecvError::Empty) => {}
        }
        if now >= deadline {
            return at_deadline();
        }
        let again = self.live.share.again(now);
        let frames = async {
            let Some(frames) = &self.live.frames else { return std::future::pending().await };
            if let Some(again) = again {
                sleep_until(again.into()).await;
            }
            // Only readiness: the bytes are read after the pipes were drained.
            frames.readable().await.map(|()| 0)
        };
        tokio::select! {
            // Output before frames before the end: the order in which they are to be told.
            biased;
            () = self.job.record.cancel.cancelled(), if !stopping => Seen::Cancel,
            () = sleep_until(deadline.into()) => at_deadline(),
            () = sleep_until(self.held.until.unwrap_or(deadline).into()), if self.held.until.is_some() => Seen::HeldLong,
            () = paced(self.output_after, &self.live.stdout), if self.live.open[0] => Seen::Output(Stream::Stdout),
            () = paced(self.output_after, &self.live.stderr), if self.live.open[1] => Seen::Output(Stream::Stderr),
            read = frames => Seen::Frames(read),
            report = &mut self.live.exit => Seen::Exit(report.unwrap_or_else(|_| lost())),
        }
    }

    /// Ends the sandbox, or what runs in a session; the first reason counts.
    fn end(&mut self, reason: KillReason) {
        if self.mode == Mode::Cell {
            // Once: what comes meanwhile may give the same reason thousands of times.
            if self.killed.is_none() {
                self.press(reason);
            }
            return;
        }
        if self.killed.is_none() {
            tracing::debug!(?reason, "sandbox killed");
            self.killed = Some(reason);
        }
        self.kill();
    }

    /// Has the sandbox killed, once.
    fn kill(&mut self) {
        if self.buried_by.is_none() {
            self.buried_by = Some(Instant::now() + BURIAL_PATIENCE);
            self.control.kill();
        }
    }
}

fn lost() -> ExitReport {
    ExitReport { lost: true, ..ExitReport::default() }
}
