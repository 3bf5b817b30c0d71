//! What is said of kinds of hosts, from texts of such hosts (`fixtures/`).

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::Step;

/// A host as a text: files, what else is there, what may be written, what calls said.
struct Fixture {
    files: BTreeMap<String, String>,
    there: BTreeSet<String>,
    writable: BTreeSet<String>,
    probes: Probes,
}

impl Fixture {
    fn parse(text: &str) -> Self {
        let mut files = BTreeMap::new();
        for part in text.split("==> ").skip(1) {
            let (path, body) = part.split_once(" <==\n").expect("a heading ends with <==");
            files.insert(path.to_owned(), body.trim_end().to_owned());
        }
        let mut lines =
            |name| -> BTreeSet<String> { files.remove(name).unwrap_or_default().lines().map(str::to_owned).collect() };
        let (there, writable) = (lines("there"), lines("writable"));
        let probes = serde_json::from_str(&files.remove("probes").expect("there are probes")).expect("probes are JSON");
        Self { files, there, writable, probes }
    }
}

impl Files for Fixture {
    fn read(&self, path: &str) -> Option<String> {
        self.files.get(path).cloned()
    }

    fn exists(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.there.contains(path) || self.writable.contains(path)
    }

    fn writable(&self, path: &str) -> bool {
        self.writable.contains(path)
    }
}

macro_rules! facts {
    ($name:literal) => {
        facts!($name, None)
    };
    ($name:literal, $parent:expr) => {{
        let fixture = Fixture::parse(include_str!(concat!("fixtures/", $name, ".txt")));
        let mut config = JailerConfig { uid_base: 700_000, uid_count: 65_536, ..JailerConfig::default() };
        config.cgroup_parent = $parent;
        Facts::of(&fixture, fixture.probes.clone(), &config)
    }};
}

/// Names of what the process level wants and does not find.
fn lacking(facts: &Facts) -> Vec<String> {
    let wanted = |finding: &Finding| finding.levels.contains(&"process") && finding.state != State::Available;
    findings(facts).into_iter().filter(wanted).map(|finding| finding.name).collect()
}

fn finding(facts: &Facts, name: &str) -> Finding {
    findings(facts).into_iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("no finding {name}"))
}

fn remedy(facts: &Facts, name: &str) -> String {
    finding(facts, name).remedy.unwrap_or_else(|| panic!("{name} is available"))
}

/// The remedy for a step that failed.
fn step(facts: &Facts, step: Step) -> String {
    facts.remedy_for(&JailError::new(step, "", "Operation not permitted")).unwrap_or_default()
}

fn all() -> Vec<(&'static str, Facts)> {
    vec![
        ("debian", facts!("debian-12-root")),
        ("ubuntu", facts!("ubuntu-24.04-user")),
        ("docker", facts!("docker-default")),
        ("systempaths", facts!("docker-systempaths")),
        ("kubernetes", facts!("kubernetes")),
        ("wsl", facts!("wsl2-user")),
        ("v1", facts!("v1-root-old-kernel")),
        ("hybrid", facts!("hybrid-user", Some("fumehood".to_owned()))),
        ("v2", facts!("v2-without-delegation")),
    ]
}

#[test]
fn what_is_not_available_has_a_remedy_and_what_is_has_none() {
    for (host, facts) in all() {
        for finding in findings(&facts) {
            let remedy = finding.remedy.as_deref();
            assert_eq!(remedy.is_none(), finding.state == State::Available, "{host}: {finding:?}");
            assert_ne!(remedy, Some(""), "{host}: {finding:?}");
        }
    }
}

#[test]
fn names_are_the_same_on_every_host_and_no_name_stands_twice() {
    let names = |facts: &Facts| findings(facts).into_iter().map(|finding| finding.name).collect::<Vec<_>>();
    let root = names(&facts!("debian-12-root"));
    for (host, facts) in all() {
        let names = names(&facts);
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len(), "{host}");
        // Version 1 has more controllers, an ordinary user no capabilities.
        let own = |name: &&String| {
            !root.contains(name) && !["controller cpuacct", "controller freezer"].contains(&name.as_str())
        };
        assert_eq!(names.iter().find(own), None, "{host}");
    }
}

#[test]
fn places_are_told_apart() {
    let seen: Vec<_> = all().into_iter().map(|(_, facts)| (facts.host.place, facts.host.wsl)).collect();
    use Place::*;
    let machine = (Machine, false);
    assert_eq!(
        seen,
        [
            machine,
            machine,
            (Docker, false),
            (Docker, false),
            (Kubernetes, false),
            (Machine, true),
            machine,
            machine,
            machine
        ]
    );
}

#[test]
fn a_machine_made_from_a_containers_image_is_a_machine() {
    let mut fixture = Fixture::parse(include_str!("fixtures/debian-12-root.txt"));
    fixture.there.insert("/.dockerenv".to_owned());
    let facts = Facts::of(&fixture, fixture.probes.clone(), &JailerConfig::default());
    assert_eq!(facts.host.place, Place::Machine);
}

