//! Beginning and end: failures by name, and that nothing outlives the jailer or its server.

use std::time::{Duration, Instant};

use fumehood_jail::protocol::RootEntry;

use crate::jail;
use crate::rig::{Channels, Rig, only_child};

#[test]
fn a_step_that_fails_is_named_and_nothing_runs() {
    let mut rig = jail!();
    let missing = rig.spec(&["/no/such/program"]);
    let run = rig.run(missing, None);
    let error = run.report.error.expect("an error");
    assert_eq!((error.step.to_string().as_str(), error.subject.as_str()), ("execute the program", "/no/such/program"));

    let mut no_image = rig.spec(&["/bin/true"]);
    no_image.root.push(RootEntry::Bind { source: "/no/such/image".to_owned(), target: "/opt/x".to_owned() });
    let run = rig.run(no_image, None);
    assert_eq!(run.report.error.expect("an error").step.to_string(), "open the image");

    for bad in ["/opt/../../x", "relative", ""] {
        let mut outside = rig.spec(&["/bin/true"]);
        outside.root.push(RootEntry::File { at: bad.to_owned(), text: String::new() });
        let run = rig.run(outside, None);
        assert_eq!(run.report.error.expect("an error").step.to_string(), "populate the root", "{bad}");
    }
}

#[test]
fn a_name_that_would_lead_elsewhere_in_the_cgroup_tree_is_refused() {
    let mut rig = jail!();
    for bad in ["../x", "a/b", "", "."] {
        let mut spec = rig.spec(&["/bin/true"]);
        spec.name = bad.to_owned();
        let run = rig.run(spec, None);
        assert_eq!(run.report.error.expect("an error").step.to_string(), "prepare the cgroup", "{bad:?}");
    }
}

/// Starts a sandbox that sleeps, and returns the pid of its process 1 on the host.
fn sleeper(rig: &mut Rig) -> (i32, Channels) {
    let spec = rig.spec(&["/bin/sleep", "1000"]);
    let channels = rig.launch(spec);
    rig.started();
    channels.open_gate();
    (only_child(rig.inner()), channels)
}

fn gone(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // A zombie holds nothing; whoever adopted it reaps it.
    state.is_err()
        || state.is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

fn wait_gone(pid: i32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !gone(pid) {
        assert!(Instant::now() < deadline, "process {pid} lives on");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn when_the_server_goes_the_jailer_and_every_sandbox_go() {
    let mut rig = jail!();
    let (pid, _pipes) = sleeper(&mut rig);
    rustix::net::shutdown(&rig.jailer.link.socket, rustix::net::Shutdown::Both).unwrap();
    assert!(rig.jailer.process.wait().unwrap().success());
    assert!(gone(pid));
}

#[test]
fn when_the_jailer_is_killed_every_zygote_goes_with_its_forks() {
    let mut rig = jail!().forking();
    let spec = rig.spec(&[]);
    let mut channels = rig.launch(spec);
    rig.started();
    channels.execute(&["/bin/sleep", "1000"]);
    let inner = rig.inner();
    let children = std::fs::read_to_string(format!("/proc/{inner}/task/{inner}/children")).unwrap();
    // The zygote, process 1 of the sandbox, and the fork.
    assert_eq!(children.split_whitespace().count(), 3, "{children}");
    rig.jailer.process.kill().unwrap();
    rig.jailer.process.wait().unwrap();
    children.split_whitespace().for_each(|pid| wait_gone(pid.parse().unwrap()));
    wait_gone(inner);
}

#[test]
fn when_the_jailer_is_killed_every_sandbox_goes() {
    let mut rig = jail!();
    let (pid, _pipes) = sleeper(&mut rig);
    rig.jailer.process.kill().unwrap();
    rig.jailer.process.wait().unwrap();
    wait_gone(pid);
    // What it left of cgroups is swept by the next one.
    let left = format!("fumehood-{}-", rig.jailer.process.id());
    drop(Rig::new().unwrap());
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    for line in own.lines() {
        let path = line.rsplit(':').next().unwrap();
        // One hierarchy for each controller on version 1; the folder itself on version 2.
        let version_1 = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
        for hierarchy in version_1.chain(["/sys/fs/cgroup".into()]) {
            let folder = hierarchy.join(path.trim_start_matches('/'));
            let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
            let orphans: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(&left)).collect();
            assert!(orphans.is_empty(), "{orphans:?}");
        }
    }
}

#[test]
fn when_the_inner_process_of_the_jailer_is_killed_nothing_is_left_at_all() {
    let mut rig = jail!();
    let (pid, _pipes) = sleeper(&mut rig);
    let inner = rustix::process::Pid::from_raw(rig.inner()).unwrap();
    rustix::process::kill_process(inner, rustix::process::Signal::KILL).unwrap();
    assert!(!rig.jailer.process.wait().unwrap().success());
    assert!(gone(pid));
    let found = std::process::Command::new("find")
        .args(["/sys/fs/cgroup", "-maxdepth", "8", "-name"])
        .arg(format!("fumehood-{}-*", rig.jailer.process.id()))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn a_jailer_leaves_no_descriptor_and_no_cgroup_behind_a_sandbox() {
    let mut rig = jail!();
    let jailer = rig.inner();
    let descriptors = || std::fs::read_dir(format!("/proc/{jailer}/fd")).unwrap().count();
    rig.sh("true");
    let before = descriptors();
    for _ in 0..20 {
        rig.sh("sleep 100 &");
    }
    assert_eq!(descriptors(), before);
}
