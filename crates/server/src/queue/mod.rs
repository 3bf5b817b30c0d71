//! Which job runs next, and where: a queue that delivers each job at least once.
//!
//! The queue holds names of jobs, not jobs: what a job is and what became of it stands in the database ([`crate::store`]), which also decides that it ends
//! only once. So a job may be in the queue twice, or come again after its end, and whoever takes it finds out from its row.
//!
//! ```text
//! push -> waiting -> take (leased) -> done
//!            ^          |  \--later--> waiting again, not before its time
//!            |          |  \--bury---> dead, until somebody revives or removes it
//!            \--lease ran out, or its worker begins anew
//! ```

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fumehood_engine::clock::Clock;
use fumehood_engine::ids::{ExecutionId, TenantId};
pub use fumehood_engine::job::Priority;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use utoipa::ToSchema;

use crate::store::{Database, StoreError};

mod embedded;
mod memory;
mod redis;

pub use self::redis::RedisQueue;
pub use embedded::EmbeddedQueue;
pub use memory::MemoryQueue;

/// Which queue.
#[derive(Clone, PartialEq, Eq)]
pub enum QueueConfig {
    /// In the database.
    Embedded,
    /// In Redis.
    Redis {
        /// Where; may hold a password.
        url: String,
        /// What all keys begin with.
        prefix: String,
    },
}

impl QueueConfig {
    /// In Redis, at a URL that can be one.
    ///
    /// # Errors
    /// When it cannot; the URL is not repeated.
    pub fn redis(url: &str, prefix: &str) -> Result<Self, StoreError> {
        self::redis::check_url(url)?;
        Ok(Self::Redis { url: url.to_owned(), prefix: prefix.to_owned() })
    }

    /// Opens it; nothing is asked of a service yet. The embedded one is in `database`.
    ///
    /// # Errors
    /// When it cannot be as configured.
    pub fn open(&self, database: Arc<Database>, clock: Arc<dyn Clock>) -> Result<Arc<dyn Queue>, StoreError> {
        Ok(match self {
            Self::Embedded => Arc::new(EmbeddedQueue::new(database, clock)),
            Self::Redis { url, prefix } => Arc::new(RedisQueue::new(url, prefix)?),
        })
    }
}

impl fmt::Debug for QueueConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "the database",
            Self::Redis { .. } => "Redis",
        })
    }
}

/// A job by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedJob {
    /// The execution that it is.
    pub execution: ExecutionId,
    /// Whose it is.
    pub tenant: TenantId,
    /// How urgent it is.
    pub priority: Priority,
}

/// A job that was taken: it is this worker's until its lease runs out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenJob {
    /// Which.
    pub job: QueuedJob,
    /// How often it was taken, this time included: 1 the first time.
    pub deliveries: u32,
    /// What the queue itself needs to find it again.
    pub handle: String,
}

/// What a queue tells of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueEntry {
    /// The execution that it is.
    pub execution_id: ExecutionId,
    /// Whose it is.
    pub tenant: TenantId,
    /// How urgent it is.
    pub priority: Priority,
    /// How often it was taken.
    pub deliveries: u32,
    /// Who has it; `null` while it waits and when it is dead.
    pub worker: Option<String>,
    /// Why it is dead; `null` otherwise.
    pub reason: Option<String>,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueDepth {
    /// Jobs that wait, those not yet due included.
    pub waiting: u64,
    /// Jobs that somebody has.
    pub taken: u64,
    /// Jobs that nobody tries any more.
    pub dead: u64,
}

/// A durable queue of jobs, shared by any number of workers.
///
/// What [`Self::push`] has returned `Ok` for survives the end of every process. Every error is [`StoreError::Unavailable`] when the queue's service is not
/// to be reached; the call may then be repeated, and needs no new connection by the caller.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Puts a job at the end of its tenant's part. One that is there already (waiting, taken or dead) stays as it is.
    async fn push(&self, job: &QueuedJob) -> Result<(), StoreError>;

    /// Takes up to `most` jobs for `worker`, each leased for `lease`; none when there are none. Urgent ones first; of the same urgency, tenants take
    /// turns and each tenant's come in the order they were pushed. Jobs whose lease ran out are taken again like others. Does not wait.
    async fn take(&self, worker: &str, most: usize, lease: Duration) -> Result<Vec<TakenJob>, StoreError>;

    /// Resolves when there may be something to take: at once where that cannot be told, after `patience` at the latest. Never polls a service more
    /// often than every 100 ms.
    async fn wait(&self, patience: Duration);

    /// Keeps taken jobs for another `lease` from now. Returns those that are this worker's no longer.
    async fn renew(&self, worker: &str, jobs: &[TakenJob], lease: Duration) -> Result<Vec<ExecutionId>, StoreError>;

    /// It has ended; the queue forgets it. Nothing happens when somebody else has it by now.
    async fn done(&self, worker: &str, job: &TakenJob) -> Result<(), StoreError>;

    /// Gives it back: it waits again, in front of its tenant's others, not to be taken before `after`.
    async fn later(&self, worker: &str, job: &TakenJob, after: Duration) -> Result<(), StoreError>;

    /// Gives back everything that `worker` has, at once: for one that begins, as what an earlier process of its name had is nobody's.
    async fn give_back_all(&self, worker: &str) -> Result<(), StoreError>;

    /// Nobody shall try it again; it is kept among the dead with `reason`.
    async fn bury(&self, worker: &str, job: &TakenJob, reason: &str) -> Result<(), StoreError>;

    /// A dead job waits again, as if it had never been taken. Whether there was one.
    async fn revive(&self, execution: &ExecutionId) -> Result<bool, StoreError>;

    /// Forgets a job wherever it is, for example because it was cancelled. Whether there was one.
    async fn remove(&self, execution: &ExecutionId) -> Result<bool, StoreError>;

    /// Jobs that wait or are taken, at most `most`, of one tenant or of all.
    async fn entries(&self, tenant: Option<&TenantId>, most: usize) -> Result<Vec<QueueEntry>, StoreError>;

    /// Dead ones, newest first.
    async fn dead(&self, tenant: Option<&TenantId>, most: usize) -> Result<Vec<QueueEntry>, StoreError>;

    /// How much there is, of one tenant or of all.
    async fn depth(&self, tenant: Option<&TenantId>) -> Result<QueueDepth, StoreError>;
}

/// [`Queue::wait`]: until something was pushed here, or `peek` finds something, which is asked every `look` by one of all that wait.
async fn wait<F>(
    pushed: &Notify,
    looked: &Mutex<Option<Instant>>,
    look: Duration,
    patience: Duration,
    peek: impl Fn() -> F + Send,
) where
    F: Future<Output = Result<bool, StoreError>> + Send,
{
    let is_due = || {
        let mut looked = looked.lock();
        let due = looked.is_none_or(|last| last.elapsed() >= look);
        if due {
            *looked = Some(Instant::now());
        }
        due
    };
    let search = async {
        loop {
            // An outage is no reason to hurry.
            if is_due() && peek().await.unwrap_or(false) {
                return;
            }
            tokio::time::sleep(look).await;
        }
    };
    tokio::select! {
        () = pushed.notified() => {}
        () = search => {}
        () = tokio::time::sleep(patience) => {}
    }
}
