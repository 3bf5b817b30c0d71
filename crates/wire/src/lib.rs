//! Frames between the host and the guest runner.
//!
//! This is the only protocol that crosses the trust boundary. One stream socket per sandbox carries frames of
//!
//! ```text
//! u32 big-endian payload length | u8 kind | payload (one UTF-8 JSON object)
//! ```
//!
//! The guest speaks first with [`Ready`], which carries [`VERSION`]. The host trusts nothing in a frame: a length beyond
//! the given bound is refused before anything is allocated, unknown JSON fields are ignored, and a malformed frame ends
//! the sandbox, never the server. Values stay text ([`JsonText`]): as trees they would take many times the memory. Text written to standard output and error does not travel here but through pipes; a
//! [`Display`] or [`Sync`] makes the guest wait for [`Ack`], so that the host can drain the pipes first and keep the order.

use std::collections::BTreeMap;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

mod json;

pub use json::{JsonText, MOST_DEPTH, MOST_MEMBERS, Members};

/// Version of this protocol, carried by [`Ready`] and [`Execute`].
pub const VERSION: u32 = 1;

/// Bytes of a frame before its payload: length and kind.
pub const HEADER_LEN: usize = 5;

/// Largest payload the host accepts from a guest unless told otherwise: a few large figures, base64-encoded.
pub const MAX_GUEST_PAYLOAD: usize = 32 << 20;

/// Lines of a traceback that are taken from a guest; more are left out.
pub const MOST_LINES: usize = 1000;

/// Warnings that are taken from one result; more are left out.
pub const MOST_WARNINGS: usize = 100;

/// A buffer beyond this is given back when its frame has been taken.
const KEPT_BUFFER: usize = 256 << 10;

/// Why a byte stream from the guest is not a sequence of frames.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WireError {
    /// The guest announced more than the host is willing to hold.
    #[error("a frame announces {announced} bytes, more than the {bound} allowed")]
    TooLarge {
        /// Payload length in the header, in bytes.
        announced: usize,
        /// Bound in force, in bytes.
        bound: usize,
    },
    /// The kind is not one a guest may send.
    #[error("a frame has the unknown kind {0}")]
    UnknownKind(u8),
    /// The payload is not the JSON object that its kind asks for.
    #[error("a {kind} frame has a malformed payload: {detail}")]
    Malformed {
        /// Name of the frame kind.
        kind: &'static str,
        /// What the JSON decoder said.
        detail: String,
    },
    /// The guest speaks another version.
    #[error("the guest speaks protocol version {0}, this host speaks {VERSION}")]
    Version(u32),
}

/// Host to guest: run this code.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Execute {
    /// Always [`VERSION`].
    pub version: u32,
    /// Id of the execution; echoed in `result`.
    pub id: String,
    /// Source text.
    pub code: String,
    /// Name shown in tracebacks.
    pub filename: String,
    /// Whether the interpreter ends with the code.
    pub mode: Mode,
    /// Whether `input` was given at all (`null` is a value too).
    pub has_input: bool,
    /// Argument of `handler(input)`.
    pub input: JsonText,
    /// Variable to extract; `None` means the value of the last expression.
    pub result_var: Option<String>,
    /// Rows of a table preview, 0 to 500.
    pub preview_rows: u32,
    /// Whether tables are to come as Markdown too.
    #[serde(default)]
    pub markdown: bool,
    /// Most variables described in the result.
    pub max_variables: u32,
    /// Bound of the encoded result value, in bytes.
    pub max_result_bytes: u64,
    /// Bound of one display, in bytes.
    pub max_display_bytes: u64,
    /// Whether the sandbox has any network: the runner words its hints by it.
    pub network: bool,
    /// Python code gets the restricted builtins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restricted: bool,
    /// Standard input of this execution, in a session; then end of file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdin: String,
    /// A pipe comes beside this frame (`SCM_RIGHTS`), which is the standard input of this execution.
    #[serde(default)]
    pub stdin_pipe: bool,
    /// A program to run as a child of the interpreter instead of `code`; the exit code in the result is then its own, or minus the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Directory to enter first; the present one otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables of the caller's, for an interpreter that was started before it was known whose it would be.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// A program in another language, in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Absolute path of the program, and its arguments.
    pub argv: Vec<String>,
    /// Its code, where that is too long for an argument.
    pub script: Option<Script>,
}

