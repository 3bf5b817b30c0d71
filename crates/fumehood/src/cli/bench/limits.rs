//! From the moment a limit strikes to the answer that says so.
//!
//! The program notes the time before each step that may be its last. Its clock is the kernel's, which has no other one for a sandbox, so that the last
//! note and the answer's arrival can be compared.

use anyhow::{Context, ensure};
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::Bench;
use super::http::{Connection, EXECUTIONS, brief};
use super::report::{Bound, Section, Series};
use super::stats::Run;

/// A clean answer comes sooner, in milliseconds.
const SOON_MS: f64 = 500.0;

const NOTE: &str =
    "import os, time\ndef note():\n    os.write(1, b'%d\\n' % time.clock_gettime_ns(time.CLOCK_MONOTONIC))\n";

/// A limit: its name, what runs into it, what is asked for, and how that must end.
struct Limit {
    name: &'static str,
    code: &'static str,
    limits: &'static str,
    outcome: &'static str,
}

const LIMITS: [Limit; 4] = [
    Limit {
        name: "memory",
        code: "kept = []\nwhile True:\n    note()\n    kept.append(b'x' * (4 << 20))",
        limits: r#"{"memory_mb": 200}"#,
        outcome: "oom_killed",
    },
    Limit {
        name: "processes",
        code: "while True:\n    note()\n    if os.fork() == 0:\n        time.sleep(1000)",
        limits: r#"{"processes": 64}"#,
        outcome: "process_limit",
    },
    Limit {
        name: "disk",
        code: "file = open('big', 'wb')\nwhile True:\n    note()\n    file.write(bytes(1 << 20))",
        limits: r#"{"disk_mb": 32}"#,
        outcome: "disk_limit",
    },
    Limit {
        name: "files",
        code: "number = 0\nwhile True:\n    number += 1\n    if number > 900: note()\n    os.mknod(str(number))",
        limits: r#"{"disk_mb": 1}"#,
        outcome: "disk_limit",
    },
];

pub(super) async fn limits(bench: &mut Bench) -> anyhow::Result<Section> {
    let address = bench.rested_server().await?;
    let requests = bench.requests(20, 2);
    let what =
        format!("from the step that a limit refuses to the answer ({} runs; {requests} executions)", bench.runs());
    let mut section = Section::new("limits", what);
    let mut connection = address.connect().await?;
    for limit in &LIMITS {
        let mut series = Series::new(limit.name, "ms");
        for _ in 0..bench.runs() {
            let mut run = Run::default();
            for _ in 0..requests {
                match strike(&mut connection, limit).await {
                    Ok(milliseconds) => run.values.push(milliseconds),
                    Err(error) => run.complain(format!("{error:#}")),
                }
            }
            series.add(&run, None);
        }
        section.figure(&series);
        section.ratio(
            format!("{}, slowest in ms", limit.name),
            series.each(|run| run.max),
            Some(Bound::Below(SOON_MS)),
        );
    }
    Ok(section)
}

async fn strike(connection: &mut Connection, limit: &Limit) -> anyhow::Result<f64> {
    let limits: Value = serde_json::from_str(limit.limits)?;
    let body = json!({"code": format!("{NOTE}{}", limit.code), "limits": limits}).to_string();
    let answer = connection.post(EXECUTIONS, Bytes::from(body)).await?;
    let arrived = clock_gettime(ClockId::Monotonic);
    let execution: Value = serde_json::from_slice(&answer)?;
    ensure!(execution["outcome"] == limit.outcome, "expected {}, got {}", limit.outcome, brief(&answer));
    let notes = execution["stdout"].as_str().unwrap_or_default();
    let last: i64 = notes.lines().last().and_then(|line| line.parse().ok()).context("the program noted no time")?;
    let nanoseconds = arrived.tv_sec * 1_000_000_000 + arrived.tv_nsec - last;
    ensure!(nanoseconds > 0, "the program's clock is not this one's");
    Ok(nanoseconds as f64 / 1e6)
}
