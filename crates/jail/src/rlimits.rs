//! Resource limits of a single process: a second line behind the cgroup, and the only one for files and descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{At, JailError, Step};
use crate::protocol::JailLimits;

/// Sets hard and soft limits. Only lowers them: raising needs a capability that even root may lack.
pub(crate) fn apply(limits: &JailLimits) -> Result<(), JailError> {
    const MB: u64 = 1 << 20;
    let wanted = [
        // A core file would be written where the host decides.
        (Resource::Core, 0),
        (Resource::Fsize, limits.file_size_bytes),
        (Resource::Nofile, limits.open_files),
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
    for (resource, value) in wanted {
        let hard = getrlimit(resource).maximum.map_or(value, |hard| hard.min(value));
        setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })
            .at(Step::SetLimits, format!("{resource:?}"))?;
    }
    Ok(())
}

/// Of a zygote: only what is the same for all its forks, which could not raise it again.
pub(crate) fn apply_to_zygote() -> Result<(), JailError> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).at(Step::SetLimits, "Core")
}
