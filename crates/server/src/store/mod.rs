//! What outlives the server: repositories on one of three databases, and a blob store for what is large.
//!
//! ```text
//! Store -> executions, jobs, webhooks, idempotency, ...   each with prose at its contract, in SQL for all three dialects
//!       -> blobs                                       content-addressed, a folder or an S3-compatible service
//! ```
//!
//! SQLite in the data folder is the default; MariaDB and PostgreSQL are named by URL. All three pass the same migrations and the same tests
//! (`crates/server/tests/store`).

use std::sync::Arc;

use time::OffsetDateTime;

mod audit;
mod blobs;
mod columns;
mod database;
mod executions;
mod idempotency;
mod jobs;
mod keys;
mod templates;
mod tenants;
mod usage;
mod webhooks;

pub use audit::{AuditEntry, AuditFilter, AuditLog};
pub use blobs::{BlobPlace, BlobRef, Blobs, S3Config};
pub use columns::Columns;
pub use database::{Attempts, Database, DatabaseConfig, Kind, StoreError, retry_contended};
pub use executions::{ExecutionFilter, Executions, KeptExecution};
pub use idempotency::{Attempt, Earlier, Idempotency};
pub use jobs::{End, Job, Jobs, Mine, NewJob, Waiting};
pub use keys::{Key, KeyId, Keys, Scope, Scopes, Token};
pub use templates::{NewTemplate, StoredTemplate, TemplateStore};
pub use tenants::{Quotas, Tenant, TenantSettings, Tenants};
pub use usage::{Usage, UsageCounters};
pub use webhooks::{Webhook, Webhooks};

/// Everything that is kept, by repository. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    database: Arc<Database>,
    blobs: Option<Blobs>,
    /// Whether files that executions left belong in the blob store too.
    shares_files: bool,
}

impl Store {
    /// Connects, and brings the schema up to this version.
    ///
    /// # Errors
    /// When the database cannot be reached, or is newer than this program.
    pub async fn open(config: &DatabaseConfig) -> Result<Self, StoreError> {
        Ok(Self { database: Arc::new(Database::connect(config).await?), blobs: None, shares_files: false })
    }

    /// The same with a blob store for what is large. With `shares_files` the files that executions leave are there too, where every server of this database
    /// finds them.
    ///
    /// # Errors
    /// As [`Blobs::open`].
    pub fn with_blobs(self, place: &BlobPlace, shares_files: bool) -> Result<Self, StoreError> {
        let blobs = Blobs::open(place, Arc::clone(&self.database))?;
        Ok(Self { blobs: Some(blobs), shares_files, ..self })
    }

    /// Where files that executions leave are kept for all servers of this database, if there is such a place.
    #[must_use]
    pub fn shared_files(&self) -> Option<&Blobs> {
        self.blobs.as_ref().filter(|_| self.shares_files)
    }

    /// What became of executions.
    #[must_use]
    pub fn executions(&self) -> &dyn Executions {
        self
    }

    /// Jobs that have not ended.
    #[must_use]
    pub fn jobs(&self) -> &dyn Jobs {
        self
    }

    /// Ends that are still to be told.
    #[must_use]
    pub fn webhooks(&self) -> &dyn Webhooks {
        &*self.database
    }

    /// What was made for requests that had a key.
    #[must_use]
    pub fn idempotency(&self) -> &dyn Idempotency {
        &*self.database
    }

    /// What all servers of this database share under `name`; `fresh` when nobody has said yet.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn shared(&self, name: &str, fresh: &str) -> Result<String, StoreError> {
        let text = insert_new(self.database.kind(), "settings (id, value)", 2);
        let query = self.database.query(&text).bind(name.to_owned()).bind(fresh.to_owned());
        query.execute(self.database.pool()).await?;
        let read = self.database.query("SELECT value FROM settings WHERE id = ?").bind(name.to_owned());
        read.fetch_one(self.database.pool()).await?.text("value")
    }

    /// Templates of tenants.
    #[must_use]
    pub fn templates(&self) -> Arc<dyn TemplateStore> {
        Arc::<Database>::clone(&self.database)
    }

    /// Who owns things.
    #[must_use]
    pub fn tenants(&self) -> &dyn Tenants {
        &*self.database
    }

    /// API keys.
    #[must_use]
    pub fn keys(&self) -> &dyn Keys {
        &*self.database
    }

    /// What tenants used.
    #[must_use]
    pub fn usage(&self) -> &dyn UsageCounters {
        &*self.database
    }

    /// Who did what.
    #[must_use]
    pub fn audit(&self) -> &dyn AuditLog {
        &*self.database
    }

    /// The database under it.
    #[must_use]
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }
}

/// Inserts a row unless one of this key is there: `table` with its columns, of which there are `count`.
fn insert_new(kind: Kind, table: &str, count: usize) -> String {
    let marks = marks(count);
    match kind {
        Kind::Mysql => format!("INSERT IGNORE INTO {table} VALUES ({marks})"),
        Kind::Sqlite | Kind::Postgres => format!("INSERT INTO {table} VALUES ({marks}) ON CONFLICT DO NOTHING"),
    }
}

fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

/// Milliseconds since 1970.
pub(crate) fn milliseconds_of(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}
