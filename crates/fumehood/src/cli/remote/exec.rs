//! `fumehood exec`: code in a session or a fresh sandbox of a server, as if it ran here.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use fumehood_engine::event::EventBody;
use fumehood_engine::execution::Execution;
use fumehood_engine::ids::{ExecutionId, SessionId};
use fumehood_engine::spec::AnswerMode;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::super::Interrupted;
use super::super::program::ProgramArgs;
use super::super::show::{Figures, exit_code, explain, is_figure, note, show, write_out};
use super::{Remote, session_id, write_json};
use crate::client::{Client, ClientError, Events};
use crate::landing::{Landing, named};

const HELP: &str = "\
Ctrl-C interrupts the program: in a session it gets a KeyboardInterrupt and the variables stay, elsewhere it is cancelled. A second Ctrl-C leaves it \
to the server.

Exit codes: the program's own, or
  124    the time ran out
  125    another limit was hit: output, disk or processes
  126    a policy forbade it
  128+N  signal N ended it
  130    cancelled or left (Ctrl-C)
  137    ended for its memory
  141    nobody reads the output any more; the program was interrupted
  70     the server, the sandbox or the connection failed
Nothing was run:
  66     there is no such session, or it has ended
  69     no server answers, or it has no room
  77     the server refuses the key
  1      a file or a field is at fault
  2      the command line is wrong";

/// Ending an execution that nobody sees any more takes no longer than this.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(in crate::cli) struct ExecArgs {
    /// Session to run in; a fresh sandbox without one
    #[arg(short, long, value_name = "SESSION", value_parser = session_id)]
    session: Option<SessionId>,
    #[command(flatten)]
    program: ProgramArgs,
    /// Folder for figures
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    figures: Option<PathBuf>,
    /// Print the id of the execution and leave it to the server
    #[arg(short, long, conflicts_with_all = ["figures", "out"])]
    detach: bool,
    #[command(flatten)]
    remote: Remote,
}

pub(in crate::cli) fn main(args: &ExecArgs) -> anyhow::Result<ExitCode> {
    let mut request = args.program.request()?;
    if args.detach {
        request.mode = AnswerMode::Async;
        return args.remote.work(async |client| {
            let execution = client.run_async(args.session.as_ref(), &request).await?;
            if args.program.json { write_json(&execution) } else { write_out(&format!("{}\n", execution.id)) }
        });
    }
    let folder = args.figures.as_ref().or(args.program.out.as_ref());
    let mut figures = folder.map(|folder| Figures::into(folder)).transpose()?;
    args.remote.run(async |client| {
        // One for all, so that none is missed between two waits.
        let mut ctrl_c = signal(SignalKind::interrupt()).context("cannot handle signals")?;
        let events = tokio::select! {
            events = client.run(args.session.as_ref(), &request) => events?,
            _ = ctrl_c.recv() => return Err(Interrupted::by_ctrl_c()),
        };
        let (execution, interrupted) = follow(&client, args, events, figures.as_mut(), &mut ctrl_c).await?;
        if let Some(folder) = &args.program.out {
            let landing = Landing::open(folder)?;
            tokio::select! {
                saved = save(&client, &execution, &landing) => saved?,
                _ = ctrl_c.recv() => return Err(Interrupted::by_ctrl_c()),
            }
        }
        if args.program.json {
            write_json(&execution)?;
        }
        let heeded = execution.error.as_ref().is_some_and(|error| error.kind == "KeyboardInterrupt");
        // As Python itself ends.
        Ok(if interrupted && heeded {
            ExitCode::from(Interrupted::CODE)
        } else {
            ExitCode::from(exit_code(&execution))
        })
    })
}

