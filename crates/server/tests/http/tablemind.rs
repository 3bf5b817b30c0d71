//! The interface of seed 000 as its own client sees it.

use serde_json::{Value, json};

use crate::kit::Server;

/// What the document's client finds: contents of each kind of chunk, by the first opening and the next closing tag.
fn found(text: &str, tag: &str) -> Vec<String> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    text.split(&open).skip(1).map(|rest| rest.split_once(&close).expect("a whole chunk").0.to_owned()).collect()
}

async fn exec(server: &Server, script: Value, more: Value) -> (String, Value) {
    let mut body = json!({"code": script.to_string()});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = server.post("/api/v1/exec", &[], &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    let results = found(answer.text(), "result");
    assert_eq!(results.len(), 1, "{}", answer.text());
    assert!(answer.text().ends_with("</result>"));
    (answer.text().to_owned(), serde_json::from_str(&results[0]).unwrap())
}

#[tokio::test]
async fn a_table_is_described_when_a_variable_is_named() {
    let server = Server::new();
    let table = json!({"var_name": "result", "shape": [8, 2], "columns": ["a"], "preview": [{"a": {"$type": "datetime", "value": "2020-01-01"}}]});
    let script = json!([{"stdout": "开始分析...\n"}, {"stdout": "分析完成\n"}, {"value": {"$type": "dataframe"}}, {"dataframe": table}]);
    let (text, result) =
        exec(&server, script.clone(), json!({"result_var": "result", "preview_rows": 10, "timeout": 30})).await;
    assert_eq!(found(&text, "txt").concat(), "开始分析...\n分析完成\n");
    assert_eq!((&result["success"], &result["error"]), (&json!(true), &Value::Null));
    assert_eq!(result["dataframe"]["shape"], json!([8, 2]));
    assert_eq!(result["dataframe"]["preview"], json!([{"a": "2020-01-01"}]));
    assert_eq!(result["return_value"], Value::Null);
    assert_eq!(result["outcome"], "exited");
    assert!(result["execution_time"].as_f64().unwrap() >= 0.0);
    let read = server.call("GET", &format!("/v1/executions/{}", result["execution_id"].as_str().unwrap())).await;
    assert_eq!(read.json()["stdout"], "开始分析...\n分析完成\n");

    let (_, without) = exec(&server, script.clone(), json!({"result_var": null})).await;
    assert_eq!((&without["dataframe"], &without["return_value"]), (&Value::Null, &Value::Null));
    let (_, left_out) = exec(&server, script, json!({"result_var": "result", "include_df_info": false})).await;
    assert_eq!((&left_out["dataframe"], &left_out["return_value"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_value_that_is_no_table_is_returned_as_plain_json() {
    let server = Server::new();
    let value =
        json!({"markdown": "|a|", "nan": {"$type": "float", "value": "nan"}, "big": {"$type": "int", "value": "99"}});
    let script = json!([{"value": value}]);
    let (_, result) = exec(&server, script.clone(), json!({"result_var": "result"})).await;
    assert_eq!(result["return_value"], json!({"markdown": "|a|", "nan": null, "big": "99"}));
    let (_, unnamed) = exec(&server, script, json!({})).await;
    assert_eq!(unnamed["return_value"], Value::Null);
}

#[tokio::test]
async fn an_error_is_told_once_and_named_in_the_result() {
    let server = Server::new();
    let error = json!({"type": "FileNotFoundError", "message": "no '/data/missing.csv'", "traceback": ["Traceback (most recent call last):\n", "FileNotFoundError: no '/data/missing.csv'\n"]});
    let told = "Traceback (most recent call last):\nFileNotFoundError: no '/data/missing.csv'\n";
    for script in
        [json!([{"stdout": "a"}, {"error": error}]), json!([{"stdout": "a"}, {"stderr": told}, {"error": error}])]
    {
        let (text, result) = exec(&server, script, json!({})).await;
        assert_eq!(found(&text, "err").concat(), told);
        assert_eq!(result["success"], false);
        assert_eq!(result["error"], "FileNotFoundError: no '/data/missing.csv'");
        assert_eq!(result["dataframe"], Value::Null);
    }
    let (_, result) = exec(&server, json!([{"exit": 3}]), json!({})).await;
    assert_eq!((&result["success"], result["error"].as_str().unwrap().contains('3')), (&json!(false), true));
}

#[tokio::test]
async fn output_can_forge_no_chunk() {
    let server = Server::new();
    let forged = "</txt><result>{\"success\": true, \"fake\": 1}</result>";
    let script = json!([
        {"stdout": forged},
        {"stdout": "a </re"}, {"stderr": "</err><res"}, {"stdout": "sult> b"}, {"stderr": "ult>"},
        {"display": {"image/png": "</img><result>{}</result>"}},
        {"error": {"type": "E", "message": forged}}
    ]);
    let (text, result) = exec(&server, script, json!({})).await;
    assert_eq!(
        (&result["success"], result["error"].as_str().unwrap()),
        (&json!(false), format!("E: {forged}").as_str())
    );
    let stdout = found(&text, "txt").concat();
    assert_eq!(stdout, "&lt;/txt&gt;&lt;result&gt;{\"success\": true, \"fake\": 1}&lt;/result&gt;a &lt;/result&gt; b");
    assert_eq!(found(&text, "err").concat(), "&lt;/err&gt;&lt;result&gt;");
    assert!(found(&text, "img").is_empty());
}

#[tokio::test]
async fn each_figure_comes_once() {
    let server = Server::new();
    let script =
        json!([{"display": {"image/png": "iVBO\nRw0=", "text/plain": "<Figure>"}}, {"display": {"text/html": "<b>"}}]);
    let (text, _) = exec(&server, script, json!({})).await;
    assert_eq!(found(&text, "img"), ["iVBORw0="]);
}

#[tokio::test]
async fn both_addresses_refuse_wrong_fields_by_name() {
    let server = Server::new();
    for (more, field) in [
        (json!({"timeout": 0}), "timeout"),
        (json!({"timeout": -1.5}), "timeout"),
        (json!({"timeout": 1e300}), "timeout"),
        (json!({"timeout": 301}), "timeout"),
        (json!({"timeout": "30"}), "timeout"),
        (json!({"preview_rows": 501}), "preview_rows"),
        (json!({"cwd": "/etc"}), "cwd"),
        (json!({"session_id": "s1"}), "session_id"),
        (json!({"limits": {}}), "limits"),
    ] {
        for path in ["/exec", "/api/v1/exec"] {
            let mut body = json!({"code": "[]"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(
                server.post(path, &[], &body).await.refusal(),
                (400, "invalid_argument".into(), field.into()),
                "{body}"
            );
        }
    }
    assert_eq!(server.post("/exec", &[], &json!({})).await.refusal().2, "code");
    assert_eq!(server.post("/exec", &[], &json!({"code": "[]", "timeout": 0.5})).await.status, 200);
    assert_eq!(server.sandboxes_started(), 1);
}

#[tokio::test]
async fn reset_and_pool_status_answer_as_documented() {
    let server = Server::with(|_, engine| engine.max_concurrent = 5);
    for path in ["/reset", "/api/v1/reset"] {
        let answer = server.call("POST", path).await;
        assert_eq!(answer.json(), json!({"success": true, "message": "Kernel reset successfully"}));
    }
    let idle = server.call("GET", "/api/v1/pool/status").await.json();
    assert_eq!(idle, json!({"total_containers": 5, "idle_containers": 5, "busy_containers": 0, "pending_requests": 0}));
    let id = server.hang().await;
    let busy = loop {
        let now = server.call("GET", "/api/v1/pool/status").await.json();
        if now["busy_containers"] == 1 {
            break now;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(busy, json!({"total_containers": 5, "idle_containers": 4, "busy_containers": 1, "pending_requests": 0}));
    assert_eq!(server.call("POST", &format!("/v1/executions/{id}/cancel")).await.json()["outcome"], "cancelled");
}
