//! Jobs: where they wait, and how many.

use std::time::Duration;

use fumehood_server::JobsConfig;
use fumehood_server::queue::QueueConfig;
use fumehood_server::store::StoreError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Secret, Storage};

/// Jobs: executions that were accepted with `mode: async`. They wait in the database, or at `url`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Queue {
    /// A Redis server instead of the database: `redis://` or `rediss://` (TLS) and the rest of a URL, with user and password where there are any.
    pub(crate) url: Option<Secret>,
    /// What its keys there begin with; all that share a queue have the same.
    pub(crate) prefix: String,
    /// Jobs that wait, in all; the next is refused with 429.
    pub(crate) max_waiting: u64,
    /// Jobs of one tenant that wait; the next is refused with 429.
    pub(crate) max_waiting_per_tenant: u64,
    /// Seconds after which a server or worker that has not been heard of is taken for gone. Clocks of those that share a database must agree better than that.
    pub(crate) lease_s: u64,
}

impl Default for Queue {
    fn default() -> Self {
        let jobs = JobsConfig::default();
        Self {
            url: None,
            prefix: "fumehood:".to_owned(),
            max_waiting: jobs.max_waiting,
            max_waiting_per_tenant: jobs.max_waiting_per_tenant,
            lease_s: jobs.lease.as_secs(),
        }
    }
}

impl Queue {
    /// The server's part; `worker` is the name under which this process takes jobs.
    pub(crate) fn jobs(&self, storage: &Storage, worker: String) -> JobsConfig {
        JobsConfig {
            worker,
            lease: Duration::from_secs(self.lease_s),
            max_waiting: self.max_waiting,
            max_waiting_per_tenant: self.max_waiting_per_tenant,
            keep: Duration::from_secs(storage.keep_days.saturating_mul(24 * 3600)),
            keep_executions: storage.keep_executions,
        }
    }

    /// Which queue it is.
    ///
    /// # Errors
    /// When the URL cannot be one.
    pub(crate) fn config(&self) -> Result<QueueConfig, StoreError> {
        self.url.as_ref().map_or(Ok(QueueConfig::Embedded), |url| QueueConfig::redis(url.reveal(), &self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Flags, load_from};

    fn told(variables: &[(&str, &str)]) -> String {
        let base = [("FUMEHOOD_DATA_DIR", "/data")];
        let environment = base.iter().chain(variables).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        load_from(None, environment, &Flags::default()).map_or_else(|problems| problems.to_string(), |_| String::new())
    }

    #[test]
    fn a_queue_and_a_bucket_that_cannot_be_are_refused_by_key_and_without_secrets() {
        for (key, variables) in [
            ("queue.url", vec![("FUMEHOOD_QUEUE__URL", "http://:hush@host")]),
            ("queue.url", vec![("FUMEHOOD_QUEUE__URL", "redis://:hush@host:port")]),
            ("storage.blobs", vec![("FUMEHOOD_STORAGE__BLOBS", "srv/blobs")]),
            (
                "storage.blobs",
                vec![("FUMEHOOD_STORAGE__BLOBS", "s3://bucket"), ("FUMEHOOD_STORAGE__BLOBS_SECRET_KEY", "hush")],
            ),
        ] {
            let told = told(&variables);
            assert!(told.contains(key) && !told.contains("hush"), "{key}: {told}");
        }
        let fine = [
            ("FUMEHOOD_QUEUE__URL", "rediss://user:hush@host:6380/2"),
            ("FUMEHOOD_STORAGE__BLOBS", "s3://bucket/a/b?region=eu-central-1&endpoint=https://minio.example.com"),
            ("FUMEHOOD_STORAGE__BLOBS_ACCESS_KEY", "key"),
            ("FUMEHOOD_STORAGE__BLOBS_SECRET_KEY", "hush"),
        ];
        assert_eq!(told(&fine), "");
        assert_eq!(told(&[("FUMEHOOD_STORAGE__BLOBS", "/srv/blobs")]), "");
    }
}
