//! System calls that no safe wrapper offers. All `unsafe` of this crate is here.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub(crate) mod attempts;

/// A user namespace.
pub(crate) const USER: u64 = libc::CLONE_NEWUSER as u64;
/// A pid namespace.
pub(crate) const PIDS: u64 = libc::CLONE_NEWPID as u64;
/// A mount namespace.
pub(crate) const MOUNTS: u64 = libc::CLONE_NEWNS as u64;
/// A namespace of System V IPC and message queues.
pub(crate) const IPC: u64 = libc::CLONE_NEWIPC as u64;
/// A network namespace.
pub(crate) const NETWORK: u64 = libc::CLONE_NEWNET as u64;
/// Namespaces of System V IPC, the host name and the network.
pub(crate) const COMMUNICATION: u64 = IPC | NETWORK | libc::CLONE_NEWUTS as u64;
/// Namespaces of a sandbox. The cgroup namespace is entered later, after the process has joined its group.
pub(crate) const NAMESPACES: u64 = USER | PIDS | MOUNTS | COMMUNICATION;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Which side of a fork this is.
pub(crate) enum Side {
    /// The new process.
    Child,
    /// The old one, with the new one's pid and a descriptor that names it.
    Parent { pid: i32, pidfd: OwnedFd },
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Forks into new namespaces in one step: the child is process 1 of its pid namespace.
///
/// The caller must be single-threaded (the jailer is, by construction); otherwise the child could find locks held for ever.
pub(crate) fn clone_into(namespaces: u64) -> io::Result<Side> {
    let mut pidfd: RawFd = -1;
    let args = CloneArgs {
        flags: namespaces | libc::CLONE_PIDFD as u64,
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM the child gets a copy of this address space, stack included, exactly as with fork; `args` outlives
    // the call, its size is passed, and `pidfd` points to a live i32 that the kernel fills before returning to the parent.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &args, size_of::<CloneArgs>()) })?;
    if pid == 0 {
        return Ok(Side::Child);
    }
    // SAFETY: CLONE_PIDFD succeeded, so the kernel just opened this descriptor for us and nobody else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Side::Parent { pid: pid as i32, pidfd })
}

/// Forks; `None` in the child.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the caller is process 1 of a sandbox, single-threaded, so the child finds no lock held by a thread that is gone.
    let pid = check(libc::c_long::from(unsafe { libc::fork() }))?;
    Ok((pid != 0).then_some(pid as i32))
}

/// Signals that were blocked before.
pub(crate) struct Blocked(libc::sigset_t);

/// Blocks every signal of this thread.
pub(crate) fn block_signals() -> io::Result<Blocked> {
    // SAFETY: `all` is initialised by sigfillset before it is read; `before` is filled by the call.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        check(libc::c_long::from(libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before)))?;
        Ok(Blocked(before))
    }
}

/// Undoes [`block_signals`].
pub(crate) fn restore_signals(blocked: &Blocked) -> io::Result<()> {
    // SAFETY: the set came from the kernel.
    let restored = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &blocked.0, std::ptr::null_mut()) };
    check(libc::c_long::from(restored)).map(drop)
}

