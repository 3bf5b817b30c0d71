//! Executions that are on record from when they are accepted: those that run later (`mode: async`), and those whose request had an idempotency key.
//!
//! ```text
//! accept -> row and key (one transaction) -> queue -> runner -> engine -> conclude (row, execution, webhook: one transaction)
//!              ^                                         |
//!              \---- sweep: rows that nobody has <-------/  renewed while it lives
//! ```
//!
//! The row decides: the queue may lose or repeat names, a worker may think that it still has a job; whoever takes the row's step writes the
//! end, and nobody else. What a client sees as the end has been written before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fumehood_engine::clock::stamp_of;
use fumehood_engine::event::EventLog;
use fumehood_engine::execution::{Execution, ExecutionError, Fault, Outcome, Status};
use fumehood_engine::ids::{ExecutionId, TenantId};
use fumehood_engine::spec::{ExecutionRequest, ExecutionSpec, LimitPolicy};
use fumehood_engine::{Ended, Engine};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::error::ApiError;
use crate::queue::{Queue, QueuedJob, TakenJob};
use crate::store::{Attempt, End, Job, KeptExecution, NewJob, Store, StoreError, milliseconds_of};
use crate::templates::{TemplateError, Templates};
use crate::tenancy::Ledger;

mod options;
mod records;
mod runner;
pub mod state;
mod sweep;

pub(crate) use options::JobOptions;
use records::Pending;
use state::{JobRequest, JobState, accept};

/// What the operator decides about jobs and records.
#[derive(Debug, Clone)]
pub struct JobsConfig {
    /// Name of this server among those that share a database; no two that live have the same.
    pub worker: String,
    /// A worker that has not been heard of for so long is taken for gone.
    pub lease: Duration,
    /// Jobs that wait, in all.
    pub max_waiting: u64,
    /// Jobs of one tenant that wait.
    pub max_waiting_per_tenant: u64,
    /// Executions are kept on record for so long.
    pub keep: Duration,
    /// So many executions are kept on record.
    pub keep_executions: u64,
}

impl Default for JobsConfig {
    fn default() -> Self {
        Self {
            worker: "fumehood-1".to_owned(),
            lease: Duration::from_secs(30),
            max_waiting: 100_000,
            max_waiting_per_tenant: 50_000,
            keep: Duration::from_secs(30 * 24 * 3600),
            keep_executions: 1_000_000,
        }
    }
}

/// A client whose job does not fit is told to come again after so long.
const COME_AGAIN: Duration = Duration::from_secs(5);
/// What a database that is away is asked again after: at first, and at most.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What jobs need of the server.
pub(crate) struct Means {
    pub(crate) engine: Engine,
    pub(crate) store: Store,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) templates: Arc<Templates>,
    pub(crate) limits: LimitPolicy,
    pub(crate) ledger: Arc<Ledger>,
}

