//! Hostile programs: files of `tests/attack/programs`, one attack each, which say in their first lines what they try and what stops them.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use include_dir::{Dir, include_dir};
use serde::Serialize;
use serde_json::{Map, Value};

/// Programs and scenarios that ship in the binary: the folder that the tests use.
static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../tests/attack");

/// What may stand behind `# stopped by:`, and what each is. The first ones can be switched off (`--without`).
pub(super) const LAYERS: [(&str, &str); 24] = [
    ("pid_namespace", "it sees and signals its own processes only"),
    ("ipc_namespace", "System V IPC and message queues of its own"),
    ("network_namespace", "a loopback interface of its own, and nothing else"),
    ("own_uid", "a host uid that no other sandbox has"),
    ("capabilities", "none, in no set"),
    ("no_new_privileges", "exec raises nothing"),
    ("seccomp", "closed system calls"),
    ("landlock", "no writing outside its places, no signals and abstract sockets to outside"),
    ("cgroup", "memory, processor and processes of the whole sandbox"),
    ("rlimits", "descriptors, file size, locked memory and others of each process"),
    ("covered_proc", "what of /proc tells about or changes the host is covered or read-only"),
    ("read_only", "the image and the root are read-only"),
    ("keyring", "a session keyring of its own"),
    ("user_namespace", "no id of the host's is mapped, and no right reaches beyond"),
    ("mount_namespace", "a root of its own, in which nothing of the host's is"),
    ("mount_flags", "no setuid, no devices"),
    ("uts_namespace", "a host name of its own"),
    ("cgroup_namespace", "its own group is the root of all it sees"),
    ("descriptors", "nothing is inherited but its own pipes"),
    ("environment", "nothing of the service's environment and memory"),
    ("disk", "one file system of a fixed size"),
    ("process_1", "its end ends everything, and it cannot be touched"),
    ("judge", "outcomes, limits of time and output: by what the host saw"),
    ("interface", "what the HTTP interface refuses"),
];

/// One hostile program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Program {
    /// `category/name`.
    pub(super) name: String,
    /// What it tries, one sentence.
    pub(super) tries: String,
    /// Every layer that by itself stops it.
    pub(super) stopped_by: Vec<String>,
    /// Published failures of that kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) like: Vec<String>,
    #[serde(skip)]
    pub(super) language: &'static str,
    /// How it may end; an end by itself is one with exit code 0 and its last line printed, unless `answer` says otherwise.
    #[serde(skip)]
    pub(super) ends: Vec<String>,
    /// Further fields of the request.
    #[serde(skip)]
    pub(super) with: Map<String, Value>,
    /// What the execution must say.
    #[serde(skip)]
    pub(super) answer: Map<String, Value>,
    /// Its steps are executions of one session.
    #[serde(skip)]
    pub(super) session: bool,
    /// It takes all it can get and says `HOLD`; then its neighbour must go on as ever.
    #[serde(skip)]
    pub(super) holds: bool,
    /// Without the network layer it would reach beyond this machine.
    #[serde(skip)]
    pub(super) outside: bool,
    /// What the host must have, or there is nothing to attack.
    #[serde(skip)]
    pub(super) needs: Vec<String>,
    #[serde(skip)]
    pub(super) steps: Vec<String>,
}

/// Ends a step of a session's program.
const NEXT_STEP: &str = "# --- next step ---\n";

impl Program {
    /// The part of its name before the slash.
    pub(super) fn category(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(category, _)| category)
    }

    /// Reads a program with its header.
    ///
    /// # Errors
    /// What is wrong with the header.
    pub(super) fn parse(name: &str, extension: &str, text: &str) -> anyhow::Result<Self> {
        let language = match extension {
            "py" => "python",
            "sh" => "bash",
            other => bail!("{name}: .{other} is no language of attacks"),
        };
        let mut program = Self {
            name: name.to_owned(),
            tries: String::new(),
            stopped_by: Vec::new(),
            like: Vec::new(),
            language,
            ends: vec!["exited".to_owned()],
            with: Map::new(),
            answer: Map::new(),
            session: false,
            holds: false,
            outside: false,
            needs: Vec::new(),
            steps: text.split(NEXT_STEP).map(str::to_owned).collect(),
        };
        let mut seen = Vec::new();
        for line in text.lines().take_while(|line| line.starts_with("# ")) {
            let (key, value) =
                line[2..].split_once(": ").with_context(|| format!("{name}: {line:?} is no KEY: VALUE"))?;
            ensure!(!seen.contains(&key), "{name}: {key:?} stands twice");
            seen.push(key);
            program.set(key, value.trim()).with_context(|| format!("{name}: {key}"))?;
        }
        ensure!(!program.tries.is_empty(), "{name}: says not what it tries");
        ensure!(!program.stopped_by.is_empty(), "{name}: says not what stops it");
        ensure!(program.session || program.steps.len() == 1, "{name}: only a session has steps");
        Ok(program)
    }

    fn set(&mut self, key: &str, value: &str) -> anyhow::Result<()> {
        let list = || value.split(", ").map(str::to_owned).collect::<Vec<_>>();
        let flag = || value.parse::<bool>().context("must be true or false");
        match key {
            "tries" => value.clone_into(&mut self.tries),
            "stopped by" => {
                self.stopped_by = list();
                check_layers(&self.stopped_by)?;
            }
            "like" => self.like = list(),
            "ends" => self.ends = list(),
            "with" => self.with = serde_json::from_str(value)?,
            "answer" => self.answer = serde_json::from_str(value)?,
            "session" => self.session = flag()?,
            "holds" => self.holds = flag()?,
            "outside" => self.outside = flag()?,
            "needs" => self.needs = list(),
            _ => bail!("is not known"),
        }
        Ok(())
    }
}

