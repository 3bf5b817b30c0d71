//! The queue in the database: nothing else to run, and what is kept is kept together.
//!
//! ```text
//! queue          one row for each job: ready (0), waits for its time (1), taken (2), dead (3)
//! queue_turns    one row for each tenant and priority: whether it may have ready jobs, and when it was last served
//! queue_taking   one row, held by whoever takes: takers come one after the other, so no two disagree about whose turn it is
//! ```
//!
//! A taker holds `queue_taking`, then rows of `queue_turns`, then rows of `queue`. A push holds its tenant's row of `queue_turns` until its job is there, so
//! that a tenant that was found empty cannot miss one that comes at this moment. Everything else touches one row of `queue`. What the database still breaks
//! off is tried again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fumehood_engine::clock::Clock;
use fumehood_engine::ids::{ExecutionId, TenantId};
use parking_lot::Mutex;
use sqlx::any::AnyRow;
use sqlx::{Any, Transaction};
use tokio::sync::Notify;

use super::{Priority, Queue, QueueDepth, QueueEntry, QueuedJob, TakenJob};
use crate::store::{Columns as _, Database, Kind, StoreError, retry_contended};

const READY: i64 = 0;
const DEFERRED: i64 = 1;
const TAKEN: i64 = 2;
const DEAD: i64 = 3;

/// How often a waiting worker looks for what other processes pushed and for what became due.
const LOOK: Duration = Duration::from_millis(200);

/// Jobs that become ready again in one go; the next taker goes on.
const DUE_AT_ONCE: i64 = 100;

/// A [`Queue`] in the [`Database`].
pub struct EmbeddedQueue {
    database: Arc<Database>,
    clock: Arc<dyn Clock>,
    pushed: Notify,
    looked: Mutex<Option<Instant>>,
}

impl EmbeddedQueue {
    /// The queue in `database`. Workers on several machines share it if their clocks agree to within a small part of a lease.
    #[must_use]
    pub fn new(database: Arc<Database>, clock: Arc<dyn Clock>) -> Self {
        Self { database, clock, pushed: Notify::new(), looked: Mutex::default() }
    }

    fn now(&self) -> i64 {
        let milliseconds = self.clock.now().unix_timestamp_nanos() / 1_000_000;
        i64::try_from(milliseconds).unwrap_or(i64::MAX)
    }

    fn after(&self, duration: Duration) -> i64 {
        self.now().saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
    }

    /// Whether there may be something to take; holds nothing.
    async fn peek(&self) -> Result<bool, StoreError> {
        let text = "SELECT (SELECT COUNT(*) FROM (SELECT 1 AS one FROM queue_turns WHERE active = 1 LIMIT 1) AS a)
            + (SELECT COUNT(*) FROM (SELECT 1 AS one FROM queue WHERE state = 1 AND due_ms <= ? LIMIT 1) AS b)
            + (SELECT COUNT(*) FROM (SELECT 1 AS one FROM queue WHERE state = 2 AND due_ms <= ? LIMIT 1) AS c) AS found";
        let now = self.now();
        let row = self.database.query(text).bind(now).bind(now).fetch_one(self.database.pool()).await?;
        Ok(row.number("found")? > 0)
    }

    /// Says that a tenant may have ready jobs, in the transaction that made it so.
    async fn activate(
        &self,
        transaction: &mut Transaction<'static, Any>,
        priority: i64,
        tenant: &str,
    ) -> Result<(), StoreError> {
        let text = match self.database.kind() {
            Kind::Mysql => {
                "INSERT INTO queue_turns (priority, tenant, active, turn) VALUES (?, ?, 1, 0) ON DUPLICATE KEY UPDATE active = 1"
            }
            Kind::Sqlite | Kind::Postgres => {
                "INSERT INTO queue_turns (priority, tenant, active, turn) VALUES (?, ?, 1, 0)
                    ON CONFLICT (priority, tenant) DO UPDATE SET active = 1"
            }
        };
        self.database.query(text).bind(priority).bind(tenant).execute(&mut **transaction).await?;
        Ok(())
    }

    async fn insert(&self, transaction: &mut Transaction<'static, Any>, job: &Row) -> Result<(), StoreError> {
        // The turn first, as takers do: the other way round, each would wait for what the other holds.
        self.activate(transaction, job.priority, &job.tenant).await?;
        let text =
            "INSERT INTO queue (execution_id, tenant, priority, state, due_ms, deliveries) VALUES (?, ?, ?, 0, 0, 0)";
        let insert = self.database.query(text).bind(&job.execution).bind(&job.tenant).bind(job.priority);
        insert.execute(&mut **transaction).await?;
        Ok(())
    }

