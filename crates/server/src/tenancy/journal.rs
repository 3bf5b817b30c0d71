//! The audit log on its way to the database: entries are noted at once, and written behind in batches, in order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fumehood_engine::clock::Clock;
use fumehood_engine::ids::TenantId;
use parking_lot::Mutex;

use super::now_ms;
use crate::http::Principal;
use crate::store::{AuditEntry, Store, StoreError};

/// Entries that wait for a database that is away; those beyond are lost, and that is noted.
const MOST_WAITING: usize = 100_000;
/// Entries written at a time.
const BATCH: usize = 64;
/// Refused requests of a tenant that are noted, in each [`MINUTE`]; those beyond are only counted.
const REFUSALS: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);
/// Whose refusals are counted apart; those of further ones are counted together.
const MOST_COUNTED: usize = 1000;

/// Something that somebody did, or that happened.
#[derive(Debug, Clone)]
pub(crate) struct Deed<'a> {
    action: &'static str,
    object: &'a str,
    outcome: &'a str,
    policy: Option<&'a str>,
    code_hash: Option<String>,
    code: Option<&'a str>,
    detail: Option<&'a str>,
}

impl<'a> Deed<'a> {
    /// `action` (for example `template.created`) was done with `object`.
    pub(crate) fn new(action: &'static str, object: &'a str) -> Self {
        Self { action, object, outcome: "done", policy: None, code_hash: None, code: None, detail: None }
    }

    /// What came of it; `done` unless told.
    pub(crate) fn outcome(self, outcome: &'a str) -> Self {
        Self { outcome, ..self }
    }

    /// The policy in force.
    pub(crate) fn policy(self, policy: &'a str) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// The code by its hash, and itself where its tenant keeps it.
    pub(crate) fn code(self, sha256: String, code: Option<&'a str>) -> Self {
        Self { code_hash: Some(sha256), code, ..self }
    }

    /// More about it.
    pub(crate) fn detail(self, detail: &'a str) -> Self {
        Self { detail: Some(detail), ..self }
    }
}

/// Takes entries and writes them behind.
pub(crate) struct Journal {
    store: Store,
    clock: Arc<dyn Clock>,
    waiting: Mutex<Waiting>,
    refusals: Mutex<HashMap<TenantId, Refusals>>,
    /// One writes at a time, so that the order stays.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<AuditEntry>,
    /// How many more there were.
    lost: u64,
}

struct Refusals {
    since: Instant,
    noted: u32,
    more: u64,
}

impl Journal {
    pub(crate) fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        let (waiting, refusals, writing) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { store, clock, waiting, refusals, writing }
    }

    /// Notes what `who` did.
    pub(crate) fn note(&self, who: &Principal, deed: Deed<'_>) {
        self.enter(who.tenant.clone(), who.key_id().map(str::to_owned), Some(who.request_id.clone()), deed);
    }

    /// Notes what happened to something of this tenant's without a request.
    pub(crate) fn note_of(&self, tenant: &TenantId, deed: Deed<'_>) {
        self.enter(tenant.clone(), None, None, deed);
    }

    /// Notes that a request was refused, unless very many are.
    pub(crate) fn note_refusal(&self, tenant: &TenantId, key: Option<&str>, request_id: &str, deed: Deed<'_>) {
        let more = {
            let mut refusals = self.refusals.lock();
            if refusals.len() >= MOST_COUNTED && !refusals.contains_key(tenant) {
                refusals.retain(|_, refusals| refusals.since.elapsed() < MINUTE);
            }
            let fresh = || Refusals { since: Instant::now(), noted: 0, more: 0 };
            let counted = refusals.entry(tenant.clone()).or_insert_with(fresh);
            let more = if counted.since.elapsed() >= MINUTE { std::mem::replace(counted, fresh()).more } else { 0 };
            if counted.noted >= REFUSALS {
                counted.more += 1;
                return;
            }
            counted.noted += 1;
            more
        };
        let untold = format!("{more} more were refused in the minute before this");
        let deed = if more > 0 { deed.detail(&untold) } else { deed };
        self.enter(tenant.clone(), key.map(str::to_owned), Some(request_id.to_owned()), deed);
    }

    fn enter(&self, tenant: TenantId, key: Option<String>, request_id: Option<String>, deed: Deed<'_>) {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let entry = AuditEntry {
            id: 0,
            at_ms: now_ms(&*self.clock),
            tenant,
            key,
            request_id,
            action: deed.action.to_owned(),
            object: deed.object.to_owned(),
            outcome: deed.outcome.to_owned(),
            policy: owned(deed.policy),
            code_hash: deed.code_hash,
            code: owned(deed.code),
            detail: owned(deed.detail),
        };
        let mut waiting = self.waiting.lock();
        if waiting.entries.len() >= MOST_WAITING {
            waiting.lost += 1;
            return;
        }
        waiting.entries.push_back(entry);
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// When the database does not take it; what it did not take waits on.
    pub(crate) async fn write(&self) -> Result<(), StoreError> {
        let _alone = self.writing.lock().await;
        loop {
            let batch: Vec<_> = self.waiting.lock().entries.iter().take(BATCH).cloned().collect();
            if batch.is_empty() {
                break;
            }
            self.store.audit().append(&batch).await?;
            self.waiting.lock().entries.drain(..batch.len());
        }
        let lost = std::mem::take(&mut self.waiting.lock().lost);
        if lost > 0 {
            tracing::error!(lost, "entries of the audit log were lost while the database was away");
            let lost = lost.to_string();
            self.note_of(&TenantId::default(), Deed::new("audit.lost", &lost).outcome("lost"));
        }
        Ok(())
    }
}
