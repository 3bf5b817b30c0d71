//! Zygotes: what becomes of forks, and of the zygote.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fumehood_jail::protocol::{JailSpec, Reply, Request, send};

use crate::jail;

#[test]
fn a_fork_runs_as_process_2_of_its_sandbox_and_its_exit_code_comes_back() {
    let mut rig = jail!().forking();
    let run = rig.sh("echo $$; cat; echo err >&2; exit 7");
    assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.code()), ("2\n", "err\n", 7), "{run:?}");
    assert_eq!(rig.sh("kill -SEGV $$").report.wait_status.unwrap() & 0x7f, 11);
}

#[test]
fn orphans_inside_are_reaped() {
    let mut rig = jail!().forking();
    let run = rig.sh("for i in 1 2 3 4 5; do (sh -c 'exit 3' & ) ; done; sleep 0.2; grep -l '^State:.Z' /proc/[0-9]*/status; echo done");
    assert_eq!(run.stdout, "done\n", "{run:?}");
}

#[test]
fn a_step_of_a_fork_that_fails_is_named() {
    let mut rig = jail!().forking();
    let mut spec = rig.spec(&["/bin/true"]);
    spec.cwd = "/usr/nowhere".to_owned();
    let run = rig.run(spec, None);
    assert_eq!(run.report.error.expect("an error").step.to_string(), "enter the working directory");

    let mut gone = rig.spec(&["/bin/true"]);
    gone.zygote = Some(4711);
    let run = rig.run(gone, None);
    assert_eq!(run.report.error.expect("an error").step.to_string(), "fork the preloaded interpreter");
}

#[test]
fn a_sandbox_that_waits_yields_until_it_is_needed() {
    let mut rig = jail!().forking();
    let spec = JailSpec { waits: true, ..rig.spec(&[]) };
    let id = spec.id;
    let mut channels = rig.launch(spec);
    rig.started();
    channels.execute(&["/bin/sh", "-c", "echo; read line"]);
    channels.listen();
    // The fork is the youngest child of the jailer's inner process.
    let inner = rig.inner();
    let children = std::fs::read_to_string(format!("/proc/{inner}/task/{inner}/children")).unwrap();
    let group = cpu_group(children.split_whitespace().next_back().expect("a fork"));
    let (file, least, full) = match group.join("cpu.shares").exists() {
        true => ("cpu.shares", "10", "1024"),
        false => ("cpu.weight", "1", "100"),
    };
    let weight = || std::fs::read_to_string(group.join(file)).unwrap().trim().to_owned();
    assert_eq!(weight(), least);
    send(&rig.jailer.link.socket, &Request::Hurry { id }, &[]).unwrap();
    let begun = Instant::now();
    while weight() != full {
        assert!(begun.elapsed() < Duration::from_secs(10), "it still yields");
    }
}

/// The folder of the cgroup that decides a process's share of the processor.
fn cpu_group(pid: &str) -> PathBuf {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let path = |wanted: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { return None };
            wanted(controllers).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    match path(&|controllers| controllers.split(',').any(|name| name == "cpu")) {
        Some(path) => Path::new("/sys/fs/cgroup/cpu").join(path),
        None => Path::new("/sys/fs/cgroup").join(path(&str::is_empty).expect("a group")),
    }
}

#[test]
fn each_fork_has_its_own_limits() {
    let mut rig = jail!().forking();
    let mut spec = rig.spec(&["/bin/sh", "-c", "ulimit -n; true & true & wait; echo"]);
    spec.limits.open_files = 77;
    spec.limits.processes = 2;
    let run = rig.run(spec, None);
    assert!(run.stdout.starts_with("77\n"), "{run:?}");
}

#[test]
fn when_a_zygote_ends_its_forks_live_on_and_nothing_of_it_is_left() {
    let mut rig = jail!().forking();
    let zygote = rig.zygote.unwrap();
    // It sleeps until it is told what to execute.
    let spec = rig.spec(&[]);
    let id = spec.id;
    let _channels = rig.launch(spec);
    rig.started();
    send(&rig.jailer.link.socket, &Request::EndZygote { id: zygote }, &[]).unwrap();
    let gone = rig.hear().0;
    assert!(matches!(gone, Reply::ZygoteGone { id, .. } if id == zygote), "{gone:?}");
    let inner = rig.inner();
    let children = std::fs::read_to_string(format!("/proc/{inner}/task/{inner}/children")).unwrap();
    assert_eq!(children.split_whitespace().count(), 2, "process 1 and the fork: {children}");
    send(&rig.jailer.link.socket, &Request::Kill { id }, &[]).unwrap();
    let exited = rig.hear().0;
    assert!(matches!(exited, Reply::Exited { id: ended, .. } if ended == id), "{exited:?}");
    // The next zygote of the same jailer works.
    let mut rig = rig.forking();
    assert_eq!(rig.sh("echo again").stdout, "again\n");
}

