//! What tenants use, and whether they may: counters in memory, added to the database behind.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fumehood_engine::clock::Clock;
use fumehood_engine::execution::{Execution, Status};
use fumehood_engine::ids::TenantId;
use fumehood_engine::quota::{Claim, Held, OverQuota};
use parking_lot::Mutex;
use time::OffsetDateTime;

use crate::store::{Store, StoreError, TenantSettings, Usage};

/// For what may come free at any moment.
const SOON: Duration = Duration::from_secs(1);
const DAY: i64 = 24 * 3600;
const MB: u64 = 1 << 20;

/// Days since 1970, in UTC.
pub(crate) fn day_of(now: OffsetDateTime) -> i64 {
    now.unix_timestamp().div_euclid(DAY)
}

/// The next midnight in UTC.
pub(crate) fn midnight_after(now: OffsetDateTime) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp((day_of(now) + 1) * DAY).unwrap_or(now)
}

/// The accounts of all tenants that asked for anything.
pub(crate) struct Ledger {
    store: Store,
    clock: Arc<dyn Clock>,
    accounts: Mutex<HashMap<TenantId, Arc<Account>>>,
    /// What is written and read again at a time.
    writing: tokio::sync::Mutex<()>,
}

/// What one tenant uses and may use.
pub(crate) struct Account(Mutex<Books>);

#[derive(Default)]
struct Books {
    settings: TenantSettings,
    /// There is no such tenant any more.
    removed: bool,
    /// Executions outside sessions that were accepted and have not ended.
    sandboxes: u64,
    /// Of which day `recorded` is.
    day: i64,
    /// What the database says, other servers' part included.
    recorded: Usage,
    /// By day: not written yet, and being written.
    pending: BTreeMap<i64, Usage>,
    writing: BTreeMap<i64, Usage>,
    /// Bytes of executions on record.
    stored_bytes: u64,
    /// Something was asked for since the database was read.
    asked: bool,
}

impl Books {
    fn of_day(&self, day: i64) -> Usage {
        let recorded = if self.day == day { self.recorded } else { Usage::default() };
        let added = [&self.pending, &self.writing].into_iter().filter_map(|days| days.get(&day));
        added.fold(recorded, |sum, usage| sum.plus(*usage))
    }

    fn add(&mut self, day: i64, more: Usage) {
        let usage = self.pending.entry(day).or_default();
        *usage = usage.plus(more);
    }
}

impl Account {
    fn new(settings: TenantSettings, day: i64, recorded: Usage, stored_bytes: u64) -> Self {
        Self(Mutex::new(Books { settings, day, recorded, stored_bytes, ..Books::default() }))
    }

    /// What the operator decided about it.
    pub(crate) fn settings(&self) -> TenantSettings {
        self.0.lock().settings.clone()
    }

    /// What it used on the day of now.
    pub(crate) fn used_on(&self, day: i64) -> Usage {
        self.0.lock().of_day(day)
    }

    /// Executions outside sessions that were accepted and have not ended.
    pub(crate) fn sandboxes(&self) -> u64 {
        self.0.lock().sandboxes
    }

    /// Bytes that it keeps: those on record or, where these are more, those in memory with the disks of open sessions.
    pub(crate) fn bytes(&self, held: u64) -> u64 {
        self.0.lock().stored_bytes.max(held)
    }

