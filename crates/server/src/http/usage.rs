//! `/v1/usage`: what a tenant used and may use.

use axum::Json;
use axum::extract::State;
use fumehood_engine::clock::stamp_of;
use fumehood_engine::ids::TenantId;
use fumehood_engine::quota::Held;
use serde::Serialize;
use utoipa::ToSchema;

use super::Shared;
use super::auth::{Principal, unknown_tenant};
use super::error::ApiError;
use super::params::Pairs;
use crate::openapi::Refusals;
use crate::store::{Quotas, Usage};
use crate::tenancy::{day_of, midnight_after};

const MOST_DAYS: i64 = 366;
const DAY_SECONDS: i64 = 24 * 3600;

/// What was used on a day.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageOfDay {
    /// The day in UTC, as `2026-01-31`.
    day: String,
    /// What was used.
    #[serde(flatten)]
    usage: Usage,
}

/// What a tenant holds on this server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Holdings {
    /// Executions that run or wait outside sessions, and open sessions.
    sandboxes: u64,
    /// Executions that wait for a place or in a session.
    waiting: u64,
    /// MiB of results and artifacts kept, and of the disks of open sessions; rounded up.
    disk_mb: u64,
}

/// What a tenant used and may use.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageReport {
    /// Whose.
    tenant: TenantId,
    /// Today, in UTC.
    today: Usage,
    /// When that begins anew, RFC 3339 UTC.
    resets_at: String,
    /// At the moment.
    now: Holdings,
    /// How much it may use.
    quotas: Quotas,
    /// Days on which anything was used, the newest first.
    days: Vec<UsageOfDay>,
}

/// What the asker's tenant used and may use. Operators may ask for another's.
#[utoipa::path(get, path = "/v1/usage", tag = "tenants",
    params(("days" = Option<u16>, Query, description = "So many days, today included; 30 by default", minimum = 1, maximum = 366),
        ("tenant" = Option<String>, Query, description = "Another tenant's, for operators")),
    responses((status = 200, description = "Usage", body = UsageReport), Refusals))]
pub(crate) async fn read(
    State(state): State<Shared>,
    principal: Principal,
    query: Pairs,
) -> Result<Json<UsageReport>, ApiError> {
    let [days, tenant] = query.take(["days", "tenant"])?;
    let tenant = principal.tenant_named(tenant.as_deref())?;
    let days = days.map_or(Some(30), |text| text.parse().ok().filter(|days| (1..=MOST_DAYS).contains(days)));
    let days = days.ok_or_else(|| ApiError::invalid("days", format!("must be between 1 and {MOST_DAYS}")))?;
    let account = state.tenancy.ledger.open(&tenant).await?.ok_or_else(unknown_tenant)?;
    let now = state.tenancy.ledger.now();
    let today = day_of(now);
    let first = today + 1 - days;
    // So that this server's counters are in the database, and others' are read.
    state.tenancy.ledger.renew(&tenant).await?;
    let by_day = state.store.usage().days(&tenant, first, today).await?;
    let engine = &state.engine;
    let bytes = account.bytes(engine.held_by(&tenant, Held::Bytes));
    Ok(Json(UsageReport {
        today: account.used_on(today),
        resets_at: stamp_of(midnight_after(now).unix_timestamp(), 0),
        now: Holdings {
            sandboxes: account.sandboxes() + engine.held_by(&tenant, Held::Sessions),
            waiting: engine.held_by(&tenant, Held::Waiting),
            disk_mb: bytes.div_ceil(1 << 20),
        },
        quotas: account.settings().quotas,
        days: by_day.into_iter().rev().map(|(day, usage)| UsageOfDay { day: date(day), usage }).collect(),
        tenant,
    }))
}

fn date(day: i64) -> String {
    let mut stamp = stamp_of(day * DAY_SECONDS, 0);
    stamp.truncate(10);
    stamp
}
