//! A jailer with a host's `/usr` as image, and one call that runs a program to its end.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fumehood_jail::cgroup::Gauges;
use fumehood_jail::jailer::Jailer;
use fumehood_jail::protocol::{
    ExitReport, JailLimits, JailSpec, JailerConfig, Reply, Request, RootEntry, ZygoteSpec, receive, send,
};
use fumehood_jail::refusal::{Heard, Listener};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

/// An ordinary user that exists for a test only.
pub(crate) const USER_ID: u32 = 54_321;

/// What root prepares for an ordinary user: a cgroup folder of theirs, and the program where they can run it.
pub(crate) struct User {
    folder: tempfile::TempDir,
    /// Version 1: relative to each hierarchy.
    cgroup: Option<String>,
    /// Version 2: opened by root, whose rights then count for the jailer that moves itself in.
    join: Option<std::fs::File>,
    cgroup_folders: Vec<PathBuf>,
}

impl User {
    /// Prepares cgroups; the reason where that cannot be done here.
    pub(crate) fn prepare() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can prepare cgroups for another user".to_owned());
        }
        // Tests run side by side.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let cgroup = format!("fumehood-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut cgroup_folders = Vec::new();
        let unified = Path::new("/sys/fs/cgroup");
        if unified.join("cgroup.controllers").exists() {
            let prepare = || {
                std::fs::write(unified.join("cgroup.subtree_control"), "+memory +pids +cpu")?;
                let folder = unified.join(&cgroup);
                std::fs::create_dir(&folder)?;
                for file in [".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
                    std::os::unix::fs::chown(folder.join(file), Some(USER_ID), Some(USER_ID))?;
                }
                let join = std::fs::File::options().write(true).open(folder.join("cgroup.procs"))?;
                Ok((join, folder))
            };
            let (join, folder) = prepare().map_err(|error: std::io::Error| error.to_string())?;
            return Ok(Self { folder: Self::program()?, cgroup: None, join: Some(join), cgroup_folders: vec![folder] });
        }
        for controller in ["memory", "pids", "cpu", "cpuacct", "freezer"] {
            let hierarchy = Path::new("/sys/fs/cgroup").join(controller);
            if !hierarchy.join("cgroup.procs").exists() {
                return Err(format!("neither version 2 nor a version 1 hierarchy of {controller}"));
            }
            let folder = hierarchy.join(&cgroup);
            std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
            std::os::unix::fs::chown(&folder, Some(USER_ID), Some(USER_ID)).map_err(|error| error.to_string())?;
            cgroup_folders.push(folder);
        }
        Ok(Self { folder: Self::program()?, cgroup: Some(cgroup), join: None, cgroup_folders })
    }

    /// The jailer's program where that user can run it.
    fn program() -> Result<tempfile::TempDir, String> {
        let folder = tempfile::tempdir_in("/tmp").map_err(|error| error.to_string())?;
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        // By a process of its own: a descriptor open for writing here could be inherited by what another test starts at this
        // moment, and the program would be "busy".
        let copied =
            Command::new("cp").arg(env!("CARGO_BIN_EXE_fumehood-jailer")).arg(folder.path().join("jailer")).status();
        if !copied.is_ok_and(|status| status.success()) {
            return Err("the program could not be copied".to_owned());
        }
        Ok(folder)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // The jailer, whose socket was closed a moment ago, may still be in there.
        let deadline = Instant::now() + Duration::from_secs(5);
        for folder in &self.cgroup_folders {
            while folder.exists() && Instant::now() < deadline {
                for below in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                    std::fs::remove_dir(below.path()).ok();
                }
                if std::fs::remove_dir(folder).is_err() {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
            }
        }
    }
}

pub(crate) struct Rig {
    pub(crate) jailer: Jailer,
    next: u64,
    /// Who owns the pipes, where that is not this process.
    owner: Option<u32>,
    /// Programs are forked from this zygote.
    pub(crate) zygote: Option<u64>,
    refused: Arc<Mutex<Vec<String>>>,
    deaf: bool,
}

