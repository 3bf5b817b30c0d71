//! What a caller asks for ([`ExecutionRequest`]) and what the engine runs ([`ExecutionSpec`]): parsed once, valid inside.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::execution::{JsonText, Members};
use crate::ids::TenantId;
use crate::job::{Priority, RetryRequest};
use crate::output::OutputBudget;
use crate::template::{SandboxKind, Template, TemplateRef, built_in, built_ins, default_template};

/// Where the workspace is inside a sandbox; also the working directory.
pub const WORKSPACE: &str = "/data";
/// Other names of the workspace (links), accepted in paths.
pub const WORKSPACE_ALIASES: [&str; 2] = ["/workspace", "/mnt/data"];
/// Places besides the workspace that are writable inside a sandbox.
pub const WRITABLE: [&str; 2] = ["/tmp", "/home/sandbox"];

/// A request field that is wrong, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Path of the field, for example `limits.memory_mb`.
    pub field: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl FieldError {
    /// An error about `field`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// The same error in a field of `outer`.
    #[must_use]
    pub fn below(self, outer: &str) -> Self {
        Self { field: format!("{outer}.{}", self.field), message: self.message }
    }
}

/// Language of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// On IPython.
    #[default]
    Python,
    /// On Node.js, where the image has it.
    Javascript,
    /// On Node.js 22.18, 23.6 or later, where the image has it.
    Typescript,
    /// On bash.
    Bash,
    /// `argv` is the program; `code` is empty.
    Command,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Python => "python",
            Self::Javascript => "javascript",
            Self::Typescript => "typescript",
            Self::Bash => "bash",
            Self::Command => "command",
        })
    }
}

/// Lowest isolation level accepted.
// In the order of strength, which comparisons go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IsolationLevel {
    /// The default of the template.
    #[default]
    Auto,
    /// Namespaces, cgroups, seccomp on the host's kernel.
    Process,
    /// The same through bubblewrap.
    Bubblewrap,
    /// An OCI container.
    Container,
    /// gVisor.
    Gvisor,
    /// A virtual machine.
    Microvm,
}

impl fmt::Display for IsolationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Process => "process",
            Self::Bubblewrap => "bubblewrap",
            Self::Container => "container",
            Self::Gvisor => "gvisor",
            Self::Microvm => "microvm",
        })
    }
}

/// Whether the caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerMode {
    /// Wait for the end.
    #[default]
    Sync,
    /// Answer 202 at once.
    Async,
}

/// How tables come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResultFormat {
    /// As JSON and, where the library has it, HTML.
    #[default]
    Default,
    /// As Markdown too: `dataframe.markdown`, and the form `text/markdown` of each table that is displayed.
    Markdown,
}

/// Limits as a caller may state them; what is absent gets the default.
// No field says `default`: serde would then read an empty array as an object without fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsRequest {
    /// Memory of all processes together, files in the workspace included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<i64>,
    /// Processor time per wall-clock time, in cores.
    #[serde(alias = "cpus", skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<i64>,
    /// All files of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<i64>,
    /// Largest single file; the disk limit by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size_mb: Option<i64>,
    /// Open descriptors of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<i64>,
    /// Output kept per stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_kb: Option<i64>,
    /// Whether there is a network. Only `false` for now: no sandbox has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
}

/// A file to write into the workspace before the code runs: exactly one of the two contents.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRequest {
    /// Relative to the workspace, or absolute below `/data`.
    pub path: String,
    /// Text content.
    pub content: Option<String>,
    /// Binary content in base64.
    pub content_base64: Option<String>,
}

/// Body of `POST /v1/executions`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"code": "print('hello')\n6 * 7"}))]
pub struct ExecutionRequest {
    /// Source text.
    pub code: String,
    /// Its language.
    #[serde(default)]
    pub language: Language,
    /// For `language: command`: the program and its arguments.
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// Name of a template, or name@version.
    #[serde(default)]
    pub template: Option<String>,
    /// Lowest isolation level accepted; never less.
    #[serde(default)]
    pub isolation: IsolationLevel,
    /// Argument of the entry point `handler(input)`, if the code defines it.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>)]
    pub input: Option<JsonText>,
    /// Standard input; then end of file.
    #[serde(default)]
    pub stdin: String,
    /// Standard input stays open after `stdin`: more of it, and its end, come with `POST /v1/executions/{id}/stdin`.
    #[serde(default)]
    pub stdin_open: bool,
    /// Variable to extract; null: the value of the last expression.
    #[serde(default)]
    pub result_var: Option<String>,
    /// Rows of a table preview, 0 to 500.
    #[serde(default)]
    pub preview_rows: Option<i64>,
    /// How tables come; for Python.
    #[serde(default)]
    pub format: ResultFormat,
    /// Wall clock of the run itself.
    #[serde(default)]
    pub timeout_ms: Option<i64>,
    /// Limits.
    #[serde(default)]
    pub limits: LimitsRequest,
    /// Extra environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Files written first.
    #[serde(default)]
    pub files: Vec<FileRequest>,
    /// Globs of files to return as artifacts.
    #[serde(default)]
    pub collect: Vec<String>,
    /// Working directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Name of a policy.
    #[serde(default)]
    pub policy: Option<String>,
    /// How much of each stream the result shows; absent: all that is kept (`limits.output_kb`).
    #[serde(default)]
    pub output: Option<OutputRequest>,
    /// Whether to wait.
    #[serde(default)]
    pub mode: AnswerMode,
    /// For `mode: async`: how urgent it is among what waits; `normal` by default.
    #[serde(default)]
    pub priority: Option<Priority>,
    /// For `mode: async`: what happens when the server that runs it goes away meanwhile; it is `lost` by default.
    #[serde(default)]
    pub retry: Option<RetryRequest>,
    /// For `mode: async`: where the execution is posted once it has ended; http or https.
    #[serde(default)]
    pub callback_url: Option<String>,
}

