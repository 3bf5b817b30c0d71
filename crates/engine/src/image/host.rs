//! Kind `host`: the host's `/usr` read-only, a reasoned list of `/etc`, and a virtual environment of locked packages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fumehood_jail::protocol::RootEntry;
use sha2::{Digest, Sha256};

use crate::hex::hex;

use super::{
    FORMAT, Image, ImageError, ImageKind, Manifest, basic_etc, building_folder, common_places, folder_of, publish,
    version_folder,
};

/// The locked packages, for CPython 3.11 to 3.14.
const REQUIREMENTS: &str = include_str!("../../../../image/requirements.txt");
const PREPARE_FONTS: &str = include_str!("../../../../image/prepare_fonts.py");
const MATPLOTLIBRC: &str = include_str!("../../../../image/matplotlibrc");

/// Where the virtual environment appears.
const VENV: &str = "/opt/venv";
/// Where matplotlib's prepared files appear.
const MATPLOTLIB: &str = "/opt/fumehood/matplotlib";

/// Top-level folders that are links into `/usr` on merged systems and folders of their own elsewhere.
const FRIENDS_OF_USR: [&str; 7] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec"];

/// What of the host's `/etc` is shown, and why. Nothing else is.
const ETC: [(&str, &str); 10] = [
    ("/etc/alternatives", "links that programs of /usr go through"),
    ("/etc/fonts", "fontconfig's list of fonts"),
    ("/etc/ld.so.cache", "where libraries are"),
    ("/etc/ld.so.conf", "the same, for tools that rebuild the cache"),
    ("/etc/ld.so.conf.d", "the same"),
    ("/etc/ssl/certs", "public certificates, which libraries load when imported"),
    ("/etc/ssl/openssl.cnf", "defaults of the TLS library"),
    ("/etc/mime.types", "names of media types"),
    ("/etc/protocols", "names of protocols"),
    ("/etc/services", "names of services and their ports, for getaddrinfo"),
];

/// How to build a host image.
#[derive(Debug, Clone)]
pub struct HostImage {
    /// Its name.
    pub name: String,
    /// The host's interpreter, below `/usr`.
    pub python: PathBuf,
    /// Build even if nothing has changed.
    pub force: bool,
}

/// Builds the image, or finds it current. `say` is told each step.
///
/// # Errors
/// When a step fails; the old image, if any, stays.
pub fn build_host(images_dir: &Path, wanted: &HostImage, say: &mut dyn FnMut(&str)) -> Result<Image, ImageError> {
    folder_of(images_dir, &wanted.name)?;
    let python = interpreter(&wanted.python)?;
    let version = python_version(&python)?;
    let fingerprint = fingerprint(&python, &version);
    if !wanted.force
        && let Ok(image) = Image::open(images_dir, &wanted.name)
        && image.fingerprint == fingerprint
    {
        say(&format!("image {:?} is current ({})", wanted.name, image.folder.display()));
        return Ok(image);
    }
    fs::create_dir_all(images_dir).map_err(ImageError::io(images_dir))?;
    let folder = version_folder(images_dir, &wanted.name, &fingerprint)?;
    let building = building_folder(images_dir)?;
    let venv = building.path().join("venv");
    let venv_text = venv.display().to_string();

    say(&format!("creating a virtual environment with {} ({version})", python.display()));
    run(
        "creating the virtual environment (is python3-venv installed?)",
        Command::new(&python).args(["-m", "venv"]).arg(&venv),
    )?;
    let requirements = building.path().join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS).map_err(ImageError::io(&requirements))?;
    say("installing the locked packages");
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--no-input",
        "--disable-pip-version-check",
        "--require-hashes",
        "-r",
    ]);
    run("installing the locked packages", pip.arg(&requirements))?;
    say("compiling them");
    let mut compile = Command::new(venv.join("bin/python"));
    compile.args(["-m", "compileall", "-q", "-f", "-j", "0", "-s", &venv_text, "-p", VENV]).arg(venv.join("lib"));
    run("compiling the packages", &mut compile)?;
    relocate(&venv, &venv_text)?;
    say("preparing fonts");
    let (matplotlib_links, notes) = prepare_fonts(building.path(), &venv)?;

    let manifest = Manifest {
        format: FORMAT,
        name: wanted.name.clone(),
        kind: ImageKind::Host,
        fingerprint,
        python: format!("{VENV}/bin/python"),
        python_version: version,
        env: BTreeMap::from([
            ("PATH".to_owned(), format!("{VENV}/bin:/usr/local/bin:/usr/bin:/bin")),
            ("VIRTUAL_ENV".to_owned(), VENV.to_owned()),
        ]),
        path: [&format!("{VENV}/bin"), "/usr/local/bin", "/usr/bin", "/bin"].map(str::to_owned).to_vec(),
        entries: entries(&folder),
        matplotlib_links,
        runs_typescript: node_runs_typescript(),
        notes: notes.clone(),
    };
    manifest.write(building.path())?;
    publish(images_dir, &wanted.name, &building.keep(), &folder)?;
    notes.iter().for_each(|note| say(&format!("note: {note}")));
    say(&format!("image {:?} is ready ({})", wanted.name, folder.display()));
    Image::open(images_dir, &wanted.name)
}

