//! The baseline: the image's own interpreter on the host, with no confinement, cold or forked from a preloaded one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::{BufMut, Bytes, BytesMut};
use fumehood_engine::DEFAULT_PRELOAD;
use fumehood_engine::image::{DEFAULT_IMAGE, Image, ImageKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot};

use super::http::brief;
use super::load::Caller;
use super::programs::Job;

const PLAIN_FORK: &str = include_str!("../../../../../bench/plain_fork.py");
/// What the guest runner stands on; loaded here too, so that both fork the same.
const RUNNERS_OWN: &str = "IPython.core.interactiveshell";
/// Loading everything takes a second or two on a quiet machine.
const LOADED_BY: Duration = Duration::from_secs(60);

/// The image's interpreter, as a program of the host.
#[derive(Debug, Clone)]
pub(super) struct Interpreter {
    /// The image's folder, which other sandboxes must be shown.
    pub(super) image: PathBuf,
    pub(super) program: PathBuf,
    /// Matplotlib's settings and list of fonts; it wants to be able to write there.
    pub(super) settings: PathBuf,
}

impl Interpreter {
    /// Finds it, and puts matplotlib's settings into `folder`, where they may be written to.
    ///
    /// # Errors
    /// When the image has none that runs on the host.
    pub(super) fn find(images: &Path, folder: &Path) -> anyhow::Result<Self> {
        let image = Image::open(images, DEFAULT_IMAGE)?;
        let program = image.folder.join("venv/bin/python");
        if image.kind != ImageKind::Host || !program.exists() {
            bail!("the image {DEFAULT_IMAGE:?} has no interpreter that runs on the host");
        }
        let settings = folder.join("matplotlib");
        fs::create_dir_all(&settings)?;
        for entry in fs::read_dir(image.folder.join("matplotlib")).into_iter().flatten() {
            let entry = entry?;
            fs::copy(entry.path(), settings.join(entry.file_name()))?;
        }
        Ok(Self { image: image.folder, program, settings })
    }

    /// The interpreter with the environment that counts for speed, the same as in a sandbox. Nothing of our own: no sandbox gets it, and a
    /// variable such as `OPENBLAS_CORETYPE` can slow numpy down a lot.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-B").env_clear().envs(self.environment()).stdin(Stdio::null());
        command
    }

    pub(super) fn environment(&self) -> [(&'static str, String); 6] {
        [
            ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("OPENBLAS_NUM_THREADS", "1".to_owned()),
            ("OMP_NUM_THREADS", "1".to_owned()),
            ("MPLBACKEND", "agg".to_owned()),
            ("MPLCONFIGDIR", self.settings.display().to_string()),
            ("LANG", "C.UTF-8".to_owned()),
        ]
    }
}

/// Milliseconds that a command takes from its start to its end.
///
/// # Errors
/// When it does not print what is expected.
pub(super) fn timed_command(command: &mut Command, expected: &str) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let output = command.output()?;
    let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
    if output.stdout != expected.as_bytes() {
        bail!("expected {expected:?}, got {:?} {}", brief(&output.stdout), brief(&output.stderr));
    }
    Ok(milliseconds)
}

/// All that is preloaded.
fn preloaded() -> impl Iterator<Item = &'static str> {
    std::iter::once(RUNNERS_OWN).chain(DEFAULT_PRELOAD)
}

/// `import` lines of it.
pub(super) fn imports() -> String {
    preloaded().map(|module| format!("import {module}\n")).collect()
}

/// A preloaded interpreter that forks for each request. Ended when dropped.
pub(super) struct PlainFork {
    process: Child,
    requests: mpsc::UnboundedSender<Request>,
}

struct Request {
    /// Without its number.
    frame: Bytes,
    answer: oneshot::Sender<Bytes>,
}

type Open = Arc<Mutex<HashMap<u64, oneshot::Sender<Bytes>>>>;

impl PlainFork {
    /// Starts it and waits until everything is loaded.
    ///
    /// # Errors
    /// When it does not get that far.
    pub(super) async fn start(interpreter: &Interpreter, folder: &Path) -> anyhow::Result<Self> {
        let work = folder.join("plain");
        fs::create_dir_all(&work)?;
        let (ours, theirs) = StdStream::pair()?;
        let mut command = interpreter.command();
        command.arg("-c").arg(PLAIN_FORK).arg(work).args(preloaded()).stdin(OwnedFd::from(theirs));
        let process = command.process_group(0).spawn().context("cannot start the plain interpreter")?;
        ours.set_nonblocking(true)?;
        let (mut read, mut write) = UnixStream::from_std(ours)?.into_split();
        let (requests, mut asked) = mpsc::unbounded_channel::<Request>();
        let fork = Self { process, requests };
        tokio::time::timeout(LOADED_BY, answer(&mut read))
            .await
            .context("the plain interpreter was not loaded in time")?
            .context("the plain interpreter did not start")?;

        let open = Open::default();
        let answered = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((number, bytes)) = answer(&mut read).await {
                let waiting = answered.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                // Nobody waits for one that was given up.
                drop(waiting.map(|waiting| waiting.send(bytes)));
            }
            answered.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        tokio::spawn(async move {
            let mut number = 0_u64;
            while let Some(Request { frame, answer }) = asked.recv().await {
                number += 1;
                open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, answer);
                let head = number.to_be_bytes();
                if write.write_all(&head).await.is_err() || write.write_all(&frame).await.is_err() {
                    return;
                }
            }
        });
        Ok(fork)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn caller(&self) -> ForkCaller {
        ForkCaller(self.requests.clone())
    }
}

impl Drop for PlainFork {
    fn drop(&mut self) {
        // Its children end by themselves; it may have ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Number of the request; exit status and output.
async fn answer(read: &mut OwnedReadHalf) -> std::io::Result<(u64, Bytes)> {
    let number = read.read_u64().await?;
    let status = read.read_i32().await?;
    let length = read.read_u32().await? as usize;
    let mut answer = vec![0; 4 + length];
    answer[..4].copy_from_slice(&status.to_be_bytes());
    read.read_exact(&mut answer[4..]).await?;
    Ok((number, answer.into()))
}

/// One client of a [`PlainFork`].
pub(super) struct ForkCaller(mpsc::UnboundedSender<Request>);

impl Caller for ForkCaller {
    fn prepare(&self, job: &Job) -> Bytes {
        let file = job.file.as_deref().unwrap_or_default();
        let mut frame = BytesMut::with_capacity(8 + job.code.len() + file.len());
        frame.put_u32(job.code.len() as u32);
        frame.put_u32(file.len() as u32);
        frame.put_slice(job.code.as_bytes());
        frame.put_slice(file.as_bytes());
        frame.freeze()
    }

    async fn call(&mut self, frame: Bytes) -> anyhow::Result<Bytes> {
        const GONE: &str = "the plain interpreter is gone";
        let (answer, answered) = oneshot::channel();
        self.0.send(Request { frame, answer }).ok().context(GONE)?;
        answered.await.context(GONE)
    }

    fn output<'a>(&self, answer: &'a Bytes) -> Result<Cow<'a, str>, String> {
        match answer.split_at_checked(4) {
            Some(([0, 0, 0, 0], output)) => Ok(String::from_utf8_lossy(output)),
            _ => Err(format!("the plain interpreter failed: {}", brief(answer))),
        }
    }
}
