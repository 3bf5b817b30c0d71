use std::sync::LazyLock;

use fumehood_jail::fuzzing::{Instruction, filters};

use crate::Source;

/// What the kernel looks at.
#[derive(Debug, Clone, Copy)]
struct Call {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;
const ARCHITECTURES: [u32; 8] = [NATIVE, NATIVE, NATIVE, NATIVE, 0xc000_003e, 0x4000_0003, 0xc000_00b7, 0x4000_0028];

const KILL_PROCESS: u32 = 0x8000_0000;
const KILL_THREAD: u32 = 0;
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

/// Calls that no sandbox may make, whatever their arguments are.
const CLOSED: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_memfd_secret,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
];

/// Calls without which no program runs, whatever their arguments are.
const OPEN: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_execve,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_rt_sigaction,
    libc::SYS_wait4,
    libc::SYS_pipe2,
    libc::SYS_connect,
];

/// `CLONE_PARENT`.
const SIBLING: u64 = 0x0000_8000;
const NAMESPACES: u64 = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;
/// `mseal`.
const NEWEST: u32 = 462;

struct Compiled {
    sandbox: Vec<Vec<Instruction>>,
    zygote: Vec<Vec<Instruction>>,
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| Compiled {
    sandbox: filters(false).expect("they compile"),
    zygote: filters(true).expect("they compile"),
});

/// A system call, put to the filters as the kernel would: what must be closed is, what must be open is, and nothing native is killed for.
pub fn seccomp(data: &[u8]) {
    let mut source = Source::new(data);
    while !source.is_empty() {
        let form = source.byte();
        let number = match form % 4 {
            0 => u32::try_from(CLOSED[usize::from(source.byte()) % CLOSED.len()]).expect("calls have small numbers"),
            1 => u32::try_from(OPEN[usize::from(source.byte()) % OPEN.len()]).expect("calls have small numbers"),
            2 => u32::from(source.byte()) | u32::from(source.byte() & 1) << 8,
            _ => source.number() as u32,
        };
        let architecture = if form & 0x80 == 0 { NATIVE } else { source.choose(&ARCHITECTURES) };
        let mut arguments = [0; 6];
        if form & 4 == 0 {
            arguments = std::array::from_fn(|_| 1_u64 << (source.byte() & 63));
        } else if form & 8 == 0 {
            arguments = std::array::from_fn(|_| source.number());
        } else {
            arguments[0] = u64::from(source.byte());
        }
        let call = Call { number, architecture, arguments };
        let (sandbox, zygote) = (answer(&COMPILED.sandbox, &call), answer(&COMPILED.zygote, &call));
        judge(&call, sandbox, false);
        judge(&call, zygote, true);
        // A zygote may put processes into namespaces and give them a new keyring, and nothing else that a sandbox may not.
        let differs = [libc::SYS_setns, libc::SYS_unshare, libc::SYS_keyctl]
            .map(|call| u32::try_from(call).expect("a small number"));
        if !differs.contains(&number) {
            assert_eq!(sandbox, zygote, "{call:?}");
        }
    }
}

fn judge(call: &Call, answer: u32, zygote: bool) {
    if call.architecture != NATIVE {
        assert!(matches!(answer, KILL_PROCESS | KILL_THREAD), "{call:?}: {answer:x}");
        return;
    }
    assert!(!matches!(answer, KILL_PROCESS | KILL_THREAD), "{call:?}");
    let (number, arguments) = (i64::from(call.number), &call.arguments);
    // The kernel itself looks at the lower half of these.
    let first = arguments[0] as u32;
    let unknown = call.number > NEWEST || number == libc::SYS_clone3;
    let closed = match number {
        libc::SYS_clone => arguments[0] & (NAMESPACES | SIBLING) != 0,
        libc::SYS_unshare if zygote => first != 0x0200_0000,
        libc::SYS_keyctl if zygote => first != 1,
        libc::SYS_setns => !zygote,
        libc::SYS_unshare => true,
        libc::SYS_socket => match first {
            // Protocols of inet: any, ICMP, TCP, UDP, ICMPv6, MPTCP, and raw ones, for which a capability is missing.
            2 | 10 => !matches!(arguments[2] as u32, 0 | 1 | 6 | 17 | 58 | 262 | 255),
            family => !matches!(family, 1 | 16),
        },
        libc::SYS_personality => !matches!(first, 0 | 0xffff_ffff | 0x0004_0000),
        libc::SYS_ioctl => matches!(arguments[1] as u32, 0x5412 | 0x541c | 0x5423),
        number => CLOSED.contains(&number),
    };
    let open = OPEN.contains(&number)
        || (!closed && matches!(number, libc::SYS_clone | libc::SYS_socket | libc::SYS_personality | libc::SYS_ioctl));
    if unknown {
        assert_eq!(answer, ERRNO | libc::ENOSYS as u32, "{call:?}");
    }
    if closed {
        assert_ne!(answer, ALLOW, "{call:?}");
    }
    if open && !unknown {
        assert_eq!(answer, ALLOW, "{call:?}");
    }
}

/// What the kernel does: every filter is asked, and the strictest answer holds.
fn answer(filters: &[Vec<Instruction>], call: &Call) -> u32 {
    let strictness = |answer: &u32| (answer & 0xffff_0000).cast_signed();
    filters.iter().map(|filter| run(filter, call)).min_by_key(strictness).expect("there are filters")
}

/// The instructions that the kernel accepts in such a filter, as far as compilers of filters use them.
fn run(filter: &[Instruction], call: &Call) -> u32 {
    let (mut accumulator, mut at) = (0_u32, 0_usize);
    loop {
        let (code, if_true, if_false, operand) = filter[at];
        at += 1;
        let mut jump = |holds: bool| at += usize::from(if holds { if_true } else { if_false });
        match code {
            0x20 => accumulator = word(call, operand),
            0x54 => accumulator &= operand,
            0x05 => at += operand as usize,
            0x15 => jump(accumulator == operand),
            0x25 => jump(accumulator > operand),
            0x35 => jump(accumulator >= operand),
            0x45 => jump(accumulator & operand != 0),
            0x06 => return operand,
            other => panic!("instruction {other:#x} is not known here"),
        }
    }
}

/// A word of `struct seccomp_data`, on a machine with the low byte first.
fn word(call: &Call, offset: u32) -> u32 {
    match offset {
        0 => call.number,
        4 => call.architecture,
        // The place of the instruction, on which no filter of ours depends.
        8 | 12 => 0,
        16..64 if offset.is_multiple_of(4) => {
            let argument = call.arguments[(offset as usize - 16) / 8];
            if offset.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
        }
        other => panic!("there is nothing at {other}"),
    }
}
