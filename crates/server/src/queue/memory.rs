//! A queue in memory: what waits is put back from the database when the server starts again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fumehood_engine::ids::{ExecutionId, TenantId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Priority, Queue, QueueDepth, QueueEntry, QueuedJob, TakenJob};
use crate::store::StoreError;

/// For one server, or tests. It holds names only, each of which stands in the database too.
#[derive(Default)]
pub struct MemoryQueue {
    inner: Mutex<Inner>,
    pushed: Notify,
}

#[derive(Default)]
struct Inner {
    jobs: HashMap<ExecutionId, Entry>,
    /// By urgency, the least first; of each tenant in the order of pushing. Names that are no longer in `jobs`, or taken, are passed over.
    lines: [Line; 3],
    /// Leases were last looked through.
    reclaimed: Option<Instant>,
}

#[derive(Default)]
struct Line {
    by_tenant: BTreeMap<TenantId, VecDeque<ExecutionId>>,
    /// Whose turn was last.
    last: Option<TenantId>,
}

struct Entry {
    job: QueuedJob,
    deliveries: u32,
    taken: Option<(String, Instant)>,
    not_before: Option<Instant>,
    dead: Option<String>,
}

impl Line {
    /// Takes the first that `fits` of the tenant whose turn it is.
    fn next(&mut self, mut fits: impl FnMut(&ExecutionId) -> Fit) -> Option<ExecutionId> {
        let after = |last: &TenantId| (std::ops::Bound::Excluded(last.clone()), std::ops::Bound::Unbounded);
        let mut tenants: Vec<TenantId> = Vec::new();
        if let Some(last) = &self.last {
            tenants.extend(self.by_tenant.range(after(last)).map(|(tenant, _)| tenant.clone()));
            tenants.extend(self.by_tenant.range(..=last.clone()).map(|(tenant, _)| tenant.clone()));
        } else {
            tenants.extend(self.by_tenant.keys().cloned());
        }
        for tenant in tenants {
            let Some(line) = self.by_tenant.get_mut(&tenant) else { continue };
            let mut at = 0;
            let mut found = None;
            while let Some(id) = line.get(at) {
                match fits(id) {
                    Fit::Gone => {
                        line.remove(at);
                    }
                    Fit::NotYet => at += 1,
                    Fit::Now => {
                        found = line.remove(at);
                        break;
                    }
                }
            }
            if line.is_empty() {
                self.by_tenant.remove(&tenant);
            }
            if found.is_some() {
                self.last = Some(tenant);
                return found;
            }
        }
        None
    }
}

enum Fit {
    Now,
    NotYet,
    Gone,
}

impl Inner {
    fn line(&mut self, priority: Priority) -> &mut Line {
        &mut self.lines[priority as usize]
    }

    fn put(&mut self, job: &QueuedJob, first: bool) {
        let line = self.line(job.priority).by_tenant.entry(job.tenant.clone()).or_default();
        if first { line.push_front(job.execution.clone()) } else { line.push_back(job.execution.clone()) }
    }

    fn held(&mut self, worker: &str, id: &ExecutionId) -> Option<&mut Entry> {
        self.jobs.get_mut(id).filter(|entry| entry.taken.as_ref().is_some_and(|(by, _)| by == worker))
    }

