//! Refusals: a stable code and a sentence for the client, the causes for the log.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fumehood_engine::SubmitError;
use fumehood_engine::clock::stamp_of;
use fumehood_engine::input::InputError;
use fumehood_engine::quota::OverQuota;
use fumehood_engine::session::SessionError;
use fumehood_engine::spec::FieldError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::chain;
use crate::store::{Scope, StoreError};
use crate::templates::TemplateError;

/// Body of every answer that is no success.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What went wrong.
    pub(crate) error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// Stable code: `invalid_argument`, `unauthorized`, `forbidden`, `not_found`, `method_not_allowed`, `not_acceptable`,
    /// `request_timeout`, `conflict`, `upgrade_required`, `gone`, `range_not_satisfiable`, `insufficient_storage`, `payload_too_large`, `unsupported_media_type`, `too_many_requests`, `quota_exceeded`, `internal`,
    /// `unavailable`, `storage_unavailable`.
    #[schema(example = "invalid_argument")]
    pub(crate) code: &'static str,
    /// Sentence for people and models.
    pub(crate) message: String,
    /// Path of the field at fault, if one is.
    #[schema(example = "limits.memory_mb")]
    pub(crate) field: Option<String>,
    /// Id of the request, also in the log and in `X-Request-ID`.
    pub(crate) request_id: String,
    /// With `quota_exceeded`: which quota, how much of it, and when it begins anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quota: Option<QuotaDetail>,
}

/// A quota that is used up.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct QuotaDetail {
    /// Its name, as in the tenant's `quotas`.
    #[schema(example = "executions_per_day")]
    name: &'static str,
    /// How much may be used.
    limit: u64,
    /// How much is used.
    used: u64,
    /// When it begins anew, RFC 3339 UTC; `null` for what comes free when something ends.
    resets_at: Option<String>,
}

/// An answer that is no success. Its body is written by [`finish`], which knows the request's id.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    field: Option<String>,
    retry_after: Option<Duration>,
    quota: Option<Box<QuotaDetail>>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), field: None, retry_after: None, quota: None }
    }

    fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        FieldError::new(field, message).into()
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "an API key is needed: send 'Authorization: Bearer KEY' or 'X-API-Key: KEY'";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub(crate) fn wrong_key() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "the API key is not one of this server's")
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// The key does not open this.
    pub(crate) fn out_of_scope(scope: Scope) -> Self {
        Self::forbidden(format!("the API key lacks the scope '{scope}', which this route needs"))
    }

    pub(crate) fn no_route() -> Self {
        Self::not_found("no such route; GET /openapi.json lists all")
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(crate) fn not_acceptable(offered: &str) -> Self {
        let message = format!("nothing that Accept asks for is offered here; offered: {offered}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message)
    }

    pub(crate) fn body_timeout() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "the request body stopped arriving").at("body")
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    pub(crate) fn bad_range(size: u64) -> Self {
        let message = format!("the range is not within the {size} bytes of the file");
        Self::new(StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable", message).at("Range")
    }

    pub(crate) fn disk_full() -> Self {
        let message = "the session's disk is full (limits.disk_mb); remove files, or open a session with a larger one";
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "insufficient_storage", message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the request body is larger than the {limit} bytes accepted (server.max_body_mb)");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message).at("body")
    }

    pub(crate) fn not_json() -> Self {
        let message = "the body must be JSON and say so: send 'Content-Type: application/json'";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message).at("Content-Type")
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub(crate) fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "gone", message)
    }

    pub(crate) fn too_many(message: impl Into<String>, retry_after: Duration) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// Our fault; the cause goes to the log only.
    pub(crate) fn internal(step: &'static str, cause: &dyn std::fmt::Display) -> Self {
        tracing::error!(step, %cause, "internal error");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "an error of this server; its log says more under the request id",
        )
    }

    pub(crate) fn no_multipart(why: &str) -> Self {
        let message = format!("the body must be multipart/form-data, each part a file: {why}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message).at("Content-Type")
    }

    pub(crate) fn no_websocket(why: &str) -> Self {
        let message = format!("this route is a WebSocket: {why}");
        Self::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message)
    }

    /// What the client is told; `request_id` is that of the request or connection.
    pub(crate) fn into_detail(self, request_id: &str) -> ErrorDetail {
        let Self { code, message, field, quota, .. } = self;
        ErrorDetail { code, message, field, request_id: request_id.to_owned(), quota: quota.map(|quota| *quota) }
    }

    /// Status and code.
    pub(crate) fn kind(&self) -> (StatusCode, &'static str) {
        (self.status, self.code)
    }

    fn method_not_allowed(allowed: Option<&HeaderValue>) -> Self {
        let allowed = allowed.and_then(|allowed| allowed.to_str().ok()).unwrap_or("another method");
        let message = format!("this route does not have that method; allowed: {allowed}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        // The field stands in the sentence too: many clients show only that.
        let message = format!("{} {}", error.field, error.message);
        Self::new(StatusCode::BAD_REQUEST, "invalid_argument", message).at(error.field)
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Refused(field) => field.into(),
            SubmitError::Draining => Self::unavailable("the server is shutting down"),
            SubmitError::Session(error) => error.into(),
            SubmitError::OverQuota(error) => error.into(),
            SubmitError::Busy { retry_after, .. } | SubmitError::TooManySessions { retry_after, .. } => Self {
                retry_after: Some(retry_after),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", error.to_string())
            },
        }
    }
}

