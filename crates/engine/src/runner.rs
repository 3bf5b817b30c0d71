//! The guest runner, embedded in the binary and written out for sandboxes to mount.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};

use crate::hex::hex;
use crate::image::{Image, ImageKind};

static PACKAGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../guest/runner/fumehood_runner");
static START: &str = include_str!("../../../guest/runner/start.py");
static ZYGOTE: &str = include_str!("../../../guest/runner/zygote.py");
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libfumehood_zygote.so"));

/// What lies beside the package.
static BESIDE: [(&str, &[u8]); 3] =
    [("start.py", START.as_bytes()), ("zygote.py", ZYGOTE.as_bytes()), (LIBRARY_NAME, LIBRARY)];

/// The library that a preloaded interpreter loads, in the runner's folder.
pub(crate) const LIBRARY_NAME: &str = "libfumehood_zygote.so";

/// Writes the runner into a folder named by its content, beside the images, or in `data_dir` where images are read-only, and
/// returns that folder. What is there already stays: other servers on the same images may use it.
///
/// # Errors
/// When neither place can be written.
pub fn install(data_dir: &Path, image: &Image) -> io::Result<PathBuf> {
    let beside = image.folder.parent().unwrap_or(data_dir);
    install_below(beside, image).or_else(|_| install_below(data_dir, image))
}

fn install_below(parent: &Path, image: &Image) -> io::Result<PathBuf> {
    let modules: Vec<(&str, &[u8])> = PACKAGE
        .files()
        .filter_map(|file| Some((file.path().to_str()?, file.contents())))
        .filter(|(name, _)| name.ends_with(".py"))
        .collect();
    let mut hash = Sha256::new();
    for (name, content) in modules.iter().copied().chain(BESIDE) {
        hash.update(name);
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(content);
    }
    // Compiled modules belong to one interpreter.
    hash.update(&image.python_version);
    let hash = hex(&hash.finalize()[..8]);
    let folder = parent.join(format!(".runner-{hash}"));
    if folder.exists() {
        return Ok(folder);
    }
    let building = tempfile::Builder::new().prefix(".building-").tempdir_in(parent)?;
    let package = building.path().join("fumehood_runner");
    fs::create_dir(&package)?;
    for (name, content) in BESIDE {
        fs::write(building.path().join(name), content)?;
    }
    for (name, content) in modules {
        fs::write(package.join(name), content)?;
    }
    compile(building.path(), image);
    make_readable(building.path())?;
    match fs::rename(building.path(), &folder) {
        // Nothing of it is left to be removed.
        Ok(()) => drop(building.keep()),
        // Another process of this binary was faster; what was built here goes.
        Err(_) if folder.exists() => {}
        Err(error) => return Err(error),
    }
    Ok(folder)
}

/// Compiles the modules, which saves every sandbox from doing so. Only with the host's own interpreter: that of a foreign image
/// is not to be run here.
fn compile(folder: &Path, image: &Image) {
    if image.kind != ImageKind::Host {
        return;
    }
    let done = Command::new(image.folder.join("venv/bin/python"))
        .args(["-I", "-m", "compileall", "-q", "-p", "/opt/fumehood/runner", "-s"])
        .args([folder, folder])
        .env_clear()
        .output();
    match done {
        Ok(output) if output.status.success() => {}
        // Sandboxes start a little slower; nothing else is lost.
        other => tracing::warn!(?other, "the runner could not be compiled ahead"),
    }
}

/// Sandboxes run as another uid.
fn make_readable(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            make_readable(&path)?;
        } else {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
    }
    Ok(())
}
