//! `fumehood doctor`, and a server that refuses less isolation than it is to have, on hosts as they are: this one, and this one with something taken away.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::limits::{jailer, kill};
use crate::server::{BINARY, Server, images_dir, wait_for};
use crate::user::{Groups, USER_ID, home};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the doctor says, and whether it is content.
fn report(output: &Output) -> (Value, bool) {
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    (report, output.status.success())
}

fn folders(data: &Path) -> [String; 4] {
    ["--data-dir".to_owned(), data.display().to_string(), "--images-dir".to_owned(), images_dir().display().to_string()]
}

/// A command of this binary with its own data.
fn fumehood(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).args(folders(data)).env_remove("FUMEHOOD_ISOLATION_REQUIRE");
    command
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn the_doctor_says_what_results_will_say() {
    let data = tempfile::tempdir().unwrap();
    let (report, content) = report(&fumehood(data.path(), &["doctor", "--json"]).output().unwrap());
    let process = &report["levels"][0];
    if process["state"] == "unusable" {
        assert!(!content, "{report}");
        assert!(process["failed_step"].is_string(), "{process}");
        return println!("SKIPPED process level: {}", process["detail"]);
    }
    assert!(content, "{report}");
    let execution = fumehood(data.path(), &["run", "--json", "-c", "1"]).output().unwrap();
    let execution: Value = serde_json::from_slice(&execution.stdout).unwrap();
    assert_eq!(execution["isolation"]["features"], process["features"]);
    assert_eq!(execution["isolation"]["effective"], process["level"]);
    assert_eq!(process["state"] == "degraded", !process["lacks"].as_array().unwrap().is_empty());
    // What this version cannot do is not called usable, whatever the host has.
    let others = report["levels"].as_array().unwrap().iter().skip(1);
    assert!(others.clone().count() == 4 && others.into_iter().all(|level| level["state"] == "unusable"));
    assert!(report["image"]["ok"].as_bool().unwrap() && report["data_dir"]["ok"].as_bool().unwrap(), "{report}");
}

#[test]
fn the_doctor_tells_people_and_leaves_nothing_behind() {
    let data = tempfile::tempdir().unwrap();
    let nowhere = data.path().join("not/there");
    let mut doctor = Command::new(BINARY);
    doctor.args(["doctor", "--all", "--data-dir"]).arg(&nowhere).arg("--images-dir").arg(nowhere.join("images"));
    let output = doctor.output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("\nprocess ") && said.contains("LEVEL") && said.contains("landlock scopes"), "{said}");
    assert!(said.contains("image: NOT USABLE: there is no image"), "{said}");
    assert!(said.contains("is not there yet and can be made") && !nowhere.exists(), "{said}");
}

#[test]
fn a_server_refuses_to_start_below_the_level_that_is_asked_for() {
    let data = tempfile::tempdir().unwrap();
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["run", "-c", "1"]] {
        let output = fumehood(data.path(), command).env("FUMEHOOD_ISOLATION_FLOOR", "gvisor").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        let said = text(&output.stderr);
        assert!(said.contains("isolation_floor: 'gvisor'") && said.contains("'process'"), "{said}");
        assert!(output.stdout.is_empty());
    }
    let mut doctor = fumehood(data.path(), &["doctor", "--json"]);
    let (report, content) = report(&doctor.env("FUMEHOOD_ISOLATION_FLOOR", "gvisor").output().unwrap());
    assert!(!content && report["floor"]["met"] == false, "{}", report["floor"]);
}