/// A file that a program is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Absolute path inside; what is there is replaced.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// How an execution ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// As a script: threads are joined, exit functions run, the process ends.
    Script,
    /// As a notebook cell: the interpreter stays.
    Cell,
}

/// Host to guest: the frame with this number has been placed in the event stream.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Ack {
    /// Number given by the guest.
    pub seq: u64,
}

/// A frame from the host.
#[derive(Debug, Clone)]
pub enum HostFrame {
    /// Run code.
    Execute(Box<Execute>),
    /// Go on after a display or sync.
    Ack(Ack),
    /// Interrupts sent before this were for earlier executions. (One that comes between this and the beginning of the code is for that.)
    Settle,
    /// End the interpreter.
    Shutdown,
}

/// Guest to host, once: the interpreter is loaded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ready {
    /// Protocol version of the guest.
    pub version: u32,
    /// Interpreter version, for example `3.11.2`.
    #[serde(default)]
    pub python: String,
}

/// Guest to host: something to show besides text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Display {
    /// To be acknowledged; 0 when nobody waits for that.
    pub seq: u64,
    /// Media type to content; binary content is base64.
    pub mime: Members,
    /// Free-form facts; `kind` is `figure`, `result` or absent.
    #[serde(default)]
    pub metadata: Members,
}

/// Guest to host: the guest switches between its output streams and waits so that their order is kept.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Sync {
    /// To be acknowledged.
    pub seq: u64,
}

/// Guest to host: something the caller should know that is no failure.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Warning {
    /// Stable code.
    pub code: String,
    /// Sentence for people and models.
    pub message: String,
}

/// What the guest says about an error in the user's code.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct GuestError {
    /// Class of the exception.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Its text.
    #[serde(default)]
    pub message: String,
    /// Innermost line of the user's code.
    #[serde(default)]
    pub line: Option<u64>,
    /// Lines as Python prints them, without the runner's own frames.
    #[serde(default, deserialize_with = "first::<_, _, MOST_LINES>")]
    pub traceback: Vec<String>,
    /// Short advice for common mistakes.
    #[serde(default)]
    pub hint: Option<String>,
    /// For `OSError`: the number.
    #[serde(default)]
    pub errno: Option<i64>,
    /// What the sandbox refused, where the exception is about that.
    #[serde(default)]
    pub refused: Option<GuestRefusal>,
}

/// Something that the guest says it was refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestRefusal {
    /// `path` or `network`.
    #[serde(default)]
    pub kind: String,
    /// The place, or what was to be reached.
    #[serde(default)]
    pub what: String,
}

/// Guest to host, last of an execution: what the guest claims came out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GuestResult {
    /// Exit code the process is going to end with (script) or would have ended with (cell).
    #[serde(default)]
    pub exit_code: i32,
    /// The value, encoded as the runner's `values` module documents.
    #[serde(default)]
    pub result: JsonText,
    /// Description of a table, if the value is one.
    #[serde(default)]
    pub dataframe: Option<Members>,
    /// The user's variables.
    #[serde(default)]
    pub variables: Members,
    /// The uncaught error, if any.
    #[serde(default)]
    pub error: Option<GuestError>,
    /// Things the caller should know.
    #[serde(default, deserialize_with = "first::<_, _, MOST_WARNINGS>")]
    pub warnings: Vec<Warning>,
}

/// A frame from the guest.
#[derive(Debug, Clone)]
pub enum GuestFrame {
    /// The interpreter is loaded.
    Ready(Ready),
    /// Something to show.
    Display(Display),
    /// Keep the order of the output streams.
    Sync(Sync),
    /// Something to know.
    Warning(Warning),
    /// The end.
    Result(Box<GuestResult>),
}

/// The first `N` of a list: each of the smallest elements takes many times its text.
fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct First<T, const N: usize>(std::marker::PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for First<T, N> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while kept.len() < N {
                let Some(element) = list.next_element()? else { return Ok(kept) };
                kept.push(element);
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(kept)
        }
    }
    deserializer.deserialize_seq(First::<T, N>(std::marker::PhantomData))
}