/// The interpreter's own path, which must be visible inside.
fn interpreter(given: &Path) -> Result<PathBuf, ImageError> {
    let real = given.canonicalize().map_err(ImageError::io(given))?;
    if real.starts_with("/usr") {
        return Ok(real);
    }
    let why = format!(
        "{} lies outside /usr, which is all of the host that a sandbox sees; install python3 from the distribution or pass --python",
        real.display()
    );
    Err(ImageError::build("choosing the interpreter", why))
}

fn python_version(python: &Path) -> Result<String, ImageError> {
    let print = "import sys; assert sys.version_info >= (3, 11), 'Python 3.11 or later is needed'; print('%d.%d.%d' % sys.version_info[:3])";
    let output = run("asking the interpreter for its version", Command::new(python).args(["-I", "-c", print]))?;
    Ok(output.trim().to_owned())
}

/// Runs a command in a clean environment; what it printed on standard output.
fn run(step: &str, command: &mut Command) -> Result<String, ImageError> {
    // The operator's settings for pip (an index of their own, a proxy) are theirs to make and stay; those that would mix the
    // operator's own packages in do not.
    for name in [
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "VIRTUAL_ENV",
        "PIP_REQUIRE_VIRTUALENV",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_USER",
    ] {
        command.env_remove(name);
    }
    let output = command.output().map_err(|error| ImageError::build(step, error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = printed.lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n");
    Err(ImageError::build(step, format!("{}\n{tail}", output.status)))
}

/// Everything the image is made from.
fn fingerprint(python: &Path, version: &str) -> String {
    let mut hash = Sha256::new();
    for part in [&FORMAT.to_string(), REQUIREMENTS, PREPARE_FONTS, MATPLOTLIBRC, version, &python.display().to_string()]
    {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    // Fonts and Node.js installed later change what the image can do.
    for folder in ["/usr/share/fonts", "/usr/local/share/fonts"] {
        list_names(Path::new(folder), 0, &mut |name| hash.update(name));
    }
    hash.update(node_version().unwrap_or_default());
    let entries = serde_json::to_vec(&entries(Path::new(""))).unwrap_or_default();
    hash.update(entries);
    hex(&hash.finalize())
}

fn list_names(folder: &Path, depth: usize, tell: &mut dyn FnMut(&[u8])) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        tell(path.as_os_str().as_encoded_bytes());
        if depth < 8 && path.is_dir() {
            list_names(&path, depth + 1, tell);
        }
    }
}

/// Rewrites the path it was built at to the one it appears at.
fn relocate(venv: &Path, built_at: &str) -> Result<(), ImageError> {
    let mut files = vec![venv.join("pyvenv.cfg")];
    let bin = venv.join("bin");
    for entry in fs::read_dir(&bin).map_err(ImageError::io(&bin))? {
        let path = entry.map_err(ImageError::io(&bin))?.path();
        if path.symlink_metadata().map_err(ImageError::io(&path))?.is_file() {
            files.push(path);
        }
    }
    for path in files {
        // Native programs are no text and hold no path.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if text.contains(built_at) {
            fs::write(&path, text.replace(built_at, VENV)).map_err(ImageError::io(&path))?;
        }
    }
    Ok(())
}

