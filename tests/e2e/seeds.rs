//! The documented examples of the five designs this product answers, as they stand there: seeds 000 to 004, without what needs a
//! network, a session or an approval.

use serde_json::{Value, json};

use crate::server::{Server, TableMind, brief, server};

/// Files of a request.
fn files(files: &[(&str, &str)]) -> Value {
    files.iter().map(|(path, content)| json!({"path": path, "content": content})).collect()
}

/// A file that an execution returned, as text.
fn artifact(server: &Server, execution: &Value, path: &str) -> String {
    let artifacts = execution["artifacts"].as_array().unwrap();
    let artifact = artifacts.iter().find(|artifact| artifact["path"] == path);
    let url = artifact.unwrap_or_else(|| panic!("no {path} in {artifacts:?}"))["url"].as_str().unwrap().to_owned();
    let (status, content) = server.request("GET", &url, None);
    assert_eq!(status, 200);
    String::from_utf8(content).unwrap()
}

fn succeeds(server: &Server, body: &Value) -> TableMind {
    let answer = server.tablemind(body);
    assert_eq!(answer.result["success"], true, "{body}: {}", answer.result);
    assert_eq!(answer.result["error"], Value::Null);
    answer
}

// Seed 000, chapter 3: the unified streaming interface.

#[test]
fn an_analysis_streams_its_text_and_returns_the_described_table() {
    let server = server!(&[], &[]);
    // Five columns, as the document's answer has.
    let write = "import pandas as pd\n\
        pd.DataFrame({c: [1.0, 2.0, 3.0, 6.0] for c in 'abcde'}).to_csv('/data/test.csv', index=False)\n";
    let code = "import pandas as pd\ndef analyze(df):\n    print('开始分析...')\n    result = df.describe()\n    print('分析完成')\n    return result\nresult = analyze(pd.read_csv('/data/test.csv'))";
    let body = json!({"code": format!("{write}{code}"), "result_var": "result", "preview_rows": 10});
    let answer = succeeds(&server, &body);
    assert_eq!(answer.txt, "开始分析...\n分析完成\n");
    assert_eq!((answer.err.as_str(), answer.img.len()), ("", 0));
    assert!(answer.result["execution_time"].as_f64().unwrap() > 0.0);
    let table = &answer.result["dataframe"];
    assert_eq!(table["var_name"], "result");
    assert_eq!(table["shape"], json!([8, 5]));
    assert_eq!(table["columns"], json!(["a", "b", "c", "d", "e"]));
    assert_eq!(table["dtypes"]["e"], "float64");
    assert_eq!(table["index"]["preview"], json!(["count", "mean", "std", "min", "25%", "50%", "75%", "max"]));
    let preview = table["preview"].as_array().unwrap();
    assert_eq!(preview.len(), 8);
    assert_eq!((&preview[0]["a"], &preview[1]["b"], &preview[7]["e"]), (&json!(4.0), &json!(3.0), &json!(6.0)));
    assert!(table["memory_usage"].as_str().unwrap().ends_with("bytes"), "{table}");
}

#[test]
fn a_table_operation_writes_its_file_and_returns_no_table() {
    let server = server!(&[], &[]);
    let write = "open('/data/input.csv', 'w').write('col1,col2\\n1,a\\n21,b\\n')\n";
    let code = "import pandas as pd\ndef operation(df, output_path):\n    print('开始处理...')\n    df['new_col'] = df['col1'] * 2\n    df.to_csv(output_path, index=False)\n    print(f'已保存到 {output_path}')\noperation(pd.read_csv('/data/input.csv'), '/data/output.csv')";
    let answer = succeeds(&server, &json!({"code": format!("{write}{code}"), "result_var": null}));
    assert_eq!(answer.txt, "开始处理...\n已保存到 /data/output.csv\n");
    assert_eq!(answer.result["dataframe"], Value::Null);
    // What it wrote, through the surface that returns files.
    let fields = json!({"files": files(&[("/data/input.csv", "col1,col2\n1,a\n21,b\n")]), "collect": ["*.csv"]});
    let execution = server.succeed(code, fields);
    assert_eq!(execution["stdout"], answer.txt);
    assert_eq!(artifact(&server, &execution, "output.csv"), "col1,col2,new_col\n1,a,2\n21,b,42\n");
}

