//! One node of Fumehood: starts sandboxes through a [`backend`], runs executions in them and keeps what became of them.
//!
//! ```text
//! ExecutionRequest --validate--> ExecutionSpec --Engine::submit--> Record --driver--> Execution
//!                                                                   |
//!                                                                EventLog (replay, live)
//! ```
//!
//! Everything about the kernel is in `fumehood-jail`; everything about HTTP is in `fumehood-server`.

mod admission;
pub mod artifacts;
pub mod backend;
pub mod clock;
pub mod config;
mod driver;
pub mod engine;
pub mod event;
pub mod execution;
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
mod hex;
pub mod ids;
pub mod image;
pub mod input;
pub mod job;
pub mod output;
pub mod pool;
mod pools;
pub mod quota;
mod record;
pub mod refusals;
pub mod runner;
pub mod session;
pub mod spec;
pub mod template;
mod verdict;

/// Modules that a preloaded interpreter has loaded unless the operator says otherwise. Each costs every fork a little and saves those
/// programs that use it much; see docs/benchmarks.md.
pub const DEFAULT_PRELOAD: [&str; 6] = ["asyncio", "numpy", "pandas", "scipy.stats", "matplotlib.pyplot", "seaborn"];

pub use config::EngineConfig;
pub use engine::{Archive, Ended, Engine, ListFilter, Load, SubmitError, Ticket};
pub use record::Stream;
