//! What owners use and may use: the engine asks before it begins something and tells what became of it; who keeps the books is injected.

use std::time::Duration;

use time::OffsetDateTime;

use crate::execution::Execution;
use crate::ids::TenantId;
use crate::session::SessionInfo;

/// What an owner wants to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// An execution with a sandbox of its own.
    Execution,
    /// An execution in a session that is open already.
    InSession,
    /// A session.
    Session {
        /// Bytes that its disk is promised.
        disk_bytes: u64,
    },
}

/// What the engine can tell of an owner's holdings at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Open sessions.
    Sessions,
    /// Executions that wait for a place or in a session.
    Waiting,
    /// Bytes of ended executions with their artifacts, and those that the disks of open sessions were promised.
    Bytes,
}

/// An owner has used up what it may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the quota {quota} is used up: {used} of {limit} {unit}; {remedy}")]
pub struct OverQuota {
    /// Name of the quota, for example `executions_per_day`.
    pub quota: &'static str,
    /// How much may be used.
    pub limit: u64,
    /// How much is used.
    pub used: u64,
    /// Of what.
    pub unit: &'static str,
    /// What to do about it.
    pub remedy: String,
    /// When it begins anew, for those that do.
    pub resets_at: Option<OffsetDateTime>,
    /// When to try again.
    pub retry_after: Duration,
}

/// Keeps the books. Called from where executions are accepted and end: must be quick and must not wait.
pub trait Accounting: Send + Sync {
    /// Whether `owner` may begin this; if so it has begun. `held` counts what the engine holds, at some cost.
    ///
    /// # Errors
    /// When a quota is used up; nothing is noted then.
    fn admit(&self, owner: &TenantId, claim: Claim, held: &dyn Fn(Held) -> u64) -> Result<(), OverQuota>;

    /// What was admitted did not begin after all.
    fn undo(&self, owner: &TenantId, claim: Claim);

    /// An execution has ended; nobody knows yet.
    fn execution_ended(&self, owner: &TenantId, execution: &Execution);

    /// A session has ended, with everything in it.
    fn session_ended(&self, owner: &TenantId, session: &SessionInfo);
}