#[test]
fn debian_12_as_root_lacks_only_what_its_kernel_is_too_old_for() {
    let facts = facts!("debian-12-root");
    assert_eq!(lacking(&facts), ["landlock scopes"]);
    assert!(remedy(&facts, "landlock scopes").contains("bookworm-backports"));
    assert_eq!(facts.cgroups.folder, "/sys/fs/cgroup/system.slice/fumehood.service");
    assert_eq!(facts.remedy_for(&JailError::new(Step::Exec, "", "no")), None);
}

#[test]
fn ubuntu_24_04_names_apparmor_when_an_ordinary_user_gets_no_rights_in_user_namespaces() {
    let facts = facts!("ubuntu-24.04-user");
    assert_eq!(lacking(&facts), ["user namespaces", "landlock scopes", "uid of each sandbox's own"]);
    assert_eq!(finding(&facts, "user namespaces").state, State::NotEnabled);
    for failed in [Step::MapIds, Step::PrivateMounts, Step::MountRoot, Step::MountProc] {
        assert!(step(&facts, failed).contains("/etc/apparmor.d/fumehood"), "{failed}");
    }
    assert!(remedy(&facts, "landlock scopes").contains("linux-generic-hwe-24.04"));
    assert!(finding(&facts, "delegation").detail.ends_with("run-r3f0b8.scope"));
    // Root, and one whose program has a profile, are not restricted.
    let root = Own { uid: 0, capabilities: u64::MAX, ..facts.own.clone() };
    assert_eq!(Trouble::of_user_namespaces(&Facts { own: root, ..facts.clone() }), None);
    let profiled = Own { profiled: true, ..facts.own.clone() };
    assert_eq!(Trouble::of_user_namespaces(&Facts { own: profiled, ..facts }), None);
}

#[test]
fn docker_as_it_comes_is_told_each_flag_that_is_missing() {
    let facts = facts!("docker-default");
    assert!(remedy(&facts, "user namespaces").contains("seccomp=unconfined"));
    assert!(remedy(&facts, "mount_setattr").contains("seccomp=unconfined"));
    assert!(remedy(&facts, "no AppArmor or SELinux confinement").contains("apparmor=unconfined"));
    assert!(remedy(&facts, "a /proc of one's own").contains("systempaths=unconfined"));
    assert!(finding(&facts, "a /proc of one's own").detail.contains("/proc/kcore"));
    assert!(remedy(&facts, "CAP_SYS_ADMIN").contains("--cap-add"));
    assert!(remedy(&facts, "delegation").contains("writable-cgroups=true"));
    // Whatever fails first, the one flag that gives all of it is named.
    for failed in [Step::HoldCapabilities, Step::PrepareCgroup, Step::Clone, Step::MountProc, Step::MountRoot] {
        assert!(step(&facts, failed).contains("docker run --privileged --cgroupns=private"), "{failed}");
    }
    assert_eq!(finding(&facts, "clone3").state, State::NotEnabled, "ENOSYS of a filter, not of the kernel");
}

#[test]
fn a_covered_proc_is_no_obstacle_for_root_of_the_machine() {
    let facts = facts!("docker-default");
    let root = Own { capabilities: u64::MAX, ..facts.own.clone() };
    let of_a_namespace = Own { ids: vec![(0, 100_000, 65_536)], ..root.clone() };
    let state = |own| finding(&Facts { own, ..facts.clone() }, "a /proc of one's own").state;
    assert_eq!((state(root), state(of_a_namespace)), (State::Available, State::NotEnabled));
}

#[test]
fn docker_with_most_of_it_open_still_has_read_only_control_groups() {
    let facts = facts!("docker-systempaths");
    assert_eq!(finding(&facts, "a /proc of one's own").state, State::Available);
    assert_eq!(finding(&facts, "user namespaces").state, State::Available);
    assert_eq!(finding(&facts, "CAP_SYS_ADMIN").state, State::Available);
    assert!(finding(&facts, "delegation").detail.contains("read-only"));
    assert!(step(&facts, Step::PrepareCgroup).contains("writable-cgroups=true"));
}

#[test]
fn kubernetes_is_told_what_belongs_into_the_pod() {
    let facts = facts!("kubernetes");
    for name in ["user namespaces", "a /proc of one's own", "delegation", "no AppArmor or SELinux confinement"] {
        assert!(remedy(&facts, name).contains("securityContext"), "{name}");
    }
    assert!(remedy(&facts, "a /proc of one's own").contains("hostUsers: false"));
    let landlock = finding(&facts, "landlock");
    assert_eq!(landlock.state, State::NotEnabled);
    assert!(landlock.detail.contains("lsm=") && landlock.remedy.unwrap().starts_with("on the host"));
    assert!(finding(&facts, "no_new_privs of this process").detail.starts_with("set"));
}

#[test]
fn wsl_is_told_of_the_files_on_the_windows_side() {
    let facts = facts!("wsl2-user");
    assert_eq!(facts.cgroups.version, CgroupVersion::Hybrid);
    assert!(finding(&facts, "control groups").detail.contains("hybrid"));
    let delegation = remedy(&facts, "delegation");
    assert!(delegation.contains("cpuacct") && delegation.contains(".wslconfig"), "{delegation}");
    assert!(remedy(&facts, "landlock").contains("wsl --update"));
    assert_eq!(finding(&facts, "swap accounting").detail, "swapped memory counts");
}