/// How much of each output stream the result shows, in characters, for readers with little room. Progress bars are folded to what a terminal shows in the
/// end. The rest can be read page by page; events are not cut.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputRequest {
    /// At most so many of each stream; 20 000 by default.
    pub max_chars: Option<i64>,
    /// So many of them from the beginning; half by default.
    pub head: Option<i64>,
    /// So many of them from the end; the rest by default.
    pub tail: Option<i64>,
}

impl OutputRequest {
    fn validate(self) -> Result<OutputBudget, FieldError> {
        const MOST: u64 = 10_000_000;
        let most: usize = bounded("output.max_chars", self.max_chars, 1, MOST, 20_000)?;
        let part = |field, given: Option<i64>, default: usize| bounded(field, given, 0, most as u64, default as u64);
        let (head, tail) = match (self.head, self.tail) {
            (None, Some(_)) => {
                let tail: usize = part("output.tail", self.tail, 0)?;
                (most - tail, tail)
            }
            (head, tail) => {
                let head: usize = part("output.head", head, most / 2)?;
                (head, part("output.tail", tail, most - head)?)
            }
        };
        if head + tail > most {
            let message = format!("and output.tail must not be more than output.max_chars = {most} together");
            return Err(FieldError::new("output.head", message));
        }
        Ok(OutputBudget { head, tail })
    }
}

impl ExecutionRequest {
    /// A request for `code` with everything else at its default.
    pub fn new(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            language: Language::default(),
            argv: None,
            template: None,
            isolation: IsolationLevel::default(),
            input: None,
            stdin: String::new(),
            stdin_open: false,
            result_var: None,
            preview_rows: None,
            format: ResultFormat::default(),
            timeout_ms: None,
            limits: LimitsRequest::default(),
            env: BTreeMap::new(),
            files: Vec::new(),
            collect: Vec::new(),
            cwd: None,
            policy: None,
            output: None,
            mode: AnswerMode::default(),
            priority: None,
            retry: None,
            callback_url: None,
        }
    }
}

/// `null` means that there is no input, as does leaving it out.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<JsonText>, D::Error> {
    Ok(Some(JsonText::deserialize(deserializer)?).filter(|value| !value.is_null()))
}

/// Limits in force, every one positive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Bytes of memory of all processes together.
    pub memory_bytes: u64,
    /// Cores.
    pub cpu: f64,
    /// Processes and threads.
    pub processes: u64,
    /// Bytes of all files together.
    pub disk_bytes: u64,
    /// Bytes of one file.
    pub file_size_bytes: u64,
    /// Descriptors of one process.
    pub open_files: u64,
    /// Bytes of output kept per stream.
    pub output_bytes: u64,
}

/// The operator's defaults and maxima.
#[derive(Debug, Clone)]
pub struct LimitPolicy {
    /// Used where a request is silent.
    pub default: Limits,
    /// Used where a request is silent.
    pub default_timeout: Duration,
    /// Nothing above this is accepted.
    pub max: Limits,
    /// Nothing above this is accepted.
    pub max_timeout: Duration,
    /// Longest source text, in bytes.
    pub max_code_bytes: usize,
    /// Most files in one request.
    pub max_files: usize,
    /// Most environment variables, and bytes of them together.
    pub max_env_bytes: usize,
}

impl Default for LimitPolicy {
    fn default() -> Self {
        const MB: u64 = 1 << 20;
        Self {
            default: Limits {
                memory_bytes: 512 * MB,
                cpu: 1.0,
                processes: 64,
                disk_bytes: 256 * MB,
                file_size_bytes: 256 * MB,
                open_files: 1024,
                output_bytes: 10 * MB,
            },
            default_timeout: Duration::from_secs(30),
            max: Limits {
                memory_bytes: 8192 * MB,
                cpu: 64.0,
                processes: 4096,
                disk_bytes: 8192 * MB,
                file_size_bytes: 8192 * MB,
                open_files: 65536,
                output_bytes: 64 * MB,
            },
            max_timeout: Duration::from_secs(300),
            max_code_bytes: 1 << 20,
            max_files: 1000,
            max_env_bytes: 64 << 10,
        }
    }
}

