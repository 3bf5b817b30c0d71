//! The machine a report comes from.

use std::fs;

use serde::Serialize;

/// What figures depend on.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    cpu: String,
    pub(super) cores: usize,
    memory_mb: u64,
    kernel: String,
    /// Load average of the last minute before the first scenario: what else ran.
    load_before: f64,
    /// Whether the binary is one for measuring.
    optimised: bool,
}

impl Machine {
    pub(super) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned()).unwrap_or_default()
        };
        let memory = after(&read("/proc/meminfo"), "MemTotal");
        Self {
            cpu: after(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mb: memory.split(' ').next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or_default() / 1024,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            load_before: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default(),
            optimised: !cfg!(debug_assertions),
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { cpu, cores, memory_mb, kernel, load_before, optimised } = self;
        let build = if *optimised { "" } else { "; DEBUG BUILD, for trying out only" };
        format!("{cores} cores of {cpu}, {memory_mb} MiB, Linux {kernel}; load before: {load_before}{build}")
    }
}
