//! The engine of one node: admits executions, runs each in a fresh sandbox, keeps what became of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::admission::{Admission, Entrance, Full, Place};
use crate::artifacts::ArtifactStore;
use crate::backend::Backend;
use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::driver::{self, Job, Means, Remains, Running};
use crate::event::{EventBody, EventLog};
use crate::execution::{Execution, Status};
use crate::ids::{ExecutionId, IdSource, SessionId, TenantId};
use crate::input::InputError;
use crate::output::OutputPage;
use crate::pool::PoolStatus;
use crate::pools::Pools;
use crate::quota::{Accounting, Claim, Held, OverQuota};
use crate::record::{Completion, Record, Stream};
use crate::session::{Session, SessionError};
use crate::spec::{ExecutionSpec, FieldError, LimitPolicy, SessionSpec};
use crate::template::Template;

/// Why an execution was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full; try again after a while.
    #[error("{queued} executions are waiting already, which is the most this server queues")]
    Busy {
        /// How many wait.
        queued: usize,
        /// When to try again.
        retry_after: Duration,
    },
    /// No more sessions fit; close one, or try again after a while.
    #[error("{open} sessions are open already, which is the most this server keeps")]
    TooManySessions {
        /// How many are open.
        open: usize,
        /// When to try again.
        retry_after: Duration,
    },
    /// The session it is for cannot run it.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Its owner has used up what it may.
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// This node cannot do what the request asks for.
    #[error(transparent)]
    Refused(#[from] FieldError),
}

/// An accepted execution.
#[derive(Debug, Clone)]
pub struct Ticket {
    /// Its id.
    pub id: ExecutionId,
    /// Its events.
    pub events: EventLog,
}

/// An execution that has ended, for whoever keeps it longer than the engine does.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Whose it is.
    pub owner: TenantId,
    /// What became of it.
    pub execution: Arc<Execution>,
    /// All that is kept of standard output and standard error, when the execution shows less.
    pub whole: Option<Arc<[String; 2]>>,
}

/// Who is told of each execution that has ended.
pub trait Archive: Send + Sync {
    /// Takes it over. Called on the way to the answer: it must not wait for anything.
    fn keep(&self, ended: Ended);
}

/// Which executions to list.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Only those of this status.
    pub status: Option<Status>,
    /// At most so many, 1 to 1000.
    pub limit: usize,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those of this owner.
    pub owner: Option<TenantId>,
    /// Only those older than this one (the cursor of the page before).
    pub before: Option<ExecutionId>,
}

/// How busy the engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Executions that have a place.
    pub running: usize,
    /// Executions that wait for one.
    pub queued: usize,
    /// Places.
    pub capacity: usize,
    /// Places that whoever comes next would find. One is taken from the moment that an execution is accepted, before it counts as running.
    pub free: usize,
    /// Sessions that have not ended.
    pub sessions: usize,
    /// Whether new executions are refused because of shutdown.
    pub draining: bool,
}

/// The engine. Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    means: Arc<Means>,
    sessions: Mutex<BTreeMap<SessionId, Arc<Session>>>,
    ids: Arc<dyn IdSource>,
    records: Mutex<Records>,
    accounting: OnceLock<Arc<dyn Accounting>>,
    draining: AtomicBool,
    ended: Notify,
    archive: OnceLock<Arc<dyn Archive>>,
}

fn open_sessions(sessions: &BTreeMap<SessionId, Arc<Session>>) -> usize {
    sessions.values().filter(|session| !session.state().is_final()).count()
}

/// What an execution holds until nothing is left of its sandbox, which may be after its answer: others must not get the memory before.
struct Rest {
    remains: Option<Remains>,
    _place: Place,
    _running: Running,
}

impl Rest {
    async fn gone(self) {
        let Some(mut remains) = self.remains else { return };
        if tokio::time::timeout(driver::BURIAL_PATIENCE, &mut remains.gone).await.is_err() {
            tracing::error!("a sandbox that has ended is still not gone; its place is given to others all the same");
        }
    }
}

