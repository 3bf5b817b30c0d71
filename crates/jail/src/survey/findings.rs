//! Everything that matters for isolation, one finding each.

use super::cgroups::{self, CgroupVersion, Presence};
use super::kernel::{NAMESPACES, PROGRAMS};
use super::probes::DEVICES;
use super::remedies::Trouble;
use super::{Facts, Finding, Group, State};
use crate::error::{At, JailError, Step};

const PROCESS: &[&str] = &["process"];
/// All that use the host's kernel through its namespaces.
const NATIVE: &[&str] = &["process", "bubblewrap", "container"];
const MICROVM: &[&str] = &["microvm"];

/// `CAP_SYS_ADMIN`
pub(super) const SYS_ADMIN: u32 = 21;

/// What a jailer run by root does with its rights.
pub(super) const CAPABILITIES: [(u32, &str, &str); 8] = [
    (0, "CAP_CHOWN", "gives each sandbox its disk and its pipes"),
    (1, "CAP_DAC_OVERRIDE", "reaches images and control groups whoever owns them"),
    (5, "CAP_KILL", "ends what runs under other uids"),
    (6, "CAP_SETGID", "gives each sandbox a gid of its own"),
    (7, "CAP_SETUID", "gives each sandbox a uid of its own"),
    (18, "CAP_SYS_CHROOT", "enters the image"),
    (19, "CAP_SYS_PTRACE", "hands the namespaces of a sandbox to the preloaded interpreter"),
    (SYS_ADMIN, "CAP_SYS_ADMIN", "makes namespaces and mounts"),
];

/// System calls that confinement is made with: name, first kernel, what for.
const CALLS: [(&str, (u32, u32), &str); 8] = [
    ("clone3", (5, 3), "starts sandboxes in all their namespaces at once"),
    ("unshare", (3, 8), "makes user namespaces; tried without making one"),
    ("pidfd_open", (5, 3), "names processes so that no other is ever meant"),
    ("openat2", (5, 6), "opens files of a sandbox without following its links"),
    ("close_range", (5, 9), "closes every descriptor that a program must not have"),
    ("open_tree", (5, 2), "takes the image's folders without their names"),
    ("fsopen", (5, 2), "makes disks that are mounted nowhere"),
    ("mount_setattr", (5, 12), "makes everything of the image read-only"),
];

/// Descriptors of a jailer and a server below which few sandboxes fit.
const FEW_DESCRIPTORS: u64 = 4096;
/// Processes of one user below which few sandboxes fit.
const FEW_PROCESSES: u64 = 1024;
/// Files in event polls that a sandbox with the default memory limit (512 MiB) has room for, at the 192 bytes that the kernel takes for each.
const EVENT_POLLS: u64 = (512 << 20) / 192;

/// Whether a filter keeps a call from the kernel.
pub(super) fn filtered(facts: &Facts, call: &str) -> bool {
    match facts.probes.error(call) {
        libc::EPERM | libc::EACCES => call != "fsopen",
        // Container engines answer so, to have libraries fall back to older calls.
        libc::ENOSYS => {
            let since = CALLS.iter().find(|(name, ..)| *name == call).map_or((0, 0), |(_, since, _)| *since);
            facts.own.seccomp_filters > 0 && facts.host.kernel_is(since.0, since.1)
        }
        _ => false,
    }
}

/// Refuses to go on where root lacks what a jailer does with its rights. Not all of it would fail by itself: without `CAP_KILL`, for example, sandboxes
/// are made, and some cannot be ended.
pub(crate) fn hold_capabilities() -> Result<(), JailError> {
    let held = rustix::thread::capabilities(None).at(Step::HoldCapabilities, "")?.effective.bits();
    let missing: Vec<_> =
        CAPABILITIES.iter().filter(|(number, ..)| held >> number & 1 == 0).map(|(_, name, _)| *name).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(JailError::new(Step::HoldCapabilities, missing.join(", "), "root does not have them here")),
    }
}

