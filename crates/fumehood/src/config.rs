//! Configuration: one typed tree from a file, the environment and flags, in this order; later ones win.
//!
//! ```text
//! file (TOML or YAML) \
//! FUMEHOOD_*           >-- one JSON tree, each value with its source --> Config --check--> parts of the program
//! flags               /
//! ```
//!
//! Nothing else reads the environment. An unknown key or a wrong value is an error that names the key and where it came from.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{AddrParseError, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fumehood_engine::EngineConfig;
use fumehood_engine::backend::process::ZygoteConfig;
use fumehood_engine::execution::MOST_MEMBERS;
use fumehood_engine::pool::PoolConfig;
use fumehood_engine::spec::{ExecutionRequest, ExecutionSpec, FieldError, LimitPolicy};
use fumehood_jail::protocol::JailerConfig;
use fumehood_jail::requirement::Requirement;
use fumehood_server::{ApiKey, ServerConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

mod isolation;
mod jobs;
mod layers;
mod limits;
mod queue;
mod reference;
mod storage;
mod templates;
mod tenants;

pub(crate) use jobs::worker_name;
pub(crate) use layers::Problems;
pub(crate) use reference::reference;

use isolation::Floor;
use jobs::Webhooks;
use layers::Layers;
use limits::LimitSettings;
use queue::Queue;
use storage::Storage;
use templates::Templates;
use tenants::Tenants;

const MB: u64 = 1 << 20;

/// Everything the operator decides.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Folder for everything kept. Default: `/var/lib/fumehood` for root, otherwise `$XDG_DATA_HOME/fumehood` or `~/.local/share/fumehood`.
    pub(crate) data_dir: Option<PathBuf>,
    /// Folder of images. Default: `images` below `data_dir`.
    pub(crate) images_dir: Option<PathBuf>,
    /// Least isolation with which anything is run: a node that offers less does not start.
    pub(crate) isolation_floor: Floor,
    /// Layers that must be in force, of those that some hosts lack: `own_uid`, `landlock`, `landlock_scopes`, `refused_calls`, `swap_limit`, `pause`. A node that lacks one does
    /// not start. `fumehood doctor` tells what there is; all other layers are always in force.
    #[schemars(with = "Vec<String>")]
    pub(crate) isolation_require: Vec<Requirement>,
    /// The HTTP side.
    pub(crate) server: Server,
    /// Executions at once and what is kept of them.
    pub(crate) engine: Engine,
    /// Sandboxes that wait ready for ordinary executions.
    pub(crate) pool: Pool,
    /// The interpreter that has libraries loaded and is forked into sandboxes.
    pub(crate) zygote: Zygote,
    /// Limits of executions.
    pub(crate) limits: LimitSettings,
    /// The process level of isolation.
    pub(crate) process: Process,
    /// The database and the blob store.
    pub(crate) storage: Storage,
    /// Jobs: executions that were accepted with `mode: async`, and where they wait.
    pub(crate) queue: Queue,
    /// Ends of jobs, told to `callback_url`.
    pub(crate) webhooks: Webhooks,
    /// Templates as files.
    pub(crate) templates: Templates,
    /// Who owns things, and how much they may use.
    pub(crate) tenants: Tenants,
    /// Logs, on standard error.
    pub(crate) logging: Logging,
    #[serde(skip)]
    home: Home,
}

/// What the environment says about the user, for the default of `data_dir`.
#[derive(Debug, Clone, Default)]
struct Home {
    xdg_data: Option<PathBuf>,
    home: Option<PathBuf>,
}

