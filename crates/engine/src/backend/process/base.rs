//! What sandboxes are made from: the image, the runner, and the environment that comes with them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fumehood_jail::protocol::{JailLimits, JailSpec, RootEntry, ZygoteSpec};
use fumehood_wire::{Program, Script};

use super::ZygoteConfig;
use crate::files;
use crate::image::Image;
use crate::runner::LIBRARY_NAME;
use crate::spec::{ExecutionSpec, FieldError, IsolationLevel, Language, Limits};

/// Where the runner appears inside.
const RUNNER_DIR: &str = "/opt/fumehood/runner";

/// What the operator shares with every sandbox: where it is, and where it appears.
const SHARED: (&str, &str) = ("/opt/fumehood/shared", "/data/shared");

/// The home inside, and matplotlib's folder in it.
const HOME: &str = "/home/sandbox";
const MATPLOTLIB: &str = ".config/matplotlib";

/// Runs before JavaScript code: `require` as in older code, and blocking output, since `process.exit()` otherwise loses what does not
/// fit into the pipe at once.
const NODE_PRELOAD: &str = "import { createRequire } from 'node:module';
globalThis.require = createRequire(process.cwd() + '/');
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);";

/// Variables that libraries take their number of threads from. One per core allowed: more would only fight over the quota, and each takes memory.
const THREADS: [&str; 6] = [
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
];

/// Longest single argument that the kernel takes; longer scripts travel as a file.
const LONGEST_ARGUMENT: usize = 120 << 10;

/// One version of an image with all that is put beside it. Sandboxes hold what they were made from, so that it is not removed below them.
pub(super) struct Base {
    pub(super) image: Image,
    /// What the root of every sandbox consists of: the image and the runner.
    root: Vec<RootEntry>,
    /// Environment added to every sandbox, by the operator.
    extra_env: Vec<(String, String)>,
    /// A folder of the host that every sandbox sees.
    shared: Option<String>,
    /// Tells it from those before and after.
    pub(super) number: u64,
}

impl Base {
    /// `runner` is the folder of the runner on the host.
    pub(super) fn new(
        image: Image,
        runner: String,
        extra_env: Vec<(String, String)>,
        shared: Option<String>,
        number: u64,
    ) -> Self {
        let mut root = image.entries.clone();
        root.push(RootEntry::Bind { source: runner, target: RUNNER_DIR.to_owned() });
        let shown = shared.clone().map(|source| RootEntry::Bind { source, target: SHARED.0.to_owned() });
        root.extend(shown);
        Self { image, root, extra_env, shared, number }
    }

    /// The version that comes after this one.
    pub(super) fn next(&self, image: Image, runner: String) -> Self {
        Self::new(image, runner, self.extra_env.clone(), self.shared.clone(), self.number + 1)
    }

    /// Another image, with the same beside it.
    pub(super) fn beside(&self, image: Image, runner: String) -> Self {
        Self::new(image, runner, self.extra_env.clone(), self.shared.clone(), 0)
    }

    /// A zygote for executions like `ordinary`; whoever starts it gives it id and name.
    pub(super) fn zygote(&self, config: &ZygoteConfig, ordinary: &ExecutionSpec, kind: u32) -> ZygoteSpec {
        let mut argv = self.python("zygote.py");
        argv.extend([format!("{RUNNER_DIR}/{LIBRARY_NAME}"), "3".to_owned()]);
        argv.extend(config.preload.iter().cloned());
        let mut env = self.environment(ordinary);
        for (_, threads) in env.iter_mut().filter(|(name, _)| THREADS.contains(&name.as_str())) {
            // Only a process with one thread can be forked.
            "1".clone_into(threads);
        }
        let limits = Limits { memory_bytes: config.memory_bytes, ..ordinary.limits };
        ZygoteSpec {
            id: 0,
            family: kind,
            name: String::new(),
            root: self.root.clone(),
            disk_bytes: 64 << 20,
            links: self.matplotlib_links(),
            argv,
            env,
            limits: jail_limits(&limits),
        }
    }

    /// Refuses what can never work with this image.
    ///
    /// # Errors
    /// The field to change.
    pub(super) fn accepts(&self, execution: &ExecutionSpec) -> Result<(), FieldError> {
        match execution.isolation {
            IsolationLevel::Auto | IsolationLevel::Process => {}
            other => {
                let message = format!("level '{other}' is not available on this node; 'process' is");
                return Err(FieldError::new("isolation", message));
            }
        }
        if execution.language == Language::Typescript && !self.image.runs_typescript {
            let message = "typescript needs Node.js 22.18, 23.6 or later, which the image does not have";
            return Err(FieldError::new("language", message));
        }
        self.argv(execution).map(drop)
    }

    /// What is put into the home for matplotlib, by its path.
    fn matplotlib_links(&self) -> Vec<(String, String)> {
        let links = self.image.matplotlib_links.iter();
        links.map(|(name, to)| (to.clone(), format!("{HOME}/{MATPLOTLIB}/{name}"))).collect()
    }

    fn python(&self, script: &str) -> Vec<String> {
        [&self.image.python, "-u", "-B", &format!("{RUNNER_DIR}/{script}")].map(str::to_owned).into()
    }

