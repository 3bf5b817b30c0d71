//! One execution as the engine knows it while it runs and after.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::event::{EventBody, EventLog};
use crate::execution::{
    Execution, ExecutionError, Fault, Isolation, JsonText, Members, Metrics, Notice, Outcome, Output, PolicyReport,
    Status,
};
use crate::ids::{ExecutionId, SessionId, TenantId};
use crate::input::Input;
use crate::output::{Kept, OutputBudget, OutputPage};
use crate::spec::ExecutionSpec;

/// Which output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What is done with an execution once, at one of its turns.
type Turn = Box<dyn FnOnce(&Arc<Record>) + Send>;

/// One execution: its events, its cancellation and its state so far.
pub(crate) struct Record {
    pub(crate) id: ExecutionId,
    /// Whose it is.
    pub(crate) owner: TenantId,
    pub(crate) log: EventLog,
    pub(crate) cancel: CancellationToken,
    /// Its standard input.
    pub(crate) input: Input,
    /// How much of its output the result shows.
    budget: Option<OutputBudget>,
    state: Mutex<State>,
    /// What ends it when it is cancelled while it waits in a session; `None` once it has begun.
    waiting: Mutex<Option<Turn>>,
    /// All that is kept of both streams, when the result shows less.
    whole: OnceLock<Arc<[String; 2]>>,
}

#[derive(Debug)]
enum State {
    Open(Box<Open>),
    Final(Arc<Execution>),
}

#[derive(Debug)]
struct Open {
    execution: Execution,
    stdout: Kept,
    stderr: Kept,
}

impl Record {
    pub(crate) fn new(id: ExecutionId, session: Option<SessionId>, spec: &ExecutionSpec, created_at: String) -> Self {
        let execution = Execution {
            id: id.clone(),
            session_id: session,
            interpreter_restarted: false,
            template: spec.template.clone(),
            status: Status::Queued,
            outcome: None,
            exit_code: None,
            stdout: String::new(),
            stderr: String::new(),
            stdout_truncated: false,
            stderr_truncated: false,
            result: JsonText::default(),
            dataframe: None,
            variables: Members::new(),
            outputs: Vec::new(),
            error: None,
            fault: None,
            denials: Vec::new(),
            warnings: Vec::new(),
            artifacts: Vec::new(),
            isolation: Isolation {
                requested: spec.isolation.to_string(),
                effective: "none".to_owned(),
                features: BTreeMap::new(),
            },
            policy: PolicyReport { name: spec.policy.clone(), risk: None, findings: Vec::new() },
            metrics: Metrics::default(),
            created_at,
            started_at: None,
            finished_at: None,
        };
        let (stdout, stderr) = (Kept::new(spec.limits.output_bytes), Kept::new(spec.limits.output_bytes));
        Self {
            id,
            owner: spec.owner.clone(),
            log: EventLog::default(),
            cancel: CancellationToken::new(),
            input: Input::new(spec.stdin.clone(), spec.stdin_open),
            budget: spec.output,
            whole: OnceLock::new(),
            waiting: Mutex::new(None),
            state: Mutex::new(State::Open(Box::new(Open { execution, stdout, stderr }))),
        }
    }

    /// Says what ends it when it is cancelled before [`Self::begin`].
    pub(crate) fn when_cancelled_waiting(&self, end: impl FnOnce(&Arc<Self>) + Send + 'static) {
        *self.waiting.lock() = Some(Box::new(end));
    }

    /// Its turn in a session has come; `false` when it has been cancelled, and ended, before.
    pub(crate) fn begin(&self) -> bool {
        self.waiting.lock().take().is_some()
    }

    /// Asks for its end. One that only waits in a session ends at once.
    pub(crate) fn cancel(self: &Arc<Self>) {
        self.cancel.cancel();
        let end = self.waiting.lock().take();
        if let Some(end) = end {
            end(self);
        }
    }

    pub(crate) fn session(&self) -> Option<SessionId> {
        match &*self.state.lock() {
            State::Open(open) => open.execution.session_id.clone(),
            State::Final(execution) => execution.session_id.clone(),
        }
    }

    pub(crate) fn status(&self) -> Status {
        match &*self.state.lock() {
            State::Open(open) => open.execution.status,
            State::Final(execution) => execution.status,
        }
    }

    /// The execution as it is now.
    pub(crate) fn snapshot(&self) -> Arc<Execution> {
        match &*self.state.lock() {
            State::Open(open) => Arc::new(open.snapshot()),
            State::Final(execution) => Arc::clone(execution),
        }
    }

