//! Files of a sandbox's disk, touched from the host.
//!
//! The host never follows a path that a sandbox could have written: every step goes through `openat2` beneath the disk's own
//! descriptor, without symbolic links, without crossing mounts. What is no regular file is not read.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fchown, mkdirat, openat2, symlinkat,
};
use rustix::io::Errno;

use crate::spec::{InputFile, WorkspacePath};

mod archive;
mod walk;
mod workspace;

pub use archive::{Archive, ArchiveFormat};
pub use workspace::{Entry, MOST_ENTRIES, Upload, Workspace};

use walk::{Found, Step, walk};

/// Folder of the workspace on a disk.
pub(crate) const DATA: &str = "data";
/// Folder of the home on a disk.
const HOME: &str = "home";

/// Owner to give to files, when this process is not the sandbox's user itself.
pub(crate) type Owner = Option<(u32, u32)>;

fn resolve() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV
}

/// How often a file is tried that the kernel asks to try again: a rename elsewhere may have raced with its check. Not for ever, since it answers the same
/// for as long as a program holds a lease on the file.
const TRIES: usize = 8;

/// Opens below `folder`, never anywhere else, and without waiting for anybody: a pipe has no other end, a program does not give back its lease on a file
/// (`AGAIN`).
fn open_below(folder: impl AsFd, path: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let mut flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // A name alone is not opened, and takes no such flag.
    if !flags.contains(OFlags::PATH) {
        flags |= OFlags::NONBLOCK;
    }
    let mut tries = 0;
    loop {
        match openat2(folder.as_fd(), path, flags, mode, resolve()) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
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
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY;
    let opened = open_below(&folder, name, flags, Mode::from_raw_mode(0o644)).map_err(|error| match error {
        Errno::AGAIN => std::io::Error::new(
            std::io::ErrorKind::WouldBlock,
            format!("{} is in use inside the sandbox", path.as_str()),
        ),
        other => other.into(),
    })?;
    // It may be a pipe that code of a session has made, with a reader.
    let mut file = File::from(opened);
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

/// Longest paths of found files together, in bytes.
const MOST_FOUND_TEXT: usize = 1 << 20;

/// Paths of the regular files of the workspace that are wanted, in order, at most `most`; and whether these are all. Links, devices, pipes and sockets are passed over.
pub(crate) fn find(disk: &OwnedFd, most: usize, wanted: &dyn Fn(&str) -> bool) -> std::io::Result<(Vec<String>, bool)> {
    let (mut files, mut text) = (Vec::new(), 0);
    let complete = walk(&workspace(disk)?, "", &mut |found: &Found<'_>| {
        match found.kind {
            FileType::Directory => return Ok(Step::Enter),
            FileType::RegularFile if wanted(&found.path) => {}
            _ => return Ok(Step::Pass),
        }
        text += found.path.len();
        if files.len() == most || text > MOST_FOUND_TEXT {
            return Ok(Step::Stop);
        }
        files.push(found.path.clone());
        Ok(Step::Pass)
    })?;
    files.sort();
    Ok((files, complete))
}

/// Opens one of them; `None` when it has vanished meanwhile.
///
/// # Errors
/// `WouldBlock` when it is in use inside the sandbox.
pub(crate) fn open_found(workspace: &OwnedFd, path: &str) -> std::io::Result<Option<File>> {
    walk::open_regular(workspace, path)
}

/// Folders of a workspace that code of TableMind takes for granted. They are made when code speaks of them, so that a workspace in which nothing was put is
/// empty.
const STANDING_FOLDERS: [&str; 3] = ["uploads", "outputs", DATASETS];
/// The one of them that is the operator's, where the operator has one of that name.
const DATASETS: &str = "datasets";

/// Makes the standing folders that `code` speaks of.
///
/// What code has put in their place stays, and a workspace without room gets none: the code then says what it misses.
pub(crate) fn make_standing_folders(disk: &OwnedFd, owner: Owner, shared: Option<&OwnedFd>, code: &str) {
    for folder in STANDING_FOLDERS.into_iter().filter(|folder| code.contains(folder)) {
        let Ok(root) = workspace(disk) else { return };
        let operators = |shared: &&OwnedFd| open_below(shared, folder, OFlags::PATH, Mode::empty()).is_ok();
        if folder == DATASETS && shared.filter(operators).is_some() {
            symlinkat(format!("{}/{folder}", workspace::SHARED), &root, folder).ok();
        } else {
            make_folders(&root, owner, folder).ok();
        }
    }
}

/// Whether the disk has no room left.
pub(crate) fn is_full(disk: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(disk).is_ok_and(|stat| stat.f_bavail == 0 || (stat.f_files > 0 && stat.f_favail == 0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    pub(super) fn disk() -> (tempfile::TempDir, OwnedFd) {
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
    fn standing_folders_are_there_for_code_that_speaks_of_them() {
        let (folder, disk) = disk();
        let names = || {
            let mut names: Vec<_> = std::fs::read_dir(folder.path().join("data"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        make_standing_folders(&disk, None, None, "print(1)");
        assert!(names().is_empty());
        std::fs::write(folder.path().join("data/uploads"), "a file").unwrap();
        make_standing_folders(&disk, None, None, "open('/data/outputs/x', 'w'); open('uploads/y')");
        assert_eq!(names(), ["outputs", "uploads"]);
        std::fs::create_dir(folder.path().join("datasets")).unwrap();
        make_standing_folders(&disk, None, Some(&disk), "read('datasets/z')");
        assert_eq!(std::fs::read_link(folder.path().join("data/datasets")).unwrap().to_str(), Some("shared/datasets"));
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
        assert!(open_found(&workspace(&disk).unwrap(), "pipe").unwrap().is_none());
        assert!(open_found(&workspace(&disk).unwrap(), "gone").unwrap().is_none());
    }
}
