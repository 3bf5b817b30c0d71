//! `fumehood session`.

use std::fmt::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use fumehood_engine::execution::{JsonText, Members};
use fumehood_engine::ids::SessionId;
use fumehood_engine::session::{SessionInfo, SessionState};
use fumehood_engine::spec::SessionRequest;

use super::super::program::{LimitArgs, pair, read_file};
use super::super::show::{note, write_out};
use super::super::table::{ago, duration, table, word};
use super::super::{Incomplete, seconds};
use super::ps::session_table;
use super::{Remote, session_id, whole_seconds, write_json};
use crate::client::{Client, ClientError};
use crate::escape::escaped;

#[derive(Debug, Args)]
pub(in crate::cli) struct SessionArgs {
    #[command(subcommand)]
    command: SessionCommand,
    /// Print the server's answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum SessionCommand {
    /// Open a session and print its id
    New(Box<NewArgs>),
    /// List sessions
    #[command(visible_alias = "ls")]
    List {
        /// Those that ended too, as far as the server keeps them
        #[arg(short, long)]
        all: bool,
    },
    /// Show a session
    Show(One),
    /// End sessions with everything in them
    #[command(visible_alias = "close")]
    Rm {
        /// Which
        #[arg(required = true, value_name = "SESSION", value_parser = session_id)]
        sessions: Vec<SessionId>,
    },
    /// Start a fresh interpreter, after what runs and waits: files stay, variables do not
    Reset(One),
    /// Interrupt what runs, as Ctrl-C would: variables stay
    Interrupt(One),
    /// Have a session live longer, or shorter
    Extend {
        #[command(flatten)]
        one: One,
        /// From now on: seconds, or with a unit (30m, 2h, 1d)
        #[arg(value_name = "TIME", value_parser = seconds)]
        ttl: f64,
    },
    /// Stop the processes of a session where they are
    Pause(One),
    /// Have them go on
    Resume(One),
    /// List the variables after the last execution
    Vars(One),
}

#[derive(Debug, Args)]
struct One {
    /// Which
    #[arg(value_name = "SESSION", value_parser = session_id)]
    session: SessionId,
}

#[derive(Debug, Args)]
struct NewArgs {
    #[command(flatten)]
    limits: LimitArgs,
    /// Template, name or name@version
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Copy a file into the workspace, under its own name or PATH:NAME; may be repeated
    #[arg(long = "file", value_name = "PATH[:NAME]")]
    files: Vec<String>,
    /// Environment variable of its interpreter; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Closed after so long without an execution: seconds, or with a unit (30m)
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    idle_timeout: Option<f64>,
    /// Closed after so long whatever happens: seconds, or with a unit (1d)
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    ttl: Option<f64>,
    /// Something to find it by; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    metadata: Vec<String>,
}

pub(in crate::cli) fn main(args: &SessionArgs) -> anyhow::Result<ExitCode> {
    args.remote.work(async |client| {
        let info = match &args.command {
            SessionCommand::New(new) => {
                let info = client.open_session(&new.request()?).await?;
                return if args.json { write_json(&info) } else { write_out(&format!("{}\n", info.id)) };
            }
            SessionCommand::List { all } => return list(&client, *all, args.json).await,
            SessionCommand::Vars(one) => return variables(&client, &one.session, args.json).await,
            SessionCommand::Rm { sessions } => return remove(&client, sessions, args.json).await,
            SessionCommand::Show(one) => {
                let info = client.session(&one.session).await?;
                return if args.json { write_json(&info) } else { write_out(&describe(&info)) };
            }
            SessionCommand::Reset(one) => client.act(&one.session, "reset").await?,
            SessionCommand::Interrupt(one) => client.act(&one.session, "interrupt").await?,
            SessionCommand::Pause(one) => client.act(&one.session, "pause").await?,
            SessionCommand::Resume(one) => client.act(&one.session, "resume").await?,
            SessionCommand::Extend { one, ttl } => client.extend(&one.session, whole_seconds("TIME", *ttl)?).await?,
        };
        if args.json { write_json(&info) } else { write_out(&line(&info)) }
    })
}

impl NewArgs {
    fn request(&self) -> anyhow::Result<SessionRequest> {
        let seconds = |flag: &str, time: Option<f64>| {
            time.map(|time| i64::try_from(whole_seconds(flag, time)?).map_err(anyhow::Error::from)).transpose()
        };
        let mut metadata = Members::new();
        for text in &self.metadata {
            let (name, value) = pair("--metadata", text)?;
            metadata.insert(name, JsonText::from(value.as_str()));
        }
        Ok(SessionRequest {
            template: self.template.clone(),
            limits: self.limits.request(),
            env: self.env.iter().map(|text| pair("--env", text)).collect::<anyhow::Result<_>>()?,
            files: self.files.iter().map(|file| read_file(file)).collect::<anyhow::Result<_>>()?,
            idle_timeout_s: seconds("--idle-timeout", self.idle_timeout)?,
            ttl_s: seconds("--ttl", self.ttl)?,
            metadata,
            ..SessionRequest::default()
        })
    }
}

