//! `fumehood template`: the templates of a server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use fumehood_engine::template::{TemplateInfo, TemplateSpec};

use super::super::Incomplete;
use super::super::show::{note, write_out};
use super::super::table::{ago, table};
use super::{Remote, write_json};
use crate::client::{Client, ClientError};
use crate::escape::escaped_lines;
use crate::templates::{Found, as_yaml, read};

#[derive(Debug, Args)]
pub(in crate::cli) struct TemplateArgs {
    #[command(subcommand)]
    command: TemplateCommand,
    /// Print the server's answers as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum TemplateCommand {
    /// Make templates of files, or other versions of them, and show what changes
    Apply {
        /// A YAML file, or a folder of them
        #[arg(value_name = "FILE|DIR", required = true)]
        paths: Vec<PathBuf>,
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// List templates
    #[command(visible_alias = "list")]
    Ls {
        /// Every version
        #[arg(long)]
        versions: bool,
    },
    /// Show a template, as a file would say it
    Show {
        /// Name, or name@version
        name: String,
        /// With all that it extends
        #[arg(long)]
        resolved: bool,
    },
    /// Delete templates with all their versions
    Rm {
        /// Which
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Also while they are in use
        #[arg(long)]
        force: bool,
    },
    /// Print the JSON Schema of templates; no server is asked
    Schema,
}

pub(in crate::cli) fn main(args: &TemplateArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        TemplateCommand::Schema => write_json(&fumehood_engine::template::schema()).map(|()| ExitCode::SUCCESS),
        TemplateCommand::Apply { paths, dry_run } => {
            let mut found = Vec::new();
            for path in paths {
                found.extend(read(path)?);
            }
            args.remote.work(async |client| apply(&client, &found, *dry_run, args.json).await)
        }
        TemplateCommand::Ls { versions } => args.remote.work(async |client| {
            let page = client.templates(*versions).await?;
            if args.json { write_json(&page) } else { write_out(&lines(&page.templates)) }
        }),
        TemplateCommand::Show { name, resolved } => args.remote.work(async |client| {
            let info = client.template(name, *resolved).await?;
            if args.json { write_json(&info) } else { write_out(&escaped_lines(&shown(&info))) }
        }),
        TemplateCommand::Rm { names, force } => args.remote.work(async |client| remove(&client, names, *force).await),
    }
}

fn lines(templates: &[TemplateInfo]) -> String {
    let row = |info: &TemplateInfo| {
        let made = match (&info.created_at, info.built_in) {
            (_, true) => "built in".to_owned(),
            (Some(at), _) => format!("{} ago", ago(at)),
            (None, _) => "-".to_owned(),
        };
        let about = info.spec.description.as_deref().unwrap_or("-").lines().next().unwrap_or("-").to_owned();
        let extends = info.spec.extends.clone().unwrap_or_else(|| "-".to_owned());
        [info.name.clone(), info.version.to_string(), extends, made, about]
    };
    table(["NAME", "VERSION", "EXTENDS", "MADE", "DESCRIPTION"], &templates.iter().map(row).collect::<Vec<_>>())
}

fn shown(info: &TemplateInfo) -> String {
    let made = match (&info.created_at, &info.created_by) {
        (Some(at), Some(by)) => format!("made {at} by {by}"),
        _ => "built in".to_owned(),
    };
    format!("# {}@{}, {made}\n{}", info.name, info.version, as_yaml(&info.spec))
}

/// Deletes each, also after one that is unknown or in use.
async fn remove(client: &Client, names: &[String], force: bool) -> anyhow::Result<()> {
    let mut failed = None;
    for name in names {
        match client.remove_template(name, force).await {
            Ok(()) => write_out(&format!("{} deleted\n", escaped_lines(name)))?,
            Err(error @ ClientError::Refused { .. }) if names.len() > 1 => {
                note(&format!("{name}: {error}"));
                failed = Some(error.exit_code());
            }
            Err(error) => return Err(error.into()),
        }
    }
    failed.map_or(Ok(()), |code| Err(Incomplete(code).into()))
}

/// What became, or would become, of one template.
#[derive(Debug, serde::Serialize)]
struct Change {
    name: String,
    version: u32,
    /// `created`, `changed` or `unchanged`.
    change: &'static str,
    dry_run: bool,
    /// Unified, of the YAML with everything inherited.
    diff: String,
}

async fn apply(client: &Client, found: &[Found], dry: bool, json: bool) -> anyhow::Result<()> {
    let mut made = Made { client, whole: BTreeMap::new() };
    let mut changes = Vec::new();
    for one in found {
        let change = made.apply(&one.spec, dry).await.map_err(|error| match error {
            ClientError::Refused { .. } => anyhow::Error::new(error).context(one.source.clone()),
            other => other.into(),
        })?;
        if !json {
            write_out(&escaped_lines(&told(&change)))?;
        }
        changes.push(change);
    }
    if json { write_json(&changes) } else { Ok(()) }
}

fn told(change: &Change) -> String {
    let would = if change.dry_run && change.change != "unchanged" { "would be " } else { "" };
    format!("{}@{} {would}{}\n{}", change.name, change.version, change.change, change.diff)
}

/// The templates that were applied so far, or would be.
struct Made<'a> {
    client: &'a Client,
    /// With everything inherited, and their version.
    whole: BTreeMap<String, (TemplateSpec, u32)>,
}

impl Made<'_> {
    async fn apply(&mut self, spec: &TemplateSpec, dry: bool) -> Result<Change, ClientError> {
        let mut whole = TemplateSpec { extends: None, ..spec.clone() };
        let mut pinned = None;
        if let Some(base) = &spec.extends {
            let (base, version) = match self.whole.get(base) {
                Some(base) => base.clone(),
                None => {
                    let info = self.client.template(base, true).await?;
                    (info.spec, info.version)
                }
            };
            pinned = Some(format!("{}@{version}", base.name));
            whole = TemplateSpec { extends: None, ..whole.over(&base) };
        }
        let before = match self.client.template(&spec.name, true).await {
            // Of the plain form only what it extends is of interest.
            Ok(info) => Some((info, self.client.template(&spec.name, false).await?.spec.extends)),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        // What it extends may not be there yet: then the server looks at what would come of it.
        let sent = if dry { &whole } else { spec };
        let info = self.client.write_template(sent, before.is_some(), dry).await?;

        let as_text = |spec: &TemplateSpec, extends: Option<String>| as_yaml(&TemplateSpec { extends, ..spec.clone() });
        let new = as_text(&whole, pinned);
        let (old, version_before) = match &before {
            Some((info, extends)) => (as_text(&info.spec, extends.clone()), Some(info.version)),
            None => (String::new(), None),
        };
        let (change, version) = match version_before {
            None => ("created", info.version),
            Some(version) if old == new => ("unchanged", version),
            Some(_) => ("changed", info.version),
        };
        self.whole.insert(spec.name.clone(), (whole, version));
        let heads = (
            version_before.map_or_else(|| "nothing".to_owned(), |version| format!("{}@{version}", spec.name)),
            format!("{}@{version}", spec.name),
        );
        let diff = if change == "unchanged" {
            String::new()
        } else {
            similar::TextDiff::from_lines(&old, &new).unified_diff().header(&heads.0, &heads.1).to_string()
        };
        Ok(Change { name: spec.name.clone(), version, change, dry_run: dry, diff })
    }
}
