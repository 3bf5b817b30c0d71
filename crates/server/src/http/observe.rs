//! Around every request: its id, its span and log line, its metrics, and the bodies of errors.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use metrics::{counter, histogram};
use tracing::Instrument;

use super::body;
use super::error::{self, ApiError};
use crate::metrics::{REQUEST_DURATION, REQUESTS};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request, for handlers that answer more than once.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// The outermost layer.
pub(crate) async fn observe(mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    request.extensions_mut().insert(RequestId(id.to_str().unwrap_or_default().to_owned()));
    let method = method_label(request.method());
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!(
        "request",
        request_id = %id.to_str().unwrap_or_default(),
        method,
        route,
        execution_id = tracing::field::Empty
    );
    answer(request, next, id, method, route).instrument(span).await
}

async fn answer(request: Request, next: Next, id: HeaderValue, method: &'static str, route: String) -> Response {
    let began = Instant::now();
    let handled = AssertUnwindSafe(next.run(body::lingering(request))).catch_unwind().await;
    let response = handled.unwrap_or_else(|panic| {
        let cause =
            panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref::<String>().cloned());
        ApiError::internal("handler", &cause.unwrap_or_else(|| "panic".to_owned())).into_response()
    });
    let mut response = error::finish(response, id.to_str().unwrap_or_default());
    response.headers_mut().insert(REQUEST_ID, id);

    let status = response.status();
    let seconds = began.elapsed().as_secs_f64();
    counter!(REQUESTS, "method" => method, "route" => route.clone(), "status" => status.as_str().to_owned())
        .increment(1);
    histogram!(REQUEST_DURATION, "method" => method, "route" => route.clone()).record(seconds);
    // Probes come every few seconds and say nothing.
    if matches!(route.as_str(), "/health" | "/ready" | "/metrics") && status.is_success() {
        tracing::debug!(status = status.as_u16(), seconds, "answered");
    } else {
        tracing::info!(status = status.as_u16(), seconds, "answered");
    }
    response
}

/// The client's own id when it is harmless in logs and headers, a new one otherwise.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sane = |id: &&HeaderValue| {
        let bytes = id.as_bytes();
        (1..=128).contains(&bytes.len()) && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
    };
    headers.get(REQUEST_ID).filter(sane).cloned().unwrap_or_else(|| {
        let fresh = format!("req_{}", ulid::Ulid::new().to_string().to_ascii_lowercase());
        HeaderValue::try_from(fresh).expect("letters, digits and '_'")
    })
}

/// A client may invent methods; labels must stay few.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}
