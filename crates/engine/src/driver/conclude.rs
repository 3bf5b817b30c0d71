//! The end of an execution: what is left in its channels, the verdict, the artifacts.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tokio::net::UnixStream;

use super::pipes::SCRATCH;
use super::{BURIAL_PATIENCE, Follower, Job, Mode, lost, milliseconds};
use crate::backend::ExitReport;
use crate::execution::{Execution, ExecutionError, Fault, Metrics, Notice, Outcome};
use crate::files;
use crate::verdict::{self, Observed, Verdict};

/// Most bytes that are taken from a channel after the end: more than a pipe or a socket holds, unless somebody writes on.
const MOST_LEFT: usize = 2 << 20;

impl Follower<'_> {
    /// After the end: whatever is still in the pipes and the socket. In a session others may be alive that write on without end; what they
    /// write is no part of this.
    pub(super) fn take_the_rest(&mut self) {
        let mut left = MOST_LEFT;
        while left > 0
            && let Some(frames) = &self.live.frames
        {
            let decoder = &mut self.live.decoder;
            let read = SCRATCH.with_borrow_mut(|buffer| {
                let read = rustix::io::read(AsRef::<UnixStream>::as_ref(frames).as_fd(), &mut *buffer);
                read.inspect(|length| decoder.push(&buffer[..*length]))
            });
            match read {
                Ok(0) => self.live.frames = None,
                Ok(length) => {
                    left = left.saturating_sub(length);
                    self.take_decoded();
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.live.frames = None,
            }
        }
        self.live.frames = None;
        let mut left = 2 * MOST_LEFT;
        while left > 0 && self.live.open != [false; 2] {
            match self.drain_both() {
                0 => break,
                drained => left = left.saturating_sub(drained),
            }
        }
        self.job.record.end_of_output();
    }

    pub(super) async fn bury(&mut self) -> ExitReport {
        match tokio::time::timeout(BURIAL_PATIENCE, &mut self.live.exit).await {
            Ok(Ok(report)) => report,
            _ => lost(),
        }
    }

    pub(super) fn conclude_unprepared(&mut self, report: &ExitReport, error: &std::io::Error) -> Execution {
        self.job.record.end_of_output();
        let no_room = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        let (outcome, fault) = match (no_room, self.mode) {
            (true, _) => (Outcome::DiskLimit, Fault::Limit),
            // Code of the session has put something else in their place.
            (false, Mode::Cell) => (Outcome::Exception, Fault::User),
            (false, Mode::Script) => (Outcome::Infra, Fault::Infra),
        };
        let message = match &report.failed_step {
            Some(failed) => format!("the sandbox could not be made: could not {}: {}", failed.step, failed.cause),
            None => format!("the given files could not be written into the workspace: {error}"),
        };
        let hint = no_room.then_some("raise limits.disk_mb or send less");
        let error = ExecutionError::of(outcome, message, hint);
        self.job.record.ended_early(self.job.means.clock.stamp(), outcome, Some(fault), error)
    }

    pub(super) async fn conclude(&mut self, report: &ExitReport, ended: Instant) -> Execution {
        let Job { means, record, spec, .. } = self.job;
        let refused = self.control.refusals();
        let Verdict { status, outcome, fault, exit_code, error, denials } = verdict::decide(&Observed {
            refused: &refused,
            killed: self.killed.as_ref(),
            exit: report,
            claim: self.claim.as_ref(),
            runner: self.runner,
            begun: self.running.is_some(),
            disk_full: files::is_full(&self.disk),
            read_only: spec.kind.read_only,
            timeout: spec.timeout,
            limits: &spec.limits,
            output_hard_bytes: means.config.output_hard_bytes,
        });
        if self.runner && self.running.is_some() && self.claim.is_none() && outcome == Outcome::Exited {
            record.warn(Notice {
                code: "left_early".to_owned(),
                message: "the interpreter left before the end of the code (os._exit or similar), so there is no result"
                    .to_owned(),
            });
        }
        if report.oom_kills > 0 && outcome != Outcome::OomKilled {
            record.warn(Notice {
                code: "process_oom_killed".to_owned(),
                message: format!(
                    "the kernel ended {} processes of this run for reaching limits.memory_mb",
                    report.oom_kills
                ),
            });
        }
        let claim = self.claim.take().unwrap_or_default();
        let artifacts = self.collect().await;
        let duration = self.running.map_or(Duration::ZERO, |running| ended - running);
        let draft = record.draft();
        Execution {
            status,
            outcome: Some(outcome),
            exit_code,
            fault,
            error,
            denials,
            result: claim.result,
            dataframe: claim.dataframe,
            variables: claim.variables,
            artifacts,
            metrics: Metrics {
                queue_ms: draft.metrics.queue_ms,
                start_ms: draft.metrics.start_ms,
                duration_ms: milliseconds(duration),
                cpu_ms: report.cpu_us as f64 / 1000.0,
                memory_peak_mb: (report.memory_peak_bytes as f64 / f64::from(1 << 20) * 100.0).round() / 100.0,
                bytes_read: report.bytes_read,
                bytes_written: report.bytes_written,
                processes_peak: report.processes_peak,
            },
            finished_at: Some(means.clock.stamp()),
            ..draft
        }
    }

    async fn collect(&mut self) -> Vec<crate::execution::Artifact> {
        let Job { means, record, spec, .. } = self.job;
        let Some(wanted) = spec.collect.clone() else { return Vec::new() };
        let Ok(disk) = self.disk.try_clone() else { return Vec::new() };
        let (id, store, most) = (record.id.clone(), means.artifacts.clone(), means.config.max_artifact_bytes);
        let collected = tokio::task::spawn_blocking(move || store.collect(&id, &disk, &wanted, most)).await;
        let failed = match collected {
            Ok(Ok((artifacts, notices))) => {
                notices.into_iter().for_each(|notice| record.warn(notice));
                return artifacts;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::error!(error = failed, "artifacts could not be stored");
        let message = "the files could not be stored on the server's disk".to_owned();
        record.warn(Notice { code: "artifacts_incomplete".to_owned(), message });
        Vec::new()
    }
}
