//! Jobs: executions that are accepted now, run later, and end exactly once whatever happens to the server.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::limits::jailer;
use crate::server::{BINARY, Server, brief, images_dir, server, wait_for};

/// Rounds of sudden death under load.
const DEATHS: u32 = 20;
/// Two places, no pool: a start costs little.
pub(crate) const SMALL: [(&str, &str); 2] =
    [("FUMEHOOD_ENGINE__MAX_CONCURRENT", "2"), ("FUMEHOOD_POOL__MAX_READY", "0")];

/// A process of this binary on a data folder that outlives it.
pub(crate) fn start_on(data: &Path, role: &str, env: &[(&str, &str)]) -> Option<Server> {
    let mut command = Command::new(BINARY);
    command.args([role, "--listen", "127.0.0.1:0", "--data-dir"]).arg(data).arg("--images-dir").arg(images_dir());
    command.envs(env.iter().copied());
    Server::spawn(command, tempfile::tempdir().unwrap())
}

pub(crate) fn kill(server: &mut Server) {
    server.process.kill().unwrap();
    server.process.wait().unwrap();
}

pub(crate) fn accept(server: &Server, body: &Value) -> String {
    let mut body = body.clone();
    body["mode"] = "async".into();
    let (status, execution) = server.post("/v1/executions", &body);
    assert_eq!((status, &execution["status"]), (202, &json!("queued")), "{execution}");
    execution["id"].as_str().unwrap().to_owned()
}

pub(crate) fn read(server: &Server, id: &str) -> Value {
    let (status, execution) = server.get(&format!("/v1/executions/{id}"));
    assert_eq!(status, 200, "{execution}");
    execution
}

pub(crate) fn ended(server: &Server, id: &str) -> Value {
    wait_for(|| Some(read(server, id)).filter(|execution| execution["finished_at"] != Value::Null))
}

pub(crate) fn with_key(server: &Server, key: &str, body: &Value) -> (u16, Value) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = agent.post(format!("{}/v1/executions", server.url)).header("idempotency-key", key);
    let mut answer = request.header("content-type", "application/json").send(body.to_string()).unwrap();
    (answer.status().as_u16(), answer.body_mut().read_json().unwrap_or(Value::Null))
}

