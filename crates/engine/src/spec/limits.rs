//! Limits: what is asked for, what the operator allows, what is in force.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::FieldError;

/// Limits as a caller may state them; what is absent gets the default.
// No field says `default`: serde would then read an empty array as an object without fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsRequest {
    /// Memory of all processes together, files in the workspace included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<i64>,
    /// Processor time per wall-clock time, in cores.
    #[serde(alias = "cpus", skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<i64>,
    /// All files of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<i64>,
    /// Largest single file; the disk limit by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size_mb: Option<i64>,
    /// Open descriptors of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<i64>,
    /// Output kept per stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_kb: Option<i64>,
    /// Whether there is a network. Only `false` for now: no sandbox has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
}

/// Limits in force, every one positive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Bytes of memory of all processes together.
    pub memory_bytes: u64,
    /// Cores.
    pub cpu: f64,
    /// Processes and threads.
    pub processes: u64,
    /// Bytes of all files together.
    pub disk_bytes: u64,
    /// Bytes of one file.
    pub file_size_bytes: u64,
    /// Descriptors of one process.
    pub open_files: u64,
    /// Bytes of output kept per stream.
    pub output_bytes: u64,
}

/// The operator's defaults and maxima.
#[derive(Debug, Clone)]
pub struct LimitPolicy {
    /// Used where a request is silent.
    pub default: Limits,
    /// Used where a request is silent.
    pub default_timeout: Duration,
    /// Nothing above this is accepted.
    pub max: Limits,
    /// Nothing above this is accepted.
    pub max_timeout: Duration,
    /// Longest source text, in bytes.
    pub max_code_bytes: usize,
    /// Most files in one request.
    pub max_files: usize,
    /// Most environment variables, and bytes of them together.
    pub max_env_bytes: usize,
}

impl Default for LimitPolicy {
    fn default() -> Self {
        const MB: u64 = 1 << 20;
        Self {
            default: Limits {
                memory_bytes: 512 * MB,
                cpu: 1.0,
                processes: 64,
                disk_bytes: 256 * MB,
                file_size_bytes: 256 * MB,
                open_files: 1024,
                output_bytes: 10 * MB,
            },
            default_timeout: Duration::from_secs(30),
            max: Limits {
                memory_bytes: 8192 * MB,
                cpu: 64.0,
                processes: 4096,
                disk_bytes: 8192 * MB,
                file_size_bytes: 8192 * MB,
                open_files: 65536,
                output_bytes: 64 * MB,
            },
            max_timeout: Duration::from_secs(300),
            max_code_bytes: 1 << 20,
            max_files: 1000,
            max_env_bytes: 64 << 10,
        }
    }
}