    async fn try_push(&self, job: &Row) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        match self.insert(&mut transaction, job).await {
            Ok(()) => Ok(transaction.commit().await?),
            Err(StoreError::Conflict(_)) => Ok(transaction.rollback().await?),
            Err(error) => Err(error),
        }
    }

    async fn try_take(&self, worker: &str, most: usize, lease: Duration) -> Result<Vec<TakenJob>, StoreError> {
        let mut transaction = self.database.begin().await?;
        let row = self
            .database
            .query("SELECT turn FROM queue_taking WHERE id = 1 {hold}")
            .fetch_one(&mut *transaction)
            .await?;
        let mut turn = row.number("turn")?;
        self.make_due_ready(&mut transaction).await?;
        let mut taken = Vec::new();
        while taken.len() < most {
            let left = most - taken.len();
            let tenants = self.next_tenants(&mut transaction, left).await?;
            let Some((priority, _)) = tenants.first() else { break };
            let priority = *priority;
            let tenants: Vec<_> = tenants.into_iter().filter(|(of, _)| *of == priority).collect();
            // One job each and then the next round, unless there is only one to serve.
            let each = if tenants.len() == 1 { left } else { 1 };
            for (_, tenant) in tenants.iter().take(left) {
                turn += 1;
                let jobs = self.take_of(&mut transaction, priority, tenant, each, turn).await?;
                taken.extend(jobs);
            }
        }
        if !taken.is_empty() {
            self.hold(&mut transaction, &mut taken, worker, self.after(lease)).await?;
        }
        self.database
            .query("UPDATE queue_taking SET turn = ? WHERE id = 1")
            .bind(turn)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        taken.into_iter().map(|row| row.taken()).collect()
    }

    /// Jobs whose time has come, and those whose lease ran out, are ready.
    async fn make_due_ready(&self, transaction: &mut Transaction<'static, Any>) -> Result<(), StoreError> {
        for state in [DEFERRED, TAKEN] {
            let text = "SELECT * FROM queue WHERE state = ? AND due_ms <= ? ORDER BY due_ms LIMIT ? {hold}";
            let due = self
                .database
                .query(text)
                .bind(state)
                .bind(self.now())
                .bind(DUE_AT_ONCE)
                .fetch_all(&mut **transaction)
                .await?;
            for row in due.iter().map(Row::read) {
                let row = row?;
                let text = "UPDATE queue SET state = 0, worker = NULL WHERE position = ?";
                self.database.query(text).bind(row.position).execute(&mut **transaction).await?;
                self.activate(transaction, row.priority, &row.tenant).await?;
            }
        }
        Ok(())
    }

    /// Tenants that may have ready jobs, in the order of their turns, the most urgent first.
    async fn next_tenants(
        &self,
        transaction: &mut Transaction<'static, Any>,
        most: usize,
    ) -> Result<Vec<(i64, String)>, StoreError> {
        let text = "SELECT priority, tenant FROM queue_turns WHERE active = 1 ORDER BY priority DESC, turn, tenant LIMIT ? {hold}";
        // Two at least, to see whether there is only one to serve.
        let most = i64::try_from(most.max(2)).unwrap_or(i64::MAX);
        let rows = self.database.query(text).bind(most).fetch_all(&mut **transaction).await?;
        rows.iter().map(|row| Ok((row.number("priority")?, row.text("tenant")?))).collect()
    }

    /// The first ready jobs of one tenant, which are no longer ready; it is last in turn then, or no longer active.
    async fn take_of(
        &self,
        transaction: &mut Transaction<'static, Any>,
        priority: i64,
        tenant: &str,
        most: usize,
        turn: i64,
    ) -> Result<Vec<Row>, StoreError> {
        let text =
            "SELECT * FROM queue WHERE state = 0 AND priority = ? AND tenant = ? ORDER BY position LIMIT ? {hold}";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let jobs =
            self.database.query(text).bind(priority).bind(tenant).bind(most).fetch_all(&mut **transaction).await?;
        let jobs: Vec<Row> = jobs.iter().map(Row::read).collect::<Result<_, _>>()?;
        for job in &jobs {
            let text = "UPDATE queue SET state = 2 WHERE position = ?";
            self.database.query(text).bind(job.position).execute(&mut **transaction).await?;
        }
        // Not told by their number: one that was removed while this waited for it is missing among them.
        let text = "SELECT 1 AS one FROM queue WHERE state = 0 AND priority = ? AND tenant = ? LIMIT 1";
        let more =
            self.database.query(text).bind(priority).bind(tenant).fetch_optional(&mut **transaction).await?.is_some();
        let text = "UPDATE queue_turns SET active = ?, turn = ? WHERE priority = ? AND tenant = ?";
        let update = self.database.query(text).bind(i64::from(more)).bind(turn).bind(priority).bind(tenant);
        update.execute(&mut **transaction).await?;
        Ok(jobs)
    }

    async fn hold(
        &self,
        transaction: &mut Transaction<'static, Any>,
        jobs: &mut [Row],
        worker: &str,
        until: i64,
    ) -> Result<(), StoreError> {
        for job in jobs {
            job.deliveries += 1;
            let text = "UPDATE queue SET worker = ?, due_ms = ?, deliveries = ? WHERE position = ?";
            let update = self.database.query(text).bind(worker).bind(until).bind(job.deliveries).bind(job.position);
            update.execute(&mut **transaction).await?;
        }
        Ok(())
    }

    /// Runs `text`, whose last three values say which taking of which job by whom; whether it is still so.
    async fn settle(&self, text: &str, values: &[Value<'_>], worker: &str, job: &TakenJob) -> Result<bool, StoreError> {
        let Some(position) = job.handle.parse::<i64>().ok() else { return Ok(false) };
        let text = format!("{text} WHERE position = ? AND worker = ? AND deliveries = ? AND state = 2");
        retry_contended(async || {
            let query = values.iter().fold(self.database.query(&text), |query, value| match value {
                Value::Number(number) => query.bind(*number),
                Value::Text(text) => query.bind(*text),
            });
            let query = query.bind(position).bind(worker).bind(i64::from(job.deliveries));
            Ok(query.execute(self.database.pool()).await?.rows_affected() > 0)
        })
        .await
    }

    async fn try_revive(&self, execution: &ExecutionId) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin().await?;
        let text = "SELECT * FROM queue WHERE execution_id = ? AND state = 3 {hold}";
        let row = self.database.query(text).bind(execution.as_str()).fetch_optional(&mut *transaction).await?;
        let Some(row) = row else { return Ok(false) };
        let row = Row::read(&row)?;
        // A new row is at the end.
        self.database
            .query("DELETE FROM queue WHERE position = ?")
            .bind(row.position)
            .execute(&mut *transaction)
            .await?;
        self.insert(&mut transaction, &row).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn list(
        &self,
        which: &str,
        tenant: Option<&TenantId>,
        order: &str,
        most: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        let of = if tenant.is_some() { "AND tenant = ?" } else { "" };
        let query = self.database.query(&format!("SELECT * FROM queue WHERE {which} {of} ORDER BY {order} LIMIT ?"));
        let query = tenant.into_iter().fold(query, |query, tenant| query.bind(tenant.as_str()));
        let rows = query.bind(i64::try_from(most).unwrap_or(i64::MAX)).fetch_all(self.database.pool()).await?;
        rows.iter().map(|row| Row::read(row)?.entry()).collect()
    }
}