#[test]
fn a_server_refuses_to_start_without_a_layer_that_is_required() {
    let Some(groups) = Groups::prepare_for("require") else { return };
    let (folder, binary) = home();
    let (binary, data) = (binary.display().to_string(), folder.path().join("data"));
    let run = |arguments: &[&str], required: &str| {
        let require = format!("FUMEHOOD_ISOLATION_REQUIRE={required}");
        let folders = folders(&data);
        let words = [require.as_str(), &binary].into_iter().chain(arguments.iter().copied());
        let words: Vec<&str> = words.chain(folders.iter().map(String::as_str)).collect();
        groups.command(&words).current_dir(folder.path()).output().unwrap()
    };
    let (told, content) = report(&run(&["doctor", "--json"], ""));
    let process = &told["levels"][0];
    if process["state"] == "unusable" {
        return println!("SKIPPED ordinary user: {}", process["detail"]);
    }
    assert!(content && process["state"] == "degraded", "{process}");
    assert!(names(&process["lacks"]).contains(&"own_uid"), "{process}");
    assert_eq!(told["uid"], USER_ID);

    let (told, content) = report(&run(&["doctor", "--json"], "own_uid"));
    assert!(!content && told["floor"]["unmet"][0].as_str().unwrap().contains("own_uid"), "{}", told["floor"]);
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["run", "-c", "1"]] {
        let output = run(arguments, "own_uid");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("isolation_require: own_uid is not in force") && said.contains("run it as root"),
            "{said}"
        );
    }
    // One that is met changes nothing.
    let met = names(&process["lacks"]).contains(&"landlock");
    if !met {
        let output = run(&["run", "-c", "6 * 7"], "landlock");
        assert_eq!(text(&output.stdout), "42\n", "{}", text(&output.stderr));
    }
}

/// Where the user's groups of version 1 could be frozen.
struct Freezer(std::path::PathBuf);

impl Freezer {
    fn give(&self, owner: u32) {
        std::os::unix::fs::chown(&self.0, Some(owner), Some(owner)).unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            std::fs::remove_dir(entry.path()).ok();
        }
        std::fs::remove_dir(&self.0).ok();
    }
}

/// A server of a user who may freeze groups of version 1, which can be taken away from a running server. Prints a skip where there is none.
fn server_that_may_freeze(groups: &Groups, variables: &[&str]) -> Option<(Server, Freezer)> {
    let Some(parent) = &groups.parent else {
        println!("SKIPPED weaker jailer: version 2 gives nothing that could be taken away from a running server");
        return None;
    };
    let freezer = Freezer(Path::new("/sys/fs/cgroup/freezer").join(parent));
    if let Err(error) = std::fs::create_dir(&freezer.0) {
        println!("SKIPPED weaker jailer: {error}");
        return None;
    }
    freezer.give(USER_ID);
    let (folder, binary) = home();
    let folders = folders(&folder.path().join("data"));
    let binary = binary.display().to_string();
    let words = variables.iter().copied().chain([
        "FUMEHOOD_ZYGOTE__ENABLED=false",
        &binary,
        "serve",
        "--listen",
        "127.0.0.1:0",
    ]);
    let words: Vec<&str> = words.chain(folders.iter().map(String::as_str)).collect();
    Some((Server::spawn(groups.command(&words), folder)?, freezer))
}

#[test]
fn a_new_jailer_that_lacks_what_is_required_is_not_used() {
    let Some(groups) = Groups::prepare_for("restart") else { return };
    let Some((server, freezer)) = server_that_may_freeze(&groups, &["FUMEHOOD_ISOLATION_REQUIRE=pause"]) else {
        return;
    };
    assert_eq!(server.get("/ready").0, 200);

    freezer.give(0);
    kill(jailer(&server)[1]);
    wait_for(|| server.log().contains("isolation_require: pause is not in force").then_some(()));
    assert_eq!(server.get("/ready").0, 503, "{}", server.log());
    let (status, answer) = server.post("/v1/executions", &serde_json::json!({"code": "1"}));
    assert!(status == 503 || answer["outcome"] == "infra", "{status} {answer}");

    freezer.give(USER_ID);
    wait_for(|| (server.get("/ready").0 == 200).then_some(()));
    server.succeed("1", serde_json::json!({}));
}

