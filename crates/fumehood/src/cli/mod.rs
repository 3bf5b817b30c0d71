//! The command line.

mod attack;
mod bench;
mod config;
mod demo;
mod doctor;
mod image;
mod keys;
mod program;
mod remote;
mod run;
mod serve;
mod show;
mod table;
mod tenants;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::client::ClientError;
use crate::config::{Config, Flags, load};
use crate::escape::escaped_lines;

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
    /// Take jobs that servers of the same database have accepted, and run them here
    Worker {
        /// Address for `/health`, `/ready` and `/metrics`, which is all that is served
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
        listen: String,
        #[command(flatten)]
        common: Common,
    },
    /// Look at the jobs of a server, and try dead ones again
    Queue(remote::queue::QueueArgs),
    /// Run one program in a fresh sandbox, without a server
    Run(Box<run::RunArgs>),
    /// Run code on a server, in a session or a fresh sandbox
    Exec(Box<remote::exec::ExecArgs>),
    /// Open, look at and end the sessions of a server
    Session(remote::session::SessionArgs),
    /// Make, list, show and delete the templates of a server
    Template(remote::template::TemplateArgs),
    /// Copy files and folders to a session or from it
    Cp(remote::cp::CpArgs),
    /// List the files of a session
    Ls(remote::ls::LsArgs),
    /// List what runs and waits on a server: executions and sessions
    Ps(remote::ps::PsArgs),
    /// Show what an execution printed
    Logs(remote::logs::LogsArgs),
    /// End executions that run or wait on a server
    Cancel(remote::cancel::CancelArgs),
    /// Build and list images
    Image {
        #[command(subcommand)]
        command: image::ImageCommand,
        #[command(flatten)]
        common: Common,
    },
    /// Make, list, revoke and rotate API keys, in the database of this machine's server
    Key {
        #[command(subcommand)]
        command: keys::KeyCommand,
        #[command(flatten)]
        common: Common,
    },
    /// Make, list, change and remove tenants, in the database of this machine's server
    Tenant {
        #[command(subcommand)]
        command: tenants::TenantCommand,
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
    /// Look at this host: which isolation works here, what is missing, and how to get it
    Doctor(doctor::DoctorArgs),
    /// Run hostile programs in sandboxes of this host, and tell what each of them got
    Attack(Box<attack::AttackArgs>),
    /// Print the OpenAPI description of the HTTP interface
    Openapi,
    /// Print a script with which a shell completes these commands
    #[command(after_help = COMPLETION)]
    Completion {
        /// Which shell
        shell: Shell,
    },
}

const COMPLETION: &str = "\
bash: fumehood completion bash > ~/.local/share/bash-completion/completions/fumehood
zsh:  fumehood completion zsh > a file _fumehood in a folder of $fpath
fish: fumehood completion fish > ~/.config/fish/completions/fumehood.fish";

/// The command line makes no sense, in a way that only its meaning shows.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

impl Usage {
    fn of(message: impl Into<String>) -> anyhow::Error {
        Self(message.into()).into()
    }
}

/// Nobody reads standard output any more. Told to nobody: who closed it knows.
#[derive(Debug, thiserror::Error)]
#[error("standard output was closed")]
struct OutputClosed;

/// A signal ended the command, Ctrl-C for example. Whoever sent it knows too.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted(u8);

impl Interrupted {
    /// Exit code that shells give to an end by Ctrl-C.
    const CODE: u8 = 128 + 2;

    fn by_ctrl_c() -> anyhow::Error {
        Self(Self::CODE).into()
    }
}

/// The command went on after something that it could not do, and has said so.
#[derive(Debug, thiserror::Error)]
#[error("not everything could be done")]
struct Incomplete(u8);

/// Seconds, or a number with a unit: ms, s, m, h, d.
fn seconds(text: &str) -> Result<f64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        other => return Err(format!("{other:?} is no unit; there are ms, s, m, h, d")),
    };
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number * unit),
        _ => Err("must be a number of seconds, or a number with a unit: 90, 500ms, 10m, 2h, 1d".to_owned()),
    }
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
    let matches = Cli::command().get_matches();
    if key_in_sight(&matches) {
        let message = "everybody on this machine can read the flags of a program, and so the key: put it into FUMEHOOD_API_KEY, or a \
                       file for --api-key-file\n";
        Cli::command().error(clap::error::ErrorKind::ArgumentConflict, message).exit();
    }
    let command = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command;
    let done = match command {
        Command::Serve { listen, common } => common.load(listen).and_then(|config| serve::main(&config)),
        Command::Worker { listen, common } => common.load(Some(listen)).and_then(|config| worker::main(&config)),
        Command::Queue(args) => remote::queue::main(&args),
        Command::Run(args) => run::main(&args),
        Command::Exec(args) => remote::exec::main(&args),
        Command::Session(args) => remote::session::main(&args),
        Command::Template(args) => remote::template::main(&args),
        Command::Cp(args) => remote::cp::main(&args),
        Command::Ls(args) => remote::ls::main(&args),
        Command::Ps(args) => remote::ps::main(&args),
        Command::Logs(args) => remote::logs::main(&args),
        Command::Cancel(args) => remote::cancel::main(&args),
        Command::Image { command, common } => common.load(None).and_then(|config| image::main(&config, command)),
        Command::Key { command, common } => common.load(None).and_then(|config| keys::main(&config, command)),
        Command::Tenant { command, common } => common.load(None).and_then(|config| tenants::main(&config, command)),
        Command::Config { command } => config::main(command),
        Command::Demo { common } => common.load(None).and_then(|config| demo::main(&config)),
        Command::Bench(args) => bench::main(*args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Attack(args) => attack::main(&args),
        Command::Openapi => show::write_out(&fumehood_server::openapi_json()).map(|()| ExitCode::SUCCESS),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "fumehood", &mut script);
            show::write_out(&String::from_utf8_lossy(&script)).map(|()| ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|error| tell(&error))
}

/// Whether the key of a server was given as a flag. It is an argument only so that clap reads it from the environment.
fn key_in_sight(matches: &ArgMatches) -> bool {
    let mut matches = matches;
    loop {
        // Asked for by a name that the command may not have.
        if let Ok(Some(_)) = matches.try_get_raw(remote::KEY)
            && matches.value_source(remote::KEY) == Some(clap::parser::ValueSource::CommandLine)
        {
            return true;
        }
        match matches.subcommand() {
            Some((_, below)) => matches = below,
            None => return false,
        }
    }
}

/// One chain, once: what happened, then why.
fn tell(error: &anyhow::Error) -> ExitCode {
    /// What a shell says of a program that wrote to a closed pipe.
    const PIPE: u8 = 128 + 13;
    const USAGE: u8 = 2;
    if error.is::<OutputClosed>() {
        return ExitCode::from(PIPE);
    }
    if let Some(Interrupted(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    if let Some(Incomplete(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    show::note(&escaped_lines(&format!("{error:#}")));
    if error.is::<Usage>() {
        return ExitCode::from(USAGE);
    }
    match error.downcast_ref::<ClientError>() {
        Some(error) => ExitCode::from(error.exit_code()),
        None => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_may_have_a_unit() {
        for (text, expected) in
            [("90", 90.0), ("1.5", 1.5), ("500ms", 0.5), ("2m", 120.0), ("1h", 3600.0), ("1d", 86400.0)]
        {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for bad in ["", "-1", "1w", "x", "inf", "NaN", "1 m", "m"] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }
}