/// The HTTP side.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    /// Address and port. Beyond loopback there must be a key, in `api_keys` or in the database (`fumehood key create`), and one is demanded.
    pub(crate) listen: String,
    /// Keys that open every route, for the tenant `default`: each the key itself or `sha256:` and the hexadecimal hash of it. In the environment separated by commas.
    pub(crate) api_keys: Vec<Secret>,
    /// Whether a key is demanded on loopback too when `api_keys` has none.
    pub(crate) require_key: bool,
    /// Whether `/metrics` needs no key.
    pub(crate) metrics_without_key: bool,
    /// Largest request body, in MiB.
    pub(crate) max_body_mb: u64,
    /// Seconds that running executions get at shutdown before they are cancelled.
    pub(crate) shutdown_grace_s: u64,
    /// Name of this server in `/health`.
    pub(crate) worker_id: String,
}

impl Default for Server {
    fn default() -> Self {
        let server = ServerConfig::default();
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            api_keys: Vec::new(),
            require_key: false,
            metrics_without_key: false,
            max_body_mb: server.max_body_bytes as u64 / MB,
            shutdown_grace_s: 20,
            worker_id: server.worker_id,
        }
    }
}

/// Text that never appears in logs or errors.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text itself, for whoever needs it.
    fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("…")
    }
}

/// Executions at once and what is kept of them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Engine {
    /// Executions at once. Default: 4 for each core, at least 8.
    pub(crate) max_concurrent: Option<u64>,
    /// MiB that the memory limits of executions running at once may add up to; those beyond wait. Default: the memory of this machine.
    pub(crate) memory_mb: Option<u64>,
    /// Executions waiting beyond that; the next is refused with 429.
    pub(crate) queue_size: u64,
    /// Sessions open at once. The memory limits of all may add up to more than the node has; those of executions that run without a session may not.
    pub(crate) max_sessions: u64,
    /// Finished executions kept in memory.
    pub(crate) keep_executions: u64,
    /// MiB of finished executions kept in memory.
    pub(crate) keep_mb: u64,
    /// MiB of artifacts kept on disk.
    pub(crate) keep_artifacts_mb: u64,
    /// Seconds in which a sandbox must be ready.
    pub(crate) start_timeout_s: u64,
    /// MiB of output in one stream after which a run is ended.
    pub(crate) output_hard_mb: u64,
    /// MiB of figures and other displays kept of one execution, at most 1024; of one display a quarter of it.
    pub(crate) max_display_mb: u64,
    /// KiB of the result value of one execution, at most 65536.
    pub(crate) max_result_kb: u64,
    /// Variables described in a result, at most 10000.
    pub(crate) max_variables: u32,
    /// MiB of artifacts of one execution.
    pub(crate) max_artifact_mb: u64,
}

impl Default for Engine {
    fn default() -> Self {
        let engine = EngineConfig::new(Path::new(""));
        Self {
            max_concurrent: None,
            memory_mb: None,
            queue_size: engine.queue_size as u64,
            max_sessions: engine.max_sessions as u64,
            keep_executions: engine.keep_executions as u64,
            keep_mb: engine.keep_bytes as u64 / MB,
            keep_artifacts_mb: engine.keep_artifact_bytes / MB,
            start_timeout_s: engine.start_timeout.as_secs(),
            output_hard_mb: engine.output_hard_bytes / MB,
            max_display_mb: engine.max_display_bytes as u64 / MB,
            max_result_kb: engine.max_result_bytes / 1024,
            max_variables: engine.max_variables,
            max_artifact_mb: engine.max_artifact_bytes / MB,
        }
    }
}

/// Sandboxes that wait ready, with the interpreter loaded, for executions that ask for the default limits and no environment of
/// their own. Each serves one execution.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Pool {
    /// How many wait when nothing is asked for.
    pub(crate) min_ready: u64,
    /// How many wait at most, however much is asked for; 0 for no pool.
    pub(crate) max_ready: u64,
    /// How many wait and serve ordinary executions at most, together; while many serve, fewer wait.
    pub(crate) max_total: u64,
    /// Seconds after which one that was not needed is replaced.
    pub(crate) ttl_s: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Self { min_ready: 2, max_ready: 8, max_total: 1000, ttl_s: 1800 }
    }
}

