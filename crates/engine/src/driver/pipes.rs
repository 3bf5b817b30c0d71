//! Output as it comes through the pipes.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tokio::net::unix::pipe;
use tokio::time::sleep_until;

use super::Follower;
use crate::record::Stream;
use crate::verdict::KillReason;

/// Read from a pipe at a time; the usual capacity of one.
const PIPE_CHUNK: usize = 64 << 10;

thread_local! {
    /// What is read goes through here: clearing so much for every look into a pipe, most of which find nothing, takes longer than the rest of it.
    pub(super) static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PIPE_CHUNK]);
}

/// How long the beginning of a line waits for its end.
const LINE_PATIENCE: Duration = Duration::from_millis(2);

/// After so many events of output, small pieces are gathered for a moment before they are read: each event costs more memory than its
/// text, and a program could write one byte at a time.
const EVENTS_BEFORE_PACING: u32 = 1000;
/// How long pieces are gathered then; longer in proportion as there are more of them, so that their number grows with the root of the time.
const PACE: Duration = Duration::from_millis(2);
/// They are gathered no longer than this.
const LONGEST_PACE: Duration = Duration::from_millis(100);
/// A piece from this size on is not small.
const LARGE_PIECE: usize = 4096;

/// Output that waits for the rest of its line; of one stream at a time, so that the order across streams is kept.
pub(super) struct Held {
    stream: Stream,
    bytes: Vec<u8>,
    /// Told then at the latest; `None` when nothing is held.
    pub(super) until: Option<Instant>,
}

impl Default for Held {
    fn default() -> Self {
        Self { stream: Stream::Stdout, bytes: Vec::new(), until: None }
    }
}

impl Follower<'_> {
    /// Reads what is in a pipe now, at most twice its usual capacity, so that a program that never stops writing does not keep this
    /// from anything else. How much that was, in bytes.
    pub(super) fn drain(&mut self, stream: Stream) -> usize {
        SCRATCH.with_borrow_mut(|buffer| self.drain_through(stream, buffer))
    }

    fn drain_through(&mut self, stream: Stream, buffer: &mut [u8]) -> usize {
        let mut drained = 0;
        for _ in 0..2 {
            let (pipe, index) = match stream {
                Stream::Stdout => (&self.live.stdout, 0),
                Stream::Stderr => (&self.live.stderr, 1),
            };
            if !self.live.open[index] {
                break;
            }
            // Through `try_read` first, which clears the readiness; then directly, since data may have come without a new
            // readiness having been seen.
            let read = match pipe.try_read(buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    rustix::io::read(pipe.as_fd(), &mut *buffer).map_err(std::io::Error::from)
                }
                other => other,
            };
            match read {
                Ok(0) => self.live.open[index] = false,
                Ok(length) => {
                    drained += length;
                    self.hold(stream, &buffer[..length]);
                    if length < PIPE_CHUNK {
                        break;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => self.live.open[index] = false,
            }
        }
        drained
    }

    /// Drains both pipes and tells everything: what comes next is to come after it. How much that was, in bytes.
    pub(super) fn drain_both(&mut self) -> usize {
        let drained = self.drain(Stream::Stdout) + self.drain(Stream::Stderr);
        self.tell_held();
        drained
    }

    /// Takes in a piece of output. A piece that ends within a line waits a moment for the rest: `print` writes the text and the end of the
    /// line one after the other, and nobody wants them as two events.
    fn hold(&mut self, stream: Stream, piece: &[u8]) {
        if self.held.stream != stream {
            self.tell_held();
            self.held.stream = stream;
        }
        self.held.bytes.extend_from_slice(piece);
        if self.held.bytes.ends_with(b"\n") || self.held.bytes.len() >= LARGE_PIECE {
            self.tell_held();
        } else if self.held.until.is_none() {
            self.held.until = Some(Instant::now() + LINE_PATIENCE);
        }
    }

    /// Tells what is held.
    pub(super) fn tell_held(&mut self) {
        self.held.until = None;
        if self.held.bytes.is_empty() {
            return;
        }
        let length = self.held.bytes.len();
        let produced = self.job.record.output(self.held.stream, &self.held.bytes);
        self.held.bytes.clear();
        if produced > self.job.means.config.output_hard_bytes {
            self.end(KillReason::OutputLimit);
        }
        self.output_events = self.output_events.saturating_add(1);
        if self.output_events > EVENTS_BEFORE_PACING && length < LARGE_PIECE {
            self.output_after = Instant::now() + pace(self.output_events);
        }
    }
}

/// How long small pieces are gathered after so many events.
fn pace(events: u32) -> Duration {
    (PACE * (events / EVENTS_BEFORE_PACING)).min(LONGEST_PACE)
}

/// Waits until a pipe is to be read.
pub(super) async fn paced(after: Instant, pipe: &pipe::Receiver) {
    if after > Instant::now() {
        // Only then: a timer that is over at once wakes the thread that watches timers for nothing.
        sleep_until(after.into()).await;
    }
    // An error shows when reading.
    pipe.readable().await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_events_there_are_the_longer_small_pieces_are_gathered() {
        assert_eq!(pace(1001), PACE);
        // Every event as soon as it may come, for ten minutes: their number stays below what it would be at the first pace by far.
        let (mut events, mut time) = (EVENTS_BEFORE_PACING, Duration::ZERO);
        while time < Duration::from_secs(600) {
            events += 1;
            time += pace(events);
        }
        assert!(events < 30_000, "{events}");
        assert_eq!(pace(u32::MAX), LONGEST_PACE);
    }
}
