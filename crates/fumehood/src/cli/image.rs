//! `fumehood image`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use fumehood_engine::image::{DEFAULT_IMAGE, HostImage, Image, build_host, build_rootfs, folder_of, remove};

use crate::config::Config;
use crate::node::NO_HOME;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// The host's /usr read-only, plus a virtual environment of locked packages
    Host,
    /// A root file system of its own, from a folder or a tar archive
    Rootfs,
}

#[derive(Debug, Subcommand)]
pub(super) enum ImageCommand {
    /// Build an image, or find it current
    Build {
        /// Its name
        #[arg(default_value = DEFAULT_IMAGE)]
        name: String,
        /// Its kind
        #[arg(long, value_enum, default_value_t = Kind::Host)]
        kind: Kind,
        /// For rootfs: a folder or a tar archive
        #[arg(long, value_name = "PATH")]
        from: Option<PathBuf>,
        /// For host: the interpreter, below /usr
        #[arg(long, value_name = "PATH", default_value = "/usr/bin/python3")]
        python: PathBuf,
        /// Build even if nothing has changed
        #[arg(long)]
        force: bool,
    },
    /// List images
    List,
    /// Print the folder of an image
    Path {
        /// Its name
        #[arg(default_value = DEFAULT_IMAGE)]
        name: String,
    },
    /// Remove an image; servers that have it open keep it until they end
    Remove {
        /// Its name
        name: String,
    },
}

pub(super) fn main(config: &Config, command: ImageCommand) -> anyhow::Result<ExitCode> {
    let images_dir = config.images_dir().context(NO_HOME)?;
    let mut say = |line: &str| eprintln!("{line}");
    match command {
        ImageCommand::Build { name, kind: Kind::Host, from, python, force } => {
            if from.is_some() {
                bail!("--from is for --kind rootfs");
            }
            build_host(&images_dir, &HostImage { name, python, force }, &mut say)?;
        }
        ImageCommand::Build { name, kind: Kind::Rootfs, from, .. } => {
            let from = from.context("--kind rootfs needs --from, a folder or a tar archive")?;
            build_rootfs(&images_dir, &name, &from, &mut say)?;
        }
        ImageCommand::List => {
            for image in Image::list(&images_dir) {
                println!(
                    "{}\t{:?}\tpython {}\t{}",
                    image.name,
                    image.kind,
                    image.python_version,
                    image.folder.display()
                );
            }
        }
        ImageCommand::Path { name } => println!("{}", folder_of(&images_dir, &name)?.display()),
        ImageCommand::Remove { name } => remove(&images_dir, &name)?,
    }
    Ok(ExitCode::SUCCESS)
}
