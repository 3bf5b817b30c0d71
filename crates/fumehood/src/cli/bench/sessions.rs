//! What a session costs: one line in it, a fresh interpreter for it, and its memory while nobody asks anything of it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{SinkExt, StreamExt};
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::Bench;
use super::density::{at_rest, weigh};
use super::http::{Address, Connection, brief};
use super::plain::Interpreter;
use super::process::sandboxes;
use super::report::{Bound, Section, Series, ratios};
use super::stats::Run;

/// The one line.
const LINE: &str = "1 + 1";
/// The same within an interpreter that does nothing else, many times over, bare and as a cell of IPython: prints milliseconds of each.
const IN_PROCESS: &str = "import contextlib, io, time
from IPython.core.interactiveshell import InteractiveShell
shell, names = InteractiveShell.instance(), {}
def each(times, run):
    for _ in range(100): run()
    begun = time.perf_counter()
    for _ in range(times): run()
    return (time.perf_counter() - begun) / times * 1000
bare = each(5000, lambda: exec(compile('1 + 1', '<code>', 'exec'), names))
with contextlib.redirect_stdout(io.StringIO()):
    cell = each(1000, lambda: shell.run_cell('1 + 1', store_history=False))
print(bare, cell)";
/// What sessions that are weighed have done: loaded pandas, and worked with it.
const LOADED: &str = "import pandas\n1 + 1";
const WORKED: &str = "pandas.DataFrame({'a': [1, 2, 3]}).describe().shape";

/// For the sessions to come to rest.
const REST_BY: Duration = Duration::from_secs(60);

pub(super) async fn sessions(bench: &mut Bench) -> anyhow::Result<Section> {
    let (requests, open) =
        (bench.requests(500, 20), bench.args.clients.unwrap_or(if bench.args.quick { 4 } else { 100 }));
    let what = format!(
        "one line in a session over HTTP keep-alive ({} runs; {requests} requests); then {open} idle sessions",
        bench.runs()
    );
    let mut section = Section::new("sessions", what);
    latency(bench, &mut section, requests).await?;
    density(bench, &mut section, open).await?;
    Ok(section)
}

async fn latency(bench: &mut Bench, section: &mut Section, requests: u64) -> anyhow::Result<()> {
    let address = bench.rested_server().await?;
    let mut connection = address.connect().await?;
    let session = Opened::new(&mut connection).await?;
    let mut socket = session.socket(&address).await?;
    let mut echo = Series::new("websocket echo", "ms");
    let mut exec = Series::new("exec, in process", "ms");
    let mut cell = Series::new("a cell of IPython, in process", "ms");
    let mut over_http = Series::new("in a session", "ms");
    let mut over_socket = Series::new("in a session, over its websocket", "ms");
    let mut reset = Series::new("reset", "ms");
    let body = json!({"code": LINE}).to_string();
    let ask = json!({"type": "execute", "execution": {"code": LINE}}).to_string();
    for _ in 0..bench.runs() {
        let mut run = Run::default();
        for _ in 0..requests {
            let begun = Instant::now();
            socket.send(Message::text(r#"{"type": "ping"}"#)).await?;
            let heard = hear(&mut socket).await?;
            run.values.push(milliseconds(begun));
            if heard["type"] != "pong" {
                run.complain(format!("no pong: {heard}"));
            }
        }
        echo.add(&run, None);

        if let Ok(interpreter) = &bench.interpreter {
            let (bare, as_cell) = in_process(interpreter)?;
            exec.add(&Run { values: vec![bare], ..Run::default() }, None);
            cell.add(&Run { values: vec![as_cell], ..Run::default() }, None);
        }

        let mut run = Run::default();
        for _ in 0..requests {
            let begun = Instant::now();
            let answer = connection.post(&session.executions, body.clone().into()).await?;
            run.values.push(milliseconds(begun));
            let answer: Answer = serde_json::from_slice(&answer)?;
            if answer.result != 2 {
                run.complain(format!("1 + 1 is {}", answer.result));
            }
        }
        over_http.add(&run, None);

        let mut run = Run::default();
        for _ in 0..requests {
            let begun = Instant::now();
            socket.send(Message::text(ask.clone())).await?;
            let result = loop {
                let heard = hear(&mut socket).await?;
                if heard["event"]["type"] == "result" {
                    break heard["event"]["data"]["result"].clone();
                }
            };
            run.values.push(milliseconds(begun));
            if result != 2 {
                run.complain(format!("1 + 1 is {result}"));
            }
        }
        over_socket.add(&run, None);

        let mut run = Run::default();
        for _ in 0..requests.div_ceil(20) {
            let begun = Instant::now();
            connection.post(&format!("{}/reset", session.path), "{}".into()).await?;
            run.values.push(milliseconds(begun));
        }
        reset.add(&run, None);
    }
    let p50 = |series: &Series| series.each(|run| run.p50);
    let with = |run: &Series| p50(&echo).iter().zip(p50(run)).map(|(echo, run)| echo + run).collect::<Vec<f64>>();
    for series in [&echo, &exec, &cell, &over_http, &over_socket, &reset] {
        section.figure(series);
    }
    bench.note_baseline(section);
    let over = p50(&over_http);
    section.ratio(
        "in a session / (websocket echo + a cell of IPython)",
        ratios(&over, &with(&cell)),
        Some(Bound::AtMost(2.0)),
    );
    // What cannot be had: nothing crosses into another process there, and nothing is looked at, shown or told.
    section.ratio("in a session / (websocket echo + exec)", ratios(&over, &with(&exec)), None);
    section.ratio("reset p50, ms", p50(&reset), Some(Bound::Below(20.0)));
    session.close(&mut connection).await
}

/// Milliseconds that the line takes in an interpreter of its own, bare and as a cell.
fn in_process(interpreter: &Interpreter) -> anyhow::Result<(f64, f64)> {
    let output = interpreter.command().arg("-c").arg(IN_PROCESS).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(bare)), Some(Ok(cell))) => Ok((bare, cell)),
        _ => bail!("the plain interpreter failed: {}", brief(&output.stderr)),
    }
}

