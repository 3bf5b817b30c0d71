//! `fumehood cancel`.

use std::process::ExitCode;

use clap::Args;
use fumehood_engine::ids::ExecutionId;

use super::super::show::write_out;
use super::super::table::word;
use super::{Remote, execution_id, write_json};

#[derive(Debug, Args)]
pub(in crate::cli) struct CancelArgs {
    /// Which; those that have ended stay as they are
    #[arg(required = true, value_name = "EXECUTION", value_parser = execution_id)]
    executions: Vec<ExecutionId>,
    /// Print what became of them as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

pub(in crate::cli) fn main(args: &CancelArgs) -> anyhow::Result<ExitCode> {
    args.remote.work(async |client| {
        let mut ended = Vec::new();
        for id in &args.executions {
            let execution = client.cancel(id).await?;
            if !args.json {
                write_out(&format!("{id} {}\n", word(&execution.status)))?;
            }
            ended.push(execution);
        }
        if args.json { write_json(&ended) } else { Ok(()) }
    })
}
