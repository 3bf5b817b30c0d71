//! Sandboxes that are kept: one program after the other, interrupts, standing still.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::process::{Signal, pidfd_send_signal};

use super::{Interrupts, Next, Program, Source, State, no_zygote, readable};
use crate::protocol::{ExitReport, Order, Reply, Report, packet_pair, receive, send, send_now};

impl State {
    /// Ends what runs there, and remembers what comes after it.
    pub(super) fn begin(
        &mut self,
        id: u64,
        number: u64,
        zygote: Option<u64>,
        channels: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let Some(sandbox) = self.sandboxes.get_mut(&id).filter(|sandbox| sandbox.keep) else { return Ok(()) };
        if channels.len() != 4 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "channels are missing"));
        }
        if self.place.privileged {
            let (uid, gid) = (rustix::fs::Uid::from_raw(sandbox.uid), rustix::fs::Gid::from_raw(sandbox.uid));
            for pipe in &channels[..3] {
                rustix::fs::fchown(pipe, Some(uid), Some(gid))?;
            }
        }
        sandbox.next = Some(Next { number, zygote, channels });
        // What runs there is to end; the share is set again before anything else begins.
        sandbox.group.unthrottle();
        let swept = sandbox.report.as_ref().map(|process_1| send_now(process_1, &Order::Sweep, &[]));
        if !matches!(swept, Some(Ok(()))) {
            // Its end is on its way.
            self.kill(id);
        }
        Ok(())
    }

    /// Nothing of an earlier program runs any more.
    pub(super) fn begin_next(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        // The end of a fork is heard of from the kernel, perhaps a moment after process 1 has seen it.
        self.program_ended(id, server)?;
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return Ok(()) };
        let Some(Next { number, zygote, mut channels }) = sandbox.next.take() else { return Ok(()) };
        sandbox.number = number;
        let (report, theirs) = packet_pair()?;
        channels.push(theirs);
        sandbox.exit = ExitReport::default();
        if let Err(error) = sandbox.group.limit_processor(&sandbox.limits) {
            return self.no_fork(id, error, server);
        }
        let ready = zygote.filter(|id| self.zygotes.get(id).is_some_and(|zygote| zygote.ready));
        let begun = match (zygote, ready) {
            (Some(zygote), None) => {
                self.no_fork(id, no_zygote(zygote), server)?;
                return Ok(());
            }
            (Some(_), Some(zygote)) => {
                if let Err(error) = sandbox.group.open(&sandbox.limits) {
                    return self.no_fork(id, error, server);
                }
                sandbox.program = Program::ToFork(zygote, channels);
                self.queue_fork(zygote, id, server)
            }
            (None, _) => {
                let fds: Vec<BorrowedFd<'_>> = channels.iter().map(AsFd::as_fd).collect();
                sandbox.program = Program::Executed;
                let told = sandbox.report.as_ref().map(|process_1| send_now(process_1, &Order::Execute, &fds));
                match told {
                    Some(Ok(())) => send(server, &Reply::Begun { id, program: sandbox.number }, &[]),
                    // Its end is on its way.
                    _ => Ok(()),
                }
            }
        };
        begun?;
        self.watch(report.as_fd(), Source::ProgramReport(id))?;
        if let Some(sandbox) = self.sandboxes.get_mut(&id) {
            sandbox.program_report = Some(report);
        }
        Ok(())
    }

    /// Takes in what a program of a sandbox that is kept reports of its own start.
    pub(super) fn hear_program(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        while let Some(sandbox) = self.sandboxes.get_mut(&id)
            && let Some(report) = &sandbox.program_report
            && readable(report.as_fd())?
        {
            match receive::<Report>(report) {
                Ok(Some((Report::Failed(error), _))) => sandbox.exit.error = Some(error),
                Ok(Some((Report::Confined { listener, io }, fds))) => self.confined(id, (listener, io), fds, server)?,
                // Nothing else is said there.
                _ => {
                    if let Some(report) = sandbox.program_report.take() {
                        self.unwatch(&report);
                    }
                }
            }
        }
        Ok(())
    }

    /// The program of a sandbox that is kept has ended, or did not come.
    pub(super) fn program_over(&mut self, id: u64, wait_status: Option<i32>, server: &OwnedFd) -> io::Result<()> {
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return Ok(()) };
        sandbox.program = Program::Over;
        sandbox.exit.wait_status = wait_status;
        if let Some(report) = sandbox.program_report.take() {
            epoll::delete(&self.watch, &report).ok();
        }
        if sandbox.next.is_some() {
            // Ended to make room: whoever asked for the next one hears of that one only.
            return Ok(());
        }
        let (program, report) = (sandbox.number, sandbox.final_report());
        send(server, &Reply::ProgramEnded { id, program, report }, &[])
    }

    pub(super) fn pause(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        let Some(sandbox) = self.sandboxes.get_mut(&id).filter(|sandbox| sandbox.keep && !sandbox.killed) else {
            return Ok(());
        };
        match sandbox.group.freeze(true) {
            Ok(()) => {
                sandbox.paused = true;
                self.freezing.insert(id);
                self.tell_frozen(server)
            }
            Err(error) => send(server, &Reply::Paused { id, error: Some(error) }, &[]),
        }
    }

    /// Tells of those that have come to stand still.
    pub(super) fn tell_frozen(&mut self, server: &OwnedFd) -> io::Result<()> {
        let still = |id: &u64| self.sandboxes.get(id).is_none_or(|sandbox| sandbox.group.is_frozen());
        let frozen: Vec<u64> = self.freezing.iter().copied().filter(still).collect();
        for id in frozen {
            self.freezing.remove(&id);
            send(server, &Reply::Paused { id, error: None }, &[])?;
        }
        Ok(())
    }

    pub(super) fn resume(&mut self, id: u64) {
        let Some(sandbox) = self.sandboxes.get_mut(&id).filter(|sandbox| sandbox.paused) else { return };
        sandbox.paused = false;
        self.freezing.remove(&id);
        if sandbox.group.freeze(false).is_err() {
            // It would stand still for ever, and whoever waits for it too.
            pidfd_send_signal(&sandbox.init, Signal::KILL).ok();
        }
    }

    /// Interrupts the program of a sandbox, or has process 1 do so. Process 1 has one order at a time, however many interrupts are asked for: it may stand
    /// still, and whoever fills its socket waits for it.
    pub(super) fn interrupt(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        let done = Reply::Interrupted { id, count: 1 };
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return send(server, &done, &[]) };
        // What ended a moment ago needs none.
        match (&sandbox.program, &sandbox.report) {
            (Program::Forked(program, _), _) => {
                pidfd_send_signal(program, Signal::INT).ok();
                send(server, &done, &[])
            }
            (Program::Executed, Some(_)) if sandbox.interrupts.under_way > 0 => {
                sandbox.interrupts.asked_since += 1;
                Ok(())
            }
            (Program::Executed, Some(process_1)) if send_now(process_1, &Order::Interrupt, &[]).is_ok() => {
                sandbox.interrupts.under_way = 1;
                Ok(())
            }
            // One that cannot be told is at its end.
            _ => send(server, &done, &[]),
        }
    }

    /// Process 1 has interrupted the program. What was asked for since it was told to is another one.
    pub(super) fn interrupted(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return Ok(()) };
        let Interrupts { under_way, asked_since } = std::mem::take(&mut sandbox.interrupts);
        let again = match (asked_since, &sandbox.report) {
            (1.., Some(process_1)) => send_now(process_1, &Order::Interrupt, &[]).is_ok(),
            _ => false,
        };
        let count = if again {
            sandbox.interrupts.under_way = asked_since;
            under_way
        } else {
            under_way + asked_since
        };
        send(server, &Reply::Interrupted { id, count }, &[])
    }
}
