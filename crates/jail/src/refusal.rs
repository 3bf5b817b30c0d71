//! System calls that were refused, as the host hears of them.
//!
//! Closed calls do not fail by themselves: the kernel holds them and tells whoever has the filter's listener, which answers with an
//! error. The answer is always the same, so nothing depends on what is read from the sandbox; hearing of it first is what makes it possible to say
//! afterwards what was refused. When nobody listens any more the kernel answers by itself, with `ENOSYS`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::seccomp;
use crate::sys;

/// A call that waits for its refusal.
#[derive(Debug, Clone, Copy)]
pub struct Refused {
    id: u64,
    call: i32,
    arguments: [u64; 6],
}

/// What is said of a refused call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Explanation {
    /// The call, with the argument that mattered: `socket(AF_PACKET)`.
    pub what: String,
    /// Why it is closed.
    pub why: &'static str,
    /// What a program can do instead.
    pub instead: &'static str,
}

/// Where calls of one program come in.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// What there is at a [`Listener`].
#[derive(Debug, Clone, Copy)]
pub enum Heard {
    /// A call; it waits until [`Listener::refuse`].
    Refused(Refused),
    /// Nothing yet.
    Nothing,
    /// No process is left that could call.
    Ended,
}

impl Listener {
    /// From the descriptor that came beside a message.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// What there is now; does not wait.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn next(&self) -> io::Result<Heard> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Heard::Nothing),
            Err(error) => return Err(error.into()),
        }
        let ready = fds[0].revents();
        if !ready.contains(PollFlags::IN) {
            return Ok(if ready.is_empty() { Heard::Nothing } else { Heard::Ended });
        }
        match sys::receive_notification(self.0.as_fd()) {
            Ok(notification) => {
                let sys::Notification { id, call, arguments } = notification;
                Ok(Heard::Refused(Refused { id, call, arguments }))
            }
            // Its caller was killed a moment ago, or a signal cut the call short.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(Heard::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Answers a call with `EPERM`.
    ///
    /// # Errors
    /// As the kernel says; a caller that is gone is none.
    pub fn refuse(&self, refused: &Refused) -> io::Result<()> {
        match sys::answer_notification(self.0.as_fd(), refused.id, libc::EPERM) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            answered => answered,
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Refused {
    /// What to say of it.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        seccomp::explain(self.call.into(), &self.arguments)
    }
}