/// Shows what happens until the end; whether it was interrupted on the way.
async fn follow(
    client: &Client,
    args: &ExecArgs,
    mut events: Events,
    mut figures: Option<&mut Figures>,
    ctrl_c: &mut Signal,
) -> anyhow::Result<(Execution, bool)> {
    let id = events.id.clone();
    let (json, quiet) = (args.program.json, args.program.quiet);
    let mut waiting = Waiting::begin(!quiet && io::stderr().is_terminal());
    let mut unsaved = 0_usize;
    let mut interrupted = false;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = ctrl_c.recv() => {
                waiting.clear();
                if std::mem::replace(&mut interrupted, true) {
                    note(&left(&id));
                    return Err(Interrupted::by_ctrl_c());
                }
                interrupt(client, args.session.as_ref(), &id, ctrl_c).await;
                waiting.interrupted = true;
                continue;
            }
            () = waiting.tick() => continue,
        };
        let lost = |cause| ClientError::Lost { id: id.clone(), cause: Box::new(cause) };
        let none = || lost(ClientError::Broken { cause: "there was no result".to_owned() });
        let event = event.map_err(lost)?.ok_or_else(none)?;
        let Some(body) = event.body else { continue };
        waiting.clear();
        if let EventBody::Display(output) = &body {
            match &mut figures {
                Some(figures) => figures.save(output)?,
                None => unsaved += usize::from(is_figure(output)),
            }
        }
        match body {
            EventBody::Result(execution) => {
                if !json {
                    explain(&execution);
                    if unsaved > 0 && !quiet {
                        note(&format!("not saved: {unsaved} figure(s); --figures DIR does"));
                    }
                }
                return Ok((Arc::unwrap_or_clone(execution), interrupted));
            }
            body if !json => {
                if let Err(error) = show(&body, quiet) {
                    // A program of this machine would be ended by the same.
                    let interrupted = interrupt(client, args.session.as_ref(), &id, ctrl_c);
                    tokio::time::timeout(FAREWELL, interrupted).await.ok();
                    return Err(error);
                }
                waiting.seen(&body);
            }
            _ => {}
        }
    }
}

fn left(id: &ExecutionId) -> String {
    format!("left; it goes on as {id}, until `fumehood cancel {id}`")
}

/// Ctrl-C, where it belongs: what runs in a session gets a KeyboardInterrupt and keeps its variables; what waits there, and what has a sandbox of its
/// own, is cancelled.
async fn interrupt(client: &Client, session: Option<&SessionId>, id: &ExecutionId, ctrl_c: &mut Signal) {
    let done = async {
        if let Some(session) = session
            // Another one's execution must not be hit.
            && client.session(session).await?.running.as_ref() == Some(id)
        {
            return client.act(session, "interrupt").await.map(drop);
        }
        client.cancel(id).await.map(drop)
    };
    tokio::select! {
        done = done => if let Err(error) = done {
            note(&format!("could not interrupt: {error}"));
        },
        _ = ctrl_c.recv() => {
            note(&left(id));
            // Half an answer is no use to anybody.
            std::process::exit(Interrupted::CODE.into());
        }
    }
}

/// Downloads artifacts into a folder.
async fn save(client: &Client, execution: &Execution, landing: &Landing) -> anyhow::Result<()> {
    for artifact in &execution.artifacts {
        let mut arriving = landing.create(&artifact.path)?;
        let mut answer = client.artifact(&execution.id, &artifact.path).await?;
        while let Some(chunk) = answer.chunk().await.map_err(|error| ClientError::broken(&error))? {
            arriving.file.write_all(&chunk).context("cannot write a file of the sandbox")?;
        }
        note(&format!("wrote {}", named(&arriving.keep()?)));
    }
    Ok(())
}

/// On a terminal, a line that says for how long nothing has been said. Never in the middle of a line of the program's.
struct Waiting {
    shown: bool,
    began: Instant,
    silent_since: Instant,
    in_line: bool,
    started: bool,
    interrupted: bool,
    bar: Option<ProgressBar>,
}

impl Waiting {
    const PATIENCE: Duration = Duration::from_secs(1);
    const TICK: Duration = Duration::from_millis(100);

    fn begin(shown: bool) -> Self {
        let now = Instant::now();
        Self { shown, began: now, silent_since: now, in_line: false, started: false, interrupted: false, bar: None }
    }

    /// Every tick; for ever where nothing is shown.
    async fn tick(&mut self) {
        if !self.shown {
            return std::future::pending().await;
        }
        tokio::time::sleep(Self::TICK).await;
        if self.in_line || self.silent_since.elapsed() < Self::PATIENCE {
            return;
        }
        let began = self.began;
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {msg}");
            ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        let what = if self.started { "running" } else { "waiting for its turn" };
        let leave = if self.interrupted { "; interrupted, Ctrl-C again leaves it to the server" } else { "" };
        bar.set_message(format!("{what}, {} s{leave}", began.elapsed().as_secs()));
        bar.tick();
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn seen(&mut self, body: &EventBody) {
        self.silent_since = Instant::now();
        match body {
            EventBody::Started { .. } => {
                self.started = true;
                self.began = Instant::now();
            }
            EventBody::Stdout { text } | EventBody::Stderr { text } => self.in_line = !text.ends_with('\n'),
            _ => self.in_line = false,
        }
    }
}