/// Forks through a process in between: that one shares this one's memory, calls `enter`, which may take it anywhere, then forks and ends.
/// `None` in the fork; here the fork's pid, once the one in between has ended. When `enter` returns false nothing is forked, which is an error here.
///
/// This process must be single-threaded, with all signals blocked.
pub(crate) fn fork_through<T>(subject: &mut T, enter: extern "C" fn(&mut T) -> bool) -> io::Result<Option<i32>> {
    /// The one in between notes here what its fork returned.
    struct Note {
        pid: i32,
        error: i32,
    }
    extern "C" fn note(note: &mut Note, pid: i32) {
        // The error is that of the call just made: memory is shared, and so is errno.
        *note = Note { pid, error: io::Error::last_os_error().raw_os_error().unwrap_or(0) };
    }
    let mut noted = Note { pid: 0, error: libc::ECANCELED };
    let between: i64;
    // SAFETY: as after vfork, the process in between runs on this stack while this process is suspended. It never leaves the block: below the
    // stack pointer, where its calls push, this block keeps nothing (it is not `nostack`), above it only what is passed by pointer
    // changes. This process comes out of the block once, with the result of the first call; the fork has a memory of its own
    // and comes out of it once too, with 0. The registers that hold the pointers are preserved by calls; all others are declared as changed.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "mov eax, {vfork}",
            "syscall",
            "test rax, rax",
            "jnz 3f",
            "mov rdi, r12",
            "call r13",
            "test al, al",
            "jz 2f",
            "call r14",
            "test eax, eax",
            "jz 3f",
            "mov rdi, r15",
            "mov esi, eax",
            "call {note}",
            "2:",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "3:",
            vfork = const libc::SYS_vfork,
            exit = const libc::SYS_exit,
            note = sym note,
            in("r12") std::ptr::from_mut(subject),
            in("r13") enter,
            in("r14") libc::fork as unsafe extern "C" fn() -> libc::pid_t,
            in("r15") std::ptr::from_mut(&mut noted),
            out("rax") between,
            clobber_abi("C"),
        );
    }
    // SAFETY: as above. Without a stack of its own `clone` leaves the stack pointer as it is.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "mov x8, {clone}",
            "svc 0",
            "cbnz x0, 3f",
            "mov x0, x20",
            "blr x21",
            "tbz w0, 0, 2f",
            "blr x22",
            "cbz w0, 3f",
            "mov w1, w0",
            "mov x0, x23",
            "bl {note}",
            "2:",
            "mov x0, 0",
            "mov x8, {exit}",
            "svc 0",
            "3:",
            clone = const libc::SYS_clone,
            exit = const libc::SYS_exit,
            note = sym note,
            in("x20") std::ptr::from_mut(subject),
            in("x21") enter,
            in("x22") libc::fork as unsafe extern "C" fn() -> libc::pid_t,
            in("x23") std::ptr::from_mut(&mut noted),
            inout("x0") i64::from(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) => between,
            in("x1") 0, in("x2") 0, in("x3") 0, in("x4") 0,
            clobber_abi("C"),
        );
    }
    match between {
        0 => Ok(None),
        error if error < 0 => Err(io::Error::from_raw_os_error(-(error as i32))),
        between => {
            // SAFETY: reaps the process in between, which has ended or is ending; no status is asked for.
            while unsafe { libc::waitpid(between as i32, std::ptr::null_mut(), 0) } == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            // SAFETY: written by another process sharing this memory, which the compiler cannot see.
            match unsafe { std::ptr::read_volatile(&raw const noted) } {
                Note { pid, .. } if pid > 0 => Ok(Some(pid)),
                Note { error, .. } => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

/// Replaces this process. Returns only on failure.
pub(crate) fn exec(program: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both arrays end with a null pointer and their strings are NUL-terminated and alive until the call returns.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process without running exit handlers, which belong to the process it was forked from.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit is always allowed.
    unsafe { libc::_exit(code) }
}

fn prctl(option: libc::c_int, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used in this module take one integer and no pointer.
    check(libc::c_long::from(unsafe { libc::prctl(option, argument, 0, 0, 0) })).map(drop)
}

/// Has the kernel kill this process when its parent dies. Lost when credentials change.
pub(crate) fn die_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

/// Shows or hides this process's memory and descriptors to others of the same uid.
pub(crate) fn show_memory(visible: bool) -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, visible.into())
}

/// Keeps capabilities over the change from an unmapped id to the sandbox's.
pub(crate) fn keep_capabilities() -> io::Result<()> {
    prctl(libc::PR_SET_KEEPCAPS, 1)
}

/// Names this process for `ps`.
pub(crate) fn set_process_name(name: &CStr) -> io::Result<()> {
    prctl(libc::PR_SET_NAME, name.as_ptr() as libc::c_ulong)
}

/// Sets real, effective and saved ids of this single-threaded process, groups first.
pub(crate) fn become_ids(uid: u32, gid: u32, drop_groups: bool) -> io::Result<()> {
    if drop_groups {
        // SAFETY: a zero count reads no memory.
        check(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) })?;
    }
    // SAFETY: plain integers. The raw calls change this thread only, which is the only one.
    unsafe {
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

/// Sets the effective uid of this single-threaded process, which is what owns the user namespaces it makes. Back to 0 the
/// capabilities become effective again.
pub(crate) fn act_as(uid: u32) -> io::Result<()> {
    const UNCHANGED: libc::uid_t = libc::uid_t::MAX;
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, UNCHANGED, uid, UNCHANGED) }).map(drop)
}

/// Enters an existing namespace, of whatever kind.
pub(crate) fn enter_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes two integers; the descriptor is open.
    check(libc::c_long::from(unsafe { libc::setns(namespace.as_raw_fd(), 0) })).map(drop)
}

