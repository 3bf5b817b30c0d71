//! System calls closed to a sandbox.
//!
//! A closed call fails with `EPERM`, after the host has heard of it ([`crate::refusal`]), so that a result can say what was refused and why.
//!
//! Policy is data: everything ordinary programs need is open, and each call that is closed stands in [`DENIED`] with its
//! reason. Calls newer than the newest one reviewed answer `ENOSYS`, so that libraries fall back. Entry by another
//! architecture (32-bit) kills; x32 numbers are above every reviewed number and answer `ENOSYS`.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use crate::error::{At, JailError, Step};
use crate::refusal::Explanation;
use crate::sys;

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
    /// Where the first argument is this value, the second is none of these.
    NoneOfBeside(u8, u64, u8, &'static [u64]),
}

/// One closed call.
struct Denied {
    /// `SYS_…`
    name: &'static str,
    call: libc::c_long,
    when: When,
    reason: Reason,
    /// Libraries try it and do without: nobody is told. Everything else a program hears of as an error is explained.
    quiet: bool,
}

/// Why a call is closed.
#[derive(Clone, Copy)]
struct Reason {
    why: &'static str,
    /// What a program can do instead.
    instead: &'static str,
}

macro_rules! deny {
    ($call:ident, $reason:expr) => {
        deny!($call, When::Always, $reason)
    };
    ($call:ident, $when:expr, $reason:expr) => {
        Denied { name: stringify!($call), call: libc::$call, when: $when, reason: $reason, quiet: false }
    };
}

impl Denied {
    const fn quietly(self) -> Self {
        Self { quiet: true, ..self }
    }

    fn name(&self) -> &'static str {
        self.name.trim_start_matches("SYS_")
    }
}

