//! Jobs that have not ended, and those that are dead. What may happen to one is decided in [`crate::jobs::state`]; here each step is one conditional
//! statement, so that of several who take it only one succeeds, whoever else thinks that it has the job.

use async_trait::async_trait;
use fumehood_engine::execution::Status;
use fumehood_engine::ids::{ExecutionId, TenantId};
use fumehood_engine::job::Priority;
use sqlx::any::AnyRow;
use sqlx::{Any, Transaction};

use super::executions::{self, IfAway, Record};
use super::{Attempt, Columns, KeptExecution, Store, StoreError, idempotency, retry_contended, webhooks};
use crate::jobs::state::JobState;

const TABLE: &str = "jobs";
const COLUMNS: &str = "id, tenant, priority, state, attempt, max_attempts, worker, lease_ms, created_ms, cancel, request, callback, reason";

/// A job to be accepted.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The execution as it is when it is accepted, and whose it is.
    pub draft: KeptExecution,
    /// How urgent it is.
    pub priority: Priority,
    /// How often it may be begun.
    pub max_attempts: u32,
    /// The request as JSON; `None` when only this server can run it, in which case it is begun already.
    pub request: Option<String>,
    /// Where its end is told.
    pub callback: Option<String>,
    /// How it begins its life.
    pub state: JobState,
    /// The request's key.
    pub key: Option<Attempt>,
}

/// A job on record.
#[derive(Debug, Clone)]
pub struct Job {
    /// The execution that it is.
    pub id: ExecutionId,
    /// Whose it is.
    pub owner: TenantId,
    /// How urgent it is.
    pub priority: Priority,
    /// Where it is in its life.
    pub state: JobState,
    /// How often it may be begun.
    pub max_attempts: u32,
    /// When it was accepted, in milliseconds since 1970.
    pub created_ms: i64,
    /// Whether somebody asked for its end.
    pub cancel: bool,
    /// The request as JSON; `None` when only the server that accepted it could run it.
    pub request: Option<String>,
    /// Where its end is told.
    pub callback: Option<String>,
    /// Why it is dead.
    pub reason: Option<String>,
}

/// What a step writes besides the job itself.
#[derive(Debug, Clone)]
pub struct End {
    /// What the execution became.
    pub kept: KeptExecution,
    /// Why the job is dead, if it is.
    pub reason: Option<String>,
    /// When that was, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A job that a worker has, as far as it needs to know to keep it.
#[derive(Debug, Clone)]
pub struct Mine {
    /// Which.
    pub id: ExecutionId,
    /// How often it was begun.
    pub attempt: u32,
    /// Whether somebody asked for its end.
    pub cancel: bool,
}

/// Jobs that wait, of one tenant.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Whose.
    pub owner: TenantId,
    /// How many.
    pub waiting: u64,
}

/// Jobs that have not ended, and those that are dead.
///
/// [`StoreError::Unavailable`] when the database does not answer.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Accepts a job: with its execution and its key, all or none. `false` when the key is taken.
    async fn add(&self, new: &NewJob, now_ms: i64) -> Result<bool, StoreError>;

    /// Takes back a job that was accepted and could not be begun, with everything that was written with it.
    async fn withdraw(&self, id: &ExecutionId) -> Result<(), StoreError>;

    /// Jobs by their ids; those that have ended are none. Rows that cannot be read are left out, and logged.
    async fn get(&self, ids: &[ExecutionId]) -> Result<Vec<Job>, StoreError>;

    /// Takes a step of one job from one state to another, which [`crate::jobs::state::accept`] allowed; `end` when its execution becomes something else by
    /// it. `false` when it is not in `from` any more: somebody else was first, and nothing is written. After an error it is not known whether it was
    /// written; taking the step again tells.
    async fn step(&self, job: &Job, to: &JobState, end: Option<&End>) -> Result<bool, StoreError>;

    /// Asks whoever has a job to end it. Whether somebody has it.
    async fn ask_to_end(&self, id: &ExecutionId) -> Result<bool, StoreError>;

    /// What `worker` has, and keeps until `lease_ms`.
    async fn renew(&self, worker: &str, lease_ms: i64) -> Result<Vec<Mine>, StoreError>;

    /// All that `worker` has.
    async fn of_worker(&self, worker: &str) -> Result<Vec<Job>, StoreError>;

    /// Some that nobody has kept since `before_ms`.
    async fn overdue(&self, before_ms: i64) -> Result<Vec<Job>, StoreError>;

    /// Up to `most` that wait since before `before_ms` and come after `after`, in the order they were accepted: id, owner, priority.
    async fn waiting(
        &self,
        before_ms: i64,
        after: &str,
        most: u32,
    ) -> Result<Vec<(ExecutionId, TenantId, Priority)>, StoreError>;

    /// How many wait, by tenant.
    async fn depth(&self) -> Result<Vec<Waiting>, StoreError>;

    /// Jobs of one tenant or of all, oldest first: the dead ones, or those that wait and run.
    async fn list(&self, of: Option<&TenantId>, dead: bool, most: u32) -> Result<Vec<Job>, StoreError>;
}

