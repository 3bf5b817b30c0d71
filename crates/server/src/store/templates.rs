//! Templates of tenants, in versions that never change.

use async_trait::async_trait;
use fumehood_engine::ids::TenantId;
use fumehood_engine::template::TemplateSpec;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::{Database, StoreError};

/// One version of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTemplate {
    /// As it was written, with the version of what it extends.
    pub spec: TemplateSpec,
    /// Counts from 1 for each name.
    pub version: u32,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Who wrote it.
    pub created_by: String,
}

/// A version to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewTemplate<'a> {
    /// What it says.
    pub spec: &'a TemplateSpec,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Who writes it.
    pub created_by: &'a str,
    /// Whether the name must be free (`true`), or taken.
    pub first: bool,
}

/// Keeps templates. What one tenant has, another neither sees nor collides with.
#[async_trait]
pub trait TemplateStore: Send + Sync {
    /// The newest version of a name, or that version of it; `None` when there is none, or the name was deleted.
    async fn find(
        &self,
        tenant: &TenantId,
        name: &str,
        version: Option<u32>,
    ) -> Result<Option<StoredTemplate>, StoreError>;

    /// By name and version: the newest of each name, or all that can be used; the first `limit` of them.
    async fn list(&self, tenant: &TenantId, versions: bool, limit: u32) -> Result<Vec<StoredTemplate>, StoreError>;

    /// Names of templates, deleted ones not counted, of which some version extends this one.
    async fn children(&self, tenant: &TenantId, name: &str) -> Result<Vec<String>, StoreError>;

    /// Writes the next version and returns its number. Of several at once each gets a number of its own. Numbers of a deleted name are not given again.
    /// `None` when the name is taken and must be free, or the other way round.
    async fn add(&self, tenant: &TenantId, new: NewTemplate<'_>) -> Result<Option<u32>, StoreError>;

    /// Deletes all versions of a name. Whether there were any.
    async fn delete(&self, tenant: &TenantId, name: &str, now_ms: i64) -> Result<bool, StoreError>;
}

const COLUMNS: &str = "t.document, t.version, t.created_ms, t.created_by";
/// Another server may have taken the number meanwhile; a busy name is tried again so often.
const ATTEMPTS: u32 = 20;

#[async_trait]
impl TemplateStore for Database {
    async fn find(
        &self,
        tenant: &TenantId,
        name: &str,
        version: Option<u32>,
    ) -> Result<Option<StoredTemplate>, StoreError> {
        let living =
            format!("SELECT {COLUMNS} FROM templates t WHERE t.tenant = ? AND t.name = ? AND t.deleted_ms IS NULL");
        let row = match version {
            Some(version) => {
                let query = self.query(&format!("{living} AND t.version = ?"));
                let query = query.bind(tenant.as_str().to_owned()).bind(name.to_owned()).bind(i64::from(version));
                query.fetch_optional(self.pool()).await?
            }
            None => {
                let query = self.query(&format!("{living} ORDER BY t.version DESC LIMIT 1"));
                query.bind(tenant.as_str().to_owned()).bind(name.to_owned()).fetch_optional(self.pool()).await?
            }
        };
        row.as_ref().map(read).transpose()
    }

    async fn list(&self, tenant: &TenantId, versions: bool, limit: u32) -> Result<Vec<StoredTemplate>, StoreError> {
        let newest = if versions {
            ""
        } else {
            "AND t.version = (SELECT MAX(n.version) FROM templates n WHERE n.tenant = t.tenant AND n.name = t.name AND n.deleted_ms IS NULL)"
        };
        let text = format!(
            "SELECT {COLUMNS} FROM templates t WHERE t.tenant = ? AND t.deleted_ms IS NULL {newest} ORDER BY t.name, t.version LIMIT ?"
        );
        let query = self.query(&text).bind(tenant.as_str().to_owned()).bind(i64::from(limit));
        query.fetch_all(self.pool()).await?.iter().map(read).collect()
    }

    async fn children(&self, tenant: &TenantId, name: &str) -> Result<Vec<String>, StoreError> {
        let text = "SELECT DISTINCT name FROM templates WHERE tenant = ? AND parent = ? AND deleted_ms IS NULL ORDER BY name LIMIT 100";
        let query = self.query(text).bind(tenant.as_str().to_owned()).bind(name.to_owned());
        let rows = query.fetch_all(self.pool()).await?;
        rows.iter().map(|row| row.try_get::<String, _>(0).map_err(|error| corrupt(error.into()))).collect()
    }

    async fn add(&self, tenant: &TenantId, new: NewTemplate<'_>) -> Result<Option<u32>, StoreError> {
        let spec = new.spec;
        let document = serde_json::to_string(spec).map_err(|error| corrupt(error.into()))?;
        let parent = spec.extends.as_deref().map(|parent| parent.split('@').next().unwrap_or(parent).to_owned());
        let mut attempt = 0;
        loop {
            let text = "SELECT COALESCE(MAX(version), 0), COUNT(*) - COUNT(deleted_ms) FROM templates WHERE tenant = ? AND name = ?";
            let query = self.query(text);
            let row = query.bind(tenant.as_str().to_owned()).bind(spec.name.clone()).fetch_one(self.pool()).await?;
            let (last, living) = (number(&row, 0)?, number(&row, 1)?);
            if new.first != (living == 0) {
                return Ok(None);
            }
            let text = "INSERT INTO templates (tenant, name, version, parent, document, created_ms, created_by) VALUES (?, ?, ?, ?, ?, ?, ?)";
            let version = u32::try_from(last + 1).map_err(|error| corrupt(error.into()))?;
            let query = self
                .query(text)
                .bind(tenant.as_str().to_owned())
                .bind(spec.name.clone())
                .bind(i64::from(version))
                .bind(parent.clone())
                .bind(document.clone())
                .bind(new.created_ms)
                .bind(new.created_by.to_owned());
            match query.execute(self.pool()).await.map_err(StoreError::from) {
                Ok(_) => return Ok(Some(version)),
                // Somebody else was faster: the next number, if the name still is as it must be.
                Err(StoreError::Conflict(_)) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn delete(&self, tenant: &TenantId, name: &str, now_ms: i64) -> Result<bool, StoreError> {
        let text = "UPDATE templates SET deleted_ms = ? WHERE tenant = ? AND name = ? AND deleted_ms IS NULL";
        let query = self.query(text).bind(now_ms).bind(tenant.as_str().to_owned()).bind(name.to_owned());
        Ok(query.execute(self.pool()).await?.rows_affected() > 0)
    }
}

fn corrupt(cause: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    StoreError::Corrupt { table: "templates", cause }
}

fn number(row: &AnyRow, column: usize) -> Result<i64, StoreError> {
    row.try_get(column).map_err(|error| corrupt(error.into()))
}

fn read(row: &AnyRow) -> Result<StoredTemplate, StoreError> {
    let text: String = row.try_get(0).map_err(|error| corrupt(error.into()))?;
    Ok(StoredTemplate {
        spec: serde_json::from_str(&text).map_err(|error| corrupt(error.into()))?,
        version: u32::try_from(number(row, 1)?).map_err(|error| corrupt(error.into()))?,
        created_ms: number(row, 2)?,
        created_by: row.try_get(3).map_err(|error| corrupt(error.into()))?,
    })
}
