//! Parameters in paths, queries and headers, with errors that name them.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use fumehood_engine::ids::{ExecutionId, SessionId};
use fumehood_engine::session::Session;

use super::Shared;
use super::error::ApiError;

/// The `{id}` of a path; what cannot be an id is an unknown one.
pub(crate) struct IdParam(pub(crate) ExecutionId);

impl<S: Send + Sync> FromRequestParts<S> for IdParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(id) = Path::<String>::from_request_parts(parts, state).await.map_err(|error| wrong_path(&error))?;
        ExecutionId::parse(&id).map(Self).ok_or_else(unknown_execution)
    }
}

/// The `{id}` of a path to a session, likewise.
pub(crate) struct SessionParam(pub(crate) Arc<Session>);

impl FromRequestParts<Shared> for SessionParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Self, ApiError> {
        // There may be more in the path.
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Path(pairs) = path.map_err(|error| wrong_path(&error))?;
        let id = pairs.iter().find(|(name, _)| name == "id").and_then(|(_, id)| SessionId::parse(id));
        id.and_then(|id| state.engine.session(&id))
            .map(Self)
            .ok_or_else(|| ApiError::not_found("no session of this id is kept here"))
    }
}

/// No execution of this id, or no longer.
pub(crate) fn unknown_execution() -> ApiError {
    ApiError::not_found("no execution of this id is kept here")
}

pub(crate) fn wrong_path(error: &PathRejection) -> ApiError {
    ApiError::invalid("path", format!("is wrong: {}", error.body_text()))
}

/// The pairs of a query, each name known and given once.
pub(crate) struct Pairs(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Pairs {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        query.map(|Query(pairs)| Self(pairs)).map_err(|error| ApiError::invalid("query", error.body_text()))
    }
}

impl Pairs {
    /// The values of the names in `known`, in their order.
    ///
    /// # Errors
    /// A name that is not known, or given twice.
    pub(crate) fn take<const N: usize>(self, known: [&str; N]) -> Result<[Option<String>; N], ApiError> {
        let mut values = [const { None }; N];
        for (name, value) in self.0 {
            let Some(index) = known.iter().position(|known| *known == name) else {
                return Err(ApiError::invalid(
                    name,
                    format!("is no parameter of this route; there are {}", known.join(", ")),
                ));
            };
            if values[index].replace(value).is_some() {
                return Err(ApiError::invalid(name, "is given twice"));
            }
        }
        Ok(values)
    }
}