#[test]
fn a_failure_keeps_its_output_shows_the_traceback_and_says_why_in_the_words_of_the_document() {
    let server = server!(&[], &[]);
    let code = "print('开始处理数据...')\nimport pandas as pd\ndf = pd.read_csv('/data/missing.csv')";
    for route in ["/exec", "/api/v1/exec"] {
        let (status, bytes) = server.request("POST", route, Some(&json!({"code": code, "result_var": "df"})));
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(status, 200, "{text}");
        // The three parts come in this order, text perhaps in several pieces.
        let (txt, rest) = text.split_once("<err>").unwrap();
        assert_eq!(txt.replace("</txt><txt>", ""), "<txt>开始处理数据...\n</txt>");
        let (err, result) = rest.split_once("</err><result>").unwrap();
        assert!(err.starts_with("Traceback (most recent call last):\n"), "{text}");
        assert!(err.contains("line 3, in <module>"), "{text}");
        let error = "FileNotFoundError: [Errno 2] No such file or directory: '/data/missing.csv'";
        assert!(err.ends_with(&format!("{error}\n")), "{text}");
        let result: Value = serde_json::from_str(result.strip_suffix("</result>").unwrap()).unwrap();
        assert_eq!(result["success"], false);
        assert_eq!(result["error"], error);
        assert_eq!((&result["dataframe"], &result["variables"]), (&Value::Null, &json!({})));
        assert!(result["execution_time"].is_f64(), "{result}");
    }
}

#[test]
fn health_reset_and_pool_status_answer_as_documented_and_know_what_runs() {
    let server = server!(&[], &[]);
    for route in ["/reset", "/api/v1/reset"] {
        let answer = server.post(route, &json!({}));
        assert_eq!(answer, (200, json!({"success": true, "message": "Kernel reset successfully"})));
    }
    let pool = || {
        let (status, pool) = server.get("/api/v1/pool/status");
        assert_eq!(status, 200);
        let count = |key: &str| pool[key].as_u64().unwrap_or_else(|| panic!("{key} in {pool}"));
        assert_eq!(count("idle_containers") + count("busy_containers"), count("total_containers"));
        (count("busy_containers"), count("pending_requests"))
    };
    let health = || {
        let (status, health) = server.get("/health");
        assert_eq!((status, &health["status"]), (200, &json!("healthy")));
        for key in ["worker_id", "uptime"] {
            assert!(!health[key].as_str().unwrap().is_empty(), "{health}");
        }
        let memory = health["memory_usage"].as_str().unwrap();
        assert!(memory.strip_suffix("MB").unwrap().parse::<u64>().unwrap() > 0, "{health}");
        health["kernel_status"].clone()
    };
    assert_eq!((pool(), health()), ((0, 0), json!("idle")));
    let mut seen = None;
    server.stream(
        &json!({"code": "import sys\nprint('up')\nsys.stdout.flush()\nimport time; time.sleep(1)"}),
        |_, event| {
            if event["type"] == "stdout" {
                seen = Some((pool(), health()));
            }
            true
        },
    );
    assert_eq!(seen, Some(((1, 0), json!("busy"))));
    assert_eq!((pool(), health()), ((0, 0), json!("idle")));
}

#[test]
fn a_client_that_names_the_documents_working_directory_is_in_it() {
    let server = server!(&[], &[]);
    let body =
        json!({"code": "import os\nresult = os.getcwd()", "cwd": "/data", "timeout": 30, "result_var": "result"});
    assert_eq!(succeeds(&server, &body).result["return_value"], "/data");
}

// Seed 000, chapter 4: the flow of data.

#[test]
fn the_generated_analysis_of_sales_reports_its_progress_and_its_table() {
    let server = server!(&[], &[]);
    let write = "open('/data/sales.csv', 'w').write('a,b,c,d,e\\n' + '1,2,3,4,5\\n' * 1000)\n";
    let code = r#"import pandas as pd
import numpy as np

df = pd.read_csv("/data/sales.csv")
print(f"✓ 数据加载完成，形状: {df.shape}")
result = df.describe()
print("✓ 分析完成")
"#;
    let body =
        |table: bool| json!({"code": format!("{write}{code}"), "result_var": "result", "include_df_info": table});
    let answer = succeeds(&server, &body(true));
    assert_eq!(answer.txt, "✓ 数据加载完成，形状: (1000, 5)\n✓ 分析完成\n");
    assert_eq!(answer.result["dataframe"]["shape"], json!([8, 5]));
    let variables = answer.result["variables"].as_object().unwrap();
    assert_eq!(variables["df"]["shape"], json!([1000, 5]));
    assert_eq!(variables["result"]["type"], "DataFrame");
    assert_eq!(variables.len(), 2, "modules are no variables: {variables:?}");
    assert_eq!(succeeds(&server, &body(false)).result["dataframe"], Value::Null);
}

#[test]
fn text_and_pictures_come_in_the_order_of_the_sequence_diagram_and_while_the_code_runs() {
    let server = server!(&[], &[]);
    let code = r#"import time
print("Step 1...")
time.sleep(1.5)
print("Step 2...")
import matplotlib.pyplot as plt
import pandas as pd
df = pd.DataFrame({"n": [1, 2]})
plt.plot(df["n"])
plt.show()
"#;
    let body = json!({"code": code, "result_var": "df"});
    let (_, bytes) = server.request("POST", "/api/v1/exec", Some(&body));
    let text = String::from_utf8(bytes).unwrap();
    let places: Vec<_> =
        ["Step 1...", "Step 2...", "<img>iVBORw0", "<result>"].map(|part| text.find(part)).into_iter().collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {text:.200}");
    assert!(text.ends_with("}</result>"));
    let (mut first, mut second) = (None, None);
    server.stream(&body, |at, event| {
        let text = event["data"]["text"].as_str().unwrap_or_default();
        first = first.or(text.contains("Step 1").then_some(at));
        second = second.or(text.contains("Step 2").then_some(at));
        true
    });
    let between = second.unwrap() - first.unwrap();
    assert!(between.as_millis() > 1000, "the first step came only {between:?} before the second");
}

