//! How an execution is shown on a terminal, whoever ran it: output as it comes, values as a notebook would, and why it did not end well.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fumehood_engine::event::EventBody;
use fumehood_engine::execution::{Execution, JsonText, Outcome, Output};

use super::OutputClosed;
use crate::escape::escaped_lines;
use crate::landing::{Landing, named};

/// What a program's end is to a shell.
pub(super) const EXIT_CODES: &str = "\
Exit codes: the program's own, or
  124    the time ran out
  125    another limit was hit: output, disk or processes
  126    a policy forbade it
  128+N  signal N ended it
  130    cancelled (Ctrl-C)
  137    ended for its memory
  70     Fumehood itself failed
  1      nothing was run: a file, a field or this host is at fault
  2      the command line is wrong";

/// Writes to standard output at once.
///
/// # Errors
/// [`OutputClosed`] when nobody reads any more.
pub(super) fn write_out(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        other => other.context("cannot write to standard output"),
    }
}

/// Writes to standard error, where there is nothing to be done if that fails.
pub(super) fn write_err(text: &str) {
    io::stderr().write_all(text.as_bytes()).ok();
}

/// Says something that is not the program's.
pub(super) fn note(text: &str) {
    write_err(&format!("fumehood: {text}\n"));
}

/// Shows an event; values and displays unless `quiet`.
pub(super) fn show(body: &EventBody, quiet: bool) -> anyhow::Result<()> {
    match body {
        EventBody::Stdout { text } => write_out(text)?,
        EventBody::Stderr { text } => write_err(text),
        EventBody::Display(output) if !quiet => {
            if let Some(text) = plain_text(output) {
                write_out(&format!("{text}\n"))?;
            }
        }
        EventBody::Warning(notice) => note(&escaped_lines(&notice.message)),
        _ => {}
    }
    Ok(())
}

fn plain_text(output: &Output) -> Option<String> {
    // Of a picture it is only the name of its class.
    output.mime.get("text/plain").and_then(JsonText::string).filter(|_| !is_picture(output))
}

/// Says why it did not end well, unless the program itself has said so (a traceback is on standard error already).
pub(super) fn explain(execution: &Execution) {
    let Some(error) = &execution.error else { return };
    if error.traceback.is_empty() && execution.outcome != Some(Outcome::Exited) {
        note(&escaped_lines(&format!("{}: {}", error.kind, error.message)));
    }
    if let Some(hint) = &error.hint {
        note(&escaped_lines(&format!("hint: {hint}")));
    }
}

/// Figures on their way into a folder.
pub(super) struct Figures {
    landing: Landing,
    count: usize,
}

impl Figures {
    /// # Errors
    /// When the folder cannot be made.
    pub(super) fn into(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self { landing: Landing::open(folder)?, count: 0 })
    }

    /// Saves it if it is a figure.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn save(&mut self, output: &Output) -> anyhow::Result<()> {
        let Some((extension, bytes)) = figure(output)? else { return Ok(()) };
        self.count += 1;
        let mut arriving = self.landing.create(&format!("figure-{}.{extension}", self.count))?;
        arriving.file.write_all(&bytes).context("cannot write a figure")?;
        note(&format!("wrote {}", named(&arriving.keep()?)));
        Ok(())
    }
}

/// Pictures and the endings of their files, the best first.
const PICTURES: [(&str, &str); 4] =
    [("image/png", "png"), ("image/jpeg", "jpg"), ("image/svg+xml", "svg"), ("image/gif", "gif")];
/// What `plotly.io.read_json` reads.
const PLOTLY: &str = "application/vnd.plotly.v1+json";

fn is_picture(output: &Output) -> bool {
    PICTURES.iter().any(|(mime, _)| output.mime.contains_key(mime))
}

/// Whether it can be saved as a figure.
pub(super) fn is_figure(output: &Output) -> bool {
    is_picture(output) || output.mime.contains_key(PLOTLY)
}

/// The best form of a figure: the ending of its file, and the content.
fn figure(output: &Output) -> anyhow::Result<Option<(&'static str, Vec<u8>)>> {
    for (mime, extension) in PICTURES {
        let Some(content) = output.mime.get(mime).and_then(JsonText::string) else { continue };
        let bytes = match extension {
            "svg" => content.into_bytes(),
            _ => BASE64.decode(content).context("a figure is no base64")?,
        };
        return Ok(Some((extension, bytes)));
    }
    let plotly = output.mime.get(PLOTLY);
    Ok(plotly.map(|figure| ("plotly.json", figure.as_str().as_bytes().to_vec())))
}

/// What a shell sees of an end.
pub(super) fn exit_code(execution: &Execution) -> u8 {
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
