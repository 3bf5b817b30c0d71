//! `fumehood worker`: takes jobs that servers of the same database have accepted, and runs them here.

use std::process::ExitCode;

use super::serve::{Role, main_as};
use crate::config::Config;

/// `fumehood worker`.
///
/// # Errors
/// When something cannot start; each says what to do.
pub(super) fn main(config: &Config) -> anyhow::Result<ExitCode> {
    main_as(config, Role::Worker)
}