enum Value<'a> {
    Number(i64),
    Text(&'a str),
}

#[async_trait]
impl Queue for EmbeddedQueue {
    async fn push(&self, job: &QueuedJob) -> Result<(), StoreError> {
        let row = Row::new(job);
        retry_contended(|| self.try_push(&row)).await?;
        self.pushed.notify_one();
        Ok(())
    }

    async fn take(&self, worker: &str, most: usize, lease: Duration) -> Result<Vec<TakenJob>, StoreError> {
        if most == 0 || !self.peek().await? {
            return Ok(Vec::new());
        }
        retry_contended(|| self.try_take(worker, most, lease)).await
    }

    async fn wait(&self, patience: Duration) {
        super::wait(&self.pushed, &self.looked, LOOK, patience, || self.peek()).await;
    }

    async fn renew(&self, worker: &str, jobs: &[TakenJob], lease: Duration) -> Result<Vec<ExecutionId>, StoreError> {
        let mut lost = Vec::new();
        for job in jobs {
            let until = [Value::Number(self.after(lease))];
            if !self.settle("UPDATE queue SET due_ms = ?", &until, worker, job).await? {
                lost.push(job.job.execution.clone());
            }
        }
        Ok(lost)
    }

    async fn done(&self, worker: &str, job: &TakenJob) -> Result<(), StoreError> {
        self.settle("DELETE FROM queue", &[], worker, job).await?;
        Ok(())
    }

    async fn later(&self, worker: &str, job: &TakenJob, after: Duration) -> Result<(), StoreError> {
        let due = [Value::Number(self.after(after))];
        self.settle("UPDATE queue SET state = 1, worker = NULL, due_ms = ?", &due, worker, job).await?;
        // Whoever waits looks again; before its time it is not found.
        if after.is_zero() {
            self.pushed.notify_one();
        }
        Ok(())
    }

