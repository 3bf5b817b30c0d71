//! The channels between a driver and the program that it follows.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fumehood_wire::{GuestDecoder, GuestFrame, MAX_GUEST_PAYLOAD};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::backend::{ExitReport, Interpreter};
use crate::record::Record;

use super::share::Share;

/// Frames that may wait for the guest to read them. The runner waits for each acknowledgement, so one is usual.
pub(super) const FRAMES_AHEAD: usize = 64;

/// The way of frames to the guest.
pub(super) enum ToGuest {
    /// The socket has room, as it has nearly always.
    AtOnce(OwnedWriteHalf),
    /// The guest did not read for a while: a task writes when it does.
    Queued(mpsc::Sender<Letter>),
}

/// Bytes for the guest, with a descriptor beside the first of them.
pub(super) struct Letter {
    pub(super) bytes: Vec<u8>,
    pub(super) fd: Option<OwnedFd>,
}

impl Letter {
    /// Sends as much as there is room for. Whether that was everything.
    pub(super) fn send_some(&mut self, socket: &UnixStream) -> std::io::Result<bool> {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let sent = socket.try_io(tokio::io::Interest::WRITABLE, || {
            let mut beside = SendAncillaryBuffer::new(&mut space);
            let fds: Vec<_> = self.fd.iter().map(AsFd::as_fd).collect();
            if !fds.is_empty() {
                beside.push(SendAncillaryMessage::ScmRights(&fds));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            Ok(sendmsg(socket, &[std::io::IoSlice::new(&self.bytes)], &mut beside, flags)?)
        })?;
        self.bytes.drain(..sent);
        self.fd = None;
        Ok(self.bytes.is_empty())
    }
}

/// The channels of a program.
pub(crate) struct Live {
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: pipe::Receiver,
    pub(super) open: [bool; 2],
    /// Frames in, for a runner.
    pub(super) frames: Option<OwnedReadHalf>,
    pub(super) decoder: GuestDecoder,
    /// Frames out; `None` for a plain program.
    pub(super) to_guest: Option<ToGuest>,
    /// The writer of frames, if there is one; it ends with this.
    pub(super) writers: JoinSet<()>,
    /// What taking in its frames may cost.
    pub(super) share: Share,
    /// What the host saw at the end.
    pub(crate) exit: oneshot::Receiver<ExitReport>,
}

impl Live {
    /// An interpreter of a session, once it is loaded.
    ///
    /// # Errors
    /// When it ends or says something else before it does.
    pub(crate) async fn ready(interpreter: Interpreter, patience: Duration) -> Result<Self, String> {
        let Interpreter { socket, stdout, stderr, exit } = interpreter;
        let (read, write) = UnixStream::into_split(socket);
        let mut live = Self {
            stdout,
            stderr,
            open: [true; 2],
            frames: Some(read),
            decoder: GuestDecoder::new(MAX_GUEST_PAYLOAD),
            to_guest: Some(ToGuest::AtOnce(write)),
            writers: JoinSet::new(),
            share: Share::new(Instant::now()),
            exit,
        };
        match tokio::time::timeout(patience, live.said_ready()).await {
            Ok(Ok(())) => Ok(live),
            Ok(Err(why)) => Err(why),
            Err(_) => Err("the interpreter did not become ready in time".to_owned()),
        }
    }

    async fn said_ready(&mut self) -> Result<(), String> {
        let Some(frames) = &self.frames else { return Err("the interpreter has no socket".to_owned()) };
        loop {
            match self.decoder.next_frame() {
                Ok(Some(GuestFrame::Ready(_))) => return Ok(()),
                Ok(Some(_)) => return Err("the interpreter said something else than that it is ready".to_owned()),
                Ok(None) => {}
                Err(error) => return Err(error.to_string()),
            }
            let mut buffer = [0; 4096];
            tokio::select! {
                readable = frames.readable() => readable.map_err(|error| error.to_string())?,
                _ = &mut self.exit => return Err("the interpreter ended while loading".to_owned()),
            }
            match frames.try_read(&mut buffer) {
                Ok(0) => return Err("the interpreter ended while loading".to_owned()),
                Ok(length) => self.decoder.push(&buffer[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// Writes standard input as it comes, then closes it.
pub(super) async fn feed(mut stdin: pipe::Sender, record: Arc<Record>) {
    while let Some(piece) = record.input.next().await {
        // A program that does not read its input, or is gone, is no error.
        if stdin.write_all(&piece).await.is_err() {
            record.input.close();
            return;
        }
    }
}

/// A pipe of which the guest gets the end to be read.
pub(super) fn stdin_pipe() -> std::io::Result<(OwnedFd, pipe::Sender)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    // Only our end: the sandbox's programs expect one that blocks.
    fcntl_setfl(&write, fcntl_getfl(&write)? | OFlags::NONBLOCK)?;
    Ok((read, pipe::Sender::from_owned_fd(write)?))
}

pub(super) async fn send_frames(socket: OwnedWriteHalf, mut letters: mpsc::Receiver<Letter>) {
    let socket: &UnixStream = socket.as_ref();
    while let Some(mut letter) = letters.recv().await {
        loop {
            match letter.send_some(socket) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if socket.writable().await.is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}
