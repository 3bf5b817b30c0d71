//! `/v1/queue`: jobs of the asker's tenant that wait, run, or are dead; for operators, of all.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use fumehood_engine::clock::stamp_of;
use fumehood_engine::ids::{ExecutionId, TenantId};
use fumehood_engine::job::Priority;
use serde::Serialize;
use utoipa::ToSchema;

use super::Shared;
use super::auth::Principal;
use super::error::{ApiError, ErrorBody};
use super::params::{NameParam, Pairs, unknown_execution};
use crate::jobs::state::JobState;
use crate::openapi::Refusals;
use crate::store::Job;

/// A job that has not ended, or is dead.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobEntry {
    /// The execution that it is.
    execution_id: ExecutionId,
    /// Whose it is.
    tenant: TenantId,
    /// How urgent it is.
    priority: Priority,
    /// `waiting`, `begun` or `dead`.
    state: &'static str,
    /// How often it was begun.
    attempts: u32,
    /// How often it may be begun.
    max_attempts: u32,
    /// Who has it.
    worker: Option<String>,
    /// When it was accepted, RFC 3339 UTC.
    created_at: String,
    /// Why it is dead.
    reason: Option<String>,
}

impl From<Job> for JobEntry {
    fn from(job: Job) -> Self {
        let (state, attempts, worker) = match job.state {
            JobState::Waiting { attempt } => ("waiting", attempt, None),
            JobState::Begun { attempt, worker, .. } => ("begun", attempt, Some(worker)),
            JobState::Dead { attempt } => ("dead", attempt, None),
            JobState::Ended => ("ended", 0, None),
        };
        let (seconds, ms) = (job.created_ms.div_euclid(1000), job.created_ms.rem_euclid(1000));
        Self {
            execution_id: job.id,
            tenant: job.owner,
            priority: job.priority,
            state,
            attempts,
            max_attempts: job.max_attempts,
            worker,
            created_at: stamp_of(seconds, u32::try_from(ms).unwrap_or(0) * 1_000_000),
            reason: job.reason,
        }
    }
}

/// Jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobPage {
    /// Those that run first, then in the order they were accepted.
    jobs: Vec<JobEntry>,
}

async fn page(state: &Shared, principal: &Principal, query: Pairs, dead: bool) -> Result<Json<JobPage>, ApiError> {
    let [tenant, limit] = query.take(["tenant", "limit"])?;
    let limit = limit.map_or(Some(100), |text| text.parse().ok().filter(|limit| (1..=1000).contains(limit)));
    let limit = limit.ok_or_else(|| ApiError::invalid("limit", "must be between 1 and 1000"))?;
    let tenant = match tenant {
        None if principal.is_operator() => None,
        named => Some(principal.tenant_named(named.as_deref())?),
    };
    let jobs = state.jobs.list(tenant.as_ref(), dead, limit).await?;
    Ok(Json(JobPage { jobs: jobs.into_iter().map(JobEntry::from).collect() }))
}

/// Jobs of the asker's tenant that wait and run, on every server of this database; for operators, of all or of one.
#[utoipa::path(get, path = "/v1/queue", tag = "operations",
    params(("tenant" = Option<String>, Query, description = "Only those of this tenant"),
        ("limit" = Option<u16>, Query, description = "At most so many, 1 to 1000; 100 by default", minimum = 1, maximum = 1000)),
    responses((status = 200, description = "Jobs", body = JobPage), Refusals))]
pub(crate) async fn list(
    State(state): State<Shared>,
    principal: Principal,
    query: Pairs,
) -> Result<Json<JobPage>, ApiError> {
    page(&state, &principal, query, false).await
}

/// Jobs whose server went away and that may not be begun again: their executions are `lost`.
#[utoipa::path(get, path = "/v1/queue/dead", tag = "operations",
    params(("tenant" = Option<String>, Query, description = "Only those of this tenant"),
        ("limit" = Option<u16>, Query, description = "At most so many, 1 to 1000; 100 by default", minimum = 1, maximum = 1000)),
    responses((status = 200, description = "Jobs", body = JobPage), Refusals))]
pub(crate) async fn dead(
    State(state): State<Shared>,
    principal: Principal,
    query: Pairs,
) -> Result<Json<JobPage>, ApiError> {
    page(&state, &principal, query, true).await
}

/// Has a dead job tried again, as if it had never been begun. Its execution waits again, under the same id.
#[utoipa::path(post, path = "/v1/queue/{id}/retry", tag = "operations",
    params(("id" = String, Path, description = "Id of the execution")),
    responses((status = 202, description = "It waits", body = JobEntry),
        (status = 409, description = "It is not dead, or its request is not on record (`conflict`)", body = ErrorBody), Refusals))]
pub(crate) async fn retry(
    State(state): State<Shared>,
    principal: Principal,
    NameParam(id): NameParam,
) -> Result<(StatusCode, Json<JobEntry>), ApiError> {
    let id = ExecutionId::parse(&id).ok_or_else(unknown_execution)?;
    let whose = if principal.is_operator() { None } else { Some(&principal.tenant) };
    state.jobs.find(&id, whose).await?.ok_or_else(unknown_execution)?;
    match state.jobs.revive(&id).await? {
        Some(job) => Ok((StatusCode::ACCEPTED, Json(job.into()))),
        None => Err(ApiError::conflict("no dead job of this id can be tried again; GET /v1/queue/dead lists them")),
    }
}
