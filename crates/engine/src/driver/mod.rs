//! One execution from its place in the queue to its end: the one task that acts on it.
//!
//! ```text
//! start sandbox -> write files -> open gate -> [runner: ready -> execute -> started] -> follow until it ends -> verdict -> artifacts
//! ```
//!
//! While following, the order of things is kept: before any frame of the guest is taken in, the output pipes are drained, so
//! everything printed before an event is delivered before it; the guest waits for an acknowledgement after a display, so
//! nothing printed after it comes first.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fumehood_wire::{
    Ack, Execute, GuestDecoder, GuestFrame, GuestResult, HostFrame, MAX_GUEST_PAYLOAD, Mode, Program, VERSION,
};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
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
use crate::execution::{Execution, ExecutionError, Fault, Metrics, Notice, Outcome, Output, Status};
use crate::files;
use crate::pool::{Busy, Pool};
use crate::record::{Record, Stream, output_size};
use crate::spec::{ExecutionSpec, ResultFormat};
use crate::verdict::{self, KillReason, Observed, Verdict};

mod live;

pub(crate) use live::Live;

use live::{FRAMES_AHEAD, Letter, ToGuest, feed, send_frames, stdin_pipe};

/// Name of the code in tracebacks.
const CODE_NAME: &str = "<code>";

/// Read from a pipe at a time; the usual capacity of one.
const PIPE_CHUNK: usize = 64 << 10;

thread_local! {
    /// What is read goes through here: clearing so much for every look into a pipe, most of which find nothing, takes longer than the rest of it.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PIPE_CHUNK]);
}

/// Most displays of one execution, however small.
const MOST_DISPLAYS: usize = 1000;

/// How long the beginning of a line waits for its end.
const LINE_PATIENCE: Duration = Duration::from_millis(2);

/// After so many events of output, small pieces are gathered for a moment before they are read: each event costs more memory than its
/// text, and a program could write one byte at a time.
const EVENTS_BEFORE_PACING: u32 = 1000;
/// How long pieces are gathered.
const PACE: Duration = Duration::from_millis(2);
/// A piece from this size on is not small.
const LARGE_PIECE: usize = 4096;

/// A killed sandbox must be reported gone by then, or the machinery is broken.
pub(crate) const BURIAL_PATIENCE: Duration = Duration::from_secs(20);

/// What executions are run with; the same for all of an engine.
pub(crate) struct Means {
    pub(crate) config: EngineConfig,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) artifacts: Arc<ArtifactStore>,
    pub(crate) pool: Option<Arc<Pool>>,
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
    let (ready, busy) = match means.pool.as_ref().and_then(|pool| pool.claim(spec)) {
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
    Stdout,
    Stderr,
    Exit(ExitReport),
    Deadline,
    Cancel,
}

/// Output that waits for the rest of its line; of one stream at a time, so that the order across streams is kept.
struct Held {
    stream: Stream,
    bytes: Vec<u8>,
    /// Told then at the latest; `None` when nothing is held.
    until: Option<Instant>,
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
            held: Held { stream: Stream::Stdout, bytes: Vec::new(), until: None },
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
                Seen::Stdout => self.drain(Stream::Stdout),
                Seen::Stderr => self.drain(Stream::Stderr),
                Seen::Frames(read) => self.take_frames(read),
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
                Seen::Stdout => self.drain(Stream::Stdout),
                Seen::Stderr => self.drain(Stream::Stderr),
                Seen::Frames(read) => self.take_frames(read),
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
            self.control.kill();
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
        let frames = async {
            match &self.live.frames {
                // Only readiness: the bytes are read after the pipes were drained.
                Some(frames) => frames.readable().await.map(|()| 0),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Output before frames before the end: the order in which they are to be told.
            biased;
            () = self.job.record.cancel.cancelled(), if !stopping => Seen::Cancel,
            () = sleep_until(self.deadline.into()), if !over => Seen::Deadline,
            () = sleep_until(self.held.until.unwrap_or(self.deadline).into()), if self.held.until.is_some() => Seen::HeldLong,
            () = paced(self.output_after, &self.live.stdout), if self.live.open[0] => Seen::Stdout,
            () = paced(self.output_after, &self.live.stderr), if self.live.open[1] => Seen::Stderr,
            read = frames => Seen::Frames(read),
            report = &mut self.live.exit => Seen::Exit(report.unwrap_or_else(|_| lost())),
            () = tokio::time::sleep(BURIAL_PATIENCE), if over => Seen::Exit(lost()),
        }
    }

    /// Ends the sandbox; the first reason counts.
    fn end(&mut self, reason: KillReason) {
        if self.mode == Mode::Cell {
            return self.press(reason);
        }
        if self.killed.is_none() {
            tracing::debug!(?reason, "sandbox killed");
            self.killed = Some(reason);
        }
        self.control.kill();
    }

