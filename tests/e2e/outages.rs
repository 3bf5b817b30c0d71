//! Whole servers on databases and queues of every kind, and what becomes of jobs while one of those is away.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::databases::OwnServer;
use crate::jobs::{SMALL, accept, ended, kill, read, start_on};
use crate::server::{Server, brief, wait_for, wait_until};

const JOBS: usize = 30;
/// Until everything has ended that was accepted: what the queue took into its grave with a connection comes back after its lease.
const PATIENCE: Duration = Duration::from_secs(120);

/// A database of this test alone; its URL.
fn database(kind: &'static str) -> Option<(OwnServer, String)> {
    let server = OwnServer::start(kind)?;
    // PostgreSQL's names one already.
    let url = if kind == "mysql" { format!("{}/fumehood", server.url) } else { server.url.clone() };
    Some((server, url))
}

/// Settings of a small server with two more, each of which may be left out.
fn settings<'a>(storage: Option<&'a str>, queue: Option<&'a str>) -> Vec<(&'static str, &'a str)> {
    let storage = storage.map(|url| ("FUMEHOOD_STORAGE__URL", url));
    let queue = queue.map(|url| ("FUMEHOOD_QUEUE__URL", url));
    SMALL.into_iter().chain(storage).chain(queue).collect()
}

/// Code that runs until it is cancelled, and says that it does.
fn forever() -> Value {
    json!({"code": "import time; print('up', flush=True); time.sleep(600)"})
}

fn cancel(server: &Server, id: &str) -> Value {
    let (status, execution) = server.post(&format!("/v1/executions/{id}/cancel"), &json!({}));
    assert_eq!(status, 200, "{execution}");
    execution
}

/// Waits until nothing waits or runs.
fn emptied(server: &Server) {
    let left = || server.get("/v1/queue").1["jobs"].as_array().map(Vec::len);
    wait_until(Instant::now() + PATIENCE, || (left() == Some(0)).then_some(()));
}

/// All executions that there are, from the newest.
fn listed(server: &Server) -> Vec<Value> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let (status, page) = server.get(&format!("/v1/executions?limit=100{cursor}"));
        assert_eq!(status, 200, "{page}");
        all.extend(page["executions"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { return all };
        cursor = format!("&cursor={next}");
    }
}

fn id_of(execution: &Value) -> String {
    execution["id"].as_str().unwrap().to_owned()
}

/// Thirty jobs of every urgency, one that is cancelled before its turn, and a server that dies under them.
fn jobs_end_once_whatever_happens(storage: Option<&str>, queue: Option<&str>) {
    let data = tempfile::tempdir().unwrap();
    let env = settings(storage, queue);
    let Some(mut server) = start_on(data.path(), "serve", &env) else { return };
    // Both places are taken, so that all of them wait.
    let holds = [accept(&server, &forever()), accept(&server, &forever())];
    wait_for(|| holds.iter().all(|id| read(&server, id)["status"] == "running").then_some(()));
    let priorities = ["low", "normal", "high"];
    let jobs: Vec<String> = (0..JOBS)
        .map(|number| {
            let retry = json!({"max_attempts": 3});
            let body = json!({"code": format!("print({number})"), "priority": priorities[number % 3], "retry": retry});
            accept(&server, &body)
        })
        .collect();
    let unwanted = accept(&server, &json!({"code": "print('never')"}));
    let execution = cancel(&server, &unwanted);
    assert_eq!((&execution["outcome"], &execution["started_at"]), (&json!("cancelled"), &Value::Null), "{execution}");
    assert_eq!(server.get("/v1/queue").1["jobs"].as_array().unwrap().len(), JOBS + holds.len());
    for id in &holds {
        assert_eq!(cancel(&server, id)["outcome"], "cancelled");
    }
    let done = || jobs.iter().filter(|id| read(&server, id)["status"] == "completed").count();
    wait_for(|| (done() >= 3).then_some(()));
    kill(&mut server);

    let Some(server) = start_on(data.path(), "serve", &env) else { return };
    for (number, id) in jobs.iter().enumerate() {
        let execution = ended(&server, id);
        let told = (&execution["status"], &execution["stdout"]);
        assert_eq!(told, (&json!("completed"), &json!(format!("{number}\n"))), "{}", brief(&execution));
    }
    emptied(&server);
    assert_eq!(read(&server, &unwanted)["stdout"], "");
    let all = listed(&server);
    let completed: BTreeSet<_> = all.iter().filter(|one| one["status"] == "completed").map(id_of).collect();
    assert_eq!(completed, jobs.iter().cloned().collect());
    // Each once, and nothing else.
    assert_eq!(all.len(), JOBS + 3, "{all:?}");
    assert_eq!(server.get("/v1/queue/dead").1["jobs"], json!([]));
}

