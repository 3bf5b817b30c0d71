//! Programs as people and models really write them, and what runners of code got wrong with them elsewhere: each once, from outside.

use std::collections::BTreeSet;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::server::{Server, brief, server};

/// Displays that have a picture, as base64 of their PNG.
fn pictures(execution: &Value) -> Vec<String> {
    let outputs = execution["outputs"].as_array().unwrap();
    outputs.iter().filter_map(|output| Some(output["mime"]["image/png"].as_str()?.to_owned())).collect()
}

/// Plain text of the display that shows the result.
fn shown(execution: &Value) -> &str {
    let outputs = execution["outputs"].as_array().unwrap();
    let result = outputs.iter().find(|output| output["metadata"]["kind"] == "result");
    result.map_or("", |result| result["mime"]["text/plain"].as_str().unwrap())
}

/// Numbers of colours and size of pictures, as Pillow sees them.
fn colours(server: &Server, pictures: &[String]) -> Value {
    let files: Value = pictures
        .iter()
        .enumerate()
        .map(|(n, png)| json!({"path": format!("{n}.png"), "content_base64": png}))
        .collect();
    let code = "from PIL import Image\nimport glob\n\
        [[len(i.convert('RGB').getcolors(1 << 24)), *i.size] for i in map(Image.open, sorted(glob.glob('*.png')))]";
    server.succeed(code, json!({"files": files}))["result"].clone()
}

/// What a Python program prints, with an empty standard error.
fn prints(server: &Server, code: &str, fields: Value) -> String {
    let execution = server.succeed(code, fields);
    assert_eq!(execution["stderr"], "", "{code}: {}", brief(&execution));
    execution["stdout"].as_str().unwrap().to_owned()
}

// Rich output.

#[test]
fn a_chart_shown_midway_keeps_the_text_around_it_and_the_value_at_the_end() {
    let server = server!(&[], &[]);
    let code = r"import pandas as pd
import matplotlib.pyplot as plt
orders = pd.Series(['bao', 'mian', 'bao', 'zhou'], name='dish')
print('orders', len(orders))
orders.value_counts().plot.barh()
plt.show()
print('most wanted', orders.mode()[0])
(orders == 'bao').mean()";
    let execution = server.succeed(code, json!({}));
    assert_eq!(execution["stdout"], "orders 4\nmost wanted bao\n");
    assert_eq!(execution["result"], 0.5);
    let pictures = pictures(&execution);
    assert_eq!(pictures.len(), 1, "{}", brief(&execution));
    let seen = colours(&server, &pictures);
    assert!(seen[0][0].as_u64().unwrap() > 2, "the chart is blank: {seen}");
    // And in its place among the text.
    let mut kinds = Vec::new();
    server.stream(&json!({ "code": code }), |_, event| {
        let text = event["data"]["text"].as_str().unwrap_or_default();
        kinds.extend(text.contains("orders").then_some("before"));
        kinds.extend(text.contains("most wanted").then_some("after"));
        kinds.extend(event["data"]["mime"]["image/png"].is_string().then_some("picture"));
        true
    });
    assert_eq!(kinds, ["before", "picture", "after"]);
}

#[test]
fn every_open_figure_is_delivered_once_and_only_with_its_own_execution() {
    let server = server!(&[], &[]);
    for (code, count) in [
        ("import matplotlib.pyplot as plt\nplt.plot([3, 1, 2]);", 1),
        ("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1])\nplt.show()\nplt.show()", 1),
        ("import matplotlib.pyplot as plt\nfor n in range(3):\n    plt.figure(); plt.plot([n, 1])", 3),
        ("import matplotlib.pyplot as plt\nplt.plot([7]); plt.show(); plt.close('all')", 1),
        ("import matplotlib.pyplot as plt\nplt.plot([7]); plt.savefig('x.png'); plt.close()", 0),
        ("import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1]); plt.show()", 1),
        ("print('no chart')", 0),
    ] {
        let execution = server.execute(code, json!({}));
        assert_eq!(pictures(&execution).len(), count, "{code}: {}", brief(&execution));
    }
}

#[test]
fn a_picture_as_the_last_expression_is_shown_as_a_picture() {
    let server = server!(&[], &[]);
    let execution = server.succeed("from PIL import Image\nImage.new('RGB', (24, 12), 'navy')", json!({}));
    assert_eq!(execution["stdout"], "");
    assert_eq!(colours(&server, &pictures(&execution)), json!([[1, 24, 12]]));
}

