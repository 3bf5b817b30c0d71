//! The description of the interface.

use fumehood_engine::Stream;
use fumehood_engine::execution::Execution;
use fumehood_engine::session::SessionState;
use fumehood_engine::spec::ExecutionRequest;
use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoResponses, Modify, OpenApi, ToSchema};

use crate::http::error::ErrorBody;
use crate::http::{
    self, audit, executions, keys, ops, queue, session_files, sessions, socket, tablemind, templates, tenants, usage,
};
use crate::store::Scope;

/// One event of an execution; as server-sent event, `data` holds this whole object.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventObject {
    /// Counts from 1 without gaps.
    seq: u64,
    /// What happened.
    #[serde(rename = "type")]
    kind: EventKind,
    /// `started`: `{id, at}`; `stdout` and `stderr`: `{text}`; `display`: an Output; `warning`: a Notice; `result`: an Execution.
    #[schema(value_type = Object)]
    data: Value,
}

/// What happened. `started` comes first unless the code never ran, `result` last.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "described only; engine::event::EventBody is what is sent")]
pub(crate) enum EventKind {
    /// The user's code is about to run.
    Started,
    /// Text on standard output.
    Stdout,
    /// Text on standard error.
    Stderr,
    /// Something shown besides text.
    Display,
    /// Something to know.
    Warning,
    /// The end.
    Result,
}

/// Answers of any route that are no success.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "described only; http::error::ApiError is what is sent")]
pub(crate) enum Refusals {
    /// A field or parameter is wrong (`invalid_argument`); `field` names it.
    #[response(status = 400)]
    Invalid(ErrorBody),
    /// An API key is needed (`unauthorized`).
    #[response(status = 401)]
    Unauthorized(ErrorBody),
    /// The key lacks the scope that the route needs, which the message names; or without a key another machine asks (`forbidden`).
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// There is no such thing, or no longer (`not_found`).
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// An error of this server (`internal`).
    #[response(status = 500)]
    Internal(ErrorBody),
    /// The database is away (`storage_unavailable`), or the server is shutting down (`unavailable`); `Retry-After` says when to come again.
    #[response(status = 503)]
    Unavailable(ErrorBody),
}

/// Further answers of routes that run code.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "described only; http::error::ApiError is what is sent")]
pub(crate) enum RunRefusals {
    /// No form that `Accept` asks for is offered (`not_acceptable`).
    #[response(status = 406)]
    NotAcceptable(ErrorBody),
    /// The body stopped arriving (`request_timeout`).
    #[response(status = 408)]
    RequestTimeout(ErrorBody),
    /// The idempotency key was used with another body (`conflict`).
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// The body is too large (`payload_too_large`).
    #[response(status = 413)]
    TooLarge(ErrorBody),
    /// The body is not said to be JSON (`unsupported_media_type`).
    #[response(status = 415)]
    NotJson(ErrorBody),
    /// The queue is full (`too_many_requests`), or a quota of the tenant is used up (`quota_exceeded`); `Retry-After` says when to come again.
    #[response(status = 429)]
    Busy(ErrorBody),
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Fumehood",
        description = "Runs untrusted code behind glass. Unknown fields are refused by name; times are RFC 3339 UTC.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        executions::create,
        executions::list,
        executions::read,
        executions::events,
        executions::output,
        executions::stdin,
        executions::cancel,
        executions::delete,
        http::artifact,
        sessions::create,
        sessions::list,
        sessions::read,
        sessions::delete,
        sessions::execute,
        sessions::interrupt,
        sessions::reset,
        sessions::pause,
        sessions::resume,
        sessions::processes,
        sessions::extend,
        sessions::variables,
        socket::open,
        session_files::list,
        session_files::read,
        session_files::write,
        session_files::remove,
        session_files::upload,
        session_files::archive,
        templates::create,
        templates::list,
        templates::read,
        templates::replace,
        templates::remove,
        templates::schema,
        tenants::list,
        tenants::create,
        tenants::read,
        tenants::update,
        tenants::delete,
        keys::list,
        keys::create,
        keys::read,
        keys::revoke,
        keys::rotate,
        usage::read,
        audit::list,
        tablemind::exec,
        tablemind::exec_v1,
        tablemind::reset,
        tablemind::reset_v1,
        tablemind::pool,
        queue::list,
        queue::dead,
        queue::retry,
        ops::pool,
        ops::health,
        ops::ready,
        ops::metrics,
        ops::openapi,
    ),
    components(schemas(
        ExecutionRequest,
        Execution,
        EventObject,
        ErrorBody,
        SessionState,
        Scope,
        socket::Ask,
        Stream,
        tablemind::ExecResult
    )),
    modifiers(&Keys),
    security(("bearer" = []), ("api_key" = [])),
    tags(
        (name = "executions", description = "Run code and read what became of it"),
        (name = "sessions", description = "Interpreters that keep their variables, and their files"),
        (name = "templates", description = "What code runs in, under a name, in versions"),
        (name = "tenants", description = "API keys, quotas and usage, the audit log"),
        (name = "tablemind", description = "The interface of TableMind's sandbox"),
        (name = "operations", description = "Health, readiness, metrics, this description"),
    ),
)]
struct Description;

struct Keys;

impl Modify for Keys {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        components
            .add_security_scheme("api_key", SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key"))));
    }
}

/// The description as JSON; the same for the same version.
#[must_use]
pub fn openapi_json() -> String {
    let mut text = Description::openapi().to_pretty_json().expect("a description is plain JSON");
    text.push('\n');
    text
}
