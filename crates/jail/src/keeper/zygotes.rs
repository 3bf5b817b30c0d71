//! Zygotes, and the way of their forks into sandboxes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

use super::{FORKS_AHEAD, Place, Program, Source, State, Zygote, check_name, in_pid_namespace, no_zygote};
use crate::error::{At, JailError, Step};
use crate::protocol::{Reply, ZygoteReport, ZygoteSpec, receive, send};
use crate::spawn::wait_status;
use crate::sys;
use crate::zygote;

/// Most kinds of zygotes in the life of a jailer; each takes a uid.
const MOST_KINDS: usize = 256;

impl State {
    pub(super) fn start_zygote(&mut self, spec: &ZygoteSpec, mut fds: Vec<OwnedFd>) -> Result<(), JailError> {
        let (Some(log), false) = (fds.pop(), spec.argv.is_empty()) else {
            return Err(JailError::new(Step::StartZygote, "", "the request is incomplete"));
        };
        if !self.place.without.nothing() {
            return Err(JailError::new(Step::StartZygote, "", "this jailer leaves layers out"));
        }
        check_name(&spec.name)?;
        let uid = match self.zygote_uids.get(&spec.family) {
            Some(uid) => *uid,
            None if self.zygote_uids.len() >= MOST_KINDS => {
                return Err(JailError::new(Step::StartZygote, "", "too many kinds of zygotes"));
            }
            // Kept for good: sandboxes of this kind may outlive its zygotes.
            None => {
                let uid = self.take_uid()?;
                self.zygote_uids.insert(spec.family, uid);
                uid
            }
        };
        let owner = self.owner(uid, None);
        let Place { hierarchy, .. } = &self.place;
        let started = zygote::start(spec, log, hierarchy, &mut self.images, &self.zygote_filters, owner);
        let zygote::Started { pidfd, group, socket } = started?;
        let watched = self.watch(socket.as_fd(), Source::Zygote(spec.id));
        self.zygotes.insert(
            spec.id,
            Zygote {
                uid,
                process: pidfd,
                socket,
                group,
                ready: false,
                waiting: VecDeque::new(),
                asked: VecDeque::new(),
                error: None,
            },
        );
        watched.at(Step::StartZygote, "watch it")
    }

    pub(super) fn queue_fork(&mut self, zygote: u64, id: u64, server: &OwnedFd) -> io::Result<()> {
        match self.zygotes.get_mut(&zygote) {
            Some(found) => {
                found.waiting.push_back(id);
                self.ask_zygote(zygote);
                Ok(())
            }
            None => self.no_fork(id, no_zygote(zygote), server),
        }
    }

    /// Asks for the next forks, as far as the zygote takes them.
    pub(super) fn ask_zygote(&mut self, id: u64) {
        let Some(zygote) = self.zygotes.get_mut(&id) else { return };
        while zygote.asked.len() < FORKS_AHEAD {
            let Some(next) = zygote.waiting.pop_front() else { return };
            let Some(sandbox) = self.sandboxes.get_mut(&next) else { continue };
            let (Program::ToFork(_, channels), Some(forking)) = (&sandbox.program, &sandbox.forking) else { continue };
            // A zygote that is gone is heard of through its socket; this sandbox is then among those it was asked for.
            forking.ask(&zygote.socket, channels).ok();
            sandbox.program = Program::Asked(forking.pid_namespace);
            if !sandbox.keep {
                sandbox.forking = None;
            }
            zygote.asked.push_back(next);
        }
    }

