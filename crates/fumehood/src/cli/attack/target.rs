//! The installation under attack: an engine and a server in this process, reached over its real interface.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use fumehood_server::store::{DatabaseConfig, Store};
use fumehood_server::{ServerState, router};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::node::Node;

/// No answer takes longer: what runs is ended by its own limits long before.
const ANSWERED_BY: Duration = Duration::from_secs(90);
/// No answer to an attack is larger.
const MOST: usize = 64 << 20;
/// For the preloaded interpreter.
const PRELOADED_BY: Duration = Duration::from_secs(90);

/// Variables that an interpreter reads when it starts, so that no fork of another will do.
const EXECUTED: (&str, &str) = ("PYTHONDONTWRITEBYTECODE", "1");

/// How long an attack runs that does not say otherwise. One that is given less is about running out of time.
const TIMEOUT_MS: u64 = 20_000;

/// How much longer than usual everything may take, which is for slow machines (`--patience`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    factor: u16,
    most_ms: u64,
}

impl Patience {
    /// So many times as long, and executions as long as `config` lets them run.
    pub(super) fn new(factor: u16, config: &Config) -> Self {
        Self { factor, most_ms: config.server().limits.max_timeout.as_millis() as u64 }
    }

    /// How long to wait for what is done within `usually`.
    pub(super) fn of(self, usually: Duration) -> Duration {
        usually * self.factor.into()
    }

    /// The time of an execution that asks for `asked`.
    pub(super) fn timeout_ms(self, asked: Option<&Value>) -> Value {
        let usually = asked.cloned().unwrap_or_else(|| TIMEOUT_MS.into());
        match usually.as_u64() {
            // What asks for more than it may have is refused as ever.
            Some(ms) if ms >= TIMEOUT_MS => (ms * u64::from(self.factor)).min(self.most_ms).max(ms).into(),
            _ => usually,
        }
    }
}

/// How the interpreter of a program comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    /// A fork of the preloaded one.
    Forked,
    /// Started by exec.
    Executed,
}

/// A running server.
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) patience: Patience,
    key: String,
    stop: CancellationToken,
    engine: fumehood_engine::Engine,
    served: tokio::task::JoinHandle<()>,
    /// Executions that were to be forks.
    asked_to_fork: AtomicU64,
    /// Where its database is.
    _scratch: tempfile::TempDir,
}

/// An answer of the server.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// An answer from which on its values are passed over.
const LARGE: usize = 8 << 20;

