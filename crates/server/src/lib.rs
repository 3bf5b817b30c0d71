//! The HTTP side of Fumehood: executions in three answer forms, the TableMind surface, operations.
//!
//! ```text
//! request -> observe (id, log, metrics, error bodies) -> gate (keys, or loopback names) -> handler -> Engine
//! ```
//!
//! A handler returns a response or an [`ApiError`](http::error::ApiError); the outermost layer writes error bodies, so
//! that each of them carries the request's id. Nothing here owns an execution: a client that goes away leaves it running.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use fumehood_engine::Engine;
use fumehood_engine::ids::{ExecutionId, SessionId, TenantId};
use metrics_exporter_prometheus::PrometheusHandle;
use parking_lot::Mutex;

mod config;
#[doc(hidden)]
pub mod fuzzing;
mod http;
pub mod metrics;
mod openapi;
pub mod queue;
mod serve;
pub mod store;
mod tagged;
mod templates;
mod tenancy;

pub use config::{ApiKey, ApiKeyError, ListenError, ServerConfig};
pub use http::paths;
pub use openapi::openapi_json;
pub use serve::serve;
pub use templates::{Applied, TemplateError};

use http::idempotency::Replays;
use store::Store;
use templates::Templates;
use tenancy::Tenancy;

/// Sessions that end with the server get so long to be gone.
const SESSIONS_PATIENCE: Duration = Duration::from_secs(5);

/// What every handler sees.
pub struct ServerState {
    config: ServerConfig,
    engine: Engine,
    metrics: PrometheusHandle,
    store: Store,
    tenancy: Tenancy,
    templates: Templates,
    replays: Mutex<Replays<ExecutionId>>,
    session_replays: Mutex<Replays<SessionId>>,
    /// Name and version.
    template_replays: Mutex<Replays<String>>,
    started: Instant,
}

impl ServerState {
    /// State of a server in front of `engine`, which keeps things in `store`; `metrics` comes from [`metrics::install`]. Must be called on a tokio
    /// runtime. [`Self::close`] ends it.
    #[must_use]
    pub fn new(config: ServerConfig, engine: Engine, metrics: PrometheusHandle, store: Store) -> Arc<Self> {
        let tenancy = Tenancy::start(&store, &engine, config.audit_keep_days);
        let templates = Templates::new(store.templates(), engine.clone(), config.limits.clone());
        Arc::new(Self {
            config,
            tenancy,
            engine,
            metrics,
            store,
            templates,
            replays: Mutex::default(),
            session_replays: Mutex::default(),
            template_replays: Mutex::default(),
            started: Instant::now(),
        })
    }
}

impl ServerState {
    /// Writes what waits to be written: the audit log, counters. Called when the engine is shut down and the last answers are given.
    pub async fn close(&self) {
        // Their ends are part of it.
        let sessions = self.engine.sessions();
        let closing = futures::future::join_all(sessions.iter().map(|session| session.ended()));
        if tokio::time::timeout(SESSIONS_PATIENCE, closing).await.is_err() {
            tracing::warn!("sessions that do not end are left to their keeper");
        }
        self.tenancy.close().await;
    }

    /// Where things are kept.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Brings a template of the default tenant to what `spec` says: a first or another version, or none when it says that already.
    ///
    /// # Errors
    /// The field that is wrong, or why it cannot be kept.
    pub async fn apply_template(
        &self,
        spec: fumehood_engine::template::TemplateSpec,
        by: &str,
    ) -> Result<Applied, TemplateError> {
        self.templates.apply(&TenantId::default(), spec, by).await
    }
}

/// All routes, with everything around them.
pub fn router(state: Arc<ServerState>) -> Router {
    http::router(state)
}