/// A child of this process that has ended and was not waited for yet; it stays so.
pub(crate) fn ended_child() -> Option<i32> {
    // SAFETY: all-zero bytes are a valid siginfo_t, and the call fills it; `si_pid` is the member it fills for children, 0 if there is none.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        check(libc::c_long::from(libc::waitid(libc::P_ALL, 0, &mut info, options))).ok()?;
        Some(info.si_pid()).filter(|pid| *pid != 0)
    }
}

/// Default action for every signal and nothing blocked: what is ignored or blocked would survive exec.
pub(crate) fn reset_signals() -> io::Result<()> {
    for signal in 1..=libc::SIGRTMAX() {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP || (32..libc::SIGRTMIN()).contains(&signal) {
            continue;
        }
        // SAFETY: SIG_DFL installs no code.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: `empty` is initialised by sigemptyset before it is read; the old mask is not asked for.
    unsafe {
        let mut empty = std::mem::zeroed();
        libc::sigemptyset(&mut empty);
        check(libc::c_long::from(libc::sigprocmask(libc::SIG_SETMASK, &empty, std::ptr::null_mut()))).map(drop)
    }
}

/// Ignores a signal.
pub(crate) fn ignore_signal(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: SIG_IGN installs no code.
    if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A descriptor that is readable when a child has ended; SIGCHLD is blocked from now on.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before it is used; signalfd returns a new descriptor that nobody else owns.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        check(libc::c_long::from(libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())))?;
        let fd = check(libc::c_long::from(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Sends a signal to every process of this pid namespace but this one, process 1; 0 only asks. Whether there is any.
pub(crate) fn signal_all(signal: libc::c_int) -> bool {
    if std::process::id() != 1 {
        // This would reach every process of the same uid.
        return false;
    }
    // SAFETY: takes integers. Process 1 of a pid namespace reaches only what is in it.
    let sent = unsafe { libc::kill(-1, signal) };
    sent == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Makes `fd` available as number `target`, not closed on exec.
pub(crate) fn place(fd: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
    if fd.as_raw_fd() == target {
        // dup2 onto itself would leave close-on-exec set.
        // SAFETY: F_SETFD takes an integer.
        return check(libc::c_long::from(unsafe { libc::fcntl(target, libc::F_SETFD, 0) })).map(drop);
    }
    // SAFETY: closing whatever was at `target` is the purpose; the caller has moved everything it needs above the targets.
    check(libc::c_long::from(unsafe { libc::dup2(fd.as_raw_fd(), target) })).map(drop)
}

fn close_range_with(first: u32, last: u32, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: called on the way to exec or to the reaping loop; owners of descriptors in the range are never dropped there, or
    // only to find them closed, which the kernel answers with an error and nothing else.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// Closes the descriptors from `first` to `last`.
pub(crate) fn close_range(first: u32, last: u32) -> io::Result<()> {
    close_range_with(first, last, 0)
}

/// Has exec close every descriptor from `first` on.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    close_range_with(first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
}

/// Closes every descriptor above 2 that is not listed.
pub(crate) fn close_all_but(mut kept: Vec<RawFd>) -> io::Result<()> {
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept {
        let fd = u32::try_from(fd).map_err(|_| io::ErrorKind::InvalidInput)?;
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = first.max(fd + 1);
    }
    close_range(first, u32::MAX)
}

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Adds attributes (`MOUNT_ATTR_*`) to a mount and, if `recursive`, to those below it.
pub(crate) fn restrict_mount(mount: BorrowedFd<'_>, set: u64, recursive: bool) -> io::Result<()> {
    let attr = MountAttr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty NUL-terminated string and `attr` is alive with its size given.
    check(unsafe {
        libc::syscall(libc::SYS_mount_setattr, mount.as_raw_fd(), c"".as_ptr(), flags, &attr, size_of::<MountAttr>())
    })
    .map(drop)
}

/// `MOUNT_ATTR_RDONLY`
pub(crate) const READ_ONLY: u64 = 0x1;
/// `MOUNT_ATTR_NOSUID`
pub(crate) const NO_SUID: u64 = 0x2;
/// `MOUNT_ATTR_NODEV`
pub(crate) const NO_DEVICES: u64 = 0x4;
/// `MOUNT_ATTR_NOEXEC`
pub(crate) const NO_EXEC: u64 = 0x8;

/// Brings an interface up.
pub(crate) fn raise_interface(socket: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.to_bytes().iter().take(libc::IFNAMSIZ - 1)) {
        *to = *from as libc::c_char;
    }
    // SAFETY: both requests read and write one ifreq, which is alive; the flags member is the one SIOCGIFFLAGS fills.
    unsafe {
        check(libc::c_long::from(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &mut request)))?;
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        check(libc::c_long::from(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request))).map(drop)
    }
}

/// Enters a cgroup namespace rooted at the current group, so that `/proc/self/cgroup` tells nothing of the host.
pub(crate) fn enter_cgroup_namespace() -> io::Result<()> {
    // SAFETY: takes an integer.
    check(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) })).map(drop)
}

