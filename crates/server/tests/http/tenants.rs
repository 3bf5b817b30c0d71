//! Tenants: keys and their scopes, what is whose, quotas, usage, the audit log.

use std::time::{Duration, Instant};

use axum::body::Body;
use fumehood_engine::ids::TenantId;
use fumehood_server::openapi_json;
use fumehood_server::store::{Key, Scope, Tenant, TenantSettings};
use serde_json::{Value, json};

use crate::kit::{Answer, Server, code, post, request};

const FAR: i64 = 4_000_000_000_000;

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

/// A tenant whose keys open everything within it; the key.
async fn with_tenant(server: &Server, name: &str, settings: Value) -> String {
    let settings: TenantSettings = serde_json::from_value(settings).unwrap();
    let made = Tenant { name: tenant(name), settings, created_ms: 1 };
    server.store.tenants().create(&made).await.unwrap();
    key(server, name, &Scope::ALL).await
}

async fn key(server: &Server, name: &str, scopes: &[Scope]) -> String {
    let scopes = scopes.iter().copied().collect();
    let (token, key) = Key::issue(tenant(name), "a test".to_owned(), scopes, None, 1).unwrap();
    server.store.keys().add(&key).await.unwrap();
    token.reveal().to_owned()
}

fn guarded() -> Server {
    Server::with(|config, _| config.require_key = true)
}

async fn get(server: &Server, key: &str, path: &str) -> Answer {
    ask(server, key, "GET", path).await
}

async fn ask(server: &Server, key: &str, method: &str, path: &str) -> Answer {
    server.send(request(method, path, &[("x-api-key", key)], Body::empty())).await
}

async fn send(server: &Server, key: &str, path: &str, body: &Value) -> Answer {
    server.send(post(path, &[("x-api-key", key)], body)).await
}

async fn put(server: &Server, key: &str, path: &str, body: &Value) -> Answer {
    let headers = [("x-api-key", key), ("content-type", "application/json")];
    server.send(request("PUT", path, &headers, Body::from(body.to_string()))).await
}

