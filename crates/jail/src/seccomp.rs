//! System calls closed to a sandbox.
//!
//! Policy is data: everything ordinary programs need is open, and each call that is closed stands in [`DENIED`] with its
//! reason. Calls newer than the newest one reviewed answer `ENOSYS`, so that libraries fall back. Entry by another
//! architecture (32-bit) kills; x32 numbers are above every reviewed number and answer `ENOSYS`.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

use crate::error::{At, JailError, Step};

/// The newest call reviewed: `mseal`, Linux 6.10. The same number on every architecture.
const NEWEST_REVIEWED: u32 = 462;

/// Condition on the arguments of a call.
#[derive(Debug, Clone, Copy)]
enum When {
    /// Always.
    Always,
    /// Any of these bits is set in the argument.
    AnyBit(u8, &'static [u64]),
    /// The argument is none of these.
    NoneOf(u8, &'static [u64]),
    /// The low 32 bits of the argument are one of these.
    OneOf(u8, &'static [u64]),
}

/// One closed call.
struct Denied {
    call: libc::c_long,
    when: When,
    /// Why it is closed.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader, and checked by a test"))]
    reason: &'static str,
}

const fn deny(call: libc::c_long, reason: &'static str) -> Denied {
    Denied { call, when: When::Always, reason }
}

const NAMESPACE_FLAGS: &[u64] = &[
    libc::CLONE_NEWNS as u64,
    libc::CLONE_NEWCGROUP as u64,
    libc::CLONE_NEWUTS as u64,
    libc::CLONE_NEWIPC as u64,
    libc::CLONE_NEWUSER as u64,
    libc::CLONE_NEWPID as u64,
    libc::CLONE_NEWNET as u64,
];

const MOUNTING: &str = "changes mounts; a sandbox's file system is fixed";
const NAMESPACES: &str = "a new user namespace would open kernel code that needs capabilities";
const KEYS: &str = "the kernel's keyrings are not fully separated by namespaces";
const OTHERS_MEMORY: &str = "reads or writes other processes";
const KERNEL: &str = "changes the running kernel or machine";
const CLOCK: &str = "sets the machine's clock";
const TRACING: &str = "large kernel surface that programs do not need";
const HANDLES: &str = "opens files by number, past every mount";

/// Every closed call with its reason.
const DENIED: &[Denied] = &[
    deny(libc::SYS_mount, MOUNTING),
    deny(libc::SYS_umount2, MOUNTING),
    deny(libc::SYS_pivot_root, MOUNTING),
    deny(libc::SYS_chroot, MOUNTING),
    deny(libc::SYS_fsopen, MOUNTING),
    deny(libc::SYS_fsconfig, MOUNTING),
    deny(libc::SYS_fsmount, MOUNTING),
    deny(libc::SYS_fspick, MOUNTING),
    deny(libc::SYS_open_tree, MOUNTING),
    deny(libc::SYS_move_mount, MOUNTING),
    deny(libc::SYS_mount_setattr, MOUNTING),
    deny(libc::SYS_swapon, KERNEL),
    deny(libc::SYS_swapoff, KERNEL),
    deny(libc::SYS_unshare, NAMESPACES),
    deny(libc::SYS_setns, NAMESPACES),
    Denied { call: libc::SYS_clone, when: When::AnyBit(0, NAMESPACE_FLAGS), reason: NAMESPACES },
    deny(libc::SYS_add_key, KEYS),
    deny(libc::SYS_request_key, KEYS),
    deny(libc::SYS_keyctl, KEYS),
    deny(libc::SYS_ptrace, OTHERS_MEMORY),
    deny(libc::SYS_process_vm_readv, OTHERS_MEMORY),
    deny(libc::SYS_process_vm_writev, OTHERS_MEMORY),
    deny(libc::SYS_process_madvise, OTHERS_MEMORY),
    deny(libc::SYS_pidfd_getfd, OTHERS_MEMORY),
    deny(libc::SYS_kcmp, OTHERS_MEMORY),
    deny(libc::SYS_migrate_pages, OTHERS_MEMORY),
    deny(libc::SYS_move_pages, OTHERS_MEMORY),
    deny(libc::SYS_bpf, TRACING),
    deny(libc::SYS_perf_event_open, TRACING),
    deny(libc::SYS_userfaultfd, "makes races in the kernel easy to win"),
    deny(libc::SYS_io_uring_setup, "performs calls that seccomp does not see"),
    deny(libc::SYS_io_uring_enter, "performs calls that seccomp does not see"),
    deny(libc::SYS_io_uring_register, "performs calls that seccomp does not see"),
    deny(libc::SYS_fanotify_init, TRACING),
    deny(libc::SYS_lookup_dcookie, TRACING),
    deny(libc::SYS_open_by_handle_at, HANDLES),
    deny(libc::SYS_name_to_handle_at, HANDLES),
    deny(libc::SYS_init_module, KERNEL),
    deny(libc::SYS_finit_module, KERNEL),
    deny(libc::SYS_delete_module, KERNEL),
    deny(libc::SYS_kexec_load, KERNEL),
    deny(libc::SYS_reboot, KERNEL),
    deny(libc::SYS_acct, KERNEL),
    deny(libc::SYS_quotactl, KERNEL),
    deny(libc::SYS_syslog, "reads the kernel's log"),
    deny(libc::SYS_vhangup, KERNEL),
    deny(libc::SYS_sethostname, KERNEL),
    deny(libc::SYS_setdomainname, KERNEL),
    deny(libc::SYS_settimeofday, CLOCK),
    deny(libc::SYS_clock_settime, CLOCK),
    deny(libc::SYS_adjtimex, CLOCK),
    deny(libc::SYS_clock_adjtime, CLOCK),
    Denied {
        call: libc::SYS_personality,
        // Reading, plain Linux, and no address randomisation (what debuggers and sanitizers set) are harmless.
        when: When::NoneOf(0, &[0, 0xffff_ffff, 0x0004_0000]),
        reason: "other personalities weaken address layout and reach rarely used code",
    },
    Denied {
        call: libc::SYS_socket,
        when: When::NoneOf(
            0,
            &[libc::AF_UNIX as u64, libc::AF_INET as u64, libc::AF_INET6 as u64, libc::AF_NETLINK as u64],
        ),
        reason: "other families (packet, alg, vsock, …) reach the host or rarely used kernel code",
    },
    Denied {
        call: libc::SYS_ioctl,
        when: When::OneOf(1, &[libc::TIOCSTI, libc::TIOCLINUX]),
        reason: "pushes input into a terminal",
    },
    #[cfg(target_arch = "x86_64")]
    deny(libc::SYS_iopl, KERNEL),
    #[cfg(target_arch = "x86_64")]
    deny(libc::SYS_ioperm, KERNEL),
    #[cfg(target_arch = "x86_64")]
    deny(libc::SYS_kexec_file_load, KERNEL),
    #[cfg(target_arch = "x86_64")]
    deny(libc::SYS_modify_ldt, "16-bit code segments are a source of kernel faults"),
];

/// The compiled filters, in the order of installation.
pub(crate) struct Filters(Vec<BpfProgram>);

impl Filters {
    pub(crate) fn programs(&self) -> impl Iterator<Item = &[sock_filter]> {
        self.0.iter().map(Vec::as_slice)
    }
}

/// What a zygote needs beyond that, to put its forks into their sandboxes; closed again in each of them. `unshare` stays closed but for the
/// cgroup namespace.
const OPEN_TO_ZYGOTES: [libc::c_long; 2] = [libc::SYS_setns, libc::SYS_unshare];
const ZYGOTE_UNSHARE: Denied =
    Denied { call: libc::SYS_unshare, when: When::NoneOf(0, &[libc::CLONE_NEWCGROUP as u64]), reason: NAMESPACES };

/// Compiles the filters of a sandbox.
pub(crate) fn compile() -> Result<Filters, JailError> {
    Ok(Filters(vec![unreviewed(), closing(DENIED.iter())?]))
}

/// Compiles the filters of a zygote.
pub(crate) fn compile_for_zygote() -> Result<Filters, JailError> {
    let kept = DENIED.iter().filter(|denied| !OPEN_TO_ZYGOTES.contains(&denied.call));
    Ok(Filters(vec![unreviewed(), closing(kept.chain([&ZYGOTE_UNSHARE]))?]))
}

fn closing<'a>(all: impl Iterator<Item = &'a Denied>) -> Result<BpfProgram, JailError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for denied in all {
        let conditions = conditions(denied.when).at(Step::Seccomp, "rules")?;
        // No condition means always; several are alternatives.
        rules.entry(denied.call).or_default().extend(conditions);
    }
    let arch: TargetArch = std::env::consts::ARCH.try_into().at(Step::Seccomp, std::env::consts::ARCH)?;
    let errno = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch).at(Step::Seccomp, "filter")?;
    filter.try_into().at(Step::Seccomp, "program")
}