mod kind {
    pub(crate) const EXECUTE: u8 = 1;
    pub(crate) const ACK: u8 = 2;
    pub(crate) const SETTLE: u8 = 3;
    pub(crate) const SHUTDOWN: u8 = 4;
    pub(crate) const READY: u8 = 16;
    pub(crate) const DISPLAY: u8 = 18;
    pub(crate) const SYNC: u8 = 19;
    pub(crate) const WARNING: u8 = 20;
    pub(crate) const RESULT: u8 = 21;
}

impl HostFrame {
    /// The frame as bytes, header included.
    ///
    /// # Errors
    /// Only when a value cannot be written as JSON, which the types here exclude.
    pub fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let (kind, payload) = match self {
            Self::Execute(execute) => (kind::EXECUTE, serde_json::to_vec(execute)?),
            Self::Ack(ack) => (kind::ACK, serde_json::to_vec(ack)?),
            Self::Settle => (kind::SETTLE, b"{}".to_vec()),
            Self::Shutdown => (kind::SHUTDOWN, b"{}".to_vec()),
        };
        Ok(frame(kind, &payload))
    }
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
    let length = u32::try_from(payload.len()).expect("host payloads are bounded by the request body limit");
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(payload);
    bytes
}

/// Turns bytes from the guest into frames, holding at most one frame of bounded size and what was read behind it.
#[derive(Debug)]
pub struct GuestDecoder {
    bound: usize,
    buffer: Vec<u8>,
    /// What is before this has been taken.
    start: usize,
}

impl GuestDecoder {
    /// `bound` is the largest payload accepted, in bytes.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self { bound, buffer: Vec::new(), start: 0 }
    }

    /// Adds bytes as they were read.
    pub fn push(&mut self, bytes: &[u8]) {
        // Here and not with each frame: many small ones in one piece would each move all that are behind it.
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes of the next frame's payload, when it has come whole.
    #[must_use]
    pub fn waiting(&self) -> Option<usize> {
        let header = self.buffer[self.start..].first_chunk::<HEADER_LEN>()?;
        let announced = announced(header);
        (self.buffer.len() - self.start - HEADER_LEN >= announced).then_some(announced)
    }

    /// The next complete frame, `None` when more bytes are needed.
    ///
    /// # Errors
    /// A stream that broke the rules; nothing after it can be trusted, and nothing of it is held any more.
    pub fn next_frame(&mut self) -> Result<Option<GuestFrame>, WireError> {
        let next = self.take();
        if next.is_err() {
            (self.buffer, self.start) = (Vec::new(), 0);
        }
        next
    }

    fn take(&mut self) -> Result<Option<GuestFrame>, WireError> {
        let unread = &self.buffer[self.start..];
        let Some(header) = unread.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let announced = announced(header);
        if announced > self.bound {
            return Err(WireError::TooLarge { announced, bound: self.bound });
        }
        let end = HEADER_LEN + announced;
        if unread.len() < end {
            return Ok(None);
        }
        let decoded = decode(header[4], &unread[HEADER_LEN..end]);
        self.start += end;
        if self.buffer.capacity() > KEPT_BUFFER {
            self.buffer = self.buffer.split_off(self.start);
            self.start = 0;
        }
        decoded.map(Some)
    }
}

fn announced(header: &[u8; HEADER_LEN]) -> usize {
    u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as usize
}

