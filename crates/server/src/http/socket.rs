//! `/v1/sessions/{id}/ws`: everything about a session over one WebSocket.
//!
//! Two halves share a connection. One reads what the client asks and does it at once; the other writes, at the client's pace, so that one that does
//! not read its events can still interrupt what makes them. Events come from the log of each execution, which holds them anyway: a slow client costs
//! nothing more, and one that comes again asks for the rest by number.

use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use fumehood_engine::event::{Event, EventLog};
use fumehood_engine::ids::ExecutionId;
use fumehood_engine::session::{Session, SessionInfo};
use fumehood_engine::spec::{ExecutionRequest, FieldError};
use futures::stream::{BoxStream, SelectAll, SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::Shared;
use super::auth::Principal;
use super::body;
use super::error::{ApiError, ErrorBody, ErrorDetail};
use super::executions::StdinPiece;
use super::idempotency::KeyParam;
use super::params::{SessionParam, unknown_execution};
use crate::jobs::JobOptions;
use crate::openapi::Refusals;

/// A ping goes out so often; a peer that is gone is noticed by its silence.
const PING: Duration = Duration::from_secs(20);
/// A peer that says nothing for so long, not even that it got a ping, is gone.
const SILENCE: Duration = Duration::from_secs(65);
/// A message that a peer does not take within this is not waited for any longer.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);
/// Answers that may wait to be written before no more is read.
const ANSWERS_AHEAD: usize = 64;
/// Executions followed at a time; what asks for more waits.
const MOST_FOLLOWED: usize = 256;

/// What a message of the client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AskKind {
    /// Run `execution`; its events follow.
    Execute,
    /// Give `data` to the standard input of `execution_id`, and its end if `eof`.
    Stdin,
    /// Interrupt what runs, as Ctrl-C would.
    Interrupt,
    /// End `execution_id`.
    Cancel,
    /// Send the events of `execution_id` after number `after`, those to come included.
    Follow,
    /// Answer `pong`.
    Ping,
}

/// A message of the client.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ask {
    #[serde(rename = "type")]
    kind: AskKind,
    /// Comes back in the answer to this message.
    #[serde(rename = "ref", default)]
    reference: Option<String>,
    /// For `execute`: as the body of `POST /v1/sessions/{id}/executions`.
    #[serde(default)]
    execution: Option<Box<ExecutionRequest>>,
    /// For `execute`: `false` to be refused when another execution runs or waits.
    #[serde(default)]
    wait: Option<bool>,
    /// For `execute`: the same message sent again, also over another connection, runs once.
    #[serde(default)]
    idempotency_key: Option<String>,
    /// For `stdin`, `cancel` and `follow`.
    #[serde(default)]
    execution_id: Option<String>,
    /// For `stdin`.
    #[serde(default)]
    data: Option<String>,
    /// For `stdin`: bytes, in base64.
    #[serde(default)]
    data_base64: Option<String>,
    /// For `stdin`.
    #[serde(default)]
    eof: Option<bool>,
    /// For `follow`; 0 by default.
    #[serde(default)]
    after: Option<u64>,
}

impl Ask {
    /// A field that means nothing in a message of this kind is a misunderstanding.
    fn check(&self) -> Result<(), ApiError> {
        use AskKind::{Cancel, Execute, Follow, Stdin};
        let of = |kinds: &[AskKind]| kinds.contains(&self.kind);
        let given = [
            ("execution", self.execution.is_some(), of(&[Execute])),
            ("wait", self.wait.is_some(), of(&[Execute])),
            ("idempotency_key", self.idempotency_key.is_some(), of(&[Execute])),
            ("execution_id", self.execution_id.is_some(), of(&[Stdin, Cancel, Follow])),
            ("data", self.data.is_some(), of(&[Stdin])),
            ("data_base64", self.data_base64.is_some(), of(&[Stdin])),
            ("eof", self.eof.is_some(), of(&[Stdin])),
            ("after", self.after.is_some(), of(&[Follow])),
        ];
        match given.into_iter().find(|(_, given, fits)| *given && !fits) {
            Some((field, ..)) => Err(ApiError::invalid(field, "is not for messages of this type")),
            None => Ok(()),
        }
    }
}

/// What is wrong with a message, without doing anything.
pub(crate) fn wrong_ask(text: &[u8]) -> Result<(), FieldError> {
    let ask: Ask = body::parse(text)?;
    ask.check().map_err(|_| FieldError::new("type", "does not go with the other fields"))
}

