//! What a sandbox costs in memory that waits: ready for a program, or with one that sleeps.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;

use super::Bench;
use super::http::{Connection, EXECUTIONS};
use super::process::{Memory, memory, sandboxes, ticks_of};
use super::report::{Bound, Section, Series};
use super::server::Settings;
use super::stats::Run;

/// For each sandbox to be there.
const PATIENCE_EACH: Duration = Duration::from_secs(3);
/// And for the server to have loaded its libraries.
const START: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Programs that used no processor time for so long sleep.
const STILL: Duration = Duration::from_millis(300);
/// As long as the server's own limit allows.
const SLEEPS: &str = "import time\ntime.sleep(300)";
const SLEEPS_MS: u64 = 300_000;

pub(super) async fn density(bench: &mut Bench) -> anyhow::Result<Section> {
    let wanted = bench.requests(100, 8);
    let what = format!("{wanted} sandboxes ready at once, none used; then {wanted} whose program sleeps");
    let mut section = Section::new("density", what);
    if bench.args.server.is_some() {
        section.note("not measured: it needs a server of its own, with a pool of that size");
        return Ok(section);
    }
    ready(bench, &mut section, wanted).await?;
    idle(bench, &mut section, wanted).await?;
    // Those that sleep would still do so in the next scenario.
    bench.own = None;
    Ok(section)
}

async fn ready(bench: &mut Bench, section: &mut Section, wanted: u64) -> anyhow::Result<()> {
    let address = bench.server(Settings { pool: Some(wanted), ..Settings::default() })?;
    let begun = Instant::now();
    reach(&mut address.connect().await?, 0, wanted).await?;
    let seconds = begun.elapsed().as_secs_f64();
    section.note(format!("ready after {seconds:.1} s, {:.1} a second", wanted as f64 / seconds));
    let (groups, others) = sandboxes(server(bench)?);
    weigh(section, "ready", wanted, &groups, &others, Some(Bound::AtMost(2.5)));
    Ok(())
}

async fn idle(bench: &mut Bench, section: &mut Section, wanted: u64) -> anyhow::Result<()> {
    let address = bench.server(Settings { pool: Some(1), running: Some(wanted), ..Settings::default() })?;
    let pid = server(bench)?;
    let mut connection = address.connect().await?;
    let body = json!({"code": SLEEPS, "mode": "async", "timeout_ms": SLEEPS_MS}).to_string();
    let mut groups = Vec::new();
    for running in 0..wanted {
        reach(&mut connection, running, 1).await?;
        if running + 1 == wanted {
            // Those that run and the one that this request will take: all but the next to be made ready.
            groups = sandboxes(pid).0;
        }
        connection.post(EXECUTIONS, body.clone().into()).await?;
    }
    reach(&mut connection, wanted, 1).await?;
    at_rest(&groups, PATIENCE_EACH * wanted as u32).await?;
    weigh(section, "idle", wanted, &groups, &sandboxes(pid).1, None);
    Ok(())
}

/// Waits until these processes use no processor time any more.
///
/// # Errors
/// When they still do after `patience`.
pub(super) async fn at_rest(groups: &[Vec<u32>], patience: Duration) -> anyhow::Result<()> {
    let spent = || ticks_of(groups.iter().flatten().copied());
    let deadline = Instant::now() + patience;
    let mut before = spent();
    loop {
        tokio::time::sleep(STILL).await;
        let now = spent();
        if now == before {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the programs did not come to rest");
        }
        before = now;
    }
}

fn server(bench: &Bench) -> anyhow::Result<u32> {
    bench.server_pid().context("the server's process is not known")
}

/// Waits until so many run and so many are ready.
async fn reach(connection: &mut Connection, running: u64, ready: u64) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE_EACH * ready as u32 + START;
    loop {
        let pool = connection.pool().await?;
        if pool.running >= running && pool.ready >= ready {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{running} sandboxes were to run and {ready} to be ready: {pool:?}");
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Adds the memory of these sandboxes, which are in this state, and of the server's other processes.
pub(super) fn weigh(
    section: &mut Section,
    state: &str,
    wanted: u64,
    groups: &[Vec<u32>],
    others: &[u32],
    bound: Option<Bound>,
) {
    let each: Vec<Memory> = groups.iter().map(|pids| pids.iter().map(|pid| memory(*pid)).sum()).collect();
    let rest: Memory = others.iter().map(|pid| memory(*pid)).sum();
    let mut add = |name: &str, part: fn(&Memory) -> u64| {
        let mut series = Series::new(format!("{state}, {name}"), "MiB");
        series.add(&Run { values: each.iter().map(|memory| mib(part(memory))).collect(), ..Run::default() }, None);
        section.figure(&series);
        series.each(|run| run.p50)
    };
    let unique = add("unique memory", |memory| memory.unique);
    add("proportional memory", |memory| memory.proportional);
    add("page tables", |memory| memory.tables);
    section.ratio(format!("unique memory of one that is {state}, MiB"), unique, bound);
    let all: Memory = each.iter().copied().sum();
    let together = (all.proportional + all.tables + rest.proportional + rest.tables) as f64 / wanted as f64;
    section.ratio(format!("everything, server included, for each that is {state}, MiB"), vec![together / MIB], None);
    let server = mib(rest.proportional);
    section.note(format!("{state}: server, jailer and what they keep: {server:.0} MiB in {} processes", others.len()));
    if groups.len() as u64 != wanted {
        section.complain(format!("{} sandboxes were found in /proc, {wanted} are {state}", groups.len()));
    }
    if all.unread > 0 {
        section.note(format!("{} processes did not let their memory be read; run it as root", all.unread));
    }
}

const MIB: f64 = (1 << 20) as f64;

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}
