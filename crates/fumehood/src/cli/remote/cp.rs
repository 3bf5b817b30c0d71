//! `fumehood cp`: files and folders to a session and from it. No file is ever half there, on neither side, and nothing that a session or a server
//! calls a file is written outside the destination.

use std::cell::Cell;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use fumehood_engine::ids::SessionId;
use futures::{Stream, StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Body;
use rustix::fs::OFlags;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;
use walkdir::WalkDir;

use super::super::show::note;
use super::super::{Incomplete, OutputClosed, Usage};
use super::Remote;
use super::place::{Place, Remote as There, join, relative};
use crate::client::{Client, ClientError, FileKind, FileList};
use crate::escape::{escaped, escaped_lines};
use crate::landing::{Landing, named};

/// Files on their way at once: more hide the pauses between small ones.
const AT_ONCE: usize = 4;
const CHUNK: usize = 256 << 10;

const HELP: &str = "\
A place is PATH, SESSION:PATH (relative to the session's workspace, or below /data), or - for standard input or output. As with cp, what is copied \
goes into a folder that exists or ends in a slash, and gets a new name otherwise.

Links are not followed: those in a folder are left out, in a session too.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(in crate::cli) struct CpArgs {
    /// What to copy, then where to; one side is a session
    #[arg(required = true, num_args = 2.., value_name = "PLACE")]
    places: Vec<String>,
    /// Copy folders with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    remote: Remote,
}

pub(in crate::cli) fn main(args: &CpArgs) -> anyhow::Result<ExitCode> {
    let mut places = args.places.iter().map(|text| Place::parse(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let to = places.pop().ok_or_else(|| Usage::of("there is nothing to copy"))?;
    let both_sides = || Usage::of("one side must be in a session (SESSION:PATH) and the other on this machine");
    match to {
        Place::Remote(to) => {
            let from = places.into_iter().map(|place| match place {
                Place::Remote(_) => Err(both_sides()),
                Place::Local(path) => Ok(Some(path)),
                Place::Stream => Ok(None),
            });
            let from = from.collect::<anyhow::Result<Vec<_>>>()?;
            args.remote.work(async |client| Copying::new(client, args).up(from, to).await)
        }
        to => {
            let from = places.into_iter().map(|place| match place {
                Place::Remote(there) => Ok(there),
                _ => Err(both_sides()),
            });
            let from = from.collect::<anyhow::Result<Vec<_>>>()?;
            let to = if let Place::Local(path) = to { Some(path) } else { None };
            args.remote.work(async |client| Copying::new(client, args).down(from, to).await)
        }
    }
}

/// Said where there is nothing to read.
pub(super) fn no_file(path: &str) -> anyhow::Error {
    ClientError::Missing(format!("there is no {} in the session; links are not followed", escaped(path))).into()
}

/// A file to upload.
struct Up {
    from: PathBuf,
    to: String,
    size: u64,
}

/// A file to download.
struct Down {
    session: SessionId,
    from: String,
    /// Below the landing.
    to: String,
    size: u64,
}

struct Copying {
    client: Client,
    recursive: bool,
    bar: ProgressBar,
    failed: Cell<usize>,
}

impl Copying {
    fn new(client: Client, args: &CpArgs) -> Self {
        let shown = !args.quiet && std::io::stderr().is_terminal();
        let bar = if shown { ProgressBar::no_length() } else { ProgressBar::hidden() };
        let form = "{msg} {bytes}/{total_bytes} [{wide_bar}] {bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { client, recursive: args.recursive, bar, failed: Cell::new(0) }
    }

    fn begin(&self, files: usize, bytes: u64) {
        self.bar.set_length(bytes);
        self.bar.set_message(if files == 1 { "1 file".to_owned() } else { format!("{files} files") });
    }

    /// Goes on after something that could not be copied.
    fn complain(&self, error: &anyhow::Error) {
        self.failed.set(self.failed.get() + 1);
        self.bar.suspend(|| note(&escaped_lines(&format!("{error:#}"))));
    }

    fn remark(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }

    /// Waits for every file. One that is alone, or shows that the others fare no better, ends the command.
    async fn each(&self, single: bool, files: impl Stream<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
        let mut files = std::pin::pin!(files);
        while let Some(done) = files.next().await {
            match done {
                Ok(()) => {}
                Err(error) if single || is_hopeless(&error) => return Err(error),
                Err(error) => self.complain(&error),
            }
        }
        self.bar.finish_and_clear();
        if self.failed.get() > 0 { Err(Incomplete(1).into()) } else { Ok(()) }
    }
}

impl Copying {
    /// To a session.
    async fn up(self, from: Vec<Option<PathBuf>>, to: There) -> anyhow::Result<()> {
        let into = to.folder || self.client.list(&to.session, &to.path, false).await?.is_some();
        if from.len() > 1 && !into {
            bail!("{} is no folder of the session; end it with a slash to make one", escaped(&to.path));
        }
        let mut files = Vec::new();
        for path in from {
            match path {
                Some(path) => self.collect(&path, &to, into, &mut files)?,
                None if into => return Err(Usage::of("standard input has no name: give the name of the file to make")),
                None => {
                    let stdin = std::io::stdin().as_fd().try_clone_to_owned().context("cannot read standard input")?;
                    let content = ReaderStream::with_capacity(tokio::fs::File::from_std(stdin.into()), CHUNK);
                    let body = Body::wrap_stream(self.counted(content));
                    self.client.upload(&to.session, &to.path, body, None).await?;
                }
            }
        }
        self.begin(files.len(), files.iter().map(|file| file.size).sum());
        let single = files.len() == 1;
        let sent = stream::iter(&files).map(|file| self.send(&to.session, file)).buffer_unordered(AT_ONCE);
        self.each(single, sent).await
    }

    /// What is to be uploaded of a file or folder.
    fn collect(&self, path: &Path, to: &There, into: bool, files: &mut Vec<Up>) -> anyhow::Result<()> {
        let unreadable = || format!("cannot read {}", named(path));
        let about = std::fs::metadata(path).with_context(unreadable)?;
        let target = match path.file_name() {
            Some(name) if into => to.below(name.to_str().with_context(|| no_text(path))?),
            // The contents of . and .. have no name of their own.
            _ => to.path.clone(),
        };
        if about.is_file() {
            files.push(Up { from: path.to_owned(), to: target, size: about.len() });
            return Ok(());
        }
        if !about.is_dir() {
            bail!("{} is no regular file; - copies standard input", named(path));
        }
        if !self.recursive {
            return Err(Usage::of(format!("{} is a folder; -r copies folders", named(path))));
        }
        let (mut left_out, mut empty) = (0_usize, 0_usize);
        for entry in WalkDir::new(path).follow_links(false).follow_root_links(true).sort_by_file_name() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.complain(&anyhow!(error));
                    continue;
                }
            };
            let below = entry.path().strip_prefix(path).unwrap_or(entry.path());
            if entry.file_type().is_dir() {
                empty += usize::from(std::fs::read_dir(entry.path()).is_ok_and(|mut entries| entries.next().is_none()));
            } else if !entry.file_type().is_file() {
                left_out += 1;
            } else {
                match (below.to_str(), entry.metadata()) {
                    (Some(name), Ok(about)) => {
                        files.push(Up { from: entry.path().to_owned(), to: join(&target, name), size: about.len() });
                    }
                    (None, _) => self.complain(&anyhow!(no_text(entry.path()))),
                    (_, Err(error)) => self.complain(&anyhow!(error)),
                }
            }
        }
        self.say_left_out(left_out);
        if empty > 0 {
            self.remark(&format!("left out: {empty} empty folder(s), which a session cannot be sent"));
        }
        Ok(())
    }

    fn say_left_out(&self, links: usize) {
        if links > 0 {
            self.remark(&format!("left out: {links} link(s) or other thing(s) that are no files"));
        }
    }

    async fn send(&self, session: &SessionId, file: &Up) -> anyhow::Result<()> {
        let about = || format!("cannot copy {}", named(&file.from));
        // What has become a link since it was looked at is not followed, nor a pipe waited for.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let named_itself = std::fs::symlink_metadata(&file.from).is_ok_and(|about| about.is_symlink());
        let opened = if named_itself {
            File::open(&file.from)
        } else {
            File::options().read(true).custom_flags(flags as i32).open(&file.from)
        };
        let opened = opened.with_context(about)?;
        let length = opened.metadata().with_context(about)?.len();
        let content = tokio::fs::File::from_std(opened).take(length);
        let body = Body::wrap_stream(self.counted(ReaderStream::with_capacity(content, CHUNK)));
        self.client.upload(session, &file.to, body, Some(length)).await.with_context(about)
    }

    /// The same chunks, counted as they go.
    fn counted<E>(
        &self,
        chunks: impl Stream<Item = Result<bytes::Bytes, E>> + Send + 'static,
    ) -> impl Stream<Item = Result<bytes::Bytes, E>> + Send + 'static {
        let bar = self.bar.clone();
        chunks.inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                bar.inc(chunk.len() as u64);
            }
        })
    }
}

