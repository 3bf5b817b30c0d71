//! What a server with this configuration would find on this host: levels of isolation, what is missing, and how it can be had.
//!
//! What can be seen comes from [`fumehood_jail::survey`]; whether the process level works is tried, with the same jailer that a server starts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use fumehood_engine::image::{DEFAULT_IMAGE, Image};
use fumehood_engine::spec::IsolationLevel;
use fumehood_jail::jailer::{Jailer, StartError};
use fumehood_jail::requirement::{Requirement, shortfalls};
use fumehood_jail::survey::{CgroupVersion, Facts, Files, Finding, Group, Host, HostFiles, State, findings};
use serde::Serialize;

use crate::config::Config;
use crate::node::{NO_HOME, STRONGEST};

/// Everything that the doctor says.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Of this program.
    pub(crate) version: &'static str,
    pub(crate) host: Host,
    /// Effective uid of this process.
    pub(crate) uid: u32,
    pub(crate) cgroups: CgroupVersion,
    /// The weakest first.
    pub(crate) levels: Vec<Level>,
    pub(crate) floor: Floor,
    pub(crate) image: Check,
    pub(crate) data_dir: Check,
    pub(crate) findings: Vec<Finding>,
}

/// An isolation level on this host.
#[derive(Debug, Serialize)]
pub(crate) struct Level {
    pub(crate) level: IsolationLevel,
    pub(crate) state: LevelState,
    /// In a sentence.
    pub(crate) detail: String,
    /// Step of setting up a sandbox that fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_step: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// What it works without.
    pub(crate) lacks: Vec<Lack>,
    /// Each layer and what is in force, as in every result.
    pub(crate) features: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LevelState {
    /// All of it works.
    Usable,
    /// It works, with something missing.
    Degraded,
    /// Nothing runs with it.
    Unusable,
}

/// Something that a level works without.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Lack {
    /// Of a layer that can be required, or of a finding.
    pub(crate) name: String,
    pub(crate) detail: String,
    pub(crate) why: &'static str,
    pub(crate) remedy: String,
}

/// What the configuration insists on.
#[derive(Debug, Serialize)]
pub(crate) struct Floor {
    pub(crate) level: IsolationLevel,
    pub(crate) require: Vec<Requirement>,
    /// Whether a server with this configuration would start, as far as isolation goes.
    pub(crate) met: bool,
    /// Why not.
    pub(crate) unmet: Vec<String>,
}

/// Something that a server needs besides.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) ok: bool,
    pub(crate) detail: String,
}

/// Looks at this host, and tries a sandbox. Must be called before any runtime exists.
///
/// # Errors
/// When this program cannot start itself as a jailer.
pub(crate) fn examine(config: &Config) -> anyhow::Result<Report> {
    let jailer = config.jailer();
    let data_dir = config.data_dir().context(NO_HOME)?;
    let facts = Facts::take(&jailer, Some(&data_dir));
    let binary = std::env::current_exe().context("cannot find this program's own file")?;
    let tried = match Jailer::start(Command::new(binary), &jailer) {
        Ok(Jailer { link, mut process }) => {
            let features = link.features.clone();
            drop(link);
            process.wait().context("the jailer could not be waited for")?;
            Ok(features)
        }
        Err(error) => Err(error),
    };
    let findings = findings(&facts);
    let process = process_level(tried, &facts, &findings);
    let floor = floor(config, &process);
    let others =
        [IsolationLevel::Bubblewrap, IsolationLevel::Container, IsolationLevel::Gvisor, IsolationLevel::Microvm];
    let levels = std::iter::once(process).chain(others.into_iter().map(|level| not_built(level, &findings))).collect();
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        uid: facts.own.uid,
        cgroups: facts.cgroups.version,
        levels,
        floor,
        image: image(config)?,
        data_dir: folder(&data_dir),
        findings,
        host: facts.host,
    })
}