/// A file of the workspace by its path relative to it: no `..`, no empty part, no NUL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkspacePath(String);

impl WorkspacePath {
    /// Reads a path given by a client.
    ///
    /// # Errors
    /// A sentence on what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut relative = text;
        if text.starts_with('/') {
            relative = std::iter::once(WORKSPACE)
                .chain(WORKSPACE_ALIASES)
                .find_map(|root| text.strip_prefix(root)?.strip_prefix('/'))
                .ok_or_else(|| {
                    format!("{text:?} is outside the workspace; use a relative path or one below {WORKSPACE}")
                })?;
        }
        let parts = relative.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>();
        if parts.is_empty() {
            return Err(format!("{text:?} names no file"));
        }
        for part in &parts {
            if *part == ".." {
                return Err(format!("{text:?} must not contain '..'"));
            }
            if part.contains('\0') {
                return Err("must not contain a NUL byte".to_owned());
            }
            if part.len() > 255 {
                return Err(format!("has a part of {} bytes; a file name has at most 255", part.len()));
            }
        }
        if relative.ends_with('/') {
            return Err(format!("{text:?} names a folder, not a file"));
        }
        let path = parts.join("/");
        if path.len() > 4000 {
            return Err(format!("has {} bytes; at most 4000 are possible", path.len()));
        }
        Ok(Self(path))
    }

    /// Relative to the workspace, parts separated by `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A file to write before the run.
#[derive(Debug, Clone)]
pub struct InputFile {
    /// Where.
    pub path: WorkspacePath,
    /// What.
    pub content: Bytes,
}

/// A valid execution.
#[derive(Debug, Clone)]
pub struct ExecutionSpec {
    /// Whose it is.
    pub owner: TenantId,
    /// Source text.
    pub code: String,
    /// Its language.
    pub language: Language,
    /// Program and arguments for [`Language::Command`], empty otherwise.
    pub argv: Vec<String>,
    /// Name and version of the template: `name@version`.
    pub template: String,
    /// What its sandbox is made from.
    pub kind: SandboxKind,
    /// Lowest level accepted.
    pub isolation: IsolationLevel,
    /// Argument of `handler`.
    pub input: Option<JsonText>,
    /// Standard input.
    pub stdin: Bytes,
    /// More of it comes while the program runs.
    pub stdin_open: bool,
    /// Variable to extract.
    pub result_var: Option<String>,
    /// Rows of a preview.
    pub preview_rows: u32,
    /// How tables come.
    pub format: ResultFormat,
    /// Wall clock of the run.
    pub timeout: Duration,
    /// Limits in force.
    pub limits: Limits,
    /// Extra environment.
    pub env: BTreeMap<String, String>,
    /// Files written first.
    pub files: Vec<InputFile>,
    /// Which files to return; `None` for none.
    pub collect: Option<GlobSet>,
    /// Working directory, absolute.
    pub cwd: String,
    /// Name of the policy.
    pub policy: String,
    /// How much of each stream the result shows; all that is kept without it.
    pub output: Option<OutputBudget>,
}

impl ExecutionSpec {
    /// Whether it makes no difference that an interpreter gets the caller's environment only once it is loaded: no variable is one that
    /// interpreter, loader or libraries read when they start.
    #[must_use]
    pub fn env_can_wait(&self) -> bool {
        const READ_AT_START: [&str; 27] = [
            "PYTHON",
            "IPYTHON",
            "LD_",
            "GLIBC_",
            "MALLOC_",
            "LC_",
            "LANG",
            "OPENBLAS_",
            "OMP_",
            "MKL_",
            "KMP_",
            "NUMEXPR_",
            "POLARS_",
            "RAYON_",
            "MPL",
            "PANDAS_",
            "NPY_",
            "NUMPY_",
            "SCIPY_",
            "SKLEARN_",
            "ARROW_",
            "JE_ARROW_",
            "JOBLIB_",
            "LOKY_",
            "PLOTLY_",
            "OPENSSL_",
            "SSL_",
        ];
        !self.env.keys().any(|name| READ_AT_START.iter().any(|start| name.starts_with(start)))
    }
}

/// Body of `POST /v1/sessions`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"idle_timeout_s": 600}))]
pub struct SessionRequest {
    /// Name of a template, or name@version.
    #[serde(default)]
    pub template: Option<String>,
    /// Lowest isolation level accepted; never less.
    #[serde(default)]
    pub isolation: IsolationLevel,
    /// Limits of everything in it together.
    #[serde(default)]
    pub limits: LimitsRequest,
    /// Environment variables of its interpreter.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Files written first.
    #[serde(default)]
    pub files: Vec<FileRequest>,
    /// Name of a policy.
    #[serde(default)]
    pub policy: Option<String>,
    /// Seconds without an execution after which it is closed.
    #[serde(default)]
    pub idle_timeout_s: Option<i64>,
    /// Seconds after which it is closed whatever happens.
    #[serde(default)]
    pub ttl_s: Option<i64>,
    /// Whatever the caller wants to find again; kept as it is.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub metadata: Members,
}