// Seed 000, chapter 7: packages offered.

#[test]
fn every_package_of_the_documents_requirements_can_be_imported() {
    let server = server!(&[], &[]);
    let code = r"import importlib
missing = []
for name in ['IPython', 'pandas', 'numpy', 'scipy', 'sklearn', 'statsmodels', 'matplotlib', 'seaborn', 'openpyxl', 'xlrd', 'tqdm',
             'dateutil', 'pytz']:
    try:
        importlib.import_module(name)
    except ImportError:
        missing.append(name)
missing";
    assert_eq!(server.succeed(code, json!({}))["result"], json!([]));
}

// Seed 000, chapter 9: what the tools generate.

#[test]
fn the_code_of_the_analysis_tool_describes_every_column_of_a_given_file() {
    let server = server!(&[], &[]);
    let code = r#"
import pandas as pd
import numpy as np

def analyze(df):
    print("✓ 开始分析...")
    result = df.describe(include='all')
    print("✓ 分析完成")
    return result

df = pd.read_csv("/data/sales.csv")
print(f"✓ 数据加载完成，形状: {df.shape}")
result = analyze(df)
"#;
    let sales = "region,amount\n华东,10\n华北,20\n华东,30\n";
    let fields = json!({"files": files(&[("/data/sales.csv", sales)]), "result_var": "result", "preview_rows": 20, "timeout_ms": 30000});
    let execution = server.succeed(code, fields);
    assert_eq!(execution["stdout"], "✓ 数据加载完成，形状: (3, 2)\n✓ 开始分析...\n✓ 分析完成\n");
    let table = &execution["dataframe"];
    assert_eq!((&table["shape"], &table["columns"]), (&json!([11, 2]), &json!(["region", "amount"])));
    let rows = table["preview"].as_array().unwrap();
    let row = |label: &str| {
        let labels = table["index"]["preview"].as_array().unwrap();
        &rows[labels.iter().position(|name| name == label).unwrap()]
    };
    // What a column has no answer for is missing, as JSON says it.
    assert_eq!(row("top"), &json!({"region": "华东", "amount": null}));
    assert_eq!(row("mean"), &json!({"region": null, "amount": 20.0}));
}

#[test]
fn the_code_of_the_table_operation_tool_writes_the_output_file() {
    let server = server!(&[], &[]);
    let code = r#"
import pandas as pd
import os

def operation(dataframes, input_paths, output_path):
    print("✓ 开始处理...")
    df = dataframes[0]
    
    # 执行操作（由 LLM 根据 instruction 生成）
    df['new_column'] = df['existing_column'] * 2
    
    # 保存结果到文件
    os.makedirs(os.path.dirname(output_path), exist_ok=True)
    df.to_csv(output_path, index=False)
    print(f"✓ 已保存到 {output_path}")

# 加载输入数据
dataframes = [pd.read_csv(p) for p in ['/data/orders.csv']]
operation(dataframes, ['/data/orders.csv'], "/data/orders_with_total.csv")
"#;
    let orders = files(&[("/data/orders.csv", "existing_column\n10\n4\n")]);
    let execution = server.succeed(code, json!({"files": orders, "collect": ["orders_with_total.csv"]}));
    assert_eq!(execution["stdout"], "✓ 开始处理...\n✓ 已保存到 /data/orders_with_total.csv\n");
    assert_eq!((&execution["result"], &execution["dataframe"]), (&Value::Null, &Value::Null));
    assert_eq!(artifact(&server, &execution, "orders_with_total.csv"), "existing_column,new_column\n10,20\n4,8\n");
}

// Seed 000, chapter 15: the final form made inside.

const ANALYZE: &str = r#"import pandas as pd

def analyze(df: pd.DataFrame) -> dict:
    """
    完成代码，返回值需要组织成 dict 格式：
    {
        "markdown": "...",              # Markdown 表格（用于展示）
        "data": [{...}, {...}, ...],    # 字典数组（结构化数据）
        "shape": [rows, cols],          # 结果形状
        "summary": "分析结论..."         # 可选：分析总结
    }
    """
    # 分析逻辑
    result = df.describe()
    
    # 如果结果超过500行，截断
    if len(result) > 500:
        result = result.head(500)
    
    return {
        "markdown": result.to_markdown(),
        "data": result.to_dict(orient='records'),
        "shape": list(result.shape)
    }
"#;

