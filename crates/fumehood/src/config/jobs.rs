//! Under which name a process takes jobs, and how their ends are told.

use std::path::Path;

use anyhow::Context;
use fumehood_server::{WebhookConfig, WebhookSecret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Secret;

/// Ends of jobs, told to `callback_url`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Webhooks {
    /// What deliveries are signed with. Without one it is made at the first delivery and kept in the database; `fumehood queue secret` prints it.
    pub(crate) secret: Option<Secret>,
    /// So often a delivery is tried, with pauses that grow from seconds to an hour.
    pub(crate) max_attempts: u32,
    /// Whether deliveries may go to addresses that are not on the internet: this machine, private networks and the like.
    pub(crate) allow_private: bool,
}

impl Default for Webhooks {
    fn default() -> Self {
        let webhooks = WebhookConfig::default();
        Self { secret: None, max_attempts: webhooks.max_attempts, allow_private: webhooks.allow_private }
    }
}

impl Webhooks {
    /// The server's part.
    pub(crate) fn server(&self) -> WebhookConfig {
        WebhookConfig {
            secret: self.secret.as_ref().map(|secret| WebhookSecret(secret.reveal().to_owned())),
            max_attempts: self.max_attempts,
            allow_private: self.allow_private,
        }
    }
}

/// The name under which a process on this data folder takes jobs: that of the server, and what sets this folder apart from all others.
///
/// # Errors
/// When the folder cannot be read or written.
pub(crate) fn worker_name(worker_id: &str, data_dir: &Path) -> anyhow::Result<String> {
    const LONGEST: usize = 80;
    let file = data_dir.join("worker");
    let suffix = match std::fs::read_to_string(&file) {
        Ok(text) if !text.trim().is_empty() => text.trim().to_owned(),
        Ok(_) | Err(_) => {
            let fresh = format!("{:016x}", fastrand::u64(..));
            std::fs::write(&file, &fresh).with_context(|| format!("cannot write {}", file.display()))?;
            fresh
        }
    };
    let name: String = worker_id.chars().take(LONGEST).filter(char::is_ascii_graphic).collect();
    Ok(format!("{name}.{suffix}"))
}