#[derive(Default)]
struct Records {
    by_id: BTreeMap<ExecutionId, Arc<Record>>,
    finished_bytes: usize,
    finished: std::collections::VecDeque<(ExecutionId, usize)>,
}

impl Engine {
    /// An engine on one backend. Must be called on a tokio runtime when it has a pool.
    ///
    /// # Errors
    /// When the folder for artifacts cannot be made, or that which sandboxes see cannot be opened.
    pub fn new(
        config: EngineConfig,
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> std::io::Result<Self> {
        let artifacts = Arc::new(ArtifactStore::open(&config.artifacts_dir, config.keep_artifact_bytes)?);
        let shared =
            config.shared_dir.as_ref().map(|folder| File::open(folder).map(|folder| Arc::new(OwnedFd::from(folder))));
        let shared = shared.transpose()?;
        let pools = Pools::start(config.pool.clone(), Arc::clone(&backend));
        Ok(Self(Arc::new(Inner {
            means: Arc::new(Means {
                admission: Admission::new(config.max_concurrent, mebibytes(config.memory_bytes)),
                running: Arc::default(),
                config,
                backend,
                clock,
                artifacts,
                pools,
                shared,
            }),
            sessions: Mutex::default(),
            ids,
            records: Mutex::default(),
            accounting: OnceLock::new(),
            draining: AtomicBool::new(false),
            ended: Notify::new(),
            archive: OnceLock::new(),
        })))
    }

    /// Has every execution that ends told to `archive`, which decides from then on how long artifacts are kept. Only the first call counts.
    pub fn archive_in(&self, archive: Arc<dyn Archive>) {
        self.0.archive.set(archive).ok();
    }

    /// The clock that executions are stamped by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.means.clock
    }

    /// Artifacts of executions, those included that the engine itself remembers no longer.
    #[must_use]
    pub fn artifacts(&self) -> &ArtifactStore {
        &self.0.means.artifacts
    }

    /// Whether an execution of this kind would be accepted, were there a place.
    ///
    /// # Errors
    /// Why not.
    pub fn examine(&self, spec: &ExecutionSpec) -> Result<(), SubmitError> {
        let inner = &self.0;
        if inner.draining.load(Ordering::Acquire) {
            return Err(SubmitError::Draining);
        }
        inner.means.backend.accepts(spec)?;
        let (wanted, most) = (mebibytes(spec.limits.memory_bytes), mebibytes(inner.means.config.memory_bytes));
        if wanted > most {
            let message = format!("must be at most {most}, which is all that this node gives to executions at once");
            return Err(FieldError::new("limits.memory_mb", message).into());
        }
        Ok(())
    }

    /// An execution as it is before it is accepted, with an id of its own; nothing is kept of it here.
    #[must_use]
    pub fn draft(&self, spec: &ExecutionSpec, session: Option<SessionId>) -> Execution {
        Record::new(self.0.ids.execution(), session, spec, self.0.means.clock.stamp()).draft()
    }

    /// Has somebody keep the books. Only the first is heard, and only of what begins after this.
    pub fn keep_books(&self, accounting: Arc<dyn Accounting>) {
        self.0.accounting.set(accounting).ok();
    }

    fn admit(&self, owner: &TenantId, claim: Claim, held: &dyn Fn(Held) -> u64) -> Result<(), OverQuota> {
        let admitted = self.0.accounting.get().map_or(Ok(()), |accounting| accounting.admit(owner, claim, held));
        if admitted.is_err() {
            metrics::counter!("fumehood_executions_refused_total", "reason" => "quota").increment(1);
        }
        admitted
    }

    fn undo(&self, owner: &TenantId, claim: Claim) {
        if let Some(accounting) = self.0.accounting.get() {
            accounting.undo(owner, claim);
        }
    }

    /// Accepts an execution; it runs as soon as there is a place. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// When it is refused; nothing ran then and nothing is kept.
    pub fn submit(&self, spec: ExecutionSpec) -> Result<Ticket, SubmitError> {
        self.submit_as(self.0.ids.execution(), self.0.means.clock.stamp(), Duration::ZERO, spec)
    }

