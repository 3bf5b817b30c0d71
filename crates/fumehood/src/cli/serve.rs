//! `fumehood serve`: binds, serves until a signal, leaves nothing behind.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use fumehood_engine::image::DEFAULT_IMAGE;
use fumehood_engine::{Engine, EngineConfig};
use fumehood_server::store::Token;
use fumehood_server::{Applied, ServerState, metrics, router, worker_router};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::show::write_err;
use crate::config::{Config, worker_name};
use crate::logging;
use crate::node::{Node, data_dir};
use crate::operator::{first_key, now_ms};
use crate::templates::{self, Found};

/// Samples are folded into histograms this often, scraped or not.
const UPKEEP: Duration = Duration::from_secs(5);
/// After the last execution ended, answers get so long to reach their clients.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// After the last execution ended, the database gets so long to take what became of the last ones.
const LAST_RECORDS: Duration = Duration::from_secs(10);
/// Exit code of a second signal, as shells report an interrupt.
const INTERRUPTED: i32 = 130;

/// `fumehood serve`.
///
/// # Errors
/// When something cannot start; each says what to do.
pub(super) fn main(config: &Config) -> anyhow::Result<ExitCode> {
    main_as(config, Role::Server)
}

/// The same in another role.
///
/// # Errors
/// When something cannot start; each says what to do.
pub(super) fn main_as(config: &Config, role: Role) -> anyhow::Result<ExitCode> {
    let _lock = lock(&data_dir(config)?)?;
    let engine = EngineConfig { pool: config.pool()?, ..config.engine() };
    let (mut node, jailer) = Node::prepare(config, engine, DEFAULT_IMAGE)?;
    if let Some(zygote) = config.zygote() {
        node = node.with_zygote(zygote, config.ordinary()?);
    }
    let served = run(config, role, |_| node.engine());
    jailer.wait();
    served.map(|()| ExitCode::SUCCESS)
}

/// What a process offers besides taking jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The whole HTTP interface.
    Server,
    /// Whether it lives, and its metrics.
    Worker,
}

/// One server per data folder: the next one would remove this one's artifacts. Held until the file is closed.
fn lock(data_dir: &Path) -> anyhow::Result<File> {
    let path = data_dir.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!(
                "another server uses {}; pass another --data-dir (and --images-dir to share images)",
                data_dir.display()
            )
        }
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Starts the runtime and serves. `engine` makes the engine; it is called on the runtime, once logs are written.
///
/// # Errors
/// When something cannot start; after that the server ends well.
pub(crate) fn run(
    config: &Config,
    role: Role,
    engine: impl FnOnce(&Config) -> anyhow::Result<Engine>,
) -> anyhow::Result<()> {
    logging::init(&config.logging)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let served = runtime.block_on(async { serve(config, role, engine(config)?).await });
    // A file read that hangs must not keep the process.
    runtime.shutdown_timeout(LAST_ANSWERS);
    served
}

/// Serves `engine` until SIGINT or SIGTERM; a second signal ends the process at once.
///
/// # Errors
/// When the address cannot be listened on.
pub(crate) async fn serve(config: &Config, role: Role, engine: Engine) -> anyhow::Result<()> {
    let mut server = config.server();
    server.jobs.worker = worker_name(&server.worker_id, &data_dir(config)?)?;
    let address = config.address().context("server.listen")?;
    let store = config.storage.open(&data_dir(config)?).await?;
    // Before the first key is made: a server is never opened to others by accident.
    server.listen_on(address, store.keys().any_valid(now_ms()).await.context("storage.url")?)?;
    let listener = bind(address).await?;
    // Keys of the configuration open everything already.
    if role == Role::Server
        && server.api_keys.is_empty()
        && let Some(key) = first_key(&store).await.context("cannot make the first API key")?
    {
        hand_over(&key, server.demands_key());
    }
    let handle = metrics::install().context("cannot begin to count")?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(UPKEEP);
        loop {
            ticks.tick().await;
            upkeep.run_upkeep();
        }
    });
    let mut signals = Signals::new()?;
    let queue = config.queue.config().context("queue.url")?;
    let queue = queue.open(Arc::clone(store.database()), Arc::clone(engine.clock())).context("queue.url")?;
    let state = ServerState::with_queue(server, engine.clone(), handle, store.clone(), queue);
    apply_templates(config, &state).await?;
    let router = match role {
        Role::Server => router(Arc::clone(&state)),
        Role::Worker => worker_router(Arc::clone(&state)),
    };
    let stop = CancellationToken::new();
    announce(listener.local_addr()?)?;
    let finished = tokio::spawn(fumehood_server::serve(listener, router, stop.clone()));

    signals.next().await;
    tracing::info!(grace_s = config.server.shutdown_grace_s, "shutting down; a second signal ends at once");
    tokio::spawn(async move {
        signals.next().await;
        std::process::exit(INTERRUPTED);
    });
    stop.cancel();
    state.stop_jobs();
    engine.shutdown(config.shutdown_grace()).await;
    if tokio::time::timeout(LAST_RECORDS, state.drained()).await.is_err() {
        tracing::warn!("not everything that ended is on record: the database did not take it");
    }
    if tokio::time::timeout(LAST_ANSWERS, finished).await.is_err() {
        tracing::warn!("connections that took no answer were closed");
    }
    state.close().await;
    store.database().close().await;
    tracing::info!("ended");
    Ok(())
}

/// Brings the templates of the operator's folder up to date.
///
/// # Errors
/// The file, and the field that is wrong in it.
async fn apply_templates(config: &Config, state: &ServerState) -> anyhow::Result<()> {
    let Some(folder) = config.templates_dir() else { return Ok(()) };
    for Found { spec, source } in templates::read(&folder).context("templates.dir")? {
        let name = spec.name.clone();
        match state.apply_template(spec, "templates.dir").await.with_context(|| source.clone())? {
            Applied::Unchanged(_) => {}
            Applied::Created(version) | Applied::Changed(version) => {
                tracing::info!(template = format!("{name}@{version}"), source, "a template was taken from its file");
            }
        }
    }
    Ok(())
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow::anyhow!("cannot listen on {address}: another program does already; stop it, or choose another port with --listen")
        }
        _ => anyhow::Error::new(error).context(format!("cannot listen on {address}")),
    })
}

/// Shows the first key, once, on standard error: who starts a server reads it, and it is no line of a log.
fn hand_over(key: &Token, demanded: bool) {
    let needed = if demanded {
        "Every request needs a key: send 'Authorization: Bearer KEY'."
    } else {
        "Programs of this machine need no key (server.require_key)."
    };
    let text = format!(
        "\nThe first API key, for the administrator. It is shown this once, and only its hash is kept:\n\n    {}\n\n\
         {needed} More keys, and others in its place: 'fumehood key create', 'fumehood key rotate'.\n\n",
        key.reveal()
    );
    write_err(&text);
}

fn announce(address: SocketAddr) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on http://{address}")?;
    out.flush().context("standard output")
}

/// SIGINT and SIGTERM, which mean the same.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot handle signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
