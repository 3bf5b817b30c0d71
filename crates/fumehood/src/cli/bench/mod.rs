//! `fumehood bench`: what an execution costs, next to what the same costs without a sandbox, in the same run on the same machine.
//!
//! ```text
//! scenario --> Jobs (seeded) --> load::{closed, open} --> Caller: http::Connection | plain::ForkCaller
//!                                      |
//!                                      v
//!          Run (one for each run) --> Series --> Section (figures, ratios, verdicts) --> Report
//! ```
//!
//! Absolute figures are those of one machine; the bounds are on ratios to the baselines. docs/benchmarks.md tells how to read them.

pub(super) mod churn;
mod density;
mod http;
mod latency;
mod limits;
mod load;
mod machine;
mod others;
mod overhead;
mod plain;
mod process;
mod programs;
mod queue;
mod refill;
mod report;
mod server;
mod session_churn;
mod sessions;
mod stats;
mod stream;
mod stress;
mod tenants;
mod throughput;

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use fastrand::Rng;
use tokio::signal::unix::{SignalKind, signal};

use super::Common;
use crate::node::NO_HOME;
use http::Address;
use machine::Machine;
use plain::{Interpreter, PlainFork};
use process::{Meter, Usage};
use report::{Report, Section};
use server::{OwnServer, Settings};
use stats::Run;

/// Exit code of Ctrl-C, as shells report it.
const INTERRUPTED: u8 = 130;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// A fresh sandbox for one line of code, while some are ready
    Claim,
    /// A hundred at once from an idle server
    Burst,
    /// As many as it can: 8, 32 and 128 clients, a fresh sandbox each time
    Sustained,
    /// pandas' describe() of a table of 10,000 rows
    Describe,
    /// A chart drawn with matplotlib
    Chart,
    /// Output while it happens: how soon, and how much a second
    Stream,
    /// One line in a session, a fresh interpreter for it, its memory while it is idle; --clients says how many sessions
    Sessions,
    /// Memory of ready and of idle sandboxes; --requests says how many
    Density,
    /// Loops inside and outside a sandbox
    Overhead,
    /// Programs that run while the pool fills
    Refill,
    /// Jobs: accepted now, run later; a hundred, a thousand and ten thousand
    Queue,
    /// One tenant, alone and beside another that floods the server at its quota
    Tenants,
    /// From the moment a limit strikes to the answer that says so
    Limits,
    /// Every stressor of stress-ng for a second, while the server and a neighbour are timed
    Stress,
    /// Every way an execution can go, for ten minutes or --requests; then what is left over
    Churn,
    /// Everything that can be done with a session, for an hour; then what is left over
    SessionChurn,
}

/// What runs when nothing is chosen: all that takes minutes.
const USUAL: [Scenario; 10] = [
    Scenario::Claim,
    Scenario::Burst,
    Scenario::Sustained,
    Scenario::Describe,
    Scenario::Chart,
    Scenario::Stream,
    Scenario::Overhead,
    Scenario::Refill,
    Scenario::Sessions,
    Scenario::Density,
];

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// What to measure [default: all but queue, tenants, limits, stress, churn and session-churn]
    #[arg(value_enum, value_name = "SCENARIO")]
    scenarios: Vec<Scenario>,
    /// Measure this server instead of starting one, for example http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Process of that server, to measure what it uses
    #[arg(long, value_name = "PID", requires = "server")]
    pid: Option<u32>,
    /// Key of the server
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Order, inputs and pauses follow from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs of each scenario; figures are medians of them [default: 5, quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Requests in each run [default: depends on the scenario]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Clients at once [default: depends on the scenario]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    clients: Option<u64>,
    /// Open loop: so many requests a second, answered or not
    #[arg(long, value_name = "R", value_parser = positive)]
    rate: Option<f64>,
    /// Seconds of each run that is bounded by time [default: depends on the scenario]
    #[arg(long, value_name = "S", value_parser = positive)]
    duration: Option<f64>,
    /// Little of everything, to see that it works
    #[arg(long)]
    quick: bool,
    /// Fail also when a bound is missed, not only on missing and wrong answers
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    common: Common,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("must be a number above 0".to_owned()),
    }
}

pub(super) fn main(args: BenchArgs) -> anyhow::Result<ExitCode> {
    // One thread: the load must leave the machine to the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // What was started is ended when this future is dropped.
        tokio::select! {
            done = measure(args) => done,
            _ = interrupt.recv() => Ok(ExitCode::from(INTERRUPTED)),
            _ = terminate.recv() => Ok(ExitCode::from(INTERRUPTED)),
        }
    })
}

