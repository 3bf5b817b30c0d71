//! A client of the HTTP interface, for the commands that work against a running server.
//!
//! ```text
//! command --typed call--> Client --HTTP--> server
//!                            \--Events: follows an execution, through broken connections, until its result
//! ```
//!
//! What a server says is checked like any other input: bodies are bounded, unknown events are passed over, and its texts are escaped where they
//! are shown. No redirect is followed and no proxy of the environment is used: the key goes to the address that was named and nowhere else.

mod error;
mod events;
mod wire;

use std::time::Duration;

use bytes::Bytes;
use fumehood_engine::execution::Execution;
use fumehood_engine::ids::{ExecutionId, SessionId};
use fumehood_engine::session::SessionInfo;
use fumehood_engine::spec::{ExecutionRequest, SessionRequest};
use fumehood_engine::template::{TemplateInfo, TemplateSpec};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use reqwest::{Body, Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::json;

pub(crate) use error::ClientError;
pub(crate) use events::{Events, event_lines};
pub(crate) use wire::{ExecutionPage, FileEntry, FileKind, FileList, SessionPage, TemplatePage, Variables, trimmed};

/// Connecting takes milliseconds or does not succeed.
const CONNECT: Duration = Duration::from_secs(10);
/// A connection whose other end is gone is noticed after about so long, also while nothing is said.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Largest body read into memory: an execution with its figures fits, a stream without end does not.
const MOST_BODY: usize = 512 << 20;
/// What is escaped in a segment of a path: all but what RFC 3986 leaves free.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where a server is, and what opens it.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
}

