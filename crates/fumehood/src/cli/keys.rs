//! `fumehood key`: API keys, made and revoked in the database itself, whether a server runs or not. So the first can always be made.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use fumehood_engine::ids::TenantId;
use fumehood_server::store::{Key, KeyId, Scope, Scopes, Store, Token};

use super::Usage;
use super::seconds;
use super::show::{note, write_out};
use super::table::{ago, table};
use crate::config::Config;
use crate::operator::{Operator, stamp};

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Make a key and print it; it is told this once
    Create {
        /// What it is for
        #[arg(default_value = "made on the command line")]
        name: String,
        /// Whose it is
        #[arg(long, value_name = "TENANT", default_value = "default", value_parser = tenant)]
        tenant: TenantId,
        /// What it opens: run, read, admin (which opens the others too), separated by commas. Administrators of the tenant 'default' manage all tenants
        #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "run,read", value_parser = scope)]
        scopes: Vec<Scope>,
        /// How long it is valid: seconds, or with a unit (12h, 30d) [default: for ever]
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        expires: Option<f64>,
    },
    /// List keys
    #[command(visible_alias = "list")]
    Ls {
        /// Only those of this tenant
        #[arg(long, value_name = "TENANT", value_parser = tenant)]
        tenant: Option<TenantId>,
        /// Those that are not valid any more, too
        #[arg(short, long)]
        all: bool,
    },
    /// Revoke keys: they open nothing any more; a running server notices within seconds
    Revoke(Which),
    /// Make a key in place of another: for the same, with another secret
    Rotate {
        /// The old key
        #[arg(value_name = "KEY", value_parser = key_id)]
        key: KeyId,
        /// How long the old one is valid besides: seconds, or with a unit
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = seconds)]
        overlap: f64,
    },
}

#[derive(Debug, Args)]
pub(super) struct Which {
    /// Ids of keys, as `fumehood key ls` lists them
    #[arg(required = true, value_name = "KEY", value_parser = key_id)]
    keys: Vec<KeyId>,
}

/// A tenant's name on the command line.
pub(super) fn tenant(text: &str) -> Result<TenantId, String> {
    let message = "must be 1 to 63 lower-case letters, digits and dashes, and begin with a letter or a digit";
    TenantId::parse(text).ok_or_else(|| message.to_owned())
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| "must be run, read or admin".to_owned())
}

fn key_id(text: &str) -> Result<KeyId, String> {
    // Not repeated in full: it may be the key itself.
    let message = "must be an id as `fumehood key ls` lists them, such as key_01jd...";
    KeyId::parse(text).ok_or_else(|| message.to_owned())
}

pub(super) fn main(config: &Config, command: KeyCommand) -> anyhow::Result<ExitCode> {
    Operator::work(config, async |operator| match command {
        KeyCommand::Create { name, tenant, scopes, expires } => {
            create(&operator, name, tenant, scopes.into_iter().collect(), expires).await
        }
        KeyCommand::Ls { tenant, all } => list(&operator, tenant.as_ref(), all).await,
        KeyCommand::Revoke(Which { keys }) => revoke(&operator, &keys).await,
        KeyCommand::Rotate { key, overlap } => rotate(&operator, &key, overlap).await,
    })
}

async fn create(
    operator: &Operator,
    name: String,
    tenant: TenantId,
    scopes: Scopes,
    expires: Option<f64>,
) -> anyhow::Result<ExitCode> {
    Key::check_name(&name).map_err(|message| Usage::of(format!("the name {message}")))?;
    let store = &operator.store;
    if store.tenants().get(&tenant).await?.is_none() {
        bail!("there is no tenant '{tenant}'; make it with 'fumehood tenant create {tenant}'");
    }
    let (token, key) = Key::issue(tenant, name, scopes, expires.map(milliseconds), operator.now_ms())?;
    store.keys().add(&key).await?;
    let detail = format!("for {}: {} ({})", key.tenant, key.scopes, key.name);
    operator.note(&key.tenant, "key.created", key.id.as_str(), &detail).await?;
    tell(&token, &key)
}

/// The key alone on standard output, for programs; the rest beside it.
fn tell(token: &Token, key: &Key) -> anyhow::Result<ExitCode> {
    let until = key.expires_ms.map_or("for ever".to_owned(), |end| format!("until {}", stamp(end)));
    note(&format!("{} for tenant {}, scopes {}, valid {until}; it is told this once:", key.id, key.tenant, key.scopes));
    write_out(&format!("{}\n", token.reveal()))?;
    Ok(ExitCode::SUCCESS)
}

async fn list(operator: &Operator, tenant: Option<&TenantId>, all: bool) -> anyhow::Result<ExitCode> {
    let now = operator.now_ms();
    let keys = operator.store.keys().list(tenant).await?;
    let rows: Vec<_> = keys
        .iter()
        .filter(|key| all || key.is_valid(now))
        .map(|key| {
            let state = match (key.revoked_ms, key.expires_ms) {
                (Some(_), _) => "revoked".to_owned(),
                (None, Some(end)) if end <= now => "expired".to_owned(),
                (None, Some(end)) => format!("until {}", stamp(end)),
                (None, None) => "for ever".to_owned(),
            };
            [
                key.id.to_string(),
                key.tenant.to_string(),
                key.scopes.to_string(),
                state,
                ago(&stamp(key.created_ms)),
                key.used_ms.map_or("never".to_owned(), |used| ago(&stamp(used))),
                key.name.clone(),
            ]
        })
        .collect();
    write_out(&table(["KEY", "TENANT", "SCOPES", "VALID", "AGE", "LAST USED", "NAME"], &rows))?;
    Ok(ExitCode::SUCCESS)
}

async fn revoke(operator: &Operator, keys: &[KeyId]) -> anyhow::Result<ExitCode> {
    for id in keys {
        let key = found(&operator.store, id).await?;
        if operator.store.keys().revoke(id, operator.now_ms()).await? {
            operator.note(&key.tenant, "key.revoked", id.as_str(), &key.name).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn rotate(operator: &Operator, id: &KeyId, overlap: f64) -> anyhow::Result<ExitCode> {
    let now = operator.now_ms();
    let old = found(&operator.store, id).await?;
    if !old.is_valid(now) {
        bail!("{id} is not valid any more; make a new one with 'fumehood key create'");
    }
    let (token, key) = old.successor(now)?;
    operator.store.keys().add(&key).await?;
    operator.store.keys().expire(id, now.saturating_add(milliseconds(overlap))).await?;
    operator.note(&old.tenant, "key.rotated", id.as_str(), &format!("{} takes its place", key.id)).await?;
    tell(&token, &key)
}

async fn found(store: &Store, id: &KeyId) -> anyhow::Result<Key> {
    store.keys().get(id).await?.with_context(|| format!("there is no key {id}"))
}

#[expect(clippy::cast_possible_truncation, reason = "what is too long is for ever")]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0) as i64
}
