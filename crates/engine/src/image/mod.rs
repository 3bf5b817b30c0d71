//! Images: the files a sandbox sees.
//!
//! `<images>/<name>` is a link to a folder of one version, with a manifest `image.json`. Building makes a new folder and moves the link in
//! one step; a folder stays for as long as a server has it open. Kind `host` shows the host's own `/usr` read-only and adds a
//! virtual environment of locked packages at `/opt/venv`; kind `rootfs` is a root file system of its own.

mod host;
mod rootfs;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fumehood_jail::protocol::RootEntry;
use serde::{Deserialize, Serialize};

pub use host::{HostImage, build_host};
pub use rootfs::build_rootfs;

/// Name of the manifest in an image's folder.
const MANIFEST: &str = "image.json";

/// How folders in which something is being built begin.
const BUILDING: &str = ".building-";

/// Version of the manifest and of how images are built; another one means that an image is stale.
const FORMAT: u32 = 1;

/// Name of the image that is used unless told otherwise.
pub const DEFAULT_IMAGE: &str = "default";

/// Kind of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageKind {
    /// The host's `/usr` and a virtual environment.
    Host,
    /// A root file system of its own.
    Rootfs,
}

/// The manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    name: String,
    kind: ImageKind,
    /// Changes whenever anything it was built from changes.
    fingerprint: String,
    python: String,
    python_version: String,
    env: BTreeMap<String, String>,
    path: Vec<String>,
    entries: Vec<RootEntry>,
    matplotlib_links: Vec<(String, String)>,
    runs_typescript: bool,
    /// Things the operator should know, for example that no font draws Chinese.
    notes: Vec<String>,
}

/// An image that is ready to be used.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its folder on the host.
    pub folder: PathBuf,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: ImageKind,
    /// Hash of what it was built from.
    pub fingerprint: String,
    /// Path of the interpreter inside.
    pub python: String,
    /// Version of the interpreter.
    pub python_version: String,
    /// Environment of every sandbox.
    pub env: BTreeMap<String, String>,
    /// What the root consists of.
    pub entries: Vec<RootEntry>,
    /// Links to put into matplotlib's configuration folder: name and target.
    pub matplotlib_links: Vec<(String, String)>,
    /// Whether Node.js runs TypeScript.
    pub runs_typescript: bool,
    /// Things the operator should know.
    pub notes: Vec<String>,
    /// Folders searched for programs, inside.
    path: Vec<String>,
    /// The manifest, locked: its folder is not removed while this lives.
    _open: Arc<File>,
}

/// An image cannot be used or built.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// There is none of this name.
    #[error("there is no image {name:?} in {folder}; build it with `fumehood image build`")]
    Missing {
        /// Its name.
        name: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// It was built by another version or its manifest is damaged.
    #[error("image {name:?} cannot be used ({why}); build it anew with `fumehood image build`")]
    Stale {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// Building failed.
    #[error("{step} failed: {why}")]
    Build {
        /// What was being done.
        step: String,
        /// Why, with the end of what the command printed.
        why: String,
    },
    /// The name cannot be that of a folder.
    #[error("{0:?} is no name for an image: letters, digits, '.', '_' and '-', not beginning with a dot")]
    Name(String),
    /// The host's file system said no.
    #[error("{path}")]
    Io {
        /// About which path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl ImageError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    fn build(step: &str, why: impl Into<String>) -> Self {
        Self::Build { step: step.to_owned(), why: why.into() }
    }
}

/// Folder of an image.
///
/// # Errors
/// When the name would lead elsewhere.
pub fn folder_of(images_dir: &Path, name: &str) -> Result<PathBuf, ImageError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.chars().all(plain) {
        return Err(ImageError::Name(name.to_owned()));
    }
    Ok(images_dir.join(name))
}

