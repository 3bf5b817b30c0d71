//! Executions on record: what `GET /v1/executions` tells once the engine has forgotten them, also after a restart.
//!
//! ```text
//! up to 256 KiB as JSON   row: all of it
//! more                    blob store: all of it        row: the same without what makes it long, and the blob's hash
//! ```
//!
//! The blob is written before the row that refers to it, and belongs to the execution (its owner in [`super::blobs`]), so that it goes with it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fumehood_engine::Ended;
use fumehood_engine::execution::{Execution, JsonText, Members, Notice, Status};
use fumehood_engine::ids::{ExecutionId, SessionId, TenantId};
use serde::{Deserialize, Serialize};
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, Transaction};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{BlobRef, Columns, Database, Store, StoreError};

const TABLE: &str = "executions";
/// Longer documents go to the blob store.
const INLINE_BYTES: usize = 256 << 10;
/// Longer ones are in no row, also when there is no blob store or it is away. Every database takes this much in one value.
const MOST_BYTES: usize = 12 << 20;
/// Content of executions that were created so long ago and never came on record is left over from a crash.
const NEVER_RECORDED_MS: i64 = 24 * 3600 * 1000;
/// What a list says of an execution whose content is in the blob store.
const LISTED_SHORT: &str = "listed_short";

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
        let message = format!("{why}, so that output, displays and result are not kept on record");
        self.without_content(Notice { code: "record_shortened".to_owned(), message })
    }

    fn without_content(&self, notice: Notice) -> Self {
        let mut short = Execution::clone(&self.execution);
        short.stdout_truncated |= !short.stdout.is_empty();
        short.stderr_truncated |= !short.stderr.is_empty();
        (short.stdout, short.stderr) = (String::new(), String::new());
        (short.result, short.dataframe) = (JsonText::default(), None);
        short.outputs.clear();
        short.variables = Members::default();
        short.warnings.push(notice);
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

/// Executions. Those that have ended never change again; each goes with its tenant, and only [`Self::delete`] removes any.
///
/// [`StoreError::Unavailable`] when the database, or the blob store where content is there, does not answer.
#[async_trait]
pub trait Executions: Send + Sync {
    /// Keeps executions that have ended, all or none. Those that are on record already stay as they are. Of one that is too long for a row while the blob
    /// store is away, content is left out, and its warnings say so.
    async fn keep(&self, all: &[Ended]) -> Result<(), StoreError>;

    /// One execution, with all its content.
    async fn get(&self, id: &ExecutionId) -> Result<Option<KeptExecution>, StoreError>;

    /// Executions, newest first; long ones without their content, which their warnings say. Rows that cannot be read are left out, and logged.
    async fn list(&self, filter: &ExecutionFilter) -> Result<Vec<KeptExecution>, StoreError>;

    /// Removes an execution that has ended, with its content, its job, if it is dead, what is still to be told of it, and its idempotency key. Whether
    /// there was one.
    async fn delete(&self, id: &ExecutionId) -> Result<bool, StoreError>;

    /// Up to `most` executions that ended before `before_ms`, or are not among the `keep` that ended last: those to be deleted, oldest first.
    async fn expired(&self, before_ms: i64, keep: u64, most: u32) -> Result<Vec<ExecutionId>, StoreError>;

    /// Those of `ids` that are on record.
    async fn known(&self, ids: &[ExecutionId]) -> Result<Vec<ExecutionId>, StoreError>;

    /// Removes content that a crash left: of executions that never came on record, or were removed from it. How many.
    async fn sweep(&self, now_ms: i64) -> Result<usize, StoreError>;
}

#[async_trait]
impl Executions for Store {
    async fn keep(&self, all: &[Ended]) -> Result<(), StoreError> {
        let mut records = Vec::new();
        for ended in all {
            let kept = ended.clone().into();
            let record = self.record(&kept, IfAway::Shorten).await?;
            records.push((kept, record));
        }
        let mut transaction = self.database.begin().await?;
        for (kept, record) in records {
            insert(&self.database, &mut transaction, &kept, &record).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn get(&self, id: &ExecutionId) -> Result<Option<KeptExecution>, StoreError> {
        let text = "SELECT tenant, status, document, content_sha256, size_bytes FROM executions WHERE id = ?";
        let row = self.database.query(text).bind(id.as_str().to_owned()).fetch_optional(self.database.pool()).await?;
        let Some(row) = row else { return Ok(None) };
        let mut kept = read(&row)?;
        let Some(sha256) = row.text_or_null("content_sha256")? else { return Ok(Some(kept)) };
        let blob = BlobRef { sha256, size: u64::try_from(row.number("size_bytes")?).unwrap_or(0) };
        match self.content(&blob).await {
            Ok(Document { execution, whole }) => (kept.execution, kept.whole) = (execution, whole),
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
            // It may have been removed after its row was read.
            Err(_) if self.known(std::slice::from_ref(id)).await?.is_empty() => return Ok(None),
            Err(error) => {
                let error = crate::chain(&error);
                tracing::error!(execution = %id, error, "the content of an execution on record cannot be read");
                Arc::make_mut(&mut kept.execution).warnings.retain(|notice| notice.code != LISTED_SHORT);
                return Ok(Some(kept.shortened("its content could not be read from the blob store")));
            }
        }
        Ok(Some(kept))
    }

    async fn list(&self, filter: &ExecutionFilter) -> Result<Vec<KeptExecution>, StoreError> {
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

    async fn delete(&self, id: &ExecutionId) -> Result<bool, StoreError> {
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
        if let Some(blobs) = &self.blobs
            && let Err(error) = blobs.release(id.as_str()).await
        {
            tracing::warn!(execution = %id, error = %crate::chain(&error), "content of an execution is removed later");
        }
        Ok(true)
    }

    async fn expired(&self, before_ms: i64, keep: u64, most: u32) -> Result<Vec<ExecutionId>, StoreError> {
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

    async fn known(&self, ids: &[ExecutionId]) -> Result<Vec<ExecutionId>, StoreError> {
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

    async fn sweep(&self, now_ms: i64) -> Result<usize, StoreError> {
        let Some(blobs) = &self.blobs else { return Ok(0) };
        let before = ExecutionId::before_all_since(now_ms - NEVER_RECORDED_MS);
        let unknown = blobs.owners_unknown_to(TABLE, before.as_str()).await?;
        for owner in &unknown {
            blobs.release(owner).await?;
        }
        Ok(unknown.len() + blobs.sweep().await?)
    }
}

/// What becomes of a document that is too long for a row when the blob store is not to be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfAway {
    /// An error: it is tried again.
    Wait,
    /// It is kept without its content.
    Shorten,
}

/// An execution as its row holds it.
#[derive(Debug, Clone)]
pub(super) struct Record {
    document: String,
    /// Hash of the whole document, where the blob store has it.
    blob: Option<String>,
    /// Length of the whole document.
    size: usize,
}

impl Store {
    /// An execution as its row is to hold it; what is too long for that is in the blob store then.
    pub(super) async fn record(&self, kept: &KeptExecution, if_away: IfAway) -> Result<Record, StoreError> {
        let whole = write(kept)?;
        let size = whole.len();
        if size <= INLINE_BYTES {
            return Ok(Record { document: whole, blob: None, size });
        }
        let content = Bytes::from(whole);
        let why = match &self.blobs {
            Some(blobs) => match blobs.put(kept.execution.id.as_str(), content.clone()).await {
                Ok(blob) => {
                    let message = format!(
                        "the execution has {size} bytes as JSON; in lists it is without output, displays, result and variables, which GET \
                         /v1/executions/{} has",
                        kept.execution.id
                    );
                    let listed = kept.without_content(Notice { code: LISTED_SHORT.to_owned(), message });
                    return Ok(Record { document: write(&listed)?, blob: Some(blob.sha256), size });
                }
                Err(error @ StoreError::Unavailable(_)) if size > MOST_BYTES && if_away == IfAway::Wait => {
                    return Err(error);
                }
                Err(error) => {
                    let error = crate::chain(&error);
                    tracing::warn!(execution = %kept.execution.id, error, "the blob store does not take an execution");
                    "the blob store did not take it"
                }
            },
            None => "there is no blob store",
        };
        if size <= MOST_BYTES {
            let document = String::from_utf8_lossy(&content).into_owned();
            return Ok(Record { document, blob: None, size });
        }
        let why =
            format!("the execution has {size} bytes as JSON, a row of the database takes {MOST_BYTES}, and {why}");
        let document = write(&kept.shortened(&why))?;
        Ok(Record { size: document.len(), document, blob: None })
    }

    async fn content(&self, blob: &BlobRef) -> Result<Document, StoreError> {
        let corrupt = |cause: Box<dyn std::error::Error + Send + Sync>| StoreError::Corrupt { table: TABLE, cause };
        let blobs = self.blobs.as_ref().ok_or_else(|| corrupt("there is no blob store here".into()))?;
        serde_json::from_slice(&blobs.read(blob).await?).map_err(|error| corrupt(error.into()))
    }
}

/// Puts an execution on record, ended or not, unless it is there already.
pub(super) async fn insert(
    database: &Database,
    transaction: &mut Transaction<'static, Any>,
    kept: &KeptExecution,
    record: &Record,
) -> Result<(), StoreError> {
    let execution = &kept.execution;
    let columns = "executions (id, tenant, session_id, created_ms, status, outcome, finished_ms, size_bytes, document, content_sha256)";
    let query = database.query(&super::insert_new(database.kind(), columns, 10));
    let query = query
        .bind(execution.id.as_str().to_owned())
        .bind(kept.owner.as_str().to_owned())
        .bind(execution.session_id.as_ref().map(|id| id.as_str().to_owned()))
        .bind(milliseconds(&execution.created_at));
    bind_state(query, execution, record).execute(&mut **transaction).await?;
    Ok(())
}

/// Replaces what is on record of an execution by what it became.
pub(super) async fn replace(
    database: &Database,
    transaction: &mut Transaction<'static, Any>,
    kept: &KeptExecution,
    record: &Record,
) -> Result<(), StoreError> {
    let text = "UPDATE executions SET status = ?, outcome = ?, finished_ms = ?, size_bytes = ?, document = ?, content_sha256 = ? WHERE id = ?";
    let query = bind_state(database.query(text), &kept.execution, record);
    query.bind(kept.execution.id.as_str().to_owned()).execute(&mut **transaction).await?;
    Ok(())
}

/// Status, outcome, end, size, document and blob, in this order.
fn bind_state(
    query: Query<'static, Any, AnyArguments>,
    execution: &Execution,
    record: &Record,
) -> Query<'static, Any, AnyArguments> {
    query
        .bind(word(&execution.status))
        .bind(execution.outcome.map(|outcome| outcome.as_str().to_owned()))
        .bind(execution.finished_at.as_deref().map(milliseconds))
        .bind(i64::try_from(record.size).unwrap_or(i64::MAX))
        .bind(record.document.clone())
        .bind(record.blob.clone())
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
    let document = Document { execution: Arc::clone(&kept.execution), whole: kept.whole.clone() };
    // PostgreSQL has no NUL in texts. As JSON it is an escape, which any reader turns back.
    serde_json::to_string(&document).map_err(|error| StoreError::Corrupt { table: TABLE, cause: error.into() })
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
