//! Executions on record, written behind the answer, and read beside what the engine still has.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fumehood_engine::event::{Event, EventBody, EventLog};
use fumehood_engine::execution::{Execution, Status};
use fumehood_engine::ids::{ExecutionId, SessionId, TenantId};
use fumehood_engine::{Archive, Ended, ListFilter};
use futures::{Stream, StreamExt, future, stream};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Jobs, LONGEST_PAUSE, PAUSE};
use crate::http::submit::Accepted;
use crate::store::{ExecutionFilter, KeptExecution, StoreError};

/// Executions that wait to be written, and bytes of their output: beyond that the newest are not kept on record.
const MOST: usize = 20_000;
const MOST_BYTES: usize = 256 << 20;
/// Executions written at once.
const BATCH: usize = 500;
/// Those that end within so long are written together.
const GATHER: Duration = Duration::from_millis(20);
/// Jobs of other servers are looked at this often, at first and later.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_LATER: Duration = Duration::from_secs(1);

/// Executions that have ended and are not on record yet.
#[derive(Default)]
pub(super) struct Pending {
    queue: Mutex<Waiting>,
    filled: Notify,
    written: Notify,
    /// Held while some are written, so that none is deleted meanwhile.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    ended: VecDeque<Ended>,
    bytes: usize,
    dropping: bool,
}

fn size(ended: &Ended) -> usize {
    let whole: usize = ended.whole.as_ref().map_or(0, |whole| whole.iter().map(String::len).sum());
    whole + ended.execution.stdout.len() + ended.execution.stderr.len()
}

impl Pending {
    fn push(&self, ended: Ended) {
        let mut queue = self.queue.lock();
        let bytes = size(&ended);
        if queue.ended.len() >= MOST || queue.bytes + bytes > MOST_BYTES {
            metrics::counter!("fumehood_records_dropped_total").increment(1);
            if !queue.dropping {
                queue.dropping = true;
                tracing::error!("the database takes no records, and too many wait: further ones are not kept");
            }
            return;
        }
        queue.bytes += bytes;
        queue.ended.push_back(ended);
        drop(queue);
        self.filled.notify_one();
    }

    fn first(&self, most: usize) -> Vec<Ended> {
        self.queue.lock().ended.iter().take(most).cloned().collect()
    }

    fn drop_first(&self, count: usize) {
        let mut queue = self.queue.lock();
        for _ in 0..count {
            let Some(ended) = queue.ended.pop_front() else { break };
            queue.bytes -= size(&ended);
        }
        queue.dropping = false;
        drop(queue);
        self.written.notify_waiters();
    }

    fn find(&self, id: &ExecutionId) -> Option<Ended> {
        self.queue.lock().ended.iter().find(|ended| ended.execution.id == *id).cloned()
    }

    fn forget(&self, id: &ExecutionId) -> bool {
        let mut queue = self.queue.lock();
        let Some(at) = queue.ended.iter().position(|ended| ended.execution.id == *id) else { return false };
        if let Some(ended) = queue.ended.remove(at) {
            queue.bytes -= size(&ended);
        }
        true
    }

    pub(super) fn holds(&self, id: &ExecutionId) -> bool {
        self.find(id).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.lock().ended.is_empty()
    }

    /// Resolves when some were written, or after a moment.
    pub(super) async fn written(&self) {
        tokio::time::timeout(GATHER, self.written.notified()).await.ok();
    }
}

/// What the engine tells of every end. The jobs own the engine, so that it must not own them.
pub(super) struct Recorder(pub(super) Weak<Jobs>);

impl Archive for Recorder {
    fn keep(&self, ended: Ended) {
        let Some(jobs) = self.0.upgrade() else { return };
        // The end of a job is written with its row.
        if !jobs.local.lock().contains_key(&ended.execution.id) {
            jobs.pending.push(ended);
        }
    }
}

