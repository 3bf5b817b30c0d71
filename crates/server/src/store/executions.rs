//! Executions on record: what `GET /v1/executions` tells once the engine has forgotten them, also after a restart.

use std::sync::Arc;

use fumehood_engine::Ended;
use fumehood_engine::execution::{Execution, JsonText, Members, Notice, Status};
use fumehood_engine::ids::{ExecutionId, SessionId, TenantId};
use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;
use sqlx::{Any, Transaction};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Columns, Database, StoreError};

const TABLE: &str = "executions";
/// Longer documents are kept without the parts that make them long. Every database takes this much in one value.
const MOST_BYTES: usize = 12 << 20;

/// An execution on record.
#[derive(Debug, Clone)]
pub struct KeptExecution {
    /// Whose it is.
    pub owner: TenantId,
    /// The execution.
    pub execution: Arc<Execution>,
    /// All that is kept of standard output and standard error, when the execution shows less.
    pub whole: Option<Arc<[String; 2]>>,
}

impl From<Ended> for KeptExecution {
    fn from(ended: Ended) -> Self {
        Self { owner: ended.owner, execution: ended.execution, whole: ended.whole }
    }
}

impl KeptExecution {
    /// The same without what makes it long: output, displays, result and variables.
    #[must_use]
    pub fn shortened(&self, why: &str) -> Self {
        let mut short = Execution::clone(&self.execution);
        short.stdout_truncated |= !short.stdout.is_empty();
        short.stderr_truncated |= !short.stderr.is_empty();
        (short.stdout, short.stderr) = (String::new(), String::new());
        (short.result, short.dataframe) = (JsonText::default(), None);
        short.outputs.clear();
        short.variables = Members::default();
        let message = format!("{why}, so that output, displays and result are not kept on record");
        short.warnings.push(Notice { code: "record_shortened".to_owned(), message });
        Self { owner: self.owner.clone(), execution: Arc::new(short), whole: None }
    }
}

/// Which executions to list.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    /// Only those of this tenant.
    pub owner: Option<TenantId>,
    /// Only those of this status.
    pub status: Option<Status>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those older than this one.
    pub before: Option<ExecutionId>,
    /// At most so many.
    pub limit: usize,
}

#[derive(Serialize, Deserialize)]
struct Document {
    execution: Arc<Execution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole: Option<Arc<[String; 2]>>,
}

/// The repository of executions. Those that have ended never change again; each row goes with its tenant, and only [`Self::delete`] and
/// [`Self::expired`] remove any.
#[derive(Clone)]
pub struct Executions {
    database: Arc<Database>,
}

