//! What a caller asks for ([`ExecutionRequest`]) and what the engine runs ([`ExecutionSpec`]): parsed once, valid inside.

mod limits;
mod session;
mod workspace;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use globset::GlobSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use limits::{LimitPolicy, Limits, LimitsRequest};
pub use session::{MOST_SESSION_SECONDS, SessionRequest, SessionSpec};
pub use workspace::{FileRequest, InputFile, WORKSPACE, WORKSPACE_ALIASES, WRITABLE, WorkspacePath};

use limits::bounded;
use workspace::{files, globs, working_directory};

use crate::execution::JsonText;
use crate::ids::TenantId;
use crate::job::{Priority, RetryRequest};
use crate::output::OutputBudget;
use crate::template::{SandboxKind, Template, TemplateRef, built_in, built_ins, default_template};

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

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn refused(change: impl FnOnce(&mut ExecutionRequest)) -> String {
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
    fn only_built_in_templates_and_the_default_policy_exist() {
        assert_eq!(refused(|r| r.template = Some("no such".to_owned())), "template");
        assert_eq!(refused(|r| r.template = Some("no-such".to_owned())), "template");
        assert_eq!(refused(|r| r.template = Some("default@2".to_owned())), "template");
        assert_eq!(refused(|r| r.policy = Some("none".to_owned())), "policy");
    }
}
