//! What has to be done again and again: leases kept, those of others that ran out taken away, what waits brought into the queue, what is old removed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::state::{JobRequest, JobState, accept};
use super::{Depth, Jobs, queued};
use crate::queue::{QueuedJob, TakenJob};
use crate::store::StoreError;

/// Keys of requests are kept for so long.
const KEYS: Duration = Duration::from_secs(24 * 3600);
/// Jobs that wait for so long are brought into the queue once more, should it have lost them.
const STALE: Duration = Duration::from_secs(60);
/// Old things, and lost ones, are looked for this often.
const TIDY: Duration = Duration::from_secs(60);
/// The same for content in the blob store, which is a look at all of its rows.
const SWEEP: Duration = Duration::from_secs(3600);
/// Executions removed at a time.
const BATCH: u32 = 500;

/// Keeps leases, and takes those away that nobody keeps.
pub(super) async fn keep(jobs: Arc<Jobs>) {
    let mut ticks = tokio::time::interval(jobs.config.lease / 6);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut well_since = Instant::now();
    loop {
        ticks.tick().await;
        let done = async {
            jobs.keep_leases().await?;
            // After an outage everybody gets the time to keep what is theirs.
            if well_since.elapsed() > jobs.config.lease {
                jobs.take_away().await?;
            }
            jobs.push_again().await;
            jobs.refresh_depth().await
        };
        if let Err(error) = done.await {
            tracing::warn!(error = %crate::chain(&error), "jobs cannot be looked after; it is tried again");
            well_since = Instant::now();
        }
    }
}

/// Brings what waits long into the queue once more, and removes what is old.
pub(super) async fn tidy(jobs: Arc<Jobs>) {
    let mut orphans = true;
    let mut swept: Option<Instant> = None;
    loop {
        let done = async {
            if orphans {
                jobs.forget_orphans().await?;
                orphans = false;
            }
            jobs.retain().await?;
            if swept.is_none_or(|last| last.elapsed() > SWEEP) {
                let count = jobs.store.executions().sweep(jobs.now_ms()).await?;
                if count > 0 {
                    tracing::info!(count, "content that belonged to nothing is removed from the blob store");
                }
                swept = Some(Instant::now());
            }
            Ok::<(), StoreError>(())
        };
        if let Err(error) = done.await {
            tracing::warn!(error = %crate::chain(&error), "old records are not removed; it is tried again");
        }
        tokio::time::sleep(TIDY).await;
        let stale = i64::try_from(STALE.as_millis()).unwrap_or(0);
        if let Err(error) = jobs.push_waiting(jobs.now_ms() - stale).await {
            tracing::warn!(error = %crate::chain(&error), "the queue is not looked through; it is tried again");
        }
    }
}

impl Jobs {
    async fn keep_leases(&self) -> Result<(), StoreError> {
        let mine = self.store.jobs().renew(&self.config.worker, self.lease_ms()).await?;
        let (mut strays, mut unwanted) = (Vec::new(), Vec::new());
        {
            let mut local = self.local.lock();
            for row in &mine {
                match local.get_mut(&row.id) {
                    Some(own) if own.attempt == row.attempt => own.unwanted |= row.cancel,
                    _ => strays.push(row.id.clone()),
                }
            }
            for (id, own) in local.iter() {
                let kept = mine.iter().any(|row| row.id == *id && row.attempt == own.attempt);
                let taken_away = !kept && own.since.elapsed() > self.config.lease;
                if taken_away {
                    tracing::warn!(execution = %id, attempt = own.attempt, "a job was taken away while it ran");
                }
                if taken_away || own.unwanted {
                    unwanted.push(id.clone());
                }
            }
        }
        for id in &unwanted {
            // It may have ended by itself.
            drop(self.engine.cancel(id));
        }
        // Begun on record, and not here: the answer of the database was lost on its way, and nothing ran.
        for job in self.store.jobs().get(&strays).await? {
            let JobState::Begun { attempt, worker, .. } = &job.state else { continue };
            if *worker != self.config.worker || self.local.lock().contains_key(&job.id) {
                continue;
            }
            if self.unwritable.lock().remove(&job.id) {
                self.lose(&job).await?;
                continue;
            }
            if job.request.is_none() {
                self.store.jobs().withdraw(&job.id).await?;
                continue;
            }
            let request = JobRequest::GiveBack { worker, attempt: *attempt };
            if let Ok(next) = accept(&job.state, &request, job.max_attempts)
                && self.store.jobs().step(&job, &next, None).await?
            {
                self.push(queued(&job)).await;
            }
        }
        let taken: Vec<TakenJob> = self.local.lock().values().filter_map(|local| local.taken.clone()).collect();
        if !taken.is_empty()
            && let Err(error) = self.queue.renew(&self.config.worker, &taken, self.config.lease).await
        {
            // The row decides: the queue may give these to others, who find them begun.
            tracing::warn!(error = %crate::chain(&error), "the queue does not keep the jobs of this server");
        }
        Ok(())
    }