/// Begins an execution that goes on until it is cancelled.
async fn hang(server: &Server, key: &str) -> Answer {
    let answer = send(server, key, "/v1/executions", &json!({"code": r#"["hang"]"#, "mode": "async"})).await;
    let path = format!("/v1/executions/{}", answer.json()["id"].as_str().unwrap());
    let until = Instant::now() + Duration::from_secs(20);
    while get(server, key, &path).await.json()["status"] != "running" {
        assert!(Instant::now() < until, "it does not begin");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    answer
}

/// Every operation of the interface.
fn operations() -> Vec<(String, String)> {
    let description: Value = serde_json::from_str(&openapi_json()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        all.extend(methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())));
    }
    all
}

#[tokio::test]
async fn every_route_needs_a_scope_and_refuses_a_key_without_it_by_name() {
    let server = guarded();
    let mut checked = 0;
    for (method, path) in operations() {
        if ["/health", "/ready", "/openapi.json", "/metrics"].contains(&path.as_str()) {
            continue;
        }
        let own_affairs = ["/v1/tenants", "/v1/keys", "/v1/audit", "/v1/queue"];
        let needed = match method.as_str() {
            _ if own_affairs.iter().any(|prefix| path.starts_with(prefix)) => Scope::Admin,
            "GET" if !path.ends_with("/ws") => Scope::Read,
            _ => Scope::Run,
        };
        let address = path.replace("{id}", "exe_1").replace("{path}", "a").replace("{name}", "a");
        for scope in Scope::ALL {
            let key = key(&server, "default", &[scope]).await;
            let answer = ask(&server, &key, &method, &address).await;
            if scope == needed || scope == Scope::Admin {
                assert!(
                    ![401, 403].contains(&answer.status.as_u16()),
                    "{method} {path} with {scope}: {}",
                    answer.text()
                );
            } else {
                assert_eq!(answer.refusal().1, "forbidden", "{method} {path} with {scope}");
                assert!(answer.text().contains(&format!("'{needed}'")), "{method} {path}: {}", answer.text());
            }
        }
        checked += 1;
    }
    assert!(checked > 35, "{checked}");
}

#[tokio::test]
async fn another_tenants_object_is_a_404_on_every_route() {
    let server = guarded();
    let (mine, other) = (with_tenant(&server, "mine", json!({})).await, with_tenant(&server, "other", json!({})).await);
    let script = json!([{"file": "a", "content": "secret"}]).to_string();
    let run = send(&server, &mine, "/v1/executions", &json!({"code": script, "collect": ["*"]})).await.json();
    let session = send(&server, &mine, "/v1/sessions", &json!({})).await.json();
    let operator = key(&server, "default", &[Scope::Admin]).await;

    let mut checked = 0;
    for (method, path) in operations() {
        let (id, unknown) = match path.split('/').nth(2) {
            Some("executions") => (&run["id"], "exe_0"),
            Some("sessions") => (&session["id"], "ses_0"),
            _ => continue,
        };
        if !path.contains("{id}") {
            continue;
        }
        let at = |id: &str| path.replace("{id}", id).replace("{path}", "a");
        let of = async |key: &str, id: &str| {
            let headers = [("x-api-key", key), ("content-type", "application/json")];
            server.send(request(&method, &at(id), &headers, Body::from(r#"{"code": "[]"}"#))).await
        };
        let id = id.as_str().unwrap();
        for stranger in [&other, &operator] {
            let (theirs, none) = (of(stranger, id).await, of(stranger, unknown).await);
            assert_eq!(theirs.refusal(), (404, "not_found".to_owned(), String::new()), "{method} {path}");
            assert_eq!(
                theirs.json()["error"]["message"],
                none.json()["error"]["message"],
                "{method} {path}: it tells another tenant's from none"
            );
        }
        checked += 1;
        if method == "DELETE" && id.starts_with("exe_") {
            // The others still need it.
            continue;
        }
        let own = of(&mine, id).await;
        let gone = own.status == 404 && own.text().contains("of this id");
        assert!(!gone, "{method} {path}: {}", own.text());
    }
    assert!(checked > 20, "{checked}");
    // The id of a session in the body of a route.
    let named = json!({"code": "[]", "session_id": session["id"]});
    assert_eq!(send(&server, &other, "/exec", &named).await.refusal().2, "session_id");
    for list in ["/v1/executions", "/v1/sessions"] {
        let field = list.rsplit('/').next().unwrap();
        assert_eq!(get(&server, &mine, list).await.json()[field].as_array().unwrap().len(), 1, "{list}");
        for stranger in [&other, &operator] {
            assert_eq!(get(&server, stranger, list).await.json()[field], json!([]), "{list}");
        }
    }
}

#[tokio::test]
async fn the_queue_shows_a_tenant_its_own_jobs_and_operators_all() {
    let server = guarded();
    let of = async |name: &str| {
        let run = with_tenant(&server, name, json!({})).await;
        let job = hang(&server, &run).await.json()["id"].clone();
        (key(&server, name, &[Scope::Admin]).await, job)
    };
    let ((mine, my_job), (_, other_job)) = (of("mine").await, of("other").await);
    let operator = key(&server, "default", &[Scope::Admin]).await;
    let seen = async |key: &str, path: &str| {
        let jobs = get(&server, key, path).await.json()["jobs"].clone();
        let ids = jobs.as_array().unwrap_or_else(|| panic!("{jobs}")).iter();
        ids.map(|job| job["execution_id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(json!(seen(&mine, "/v1/queue").await), json!([my_job]));
    assert_eq!(json!(seen(&operator, "/v1/queue").await), json!([my_job, other_job]));
    assert_eq!(json!(seen(&operator, "/v1/queue?tenant=other").await), json!([other_job]));
    assert!(get(&server, &mine, "/v1/queue?tenant=other").await.status.is_client_error());
    let retry = format!("/v1/queue/{}/retry", other_job.as_str().unwrap());
    assert_eq!(ask(&server, &mine, "POST", &retry).await.refusal().0, 404);
    assert_eq!(ask(&server, &operator, "POST", &retry).await.refusal().0, 409, "it is not dead");
}

#[tokio::test]
async fn idempotency_keys_of_tenants_are_apart() {
    let server = guarded();
    let (one, two) = (with_tenant(&server, "one", json!({})).await, with_tenant(&server, "two", json!({})).await);
    let run = async |key: &str| {
        let headers = [("x-api-key", key), ("idempotency-key", "k")];
        server.send(post("/v1/executions", &headers, &code(&json!([])))).await.json()["id"].clone()
    };
    assert_ne!(run(&one).await, run(&two).await);
    assert_eq!(run(&one).await, run(&one).await);
}

#[tokio::test]
async fn a_key_is_told_once_and_opens_until_it_is_revoked_or_expires() {
    let server = guarded();
    let admin = key(&server, "default", &[Scope::Admin]).await;
    let made = send(&server, &admin, "/v1/keys", &json!({"name": "ci", "scopes": ["read"], "expires_in_s": 60})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.header("cache-control"), "no-store");
    let made = made.json();
    let (token, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    assert!(token.starts_with("fhk_") && made["scopes"] == json!(["read"]) && made["expires_at"].is_string(), "{made}");
    assert_eq!(get(&server, token, "/v1/executions").await.status, 200);
    let kept = get(&server, &admin, &format!("/v1/keys/{id}")).await;
    assert!(kept.json()["valid"] == true && !kept.text().contains(&token[32..]), "{}", kept.text());
    assert!(!get(&server, &admin, "/v1/keys").await.text().contains(&token[32..]));
    // One letter off.
    let mut wrong = token.to_owned();
    wrong.pop();
    assert_eq!(get(&server, &wrong, "/v1/executions").await.refusal().0, 401);

    let revoked = ask(&server, &admin, "DELETE", &format!("/v1/keys/{id}")).await.json();
    assert!(revoked["revoked_at"].is_string() && revoked["valid"] == false, "{revoked}");
    assert_eq!(get(&server, token, "/v1/executions").await.refusal().0, 401);

    let (old, row) =
        Key::issue(tenant("default"), "old".to_owned(), Scope::ALL.into_iter().collect(), Some(5), 1).unwrap();
    server.store.keys().add(&row).await.unwrap();
    assert_eq!(get(&server, old.reveal(), "/v1/executions").await.refusal().0, 401);
    let rotate = format!("/v1/keys/{}/rotate", row.id);
    assert_eq!(send(&server, &admin, &rotate, &json!({})).await.refusal().0, 409);
}

#[tokio::test]
async fn a_rotated_key_is_valid_for_its_overlap_only() {
    let server = guarded();
    let admin = key(&server, "default", &[Scope::Admin]).await;
    let create = async || send(&server, &admin, "/v1/keys", &json!({"name": "a"})).await.json();
    for (overlap, old_opens) in [(json!({}), 200), (json!({"overlap_s": 60}), 200), (json!({"overlap_s": 0}), 401)] {
        let old = create().await;
        let (token, id) = (old["key"].as_str().unwrap(), old["id"].as_str().unwrap());
        assert_eq!(get(&server, token, "/v1/executions").await.status, 200);
        let new = send(&server, &admin, &format!("/v1/keys/{id}/rotate"), &overlap).await;
        assert_eq!(new.status, 201, "{}", new.text());
        assert_eq!(get(&server, new.json()["key"].as_str().unwrap(), "/v1/executions").await.status, 200);
        assert_eq!(get(&server, token, "/v1/executions").await.status, old_opens, "{overlap}");
        assert!(get(&server, &admin, &format!("/v1/keys/{id}")).await.json()["expires_at"].is_string());
    }
}

#[tokio::test]
async fn without_a_demand_for_keys_one_is_heeded_all_the_same() {
    let server = Server::new();
    let mine = with_tenant(&server, "mine", json!({})).await;
    send(&server, &mine, "/v1/executions", &code(&json!([]))).await;
    assert_eq!(get(&server, &mine, "/v1/executions").await.json()["executions"].as_array().unwrap().len(), 1);
    assert_eq!(server.call("GET", "/v1/executions").await.json()["executions"], json!([]));
    // Clients made for other services always send something.
    assert_eq!(get(&server, "e2b_0000", "/v1/executions").await.status, 200);
    assert_eq!(get(&server, "fhk_1_2", "/v1/executions").await.refusal().0, 401);
}

#[tokio::test]
async fn an_administrator_of_a_tenant_rules_over_it_alone() {
    let server = guarded();
    let operator = key(&server, "default", &[Scope::Admin]).await;
    let made = json!({"name": "acme", "quotas": {"max_concurrent": 2}});
    let created = send(&server, &operator, "/v1/tenants", &made).await;
    assert_eq!((created.status.as_u16(), created.header("location")), (201, "/v1/tenants/acme"));
    assert_eq!(send(&server, &operator, "/v1/tenants", &made).await.refusal().0, 409);
    let admin =
        send(&server, &operator, "/v1/keys", &json!({"name": "a", "scopes": ["admin"], "tenant": "acme"})).await;
    let admin = admin.json()["key"].as_str().unwrap().to_owned();

    let own = get(&server, &admin, "/v1/tenants").await.json();
    assert_eq!((own["tenants"].as_array().unwrap().len(), &own["tenants"][0]["name"]), (1, &json!("acme")));
    assert_eq!(get(&server, &operator, "/v1/tenants").await.json()["tenants"].as_array().unwrap().len(), 2);
    assert_eq!(send(&server, &admin, "/v1/tenants", &json!({"name": "b"})).await.refusal().0, 403);
    assert_eq!(put(&server, &admin, "/v1/tenants/acme", &json!({})).await.refusal().0, 403);
    for theirs in
        ["/v1/tenants/default", "/v1/usage?tenant=default", "/v1/audit?tenant=default", "/v1/keys?tenant=default"]
    {
        assert_eq!(get(&server, &admin, theirs).await.refusal().0, 404, "{theirs}");
    }
    let foreign = server.store.keys().list(Some(&tenant("default"))).await.unwrap()[0].id.to_string();
    for (method, path) in [("GET", ""), ("DELETE", "")] {
        assert_eq!(ask(&server, &admin, method, &format!("/v1/keys/{foreign}{path}")).await.refusal().0, 404);
    }
    assert_eq!(send(&server, &admin, &format!("/v1/keys/{foreign}/rotate"), &json!({})).await.refusal().0, 404);
    assert_eq!(send(&server, &admin, "/v1/keys", &json!({"name": "x", "tenant": "default"})).await.refusal().0, 404);
    let own = send(&server, &admin, "/v1/keys", &json!({"name": "x"})).await.json();
    assert_eq!(own["tenant"], "acme");

    // With its tenant go its keys and what runs.
    let running = hang(&server, &admin).await.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(ask(&server, &operator, "DELETE", "/v1/tenants/acme").await.status, 204);
    assert_eq!(get(&server, &admin, "/v1/executions").await.refusal().0, 401);
    let id = fumehood_engine::ids::ExecutionId::parse(&running).unwrap();
    server.engine.events(&id).unwrap().finished().await;
    assert_eq!(send(&server, &operator, "/v1/tenants", &made).await.refusal().0, 409, "names are not given again");
    assert_eq!(ask(&server, &operator, "DELETE", "/v1/tenants/default").await.refusal().0, 409);
}

#[tokio::test]
async fn a_tenant_at_its_quota_is_told_what_and_when() {
    let server = guarded();
    let key = with_tenant(&server, "acme", json!({"quotas": {"max_concurrent": 1, "executions_per_day": 30}})).await;
    let running = hang(&server, &key).await;
    assert_eq!(running.status, 202);
    let again = code(&json!([]));
    for (path, body) in [("/v1/executions", &again), ("/v1/sessions", &json!({}))] {
        let answer = send(&server, &key, path, body).await;
        assert_eq!(answer.refusal(), (429, "quota_exceeded".to_owned(), String::new()));
        assert_eq!(answer.header("retry-after"), "1");
        let quota = &answer.json()["error"]["quota"];
        assert_eq!(*quota, json!({"name": "max_concurrent", "limit": 1, "used": 1, "resets_at": null}));
    }
    let id = running.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(ask(&server, &key, "POST", &format!("/v1/executions/{id}/cancel")).await.status, 200);
    // Whoever has its answer may come again at once.
    for _ in 0..29 {
        let answer = send(&server, &key, "/v1/executions", &code(&json!([]))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let refused = send(&server, &key, "/v1/executions", &code(&json!([]))).await;
    let quota = refused.json()["error"]["quota"].clone();
    assert_eq!((&quota["name"], &quota["used"]), (&json!("executions_per_day"), &json!(30)));
    assert!(quota["resets_at"].as_str().unwrap().ends_with("T00:00:00.000Z"), "{quota}");
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=24 * 3600).contains(&wait), "{wait}");
    assert!(refused.text().contains("30 of 30 executions"), "{}", refused.text());
    // Another tenant does not notice.
    let other = with_tenant(&server, "other", json!({})).await;
    assert_eq!(send(&server, &other, "/v1/executions", &code(&json!([]))).await.status, 200);

    let usage = get(&server, &key, "/v1/usage").await.json();
    assert_eq!((&usage["today"]["executions"], &usage["today"]["failures"]), (&json!(30), &json!(1)));
    assert_eq!((&usage["now"]["sandboxes"], &usage["quotas"]["max_concurrent"]), (&json!(0), &json!(1)));
    assert_eq!(usage["days"][0]["executions"], 30);
    // What the operator changes counts at once.
    let operator = self::key(&server, "default", &[Scope::Admin]).await;
    put(&server, &operator, "/v1/tenants/acme", &json!({"quotas": {"executions_per_day": 31}})).await;
    assert_eq!(send(&server, &key, "/v1/executions", &code(&json!([]))).await.status, 200);
    assert_eq!(send(&server, &key, "/v1/executions", &code(&json!([]))).await.status, 429);
}

#[tokio::test]
async fn what_was_answered_before_is_answered_again_beyond_the_quota() {
    let server = guarded();
    let key = with_tenant(&server, "acme", json!({"quotas": {"executions_per_day": 1}})).await;
    let headers = [("x-api-key", key.as_str()), ("idempotency-key", "k")];
    let first = server.send(post("/v1/executions", &headers, &code(&json!([])))).await;
    assert_eq!(first.status, 200);
    assert_eq!(server.send(post("/v1/executions", &headers, &code(&json!([])))).await.json()["id"], first.json()["id"]);
    assert_eq!(send(&server, &key, "/v1/executions", &code(&json!([]))).await.refusal().1, "quota_exceeded");
}

#[tokio::test]
async fn the_disk_quota_counts_what_open_sessions_were_promised_and_results() {
    let server = guarded();
    let key = with_tenant(&server, "acme", json!({"quotas": {"disk_mb": 300}})).await;
    let open = async |disk: u64| send(&server, &key, "/v1/sessions", &json!({"limits": {"disk_mb": disk}})).await;
    let refused = open(400).await;
    assert_eq!(refused.json()["error"]["quota"]["name"], "disk_mb", "{}", refused.text());
    assert_eq!(send(&server, &key, "/v1/executions", &code(&json!([]))).await.status, 200);
    let usage = get(&server, &key, "/v1/usage").await.json();
    assert_eq!(usage["now"]["disk_mb"], 1, "{usage}");
}

#[tokio::test]
async fn servers_on_one_database_add_to_the_same_counters() {
    let one = guarded();
    let two = Server::on(one.store.clone(), |config, _| config.require_key = true);
    let key = with_tenant(&one, "acme", json!({"quotas": {"executions_per_day": 5}})).await;
    for server in [&one, &two, &one] {
        assert_eq!(send(server, &key, "/v1/executions", &code(&json!([]))).await.status, 200);
    }
    // Each learns of the other's within seconds.
    let until = Instant::now() + Duration::from_secs(20);
    for server in [&one, &two] {
        while get(server, &key, "/v1/usage").await.json()["today"]["executions"] != 3 {
            assert!(Instant::now() < until, "{}", get(server, &key, "/v1/usage").await.text());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    one.state.close().await;
    two.state.close().await;
    let days = one.store.usage().days(&tenant("acme"), 0, FAR).await.unwrap();
    assert_eq!((days.len(), days[0].1.executions), (1, 3));
}

#[tokio::test]
async fn the_audit_log_tells_who_did_what_and_what_came_of_it() {
    let server = guarded();
    let silent = with_tenant(&server, "silent", json!({})).await;
    let open = with_tenant(&server, "open", json!({"keep_code": true, "quotas": {"executions_per_day": 1}})).await;
    let script = json!([{"exit": 3}]);
    let headers = [("x-api-key", silent.as_str()), ("x-request-id", "req-7")];
    let run = server.send(post("/v1/executions", &headers, &code(&script))).await.json();
    send(&server, &open, "/v1/executions", &code(&script)).await;
    send(&server, &open, "/v1/executions", &code(&script)).await;
    get(&server, "fhk_1_2", "/v1/executions").await;

    let log = async |key: &str, query: &str| get(&server, key, &format!("/v1/audit{query}")).await.json();
    let own = log(&silent, "").await;
    let entries = own["entries"].as_array().unwrap();
    let acts: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(acts, ["execution.ended", "execution.accepted"]);
    assert!(entries.iter().all(|entry| entry["tenant"] == "silent" && entry["object"] == run["id"]), "{own}");
    assert_eq!((&entries[0]["outcome"], &entries[1]["request_id"]), (&json!("exited"), &json!("req-7")));
    assert!(entries[1]["key_id"].as_str().unwrap().starts_with("key_") && entries[1]["policy"].is_string());
    assert_eq!((entries[1]["code_sha256"].as_str().unwrap().len(), &entries[1]["code"]), (64, &Value::Null));

    let kept = log(&open, "?action=execution.accepted").await;
    assert_eq!(kept["entries"][0]["code"], script.to_string());
    let refused = log(&open, "?action=request.refused").await;
    assert_eq!(
        (&refused["entries"][0]["object"], &refused["entries"][0]["outcome"]),
        (&json!("POST /v1/executions"), &json!("quota_exceeded"))
    );
    // Page by page, and nobody else's.
    let first = log(&open, "?limit=1").await;
    let second = log(&open, &format!("?limit=2&cursor={}", first["next_cursor"].as_str().unwrap())).await;
    assert_eq!((second["entries"].as_array().unwrap().len(), &second["next_cursor"]), (2, &Value::Null));
    let operator = key(&server, "default", &[Scope::Admin]).await;
    let all = log(&operator, "").await;
    assert_eq!(all["entries"].as_array().unwrap().len(), 6, "{all}");
    assert_eq!(log(&operator, "?tenant=default").await["entries"][0]["outcome"], "unauthorized");
    assert_eq!(log(&operator, "?since=2100-01-01T00:00:00Z").await["entries"], json!([]));
    assert_eq!(get(&server, &operator, "/v1/audit?since=today").await.refusal().2, "since");
}

#[tokio::test]
async fn a_flood_of_refusals_is_noted_in_part() {
    let server = guarded();
    for _ in 0..100 {
        get(&server, "fhk_1_2", "/v1/executions").await;
    }
    server.state.close().await;
    let noted =
        server.store.audit().page(&fumehood_server::store::AuditFilter { limit: 1000, ..Default::default() }).await;
    assert_eq!(noted.unwrap().len(), 20);
}

#[tokio::test]
async fn nothing_is_lost_at_a_regular_end() {
    let server = guarded();
    let key = with_tenant(&server, "acme", json!({})).await;
    send(&server, &key, "/v1/sessions", &json!({})).await;
    hang(&server, &key).await;
    server.engine.shutdown(Duration::ZERO).await;
    server.state.close().await;
    let filter = fumehood_server::store::AuditFilter { limit: 100, ..Default::default() };
    let noted = server.store.audit().page(&filter).await.unwrap();
    let mut acts: Vec<_> = noted.iter().map(|entry| entry.action.as_str()).collect();
    acts.sort_unstable();
    assert_eq!(acts, ["execution.accepted", "execution.ended", "session.closed", "session.opened"]);
    let used = server.store.usage().days(&tenant("acme"), 0, FAR).await.unwrap()[0].1;
    assert_eq!((used.executions, used.failures), (1, 1));
    let keys = server.store.keys().list(Some(&tenant("acme"))).await.unwrap();
    assert!(keys[0].used_ms.is_some(), "its last use is noted");
}
