//! `fumehood run`: one program in a fresh sandbox, without a server.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use fumehood_engine::event::EventBody;
use fumehood_engine::execution::Execution;
use fumehood_engine::image::DEFAULT_IMAGE;
use fumehood_engine::{Engine, Ticket};
use futures::StreamExt;

use super::Common;
use super::program::ProgramArgs;
use super::show::{EXIT_CODES, Figures, exit_code, explain, note, show, write_out};
use crate::landing::{Landing, named};
use crate::node::with_engine;

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct RunArgs {
    #[command(flatten)]
    program: ProgramArgs,
    /// Image to run on
    #[arg(long, value_name = "NAME", default_value = DEFAULT_IMAGE)]
    image: String,
    #[command(flatten)]
    common: Common,
}

pub(super) fn main(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let config = args.common.load(None)?;
    let spec = args.program.request()?.validate(&config.limit_policy())?;
    let figures = args.program.out.as_deref().map(Figures::into).transpose()?;
    let execution = with_engine(&config, &args.image, async |engine| {
        let ticket = engine.submit(spec)?;
        let execution = follow(&engine, &ticket, &args.program, figures).await?;
        if let Some(folder) = &args.program.out {
            save(&engine, &execution, &Landing::open(folder)?)?;
        }
        Ok(execution)
    })?;
    if args.program.json {
        write_out(&(serde_json::to_string_pretty(&*execution)? + "\n"))?;
    }
    Ok(ExitCode::from(exit_code(&execution)))
}

/// Shows what happens and waits for the end; Ctrl-C cancels.
async fn follow(
    engine: &Engine,
    ticket: &Ticket,
    args: &ProgramArgs,
    mut figures: Option<Figures>,
) -> anyhow::Result<Arc<Execution>> {
    let mut events = Box::pin(ticket.events.follow(0));
    let mut interrupted = false;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = tokio::signal::ctrl_c(), if !interrupted => {
                interrupted = true;
                // The end comes as an event like any other.
                drop(engine.cancel(&ticket.id));
                continue;
            }
        };
        let Some(event) = event else { bail!("the execution ended without a result") };
        if let (EventBody::Display(output), Some(figures)) = (&event.body, &mut figures) {
            figures.save(output)?;
        }
        match &event.body {
            EventBody::Result(execution) => {
                if !args.json {
                    explain(execution);
                }
                return Ok(Arc::clone(execution));
            }
            body if !args.json => show(body, args.quiet)?,
            _ => {}
        }
    }
}

/// Writes artifacts into a folder.
fn save(engine: &Engine, execution: &Execution, landing: &Landing) -> anyhow::Result<()> {
    for artifact in &execution.artifacts {
        if let Some((mut file, _)) = engine.artifact(&execution.id, &artifact.path) {
            let mut arriving = landing.create(&artifact.path)?;
            io::copy(&mut file, &mut arriving.file).context("cannot write a file of the sandbox")?;
            note(&format!("wrote {}", named(&arriving.keep()?)));
        }
    }
    Ok(())
}