    /// Reads what is in a pipe now, at most twice its usual capacity, so that a program that never stops writing does not keep this
    /// from anything else.
    fn drain(&mut self, stream: Stream) {
        SCRATCH.with_borrow_mut(|buffer| self.drain_through(stream, buffer));
    }

    fn drain_through(&mut self, stream: Stream, buffer: &mut [u8]) {
        for _ in 0..2 {
            let (pipe, index) = match stream {
                Stream::Stdout => (&self.live.stdout, 0),
                Stream::Stderr => (&self.live.stderr, 1),
            };
            if !self.live.open[index] {
                return;
            }
            // Through `try_read` first, which clears the readiness; then directly, since data may have come without a new
            // readiness having been seen.
            let read = match pipe.try_read(buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    rustix::io::read(pipe.as_fd(), &mut *buffer).map_err(std::io::Error::from)
                }
                other => other,
            };
            match read {
                Ok(0) => self.live.open[index] = false,
                Ok(length) => {
                    self.hold(stream, &buffer[..length]);
                    if length < PIPE_CHUNK {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => self.live.open[index] = false,
            }
        }
    }

    /// Drains both pipes and tells everything: what comes next is to come after it.
    fn drain_both(&mut self) {
        self.drain(Stream::Stdout);
        self.drain(Stream::Stderr);
        self.tell_held();
    }

    /// Takes in a piece of output. A piece that ends within a line waits a moment for the rest: `print` writes the text and the end of the
    /// line one after the other, and nobody wants them as two events.
    fn hold(&mut self, stream: Stream, piece: &[u8]) {
        if self.held.stream != stream {
            self.tell_held();
            self.held.stream = stream;
        }
        self.held.bytes.extend_from_slice(piece);
        if self.held.bytes.ends_with(b"\n") || self.held.bytes.len() >= LARGE_PIECE {
            self.tell_held();
        } else if self.held.until.is_none() {
            self.held.until = Some(Instant::now() + LINE_PATIENCE);
        }
    }

    /// Tells what is held.
    fn tell_held(&mut self) {
        self.held.until = None;
        if self.held.bytes.is_empty() {
            return;
        }
        let length = self.held.bytes.len();
        let produced = self.job.record.output(self.held.stream, &self.held.bytes);
        self.held.bytes.clear();
        if produced > self.job.means.config.output_hard_bytes {
            self.end(KillReason::OutputLimit);
        }
        self.output_events = self.output_events.saturating_add(1);
        if self.output_events > EVENTS_BEFORE_PACING && length < LARGE_PIECE {
            self.output_after = Instant::now() + PACE;
        }
    }

    /// Reads what the guest sent and takes in each frame, output first.
    fn take_frames(&mut self, readiness: std::io::Result<usize>) {
        let live = &mut self.live;
        let read = match (readiness, &live.frames) {
            (Ok(_), Some(frames)) => SCRATCH.with_borrow_mut(|buffer| {
                frames.try_read(buffer).inspect(|length| live.decoder.push(&buffer[..*length]))
            }),
            _ => Ok(0),
        };
        match read {
            // The interpreter closed its end; its exit tells the rest.
            Ok(0) => self.live.frames = None,
            Ok(_) => self.take_decoded(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.live.frames = None,
        }
    }

    fn take_decoded(&mut self) {
        loop {
            match self.live.decoder.next_frame() {
                Ok(None) => return,
                Ok(Some(frame)) => {
                    self.drain_both();
                    self.take(frame);
                }
                Err(error) => {
                    self.live.frames = None;
                    self.end(KillReason::BrokenProtocol(error.to_string()));
                    return;
                }
            }
        }
    }

    fn take(&mut self, frame: GuestFrame) {
        match frame {
            GuestFrame::Ready(_) if self.running.is_none() => self.execute(),
            // Only the first of each counts: what comes twice comes from the user's code.
            GuestFrame::Ready(_) => {}
            GuestFrame::Sync(sync) => self.acknowledge(sync.seq),
            GuestFrame::Display(display) => {
                self.display(Output { mime: display.mime, metadata: display.metadata });
                if display.seq != 0 {
                    self.acknowledge(display.seq);
                }
            }
            GuestFrame::Warning(warning) => {
                self.job.record.warn(Notice { code: bounded(warning.code), message: bounded(warning.message) });
            }
            GuestFrame::Result(result) => {
                if self.claim.is_none() {
                    // The runner's last word: it leaves now, with this code. Files that are to be collected must be at rest first.
                    if let (Ok(code), None, Mode::Script) =
                        (u8::try_from(result.exit_code), &self.job.spec.collect, self.mode)
                    {
                        self.control.conclude(code);
                    }
                    self.claim = Some(*result);
                    if self.last_words {
                        self.time_out();
                    }
                }
            }
        }
    }

    fn execute(&mut self) {
        // A program of its own has a pipe already, and one that needs no more than it was given needs none.
        let pipe = match self.mode == Mode::Cell && self.job.spec.stdin_open {
            true => match stdin_pipe() {
                Ok((to_guest, sender)) => {
                    self.feeder.spawn(feed(sender, Arc::clone(self.job.record)));
                    Some(to_guest)
                }
                Err(error) => {
                    let message = format!("standard input could not be kept open: {error}");
                    self.job.record.warn(Notice { code: "stdin_closed".to_owned(), message });
                    self.job.record.input.close();
                    None
                }
            },
            false => None,
        };
        let (spec, config) = (self.job.spec, &self.job.means.config);
        let execute = Execute {
            version: VERSION,
            id: self.job.record.id.to_string(),
            code: if self.program.is_some() { String::new() } else { spec.code.clone() },
            filename: CODE_NAME.to_owned(),
            mode: self.mode,
            has_input: spec.input.is_some(),
            input: spec.input.clone().unwrap_or_default(),
            result_var: spec.result_var.clone(),
            preview_rows: spec.preview_rows,
            markdown: spec.format == ResultFormat::Markdown,
            max_variables: config.max_variables,
            max_result_bytes: config.max_result_bytes,
            max_display_bytes: config.max_display_bytes as u64 / 4,
            network: false,
            // A program of its own has a pipe for it, and starts where it is to be.
            stdin: if self.mode == Mode::Cell && pipe.is_none() {
                String::from_utf8_lossy(&spec.stdin).into_owned()
            } else {
                String::new()
            },
            stdin_pipe: pipe.is_some(),
            program: self.program.clone(),
            cwd: (self.mode == Mode::Cell && !spec.cwd.is_empty()).then(|| spec.cwd.clone()),
            env: spec.env.clone(),
        };
        self.begin();
        self.send(&HostFrame::Execute(Box::new(execute)), pipe);
    }

    fn acknowledge(&mut self, seq: u64) {
        self.send(&HostFrame::Ack(Ack { seq }), None);
    }

    fn send(&mut self, frame: &HostFrame, fd: Option<OwnedFd>) {
        let Ok(bytes) = frame.encode() else { return };
        let mut letter = Letter { bytes, fd };
        if let Some(ToGuest::AtOnce(socket)) = &self.live.to_guest {
            match letter.send_some(socket.as_ref()) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // A guest that is gone needs no frames.
                Err(_) => return,
            }
        }
        self.queue(letter);
    }

    /// For a guest that does not read just now.
    fn queue(&mut self, letter: Letter) {
        let queue = match self.live.to_guest.take() {
            Some(ToGuest::AtOnce(socket)) => {
                let (sender, receiver) = mpsc::channel(FRAMES_AHEAD);
                self.live.writers.spawn(send_frames(socket, receiver));
                sender
            }
            Some(ToGuest::Queued(queue)) => queue,
            None => return,
        };
        match queue.try_send(letter) {
            // A guest that is gone needs no frames.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            // It asks for acknowledgements without reading them: left alone, it could fill this host's memory.
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.end(KillReason::BrokenProtocol("acknowledgements are not read".to_owned()));
            }
        }
        self.live.to_guest = Some(ToGuest::Queued(queue));
    }

