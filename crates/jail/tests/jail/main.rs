//! The jail against this machine's kernel. Where a kernel feature is missing each test says so and passes; CI fails on that line.

mod rig;

use rig::Rig;

/// A rig, or a printed reason why there is none.
macro_rules! rig {
    () => {
        match Rig::new() {
            Ok(rig) => rig,
            Err(reason) => {
                println!("SKIPPED process level: {reason}");
                return;
            }
        }
    };
}

#[test]
fn a_program_runs_and_its_exit_code_comes_back() {
    let mut rig = rig!();
    let run = rig.sh("echo out; echo err >&2; exit 7");
    assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.code()), ("out\n", "err\n", 7), "{run:?}");
}

#[test]
fn explore() {
    let mut rig = rig!();
    println!("{:?}", rig.jailer.link.features);
    let run = rig.sh("id; cat /proc/self/status | grep -E 'Cap|NoNew|Seccomp'; ls -la / /dev /data /tmp; mount; cat /proc/self/cgroup; cat /proc/self/uid_map; ps aux 2>/dev/null | head; cat /proc/net/dev; ls /proc/self/fd -la; hostname; ulimit -a; echo hi > /data/x; echo y > /usr/zz; echo > /zz; cat /proc/1/environ; cat /proc/kcore | head -c 10; df -h");
    println!("{}\n{}\n{:?}", run.stdout, run.stderr, run.report);
    let t=std::time::Instant::now();
    for _ in 0..50 { rig.sh("true"); }
    println!("50 in {:?}", t.elapsed());
}