    /// The same for an execution that has its id already, was accepted at `created_at` and has waited for so long elsewhere.
    ///
    /// # Errors
    /// When it is refused; nothing ran then and nothing is kept.
    pub fn submit_as(
        &self,
        id: ExecutionId,
        created_at: String,
        waited: Duration,
        spec: ExecutionSpec,
    ) -> Result<Ticket, SubmitError> {
        let inner = &self.0;
        self.examine(&spec)?;
        self.admit(&spec.owner, Claim::Execution, &|what| self.held_by(&spec.owner, what))?;
        let wanted = mebibytes(spec.limits.memory_bytes);
        let entrance = inner.means.admission.enter(&spec.owner, wanted, inner.means.config.queue_size);
        let entrance = entrance.map_err(|Full { waiting: queued }| {
            self.undo(&spec.owner, Claim::Execution);
            metrics::counter!("fumehood_executions_refused_total", "reason" => "queue_full").increment(1);
            SubmitError::Busy { queued, retry_after: Duration::from_secs(1) }
        })?;
        let record = Arc::new(Record::new(id.clone(), None, &spec, created_at));
        // An earlier attempt at the same one.
        self.forget(&id);
        inner.records.lock().by_id.insert(id.clone(), Arc::clone(&record));
        let ticket = Ticket { id, events: record.log.clone() };
        let engine = self.clone();
        let now = Instant::now();
        let accepted = now.checked_sub(waited).unwrap_or(now);
        let run = async move {
            let (kept, runner) = (Arc::clone(&record), engine.clone());
            let run = async move { runner.run(&record, &spec, entrance, accepted).await };
            // In a task of its own, so that even a bug in it ends in an outcome and nobody waits for ever.
            let ended = tokio::spawn(tracing::Instrument::in_current_span(run)).await;
            let (execution, rest) = ended.unwrap_or_else(|error| {
                tracing::error!(%error, "the task of an execution broke off");
                (kept.broke_off(engine.0.means.clock.stamp()), None)
            });
            engine.finish(&kept, execution);
            if let Some(rest) = rest {
                rest.gone().await;
            }
        };
        tokio::spawn(tracing::Instrument::in_current_span(run));
        Ok(ticket)
    }

    /// Opens a session. It starts by itself; executions wait until it has. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// When it is refused; nothing is kept then.
    pub fn open_session(&self, spec: SessionSpec) -> Result<Arc<Session>, SubmitError> {
        self.open_session_as(self.session_id(), spec)
    }

