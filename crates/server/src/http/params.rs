//! Parameters in paths, queries and headers, with errors that name them.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use fumehood_engine::ids::{ExecutionId, SessionId};
use fumehood_engine::session::Session;

use super::Shared;
use super::auth::Principal;
use super::error::ApiError;
use crate::ServerState;

/// The `{id}` of a path to an execution of the asker's; what cannot be an id is an unknown one, and so is another tenant's.
pub(crate) struct IdParam(pub(crate) ExecutionId);

impl FromRequestParts<Shared> for IdParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Self, ApiError> {
        let id = named_id(parts, state).await?;
        let id = ExecutionId::parse(&id).ok_or_else(unknown_execution)?;
        state.own_execution(&Principal::of(parts)?, &id).await?;
        Ok(Self(id))
    }
}

/// The `{id}` of a path to a session, likewise.
pub(crate) struct SessionParam(pub(crate) Arc<Session>);

impl FromRequestParts<Shared> for SessionParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Self, ApiError> {
        let id = named_id(parts, state).await?;
        let session = state.own_session(&Principal::of(parts)?, &id);
        session.map(Self).ok_or_else(|| ApiError::not_found("no session of this id is kept here"))
    }
}

impl ServerState {
    /// Refuses an execution that is not the asker's, wherever it is kept.
    ///
    /// # Errors
    /// As if there were none; and when the storage, which would know, is away.
    pub(crate) async fn own_execution(&self, asker: &Principal, id: &ExecutionId) -> Result<(), ApiError> {
        let owner = match self.engine.owner_of(id) {
            Some(owner) => Some(owner),
            None => self.jobs.find(id, None).await?.map(|kept| kept.owner),
        };
        if owner.is_some_and(|owner| owner == asker.tenant) { Ok(()) } else { Err(unknown_execution()) }
    }

    /// The session of this id, if it is the asker's.
    pub(crate) fn own_session(&self, asker: &Principal, id: &str) -> Option<Arc<Session>> {
        let session = SessionId::parse(id).and_then(|id| self.engine.session(&id))?;
        (*session.owner() == asker.tenant).then_some(session)
    }
}

/// The `{id}` of a path in which there may be more.
async fn named_id(parts: &mut Parts, state: &Shared) -> Result<String, ApiError> {
    let path = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
    let Path(pairs) = path.map_err(|error| wrong_path(&error))?;
    Ok(pairs.into_iter().find(|(name, _)| name == "id").map(|(_, id)| id).unwrap_or_default())
}

/// The `{id}` of a path to a key or a tenant.
pub(crate) struct NameParam(pub(crate) String);

impl FromRequestParts<Shared> for NameParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Self, ApiError> {
        named_id(parts, state).await.map(Self)
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