/// A message of the server.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Told {
    /// The session: the first message, and the last one when it ends.
    Session {
        /// As `GET /v1/sessions/{id}` shows it.
        session: Box<SessionInfo>,
    },
    /// An execution runs, or waits for those before it.
    Accepted {
        /// Of the message that asked.
        #[serde(rename = "ref")]
        reference: Option<String>,
        /// Its id.
        #[schema(value_type = String)]
        execution_id: ExecutionId,
    },
    /// An event of an execution; `result` is its last.
    Event {
        /// The execution.
        #[schema(value_type = String)]
        execution_id: ExecutionId,
        /// The event.
        #[schema(value_type = crate::openapi::EventObject)]
        event: Arc<Event>,
    },
    /// What was asked for is done.
    Done {
        /// Of the message that asked.
        #[serde(rename = "ref")]
        reference: Option<String>,
    },
    /// Answer to `ping`.
    Pong {
        /// Of the message that asked.
        #[serde(rename = "ref")]
        reference: Option<String>,
    },
    /// A message was refused; the connection goes on.
    Error {
        /// Of the message that asked, where it could be read.
        #[serde(rename = "ref")]
        reference: Option<String>,
        /// Why.
        error: ErrorDetail,
    },
}

/// Opens a WebSocket to a session.
///
/// Messages are JSON objects in text frames: `Ask` from the client, `Told` from the server. A connection that breaks off ends nothing; `follow` sends
/// what was missed.
#[utoipa::path(get, path = "/v1/sessions/{id}/ws", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 101, description = "The WebSocket; messages of the server are `Told`, those of the client `Ask`", body = Told),
        (status = 410, description = "The session has ended", body = ErrorBody),
        (status = 426, description = "The request does not ask for a WebSocket (`upgrade_required`)", body = ErrorBody), Refusals))]
pub(crate) async fn open(
    State(state): State<Shared>,
    SessionParam(session): SessionParam,
    principal: Principal,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|error| ApiError::no_websocket(&error.body_text()))?;
    if let Some(over) = session.over() {
        return Err(over.into());
    }
    let most = state.config.max_body_bytes;
    let upgrade = upgrade.max_message_size(most).max_frame_size(most);
    Ok(upgrade.on_upgrade(move |socket| serve(socket, Talk { state, session, principal })))
}

/// One connection, from the client's side.
struct Talk {
    state: Shared,
    session: Arc<Session>,
    principal: Principal,
}

/// Something for the half that writes.
enum Out {
    Say(Told),
    Follow(ExecutionId, EventLog, u64),
}

async fn serve(socket: WebSocket, talk: Talk) {
    let (sink, stream) = socket.split();
    let (outgoing, answers) = mpsc::channel(ANSWERS_AHEAD);
    let session = Arc::clone(&talk.session);
    // Whichever ends first: the client has gone, or nothing is left to be told.
    tokio::select! {
        () = talk.listen(stream, outgoing) => {}
        () = speak(sink, answers, session) => {}
    }
}

