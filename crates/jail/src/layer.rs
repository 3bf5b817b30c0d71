//! The layers of confinement, by name, so that each can be shown to hold without the others.
//!
//! A jailer can be told to leave layers out ([`crate::protocol::JailerConfig::without`]). That exists for the attack suite alone: no
//! configuration leads there, what is left out is reported as off, and such a jailer makes no zygotes.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Processes of others are not there.
    PidNamespace,
    /// System V IPC and POSIX message queues of others are not there.
    IpcNamespace,
    /// Network interfaces and abstract sockets of others are not there.
    NetworkNamespace,
    /// A host uid that no other living sandbox has, where the jailer is root.
    OwnUid,
    /// No capability in any set.
    Capabilities,
    /// Exec raises nothing.
    NoNewPrivileges,
    /// Closed system calls.
    Seccomp,
    /// Landlock's rules.
    Landlock,
    /// Limits of memory, processor and processes of the whole sandbox.
    Cgroup,
    /// Limits of single processes, and of what its user namespace may hold of the kernel.
    Rlimits,
    /// Dangerous parts of `/proc` covered or read-only.
    CoveredProc,
    /// Everything of the image read-only.
    ReadOnly,
    /// A keyring that holds nothing of the host's.
    Keyring,
}

impl Layer {
    /// Every layer.
    pub const ALL: [Self; 13] = [
        Self::PidNamespace,
        Self::IpcNamespace,
        Self::NetworkNamespace,
        Self::OwnUid,
        Self::Capabilities,
        Self::NoNewPrivileges,
        Self::Seccomp,
        Self::Landlock,
        Self::Cgroup,
        Self::Rlimits,
        Self::CoveredProc,
        Self::ReadOnly,
        Self::Keyring,
    ];

    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PidNamespace => "pid_namespace",
            Self::IpcNamespace => "ipc_namespace",
            Self::NetworkNamespace => "network_namespace",
            Self::OwnUid => "own_uid",
            Self::Capabilities => "capabilities",
            Self::NoNewPrivileges => "no_new_privileges",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::Cgroup => "cgroup",
            Self::Rlimits => "rlimits",
            Self::CoveredProc => "covered_proc",
            Self::ReadOnly => "read_only",
            Self::Keyring => "keyring",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|layer| layer.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|layer| layer.name()).collect();
            format!("{text:?} is no layer; there are {}", names.join(", "))
        })
    }
}

/// Which layers are in force: all but those left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Without(BTreeSet<Layer>);

impl Without {
    /// All layers but these.
    pub fn these(layers: impl IntoIterator<Item = Layer>) -> Self {
        Self(layers.into_iter().collect())
    }

    /// Whether a layer is in force.
    #[must_use]
    pub fn keeps(&self, layer: Layer) -> bool {
        !self.0.contains(&layer)
    }

    /// Whether every layer is in force.
    #[must_use]
    pub fn nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left out.
    pub fn iter(&self) -> impl Iterator<Item = Layer> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_has_one_name_everywhere() {
        for layer in Layer::ALL {
            assert_eq!(layer.name().parse(), Ok(layer));
            assert_eq!(serde_json::to_value(layer).unwrap(), layer.name());
        }
        assert!("everything".parse::<Layer>().is_err());
    }

    #[test]
    fn unless_told_otherwise_every_layer_is_in_force() {
        assert!(Layer::ALL.into_iter().all(|layer| Without::default().keeps(layer)));
        let without = Without::these([Layer::Seccomp]);
        assert!(!without.keeps(Layer::Seccomp) && without.keeps(Layer::Landlock) && !without.nothing());
    }
}
