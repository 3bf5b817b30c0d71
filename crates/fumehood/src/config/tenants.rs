//! What tenants are given.

use fumehood_server::store::{Quotas, TenantSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tenants.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Tenants {
    /// Days that entries of the audit log are kept of tenants that say nothing else; 0 for ever.
    pub(crate) audit_keep_days: u64,
    /// What a new tenant is given.
    pub(crate) default: NewTenant,
}

impl Default for Tenants {
    fn default() -> Self {
        Self { audit_keep_days: 90, default: NewTenant::default() }
    }
}

/// What a new tenant is given. Changed later with `fumehood tenant set` or `PUT /v1/tenants/{id}`; the tenant `default`, which is always there, has no quotas until then.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NewTenant {
    /// Sandboxes at once: executions that run or wait outside sessions, and open sessions. Default: no bound.
    pub(crate) max_concurrent: Option<u64>,
    /// Executions that wait for a place or in a session. Default: no bound but `engine.queue_size`.
    pub(crate) max_queued: Option<u64>,
    /// Executions from midnight to midnight, UTC. Default: no bound.
    pub(crate) executions_per_day: Option<u64>,
    /// Processor seconds from midnight to midnight, UTC. Default: no bound.
    pub(crate) cpu_seconds_per_day: Option<u64>,
    /// MiB of results and artifacts kept, and of the disks of open sessions. Default: no bound.
    pub(crate) disk_mb: Option<u64>,
    /// Days that its entries of the audit log are kept; 0 for ever. Default: as `tenants.audit_keep_days`.
    pub(crate) audit_keep_days: Option<u64>,
    /// Whether the audit log keeps its code, not only the hash of it.
    pub(crate) keep_code: bool,
}

impl Tenants {
    /// Days that entries are kept; `None` for ever.
    pub(crate) fn audit_keep_days(&self) -> Option<u64> {
        Some(self.audit_keep_days).filter(|days| *days > 0)
    }

    /// What a new tenant is given.
    pub(crate) fn settings(&self) -> TenantSettings {
        let given = &self.default;
        TenantSettings {
            quotas: Quotas {
                max_concurrent: given.max_concurrent,
                max_queued: given.max_queued,
                executions_per_day: given.executions_per_day,
                cpu_seconds_per_day: given.cpu_seconds_per_day,
                disk_mb: given.disk_mb,
            },
            audit_keep_days: given.audit_keep_days,
            keep_code: given.keep_code,
        }
    }
}
