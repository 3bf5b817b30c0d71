//! Rights and limits of this process.

use super::Files;

/// Rights and limits of this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Own {
    /// Its number.
    pub pid: u32,
    /// Effective uid.
    pub uid: u32,
    /// Effective capabilities, a bit each.
    pub capabilities: u64,
    /// Exec raises nothing.
    pub no_new_privs: bool,
    /// Seccomp filters in force, as far as the kernel counts them; 1 where it does not.
    pub seccomp_filters: u32,
    /// Profile of AppArmor or context of SELinux that confines it.
    pub confined_by: Option<String>,
    /// There is a profile of AppArmor for it, if only one that confines nothing.
    pub profiled: bool,
    /// Ids there are: first inside, first outside, how many.
    pub ids: Vec<(u32, u32, u32)>,
    /// Descriptors, at most; `None` for no limit.
    pub open_files: Option<u64>,
    /// Processes of its uid, at most; `None` for no limit.
    pub processes: Option<u64>,
}

impl Own {
    pub(super) fn read(files: &dyn Files) -> Self {
        let read = |path: &str| files.read(path).unwrap_or_default();
        let status = read("/proc/self/status");
        let limits = read("/proc/self/limits");
        let label = files.read("/proc/self/attr/apparmor/current").or_else(|| files.read("/proc/self/attr/current"));
        let label = label.unwrap_or_default();
        Self {
            confined_by: confinement(&label),
            profiled: !matches!(label.trim_matches(['\0', '\n', ' ']), "" | "unconfined"),
            ids: id_map(&read("/proc/self/uid_map")),
            open_files: hard_limit(&limits, "Max open files"),
            processes: hard_limit(&limits, "Max processes"),
            ..Self::from_status(&status)
        }
    }

    fn from_status(status: &str) -> Self {
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default().trim()
        };
        let filtered = field("Seccomp") == "2";
        Self {
            pid: field("Pid").parse().unwrap_or(0),
            uid: field("Uid").split_whitespace().nth(1).and_then(|uid| uid.parse().ok()).unwrap_or(0),
            capabilities: u64::from_str_radix(field("CapEff"), 16).unwrap_or(0),
            no_new_privs: field("NoNewPrivs") == "1",
            seccomp_filters: field("Seccomp_filters").parse().unwrap_or(u32::from(filtered)),
            ..Self::default()
        }
    }

    /// Whether it acts as root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it is the root of the machine itself, with the right to mount, and not of a user namespace.
    #[must_use]
    pub fn is_real_root(&self) -> bool {
        self.is_root() && self.has(super::findings::SYS_ADMIN) && self.ids == [(0, 0, u32::MAX)]
    }

    /// Whether it has a capability, by its number.
    #[must_use]
    pub fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    /// Whether all these ids exist here.
    #[must_use]
    pub fn has_ids(&self, first: u32, count: u32) -> bool {
        let end = u64::from(first) + u64::from(count);
        self.ids.iter().any(|&(inside, _, length)| inside <= first && end <= u64::from(inside) + u64::from(length))
    }
}

/// What confines the holder of this label.
fn confinement(label: &str) -> Option<String> {
    let label = label.trim_matches(['\0', '\n', ' ']);
    let free = label.is_empty() || label == "unconfined" || label.ends_with("(unconfined)");
    // SELinux: only domains of containers are known to refuse what a sandbox is made from.
    let selinux = label.matches(':').count() >= 3 && !label.contains("container");
    // "complain" refuses nothing.
    (!free && !selinux && !label.ends_with("(complain)")).then(|| label.trim_end_matches(" (enforce)").to_owned())
}

fn id_map(text: &str) -> Vec<(u32, u32, u32)> {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    };
    text.lines().filter_map(line).collect()
}

/// The second of two numbers behind a name; `None` for `unlimited`.
fn hard_limit(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_confine_nothing_are_not_taken_for_confinement() {
        for free in [
            "unconfined\n",
            "",
            "fumehood (unconfined)\n",
            "x (complain)",
            "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023\0",
        ] {
            assert_eq!(confinement(free), None, "{free}");
        }
        assert_eq!(confinement("docker-default (enforce)\n").as_deref(), Some("docker-default"));
        assert_eq!(
            confinement("system_u:system_r:container_t:s0:c1,c2\0").as_deref(),
            Some("system_u:system_r:container_t:s0:c1,c2")
        );
    }

    #[test]
    fn ids_are_there_only_when_all_of_them_are() {
        let own = Own { ids: id_map("         0     100000      65536\n     70000     0 1\n"), ..Own::default() };
        assert!(own.has_ids(0, 65_536) && own.has_ids(1000, 60_000));
        assert!(!own.has_ids(1000, 65_536) && !own.has_ids(700_000, 1) && !own.has_ids(u32::MAX, 2));
    }

    #[test]
    fn a_limit_is_the_hard_one() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \nMax processes             unlimited            unlimited            processes \nMax open files            1024                 1048576              files     \n";
        assert_eq!((hard_limit(text, "Max open files"), hard_limit(text, "Max processes")), (Some(1_048_576), None));
    }
}