impl Talk {
    /// Reads until the client is gone.
    async fn listen(self, mut stream: SplitStream<WebSocket>, outgoing: mpsc::Sender<Out>) {
        loop {
            let message = match tokio::time::timeout(SILENCE, stream.next()).await {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => {
                    tracing::debug!(%error, "a websocket broke off");
                    return;
                }
                Ok(None) | Err(_) => return,
            };
            let answers = match message {
                Message::Text(text) => self.take(text.as_bytes()).await,
                Message::Binary(bytes) => self.take(&bytes).await,
                Message::Close(_) => return,
                Message::Ping(_) | Message::Pong(_) => continue,
            };
            for answer in answers {
                if outgoing.send(answer).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn take(&self, text: &[u8]) -> Vec<Out> {
        let refused = |reference, error: ApiError| {
            vec![Out::Say(Told::Error { reference, error: error.into_detail(&self.principal.request_id) })]
        };
        let ask: Ask = match body::parse(text) {
            Ok(ask) => ask,
            Err(error) => return refused(reference_of(text), error.into()),
        };
        let reference = ask.reference.clone();
        let done = match ask.check() {
            Ok(()) => self.act(ask, text).await,
            Err(error) => Err(error),
        };
        done.unwrap_or_else(|error| refused(reference, error))
    }

    async fn act(&self, ask: Ask, text: &[u8]) -> Result<Vec<Out>, ApiError> {
        let Ask { kind, reference, .. } = ask;
        let engine = &self.state.engine;
        Ok(match kind {
            AskKind::Ping => vec![Out::Say(Told::Pong { reference })],
            AskKind::Execute => {
                let request = *ask.execution.ok_or_else(|| ApiError::invalid("execution", "is required"))?;
                JobOptions::within_session(&request).map_err(|error| ApiError::from(error.below("execution")))?;
                let spec = request.validate_within(&self.session.spec, &self.state.config.limits);
                let spec = spec.map_err(|error| ApiError::from(error.below("execution")))?;
                let key = match &ask.idempotency_key {
                    Some(key) => KeyParam::of(&self.principal, self.session.id.as_str(), key.as_bytes())?,
                    None => KeyParam::none(),
                };
                let attempt = key.with_body(ask.idempotency_key.is_some().then(|| Sha256::digest(text).into()));
                let accepted = self
                    .state
                    .submit_to(&self.principal, &self.session, spec, ask.wait.unwrap_or(true), attempt, None)
                    .await?;
                let id = accepted.id.clone();
                let events = match accepted.events {
                    Some(events) => events,
                    None => self.state.jobs.events(&id, None).await?.ok_or_else(unknown_execution)?,
                };
                vec![Out::Say(Told::Accepted { reference, execution_id: id.clone() }), Out::Follow(id, events, 0)]
            }
            AskKind::Stdin => {
                let id = self.own(ask.execution_id)?;
                let piece = StdinPiece::new(ask.data.unwrap_or_default(), ask.data_base64, ask.eof.unwrap_or(false));
                let (bytes, last) = piece.validate()?;
                engine.give_input(&id, bytes, last).ok_or_else(unknown_execution)??;
                vec![Out::Say(Told::Done { reference })]
            }
            AskKind::Interrupt => {
                self.session.interrupt()?;
                vec![Out::Say(Told::Done { reference })]
            }
            AskKind::Cancel => {
                let id = self.own(ask.execution_id)?;
                engine.cancel(&id).ok_or_else(unknown_execution)?;
                vec![Out::Say(Told::Done { reference })]
            }
            AskKind::Follow => {
                let id = self.own(ask.execution_id)?;
                let log = engine.events(&id).ok_or_else(unknown_execution)?;
                vec![Out::Say(Told::Done { reference }), Out::Follow(id, log, ask.after.unwrap_or(0))]
            }
        })
    }

    /// An execution of this session; those of others are none.
    fn own(&self, id: Option<String>) -> Result<ExecutionId, ApiError> {
        let text = id.ok_or_else(|| ApiError::invalid("execution_id", "is required"))?;
        ExecutionId::parse(&text)
            .filter(|id| self.state.engine.session_of(id).as_ref() == Some(&self.session.id))
            .ok_or_else(unknown_execution)
    }
}

/// The `ref` of a message that is wrong otherwise.
fn reference_of(text: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Referring {
        r#ref: Option<String>,
    }
    serde_json::from_slice::<Referring>(text).ok()?.r#ref
}

/// Writes until the session is over and all is told, or the client does not take it.
async fn speak(mut sink: SplitSink<WebSocket, Message>, mut answers: mpsc::Receiver<Out>, session: Arc<Session>) {
    let mut followed: SelectAll<BoxStream<'static, (ExecutionId, Arc<Event>)>> = SelectAll::new();
    let mut pings = tokio::time::interval(PING);
    pings.reset();
    let mut over = false;
    let mut told = Some(Told::Session { session: Box::new(session.info()) });
    loop {
        if let Some(told) = told.take()
            && !send(&mut sink, text_of(&told)).await
        {
            return;
        }
        // Nothing more can come of a session that is over, but for what its executions still have to tell.
        if over && followed.is_empty() && answers.is_empty() {
            send(&mut sink, text_of(&Told::Session { session: Box::new(session.info()) })).await;
            let reason = "the session has ended".into();
            send(&mut sink, Message::Close(Some(CloseFrame { code: close_code::NORMAL, reason }))).await;
            return;
        }
        tokio::select! {
            // An answer before the events that follow it.
            biased;
            answer = answers.recv(), if followed.len() < MOST_FOLLOWED => match answer {
                Some(Out::Say(answer)) => told = Some(answer),
                Some(Out::Follow(id, log, after)) => {
                    followed.push(log.follow(after).map(move |event| (id.clone(), event)).boxed());
                }
                None => return,
            },
            Some((execution_id, event)) = followed.next() => told = Some(Told::Event { execution_id, event }),
            _ = pings.tick() => {
                if !send(&mut sink, Message::Ping(bytes::Bytes::new())).await {
                    return;
                }
            }
            () = session.ended(), if !over => over = true,
        }
    }
}

fn text_of(told: &Told) -> Message {
    let text = serde_json::to_string(told).expect("messages hold text, numbers and JSON values only");
    Message::Text(text.into())
}

/// Whether the client took it.
async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> bool {
    matches!(tokio::time::timeout(WRITE_PATIENCE, sink.send(message)).await, Ok(Ok(())))
}
