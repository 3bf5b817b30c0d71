//! Layers that some hosts do not give, so that the operator can insist on them.
//!
//! All other layers are in force wherever anything runs: a host that lacks one of those is refused as it is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::jailer::JailerLink;
use crate::protocol::JailerConfig;
use crate::survey::{Facts, Trouble};

/// A layer that a host may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requirement {
    /// Each sandbox has a host uid of its own.
    OwnUid,
    /// Landlock restricts files.
    Landlock,
    /// Landlock restricts signals and abstract sockets.
    LandlockScopes,
    /// The host hears of system calls that were refused.
    RefusedCalls,
    /// Swapped memory counts against the memory limit.
    SwapLimit,
    /// Sandboxes can be made to stand still.
    Pause,
}

/// A requirement that is not met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shortfall {
    /// Which.
    pub name: Requirement,
    /// What there is instead.
    pub detail: String,
    /// What it is for.
    pub why: &'static str,
    /// How it can be had on this host.
    pub remedy: String,
}

/// What is required and not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Lacking(pub Vec<Shortfall>);

fn lines(shortfalls: &[Shortfall]) -> String {
    let line = |Shortfall { name, detail, remedy, .. }: &Shortfall| {
        format!("isolation_require: {name} is not in force ({detail}); {remedy}")
    };
    shortfalls.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Requirement {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::OwnUid, Self::Landlock, Self::LandlockScopes, Self::RefusedCalls, Self::SwapLimit, Self::Pause];

    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OwnUid => "own_uid",
            Self::Landlock => "landlock",
            Self::LandlockScopes => "landlock_scopes",
            Self::RefusedCalls => "refused_calls",
            Self::SwapLimit => "swap_limit",
            Self::Pause => "pause",
        }
    }

    fn why(self) -> &'static str {
        match self {
            Self::OwnUid => "what a sandbox reaches by a bug elsewhere belongs to a user that has nothing",
            Self::Landlock => "a second, independent line between a sandbox and files",
            Self::LandlockScopes => {
                "a second, independent line between a sandbox and signals or abstract sockets of others"
            }
            Self::RefusedCalls => "results say which system call was refused, and what to do instead",
            Self::SwapLimit => "a sandbox at its memory limit cannot push the rest into the host's swap",
            Self::Pause => "idle sessions can be paused",
        }
    }

    /// What a jailer says of it, unless it is met.
    fn unmet(self, features: &[(String, String)]) -> Option<&str> {
        let (layer, met): (_, fn(&str) -> bool) = match self {
            Self::OwnUid => ("host_uid", |state| state.starts_with("own ")),
            Self::Landlock => ("landlock", |state| landlock_version(state) >= 1),
            Self::LandlockScopes => ("landlock", |state| landlock_version(state) >= 6),
            Self::RefusedCalls => ("refused_calls", |state| state == "told"),
            Self::SwapLimit => ("swap", |state| state == "limited" || state.starts_with("none ")),
            Self::Pause => ("pause", |state| matches!(state, "freezer" | "cgroup.freeze")),
        };
        let state = features.iter().find(|(name, _)| name == layer).map_or("not reported", |(_, state)| state);
        (!met(state)).then_some(state)
    }

    fn trouble(self, facts: &Facts) -> Trouble {
        match self {
            Self::OwnUid => Trouble::SharedUid,
            Self::Landlock | Self::LandlockScopes => Trouble::of_landlock(facts),
            Self::RefusedCalls => Trouble::FilterListens,
            Self::SwapLimit => Trouble::SwapNotAccounted,
            Self::Pause => Trouble::NoFreezer,
        }
    }
}

fn landlock_version(state: &str) -> u32 {
    state.strip_prefix("abi ").and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Those of `wanted` that are not in force with these features of a jailer.
#[must_use]
pub fn shortfalls(wanted: &[Requirement], features: &[(String, String)], facts: &Facts) -> Vec<Shortfall> {
    let short = |&name: &Requirement| {
        let detail = name.unmet(features)?.to_owned();
        Some(Shortfall { name, detail, why: name.why(), remedy: facts.remedy(name.trouble(facts)) })
    };
    wanted.iter().filter_map(short).collect()
}

/// Refuses a jailer that gives less than is wanted.
///
/// # Errors
/// What it lacks.
pub fn check(wanted: &[Requirement], link: &JailerLink, config: &JailerConfig) -> Result<(), Lacking> {
    if wanted.iter().all(|wanted| wanted.unmet(&link.features).is_none()) {
        return Ok(());
    }
    Err(Lacking(shortfalls(wanted, &link.features, &Facts::take(config, None))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(layer, state)| ((*layer).to_owned(), (*state).to_owned())).collect()
    }

    #[test]
    fn a_requirement_is_met_only_by_a_state_that_is_known_to_meet_it() {
        let all = features(&[
            ("host_uid", "own uid per sandbox"),
            ("landlock", "abi 6"),
            ("refused_calls", "told"),
            ("swap", "limited"),
            ("pause", "freezer"),
        ]);
        assert!(Requirement::ALL.into_iter().all(|requirement| requirement.unmet(&all).is_none()));
        let none = features(&[
            ("host_uid", "shared: the server's own uid (not run by root)"),
            ("landlock", "off"),
            ("refused_calls", "not told: another filter of this process listens already"),
            ("swap", "not limited: the kernel does not account it"),
            ("pause", "none: there is no folder for this server in the freezer hierarchy"),
        ]);
        for requirement in Requirement::ALL {
            assert!(requirement.unmet(&none).is_some() && requirement.unmet(&[]).is_some(), "{requirement}");
        }
        let older = features(&[("landlock", "abi 5")]);
        assert_eq!(Requirement::Landlock.unmet(&older), None);
        assert_eq!(Requirement::LandlockScopes.unmet(&older), Some("abi 5"));
    }

    #[test]
    fn names_are_those_of_json() {
        for requirement in Requirement::ALL {
            assert_eq!(serde_json::to_value(requirement).unwrap(), requirement.name());
        }
    }
}
