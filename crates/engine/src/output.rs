//! Output of one stream, kept within a budget: the head and the tail stay, the middle goes.

use std::collections::VecDeque;

use serde::Serialize;
use utoipa::ToSchema;

use crate::ids::ExecutionId;

/// How much of each stream a result shows, in characters; what is kept can be read page by page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputBudget {
    /// From the beginning.
    pub head: usize,
    /// From the end.
    pub tail: usize,
}

impl OutputBudget {
    /// The text with progress bars folded to what a terminal would show in the end and, if it is longer than the budget, its middle replaced by a line that
    /// says how much is missing and how to read it; and whether that is so. `None` when nothing changes.
    pub(crate) fn apply(self, text: &str, id: &ExecutionId, stream: &str) -> Option<(String, bool)> {
        let folded = fold(text);
        let shown = folded.as_deref().unwrap_or(text);
        let length = shown.chars().count();
        if length <= self.head + self.tail {
            return folded.map(|folded| (folded, false));
        }
        let at = |count: usize| shown.char_indices().nth(count).map_or(shown.len(), |(index, _)| index);
        let (head, tail) = (&shown[..at(self.head)], &shown[at(length - self.tail)..]);
        let cut = length - self.head - self.tail;
        let shown = format!(
            "{head}\n[... {cut} characters cut; all: GET /v1/executions/{id}/output?stream={stream}&offset=0&limit=10000 ...]\n{tail}"
        );
        Some((shown, true))
    }
}

/// Lines as a terminal shows them in the end: what comes after a carriage return takes the place of what was before it. `None` when there are none.
fn fold(text: &str) -> Option<String> {
    if !text.contains('\r') {
        return None;
    }
    let line = |line: &str| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        line.rsplit('\r').find(|part| !part.is_empty()).unwrap_or_default().to_owned()
    };
    Some(text.split('\n').map(line).collect::<Vec<_>>().join("\n"))
}

/// A page of a text that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputPage {
    /// `stdout` or `stderr`.
    pub stream: String,
    /// First character of this page.
    pub offset: usize,
    /// Characters of all that is kept.
    pub total: usize,
    /// Where the next page begins; `null` at the end.
    pub next_offset: Option<usize>,
    /// The page.
    pub text: String,
}

impl OutputPage {
    /// The page of `text` that begins at `offset`.
    #[must_use]
    pub fn of(text: &str, stream: &str, offset: usize, limit: usize) -> Self {
        let page: String = text.chars().skip(offset).take(limit).collect();
        let total = text.chars().count();
        let end = offset.saturating_add(limit);
        Self { stream: stream.to_owned(), offset, total, next_offset: (end < total).then_some(end), text: page }
    }
}

/// Turns bytes into text as they come: sequences cut between two reads are completed, bytes that are not UTF-8 become
/// U+FFFD.
#[derive(Debug, Default)]
struct Utf8Stream {
    /// The beginning of a sequence whose end has not come yet; at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    fn decode(&mut self, bytes: &[u8]) -> String {
        let joined;
        let mut rest = if self.pending.is_empty() {
            bytes
        } else {
            self.pending.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.pending);
            &joined[..]
        };
        let mut text = String::with_capacity(rest.len());
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    return text;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                    match error.error_len() {
                        Some(length) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            rest = &after[length..];
                        }
                        None => {
                            self.pending = after.to_vec();
                            return text;
                        }
                    }
                }
            }
        }
    }

    /// What is left of a sequence that was never completed.
    fn finish(&mut self) -> String {
        if std::mem::take(&mut self.pending).is_empty() {
            String::new()
        } else {
            char::REPLACEMENT_CHARACTER.to_string()
        }
    }
}

/// What is kept of one stream.
#[derive(Debug)]
pub(crate) struct Kept {
    utf8: Utf8Stream,
    head: String,
    tail: VecDeque<u8>,
    head_budget: usize,
    tail_budget: usize,
    /// Text that may still be shown live.
    live_budget: usize,
    /// It has been told that nothing more is shown live.
    exhausted: bool,
    /// Bytes of text dropped from the front of the tail.
    cut: u64,
    /// Bytes produced by the program.
    produced: u64,
}

/// What became of a piece of output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    /// Text to show as it happens; empty when there is none.
    pub(crate) text: String,
    /// From here on nothing more is shown live.
    pub(crate) exhausted: bool,
}

impl Kept {
    /// Keeps at most `budget` bytes of text.
    pub(crate) fn new(budget: u64) -> Self {
        let budget = usize::try_from(budget).unwrap_or(usize::MAX);
        Self {
            utf8: Utf8Stream::default(),
            head: String::new(),
            tail: VecDeque::new(),
            head_budget: budget / 2,
            tail_budget: budget - budget / 2,
            live_budget: budget,
            exhausted: false,
            cut: 0,
            produced: 0,
        }
    }