#[test]
fn a_job_and_what_became_of_others_survive_a_sudden_end() {
    let data = tempfile::tempdir().unwrap();
    let Some(mut server) = start_on(data.path(), "serve", &SMALL) else { return };
    let written = "open('a b.csv', 'w').write('1,2'); print('x' * 3000); 7";
    let done = server.succeed(written, json!({"collect": ["*.csv"], "output": {"max_chars": 100}}));
    let done = done["id"].as_str().unwrap();
    // Written behind the answer.
    wait_for(|| database_has(data.path(), done).then_some(()));
    let lost = accept(&server, &json!({"code": "import time; print('up', flush=True); time.sleep(600)"}));
    wait_for(|| read(&server, &lost)["stdout"].as_str().is_some_and(|text| text.contains("up")).then_some(()));
    let again = "import os, time; print('up', flush=True); time.sleep(2); 'ran'";
    let again = accept(&server, &json!({"code": again, "retry": {"max_attempts": 3}}));
    let waits: Vec<_> = (0..3).map(|number| accept(&server, &json!({"code": number.to_string()}))).collect();
    kill(&mut server);
    let died = Instant::now();

    let Some(server) = start_on(data.path(), "serve", &SMALL) else { return };
    let execution = ended(&server, &lost);
    assert_eq!(
        (&execution["outcome"], &execution["status"], &execution["fault"]),
        (&json!("lost"), &json!("failed"), &json!("infra")),
        "{}",
        brief(&execution)
    );
    for (number, id) in waits.iter().enumerate() {
        let execution = ended(&server, id);
        assert_eq!((&execution["outcome"], &execution["result"]), (&json!("exited"), &json!(number)));
    }
    assert_eq!(ended(&server, &again)["result"], "ran");
    // Long before the dead server's lease of 30 s runs out.
    assert!(died.elapsed() < Duration::from_secs(20), "{:?}", died.elapsed());

    let kept = read(&server, done);
    assert_eq!((&kept["status"], &kept["result"]), (&json!("completed"), &json!(7)));
    let page = server.get(&format!("/v1/executions/{done}/output?offset=2990&limit=5")).1;
    assert_eq!((&page["text"], &page["total"]), (&json!("xxxxx"), &json!(3001)));
    let file = server.request("GET", &format!("/v1/executions/{done}/artifacts/a%20b.csv"), None);
    assert_eq!(file, (200, b"1,2".to_vec()));
    let events = format!("{}/v1/executions/{done}/events", server.url);
    let events = ureq::get(events).header("accept", "text/event-stream").call().unwrap().body_mut().read_to_string();
    let events = events.unwrap();
    assert_eq!((events.matches("event: ").count(), events.matches("event: result").count()), (1, 1), "{events}");
    let all = server.get("/v1/executions?limit=100").1;
    let mut ids: Vec<_> = all["executions"].as_array().unwrap().iter().map(|e| e["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 6, "{ids:?}");
    assert!(ids.is_sorted_by(|a, b| a > b), "{ids:?}");
    ids.dedup();
    assert_eq!(ids.len(), 6);
    assert_eq!(server.request("DELETE", &format!("/v1/executions/{done}"), None).0, 204);
    assert_eq!(server.get(&format!("/v1/executions/{done}")).0, 404);
    assert_eq!(server.request("GET", &format!("/v1/executions/{done}/artifacts/a%20b.csv"), None).0, 404);
    assert!(!data.path().join("artifacts").join(done).exists());
}

#[test]
fn what_is_long_is_whole_on_record_and_gone_when_it_is_removed() {
    let (data, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let blobs = shared.path().to_str().unwrap();
    let env = [SMALL[0], SMALL[1], ("FUMEHOOD_STORAGE__BLOBS", blobs)];
    let Some(mut server) = start_on(data.path(), "serve", &env) else { return };
    let code = "open('a.bin', 'wb').write(bytes(1000)); print('x' * 3_000_000)";
    let body = json!({"code": code, "collect": ["*.bin"], "limits": {"output_kb": 4096}});
    let job = accept(&server, &body);
    let execution = ended(&server, &job);
    assert_eq!(execution["outcome"], "exited", "{}", brief(&execution));
    // Both the record and the file, by the time that the end is seen.
    assert_eq!(files_below(shared.path()), 2);
    kill(&mut server);

    // Another server of the same database and store finds all of it; here the same one without its own copy.
    std::fs::remove_dir_all(data.path().join("artifacts")).unwrap();
    let Some(server) = start_on(data.path(), "serve", &env) else { return };
    let kept = read(&server, &job);
    assert_eq!(kept["stdout"].as_str().map(str::len), Some(3_000_001));
    assert_eq!(kept["warnings"], json!([]));
    let file = server.request("GET", &format!("/v1/executions/{job}/artifacts/a.bin"), None);
    assert_eq!(file, (200, vec![0; 1000]));
    let listed = server.get("/v1/executions").1;
    let listed = &listed["executions"][0];
    assert_eq!((&listed["id"], &listed["stdout"]), (&json!(job), &json!("")));
    assert_eq!(listed["warnings"][0]["code"], "listed_short", "{}", brief(listed));
    assert_eq!(server.request("DELETE", &format!("/v1/executions/{job}"), None).0, 204);
    assert_eq!(files_below(shared.path()), 0);
}

fn files_below(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}

/// Whether the files of the database hold an id.
fn database_has(data: &Path, id: &str) -> bool {
    let Ok(files) = std::fs::read_dir(data) else { return false };
    files.filter_map(Result::ok).any(|file| {
        file.file_name().to_string_lossy().starts_with("fumehood.db")
            && std::fs::read(file.path())
                .is_ok_and(|bytes| bytes.windows(id.len()).any(|window| window == id.as_bytes()))
    })
}

#[test]
fn killed_at_any_moment_every_accepted_job_ends_once_and_nothing_is_left() {
    let data = tempfile::tempdir().unwrap();
    let Some(mut server) = start_on(data.path(), "serve", &SMALL) else { return };
    let mut accepted: BTreeMap<String, u32> = BTreeMap::new();
    let mut number = 0;
    let begun = Instant::now();
    for round in 0..DEATHS {
        // Not the same moment twice: from before anything ran to when much has.
        let moment = Duration::from_millis(u64::from(round * 37 % 23) * 12);
        let until = Instant::now() + moment;
        for _ in 0..4 {
            number += 1;
            let retry = if number % 2 == 0 { 3 } else { 1 };
            let body = json!({"code": format!("print({number}); {number}"), "retry": {"max_attempts": retry}});
            accepted.insert(accept(&server, &body), number);
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        let processes = jailer(&server);
        kill(&mut server);
        for pid in processes {
            wait_for(|| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
                stat.is_none_or(|stat| stat.contains(") Z ")).then_some(())
            });
        }
        let Some(next) = start_on(data.path(), "serve", &SMALL) else { return };
        server = next;
    }
    let mut outcomes: BTreeMap<String, u32> = BTreeMap::new();
    for (id, number) in &accepted {
        let execution = ended(&server, id);
        let outcome = execution["outcome"].as_str().unwrap().to_owned();
        match &*outcome {
            "exited" => assert_eq!(execution["result"], *number, "{}", brief(&execution)),
            "lost" => assert_eq!(execution["fault"], "infra"),
            other => panic!("{other}: {}", brief(&execution)),
        }
        *outcomes.entry(outcome).or_default() += 1;
        // It stays so.
        assert_eq!(read(&server, id), execution);
    }
    println!("{outcomes:?} after {DEATHS} deaths in {:?}", begun.elapsed());
    let jobs = server.get("/v1/queue").1;
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(0), "{jobs}");
    let lost = outcomes.get("lost").copied().unwrap_or_default();
    let dead = server.get("/v1/queue/dead?limit=1000").1;
    assert_eq!(dead["jobs"].as_array().map(Vec::len), Some(lost as usize));
}

#[test]
fn the_same_key_runs_once_also_at_the_same_time_and_after_a_sudden_end() {
    let data = tempfile::tempdir().unwrap();
    let Some(mut server) = start_on(data.path(), "serve", &SMALL) else { return };
    let body = json!({"code": "import random; random.random()"});
    let answers: Vec<_> = std::thread::scope(|scope| {
        let send = || with_key(&server, "k", &body);
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(send)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    let job = json!({"code": "import random; random.random()", "mode": "async"});
    let (status, accepted) = with_key(&server, "j", &job);
    assert_eq!(status, 202);
    kill(&mut server);
    let Some(server) = start_on(data.path(), "serve", &SMALL) else { return };
    assert_eq!(with_key(&server, "k", &body), answers[0]);
    let (status, again) = with_key(&server, "j", &job);
    assert_eq!((status, &again["id"]), (202, &accepted["id"]));
    ended(&server, again["id"].as_str().unwrap());
    let (status, refused) = with_key(&server, "k", &json!({"code": "2"}));
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("conflict")));
    assert_eq!(server.get("/v1/executions").1["executions"].as_array().unwrap().len(), 2);
}

#[test]
fn a_job_that_waits_can_be_cancelled_and_urgent_ones_go_first() {
    let one = [("FUMEHOOD_ENGINE__MAX_CONCURRENT", "1"), ("FUMEHOOD_POOL__MAX_READY", "0")];
    let server = server!(&[], &one);
    let hold = accept(&server, &json!({"code": "import time; print('up', flush=True); time.sleep(600)"}));
    wait_for(|| (read(&server, &hold)["status"] == "running").then_some(()));
    let time = "import time; time.time()";
    let low = accept(&server, &json!({"code": time, "priority": "low"}));
    let normal = accept(&server, &json!({"code": time}));
    let high = accept(&server, &json!({"code": time, "priority": "high"}));
    let unwanted = accept(&server, &json!({"code": time}));
    let (status, execution) = server.post(&format!("/v1/executions/{unwanted}/cancel"), &json!({}));
    assert_eq!((status, &execution["outcome"]), (200, &json!("cancelled")), "{execution}");
    assert_eq!(execution["started_at"], Value::Null);
    assert_eq!(server.post(&format!("/v1/executions/{hold}/cancel"), &json!({})).1["outcome"], "cancelled");
    let times = [&high, &normal, &low].map(|id| ended(&server, id)["result"].as_f64().unwrap());
    assert!(times.is_sorted(), "{times:?}");
    for (field, value) in [("priority", json!("high")), ("retry", json!({})), ("callback_url", json!("http://a/"))] {
        let (status, refused) = server.post("/v1/executions", &json!({"code": "1", field: value}));
        assert_eq!((status, &refused["error"]["field"]), (400, &json!(field)));
    }
}

#[test]
fn more_jobs_than_may_wait_are_refused_with_when_to_come_again() {
    let env = [
        ("FUMEHOOD_QUEUE__MAX_WAITING", "2"),
        ("FUMEHOOD_ENGINE__MAX_CONCURRENT", "1"),
        ("FUMEHOOD_POOL__MAX_READY", "0"),
    ];
    let server = server!(&[], &env);
    let hold = json!({"code": "import time; time.sleep(600)", "mode": "async"});
    let refused = wait_for(|| Some(server.post("/v1/executions", &hold)).filter(|(status, _)| *status != 202));
    assert_eq!((refused.0, &refused.1["error"]["code"]), (429, &json!("too_many_requests")), "{}", refused.1);
    let shown = server.get("/v1/queue").1;
    assert!(shown["jobs"].as_array().unwrap().len() >= 2, "{shown}");
}

#[test]
fn a_job_that_has_not_begun_waits_for_the_next_server() {
    let data = tempfile::tempdir().unwrap();
    let env = [
        ("FUMEHOOD_ENGINE__MAX_CONCURRENT", "1"),
        ("FUMEHOOD_POOL__MAX_READY", "0"),
        ("FUMEHOOD_SERVER__SHUTDOWN_GRACE_S", "1"),
    ];
    let Some(mut server) = start_on(data.path(), "serve", &env) else { return };
    let runs = accept(&server, &json!({"code": "import time; print('up', flush=True); time.sleep(600)"}));
    wait_for(|| read(&server, &runs)["stdout"].as_str().is_some_and(|text| text.contains("up")).then_some(()));
    let waits: Vec<_> = (0..3).map(|number| accept(&server, &json!({"code": number.to_string()}))).collect();
    assert!(server.end(Signal::TERM).success());
    let Some(server) = start_on(data.path(), "serve", &env) else { return };
    for (number, id) in waits.iter().enumerate() {
        assert_eq!(ended(&server, id)["result"], number);
    }
    assert_eq!(ended(&server, &runs)["outcome"], "lost");
}

/// Takes one POST; its headers in lower case and its body.
fn receive(listener: &TcpListener, status: &str) -> (BTreeMap<String, String>, String) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let pairs = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let headers: BTreeMap<_, _> = pairs.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        if body.len() >= headers["content-length"].parse::<usize>().unwrap() {
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nlocation: http://127.0.0.1:1/\r\n\r\n").unwrap();
            return (headers, body.to_owned());
        }
    }
}