#[test]
fn an_old_kernel_is_said_to_be_too_old_and_not_filtered() {
    let facts = facts!("v1-root-old-kernel");
    assert_eq!(facts.cgroups.version, CgroupVersion::V1);
    let clone = finding(&facts, "clone3");
    assert_eq!((clone.state, clone.detail.contains("5.3")), (State::Missing, true));
    assert!(facts.cgroups.usable(), "{:?}", facts.cgroups);
    // Debian's switch holds for ordinary users only.
    assert_eq!(finding(&facts, "user namespaces").state, State::Available);
    assert!(remedy(&facts, "swap accounting").contains("swapaccount=1"));
    assert_eq!(finding(&facts, "cgroup.freeze").levels, &[] as &[&str]);
    assert_eq!(finding(&facts, "controller freezer").state, State::Available);
}

#[test]
fn prepared_folders_of_version_1_are_enough_but_for_pausing() {
    let facts = facts!("hybrid-user", Some("fumehood".to_owned()));
    assert_eq!(finding(&facts, "delegation").state, State::Available);
    assert_eq!(facts.cgroups.folder, "/sys/fs/cgroup/memory/fumehood");
    assert!(remedy(&facts, "controller freezer").contains("process.cgroup_parent"));
    assert_eq!(finding(&facts, "swap accounting").state, State::Available, "there is no swap");
    assert!(remedy(&facts, "open files").contains("LimitNOFILE"));
    // Without the folders.
    let facts = facts!("hybrid-user");
    assert!(step(&facts, Step::PrepareCgroup).contains("chown -R"));
}

#[test]
fn version_2_without_delegation_is_told_how_to_be_started() {
    let facts = facts!("v2-without-delegation");
    let delegation = finding(&facts, "delegation");
    assert_eq!(delegation.state, State::NotEnabled);
    assert!(delegation.remedy.unwrap().contains("systemd-run --user --scope -p Delegate=yes"));
    let cpu = finding(&facts, "controller cpu");
    assert!(cpu.detail.contains("not handed down") && cpu.remedy.unwrap().contains("delegate.conf"));
    assert!(step(&facts, Step::PrepareCgroup).contains("systemd-run --user"));
    assert_eq!(finding(&facts, "landlock scopes").state, State::Available);
}

#[test]
fn switches_that_are_off_are_named() {
    let base = facts!("debian-12-root");
    let ordinary = Own { uid: 1000, capabilities: 0, ..base.own.clone() };
    let mut none = base.kernel.clone();
    none.most_namespaces.insert("user", 0);
    let facts = Facts { kernel: none, ..base.clone() };
    assert!(step(&facts, Step::Clone).contains("user.max_user_namespaces=15000"));
    let mut none = base.kernel.clone();
    none.most_namespaces.insert("net", 0);
    let facts = Facts { kernel: none, ..base.clone() };
    assert_eq!(finding(&facts, "net namespaces").state, State::NotEnabled);
    assert!(step(&facts, Step::Clone).contains("user.max_*_namespaces"));
    let kernel = Kernel { userns_clone: Some(false), ..base.kernel.clone() };
    let facts = Facts { kernel, own: ordinary, ..base.clone() };
    assert!(step(&facts, Step::Clone).contains("unprivileged_userns_clone=1"));
    let few = Own { ids: vec![(0, 100_000, 65_536)], ..base.own.clone() };
    assert!(step(&Facts { own: few, ..base }, Step::MapIds).contains("/proc/self/uid_map"));
}

#[test]
fn an_ordinary_user_of_a_small_machine_is_told_that_one_sandbox_could_take_all_event_polls() {
    let root = facts!("debian-12-root");
    let of = |own: &Own, event_polls| Facts {
        kernel: Kernel { event_polls, ..root.kernel.clone() },
        own: own.clone(),
        ..root.clone()
    };
    let name = "event polls of this user";
    let ordinary = Own { uid: 1000, capabilities: 0, ..root.own.clone() };
    let state = |own: &Own, most| finding(&of(own, most), name).state;
    assert_eq!(state(&ordinary, Some(400_000)), State::NotEnabled);
    assert!(remedy(&of(&ordinary, Some(400_000)), name).contains("fs.epoll.max_user_watches=50000000"));
    assert_eq!(state(&ordinary, Some(50_000_000)), State::Available);
    assert_eq!(state(&ordinary, None), State::Available);
    assert_eq!(state(&root.own, Some(400_000)), State::Available);
}

#[test]
fn this_host_is_looked_at_without_harm() {
    let facts = Facts::take(&JailerConfig::default(), Some(Path::new("/nonexistent/folder")));
    assert!(facts.host.kernel_is(5, 0), "{:?}", facts.host);
    assert!(facts.own.pid > 0 && !facts.own.ids.is_empty());
    assert!(facts.probes.disk_free.is_some(), "of the nearest folder that is there");
    assert_eq!(finding(&facts, "pid namespaces").state, State::Available);
}
