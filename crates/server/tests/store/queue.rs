//! The contract of a queue, line by line, on the embedded one (three databases) and on Redis.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fumehood_engine::clock::SystemClock;
use fumehood_engine::ids::{ExecutionId, TenantId};
use fumehood_server::queue::{EmbeddedQueue, Priority, Queue, QueueDepth, QueuedJob, RedisQueue, TakenJob};
use fumehood_server::store::{Kind, StoreError};
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::rig::{OwnServer, Place, on_runtime, run, server_url, unique, until};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(300);

type Opens = dyn Fn() -> BoxFuture<'static, Arc<dyn Queue>> + Send + Sync;

/// A queue of this test alone.
#[derive(Clone)]
struct Line(Arc<Opens>);

impl Line {
    /// The same queue, as another process sees it.
    async fn open(&self) -> Arc<dyn Queue> {
        (self.0)().await
    }

    fn embedded(place: Place) -> Self {
        Self(Arc::new(move || {
            let place = place.clone();
            Box::pin(async move {
                Arc::new(EmbeddedQueue::new(place.open().await, Arc::new(SystemClock))) as Arc<dyn Queue>
            })
        }))
    }

    fn redis(url: String, prefix: String) -> Self {
        Self(Arc::new(move || {
            let queue = RedisQueue::new(&url, &prefix).unwrap();
            Box::pin(async move { Arc::new(queue) as Arc<dyn Queue> })
        }))
    }
}

fn on_redis<F: Future<Output = ()> + Send + 'static>(promise: fn(Line) -> F) {
    on_redis_keys(move |url, prefix| promise(Line::redis(url, prefix)));
}

/// With URL and prefix; what begins with that is deleted afterwards.
fn on_redis_keys<F: Future<Output = ()> + Send + 'static>(promise: impl FnOnce(String, String) -> F) {
    let Some(url) = server_url("FUMEHOOD_TEST_REDIS_URL") else { return };
    let prefix = unique("fumehood-test-");
    on_runtime(async move {
        let ended = tokio::spawn(promise(url.clone(), format!("{prefix}:"))).await;
        let mut connection = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(format!("{prefix}*")).query_async(&mut connection).await.unwrap();
        for key in keys {
            let _: i64 = redis::cmd("DEL").arg(key).query_async(&mut connection).await.unwrap();
        }
        ended
    });
}

macro_rules! on_every_queue {
    ($($(#[$about:meta])* async fn $name:ident($line:ident: Line) $body:block)+) => {$(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn promise($line: Line) $body

            async fn embedded(place: Place) {
                promise(Line::embedded(place)).await;
            }

            #[test]
            fn sqlite() {
                run(Kind::Sqlite, embedded);
            }

            #[test]
            fn mariadb() {
                run(Kind::Mysql, embedded);
            }

            #[test]
            fn postgres() {
                run(Kind::Postgres, embedded);
            }

            #[test]
            fn redis() {
                on_redis(promise);
            }
        }
    )+};
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn execution(name: &str) -> ExecutionId {
    ExecutionId::parse(&format!("exe_{name}")).unwrap()
}

fn job(of: &str, name: &str) -> QueuedJob {
    QueuedJob { execution: execution(name), tenant: tenant(of), priority: Priority::Normal }
}

async fn push(queue: &Arc<dyn Queue>, of: &str, names: &[&str]) {
    for name in names {
        queue.push(&job(of, name)).await.unwrap();
    }
}

fn names(jobs: &[TakenJob]) -> Vec<&str> {
    jobs.iter().map(|taken| taken.job.execution.as_str().strip_prefix("exe_").unwrap()).collect()
}

async fn take_one(queue: &Arc<dyn Queue>, worker: &str, lease: Duration) -> Option<TakenJob> {
    let mut taken = queue.take(worker, 1, lease).await.unwrap();
    assert!(taken.len() <= 1);
    taken.pop()
}

/// The next job, whenever there is one.
async fn take_in_time(queue: &Arc<dyn Queue>, worker: &str, lease: Duration) -> TakenJob {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(taken) = take_one(queue, worker, lease).await {
            return taken;
        }
        assert!(Instant::now() < deadline, "nothing came");
        queue.wait(Duration::from_secs(1)).await;
    }
}

