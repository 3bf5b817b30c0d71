//! What a program inside cannot see, reach or become. Each check runs a hostile program and asserts what it did not get; all of them run
//! as root's sandboxes and as an ordinary user's, executed and forked from a zygote.

use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;

use crate::rig::{Rig, User};

/// Runs `check` in sandboxes of root's and of an ordinary user's, each with programs that are executed and with programs that are forked from
/// a zygote.
pub(crate) fn on_all(check: impl Fn(&mut Rig)) {
    let both = |start: &dyn Fn() -> Result<Rig, String>, who: &str| {
        match start() {
            Ok(mut rig) => check(&mut rig),
            Err(reason) => return println!("SKIPPED process level{who}: {reason}"),
        }
        check(&mut start().unwrap().forking());
    };
    both(&Rig::new, "");
    match User::prepare() {
        Ok(user) => both(&|| Rig::as_user(&user), " as an ordinary user"),
        Err(reason) => println!("SKIPPED ordinary user: {reason}"),
    }
}

/// Runs a Python program that prints one line for each thing it got; it must print nothing but `done`.
fn gets_nothing(rig: &mut Rig, program: &str) {
    let run = rig.python(&format!("{program}\nprint('done')"));
    assert_eq!(run.stdout, "done\n", "{}{:?}", run.stderr, run.report);
}

#[test]
fn it_is_nobody_and_can_become_nobody_else() {
    on_all(|rig| {
        gets_nothing(
            rig,
            r"
import os
if os.getresuid() != (1000,) * 3 or os.getresgid() != (1000,) * 3: print('ids', os.getresuid(), os.getresgid())
for become in (os.setuid, os.setgid, os.seteuid, lambda n: os.setgroups([n])):
    for n in (0, 1, 65534):
        try: become(n); print('became', become, n)
        except OSError: pass
status = dict(line.split(':\t', 1) for line in open('/proc/self/status'))
for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'):
    if int(status[name], 16): print(name, status[name])
if status['NoNewPrivs'].strip() != '1' or status['Seccomp'].strip() != '2': print(status)
",
        );
    });
}

#[test]
fn a_setuid_program_gives_it_nothing() {
    on_all(|rig| {
        let run = rig.sh("for p in $(find /usr/bin /usr/sbin -perm -4000 2>/dev/null | head -20); do $p --version >/dev/null 2>&1; done; mount /dev/null /mnt 2>/dev/null && echo mounted; su -c id root </dev/null 2>/dev/null | grep 'uid=0'; echo done");
        assert_eq!(run.stdout, "done\n", "{}", run.stderr);
    });
}

#[test]
fn the_hosts_files_are_not_there() {
    on_all(|rig| {
        gets_nothing(
            rig,
            r"
import os
for path in ('/root', '/etc/shadow', '/etc/ssh', '/var/lib', '/var/run/docker.sock', '/run/systemd', '/sys', '/boot', '/proc/1/root/etc', '/proc/1/environ', '/proc/1/maps', '/proc/1/fd/0', '/proc/kcore', '/proc/sys/kernel/core_pattern.x', '/srv', '/lost+found', '/home/ubuntu'):
    try:
        got = os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(1)
        if got: print(path, got)
    except OSError: pass
for path in filter(os.path.isdir, ('/', '/home', '/var', '/etc', '/opt', '/mnt', '/run')):
    extra = set(os.listdir(path)) - {'bin','sbin','lib','lib64','lib32','libx32','usr','etc','dev','proc','tmp','var','home','data','mnt','run','opt','sandbox','passwd'}
    if extra: print(path, extra)
",
        );
    });
}

#[test]
fn what_it_may_not_write_it_cannot_write() {
    on_all(|rig| {
        gets_nothing(
            rig,
            r"
import os
for path in ('/x', '/usr/x', '/bin/x', '/etc/passwd', '/etc/x', '/dev/x', '/mnt/x', '/home/x', '/proc/sys/kernel/hostname', '/proc/sys/vm/overcommit_memory', '/proc/sysrq-trigger', '/proc/1/oom_score_adj', '/proc/self/uid_map', '/proc/irq/default_smp_affinity'):
    try: os.write(os.open(path, os.O_WRONLY | os.O_CREAT), b'1'); print('wrote', path)
    except OSError: pass
for path in ('/usr/bin/env', '/etc/passwd', '/bin'):
    for change in (os.unlink, lambda p: os.rename(p, '/tmp/y'), lambda p: os.chmod(p, 0o777), lambda p: os.link(p, '/tmp/z')):
        try: change(path); print('changed', path)
        except OSError: pass
for mode, device in ((0o020666, os.makedev(1, 1)), (0o060666, os.makedev(8, 0))):
    try: os.mknod('/tmp/device', mode, device); open('/tmp/device', 'rb').read(1); print('device', mode)
    except OSError: pass
",
        );
    });
}