/// Opens sessions that have loaded much, and weighs them when they rest.
async fn density(bench: &mut Bench, section: &mut Section, wanted: u64) -> anyhow::Result<()> {
    if bench.args.server.is_some() {
        section.note("memory not measured: it needs a server of its own");
        return Ok(());
    }
    let address = bench.rested_server().await?;
    let pid = bench.server_pid().context("the server's process is not known")?;
    let mut connection = address.connect().await?;
    let mut open = Vec::new();
    for _ in 0..wanted {
        let session = Opened::new(&mut connection).await?;
        session.result(&mut connection, LOADED).await?;
        open.push(session);
    }
    rested(section, pid, &open, "an idle session with pandas", Some(Bound::AtMost(5.0))).await?;
    for session in &open {
        session.result(&mut connection, WORKED).await?;
    }
    rested(section, pid, &open, "one that has worked with it", None).await?;
    for session in open {
        if session.result(&mut connection, LINE).await? != 2 {
            section.complain("a session does not answer any more");
        }
        session.close(&mut connection).await?;
    }
    Ok(())
}

/// Weighs sessions once they use no processor time any more.
async fn rested(
    section: &mut Section,
    pid: u32,
    open: &[Opened],
    state: &str,
    bound: Option<Bound>,
) -> anyhow::Result<()> {
    let ours: Vec<String> = open.iter().map(|session| session.id.clone()).collect();
    // Those that wait ready for executions are sandboxes too.
    let (groups, others) = sandboxes(pid);
    let (sessions, ready): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| belongs(group, &ours));
    let others: Vec<u32> = others.into_iter().chain(ready.into_iter().flatten()).collect();
    at_rest(&sessions, REST_BY).await?;
    weigh(section, state, open.len() as u64, &sessions, &others, bound);
    Ok(())
}

/// Whether the processes are in the group of one of these sessions.
fn belongs(group: &[u32], sessions: &[String]) -> bool {
    let groups = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    group.first().is_some_and(|pid| {
        let groups = groups(pid);
        sessions.iter().any(|session| groups.contains(session.as_str()))
    })
}

#[derive(Deserialize)]
struct Answer {
    result: Value,
}

/// A session of ours.
struct Opened {
    id: String,
    path: String,
    executions: String,
}

impl Opened {
    async fn new(connection: &mut Connection) -> anyhow::Result<Self> {
        let session: Value = serde_json::from_slice(&connection.post("/v1/sessions", "{}".into()).await?)?;
        let id = session["id"].as_str().context("the session has no id")?.to_owned();
        let path = format!("/v1/sessions/{id}");
        Ok(Self { executions: format!("{path}/executions"), path, id })
    }

    async fn result(&self, connection: &mut Connection, code: &str) -> anyhow::Result<Value> {
        let answer = connection.post(&self.executions, json!({"code": code}).to_string().into()).await?;
        Ok(serde_json::from_slice::<Answer>(&answer)?.result)
    }

    async fn socket(&self, address: &Address) -> anyhow::Result<WebSocketStream<TcpStream>> {
        let (request, stream) = address.websocket(&format!("{}/ws", self.path)).await?;
        let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await?;
        hear(&mut socket).await?;
        Ok(socket)
    }

    async fn close(self, connection: &mut Connection) -> anyhow::Result<()> {
        connection.send(Method::DELETE, &self.path, "application/json", bytes::Bytes::new()).await?;
        Ok(())
    }
}

async fn hear(socket: &mut WebSocketStream<TcpStream>) -> anyhow::Result<Value> {
    loop {
        match socket.next().await.context("the websocket was closed")?? {
            Message::Text(text) => return Ok(serde_json::from_str(&text)?),
            Message::Close(_) => bail!("the websocket was closed"),
            _ => {}
        }
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
