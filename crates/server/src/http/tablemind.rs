//! The TableMind surface, kept exactly: one streaming route, reset, pool status. See docs/tablemind.md.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use fumehood_engine::event::{Event, EventBody};
use fumehood_engine::execution::{Execution, JsonText, Members, Notice, Outcome, Status};
use fumehood_engine::ids::ExecutionId;
use fumehood_engine::spec::{ExecutionRequest, ExecutionSpec, FieldError, LimitPolicy, SessionSpec};
use futures::{Stream, StreamExt, future};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Shared;
use super::auth::Principal;
use super::body::{self, JsonBody};
use super::error::ApiError;
use super::idempotency::KeyParam;
use super::stream::streamed;
use super::tags::{self, Escaper};
use crate::openapi::{Refusals, RunRefusals};
use crate::tagged;

/// Body of `POST /exec`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecRequest {
    /// Python source text.
    code: String,
    /// Seconds; 30 by default.
    timeout: Option<f64>,
    /// Working directory; `/data` by default.
    cwd: Option<String>,
    /// Variable to extract; nothing is extracted without it.
    result_var: Option<String>,
    /// Rows of a table preview, 0 to 500.
    preview_rows: Option<i64>,
    /// `false` leaves `dataframe` out of the result.
    include_df_info: Option<bool>,
    /// Session to run in, from `POST /v1/sessions`; a fresh sandbox without it.
    session_id: Option<String>,
}

/// What a body of `POST /exec` asks for, outside any session.
pub(crate) fn exec_spec(body: &[u8], policy: &LimitPolicy) -> Result<ExecutionSpec, FieldError> {
    body::parse::<ExecRequest>(body)?.validate(policy, None)
}

/// What the last chunk says about tables and values.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    value: bool,
    table: bool,
}

impl ExecRequest {
    fn wanted(&self) -> Wanted {
        let value = self.result_var.is_some();
        Wanted { value, table: value && self.include_df_info != Some(false) }
    }

    fn validate(self, policy: &LimitPolicy, session: Option<&SessionSpec>) -> Result<ExecutionSpec, FieldError> {
        let request = ExecutionRequest {
            cwd: self.cwd,
            result_var: self.result_var,
            preview_rows: self.preview_rows,
            ..ExecutionRequest::new(self.code)
        };
        let mut spec = match session {
            Some(session) => request.validate_within(session, policy)?,
            None => request.validate(policy)?,
        };
        if let Some(seconds) = self.timeout {
            spec.timeout = Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|timeout| (Duration::from_millis(1)..=policy.max_timeout).contains(timeout))
                .ok_or_else(|| {
                    let most = policy.max_timeout.as_secs_f64();
                    FieldError::new("timeout", format!("must be more than 0 and at most {most} seconds, got {seconds}"))
                })?;
        }
        Ok(spec)
    }
}

/// The last chunk of `POST /exec`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecResult {
    /// Whether the code ended by itself with exit code 0.
    success: bool,
    /// Seconds of the run itself.
    execution_time: f64,
    /// `Type: message`, or `null`.
    error: Option<String>,
    /// Description of the table in `result_var`.
    #[schema(value_type = Option<Object>)]
    dataframe: Option<Members>,
    /// Value of `result_var` when it is no table, as plain JSON.
    #[schema(value_type = Option<Object>)]
    return_value: JsonText,
    /// The user's variables: name to `{type, shape, repr}`.
    #[schema(value_type = Object)]
    variables: Members,
    /// The execution, readable under `/v1/executions/{id}`.
    execution_id: ExecutionId,
    /// How it ended.
    outcome: Option<Outcome>,
    /// Things to know that are no failure, for example that the value was too large and was cut.
    warnings: Vec<Notice>,
}

impl ExecResult {
    fn new(execution: &Execution, wanted: Wanted) -> Self {
        let table = execution.dataframe.as_ref();
        let value =
            if wanted.value && table.is_none() { tagged::flatten(&execution.result) } else { JsonText::default() };
        Self {
            success: execution.status == Status::Completed,
            execution_time: execution.metrics.duration_ms / 1e3,
            error: error_text(execution),
            dataframe: table.filter(|_| wanted.table).map(tagged::flatten_fields),
            return_value: value,
            variables: execution.variables.clone(),
            execution_id: execution.id.clone(),
            outcome: execution.outcome,
            warnings: execution.warnings.clone(),
        }
    }
}

fn error_text(execution: &Execution) -> Option<String> {
    if execution.status == Status::Completed {
        return None;
    }
    Some(match (&execution.error, execution.exit_code) {
        (Some(error), _) if error.message.is_empty() => error.kind.clone(),
        (Some(error), _) => format!("{}: {}", error.kind, error.message),
        (None, Some(code)) => format!("Exited: the program ended with exit code {code}"),
        (None, None) => format!("Ended: {}", execution.outcome.map_or("unknown", Outcome::as_str)),
    })
}

