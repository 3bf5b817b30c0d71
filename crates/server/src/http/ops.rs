//! Operations: health, readiness, metrics, the interface's description.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use fumehood_engine::pool::PoolStatus;
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

use super::Shared;
use super::error::{ApiError, ErrorBody};
use crate::metrics as gauges;
use crate::openapi::{Refusals, openapi_json};

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `healthy`, or `draining` during shutdown.
    status: &'static str,
    /// Version of the server.
    version: &'static str,
    /// For example `2d 3h 15m`.
    uptime: String,
    /// Places for executions.
    pool: Pool,
    /// Configured name of this server.
    worker_id: String,
    /// `busy` while anything runs.
    kernel_status: &'static str,
    /// Resident memory of the server, for example `48MB`.
    memory_usage: String,
}

/// Places for executions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Pool {
    /// All.
    total: usize,
    /// Free.
    idle: usize,
    /// Taken.
    busy: usize,
}

/// How the server is; answers as long as it lives.
#[utoipa::path(get, path = "/health", tag = "operations", security(()),
    responses((status = 200, description = "It lives", body = Health), Refusals))]
pub(crate) async fn health(State(state): State<Shared>) -> Json<Health> {
    let load = state.engine.load();
    Json(Health {
        status: if load.draining { "draining" } else { "healthy" },
        version: env!("CARGO_PKG_VERSION"),
        uptime: uptime(state.started.elapsed()),
        pool: Pool { total: load.capacity, idle: load.capacity.saturating_sub(load.running), busy: load.running },
        worker_id: state.config.worker_id.clone(),
        kernel_status: if load.running > 0 { "busy" } else { "idle" },
        memory_usage: format!("{}MB", gauges::resident_bytes().div_ceil(1 << 20)),
    })
}

/// Whether executions are accepted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ready {
    /// Always `ready`.
    status: &'static str,
    /// Isolation level of this node's sandboxes.
    isolation: String,
}

/// Body of `GET /v1/pool`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolReport {
    /// Executions that have a place.
    running: usize,
    /// Executions that wait for a place.
    queued: usize,
    /// Places.
    capacity: usize,
    /// Sandboxes that wait ready, with the interpreter loaded.
    ready: usize,
    /// As many as there should be at the present rate of executions.
    target: usize,
    /// Executions that run of the kind that these are for, whether they got one or not.
    busy: usize,
    /// Executions that got a ready sandbox.
    claims: u64,
    /// Executions that could have had one but found none, and started their own.
    misses: u64,
    /// Those of templates that ask for ready sandboxes.
    templates: Vec<TemplatePool>,
}

/// Sandboxes that wait ready for one template.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplatePool {
    /// Its name and version.
    template: String,
    /// Sandboxes that wait ready.
    ready: usize,
    /// As many as there should be.
    target: usize,
    /// Executions that run of the kind that these are for.
    busy: usize,
    /// Executions that got a ready sandbox.
    claims: u64,
    /// Executions that could have had one but found none.
    misses: u64,
}

impl From<(String, PoolStatus)> for TemplatePool {
    fn from((template, PoolStatus { ready, target, busy, claims, misses }): (String, PoolStatus)) -> Self {
        Self { template, ready, target, busy, claims, misses }
    }
}

/// Places and sandboxes that wait ready.
#[utoipa::path(get, path = "/v1/pool", tag = "operations",
    responses((status = 200, description = "Places and ready sandboxes", body = PoolReport), Refusals))]
pub(crate) async fn pool(State(state): State<Shared>) -> Json<PoolReport> {
    let (load, pool) = (state.engine.load(), state.engine.pool());
    Json(PoolReport {
        running: load.running,
        queued: load.queued,
        capacity: load.capacity,
        ready: pool.ready,
        target: pool.target,
        busy: pool.busy,
        claims: pool.claims,
        misses: pool.misses,
        templates: state.engine.pools_of_templates().into_iter().map(TemplatePool::from).collect(),
    })
}

/// Whether executions are accepted: 503 during shutdown and while no sandbox can be started.
#[utoipa::path(get, path = "/ready", tag = "operations", security(()),
    responses((status = 200, description = "Executions are accepted", body = Ready),
        (status = 503, description = "Shutting down, or no sandbox can be started right now (`unavailable`)", body = ErrorBody), Refusals))]
pub(crate) async fn ready(State(state): State<Shared>) -> Result<Json<Ready>, ApiError> {
    if state.engine.load().draining {
        return Err(ApiError::unavailable("the server is shutting down"));
    }
    if let Some(why) = state.engine.unavailable() {
        return Err(ApiError::unavailable(why));
    }
    Ok(Json(Ready { status: "ready", isolation: state.engine.isolation().level.to_string() }))
}

/// Metrics in Prometheus' text format. Needs a key unless `server.metrics_without_key`.
#[utoipa::path(get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "Metrics", body = String, content_type = "text/plain"), Refusals))]
pub(crate) async fn metrics(State(state): State<Shared>) -> Response {
    gauges::observe(state.engine.load());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], state.metrics.render()).into_response()
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "operations", security(()),
    responses((status = 200, description = "OpenAPI", body = Object), Refusals))]
pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi_json()).into_response()
}

/// `2d 3h 15m`, `1h 30m`, `12m`, and seconds only in the first minute.
fn uptime(duration: Duration) -> String {
    let minutes = duration.as_secs() / 60;
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, 0, 0) => format!("{}s", duration.as_secs()),
        (0, 0, m) => format!("{m}m"),
        (0, h, m) => format!("{h}h {m}m"),
        (d, h, m) => format!("{d}d {h}h {m}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_reads_as_in_the_document() {
        for (seconds, text) in [(5, "5s"), (720, "12m"), (5400, "1h 30m"), (184_500, "2d 3h 15m")] {
            assert_eq!(uptime(Duration::from_secs(seconds)), text);
        }
    }
}
