//! Bad input is refused by name, at once, and nothing runs.

use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::json;

use crate::kit::{Server, post, request};

#[tokio::test]
async fn a_wrong_field_is_named_and_nothing_runs() {
    let server = Server::new();
    for (body, field) in [
        (json!({"code": 1}), "code"),
        (json!({}), "code"),
        (json!({"code": "1", "tiemout_ms": 5}), "tiemout_ms"),
        (json!({"code": "1", "timeout_ms": -1}), "timeout_ms"),
        (json!({"code": "1", "timeout_ms": 0}), "timeout_ms"),
        (json!({"code": "1", "limits": {"memory_mb": 1_000_000_000}}), "limits.memory_mb"),
        (json!({"code": "1", "limits": {"cpu": -2}}), "limits.cpu"),
        (json!({"code": "1", "limits": {"ram": 1}}), "limits.ram"),
        (json!({"code": "1", "language": "cobol"}), "language"),
        (json!({"code": "1", "files": [{"path": "../x", "content": ""}]}), "files[0].path"),
        (json!({"code": "1", "cwd": "/etc"}), "cwd"),
        (json!({"code": "1", "preview_rows": 1_000_000}), "preview_rows"),
        (json!({"code": "1", "format": 5}), "format"),
        (json!({"code": "1", "template": "no-such"}), "template"),
        (json!({"code": "1", "isolation": "microvm"}), "isolation"),
    ] {
        let answer = server.post("/v1/executions", &[], &body).await;
        assert_eq!(answer.refusal(), (400, "invalid_argument".into(), field.into()), "{body}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(field), "{body}");
    }
    assert_eq!(server.sandboxes_started(), 0);
}

#[tokio::test]
async fn a_format_that_does_not_exist_is_refused_with_those_that_do() {
    let server = Server::new();
    let answer = server.post("/v1/executions", &[], &json!({"code": "1", "format": "latex"})).await;
    assert_eq!(answer.refusal(), (400, "invalid_argument".into(), "format".into()));
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("default") && message.contains("markdown"), "{message}");
}

#[tokio::test]
async fn what_is_no_json_is_refused_as_the_body() {
    let server = Server::new();
    for text in ["{not json", "", "\u{feff}{}", r#"{"code":"1"} x"#] {
        let headers = [("content-type", "application/json")];
        let answer = server.send(request("POST", "/v1/executions", &headers, Body::from(text))).await;
        assert_eq!(answer.refusal(), (400, "invalid_argument".into(), "body".into()), "{text:?}");
    }
}