    /// Bytes that keeping this record costs: what the execution holds, and what its events hold besides.
    pub(crate) fn size(&self) -> usize {
        match &*self.state.lock() {
            State::Open(_) => 0,
            State::Final(execution) => {
                let displays: usize = execution.outputs.iter().map(Output::size).sum();
                let text = execution.stdout.len() + execution.stderr.len();
                let table = execution.dataframe.as_ref().map_or(0, Members::size);
                let claims = execution.result.size() + table + execution.variables.size();
                let error = execution.error.as_ref().map_or(0, ExecutionError::size);
                let warnings: usize = execution.warnings.iter().map(Notice::size).sum();
                let whole: usize = self.whole.get().map_or(0, |whole| whole.iter().map(String::len).sum());
                self.log.size() + whole + text + displays + claims + error + warnings + 4096
            }
        }
    }

    /// Changes the open execution; nothing happens to a final one.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Execution)) {
        if let State::Open(open) = &mut *self.state.lock() {
            let before = open.execution.status;
            change(&mut open.execution);
            let after = open.execution.status;
            // One ends by `finish`, with all that belongs to an end.
            if after.is_final() || !before.may_become(after) {
                tracing::error!(execution = %self.id, ?before, ?after, "a step of an execution is refused");
                open.execution.status = before;
            }
        }
    }

    /// Takes in output, tells those who follow, and returns the bytes produced so far on this stream.
    pub(crate) fn output(&self, stream: Stream, bytes: &[u8]) -> u64 {
        self.take_in(stream, |kept| kept.push(bytes))
    }

    /// Takes in the end of both streams.
    pub(crate) fn end_of_output(&self) {
        self.take_in(Stream::Stdout, Kept::finish);
        self.take_in(Stream::Stderr, Kept::finish);
    }

    fn take_in(&self, stream: Stream, take: impl FnOnce(&mut Kept) -> crate::output::Live) -> u64 {
        let mut state = self.state.lock();
        let State::Open(open) = &mut *state else { return 0 };
        let kept = match stream {
            Stream::Stdout => &mut open.stdout,
            Stream::Stderr => &mut open.stderr,
        };
        let live = take(kept);
        let produced = kept.produced();
        // Still under the lock: events keep the order in which output was taken in.
        if !live.text.is_empty() {
            self.log.push(match stream {
                Stream::Stdout => EventBody::Stdout { text: live.text },
                Stream::Stderr => EventBody::Stderr { text: live.text },
            });
        }
        if live.exhausted {
            let name = if stream == Stream::Stdout { "stdout" } else { "stderr" };
            let message = format!(
                "{name} is longer than limits.output_kb; no more of it is streamed, and the result keeps its beginning and end"
            );
            self.notice(&mut open.execution, Notice { code: "output_truncated".to_owned(), message });
        }
        produced
    }

    /// Notes something to know, once.
    pub(crate) fn warn(&self, notice: Notice) {
        if let State::Open(open) = &mut *self.state.lock() {
            self.notice(&mut open.execution, notice);
        }
    }

    fn notice(&self, execution: &mut Execution, notice: Notice) {
        // A guest could send warnings without end.
        const MOST: usize = 100;
        if execution.warnings.len() < MOST && !execution.warnings.contains(&notice) {
            execution.warnings.push(notice.clone());
            self.log.push(EventBody::Warning(notice));
        }
    }

    /// Takes in a display.
    pub(crate) fn display(&self, output: Output) {
        if let State::Open(open) = &mut *self.state.lock() {
            open.execution.outputs.push(output.clone());
            self.log.push(EventBody::Display(output));
        }
    }

    /// The execution with its output, to be completed and given to [`Self::finish`].
    pub(crate) fn draft(&self) -> Execution {
        match &*self.state.lock() {
            State::Open(open) => open.snapshot(),
            State::Final(execution) => Execution::clone(execution),
        }
    }

    /// The execution as it is, ended without a program having run to its end.
    pub(crate) fn ended_early(
        &self,
        now: String,
        outcome: Outcome,
        fault: Option<Fault>,
        error: ExecutionError,
    ) -> Execution {
        Execution {
            status: if outcome == Outcome::Cancelled { Status::Cancelled } else { Status::Failed },
            outcome: Some(outcome),
            fault,
            error: Some(error),
            finished_at: Some(now),
            ..self.draft()
        }
    }

    /// An execution whose task broke off: a bug of ours.
    pub(crate) fn broke_off(&self, now: String) -> Execution {
        let message = "the server failed while running this; its log says more".to_owned();
        let error = ExecutionError::of(Outcome::Infra, message, None);
        self.ended_early(now, Outcome::Infra, Some(Fault::Infra), error)
    }

    /// An execution that was cancelled before it had a sandbox.
    pub(crate) fn never_ran(&self, now: String) -> Execution {
        let error = ExecutionError::of(Outcome::Cancelled, "cancelled before it began".to_owned(), None);
        self.ended_early(now, Outcome::Cancelled, None, error)
    }

    /// Cuts the output down to what the caller wants to see. What is cut stays readable by [`Self::page`].
    pub(crate) fn within_budget(&self, execution: &mut Execution) {
        let Some(budget) = self.budget else { return };
        let shown = [("stdout", &execution.stdout), ("stderr", &execution.stderr)]
            .map(|(stream, text)| budget.apply(text, &self.id, stream));
        if shown.iter().all(Option::is_none) {
            return;
        }
        let [stdout, stderr] = shown;
        let cut = |shown: &Option<(String, bool)>| shown.as_ref().is_some_and(|(_, cut)| *cut);
        execution.stdout_truncated |= cut(&stdout);
        execution.stderr_truncated |= cut(&stderr);
        let replaced = |text: &mut String, shown: Option<(String, bool)>| {
            let shown = shown.map_or_else(|| text.clone(), |(shown, _)| shown);
            std::mem::replace(text, shown)
        };
        let whole = [replaced(&mut execution.stdout, stdout), replaced(&mut execution.stderr, stderr)];
        self.whole.set(Arc::new(whole)).ok();
    }

    /// All that is kept of both streams, when the result shows less.
    fn whole(&self) -> Option<Arc<[String; 2]>> {
        self.whole.get().cloned()
    }

    /// What there is to keep of it, once it has become `execution`.
    pub(crate) fn ended(&self, execution: Arc<Execution>) -> crate::engine::Ended {
        crate::engine::Ended { owner: self.owner.clone(), execution, whole: self.whole() }
    }

    /// A page of what is kept of a stream.
    pub(crate) fn page(&self, stream: Stream, offset: usize, limit: usize) -> OutputPage {
        let (index, name) = if stream == Stream::Stdout { (0, "stdout") } else { (1, "stderr") };
        if let Some(whole) = self.whole.get() {
            return OutputPage::of(&whole[index], name, offset, limit);
        }
        let execution = self.snapshot();
        let text = if stream == Stream::Stdout { &execution.stdout } else { &execution.stderr };
        OutputPage::of(text, name, offset, limit)
    }

    /// Nothing changes any more.
    pub(crate) fn finish(&self, execution: Arc<Execution>) {
        self.input.close();
        *self.state.lock() = State::Final(execution);
    }
}

