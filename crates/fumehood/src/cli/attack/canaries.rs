//! What attacks must not reach on the host: each thing is there to be found, harmless to lose, and looked at after each attack.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::net::{TcpListener, UdpSocket};

/// Every secret begins so, followed by 32 hexadecimal digits; programs look for the pattern, and know none of them.
pub(super) const SECRET: &str = "fmhs-";

/// A secret nobody can guess.
pub(super) fn secret() -> String {
    let mut rng = fastrand::Rng::new();
    format!("{SECRET}{:032x}", rng.u128(..))
}

/// What was heard or seen, in words.
type Noted = Arc<Mutex<Vec<String>>>;

fn note(noted: &Noted, what: String) {
    noted.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

/// Everything on the host that is there to be attacked.
pub(super) struct Canaries {
    folder: tempfile::TempDir,
    /// A secret in files; others are in the environment and with the neighbour.
    secret: String,
    process: Child,
    facts: Value,
    noted: Noted,
    ipc: Vec<Ipc>,
    before: State,
}

/// What is compared after each attack.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    writable: String,
    folder: Vec<(String, u32, u64)>,
    process: String,
    host_name: String,
    mounts: usize,
    ipc: Vec<String>,
    settings: Vec<String>,
}

/// A System V object of the host's, open to everybody.
struct Ipc {
    kind: &'static str,
    id: String,
}

impl Drop for Ipc {
    fn drop(&mut self) {
        let flag = match self.kind {
            "shm" => "-m",
            "msg" => "-q",
            _ => "-s",
        };
        // An attack may have removed it, which was noted.
        Command::new("ipcrm").args([flag, &self.id]).stderr(Stdio::null()).status().ok();
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Files that tell of a change to the whole machine.
const SETTINGS: [&str; 6] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/net/ipv4/ip_forward",
];

impl Canaries {
    /// Puts everything in place. Must be called on a runtime.
    ///
    /// # Errors
    /// When something cannot be made.
    pub(super) async fn place() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("fumehood-attack-").tempdir_in("/tmp").context("in /tmp")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        let secret = secret();
        let file = |name: &str, mode| -> anyhow::Result<PathBuf> {
            let path = folder.path().join(name);
            fs::write(&path, format!("{secret}\n"))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            Ok(path)
        };
        let (readable, writable) = (file("readable", 0o644)?, file("writable", 0o666)?);
        let noted = Noted::default();
        let mut facts = json!({
            "secrets": SECRET, "readable": readable, "writable": writable, "folder": folder.path(),
        });
        listen(&mut facts, &noted, folder.path()).await?;
        // Nothing but its pid and its environment is of interest.
        let process = Command::new("sleep").arg("100000").env("CANARY", &secret).stdin(Stdio::null()).spawn();
        let process = process.context("cannot start a process to be attacked")?;
        facts["pid"] = process.id().into();
        facts["command_pid"] = std::process::id().into();
        facts["host_name"] = read("/proc/sys/kernel/hostname").into();
        facts["namespaces"] = namespaces();
        let ipc = ipc(&mut facts);
        let mut canaries = Self { folder, secret, process, facts, noted, ipc, before: State::default() };
        canaries.before = canaries.state();
        Ok(canaries)
    }

    /// What attacks are told.
    pub(super) fn facts(&self) -> &Value {
        &self.facts
    }