#[test]
fn a_dict_made_inside_arrives_as_the_return_value_with_markdown_data_and_shape() {
    let server = server!(&[], &[]);
    let code = format!("{ANALYZE}\nresult = analyze(pd.DataFrame({{'col1': [1, 3], 'col2': [5.0, 5.0]}}))");
    let answer = succeeds(&server, &json!({"code": code, "result_var": "result"}));
    let value = &answer.result["return_value"];
    assert_eq!(value["shape"], json!([8, 2]));
    let markdown: Vec<_> = value["markdown"].as_str().unwrap().lines().collect();
    assert_eq!(markdown.len(), 10);
    assert_eq!(markdown[0].replace(' ', ""), "||col1|col2|");
    assert_eq!(markdown[3].replace(' ', ""), "|mean|2|5|");
    assert_eq!(value["data"].as_array().unwrap().len(), 8);
    assert_eq!(value["data"][7], json!({"col1": 3.0, "col2": 5.0}));
    assert_eq!(answer.result["dataframe"], Value::Null);
    // Numbers that JSON does not have.
    let code = format!("{ANALYZE}\nresult = analyze(pd.DataFrame({{'col1': [1.0]}}))");
    let answer = succeeds(&server, &json!({"code": code, "result_var": "result"}));
    assert_eq!(answer.result["return_value"]["data"][2], json!({"col1": null}), "the deviation of one value");
}

#[test]
fn five_hundred_rows_travel_whole_when_the_code_cuts_there() {
    let server = server!(&[], &[]);
    let code = ANALYZE.replace("df.describe()", "df.sort_values('n', ascending=False)")
        + "\nresult = analyze(pd.DataFrame({'n': range(1200), '名': ['值'] * 1200}))";
    let answer = succeeds(&server, &json!({"code": code, "result_var": "result"}));
    let value = &answer.result["return_value"];
    assert_eq!(value["shape"], json!([500, 2]));
    let data = value["data"].as_array().unwrap();
    assert_eq!(data.len(), 500);
    assert_eq!((&data[0], &data[499]), (&json!({"n": 1199, "名": "值"}), &json!({"n": 700, "名": "值"})));
    assert_eq!(value["markdown"].as_str().unwrap().lines().count(), 502);
}

/// What the tool of chapter 15.2 makes of the value: the text it shows and the rows it passes on.
fn tool_result(value: &Value) -> (String, Vec<Value>) {
    let text = value["markdown"].as_str().unwrap_or_else(|| panic!("no markdown in {value}"));
    (text.to_owned(), value["data"].as_array().unwrap_or_else(|| panic!("no data in {value}")).clone())
}

#[test]
fn an_analysis_returns_its_dict_and_an_operation_only_its_file_through_the_same_address() {
    let server = server!(&[], &[]);
    let (status, session) = server.post("/v1/sessions", &json!({}));
    assert_eq!(status, 201, "{session}");
    let (id, sales) = (&session["id"], "地区,金额,备注\n华东,120.5,a|b\n华北,,<result>\n华东,79.5,\n");
    assert_eq!(server.put(&format!("/v1/sessions/{}/files/sales.csv", id.as_str().unwrap()), sales.as_bytes()).0, 201);
    let analysis = "import pandas as pd
def analyze(df):
    totals = df.groupby('地区', as_index=False).agg({'金额': 'sum', '备注': 'first'})
    print('✓ 分析完成')
    return {'markdown': totals.to_markdown(index=False), 'data': totals.to_dict(orient='records'), 'shape': list(totals.shape), 'summary': '华东最高'}
result = analyze(pd.read_csv('/data/sales.csv'))";
    let answer = succeeds(&server, &json!({"code": analysis, "result_var": "result", "session_id": id}));
    assert_eq!(answer.txt, "✓ 分析完成\n");
    let value = &answer.result["return_value"];
    let (text, rows) = tool_result(value);
    assert_eq!(rows[0], json!({"地区": "华东", "金额": 200.0, "备注": "a|b"}));
    assert_eq!(rows[1], json!({"地区": "华北", "金额": 0.0, "备注": "<result>"}));
    assert!(text.lines().next().unwrap().contains("地区") && text.contains("<result>"), "{text}");
    assert_eq!((&value["shape"], &value["summary"]), (&json!([2, 3]), &json!("华东最高")));
    assert_eq!(answer.result["variables"]["result"]["type"], "dict");
    let operation = "df = pd.read_csv('/data/sales.csv')
df['金额'] = df['金额'].fillna(0)
df.to_csv('/data/output.csv', index=False)
df";
    let answer = succeeds(&server, &json!({"code": operation, "result_var": null, "session_id": id}));
    assert_eq!((&answer.result["return_value"], &answer.result["dataframe"]), (&Value::Null, &Value::Null));
    let (status, file) =
        server.request("GET", &format!("/v1/sessions/{}/files/output.csv", id.as_str().unwrap()), None);
    assert_eq!(status, 200);
    assert_eq!(String::from_utf8(file).unwrap().lines().nth(2), Some("华北,0.0,<result>"));
}