    /// # Errors
    /// The field that asks for what the image does not have.
    pub(super) fn jail_spec(
        &self,
        id: u64,
        name: &str,
        execution: &ExecutionSpec,
        zygote: Option<u64>,
    ) -> Result<JailSpec, FieldError> {
        let (argv, env) = match zygote {
            // It has them already; what the caller adds comes with the code.
            Some(_) => Default::default(),
            None => (self.argv(execution)?, self.environment(execution)),
        };
        Ok(JailSpec {
            id,
            name: name.to_owned(),
            root: self.root.clone(),
            disk_bytes: execution.limits.disk_bytes,
            disk_inodes: inodes(&execution.limits),
            shm_bytes: (execution.limits.memory_bytes / 2).max(1 << 20),
            argv,
            env,
            cwd: execution.cwd.clone(),
            limits: jail_limits(&execution.limits),
            shown: self.shared.iter().map(|_| (SHARED.0.to_owned(), SHARED.1.to_owned())).collect(),
            read_only: execution.kind.read_only,
            waits: false,
            keep: false,
            control: execution.language == Language::Python,
            zygote,
        })
    }

    /// The program of an execution in a session, unless its interpreter runs the code.
    ///
    /// # Errors
    /// The field that asks for what the image does not have.
    pub(super) fn program_within(&self, execution: &ExecutionSpec) -> Result<Option<Program>, FieldError> {
        if execution.language == Language::Python {
            return Ok(None);
        }
        let script = script_file(execution);
        let script = script.map(|(name, text)| Script { path: format!("{HOME}/{name}"), text: text.to_owned() });
        Ok(Some(Program { argv: self.argv(execution)?, script }))
    }

    fn environment(&self, execution: &ExecutionSpec) -> Vec<(String, String)> {
        let threads = cores(execution).to_string();
        let mut env: BTreeMap<String, String> = [
            ("HOME", HOME),
            ("USER", "sandbox"),
            ("LOGNAME", "sandbox"),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
            ("TMPDIR", "/tmp"),
            ("TERM", "dumb"),
            ("PYTHONUNBUFFERED", "1"),
            // Without a network every retry of pip is time lost; but only when it retries does it say what is wrong.
            ("PIP_RETRIES", "1"),
            ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
            ("PIP_NO_INPUT", "1"),
            ("MPLCONFIGDIR", &format!("{HOME}/{MATPLOTLIB}")),
        ]
        .into_iter()
        .chain(THREADS.map(|name| (name, threads.as_str())))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        env.extend(self.image.env.clone());
        env.extend(self.extra_env.iter().cloned());
        env.extend(execution.env.clone());
        env.into_iter().collect()
    }

    /// Puts what belongs there into the fresh home.
    ///
    /// # Errors
    /// When there is no room.
    pub(super) fn furnish(
        &self,
        disk: &OwnedFd,
        owner: files::Owner,
        execution: &ExecutionSpec,
    ) -> std::io::Result<()> {
        files::link_into_home(disk, owner, MATPLOTLIB, &self.image.matplotlib_links)?;
        if let Some((name, code)) = script_file(execution) {
            files::write_into_home(disk, owner, name, code.as_bytes())?;
        }
        Ok(())
    }

    fn argv(&self, execution: &ExecutionSpec) -> Result<Vec<String>, FieldError> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let code = execution.code.as_str();
        let file = script_file(execution).map(|(name, _)| format!("{HOME}/{name}"));
        Ok(match execution.language {
            Language::Python => self.python("start.py"),
            Language::Command => {
                let mut argv = execution.argv.clone();
                argv[0] = self.image.find_program(&argv[0]).ok_or_else(|| {
                    FieldError::new("argv[0]", format!("the image has no program {:?} on its PATH", argv[0]))
                })?;
                argv
            }
            Language::Bash => {
                let bash = self.program(execution, "bash")?;
                match &file {
                    Some(path) => words(&[&bash, path]),
                    None => words(&[&bash, "-c", code]),
                }
            }
            Language::Javascript | Language::Typescript => {
                let node = self.program(execution, "node")?;
                // In base64: in a plain data URL a question mark would begin the query.
                let preload = format!("data:text/javascript;base64,{}", BASE64.encode(NODE_PRELOAD));
                // As a module, so that `await` works at the top; the preload adds `require` for code written the older way.
                let kind = if execution.language == Language::Javascript { "module" } else { "module-typescript" };
                let kind = format!("--input-type={kind}");
                match &file {
                    Some(path) => words(&[&node, "--import", &preload, path]),
                    None => words(&[&node, "--import", &preload, &kind, "-e", code]),
                }
            }
        })
    }

    /// The interpreter of the execution's language, or why there is none.
    fn program(&self, execution: &ExecutionSpec, name: &str) -> Result<String, FieldError> {
        self.image.find_program(name).ok_or_else(|| {
            let language = format!("{:?}", execution.language).to_lowercase();
            FieldError::new(
                "language",
                format!("{language} needs {name}, which the image {:?} does not have", self.image.name),
            )
        })
    }
}

/// Whole cores that an execution may use at once.
pub(super) fn cores(execution: &ExecutionSpec) -> u64 {
    (execution.limits.cpu.ceil() as u64).max(1)
}

/// A script too long for an argument, as a file of the home.
fn script_file(execution: &ExecutionSpec) -> Option<(&'static str, &str)> {
    let name = match execution.language {
        Language::Bash => "script.sh",
        Language::Javascript => "script.mjs",
        Language::Typescript => "script.mts",
        Language::Python | Language::Command => return None,
    };
    (execution.code.len() > LONGEST_ARGUMENT).then_some((name, execution.code.as_str()))
}

/// A small file takes a page; more files than pages cannot be of use.
fn inodes(limits: &Limits) -> u64 {
    (limits.disk_bytes / 4096).clamp(1024, 1 << 20)
}

fn jail_limits(limits: &Limits) -> JailLimits {
    JailLimits {
        memory_bytes: limits.memory_bytes,
        cpu_millis: ((limits.cpu * 1000.0) as u64).max(1),
        processes: limits.processes,
        file_size_bytes: limits.file_size_bytes,
        open_files: limits.open_files,
    }
}