fn decode(kind: u8, payload: &[u8]) -> Result<GuestFrame, WireError> {
    fn json<'a, T: Deserialize<'a>>(name: &'static str, payload: &'a [u8]) -> Result<T, WireError> {
        // What the decoder says may quote the payload.
        const MOST: usize = 300;
        serde_json::from_slice(payload).map_err(|error| {
            let mut detail = error.to_string();
            detail.truncate(detail.floor_char_boundary(MOST));
            detail.shrink_to_fit();
            WireError::Malformed { kind: name, detail }
        })
    }
    Ok(match kind {
        kind::READY => {
            let ready: Ready = json("ready", payload)?;
            if ready.version != VERSION {
                return Err(WireError::Version(ready.version));
            }
            GuestFrame::Ready(ready)
        }
        kind::DISPLAY => GuestFrame::Display(json("display", payload)?),
        kind::SYNC => GuestFrame::Sync(json("sync", payload)?),
        kind::WARNING => GuestFrame::Warning(json("warning", payload)?),
        kind::RESULT => GuestFrame::Result(Box::new(json("result", payload)?)),
        other => return Err(WireError::UnknownKind(other)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(kind: u8, payload: &[u8]) -> Vec<u8> {
        frame(kind, payload)
    }

    #[test]
    fn frames_arrive_whole_however_the_bytes_are_cut() {
        let mut stream = bytes(kind::READY, br#"{"version":1,"python":"3.11.2","later":true}"#);
        stream.extend(bytes(kind::SYNC, br#"{"seq":6}"#));
        stream.extend(bytes(kind::DISPLAY, br#"{"seq":7,"mime":{"text/plain":"x"}}"#));
        let mut decoder = GuestDecoder::new(1024);
        let mut seen = Vec::new();
        for byte in stream {
            decoder.push(&[byte]);
            while let Some(frame) = decoder.next_frame().unwrap() {
                seen.push(frame);
            }
        }
        assert!(matches!(&seen[..], [GuestFrame::Ready(_), GuestFrame::Sync(_), GuestFrame::Display(d)] if d.seq == 7));
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_its_bytes_arrive() {
        let mut decoder = GuestDecoder::new(1024);
        decoder.push(&u32::MAX.to_be_bytes());
        decoder.push(&[kind::RESULT]);
        assert_eq!(
            decoder.next_frame().unwrap_err(),
            WireError::TooLarge { announced: u32::MAX as usize, bound: 1024 }
        );
    }

    #[test]
    fn a_large_frame_leaves_no_large_buffer_and_what_follows_it_is_kept() {
        let mut decoder = GuestDecoder::new(MAX_GUEST_PAYLOAD);
        let large = format!(r#"{{"result":[{}0]}}"#, "0,".repeat(1 << 20));
        let mut stream = bytes(kind::RESULT, large.as_bytes());
        stream.extend(bytes(kind::SYNC, br#"{"seq":6}"#));
        for piece in stream.chunks(64 << 10) {
            decoder.push(piece);
        }
        assert_eq!(decoder.waiting(), Some(large.len()));
        let Some(GuestFrame::Result(result)) = decoder.next_frame().unwrap() else { panic!("no result") };
        assert_eq!(result.result.as_str().len(), (2 << 20) + 3);
        assert!(decoder.buffer.capacity() <= KEPT_BUFFER);
        assert!(matches!(decoder.next_frame().unwrap(), Some(GuestFrame::Sync(Sync { seq: 6 }))));
        assert_eq!((decoder.waiting(), decoder.next_frame().unwrap().is_none()), (None, true));
    }

    #[test]
    fn of_long_lists_the_beginning_is_taken_and_of_errors_the_beginning_told() {
        let payload = format!(
            r#"{{"error":{{"traceback":[{}"x"]}},"warnings":[{}{{"code":"","message":""}}]}}"#,
            r#""","#.repeat(5000),
            r#"{"code":"","message":""},"#.repeat(5000)
        );
        let mut decoder = GuestDecoder::new(MAX_GUEST_PAYLOAD);
        decoder.push(&bytes(kind::RESULT, payload.as_bytes()));
        let Some(GuestFrame::Result(result)) = decoder.next_frame().unwrap() else { panic!("no result") };
        assert_eq!((result.warnings.len(), result.error.unwrap().traceback.len()), (MOST_WARNINGS, MOST_LINES));

        decoder.push(&bytes(kind::SYNC, format!(r#"{{"seq":"{}"}}"#, "é".repeat(1 << 20)).as_bytes()));
        let error = decoder.next_frame().unwrap_err().to_string();
        assert!(error.starts_with("a sync frame has a malformed payload") && error.len() < 400, "{}", error.len());
        assert_eq!(decoder.buffer.capacity(), 0);
    }

    #[test]
    fn another_version_is_refused() {
        let mut decoder = GuestDecoder::new(1024);
        decoder.push(&bytes(kind::READY, br#"{"version":2}"#));
        assert_eq!(decoder.next_frame().unwrap_err(), WireError::Version(2));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_never_grow_past_the_bound(input in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let mut decoder = GuestDecoder::new(256);
            decoder.push(&input);
            while let Ok(Some(_)) = decoder.next_frame() {}
            prop_assert!(decoder.buffer.len() <= input.len());
        }
    }
}