    /// An id for a session to come.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        self.0.ids.session()
    }

    /// The same for a session that has its id already.
    ///
    /// # Errors
    /// When it is refused; nothing is kept then.
    pub fn open_session_as(&self, id: SessionId, spec: SessionSpec) -> Result<Arc<Session>, SubmitError> {
        let inner = &self.0;
        if inner.draining.load(Ordering::Acquire) {
            return Err(SubmitError::Draining);
        }
        inner.means.backend.accepts(&spec.base)?;
        let mut sessions = inner.sessions.lock();
        let open = open_sessions(&sessions);
        if open >= inner.means.config.max_sessions {
            metrics::counter!("fumehood_sessions_refused_total").increment(1);
            return Err(SubmitError::TooManySessions { open, retry_after: Duration::from_secs(10) });
        }
        // Those that ended are kept for a while, so that a caller learns why; the oldest go first.
        while sessions.len() >= 2 * inner.means.config.max_sessions {
            let Some(oldest) =
                sessions.iter().find(|(_, session)| session.state().is_final()).map(|(id, _)| id.clone())
            else {
                break;
            };
            sessions.remove(&oldest);
        }
        let (owner, disk_bytes) = (spec.base.owner.clone(), spec.base.limits.disk_bytes);
        self.admit(&owner, Claim::Session { disk_bytes }, &|what| self.held_with(&sessions, &owner, what))?;
        let books = inner.accounting.get().cloned();
        let session = Session::start(id, spec, Arc::clone(&inner.means), move |session| {
            if let Some(books) = books {
                books.session_ended(session.owner(), &session.info());
            }
        });
        sessions.insert(session.id.clone(), Arc::clone(&session));
        Ok(session)
    }

    /// A session by its id, ended ones included for a while.
    #[must_use]
    pub fn session(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.0.sessions.lock().get(id).cloned()
    }

    /// All sessions, newest first, ended ones included for a while.
    #[must_use]
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.0.sessions.lock().values().rev().cloned().collect()
    }

    /// Accepts an execution in a session, after those that run and wait there; it is its session's owner's. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// When it is refused; nothing ran then and nothing is kept.
    pub fn submit_to(&self, session: &Session, spec: ExecutionSpec, wait: bool) -> Result<Ticket, SubmitError> {
        self.submit_to_as(self.0.ids.execution(), session, spec, wait)
    }

    /// The same for an execution that has its id already.
    ///
    /// # Errors
    /// When it is refused; nothing ran then and nothing is kept.
    pub fn submit_to_as(
        &self,
        id: ExecutionId,
        session: &Session,
        spec: ExecutionSpec,
        wait: bool,
    ) -> Result<Ticket, SubmitError> {
        let inner = &self.0;
        let spec = ExecutionSpec { owner: session.owner().clone(), ..spec };
        if inner.draining.load(Ordering::Acquire) {
            return Err(SubmitError::Draining);
        }
        inner.means.backend.accepts(&spec)?;
        let queued = session.queued();
        if queued >= inner.means.config.queue_size {
            metrics::counter!("fumehood_executions_refused_total", "reason" => "queue_full").increment(1);
            return Err(SubmitError::Busy { queued, retry_after: Duration::from_secs(1) });
        }
        self.admit(&spec.owner, Claim::InSession, &|what| self.held_by(&spec.owner, what))?;
        let record = Arc::new(Record::new(id.clone(), Some(session.id.clone()), &spec, inner.means.clock.stamp()));
        let engine = self.clone();
        let done = Completion::new(Arc::clone(&record), move |record, execution| {
            engine.finish(record, execution.unwrap_or_else(|| record.broke_off(engine.0.means.clock.stamp())));
        });
        let engine = self.clone();
        record.when_cancelled_waiting(move |record| {
            engine.finish(record, record.never_ran(engine.0.means.clock.stamp()));
        });
        // Before it can end.
        inner.records.lock().by_id.insert(id.clone(), Arc::clone(&record));
        if let Err(refused) = session.execute(spec, wait, done) {
            inner.records.lock().by_id.remove(&id);
            // What would end it holds it.
            record.begin();
            self.undo(&record.owner, Claim::InSession);
            return Err(refused.into());
        }
        Ok(Ticket { id, events: record.log.clone() })
    }

    async fn run(
        &self,
        record: &Arc<Record>,
        spec: &ExecutionSpec,
        entrance: Entrance,
        accepted: Instant,
    ) -> (Execution, Option<Rest>) {
        let inner = &self.0;
        let place = tokio::select! {
            biased;
            () = record.cancel.cancelled() => None,
            place = entrance => Some(place),
        };
        let Some(place) = place else { return (record.never_ran(inner.means.clock.stamp()), None) };
        let running = Running::new(&inner.means);
        let job = Job { means: &inner.means, record, spec, queued: accepted.elapsed() };
        let (execution, remains) = driver::drive(job).await;
        (execution, Some(Rest { remains, _place: place, _running: running }))
    }

    fn finish(&self, record: &Record, execution: Execution) {
        let inner = &self.0;
        if !execution.status.is_final() || !record.status().may_become(execution.status) {
            let (before, after) = (record.status(), execution.status);
            tracing::error!(execution = %record.id, ?before, ?after, "an end of an execution is refused");
            return;
        }
        let outcome = execution.outcome.map_or("none", |outcome| outcome.as_str());
        metrics::counter!("fumehood_executions_total", "outcome" => outcome).increment(1);
        metrics::histogram!("fumehood_execution_duration_seconds").record(execution.metrics.duration_ms / 1e3);
        metrics::histogram!("fumehood_execution_start_seconds").record(execution.metrics.start_ms / 1e3);
        tracing::info!(
            execution = %execution.id,
            outcome,
            exit_code = execution.exit_code,
            duration_ms = execution.metrics.duration_ms,
            start_ms = execution.metrics.start_ms,
            memory_peak_mb = execution.metrics.memory_peak_mb,
            "execution ended"
        );
        let id = execution.id.clone();
        let mut execution = execution;
        record.within_budget(&mut execution);
        let execution = Arc::new(execution);
        // Before its caller knows, who may come again at once.
        if let Some(accounting) = inner.accounting.get() {
            accounting.execution_ended(&record.owner, &execution);
        }
        record.finish(Arc::clone(&execution));
        let archive = inner.archive.get();
        if let Some(archive) = archive {
            archive.keep(record.ended(Arc::clone(&execution)));
        }
        record.log.push(EventBody::Result(execution));
        let evicted = inner.records.lock().retain_within(id, record.size(), &inner.means.config);
        if archive.is_none() {
            for id in evicted {
                inner.means.artifacts.remove(&id);
            }
        }
        inner.ended.notify_waiters();
    }

    /// What there is to keep of an execution; `None` until it has ended, and when the engine has forgotten it.
    #[must_use]
    pub fn ended(&self, id: &ExecutionId) -> Option<Ended> {
        let record = self.0.records.lock().by_id.get(id).cloned()?;
        let execution = record.snapshot();
        execution.status.is_final().then(|| record.ended(execution))
    }

    /// Forgets an execution that has ended, with its artifacts. Whether there was one.
    pub fn forget(&self, id: &ExecutionId) -> bool {
        let mut records = self.0.records.lock();
        if !records.by_id.get(id).is_some_and(|record| record.status().is_final()) {
            return false;
        }
        records.by_id.remove(id);
        if let Some(at) = records.finished.iter().position(|(finished, _)| finished == id)
            && let Some((_, bytes)) = records.finished.remove(at)
        {
            records.finished_bytes -= bytes;
        }
        drop(records);
        self.0.means.artifacts.remove(id);
        true
    }

    /// The execution as it is now, output so far included.
    #[must_use]
    pub fn get(&self, id: &ExecutionId) -> Option<Arc<Execution>> {
        let record = self.0.records.lock().by_id.get(id).cloned()?;
        Some(record.snapshot())
    }

    /// A page of what is kept of one of its streams; `None` when there is no such execution.
    #[must_use]
    pub fn output(&self, id: &ExecutionId, stream: Stream, offset: usize, limit: usize) -> Option<OutputPage> {
        let record = self.0.records.lock().by_id.get(id).cloned()?;
        Some(record.page(stream, offset, limit))
    }

    /// Its events.
    #[must_use]
    pub fn events(&self, id: &ExecutionId) -> Option<EventLog> {
        self.0.records.lock().by_id.get(id).map(|record| record.log.clone())
    }

    /// Executions, newest first, and the cursor of the next page.
    #[must_use]
    pub fn list(&self, filter: &ListFilter) -> (Vec<Arc<Execution>>, Option<ExecutionId>) {
        let records = self.0.records.lock();
        let mut page = Vec::new();
        for (id, record) in records.by_id.iter().rev() {
            if filter.before.as_ref().is_some_and(|before| id >= before) {
                continue;
            }
            if filter.owner.as_ref().is_some_and(|owner| record.owner != *owner) {
                continue;
            }
            let of_session = filter.session.as_ref().is_none_or(|id| record.session().as_ref() == Some(id));
            if of_session && filter.status.is_none_or(|status| record.status() == status) {
                if page.len() == filter.limit {
                    let cursor = page.last().map(|execution: &Arc<Execution>| execution.id.clone());
                    return (page, cursor);
                }
                page.push(record.snapshot());
            }
        }
        (page, None)
    }

    /// Whose an execution is, if it is kept.
    #[must_use]
    pub fn owner_of(&self, id: &ExecutionId) -> Option<TenantId> {
        self.0.records.lock().by_id.get(id).map(|record| record.owner.clone())
    }

    /// How much there is of an owner's at the moment.
    #[must_use]
    pub fn held_by(&self, owner: &TenantId, what: Held) -> u64 {
        self.held_with(&self.0.sessions.lock(), owner, what)
    }

    fn held_with(&self, sessions: &BTreeMap<SessionId, Arc<Session>>, owner: &TenantId, what: Held) -> u64 {
        let open = sessions.values().filter(|session| session.owner() == owner && !session.state().is_final());
        match what {
            Held::Sessions => open.count() as u64,
            Held::Waiting => {
                let for_a_place = self.0.means.admission.waiting_of(owner);
                (for_a_place + open.map(|session| session.queued()).sum::<usize>()) as u64
            }
            Held::Bytes => {
                open.map(|session| session.spec.base.limits.disk_bytes).sum::<u64>() + self.kept_bytes_of(owner)
            }
        }
    }

    /// Bytes of ended executions of an owner's that are kept, with their artifacts.
    fn kept_bytes_of(&self, owner: &TenantId) -> u64 {
        let own: Vec<_> = {
            let records = self.0.records.lock();
            let own = records.finished.iter().filter_map(|(id, bytes)| {
                let record = records.by_id.get(id).filter(|record| record.owner == *owner)?;
                Some((*bytes, Arc::clone(record)))
            });
            own.collect()
        };
        let sizes = own.iter().map(|(bytes, record)| {
            let artifacts: u64 = record.snapshot().artifacts.iter().map(|artifact| artifact.size).sum();
            *bytes as u64 + artifacts
        });
        sizes.sum()
    }

    /// Ends everything of an owner's that runs, waits or is open.
    pub fn end_all_of(&self, owner: &TenantId, reason: &str) {
        let open: Vec<Arc<Record>> = {
            let records = self.0.records.lock();
            let own = records.by_id.values().filter(|record| record.owner == *owner && !record.status().is_final());
            own.cloned().collect()
        };
        open.iter().for_each(Record::cancel);
        let sessions: Vec<_> = self.sessions().into_iter().filter(|session| session.owner() == owner).collect();
        sessions.iter().for_each(|session| session.close(reason));
    }

    /// The session that an execution belongs to, if it is kept and belongs to one.
    #[must_use]
    pub fn session_of(&self, id: &ExecutionId) -> Option<SessionId> {
        let record = self.0.records.lock().by_id.get(id).cloned()?;
        record.session()
    }

    /// Gives a running execution more standard input, and its end if `last`; `None` when there is no such execution.
    ///
    /// # Errors
    /// When it takes no more; nothing of the piece was taken then.
    pub fn give_input(&self, id: &ExecutionId, piece: Bytes, last: bool) -> Option<Result<(), InputError>> {
        let record = self.0.records.lock().by_id.get(id).cloned()?;
        Some(record.input.push(piece, last))
    }

    /// Cancels an execution if it still runs or waits; `None` when there is none of this id.
    #[must_use]
    pub fn cancel(&self, id: &ExecutionId) -> Option<EventLog> {
        let record = self.0.records.lock().by_id.get(id).cloned()?;
        record.cancel();
        Some(record.log.clone())
    }

    /// An artifact by its path in the workspace.
    #[must_use]
    pub fn artifact(&self, id: &ExecutionId, path: &str) -> Option<(File, crate::execution::Artifact)> {
        let execution = self.get(id)?;
        let index = execution.artifacts.iter().position(|artifact| artifact.path == path)?;
        let file = self.0.means.artifacts.open_artifact(id, index).ok()?;
        Some((file, execution.artifacts[index].clone()))
    }

    /// How busy it is.
    #[must_use]
    pub fn load(&self) -> Load {
        let running = self.0.means.running.load(Ordering::Acquire);
        Load {
            running,
            queued: self.0.means.admission.waiting(),
            free: self.0.means.admission.free(),
            sessions: open_sessions(&self.0.sessions.lock()),
            capacity: self.0.means.config.max_concurrent,
            draining: self.0.draining.load(Ordering::Acquire),
        }
    }

    /// The sandboxes that wait ready.
    #[must_use]
    pub fn pool(&self) -> PoolStatus {
        self.0.means.pools.status()
    }

    /// The sandboxes that wait ready for templates, by name and version.
    #[must_use]
    pub fn pools_of_templates(&self) -> Vec<(String, PoolStatus)> {
        self.0.means.pools.of_templates()
    }

    /// Has sandboxes wait ready for a template that asks for it, as long as it is used. Must be called on a tokio runtime.
    pub fn keep_ready(&self, template: &Template, policy: &LimitPolicy) {
        if !self.0.draining.load(Ordering::Acquire) {
            self.0.means.pools.keep_ready(template, policy);
        }
    }

    /// Refuses a template that this node cannot serve: an isolation level or an image that is not here, a package that its image lacks. May block.
    ///
    /// # Errors
    /// The field of the template.
    pub fn check_template(&self, template: &Template) -> Result<(), FieldError> {
        let backend = &self.0.means.backend;
        let level = backend.report().level;
        if template.isolation > level {
            let message = format!("level '{}' is not available on this node; '{level}' is", template.isolation);
            return Err(FieldError::new("isolation", message));
        }
        let image = template.kind.image.as_deref();
        if image.is_none() && template.packages.is_empty() {
            return Ok(());
        }
        let installed = backend.packages(image)?;
        for (index, package) in template.packages.iter().enumerate() {
            if let Some(lack) = package.lacking(&installed) {
                let name = image.unwrap_or(crate::image::DEFAULT_IMAGE);
                let message = format!(
                    "{package} is not in image {name:?}: it {lack}; nothing is installed, packages belong into the image"
                );
                return Err(FieldError::new(format!("packages[{index}]"), message));
            }
        }
        Ok(())
    }

    /// Level and layers of this node's sandboxes.
    #[must_use]
    pub fn isolation(&self) -> crate::backend::BackendReport {
        self.0.means.backend.report()
    }

    /// Why no sandbox can be started right now; `None` when all is well.
    #[must_use]
    pub fn unavailable(&self) -> Option<String> {
        self.0.means.backend.unavailable()
    }

    /// Refuses new executions, lets those accepted finish within `grace`, then cancels the rest and waits for their end.
    pub async fn shutdown(&self, grace: Duration) {
        self.0.draining.store(true, Ordering::Release);
        self.0.means.pools.close();
        let closing = || {
            let sessions: Vec<_> = self.0.sessions.lock().values().cloned().collect();
            sessions.iter().for_each(|session| session.close("the server was shut down"));
        };
        if tokio::time::timeout(grace, self.idle()).await.is_err() {
            let open: Vec<Arc<Record>> = {
                let records = self.0.records.lock();
                records.by_id.values().filter(|record| !record.status().is_final()).cloned().collect()
            };
            tracing::warn!(cancelled = open.len(), "executions cancelled at shutdown");
            open.iter().for_each(Record::cancel);
            closing();
            self.idle().await;
        }
        closing();
    }

    async fn idle(&self) {
        loop {
            let ended = self.0.ended.notified();
            let open = self.0.records.lock().by_id.values().any(|record| !record.status().is_final());
            if !open {
                return;
            }
            ended.await;
        }
    }
}

/// Whole MiB, rounded up.
fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl Records {
    /// Notes a finished execution and evicts the oldest ones beyond the bounds.
    fn retain_within(&mut self, id: ExecutionId, bytes: usize, config: &EngineConfig) -> Vec<ExecutionId> {
        self.finished.push_back((id, bytes));
        self.finished_bytes += bytes;
        let mut evicted = Vec::new();
        // The newest always stays: its caller may be about to fetch it.
        while self.finished.len() > 1
            && (self.finished.len() > config.keep_executions || self.finished_bytes > config.keep_bytes)
        {
            let Some((oldest, bytes)) = self.finished.pop_front() else { break };
            self.finished_bytes -= bytes;
            self.by_id.remove(&oldest);
            evicted.push(oldest);
        }
        evicted
    }
}
