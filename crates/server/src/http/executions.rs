//! `/v1/executions`: run code, read, follow, list and cancel.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use bytes::Bytes;
use fumehood_engine::execution::{Execution, Status};
use fumehood_engine::ids::{ExecutionId, SessionId};
use fumehood_engine::output::OutputPage;
use fumehood_engine::spec::{AnswerMode, ExecutionRequest};
use fumehood_engine::{ListFilter, Stream};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Shared;
use super::accept::{Form, negotiate};
use super::auth::Principal;
use super::body::JsonBody;
use super::error::{ApiError, ErrorBody};
use super::idempotency::KeyParam;
use super::params::{IdParam, Pairs, unknown_execution};
use super::sessions::flag;
use super::stream;
use super::submit::{Accepted, header_value};
use crate::jobs::JobOptions;
use crate::openapi::{EventObject, Refusals, RunRefusals};

/// A cancellation is waited for so long.
const CANCEL_WAIT: Duration = Duration::from_secs(5);
/// Meanwhile it is looked for in the engine this often.
const CANCEL_LOOK: Duration = Duration::from_millis(100);

/// Runs code in a fresh sandbox.
///
/// `Accept` chooses the answer: `application/json` waits for the end and returns the execution, `text/event-stream` and
/// `application/x-ndjson` stream its events; the last event is always `result` with the whole execution. A client that
/// disconnects does not end the execution.
///
/// With `mode: async` it is a job: answered at once, with status `queued`, and run when its turn comes, by this or another server of the same
/// database, also after a restart. See docs/jobs.md.
#[utoipa::path(
    post,
    path = "/v1/executions",
    tag = "executions",
    request_body = ExecutionRequest,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same body runs once"),
        ("X-Request-ID" = Option<String>, Header, description = "Echoed, and in the log"),
    ),
    responses(
        (status = 200, description = "The execution, or its events", content(
            (Execution = "application/json"), (EventObject = "text/event-stream"), (EventObject = "application/x-ndjson"),
        ), headers(("X-Execution-Id" = String, description = "Id of the execution"))),
        (status = 202, description = "Accepted (`mode: async`)", body = Execution, headers(
            ("X-Execution-Id" = String, description = "Id of the execution"), ("Location" = String, description = "Where to read it"),
        )),
        Refusals,
        RunRefusals,
    ),
)]
pub(crate) async fn create(
    State(state): State<Shared>,
    principal: Principal,
    headers: HeaderMap,
    key: KeyParam,
    body: JsonBody<ExecutionRequest>,
) -> Result<Response, ApiError> {
    let form = negotiate(&headers, &[Form::Json, Form::Sse, Form::Ndjson])?;
    let mode = body.value.mode;
    let options = JobOptions::of(&body.value)?;
    let template = state.templates.find(&principal.tenant, body.value.template.as_deref()).await?;
    let job = (mode == AnswerMode::Async).then(|| ExecutionRequest {
        // What is the newest version now may not be when it runs.
        template: body.value.template.as_ref().map(|_| format!("{}@{}", template.name, template.version)),
        ..body.value.clone()
    });
    let mut spec = body.value.validate_as(&template, &state.config.limits)?;
    spec.owner = principal.tenant.clone();
    let attempt = key.with_body(body.sha256);
    let accepted = match job {
        Some(request) => state.submit_job(&principal, &request, &spec, options, attempt).await?,
        None => state.submit(&principal, spec, attempt).await?,
    };
    answer(&state, &accepted, mode, form).await
}

/// The answer to a request that began an execution.
pub(crate) async fn answer(
    state: &Shared,
    accepted: &Accepted,
    mode: AnswerMode,
    form: Form,
) -> Result<Response, ApiError> {
    let mut headers = accepted.headers();
    if mode == AnswerMode::Async {
        headers.insert(header::LOCATION, header_value(&format!("/v1/executions/{}", accepted.id)));
        if let Some(draft) = &accepted.draft {
            return Ok((StatusCode::ACCEPTED, headers, Json(draft)).into_response());
        }
        let now = state.jobs.find(&accepted.id, Some(&accepted.owner)).await?.ok_or_else(unknown_execution)?;
        return Ok((StatusCode::ACCEPTED, headers, Json(now.execution)).into_response());
    }
    Ok(match form {
        Form::Json => (headers, Json(state.finished(accepted).await?)).into_response(),
        form => stream::respond(state.jobs.told(accepted, 0), form, headers),
    })
}

