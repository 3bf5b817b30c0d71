//! The command line against a running server: what it prints, what it leaves on the disk, and what it cannot be talked into.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::server::{BINARY, Server, server, wait_for};

/// Commands in a folder of their own, against one server.
struct Client {
    url: String,
    folder: tempfile::TempDir,
}

impl Client {
    fn of(url: &str) -> Self {
        Self { url: url.to_owned(), folder: tempfile::tempdir().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).env("FUMEHOOD_URL", &self.url).env_remove("FUMEHOOD_API_KEY");
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Exit code, standard output, standard error.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        ended(&self.command(arguments).output().unwrap())
    }

    /// Standard output of a command that must end well.
    fn good(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {out}{err}");
        out
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.good(arguments)).unwrap()
    }

    /// A command of which the output is read while it runs.
    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        Running { process, out }
    }

    fn session(&self, more: &[&str]) -> String {
        let arguments: Vec<_> = ["session", "new"].into_iter().chain(more.iter().copied()).collect();
        self.good(&arguments).trim().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

struct Running {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn press_ctrl_c(&self) {
        self.send(Signal::INT);
    }

    fn end(mut self) -> (i32, String, String) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        let (code, _, err) = ended(&self.process.wait_with_output().unwrap());
        (code, rest, err)
    }
}

