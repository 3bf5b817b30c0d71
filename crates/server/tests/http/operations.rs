//! Health, metrics and the description of the interface.

use std::collections::BTreeSet;

use axum::body::Body;
use fumehood_server::{openapi_json, paths};
use serde_json::{Value, json};

use crate::kit::{Server, request};

#[tokio::test]
async fn health_has_the_fields_of_both_documents() {
    let health = Server::new().call("GET", "/health").await.json();
    assert_eq!((&health["status"], &health["kernel_status"]), (&json!("healthy"), &json!("idle")));
    assert_eq!(health["pool"]["total"], health["pool"]["idle"]);
    assert_eq!(health["pool"]["busy"], 0);
    let memory = health["memory_usage"].as_str().unwrap().strip_suffix("MB").unwrap();
    assert!(memory.parse::<u64>().unwrap() > 0);
    for field in ["version", "uptime", "worker_id"] {
        assert!(health[field].is_string(), "{field}");
    }
}

#[tokio::test]
async fn ready_says_which_isolation_is_there() {
    assert_eq!(Server::new().call("GET", "/ready").await.json(), json!({"status": "ready", "isolation": "process"}));
}

#[tokio::test]
async fn every_metric_has_its_type_from_the_start() {
    let server = Server::new();
    server.call("GET", "/nothing").await;
    let answer = server.call("GET", "/metrics").await;
    assert!(answer.header("content-type").starts_with("text/plain"));
    for (name, kind) in [
        ("fumehood_http_requests_total", "counter"),
        ("fumehood_http_request_duration_seconds", "histogram"),
        ("fumehood_executions_total", "counter"),
        ("fumehood_executions_refused_total", "counter"),
        ("fumehood_execution_duration_seconds", "histogram"),
        ("fumehood_execution_start_seconds", "histogram"),
        ("fumehood_executions_running", "gauge"),
        ("fumehood_executions_queued", "gauge"),
        ("fumehood_capacity", "gauge"),
        ("fumehood_process_resident_memory_bytes", "gauge"),
        ("fumehood_build_info", "gauge"),
    ] {
        assert!(answer.text().contains(&format!("# TYPE {name} {kind}\n")), "{name}:\n{}", answer.text());
    }
    let unmatched = r#"fumehood_http_requests_total{method="GET",route="unmatched",status="404"}"#;
    assert!(answer.text().contains(unmatched), "{}", answer.text());
    assert!(answer.text().contains(r#"fumehood_executions_total{outcome="oom_killed"}"#));
}

#[test]
fn the_description_covers_every_route() {
    let description: Value = serde_json::from_str(&openapi_json()).unwrap();
    let described: BTreeSet<String> = description["paths"].as_object().unwrap().keys().cloned().collect();
    let routed: BTreeSet<String> = paths().into_iter().map(|path| path.replace("{*", "{")).collect();
    assert_eq!(described, routed);
}

#[tokio::test]
async fn every_described_operation_exists_and_names_its_refusals() {
    let server = Server::new();
    let served = server.call("GET", "/openapi.json").await;
    assert_eq!(served.text(), openapi_json());
    for (path, methods) in served.json()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let address = path.replace("{id}", "exe_1").replace("{path}", "a");
            let answer = server.send(request(&method.to_uppercase(), &address, &[], Body::empty())).await;
            assert_ne!(answer.status, 405, "{method} {path}");
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.keys().any(|status| status.starts_with('2') || status == "101"), "{method} {path}");
            assert_eq!(
                responses["400"]["content"]["application/json"]["schema"]["$ref"], "#/components/schemas/ErrorBody",
                "{method} {path}"
            );
        }
    }
}

#[test]
fn every_reference_in_the_description_resolves() {
    fn check(value: &Value, root: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(target)) = fields.get("$ref") {
                    assert!(root.pointer(target.trim_start_matches('#')).is_some(), "{target}");
                }
                fields.values().for_each(|value| check(value, root));
            }
            Value::Array(items) => items.iter().for_each(|value| check(value, root)),
            _ => {}
        }
    }
    let description: Value = serde_json::from_str(&openapi_json()).unwrap();
    check(&description, &description);
    let schemes = description["components"]["securitySchemes"].as_object().unwrap();
    assert_eq!(schemes.keys().collect::<Vec<_>>(), ["api_key", "bearer"]);
}

#[test]
fn the_description_in_the_repository_is_current() {
    let kept = include_str!("../../../../openapi.json");
    assert_eq!(kept, openapi_json(), "run `fumehood openapi > openapi.json`");
}
