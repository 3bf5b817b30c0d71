//! Load: clients that each wait for their answer (closed loop), or requests that come when they come (open loop).

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use super::http::brief;
use super::programs::{Job, Program};
use super::stats::Run;

/// An answer that takes longer is counted as missing.
const PATIENCE: Duration = Duration::from_secs(120);

/// Something that runs programs, with a connection of its own.
pub(super) trait Caller {
    /// The request as it travels; made before the clock runs.
    fn prepare(&self, job: &Job) -> Bytes;
    /// Sends it and waits for the whole answer; only this is timed.
    async fn call(&mut self, request: Bytes) -> anyhow::Result<Bytes>;
    /// What the program printed, or why it did not end well.
    fn output<'a>(&self, answer: &'a Bytes) -> Result<Cow<'a, str>, String>;

    /// What is wrong with the answer.
    fn check(&self, job: &Job, answer: &Bytes) -> Result<(), String> {
        match self.output(answer) {
            Ok(output) if output == job.expected => Ok(()),
            Ok(output) => Err(format!("expected {:?}, got {:?}", job.expected, brief(output.as_bytes()))),
            Err(why) => Err(why),
        }
    }
}

/// When a closed loop ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// After so many requests, of all clients together.
    Count(u64),
    /// No request begins after that.
    Elapsed(Duration),
}

/// Requests of one run, in the order of its seed.
pub(super) struct Jobs<'a> {
    program: &'a Program,
    rng: RefCell<Rng>,
}

impl<'a> Jobs<'a> {
    pub(super) fn new(program: &'a Program, rng: &mut Rng) -> Self {
        Self { program, rng: RefCell::new(rng.fork()) }
    }

    pub(super) fn next(&self) -> Job {
        self.program.job(&mut self.rng.borrow_mut())
    }
}

/// Each client sends its next request when it has its answer. `pause` is awaited before each request, outside the clock.
pub(super) async fn closed<C: Caller>(
    callers: &mut [C],
    jobs: &Jobs<'_>,
    until: Until,
    pause: impl AsyncFn() -> anyhow::Result<()>,
) -> Run {
    let run = RefCell::new(Run::default());
    let (asked, begun) = (Cell::new(0), Instant::now());
    let clients = callers.len();
    let idle = Cell::new(Duration::ZERO);
    let client = async |caller: &mut C| loop {
        let over = match until {
            Until::Count(count) => asked.get() >= count,
            Until::Elapsed(duration) => begun.elapsed() >= duration,
        };
        if over {
            return;
        }
        asked.set(asked.get() + 1);
        let paused = Instant::now();
        if let Err(error) = pause().await {
            return run.borrow_mut().complain(format!("{error:#}"));
        }
        let job = jobs.next();
        let request = caller.prepare(&job);
        idle.set(idle.get() + paused.elapsed());
        let sent = Instant::now();
        let answer = timed(caller, request).await;
        note(&run, caller, &job, answer, sent);
    };
    join_all(callers.iter_mut().map(client)).await;
    let mut run = run.into_inner();
    // What clients spent thinking is no time of the server's.
    run.seconds = begun.elapsed().saturating_sub(idle.get() / clients.max(1) as u32).as_secs_f64();
    run
}

/// Requests begin when the schedule says, whether earlier ones have been answered or not, and latency counts from then: a server that
/// stalls cannot slow down the questions it is asked.
pub(super) async fn open<C: Caller>(
    connect: impl AsyncFn() -> anyhow::Result<C>,
    jobs: &Jobs<'_>,
    schedule: Vec<Duration>,
) -> Run {
    let run = RefCell::new(Run::default());
    let idle: RefCell<Vec<C>> = RefCell::default();
    let begun = Instant::now();
    let mut arrivals = clock(begun, schedule);
    let one = async |at: Instant| {
        let job = jobs.next();
        let waiting = idle.borrow_mut().pop();
        let caller = match waiting {
            Some(caller) => Ok(caller),
            None => connect().await,
        };
        match caller {
            Ok(mut caller) => {
                let request = caller.prepare(&job);
                let answer = timed(&mut caller, request).await;
                note(&run, &caller, &job, answer, at);
                idle.borrow_mut().push(caller);
            }
            Err(error) => run.borrow_mut().complain(format!("{error:#}")),
        }
    };
    let mut flying = FuturesUnordered::new();
    let mut more = true;
    while more || !flying.is_empty() {
        tokio::select! {
            at = arrivals.recv(), if more => match at {
                Some(at) => flying.push(one(at)),
                None => more = false,
            },
            Some(()) = flying.next() => {}
        }
    }
    drop(flying);
    let mut run = run.into_inner();
    run.seconds = begun.elapsed().as_secs_f64();
    run
}