impl Image {
    /// Reads an image.
    ///
    /// # Errors
    /// When there is none, or it was built by another version.
    pub fn open(images_dir: &Path, name: &str) -> Result<Self, ImageError> {
        let link = folder_of(images_dir, name)?;
        let missing = || ImageError::Missing { name: name.to_owned(), folder: images_dir.to_owned() };
        // The folder of this version; where the link leads later does not matter.
        let folder = match link.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            other => other.map_err(ImageError::io(&link))?,
        };
        let manifest = folder.join(MANIFEST);
        let mut open = match File::open(&manifest) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            other => other.map_err(ImageError::io(&manifest))?,
        };
        open.lock_shared().map_err(ImageError::io(&manifest))?;
        let mut text = String::new();
        open.read_to_string(&mut text).map_err(ImageError::io(&manifest))?;
        let stale = |why: String| ImageError::Stale { name: name.to_owned(), why };
        let manifest: Manifest = serde_json::from_str(&text).map_err(|error| stale(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(stale(format!("its format is {}, this version uses {FORMAT}", manifest.format)));
        }
        Ok(Self {
            folder,
            name: manifest.name,
            kind: manifest.kind,
            fingerprint: manifest.fingerprint,
            python: manifest.python,
            python_version: manifest.python_version,
            env: manifest.env,
            entries: manifest.entries,
            matplotlib_links: manifest.matplotlib_links,
            runs_typescript: manifest.runs_typescript,
            notes: manifest.notes,
            path: manifest.path,
            _open: Arc::new(open),
        })
    }

    /// Whether this is still what its name stands for.
    ///
    /// # Errors
    /// When nothing is there under that name.
    pub fn is_current(&self, images_dir: &Path) -> Result<bool, ImageError> {
        let link = folder_of(images_dir, &self.name)?;
        Ok(link.canonicalize().map_err(ImageError::io(&link))? == self.folder)
    }

    /// Every image of a folder, by name; damaged ones are left out.
    #[must_use]
    pub fn list(images_dir: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(images_dir) else { return Vec::new() };
        let mut images: Vec<_> =
            entries.flatten().filter_map(|entry| Self::open(images_dir, entry.file_name().to_str()?).ok()).collect();
        images.sort_by(|a, b| a.name.cmp(&b.name));
        images
    }

    /// Path inside of a program; one given by path is taken as it is.
    #[must_use]
    pub fn find_program(&self, name: &str) -> Option<String> {
        if name.contains('/') {
            return Some(name.to_owned());
        }
        self.path.iter().map(|folder| format!("{folder}/{name}")).find(|path| self.host_path(path).is_some())
    }

    /// Python packages that are installed in it, by normalized name, with their versions: what stands beside them on disk, read from the host.
    #[must_use]
    pub fn packages(&self) -> BTreeMap<String, String> {
        let prefix = Path::new(&self.python).parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
        // A virtual environment sees nothing but itself; the system's Python also what was installed beside it.
        let mut prefixes = vec![prefix];
        if prefix == Path::new("/usr") {
            prefixes.push(Path::new("/usr/local"));
        }
        let folders = prefixes.iter().filter_map(|prefix| self.host_path(&prefix.join("lib").display().to_string()));
        let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let pythons = folders.flat_map(entries).filter(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python3"))
        });
        let sites = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
        let installed = sites.flat_map(entries).filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            let (package, version) = name.strip_suffix(".dist-info")?.split_once('-')?;
            Some((crate::template::normalized(package), version.to_owned()))
        });
        installed.collect()
    }

    /// Where a path of the image is on the host, following the image's own links at the top.
    fn host_path(&self, inside: &str) -> Option<PathBuf> {
        for entry in &self.entries {
            let found = match entry {
                RootEntry::Bind { source, target } => below(inside, target).map(|rest| Path::new(source).join(rest)),
                RootEntry::Symlink { to, at } => {
                    let Some(rest) = below(inside, at) else { continue };
                    return self.host_path(&format!("/{}/{}", to.trim_start_matches('/'), rest.display()));
                }
                RootEntry::File { .. } | RootEntry::Dir { .. } => None,
            };
            // A link counts as there: where it leads inside may not be there on the host.
            if let Some(found) = found.filter(|path| path.symlink_metadata().is_ok()) {
                return Some(found);
            }
        }
        None
    }
}

