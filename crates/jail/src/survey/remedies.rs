//! What an operator can do, as data: a trouble, where it applies, and the words.

use super::cgroups::{CgroupVersion, Presence};
use super::host::Place;
use super::{Facts, findings};
use crate::{JailError, Step};

/// Something in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// `user.max_user_namespaces` is 0.
    NoUserNamespaces,
    /// `kernel.unprivileged_userns_clone` is 0.
    UserNamespacesForRootOnly,
    /// AppArmor takes the rights of user namespaces away.
    UserNamespacesWithoutRights,
    /// Another limit of namespaces is 0.
    NamespaceLimit,
    /// A seccomp filter of what surrounds this process.
    CallsFiltered,
    /// A seccomp filter of what surrounds this process has a listener, of which there can be one alone; or the kernel has none.
    FilterListens,
    /// A profile of AppArmor or SELinux that refuses mounts.
    Confined,
    /// Parts of `/proc` are covered.
    CoveredProc,
    /// The kernel lacks something.
    OldKernel,
    /// Control groups are not mounted.
    NoControlGroups,
    /// Control groups are mounted read-only.
    ControlGroupsReadOnly,
    /// The folder of this process holds others.
    GroupShared,
    /// This process may not make groups.
    GroupClosed,
    /// A controller is not handed down or not mounted.
    ControllerOutOfReach,
    /// A controller is switched off at boot.
    ControllerDisabled,
    /// Root with fewer ids than `process.uid_base` and `process.uid_count` ask for.
    FewIds,
    /// Root without a capability it needs.
    FewCapabilities,
    /// Sandboxes have the server's own uid.
    SharedUid,
    /// The kernel has Landlock and was started without it.
    LandlockOff,
    /// The kernel is too old for all of Landlock.
    LandlockOld,
    /// The kernel does not account swap.
    SwapNotAccounted,
    /// Nothing freezes groups.
    NoFreezer,
    /// Few descriptors.
    FewDescriptors,
    /// Few processes of one user.
    FewProcesses,
    /// One sandbox could take all the event polls of a user whom all share.
    FewEventPolls,
    /// The kernel promises no memory that it could not give.
    StrictMemory,
    /// Nobody may attach to a process.
    NoTracing,
    /// A device that exists may not be opened.
    DeviceClosed,
    /// A device that is not there.
    DeviceMissing,
    /// A module that has to be loaded.
    ModuleNotLoaded,
    /// A program that is not there.
    ProgramMissing,
}

/// Where a remedy applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    In(Place),
    InAnyContainer,
    Wsl,
    Root,
    Version1,
    Version2,
    Descends(&'static str),
    Is(&'static str, &'static str),
    /// Of two conditions both.
    Both(&'static When, &'static When),
}

impl When {
    fn holds(self, facts: &Facts) -> bool {
        let version = facts.cgroups.version;
        match self {
            Self::Always => true,
            Self::In(place) => facts.host.place == place,
            Self::InAnyContainer => facts.host.place != Place::Machine,
            Self::Wsl => facts.host.wsl && facts.host.place == Place::Machine,
            Self::Root => facts.own.is_root(),
            Self::Version1 => matches!(version, CgroupVersion::V1 | CgroupVersion::Hybrid),
            Self::Version2 => version == CgroupVersion::V2,
            Self::Descends(id) => facts.host.descends_from(id),
            Self::Is(id, release) => facts.host.distribution.id == id && facts.host.distribution.version == release,
            Self::Both(one, other) => one.holds(facts) && other.holds(facts),
        }
    }
}

use Trouble::*;
use When::*;

