//! Output while it happens: how soon a line arrives, and how much a second.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::Bench;
use super::http::{Address, EXECUTIONS, brief};
use super::plain::Interpreter;
use super::report::{Bound, Section, Series, ratios};
use super::stats::Run;
use super::throughput::quiet;

/// Bytes of a line: eleven digits, a space, filling, the end of the line.
const LINE: usize = 1024;
/// MiB of output in one run.
const SIZE_MB: u64 = 256;
/// Lines of which each is timed, a while apart.
const TIMED_LINES: u64 = 100;
/// The program says when, by the clock that both sides share.
const TELLS_TIME: &str = "import time\nfor _ in range(COUNT):\n    print(time.monotonic_ns())\n    time.sleep(0.01)\n";
/// Numbered lines, 64 in one write.
const WRITES_MUCH: &str = "import sys
fill = 'x' * 1011
for first in range(0, COUNT, 64):
    sys.stdout.write(''.join(f'{number:011d} {fill}\\n' for number in range(first, first + 64)))
";

pub(super) async fn stream(bench: &mut Bench) -> anyhow::Result<Section> {
    let address = bench.rested_server().await?;
    let interpreter = bench.interpreter.clone().ok();
    let (times, megabytes) = (bench.requests(TIMED_LINES, 20), if bench.args.quick { 16 } else { SIZE_MB });
    let timed_code = TELLS_TIME.replace("COUNT", &times.to_string());
    let lines = megabytes * (1 << 20) / LINE as u64;
    let much_code = WRITES_MUCH.replace("COUNT", &lines.to_string());
    let mut first = [Series::new("plain pipe, line", "ms"), Series::new("fumehood, line", "ms")];
    let mut much = [Series::new("plain pipe", "MB/s"), Series::new("fumehood", "MB/s")];
    let mut whole = Series::new("fumehood, result too", "MB/s");
    for _ in 0..bench.runs() {
        if let Some(interpreter) = &interpreter {
            let mut run = Run::default();
            line_latencies(&piped(interpreter, &timed_code).await?, &mut run);
            first[0].add(&run, None);
            let mut run = Run::default();
            let pieces = piped(interpreter, &much_code).await?;
            check_lines(pieces.iter().map(|(_, piece)| &piece[..]), lines, &mut run);
            run.values.extend(speed(pieces.first(), pieces.last(), megabytes));
            much[0].add(&run, None);
        }
        quiet(&address).await?;
        let mut run = Run::default();
        let events = output(&execute(&address, &timed_code, megabytes).await?)?;
        line_latencies(&events, &mut run);
        first[1].add(&run, None);
        quiet(&address).await?;
        let meter = bench.server_pid().map(super::Meter::start);
        let pieces = execute(&address, &much_code, megabytes).await?;
        let usage = meter.map(super::Meter::stop);
        let end = pieces.last().map(|(at, _)| *at);
        let events = output(&pieces)?;
        drop(pieces);
        let mut run = Run::default();
        check_lines(events.iter().map(|(_, text)| &text[..]), lines, &mut run);
        run.values.extend(speed(events.first(), events.last(), megabytes));
        much[1].add(&run, usage);
        let values = events.first().zip(end).map(|((begun, _), end)| 2.0 * rate(*begun, end, megabytes));
        whole.add(&Run { values: values.into_iter().collect(), ..Run::default() }, None);
    }
    let what = format!(
        "{times} lines 10 ms apart, from the program's print to the client; then {megabytes} MiB of numbered lines to one client ({} runs)",
        bench.runs()
    );
    let mut section = Section::new("stream", what);
    first.iter().chain(&much).chain([&whole]).for_each(|series| section.figure(series));
    bench.note_baseline(&mut section);
    section.ratio("fumehood, line p50 in ms", first[1].each(|run| run.p50), Some(Bound::AtMost(2.0)));
    section.ratio("fumehood MB/s", much[1].each(|run| run.p50), Some(Bound::AtLeast(150.0)));
    section.ratio("fumehood MB/s / plain pipe MB/s", ratios(&much[1].each(|r| r.p50), &much[0].each(|r| r.p50)), None);
    section.note("the last event, `result`, repeats the output that is kept; `result too` counts both");
    Ok(section)
}

/// Pieces of output with the time at which each was there.
type Pieces = Vec<(Instant, Bytes)>;

/// What an interpreter on the host prints into a pipe.
async fn piped(interpreter: &Interpreter, code: &str) -> anyhow::Result<Pieces> {
    let mut command = interpreter.command();
    // Unbuffered, as in a sandbox.
    command.args(["-u", "-c", code]).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let stdout = child.stdout.take().context("no pipe")?;
    let mut pipe = pipe::Receiver::from_owned_fd(stdout.into())?;
    let mut pieces = Pieces::new();
    loop {
        let mut piece = BytesMut::with_capacity(64 << 10);
        if pipe.read_buf(&mut piece).await? == 0 {
            break;
        }
        pieces.push((Instant::now(), piece.freeze()));
    }
    child.wait()?;
    Ok(pieces)
}

