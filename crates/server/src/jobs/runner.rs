//! Takes jobs as the engine has places, and begins them.

use std::sync::Arc;
use std::time::Duration;

use fumehood_engine::SubmitError;
use fumehood_engine::execution::{Execution, ExecutionError, Fault, Outcome, Status};
use fumehood_engine::spec::ExecutionRequest;
use futures::StreamExt;

use super::state::{JobRequest, JobState, accept};
use super::{Jobs, LONGEST_PAUSE, Local, PAUSE, stamp};
use crate::http::submit::log_content;
use crate::queue::TakenJob;
use crate::store::{Job, StoreError};
use crate::templates::TemplateError;

/// Jobs begun at the same time.
const ABREAST: usize = 8;
/// Where all places are taken they are looked at again after so long, or when a job ends.
const NO_PLACE: Duration = Duration::from_millis(20);
/// A queue with nothing in it is looked at again after so long at the latest.
const EMPTY: Duration = Duration::from_secs(1);
/// What the engine has no room for after all is tried again after so long.
const CROWDED: Duration = Duration::from_millis(200);
/// A job whose tenant is at a quota is looked at again after so long at the latest: the operator may have raised it.
const LONGEST_REST: Duration = Duration::from_secs(60);

pub(super) async fn run(jobs: Arc<Jobs>) {
    let mut pause = PAUSE;
    while !jobs.stop.is_cancelled() {
        let room = jobs.room();
        let rest: Duration = if room == 0 {
            NO_PLACE
        } else {
            match jobs.queue.take(&jobs.config.worker, room, jobs.config.lease).await {
                Ok(taken) if taken.is_empty() => {
                    pause = PAUSE;
                    tokio::select! {
                        () = jobs.stop.cancelled() => {}
                        () = jobs.queue.wait(EMPTY) => {}
                    }
                    continue;
                }
                Ok(taken) => match jobs.begin_all(taken).await {
                    Ok(()) => {
                        pause = PAUSE;
                        continue;
                    }
                    Err(error) => jobs.trouble("jobs cannot be read", &error, &mut pause),
                },
                Err(error) => jobs.trouble("the queue gives no jobs", &error, &mut pause),
            }
        };
        tokio::select! {
            () = jobs.stop.cancelled() => {}
            () = tokio::time::sleep(rest) => {}
            () = jobs.changed.notified() => {}
        }
    }
}

impl Jobs {
    /// How many jobs the engine could begin now. None waits at its door: what is begun on record and has not run would be lost with this server.
    fn room(&self) -> usize {
        let load = self.engine.load();
        // Those that have ended and wait for the database count too: they are kept in memory until it has them.
        load.free.min((2 * load.capacity + 1).saturating_sub(self.local.lock().len()))
    }

    fn trouble(&self, what: &str, error: &StoreError, pause: &mut Duration) -> Duration {
        tracing::warn!(error = %crate::chain(error), "{what}; it is tried again");
        let now = *pause;
        *pause = (now * 2).min(LONGEST_PAUSE);
        now
    }

    async fn begin_all(self: &Arc<Self>, taken: Vec<TakenJob>) -> Result<(), StoreError> {
        let ids: Vec<_> = taken.iter().map(|taken| taken.job.execution.clone()).collect();
        let mut rows = match self.store.jobs().get(&ids).await {
            Ok(rows) => rows,
            Err(error) => {
                for taken in &taken {
                    self.put_back(taken, PAUSE).await;
                }
                return Err(error);
            }
        };
        let pairs: Vec<_> = taken
            .into_iter()
            .map(|taken| {
                let at = rows.iter().position(|job| job.id == taken.job.execution);
                (taken, at.map(|at| rows.swap_remove(at)))
            })
            .collect();
        futures::stream::iter(pairs)
            .for_each_concurrent(ABREAST, async |(taken, job)| self.take_up(taken, job).await)
            .await;
        Ok(())
    }

