//! Puts one node together: jailer, image, runner, backend, engine.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use fumehood_engine::backend::process::{ImageSource, Launch, ProcessBackend, ZygoteConfig};
use fumehood_engine::clock::SystemClock;
use fumehood_engine::ids::UlidSource;
use fumehood_engine::image::Image;
use fumehood_engine::spec::{ExecutionSpec, IsolationLevel};
use fumehood_engine::{Engine, EngineConfig, runner};
use fumehood_jail::Without;
use fumehood_jail::jailer::{Jailer, JailerLink};
use fumehood_jail::protocol::JailerConfig;
use fumehood_jail::requirement;

use crate::config::Config;

/// The jailer and all that can fail before there is a runtime.
pub(crate) struct Node {
    link: JailerLink,
    launch: Launch,
    image: Image,
    runner: PathBuf,
    source: Arc<ImageFolder>,
    extra_env: Vec<(String, String)>,
    config: EngineConfig,
    zygote: Option<(ZygoteConfig, ExecutionSpec)>,
}

/// The jailer's process, the present one. It ends by itself when the engine is dropped with its runtime.
#[derive(Clone)]
pub(crate) struct JailerProcess(Arc<Mutex<Option<Child>>>);

impl JailerProcess {
    /// Waits for its end: then every sandbox and every cgroup is gone.
    pub(crate) fn wait(self) {
        self.replace(None);
    }

    /// Waits for the end of the one before.
    fn replace(&self, next: Option<Child>) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), next);
        if let Some(Err(error)) = before.map(|mut process| process.wait()) {
            eprintln!("fumehood: the jailer could not be waited for: {error}");
        }
    }
}

/// The images of this machine.
struct ImageFolder {
    images_dir: PathBuf,
    data_dir: PathBuf,
}

impl ImageFolder {
    fn found(&self, image: Image) -> anyhow::Result<(Image, String)> {
        let runner = runner::install(&self.data_dir, &image)?;
        Ok((image, runner.display().to_string()))
    }
}

impl ImageSource for ImageFolder {
    fn open(&self, name: &str) -> Result<(Image, String), String> {
        let open = || self.found(Image::open(&self.images_dir, name)?);
        open().map_err(|error| format!("{error:#}"))
    }

    fn newer(&self, image: &Image) -> Result<Option<(Image, String)>, String> {
        let renew = || {
            if image.is_current(&self.images_dir)? {
                return Ok(None);
            }
            self.found(Image::open(&self.images_dir, &image.name)?).map(Some)
        };
        renew().map_err(|error: anyhow::Error| format!("{error:#}"))
    }
}

impl Node {
    /// Starts the jailer and finds the image. Must be called before any runtime exists.
    ///
    /// # Errors
    /// When this host cannot confine processes or there is no image; each says what to do.
    pub(crate) fn prepare(config: &Config, engine: EngineConfig, image: &str) -> anyhow::Result<(Self, JailerProcess)> {
        Self::prepare_without(config, engine, image, Without::default())
    }

