//! `fumehood attack`: runs every hostile program and request of `tests/attack` on the installed host, and tells what each of them got.
//!
//! ```text
//! programs, requests --> Scene::run, Scene::play --> Target: engine and HTTP server of this process --> sandboxes
//!                            |                            |
//!      Canaries: the host's things   Neighbour: another customer's sandbox
//!                            v
//!                   Trial (held, broken, ...) --> Report
//! ```
//!
//! Attacks are harmless if they succeed: they touch only what was put there to be touched, and what they exhaust is limited twice.
//! docs/attacks.md tells how to add one.

mod canaries;
mod neighbour;
mod program;
mod report;
mod scenario;
mod target;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use fumehood_engine::EngineConfig;
use fumehood_engine::image::DEFAULT_IMAGE;
use fumehood_jail::{Layer, Without};
use futures::StreamExt;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Map, Value, json};

use super::bench::churn::Left;
use super::show::write_out;
use super::table::table;
use super::{Common, Usage};
use crate::config::Config;
use crate::escape::escaped_lines;
use crate::node::Node;
use canaries::Canaries;
use neighbour::Neighbour;
use program::{Preludes, Program};
use report::{Judgement, Report};
use scenario::Scenario;
use target::{Patience, Target, Way};
use trial::{Scene, Trial};

const EXIT_CODES: &str = "\
Exit codes:
  0    everything held
  1    something got what it must not get
  2    something could not be tried, or something was left behind";