/// A valid session.
#[derive(Debug, Clone)]
pub struct SessionSpec {
    /// What its interpreter is started for: limits, environment, files.
    pub base: ExecutionSpec,
    /// Its template, which says what may run in it.
    pub template: Arc<Template>,
    /// Without an execution it is closed after this.
    pub idle_timeout: Duration,
    /// Whatever happens it is closed after this.
    pub ttl: Duration,
    /// The caller's own.
    pub metadata: Members,
}

/// Longest life of a session, in seconds: a week.
pub const MOST_SESSION_SECONDS: u64 = 7 * 24 * 3600;
/// Closed after so many seconds without an execution unless the caller says otherwise.
const IDLE_SECONDS: u64 = 30 * 60;
/// Closed after so many seconds unless the caller says otherwise.
const TTL_SECONDS: u64 = 24 * 3600;
/// Most bytes of a session's metadata as JSON.
const MOST_METADATA: usize = 16 << 10;

impl SessionRequest {
    /// As [`Self::validate_as`], with one of the templates that are part of this program.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn validate(self, policy: &LimitPolicy) -> Result<SessionSpec, FieldError> {
        let template = known_template(self.template.as_deref())?;
        self.validate_as(template, policy)
    }

    /// Checks every field against the operator's limits, for a session of this template.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn validate_as(self, template: Arc<Template>, policy: &LimitPolicy) -> Result<SessionSpec, FieldError> {
        let metadata = serde_json::to_string(&self.metadata).map_or(usize::MAX, |text| text.len());
        if metadata > MOST_METADATA {
            return Err(FieldError::new("metadata", format!("has {metadata} bytes; at most {MOST_METADATA} are kept")));
        }
        let seconds = |field, given, default| {
            bounded::<u64>(field, given, 1, MOST_SESSION_SECONDS, default).map(Duration::from_secs)
        };
        let request = ExecutionRequest {
            template: self.template,
            isolation: self.isolation,
            limits: self.limits,
            env: self.env,
            files: self.files,
            policy: self.policy,
            ..ExecutionRequest::new("")
        };
        Ok(SessionSpec {
            idle_timeout: seconds("idle_timeout_s", self.idle_timeout_s, IDLE_SECONDS)?,
            ttl: seconds("ttl_s", self.ttl_s, TTL_SECONDS)?,
            // Whatever it runs, its interpreter is Python's.
            base: request.build(&template, policy)?,
            template,
            metadata: self.metadata,
        })
    }
}

impl ExecutionRequest {
    /// As [`Self::validate`], for an execution in a session, which has the session's template, isolation and limits. Other languages than Python run as
    /// children of its interpreter.
    ///
    /// # Errors
    /// The first field that is wrong, or that only a session as a whole can have.
    pub fn validate_within(mut self, session: &SessionSpec, policy: &LimitPolicy) -> Result<ExecutionSpec, FieldError> {
        let of_the_session = "is that of the session and cannot be changed for one execution";
        if self.template.is_some() {
            return Err(FieldError::new("template", of_the_session));
        }
        if self.isolation != IsolationLevel::Auto && self.isolation != session.base.isolation {
            return Err(FieldError::new("isolation", of_the_session));
        }
        // Saying what holds anyway is no error: many callers send the same limits with everything.
        let limits = &session.base.limits;
        let other =
            |given: Option<i64>, bytes: u64| given.is_some_and(|given| u64::try_from(given).ok() != Some(bytes));
        let LimitsRequest { memory_mb, cpu, processes, disk_mb, file_size_mb, open_files, output_kb: _, network: _ } =
            &self.limits;
        let others = [
            ("memory_mb", other(*memory_mb, limits.memory_bytes >> 20)),
            ("cpu", cpu.is_some_and(|cpu| (cpu - limits.cpu).abs() > f64::EPSILON)),
            ("processes", other(*processes, limits.processes)),
            ("disk_mb", other(*disk_mb, limits.disk_bytes >> 20)),
            ("file_size_mb", other(*file_size_mb, limits.file_size_bytes >> 20)),
            ("open_files", other(*open_files, limits.open_files)),
        ];
        if let Some((name, _)) = others.into_iter().find(|(_, other)| *other) {
            return Err(FieldError::new(format!("limits.{name}"), of_the_session));
        }
        self.isolation = session.base.isolation;
        // Where nothing else is said the session's working directory stays, even if code has changed it.
        let stays = self.cwd.is_none();
        // The session's environment has the template's already, under its own.
        let own = environment(std::mem::take(&mut self.env), policy.max_env_bytes)?;
        let spec = self.validate_as(&session.template, policy)?;
        let mut env = session.base.env.clone();
        env.extend(own);
        Ok(ExecutionSpec {
            env,
            limits: Limits { output_bytes: spec.limits.output_bytes, ..session.base.limits },
            cwd: if stays { String::new() } else { spec.cwd },
            ..spec
        })
    }
}

