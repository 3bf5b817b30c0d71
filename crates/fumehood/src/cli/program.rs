//! What to run: flags that `fumehood run` and `fumehood exec` have in common, and the request they make.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::Args;
use fumehood_engine::execution::JsonText;
use fumehood_engine::spec::{ExecutionRequest, FileRequest, Language, LimitsRequest};

use super::{Usage, seconds};

#[derive(Debug, Args)]
pub(super) struct ProgramArgs {
    /// File with the program, or - for standard input, which is also read when no program is given
    #[arg(value_name = "FILE", conflicts_with = "code")]
    script: Option<String>,
    /// The program itself
    #[arg(short, long, value_name = "CODE")]
    code: Option<String>,
    /// Language: python, javascript, typescript, bash; told from the file's name by default
    #[arg(long, value_name = "NAME")]
    language: Option<String>,
    /// Run this program of the image instead of code (after --)
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["code", "script"])]
    command: Vec<String>,
    /// Print the whole result as JSON instead of streaming
    #[arg(long)]
    pub(super) json: bool,
    /// Do not print the value of the last expression
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Time the program may run: seconds, or with a unit (500ms, 2m)
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    timeout: Option<f64>,
    /// Template, name or name@version; without a server one of the built-in ones
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    #[command(flatten)]
    limits: LimitArgs,
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
    pub(super) out: Option<PathBuf>,
    /// Which files to copy to --out [default: all]
    #[arg(long, value_name = "GLOB", requires = "out")]
    collect: Vec<String>,
}

/// Limits of a sandbox.
#[derive(Debug, Args)]
pub(super) struct LimitArgs {
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
}

impl LimitArgs {
    pub(super) fn request(&self) -> LimitsRequest {
        LimitsRequest {
            memory_mb: self.memory,
            cpu: self.cpu,
            processes: self.processes,
            disk_mb: self.disk,
            ..LimitsRequest::default()
        }
    }
}

impl ProgramArgs {
    /// # Errors
    /// When a file cannot be read or a flag makes no sense.
    pub(super) fn request(&self) -> anyhow::Result<ExecutionRequest> {
        let mut request = ExecutionRequest::new(self.source()?);
        request.language = self.language()?;
        request.argv = (!self.command.is_empty()).then(|| self.command.clone());
        request.timeout_ms = self.timeout.map(|seconds| (seconds * 1000.0).round() as i64);
        request.template.clone_from(&self.template);
        request.limits = self.limits.request();
        request.result_var.clone_from(&self.result_var);
        request.input = self.input.as_deref().map(read_json).transpose()?;
        request.stdin = self.stdin.as_deref().map(read_text).transpose()?.unwrap_or_default();
        request.env = self.env.iter().map(|variable| pair("--env", variable)).collect::<anyhow::Result<_>>()?;
        request.files = self.files.iter().map(|file| read_file(file)).collect::<anyhow::Result<_>>()?;
        if self.out.is_some() {
            request.collect = if self.collect.is_empty() { vec!["**".to_owned()] } else { self.collect.clone() };
        }
        Ok(request)
    }

    fn source(&self) -> anyhow::Result<String> {
        let from_stdin = match (&self.code, self.script.as_deref()) {
            (Some(code), _) => return Ok(code.clone()),
            (None, Some(path)) if path != "-" => {
                return std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
            }
            (None, None) if !self.command.is_empty() => return Ok(String::new()),
            (None, None) if io::stdin().is_terminal() => {
                return Err(Usage::of("there is no program: give a file, -c CODE, or - to type it here"));
            }
            (None, from_stdin) => from_stdin,
        };
        if self.stdin.as_deref() == Some("-") {
            return Err(Usage::of("standard input cannot hold the program and be its input"));
        }
        let code = io::read_to_string(io::stdin()).context("cannot read the program from standard input")?;
        if code.trim().is_empty() && from_stdin.is_none() {
            return Err(Usage::of("there is no program: give a file or -c CODE; standard input is empty"));
        }
        Ok(code)
    }

    fn language(&self) -> anyhow::Result<Language> {
        if !self.command.is_empty() {
            return Ok(Language::Command);
        }
        let extension = self.script.as_deref().and_then(|script| Path::new(script).extension()?.to_str());
        let name = match (self.language.as_deref(), extension) {
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
            other => {
                let message = format!("--language {other}: must be python, javascript, typescript or bash");
                return Err(Usage::of(message));
            }
        })
    }
}

/// `NAME=VALUE`.
pub(super) fn pair(flag: &str, text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text.split_once('=').ok_or_else(|| Usage::of(format!("{flag} {text}: must be NAME=VALUE")))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn read_text(path: &str) -> anyhow::Result<String> {
    match path {
        "-" => io::read_to_string(io::stdin()).context("cannot read standard input"),
        path => std::fs::read_to_string(path).with_context(|| format!("cannot read {path}")),
    }
}

fn read_json(text: &str) -> anyhow::Result<JsonText> {
    let text = match text.strip_prefix('@') {
        Some(path) => read_text(path)?,
        None => text.to_owned(),
    };
    JsonText::parse(&text).context("--input is no JSON")
}

pub(super) fn read_file(argument: &str) -> anyhow::Result<FileRequest> {
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