    /// Those whose lease ran out wait again.
    fn reclaim(&mut self, now: Instant) {
        const LOOK: Duration = Duration::from_millis(500);
        // Not each time: that would make what a job costs depend on how many wait.
        if self.reclaimed.is_some_and(|last| now.duration_since(last) < LOOK) {
            return;
        }
        self.reclaimed = Some(now);
        let over: Vec<QueuedJob> = self
            .jobs
            .values_mut()
            .filter(|entry| entry.taken.as_ref().is_some_and(|(_, until)| *until <= now))
            .map(|entry| {
                entry.taken = None;
                entry.job.clone()
            })
            .collect();
        over.iter().for_each(|job| self.put(job, true));
    }
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn push(&self, job: &QueuedJob) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        if inner.jobs.contains_key(&job.execution) {
            return Ok(());
        }
        let entry = Entry { job: job.clone(), deliveries: 0, taken: None, not_before: None, dead: None };
        inner.jobs.insert(job.execution.clone(), entry);
        inner.put(job, false);
        drop(inner);
        self.pushed.notify_one();
        Ok(())
    }

    async fn take(&self, worker: &str, most: usize, lease: Duration) -> Result<Vec<TakenJob>, StoreError> {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.reclaim(now);
        let mut taken = Vec::new();
        for line in inner.lines.iter_mut().rev() {
            while taken.len() < most {
                let fits = |id: &ExecutionId| match inner.jobs.get(id) {
                    Some(entry) if entry.taken.is_some() || entry.dead.is_some() => Fit::Gone,
                    Some(entry) if entry.not_before.is_some_and(|time| time > now) => Fit::NotYet,
                    Some(_) => Fit::Now,
                    None => Fit::Gone,
                };
                let Some(id) = line.next(fits) else { break };
                let Some(entry) = inner.jobs.get_mut(&id) else { continue };
                entry.deliveries += 1;
                entry.taken = Some((worker.to_owned(), now + lease));
                taken.push(TakenJob { job: entry.job.clone(), deliveries: entry.deliveries, handle: String::new() });
            }
        }
        Ok(taken)
    }

    async fn wait(&self, patience: Duration) {
        tokio::time::timeout(patience, self.pushed.notified()).await.ok();
    }

    async fn renew(&self, worker: &str, jobs: &[TakenJob], lease: Duration) -> Result<Vec<ExecutionId>, StoreError> {
        let until = Instant::now() + lease;
        let mut inner = self.inner.lock();
        let mut lost = Vec::new();
        for taken in jobs {
            match inner.held(worker, &taken.job.execution) {
                Some(entry) => entry.taken = Some((worker.to_owned(), until)),
                None => lost.push(taken.job.execution.clone()),
            }
        }
        Ok(lost)
    }

    async fn done(&self, worker: &str, job: &TakenJob) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        if inner.held(worker, &job.job.execution).is_some() {
            inner.jobs.remove(&job.job.execution);
        }
        Ok(())
    }

    async fn later(&self, worker: &str, job: &TakenJob, after: Duration) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.held(worker, &job.job.execution) {
            entry.taken = None;
            entry.not_before = (!after.is_zero()).then(|| Instant::now() + after);
            inner.put(&job.job, true);
        }
        drop(inner);
        self.pushed.notify_one();
        Ok(())
    }

    async fn give_back_all(&self, worker: &str) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let held = inner.jobs.values_mut().filter(|entry| entry.taken.as_ref().is_some_and(|(by, _)| by == worker));
        let mut given: Vec<QueuedJob> = held
            .map(|entry| {
                entry.taken = None;
                entry.job.clone()
            })
            .collect();
        // The last goes in front first; names are in the order of their making.
        given.sort_by(|one, other| other.execution.cmp(&one.execution));
        given.iter().for_each(|job| inner.put(job, true));
        self.pushed.notify_one();
        Ok(())
    }

    async fn bury(&self, worker: &str, job: &TakenJob, reason: &str) -> Result<(), StoreError> {
        if let Some(entry) = self.inner.lock().held(worker, &job.job.execution) {
            entry.taken = None;
            entry.dead = Some(reason.to_owned());
        }
        Ok(())
    }

    async fn revive(&self, execution: &ExecutionId) -> Result<bool, StoreError> {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.jobs.get_mut(execution).filter(|entry| entry.dead.is_some()) else { return Ok(false) };
        (entry.dead, entry.deliveries) = (None, 0);
        let job = entry.job.clone();
        inner.put(&job, false);
        drop(inner);
        self.pushed.notify_one();
        Ok(true)
    }

    async fn remove(&self, execution: &ExecutionId) -> Result<bool, StoreError> {
        Ok(self.inner.lock().jobs.remove(execution).is_some())
    }

    async fn entries(&self, tenant: Option<&TenantId>, most: usize) -> Result<Vec<QueueEntry>, StoreError> {
        Ok(self.told(tenant, most, |entry| entry.dead.is_none()))
    }

    async fn dead(&self, tenant: Option<&TenantId>, most: usize) -> Result<Vec<QueueEntry>, StoreError> {
        let mut dead = self.told(tenant, usize::MAX, |entry| entry.dead.is_some());
        dead.reverse();
        dead.truncate(most);
        Ok(dead)
    }

    async fn depth(&self, tenant: Option<&TenantId>) -> Result<QueueDepth, StoreError> {
        let inner = self.inner.lock();
        let mut depth = QueueDepth::default();
        for entry in inner.jobs.values().filter(|entry| tenant.is_none_or(|tenant| entry.job.tenant == *tenant)) {
            match (&entry.dead, &entry.taken) {
                (Some(_), _) => depth.dead += 1,
                (None, Some(_)) => depth.taken += 1,
                (None, None) => depth.waiting += 1,
            }
        }
        Ok(depth)
    }
}

