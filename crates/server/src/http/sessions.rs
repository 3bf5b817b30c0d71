//! `/v1/sessions`: interpreters that keep their variables between executions.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fumehood_engine::backend::SandboxProcess;
use fumehood_engine::execution::{Execution, Members};
use fumehood_engine::session::{SessionInfo, SessionState};
use fumehood_engine::spec::{AnswerMode, ExecutionRequest, MOST_SESSION_SECONDS, SessionRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Shared;
use super::accept::{Form, negotiate};
use super::auth::Principal;
use super::body::JsonBody;
use super::error::{ApiError, ErrorBody};
use super::executions::answer;
use super::idempotency::KeyParam;
use super::params::{Pairs, SessionParam};
use super::submit::{REPLAYED, header_value};
use crate::jobs::JobOptions;
use crate::openapi::{EventObject, Refusals, RunRefusals};

/// Opens a session. It starts its interpreter at once; executions wait until it has.
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = SessionRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key with the same body opens one session")),
    responses((status = 201, description = "The session", body = SessionInfo,
        headers(("Location" = String, description = "Where to read it"))), Refusals, RunRefusals))]
pub(crate) async fn create(
    State(state): State<Shared>,
    principal: Principal,
    key: KeyParam,
    body: JsonBody<SessionRequest>,
) -> Result<Response, ApiError> {
    let template = state.templates.find(&principal.tenant, body.value.template.as_deref()).await?;
    let spec = body.value.validate_as(template, &state.config.limits)?;
    let (session, replayed) = state.open_session(&principal, spec, key.with_body(body.sha256)).await?;
    let mut headers = HeaderMap::new();
    headers.insert(header::LOCATION, header_value(&format!("/v1/sessions/{}", session.id)));
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok((StatusCode::CREATED, headers, Json(session.info())).into_response())
}

/// Sessions kept here.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionPage {
    /// Newest first.
    sessions: Vec<SessionInfo>,
}

/// Sessions, newest first; those that ended stay for a while.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions",
    params(("state" = Option<SessionState>, Query, description = "Only those in this state")),
    responses((status = 200, description = "Sessions", body = SessionPage), Refusals))]
pub(crate) async fn list(
    State(state): State<Shared>,
    principal: Principal,
    query: Pairs,
) -> Result<Json<SessionPage>, ApiError> {
    let [wanted] = query.take(["state"])?;
    let wanted = wanted.as_deref().map(parse_state).transpose()?;
    let own = state.engine.sessions().into_iter().filter(|session| *session.owner() == principal.tenant);
    let sessions = own.map(|session| session.info());
    let sessions = sessions.filter(|session| wanted.is_none_or(|wanted| session.state == wanted)).collect();
    Ok(Json(SessionPage { sessions }))
}

fn parse_state(text: &str) -> Result<SessionState, ApiError> {
    let plain = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text);
    SessionState::deserialize(plain).map_err(|error| ApiError::invalid("state", format!("is wrong: {error}")))
}

/// A session as it is now; one that ended says why.
#[utoipa::path(get, path = "/v1/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 200, description = "The session", body = SessionInfo), Refusals))]
pub(crate) async fn read(SessionParam(session): SessionParam) -> Json<SessionInfo> {
    Json(session.info())
}

/// Ends a session with everything in it. One that has ended stays as it is.
#[utoipa::path(delete, path = "/v1/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 200, description = "It is ended", body = SessionInfo), Refusals))]
pub(crate) async fn delete(SessionParam(session): SessionParam) -> Json<SessionInfo> {
    session.close("deleted on request");
    Json(session.info())
}

/// Runs code in a session, after what runs and waits there.
///
/// The forms of the answer are those of `POST /v1/executions`. Template, isolation and limits (but for `output_kb`) are those of the session. At
/// its timeout the code is interrupted and the variables stay; code that does not heed that is ended with its interpreter, and the answer says
/// `interpreter_restarted`.
#[utoipa::path(post, path = "/v1/sessions/{id}/executions", tag = "sessions", request_body = ExecutionRequest,
    params(("id" = String, Path, description = "Id of the session"),
        ("wait" = Option<bool>, Query, description = "`false`: 409 if another execution runs or waits"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same body runs once")),
    responses((status = 200, description = "The execution, or its events", content(
            (Execution = "application/json"), (EventObject = "text/event-stream"), (EventObject = "application/x-ndjson"),
        ), headers(("X-Execution-Id" = String, description = "Id of the execution"))),
        (status = 202, description = "Accepted (`mode: async`)", body = Execution),
        (status = 410, description = "The session has ended (`gone`); the message says why", body = ErrorBody),
        Refusals, RunRefusals))]
pub(crate) async fn execute(
    State(state): State<Shared>,
    SessionParam(session): SessionParam,
    principal: Principal,
    query: Pairs,
    headers: HeaderMap,
    key: KeyParam,
    body: JsonBody<ExecutionRequest>,
) -> Result<Response, ApiError> {
    let [wait] = query.take(["wait"])?;
    let wait = flag("wait", wait.as_deref(), true)?;
    let form = negotiate(&headers, &[Form::Json, Form::Sse, Form::Ndjson])?;
    let mode = body.value.mode;
    let options = JobOptions::within_session(&body.value)?;
    let spec = body.value.validate_within(&session.spec, &state.config.limits)?;
    let options = (mode == AnswerMode::Async).then_some(options);
    let accepted = state.submit_to(&principal, &session, spec, wait, key.with_body(body.sha256), options).await?;
    answer(&state, &accepted, mode, form).await
}

