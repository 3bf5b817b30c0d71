//! Metrics: names, meanings and their Prometheus text.

use std::fs;

use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use fumehood_engine::Load;
use fumehood_engine::execution::Outcome;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

pub(crate) const REQUESTS: &str = "fumehood_http_requests_total";
pub(crate) const REQUEST_DURATION: &str = "fumehood_http_request_duration_seconds";
const EXECUTIONS: &str = "fumehood_executions_total";
const REFUSED: &str = "fumehood_executions_refused_total";
const EXECUTION_DURATION: &str = "fumehood_execution_duration_seconds";
const EXECUTION_START: &str = "fumehood_execution_start_seconds";
const RUNNING: &str = "fumehood_executions_running";
const QUEUED: &str = "fumehood_executions_queued";
const POOL_CLAIMS: &str = "fumehood_pool_claims_total";
const POOL_CLAIM: &str = "fumehood_pool_claim_seconds";
const POOL_READY: &str = "fumehood_pool_ready";
const POOL_BUSY: &str = "fumehood_pool_busy";
const SANDBOX_START: &str = "fumehood_sandbox_start_seconds";
const ZYGOTE_START: &str = "fumehood_zygote_start_seconds";
const ZYGOTE_LOSSES: &str = "fumehood_zygote_losses_total";
const SESSIONS: &str = "fumehood_sessions_open";
const SESSIONS_REFUSED: &str = "fumehood_sessions_refused_total";
const SESSION_RESTARTS: &str = "fumehood_session_restarts_total";
const CAPACITY: &str = "fumehood_capacity";
const RESIDENT: &str = "fumehood_process_resident_memory_bytes";
const BUILD: &str = "fumehood_build_info";

/// Seconds; from a warm fork to the longest timeout usually allowed.
const BUCKETS: [f64; 19] = [
    0.000_01, 0.000_1, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 300.0,
];

const OUTCOMES: [Outcome; 12] = [
    Outcome::Exited,
    Outcome::Exception,
    Outcome::TimedOut,
    Outcome::OomKilled,
    Outcome::OutputLimit,
    Outcome::DiskLimit,
    Outcome::ProcessLimit,
    Outcome::Denied,
    Outcome::Cancelled,
    Outcome::Signaled,
    Outcome::Lost,
    Outcome::Infra,
];

/// Makes this process's metrics go to the handle returned. Call once.
///
/// The owner calls [`PrometheusHandle::run_upkeep`] every few seconds, so that samples do not pile up between scrapes.
///
/// # Errors
/// When metrics go elsewhere already.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?
        .install_recorder()?;
    describe();
    touch();
    Ok(handle)
}

fn describe() {
    describe_counter!(REQUESTS, "HTTP requests answered");
    describe_histogram!(REQUEST_DURATION, Unit::Seconds, "Time until an answer began; streams go on after that");
    describe_counter!(EXECUTIONS, "Executions ended, by outcome");
    describe_counter!(REFUSED, "Executions refused before they were accepted");
    describe_counter!(POOL_CLAIMS, "Ordinary executions, by whether they found a sandbox that waited ready");
    describe_histogram!(POOL_CLAIM, Unit::Seconds, "Time that looking for one took");
    describe_gauge!(POOL_READY, "Sandboxes that wait ready");
    describe_gauge!(POOL_BUSY, "Executions of the kind that ready sandboxes are for");
    describe_histogram!(
        SANDBOX_START,
        Unit::Seconds,
        "Time to make a sandbox, by how its program starts: fork or exec"
    );
    describe_histogram!(ZYGOTE_START, Unit::Seconds, "Time to preload an interpreter");
    describe_counter!(ZYGOTE_LOSSES, "Preloaded interpreters that died or could not be started");
    describe_histogram!(EXECUTION_DURATION, Unit::Seconds, "Wall clock of runs");
    describe_histogram!(
        EXECUTION_START,
        Unit::Seconds,
        "From a free place to the first instruction of the user's code"
    );
    describe_gauge!(RUNNING, "Executions that have a place");
    describe_gauge!(QUEUED, "Executions that wait for a place");
    describe_gauge!(SESSIONS, "Sessions that have not ended");
    describe_counter!(SESSIONS_REFUSED, "Sessions refused because too many were open");
    describe_counter!(SESSION_RESTARTS, "Fresh interpreters of sessions, by reset or because the one before ended");
    describe_gauge!(CAPACITY, "Places");
    describe_gauge!(RESIDENT, Unit::Bytes, "Resident memory of this server, sandboxes not counted");
    describe_gauge!(BUILD, "Always 1; the labels say what runs");
}

/// A series that exists from the start can be alerted on before its first event.
fn touch() {
    for outcome in OUTCOMES {
        counter!(EXECUTIONS, "outcome" => outcome.as_str()).increment(0);
    }
    counter!(REFUSED, "reason" => "queue_full").increment(0);
    counter!(REFUSED, "reason" => "quota").increment(0);
    counter!(SESSIONS_REFUSED).increment(0);
    counter!(SESSION_RESTARTS).increment(0);
    counter!(REQUESTS, "method" => "GET", "route" => "/metrics", "status" => "200").increment(0);
    let _registered = histogram!(REQUEST_DURATION, "method" => "GET", "route" => "/metrics");
    let _registered = (histogram!(EXECUTION_DURATION), histogram!(EXECUTION_START));
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

/// Brings the gauges up to date before a scrape.
pub(crate) fn observe(load: Load) {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let set = |name: &'static str, value: usize| gauge!(name).set(value as f64);
    set(RUNNING, load.running);
    set(QUEUED, load.queued);
    set(SESSIONS, load.sessions);
    set(CAPACITY, load.capacity);
    set(RESIDENT, usize::try_from(resident_bytes()).unwrap_or(0));
}

/// Resident memory of this process; 0 when the kernel does not say.
pub(crate) fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kilobytes.unwrap_or(0_u64) * 1024
}
