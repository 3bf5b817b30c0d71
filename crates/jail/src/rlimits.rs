//! Resource limits of a single process: a second line behind the cgroup, and the only one for files and descriptors.

use std::fs;
use std::io::{self, Write};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{At, JailError, Step};
use crate::protocol::JailLimits;

/// No core files, which would be written where the host decides. At 0 a crash would still start the host's program for them (a
/// `core_pattern` that begins with `|`); at 1 the kernel starts none, and a file of one byte is none.
const NO_CORE: u64 = 1;

/// Sets hard and soft limits. Only lowers them: raising needs a capability that even root may lack.
pub(crate) fn apply(limits: &JailLimits) -> Result<(), JailError> {
    const MB: u64 = 1 << 20;
    let wanted = [
        (Resource::Core, NO_CORE),
        (Resource::Fsize, limits.file_size_bytes),
        // Counted per user namespace, so it holds for the sandbox alone. Above the cgroup's limit, so that the cgroup is the
        // one that refuses and counts.
        (Resource::Nproc, limits.processes + 64),
        // Kernel memory that other counters miss.
        (Resource::Memlock, 8 * MB),
        (Resource::Msgqueue, MB),
        (Resource::Sigpending, 1024),
        // No real-time scheduling, no raised priority.
        (Resource::Rtprio, 0),
        (Resource::Nice, 0),
        // Deep recursion in Python needs the usual stack; unlimited would change how memory is laid out.
        (Resource::Stack, 8 * MB),
    ];
    wanted.into_iter().try_for_each(|(resource, value)| lower(resource, value))
}

/// The limit of descriptors, once nothing more is sent to the jailer: by it the kernel also decides who may send any while too many of the same
/// uid are under way. An ordinary user's sandboxes share the uid of server and jailer, which are to be able to when no sandbox is any more.
pub(crate) fn apply_to_descriptors(limits: &JailLimits, own_uid: bool) -> Result<(), JailError> {
    let theirs = getrlimit(Resource::Nofile).maximum;
    let most = if own_uid { limits.open_files } else { below(limits.open_files, theirs) };
    lower(Resource::Nofile, most)
}

/// At most half of what server and jailer have: the kernel looks before it counts, so that those who send at the same time go beyond their limit.
fn below(wanted: u64, theirs: Option<u64>) -> u64 {
    theirs.map_or(wanted, |theirs| wanted.min(theirs / 2))
}

/// Gives this process as many descriptors as it may have. A login gives 1024, which is also the most that may be under way from an ordinary user's
/// processes to anybody before this one can send none.
///
/// # Errors
/// When the kernel refuses, which it does not.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

fn lower(resource: Resource, value: u64) -> Result<(), JailError> {
    let hard = getrlimit(resource).maximum.map_or(value, |hard| hard.min(value));
    setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })
        .at(Step::SetLimits, format!("{resource:?}"))
}

/// Limits of what a sandbox's user namespace may hold of the kernel, by file below `/proc/sys/user`. Its own namespaces are there already; no process
/// in it makes more, but for the cgroup namespace of each program.
const NAMESPACE_LIMITS: [(&str, u64); 10] = [
    ("max_user_namespaces", 0),
    ("max_mnt_namespaces", 0),
    ("max_pid_namespaces", 0),
    ("max_net_namespaces", 0),
    ("max_ipc_namespaces", 0),
    ("max_uts_namespaces", 0),
    ("max_time_namespaces", 0),
    // Of these the host allows a user few, which sandboxes share: see `SHARED`.
    ("max_inotify_instances", 16),
    ("max_inotify_watches", 16_384),
    ("max_fanotify_groups", 0),
];

/// What the host allows a user, by file below `/proc/sys/fs`. An ordinary user's sandboxes have one user together, and the forks of a zygote share some of it:
/// each may have a part only, however small the machine is.
const SHARED: [(&str, &str); 2] =
    [("max_inotify_instances", "inotify/max_user_instances"), ("max_inotify_watches", "inotify/max_user_watches")];

/// That part.
const SHARE: u64 = 16;

/// The limit of what the host allows a user `theirs` of.
fn share(most: u64, theirs: Option<u64>) -> u64 {
    theirs.map_or(most, |theirs| most.min(theirs / SHARE).max(1))
}

/// The limits of this process's user namespace, to be set when everything is mounted: a mount that is being made counts as a namespace.
pub(crate) struct NamespaceLimits(Vec<(&'static str, fs::File, u64)>);

impl NamespaceLimits {
    /// Opens them below `folder` (`/proc/sys`), which may become read-only afterwards.
    pub(crate) fn open(folder: &str) -> Result<Self, JailError> {
        let theirs = |name: &str| {
            let (_, file) = SHARED.iter().find(|(shared, _)| *shared == name)?;
            fs::read_to_string(format!("{folder}/fs/{file}")).ok()?.trim().parse().ok()
        };
        let open = |(name, most)| match fs::File::options().write(true).open(format!("{folder}/user/{name}")) {
            Ok(file) => Some(Ok((name, file, share(most, theirs(name))))),
            // Not every kernel counts everything.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(JailError::new(Step::SetLimits, name, error))),
        };
        NAMESPACE_LIMITS.into_iter().filter_map(open).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn set(self) -> Result<(), JailError> {
        self.0.into_iter().try_for_each(|(name, mut file, most)| {
            file.write_all(most.to_string().as_bytes()).at(Step::SetLimits, name)
        })
    }
}

/// Of a zygote: only what is the same for all its forks, which could not raise it again.
pub(crate) fn apply_to_zygote() -> Result<(), JailError> {
    setrlimit(Resource::Core, Rlimit { current: Some(NO_CORE), maximum: Some(NO_CORE) }).at(Step::SetLimits, "Core")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_that_shares_its_uid_has_fewer_descriptors_than_those_who_watch_it() {
        assert_eq!(below(1024, Some(524_288)), 1024);
        assert_eq!(below(65_536, Some(4096)), 2048);
        assert_eq!(below(65_536, None), 65_536);
    }

    #[test]
    fn of_what_a_user_shares_each_sandbox_may_have_a_sixteenth() {
        // A small machine, a large one, one that allows next to nothing, and one that does not say.
        assert_eq!(share(16_384, Some(8192)), 512);
        assert_eq!(share(16_384, Some(1_048_576)), 16_384);
        assert_eq!(share(16, Some(128)), 8);
        assert_eq!(share(16, Some(3)), 1);
        assert_eq!(share(16, None), 16);
        assert!(SHARED.iter().all(|(name, _)| NAMESPACE_LIMITS.iter().any(|(known, _)| known == name)));
    }
}