fn ended(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn code_on_a_server_prints_and_ends_as_if_it_ran_here() {
    let server = server!(&[], &[]);
    let client = Client::of(&server.url);
    for (code, flags, expected) in [
        ("1", &[][..], 0),
        ("import sys; sys.exit(7)", &[], 7),
        ("1/0", &[], 1),
        ("while True: pass", &["--timeout", "300ms"], 124),
        ("x = b'1' * (1 << 30)", &["--memory", "128"], 137),
        ("import ctypes; ctypes.string_at(0)", &[], 128 + 11),
        ("open('f', 'wb').write(b'1' * (20 << 20))", &["--disk", "5"], 125),
    ] {
        let arguments: Vec<_> = ["exec", "-c", code].into_iter().chain(flags.iter().copied()).collect();
        let (got, _, err) = client.run(&arguments);
        assert_eq!(got, expected, "{code}: {err}");
    }
    let both = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6*7";
    assert_eq!(client.run(&["exec", "-c", both]), (0, "out\n42\n".to_owned(), "err\n".to_owned()));
    assert_eq!(client.good(&["exec", "-q", "-c", "print('out'); 42"]), "out\n");
    let execution = client.json(&["exec", "--json", "-c", both]);
    assert_eq!((&execution["stdout"], &execution["result"]), (&"out\n".into(), &42.into()));
    client.write("in put.csv", "a,b\n1,2\n");
    client.write("script.sh", "cat renamed.csv; echo $NAME; cat");
    client.write("lines", "first\n");
    let flags = ["--file", "in put.csv:renamed.csv", "--env", "NAME=value", "--stdin", "lines"];
    let arguments: Vec<_> = ["exec", "script.sh"].into_iter().chain(flags).collect();
    assert_eq!(client.good(&arguments), "a,b\n1,2\nvalue\nfirst\n");
    let mut piped = client.command(&["exec"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(b"print('piped')").unwrap();
    assert_eq!(ended(&piped.wait_with_output().unwrap()).1, "piped\n");
    assert_eq!(client.good(&["exec", "--", "echo", "a program"]), "a program\n");
}

#[test]
fn figures_and_files_that_code_leaves_on_a_server_are_saved_here() {
    let server = server!(&[], &[]);
    let client = Client::of(&server.url);
    let plot = "import matplotlib.pyplot as plt, os\nplt.plot([1, 2]); plt.show()\nos.makedirs('deep')\nopen('deep/f', 'w').write('kept')\nNone";
    let (code, _, err) = client.run(&["exec", "-c", plot]);
    assert!(code == 0 && err.contains("--figures"), "{err}");
    client.good(&["exec", "--figures", "figures", "-c", plot]);
    assert_eq!(names(&client.path("figures")), ["figure-1.png"]);
    assert!(std::fs::read(client.path("figures/figure-1.png")).unwrap().starts_with(b"\x89PNG"));
    let interactive = "import plotly.graph_objects as go\ngo.Figure(go.Bar(y=[1]))";
    client.good(&["exec", "--figures", "interactive", "-c", interactive]);
    assert!(client.read("interactive/figure-1.plotly.json").contains("\"bar\""));
    client.good(&["exec", "--out", "results", "-c", plot]);
    assert_eq!(names(&client.path("results")), ["deep", "figure-1.png"]);
    assert_eq!(client.read("results/deep/f"), "kept");
}

#[test]
fn output_is_shown_while_the_program_still_runs() {
    let server = server!(&[], &[]);
    let client = Client::of(&server.url);
    let session = client.session(&[]);
    let waits = "import os, time\nprint('first')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('last')";
    let mut running = client.start(&["exec", "-s", &session, "-c", waits]);
    assert_eq!(running.line(), "first\n");
    let listed = client.json(&["ps", "--json"]);
    assert_eq!(
        (&listed["executions"][0]["session_id"], &listed["sessions"][0]["state"]),
        (&session.as_str().into(), &"running".into())
    );
    assert!(client.good(&["ps"]).contains(&session));
    // What there is so far, without waiting for more.
    let id = listed["executions"][0]["id"].as_str().unwrap();
    assert_eq!(client.good(&["logs", id]), "first\n");
    let mut follower = client.start(&["logs", "-f", id]);
    assert_eq!(follower.line(), "first\n");
    client.write("go", "");
    client.good(&["cp", "go", &format!("{session}:")]);
    assert_eq!(running.end(), (0, "last\n".to_owned(), String::new()));
    assert_eq!(follower.end(), (0, "last\n".to_owned(), String::new()));
    let events = client.good(&["logs", "--json", "--after", "1", id]);
    let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!((&last["type"], &last["data"]["id"]), (&"result".into(), &id.into()));
}

#[test]
fn a_session_is_opened_used_and_ended_by_name() {
    let server = server!(&[], &[]);
    let client = Client::of(&server.url);
    client.write("given.txt", "given");
    let session = client.session(&["--metadata", "for=test", "--file", "given.txt", "--env", "A=1", "--ttl", "2h"]);
    let exec = |code: &str| client.good(&["exec", "-s", &session, "-c", code]);
    exec("x = 41\nimport pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})");
    assert_eq!(exec("import os\nx + 1, os.environ['A'], open('given.txt').read()"), "(42, '1', 'given')\n");
    assert!(client.good(&["session", "ls"]).contains(&session));
    let shown = client.good(&["session", "show", &session]);
    assert!(shown.contains("for=test") && shown.contains("expires"), "{shown}");
    let vars = client.good(&["session", "vars", &session]);
    assert!(vars.contains("DataFrame") && vars.contains("41"), "{vars}");
    assert_eq!(client.json(&["session", "show", &session, "--json"])["ttl_s"], 7200);
    assert_eq!(client.json(&["session", "extend", &session, "1d", "--json"])["id"], session.as_str());
    client.good(&["session", "interrupt", &session]);
    client.good(&["session", "reset", &session]);
    assert_eq!(exec("import os\n'x' in globals(), os.path.exists('given.txt')"), "(False, True)\n");
}

#[test]
fn ctrl_c_interrupts_the_program_and_a_second_one_leaves_it() {
    let server = server!(&[], &[]);
    let client = Client::of(&server.url);
    let session = client.session(&[]);
    // In a session: a KeyboardInterrupt, and the variables stay.
    let mut running =
        client.start(&["exec", "-s", &session, "-c", "x = 5\nprint('ready')\nimport time; time.sleep(60)"]);
    assert_eq!(running.line(), "ready\n");
    running.press_ctrl_c();
    let (code, _, err) = running.end();
    assert!(code == 130 && err.contains("KeyboardInterrupt"), "{code} {err}");
    assert_eq!(client.good(&["exec", "-s", &session, "-c", "x"]), "5\n");
    // In a sandbox of its own it is the end.
    let mut running = client.start(&["exec", "-c", "print('ready')\nimport time; time.sleep(60)"]);
    assert_eq!(running.line(), "ready\n");
    running.press_ctrl_c();
    let (code, _, err) = running.end();
    assert!(code == 130 && err.contains("cancelled"), "{code} {err}");
    // A program that does not care is left to the server, which says how to end it.
    let deaf = "import signal, time\nsignal.signal(2, lambda *_: print('heard', flush=True))\nprint('ready')\nwhile True: time.sleep(1)";
    let mut running = client.start(&["exec", "-s", &session, "-c", deaf]);
    assert_eq!(running.line(), "ready\n");
    running.press_ctrl_c();
    assert_eq!(running.line(), "heard\n");
    running.press_ctrl_c();
    let (code, _, err) = running.end();
    let left = client.json(&["ps", "--json"])["executions"][0]["id"].as_str().unwrap().to_owned();
    assert!(code == 130 && err.contains(&format!("fumehood cancel {left}")), "{code} {err}");
    // One that waits behind it is cancelled without a word to the one that runs.
    let waiting = client.start(&["exec", "-s", &session, "-c", "1"]);
    wait_for(|| (client.json(&["session", "show", "--json", &session])["queued"] == 1).then_some(()));
    waiting.press_ctrl_c();
    wait_for(|| server.log().contains("/cancel\"").then_some(()));
    assert_eq!(client.json(&["session", "show", "--json", &session])["running"], left.as_str());
    assert!(!client.good(&["logs", &left]).contains("heard\nheard"));
    assert_eq!(client.good(&["cancel", &left]), format!("{left} cancelled\n"));
    assert_eq!(waiting.end().0, 130);
}

#[test]
fn a_program_can_be_left_to_the_server_and_found_again() {
    let server = server!(&[], &[]);
    let client = Client::of(&server.url);
    let id = client.good(&["exec", "-d", "-c", "print('found'); 1/0"]).trim().to_owned();
    let (code, out, err) = client.run(&["logs", "-f", &id]);
    assert!(code == 0 && out == "found\n" && err.contains("ZeroDivisionError"), "{out}{err}");
    assert!(client.good(&["ps", "-a"]).contains("exception"));
}

#[test]
fn files_and_folders_arrive_as_they_were_under_the_names_one_expects() {
    let server = server!(&[], &[]);
    let client = Client::of(&server.url);
    let session = client.session(&[]);
    let there = |path: &str| format!("{session}:{path}");
    let big: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    client.write("tree/a b?#%.txt", "odd name");
    client.write("tree/deep/er/表.bin", &big);
    client.write("tree/empty", "");
    client.write("one", "1");
    std::os::unix::fs::symlink("/etc/passwd", client.path("tree/link")).unwrap();
    // A folder to a new name, then into a folder that is there.
    let (code, _, err) = client.run(&["cp", "-r", "tree", &there("copy")]);
    assert!(code == 0 && err.contains("1 link"), "{err}");
    client.good(&["cp", "-r", "tree/", "one", &there("uploads/")]);
    client.good(&["cp", "one", &there("new name")]);
    client.good(&["cp", "one", &there("made/")]);
    let listed = client.good(&["ls", "-R", &session]);
    for path in ["copy/a b?#%.txt", "copy/deep/er/表.bin", "uploads/tree/empty", "uploads/one", "new name", "made/one"]
    {
        assert!(listed.lines().any(|line| line == path), "{path}: {listed}");
    }
    assert!(!listed.contains("link"), "{listed}");
    assert_eq!(client.good(&["ls", &there("copy")]), "a b?#%.txt\ndeep/\nempty\n");
    let long = client.good(&["ls", "-l", &there("copy/empty")]);
    assert!(long.starts_with("file") && long.contains("0 B") && long.trim_end().ends_with("copy/empty"), "{long}");
    // And back.
    client.good(&["cp", "-r", &there("copy"), "back"]);
    client.good(&["cp", "-r", &there("copy"), &there("new name"), "back"]);
    assert_eq!(names(&client.path("back")), ["a b?#%.txt", "copy", "deep", "empty", "new name"]);
    assert_eq!(std::fs::read(client.path("back/copy/deep/er/表.bin")).unwrap(), big);
    client.good(&["cp", &there("/data/new name"), "renamed"]);
    assert_eq!(client.read("renamed"), "1");
    client.good(&["cp", "-r", &there(""), "all/"]);
    assert_eq!(client.read("all/copy/a b?#%.txt"), "odd name");
    // Through pipes.
    assert_eq!(client.good(&["cp", &there("copy/a b?#%.txt"), "-"]), "odd name");
    let mut piped = client.command(&["cp", "-", &there("piped")]).stdin(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(&big).unwrap();
    assert!(piped.wait().unwrap().success());
    assert_eq!(client.good(&["exec", "-s", &session, "-c", "import os; os.path.getsize('piped')"]), "12000000\n");
    // What is refused.
    for (arguments, expected, words) in [
        (vec!["cp", "tree", &there("x")], 2, "-r"),
        (vec!["cp", &there("copy"), "x"], 2, "-r"),
        (vec!["cp", "a", "b"], 2, "SESSION:PATH"),
        (vec!["cp", &there("a"), &there("b")], 2, "SESSION:PATH"),
        (vec!["cp", &there("../x"), "x"], 2, ".."),
        (vec!["cp", "one", &there("/etc/x")], 2, "outside"),
        (vec!["cp", "missing", &there("x")], 1, "missing"),
        (vec!["cp", &there("missing"), "x"], 66, "missing"),
        (vec!["cp", "one", "one", &there("not/there")], 1, "no folder"),
        (vec!["cp", &there("new name"), "no/such/folder"], 1, "no folder"),
        (vec!["ls", &there("missing")], 66, "missing"),
    ] {
        let (code, _, err) = client.run(&arguments);
        assert!(code == expected && err.contains(words), "{arguments:?}: {code} {err}");
    }
    assert_eq!(client.run(&["ls", &there("uploads/tree")]).0, 0);
    let small = client.session(&["--disk", "1"]);
    let (code, _, err) = client.run(&["cp", "-r", "tree", &format!("{small}:")]);
    assert!(code == 1 && err.contains("disk is full"), "{code} {err}");
    assert!(!client.good(&["ls", "-R", &small]).contains("bin"));
}

#[test]
fn names_made_in_a_sandbox_are_copied_as_they_are_and_shown_without_effect() {
    let server = server!(&[], &[]);
    let client = Client::of(&server.url);
    let session = client.session(&["--metadata", "title=\u{1b}]0;pwned\u{7}"]);
    let names_it = "open('\\x1b[2Jx\\n\\u202ey', 'w').write('in')\nimport os\nos.symlink('/etc/passwd', 'link'); os.mkfifo('pipe')\n\
        os.symlink('/', 'root')\nv = '\\x1b[31m'";
    client.good(&["exec", "-q", "-s", &session, "-c", names_it]);
    for arguments in [
        vec!["ls", &session],
        vec!["ls", "-lR", &session],
        vec!["session", "show", &session],
        vec!["session", "ls"],
        vec!["session", "vars", &session],
        vec!["ps", "-a"],
    ] {
        let shown = client.good(&arguments);
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{arguments:?}: {shown:?}");
    }
    assert!(client.good(&["ls", &session]).contains("\\u{1b}[2Jx\\n\\u{202e}y\n"));
    let (code, _, err) = client.run(&["cp", "-r", &format!("{session}:"), "all"]);
    assert!(code == 0 && err.contains("3 link"), "{err}");
    assert_eq!(client.read("all/\u{1b}[2Jx\n\u{202e}y"), "in");
    assert_eq!(names(&client.path("all")).len(), 1);
}

/// A server that answers as it is told to: each request line, one raw answer; then it closes the connection unless `stay`.
fn fake(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static, stay: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            reader.read_line(&mut line).unwrap_or(0);
            while reader.read_line(&mut String::new()).is_ok_and(|read| read > 2) {}
            stream.write_all(&answer(&line)).ok();
            if stay {
                kept.push(stream);
            }
        }
    });
    url
}

/// An address at which nobody listens, for as long as the socket is held: one that was given up could be anybody's by now.
fn nobody() -> (String, OwnedFd) {
    use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, bind, getsockname, socket_with};
    let held = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&held, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(getsockname(&held).unwrap() as SocketAddrAny).unwrap();
    (format!("http://{address}"), held)
}

