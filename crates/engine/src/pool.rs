//! Sandboxes that wait ready: started ahead of demand, with the interpreter loaded, so that an ordinary execution begins at once.
//!
//! ```text
//! Starting --interpreter loaded--> Ready --claim--> used once, destroyed
//!        \--failed                      \--ttl, died--> destroyed
//! ```
//!
//! A ready sandbox has never seen anything of a caller's and serves one execution. Only executions that ask for just what the
//! recipe gives (limits, environment, working directory) can have one; all others start their own. A claim takes what is ready
//! and never waits. The last ones are for tenants who ask for little: whoever asks for more than they do starts its own meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, Guest, Sandbox, SandboxSpec, StartError};
use crate::ids::TenantId;
use crate::spec::{ExecutionSpec, IsolationLevel, Language};

/// How many wait and what they are.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// What a ready sandbox is made for: limits and image of an ordinary execution.
    pub recipe: ExecutionSpec,
    /// At least so many wait, when nothing is asked for.
    pub min_ready: usize,
    /// At most so many wait, however much is asked for.
    pub max_ready: usize,
    /// At most so many that wait and that serve such an execution, together. Executions are not refused for it: fewer wait.
    pub max_total: usize,
    /// One that has waited longer is replaced.
    pub ttl: Duration,
    /// One whose interpreter is not loaded by then is given up.
    pub start_timeout: Duration,
    /// Nobody has asked for one in so long: the pool ends. One without stays.
    pub unused: Option<Duration>,
}

/// The pool now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Waiting.
    pub ready: usize,
    /// As many as there should be at the present rate of claims.
    pub target: usize,
    /// Executions that run of the kind that these are for, whether they got one or not.
    pub busy: usize,
    /// Executions that got one.
    pub claims: u64,
    /// Executions that could have had one but found none.
    pub misses: u64,
}

/// The pool of one recipe.
pub(crate) struct Pool {
    config: PoolConfig,
    backend: Arc<dyn Backend>,
    ready: Mutex<VecDeque<Ready>>,
    /// When sandboxes were asked for lately; decides how many should wait.
    demand: Mutex<VecDeque<Instant>>,
    /// Who asked.
    shares: Mutex<Shares>,
    claims: AtomicU64,
    misses: AtomicU64,
    busy: AtomicUsize,
    /// When somebody last asked, or might soon.
    touched: Mutex<Instant>,
    /// Something changed that may call for another sandbox.
    changed: Notify,
    closed: CancellationToken,
}

/// An execution of the kind that a pool is for, as long as anything is left of its sandbox.
pub(crate) struct Busy(Arc<Pool>);

impl Busy {
    fn new(pool: Arc<Pool>) -> Self {
        pool.busy.fetch_add(1, Ordering::Relaxed);
        Self(pool)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        // There may be room for another that waits.
        self.0.changed.notify_one();
        self.0.observe();
    }
}

struct Ready {
    sandbox: Sandbox,
    since: Instant,
    /// Of the backend when it was started.
    generation: u64,
}