    fn display(&mut self, output: Output) {
        let size = output_size(&output);
        let most = self.job.means.config.max_display_bytes;
        if self.display_bytes + size > most || self.displays == MOST_DISPLAYS {
            let message = format!("displays beyond {} MB or {MOST_DISPLAYS} in number are not kept", most >> 20);
            self.job.record.warn(Notice { code: "displays_truncated".to_owned(), message });
            return;
        }
        self.display_bytes += size;
        self.displays += 1;
        self.job.record.display(output);
    }

    /// After the end of every process: whatever is still in the pipes and the socket.
    fn take_the_rest(&mut self) {
        while let Some(frames) = &self.live.frames {
            let decoder = &mut self.live.decoder;
            let read = SCRATCH.with_borrow_mut(|buffer| {
                let read = rustix::io::read(AsRef::<UnixStream>::as_ref(frames).as_fd(), &mut *buffer);
                read.inspect(|length| decoder.push(&buffer[..*length]))
            });
            match read {
                Ok(0) => self.live.frames = None,
                Ok(_) => self.take_decoded(),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.live.frames = None,
            }
        }
        // All writers are dead, so these end; bounded all the same, by more than any pipe holds.
        for _ in 0..64 {
            if self.live.open == [false; 2] {
                break;
            }
            self.drain_both();
        }
        self.job.record.end_of_output();
    }

    async fn bury(&mut self) -> ExitReport {
        match tokio::time::timeout(BURIAL_PATIENCE, &mut self.live.exit).await {
            Ok(Ok(report)) => report,
            _ => lost(),
        }
    }

