//! One WebSocket for everything about a session, and standard input that comes while code runs.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

use crate::forks::forking;
use crate::server::{Server, brief, server, wait_for};
use crate::sessions::Session;

/// A client of the WebSocket.
struct Client(WebSocket<TcpStream>);

impl Client {
    fn connect(server: &Server, session: &Session<'_>) -> Self {
        let mut client = Self::join(server, session).unwrap();
        assert_eq!(client.hear()["session"]["id"], session.id);
        client
    }

    fn join(server: &Server, session: &Session<'_>) -> Result<Self, tungstenite::Error> {
        let address = server.url.strip_prefix("http://").unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let url = format!("ws://{address}{}", session.path("/ws"));
        match tungstenite::client::client_with_config(url, stream, Some(WebSocketConfig::default())) {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(tungstenite::HandshakeError::Failure(error)) => Err(error),
            Err(tungstenite::HandshakeError::Interrupted(_)) => panic!("the server did not answer"),
        }
    }

    fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).unwrap();
    }

    /// The next message; a string with the reason when the server closed the connection.
    fn hear(&mut self) -> Value {
        loop {
            match self.0.read().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Close(frame) => return json!(frame.unwrap().reason.as_str()),
                _ => {}
            }
        }
    }

    /// Reads until a message is the one wanted; those before it, and it.
    fn hear_until(&mut self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut heard = Vec::new();
        loop {
            heard.push(self.hear());
            if wanted(heard.last().unwrap()) {
                return heard;
            }
        }
    }

    /// Runs code; the messages up to its result.
    fn run(&mut self, code: &str) -> Vec<Value> {
        self.say(&json!({"type": "execute", "ref": code, "execution": {"code": code}}));
        self.hear_until(is_result)
    }
}

fn is_result(message: &Value) -> bool {
    message["type"] == "event" && message["event"]["type"] == "result"
}

fn result_of(messages: &[Value]) -> &Value {
    &messages.last().unwrap()["event"]["data"]
}

