//! Standard input that comes while a program runs.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Most bytes that wait for a program to read them.
pub const MOST_WAITING: usize = 1 << 20;

/// Why a piece of input was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// It was not asked to stay open, its end was sent, or the execution has ended.
    #[error(
        "standard input is closed: it stays open only for an execution made with stdin_open, until its end is sent or the execution ends"
    )]
    Closed,
    /// The program does not read what it was given before.
    #[error("the program has not read the {waiting} bytes that wait for it, and at most {MOST_WAITING} may")]
    Full {
        /// Bytes that wait.
        waiting: usize,
    },
}

/// The pieces between whoever sends them and the pipe into the sandbox.
#[derive(Debug)]
pub(crate) struct Input {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Bytes>,
    /// Bytes, those of the piece under way included.
    waiting: usize,
    /// Bytes of the piece that is being written.
    under_way: usize,
    closed: bool,
}

impl Input {
    /// Begins with `first`; more can come if `open`.
    pub(crate) fn new(first: Bytes, open: bool) -> Self {
        let waiting = first.len();
        let pieces = if waiting == 0 { VecDeque::new() } else { VecDeque::from([first]) };
        Self { state: Mutex::new(State { pieces, waiting, under_way: 0, closed: !open }), changed: Notify::new() }
    }

    /// Adds a piece, and the end after it if `last`. Nothing of it is taken when it is refused.
    pub(crate) fn push(&self, piece: Bytes, last: bool) -> Result<(), InputError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(InputError::Closed);
        }
        // A single piece may be larger: it was held in memory already, and nothing would ever make room for it.
        if state.waiting > 0 && state.waiting + piece.len() > MOST_WAITING {
            return Err(InputError::Full { waiting: state.waiting });
        }
        state.waiting += piece.len();
        if !piece.is_empty() {
            state.pieces.push_back(piece);
        }
        state.closed = last;
        self.changed.notify_one();
        Ok(())
    }

    /// Nothing more is of use, what waits included.
    pub(crate) fn close(&self) {
        *self.state.lock() = State { closed: true, ..State::default() };
        self.changed.notify_one();
    }

    /// The next piece, once there is one; `None` at the end. The one before has been written then. For one reader.
    pub(crate) async fn next(&self) -> Option<Bytes> {
        loop {
            {
                let mut state = self.state.lock();
                state.waiting -= std::mem::take(&mut state.under_way);
                if let Some(piece) = state.pieces.pop_front() {
                    state.under_way = piece.len();
                    return Some(piece);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn pieces_come_in_order_and_the_end_after_the_last() {
        let input = Input::new(Bytes::from_static(b"a"), true);
        input.push(Bytes::from_static(b"b"), false).unwrap();
        input.push(Bytes::from_static(b"c"), true).unwrap();
        assert_eq!(input.push(Bytes::from_static(b"d"), false), Err(InputError::Closed));
        for piece in [b"a", b"b", b"c"] {
            assert_eq!(input.next().await.unwrap(), Bytes::from_static(piece));
        }
        assert!(input.next().await.is_none());
    }

    #[tokio::test]
    async fn a_program_that_does_not_read_bounds_what_waits_for_it() {
        let input = Input::new(Bytes::new(), true);
        let full = Err(InputError::Full { waiting: MOST_WAITING });
        input.push(Bytes::from(vec![0; MOST_WAITING]), false).unwrap();
        assert_eq!(input.push(Bytes::from_static(b"x"), false), full);
        // What is being written waits still.
        input.next().await.unwrap();
        assert_eq!(input.push(Bytes::from_static(b"x"), false), full);
        assert!(input.next().now_or_never().is_none(), "there is no more");
        input.push(Bytes::from_static(b"x"), false).unwrap();
    }

    #[tokio::test]
    async fn a_reader_that_waits_learns_of_a_piece_and_of_the_end() {
        let input = std::sync::Arc::new(Input::new(Bytes::new(), true));
        let reader = tokio::spawn({
            let input = std::sync::Arc::clone(&input);
            async move { (input.next().await, input.next().await) }
        });
        tokio::task::yield_now().await;
        input.push(Bytes::from_static(b"x"), false).unwrap();
        tokio::task::yield_now().await;
        input.close();
        assert_eq!(reader.await.unwrap(), (Some(Bytes::from_static(b"x")), None));
    }
}
