//! The files of a session, touched while its code may run.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::walk::{Found, MOST_DEPTH, MOST_MET, Step, walk};
use super::{Owner, give, make_folders, open_below, workspace};
use crate::spec::WorkspacePath;

/// The workspace of a session while its code may run: nothing in it is trusted, and no link is followed.
#[derive(Clone)]
pub struct Workspace {
    disk: Arc<OwnedFd>,
    owner: Owner,
    /// What appears as `shared` in it, read-only.
    shared: Option<Arc<OwnedFd>>,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the workspace.
    pub path: String,
    /// `file`, `folder` or `other` (links, pipes, sockets), which cannot be read.
    pub kind: &'static str,
    /// Bytes.
    pub size: u64,
    /// Seconds since 1970 and nanoseconds.
    pub modified: (i64, u32),
}

/// Most entries of a listing.
pub const MOST_ENTRIES: usize = 10_000;
/// Longest paths of a listing together, in bytes.
const MOST_TEXT: usize = 4 << 20;

/// An archive holds at most so many times what fits on the disk.
const ARCHIVED_DISKS: u64 = 4;

impl Workspace {
    pub(crate) fn new(disk: Arc<OwnedFd>, owner: Owner) -> Self {
        Self { disk, owner, shared: None }
    }

    /// The same with the operator's folder in it.
    pub(crate) fn with_shared(self, shared: Option<Arc<OwnedFd>>) -> Self {
        Self { shared, ..self }
    }

    /// The most that an archive of a folder may hold, in bytes: files with holes can be of any length. `None` for the operator's own, which no sandbox has written.
    pub(super) fn most_archived(&self, folder: &str) -> std::io::Result<Option<u64>> {
        if self.shared.is_some() && within_shared(folder).is_some() {
            return Ok(None);
        }
        let disk = rustix::fs::fstatvfs(&self.disk)?;
        Ok(Some(disk.f_blocks.saturating_mul(disk.f_frsize).saturating_mul(ARCHIVED_DISKS)))
    }

    /// The folder that a path begins in, and the rest of the path.
    fn root<'a>(&self, path: &'a str) -> std::io::Result<(OwnedFd, &'a str)> {
        if let (Some(shared), Some(rest)) = (&self.shared, within_shared(path)) {
            return Ok((shared.try_clone()?, rest));
        }
        Ok((workspace(&self.disk)?, path))
    }

    /// The workspace itself, to change something in it.
    fn root_to_change(&self, path: &str) -> std::io::Result<OwnedFd> {
        if self.shared.is_some() && within_shared(path).is_some() {
            return Err(std::io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(workspace(&self.disk)?)
    }

    /// Opens a regular file for reading. Blocks.
    ///
    /// # Errors
    /// `NotFound` when there is none, `InvalidInput` when it is something else; a link is something else, also on the way to it. `WouldBlock` when a program in the
    /// sandbox holds a lease on it.
    pub fn open(&self, path: &WorkspacePath) -> std::io::Result<File> {
        let (root, path) = self.root(path.as_str())?;
        let path = if path.is_empty() { "." } else { path };
        let file = File::from(open_below(&root, path, OFlags::RDONLY, Mode::empty()).map_err(no_file)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
    }

    /// A new file that takes the place of what is there only when it is [`Upload::publish`]ed. Blocks.
    ///
    /// # Errors
    /// When a folder on the way cannot be made, for example because there is a file or link of that name.
    pub fn create(&self, path: &WorkspacePath) -> std::io::Result<Upload> {
        let root = self.root_to_change(path.as_str())?;
        let (folders, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
        let folder = make_folders(&root, self.owner, folders).map_err(in_the_way)?;
        // Without a name until it is whole: an upload that breaks off leaves nothing.
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        let file = open_below(&folder, ".", flags, Mode::from_raw_mode(0o644))?;
        give(file.as_fd(), self.owner)?;
        Ok(Upload { file: File::from(file), folder, name: name.to_owned() })
    }

    /// Removes a file, or a folder with all that is in it; a link is removed itself. Blocks.
    ///
    /// # Errors
    /// `NotFound` when there is nothing.
    pub fn remove(&self, path: &WorkspacePath) -> std::io::Result<()> {
        let (folders, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
        self.root_to_change(path.as_str())?;
        remove_tree(&self.folder(folders)?, name, 0, &mut { MOST_MET })
    }

    /// Opens a folder; `""` is the workspace itself.
    pub(super) fn folder(&self, path: &str) -> std::io::Result<OwnedFd> {
        let (root, path) = self.root(path)?;
        if path.is_empty() {
            return Ok(root);
        }
        match open_below(&root, path, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()) {
            Err(Errno::NOTDIR) => Err(std::io::ErrorKind::NotADirectory.into()),
            opened => opened.map_err(no_file),
        }
    }

    /// What is in a folder (`""` for the workspace itself), with all below it if `recursive`; and whether that is everything. Blocks.
    ///
    /// # Errors
    /// `NotFound` when there is no such folder.
    pub fn list(&self, folder: &str, recursive: bool) -> std::io::Result<(Vec<Entry>, bool)> {
        // For a listing a file is no folder that is there; only an archive asks for one that has to be.
        let open = self.folder(folder).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotADirectory => std::io::ErrorKind::NotFound.into(),
            _ => error,
        })?;
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let (mut entries, mut text) = (Vec::new(), 0);
        let complete = walk(&open, &prefix, &mut |found: &Found<'_>| {
            text += found.path.len();
            if entries.len() == MOST_ENTRIES || text > MOST_TEXT {
                return Ok(Step::Stop);
            }
            let kind = match found.kind {
                FileType::RegularFile => "file",
                FileType::Directory => "folder",
                _ => "other",
            };
            let size = if kind == "file" { found.size() } else { 0 };
            entries.push(Entry { path: found.path.clone(), kind, size, modified: found.modified() });
            Ok(if recursive && kind == "folder" { Step::Enter } else { Step::Pass })
        })?;
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((entries, complete))
    }
}

/// A file that is being uploaded.
pub struct Upload {
    file: File,
    folder: OwnedFd,
    name: String,
}

impl Upload {
    /// Where to write.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Puts it in its place. Whether nothing was there before. Blocks.
    ///
    /// # Errors
    /// When a folder is there.
    pub fn publish(self) -> std::io::Result<bool> {
        let Self { file, folder, name } = self;
        let link = |name: &str| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(CWD, path, &folder, name, AtFlags::SYMLINK_FOLLOW)
        };
        match link(&name) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // Nothing replaces a name in one step but a rename from another one.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let aside = format!(".upload-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        link(&aside)?;
        rustix::fs::renameat(&folder, aside.as_str(), &folder, name.as_str()).inspect_err(|_| {
            // It never was anybody's file.
            rustix::fs::unlinkat(&folder, aside.as_str(), AtFlags::empty()).ok();
        })?;
        Ok(false)
    }
}