/// Every end of what connects a sandbox with its host, so that none is closed.
pub(crate) struct Channels {
    to_gate: OwnedFd,
    to_stdin: OwnedFd,
    from_stdout: OwnedFd,
    control: std::os::unix::net::UnixStream,
    _kept: Vec<OwnedFd>,
}

impl Channels {
    /// Writes to standard input.
    pub(crate) fn say(&self, text: &str) {
        rustix::io::write(&self.to_stdin, text.as_bytes()).unwrap();
    }

    /// Waits until something is printed.
    pub(crate) fn listen(&self) {
        assert!(rustix::io::read(&self.from_stdout, &mut [0; 64]).unwrap() > 0);
    }

    /// Tells a fork, which waits for it, what to execute.
    pub(crate) fn execute(&mut self, argv: &[&str]) {
        writeln!(self.control, "{}", serde_json::to_string(argv).unwrap()).unwrap();
    }

    pub(crate) fn open_gate(&self) {
        rustix::io::write(&self.to_gate, &[1]).unwrap();
    }
}

/// What became of one program.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) report: ExitReport,
    pub(crate) disk: Option<OwnedFd>,
    /// Host uid of the sandbox.
    pub(crate) uid: Option<u32>,
}

impl Run {
    /// The exit code; panics when the program did not end by itself.
    pub(crate) fn code(&self) -> i32 {
        let status = self.report.wait_status.unwrap_or_else(|| panic!("killed as a whole: {self:?}"));
        assert_eq!(status & 0x7f, 0, "ended by a signal: {self:?}");
        status >> 8 & 0xff
    }
}

pub(crate) fn only_child(parent: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    children.split_whitespace().next().expect("a child").parse().unwrap()
}

pub(crate) fn limits() -> JailLimits {
    JailLimits { memory_bytes: 256 << 20, cpu_millis: 1000, processes: 32, file_size_bytes: 64 << 20, open_files: 256 }
}

impl Rig {
    /// A jailer, or the reason why this host cannot run one.
    pub(crate) fn new() -> Result<Self, String> {
        Self::start(Command::new(env!("CARGO_BIN_EXE_fumehood-jailer")), None)
    }

    /// A jailer that runs as an ordinary user below cgroups given to that user.
    pub(crate) fn as_user(user: &User) -> Result<Self, String> {
        let mut command = Command::new(user.folder.path().join("jailer"));
        command.uid(USER_ID).gid(USER_ID);
        if let Some(procs) = &user.join {
            let procs = procs.try_clone().map_err(|error| error.to_string())?;
            let join = move || rustix::io::write(&procs, b"0").map(drop).map_err(std::io::Error::from);
            // SAFETY: one call of write, which is allowed between fork and exec.
            unsafe { command.pre_exec(join) };
        }
        let mut rig = Self::start(command, user.cgroup.clone())?;
        rig.owner = Some(USER_ID);
        Ok(rig)
    }

    fn start(command: Command, cgroup_parent: Option<String>) -> Result<Self, String> {
        let config = JailerConfig { uid_base: 300_000, uid_count: 64, cgroup_parent, ..JailerConfig::default() };
        let jailer = Jailer::start(command, &config).map_err(|error| match error {
            fumehood_jail::jailer::StartError::Unusable(cause) => cause.to_string(),
            other => other.to_string(),
        })?;
        Ok(Self { jailer, next: 1, owner: None, zygote: None, refused: Arc::default(), deaf: false })
    }

    /// Has programs forked from a zygote from now on, which then execute what they were told.
    pub(crate) fn forking(self) -> Self {
        self.forking_from(&["/opt/zygote", "zygote"])
    }