    /// Begins a job that the queue gave, or finds that there is nothing to begin.
    async fn take_up(self: &Arc<Self>, taken: TakenJob, job: Option<Job>) {
        let Some(job) = job else { return self.put_away(&taken).await };
        match &job.state {
            JobState::Waiting { .. } if self.stop.is_cancelled() => self.put_back(&taken, Duration::ZERO).await,
            JobState::Waiting { .. } => self.begin(taken, job).await,
            JobState::Begun { .. } => self.put_back(&taken, self.config.lease / 2).await,
            JobState::Dead { .. } => self.bury(&taken, job.reason.as_deref().unwrap_or_default()).await,
            JobState::Ended => self.put_away(&taken).await,
        }
    }

    async fn begin(self: &Arc<Self>, taken: TakenJob, job: Job) {
        if self.local.lock().contains_key(&job.id) {
            // An earlier attempt that was taken away has not ended here yet.
            return self.put_back(&taken, self.config.lease / 2).await;
        }
        let lease_ms = self.lease_ms();
        let next = accept(&job.state, &JobRequest::Begin { worker: &self.config.worker, lease_ms }, job.max_attempts);
        let Ok(JobState::Begun { attempt, worker, lease_ms }) = next else { return };
        let begun = JobState::Begun { attempt, worker, lease_ms };
        // Before the row says so: a row of this server that is in no list of it is given back.
        let local = Local::new(attempt, job.cancel, Some(taken.clone()));
        self.local.lock().insert(job.id.clone(), local);
        match self.store.jobs().step(&job, &begun, None).await {
            Ok(true) => {}
            Ok(false) => {
                self.forget_local(&job.id);
                return self.put_back(&taken, Duration::from_secs(1)).await;
            }
            Err(error) => {
                tracing::warn!(execution = %job.id, error = %crate::chain(&error), "a job cannot be begun");
                self.forget_local(&job.id);
                return self.put_back(&taken, PAUSE).await;
            }
        }
        self.count(&job.owner, -1);
        self.submit(Job { state: begun, ..job }).await;
    }

    async fn submit(self: &Arc<Self>, job: Job) {
        let text = job.request.as_deref().unwrap_or_default();
        let request = serde_json::from_str::<ExecutionRequest>(text);
        let spec = match request {
            Ok(request) => match self.spec(request, &job.owner).await {
                Err(TemplateError::Store(StoreError::Unavailable(_))) => return self.give_back(&job).await,
                spec => spec.map_err(|error| error.to_string()),
            },
            Err(error) => Err(format!("the request on record cannot be read: {error}")),
        };
        let spec = match spec {
            Ok(spec) => spec,
            Err(why) => return self.refuse(&job, why).await,
        };
        // Its quotas are asked when it enters the engine.
        match self.ledger.open(&job.owner).await {
            Ok(Some(_)) => {}
            Ok(None) => return self.refuse(&job, format!("there is no tenant {} any more", job.owner)).await,
            Err(_) => return self.give_back(&job).await,
        }
        let code = self.log_code.then(|| spec.code.clone());
        let waited = Duration::from_millis(u64::try_from(self.now_ms() - job.created_ms).unwrap_or(0));
        match self.engine.submit_as(job.id.clone(), stamp(job.created_ms), waited, spec) {
            Ok(ticket) => {
                if let Some(code) = code {
                    log_content(&ticket.id, &code, &ticket.events);
                }
                self.follow(job, ticket.events);
                self.changed.notify_waiters();
            }
            Err(SubmitError::Refused(error)) => self.refuse(&job, error.to_string()).await,
            // As long as others are served: it comes again when the quota may have room.
            Err(SubmitError::OverQuota(quota)) => {
                self.give_back_for(&job, quota.retry_after.clamp(CROWDED, LONGEST_REST)).await;
            }
            Err(_) => self.give_back(&job).await,
        }
    }

