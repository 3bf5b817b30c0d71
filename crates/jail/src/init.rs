//! Process 1 of a sandbox: completes it from inside, starts the program, reaps what is orphaned, and ends with the program, so that
//! nothing the program left behind outlives it. When the program is a fork of a zygote it is the jailer that sees its end, and
//! ends process 1.
//!
//! It runs in a copy of the jailer's memory, which holds nothing secret (the jailer starts with an empty environment).

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, chdir, kill_process, setsid, wait};

use crate::cgroup::Doors;
use crate::error::{At, JailError, Step};
use crate::identity;
use crate::layer::Layer;
use crate::mounts;
use crate::network;
use crate::protocol::{JailSpec, Order, Report, receive, send};
use crate::renounce::{Rights, renounce};
use crate::rlimits::{self, NamespaceLimits};
use crate::sys;

/// Everything process 1 inherits from the jailer.
pub(crate) struct Inheritance<'a> {
    pub(crate) spec: &'a JailSpec,
    pub(crate) rights: Rights<'a>,
    /// Standard input, output, error, the gate, and the control socket if there is one.
    pub(crate) fds: Vec<OwnedFd>,
    /// Made by the jailer when it is root.
    pub(crate) disk: Option<OwnedFd>,
    /// Into its cgroup.
    pub(crate) doors: Doors,
    /// Readable once the jailer has written the id maps.
    pub(crate) go: OwnedFd,
    /// Where to report.
    pub(crate) report: OwnedFd,
    pub(crate) privileged: bool,
}

/// Lowest number that the program's descriptors and ours are moved to while being arranged.
pub(crate) const HIGH: i32 = 64;

impl Inheritance<'_> {
    fn numbers(&self) -> Vec<RawFd> {
        let ours = [&self.go, &self.report].into_iter().chain(&self.disk).chain(&self.fds).chain(self.doors.all());
        ours.map(AsRawFd::as_raw_fd).collect()
    }
}

/// Runs process 1; never returns.
pub(crate) fn run(inheritance: Inheritance<'_>) -> ! {
    // Everything else the jailer holds concerns other sandboxes.
    let Ok(report) = sys::close_all_but(inheritance.numbers()).and_then(|()| inheritance.report.try_clone()) else {
        sys::exit_now(125)
    };
    let (spec, rights) = (inheritance.spec, inheritance.rights);
    match build_and_start(inheritance) {
        Ok(Built::Executed(program, io)) => reap(program, io, &report),
        Ok(Built::ToBeForked) => {
            // The program's steps are reported by itself; the jailer hears of its end by the end of this socket too.
            drop(report);
            rest()
        }
        Ok(Built::Kept) => attend(spec, rights, &report),
        Err(error) => {
            // If even this fails the jailer sees the end of the conversation, which it takes for a failure too.
            if send(&report, &Report::Failed(error), &[]).is_err() {
                sys::exit_now(125);
            }
            sys::exit_now(1)
        }
    }
}

/// What comes after building.
enum Built {
    /// The program runs. Its pid and the counters of this process.
    Executed(i32, Option<fs::File>),
    /// A zygote is asked for the program.
    ToBeForked,
    /// The jailer says what comes.
    Kept,
}

fn build_and_start(inheritance: Inheritance<'_>) -> Result<Built, JailError> {
    let Inheritance { spec, rights, mut fds, disk, doors, go, report, privileged } = inheritance;
    sys::set_process_name(c"fumehood-init").at(Step::FollowParent, "name")?;
    // Here and not in the jailer: the kernel may take its time for it, and would take the jailer's.
    doors.enter()?;
    await_byte(&go, Step::AwaitParent)?;
    drop(go);
    // After the cgroup was joined, so that the namespace is rooted there.
    sys::enter_cgroup_namespace().at(Step::CgroupNamespace, "")?;
    identity::become_inside(privileged)?;
    // After the ids changed: a change of credentials cancels it.
    sys::die_with_parent().at(Step::FollowParent, "")?;
    // Run by root the jailer made the disk, with the sandbox's uid on it; run by a user only a process in the user
    // namespace may mount.
    let disk = match disk {
        Some(disk) => disk,
        None => mounts::create_disk(spec.disk_bytes, spec.disk_inodes, None)?,
    };
    let (disk, limits) = mounts::complete(disk, spec.shm_bytes, rights.without)?;
    mounts::show(&spec.shown)?;
    if spec.read_only {
        // After the last thing that is made on the disk from inside.
        mounts::close_to_writing()?;
    }
    limits.map_or(Ok(()), NamespaceLimits::set)?;
    if rights.without.keeps(Layer::NetworkNamespace) {
        network::raise_loopback()?;
    }
    rustix::system::sethostname(b"sandbox").at(Step::SetHostname, "sandbox")?;
    if spec.keep || spec.zygote.is_some() {
        // Before the report, upon which the program comes in.
        sys::close_range(0, 2).at(Step::ArrangeDescriptors, "process 1")?;
        if !spec.keep {
            sys::ignore_signal(libc::SIGCHLD).at(Step::NewSession, "reaping")?;
        }
        identity::forbid_new_privileges()?;
        identity::drop_capabilities()?;
        sys::show_memory(false).at(Step::DropCapabilities, "hide memory")?;
        send(&report, &Report::SetUp, &[disk.as_fd()]).at(Step::ReportSetUp, "")?;
        return Ok(if spec.keep { Built::Kept } else { Built::ToBeForked });
    }
    let io = open_own_counters()?;
    send(&report, &Report::SetUp, &[disk.as_fd()]).at(Step::ReportSetUp, "")?;
    drop(disk);

    match sys::fork().at(Step::ForkProgram, "")? {
        None => {
            let gate = if fds.len() > 3 { Some(fds.remove(3)) } else { None };
            let Err(error) = become_program(spec, rights, fds, gate, &report);
            // Whether or not the jailer hears it, the exit code says that the program never ran.
            send(&report, &Report::Failed(error), &[]).ok();
            sys::exit_now(125)
        }
        Some(pid) => {
            // This process keeps no end of the program's pipes, or their readers would wait for it; nor the server's streams.
            drop(fds);
            sys::close_range(0, 2).at(Step::ArrangeDescriptors, "process 1")?;
            identity::forbid_new_privileges()?;
            identity::drop_capabilities()?;
            Ok(Built::Executed(pid, io))
        }
    }
}

