//! System calls made so wrongly that they change nothing: the error tells whether the kernel has the call, and whether a filter is in the way.

use std::io;

/// Errors of calls that could not succeed, by name; 0 where one did all the same.
pub(crate) fn attempt_calls() -> [(&'static str, i32); 8] {
    /// A flag that none of these calls knows.
    const UNKNOWN: libc::c_ulong = 1 << 31;
    let name = c"tmpfs".as_ptr();
    let null = std::ptr::null::<u8>();
    // SAFETY: none of these reads or writes memory of this process but `name`, which is alive: structures are null with a size of zero, which the
    // kernel refuses before it looks at them, and so are flags that it does not know. `unshare` refuses the bits of the signal mask
    // whatever else is asked for, so nothing is unshared. The descriptor that `pidfd_open` opens is closed at once.
    unsafe {
        [
            ("clone3", error(libc::syscall(libc::SYS_clone3, null, 0_usize))),
            ("unshare", error(libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER | 1))),
            ("pidfd_open", closed(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0))),
            ("openat2", error(libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, name, null, 0_usize))),
            ("close_range", error(libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, UNKNOWN))),
            ("open_tree", error(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, name, UNKNOWN))),
            ("fsopen", error(libc::syscall(libc::SYS_fsopen, name, UNKNOWN))),
            ("mount_setattr", error(libc::syscall(libc::SYS_mount_setattr, -1, name, UNKNOWN, null, 0_usize))),
        ]
    }
}

/// Version of Landlock, or why there is none.
pub(crate) fn landlock_version() -> io::Result<i64> {
    const VERSION_REQUEST: libc::c_uint = 1;
    // SAFETY: with this flag the kernel reads no attributes; pointer and size must be null and zero.
    super::check(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION_REQUEST)
    })
}

fn error(result: libc::c_long) -> i32 {
    super::check(result).err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

fn closed(result: libc::c_long) -> i32 {
    if let Ok(fd) = super::check(result) {
        // SAFETY: the call just opened this descriptor and nobody else knows of it.
        unsafe { libc::close(fd as libc::c_int) };
    }
    error(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_leave_this_process_where_it_was() {
        let namespaces =
            || ["user", "mnt", "pid"].map(|kind| std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap());
        let before = namespaces();
        let errors = attempt_calls();
        assert_eq!(namespaces(), before);
        // Only the one that is harmless succeeds.
        let succeeded: Vec<_> = errors.into_iter().filter(|(_, error)| *error == 0).map(|(name, _)| name).collect();
        assert!(succeeded.iter().all(|name| *name == "pidfd_open"), "{succeeded:?}");
    }
}