/// What is not gone by then is left over.
const GONE_BY: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct AttackArgs {
    /// Leave out a layer of confinement, and see that the others hold: only what that layer alone stops may get through; may be repeated
    #[arg(long, value_name = "LAYER")]
    without: Vec<Layer>,
    /// Do that with one layer after the other, each time with the attacks that name it
    #[arg(long, conflicts_with = "without")]
    layers: bool,
    /// Isolation level to attack [default: every one that this host can run]
    #[arg(long, value_parser = ["process"])]
    level: Option<String>,
    /// Only attacks whose name (category/name) contains this; may be repeated
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Print what there is and what stops it, and try nothing
    #[arg(long)]
    list: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Attacks at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    at_once: u16,
    /// Seconds after which nothing more is tried; what is left is reported as untried
    #[arg(long, value_name = "S", default_value_t = 900)]
    deadline: u64,
    /// Give everything but what is about running out of time so many times as long; for slow and emulated machines
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    patience: u16,
    /// A folder like tests/attack, instead of what ships in this program
    #[arg(long, value_name = "DIR")]
    suite: Option<PathBuf>,
    /// A secret of this process, for attacks to look for; made by the command itself
    #[arg(long, env = "FUMEHOOD_ATTACK_SECRET", hide = true)]
    secret: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Everything that is tried.
struct Suite {
    programs: Vec<Program>,
    scenarios: Vec<Scenario>,
    preludes: Preludes,
}

impl Suite {
    fn load(folder: Option<&Path>, only: &[String]) -> anyhow::Result<Self> {
        let chosen = |name: &str| only.is_empty() || only.iter().any(|pattern| name.contains(pattern));
        let mut programs = program::programs(folder)?;
        programs.retain(|program| chosen(&program.name));
        let mut scenarios = scenario::scenarios(folder)?;
        scenarios.retain(|scenario| chosen(&scenario.name));
        Ok(Self { programs, scenarios, preludes: Preludes::load(folder)? })
    }

    /// The programs that a layer stops, alone or with others.
    fn naming(&self, layer: Layer) -> Self {
        let names = |program: &&Program| program.stopped_by.iter().any(|name| name == layer.name());
        let programs = self.programs.iter().filter(names).cloned().collect();
        Self { programs, scenarios: Vec::new(), preludes: self.preludes.clone() }
    }

    /// Name, sentence and layers of each.
    fn entries(&self) -> Vec<(&str, &str, &[String])> {
        let programs = self.programs.iter().map(|one| (&*one.name, &*one.tries, &*one.stopped_by));
        let scenarios = self.scenarios.iter().map(|one| (&*one.name, &*one.tries, &*one.stopped_by));
        let mut entries: Vec<_> = programs.chain(scenarios).collect();
        entries.sort_unstable();
        entries
    }

    fn categories(&self) -> BTreeSet<String> {
        self.entries().iter().filter_map(|(name, ..)| Some(name.split_once('/')?.0.to_owned())).collect()
    }
}

pub(super) fn main(args: &AttackArgs) -> anyhow::Result<ExitCode> {
    let suite = Suite::load(args.suite.as_deref(), &args.only)?;
    if args.list {
        return list(&suite, args.json).map(|()| ExitCode::SUCCESS);
    }
    let nothing = suite.programs.is_empty() && suite.scenarios.is_empty();
    if nothing {
        return Err(Usage::of("--only: there is no attack of that name; --list names all"));
    }
    let Some(secret) = &args.secret else { return mark() };
    let config = args.common.load(None)?;
    let metrics = fumehood_server::metrics::install().context("cannot begin to count")?;
    let own = Own { secret, metrics };
    if args.layers {
        return layers(args, &config, &suite, &own);
    }
    let report = attack(args, &config, &suite, &own, &args.without)?;
    tell(args, &report, || report.text())?;
    Ok(report.judgement().exit_code())
}

fn tell(args: &AttackArgs, report: &impl serde::Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    let text =
        if args.json { serde_json::to_string_pretty(report)? + "\n" } else { escaped_lines(&text()).into_owned() };
    write_out(&text)
}

/// A layer, with the one that has to be left out with it for anything to reach it: a closed call is what leads to a keyring.
fn with_what_hides(layer: Layer) -> Vec<Layer> {
    if layer == Layer::Keyring { vec![layer, Layer::Seccomp] } else { vec![layer] }
}

/// Leaves out one layer after the other.
fn layers(args: &AttackArgs, config: &Config, suite: &Suite, own: &Own<'_>) -> anyhow::Result<ExitCode> {
    let mut reports = Vec::new();
    for layer in Layer::ALL {
        let naming = suite.naming(layer);
        if naming.programs.is_empty() && !args.only.is_empty() {
            continue;
        }
        let left_out = with_what_hides(layer);
        reports.push(attack(args, config, &naming, own, &left_out)?);
    }
    tell(args, &reports, || report::layers_text(&reports))?;
    let worst = reports.iter().map(Report::judgement).max().unwrap_or(Judgement::AllHeld);
    Ok(worst.exit_code())
}

/// Becomes the same command with a secret in its environment: a process cannot put one there later in a way that others see.
fn mark() -> anyhow::Result<ExitCode> {
    let binary = std::env::current_exe().context("cannot find this program's own file")?;
    let arguments = std::env::args_os().skip(1);
    let error = Command::new(binary).args(arguments).env("FUMEHOOD_ATTACK_SECRET", canaries::secret()).exec();
    Err(error).context("cannot start this program again")
}

fn list(suite: &Suite, json: bool) -> anyhow::Result<()> {
    let entries = suite.entries();
    if json {
        let all: Vec<Value> = entries
            .iter()
            .map(|(name, tries, stopped_by)| json!({"name": name, "tries": tries, "stopped_by": stopped_by}))
            .collect();
        return write_out(&(serde_json::to_string_pretty(&all)? + "\n"));
    }
    let rows: Vec<_> = entries
        .iter()
        .map(|(name, tries, stopped_by)| [(*name).to_owned(), stopped_by.join(", "), (*tries).to_owned()])
        .collect();
    write_out(&format!("{}\n{} attacks\n", table(["ATTACK", "STOPPED BY", "TRIES"], &rows), rows.len()))
}

/// What this process has once, however many installations it attacks.
struct Own<'a> {
    /// In its environment, and the key of its service.
    secret: &'a str,
    metrics: PrometheusHandle,
}