on_every_queue! {
    async fn a_job_is_taken_once_and_forgotten_when_it_is_done(line: Line) {
        let queue = line.open().await;
        assert_eq!(queue.take("w", 3, LONG).await.unwrap(), []);
        push(&queue, "a", &["1"]).await;
        let taken = queue.take("w", 3, LONG).await.unwrap();
        assert_eq!(names(&taken), ["1"]);
        assert_eq!((taken[0].deliveries, &taken[0].job), (1, &job("a", "1")));
        assert_eq!(queue.take("other", 3, LONG).await.unwrap(), []);
        queue.done("w", &taken[0]).await.unwrap();
        assert_eq!(queue.depth(None).await.unwrap(), QueueDepth::default());
        // A second time is no error, and it may be pushed anew.
        queue.done("w", &taken[0]).await.unwrap();
        push(&queue, "a", &["1"]).await;
        assert_eq!(take_one(&queue, "w", LONG).await.unwrap().deliveries, 1);
    }

    async fn what_was_pushed_outlives_the_process(line: Line) {
        let queue = line.open().await;
        push(&queue, "a", &["1", "2"]).await;
        let taken = take_one(&queue, "w", LONG).await.unwrap();
        drop(queue);
        let queue = line.open().await;
        assert_eq!(names(&queue.take("v", 9, LONG).await.unwrap()), ["2"]);
        queue.done("w", &taken).await.unwrap();
        assert_eq!(queue.depth(None).await.unwrap(), QueueDepth { taken: 1, ..QueueDepth::default() });
    }

    async fn a_job_that_is_there_already_stays_as_it_is(line: Line) {
        let queue = line.open().await;
        push(&queue, "a", &["1", "2", "1"]).await;
        assert_eq!(queue.depth(None).await.unwrap().waiting, 2);
        let taken = take_one(&queue, "w", LONG).await.unwrap();
        assert_eq!(names(std::slice::from_ref(&taken)), ["1"]);
        push(&queue, "a", &["1"]).await;
        let depth = queue.depth(None).await.unwrap();
        assert_eq!((depth.waiting, depth.taken), (1, 1));
        queue.bury("w", &taken, "no use").await.unwrap();
        push(&queue, "a", &["1"]).await;
        let depth = queue.depth(None).await.unwrap();
        assert_eq!((depth.waiting, depth.taken, depth.dead), (1, 0, 1));
    }

    async fn tenants_take_turns_and_each_keeps_its_order(line: Line) {
        let queue = line.open().await;
        push(&queue, "a", &["a1", "a2", "a3", "a4"]).await;
        push(&queue, "b", &["b1", "b2"]).await;
        push(&queue, "c", &["c1"]).await;
        let first = queue.take("w", 3, LONG).await.unwrap();
        let mut order: Vec<String> = names(&first).into_iter().map(str::to_owned).collect();
        while let Some(taken) = take_one(&queue, "w", LONG).await {
            order.extend(names(&[taken]).into_iter().map(str::to_owned));
        }
        assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]);
    }

    async fn urgent_jobs_go_first(line: Line) {
        let queue = line.open().await;
        let with = |name: &str, priority| QueuedJob { priority, ..job(if name < "m" { "a" } else { "z" }, name) };
        for (name, priority) in [("1", Priority::Low), ("2", Priority::Normal), ("x", Priority::High), ("3", Priority::High), ("y", Priority::Low)] {
            queue.push(&with(name, priority)).await.unwrap();
        }
        let taken = queue.take("w", 9, LONG).await.unwrap();
        let order = names(&taken);
        // Who of two tenants begins is open.
        assert_eq!(BTreeSet::from_iter(&order[..2]), BTreeSet::from(["x", "3"].each_ref()), "{order:?}");
        assert_eq!(order[2], "2", "{order:?}");
        assert_eq!(BTreeSet::from_iter(&order[3..]), BTreeSet::from(["1", "y"].each_ref()), "{order:?}");
    }

    async fn many_jobs_of_one_tenant_do_not_keep_another_waiting(line: Line) {
        let queue = line.open().await;
        let many: Vec<String> = (0..40).map(|index| format!("a{index:02}")).collect();
        push(&queue, "a", &many.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut served = Vec::new();
        push(&queue, "b", &["b0"]).await;
        for index in 1..20 {
            let taken = take_one(&queue, "w", LONG).await.unwrap();
            queue.done("w", &taken).await.unwrap();
            // One that always has just one waiting gets its share too, and not more.
            if taken.job.tenant == tenant("b") {
                queue.push(&job("b", &format!("b{index}"))).await.unwrap();
            }
            served.push(taken.job.tenant);
        }
        let b = served.iter().filter(|of| **of == tenant("b")).count();
        assert!((9..=10).contains(&b), "{served:?}");
        assert!(served[..3].contains(&tenant("b")), "{served:?}");
    }

    async fn a_job_whose_lease_ran_out_is_taken_again(line: Line) {
        let queue = line.open().await;
        push(&queue, "a", &["1", "2"]).await;
        let lost = take_one(&queue, "dead", SHORT).await.unwrap();
        let again = loop {
            let taken = take_in_time(&queue, "w", LONG).await;
            if taken.job == lost.job {
                break taken;
            }
        };
        assert_eq!(again.deliveries, 2);
        // Whoever had it has no say any more.
        let gone = queue.renew("dead", std::slice::from_ref(&lost), LONG).await.unwrap();
        assert_eq!(gone, std::slice::from_ref(&lost.job.execution));
        queue.done("dead", &lost).await.unwrap();
        queue.later("dead", &lost, Duration::ZERO).await.unwrap();
        queue.bury("dead", &lost, "no").await.unwrap();
        queue.done("w", &lost).await.unwrap();
        assert_eq!(queue.depth(None).await.unwrap(), QueueDepth { waiting: 0, taken: 2, dead: 0 });
        assert_eq!(queue.renew("w", std::slice::from_ref(&again), LONG).await.unwrap(), []);
        queue.done("w", &again).await.unwrap();
        assert_eq!(queue.depth(None).await.unwrap().taken, 1);
    }

    async fn a_lease_that_is_renewed_does_not_run_out(line: Line) {
        let queue = line.open().await;
        push(&queue, "a", &["1", "2"]).await;
        let held = queue.take("w", 2, Duration::from_millis(900)).await.unwrap();
        assert_eq!(queue.renew("w", &held[..1], LONG).await.unwrap(), []);
        let other = take_in_time(&queue, "v", LONG).await;
        assert_eq!(names(&[other]), ["2"]);
        assert_eq!(queue.take("v", 2, LONG).await.unwrap(), []);
        let lost = queue.renew("w", &held, LONG).await.unwrap();
        assert_eq!(lost, [execution("2")]);
    }

    async fn a_job_given_back_waits_its_time_and_comes_in_front(line: Line) {
        let queue = line.open().await;
        push(&queue, "a", &["1", "2", "3", "4"]).await;
        let taken = queue.take("w", 2, LONG).await.unwrap();
        queue.later("w", &taken[0], Duration::from_millis(700)).await.unwrap();
        let given = Instant::now();
        let depth = queue.depth(None).await.unwrap();
        assert_eq!((depth.waiting, depth.taken), (3, 1));
        let next = take_one(&queue, "w", LONG).await.unwrap();
        if given.elapsed() < Duration::from_millis(600) {
            assert_eq!(names(&[next]), ["3"]);
        }
        until(Duration::from_secs(10), "its time", async || given.elapsed() > Duration::from_millis(750)).await;
        let again = take_one(&queue, "w", LONG).await.unwrap();
        assert_eq!((names(std::slice::from_ref(&again)), again.deliveries), (vec!["1"], 2));
        // At once, when no time is given.
        queue.later("w", &taken[1], Duration::ZERO).await.unwrap();
        assert_eq!(names(&queue.take("w", 5, LONG).await.unwrap()), ["2", "4"]);
    }

    async fn a_worker_that_begins_anew_gives_back_what_it_had_and_nothing_else(line: Line) {
        let queue = line.open().await;
        push(&queue, "a", &["1", "2", "3", "4", "5"]).await;
        let mut had = queue.take("w", 3, LONG).await.unwrap();
        queue.bury("w", &had.pop().unwrap(), "dead is dead").await.unwrap();
        let others = queue.take("v", 1, LONG).await.unwrap();
        // As the next process of that name sees it.
        let queue = line.open().await;
        queue.give_back_all("w").await.unwrap();
        assert_eq!(queue.depth(None).await.unwrap(), QueueDepth { waiting: 3, taken: 1, dead: 1 });
        assert_eq!(queue.renew("w", &had, LONG).await.unwrap(), [execution("1"), execution("2")]);
        assert_eq!(queue.renew("v", &others, LONG).await.unwrap(), []);
        let again = queue.take("w", 9, LONG).await.unwrap();
        assert_eq!(names(&again), ["1", "2", "5"]);
        assert_eq!(again.iter().map(|taken| taken.deliveries).collect::<Vec<_>>(), [2, 2, 1]);
        // Nothing is found twice.
        for taken in again {
            queue.done("w", &taken).await.unwrap();
        }
        queue.give_back_all("w").await.unwrap();
        assert_eq!(queue.depth(None).await.unwrap(), QueueDepth { waiting: 0, taken: 1, dead: 1 });
    }

    async fn a_dead_job_is_kept_with_its_reason_until_it_is_revived(line: Line) {
        let queue = line.open().await;
        push(&queue, "a", &["1", "2"]).await;
        push(&queue, "b", &["3"]).await;
        for taken in queue.take("w", 9, LONG).await.unwrap() {
            queue.bury("w", &taken, &format!("it fails: {} \0 🧪", taken.job.execution)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        assert_eq!(queue.take("w", 9, LONG).await.unwrap(), []);
        assert_eq!(queue.depth(None).await.unwrap(), QueueDepth { waiting: 0, taken: 0, dead: 3 });
        assert_eq!(queue.entries(None, 9).await.unwrap(), []);
        let dead = queue.dead(None, 9).await.unwrap();
        let ids: Vec<_> = dead.iter().map(|entry| entry.execution_id.as_str()).collect();
        // Newest first: taken in turns.
        assert_eq!(ids, ["exe_2", "exe_3", "exe_1"]);
        assert!(dead[0].reason.as_deref().unwrap().starts_with("it fails: exe_2"), "{dead:?}");
        assert_eq!((dead[0].worker.as_deref(), dead[0].deliveries), (None, 1));
        assert_eq!(queue.dead(Some(&tenant("a")), 9).await.unwrap().len(), 2);
        assert_eq!(queue.dead(None, 2).await.unwrap().len(), 2);
        assert!(queue.revive(&execution("2")).await.unwrap());
        assert!(!queue.revive(&execution("2")).await.unwrap());
        assert!(!queue.revive(&execution("9")).await.unwrap());
        let taken = take_one(&queue, "w", LONG).await.unwrap();
        assert_eq!((names(std::slice::from_ref(&taken)), taken.deliveries), (vec!["2"], 1));
        assert_eq!(queue.depth(Some(&tenant("a"))).await.unwrap(), QueueDepth { waiting: 0, taken: 1, dead: 1 });
    }

    async fn a_job_is_removed_wherever_it_is(line: Line) {
        let queue = line.open().await;
        push(&queue, "a", &["taken", "dead", "deferred", "again", "waiting", "stays"]).await;
        let taken = queue.take("w", 4, LONG).await.unwrap();
        queue.bury("w", &taken[1], "x").await.unwrap();
        queue.later("w", &taken[2], LONG).await.unwrap();
        queue.later("w", &taken[3], Duration::ZERO).await.unwrap();
        for name in ["taken", "dead", "deferred", "again", "waiting"] {
            assert!(queue.remove(&execution(name)).await.unwrap(), "{name}");
            assert!(!queue.remove(&execution(name)).await.unwrap(), "{name}");
        }
        assert_eq!(queue.depth(None).await.unwrap(), QueueDepth { waiting: 1, taken: 0, dead: 0 });
        assert_eq!(queue.renew("w", &taken[..1], LONG).await.unwrap(), [execution("taken")]);
        assert_eq!(names(&queue.take("w", 9, LONG).await.unwrap()), ["stays"]);
        // All of them may come anew.
        push(&queue, "a", &["taken", "dead", "waiting"]).await;
        assert_eq!(names(&queue.take("w", 9, LONG).await.unwrap()), ["taken", "dead", "waiting"]);
    }

    async fn entries_and_depth_tell_of_one_tenant_or_of_all(line: Line) {
        let queue = line.open().await;
        push(&queue, "a", &["1", "2"]).await;
        push(&queue, "b", &["3"]).await;
        let taken = take_one(&queue, "worker-7", LONG).await.unwrap();
        assert_eq!(names(&[taken]), ["1"]);
        let all = queue.entries(None, 9).await.unwrap();
        let told: Vec<_> = all.iter().map(|entry| (entry.execution_id.as_str(), entry.worker.as_deref(), entry.deliveries)).collect();
        assert_eq!(told, [("exe_1", Some("worker-7"), 1), ("exe_2", None, 0), ("exe_3", None, 0)]);
        assert!(all.iter().all(|entry| entry.reason.is_none() && entry.priority == Priority::Normal));
        assert_eq!(queue.entries(Some(&tenant("b")), 9).await.unwrap().len(), 1);
        assert_eq!(queue.entries(None, 2).await.unwrap().len(), 2);
        assert_eq!(queue.depth(Some(&tenant("a"))).await.unwrap(), QueueDepth { waiting: 1, taken: 1, dead: 0 });
        assert_eq!(queue.depth(Some(&tenant("c"))).await.unwrap(), QueueDepth::default());
    }

    async fn whoever_waits_is_woken(line: Line) {
        let (queue, elsewhere) = (line.open().await, line.open().await);
        // By nothing, when patience ends.
        let began = Instant::now();
        queue.wait(Duration::from_millis(250)).await;
        assert!(began.elapsed() >= Duration::from_millis(240), "{:?}", began.elapsed());
        let waiting = |queue: &Arc<dyn Queue>| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.wait(LONG).await })
        };
        // By a push of this process.
        let woken = waiting(&queue);
        tokio::task::yield_now().await;
        push(&queue, "a", &["1"]).await;
        tokio::time::timeout(Duration::from_secs(5), woken).await.unwrap().unwrap();
        assert!(take_one(&queue, "w", LONG).await.is_some());
        // By one of another, and by one that became due.
        let woken = waiting(&queue);
        push(&elsewhere, "a", &["2"]).await;
        tokio::time::timeout(Duration::from_secs(5), woken).await.unwrap().unwrap();
        let taken = take_one(&queue, "w", LONG).await.unwrap();
        elsewhere.later("w", &taken, SHORT).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), waiting(&queue)).await.unwrap().unwrap();
    }

    /// Workers die with what they have, others take long, and all of it at once.
    async fn nothing_is_lost_and_no_two_hold_a_lease(line: Line) {
        const JOBS: usize = 60;
        const LEASE: Duration = Duration::from_millis(1500);
        let queue = line.open().await;
        for index in 0..JOBS {
            push(&queue, ["a", "b", "c"][index % 3], &[&format!("{index}")]).await;
        }
        let done = Arc::new(Mutex::new(BTreeSet::new()));
        let held: Arc<Mutex<HashMap<ExecutionId, Instant>>> = Arc::default();
        let workers = (0..4).map(|number| {
            let (line, done, held) = (line.clone(), done.clone(), held.clone());
            tokio::spawn(async move {
                let queue = line.open().await;
                let deadline = Instant::now() + Duration::from_secs(60);
                for turn in 0.. {
                    if done.lock().len() == JOBS {
                        return;
                    }
                    assert!(Instant::now() < deadline, "not all were done: {:?}", done.lock());
                    let worker = format!("w{number}-{turn}");
                    let asked = Instant::now();
                    let taken = queue.take(&worker, 3, LEASE).await.unwrap();
                    let now = Instant::now();
                    for taken in &taken {
                        // No lease ends before it began, and so long after.
                        let before = held.lock().insert(taken.job.execution.clone(), asked + LEASE);
                        assert!(before.is_none_or(|end| end <= now), "{} is held by somebody else", taken.job.execution);
                        // Every fifth time, a worker is never heard of again.
                        if taken.deliveries == 1 && fastrand::u8(..5) == 0 {
                            continue;
                        }
                        tokio::time::sleep(Duration::from_millis(fastrand::u64(..10))).await;
                        if !queue.renew(&worker, std::slice::from_ref(taken), LEASE).await.unwrap().is_empty() {
                            continue;
                        }
                        held.lock().remove(&taken.job.execution);
                        queue.done(&worker, taken).await.unwrap();
                        done.lock().insert(taken.job.execution.clone());
                    }
                    if taken.is_empty() {
                        queue.wait(Duration::from_millis(500)).await;
                    }
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.unwrap();
        }
        assert_eq!(queue.depth(None).await.unwrap(), QueueDepth::default());
    }

    async fn two_thousand_jobs_are_each_taken_once(line: Line) {
        const JOBS: usize = 2000;
        let pushed = Arc::new(AtomicUsize::new(0));
        let pushers = (0..4).map(|number| {
            let (line, pushed) = (line.clone(), pushed.clone());
            tokio::spawn(async move {
                let queue = line.open().await;
                for index in (number..JOBS).step_by(4) {
                    let of = format!("tenant-{}", index % 7);
                    let priority = Priority::ALL[index % 3];
                    queue.push(&QueuedJob { priority, ..job(&of, &format!("{index}")) }).await.unwrap();
                    pushed.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let pushers: Vec<_> = pushers.collect();
        let taken: Arc<Mutex<BTreeMap<ExecutionId, u32>>> = Arc::default();
        let workers = (0..3).map(|number| {
            let (line, taken) = (line.clone(), taken.clone());
            tokio::spawn(async move {
                let queue = line.open().await;
                let worker = format!("w{number}");
                while taken.lock().len() < JOBS {
                    let jobs = queue.take(&worker, 8, LONG).await.unwrap();
                    for job in &jobs {
                        *taken.lock().entry(job.job.execution.clone()).or_default() += 1;
                        queue.done(&worker, job).await.unwrap();
                    }
                    if jobs.is_empty() {
                        queue.wait(Duration::from_millis(100)).await;
                    }
                }
            })
        });
        let workers: Vec<_> = workers.collect();
        for task in pushers.into_iter().chain(workers) {
            task.await.unwrap();
        }
        assert!(taken.lock().values().all(|times| *times == 1));
        assert_eq!(line.open().await.depth(None).await.unwrap(), QueueDepth::default());
    }
}

/// Seconds for taking and finishing 40 jobs, the best of three.
async fn cost(queue: &Arc<dyn Queue>, round: usize) -> f64 {
    let mut best = f64::MAX;
    for attempt in 0..3 {
        let began = Instant::now();
        for index in 0..40 {
            queue.push(&job("busy", &format!("c{round}x{attempt}x{index}"))).await.unwrap();
            let taken = take_one(queue, "w", LONG).await.unwrap();
            queue.done("w", &taken).await.unwrap();
        }
        best = best.min(began.elapsed().as_secs_f64());
    }
    best
}

/// Has 100 jobs wait, then 10,000.
async fn flat<F: Future<Output = ()>>(line: Line, fill: impl FnOnce() -> F) {
    let queue = line.open().await;
    for index in 0..100 {
        queue.push(&job(&format!("t{}", index % 20), &format!("f{index}"))).await.unwrap();
    }
    let few = cost(&queue, 1).await;
    fill().await;
    assert_eq!(queue.depth(None).await.unwrap().waiting, 10_000);
    let many = cost(&queue, 2).await;
    println!("{few:.4} s with 100 waiting, {many:.4} s with 10,000");
    // A scan of everything would cost a hundred times as much.
    assert!(many < few * 5.0, "{few} s with 100 waiting, {many} s with 10,000");
}

async fn flat_embedded(place: Place) {
    let database = place.open().await;
    flat(Line::embedded(place), async || {
        for chunk in (100..10_000).collect::<Vec<_>>().chunks(900) {
            let rows = chunk.iter().map(|index| format!("('exe_f{index}', 't{}', 1, 0, 0, 0)", index % 20));
            let rows = rows.collect::<Vec<_>>().join(", ");
            let text =
                format!("INSERT INTO queue (execution_id, tenant, priority, state, due_ms, deliveries) VALUES {rows}");
            database.query(&text).execute(database.pool()).await.unwrap();
        }
    })
    .await;
}

mod a_job_costs_the_same_however_many_wait {
    use super::*;

    #[test]
    fn sqlite() {
        run(Kind::Sqlite, flat_embedded);
    }

    #[test]
    fn mariadb() {
        run(Kind::Mysql, flat_embedded);
    }

    #[test]
    fn postgres() {
        run(Kind::Postgres, flat_embedded);
    }

    #[test]
    fn redis() {
        on_redis(|line| async move {
            let queue = line.open().await;
            flat(line, async || {
                let pushes = (100..10_000).map(|index| {
                    let queue = queue.clone();
                    async move { queue.push(&job(&format!("t{}", index % 20), &format!("f{index}"))).await.unwrap() }
                });
                futures::StreamExt::for_each_concurrent(futures::stream::iter(pushes), 50, |push| push).await;
            })
            .await;
        });
    }
}

#[test]
fn an_outage_of_redis_passes() {
    let Some(server) = OwnServer::start("redis") else { return };
    on_runtime(async move {
        tokio::spawn(async move {
            let line = Line::redis(server.url.clone(), "outage:".to_owned());
            let queue = line.open().await;
            push(&queue, "a", &["1", "2", "3"]).await;
            let held = take_one(&queue, "w", LONG).await.unwrap();
            server.order("stop");
            let unavailable = |error: StoreError| assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
            let began = Instant::now();
            unavailable(queue.push(&job("a", "4")).await.unwrap_err());
            assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
            unavailable(queue.take("w", 1, LONG).await.unwrap_err());
            unavailable(queue.depth(None).await.unwrap_err());
            // One that begins during the outage, too.
            unavailable(line.open().await.take("w", 1, LONG).await.unwrap_err());
            // The first may still be woken by the push before.
            queue.wait(Duration::from_millis(500)).await;
            let began = Instant::now();
            queue.wait(Duration::from_millis(500)).await;
            assert!(began.elapsed() >= Duration::from_millis(490), "an outage is no reason to hurry");
            server.order("start");
            until(Duration::from_secs(10), "it comes back by itself", async || queue.depth(None).await.is_ok()).await;
            queue.done("w", &held).await.unwrap();
            queue.push(&job("a", "4")).await.unwrap();
            assert_eq!(names(&queue.take("w", 9, LONG).await.unwrap()), ["2", "3", "4"]);
        })
        .await
    });
}

/// A server that drops keys for lack of memory, or an operator who deletes some.
#[test]
fn keys_that_are_gone_do_not_stand_in_the_way_of_the_rest() {
    on_redis_keys(|url, prefix| async move {
        let queue = Line::redis(url.clone(), prefix.clone()).open().await;
        push(&queue, "a", &["1", "2", "3", "4"]).await;
        let taken = queue.take("w", 2, Duration::from_millis(1)).await.unwrap();
        assert_eq!(names(&taken), ["1", "2"]);
        let mut connection = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
        for name in ["1", "3"] {
            let _: i64 =
                redis::cmd("DEL").arg(format!("{prefix}job:exe_{name}")).query_async(&mut connection).await.unwrap();
        }
        let mut taken = Vec::new();
        while taken.len() < 2 {
            taken.extend(queue.take("w", 9, LONG).await.unwrap());
        }
        assert_eq!(BTreeSet::from_iter(names(&taken)), BTreeSet::from(["2", "4"]));
        for taken in &taken {
            queue.done("w", taken).await.unwrap();
        }
    });
}
