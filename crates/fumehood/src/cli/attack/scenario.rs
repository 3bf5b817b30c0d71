//! Attacks that are requests: files of `tests/attack/requests`, each a few requests and what their answers must say.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::neighbour::brief;
use super::program::{check_layers, files};
use super::target::Way;
use super::trial::{Catch, Scene, Trial, Verdict};

/// Requests in a row.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// `category/name`; from the file's path.
    #[serde(skip)]
    pub(super) name: String,
    /// What it tries, one sentence.
    pub(super) tries: String,
    /// Every layer that by itself stops it.
    pub(super) stopped_by: Vec<String>,
    /// Published failures of that kind.
    #[serde(default)]
    pub(super) like: Vec<String>,
    /// It has a session of its own, opened with these fields.
    session: Option<Map<String, Value>>,
    steps: Vec<Value>,
}

/// One request, after what stands in braces is put in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Python to run, in the session if there is one; what it prints is heard as that of a program.
    run: Option<String>,
    /// Further fields of that execution.
    #[serde(default)]
    with: Map<String, Value>,
    /// `METHOD /path` to ask for.
    ask: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Whether the key is sent.
    #[serde(default = "yes")]
    key: bool,
    /// Body: one of these.
    json: Option<Value>,
    text: Option<String>,
    base64: Option<String>,
    /// The body of an answer that was kept.
    kept: Option<String>,
    /// Statuses that are right: numbers, or classes such as `4xx`.
    #[serde(default)]
    status: Vec<Value>,
    /// What the body must not hold.
    #[serde(default)]
    not: Vec<String>,
    /// What the body must say, by JSON pointer.
    #[serde(default)]
    says: Map<String, Value>,
    /// Name of a header, and what must not be in it; nothing: it must not be there at all.
    #[serde(default)]
    not_header: BTreeMap<String, String>,
    /// Keeps the body under this name.
    keep: Option<String>,
    /// Saves parts of the answer, by JSON pointer, to be put in later.
    #[serde(default)]
    save: BTreeMap<String, String>,
}

fn yes() -> bool {
    true
}

/// All scenarios.
///
/// # Errors
/// When one is not well-formed.
pub(super) fn scenarios(folder: Option<&Path>) -> anyhow::Result<Vec<Scenario>> {
    let parse = |file: &super::program::SuiteFile| {
        let mut scenario: Scenario = serde_json::from_str(&file.text)?;
        ensure!(file.extension == "json", "is no JSON file");
        check_layers(&scenario.stopped_by)?;
        ensure!(!scenario.stopped_by.is_empty() && !scenario.tries.is_empty(), "says too little about itself");
        for step in &scenario.steps {
            // Values that come later are texts.
            Step::deserialize(once(step)).with_context(|| step.to_string())?;
        }
        scenario.name.clone_from(&file.name);
        anyhow::Ok(scenario)
    };
    files("requests", folder)?.iter().map(|file| parse(file).with_context(|| file.name.clone())).collect()
}

/// A step without its list of repetitions.
fn once(step: &Value) -> Value {
    let mut step = step.clone();
    if let Some(fields) = step.as_object_mut() {
        fields.remove("each");
    }
    step
}

/// What can be put into steps: name to text.
type Known = BTreeMap<String, String>;

/// Writes out `{x*3}` as `xxx`: what is too long to stand in a file.
fn repeat(text: &str) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find('{') {
        let (before, from) = rest.split_at(begin);
        written += before;
        let repetition = from.split_once('}').and_then(|(inside, after)| {
            let (what, times) = inside[1..].split_once('*')?;
            // One that begins inside is its own.
            if what.contains('{') {
                return None;
            }
            Some((what.repeat(times.parse().ok()?), after))
        });
        match repetition {
            Some((repeated, after)) => {
                written += &repeated;
                rest = after;
            }
            None => {
                written.push('{');
                rest = &from[1..];
            }
        }
    }
    written + rest
}

