//! How programs end: by themselves, by a signal, by a kill, each time with everything they started.

use std::time::{Duration, Instant};

use crate::jail;

#[test]
fn a_program_runs_and_its_exit_code_comes_back() {
    let mut rig = jail!();
    let run = rig.sh("echo out; echo err >&2; exit 7");
    assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.code()), ("out\n", "err\n", 7), "{run:?}");
    assert_eq!(rig.sh("kill -SEGV $$").report.wait_status.unwrap() & 0x7f, 11);
}

#[test]
fn the_end_of_the_program_is_the_end_of_everything_it_started() {
    let mut rig = jail!();
    let begun = Instant::now();
    // The pipes stay open in the children; reading them to the end ends only when all are dead.
    let run =
        rig.sh("sleep 1000 & setsid sleep 1000 & (setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &) ; echo started");
    assert_eq!((run.stdout.as_str(), run.code()), ("started\n", 0));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_kill_ends_everything_at_once() {
    let mut rig = jail!();
    let spec = rig.spec(&["/bin/sh", "-c", "setsid sleep 1000 & trap '' TERM; while :; do :; done"]);
    let begun = Instant::now();
    let run = rig.run(spec, Some(Duration::from_millis(100)));
    assert_eq!(run.report.wait_status, None, "{run:?}");
    assert!(begun.elapsed() < Duration::from_secs(2));
}