impl Copying {
    /// From a session.
    async fn down(self, from: Vec<There>, to: Option<PathBuf>) -> anyhow::Result<()> {
        let Some(to) = to else {
            let [there] = from.as_slice() else {
                return Err(Usage::of("only one file can go to standard output"));
            };
            return self.to_stdout(there).await;
        };
        let existing = std::fs::metadata(&to).is_ok_and(|about| about.is_dir());
        let into = existing || to.as_os_str().as_encoded_bytes().ends_with(b"/");
        if from.len() > 1 && !into {
            bail!("{} is no folder; end it with a slash to make one", named(&to));
        }
        let mut files = Vec::new();
        let mut folder_wanted = false;
        for there in &from {
            folder_wanted |= self.find(there, &to, into, &mut files).await?;
        }
        let single = files.len() == 1 && !folder_wanted;
        // Where one file gets a new name, its folder is the one on the way to it, as the user named it.
        let landing = if into || folder_wanted {
            Landing::open(&to)?
        } else {
            let target = resolved(&to)?;
            let name = target.file_name().and_then(|name| name.to_str()).with_context(|| no_text(&target))?;
            files.iter_mut().for_each(|file| file.to = name.to_owned());
            let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if !parent.is_dir() {
                bail!("there is no folder {}", named(parent));
            }
            Landing::open(parent)?
        };
        self.begin(files.len(), files.iter().map(|file| file.size).sum());
        let fetched = stream::iter(&files).map(|file| self.fetch(file, &landing)).buffer_unordered(AT_ONCE);
        self.each(single, fetched).await
    }