fn http(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

#[test]
fn a_server_that_lies_about_names_has_nothing_written_outside_the_destination() {
    let entry =
        |path: &str, kind: &str| format!(r#"{{"path": {path:?}, "kind": "{kind}", "size": 4, "modified_at": "?"}}"#);
    let listed = [
        ("f/good", "file"),
        ("f/../evil", "file"),
        ("f/a/../../evil", "file"),
        ("../evil", "file"),
        ("/evil", "file"),
        ("f//evil", "file"),
        ("f/./evil", "file"),
        ("f/", "file"),
        ("f/../evil", "folder"),
        ("other/evil", "file"),
        ("f/way/evil", "file"),
        ("f/way/evil", "folder"),
        ("f/end", "file"),
        ("f/strange", "socket"),
    ];
    let entries: Vec<_> = listed.iter().map(|(path, kind)| entry(path, kind)).collect();
    let listing = format!(r#"{{"files": [{}], "complete": true}}"#, entries.join(", "));
    let url = fake(move |line| http("200 OK", if line.contains("/files?") { &listing } else { "evil" }), false);
    let client = Client::of(&url);
    let outside = client.path("outside");
    let folder = client.folder.path();
    client.write("outside/victim", "precious");
    client.write("here/f/old", "old");
    std::os::unix::fs::symlink(&outside, client.path("here/f/way")).unwrap();
    std::os::unix::fs::symlink(outside.join("victim"), client.path("here/f/end")).unwrap();
    let (code, _, err) = client.run(&["cp", "-r", "ses_1:f", "here"]);
    assert_eq!(code, 1, "{err}");
    assert_eq!(err.lines().filter(|line| line.contains("evil")).count(), 10, "each is told: {err}");
    assert_eq!((names(&outside), client.read("outside/victim")), (vec!["victim".to_owned()], "precious".to_owned()));
    assert_eq!((names(folder), names(&client.path("here"))), (vec!["here".into(), "outside".into()], vec!["f".into()]));
    // What is right is there, in place of a link too.
    assert_eq!(names(&client.path("here/f")), ["end", "good", "old", "way"]);
    assert_eq!((client.read("here/f/good"), client.read("here/f/end")), ("evil".to_owned(), "evil".to_owned()));
}

#[test]
fn a_download_that_breaks_off_leaves_what_was_there() {
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf".to_vec();
    let unknown =
        |line: &str| line.contains("/files?").then(|| http("404 Not Found", r#"{"error": {"message": "no"}}"#));
    let session = |line: &str| (!line.contains("/files")).then(|| http("200 OK", SESSION));
    let answer = move |line: &str| unknown(line).or_else(|| session(line)).unwrap_or_else(|| half.clone());
    let client = Client::of(&fake(answer.clone(), false));
    client.write("f", "old");
    let (code, _, err) = client.run(&["cp", "ses_1:f", "f"]);
    assert!(code == 70 && err.contains("cannot copy f: the connection to the server broke"), "{code} {err}");
    assert_eq!((names(client.folder.path()), client.read("f")), (vec!["f".to_owned()], "old".to_owned()));
    // Nor does a signal leave anything.
    let client = Client::of(&fake(answer, true));
    client.write("f", "old");
    for (signal, expected) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let copying = client.start(&["cp", "ses_1:f", "f"]);
        wait_for(|| (names(client.folder.path()).len() == 2).then_some(()));
        copying.send(signal);
        assert_eq!(copying.end().0, expected);
        assert_eq!((names(client.folder.path()), client.read("f")), (vec!["f".to_owned()], "old".to_owned()));
    }
}

const SESSION: &str = r#"{"id": "ses_1", "state": "idle", "reason": null, "template": "default@1",
    "isolation": {"requested": "auto", "effective": "process", "features": {}}, "running": null, "queued": 0, "executions": 0, "restarts": 0,
    "tasks": 0, "memory_mb": 0, "memory_given_back_mb": null, "idle_timeout_s": 1, "ttl_s": 1, "expires_at": "", "metadata": {}, "created_at": "", "last_used_at": "", "closed_at": null}"#;

/// Passes connections on to a server; the first ones are cut as soon as `word` has come back through them.
fn cutting(server: &Server, cuts: usize, word: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let target = server.url.strip_prefix("http://").unwrap().to_owned();
    let cut = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&cut);
    std::thread::spawn(move || {
        for mut here in listener.incoming().map_while(Result::ok) {
            let mut there = TcpStream::connect(&target).unwrap();
            let (mut up_from, mut up_to) = (here.try_clone().unwrap(), there.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut up_from, &mut up_to).ok());
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut seen = Vec::new();
                let mut chunk = [0; 4096];
                while let Ok(read @ 1..) = there.read(&mut chunk) {
                    here.write_all(&chunk[..read]).ok();
                    seen.extend_from_slice(&chunk[..read]);
                    let found = seen.windows(word.len()).any(|part| part == word.as_bytes());
                    if found && count.load(Ordering::SeqCst) < cuts {
                        count.fetch_add(1, Ordering::SeqCst);
                        break;
                    }
                }
                here.shutdown(Shutdown::Both).ok();
                there.shutdown(Shutdown::Both).ok();
            });
        }
    });
    (url, cut)
}

