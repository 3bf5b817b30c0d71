//! The queue in Redis, on streams: for many workers on many machines.
//!
//! Each tenant has a stream for each priority; what a worker takes is pending in the stream's consumer group until it is done, and then deleted. A lease of
//! its own for each job stands beside it, as the group knows only how long ago something was delivered. Every step is one script, so that all keys change
//! together or not at all; they are listed in `redis/common.lua`. Times are the server's.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use fumehood_engine::ids::{ExecutionId, TenantId};
use parking_lot::Mutex;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, FromRedisValue, RedisError, Script, ScriptInvocation};
use tokio::sync::Notify;

use super::{Priority, Queue, QueueDepth, QueueEntry, QueuedJob, TakenJob};
use crate::store::StoreError;

/// A connection that is not there by then, or an answer, is an outage.
const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(3);

/// How often a waiting worker looks for what other processes pushed and for what became due.
const LOOK: Duration = Duration::from_millis(100);

macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(include_str!("redis/common.lua"), include_str!(concat!("redis/", $name, ".lua"))))
    };
}

struct Scripts {
    push: Script,
    take: Script,
    settle: Script,
    give_back_all: Script,
    revive: Script,
    remove: Script,
    peek: Script,
    list: Script,
}

/// A [`Queue`] in Redis.
pub struct RedisQueue {
    connection: ConnectionManager,
    prefix: String,
    scripts: Scripts,
    pushed: Notify,
    looked: Mutex<Option<Instant>>,
}

impl RedisQueue {
    /// The queue whose keys begin with `prefix` on the server at `url` (`redis://` or `rediss://`). Does not connect yet.
    ///
    /// # Errors
    /// When the URL cannot be one.
    pub fn new(url: &str, prefix: &str) -> Result<Self, StoreError> {
        let client = check_url(url)?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER))
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(50))
            .set_max_delay(Duration::from_millis(500));
        Ok(Self {
            connection: ConnectionManager::new_lazy_with_config(client, config)?,
            prefix: prefix.to_owned(),
            scripts: Scripts {
                push: script!("push"),
                take: script!("take"),
                settle: script!("settle"),
                give_back_all: script!("give_back_all"),
                revive: script!("revive"),
                remove: script!("remove"),
                peek: script!("peek"),
                list: script!("list"),
            },
            pushed: Notify::new(),
            looked: Mutex::default(),
        })
    }

    async fn run<T: FromRedisValue>(&self, invocation: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        Ok(invocation.invoke_async(&mut self.connection.clone()).await?)
    }

    fn script<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        script.key(&self.prefix)
    }

    /// One of the orders of `settle.lua`; whether it is still this taking of this worker's.
    async fn settle(&self, what: &str, worker: &str, job: &TakenJob, value: &str) -> Result<bool, StoreError> {
        let mut order = self.script(&self.scripts.settle);
        order.arg(what).arg(worker).arg(job.job.execution.as_str()).arg(&job.handle).arg(job.deliveries).arg(value);
        self.run(&order).await
    }

    async fn list(&self, which: &str, tenant: Option<&TenantId>, most: usize) -> Result<Vec<QueueEntry>, StoreError> {
        let mut order = self.script(&self.scripts.list);
        order.arg(which).arg(tenant.map_or("", TenantId::as_str)).arg(most);
        let rows: Vec<Row> = self.run(&order).await?;
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let entry = |(execution, tenant, priority, deliveries, worker, reason): Row| {
            let job = read(&execution, &tenant, priority)?;
            Ok(QueueEntry {
                execution_id: job.execution,
                tenant: job.tenant,
                priority: job.priority,
                deliveries,
                worker: given(worker),
                reason: if which == "dead" { Some(reason) } else { None },
            })
        };
        rows.into_iter().map(entry).collect()
    }

    async fn peek(&self) -> Result<bool, StoreError> {
        self.run(&self.script(&self.scripts.peek)).await
    }
}

/// What speaks to `url`, once asked to.
pub(super) fn check_url(url: &str) -> Result<Client, StoreError> {
    if !url.starts_with("redis://") && !url.starts_with("rediss://") {
        return Err(StoreError::Url("must begin with redis:// or rediss://".to_owned()));
    }
    // It may hold a password: it is not repeated.
    Client::open(url)
        .map_err(|_| StoreError::Url("must be redis://USER:PASSWORD@HOST:PORT/NUMBER, or a part of that".to_owned()))
}

/// Execution, tenant, priority, deliveries, worker, reason.
type Row = (String, String, i64, u32, String, String);

fn read(execution: &str, tenant: &str, priority: i64) -> Result<QueuedJob, StoreError> {
    let corrupt = |what: &str| StoreError::Corrupt { table: "queue", cause: what.into() };
    Ok(QueuedJob {
        execution: ExecutionId::parse(execution).ok_or_else(|| corrupt(execution))?,
        tenant: TenantId::parse(tenant).ok_or_else(|| corrupt(tenant))?,
        priority: Priority::of_rank(priority).ok_or_else(|| corrupt("its priority"))?,
    })
}

