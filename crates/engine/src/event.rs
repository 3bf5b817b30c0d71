//! The events of one execution: numbered, kept for replay, followed live.

use std::sync::Arc;

use futures::Stream;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::execution::{Execution, Notice, Output};
use crate::ids::ExecutionId;

/// One event. As JSON: `{"seq": 3, "type": "stdout", "data": {"text": "…"}}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 1 without gaps.
    pub seq: u64,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
}

/// What happened. The last event of an execution is always `result`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum EventBody {
    /// The user's code is about to run; always the first event unless the execution never got that far.
    Started {
        /// The execution.
        id: ExecutionId,
        /// RFC 3339 UTC.
        at: String,
    },
    /// Text on standard output.
    Stdout {
        /// Text; bytes that are not UTF-8 are replaced by U+FFFD.
        text: String,
    },
    /// Text on standard error.
    Stderr {
        /// Text; bytes that are not UTF-8 are replaced by U+FFFD.
        text: String,
    },
    /// Something shown besides text.
    Display(Output),
    /// Something to know.
    Warning(Notice),
    /// The end, with the whole execution.
    Result(Arc<Execution>),
}

impl EventBody {
    /// Bytes that it holds besides what the execution holds already: the texts of displays are shared with it.
    fn size(&self) -> usize {
        match self {
            Self::Stdout { text } | Self::Stderr { text } => text.capacity(),
            Self::Display(output) => output.mime.size_of_clone() + output.metadata.size_of_clone(),
            Self::Warning(notice) => notice.size(),
            Self::Started { .. } | Self::Result(_) => 0,
        }
    }
}

/// What keeping an event costs besides its content, in bytes: the event, its place in the log, and what an allocator adds.
const EVENT_COST: usize = 256;

/// The events of one execution. Cheap to clone; all clones are the same log.
#[derive(Debug, Clone)]
pub struct EventLog {
    events: Arc<Mutex<Vec<Arc<Event>>>>,
    /// Number of events; `u64::MAX` is never reached, closing is seen by the `Result` event.
    count: Arc<watch::Sender<u64>>,
}

impl Default for EventLog {
    fn default() -> Self {
        Self { events: Arc::default(), count: Arc::new(watch::Sender::new(0)) }
    }
}

impl EventLog {
    /// Appends an event and wakes those who follow. Nothing may follow a `Result`.
    pub fn push(&self, body: EventBody) {
        let mut events = self.events.lock();
        debug_assert!(
            !matches!(events.last().map(|e| &e.body), Some(EventBody::Result(_))),
            "an event after the result"
        );
        let seq = events.len() as u64 + 1;
        events.push(Arc::new(Event { seq, body }));
        // Inside the lock: the number told never runs behind a longer log told by another writer.
        self.count.send_replace(seq);
    }

    /// The final execution, once there is one.
    #[must_use]
    pub fn result(&self) -> Option<Arc<Execution>> {
        match self.events.lock().last().map(|event| event.body.clone()) {
            Some(EventBody::Result(execution)) => Some(execution),
            _ => None,
        }
    }

    /// All events with a number greater than `after`, those to come included; ends after `Result`.
    pub fn follow(&self, after: u64) -> impl Stream<Item = Arc<Event>> + Send + 'static + use<> {
        let events = Arc::clone(&self.events);
        let count = self.count.subscribe();
        futures::stream::unfold((events, count, Some(after)), |(events, mut count, position)| async move {
            let position = position?;
            loop {
                // Seen before looking: whatever is pushed after this wakes the wait below.
                count.borrow_and_update();
                let next = events.lock().get(usize::try_from(position).unwrap_or(usize::MAX)).cloned();
                if let Some(event) = next {
                    let following = (!matches!(event.body, EventBody::Result(_))).then_some(event.seq);
                    return Some((event, (events, count, following)));
                }
                // A position beyond the end of a finished log would wait for ever.
                let ended = matches!(events.lock().last().map(|e| &e.body), Some(EventBody::Result(_)));
                if ended {
                    return None;
                }
                count.changed().await.ok()?;
            }
        })
    }

    /// Number of the last event so far.
    #[must_use]
    pub fn last(&self) -> u64 {
        *self.count.borrow()
    }

    /// Bytes that keeping these events costs.
    pub(crate) fn size(&self) -> usize {
        self.events.lock().iter().map(|event| EVENT_COST + event.body.size()).sum()
    }

    /// Waits for the end.
    pub async fn finished(&self) -> Arc<Execution> {
        let mut count = self.count.subscribe();
        loop {
            count.borrow_and_update();
            if let Some(execution) = self.result() {
                return execution;
            }
            count.changed().await.expect("this log holds the sender");
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    fn text(text: &str) -> EventBody {
        EventBody::Stdout { text: text.to_owned() }
    }

    #[tokio::test]
    async fn a_follower_gets_the_past_then_the_future_without_gaps() {
        let log = EventLog::default();
        log.push(text("a"));
        log.push(text("b"));
        let mut late = Box::pin(log.follow(1));
        assert_eq!(late.next().await.unwrap().seq, 2);
        let writer = log.clone();
        tokio::spawn(async move { writer.push(text("c")) });
        assert_eq!(late.next().await.unwrap().seq, 3);
    }

    #[test]
    fn every_event_costs_something_however_little_it_says() {
        let log = EventLog::default();
        for _ in 0..1000 {
            log.push(text("x"));
        }
        assert!(log.size() >= 256_000, "{}", log.size());
    }

    #[test]
    fn an_event_reads_as_it_was_written() {
        let event = Event { seq: 2, body: text("x") };
        let line = serde_json::to_string(&event).unwrap();
        let back: Event = serde_json::from_str(&line).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), line);
    }

    #[test]
    fn an_event_is_flat_json_with_its_number_type_and_data() {
        let event = Event { seq: 2, body: text("x") };
        assert_eq!(serde_json::to_string(&event).unwrap(), r#"{"seq":2,"type":"stdout","data":{"text":"x"}}"#);
    }
}