#[test]
fn an_end_is_told_with_a_signature_and_again_until_it_is_taken() {
    let secret = ("FUMEHOOD_WEBHOOKS__SECRET", "hush");
    let server = server!(&[], &[SMALL[0], SMALL[1], secret, ("FUMEHOOD_WEBHOOKS__ALLOW_PRIVATE", "true")]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let id = accept(&server, &json!({"code": "6*7", "callback_url": url}));
    // A redirect is no success, and not followed.
    let (first, _) = receive(&listener, "302 Found");
    let (second, body) = receive(&listener, "204 No Content");
    assert_eq!(first["x-fumehood-delivery"], second["x-fumehood-delivery"]);
    let (time, mac) = second["x-fumehood-signature"].split_once(",v1=").unwrap();
    let mut expected = Hmac::<Sha256>::new_from_slice(b"hush").unwrap();
    expected.update(format!("{}.{body}", time.strip_prefix("t=").unwrap()).as_bytes());
    let expected: String = expected.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(mac, expected);
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&told["id"], &told["result"]), (&json!(id), &json!(42)));
    assert_eq!(told, read(&server, &id));
}

#[test]
fn an_end_is_not_told_to_an_address_inside_unless_that_is_allowed() {
    let server = server!(&[], &SMALL);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "127.1"] {
        accept(&server, &json!({"code": "1", "callback_url": format!("http://{host}:{port}/")}));
    }
    wait_for(|| (server.log().matches("webhooks.allow_private would allow it").count() >= 4).then_some(()));
    assert!(listener.accept().is_err(), "somebody connected");
}