/// An execution as it is now, output so far included.
#[utoipa::path(
    get,
    path = "/v1/executions/{id}",
    tag = "executions",
    params(("id" = String, Path, description = "Id of the execution")),
    responses((status = 200, description = "The execution", body = Execution), Refusals),
)]
pub(crate) async fn read(
    State(state): State<Shared>,
    principal: Principal,
    IdParam(id): IdParam,
) -> Result<Response, ApiError> {
    let kept = state.jobs.find(&id, Some(&principal.tenant)).await?.ok_or_else(unknown_execution)?;
    Ok(Json(kept.execution).into_response())
}

/// Removes an execution that has ended: its record, its files and its idempotency key.
#[utoipa::path(
    delete,
    path = "/v1/executions/{id}",
    tag = "executions",
    params(("id" = String, Path, description = "Id of the execution")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 409, description = "It has not ended (`conflict`); cancel it first", body = ErrorBody),
        Refusals,
    ),
)]
pub(crate) async fn delete(
    State(state): State<Shared>,
    principal: Principal,
    IdParam(id): IdParam,
) -> Result<StatusCode, ApiError> {
    let kept = state.jobs.find(&id, Some(&principal.tenant)).await?.ok_or_else(unknown_execution)?;
    if !kept.execution.status.is_final() {
        return Err(ApiError::conflict("the execution has not ended; cancel it first"));
    }
    state.jobs.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The events of an execution: those it had, then (unless `follow=false`) those to come.
#[utoipa::path(
    get,
    path = "/v1/executions/{id}/events",
    tag = "executions",
    params(
        ("id" = String, Path, description = "Id of the execution"),
        ("after" = Option<u64>, Query, description = "Only events with a greater number"),
        ("follow" = Option<bool>, Query, description = "`false`: ends with the last event so far"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The same, as browsers send it when they reconnect"),
    ),
    responses((status = 200, description = "Events", content(
        (EventObject = "text/event-stream"), (EventObject = "application/x-ndjson"),
    )), (status = 406, description = "Neither form is asked for", body = ErrorBody), Refusals),
)]
pub(crate) async fn events(
    State(state): State<Shared>,
    principal: Principal,
    IdParam(id): IdParam,
    headers: HeaderMap,
    query: Pairs,
) -> Result<Response, ApiError> {
    let [after, follow] = query.take(["after", "follow"])?;
    let live = flag("follow", follow.as_deref(), true)?;
    let form = negotiate(&headers, &[Form::Sse, Form::Ndjson])?;
    let number = |field: &str, text: &str| {
        text.trim()
            .parse::<u64>()
            .map_err(|_| ApiError::invalid(field, format!("must be the number of an event, got {text:?}")))
    };
    let asked = after.map_or(Ok(0), |text| number("after", &text))?;
    let seen = headers.get("last-event-id").map_or(Ok(0), |id| number("Last-Event-ID", id.to_str().unwrap_or("?")))?;
    let owner = principal.tenant;
    state.jobs.find(&id, Some(&owner)).await?.ok_or_else(unknown_execution)?;
    // A browser that reconnects repeats the address, with the `after` it began with.
    let after = asked.max(seen);
    if live {
        let events = state.jobs.told_of(id, owner, None, after);
        return Ok(stream::respond(events, form, HeaderMap::new()));
    }
    let log = state.jobs.events_so_far(&id, &owner).await?;
    let most = usize::try_from(log.last().saturating_sub(after)).unwrap_or(usize::MAX);
    Ok(stream::respond(log.follow(after).take(most), form, HeaderMap::new()))
}