    /// What was valid when it was accepted is not valid here: another configuration, or another server's.
    async fn refuse(&self, job: &Job, why: String) {
        match self.store.executions().get(&job.id).await {
            Ok(Some(kept)) => {
                let message = format!("the server that took this job cannot run it: {why}");
                let execution = Execution {
                    status: Status::Failed,
                    outcome: Some(Outcome::Infra),
                    fault: Some(Fault::Infra),
                    error: Some(ExecutionError::of(Outcome::Infra, message, None)),
                    finished_at: Some(self.engine.clock().stamp()),
                    ..Execution::clone(&kept.execution)
                };
                let ended = fumehood_engine::Ended { owner: kept.owner, execution: Arc::new(execution), whole: None };
                self.conclude(job, ended).await;
            }
            Ok(None) | Err(_) => self.give_back(job).await,
        }
    }

    /// Gives back a job that was begun on record and not in the engine.
    async fn give_back(&self, job: &Job) {
        self.give_back_for(job, CROWDED).await;
    }

    /// The same; nobody takes it again before `rest` is over.
    async fn give_back_for(&self, job: &Job, rest: Duration) {
        let JobState::Begun { attempt, .. } = job.state else { return };
        let next = accept(&job.state, &JobRequest::GiveBack { worker: &self.config.worker, attempt }, job.max_attempts);
        if let Ok(next) = next {
            match self.store.jobs().step(job, &next, None).await {
                Ok(_) => self.count(&job.owner, 1),
                // Found by the sweep, which does the same.
                Err(error) => tracing::debug!(execution = %job.id, %error, "a job could not be given back"),
            }
        }
        if let Some(taken) = self.forget_local(&job.id) {
            self.put_back(&taken, rest).await;
        }
    }

    async fn put_back(&self, taken: &TakenJob, after: Duration) {
        if let Err(error) = self.queue.later(&self.config.worker, taken, after).await {
            tracing::debug!(execution = %taken.job.execution, %error, "the queue was not told");
        }
    }

    /// The row is dead already: the queue's own tools show it among the dead too.
    async fn bury(&self, taken: &TakenJob, reason: &str) {
        if let Err(error) = self.queue.bury(&self.config.worker, taken, reason).await {
            tracing::debug!(execution = %taken.job.execution, %error, "the queue was not told");
        }
    }

    async fn put_away(&self, taken: &TakenJob) {
        if let Err(error) = self.queue.done(&self.config.worker, taken).await {
            tracing::debug!(execution = %taken.job.execution, %error, "the queue was not told");
        }
    }

    /// Settles on record what an earlier process of this name left: begun jobs are lost, or wait again, at once rather than after their lease.
    pub(super) async fn settle(&self) {
        self.until_done("what an earlier server left cannot be settled", || self.settle_once()).await;
    }

    /// Has the queue give again what that process had taken, and brings into it whatever waits.
    pub(super) async fn settle_queue(&self) {
        self.until_done("the queue is not told that an earlier server is gone", || self.settle_queue_once()).await;
    }

    async fn until_done<F>(&self, trouble: &str, what: impl Fn() -> F)
    where
        F: Future<Output = Result<(), StoreError>>,
    {
        let mut pause = PAUSE;
        while !self.stop.is_cancelled() {
            match what().await {
                Ok(()) => return,
                Err(error) => {
                    let rest = self.trouble(trouble, &error, &mut pause);
                    tokio::time::sleep(rest).await;
                }
            }
        }
    }

    async fn settle_queue_once(&self) -> Result<(), StoreError> {
        self.queue.give_back_all(&self.config.worker).await?;
        self.push_waiting(i64::MAX).await
    }

    async fn settle_once(&self) -> Result<(), StoreError> {
        for job in self.store.jobs().of_worker(&self.config.worker).await? {
            // What this process has begun meanwhile, for a request with a key, is no leftover.
            if !self.local.lock().contains_key(&job.id) {
                self.lose(&job).await?;
            }
        }
        self.refresh_depth().await
    }
}