    /// Whether it may begin this; if so it has.
    pub(crate) fn admit(&self, claim: Claim, now: OffsetDateTime, held: &dyn Fn(Held) -> u64) -> Result<(), OverQuota> {
        let quotas = {
            let mut books = self.0.lock();
            books.asked = true;
            books.settings.quotas.clone()
        };
        // Asked before the books are locked: whoever answers may hold locks while it asks here.
        let count = |wanted: bool, what| if wanted { held(what) } else { 0 };
        let sessions = count(quotas.max_concurrent.is_some(), Held::Sessions);
        let waiting = count(quotas.max_queued.is_some(), Held::Waiting);
        let bytes = count(quotas.disk_mb.is_some(), Held::Bytes);

        let day = day_of(now);
        let mut books = self.0.lock();
        let today = books.of_day(day);
        let takes_sandbox = claim != Claim::InSession;
        let is_execution = !matches!(claim, Claim::Session { .. });
        let until = midnight_after(now);
        let daily = |quota, limit, used, unit| OverQuota {
            quota,
            limit,
            used,
            unit,
            remedy: format!("it begins anew at midnight UTC, {}", stamp(until)),
            resets_at: Some(until),
            retry_after: (until - now).try_into().unwrap_or(SOON),
        };
        let present = |quota, limit, used, unit, remedy: &str| OverQuota {
            quota,
            limit,
            used,
            unit,
            remedy: remedy.to_owned(),
            resets_at: None,
            retry_after: SOON,
        };
        if let Some(limit) = quotas.executions_per_day
            && is_execution
            && today.executions >= limit
        {
            return Err(daily("executions_per_day", limit, today.executions, "executions"));
        }
        if let Some(limit) = quotas.cpu_seconds_per_day
            && today.cpu_ms >= limit.saturating_mul(1000)
        {
            return Err(daily("cpu_seconds_per_day", limit, today.cpu_ms / 1000, "processor seconds"));
        }
        if let Some(limit) = quotas.max_concurrent
            && takes_sandbox
            && books.sandboxes + sessions >= limit
        {
            let remedy = "wait until an execution ends, or close a session";
            return Err(present("max_concurrent", limit, books.sandboxes + sessions, "sandboxes", remedy));
        }
        // One may always wait: whether it has to, is seen only when it asks for a place.
        if let Some(limit) = quotas.max_queued.map(|limit| limit.max(1))
            && is_execution
            && waiting >= limit
        {
            let remedy = "wait until those before have begun";
            return Err(present("max_queued", limit, waiting, "waiting executions", remedy));
        }
        if let Some(limit) = quotas.disk_mb {
            let used = books.stored_bytes.max(bytes);
            let wanted = if let Claim::Session { disk_bytes } = claim { disk_bytes } else { 1 };
            if used.saturating_add(wanted) > limit.saturating_mul(MB) {
                let remedy = "close sessions, or wait until older results are no longer kept";
                return Err(present("disk_mb", limit, used.div_ceil(MB), "MiB", remedy));
            }
        }
        if claim == Claim::Execution {
            books.sandboxes += 1;
        }
        if is_execution {
            books.add(day, Usage { executions: 1, ..Usage::default() });
        }
        Ok(())
    }

    /// What was admitted did not begin.
    pub(crate) fn undo(&self, claim: Claim, now: OffsetDateTime) {
        let mut books = self.0.lock();
        if claim == Claim::Execution {
            books.sandboxes = books.sandboxes.saturating_sub(1);
        }
        let day = day_of(now);
        // Written meanwhile: it stays counted.
        if !matches!(claim, Claim::Session { .. })
            && let Some(usage) = books.pending.get_mut(&day)
        {
            usage.executions = usage.executions.saturating_sub(1);
        }
    }

    /// An execution has ended.
    pub(crate) fn ended(&self, execution: &Execution, now: OffsetDateTime) {
        let artifacts: u64 = execution.artifacts.iter().map(|artifact| artifact.size).sum();
        let more = Usage {
            executions: 0,
            failures: u64::from(execution.status != Status::Completed),
            cpu_ms: whole(execution.metrics.cpu_ms),
            wall_ms: whole(execution.metrics.duration_ms),
            result_bytes: (execution.stdout.len() + execution.stderr.len()) as u64 + artifacts,
        };
        let mut books = self.0.lock();
        books.asked = true;
        if execution.session_id.is_none() {
            books.sandboxes = books.sandboxes.saturating_sub(1);
        }
        books.add(day_of(now), more);
    }
}

/// Whole milliseconds, rounded up: what runs costs something.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive and far below 2^52")]
fn whole(milliseconds: f64) -> u64 {
    milliseconds.max(0.0).ceil() as u64
}

fn stamp(time: OffsetDateTime) -> String {
    fumehood_engine::clock::stamp_of(time.unix_timestamp(), 0)
}

