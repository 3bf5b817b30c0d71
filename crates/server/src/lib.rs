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
use fumehood_engine::ids::TenantId;
use metrics_exporter_prometheus::PrometheusHandle;

mod config;
#[doc(hidden)]
pub mod fuzzing;
mod http;
pub mod jobs;
pub mod metrics;
mod openapi;
pub mod queue;
mod serve;
pub mod store;
mod tagged;
mod templates;
mod tenancy;
pub mod webhook;

pub use config::{ApiKey, ApiKeyError, ListenError, ServerConfig};
pub use http::paths;
pub use openapi::openapi_json;
pub use serve::serve;
pub use templates::{Applied, TemplateError};
pub use webhook::{WebhookConfig, WebhookSecret};

use jobs::Jobs;
pub use jobs::JobsConfig;
use queue::{MemoryQueue, Queue};
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
    jobs: Arc<Jobs>,
    tenancy: Tenancy,
    templates: Arc<Templates>,
    started: Instant,
}

impl ServerState {
    /// State of a server in front of `engine`, which keeps things in `store`, with a queue in memory; `metrics` comes from [`metrics::install`]. Must
    /// be called on a tokio runtime. [`Self::close`] ends it.
    #[must_use]
    pub fn new(config: ServerConfig, engine: Engine, metrics: PrometheusHandle, store: Store) -> Arc<Self> {
        Self::with_queue(config, engine, metrics, store, Arc::new(MemoryQueue::default()))
    }

    /// The same with another queue.
    #[must_use]
    pub fn with_queue(
        config: ServerConfig,
        engine: Engine,
        metrics: PrometheusHandle,
        store: Store,
        queue: Arc<dyn Queue>,
    ) -> Arc<Self> {
        let (limits, jobs) = (config.limits.clone(), config.jobs.clone());
        let templates = Arc::new(Templates::new(store.templates(), engine.clone(), limits.clone()));
        // Before anything runs: what begins is in the books.
        let tenancy = Tenancy::start(&store, &engine, config.audit_keep_days);
        let means = jobs::Means {
            engine: engine.clone(),
            store: store.clone(),
            queue,
            templates: Arc::clone(&templates),
            limits,
            ledger: Arc::clone(&tenancy.ledger),
        };
        let jobs = Jobs::new(means, jobs, config.log_code);
        jobs.start();
        tokio::spawn(webhook::deliver(store.clone(), Arc::clone(&jobs), config.webhooks.clone()));
        Arc::new(Self { config, engine, metrics, store, jobs, tenancy, templates, started: Instant::now() })
    }

    /// Takes no more jobs and gives back those that have not begun. To be called before the engine is shut down.
    pub fn stop_jobs(&self) {
        self.jobs.stop();
    }

    /// Resolves when everything that has ended is on record. To be called after the engine was shut down.
    pub async fn drained(&self) {
        self.jobs.drained().await;
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
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

/// The routes of a process that only takes jobs: those that need no key.
pub fn worker_router(state: Arc<ServerState>) -> Router {
    http::worker_router(state)
}