impl Executions {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }

    /// Keeps executions that have ended, all or none. Those that are on record already stay as they are.
    ///
    /// # Errors
    /// When the database does not take them.
    pub async fn keep(&self, all: &[Ended]) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        for ended in all {
            insert(&self.database, &mut transaction, &ended.clone().into()).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// One execution.
    ///
    /// # Errors
    /// When the database does not answer, or the row cannot be read.
    pub async fn get(&self, id: &ExecutionId) -> Result<Option<KeptExecution>, StoreError> {
        let text = "SELECT tenant, status, document FROM executions WHERE id = ?";
        let row = self.database.query(text).bind(id.as_str().to_owned()).fetch_optional(self.database.pool()).await?;
        row.map(|row| read(&row)).transpose()
    }

    /// Executions, newest first.
    ///
    /// # Errors
    /// When the database does not answer. Rows that cannot be read are left out, and logged.
    pub async fn list(&self, filter: &ExecutionFilter) -> Result<Vec<KeptExecution>, StoreError> {
        let mut text = "SELECT tenant, status, document FROM executions WHERE 1 = 1".to_owned();
        let mut values = Vec::new();
        let mut only = |condition: &str, value: Option<String>| {
            if let Some(value) = value {
                text.push_str(condition);
                values.push(value);
            }
        };
        only(" AND tenant = ?", filter.owner.as_ref().map(|owner| owner.as_str().to_owned()));
        only(" AND status = ?", filter.status.map(|status| word(&status)));
        only(" AND session_id = ?", filter.session.as_ref().map(|id| id.as_str().to_owned()));
        only(" AND id < ?", filter.before.as_ref().map(|id| id.as_str().to_owned()));
        text.push_str(&format!(" ORDER BY id DESC LIMIT {}", filter.limit));
        let query = values.into_iter().fold(self.database.query(&text), sqlx::query::Query::bind);
        let rows = query.fetch_all(self.database.pool()).await?;
        let readable = |row: &AnyRow| {
            read(row).inspect_err(|error| tracing::error!(%error, "an execution on record is left out")).ok()
        };
        Ok(rows.iter().filter_map(readable).collect())
    }

    /// Removes an execution that has ended, with its job, if it is dead, what is still to be told of it, and its idempotency key. Whether
    /// there was one.
    ///
    /// # Errors
    /// When the database does not answer; nothing is removed then.
    pub async fn delete(&self, id: &ExecutionId) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin().await?;
        let text = "DELETE FROM executions WHERE id = ? AND finished_ms IS NOT NULL";
        let gone = self.database.query(text).bind(id.as_str().to_owned()).execute(&mut *transaction).await?;
        if gone.rows_affected() == 0 {
            transaction.rollback().await?;
            return Ok(false);
        }
        for text in [
            "DELETE FROM jobs WHERE id = ? AND state = 'dead'",
            "DELETE FROM webhooks WHERE execution_id = ?",
            "DELETE FROM idempotency WHERE target = ?",
        ] {
            self.database.query(text).bind(id.as_str().to_owned()).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Up to `most` executions that ended before `before_ms`, or are not among the `keep` that ended last: those to be deleted, oldest first.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn expired(&self, before_ms: i64, keep: u64, most: u32) -> Result<Vec<ExecutionId>, StoreError> {
        let count = "SELECT COUNT(*) AS n FROM executions WHERE finished_ms IS NOT NULL";
        let count = self.database.query(count).fetch_one(self.database.pool()).await?.number("n")?;
        let excess = u64::try_from(count).unwrap_or(0).saturating_sub(keep).min(u64::from(most));
        let by_number =
            format!("SELECT id FROM executions WHERE finished_ms IS NOT NULL ORDER BY finished_ms, id LIMIT {excess}");
        let by_age = format!("SELECT id FROM executions WHERE finished_ms < ? ORDER BY finished_ms, id LIMIT {most}");
        let mut rows = self.database.query(&by_age).bind(before_ms).fetch_all(self.database.pool()).await?;
        if excess as usize > rows.len() {
            rows = self.database.query(&by_number).fetch_all(self.database.pool()).await?;
        }
        rows.iter().map(|row| execution_id(row, "id", TABLE)).collect()
    }

    /// Those of `ids` that are on record.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn known(&self, ids: &[ExecutionId]) -> Result<Vec<ExecutionId>, StoreError> {
        let mut known = Vec::new();
        for ids in ids.chunks(200) {
            let text = format!("SELECT id FROM executions WHERE id IN ({})", super::marks(ids.len()));
            let query = ids.iter().fold(self.database.query(&text), |query, id| query.bind(id.as_str().to_owned()));
            for row in query.fetch_all(self.database.pool()).await? {
                known.push(execution_id(&row, "id", TABLE)?);
            }
        }
        Ok(known)
    }
}

