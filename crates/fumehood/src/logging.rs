//! Logs: structured, on standard error, with the ids of request and execution; never code or output unless asked for.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Logging};

/// Begins to log. Call once.
///
/// # Errors
/// When the level cannot be read or something logs already.
pub(crate) fn init(config: &Logging) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let begun = match config.format {
        LogFormat::Pretty => builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init(),
        // The fields of the spans stand in the line's own object: `request_id` is found without knowing about spans.
        LogFormat::Json => builder.json().flatten_event(true).with_span_list(false).with_current_span(true).try_init(),
    };
    begun.map_err(|error| anyhow::anyhow!("cannot begin to log: {error}"))
}