/// The interpreter that has libraries loaded and is forked into sandboxes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Zygote {
    /// Whether there is one; without it every sandbox loads its own interpreter, which takes hundreds of milliseconds.
    pub(crate) enabled: bool,
    /// Modules it loads. Those that the image lacks are left out.
    pub(crate) preload: Vec<String>,
    /// It is replaced after so many forks.
    pub(crate) max_forks: u64,
    /// Seconds after which it is replaced.
    pub(crate) max_age_s: u64,
    /// Its own memory limit; what forks change is theirs.
    pub(crate) memory_mb: u64,
}

impl Default for Zygote {
    fn default() -> Self {
        let preload = fumehood_engine::DEFAULT_PRELOAD.map(str::to_owned).into();
        Self { enabled: true, preload, max_forks: 10_000, max_age_s: 3600, memory_mb: 1024 }
    }
}

/// The process level of isolation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Process {
    /// First host uid of sandboxes, when run by root; each has its own. Several servers on a host take ranges one after the other.
    pub(crate) uid_base: u32,
    /// How many uids a server takes; also the most sandboxes at once.
    pub(crate) uid_count: u32,
    /// Control group below which those of the sandboxes are made. Default: found at start.
    pub(crate) cgroup_parent: Option<String>,
    /// Whether a host without usable control groups is refused.
    pub(crate) cgroups: Cgroups,
    /// Folder of this host that every sandbox sees as `/data/shared`, read-only. What is in it must be readable by everybody.
    pub(crate) shared_dir: Option<PathBuf>,
    /// Variables of every sandbox's environment besides the usual ones; a request's own `env` comes over them.
    pub(crate) env: BTreeMap<String, String>,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            uid_base: 700_000,
            uid_count: 65_536,
            cgroup_parent: None,
            cgroups: Cgroups::default(),
            shared_dir: None,
            env: BTreeMap::new(),
        }
    }
}

/// Whether control groups are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cgroups {
    /// A limit that cannot be enforced stops the start.
    #[default]
    Require,
}

/// Logs, on standard error.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Logging {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,fumehood_engine=debug`.
    pub(crate) level: String,
    /// For people or for machines.
    pub(crate) format: LogFormat,
    /// Whether code and output may be logged. They are never otherwise.
    pub(crate) include_code: bool,
}

impl Default for Logging {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::default(), include_code: false }
    }
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Pretty,
    /// One JSON object a line.
    Json,
}

/// What the command line says; `None` where it says nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags {
    /// `--listen`
    pub(crate) listen: Option<String>,
    /// `--data-dir`
    pub(crate) data_dir: Option<PathBuf>,
    /// `--images-dir`
    pub(crate) images_dir: Option<PathBuf>,
}

impl Flags {
    fn values(&self) -> Vec<(&'static str, &'static str, Value)> {
        let path = |path: &PathBuf| Value::from(path.to_string_lossy());
        let all = [
            ("server.listen", "--listen", self.listen.as_ref().map(|text| Value::from(text.as_str()))),
            ("data_dir", "--data-dir", self.data_dir.as_ref().map(path)),
            ("images_dir", "--images-dir", self.images_dir.as_ref().map(path)),
        ];
        all.into_iter().filter_map(|(key, flag, value)| Some((key, flag, value?))).collect()
    }
}

/// The configuration of this process: `file` if one is given, the environment, `flags`.
///
/// # Errors
/// All that is wrong with it.
pub(crate) fn load(file: Option<&Path>, flags: &Flags) -> Result<Config, Problems> {
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    load_from(file, environment, flags)
}

