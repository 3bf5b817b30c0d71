//! How long one request takes: `claim`, `describe`, `chart`.

use std::time::{Duration, Instant};

use anyhow::bail;
use fastrand::Rng;
use tokio::sync::Mutex;

use super::http::{Address, Connection, Echo};
use super::load::{Jobs, Until, closed, open, schedule};
use super::plain::{PlainFork, imports};
use super::programs::{Program, Table};
use super::report::{Bound, Section, Series, ratios};
use super::stats::{Run, Summary};
use super::throughput::quiet;
use super::{Bench, metered, others};

/// A server that has no sandbox ready by then will have none.
const READY_BY: Duration = Duration::from_secs(60);
/// Between two looks at the pool.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Callers think so long at most, in milliseconds, so that they do not run in step with the pool.
const THINK_MS: u64 = 10;

/// What is measured in one run, in an order that the seed chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Echo,
    Plain,
    Fumehood,
}

/// The same program here and there.
struct Compared {
    echo: Series,
    plain: Series,
    fumehood: Series,
}

/// Waits until sandboxes are ready, as a caller that thinks between its requests finds them.
pub(super) struct Pause {
    pool: Mutex<Connection>,
    rng: std::cell::RefCell<Rng>,
}

impl Pause {
    pub(super) async fn new(address: &Address, rng: &mut Rng) -> anyhow::Result<Self> {
        Ok(Self { pool: Mutex::new(address.connect().await?), rng: rng.fork().into() })
    }