/// Puts an execution on record, ended or not, unless it is there already.
pub(super) async fn insert(
    database: &Database,
    transaction: &mut Transaction<'static, Any>,
    kept: &KeptExecution,
) -> Result<(), StoreError> {
    let execution = &kept.execution;
    let document = write(kept)?;
    let text = super::insert_new(
        database.kind(),
        "executions (id, tenant, session_id, status, outcome, created_ms, finished_ms, size_bytes, document)",
        9,
    );
    database
        .query(&text)
        .bind(execution.id.as_str().to_owned())
        .bind(kept.owner.as_str().to_owned())
        .bind(execution.session_id.as_ref().map(|id| id.as_str().to_owned()))
        .bind(word(&execution.status))
        .bind(execution.outcome.map(|outcome| outcome.as_str().to_owned()))
        .bind(milliseconds(&execution.created_at))
        .bind(execution.finished_at.as_deref().map(milliseconds))
        .bind(i64::try_from(document.len()).unwrap_or(i64::MAX))
        .bind(document)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Replaces what is on record of an execution by what it became.
pub(super) async fn replace(
    database: &Database,
    transaction: &mut Transaction<'static, Any>,
    kept: &KeptExecution,
) -> Result<(), StoreError> {
    let execution = &kept.execution;
    let document = write(kept)?;
    let text =
        "UPDATE executions SET status = ?, outcome = ?, finished_ms = ?, size_bytes = ?, document = ? WHERE id = ?";
    database
        .query(text)
        .bind(word(&execution.status))
        .bind(execution.outcome.map(|outcome| outcome.as_str().to_owned()))
        .bind(execution.finished_at.as_deref().map(milliseconds))
        .bind(i64::try_from(document.len()).unwrap_or(i64::MAX))
        .bind(document)
        .bind(execution.id.as_str().to_owned())
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Notes that an execution which has not ended waits, or runs.
pub(super) async fn set_status(
    database: &Database,
    transaction: &mut Transaction<'static, Any>,
    id: &ExecutionId,
    status: Status,
) -> Result<(), StoreError> {
    let text = "UPDATE executions SET status = ? WHERE id = ? AND finished_ms IS NULL";
    database.query(text).bind(word(&status)).bind(id.as_str().to_owned()).execute(&mut **transaction).await?;
    Ok(())
}

fn write(kept: &KeptExecution) -> Result<String, StoreError> {
    let corrupt = |error: serde_json::Error| StoreError::Corrupt { table: TABLE, cause: error.into() };
    let document = Document { execution: Arc::clone(&kept.execution), whole: kept.whole.clone() };
    // PostgreSQL has no NUL in texts. As JSON it is an escape, which any reader turns back.
    let text = serde_json::to_string(&document).map_err(corrupt)?;
    if text.len() <= MOST_BYTES {
        return Ok(text);
    }
    let why = format!("the execution has {} bytes as JSON, and at most {MOST_BYTES} are kept", text.len());
    let short = Document { execution: kept.shortened(&why).execution, whole: None };
    serde_json::to_string(&short).map_err(corrupt)
}

fn read(row: &AnyRow) -> Result<KeptExecution, StoreError> {
    let corrupt = |cause: Box<dyn std::error::Error + Send + Sync>| StoreError::Corrupt { table: TABLE, cause };
    let (owner, status, text) = (row.text("tenant")?, row.text("status")?, row.text("document")?);
    let Document { mut execution, whole } = serde_json::from_str(&text).map_err(|error| corrupt(error.into()))?;
    let status: Status = serde_json::from_value(status.into()).map_err(|error| corrupt(error.into()))?;
    if execution.status != status {
        Arc::make_mut(&mut execution).status = status;
    }
    let owner = TenantId::parse(&owner).ok_or_else(|| corrupt(format!("{owner:?} is no tenant").into()))?;
    Ok(KeptExecution { owner, execution, whole })
}

pub(super) fn execution_id(row: &AnyRow, column: &str, table: &'static str) -> Result<ExecutionId, StoreError> {
    let text = row.text(column)?;
    let cause = || StoreError::Corrupt { table, cause: format!("{text:?} is no execution").into() };
    ExecutionId::parse(&text).ok_or_else(cause)
}

fn word(status: &Status) -> String {
    match status {
        Status::Queued => "queued",
        Status::Running => "running",
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Cancelled => "cancelled",
    }
    .to_owned()
}

/// RFC 3339 as milliseconds since 1970; our own stamps always are.
fn milliseconds(stamp: &str) -> i64 {
    OffsetDateTime::parse(stamp, &Rfc3339).map_or(0, super::milliseconds_of)
}
