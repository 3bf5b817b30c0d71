//! What the operator decides about the engine.

use std::path::PathBuf;
use std::time::Duration;

use crate::pool::PoolConfig;

/// What the operator decides about the engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Executions at once.
    pub max_concurrent: usize,
    /// Bytes that the memory limits of executions running at once may add up to; those beyond wait.
    pub memory_bytes: u64,
    /// Executions waiting beyond that; the next is refused.
    pub queue_size: usize,
    /// Sessions open at once. Their memory limits may add up to more than the node has: most are idle.
    pub max_sessions: usize,
    /// Finished executions kept.
    pub keep_executions: usize,
    /// Bytes of finished executions kept, artifacts not counted.
    pub keep_bytes: usize,
    /// Bytes of artifacts kept.
    pub keep_artifact_bytes: u64,
    /// A sandbox that is not ready by then is our fault.
    pub start_timeout: Duration,
    /// Bytes of output per stream after which a run is ended.
    pub output_hard_bytes: u64,
    /// Bytes of displays of one execution kept.
    pub max_display_bytes: usize,
    /// Bytes of one execution's result value.
    pub max_result_bytes: u64,
    /// Variables described in a result.
    pub max_variables: u32,
    /// Bytes of artifacts of one execution.
    pub max_artifact_bytes: u64,
    /// Where artifacts are kept.
    pub artifacts_dir: PathBuf,
    /// Folder of the host that every sandbox sees as `/data/shared`, read-only.
    pub shared_dir: Option<PathBuf>,
    /// Sandboxes that wait ready; `None` for none.
    pub pool: Option<PoolConfig>,
}

impl EngineConfig {
    /// Defaults, with artifacts below `data_dir`.
    #[must_use]
    pub fn new(data_dir: &std::path::Path) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            max_concurrent: (cores * 4).max(8),
            memory_bytes: memory_of_this_machine(),
            queue_size: 256,
            max_sessions: 1000,
            keep_executions: 1000,
            keep_bytes: 256 << 20,
            keep_artifact_bytes: 1 << 30,
            start_timeout: Duration::from_secs(30),
            output_hard_bytes: 64 << 20,
            max_display_bytes: 64 << 20,
            max_result_bytes: 1 << 20,
            max_variables: 100,
            max_artifact_bytes: 256 << 20,
            artifacts_dir: data_dir.join("artifacts"),
            shared_dir: None,
            pool: None,
        }
    }
}

/// What the kernel says; without bound where it says nothing.
fn memory_of_this_machine() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.map_or(u64::MAX, |kilobytes| kilobytes * 1024)
}