/// Opens the counters of this process. Its memory has been hidden since the ids changed, which gives its files in `/proc` to
/// root; it is shown for a moment, before anything of the caller's can run.
fn open_own_counters() -> Result<Option<fs::File>, JailError> {
    sys::show_memory(true).at(Step::DropCapabilities, "show memory")?;
    // A courtesy: a kernel without these counters gives none.
    let io = fs::File::open("/proc/self/io").ok();
    sys::show_memory(false).at(Step::DropCapabilities, "hide memory")?;
    Ok(io)
}

pub(crate) fn await_byte(pipe: &OwnedFd, step: Step) -> Result<(), JailError> {
    let mut byte = [0];
    loop {
        match rustix::io::read(pipe, &mut byte) {
            Ok(1) => return Ok(()),
            Ok(_) => return Err(JailError::new(step, "", "the other end is gone")),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(JailError::new(step, "", error)),
        }
    }
}

/// Becomes the program. Returns only on failure.
fn become_program(
    spec: &JailSpec,
    rights: Rights<'_>,
    fds: Vec<OwnedFd>,
    gate: Option<OwnedFd>,
    report: &OwnedFd,
) -> Result<std::convert::Infallible, JailError> {
    setsid().at(Step::NewSession, "")?;
    sys::reset_signals().at(Step::NewSession, "signals")?;
    // First everything out of the way, so that no target number is occupied by a source still needed.
    let aside = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, HIGH).at(Step::ArrangeDescriptors, "move aside");
    let high: Vec<OwnedFd> = fds.iter().map(aside).collect::<Result<_, _>>()?;
    let gate = gate.as_ref().map(aside).transpose()?;
    drop(fds);
    if high.len() < 3 {
        return Err(JailError::new(Step::ArrangeDescriptors, "", "too few descriptors"));
    }
    // Standard streams and, where there is one, the control socket.
    for (fd, target) in high.iter().zip(0..) {
        sys::place(fd.as_fd(), target).at(Step::ArrangeDescriptors, "channels")?;
    }
    if rights.without.keeps(Layer::Rlimits) {
        rlimits::apply(&spec.limits)?;
    }
    if !rights.without.keeps(Layer::PidNamespace) {
        // Nothing else would end it.
        sys::die_with_parent().at(Step::FollowParent, "")?;
    }
    if let Some(gate) = &gate {
        await_byte(gate, Step::AwaitGate)?;
    }
    enter_directory(&spec.cwd)?;

    let program = CString::new(spec.argv[0].as_str()).at(Step::Exec, "program")?;
    let argv = c_strings(spec.argv.iter().cloned())?;
    let env = c_strings(spec.env.iter().map(|(name, value)| format!("{name}={value}")))?;

    // Exec closes all else; the report socket stays until then, to name a step that fails. Where refused calls are heard of is closed by
    // exec from the beginning.
    sys::close_on_exec_from(if spec.control { 4 } else { 3 }).at(Step::ArrangeDescriptors, "close the rest")?;
    let listener = renounce(rights)?;
    tell_confined(report, listener, None)?;
    if rights.without.keeps(Layer::Rlimits) {
        rlimits::apply_to_descriptors(&spec.limits, rights.own_uid)?;
    }
    Err(JailError::new(Step::Exec, spec.argv[0].clone(), sys::exec(&program, &argv, &env)))
}

/// Reports that a program is confined, and closes here what goes with that.
pub(crate) fn tell_confined(
    report: &OwnedFd,
    listener: Option<OwnedFd>,
    io: Option<fs::File>,
) -> Result<(), JailError> {
    let confined = Report::Confined { listener: listener.is_some(), io: io.is_some() };
    let beside: Vec<_> = listener.iter().map(AsFd::as_fd).chain(io.iter().map(AsFd::as_fd)).collect();
    send(report, &confined, &beside).at(Step::ReportSetUp, "")
}

