//! What a job costs: accepted now, run later, on record all along.

use std::time::{Duration, Instant};

use anyhow::bail;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::http::{Address, Connection, EXECUTIONS, brief};
use super::report::{Bound, Section, Series, ratios};
use super::server::Settings;
use super::stats::Run;
use super::{Bench, metered, throughput};

/// How many jobs, one number after the other.
const NUMBERS: [u64; 3] = [100, 1000, 10_000];
/// The same to see that it works.
const FEW: [u64; 2] = [10, 50];
/// Jobs that are not all done by then never are.
const PATIENCE: Duration = Duration::from_secs(900);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Deserialize)]
struct Accepted {
    id: String,
}

#[derive(Deserialize)]
struct Page {
    jobs: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Ended {
    status: String,
    stdout: String,
}

pub(super) async fn queue(bench: &mut Bench) -> anyhow::Result<Section> {
    let address = bench.server(Settings::default())?;
    let numbers = match (bench.args.requests, bench.args.quick) {
        (Some(number), _) => vec![number],
        (None, true) => FEW.to_vec(),
        (None, false) => NUMBERS.to_vec(),
    };
    let mut all: Vec<Series> = numbers.iter().map(|number| Series::new(format!("{number} jobs, each"), "ms")).collect();
    for _ in 0..bench.runs() {
        for (series, number) in all.iter_mut().zip(&numbers) {
            throughput::quiet(&address).await?;
            let (run, usage) = metered(bench.server_pid(), done(&address, *number)).await;
            series.add(&run, usage);
        }
    }
    let what = format!(
        "jobs of print(i), from the first acceptance until the last has ended, divided by their number ({} runs)",
        bench.runs()
    );
    let mut section = Section::new("queue", what);
    all.iter().for_each(|series| section.figure(series));
    if let [few, .., many] = &all[..] {
        let both = ratios(&many.each(|run| run.p50), &few.each(|run| run.p50));
        section.ratio("each of most jobs / each of fewest", both, Some(Bound::AtMost(1.25)));
    }
    Ok(section)
}

async fn done(address: &Address, number: u64) -> Run {
    let mut run = Run::default();
    let begun = Instant::now();
    let all = async {
        let mut connection = address.connect().await?;
        let ids = accepted(&mut connection, number).await?;
        emptied(&mut connection, begun).await?;
        anyhow::Ok((connection, ids))
    };
    let (mut connection, ids) = match all.await {
        Ok(all) => all,
        Err(error) => {
            run.complain(format!("{error:#}"));
            return run;
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let each = seconds * 1e3 / number as f64;
    run.values = vec![each; ids.len()];
    run.seconds = seconds;
    for (index, id) in ids.iter().enumerate() {
        match connection.get(&format!("{EXECUTIONS}/{id}")).await {
            Ok(answer) => match serde_json::from_slice::<Ended>(&answer) {
                Ok(ended) if ended.status == "completed" && ended.stdout == format!("{index}\n") => {}
                _ => run.complain(format!("job {index} did not end well: {}", brief(&answer))),
            },
            Err(error) => run.complain(format!("job {index}: {error:#}")),
        }
    }
    run
}

async fn accepted(connection: &mut Connection, number: u64) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    for index in 0..number {
        let body = json!({"code": format!("print({index})"), "mode": "async"}).to_string();
        let answer: Accepted = serde_json::from_slice(&connection.post(EXECUTIONS, Bytes::from(body)).await?)?;
        ids.push(answer.id);
    }
    Ok(ids)
}

/// Waits until no job waits or runs.
async fn emptied(connection: &mut Connection, begun: Instant) -> anyhow::Result<()> {
    loop {
        let page: Page = serde_json::from_slice(&connection.get("/v1/queue?limit=1").await?)?;
        if page.jobs.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            bail!("jobs still wait after {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