/// `true` or `false` in a query.
pub(crate) fn flag(name: &str, text: Option<&str>, absent: bool) -> Result<bool, ApiError> {
    match text {
        None => Ok(absent),
        Some("true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(other) => Err(ApiError::invalid(name, format!("must be true or false, got {other:?}"))),
    }
}

/// Interrupts what runs, as Ctrl-C would: the code gets a KeyboardInterrupt, the variables stay.
#[utoipa::path(post, path = "/v1/sessions/{id}/interrupt", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 202, description = "Asked for, if anything runs", body = SessionInfo),
        (status = 410, description = "The session has ended", body = ErrorBody), Refusals))]
pub(crate) async fn interrupt(SessionParam(session): SessionParam) -> Result<Response, ApiError> {
    session.interrupt()?;
    Ok((StatusCode::ACCEPTED, Json(session.info())).into_response())
}

/// A fresh interpreter in place of the present one, after what runs and waits. Files are kept, variables and processes are not.
#[utoipa::path(post, path = "/v1/sessions/{id}/reset", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 200, description = "The session", body = SessionInfo),
        (status = 410, description = "The session has ended", body = ErrorBody), Refusals))]
pub(crate) async fn reset(SessionParam(session): SessionParam) -> Result<Json<SessionInfo>, ApiError> {
    session.reset().await?;
    Ok(Json(session.info()))
}

/// Has everything in a session stand still, after what runs and waits: its processes keep their state and use no processor time.
///
/// The next execution resumes it by itself. Files can be read and written meanwhile, and it is not closed for being idle. `memory_given_back_mb` says
/// how much memory that freed.
#[utoipa::path(post, path = "/v1/sessions/{id}/pause", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 200, description = "The session", body = SessionInfo),
        (status = 409, description = "This host cannot freeze processes (`conflict`); the message says why", body = ErrorBody),
        (status = 410, description = "The session has ended", body = ErrorBody), Refusals))]
pub(crate) async fn pause(SessionParam(session): SessionParam) -> Result<Json<SessionInfo>, ApiError> {
    session.pause().await?;
    Ok(Json(session.info()))
}

/// Lets a paused session go on.
#[utoipa::path(post, path = "/v1/sessions/{id}/resume", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 200, description = "The session", body = SessionInfo),
        (status = 410, description = "The session has ended", body = ErrorBody), Refusals))]
pub(crate) async fn resume(SessionParam(session): SessionParam) -> Result<Json<SessionInfo>, ApiError> {
    session.resume().await?;
    Ok(Json(session.info()))
}

/// What runs in a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Processes {
    /// By their number inside; the interpreter is the first.
    processes: Vec<SandboxProcess>,
}

/// The processes in a session: its interpreter, and what executions have left running.
#[utoipa::path(get, path = "/v1/sessions/{id}/processes", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 200, description = "Processes", body = Processes), Refusals))]
pub(crate) async fn processes(SessionParam(session): SessionParam) -> Result<Json<Processes>, ApiError> {
    let listed = tokio::task::spawn_blocking(move || session.processes()).await;
    Ok(Json(Processes { processes: listed.map_err(|error| ApiError::internal("list processes", &error))? }))
}

/// Body of `POST /v1/sessions/{id}/extend`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extension {
    /// Seconds from now after which the session is closed; at most a week.
    ttl_s: u64,
}

/// Has a session live longer, or shorter.
#[utoipa::path(post, path = "/v1/sessions/{id}/extend", tag = "sessions", request_body = Extension,
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 200, description = "The session", body = SessionInfo),
        (status = 410, description = "The session has ended", body = ErrorBody), Refusals))]
pub(crate) async fn extend(
    SessionParam(session): SessionParam,
    body: JsonBody<Extension>,
) -> Result<Json<SessionInfo>, ApiError> {
    let seconds = body.value.ttl_s;
    if !(1..=MOST_SESSION_SECONDS).contains(&seconds) {
        return Err(ApiError::invalid("ttl_s", format!("must be between 1 and {MOST_SESSION_SECONDS}, got {seconds}")));
    }
    session.extend(Duration::from_secs(seconds))?;
    Ok(Json(session.info()))
}

/// Variables of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Variables {
    /// Name to `{type, shape, repr}`, as they were after the last execution.
    #[schema(value_type = Object)]
    variables: Members,
}

/// The variables after the last execution.
#[utoipa::path(get, path = "/v1/sessions/{id}/variables", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 200, description = "Variables", body = Variables), Refusals))]
pub(crate) async fn variables(SessionParam(session): SessionParam) -> Result<Json<Variables>, ApiError> {
    // What was in a session is gone with it.
    session.over().map_or(Ok(()), Err)?;
    Ok(Json(Variables { variables: session.variables() }))
}