/// The same with another environment.
///
/// # Errors
/// All that is wrong with it.
pub(crate) fn load_from(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
) -> Result<Config, Problems> {
    let mut layers = Layers::default();
    let mut home = Home::default();
    if let Some(file) = file {
        layers.add_file(file);
    }
    for (name, value) in environment {
        let folder = || Some(PathBuf::from(&value)).filter(|path| path.is_absolute());
        match name.as_str() {
            "XDG_DATA_HOME" => home.xdg_data = folder(),
            "HOME" => home.home = folder(),
            name => layers.add_variable(name, &value),
        }
    }
    for (key, flag, value) in flags.values() {
        layers.set(key, value, format!("flag {flag}"));
    }
    let mut config = layers.read();
    config.home = home;
    config.check(&mut layers);
    if layers.problems.is_empty() {
        return Ok(config);
    }
    // A file's tables have no order of their own.
    layers.problems.sort_by(|one, other| one.key.cmp(&other.key));
    Err(Problems(layers.problems))
}

impl Config {
    /// What no type can say.
    fn check(&self, layers: &mut Layers) {
        let positive = [
            ("server.max_body_mb", self.server.max_body_mb),
            ("engine.max_concurrent", self.engine.max_concurrent.unwrap_or(1)),
            ("engine.memory_mb", self.engine.memory_mb.unwrap_or(1)),
            ("engine.keep_executions", self.engine.keep_executions),
            ("engine.keep_mb", self.engine.keep_mb),
            ("engine.keep_artifacts_mb", self.engine.keep_artifacts_mb),
            ("engine.start_timeout_s", self.engine.start_timeout_s),
            ("engine.output_hard_mb", self.engine.output_hard_mb),
            ("engine.max_display_mb", self.engine.max_display_mb),
            ("engine.max_result_kb", self.engine.max_result_kb),
            ("engine.max_artifact_mb", self.engine.max_artifact_mb),
            ("limits.max_code_kb", self.limits.max_code_kb),
            ("pool.ttl_s", self.pool.ttl_s),
            ("zygote.max_forks", self.zygote.max_forks),
            ("zygote.max_age_s", self.zygote.max_age_s),
            ("zygote.memory_mb", self.zygote.memory_mb),
            ("process.uid_base", u64::from(self.process.uid_base)),
            ("process.uid_count", u64::from(self.process.uid_count)),
            ("storage.connections", u64::from(self.storage.connections)),
            ("storage.keep_days", self.storage.keep_days),
            ("storage.keep_executions", self.storage.keep_executions),
            ("queue.max_waiting", self.queue.max_waiting),
            ("queue.max_waiting_per_tenant", self.queue.max_waiting_per_tenant),
            ("queue.lease_s", self.queue.lease_s),
            ("webhooks.max_attempts", u64::from(self.webhooks.max_attempts)),
        ];
        if self.pool.max_ready > 0 && self.pool.min_ready > self.pool.max_ready {
            layers.refuse("pool.min_ready", format!("must be at most pool.max_ready = {}", self.pool.max_ready));
        }
        if self.pool.max_total < self.pool.max_ready {
            let message = format!("must be at least pool.max_ready = {}", self.pool.max_ready);
            layers.refuse("pool.max_total", message);
        }
        for (key, value) in positive {
            if value == 0 {
                layers.refuse(key, "must be at least 1");
            }
        }
        // Beyond these one execution could take the memory of a whole node.
        let at_most = [
            ("server.max_body_mb", self.server.max_body_mb, 1024),
            ("engine.max_display_mb", self.engine.max_display_mb, 1024),
            ("engine.max_result_kb", self.engine.max_result_kb, 65_536),
            ("engine.max_variables", u64::from(self.engine.max_variables), MOST_MEMBERS as u64),
        ];
        for (key, value, most) in at_most {
            if value > most {
                layers.refuse(key, format!("must be at most {most}"));
            }
        }
        if self.process.uid_base.checked_add(self.process.uid_count).is_none() {
            layers.refuse("process.uid_count", "uid_base and uid_count together must stay below 4294967296");
        }
        self.limits.check(self.engine.output_hard_mb.saturating_mul(1024), layers);
        self.check_server(layers);
        if let Err(error) = self.storage.blobs(Path::new("")) {
            layers.refuse("storage.blobs", error.to_string());
        }
        if let Err(error) = self.queue.config() {
            layers.refuse("queue.url", error.to_string());
        }
        if tracing_subscriber::EnvFilter::try_new(&self.logging.level).is_err() {
            layers.refuse(
                "logging.level",
                "must be error, warn, info, debug, trace, or directives such as 'info,fumehood_engine=debug'",
            );
        }
        if self.data_dir().is_none() {
            layers.refuse("data_dir", "must be set: neither XDG_DATA_HOME nor HOME says where this user's data is");
        }
    }