/// The first that applies is the one to give.
const REMEDIES: &[(Trouble, When, &str)] = &[
    (NoUserNamespaces, InAnyContainer, "on the host of this container: sysctl -w user.max_user_namespaces=15000"),
    (
        NoUserNamespaces,
        Always,
        "sysctl -w user.max_user_namespaces=15000, and the same in a file of /etc/sysctl.d to keep it",
    ),
    (
        UserNamespacesForRootOnly,
        InAnyContainer,
        "on the host of this container: sysctl -w kernel.unprivileged_userns_clone=1; or run it as root",
    ),
    (
        UserNamespacesForRootOnly,
        Always,
        "sysctl -w kernel.unprivileged_userns_clone=1, and the same in a file of /etc/sysctl.d to keep it; or run it as root",
    ),
    (
        UserNamespacesWithoutRights,
        InAnyContainer,
        "on the host of this container: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0; or run it as root of a privileged container",
    ),
    (
        UserNamespacesWithoutRights,
        Always,
        "run it as root, or allow this one program in /etc/apparmor.d/fumehood (a profile with `userns,`, see docs/doctor.md), or lift the rule for the whole machine: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (NamespaceLimit, InAnyContainer, "on the host of this container: raise the sysctl user.max_*_namespaces that is 0"),
    (NamespaceLimit, Always, "raise the sysctl user.max_*_namespaces that is 0"),
    (
        CallsFiltered,
        In(Place::Docker),
        "docker run --privileged --cgroupns=private, or at least --security-opt seccomp=unconfined",
    ),
    (CallsFiltered, In(Place::Podman), "podman run --privileged, or at least --security-opt seccomp=unconfined"),
    (
        CallsFiltered,
        In(Place::Kubernetes),
        "in the container's securityContext: privileged: true, or at least seccompProfile: {type: Unconfined}",
    ),
    (
        CallsFiltered,
        InAnyContainer,
        "have the container engine leave out its seccomp filter, or start the container privileged",
    ),
    (
        CallsFiltered,
        Always,
        "leave out what filters system calls: in a systemd unit SystemCallFilter, RestrictNamespaces and the like",
    ),
    (
        FilterListens,
        InAnyContainer,
        "start the container without a seccomp filter that listens to calls (for LXD security.syscalls.intercept.*)",
    ),
    (FilterListens, Always, "start it without a seccomp filter that listens to calls, on a kernel from 5.0 on"),
    (
        Confined,
        In(Place::Docker),
        "docker run --privileged --cgroupns=private, or at least --security-opt apparmor=unconfined (with SELinux: --security-opt label=disable)",
    ),
    (
        Confined,
        In(Place::Podman),
        "podman run --privileged, or at least --security-opt label=disable --security-opt apparmor=unconfined",
    ),
    (
        Confined,
        In(Place::Kubernetes),
        "in the container's securityContext: privileged: true, or at least appArmorProfile: {type: Unconfined}",
    ),
    (Confined, InAnyContainer, "start the container privileged, or without its AppArmor profile"),
    (Confined, Always, "run it outside the profile that confines it"),
    (
        CoveredProc,
        In(Place::Docker),
        "docker run --privileged --cgroupns=private, or at least --security-opt systempaths=unconfined",
    ),
    (CoveredProc, In(Place::Podman), "podman run --privileged, or at least --security-opt unmask=ALL"),
    (
        CoveredProc,
        In(Place::Kubernetes),
        "in the container's securityContext: privileged: true; or procMount: Unmasked, for which the pod needs hostUsers: false",
    ),
    (
        CoveredProc,
        In(Place::Lxc),
        "set security.nesting=true on the container (LXD, Incus), or lxc.mount.auto = proc:rw (LXC)",
    ),
    (CoveredProc, InAnyContainer, "start the container privileged, or with nothing mounted over parts of /proc"),
    (
        CoveredProc,
        Always,
        "leave out what covers it: in a systemd unit ProtectProc, ProtectKernelTunables, ProtectKernelLogs and the like",
    ),
    (OldKernel, Wsl, "wsl --update"),
    (OldKernel, InAnyContainer, "a newer kernel on the host of this container"),
    (OldKernel, Always, "a newer kernel, with this feature built in"),
    (
        NoControlGroups,
        Wsl,
        "in %UserProfile%\\.wslconfig, section [wsl2]: kernelCommandLine = cgroup_no_v1=all; in /etc/wsl.conf, section [boot]: systemd=true; then wsl --shutdown",
    ),
    (NoControlGroups, In(Place::Docker), "docker run --privileged --cgroupns=private"),
    (NoControlGroups, In(Place::Kubernetes), "in the container's securityContext: privileged: true"),
    (NoControlGroups, InAnyContainer, "have the container engine mount control groups, writable"),
    (NoControlGroups, Always, "mount -t cgroup2 cgroup2 /sys/fs/cgroup, as every current init system does"),
    (
        ControlGroupsReadOnly,
        In(Place::Docker),
        "docker run --privileged --cgroupns=private, or from Docker 28 on --cgroupns=private --security-opt writable-cgroups=true",
    ),
    (
        ControlGroupsReadOnly,
        In(Place::Podman),
        "podman run --privileged, or at least --security-opt unmask=/sys/fs/cgroup",
    ),
    (
        ControlGroupsReadOnly,
        In(Place::Kubernetes),
        "in the container's securityContext: privileged: true; or cgroup_writable in the configuration of containerd's runtime",
    ),
    (ControlGroupsReadOnly, InAnyContainer, "have the container engine mount /sys/fs/cgroup writable"),
    (ControlGroupsReadOnly, Always, "mount it writable; in a systemd unit leave out ProtectControlGroups"),
    (
        GroupShared,
        InAnyContainer,
        "start it as the first process of the container (exec in an entry script): on version 2 it must be alone in its group",
    ),
    (
        GroupShared,
        Wsl,
        "systemd-run --user --scope -p Delegate=yes fumehood serve; for that let /etc/wsl.conf have systemd=true in section [boot], then wsl --shutdown",
    ),
    (
        GroupShared,
        Root,
        "start it as a systemd unit with Delegate=yes, or by hand with systemd-run --scope -p Delegate=yes fumehood serve, or name a prepared folder in process.cgroup_parent",
    ),
    (
        GroupShared,
        Always,
        "start it as a systemd unit with Delegate=yes, or by hand with systemd-run --user --scope -p Delegate=yes fumehood serve, or name a prepared folder in process.cgroup_parent",
    ),
    (
        GroupClosed,
        Both(&InAnyContainer, &Version2),
        "have it run as the container's root, or give its user /sys/fs/cgroup; then it must be the first process of the container",
    ),
    (
        GroupClosed,
        Both(&Wsl, &Version1),
        "run it as root; or have version 2: in %UserProfile%\\.wslconfig, section [wsl2], kernelCommandLine = cgroup_no_v1=all, and in /etc/wsl.conf, section [boot], systemd=true, then wsl --shutdown; or let root make a folder in each of memory, pids, cpu, cpuacct and freezer for the user of this server and name it in process.cgroup_parent",
    ),
    (
        GroupClosed,
        Version1,
        "let root make a folder in each of memory, pids, cpu, cpuacct and freezer, give it to the user of this server with chown -R, and name it in process.cgroup_parent",
    ),
    (
        GroupClosed,
        Both(&Wsl, &Version2),
        "systemd-run --user --scope -p Delegate=yes fumehood serve; for that let /etc/wsl.conf have systemd=true in section [boot], then wsl --shutdown",
    ),
    (
        GroupClosed,
        Root,
        "start it as a systemd unit with Delegate=yes, or name a prepared folder in process.cgroup_parent",
    ),
    (
        GroupClosed,
        Always,
        "start it with systemd-run --user --scope -p Delegate=yes fumehood serve, or as a unit of the user with Delegate=yes, or name a prepared folder in process.cgroup_parent",
    ),
    (ControllerOutOfReach, Version1, "mount it, as the others are below /sys/fs/cgroup"),
    (
        ControllerOutOfReach,
        InAnyContainer,
        "have the container engine hand the controller down: it must be in cgroup.controllers of the container's own group",
    ),
    (
        ControllerOutOfReach,
        Wsl,
        "in %UserProfile%\\.wslconfig, section [wsl2]: kernelCommandLine = cgroup_no_v1=all; then wsl --shutdown",
    ),
    (ControllerOutOfReach, Root, "start it as a systemd unit with Delegate=yes, which hands all controllers down"),
    (
        ControllerOutOfReach,
        Always,
        "let root write `[Service]` and `Delegate=cpu memory pids` into /etc/systemd/system/user@.service.d/delegate.conf, then systemctl daemon-reload, and log in again",
    ),
    (
        ControllerDisabled,
        InAnyContainer,
        "on the host of this container: take cgroup_disable off the kernel's command line; some boards need cgroup_enable=memory there",
    ),
    (
        ControllerDisabled,
        Wsl,
        "in %UserProfile%\\.wslconfig, section [wsl2]: kernelCommandLine = cgroup_no_v1=all cgroup_enable=memory; then wsl --shutdown",
    ),
    (
        ControllerDisabled,
        Always,
        "take cgroup_disable off the kernel's command line; some boards need cgroup_enable=memory there",
    ),
    (
        FewIds,
        Always,
        "choose process.uid_base and process.uid_count within the ids of /proc/self/uid_map, for example 1000 and 60000",
    ),
    (
        FewCapabilities,
        In(Place::Docker),
        "docker run --privileged --cgroupns=private, or --cap-add for each one that is missing",
    ),
    (
        FewCapabilities,
        In(Place::Kubernetes),
        "in the container's securityContext: privileged: true, or capabilities: {add: […]} for each one that is missing",
    ),
    (FewCapabilities, InAnyContainer, "start the container privileged, or add the capabilities that are missing"),
    (
        FewCapabilities,
        Always,
        "give root all its capabilities: in a systemd unit leave out CapabilityBoundingSet; or run it as an ordinary user",
    ),
    (SharedUid, InAnyContainer, "run it as the container's root"),
    (SharedUid, Always, "run it as root, for example as a system service (docs/operating.md)"),
    (LandlockOff, InAnyContainer, "on the host of this container: add landlock to lsm= on the kernel's command line"),
    (
        LandlockOff,
        Wsl,
        "in %UserProfile%\\.wslconfig, section [wsl2]: kernelCommandLine = lsm=landlock,yama,bpf; then wsl --shutdown",
    ),
    (
        LandlockOff,
        Descends("debian"),
        "add landlock to lsm= in GRUB_CMDLINE_LINUX of /etc/default/grub (the list in force is in /sys/kernel/security/lsm), then update-grub and restart the machine",
    ),
    (
        LandlockOff,
        Descends("fedora"),
        "grubby --update-kernel=ALL --args=lsm=landlock,… with the list of /sys/kernel/security/lsm behind it, then restart the machine",
    ),
    (
        LandlockOff,
        Always,
        "add landlock to lsm= on the kernel's command line (the list in force is in /sys/kernel/security/lsm)",
    ),
    (LandlockOld, InAnyContainer, "a kernel from 6.12 on for the host of this container"),
    (LandlockOld, Wsl, "wsl --update, for a kernel from 6.12 on"),
    (
        LandlockOld,
        Is("debian", "12"),
        "a kernel from 6.12 on: apt install -t bookworm-backports linux-image-amd64 (or -arm64), or Debian 13",
    ),
    (LandlockOld, Is("ubuntu", "24.04"), "a kernel from 6.12 on: apt install linux-generic-hwe-24.04"),
    (LandlockOld, Always, "a kernel from 6.12 on, with CONFIG_SECURITY_LANDLOCK"),
    (
        SwapNotAccounted,
        InAnyContainer,
        "on the host of this container: swapaccount=1 on the kernel's command line, or no swap: swapoff -a",
    ),
    (SwapNotAccounted, Always, "swapaccount=1 on the kernel's command line, or no swap: swapoff -a"),
    (
        NoFreezer,
        Version1,
        "let root make a folder in /sys/fs/cgroup/freezer, give it to the user of this server, and name it in process.cgroup_parent as those of the other controllers",
    ),
    (NoFreezer, Always, "a kernel from 5.2 on"),
    (FewDescriptors, In(Place::Docker), "docker run --ulimit nofile=65536"),
    (FewDescriptors, Always, "LimitNOFILE=65536 in the systemd unit, or ulimit -n 65536 before the start"),
    (FewProcesses, Always, "LimitNPROC=infinity in the systemd unit, or a higher nproc in /etc/security/limits.conf"),
    (
        FewEventPolls,
        InAnyContainer,
        "on the host of this container: sysctl -w fs.epoll.max_user_watches=50000000; the memory limit of each sandbox bounds them all the same",
    ),
    (
        FewEventPolls,
        Always,
        "sysctl -w fs.epoll.max_user_watches=50000000, and the same in a file of /etc/sysctl.d to keep it (the memory limit of each sandbox bounds them all the same); or run it as root",
    ),
    (StrictMemory, Always, "sysctl -w vm.overcommit_memory=0"),
    (NoTracing, Always, "sysctl -w kernel.yama.ptrace_scope=1; from 3 only a restart of the machine leads back"),
    (DeviceClosed, In(Place::Docker), "docker run --device, and a user that may open it"),
    (DeviceClosed, In(Place::Kubernetes), "privileged: true in the container's securityContext, or a device plugin"),
    (
        DeviceClosed,
        Always,
        "add the user of this server to the group that owns the device, for example usermod -aG kvm USER",
    ),
    (DeviceMissing, In(Place::Docker), "docker run --device, where the host has it"),
    (DeviceMissing, InAnyContainer, "have the container engine pass it in, where the host has it"),
    (
        DeviceMissing,
        Wsl,
        "in %UserProfile%\\.wslconfig, section [wsl2]: nestedVirtualization=true; then wsl --shutdown",
    ),
    (
        DeviceMissing,
        Always,
        "load its module (modprobe); for /dev/kvm the machine, or the hypervisor below it, must allow virtualisation",
    ),
    (ModuleNotLoaded, InAnyContainer, "on the host of this container: modprobe it"),
    (ModuleNotLoaded, Always, "modprobe it; a program that mounts it as root has the kernel do that"),
    (
        ProgramMissing,
        Descends("debian"),
        "install it: apt install bubblewrap, runc, crun or qemu-system; runsc and firecracker from their makers",
    ),
    (ProgramMissing, Always, "install it from the distribution or its makers"),
];

/// What to do about it here.
pub(super) fn remedy(trouble: Trouble, facts: &Facts) -> String {
    let applies = |(of, when, _): &&(Trouble, When, &'static str)| *of == trouble && when.holds(facts);
    REMEDIES.iter().find(applies).map(|(.., words)| (*words).to_owned()).unwrap_or_default()
}

impl Trouble {
    /// Why Landlock is not there in full.
    pub(crate) fn of_landlock(facts: &Facts) -> Self {
        match facts.probes.landlock_error {
            libc::EOPNOTSUPP => LandlockOff,
            libc::EPERM | libc::EACCES => CallsFiltered,
            // A filter can answer so too, and does in older container engines.
            libc::ENOSYS if facts.kernel.module("landlock") == Some(true) => CallsFiltered,
            libc::ENOSYS if facts.host.kernel_is(5, 13) && facts.own.seccomp_filters > 0 => CallsFiltered,
            _ => LandlockOld,
        }
    }

    /// Why user namespaces do not work for this process, as far as switches and calls tell.
    pub(crate) fn of_user_namespaces(facts: &Facts) -> Option<Self> {
        let kernel = &facts.kernel;
        let ordinary = !facts.own.has(findings::SYS_ADMIN);
        match () {
            () if kernel.most_namespaces.get("user") == Some(&0) => Some(NoUserNamespaces),
            () if !kernel.namespaces.contains("user") => Some(OldKernel),
            () if ordinary && kernel.userns_clone == Some(false) => Some(UserNamespacesForRootOnly),
            () if findings::filtered(facts, "unshare") || findings::filtered(facts, "clone3") => Some(CallsFiltered),
            () if ordinary && kernel.apparmor_restricts_userns && !facts.own.profiled => {
                Some(UserNamespacesWithoutRights)
            }
            () => None,
        }
    }

    /// Why no control group can be made, as far as it can be seen.
    pub(crate) fn of_control_groups(facts: &Facts) -> Option<Self> {
        let cgroups = &facts.cgroups;
        let needed = |wanted| cgroups.controllers.iter().any(|(name, found)| *name != "freezer" && *found == wanted);
        match () {
            () if needed(Presence::Disabled) => Some(ControllerDisabled),
            () if cgroups.version == CgroupVersion::None => Some(NoControlGroups),
            () if needed(Presence::Absent) => Some(OldKernel),
            () if cgroups.read_only => Some(ControlGroupsReadOnly),
            () if needed(Presence::Closed) => Some(GroupClosed),
            () if needed(Presence::OutOfReach) => Some(ControllerOutOfReach),
            () if cgroups.crowded => Some(GroupShared),
            () => None,
        }
    }
}

/// What made a step fail, where that can be told.
pub(super) fn diagnose(error: &JailError, facts: &Facts) -> Option<Trouble> {
    let own = &facts.own;
    let few_ids = own.is_root() && !own.has_ids(facts.config.uid_base, facts.config.uid_count);
    let confined = own.confined_by.is_some();
    let user_namespaces = || Trouble::of_user_namespaces(facts);
    match error.step {
        Step::HoldCapabilities => Some(FewCapabilities),
        Step::PrepareCgroup => Trouble::of_control_groups(facts),
        Step::JoinCgroup => Some(Trouble::of_control_groups(facts).unwrap_or(GroupClosed)),
        Step::Clone => match () {
            () if facts.kernel.most_namespaces.values().any(|most| *most == 0) => {
                user_namespaces().filter(|trouble| *trouble == NoUserNamespaces).or(Some(NamespaceLimit))
            }
            () => user_namespaces().or((own.seccomp_filters > 0).then_some(CallsFiltered)),
        },
        Step::MapIds | Step::CreateChannel | Step::CreateDisk if few_ids => Some(FewIds),
        Step::MountProc if !facts.kernel.covered_proc.is_empty() => Some(CoveredProc),
        Step::MapIds
        | Step::BecomeUser
        | Step::PrivateMounts
        | Step::EnterImage
        | Step::OpenImage
        | Step::MountRoot
        | Step::MountProc
        | Step::MountDev
        | Step::MountDisk
        | Step::CreateDisk
        | Step::CreateChannel
        | Step::PivotRoot
        | Step::SetHostname
        | Step::RaiseLoopback => match () {
            () if confined => Some(Confined),
            () => user_namespaces(),
        },
        Step::Keyring | Step::Landlock | Step::Seccomp if own.seccomp_filters > 0 => Some(CallsFiltered),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trouble_has_a_remedy_that_always_applies_and_it_stands_last() {
        let mut troubles: Vec<Trouble> = Vec::new();
        for (trouble, ..) in REMEDIES {
            if troubles.last() != Some(trouble) {
                assert!(!troubles.contains(trouble), "{trouble:?} stands in two places");
                troubles.push(*trouble);
            }
        }
        for trouble in troubles {
            let of: Vec<_> = REMEDIES.iter().filter(|(of, ..)| *of == trouble).collect();
            let (last, before) = of.split_last().unwrap();
            assert_eq!(last.1, Always, "{trouble:?}");
            assert!(before.iter().all(|(_, when, _)| *when != Always), "{trouble:?}");
        }
    }
}
