//! Everything that can happen to a session, in an order that chance chooses, for a long time; then what is left over.
//!
//! Each client has one session at a time and knows what its variable must be: after whatever happens, the next look must find it, or find it gone where
//! the interpreter was replaced.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use fastrand::Rng;
use futures::future::join_all;
use hyper::Method;
use serde_json::{Value, json};

use super::Bench;
use super::churn::{Left, left_in_the_middle, nothing_is_left};
use super::http::{Address, Connection, brief};
use super::report::{Section, Series};
use super::server::Settings;
use super::stats::Run;
use super::throughput::quiet;

/// Sandboxes ready before and after, so that what belongs to them is the same.
const READY: u64 = 4;
/// A session that is given up is closed for being idle after this.
const IDLE_S: u64 = 1;
/// Asked to end, an execution ends by then.
const ENDS_BY: Duration = Duration::from_secs(30);

/// Something to do with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Set,
    Look,
    Shell,
    Upload,
    TimedOut,
    Interrupted,
    Cancelled,
    KilledInside,
    Paused,
    Resumed,
    Reset,
    ClientGone,
    SocketGone,
    Closed,
    GivenUp,
}

impl Act {
    /// Out of a hundred.
    const SHARES: [(Self, u32); 15] = [
        (Self::Set, 20),
        (Self::Look, 20),
        (Self::Shell, 8),
        (Self::Upload, 8),
        (Self::TimedOut, 4),
        (Self::Interrupted, 5),
        (Self::Cancelled, 4),
        (Self::KilledInside, 4),
        (Self::Paused, 6),
        (Self::Resumed, 4),
        (Self::Reset, 4),
        (Self::ClientGone, 4),
        (Self::SocketGone, 3),
        (Self::Closed, 4),
        (Self::GivenUp, 2),
    ];

    fn choose(rng: &mut Rng) -> Self {
        let mut left = rng.u32(..100);
        for (act, share) in Self::SHARES {
            match left.checked_sub(share) {
                None => return act,
                Some(rest) => left = rest,
            }
        }
        Self::Look
    }
}

pub(super) async fn session_churn(bench: &mut Bench) -> anyhow::Result<Section> {
    let duration = bench.duration(3600.0, 5.0);
    let address = bench.server(Settings { pool: Some(READY), ..Settings::default() })?;
    let clients = bench.args.clients.unwrap_or(6);
    let what = format!("{clients} clients, everything that can be done with a session, {} s", duration.as_secs());
    let mut section = Section::new("session-churn", format!("{what}; then what is left over"));
    // What is made once and kept is made now.
    load(&address, clients, Duration::from_secs(2), &mut bench.rng).await?;
    quiet(&address).await?;
    let before = Left::of(bench);
    let (run, acts) = load(&address, clients, duration, &mut bench.rng).await?;
    let mut series = Series::new("whatever was done", "ms");
    series.add(&run, None);
    section.figure(&series);
    let acts: Vec<String> = acts.iter().map(|(act, count)| format!("{act:?} {count}")).collect();
    section.note(format!("done: {}", acts.join(", ")));
    quiet(&address).await?;
    nothing_is_left(bench, &mut section, &before).await;
    Ok(section)
}

/// All clients until the time is over; how long each thing took and how many of each there were.
async fn load(
    address: &Address,
    clients: u64,
    duration: Duration,
    rng: &mut Rng,
) -> anyhow::Result<(Run, BTreeMap<Act, u64>)> {
    let run = RefCell::new(Run::default());
    let acts = RefCell::new(BTreeMap::new());
    let begun = Instant::now();
    let client = async |mut rng: Rng| {
        let mut user = User::new(address).await?;
        while begun.elapsed() < duration {
            let act = Act::choose(&mut rng);
            let since = Instant::now();
            let done = user.act(act, &mut rng).await;
            *acts.borrow_mut().entry(act).or_default() += 1;
            match done {
                Ok(()) => run.borrow_mut().values.push(since.elapsed().as_secs_f64() * 1e3),
                Err(error) => run.borrow_mut().complain(format!("{act:?} in {}: {error:#}", user.path)),
            }
        }
        user.close().await
    };
    let done = join_all((0..clients).map(|_| client(rng.fork()))).await;
    done.into_iter().collect::<anyhow::Result<()>>()?;
    let mut run = run.into_inner();
    run.seconds = begun.elapsed().as_secs_f64();
    Ok((run, acts.into_inner()))
}

