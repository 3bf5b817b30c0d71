//! The command line.

mod bench;
mod config;
mod demo;
mod image;
mod run;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, Flags, load};

/// Runs untrusted code behind glass: safe for the host, visible to its owner.
#[derive(Debug, Parser)]
#[command(name = "fumehood", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the HTTP interface
    Serve {
        /// Address to listen on
        #[arg(long, value_name = "ADDR")]
        listen: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Run one program in a fresh sandbox, without a server
    Run(Box<run::RunArgs>),
    /// Build and list images
    Image {
        #[command(subcommand)]
        command: image::ImageCommand,
        #[command(flatten)]
        common: Common,
    },
    /// Check the configuration or print its reference
    Config {
        #[command(subcommand)]
        command: config::ConfigCommand,
    },
    /// Analyse a small data set in a sandbox and show what came out
    Demo {
        #[command(flatten)]
        common: Common,
    },
    /// Measure what an execution costs, next to what the same costs without a sandbox
    Bench(Box<bench::BenchArgs>),
    /// Print the OpenAPI description of the HTTP interface
    Openapi,
}

/// Flags of every command that uses the configuration.
#[derive(Debug, Clone, Default, Args)]
struct Common {
    /// Configuration file, TOML or YAML
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Where data are kept [default: /var/lib/fumehood for root, the XDG data folder otherwise]
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,
    /// Where images are kept [default: `images` in the data folder]
    #[arg(long, value_name = "DIR", global = true)]
    images_dir: Option<PathBuf>,
}

impl Common {
    fn load(&self, listen: Option<String>) -> anyhow::Result<Config> {
        let flags = Flags { listen, data_dir: self.data_dir.clone(), images_dir: self.images_dir.clone() };
        Ok(load(self.config.as_deref(), &flags)?)
    }
}

/// Parses the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve { listen, common } => common.load(listen).and_then(|config| serve::main(&config)),
        Command::Run(args) => run::main(&args),
        Command::Image { command, common } => common.load(None).and_then(|config| image::main(&config, command)),
        Command::Config { command } => config::main(command),
        Command::Demo { common } => common.load(None).and_then(|config| demo::main(&config)),
        Command::Bench(args) => bench::main(*args),
        Command::Openapi => {
            print!("{}", fumehood_server::openapi_json());
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|error| {
        // One chain, once: what happened, then why.
        eprintln!("fumehood: {error:#}");
        ExitCode::FAILURE
    })
}