#[test]
fn an_execution_is_followed_through_connections_that_break_and_runs_once() {
    let server = server!(&[], &[]);
    let direct = Client::of(&server.url);
    let session = direct.session(&[]);
    direct.good(&["exec", "-s", &session, "-c", "runs = 0"]);
    // Cut after the first output, then once more in the replay.
    let (url, cut) = cutting(&server, 2, "first");
    let client = Client::of(&url);
    let code = "import os, time\nruns += 1\nprint('first')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('last')\nruns";
    let mut running = client.start(&["exec", "-s", &session, "-c", code]);
    assert_eq!(running.line(), "first\n");
    wait_for(|| (cut.load(Ordering::SeqCst) > 0).then_some(()));
    direct.write("go", "");
    direct.good(&["cp", "go", &format!("{session}:")]);
    assert_eq!(running.end(), (0, "last\n1\n".to_owned(), String::new()));
    // Cut before the answer begins: the request is sent again, and runs once.
    let (url, cut) = cutting(&server, 1, "HTTP/1.1");
    let client = Client::of(&url);
    let (code, out, err) = client.run(&["exec", "-s", &session, "-c", "runs += 1\nruns"]);
    assert_eq!((code, out.as_str(), cut.load(Ordering::SeqCst)), (0, "2\n", 1), "{err}");
}

