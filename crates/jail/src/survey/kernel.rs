//! Features and switches of the kernel.

use std::collections::{BTreeMap, BTreeSet};

use super::{Files, Mount};

/// Kinds of namespaces: name in `/proc/self/ns`, name in `user.max_…_namespaces`, what each is for.
pub(super) const NAMESPACES: [(&str, &str, &str); 8] = [
    ("user", "user", "ids of a sandbox mean nothing outside it, and root does not exist inside"),
    ("pid", "pid", "processes of others are not there, and all of a sandbox end together"),
    ("mnt", "mnt", "a sandbox sees its image and its own disk, nothing else"),
    ("net", "net", "there is no network but the sandbox itself"),
    ("ipc", "ipc", "shared memory and message queues of others are not there"),
    ("uts", "uts", "the host's name stays the host's"),
    ("cgroup", "cgroup", "names of control groups tell nothing of the host"),
    ("time", "time", "clocks of a sandbox could differ from the host's; not used yet"),
];

/// What the kernel has, and how it is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Kinds of namespaces it has.
    pub namespaces: BTreeSet<&'static str>,
    /// Most namespaces of a kind, by the kind.
    pub most_namespaces: BTreeMap<&'static str, u64>,
    /// Debian's switch for user namespaces of ordinary users, where there is one.
    pub userns_clone: Option<bool>,
    /// AppArmor takes the rights of user namespaces away from ordinary users.
    pub apparmor_restricts_userns: bool,
    /// What a seccomp filter may do; empty where there is none.
    pub seccomp_actions: Vec<String>,
    /// Security modules in force, where that can be read.
    pub modules: Option<Vec<String>>,
    /// The kernel puts file systems over one another, without loading a module first.
    pub overlay: bool,
    /// There is swap space in use.
    pub swap: bool,
    /// Parts of `/proc` that something is mounted over.
    pub covered_proc: Vec<String>,
    /// How the kernel promises memory: 2 refuses what it could not give.
    pub overcommit: Option<u64>,
    /// Highest number of a process.
    pub pid_max: Option<u64>,
    /// Most threads of the machine.
    pub threads_max: Option<u64>,
    /// Most files that the event polls of one user may watch.
    pub event_polls: Option<u64>,
    /// Who may attach to whom.
    pub ptrace_scope: Option<u64>,
    /// Bytes of memory that could be had now.
    pub memory_available: Option<u64>,
    /// Programs of other levels that were found, by name.
    pub programs: BTreeMap<&'static str, String>,
    /// Docker's socket is there and this process may use it.
    pub docker: Option<bool>,
}

/// Programs that other levels are made with.
pub(super) const PROGRAMS: [&str; 6] = ["bwrap", "runc", "crun", "runsc", "firecracker", "qemu-system-x86_64"];

/// Where programs of the system lie.
const FOLDERS: [&str; 5] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/opt/bin"];

/// Places below `/proc` where a machine mounts something too.
const USUAL: [&str; 2] = ["/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd"];

const DOCKER: &str = "/var/run/docker.sock";

impl Kernel {
    pub(super) fn read(files: &dyn Files, mounts: &[Mount]) -> Self {
        let read = |path: &str| files.read(path).unwrap_or_default();
        let number = |path: &str| files.read(path)?.trim().parse::<u64>().ok();
        let switch = |name: &str| number(&format!("/proc/sys/kernel/{name}"));
        let kinds = NAMESPACES.map(|(kind, ..)| kind);
        let limit = |(kind, name, _)| Some((kind, number(&format!("/proc/sys/user/max_{name}_namespaces"))?));
        let program = |name| {
            let paths = FOLDERS.into_iter().map(|folder| format!("{folder}/{name}"));
            Some((name, paths.into_iter().find(|path| files.exists(path))?))
        };
        Self {
            namespaces: kinds.into_iter().filter(|kind| files.exists(&format!("/proc/self/ns/{kind}"))).collect(),
            most_namespaces: NAMESPACES.into_iter().filter_map(limit).collect(),
            userns_clone: switch("unprivileged_userns_clone").map(|value| value != 0),
            apparmor_restricts_userns: switch("apparmor_restrict_unprivileged_userns").is_some_and(|value| value != 0),
            seccomp_actions: words(&read("/proc/sys/kernel/seccomp/actions_avail"), ' '),
            modules: files.read("/sys/kernel/security/lsm").map(|text| words(&text, ',')),
            overlay: read("/proc/filesystems").lines().any(|line| line.trim_start_matches("nodev").trim() == "overlay"),
            // One line is the heading.
            swap: read("/proc/swaps").lines().count() > 1,
            covered_proc: covered_proc(mounts),
            overcommit: number("/proc/sys/vm/overcommit_memory"),
            pid_max: switch("pid_max"),
            threads_max: switch("threads-max"),
            event_polls: number("/proc/sys/fs/epoll/max_user_watches"),
            ptrace_scope: switch("yama/ptrace_scope"),
            memory_available: memory_available(&read("/proc/meminfo")),
            programs: PROGRAMS.into_iter().filter_map(program).collect(),
            docker: files.exists(DOCKER).then(|| files.writable(DOCKER)),
        }
    }

    /// Whether a security module is in force; `None` where that cannot be read.
    #[must_use]
    pub fn module(&self, name: &str) -> Option<bool> {
        Some(self.modules.as_ref()?.iter().any(|module| module == name))
    }
}

fn words(text: &str, separator: char) -> Vec<String> {
    text.trim().split(separator).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// A new `/proc` may be mounted in a user namespace only where there is one of which nothing is covered; LXC keeps one aside for that.
fn covered_proc(mounts: &[Mount]) -> Vec<String> {
    let whole = mounts.iter().filter(|mount| mount.kind == "proc" && mount.root == "/");
    let covers = |proc: &Mount| {
        let below = format!("{}/", proc.point);
        let points = mounts.iter().map(|mount| mount.point.as_str());
        points
            .filter(|point| point.starts_with(&below) && !USUAL.contains(point))
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let fewest = whole.map(covers).min_by_key(BTreeSet::len);
    fewest.unwrap_or_default().into_iter().collect()
}

fn memory_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()?.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_mounts_below_proc_covers_nothing() {
        let text = "\
22 28 0:21 / /proc rw,nosuid - proc proc rw
40 22 0:36 / /proc/sys/fs/binfmt_misc rw,relatime shared:14 - autofs systemd-1 rw
41 22 0:21 /bus /proc/bus ro,nosuid - proc proc rw
42 22 0:50 / /proc/acpi ro,relatime - tmpfs tmpfs ro
43 22 0:50 / /procession rw - tmpfs tmpfs rw";
        assert_eq!(covered_proc(&Mount::parse(text)), ["/proc/acpi", "/proc/bus"]);
        let aside = format!("{text}\n50 22 0:60 / /dev/.lxc/proc rw - proc proc rw");
        assert!(covered_proc(&Mount::parse(&aside)).is_empty());
    }

    #[test]
    fn available_memory_is_in_bytes() {
        assert_eq!(memory_available("MemTotal:  100 kB\nMemAvailable:    24 kB\n"), Some(24 << 10));
        assert_eq!(memory_available(""), None);
    }
}
