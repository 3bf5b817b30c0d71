//! What outlives the server: repositories on one of three databases, and a blob store for what is large.
//!
//! ```text
//! Store -> executions, jobs, tenants, templates, ...   each a trait with prose at its contract, and one implementation in SQL
//!       -> blobs                                       content-addressed, a folder or an S3-compatible service
//! ```
//!
//! SQLite in the data folder is the default; MariaDB and PostgreSQL are named by URL. All three pass the same migrations and the same tests
//! (`crates/server/tests/store`).

use std::sync::Arc;

mod audit;
mod blobs;
mod columns;
mod database;
mod keys;
mod templates;
mod tenants;
mod usage;

pub use audit::{AuditEntry, AuditFilter, AuditLog};
pub use blobs::{BlobPlace, BlobRef, Blobs, S3Config};
pub use columns::Columns;
pub use database::{Attempts, Database, DatabaseConfig, Kind, StoreError};
pub use keys::{Key, KeyId, Keys, Scope, Scopes, Token};
pub use templates::{NewTemplate, StoredTemplate, TemplateStore};
pub use tenants::{Quotas, Tenant, TenantSettings, Tenants};
pub use usage::{Usage, UsageCounters};

/// Everything that is kept, by repository. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    database: Arc<Database>,
}

impl Store {
    /// Connects, and brings the schema up to this version.
    ///
    /// # Errors
    /// When the database cannot be reached, or is newer than this program.
    pub async fn open(config: &DatabaseConfig) -> Result<Self, StoreError> {
        Ok(Self { database: Arc::new(Database::connect(config).await?) })
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
