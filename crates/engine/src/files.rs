//! Files of a sandbox's disk, touched from the host.
//!
//! The host never follows a path that a sandbox could have written: every step goes through `openat2` beneath the disk's own
//! descriptor, without symbolic links, without crossing mounts. What is no regular file is not read.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fchown, mkdirat, openat2, symlinkat,
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
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY;
    let file = open_below(&folder, name, flags, Mode::from_raw_mode(0o644))?;
    give(file.as_fd(), owner)?;
    File::from(file).write_all(content)
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
        let (found, complete) = find(&disk, 2, &|_| true).unwrap();
        assert_eq!((found.len(), complete), (2, false));
    }
}
