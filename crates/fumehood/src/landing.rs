//! A folder of this machine into which files of a sandbox are written.
//!
//! Their names come from the sandbox, through a server that need not be trusted either. Every step below the folder goes through descriptors and
//! never through a link, names that are not plain are refused, and a file has its own name only when it is whole.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::escape::escaped;

/// A folder to write into.
pub(crate) struct Landing {
    folder: OwnedFd,
    path: PathBuf,
}

/// A file on its way; gone when dropped before [`Arriving::keep`].
pub(crate) struct Arriving {
    /// Where to write.
    pub(crate) file: File,
    folder: OwnedFd,
    temporary: Option<String>,
    name: String,
    path: PathBuf,
}

impl Landing {
    /// Opens a folder that the user named, made if it is missing.
    ///
    /// # Errors
    /// When it cannot be made or opened.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let here = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        std::fs::create_dir_all(here).with_context(|| format!("cannot make {}", here.display()))?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(here, flags, Mode::empty())
            .map_err(io::Error::from)
            .with_context(|| format!("cannot open {}", here.display()))?;
        Ok(Self { folder, path: path.to_owned() })
    }

    /// Makes a folder and those on the way to it.
    ///
    /// # Errors
    /// When a name is not plain, or something else is there.
    pub(crate) fn make(&self, relative: &str) -> anyhow::Result<()> {
        self.walk(&plain_parts(relative)?, relative).map(drop)
    }

    /// A new file that takes its place when it is kept. What is there, a link too, is replaced then and not written to.
    ///
    /// # Errors
    /// When a name is not plain, or what is there is no file.
    pub(crate) fn create(&self, relative: &str) -> anyhow::Result<Arriving> {
        let mut parts = plain_parts(relative)?;
        let name = parts.pop().unwrap_or_default();
        let folder = self.walk(&parts, relative)?;
        let path = self.path.join(relative);
        let failed = |error: Errno| anyhow!(io::Error::from(error)).context(format!("cannot write {}", named(&path)));
        match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Err(Errno::NOENT) | Ok(FileType::RegularFile | FileType::Symlink) => {}
            Ok(FileType::Directory) => bail!("cannot write {}: a folder is there", named(&path)),
            Ok(_) => bail!("cannot write {}: what is there is no regular file", named(&path)),
            Err(error) => return Err(failed(error)),
        }
        // Beside it, so that the rename stays on one file system; the name is nobody else's.
        let temporary = format!(".fumehood-{:016x}.part", fastrand::u64(..));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&folder, temporary.as_str(), flags, Mode::from_raw_mode(0o666)).map_err(failed)?;
        Ok(Arriving { file: file.into(), folder, temporary: Some(temporary), name: name.to_owned(), path })
    }

    /// Opens the folder of these names, each made if it is missing, none of them a link.
    fn walk(&self, parts: &[&str], whole: &str) -> anyhow::Result<OwnedFd> {
        let failed = |error: Errno| {
            let cause = match error {
                Errno::LOOP | Errno::NOTDIR => anyhow!("a link or a file is in the way"),
                other => io::Error::from(other).into(),
            };
            cause.context(format!("cannot make the folder of {}", named(&self.path.join(whole))))
        };
        let mut folder = self.folder.try_clone()?;
        for part in parts {
            match mkdirat(&folder, *part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            folder = openat(&folder, *part, flags, Mode::empty()).map_err(failed)?;
        }
        Ok(folder)
    }
}

impl Arriving {
    /// Gives the file its name; it must be whole. Where it is now.
    ///
    /// # Errors
    /// When something else has taken the place.
    pub(crate) fn keep(mut self) -> anyhow::Result<PathBuf> {
        if let Some(temporary) = &self.temporary {
            renameat(&self.folder, temporary.as_str(), &self.folder, self.name.as_str())
                .map_err(io::Error::from)
                .with_context(|| format!("cannot write {}", named(&self.path)))?;
            self.temporary = None;
        }
        Ok(std::mem::take(&mut self.path))
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // It has no name that anybody asked for; nothing better can be done with a failure.
            unlinkat(&self.folder, temporary.as_str(), AtFlags::empty()).ok();
        }
    }
}

/// A path as it may be shown.
pub(crate) fn named(path: &Path) -> String {
    escaped(&path.to_string_lossy()).into_owned()
}

/// The names of a relative path, each of them plain.
fn plain_parts(path: &str) -> anyhow::Result<Vec<&str>> {
    let parts: Vec<_> = path.split('/').collect();
    let plain = |part: &&str| {
        let one = Path::new(OsStr::new(part)).components().eq([std::path::Component::Normal(OsStr::new(part))]);
        one && !part.contains('\0')
    };
    if !parts.iter().all(plain) {
        bail!("{} is no plain relative path; it is not written", escaped(path));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(landing: &Landing, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let mut arriving = landing.create(name)?;
        arriving.file.write_all(text.as_bytes())?;
        arriving.keep()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_plain_relative_paths_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        let landing = Landing::open(&inside).unwrap();
        for bad in ["", "/", "/etc/x", "..", "../x", "a/../../x", "a//b", "a/", "./a", ".", "a/./b", "a\0b", "a/..\0"] {
            assert!(landing.create(bad).is_err(), "{bad:?}");
            assert!(landing.make(bad).is_err(), "{bad:?}");
        }
        assert_eq!(names(folder.path()), ["inside"]);
        for good in ["a", "b/c", "...", "..a", "-rf", "a b", "ä", "x\u{1b}[31m", "back\\slash", "~"] {
            assert!(write(&landing, good, "x").unwrap().starts_with(&inside), "{good:?}");
        }
    }

    #[test]
    fn no_link_is_followed_on_the_way_or_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("victim"), "precious").unwrap();
        let landing = Landing::open(&inside).unwrap();
        symlink(&outside, inside.join("way")).unwrap();
        symlink(outside.join("victim"), inside.join("end")).unwrap();
        assert!(write(&landing, "way/new", "x").is_err());
        assert!(landing.make("way/new").is_err());
        write(&landing, "end", "new").unwrap();
        assert_eq!(names(&outside), ["victim"]);
        assert_eq!(std::fs::read_to_string(outside.join("victim")).unwrap(), "precious");
        assert_eq!(std::fs::read_to_string(inside.join("end")).unwrap(), "new");
    }

    #[test]
    fn a_file_that_does_not_arrive_whole_leaves_nothing_and_the_old_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let landing = Landing::open(folder.path()).unwrap();
        write(&landing, "f", "old").unwrap();
        let mut half = landing.create("f").unwrap();
        half.file.write_all(b"ne").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("f")).unwrap(), "old");
        drop(half);
        assert_eq!(names(folder.path()), ["f"]);
        assert_eq!(std::fs::read_to_string(folder.path().join("f")).unwrap(), "old");
    }

    #[test]
    fn what_is_no_file_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let landing = Landing::open(folder.path()).unwrap();
        landing.make("folder").unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(landing.create("folder").is_err() && landing.create("pipe").is_err() && landing.make("pipe").is_err());
    }
}
