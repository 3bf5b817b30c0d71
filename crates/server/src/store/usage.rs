//! What tenants used, by day.

use async_trait::async_trait;
use fumehood_engine::ids::TenantId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::database::Database;
use super::{Columns as _, StoreError};

/// What was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Executions accepted.
    pub executions: u64,
    /// Executions that did not end well.
    pub failures: u64,
    /// Milliseconds of processor time of executions that ended.
    pub cpu_ms: u64,
    /// Milliseconds that their runs took.
    pub wall_ms: u64,
    /// Bytes of their output and artifacts.
    pub result_bytes: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            executions: self.executions.saturating_add(other.executions),
            failures: self.failures.saturating_add(other.failures),
            cpu_ms: self.cpu_ms.saturating_add(other.cpu_ms),
            wall_ms: self.wall_ms.saturating_add(other.wall_ms),
            result_bytes: self.result_bytes.saturating_add(other.result_bytes),
        }
    }

    fn columns(self) -> [i64; 5] {
        [self.executions, self.failures, self.cpu_ms, self.wall_ms, self.result_bytes]
            .map(|number| i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// Counters. A day is a number: days since 1970, in UTC.
#[async_trait]
pub trait UsageCounters: Send + Sync {
    /// Adds to a day; several servers may add to the same at once, and nothing is lost.
    async fn add(&self, tenant: &TenantId, day: i64, more: Usage) -> Result<(), StoreError>;

    /// Days from `first` to `last` on which anything was used, in order.
    async fn days(&self, tenant: &TenantId, first: i64, last: i64) -> Result<Vec<(i64, Usage)>, StoreError>;

    /// Bytes that keeping the executions on record costs.
    async fn stored_bytes(&self, tenant: &TenantId) -> Result<u64, StoreError>;
}

#[async_trait]
impl UsageCounters for Database {
    async fn add(&self, tenant: &TenantId, day: i64, more: Usage) -> Result<(), StoreError> {
        let update = "UPDATE usage_by_day SET executions = executions + ?, failures = failures + ?, cpu_ms = cpu_ms + ?, \
                      wall_ms = wall_ms + ?, result_bytes = result_bytes + ? WHERE tenant = ? AND day = ?";
        let insert = "INSERT INTO usage_by_day (executions, failures, cpu_ms, wall_ms, result_bytes, tenant, day) \
                      VALUES (?, ?, ?, ?, ?, ?, ?)";
        let run = async |text: &str| {
            let query = more.columns().into_iter().fold(self.query(text), |query, number| query.bind(number));
            query.bind(tenant.as_str().to_owned()).bind(day).execute(self.pool()).await.map_err(StoreError::from)
        };
        if run(update).await?.rows_affected() > 0 {
            return Ok(());
        }
        match run(insert).await {
            // Another server has begun the day meanwhile.
            Err(StoreError::Conflict(_)) => run(update).await.map(drop),
            done => done.map(drop),
        }
    }

    async fn days(&self, tenant: &TenantId, first: i64, last: i64) -> Result<Vec<(i64, Usage)>, StoreError> {
        let query = "SELECT day, executions, failures, cpu_ms, wall_ms, result_bytes FROM usage_by_day \
                     WHERE tenant = ? AND day >= ? AND day <= ? ORDER BY day";
        let query = self.query(query).bind(tenant.as_str().to_owned()).bind(first).bind(last);
        let rows = query.fetch_all(self.pool()).await?;
        let read = |row: &sqlx::any::AnyRow| {
            let count = |column: &str| row.number(column).map(|number| u64::try_from(number).unwrap_or(0));
            let usage = Usage {
                executions: count("executions")?,
                failures: count("failures")?,
                cpu_ms: count("cpu_ms")?,
                wall_ms: count("wall_ms")?,
                result_bytes: count("result_bytes")?,
            };
            Ok((row.number("day")?, usage))
        };
        rows.iter().map(read).collect()
    }

    async fn stored_bytes(&self, tenant: &TenantId) -> Result<u64, StoreError> {
        let query = "SELECT CAST(COALESCE(SUM(size_bytes), 0) AS {bigint}) AS bytes FROM executions WHERE tenant = ?";
        let row = self.query(query).bind(tenant.as_str().to_owned()).fetch_one(self.pool()).await?;
        let bytes = row.number("bytes")?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }
}
