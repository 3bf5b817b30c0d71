//! The least isolation that the operator accepts.

use fumehood_engine::spec::IsolationLevel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Isolation levels, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Floor {
    #[default]
    Process,
    Bubblewrap,
    Container,
    Gvisor,
    Microvm,
}

impl Floor {
    /// The level itself.
    pub(crate) fn level(self) -> IsolationLevel {
        match self {
            Self::Process => IsolationLevel::Process,
            Self::Bubblewrap => IsolationLevel::Bubblewrap,
            Self::Container => IsolationLevel::Container,
            Self::Gvisor => IsolationLevel::Gvisor,
            Self::Microvm => IsolationLevel::Microvm,
        }
    }
}

#[cfg(test)]
mod tests {
    use fumehood_jail::requirement::Requirement;

    use super::super::reference;

    #[test]
    fn every_layer_that_can_be_required_is_named_in_the_reference() {
        for requirement in Requirement::ALL {
            assert!(reference().contains(&format!("`{requirement}`")), "{requirement}");
        }
    }
}