impl Ready {
    fn usable(&mut self, ttl: Duration, generation: u64) -> bool {
        let reported = !matches!(self.sandbox.exit.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        self.generation == generation && !reported && !hung_up(&self.sandbox.guest) && self.since.elapsed() < ttl
    }
}

/// Whether the interpreter has gone: its socket knows at once, the report of its end takes a moment longer.
fn hung_up(guest: &Guest) -> bool {
    let Guest::Runner(socket) = guest else { return true };
    let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A poll that fails tells nothing; better one sandbox too few than a dead one given out.
    poll(&mut fds, Some(&now)).is_err()
        || fds[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// Demand of this long ago counts.
const MEMORY: Duration = Duration::from_secs(2);
/// After a failure to start one.
const PAUSE: Duration = Duration::from_secs(1);
/// Making another waits so long while there are enough for the next requests; most executions are over by then.
const COURTESY: Duration = Duration::from_millis(10);
/// Ready ones are looked after at least so often.
const ROUND: Duration = Duration::from_secs(5);

impl Pool {
    /// A pool that fills itself from now on. Must be called on a tokio runtime.
    pub(crate) fn start(config: PoolConfig, backend: Arc<dyn Backend>) -> Arc<Self> {
        let pool = Arc::new(Self {
            config,
            backend,
            ready: Mutex::default(),
            demand: Mutex::default(),
            shares: Mutex::default(),
            claims: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            touched: Mutex::new(Instant::now()),
            changed: Notify::new(),
            closed: CancellationToken::new(),
        });
        let filled = Arc::clone(&pool);
        tokio::spawn(async move {
            // What is being started is given up with this future; the backend kills it.
            filled.closed.run_until_cancelled(filled.keep_filled()).await;
        });
        pool
    }

    /// A ready sandbox for this execution, if it is one for which there are any and one waits. The other is to be kept until nothing is left of
    /// the execution's sandbox, wherever it came from.
    pub(crate) fn claim(self: &Arc<Self>, spec: &ExecutionSpec) -> Option<(Option<Sandbox>, Busy)> {
        if !fits(spec, &self.config.recipe) {
            return None;
        }
        let asked = Instant::now();
        *self.touched.lock() = asked;
        self.demand.lock().push_back(asked);
        let modest = self.shares.lock().ask(&spec.owner, asked);
        let left_to_others = modest.min(self.target() / 2);
        let generation = self.backend.generation(&self.config.recipe.kind);
        let mut ready = self.ready.lock();
        let mut found = None;
        while ready.len() > left_to_others
            && let Some(mut next) = ready.pop_front()
        {
            if next.usable(self.config.ttl, generation) {
                found = Some(next.sandbox);
                break;
            }
        }
        drop(ready);
        if let Some(sandbox) = &found {
            sandbox.control.hurry();
        }
        let counter = if found.is_some() { &self.claims } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("fumehood_pool_claims_total", "found" => if found.is_some() { "yes" } else { "no" })
            .increment(1);
        metrics::histogram!("fumehood_pool_claim_seconds").record(asked.elapsed());
        let busy = Busy::new(Arc::clone(self));
        self.changed.notify_one();
        Some((found, busy))
    }

    /// The pool now.
    pub(crate) fn status(&self) -> PoolStatus {
        PoolStatus {
            ready: self.ready.lock().len(),
            target: self.target(),
            busy: self.busy.load(Ordering::Relaxed),
            claims: self.claims.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }

    /// Somebody may ask for one soon.
    pub(crate) fn touch(&self) {
        *self.touched.lock() = Instant::now();
    }

    /// Whether none will ever wait again.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Ends what waits and starts no more.
    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.ready.lock().clear();
    }

    fn target(&self) -> usize {
        let mut demand = self.demand.lock();
        while demand.front().is_some_and(|asked| asked.elapsed() > MEMORY) {
            demand.pop_front();
        }
        let per_second = demand.len() as f64 / MEMORY.as_secs_f64();
        let room = self.config.max_total.saturating_sub(self.busy.load(Ordering::Relaxed));
        target(&self.config, per_second).min(room)
    }

    async fn keep_filled(&self) {
        let mut number: u64 = 0;
        self.backend.warmed_up().await;
        loop {
            self.discard_unusable();
            if self.ready.lock().len() >= self.target() {
                if tokio::time::timeout(ROUND, self.changed.notified()).await.is_err() {
                    self.shrink();
                    if self.config.unused.is_some_and(|unused| self.touched.lock().elapsed() >= unused) {
                        return self.close();
                    }
                }
                continue;
            }
            if self.ready.lock().len() > self.config.min_ready / 2 {
                // Whoever was just served is running now: better the next one a moment later than this one slower.
                tokio::time::sleep(COURTESY).await;
            }
            number += 1;
            // Before it is started: should it change meanwhile, one too many is thrown away.
            let generation = self.backend.generation(&self.config.recipe.kind);
            match self.make(number).await {
                Ok(sandbox) => self.ready.lock().push_back(Ready { sandbox, since: Instant::now(), generation }),
                Err(error) => {
                    tracing::warn!(%error, "no sandbox could be made ready");
                    tokio::time::sleep(PAUSE).await;
                }
            }
            self.observe();
        }
    }

    /// After a round in which nobody asked: the oldest of those that are no longer needed go.
    fn shrink(&self) {
        let target = self.target();
        let surplus: Vec<Ready> = {
            let mut ready = self.ready.lock();
            let surplus = ready.len().saturating_sub(target);
            ready.drain(..surplus).collect()
        };
        // Ended here, with the lock released.
        drop(surplus);
        self.observe();
    }

    fn observe(&self) {
        // What is told by these is the node's own.
        if self.config.unused.is_some() {
            return;
        }
        metrics::gauge!("fumehood_pool_busy").set(self.busy.load(Ordering::Relaxed) as f64);
        metrics::gauge!("fumehood_pool_ready").set(self.ready.lock().len() as f64);
    }

    fn discard_unusable(&self) {
        let generation = self.backend.generation(&self.config.recipe.kind);
        self.ready.lock().retain_mut(|ready| ready.usable(self.config.ttl, generation));
    }

    /// Starts one and waits until its interpreter is loaded.
    async fn make(&self, number: u64) -> Result<Sandbox, StartError> {
        let name = format!("ready-{number}");
        let mut sandbox =
            self.backend.start(SandboxSpec { name: &name, execution: &self.config.recipe, waits: true }).await?;
        let failed = |cause: &dyn std::fmt::Display| StartError::Step {
            step: "make a sandbox ready".to_owned(),
            cause: cause.to_string(),
        };
        sandbox.open_gate().map_err(|error| failed(&error))?;
        let Guest::Runner(socket) = &sandbox.guest else { return Err(failed(&"it has no interpreter")) };
        // Its first frame stays in the socket for whoever claims it.
        tokio::select! {
            loaded = socket.readable() => loaded.map_err(|error| failed(&error))?,
            _ = &mut sandbox.exit => return Err(failed(&"it ended while loading")),
            () = tokio::time::sleep(self.config.start_timeout) => return Err(failed(&"the interpreter was not loaded in time")),
        }
        Ok(sandbox)
    }
}

/// How much each tenant asked for lately.
#[derive(Default)]
struct Shares(HashMap<TenantId, (f64, Instant)>);

impl Shares {
    /// Notes that `owner` asks; how many others asked too, and for less.
    fn ask(&mut self, owner: &TenantId, now: Instant) -> usize {
        /// What was asked so long ago counts half.
        const HALVED: f64 = 10.0;
        const FORGOTTEN: Duration = Duration::from_secs(60);
        self.0.retain(|_, (_, last)| now.saturating_duration_since(*last) < FORGOTTEN);
        let weight = |(asked, last): (f64, Instant)| {
            asked * (-now.saturating_duration_since(last).as_secs_f64() / HALVED).exp2()
        };
        let own = self.0.get(owner).copied().map_or(0.0, weight) + 1.0;
        self.0.insert(owner.clone(), (own, now));
        self.0.iter().filter(|(other, share)| *other != owner && weight(**share) < own).count()
    }
}

/// As many as are asked for in the time that making one takes, and some more, between floor and ceiling.
fn target(config: &PoolConfig, asked_per_second: f64) -> usize {
    const SECONDS_TO_MAKE: f64 = 0.5;
    let ahead = (asked_per_second * SECONDS_TO_MAKE).ceil() as usize;
    (config.min_ready + ahead).min(config.max_ready)
}

/// Whether a sandbox made by `recipe` is just what `spec` asks for. What is taken in at the start (limits, some of the environment) cannot
/// be changed afterwards without being something else than was asked for.
fn fits(spec: &ExecutionSpec, recipe: &ExecutionSpec) -> bool {
    spec.language == Language::Python
        && matches!(spec.isolation, IsolationLevel::Auto | IsolationLevel::Process)
        && spec.kind == recipe.kind
        && spec.limits == recipe.limits
        && spec.env_can_wait()
        && spec.cwd == recipe.cwd
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use futures::future::{BoxFuture, FutureExt};
    use tokio::net::unix::pipe;

    use super::*;
    use crate::backend::{BackendReport, Control, ExitReport};
    use crate::spec::{ExecutionRequest, FieldError, LimitPolicy};

    fn spec(change: impl FnOnce(&mut ExecutionRequest)) -> ExecutionSpec {
        let mut request = ExecutionRequest::new("1");
        change(&mut request);
        request.validate(&LimitPolicy::default()).unwrap()
    }

    fn config(min_ready: usize, max_ready: usize) -> PoolConfig {
        let recipe = spec(|_| {});
        PoolConfig {
            recipe,
            min_ready,
            max_ready,
            max_total: 8,
            ttl: Duration::from_secs(60),
            start_timeout: Duration::from_secs(5),
            unused: None,
        }
    }

    /// Sandboxes that are nothing but their channels.
    #[derive(Default)]
    struct Hollow {
        started: AtomicU64,
        /// Far ends, so that nothing is closed; and the way to end each.
        far: Mutex<Vec<(std::os::unix::net::UnixStream, oneshot::Sender<ExitReport>)>>,
    }

    struct NoKill;

    impl Control for NoKill {
        fn kill(&self) {}
    }

    impl Backend for Hollow {
        fn report(&self) -> BackendReport {
            BackendReport { level: IsolationLevel::Process, features: BTreeMap::new() }
        }

        fn accepts(&self, _: &ExecutionSpec) -> Result<(), FieldError> {
            Ok(())
        }

        fn start<'a>(&'a self, _: SandboxSpec<'a>) -> BoxFuture<'a, Result<Sandbox, StartError>> {
            async move {
                self.started.fetch_add(1, Ordering::SeqCst);
                let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
                near.set_nonblocking(true).unwrap();
                far.write_all(b"ready").unwrap();
                let (stdin, _) = pipe::pipe().unwrap();
                let ((_, stdout), (_, stderr)) = (pipe::pipe().unwrap(), pipe::pipe().unwrap());
                let (_gate_end, gate) = std::os::unix::net::UnixStream::pair().unwrap();
                let (sender, exit) = oneshot::channel();
                let gate: OwnedFd = gate.into();
                let disk: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
                let sandbox = Sandbox {
                    guest: Guest::Runner(tokio::net::UnixStream::from_std(near).unwrap()),
                    stdin,
                    stdout,
                    stderr,
                    gate: gate.try_clone().unwrap(),
                    disk,
                    owner: None,
                    control: Box::new(NoKill),
                    exit,
                    gone: oneshot::channel().1,
                    isolation: self.report(),
                };
                self.far.lock().push((far, sender));
                self.far.lock().push((_gate_end, oneshot::channel().0));
                Ok(sandbox)
            }
            .boxed()
        }
    }

    /// Whether an ordinary execution finds one.
    fn found(pool: &Arc<Pool>) -> bool {
        pool.claim(&spec(|_| {})).expect("it is of the kind").0.is_some()
    }

    async fn until(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < deadline, "waited in vain");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn it_fills_itself_to_its_floor_and_again_after_a_claim() {
        let backend = Arc::new(Hollow::default());
        let pool = Pool::start(config(2, 2), Arc::clone(&backend) as _);
        until(|| pool.status().ready == 2).await;
        assert!(found(&pool));
        until(|| pool.status().ready == 2).await;
        assert_eq!(backend.started.load(Ordering::SeqCst), 3);
        assert_eq!((pool.status().claims, pool.status().misses), (1, 0));
        pool.close();
        assert_eq!(pool.status().ready, 0);
    }

    #[tokio::test]
    async fn one_that_died_while_waiting_is_never_given_out() {
        let backend = Arc::new(Hollow::default());
        let pool = Pool::start(config(1, 1), Arc::clone(&backend) as _);
        until(|| pool.status().ready == 1).await;
        let (_far, end) = backend.far.lock().remove(0);
        end.send(ExitReport::default()).unwrap();
        assert!(!found(&pool));
        assert_eq!(pool.status().misses, 1);
        // Nor one whose interpreter is gone before its end was reported.
        until(|| pool.status().ready == 1).await;
        backend.far.lock().clear();
        assert!(!found(&pool));
    }

    #[tokio::test]
    async fn only_an_execution_that_asks_for_just_the_recipe_gets_one() {
        let pool = Pool::start(config(1, 1), Arc::new(Hollow::default()));
        until(|| pool.status().ready == 1).await;
        for other in [
            spec(|r| r.limits.memory_mb = Some(100)),
            spec(|r| drop(r.env.insert("PYTHONHASHSEED".to_owned(), "1".to_owned()))),
            spec(|r| r.cwd = Some("/tmp".to_owned())),
            spec(|r| r.language = Language::Bash),
        ] {
            assert!(pool.claim(&other).is_none(), "{other:?}");
        }
        assert_eq!((pool.status().ready, pool.status().misses), (1, 0), "what cannot have one is no miss");
        let free = |r: &mut ExecutionRequest| {
            r.timeout_ms = Some(5);
            r.stdin = "x".to_owned();
            r.env.insert("TOKEN".to_owned(), "b".to_owned());
        };
        assert!(
            pool.claim(&spec(free)).is_some_and(|(sandbox, _)| sandbox.is_some()),
            "the clock is the host's, and standard input is a pipe still empty"
        );
    }

    #[tokio::test]
    async fn fewer_wait_while_many_serve() {
        let backend = Arc::new(Hollow::default());
        let pool = Pool::start(PoolConfig { max_total: 3, ..config(2, 2) }, Arc::clone(&backend) as _);
        until(|| pool.status().ready == 2).await;
        let ordinary = spec(|_| {});
        let (first, second) = (pool.claim(&ordinary).unwrap(), pool.claim(&ordinary).unwrap());
        until(|| pool.status().ready == 1).await;
        assert_eq!((pool.status().busy, pool.status().target), (2, 1));
        // One that finds none counts too.
        let third = pool.claim(&ordinary).unwrap();
        let fourth = pool.claim(&ordinary).unwrap();
        assert!(third.0.is_some() && fourth.0.is_none());
        assert_eq!((pool.status().busy, pool.status().target), (4, 0));
        drop((first, second, third, fourth));
        until(|| pool.status().ready == 2).await;
        assert_eq!(pool.status().busy, 0);
    }

    fn of(tenant: &str) -> ExecutionSpec {
        ExecutionSpec { owner: TenantId::parse(tenant).unwrap(), ..spec(|_| {}) }
    }

    #[tokio::test]
    async fn the_last_one_is_for_a_tenant_who_asks_for_less() {
        let pool = Pool::start(config(2, 2), Arc::new(Hollow::default()));
        until(|| pool.status().ready == 2).await;
        let takes = |tenant: &str| pool.claim(&of(tenant)).unwrap().0.is_some();
        assert!(takes("calm"));
        for _ in 0..5 {
            until(|| pool.status().ready == 2).await;
            assert!(takes("loud"));
            // No await since: nothing was made meanwhile.
            assert!(!takes("loud"), "the last one is not for who asks for more");
        }
        assert!(takes("calm"));
    }

    #[tokio::test]
    async fn a_tenant_who_is_alone_gets_the_last_one() {
        let pool = Pool::start(config(2, 2), Arc::new(Hollow::default()));
        until(|| pool.status().ready == 2).await;
        assert!([(); 3].map(|()| pool.claim(&of("loud")).unwrap().0.is_some()) == [true, true, false]);
    }

    #[test]
    fn what_was_asked_for_long_ago_counts_for_little() {
        let (mut shares, begun) = (Shares::default(), Instant::now());
        let [loud, calm] = ["loud", "calm"].map(|tenant| TenantId::parse(tenant).unwrap());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!((0..10).map(|_| shares.ask(&loud, begun)).max(), Some(0));
        assert_eq!([shares.ask(&calm, begun), shares.ask(&loud, begun)], [0, 1]);
        // Half of eleven and a half of one and one more; then the other way round.
        assert_eq!([shares.ask(&calm, at(10)), shares.ask(&loud, at(10))], [0, 1]);
        assert_eq!([shares.ask(&calm, at(30)), shares.ask(&calm, at(30))], [0, 1]);
        // Forgotten.
        assert_eq!(shares.ask(&calm, at(120)), 0);
    }

    #[test]
    fn more_wait_when_more_is_asked_for_up_to_the_ceiling() {
        let config = config(2, 8);
        assert_eq!([0.0, 1.0, 4.0, 1000.0].map(|rate| target(&config, rate)), [2, 3, 4, 8]);
    }
}
