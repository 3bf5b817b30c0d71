//! The `fumehood` binary: command line, configuration, wiring. Only here are concrete choices named.
//!
//! A library only so that what reads text of strangers can be fuzzed; it promises nothing to anybody else.

mod cli;
mod client;
mod config;
mod doctor;
mod escape;
#[doc(hidden)]
pub mod fuzzing;
mod landing;
mod logging;
mod node;
mod operator;
mod templates;

use std::process::ExitCode;

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    // The jailer is this binary under another name: small, single-threaded, with an empty environment. See `fumehood_jail::jailer`.
    if std::env::args_os().next().is_some_and(|name| name == fumehood_jail::jailer::NAME) {
        return match fumehood_jail::jailer::run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("fumehood-jailer: {error}");
                ExitCode::FAILURE
            }
        };
    }
    cli::main()
}
