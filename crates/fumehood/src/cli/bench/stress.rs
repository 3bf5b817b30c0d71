//! Each stressor of stress-ng in a sandbox of its own, for a second, while the server and somebody else's session are timed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use super::Bench;
use super::churn::{Left, nothing_is_left};
use super::http::{Address, Connection, EXECUTIONS, brief};
use super::report::{Bound, Section, Series};
use super::server::Settings;
use super::stats::{Run, Summary};
use super::throughput::quiet;

/// Groups of stressors.
const CLASSES: [&str; 6] = ["cpu", "memory", "vm", "filesystem", "scheduler", "os"];
/// So many stressors of each group where only a little is wanted.
const QUICK: usize = 1;
/// Sandboxes ready before and after, so that what belongs to them is the same.
const READY: u64 = 2;
/// The server answers sooner, in milliseconds.
const HEALTHY_MS: f64 = 100.0;
/// A neighbour's line takes at most so many times what the slowest hundredth took at rest.
const NEIGHBOURLY: f64 = 5.0;
/// How often it is asked; and a neighbour too, who thinks between two lines.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Asked for so long before anything is stressed.
const AT_REST: Duration = Duration::from_secs(5);
/// A stressor that has a second to itself has ended by then.
const PATIENCE_MS: u64 = 20_000;
/// One that is ended for its time is answered within so much more.
const ENDED_WITHIN: Duration = Duration::from_secs(2);
const LATE: &str = "answered late";
/// Answers that are told with the stressor that ran meanwhile.
const MOST_TOLD: usize = 20;

pub(super) async fn stress(bench: &mut Bench) -> anyhow::Result<Section> {
    let address = bench.server(Settings { pool: Some(READY), frugal: true, ..Settings::default() })?;
    quiet(&address).await?;
    let mut section =
        Section::new("stress", "each stressor of stress-ng for a second; /health and a neighbour's 1+1 meanwhile");
    let mut connection = address.connect().await?;
    // Whoever asks for this by name and reads of no bound missed must not take it for measured.
    let stressors = stressors(&mut connection).await.context(
        "stress-ng cannot be run; an image of kind host shows what this machine has: apt-get install stress-ng",
    )?;
    let chosen: Vec<String> = match bench.args.quick {
        true => stressors.values().flat_map(|names| names.iter().take(QUICK).cloned()).collect(),
        false => stressors.into_values().flatten().collect(),
    };
    let before = Left::of(bench);

    let neighbour = Neighbour::open(&address).await?;
    let watch = Watch::default();
    let (idle_health, idle_lines) = watch.while_running(&address, &neighbour, tokio::time::sleep(AT_REST)).await?;
    let ends: RefCell<BTreeMap<String, Vec<String>>> = RefCell::default();
    let stressing = async {
        for name in &chosen {
            watch.now.replace(name.clone());
            let end = stressed(&mut connection, name).await.unwrap_or_else(|error| format!("no answer: {error:#}"));
            ends.borrow_mut().entry(end).or_default().push(name.clone());
        }
    };
    let (health, lines) = watch.while_running(&address, &neighbour, stressing).await?;
    neighbour.close(&address).await?;

    let [rest, busy] = [&idle_lines, &lines].map(Summary::of);
    for (name, run) in [
        ("/health, at rest", &idle_health),
        ("/health, stressed", &health),
        ("1+1 of a neighbour, at rest", &idle_lines),
        ("1+1 of a neighbour, stressed", &lines),
    ] {
        let mut series = Series::new(name, "ms");
        series.add(run, None);
        section.figure(&series);
    }
    section.ratio("slowest /health in ms", vec![Summary::of(&health).max], Some(Bound::Below(HEALTHY_MS)));
    section.ratio("neighbour's p99 / its p99 at rest", vec![busy.p99 / rest.p99], Some(Bound::Below(NEIGHBOURLY)));
    section.ratio("neighbour's slowest / its p99 at rest", vec![busy.max / rest.p99], None);
    section.note(format!("{} stressors of the classes {}", chosen.len(), CLASSES.join(", ")));
    for (end, names) in ends.into_inner() {
        section.note(format!("{end}: {}", names.join(" ")));
        // A sandbox that is refused, lost, or not ended in time is no matter of the stressor's.
        if ["infra", "lost", "no answer", LATE].iter().any(|wrong| end.starts_with(wrong)) {
            section.complain(format!("{end}: {}", names.join(" ")));
        }
    }
    let bounds = [("/health", HEALTHY_MS), ("1+1", rest.p99 * NEIGHBOURLY)];
    for told in watch.slowest(&bounds) {
        section.note(told);
    }
    quiet(&address).await?;
    nothing_is_left(bench, &mut section, &before).await;
    Ok(section)
}

/// The stressors of each class, those in several of them once.
async fn stressors(connection: &mut Connection) -> anyhow::Result<BTreeMap<&'static str, Vec<String>>> {
    let mut all = BTreeMap::new();
    let mut seen = std::collections::BTreeSet::new();
    for class in CLASSES {
        let argv = json!(["stress-ng", "--class", format!("{class}?")]);
        let done = run(connection, json!({"code": "", "language": "command", "argv": argv})).await?;
        let text =
            format!("{}{}", done["stdout"].as_str().unwrap_or_default(), done["stderr"].as_str().unwrap_or_default());
        let names = text.split_once("stressors:").with_context(|| match done["error"]["message"].as_str() {
            Some(message) => message.to_owned(),
            None => format!("stress-ng lists no class {class}"),
        })?;
        let names: Vec<String> =
            names.1.split_whitespace().map(str::to_owned).filter(|name| seen.insert(name.clone())).collect();
        all.insert(class, names);
    }
    Ok(all)
}