/// The template of whoever names none.
pub const DEFAULT_TEMPLATE: &str = "default";
/// The only policy until policies can be made.
pub const DEFAULT_POLICY: &str = "default";

impl ExecutionRequest {
    /// As [`Self::validate_as`], with one of the templates that are part of this program.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn validate(self, policy: &LimitPolicy) -> Result<ExecutionSpec, FieldError> {
        let template = known_template(self.template.as_deref())?;
        self.validate_as(&template, policy)
    }

    /// Checks every field against the operator's limits, for this template: what the request says counts before what the template says, and that before the
    /// operator's defaults. An isolation level of the template is a floor.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn validate_as(self, template: &Template, policy: &LimitPolicy) -> Result<ExecutionSpec, FieldError> {
        template.admits(self.language)?;
        self.build(template, policy)
    }

    fn build(self, template: &Template, policy: &LimitPolicy) -> Result<ExecutionSpec, FieldError> {
        let policy = &template.policy_over(policy);
        if self.code.len() > policy.max_code_bytes {
            let message = format!("has {} bytes; at most {} are accepted", self.code.len(), policy.max_code_bytes);
            return Err(FieldError::new("code", message));
        }
        let argv = self.argv.unwrap_or_default();
        match (self.language, argv.is_empty()) {
            (Language::Command, true) => {
                return Err(FieldError::new("argv", "must name the program when language is 'command'"));
            }
            (Language::Command, false) => {
                if !self.code.is_empty() {
                    return Err(FieldError::new(
                        "code",
                        "must be empty when language is 'command'; argv is the program",
                    ));
                }
            }
            (_, false) => return Err(FieldError::new("argv", "is only for language 'command'")),
            (_, true) => {}
        }
        if argv.iter().any(|argument| argument.contains('\0')) || argv.first().is_some_and(String::is_empty) {
            return Err(FieldError::new("argv", "must not contain NUL bytes, and the program must not be empty"));
        }
        if argv.iter().map(String::len).sum::<usize>() > policy.max_env_bytes {
            return Err(FieldError::new("argv", format!("has more than {} bytes", policy.max_env_bytes)));
        }
        let policy_name = self.policy.unwrap_or_else(|| template.policy.clone());
        if policy_name != DEFAULT_POLICY {
            return Err(FieldError::new(
                "policy",
                format!("{policy_name:?} does not exist; there is {DEFAULT_POLICY:?}"),
            ));
        }
        if self.result_var.as_deref().is_some_and(|name| name.is_empty() || name.len() > 200) {
            return Err(FieldError::new("result_var", "must be the name of a variable"));
        }
        let limits = self.limits.validate(policy)?;
        let files = files(self.files, policy.max_files)?;
        let total: u64 = files.iter().map(|file| file.content.len() as u64).sum();
        if total > limits.disk_bytes {
            let message = format!("have {total} bytes, more than limits.disk_mb = {}", limits.disk_bytes >> 20);
            return Err(FieldError::new("files", message));
        }
        let cwd = working_directory(self.cwd.as_deref())?;
        let stands = cwd == WORKSPACE || WORKSPACE_ALIASES.contains(&&*cwd) || WRITABLE.contains(&&*cwd);
        if template.kind.read_only && !stands {
            let message = format!(
                "must be {WORKSPACE}: template \"{}\" is read-only, and other folders could not be made",
                template.reference()
            );
            return Err(FieldError::new("cwd", message));
        }
        Ok(ExecutionSpec {
            owner: TenantId::default(),
            stdin: Bytes::from(self.stdin),
            stdin_open: self.stdin_open,
            preview_rows: bounded("preview_rows", self.preview_rows, 0, 500, 10)?,
            format: self.format,
            timeout: Duration::from_millis(bounded(
                "timeout_ms",
                self.timeout_ms,
                1,
                policy.max_timeout.as_millis() as u64,
                policy.default_timeout.as_millis() as u64,
            )?),
            limits,
            env: environment(template.env.clone().into_iter().chain(self.env).collect(), policy.max_env_bytes)?,
            files,
            collect: globs(&self.collect)?,
            cwd,
            code: self.code,
            language: self.language,
            argv,
            template: template.reference(),
            kind: template.kind.clone(),
            isolation: self.isolation.max(template.isolation),
            input: self.input,
            result_var: self.result_var,
            policy: policy_name,
            output: self.output.map(OutputRequest::validate).transpose()?,
        })
    }
}