/// The jobs of one server.
pub(crate) struct Jobs {
    engine: Engine,
    store: Store,
    queue: Arc<dyn Queue>,
    templates: Arc<Templates>,
    config: JobsConfig,
    limits: LimitPolicy,
    ledger: Arc<Ledger>,
    log_code: bool,
    /// Those that this server has begun and whose end is not on record yet.
    local: Mutex<HashMap<ExecutionId, Local>>,
    /// Those that ran here and whose end the database refuses.
    unwritable: Mutex<HashSet<ExecutionId>>,
    /// Something in `local` changed, or a job of this server ended otherwise.
    changed: Notify,
    waiting: Mutex<Depth>,
    /// Jobs that the queue did not take.
    unpushed: Mutex<VecDeque<QueuedJob>>,
    /// Executions that have ended and are not on record yet.
    pending: Pending,
    /// There is a delivery to be made.
    pub(crate) told: Notify,
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct Local {
    attempt: u32,
    since: Instant,
    /// Somebody asked for its end.
    unwanted: bool,
    taken: Option<TakenJob>,
}

impl Local {
    fn new(attempt: u32, unwanted: bool, taken: Option<TakenJob>) -> Self {
        Self { attempt, since: Instant::now(), unwanted, taken }
    }
}

/// How many wait: as the database said lately, and what this server did since.
#[derive(Default)]
struct Depth {
    total: u64,
    by_tenant: HashMap<TenantId, u64>,
}

impl Jobs {
    pub(crate) fn new(means: Means, config: JobsConfig, log_code: bool) -> Arc<Self> {
        let Means { engine, store, queue, templates, limits, ledger } = means;
        Arc::new(Self {
            engine,
            store,
            queue,
            templates,
            config,
            limits,
            ledger,
            log_code,
            local: Mutex::default(),
            unwritable: Mutex::default(),
            changed: Notify::new(),
            waiting: Mutex::default(),
            unpushed: Mutex::default(),
            pending: Pending::default(),
            told: Notify::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// Begins to write records, to sweep, and to run jobs. Must be called on a tokio runtime.
    pub(crate) fn start(self: &Arc<Self>) {
        self.engine.archive_in(Arc::new(records::Recorder(Arc::downgrade(self))));
        tokio::spawn(records::write(Arc::clone(self)));
        let jobs = Arc::clone(self);
        self.tasks.spawn(async move {
            // First: what is begun under this server's name and not known to this process is an earlier one's until then.
            jobs.settle().await;
            tokio::spawn(sweep::keep(Arc::clone(&jobs)));
            tokio::spawn(sweep::tidy(Arc::clone(&jobs)));
            // After `keep` has begun: leases of requests with a key are kept while the queue is away.
            jobs.settle_queue().await;
            runner::run(jobs).await;
        });
    }

    /// Takes no more jobs, and gives back those that have not begun.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
        let local: Vec<ExecutionId> = self.local.lock().keys().cloned().collect();
        for id in local {
            if self.engine.get(&id).is_some_and(|execution| execution.status == Status::Queued) {
                // It ends either way, or has ended.
                drop(self.engine.cancel(&id));
            }
        }
    }

    /// Resolves when everything that has ended is on record, after [`Self::stop`] and the end of the engine.
    pub(crate) async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        while !self.pending.is_empty() {
            self.pending.written().await;
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        milliseconds_of(self.engine.clock().now())
    }

    fn lease_ms(&self) -> i64 {
        self.now_ms() + i64::try_from(self.config.lease.as_millis()).unwrap_or(i64::MAX >> 1)
    }

    /// A request, validated for one tenant.
    async fn spec(&self, request: ExecutionRequest, owner: &TenantId) -> Result<ExecutionSpec, TemplateError> {
        let template = self.templates.find(owner, request.template.as_deref()).await?;
        let mut spec = request.validate_as(&template, &self.limits)?;
        spec.owner = owner.clone();
        Ok(spec)
    }

    /// Accepts a job to be run later; `None` when its key is taken.
    pub(crate) async fn accept(
        &self,
        request: &ExecutionRequest,
        spec: &ExecutionSpec,
        options: JobOptions,
        key: Option<Attempt>,
    ) -> Result<Option<Arc<Execution>>, ApiError> {
        self.engine.examine(spec)?;
        self.admit(&spec.owner)?;
        let now_ms = self.now_ms();
        let draft = Execution { created_at: stamp(now_ms), ..self.engine.draft(spec, None) };
        let draft = KeptExecution { owner: spec.owner.clone(), execution: Arc::new(draft), whole: None };
        let request = serde_json::to_string(request).map_err(|error| ApiError::internal("write request", &error))?;
        let new = NewJob {
            draft: draft.clone(),
            priority: options.priority,
            max_attempts: options.max_attempts,
            request: Some(request),
            callback: options.callback,
            state: JobState::Waiting { attempt: 0 },
            key,
        };
        if !self.store.jobs().add(&new, now_ms).await? {
            return Ok(None);
        }
        self.count(&spec.owner, 1);
        let id = draft.execution.id.clone();
        self.push(QueuedJob { execution: id, tenant: spec.owner.clone(), priority: options.priority }).await;
        Ok(Some(draft.execution))
    }

    /// Puts a job on record that begins here and now, and that nobody else can run. `false` when its key is taken. It is to be followed by
    /// [`Self::follow_pinned`] or [`Self::unpin`].
    pub(crate) async fn pin(
        &self,
        draft: Execution,
        owner: &TenantId,
        callback: Option<String>,
        key: Option<Attempt>,
    ) -> Result<Option<Job>, StoreError> {
        let id = draft.id.clone();
        let now_ms = self.now_ms();
        let state = JobState::Begun { attempt: 1, worker: self.config.worker.clone(), lease_ms: self.lease_ms() };
        let job = Job {
            id: id.clone(),
            owner: owner.clone(),
            priority: fumehood_engine::job::Priority::Normal,
            state: state.clone(),
            max_attempts: 1,
            created_ms: now_ms,
            cancel: false,
            request: None,
            callback: callback.clone(),
            reason: None,
        };
        // Before the row is there: a row of this server that is in no list of it is given back.
        self.local.lock().insert(id.clone(), Local::new(1, false, None));
        let draft = KeptExecution { owner: owner.clone(), execution: Arc::new(draft), whole: None };
        let new = NewJob { draft, priority: job.priority, max_attempts: 1, request: None, callback, state, key };
        let added = self.store.jobs().add(&new, now_ms).await;
        if !matches!(added, Ok(true)) {
            self.forget_local(&id);
        }
        Ok(added?.then_some(job))
    }

    /// What was pinned is not begun after all.
    pub(crate) async fn unpin(&self, job: &Job) {
        if let Err(error) = self.store.jobs().withdraw(&job.id).await {
            // Its row is found by the sweep, and given up.
            tracing::warn!(execution = %job.id, %error, "a job that was refused could not be taken back");
        }
        self.forget_local(&job.id);
    }

    /// Sees to it that the end of a pinned job gets on record.
    pub(crate) fn follow_pinned(self: &Arc<Self>, job: Job, events: EventLog) {
        self.follow(job, events);
    }

    fn follow(self: &Arc<Self>, job: Job, events: EventLog) {
        let jobs = Arc::clone(self);
        self.tasks.spawn(async move {
            let execution = events.finished().await;
            let told = Ended { owner: job.owner.clone(), execution, whole: None };
            let ended = jobs.engine.ended(&job.id).unwrap_or(told);
            jobs.conclude(&job, ended).await;
        });
    }

    /// Resolves when the end of an execution is on record, if that is for this server to see to.
    pub(crate) async fn recorded(&self, id: &ExecutionId) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.local.lock().contains_key(id) {
                return;
            }
            changed.await;
        }
    }

