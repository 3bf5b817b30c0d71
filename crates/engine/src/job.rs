//! How an execution that is accepted now and runs later is to be treated: fields of a request that are about the job, not about what runs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How urgent a job is; within the same tenant one that is more urgent goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// When nothing else waits.
    Low,
    /// As it comes.
    #[default]
    Normal,
    /// Before the others.
    High,
}

impl Priority {
    /// From the least urgent to the most.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// A number that grows with the urgency.
    #[must_use]
    pub fn rank(self) -> u8 {
        self as u8
    }

    /// The one of this number.
    #[must_use]
    pub fn of_rank(rank: i64) -> Option<Self> {
        usize::try_from(rank).ok().and_then(|rank| Self::ALL.get(rank).copied())
    }
}

/// What happens when the server that runs a job goes away meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryRequest {
    /// So often it is begun at most, 1 to 10. With 1, the default, a job whose server goes away is `lost`; with more it waits again and
    /// its code runs once more from the beginning. How the code itself ends never makes it run again.
    pub max_attempts: Option<i64>,
}
