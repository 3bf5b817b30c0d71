//! Going through a folder that a sandbox may change at any time.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::open_below;

/// Deepest folder entered.
pub(super) const MOST_DEPTH: usize = 32;

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
        // Not blocking, in case it became a pipe since it was met; checked again on the open file.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let Ok(file) = open_below(self.folder, self.name, flags, Mode::empty()).map(File::from) else {
            return Ok(None);
        };
        Ok(file.metadata()?.is_file().then_some(file))
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
    let mut complete = true;
    let ended = walk_from(folder, prefix, 0, visit, &mut complete)?;
    Ok(complete && !ended)
}

/// Whether the walk was stopped.
fn walk_from(
    folder: &OwnedFd,
    prefix: &str,
    depth: usize,
    visit: &mut dyn FnMut(&Found<'_>) -> std::io::Result<Step>,
    complete: &mut bool,
) -> std::io::Result<bool> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        // A name that is no UTF-8 cannot be told in JSON; the file is passed over.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let found = Found { folder, name, path: format!("{prefix}{name}"), kind, stat };
        match visit(&found)? {
            Step::Stop => return Ok(true),
            Step::Enter if depth < MOST_DEPTH => {
                // What vanished or changed meanwhile, or is closed to us, is not there.
                match open_below(folder, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()) {
                    Ok(below) => {
                        if walk_from(&below, &format!("{}/", found.path), depth + 1, visit, complete)? {
                            return Ok(true);
                        }
                    }
                    Err(_) => *complete = false,
                }
            }
            Step::Enter => *complete = false,
            Step::Pass => {}
        }
    }
    Ok(false)
}
