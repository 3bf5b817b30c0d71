//! The `fumehood` binary: command line, configuration, wiring. Only here are concrete choices named.

mod cli;
mod client;
mod config;
mod doctor;
mod escape;
mod landing;
mod logging;
mod node;

use std::process::ExitCode;

fn main() -> ExitCode {
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