impl From<OverQuota> for ApiError {
    fn from(error: OverQuota) -> Self {
        let message = error.to_string();
        let detail = QuotaDetail {
            name: error.quota,
            limit: error.limit,
            used: error.used,
            resets_at: error.resets_at.map(|at| stamp_of(at.unix_timestamp(), 0)),
        };
        Self {
            retry_after: Some(error.retry_after),
            quota: Some(Box::new(detail)),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", message)
        }
    }
}

impl From<TemplateError> for ApiError {
    fn from(error: TemplateError) -> Self {
        match error {
            TemplateError::Field(field) => field.into(),
            TemplateError::Missing(_) => Self::not_found(error.to_string()),
            TemplateError::Conflict(_) => Self::conflict(error.to_string()),
            TemplateError::Store(error) => error.into(),
        }
    }
}

impl From<InputError> for ApiError {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Closed => Self::conflict(error.to_string()),
            InputError::Full { .. } => Self {
                retry_after: Some(Duration::from_secs(1)),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", error.to_string())
            },
        }
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Over { .. } => Self::new(StatusCode::GONE, "gone", format!("{error}; open a new one")),
            SessionError::Busy { .. } => Self::conflict(format!("{error}; leave out wait=false to wait for them")),
            SessionError::Pause(_) => Self::conflict(error.to_string()),
            SessionError::Restart(_) => Self::unavailable(error.to_string()),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(cause) => {
                tracing::warn!(%cause, "the storage is not available");
                let message = "the storage is not available just now; send the request again";
                Self {
                    retry_after: Some(Duration::from_secs(2)),
                    ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage_unavailable", message)
                }
            }
            StoreError::Conflict(_) => Self::conflict("there is one of this name already"),
            error => Self::internal("storage", &chain(&error)),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the body of an answer that is an [`ApiError`], or that axum refused by itself.
pub(crate) fn finish(mut response: Response, request_id: &str) -> Response {
    let error = match response.extensions_mut().remove::<ApiError>() {
        Some(error) => error,
        None if response.status() == StatusCode::METHOD_NOT_ALLOWED => {
            ApiError::method_not_allowed(response.headers().get(header::ALLOW))
        }
        None => return response,
    };
    let headers = response.headers_mut();
    // Told by an inner layer for the empty body.
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if error.status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(after) = error.retry_after {
        // Not a moment before.
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        headers.insert(header::RETRY_AFTER, seconds.max(1).into());
    }
    let detail = ErrorBody { error: error.into_detail(request_id) };
    *response.body_mut() = Body::from(serde_json::to_vec(&detail).unwrap_or_default());
    response
}