    fn conclude_unprepared(&mut self, report: &ExitReport, error: &std::io::Error) -> Execution {
        self.job.record.end_of_output();
        let no_room = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        let (outcome, fault) = match (no_room, self.mode) {
            (true, _) => (Outcome::DiskLimit, Fault::Limit),
            // Code of the session has put something else in their place.
            (false, Mode::Cell) => (Outcome::Exception, Fault::User),
            (false, Mode::Script) => (Outcome::Infra, Fault::Infra),
        };
        let message = match &report.failed_step {
            Some(failed) => format!("the sandbox could not be made: could not {}: {}", failed.step, failed.cause),
            None => format!("the given files could not be written into the workspace: {error}"),
        };
        let hint = no_room.then_some("raise limits.disk_mb or send less");
        let error = ExecutionError::of(outcome, message, hint);
        self.job.record.ended_early(self.job.means.clock.stamp(), outcome, Some(fault), error)
    }

    async fn conclude(&mut self, report: &ExitReport, ended: Instant) -> Execution {
        let Job { means, record, spec, .. } = self.job;
        let refused = self.control.refusals();
        let Verdict { status, outcome, fault, exit_code, error, denials } = verdict::decide(&Observed {
            refused: &refused,
            killed: self.killed.as_ref(),
            exit: report,
            claim: self.claim.as_ref(),
            runner: self.runner,
            begun: self.running.is_some(),
            disk_full: files::is_full(&self.disk),
            timeout: spec.timeout,
            limits: &spec.limits,
            output_hard_bytes: means.config.output_hard_bytes,
        });
        if self.runner && self.running.is_some() && self.claim.is_none() && outcome == Outcome::Exited {
            record.warn(Notice {
                code: "left_early".to_owned(),
                message: "the interpreter left before the end of the code (os._exit or similar), so there is no result"
                    .to_owned(),
            });
        }
        if report.oom_kills > 0 && outcome != Outcome::OomKilled {
            record.warn(Notice {
                code: "process_oom_killed".to_owned(),
                message: format!(
                    "the kernel ended {} processes of this run for reaching limits.memory_mb",
                    report.oom_kills
                ),
            });
        }
        let claim = self.claim.take().unwrap_or_default();
        for warning in claim.warnings {
            record.warn(Notice { code: bounded(warning.code), message: bounded(warning.message) });
        }
        let artifacts = self.collect().await;
        let duration = self.running.map_or(Duration::ZERO, |running| ended - running);
        let draft = record.draft();
        Execution {
            status,
            outcome: Some(outcome),
            exit_code,
            fault,
            error,
            denials,
            result: claim.result,
            dataframe: claim.dataframe,
            variables: claim.variables,
            artifacts,
            metrics: Metrics {
                queue_ms: draft.metrics.queue_ms,
                start_ms: draft.metrics.start_ms,
                duration_ms: milliseconds(duration),
                cpu_ms: report.cpu_us as f64 / 1000.0,
                memory_peak_mb: (report.memory_peak_bytes as f64 / f64::from(1 << 20) * 100.0).round() / 100.0,
                bytes_read: report.bytes_read,
                bytes_written: report.bytes_written,
                processes_peak: report.processes_peak,
            },
            finished_at: Some(means.clock.stamp()),
            ..draft
        }
    }

    async fn collect(&mut self) -> Vec<crate::execution::Artifact> {
        let Job { means, record, spec, .. } = self.job;
        let Some(wanted) = spec.collect.clone() else { return Vec::new() };
        let Ok(disk) = self.disk.try_clone() else { return Vec::new() };
        let (id, store, most) = (record.id.clone(), means.artifacts.clone(), means.config.max_artifact_bytes);
        let collected = tokio::task::spawn_blocking(move || store.collect(&id, &disk, &wanted, most)).await;
        let failed = match collected {
            Ok(Ok((artifacts, notices))) => {
                notices.into_iter().for_each(|notice| record.warn(notice));
                return artifacts;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::error!(error = failed, "artifacts could not be stored");
        let message = "the files could not be stored on the server's disk".to_owned();
        record.warn(Notice { code: "artifacts_incomplete".to_owned(), message });
        Vec::new()
    }
}

fn lost() -> ExitReport {
    ExitReport { lost: true, ..ExitReport::default() }
}

/// Text of the guest's that is to be kept: short.
fn bounded(mut text: String) -> String {
    const MOST: usize = 2000;
    text.truncate(text.floor_char_boundary(MOST));
    text
}

/// Waits until a pipe is to be read.
async fn paced(after: Instant, pipe: &pipe::Receiver) {
    if after > Instant::now() {
        // Only then: a timer that is over at once wakes the thread that watches timers for nothing.
        sleep_until(after.into()).await;
    }
    // An error shows when reading.
    pipe.readable().await.ok();
}
