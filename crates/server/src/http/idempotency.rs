//! `Idempotency-Key`: the same request sent twice runs once.
//!
//! A key lives as long as what it made is kept; the map is bounded besides.

use std::collections::{HashMap, VecDeque};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use sha2::{Digest, Sha256};

use super::auth::Principal;
use super::error::ApiError;

pub(crate) const HEADER: &str = "idempotency-key";

/// Most keys remembered; the oldest goes first.
const MOST: usize = 10_000;

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

/// One request that has a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    key: [u8; 32],
    body: [u8; 32],
}

/// What became of earlier requests that had a key.
#[derive(Debug)]
pub(crate) struct Replays<Id> {
    by_key: HashMap<[u8; 32], ([u8; 32], Id)>,
    order: VecDeque<[u8; 32]>,
}

impl<Id> Default for Replays<Id> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), order: VecDeque::new() }
    }
}

impl<Id> Replays<Id> {
    /// What the same request made before, if it did.
    ///
    /// # Errors
    /// When the key was used with another body.
    pub(crate) fn find(&self, attempt: &Attempt) -> Result<Option<&Id>, ApiError> {
        match self.by_key.get(&attempt.key) {
            None => Ok(None),
            Some((body, id)) if *body == attempt.body => Ok(Some(id)),
            Some(_) => Err(ApiError::conflict(
                "this Idempotency-Key was used with another body; use a fresh key for another request",
            )),
        }
    }

    /// Forgets a key of which nothing is kept.
    pub(crate) fn forget(&mut self, attempt: &Attempt) {
        self.by_key.remove(&attempt.key);
        self.order.retain(|key| *key != attempt.key);
    }

    /// Remembers what a request made.
    pub(crate) fn remember(&mut self, attempt: Attempt, id: Id) {
        self.by_key.insert(attempt.key, (attempt.body, id));
        self.order.push_back(attempt.key);
        while self.order.len() > MOST {
            let Some(oldest) = self.order.pop_front() else { break };
            self.by_key.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use fumehood_engine::ids::ExecutionId;

    use super::*;

    fn attempt(number: u32) -> Attempt {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        Attempt { key, body: [1; 32] }
    }

    #[test]
    fn the_oldest_keys_are_forgotten_beyond_the_bound() {
        let mut replays = Replays::default();
        let id = ExecutionId::parse("exe_1").unwrap();
        for number in 0..=u32::try_from(MOST).unwrap() {
            replays.remember(attempt(number), id.clone());
        }
        assert_eq!((replays.by_key.len(), replays.order.len()), (MOST, MOST));
        assert!(replays.find(&attempt(0)).unwrap().is_none());
        assert!(replays.find(&attempt(1)).unwrap().is_some());
    }
}