/// Name of the operator's folder in a workspace.
pub(super) const SHARED: &str = "shared";

/// The rest of a path that begins in the operator's folder.
fn within_shared(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(SHARED)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// Something else is where a folder is to be.
fn in_the_way(error: Errno) -> std::io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR | Errno::XDEV => std::io::ErrorKind::AlreadyExists.into(),
        other => other.into(),
    }
}

/// A link on the way, or a file where a folder should be, is no such file.
fn no_file(error: Errno) -> std::io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR | Errno::XDEV => std::io::ErrorKind::NotFound.into(),
        other => other.into(),
    }
}

/// `left` is how much more may be met, so that code which makes new files all the time does not keep it going for ever.
fn remove_tree(folder: &OwnedFd, name: &str, depth: usize, left: &mut usize) -> std::io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) if depth < MOST_DEPTH => {}
        Err(error) => return Err(error.into()),
    }
    let below = open_below(folder, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).map_err(no_file)?;
    for entry in Dir::read_from(&below)? {
        let entry = entry?;
        let Ok(inner) = entry.file_name().to_str() else { continue };
        if inner != "." && inner != ".." {
            *left = left.checked_sub(1).ok_or(std::io::ErrorKind::DirectoryNotEmpty)?;
            match remove_tree(&below, inner, depth + 1, left) {
                // Code that runs meanwhile may have removed it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
    }
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::tests::disk;

    #[test]
    fn a_session_file_is_whole_or_not_there_and_no_link_is_followed() {
        let (folder, disk) = disk();
        let outside = folder.path().join("outside");
        std::fs::write(&outside, "host").unwrap();
        symlink(&outside, folder.path().join("data/link")).unwrap();
        let workspace = Workspace::new(Arc::new(disk), None);
        let path = |text: &str| WorkspacePath::parse(text).unwrap();
        let names = || {
            workspace.list("", true).unwrap().0.into_iter().map(|entry| (entry.path, entry.kind)).collect::<Vec<_>>()
        };
        let write = |at: &str, content: &str| {
            let upload = workspace.create(&path(at))?;
            upload.file().write_all(content.as_bytes())?;
            assert!(!names().iter().any(|(name, _)| name.contains("upload")), "nothing before it is whole");
            upload.publish()
        };
        drop(workspace.create(&path("broken off")).unwrap());
        assert!(write("a/b.txt", "1").unwrap());
        assert!(!write("a/b.txt", "22").unwrap(), "it was there");
        // A link is replaced, not written through; on the way to a file it is no folder.
        assert!(!write("link", "mine").unwrap());
        symlink(folder.path(), folder.path().join("data/up")).unwrap();
        assert!(write("up/x", "y").is_err());
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "host");
        assert_eq!(std::io::read_to_string(workspace.open(&path("a/b.txt")).unwrap()).unwrap(), "22");
        assert_eq!(
            names(),
            [("a".into(), "folder"), ("a/b.txt".into(), "file"), ("link".into(), "file"), ("up".into(), "other")]
        );
        assert!(workspace.open(&path("up/outside")).is_err() && workspace.open(&path("a")).is_err());
        assert!(write("a", "x").is_err(), "a folder is in the way");
        for gone in ["a", "up", "link"] {
            workspace.remove(&path(gone)).unwrap();
        }
        assert!(names().is_empty() && outside.exists());
        assert_eq!(workspace.remove(&path("a")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}
