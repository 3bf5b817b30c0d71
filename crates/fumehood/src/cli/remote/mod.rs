//! Commands that work on a running server, through its HTTP interface.

pub(super) mod cancel;
pub(super) mod cp;
pub(super) mod exec;
pub(super) mod logs;
pub(super) mod ls;
mod place;
pub(super) mod ps;
pub(super) mod session;
pub(super) mod template;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use fumehood_engine::ids::{ExecutionId, SessionId};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::show::write_out;
use super::{Interrupted, Usage};
use crate::client::Client;

/// Name of the hidden argument that brings the key from the environment.
pub(super) const KEY: &str = "server_api_key";

/// Where the server is. Like everything that comes from the environment these two come through a declared tree: the server's settings through
/// `crate::config`, these through clap's `env`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct Remote {
    /// Address of the server
    #[arg(long, value_name = "URL", env = "FUMEHOOD_URL", default_value = "http://127.0.0.1:8080", global = true)]
    server: String,
    /// File with the server's API key; the environment variable FUMEHOOD_API_KEY holds the key itself
    #[arg(long, value_name = "FILE", env = "FUMEHOOD_API_KEY_FILE", global = true)]
    api_key_file: Option<PathBuf>,
    /// Refused on the command line, where everybody could read it.
    #[arg(id = KEY, long = "api-key", env = "FUMEHOOD_API_KEY", hide = true, hide_env_values = true, global = true)]
    api_key: Option<Key>,
}

/// A key; never shown.
#[derive(Clone)]
struct Key(String);

impl From<String> for Key {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Remote {
    fn client(&self) -> anyhow::Result<Client> {
        let key = match &self.api_key_file {
            Some(file) => {
                let key = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
                if key.trim().is_empty() {
                    bail!("{} holds no API key", file.display());
                }
                Some(key)
            }
            None => self.api_key.as_ref().map(|key| key.0.clone()),
        };
        let key = key.as_deref().map(str::trim).filter(|key| !key.is_empty());
        Ok(Client::new(&self.server, key)?)
    }

    /// Does some work with the server; a signal gives it up, with all that is half done.
    fn work(&self, work: impl AsyncFnOnce(Client) -> anyhow::Result<()>) -> anyhow::Result<ExitCode> {
        self.run(async |client| {
            let on = |kind| signal(kind).context("cannot handle signals");
            let (mut hangup, mut terminate) = (on(SignalKind::hangup())?, on(SignalKind::terminate())?);
            tokio::select! {
                done = work(client) => done.map(|()| ExitCode::SUCCESS),
                _ = tokio::signal::ctrl_c() => Err(Interrupted::by_ctrl_c()),
                _ = hangup.recv() => Err(Interrupted(128 + 1).into()),
                _ = terminate.recv() => Err(Interrupted(128 + 15).into()),
            }
        })
    }

    /// The same for work that takes Ctrl-C itself.
    fn run(&self, work: impl AsyncFnOnce(Client) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
        let client = self.client()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(work(client));
        // A read of standard input that nobody waits for any more cannot be called back.
        runtime.shutdown_background();
        done
    }
}

/// A session's id, as clap reads it.
fn session_id(text: &str) -> Result<SessionId, String> {
    SessionId::parse(text).ok_or_else(|| "is no id of a session; `fumehood session ls` lists them".to_owned())
}

/// An execution's id, likewise.
fn execution_id(text: &str) -> Result<ExecutionId, String> {
    ExecutionId::parse(text).ok_or_else(|| "is no id of an execution; `fumehood ps --all` lists them".to_owned())
}

fn write_json(value: &impl Serialize) -> anyhow::Result<()> {
    write_out(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Whole seconds of a flag.
fn whole_seconds(flag: &str, seconds: f64) -> anyhow::Result<u64> {
    // At most a week is accepted by a server; what is beyond the range of the type is so for it too.
    if seconds < 1.0 {
        return Err(Usage::of(format!("{flag}: must be a second or more")));
    }
    Ok(seconds.round() as u64)
}