/// Has the process started by `command` find the descriptor `fd` under the number `target`.
pub(crate) fn pass_descriptor(command: &mut std::process::Command, fd: RawFd, target: RawFd) {
    use std::os::unix::process::CommandExt;
    let place_it = move || {
        // SAFETY: `fd` is open in the forked child, which has a copy of the parent's descriptors; fcntl and dup2 are
        // async-signal-safe, as code between fork and exec must be.
        let result = unsafe { if fd == target { libc::fcntl(fd, libc::F_SETFD, 0) } else { libc::dup2(fd, target) } };
        check(libc::c_long::from(result)).map(drop)
    };
    // SAFETY: the closure allocates nothing, takes no lock and touches only descriptors.
    unsafe { command.pre_exec(place_it) };
}

/// `KEYCTL_JOIN_SESSION_KEYRING`
pub(crate) const JOIN_SESSION_KEYRING: u64 = 1;

/// Has this process, and what it becomes and forks, find a new and empty keyring where the session's was.
pub(crate) fn join_new_session_keyring() -> io::Result<()> {
    // SAFETY: a null name asks for a new anonymous keyring.
    check(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) }).map(drop)
}

/// Puts a key into the session keyring, for whoever has that to read.
pub(crate) fn add_key_to_session(description: &CStr, payload: &[u8]) -> io::Result<()> {
    const SESSION_KEYRING: libc::c_int = -3;
    // SAFETY: both names end with a NUL; the kernel copies as many bytes of the payload as it is told there are.
    let added = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            description.as_ptr(),
            payload.as_ptr(),
            payload.len(),
            SESSION_KEYRING,
        )
    };
    check(added).map(drop)
}

/// Installs a seccomp filter. `no_new_privs` must be set, or the capability for it held.
pub(crate) fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` names `len` instructions, which the kernel copies before it returns.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) }).map(drop)
}

/// Installs a seccomp filter that holds the calls it closes until they are answered through the descriptor returned, which is closed on exec.
/// `no_new_privs` must be set, or the capability for it held.
pub(crate) fn install_listening_filter(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` names `len` instructions, which the kernel copies before it returns; with this flag it returns a new descriptor that
    // nobody else owns.
    unsafe {
        let fd = check(libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &program,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// A call that is held by a seccomp filter.
pub(crate) struct Notification {
    pub(crate) id: u64,
    pub(crate) call: i32,
    pub(crate) arguments: [u64; 6],
}

/// `SECCOMP_IOCTL_NOTIF_RECV`, of a [`libc::seccomp_notif`]
const RECEIVE_NOTIFICATION: libc::c_ulong = 0xc050_2100;
/// `SECCOMP_IOCTL_NOTIF_SEND`, of a [`libc::seccomp_notif_resp`]
const SEND_NOTIFICATION: libc::c_ulong = 0xc018_2101;

/// Takes a call that is held; waits if there is none.
pub(crate) fn receive_notification(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    // SAFETY: all-zero bytes are a valid seccomp_notif, and what the kernel asks to be given; the size is part of the request's number.
    unsafe {
        let mut held: libc::seccomp_notif = std::mem::zeroed();
        check(libc::c_long::from(libc::ioctl(listener.as_raw_fd(), RECEIVE_NOTIFICATION as _, &mut held)))?;
        Ok(Notification { id: held.id, call: held.data.nr, arguments: held.data.args })
    }
}

/// Has a call that is held return with this error.
pub(crate) fn answer_notification(listener: BorrowedFd<'_>, id: u64, error: i32) -> io::Result<()> {
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: -error, flags: 0 };
    // SAFETY: `answer` is alive, and its size is part of the request's number.
    let answered = unsafe { libc::ioctl(listener.as_raw_fd(), SEND_NOTIFICATION as _, &mut answer) };
    check(libc::c_long::from(answered)).map(drop)
}

/// Version of Landlock that the running kernel offers; 0 for none.
pub(crate) fn landlock_version() -> i64 {
    const VERSION_REQUEST: libc::c_uint = 1;
    // SAFETY: with this flag the kernel reads no attributes; pointer and size must be null and zero.
    check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION_REQUEST) })
        .unwrap_or(0)
}
