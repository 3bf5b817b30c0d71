//! What strangers can send, and what must hold whatever they send.
//!
//! Each target is a function from bytes to nothing that panics when a promise is broken. Most build what they need from the bytes with a
//! [`Source`], compare with a second, simpler reading of the same promise, and never only ask whether something crashes. The targets in
//! `fuzz_targets/` hand libFuzzer's inputs to them; `tests/replay.rs` hands them the seeds. See docs/adr/0016-fuzzing.md.

mod bodies;
mod config;
mod events;
mod files;
mod frames;
mod http;
mod landing;
mod messages;
mod output;
mod paths;
mod seccomp;
mod source;
mod tags;

pub use bodies::bodies;
pub use config::config;
pub use events::events;
pub use files::files;
pub use frames::frames;
pub use http::http;
pub use landing::landing;
pub use messages::messages;
pub use output::output;
pub use paths::paths;
pub use seccomp::seccomp;
pub use source::Source;
pub use tags::tags;

/// A function that panics when a promise is broken.
pub type Target = fn(&[u8]);

/// Every target under the name of its file and of its folder of seeds.
pub const TARGETS: [(&str, Target); 12] = [
    ("bodies", bodies),
    ("config", config),
    ("events", events),
    ("files", files),
    ("frames", frames),
    ("http", http),
    ("landing", landing),
    ("messages", messages),
    ("output", output),
    ("paths", paths),
    ("seccomp", seccomp),
    ("tags", tags),
];
