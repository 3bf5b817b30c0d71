//! Whose key is this? Asked for every request, so answered from memory for a few seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fumehood_engine::clock::Clock;
use parking_lot::Mutex;

use super::now_ms;
use crate::store::{Key, KeyId, Store, StoreError, Token};

/// What was read from the database holds so long; a key that another server revoked opens here until then.
const FRESH: Duration = Duration::from_secs(5);
/// Keys remembered.
const MOST: usize = 4096;
/// The last use of a key is written so often.
const NOTED_EVERY: i64 = 60_000;

/// The keys of the database. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct KeyRing(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<KeyId, Known>>,
    /// Uses not written yet.
    used: Mutex<HashMap<KeyId, i64>>,
}

struct Known {
    key: Arc<Key>,
    read: Instant,
}

impl KeyRing {
    pub(crate) fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { store, clock, known: Mutex::default(), used: Mutex::default() }))
    }

    /// The key that this is, if it is one and valid.
    ///
    /// # Errors
    /// When the database is away.
    pub(crate) async fn find(&self, token: &Token) -> Result<Option<Arc<Key>>, StoreError> {
        let known = self
            .0
            .known
            .lock()
            .get(&token.id)
            .filter(|known| known.read.elapsed() < FRESH)
            .map(|known| Arc::clone(&known.key));
        let key = match known {
            Some(key) => key,
            None => {
                let Some(key) = self.0.store.keys().get(&token.id).await? else { return Ok(None) };
                let key = Arc::new(key);
                // Only after it has proved to be the whole key: ids are no secret, and guesses must not push out others.
                if token.hash().is_among(std::slice::from_ref(&key.hash)) {
                    self.remember(Arc::clone(&key));
                }
                key
            }
        };
        let now = now_ms(&*self.0.clock);
        if !token.hash().is_among(std::slice::from_ref(&key.hash)) || !key.is_valid(now) {
            return Ok(None);
        }
        if key.used_ms.is_none_or(|used| now - used >= NOTED_EVERY) {
            self.0.used.lock().entry(key.id.clone()).or_insert(now);
        }
        Ok(Some(key))
    }

    fn remember(&self, key: Arc<Key>) {
        let mut known = self.0.known.lock();
        if known.len() >= MOST {
            known.retain(|_, known| known.read.elapsed() < FRESH);
        }
        if known.len() < MOST {
            known.insert(key.id.clone(), Known { key, read: Instant::now() });
        }
    }

    /// Something about keys has changed: what is remembered may be wrong.
    pub(crate) fn forget(&self) {
        self.0.known.lock().clear();
    }

    /// Writes the last uses.
    ///
    /// # Errors
    /// When the database is away; they are written another time.
    pub(crate) async fn write(&self) -> Result<(), StoreError> {
        let used: Vec<_> = self.0.used.lock().iter().map(|(id, at)| (id.clone(), *at)).collect();
        for (id, at) in used {
            self.0.store.keys().used(&id, at).await?;
            self.0.used.lock().remove(&id);
            if let Some(known) = self.0.known.lock().get_mut(&id) {
                Arc::make_mut(&mut known.key).used_ms = Some(at);
            }
        }
        Ok(())
    }
}