/// Starts an installation of its own, attacks it, and looks at what is left.
fn attack(
    args: &AttackArgs,
    config: &Config,
    suite: &Suite,
    own: &Own<'_>,
    without: &[Layer],
) -> anyhow::Result<Report> {
    let begun = Instant::now();
    let data = tempfile::Builder::new().prefix("fumehood-attacked-").tempdir().context("cannot make a folder")?;
    let engine = EngineConfig { artifacts_dir: data.path().to_owned(), pool: None, ..config.engine() };
    // Before the jailer is there, which inherits it.
    let key = fumehood_jail::plant_key(c"fumehood-attack", own.secret.as_bytes()).is_ok().then_some("planted");
    // Nothing is forked where a layer is switched off: the interpreter in between would have to do without it too.
    let (mut node, jailer) =
        Node::prepare_without(config, engine, DEFAULT_IMAGE, Without::these(without.iter().copied()))?;
    if let (Some(zygote), true) = (config.zygote(), without.is_empty()) {
        node = node.with_zygote(zygote, config.ordinary()?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(async {
        let patience = Patience::new(args.patience, config);
        let target = Target::start(config, node, own.secret, own.metrics.clone(), patience).await?;
        let tried =
            all(args, suite, &target, own.secret, key, without, begun + Duration::from_secs(args.deadline)).await;
        target.end().await;
        tried
    });
    drop(runtime);
    jailer.wait();
    let (features, trials, complaints) = done?;
    let mut report = Report::new(
        features,
        without.iter().map(|layer| layer.name()).collect(),
        begun.elapsed().as_secs_f64(),
        trials,
    );
    report.complaints.extend(complaints);
    Ok(report)
}

/// What the host says of itself, what came of the attacks, and what is wrong besides.
type Tried = (Map<String, Value>, Vec<Trial>, Vec<String>);

async fn all(
    args: &AttackArgs,
    suite: &Suite,
    target: &Target,
    secret: &str,
    key: Option<&str>,
    without: &[Layer],
    deadline: Instant,
) -> anyhow::Result<Tried> {
    // Without a layer nothing is forked, and what the interface refuses is refused all the same.
    let ways = if without.is_empty() { &[Way::Forked, Way::Executed][..] } else { &[Way::Executed] };
    let scenarios = if without.is_empty() { &suite.scenarios[..] } else { &[] };
    // What the host notices is told of all that run at once, and now something will be noticed.
    let at_once = if without.is_empty() { args.at_once.into() } else { 1 };
    if without.is_empty() {
        target.forking().await?;
    }
    let canaries = Canaries::place().await?;
    let theirs = canaries::secret();
    let mut neighbours = BTreeMap::new();
    for way in ways {
        neighbours.insert(*way, Neighbour::move_in(target, *way, &theirs).await?);
    }
    let first = target.execute(json!({"code": "1"}), Way::Executed).await?;
    let features = first["isolation"]["features"].as_object().cloned().context("an execution without isolation")?;
    let mut facts = canaries.facts().clone();
    facts["key"] = key.into();
    facts["api_port"] = target.address.port().into();
    facts["neighbour"] = neighbours[&Way::Executed].facts.clone();
    let secrets =
        vec![("the service", secret.to_owned()), ("the host", canaries.secret().to_owned()), ("the neighbour", theirs)];
    let scene = Scene {
        target,
        neighbours: &neighbours,
        canaries: Mutex::new(canaries),
        facts,
        preludes: &suite.preludes,
        secrets,
        features: features.clone(),
        isolated_network: !without.contains(&Layer::NetworkNamespace),
        without_landlock: without.contains(&Layer::Landlock),
        without_own_uid: without.contains(&Layer::OwnUid),
        deadline,
        running: Mutex::default(),
        memory_mb: Mutex::new(trial::resident_mb()),
    };
    let names: Vec<&str> = without.iter().map(|layer| layer.name()).collect();
    let before = Left::of_process(std::process::id());
    let (mut trials, mut complaints) = (Vec::new(), Vec::new());
    for category in suite.categories() {
        let mut attacks = Vec::new();
        for program in suite.programs.iter().filter(|program| program.category() == category) {
            // Only Python is forked.
            let ways = if program.language == "python" { ways } else { &[Way::Executed] };
            attacks.extend(ways.iter().map(|way| futures::future::Either::Left(scene.run(program, *way))));
        }
        for scenario in scenarios.iter().filter(|scenario| scenario.name.starts_with(&format!("{category}/"))) {
            attacks.push(futures::future::Either::Right(scene.play(scenario, Way::Forked)));
        }
        let of_category: Vec<Trial> = futures::stream::iter(attacks).buffer_unordered(at_once).collect().await;
        let reached = of_category.iter().any(|trial| report::is_expected(trial, &names));
        trials.extend(of_category);
        if Instant::now() >= deadline {
            continue;
        }
        for neighbour in neighbours.values() {
            let told = neighbour.complaints(target).await;
            if reached {
                // By an attack that only what was left out would have stopped.
                continue;
            }
            complaints.extend(told.into_iter().map(|complaint| format!("after {category}: {complaint}")));
        }
    }
    trials.sort_by(|a, b| (&a.name, a.way).cmp(&(&b.name, b.way)));
    let not_forked = target.not_forked().await?;
    if not_forked > 0 {
        complaints.push(format!("{not_forked} attacks were to be forked, and were not"));
    }
    let after = settled(&before, deadline.min(Instant::now() + target.patience.of(GONE_BY))).await;
    if Instant::now() >= deadline {
        // What was given up is still there, and ends with the installation.
        complaints.push("the deadline has passed before it could be seen what is left over (--deadline)".to_owned());
    } else if after.more_than(&before) {
        complaints.push(format!("something is left over. Before: {}. After: {}", before.text(), after.text()));
    }
    drop(scene);
    for neighbour in neighbours.into_values() {
        complaints.extend(neighbour.move_out(target).await);
    }
    ensure!(!trials.is_empty(), "nothing was tried");
    Ok((features, trials, complaints))
}

/// What belongs to this process, once nothing is there that was not there before.
async fn settled(before: &Left, deadline: Instant) -> Left {
    loop {
        let now = Left::of_process(std::process::id());
        if !now.more_than(before) || Instant::now() >= deadline {
            return now;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_that_can_be_left_out_is_known_and_has_attacks_that_only_it_stops() {
        let suite = Suite::load(None, &[]).unwrap();
        for layer in Layer::ALL {
            assert!(program::LAYERS.iter().any(|(name, _)| *name == layer.name()), "{layer}");
            let names: Vec<_> = with_what_hides(layer).iter().map(|layer| layer.name()).collect();
            let alone = |program: &&Program| program.stopped_by.iter().all(|name| names.contains(&name.as_str()));
            assert!(
                suite.naming(layer).programs.iter().any(|program| alone(&program)),
                "nothing shows that {layer} is needed"
            );
        }
    }

    #[test]
    fn the_suite_is_well_formed_and_large_and_no_two_attacks_say_the_same() {
        let suite = Suite::load(None, &[]).unwrap();
        let entries = suite.entries();
        assert!(suite.programs.len() >= 150, "{} programs", suite.programs.len());
        let sentences: BTreeSet<_> = entries.iter().map(|(_, tries, _)| tries).collect();
        let names: BTreeSet<_> = entries.iter().map(|(name, ..)| name).collect();
        assert_eq!((sentences.len(), names.len()), (entries.len(), entries.len()));
    }

    #[test]
    fn the_pages_count_what_there_is() {
        let suite = Suite::load(None, &[]).unwrap();
        let page = include_str!("../../../../../docs/attacks.md");
        let entries = suite.entries();
        for category in suite.categories() {
            let begins = format!("{category}/");
            let count = entries.iter().filter(|(name, ..)| name.starts_with(&begins)).count();
            assert!(page.contains(&format!("\n| {category} | {count} | ")), "docs/attacks.md: {category} are {count}");
        }
        let (programs, requests) = (suite.programs.len(), suite.scenarios.len());
        let all = entries.len();
        let sum = format!("\n{all} attacks: {programs} programs and {requests} sequences of requests.\n");
        assert!(page.contains(&sum), "docs/attacks.md: {sum}");
        for (file, text) in [
            ("README.md", include_str!("../../../../../README.md")),
            ("CHANGELOG.md", include_str!("../../../../../CHANGELOG.md")),
        ] {
            assert!(text.contains(&format!("runs {all} hostile")), "{file}: {all}");
        }
    }
}