    /// Takes this program for a zygote.
    pub(crate) fn forking_from(mut self, argv: &[&str]) -> Self {
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_fumehood-jailer"));
        let JailSpec { id, mut root, env, .. } = self.spec(&[]);
        root.push(RootEntry::Bind { source: binary.display().to_string(), target: "/opt/zygote".to_owned() });
        let spec = ZygoteSpec {
            id,
            family: 0,
            name: format!("zygote-{id}"),
            root,
            disk_bytes: 1 << 20,
            links: Vec::new(),
            argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
            env,
            limits: limits(),
        };
        let (log, to_log) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        send(&self.jailer.link.socket, &Request::StartZygote(Box::new(spec)), &[to_log.as_fd()]).unwrap();
        drop(to_log);
        match self.hear().0 {
            Reply::ZygoteReady { .. } => {}
            other => {
                let mut text = String::new();
                std::fs::File::from(log).read_to_string(&mut text).unwrap();
                panic!("no zygote: {other:?} {text}");
            }
        }
        self.zygote = Some(id);
        self
    }

    /// The jailer's process that makes sandboxes.
    pub(crate) fn inner(&self) -> i32 {
        only_child(i32::try_from(self.jailer.process.id()).unwrap())
    }

    pub(crate) fn spec(&mut self, argv: &[&str]) -> JailSpec {
        let id = self.next;
        self.next += 1;
        let mut root = vec![RootEntry::Bind { source: "/usr".to_owned(), target: "/usr".to_owned() }];
        for name in ["bin", "sbin", "lib", "lib64"] {
            let path = format!("/{name}");
            match std::fs::read_link(&path) {
                Ok(to) => root.push(RootEntry::Symlink { to: to.display().to_string(), at: path }),
                Err(_) if std::path::Path::new(&path).exists() => {
                    root.push(RootEntry::Bind { source: path.clone(), target: path });
                }
                Err(_) => {}
            }
        }
        root.push(RootEntry::File {
            at: "/etc/passwd".to_owned(),
            text: "sandbox:x:1000:1000::/home/sandbox:/bin/sh\n".to_owned(),
        });
        JailSpec {
            id,
            name: format!("t{id}"),
            root,
            disk_bytes: 32 << 20,
            disk_inodes: 4096,
            shm_bytes: 16 << 20,
            argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
            env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            cwd: "/data".to_owned(),
            limits: limits(),
            control: self.zygote.is_some(),
            shown: Vec::new(),
            read_only: false,
            waits: false,
            keep: false,
            zygote: self.zygote,
        }
    }

    /// Has a sandbox started and does not wait for anything.
    pub(crate) fn launch(&self, spec: JailSpec) -> Channels {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (stdin, stdout, stderr, (gate, to_gate)) = (pipe(), pipe(), pipe(), pipe());
        let (near, control) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut fds = vec![stdin.0.as_fd(), stdout.1.as_fd(), stderr.1.as_fd(), gate.as_fd()];
        if spec.control {
            fds.push(control.as_fd());
        }
        send(&self.jailer.link.socket, &Request::Spawn(Box::new(spec)), &fds).unwrap();
        let kept = [stdin.0, stdout.1, stderr.0, stderr.1, gate, control.into()];
        Channels { to_gate, to_stdin: stdin.1, from_stdout: stdout.0, control: near, _kept: kept.into() }
    }

    /// The next that the jailer says, but for the last of what ended earlier.
    pub(crate) fn hear(&self) -> (Reply, Vec<OwnedFd>) {
        loop {
            match self.hear_all() {
                (Reply::Gone { .. }, _) => {}
                other => return other,
            }
        }
    }

    /// The next that the jailer says, but for where refused calls are heard of, which is attended to.
    pub(crate) fn hear_all(&self) -> (Reply, Vec<OwnedFd>) {
        loop {
            if let Some(heard) = self.take() {
                return heard;
            }
        }
    }

    /// Takes one reply; `None` when it was to be attended to here.
    fn take(&self) -> Option<(Reply, Vec<OwnedFd>)> {
        match receive(&self.jailer.link.socket).unwrap().expect("the jailer lives") {
            (Reply::Listening { .. }, mut fds) => {
                self.listen(Listener::new(fds.pop().expect("a listener")));
                None
            }
            other => Some(other),
        }
    }