/// What is kept of an execution's output, page by page; more than the result shows when that was asked for with `output`.
#[utoipa::path(
    get,
    path = "/v1/executions/{id}/output",
    tag = "executions",
    params(
        ("id" = String, Path, description = "Id of the execution"),
        ("stream" = Option<Stream>, Query, description = "`stdout` by default"),
        ("offset" = Option<usize>, Query, description = "First character; 0 by default"),
        ("limit" = Option<usize>, Query, description = "At most so many characters, 1 to 1,000,000; 10,000 by default"),
    ),
    responses((status = 200, description = "The page", body = OutputPage), Refusals),
)]
pub(crate) async fn output(
    State(state): State<Shared>,
    principal: Principal,
    IdParam(id): IdParam,
    query: Pairs,
) -> Result<Json<OutputPage>, ApiError> {
    let [stream, offset, limit] = query.take(["stream", "offset", "limit"])?;
    let stream = match stream.as_deref() {
        None | Some("stdout") => Stream::Stdout,
        Some("stderr") => Stream::Stderr,
        Some(other) => return Err(ApiError::invalid("stream", format!("must be stdout or stderr, got {other:?}"))),
    };
    let number = |field: &str, text: Option<String>, range: std::ops::RangeInclusive<usize>, absent| match text {
        None => Ok(absent),
        Some(text) => text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            ApiError::invalid(field, format!("must be between {} and {}, got {text:?}", range.start(), range.end()))
        }),
    };
    let offset = number("offset", offset, 0..=usize::MAX >> 1, 0)?;
    let limit = number("limit", limit, 1..=1_000_000, 10_000)?;
    if let Some(page) = state.engine.output(&id, stream, offset, limit) {
        return Ok(Json(page));
    }
    let kept = state.jobs.find(&id, Some(&principal.tenant)).await?.ok_or_else(unknown_execution)?;
    let (index, name, shown) = match stream {
        Stream::Stdout => (0, "stdout", &kept.execution.stdout),
        Stream::Stderr => (1, "stderr", &kept.execution.stderr),
    };
    let text = kept.whole.as_ref().map_or(shown, |whole| &whole[index]);
    Ok(Json(OutputPage::of(text, name, offset, limit)))
}

/// A page of executions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecutionPage {
    /// Newest first.
    #[schema(value_type = Vec<Execution>)]
    executions: Vec<std::sync::Arc<Execution>>,
    /// Give it as `cursor` for the next page; `null` at the end.
    #[schema(value_type = Option<String>)]
    next_cursor: Option<ExecutionId>,
}

/// Executions on record, newest first.
#[utoipa::path(
    get,
    path = "/v1/executions",
    tag = "executions",
    params(
        ("status" = Option<Status>, Query, description = "Only those of this status"),
        ("session_id" = Option<String>, Query, description = "Only those of this session"),
        ("limit" = Option<u16>, Query, description = "At most so many, 1 to 1000", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, description = "A page", body = ExecutionPage), Refusals),
)]
pub(crate) async fn list(
    State(state): State<Shared>,
    principal: Principal,
    query: Pairs,
) -> Result<Json<ExecutionPage>, ApiError> {
    let [status, session_id, limit, cursor] = query.take(["status", "session_id", "limit", "cursor"])?;
    let limit = limit.map_or(Some(50), |text| text.parse().ok().filter(|limit| (1..=1000).contains(limit)));
    let filter = ListFilter {
        owner: Some(principal.tenant.clone()),
        status: status.as_deref().map(parse_status).transpose()?,
        limit: limit.ok_or_else(|| ApiError::invalid("limit", "must be between 1 and 1000"))?,
        // What cannot be an id has no executions.
        session: match session_id.map(|text| SessionId::parse(&text)) {
            Some(None) => return Ok(Json(ExecutionPage { executions: Vec::new(), next_cursor: None })),
            Some(some) => some,
            None => None,
        },
        before: cursor
            .map(|text| {
                ExecutionId::parse(&text)
                    .ok_or_else(|| ApiError::invalid("cursor", "must be the next_cursor of a page"))
            })
            .transpose()?,
    };
    let (executions, next_cursor) = state.jobs.page(&filter, Some(&principal.tenant)).await?;
    Ok(Json(ExecutionPage { executions, next_cursor }))
}

