//! One attack: run it as a customer would, then look at what it says, what the answer says, and what the host has noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout_at;

use super::canaries::Canaries;
use super::neighbour::{Neighbour, brief};
use super::program::{Preludes, Program};
use super::target::{Target, Way};

/// One that takes all it can get has it by then.
const HOLDS_BY: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The service may have so many more MiB after an attack than before it: what it keeps of several, and what its allocator has not given back.
const GROWTH_MB: u64 = 256;
/// What is only in use for a moment is given back by then.
const GIVEN_BACK_BY: Duration = Duration::from_secs(10);

/// What came of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// It got nothing.
    Held,
    /// It got something.
    Broken,
    /// It could not be tried; see `why`.
    Untried,
    /// This host lacks what it attacks or needs; see `why`.
    Inapplicable,
}

/// Memory of this process, which is the service, in MiB.
pub(super) fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    resident.unwrap_or(0_u64) / 1024
}

/// One attack and what came of it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Trial {
    /// `category/name`.
    pub(super) name: String,
    /// What it tried.
    pub(super) tries: String,
    /// Every layer that by itself stops it.
    pub(super) stopped_by: Vec<String>,
    /// Published failures of that kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) like: Vec<String>,
    /// How its interpreter came about.
    pub(super) way: Way,
    /// What came of it.
    pub(super) verdict: Verdict,
    /// What it got.
    pub(super) got: Vec<String>,
    /// Why it was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// Milliseconds it took.
    pub(super) ms: u64,
}

/// What all attacks share.
pub(super) struct Scene<'a> {
    pub(super) target: &'a Target,
    /// One for each way that is tried.
    pub(super) neighbours: &'a BTreeMap<Way, Neighbour>,
    pub(super) canaries: Mutex<Canaries>,
    /// All that attacks are told.
    pub(super) facts: Value,
    pub(super) preludes: &'a Preludes,
    /// Whose secret it is, and the secret.
    pub(super) secrets: Vec<(&'static str, String)>,
    /// Layer to state, as the engine tells it.
    pub(super) features: Map<String, Value>,
    /// Nothing reaches beyond the sandbox's own loopback.
    pub(super) isolated_network: bool,
    /// Landlock was left out, so its version is of no matter.
    pub(super) without_landlock: bool,
    /// Likewise with uids.
    pub(super) without_own_uid: bool,
    /// What is not at its end then counts as not tried.
    pub(super) deadline: Instant,
    /// Attacks under way.
    pub(super) running: Mutex<BTreeSet<String>>,
    /// Memory of the service after the last attack, in MiB.
    pub(super) memory_mb: Mutex<u64>,
}

/// What an attack got so far, and whether it came to its end.
#[derive(Debug, Default)]
pub(super) struct Catch {
    pub(super) got: Vec<String>,
    /// It says itself that there is nothing to try.
    pub(super) cannot: Option<String>,
}

impl Catch {
    /// What a program printed.
    pub(super) fn listen(&mut self, execution: &Value) {
        for stream in ["stdout", "stderr"] {
            for line in execution[stream].as_str().unwrap_or_default().lines() {
                if let Some(what) = line.strip_prefix("GOT ") {
                    self.got.push(what.to_owned());
                } else if let Some(why) = line.strip_prefix("CANNOT ") {
                    self.cannot = Some(why.to_owned());
                }
            }
        }
    }

    /// What an answer must not hold.
    pub(super) fn search(&mut self, text: &str, scene: &Scene<'_>) {
        for (whose, secret) in &scene.secrets {
            if text.contains(secret.as_str()) {
                self.got.push(format!("an answer holds the secret of {whose}"));
            }
        }
    }

    /// What an answer must say.
    pub(super) fn compare(&mut self, answer: &Value, wanted: &Map<String, Value>) {
        for (key, wanted) in wanted {
            let said = answer.pointer(&format!("/{key}")).unwrap_or(&Value::Null);
            if said != wanted {
                self.got.push(format!("the answer says {key}: {said} where it must be {wanted}"));
            }
        }
    }
}