#[test]
fn several_executions_run_over_one_connection_and_their_events_come_in_order() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    let mut client = Client::connect(&server, &session);
    let first = client.run("x = 20\nprint('a'); display(1)\nx + 1");
    let kinds: Vec<_> = first.iter().map(|message| message["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[0], "accepted");
    assert!(kinds[1..].iter().all(|kind| *kind == "event"), "{kinds:?}");
    let events: Vec<_> = first[1..].iter().map(|message| message["event"]["seq"].as_u64().unwrap()).collect();
    assert_eq!(events, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(result_of(&first)["result"], 21);
    // Two at once: one order, each with all of its events.
    for number in ["1", "2"] {
        client.say(&json!({"type": "execute", "ref": number, "execution": {"code": format!("x += {number}\nx")}}));
    }
    let heard = client.hear_until(is_result);
    let rest = client.hear_until(is_result);
    assert_eq!((&result_of(&heard)["result"], &result_of(&rest)["result"]), (&json!(21), &json!(23)));
    client.say(&json!({"type": "ping", "ref": "p"}));
    assert_eq!(client.hear(), json!({"type": "pong", "ref": "p"}));
}

#[test]
fn an_interrupt_goes_past_an_execution_and_its_variables_stay() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    let mut client = Client::connect(&server, &session);
    client.run("x = 1");
    client.say(
        &json!({"type": "execute", "execution": {"code": "import time\nprint('begun', flush=True)\ntime.sleep(60)"}}),
    );
    client.hear_until(|message| message["event"]["type"] == "stdout");
    client.say(&json!({"type": "interrupt", "ref": "i"}));
    let heard = client.hear_until(is_result);
    assert!(heard.contains(&json!({"type": "done", "ref": "i"})), "{heard:?}");
    assert_eq!(result_of(&heard)["error"]["type"], "KeyboardInterrupt");
    assert_eq!(result_of(&client.run("x"))["result"], 1);
}

#[test]
fn a_connection_that_broke_off_ends_nothing_and_the_rest_is_replayed() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    let mut client = Client::connect(&server, &session);
    let ask = json!({"type": "execute", "idempotency_key": "k", "execution": {
        "code": "import time\nfor i in range(20): print(i, flush=True); time.sleep(0.02)\n'end'"}});
    client.say(&ask);
    let seen = client.hear_until(|message| message["event"]["type"] == "stdout");
    let id = seen[0]["execution_id"].clone();
    let last = seen.last().unwrap()["event"]["seq"].as_u64().unwrap();
    drop(client);
    let mut again = Client::connect(&server, &session);
    again.say(&json!({"type": "follow", "ref": "f", "execution_id": id, "after": last}));
    let rest = again.hear_until(is_result);
    assert_eq!(rest[0], json!({"type": "done", "ref": "f"}));
    let numbers: Vec<_> = rest[1..].iter().map(|message| message["event"]["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (last + 1..=last + numbers.len() as u64).collect::<Vec<_>>());
    let lines: String = (0..20).map(|line| format!("{line}\n")).collect();
    assert_eq!((&result_of(&rest)["stdout"], &result_of(&rest)["result"]), (&json!(lines), &json!("end")));
    // The same message again does not run again.
    again.say(&ask);
    let replayed = again.hear_until(is_result);
    assert_eq!(replayed[0]["execution_id"], id);
    let executions = server.get(&format!("/v1/executions?session_id={}", session.id)).1;
    assert_eq!(executions["executions"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_refused_says_why_and_the_connection_goes_on() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    let other = Session::open(&server, &json!({}));
    let foreign = other.run("1")["id"].clone();
    let mut client = Client::connect(&server, &session);
    for (message, code, field) in [
        (json!({"type": "execute", "ref": "r"}), "invalid_argument", json!("execution")),
        (
            json!({"type": "execute", "ref": "r", "execution": {"code": "1", "limits": {"memory_mb": 5}}}),
            "invalid_argument",
            json!("execution.limits.memory_mb"),
        ),
        (json!({"type": "execute", "ref": "r", "execution": {"cod": "1"}}), "invalid_argument", json!("execution.cod")),
        (json!({"type": "dance", "ref": "r"}), "invalid_argument", json!("type")),
        (json!({"type": "ping", "ref": "r", "after": 1}), "invalid_argument", json!("after")),
        (json!({"type": "follow", "ref": "r", "execution_id": foreign}), "not_found", Value::Null),
        (json!({"type": "stdin", "ref": "r", "execution_id": foreign, "data": "x"}), "not_found", Value::Null),
        (json!({"type": "cancel", "ref": "r", "execution_id": "exe_no"}), "not_found", Value::Null),
    ] {
        client.say(&message);
        let answer = client.hear();
        let error = &answer["error"];
        assert_eq!(
            (&answer["type"], &answer["ref"], &error["code"], &error["field"]),
            (&json!("error"), &json!("r"), &json!(code), &field),
            "{message}: {answer}"
        );
        assert!(error["request_id"].is_string() && error["message"].as_str().unwrap().len() > 10, "{answer}");
    }
    client.0.send(Message::text("{not json")).unwrap();
    assert_eq!(client.hear()["error"]["field"], "body");
    assert_eq!(result_of(&client.run("6 * 7"))["result"], 42);
    // A plain request is told what this route is.
    let (status, answer) = server.get(&session.path("/ws"));
    assert_eq!((status, &answer["error"]["code"]), (426, &json!("upgrade_required")));
}

#[test]
fn the_end_of_a_session_is_told_with_its_reason() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    let mut client = Client::connect(&server, &session);
    client.say(&json!({"type": "execute", "execution": {"code": "import time; time.sleep(60)"}}));
    client.hear_until(|message| message["event"]["type"] == "started");
    server.request("DELETE", &session.path(""), None);
    let heard = client.hear_until(Value::is_string);
    let [.., result, end, reason] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(result["event"]["data"]["outcome"], "cancelled", "{result}");
    assert_eq!((&end["session"]["state"], &end["session"]["reason"]), (&json!("closed"), &json!("deleted on request")));
    assert_eq!(reason, "the session has ended");
    let Err(tungstenite::Error::Http(answer)) = Client::join(&server, &session) else { panic!("it is over") };
    assert_eq!(answer.status(), 410);
}

#[test]
fn a_client_that_never_reads_blocks_nobody_and_can_fetch_everything_later() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    let mut deaf = Client::connect(&server, &session);
    deaf.say(&json!({"type": "execute", "execution": {"code": "for i in range(300): print('x' * 20_000)"}}));
    let mut other = Client::connect(&server, &session);
    let heard = other.run("print('through')\n1");
    assert_eq!(result_of(&heard)["result"], 1);
    // Itself it can still ask for things, though it has read nothing yet.
    deaf.say(&json!({"type": "ping", "ref": "p"}));
    let heard = deaf.hear_until(is_result);
    assert_eq!(result_of(&heard)["stdout"].as_str().unwrap().len(), 300 * 20_001);
}

#[test]
fn no_web_page_of_another_origin_reaches_a_session() {
    let Some(server) = forking(&[]) else { return };
    let session = Session::open(&server, &json!({}));
    let address = server.url.strip_prefix("http://").unwrap();
    let request = tungstenite::http::Request::builder()
        .uri(format!("ws://{address}{}", session.path("/ws")))
        .header("host", address)
        .header("origin", "http://evil.example")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", tungstenite::handshake::client::generate_key())
        .body(())
        .unwrap();
    let refused = tungstenite::client::client(request, TcpStream::connect(address).unwrap());
    let Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) = refused else {
        panic!("it was let in")
    };
    assert_eq!(answer.status(), 403);
}

/// Gives input to an execution that begins by telling its name, in a session or not.
fn answers_questions(server: &Server, path: &str) {
    let body = json!({"code": "name = input('name? ')\nprint('hello', name)\nimport sys\nsys.stdin.read()", "mode": "async",
        "stdin": "", "stdin_open": true});
    let (status, begun) = server.post(path, &body);
    assert_eq!(status, 202, "{begun}");
    let at = |rest: &str| format!("/v1/executions/{}{rest}", begun["id"].as_str().unwrap());
    let stdout = || server.get(&at("")).1["stdout"].as_str().unwrap().to_owned();
    wait_for(|| stdout().contains("name? ").then_some(()));
    assert_eq!(server.post(&at("/stdin"), &json!({"data": "Ann"})).0, 202);
    assert_eq!(server.post(&at("/stdin"), &json!({"data_base64": "YQpi"})).0, 202);
    wait_for(|| stdout().contains("hello Anna\n").then_some(()));
    let (status, wrong) = server.post(&at("/stdin"), &json!({"data_base64": "?"}));
    assert_eq!((status, &wrong["error"]["field"]), (400, &json!("data_base64")));
    assert_eq!(server.post(&at("/stdin"), &json!({"data": "c", "eof": true})).0, 202);
    let (status, closed) = server.post(&at("/stdin"), &json!({"data": "late"}));
    assert_eq!((status, &closed["error"]["code"]), (409, &json!("conflict")), "{closed}");
    let ended = wait_for(|| Some(server.get(&at("")).1).filter(|execution| execution["finished_at"].is_string()));
    assert_eq!((&ended["result"], &ended["status"]), (&json!("bc"), &json!("completed")), "{}", brief(&ended));
}

#[test]
fn standard_input_can_come_while_code_runs() {
    let server = server!(&[], &[]);
    answers_questions(&server, "/v1/executions");
    let session = Session::open(&server, &json!({}));
    answers_questions(&server, &session.path("/executions"));
    // The next execution has its own again.
    assert_eq!(session.run_with("input()", json!({"stdin": "mine\n"}))["result"], "mine");
    assert_eq!(session.run("input()")["error"]["type"], "EOFError");
    answers_questions(&server, &session.path("/executions"));
    // What nobody reads is bounded, and at its end nothing more is taken.
    let (_, begun) = server.post(
        &session.path("/executions"),
        &json!({"code": "import time; time.sleep(60)", "mode": "async", "stdin_open": true}),
    );
    let stdin = format!("/v1/executions/{}/stdin", begun["id"].as_str().unwrap());
    let piece = "x".repeat(1 << 19);
    let refused = wait_for(|| Some(server.post(&stdin, &json!({"data": piece}))).filter(|(status, _)| *status != 202));
    assert_eq!((refused.0, &refused.1["error"]["code"]), (429, &json!("too_many_requests")));
    session.post("/interrupt");
    wait_for(|| (session.info()["state"] == "idle").then_some(()));
    assert_eq!(server.post(&stdin, &json!({"data": "x"})).0, 409);
    assert_eq!(session.result("1"), 1);
}