impl LimitsRequest {
    /// Checks every field against the operator's maxima.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self, policy: &LimitPolicy) -> Result<(), FieldError> {
        self.validate(policy).map(drop)
    }

    /// This with what it leaves out taken from `base`.
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        Self {
            memory_mb: self.memory_mb.or(base.memory_mb),
            cpu: self.cpu.or(base.cpu),
            processes: self.processes.or(base.processes),
            disk_mb: self.disk_mb.or(base.disk_mb),
            file_size_mb: self.file_size_mb.or(base.file_size_mb),
            open_files: self.open_files.or(base.open_files),
            output_kb: self.output_kb.or(base.output_kb),
            network: self.network.or(base.network),
        }
    }

    /// The operator's defaults with these in their place, none above its maximum.
    pub(crate) fn as_defaults(&self, policy: &LimitPolicy) -> Limits {
        let (default, max) = (&policy.default, &policy.max);
        let number = |given: Option<i64>, unit: u64, default: u64, max: u64| {
            given
                .and_then(|given| u64::try_from(given).ok())
                .map_or(default, |given| given.saturating_mul(unit))
                .min(max)
        };
        const MB: u64 = 1 << 20;
        let disk_bytes = number(self.disk_mb, MB, default.disk_bytes, max.disk_bytes);
        // Where only the disk is given a file may fill it.
        let file = if self.disk_mb.is_some() { disk_bytes } else { default.file_size_bytes };
        Limits {
            memory_bytes: number(self.memory_mb, MB, default.memory_bytes, max.memory_bytes),
            cpu: self.cpu.unwrap_or(default.cpu).min(max.cpu),
            processes: number(self.processes, 1, default.processes, max.processes),
            disk_bytes,
            file_size_bytes: number(self.file_size_mb, MB, file, max.file_size_bytes),
            open_files: number(self.open_files, 1, default.open_files, max.open_files),
            output_bytes: number(self.output_kb, 1024, default.output_bytes, max.output_bytes),
        }
    }

    pub(super) fn validate(&self, policy: &LimitPolicy) -> Result<Limits, FieldError> {
        const MB: u64 = 1 << 20;
        let (default, max) = (&policy.default, &policy.max);
        let megabytes = |field, given, least, most: u64, default: u64| -> Result<u64, FieldError> {
            Ok(bounded::<u64>(field, given, least, most / MB, (default / MB).max(least))? * MB)
        };
        if self.network == Some(true) {
            return Err(FieldError::new("limits.network", "must be false: this node gives no sandbox a network"));
        }
        let disk_bytes = megabytes("limits.disk_mb", self.disk_mb, 1, max.disk_bytes, default.disk_bytes)?;
        let cpu = self.cpu.unwrap_or(default.cpu);
        // Below a hundredth of a core the kernel's quota has no meaning. Written so that NaN fails too.
        if !(cpu >= 0.01 && cpu <= max.cpu) {
            return Err(FieldError::new("limits.cpu", format!("must be between 0.01 and {}, got {cpu}", max.cpu)));
        }
        Ok(Limits {
            memory_bytes: megabytes("limits.memory_mb", self.memory_mb, 16, max.memory_bytes, default.memory_bytes)?,
            cpu,
            processes: bounded("limits.processes", self.processes, 1, max.processes, default.processes)?,
            disk_bytes,
            file_size_bytes: megabytes(
                "limits.file_size_mb",
                self.file_size_mb,
                1,
                max.file_size_bytes,
                default.file_size_bytes,
            )?
            .min(disk_bytes),
            open_files: bounded("limits.open_files", self.open_files, 16, max.open_files, default.open_files)?,
            output_bytes: bounded::<u64>(
                "limits.output_kb",
                self.output_kb,
                1,
                max.output_bytes / 1024,
                (default.output_bytes / 1024).max(1),
            )? * 1024,
        })
    }
}

/// An absent number gets the default; zero, negative or above the maximum is refused, never taken for "unlimited".
pub(super) fn bounded<T: TryFrom<u64>>(
    field: &str,
    given: Option<i64>,
    least: u64,
    most: u64,
    default: u64,
) -> Result<T, FieldError> {
    let value = match given {
        None => default,
        Some(given) => u64::try_from(given)
            .ok()
            .filter(|value| (least..=most).contains(value))
            .ok_or_else(|| FieldError::new(field, format!("must be between {least} and {most}, got {given}")))?,
    };
    T::try_from(value).map_err(|_| FieldError::new(field, format!("must be between {least} and {most}, got {value}")))
}

#[cfg(test)]
mod tests {
    use super::super::tests::refused;

    #[test]
    fn zero_negative_and_huge_are_refused_by_name() {
        for value in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(refused(|r| r.timeout_ms = Some(value)), "timeout_ms");
            assert_eq!(refused(|r| r.limits.memory_mb = Some(value)), "limits.memory_mb");
            assert_eq!(refused(|r| r.limits.processes = Some(value)), "limits.processes");
            assert_eq!(refused(|r| r.limits.disk_mb = Some(value)), "limits.disk_mb");
            assert_eq!(refused(|r| r.limits.output_kb = Some(value)), "limits.output_kb");
            assert_eq!(refused(|r| r.limits.open_files = Some(value)), "limits.open_files");
            assert_eq!(refused(|r| r.limits.file_size_mb = Some(value)), "limits.file_size_mb");
        }
        for value in [0.0, -2.0, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(|r| r.limits.cpu = Some(value)), "limits.cpu");
        }
        assert_eq!(refused(|r| r.preview_rows = Some(501)), "preview_rows");
    }
}
