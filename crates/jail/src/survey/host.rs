//! Kernel, distribution, and what surrounds this process.

use serde::Serialize;

use super::{Files, Mount};

/// The machine and the system on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Release of the kernel, as `uname -r` tells it.
    pub kernel: String,
    /// Architecture, as the compiler names it.
    pub architecture: &'static str,
    /// Who made the system.
    pub distribution: Distribution,
    /// What surrounds this process.
    pub place: Place,
    /// The kernel is that of the Windows Subsystem for Linux.
    pub wsl: bool,
}

/// From `os-release`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// For people.
    pub name: String,
    /// `debian`, `ubuntu`, …
    pub id: String,
    /// What it descends from.
    pub like: Vec<String>,
    /// `12`, `24.04`, …
    pub version: String,
}

/// What surrounds this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Nothing: a machine, virtual or not.
    Machine,
    /// A container of Docker.
    Docker,
    /// A container of Podman.
    Podman,
    /// A container of a pod.
    Kubernetes,
    /// A container of LXC, LXD or Incus.
    Lxc,
    /// A container of systemd-nspawn.
    Nspawn,
    /// A container of something else.
    Container,
}

impl Place {
    /// For people, after "in".
    #[must_use]
    pub fn words(self) -> Option<&'static str> {
        match self {
            Self::Machine => None,
            Self::Docker => Some("a Docker container"),
            Self::Podman => Some("a Podman container"),
            Self::Kubernetes => Some("a Kubernetes pod"),
            Self::Lxc => Some("an LXC container"),
            Self::Nspawn => Some("a systemd-nspawn container"),
            Self::Container => Some("a container"),
        }
    }
}

impl Host {
    pub(super) fn read(files: &dyn Files, mounts: &[Mount]) -> Self {
        let kernel = files.read("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let release = files.read("/etc/os-release").or_else(|| files.read("/usr/lib/os-release")).unwrap_or_default();
        Self {
            wsl: kernel.to_ascii_lowercase().contains("microsoft"),
            kernel,
            architecture: std::env::consts::ARCH,
            distribution: Distribution::parse(&release),
            place: place(files, mounts),
        }
    }

    /// Whether the kernel is at least this one.
    #[must_use]
    pub fn kernel_is(&self, major: u32, minor: u32) -> bool {
        version(&self.kernel) >= (major, minor)
    }

    /// Whether the distribution is this one or descends from it.
    #[must_use]
    pub fn descends_from(&self, id: &str) -> bool {
        self.distribution.id == id || self.distribution.like.iter().any(|like| like == id)
    }
}

/// The first two numbers of a release.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

impl Distribution {
    fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.map(|value| value.trim().trim_matches(['"', '\'']).to_owned()).unwrap_or_default()
        };
        let name = Some(value("PRETTY_NAME")).filter(|name| !name.is_empty());
        Self {
            name: name.unwrap_or_else(|| "an unknown distribution".to_owned()),
            id: value("ID"),
            like: value("ID_LIKE").split_whitespace().map(str::to_owned).collect(),
            version: value("VERSION_ID"),
        }
    }
}

/// Container engines put files of theirs over these; a machine whose file system was made from a container's image does not have them.
const GIVEN: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

fn place(files: &dyn Files, mounts: &[Mount]) -> Place {
    let mut given = mounts.iter().filter(|mount| GIVEN.contains(&mount.point.as_str()));
    let from = |marks: &[&str]| {
        let named = |mount: &Mount| marks.iter().any(|mark| mount.root.contains(mark));
        mounts.iter().filter(|mount| GIVEN.contains(&mount.point.as_str())).any(named)
    };
    let groups = files.read("/proc/self/cgroup").unwrap_or_default();
    let said = files.read("/run/systemd/container").unwrap_or_default();
    // A systemd or LXC says so to process 1, whose environment only root can read.
    let environment = files.read("/proc/1/environ").unwrap_or_default();
    let told = environment.split('\0').find_map(|entry| entry.strip_prefix("container="));
    let told = told.unwrap_or(said.trim());
    if from(&["/pods/"]) || groups.contains("kubepods") || files.exists("/var/run/secrets/kubernetes.io") {
        return Place::Kubernetes;
    }
    match told {
        "lxc" | "lxc-libvirt" => return Place::Lxc,
        "systemd-nspawn" => return Place::Nspawn,
        _ => {}
    }
    if from(&["overlay-containers", "/userdata/"]) || (files.exists("/run/.containerenv") && given.next().is_some()) {
        return Place::Podman;
    }
    let docker = groups.contains("/docker/") || groups.contains("/docker-");
    if from(&["/docker/"]) || docker || (files.exists("/.dockerenv") && given.next().is_some()) {
        return Place::Docker;
    }
    match told {
        "" | "wsl" => Place::Machine,
        _ => Place::Container,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        for (text, expected) in [
            ("6.1.0-28-amd64", (6, 1)),
            ("5.15.153.1-microsoft-standard-WSL2", (5, 15)),
            ("6.18.44", (6, 18)),
            ("", (0, 0)),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
        assert!(version("6.10.1") > version("6.9.0"));
    }

    #[test]
    fn a_distribution_is_read_with_quotes_and_without() {
        let text =
            "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nNAME='Ubuntu'\nVERSION_ID=\"24.04\"\nID=ubuntu\nID_LIKE=debian\n";
        let ubuntu = Distribution::parse(text);
        assert_eq!(
            (ubuntu.id.as_str(), ubuntu.version.as_str(), ubuntu.like),
            ("ubuntu", "24.04", vec!["debian".to_owned()])
        );
        assert_eq!(Distribution::parse("").name, "an unknown distribution");
    }
}
