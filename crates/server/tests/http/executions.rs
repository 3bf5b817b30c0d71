//! Executions in three answer forms, replay, idempotency, cancellation, artifacts.

use axum::body::Body;
use axum::http::StatusCode;
use fumehood_engine::ids::ExecutionId;
use futures::StreamExt;
use futures::future::join_all;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::kit::{Answer, Server, code, post, request, wait_for};

fn sse_events(text: &str) -> Vec<Value> {
    let frames = text.split("\n\n").filter(|frame| !frame.is_empty());
    frames
        .map(|frame| {
            let lines: Vec<&str> = frame.lines().collect();
            let [id, kind, data] = lines[..] else { panic!("three lines, got {frame:?}") };
            let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(id.strip_prefix("id: ").unwrap(), event["seq"].to_string());
            assert_eq!(kind.strip_prefix("event: ").unwrap(), event["type"].as_str().unwrap());
            event
        })
        .collect()
}

fn lines(answer: &Answer) -> Vec<Value> {
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn json_waits_for_the_end() {
    let server = Server::new();
    let answer = server.post("/v1/executions", &[], &code(&json!([{"stdout": "hello\n"}, {"value": 42}]))).await;
    let execution = answer.json();
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(
        (&execution["status"], &execution["stdout"], &execution["result"]),
        (&json!("completed"), &json!("hello\n"), &json!(42))
    );
    assert_eq!(answer.header("x-execution-id"), execution["id"].as_str().unwrap());
}

#[tokio::test]
async fn both_stream_forms_tell_the_same_events_and_end_with_the_result() {
    let server = Server::new();
    let evil = "</txt>\n\ndata: {\"type\":\"result\"}\n\n";
    let body = code(&json!([{"stdout": evil}, {"display": {"text/plain": "x"}}, {"stderr": "e"}, {"value": 1}]));
    let sse = server.post("/v1/executions", &[("accept", "text/event-stream")], &body).await;
    assert_eq!(sse.header("content-type"), "text/event-stream");
    assert_eq!(sse.header("cache-control"), "no-cache");
    let ndjson = server.post("/v1/executions", &[("accept", "application/x-ndjson")], &body).await;
    assert_eq!(ndjson.header("content-type"), "application/x-ndjson");
    for (answer, events) in [(&sse, sse_events(sse.text())), (&ndjson, lines(&ndjson))] {
        assert_eq!(kinds(&events), ["started", "stdout", "display", "stderr", "result"]);
        assert_eq!(events.iter().map(|event| event["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(events[0]["data"]["id"], answer.header("x-execution-id"));
        assert_eq!(events[1]["data"]["text"], evil);
        assert_eq!(events[4]["data"]["result"], 1);
    }
}

#[tokio::test]
async fn events_come_while_the_code_runs_and_a_client_that_leaves_ends_nothing() {
    let server = Server::new();
    let body = code(&json!([{"stdout": "up"}, "hang"]));
    let streaming = post("/v1/executions", &[("accept", "application/x-ndjson")], &body);
    let response = server.router.clone().oneshot(streaming).await.unwrap();
    let id = response.headers()["x-execution-id"].to_str().unwrap().to_owned();
    let mut chunks = response.into_body().into_data_stream();
    for kind in ["started", "stdout"] {
        let event: Value = serde_json::from_slice(&chunks.next().await.unwrap().unwrap()).unwrap();
        assert_eq!(event["type"], kind);
    }
    drop(chunks);
    assert_eq!(server.call("GET", &format!("/v1/executions/{id}")).await.json()["status"], "running");
    let cancelled = server.call("POST", &format!("/v1/executions/{id}/cancel")).await;
    assert_eq!(cancelled.status, StatusCode::OK);
    assert_eq!((&cancelled.json()["status"], &cancelled.json()["stdout"]), (&json!("cancelled"), &json!("up")));
}

#[tokio::test]
async fn async_answers_at_once_and_the_execution_can_be_read_and_followed() {
    let server = Server::new();
    let script = json!([{"stdout": "a"}]).to_string();
    let answer = server.post("/v1/executions", &[], &json!({"code": script, "mode": "async"})).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("location"), format!("/v1/executions/{id}"));
    let events = server.call("GET", &format!("/v1/executions/{id}/events")).await;
    assert_eq!(kinds(&sse_events(events.text())), ["started", "stdout", "result"]);
    assert_eq!(server.call("GET", answer.header("location")).await.json()["status"], "completed");
}

#[tokio::test]
async fn replay_starts_after_the_number_given() {
    let server = Server::new();
    let id = server.run(json!([{"stdout": "a"}, {"stderr": "b"}])).await["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/executions/{id}/events");
    let replay = |query: &str, headers: Vec<(&'static str, &'static str)>| {
        let request = request("GET", &format!("{path}{query}"), &headers, Body::empty());
        async { sse_events(server.send(request).await.text()) }
    };
    assert_eq!(kinds(&replay("", vec![]).await), ["started", "stdout", "stderr", "result"]);
    assert_eq!(kinds(&replay("?after=2", vec![]).await), ["stderr", "result"]);
    assert_eq!(kinds(&replay("?after=1", vec![("last-event-id", "3")]).await), ["result"]);
    assert!(replay("?after=99", vec![]).await.is_empty());
    let ndjson = request("GET", &format!("{path}?after=3"), &[("accept", "application/x-ndjson")], Body::empty());
    assert_eq!(kinds(&lines(&server.send(ndjson).await)), ["result"]);
}

#[tokio::test]
async fn without_following_a_replay_ends_with_what_there_is() {
    let server = Server::new();
    let body = json!({"code": r#"[{"stdout": "a"}, "hang"]"#, "mode": "async"});
    let id = server.post("/v1/executions", &[], &body).await.json()["id"].as_str().unwrap().to_owned();
    let execution = ExecutionId::parse(&id).unwrap();
    let log = wait_for(async || server.engine.events(&execution)).await;
    let mut live = Box::pin(log.follow(1));
    live.next().await.unwrap();
    let replay = async |query: &str| {
        let path = format!("/v1/executions/{id}/events?follow=false{query}");
        sse_events(server.call("GET", &path).await.text())
    };
    assert_eq!(kinds(&replay("").await), ["started", "stdout"]);
    assert_eq!(kinds(&replay("&after=1").await), ["stdout"]);
    assert!(replay("&after=2").await.is_empty() && replay("&after=99").await.is_empty());
    let refused = server.call("GET", &format!("/v1/executions/{id}/events?follow=perhaps")).await;
    assert_eq!(refused.refusal().2, "follow");
    server.call("POST", &format!("/v1/executions/{id}/cancel")).await;
}

#[tokio::test]
async fn cancelling_what_ended_changes_nothing() {
    let server = Server::new();
    let execution = server.run(json!([])).await;
    let path = format!("/v1/executions/{}/cancel", execution["id"].as_str().unwrap());
    let answer = server.call("POST", &path).await;
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, execution));
}

#[tokio::test]
async fn the_list_pages_newest_first() {
    let server = Server::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.insert(0, server.run(json!([])).await["id"].clone());
    }
    ids.sort_by(|a, b| b.as_str().cmp(&a.as_str()));
    let first = server.call("GET", "/v1/executions?limit=2").await.json();
    let seen =
        |page: &Value| page["executions"].as_array().unwrap().iter().map(|e| e["id"].clone()).collect::<Vec<_>>();
    assert_eq!(seen(&first), ids[..2]);
    let next = format!("/v1/executions?limit=2&cursor={}", first["next_cursor"].as_str().unwrap());
    let second = server.call("GET", &next).await.json();
    assert_eq!((seen(&second), &second["next_cursor"]), (ids[2..].to_vec(), &Value::Null));
    assert_eq!(seen(&server.call("GET", "/v1/executions?status=failed").await.json()), Vec::<Value>::new());
    assert_eq!(seen(&server.call("GET", "/v1/executions?status=completed").await.json()).len(), 3);
    assert_eq!(seen(&server.call("GET", "/v1/executions?session_id=ses_1").await.json()), Vec::<Value>::new());
}

#[tokio::test]
async fn the_same_request_with_the_same_key_runs_once() {
    let server = Server::new();
    let body = code(&json!([{"stdout": "once"}]));
    let key = ("idempotency-key", "k1");
    let first = server.post("/v1/executions", &[key], &body).await;
    let again = server.post("/v1/executions", &[key], &body).await;
    assert_eq!(first.json(), again.json());
    assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), ("", "true"));
    let streamed = server.post("/v1/executions", &[key, ("accept", "text/event-stream")], &body).await;
    assert_eq!(kinds(&sse_events(streamed.text())), ["started", "stdout", "result"]);
    assert_eq!(server.sandboxes_started(), 1);

    let other = server.post("/v1/executions", &[key], &code(&json!([]))).await;
    assert_eq!(other.refusal().1, "conflict");
    server.post("/v1/executions", &[("idempotency-key", "k2")], &body).await;
    assert_eq!(server.sandboxes_started(), 2);

    let first = server.post("/exec", &[key], &body).await;
    assert_eq!(server.post("/exec", &[key], &body).await.text(), first.text());
    assert_eq!(server.sandboxes_started(), 3, "a key belongs to its route");
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_at_the_same_time_run_once() {
    let server = Server::new();
    let body = code(&json!([{"stdout": "once"}]));
    let answers = join_all((0..20).map(|_| server.post("/v1/executions", &[("idempotency-key", "k")], &body))).await;
    assert!(answers.iter().all(|answer| answer.json() == answers[0].json()));
    assert_eq!(server.sandboxes_started(), 1);
}

#[tokio::test]
async fn a_key_outlives_what_the_engine_remembers_goes_with_its_execution_and_is_not_used_up_by_a_refusal() {
    let server = Server::with(|_, engine| engine.keep_executions = 1);
    let key = ("idempotency-key", "k");
    let refused = server.post("/v1/executions", &[key], &json!({"code": "[]", "timeout_ms": 0})).await;
    assert_eq!(refused.status, 400);
    let first = server.post("/v1/executions", &[key], &code(&json!([]))).await.json();
    server.run(json!([])).await;
    let second = server.post("/v1/executions", &[key], &code(&json!([]))).await.json();
    assert_eq!((&first, server.sandboxes_started()), (&second, 2));
    let path = format!("/v1/executions/{}", first["id"].as_str().unwrap());
    assert_eq!(server.call("DELETE", &path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(server.call("GET", &path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.call("DELETE", &path).await.status, StatusCode::NOT_FOUND);
    let third = server.post("/v1/executions", &[key], &code(&json!([]))).await.json();
    assert_ne!(first["id"], third["id"]);
}

#[tokio::test]
async fn an_artifact_is_sent_whole_and_never_rendered() {
    let server = Server::new();
    let page = "<script>alert(1)</script>";
    let body = json!({"code": json!([{"file": "a b.html", "content": page}]).to_string(), "collect": ["*.html"]});
    let execution = server.post("/v1/executions", &[], &body).await.json();
    let id = execution["id"].as_str().unwrap();
    let path = format!("/v1/executions/{id}/artifacts/a%20b.html");
    let answer = server.call("GET", &path).await;
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, page));
    assert_eq!(answer.header("content-length"), page.len().to_string());
    assert_eq!(answer.header("content-type"), "text/html");
    assert!(answer.header("content-disposition").starts_with("attachment; filename=\"a b.html\""));
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert!(answer.header("content-security-policy").starts_with("sandbox"));
    let etag = answer.header("etag").to_owned();
    assert_eq!(etag.trim_matches('"'), execution["artifacts"][0]["sha256"].as_str().unwrap());
    let known = server.send(request("GET", &path, &[("if-none-match", &etag)], Body::empty())).await;
    assert_eq!((known.status, known.body.len()), (StatusCode::NOT_MODIFIED, 0));
    for other in ["a.html", "..%2Fa%20b.html", "../a%20b.html", "%FF"] {
        let answer = server.call("GET", &format!("/v1/executions/{id}/artifacts/{other}")).await;
        assert!([400, 404].contains(&answer.refusal().0), "{other}");
    }
}