#[test]
fn a_zygote_that_lies_about_its_forks_is_ended_and_holds_nothing_up() {
    // Itself, the jailer, the sandbox's process 1 (one of those), nobody.
    for pid in ["os.getpid()", "1", "os.getpid() + 1", "os.getpid() + 2", "999999", "-1"] {
        let lie = format!(
            "import json, os, socket
s = socket.socket(fileno=3)
s.send(b'{{\"kind\": \"ready\"}}')
while True:
    asked, fds, _, _ = socket.recv_fds(s, 65536, 32)
    if not asked: break
    s.send(json.dumps({{'kind': 'forked', 'id': json.loads(asked)['id'], 'pid': {pid}}}).encode())"
        );
        let mut rig = jail!().forking_from(&["/usr/bin/python3", "-I", "-c", &lie]);
        let spec = rig.spec(&[]);
        let (zygote, id) = (rig.zygote.unwrap(), spec.id);
        let _channels = rig.launch(spec);
        // In whatever order.
        let (mut told, mut gone) = (false, false);
        while !(told && gone) {
            match rig.hear().0 {
                Reply::Exited { id: ended, report, .. } if ended == id => {
                    let error = report.error.expect("an error");
                    assert_eq!(error.step.to_string(), "fork the preloaded interpreter", "{pid}: {error}");
                    told = true;
                }
                Reply::ZygoteGone { id: ended, .. } if ended == zygote => gone = true,
                other => panic!("{pid}: unexpected {other:?}"),
            }
        }
        rig.zygote = None;
        assert_eq!(rig.sh("echo again").stdout, "again\n", "{pid}");
    }
}

#[test]
fn a_fork_that_has_said_its_last_word_is_told_of_before_it_is_gone() {
    let mut rig = jail!().forking();
    let spec = rig.spec(&[]);
    let id = spec.id;
    let mut channels = rig.launch(spec);
    rig.started();
    channels.execute(&["/bin/sh", "-c", "echo; read line"]);
    channels.listen();
    let conclude = |id| send(&rig.jailer.link.socket, &Request::Conclude { id, code: 7 }, &[]).unwrap();
    // Of what is not there nothing is heard.
    conclude(4711);
    conclude(id);
    match rig.hear_all().0 {
        Reply::Exited { id: ended, report, going: true } if ended == id => {
            assert_eq!(report.wait_status, Some(7 << 8));
            assert!(report.cpu_us > 0 && report.memory_peak_bytes > 0, "{report:?}");
        }
        other => panic!("unexpected {other:?}"),
    }
    let gone = rig.hear_all().0;
    assert!(matches!(gone, Reply::Gone { id: gone } if gone == id), "{gone:?}");
    let inner = rig.inner();
    let children = std::fs::read_to_string(format!("/proc/{inner}/task/{inner}/children")).unwrap();
    assert_eq!(children.split_whitespace().count(), 1, "only the zygote: {children}");
}

#[test]
fn a_fork_that_is_not_alone_ends_by_itself_whatever_it_said() {
    let mut rig = jail!().forking();
    let spec = rig.spec(&[]);
    let id = spec.id;
    let mut channels = rig.launch(spec);
    rig.started();
    channels.execute(&["/bin/sh", "-c", "sleep 100 & echo; read line; exit 3"]);
    channels.listen();
    send(&rig.jailer.link.socket, &Request::Conclude { id, code: 7 }, &[]).unwrap();
    channels.say("go\n");
    match rig.hear_all().0 {
        // What it left behind may be dead by the time that its end is told.
        Reply::Exited { id: ended, report, .. } if ended == id => assert_eq!(report.wait_status, Some(3 << 8)),
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn forking_leaves_no_descriptor_and_no_process_behind() {
    let mut rig = jail!().forking();
    let inner = rig.inner();
    let descriptors = || std::fs::read_dir(format!("/proc/{inner}/fd")).unwrap().count();
    let children = || std::fs::read_to_string(format!("/proc/{inner}/task/{inner}/children")).unwrap();
    // The answer comes when the program is gone; process 1 and its namespaces may take a moment longer.
    let wait_until = |settled: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !settled() {
            assert!(Instant::now() < deadline, "left over: {} descriptors, processes {}", descriptors(), children());
            std::thread::park_timeout(Duration::from_millis(2));
        }
    };
    let only_the_zygote = || children().split_whitespace().count() == 1;
    // One more: the first sandbox has its image built, which is kept.
    let before = descriptors() + 1;
    for _ in 0..30 {
        rig.sh("sleep 100 &");
    }
    for _ in 0..30 {
        rig.sh("true");
    }
    wait_until(&|| only_the_zygote() && descriptors() <= before);
}

#[test]
fn a_fork_whose_zygote_dies_before_telling_of_it_holds_nothing_up() {
    for delay in (0..40).map(|step| Duration::from_micros(step * 50)) {
        let mut rig = jail!().forking();
        let zygote = rig.zygote.unwrap();
        let spec = rig.spec(&[]);
        let id = spec.id;
        let _channels = rig.launch(spec);
        std::thread::park_timeout(Duration::from_millis(2) + delay);
        send(&rig.jailer.link.socket, &Request::EndZygote { id: zygote }, &[]).unwrap();
        let begun = Instant::now();
        let mut killed = false;
        loop {
            assert!(begun.elapsed() < Duration::from_secs(10), "nothing was heard of the sandbox");
            match rig.hear().0 {
                Reply::Exited { id: ended, .. } if ended == id => break,
                // It came in before the zygote died.
                Reply::Started { .. } if !killed => {
                    killed = true;
                    send(&rig.jailer.link.socket, &Request::Kill { id }, &[]).unwrap();
                }
                _ => {}
            }
        }
    }
}
