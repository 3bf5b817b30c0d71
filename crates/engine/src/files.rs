//! Files of a sandbox's disk, touched from the host.
//!
//! The host never follows a path that a sandbox could have written: every step goes through `openat2` beneath the disk's own
//! descriptor, without symbolic links, without crossing mounts. What is no regular file is not read.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fchown, mkdirat, openat2, symlinkat,
};
use rustix::io::Errno;

use crate::spec::{InputFile, WorkspacePath};

/// Folder of the workspace on a disk.
pub(crate) const DATA: &str = "data";
/// Folder of the home on a disk.
const HOME: &str = "home";

/// Deepest folder visited when looking for files.
const MOST_DEPTH: usize = 32;

/// Owner to give to files, when this process is not the sandbox's user itself.
pub(crate) type Owner = Option<(u32, u32)>;

fn resolve() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV
}

/// Opens below `folder`, never anywhere else.
fn open_below(folder: impl AsFd, path: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    loop {
        match openat2(folder.as_fd(), path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode, resolve()) {
            // A rename elsewhere raced with the check; the kernel asks to try again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

/// The workspace of a disk.
pub(crate) fn workspace(disk: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    open_below(disk, DATA, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())
}

/// Writes the caller's files into a workspace in which nothing has run yet.
pub(crate) fn write_all(disk: &OwnedFd, owner: Owner, files: &[InputFile]) -> std::io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let root = workspace(disk)?;
    for file in files {
        write_one(&root, owner, &file.path, &file.content)?;
    }
    Ok(())
}

fn write_one(root: &OwnedFd, owner: Owner, path: &WorkspacePath, content: &[u8]) -> std::io::Result<()> {
    let (folders, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
    let folder = make_folders(root, owner, folders)?;
    // Not blocking, in case code of a session has made a pipe of that name.
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NONBLOCK;
    let mut file = File::from(open_below(&folder, name, flags, Mode::from_raw_mode(0o644))?);
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            format!("{} is no regular file", path.as_str()),
        ));
    }
    give(file.as_fd(), owner)?;
    file.write_all(content)
}

/// Makes the folders of a relative path and opens the last one.
fn make_folders(root: &OwnedFd, owner: Owner, path: &str) -> rustix::io::Result<OwnedFd> {
    let mut folder = open_below(root, ".", OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        match mkdirat(&folder, part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        folder = open_below(&folder, part, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
        give(folder.as_fd(), owner)?;
    }
    Ok(folder)
}

fn give(fd: BorrowedFd<'_>, owner: Owner) -> rustix::io::Result<()> {
    match owner {
        Some((uid, gid)) => fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))),
        None => Ok(()),
    }
}