/// Everything, in an order for people.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    [namespaces, calls, seccomp, landlock, control_groups, rights, mounts, resources, devices, programs]
        .into_iter()
        .flat_map(|find| find(facts))
        .collect()
}

/// A finding that is available, or in which case the trouble says what to do.
struct Maker<'a> {
    facts: &'a Facts,
    group: Group,
    levels: &'static [&'static str],
}

impl Maker<'_> {
    fn make(
        &self,
        name: impl Into<String>,
        state: State,
        detail: impl Into<String>,
        why: &'static str,
        trouble: Trouble,
    ) -> Finding {
        let remedy = (state != State::Available).then(|| self.facts.remedy(trouble));
        Finding { group: self.group, name: name.into(), state, detail: detail.into(), why, levels: self.levels, remedy }
    }
}

fn namespaces(facts: &Facts) -> Vec<Finding> {
    let one = |(kind, sysctl, why): (&'static str, &str, &'static str)| {
        let levels = if kind == "time" { &[][..] } else { NATIVE };
        let maker = Maker { facts, group: Group::Namespaces, levels };
        let name = format!("{kind} namespaces");
        let most = facts.kernel.most_namespaces.get(kind);
        let (state, detail, trouble) = match (facts.kernel.namespaces.contains(kind), most) {
            (false, _) => (State::Missing, "the kernel has none".to_owned(), Trouble::OldKernel),
            (true, Some(0)) if kind != "user" => {
                (State::NotEnabled, format!("user.max_{sysctl}_namespaces is 0"), Trouble::NamespaceLimit)
            }
            (true, _) if kind == "user" => match Trouble::of_user_namespaces(facts) {
                Some(trouble) => (State::NotEnabled, userns_detail(trouble).to_owned(), trouble),
                None => (State::Available, most_text(most), Trouble::OldKernel),
            },
            (true, most) => (State::Available, most_text(most), Trouble::OldKernel),
        };
        maker.make(name, state, detail, why, trouble)
    };
    NAMESPACES.into_iter().map(one).collect()
}

fn most_text(most: Option<&u64>) -> String {
    most.map_or_else(|| "the kernel has them".to_owned(), |most| format!("at most {most}"))
}

fn userns_detail(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::NoUserNamespaces => "user.max_user_namespaces is 0",
        Trouble::UserNamespacesForRootOnly => "kernel.unprivileged_userns_clone is 0",
        Trouble::UserNamespacesWithoutRights => {
            "kernel.apparmor_restrict_unprivileged_userns is 1: there are some, without rights in them"
        }
        Trouble::CallsFiltered => "a seccomp filter around this process refuses to make one",
        _ => "the kernel has none",
    }
}

fn calls(facts: &Facts) -> Vec<Finding> {
    let maker = Maker { facts, group: Group::Calls, levels: NATIVE };
    let one = |(name, since, why): (&'static str, (u32, u32), &'static str)| {
        let error = facts.probes.error(name);
        let (state, detail, trouble) = match error {
            _ if filtered(facts, name) => (
                State::NotEnabled,
                "a seccomp filter around this process refuses it".to_owned(),
                Trouble::CallsFiltered,
            ),
            libc::ENOSYS => {
                let detail = format!("the kernel does not have it; it came with Linux {}.{}", since.0, since.1);
                (State::Missing, detail, Trouble::OldKernel)
            }
            _ => (State::Available, format!("since Linux {}.{}", since.0, since.1), Trouble::OldKernel),
        };
        maker.make(name, state, detail, why, trouble)
    };
    CALLS.into_iter().map(one).collect()
}

