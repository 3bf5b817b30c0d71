//! Kind `rootfs`: a root file system of its own, from a folder or a tar archive.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use fumehood_jail::protocol::RootEntry;
use sha2::{Digest, Sha256};

use crate::hex::hex;

use super::{
    FORMAT, Image, ImageError, ImageKind, Manifest, basic_etc, building_folder, common_places, publish, version_folder,
};

/// Top-level names that a sandbox makes for itself.
const OURS: [&str; 10] = ["proc", "dev", "sys", "tmp", "data", "workspace", "mnt", "run", "home", "root"];

/// Where programs are looked for.
const PATH: [&str; 6] = ["/opt/venv/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/bin", "/sbin", "/bin"];

/// Builds the image from a folder or a tar archive (compressed or not); a folder is copied, so that later changes to it do not
/// change the image.
///
/// # Errors
/// When the source cannot be read or has no Python.
pub fn build_rootfs(
    images_dir: &Path,
    name: &str,
    from: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<Image, ImageError> {
    fs::create_dir_all(images_dir).map_err(ImageError::io(images_dir))?;
    let fingerprint = fingerprint(from);
    let folder = version_folder(images_dir, name, &fingerprint)?;
    let building = building_folder(images_dir)?;
    let rootfs = building.path().join("rootfs");
    fs::create_dir(&rootfs).map_err(ImageError::io(&rootfs))?;
    say(&format!("unpacking {}", from.display()));
    unpack(from, &rootfs)?;

    let entries = entries(&rootfs, &folder.join("rootfs"))?;
    let python = PATH
        .iter()
        .flat_map(|folder| [format!("{folder}/python"), format!("{folder}/python3")])
        .find(|path| inside(&rootfs, path))
        .ok_or_else(|| ImageError::build("looking for Python", format!("there is none in {}", PATH.join(", "))))?;
    let manifest = Manifest {
        format: FORMAT,
        name: name.to_owned(),
        kind: ImageKind::Rootfs,
        fingerprint,
        python,
        // Its interpreter is not run on the host, so its version is not known before the first sandbox.
        python_version: "unknown".to_owned(),
        env: BTreeMap::from([("PATH".to_owned(), PATH.join(":"))]),
        path: PATH.map(str::to_owned).to_vec(),
        entries,
        matplotlib_links: Vec::new(),
        runs_typescript: false,
        notes: vec!["Python of a root file system needs the package ipython".to_owned()],
    };
    manifest.write(building.path())?;
    publish(images_dir, name, &building.keep(), &folder)?;
    manifest.notes.iter().for_each(|note| say(&format!("note: {note}")));
    say(&format!("image {name:?} is ready ({})", folder.display()));
    Image::open(images_dir, name)
}

/// With the system's tar and cp, which know compressions and special files; both keep below the target (tar refuses `..` and
/// absolute names, and follows no link it made).
fn unpack(from: &Path, rootfs: &Path) -> Result<(), ImageError> {
    let mut command = if from.is_dir() {
        let mut command = Command::new("cp");
        command.args(["-a", "--no-preserve=ownership", "--reflink=auto", "--"]).arg(from.join(".")).arg(rootfs);
        command
    } else {
        let mut command = Command::new("tar");
        // Device files and foreign owners have no place here; everything must be readable by other uids.
        command.args(["--extract", "--no-same-owner", "--exclude=dev/*", "--exclude=./dev/*", "--file"]).arg(from);
        command.arg("--directory").arg(rootfs);
        command
    };
    let output = command.output().map_err(|error| ImageError::build("unpacking", error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(ImageError::build("unpacking", String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn entries(rootfs: &Path, final_place: &Path) -> Result<Vec<RootEntry>, ImageError> {
    let mut entries = Vec::new();
    let mut names: Vec<_> = fs::read_dir(rootfs)
        .map_err(ImageError::io(rootfs))?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !OURS.contains(&name.as_str()))
        .collect();
    names.sort();
    for name in names {
        let (path, at) = (rootfs.join(&name), format!("/{name}"));
        let kind = path.symlink_metadata().map_err(ImageError::io(&path))?;
        match name.as_str() {
            // One by one, so that the sandbox can put files of its own beside them.
            "etc" => entries.extend(children(&path, &final_place.join("etc"), "/etc")?),
            "opt" => entries.extend(children(&path, &final_place.join("opt"), "/opt")?),
            // The sandbox's own temporary folder is mounted there.
            "var" => {}
            _ if kind.is_symlink() => {
                let to = fs::read_link(&path).map_err(ImageError::io(&path))?;
                entries.push(RootEntry::Symlink { to: to.display().to_string(), at });
            }
            _ if kind.is_dir() => {
                entries.push(RootEntry::Bind { source: final_place.join(&name).display().to_string(), target: at });
            }
            _ => {}
        }
    }
    entries.extend(basic_etc());
    entries.extend(common_places());
    Ok(entries)
}

/// What lies in a folder of the image, but for what is ours.
fn children(folder: &Path, final_place: &Path, inside: &str) -> Result<Vec<RootEntry>, ImageError> {
    let ours = basic_etc();
    let is_ours = |at: &str| {
        // A resolver's configuration would only make look-ups wait.
        at == "/etc/resolv.conf"
            || at == "/opt/fumehood"
            || ours.iter().any(|entry| matches!(entry, RootEntry::File { at: other, .. } if other == at))
    };
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(ImageError::io(folder))?.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let at = format!("{inside}/{name}");
        if is_ours(&at) {
            continue;
        }
        if entry.path().is_symlink() {
            if let Ok(to) = fs::read_link(entry.path()) {
                entries.push(RootEntry::Symlink { to: to.display().to_string(), at });
            }
        } else {
            entries.push(RootEntry::Bind { source: final_place.join(&name).display().to_string(), target: at });
        }
    }
    Ok(entries)
}

/// Whether a path is there, following links as inside the image for one step at the top (`/bin -> usr/bin`).
fn inside(rootfs: &Path, path: &str) -> bool {
    let relative = path.trim_start_matches('/');
    let (top, rest) = relative.split_once('/').unwrap_or((relative, ""));
    let top = match fs::read_link(rootfs.join(top)) {
        Ok(to) => rootfs.join(to.strip_prefix("/").unwrap_or(&to)),
        Err(_) => rootfs.join(top),
    };
    top.join(rest).symlink_metadata().is_ok()
}

fn fingerprint(from: &Path) -> String {
    let mut hash = Sha256::new();
    hash.update(from.as_os_str().as_encoded_bytes());
    if let Ok(meta) = from.metadata() {
        hash.update(meta.len().to_be_bytes());
    }
    hex(&hash.finalize())
}