impl MemoryQueue {
    fn told(&self, tenant: Option<&TenantId>, most: usize, fits: impl Fn(&Entry) -> bool) -> Vec<QueueEntry> {
        let inner = self.inner.lock();
        let of = |entry: &&Entry| fits(entry) && tenant.is_none_or(|tenant| entry.job.tenant == *tenant);
        let mut entries: Vec<QueueEntry> = inner
            .jobs
            .values()
            .filter(of)
            .map(|entry| QueueEntry {
                execution_id: entry.job.execution.clone(),
                tenant: entry.job.tenant.clone(),
                priority: entry.job.priority,
                deliveries: entry.deliveries,
                worker: entry.taken.as_ref().map(|(worker, _)| worker.clone()),
                reason: entry.dead.clone(),
            })
            .collect();
        entries.sort_by(|one, other| one.execution_id.cmp(&other.execution_id));
        entries.truncate(most);
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str, tenant: &str, priority: Priority) -> QueuedJob {
        let (execution, tenant) = (ExecutionId::parse(id).unwrap(), TenantId::parse(tenant).unwrap());
        QueuedJob { execution, tenant, priority }
    }

    #[tokio::test]
    async fn urgent_ones_go_first_and_tenants_take_turns() {
        let queue = MemoryQueue::default();
        for (id, tenant, priority) in [
            ("exe_1", "a", Priority::Normal),
            ("exe_2", "a", Priority::Normal),
            ("exe_3", "b", Priority::Normal),
            ("exe_4", "a", Priority::Low),
            ("exe_5", "b", Priority::High),
        ] {
            queue.push(&job(id, tenant, priority)).await.unwrap();
        }
        let taken = queue.take("w", 10, Duration::from_secs(9)).await.unwrap();
        let order: Vec<_> = taken.iter().map(|taken| taken.job.execution.as_str()).collect();
        assert_eq!(order, ["exe_5", "exe_1", "exe_3", "exe_2", "exe_4"]);
    }

    #[tokio::test]
    async fn one_whose_lease_ran_out_comes_again_and_is_no_longer_the_first_ones() {
        let queue = MemoryQueue::default();
        queue.push(&job("exe_1", "a", Priority::Normal)).await.unwrap();
        let first = queue.take("w", 1, Duration::ZERO).await.unwrap();
        queue.inner.lock().reclaimed = None;
        let second = queue.take("v", 1, Duration::from_secs(9)).await.unwrap();
        assert_eq!((first.len(), second[0].deliveries), (1, 2));
        assert_eq!(queue.renew("w", &first, Duration::from_secs(9)).await.unwrap().len(), 1);
        queue.done("w", &first[0]).await.unwrap();
        assert_eq!(queue.depth(None).await.unwrap().taken, 1);
        queue.done("v", &second[0]).await.unwrap();
        assert_eq!(queue.depth(None).await.unwrap(), QueueDepth::default());
    }

    #[tokio::test]
    async fn a_worker_that_begins_anew_gives_back_what_it_had_and_nothing_else() {
        const LONG: Duration = Duration::from_secs(9);
        let queue = MemoryQueue::default();
        for id in ["exe_1", "exe_2", "exe_3", "exe_4"] {
            queue.push(&job(id, "a", Priority::Normal)).await.unwrap();
        }
        let had = queue.take("w", 2, LONG).await.unwrap();
        let others = queue.take("v", 1, LONG).await.unwrap();
        queue.give_back_all("w").await.unwrap();
        assert_eq!(queue.depth(None).await.unwrap(), QueueDepth { waiting: 3, taken: 1, dead: 0 });
        assert_eq!(queue.renew("w", &had, LONG).await.unwrap().len(), 2);
        assert_eq!(queue.renew("v", &others, LONG).await.unwrap(), []);
        let again = queue.take("w", 9, LONG).await.unwrap();
        let told: Vec<_> = again.iter().map(|taken| (taken.job.execution.as_str(), taken.deliveries)).collect();
        assert_eq!(told, [("exe_1", 2), ("exe_2", 2), ("exe_4", 1)]);
    }
}