/// Puts links into the home: folder below the home, then `(name, target)` pairs.
pub(crate) fn link_into_home(
    disk: &OwnedFd,
    owner: Owner,
    folder: &str,
    links: &[(String, String)],
) -> rustix::io::Result<()> {
    let home = open_below(disk, HOME, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
    let folder = make_folders(&home, owner, folder)?;
    for (name, target) in links {
        symlinkat(target.as_str(), &folder, name.as_str())?;
        if let Some((uid, gid)) = owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            chownat(&folder, name.as_str(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
}

/// Writes a file into the home and returns its path inside the sandbox.
pub(crate) fn write_into_home(disk: &OwnedFd, owner: Owner, name: &str, content: &[u8]) -> std::io::Result<String> {
    let home = open_below(disk, HOME, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
    let file = open_below(&home, name, OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY, Mode::from_raw_mode(0o644))?;
    give(file.as_fd(), owner)?;
    File::from(file).write_all(content)?;
    Ok(format!("/home/sandbox/{name}"))
}

/// Regular files of the workspace whose path is wanted, in order of their names. Links, devices, pipes and sockets are passed over.
pub(crate) fn find(
    disk: &OwnedFd,
    most: usize,
    wanted: &dyn Fn(&str) -> bool,
) -> std::io::Result<(Vec<(String, File)>, bool)> {
    let mut found = Vec::new();
    let complete = visit(&workspace(disk)?, "", 0, most, wanted, &mut found)?;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok((found, complete))
}

/// Whether everything was seen.
fn visit(
    folder: &OwnedFd,
    prefix: &str,
    depth: usize,
    most: usize,
    wanted: &dyn Fn(&str) -> bool,
    found: &mut Vec<(String, File)>,
) -> std::io::Result<bool> {
    let mut complete = true;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        // A name that is no UTF-8 cannot be told in JSON; the file is passed over.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        let path = format!("{prefix}{name}");
        match entry.file_type() {
            FileType::Directory if depth < MOST_DEPTH => {
                // What vanished or changed meanwhile, or is closed to us, is not there.
                let Ok(below) = open_below(folder, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()) else {
                    continue;
                };
                complete &= visit(&below, &format!("{path}/"), depth + 1, most, wanted, found)?;
            }
            FileType::Directory => complete = false,
            FileType::RegularFile if wanted(&path) => {
                if found.len() == most {
                    return Ok(false);
                }
                // Not blocking, in case it became a pipe since it was listed; checked again on the open file.
                let flags = OFlags::RDONLY | OFlags::NONBLOCK;
                let Ok(file) = open_below(folder, name, flags, Mode::empty()).map(File::from) else { continue };
                if file.metadata()?.is_file() {
                    found.push((path, file));
                }
            }
            _ => {}
        }
    }
    Ok(complete)
}

/// Folders that every session has, as the TableMind documents name them. `shared` is for what the operator puts there.
const SESSION_FOLDERS: [&str; 3] = ["uploads", "outputs", "datasets"];

/// Makes the folders of a new session.
pub(crate) fn make_session_folders(disk: &OwnedFd, owner: Owner) -> rustix::io::Result<()> {
    let root = workspace(disk)?;
    for folder in SESSION_FOLDERS {
        make_folders(&root, owner, folder)?;
    }
    Ok(())
}

/// The workspace of a session while its code may run: nothing in it is trusted, and no link is followed.
#[derive(Clone)]
pub struct Workspace {
    disk: Arc<OwnedFd>,
    owner: Owner,
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

impl Workspace {
    pub(crate) fn new(disk: Arc<OwnedFd>, owner: Owner) -> Self {
        Self { disk, owner }
    }

    /// Opens a regular file for reading. Blocks.
    ///
    /// # Errors
    /// `NotFound` when there is none, `InvalidInput` when it is something else; a link is something else, also on the way to it.
    pub fn open(&self, path: &WorkspacePath) -> std::io::Result<File> {
        let root = workspace(&self.disk)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = File::from(open_below(&root, path.as_str(), flags, Mode::empty()).map_err(no_file)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
    }

    /// A new file that takes the place of what is there only when it is [`Upload::publish`]ed. Blocks.
    ///
    /// # Errors
    /// When a folder on the way cannot be made, for example because there is a file or link of that name.
    pub fn create(&self, path: &WorkspacePath) -> std::io::Result<Upload> {
        let root = workspace(&self.disk)?;
        let (folders, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
        let folder = make_folders(&root, self.owner, folders).map_err(no_file)?;
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
        let root = workspace(&self.disk)?;
        let (folders, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
        let folder = match folders {
            "" => root,
            _ => open_below(&root, folders, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).map_err(no_file)?,
        };
        remove_tree(&folder, name, 0)
    }

    /// What is in a folder (`""` for the workspace itself), with all below it if `recursive`; and whether that is everything. Blocks.
    ///
    /// # Errors
    /// `NotFound` when there is no such folder.
    pub fn list(&self, folder: &str, recursive: bool) -> std::io::Result<(Vec<Entry>, bool)> {
        let root = workspace(&self.disk)?;
        let (open, prefix) = match folder {
            "" => (root, String::new()),
            _ => {
                let flags = OFlags::DIRECTORY | OFlags::RDONLY;
                (open_below(&root, folder, flags, Mode::empty()).map_err(no_file)?, format!("{folder}/"))
            }
        };
        let mut entries = Vec::new();
        let complete = list_into(&open, &prefix, recursive.then_some(0), &mut entries)?;
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

/// A link on the way, or a file where a folder should be, is no such file.
fn no_file(error: Errno) -> std::io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR | Errno::XDEV => std::io::ErrorKind::NotFound.into(),
        other => other.into(),
    }
}

fn remove_tree(folder: &OwnedFd, name: &str, depth: usize) -> std::io::Result<()> {
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
            match remove_tree(&below, inner, depth + 1) {
                // Code that runs meanwhile may have removed it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
    }
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

/// Whether everything was seen. `depth` is `None` for this folder alone.
fn list_into(folder: &OwnedFd, prefix: &str, depth: Option<usize>, entries: &mut Vec<Entry>) -> std::io::Result<bool> {
    let mut complete = true;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        if entries.len() == MOST_ENTRIES {
            return Ok(false);
        }
        let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => "file",
            FileType::Directory => "folder",
            _ => "other",
        };
        let path = format!("{prefix}{name}");
        let modified = (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
        let size = if kind == "file" { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
        entries.push(Entry { path: path.clone(), kind, size, modified });
        if kind == "folder"
            && let Some(depth) = depth
        {
            match open_below(folder, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()) {
                Ok(below) if depth < MOST_DEPTH => {
                    complete &= list_into(&below, &format!("{path}/"), Some(depth + 1), entries)?;
                }
                _ => complete = false,
            }
        }
    }
    Ok(complete)
}

/// Whether the disk has no room left.
pub(crate) fn is_full(disk: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(disk).is_ok_and(|stat| stat.f_bavail == 0 || (stat.f_files > 0 && stat.f_favail == 0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn disk() -> (tempfile::TempDir, OwnedFd) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let fd = File::open(folder.path()).unwrap().into();
        (folder, fd)
    }

    fn input(path: &str, content: &'static str) -> InputFile {
        InputFile { path: WorkspacePath::parse(path).unwrap(), content: content.into() }
    }

    #[test]
    fn files_are_written_with_their_folders_under_their_own_names() {
        let (folder, disk) = disk();
        write_all(&disk, None, &[input("a/b/ä 表.txt", "x"), input("-rf", "y")]).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("data/a/b/ä 表.txt")).unwrap(), "x");
        assert_eq!(std::fs::read_to_string(folder.path().join("data/-rf")).unwrap(), "y");
    }

    #[test]
    fn a_link_in_the_workspace_is_neither_written_through_nor_read_through() {
        let (folder, disk) = disk();
        let outside = folder.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "host").unwrap();
        symlink(&outside, folder.path().join("data/dir")).unwrap();
        symlink(outside.join("secret"), folder.path().join("data/file")).unwrap();
        assert!(write_all(&disk, None, &[input("dir/new", "x")]).is_err());
        assert!(write_all(&disk, None, &[input("file", "x")]).is_err());
        assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "host");
        assert!(!outside.join("new").exists());
        let (found, complete) = find(&disk, 10, &|_| true).unwrap();
        assert!(found.is_empty() && complete, "{found:?}");
    }

    #[test]
    fn a_workspace_that_is_itself_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        symlink("/etc", folder.path().join("data")).unwrap();
        let disk: OwnedFd = File::open(folder.path()).unwrap().into();
        assert!(find(&disk, 10, &|_| true).is_err());
    }

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

    #[test]
    fn pipes_do_not_block_and_the_count_is_bounded() {
        let (folder, disk) = disk();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.path().join("data/pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        write_all(&disk, None, &[input("a", ""), input("b", ""), input("c", "")]).unwrap();
        assert!(
            write_all(&disk, None, &[input("pipe", "x")]).is_err(),
            "without a reader, and without waiting for one"
        );
        let reader =
            rustix::fs::open(folder.path().join("data/pipe"), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        assert!(write_all(&disk, None, &[input("pipe", "x")]).is_err(), "nor into one that is read");
        drop(reader);
        let (found, complete) = find(&disk, 2, &|_| true).unwrap();
        assert_eq!((found.len(), complete), (2, false));
    }
}