/// Writes what waits, however long the database is away.
pub(super) async fn write(jobs: Arc<Jobs>) {
    let mut pause = PAUSE;
    loop {
        let pending = &jobs.pending;
        if pending.is_empty() {
            pending.filled.notified().await;
            tokio::time::sleep(GATHER).await;
        }
        let writing = pending.writing.lock().await;
        let batch = pending.first(BATCH);
        for ended in &batch {
            if let Err(error) = jobs.share_files(&ended.execution).await {
                stay(&ended.execution, &error);
            }
        }
        match jobs.store.executions().keep(&batch).await {
            Ok(()) => {
                pending.drop_first(batch.len());
                pause = PAUSE;
            }
            Err(StoreError::Unavailable(error)) => {
                tracing::warn!(%error, "records wait for the database");
                drop(writing);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(_) => {
                // One of them is at fault, and must not be in the way of the others.
                for ended in batch {
                    match jobs.store.executions().keep(std::slice::from_ref(&ended)).await {
                        Ok(()) => {}
                        Err(StoreError::Unavailable(_)) => break,
                        Err(error) => {
                            let error = crate::chain(&error);
                            tracing::error!(execution = %ended.execution.id, error, "an execution cannot be kept on record");
                        }
                    }
                    pending.drop_first(1);
                }
            }
        }
    }
}

fn stay(execution: &Execution, error: &StoreError) {
    let error = crate::chain(error);
    tracing::warn!(execution = %execution.id, error, "files of an execution stay on this server alone");
}

impl Jobs {
    /// An execution of `owner`, or of anybody: as it is now, or as it is on record. Whoever sees an end of a job here sees it after it was written.
    pub(crate) async fn find(
        &self,
        id: &ExecutionId,
        owner: Option<&TenantId>,
    ) -> Result<Option<KeptExecution>, StoreError> {
        if let Some((execution, whose)) = self.engine.get(id).zip(self.engine.owner_of(id)) {
            if owner.is_some_and(|owner| *owner != whose) {
                return Ok(None);
            }
            if !execution.status.is_final() || !self.local.lock().contains_key(id) {
                return Ok(Some(KeptExecution { owner: whose, execution, whole: None }));
            }
            self.recorded(id).await;
        }
        if let Some(ended) = self.pending.find(id) {
            return Ok(Some(ended.into()).filter(|kept: &KeptExecution| owner.is_none_or(|owner| *owner == kept.owner)));
        }
        let kept = self.store.executions().get(id).await?;
        Ok(kept.filter(|kept| owner.is_none_or(|owner| *owner == kept.owner)))
    }

    /// A page of executions, newest first: what the engine has, what waits to be written and what is on record, each once. And the cursor of the next.
    pub(crate) async fn page(
        &self,
        filter: &ListFilter,
        owner: Option<&TenantId>,
    ) -> Result<(Vec<Arc<Execution>>, Option<ExecutionId>), StoreError> {
        let asked = ExecutionFilter {
            owner: owner.cloned(),
            status: filter.status,
            session: filter.session.clone(),
            before: filter.before.clone(),
            limit: filter.limit + 1,
        };
        let on_record = self.store.executions().list(&asked).await?;
        let full = on_record.len() > filter.limit;
        let seen_to = on_record.last().map(|kept| kept.execution.id.clone());
        let (mut all, more) = self.engine.list(filter);
        let fits = |execution: &Execution| {
            filter.status.is_none_or(|status| execution.status == status)
                && filter.session.as_ref().is_none_or(|id| execution.session_id.as_ref() == Some::<&SessionId>(id))
                && filter.before.as_ref().is_none_or(|before| execution.id < *before)
        };
        let waiting = self.pending.first(usize::MAX).into_iter().map(|ended| ended.execution);
        for execution in waiting.chain(on_record.into_iter().map(|kept| kept.execution)) {
            // What the engine has is newer than what is on record.
            if self.engine.get(&execution.id).is_none() && fits(&execution) {
                all.push(execution);
            }
        }
        all.sort_by(|one, other| other.id.cmp(&one.id));
        all.dedup_by(|one, other| one.id == other.id);
        let beyond = all.len() > filter.limit;
        all.truncate(filter.limit);
        let last = all.last().map(|execution| execution.id.clone());
        let next = if beyond || more.is_some() {
            last
        } else if full {
            // Rows that the engine knows better were left out: the page may be short, and the next begins where the rows ended.
            seen_to
        } else {
            None
        };
        Ok((all, next))
    }

    /// Puts the files that an execution left where every server of this database finds them, if there is such a place. May be repeated: the only error is
    /// [`StoreError::Unavailable`].
    pub(super) async fn share_files(&self, execution: &Execution) -> Result<(), StoreError> {
        let Some(blobs) = self.store.shared_files() else { return Ok(()) };
        for (index, artifact) in execution.artifacts.iter().enumerate() {
            let (engine, id) = (self.engine.clone(), execution.id.clone());
            let opened = tokio::task::spawn_blocking(move || engine.artifacts().open_artifact(&id, index)).await;
            // Those that are gone were too many, see `engine.keep_artifacts_mb`.
            let Ok(Ok(file)) = opened else { continue };
            match blobs.put_file(execution.id.as_str(), &artifact.into(), file.into()).await {
                Ok(()) => {}
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    stay(execution, &error);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Removes an execution that has ended, everywhere. Whether there was one.
    pub(crate) async fn delete(&self, id: &ExecutionId) -> Result<bool, StoreError> {
        if self.engine.get(id).is_some_and(|execution| execution.status.is_final()) {
            self.recorded(id).await;
        }
        let _writing = self.pending.writing.lock().await;
        let dead = !self.store.jobs().get(std::slice::from_ref(id)).await?.is_empty();
        let gone = self.store.executions().delete(id).await?;
        let waited = self.pending.forget(id);
        let known = self.engine.forget(id);
        self.engine.artifacts().remove(id);
        // It is among the dead of the queue too.
        if gone
            && dead
            && let Err(error) = self.queue.remove(id).await
        {
            tracing::warn!(execution = %id, %error, "the queue was not told");
        }
        Ok(gone || waited || known)
    }

    /// Events of an execution that was accepted, after number `after`, those to come included.
    pub(crate) fn told(
        self: &Arc<Self>,
        accepted: &Accepted,
        after: u64,
    ) -> impl Stream<Item = Arc<Event>> + Send + 'static + use<> {
        self.told_of(accepted.id.clone(), accepted.owner.clone(), accepted.events.clone(), after)
    }

    /// The same for any execution. Its `result` comes once it is on record; where it is given back, because this server ends, none comes.
    pub(crate) fn told_of(
        self: &Arc<Self>,
        id: ExecutionId,
        owner: TenantId,
        known: Option<EventLog>,
        after: u64,
    ) -> impl Stream<Item = Arc<Event>> + Send + 'static + use<> {
        let jobs = Arc::clone(self);
        let log = async move {
            if known.is_some() {
                return Some((jobs, id, known?));
            }
            loop {
                match jobs.events(&id, Some(&owner)).await {
                    Ok(log) => return Some((jobs, id, log?)),
                    Err(error) => {
                        tracing::debug!(execution = %id, %error, "who follows waits for the database");
                        tokio::time::sleep(LOOK_LATER).await;
                    }
                }
            }
        };
        let logs = stream::once(log).filter_map(future::ready);
        logs.flat_map(move |(jobs, id, log)| {
            log.follow(after).filter_map(move |event| {
                let (jobs, id) = (Arc::clone(&jobs), id.clone());
                async move {
                    if matches!(event.body, EventBody::Result(_)) && jobs.local.lock().contains_key(&id) {
                        jobs.recorded(&id).await;
                        let given_back = |kept: KeptExecution| !kept.execution.status.is_final();
                        if jobs.find(&id, None).await.ok().flatten().is_some_and(given_back) {
                            return None;
                        }
                    }
                    Some(event)
                }
            })
        })
    }

    /// Events of an execution until now.
    pub(crate) async fn events_so_far(&self, id: &ExecutionId, owner: &TenantId) -> Result<EventLog, StoreError> {
        if let Some(log) = self.engine.events(id) {
            return Ok(log);
        }
        let log = EventLog::default();
        if let Some(kept) = self.find(id, Some(owner)).await?
            && kept.execution.status.is_final()
        {
            log.push(EventBody::Result(kept.execution));
        }
        Ok(log)
    }

    /// Events of an execution as soon as there are any: those of this server's engine once it has begun here, or the last one once it has ended
    /// anywhere. `None` when there is no such execution.
    pub(crate) async fn events(
        &self,
        id: &ExecutionId,
        owner: Option<&TenantId>,
    ) -> Result<Option<EventLog>, StoreError> {
        let mut pause = LOOK;
        let mut asked: Option<Instant> = None;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(log) = self.engine.events(id) {
                return Ok(Some(log));
            }
            // Much changes here that is none of this one's; the database is not asked for each.
            if asked.is_none_or(|last| last.elapsed() >= LOOK) {
                asked = Some(Instant::now());
                let Some(kept) = self.find(id, owner).await? else { return Ok(None) };
                if kept.execution.status.is_final() {
                    let log = EventLog::default();
                    log.push(EventBody::Result(kept.execution));
                    return Ok(Some(log));
                }
            }
            if tokio::time::timeout(pause, changed).await.is_err() {
                pause = (pause * 2).min(LOOK_LATER);
            }
        }
    }

    /// An execution once it has ended and that is on record; `None` when there is none, or it is given back because this server ends.
    pub(crate) async fn ended(
        &self,
        id: &ExecutionId,
        owner: Option<&TenantId>,
    ) -> Result<Option<Arc<Execution>>, StoreError> {
        loop {
            let Some(log) = self.events(id, owner).await? else { return Ok(None) };
            log.finished().await;
            let Some(kept) = self.find(id, owner).await? else { return Ok(None) };
            if kept.execution.status.is_final() {
                return Ok(Some(kept.execution));
            }
            if self.stop.is_cancelled() {
                return Ok(None);
            }
        }
    }

    /// Whether an execution waits in the queue, or runs on another server: nothing can be given to it here.
    pub(crate) async fn elsewhere(&self, id: &ExecutionId) -> Result<bool, StoreError> {
        let open = |status: Status| !status.is_final();
        Ok(self.find(id, None).await?.is_some_and(|kept| open(kept.execution.status)))
    }
}