    /// What is to be downloaded of a file or folder, and whether it is a folder.
    async fn find(&self, there: &There, to: &Path, into: bool, files: &mut Vec<Down>) -> anyhow::Result<bool> {
        let name = there.path.rsplit('/').next().unwrap_or_default();
        let Some(list) = self.client.list(&there.session, &there.path, self.recursive).await? else {
            if there.folder {
                return Err(no_file(&there.path));
            }
            let down = Down { session: there.session.clone(), from: there.path.clone(), to: name.to_owned(), size: 0 };
            files.push(down);
            return Ok(false);
        };
        if !self.recursive {
            let what =
                if there.path.is_empty() { "the workspace".to_owned() } else { escaped(&there.path).into_owned() };
            return Err(Usage::of(format!("{what} is a folder; -r copies folders")));
        }
        // The folder itself has its name below a folder, as with cp; the workspace has none.
        let base = if into { name } else { "" };
        let list = if list.complete { list } else { self.piecewise(there).await? };
        let landing = Landing::open(to)?;
        let mut left_out = 0;
        for entry in &list.files {
            let Some(below) = relative(&there.path, &entry.path) else {
                self.complain(&anyhow!(
                    "the server told of {}, which is not where it was asked to look",
                    escaped(&entry.path)
                ));
                continue;
            };
            let target = join(base, below);
            match entry.kind {
                FileKind::File => files.push(Down {
                    session: there.session.clone(),
                    from: entry.path.clone(),
                    to: target,
                    size: entry.size,
                }),
                FileKind::Folder => {
                    if let Err(error) = landing.make(&target) {
                        self.complain(&error);
                    }
                }
                FileKind::Other => left_out += 1,
            }
        }
        if !list.complete {
            self.complain(&anyhow!(
                "a folder has more than the 10,000 entries that a listing holds; the rest is not copied"
            ));
        }
        self.say_left_out(left_out);
        Ok(true)
    }

    /// A folder that is too large for one listing, folder by folder.
    async fn piecewise(&self, there: &There) -> anyhow::Result<FileList> {
        let mut whole = FileList { files: Vec::new(), complete: true };
        let mut folders = vec![there.path.clone()];
        while let Some(folder) = folders.pop() {
            let Some(list) = self.client.list(&there.session, &folder, false).await? else { continue };
            whole.complete &= list.complete;
            for entry in list.files {
                // What is not below would be looked into for ever.
                if entry.kind == FileKind::Folder && relative(&folder, &entry.path).is_some() {
                    folders.push(entry.path.clone());
                }
                whole.files.push(entry);
            }
        }
        Ok(whole)
    }

    async fn fetch(&self, file: &Down, landing: &Landing) -> anyhow::Result<()> {
        let about = || format!("cannot copy {}", escaped(&file.from));
        let mut arriving = landing.create(&file.to)?;
        let mut answer = self.client.download(&file.session, &file.from).await.with_context(about)?;
        if file.size == 0 {
            self.bar.inc_length(answer.content_length().unwrap_or(0));
        }
        while let Some(chunk) = answer.chunk().await.map_err(|error| ClientError::broken(&error)).with_context(about)? {
            arriving.file.write_all(&chunk).with_context(about)?;
            self.bar.inc(chunk.len() as u64);
        }
        arriving.keep().map(drop)
    }

    async fn to_stdout(&self, there: &There) -> anyhow::Result<()> {
        let mut answer = self.client.download(&there.session, &there.path).await?;
        let mut out = std::io::stdout().lock();
        while let Some(chunk) = answer.chunk().await.map_err(|error| ClientError::broken(&error))? {
            match out.write_all(&chunk) {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Err(OutputClosed.into()),
                other => other.context("cannot write to standard output")?,
            }
        }
        out.flush().context("cannot write to standard output")
    }
}

/// Whether the next file would fare no better.
fn is_hopeless(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused { status, .. }) => matches!(status.as_u16(), 401 | 403 | 410 | 507),
        Some(ClientError::Unreachable { .. }) => true,
        _ => false,
    }
}

/// Where a file that the user named really is: a link of his is followed, once it is known that it leads to a file.
fn resolved(path: &Path) -> anyhow::Result<PathBuf> {
    match std::fs::symlink_metadata(path) {
        Ok(about) if about.is_symlink() => {
            std::fs::canonicalize(path).with_context(|| format!("cannot follow {}", named(path)))
        }
        _ => Ok(path.to_owned()),
    }
}

fn no_text(path: &Path) -> String {
    format!("{} has a name that is no UTF-8, and none in a session", named(path))
}
