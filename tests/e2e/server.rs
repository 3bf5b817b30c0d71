//! A real server of this binary, on a port and a data folder of its own, and a small client.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_fumehood");

/// A running server; ended when dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) data: tempfile::TempDir,
    pub(crate) process: Child,
    log: Arc<Mutex<String>>,
}

/// Folder of images: that of the configuration the tests run in.
pub(crate) fn images_dir() -> PathBuf {
    let path = Command::new(BINARY).args(["image", "path"]).output().expect("the binary runs").stdout;
    let image = PathBuf::from(String::from_utf8(path).unwrap().trim());
    image.parent().expect("an image lies in the folder of images").to_owned()
}

impl Server {
    /// Starts a server with more flags and environment than it needs. Panics with its log when it does not come up; prints a skip and
    /// returns `None` when this host cannot confine processes.
    pub(crate) fn start_with(flags: &[&str], env: &[(&str, &str)]) -> Option<Self> {
        let data = tempfile::tempdir().unwrap();
        let mut command = Command::new(BINARY);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data.path());
        if !flags.contains(&"--images-dir") {
            command.arg("--images-dir").arg(images_dir());
        }
        command.args(flags).envs(env.iter().copied());
        Self::spawn(command, data)
    }

    /// The same with another command, whose data lie in `data`.
    pub(crate) fn spawn(mut command: Command, data: tempfile::TempDir) -> Option<Self> {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let collected = Arc::clone(&log);
        let stderr = process.stderr.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = collected.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut first = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let Some(url) = first.trim().strip_prefix("listening on ") else {
            process.wait().unwrap();
            let log = wait_for(|| Some(log.lock().unwrap().clone()).filter(|log| !log.is_empty()));
            assert!(log.contains("cannot confine"), "the server did not start: {log}");
            println!("SKIPPED process level: {log}");
            return None;
        };
        Some(Self { url: url.to_owned(), data, process, log })
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// One request; status and body, whatever the status.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Vec<u8>) {
        let mut answer = self.send(method, path, body, "application/json");
        let status = answer.status().as_u16();
        let mut bytes = Vec::new();
        answer.body_mut().as_reader().read_to_end(&mut bytes).unwrap();
        (status, bytes)
    }

    /// Uploads bytes.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) -> (u16, Vec<u8>) {
        self.send_bytes("PUT", path, "application/octet-stream", bytes)
    }

    /// Sends bytes of any kind.
    pub(crate) fn send_bytes(&self, method: &str, path: &str, kind: &str, bytes: &[u8]) -> (u16, Vec<u8>) {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        let mut answer = agent.run(request.header("content-type", kind).body(bytes).unwrap()).unwrap();
        let mut body = Vec::new();
        answer.body_mut().as_reader().read_to_end(&mut body).unwrap();
        (answer.status().as_u16(), body)
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>, accept: &str) -> ureq::http::Response<ureq::Body> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(120)))
            .build()
            .into();
        let request =
            ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url)).header("accept", accept);
        match body {
            Some(body) => {
                let request = request.header("content-type", "application/json").body(body.to_string()).unwrap();
                agent.run(request).unwrap()
            }
            None => agent.run(request.body(()).unwrap()).unwrap(),
        }
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.request("GET", path, None);
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.request("POST", path, Some(body));
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Runs code with further fields; the execution.
    pub(crate) fn execute(&self, code: &str, fields: Value) -> Value {
        let mut body = json!({ "code": code });
        body.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap_or_default());
        let (status, execution) = self.post("/v1/executions", &body);
        assert_eq!(status, 200, "{execution}");
        execution
    }

    /// Whether the image runs this language; prints a skip where it has no interpreter for it, which is not ours to install.
    pub(crate) fn speaks(&self, language: &str) -> bool {
        let (status, answer) = self.post("/v1/executions", &json!({"code": "", "language": language}));
        let missing = status == 400 && answer["error"]["field"] == "language";
        if missing {
            println!("SKIPPED {language}: {}", answer["error"]["message"]);
        }
        !missing
    }

    /// Runs code that must end well; the execution.
    pub(crate) fn succeed(&self, code: &str, fields: Value) -> Value {
        let execution = self.execute(code, fields);
        assert_eq!(execution["status"], "completed", "{}", brief(&execution));
        execution
    }

    /// Streams events as NDJSON; each is given with its time to `see`, which may end the reading by returning false.
    pub(crate) fn stream(&self, body: &Value, mut see: impl FnMut(Duration, Value) -> bool) {
        let begun = Instant::now();
        let mut answer = self.send("POST", "/v1/executions", Some(body), "application/x-ndjson");
        for line in BufReader::new(answer.body_mut().as_reader()).lines() {
            if !see(begun.elapsed(), serde_json::from_str(&line.unwrap()).unwrap()) {
                return;
            }
        }
    }

    /// The TableMind surface: its text and its result as a client of the document sees them.
    pub(crate) fn tablemind(&self, body: &Value) -> TableMind {
        let (status, bytes) = self.request("POST", "/api/v1/exec", Some(body));
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(status, 200, "{text}");
        let results = between(&text, "<result>", "</result>");
        assert_eq!(results.len(), 1, "{text}");
        TableMind {
            txt: between(&text, "<txt>", "</txt>").concat(),
            err: between(&text, "<err>", "</err>").concat(),
            img: between(&text, "<img>", "</img>"),
            result: serde_json::from_str(&results[0]).unwrap(),
        }
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end(&mut self, signal: rustix::process::Signal) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        wait_until(deadline, || self.process.try_wait().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.try_wait().unwrap().is_none() {
            self.end(rustix::process::Signal::TERM);
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            eprintln!("--- end of the server's log ---\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
        }
    }
}

pub(crate) struct TableMind {
    pub(crate) txt: String,
    pub(crate) err: String,
    pub(crate) img: Vec<String>,
    pub(crate) result: Value,
}

/// What the document's regular expressions find.
fn between(text: &str, open: &str, close: &str) -> Vec<String> {
    let parts = text.split(open).skip(1);
    parts.filter_map(|part| Some(part.split_once(close)?.0.to_owned())).collect()
}

/// An execution without its long parts.
pub(crate) fn brief(execution: &Value) -> String {
    let keys =
        ["status", "outcome", "exit_code", "error", "fault", "stdout", "stderr", "result", "warnings", "metrics"];
    let short: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), execution[key].clone())).collect();
    let text = Value::Object(short).to_string();
    text.chars().take(3000).collect()
}

/// Waits for a condition, a minute at most.
pub(crate) fn wait_for<T>(condition: impl FnMut() -> Option<T>) -> T {
    wait_until(Instant::now() + Duration::from_secs(60), condition)
}

pub(crate) fn wait_until<T>(deadline: Instant, mut condition: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// The server of a test, or the end of the test where this host cannot run one.
macro_rules! server {
    ($($arguments:expr),*) => {
        match $crate::server::Server::start_with($($arguments),*) {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server;
