//! A client that costs little, since it shares the machine with the server: one kept connection, no pool, no redirects.

use std::borrow::Cow;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest};

use super::load::Caller;
use super::programs::{FILE, Job};

/// Runs code.
pub(super) const EXECUTIONS: &str = "/v1/executions";
/// The barest route: it answers a constant few words after the same layers as every other.
pub(super) const ECHO: &str = "/ready";

/// Where a server is and what it asks for.
#[derive(Debug, Clone)]
pub(super) struct Address {
    host: String,
    authorization: Option<HeaderValue>,
}

impl Address {
    /// # Errors
    /// When the URL is not `http://HOST:PORT`.
    pub(super) fn new(url: &str, key: Option<&str>) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
        let host = uri.authority().map(|authority| authority.as_str().to_owned());
        let (Some("http"), Some(host)) = (uri.scheme_str(), host) else {
            bail!("{url}: must be http://HOST:PORT");
        };
        let host = if uri.port().is_some() { host } else { format!("{host}:80") };
        let authorization = key.map(|key| HeaderValue::try_from(format!("Bearer {key}"))).transpose()?;
        Ok(Self { host, authorization })
    }

    /// The same server, with another key.
    ///
    /// # Errors
    /// When the key cannot be one.
    pub(super) fn with_key(&self, key: &str) -> anyhow::Result<Self> {
        let authorization = Some(HeaderValue::try_from(format!("Bearer {key}"))?);
        Ok(Self { authorization, ..self.clone() })
    }

    /// A request for a WebSocket, and a connection to send it over.
    ///
    /// # Errors
    /// When nobody answers there.
    pub(super) async fn websocket(
        &self,
        path: &str,
    ) -> anyhow::Result<(tungstenite::handshake::client::Request, TcpStream)> {
        let stream = TcpStream::connect(&self.host).await.with_context(|| format!("cannot reach {}", self.host))?;
        stream.set_nodelay(true)?;
        let mut request = format!("ws://{}{path}", self.host).into_client_request()?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        Ok((request, stream))
    }

    /// # Errors
    /// When nobody answers there.
    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(&self.host).await.with_context(|| format!("cannot reach {}", self.host))?;
        // Without it each request may wait 40 ms for an acknowledgement.
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // An error shows at the next request.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Connection { address: self.clone(), sender })
    }
}

/// One kept connection.
pub(super) struct Connection {
    address: Address,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Sends a request; the answer's body is still to come.
    ///
    /// # Errors
    /// When the connection breaks.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        if self.sender.is_closed() {
            *self = self.address.connect().await?;
        }
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.address.host)
            .header(ACCEPT, HeaderValue::from_static(accept))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.address.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request.body(Full::new(body))?).await?)
    }

    async fn whole(&mut self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let answer = self.send(method, path, "application/json", body).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!("{path} answered {status}: {}", brief(&body));
        }
        Ok(body)
    }

    /// # Errors
    /// When the answer is no success.
    pub(super) async fn get(&mut self, path: &str) -> anyhow::Result<Bytes> {
        self.whole(Method::GET, path, Bytes::new()).await
    }

    /// # Errors
    /// When the answer is no success.
    pub(super) async fn post(&mut self, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        self.whole(Method::POST, path, body).await
    }

    /// # Errors
    /// When the server does not tell.
    pub(super) async fn pool(&mut self) -> anyhow::Result<PoolState> {
        Ok(serde_json::from_slice(&self.get("/v1/pool").await?)?)
    }
}

/// What `GET /v1/pool` tells, as far as it is of use here.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct PoolState {
    pub(super) running: u64,
    pub(super) queued: u64,
    pub(super) ready: u64,
    pub(super) target: u64,
    pub(super) claims: u64,
    pub(super) misses: u64,
}

/// What an execution's answer must say.
#[derive(Deserialize)]
struct Answer<'a> {
    status: &'a str,
    #[serde(borrow)]
    stdout: Cow<'a, str>,
}

impl Caller for Connection {
    fn prepare(&self, job: &Job) -> Bytes {
        let body = match &job.file {
            Some(content) => json!({"code": job.code, "files": [{"path": FILE, "content": &**content}]}),
            None => json!({"code": job.code}),
        };
        body.to_string().into()
    }

    async fn call(&mut self, request: Bytes) -> anyhow::Result<Bytes> {
        self.post(EXECUTIONS, request).await
    }

    fn output<'a>(&self, answer: &'a Bytes) -> Result<Cow<'a, str>, String> {
        match serde_json::from_slice::<Answer<'_>>(answer) {
            Ok(Answer { status: "completed", stdout }) => Ok(stdout),
            _ => Err(format!("an execution did not end well: {}", brief(answer))),
        }
    }
}

/// Asks for [`ECHO`] whatever the job.
pub(super) struct Echo(pub(super) Connection);

impl Caller for Echo {
    fn prepare(&self, _: &Job) -> Bytes {
        Bytes::new()
    }

    async fn call(&mut self, _: Bytes) -> anyhow::Result<Bytes> {
        self.0.get(ECHO).await
    }

    fn output<'a>(&self, answer: &'a Bytes) -> Result<Cow<'a, str>, String> {
        Ok(String::from_utf8_lossy(answer))
    }

    fn check(&self, _: &Job, _: &Bytes) -> Result<(), String> {
        Ok(())
    }
}

/// The beginning of an answer, for a message.
pub(super) fn brief(bytes: &[u8]) -> String {
    const MOST: usize = 500;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned();
    if bytes.len() > MOST { text + "…" } else { text }
}
