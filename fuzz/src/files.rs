use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Cursor, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use fumehood_engine::files::{ArchiveFormat, Workspace};
use fumehood_engine::fuzzing::{find, make_standing_folders, workspace, write_all};
use fumehood_engine::spec::{InputFile, WorkspacePath};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::Source;

const SECRET: &[u8] = b"of the host";
/// Deeper than the host goes into folders.
const DEEP: usize = 40;

/// A workspace in which code does what it likes while the host reads, writes, lists, packs and removes: the host never leaves it.
pub fn files(data: &[u8]) {
    let mut source = Source::new(data);
    let place = tempfile::tempdir().expect("a folder");
    let (disk, outside) = (place.path().join("disk"), place.path().join("outside"));
    for folder in [&outside, &disk, &disk.join("data"), &disk.join("home")] {
        fs::create_dir(folder).expect("a folder");
    }
    fs::write(outside.join("secret"), SECRET).expect("a file");
    let opened: Arc<OwnedFd> = Arc::new(File::open(&disk).expect("it is there").into());
    let host = Host { workspace: workspace(Arc::clone(&opened)), disk: opened };
    let code = Code { data: disk.join("data"), outside: outside.clone() };

    for _ in 0..24 {
        if source.is_empty() {
            break;
        }
        let act = source.byte();
        if act & 0x80 == 0 { code.act(act, &mut source) } else { host.act(act, &mut source) }
    }
    host.archives();

    let names = |folder: &Path| -> Vec<_> {
        let mut names: Vec<_> =
            fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&outside), ["secret"]);
    assert_eq!(fs::read(outside.join("secret")).expect("it is there"), SECRET);
    assert_eq!(
        (names(place.path()), names(&disk)),
        (vec!["disk".into(), "outside".into()], vec!["data".into(), "home".into()])
    );
}

/// The side of the sandbox.
struct Code {
    data: PathBuf,
    outside: PathBuf,
}

impl Code {
    /// A place in the workspace that is reached without a link, so that this program itself does not leave it.
    fn place(&self, source: &mut Source<'_>) -> Option<PathBuf> {
        let mut path = self.data.clone();
        for _ in 0..source.byte() % 3 {
            path.push(source.choose(&["a", "b", "uploads"]));
        }
        let folder = path.canonicalize().ok().filter(|real| {
            *real == self.data.canonicalize().unwrap_or_default().join(path.strip_prefix(&self.data).unwrap_or(&path))
        })?;
        let name = match source.byte() % 8 {
            0 => source.text().replace(['/', '\0'], "_"),
            other => ["a", "b", "link", "uploads", "outputs", ".upload-1-0", "x y"][usize::from(other - 1)].to_owned(),
        };
        Some(folder.join(Path::new(&name).file_name()?))
    }

    fn act(&self, act: u8, source: &mut Source<'_>) {
        let Some(path) = self.place(source) else { return };
        // Nothing here has to succeed.
        match act % 8 {
            0 | 1 => drop(fs::create_dir(&path)),
            2 | 3 => {
                let target = match source.byte() % 6 {
                    0 => self.outside.clone(),
                    1 => self.outside.join("secret"),
                    2 => "../../outside/secret".into(),
                    3 => "/etc/passwd".into(),
                    4 => ".".into(),
                    _ => "/proc/self/root".into(),
                };
                drop(symlink(target, &path));
            }
            4 => drop(mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0)),
            5 => {
                // Through no link: the harness is not the sandbox.
                if !path.is_symlink() && (path.is_file() || !path.exists()) {
                    drop(fs::write(&path, source.part()));
                }
            }
            6 => {
                if let Some(to) = self.place(source) {
                    drop(fs::rename(&path, to));
                }
            }
            // Again through no link.
            _ if path.is_symlink() => {}
            _ => {
                let mut path = path;
                for _ in 0..DEEP {
                    drop(fs::create_dir(&path));
                    path.push("d");
                }
            }
        }
    }
}

/// The side of the host.
struct Host {
    workspace: Workspace,
    disk: Arc<OwnedFd>,
}

