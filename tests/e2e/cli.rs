//! The command line without a server: `run`, `image`, `config`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::server::{BINARY, images_dir};

/// `fumehood run` in a folder of its own; `None` with a printed skip where this host cannot confine processes.
struct Cli {
    data: tempfile::TempDir,
}

impl Cli {
    fn new() -> Self {
        Self { data: tempfile::tempdir().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(["run", "--data-dir"]).arg(self.data.path()).arg("--images-dir").arg(images_dir()).args(arguments);
        command.current_dir(self.data.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Option<Output> {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("cannot confine") {
            println!("SKIPPED process level: {said}");
            return None;
        }
        Some(output)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.data.path().join(name), text).unwrap();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

macro_rules! ran {
    ($cli:expr, $($argument:expr),*) => {
        match $cli.run(&[$($argument),*]) {
            Some(output) => output,
            None => return,
        }
    };
}

#[test]
fn the_exit_code_is_the_programs_own_or_says_what_ended_it() {
    let cli = Cli::new();
    for (code, flags, expected) in [
        ("1", &[][..], 0),
        ("import sys; sys.exit(7)", &[], 7),
        ("import os; os._exit(4)", &[], 4),
        ("1/0", &[], 1),
        ("while True: pass", &["--timeout", "0.5"], 124),
        ("x = b'1' * (1 << 30)", &["--memory", "128"], 137),
        ("import os; os.kill(os.getpid(), 15)", &[], 128 + 15),
        ("import ctypes; ctypes.string_at(0)", &[], 128 + 11),
        ("open('f', 'wb').write(b'1' * (20 << 20))", &["--disk", "5"], 125),
    ] {
        let arguments: Vec<_> = ["-c", code].into_iter().chain(flags.iter().copied()).collect();
        let Some(output) = cli.run(&arguments) else { return };
        assert_eq!(output.status.code(), Some(expected), "{code}: {}", text(&output.stderr));
    }
}

#[test]
fn output_and_the_last_value_are_printed_and_errors_explained() {
    let cli = Cli::new();
    let output = ran!(cli, "-c", "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6*7");
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("out\n42\n", "err\n"));
    let output = ran!(cli, "-c", "print('out'); 42", "--quiet");
    assert_eq!(text(&output.stdout), "out\n");
    let output = ran!(cli, "-c", "import no_such_module");
    let said = text(&output.stderr);
    assert!(said.contains("Traceback") && said.contains("hint:"), "{said}");
}

#[test]
fn files_input_and_stdin_go_in_and_figures_and_files_come_out() {
    let cli = Cli::new();
    cli.write("in put.csv", "a,b\n1,2\n3,4\n");
    cli.write("lines", "first\nsecond\n");
    cli.write(
        "analyse.py",
        "import pandas as pd, matplotlib.pyplot as plt, os\ndf = pd.read_csv('renamed.csv')\nplt.plot(df.a); plt.show()\n\
         os.makedirs('deep/er', exist_ok=True)\ndf.to_csv('deep/er/out.csv', index=False)\nprint(input(), input())\n\
         def handler(input): return input['n'] * 2\n",
    );
    let output = ran!(
        cli,
        "analyse.py",
        "--file",
        "in put.csv:renamed.csv",
        "--stdin",
        "lines",
        "--input",
        "{\"n\": 21}",
        "--json",
        "--out",
        "results"
    );
    let execution: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(execution["status"], "completed", "{execution}");
    assert_eq!((&execution["stdout"], &execution["result"]), (&"first second\n".into(), &42.into()));
    let results = cli.data.path().join("results");
    assert_eq!(std::fs::read_to_string(results.join("deep/er/out.csv")).unwrap(), "a,b\n1,2\n3,4\n");
    assert!(std::fs::read(results.join("figure-1.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn a_link_in_the_way_of_a_result_is_replaced_not_followed() {
    let cli = Cli::new();
    cli.write("victim", "precious");
    std::fs::create_dir(cli.data.path().join("results")).unwrap();
    std::os::unix::fs::symlink(cli.data.path().join("victim"), cli.data.path().join("results/f")).unwrap();
    let output = ran!(cli, "-c", "open('f', 'w').write('new')", "--out", "results");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(cli.data.path().join("victim")).unwrap(), "precious");
    assert_eq!(std::fs::read_to_string(cli.data.path().join("results/f")).unwrap(), "new");
}

#[test]
fn the_program_may_come_from_standard_input_and_its_language_from_its_name() {
    let cli = Cli::new();
    let mut child =
        cli.command(&["-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"print('from stdin')").unwrap();
    let output = child.wait_with_output().unwrap();
    if text(&output.stderr).contains("cannot confine") {
        return println!("SKIPPED process level: {}", text(&output.stderr));
    }
    assert_eq!(text(&output.stdout), "from stdin\n", "{}", text(&output.stderr));
    cli.write("script.sh", "echo \"bash $((6*7))\"\n");
    assert_eq!(text(&ran!(cli, "script.sh").stdout), "bash 42\n");
    assert_eq!(text(&ran!(cli, "--", "echo", "a program").stdout), "a program\n");
}

#[test]
fn a_wrong_configuration_is_refused_with_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let output = Command::new(BINARY).args(["config", "check"]).arg(&path).output().unwrap();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    assert_eq!(check("good.toml", "[limits.default]\nmemory_mb = 256\n"), (true, "ok\n".to_owned()));
    assert!(check("good.yaml", "limits:\n  default:\n    memory_mb: 256\n").0);
    for (content, field) in [
        ("[limits.default]\nmemory_mb = 0\n", "limits.default.memory_mb"),
        ("[limits.default]\nmemory = 1\n", "memory"),
        ("[server]\nlisten = 5\n", "server.listen"),
        ("[limits.default]\nmemory_mb = 99999999\n", "memory_mb"),
    ] {
        let (good, said) = check("bad.toml", content);
        assert!(!good && said.contains(field), "{content}: {said}");
    }
}

#[test]
fn an_address_beyond_this_machine_needs_a_key() {
    let data = tempfile::tempdir().unwrap();
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "0.0.0.0:0", "--data-dir"])
        .arg(data.path())
        .arg("--images-dir")
        .arg(images_dir())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    if said.contains("cannot confine") {
        return println!("SKIPPED process level: {said}");
    }
    assert!(!output.status.success() && said.contains("api_keys"), "{said}");
}

/// A root file system with just enough of this host to run Python: its interpreter, libraries and the runner's IPython.
fn small_rootfs(root: &Path) {
    let venv = images_dir().join("default/venv");
    let script = r#"
set -eu
python=$(readlink -f /usr/bin/python3)
version=$(basename "$python")
mkdir -p "$1/usr/bin" "$1/usr/lib" "$1/opt" "$1/etc"
cp "$python" "$1/usr/bin/python3"
cp -a "/usr/lib/$version" "$1/usr/lib/"
for file in "$python" /usr/lib/$version/lib-dynload/*.so; do ldd "$file" 2>/dev/null; done |
  sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/lib[^ ]*\).*/\1/p' | sort -u |
  while read -r library; do mkdir -p "$1$(dirname "$(readlink -f "$library")")" "$1$(dirname "$library")"; cp -L "$library" "$1$library"; done
packages="$2"/lib/$version/site-packages
mkdir -p "$1/usr/lib/$version/dist-packages"
cp -a /usr/lib/python3/dist-packages/. "$1/usr/lib/$version/dist-packages/" 2>/dev/null || true
mkdir -p "$1/usr/lib/python3/dist-packages"
for name in IPython traitlets pygments decorator pure_eval executing asttokens stack_data matplotlib_inline prompt_toolkit wcwidth jedi parso pexpect ptyprocess typing_extensions.py ipython_pygments_lexers.py backcall pickleshare.py; do
  [ -e "$packages/$name" ] && cp -a "$packages/$name" "$1/usr/lib/python3/dist-packages/"
done
for info in "$packages"/[iI][pP]ython-*.dist-info; do cp -a "$info" "$1/usr/lib/python3/dist-packages/"; done
echo marker > "$1/etc/marker"
"#;
    let done = Command::new("sh").args(["-c", script, "sh"]).args([root, &venv]).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn a_root_file_system_of_its_own_works_from_a_folder_and_from_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let (root, images) = (folder.path().join("root"), folder.path().join("images"));
    std::fs::create_dir(&root).unwrap();
    small_rootfs(&root);
    let archive = folder.path().join("root.tar");
    let packed = Command::new("tar").args(["-cf"]).arg(&archive).arg("-C").arg(&root).arg(".").output().unwrap();
    assert!(packed.status.success());
    for (name, from) in [("folder", &root), ("archive", &archive)] {
        let built = Command::new(BINARY)
            .args(["image", "build", name, "--kind", "rootfs", "--from"])
            .arg(from)
            .arg("--images-dir")
            .arg(&images)
            .arg("--data-dir")
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", text(&built.stderr));
        let code =
            "import os; print(open('/etc/marker').read(), os.path.exists('/usr/bin/env'), os.listdir('/home')); 6*7";
        let output = Command::new(BINARY)
            .args(["run", "--image", name, "-c", code, "--images-dir"])
            .arg(&images)
            .arg("--data-dir")
            .arg(folder.path())
            .output()
            .unwrap();
        if text(&output.stderr).contains("cannot confine") {
            return println!("SKIPPED process level: {}", text(&output.stderr));
        }
        assert_eq!(text(&output.stdout), "marker\n False ['sandbox']\n42\n", "{}", text(&output.stderr));
    }
    let missing =
        Command::new(BINARY).args(["run", "--image", "none", "-c", "1", "--images-dir"]).arg(&images).output().unwrap();
    assert!(text(&missing.stderr).contains("fumehood image build"), "{}", text(&missing.stderr));
}
