//! Sandboxes that outlive their programs: as root's and as an ordinary user's, with programs that are executed and that are forked.

use std::time::{Duration, Instant};

use fumehood_jail::protocol::{Reply, Request, send};
use rustix::process::{Pid, Signal};

use crate::confinement::on_all;
use crate::jail;
use crate::rig::Rig;

#[test]
fn programs_follow_each_other_in_one_sandbox_and_find_its_files() {
    on_all(|rig| {
        let kept = rig.keep();
        let script = "cat file 2>/dev/null; echo $$ >> file; (sleep 100 &); exit 7";
        let first = kept.run(rig, script);
        assert_eq!((first.stdout.as_str(), first.code()), ("", 7), "{first:?}");
        let second = kept.run(rig, script);
        // What the first left running was ended before the second began, so numbers go on but processes do not.
        assert_eq!((second.stdout.lines().count(), second.code()), (1, 7), "{second:?}");
        let alone = kept.run(rig, "cat /proc/[0-9]*/comm | grep -c sleep");
        assert_eq!(alone.stdout, "0\n", "{alone:?}");
        assert_eq!(kept.run(rig, "kill -SEGV $$").report.wait_status.unwrap() & 0x7f, 11);
        kept.end(rig);
    });
}

#[test]
fn a_program_is_confined_however_it_came_in() {
    on_all(|rig| {
        let kept = rig.keep();
        for _ in 0..2 {
            let run = kept.run(
                rig,
                "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d ' \\t' | tr '\\n' ' '",
            );
            assert_eq!(
                run.stdout, "CapEff:0000000000000000 CapBnd:0000000000000000 NoNewPrivs:1 Seccomp:2 ",
                "{run:?}"
            );
        }
        kept.end(rig);
    });
}

#[test]
fn a_program_is_interrupted_and_its_sandbox_stays() {
    on_all(|rig| {
        let kept = rig.keep();
        let mut channels = kept.begin(rig);
        channels.execute(&["/bin/sh", "-c", "trap 'exit 9' INT; echo; while :; do sleep 0.01; done"]);
        channels.listen();
        send(&rig.jailer.link.socket, &Request::Interrupt { id: kept.id }, &[]).unwrap();
        assert!(matches!(rig.hear().0, Reply::Interrupted { .. }));
        assert_eq!(kept.ended(rig).wait_status, Some(9 << 8));
        assert_eq!(kept.run(rig, "echo again").stdout, "again\n");
        kept.end(rig);
    });
}

#[test]
fn a_program_that_is_replaced_is_not_told_of_and_one_that_cannot_begin_is() {
    let mut rig = jail!().forking();
    let kept = rig.keep();
    let _running = kept.begin(&rig);
    // Ends the first, which nobody hears of.
    let run = kept.run(&rig, "exit 3");
    assert_eq!(run.code(), 3);
    let gone = kept.begin_from(&rig, Some(4711));
    let report = kept.ended(&rig);
    assert_eq!(report.error.expect("an error").step.to_string(), "fork the preloaded interpreter");
    drop(gone);
    assert_eq!(kept.run(&rig, "echo again").stdout, "again\n");
    // Nor is anything the matter with what is not there.
    send(&rig.jailer.link.socket, &Request::Interrupt { id: 4711 }, &[]).unwrap();
    assert!(matches!(rig.hear().0, Reply::Interrupted { id: 4711, count: 1 }));
    kept.end(&rig);
}

#[test]
fn a_sandbox_that_is_kept_is_entered_by_the_next_zygote_too() {
    let mut rig = jail!().forking();
    let kept = rig.keep();
    assert_eq!(kept.run(&rig, "echo 1").stdout, "1\n");
    let before = rig.zygote.unwrap();
    let rig = rig.forking();
    send(&rig.jailer.link.socket, &Request::EndZygote { id: before }, &[]).unwrap();
    assert!(matches!(rig.hear().0, Reply::ZygoteGone { .. }));
    assert_eq!(kept.run(&rig, "echo 2").stdout, "2\n");
    kept.end(&rig);
}

