//! A server without sockets: the router over an engine on scripted sandboxes.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use fumehood_engine::clock::SystemClock;
use fumehood_engine::ids::{ExecutionId, UlidSource};
use fumehood_engine::{Engine, EngineConfig};
use fumehood_server::store::{DatabaseConfig, Store};
use fumehood_server::{ServerConfig, ServerState, metrics, router};
use http_body_util::BodyExt;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::fake::Scripted;

/// One recorder for each process is all that `metrics` allows.
fn recorder() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| metrics::install().unwrap()).clone()
}

/// A database of its own. Opened on a thread beside the test's, which may be the only one of its runtime. In a file: one in memory would be gone with a
/// connection that its runtime takes along.
fn store(folder: &Path) -> Store {
    let config = DatabaseConfig::sqlite(&folder.join("fumehood.db"));
    let open = move || tokio::runtime::Runtime::new().unwrap().block_on(Store::open(&config));
    std::thread::spawn(open).join().unwrap().unwrap()
}

pub(crate) struct Server {
    pub(crate) router: Router,
    pub(crate) engine: Engine,
    pub(crate) state: Arc<ServerState>,
    pub(crate) store: Store,
    backend: Arc<Scripted>,
    _data: TempDir,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Status, code and field of a refusal; every refusal has the same shape.
    pub(crate) fn refusal(&self) -> (u16, String, String) {
        let error = &self.json()["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(self.header("content-type"), "application/json");
        assert_eq!(text("request_id"), self.header("x-request-id"));
        assert!(!text("message").is_empty());
        (self.status.as_u16(), text("code"), text("field"))
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(|_, _| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServerConfig, &mut EngineConfig)) -> Self {
        let data = tempfile::tempdir().unwrap();
        let store = store(data.path());
        Self::at(data, store, change)
    }

    /// One more server on a database.
    pub(crate) fn on(store: Store, change: impl FnOnce(&mut ServerConfig, &mut EngineConfig)) -> Self {
        Self::at(tempfile::tempdir().unwrap(), store, change)
    }

    fn at(data: TempDir, store: Store, change: impl FnOnce(&mut ServerConfig, &mut EngineConfig)) -> Self {
        let mut config = ServerConfig::default();
        let mut engine_config = EngineConfig::new(data.path());
        change(&mut config, &mut engine_config);
        let backend = Arc::new(Scripted::default());
        let engine = Engine::new(engine_config, backend.clone(), Arc::new(SystemClock), Arc::new(UlidSource)).unwrap();
        let state = ServerState::new(config, engine.clone(), recorder(), store.clone());
        Self { router: router(Arc::clone(&state)), engine, state, store, backend, _data: data }
    }

    pub(crate) fn sandboxes_started(&self) -> usize {
        self.backend.started.load(Ordering::SeqCst)
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn call(&self, method: &str, path: &str) -> Answer {
        self.send(request(method, path, &[], Body::empty())).await
    }

    pub(crate) async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.send(post(path, headers, body)).await
    }

    /// Runs a script and returns the execution.
    pub(crate) async fn run(&self, script: Value) -> Value {
        let answer = self.post("/v1/executions", &[], &code(&script)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        answer.json()
    }

    /// Starts a script that goes on until cancelled and returns its id.
    pub(crate) async fn hang(&self) -> String {
        let answer = self.post("/v1/executions", &[], &json!({"code": r#"["hang"]"#, "mode": "async"})).await;
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        let execution = ExecutionId::parse(&id).unwrap();
        wait_for(async || self.engine.get(&execution)).await;
        id
    }
}

pub(crate) fn code(script: &Value) -> Value {
    json!({"code": script.to_string()})
}

pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let builder = Request::builder().method(method).uri(path);
    headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(body).unwrap()
}

pub(crate) fn post(path: &str, headers: &[(&str, &str)], body: &Value) -> Request<Body> {
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    request("POST", path, &all, Body::from(body.to_string()))
}

/// Waits for something to be there, ten seconds at most.
pub(crate) async fn wait_for<T>(condition: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