/// The events of an execution as they arrive; nothing is read in them while the clock runs.
async fn execute(address: &Address, code: &str, megabytes: u64) -> anyhow::Result<Pieces> {
    let mut connection = address.connect().await?;
    // A line more than there is, so that nothing counts as cut.
    let limits = json!({"output_kb": megabytes * 1024 + 1});
    let body = json!({"code": code, "limits": limits, "timeout_ms": 120_000}).to_string();
    let answer = connection.send(Method::POST, EXECUTIONS, "application/x-ndjson", body.into()).await?;
    let status = answer.status();
    let mut body = answer.into_body();
    if !status.is_success() {
        bail!("the server answered {status}: {}", brief(&next(&mut body).await?.unwrap_or_default()));
    }
    let mut pieces = Pieces::new();
    while let Some(piece) = next(&mut body).await? {
        pieces.push((Instant::now(), piece));
    }
    Ok(pieces)
}

async fn next(body: &mut Incoming) -> anyhow::Result<Option<Bytes>> {
    Ok(match body.frame().await {
        Some(frame) => frame?.into_data().ok(),
        None => None,
    })
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    data: Data<'a>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    text: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<&'a str>,
}

/// The text of each `stdout` event, with the time at which the event was there as a whole.
fn output(pieces: &Pieces) -> anyhow::Result<Pieces> {
    let mut events = Pieces::new();
    let mut line = BytesMut::new();
    let mut last = String::new();
    for (at, piece) in pieces {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if !line.ends_with(b"\n") {
                continue;
            }
            let event: Event<'_> =
                serde_json::from_slice(&line).with_context(|| format!("no event: {}", brief(&line)))?;
            if let ("stdout", Some(text)) = (event.kind, &event.data.text) {
                events.push((*at, Bytes::copy_from_slice(text.as_bytes())));
            }
            last = format!("{} {}", event.kind, event.data.status.unwrap_or_default());
            if event.kind == "result" && event.data.status != Some("completed") {
                bail!("the execution did not end well: {}", brief(&line));
            }
            line.clear();
        }
    }
    if last != "result completed" {
        bail!("the stream ended with {last:?}");
    }
    Ok(events)
}

/// From the time that each line tells to the time at which it was there.
fn line_latencies(pieces: &Pieces, run: &mut Run) {
    // Both clocks are the same; only Rust's keeps its number to itself.
    let (now, here) = (clock_gettime(ClockId::Monotonic), Instant::now());
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    let mut line = Vec::new();
    for (at, piece) in pieces {
        // `print` writes the text and the end of the line one after the other, so they may come apart.
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if !line.ends_with(b"\n") {
                continue;
            }
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            match text.parse().map(Duration::from_nanos) {
                Ok(printed) => {
                    let received = now.saturating_sub(here.saturating_duration_since(*at));
                    run.values.push(received.saturating_sub(printed).as_secs_f64() * 1e3);
                }
                Err(_) => run.complain(format!("no time: {text:?}")),
            }
            line.clear();
        }
    }
}

/// Whether every line is there, once and in its place.
fn check_lines<'a>(pieces: impl Iterator<Item = &'a [u8]>, lines: u64, run: &mut Run) {
    let fill = "x".repeat(LINE - 13);
    let mut expected = Vec::new();
    let (mut number, mut begun) = (0, 0);
    for mut piece in pieces {
        while !piece.is_empty() {
            if begun == expected.len() {
                (expected, begun) = (format!("{number:011} {fill}\n").into_bytes(), 0);
                number += 1;
            }
            let length = piece.len().min(expected.len() - begun);
            if piece[..length] != expected[begun..begun + length] {
                return run.complain(format!("line {} is not in its place", number - 1));
            }
            (piece, begun) = (&piece[length..], begun + length);
        }
    }
    if number != lines || begun != expected.len() {
        run.complain(format!("{number} lines of {lines}"));
    }
}

fn speed(first: Option<&(Instant, Bytes)>, last: Option<&(Instant, Bytes)>, megabytes: u64) -> Option<f64> {
    Some(rate(first?.0, last?.0, megabytes))
}

/// Millions of bytes a second.
fn rate(begun: Instant, ended: Instant, megabytes: u64) -> f64 {
    (megabytes * (1 << 20)) as f64 / 1e6 / ended.saturating_duration_since(begun).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_missing_or_out_of_its_place_is_an_error() {
        let line = |number: u64| format!("{number:011} {}\n", "x".repeat(LINE - 13));
        let errors = |text: String, lines| {
            let mut run = Run::default();
            check_lines(text.as_bytes().chunks(700), lines, &mut run);
            run.errors
        };
        assert_eq!(errors(line(0) + &line(1), 2), 0);
        assert_eq!(errors(line(1) + &line(0), 2), 1);
        assert_eq!(errors(line(0), 2), 1);
        assert_eq!(errors(line(0)[..1000].to_owned(), 1), 1);
    }

    #[test]
    fn events_are_found_however_the_stream_is_cut() {
        let stream = concat!(
            "{\"seq\":1,\"type\":\"started\",\"data\":{\"id\":\"a\",\"at\":\"b\"}}\n",
            "{\"seq\":2,\"type\":\"stdout\",\"data\":{\"text\":\"one\\n\"}}\n",
            "{\"seq\":3,\"type\":\"result\",\"data\":{\"status\":\"completed\"}}\n",
        );
        let cut = |size| stream.as_bytes().chunks(size).map(|c| (Instant::now(), Bytes::copy_from_slice(c))).collect();
        for size in [1, 7, 1000] {
            assert_eq!(output(&cut(size)).unwrap()[0].1, "one\n");
        }
        let broken: Pieces = vec![(Instant::now(), Bytes::copy_from_slice(&stream.as_bytes()[..120]))];
        assert!(output(&broken).is_err());
    }
}