/// Runs Python code and streams tagged chunks; the last is always `<result>`.
#[utoipa::path(
    post,
    path = "/exec",
    tag = "tablemind",
    request_body = ExecRequest,
    responses(
        (status = 200, description = "`<txt>…</txt>`, `<err>…</err>`, `<img>base64</img>` and last `<result>{ExecResult}</result>`",
            body = String, content_type = "text/plain", headers(("X-Execution-Id" = String, description = "Id of the execution"))),
        Refusals,
        RunRefusals,
    ),
)]
pub(crate) async fn exec(
    State(state): State<Shared>,
    principal: Principal,
    key: KeyParam,
    body: JsonBody<ExecRequest>,
) -> Result<Response, ApiError> {
    let wanted = body.value.wanted();
    let session = match &body.value.session_id {
        None => None,
        Some(id) => Some(state.own_session(&principal, id).ok_or_else(|| {
            ApiError::invalid("session_id", "names no session that is kept here; POST /v1/sessions opens one")
        })?),
    };
    let spec = body.value.validate(&state.config.limits, session.as_ref().map(|session| &session.spec))?;
    let attempt = key.with_body(body.sha256);
    let accepted = match &session {
        Some(session) => state.submit_to(&principal, session, spec, true, attempt, None).await?,
        None => state.submit(&principal, spec, attempt).await?,
    };
    Ok(streamed("text/plain; charset=utf-8", accepted.headers(), chunks(state.jobs.told(&accepted, 0), wanted)))
}

/// The same as `POST /exec`.
#[utoipa::path(
    post,
    path = "/api/v1/exec",
    tag = "tablemind",
    request_body = ExecRequest,
    responses(
        (status = 200, description = "As `POST /exec`", body = String, content_type = "text/plain",
            headers(("X-Execution-Id" = String, description = "Id of the execution"))),
        Refusals,
        RunRefusals,
    ),
)]
pub(crate) async fn exec_v1(
    state: State<Shared>,
    principal: Principal,
    key: KeyParam,
    body: JsonBody<ExecRequest>,
) -> Result<Response, ApiError> {
    exec(state, principal, key, body).await
}

/// One chunk of whole tags for each event.
fn chunks(
    events: impl Stream<Item = Arc<Event>> + Send + 'static,
    wanted: Wanted,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let (mut stdout, mut stderr) = (Escaper::default(), Escaper::default());
    events.filter_map(move |event| {
        let text = match &event.body {
            EventBody::Stdout { text } => tags::chunk("txt", &stdout.push(text)),
            EventBody::Stderr { text } => tags::chunk("err", &stderr.push(text)),
            EventBody::Display(output) => {
                let png = output.mime.get("image/png").and_then(JsonText::string).and_then(|png| tags::image(&png));
                png.map_or_else(String::new, |png| tags::chunk("img", &png))
            }
            EventBody::Result(execution) => last(execution, wanted, &mut stdout, &mut stderr),
            EventBody::Started { .. } | EventBody::Warning(_) => String::new(),
        };
        future::ready((!text.is_empty()).then(|| Bytes::from(text)))
    })
}

fn last(execution: &Execution, wanted: Wanted, stdout: &mut Escaper, stderr: &mut Escaper) -> String {
    let mut text = tags::chunk("txt", &stdout.finish());
    let traceback = untold_traceback(execution);
    let rest = stderr.push(&traceback) + &stderr.finish();
    text.push_str(&tags::chunk("err", &rest));
    match tags::result_chunk(&ExecResult::new(execution, wanted)) {
        Ok(result) => text.push_str(&result),
        Err(error) => tracing::error!(%error, "result cannot be written"),
    }
    text
}

/// The traceback, when standard error does not hold it already.
fn untold_traceback(execution: &Execution) -> String {
    let Some(error) = &execution.error else { return String::new() };
    let Some(end) = error.traceback.last().map(|line| line.trim_end()).filter(|line| !line.is_empty()) else {
        return String::new();
    };
    if execution.stderr.contains(end) {
        return String::new();
    }
    error.traceback.iter().flat_map(|line| [line.trim_end_matches('\n'), "\n"]).collect()
}

/// Answer of `POST /reset`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResetResult {
    /// Always true.
    success: bool,
    /// For people.
    message: &'static str,
}

/// Resets the kernel. Without sessions no execution leaves any state, so there is nothing to do.
#[utoipa::path(post, path = "/reset", tag = "tablemind",
    responses((status = 200, description = "Done", body = ResetResult), Refusals))]
pub(crate) async fn reset() -> Json<ResetResult> {
    Json(ResetResult { success: true, message: "Kernel reset successfully" })
}

/// The same as `POST /reset`.
#[utoipa::path(post, path = "/api/v1/reset", tag = "tablemind",
    responses((status = 200, description = "Done", body = ResetResult), Refusals))]
pub(crate) async fn reset_v1() -> Json<ResetResult> {
    reset().await
}

/// Places for executions, in the words of TableMind.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolStatus {
    /// All places.
    total_containers: usize,
    /// Free places.
    idle_containers: usize,
    /// Executions that have a place.
    busy_containers: usize,
    /// Executions that wait for one.
    pending_requests: usize,
}

/// Places for executions.
#[utoipa::path(get, path = "/api/v1/pool/status", tag = "tablemind",
    responses((status = 200, description = "Places", body = PoolStatus), Refusals))]
pub(crate) async fn pool(State(state): State<Shared>) -> Json<PoolStatus> {
    let load = state.engine.load();
    Json(PoolStatus {
        total_containers: load.capacity,
        idle_containers: load.capacity.saturating_sub(load.running),
        busy_containers: load.running,
        pending_requests: load.queued,
    })
}