#[test]
fn a_worker_takes_jobs_of_the_same_database() {
    let data = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/shared.db?mode=rwc", data.path().display());
    let shared = ("FUMEHOOD_STORAGE__URL", &*url);
    // The server's only place is taken.
    let (front, back) = (data.path().join("front"), data.path().join("back"));
    let one = [shared, ("FUMEHOOD_ENGINE__MAX_CONCURRENT", "1"), SMALL[1], ("FUMEHOOD_QUEUE__LEASE_S", "3")];
    let Some(server) = start_on(&front, "serve", &one) else { return };
    let hold = accept(&server, &json!({"code": "import time; print('up', flush=True); time.sleep(600)"}));
    wait_for(|| (read(&server, &hold)["status"] == "running").then_some(()));
    let here = accept(&server, &json!({"code": "'ran'"}));
    let more = [shared, SMALL[0], SMALL[1], ("FUMEHOOD_QUEUE__LEASE_S", "3"), ("FUMEHOOD_PROCESS__UID_BASE", "800000")];
    let Some(worker) = start_on(&back, "worker", &more) else { return };
    assert_eq!(worker.get("/health").0, 200);
    assert_eq!(worker.post("/v1/executions", &json!({"code": "1"})).0, 404);
    let there = accept(&server, &json!({"code": "import time; print('up', flush=True); time.sleep(600)"}));
    assert_eq!(ended(&server, &here)["result"], "ran");
    wait_for(|| (read(&server, &there)["status"] == "running").then_some(()));
    // Seen at the worker's next renewal.
    server.post(&format!("/v1/executions/{there}/cancel"), &json!({}));
    assert_eq!(ended(&server, &there)["outcome"], "cancelled");
    server.post(&format!("/v1/executions/{hold}/cancel"), &json!({}));
}

#[test]
fn the_command_line_shows_jobs_and_tries_dead_ones_again() {
    let data = tempfile::tempdir().unwrap();
    let Some(mut server) = start_on(data.path(), "serve", &SMALL) else { return };
    // Ends by itself the second time only.
    let id = accept(&server, &json!({"code": "import time; print('up', flush=True); time.sleep(3); 5"}));
    wait_for(|| read(&server, &id)["stdout"].as_str().is_some_and(|text| text.contains("up")).then_some(()));
    kill(&mut server);
    let Some(server) = start_on(data.path(), "serve", &SMALL) else { return };
    assert_eq!(ended(&server, &id)["outcome"], "lost");
    let run = |arguments: &[&str]| {
        let output =
            Command::new(BINARY).arg("queue").args(arguments).args(["--server", &server.url]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&["ls"]), "no jobs\n");
    assert!(run(&["dead"]).contains(&id));
    assert_eq!(run(&["retry", &id]), format!("{id} waiting\n"));
    assert!(run(&["ls", "--json"]).contains(&id));
    assert_eq!(ended(&server, &id)["result"], 5);
    assert_eq!(run(&["dead"]), "no jobs\n");
}