    /// The same with layers of confinement left out, to show that the others hold. For [`crate::cli`]'s `attack` only.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub(crate) fn prepare_without(
        config: &Config,
        engine: EngineConfig,
        image: &str,
        without: Without,
    ) -> anyhow::Result<(Self, JailerProcess)> {
        fumehood_jail::raise_descriptor_limit().context("cannot raise the limit of open files")?;
        let images_dir = config.images_dir().context(NO_HOME)?;
        let data_dir = data_dir(config)?;
        let image = Image::open(&images_dir, image)?;
        let runner = runner::install(&data_dir, &image)
            .with_context(|| format!("cannot write the runner below {}", data_dir.display()))?;
        let source = Arc::new(ImageFolder { images_dir, data_dir });
        check_floor(config)?;
        let (jailer, required) = (JailerConfig { without, ..config.jailer() }, config.isolation_require.clone());
        let binary = std::env::current_exe().context("cannot find this program's own file")?;
        let process = JailerProcess(Arc::default());
        let kept = process.clone();
        let launch: Launch = Box::new(move || {
            let Jailer { link, mut process } = Jailer::start(Command::new(&binary), &jailer)?;
            // Each new one is checked: what the host gives can change while the server runs.
            if let Err(lacking) = requirement::check(&required, &link, &jailer) {
                drop(link);
                process.wait()?;
                return Err(lacking.into());
            }
            kept.replace(Some(process));
            Ok(link)
        });
        let link = launch()?;
        let engine = match engine.shared_dir {
            // Absolute, since it is looked for by a process that has its working directory elsewhere.
            Some(folder) => {
                let found = folder.canonicalize().ok().filter(|folder| folder.is_dir());
                let found =
                    found.with_context(|| format!("process.shared_dir: there is no folder {}", folder.display()))?;
                EngineConfig { shared_dir: Some(found), ..engine }
            }
            None => engine,
        };
        let extra_env = config.process.env.clone().into_iter().collect();
        Ok((Self { link, launch, image, runner, source, extra_env, config: engine, zygote: None }, process))
    }

    /// The same with a preloaded interpreter, for executions like `ordinary`.
    pub(crate) fn with_zygote(self, config: ZygoteConfig, ordinary: ExecutionSpec) -> Self {
        Self { zygote: Some((config, ordinary)), ..self }
    }

    /// The engine. Must be called on a runtime.
    ///
    /// # Errors
    /// When folders or sockets cannot be opened.
    pub(crate) fn engine(self) -> anyhow::Result<Engine> {
        for note in &self.image.notes {
            tracing::warn!(image = self.image.name, "{note}");
        }
        let runner = self.runner.display().to_string();
        let shared = self.config.shared_dir.as_ref().map(|folder| folder.display().to_string());
        let backend = ProcessBackend::new(self.link, self.launch, self.image, runner, self.extra_env, shared)?;
        let backend = match self.zygote {
            Some((config, ordinary)) => backend.with_zygote(config, ordinary),
            None => backend,
        }
        .with_images(self.source);
        let engine = Engine::new(self.config, Arc::new(backend), Arc::new(SystemClock), Arc::new(UlidSource))?;
        Ok(engine)
    }
}

/// Starts an engine, does something with it, and leaves nothing behind: for commands that run one program without a server.
///
/// # Errors
/// When it cannot be started, and what `work` returns.
pub(crate) fn with_engine<T>(
    config: &Config,
    image: &str,
    work: impl AsyncFnOnce(Engine) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // Artifacts of a server in the same data folder are not ours to touch.
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let engine = EngineConfig { artifacts_dir: scratch.path().to_owned(), ..config.engine() };
    let (node, jailer) = Node::prepare(config, engine, image)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(async { work(node.engine()?).await });
    drop(runtime);
    jailer.wait();
    done
}

/// Refuses a configuration that wants more than any backend of this version gives.
///
/// # Errors
/// The key and what there is.
pub(crate) fn check_floor(config: &Config) -> anyhow::Result<()> {
    let floor = config.isolation_floor.level();
    if floor > STRONGEST {
        anyhow::bail!(
            "isolation_floor: '{floor}' is asked for at least, and this version has nothing above '{STRONGEST}'"
        );
    }
    Ok(())
}

/// The strongest level that this version has a backend for.
pub(crate) const STRONGEST: IsolationLevel = IsolationLevel::Process;

/// Said when there is neither a configured folder nor a home.
pub(crate) const NO_HOME: &str = "there is no home folder to keep data in; pass --data-dir";

/// The data folder, made if it is missing.
pub(crate) fn data_dir(config: &Config) -> anyhow::Result<PathBuf> {
    let folder = config.data_dir().context(NO_HOME)?;
    make(&folder)?;
    Ok(folder)
}

fn make(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the data folder {}; pass --data-dir", folder.display()))
}
