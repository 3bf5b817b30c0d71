//! Going through a folder that a sandbox may change at any time.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::open_below;

/// Deepest folder entered.
pub(super) const MOST_DEPTH: usize = 32;

/// Most that a walk meets: more than a disk can have, so that code which makes new files all the time does not keep it going for ever.
pub(super) const MOST_MET: usize = 2 << 20;

/// Something in a folder, as it was when it was met. No link was followed.
pub(super) struct Found<'a> {
    folder: &'a OwnedFd,
    name: &'a str,
    /// From where the walk began.
    pub(super) path: String,
    pub(super) kind: FileType,
    stat: Stat,
}

impl Found<'_> {
    /// Bytes.
    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// Seconds since 1970 and nanoseconds.
    pub(super) fn modified(&self) -> (i64, u32) {
        (self.stat.st_mtime, u32::try_from(self.stat.st_mtime_nsec).unwrap_or(0))
    }

    /// Opens it for reading; `None` when it is no regular file any more, has vanished, or is closed to us.
    pub(super) fn open(&self) -> std::io::Result<Option<File>> {
        open_regular(self.folder, self.name)
    }
}

/// Opens what was a regular file when it was met. A lease that code in the sandbox holds on it is an error (`WouldBlock`): it is there, and may not be read yet.
pub(super) fn open_regular(folder: &OwnedFd, path: &str) -> std::io::Result<Option<File>> {
    // Checked again on the open file.
    match open_below(folder, path, OFlags::RDONLY, Mode::empty()).map(File::from) {
        Ok(file) => Ok(file.metadata()?.is_file().then_some(file)),
        Err(Errno::AGAIN) => Err(std::io::ErrorKind::WouldBlock.into()),
        Err(_) => Ok(None),
    }
}

/// How a walk goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Into this folder.
    Enter,
    /// With what comes next.
    Pass,
    /// Not at all.
    Stop,
}

/// Shows `visit` everything in `folder`, whose paths are to begin with `prefix`; a folder comes before what is in it. Whether everything was seen.
pub(super) fn walk(
    folder: &OwnedFd,
    prefix: &str,
    visit: &mut dyn FnMut(&Found<'_>) -> std::io::Result<Step>,
) -> std::io::Result<bool> {
    let mut walk = Walk { visit, complete: true, left: MOST_MET };
    let ended = walk.go(folder, prefix, 0)?;
    Ok(walk.complete && !ended)
}

struct Walk<'a> {
    visit: &'a mut dyn FnMut(&Found<'_>) -> std::io::Result<Step>,
    complete: bool,
    left: usize,
}

impl Walk<'_> {
    /// Whether the walk was stopped.
    fn go(&mut self, folder: &OwnedFd, prefix: &str, depth: usize) -> std::io::Result<bool> {
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            // A name that is no UTF-8 cannot be told in JSON; the file is passed over.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            if self.left == 0 {
                return Ok(true);
            }
            self.left -= 1;
            let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let found = Found { folder, name, path: format!("{prefix}{name}"), kind, stat };
            match (self.visit)(&found)? {
                Step::Stop => return Ok(true),
                Step::Enter if depth < MOST_DEPTH => {
                    // What vanished or changed meanwhile, or is closed to us, is not there.
                    match open_below(folder, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()) {
                        Ok(below) => {
                            if self.go(&below, &format!("{}/", found.path), depth + 1)? {
                                return Ok(true);
                            }
                        }
                        Err(_) => self.complete = false,
                    }
                }
                Step::Enter => self.complete = false,
                Step::Pass => {}
            }
        }
        Ok(false)
    }
}