    /// Jobs whose worker has not been heard of for a lease and another one.
    async fn take_away(&self) -> Result<(), StoreError> {
        let lease = i64::try_from(self.config.lease.as_millis()).unwrap_or(0);
        for job in self.store.jobs().overdue(self.now_ms() - lease).await? {
            self.lose(&job).await?;
        }
        Ok(())
    }

    /// Jobs that the queue did not take.
    async fn push_again(&self) {
        loop {
            let Some(job) = self.unpushed.lock().front().cloned() else { return };
            if self.queue.push(&job).await.is_err() {
                return;
            }
            self.unpushed.lock().pop_front();
        }
    }

    /// Brings everything that waits since before `before_ms` into the queue, which passes over what it has.
    pub(super) async fn push_waiting(&self, before_ms: i64) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let page = self.store.jobs().waiting(before_ms, &after, BATCH).await?;
            let Some((last, _, _)) = page.last() else { return Ok(()) };
            after = last.as_str().to_owned();
            for (execution, tenant, priority) in page {
                self.queue.push(&QueuedJob { execution, tenant, priority }).await?;
            }
        }
    }

    pub(super) async fn refresh_depth(&self) -> Result<(), StoreError> {
        let mut depth = Depth::default();
        for tenant in self.store.jobs().depth().await? {
            depth.total += tenant.waiting;
            depth.by_tenant.insert(tenant.owner, tenant.waiting);
        }
        metrics::gauge!("fumehood_jobs_waiting").set(depth.total as f64);
        *self.waiting.lock() = depth;
        Ok(())
    }

    /// Removes artifacts of executions that are not on record: their server ended before it could write them.
    async fn forget_orphans(&self) -> Result<(), StoreError> {
        let kept = self.engine.artifacts().executions();
        let known = self.store.executions().known(&kept).await?;
        for id in kept.iter().filter(|id| !known.contains(id)) {
            if self.engine.get(id).is_none() && !self.pending.holds(id) {
                self.engine.artifacts().remove(id);
            }
        }
        Ok(())
    }

    /// Really removes what is older than it is to be kept, or too many.
    async fn retain(&self) -> Result<(), StoreError> {
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let before_ms = self.now_ms().saturating_sub(ms(self.config.keep));
        loop {
            let old = self.store.executions().expired(before_ms, self.config.keep_executions, BATCH).await?;
            if old.is_empty() {
                break;
            }
            let mut gone = 0;
            for id in &old {
                gone += usize::from(self.delete(id).await?);
            }
            tracing::info!(count = gone, "executions that were kept long enough are removed");
            if gone == 0 {
                break;
            }
        }
        self.store.idempotency().expire(self.now_ms().saturating_sub(ms(KEYS))).await?;
        Ok(())
    }
}