fn parse_status(text: &str) -> Result<Status, ApiError> {
    let plain = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text);
    Status::deserialize(plain).map_err(|error| ApiError::invalid("status", format!("is wrong: {error}")))
}

/// Body of `POST /v1/executions/{id}/stdin`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StdinPiece {
    /// Text; a line ends with `\n`.
    #[serde(default)]
    data: String,
    /// Bytes instead, in base64.
    #[serde(default)]
    data_base64: Option<String>,
    /// Nothing comes after it: reads give end of file.
    #[serde(default)]
    eof: bool,
}

impl StdinPiece {
    pub(crate) fn new(data: String, data_base64: Option<String>, eof: bool) -> Self {
        Self { data, data_base64, eof }
    }

    /// The bytes, and whether they are the last.
    pub(crate) fn validate(self) -> Result<(Bytes, bool), ApiError> {
        let bytes = match self.data_base64 {
            None => Bytes::from(self.data),
            Some(_) if !self.data.is_empty() => {
                return Err(ApiError::invalid("data_base64", "cannot be given together with data"));
            }
            Some(text) => base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|error| ApiError::invalid("data_base64", format!("is not base64: {error}")))?
                .into(),
        };
        Ok((bytes, self.eof))
    }
}

/// Gives an execution that was made with `stdin_open` more standard input.
#[utoipa::path(
    post,
    path = "/v1/executions/{id}/stdin",
    tag = "executions",
    request_body = StdinPiece,
    params(("id" = String, Path, description = "Id of the execution")),
    responses(
        (status = 202, description = "It is taken, as a whole"),
        (status = 409, description = "Standard input is closed, or the execution has not begun here (`conflict`)", body = ErrorBody),
        (status = 429, description = "The program does not read what it was given before (`too_many_requests`)", body = ErrorBody),
        Refusals,
    ),
)]
pub(crate) async fn stdin(
    State(state): State<Shared>,
    IdParam(id): IdParam,
    body: JsonBody<StdinPiece>,
) -> Result<StatusCode, ApiError> {
    let (piece, last) = body.value.validate()?;
    match state.engine.give_input(&id, piece, last) {
        Some(given) => given?,
        None if state.jobs.elsewhere(&id).await? => {
            return Err(ApiError::conflict(
                "the execution has not begun on this server; its standard input opens when it runs",
            ));
        }
        None => return Err(unknown_execution()),
    }
    Ok(StatusCode::ACCEPTED)
}

/// Ends an execution that runs or waits; one that ended stays as it is.
#[utoipa::path(
    post,
    path = "/v1/executions/{id}/cancel",
    tag = "executions",
    params(("id" = String, Path, description = "Id of the execution")),
    responses(
        (status = 200, description = "It ended", body = Execution),
        (status = 202, description = "It is asked to end", body = Execution),
        Refusals,
    ),
)]
pub(crate) async fn cancel(
    State(state): State<Shared>,
    principal: Principal,
    IdParam(id): IdParam,
) -> Result<Response, ApiError> {
    let owner = Some(&principal.tenant);
    tracing::Span::current().record("execution_id", id.as_str());
    let asked = async {
        // In the engine at once, whatever the database does.
        state.jobs.unwanted(&id);
        if state.engine.cancel(&id).is_none() {
            let kept = state.jobs.find(&id, owner).await?.ok_or_else(unknown_execution)?;
            if !kept.execution.status.is_final() {
                state.jobs.cancel(&id).await?;
            }
        }
        loop {
            match tokio::time::timeout(CANCEL_LOOK, state.jobs.ended(&id, owner)).await {
                Ok(ended) => return Ok::<_, ApiError>(ended?),
                // It may just have been begun here.
                Err(_) => drop(state.engine.cancel(&id)),
            }
        }
    };
    match tokio::time::timeout(CANCEL_WAIT, asked).await {
        Ok(Ok(Some(execution))) => Ok(Json(execution).into_response()),
        Ok(Err(error)) => Err(error),
        Ok(Ok(None)) | Err(_) => {
            let kept = state.jobs.find(&id, owner).await?.ok_or_else(unknown_execution)?;
            Ok((StatusCode::ACCEPTED, Json(kept.execution)).into_response())
        }
    }
}
