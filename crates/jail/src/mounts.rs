//! The file system of a sandbox.
//!
//! A read-only root on tmpfs holds read-only binds of the image and a `/dev` of six harmless devices. It is built once per image, in a mount
//! namespace of its own ([`build_image`]), in which nothing of the host is left. A sandbox gets a copy of that namespace and adds
//! what is its own ([`complete`]): a fresh `/proc` with its dangerous parts covered, `/dev/shm`, terminals, and one size-limited disk of which
//! `/data`, `/tmp`, `/var/tmp` and `/home/sandbox` are folders.

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, symlinkat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, mount_change, move_mount, open_tree,
    unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

use crate::error::{At, JailError, Step};
use crate::identity::INSIDE;
use crate::layer::{Layer, Without};
use crate::protocol::RootEntry;
use crate::rlimits::NamespaceLimits;
use crate::sys::{self, NO_DEVICES, NO_EXEC, NO_SUID, READ_ONLY};

/// A folder that exists on every Linux system; the new root is put over it before the pivot.
const STAGE: &str = "/usr";

/// Folders of the disk and where they appear.
const DISK_FOLDERS: [(&str, &str, u32); 4] = [
    ("data", "/data", 0o700),
    ("tmp", "/tmp", 0o1777),
    ("var-tmp", "/var/tmp", 0o1777),
    ("home", "/home/sandbox", 0o700),
];

/// Devices that hold no state of the host.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Parts of `/proc` that could change or tell about the host: covered by `/dev/null`.
const PROC_COVERED: [&str; 6] = ["kcore", "keys", "key-users", "timer_list", "latency_stats", "kallsyms"];

/// Parts of `/proc` that programs read: read-only.
const PROC_READ_ONLY: [&str; 6] = ["sys", "bus", "fs", "irq", "acpi", "sysrq-trigger"];

