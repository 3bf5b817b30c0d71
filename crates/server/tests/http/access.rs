//! Who may come in.

use axum::body::Body;
use fumehood_server::{ApiKey, paths};
use serde_json::json;

use crate::kit::{Answer, Server, post, request};

fn guarded() -> Server {
    Server::with(|config, _| {
        let hash = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        config.api_keys = vec![ApiKey::parse("first").unwrap(), ApiKey::parse(hash).unwrap()];
    })
}

async fn get(server: &Server, path: &str, headers: &[(&str, &str)]) -> Answer {
    server.send(request("GET", path, headers, Body::empty())).await
}

#[tokio::test]
async fn every_route_needs_a_key_but_those_for_probes() {
    let server = guarded();
    for path in paths() {
        let path = path.replace("{id}", "exe_1").replace("{*path}", "a");
        let method = if path.ends_with("rotate") { "POST" } else { "GET" };
        let answer = server.call(method, &path).await;
        if ["/health", "/ready", "/openapi.json"].contains(&path.as_str()) {
            assert_eq!(answer.status, 200, "{path}");
        } else {
            assert_eq!(answer.refusal().1, "unauthorized", "{path}");
            assert_eq!(answer.header("www-authenticate"), "Bearer");
        }
    }
    assert_eq!(server.call("GET", "/nothing").await.refusal().0, 401);
    let unkeyed = post("/exec", &[], &json!({"code": "[]"}));
    assert_eq!(server.send(unkeyed).await.refusal().0, 401);
}

#[tokio::test]
async fn a_key_opens_in_either_header_whether_configured_plain_or_hashed() {
    let server = guarded();
    for key in ["first", "secret"] {
        let bearer = format!("Bearer {key}");
        assert_eq!(get(&server, "/v1/executions", &[("authorization", &bearer)]).await.status, 200);
        assert_eq!(
            get(&server, "/v1/executions", &[("authorization", &bearer.replace("Bearer", "bearer"))]).await.status,
            200
        );
        assert_eq!(get(&server, "/v1/executions", &[("x-api-key", key)]).await.status, 200);
    }
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    for (name, value) in [
        ("x-api-key", "First"),
        ("x-api-key", ""),
        ("x-api-key", hash),
        ("authorization", "Bearer wrong"),
        ("authorization", "Basic first"),
        ("authorization", "first"),
    ] {
        assert_eq!(get(&server, "/v1/executions", &[(name, value)]).await.refusal().0, 401, "{name}: {value}");
    }
}

#[tokio::test]
async fn metrics_need_a_key_unless_told_otherwise() {
    assert_eq!(guarded().call("GET", "/metrics").await.status, 401);
    let open = Server::with(|config, _| {
        config.api_keys = vec![ApiKey::parse("first").unwrap()];
        config.metrics_without_key = true;
    });
    assert_eq!(open.call("GET", "/metrics").await.status, 200);
}

#[tokio::test]
async fn without_a_key_only_loopback_names_are_answered() {
    let server = Server::new();
    for host in ["localhost:8080", "127.0.0.1", "127.0.0.9:1", "[::1]:8080", "LOCALHOST"] {
        assert_eq!(get(&server, "/health", &[("host", host)]).await.status, 200, "{host}");
    }
    for host in ["rebound.example:8080", "localhost.rebound.example", "192.168.1.2:8080", "", "a b"] {
        let answer = get(&server, "/health", &[("host", host)]).await;
        assert_eq!(answer.refusal().1, "forbidden", "{host:?}");
    }
    assert_eq!(get(&guarded(), "/health", &[("host", "sandbox.example")]).await.status, 200);
}

#[tokio::test]
async fn without_a_key_no_web_page_of_another_origin_is_answered() {
    let server = Server::new();
    let host = ("host", "localhost:8080");
    assert_eq!(get(&server, "/health", &[host, ("origin", "http://localhost:8080")]).await.status, 200);
    for origin in
        ["https://evil.example", "http://localhost:3000", "null", "http://localhost:8080.evil.example", "file://"]
    {
        let answer = get(&server, "/health", &[host, ("origin", origin)]).await;
        assert_eq!(answer.refusal().1, "forbidden", "{origin}");
    }
}

#[tokio::test]
async fn no_answer_invites_other_origins() {
    let server = guarded();
    for path in ["/health", "/nothing", "/openapi.json"] {
        let answer = get(&server, path, &[("origin", "https://evil.example")]).await;
        assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("access-control")), "{path}");
    }
}