    /// Takes in what was read.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Live {
        self.produced += bytes.len() as u64;
        let text = self.utf8.decode(bytes);
        self.keep(&text)
    }

    /// Takes in the end of the stream.
    pub(crate) fn finish(&mut self) -> Live {
        let text = self.utf8.finish();
        self.keep(&text)
    }

    fn keep(&mut self, text: &str) -> Live {
        let room = text.floor_char_boundary(self.head_budget.saturating_sub(self.head.len()));
        // Once something went to the tail the head is closed: text keeps its order.
        let room = if self.tail.is_empty() && self.cut == 0 { room } else { 0 };
        let (head, tail) = text.split_at(room);
        self.head.push_str(head);
        // Only the last part can survive, so a huge piece is not copied whole.
        let skipped = tail.len().saturating_sub(self.tail_budget);
        self.cut += skipped as u64;
        self.tail.extend(&tail.as_bytes()[skipped..]);
        let excess = self.tail.len().saturating_sub(self.tail_budget);
        self.tail.drain(..excess);
        self.cut += excess as u64;

        let shown = text.floor_char_boundary(self.live_budget);
        let exhausted = shown < text.len() && !self.exhausted;
        self.exhausted |= exhausted;
        self.live_budget = if self.exhausted { 0 } else { self.live_budget - shown };
        Live { text: text[..shown].to_owned(), exhausted }
    }

    /// Bytes produced so far, kept or not.
    pub(crate) fn produced(&self) -> u64 {
        self.produced
    }

    /// Whether something is missing from [`Self::text`].
    pub(crate) fn truncated(&self) -> bool {
        self.cut > 0
    }

    /// Head, a marker that says how much is missing, tail.
    pub(crate) fn text(&self) -> String {
        let (left, right) = self.tail.as_slices();
        let tail = [left, right].concat();
        if self.cut == 0 {
            return format!("{}{}", self.head, String::from_utf8_lossy(&tail));
        }
        // The tail may begin inside a character; its leading continuation bytes go with the part that was cut.
        let begin = tail.iter().position(|byte| byte & 0xc0 != 0x80).unwrap_or(tail.len());
        let cut = self.cut + begin as u64;
        format!("{}\n[... {cut} bytes of output cut ...]\n{}", self.head, String::from_utf8_lossy(&tail[begin..]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_budget_folds_progress_bars_and_says_what_it_cut() {
        let id = ExecutionId::parse("exe_1").unwrap();
        let budget = OutputBudget { head: 3, tail: 2 };
        assert_eq!(budget.apply("abcde", &id, "stdout"), None);
        assert_eq!(budget.apply("0%\r50%\r99%\r\nx", &id, "stdout").unwrap(), ("99%\nx".to_owned(), false));
        let (cut, missing) = budget.apply("äöü-----yz", &id, "stderr").unwrap();
        assert!(missing);
        assert!(cut.starts_with("äöü\n[... 5 characters cut;") && cut.ends_with("...]\nyz"), "{cut}");
        assert!(cut.contains("/v1/executions/exe_1/output?stream=stderr"), "{cut}");
    }

    #[test]
    fn pages_cover_a_text_without_gap() {
        let text = "äbcdëf";
        let first = OutputPage::of(text, "stdout", 0, 4);
        assert_eq!((first.text.as_str(), first.next_offset, first.total), ("äbcd", Some(4), 6));
        let last = OutputPage::of(text, "stdout", 4, 4);
        assert_eq!((last.text.as_str(), last.next_offset), ("ëf", None));
        assert_eq!(OutputPage::of(text, "stdout", 100, 4).text, "");
    }

    #[test]
    fn within_the_budget_nothing_is_lost() {
        let mut kept = Kept::new(10);
        kept.push(b"01234");
        kept.push(b"56789");
        assert_eq!((kept.text().as_str(), kept.truncated()), ("0123456789", false));
    }

    #[test]
    fn beyond_the_budget_head_and_tail_stay_and_the_cut_is_told() {
        let mut kept = Kept::new(8);
        kept.push(b"abcd----------wxyz");
        assert_eq!(kept.text(), "abcd\n[... 10 bytes of output cut ...]\nwxyz");
        assert!(kept.truncated());
    }

    #[test]
    fn live_text_ends_with_the_budget_and_says_so_once() {
        let mut kept = Kept::new(4);
        assert_eq!(kept.push(b"ab"), Live { text: "ab".to_owned(), exhausted: false });
        assert_eq!(kept.push(b"cde"), Live { text: "cd".to_owned(), exhausted: true });
        assert_eq!(kept.push(b"f"), Live::default());
        // A piece that ends just at the budget is no reason not to tell of the next.
        let mut kept = Kept::new(4);
        assert!(!kept.push(b"abcd").exhausted);
        assert_eq!(kept.push(b"e"), Live { text: String::new(), exhausted: true });
    }

    proptest! {
        #[test]
        fn text_is_the_same_however_the_bytes_are_cut(text in "\\PC{0,60}", sizes in proptest::collection::vec(1usize..7, 1..80)) {
            let mut kept = Kept::new(1 << 20);
            let mut live = String::new();
            let mut rest = text.as_bytes();
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                live.push_str(&kept.push(piece).text);
                rest = after;
            }
            live.push_str(&kept.finish().text);
            prop_assert_eq!(&kept.text(), &text);
            prop_assert_eq!(live, text);
        }

        #[test]
        fn never_more_than_the_budget_is_held(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..40)) {
            let mut kept = Kept::new(32);
            for piece in pieces {
                kept.push(&piece);
                prop_assert!(kept.head.len() + kept.tail.len() <= 32);
            }
        }
    }
}
