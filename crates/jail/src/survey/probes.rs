//! What only calls can tell, without changing anything.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open, statvfs};
use serde::{Deserialize, Serialize};

use crate::sys;

/// Devices that levels are made with.
pub(super) const DEVICES: [&str; 4] = ["/dev/kvm", "/dev/net/tun", "/dev/vhost-vsock", "/dev/fuse"];

/// What calls said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Probes {
    /// Errors of calls that could not succeed, and of opening devices; 0 for success.
    pub errors: BTreeMap<String, i32>,
    /// Version of Landlock; 0 for none.
    pub landlock: i64,
    /// Why there is no Landlock, as an error number.
    pub landlock_error: i32,
    /// Bytes free where data lie.
    pub disk_free: Option<u64>,
}

impl Probes {
    /// Asks.
    #[must_use]
    pub fn take(data_dir: Option<&Path>) -> Self {
        let mut errors: BTreeMap<String, i32> =
            sys::attempts::attempt_calls().into_iter().map(|(name, error)| (name.to_owned(), error)).collect();
        for device in DEVICES {
            let opened = open(device, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
            errors.insert(device.to_owned(), opened.err().map_or(0, rustix::io::Errno::raw_os_error));
        }
        let version = sys::attempts::landlock_version();
        Self {
            errors,
            landlock: *version.as_ref().unwrap_or(&0),
            landlock_error: version.err().and_then(|error| error.raw_os_error()).unwrap_or(0),
            disk_free: data_dir.and_then(free_below),
        }
    }

    /// The error of a call; one that was not made has none.
    #[must_use]
    pub fn error(&self, name: &str) -> i32 {
        self.errors.get(name).copied().unwrap_or(0)
    }
}

/// Bytes free for this user where a folder lies or will lie.
fn free_below(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let found = statvfs(there).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