#[test]
fn what_cannot_be_done_is_told_in_one_line_with_what_to_do() {
    let server = server!(&[], &[]);
    let client = Client::of(&server.url);
    let ended = client.session(&[]);
    assert_eq!(client.good(&["session", "rm", &ended]), format!("{ended} closed\n"));
    let (nobody, _held) = nobody();
    let other = fake(|_| http("200 OK", "<html>\u{1b}[2J"), false);
    let moved =
        fake(|_| b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere\r\nContent-Length: 0\r\n\r\n".to_vec(), false);
    for (url, arguments, expected, words) in [
        (&nobody, vec!["ps"], 69, "fumehood serve"),
        (&nobody, vec!["exec", "-c", "1"], 69, "--server"),
        (&"127.0.0.1:8080".to_owned(), vec!["ps"], 2, "http"),
        (&other, vec!["ps"], 70, "no Fumehood server"),
        (&moved, vec!["ps"], 70, "redirections are not followed"),
        (&server.url, vec!["exec", "-s", "ses_unknown", "-c", "1"], 66, "no session of this id"),
        (&server.url, vec!["exec", "-s", &ended, "-c", "1"], 66, "deleted on request"),
        (&server.url, vec!["ls", &ended], 66, "deleted on request"),
        (&server.url, vec!["ls", "ses_unknown"], 66, "no session of this id"),
        (&server.url, vec!["session", "reset", &ended], 66, "deleted on request"),
        (&server.url, vec!["session", "show", "nonsense"], 2, "fumehood session ls"),
        (&server.url, vec!["logs", "exe_unknown"], 66, "no execution of this id"),
        (&server.url, vec!["exec", "-c", "1", "--memory", "0"], 1, "limits.memory_mb"),
        (&server.url, vec!["exec", "missing.py"], 1, "missing.py"),
        (&server.url, vec!["exec"], 2, "there is no program"),
        (&server.url, vec!["exec", "-c", "1", "--timeout", "5w"], 2, "no unit"),
    ] {
        let mut command = client.command(&arguments);
        let (code, out, err) = self::ended(&command.env("FUMEHOOD_URL", url).output().unwrap());
        assert!(code == expected && err.contains(words) && out.is_empty(), "{arguments:?}: {code} {out}{err}");
        let said = err.lines().filter(|line| !line.is_empty()).count();
        assert!(said == 1 || expected == 2, "{arguments:?}: {err}");
        assert!(!err.contains('\u{1b}'), "{err:?}");
    }
}

#[test]
fn a_key_comes_from_the_environment_or_a_file_and_never_from_the_command_line() {
    let server = server!(&[], &[("FUMEHOOD_SERVER__API_KEYS", "a-key-of-some-length")]);
    let client = Client::of(&server.url);
    let (code, _, err) = client.run(&["ps"]);
    assert!(code == 77 && err.contains("FUMEHOOD_API_KEY") && err.contains("--api-key-file"), "{code} {err}");
    let with = |key: &str| ended(&client.command(&["ps"]).env("FUMEHOOD_API_KEY", key).output().unwrap());
    assert_eq!(with("a-key-of-some-length").0, 0);
    let (code, _, err) = with("another-key");
    assert!(code == 77 && !err.contains("another-key"), "{code} {err}");
    client.write("key", "a-key-of-some-length\n");
    client.good(&["ps", "--api-key-file", "key"]);
    client.good(&["session", "ls", "--api-key-file", "key"]);
    for arguments in
        [["ps", "--api-key", "a-key-of-some-length"], ["cancel", "exe_1", "--api-key=a-key-of-some-length"]]
    {
        let (code, _, err) = client.run(&arguments);
        assert!(code == 2 && err.contains("FUMEHOOD_API_KEY") && !err.contains("a-key-of"), "{code} {err}");
    }
    let help = ended(&client.command(&["ps", "--help"]).env("FUMEHOOD_API_KEY", "secret-in-env").output().unwrap()).1;
    assert!(
        !help.contains("secret-in-env") && !help.contains("--api-key ") && help.contains("FUMEHOOD_API_KEY"),
        "{help}"
    );
}

#[test]
fn a_reader_that_goes_away_ends_a_command_without_a_word() {
    let server = server!(&[], &[]);
    let client = Client::of(&server.url);
    let mut running = client.start(&["exec", "-c", "i = 0\nwhile True: i += 1; print(i)"]);
    assert_eq!(running.line(), "1\n");
    let Running { process, out } = running;
    drop(out);
    let (code, _, err) = ended(&process.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (141, ""));
    // Nobody would see what it does.
    wait_for(|| client.json(&["ps", "--json"])["executions"].as_array()?.is_empty().then_some(()));
}

#[test]
fn shells_complete_every_command() {
    let client = Client::of("http://127.0.0.1:1");
    for shell in ["bash", "zsh", "fish"] {
        let script = client.good(&["completion", shell]);
        for word in ["exec", "session", "resume", "logs", "completion", "api-key-file"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}
