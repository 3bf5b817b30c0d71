//! `/v1/audit`: who did what, and what came of it.

use axum::Json;
use axum::extract::State;
use fumehood_engine::ids::TenantId;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::ToSchema;

use super::Shared;
use super::auth::Principal;
use super::error::ApiError;
use super::params::Pairs;
use crate::openapi::Refusals;
use crate::store::{AuditEntry, AuditFilter};
use crate::tenancy::stamp;

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditRecord {
    /// Its number; greater than those of entries before it.
    id: i64,
    /// When, RFC 3339 UTC.
    at: String,
    /// On whose behalf; `default` for requests without a right key.
    tenant: TenantId,
    /// With which key; `null` where none was needed or none was right.
    key_id: Option<String>,
    /// In which request; `null` for what no request asked for.
    request_id: Option<String>,
    /// What: `execution.accepted`, `execution.ended`, `session.opened`, `session.closed`, `key.created`, `key.revoked`, `key.rotated`,
    /// `template.created`, `template.changed`, `template.removed`, `tenant.created`, `tenant.updated`, `tenant.removed`, `request.refused`, `audit.lost` and others.
    #[schema(example = "execution.accepted")]
    action: String,
    /// With what: an id, a name, or a route.
    object: String,
    /// What came of it: the outcome of an execution, the code of a refusal, `accepted`, `done`.
    outcome: String,
    /// Policy in force.
    policy: Option<String>,
    /// SHA-256 of the code, hexadecimal.
    code_sha256: Option<String>,
    /// The code itself, where the tenant keeps it.
    code: Option<String>,
    /// More about it.
    detail: Option<String>,
}

impl From<AuditEntry> for AuditRecord {
    fn from(entry: AuditEntry) -> Self {
        Self {
            id: entry.id,
            at: stamp(entry.at_ms),
            tenant: entry.tenant,
            key_id: entry.key,
            request_id: entry.request_id,
            action: entry.action,
            object: entry.object,
            outcome: entry.outcome,
            policy: entry.policy,
            code_sha256: entry.code_hash,
            code: entry.code,
            detail: entry.detail,
        }
    }
}

/// A page of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditPage {
    /// Newest first.
    entries: Vec<AuditRecord>,
    /// Give it as `cursor` for the next page; `null` at the end.
    next_cursor: Option<String>,
}

/// Entries about the asker's tenant, newest first; for operators, about all or one.
#[utoipa::path(get, path = "/v1/audit", tag = "tenants",
    params(("tenant" = Option<String>, Query, description = "Only those of this tenant"),
        ("action" = Option<String>, Query, description = "Only those of this action"),
        ("object" = Option<String>, Query, description = "Only those about this"),
        ("key_id" = Option<String>, Query, description = "Only those of this key"),
        ("since" = Option<String>, Query, description = "Only those from this time on, RFC 3339"),
        ("limit" = Option<u16>, Query, description = "At most so many, 1 to 1000; 100 by default", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before")),
    responses((status = 200, description = "A page", body = AuditPage), Refusals))]
pub(crate) async fn list(
    State(state): State<Shared>,
    principal: Principal,
    query: Pairs,
) -> Result<Json<AuditPage>, ApiError> {
    let [tenant, action, object, key, since, limit, cursor] =
        query.take(["tenant", "action", "object", "key_id", "since", "limit", "cursor"])?;
    let limit = limit.map_or(Some(100), |text| text.parse().ok().filter(|limit| (1..=1000).contains(limit)));
    let limit: usize = limit.ok_or_else(|| ApiError::invalid("limit", "must be between 1 and 1000"))?;
    let filter = AuditFilter {
        tenant: match tenant {
            None if principal.is_operator() => None,
            named => Some(principal.tenant_named(named.as_deref())?),
        },
        action,
        object,
        key,
        since_ms: since.as_deref().map(milliseconds).transpose()?,
        before: match cursor.map(|text| text.parse()) {
            None => None,
            Some(Ok(number)) => Some(number),
            Some(Err(_)) => return Err(ApiError::invalid("cursor", "must be the next_cursor of a page")),
        },
        limit: limit + 1,
    };
    // What was done before this request is in it.
    state.tenancy.journal.write().await?;
    let mut entries = state.store.audit().page(&filter).await?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let next_cursor = entries.last().filter(|_| more).map(|entry| entry.id.to_string());
    Ok(Json(AuditPage { entries: entries.into_iter().map(AuditRecord::from).collect(), next_cursor }))
}

fn milliseconds(text: &str) -> Result<i64, ApiError> {
    let time = OffsetDateTime::parse(text, &Rfc3339);
    let time = time.map_err(|_| ApiError::invalid("since", "must be a time such as 2026-01-31T12:00:00Z"))?;
    Ok(i64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX))
}
