//! `fumehood run`: one program in a fresh sandbox, without a server.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::Args;
use fumehood_engine::event::EventBody;
use fumehood_engine::execution::{Execution, Outcome, Output};
use fumehood_engine::image::DEFAULT_IMAGE;
use fumehood_engine::spec::{ExecutionRequest, FileRequest, Language};
use fumehood_engine::{Engine, Ticket};
use futures::StreamExt;

use super::Common;
use crate::node::with_engine;

/// Exit codes besides the program's own.
const HELP: &str = "\
Exit codes: the program's own; 124 when the time ran out, 137 when it was ended for its memory, 128+N when signal N ended it, \
125 for another limit, 126 when a policy forbade it, 130 when cancelled, 70 when Fumehood itself failed.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct RunArgs {
    /// File with the program, or - for standard input
    #[arg(value_name = "SCRIPT", required_unless_present_any = ["code", "command"], conflicts_with = "code")]
    script: Option<String>,
    /// The program itself
    #[arg(short, long, value_name = "CODE")]
    code: Option<String>,
    /// Language: python, javascript, typescript, bash; told from the file's name by default
    #[arg(long, value_name = "NAME")]
    language: Option<String>,
    /// Run this program of the image instead of code (after --)
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<String>,
    /// Print the whole result as JSON instead of streaming
    #[arg(long)]
    json: bool,
    /// Do not print the value of the last expression
    #[arg(short, long)]
    quiet: bool,
    /// Seconds the program may run
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Megabytes of memory
    #[arg(long, value_name = "MB")]
    memory: Option<i64>,
    /// Cores
    #[arg(long, value_name = "CORES")]
    cpu: Option<f64>,
    /// Processes and threads
    #[arg(long, value_name = "N")]
    processes: Option<i64>,
    /// Megabytes of disk
    #[arg(long, value_name = "MB")]
    disk: Option<i64>,
    /// Copy a file into the workspace, under its own name or PATH:NAME; may be repeated
    #[arg(long = "file", value_name = "PATH[:NAME]")]
    files: Vec<String>,
    /// Argument of handler(input): JSON, or @FILE with JSON
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// File for the program's standard input, - for this one's
    #[arg(long, value_name = "FILE")]
    stdin: Option<String>,
    /// Variable whose value is the result
    #[arg(long, value_name = "NAME")]
    result_var: Option<String>,
    /// Environment variable; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Folder for figures and the files the program leaves
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Which files to copy to --out [default: all]
    #[arg(long, value_name = "GLOB", requires = "out")]
    collect: Vec<String>,
    /// Image to run on
    #[arg(long, value_name = "NAME", default_value = DEFAULT_IMAGE)]
    image: String,
    #[command(flatten)]
    common: Common,
}

pub(super) fn main(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let config = args.common.load(None)?;
    let spec = request(args)?.validate(&config.limit_policy())?;
    let execution = with_engine(&config, &args.image, async |engine| {
        let ticket = engine.submit(spec)?;
        let execution = follow(&engine, &ticket, args).await?;
        if let Some(folder) = &args.out {
            save(&engine, &execution, folder)?;
        }
        Ok(execution)
    })?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&*execution)?);
    }
    Ok(ExitCode::from(exit_code(&execution)))
}

fn request(args: &RunArgs) -> anyhow::Result<ExecutionRequest> {
    let code = match (&args.code, args.script.as_deref()) {
        (Some(code), _) => code.clone(),
        (None, Some("-")) => io::read_to_string(io::stdin()).context("cannot read the program from standard input")?,
        (None, Some(path)) => std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?,
        (None, None) => String::new(),
    };
    let mut request = ExecutionRequest::new(code);
    request.language = language(args)?;
    request.argv = (!args.command.is_empty()).then(|| args.command.clone());
    request.timeout_ms = args.timeout.map(|seconds| (seconds * 1000.0).round() as i64);
    request.limits.memory_mb = args.memory;
    request.limits.cpu = args.cpu;
    request.limits.processes = args.processes;
    request.limits.disk_mb = args.disk;
    request.result_var.clone_from(&args.result_var);
    request.input = args.input.as_deref().map(read_json).transpose()?;
    request.stdin = args.stdin.as_deref().map(read_text).transpose()?.unwrap_or_default();
    for variable in &args.env {
        let (name, value) =
            variable.split_once('=').with_context(|| format!("--env {variable}: must be NAME=VALUE"))?;
        request.env.insert(name.to_owned(), value.to_owned());
    }
    for file in &args.files {
        request.files.push(read_file(file)?);
    }
    if args.out.is_some() {
        request.collect = if args.collect.is_empty() { vec!["**".to_owned()] } else { args.collect.clone() };
    }
    Ok(request)
}

fn language(args: &RunArgs) -> anyhow::Result<Language> {
    if !args.command.is_empty() {
        return Ok(Language::Command);
    }
    let extension = args.script.as_deref().and_then(|script| Path::new(script).extension()?.to_str());
    let name = match (args.language.as_deref(), extension) {
        (Some(name), _) => name,
        (None, Some("js" | "mjs" | "cjs")) => "javascript",
        (None, Some("ts" | "mts")) => "typescript",
        (None, Some("sh" | "bash")) => "bash",
        _ => "python",
    };
    Ok(match name {
        "python" => Language::Python,
        "javascript" => Language::Javascript,
        "typescript" => Language::Typescript,
        "bash" => Language::Bash,
        other => bail!("--language {other}: must be python, javascript, typescript or bash"),
    })
}