    /// Refuses what a program is refused, as a server does, and takes note.
    fn listen(&self, listener: Listener) {
        if self.deaf {
            return;
        }
        let refused = Arc::clone(&self.refused);
        std::thread::spawn(move || {
            loop {
                let mut ready = [PollFd::new(&listener, PollFlags::IN)];
                poll(&mut ready, None).unwrap();
                match listener.next().unwrap() {
                    Heard::Refused(call) => {
                        refused.lock().unwrap().push(call.explain().what);
                        listener.refuse(&call).unwrap();
                    }
                    Heard::Nothing => {}
                    Heard::Ended => return,
                }
            }
        });
    }

    /// Does not listen from now on.
    pub(crate) fn deaf(&mut self) {
        self.deaf = true;
    }

    /// What programs were refused since this was asked last.
    pub(crate) fn refused(&self) -> Vec<String> {
        std::mem::take(&mut *self.refused.lock().unwrap())
    }

    /// Waits until a sandbox has started, the only thing that can be heard of.
    pub(crate) fn started(&self) {
        let started = self.hear();
        assert!(matches!(started.0, Reply::Started { .. }), "{started:?}");
    }

    /// Runs a shell script to its end.
    pub(crate) fn sh(&mut self, script: &str) -> Run {
        let spec = self.spec(&["/bin/sh", "-c", script]);
        self.run(spec, None)
    }

    /// Runs a Python program to its end.
    pub(crate) fn python(&mut self, program: &str) -> Run {
        let spec = self.spec(&["/usr/bin/python3", "-I", "-c", program]);
        self.run(spec, None)
    }

    /// Runs to the end; kills after `deadline` if there is one.
    pub(crate) fn run(&mut self, spec: JailSpec, deadline: Option<Duration>) -> Run {
        let id = spec.id;
        let argv = serde_json::to_string(&spec.argv).unwrap();
        let owner = self.owner;
        let pipe = || {
            let pipe = pipe_with(PipeFlags::CLOEXEC).unwrap();
            if let Some(uid) = owner {
                rustix::fs::fchown(&pipe.0, Some(rustix::fs::Uid::from_raw(uid)), None).unwrap();
            }
            pipe
        };
        let (stdin, to_stdin) = pipe();
        let (from_stdout, stdout) = pipe();
        let (from_stderr, stderr) = pipe();
        let (gate, to_gate) = pipe();
        drop(to_stdin);
        let socket = &self.jailer.link.socket;
        let (mut near, control) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut fds = vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), gate.as_fd()];
        if spec.control {
            fds.push(control.as_fd());
        }
        send(socket, &Request::Spawn(Box::new(spec)), &fds).unwrap();
        drop((stdin, stdout, stderr, gate, control));
        near.write_all(format!("{argv}\n").as_bytes()).ok();

        let (mut disk, mut uid) = (None, None);
        let report = match self.hear() {
            (Reply::Started { id: started, uid: host_uid }, mut fds) => {
                assert_eq!(started, id);
                uid = Some(host_uid);
                disk = fds.pop();
                None
            }
            (Reply::Exited { report, .. }, _) => Some(report),
            other => panic!("unexpected {other:?}"),
        };
        rustix::io::write(&to_gate, &[1]).ok();
        let readers = [from_stdout, from_stderr].map(|pipe| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                std::fs::File::from(pipe).read_to_end(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes).into_owned()
            })
        });
        let report = report.unwrap_or_else(|| self.exit_of(id, deadline));
        let [stdout, stderr] = readers.map(|reader| reader.join().unwrap());
        Run { stdout, stderr, report, disk, uid }
    }

    fn exit_of(&self, id: u64, deadline: Option<Duration>) -> ExitReport {
        let begun = Instant::now();
        let mut deadline = deadline;
        loop {
            assert!(begun.elapsed() < Duration::from_secs(60), "sandbox {id} never ended");
            if let Some(after) = deadline {
                let left = Timespec::try_from(after.saturating_sub(begun.elapsed())).unwrap();
                let mut fds = [PollFd::new(&self.jailer.link.socket, PollFlags::IN)];
                if poll(&mut fds, Some(&left)).unwrap() == 0 {
                    send(&self.jailer.link.socket, &Request::Kill { id }, &[]).unwrap();
                    deadline = None;
                }
            }
            if let Some((Reply::Exited { id: ended, report, .. }, _)) = self.take()
                && ended == id
            {
                return report;
            }
        }
    }
}

