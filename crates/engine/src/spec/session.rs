//! Sessions: what a caller asks for, what is opened, and executions within one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::bounded;
use super::{
    ExecutionRequest, ExecutionSpec, FieldError, FileRequest, IsolationLevel, LimitPolicy, Limits, LimitsRequest,
    environment, known_template,
};
use crate::execution::Members;
use crate::template::Template;

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

#[cfg(test)]
mod tests {
    use super::super::Language;
    use super::*;

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
}