/// Waits for a moment in which something could have happened.
fn a_while() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn what_is_paused_uses_no_processor_goes_on_where_it_was_and_can_be_killed() {
    on_all(|rig| {
        let kept = rig.keep();
        let tell = |request| send(&rig.jailer.link.socket, &request, &[]).unwrap();
        let pause = || {
            tell(Request::Pause { id: kept.id });
            let paused = rig.hear().0;
            assert!(matches!(&paused, Reply::Paused { id, error: None } if *id == kept.id), "{paused:?}");
        };
        let cpu = || kept.gauges.read().cpu_us;
        let mut channels = kept.begin(rig);
        // One that never sleeps, and one whose timer sends the signal that lets a stopped process go on.
        let wakes = "import signal, time\nsignal.signal(signal.SIGALRM, lambda *_: None)\nimport ctypes\nlibc = ctypes.CDLL(None)\nevent = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0)\ntimer = ctypes.c_void_p()\nassert libc.timer_create(1, event, ctypes.byref(timer)) == 0\nassert libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 5000000, 0, 5000000), None) == 0\nprint(flush=True)\nwhile True: pass";
        channels.execute(&["/bin/sh", "-c", &format!("while :; do :; done & exec /usr/bin/python3 -c \"{wakes}\"")]);
        channels.listen();
        pause();
        let before = cpu();
        a_while();
        assert_eq!(cpu(), before, "microseconds of processor time");
        tell(Request::Resume { id: kept.id });
        let deadline = Instant::now() + Duration::from_secs(10);
        while cpu() < before + 20_000 {
            assert!(Instant::now() < deadline, "it does not go on");
            std::thread::park_timeout(Duration::from_millis(2));
        }
        assert!(kept.gauges.tasks() >= 3 && kept.gauges.processes().len() >= 3, "{:?}", kept.gauges.processes());
        pause();
        kept.gauges.reclaim();
        kept.end(rig);
    });
}

#[test]
fn a_sandbox_that_stands_still_does_not_hold_the_jailer_up() {
    const MANY: u64 = 3000;
    let mut rig = jail!();
    let kept = rig.keep();
    let tell = |rig: &Rig, request| send(&rig.jailer.link.socket, &request, &[]).unwrap();
    let mut channels = kept.begin(&rig);
    channels.execute(&["/bin/sh", "-c", "trap 'exit 9' INT; echo; while :; do sleep 0.01; done"]);
    channels.listen();
    tell(&rig, Request::Pause { id: kept.id });
    let paused = rig.hear().0;
    assert!(matches!(&paused, Reply::Paused { error: None, .. }), "{paused:?}");
    // Many times what a socket holds that nobody reads. One more thread, so that a jailer that is held up fails the test and not its end.
    let socket = rig.jailer.link.socket.try_clone().unwrap();
    let id = kept.id;
    let asking = std::thread::spawn(move || (0..MANY).all(|_| send(&socket, &Request::Interrupt { id }, &[]).is_ok()));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !asking.is_finished() {
        if Instant::now() > deadline {
            // Nothing else would end it.
            rustix::process::kill_process(Pid::from_raw(rig.inner()).unwrap(), Signal::KILL).unwrap();
            panic!("the jailer does not read any more");
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    assert!(asking.join().unwrap());
    // Others are served meanwhile.
    assert_eq!(rig.sh("echo here").stdout, "here\n");
    tell(&rig, Request::Resume { id });
    let (mut answered, mut ended) = (0, None);
    while answered < MANY || ended.is_none() {
        match rig.hear().0 {
            Reply::Interrupted { count, .. } => answered += count,
            Reply::ProgramEnded { report, .. } => ended = report.wait_status,
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!((answered, ended), (MANY, Some(9 << 8)));
    kept.end(&rig);
}

#[test]
fn a_paused_sandbox_ends_with_its_jailer() {
    let mut rig = jail!().forking();
    let kept = rig.keep();
    let _channels = kept.begin(&rig);
    send(&rig.jailer.link.socket, &Request::Pause { id: kept.id }, &[]).unwrap();
    assert!(matches!(rig.hear().0, Reply::Paused { error: None, .. }));
    let processes = kept.gauges.processes();
    assert_eq!(processes.len(), 2);
    drop(rig);
    let left: Vec<_> = processes.iter().filter(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_jailer_that_is_killed_ends_though_a_sandbox_stands_still() {
    let mut rig = jail!();
    let kept = rig.keep();
    let _channels = kept.begin(&rig);
    send(&rig.jailer.link.socket, &Request::Pause { id: kept.id }, &[]).unwrap();
    assert!(matches!(rig.hear().0, Reply::Paused { error: None, .. }));
    rustix::process::kill_process(Pid::from_raw(rig.inner()).unwrap(), Signal::KILL).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while rig.jailer.process.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it waits for what stands still");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn nothing_of_it_is_left_after_its_end() {
    let mut rig = jail!().forking();
    let inner = rig.inner();
    let descriptors = || std::fs::read_dir(format!("/proc/{inner}/fd")).unwrap().count();
    let turn = |rig: &mut Rig| {
        let kept = rig.keep();
        kept.run(rig, "(sleep 100 &); true");
        kept.run(rig, "true");
        kept.end(rig);
    };
    turn(&mut rig);
    let before = descriptors();
    (0..10).for_each(|_| turn(&mut rig));
    let deadline = Instant::now() + Duration::from_secs(10);
    let children = || std::fs::read_to_string(format!("/proc/{inner}/task/{inner}/children")).unwrap();
    while descriptors() > before || children().split_whitespace().count() > 1 {
        assert!(Instant::now() < deadline, "left over: {} descriptors, {}", descriptors(), children());
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