    async fn give_back_all(&self, worker: &str) -> Result<(), StoreError> {
        retry_contended(async || {
            let text = "UPDATE queue SET state = 1, worker = NULL, due_ms = ? WHERE state = 2 AND worker = ?";
            let update = self.database.query(text).bind(self.now()).bind(worker);
            update.execute(self.database.pool()).await?;
            Ok(())
        })
        .await?;
        self.pushed.notify_one();
        Ok(())
    }

    async fn bury(&self, worker: &str, job: &TakenJob, reason: &str) -> Result<(), StoreError> {
        // Not every database has room for this byte in text.
        let reason = reason.replace('\0', "\u{fffd}");
        let values = [Value::Number(self.now()), Value::Text(&reason)];
        self.settle("UPDATE queue SET state = 3, worker = NULL, due_ms = ?, reason = ?", &values, worker, job).await?;
        Ok(())
    }

    async fn revive(&self, execution: &ExecutionId) -> Result<bool, StoreError> {
        let revived = retry_contended(|| self.try_revive(execution)).await?;
        if revived {
            self.pushed.notify_one();
        }
        Ok(revived)
    }

    async fn remove(&self, execution: &ExecutionId) -> Result<bool, StoreError> {
        retry_contended(async || {
            let delete = self.database.query("DELETE FROM queue WHERE execution_id = ?").bind(execution.as_str());
            Ok(delete.execute(self.database.pool()).await?.rows_affected() > 0)
        })
        .await
    }

    async fn entries(&self, tenant: Option<&TenantId>, most: usize) -> Result<Vec<QueueEntry>, StoreError> {
        self.list("state < 3", tenant, "position", most).await
    }

    async fn dead(&self, tenant: Option<&TenantId>, most: usize) -> Result<Vec<QueueEntry>, StoreError> {
        self.list("state = 3", tenant, "due_ms DESC, position DESC", most).await
    }

    async fn depth(&self, tenant: Option<&TenantId>) -> Result<QueueDepth, StoreError> {
        let of = if tenant.is_some() { "WHERE tenant = ?" } else { "" };
        let query = self.database.query(&format!("SELECT state, COUNT(*) AS n FROM queue {of} GROUP BY state"));
        let query = tenant.into_iter().fold(query, |query, tenant| query.bind(tenant.as_str()));
        let mut depth = QueueDepth::default();
        for row in query.fetch_all(self.database.pool()).await? {
            let n = u64::try_from(row.number("n")?).unwrap_or_default();
            match row.number("state")? {
                TAKEN => depth.taken += n,
                DEAD => depth.dead += n,
                READY | DEFERRED => depth.waiting += n,
                other => return Err(corrupt(format!("state {other}"))),
            }
        }
        Ok(depth)
    }
}

/// One row of `queue`.
struct Row {
    position: i64,
    execution: String,
    tenant: String,
    priority: i64,
    deliveries: i64,
    worker: Option<String>,
    reason: Option<String>,
}

impl Row {
    fn new(job: &QueuedJob) -> Self {
        Self {
            position: 0,
            execution: job.execution.as_str().to_owned(),
            tenant: job.tenant.as_str().to_owned(),
            priority: i64::from(job.priority.rank()),
            deliveries: 0,
            worker: None,
            reason: None,
        }
    }

    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            position: row.number("position")?,
            execution: row.text("execution_id")?,
            tenant: row.text("tenant")?,
            priority: row.number("priority")?,
            deliveries: row.number("deliveries")?,
            worker: row.text_or_null("worker")?,
            reason: row.text_or_null("reason")?,
        })
    }

    fn job(&self) -> Result<QueuedJob, StoreError> {
        Ok(QueuedJob {
            execution: ExecutionId::parse(&self.execution).ok_or_else(|| corrupt(self.execution.clone()))?,
            tenant: TenantId::parse(&self.tenant).ok_or_else(|| corrupt(self.tenant.clone()))?,
            priority: Priority::of_rank(self.priority).ok_or_else(|| corrupt(format!("priority {}", self.priority)))?,
        })
    }

    fn taken(self) -> Result<TakenJob, StoreError> {
        let deliveries = u32::try_from(self.deliveries).unwrap_or(u32::MAX);
        Ok(TakenJob { job: self.job()?, deliveries, handle: self.position.to_string() })
    }

    fn entry(self) -> Result<QueueEntry, StoreError> {
        let job = self.job()?;
        Ok(QueueEntry {
            execution_id: job.execution,
            tenant: job.tenant,
            priority: job.priority,
            deliveries: u32::try_from(self.deliveries).unwrap_or(u32::MAX),
            worker: self.worker,
            reason: self.reason,
        })
    }
}

fn corrupt(what: String) -> StoreError {
    StoreError::Corrupt { table: "queue", cause: what.into() }
}
