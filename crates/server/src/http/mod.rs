//! Routes and what is around them.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, get, post};

use crate::ServerState;

mod accept;
mod artifacts;
pub(crate) mod audit;
mod auth;
pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod executions;
pub(crate) mod idempotency;
pub(crate) mod keys;
mod observe;
pub(crate) mod ops;
mod params;
pub(crate) mod queue;
pub(crate) mod session_files;
pub(crate) mod sessions;
pub(crate) mod socket;
mod stream;
pub(crate) mod submit;
pub(crate) mod tablemind;
pub(crate) mod tags;
pub(crate) mod templates;
pub(crate) mod tenants;
pub(crate) mod usage;

pub(crate) use artifacts::{__path_artifact, disposition};
use auth::Needs;
pub(crate) use auth::Principal;
pub(crate) use socket::wrong_ask;
pub(crate) use tablemind::exec_spec;

type Shared = Arc<ServerState>;

/// Every route with what a key must open for it; openapi.json covers each, and a test holds that.
fn table() -> Vec<(&'static str, Needs, MethodRouter<Shared>)> {
    vec![
        ("/v1/executions", Needs::WORK, get(executions::list).post(executions::create)),
        ("/v1/executions/{id}", Needs::WORK, get(executions::read).delete(executions::delete)),
        ("/v1/executions/{id}/events", Needs::WORK, get(executions::events)),
        ("/v1/executions/{id}/output", Needs::WORK, get(executions::output)),
        ("/v1/executions/{id}/stdin", Needs::WORK, post(executions::stdin)),
        ("/v1/executions/{id}/cancel", Needs::WORK, post(executions::cancel)),
        ("/v1/executions/{id}/artifacts/{*path}", Needs::WORK, get(artifacts::artifact)),
        ("/v1/sessions", Needs::WORK, get(sessions::list).post(sessions::create)),
        ("/v1/sessions/{id}", Needs::WORK, get(sessions::read).delete(sessions::delete)),
        ("/v1/sessions/{id}/executions", Needs::WORK, post(sessions::execute)),
        ("/v1/sessions/{id}/interrupt", Needs::WORK, post(sessions::interrupt)),
        ("/v1/sessions/{id}/reset", Needs::WORK, post(sessions::reset)),
        ("/v1/sessions/{id}/pause", Needs::WORK, post(sessions::pause)),
        ("/v1/sessions/{id}/resume", Needs::WORK, post(sessions::resume)),
        ("/v1/sessions/{id}/processes", Needs::WORK, get(sessions::processes)),
        ("/v1/sessions/{id}/extend", Needs::WORK, post(sessions::extend)),
        ("/v1/sessions/{id}/variables", Needs::WORK, get(sessions::variables)),
        ("/v1/sessions/{id}/ws", Needs::RUN, get(socket::open)),
        ("/v1/sessions/{id}/files", Needs::WORK, get(session_files::list)),
        (
            "/v1/sessions/{id}/files:upload",
            Needs::WORK,
            // Streamed onto the session's disk, whose size is the limit.
            post(session_files::upload).layer(DefaultBodyLimit::disable()),
        ),
        ("/v1/sessions/{id}/files:archive", Needs::WORK, post(session_files::archive)),
        (
            "/v1/sessions/{id}/files/{*path}",
            Needs::WORK,
            get(session_files::read).put(session_files::write).delete(session_files::remove),
        ),
        ("/v1/queue", Needs::ADMIN, get(queue::list)),
        ("/v1/queue/dead", Needs::ADMIN, get(queue::dead)),
        ("/v1/queue/{id}/retry", Needs::ADMIN, post(queue::retry)),
        ("/v1/pool", Needs::READ, get(ops::pool)),
        ("/v1/templates", Needs::WORK, get(templates::list).post(templates::create)),
        ("/v1/templates/schema", Needs::READ, get(templates::schema)),
        ("/v1/templates/{name}", Needs::WORK, get(templates::read).put(templates::replace).delete(templates::remove)),
        ("/v1/tenants", Needs::ADMIN, get(tenants::list).post(tenants::create)),
        ("/v1/tenants/{id}", Needs::ADMIN, get(tenants::read).put(tenants::update).delete(tenants::delete)),
        ("/v1/keys", Needs::ADMIN, get(keys::list).post(keys::create)),
        ("/v1/keys/{id}", Needs::ADMIN, get(keys::read).delete(keys::revoke)),
        ("/v1/keys/{id}/rotate", Needs::ADMIN, post(keys::rotate)),
        ("/v1/usage", Needs::READ, get(usage::read)),
        ("/v1/audit", Needs::ADMIN, get(audit::list)),
        ("/exec", Needs::WORK, post(tablemind::exec)),
        ("/api/v1/exec", Needs::WORK, post(tablemind::exec_v1)),
        ("/reset", Needs::WORK, post(tablemind::reset)),
        ("/api/v1/reset", Needs::WORK, post(tablemind::reset_v1)),
        ("/api/v1/pool/status", Needs::READ, get(tablemind::pool)),
        ("/health", Needs::Nothing, get(ops::health)),
        ("/ready", Needs::Nothing, get(ops::ready)),
        ("/metrics", Needs::Metrics, get(ops::metrics)),
        ("/openapi.json", Needs::Nothing, get(ops::openapi)),
    ]
}

/// Paths of all routes, as the router matches them.
#[must_use]
pub fn paths() -> Vec<&'static str> {
    table().into_iter().map(|(path, ..)| path).collect()
}

pub(crate) fn router(state: Shared) -> Router {
    routed(table(), state)
}

pub(crate) fn worker_router(state: Shared) -> Router {
    let routes = vec![
        ("/health", Needs::Nothing, get(ops::health)),
        ("/ready", Needs::Nothing, get(ops::ready)),
        ("/metrics", Needs::Metrics, get(ops::metrics)),
    ];
    routed(routes, state)
}

fn routed(table: Vec<(&'static str, Needs, MethodRouter<Shared>)>, state: Shared) -> Router {
    table
        .into_iter()
        .fold(Router::new(), |router, (path, _, methods)| router.route(path, methods))
        .fallback(async || error::ApiError::no_route())
        .layer(from_fn_with_state(Arc::clone(&state), auth::gate))
        .layer(from_fn(observe::observe))
        .with_state(state)
}
