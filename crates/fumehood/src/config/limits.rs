//! `limits`: what executions get where they ask for nothing, and what they get at most.

use std::time::Duration;

use fumehood_engine::spec::{LimitPolicy, Limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MB;
use super::layers::Layers;

/// Limits of executions.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitSettings {
    /// Used where a request is silent.
    pub(crate) default: DefaultLimits,
    /// Nothing above this is accepted.
    pub(crate) max: MaxLimits,
    /// Longest source text, in KiB.
    pub(crate) max_code_kb: u64,
    /// Most files in one request.
    pub(crate) max_files: u64,
    /// KiB of all extra environment variables of one request.
    pub(crate) max_env_kb: u64,
}

impl Default for LimitSettings {
    fn default() -> Self {
        let policy = LimitPolicy::default();
        Self {
            default: DefaultLimits::default(),
            max: MaxLimits::default(),
            max_code_kb: policy.max_code_bytes as u64 / 1024,
            max_files: policy.max_files as u64,
            max_env_kb: policy.max_env_bytes as u64 / 1024,
        }
    }
}

impl LimitSettings {
    /// What no type can say; `most_output_kb` is what a run may print before it is ended.
    pub(super) fn check(&self, most_output_kb: u64, layers: &mut Layers) {
        /// 1 TiB in KiB: nothing that is meant exceeds it, and nothing below it overflows.
        const MOST: f64 = 1_073_741_824.0;
        for ((name, default), (_, max)) in self.default.numbers().into_iter().zip(self.max.numbers()) {
            let least = if name == "cpu" { 0.01 } else { 1.0 };
            for (section, value) in [("default", default), ("max", max)] {
                if !(least..=MOST).contains(&value) {
                    layers.refuse(&format!("limits.{section}.{name}"), format!("must be between {least} and {MOST}"));
                }
            }
            if default > max {
                layers.refuse(
                    &format!("limits.default.{name}"),
                    format!("must not exceed limits.max.{name}, which is {max}"),
                );
            }
        }
        if self.max.output_kb > most_output_kb {
            layers.refuse(
                "limits.max.output_kb",
                format!("must not exceed engine.output_hard_mb, which is {most_output_kb} KiB"),
            );
        }
    }

    /// Defaults and maxima of executions.
    pub(super) fn policy(&self) -> LimitPolicy {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        LimitPolicy {
            default: self.default.limits(),
            default_timeout: Duration::from_secs(self.default.timeout_s),
            max: self.max.limits(),
            max_timeout: Duration::from_secs(self.max.timeout_s),
            max_code_bytes: count(self.max_code_kb.saturating_mul(1024)),
            max_files: count(self.max_files),
            max_env_bytes: count(self.max_env_kb.saturating_mul(1024)),
        }
    }
}

macro_rules! limit_section {
    ($(#[$doc:meta])* $name:ident, $limits:ident, $timeout:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $name {
            /// MiB of memory of all processes together, files in the workspace included.
            pub(crate) memory_mb: u64,
            /// Cores.
            pub(crate) cpu: f64,
            /// Processes and threads.
            pub(crate) processes: u64,
            /// MiB of all files together.
            pub(crate) disk_mb: u64,
            /// MiB of one file.
            pub(crate) file_size_mb: u64,
            /// Descriptors of one process.
            pub(crate) open_files: u64,
            /// KiB of output kept of one stream.
            pub(crate) output_kb: u64,
            /// Seconds of wall clock.
            pub(crate) timeout_s: u64,
        }

        impl Default for $name {
            fn default() -> Self {
                let policy = LimitPolicy::default();
                let limits = policy.$limits;
                Self {
                    memory_mb: limits.memory_bytes / MB,
                    cpu: limits.cpu,
                    processes: limits.processes,
                    disk_mb: limits.disk_bytes / MB,
                    file_size_mb: limits.file_size_bytes / MB,
                    open_files: limits.open_files,
                    output_kb: limits.output_bytes / 1024,
                    timeout_s: policy.$timeout.as_secs(),
                }
            }
        }

        impl $name {
            fn limits(&self) -> Limits {
                Limits {
                    memory_bytes: self.memory_mb.saturating_mul(MB),
                    cpu: self.cpu,
                    processes: self.processes,
                    disk_bytes: self.disk_mb.saturating_mul(MB),
                    file_size_bytes: self.file_size_mb.saturating_mul(MB),
                    open_files: self.open_files,
                    output_bytes: self.output_kb.saturating_mul(1024),
                }
            }

            #[expect(clippy::cast_precision_loss, reason = "compared only, and far below 2^52 in sane configurations")]
            fn numbers(&self) -> [(&'static str, f64); 8] {
                [
                    ("memory_mb", self.memory_mb as f64),
                    ("cpu", self.cpu),
                    ("processes", self.processes as f64),
                    ("disk_mb", self.disk_mb as f64),
                    ("file_size_mb", self.file_size_mb as f64),
                    ("open_files", self.open_files as f64),
                    ("output_kb", self.output_kb as f64),
                    ("timeout_s", self.timeout_s as f64),
                ]
            }
        }
    };
}

limit_section!(
    /// Used where a request is silent.
    DefaultLimits,
    default,
    default_timeout
);
limit_section!(
    /// Nothing above this is accepted.
    MaxLimits,
    max,
    max_timeout
);
