//! A backend without a sandbox, for tests of what stands above: it follows a script written in the code.
//!
//! The code is a sequence of lines, each a verb with an argument: `out TEXT`, `err TEXT`, `png BASE64`, `sleep`, `exit CODE`,
//! `result JSON`, `raise TYPE`. Text has `\n` for a newline. Nothing of it is executed; `sleep` waits until the kill.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::{BoxFuture, FutureExt};
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::json;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};

use super::{Backend, BackendReport, Ended, ExitReport, Guest, Kill, Sandbox, SandboxSpec, StartError};
use crate::spec::{ExecutionSpec, FieldError, IsolationLevel};

/// The fake.
#[derive(Debug, Default)]
pub struct FakeBackend {
    /// Sandboxes started so far.
    pub started: AtomicU64,
}

struct FakeKill(Arc<Notify>);

impl Kill for FakeKill {
    fn kill(&self) {
        self.0.notify_one();
    }
}

impl Backend for FakeBackend {
    fn report(&self) -> BackendReport {
        BackendReport {
            level: IsolationLevel::Process,
            features: BTreeMap::from([("fake".to_owned(), "no isolation at all".to_owned())]),
        }
    }

    fn accepts(&self, execution: &ExecutionSpec) -> Result<(), FieldError> {
        match execution.isolation {
            IsolationLevel::Auto | IsolationLevel::Process => Ok(()),
            _ => Err(FieldError::new("isolation", "only 'process' here")),
        }
    }

    fn start<'a>(&'a self, spec: SandboxSpec<'a>) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        self.started.fetch_add(1, Ordering::Relaxed);
        async move { start(&spec.execution.code).map_err(|error| StartError::Step { step: "fake".to_owned(), cause: error.to_string() }) }
            .boxed()
    }
}

fn start(script: &str) -> std::io::Result<Sandbox> {
    let make = || pipe_with(PipeFlags::CLOEXEC);
    let ((_, to_stdin), (from_stdout, stdout), (from_stderr, stderr), (_, to_gate)) = (make()?, make()?, make()?, make()?);
    for fd in [&to_stdin, &from_stdout, &from_stderr] {
        rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::NONBLOCK)?;
    }
    let disk = tempfile::tempdir()?;
    for folder in ["data", "home"] {
        std::fs::create_dir(disk.path().join(folder))?;
    }
    let disk_fd: OwnedFd = std::fs::File::open(disk.path())?.into();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let (exit_sender, exit) = oneshot::channel();
    let killed = Arc::new(Notify::new());
    let (kill, script) = (Arc::clone(&killed), script.to_owned());
    tokio::spawn(async move {
        let _disk = disk;
        let guest = tokio::task::spawn_blocking(move || play(&script, theirs, stdout, stderr));
        let ended = match guest.await {
            Ok(Ok(Some(code))) => Ended::Exited(code),
            // The script sleeps.
            Ok(Ok(None)) => {
                killed.notified().await;
                Ended::Signaled(9)
            }
            _ => Ended::Exited(70),
        };
        exit_sender.send(ExitReport { ended: Some(ended), ..ExitReport::default() }).ok();
    });
    Ok(Sandbox {
        guest: Guest::Runner(tokio::net::UnixStream::from_std(ours)?),
        stdin: pipe::Sender::from_owned_fd_unchecked(to_stdin)?,
        stdout: pipe::Receiver::from_owned_fd(from_stdout)?,
        stderr: pipe::Receiver::from_owned_fd(from_stderr)?,
        gate: to_gate,
        disk: disk_fd,
        owner: None,
        kill: Box::new(FakeKill(kill)),
        exit,
        isolation: FakeBackend::default().report(),
    })
}

/// Plays the guest; the exit code, or `None` when the script sleeps for ever.
fn play(script: &str, mut socket: std::os::unix::net::UnixStream, stdout: OwnedFd, stderr: OwnedFd) -> std::io::Result<Option<i32>> {
    let (mut stdout, mut stderr) = (std::fs::File::from(stdout), std::fs::File::from(stderr));
    send(&mut socket, 16, &json!({"version": fumehood_wire::VERSION}))?;
    receive(&mut socket)?;
    let (mut code, mut result, mut error) = (0, serde_json::Value::Null, serde_json::Value::Null);
    for line in script.lines() {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        let text = argument.replace("\\n", "\n");
        match verb {
            "out" => stdout.write_all(text.as_bytes())?,
            "err" => stderr.write_all(text.as_bytes())?,
            "png" => {
                send(&mut socket, 18, &json!({"seq": 1, "mime": {"image/png": argument}, "metadata": {"kind": "figure"}}))?;
                receive(&mut socket)?;
            }
            "sleep" => return Ok(None),
            "exit" => code = argument.parse().unwrap_or(1),
            "result" => result = serde_json::from_str(argument).unwrap_or_default(),
            "raise" => {
                code = 1;
                error = json!({"type": argument, "message": "raised", "line": 1, "traceback": [], "hint": null});
            }
            _ => {}
        }
    }
    send(&mut socket, 21, &json!({"exit_code": code, "result": result, "error": error, "variables": {}}))?;
    Ok(Some(code))
}

fn send(socket: &mut std::os::unix::net::UnixStream, kind: u8, payload: &serde_json::Value) -> std::io::Result<()> {
    let payload = payload.to_string();
    let mut frame = (payload.len() as u32).to_be_bytes().to_vec();
    frame.push(kind);
    frame.extend_from_slice(payload.as_bytes());
    socket.write_all(&frame)
}

fn receive(socket: &mut std::os::unix::net::UnixStream) -> std::io::Result<Vec<u8>> {
    let mut header = [0; fumehood_wire::HEADER_LEN];
    socket.read_exact(&mut header)?;
    let mut payload = vec![0; u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as usize];
    socket.read_exact(&mut payload)?;
    Ok(payload)
}