/// The rest of `path` below `folder`.
fn below<'a>(path: &'a str, folder: &str) -> Option<&'a Path> {
    Path::new(path).strip_prefix(folder).ok()
}

impl Manifest {
    fn write(&self, folder: &Path) -> Result<(), ImageError> {
        let path = folder.join(MANIFEST);
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| ImageError::build("writing the manifest", error.to_string()))?;
        fs::write(&path, text + "\n").map_err(ImageError::io(&path))
    }
}

/// Files of `/etc` that every image gets: who the one user is and where names come from.
fn basic_etc() -> Vec<RootEntry> {
    let file = |at: &str, text: &str| RootEntry::File { at: at.to_owned(), text: text.to_owned() };
    vec![
        file(
            "/etc/passwd",
            "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
        ),
        file("/etc/group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n"),
        file("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"),
        // No name server: look-ups beyond this file fail at once.
        file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"),
        file("/etc/hostname", "sandbox\n"),
    ]
}

/// Other names of the workspace, and folders that programs expect.
fn common_places() -> Vec<RootEntry> {
    let link = |at: &str| RootEntry::Symlink { to: crate::spec::WORKSPACE.to_owned(), at: at.to_owned() };
    let mut entries: Vec<_> = crate::spec::WORKSPACE_ALIASES.iter().map(|alias| link(alias)).collect();
    entries.extend(["/run", "/proc", "/dev"].map(|at| RootEntry::Dir { at: at.to_owned() }));
    entries
}

/// The folder of a version that is about to be built.
fn version_folder(images_dir: &Path, name: &str, fingerprint: &str) -> Result<PathBuf, ImageError> {
    let link = folder_of(images_dir, name)?;
    let parent = link.parent().unwrap_or(images_dir);
    let parent = parent.canonicalize().map_err(ImageError::io(parent))?;
    // A forced build of the same things is another version too.
    let number = std::process::id();
    Ok(parent.join(format!(".{name}-{}-{number}", &fingerprint[..12.min(fingerprint.len())])))
}

/// A folder to build a version in, readable by the sandboxes' uids.
fn building_folder(images_dir: &Path) -> Result<tempfile::TempDir, ImageError> {
    let folder =
        tempfile::Builder::new().prefix(BUILDING).tempdir_in(images_dir).map_err(ImageError::io(images_dir))?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).map_err(ImageError::io(folder.path()))?;
    Ok(folder)
}

/// Makes a finished folder the image of this name, in one step, and removes versions that nobody has open.
fn publish(images_dir: &Path, name: &str, building: &Path, folder: &Path) -> Result<(), ImageError> {
    let link = folder_of(images_dir, name)?;
    // Open until the link leads to it: another build must not take it for one that nobody needs.
    let manifest = building.join(MANIFEST);
    let open = File::open(&manifest).map_err(ImageError::io(&manifest))?;
    open.lock_shared().map_err(ImageError::io(&manifest))?;
    fs::rename(building, folder).map_err(ImageError::io(folder))?;
    let next = folder.with_extension("link");
    std::os::unix::fs::symlink(folder, &next).map_err(ImageError::io(&next))?;
    fs::rename(&next, &link).map_err(ImageError::io(&link))?;
    prune(images_dir);
    Ok(())
}

/// Takes an image away; sandboxes and servers that have it open keep it until they end.
///
/// # Errors
/// When there is none.
pub fn remove(images_dir: &Path, name: &str) -> Result<(), ImageError> {
    drop(Image::open(images_dir, name)?);
    let link = folder_of(images_dir, name)?;
    fs::remove_file(&link).map_err(ImageError::io(&link))?;
    prune(images_dir);
    Ok(())
}