impl Ledger {
    pub(crate) fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, accounts: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    pub(crate) fn now(&self) -> OffsetDateTime {
        self.clock.now()
    }

    /// A tenant's account. One that nobody has opened has no quotas until the database is read, which is within a second.
    pub(crate) fn account(&self, tenant: &TenantId) -> Arc<Account> {
        let mut accounts = self.accounts.lock();
        if let Some(account) = accounts.get(tenant) {
            return Arc::clone(account);
        }
        let account = Arc::new(Account(Mutex::new(Books { asked: true, ..Books::default() })));
        accounts.insert(tenant.clone(), Arc::clone(&account));
        account
    }

    /// A tenant's account, read from the database when it is not here; `None` when there is no such tenant.
    ///
    /// # Errors
    /// When it is not here and the database is away.
    pub(crate) async fn open(&self, tenant: &TenantId) -> Result<Option<Arc<Account>>, StoreError> {
        let here = self.accounts.lock().get(tenant).cloned();
        if let Some(account) = here {
            let removed = account.0.lock().removed;
            return Ok((!removed).then_some(account));
        }
        let Some(found) = self.store.tenants().get(tenant).await? else { return Ok(None) };
        let day = day_of(self.clock.now());
        let (recorded, stored) = self.recorded(tenant, day).await?;
        let fresh = Arc::new(Account::new(found.settings, day, recorded, stored));
        let mut accounts = self.accounts.lock();
        Ok(Some(Arc::clone(accounts.entry(tenant.clone()).or_insert(fresh))))
    }

    async fn recorded(&self, tenant: &TenantId, day: i64) -> Result<(Usage, u64), StoreError> {
        let days = self.store.usage().days(tenant, day, day).await?;
        let usage = days.first().map(|(_, usage)| *usage).unwrap_or_default();
        Ok((usage, self.store.usage().stored_bytes(tenant).await?))
    }

    /// Adds to the database what was used, and reads what others added and what the operator changed, for those who asked for something.
    ///
    /// # Errors
    /// When the database is away; what was used is added another time.
    pub(crate) async fn write(&self) -> Result<(), StoreError> {
        let all: Vec<_> =
            self.accounts.lock().iter().map(|(tenant, account)| (tenant.clone(), Arc::clone(account))).collect();
        let mut done = Ok(());
        for (tenant, account) in all {
            let asked = std::mem::take(&mut account.0.lock().asked);
            if asked && let Err(error) = self.settle(&tenant, &account).await {
                account.0.lock().asked = true;
                done = Err(error);
            }
        }
        done
    }

    /// The operator has changed something about a tenant.
    ///
    /// # Errors
    /// When the database is away.
    pub(crate) async fn renew(&self, tenant: &TenantId) -> Result<(), StoreError> {
        let here = self.accounts.lock().get(tenant).cloned();
        match here {
            Some(account) => self.settle(tenant, &account).await,
            None => Ok(()),
        }
    }

    async fn settle(&self, tenant: &TenantId, account: &Account) -> Result<(), StoreError> {
        let _alone = self.writing.lock().await;
        let days = {
            let mut books = account.0.lock();
            books.writing = std::mem::take(&mut books.pending);
            books.writing.clone()
        };
        for (day, usage) in days {
            let added = match usage == Usage::default() {
                true => Ok(()),
                false => self.store.usage().add(tenant, day, usage).await,
            };
            let mut books = account.0.lock();
            if let Err(error) = added {
                for (day, usage) in std::mem::take(&mut books.writing) {
                    books.add(day, usage);
                }
                return Err(error);
            }
            books.writing.remove(&day);
            if books.day == day {
                books.recorded = books.recorded.plus(usage);
            }
        }
        let found = self.store.tenants().get(tenant).await?;
        let day = day_of(self.clock.now());
        let (recorded, stored) = self.recorded(tenant, day).await?;
        let mut books = account.0.lock();
        (books.day, books.recorded, books.stored_bytes) = (day, recorded, stored);
        books.removed = found.is_none();
        books.settings = found.map(|tenant| tenant.settings).unwrap_or_default();
        Ok(())
    }
}
