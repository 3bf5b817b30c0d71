//! `Idempotency-Key`: the same request sent twice runs once, also on another server and after a restart ([`crate::store::Idempotency`]).

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use sha2::{Digest, Sha256};

use super::auth::Principal;
use super::error::ApiError;
use crate::store::Attempt;

pub(crate) const HEADER: &str = "idempotency-key";

/// The key of a request, bound to who sent it and to which route.
pub(crate) struct KeyParam(Option<[u8; 32]>);

impl<S: Send + Sync> FromRequestParts<S> for KeyParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(key) = parts.headers.get(HEADER).map(|key| key.as_bytes()) else { return Ok(Self(None)) };
        Self::of(&Principal::of(parts)?, parts.uri.path(), key)
    }
}

impl KeyParam {
    /// No key.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// The key of a request to `place`.
    pub(crate) fn of(owner: &Principal, place: &str, key: &[u8]) -> Result<Self, ApiError> {
        if !(1..=255).contains(&key.len()) || !key.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(ApiError::invalid("Idempotency-Key", "must be 1 to 255 printable ASCII characters"));
        }
        Ok(Self(Some(
            Sha256::new()
                .chain_update(owner.tenant.as_str())
                .chain_update([0])
                .chain_update(place)
                .chain_update([0])
                .chain_update(key)
                .finalize()
                .into(),
        )))
    }

    /// Key and body together; `None` when the client gave no key.
    pub(crate) fn with_body(self, sha256: Option<[u8; 32]>) -> Option<Attempt> {
        Some(Attempt { key: self.0?, body: sha256? })
    }
}