    /// Secrets of the host that no answer may hold.
    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// What has been touched or heard since the last time.
    pub(super) fn damage(&mut self) -> Vec<String> {
        let mut damage = std::mem::take(&mut *self.noted.lock().unwrap_or_else(PoisonError::into_inner));
        let now = self.state();
        let before = &self.before;
        let mut differs = |what: &str, before: &dyn std::fmt::Debug, now: &dyn std::fmt::Debug| {
            damage.push(format!("{what} of the host changed from {before:?} to {now:?}"));
        };
        if now.writable != before.writable {
            differs("a file", &before.writable, &now.writable);
        }
        if now.folder != before.folder {
            differs("a folder", &before.folder, &now.folder);
        }
        if now.process != before.process {
            differs("a process", &before.process, &now.process);
        }
        if now.host_name != before.host_name {
            differs("the name", &before.host_name, &now.host_name);
        }
        // Other programs may unmount something meanwhile.
        if now.mounts > before.mounts {
            differs("mounts", &before.mounts, &now.mounts);
        }
        if now.ipc != before.ipc {
            differs("System V IPC", &before.ipc, &now.ipc);
        }
        if now.settings != before.settings {
            differs("a setting", &before.settings, &now.settings);
        }
        self.before = now;
        damage
    }

    fn state(&self) -> State {
        let entries = fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        let mut folder: Vec<_> = entries
            .filter_map(|entry| {
                let about = entry.metadata().ok()?;
                Some((entry.file_name().to_string_lossy().into_owned(), about.mode(), about.len()))
            })
            .collect();
        folder.sort();
        State {
            writable: read(self.folder.path().join("writable")),
            folder,
            process: process(self.process.id()),
            host_name: read("/proc/sys/kernel/hostname"),
            mounts: read("/proc/self/mountinfo").lines().count(),
            ipc: self.ipc.iter().map(Ipc::state).collect(),
            settings: SETTINGS.map(read).into(),
        }
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Whether a process lives, its parent and priority, and what may happen to it in memory pressure.
fn process(pid: u32) -> String {
    format!("{} {}", told(&read(format!("/proc/{pid}/stat"))), read(format!("/proc/{pid}/oom_score_adj")))
}

/// What is compared of a line of `/proc/PID/stat`.
fn told(stat: &str) -> String {
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let told = [0, 1, 15, 16].map(|index| match (index, fields.get(index).copied()) {
        // Running, asleep, or in the kernel for a moment: which of them is chance.
        (0, Some("R" | "S" | "D")) => "lives",
        (_, Some(field)) => field,
        (_, None) => "-",
    });
    told.join(" ")
}

/// Namespaces of this process, by kind.
fn namespaces() -> Value {
    let links = fs::read_dir("/proc/self/ns").into_iter().flatten().flatten();
    links
        .filter_map(|link| {
            let target = fs::read_link(link.path()).ok()?.to_string_lossy().into_owned();
            Some((link.file_name().to_string_lossy().into_owned(), Value::from(target)))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Listens on everything there is, and notes whoever comes.
async fn listen(facts: &mut Value, noted: &Noted, folder: &Path) -> anyhow::Result<()> {
    for (name, address) in [("port", "127.0.0.1:0"), ("port6", "[::1]:0")] {
        // A host need not have version 6 of the protocol.
        let Ok(listener) = TcpListener::bind(address).await else {
            facts[name] = Value::Null;
            continue;
        };
        facts[name] = listener.local_addr()?.port().into();
        let udp = UdpSocket::bind(address).await.context("cannot listen on UDP")?;
        facts[format!("udp_{name}")] = udp.local_addr()?.port().into();
        let (of_tcp, of_udp) = (Arc::clone(noted), Arc::clone(noted));
        tokio::spawn(async move {
            while let Ok((_, from)) = listener.accept().await {
                note(&of_tcp, format!("the host accepted a connection on {name} from {from}"));
            }
        });
        tokio::spawn(async move {
            let mut bytes = [0; 2048];
            while let Ok((length, from)) = udp.recv_from(&mut bytes).await {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                note(&of_udp, format!("the host received {text:?} on {name} from {from}"));
            }
        });
    }
    let name = format!("fumehood-attack-{}", std::process::id());
    let path = folder.join("socket");
    let streams = [UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?, UnixListener::bind(&path)?];
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?;
    for stream in streams {
        stream.set_nonblocking(true)?;
        let stream = tokio::net::UnixListener::from_std(stream)?;
        let noted = Arc::clone(noted);
        tokio::spawn(async move {
            while stream.accept().await.is_ok() {
                note(&noted, "the host accepted a connection on a unix socket".to_owned());
            }
        });
    }
    let datagrams = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("{name}-datagrams"))?)?;
    datagrams.set_nonblocking(true)?;
    let datagrams = tokio::net::UnixDatagram::from_std(datagrams)?;
    let noted = Arc::clone(noted);
    tokio::spawn(async move {
        let mut bytes = [0; 2048];
        while let Ok((length, _)) = datagrams.recv_from(&mut bytes).await {
            note(&noted, format!("the host received {length} bytes on a unix socket"));
        }
    });
    facts["abstract"] = name.into();
    facts["socket"] = path.display().to_string().into();
    Ok(())
}

/// System V objects with the rights of everybody; a host without `ipcmk` has none, and facts then say so.
fn ipc(facts: &mut Value) -> Vec<Ipc> {
    let kinds: [(&str, &[&str]); 3] = [("shm", &["-M", "4096"]), ("msg", &["-Q"]), ("sem", &["-S", "1"])];
    let mut made = Vec::new();
    for (kind, what) in kinds {
        facts[kind] = Value::Null;
        let output = Command::new("ipcmk").args(what).args(["-p", "0666"]).output();
        let id = output
            .ok()
            .and_then(|output| Some(String::from_utf8(output.stdout).ok()?.rsplit_once(' ')?.1.trim().to_owned()));
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            facts[kind] = id.parse::<i64>().ok().into();
            made.push(Ipc { kind, id });
        }
    }
    made
}

impl Ipc {
    /// Its line in the kernel's table: who used it last, when, and what is in it.
    fn state(&self) -> String {
        let table = read(format!("/proc/sysvipc/{}", self.kind));
        let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(&self.id));
        line.unwrap_or("removed").split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whatever_is_touched_is_noticed_once() {
        let mut canaries = Canaries::place().await.unwrap();
        assert_eq!(canaries.damage(), Vec::<String>::new());
        fs::write(canaries.facts["writable"].as_str().unwrap(), "x").unwrap();
        fs::write(canaries.folder.path().join("new"), "x").unwrap();
        let damage = canaries.damage();
        assert!(
            damage.iter().any(|what| what.contains("a file")) && damage.iter().any(|what| what.contains("a folder"))
        );
        assert_eq!(canaries.damage(), Vec::<String>::new());

        let port = canaries.facts["port"].as_u64().unwrap();
        drop(std::net::TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap())).unwrap());
        let path = canaries.facts["socket"].as_str().unwrap().to_owned();
        drop(std::os::unix::net::UnixStream::connect(&path).unwrap());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut heard = Vec::new();
        while heard.len() < 2 && std::time::Instant::now() < deadline {
            tokio::task::yield_now().await;
            heard.extend(canaries.damage());
        }
        assert_eq!(heard.len(), 2, "{heard:?}");
        drop(canaries);
        assert!(!Path::new(&path).exists());
    }

    #[test]
    fn a_process_that_happens_to_run_lives_like_one_that_sleeps_and_one_that_is_stopped_does_not() {
        let stat = |state: &str| format!("4711 (sl) eep) {state} 1 4711 4711 0 -1 4194304 95 0 0 0 0 0 0 0 20 0 1 0 8");
        assert_eq!(told(&stat("R")), "lives 1 20 0");
        assert_eq!(told(&stat("S")), told(&stat("R")));
        assert_eq!(told(&stat("D")), told(&stat("R")));
        for other in ["T", "t", "Z", "X"] {
            assert_ne!(told(&stat(other)), told(&stat("S")));
        }
        assert_eq!(told(""), "- - - -");
    }

    #[test]
    fn two_secrets_are_never_the_same() {
        assert_ne!(secret(), secret());
        assert_eq!(secret().len(), SECRET.len() + 32);
    }
}