/// What became of the fonts: links for matplotlib's configuration folder (name and target), and notes for the operator.
type Fonts = (Vec<(String, String)>, Vec<String>);

fn prepare_fonts(building: &Path, venv: &Path) -> Result<Fonts, ImageError> {
    let folder = building.join("matplotlib");
    fs::create_dir(&folder).map_err(ImageError::io(&folder))?;
    let link = |name: &str| (name.to_owned(), format!("{MATPLOTLIB}/{name}"));
    let rc = folder.join("matplotlibrc");
    fs::write(&rc, MATPLOTLIBRC).map_err(ImageError::io(&rc))?;
    let script = building.join("prepare_fonts.py");
    fs::write(&script, PREPARE_FONTS).map_err(ImageError::io(&script))?;
    let made = run("preparing fonts", Command::new(venv.join("bin/python")).arg("-I").arg(&script).arg(&folder));
    match made {
        Ok(printed) => {
            let name = Path::new(printed.trim()).file_name().and_then(|name| name.to_str()).unwrap_or_default();
            Ok((vec![link("matplotlibrc"), link(name)], Vec::new()))
        }
        // Charts work without; only some labels do not. The operator is told, here and by every start of the server.
        Err(error) => {
            let note = format!(
                "charts cannot draw Chinese, Japanese or Korean: {error}; install fonts-noto-cjk and build again"
            );
            Ok((Vec::new(), vec![note]))
        }
    }
}

fn entries(folder: &Path) -> Vec<RootEntry> {
    let bind = |source: String, target: &str| RootEntry::Bind { source, target: target.to_owned() };
    let mut entries = vec![bind("/usr".to_owned(), "/usr")];
    for path in FRIENDS_OF_USR {
        match fs::read_link(path) {
            Ok(to) => entries.push(RootEntry::Symlink { to: to.display().to_string(), at: path.to_owned() }),
            Err(_) if Path::new(path).is_dir() => entries.push(bind(path.to_owned(), path)),
            Err(_) => {}
        }
    }
    for (path, _why) in ETC {
        if Path::new(path).exists() {
            entries.push(bind(path.to_owned(), path));
        }
    }
    entries.extend(basic_etc());
    entries.extend(common_places());
    entries.push(bind(folder.join("venv").display().to_string(), VENV));
    entries.push(bind(folder.join("matplotlib").display().to_string(), MATPLOTLIB));
    entries
}

/// Version of the host's Node.js, if a sandbox can see it.
fn node_version() -> Option<String> {
    let node = ["/usr/local/bin/node", "/usr/bin/node"].into_iter().find(|path| Path::new(path).exists())?;
    run("asking Node.js for its version", Command::new(node).arg("--version")).ok()
}

fn node_runs_typescript() -> bool {
    node_version().is_some_and(|version| typescript_since(&version))
}

/// Types are stripped from 22.6 on, without a flag from 22.18 and 23.6 on.
fn typescript_since(version: &str) -> bool {
    let mut parts = version.trim().trim_start_matches('v').split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    matches!((parts.next().unwrap_or(0), parts.next().unwrap_or(0)), (22, 18..) | (23, 6..) | (24.., _))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_home_root_or_the_rest_of_etc_is_shown() {
        for entry in entries(Path::new("/images/default")) {
            let RootEntry::Bind { source, .. } = entry else { continue };
            let known = source == "/usr"
                || FRIENDS_OF_USR.contains(&source.as_str())
                || ETC.iter().any(|(path, _)| *path == source)
                || source.starts_with("/images/default/");
            assert!(known, "{source}");
        }
    }

    #[test]
    fn an_interpreter_outside_usr_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python3");
        fs::write(&python, "").unwrap();
        assert!(interpreter(&python).unwrap_err().to_string().contains("--python"));
    }

    #[test]
    fn typescript_needs_a_node_that_strips_types_unasked() {
        assert!(!typescript_since("v20.20.2") && !typescript_since("v22.17.0") && !typescript_since(""));
        assert!(typescript_since("v22.18.0\n") && typescript_since("v24.0.1"));
    }
}