/// Whether each of them is a layer.
pub(super) fn check_layers(names: &[String]) -> anyhow::Result<()> {
    for name in names {
        ensure!(LAYERS.iter().any(|(layer, _)| layer == name), "{name:?} is no layer");
    }
    Ok(())
}

/// A file of the suite: its path, and its text.
pub(super) struct SuiteFile {
    /// `category/name`, without the ending.
    pub(super) name: String,
    pub(super) extension: String,
    pub(super) text: String,
}

/// Files below `part` of the suite, by name; from `folder` instead of the binary when it is given.
///
/// # Errors
/// When one cannot be read.
pub(super) fn files(part: &str, folder: Option<&Path>) -> anyhow::Result<Vec<SuiteFile>> {
    let mut found = Vec::new();
    match folder {
        Some(folder) => {
            let root = folder.join(part);
            for entry in walkdir::WalkDir::new(&root) {
                let entry = entry.with_context(|| format!("cannot read {}", root.display()))?;
                if entry.file_type().is_file() {
                    let text = std::fs::read_to_string(entry.path())
                        .with_context(|| format!("cannot read {}", entry.path().display()))?;
                    found.extend(file(entry.path().strip_prefix(&root)?, text));
                }
            }
        }
        None => collect(BUILT_IN.get_dir(part).context("the suite is not whole")?, part, &mut found)?,
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn collect(folder: &Dir<'_>, part: &str, found: &mut Vec<SuiteFile>) -> anyhow::Result<()> {
    for entry in folder.files() {
        let text = entry.contents_utf8().with_context(|| format!("{} is no text", entry.path().display()))?;
        found.extend(file(entry.path().strip_prefix(part)?, text.to_owned()));
    }
    folder.dirs().try_for_each(|folder| collect(folder, part, found))
}

fn file(path: &Path, text: String) -> Option<SuiteFile> {
    let extension = path.extension()?.to_str()?.to_owned();
    let name = path.with_extension("").to_str()?.to_owned();
    // Of an editor, for example.
    (!name.contains("/.") && !name.starts_with('.')).then_some(SuiteFile { name, extension, text })
}

/// All programs.
///
/// # Errors
/// When one is not well-formed.
pub(super) fn programs(folder: Option<&Path>) -> anyhow::Result<Vec<Program>> {
    let files = files("programs", folder)?;
    files.iter().map(|file| Program::parse(&file.name, &file.extension, &file.text)).collect()
}

/// What is put before programs: `got`, raw system calls, and the facts.
#[derive(Clone)]
pub(super) struct Preludes {
    python: String,
    shell: String,
}

impl Preludes {
    /// # Errors
    /// When the suite is not whole.
    pub(super) fn load(folder: Option<&Path>) -> anyhow::Result<Self> {
        let read = |name: &str| match folder {
            Some(folder) => {
                let path = folder.join(name);
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
            }
            None => {
                let file = BUILT_IN.get_file(name).and_then(include_dir::File::contents_utf8);
                file.map(str::to_owned).context("the suite is not whole")
            }
        };
        Ok(Self { python: read("prelude.py")?, shell: read("prelude.sh")? })
    }

    /// The one of a language, with these facts.
    pub(super) fn with(&self, language: &str, facts: &Value) -> String {
        match language {
            // A JSON text in quotes is one for Python too.
            "python" => self.python.replace("FACTS_AS_TEXT", &Value::from(facts.to_string()).to_string()),
            _ => self.shell.replace("FACTS_AS_TEXT", &shell_facts(facts)),
        }
    }
}

/// Assignments, one for each fact that is a number or a text.
fn shell_facts(facts: &Value) -> String {
    let mut text = String::new();
    for (name, value) in facts.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text += &format!("{name}='{}'\n", value.replace('\'', r"'\''"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_all_about_a_program() {
        let text = "# tries: opens a door\n# stopped by: seccomp, landlock\n# like: CVE-2019-5736\n# ends: oom_killed\n# with: {\"timeout_ms\": 5}\n# session: true\n\nprint(1)\n# --- next step ---\nprint(2)\n";
        let program = Program::parse("doors/first", "py", text).unwrap();
        assert_eq!((program.category(), program.language, program.steps.len()), ("doors", "python", 2));
        assert_eq!(program.stopped_by, ["seccomp", "landlock"]);
        assert_eq!((program.ends, program.like), (vec!["oom_killed".to_owned()], vec!["CVE-2019-5736".to_owned()]));
        assert_eq!(program.with["timeout_ms"], 5);
        assert!(program.session && !program.outside);
    }

    #[test]
    fn a_header_that_says_too_little_or_what_nobody_knows_is_refused() {
        let refused = |text: &str| format!("{:#}", Program::parse("a/b", "py", text).unwrap_err());
        assert!(refused("print(1)").contains("tries"));
        assert!(refused("# tries: x\n").contains("what stops it"));
        assert!(refused("# tries: x\n# stopped by: hope\n").contains("\"hope\" is no layer"));
        assert!(refused("# tries: x\n# tries: y\n").contains("twice"));
        assert!(refused("# tries: x\n# colour: red\n").contains("colour: is not known"));
        assert!(refused("# tries: x\n# stopped by: disk\n# with: {\n").contains("with"));
        assert!(refused("# tries: x\n# stopped by: disk\n\n1\n# --- next step ---\n2\n").contains("session"));
        assert!(Program::parse("a/b", "exe", "").is_err());
    }

    #[test]
    fn facts_are_quoted_for_the_shell() {
        let facts = serde_json::json!({"port": 5, "name": "it's"});
        assert_eq!(shell_facts(&facts), "port='5'\nname='it'\\''s'\n");
    }
}
