//! What one tenant notices of another that asks for more than it may have.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use anyhow::bail;
use bytes::Bytes;
use fastrand::Rng;
use futures::future::{join, join_all};
use http_body_util::BodyExt;
use hyper::header::RETRY_AFTER;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::http::{Address, Connection, EXECUTIONS, brief};
use super::load::{Caller, Jobs, Until, closed};
use super::programs::{Job, Program};
use super::report::{Bound, Section, Series, ratios};
use super::server::Settings;
use super::stats::Run;
use super::{Bench, metered, throughput};

/// Clients of the tenant that floods, for a quota of one sandbox at once.
const FLOOD: u64 = 4;
/// The tenant that is measured thinks so long at most before each request, in milliseconds: it asks for little.
const THINK_MS: u64 = 100;
/// A client that does not heed `Retry-After` asks again after so long; without any pause its own work would be measured, not the server's.
const UNHEEDING: Duration = Duration::from_millis(20);
/// A flood that has not met its quota by then never does.
const FLOODED_BY: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

#[derive(Deserialize)]
struct Tenants {
    tenants: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct NewKey {
    key: String,
}

#[derive(Deserialize)]
struct Refusal {
    error: Detail,
}

#[derive(Deserialize)]
struct Detail {
    code: String,
    quota: Option<Quota>,
}

#[derive(Deserialize)]
struct Quota {
    name: String,
    limit: u64,
}

/// What the flood consists of.
#[derive(Clone, Copy)]
enum Flood {
    /// Programs that hold their place without working: what is left is the refusals.
    Waits,
    /// One line after the other, as fast as the quota allows: the processor is shared too.
    Lines,
}

impl Flood {
    fn name(self) -> &'static str {
        match self {
            Self::Waits => "of waiting programs",
            Self::Lines => "of one-liners",
        }
    }

    fn job(self, jobs: &Jobs<'_>) -> Job {
        let mut job = jobs.next();
        if let Self::Waits = self {
            job.code.insert_str(0, "import time; time.sleep(0.05); ");
        }
        job
    }
}

pub(super) async fn tenants(bench: &mut Bench) -> anyhow::Result<Section> {
    let (requests, clients) = (bench.requests(100, 20), bench.args.clients.unwrap_or(FLOOD));
    let what = format!(
        "one line of a tenant that thinks up to {THINK_MS} ms before each, alone and beside {clients} clients of another with a quota of one sandbox at once ({} runs; {requests} requests)",
        bench.runs()
    );
    let mut section = Section::new("tenants", what);
    if bench.args.server.is_some() {
        section.note("not measured: it needs a server of its own, to make tenants on it");
        return Ok(section);
    }
    let address = bench.server(Settings::default())?;
    let calm = tenant(&address, "calm", json!({})).await?;
    let loud = tenant(&address, "loud", json!({"max_concurrent": 1})).await?;
    let mut state = address.connect().await?;
    for flood in [Flood::Waits, Flood::Lines] {
        let name = flood.name();
        let mut alone = Series::new(format!("alone, before a flood {name}"), "ms");
        let mut beside = Series::new(format!("beside a flood {name}"), "ms");
        let mut served = Series::new(format!("the flood {name}, served"), "ms");
        let (mut refused, mut claims, mut misses) = (0, 0, 0);
        for _ in 0..bench.runs() {
            // One just before the other: the machine may be another one a minute later.
            throughput::quiet(&address).await?;
            let mut calls = Calm { address: &calm, requests, rng: bench.rng.fork() };
            let (run, usage) = metered(bench.server_pid(), calls.lines()).await;
            alone.add(&run, usage);
            let jobs = Jobs::new(&Program::OneLine, &mut bench.rng);
            let before = state.pool().await?;
            let tide = Tide { flood, refused: Cell::new(0), over: Cell::new(false) };
            let measured = metered(bench.server_pid(), tide.beside(&mut calls));
            let ((run, usage), all) = join(measured, tide.flood(&loud, &jobs, clients)).await;
            beside.add(&run, usage);
            served.add(&all, None);
            refused += tide.refused.get();
            let after = state.pool().await?;
            claims += after.claims - before.claims;
            misses += after.misses - before.misses;
        }
        [&alone, &beside, &served].into_iter().for_each(|series| section.figure(series));
        let p50 = |series: &Series| series.each(|run| run.p50);
        let both = ratios(&p50(&beside), &p50(&alone));
        section.ratio(format!("beside a flood {name} p50 / alone p50"), both, Some(Bound::Below(2.0)));
        section
            .note(format!("the flood {name} was refused {refused} times, each with the quota and when to come again"));
        section
            .note(format!("beside it ready sandboxes claimed by both: {claims}; executions that found none: {misses}"));
    }
    Ok(section)
}

