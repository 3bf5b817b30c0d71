//! Sandboxes that outlive their programs: as root's and as an ordinary user's, with programs that are executed and that are forked.

use std::time::{Duration, Instant};

use fumehood_jail::protocol::{Reply, Request, send};

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
    // Of what is not there nothing is heard.
    send(&rig.jailer.link.socket, &Request::Interrupt { id: 4711 }, &[]).unwrap();
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