async fn list(client: &Client, all: bool, json: bool) -> anyhow::Result<()> {
    let mut page = client.sessions().await?;
    page.sessions.retain(|session| all || !session.state.is_final());
    match () {
        () if json => write_json(&page),
        () if page.sessions.is_empty() => write_out("no session is open\n"),
        () => write_out(&session_table(&page.sessions)),
    }
}

async fn variables(client: &Client, session: &SessionId, json: bool) -> anyhow::Result<()> {
    let variables = client.variables(session).await?;
    if json {
        return write_json(&variables.variables);
    }
    let text = |value: Option<&JsonText>| match value {
        None => "-".to_owned(),
        Some(value) if value.is_null() => "-".to_owned(),
        Some(value) => value.string().unwrap_or_else(|| value.to_string()),
    };
    let row = |(name, about): (&String, &JsonText)| {
        let about = about.members().unwrap_or_default();
        [name.clone(), text(about.get("type")), text(about.get("shape")), text(about.get("repr"))]
    };
    let rows: Vec<_> = variables.variables.iter().map(row).collect();
    if rows.is_empty() {
        return write_out("there are no variables\n");
    }
    write_out(&table(["NAME", "TYPE", "SHAPE", "VALUE"], &rows))
}

/// Ends each, also after one that is unknown.
async fn remove(client: &Client, sessions: &[SessionId], json: bool) -> anyhow::Result<()> {
    let (mut ended, mut failed) = (Vec::new(), None);
    for id in sessions {
        match client.close(id).await {
            Ok(info) if !json => write_out(&line(&info))?,
            Ok(info) => ended.push(info),
            Err(error @ ClientError::Refused { .. }) if sessions.len() > 1 => {
                note(&format!("{id}: {error}"));
                failed = Some(error.exit_code());
            }
            Err(error) => return Err(error.into()),
        }
    }
    if json {
        write_json(&ended)?;
    }
    failed.map_or(Ok(()), |code| Err(Incomplete(code).into()))
}

fn line(info: &SessionInfo) -> String {
    format!("{} {}\n", info.id, word(&info.state))
}

/// Every line a fact, those that are none left out.
fn describe(info: &SessionInfo) -> String {
    let state = match &info.reason {
        Some(reason) => format!("{}: {reason}", word(&info.state)),
        None => word(&info.state),
    };
    let running = info.running.as_ref().map(ToString::to_string);
    let metadata = info.metadata.iter().map(|(name, value)| match value.string() {
        Some(text) => format!("{name}={text}"),
        None => format!("{name}={value}"),
    });
    let metadata = metadata.collect::<Vec<_>>().join(" ");
    let facts = [
        ("session", Some(info.id.to_string())),
        ("state", Some(state)),
        ("running", running),
        ("waiting", Some(info.queued.to_string()).filter(|_| info.queued > 0)),
        ("executions", Some(info.executions.to_string())),
        ("restarts", Some(info.restarts.to_string()).filter(|_| info.restarts > 0)),
        ("template", Some(info.template.clone())),
        ("isolation", Some(info.isolation.effective.clone()).filter(|_| info.state != SessionState::Creating)),
        ("memory", Some(format!("{} MiB", info.memory_mb)).filter(|_| info.tasks > 0)),
        ("given back", info.memory_given_back_mb.map(|given_back| format!("{given_back} MiB"))),
        ("tasks", Some(info.tasks.to_string()).filter(|_| info.tasks > 0)),
        ("idle timeout", Some(duration(info.idle_timeout_s))),
        ("expires", Some(info.expires_at.clone()).filter(|_| !info.state.is_final())),
        ("created", Some(format!("{} ({} ago)", info.created_at, ago(&info.created_at)))),
        ("last used", Some(format!("{} ({} ago)", info.last_used_at, ago(&info.last_used_at)))),
        ("closed", info.closed_at.clone()),
        ("metadata", Some(metadata).filter(|text| !text.is_empty())),
    ];
    let mut text = String::new();
    for (name, fact) in facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))) {
        writeln!(text, "{name:13} {}", escaped(&fact)).unwrap_or_default();
    }
    text
}