#[async_trait]
impl Jobs for Store {
    async fn add(&self, new: &NewJob, now_ms: i64) -> Result<bool, StoreError> {
        let record = self.record(&new.draft, IfAway::Wait).await?;
        retry_contended(|| self.add_once(new, &record, now_ms)).await
    }

    async fn withdraw(&self, id: &ExecutionId) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        for text in [
            "DELETE FROM jobs WHERE id = ?",
            "DELETE FROM executions WHERE id = ? AND finished_ms IS NULL",
            "DELETE FROM idempotency WHERE target = ?",
        ] {
            self.database.query(text).bind(id.as_str().to_owned()).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn get(&self, ids: &[ExecutionId]) -> Result<Vec<Job>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let text = format!("SELECT {COLUMNS} FROM jobs WHERE id IN ({})", super::marks(ids.len()));
        let query = ids.iter().fold(self.database.query(&text), |query, id| query.bind(id.as_str().to_owned()));
        Ok(readable(&query.fetch_all(self.database.pool()).await?))
    }

    async fn step(&self, job: &Job, to: &JobState, end: Option<&End>) -> Result<bool, StoreError> {
        let end = match end {
            Some(end) => Some((end, self.record(&end.kept, IfAway::Wait).await?)),
            None => None,
        };
        retry_contended(|| self.step_once(job, to, end.as_ref())).await
    }

    async fn ask_to_end(&self, id: &ExecutionId) -> Result<bool, StoreError> {
        let text = "UPDATE jobs SET cancel = 1 WHERE id = ? AND state = 'begun'";
        let asked = self.database.query(text).bind(id.as_str().to_owned()).execute(self.database.pool()).await?;
        Ok(asked.rows_affected() > 0)
    }

    async fn renew(&self, worker: &str, lease_ms: i64) -> Result<Vec<Mine>, StoreError> {
        let text = "UPDATE jobs SET lease_ms = ? WHERE worker = ? AND state = 'begun'";
        let pool = self.database.pool();
        self.database.query(text).bind(lease_ms).bind(worker.to_owned()).execute(pool).await?;
        let text = "SELECT id, attempt, cancel FROM jobs WHERE worker = ? AND state = 'begun'";
        let rows = self.database.query(text).bind(worker.to_owned()).fetch_all(pool).await?;
        rows.iter()
            .map(|row| {
                Ok(Mine {
                    id: executions::execution_id(row, "id", TABLE)?,
                    attempt: unsigned(row.number("attempt")?),
                    cancel: row.number("cancel")? != 0,
                })
            })
            .collect()
    }

    async fn of_worker(&self, worker: &str) -> Result<Vec<Job>, StoreError> {
        let text = format!("SELECT {COLUMNS} FROM jobs WHERE worker = ? AND state = 'begun'");
        Ok(readable(&self.database.query(&text).bind(worker.to_owned()).fetch_all(self.database.pool()).await?))
    }

