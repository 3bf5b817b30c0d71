//! A backend whose sandboxes play a script: the code of an execution is a JSON array of steps.
//!
//! `{"stdout": T}`, `{"stderr": T}`, `{"display": {mime}}`, `{"value": V}`, `{"dataframe": {…}}`, `{"error": {…}}`,
//! `{"file": NAME, "content": T}`, `{"exit": N}`, `"hang"` (until killed).

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fumehood_engine::backend::{
    Backend, BackendReport, Control, Ended, ExitReport, Guest, Sandbox, SandboxSpec, StartError,
};
use fumehood_engine::spec::{ExecutionSpec, FieldError, IsolationLevel};
use fumehood_wire::{GuestResult, JsonText, VERSION};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};

/// Plays scripts and counts the sandboxes it started.
#[derive(Default)]
pub(crate) struct Scripted {
    pub(crate) started: AtomicUsize,
    /// Kept: the host reads a sandbox's disk after its end.
    disks: Mutex<Vec<TempDir>>,
}

struct Killer(Arc<Notify>);

impl Control for Killer {
    fn kill(&self) {
        self.0.notify_one();
    }
}

impl Backend for Scripted {
    fn report(&self) -> BackendReport {
        BackendReport { level: IsolationLevel::Process, features: BTreeMap::new() }
    }

    fn accepts(&self, execution: &ExecutionSpec) -> Result<(), FieldError> {
        let known = matches!(execution.isolation, IsolationLevel::Auto | IsolationLevel::Process);
        known.then_some(()).ok_or_else(|| FieldError::new("isolation", "is not available here"))
    }

    fn packages(&self, image: Option<&str>) -> Result<BTreeMap<String, String>, FieldError> {
        match image {
            None | Some("other") => Ok([("numpy".to_owned(), "2.1.3".to_owned())].into()),
            Some(image) => Err(FieldError::new("image", format!("there is no image {image:?}"))),
        }
    }

    fn start<'a>(&'a self, spec: SandboxSpec<'a>) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        async move {
            self.started.fetch_add(1, Ordering::SeqCst);
            let disk = tempfile::tempdir().unwrap();
            for name in ["data", "tmp", "home"] {
                std::fs::create_dir(disk.path().join(name)).unwrap();
            }
            let root = rustix::fs::open(disk.path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
            let (host, guest) = UnixStream::pair().unwrap();
            let (stdin, stdin_end) = pipe::pipe().unwrap();
            let (stdout, out) = pipe::pipe().unwrap();
            let (stderr, err) = pipe::pipe().unwrap();
            let (gate_end, gate) = rustix::pipe::pipe().unwrap();
            let (exit_sender, exit) = oneshot::channel();
            let killed = Arc::new(Notify::new());
            let script: Vec<Value> = serde_json::from_str(&spec.execution.code).unwrap_or_default();
            let player = Player { socket: guest, stdout, stderr, folder: disk.path().into() };
            self.disks.lock().push(disk);
            let kill = Arc::clone(&killed);
            tokio::spawn(async move {
                let _input = stdin_end;
                let ended = tokio::select! {
                    ended = player.play(script, gate_end) => Some(ended),
                    () = kill.notified() => None,
                };
                let _gone =
                    exit_sender.send(ExitReport { ended: ended.or(Some(Ended::Signaled(9))), ..ExitReport::default() });
            });
            Ok(Sandbox {
                guest: Guest::Runner(host),
                stdin,
                stdout: out,
                stderr: err,
                gate,
                disk: root,
                owner: None,
                control: Box::new(Killer(killed)),
                exit,
                gone: oneshot::channel().1,
                isolation: self.report(),
            })
        }
        .boxed()
    }
}

struct Player {
    socket: UnixStream,
    stdout: pipe::Sender,
    stderr: pipe::Sender,
    folder: PathBuf,
}

impl Player {
    async fn play(mut self, script: Vec<Value>, gate: OwnedFd) -> Ended {
        tokio::task::spawn_blocking(move || rustix::io::read(gate.as_fd(), &mut [0; 1])).await.unwrap().unwrap();
        self.send(16, &json!({"version": VERSION, "python": "3.11.2"})).await;
        self.receive().await;
        self.sync(0).await;
        let mut result = GuestResult::default();
        let mut seq = 0;
        for step in script {
            seq += 1;
            match step {
                Value::String(_) => std::future::pending().await,
                Value::Object(step) => {
                    let text = |name: &str| step.get(name).and_then(Value::as_str).map(str::to_owned);
                    if let Some(text) = text("stdout") {
                        self.stdout.write_all(text.as_bytes()).await.unwrap();
                        self.sync(seq).await;
                    } else if let Some(text) = text("stderr") {
                        self.stderr.write_all(text.as_bytes()).await.unwrap();
                        self.sync(seq).await;
                    } else if let Some(mime) = step.get("display") {
                        self.send(18, &json!({"seq": seq, "mime": mime})).await;
                        self.receive().await;
                    } else if let Some(value) = step.get("value") {
                        result.result = JsonText::of(value).unwrap();
                    } else if let Some(table) = step.get("dataframe") {
                        result.dataframe = JsonText::of(table).unwrap().members();
                    } else if let Some(error) = step.get("error") {
                        result.error = serde_json::from_value(error.clone()).unwrap();
                        result.exit_code = 1;
                    } else if let Some(code) = step.get("exit") {
                        result.exit_code = code.as_i64().unwrap().try_into().unwrap();
                    } else if let Some(name) = text("file") {
                        std::fs::write(self.folder.join("data").join(name), text("content").unwrap()).unwrap();
                    }
                }
                _ => unreachable!("a step is a word or an object"),
            }
        }
        let code = result.exit_code;
        self.send(21, &serde_json::to_value(result).unwrap()).await;
        Ended::Exited(code)
    }

    async fn sync(&mut self, seq: i32) {
        self.send(19, &json!({"seq": seq})).await;
        self.receive().await;
    }

    async fn send(&mut self, kind: u8, payload: &Value) {
        let payload = serde_json::to_vec(payload).unwrap();
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
        frame.push(kind);
        frame.extend(payload);
        self.socket.write_all(&frame).await.unwrap();
    }

    async fn receive(&mut self) {
        let length = self.socket.read_u32().await.unwrap();
        let _kind = self.socket.read_u8().await.unwrap();
        let mut payload = vec![0; length as usize];
        self.socket.read_exact(&mut payload).await.unwrap();
    }
}
