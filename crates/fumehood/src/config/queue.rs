//! Where jobs wait.

use fumehood_server::queue::QueueConfig;
use fumehood_server::store::StoreError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Secret;

/// Where jobs wait. Without a URL in the database.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Queue {
    /// A Redis server instead of the database: `redis://` or `rediss://` (TLS) and the rest of a URL, with user and password where there are any.
    pub(crate) url: Option<Secret>,
    /// What its keys there begin with; all that share a queue have the same.
    pub(crate) prefix: String,
}

impl Default for Queue {
    fn default() -> Self {
        Self { url: None, prefix: "fumehood:".to_owned() }
    }
}

impl Queue {
    /// Which queue it is.
    ///
    /// # Errors
    /// When the URL cannot be one.
    pub(crate) fn config(&self) -> Result<QueueConfig, StoreError> {
        self.url.as_ref().map_or(Ok(QueueConfig::Embedded), |url| QueueConfig::redis(url.reveal(), &self.prefix))
    }
}