    async fn overdue(&self, before_ms: i64) -> Result<Vec<Job>, StoreError> {
        let text =
            format!("SELECT {COLUMNS} FROM jobs WHERE state = 'begun' AND lease_ms < ? ORDER BY lease_ms LIMIT 200");
        Ok(readable(&self.database.query(&text).bind(before_ms).fetch_all(self.database.pool()).await?))
    }

    async fn waiting(
        &self,
        before_ms: i64,
        after: &str,
        most: u32,
    ) -> Result<Vec<(ExecutionId, TenantId, Priority)>, StoreError> {
        let text = format!(
            "SELECT id, tenant, priority FROM jobs WHERE state = 'waiting' AND id > ? AND created_ms < ? ORDER BY id LIMIT {most}"
        );
        let query = self.database.query(&text).bind(after.to_owned()).bind(before_ms);
        let rows = query.fetch_all(self.database.pool()).await?;
        rows.iter()
            .map(|row| {
                Ok((executions::execution_id(row, "id", TABLE)?, owner(row)?, priority(row.number("priority")?)))
            })
            .collect()
    }

    async fn depth(&self) -> Result<Vec<Waiting>, StoreError> {
        let text = "SELECT tenant, COUNT(*) AS n FROM jobs WHERE state = 'waiting' GROUP BY tenant";
        let rows = self.database.query(text).fetch_all(self.database.pool()).await?;
        rows.iter()
            .map(|row| {
                let waiting = row.number("n")?;
                Ok(Waiting { owner: owner(row)?, waiting: u64::try_from(waiting).unwrap_or(0) })
            })
            .collect()
    }

    async fn list(&self, of: Option<&TenantId>, dead: bool, most: u32) -> Result<Vec<Job>, StoreError> {
        let states = if dead { "state = 'dead'" } else { "state IN ('begun', 'waiting')" };
        let whose = if of.is_some() { " AND tenant = ?" } else { "" };
        let text = format!("SELECT {COLUMNS} FROM jobs WHERE {states}{whose} ORDER BY state, id LIMIT {most}");
        let mut query = self.database.query(&text);
        if let Some(owner) = of {
            query = query.bind(owner.as_str().to_owned());
        }
        Ok(readable(&query.fetch_all(self.database.pool()).await?))
    }
}