impl When {
    /// Whether a call with these arguments is meant.
    fn meets(self, arguments: &[u64; 6]) -> bool {
        let low = |argument: u8| arguments[usize::from(argument)] & 0xffff_ffff;
        match self {
            Self::Always => true,
            Self::AnyBit(argument, bits) => bits.iter().any(|bit| arguments[usize::from(argument)] & bit != 0),
            Self::NoneOf(argument, values) => !values.contains(&low(argument)),
            Self::OneOf(argument, values) => values.contains(&low(argument)),
            Self::NoneOfBeside(given, value, argument, values) => {
                low(given) == value && !values.contains(&low(argument))
            }
        }
    }
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

const MOUNTING: Reason = Reason {
    why: "changes mounts; a sandbox's file system is fixed",
    instead: "copy or unpack files below /data or /tmp, which are writable",
};
const NAMESPACES: Reason = Reason {
    why: "a new namespace would open kernel code that needs capabilities",
    instead: "run the program without a sandbox of its own (a browser: --no-sandbox); it is in one already",
};
const SIBLINGS: Reason = Reason {
    why: "makes a child of the parent's, which is a process of the host that knows nothing of it",
    instead: "start a child of this process: fork, subprocess, multiprocessing",
};
const SECRET_MEMORY: Reason = Reason {
    why: "takes memory that the kernel can neither move nor take back, and that limits do not count in time",
    instead: "use anonymous memory; nothing outside the sandbox's own user reads it",
};
const KEYS: Reason = Reason {
    why: "the kernel's keyrings are not fully separated by namespaces",
    instead: "keep secrets in memory or in a file",
};
const OTHERS_MEMORY: Reason = Reason {
    why: "reads or writes other processes",
    instead: "look at a program from inside it: faulthandler, pdb, cProfile, tracemalloc; exchange data through pipes or shared memory",
};
const KERNEL: Reason = Reason {
    why: "changes the running kernel or machine",
    instead: "this belongs to the host; leave it to its operator",
};
const CLOCK: Reason = Reason {
    why: "sets the machine's clock",
    instead: "for another time inside the program replace the clock there (time-machine, freezegun, libfaketime)",
};
const TRACING: Reason = Reason {
    why: "large kernel surface that programs do not need",
    instead: "measure with time, cProfile or tracemalloc",
};
const HANDLES: Reason = Reason { why: "opens files by number, past every mount", instead: "open files by their path" };
const RACES: Reason =
    Reason { why: "makes races in the kernel easy to win", instead: "use threads or multiprocessing.shared_memory" };
const UNSEEN: Reason =
    Reason { why: "performs calls that seccomp does not see", instead: "use epoll, threads or asyncio" };
const LOG: Reason = Reason {
    why: "reads the kernel's log",
    instead: "it tells of the host; there is nothing in it about this program",
};
const PERSONALITIES: Reason = Reason {
    why: "other personalities weaken address layout and reach rarely used code",
    instead: "run the program as it is; only plain Linux and ADDR_NO_RANDOMIZE are there",
};
const FAMILIES: Reason = Reason {
    why: "other families (packet, alg, vsock, …) reach the host or rarely used kernel code",
    instead: "use unix, inet or inet6 sockets; hashes and ciphers are in hashlib and cryptography",
};
/// Others are code that is rarely looked at, and that the kernel would load for whoever asks (SCTP, DCCP, L2TP). MPTCP is what some runtimes listen with.
const PROTOCOLS: &[u64] = &[
    0,
    libc::IPPROTO_ICMP as u64,
    libc::IPPROTO_TCP as u64,
    libc::IPPROTO_UDP as u64,
    libc::IPPROTO_ICMPV6 as u64,
    libc::IPPROTO_MPTCP as u64,
    // Raw sockets are refused for want of a capability, with the error that programs know.
    libc::IPPROTO_RAW as u64,
];
const RARE_PROTOCOLS: Reason = Reason {
    why: "other protocols (SCTP, DCCP, L2TP, …) reach kernel code that is rarely used, and have it loaded",
    instead: "use TCP or UDP",
};
const TERMINALS: Reason = Reason {
    why: "pushes input into a terminal, or gives it a line discipline whose code is rarely looked at",
    instead: "write to the other end of the terminal instead",
};
#[cfg(target_arch = "x86_64")]
const SEGMENTS: Reason = Reason {
    why: "16-bit code segments are a source of kernel faults",
    instead: "run 64-bit programs; there is no 16-bit mode",
};

/// Every closed call with its reason.
const DENIED: &[Denied] = &[
    deny!(SYS_mount, MOUNTING),
    deny!(SYS_umount2, MOUNTING),
    deny!(SYS_pivot_root, MOUNTING),
    deny!(SYS_chroot, MOUNTING),
    deny!(SYS_fsopen, MOUNTING),
    deny!(SYS_fsconfig, MOUNTING),
    deny!(SYS_fsmount, MOUNTING),
    deny!(SYS_fspick, MOUNTING),
    deny!(SYS_open_tree, MOUNTING),
    deny!(SYS_move_mount, MOUNTING),
    deny!(SYS_mount_setattr, MOUNTING),
    deny!(SYS_swapon, KERNEL),
    deny!(SYS_swapoff, KERNEL),
    deny!(SYS_unshare, NAMESPACES),
    deny!(SYS_setns, NAMESPACES),
    deny!(SYS_clone, When::AnyBit(0, NAMESPACE_FLAGS), NAMESPACES),
    deny!(SYS_clone, When::AnyBit(0, &[libc::CLONE_PARENT as u64]), SIBLINGS),
    deny!(SYS_memfd_secret, SECRET_MEMORY),
    deny!(SYS_add_key, KEYS),
    deny!(SYS_request_key, KEYS),
    deny!(SYS_keyctl, KEYS),
    deny!(SYS_ptrace, OTHERS_MEMORY),
    deny!(SYS_process_vm_readv, OTHERS_MEMORY),
    deny!(SYS_process_vm_writev, OTHERS_MEMORY),
    deny!(SYS_process_madvise, OTHERS_MEMORY),
    deny!(SYS_pidfd_getfd, OTHERS_MEMORY),
    deny!(SYS_kcmp, OTHERS_MEMORY).quietly(),
    deny!(SYS_migrate_pages, OTHERS_MEMORY),
    deny!(SYS_move_pages, OTHERS_MEMORY),
    deny!(SYS_bpf, TRACING),
    deny!(SYS_perf_event_open, TRACING),
    deny!(SYS_userfaultfd, RACES),
    deny!(SYS_io_uring_setup, UNSEEN).quietly(),
    deny!(SYS_io_uring_enter, UNSEEN).quietly(),
    deny!(SYS_io_uring_register, UNSEEN).quietly(),
    deny!(SYS_fanotify_init, TRACING),
    deny!(SYS_lookup_dcookie, TRACING),
    deny!(SYS_open_by_handle_at, HANDLES),
    deny!(SYS_name_to_handle_at, HANDLES).quietly(),
    deny!(SYS_init_module, KERNEL),
    deny!(SYS_finit_module, KERNEL),
    deny!(SYS_delete_module, KERNEL),
    deny!(SYS_kexec_load, KERNEL),
    deny!(SYS_reboot, KERNEL),
    deny!(SYS_acct, KERNEL),
    deny!(SYS_quotactl, KERNEL),
    deny!(SYS_syslog, LOG),
    deny!(SYS_vhangup, KERNEL),
    deny!(SYS_sethostname, KERNEL),
    deny!(SYS_setdomainname, KERNEL),
    deny!(SYS_settimeofday, CLOCK),
    deny!(SYS_clock_settime, CLOCK),
    deny!(SYS_adjtimex, CLOCK),
    deny!(SYS_clock_adjtime, CLOCK),
    // Reading, plain Linux, and no address randomisation (what debuggers and sanitizers set) are harmless.
    deny!(SYS_personality, When::NoneOf(0, &[0, 0xffff_ffff, 0x0004_0000]), PERSONALITIES),
    deny!(
        SYS_socket,
        When::NoneOf(0, &[libc::AF_UNIX as u64, libc::AF_INET as u64, libc::AF_INET6 as u64, libc::AF_NETLINK as u64],),
        FAMILIES
    ),
    deny!(SYS_socket, When::NoneOfBeside(0, libc::AF_INET as u64, 2, PROTOCOLS), RARE_PROTOCOLS),
    deny!(SYS_socket, When::NoneOfBeside(0, libc::AF_INET6 as u64, 2, PROTOCOLS), RARE_PROTOCOLS),
    deny!(SYS_ioctl, When::OneOf(1, &[libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD]), TERMINALS),
    #[cfg(target_arch = "x86_64")]
    deny!(SYS_iopl, KERNEL),
    #[cfg(target_arch = "x86_64")]
    deny!(SYS_ioperm, KERNEL),
    #[cfg(target_arch = "x86_64")]
    deny!(SYS_kexec_file_load, KERNEL),
    #[cfg(target_arch = "x86_64")]
    deny!(SYS_modify_ldt, SEGMENTS),
];

/// The compiled filters.
#[derive(Debug)]
pub(crate) struct Filters {
    /// Installed first.
    unreviewed: BpfProgram,
    /// Calls that simply fail.
    quiet: BpfProgram,
    /// All others, held until the host has answered.
    told: BpfProgram,
    /// The same where the host cannot be told, failing by themselves.
    untold: BpfProgram,
}

impl Filters {
    pub(crate) fn programs(&self) -> impl Iterator<Item = &[sock_filter]> {
        [&self.unreviewed, &self.quiet, &self.told].into_iter().map(Vec::as_slice)
    }
}

/// What a zygote needs beyond that, to put its forks into their sandboxes; closed again in each of them. `unshare` stays closed but for the
/// cgroup namespace, and `keyctl` but for a new keyring.
const OPEN_TO_ZYGOTES: [libc::c_long; 3] = [libc::SYS_setns, libc::SYS_unshare, libc::SYS_keyctl];
const ZYGOTE_KEYCTL: Denied = deny!(SYS_keyctl, When::NoneOf(0, &[sys::JOIN_SESSION_KEYRING]), KEYS);
const ZYGOTE_UNSHARE: Denied = deny!(SYS_unshare, When::NoneOf(0, &[libc::CLONE_NEWCGROUP as u64]), NAMESPACES);

/// Compiles the filters of a sandbox.
pub(crate) fn compile() -> Result<Filters, JailError> {
    compiled(DENIED.iter().collect())
}

/// Compiles the filters of a zygote.
pub(crate) fn compile_for_zygote() -> Result<Filters, JailError> {
    let kept = DENIED.iter().filter(|denied| !OPEN_TO_ZYGOTES.contains(&denied.call));
    compiled(kept.chain([&ZYGOTE_UNSHARE, &ZYGOTE_KEYCTL]).collect())
}

fn compiled(denied: Vec<&Denied>) -> Result<Filters, JailError> {
    let (quiet, loud): (Vec<&Denied>, Vec<&Denied>) = denied.into_iter().partition(|denied| denied.quiet);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    Ok(Filters {
        unreviewed: unreviewed(),
        quiet: closing(&quiet, refuse.clone())?,
        told: holding(closing(&loud, SeccompAction::Trace(MARK))?),
        untold: closing(&loud, refuse)?,
    })
}

/// Stands for the action that the compiler does not know.
const MARK: u32 = 0x7e11;

/// Has a program hold the calls it closes (`SECCOMP_RET_USER_NOTIF`), where it was compiled with [`MARK`].
fn holding(mut program: BpfProgram) -> BpfProgram {
    const RETURN: u16 = 0x06; // ret k
    let marked = u32::from(SeccompAction::Trace(MARK));
    for step in program.iter_mut().filter(|step| step.code == RETURN && step.k == marked) {
        step.k = libc::SECCOMP_RET_USER_NOTIF;
    }
    program
}

fn closing(all: &[&Denied], action: SeccompAction) -> Result<BpfProgram, JailError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for denied in all {
        let conditions = conditions(denied.when).at(Step::Seccomp, "rules")?;
        // No condition means always; several are alternatives.
        rules.entry(denied.call).or_default().extend(conditions);
    }
    let arch: TargetArch = std::env::consts::ARCH.try_into().at(Step::Seccomp, std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).at(Step::Seccomp, "filter")?;
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
        When::NoneOfBeside(given, value, argument, values) => {
            let given = SeccompCondition::new(given, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
            let differ = values
                .iter()
                .map(|value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *value));
            Ok(vec![rule(std::iter::once(given).chain(differ).collect::<Result<_, _>>()?)?])
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

/// Installs the filters; the last step before exec, since they close calls that earlier steps need. Returns where the host hears of refused
/// calls; `None` where somebody else listens to this process already (a surrounding container, for example): then they fail by themselves.
pub(crate) fn install(filters: &Filters) -> Result<Option<OwnedFd>, JailError> {
    install_errors(filters)?;
    let told: Vec<libc::sock_filter> = filters.told.iter().map(instruction).collect();
    match sys::install_listening_filter(&told) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            apply(&filters.untold).at(Step::Seccomp, "closed calls").map(|()| None)
        }
        Err(error) => Err(JailError::new(Step::Seccomp, "closed calls", error)),
    }
}