#[test]
fn the_dict_comes_from_a_variable_from_the_last_expression_and_from_a_handler_alike() {
    let server = server!(&[], &[]);
    let table = "pd.DataFrame({'col1': [1, 3], 'when': pd.to_datetime(['2024-01-02', None])})";
    let made = ANALYZE.replace("df.describe()", "df");
    let of_variable = server.succeed(&format!("{made}\nresult = analyze({table})"), json!({"result_var": "result"}));
    let of_expression = server.succeed(&format!("{made}\nanalyze({table})"), json!({}));
    let handler = format!("{made}\ndef handler(input):\n    return analyze({table}[input['from']:])");
    let of_handler = server.succeed(&handler, json!({"input": {"from": 0}}));
    let time = |value| json!({"$type": "datetime", "value": value});
    for execution in [&of_variable, &of_expression, &of_handler] {
        let value = &execution["result"];
        let rows = json!([{"col1": 1, "when": time("2024-01-02T00:00:00")}, {"col1": 3, "when": time("NaT")}]);
        assert_eq!((&value["data"], &value["shape"]), (&rows, &json!([2, 2])), "{}", brief(execution));
        assert_eq!(value["markdown"].as_str().unwrap().lines().count(), 4);
        assert_eq!((&execution["dataframe"], &execution["warnings"]), (&Value::Null, &json!([])));
    }
    // The same as plain JSON.
    let body = json!({"code": format!("{made}\nresult = analyze({table})"), "result_var": "result"});
    let answer = succeeds(&server, &body);
    assert_eq!(
        answer.result["return_value"]["data"],
        json!([{"col1": 1, "when": "2024-01-02T00:00:00"}, {"col1": 3, "when": "NaT"}])
    );
}

#[test]
fn five_hundred_rows_of_forty_columns_travel_whole() {
    let server = server!(&[], &[]);
    let code = ANALYZE.replace("df.describe()", "df")
        + "\nimport numpy as np\nresult = analyze(pd.DataFrame(np.arange(24000.0).reshape(600, 40) / 7, columns=[f'column_{n}' for n in range(40)]))";
    let answer = succeeds(&server, &json!({"code": code, "result_var": "result"}));
    let (text, rows) = tool_result(&answer.result["return_value"]);
    assert_eq!((rows.len(), text.lines().count()), (500, 502));
    assert!(rows.iter().all(|row| row.as_object().unwrap().len() == 40));
    assert_eq!(rows[499]["column_39"], json!(19999.0 / 7.0));
    assert_eq!(answer.result["warnings"], json!([]));
}

#[test]
fn a_dict_that_is_too_large_is_cut_and_the_answer_says_so() {
    let server = server!(&[], &[("FUMEHOOD_ENGINE__MAX_RESULT_KB", "64")]);
    let code = ANALYZE.replace("df.describe()", "df")
        + "\nresult = analyze(pd.DataFrame({'n': range(500), 't': ['x' * 90] * 500}))";
    let answer = succeeds(&server, &json!({"code": code, "result_var": "result"}));
    assert_eq!(answer.result["warnings"][0]["code"], "result_truncated", "{}", answer.result["warnings"]);
    let (text, rows) = tool_result(&answer.result["return_value"]);
    assert_eq!((text.lines().count(), rows.last()), (502, Some(&Value::Null)));
    assert!(rows.len() < 500, "{}", rows.len());
}

#[test]
fn what_the_code_would_make_by_hand_comes_by_itself_with_the_format_markdown() {
    let server = server!(&[], &[]);
    let code =
        "import pandas as pd\ndf = pd.DataFrame({'名': ['a|b', '<b>'], 'n': [1, 2]})\ndisplay(df)\ndf.describe()";
    let execution = server.succeed(code, json!({"format": "markdown", "preview_rows": 2}));
    let text = execution["dataframe"]["markdown"].as_str().unwrap();
    assert_eq!(
        text,
        "|  | n |\n| --- | ---: |\n| count | 2.0 |\n| mean | 1.5 |\n\nNot shown: 6 more rows. The whole table: 8 rows, 1 column."
    );
    let outputs = execution["outputs"].as_array().unwrap();
    assert_eq!(
        outputs[0]["mime"]["text/markdown"],
        "|  | 名 | n |\n| ---: | --- | ---: |\n| 0 | a\\|b | 1 |\n| 1 | &lt;b> | 2 |"
    );
    assert_eq!(outputs[1]["mime"]["text/markdown"], text);
    let plain = server.succeed(code, json!({}));
    assert_eq!(
        (&plain["dataframe"]["markdown"], &plain["outputs"][0]["mime"]["text/markdown"]),
        (&Value::Null, &Value::Null)
    );
    let (status, refusal) = server.post("/v1/executions", &json!({"code": "1", "format": "html"}));
    assert_eq!((status, &refusal["error"]["field"]), (400, &json!("format")));
    let message = refusal["error"]["message"].as_str().unwrap();
    assert!(message.contains("default") && message.contains("markdown"), "{message}");
}

// Seed 001, chapter 2.4 and 3.

