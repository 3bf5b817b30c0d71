//! What a sandbox that waits costs in memory.

use std::time::{Duration, Instant};

use anyhow::bail;

use super::Bench;
use super::process::{Memory, memory, sandboxes};
use super::report::{Bound, Section, Series};
use super::server::Settings;
use super::stats::Run;

/// For each sandbox to be ready.
const PATIENCE_EACH: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(super) async fn density(bench: &mut Bench) -> anyhow::Result<Section> {
    let wanted = bench.requests(100, 8);
    let mut section = Section::new("density", format!("{wanted} sandboxes ready at once, none used"));
    if bench.args.server.is_some() {
        section.note("not measured: it needs a server of its own, with a pool of that size");
        return Ok(section);
    }
    let address = bench.server(Settings { pool: Some(wanted) })?;
    let begun = Instant::now();
    let mut state = address.connect().await?;
    let deadline = begun + PATIENCE_EACH * wanted as u32 + Duration::from_secs(30);
    while state.pool().await?.ready < wanted {
        if Instant::now() > deadline {
            let ready = state.pool().await?.ready;
            bail!("only {ready} of {wanted} sandboxes were ready after {} s", begun.elapsed().as_secs());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let filled = begun.elapsed().as_secs_f64();
    let Some(pid) = bench.server_pid() else { bail!("the server's process is not known") };
    let (groups, others) = sandboxes(pid);
    let each: Vec<Memory> = groups.iter().map(|pids| pids.iter().map(|pid| memory(*pid)).sum()).collect();
    let rest: Memory = others.iter().map(|pid| memory(*pid)).sum();
    let mut add = |name: &str, part: fn(&Memory) -> u64, bound| {
        let mut series = Series::new(name, "MiB");
        series.add(&Run { values: each.iter().map(|memory| mib(part(memory))).collect(), ..Run::default() }, None);
        section.figure(&series);
        if bound {
            let p50 = series.each(|run| run.p50);
            section.ratio("unique memory of a ready sandbox, MiB", p50, Some(Bound::AtMost(2.5)));
        }
    };
    add("unique memory", |memory| memory.unique, true);
    add("proportional memory", |memory| memory.proportional, false);
    add("page tables", |memory| memory.tables, false);
    let all: Memory = each.iter().copied().sum();
    let together = (all.proportional + all.tables + rest.proportional + rest.tables) as f64 / wanted as f64;
    section.ratio("everything, server included, for each sandbox, MiB", vec![together / f64::from(1 << 20)], None);
    section.note(format!("ready after {filled:.1} s, {:.1} a second", wanted as f64 / filled));
    let server = mib(rest.proportional);
    section.note(format!("server, jailer and what they keep: {server:.0} MiB in {} processes", others.len()));
    if groups.len() as u64 != wanted {
        section.complain(format!("{} sandboxes were found in /proc, {wanted} are ready", groups.len()));
    }
    if all.unread > 0 {
        section.note(format!("{} processes did not let their memory be read; run it as root", all.unread));
    }
    section.note("sandboxes that wait between executions (sessions) do not exist yet");
    Ok(section)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