fn seccomp(facts: &Facts) -> Vec<Finding> {
    let actions = &facts.kernel.seccomp_actions;
    let action = |name: &str| actions.iter().any(|action| action == name);
    let maker = Maker { facts, group: Group::Seccomp, levels: NATIVE };
    let state = |there| if there { State::Available } else { State::Missing };
    let filter = maker.make(
        "seccomp filter",
        state(!actions.is_empty()),
        if actions.is_empty() { "the kernel has none".to_owned() } else { format!("actions: {}", actions.join(", ")) },
        "closes system calls that generated code does not need",
        Trouble::OldKernel,
    );
    let notification = maker.make(
        "seccomp user notification",
        state(action("user_notif")),
        if action("user_notif") { "action user_notif" } else { "the kernel does not offer user_notif" },
        "tells which closed call a program wanted",
        Trouble::OldKernel,
    );
    let filters = facts.own.seccomp_filters;
    let around = match filters {
        0 => (State::Available, "none".to_owned()),
        // Not a fault by itself: many filters let through what is needed.
        count => (State::Available, format!("{count}; what they refuse shows above")),
    };
    let around = maker.make(
        "seccomp filters around this process",
        around.0,
        around.1,
        "filters of a container engine or a unit hold for sandboxes too",
        Trouble::CallsFiltered,
    );
    vec![filter, notification, around]
}

fn landlock(facts: &Facts) -> Vec<Finding> {
    let maker = Maker { facts, group: Group::Landlock, levels: PROCESS };
    let version = facts.probes.landlock;
    let trouble = Trouble::of_landlock(facts);
    let detail = match (version, trouble) {
        (1.., _) => format!("abi {version}"),
        (_, Trouble::LandlockOff) => "the kernel has it, and was started without it (not in lsm=)".to_owned(),
        (_, Trouble::CallsFiltered) => "a seccomp filter around this process refuses it".to_owned(),
        _ => "the kernel does not have it".to_owned(),
    };
    let state = |wanted| match (version >= wanted, trouble) {
        (true, _) => State::Available,
        (false, Trouble::LandlockOff | Trouble::CallsFiltered) => State::NotEnabled,
        (false, _) => State::Missing,
    };
    let files = maker.make(
        "landlock",
        state(1),
        detail.clone(),
        "a second, independent line between a sandbox and files",
        trouble,
    );
    let scopes = maker.make(
        "landlock scopes",
        state(6),
        if (1..6).contains(&version) { format!("abi {version}; they came with abi 6 (Linux 6.12)") } else { detail },
        "a second, independent line between a sandbox and signals or abstract sockets of others",
        trouble,
    );
    vec![files, scopes]
}

fn control_groups(facts: &Facts) -> Vec<Finding> {
    let groups = &facts.cgroups;
    let maker = Maker { facts, group: Group::Cgroups, levels: NATIVE };
    let mounted = match groups.version {
        CgroupVersion::None => State::Missing,
        _ => State::Available,
    };
    let mut found = vec![maker.make(
        "control groups",
        mounted,
        groups.version.words(),
        "hold the limits of a whole sandbox: memory, processor, processes",
        Trouble::NoControlGroups,
    )];
    for (name, why) in [
        ("memory", "the memory limit"),
        ("pids", "the limit of processes"),
        ("cpu", "the share of the processor"),
        ("cpuacct", "counts processor time; part of cpu in version 2"),
        ("freezer", "pauses sessions; part of every group in version 2"),
    ] {
        let Some(presence) = groups.controllers.get(name) else { continue };
        let (state, detail, trouble) = presence_words(*presence, facts);
        let needed = Maker { levels: if name == "freezer" { PROCESS } else { NATIVE }, ..maker };
        found.push(needed.make(format!("controller {name}"), state, detail, why, trouble));
    }
    if groups.version == CgroupVersion::None {
        return found;
    }
    let (state, detail) = match () {
        () if groups.usable() => (State::Available, format!("groups can be made below {}", groups.folder)),
        () if groups.read_only => (State::NotEnabled, format!("{} is mounted read-only", groups.folder)),
        () if groups.crowded => {
            (State::NotEnabled, format!("{} holds processes that are not this program's", groups.folder))
        }
        () => (State::NotEnabled, format!("{} may not be written, or lacks controllers", groups.folder)),
    };
    let trouble = Trouble::of_control_groups(facts).unwrap_or(Trouble::GroupClosed);
    found.push(maker.make("delegation", state, detail, "a place where this program may make groups", trouble));
    found.extend(version_2_files(facts, &maker));
    let (state, detail) = match groups.swap {
        Some(true) => (State::Available, "swapped memory counts"),
        _ if !facts.kernel.swap => (State::Available, "there is no swap on this host"),
        None => (State::Available, "cannot be seen from here"),
        Some(false) => (State::NotEnabled, "swapped memory does not count, and there is swap"),
    };
    let why = "a sandbox at its memory limit must not push the rest into the host's swap";
    found.push(maker.make("swap accounting", state, detail, why, Trouble::SwapNotAccounted));
    found
}