/// Removes versions that no link leads to and nobody has open, and what broken-off builds left. Failing at it is no failure of what was
/// asked for: the next build tries again.
fn prune(images_dir: &Path) {
    const BROKEN_OFF: Duration = Duration::from_secs(24 * 3600);
    let paths = || fs::read_dir(images_dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let linked: Vec<PathBuf> =
        paths().filter(|path| path.is_symlink()).filter_map(|link| link.canonicalize().ok()).collect();
    for path in paths().filter(|path| !path.is_symlink()) {
        let (Some(name), Ok(real)) = (path.file_name().and_then(|name| name.to_str()), path.canonicalize()) else {
            continue;
        };
        let unused = !linked.contains(&real)
            && !name.starts_with(BUILDING)
            && File::open(path.join(MANIFEST)).is_ok_and(|manifest| manifest.try_lock().is_ok());
        let modified = path.metadata().and_then(|metadata| metadata.modified()).ok();
        let abandoned = name.starts_with(BUILDING)
            && modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > BROKEN_OFF);
        if (unused || abandoned) && fs::remove_dir_all(&path).is_err() {
            tracing::warn!(folder = %path.display(), "could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leads_out_of_the_folder() {
        for bad in ["", ".", "..", "a/b", ".hidden", "a\0", "x\n"] {
            assert!(folder_of(Path::new("/images"), bad).is_err(), "{bad:?}");
        }
        assert_eq!(folder_of(Path::new("/images"), "data-1.2").unwrap(), Path::new("/images/data-1.2"));
    }

    fn publish_version(images: &Path, image: &str, fingerprint: &str) -> PathBuf {
        let building = images.join(".building-x");
        fs::create_dir(&building).unwrap();
        let manifest = Manifest {
            format: FORMAT,
            name: image.to_owned(),
            kind: ImageKind::Rootfs,
            fingerprint: fingerprint.to_owned(),
            python: String::new(),
            python_version: String::new(),
            env: BTreeMap::new(),
            path: Vec::new(),
            entries: Vec::new(),
            matplotlib_links: Vec::new(),
            runs_typescript: false,
            notes: Vec::new(),
        };
        manifest.write(&building).unwrap();
        let folder = version_folder(images, image, fingerprint).unwrap();
        publish(images, image, &building, &folder).unwrap();
        folder
    }

    #[test]
    fn a_version_stays_while_it_is_open_and_goes_with_the_next_build_after() {
        let images = tempfile::tempdir().unwrap();
        let first = publish_version(images.path(), "x", "first-first-first");
        let open = Image::open(images.path(), "x").unwrap();
        let second = publish_version(images.path(), "x", "second-second-second");
        assert_eq!(Image::open(images.path(), "x").unwrap().fingerprint, "second-second-second");
        assert!(first.exists() && open.folder.join(MANIFEST).exists(), "it is in use");
        drop(open);
        publish_version(images.path(), "x", "third-third-third");
        assert!(!first.exists() && !second.exists());
        remove(images.path(), "x").unwrap();
        assert!(Image::open(images.path(), "x").is_err());
        assert_eq!(fs::read_dir(images.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_image_survives_builds_of_others_with_a_similar_name_and_folders_reached_by_a_link() {
        let real = tempfile::tempdir().unwrap();
        let images = real.path().join("images");
        fs::create_dir(real.path().join("store")).unwrap();
        std::os::unix::fs::symlink(real.path().join("store"), &images).unwrap();
        publish_version(&images, "a-b", "first-first-first");
        publish_version(&images, "a", "second-second-second");
        assert_eq!(Image::list(&images).iter().map(|image| image.name.as_str()).collect::<Vec<_>>(), ["a", "a-b"]);
    }

    #[test]
    fn a_missing_image_says_how_to_build_it() {
        let images = tempfile::tempdir().unwrap();
        let error = Image::open(images.path(), "default").unwrap_err();
        assert!(error.to_string().contains("fumehood image build"), "{error}");
    }
}
