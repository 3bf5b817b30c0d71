//! Who may do what, and how much of it: API keys, quotas and usage, the audit log.
//!
//! ```text
//! gate -> KeyRing: whose key is this?      Engine -> Ledger: may this begin? what did it cost?      handler -> Journal: who did what
//!            \____________________________________________|______________________________________________/
//!                                        Writer: to the database, off the path
//! ```
//!
//! Requests see what is in memory. One task writes counters, the audit log and the last use of keys behind, every second, and reads what other servers
//! on the same database have added.

use std::sync::Arc;
use std::time::Duration;

use fumehood_engine::execution::{Execution, Status};
use fumehood_engine::ids::TenantId;
use fumehood_engine::quota::{Accounting, Claim, Held, OverQuota};
use fumehood_engine::session::{SessionInfo, SessionState};
use fumehood_engine::{Engine, clock::Clock};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::store::{Store, StoreError};

mod journal;
mod key_ring;
mod ledger;

pub(crate) use journal::{Deed, Journal};
pub(crate) use key_ring::KeyRing;
pub(crate) use ledger::{Account, Ledger, day_of, midnight_after};

/// Counters and the audit log are written this often.
const TICK: Duration = Duration::from_secs(1);
/// The audit log is looked through for what is too old this often.
const RETENTION: Duration = Duration::from_secs(3600);
/// At the end, the database gets so long to take what is left.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// Milliseconds since 1970.
pub(crate) fn now_ms(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.now().unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970 as RFC 3339 UTC.
pub(crate) fn stamp(ms: i64) -> String {
    let nanoseconds = u32::try_from(ms.rem_euclid(1000)).unwrap_or(0) * 1_000_000;
    fumehood_engine::clock::stamp_of(ms.div_euclid(1000), nanoseconds)
}

/// Keys, books and the audit log of a server.
pub(crate) struct Tenancy {
    pub(crate) keys: KeyRing,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) journal: Arc<Journal>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Ends the writer, also when it is dropped.
    stop: Mutex<Option<DropGuard>>,
}

impl Tenancy {
    /// Begins to write. Must be called on a tokio runtime.
    pub(crate) fn start(store: &Store, engine: &Engine, audit_keep_days: Option<u64>) -> Self {
        let clock = engine.clock();
        let keys = KeyRing::new(store.clone(), Arc::clone(clock));
        let ledger = Arc::new(Ledger::new(store.clone(), Arc::clone(clock)));
        let journal = Arc::new(Journal::new(store.clone(), Arc::clone(clock)));
        engine.keep_books(Arc::new(Books { ledger: Arc::clone(&ledger), journal: Arc::clone(&journal) }));
        let stop = CancellationToken::new();
        let writer = Writer {
            keys: keys.clone(),
            ledger: Arc::clone(&ledger),
            journal: Arc::clone(&journal),
            store: store.clone(),
            clock: Arc::clone(clock),
            audit_keep_days,
        };
        let writer = tokio::spawn(writer.run(stop.clone()));
        Self { keys, ledger, journal, writer: Mutex::new(Some(writer)), stop: Mutex::new(Some(stop.drop_guard())) }
    }

    /// Writes what is left. Nothing must happen any more that is to be written.
    pub(crate) async fn close(&self) {
        drop(self.stop.lock().take());
        let writer = self.writer.lock().take();
        if let Some(writer) = writer
            && tokio::time::timeout(LAST_WRITE, writer).await.is_err()
        {
            tracing::error!("the database did not take the last of the audit log and of the usage counters");
        }
    }
}

/// What the engine tells.
struct Books {
    ledger: Arc<Ledger>,
    journal: Arc<Journal>,
}

impl Accounting for Books {
    fn admit(&self, owner: &TenantId, claim: Claim, held: &dyn Fn(Held) -> u64) -> Result<(), OverQuota> {
        self.ledger.account(owner).admit(claim, self.ledger.now(), held)
    }

    fn undo(&self, owner: &TenantId, claim: Claim) {
        self.ledger.account(owner).undo(claim, self.ledger.now());
    }

    fn execution_ended(&self, owner: &TenantId, execution: &Execution) {
        self.ledger.account(owner).ended(execution, self.ledger.now());
        let outcome = execution.outcome.map_or("unknown", |outcome| outcome.as_str());
        let mut deed = Deed::new("execution.ended", execution.id.as_str()).outcome(outcome);
        if execution.status != Status::Completed
            && let Some(error) = &execution.error
        {
            deed = deed.detail(&error.kind);
        }
        self.journal.note_of(owner, deed);
    }

    fn session_ended(&self, owner: &TenantId, session: &SessionInfo) {
        let outcome = if session.state == SessionState::Lost { "lost" } else { "closed" };
        let mut deed = Deed::new("session.closed", session.id.as_str()).outcome(outcome);
        if let Some(reason) = &session.reason {
            deed = deed.detail(reason);
        }
        self.journal.note_of(owner, deed);
    }
}

/// The task that writes behind.
struct Writer {
    keys: KeyRing,
    ledger: Arc<Ledger>,
    journal: Arc<Journal>,
    store: Store,
    clock: Arc<dyn Clock>,
    audit_keep_days: Option<u64>,
}

impl Writer {
    async fn run(self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut retention = tokio::time::interval(RETENTION);
        // The first is at once, when others have more to do.
        retention.reset_after(TICK);
        let mut failing = false;
        loop {
            let last = tokio::select! {
                biased;
                () = stop.cancelled() => true,
                _ = ticks.tick() => false,
                _ = retention.tick() => {
                    self.tell("old entries of the audit log could not be removed", self.forget_old().await, &mut false);
                    continue;
                }
            };
            let what = "the audit log and the usage counters could not be written; they are kept and tried again";
            self.tell(what, self.write().await, &mut failing);
            if last {
                return;
            }
        }
    }

    /// An outage is told once, not every second.
    fn tell(&self, what: &str, done: Result<(), StoreError>, failing: &mut bool) {
        match done {
            Ok(()) => *failing = false,
            Err(error) if !std::mem::replace(failing, true) => {
                tracing::error!(error = &error as &dyn std::error::Error, "{what}");
            }
            Err(_) => {}
        }
    }

    async fn write(&self) -> Result<(), StoreError> {
        // One that fails does not keep the others from being tried.
        let (journal, ledger, keys) = (self.journal.write().await, self.ledger.write().await, self.keys.write().await);
        journal.and(ledger).and(keys)
    }

    async fn forget_old(&self) -> Result<(), StoreError> {
        for tenant in self.store.tenants().list().await? {
            let days = tenant.settings.audit_keep_days.or(self.audit_keep_days);
            // 0 is for ever, whoever says it.
            let Some(days) = days.filter(|days| *days > 0) else { continue };
            let age = i64::try_from(days).unwrap_or(i64::MAX).saturating_mul(24 * 3600 * 1000);
            self.store.audit().forget(&tenant.name, now_ms(&*self.clock).saturating_sub(age)).await?;
        }
        Ok(())
    }
}
