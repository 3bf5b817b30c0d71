//! `fumehood ps`: executions that run and wait, and sessions.

use std::process::ExitCode;

use clap::Args;
use fumehood_engine::execution::Execution;
use fumehood_engine::session::SessionInfo;
use serde_json::json;

use super::super::show::write_out;
use super::super::table::{ago, duration, table, word};
use super::{Remote, write_json};
use crate::client::Client;

#[derive(Debug, Args)]
pub(in crate::cli) struct PsArgs {
    /// Those that ended too, as far as the server keeps them; of executions the newest
    #[arg(short, long)]
    all: bool,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

pub(in crate::cli) fn main(args: &PsArgs) -> anyhow::Result<ExitCode> {
    args.remote.work(async |client| {
        let executions = if args.all {
            client.executions(&[("limit", "100")]).await?.executions
        } else {
            unfinished(&client).await?
        };
        let mut sessions = client.sessions().await?.sessions;
        sessions.retain(|session| args.all || !session.state.is_final());
        if args.json {
            return write_json(&json!({"executions": executions, "sessions": sessions}));
        }
        let mut text = String::new();
        if executions.is_empty() {
            text.push_str("no execution runs or waits\n");
        } else {
            text.push_str(&execution_table(&executions));
        }
        if !sessions.is_empty() {
            text.push('\n');
            text.push_str(&session_table(&sessions));
        }
        write_out(&text)
    })
}

async fn unfinished(client: &Client) -> anyhow::Result<Vec<Execution>> {
    let mut executions = Vec::new();
    // Those that run first.
    for status in ["running", "queued"] {
        executions.extend(client.executions(&[("status", status), ("limit", "1000")]).await?.executions);
    }
    Ok(executions)
}

fn execution_table(executions: &[Execution]) -> String {
    let rows: Vec<_> = executions
        .iter()
        .map(|execution| {
            [
                execution.id.to_string(),
                word(&execution.status),
                execution.outcome.map_or("-", |outcome| outcome.as_str()).to_owned(),
                execution.session_id.as_ref().map_or("-".to_owned(), ToString::to_string),
                ago(&execution.created_at),
            ]
        })
        .collect();
    table(["EXECUTION", "STATUS", "OUTCOME", "SESSION", "AGE"], &rows)
}

pub(super) fn session_table(sessions: &[SessionInfo]) -> String {
    let rows: Vec<_> = sessions
        .iter()
        .map(|session| {
            [
                session.id.to_string(),
                word(&session.state),
                session.queued.to_string(),
                session.executions.to_string(),
                ago(&session.created_at),
                ago(&session.last_used_at),
                duration(session.idle_timeout_s),
                session.reason.clone().unwrap_or_default(),
            ]
        })
        .collect();
    table(["SESSION", "STATE", "WAITING", "EXECUTIONS", "AGE", "LAST USED", "IDLE TIMEOUT", "REASON"], &rows)
}