#[test]
fn a_chart_with_chinese_japanese_and_korean_labels_draws_without_missing_glyphs() {
    let server = server!(&[], &[]);
    let code = r"import matplotlib.pyplot as plt
plt.barh(['广州', '大阪', '부산', '台北'], [3, -1, 4, 2])
plt.title('每季收入（万元）')
plt.xlabel('売上高 −5 °C')
plt.show()
for face in '州阪부':
    plt.figtext(0.5, 0.5, face)
    plt.show()";
    let execution = server.succeed(code, json!({}));
    assert_eq!(execution["stderr"], "", "a warning of missing glyphs");
    let pictures = pictures(&execution);
    assert_eq!(pictures.len(), 4);
    // Empty boxes would all look the same.
    assert_eq!(pictures.iter().collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn a_chart_comes_with_the_numbers_it_shows_also_while_the_code_still_runs() {
    let server = server!(&[], &[]);
    let code = r"import matplotlib.pyplot as plt
import pandas as pd
frame = pd.DataFrame({'水': [1.5, None], 'b': [2, 4]}, index=pd.to_datetime(['2024-02-28', '2024-03-01']))
frame.plot(title='river', ylabel='m', marker='o')
plt.show()
fig, (left, right) = plt.subplots(1, 2)
left.bar(['tea', 'mate'], [3, 1])
right.hist([1, 1, 2], bins=2, label='n')
fig";
    let mut streamed = Vec::new();
    let mut last = Value::Null;
    server.stream(&json!({"code": code}), |_, event| {
        streamed.extend(event["data"]["metadata"]["chart"].as_object().cloned());
        last = event["data"].clone();
        true
    });
    assert_eq!(last["status"], "completed", "{}", brief(&last));
    let charts: Vec<_> = last["outputs"].as_array().unwrap().iter().map(|o| o["metadata"]["chart"].clone()).collect();
    assert_eq!(charts, streamed.into_iter().map(Value::Object).collect::<Vec<_>>());
    let axes = &charts[0]["axes"][0];
    assert_eq!((&axes["kind"], &axes["title"], &axes["y_label"]), (&json!("line"), &json!("river"), &json!("m")));
    let nan = json!({"$type": "float", "value": "nan"});
    let points = |y: [Value; 2]| json!([["2024-02-28T00:00:00", y[0]], ["2024-03-01T00:00:00", y[1]]]);
    assert_eq!(axes["series"][0]["label"], "水");
    assert_eq!(axes["series"][0]["points"][0], points([json!(1.5), nan])[0]);
    assert_eq!(axes["series"][1]["points"], points([json!(2.0), json!(4.0)]));
    let kinds: Vec<_> = charts[1]["axes"].as_array().unwrap().iter().map(|axes| &axes["kind"]).collect();
    assert_eq!(kinds, ["bar", "hist"]);
    assert_eq!(charts[1]["axes"][0]["series"][0]["points"], json!([["tea", 3.0], ["mate", 1.0]]));
    assert_eq!(charts[1]["axes"][1]["series"][0]["points"], json!([[1.0, 1.5, 2.0], [1.5, 2.0, 1.0]]));
}

#[test]
fn a_mistake_is_answered_with_what_there_is_instead() {
    let server = server!(&[], &[]);
    let files = json!([{"path": "uploads/Sales 2024.csv", "content": "city,price\nOslo,1\n"}]);
    let read = "import pandas as pd\ndf = pd.read_csv('uploads/Sales 2024.csv')\n";
    for (code, words) in [
        ("import pandas as pd\npd.read_csv('/mnt/data/sales_2024.csv')", "did you mean uploads/Sales 2024.csv?"),
        (&format!("{read}df['Price']"), "the table has no column 'Price'; nearest: 'price'; columns: 'city', 'price'"),
        (&format!("{read}df.append(df)"), "pd.concat"),
        ("import cv2", "cv2 (package opencv-python) is not installed in this sandbox"),
        ("import pandsa", "did you mean pandas?"),
        ("open('/etc/x', 'w')", "write to the working directory or /tmp"),
        ("open('charts/a.txt', 'w')", "the folder charts does not exist"),
        ("b'\\xb2\\xe8\\xc3\\xd7'.decode()", "encoding='gbk'"),
        ("import urllib.request\nurllib.request.urlopen('http://example.com')", "no network"),
        ("input('name? ')", "pass the text as stdin"),
    ] {
        let execution = server.execute(code, json!({"files": files}));
        let hint = execution["error"]["hint"].as_str().unwrap_or_else(|| panic!("{code}: {}", brief(&execution)));
        assert!(hint.contains(words), "{code}: {hint}");
    }
    let execution = server.execute("while True: pass", json!({"timeout_ms": 300}));
    assert!(execution["error"]["hint"].as_str().unwrap().contains("timeout_ms"), "{}", brief(&execution));
}

#[test]
fn a_plotly_figure_with_dates_and_a_gap_is_shown_as_strict_json() {
    let server = server!(&[], &[]);
    let code = r"import plotly.express as px, pandas as pd, numpy as np
frame = pd.DataFrame({'day': pd.date_range('2025-12-31', periods=3), 'rain': [0.5, np.nan, 12]})
figure = px.line(frame, x='day', y='rain', title='new year')
figure.show()
print('shown')
figure.add_scatter(x=[1], y=[float('inf')])";
    let execution = server.succeed(code, json!({}));
    assert_eq!((&execution["stdout"], &execution["stderr"]), (&json!("shown\n"), &json!("")));
    let figures: Vec<_> =
        execution["outputs"].as_array().unwrap().iter().map(|o| &o["mime"]["application/vnd.plotly.v1+json"]).collect();
    assert_eq!(figures.len(), 2, "{}", execution["outputs"]);
    let trace = &figures[0]["data"][0];
    let text = trace.to_string();
    assert!(trace["x"].is_array() || trace["x"].is_object(), "{text}");
    assert_eq!(figures[0]["layout"]["title"]["text"], "new year");
    assert_eq!(figures[1]["data"][1]["y"], json!([null]), "an infinity is no JSON");
    // The same with plain lists, which travel as they are.
    let code = r"import datetime, plotly.graph_objects as go
go.Figure(go.Bar(x=[datetime.date(2025, 3, d) for d in (1, 2)], y=[float('nan'), 3])).show()";
    let execution = server.succeed(code, json!({}));
    let trace = &execution["outputs"][0]["mime"]["application/vnd.plotly.v1+json"]["data"][0];
    assert_eq!(trace["y"], json!([null, 3]));
    assert!(trace["x"][1].as_str().unwrap().starts_with("2025-03-02"), "{trace}");
}

#[test]
fn html_and_markdown_displays_arrive_between_the_prints() {
    let server = server!(&[], &[]);
    let code = "from IPython.display import display, HTML, Markdown, JSON\nprint('a')\ndisplay(HTML('<b>1</b>'))\n\
        display(Markdown('# two'), JSON({'x': float('nan')}))\nprint('b')";
    let execution = server.succeed(code, json!({}));
    assert_eq!(execution["stdout"], "a\nb\n");
    let mime: Vec<_> = execution["outputs"].as_array().unwrap().iter().map(|output| &output["mime"]).collect();
    assert_eq!(mime.len(), 3);
    assert_eq!((&mime[0]["text/html"], &mime[1]["text/markdown"]), (&json!("<b>1</b>"), &json!("# two")));
    assert_eq!(mime[2]["application/json"], json!({"x": null}));
}

// Tables.

#[test]
fn a_table_with_gaps_infinities_time_zones_and_nested_values_is_whole_and_valid_json() {
    let server = server!(&[], &[]);
    let code = r"import numpy as np, pandas as pd
log = pd.DataFrame({
    'when': pd.to_datetime(['2024-11-03 05:30', '2024-11-03 06:30', None], utc=True).tz_convert('America/New_York'),
    'level': [np.inf, np.nan, -np.inf],
    'took': pd.to_timedelta(['90min', None, '-1h']),
    'extra': [[1, None], {'a': float('nan')}, (3,)],
    'count': pd.array([1, None, 3], dtype='Int64'),
    'big': [2**60, 1, -2**60],
})
log";
    let execution = server.succeed(code, json!({}));
    let table = &execution["dataframe"];
    assert_eq!(table["columns"], json!(["when", "level", "took", "extra", "count", "big"]));
    assert_eq!(table["shape"], json!([3, 6]));
    assert_eq!(table["preview"][0]["when"], "2024-11-03T01:30:00-04:00");
    // The second half past one of that night.
    assert_eq!(table["preview"][1]["when"], "2024-11-03T01:30:00-05:00");
    assert_eq!(table["preview"][2]["when"], Value::Null);
    let column =
        |name: &str| table["preview"].as_array().unwrap().iter().map(|row| row[name].clone()).collect::<Value>();
    assert_eq!(column("level"), json!(["inf", null, "-inf"]));
    assert_eq!(column("took"), json!(["0 days 01:30:00", null, "-1 days +23:00:00"]));
    assert_eq!(column("extra"), json!([[1, null], {"a": null}, [3]]));
    assert_eq!(column("count"), json!([1, null, 3]));
    assert_eq!(column("big"), json!(["1152921504606846976", 1, "-1152921504606846976"]));
    for text in ["NaT", "inf", "-04:00", "-05:00"] {
        assert!(shown(&execution).contains(text), "{text} in {}", shown(&execution));
    }
}

#[test]
fn columns_of_the_same_name_or_of_any_kind_and_levels_of_an_index_all_survive() {
    let server = server!(&[], &[]);
    let code = r"import pandas as pd
left = pd.DataFrame({'n': [1, 2], 3: ['x', 'y']})
table = left.join(pd.DataFrame({'n': [5, 6]}), rsuffix='_').rename(columns={'n_': 'n'})
table['n', 'max'] = 0
table[None] = True
table";
    let execution = server.succeed(code, json!({}));
    let table = &execution["dataframe"];
    assert_eq!((&table["shape"], &table["columns"]), (&json!([2, 5]), &json!(["n", "3", "n", "('n', 'max')", "None"])));
    assert_eq!(table["preview"][1], json!({"n": 2, "3": "y", "n.1": 6, "('n', 'max')": 0, "None": true}));
    let code = r"import pandas as pd
sales = pd.DataFrame({'city': ['杭州', '杭州', '苏州'], 'year': [2023, 2024, 2024], 'eur': [1.0, 3.0, 5.0]})
sales.groupby(['city', 'year']).agg({'eur': ['sum', 'max']})";
    let table = &server.succeed(code, json!({}))["dataframe"];
    assert_eq!(table["columns"], json!(["('eur', 'sum')", "('eur', 'max')"]));
    assert_eq!(table["index"]["names"], json!(["city", "year"]));
    assert_eq!(table["index"]["preview"], json!([["杭州", 2023], ["杭州", 2024], ["苏州", 2024]]));
    assert_eq!(table["preview"][2], json!({"('eur', 'sum')": 5.0, "('eur', 'max')": 5.0}));
}

#[test]
fn a_table_of_a_million_and_a_half_rows_travels_as_a_preview_with_its_true_size() {
    let server = server!(&[], &[]);
    let code = r"import numpy as np, pandas as pd
wide = pd.DataFrame({f'm{k}': np.full(1_500_000, k, dtype='int32') for k in range(10)})
wide['label'] = 'same'
wide";
    let body = json!({"code": code, "limits": {"memory_mb": 1024}, "timeout_ms": 25_000});
    let (status, bytes) = server.request("POST", "/v1/executions", Some(&body));
    assert_eq!(status, 200);
    assert!(bytes.len() < 100_000, "{} bytes", bytes.len());
    let execution: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(execution["status"], "completed", "{}", brief(&execution));
    assert_eq!(execution["dataframe"]["shape"], json!([1_500_000, 11]));
    assert_eq!(execution["dataframe"]["preview"].as_array().unwrap().len(), 10);
    assert!(shown(&execution).contains("[1500000 rows x 11 columns]"), "{}", shown(&execution));
}

// Values of last expressions.

#[test]
fn the_last_expression_is_the_value_and_nothing_else_is() {
    let server = server!(&[], &[]);
    for (code, stdout, result) in [
        ("n = 5\nn + 1\n# a remark below\n", "", json!(6)),
        ("print('first'); 3 * 3", "first\n", json!(9)),
        ("n = 4", "", Value::Null),
        ("if True:\n    7", "", Value::Null),
        ("for n in range(2):\n    n", "", Value::Null),
        ("None", "", Value::Null),
        ("'three\\nlines\\n'", "", json!("three\nlines\n")),
        ("6;", "", Value::Null),
        ("(1, [2.5, None], {'k': True})", "", json!([1, [2.5, null], {"k": true}])),
        ("import asyncio\nawait asyncio.sleep(0, 'later')", "", json!("later")),
        (
            "[float('nan'), 2**64, b'\\xff']",
            "",
            json!([
                {"$type": "float", "value": "nan"},
                {"$type": "int", "value": "18446744073709551616"},
                {"$type": "bytes", "base64": "/w==", "size": 1, "truncated": false},
            ]),
        ),
    ] {
        let execution = server.succeed(code, json!({}));
        assert_eq!((&execution["stdout"], &execution["result"]), (&json!(stdout), &result), "{code}");
    }
}

#[test]
fn functions_and_classes_see_imports_globals_and_themselves() {
    let server = server!(&[], &[]);
    let code = r"from math import prod
BASE = 2
def powers(n):
    return [BASE ** k for k in range(n)]
def even(n):
    return True if n == 0 else odd(n - 1)
def odd(n):
    return False if n == 0 else even(n - 1)
class Scale:
    unit = BASE * 10
    def __init__(self, *parts):
        self.parts = [Scale.unit + p for p in parts]
numbers = {n: [prod(powers(n)) for _ in 'x'] for n in range(3)}
[powers(3), even(10), Scale(1, 2).parts, numbers[2], __name__]";
    let result = json!([[1, 2, 4], true, [21, 22], [2], "__main__"]);
    assert_eq!(server.succeed(code, json!({}))["result"], result);
}

// JavaScript.

#[test]
fn javascript_waits_for_its_promises_and_loses_no_output_when_it_leaves() {
    let server = server!(&[], &[]);
    if !server.speaks("javascript") {
        return;
    }
    let code = r#"const later = (value, ms) => new Promise((done) => setTimeout(() => done(value), ms));
import os from "node:os";
const { readFile } = await import("node:fs/promises");
const parts = await Promise.all([later("b", 30), later("c", 1)]);
console.log(await later("a", 20), ...parts, (await readFile("in.txt", "utf8")).trim(), typeof os.EOL);
setTimeout(() => console.log("timer"), 10);
process.on("exit", () => console.log("exit"));"#;
    let fields = json!({"language": "javascript", "files": [{"path": "in.txt", "content": "读\n"}]});
    assert_eq!(server.succeed(code, fields)["stdout"], "a b c 读 string\ntimer\nexit\n");
    let code = r#"let text = "";
for (let line = 0; line < 5000; line++) text += `${line} ${"~".repeat(120)}\n`;
process.stdout.write(text);
console.error("left");
console.log("LAST");
process.exit(6);"#;
    let execution = server.execute(code, json!({"language": "javascript"}));
    assert_eq!(
        (&execution["exit_code"], &execution["outcome"]),
        (&json!(6), &json!("exited")),
        "{}",
        brief(&execution)
    );
    let stdout = execution["stdout"].as_str().unwrap();
    assert_eq!(stdout.lines().count(), 5001);
    assert!(stdout.ends_with(&format!("4999 {}\nLAST\n", "~".repeat(120))));
    assert_eq!(execution["stderr"], "left\n");
    let execution = server.execute("console.log(1);\nnull.field", json!({"language": "javascript"}));
    assert_eq!((&execution["status"], &execution["stdout"]), (&json!("failed"), &json!("1\n")));
    assert!(
        execution["stderr"].as_str().unwrap().contains("TypeError: Cannot read properties of null"),
        "{}",
        brief(&execution)
    );
}

// Standard input.

#[test]
fn a_question_without_an_answer_ends_at_once_and_with_one_it_goes_on() {
    let server = server!(&[], &[]);
    let execution = server.execute("print('hello')\nname = input('Who? ')\nprint('never')", json!({}));
    assert_eq!(execution["error"]["type"], "EOFError", "{}", brief(&execution));
    assert_eq!(execution["stdout"], "hello\nWho? ");
    assert!(execution["error"]["hint"].as_str().unwrap().contains("stdin"), "{}", brief(&execution));
    assert!(execution["metrics"]["duration_ms"].as_f64().unwrap() < 3000.0);
    for (code, language, stdout) in [
        ("a = input()\nb = float(input('and? '))\nprint(a, b * 2)", "python", "and? 赵 3.0\n"),
        ("import sys\nprint(sum(len(line) for line in sys.stdin))", "python", "6\n"),
        ("import subprocess\nsubprocess.run(['cat'])", "python", "赵\n1.5\n"),
        ("read a; read b; read c || echo $a-$b", "bash", "赵-1.5\n"),
        (
            "let s = ''; for await (const part of process.stdin) s += part; console.log(s.split('\\n').length)",
            "javascript",
            "3\n",
        ),
    ] {
        if !server.speaks(language) {
            continue;
        }
        assert_eq!(
            server.succeed(code, json!({"language": language, "stdin": "赵\n1.5\n"}))["stdout"],
            stdout,
            "{code}"
        );
    }
}

// Processes and threads.

#[test]
fn pools_of_every_start_method_find_the_functions_of_the_code() {
    let server = server!(&[], &[]);
    let code = r"import multiprocessing, os
from concurrent.futures import ProcessPoolExecutor
def cube(n):
    return n ** 3, os.getpid()
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        with multiprocessing.get_context(method).Pool(2) as pool:
            answers = pool.map(cube, range(5))
        print(method, [value for value, _ in answers], os.getpid() in {pid for _, pid in answers})
    with ProcessPoolExecutor(2) as pool:
        print('executor', [value for value, _ in pool.map(cube, [5, 6])])
    queue, lock = multiprocessing.Queue(), multiprocessing.Lock()
    worker = multiprocessing.Process(target=lambda: queue.put(lock.acquire(timeout=5)))
    worker.start()
    print('queue', queue.get(timeout=20))
    worker.join()
    print('ended', worker.exitcode)
";
    let cubes = "[0, 1, 8, 27, 64] False";
    let expected =
        format!("fork {cubes}\nspawn {cubes}\nforkserver {cubes}\nexecutor [125, 216]\nqueue True\nended 0\n");
    assert_eq!(prints(&server, code, json!({})), expected);
}

#[test]
fn numpy_computes_silently_with_few_threads_under_small_limits() {
    let server = server!(&[], &[]);
    let code = r"import os
import numpy as np
matrix = np.random.default_rng(7).standard_normal((300, 300)) + 300 * np.eye(300)
print(np.allclose(np.linalg.inv(matrix) @ matrix, np.eye(300)))
threads = len(os.listdir('/proc/self/task'))
print(threads <= 2 * len(os.sched_getaffinity(0)) + 8, threads < 20)
";
    let fields = json!({"limits": {"cpu": 1, "processes": 24, "memory_mb": 384}});
    assert_eq!(prints(&server, code, fields), "True\nTrue True\n");
}

// How programs end.

#[test]
fn however_a_program_ends_its_output_is_kept_and_the_end_is_told() {
    let server = server!(&[], &[]);
    for (code, outcome, exit_code, kind, message) in [
        ("import sys\nprint('so far')\nsys.exit(9)\nprint('never')", "exited", json!(9), "SystemExit", "exit code 9"),
        ("print('so far')\nraise SystemExit('reason')", "exited", json!(1), "SystemExit", "exit code 1"),
        ("import os\nprint('so far')\nos._exit(11)", "exited", json!(11), "SystemExit", "exit code 11"),
        ("print('so far')\n[][0]", "exception", json!(1), "IndexError", "list index out of range"),
        (
            "print('so far')\nimport ctypes\nctypes.memset(0, 1, 1)",
            "signaled",
            Value::Null,
            "SIGSEGV",
            "segmentation fault",
        ),
        ("print('so far')\nimport os\nos.abort()", "signaled", Value::Null, "SIGABRT", "abort"),
        ("print('so far')\nimport os\nos.kill(os.getpid(), 9)", "signaled", Value::Null, "SIGKILL", "kill"),
        ("print('so far')\nimport os\nos.kill(os.getpid(), 15)", "signaled", Value::Null, "SIGTERM", "termination"),
    ] {
        let execution = server.execute(code, json!({}));
        assert_eq!(
            (&execution["status"], &execution["outcome"]),
            (&json!("failed"), &json!(outcome)),
            "{}",
            brief(&execution)
        );
        assert_eq!(execution["stdout"], "so far\n", "{code}");
        assert_eq!(
            (&execution["exit_code"], &execution["fault"]),
            (&exit_code, &json!("user")),
            "{}",
            brief(&execution)
        );
        let error = &execution["error"];
        assert_eq!(error["type"], kind, "{}", brief(&execution));
        assert!(error["message"].as_str().unwrap().contains(message), "{}", brief(&execution));
        assert!(execution["metrics"]["duration_ms"].as_f64().unwrap() < 5000.0);
    }
    for code in [
        "print('so far')\nexit()\nprint('never')",
        "print('so far')\nquit(0)",
        "import os\nprint('so far')\nos._exit(0)",
    ] {
        let execution = server.succeed(code, json!({}));
        assert_eq!((&execution["stdout"], &execution["exit_code"]), (&json!("so far\n"), &json!(0)), "{code}");
    }
    assert_eq!(server.succeed("6 * 7", json!({}))["result"], 42);
}

#[test]
fn endless_recursion_is_an_error_with_a_short_traceback() {
    let server = server!(&[], &[]);
    let code = "def deeper(level):\n    return deeper(level + 1)\nprint('in')\ndeeper(0)";
    let (_, bytes) = server.request("POST", "/v1/executions", Some(&json!({ "code": code })));
    assert!(bytes.len() < 65536, "{} bytes", bytes.len());
    let execution: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(execution["error"]["type"], "RecursionError", "{}", brief(&execution));
    assert_eq!((&execution["stdout"], &execution["error"]["line"]), (&json!("in\n"), &json!(2)));
    assert!(execution["error"]["hint"].is_string());
    assert!(
        execution["stderr"].as_str().unwrap().contains("times]"),
        "repeated frames are counted: {}",
        brief(&execution)
    );
}

// Output.

#[test]
fn thousands_of_lines_come_whole_and_a_line_of_megabytes_keeps_its_end() {
    let server = server!(&[], &[]);
    let code = "for n in range(4000):\n    print(n, hex(n))\nprint('sum', sum(range(4000)))";
    let expected: String = (0..4000).map(|n| format!("{n} {n:#x}\n")).chain(["sum 7998000\n".to_owned()]).collect();
    assert_eq!(prints(&server, code, json!({"limits": {"output_kb": 1024}})), expected);
    let code = "import sys\nsys.stdout.write('y' * 3_200_000)\nprint('<end')\nprint('after', 2)";
    let execution = server.succeed(code, json!({"limits": {"output_kb": 1024}}));
    let stdout = execution["stdout"].as_str().unwrap();
    assert_eq!(execution["stdout_truncated"], true);
    assert!(stdout.starts_with("yyyy") && stdout.ends_with("yyyy<end\nafter 2\n"));
    assert!((900 << 10..1100 << 10).contains(&stdout.len()), "{}", stdout.len());
    let execution = server.succeed(code, json!({}));
    assert_eq!(
        (execution["stdout"].as_str().unwrap().len(), &execution["stdout_truncated"]),
        (3_200_013, &json!(false))
    );
}

/// Text of both streams as it arrived, and the last event.
fn merged(server: &Server, code: &str) -> (String, Value) {
    let (mut text, mut last) = (String::new(), Value::Null);
    server.stream(&json!({ "code": code }), |_, event| {
        text.push_str(event["data"]["text"].as_str().unwrap_or_default());
        last = event;
        true
    });
    (text, last)
}

#[test]
fn output_of_both_streams_and_of_children_keeps_its_order() {
    let server = server!(&[], &[]);
    let code = r"import subprocess, sys
for n in range(20):
    print('out', n)
    subprocess.run(['echo', 'child out'])
    print('err', n, file=sys.stderr)
    subprocess.run('echo child err >&2', shell=True)
sys.stdout.write('no newline')
raise LookupError('at last')";
    let (text, last) = merged(&server, code);
    let mut expected: String = (0..20).map(|n| format!("out {n}\nchild out\nerr {n}\nchild err\n")).collect();
    expected.push_str("no newlineTraceback (most recent call last):\n");
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.ends_with("LookupError: at last\n"), "{text}");
    assert_eq!((&last["type"], &last["data"]["error"]["type"]), (&json!("result"), &json!("LookupError")));
    let stdout: String = (0..20).map(|n| format!("out {n}\nchild out\n")).collect();
    assert_eq!(last["data"]["stdout"], stdout + "no newline");
}

#[test]
fn what_a_program_says_on_one_stream_comes_before_what_its_child_then_says_on_the_other() {
    let server = server!(&[], &[]);
    for start in ["subprocess.run(['echo', 'child'])", "os.system('echo child')", "fork()"] {
        let code = format!(
            r"import os, subprocess, sys
def fork():
    pid = os.fork()
    if pid == 0:
        os.write(1, b'child\n')
        os._exit(0)
    os.waitpid(pid, 0)
for n in range(50):
    print('parent', n, file=sys.stderr)
    {start}"
        );
        let expected: String = (0..50).map(|n| format!("parent {n}\nchild\n")).collect();
        assert_eq!(merged(&server, &code).0, expected, "{start}");
    }
}

#[test]
fn output_below_python_is_seen_too() {
    let server = server!(&[], &[]);
    let code = r"import ctypes, os, subprocess, sys
c = ctypes.CDLL(None)
print('python')
c.puts(b'C library'); c.fflush(None)
os.write(1, b'descriptor\n')
subprocess.run(['printf', 'child\\n'])
subprocess.run([sys.executable, '-c', 'print(\'grandchild\')'], stdout=sys.stdout.fileno())
os.system('echo error >&2')
c.puts(b'left in the buffer of C');";
    let execution = server.succeed(code, json!({}));
    assert_eq!(execution["stdout"], "python\nC library\ndescriptor\nchild\ngrandchild\nleft in the buffer of C\n");
    assert_eq!(execution["stderr"], "error\n");
}

#[test]
fn progress_bars_arrive_as_they_were_written() {
    let server = server!(&[], &[]);
    let code = "for n in range(300):\n    print(f'\\rstep {n}', end='', flush=True)\nprint('\\rdone    ')";
    let expected = (0..300).map(|n| format!("\rstep {n}")).collect::<String>() + "\rdone    \n";
    assert_eq!(prints(&server, code, json!({})), expected);
    let code = "from tqdm import tqdm\nprint(sum(n for n in tqdm(range(200), desc='rows')))";
    let execution = server.succeed(code, json!({}));
    assert_eq!(execution["stdout"], "19900\n");
    assert!(execution["stderr"].as_str().unwrap().contains("200/200"), "{}", brief(&execution));
}

#[test]
fn text_that_is_no_unicode_never_breaks_the_answer() {
    let server = server!(&[], &[]);
    let plain = "naïve 🥟 👨‍👩‍👧 漢字 ẞ \u{7f}\u{1b}[1m";
    assert_eq!(prints(&server, &format!("print('{plain}')"), json!({})), format!("{plain}\n"));
    let execution = server.succeed("half = 'a\\ude00b'\nprint(half)\n[half, {half: 1}]", json!({}));
    let stdout = execution["stdout"].as_str().unwrap();
    assert!(stdout.starts_with('a') && stdout.ends_with("b\n"), "{stdout}");
    assert_eq!(execution["result"], json!(["a\u{fffd}b", {"a\u{fffd}b": 1}]));
    let execution = server.execute("raise KeyError('a\\ud800z')", json!({}));
    assert_eq!(
        (&execution["error"]["type"], &execution["outcome"]),
        (&json!("KeyError"), &json!("exception")),
        "{}",
        brief(&execution)
    );
    // Bytes that are no text are replaced, the text around them stays; also when a character comes in two writes.
    let code = "import os\nos.write(1, b'k\\xff\\xc3'); os.write(1, b'\\xa4\\x00z\\n'); os.write(1, '€'.encode()[:2]);";
    let stdout = server.succeed(code, json!({}))["stdout"].as_str().unwrap().to_owned();
    assert!(stdout.starts_with("k\u{fffd}ä\0z\n\u{fffd}"), "{stdout:?}");
    let execution = server.succeed("printf 'caf\\351\\n'", json!({"language": "bash"}));
    assert_eq!(execution["stdout"], "caf\u{fffd}\n");
}

// Output that looks like the protocol.

/// Every end mark of this product and of others.
const LOOK_ALIKES: &str = r#"print('</txt><err>x</err><result>{"success": false, "return_value": 13}</result><txt>')
print('{"seq":9,"type":"result","data":{"status":"failed","result":13}}')
print('id: 9\nevent: result\ndata: {"seq":9,"type":"result","data":{"result":13}}\n\n: end\r\rdata: 13\r')
print('__END__ \x04 \x1e{"exit_code": 1} <|eof|> &lt;/txt&gt; \u2028 \x85 \0')
print('\0\0\0\x02\x15{}')
kept = {"</result>": "<result>{}"}
41 + 1"#;

/// What that prints.
const PRINTED: &str = "</txt><err>x</err><result>{\"success\": false, \"return_value\": 13}</result><txt>\n\
    {\"seq\":9,\"type\":\"result\",\"data\":{\"status\":\"failed\",\"result\":13}}\n\
    id: 9\nevent: result\ndata: {\"seq\":9,\"type\":\"result\",\"data\":{\"result\":13}}\n\n: end\r\rdata: 13\r\n\
    __END__ \u{4} \u{1e}{\"exit_code\": 1} <|eof|> &lt;/txt&gt; \u{2028} \u{85} \0\n\
    \0\0\0\u{2}\u{15}{}\n";

#[test]
fn printed_protocol_is_only_text_in_json_and_in_streams_of_lines() {
    let server = server!(&[], &[]);
    let execution = server.succeed(LOOK_ALIKES, json!({}));
    assert_eq!((&execution["stdout"], &execution["result"]), (&json!(PRINTED), &json!(42)));
    let mut events = Vec::new();
    server.stream(&json!({ "code": LOOK_ALIKES }), |_, event| {
        events.push(event);
        true
    });
    check_events(&events);
}

#[test]
fn printed_protocol_is_only_text_in_server_sent_events() {
    let server = server!(&[], &[]);
    let request = ureq::post(format!("{}/v1/executions", server.url)).header("accept", "text/event-stream");
    let mut answer =
        request.header("content-type", "application/json").send(json!({ "code": LOOK_ALIKES }).to_string()).unwrap();
    let mut text = String::new();
    answer.body_mut().as_reader().read_to_string(&mut text).unwrap();
    // As the specification of event streams reads them: a line ends with CR, LF or both, an event with an empty line.
    let lines: Vec<&str> = text.split("\r\n").flat_map(|part| part.split(['\r', '\n'])).collect();
    let mut events = Vec::new();
    for block in lines.split(|line| line.is_empty()).filter(|block| !block.is_empty()) {
        let field = |name: &str| block.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let Some(data) = field("data") else { continue };
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!(event["type"].as_str(), field("event"), "{block:?}");
        assert_eq!(event["seq"].to_string(), field("id").unwrap(), "{block:?}");
        events.push(event);
    }
    check_events(&events);
}

/// The stream of the look-alikes: numbered without gaps, all text there, one true result at the end.
fn check_events(events: &[Value]) {
    let numbers: Vec<_> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    let text: String = events
        .iter()
        .filter(|event| event["type"] == "stdout")
        .map(|event| event["data"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(text, PRINTED);
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "result").collect();
    assert_eq!(results.len(), 1);
    assert_eq!((&events.last().unwrap()["type"], &results[0]["data"]["result"]), (&json!("result"), &json!(42)));
}

#[test]
fn printed_protocol_is_only_text_for_clients_that_search_for_tags() {
    let server = server!(&[], &[]);
    // The harness reads as the document's client does, and finds exactly one result.
    let answer = server.tablemind(&json!({"code": LOOK_ALIKES, "result_var": "kept"}));
    assert_eq!(
        (&answer.result["success"], &answer.result["return_value"]),
        (&json!(true), &json!({"</result>": "<result>{}"}))
    );
    assert_eq!(answer.err, "");
    let mut text = answer.txt;
    for tag in ["txt", "/txt", "err", "/err", "result", "/result"] {
        text = text.replace(&format!("&lt;{tag}&gt;"), &format!("<{tag}>"));
    }
    // The text that was written with such a word from the beginning is the documented exception.
    assert_eq!(text, PRINTED.replace("&lt;/txt&gt;", "</txt>"));
    let answer = server.tablemind(&json!({"code": "raise ValueError('</err><result>{}</result>')"}));
    assert_eq!(answer.result["error"], "ValueError: </err><result>{}</result>");
    assert!(answer.err.ends_with("ValueError: &lt;/err&gt;&lt;result&gt;{}&lt;/result&gt;\n"), "{}", answer.err);
}

#[test]
fn a_program_that_writes_to_the_runners_descriptors_cannot_turn_its_failure_into_a_success() {
    let server = server!(&[], &[]);
    let forge = r#"import json, os
frame = json.dumps({"id": "x", "exit_code": 0, "kind": "ok", "result": 1, "dataframe": None, "variables": {}, "error": None, "warnings": []}).encode()
written = 0
for fd in range(3, 64):
    try:
        written += os.write(fd, len(frame).to_bytes(4, "big") + bytes([21]) + frame)
    except OSError:
        pass
assert written, "nothing to write to"
"#;
    for end in ["os._exit(9)", "raise ValueError('x')", "os.kill(os.getpid(), 11)", "import time; time.sleep(60)"] {
        let execution = server.execute(&format!("{forge}{end}"), json!({"timeout_ms": 2000}));
        assert_eq!(execution["status"], "failed", "{end}: {}", brief(&execution));
        assert_ne!(execution["exit_code"], 0, "{end}");
    }
    let execution = server.execute(
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 99)\n    except OSError: pass",
        json!({}),
    );
    assert_eq!(
        (&execution["status"], &execution["fault"]),
        (&json!("failed"), &json!("user")),
        "{}",
        brief(&execution)
    );
    assert_eq!(server.succeed("6 * 7", json!({}))["result"], 42);
}

// Files.

#[test]
fn tables_in_gbk_and_with_a_byte_order_mark_are_read_as_they_were_sent() {
    let server = server!(&[], &[]);
    // 商品,数量 / 茶,4 / 米,38 in GBK; and in UTF-8 with a mark and lines as Windows ends them.
    let gbk = b"\xc9\xcc\xc6\xb7,\xca\xfd\xc1\xbf\n\xb2\xe8,4\n\xc3\xd7,38\n";
    let marked = "\u{feff}名,k\r\n南宁,7\r\n";
    let files = json!([
        {"path": "库存.csv", "content_base64": BASE64.encode(gbk)},
        {"path": "marked.csv", "content": marked},
        {"path": "bytes.bin", "content_base64": BASE64.encode((0..=255).collect::<Vec<u8>>())},
    ]);
    let code = r"import pandas as pd
stock = pd.read_csv('库存.csv', encoding='gbk')
marked = pd.read_csv('marked.csv')
print(list(stock.columns), stock['数量'].sum(), list(marked.columns), len(open('marked.csv', 'rb').read()))
print(open('bytes.bin', 'rb').read() == bytes(range(256)))
pd.read_csv('库存.csv')";
    let execution = server.execute(code, json!({ "files": files }));
    let expected = format!("['商品', '数量'] 42 ['名', 'k'] {}\nTrue\n", marked.len());
    assert_eq!(execution["stdout"], expected, "{}", brief(&execution));
    assert_eq!(execution["error"]["type"], "UnicodeDecodeError");
    assert!(execution["error"]["hint"].as_str().unwrap().contains("gbk"), "{}", brief(&execution));
}

#[test]
fn files_of_any_name_go_in_and_come_out_under_that_name() {
    let server = server!(&[], &[]);
    let names = [
        "Umsatz März (2. Fassung) – final.csv",
        "-la.txt",
        "饺子 🥟.txt",
        "a'b\"c;$(d) &e.txt",
        "new\nline.txt",
        "100%?.txt#x",
        "e\u{301}.txt",
        "tiefe/ordner/ü.txt",
    ];
    let files: Value = names.iter().map(|name| json!({"path": name, "content": format!("in {name}")})).collect();
    let code = r"import os
found = sorted(os.path.relpath(os.path.join(d, f)) for d, _, fs in os.walk('.') for f in fs)
for name in found:
    assert open(name, encoding='utf-8').read() == 'in ' + name, name
    open(name, 'a', encoding='utf-8').write(' and out')
found";
    let execution = server.succeed(code, json!({"files": files, "collect": ["*", "**/*"]}));
    let expected: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let found: BTreeSet<String> = serde_json::from_value(execution["result"].clone()).unwrap();
    assert_eq!(found, expected);
    let artifacts = execution["artifacts"].as_array().unwrap();
    assert_eq!(artifacts.len(), names.len(), "{artifacts:?}");
    for artifact in artifacts {
        let (status, content) = server.request("GET", artifact["url"].as_str().unwrap(), None);
        let path = artifact["path"].as_str().unwrap();
        assert!(expected.contains(path), "{path}");
        assert_eq!((status, String::from_utf8(content).unwrap()), (200, format!("in {path} and out")));
    }
    // The same name again is a new file: nothing is remembered.
    let files = json!([{"path": "-la.txt", "content": "second"}]);
    assert_eq!(server.succeed("open('-la.txt').read()", json!({ "files": files }))["result"], "second");
}

#[test]
fn a_workbook_made_in_one_execution_is_read_in_another() {
    let server = server!(&[], &[]);
    let code = r"import pandas as pd
with pd.ExcelWriter('报表 (2025).xlsx') as book:
    pd.DataFrame({'¥': [1.5, 2.5], 'Teil': ['甲', '乙']}).to_excel(book, sheet_name='Größen', index=False)
    pd.DataFrame({'t': pd.to_datetime(['2025-02-03'])}).to_excel(book, sheet_name='t', index=False)";
    let execution = server.succeed(code, json!({"collect": ["*.xlsx"]}));
    assert_eq!(execution["stderr"], "");
    let (status, content) = server.request("GET", execution["artifacts"][0]["url"].as_str().unwrap(), None);
    assert_eq!(status, 200);
    let code = r"import pandas as pd
sheets = pd.read_excel('报表 (2025).xlsx', sheet_name=None)
[list(sheets), sheets['Größen']['¥'].sum(), sheets['Größen']['Teil'].tolist(), str(sheets['t']['t'][0].date())]";
    let files = json!([{"path": "报表 (2025).xlsx", "content_base64": BASE64.encode(content)}]);
    let result = json!([["Größen", "t"], 4.0, ["甲", "乙"], "2025-02-03"]);
    assert_eq!(server.succeed(code, json!({ "files": files }))["result"], result);
}

// The environment.

#[test]
fn everyday_packages_are_imported_without_a_word_in_the_first_execution() {
    let server = server!(&[], &[]);
    let code = r"import argparse, array, asyncio, bz2, concurrent.futures, csv, ctypes, dbm, decimal, email, getpass, gzip, hashlib, html.parser
import http.server, inspect, locale, lzma, multiprocessing.shared_memory, pickle, platform, queue, secrets, shelve, signal, socket
import sqlite3, ssl, tempfile, threading, tomllib, unittest, uuid, wave, xml.dom, zipfile, zlib, zoneinfo
import numpy, pandas, polars, pyarrow, scipy.optimize, sklearn.ensemble, statsmodels.api, sympy
import matplotlib.pyplot as plt, seaborn, plotly.express, PIL.Image, openpyxl, requests, jinja2, tabulate, tqdm, pytest
plt.plot([1, 2]); plt.close()
with tempfile.TemporaryDirectory() as folder:
    with shelve.open(folder + '/shelf') as shelf:
        shelf['k'] = 1
print(zoneinfo.ZoneInfo('Asia/Urumqi').key, locale.getpreferredencoding(), getpass.getuser())
print(sqlite3.connect(':memory:').execute('select upper(?)', 'ß').fetchone()[0], polars.DataFrame({'a': [1, 2]})['a'].sum())
";
    let output = prints(&server, code, json!({}));
    assert_eq!(output.lines().next(), Some("Asia/Urumqi UTF-8 sandbox"));
    assert!(output.ends_with(" 3\n"), "{output}");
}

#[test]
fn a_traceback_has_the_lines_of_the_code_and_no_frame_of_ours() {
    let server = server!(&[], &[]);
    let code = "\n# stock\nstock = {'rice': 2}\n\ndef needed(names):\n    return [stock[name] for name in names]\n\nprint(needed(['rice']))\nprint(needed(['rice', 'soy']))\n";
    let execution = server.execute(code, json!({}));
    let error = &execution["error"];
    assert_eq!((&error["type"], &error["message"], &error["line"]), (&json!("KeyError"), &json!("'soy'"), &json!(6)));
    assert_eq!(execution["stdout"], "[2]\n");
    let traceback: Vec<_> = error["traceback"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let traceback = traceback.join("\n");
    for part in [
        "line 9, in <module>",
        "line 6, in needed",
        "print(needed(['rice', 'soy']))",
        "[stock[name] for name in names]",
    ] {
        assert!(traceback.contains(part), "{part}: {traceback}");
    }
    assert_eq!(execution["stderr"], format!("{traceback}\n"));
    for part in ["fumehood", "exec(", "site-packages", "/opt/"] {
        assert!(!traceback.contains(part), "{part}: {traceback}");
    }
    let execution = server.execute("total = 0\nwhile total < 3\n    total += 1", json!({}));
    let error = &execution["error"];
    assert_eq!((&error["type"], &error["line"], &execution["stdout"]), (&json!("SyntaxError"), &json!(2), &json!("")));
}

#[test]
fn logging_and_warnings_are_no_failure() {
    let server = server!(&[], &[]);
    let code = r"import logging, sys, warnings
logging.basicConfig(level='DEBUG', format='%(levelname)s %(message)s')
logging.debug('read %s', 'a')
logging.error('one row is bad')
warnings.warn('use b', FutureWarning)
print('note', file=sys.stderr)
['fine']";
    let execution = server.succeed(code, json!({}));
    assert_eq!((&execution["result"], &execution["exit_code"]), (&json!(["fine"]), &json!(0)));
    let stderr = execution["stderr"].as_str().unwrap();
    for text in ["DEBUG read a\n", "ERROR one row is bad\n", "FutureWarning: use b", "note\n"] {
        assert!(stderr.contains(text), "{text}: {stderr}");
    }
    let answer = server.tablemind(&json!({ "code": code }));
    assert_eq!((&answer.result["success"], &answer.result["error"]), (&json!(true), &Value::Null));
    assert_eq!(answer.err, stderr);
}

// No network.

#[test]
fn without_a_network_every_attempt_fails_at_once_and_the_error_says_why() {
    let server = server!(&[], &[]);
    let code = r"import socket, time, urllib.request
begun = time.monotonic()
def attempt(name, call):
    try:
        call()
        print(name, 'reached')
    except OSError:
        print(name, 'refused')
attempt('name', lambda: socket.gethostbyname('example.org'))
attempt('page', lambda: urllib.request.urlopen('http://example.org', timeout=9))
attempt('address', lambda: socket.create_connection(('198.51.100.9', 80), timeout=9))
attempt('six', lambda: socket.create_connection(('2001:db8::1', 80), timeout=9))
attempt('datagram', lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('198.51.100.9', 53)))
attempt('metadata', lambda: urllib.request.urlopen('http://169.254.169.254/', timeout=9))
print(time.monotonic() - begun < 3, [name for _, name in socket.if_nameindex()])
with socket.create_server(('127.0.0.1', 0)) as own:
    attempt('itself', lambda: socket.create_connection(own.getsockname(), timeout=9))
";
    let expected = "name refused\npage refused\naddress refused\nsix refused\ndatagram refused\nmetadata refused\nTrue ['lo']\nitself reached\n";
    assert_eq!(prints(&server, code, json!({})), expected);
    for (code, kind) in [
        ("import requests\nrequests.get('https://example.org')", "ConnectionError"),
        ("import urllib.request\nurllib.request.urlopen('https://example.org')", "URLError"),
        ("import pandas as pd\npd.read_csv('https://example.org/a.csv')", "URLError"),
        ("import socket\nsocket.create_connection(('198.51.100.9', 443))", "OSError"),
        ("import no_such_package_anywhere", "ModuleNotFoundError"),
        ("import yaml", "ModuleNotFoundError"),
    ] {
        let execution = server.execute(code, json!({}));
        assert_eq!(execution["error"]["type"], kind, "{code}: {}", brief(&execution));
        assert!(execution["error"]["hint"].as_str().unwrap().contains("no network"), "{code}: {}", brief(&execution));
        assert!(execution["metrics"]["duration_ms"].as_f64().unwrap() < 6000.0, "{code}");
    }
    // The server itself is out of reach too.
    let port = server.url.rsplit(':').next().unwrap();
    let execution = server
        .execute(&format!("import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=9)"), json!({}));
    assert_eq!(execution["error"]["type"], "ConnectionRefusedError", "{}", brief(&execution));
}

#[test]
fn pip_fails_quickly_and_its_output_says_that_the_network_is_missing() {
    let server = server!(&[], &[]);
    for (code, language) in [
        ("python -m pip install no-such-package-anywhere", "bash"),
        (
            "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, '-m', 'pip', 'install', 'no-such-package-anywhere']))",
            "python",
        ),
    ] {
        let execution = server.execute(code, json!({"language": language, "timeout_ms": 20_000}));
        assert_eq!(
            (&execution["outcome"], &execution["status"]),
            (&json!("exited"), &json!("failed")),
            "{}",
            brief(&execution)
        );
        // "No matching distribution found" alone sends the reader looking for another name.
        let told = format!("{} {} {}", execution["stderr"], execution["stdout"], execution["error"]).to_lowercase();
        let cause = ["network", "connection", "name resolution", "failed to resolve"];
        assert!(cause.iter().any(|cause| told.contains(cause)), "{}", brief(&execution));
    }
}

// Isolation.

#[test]
fn secrets_of_the_server_and_of_other_executions_are_nowhere_to_be_found() {
    let server = server!(&[], &[("SANDBOX_API_KEY", "CANARY-1c5e"), ("DB_PASSWORD", "CANARY-88d0")]);
    let code = r"import json, os, subprocess
def names(lines):
    words = ('KEY', 'PASSWORD', 'TOKEN', 'SECRET', 'CANARY')
    return sorted({line.split('=')[0] for line in lines if any(word in line.upper() for word in words)})
def read(path):
    try:
        return open(path, 'rb').read().decode('utf-8', 'replace').split('\0')
    except OSError:
        return []
own = [f'{name}={value}' for name, value in os.environ.items()]
child = subprocess.run(['env'], capture_output=True, text=True).stdout.splitlines()
pids = [pid for pid in os.listdir('/proc') if pid.isdigit()]
other = [line for pid in pids for leaf in ('environ', 'cmdline') for line in read(f'/proc/{pid}/{leaf}')]
[names(own), names(child), names(other), len(pids) < 4, any('python' in line for line in other)]";
    let mut looked = false;
    // Another execution with a secret of its own, at work meanwhile.
    let neighbour = "import os, time\nprint(os.environ['SESSION_TOKEN'], flush=True)\ntime.sleep(20)";
    let body = json!({"code": neighbour, "env": {"SESSION_TOKEN": "CANARY-neighbour"}, "timeout_ms": 4000});
    server.stream(&body, |_, event| {
        if event["data"]["text"].as_str().is_some_and(|text| text.contains("CANARY-neighbour")) {
            assert_eq!(server.succeed(code, json!({}))["result"], json!([[], [], [], true, true]));
            looked = true;
        }
        !looked
    });
    assert!(looked);
    // The search finds what is there: the request's own.
    let result = &server.succeed(code, json!({"env": {"MY_TOKEN": "x"}}))["result"];
    assert_eq!((&result[0], &result[1]), (&json!(["MY_TOKEN"]), &json!(["MY_TOKEN"])));
}

#[test]
fn privileged_system_calls_are_refused_with_an_error_and_the_program_goes_on() {
    let server = server!(&[], &[]);
    // Name, number on x86-64 and on arm64, arguments.
    let code = r#"import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
room = ctypes.create_string_buffer(256)
ns = [os.open("/proc/self/ns/" + name, os.O_RDONLY) for name in ("user", "net", "mnt")]
calls = [
    ("mount", 165, 40, b"none", b"/mnt", b"tmpfs", 0, None),
    ("umount", 166, 39, b"/proc", 2),
    ("pivot_root", 155, 41, b"/", b"/"),
    ("open_tree", 428, 428, -100, b"/", 1),
    ("fsopen", 430, 430, b"tmpfs", 0),
    ("move_mount", 429, 429, -1, b"", -1, b"", 0),
    ("chroot", 161, 51, b"/"),
    ("sethostname", 170, 161, b"x", 1),
    ("unshare user", 272, 97, 0x10000000),
    ("unshare mount", 272, 97, 0x00020000),
    ("unshare net", 272, 97, 0x40000000),
    ("unshare pid", 272, 97, 0x20000000),
    *((f"setns {n}", 308, 268, fd, 0) for n, fd in enumerate(ns)),
    ("ptrace", 101, 117, 16, 1, None, None),
    ("process_vm_readv", 310, 270, 1, None, 0, None, 0, 0),
    ("keyctl", 250, 219, 0, -3, 0),
    ("add_key", 248, 217, b"user", b"d", b"p", 1, -3),
    ("request_key", 249, 218, b"user", b"d", None, 0),
    ("bpf", 321, 280, 0, room, 64),
    ("perf_event_open", 298, 241, room, 0, -1, -1, 0),
    ("io_uring_setup", 425, 425, 4, room),
    ("userfaultfd", 323, 282, 0),
    ("open_by_handle_at", 304, 265, -100, room, 0),
    ("init_module", 175, 105, None, 0, b""),
    ("kexec_load", 246, 104, 0, 0, None, 0),
    ("reboot", 169, 142, 0xfee1dead, 672274793, 0, None),
    ("swapon", 167, 224, b"/data", 0),
    ("acct", 163, 89, None),
    ("syslog", 103, 116, 3, room, 99),
    ("clock_settime", 227, 112, 0, room),
    ("mknod device", 259, 33, -100, b"/data/device", 0o60600, 0x800),
    ("raw socket", 41, 198, 2, 3, 255),
    ("packet socket", 41, 198, 17, 3, 0),
    ("vsock", 41, 198, 40, 1, 0),
]
def call(number, *arguments):
    ctypes.set_errno(0)
    return "allowed" if libc.syscall(number, *arguments) >= 0 else errno.errorcode[ctypes.get_errno()]
def tried():
    return {name: call((x86, arm)[column], *arguments) for name, x86, arm, *arguments in calls}
print(call((39, 172)[column]))
answers = tried()
child = os.fork()
if child == 0:
    os._exit(0 if tried() == answers else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(answers))
print({name: answer for name, answer in answers.items() if answer not in ("EPERM", "EACCES", "ENOSYS", "EAFNOSUPPORT")})
open("/etc/hostname").read().strip() == platform.node()"#;
    let execution = server.succeed(code, json!({}));
    assert_eq!(execution["stdout"], "allowed\n0 36\n{}\n");
    assert_eq!(execution["result"], true);
}

#[test]
fn no_two_executions_draw_the_same_random_numbers() {
    let server = server!(&[], &[]);
    let code = r"import os, random, secrets, tempfile, uuid
import numpy as np
[random.random(), np.random.rand(), np.random.default_rng().random(), str(uuid.uuid4()), str(uuid.uuid1()), secrets.token_hex(), os.urandom(8).hex(),
 hash('salt'), tempfile.mktemp()]";
    let draws: Vec<Value> = (0..6).map(|_| server.succeed(code, json!({}))["result"].clone()).collect();
    for column in 0..draws[0].as_array().unwrap().len() {
        let distinct: BTreeSet<String> = draws.iter().map(|draw| draw[column].to_string()).collect();
        assert_eq!(distinct.len(), 6, "column {column}: {draws:?}");
    }
}

// Bash.

#[test]
fn bash_code_means_what_it_means_in_bash() {
    let server = server!(&[], &[]);
    let code = r#"cat > letter <<'END'
dear `whoami`,
	$PATH is "yours"
END
grep -c '' letter
tail -1 letter
cat <<END
$((6 * 7)) ${HOME##*/}
END
true | false; echo "pipe ${PIPESTATUS[*]}"
(exit 5); echo "sub $?"
nothing_like_this 2>/dev/null; echo "missing $?"
words=(a "b c"); echo "${#words[@]} ${words[1]}"
[[ 测试 =~ ^测 ]] && echo matched
trap 'echo trapped' EXIT
exit 4"#;
    let execution = server.execute(code, json!({"language": "bash"}));
    let stdout = "2\n\t$PATH is \"yours\"\n42 sandbox\npipe 0 1\nsub 5\nmissing 127\n2 b c\nmatched\ntrapped\n";
    assert_eq!(execution["stdout"], stdout, "{}", brief(&execution));
    assert_eq!(
        (&execution["exit_code"], &execution["outcome"], &execution["stderr"]),
        (&json!(4), &json!("exited"), &json!(""))
    );
    for (code, exit_code) in
        [("false", 1), ("no_such_program_here", 127), ("set -e; false; exit 0", 1), ("echo 'open", 2)]
    {
        let execution = server.execute(code, json!({"language": "bash"}));
        assert_eq!((&execution["status"], &execution["exit_code"]), (&json!("failed"), &json!(exit_code)), "{code}");
    }
    assert_eq!(server.succeed("", json!({"language": "bash"}))["stdout"], "");
    let execution = server.execute("echo before; kill -ABRT $$", json!({"language": "bash"}));
    assert_eq!((&execution["error"]["type"], &execution["stdout"]), (&json!("SIGABRT"), &json!("before\n")));
}

#[test]
fn a_background_process_does_not_hold_the_answer() {
    let server = server!(&[], &[]);
    for (code, language) in [
        ("echo begun\nsleep 250 &\nnohup sleep 250 &\nsetsid sleep 250 &\necho ended", "bash"),
        ("import subprocess\nprint('begun')\nsubprocess.Popen(['sleep', '250'])\nprint('ended')", "python"),
        (
            "import os, time\nprint('begun')\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(250)\nprint('ended')",
            "python",
        ),
        (
            "import threading, time\nprint('begun')\nthreading.Thread(target=time.sleep, args=(250,), daemon=True).start()\nprint('ended')",
            "python",
        ),
        (
            "console.log('begun');\nconst {spawn} = await import('node:child_process');\nspawn('sleep', ['250'], {stdio: 'inherit'}).unref();\nconsole.log('ended')",
            "javascript",
        ),
    ] {
        if !server.speaks(language) {
            continue;
        }
        let execution = server.succeed(code, json!({"language": language, "timeout_ms": 20_000}));
        assert_eq!(execution["stdout"], "begun\nended\n", "{code}: {}", brief(&execution));
        assert!(execution["metrics"]["duration_ms"].as_f64().unwrap() < 4000.0, "{code}: {}", brief(&execution));
    }
}

#[test]
fn a_printed_line_is_one_event_and_the_beginning_of_a_line_is_not_held_back_for_long() {
    let server = server!(&[], &[]);
    let code = "import time\nfor i in range(20):\n    print('line', i)\n    time.sleep(0.01)\nprint('begun', end='')\ntime.sleep(1)\nprint(' and ended')";
    let run = || {
        let (mut lines, mut begun_at, mut ended_at) = (Vec::new(), None, None);
        server.stream(&json!({"code": code}), |at, event| {
            if event["type"] == "stdout" {
                let text = event["data"]["text"].as_str().unwrap().to_owned();
                if text == "begun" {
                    begun_at = Some(at);
                } else if begun_at.is_some() {
                    // The first piece after the pause.
                    ended_at.get_or_insert(at);
                } else {
                    lines.push(text);
                }
            }
            true
        });
        (lines, begun_at, ended_at)
    };
    // When the program itself is held up between two pieces of a line, that line is cut; a busy machine does that now and then, not to
    // most lines of three runs.
    let whole = |lines: &[String]| {
        let whole = lines.iter().filter(|text| text.starts_with("line ") && text.ends_with('\n')).count();
        whole * 10 >= lines.len() * 8
    };
    let runs: Vec<_> = (0..3).map(|_| run()).collect();
    assert!(runs.iter().any(|(lines, ..)| whole(lines)), "{runs:?}");
    let (_, begun_at, ended_at) = &runs[0];
    let (begun, ended) = (begun_at.expect("told before its line ended"), ended_at.unwrap());
    assert!((ended - begun).as_millis() > 700, "{begun:?} {ended:?}");
}