    pub(super) async fn wait(&self) -> anyhow::Result<()> {
        let think = Duration::from_micros(self.rng.borrow_mut().u64(..THINK_MS * 1000));
        tokio::time::sleep(think).await;
        let deadline = Instant::now() + READY_BY;
        let mut pool = self.pool.lock().await;
        while pool.pool().await?.ready == 0 {
            if Instant::now() > deadline {
                bail!("no sandbox was ready within {} s", READY_BY.as_secs());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}

pub(super) async fn claim(bench: &mut Bench) -> anyhow::Result<Section> {
    let what = "one line in a fresh sandbox, over HTTP keep-alive, while some are ready";
    let (mut section, compared) = compare(bench, "claim", what, &Program::OneLine, bench.requests(200, 10)).await?;
    let Compared { echo, plain, fumehood } = compared;
    let net: Vec<f64> = fumehood.each(|run| run.p50).iter().zip(echo.each(|run| run.p50)).map(|(a, b)| a - b).collect();
    let fork = plain.each(|run| run.p50);
    section.ratio("(fumehood p50 - echo p50) / plain fork p50", ratios(&net, &fork), Some(Bound::Below(0.4)));
    section.ratio(
        "fumehood p99 / plain fork p50",
        ratios(&fumehood.each(|run| run.p99), &fork),
        Some(Bound::Below(3.0)),
    );
    if bench.args.rate.is_none() {
        cold(bench, &mut section, &fumehood).await;
    }
    Ok(section)
}

pub(super) async fn describe(bench: &mut Bench) -> anyhow::Result<Section> {
    let what = "pandas: read_csv and describe() of 10,000 rows that come with the request";
    let program = Program::Describe(Table::new(&mut bench.rng));
    let (mut section, compared) = compare(bench, "describe", what, &program, bench.requests(30, 3)).await?;
    against_plain(&mut section, &compared, 0.9);
    Ok(section)
}

pub(super) async fn chart(bench: &mut Bench) -> anyhow::Result<Section> {
    let what = "matplotlib: two lines drawn and saved as PNG";
    let (mut section, compared) = compare(bench, "chart", what, &Program::Chart, bench.requests(30, 3)).await?;
    against_plain(&mut section, &compared, 1.2);
    Ok(section)
}

fn against_plain(section: &mut Section, compared: &Compared, below: f64) {
    let p50 = |series: &Series| series.each(|run| run.p50);
    let both = ratios(&p50(&compared.fumehood), &p50(&compared.plain));
    section.ratio("fumehood p50 / plain fork p50", both, Some(Bound::Below(below)));
}

async fn compare(
    bench: &mut Bench,
    scenario: &'static str,
    what: &str,
    program: &Program,
    requests: u64,
) -> anyhow::Result<(Section, Compared)> {
    let address = bench.rested_server().await?;
    let plain = bench.plain().await?;
    let mut compared = Compared {
        echo: Series::new("echo", "ms"),
        plain: Series::new("plain fork", "ms"),
        fumehood: Series::new("fumehood", "ms"),
    };
    let mut state = address.connect().await?;
    let before = state.pool().await?;
    for _ in 0..bench.runs() {
        let mut steps = [Step::Echo, Step::Plain, Step::Fumehood];
        bench.rng.shuffle(&mut steps);
        for step in steps {
            quiet(&address).await?;
            let (series, (run, usage)) = match (step, &plain) {
                (Step::Echo, _) => (&mut compared.echo, echo(bench, &address, requests).await?),
                (Step::Fumehood, _) => (&mut compared.fumehood, fumehood(bench, &address, program, requests).await?),
                (Step::Plain, Some(fork)) => (&mut compared.plain, forked(bench, fork, program, requests).await?),
                (Step::Plain, None) => continue,
            };
            series.add(&run, usage);
        }
    }
    let after = state.pool().await?;
    let mode = match bench.args.rate {
        Some(rate) => format!("open loop, {rate} a second for {} s", bench.duration(10.0, 2.0).as_secs_f64()),
        None => format!("{requests} requests, {} clients", bench.args.clients.unwrap_or(1)),
    };
    let mut section = Section::new(scenario, format!("{what} ({} runs; {mode})", bench.runs()));
    section.figure(&compared.echo);
    section.figure(&compared.plain);
    section.figure(&compared.fumehood);
    bench.note_baseline(&mut section);
    let (claims, misses) = (after.claims - before.claims, after.misses - before.misses);
    section.note(format!("ready sandboxes claimed: {claims}; executions that found none: {misses}"));
    Ok((section, compared))
}

type Measured = anyhow::Result<(Run, Option<super::Usage>)>;

async fn echo(bench: &mut Bench, address: &Address, requests: u64) -> Measured {
    let jobs = Jobs::new(&Program::OneLine, &mut bench.rng);
    let mut callers = [Echo(address.connect().await?)];
    // Cheap, and the first few are slower.
    let until = Until::Count(requests.max(20) * 2);
    Ok(metered(bench.server_pid(), closed(&mut callers, &jobs, until, async || Ok(()))).await)
}

async fn fumehood(bench: &mut Bench, address: &Address, program: &Program, requests: u64) -> Measured {
    let jobs = Jobs::new(program, &mut bench.rng);
    let pid = bench.server_pid();
    if let Some(rate) = bench.args.rate {
        let duration = bench.duration(10.0, 2.0);
        let schedule = schedule(&mut bench.rng, rate, duration);
        return Ok(metered(pid, open(async || address.connect().await, &jobs, schedule)).await);
    }
    let pause = Pause::new(address, &mut bench.rng).await?;
    let mut callers = Vec::new();
    for _ in 0..bench.args.clients.unwrap_or(1) {
        callers.push(address.connect().await?);
    }
    Ok(metered(pid, closed(&mut callers, &jobs, Until::Count(requests), async || pause.wait().await)).await)
}

async fn forked(bench: &mut Bench, fork: &PlainFork, program: &Program, requests: u64) -> Measured {
    let jobs = Jobs::new(program, &mut bench.rng);
    let pid = Some(fork.pid());
    if let Some(rate) = bench.args.rate {
        let duration = bench.duration(10.0, 2.0);
        let schedule = schedule(&mut bench.rng, rate, duration);
        return Ok(metered(pid, open(async || Ok(fork.caller()), &jobs, schedule)).await);
    }
    let rng = std::cell::RefCell::new(bench.rng.fork());
    let pause = async || {
        let think = Duration::from_micros(rng.borrow_mut().u64(..THINK_MS * 1000));
        tokio::time::sleep(think).await;
        Ok(())
    };
    let mut callers: Vec<_> = (0..bench.args.clients.unwrap_or(1)).map(|_| fork.caller()).collect();
    Ok(metered(pid, closed(&mut callers, &jobs, Until::Count(requests), pause)).await)
}

/// What starting from nothing costs: the interpreter alone, and under other systems where they are installed.
async fn cold(bench: &mut Bench, section: &mut Section, fumehood: &Series) {
    let Ok(interpreter) = bench.interpreter.clone() else { return };
    let mut ways = vec![others::alone(&interpreter)];
    for other in others::all(&interpreter, bench.folder.path()) {
        match other {
            Ok(other) => ways.push(other),
            Err(why) => section.note(why),
        }
    }
    let times = if bench.args.quick { 1 } else { 5 };
    for way in ways {
        for (name, prelude) in
            [(way.name.to_owned(), String::new()), (format!("{}, with imports", way.name), imports())]
        {
            let mut run = Run::default();
            for _ in 0..times {
                // Commands are waited for without the runtime; here it may see that we are to end.
                tokio::task::yield_now().await;
                let mut job = Program::OneLine.job(&mut bench.rng);
                job.code.insert_str(0, &prelude);
                match way.run(&job) {
                    Ok(milliseconds) => run.values.push(milliseconds),
                    Err(error) => run.complain(format!("{error:#}")),
                }
            }
            let mut series = Series::new(name.clone(), "ms");
            series.add(&run, None);
            section.figure(&series);
            let times_ours = fumehood.each(|ours| Summary::of(&run).p50 / ours.p50);
            section.ratio(format!("{name} p50 / fumehood p50"), times_ours, None);
        }
    }
}