#[test]
fn jobs_on_mariadb_end_once_whatever_happens_to_the_server() {
    let Some((_database, url)) = database("mysql") else { return };
    jobs_end_once_whatever_happens(Some(&url), None);
}

#[test]
fn jobs_on_postgres_end_once_whatever_happens_to_the_server() {
    let Some((_database, url)) = database("postgres") else { return };
    jobs_end_once_whatever_happens(Some(&url), None);
}

#[test]
fn jobs_in_a_queue_on_redis_end_once_whatever_happens_to_the_server() {
    let Some(redis) = OwnServer::start("redis") else { return };
    jobs_end_once_whatever_happens(None, Some(&redis.url));
}

/// What clients saw who did not stop asking.
#[derive(Default)]
struct Seen {
    ends: AtomicBool,
    /// Jobs that were answered 202, with what they print.
    accepted: Mutex<BTreeMap<String, usize>>,
    /// Jobs that were answered 503.
    refused: AtomicUsize,
    /// Executions without `mode: async`, all of which ended well.
    answered: AtomicUsize,
    /// Milliseconds that the slowest of those took.
    slowest: AtomicUsize,
    healthy: AtomicUsize,
}

impl Seen {
    /// Two clients with jobs, one that waits for its answers, and one that asks how the server is.
    fn begin<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, url: &'scope str) {
        for client in 0..2 {
            scope.spawn(move || {
                self.until_it_ends(|number| self.post_job(url, client + 2 * number), Duration::from_millis(40));
            });
        }
        let execute = move |number| {
            let asked = Instant::now();
            let (status, _, execution) = post(url, &json!({"code": format!("print({number})")}));
            assert_eq!((status, &execution["stdout"]), (200, &json!(format!("{number}\n"))), "{execution}");
            self.answered.fetch_add(1, Ordering::Relaxed);
            self.slowest.fetch_max(asked.elapsed().as_millis() as usize, Ordering::Relaxed);
        };
        scope.spawn(move || self.until_it_ends(execute, Duration::from_millis(100)));
        let health = move |_| {
            let asked = Instant::now();
            assert_eq!(ureq::get(format!("{url}/health")).call().unwrap().status(), 200);
            assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
            self.healthy.fetch_add(1, Ordering::Relaxed);
        };
        scope.spawn(move || self.until_it_ends(health, Duration::from_millis(100)));
    }

    fn until_it_ends(&self, mut act: impl FnMut(usize), pause: Duration) {
        // One that fails ends the others, or the test would wait for them for ever.
        let ends = Ends(&self.ends);
        for number in 0.. {
            if self.ends.load(Ordering::Relaxed) {
                break;
            }
            act(number);
            std::thread::park_timeout(pause);
        }
        std::mem::forget(ends);
    }

    fn post_job(&self, url: &str, number: usize) {
        let body = json!({"code": format!("print({number})"), "mode": "async"});
        let asked = Instant::now();
        let (status, again, answer) = post(url, &body);
        match status {
            202 => drop(self.accepted.lock().unwrap().insert(id_of(&answer), number)),
            503 => {
                assert_eq!((&answer["error"]["code"], again), (&json!("storage_unavailable"), true), "{answer}");
                // As docs/storage.md has it, and some time for a busy machine.
                assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            status => panic!("{status}: {answer}"),
        }
    }

    fn accepted(&self) -> usize {
        self.accepted.lock().unwrap().len()
    }

    /// Waits until `counts` has grown by so many.
    fn more(&self, by: usize, counts: impl Fn(&Self) -> usize) {
        let before = counts(self);
        wait_for(|| (self.ends.load(Ordering::Relaxed) || counts(self) >= before + by).then_some(()));
    }

    /// Everything that was accepted has ended well, once, and the answers of the others are on record too.
    fn all_ended(&self, server: &Server) {
        emptied(server);
        let accepted = self.accepted.lock().unwrap();
        for (id, number) in &*accepted {
            let execution = ended(server, id);
            let told = (&execution["outcome"], &execution["stdout"]);
            assert_eq!(told, (&json!("exited"), &json!(format!("{number}\n"))), "{}", brief(&execution));
            assert_eq!(read(server, id), execution);
        }
        let answered = self.answered.load(Ordering::Relaxed);
        // A job that was answered 503 as the connection broke may be on record all the same.
        let all = wait_for(|| Some(listed(server)).filter(|all| all.len() >= accepted.len() + answered));
        let ids: BTreeSet<_> = all.iter().map(id_of).collect();
        assert_eq!(ids.len(), all.len(), "some are listed twice");
        assert!(accepted.keys().all(|id| ids.contains(id)));
        assert!(all.iter().all(|one| one["status"] == "completed"), "{all:?}");
        assert_eq!(server.get("/v1/queue/dead").1["jobs"], json!([]));
        println!(
            "{} jobs accepted, {:?} refused; {answered} executions answered, the slowest after {:?} ms",
            accepted.len(),
            self.refused,
            self.slowest
        );
    }
}

