//! Files that executions left, kept on the host's disk under names of our own.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use globset::GlobSet;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::execution::{Artifact, Notice};
use crate::files;
use crate::hex::hex;
use crate::ids::ExecutionId;

/// Most artifacts of one execution.
const MOST_FILES: usize = 1000;

/// What the smallest file takes of the host's disk.
const BLOCK: u64 = 4096;

/// Most files of an execution of which is told why they are not returned.
const MOST_TOLD: usize = 20;

/// What is told of files that are not returned.
#[derive(Debug, Default)]
struct Notices {
    told: Vec<String>,
    more: usize,
}

impl Notices {
    fn add(&mut self, message: String) {
        if self.told.len() < MOST_TOLD { self.told.push(message) } else { self.more += 1 }
    }

    fn told(mut self) -> Vec<Notice> {
        if self.more > 0 {
            self.told.push(format!("{} more files are not returned", self.more));
        }
        let notice = |message| Notice { code: "artifacts_incomplete".to_owned(), message };
        self.told.into_iter().map(notice).collect()
    }
}

/// The folder of artifacts: `<execution>/<index>`.
#[derive(Debug)]
pub struct ArtifactStore {
    folder: PathBuf,
    keep_bytes: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: u64,
    executions: VecDeque<(ExecutionId, u64)>,
}

impl ArtifactStore {
    /// Opens the folder. Executions are remembered in memory, so artifacts of an earlier process belong to nobody and are removed.
    ///
    /// # Errors
    /// When the folder cannot be made or read.
    pub fn open(folder: &Path, keep_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|name| ExecutionId::parse(name).is_some()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Self { folder: folder.to_owned(), keep_bytes, kept: Mutex::default() })
    }

    /// Copies the wanted files of a workspace, at most `max_bytes` together. Blocks.
    ///
    /// # Errors
    /// When the host's own disk fails; what the sandbox did to its files is never an error.
    pub(crate) fn collect(
        &self,
        id: &ExecutionId,
        disk: &OwnedFd,
        wanted: &GlobSet,
        max_bytes: u64,
    ) -> io::Result<(Vec<Artifact>, Vec<Notice>)> {
        let mut notices = Notices::default();
        let artifacts = self.copy_all(id, disk, wanted, max_bytes, &mut notices).inspect_err(|_| {
            // Nobody hears of them.
            self.delete(id);
        })?;
        self.remember(id, &artifacts);
        Ok((artifacts, notices.told()))
    }

    fn copy_all(
        &self,
        id: &ExecutionId,
        disk: &OwnedFd,
        wanted: &GlobSet,
        max_bytes: u64,
        notices: &mut Notices,
    ) -> io::Result<Vec<Artifact>> {
        let found = files::workspace(disk)
            .map_err(io::Error::from)
            .and_then(|workspace| Ok((workspace, files::find(disk, MOST_FILES, &|path| wanted.is_match(path))?)));
        let (workspace, (paths, complete)) = match found {
            Ok(found) => found,
            Err(error) => {
                notices.add(format!("the workspace could not be read: {error}"));
                return Ok(Vec::new());
            }
        };
        if !complete {
            notices.add(format!(
                "more than {MOST_FILES} files match, or their paths are too long or their folders too deep; the rest is not returned"
            ));
        }
        let folder = self.folder.join(id.as_str());
        let mut artifacts = Vec::new();
        let mut room = max_bytes;
        for path in paths {
            let file = match files::open_found(&workspace, &path) {
                Ok(Some(file)) => file,
                // It has vanished.
                Ok(None) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    notices.add(format!("{path} is in use inside the sandbox; it is not returned"));
                    continue;
                }
                Err(error) => {
                    notices.add(format!("{path} could not be read: {error}; it is not returned"));
                    continue;
                }
            };
            let size = file.metadata()?.len();
            if size > room {
                notices.add(format!(
                    "{path} has {size} bytes, more than is left of {max_bytes} for artifacts; it is not returned"
                ));
                continue;
            }
            if artifacts.is_empty() {
                fs::create_dir_all(&folder)?;
            }
            let (size, sha256) = copy(file, &folder.join(artifacts.len().to_string()), room)?;
            room -= size;
            let url = format!("/v1/executions/{id}/artifacts/{}", percent_encode(&path));
            let mime = mime_guess::from_path(&path).first_or_octet_stream().to_string();
            artifacts.push(Artifact { path, size, sha256, mime, url });
        }
        Ok(artifacts)
    }

    fn remember(&self, id: &ExecutionId, artifacts: &[Artifact]) {
        if artifacts.is_empty() {
            return;
        }
        // A file takes a block of the host's disk however little is in it.
        let bytes = artifacts.iter().map(|artifact| artifact.size.next_multiple_of(BLOCK).max(BLOCK)).sum();
        let mut kept = self.kept.lock();
        kept.bytes += bytes;
        kept.executions.push_back((id.clone(), bytes));
        while kept.bytes > self.keep_bytes && kept.executions.len() > 1 {
            let Some((oldest, bytes)) = kept.executions.pop_front() else { break };
            kept.bytes -= bytes;
            self.delete(&oldest);
        }
    }

    /// Opens an artifact by its position in the execution's list.
    ///
    /// # Errors
    /// `NotFound` when it was removed since.
    pub fn open_artifact(&self, id: &ExecutionId, index: usize) -> io::Result<File> {
        File::open(self.folder.join(id.as_str()).join(index.to_string()))
    }

    /// Removes the artifacts of an execution.
    pub(crate) fn remove(&self, id: &ExecutionId) {
        let mut kept = self.kept.lock();
        if let Some(position) = kept.executions.iter().position(|(kept, _)| kept == id) {
            if let Some((_, bytes)) = kept.executions.remove(position) {
                kept.bytes -= bytes;
            }
            self.delete(id);
        }
    }

    fn delete(&self, id: &ExecutionId) {
        let folder = self.folder.join(id.as_str());
        if let Err(error) = fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %folder.display(), %error, "artifacts could not be removed");
        }
    }
}