impl LimitsRequest {
    /// Checks every field against the operator's maxima.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self, policy: &LimitPolicy) -> Result<(), FieldError> {
        self.validate(policy).map(drop)
    }

    /// This with what it leaves out taken from `base`.
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        Self {
            memory_mb: self.memory_mb.or(base.memory_mb),
            cpu: self.cpu.or(base.cpu),
            processes: self.processes.or(base.processes),
            disk_mb: self.disk_mb.or(base.disk_mb),
            file_size_mb: self.file_size_mb.or(base.file_size_mb),
            open_files: self.open_files.or(base.open_files),
            output_kb: self.output_kb.or(base.output_kb),
            network: self.network.or(base.network),
        }
    }

    /// The operator's defaults with these in their place, none above its maximum.
    pub(crate) fn as_defaults(&self, policy: &LimitPolicy) -> Limits {
        let (default, max) = (&policy.default, &policy.max);
        let number = |given: Option<i64>, unit: u64, default: u64, max: u64| {
            given
                .and_then(|given| u64::try_from(given).ok())
                .map_or(default, |given| given.saturating_mul(unit))
                .min(max)
        };
        const MB: u64 = 1 << 20;
        let disk_bytes = number(self.disk_mb, MB, default.disk_bytes, max.disk_bytes);
        // Where only the disk is given a file may fill it.
        let file = if self.disk_mb.is_some() { disk_bytes } else { default.file_size_bytes };
        Limits {
            memory_bytes: number(self.memory_mb, MB, default.memory_bytes, max.memory_bytes),
            cpu: self.cpu.unwrap_or(default.cpu).min(max.cpu),
            processes: number(self.processes, 1, default.processes, max.processes),
            disk_bytes,
            file_size_bytes: number(self.file_size_mb, MB, file, max.file_size_bytes),
            open_files: number(self.open_files, 1, default.open_files, max.open_files),
            output_bytes: number(self.output_kb, 1024, default.output_bytes, max.output_bytes),
        }
    }

    fn validate(&self, policy: &LimitPolicy) -> Result<Limits, FieldError> {
        const MB: u64 = 1 << 20;
        let (default, max) = (&policy.default, &policy.max);
        let megabytes = |field, given, least, most: u64, default: u64| -> Result<u64, FieldError> {
            Ok(bounded::<u64>(field, given, least, most / MB, (default / MB).max(least))? * MB)
        };
        if self.network == Some(true) {
            return Err(FieldError::new("limits.network", "must be false: this node gives no sandbox a network"));
        }
        let disk_bytes = megabytes("limits.disk_mb", self.disk_mb, 1, max.disk_bytes, default.disk_bytes)?;
        let cpu = self.cpu.unwrap_or(default.cpu);
        // Below a hundredth of a core the kernel's quota has no meaning. Written so that NaN fails too.
        if !(cpu >= 0.01 && cpu <= max.cpu) {
            return Err(FieldError::new("limits.cpu", format!("must be between 0.01 and {}, got {cpu}", max.cpu)));
        }
        Ok(Limits {
            memory_bytes: megabytes("limits.memory_mb", self.memory_mb, 16, max.memory_bytes, default.memory_bytes)?,
            cpu,
            processes: bounded("limits.processes", self.processes, 1, max.processes, default.processes)?,
            disk_bytes,
            file_size_bytes: megabytes(
                "limits.file_size_mb",
                self.file_size_mb,
                1,
                max.file_size_bytes,
                default.file_size_bytes,
            )?
            .min(disk_bytes),
            open_files: bounded("limits.open_files", self.open_files, 16, max.open_files, default.open_files)?,
            output_bytes: bounded::<u64>(
                "limits.output_kb",
                self.output_kb,
                1,
                max.output_bytes / 1024,
                (default.output_bytes / 1024).max(1),
            )? * 1024,
        })
    }
}

/// An absent number gets the default; zero, negative or above the maximum is refused, never taken for "unlimited".
fn bounded<T: TryFrom<u64>>(
    field: &str,
    given: Option<i64>,
    least: u64,
    most: u64,
    default: u64,
) -> Result<T, FieldError> {
    let value = match given {
        None => default,
        Some(given) => u64::try_from(given)
            .ok()
            .filter(|value| (least..=most).contains(value))
            .ok_or_else(|| FieldError::new(field, format!("must be between {least} and {most}, got {given}")))?,
    };
    T::try_from(value).map_err(|_| FieldError::new(field, format!("must be between {least} and {most}, got {value}")))
}

/// One of the templates that are part of this program.
fn known_template(given: Option<&str>) -> Result<Arc<Template>, FieldError> {
    let Some(given) = given else { return Ok(default_template()) };
    let wanted = TemplateRef::parse(given).map_err(|message| FieldError::new("template", message))?;
    built_in(&wanted).map(|one| Arc::clone(&one.template)).ok_or_else(|| {
        let names: Vec<_> = built_ins().iter().map(|one| one.template.reference()).collect();
        FieldError::new("template", format!("{given:?} does not exist; there are {}", names.join(", ")))
    })
}

