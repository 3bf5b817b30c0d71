//! Entrances of the fuzz targets (`fuzz/`), for nobody else.

use std::io::Write;
use std::path::{Path, PathBuf};

use fumehood_engine::spec::{FieldError, LimitPolicy};

use crate::config::{self, Flags};
use crate::landing::Landing;

/// What follows from a configuration that is accepted.
pub struct Configured {
    /// Defaults and maxima.
    pub policy: LimitPolicy,
    /// The first field of an ordinary execution that is refused.
    pub ordinary: Result<(), FieldError>,
    /// Whether what it listens on is open to others without a key.
    pub open_without_key: bool,
    /// As it would be logged.
    pub debug: String,
}

/// Reads a configuration; all that is wrong with it, as it would be shown.
///
/// # Errors
/// What is wrong with it.
pub fn configure(file: &Path, environment: Vec<(String, String)>) -> Result<Configured, String> {
    let config =
        config::load_from(Some(file), environment, &Flags::default()).map_err(|problems| problems.to_string())?;
    let mut server = config.server();
    let begins = config.address().ok().filter(|address| server.listen_on(*address, true).is_ok());
    let beyond = begins.is_some_and(|address| !address.ip().to_canonical().is_loopback());
    Ok(Configured {
        policy: config.limit_policy(),
        ordinary: config.ordinary().and_then(|_| config.pool()).map(drop),
        open_without_key: beyond && !server.demands_key(),
        debug: format!("{config:?} {:?} {:?} {:?}", config.engine(), config.server(), config.zygote()),
    })
}

/// A folder that files of a sandbox are written into.
pub struct Land(Landing);

impl Land {
    /// Opens it.
    ///
    /// # Errors
    /// When it cannot be made or opened.
    pub fn open(folder: &Path) -> Result<Self, String> {
        Landing::open(folder).map(Self).map_err(|error| format!("{error:#}"))
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// When it is refused, as it would be shown.
    pub fn make(&self, name: &str) -> Result<(), String> {
        self.0.make(name).map_err(|error| format!("{error:#}"))
    }

    /// Writes a file, whole or, with `keep` false, only begun. Where it is.
    ///
    /// # Errors
    /// When it is refused, as it would be shown.
    pub fn write(&self, name: &str, content: &[u8], keep: bool) -> Result<Option<PathBuf>, String> {
        let mut arriving = self.0.create(name).map_err(|error| format!("{error:#}"))?;
        arriving.file.write_all(content).map_err(|error| error.to_string())?;
        keep.then(|| arriving.keep()).transpose().map_err(|error| format!("{error:#}"))
    }
}

/// The data of events in a stream that comes in pieces.
pub fn event_lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    crate::client::event_lines(pieces)
}

/// A text as it is shown on a terminal; with `lines` its line ends stay.
#[must_use]
pub fn shown(text: &str, lines: bool) -> String {
    if lines { crate::escape::escaped_lines(text).into_owned() } else { crate::escape::escaped(text).into_owned() }
}
