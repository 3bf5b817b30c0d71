//! Work on the database of a server, from its own machine.

use std::process::ExitCode;

use anyhow::Context;
use fumehood_engine::clock::{Clock, SystemClock, stamp_of};
use fumehood_engine::ids::TenantId;
use fumehood_server::store::{AuditEntry, Key, Scope, Store, Token};

use crate::config::Config;
use crate::node::data_dir;

/// Whoever has the database has all rights.
pub(crate) struct Operator {
    pub(crate) store: Store,
}

impl Operator {
    /// Opens the database and does something with it.
    ///
    /// # Errors
    /// When it cannot be opened, and what `work` fails with.
    pub(crate) fn work(
        config: &Config,
        work: impl AsyncFnOnce(Self) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let database = config.storage.database(&data_dir(config)?);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        runtime.block_on(async {
            let store = Store::open(&database).await.context("storage.url")?;
            let done = work(Self { store: store.clone() }).await;
            store.database().close().await;
            done
        })
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        now_ms()
    }

    /// Adds to the audit log what was done here.
    ///
    /// # Errors
    /// When the database is away.
    pub(crate) async fn note(&self, tenant: &TenantId, action: &str, object: &str, detail: &str) -> anyhow::Result<()> {
        let detail = format!("on the command line of the server's machine. {detail}").trim().to_owned();
        let entry = AuditEntry {
            id: 0,
            at_ms: now_ms(),
            tenant: tenant.clone(),
            key: None,
            request_id: None,
            action: action.to_owned(),
            object: object.to_owned(),
            outcome: "done".to_owned(),
            policy: None,
            code_hash: None,
            code: None,
            detail: Some(detail),
        };
        Ok(self.store.audit().append(&[entry]).await?)
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    i64::try_from(SystemClock.now().unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970 as RFC 3339 UTC.
pub(crate) fn stamp(ms: i64) -> String {
    stamp_of(ms.div_euclid(1000), 0)
}

/// The first key of a database that never had one: for administrators of the tenant `default`.
///
/// # Errors
/// When the database is away.
pub(crate) async fn first_key(store: &Store) -> anyhow::Result<Option<Token>> {
    if store.keys().any().await? {
        return Ok(None);
    }
    let scopes = [Scope::Admin].into_iter().collect();
    let (token, key) = Key::issue(TenantId::default(), "first start".to_owned(), scopes, None, now_ms())?;
    store.keys().add(&key).await?;
    let operator = Operator { store: store.clone() };
    operator.note(&TenantId::default(), "key.created", key.id.as_str(), "At the first start").await?;
    Ok(Some(token))
}