impl Host {
    fn act(&self, act: u8, source: &mut Source<'_>) {
        let text = match source.byte() % 8 {
            0 => source.text(),
            other => {
                ["a", "a/b", "link", "link/secret", "a/link/x", "uploads/y", "x y"][usize::from(other - 1)].to_owned()
            }
        };
        let Ok(path) = WorkspacePath::parse(&text) else { return };
        match act % 8 {
            0 => {
                let content = source.part();
                let file = InputFile { path: path.clone(), content: content.to_vec().into() };
                if write_all(&self.disk, &[file]).is_ok() {
                    assert_eq!(self.read(&path).as_deref(), Some(content));
                }
            }
            1 => {
                let content = source.part();
                let Ok(upload) = self.workspace.create(&path) else { return };
                upload.file().write_all(content).expect("there is room");
                if upload.publish().is_ok() {
                    assert_eq!(self.read(&path).as_deref(), Some(content));
                }
            }
            2 => drop(self.workspace.create(&path)),
            3 => {
                self.read(&path);
            }
            4 => {
                if self.workspace.remove(&path).is_ok() {
                    assert!(self.read(&path).is_none());
                }
            }
            5 => {
                if let Ok((entries, _)) = self.workspace.list(path.as_str(), source.byte() & 1 != 0) {
                    let below = format!("{}/", path.as_str());
                    assert!(entries.iter().all(|entry| entry.path.starts_with(&below)), "{entries:?}");
                }
            }
            6 => make_standing_folders(&self.disk, "uploads outputs datasets"),
            _ => {
                let most = usize::from(source.byte() % 8);
                let Ok((found, _)) = find(&self.disk, most) else { return };
                assert!(found.len() <= most);
                for (_, mut file) in found {
                    of_the_sandbox(&mut file);
                }
            }
        }
    }

    fn read(&self, path: &WorkspacePath) -> Option<Vec<u8>> {
        Some(of_the_sandbox(&mut self.workspace.open(path).ok()?))
    }

    /// Both forms say what a listing says, and nothing that a link leads to.
    fn archives(&self) {
        let (entries, complete) = self.workspace.list("", true).expect("there is a workspace");
        let files = entries.iter().filter(|entry| entry.kind != "other");
        let listed: Vec<(String, u64)> = files.map(|entry| (entry.path.clone(), entry.size)).collect();
        let packed = |format| {
            let mut bytes = Vec::new();
            self.workspace.archive("").and_then(|archive| archive.write(format, &mut bytes)).map(|()| bytes)
        };
        let tar = packed(ArchiveFormat::TarGz).map(|bytes| from_tar(&bytes));
        let zip = packed(ArchiveFormat::Zip).map(from_zip);
        let listed: BTreeMap<String, u64> = listed.into_iter().collect();
        // A folder that is too deep is left out everywhere.
        assert!(complete || listed.keys().any(|path| path.matches('/').count() >= 32), "{listed:?}");
        for archive in [tar.expect("a tar file"), zip.expect("a zip file")] {
            let sizes: BTreeMap<String, u64> =
                archive.iter().map(|(path, content)| (path.clone(), content.len() as u64)).collect();
            assert_eq!(sizes, listed);
            assert!(archive.values().all(|content| content != SECRET));
        }
    }
}

fn of_the_sandbox(file: &mut File) -> Vec<u8> {
    assert!(file.metadata().expect("it is open").is_file());
    let mut content = Vec::new();
    file.read_to_end(&mut content).expect("it can be read");
    assert_ne!(content, SECRET);
    content
}

type Content = BTreeMap<String, Vec<u8>>;

fn from_tar(bytes: &[u8]) -> Content {
    let mut archive = tar::Archive::new(GzDecoder::new(bytes));
    let entries = archive.entries().expect("it is a tar file").map(|entry| {
        let mut entry = entry.expect("an entry");
        let path = String::from_utf8(entry.path_bytes().into_owned()).expect("a name in UTF-8");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("it can be read");
        (path.trim_end_matches('/').to_owned(), content)
    });
    entries.collect()
}

fn from_zip(bytes: Vec<u8>) -> Content {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).expect("it is a zip file");
    let entries = (0..archive.len()).map(|index| {
        let mut entry = archive.by_index(index).expect("an entry");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("it can be read");
        (entry.name().expect("a name").trim_end_matches('/').to_owned(), content)
    });
    entries.collect()
}
