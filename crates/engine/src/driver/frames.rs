//! What the guest says, and what it is told.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use fumehood_wire::{Ack, Execute, GuestFrame, HostFrame, Mode, VERSION, WireError};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc;
use tokio::task::{block_in_place, yield_now};

use super::live::{FRAMES_AHEAD, Letter, ToGuest, feed, send_frames, stdin_pipe};
use super::pipes::SCRATCH;
use super::share::processor_time;
use super::{Follower, claim};
use crate::execution::{Notice, Output};
use crate::spec::ResultFormat;
use crate::verdict::KillReason;

/// Name of the code in tracebacks.
const CODE_NAME: &str = "<code>";

/// A frame whose payload is longer takes its time, in bytes.
const LARGE_FRAME: usize = 64 << 10;

/// Most displays of one execution, however small.
const MOST_DISPLAYS: usize = 1000;

impl Follower<'_> {
    /// Takes in what one look into the socket gives, at the guest's expense, and lets others have their turn.
    pub(super) async fn take_frames(&mut self, readiness: std::io::Result<usize>) {
        let before = processor_time();
        self.take_piece(readiness);
        self.live.share.spend(processor_time().saturating_sub(before), Instant::now());
        if self.claim.is_none() {
            yield_now().await;
        }
    }

    /// Reads what the guest sent and takes in each frame of it.
    fn take_piece(&mut self, readiness: std::io::Result<usize>) {
        let live = &mut self.live;
        let read = match (readiness, &live.frames) {
            (Ok(_), Some(frames)) => SCRATCH.with_borrow_mut(|buffer| {
                frames.try_read(buffer).inspect(|length| live.decoder.push(&buffer[..*length]))
            }),
            _ => Ok(0),
        };
        match read {
            // The interpreter closed its end; its exit tells the rest.
            Ok(0) => self.live.frames = None,
            Ok(_) => self.take_decoded(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.live.frames = None,
        }
    }

    /// Takes in the frames that have come whole; output first, and that once: whatever was printed before any of them was so before they were read.
    pub(super) fn take_decoded(&mut self) {
        if self.live.decoder.waiting().is_some() {
            self.drain_both();
        }
        loop {
            match self.next_frame() {
                Ok(None) => return,
                Ok(Some(frame)) => self.take(frame),
                Err(error) => {
                    self.live.frames = None;
                    self.end(KillReason::BrokenProtocol(error.to_string()));
                    return;
                }
            }
        }
    }

    /// The next frame. One that takes long leaves the other tasks of this thread to another.
    fn next_frame(&mut self) -> Result<Option<GuestFrame>, WireError> {
        let decoder = &mut self.live.decoder;
        let large = decoder.waiting().is_some_and(|length| length > LARGE_FRAME);
        if large && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
            return block_in_place(|| decoder.next_frame());
        }
        decoder.next_frame()
    }

    fn take(&mut self, frame: GuestFrame) {
        match frame {
            GuestFrame::Ready(_) if self.running.is_none() => self.execute(),
            // Only the first of each counts: what comes twice comes from the user's code.
            GuestFrame::Ready(_) => {}
            GuestFrame::Sync(sync) => self.acknowledge(sync.seq),
            GuestFrame::Display(display) => {
                self.display(Output { mime: display.mime, metadata: display.metadata });
                if display.seq != 0 {
                    self.acknowledge(display.seq);
                }
            }
            GuestFrame::Warning(warning) => {
                self.job.record.warn(claim::notice(warning));
            }
            GuestFrame::Result(result) => {
                if self.claim.is_none() {
                    // The runner's last word: it leaves now, with this code. Files that are to be collected must be at rest first.
                    if let (Ok(code), None, Mode::Script) =
                        (u8::try_from(result.exit_code), &self.job.spec.collect, self.mode)
                    {
                        self.control.conclude(code);
                    }
                    let (kept, notices) = claim::result(*result, &self.job.means.config);
                    notices.into_iter().for_each(|notice| self.job.record.warn(notice));
                    self.claim = Some(kept);
                    if self.last_words {
                        self.time_out();
                    }
                }
            }
        }
    }

    pub(super) fn execute(&mut self) {
        // A program of its own has a pipe already, and one that needs no more than it was given needs none.
        let pipe = match self.mode == Mode::Cell && self.job.spec.stdin_open {
            true => match stdin_pipe() {
                Ok((to_guest, sender)) => {
                    self.feeder.spawn(feed(sender, Arc::clone(self.job.record)));
                    Some(to_guest)
                }
                Err(error) => {
                    let message = format!("standard input could not be kept open: {error}");
                    self.job.record.warn(Notice { code: "stdin_closed".to_owned(), message });
                    self.job.record.input.close();
                    None
                }
            },
            false => None,
        };
        let (spec, config) = (self.job.spec, &self.job.means.config);
        let execute = Execute {
            version: VERSION,
            id: self.job.record.id.to_string(),
            code: if self.program.is_some() { String::new() } else { spec.code.clone() },
            filename: CODE_NAME.to_owned(),
            mode: self.mode,
            has_input: spec.input.is_some(),
            input: spec.input.clone().unwrap_or_default(),
            result_var: spec.result_var.clone(),
            preview_rows: spec.preview_rows,
            markdown: spec.format == ResultFormat::Markdown,
            max_variables: config.max_variables,
            max_result_bytes: config.max_result_bytes,
            max_display_bytes: config.max_display_bytes as u64 / 4,
            network: false,
            restricted: spec.kind.restricted,
            // A program of its own has a pipe for it, and starts where it is to be.
            stdin: if self.mode == Mode::Cell && pipe.is_none() {
                String::from_utf8_lossy(&spec.stdin).into_owned()
            } else {
                String::new()
            },
            stdin_pipe: pipe.is_some(),
            program: self.program.clone(),
            cwd: (self.mode == Mode::Cell && !spec.cwd.is_empty()).then(|| spec.cwd.clone()),
            env: spec.env.clone(),
        };
        self.begin();
        self.send(&HostFrame::Execute(Box::new(execute)), pipe);
    }

    fn acknowledge(&mut self, seq: u64) {
        self.send(&HostFrame::Ack(Ack { seq }), None);
    }

    pub(super) fn send(&mut self, frame: &HostFrame, fd: Option<OwnedFd>) {
        let Ok(bytes) = frame.encode() else { return };
        let mut letter = Letter { bytes, fd };
        if let Some(ToGuest::AtOnce(socket)) = &self.live.to_guest {
            match letter.send_some(socket.as_ref()) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // A guest that is gone needs no frames.
                Err(_) => return,
            }
        }
        self.queue(letter);
    }

    /// For a guest that does not read just now.
    fn queue(&mut self, letter: Letter) {
        let queue = match self.live.to_guest.take() {
            Some(ToGuest::AtOnce(socket)) => {
                let (sender, receiver) = mpsc::channel(FRAMES_AHEAD);
                self.live.writers.spawn(send_frames(socket, receiver));
                sender
            }
            Some(ToGuest::Queued(queue)) => queue,
            None => return,
        };
        match queue.try_send(letter) {
            // A guest that is gone needs no frames.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            // It asks for acknowledgements without reading them: left alone, it could fill this host's memory.
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.end(KillReason::BrokenProtocol("acknowledgements are not read".to_owned()));
            }
        }
        self.live.to_guest = Some(ToGuest::Queued(queue));
    }

    fn display(&mut self, output: Output) {
        if let Some(notice) = claim::too_large(&output, &self.job.means.config) {
            self.job.record.warn(notice);
            return;
        }
        let size = output.size();
        let most = self.job.means.config.max_display_bytes;
        if self.display_bytes + size > most || self.displays == MOST_DISPLAYS {
            let message = format!("displays beyond {} MB or {MOST_DISPLAYS} in number are not kept", most >> 20);
            self.job.record.warn(Notice { code: "displays_truncated".to_owned(), message });
            return;
        }
        self.display_bytes += size;
        self.displays += 1;
        self.job.record.display(output);
    }
}