#[tokio::test]
async fn a_body_that_a_web_page_may_send_unasked_is_refused() {
    let server = Server::new();
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data; boundary=x"]
    {
        let sent = request("POST", "/v1/executions", &[("content-type", kind)], Body::from(r#"{"code":"[]"}"#));
        assert_eq!(server.send(sent).await.refusal().1, "unsupported_media_type", "{kind}");
    }
    let untyped = request("POST", "/exec", &[], Body::from(r#"{"code":"[]"}"#));
    assert_eq!(server.send(untyped).await.refusal().0, 415);
    for kind in ["application/json; charset=utf-8", "application/vnd.x+json"] {
        let sent = request("POST", "/v1/executions", &[("content-type", kind)], Body::from(r#"{"code":"[]"}"#));
        assert_eq!(server.send(sent).await.status, 200, "{kind}");
    }
}

#[tokio::test]
async fn a_body_of_200_mb_is_refused_before_it_is_read() {
    let server = Server::new();
    let endless = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let mut sent = request("POST", "/v1/executions", &[("content-type", "application/json")], endless);
    *sent.body_mut() = sized(200 << 20);
    // The first request of a tenant reads its account.
    server.call("GET", "/v1/executions").await;
    let began = Instant::now();
    let answer = server.send(sent).await;
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    assert_eq!(answer.refusal(), (413, "payload_too_large".into(), "body".into()));
}

/// A body that says how long it is and sends nothing.
fn sized(length: u64) -> Body {
    struct Sized(u64);
    impl http_body::Body for Sized {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
            std::task::Poll::Pending
        }
        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(self.0)
        }
    }
    Body::new(Sized(length))
}

#[tokio::test]
async fn a_body_of_unknown_length_is_cut_off_at_the_bound() {
    let server = Server::with(|config, _| config.max_body_bytes = 1 << 20);
    let chunks = stream::repeat(Bytes::from(vec![b' '; 64 << 10])).take(64).map(Ok::<_, std::io::Error>);
    let sent = request("POST", "/v1/executions", &[("content-type", "application/json")], Body::from_stream(chunks));
    assert_eq!(server.send(sent).await.refusal(), (413, "payload_too_large".into(), "body".into()));
}

#[tokio::test]
async fn unknown_things_are_404_in_json() {
    let server = Server::new();
    for path in [
        "/nothing",
        "/v1/executions/exe_nothing",
        "/v1/executions/nothing",
        "/v1/executions/exe_nothing/events",
        "/v1/executions/exe_nothing/artifacts/a.csv",
    ] {
        assert_eq!(server.call("GET", path).await.refusal().1, "not_found", "{path}");
    }
    assert_eq!(server.call("POST", "/v1/executions/exe_nothing/cancel").await.refusal().0, 404);
}

#[tokio::test]
async fn another_method_is_405_in_json_and_says_which_are_allowed() {
    let server = Server::new();
    let answer = server.call("DELETE", "/v1/executions").await;
    assert_eq!(answer.refusal().1, "method_not_allowed");
    assert!(answer.header("allow").contains("POST"), "{:?}", answer.headers);
    assert_eq!(server.call("GET", "/exec").await.refusal().0, 405);
    assert_eq!(server.call("OPTIONS", "/v1/executions").await.refusal().0, 405);
}

#[tokio::test]
async fn a_form_nobody_offers_is_406() {
    let server = Server::new();
    let answer = server.post("/v1/executions", &[("accept", "text/html")], &json!({"code": "[]"})).await;
    assert_eq!(answer.refusal().1, "not_acceptable");
    assert_eq!(server.sandboxes_started(), 0);
}

#[tokio::test]
async fn a_full_queue_is_429_with_a_time_to_come_back() {
    let server = Server::with(|server, engine| (engine.max_concurrent, server.jobs.max_waiting) = (1, 2));
    let running = server.hang().await;
    let answer = loop {
        let answer = server.post("/v1/executions", &[], &json!({"code": r#"["hang"]"#, "mode": "async"})).await;
        if answer.status != 202 {
            break answer;
        }
    };
    assert_eq!(answer.refusal().1, "too_many_requests");
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(server.call("POST", &format!("/v1/executions/{running}/cancel")).await.status, 200);
}

#[tokio::test]
async fn a_server_that_shuts_down_refuses_new_work_with_503() {
    let server = Server::new();
    server.engine.shutdown(Duration::ZERO).await;
    assert_eq!(server.post("/v1/executions", &[], &json!({"code": "[]"})).await.refusal().1, "unavailable");
    assert_eq!(server.call("GET", "/ready").await.refusal().0, 503);
    assert_eq!(server.call("GET", "/health").await.json()["status"], "draining");
}

#[tokio::test]
async fn every_answer_carries_a_request_id() {
    let server = Server::new();
    for (method, path) in
        [("GET", "/health"), ("GET", "/nothing"), ("DELETE", "/health"), ("GET", "/v1/executions/exe_1")]
    {
        assert!(server.call(method, path).await.header("x-request-id").starts_with("req_"), "{path}");
    }
    let echoed = server.send(request("GET", "/nothing", &[("x-request-id", "abc-1")], Body::empty())).await;
    assert_eq!(echoed.header("x-request-id"), "abc-1");
    assert_eq!(echoed.json()["error"]["request_id"], "abc-1");
    let long = "x".repeat(129);
    for bad in [long.as_str(), "", "\u{e9}"] {
        let answer = server.send(request("GET", "/health", &[("x-request-id", bad)], Body::empty())).await;
        assert!(answer.header("x-request-id").starts_with("req_"), "{bad:?}");
    }
}

#[tokio::test]
async fn parameters_are_refused_by_name_too() {
    let server = Server::new();
    let id = server.run(json!([])).await["id"].as_str().unwrap().to_owned();
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("status=done", "status"),
        ("cursor=x", "cursor"),
        ("page=2", "page"),
        ("limit=1&limit=2", "limit"),
    ] {
        assert_eq!(server.call("GET", &format!("/v1/executions?{query}")).await.refusal().2, field, "{query}");
    }
    let path = format!("/v1/executions/{id}/events");
    assert_eq!(server.call("GET", &format!("{path}?after=-1")).await.refusal().2, "after");
    let reconnect = request("GET", &path, &[("last-event-id", "x")], Body::empty());
    assert_eq!(server.send(reconnect).await.refusal().2, "Last-Event-ID");
    let key = post("/v1/executions", &[("idempotency-key", "")], &json!({"code": "[]"}));
    assert_eq!(server.send(key).await.refusal().2, "Idempotency-Key");
}
