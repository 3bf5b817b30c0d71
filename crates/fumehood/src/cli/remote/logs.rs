//! `fumehood logs`: what an execution has printed, and with `--follow` what it prints until its end.

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Args;
use fumehood_engine::event::EventBody;
use fumehood_engine::ids::ExecutionId;

use super::super::show::{explain, show, write_err, write_out};
use super::{Remote, execution_id};
use crate::escape::escaped_lines;

/// What a terminal is told.
const HELP: &str =
    "On a terminal, what would move the cursor or change colours is shown and not done; --raw leaves it as it is.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(in crate::cli) struct LogsArgs {
    /// Which
    #[arg(value_name = "EXECUTION", value_parser = execution_id)]
    execution: ExecutionId,
    /// Go on until the execution ends
    #[arg(short, long)]
    follow: bool,
    /// Only events after this number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
    /// Print the events as JSON, one a line, as they come
    #[arg(long)]
    json: bool,
    /// Print output as it is, also on a terminal
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    remote: Remote,
}

pub(in crate::cli) fn main(args: &LogsArgs) -> anyhow::Result<ExitCode> {
    args.remote.work(async |client| {
        let mut events = client.events(args.execution.clone(), args.after, args.follow);
        while let Some(event) = events.next().await? {
            match event.body {
                _ if args.json => write_out(&(event.line + "\n"))?,
                Some(EventBody::Stdout { text }) => write_out(&shown(&text, args.raw || !io::stdout().is_terminal()))?,
                Some(EventBody::Stderr { text }) => write_err(&shown(&text, args.raw || !io::stderr().is_terminal())),
                Some(EventBody::Result(execution)) => explain(&execution),
                Some(body) => show(&body, false)?,
                None => {}
            }
        }
        Ok(())
    })
}

fn shown(text: &str, raw: bool) -> Cow<'_, str> {
    if raw { Cow::Borrowed(text) } else { escaped_lines(text) }
}