/// A call, given up after [`PATIENCE`].
///
/// # Errors
/// When there is no answer.
pub(super) async fn timed<C: Caller>(caller: &mut C, request: Bytes) -> anyhow::Result<Bytes> {
    match tokio::time::timeout(PATIENCE, caller.call(request)).await {
        Ok(answer) => answer,
        Err(_) => anyhow::bail!("no answer within {} s", PATIENCE.as_secs()),
    }
}

fn note<C: Caller>(run: &RefCell<Run>, caller: &C, job: &Job, answer: anyhow::Result<Bytes>, since: Instant) {
    let milliseconds = since.elapsed().as_secs_f64() * 1e3;
    let judged = answer.map_err(|error| format!("{error:#}")).and_then(|answer| caller.check(job, &answer));
    match judged {
        Ok(()) => run.borrow_mut().values.push(milliseconds),
        Err(complaint) => run.borrow_mut().complain(complaint),
    }
}

/// When requests come: gaps of an exponential distribution, as from many callers who know nothing of each other.
pub(super) fn schedule(rng: &mut Rng, per_second: f64, duration: Duration) -> Vec<Duration> {
    let mut at = 0.0;
    let mut times = Vec::new();
    loop {
        at += -(1.0 - rng.f64()).ln() / per_second;
        if at >= duration.as_secs_f64() {
            return times;
        }
        times.push(Duration::from_secs_f64(at));
    }
}

/// Tells each time of the schedule when it has come. A thread, because the runtime's timer is only good to a millisecond.
fn clock(begun: Instant, schedule: Vec<Duration>) -> mpsc::UnboundedReceiver<Instant> {
    let (tell, told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for offset in schedule {
            let at = begun + offset;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if tell.send(at).is_err() {
                return;
            }
        }
    });
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_schedule_at_the_rate_asked_for() {
        let of = |seed| schedule(&mut Rng::with_seed(seed), 100.0, Duration::from_secs(100));
        let times = of(7);
        assert_eq!(times, of(7));
        assert_ne!(times, of(8));
        assert!(times.is_sorted());
        // Ten thousand arrivals: within five standard deviations.
        assert!((9_500..10_500).contains(&times.len()), "{}", times.len());
    }

    /// Answers after a while; every third answer is wrong.
    struct Slow(u64);

    impl Caller for Slow {
        fn prepare(&self, job: &Job) -> Bytes {
            job.expected.clone().into()
        }
        async fn call(&mut self, request: Bytes) -> anyhow::Result<Bytes> {
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.0 += 1;
            Ok(if self.0.is_multiple_of(3) { Bytes::new() } else { request })
        }
        fn output<'a>(&self, answer: &'a Bytes) -> Result<Cow<'a, str>, String> {
            Ok(String::from_utf8_lossy(answer))
        }
    }

    #[tokio::test]
    async fn a_wrong_answer_is_an_error_and_no_figure() {
        let mut rng = Rng::with_seed(1);
        let jobs = Jobs::new(&Program::OneLine, &mut rng);
        let run = closed(&mut [Slow(0)], &jobs, Until::Count(9), async || Ok(())).await;
        assert_eq!((run.values.len(), run.errors, run.complaints.len()), (6, 3, 3));
    }

    #[tokio::test]
    async fn an_open_loop_counts_from_the_time_a_request_was_due() {
        let mut rng = Rng::with_seed(1);
        let jobs = Jobs::new(&Program::OneLine, &mut rng);
        // Two at once: with one connection the second would have had to wait; here it gets its own.
        let due = vec![Duration::from_millis(1); 2];
        let connections = Cell::new(0);
        let connect = async || {
            connections.set(connections.get() + 1);
            Ok(Slow(0))
        };
        let run = open(connect, &jobs, due).await;
        assert_eq!((run.values.len(), connections.get()), (2, 2));
        assert!(run.values.iter().all(|&latency| latency >= 5.0), "{:?}", run.values);
    }
}