pub(crate) fn c_strings(strings: impl Iterator<Item = String>) -> Result<Vec<CString>, JailError> {
    strings.map(|string| CString::new(string).at(Step::Exec, "a NUL byte in arguments or environment")).collect()
}

pub(crate) fn enter_directory(path: &str) -> Result<(), JailError> {
    // Nothing of the caller's has run yet, so no link can lead elsewhere.
    fs::create_dir_all(path).at(Step::EnterDirectory, path)?;
    chdir(path).at(Step::EnterDirectory, path)
}

/// Does nothing for ever; what is orphaned here the kernel reaps, since `SIGCHLD` is ignored.
fn rest() -> ! {
    loop {
        // Without anything to poll this sleeps; a signal cuts it short.
        rustix::event::poll(&mut [], None).ok();
    }
}

/// Process 1 of a sandbox that is kept: executes and sweeps as it is told, and reaps. Never returns.
fn attend(spec: &JailSpec, rights: Rights<'_>, jailer: &OwnedFd) -> ! {
    let attended =
        sys::child_signals().and_then(|ended| Attendant { spec, rights, jailer, ended, program: None }.serve());
    // The jailer is gone, or what was to work did not; either way nothing of this sandbox is to go on.
    sys::exit_now(if attended.is_ok() { 0 } else { 124 })
}

struct Attendant<'a> {
    spec: &'a JailSpec,
    rights: Rights<'a>,
    jailer: &'a OwnedFd,
    /// Readable when a child has ended.
    ended: OwnedFd,
    /// The program that was executed, if any.
    program: Option<i32>,
}

impl Attendant<'_> {
    /// How often is looked whether everything has ended that was killed.
    const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };

    fn serve(&mut self) -> io::Result<()> {
        loop {
            let mut fds = [PollFd::new(self.jailer, PollFlags::IN), PollFd::new(&self.ended, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let told = !fds[0].revents().is_empty();
            self.reap()?;
            if told {
                match receive::<Order>(self.jailer)? {
                    None => return Ok(()),
                    Some((Order::Sweep, _)) => self.sweep()?,
                    Some((Order::Execute, fds)) => self.execute(fds)?,
                    Some((Order::Interrupt, _)) => {
                        self.interrupt();
                        send(self.jailer, &Report::Interrupted, &[])?;
                    }
                }
            }
        }
    }

    /// Takes note of every child that has ended.
    fn reap(&mut self) -> io::Result<()> {
        // What it says is looked up below; several signals count as one.
        while rustix::io::read(&self.ended, &mut [0; 128]).is_ok() {}
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if self.program == Some(pid.as_raw_nonzero().get()) {
                self.program = None;
                let ended = Report::Ended { wait_status: status.as_raw(), bytes_read: None, bytes_written: None };
                send(self.jailer, &ended, &[])?;
            }
        }
        Ok(())
    }

    fn sweep(&mut self) -> io::Result<()> {
        // A fork that was on its way in is met by the next round. What was forked from a zygote is reaped by the jailer.
        while sys::signal_all(libc::SIGKILL) {
            poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(&Self::LOOK_AGAIN)).ok();
            self.reap()?;
        }
        send(self.jailer, &Report::Swept, &[])
    }

    fn execute(&mut self, mut fds: Vec<OwnedFd>) -> io::Result<()> {
        let report = fds.pop().ok_or(io::ErrorKind::InvalidData)?;
        match sys::fork() {
            Ok(None) => {
                let Err(error) = become_program(self.spec, self.rights, fds, None, &report);
                send(&report, &Report::Failed(error), &[]).ok();
                sys::exit_now(125)
            }
            Ok(Some(pid)) => {
                self.program = Some(pid);
                Ok(())
            }
            // The jailer hears that the program ended without having begun.
            Err(error) => {
                send(&report, &Report::Failed(JailError::new(Step::ForkProgram, "", error)), &[])?;
                send(self.jailer, &Report::Ended { wait_status: 125 << 8, bytes_read: None, bytes_written: None }, &[])
            }
        }
    }

    fn interrupt(&self) {
        if let Some(program) = self.program.and_then(Pid::from_raw) {
            // It may have ended a moment ago.
            kill_process(program, Signal::INT).ok();
        }
    }
}

/// Waits for the program, reaping whatever else ends here, then ends: the kernel then kills the rest of the namespace.
fn reap(program: i32, io: Option<fs::File>, report: &OwnedFd) -> ! {
    let wait_status = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == program => break status.as_raw(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No child left although the program was never seen: cannot happen, and must not become a busy loop.
            Err(_) => sys::exit_now(124),
        }
    };
    // Children that were reaped are included.
    let io = io.and_then(|file| std::io::read_to_string(file).ok()).unwrap_or_default();
    let counter = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok());
    let ended = Report::Ended { wait_status, bytes_read: counter("rchar"), bytes_written: counter("wchar") };
    let code = if send(report, &ended, &[]).is_ok() { 0 } else { 125 };
    sys::exit_now(code)
}