impl Store {
    async fn add_once(&self, new: &NewJob, record: &Record, now_ms: i64) -> Result<bool, StoreError> {
        let id = &new.draft.execution.id;
        let mut transaction = self.database.begin().await?;
        if let Some(key) = &new.key
            && !idempotency::take(&self.database, &mut transaction, key, id.as_str(), now_ms).await?
        {
            transaction.rollback().await?;
            return Ok(false);
        }
        executions::insert(&self.database, &mut transaction, &new.draft, record).await?;
        let text = super::insert_new(self.database.kind(), &format!("jobs ({COLUMNS})"), 13);
        let Written { state, attempt, worker, lease_ms } = Written::of(&new.state);
        self.database
            .query(&text)
            .bind(id.as_str().to_owned())
            .bind(new.draft.owner.as_str().to_owned())
            .bind(i64::from(new.priority.rank()))
            .bind(state.to_owned())
            .bind(attempt)
            .bind(i64::from(new.max_attempts))
            .bind(worker)
            .bind(lease_ms)
            .bind(now_ms)
            .bind(0_i64)
            .bind(new.request.clone())
            .bind(new.callback.clone())
            .bind(None::<String>)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn step_once(&self, job: &Job, to: &JobState, end: Option<&(&End, Record)>) -> Result<bool, StoreError> {
        let id = job.id.as_str().to_owned();
        let from = Written::of(&job.state);
        let same_worker = if from.worker.is_some() { " AND worker = ?" } else { "" };
        let mut transaction = self.database.begin().await?;
        let of = if *to == JobState::Ended {
            let text = format!("DELETE FROM jobs WHERE id = ? AND state = ? AND attempt = ?{same_worker}");
            self.database.query(&text)
        } else {
            let text = format!(
                "UPDATE jobs SET state = ?, attempt = ?, worker = ?, lease_ms = ?, cancel = 0, reason = ? WHERE id = ? AND state = ? AND attempt = ?{same_worker}"
            );
            let Written { state, attempt, worker, lease_ms } = Written::of(to);
            let reason = end.and_then(|(end, _)| end.reason.clone());
            self.database.query(&text).bind(state.to_owned()).bind(attempt).bind(worker).bind(lease_ms).bind(reason)
        };
        let mut of = of.bind(id).bind(from.state.to_owned()).bind(from.attempt);
        if let Some(worker) = from.worker {
            of = of.bind(worker);
        }
        if of.execute(&mut *transaction).await?.rows_affected() == 0 {
            transaction.rollback().await?;
            return Ok(false);
        }
        match end {
            Some((end, record)) => {
                executions::replace(&self.database, &mut transaction, &end.kept, record).await?;
                if let Some(url) = &job.callback
                    && end.kept.execution.status.is_final()
                {
                    let delivery = format!("{}.{}", job.id, end.now_ms);
                    webhooks::insert(&self.database, &mut transaction, &delivery, &job.id, url, end.now_ms).await?;
                }
            }
            None => self.follow(&mut transaction, &job.id, to).await?,
        }
        transaction.commit().await?;
        Ok(true)
    }

    async fn follow(
        &self,
        transaction: &mut Transaction<'static, Any>,
        id: &ExecutionId,
        to: &JobState,
    ) -> Result<(), StoreError> {
        let status = if matches!(to, JobState::Begun { .. }) { Status::Running } else { Status::Queued };
        executions::set_status(&self.database, transaction, id, status).await
    }
}

/// A state as it stands in the table.
struct Written {
    state: &'static str,
    attempt: i64,
    worker: Option<String>,
    lease_ms: i64,
}

impl Written {
    fn of(state: &JobState) -> Self {
        let plain = |state, attempt: u32| Self { state, attempt: attempt.into(), worker: None, lease_ms: 0 };
        match state {
            JobState::Waiting { attempt } => plain("waiting", *attempt),
            JobState::Dead { attempt } => plain("dead", *attempt),
            // Has no row; nothing is ever in this state there.
            JobState::Ended => plain("ended", 0),
            JobState::Begun { attempt, worker, lease_ms } => {
                Self { worker: Some(worker.clone()), lease_ms: *lease_ms, ..plain("begun", *attempt) }
            }
        }
    }
}

fn readable(rows: &[AnyRow]) -> Vec<Job> {
    let job = |row| read(row).inspect_err(|error| tracing::error!(%error, "a job on record is left out")).ok();
    rows.iter().filter_map(job).collect()
}

fn read(row: &AnyRow) -> Result<Job, StoreError> {
    let attempt = unsigned(row.number("attempt")?);
    let state = row.text("state")?;
    let state = match &*state {
        "waiting" => JobState::Waiting { attempt },
        "dead" => JobState::Dead { attempt },
        "begun" => {
            let worker = row.text_or_null("worker")?.unwrap_or_default();
            JobState::Begun { attempt, worker, lease_ms: row.number("lease_ms")? }
        }
        other => return Err(StoreError::Corrupt { table: TABLE, cause: format!("{other:?} is no state").into() }),
    };
    Ok(Job {
        id: executions::execution_id(row, "id", TABLE)?,
        owner: owner(row)?,
        priority: priority(row.number("priority")?),
        state,
        max_attempts: unsigned(row.number("max_attempts")?),
        created_ms: row.number("created_ms")?,
        cancel: row.number("cancel")? != 0,
        request: row.text_or_null("request")?,
        callback: row.text_or_null("callback")?,
        reason: row.text_or_null("reason")?,
    })
}

fn owner(row: &AnyRow) -> Result<TenantId, StoreError> {
    let text = row.text("tenant")?;
    let cause = || StoreError::Corrupt { table: TABLE, cause: format!("{text:?} is no tenant").into() };
    TenantId::parse(&text).ok_or_else(cause)
}

fn unsigned(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

fn priority(number: i64) -> Priority {
    Priority::of_rank(number).unwrap_or_default()
}
