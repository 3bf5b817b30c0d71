//! Event streams: one write for each event, as it happens.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use fumehood_engine::event::{Event, EventBody};
use futures::{Stream, StreamExt, stream};

use super::accept::Form;

/// A comment goes out after so long without an event, so that nobody in between closes the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// `events` in `form` (which must be a stream).
pub(crate) fn respond(
    events: impl Stream<Item = Arc<Event>> + Send + 'static,
    form: Form,
    headers: HeaderMap,
) -> Response {
    match form {
        Form::Sse => streamed("text/event-stream", headers, with_comments(events.map(|event| sse(&event)))),
        Form::Ndjson | Form::Json => {
            streamed("application/x-ndjson", headers, events.map(|event| Bytes::from(json(&event) + "\n")))
        }
    }
}

/// A response whose chunks go out as they come.
pub(crate) fn streamed(
    content_type: &'static str,
    headers: HeaderMap,
    chunks: impl Stream<Item = Bytes> + Send + 'static,
) -> Response {
    let mut response = Body::from_stream(chunks.map(Ok::<_, Infallible>)).into_response();
    let all = response.headers_mut();
    all.extend(headers);
    all.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    all.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Reverse proxies that buffer answers take this as a wish not to.
    all.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// One line for every client: many split lines at characters that JSON lets stand in a string (U+0085, U+2028, U+2029), so these are
/// written as escapes.
fn json(event: &Event) -> String {
    let text = serde_json::to_string(event).expect("events hold text, numbers and JSON values only");
    if !text.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
        return text;
    }
    text.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// JSON has no line breaks, so that one `data` line holds it.
fn sse(event: &Event) -> Bytes {
    format!("id: {}\nevent: {}\ndata: {}\n\n", event.seq, name(&event.body), json(event)).into()
}

fn name(body: &EventBody) -> &'static str {
    match body {
        EventBody::Started { .. } => "started",
        EventBody::Stdout { .. } => "stdout",
        EventBody::Stderr { .. } => "stderr",
        EventBody::Display(_) => "display",
        EventBody::Warning(_) => "warning",
        EventBody::Result(_) => "result",
    }
}

fn with_comments(events: impl Stream<Item = Bytes> + Send + 'static) -> impl Stream<Item = Bytes> + Send + 'static {
    stream::unfold(Box::pin(events), |mut events| async move {
        let chunk = match tokio::time::timeout(KEEP_ALIVE, events.next()).await {
            Ok(event) => event?,
            Err(_) => Bytes::from_static(b": keep-alive\n\n"),
        };
        Some((chunk, events))
    })
}

#[cfg(test)]
mod tests {
    use fumehood_engine::event::EventLog;

    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_its_client_takes_for_a_line_break() {
        let text = "a\u{85}b\u{2028}c\u{2029}d\ne\r\u{b}\u{c}\u{1c}".to_owned();
        let line = json(&Event { seq: 1, body: EventBody::Stdout { text: text.clone() } });
        assert!(!line.contains(|c: char| c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}')), "{line}");
        let back: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(back["data"]["text"], text);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_sends_comments() {
        let log = EventLog::default();
        let mut chunks = Box::pin(with_comments(log.follow(0).map(|event| sse(&event))));
        assert_eq!(chunks.next().await.unwrap(), ": keep-alive\n\n");
        log.push(EventBody::Stdout { text: "a\nb".to_owned() });
        let event = chunks.next().await.unwrap();
        assert_eq!(
            event,
            "id: 1\nevent: stdout\ndata: {\"seq\":1,\"type\":\"stdout\",\"data\":{\"text\":\"a\\nb\"}}\n\n"
        );
    }
}