    /// Writes the end of a job that this server has, however long the database is away.
    async fn conclude(&self, job: &Job, ended: Ended) {
        let JobState::Begun { attempt, .. } = job.state else { return };
        let execution = Arc::clone(&ended.execution);
        let unwanted = self.local.lock().get(&job.id).is_some_and(|local| local.unwanted);
        let broken_off = self.stop.is_cancelled() && execution.status == Status::Cancelled && !unwanted;
        let worker = self.config.worker.clone();
        let request = match (broken_off && job.request.is_some(), execution.started_at.is_some()) {
            (false, _) => JobRequest::Finish { worker: &worker, attempt },
            (true, false) => JobRequest::GiveBack { worker: &worker, attempt },
            (true, true) => JobRequest::Lose { attempt },
        };
        let mut kept = KeptExecution::from(ended);
        let mut pause = PAUSE;
        let mut shortened = false;
        loop {
            let written = async {
                self.share_files(&kept.execution).await?;
                self.step(job, &request, &kept).await
            };
            match written.await {
                Ok(Some(next)) => {
                    if let JobState::Waiting { .. } = next {
                        // What it did here is not what will be on record.
                        self.engine.forget(&job.id);
                    }
                    break;
                }
                Ok(None) => {
                    tracing::warn!(execution = %job.id, attempt, "a job ended here after it had been taken away");
                    self.engine.forget(&job.id);
                    break;
                }
                Err(StoreError::Unavailable(error)) => {
                    tracing::debug!(execution = %job.id, %error, "the end of a job waits for the database");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) if !shortened => {
                    tracing::error!(execution = %job.id, %error, "the end of a job is refused; it is tried without output");
                    kept = kept.shortened("the database refused the whole execution");
                    shortened = true;
                }
                Err(error) => {
                    tracing::error!(execution = %job.id, %error, "the end of a job cannot be put on record");
                    self.unwritable.lock().insert(job.id.clone());
                    break;
                }
            }
        }
        let taken = self.forget_local(&job.id);
        if let Some(taken) = taken {
            let told = match request {
                JobRequest::GiveBack { .. } | JobRequest::Lose { .. } => {
                    self.queue.later(&self.config.worker, &taken, Duration::ZERO).await
                }
                _ => self.queue.done(&self.config.worker, &taken).await,
            };
            if let Err(error) = told {
                // It comes again after its lease, and whoever takes it finds no row.
                tracing::debug!(execution = %job.id, %error, "the queue was not told");
            }
        }
        self.told.notify_one();
    }

