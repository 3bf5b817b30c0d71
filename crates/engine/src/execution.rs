//! What an execution is and became: the public object of `GET /v1/executions/{id}`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{ExecutionId, SessionId};

pub use fumehood_wire::{JsonText, MOST_MEMBERS, Members};

/// Where an execution is in its life.
///
/// ```text
/// queued -> running -> completed | failed | cancelled
///        \-> cancelled | failed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits for a free place.
    Queued,
    /// Has a sandbox.
    Running,
    /// Ended with outcome `exited` and exit code 0.
    Completed,
    /// Ended in any other way that nobody asked for.
    Failed,
    /// Ended because somebody asked for it.
    Cancelled,
}

impl Status {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Whether an execution of this status may be of the status `next` later: it waits, runs and ends, once; what waits may end without having run.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Queued => true,
            Self::Running => next != Self::Queued,
            Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }
}

/// How an execution ended; exactly one for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The program ended by itself; see `exit_code`.
    Exited,
    /// An uncaught error in the user's code.
    Exception,
    /// The wall clock ran out.
    TimedOut,
    /// The kernel killed it for its memory.
    OomKilled,
    /// It produced more output than the hard limit.
    OutputLimit,
    /// It filled its disk.
    DiskLimit,
    /// It wanted more processes than allowed.
    ProcessLimit,
    /// A policy forbade it.
    Denied,
    /// Somebody cancelled it.
    Cancelled,
    /// A signal ended it.
    Signaled,
    /// The sandbox or its node vanished.
    Lost,
    /// Our fault.
    Infra,
}

/// Whose fault an end other than success was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The code.
    User,
    /// A limit.
    Limit,
    /// A policy.
    Policy,
    /// This system.
    Infra,
}

/// Why an execution did not end well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutionError {
    /// Stable code: `exception`, `timed_out`, `oom_killed`, …
    pub code: String,
    /// Class of the exception, name of the signal, or the outcome.
    #[serde(rename = "type")]
    pub kind: String,
    /// What happened.
    pub message: String,
    /// Innermost line of the user's code.
    pub line: Option<u64>,
    /// Traceback as Python prints it.
    pub traceback: Vec<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ExecutionError {
    /// An error that is nothing but its outcome, told in a sentence.
    #[must_use]
    pub fn of(outcome: Outcome, message: String, hint: Option<&str>) -> Self {
        Self {
            code: outcome.as_str().to_owned(),
            kind: outcome.as_str().to_owned(),
            message,
            line: None,
            traceback: Vec::new(),
            hint: hint.map(str::to_owned),
        }
    }
}

impl ExecutionError {
    /// Bytes of its texts.
    pub(crate) fn size(&self) -> usize {
        let hint = self.hint.as_ref().map_or(0, String::len);
        let lines: usize = self.traceback.iter().map(|line| line.len() + size_of::<String>()).sum();
        self.kind.len() + self.message.len() + hint + lines
    }
}

/// Something refused, and what would allow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Denial {
    /// `syscall`, `path`, `network`, `limit`.
    pub kind: String,
    /// What was tried.
    pub what: String,
    /// The rule that refused it.
    pub rule: String,
    /// The smallest change that would allow it.
    pub remedy: String,
}

/// Something shown besides text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Output {
    /// Media type to content; binary content is base64.
    #[schema(value_type = Object)]
    pub mime: Members,
    /// Free-form facts; `kind` is `figure`, `result` or absent.
    #[schema(value_type = Object)]
    pub metadata: Members,
}

impl Output {
    /// Bytes that keeping it costs.
    pub(crate) fn size(&self) -> usize {
        self.mime.size() + self.metadata.size()
    }
}

/// A file that the execution left and the caller asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// Path below the workspace.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Hash of the content, hexadecimal.
    pub sha256: String,
    /// Media type guessed from the name.
    pub mime: String,
    /// Where to fetch it on this server.
    pub url: String,
}

