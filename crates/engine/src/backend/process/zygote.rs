//! The zygote of one kind: an interpreter that has an image's libraries loaded and is forked into sandboxes.
//!
//! ```text
//! Starting --ready--> Serving --worn out: a new one is started, then takes over--> ended
//!        \--failed          \--died
//!         \-------------------\--> a pause that grows --> Starting
//! ```
//!
//! Without one nothing stops: sandboxes then start an interpreter of their own, which is the same but slower.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fumehood_jail::protocol::{Request, ZygoteSpec};
use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot, watch};

use super::base::{Base, cores};
use super::{Outgoing, Shared};
use crate::spec::ExecutionSpec;

/// What the operator decides about zygotes.
#[derive(Debug, Clone)]
pub struct ZygoteConfig {
    /// Modules it loads; those that the image lacks are left out.
    pub preload: Vec<String>,
    /// It is replaced after so many forks.
    pub max_forks: u64,
    /// It is replaced when it is so old.
    pub max_age: Duration,
    /// Its memory limit, bytes.
    pub memory_bytes: u64,
    /// One that is not loaded by then is given up.
    pub start_timeout: Duration,
}

/// After a failure to start one, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// One that lived for so long was all right.
const LIVED: Duration = Duration::from_secs(10);

/// The zygote in use.
pub(super) struct Zygotes {
    config: ZygoteConfig,
    /// An execution of the kind that it is for.
    ordinary: ExecutionSpec,
    /// By which the jailer tells it from zygotes of other kinds.
    kind: u32,
    /// Being started.
    starting: Mutex<Option<u64>>,
    current: Mutex<Option<Current>>,
    worn: Notify,
    /// A start has succeeded or failed.
    tried: watch::Sender<bool>,
}

struct Current {
    id: u64,
    forks: u64,
    base: Arc<Base>,
}

/// Where the jailer's news of one zygote goes.
pub(super) struct Listener {
    pub(super) ready: Option<oneshot::Sender<()>>,
    pub(super) gone: oneshot::Sender<String>,
}

impl Zygotes {
    pub(super) fn new(config: ZygoteConfig, ordinary: ExecutionSpec, kind: u32) -> Arc<Self> {
        Arc::new(Self {
            config,
            ordinary,
            kind,
            starting: Mutex::new(None),
            current: Mutex::new(None),
            worn: Notify::new(),
            tried: watch::Sender::new(false),
        })
    }

    /// Cores of the executions that it is for; others have their libraries use more threads.
    pub(super) fn cores(&self) -> u64 {
        cores(&self.ordinary)
    }

    /// What the zygote in use was made from.
    pub(super) fn base(&self) -> Option<Arc<Base>> {
        self.current.lock().as_ref().map(|current| Arc::clone(&current.base))
    }

    /// Has one of the newest image take over.
    pub(super) fn replace(&self) {
        self.worn.notify_one();
    }

    /// A zygote to be forked now, and what it was made from, if there is one.
    pub(super) fn take(&self) -> Option<(u64, Arc<Base>)> {
        let mut current = self.current.lock();
        let current = current.as_mut()?;
        current.forks += 1;
        if current.forks == self.config.max_forks {
            self.worn.notify_one();
        }
        Some((current.id, Arc::clone(&current.base)))
    }

    /// Ends what there is, after [`Self::keep`] was given up.
    pub(super) fn end(&self, shared: &Shared) {
        let serving = self.current.lock().take().map(|current| current.id);
        for id in [serving, self.starting.lock().take()].into_iter().flatten() {
            shared.ask(Outgoing { request: Request::EndZygote { id }, fds: Vec::new() });
        }
    }

    /// Waits for the first start to have succeeded or failed.
    pub(super) async fn tried(&self) {
        // The sender is this object's own.
        self.tried.subscribe().wait_for(|tried| *tried).await.ok();
    }

    /// Keeps a zygote serving for as long as the runtime lives.
    pub(super) async fn keep(self: Arc<Self>, shared: Arc<Shared>, latest: Arc<Mutex<Arc<Base>>>) {
        let mut pause = PAUSES.0;
        loop {
            let begun = Instant::now();
            let base = Arc::clone(&latest.lock());
            let why = match self.start(&shared, base.zygote(&self.config, &self.ordinary, self.kind)).await {
                Ok((id, gone)) => {
                    tracing::info!(zygote = id, ms = begun.elapsed().as_millis(), "interpreter preloaded");
                    metrics::histogram!("fumehood_zygote_start_seconds").record(begun.elapsed());
                    let before = self.current.lock().replace(Current { id, forks: 0, base });
                    *self.starting.lock() = None;
                    self.tried.send_replace(true);
                    if let Some(before) = before {
                        // What it was just asked for starts without it.
                        shared.ask(Outgoing { request: Request::EndZygote { id: before.id }, fds: Vec::new() });
                    }
                    let serving = Instant::now();
                    let why = tokio::select! {
                        why = gone => why.unwrap_or_else(|_| "the jailer is gone".to_owned()),
                        () = self.worn.notified() => continue,
                        () = tokio::time::sleep(self.config.max_age) => continue,
                    };
                    *self.current.lock() = None;
                    if serving.elapsed() >= LIVED {
                        pause = PAUSES.0;
                    }
                    why
                }
                Err(why) => why,
            };
            self.tried.send_replace(true);
            metrics::counter!("fumehood_zygote_losses_total").increment(1);
            tracing::warn!(why, retry_in = ?pause, "no preloaded interpreter; sandboxes load their own");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    async fn start(&self, shared: &Shared, recipe: ZygoteSpec) -> Result<(u64, oneshot::Receiver<String>), String> {
        let id = shared.next_id();
        *self.starting.lock() = Some(id);
        let (log, to_log) = log_pipe().map_err(|error| error.to_string())?;
        let (ready, becomes_ready) = oneshot::channel();
        let (gone, mut ends) = oneshot::channel();
        shared.listen_to_zygote(id, Listener { ready: Some(ready), gone });
        tokio::spawn(print(log, id));
        let spec = ZygoteSpec { id, name: format!("zygote-{id}"), ..recipe };
        let request = Request::StartZygote(Box::new(spec));
        if !shared.ask(Outgoing { request, fds: vec![to_log] }) {
            return Err("the jailer is being restarted".to_owned());
        }
        tokio::select! {
            biased;
            why = &mut ends => Err(why.unwrap_or_else(|_| "the jailer is gone".to_owned())),
            Ok(()) = becomes_ready => Ok((id, ends)),
            () = tokio::time::sleep(self.config.start_timeout) => {
                shared.ask(Outgoing { request: Request::EndZygote { id }, fds: Vec::new() });
                Err(format!("it was not loaded within {:?}", self.config.start_timeout))
            }
        }
    }
}

fn log_pipe() -> std::io::Result<(pipe::Receiver, OwnedFd)> {
    let (log, to_log) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&log, fcntl_getfl(&log)? | OFlags::NONBLOCK)?;
    Ok((pipe::Receiver::from_owned_fd(log)?, to_log))
}

/// Logs what a zygote prints until it ends.
async fn print(mut log: pipe::Receiver, zygote: u64) {
    let mut buffer = vec![0; 4096];
    while let Ok(length @ 1..) = log.read(&mut buffer).await {
        for line in String::from_utf8_lossy(&buffer[..length]).lines() {
            tracing::warn!(zygote, "{line}");
        }
    }
}
