//! Templates: made, changed, looked up, used and deleted.

use axum::body::Body;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::kit::{Answer, Server, post, request};

async fn put(server: &Server, name: &str, body: &Value) -> Answer {
    let path = format!("/v1/templates/{name}");
    server.send(request("PUT", &path, &[("content-type", "application/json")], Body::from(body.to_string()))).await
}

async fn make(server: &Server, body: Value) -> Value {
    let answer = server.post("/v1/templates", &[], &body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    answer.json()
}

async fn run_in(server: &Server, template: &str) -> Value {
    let answer = server.post("/v1/executions", &[], &json!({"code": "[]", "template": template})).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn each_change_makes_a_version_and_none_changes() {
    let server = Server::new();
    let first = make(&server, json!({"name": "t", "timeout_ms": 1000})).await;
    assert_eq!((&first["version"], &first["built_in"]), (&json!(1), &json!(false)));
    assert!(first["created_at"].as_str().unwrap().ends_with('Z'));

    let second = put(&server, "t", &json!({"name": "t", "timeout_ms": 2000})).await;
    assert_eq!((second.status, &second.json()["version"]), (StatusCode::CREATED, &json!(2)));
    assert_eq!(second.header("location"), "/v1/templates/t@2");
    let same = put(&server, "t", &json!({"name": "t", "timeout_ms": 2000})).await;
    assert_eq!((same.status, &same.json()["version"]), (StatusCode::OK, &json!(2)));

    let read = |name: &'static str| {
        let server = &server;
        async move { server.call("GET", &format!("/v1/templates/{name}")).await.json()["spec"]["timeout_ms"].clone() }
    };
    assert_eq!((read("t").await, read("t@1").await), (json!(2000), json!(1000)));
    let listed = server.call("GET", "/v1/templates").await.json();
    let names: Vec<_> = listed["templates"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["default", "data-analysis", "calculator", "function", "shell", "node", "t"]);
    let listed = server.call("GET", "/v1/templates?versions=true").await.json();
    assert_eq!(listed["templates"].as_array().unwrap().len(), 8);
    assert_eq!(listed["complete"], true);
}

#[tokio::test]
async fn an_execution_says_which_version_it_ran_in() {
    let server = Server::new();
    make(&server, json!({"name": "t"})).await;
    assert_eq!(run_in(&server, "t").await["template"], "t@1");
    put(&server, "t", &json!({"name": "t", "timeout_ms": 9})).await;
    // What was looked up a moment ago is not remembered over a change.
    assert_eq!(run_in(&server, "t").await["template"], "t@2");
    assert_eq!(run_in(&server, "t@1").await["template"], "t@1");
    assert_eq!(run_in(&server, "calculator").await["template"], "calculator@1");
    assert_eq!(server.run(json!([])).await["template"], "default@1");
    for unknown in ["u", "t@3", "calculator@2", "T", "t@"] {
        let answer = server.post("/v1/executions", &[], &json!({"code": "[]", "template": unknown})).await;
        assert_eq!(answer.refusal(), (400, "invalid_argument".to_owned(), "template".to_owned()), "{unknown}");
        let answer = server.post("/v1/sessions", &[], &json!({"template": unknown})).await;
        assert_eq!(answer.refusal(), (400, "invalid_argument".to_owned(), "template".to_owned()), "{unknown}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let server = Server::new();
    for (body, field) in [
        (json!({}), "name"),
        (json!({"name": "A"}), "name"),
        (json!({"name": "t", "memory": 1}), "memory"),
        (json!({"name": "t", "limits": {"memory_mb": 0}}), "limits.memory_mb"),
        (json!({"name": "t", "limits": {"memory": 1}}), "limits.memory"),
        (json!({"name": "t", "limits": {"memory_mb": 1 << 30}}), "limits.memory_mb"),
        (json!({"name": "t", "limits": {"network": true}}), "limits.network"),
        (json!({"name": "t", "timeout_ms": -1}), "timeout_ms"),
        (json!({"name": "t", "languages": ["cobol"]}), "languages[0]"),
        (json!({"name": "t", "network": "internet"}), "network"),
        (json!({"name": "t", "policy": "strict"}), "policy"),
        (json!({"name": "t", "isolation": "microvm"}), "isolation"),
        (json!({"name": "t", "image": "nowhere"}), "image"),
        (json!({"name": "t", "packages": ["numpy", "torch"]}), "packages[1]"),
        (json!({"name": "t", "packages": ["numpy==1.0"]}), "packages[0]"),
        (json!({"name": "t", "extends": "nothing"}), "extends"),
        (json!({"name": "t", "extends": "t"}), "extends"),
        (json!({"name": "t", "env": {"1A": ""}}), "env"),
        (json!({"name": "t", "pool": {"min_ready": 2, "max_ready": 1}}), "pool.min_ready"),
    ] {
        let answer = server.post("/v1/templates", &[], &body).await;
        assert_eq!(answer.refusal(), (400, "invalid_argument".to_owned(), field.to_owned()), "{body}");
    }
    let missing = server.post("/v1/templates", &[], &json!({"name": "t", "packages": ["torch"]})).await;
    assert!(missing.text().contains("is not in image"), "{}", missing.text());
    make(&server, json!({"name": "t", "image": "other", "packages": ["NumPy==2.1.3"]})).await;
}

#[tokio::test]
async fn what_it_extends_is_inherited_from_the_version_it_had_then() {
    let server = Server::new();
    make(&server, json!({"name": "base", "timeout_ms": 1000, "limits": {"memory_mb": 300, "cpu": 0.5}, "env": {"A": "1", "B": "1"}})).await;
    let child =
        make(&server, json!({"name": "child", "extends": "base", "limits": {"memory_mb": 400}, "env": {"B": "2"}}))
            .await;
    assert_eq!(child["spec"]["extends"], "base@1");
    put(&server, "base", &json!({"name": "base", "timeout_ms": 5})).await;

    let resolved = server.call("GET", "/v1/templates/child?resolved=true").await.json();
    let expected = json!({
        "name": "child", "limits": {"memory_mb": 400, "cpu": 0.5}, "timeout_ms": 1000, "env": {"A": "1", "B": "2"},
    });
    assert_eq!(resolved["spec"], expected);
    let plain = server.call("GET", "/v1/templates/child").await.json();
    assert_eq!(plain["spec"], child["spec"]);
    // The same text now means another version of its base.
    let again = put(
        &server,
        "child",
        &json!({"name": "child", "extends": "base", "limits": {"memory_mb": 400}, "env": {"B": "2"}}),
    )
    .await;
    assert_eq!((again.status, &again.json()["spec"]["extends"]), (StatusCode::CREATED, &json!("base@2")));
}

#[tokio::test]
async fn the_built_in_ones_stay_as_they_are() {
    let server = Server::new();
    let taken = server.post("/v1/templates", &[], &json!({"name": "calculator"})).await;
    assert_eq!(taken.refusal(), (409, "conflict".to_owned(), String::new()));
    assert!(taken.text().contains("extends"), "{}", taken.text());
    assert_eq!(put(&server, "shell", &json!({"name": "shell"})).await.status, StatusCode::CONFLICT);
    assert_eq!(server.call("DELETE", "/v1/templates/default?force=true").await.status, StatusCode::CONFLICT);
    let resolved = server.call("GET", "/v1/templates/calculator@1?resolved=true").await.json();
    assert_eq!((&resolved["built_in"], &resolved["spec"]["limits"]["cpu"]), (&json!(true), &json!(0.5)));
    make(&server, json!({"name": "mine", "extends": "calculator", "limits": {"memory_mb": 300}})).await;
}

#[tokio::test]
async fn a_template_in_use_is_deleted_by_force_only() {
    let server = Server::new();
    make(&server, json!({"name": "base"})).await;
    make(&server, json!({"name": "child", "extends": "base"})).await;
    let refused = server.call("DELETE", "/v1/templates/base").await;
    assert_eq!(refused.refusal(), (409, "conflict".to_owned(), String::new()));
    assert!(refused.text().contains("child"), "{}", refused.text());
    let session = server.post("/v1/sessions", &[], &json!({"template": "child"})).await.json();
    assert_eq!(session["template"], "child@1");

    assert_eq!(server.call("DELETE", "/v1/templates/base?force=true").await.status, StatusCode::NO_CONTENT);
    assert_eq!(server.call("GET", "/v1/templates/base@1").await.refusal().0, 404);
    assert_eq!(server.call("DELETE", "/v1/templates/base").await.refusal().0, 404);
    let orphan = server.post("/v1/executions", &[], &json!({"code": "[]", "template": "child"})).await;
    assert_eq!(orphan.refusal(), (400, "invalid_argument".to_owned(), "template".to_owned()));
    assert!(orphan.text().contains("base@1"), "{}", orphan.text());
    // Numbers go on: what was base@1 is not what it may be now.
    assert_eq!(make(&server, json!({"name": "base"})).await["version"], 2);
    assert_eq!(server.call("DELETE", "/v1/templates/base@2").await.refusal().2, "name");
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_and_makes_nothing() {
    let server = Server::new();
    let dry = server.post("/v1/templates?dry_run=true", &[], &json!({"name": "t", "timeout_ms": 1})).await;
    assert_eq!((dry.status, &dry.json()["version"]), (StatusCode::OK, &json!(1)));
    assert_eq!(server.call("GET", "/v1/templates/t").await.refusal().0, 404);
    make(&server, json!({"name": "t"})).await;
    let path = "/v1/templates/t?dry_run=true";
    let body = Body::from(json!({"name": "t", "timeout_ms": 1}).to_string());
    let dry = server.send(request("PUT", path, &[("content-type", "application/json")], body)).await;
    assert_eq!((dry.status, &dry.json()["version"]), (StatusCode::OK, &json!(2)));
    assert_eq!(server.call("GET", "/v1/templates/t").await.json()["version"], 1);
}

#[tokio::test]
async fn a_request_that_is_sent_twice_makes_one_template() {
    let server = Server::new();
    let send = |body: Value| server.send(post("/v1/templates", &[("idempotency-key", "k")], &body));
    let first = send(json!({"name": "t"})).await;
    let again = send(json!({"name": "t"})).await;
    assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::CREATED));
    assert_eq!((first.json(), again.header("idempotency-replayed")), (again.json(), "true"));
    assert_eq!(send(json!({"name": "u"})).await.refusal().0, 409);
    let taken = server.post("/v1/templates", &[], &json!({"name": "t"})).await;
    assert_eq!(taken.refusal(), (409, "conflict".to_owned(), String::new()));
    assert_eq!(put(&server, "u", &json!({"name": "u"})).await.refusal().0, 404);
    assert_eq!(put(&server, "t", &json!({"name": "u"})).await.refusal().2, "name");
}

#[tokio::test]
async fn a_language_that_the_template_does_not_run_is_refused() {
    let server = Server::new();
    let answer = server.post("/v1/executions", &[], &json!({"code": "[]", "template": "shell"})).await;
    assert_eq!(answer.refusal(), (400, "invalid_argument".to_owned(), "language".to_owned()));
    assert!(answer.text().contains("bash"), "{}", answer.text());
}

#[tokio::test]
async fn the_schema_is_published() {
    let schema = Server::new().call("GET", "/v1/templates/schema").await.json();
    assert_eq!((&schema["title"], &schema["type"]), (&json!("Fumehood template"), &json!("object")));
    assert!(schema["properties"]["extends"]["description"].is_string());
}
