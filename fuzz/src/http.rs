use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use fumehood_engine::backend::{Backend, BackendReport, Sandbox, SandboxSpec, StartError};
use fumehood_engine::clock::SystemClock;
use fumehood_engine::ids::{ExecutionId, IdSource, SessionId};
use fumehood_engine::spec::{ExecutionSpec, FieldError, IsolationLevel};
use fumehood_engine::{Engine, EngineConfig};
use fumehood_server::store::{DatabaseConfig, Store};
use fumehood_server::{ServerConfig, ServerState, metrics, paths, router};
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::Value;
use tower::ServiceExt;

use crate::Source;

/// Nothing takes long where no sandbox is started.
const PATIENCE: Duration = Duration::from_secs(20);
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
const HEADERS: [&str; 10] = [
    "accept",
    "content-type",
    "idempotency-key",
    "host",
    "origin",
    "range",
    "if-none-match",
    "expect",
    "authorization",
    "x-request-id",
];

/// One recorder for each process is all that there can be.
static METRICS: LazyLock<PrometheusHandle> = LazyLock::new(|| metrics::install().expect("the only recorder"));

/// Requests to the whole server, on a node that can start no sandbox: each is answered, refusals have their form, and none is an error of ours.
pub fn http(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    runtime.block_on(async {
        let config = EngineConfig::new(folder.path());
        let engine = Engine::new(config, Arc::new(Barren), Arc::new(SystemClock), Arc::new(Counted::default()));
        let server = ServerConfig { max_body_bytes: 64 << 10, ..ServerConfig::default() };
        let store = Store::open(&DatabaseConfig::sqlite(&folder.path().join("fumehood.db"))).await;
        let store = store.expect("a database");
        let router = router(ServerState::new(server, engine.expect("an engine"), METRICS.clone(), store));
        let mut source = Source::new(data);
        for _ in 0..4 {
            if source.is_empty() {
                break;
            }
            let Some((request, said)) = request(&mut source) else { continue };
            let exchange = async {
                let answer = router.clone().oneshot(request).await.expect("routers do not fail");
                let (parts, body) = answer.into_parts();
                (parts, body.collect().await.map(http_body_util::Collected::to_bytes))
            };
            let (parts, body) =
                tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| panic!("no answer: {said}"));
            let body = body.expect("an answer is whole");
            let own = parts.headers.get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
            assert!(!own.is_empty(), "{said}");
            assert_ne!(parts.status, StatusCode::INTERNAL_SERVER_ERROR, "{said}: {body:?}");
            if parts.status.is_client_error() || parts.status.is_server_error() {
                let answer: Value =
                    serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{said}: {error}: {body:?}"));
                let error = &answer["error"];
                assert!(error["code"].is_string() && error["message"].is_string(), "{said}: {answer}");
                assert_eq!(error["request_id"], own, "{said}");
            }
            assert!(parts.headers.get("access-control-allow-origin").is_none(), "{said}");
        }
    });
    // What waits for a request's rest, or for a session's end, is not waited for.
    runtime.shutdown_background();
}

fn request(source: &mut Source<'_>) -> Option<(Request<Body>, String)> {
    let method = source.choose(&METHODS);
    let routes = paths();
    let route = routes[usize::from(source.byte()) % routes.len()];
    let path = match source.byte() % 4 {
        0 => source.text(),
        1 => route.replace("{id}", "exe_1").replace("{*path}", "a/b"),
        2 => route.replace("{id}", "ses_1").replace("{*path}", &source.text()),
        _ => format!("{}?{}", route.replace("{id}", "exe_1").replace("{*path}", "a"), source.text()),
    };
    let mut builder = Request::builder().method(method).uri(&path);
    let bits = source.byte();
    if bits & 1 == 0 {
        builder = builder.header("content-type", "application/json");
    } else if bits & 2 == 0 {
        builder = builder.header("content-type", "multipart/form-data; boundary=x");
    }
    for _ in 0..bits >> 2 & 3 {
        builder = builder.header(source.choose(&HEADERS), source.part());
    }
    let body = source.part().to_vec();
    let said = format!("{method} {path:?} {}", String::from_utf8_lossy(&body));
    Some((builder.body(Body::from(body)).ok()?, said))
}

/// Starts nothing.
struct Barren;

impl Backend for Barren {
    fn report(&self) -> BackendReport {
        BackendReport { level: IsolationLevel::Process, features: BTreeMap::new() }
    }

    fn accepts(&self, execution: &ExecutionSpec) -> Result<(), FieldError> {
        let known = matches!(execution.isolation, IsolationLevel::Auto | IsolationLevel::Process);
        known.then_some(()).ok_or_else(|| FieldError::new("isolation", "is not available here"))
    }

    fn start<'a>(&'a self, _: SandboxSpec<'a>) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        let refused = StartError::Step { step: "start".to_owned(), cause: "there are none here".to_owned() };
        Box::pin(std::future::ready(Err(refused)))
    }
}

/// Ids that an input can name.
#[derive(Default)]
struct Counted(AtomicU64);

impl IdSource for Counted {
    fn execution(&self) -> ExecutionId {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        ExecutionId::parse(&format!("exe_{number}")).expect("an id")
    }

    fn session(&self) -> SessionId {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        SessionId::parse(&format!("ses_{number}")).expect("an id")
    }
}
