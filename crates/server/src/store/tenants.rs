//! Who owns things: tenants with their quotas.

use async_trait::async_trait;
use fumehood_engine::ids::TenantId;
use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;
use utoipa::ToSchema;

use super::database::Database;
use super::{Columns as _, StoreError};

/// How much a tenant may use; `null` is no bound but the node's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// Sandboxes at once: executions that run or wait outside sessions, and open sessions.
    #[schema(example = 4)]
    pub max_concurrent: Option<u64>,
    /// Executions that wait for a place or in a session, on one server; at least one may.
    pub max_queued: Option<u64>,
    /// Executions accepted from midnight to midnight, UTC.
    pub executions_per_day: Option<u64>,
    /// Processor seconds of executions that ended from midnight to midnight, UTC.
    pub cpu_seconds_per_day: Option<u64>,
    /// MiB of results and artifacts kept, and of the disks of open sessions.
    pub disk_mb: Option<u64>,
}

/// What the operator decides about a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TenantSettings {
    /// How much it may use.
    pub quotas: Quotas,
    /// Days that its entries of the audit log are kept; 0 for ever, `null`: as many as the configuration says (`tenants.audit_keep_days`).
    pub audit_keep_days: Option<u64>,
    /// Whether the audit log keeps its code, not only the hash of it.
    pub keep_code: bool,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: TenantId,
    /// What the operator decided.
    pub settings: TenantSettings,
    /// Milliseconds since 1970.
    pub created_ms: i64,
}

/// Tenants. One that was removed is there no more, but its name stays taken: what it left behind bears it.
#[async_trait]
pub trait Tenants: Send + Sync {
    /// One of them.
    async fn get(&self, name: &TenantId) -> Result<Option<Tenant>, StoreError>;

    /// All, by name.
    async fn list(&self) -> Result<Vec<Tenant>, StoreError>;

    /// A new one. [`StoreError::Conflict`] when the name is taken, or was.
    async fn create(&self, tenant: &Tenant) -> Result<(), StoreError>;

    /// Replaces its settings. Whether there is one of this name.
    async fn update(&self, name: &TenantId, settings: &TenantSettings) -> Result<bool, StoreError>;

    /// Removes it and revokes its keys. Whether there was one of this name. Its usage and its audit log stay.
    async fn remove(&self, name: &TenantId, now_ms: i64) -> Result<bool, StoreError>;
}

#[async_trait]
impl Tenants for Database {
    async fn get(&self, name: &TenantId) -> Result<Option<Tenant>, StoreError> {
        let query = "SELECT name, settings, created_ms FROM tenants WHERE name = ? AND removed_ms IS NULL";
        let row = self.query(query).bind(name.as_str().to_owned()).fetch_optional(self.pool()).await?;
        row.map(|row| read(&row)).transpose()
    }

    async fn list(&self) -> Result<Vec<Tenant>, StoreError> {
        let query = "SELECT name, settings, created_ms FROM tenants WHERE removed_ms IS NULL ORDER BY name";
        self.query(query).fetch_all(self.pool()).await?.iter().map(read).collect()
    }

    async fn create(&self, tenant: &Tenant) -> Result<(), StoreError> {
        self.query("INSERT INTO tenants (name, settings, created_ms) VALUES (?, ?, ?)")
            .bind(tenant.name.as_str().to_owned())
            .bind(written(&tenant.settings))
            .bind(tenant.created_ms)
            .execute(self.pool())
            .await?;
        Ok(())
    }

    async fn update(&self, name: &TenantId, settings: &TenantSettings) -> Result<bool, StoreError> {
        let query = "UPDATE tenants SET settings = ? WHERE name = ? AND removed_ms IS NULL";
        let done =
            self.query(query).bind(written(settings)).bind(name.as_str().to_owned()).execute(self.pool()).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn remove(&self, name: &TenantId, now_ms: i64) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        let removed = self
            .query("UPDATE tenants SET removed_ms = ? WHERE name = ? AND removed_ms IS NULL")
            .bind(now_ms)
            .bind(name.as_str().to_owned())
            .execute(&mut *transaction)
            .await?;
        self.query("UPDATE api_keys SET revoked_ms = ? WHERE tenant = ? AND revoked_ms IS NULL")
            .bind(now_ms)
            .bind(name.as_str().to_owned())
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(removed.rows_affected() > 0)
    }
}

fn written(settings: &TenantSettings) -> String {
    serde_json::to_string(settings).expect("numbers and booleans are JSON")
}

fn read(row: &AnyRow) -> Result<Tenant, StoreError> {
    let name = row.text("name")?;
    let settings = row.text("settings")?;
    Ok(Tenant {
        name: TenantId::parse(&name).ok_or_else(|| corrupt("tenants", format!("{name:?} is no name of a tenant")))?,
        settings: serde_json::from_str(&settings).map_err(|error| corrupt("tenants", error))?,
        created_ms: row.number("created_ms")?,
    })
}

/// A row that this program did not write.
pub(super) fn corrupt(table: &'static str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::Corrupt { table, cause: cause.into() }
}
