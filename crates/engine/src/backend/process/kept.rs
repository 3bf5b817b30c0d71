//! Sandboxes that are kept, for sessions: the interpreters that follow each other in one, standing still, what it uses.

use std::sync::Arc;
use std::time::Duration;

use fumehood_jail::Step;
use fumehood_jail::cgroup::Gauges;
use fumehood_jail::protocol::Request;
use fumehood_wire::Program;
use futures::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;

use super::super::{Counters, Interpreter, Meter, Programs, SandboxProcess, StartError, Usage};
use super::base::Base;
use super::zygote::Zygotes;
use super::{Channels, Outgoing, Shared, failed_start, processes, step};
use crate::spec::{ExecutionSpec, FieldError};

/// The kernel stops a process within milliseconds, unless a device keeps it.
const PAUSE_PATIENCE: Duration = Duration::from_secs(5);

/// Starts the interpreters of one sandbox.
pub(super) struct KeptPrograms {
    pub(super) id: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) zygotes: Option<Arc<Zygotes>>,
    pub(super) base: Arc<Base>,
    /// The sandbox can be entered by zygotes, and an interpreter forked is as good as one that is executed.
    pub(super) forked: bool,
}

/// Measures one sandbox; `None` where its counters could not be opened.
pub(super) struct KeptMeter(pub(super) Option<Gauges>);

impl Programs for KeptPrograms {
    fn begin(&mut self) -> BoxFuture<'_, Result<Interpreter, StartError>> {
        async move {
            // Of the same image only: what a fork has loaded must be what it finds.
            let take = || self.zygotes.as_ref().and_then(|zygotes| zygotes.take());
            let zygote = if self.forked { take().filter(|(_, base)| Arc::ptr_eq(base, &self.base)) } else { None };
            let Some((zygote, _)) = zygote else { return self.begin_one(None).await };
            match self.begin_one(Some(zygote)).await {
                Err(StartError::Step { step, cause }) if step == Step::ForkZygote.to_string() => {
                    tracing::warn!(zygote, cause, "no fork of the preloaded interpreter; the session loads its own");
                    self.begin_one(None).await
                }
                other => other,
            }
        }
        .boxed()
    }

    fn program(&self, execution: &ExecutionSpec) -> Result<Option<Program>, FieldError> {
        self.base.program_within(execution)
    }

    fn pause(&mut self) -> BoxFuture<'_, Result<(), StartError>> {
        async move {
            let (done, paused) = oneshot::channel();
            self.shared.waiting.lock().pausing.insert(self.id, done);
            if !self.shared.ask(Outgoing { request: Request::Pause { id: self.id }, fds: Vec::new() }) {
                return Err(step("pause the sandbox", &"the jailer is being restarted"));
            }
            match tokio::time::timeout(PAUSE_PATIENCE, paused).await {
                Ok(Ok(paused)) => paused,
                Ok(Err(_)) => Err(step("pause the sandbox", &"it is gone")),
                Err(_) => {
                    self.resume();
                    Err(step("pause the sandbox", &"something in it does not stop"))
                }
            }
        }
        .boxed()
    }

    fn resume(&mut self) {
        // Without a jailer there is no sandbox.
        self.shared.ask(Outgoing { request: Request::Resume { id: self.id }, fds: Vec::new() });
    }
}

impl Meter for KeptMeter {
    fn counters(&self) -> Counters {
        self.0.as_ref().map(Gauges::read).unwrap_or_default()
    }

    fn usage(&self) -> Usage {
        let Some(gauges) = &self.0 else { return Usage::default() };
        // Process 1 is ours.
        Usage { memory_bytes: gauges.memory_bytes(), tasks: gauges.tasks().saturating_sub(1) }
    }

    fn processes(&self) -> Vec<SandboxProcess> {
        self.0.as_ref().map(processes::of).unwrap_or_default()
    }

    fn reclaim(&self) {
        if let Some(gauges) = &self.0 {
            gauges.reclaim();
        }
    }
}

impl KeptPrograms {
    async fn begin_one(&self, zygote: Option<u64>) -> Result<Interpreter, StartError> {
        let channels = Channels::new(true).map_err(|error| step("create the pipes", &error))?;
        let Channels { mut inside, stdin: _, stdout, stderr, gate: _, control } = channels;
        // Nobody waits at a gate here.
        inside.remove(3);
        let socket = control.ok_or_else(|| step("create the pipes", &"there is no control socket"))?;
        let program = self.shared.next_id();
        let (comes, coming) = oneshot::channel();
        let (ends, mut exit) = oneshot::channel();
        {
            let mut waiting = self.shared.waiting.lock();
            if !waiting.exits.contains_key(&self.id) {
                // Nobody would tell of a program there.
                return Err(step("start the interpreter", &"the sandbox is gone"));
            }
            // Numbered, since the end of the one before may be told of just now.
            waiting.coming.insert(self.id, (program, comes));
            waiting.programs.insert(self.id, (program, ends));
        }
        if !self.shared.ask(Outgoing { request: Request::Begin { id: self.id, program, zygote }, fds: inside }) {
            return Err(step("ask the jailer", &"it is being restarted"));
        }
        tokio::select! {
            biased;
            come = coming => come.map_err(|_| step("start the interpreter", &"the sandbox is gone"))?,
            report = &mut exit => return Err(failed_start(report.unwrap_or_default())),
        }
        Ok(Interpreter { socket, stdout, stderr, exit })
    }
}
