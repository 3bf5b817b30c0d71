//! `fumehood ls`: the files of a session.

use std::process::ExitCode;

use clap::Args;
use indicatif::HumanBytes;

use super::super::Incomplete;
use super::super::show::{note, write_out};
use super::super::table::word;
use super::place::{Remote as Place, relative};
use super::{Remote, write_json};
use crate::client::{Client, FileEntry, FileKind, FileList};
use crate::escape::escaped;

#[derive(Debug, Args)]
pub(in crate::cli) struct LsArgs {
    /// Session and folder or file; the session's workspace by default
    #[arg(value_name = "SESSION[:PATH]")]
    place: String,
    /// With kind, size and time
    #[arg(short, long)]
    long: bool,
    /// With everything below
    #[arg(short = 'R', long, visible_short_alias = 'r')]
    recursive: bool,
    /// Print the server's answer as JSON, with the names as they are
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

pub(in crate::cli) fn main(args: &LsArgs) -> anyhow::Result<ExitCode> {
    let place = Place::parse_either(&args.place)?;
    args.remote.work(async |client| {
        let list = find(&client, &place, args.recursive).await?;
        if args.json {
            write_json(&list)?;
        } else {
            write_out(&lines(&list.files, &place.path, args.long))?;
        }
        if !list.complete {
            note("there is more: a listing ends at 10,000 entries and 32 folders deep; list the folders below one by one");
            return Err(Incomplete(1).into());
        }
        Ok(())
    })
}

/// What is in a folder, or the file itself.
async fn find(client: &Client, place: &Place, recursive: bool) -> anyhow::Result<FileList> {
    if let Some(list) = client.list(&place.session, &place.path, recursive).await? {
        return Ok(list);
    }
    let parent = place.path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let beside = client.list(&place.session, parent, false).await?;
    let entry = beside.and_then(|list| list.files.into_iter().find(|entry| entry.path == place.path));
    match entry {
        Some(entry) => Ok(FileList { files: vec![entry], complete: true }),
        None => Err(super::cp::no_file(&place.path)),
    }
}

fn lines(files: &[FileEntry], folder: &str, long: bool) -> String {
    let name = |entry: &FileEntry| {
        let name = escaped(relative(folder, &entry.path).unwrap_or(&entry.path)).into_owned();
        if entry.kind == FileKind::Folder { name + "/" } else { name }
    };
    if !long {
        return files.iter().map(|entry| name(entry) + "\n").collect();
    }
    let size = |entry: &FileEntry| match entry.kind {
        FileKind::File => HumanBytes(entry.size).to_string(),
        _ => "-".to_owned(),
    };
    let width = files.iter().map(|entry| size(entry).len()).max().unwrap_or(0);
    let line = |entry: &FileEntry| {
        let (kind, time) = (word(&entry.kind), escaped(&entry.modified_at));
        format!("{kind:6}  {:>width$}  {time}  {}\n", size(entry), name(entry))
    };
    files.iter().map(line).collect()
}