    fn forget_local(&self, id: &ExecutionId) -> Option<TakenJob> {
        let local = self.local.lock().remove(id);
        self.changed.notify_waiters();
        local?.taken
    }

    /// Takes a step and writes what it means. The state after it; `None` when the job is elsewhere by now, or does not accept it.
    async fn step(
        &self,
        job: &Job,
        request: &JobRequest<'_>,
        kept: &KeptExecution,
    ) -> Result<Option<JobState>, StoreError> {
        let next = match accept(&job.state, request, job.max_attempts) {
            Ok(next) => next,
            Err(refused) => {
                tracing::warn!(execution = %job.id, %refused, "a step of a job is refused");
                return Ok(None);
            }
        };
        let end = match &next {
            JobState::Ended => Some(self.end(kept.clone(), None)),
            JobState::Dead { attempt } => {
                let reason = format!("the server that ran it went away (attempt {attempt})");
                Some(self.end(lost(kept, &reason, self.engine.clock().stamp()), Some(reason)))
            }
            JobState::Waiting { .. } if *request == JobRequest::Revive => {
                Some(self.end(KeptExecution { execution: Arc::new(fresh(&kept.execution)), ..kept.clone() }, None))
            }
            JobState::Waiting { .. } | JobState::Begun { .. } => None,
        };
        Ok(self.store.jobs().step(job, &next, end.as_ref()).await?.then_some(next))
    }

    fn end(&self, kept: KeptExecution, reason: Option<String>) -> End {
        End { kept, reason, now_ms: self.now_ms() }
    }

