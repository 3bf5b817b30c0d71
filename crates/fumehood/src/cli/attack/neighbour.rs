//! A sandbox that lives beside all attacks: it has secrets and things that can be broken, does some work, and says whether all is as it was.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::target::{Target, Way};

/// What it sets up, and how it looks whether all is well: Python, in `tests/attack/neighbour.py`.
const CODE: &str = include_str!("../../../../../tests/attack/neighbour.py");

/// It works as ever if it has looked at all of its things by then.
const ANSWERS_BY: Duration = Duration::from_secs(15);

/// A session of an innocent customer.
pub(super) struct Neighbour {
    session: String,
    /// What attacks are told of it, and what it must be able to do.
    pub(super) facts: Value,
}

impl Neighbour {
    /// Moves in.
    ///
    /// # Errors
    /// When it cannot.
    pub(super) async fn move_in(target: &Target, way: Way, secret: &str) -> anyhow::Result<Self> {
        let session =
            target.session(json!({"metadata": {"role": "neighbour"}, "env": {"NEIGHBOUR": secret}}), way).await?;
        let begun = target.execute_in(&session, &json!({"code": CODE})).await?;
        ensure!(begun["status"] == "completed", "the neighbour could not move in: {}", brief(&begun));
        let mut facts = begun["result"].clone();
        facts["session"] = session.rsplit('/').next().context("a session without an id")?.into();
        Ok(Self { session, facts })
    }

    /// What is not as it was, or cannot be done any more.
    pub(super) async fn complaints(&self, target: &Target) -> Vec<String> {
        let timeout_ms = target.patience.of(ANSWERS_BY).as_millis() as u64;
        let body = json!({"code": "complaints()", "timeout_ms": timeout_ms});
        let told = target.execute_in(&self.session, &body).await;
        match told {
            Ok(told) if told["status"] == "completed" => {
                let all = told["result"].as_array().into_iter().flatten();
                all.map(|what| format!("the neighbour: {}", what.as_str().unwrap_or("?"))).collect()
            }
            Ok(told) => vec![format!("the neighbour does not answer: {}", brief(&told))],
            Err(error) => vec![format!("the neighbour does not answer: {error:#}")],
        }
    }

    /// Moves out; a session that an attack has closed is a complaint.
    pub(super) async fn move_out(self, target: &Target) -> Vec<String> {
        match target.call("DELETE", &self.session, None).await {
            Ok(answer) if answer.status < 300 => Vec::new(),
            Ok(answer) => vec![format!("the neighbour cannot move out: {}", answer.text())],
            Err(error) => vec![format!("the neighbour cannot move out: {error:#}")],
        }
    }
}

/// An execution in a few words.
pub(super) fn brief(execution: &Value) -> String {
    let of = |key: &str| execution[key].to_string();
    let error = execution["error"]["message"].as_str().unwrap_or_default();
    let stderr = execution["stderr"].as_str().unwrap_or_default();
    // The end of a traceback says what happened.
    let tail: String = stderr.chars().rev().take(300).collect::<Vec<_>>().into_iter().rev().collect();
    format!("{} {} {error} {tail:?}", of("outcome"), of("exit_code"))
}