fn milliseconds(duration: Duration) -> String {
    duration.as_millis().to_string()
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        use redis::{ErrorKind, ServerErrorKind as Told};
        let passes = error.is_io_error()
            || error.is_connection_dropped()
            || matches!(
                error.kind(),
                ErrorKind::Server(
                    Told::BusyLoading | Told::TryAgain | Told::ClusterDown | Told::MasterDown | Told::ReadOnly
                )
            )
            // No memory left; a script runs too long; the last copy on the disk failed; too few replicas.
            || matches!(error.code(), Some("OOM" | "BUSY" | "MISCONF" | "NOREPLICAS"));
        if passes { Self::Unavailable(Box::new(error)) } else { Self::Refused(Box::new(error)) }
    }
}

#[async_trait]
impl Queue for RedisQueue {
    async fn push(&self, job: &QueuedJob) -> Result<(), StoreError> {
        let mut order = self.script(&self.scripts.push);
        order.arg(job.execution.as_str()).arg(job.tenant.as_str()).arg(job.priority.rank());
        self.run::<bool>(&order).await?;
        self.pushed.notify_one();
        Ok(())
    }

    async fn take(&self, worker: &str, most: usize, lease: Duration) -> Result<Vec<TakenJob>, StoreError> {
        let mut order = self.script(&self.scripts.take);
        order.arg(worker).arg(most).arg(milliseconds(lease));
        let rows: Vec<(String, String, i64, u32, String)> = self.run(&order).await?;
        let taken = |(execution, tenant, priority, deliveries, handle): (String, String, i64, u32, String)| {
            Ok(TakenJob { job: read(&execution, &tenant, priority)?, deliveries, handle })
        };
        rows.into_iter().map(taken).collect()
    }

    async fn wait(&self, patience: Duration) {
        super::wait(&self.pushed, &self.looked, LOOK, patience, || self.peek()).await;
    }

    async fn renew(&self, worker: &str, jobs: &[TakenJob], lease: Duration) -> Result<Vec<ExecutionId>, StoreError> {
        let lease = milliseconds(lease);
        let renewed =
            futures::future::try_join_all(jobs.iter().map(|job| self.settle("renew", worker, job, &lease))).await?;
        Ok(jobs.iter().zip(renewed).filter(|(_, renewed)| !renewed).map(|(job, _)| job.job.execution.clone()).collect())
    }

    async fn done(&self, worker: &str, job: &TakenJob) -> Result<(), StoreError> {
        self.settle("done", worker, job, "").await?;
        Ok(())
    }

    async fn later(&self, worker: &str, job: &TakenJob, after: Duration) -> Result<(), StoreError> {
        self.settle("later", worker, job, &milliseconds(after)).await?;
        if after.is_zero() {
            self.pushed.notify_one();
        }
        Ok(())
    }

    async fn give_back_all(&self, worker: &str) -> Result<(), StoreError> {
        let mut order = self.script(&self.scripts.give_back_all);
        order.arg(worker);
        self.run::<u64>(&order).await?;
        self.pushed.notify_one();
        Ok(())
    }

    async fn bury(&self, worker: &str, job: &TakenJob, reason: &str) -> Result<(), StoreError> {
        self.settle("bury", worker, job, reason).await?;
        Ok(())
    }

    async fn revive(&self, execution: &ExecutionId) -> Result<bool, StoreError> {
        let mut order = self.script(&self.scripts.revive);
        order.arg(execution.as_str());
        let revived = self.run(&order).await?;
        if revived {
            self.pushed.notify_one();
        }
        Ok(revived)
    }

    async fn remove(&self, execution: &ExecutionId) -> Result<bool, StoreError> {
        let mut order = self.script(&self.scripts.remove);
        order.arg(execution.as_str());
        self.run(&order).await
    }

    async fn entries(&self, tenant: Option<&TenantId>, most: usize) -> Result<Vec<QueueEntry>, StoreError> {
        self.list("live", tenant, most).await
    }

    async fn dead(&self, tenant: Option<&TenantId>, most: usize) -> Result<Vec<QueueEntry>, StoreError> {
        self.list("dead", tenant, most).await
    }

    async fn depth(&self, tenant: Option<&TenantId>) -> Result<QueueDepth, StoreError> {
        let of = tenant.map(|tenant| format!(":{tenant}")).unwrap_or_default();
        let fields = ["waiting", "taken", "dead"].map(|state| format!("{state}{of}"));
        let mut order = redis::cmd("HMGET");
        order.arg(format!("{}count", self.prefix)).arg(&fields);
        let counts: [Option<u64>; 3] = order.query_async(&mut self.connection.clone()).await?;
        let [waiting, taken, dead] = counts.map(Option::unwrap_or_default);
        Ok(QueueDepth { waiting, taken, dead })
    }
}