#[test]
fn its_own_places_are_writable() {
    on_all(|rig| {
        let run = rig.sh("for d in /data /tmp /var/tmp /home/sandbox /dev/shm; do echo x > $d/f && cat $d/f; done; echo y > /dev/null; head -c 3 /dev/zero | wc -c; echo out > /dev/stdout; pwd");
        assert_eq!(run.stdout, "x\nx\nx\nx\nx\n3\nout\n/data\n", "{}", run.stderr);
    });
}

#[test]
fn its_namespaces_are_its_own_and_it_holds_no_descriptor_of_the_hosts() {
    on_all(|rig| {
        let run = rig.python(
            "import os\nfor n in sorted(os.listdir('/proc/self/ns')): print(n, os.readlink(f'/proc/self/ns/{n}'))",
        );
        for line in run.stdout.lines() {
            let (name, inside) = line.split_once(' ').unwrap();
            if name.starts_with("time") {
                continue;
            }
            let outside = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
            assert_ne!(outside.display().to_string(), inside, "{name}");
        }
        assert!(run.stdout.lines().count() >= 8, "{run:?}");
        gets_nothing(
            rig,
            "import os\nfds = [int(n) for n in os.listdir('/proc/self/fd')]\nopen_ = [n for n in fds if n > 2 and os.path.exists(f'/proc/self/fd/{n}')]\nif open_: print(open_)",
        );
    });
}

#[test]
fn it_sees_only_its_own_processes_and_cannot_touch_process_1() {
    on_all(|rig| {
        gets_nothing(
            rig,
            r"
import os, signal
pids = {int(n) for n in os.listdir('/proc') if n.isdigit()}
if pids != {1, os.getpid()}: print('sees', pids)
for sig in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGSEGV): 
    try: os.kill(1, sig)
    except OSError: pass
for leaf in ('environ', 'mem', 'maps', 'fd', 'root', 'cwd', 'exe', 'auxv', 'stack', 'syscall'):
    path = f'/proc/1/{leaf}'
    try: got = os.listdir(path) if leaf == 'fd' else os.readlink(path) if leaf in ('root', 'cwd', 'exe') else open(path, 'rb').read(8); print(path, got)
    except OSError: pass
if b'/' in open('/proc/1/cmdline', 'rb').read(): print('a path of the host', open('/proc/1/cmdline').read())
if open('/proc/self/cgroup').read().count('fumehood'): print(open('/proc/self/cgroup').read())
",
        );
    });
}