fn conditions(when: When) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let rule = |conditions| SeccompRule::new(conditions);
    match when {
        When::Always => Ok(Vec::new()),
        When::AnyBit(argument, bits) => bits
            .iter()
            .map(|bit| {
                let set = SeccompCmpOp::MaskedEq(*bit);
                rule(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Qword, set, *bit)?])
            })
            .collect(),
        When::NoneOf(argument, values) => {
            let differ = values
                .iter()
                .map(|value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *value));
            Ok(vec![rule(differ.collect::<Result<_, _>>()?)?])
        }
        When::OneOf(argument, values) => values
            .iter()
            .map(|value| {
                rule(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *value)?])
            })
            .collect(),
    }
}

/// Answers `ENOSYS` to calls nobody has reviewed, and to `clone3`, whose flags a filter cannot see (the C library then uses
/// `clone`).
fn unreviewed() -> BpfProgram {
    const LOAD_NUMBER: u16 = 0x20; // ld [k]: word at an offset of seccomp_data; the number is at 0
    const JUMP_GREATER: u16 = 0x25; // jgt k
    const JUMP_EQUAL: u16 = 0x15; // jeq k
    const RETURN: u16 = 0x06; // ret k
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_GREATER, 2, 0, NEWEST_REVIEWED),
        step(JUMP_EQUAL, 1, 0, libc::SYS_clone3 as u32),
        step(RETURN, 0, 0, ALLOW),
        step(RETURN, 0, 0, ERRNO | libc::ENOSYS as u32),
    ]
}

/// Installs the filters; the last step before exec, since they close calls that earlier steps need.
pub(crate) fn install(filters: &Filters) -> Result<(), JailError> {
    for filter in &filters.0 {
        apply_filter(filter).at(Step::Seccomp, "")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_reason_and_no_call_stands_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for denied in DENIED {
            assert!(denied.reason.len() > 10, "call {} has no reason", denied.call);
            assert!(seen.insert(denied.call), "call {} stands twice", denied.call);
            assert!(
                denied.call <= libc::c_long::from(NEWEST_REVIEWED),
                "call {} is beyond the reviewed ones",
                denied.call
            );
        }
    }

    #[test]
    fn the_filters_compile() {
        assert_eq!(compile().unwrap().0.len(), 2);
        assert_eq!(compile_for_zygote().unwrap().0.len(), 2);
    }
}