/// A client with its session.
struct User<'a> {
    address: &'a Address,
    connection: Connection,
    path: String,
    /// What the session's variable must be; `None` when there is none.
    value: Option<u64>,
}

impl<'a> User<'a> {
    async fn new(address: &'a Address) -> anyhow::Result<Self> {
        let connection = address.connect().await?;
        let mut user = Self { address, connection, path: String::new(), value: None };
        user.open().await?;
        Ok(user)
    }

    async fn open(&mut self) -> anyhow::Result<()> {
        let body = json!({"idle_timeout_s": 60, "limits": {"memory_mb": 256}}).to_string();
        let session: Value = serde_json::from_slice(&self.connection.post("/v1/sessions", body.into()).await?)?;
        self.path = format!("/v1/sessions/{}", session["id"].as_str().context("a session without an id")?);
        self.value = None;
        Ok(())
    }

    async fn close(&mut self) -> anyhow::Result<()> {
        let answer = self.connection.send(Method::DELETE, &self.path, "application/json", Bytes::new()).await?;
        ensure!(answer.status().is_success(), "closing it answered {}", answer.status());
        Ok(())
    }

    async fn act(&mut self, act: Act, rng: &mut Rng) -> anyhow::Result<()> {
        let number = rng.u64(..1_000_000_000);
        match act {
            Act::Set => {
                let done = self.run(json!({"code": format!("x = {number}\nx")})).await?;
                ends(&done, "exited", &json!(number))?;
                self.value = Some(number);
            }
            Act::Look => self.look().await?,
            Act::Shell => {
                let code = format!("sleep 1000 & echo {number} > shell; cat shell");
                let done = self.run(json!({"code": code, "language": "bash"})).await?;
                ends(&done, "exited", &Value::Null)?;
                ensure!(done["stdout"] == format!("{number}\n"), "the shell printed {}", done["stdout"]);
                // Or the limit on processes would be met in the end, which is right but says nothing.
                let done = self.run(json!({"code": "pkill sleep; true", "language": "bash"})).await?;
                ends(&done, "exited", &Value::Null)?;
            }
            Act::Upload => {
                let content = number.to_string();
                let file = format!("{}/files/uploads/{}", self.path, number % 5);
                let answer =
                    self.connection.send(Method::PUT, &file, "application/json", content.clone().into()).await?;
                ensure!(answer.status().is_success(), "the upload answered {}", answer.status());
                let code = format!("open('uploads/{}').read()", number % 5);
                ends(&self.run(json!({"code": code})).await?, "exited", &json!(content))?;
                let archive = format!("{}/files:archive", self.path);
                let archive = self.connection.post(&archive, r#"{"path": "uploads"}"#.into()).await?;
                ensure!(archive.starts_with(&[0x1f, 0x8b]), "no archive: {}", brief(&archive));
            }
            Act::TimedOut => {
                let done = self.run(json!({"code": "while True: pass", "timeout_ms": 50})).await?;
                ends(&done, "timed_out", &Value::Null)?;
                self.forget_if_restarted(&done);
                self.look().await?;
            }
            Act::Interrupted | Act::Cancelled => {
                let outcome = if act == Act::Interrupted { "exception" } else { "cancelled" };
                let execution = self.begin("import time\ntime.sleep(30)").await?;
                tokio::time::sleep(Duration::from_millis(rng.u64(..30))).await;
                let end = match act {
                    Act::Interrupted => format!("{}/interrupt", self.path),
                    _ => format!("{execution}/cancel"),
                };
                let done = self.until_ended(&execution, &end).await?;
                ends(&done, outcome, &Value::Null)?;
                self.forget_if_restarted(&done);
                self.look().await?;
            }
            Act::KilledInside => {
                let done = self.run(json!({"code": "import os\nos.kill(os.getpid(), 9)"})).await?;
                ends(&done, "signaled", &Value::Null)?;
                ensure!(done["interpreter_restarted"] == true, "it does not say that its interpreter is another one");
                self.value = None;
                self.look().await?;
            }
            Act::Paused => {
                self.connection.post(&format!("{}/pause", self.path), Bytes::new()).await?;
            }
            Act::Resumed => {
                self.connection.post(&format!("{}/resume", self.path), Bytes::new()).await?;
            }
            Act::Reset => {
                self.connection.post(&format!("{}/reset", self.path), Bytes::new()).await?;
                self.value = None;
                self.look().await?;
            }
            Act::ClientGone => {
                let body = json!({"code": format!("import time\nx = {number}\ntime.sleep(0.1)")}).to_string();
                let path = format!("{}/executions", self.path);
                // Not before it has begun: a request that breaks off on its way may have been taken or not.
                left_in_the_middle(&mut self.connection, &path, body.into(), "started").await?;
                // The connection goes with the answer that was not read, the execution stays.
                self.connection = self.address.connect().await?;
                self.value = Some(number);
                self.look().await?;
            }
            Act::SocketGone => {
                let (request, stream) = self.address.websocket(&format!("{}/ws", self.path)).await?;
                drop(tokio_tungstenite::client_async(request, stream).await?);
            }
            Act::Closed => {
                self.close().await?;
                self.open().await?;
            }
            Act::GivenUp => {
                let body = json!({"idle_timeout_s": IDLE_S}).to_string();
                self.connection.post("/v1/sessions", body.into()).await?;
            }
        }
        Ok(())
    }

    /// Whether the variable is what it must be.
    async fn look(&mut self) -> anyhow::Result<()> {
        let done = self.run(json!({"code": "globals().get('x')"})).await?;
        ends(&done, "exited", &json!(self.value))
    }

    fn forget_if_restarted(&mut self, execution: &Value) {
        // A machine that is busy enough may leave no time to heed an interrupt.
        if execution["interpreter_restarted"] == true {
            self.value = None;
        }
    }

    async fn run(&mut self, body: Value) -> anyhow::Result<Value> {
        let path = format!("{}/executions", self.path);
        Ok(serde_json::from_slice(&self.connection.post(&path, body.to_string().into()).await?)?)
    }

    /// Begins an execution; its path.
    async fn begin(&mut self, code: &str) -> anyhow::Result<String> {
        let begun = self.run(json!({"code": code, "mode": "async"})).await?;
        Ok(format!("/v1/executions/{}", begun["id"].as_str().context("an execution without an id")?))
    }

    /// Asks for the end of an execution until it has ended: before it has begun there is nothing to interrupt.
    async fn until_ended(&mut self, execution: &str, end: &str) -> anyhow::Result<Value> {
        let deadline = Instant::now() + ENDS_BY;
        loop {
            self.connection.post(end, Bytes::new()).await?;
            let now: Value = serde_json::from_slice(&self.connection.get(execution).await?)?;
            if now["finished_at"].is_string() {
                return Ok(now);
            }
            ensure!(Instant::now() < deadline, "it did not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn ends(execution: &Value, outcome: &str, result: &Value) -> anyhow::Result<()> {
    let right = execution["outcome"] == outcome && execution["result"] == *result;
    ensure!(right, "expected {outcome} and {result}, got {}", brief(execution.to_string().as_bytes()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_be_done_is() {
        assert_eq!(Act::SHARES.iter().map(|(_, share)| share).sum::<u32>(), 100);
        let mut rng = Rng::with_seed(1);
        let chosen: std::collections::BTreeSet<_> = (0..2000).map(|_| Act::choose(&mut rng)).collect();
        assert_eq!(chosen.len(), Act::SHARES.len());
    }
}
