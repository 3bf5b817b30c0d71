//! `fumehood config`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use crate::config::{Flags, load, reference};

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Say whether the configuration is right, file and environment together
    Check {
        /// Configuration file, TOML or YAML
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Print every key with its type, default and meaning, as Markdown
    Reference,
}

pub(super) fn main(command: ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Reference => print!("{}", reference()),
        ConfigCommand::Check { file } => match load(file.as_deref(), &Flags::default()) {
            Ok(_) => println!("ok"),
            Err(problems) => {
                eprintln!("{problems}");
                return Ok(ExitCode::FAILURE);
            }
        },
    }
    Ok(ExitCode::SUCCESS)
}