/// Ends everybody's asking when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Status, whether the answer says when to come again, and body.
fn post(url: &str, body: &Value) -> (u16, bool, Value) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = agent.post(format!("{url}/v1/executions")).header("content-type", "application/json");
    let mut answer = request.send(body.to_string()).unwrap();
    let again = answer.headers().contains_key("retry-after");
    (answer.status().as_u16(), again, answer.body_mut().read_json().unwrap_or(Value::Null))
}

/// Has clients ask before, while and after `away` is away; what they saw while it was.
fn under_load(server: &Server, away: &OwnServer, meanwhile: impl FnOnce(&Seen)) -> Seen {
    let seen = Seen::default();
    std::thread::scope(|scope| {
        // Also when something below fails.
        let _ends = Ends(&seen.ends);
        seen.begin(scope, &server.url);
        seen.more(10, Seen::accepted);
        away.order("stop");
        seen.more(10, |seen| seen.healthy.load(Ordering::Relaxed));
        seen.more(5, |seen| seen.answered.load(Ordering::Relaxed));
        meanwhile(&seen);
        away.order("start");
        seen.more(10, Seen::accepted);
    });
    seen
}

#[test]
fn while_mariadb_is_away_jobs_are_refused_and_nothing_that_was_accepted_is_lost() {
    let Some((database, url)) = database("mysql") else { return };
    let data = tempfile::tempdir().unwrap();
    let mut env = settings(Some(&url), None);
    env.push(("FUMEHOOD_QUEUE__LEASE_S", "6"));
    let Some(server) = start_on(data.path(), "serve", &env) else { return };
    let seen = under_load(&server, &database, |seen| {
        seen.more(3, |seen| seen.refused.load(Ordering::Relaxed));
        let (status, answer) = server.get("/v1/queue");
        assert_eq!((status, &answer["error"]["code"]), (503, &json!("storage_unavailable")));
    });
    seen.all_ended(&server);
}