pub(crate) fn environment(
    given: BTreeMap<String, String>,
    max_bytes: usize,
) -> Result<BTreeMap<String, String>, FieldError> {
    let mut total = 0;
    for (name, value) in &given {
        let well_formed = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !well_formed {
            let message =
                format!("{name:?} is no name of a variable: letters, digits and '_', not beginning with a digit");
            return Err(FieldError::new("env", message));
        }
        if value.contains('\0') {
            return Err(FieldError::new(format!("env.{name}"), "must not contain a NUL byte"));
        }
        total += name.len() + value.len();
    }
    if total > max_bytes {
        return Err(FieldError::new("env", format!("has {total} bytes; at most {max_bytes} are accepted")));
    }
    Ok(given)
}

fn files(given: Vec<FileRequest>, max_files: usize) -> Result<Vec<InputFile>, FieldError> {
    if given.len() > max_files {
        return Err(FieldError::new("files", format!("has {} entries; at most {max_files} are accepted", given.len())));
    }
    let files = given
        .into_iter()
        .enumerate()
        .map(|(index, file)| {
            let path = WorkspacePath::parse(&file.path)
                .map_err(|message| FieldError::new(format!("files[{index}].path"), message))?;
            let content = match (file.content, file.content_base64) {
                (Some(text), None) => Bytes::from(text),
                (None, Some(encoded)) => base64::engine::general_purpose::STANDARD
                    .decode(encoded.trim_ascii())
                    .map_err(|error| {
                        FieldError::new(format!("files[{index}].content_base64"), format!("is not base64: {error}"))
                    })?
                    .into(),
                _ => {
                    let message = "needs exactly one of 'content' and 'content_base64'";
                    return Err(FieldError::new(format!("files[{index}]"), message));
                }
            };
            Ok(InputFile { path, content })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for (index, file) in files.iter().enumerate() {
        let mut path = file.path.as_str();
        while let Some((folder, _)) = path.rsplit_once('/') {
            if paths.contains(folder) {
                let message = format!("lies below {folder:?}, which is a file of this request too");
                return Err(FieldError::new(format!("files[{index}].path"), message));
            }
            path = folder;
        }
    }
    Ok(files)
}

fn globs(patterns: &[String]) -> Result<Option<GlobSet>, FieldError> {
    const MOST: usize = 100;
    if patterns.is_empty() {
        return Ok(None);
    }
    if patterns.len() > MOST {
        return Err(FieldError::new("collect", format!("has {} globs; at most {MOST} are accepted", patterns.len())));
    }
    let mut set = GlobSetBuilder::new();
    for (index, pattern) in patterns.iter().enumerate() {
        let relative = std::iter::once(WORKSPACE)
            .chain(WORKSPACE_ALIASES)
            .find_map(|root| pattern.strip_prefix(root)?.strip_prefix('/'))
            .unwrap_or(pattern);
        let wrong = |message: String| FieldError::new(format!("collect[{index}]"), message);
        if relative.starts_with('/') || relative.split('/').any(|part| part == "..") {
            return Err(wrong(format!("{pattern:?} is outside the workspace")));
        }
        // `*.csv` means the files of the workspace itself; `**/*.csv` those below it too.
        let glob = GlobBuilder::new(relative.trim_start_matches("./")).literal_separator(true).build();
        set.add(glob.map_err(|error| wrong(format!("is no glob: {}", error.kind())))?);
    }
    set.build().map(Some).map_err(|error| FieldError::new("collect", error.to_string()))
}

fn working_directory(given: Option<&str>) -> Result<String, FieldError> {
    let Some(given) = given.filter(|cwd| !cwd.is_empty()) else { return Ok(WORKSPACE.to_owned()) };
    let refuse = |why: &str| {
        let places = format!("{WORKSPACE}, {}", WRITABLE.join(", "));
        FieldError::new("cwd", format!("{given:?} {why}; use a relative path or one below {places}"))
    };
    if given.contains('\0') || given.split('/').any(|part| part == "..") || given.len() > 1000 {
        return Err(refuse("must not contain '..' or NUL"));
    }
    let absolute = if given.starts_with('/') { given.to_owned() } else { format!("{WORKSPACE}/{given}") };
    let inside = std::iter::once(WORKSPACE)
        .chain(WORKSPACE_ALIASES)
        .chain(WRITABLE)
        .any(|root| absolute.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    inside.then_some(absolute).ok_or_else(|| refuse("is outside the sandbox's writable places"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(change: impl FnOnce(&mut ExecutionRequest)) -> String {
        let mut request = ExecutionRequest::new("1");
        change(&mut request);
        request.validate(&LimitPolicy::default()).expect_err("must be refused").field
    }

    #[test]
    fn what_is_absent_gets_the_default() {
        let spec = ExecutionRequest::new("1").validate(&LimitPolicy::default()).unwrap();
        assert_eq!(spec.timeout, Duration::from_secs(30));
        assert_eq!(spec.limits, LimitPolicy::default().default);
        assert_eq!((spec.cwd.as_str(), spec.preview_rows, spec.format), ("/data", 10, ResultFormat::Default));
    }

    #[test]
    fn zero_negative_and_huge_are_refused_by_name() {
        for value in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(refused(|r| r.timeout_ms = Some(value)), "timeout_ms");
            assert_eq!(refused(|r| r.limits.memory_mb = Some(value)), "limits.memory_mb");
            assert_eq!(refused(|r| r.limits.processes = Some(value)), "limits.processes");
            assert_eq!(refused(|r| r.limits.disk_mb = Some(value)), "limits.disk_mb");
            assert_eq!(refused(|r| r.limits.output_kb = Some(value)), "limits.output_kb");
            assert_eq!(refused(|r| r.limits.open_files = Some(value)), "limits.open_files");
            assert_eq!(refused(|r| r.limits.file_size_mb = Some(value)), "limits.file_size_mb");
        }
        for value in [0.0, -2.0, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(|r| r.limits.cpu = Some(value)), "limits.cpu");
        }
        assert_eq!(refused(|r| r.preview_rows = Some(501)), "preview_rows");
    }

    #[test]
    fn the_working_directory_stays_in_writable_places() {
        for bad in ["/etc", "/", "../x", "/data/../etc", "/datax", "/tmp/../root"] {
            assert_eq!(refused(|r| r.cwd = Some(bad.to_owned())), "cwd", "{bad}");
        }
        for good in ["", "sub", "/data", "/data/a", "/tmp", "/workspace/x", "/home/sandbox"] {
            let request = ExecutionRequest { cwd: Some(good.to_owned()), ..ExecutionRequest::new("1") };
            assert!(request.validate(&LimitPolicy::default()).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_file_needs_exactly_one_content() {
        let file = |content: Option<&str>, base64: Option<&str>| FileRequest {
            path: "a".to_owned(),
            content: content.map(str::to_owned),
            content_base64: base64.map(str::to_owned),
        };
        assert_eq!(refused(|r| r.files = vec![file(None, None)]), "files[0]");
        assert_eq!(refused(|r| r.files = vec![file(Some("x"), Some("eA=="))]), "files[0]");
        assert_eq!(refused(|r| r.files = vec![file(None, Some("%%"))]), "files[0].content_base64");
    }

    #[test]
    fn a_file_lies_below_no_other() {
        let file =
            |path: &str| FileRequest { path: path.to_owned(), content: Some(String::new()), content_base64: None };
        assert_eq!(refused(|r| r.files = vec![file("a/b"), file("ab"), file("a")]), "files[0].path");
        assert_eq!(refused(|r| r.files = vec![file("/data/a/b/c"), file("a/b")]), "files[0].path");
        let apart = vec![file("a"), file("ab"), file("b/a"), file("b/ab")];
        let request = ExecutionRequest { files: apart, ..ExecutionRequest::new("1") };
        assert!(request.validate(&LimitPolicy::default()).is_ok());
    }

    #[test]
    fn a_request_counts_before_its_template_and_that_before_the_default() {
        let policy = LimitPolicy::default();
        let request = ExecutionRequest { template: Some("function".to_owned()), ..ExecutionRequest::new("1") };
        let spec = request.clone().validate(&policy).unwrap();
        assert_eq!((spec.limits.memory_bytes, spec.timeout), (100 << 20, Duration::from_secs(180)));
        assert_eq!((spec.template.as_str(), spec.limits.open_files), ("function@1", policy.default.open_files));
        let limits = LimitsRequest { memory_mb: Some(200), ..LimitsRequest::default() };
        let spec = ExecutionRequest { limits, timeout_ms: Some(5), ..request }.validate(&policy).unwrap();
        assert_eq!((spec.limits.memory_bytes, spec.timeout), (200 << 20, Duration::from_millis(5)));
    }

    #[test]
    fn a_session_of_a_template_runs_what_the_template_runs() {
        let policy = LimitPolicy::default();
        let request = SessionRequest { template: Some("shell".to_owned()), ..SessionRequest::default() };
        let session = request.validate(&policy).unwrap();
        let within = |language| {
            let request = ExecutionRequest { language, ..ExecutionRequest::new("1") };
            request.validate_within(&session, &policy).map(|spec| spec.template)
        };
        assert_eq!(within(Language::Bash).unwrap(), "shell@1");
        assert_eq!(within(Language::Python).unwrap_err().field, "language");
    }

    #[test]
    fn only_built_in_templates_and_the_default_policy_exist() {
        assert_eq!(refused(|r| r.template = Some("no such".to_owned())), "template");
        assert_eq!(refused(|r| r.template = Some("no-such".to_owned())), "template");
        assert_eq!(refused(|r| r.template = Some("default@2".to_owned())), "template");
        assert_eq!(refused(|r| r.policy = Some("none".to_owned())), "policy");
    }

    proptest! {
        #[test]
        fn a_workspace_path_never_leaves_the_workspace(text in "[a./\\x00-]{0,20}") {
            if let Ok(path) = WorkspacePath::parse(&text) {
                prop_assert!(!path.as_str().starts_with('/'));
                prop_assert!(path.as_str().split('/').all(|part| !part.is_empty() && part != "." && part != ".."));
            }
        }
    }
}