    /// The worker of a job has gone. The state after it.
    async fn lose(&self, job: &Job) -> Result<(), StoreError> {
        let JobState::Begun { attempt, worker, .. } = &job.state else { return Ok(()) };
        let Some(kept) = self.store.executions().get(&job.id).await? else { return Ok(()) };
        let next = self.step(job, &JobRequest::Lose { attempt: *attempt }, &kept).await?;
        tracing::warn!(execution = %job.id, worker, attempt, after = ?next, "the worker of a job went away");
        match next {
            Some(JobState::Waiting { .. }) => {
                self.count(&job.owner, 1);
                self.push(queued(job)).await;
            }
            // Whoever takes it from the queue, once the lease there is over, puts it among the dead.
            Some(_) => self.told.notify_one(),
            None => {}
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Asks for the end of a job that is not in this server's engine. Whether there is one.
    pub(crate) async fn cancel(&self, id: &ExecutionId) -> Result<bool, StoreError> {
        loop {
            let Some(job) = self.store.jobs().get(std::slice::from_ref(id)).await?.pop() else { return Ok(false) };
            match job.state {
                JobState::Waiting { .. } => {
                    let Some(kept) = self.store.executions().get(id).await? else { return Ok(false) };
                    let ended = KeptExecution { execution: Arc::new(self.never_ran(&kept.execution)), ..kept };
                    if self.step(&job, &JobRequest::Cancel, &ended).await?.is_none() {
                        // Somebody has begun it meanwhile.
                        continue;
                    }
                    self.count(&job.owner, -1);
                    if let Err(error) = self.queue.remove(id).await {
                        tracing::debug!(execution = %id, %error, "the queue was not told");
                    }
                    self.changed.notify_waiters();
                    self.told.notify_one();
                    return Ok(true);
                }
                JobState::Begun { .. } => return self.store.jobs().ask_to_end(id).await,
                JobState::Dead { .. } | JobState::Ended => return Ok(false),
            }
        }
    }

    /// Marks a job of this server as unwanted: its cancellation is then its end, whatever else happens.
    pub(crate) fn unwanted(&self, id: &ExecutionId) {
        if let Some(local) = self.local.lock().get_mut(id) {
            local.unwanted = true;
        }
    }

    /// Has a dead job tried again. Whether there was one.
    pub(crate) async fn revive(&self, id: &ExecutionId) -> Result<Option<Job>, StoreError> {
        let Some(job) = self.store.jobs().get(std::slice::from_ref(id)).await?.pop() else { return Ok(None) };
        if !matches!(job.state, JobState::Dead { .. }) || job.request.is_none() {
            return Ok(None);
        }
        let Some(kept) = self.store.executions().get(id).await? else { return Ok(None) };
        let Some(state) = self.step(&job, &JobRequest::Revive, &kept).await? else { return Ok(None) };
        self.engine.forget(id);
        self.count(&job.owner, 1);
        // Where it is not among the dead yet, it waits or is not there at all.
        if !matches!(self.queue.revive(id).await, Ok(true)) {
            self.push(queued(&job)).await;
        }
        Ok(Some(Job { state, reason: None, ..job }))
    }

    /// Jobs of one tenant or of all.
    pub(crate) async fn list(&self, of: Option<&TenantId>, dead: bool, most: u32) -> Result<Vec<Job>, StoreError> {
        self.store.jobs().list(of, dead, most).await
    }

    async fn push(&self, job: QueuedJob) {
        if let Err(error) = self.queue.push(&job).await {
            // It is on record, so that nothing is lost; the sweep tries again.
            tracing::warn!(execution = %job.execution, %error, "the queue did not take a job");
            self.unpushed.lock().push_back(job);
        }
    }

    fn admit(&self, owner: &TenantId) -> Result<(), ApiError> {
        let depth = self.waiting.lock();
        let own = depth.by_tenant.get(owner).copied().unwrap_or_default();
        let (limit, waiting) = if own >= self.config.max_waiting_per_tenant {
            ("queue.max_waiting_per_tenant", own)
        } else if depth.total >= self.config.max_waiting {
            ("queue.max_waiting", depth.total)
        } else {
            return Ok(());
        };
        metrics::counter!("fumehood_executions_refused_total", "reason" => "queue_full").increment(1);
        let message = format!("{waiting} jobs are waiting already, which is the most that {limit} lets wait");
        Err(ApiError::too_many(message, COME_AGAIN))
    }

    fn count(&self, owner: &TenantId, change: i64) {
        let mut depth = self.waiting.lock();
        depth.total = depth.total.saturating_add_signed(change);
        let own = depth.by_tenant.entry(owner.clone()).or_default();
        *own = own.saturating_add_signed(change);
    }

    fn never_ran(&self, execution: &Execution) -> Execution {
        let error = ExecutionError::of(Outcome::Cancelled, "cancelled before it began".to_owned(), None);
        Execution {
            status: Status::Cancelled,
            outcome: Some(Outcome::Cancelled),
            error: Some(error),
            finished_at: Some(self.engine.clock().stamp()),
            ..execution.clone()
        }
    }
}

fn queued(job: &Job) -> QueuedJob {
    QueuedJob { execution: job.id.clone(), tenant: job.owner.clone(), priority: job.priority }
}

fn stamp(ms: i64) -> String {
    stamp_of(ms.div_euclid(1000), u32::try_from(ms.rem_euclid(1000)).unwrap_or(0) * 1_000_000)
}

/// An execution whose server went away.
fn lost(kept: &KeptExecution, reason: &str, now: String) -> KeptExecution {
    let hint = "send it again, or say how often it may be begun with retry.max_attempts";
    let execution = Execution {
        status: Status::Failed,
        outcome: Some(Outcome::Lost),
        fault: Some(Fault::Infra),
        error: Some(ExecutionError::of(Outcome::Lost, reason.to_owned(), Some(hint))),
        finished_at: Some(now),
        ..Execution::clone(&kept.execution)
    };
    KeptExecution { owner: kept.owner.clone(), execution: Arc::new(execution), whole: None }
}

/// An execution as it was before it was begun.
fn fresh(execution: &Execution) -> Execution {
    Execution {
        status: Status::Queued,
        outcome: None,
        fault: None,
        error: None,
        started_at: None,
        finished_at: None,
        ..execution.clone()
    }
}