/// Puts in what stands in braces, wherever it stands.
fn put_in(step: &Value, known: &Known) -> Value {
    match step {
        Value::String(text) => {
            let mut text = text.clone();
            for (name, value) in known {
                text = text.replace(&format!("{{{name}}}"), value);
            }
            repeat(&text).into()
        }
        Value::Array(items) => items.iter().map(|item| put_in(item, known)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), put_in(value, known))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

impl Scene<'_> {
    /// Plays a scenario and judges it.
    pub(super) async fn play(&self, scenario: &Scenario, way: Way) -> Trial {
        let trial = Trial {
            name: scenario.name.clone(),
            tries: scenario.tries.clone(),
            stopped_by: scenario.stopped_by.clone(),
            like: scenario.like.clone(),
            way,
            verdict: Verdict::Untried,
            got: Vec::new(),
            why: None,
            ms: 0,
        };
        self.judge(trial, async |catch| {
            let facts = self.facts.as_object().into_iter().flatten();
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let mut known: Known = facts.map(|(name, value)| (name.clone(), text(value))).collect();
            known.insert("neighbour".to_owned(), text(&self.facts["neighbour"]["session"]));
            let session = match &scenario.session {
                Some(fields) => Some(self.target.session(Value::Object(fields.clone()), way).await?),
                None => None,
            };
            if let Some(session) = &session {
                known.insert("session".to_owned(), session.rsplit('/').next().unwrap_or_default().to_owned());
            }
            let mut kept = BTreeMap::new();
            for (number, step) in scenario.steps.iter().enumerate() {
                let each = step["each"].as_array().cloned().unwrap_or_else(|| vec![Value::Null]);
                for each in each {
                    // A number or an object stands alone, as a whole value.
                    let mut step = once(step);
                    replace_whole(&mut step, &each);
                    known.insert("each".to_owned(), text(&each));
                    let step: Step = serde_json::from_value(put_in(&step, &known))?;
                    self.take(step, session.as_deref(), way, &mut known, &mut kept, catch)
                        .await
                        .with_context(|| format!("step {} {each}", number + 1))?;
                }
            }
            if let Some(session) = &session {
                self.target.call("DELETE", session, None).await?;
            }
            Ok(())
        })
        .await
    }

    async fn take(
        &self,
        step: Step,
        session: Option<&str>,
        way: Way,
        known: &mut Known,
        kept: &mut BTreeMap<String, Bytes>,
        catch: &mut Catch,
    ) -> anyhow::Result<()> {
        let (status, body, headers) = match (&step.run, &step.ask) {
            (Some(code), None) => {
                let mut body = json!({"code": self.preludes.with("python", &self.facts) + code});
                for (key, value) in &step.with {
                    body[key] = value.clone();
                }
                body["timeout_ms"] = self.target.patience.timeout_ms(step.with.get("timeout_ms"));
                let execution = match session {
                    Some(session) => self.target.execute_in(session, &body).await?,
                    None => self.target.execute(body, way).await?,
                };
                catch.listen(&execution);
                ensure!(execution["fault"] != "infra", "{}", brief(&execution));
                if step.says.is_empty() {
                    ensure!(execution["outcome"] == "exited" && execution["exit_code"] == 0, "{}", brief(&execution));
                }
                (200, Bytes::from(execution.to_string()), None)
            }
            (None, Some(ask)) => {
                let (method, path) = ask.split_once(' ').context("ask: must be METHOD /path")?;
                let bearer = format!("Bearer {}", self.target.key());
                let mut headers: Vec<(&str, &str)> =
                    step.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
                if step.key && !step.headers.contains_key("authorization") {
                    headers.push(("authorization", &bearer));
                }
                let body = match (&step.json, &step.text, &step.base64, &step.kept) {
                    (Some(json), None, None, None) => {
                        if !step.headers.contains_key("content-type") {
                            headers.push(("content-type", "application/json"));
                        }
                        Bytes::from(json.to_string())
                    }
                    (None, Some(text), None, None) => Bytes::from(text.clone()),
                    (None, None, Some(base64), None) => Bytes::from(BASE64.decode(base64)?),
                    (None, None, None, Some(name)) => {
                        kept.get(name).context("nothing was kept under that name")?.clone()
                    }
                    (None, None, None, None) => Bytes::new(),
                    _ => bail!("a step has one body"),
                };
                let answer = self.target.send(method, path, &headers, body).await?;
                (answer.status, answer.body, Some(answer.headers))
            }
            _ => bail!("a step either runs or asks"),
        };
        let text = String::from_utf8_lossy(&body).into_owned();
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        let asked = step.ask.as_deref().unwrap_or("the program");
        // A failure of the service is never what was wanted, unless it is one by name (507).
        let right = step.status.iter().any(|right| is_status(right, status)) || step.status.is_empty() && status < 500;
        if !right {
            let begin: String = text.chars().take(300).collect();
            catch.got.push(format!("{asked} was answered {status}: {begin}"));
        }
        for unwanted in step.not.iter().filter(|unwanted| text.contains(unwanted.as_str())) {
            catch.got.push(format!("the answer to {asked} holds {unwanted:?}"));
        }
        for (name, unwanted) in &step.not_header {
            let value = headers.as_ref().and_then(|headers| headers.get(name)?.to_str().ok());
            if let Some(value) = value.filter(|value| value.contains(unwanted.as_str())) {
                catch.got.push(format!("the answer to {asked} has the header {name}: {value}"));
            }
        }
        catch.search(&text, self);
        catch.compare(&json, &step.says);
        for (name, pointer) in &step.save {
            let value = json.pointer(pointer).with_context(|| format!("no {pointer} in {text:.300}"))?;
            known.insert(name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        if let Some(name) = step.keep {
            kept.insert(name, body);
        }
        Ok(())
    }
}

/// Puts `each` where `{each}` is a whole value.
fn replace_whole(step: &mut Value, each: &Value) {
    match step {
        Value::String(text) if text == "{each}" && !each.is_null() => *step = each.clone(),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_whole(item, each)),
        Value::Object(fields) => fields.values_mut().for_each(|value| replace_whole(value, each)),
        _ => {}
    }
}

fn is_status(right: &Value, status: u16) -> bool {
    match right {
        Value::Number(number) => number.as_u64() == Some(status.into()),
        Value::String(class) => class.strip_suffix("xx").and_then(|class| class.parse().ok()) == Some(status / 100),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_braces_is_put_in_and_numbers_stay_numbers() {
        let known = Known::from([("session".to_owned(), "ses_1".to_owned()), ("each".to_owned(), "-1".to_owned())]);
        let mut step = json!({"ask": "GET /v1/{session}/{each}", "json": {"limit": "{each}", "other": "{unknown}"}});
        replace_whole(&mut step, &json!(-1));
        let step = put_in(&step, &known);
        assert_eq!(step, json!({"ask": "GET /v1/ses_1/-1", "json": {"limit": -1, "other": "{unknown}"}}));
    }

    #[test]
    fn what_is_too_long_for_a_file_is_written_out() {
        assert_eq!(repeat("a{b*3}c{d}{e*0}{f*x}{[*2}"), "abbbc{d}{f*x}[[");
        assert_eq!(repeat("{ {x*2}"), "{ xx");
    }

    #[test]
    fn a_status_is_a_number_or_a_class() {
        assert!(is_status(&json!(404), 404) && is_status(&json!("4xx"), 404));
        assert!(!is_status(&json!(404), 400) && !is_status(&json!("4xx"), 200) && !is_status(&json!("x"), 200));
    }
}
