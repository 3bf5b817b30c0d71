//! Limits that the kernel enforces, and what is reported about them.

use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat};

use crate::jail;

#[test]
fn memory_beyond_the_limit_is_killed_and_counted() {
    let mut rig = jail!();
    let run = rig.python("x = b'1' * (400 << 20)");
    assert!(run.report.oom_kills > 0, "{run:?}");
    assert!(run.report.memory_peak_bytes <= 256 << 20, "{run:?}");
}

#[test]
fn files_count_as_memory_too() {
    let mut rig = jail!();
    let mut spec = rig.spec(&[
        "/usr/bin/python3",
        "-I",
        "-c",
        "open('/data/f', 'wb').write(b'1' * (60 << 20)); open('/data/g', 'wb').write(b'1' * (60 << 20))",
    ]);
    spec.disk_bytes = 1 << 30;
    spec.limits.memory_bytes = 100 << 20;
    let run = rig.run(spec, None);
    assert!(run.report.oom_kills > 0, "{run:?}");
}

#[test]
fn when_a_child_is_ended_for_memory_all_of_the_sandbox_ends() {
    let mut rig = jail!();
    // Shared memory stays when a child is ended: whoever goes on meets the limit again, and again.
    let run = rig.python(
        "import mmap, os, time\nshared = mmap.mmap(-1, 400 << 20)\nif os.fork() == 0:\n    for at in range(0, len(shared), 4096): shared[at] = 1\nos.wait()\ntime.sleep(10)\nprint('goes on')",
    );
    assert!(run.report.oom_kills > 0, "{run:?}");
    assert_eq!((run.stdout.as_str(), run.report.wait_status.unwrap_or(9) & 0x7f), ("", 9), "{run:?}");
}

#[test]
fn what_owes_time_of_the_processor_is_killed_at_once_all_the_same() {
    let mut rig = jail!();
    // Newer kernels let what they do for a program go on beyond its share, and have it wait afterwards: here for twenty times as long.
    let program = "import os\nzeros = os.open('/dev/zero', os.O_RDONLY)\nblock = bytearray(2 << 20)\nfor _ in range(4): os.fork()\nwhile True: os.readv(zeros, [block] * 1000)";
    let mut spec = rig.spec(&["/usr/bin/python3", "-I", "-c", program]);
    spec.limits.cpu_millis = 50;
    let begun = Instant::now();
    let run = rig.run(spec, Some(Duration::from_secs(4)));
    assert_eq!(run.report.wait_status, None, "{run:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?} {run:?}", begun.elapsed());
}

#[test]
fn processes_beyond_the_limit_are_refused_and_counted() {
    let mut rig = jail!();
    let run = rig.python("import os\nn = 0\ntry:\n    while True:\n        if os.fork() == 0:\n            import time; time.sleep(30)\n        n += 1\nexcept BlockingIOError:\n    print(n)");
    assert_eq!(run.stdout, "31\n", "{run:?}");
    assert!(run.report.process_limit_hits > 0, "{run:?}");
}

#[test]
fn the_disk_is_as_large_as_asked_for_and_readable_after_the_end() {
    let mut rig = jail!();
    let run = rig.python("import errno\nopen('/data/kept', 'w').write('content')\ntry: open('/tmp/big', 'wb').write(b'1' * (40 << 20))\nexcept OSError as e: print(e.errno == errno.ENOSPC)\ntry:\n    f = open('/tmp/sparse', 'wb'); f.truncate(1 << 40)\nexcept OSError as e: print(e.errno == errno.EFBIG)");
    assert_eq!(run.stdout, "True\nTrue\n", "{run:?}");
    let disk = run.disk.unwrap();
    let kept = openat(disk.as_fd(), "data/kept", OFlags::RDONLY, Mode::empty()).unwrap();
    let mut text = String::new();
    std::fs::File::from(kept).read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
}

#[test]
fn cpu_time_and_bytes_are_reported() {
    let mut rig = jail!();
    let run = rig.sh("head -c 1000000 /dev/zero | wc -c");
    assert!(run.report.bytes_read.unwrap() >= 1_000_000, "{run:?}");
    assert!(run.report.cpu_us > 0);
}
