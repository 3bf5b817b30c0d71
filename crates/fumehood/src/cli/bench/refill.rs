//! What making sandboxes ready costs programs that run meanwhile: every core computes, once while the pool fills and once when it is full.

use std::time::{Duration, Instant};

use anyhow::bail;
use futures::future::join_all;
use serde_json::json;

use super::Bench;
use super::http::{Connection, EXECUTIONS};
use super::load::Caller;
use super::machine::Machine;
use super::overhead::{BUSY, seconds, self_timed};
use super::report::{Bound, Section, Series, ratios};
use super::server::Settings;
use super::stats::Run;

/// More than are made while the programs run.
const POOL: u64 = 200;
/// For the first sandboxes and for all of them.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// A program of a pool that fills runs this often.
const TURNS: usize = 3;

pub(super) async fn refill(bench: &mut Bench) -> anyhow::Result<Section> {
    let cores = Machine::here().cores;
    let what =
        format!("{cores} programs at once that compute, on {cores} cores, while the pool fills and when it is full");
    let mut section = Section::new("refill", format!("{what} ({} runs)", bench.runs()));
    if bench.args.server.is_some() {
        section.note("not measured: it needs a server of its own, with a large pool");
        return Ok(section);
    }
    let (mut filling, mut full) = (Series::new("pool fills", "ms"), Series::new("pool is full", "ms"));
    for _ in 0..bench.runs() {
        // A new server, whose pool is empty.
        bench.own = None;
        let address = bench.server(Settings { pool: Some(POOL), ..Settings::default() })?;
        let mut state = address.connect().await?;
        let mut programs = Vec::new();
        for _ in 0..cores {
            programs.push(address.connect().await?);
        }
        let begun = until_ready(&mut state, 1).await?;
        let since = Instant::now();
        let run = compute(bench, &mut programs).await;
        filling.add(&run, None);
        let ready = state.pool().await?.ready;
        if ready >= POOL {
            bail!("the pool was full before the programs ended");
        }
        let made = ready.saturating_sub(begun) as f64 / since.elapsed().as_secs_f64();
        section.note(format!("while the programs ran {made:.1} sandboxes a second were made ready"));
        until_ready(&mut state, POOL).await?;
        let run = compute(bench, &mut programs).await;
        full.add(&run, None);
    }
    bench.own = None;
    let p50 = |series: &Series| series.each(|run| run.p50);
    let both = ratios(&p50(&filling), &p50(&full));
    section.figure(&filling);
    section.figure(&full);
    section.ratio("pool fills / pool is full", both, Some(Bound::Below(1.05)));
    Ok(section)
}

/// How many are ready once so many are.
async fn until_ready(state: &mut Connection, wanted: u64) -> anyhow::Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ready = state.pool().await?.ready;
        if ready >= wanted {
            return Ok(ready);
        }
        if Instant::now() > deadline {
            bail!("{ready} sandboxes were ready after {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Has every core compute a few times over.
async fn compute(bench: &mut Bench, programs: &mut [Connection]) -> Run {
    let mut run = Run::default();
    for _ in 0..TURNS {
        let turn = join_all(programs.iter_mut().map(|program| one(program, bench.rng.u32(..)))).await;
        for time in turn {
            match time {
                Ok(seconds) => run.values.push(seconds * 1e3),
                Err(complaint) => run.complain(complaint),
            }
        }
    }
    run
}

async fn one(program: &mut Connection, token: u32) -> Result<f64, String> {
    // A working directory of its own, so that none is taken from the pool and made up for.
    let body = json!({"code": self_timed(BUSY, token), "cwd": "/tmp"}).to_string();
    let answer = program.post(EXECUTIONS, body.into()).await.map_err(|error| format!("{error:#}"))?;
    seconds(&program.output(&answer)?, token)
}