fn read_text(path: &str) -> anyhow::Result<String> {
    match path {
        "-" => io::read_to_string(io::stdin()).context("cannot read standard input"),
        path => std::fs::read_to_string(path).with_context(|| format!("cannot read {path}")),
    }
}

fn read_json(text: &str) -> anyhow::Result<serde_json::Value> {
    let text = match text.strip_prefix('@') {
        Some(path) => read_text(path)?,
        None => text.to_owned(),
    };
    serde_json::from_str(&text).context("--input is no JSON")
}

fn read_file(argument: &str) -> anyhow::Result<FileRequest> {
    // A file whose own name has a colon wins over the reading PATH:NAME.
    let (path, name) = match argument.rsplit_once(':') {
        Some((path, name)) if !Path::new(argument).exists() => (path, name.to_owned()),
        _ => {
            let name = Path::new(argument).file_name().and_then(|name| name.to_str());
            (argument, name.with_context(|| format!("--file {argument}: has no name; use PATH:NAME"))?.to_owned())
        }
    };
    let content = std::fs::read(path).with_context(|| format!("cannot read {path}"))?;
    Ok(FileRequest { path: name, content: None, content_base64: Some(BASE64.encode(content)) })
}

/// Shows what happens and waits for the end; Ctrl-C cancels.
async fn follow(engine: &Engine, ticket: &Ticket, args: &RunArgs) -> anyhow::Result<Arc<Execution>> {
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
        match event.as_deref().map(|event| &event.body) {
            Some(EventBody::Result(execution)) => {
                if !args.json {
                    explain(execution);
                }
                return Ok(Arc::clone(execution));
            }
            Some(body) if !args.json => show(body, args.quiet)?,
            Some(_) => {}
            None => bail!("the execution ended without a result"),
        }
    }
}

fn show(body: &EventBody, quiet: bool) -> io::Result<()> {
    match body {
        EventBody::Stdout { text } => {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        }
        EventBody::Stderr { text } => io::stderr().write_all(text.as_bytes()),
        EventBody::Display(output) if !quiet => match plain_text(output) {
            Some(text) => writeln!(io::stdout(), "{text}"),
            None => Ok(()),
        },
        EventBody::Warning(notice) => writeln!(io::stderr(), "fumehood: {}", notice.message),
        _ => Ok(()),
    }
}

fn plain_text(output: &Output) -> Option<&str> {
    let figure = output.mime.contains_key("image/png");
    output.mime.get("text/plain").and_then(|text| text.as_str()).filter(|_| !figure)
}

/// Says why it did not end well, unless the program itself has said so (a traceback is on standard error already).
fn explain(execution: &Execution) {
    let Some(error) = &execution.error else { return };
    if error.traceback.is_empty() && execution.outcome != Some(Outcome::Exited) {
        eprintln!("fumehood: {}: {}", error.kind, error.message);
    }
    if let Some(hint) = &error.hint {
        eprintln!("fumehood: hint: {hint}");
    }
}

/// Writes figures and artifacts below `folder`.
fn save(engine: &Engine, execution: &Execution, folder: &Path) -> anyhow::Result<()> {
    let mut written = Vec::new();
    let figures = execution.outputs.iter().filter_map(|output| output.mime.get("image/png")?.as_str());
    for (index, figure) in figures.enumerate() {
        let bytes = BASE64.decode(figure).context("a figure is no base64")?;
        written.push(write(folder, &format!("figure-{}.png", index + 1), &mut &bytes[..])?);
    }
    for artifact in &execution.artifacts {
        if let Some((mut file, _)) = engine.artifact(&execution.id, &artifact.path) {
            written.push(write(folder, &artifact.path, &mut file)?);
        }
    }
    for path in written {
        eprintln!("fumehood: wrote {}", path.display());
    }
    Ok(())
}

/// Writes below `folder`. Names come from the sandbox: whatever is no plain name is refused, and a link in the way is replaced, never
/// followed.
fn write(folder: &Path, name: &str, content: &mut dyn Read) -> anyhow::Result<PathBuf> {
    let relative = Path::new(name);
    if !relative.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
        bail!("{name:?} is no plain file name");
    }
    let path = folder.join(relative);
    let parent = path.parent().unwrap_or(folder);
    std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let mut file =
        tempfile::NamedTempFile::new_in(parent).with_context(|| format!("cannot write below {}", parent.display()))?;
    io::copy(content, &mut file).with_context(|| format!("cannot write {}", path.display()))?;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(permissions)?;
    file.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn exit_code(execution: &Execution) -> u8 {
    match execution.outcome {
        Some(Outcome::Exited | Outcome::Exception) => {
            execution.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
        }
        Some(Outcome::TimedOut) => 124,
        Some(Outcome::OomKilled) => 137,
        Some(Outcome::Signaled) => signal_code(execution).unwrap_or(128),
        Some(Outcome::OutputLimit | Outcome::DiskLimit | Outcome::ProcessLimit) => 125,
        Some(Outcome::Denied) => 126,
        Some(Outcome::Cancelled) => 130,
        Some(Outcome::Lost | Outcome::Infra) | None => 70,
    }
}

/// 128 + N from "ended by signal N".
fn signal_code(execution: &Execution) -> Option<u8> {
    let message = &execution.error.as_ref()?.message;
    let number = message.strip_prefix("ended by signal ")?.split(' ').next()?.parse::<u8>().ok()?;
    128_u8.checked_add(number)
}