async fn measure(args: BenchArgs) -> anyhow::Result<ExitCode> {
    let mut bench = Bench::new(args)?;
    let machine = Machine::here();
    if !bench.args.json {
        println!("fumehood {}, seed {}, {}", env!("CARGO_PKG_VERSION"), bench.args.seed, machine.text());
    }
    let chosen = if bench.args.scenarios.is_empty() { USUAL.to_vec() } else { bench.args.scenarios.clone() };
    let mut scenarios = Vec::new();
    for scenario in chosen {
        let section = bench.scenario(scenario).await?;
        if !bench.args.json {
            println!("\n{}", section.text().trim_end());
        }
        scenarios.push(section);
    }
    let report = Report {
        format: 1,
        version: env!("CARGO_PKG_VERSION"),
        seed: bench.args.seed,
        runs: bench.runs(),
        quick: bench.args.quick,
        machine,
        scenarios,
    };
    let (errors, missed) = (report.errors(), report.missed());
    if bench.args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("\n{errors} errors, {missed} bounds missed");
    }
    let failed = errors > 0 || (bench.args.check && missed > 0);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What all scenarios share: the server, the baseline, and where they live.
struct Bench {
    args: BenchArgs,
    images: PathBuf,
    own: Option<OwnServer>,
    fork: Option<Rc<PlainFork>>,
    /// Or why there is none.
    interpreter: Result<Interpreter, String>,
    rng: Rng,
    /// Last: what lives in it ends before it goes.
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(args: BenchArgs) -> anyhow::Result<Self> {
        let images = args.common.load(None)?.images_dir().context(NO_HOME)?;
        let folder = tempfile::Builder::new().prefix("fumehood-bench-").tempdir()?;
        let interpreter = Interpreter::find(&images, folder.path()).map_err(|error| format!("{error:#}"));
        let rng = Rng::with_seed(args.seed);
        Ok(Self { args, images, own: None, fork: None, interpreter, rng, folder })
    }

    async fn scenario(&mut self, scenario: Scenario) -> anyhow::Result<Section> {
        // From the seed alone, whatever ran before.
        self.rng = Rng::with_seed(self.args.seed ^ (scenario as u64) << 32);
        match scenario {
            Scenario::Claim => latency::claim(self).await,
            Scenario::Describe => latency::describe(self).await,
            Scenario::Chart => latency::chart(self).await,
            Scenario::Burst => throughput::burst(self).await,
            Scenario::Sustained => throughput::sustained(self).await,
            Scenario::Stream => stream::stream(self).await,
            Scenario::Sessions => sessions::sessions(self).await,
            Scenario::Density => density::density(self).await,
            Scenario::Overhead => overhead::overhead(self).await,
            Scenario::Refill => refill::refill(self).await,
            Scenario::Queue => queue::queue(self).await,
            Scenario::Tenants => tenants::tenants(self).await,
            Scenario::Limits => limits::limits(self).await,
            Scenario::Stress => stress::stress(self).await,
            Scenario::Churn => churn::churn(self).await,
            Scenario::SessionChurn => session_churn::session_churn(self).await,
        }
    }

    fn runs(&self) -> u64 {
        self.args.runs.unwrap_or(if self.args.quick { 1 } else { 5 })
    }

    /// How many requests a run has: as asked for, or one of two defaults.
    fn requests(&self, usual: u64, quick: u64) -> u64 {
        self.args.requests.unwrap_or(if self.args.quick { quick } else { usual })
    }

    /// How long a run lasts, likewise in seconds.
    fn duration(&self, usual: f64, quick: f64) -> Duration {
        Duration::from_secs_f64(self.args.duration.unwrap_or(if self.args.quick { quick } else { usual }))
    }

    /// The server under test; one of our own is started anew when it must be set up differently.
    fn server(&mut self, settings: Settings) -> anyhow::Result<Address> {
        let key = self.args.api_key.as_deref();
        if let Some(url) = &self.args.server {
            return Address::new(url, key);
        }
        if self.own.as_ref().is_none_or(|own| own.settings != settings) {
            // One after the other: both would use the same data folder.
            self.own = None;
            let config = self.args.common.config.as_deref();
            self.own = Some(OwnServer::start(self.folder.path(), config, &self.images, key, settings)?);
        }
        Ok(self.own.as_ref().context("there is no server")?.address.clone())
    }

    /// The same, set up as usual, when it has loaded its libraries and filled its pool: until then it would take from what is measured beside it.
    async fn rested_server(&mut self) -> anyhow::Result<Address> {
        let address = self.server(Settings::default())?;
        throughput::quiet(&address).await?;
        Ok(address)
    }

    /// Process of the server, when it is known.
    fn server_pid(&self) -> Option<u32> {
        self.own.as_ref().map(OwnServer::pid).or(self.args.pid)
    }

    /// The plain interpreter, loaded; `None` when there is none.
    async fn plain(&mut self) -> anyhow::Result<Option<Rc<PlainFork>>> {
        if let (None, Ok(interpreter)) = (&self.fork, &self.interpreter) {
            self.fork = Some(Rc::new(PlainFork::start(interpreter, self.folder.path()).await?));
        }
        Ok(self.fork.clone())
    }

    /// Says in a section why it lacks the baseline, if it does.
    fn note_baseline(&self, section: &mut Section) {
        if let Err(why) = &self.interpreter {
            section.note(format!("plain fork: {why}"));
        }
    }
}

/// Does something and measures what a process and its descendants use meanwhile.
async fn metered(root: Option<u32>, work: impl Future<Output = Run>) -> (Run, Option<Usage>) {
    let meter = root.map(Meter::start);
    let run = work.await;
    (run, meter.map(Meter::stop))
}
