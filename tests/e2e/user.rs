//! The binary run by an ordinary user, with control groups that root has given to that user.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::server::{BINARY, images_dir};

/// An ordinary user that exists for this test only.
pub(crate) const USER_ID: u32 = 54_322;

/// Control groups of that user's, on either version.
pub(crate) struct Groups {
    folders: Vec<PathBuf>,
    /// Version 1: name of the folder in each hierarchy, for `process.cgroup_parent`.
    pub(crate) parent: Option<String>,
}

impl Groups {
    /// `for_what` tells them from those of other tests. Prints a skip where there can be none.
    pub(crate) fn prepare_for(for_what: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED ordinary user: only root can prepare control groups for another user");
            return None;
        }
        Self::prepare(for_what).inspect_err(|error| println!("SKIPPED ordinary user: {error}")).ok()
    }

    fn prepare(for_what: &str) -> std::io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("fumehood-{for_what}-{}-{number}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let unified = root.join("cgroup.controllers").exists();
        let mut folders = Vec::new();
        if unified {
            std::fs::write(root.join("cgroup.subtree_control"), "+memory +pids +cpu")?;
            folders.push(root.join(&name));
        } else {
            folders.extend(["memory", "pids", "cpu", "cpuacct"].map(|controller| root.join(controller).join(&name)));
        }
        for folder in &folders {
            std::fs::create_dir(folder)?;
            for file in [".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
                let path = folder.join(file);
                if path.exists() {
                    std::os::unix::fs::chown(path, Some(USER_ID), Some(USER_ID))?;
                }
            }
        }
        Ok(Self { folders, parent: (!unified).then_some(name) })
    }

    /// A command that becomes the user, inside these groups where the version asks for it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let user = USER_ID.to_string();
        let become_user =
            ["exec", "setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "env", "-i"].join(" ");
        let join = match &self.parent {
            None => format!("echo $$ > '{}/cgroup.procs' && ", self.folders[0].display()),
            Some(_) => String::new(),
        };
        let parent =
            self.parent.as_ref().map_or(String::new(), |parent| format!("FUMEHOOD_PROCESS__CGROUP_PARENT={parent}"));
        command
            .arg("-c")
            // As few descriptors as a login gives without anybody's doing.
            .arg(format!(
                "{join}ulimit -S -n 1024 && ulimit -H -n 4096 && {become_user} PATH=/usr/bin:/bin {parent} \"$@\""
            ))
            .arg("sh")
            .args(arguments);
        command
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for folder in &self.folders {
            let below = std::fs::read_dir(folder).into_iter().flatten().flatten();
            below.for_each(|entry| drop(std::fs::remove_dir(entry.path())));
            std::fs::remove_dir(folder).ok();
        }
    }
}

/// A folder of that user's, with the binary in it: where the tests' own lies is closed to others.
pub(crate) fn home() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::os::unix::fs::chown(folder.path(), Some(USER_ID), Some(USER_ID)).unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let binary = folder.path().join("fumehood");
    let copied = Command::new("cp").arg(BINARY).arg(&binary).status().unwrap();
    assert!(copied.success());
    (folder, binary)
}

/// The user with this binary, in a folder of theirs.
pub(crate) struct User {
    groups: Groups,
    folder: tempfile::TempDir,
}

impl User {
    /// # Errors
    /// Why there cannot be one.
    pub(crate) fn prepare() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can prepare control groups for another user".to_owned());
        }
        let groups = Groups::prepare("user").map_err(|error| error.to_string())?;
        Ok(Self { groups, folder: home().0 })
    }

    /// Runs the binary in the folder, with the user's data and the images of everybody.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let text = |path: &Path| path.display().to_string();
        let (binary, data) = (text(&self.folder.path().join("fumehood")), text(&self.folder.path().join("data")));
        let images = text(&images_dir());
        let (command, rest) = arguments.split_first().unwrap();
        let mut all = vec![binary.as_str(), command, "--data-dir", &data, "--images-dir", &images];
        all.extend(rest);
        self.groups.command(&all).current_dir(self.folder.path()).output().unwrap()
    }
}

#[test]
fn an_ordinary_user_gets_the_same_but_for_a_uid_per_sandbox_and_is_told_so() {
    let user = match User::prepare() {
        Ok(user) => user,
        Err(reason) => return println!("SKIPPED ordinary user: {reason}"),
    };
    let folder = &user.folder;
    std::fs::write(folder.path().join("in.csv"), "a,b\n1,2\n").unwrap();
    let code = "import pandas as pd, matplotlib.pyplot as plt, os\ndf = pd.read_csv('in.csv')\nplt.plot(df.a); plt.title('图'); plt.show()\n\
                df.to_csv('sub.csv'); os.makedirs('d'); open('d/x', 'w').write('deep')\nprint(os.getuid(), open('/dev/stdout', 'w').write('reopened\\n'))\ndf";
    let run = |code: &str, more: &[&str]| {
        let mut arguments = vec!["run", "--json", "--file", "in.csv", "-c", code];
        arguments.extend(more);
        user.run(&arguments)
    };
    let out = folder.path().join("out").display().to_string();
    let output = run(code, &["--out", &out]);
    let said = String::from_utf8_lossy(&output.stderr);
    let execution: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(execution["status"], "completed", "{execution}");
    assert_eq!((&execution["stdout"], &execution["stderr"]), (&"reopened\n1000 9\n".into(), &"".into()), "{execution}");
    assert_eq!(std::fs::read_to_string(folder.path().join("out/d/x")).unwrap(), "deep");
    assert!(folder.path().join("out/figure-1.png").exists());
    let uid = execution["isolation"]["features"]["host_uid"].as_str().unwrap();
    assert!(uid.contains("shared"), "{uid}");
    // Limits hold as for root.
    let execution: Value = serde_json::from_slice(&run("x = b'1' * (1 << 30)", &["--memory", "128"]).stdout).unwrap();
    assert_eq!(execution["outcome"], "oom_killed", "{execution}");
    let execution: Value =
        serde_json::from_slice(&run("import os\nwhile True: os.fork()", &["--processes", "16"]).stdout).unwrap();
    assert_eq!(execution["outcome"], "process_limit", "{execution}");
}
