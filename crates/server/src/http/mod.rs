//! Routes and what is around them.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, get, post};

use crate::ServerState;

mod accept;
mod artifacts;
mod auth;
pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod executions;
pub(crate) mod idempotency;
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

pub(crate) use artifacts::{__path_artifact, disposition};
pub(crate) use socket::wrong_ask;
pub(crate) use tablemind::exec_spec;

type Shared = Arc<ServerState>;

/// Every route; openapi.json covers each, and a test holds that.
fn table() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/v1/executions", get(executions::list).post(executions::create)),
        ("/v1/executions/{id}", get(executions::read).delete(executions::delete)),
        ("/v1/executions/{id}/events", get(executions::events)),
        ("/v1/executions/{id}/output", get(executions::output)),
        ("/v1/executions/{id}/stdin", post(executions::stdin)),
        ("/v1/executions/{id}/cancel", post(executions::cancel)),
        ("/v1/executions/{id}/artifacts/{*path}", get(artifacts::artifact)),
        ("/v1/sessions", get(sessions::list).post(sessions::create)),
        ("/v1/sessions/{id}", get(sessions::read).delete(sessions::delete)),
        ("/v1/sessions/{id}/executions", post(sessions::execute)),
        ("/v1/sessions/{id}/interrupt", post(sessions::interrupt)),
        ("/v1/sessions/{id}/reset", post(sessions::reset)),
        ("/v1/sessions/{id}/pause", post(sessions::pause)),
        ("/v1/sessions/{id}/resume", post(sessions::resume)),
        ("/v1/sessions/{id}/processes", get(sessions::processes)),
        ("/v1/sessions/{id}/extend", post(sessions::extend)),
        ("/v1/sessions/{id}/variables", get(sessions::variables)),
        ("/v1/sessions/{id}/ws", get(socket::open)),
        ("/v1/sessions/{id}/files", get(session_files::list)),
        (
            "/v1/sessions/{id}/files:upload",
            // Streamed onto the session's disk, whose size is the limit.
            post(session_files::upload).layer(DefaultBodyLimit::disable()),
        ),
        ("/v1/sessions/{id}/files:archive", post(session_files::archive)),
        (
            "/v1/sessions/{id}/files/{*path}",
            get(session_files::read).put(session_files::write).delete(session_files::remove),
        ),
        ("/v1/queue", get(queue::list)),
        ("/v1/queue/dead", get(queue::dead)),
        ("/v1/queue/{id}/retry", post(queue::retry)),
        ("/v1/templates", get(templates::list).post(templates::create)),
        ("/v1/templates/schema", get(templates::schema)),
        ("/v1/templates/{name}", get(templates::read).put(templates::replace).delete(templates::remove)),
        ("/v1/pool", get(ops::pool)),
        ("/exec", post(tablemind::exec)),
        ("/api/v1/exec", post(tablemind::exec_v1)),
        ("/reset", post(tablemind::reset)),
        ("/api/v1/reset", post(tablemind::reset_v1)),
        ("/api/v1/pool/status", get(tablemind::pool)),
        ("/health", get(ops::health)),
        ("/ready", get(ops::ready)),
        ("/metrics", get(ops::metrics)),
        ("/openapi.json", get(ops::openapi)),
    ]
}

/// Paths of all routes, as the router matches them.
#[must_use]
pub fn paths() -> Vec<&'static str> {
    table().into_iter().map(|(path, _)| path).collect()
}

pub(crate) fn router(state: Shared) -> Router {
    routed(table(), state)
}

pub(crate) fn worker_router(state: Shared) -> Router {
    let routes = vec![("/health", get(ops::health)), ("/ready", get(ops::ready)), ("/metrics", get(ops::metrics))];
    routed(routes, state)
}

fn routed(table: Vec<(&'static str, MethodRouter<Shared>)>, state: Shared) -> Router {
    table
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .fallback(async || error::ApiError::no_route())
        .layer(from_fn_with_state(Arc::clone(&state), auth::gate))
        .layer(from_fn(observe::observe))
        .with_state(state)
}