#[test]
fn the_example_tasks_of_an_agent_print_their_answers() {
    let server = server!(&[], &[]);
    let statistics = "
import statistics
data = [1, 2, 3, 4, 5]
print(f\"Mean: {statistics.mean(data)}\")
";
    // The document says 3.0; the mean of whole numbers is an int in Python.
    assert_eq!(server.succeed(statistics, json!({}))["stdout"], "Mean: 3\n");
    let head = "
import pandas as pd
df = pd.read_csv(\"data.csv\")
print(df.head())
";
    let data = format!("a,b\n{}", "1,2\n".repeat(9));
    let execution = server.succeed(head, json!({"files": files(&[("data.csv", &data)])}));
    assert_eq!(execution["stdout"], "   a  b\n0  1  2\n1  1  2\n2  1  2\n3  1  2\n4  1  2\n");
    for (code, language, stdout) in [
        ("print('hello')", "python", "hello\n"),
        ("print('world')", "python", "world\n"),
        ("console.log('hello')", "javascript", "hello\n"),
        ("echo hello", "bash", "hello\n"),
    ] {
        if server.speaks(language) {
            assert_eq!(server.succeed(code, json!({"language": language}))["stdout"], stdout, "{code}");
        }
    }
}

// Seed 001, chapter 4: test-driven execution.

#[test]
fn a_solution_with_its_tests_is_judged_by_pytest() {
    let server = server!(&[], &[]);
    let tests = "from solution import add\n\ndef test_sum():\n    assert add(2, 3) == 5\n\ndef test_zero():\n    assert add(0, 0) == 0\n";
    let with = |solution: &str| files(&[("code/solution.py", solution), ("code/test_solution.py", tests)]);
    let (right, wrong) = (with("def add(a, b):\n    return a + b\n"), with("def add(a, b):\n    return a * b\n"));
    let bash = |files: &Value| {
        let fields = json!({"language": "bash", "files": files, "cwd": "code", "timeout_ms": 60000});
        server.execute("pytest test_solution.py -v", fields)
    };
    let passed = bash(&right);
    assert_eq!((&passed["status"], &passed["exit_code"]), (&json!("completed"), &json!(0)), "{}", brief(&passed));
    for line in ["test_solution.py::test_sum PASSED", "test_solution.py::test_zero PASSED", "2 passed in"] {
        assert!(passed["stdout"].as_str().unwrap().contains(line), "{line}: {}", brief(&passed));
    }
    let failed = bash(&wrong);
    assert_eq!((&failed["status"], &failed["exit_code"]), (&json!("failed"), &json!(1)), "{}", brief(&failed));
    for line in ["FAILED test_solution.py::test_sum - assert 6 == 5", "1 failed, 1 passed in"] {
        assert!(failed["stdout"].as_str().unwrap().contains(line), "{line}: {}", brief(&failed));
    }
    let code = "import subprocess
run = subprocess.run(['pytest', 'test_solution.py', '-v'], capture_output=True, text=True)
print(run.stdout)
run.returncode";
    for (files, exit_code, summary) in [(right, 0, "2 passed in"), (wrong, 1, "1 failed, 1 passed in")] {
        let execution = server.succeed(code, json!({"files": files, "cwd": "code"}));
        assert_eq!(execution["result"], exit_code);
        assert!(execution["stdout"].as_str().unwrap().contains(summary), "{}", brief(&execution));
    }
}

// Seed 002: pure computation, within the limits the document gives each container.

#[test]
fn the_calculator_the_sorting_and_the_text_example_print_the_right_answers_in_256_megabytes_and_half_a_core() {
    let server = server!(&[], &[]);
    let calculator = r#"import math

# 计算直角三角形的斜边
a = 15
b = 20
c = math.sqrt(a**2 + b**2)
print(f"斜边长度是: {c}")

# 计算阶乘
print(f"6的阶乘是: {math.factorial(6)}")
"#;
    let sorting = r"# 根据特定键对字典列表进行排序
data = [
    {'name': 'Alice', 'age': 30},
    {'name': 'Bob', 'age': 25},
    {'name': 'Charlie', 'age': 35}
]
sorted_data = sorted(data, key=lambda x: x['age'])
print(sorted_data)
";
    let text = r#"import re

text = "The quick brown fox jumps over the lazy dog. The fox is happy."
# 查找所有 "fox"
matches = re.findall(r'fox', text)
print(f"找到 'fox' {len(matches)} 次。")
"#;
    for (code, stdout) in [
        (calculator, "斜边长度是: 25.0\n6的阶乘是: 720\n"),
        (sorting, "[{'name': 'Bob', 'age': 25}, {'name': 'Alice', 'age': 30}, {'name': 'Charlie', 'age': 35}]\n"),
        (text, "找到 'fox' 2 次。\n"),
        // Every built-in function and library that the document offers.
        (
            "print(len(range(3)), str(1), int('2'), float(3), bool(0), list('ab'), dict(a=1), set([1]), tuple([1]), max(1, 2), min(1, 2), sum([1, 2]), abs(-1), round(1.6))",
            "3 1 2 3.0 False ['a', 'b'] {'a': 1} {1} (1,) 2 1 3 1 2\n",
        ),
        (
            "import math, random, datetime, re, json, collections\nprint(json.dumps(collections.Counter('aab')), datetime.date(2024, 2, 29).isoformat())",
            "{\"a\": 2, \"b\": 1} 2024-02-29\n",
        ),
    ] {
        let execution = server.succeed(code, json!({"limits": {"memory_mb": 256, "cpu": 0.5}}));
        assert_eq!((&execution["stdout"], &execution["stderr"]), (&json!(stdout), &json!("")), "{code}");
    }
}

#[test]
fn nothing_of_one_execution_is_there_in_the_next() {
    let server = server!(&[], &[]);
    server.succeed("kept = 1\nopen('kept.txt', 'w').write('x')\nopen('/tmp/kept.txt', 'w').write('x')", json!({}));
    let code = "import os\n['kept' in globals(), os.listdir('/data'), os.path.exists('/tmp/kept.txt')]";
    assert_eq!(server.succeed(code, json!({}))["result"], json!([false, [], false]));
}

// Seed 003: the standard result, functions, concurrency.

#[test]
fn every_result_has_the_standard_fields_whether_it_went_well_or_not() {
    let server = server!(&[], &[]);
    let good = "def handler(input):\n    print('Processing complete.')\n    return {'status': 'ok', 'data': [1, 2, 3]}";
    let bad = "def handler(input):\n    print('Processing complete.')\n    raise ValueError('no data')";
    // The document's defaults: 100 MB, one core, three minutes.
    let fields = || json!({"input": {"n": 1}, "limits": {"memory_mb": 100, "cpu": 1}, "timeout_ms": 180_000});
    let execution = server.succeed(good, fields());
    assert_eq!(execution["exit_code"], 0);
    assert_eq!((&execution["stdout"], &execution["stderr"]), (&json!("Processing complete.\n"), &json!("")));
    assert_eq!(execution["result"], json!({"status": "ok", "data": [1, 2, 3]}));
    let failed = server.execute(bad, fields());
    assert_eq!((&failed["status"], &failed["exit_code"]), (&json!("failed"), &json!(1)), "{}", brief(&failed));
    assert_eq!((&failed["stdout"], &failed["result"]), (&json!("Processing complete.\n"), &Value::Null));
    assert!(failed["stderr"].as_str().unwrap().ends_with("ValueError: no data\n"), "{}", brief(&failed));
    for execution in [&execution, &failed] {
        let metric = |key: &str| execution["metrics"][key].as_f64().unwrap();
        assert!(metric("duration_ms") > 0.0, "{}", brief(execution));
        // An interpreter needs a few megabytes, and cannot have had more than its limit.
        assert!((3.0..=100.0).contains(&metric("memory_peak_mb")), "{}", brief(execution));
    }
}

#[test]
fn a_handler_gets_its_input_and_returns_any_value() {
    let server = server!(&[], &[]);
    for (code, input, result) in [
        ("def handler(input):\n    return input", json!({"名": [1, 2.5, null, true], "n": {"deep": "✓"}}), None),
        ("def handler(event):\n    return sum(event)", json!([1, 2, 3]), Some(json!(6))),
        ("async def handler(input):\n    return input * 2", json!("ab"), Some(json!("abab"))),
        ("def handler(input):\n    pass", json!(1), Some(json!(null))),
    ] {
        let execution = server.succeed(code, json!({"input": input}));
        assert_eq!(execution["result"], result.unwrap_or(input), "{code}");
    }
}

#[test]
fn a_hundred_functions_at_once_all_return_their_own_answer() {
    let server = server!(&[], &[]);
    let code = "def handler(input):\n    print('square of', input['n'])\n    return {'n': input['n'], 'square': input['n'] ** 2}";
    std::thread::scope(|scope| {
        let server = &server;
        let run = |n: u64| move || server.succeed(code, json!({"input": {"n": n}, "limits": {"memory_mb": 100}}));
        let runs: Vec<_> = (0..100).map(|n| (n, scope.spawn(run(n)))).collect();
        for (n, run) in runs {
            let execution = run.join().unwrap();
            assert_eq!(execution["result"], json!({"n": n, "square": n * n}));
            assert_eq!(execution["stdout"], format!("square of {n}\n"));
        }
    });
}

// Seed 004: analysis code as agents write it, and what stays out of reach.

#[test]
fn code_that_forgets_the_usual_imports_works() {
    let server = server!(&[], &[]);
    let execution = server.succeed("df = pd.DataFrame({'a': [1,2,3]})", json!({"result_var": "df"}));
    assert_eq!(execution["dataframe"]["shape"], json!([3, 1]));
    assert!(
        execution["warnings"][0]["message"].as_str().unwrap().contains("import pandas as pd"),
        "{}",
        brief(&execution)
    );
    let execution = server.succeed("fig, ax = plt.subplots()", json!({}));
    assert_eq!(execution["variables"]["fig"]["type"], "Figure", "{}", execution["variables"]);
    assert!(execution["outputs"][0]["mime"]["image/png"].is_string());
    let execution = server.succeed("sns.set_theme()\nnp.arange(3).tolist()", json!({}));
    assert_eq!(execution["result"], json!([0, 1, 2]));
    // A name of the user's own is left alone.
    assert_eq!(server.succeed("pd = 5\npd", json!({}))["result"], 5);
}

#[test]
fn files_in_the_workspace_are_written_read_appended_listed_and_returned() {
    let server = server!(&[], &[]);
    let code = r"import json
from pathlib import Path
import glob
df = pd.DataFrame({'a': [1, 2, 3]})
df.to_csv('temp.csv', index=False)
open('output.txt', 'w').write('one\n')
open('log.txt', 'a').write('first\n'); open('log.txt', 'a').write('second\n')
Path('charts/2024').mkdir(parents=True)
json.dump({'k': ['值']}, open('charts/2024/data.json', 'w'), ensure_ascii=False)
found = sorted(str(p) for p in Path('.').glob('**/*.json'))
[pd.read_csv('temp.csv')['a'].sum(), open('output.txt', 'r').read(), open('log.txt').read(), found, sorted(glob.glob('*')),
 json.load(open('/data/charts/2024/data.json'))]";
    let execution = server.succeed(code, json!({"collect": ["temp.csv", "charts/**"]}));
    let names = json!(["charts", "log.txt", "output.txt", "temp.csv"]);
    assert_eq!(
        execution["result"],
        json!([6, "one\n", "first\nsecond\n", ["charts/2024/data.json"], names, {"k": ["值"]}])
    );
    assert_eq!(artifact(&server, &execution, "temp.csv"), "a\n1\n2\n3\n");
    assert_eq!(artifact(&server, &execution, "charts/2024/data.json"), "{\"k\": [\"值\"]}");
    assert_eq!(execution["artifacts"].as_array().unwrap().len(), 2);
}

#[test]
fn every_module_the_design_allows_can_be_imported() {
    let server = server!(&[], &[]);
    let names = "pandas numpy scipy matplotlib matplotlib.pyplot seaborn pathlib os.path glob fnmatch json csv xml xml.etree \
        xml.etree.ElementTree re string textwrap difflib datetime time calendar collections itertools functools heapq bisect queue math \
        statistics random decimal fractions uuid hashlib base64 copy pprint typing dataclasses enum abc";
    let code =
        format!("import importlib\nfor name in '{names}'.split():\n    importlib.import_module(name)\n    print(name)");
    let execution = server.succeed(&code, json!({}));
    assert_eq!(execution["stdout"], names.split(' ').map(|name| format!("{name}\n")).collect::<String>());
    assert_eq!(execution["stderr"], "");
}

#[test]
fn commands_run_but_only_inside_and_nothing_of_the_host_is_readable_or_writable() {
    let server = server!(&[], &[]);
    let secret = server.data.path().join("secret");
    std::fs::write(&secret, "of the host").unwrap();
    let execution = server.execute("open('/etc/shadow').read()", json!({}));
    assert_eq!(
        (&execution["outcome"], &execution["fault"]),
        (&json!("exception"), &json!("user")),
        "{}",
        brief(&execution)
    );
    assert!(execution["error"]["type"] == "FileNotFoundError" || execution["error"]["type"] == "PermissionError");
    let execution = server.succeed("import os; os.system('ls /root')", json!({}));
    assert_eq!(execution["stdout"], "");
    assert_ne!(execution["result"], 0);
    // It works: a shell, a child, its output. What it sees is the sandbox.
    let execution = server.succeed("import os; os.system('pwd; echo $((6 * 7))')", json!({}));
    assert_eq!((&execution["stdout"], &execution["result"]), (&json!("/data\n42\n"), &json!(0)));
    let code = "__import__('subprocess').run(['ls'], capture_output=True, text=True).stdout";
    assert_eq!(server.succeed(code, json!({"files": files(&[("mine", "")])}))["result"], "mine\n");
    let code = "[line.split(':')[0] for line in open('/etc/passwd')]";
    assert_eq!(server.succeed(code, json!({}))["result"], json!(["root", "sandbox", "nobody"]));
    let code = format!(
        r"import os
secret = {secret:?}
def tried(f):
    try:
        return f()
    except OSError as e:
        return type(e).__name__
os.symlink(secret, 'link')
[os.getuid() != 0, tried(lambda: open(secret).read()), tried(lambda: open('../../../' + secret).read()), tried(lambda: open('link').read()),
 tried(lambda: open('/etc/motd', 'w')), tried(lambda: open('/usr/bin/env', 'a')), tried(lambda: os.remove('/etc/passwd')), tried(lambda: os.kill(1, 9))]"
    );
    let absent = "FileNotFoundError";
    let result = json!([true, absent, absent, absent, "OSError", "PermissionError", "OSError", "PermissionError"]);
    assert_eq!(server.succeed(&code, json!({}))["result"], result);
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "of the host");
}
