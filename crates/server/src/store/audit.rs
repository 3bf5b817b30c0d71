//! The audit log: who did what, and what came of it. Rows are added and, when they are old enough, removed; none is changed.

use async_trait::async_trait;
use fumehood_engine::ids::TenantId;
use sqlx::any::AnyRow;

use super::database::Database;
use super::tenants::corrupt;
use super::{Columns as _, StoreError};

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its number; of no meaning before it is appended.
    pub id: i64,
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// On whose behalf.
    pub tenant: TenantId,
    /// With which key; `None` where none was needed, or none was right.
    pub key: Option<String>,
    /// In which request; `None` for what no request asked for.
    pub request_id: Option<String>,
    /// What, for example `execution.accepted`.
    pub action: String,
    /// With what: an id, a name, or a route.
    pub object: String,
    /// What came of it.
    pub outcome: String,
    /// Policy in force.
    pub policy: Option<String>,
    /// SHA-256 of the code.
    pub code_hash: Option<String>,
    /// The code itself, where its tenant keeps it.
    pub code: Option<String>,
    /// More about it.
    pub detail: Option<String>,
}

/// Which entries.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only those of this tenant.
    pub tenant: Option<TenantId>,
    /// Only those of this action.
    pub action: Option<String>,
    /// Only those about this.
    pub object: Option<String>,
    /// Only those of this key.
    pub key: Option<String>,
    /// Only those from this time on, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// Only those before this number (the cursor of the page before).
    pub before: Option<i64>,
    /// At most so many.
    pub limit: usize,
}

/// The audit log.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Adds entries, all or none of each few dozen.
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// A page of it, newest first.
    async fn page(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreError>;

    /// Removes a tenant's entries from before this time; how many.
    async fn forget(&self, tenant: &TenantId, before_ms: i64) -> Result<u64, StoreError>;
}

const COLUMNS: &str = "at_ms, tenant, api_key, request_id, action, object, outcome, policy, code_hash, code, detail";

/// Rows of one statement: few enough for every database's bound on values.
const ROWS: usize = 64;

#[async_trait]
impl AuditLog for Database {
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        for entries in entries.chunks(ROWS) {
            let rows = vec!["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"; entries.len()].join(", ");
            let query = self.query(&format!("INSERT INTO audit ({COLUMNS}) VALUES {rows}"));
            let query = entries.iter().fold(query, |query, entry| {
                query
                    .bind(entry.at_ms)
                    .bind(entry.tenant.as_str().to_owned())
                    .bind(entry.key.as_deref().map(|text| cut(text, 128)))
                    .bind(entry.request_id.as_deref().map(|text| cut(text, 128)))
                    .bind(cut(&entry.action, 64))
                    .bind(cut(&entry.object, 512))
                    .bind(cut(&entry.outcome, 64))
                    .bind(entry.policy.as_deref().map(|text| cut(text, 255)))
                    .bind(entry.code_hash.clone())
                    .bind(entry.code.as_deref().map(without_nul))
                    .bind(entry.detail.as_deref().map(without_nul))
            });
            query.execute(self.pool()).await?;
        }
        Ok(())
    }

    async fn page(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreError> {
        let texts = [
            ("tenant = ?", filter.tenant.as_ref().map(TenantId::as_str)),
            ("action = ?", filter.action.as_deref()),
            ("object = ?", filter.object.as_deref()),
            ("api_key = ?", filter.key.as_deref()),
        ];
        let numbers = [("at_ms >= ?", filter.since_ms), ("id < ?", filter.before)];
        let conditions = texts.iter().filter(|(_, value)| value.is_some()).map(|(condition, _)| *condition);
        let conditions: Vec<_> = conditions
            .chain(numbers.iter().filter(|(_, value)| value.is_some()).map(|(condition, _)| *condition))
            .collect();
        let conditions =
            if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
        let text = format!("SELECT id, {COLUMNS} FROM audit {conditions} ORDER BY id DESC LIMIT {}", filter.limit);
        let query = self.query(&text);
        let query = texts.iter().filter_map(|(_, value)| *value).fold(query, |query, text| query.bind(text.to_owned()));
        let query = numbers.iter().filter_map(|(_, value)| *value).fold(query, |query, number| query.bind(number));
        query.fetch_all(self.pool()).await?.iter().map(read).collect()
    }

    async fn forget(&self, tenant: &TenantId, before_ms: i64) -> Result<u64, StoreError> {
        let query = self.query("DELETE FROM audit WHERE tenant = ? AND at_ms < ?");
        let done = query.bind(tenant.as_str().to_owned()).bind(before_ms).execute(self.pool()).await?;
        Ok(done.rows_affected())
    }
}

/// Text of at most so many bytes, as a column takes it.
fn cut(text: &str, most: usize) -> String {
    without_nul(&text[..text.floor_char_boundary(most)])
}

/// PostgreSQL keeps no NUL in texts.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn read(row: &AnyRow) -> Result<AuditEntry, StoreError> {
    let tenant = row.text("tenant")?;
    Ok(AuditEntry {
        id: row.number("id")?,
        at_ms: row.number("at_ms")?,
        tenant: TenantId::parse(&tenant)
            .ok_or_else(|| corrupt("audit", format!("{tenant:?} is no name of a tenant")))?,
        key: row.text_or_null("api_key")?,
        request_id: row.text_or_null("request_id")?,
        action: row.text("action")?,
        object: row.text("object")?,
        outcome: row.text("outcome")?,
        policy: row.text_or_null("policy")?,
        code_hash: row.text_or_null("code_hash")?,
        code: row.text_or_null("code")?,
        detail: row.text_or_null("detail")?,
    })
}