/// An execution without its values.
#[derive(serde::Deserialize)]
struct Rest {
    #[serde(default, rename = "result")]
    _result: IgnoredAny,
    #[serde(default, rename = "outputs")]
    _outputs: IgnoredAny,
    #[serde(default, rename = "variables")]
    _variables: IgnoredAny,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Answer {
    /// Its body as JSON; null when it is none. Of a large one without what an attack can make large: this process is the service too, whose memory is
    /// looked at, and as values it would be many times as much.
    pub(super) fn json(&self) -> Value {
        if self.body.len() < LARGE {
            return serde_json::from_slice(&self.body).unwrap_or_default();
        }
        serde_json::from_slice::<Rest>(&self.body).map(|answer| Value::Object(answer.rest)).unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Target {
    /// Starts the server. Must be called on a runtime.
    ///
    /// # Errors
    /// When it does not come up.
    pub(super) async fn start(
        config: &Config,
        node: Node,
        key: &str,
        metrics: PrometheusHandle,
        patience: Patience,
    ) -> anyhow::Result<Self> {
        let engine = node.engine()?;
        let mut server = config.server();
        server.api_keys = vec![fumehood_server::ApiKey::parse(key)?];
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let store = Store::open(&DatabaseConfig::sqlite(&scratch.path().join("fumehood.db"))).await?;
        let router = router(ServerState::new(server, engine.clone(), metrics, store));
        let served = tokio::spawn(fumehood_server::serve(listener, router, stop.clone()));
        Ok(Self {
            address,
            patience,
            key: key.to_owned(),
            stop,
            engine,
            served,
            asked_to_fork: AtomicU64::new(0),
            _scratch: scratch,
        })
    }

    /// Ends it with all that runs in it.
    pub(super) async fn end(self) {
        self.engine.shutdown(Duration::ZERO).await;
        self.stop.cancel();
        // Connections that take no answer are closed with the runtime.
        tokio::time::timeout(Duration::from_secs(5), self.served).await.ok();
    }

    /// A request with the key.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub(super) async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let key = format!("Bearer {}", self.key);
        let mut headers = vec![(AUTHORIZATION.as_str(), key.as_str())];
        let body = body.map(|body| Bytes::from(body.to_string()));
        if body.is_some() {
            headers.push((CONTENT_TYPE.as_str(), "application/json"));
        }
        self.send(method, path, &headers, body.unwrap_or_default()).await
    }

    /// A request with exactly these headers, and `Host` if it is not among them.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> anyhow::Result<Answer> {
        let exchange = async {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
            let connection = tokio::spawn(connection);
            let mut request = Request::builder().method(Method::from_bytes(method.as_bytes())?).uri(path);
            if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
                request = request.header(HOST, self.address.to_string());
            }
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = sender.send_request(request.body(Full::new(body))?).await?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MOST).collect().await.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
            connection.abort();
            anyhow::Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
        };
        tokio::time::timeout(self.patience.of(ANSWERED_BY), exchange)
            .await
            .context("no answer in time")?
            .with_context(|| format!("{method} {path}"))
    }

    /// The value of the `Authorization` header that opens every route.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Runs code in a sandbox of its own.
    ///
    /// # Errors
    /// When there is no execution.
    pub(super) async fn execute(&self, mut body: Value, way: Way) -> anyhow::Result<Value> {
        make_way(&mut body, way);
        if way == Way::Forked {
            self.asked_to_fork.fetch_add(1, Ordering::Relaxed);
        }
        execution(&self.call("POST", "/v1/executions", Some(&body)).await?)
    }

    /// Opens a session; its path.
    ///
    /// # Errors
    /// When it is not opened.
    pub(super) async fn session(&self, mut body: Value, way: Way) -> anyhow::Result<String> {
        make_way(&mut body, way);
        let answer = self.call("POST", "/v1/sessions", Some(&body)).await?;
        let id = answer.json()["id"].as_str().map(str::to_owned);
        Ok(format!("/v1/sessions/{}", id.with_context(|| format!("no session: {}", answer.text()))?))
    }

    /// Runs code in a session.
    ///
    /// # Errors
    /// When there is no execution.
    pub(super) async fn execute_in(&self, session: &str, body: &Value) -> anyhow::Result<Value> {
        execution(&self.call("POST", &format!("{session}/executions"), Some(body)).await?)
    }

    /// Executions that were to be forks and were none, since the first was.
    ///
    /// # Errors
    /// When the server does not tell.
    pub(super) async fn not_forked(&self) -> anyhow::Result<u64> {
        Ok(self.asked_to_fork.load(Ordering::Relaxed).saturating_sub(self.forks().await?))
    }

    async fn forks(&self) -> anyhow::Result<u64> {
        let text = self.call("GET", "/metrics", None).await?.text();
        let line =
            text.lines().find_map(|line| line.strip_prefix("fumehood_sandbox_start_seconds_count{how=\"fork\"}"));
        Ok(line.and_then(|count| count.trim().parse().ok()).unwrap_or(0))
    }

    /// Waits until programs are forked.
    ///
    /// # Errors
    /// When the interpreter is not preloaded in time.
    pub(super) async fn forking(&self) -> anyhow::Result<()> {
        let begun = tokio::time::Instant::now();
        loop {
            self.execute(json!({"code": "1"}), Way::Forked).await?;
            if self.forks().await? > 0 {
                self.asked_to_fork.store(1, Ordering::Relaxed);
                return Ok(());
            }
            ensure!(begun.elapsed() < self.patience.of(PRELOADED_BY), "there is no preloaded interpreter");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Has a request take the way.
fn make_way(body: &mut Value, way: Way) {
    if way == Way::Executed {
        body["env"][EXECUTED.0] = EXECUTED.1.into();
    }
}

fn execution(answer: &Answer) -> anyhow::Result<Value> {
    let execution = answer.json();
    ensure!(execution["id"].is_string(), "answered {}: {}", answer.status, answer.text());
    Ok(execution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_slow_machine_only_what_is_about_running_out_of_time_is_given_no_more() {
        let patience = Patience { factor: 4, most_ms: 100_000 };
        assert_eq!(patience.of(Duration::from_secs(2)), Duration::from_secs(8));
        assert_eq!(patience.timeout_ms(None), json!(80_000));
        for (asked, given) in [(700, 700), (20_000, 80_000), (60_000, 100_000), (200_000, 200_000)] {
            assert_eq!(patience.timeout_ms(Some(&json!(asked))), json!(given));
        }
        // The interface has to refuse it, not this command.
        assert_eq!(patience.timeout_ms(Some(&json!("soon"))), json!("soon"));
    }
}