/// Installs the filters of a zygote. Nobody listens to it, so what it may not do answers `ENOSYS`; its forks install filters of their own, and of two
/// that hold a call the newer one is asked. A plain error here would take precedence over that, and nobody would hear of it.
pub(crate) fn install_for_zygote(filters: &Filters) -> Result<(), JailError> {
    install_errors(filters)?;
    apply(&filters.told).at(Step::Seccomp, "closed calls")
}

fn install_errors(filters: &Filters) -> Result<(), JailError> {
    apply(&filters.unreviewed).at(Step::Seccomp, "unreviewed calls")?;
    apply(&filters.quiet).at(Step::Seccomp, "quietly closed calls")
}

/// Not by the compiler's own function: that would set `no_new_privs` unasked, which is a layer of its own.
fn apply(program: &BpfProgram) -> std::io::Result<()> {
    let program: Vec<libc::sock_filter> = program.iter().map(instruction).collect();
    sys::install_filter(&program)
}

fn instruction(step: &sock_filter) -> libc::sock_filter {
    libc::sock_filter { code: step.code, jt: step.jt, jf: step.jf, k: step.k }
}

/// What to say of a call that one of the rules has closed.
pub(crate) fn explain(call: libc::c_long, arguments: &[u64; 6]) -> Explanation {
    let of_call = || DENIED.iter().filter(|denied| denied.call == call);
    let Some(denied) = of_call().find(|denied| denied.when.meets(arguments)).or_else(|| of_call().next()) else {
        return Explanation { what: format!("system call {call}"), why: "it is closed", instead: "do without it" };
    };
    let Reason { why, instead } = denied.reason;
    let name = denied.name();
    let what = match detail(call, arguments) {
        Some(detail) => format!("{name}({detail})"),
        None => name.to_owned(),
    };
    Explanation { what, why, instead }
}