/// The isolation asked for and the one in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Isolation {
    /// As requested.
    pub requested: String,
    /// Level in force; `none` until a sandbox exists.
    pub effective: String,
    /// Each layer and whether it was really in force, for example `{"seccomp": "on", "landlock": "abi 6"}`.
    pub features: BTreeMap<String, String>,
}

/// Which policy judged the code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyReport {
    /// Its name.
    pub name: String,
    /// `safe` … `critical`; `null` when the policy does not look at the code.
    pub risk: Option<String>,
    /// What it found.
    #[schema(value_type = Vec<Object>)]
    pub findings: Vec<serde_json::Value>,
}

/// Counters, from what the host saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {
    /// Waiting for a free place.
    pub queue_ms: f64,
    /// From there to the first instruction of the user's code.
    pub start_ms: f64,
    /// The run itself.
    pub duration_ms: f64,
    /// Processor time of all processes.
    pub cpu_ms: f64,
    /// Peak memory of all processes together, files in the workspace included.
    pub memory_peak_mb: f64,
    /// Bytes read through read-like calls by processes that ended; `null` when the sandbox was killed first.
    pub bytes_read: Option<u64>,
    /// Bytes written through write-like calls, likewise.
    pub bytes_written: Option<u64>,
    /// Most processes and threads alive at once; `null` where the kernel does not count.
    pub processes_peak: Option<u64>,
}

/// One run of some code and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Execution {
    /// Its id.
    pub id: ExecutionId,
    /// Session it ran in; `null` for a fresh sandbox.
    pub session_id: Option<SessionId>,
    /// In a session: its interpreter ended, before this or with this, and a fresh one has taken its place; files are kept, variables are not.
    pub interpreter_restarted: bool,
    /// Template with version.
    pub template: String,
    /// Where it is in its life.
    pub status: Status,
    /// How it ended; `null` until then.
    pub outcome: Option<Outcome>,
    /// Exit code of the program, if it ended by itself.
    pub exit_code: Option<i32>,
    /// Standard output, at most `limits.output_kb`; the middle is cut first.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Whether something is missing from `stdout`.
    pub stdout_truncated: bool,
    /// Whether something is missing from `stderr`.
    pub stderr_truncated: bool,
    /// Value of the last expression, of `result_var` or of `handler(input)`; encoding in docs/values.md.
    #[schema(value_type = Option<Object>)]
    pub result: JsonText,
    /// Description of a table, if the value is one.
    #[schema(value_type = Option<Object>)]
    pub dataframe: Option<Members>,
    /// The user's variables: name to `{type, shape, repr}`.
    #[schema(value_type = Object)]
    pub variables: Members,
    /// Things shown, in order.
    pub outputs: Vec<Output>,
    /// Why it did not end well.
    pub error: Option<ExecutionError>,
    /// Whose fault that was.
    pub fault: Option<Fault>,
    /// What was refused.
    pub denials: Vec<Denial>,
    /// Things to know that are no failure.
    pub warnings: Vec<Notice>,
    /// Files returned.
    pub artifacts: Vec<Artifact>,
    /// Isolation in force.
    pub isolation: Isolation,
    /// Policy in force.
    pub policy: PolicyReport,
    /// Counters.
    pub metrics: Metrics,
    /// When it was accepted, RFC 3339 UTC.
    pub created_at: String,
    /// When its code began.
    pub started_at: Option<String>,
    /// When it ended.
    pub finished_at: Option<String>,
}

/// Something the caller should know that is no failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Notice {
    /// Stable code.
    pub code: String,
    /// Sentence for people and models.
    pub message: String,
}

impl Notice {
    /// Bytes that keeping it costs.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.code.len() + self.message.len()
    }
}

impl Outcome {
    /// The outcome as it stands in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Exception => "exception",
            Self::TimedOut => "timed_out",
            Self::OomKilled => "oom_killed",
            Self::OutputLimit => "output_limit",
            Self::DiskLimit => "disk_limit",
            Self::ProcessLimit => "process_limit",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::Signaled => "signaled",
            Self::Lost => "lost",
            Self::Infra => "infra",
        }
    }
}
