//! `fumehood queue`: jobs that wait, run, or are dead.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use fumehood_engine::ids::ExecutionId;
use fumehood_server::store::Store;

use super::super::Common;
use super::super::show::write_out;
use super::super::table::{ago, table};
use super::{Remote, execution_id, write_json};
use crate::client::JobEntry;
use crate::node::data_dir;

#[derive(Debug, Args)]
pub(in crate::cli) struct QueueArgs {
    #[command(subcommand)]
    command: QueueCommand,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum QueueCommand {
    /// Jobs that run and wait, on every server of the same database
    Ls {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Jobs whose server went away and that may not be begun again
    Dead {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Try dead jobs again, under the same ids
    Retry {
        /// Which
        #[arg(required = true, value_name = "EXECUTION", value_parser = execution_id)]
        executions: Vec<ExecutionId>,
    },
    /// Print what deliveries to callback URLs are signed with; reads the database, not the server
    Secret {
        #[command(flatten)]
        common: Common,
    },
}

pub(in crate::cli) fn main(args: &QueueArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        QueueCommand::Ls { json } => args.remote.work(async |client| show(client.queue(false).await?.jobs, *json)),
        QueueCommand::Dead { json } => args.remote.work(async |client| show(client.queue(true).await?.jobs, *json)),
        QueueCommand::Retry { executions } => args.remote.work(async |client| {
            for id in executions {
                let job = client.retry(id).await?;
                write_out(&format!("{id} {}\n", job.state))?;
            }
            Ok(())
        }),
        QueueCommand::Secret { common } => {
            let config = common.load(None)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let secret = runtime.block_on(async {
                let store = Store::open(&config.storage.database(&data_dir(&config)?)).await?;
                anyhow::Ok(fumehood_server::webhook::secret(&store, &config.server().webhooks).await?)
            })?;
            write_out(&format!("{secret}\n"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn show(jobs: Vec<JobEntry>, json: bool) -> anyhow::Result<()> {
    if json {
        return write_json(&jobs);
    }
    if jobs.is_empty() {
        return write_out("no jobs\n");
    }
    let rows: Vec<_> = jobs
        .into_iter()
        .map(|job| {
            [
                job.execution_id.to_string(),
                job.state,
                job.priority,
                format!("{}/{}", job.attempts, job.max_attempts),
                job.tenant,
                ago(&job.created_at),
                job.worker.or(job.reason).unwrap_or_default(),
            ]
        })
        .collect();
    write_out(&table(["EXECUTION", "STATE", "PRIORITY", "ATTEMPTS", "TENANT", "AGE", "WORKER OR REASON"], &rows))
}