/// A new tenant; the server as it sees it.
async fn tenant(address: &Address, name: &str, quotas: serde_json::Value) -> anyhow::Result<Address> {
    let mut connection = address.connect().await?;
    // A name is never given twice, and the data folder is that of all scenarios.
    let known: Tenants = serde_json::from_slice(&connection.get("/v1/tenants").await?)?;
    let name = format!("{name}-{}", known.tenants.len());
    let body = json!({"name": name, "quotas": quotas}).to_string();
    connection.post("/v1/tenants", body.into()).await?;
    let body = json!({"tenant": name, "name": "bench"}).to_string();
    let made: NewKey = serde_json::from_slice(&connection.post("/v1/keys", body.into()).await?)?;
    address.with_key(&made.key)
}

/// The tenant that is measured.
struct Calm<'a> {
    address: &'a Address,
    requests: u64,
    rng: Rng,
}

impl Calm<'_> {
    async fn lines(&mut self) -> Run {
        let jobs = Jobs::new(&Program::OneLine, &mut self.rng);
        let rng = RefCell::new(self.rng.fork());
        // Not in step with the flood, nor with the pool.
        let think = async || {
            let pause = Duration::from_micros(rng.borrow_mut().u64(..THINK_MS * 1000));
            tokio::time::sleep(pause).await;
            Ok(())
        };
        match self.address.connect().await {
            Ok(caller) => closed(&mut [caller], &jobs, Until::Count(self.requests), think).await,
            Err(error) => failed(&error),
        }
    }
}

fn failed(error: &anyhow::Error) -> Run {
    let mut run = Run::default();
    run.complain(format!("{error:#}"));
    run
}

/// One flood.
struct Tide {
    flood: Flood,
    refused: Cell<u64>,
    over: Cell<bool>,
}

impl Tide {
    /// What another tenant measures while the quota is met; the flood is over then.
    async fn beside(&self, calm: &mut Calm<'_>) -> Run {
        let begun = Instant::now();
        while self.refused.get() == 0 && begun.elapsed() < FLOODED_BY {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let mut run = calm.lines().await;
        if self.refused.get() == 0 {
            run.complain("the flood did not meet its quota");
        }
        self.over.set(true);
        run
    }

    /// What is served of it.
    async fn flood(&self, address: &Address, jobs: &Jobs<'_>, clients: u64) -> Run {
        let begun = Instant::now();
        let mut run = Run::default();
        for client in join_all((0..clients).map(|_| self.client(address, jobs))).await {
            run.values.extend(client.values);
            client.complaints.into_iter().for_each(|complaint| run.complain(complaint));
        }
        run.seconds = begun.elapsed().as_secs_f64();
        run
    }

    async fn client(&self, address: &Address, jobs: &Jobs<'_>) -> Run {
        let mut run = Run::default();
        let mut connection = match address.connect().await {
            Ok(connection) => connection,
            Err(error) => return failed(&error),
        };
        while !self.over.get() {
            let job = self.flood.job(jobs);
            let request = connection.prepare(&job);
            let sent = Instant::now();
            match asked(&mut connection, request).await {
                Ok(Some(answer)) => match connection.check(&job, &answer) {
                    Ok(()) => run.values.push(sent.elapsed().as_secs_f64() * 1e3),
                    Err(complaint) => run.complain(complaint),
                },
                Ok(None) => {
                    self.refused.set(self.refused.get() + 1);
                    tokio::time::sleep(UNHEEDING).await;
                }
                Err(error) => {
                    run.complain(format!("{error:#}"));
                    // One that fails at once must not keep the machine busy.
                    tokio::time::sleep(UNHEEDING).await;
                }
            }
        }
        run
    }
}

/// The answer; `None` when it is refused as it must be, for the quota and with when to come again.
async fn asked(connection: &mut Connection, request: Bytes) -> anyhow::Result<Option<Bytes>> {
    let answer = connection.send(Method::POST, EXECUTIONS, "application/json", request).await?;
    let (status, again) = (answer.status(), answer.headers().contains_key(RETRY_AFTER));
    let body = answer.into_body().collect().await?.to_bytes();
    match status {
        StatusCode::OK => Ok(Some(body)),
        StatusCode::TOO_MANY_REQUESTS => {
            let Detail { code, quota } = serde_json::from_slice::<Refusal>(&body)?.error;
            let told = quota.is_some_and(|quota| quota.name == "max_concurrent" && quota.limit == 1);
            if code != "quota_exceeded" || !told || !again {
                bail!("a refusal does not say what and when: {}", brief(&body));
            }
            Ok(None)
        }
        status => bail!("answered {status}: {}", brief(&body)),
    }
}