/// A size-limited file system of its own, not mounted anywhere yet.
///
/// `owner` is the uid and gid of its root folder where the caller may choose it.
pub(crate) fn create_disk(bytes: u64, inodes: u64, owner: Option<(u32, u32)>) -> Result<OwnedFd, JailError> {
    let mut options = vec![("size", bytes.to_string()), ("nr_inodes", inodes.to_string()), ("mode", "0755".to_owned())];
    if let Some((uid, gid)) = owner {
        options.extend([("uid", uid.to_string()), ("gid", gid.to_string())]);
    }
    let disk = detached("tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
        .at(Step::CreateDisk, format!("{bytes} bytes"))?;
    for (folder, _, mode) in DISK_FOLDERS {
        mkdirat(&disk, folder, Mode::from_raw_mode(mode)).at(Step::CreateDisk, folder)?;
        // mkdirat is subject to the umask.
        rustix::fs::chmodat(&disk, folder, Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty())
            .at(Step::CreateDisk, folder)?;
        if let Some((uid, gid)) = owner {
            let owner = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            rustix::fs::chownat(&disk, folder, Some(owner.0), Some(owner.1), rustix::fs::AtFlags::empty())
                .at(Step::CreateDisk, folder)?;
        }
    }
    Ok(disk)
}

fn detached(kind: &str, options: &[(&str, String)], attributes: MountAttrFlags) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, value.as_str())?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// The image's files as detached mounts.
struct Image {
    binds: Vec<(PathBuf, OwnedFd, bool)>,
    devices: Vec<(&'static str, OwnedFd)>,
}

impl Image {
    /// Opens every host path that the image shows.
    fn open(entries: &[RootEntry], read_only: u64) -> Result<Self, JailError> {
        let mut binds = Vec::new();
        for entry in entries {
            if let RootEntry::Bind { source, target } = entry {
                let tree = clone_tree(CWD, source).at(Step::OpenImage, source.clone())?;
                sys::restrict_mount(tree.as_fd(), read_only | NO_SUID | NO_DEVICES, true)
                    .at(Step::OpenImage, source.clone())?;
                let is_dir = fs::metadata(source).at(Step::OpenImage, source.clone())?.is_dir();
                binds.push((PathBuf::from(target), tree, is_dir));
            }
        }
        let mut devices = Vec::new();
        for name in DEVICES {
            let tree = clone_tree(CWD, format!("/dev/{name}")).at(Step::OpenImage, format!("/dev/{name}"))?;
            sys::restrict_mount(tree.as_fd(), NO_SUID | NO_EXEC, false).at(Step::OpenImage, format!("/dev/{name}"))?;
            devices.push((name, tree));
        }
        Ok(Self { binds, devices })
    }
}

fn clone_tree(folder: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    // Recursive: a folder with mounts below it may not be cloned without them inside a user namespace, since that would
    // uncover what they hide.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(folder.as_fd(), path, flags)
}

fn attach(mount: impl AsFd, folder: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<()> {
    move_mount(mount.as_fd(), "", folder.as_fd(), path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Keeps what happens to mounts here from the rest of the host, and the other way round.
pub(crate) fn make_private() -> Result<(), JailError> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).at(Step::PrivateMounts, "/")
}

/// Mounts the `/proc` of this process's pid namespace over the one that is there.
pub(crate) fn mount_own_proc() -> Result<(), JailError> {
    new_proc("/proc", None)
}

fn new_proc(at: &str, options: Option<&CStr>) -> Result<(), JailError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", at, "proc", flags, options).at(Step::MountProc, at)
}

/// Turns this mount namespace, a copy of the host's, into that of an image: builds the root and moves into it.
pub(crate) fn build_image(entries: &[RootEntry], without: &Without) -> Result<(), JailError> {
    make_private()?;
    let read_only = if without.keeps(Layer::ReadOnly) { READ_ONLY } else { 0 };
    let image = Image::open(entries, read_only)?;
    let root = detached(
        "tmpfs",
        &[("size", "4m".to_owned()), ("nr_inodes", "4096".to_owned()), ("mode", "0755".to_owned())],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .at(Step::MountRoot, "tmpfs")?;
    attach(&root, CWD, STAGE).at(Step::MountRoot, STAGE)?;
    // From here on every path is relative to `root`; nothing below it is anybody else's.
    fchdir(&root).at(Step::MountRoot, STAGE)?;

    populate(entries, &image.binds)?;
    populate_dev(&image.devices)?;
    for (_, target, _) in DISK_FOLDERS {
        make_folders(inside(target)?, Step::MountDisk)?;
    }
    make_folders(Path::new("mnt"), Step::MountDisk)?;
    make_folders(Path::new("proc"), Step::MountProc)?;
    // Covered in every sandbox. A whole one must be in sight, or the kernel lets no user namespace mount another.
    new_proc("proc", None)?;

    sys::restrict_mount(root.as_fd(), read_only, false).at(Step::MountRoot, "make it read-only")?;
    pivot_root(".", ".").at(Step::PivotRoot, "")?;
    // The old root now lies over the new one at the same place; take it away.
    unmount(".", UnmountFlags::DETACH).at(Step::PivotRoot, "detach the host's root")?;
    chdir("/").at(Step::PivotRoot, "/")
}

/// Adds to a copy of an image's namespace what belongs to one sandbox. Returns the disk, still open, for the host, and the limits that are to
/// be set when nothing more is mounted.
pub(crate) fn complete(
    disk: OwnedFd,
    shm_bytes: u64,
    without: &Without,
) -> Result<(OwnedFd, Option<NamespaceLimits>), JailError> {
    chdir("/").at(Step::MountRoot, "/")?;
    if without.keeps(Layer::PidNamespace) {
        new_proc("proc", None)?;
    }
    let limits = without.keeps(Layer::Rlimits).then(|| NamespaceLimits::open("proc/sys")).transpose()?;
    if without.keeps(Layer::CoveredProc) {
        cover_proc()?;
    }
    mount_shm(shm_bytes)?;
    let pts = [
        ("ptmxmode", "0666".to_owned()),
        ("mode", "0620".to_owned()),
        ("gid", INSIDE.to_string()),
        ("max", "64".to_owned()),
    ];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let pts = detached("devpts", &pts, attributes).at(Step::MountDev, "/dev/pts")?;
    attach(&pts, CWD, "dev/pts").at(Step::MountDev, "/dev/pts")?;
    Ok((mount_disk(disk)?, limits))
}

/// The same for a zygote, which shares the jailer's pid namespace: of `/proc` it sees its own processes.
pub(crate) fn complete_for_zygote(disk: OwnedFd, shm_bytes: u64) -> Result<(), JailError> {
    chdir("/").at(Step::MountRoot, "/")?;
    new_proc("proc", Some(c"hidepid=2"))?;
    cover_proc()?;
    mount_shm(shm_bytes)?;
    mount_disk(disk).map(drop)
}

/// A path below the new root: relative, without `..`.
fn inside(path: &str) -> Result<&Path, JailError> {
    let relative = Path::new(path.trim_start_matches('/'));
    let plain = relative.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if plain && path.starts_with('/') {
        Ok(relative)
    } else {
        Err(JailError::new(Step::PopulateRoot, path, "is not a plain absolute path"))
    }
}

fn make_folders(path: &Path, step: Step) -> Result<(), JailError> {
    fs::create_dir_all(path).at(step, path.display().to_string())
}

fn make_parent(path: &Path) -> Result<(), JailError> {
    path.parent().map_or(Ok(()), |parent| make_folders(parent, Step::PopulateRoot))
}

fn populate(entries: &[RootEntry], binds: &[(PathBuf, OwnedFd, bool)]) -> Result<(), JailError> {
    let mut binds = binds.iter();
    for entry in entries {
        match entry {
            RootEntry::Bind { target, .. } => {
                let (_, tree, is_dir) = binds.next().expect("one open tree for each bind");
                let target = inside(target)?;
                make_parent(target)?;
                if *is_dir {
                    make_folders(target, Step::PopulateRoot)?;
                } else {
                    empty_file(target).at(Step::PopulateRoot, target.display().to_string())?;
                }
                attach(tree, CWD, target).at(Step::PopulateRoot, target.display().to_string())?;
            }
            RootEntry::Symlink { to, at } => {
                let at = inside(at)?;
                make_parent(at)?;
                symlinkat(to.as_str(), CWD, at).at(Step::PopulateRoot, at.display().to_string())?;
            }
            RootEntry::File { at, text } => {
                let at = inside(at)?;
                make_parent(at)?;
                fs::write(at, text).at(Step::PopulateRoot, at.display().to_string())?;
            }
            RootEntry::Dir { at } => make_folders(inside(at)?, Step::PopulateRoot)?,
        }
    }
    Ok(())
}

fn empty_file(path: &Path) -> rustix::io::Result<()> {
    openat(CWD, path, OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o644)).map(drop)
}

fn cover_proc() -> Result<(), JailError> {
    for name in PROC_READ_ONLY {
        let path = format!("proc/{name}");
        if Path::new(&path).exists() {
            let tree = clone_tree(CWD, &path).at(Step::MountProc, path.clone())?;
            sys::restrict_mount(tree.as_fd(), READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC, true)
                .at(Step::MountProc, path.clone())?;
            attach(&tree, CWD, &path).at(Step::MountProc, path.clone())?;
        }
    }
    for name in PROC_COVERED {
        let path = format!("proc/{name}");
        if Path::new(&path).exists() {
            let cover = clone_tree(CWD, "dev/null").at(Step::MountProc, path.clone())?;
            attach(&cover, CWD, &path).at(Step::MountProc, path.clone())?;
        }
    }
    Ok(())
}

fn populate_dev(devices: &[(&'static str, OwnedFd)]) -> Result<(), JailError> {
    make_folders(Path::new("dev/shm"), Step::MountDev)?;
    make_folders(Path::new("dev/pts"), Step::MountDev)?;
    for (name, tree) in devices {
        let path = PathBuf::from(format!("dev/{name}"));
        empty_file(&path).at(Step::MountDev, path.display().to_string())?;
        attach(tree, CWD, &path).at(Step::MountDev, path.display().to_string())?;
    }
    for (to, at) in [
        ("pts/ptmx", "dev/ptmx"),
        ("/proc/self/fd", "dev/fd"),
        ("/proc/self/fd/0", "dev/stdin"),
        ("/proc/self/fd/1", "dev/stdout"),
        ("/proc/self/fd/2", "dev/stderr"),
    ] {
        symlinkat(to, CWD, at).at(Step::MountDev, at)?;
    }
    Ok(())
}

fn mount_shm(bytes: u64) -> Result<(), JailError> {
    let shm = [("size", bytes.to_string()), ("nr_inodes", "4096".to_owned()), ("mode", "1777".to_owned())];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let shm = detached("tmpfs", &shm, attributes).at(Step::MountDev, "/dev/shm")?;
    attach(&shm, CWD, "dev/shm").at(Step::MountDev, "/dev/shm")
}

fn mount_disk(disk: OwnedFd) -> Result<OwnedFd, JailError> {
    // Its folders can be cloned only from a mount of this namespace, so it is attached for a moment.
    attach(&disk, CWD, "mnt").at(Step::MountDisk, "mnt")?;
    for (folder, target, _) in DISK_FOLDERS {
        let tree = clone_tree(&disk, folder).at(Step::MountDisk, folder)?;
        attach(&tree, CWD, inside(target)?).at(Step::MountDisk, target)?;
    }
    let kept = reopen(disk.as_fd()).at(Step::MountDisk, "keep it open")?;
    unmount("mnt", UnmountFlags::DETACH).at(Step::MountDisk, "mnt")?;
    Ok(kept)
}

/// Has folders of the root appear on the disk too, with the rights that they have there.
pub(crate) fn show(folders: &[(String, String)]) -> Result<(), JailError> {
    for (from, at) in folders {
        let (from, at) = (inside(from)?, inside(at)?);
        make_folders(at, Step::MountDisk)?;
        let tree = clone_tree(CWD, from).at(Step::MountDisk, from.display().to_string())?;
        attach(&tree, CWD, at).at(Step::MountDisk, at.display().to_string())?;
    }
    Ok(())
}

/// Takes from everything that is mounted here the right to be written to. Whoever has the disk itself open still can.
pub(crate) fn close_to_writing() -> Result<(), JailError> {
    let targets = DISK_FOLDERS.iter().map(|(_, target, _)| *target).chain(["/dev/shm"]);
    for target in targets {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mount = openat(CWD, inside(target)?, flags, Mode::empty()).at(Step::MountDisk, target)?;
        sys::restrict_mount(mount.as_fd(), READ_ONLY, false).at(Step::MountDisk, format!("make {target} read-only"))?;
    }
    Ok(())
}

/// The same folder as an ordinary directory descriptor.
fn reopen(folder: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    openat(folder, ".", OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}