impl Client {
    /// Does not connect yet.
    ///
    /// # Errors
    /// When the address or the key cannot be used.
    pub(crate) fn new(address: &str, key: Option<&str>) -> Result<Self, ClientError> {
        let wrong = |why| ClientError::Address { address: address.to_owned(), why };
        let base = Url::parse(address).ok().filter(|base| matches!(base.scheme(), "http" | "https"));
        let base = base.ok_or_else(|| wrong("it must be http://HOST:PORT or https://HOST"))?;
        if !base.username().is_empty() || base.password().is_some() || base.query().is_some() {
            return Err(wrong("it must hold no user, password or query; keys go elsewhere"));
        }
        let authorization = key.map(|key| HeaderValue::try_from(format!("Bearer {key}"))).transpose();
        let mut authorization = authorization.map_err(|_| ClientError::Key)?;
        authorization.iter_mut().for_each(|value| value.set_sensitive(true));
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("fumehood/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .tcp_keepalive(KEEP_ALIVE);
        // The one provider of this binary; a second call finds it installed.
        rustls::crypto::ring::default_provider().install_default().ok();
        if base.scheme() == "http" {
            // Reading this machine's certificates takes longer than most requests.
            http = http.tls_certs_only([]);
        }
        let http = http.build().map_err(|error| ClientError::broken(&error))?;
        Ok(Self { http, base, authorization })
    }

    /// The address as it was given.
    pub(crate) fn address(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// A request to the route of these path segments, each escaped as it needs.
    fn request<'a>(
        &self,
        method: Method,
        path: impl IntoIterator<Item = &'a str>,
        query: &[(&str, &str)],
    ) -> RequestBuilder {
        let mut url = self.base.clone();
        // Not through `path_segments_mut`, which leaves out tabs and line ends; a sandbox may call its files so.
        let mut whole = url.path().trim_end_matches('/').to_owned();
        for segment in std::iter::once("v1").chain(path) {
            whole.push('/');
            whole.extend(utf8_percent_encode(segment, NAME));
        }
        url.set_path(&whole);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value),
            None => request,
        }
    }

    /// Sends; an answer that is no success becomes an error.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let answer = request.send().await.map_err(|error| ClientError::of(&error, self.address()))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = bounded(answer, 1 << 20).await.unwrap_or_default();
        Err(ClientError::refused(status, &body, self.address()))
    }

    async fn read<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let answer = self.send(request.header(ACCEPT, "application/json")).await?;
        let body = bounded(answer, MOST_BODY).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::unexpected(self.address(), &error))
    }

    async fn get<'a, T: DeserializeOwned>(
        &self,
        path: impl IntoIterator<Item = &'a str>,
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        self.read(self.request(Method::GET, path, query)).await
    }

    /// Executions of a status, newest first, as many as one page holds.
    pub(crate) async fn executions(&self, query: &[(&str, &str)]) -> Result<ExecutionPage, ClientError> {
        self.get(["executions"], query).await
    }

    /// Ends an execution.
    pub(crate) async fn cancel(&self, id: &ExecutionId) -> Result<Execution, ClientError> {
        self.read(self.request(Method::POST, ["executions", id.as_str(), "cancel"], &[])).await
    }

    /// Begins an execution, in a session or a sandbox of its own, and follows it. A connection that breaks before the answer is tried again: the
    /// key of the request has it run once.
    pub(crate) async fn run(
        &self,
        session: Option<&SessionId>,
        request: &ExecutionRequest,
    ) -> Result<Events, ClientError> {
        let answer = self.submit(session, request, "text/event-stream").await?;
        let id = answer.headers().get("x-execution-id").and_then(|id| ExecutionId::parse(id.to_str().ok()?));
        let id = id.ok_or_else(|| ClientError::unexpected(self.address(), &"it did not name the execution"))?;
        Ok(Events::begin(self.clone(), id, 0, true, Some(answer)))
    }

    /// The same without waiting for the end.
    pub(crate) async fn run_async(
        &self,
        session: Option<&SessionId>,
        request: &ExecutionRequest,
    ) -> Result<Execution, ClientError> {
        let body = bounded(self.submit(session, request, "application/json").await?, MOST_BODY).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::unexpected(self.address(), &error))
    }

    async fn submit(
        &self,
        session: Option<&SessionId>,
        request: &ExecutionRequest,
        accept: &'static str,
    ) -> Result<Response, ClientError> {
        const TRIES: u32 = 3;
        let body = Bytes::from(trimmed(request).to_string());
        let key = format!("cli-{:032x}", fastrand::u128(..));
        let mut tried = 0;
        loop {
            tried += 1;
            let path = match session {
                Some(session) => vec!["sessions", session.as_str(), "executions"],
                None => vec!["executions"],
            };
            let request = self
                .request(Method::POST, path, &[])
                .header(ACCEPT, accept)
                .header(CONTENT_TYPE, "application/json")
                .header("Idempotency-Key", &key)
                .body(body.clone());
            match self.send(request).await {
                Err(ClientError::Broken { .. }) if tried < TRIES => {
                    tokio::time::sleep(Duration::from_millis(200) * tried).await;
                }
                other => return other,
            }
        }
    }

    /// The events of an execution after number `after`: those it had, and with `follow` those to come.
    pub(crate) fn events(&self, id: ExecutionId, after: u64, follow: bool) -> Events {
        Events::begin(self.clone(), id, after, follow, None)
    }

    async fn open_events(&self, id: &ExecutionId, after: u64, follow: bool) -> Result<Response, ClientError> {
        let after = after.to_string();
        let mut query = vec![("after", after.as_str())];
        if !follow {
            query.push(("follow", "false"));
        }
        let request = self.request(Method::GET, ["executions", id.as_str(), "events"], &query);
        self.send(request.header(ACCEPT, "text/event-stream")).await
    }

    /// Opens a session.
    pub(crate) async fn open_session(&self, request: &SessionRequest) -> Result<SessionInfo, ClientError> {
        let body = trimmed(request).to_string();
        let request = self.request(Method::POST, ["sessions"], &[]).header(CONTENT_TYPE, "application/json");
        self.read(request.body(body)).await
    }

    /// Sessions, newest first; those that ended too.
    pub(crate) async fn sessions(&self) -> Result<SessionPage, ClientError> {
        self.get(["sessions"], &[]).await
    }

    /// A session as it is now.
    pub(crate) async fn session(&self, id: &SessionId) -> Result<SessionInfo, ClientError> {
        self.get(["sessions", id.as_str()], &[]).await
    }

    /// Ends a session.
    pub(crate) async fn close(&self, id: &SessionId) -> Result<SessionInfo, ClientError> {
        self.read(self.request(Method::DELETE, ["sessions", id.as_str()], &[])).await
    }

    /// `reset`, `interrupt`, `pause` or `resume`.
    pub(crate) async fn act(&self, id: &SessionId, what: &str) -> Result<SessionInfo, ClientError> {
        match self.read(self.request(Method::POST, ["sessions", id.as_str(), what], &[])).await {
            Err(error) if error.is_not_found() => {
                // Either the session is unknown, which is said here, or what is to be done with it.
                self.session(id).await?;
                Err(ClientError::Missing(format!("this server is of a version that cannot {what} a session")))
            }
            other => other,
        }
    }

    /// Has a session live for so many seconds from now.
    pub(crate) async fn extend(&self, id: &SessionId, seconds: u64) -> Result<SessionInfo, ClientError> {
        let request = self.request(Method::POST, ["sessions", id.as_str(), "extend"], &[]);
        let body = json!({"ttl_s": seconds}).to_string();
        self.read(request.header(CONTENT_TYPE, "application/json").body(body)).await
    }

    /// Templates: the newest version of each, or all.
    pub(crate) async fn templates(&self, versions: bool) -> Result<TemplatePage, ClientError> {
        let query: &[(&str, &str)] = if versions { &[("versions", "true")] } else { &[] };
        self.get(["templates"], query).await
    }

    /// A template by name or name@version, `resolved` with what it extends.
    pub(crate) async fn template(&self, name: &str, resolved: bool) -> Result<TemplateInfo, ClientError> {
        let query: &[(&str, &str)] = if resolved { &[("resolved", "true")] } else { &[] };
        self.get(["templates", name], query).await
    }

    /// Makes a template, or another version of one that is there; `dry`: says what would be made.
    pub(crate) async fn write_template(
        &self,
        spec: &TemplateSpec,
        there: bool,
        dry: bool,
    ) -> Result<TemplateInfo, ClientError> {
        let query: &[(&str, &str)] = if dry { &[("dry_run", "true")] } else { &[] };
        let request = match there {
            true => self.request(Method::PUT, ["templates", spec.name.as_str()], query),
            false => self.request(Method::POST, ["templates"], query),
        };
        let body = serde_json::to_vec(spec).unwrap_or_default();
        self.read(request.header(CONTENT_TYPE, "application/json").body(body)).await
    }

    /// Deletes a template with all its versions.
    pub(crate) async fn remove_template(&self, name: &str, force: bool) -> Result<(), ClientError> {
        let query: &[(&str, &str)] = if force { &[("force", "true")] } else { &[] };
        self.send(self.request(Method::DELETE, ["templates", name], query)).await.map(drop)
    }

    /// The variables of a session after its last execution.
    pub(crate) async fn variables(&self, id: &SessionId) -> Result<Variables, ClientError> {
        self.get(["sessions", id.as_str(), "variables"], &[]).await
    }

    /// What is in a folder of a session; `""` is the workspace. `None` when there is no such folder.
    pub(crate) async fn list(
        &self,
        id: &SessionId,
        folder: &str,
        recursive: bool,
    ) -> Result<Option<FileList>, ClientError> {
        let query = [("path", folder), ("recursive", if recursive { "true" } else { "false" })];
        match self.get(["sessions", id.as_str(), "files"], &query).await {
            Ok(list) => Ok(Some(list)),
            Err(error) if error.is_not_found() => {
                // Of a session that is unknown it is said so, not that the folder is missing.
                self.session(id).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The content of a file of a session, to be read with [`Response::chunk`].
    pub(crate) async fn download(&self, id: &SessionId, path: &str) -> Result<Response, ClientError> {
        let segments = ["sessions", id.as_str(), "files"].into_iter().chain(path.split('/'));
        self.send(self.request(Method::GET, segments, &[])).await
    }

    /// Stores a file of a session. With a length nothing is stored unless just so many bytes come.
    pub(crate) async fn upload(
        &self,
        id: &SessionId,
        path: &str,
        body: Body,
        length: Option<u64>,
    ) -> Result<(), ClientError> {
        let segments = ["sessions", id.as_str(), "files"].into_iter().chain(path.split('/'));
        let mut request = self.request(Method::PUT, segments, &[]).header(CONTENT_TYPE, "application/octet-stream");
        if let Some(length) = length {
            request = request.header(CONTENT_LENGTH, length);
        }
        self.send(request.body(body)).await.map(drop)
    }

    /// A file that an execution left, likewise.
    pub(crate) async fn artifact(&self, id: &ExecutionId, path: &str) -> Result<Response, ClientError> {
        let segments = ["executions", id.as_str(), "artifacts"].into_iter().chain(path.split('/'));
        self.send(self.request(Method::GET, segments, &[])).await
    }
}

/// A whole body of at most so many bytes.
async fn bounded(mut answer: Response, most: usize) -> Result<Vec<u8>, ClientError> {
    let mut whole = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| ClientError::broken(&error))? {
        if chunk.len() > most - whole.len() {
            return Err(ClientError::Endless);
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(base: &str, path: &str) -> String {
        let client = Client::new(base, None).unwrap();
        let segments = ["sessions", "ses_1", "files"].into_iter().chain(path.split('/'));
        client.request(Method::GET, segments, &[]).build().unwrap().url().to_string()
    }

    #[test]
    fn a_name_is_a_name_in_the_address_whatever_it_looks_like() {
        let base = "http://127.0.0.1:8080";
        let files = "http://127.0.0.1:8080/v1/sessions/ses_1/files";
        assert_eq!(url(base, "a b/c?d#e%2f.txt"), format!("{files}/a%20b/c%3Fd%23e%252f.txt"));
        assert_eq!(url(base, "a\tb\nc+"), format!("{files}/a%09b%0Ac%2B"));
        assert_eq!(url(base, "表"), format!("{files}/%E8%A1%A8"));
        assert_eq!(url("https://host/behind/", "x"), "https://host/behind/v1/sessions/ses_1/files/x");
        assert_eq!(url("https://host/behind", "x"), "https://host/behind/v1/sessions/ses_1/files/x");
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        for bad in ["", "127.0.0.1:8080", "ftp://host", "http://", "http://user:password@host", "http://host?key=1"] {
            assert!(matches!(Client::new(bad, None), Err(ClientError::Address { .. })), "{bad}");
        }
        assert!(matches!(Client::new("http://host", Some("a\nb")), Err(ClientError::Key)));
    }
}