impl Scene<'_> {
    /// Does `attack`, and judges it.
    pub(super) async fn judge(
        &self,
        trial: Trial,
        attack: impl AsyncFnOnce(&mut Catch) -> anyhow::Result<()>,
    ) -> Trial {
        let begun = Instant::now();
        let late = || "the deadline has passed (--deadline)";
        if begun >= self.deadline {
            return Trial { verdict: Verdict::Untried, why: Some(late().to_owned()), ..trial };
        }
        let lock = |name: &str, enters: bool| {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            if enters {
                running.insert(name.to_owned())
            } else {
                running.remove(name)
            };
            running.iter().cloned().collect::<Vec<_>>().join(", ")
        };
        lock(&trial.name, true);
        let mut catch = Catch::default();
        let done = timeout_at(self.deadline.into(), attack(&mut catch)).await;
        let done = done.with_context(late).flatten();
        let grown = self.growth().await;
        let beside = lock(&trial.name, false);
        let damage = self.canaries.lock().unwrap_or_else(PoisonError::into_inner).damage();
        for damage in damage.into_iter().chain(grown) {
            // Several run at once: the host sees that, not which.
            let others = if beside.is_empty() { String::new() } else { format!(" (or it was one of {beside})") };
            catch.got.push(format!("{damage}{others}"));
        }
        let (verdict, why) = match (catch.got.is_empty(), catch.cannot, done) {
            (false, ..) => (Verdict::Broken, None),
            (_, Some(why), _) => (Verdict::Inapplicable, Some(why)),
            (_, _, Err(error)) => (Verdict::Untried, Some(format!("{error:#}"))),
            (true, None, Ok(())) => (Verdict::Held, None),
        };
        Trial { verdict, got: catch.got, why, ms: begun.elapsed().as_millis() as u64, ..trial }
    }

    /// What the service has taken of memory and keeps, where that is more than it may be.
    async fn growth(&self) -> Option<String> {
        let before = *self.memory_mb.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + self.target.patience.of(GIVEN_BACK_BY);
        let mut now = resident_mb();
        while now > before + GROWTH_MB && Instant::now() < deadline {
            tokio::time::sleep(LOOK_AGAIN).await;
            now = resident_mb();
        }
        // Of those that see it at once one tells.
        let mut last = self.memory_mb.lock().unwrap_or_else(PoisonError::into_inner);
        let grown =
            (now > *last + GROWTH_MB).then(|| format!("the service's memory grew from {last} MiB to {now} MiB"));
        *last = now;
        grown
    }

    /// Runs a program and judges it.
    pub(super) async fn run(&self, program: &Program, way: Way) -> Trial {
        let trial = Trial {
            name: program.name.clone(),
            tries: program.tries.clone(),
            stopped_by: program.stopped_by.clone(),
            like: program.like.clone(),
            way,
            verdict: Verdict::Inapplicable,
            got: Vec::new(),
            why: None,
            ms: 0,
        };
        if let Some(why) = program.needs.iter().find_map(|need| self.lacks(need)) {
            return Trial { why: Some(why), ..trial };
        }
        if program.outside && !self.isolated_network {
            return Trial { why: Some("it would reach beyond this machine".to_owned()), ..trial };
        }
        self.judge(trial, async |catch| {
            let last = if program.session {
                self.session(program, way, catch).await?
            } else if program.holds {
                self.hold(program, way, catch).await?
            } else {
                self.target.execute(self.body(program, &program.steps[0], true), way).await?
            };
            self.look(program, &last, catch)
        })
        .await
    }

    /// Why what a program needs is not there.
    pub(super) fn lacks(&self, need: &str) -> Option<String> {
        let version =
            |state: &str| state.strip_prefix("abi ").and_then(|version| version.parse::<u32>().ok()).unwrap_or(0);
        match need.split_once(' ') {
            Some(("landlock", _)) if self.without_landlock => None,
            Some(("landlock", least)) => {
                let state = self.features.get("landlock").and_then(Value::as_str).unwrap_or_default();
                let enough = version(state) >= least.parse().unwrap_or(u32::MAX);
                (!enough).then(|| format!("this kernel's Landlock is {state}, version {least} is needed"))
            }
            None if need == "own_uid" && !self.without_own_uid => {
                let shared =
                    self.features.get("host_uid").and_then(Value::as_str).is_some_and(|uid| uid.contains("shared"));
                shared.then(|| {
                    "sandboxes of an ordinary user have one uid, and share what the kernel counts for it".to_owned()
                })
            }
            None if need == "own_uid" => None,
            Some(("fact", name)) => {
                self.facts.get(name).is_none_or(Value::is_null).then(|| format!("this host offers no {name} to attack"))
            }
            _ => (need != std::env::consts::ARCH).then(|| format!("this is no {need}")),
        }
    }

    fn body(&self, program: &Program, step: &str, last: bool) -> Value {
        let end = match (last, program.language) {
            (false, _) => "",
            (_, "python") => "\ndone()\n",
            _ => "\necho DONE\n",
        };
        let code = self.preludes.with(program.language, &self.facts) + step + end;
        let mut body = json!({"code": code, "language": program.language});
        for (key, value) in &program.with {
            body[key] = value.clone();
        }
        body["timeout_ms"] = self.target.patience.timeout_ms(program.with.get("timeout_ms"));
        body
    }

    async fn session(&self, program: &Program, way: Way, catch: &mut Catch) -> anyhow::Result<Value> {
        // What is asked for is the session's; the time is each step's.
        let mut settings = Value::Object(program.with.clone());
        let timeout = settings.as_object_mut().and_then(|settings| settings.remove("timeout_ms"));
        let session = self.target.session(settings, way).await?;
        let mut last = Value::Null;
        for (index, step) in program.steps.iter().enumerate() {
            let end = index + 1 == program.steps.len();
            let mut body = self.body(program, step, end);
            for key in program.with.keys() {
                body.as_object_mut().map(|body| body.remove(key));
            }
            body["timeout_ms"] = self.target.patience.timeout_ms(timeout.as_ref());
            last = self.target.execute_in(&session, &body).await?;
            if !end {
                catch.listen(&last);
                catch.search(&last.to_string(), self);
                ensure!(last["fault"] != "infra", "step {}: {}", index + 1, brief(&last));
            }
        }
        let closed = self.target.call("DELETE", &session, None).await?;
        ensure!(closed.status < 300, "its session cannot be closed: {}", closed.text());
        Ok(last)
    }

    /// Lets a program take all it can get, sees how its neighbour does, and ends it.
    async fn hold(&self, program: &Program, way: Way, catch: &mut Catch) -> anyhow::Result<Value> {
        let mut body = self.body(program, &program.steps[0], false);
        body["mode"] = "async".into();
        let begun = self.target.execute(body, way).await?;
        let path = format!("/v1/executions/{}", begun["id"].as_str().context("an execution without an id")?);
        let deadline = Instant::now() + self.target.patience.of(HOLDS_BY);
        loop {
            let now = self.target.call("GET", &format!("{path}/output?stream=stdout"), None).await?.text();
            let ended = self.target.call("GET", &path, None).await?.json()["finished_at"].is_string();
            if now.contains("HOLD") || ended {
                break;
            }
            ensure!(Instant::now() < deadline, "it took for ever to take all it can get");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        // Whoever comes next must find room too.
        match self.target.execute(json!({"code": "1"}), way).await {
            Ok(next) if next["status"] == "completed" => {}
            Ok(next) => catch.got.push(format!("no other sandbox can be made: {}", brief(&next))),
            Err(error) => catch.got.push(format!("no other sandbox can be made: {error:#}")),
        }
        // What is counted together is counted for those that came about in the same way.
        if let Some(neighbour) = self.neighbours.get(&way) {
            catch.got.extend(neighbour.complaints(self.target).await);
        }
        self.target.call("POST", &format!("{path}/cancel"), None).await?;
        loop {
            let execution = self.target.call("GET", &path, None).await?.json();
            if execution["finished_at"].is_string() {
                return Ok(execution);
            }
            ensure!(Instant::now() < deadline, "it cannot be ended: {}", brief(&execution));
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Looks at how a program ended.
    fn look(&self, program: &Program, execution: &Value, catch: &mut Catch) -> anyhow::Result<()> {
        catch.listen(execution);
        catch.search(&execution.to_string(), self);
        catch.compare(execution, &program.answer);
        let outcome = execution["outcome"].as_str().unwrap_or("none");
        let done = execution["stdout"].as_str().is_some_and(|text| text.contains("DONE\n"));
        let held = program.holds
            && outcome == "cancelled"
            && execution["stdout"].as_str().is_some_and(|text| text.contains("HOLD"));
        let ended = program.ends.iter().any(|end| end == outcome)
            && (outcome != "exited" || !program.answer.is_empty() || (done && execution["exit_code"] == 0));
        ensure!(ended || held, "it ended otherwise than it should: {}", brief(execution));
        Ok(())
    }
}
