//! Where everything that outlives the server is kept.

use std::path::Path;

use fumehood_server::store::DatabaseConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Secret;

/// The database. Without a URL it is SQLite, in `fumehood.db` below `data_dir`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Storage {
    /// `sqlite:`, `mysql:` (MariaDB too) or `postgres:` and the rest of a URL, with user and password where there are any.
    pub(crate) url: Option<Secret>,
    /// Connections to it at most.
    pub(crate) connections: u32,
    /// Days that executions are kept on record.
    pub(crate) keep_days: u64,
    /// Executions kept on record; of more the oldest are removed, with their files.
    pub(crate) keep_executions: u64,
}

impl Default for Storage {
    fn default() -> Self {
        Self { url: None, connections: 8, keep_days: 30, keep_executions: 1_000_000 }
    }
}

impl Storage {
    /// How to reach it; the embedded one is in `data_dir`.
    pub(crate) fn database(&self, data_dir: &Path) -> DatabaseConfig {
        let embedded = || DatabaseConfig::sqlite(&data_dir.join("fumehood.db"));
        let given = |url: &Secret| DatabaseConfig { url: url.reveal().to_owned(), connections: self.connections };
        self.url.as_ref().map_or_else(embedded, given)
    }
}
