//! Where everything that outlives the server is kept.

use std::path::Path;

use anyhow::Context;
use fumehood_server::store::{BlobPlace, DatabaseConfig, S3Config, Store, StoreError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Secret;

/// The database, by default SQLite in `fumehood.db` below `data_dir`, and where large content is kept.
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
    /// Where executions with more than 256 KiB of output and results are kept, and files that executions left, for all servers of one database: a bucket,
    /// `s3://BUCKET/PREFIX?region=…&endpoint=…` (`endpoint` for services other than AWS), or the absolute path of a folder that all of them have. Default:
    /// the folder `blobs` below `data_dir`, for executions; files stay in `artifacts` there, of the server that ran them.
    pub(crate) blobs: Option<String>,
    /// Access key for it; without one the machine's role is asked for.
    pub(crate) blobs_access_key: Option<Secret>,
    /// The secret that belongs to it.
    pub(crate) blobs_secret_key: Option<Secret>,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            url: None,
            connections: 8,
            keep_days: 30,
            keep_executions: 1_000_000,
            blobs: None,
            blobs_access_key: None,
            blobs_secret_key: None,
        }
    }
}

impl Storage {
    /// How to reach it; the embedded one is in `data_dir`.
    pub(crate) fn database(&self, data_dir: &Path) -> DatabaseConfig {
        let embedded = || DatabaseConfig::sqlite(&data_dir.join("fumehood.db"));
        let given = |url: &Secret| DatabaseConfig { url: url.reveal().to_owned(), connections: self.connections };
        self.url.as_ref().map_or_else(embedded, given)
    }

    /// Opens all of it; what is embedded is in `data_dir`.
    ///
    /// # Errors
    /// When the database or the blob store cannot be opened; the key is part of it.
    pub(crate) async fn open(&self, data_dir: &Path) -> anyhow::Result<Store> {
        let store = Store::open(&self.database(data_dir)).await.context("storage.url")?;
        let place = self.blobs(data_dir).context("storage.blobs")?;
        store.with_blobs(&place, self.blobs.is_some()).context("storage.blobs")
    }

    /// Where large content is kept; the folder is in `data_dir`.
    ///
    /// # Errors
    /// When `blobs` cannot be read, or one of the two keys is missing.
    pub(crate) fn blobs(&self, data_dir: &Path) -> Result<BlobPlace, StoreError> {
        let keys = match (&self.blobs_access_key, &self.blobs_secret_key) {
            (Some(key), Some(secret)) => Some((key.reveal().to_owned(), secret.reveal().to_owned())),
            (None, None) => None,
            _ => {
                return Err(StoreError::Url(
                    "needs storage.blobs_access_key and storage.blobs_secret_key, or neither".to_owned(),
                ));
            }
        };
        match &self.blobs {
            Some(folder) if folder.starts_with('/') => Ok(BlobPlace::Folder(folder.into())),
            Some(url) => Ok(BlobPlace::S3(S3Config::parse(url, keys)?)),
            None => Ok(BlobPlace::Folder(data_dir.join("blobs"))),
        }
    }
}