fn presence_words(presence: Presence, facts: &Facts) -> (State, String, Trouble) {
    let second = facts.cgroups.version == CgroupVersion::V2;
    let closed = if facts.cgroups.read_only { Trouble::ControlGroupsReadOnly } else { Trouble::GroupClosed };
    let (state, words, trouble) = match presence {
        Presence::Usable => (State::Available, "there, for this process too", Trouble::GroupClosed),
        Presence::Closed => (State::NotEnabled, "there, but this process may make no groups with it", closed),
        Presence::OutOfReach if second => {
            (State::NotEnabled, "not handed down to this process", Trouble::ControllerOutOfReach)
        }
        Presence::OutOfReach => (State::NotEnabled, "not mounted", Trouble::ControllerOutOfReach),
        Presence::Disabled => {
            (State::NotEnabled, "switched off on the kernel's command line", Trouble::ControllerDisabled)
        }
        Presence::Absent => (State::Missing, "the kernel does not have it", Trouble::OldKernel),
    };
    (state, words.to_owned(), trouble)
}

fn version_2_files(facts: &Facts, maker: &Maker<'_>) -> Vec<Finding> {
    let groups = &facts.cgroups;
    let since = [(5, 14), (5, 2), (4, 19)];
    let why = [
        "ends a whole group at once; not needed, since process 1 of a sandbox ends all of it",
        "pauses sessions",
        "ends all of a sandbox when its memory runs out",
    ];
    let one = |((name, since), why): ((&'static str, (u32, u32)), &'static str)| {
        let there = groups.files.contains(&name) || (groups.at_root && facts.host.kernel_is(since.0, since.1));
        let (state, detail) = match (groups.version, there) {
            (CgroupVersion::V2, true) => (State::Available, format!("since Linux {}.{}", since.0, since.1)),
            (CgroupVersion::V2, false) => (State::Missing, format!("came with Linux {}.{}", since.0, since.1)),
            _ => (State::Missing, "version 2 only".to_owned()),
        };
        // Without these version 1 does its part in other ways.
        let levels = if groups.version == CgroupVersion::V2 && name != "cgroup.kill" { PROCESS } else { &[] };
        Maker { levels, ..*maker }.make(name, state, detail, why, Trouble::OldKernel)
    };
    cgroups::FILES.into_iter().zip(since).zip(why).map(one).collect()
}

fn rights(facts: &Facts) -> Vec<Finding> {
    let own = &facts.own;
    let maker = Maker { facts, group: Group::Rights, levels: PROCESS };
    let mut found = Vec::new();
    let (state, detail, trouble) = match own.is_root() {
        false => (
            State::NotEnabled,
            format!("run by uid {}: all sandboxes have that uid on the host", own.uid),
            Trouble::SharedUid,
        ),
        true if own.has_ids(facts.config.uid_base, facts.config.uid_count) => {
            (State::Available, format!("{} from {} on", facts.config.uid_count, facts.config.uid_base), Trouble::FewIds)
        }
        true => {
            let detail = format!("{} from {} on are not all there", facts.config.uid_count, facts.config.uid_base);
            (State::NotEnabled, detail, Trouble::FewIds)
        }
    };
    found.push(maker.make(
        "uid of each sandbox's own",
        state,
        detail,
        "what a sandbox reaches by a bug elsewhere belongs to a user that has nothing",
        trouble,
    ));
    if own.is_root() {
        for (number, name, why) in CAPABILITIES {
            let (state, detail) = match own.has(number) {
                true => (State::Available, "held"),
                false => (State::NotEnabled, "root does not have it here"),
            };
            found.push(maker.make(name, state, detail, why, Trouble::FewCapabilities));
        }
    }
    let (state, detail) = match &own.confined_by {
        None => (State::Available, "none".to_owned()),
        Some(profile) => (State::NotEnabled, format!("this process is confined by {profile}")),
    };
    found.push(maker.make(
        "no AppArmor or SELinux confinement",
        state,
        detail,
        "a profile made for containers refuses the mounts of a sandbox",
        Trouble::Confined,
    ));
    let detail = if own.no_new_privs { "set; sandboxes set it anyway" } else { "not set" };
    found.push(Maker { levels: &[], ..maker }.make(
        "no_new_privs of this process",
        State::Available,
        detail,
        "not in the way",
        Trouble::OldKernel,
    ));
    found
}

fn mounts(facts: &Facts) -> Vec<Finding> {
    let maker = Maker { facts, group: Group::Mounts, levels: NATIVE };
    let covered = &facts.kernel.covered_proc;
    let (state, detail) = match (covered.is_empty(), facts.own.is_real_root()) {
        (true, _) => (State::Available, "nothing of the present one is covered".to_owned()),
        (false, true) => (
            State::Available,
            format!("covered: {}; root of the machine may mount a new one all the same", covered.join(", ")),
        ),
        (false, false) => (State::NotEnabled, format!("covered: {}", covered.join(", "))),
    };
    let proc = maker.make(
        "a /proc of one's own",
        state,
        detail,
        "programs expect one; that of the host would show its processes",
        Trouble::CoveredProc,
    );
    let (state, detail) = match facts.kernel.overlay {
        true => (State::Available, "the kernel has it"),
        false => (State::NotEnabled, "not loaded, or the kernel does not have it"),
    };
    let overlay = Maker { levels: &["container"], ..maker }.make(
        "overlayfs",
        state,
        detail,
        "layers of container images",
        Trouble::ModuleNotLoaded,
    );
    vec![proc, overlay]
}

/// Run by root each sandbox is a user of its own, of which the kernel counts them.
fn event_polls(facts: &Facts) -> (State, String) {
    match facts.kernel.event_polls {
        None => (State::Available, "no limit".to_owned()),
        Some(most) if facts.own.is_root() => (State::Available, format!("at most {most} of each sandbox")),
        Some(most) if most >= EVENT_POLLS => (State::Available, format!("at most {most} of all sandboxes together")),
        Some(most) => {
            (State::NotEnabled, format!("at most {most} of all sandboxes together, which one of 512 MiB could take"))
        }
    }
}

fn resources(facts: &Facts) -> Vec<Finding> {
    let (own, kernel) = (&facts.own, &facts.kernel);
    let maker = Maker { facts, group: Group::Resources, levels: PROCESS };
    let enough = |most: Option<u64>, few: u64| match most {
        Some(most) if most < few => (State::NotEnabled, format!("at most {most}")),
        Some(most) => (State::Available, format!("at most {most}")),
        None => (State::Available, "no limit".to_owned()),
    };
    let (descriptors, processes) = (enough(own.open_files, FEW_DESCRIPTORS), enough(own.processes, FEW_PROCESSES));
    let polls = event_polls(facts);
    let number = |value: Option<u64>| value.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
    let mib = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    let strict = kernel.overcommit == Some(2);
    let promise = if strict { State::NotEnabled } else { State::Available };
    let tracing = if kernel.ptrace_scope == Some(3) { State::NotEnabled } else { State::Available };
    let told = Maker { levels: &[], ..maker };
    vec![
        maker.make(
            "open files",
            descriptors.0,
            descriptors.1,
            "every sandbox takes some in the server and the jailer",
            Trouble::FewDescriptors,
        ),
        maker.make(
            "processes of this user",
            processes.0,
            processes.1,
            "run by an ordinary user, all sandboxes count together",
            Trouble::FewProcesses,
        ),
        maker.make(
            "event polls of this user",
            polls.0,
            polls.1,
            "run by an ordinary user, all sandboxes count together",
            Trouble::FewEventPolls,
        ),
        maker.make(
            "memory overcommit",
            promise,
            format!("vm.overcommit_memory is {}", number(kernel.overcommit)),
            "interpreters ask for far more memory than they use",
            Trouble::StrictMemory,
        ),
        told.make(
            "process numbers",
            State::Available,
            format!("kernel.pid_max {}, kernel.threads-max {}", number(kernel.pid_max), number(kernel.threads_max)),
            "bound the processes of all sandboxes together",
            Trouble::OldKernel,
        ),
        told.make(
            "memory available",
            State::Available,
            mib(kernel.memory_available),
            "sandboxes' disks are in memory too",
            Trouble::OldKernel,
        ),
        told.make(
            "disk free",
            State::Available,
            mib(facts.probes.disk_free),
            "for images and collected files",
            Trouble::OldKernel,
        ),
        Maker { levels: &["gvisor"], ..maker }.make(
            "ptrace",
            tracing,
            format!(
                "kernel.yama.ptrace_scope is {}",
                kernel.ptrace_scope.map_or_else(|| "not there".to_owned(), |scope| scope.to_string())
            ),
            "gVisor's platform attaches to its own processes; no other level does",
            Trouble::NoTracing,
        ),
    ]
}

fn devices(facts: &Facts) -> Vec<Finding> {
    let why = [
        "virtual machines at full speed; that it opens proves little, a guest has to be started",
        "network of virtual machines",
        "the channel to a virtual machine",
        "file systems of containers for ordinary users",
    ];
    let one = |(device, why): (&'static str, &'static str)| {
        let levels: &[&str] = if device == "/dev/fuse" { &["container"] } else { MICROVM };
        let (state, detail, trouble) = match facts.probes.errors.get(device).copied() {
            Some(0) => (State::Available, "opens".to_owned(), Trouble::DeviceMissing),
            Some(error @ (libc::EPERM | libc::EACCES)) => {
                (State::NotEnabled, std::io::Error::from_raw_os_error(error).to_string(), Trouble::DeviceClosed)
            }
            Some(error) => {
                (State::Missing, std::io::Error::from_raw_os_error(error).to_string(), Trouble::DeviceMissing)
            }
            None => (State::Missing, "not tried".to_owned(), Trouble::DeviceMissing),
        };
        Maker { facts, group: Group::Devices, levels }.make(device, state, detail, why, trouble)
    };
    DEVICES.into_iter().zip(why).map(one).collect()
}

fn programs(facts: &Facts) -> Vec<Finding> {
    let levels: [&[&str]; 6] = [&["bubblewrap"], &["container"], &["container"], &["gvisor"], MICROVM, MICROVM];
    let why = "what the level would be made with";
    let one = |(name, levels): (&'static str, &'static [&'static str])| {
        let (state, detail) = match facts.kernel.programs.get(name) {
            Some(path) => (State::Available, path.clone()),
            None => (State::Missing, "not in the usual folders".to_owned()),
        };
        Maker { facts, group: Group::Programs, levels }.make(name, state, detail, why, Trouble::ProgramMissing)
    };
    let (state, detail) = match facts.kernel.docker {
        Some(true) => (State::Available, "its socket is there, and this process may use it"),
        Some(false) => (State::NotEnabled, "its socket is there, and this process may not use it"),
        None => (State::Missing, "no socket"),
    };
    let docker = Maker { facts, group: Group::Programs, levels: &["container"] };
    let docker = docker.make("docker", state, detail, why, Trouble::ProgramMissing);
    PROGRAMS.into_iter().zip(levels).map(one).chain([docker]).collect()
}