/// Copies at most `most` bytes; returns size and hash.
fn copy(mut from: File, to: &Path, most: u64) -> io::Result<(u64, String)> {
    let mut target = File::create_new(to)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    let mut size = 0;
    let mut limited = (&mut from).take(most);
    loop {
        let read = limited.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        target.write_all(&buffer[..read])?;
        size += read as u64;
    }
    Ok((size, hex(&hash.finalize())))
}

/// A path as it stands in a URL: everything but unreserved characters and `/` is encoded.
pub(crate) fn percent_encode(path: &str) -> String {
    path.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => text.push(byte as char),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use globset::{Glob, GlobSetBuilder};

    use super::*;
    use crate::ids::{IdSource, UlidSource};

    fn wanted(pattern: &str) -> GlobSet {
        GlobSetBuilder::new().add(Glob::new(pattern).unwrap()).build().unwrap()
    }

    #[test]
    fn artifacts_are_copied_hashed_and_the_oldest_go_first() {
        let (disk, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(disk.path().join("data")).unwrap();
        fs::write(disk.path().join("data/a b.csv"), "a\n1\n").unwrap();
        fs::write(disk.path().join("data/skip.txt"), "x").unwrap();
        let fd: OwnedFd = File::open(disk.path()).unwrap().into();
        let artifacts = ArtifactStore::open(store.path(), 5).unwrap();
        let (first, second) = (UlidSource.execution(), UlidSource.execution());
        let (found, notices) = artifacts.collect(&first, &fd, &wanted("*.csv"), 100).unwrap();
        assert_eq!((found.len(), found[0].size, notices.len()), (1, 4, 0));
        assert!(found[0].url.ends_with("/artifacts/a%20b.csv"), "{}", found[0].url);
        assert!(artifacts.open_artifact(&first, 0).is_ok());
        artifacts.collect(&second, &fd, &wanted("*.csv"), 100).unwrap();
        assert!(artifacts.open_artifact(&first, 0).is_err(), "the oldest is beyond the bound");
        assert!(artifacts.open_artifact(&second, 0).is_ok());
    }

    #[test]
    fn empty_files_count_and_are_removed_like_others_and_of_many_a_thousand_are_returned() {
        let (disk, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(disk.path().join("data")).unwrap();
        for number in 0..=MOST_FILES {
            File::create(disk.path().join(format!("data/{number}"))).unwrap();
        }
        let fd: OwnedFd = File::open(disk.path()).unwrap().into();
        let artifacts = ArtifactStore::open(store.path(), 4 << 20).unwrap();
        let (first, second) = (UlidSource.execution(), UlidSource.execution());
        let (found, notices) = artifacts.collect(&first, &fd, &wanted("*"), 100).unwrap();
        assert_eq!((found.len(), notices.len()), (MOST_FILES, 1));
        artifacts.collect(&second, &fd, &wanted("*"), 100).unwrap();
        assert!(artifacts.open_artifact(&first, 0).is_err(), "two thousand blocks are more than is kept");
        artifacts.remove(&second);
        assert_eq!(fs::read_dir(store.path()).unwrap().count(), 0);
    }

    #[test]
    fn of_many_files_that_are_not_returned_some_are_told() {
        let mut notices = Notices::default();
        (0..100).for_each(|number| notices.add(number.to_string()));
        let told = notices.told();
        assert_eq!((told.len(), told[20].message.as_str()), (21, "80 more files are not returned"));
    }

    #[test]
    fn a_file_beyond_the_room_is_left_out_and_told() {
        let (disk, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(disk.path().join("data")).unwrap();
        fs::write(disk.path().join("data/big"), "0123456789").unwrap();
        let fd: OwnedFd = File::open(disk.path()).unwrap().into();
        let artifacts = ArtifactStore::open(store.path(), 100).unwrap();
        let (found, notices) = artifacts.collect(&UlidSource.execution(), &fd, &wanted("*"), 5).unwrap();
        assert!(found.is_empty());
        assert_eq!(notices[0].code, "artifacts_incomplete");
    }
}