fn process_level(tried: Result<Vec<(String, String)>, StartError>, facts: &Facts, findings: &[Finding]) -> Level {
    let level = IsolationLevel::Process;
    let unusable = |detail: String, failed_step, remedy| Level {
        level,
        state: LevelState::Unusable,
        detail,
        failed_step,
        remedy,
        lacks: Vec::new(),
        features: BTreeMap::new(),
    };
    let features = match tried {
        Ok(features) => features,
        Err(StartError::Unusable(why)) => {
            return unusable(why.error.to_string(), Some(why.error.step.to_string()), why.remedy);
        }
        Err(error) => return unusable(format!("{:#}", anyhow::Error::new(error)), None, None),
    };
    let layers = shortfalls(&Requirement::ALL, &features, facts).into_iter().map(|short| Lack {
        name: short.name.to_string(),
        detail: short.detail,
        why: short.why,
        remedy: short.remedy,
    });
    let lacks: Vec<Lack> = layers.chain(findings.iter().filter_map(tight)).collect();
    let (state, detail) = match lacks.is_empty() {
        true => (LevelState::Usable, "everything it consists of is in force".to_owned()),
        false => {
            let names: Vec<_> = lacks.iter().map(|lack| lack.name.as_str()).collect();
            (LevelState::Degraded, format!("works without: {}", names.join(", ")))
        }
    };
    let features = features.into_iter().collect();
    Level { level, state, detail, failed_step: None, remedy: None, lacks, features }
}

/// What the trial cannot show: resources that it works without, and that many sandboxes may need. Layers are told by the trial itself.
fn tight(finding: &Finding) -> Option<Lack> {
    let tight = finding.group == Group::Resources && finding.levels.contains(&"process");
    let remedy = finding.remedy.clone().filter(|_| tight)?;
    Some(Lack { name: finding.name.clone(), detail: finding.detail.clone(), why: finding.why, remedy })
}

/// A level without a backend, with what the host would have for one.
fn not_built(level: IsolationLevel, findings: &[Finding]) -> Level {
    let own = |finding: &&Finding| {
        matches!(finding.group, Group::Programs | Group::Devices)
            && finding.levels.contains(&level.to_string().as_str())
    };
    let there: Vec<_> = findings
        .iter()
        .filter(own)
        .filter(|finding| finding.state == State::Available)
        .map(|finding| finding.name.as_str())
        .collect();
    let host = match there.is_empty() {
        true => "the host has nothing of it".to_owned(),
        false => format!("the host has {}", there.join(", ")),
    };
    Level {
        level,
        state: LevelState::Unusable,
        detail: format!("not built in this version; {host}"),
        failed_step: None,
        remedy: None,
        lacks: Vec::new(),
        features: BTreeMap::new(),
    }
}

fn floor(config: &Config, process: &Level) -> Floor {
    let level = config.isolation_floor.level();
    let mut unmet = Vec::new();
    if level > STRONGEST {
        unmet.push(format!(
            "isolation_floor: '{level}' is asked for at least, and this version has nothing above '{STRONGEST}'"
        ));
    }
    if process.state == LevelState::Unusable {
        unmet.push("nothing can be confined on this host".to_owned());
    }
    for required in &config.isolation_require {
        if let Some(lack) = process.lacks.iter().find(|lack| lack.name == required.name()) {
            unmet.push(format!("isolation_require: {required} is not in force ({})", lack.detail));
        }
    }
    Floor { level, require: config.isolation_require.clone(), met: unmet.is_empty(), unmet }
}

fn image(config: &Config) -> anyhow::Result<Check> {
    let images = config.images_dir().context(NO_HOME)?;
    Ok(match Image::open(&images, DEFAULT_IMAGE) {
        Ok(image) => {
            let notes = image.notes.iter().map(|note| format!("; {note}")).collect::<String>();
            Check {
                ok: true,
                detail: format!("{:?} in {}, Python {}{notes}", image.name, images.display(), image.python_version),
            }
        }
        Err(error) => Check { ok: false, detail: format!("{:#}", anyhow::Error::new(error)) },
    })
}

fn folder(folder: &Path) -> Check {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let ok = HostFiles.writable(&there.to_string_lossy());
    let detail = match (there == folder, ok) {
        (true, true) => format!("{} can be written", folder.display()),
        (false, true) => format!("{} is not there yet and can be made", folder.display()),
        (_, false) => format!("{} cannot be written; pass --data-dir, or set data_dir", folder.display()),
    };
    Check { ok, detail }
}