#[test]
fn closed_calls_answer_with_an_error_and_kill_nothing() {
    on_all(|rig| {
        gets_nothing(
            rig,
            r"
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == 'x86_64'
closed = {'mount': 165, 'umount2': 166, 'pivot_root': 155, 'chroot': 161, 'unshare': 272, 'setns': 308, 'ptrace': 101, 'process_vm_readv': 310,
  'add_key': 248, 'request_key': 249, 'keyctl': 250, 'bpf': 321, 'perf_event_open': 298, 'userfaultfd': 323, 'io_uring_setup': 425, 'init_module': 175,
  'finit_module': 313, 'kexec_load': 246, 'reboot': 169, 'swapon': 167, 'acct': 163, 'settimeofday': 164, 'clock_settime': 227, 'adjtimex': 159, 'syslog': 103,
  'open_by_handle_at': 304, 'name_to_handle_at': 303, 'fsopen': 430, 'open_tree': 428, 'move_mount': 429, 'mount_setattr': 442, 'pidfd_getfd': 438, 'kcmp': 312,
  'fanotify_init': 300, 'quotactl': 179, 'iopl': 172, 'ioperm': 173, 'modify_ldt': 154, 'sethostname': 170, 'move_pages': 279} if x86 else {}
for name, number in closed.items():
    ctypes.set_errno(0)
    if libc.syscall(number, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != errno.EPERM: print(name, ctypes.get_errno())
for number in ((435, 463, 470, 600, 0x40000000 + 39) if x86 else (435, 600)):
    ctypes.set_errno(0)
    if libc.syscall(number, 0, 0, 0) != -1 or ctypes.get_errno() != errno.ENOSYS: print('newer or foreign', number, ctypes.get_errno())
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    ctypes.set_errno(0)
    pid = libc.syscall(56 if x86 else 220, flag | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    if pid != -1 or ctypes.get_errno() != errno.EPERM: print('clone', hex(flag), ctypes.get_errno())
import socket
for family in (socket.AF_PACKET, socket.AF_ALG, socket.AF_VSOCK, 29, 44):
    try: socket.socket(family, socket.SOCK_DGRAM); print('socket', family)
    except OSError: pass
for kind in (socket.SOCK_RAW,):
    try: socket.socket(socket.AF_INET, kind, 1); print('raw')
    except OSError: pass
import fcntl, pty
m, s = pty.openpty()
try: fcntl.ioctl(s, 0x5412, b'x'); print('TIOCSTI')
except OSError: pass
",
        );
        let refused = rig.refused();
        for told in [
            "mount",
            "ptrace",
            "clone(CLONE_NEWUSER)",
            "socket(AF_PACKET)",
            "socket(AF_VSOCK)",
            "ioctl(TIOCSTI)",
            "keyctl",
        ] {
            assert!(refused.iter().any(|what| what == told), "{told} is missing in {refused:?}");
        }
        // Libraries try these and do without.
        assert!(!refused.iter().any(|what| what.starts_with("io_uring") || what == "kcmp"), "{refused:?}");
    });
}

#[test]
fn a_call_that_nobody_hears_of_any_more_is_refused_all_the_same() {
    on_all(|rig| {
        rig.deaf();
        let run = rig.python("import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.mount(0, 0, 0, 0, 0), ctypes.get_errno())");
        // ENOSYS, by the kernel itself.
        assert_eq!(run.stdout, "-1 38\n", "{run:?}");
    });
}

#[test]
fn no_program_holds_the_listener_of_its_own_refused_calls() {
    on_all(|rig| {
        gets_nothing(
            rig,
            "import os\nfor n in os.listdir('/proc/self/fd'):\n    try: where = os.readlink(f'/proc/self/fd/{n}')\n    except OSError: continue\n    if 'seccomp' in where: print(where)",
        );
    });
}

#[test]
fn there_is_no_network_but_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = format!("fumehood-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let abstract_listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    on_all(|rig| {
        gets_nothing(
            rig,
            &format!(
                r"
import socket, time
if [n for _, n in socket.if_nameindex()] != ['lo']: print(socket.if_nameindex())
begun = time.monotonic()
for family, address in ((2, ('127.0.0.1', {port})), (2, ('192.0.2.1', 80)), (2, ('169.254.169.254', 80)), (10, ('::1', {port})), (10, ('2001:db8::1', 80)), (1, '\0{name}'), (1, '/var/run/docker.sock'), (1, '/run/dbus/system_bus_socket')):
    s = socket.socket(family); s.settimeout(5)
    try: s.connect(address); print('connected', address)
    except OSError: pass
for host in ('example.com', 'name.invalid', 'metadata.google.internal'):
    try: socket.getaddrinfo(host, 80); print('resolved', host)
    except OSError: pass
if time.monotonic() - begun > 3: print('slow')
a = socket.create_server(('127.0.0.1', 0)); b = socket.create_connection(a.getsockname()); b.sendall(b'x')
"
            ),
        );
    });
    drop((listener, abstract_listener));
}

#[test]
fn two_sandboxes_of_root_have_different_uids_and_share_nothing() {
    let mut rig = crate::jail!();
    // Two jailers, as when a server runs and somebody uses the command line: their ranges do not overlap.
    let mut other = crate::jail!();
    let (mine, theirs) = (rig.sh("true").uid, other.sh("true").uid);
    let first = rig.sh("echo secret > /tmp/f; echo secret > /dev/shm/f; echo secret > /data/f");
    let second = rig.sh("ls /tmp /dev/shm /data");
    assert!(!second.stdout.contains("f\n"), "{second:?}");
    if rustix::process::geteuid().is_root() {
        assert_ne!(first.uid, second.uid);
        assert!(mine.unwrap().abs_diff(theirs.unwrap()) >= 64, "{mine:?} {theirs:?}");
        assert!(first.uid.unwrap() >= 300_000);
    }
}

#[test]
fn the_image_may_lie_in_a_folder_closed_to_the_sandboxs_uid() {
    let mut rig = crate::jail!();
    let closed = tempfile::tempdir().unwrap();
    std::fs::File::create(closed.path().join("hello")).unwrap().write_all(b"from the image\n").unwrap();
    let mut spec = rig.spec(&["/bin/cat", "/opt/hello"]);
    let source = closed.path().join("hello").display().to_string();
    spec.root.push(fumehood_jail::protocol::RootEntry::Bind { source, target: "/opt/hello".to_owned() });
    let run = rig.run(spec, None);
    assert_eq!(run.stdout, "from the image\n", "{run:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_entry_of_another_architecture_is_closed() {
    on_all(|rig| {
        // Machine code for getpid through the 32-bit entry.
        let program = "import ctypes, mmap\ncode = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\ncode.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))\n\
                       f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))\nprint('reached', flush=True)\nprint('got', f())";
        let run = rig.python(program);
        assert_eq!(run.stdout, "reached\n", "{run:?}");
        // SIGSYS from the filter; SIGSEGV on a kernel without that entry.
        let signal = run.report.wait_status.unwrap() & 0x7f;
        assert!(signal == 31 || signal == 11, "{run:?}");
    });
}