/// How a stressor's sandbox ended, in a word or two.
async fn stressed(connection: &mut Connection, name: &str) -> anyhow::Result<String> {
    let option = format!("--{name}");
    let argv = json!(["stress-ng", option, "1", "--timeout", "1s", "--temp-path", "/tmp"]);
    let begun = Instant::now();
    let done =
        run(connection, json!({"code": "", "language": "command", "argv": argv, "timeout_ms": PATIENCE_MS})).await?;
    if begun.elapsed() > Duration::from_millis(PATIENCE_MS) + ENDED_WITHIN {
        return Ok(format!("{LATE} by {} s", begun.elapsed().as_secs() - PATIENCE_MS / 1000));
    }
    let outcome = done["outcome"].as_str().unwrap_or("no outcome");
    Ok(match done["exit_code"].as_i64() {
        Some(code) => format!("{outcome} {code}"),
        None => outcome.to_owned(),
    })
}

async fn run(connection: &mut Connection, body: Value) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(&connection.post(EXECUTIONS, body.to_string().into()).await?)?)
}

/// Somebody else's session.
struct Neighbour {
    path: String,
}

impl Neighbour {
    async fn open(address: &Address) -> anyhow::Result<Self> {
        let mut connection = address.connect().await?;
        let session: Value =
            serde_json::from_slice(&connection.post("/v1/sessions", Bytes::from_static(b"{}")).await?)?;
        let path = format!("/v1/sessions/{}", session["id"].as_str().context("a session without an id")?);
        let neighbour = Self { path };
        // Whatever only the first line does.
        neighbour.line(&mut connection).await?;
        Ok(neighbour)
    }

    async fn line(&self, connection: &mut Connection) -> anyhow::Result<()> {
        let answer =
            connection.post(&format!("{}/executions", self.path), Bytes::from_static(b"{\"code\":\"1+1\"}")).await?;
        let done: Value = serde_json::from_slice(&answer)?;
        ensure!(done["result"] == 2, "1+1 is 2, got {}", brief(&answer));
        Ok(())
    }

    async fn close(self, address: &Address) -> anyhow::Result<()> {
        let mut connection = address.connect().await?;
        let answer = connection.send(Method::DELETE, &self.path, "application/json", Bytes::new()).await?;
        ensure!(answer.status().is_success(), "closing the session answered {}", answer.status());
        Ok(())
    }
}

/// What is asked while something else runs, and what that is.
#[derive(Default)]
struct Watch {
    now: RefCell<String>,
    seen: RefCell<Vec<(&'static str, f64, String)>>,
}

impl Watch {
    /// Asks both for as long as something runs: their times.
    async fn while_running(
        &self,
        address: &Address,
        neighbour: &Neighbour,
        work: impl Future<Output = ()>,
    ) -> anyhow::Result<(Run, Run)> {
        let over = Cell::new(false);
        let work = async {
            work.await;
            over.set(true);
        };
        let (mut to_health, mut to_session) = (address.connect().await?, address.connect().await?);
        let health = self.ask("/health", &over, async || to_health.get("/health").await.map(drop));
        let lines = self.ask("1+1", &over, async || neighbour.line(&mut to_session).await);
        let ((), health, lines) = tokio::join!(work, health, lines);
        Ok((health, lines))
    }

    async fn ask(
        &self,
        what: &'static str,
        over: &Cell<bool>,
        mut question: impl AsyncFnMut() -> anyhow::Result<()>,
    ) -> Run {
        let mut run = Run::default();
        let begun = Instant::now();
        while !over.get() {
            let since = Instant::now();
            let running = self.now.borrow().clone();
            match question().await {
                Ok(()) => {
                    let milliseconds = since.elapsed().as_secs_f64() * 1e3;
                    run.values.push(milliseconds);
                    self.seen.borrow_mut().push((what, milliseconds, running));
                }
                Err(error) => run.complain(format!("{what} while {running} ran: {error:#}")),
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        run.seconds = begun.elapsed().as_secs_f64();
        run
    }

    /// The answers that took longer than they should, slowest first, each stressor once.
    fn slowest(&self, bounds: &[(&'static str, f64)]) -> Vec<String> {
        let seen = self.seen.borrow();
        let mut over: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for (what, milliseconds, running) in seen.iter() {
            if bounds.iter().any(|(bounded, most)| bounded == what && milliseconds > most) {
                let slowest = over.entry((what, running)).or_default();
                *slowest = slowest.max(*milliseconds);
            }
        }
        let mut over: Vec<_> = over.into_iter().collect();
        over.sort_by(|a, b| b.1.total_cmp(&a.1));
        let told = over.iter().take(MOST_TOLD);
        told.map(|((what, running), milliseconds)| format!("{what} took {milliseconds:.0} ms while {running} ran"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_too_slow_is_told_once_for_each_stressor_slowest_first() {
        let watch = Watch::default();
        watch.seen.replace(
            [
                ("/health", 150.0, "a"),
                ("/health", 120.0, "a"),
                ("/health", 99.0, "b"),
                ("1+1", 7.0, "b"),
                ("1+1", 3.0, "c"),
            ]
            .map(|(what, time, running)| (what, time, running.to_owned()))
            .into(),
        );
        let told = watch.slowest(&[("/health", 100.0), ("1+1", 5.0)]);
        assert_eq!(told, ["/health took 150 ms while a ran", "1+1 took 7 ms while b ran"]);
    }
}
