//! Entrances of the fuzz targets (`fuzz/`), for nobody else.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use fumehood_wire::GuestResult;

use crate::artifacts::percent_encode;
use crate::backend::ExitReport;
use crate::execution::{Outcome, Status};
use crate::files::{self, Workspace};
use crate::ids::ExecutionId;
use crate::output::{Kept, OutputBudget, OutputPage};
use crate::spec::{InputFile, LimitPolicy};
use crate::verdict::{self, KillReason, Observed};

/// The workspace of a disk, as of a session.
#[must_use]
pub fn workspace(disk: Arc<OwnedFd>) -> Workspace {
    Workspace::new(disk, None)
}

/// Writes a request's files.
///
/// # Errors
/// As of the file system.
pub fn write_all(disk: &OwnedFd, files: &[InputFile]) -> std::io::Result<()> {
    files::write_all(disk, None, files)
}

/// The files that artifacts are made of.
///
/// # Errors
/// As of the file system.
pub fn find(disk: &OwnedFd, most: usize) -> std::io::Result<(Vec<(String, File)>, bool)> {
    let (paths, complete) = files::find(disk, most, &|_| true)?;
    let workspace = files::workspace(disk)?;
    let open = |path: String| Some((path.clone(), files::open_found(&workspace, &path).ok()??));
    Ok((paths.into_iter().filter_map(open).collect(), complete))
}

/// Folders that code takes for granted.
pub fn make_standing_folders(disk: &OwnedFd, code: &str) {
    files::make_standing_folders(disk, None, None, code);
}

/// A path as it stands in the URL of an artifact.
#[must_use]
pub fn in_url(path: &str) -> String {
    percent_encode(path)
}

/// What is kept of an output stream.
pub struct Output(Kept);

impl Output {
    /// With room for so many bytes of text.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self(Kept::new(budget))
    }

    /// Takes a piece in, or the end; what is shown live, and whether it is said that nothing more will be.
    pub fn push(&mut self, piece: Option<&[u8]>) -> (String, bool) {
        let live = match piece {
            Some(piece) => self.0.push(piece),
            None => self.0.finish(),
        };
        (live.text, live.exhausted)
    }

    /// What is kept, and whether something is missing.
    #[must_use]
    pub fn text(&self) -> (String, bool) {
        (self.0.text(), self.0.truncated())
    }
}

/// A text cut for a result.
#[must_use]
pub fn cut(text: &str, head: usize, tail: usize) -> Option<(String, bool)> {
    OutputBudget { head, tail }.apply(text, &ExecutionId::parse("exe_1")?, "stdout")
}

/// A page of a text.
#[must_use]
pub fn page(text: &str, offset: usize, limit: usize) -> OutputPage {
    OutputPage::of(text, "stdout", offset, limit)
}

/// What the host saw, as far as a verdict depends on it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Why the host ended it: 0 for not at all, then in the order of the reasons.
    pub killed: u8,
    /// What was seen at its end.
    pub exit: ExitReport,
    /// It had a runner.
    pub runner: bool,
    /// The code had begun.
    pub begun: bool,
    /// No room was left.
    pub disk_full: bool,
}

/// How an execution ended, for what the host saw and the guest claims.
#[must_use]
pub fn verdict(seen: &Seen, claim: Option<&GuestResult>) -> (Status, Outcome, Option<i32>) {
    let killed = match seen.killed {
        0 => None,
        1 => Some(KillReason::TimedOut),
        2 => Some(KillReason::Cancelled),
        3 => Some(KillReason::OutputLimit),
        4 => Some(KillReason::StartTimeout),
        _ => Some(KillReason::BrokenProtocol("broken".to_owned())),
    };
    let verdict = verdict::decide(&Observed {
        refused: &[],
        killed: killed.as_ref(),
        exit: &seen.exit,
        claim,
        runner: seen.runner,
        begun: seen.begun,
        disk_full: seen.disk_full,
        read_only: false,
        timeout: Duration::from_secs(1),
        limits: &LimitPolicy::default().default,
        output_hard_bytes: 1 << 20,
    });
    (verdict.status, verdict.outcome, verdict.exit_code)
}