/// The argument that closed a call that is not closed altogether.
fn detail(call: libc::c_long, arguments: &[u64; 6]) -> Option<String> {
    const FAMILIES: [(i32, &str); 9] = [
        (libc::AF_PACKET, "AF_PACKET"),
        (libc::AF_ALG, "AF_ALG"),
        (libc::AF_VSOCK, "AF_VSOCK"),
        (libc::AF_KEY, "AF_KEY"),
        (libc::AF_BLUETOOTH, "AF_BLUETOOTH"),
        (libc::AF_CAN, "AF_CAN"),
        (libc::AF_TIPC, "AF_TIPC"),
        (libc::AF_RDS, "AF_RDS"),
        (libc::AF_XDP, "AF_XDP"),
    ];
    const FLAGS: [(i32, &str); 8] = [
        (libc::CLONE_PARENT, "CLONE_PARENT"),
        (libc::CLONE_NEWUSER, "CLONE_NEWUSER"),
        (libc::CLONE_NEWNS, "CLONE_NEWNS"),
        (libc::CLONE_NEWPID, "CLONE_NEWPID"),
        (libc::CLONE_NEWNET, "CLONE_NEWNET"),
        (libc::CLONE_NEWIPC, "CLONE_NEWIPC"),
        (libc::CLONE_NEWUTS, "CLONE_NEWUTS"),
        (libc::CLONE_NEWCGROUP, "CLONE_NEWCGROUP"),
    ];
    match call {
        libc::SYS_socket => {
            let family = FAMILIES.iter().find(|(number, _)| *number as u64 == arguments[0] & 0xffff_ffff);
            if let libc::AF_INET | libc::AF_INET6 = arguments[0] as i32 {
                return Some(format!("protocol {}", arguments[2] as i32));
            }
            Some(family.map_or_else(|| format!("family {}", arguments[0] as i32), |(_, name)| (*name).to_owned()))
        }
        libc::SYS_clone | libc::SYS_unshare => {
            let set: Vec<_> =
                FLAGS.iter().filter(|(bit, _)| arguments[0] & *bit as u64 != 0).map(|(_, name)| *name).collect();
            (!set.is_empty()).then(|| set.join("|"))
        }
        libc::SYS_ioctl if arguments[1] & 0xffff_ffff == libc::TIOCSTI => Some("TIOCSTI".to_owned()),
        libc::SYS_ioctl if arguments[1] & 0xffff_ffff == libc::TIOCSETD => Some("TIOCSETD".to_owned()),
        libc::SYS_ioctl => Some("TIOCLINUX".to_owned()),
        libc::SYS_personality => Some(format!("{:#x}", arguments[0] as u32)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_reason_and_no_call_that_is_always_closed_stands_twice() {
        let mut seen = BTreeMap::new();
        for denied in DENIED {
            assert!(
                denied.reason.why.len() > 10 && denied.reason.instead.len() > 10,
                "{} has no reason",
                denied.name()
            );
            // Rules of one call are alternatives, and one without a condition would be lost among others.
            let always = matches!(denied.when, When::Always);
            let before = seen.insert(denied.call, always);
            assert!(before.is_none() || before == Some(false) && !always, "call {} stands twice", denied.call);
            assert!(
                denied.call <= libc::c_long::from(NEWEST_REVIEWED),
                "call {} is beyond the reviewed ones",
                denied.call
            );
        }
    }

    #[test]
    fn the_filters_compile() {
        for filters in [compile().unwrap(), compile_for_zygote().unwrap()] {
            let returns = |program: &BpfProgram, k| program.iter().any(|step| step.code == 0x06 && step.k == k);
            assert!(returns(&filters.told, libc::SECCOMP_RET_USER_NOTIF));
            assert!(returns(&filters.untold, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
            // Nothing is left of what stands for the action.
            assert!(!returns(&filters.told, u32::from(SeccompAction::Trace(MARK))));
            assert_eq!(filters.told.len(), filters.untold.len());
        }
    }

    #[test]
    fn every_closed_call_is_explained_by_its_name_and_the_argument_that_closed_it() {
        assert_eq!(explain(libc::SYS_ptrace, &[0; 6]).what, "ptrace");
        assert_eq!(explain(libc::SYS_socket, &[17, 3, 0, 0, 0, 0]).what, "socket(AF_PACKET)");
        let sctp = explain(libc::SYS_socket, &[libc::AF_INET as u64, 1, 132, 0, 0, 0]);
        assert_eq!((sctp.what.as_str(), sctp.why), ("socket(protocol 132)", RARE_PROTOCOLS.why));
        let flags = (libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::SIGCHLD) as u64;
        assert_eq!(explain(libc::SYS_clone, &[flags, 0, 0, 0, 0, 0]).what, "clone(CLONE_NEWUSER|CLONE_NEWNS)");
        let sibling = explain(libc::SYS_clone, &[(libc::CLONE_PARENT | libc::SIGCHLD) as u64, 0, 0, 0, 0, 0]);
        assert_eq!((sibling.what.as_str(), sibling.why), ("clone(CLONE_PARENT)", SIBLINGS.why));
        assert_eq!(explain(libc::SYS_ioctl, &[0, libc::TIOCSTI, 0, 0, 0, 0]).what, "ioctl(TIOCSTI)");
        for denied in DENIED {
            assert!(explain(denied.call, &[0; 6]).what.starts_with(denied.name()));
        }
    }
}
