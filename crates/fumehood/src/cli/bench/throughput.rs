//! How much at once: `burst` and `sustained`.

use std::time::{Duration, Instant};

use anyhow::bail;

use super::http::{Address, Connection, PoolState};
use super::load::{Caller, Jobs, Until, closed, open, schedule};
use super::plain::PlainFork;
use super::programs::Program;
use super::report::{Bound, Section, Series, ratios};
use super::stats::Run;
use super::{Bench, metered};

/// Requests of a burst.
const BURST: u64 = 100;
/// Clients of `sustained`, one level after the other.
const LEVELS: [u64; 3] = [8, 32, 128];
/// A server that has not come to rest by then does not.
const QUIET_BY: Duration = Duration::from_secs(120);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Waits until nothing runs and as many sandboxes are ready as there should be.
///
/// # Errors
/// When that does not happen.
pub(super) async fn quiet(address: &Address) -> anyhow::Result<PoolState> {
    let mut connection = address.connect().await?;
    let deadline = Instant::now() + QUIET_BY;
    loop {
        let pool = connection.pool().await?;
        if pool.running == 0 && pool.queued == 0 && pool.ready >= pool.target {
            return Ok(pool);
        }
        if Instant::now() > deadline {
            bail!("the server did not come to rest: {pool:?}");
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

pub(super) async fn burst(bench: &mut Bench) -> anyhow::Result<Section> {
    let address = bench.rested_server().await?;
    let plain = bench.plain().await?;
    let requests = bench.requests(BURST, 20);
    let (mut forked, mut whole_forked) = (Series::new("plain fork, each", "ms"), Series::new("plain fork, all", "ms"));
    let (mut each, mut whole) = (Series::new("fumehood, each", "ms"), Series::new("fumehood, all", "ms"));
    for _ in 0..bench.runs() {
        if let Some(fork) = &plain {
            let callers = (0..requests).map(|_| fork.caller()).collect();
            at_once(bench, callers, Some(fork.pid()), &mut forked, &mut whole_forked).await;
        }
        // Connections are there before the burst; what it measures is executions.
        let callers = connections(&address, requests).await?;
        quiet(&address).await?;
        at_once(bench, callers, bench.server_pid(), &mut each, &mut whole).await;
    }
    let what =
        format!("{requests} one-line requests at once, from rest, until all are answered ({} runs)", bench.runs());
    let mut section = Section::new("burst", what);
    for series in [&forked, &each, &whole_forked, &whole] {
        section.figure(series);
    }
    bench.note_baseline(&mut section);
    let both = ratios(&whole.each(|run| run.p50), &whole_forked.each(|run| run.p50));
    section.ratio("fumehood, all / plain fork, all", both, Some(Bound::AtMost(1.5)));
    Ok(section)
}

async fn at_once<C: Caller>(
    bench: &mut Bench,
    mut callers: Vec<C>,
    pid: Option<u32>,
    each: &mut Series,
    whole: &mut Series,
) {
    let jobs = Jobs::new(&Program::OneLine, &mut bench.rng);
    let until = Until::Count(callers.len() as u64);
    let (run, usage) = metered(pid, closed(&mut callers, &jobs, until, async || Ok(()))).await;
    let last = run.values.iter().copied().fold(0.0, f64::max);
    whole.add(&Run { values: vec![last], ..Run::default() }, None);
    each.add(&run, usage);
}

async fn connections(address: &Address, count: u64) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(address.connect().await?);
    }
    Ok(connections)
}

pub(super) async fn sustained(bench: &mut Bench) -> anyhow::Result<Section> {
    let address = bench.rested_server().await?;
    let plain = bench.plain().await?;
    let duration = bench.duration(10.0, 1.0);
    if let Some(rate) = bench.args.rate {
        return sustained_open(bench, &address, plain.as_deref(), rate, duration).await;
    }
    let levels = bench.args.clients.map_or(LEVELS.to_vec(), |clients| vec![clients]);
    let series = |name: &str| -> Vec<Series> {
        levels.iter().map(|clients| Series::new(format!("{name}, {clients} clients"), "ms")).collect()
    };
    let (mut forked, mut fumehood) = (series("plain fork"), series("fumehood"));
    for _ in 0..bench.runs() {
        for (level, &clients) in levels.iter().enumerate() {
            let jobs = Jobs::new(&Program::OneLine, &mut bench.rng);
            if let Some(fork) = &plain {
                let mut callers: Vec<_> = (0..clients).map(|_| fork.caller()).collect();
                let load = closed(&mut callers, &jobs, Until::Elapsed(duration), async || Ok(()));
                let (run, usage) = metered(Some(fork.pid()), load).await;
                forked[level].add(&run, usage);
            }
            let mut callers = connections(&address, clients).await?;
            quiet(&address).await?;
            let load = closed(&mut callers, &jobs, Until::Elapsed(duration), async || Ok(()));
            let (run, usage) = metered(bench.server_pid(), load).await;
            fumehood[level].add(&run, usage);
        }
    }
    let what = format!(
        "one-line requests, each client asks again when it has its answer ({} runs of {} s)",
        bench.runs(),
        duration.as_secs_f64()
    );
    let mut section = Section::new("sustained", what);
    forked.iter().chain(&fumehood).for_each(|series| section.figure(series));
    bench.note_baseline(&mut section);
    let rate = |series: &Series| series.each(|run| run.rate);
    for (level, clients) in levels.iter().enumerate() {
        let bound = (*clients == 8).then_some(Bound::AtLeast(0.75));
        let both = ratios(&rate(&fumehood[level]), &rate(&forked[level]));
        section.ratio(format!("fumehood rate / plain fork rate, {clients} clients"), both, bound);
    }
    if let [few, .., many] = &fumehood[..] {
        let both = ratios(&rate(many), &rate(few));
        section.ratio("fumehood rate, 128 clients / 8 clients", both, Some(Bound::AtLeast(0.9)));
    }
    Ok(section)
}

/// The same as an open loop.
async fn sustained_open(
    bench: &mut Bench,
    address: &Address,
    plain: Option<&PlainFork>,
    rate: f64,
    duration: Duration,
) -> anyhow::Result<Section> {
    let (mut forked, mut fumehood) = (Series::new("plain fork", "ms"), Series::new("fumehood", "ms"));
    for _ in 0..bench.runs() {
        let jobs = Jobs::new(&Program::OneLine, &mut bench.rng);
        let times = schedule(&mut bench.rng, rate, duration);
        if let Some(fork) = plain {
            let load = open(async || Ok(fork.caller()), &jobs, times.clone());
            let (run, usage) = metered(Some(fork.pid()), load).await;
            forked.add(&run, usage);
        }
        quiet(address).await?;
        let load = open(async || address.connect().await, &jobs, times);
        let (run, usage) = metered(bench.server_pid(), load).await;
        fumehood.add(&run, usage);
    }
    let what = format!(
        "one-line requests, {rate} a second come whether earlier ones are answered or not ({} runs of {} s)",
        bench.runs(),
        duration.as_secs_f64()
    );
    let mut section = Section::new("sustained", what);
    section.figure(&forked);
    section.figure(&fumehood);
    bench.note_baseline(&mut section);
    section.ratio("fumehood p50 / plain fork p50", ratios(&fumehood.each(|r| r.p50), &forked.each(|r| r.p50)), None);
    Ok(section)
}