    fn check_server(&self, layers: &mut Layers) {
        for (index, key) in self.server.api_keys.iter().enumerate() {
            if let Err(error) = ApiKey::parse(&key.0) {
                layers.refuse(&format!("server.api_keys[{index}]"), error.to_string());
            }
        }
        if self.address().is_err() {
            layers.refuse("server.listen", "must be an address and a port, such as 127.0.0.1:8080 or [::1]:8080");
        }
    }

    /// Address to listen on. `localhost` is 127.0.0.1; other names are refused, since reading them would ask the network.
    ///
    /// # Errors
    /// When `server.listen` is no address with a port.
    pub(crate) fn address(&self) -> Result<SocketAddr, AddrParseError> {
        let text = self.server.listen.trim();
        match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}").parse(),
            None => text.parse(),
        }
    }

    /// Folder for everything kept; `None` when nothing says where.
    #[must_use]
    pub(crate) fn data_dir(&self) -> Option<PathBuf> {
        if let Some(folder) = &self.data_dir {
            return Some(folder.clone());
        }
        if rustix::process::geteuid().is_root() {
            return Some(PathBuf::from("/var/lib/fumehood"));
        }
        let data = self.home.xdg_data.clone().or_else(|| Some(self.home.home.as_ref()?.join(".local/share")))?;
        Some(data.join("fumehood"))
    }

    /// Folder of images; `None` when nothing says where.
    #[must_use]
    pub(crate) fn images_dir(&self) -> Option<PathBuf> {
        self.images_dir.clone().or_else(|| Some(self.data_dir()?.join("images")))
    }

    /// Folder with templates, if there is one; one that was named must be there.
    #[must_use]
    pub(crate) fn templates_dir(&self) -> Option<PathBuf> {
        let usual = || self.data_dir().map(|folder| folder.join("templates")).filter(|folder| folder.is_dir());
        self.templates.dir.clone().or_else(usual)
    }

    /// The engine's part. Relative paths stay relative to the working directory.
    #[must_use]
    pub(crate) fn engine(&self) -> EngineConfig {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let engine = &self.engine;
        let defaults = EngineConfig::new(&self.data_dir().unwrap_or_default());
        EngineConfig {
            max_concurrent: engine.max_concurrent.map_or(defaults.max_concurrent, count),
            memory_bytes: engine.memory_mb.map_or(defaults.memory_bytes, |mb| mb.saturating_mul(MB)),
            queue_size: count(engine.queue_size),
            max_sessions: count(engine.max_sessions),
            keep_executions: count(engine.keep_executions),
            keep_bytes: count(engine.keep_mb.saturating_mul(MB)),
            keep_artifact_bytes: engine.keep_artifacts_mb.saturating_mul(MB),
            start_timeout: Duration::from_secs(engine.start_timeout_s),
            output_hard_bytes: engine.output_hard_mb.saturating_mul(MB),
            max_display_bytes: count(engine.max_display_mb.saturating_mul(MB)),
            max_result_bytes: engine.max_result_kb.saturating_mul(1024),
            max_variables: engine.max_variables,
            max_artifact_bytes: engine.max_artifact_mb.saturating_mul(MB),
            shared_dir: self.process.shared_dir.clone(),
            ..defaults
        }
    }

    /// The pool of a server; a single run has none.
    ///
    /// # Errors
    /// When the default limits are no valid request, which loading has ruled out.
    pub(crate) fn pool(&self) -> Result<Option<PoolConfig>, FieldError> {
        if self.pool.max_ready == 0 {
            return Ok(None);
        }
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Some(PoolConfig {
            recipe: self.ordinary()?,
            min_ready: count(self.pool.min_ready),
            max_ready: count(self.pool.max_ready),
            max_total: count(self.pool.max_total),
            ttl: Duration::from_secs(self.pool.ttl_s),
            start_timeout: Duration::from_secs(self.engine.start_timeout_s),
            unused: None,
        }))
    }

    /// An execution that asks for nothing special.
    ///
    /// # Errors
    /// When the default limits are no limits.
    pub(crate) fn ordinary(&self) -> Result<ExecutionSpec, FieldError> {
        ExecutionRequest::new("").validate(&self.limit_policy())
    }

    /// How the jailer is to work.
    pub(crate) fn jailer(&self) -> JailerConfig {
        JailerConfig {
            uid_base: self.process.uid_base,
            uid_count: self.process.uid_count,
            cgroup_parent: self.process.cgroup_parent.clone(),
            ..JailerConfig::default()
        }
    }

    /// The zygote of a server; a single run has none.
    pub(crate) fn zygote(&self) -> Option<ZygoteConfig> {
        self.zygote.enabled.then(|| ZygoteConfig {
            preload: self.zygote.preload.clone(),
            max_forks: self.zygote.max_forks,
            max_age: Duration::from_secs(self.zygote.max_age_s),
            memory_bytes: self.zygote.memory_mb.saturating_mul(MB),
            start_timeout: Duration::from_secs(self.engine.start_timeout_s.saturating_mul(2)),
        })
    }

    /// Defaults and maxima of executions.
    #[must_use]
    pub(crate) fn limit_policy(&self) -> LimitPolicy {
        self.limits.policy()
    }

    /// The HTTP side's part.
    #[must_use]
    pub(crate) fn server(&self) -> ServerConfig {
        ServerConfig {
            api_keys: self.server.api_keys.iter().filter_map(|key| ApiKey::parse(&key.0).ok()).collect(),
            require_key: self.server.require_key,
            new_tenants: self.tenants.settings(),
            audit_keep_days: self.tenants.audit_keep_days(),
            metrics_without_key: self.server.metrics_without_key,
            max_body_bytes: usize::try_from(self.server.max_body_mb.saturating_mul(MB)).unwrap_or(usize::MAX),
            limits: self.limit_policy(),
            worker_id: self.server.worker_id.clone(),
            log_code: self.logging.include_code,
            jobs: self.queue.jobs(&self.storage, self.server.worker_id.clone()),
            webhooks: self.webhooks.server(),
        }
    }

    /// Time that running executions get at shutdown.
    #[must_use]
    pub(crate) fn shutdown_grace(&self) -> Duration {
        Duration::from_secs(self.server.shutdown_grace_s)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::layers::Problem;
    use super::*;

    fn file(ending: &str, text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::Builder::new().suffix(ending).tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let home = [("HOME".to_owned(), "/h".to_owned())];
        home.into_iter().chain(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))).collect()
    }

    fn problems(ending: &str, text: &str, pairs: &[(&str, &str)]) -> Vec<Problem> {
        let file = file(ending, text);
        let Problems(problems) = load_from(Some(file.path()), environment(pairs), &Flags::default()).unwrap_err();
        let name = file.path().display().to_string();
        problems
            .into_iter()
            .map(|problem| Problem { source: problem.source.replace(&name, "file"), ..problem })
            .collect()
    }

    #[test]
    fn with_nothing_given_everything_has_its_default() {
        let config = load_from(None, environment(&[]), &Flags::default()).unwrap();
        assert_eq!(config.address(), "127.0.0.1:8080".parse());
        assert_eq!(config.limit_policy().default, LimitPolicy::default().default);
        assert_eq!(config.limit_policy().max, LimitPolicy::default().max);
        let engine = EngineConfig::new(&config.data_dir().unwrap());
        assert_eq!(format!("{:?}", config.engine()), format!("{engine:?}"));
        assert_eq!(config.server().max_body_bytes, 64 << 20);
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let file = file(
            ".toml",
            "data_dir = '/file'\nimages_dir = '/file'\n[server]\nlisten = '127.0.0.1:1'\nmax_body_mb = 5\n[limits.default]\nmemory_mb = 100\ncpu = 2\n",
        );
        let pairs = environment(&[
            ("FUMEHOOD_DATA_DIR", "/environment"),
            ("FUMEHOOD_SERVER__LISTEN", "127.0.0.1:2"),
            ("FUMEHOOD_LIMITS__DEFAULT__MEMORY_MB", "200"),
            ("FUMEHOOD_SERVER__API_KEYS", "one, two"),
            ("FUMEHOOD_SERVER__METRICS_WITHOUT_KEY", "true"),
            ("FUMEHOOD_URL", "http://127.0.0.1"),
        ]);
        let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
        let config = load_from(Some(file.path()), pairs, &flags).unwrap();
        assert_eq!(config.server.listen, "127.0.0.1:3");
        assert_eq!(config.data_dir(), Some("/environment".into()));
        assert_eq!(config.images_dir(), Some("/file".into()));
        assert_eq!((config.limits.default.memory_mb, config.limits.default.cpu), (200, 2.0));
        assert_eq!((config.server().max_body_bytes, config.server().api_keys.len()), (5 << 20, 2));
        assert!(config.server.metrics_without_key);
    }

    #[test]
    fn yaml_says_the_same_as_toml() {
        let yaml =
            file(".yaml", "server:\n  listen: '127.0.0.1:9'\n  api_keys: [a, b]\nlogging: {format: json}\nlimits:\n");
        let config = load_from(Some(yaml.path()), environment(&[]), &Flags::default()).unwrap();
        assert_eq!((config.server.listen.as_str(), config.server.api_keys.len()), ("127.0.0.1:9", 2));
        assert_eq!(config.logging.format, LogFormat::Json);
    }

    #[test]
    fn all_problems_are_told_with_key_and_source() {
        let text = "surprise = 1\n[server]\nlisten = 'nowhere'\nmax_body_mb = 'big'\nport = 1\n[limits.default]\nmemory_mb = 9000\n[engine]\nqueue_size = -1\nkeep_mb = 0\n[logging]\nformat = 'xml'\n";
        let pairs = [
            ("FUMEHOOD_LIMITS__MAX__CPU", "many"),
            ("FUMEHOOD_SERVER__LISEN", "x"),
            ("FUMEHOOD_LIMITS__DEFAULT__TIMEOUT_S", "301"),
        ];
        let found = problems(".toml", text, &pairs);
        let mut seen: Vec<(&str, &str)> = found.iter().map(|p| (p.key.as_str(), p.source.as_str())).collect();
        seen.sort_unstable();
        assert_eq!(
            seen,
            [
                ("engine.keep_mb", "file"),
                ("engine.queue_size", "file"),
                ("limits.default.memory_mb", "file"),
                ("limits.default.timeout_s", "environment variable FUMEHOOD_LIMITS__DEFAULT__TIMEOUT_S"),
                ("limits.max.cpu", "environment variable FUMEHOOD_LIMITS__MAX__CPU"),
                ("logging.format", "file"),
                ("server.lisen", "environment variable FUMEHOOD_SERVER__LISEN"),
                ("server.listen", "file"),
                ("server.max_body_mb", "file"),
                ("server.port", "file"),
                ("surprise", "file"),
            ]
        );
    }

    #[test]
    fn what_one_execution_may_keep_has_maxima() {
        let text = "[server]\nmax_body_mb = 1025\n[engine]\nmax_display_mb = 1025\nmax_result_kb = 65537\nmax_variables = 10001\n";
        let found = problems(".toml", text, &[]);
        let told: Vec<_> = found.iter().map(|problem| (problem.key.as_str(), problem.message.as_str())).collect();
        assert_eq!(
            told,
            [
                ("engine.max_display_mb", "must be at most 1024"),
                ("engine.max_result_kb", "must be at most 65536"),
                ("engine.max_variables", "must be at most 10000"),
                ("server.max_body_mb", "must be at most 1024"),
            ]
        );
        let largest = file(".toml", "[engine]\nmax_display_mb = 1024\nmax_result_kb = 65536\nmax_variables = 10000\n");
        assert!(load_from(Some(largest.path()), environment(&[]), &Flags::default()).is_ok());
    }

    #[test]
    fn the_least_isolation_is_named_by_level_and_layers() {
        let pairs =
            [("FUMEHOOD_ISOLATION_FLOOR", "gvisor"), ("FUMEHOOD_ISOLATION_REQUIRE", "own_uid, landlock_scopes")];
        let config = load_from(None, environment(&pairs), &Flags::default()).unwrap();
        assert_eq!(config.isolation_floor, Floor::Gvisor);
        assert_eq!(config.isolation_require, [Requirement::OwnUid, Requirement::LandlockScopes]);
        let found = problems(".toml", "isolation_floor = 'auto'\nisolation_require = ['own_uid', 'seccomp']\n", &[]);
        let keys: Vec<_> = found.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["isolation_floor", "isolation_require[1]"]);
        assert!(
            found.iter().all(|problem| problem.source == "file") && found[1].message.contains("swap_limit"),
            "{found:?}"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        assert!(problems(".toml", "a = ", &[])[0].message.contains("cannot be read"));
        assert!(problems(".ini", "", &[])[0].message.contains(".toml"));
        let Problems(missing) =
            load_from(Some(Path::new("/nonexistent.toml")), environment(&[]), &Flags::default()).unwrap_err();
        assert_eq!(missing[0].source, "/nonexistent.toml");
    }

    #[test]
    fn an_address_must_be_one() {
        let flags = Flags { listen: Some("0.0.0.0".to_owned()), ..Flags::default() };
        let Problems(found) = load_from(None, environment(&[]), &flags).unwrap_err();
        assert_eq!((found[0].key.as_str(), found[0].source.as_str()), ("server.listen", "flag --listen"));
        let flags = Flags { listen: Some("0.0.0.0:80".to_owned()), ..Flags::default() };
        // Whether there is a key, the database tells.
        assert!(load_from(None, environment(&[]), &flags).is_ok());
    }

    #[test]
    fn keys_never_appear_in_problems_or_debug_output() {
        let found = problems(".toml", "[server]\napi_keys = ['sha256:deadbeef', 'top secret']\n", &[]);
        assert_eq!(found.len(), 2);
        assert!(!layers::lines(&found).contains("deadbeef") && !layers::lines(&found).contains("top secret"));
        for wrong in ["'hush'", "[['hush']]", "{ a = 'hush' }", "[hush]", "['hush'", "['a'] ['hush']"] {
            let found = problems(".toml", &format!("[server]\napi_keys = {wrong}\n"), &[]);
            assert!(!layers::lines(&found).contains("hush"), "{wrong}: {found:?}");
        }
        let found = problems(".toml", "[server]\napi_keys = ['a'\n", &[]);
        assert!(found[0].message.contains("line 2") || found[0].message.contains("line 3"), "{found:?}");
        let config = load_from(None, environment(&[("FUMEHOOD_SERVER__API_KEYS", "hush")]), &Flags::default()).unwrap();
        assert!(!format!("{config:?}").contains("hush"));
    }
}