/// A sandbox that outlives its programs.
pub(crate) struct Kept {
    pub(crate) id: u64,
    forked: bool,
    pub(crate) gauges: Gauges,
}

impl Rig {
    /// Starts one. What is executed in it waits to be told what to become, as forks do.
    pub(crate) fn keep(&mut self) -> Kept {
        let mut spec = self.spec(&["/opt/zygote", "fork"]);
        spec.keep = true;
        spec.control = true;
        spec.root.push(RootEntry::Bind {
            source: PathBuf::from(env!("CARGO_BIN_EXE_fumehood-jailer")).display().to_string(),
            target: "/opt/zygote".to_owned(),
        });
        let (id, forked) = (spec.id, spec.zygote.is_some());
        send(&self.jailer.link.socket, &Request::Spawn(Box::new(spec)), &[]).unwrap();
        let (reply, fds) = self.hear();
        assert!(matches!(reply, Reply::Started { id: started, .. } if started == id), "{reply:?}");
        // Its disk and its counters.
        let gauges = Gauges::new(fds.into_iter().skip(1).collect()).expect("counters");
        assert!(gauges.read().memory_peak_bytes > 0);
        Kept { id, forked, gauges }
    }
}

impl Kept {
    /// Starts the next program and waits until it has come in.
    pub(crate) fn begin(&self, rig: &Rig) -> Channels {
        let channels = self.begin_from(rig, rig.zygote.filter(|_| self.forked));
        let begun = rig.hear().0;
        assert!(matches!(begun, Reply::Begun { id, .. } if id == self.id), "{begun:?}");
        channels
    }

    pub(crate) fn begin_from(&self, rig: &Rig, zygote: Option<u64>) -> Channels {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (stdin, stdout, stderr, (gate, to_gate)) = (pipe(), pipe(), pipe(), pipe());
        let (near, control) = std::os::unix::net::UnixStream::pair().unwrap();
        let fds = [stdin.0.as_fd(), stdout.1.as_fd(), stderr.1.as_fd(), control.as_fd()];
        send(&rig.jailer.link.socket, &Request::Begin { id: self.id, program: 1, zygote }, &fds).unwrap();
        let kept = [stderr.0, gate];
        Channels { to_gate, to_stdin: stdin.1, from_stdout: stdout.0, control: near, _kept: kept.into() }
    }

    /// Waits for the end of the present program.
    pub(crate) fn ended(&self, rig: &Rig) -> ExitReport {
        match rig.hear().0 {
            Reply::ProgramEnded { id, report, .. } if id == self.id => report,
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Runs a shell script to its end.
    pub(crate) fn run(&self, rig: &Rig, script: &str) -> Run {
        let mut channels = self.begin(rig);
        channels.execute(&["/bin/sh", "-c", script]);
        let report = self.ended(rig);
        // What is left in the pipe; another process may hold its other end.
        let mut buffer = vec![0; 64 << 10];
        let flags = rustix::fs::fcntl_getfl(&channels.from_stdout).unwrap() | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&channels.from_stdout, flags).unwrap();
        let length = rustix::io::read(&channels.from_stdout, &mut buffer).unwrap_or(0);
        let stdout = String::from_utf8_lossy(&buffer[..length]).into_owned();
        Run { stdout, stderr: String::new(), report, disk: None, uid: None }
    }

    pub(crate) fn end(self, rig: &Rig) {
        send(&rig.jailer.link.socket, &Request::Kill { id: self.id }, &[]).unwrap();
        loop {
            if matches!(rig.hear().0, Reply::Exited { id, .. } if id == self.id) {
                return;
            }
        }
    }
}

impl Drop for Rig {
    /// Waits for the jailer: in version 2 of cgroups a folder that it uses takes in no other process until it has left.
    fn drop(&mut self) {
        rustix::net::shutdown(&self.jailer.link.socket, rustix::net::Shutdown::Both).ok();
        self.jailer.process.wait().ok();
    }
}
