//! Request bodies: bounded, JSON, with errors that name the field.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use fumehood_engine::spec::FieldError;
use futures::StreamExt;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;
use sha2::{Digest, Sha256};

use super::Shared;
use super::error::ApiError;

/// A body that sends nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// A body nobody wants is read and dropped for so long after the answer.
const LINGER: Duration = Duration::from_secs(5);
/// Larger bodies are parsed where blocking is allowed.
const PARSE_INLINE: usize = 256 << 10;

/// A JSON body, and its hash when the request has an idempotency key.
pub(crate) struct JsonBody<T> {
    pub(crate) value: T,
    pub(crate) sha256: Option<[u8; 32]>,
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<Shared> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Shared) -> Result<Self, ApiError> {
        let limit = state.config.max_body_bytes;
        let (parts, body) = request.into_parts();
        let declared = body.size_hint().lower();
        if declared > limit as u64 {
            return Err(ApiError::too_large(limit));
        }
        if !is_json(&parts.headers) {
            return Err(ApiError::not_json());
        }
        let bytes = read(body, limit).await?;
        let hashed = parts.headers.contains_key(super::idempotency::HEADER);
        let work = move || -> Result<Self, FieldError> {
            let sha256 = hashed.then(|| Sha256::digest(&bytes).into());
            Ok(Self { value: parse(&bytes)?, sha256 })
        };
        let parsed = if declared > PARSE_INLINE as u64 {
            tokio::task::spawn_blocking(work).await.map_err(|error| ApiError::internal("parse body", &error))?
        } else {
            work()
        };
        Ok(parsed?)
    }
}

/// `application/json` or `…+json`. Anything else is refused because a web page may post plain text and forms anywhere
/// without asking, JSON not.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

async fn read(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let mut stream = body.into_data_stream();
    let mut whole = BytesMut::new();
    loop {
        match tokio::time::timeout(PATIENCE, stream.next()).await {
            Err(_) => return Err(ApiError::body_timeout()),
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Err(error))) => return Err(ApiError::invalid("body", format!("did not arrive whole: {error}"))),
            Ok(Some(Ok(chunk))) if chunk.len() > limit - whole.len() => return Err(ApiError::too_large(limit)),
            Ok(Some(Ok(chunk))) => whole.extend_from_slice(&chunk),
        }
    }
}

/// Reads JSON; the error names the field, or `body` when it is no JSON at all.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FieldError> {
    let no_json = |error: &serde_json::Error| FieldError::new("body", format!("is not valid JSON: {error}"));
    // Serde would read an array as the fields of a struct in their order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        serde_json::from_slice::<IgnoredAny>(bytes).map_err(|error| no_json(&error))?;
        return Err(FieldError::new("body", "must be a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if error.classify() == Category::Data {
            explain(&path, &error.to_string())
        } else if serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
            // To serde a number in the place of a word is a fault of the syntax.
            explain(&path, "expected one of the words that it can be, as text")
        } else {
            no_json(&error)
        }
    })?;
    deserializer.end().map_err(|error| no_json(&error))?;
    Ok(value)
}

/// The field that a sentence of serde is about.
fn explain(path: &str, sentence: &str) -> FieldError {
    let named = |start: &str| sentence.strip_prefix(start)?.split('`').next();
    let missing = named("missing field `");
    let field = match (path, missing.or_else(|| named("duplicate field `"))) {
        (".", None) => "body".to_owned(),
        (".", Some(name)) => name.to_owned(),
        // A field whose name is empty has none to be called by.
        ("", None) => "body".to_owned(),
        (path, None) => path.to_owned(),
        (path, Some(name)) => format!("{path}.{name}"),
    };
    let message =
        if missing.is_some() { "is required".to_owned() } else { format!("is wrong: {}", for_people(sentence)) };
    FieldError::new(field, message)
}

/// Without the position in the text, which the field's name makes needless, and without names of Rust types.
fn for_people(sentence: &str) -> String {
    let sentence = sentence.rsplit_once(" at line ").map_or(sentence, |(sentence, _)| sentence);
    [
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected a sequence", "expected a list"),
    ]
    .into_iter()
    .fold(sentence.to_owned(), |sentence, (rust, plain)| sentence.replace(rust, plain))
}

/// Wraps the body so that what no handler wanted is still read for a while after the answer: many clients send a body whole
/// before they look for an answer, and a closed connection would hide the refusal from them.
pub(crate) fn lingering(request: Request) -> Request {
    // Such a client waits for leave to send, and reading would give it.
    if request.headers().contains_key(header::EXPECT) {
        return request;
    }
    request.map(|body| if body.is_end_stream() { body } else { Body::new(Lingering(Some(body))) })
}

struct Lingering(Option<Body>);

impl HttpBody for Lingering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.0 = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.as_ref().map_or_else(http_body::SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let Some(body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(tokio::time::timeout(LINGER, async move {
            let mut rest = body.into_data_stream();
            while let Some(Ok(_)) = rest.next().await {}
        }));
    }
}

#[cfg(test)]
mod tests {
    use fumehood_engine::spec::ExecutionRequest;

    use super::*;

    #[test]
    fn every_parse_error_names_its_field() {
        for (body, field) in [
            ("{}", "code"),
            (r#"{"code": 1}"#, "code"),
            (r#"{"code": "1", "tiemout_ms": 5}"#, "tiemout_ms"),
            (r#"{"code": "1", "limits": {"memory": 5}}"#, "limits.memory"),
            (r#"{"code": "1", "limits": {"memory_mb": "5"}}"#, "limits.memory_mb"),
            (r#"{"code": "1", "timeout_ms": 1.5}"#, "timeout_ms"),
            (r#"{"code": "1", "language": "cobol"}"#, "language"),
            (r#"{"code": "1", "language": 5}"#, "language"),
            (r#"{"code": "1", "format": ["markdown"]}"#, "format"),
            (r#"{"code": "1", "files": [{"content": ""}]}"#, "files[0].path"),
            (r#"{"code": "1", "env": {"A": 1}}"#, "env.A"),
            (r#"{"code": "1", "code": "2"}"#, "code"),
            (r#"{"code": "1", "": 2}"#, "body"),
            ("{not json", "body"),
            ("", "body"),
            ("[]", "body"),
            ("7", "body"),
            (r#"{"code": "1"} {}"#, "body"),
            ("{\"code\": \"\u{1}\"}", "body"),
        ] {
            let error = parse::<ExecutionRequest>(body.as_bytes()).expect_err(body);
            assert_eq!(error.field, field, "{body}: {error}");
        }
    }
}