    /// A program will not come.
    pub(super) fn no_fork(&mut self, id: u64, error: JailError, server: &OwnedFd) -> io::Result<()> {
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return Ok(()) };
        sandbox.program = Program::Over;
        sandbox.exit.error.get_or_insert(error);
        self.forkless.insert(id);
        if sandbox.keep {
            return self.program_over(id, None, server);
        }
        self.kill(id);
        Ok(())
    }

    pub(super) fn hear_zygote(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        let Some(zygote) = self.zygotes.get_mut(&id) else { return Ok(()) };
        match receive::<ZygoteReport>(&zygote.socket) {
            Ok(Some((ZygoteReport::Ready, _))) => {
                zygote.ready = true;
                send(server, &Reply::ZygoteReady { id }, &[])
            }
            Ok(Some((ZygoteReport::Failed(error), _))) => {
                zygote.error = Some(error);
                Ok(())
            }
            Ok(Some((ZygoteReport::Forked { id: sandbox, pid }, _))) => {
                zygote.asked.retain(|asked| *asked != sandbox);
                self.ask_zygote(id);
                self.forked(id, sandbox, pid, server)
            }
            Ok(Some((ZygoteReport::NotForked { id: sandbox, error }, _))) => {
                zygote.asked.retain(|asked| *asked != sandbox);
                self.ask_zygote(id);
                self.no_fork(sandbox, error, server)
            }
            Ok(None) | Err(_) => self.bury_zygote(id, server),
        }
    }

    /// A program has come into its sandbox. What a zygote says is looked at before anything is done with it: it has loaded a great deal of code.
    pub(super) fn forked(&mut self, zygote: u64, id: u64, pid: i32, server: &OwnedFd) -> io::Result<()> {
        let (sandbox, namespace) = match self.sandboxes.get_mut(&id) {
            Some(sandbox) if let Program::Asked(namespace) = sandbox.program => (sandbox, namespace),
            _ => {
                // The sandbox ended meanwhile, and the fork with it.
                self.reap_orphans();
                return Ok(());
            }
        };
        let process = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let Some(process) = process.filter(|_| pid != sandbox.pid && in_pid_namespace(pid, namespace)) else {
            if let Some(zygote) = self.zygotes.get(&zygote) {
                pidfd_send_signal(&zygote.process, Signal::KILL).ok();
            }
            let error = JailError::new(Step::ForkZygote, pid.to_string(), "is no process of the sandbox");
            return self.no_fork(id, error, server);
        };
        epoll::add(&self.watch, &process, Source::Program(id).to_data(), epoll::EventFlags::IN)?;
        sandbox.program = Program::Forked(process, pid);
        if let Err(error) = sandbox.group.close(&sandbox.limits) {
            sandbox.exit.error = Some(error);
            self.kill(id);
            return Ok(());
        }
        if sandbox.keep {
            self.forkless.remove(&id);
            return send(server, &Reply::Begun { id, program: sandbox.number }, &[]);
        }
        self.tell_started(id, server)
    }

    pub(super) fn bury_zygote(&mut self, id: u64, server: &OwnedFd) -> io::Result<()> {
        let Some(zygote) = self.zygotes.remove(&id) else { return Ok(()) };
        pidfd_send_signal(&zygote.process, Signal::KILL).ok();
        self.unwatch(&zygote.socket);
        let ended = wait_status(&zygote.process).map(|status| {
            let how = match status & 0x7f {
                0 => format!("it ended with exit code {}", status >> 8),
                signal => format!("it was ended by signal {signal}"),
            };
            JailError::new(Step::StartZygote, "", how)
        });
        let error = zygote.error.or(ended);
        self.reap_orphans();
        for sandbox in zygote.asked.into_iter().chain(zygote.waiting) {
            self.no_fork(sandbox, no_zygote(id), server)?;
        }
        self.remove(zygote.group);
        send(server, &Reply::ZygoteGone { id, error }, &[])
    }

    /// Reaps what a zygote left: a bringer, or a fork that it could no longer tell of.
    pub(super) fn reap_orphans(&self) {
        let ours = |pid: i32| {
            self.sandboxes.values().any(|sandbox| {
                sandbox.pid == pid || matches!(sandbox.program, Program::Forked(_, program) if program == pid)
            })
        };
        // One that belongs to a sandbox is heard of in its own time.
        while let Some(pid) = sys::ended_child().filter(|pid| !ours(*pid)) {
            let Some(pid) = Pid::from_raw(pid) else { return };
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).ok();
        }
    }
}