#[test]
fn while_redis_is_away_jobs_are_accepted_and_run_when_it_is_back() {
    let Some(redis) = OwnServer::start("redis") else { return };
    let data = tempfile::tempdir().unwrap();
    let mut env = settings(None, Some(&redis.url));
    env.push(("FUMEHOOD_QUEUE__LEASE_S", "6"));
    let Some(server) = start_on(data.path(), "serve", &env) else { return };
    let seen = under_load(&server, &redis, |seen| seen.more(10, Seen::accepted));
    assert_eq!(seen.refused.load(Ordering::Relaxed), 0);
    seen.all_ended(&server);
}

#[test]
fn jobs_of_a_worker_that_dies_are_run_by_the_server_or_lost_once() {
    let Some((_database, storage)) = database("mysql") else { return };
    let Some(redis) = OwnServer::start("redis") else { return };
    let data = tempfile::tempdir().unwrap();
    let with = |more: &[(&'static str, &'static str)]| {
        let mut env = settings(Some(&storage), Some(&redis.url));
        env.push(("FUMEHOOD_QUEUE__LEASE_S", "3"));
        env.extend_from_slice(more);
        env
    };
    let start = |folder: &str, role: &str, env: &[(&str, &str)]| start_on(&data.path().join(folder), role, env);
    let Some(server) = start("front", "serve", &with(&[("FUMEHOOD_ENGINE__MAX_CONCURRENT", "1")])) else { return };
    // The server's only place is taken, so that what comes is the worker's.
    let hold = accept(&server, &forever());
    wait_for(|| (read(&server, &hold)["status"] == "running").then_some(()));
    let Some(mut worker) = start("back", "worker", &with(&[("FUMEHOOD_PROCESS__UID_BASE", "800000")])) else { return };
    let code = "import time; time.sleep(4); 'ran'";
    let again = accept(&server, &json!({"code": code, "retry": {"max_attempts": 2}}));
    let once = accept(&server, &json!({"code": code}));
    wait_for(|| [&again, &once].iter().all(|id| read(&server, id)["status"] == "running").then_some(()));
    kill(&mut worker);
    cancel(&server, &hold);

    let execution = ended(&server, &once);
    let told = (&execution["status"], &execution["outcome"], &execution["fault"]);
    assert_eq!(told, (&json!("failed"), &json!("lost"), &json!("infra")), "{}", brief(&execution));
    let rerun = ended(&server, &again);
    assert_eq!((&rerun["status"], &rerun["result"]), (&json!("completed"), &json!("ran")), "{}", brief(&rerun));
    emptied(&server);
    let dead = server.get("/v1/queue/dead").1;
    let dead: Vec<_> = dead["jobs"].as_array().unwrap().iter().map(|job| job["execution_id"].clone()).collect();
    assert_eq!(dead, [json!(once)]);
    assert_eq!(listed(&server).len(), 3);
    // A worker that comes back finds nothing of it, and both ends stay.
    let Some(_worker) = start("back", "worker", &with(&[("FUMEHOOD_PROCESS__UID_BASE", "800000")])) else { return };
    assert_eq!((read(&server, &once), read(&server, &again)), (execution, rerun));

    // Redis has it among its dead letters, until somebody has it tried again.
    let letters = || {
        // Given as a URL, a password without a user is taken for one of a user without a name.
        let (password, place) = redis.url.trim_start_matches("redis://:").split_once('@').unwrap();
        let port = place.rsplit_once(':').unwrap().1.split('/').next().unwrap();
        let mut ask = Command::new("redis-cli");
        ask.env("REDISCLI_AUTH", password).args(["-p", port, "XLEN", "fumehood:dead"]);
        String::from_utf8(ask.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    wait_for(|| (letters() == "1").then_some(()));
    assert_eq!(server.post(&format!("/v1/queue/{once}/retry"), &json!({})).0, 202);
    assert_eq!(ended(&server, &once)["result"], "ran");
    assert_eq!(letters(), "0");
}
