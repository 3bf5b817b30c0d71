//! Following an execution: its events in order, each once, until its result, also when the connection breaks in between.

use std::time::Duration;

use fumehood_engine::event::{Event, EventBody};
use fumehood_engine::ids::ExecutionId;
use reqwest::Response;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{Client, ClientError, MOST_BODY};

/// The server says something every 15 seconds; one that is silent for so long is gone, or what lies between is.
const SILENCE: Duration = Duration::from_secs(45);
/// A broken connection is tried again after these pauses, then given up; the count begins anew with every event.
const PAUSES: [Duration; 6] = {
    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }
    [ms(100), ms(300), ms(1000), ms(3000), ms(5000), ms(10_000)]
};

/// One event, as it came and as it is understood.
#[derive(Debug)]
pub(crate) struct Received {
    /// The JSON of it, one line.
    pub(crate) line: String,
    /// `None` for a kind that this version does not know.
    pub(crate) body: Option<EventBody>,
}

/// The events of an execution.
pub(crate) struct Events {
    /// Which one.
    pub(crate) id: ExecutionId,
    events: mpsc::Receiver<Result<Received, ClientError>>,
    task: JoinHandle<()>,
}

impl Events {
    /// Follows from after number `after`; `answer` is a stream that is open already.
    pub(super) fn begin(client: Client, id: ExecutionId, after: u64, follow: bool, answer: Option<Response>) -> Self {
        let (sender, events) = mpsc::channel(64);
        let follower = Follower { client, id: id.clone(), seen: after, follow, sender };
        Self { id, events, task: tokio::spawn(follower.run(answer)) }
    }

    /// The next event; `None` after the last. May be given up and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<Received>, ClientError> {
        self.events.recv().await.transpose()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Of every event.
#[derive(Deserialize)]
struct Head {
    seq: u64,
    r#type: String,
}

const KNOWN: [&str; 6] = ["started", "stdout", "stderr", "display", "warning", "result"];

struct Follower {
    client: Client,
    id: ExecutionId,
    seen: u64,
    follow: bool,
    sender: mpsc::Sender<Result<Received, ClientError>>,
}

/// How a stream ended.
enum End {
    /// With all there is.
    Whole,
    /// Nobody listens any more.
    Unheard,
    /// Before its end.
    Broken(ClientError),
    /// With what makes no sense.
    Wrong(ClientError),
}

impl Follower {
    async fn run(mut self, mut answer: Option<Response>) {
        let mut failures = 0;
        loop {
            let seen = self.seen;
            let opened = match answer.take() {
                Some(answer) => Ok(answer),
                None => self.client.open_events(&self.id, self.seen, self.follow).await,
            };
            let end = match opened {
                Ok(answer) => self.read(answer).await,
                // A server that starts anew, or a proxy without one behind it, may be there again soon.
                Err(error @ (ClientError::Broken { .. } | ClientError::Unreachable { .. }))
                    if seen > 0 || failures > 0 =>
                {
                    End::Broken(error)
                }
                Err(error) => End::Wrong(error),
            };
            let error = match end {
                End::Whole | End::Unheard => return,
                End::Wrong(error) => error,
                End::Broken(error) => {
                    failures = if self.seen > seen { 1 } else { failures + 1 };
                    match PAUSES.get(failures - 1) {
                        Some(pause) => {
                            sleep(*pause).await;
                            continue;
                        }
                        None => error,
                    }
                }
            };
            self.sender.send(Err(error)).await.ok();
            return;
        }
    }

    async fn read(&mut self, mut answer: Response) -> End {
        let mut lines = Lines::default();
        loop {
            while let Some(line) = lines.next() {
                if let Some(end) = self.take(line).await {
                    return end;
                }
            }
            if lines.buffer.len() > MOST_BODY {
                return End::Wrong(ClientError::Endless);
            }
            match timeout(SILENCE, answer.chunk()).await {
                Err(_) => {
                    let cause = format!("nothing came for {} seconds", SILENCE.as_secs());
                    return End::Broken(ClientError::Broken { cause });
                }
                Ok(Err(error)) => return End::Broken(ClientError::broken(&error)),
                // Without a result it has ended only if that was asked for.
                Ok(Ok(None)) if !self.follow => return End::Whole,
                Ok(Ok(None)) => return End::Broken(ClientError::Broken { cause: "it was closed".to_owned() }),
                Ok(Ok(Some(chunk))) => lines.buffer.extend_from_slice(&chunk),
            }
        }
    }

    async fn take(&mut self, line: String) -> Option<End> {
        let wrong = |error: serde_json::Error| End::Wrong(ClientError::unexpected(self.client.address(), &error));
        let head: Head = match serde_json::from_str(&line) {
            Ok(head) => head,
            Err(error) => return Some(wrong(error)),
        };
        if head.seq <= self.seen {
            return None;
        }
        let body = match serde_json::from_str::<Event>(&line) {
            Ok(event) => Some(event.body),
            Err(_) if !KNOWN.contains(&head.r#type.as_str()) => None,
            Err(error) => return Some(wrong(error)),
        };
        self.seen = head.seq;
        let last = matches!(body, Some(EventBody::Result(_)));
        if self.sender.send(Ok(Received { line, body })).await.is_err() {
            return Some(End::Unheard);
        }
        last.then_some(End::Whole)
    }
}

/// The data of server-sent events; each of this server's is one line.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    /// As far as it was searched.
    searched: usize,
}

impl Lines {
    fn next(&mut self) -> Option<String> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(end) = end.map(|end| end + self.searched) else {
                self.searched = self.buffer.len();
                return None;
            };
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            self.searched = 0;
            if let Some(data) = line.strip_prefix(b"data:") {
                return Some(String::from_utf8_lossy(data.trim_ascii()).into_owned());
            }
        }
    }
}

/// The data of events in a stream that comes in pieces.
pub(crate) fn event_lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut lines = Lines::default();
    let mut found = Vec::new();
    for piece in pieces {
        lines.buffer.extend_from_slice(piece);
        found.extend(std::iter::from_fn(|| lines.next()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_stream_is_cut() {
        let stream =
            b": keep-alive\n\nid: 1\nevent: stdout\ndata: {\"a\":1}\n\nid: 2\nevent: x\r\ndata: {\"b\":2}\r\n\r\n";
        for cut in 0..stream.len() {
            let found = event_lines([&stream[..cut], &stream[cut..]]);
            assert_eq!(found, ["{\"a\":1}", "{\"b\":2}"], "cut at {cut}");
        }
    }
}
