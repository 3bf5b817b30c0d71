//! Other ways to start the same program from nothing: the interpreter alone, and where they are installed bubblewrap, docker, runc, runsc.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::json;

use super::plain::{Interpreter, timed_command};
use super::programs::Job;

/// Folders of the host that the interpreter needs; links such as `/bin` are made anew.
const FOLDERS: [&str; 2] = ["/usr", "/etc"];
const LINKS: [(&str, &str); 4] =
    [("usr/bin", "/bin"), ("usr/lib", "/lib"), ("usr/lib64", "/lib64"), ("usr/sbin", "/sbin")];
/// An image of nothing but those links.
const DOCKER_IMAGE: &str = "fumehood-bench:empty";

/// One other system.
pub(super) struct Other {
    pub(super) name: &'static str,
    kind: Kind,
    interpreter: Interpreter,
}

enum Kind {
    Alone,
    Bubblewrap,
    Docker,
    /// A bundle for an OCI runtime, in this folder.
    Bundle(PathBuf),
}

/// The interpreter with nothing around it.
pub(super) fn alone(interpreter: &Interpreter) -> Other {
    Other { name: "python3 -c", kind: Kind::Alone, interpreter: interpreter.clone() }
}

/// Each of the others, or why not.
pub(super) fn all(interpreter: &Interpreter, folder: &Path) -> Vec<Result<Other, String>> {
    let names = ["bwrap", "docker", "runc", "runsc"];
    names.into_iter().map(|name| find(name, interpreter, folder).map_err(|why| format!("{name}: {why:#}"))).collect()
}

fn find(name: &'static str, interpreter: &Interpreter, folder: &Path) -> anyhow::Result<Other> {
    if let Err(error) = Command::new(name).arg("--version").stdin(Stdio::null()).output() {
        match error.kind() {
            std::io::ErrorKind::NotFound => bail!("not installed"),
            _ => return Err(error).context("cannot be run"),
        }
    }
    let kind = match name {
        "bwrap" => Kind::Bubblewrap,
        "docker" => {
            docker_image(folder)?;
            Kind::Docker
        }
        _ => Kind::Bundle(folder.join(name)),
    };
    let other = Other { name, kind, interpreter: interpreter.clone() };
    let trial = Job { code: "print(1)".to_owned(), file: None, expected: "1\n".to_owned() };
    other.run(&trial).context("does not work here")?;
    Ok(other)
}

fn docker_image(folder: &Path) -> anyhow::Result<()> {
    let info = Command::new("docker").arg("info").stdin(Stdio::null()).output()?;
    if !info.status.success() {
        bail!("its service does not answer");
    }
    let root = folder.join("docker");
    fs::create_dir_all(&root)?;
    links(&root)?;
    let script = format!("tar -C \"$0\" -c . | docker import - {DOCKER_IMAGE}");
    let made = Command::new("sh").args(["-c", &script]).arg(&root).stdin(Stdio::null()).output()?;
    if !made.status.success() {
        bail!("an image cannot be made: {}", String::from_utf8_lossy(&made.stderr).trim());
    }
    Ok(())
}

fn links(root: &Path) -> anyhow::Result<()> {
    for (target, name) in LINKS {
        let link = root.join(name.trim_start_matches('/'));
        if !link.is_symlink() {
            std::os::unix::fs::symlink(target, link)?;
        }
    }
    Ok(())
}

impl Other {
    /// Milliseconds from nothing to the end of the program.
    ///
    /// # Errors
    /// When it does not print what is expected.
    pub(super) fn run(&self, job: &Job) -> anyhow::Result<f64> {
        let image = self.interpreter.image.display().to_string();
        let settings = self.interpreter.settings.display().to_string();
        let environment = self.interpreter.environment();
        let mut command = match &self.kind {
            Kind::Alone => {
                let mut command = self.interpreter.command();
                command.args(["-c", &job.code]);
                command
            }
            Kind::Bubblewrap => {
                let mut command = Command::new("bwrap");
                command.args(["--unshare-all", "--die-with-parent", "--clearenv", "--proc", "/proc", "--dev", "/dev"]);
                command.args(["--tmpfs", "/tmp"]);
                for source in FOLDERS.iter().copied().chain([image.as_str()]) {
                    command.args(["--ro-bind", source, source]);
                }
                command.args(["--bind", &settings, &settings]);
                for (target, name) in LINKS {
                    command.args(["--symlink", target, name]);
                }
                for (name, value) in &environment {
                    command.args(["--setenv", name, value]);
                }
                command.arg(&self.interpreter.program).args(["-B", "-c", &job.code]);
                command
            }
            Kind::Docker => {
                let mut command = Command::new("docker");
                command.args(["run", "--rm", "--network", "none", "--tmpfs", "/tmp"]);
                for source in FOLDERS.iter().copied().chain([image.as_str()]) {
                    command.args(["-v", &format!("{source}:{source}:ro")]);
                }
                command.args(["-v", &format!("{settings}:{settings}")]);
                for (name, value) in &environment {
                    command.args(["-e", &format!("{name}={value}")]);
                }
                command.arg(DOCKER_IMAGE).arg(&self.interpreter.program).args(["-B", "-c", &job.code]);
                command
            }
            Kind::Bundle(folder) => {
                self.write_bundle(folder, &job.code)?;
                let mut command = Command::new(self.name);
                if self.name == "runsc" {
                    command.args(["--network", "none", "--ignore-cgroups"]);
                }
                command.arg("--root").arg(folder.join("state")).args(["run", "--bundle"]).arg(folder);
                command.arg(format!("fumehood-bench-{}", std::process::id()));
                command
            }
        };
        timed_command(command.stdin(Stdio::null()), &job.expected)
    }

    /// Outside the clock: a user of such a runtime has it written before.
    fn write_bundle(&self, folder: &Path, code: &str) -> anyhow::Result<()> {
        let root = folder.join("rootfs");
        fs::create_dir_all(&root)?;
        links(&root)?;
        let image = self.interpreter.image.display().to_string();
        let settings = self.interpreter.settings.display().to_string();
        let bind = |path: &str, mode: &str| json!({"destination": path, "source": path, "type": "bind", "options": ["rbind", mode]});
        let file_system = |path: &str, kind: &str| json!({"destination": path, "source": kind, "type": kind});
        // `/tmp` first: the settings may lie below it.
        let mut mounts = vec![file_system("/tmp", "tmpfs"), file_system("/proc", "proc"), file_system("/dev", "tmpfs")];
        mounts.extend(FOLDERS.map(|path| bind(path, "ro")));
        mounts.extend([bind(&image, "ro"), bind(&settings, "rw")]);
        let environment: Vec<String> =
            self.interpreter.environment().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": {"uid": 0, "gid": 0},
                "args": [self.interpreter.program, "-B", "-c", code],
                "env": environment,
                "cwd": "/",
                "noNewPrivileges": true,
            },
            "root": {"path": "rootfs", "readonly": false},
            "mounts": mounts,
            "linux": {"namespaces": [
                {"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
            ]},
        });
        fs::write(folder.join("config.json"), config.to_string())?;
        Ok(())
    }
}
