//! Landlock: a second, independent line for files, and the only one for signals and abstract sockets across sandboxes.
//!
//! Used where the kernel has it; the state in force is part of every result.

use ::landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};

use crate::error::{At, JailError, Step};
use crate::sys;

/// The newest version used.
const NEWEST: ABI = ABI::V6;

/// Places where a sandbox may write.
const WRITABLE: [&str; 6] = ["/data", "/tmp", "/var/tmp", "/home/sandbox", "/dev", "/proc"];

/// What the kernel offers, for reports.
pub(crate) fn state() -> &'static str {
    match sys::landlock_version() {
        0 => "unavailable",
        1 => "abi 1",
        2 => "abi 2",
        3 => "abi 3",
        4 => "abi 4",
        5 => "abi 5",
        _ => "abi 6",
    }
}

/// Keeps this process, and what it forks, from signals and abstract sockets outside, where the kernel can. Files stay as they are: rules for
/// files hold for good, and what is forked from a zygote sees other mounts.
pub(crate) fn restrict_scope() -> Result<(), JailError> {
    if sys::landlock_version() < 6 {
        return Ok(());
    }
    let ruleset = Ruleset::default().scope(Scope::from_all(NEWEST)).at(Step::Landlock, "scope")?;
    let status = ruleset.create().at(Step::Landlock, "ruleset")?.restrict_self().at(Step::Landlock, "")?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(JailError::new(Step::Landlock, "", "the kernel has it but did not enforce it"));
    }
    Ok(())
}

/// Restricts this process and what it becomes. Where the kernel has no Landlock nothing happens (and [`state`] says so);
/// where it has, every failure is an error.
pub(crate) fn restrict() -> Result<(), JailError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .at(Step::Landlock, "file access")?
        .scope(Scope::from_all(NEWEST))
        .at(Step::Landlock, "scope")?
        .create()
        .at(Step::Landlock, "ruleset")?;
    let root = PathFd::new("/").at(Step::Landlock, "/")?;
    let mut ruleset = ruleset.add_rule(PathBeneath::new(root, AccessFs::from_read(NEWEST))).at(Step::Landlock, "/")?;
    for place in WRITABLE {
        let folder = PathFd::new(place).at(Step::Landlock, place)?;
        ruleset = ruleset.add_rule(PathBeneath::new(folder, AccessFs::from_all(NEWEST))).at(Step::Landlock, place)?;
    }
    // That is a layer of its own, and set before.
    let status = ruleset.no_new_privs(false).restrict_self().at(Step::Landlock, "")?;
    if status.ruleset == RulesetStatus::NotEnforced && state() != "unavailable" {
        return Err(JailError::new(Step::Landlock, "", "the kernel has it but did not enforce it"));
    }
    Ok(())
}