#[test]
fn results_say_what_the_present_jailer_gives_and_not_the_first() {
    let Some(groups) = Groups::prepare_for("present") else { return };
    let Some((server, freezer)) = server_that_may_freeze(&groups, &[]) else { return };
    let pause = || server.succeed("1", serde_json::json!({}))["isolation"]["features"]["pause"].clone();
    assert_eq!(pause(), "freezer");

    freezer.give(0);
    let [_, before] = jailer(&server);
    kill(before);
    wait_for(|| server.log().contains("a new one is started").then_some(()));
    wait_for(|| (server.get("/ready").0 == 200).then_some(()));
    assert!(pause().as_str().unwrap().starts_with("none"), "{}", pause());
}

/// Runs the doctor as a user in a user namespace of its own, after `script` has taken something away from it there.
fn within_a_namespace(groups: &Groups, flags: &[&str], script: &str) -> Option<Value> {
    let (folder, binary) = home();
    let data = folder.path().join("data");
    let (data, images, binary) =
        (data.display().to_string(), images_dir().display().to_string(), binary.display().to_string());
    let script = format!(
        "{script} && exec setpriv --ambient-caps=-all --inh-caps=-all '{binary}' doctor --json --data-dir '{data}' --images-dir '{images}'"
    );
    let words = ["unshare", "--user", "--map-current-user", "--keep-caps"].into_iter().chain(flags.iter().copied());
    let words: Vec<&str> = words.chain(["sh", "-c", &script]).collect();
    let output = groups.command(&words).current_dir(folder.path()).output().unwrap();
    match serde_json::from_slice(&output.stdout) {
        Ok(report) => Some(report),
        Err(_) => {
            println!("SKIPPED namespace of a user: {}", text(&output.stderr));
            None
        }
    }
}

#[test]
fn where_the_kernel_gives_no_user_namespaces_the_switch_is_named() {
    let Some(groups) = Groups::prepare_for("userns") else { return };
    let Some(report) = within_a_namespace(&groups, &[], "echo 0 > /proc/sys/user/max_user_namespaces") else { return };
    let process = &report["levels"][0];
    assert_eq!(
        (&process["state"], &process["failed_step"]),
        (&"unusable".into(), &"create the namespaces".into()),
        "{process}"
    );
    assert!(process["remedy"].as_str().unwrap().contains("user.max_user_namespaces"), "{process}");
}

#[test]
fn where_proc_is_covered_an_ordinary_user_is_told_what_covers_it() {
    let Some(groups) = Groups::prepare_for("proc") else { return };
    let covered = "mount --bind /dev/null /proc/kmsg";
    let Some(report) = within_a_namespace(&groups, &["--mount"], covered) else { return };
    let process = &report["levels"][0];
    assert_eq!((&process["state"], &process["failed_step"]), (&"unusable".into(), &"mount /proc".into()), "{process}");
    let findings = report["findings"].as_array().unwrap();
    let proc = findings.iter().find(|finding| finding["name"] == "a /proc of one's own").unwrap();
    assert!(proc["detail"].as_str().unwrap().contains("/proc/kmsg"), "{proc}");
    assert_eq!(process["remedy"], proc["remedy"]);
}

#[test]
fn root_without_the_right_to_end_sandboxes_makes_none() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED capabilities: not root");
    }
    let data = tempfile::tempdir().unwrap();
    for (capability, name) in [("kill", "CAP_KILL"), ("sys_ptrace", "CAP_SYS_PTRACE")] {
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--bounding-set=-{capability}"))
            .args([BINARY, "doctor", "--json"])
            .args(folders(data.path()));
        let (report, content) = report(&command.output().unwrap());
        let process = &report["levels"][0];
        assert!(!content && process["state"] == "unusable", "{process}");
        assert!(process["detail"].as_str().unwrap().contains(name) && process["remedy"].is_string(), "{process}");
    }
}