/// What makes an execution of a session final: whoever has it says how it ended, or drops it and thereby says that its task broke off.
pub(crate) struct Completion {
    pub(crate) record: Arc<Record>,
    /// `None` once it has been said.
    finish: Option<Finish>,
}

type Finish = Box<dyn FnOnce(&Arc<Record>, Option<Execution>) + Send>;

impl Completion {
    pub(crate) fn new(
        record: Arc<Record>,
        finish: impl FnOnce(&Arc<Record>, Option<Execution>) + Send + 'static,
    ) -> Self {
        Self { record, finish: Some(Box::new(finish)) }
    }

    pub(crate) fn complete(mut self, execution: Execution) {
        self.say(Some(execution));
    }

    /// Somebody else has made it final.
    pub(crate) fn discard(mut self) {
        self.finish = None;
    }

    fn say(&mut self, execution: Option<Execution>) {
        if let Some(finish) = self.finish.take() {
            finish(&self.record, execution);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.say(None);
    }
}

impl Open {
    fn snapshot(&self) -> Execution {
        Execution {
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            stdout_truncated: self.stdout.truncated(),
            stderr_truncated: self.stderr.truncated(),
            ..self.execution.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{IdSource, UlidSource};
    use crate::spec::{ExecutionRequest, LimitPolicy};

    #[test]
    fn an_execution_does_not_go_back_and_does_not_end_by_an_update() {
        let spec = ExecutionRequest::new("1").validate(&LimitPolicy::default()).unwrap();
        let record = Record::new(UlidSource.execution(), None, &spec, "2026-01-01T00:00:00Z".to_owned());
        for (asked, after) in [
            (Status::Completed, Status::Queued),
            (Status::Running, Status::Running),
            (Status::Queued, Status::Running),
            (Status::Failed, Status::Running),
        ] {
            record.update(|execution| execution.status = asked);
            assert_eq!(record.status(), after, "{asked:?}");
        }
        let all = [Status::Queued, Status::Running, Status::Completed, Status::Failed, Status::Cancelled];
        for status in all.into_iter().filter(|status| status.is_final()) {
            assert!(all.iter().all(|next| !status.may_become(*next)), "{status:?}");
        }
    }
}
