//! How an execution ended and whose fault it was: a pure function of what the host observed.
//!
//! The guest shares its interpreter with the user's code, so what it says is a claim. It decides what the error *says*; whether
//! the program ended well is decided by its wait status, the kernel's counters and what this host did to it.

use std::time::Duration;

use fumehood_wire::{GuestError, GuestRefusal, GuestResult};

use crate::backend::{Ended, ExitReport, FailedStep};
use crate::execution::{Denial, ExecutionError, Fault, Outcome, Status};
use crate::spec::Limits;

/// Why this host ended a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KillReason {
    TimedOut,
    Cancelled,
    OutputLimit,
    /// The interpreter did not become ready in time.
    StartTimeout,
    /// What came from the guest is not the protocol.
    BrokenProtocol(String),
}

/// Everything the host observed.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) killed: Option<&'a KillReason>,
    pub(crate) exit: &'a ExitReport,
    /// What it was refused.
    pub(crate) refused: &'a [Denial],
    /// What the guest claims; `None` for plain programs, or when it never said anything.
    pub(crate) claim: Option<&'a GuestResult>,
    /// The runner was started (rather than a plain program).
    pub(crate) runner: bool,
    /// The user's code had begun.
    pub(crate) begun: bool,
    /// No room was left on the sandbox's disk at the end.
    pub(crate) disk_full: bool,
    /// Nothing in the sandbox could be written.
    pub(crate) read_only: bool,
    pub(crate) timeout: Duration,
    pub(crate) limits: &'a Limits,
    pub(crate) output_hard_bytes: u64,
}

/// The end.
#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) status: Status,
    pub(crate) outcome: Outcome,
    pub(crate) fault: Option<Fault>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) error: Option<ExecutionError>,
    pub(crate) denials: Vec<Denial>,
}

/// What the guest calls the refusal of a place.
const PATH: &str = "path";

const EPERM: i64 = 1;
const EAGAIN: i64 = 11;
const ENOSPC: i64 = 28;
const EFBIG: i64 = 27;
const EDQUOT: i64 = 122;

/// Exit code of a runner that lost its connection.
const RUNNER_DISCONNECTED: i32 = 70;

const SIGKILL: i32 = 9;
const SIGXFSZ: i32 = 25;
const SIGSYS: i32 = 31;

/// Decides.
pub(crate) fn decide(observed: &Observed<'_>) -> Verdict {
    let mut verdict = end(observed);
    verdict.denials.extend(observed.refused.iter().cloned());
    if observed.exit.process_limit_hits > 0 {
        verdict.denials.push(Denial {
            kind: "limit".to_owned(),
            what: format!("{} times, starting a process or thread", observed.exit.process_limit_hits),
            rule: format!("limits.processes = {}", observed.limits.processes),
            remedy: "start fewer processes and threads at once, or raise limits.processes".to_owned(),
        });
    }
    verdict
}

fn end(observed: &Observed<'_>) -> Verdict {
    let exit = observed.exit;
    match observed.killed {
        Some(KillReason::Cancelled) => {
            return Verdict {
                status: Status::Cancelled,
                fault: None,
                ..failed(Outcome::Cancelled, Fault::User, "cancelled on request".to_owned(), None)
            };
        }
        Some(KillReason::TimedOut) => return timed_out(observed),
        Some(KillReason::OutputLimit) => {
            let message = format!("more than {} MB of output were produced", observed.output_hard_bytes >> 20);
            let hint = "print less, or write the data to a file and collect it";
            return failed(Outcome::OutputLimit, Fault::Limit, message, Some(hint));
        }
        _ => {}
    }
    // Not before: what was ended by us ended for that reason, also when it is not gone in time.
    if exit.lost {
        return failed(
            Outcome::Lost,
            Fault::Infra,
            "the process that watches sandboxes on this node is gone".to_owned(),
            None,
        );
    }
    if let Some(failed_step) = &exit.failed_step {
        return never_ran(failed_step, observed.runner);
    }
    let killed_from_outside = matches!(exit.ended, None | Some(Ended::Signaled(SIGKILL)));
    if exit.oom_kills > 0 && killed_from_outside {
        return out_of_memory(observed);
    }
    match observed.killed {
        Some(KillReason::StartTimeout) => {
            return failed(
                Outcome::Infra,
                Fault::Infra,
                "the interpreter did not become ready in time".to_owned(),
                None,
            );
        }
        Some(KillReason::BrokenProtocol(detail)) => return disconnected(detail),
        _ => {}
    }
    match exit.ended {
        None => failed(Outcome::Lost, Fault::Infra, "the sandbox vanished".to_owned(), None),
        Some(Ended::Signaled(signal)) => signaled(signal, observed),
        Some(Ended::Exited(code)) => exited(code, observed),
    }
}

/// Nothing of the caller's ran. A program or working directory of the caller's that does not work is the caller's, as in a shell.
fn never_ran(failed_step: &FailedStep, runner: bool) -> Verdict {
    let FailedStep { step, cause, caller } = failed_step;
    if *caller && !runner {
        const NOT_FOUND: i32 = 127;
        let message = format!("could not {step}: {cause}");
        return Verdict { exit_code: Some(NOT_FOUND), ..failed(Outcome::Exited, Fault::User, message, None) };
    }
    failed(Outcome::Infra, Fault::Infra, format!("the sandbox could not be made: could not {step}: {cause}"), None)
}

fn failed(outcome: Outcome, fault: Fault, message: String, hint: Option<&str>) -> Verdict {
    Verdict {
        status: Status::Failed,
        outcome,
        fault: Some(fault),
        exit_code: None,
        error: Some(ExecutionError::of(outcome, message, hint)),
        denials: Vec::new(),
    }
}

fn limit(verdict: Verdict, what: &str, rule: String, remedy: &str) -> Verdict {
    let denial = Denial { kind: "limit".to_owned(), what: what.to_owned(), rule, remedy: remedy.to_owned() };
    Verdict { denials: vec![denial], ..verdict }
}

fn timed_out(observed: &Observed<'_>) -> Verdict {
    let milliseconds = observed.timeout.as_millis();
    let mut message = format!("the time limit of {milliseconds} ms ran out");
    if observed.exit.process_limit_hits > 0 {
        message.push_str(", with the process limit refusing new processes");
    }
    let remedy = "make the code faster, or raise timeout_ms";
    let mut verdict = failed(Outcome::TimedOut, Fault::Limit, message, Some(remedy));
    // It was interrupted before it was ended, and says where it was.
    if let (Some(error), Some(claim)) = (&mut verdict.error, observed.claim.and_then(|claim| claim.error.as_ref())) {
        error.line = claim.line;
        error.traceback.clone_from(&claim.traceback);
    }
    limit(verdict, "running on", format!("timeout_ms = {milliseconds}"), remedy)
}

fn out_of_memory(observed: &Observed<'_>) -> Verdict {
    let megabytes = observed.limits.memory_bytes >> 20;
    let ended = if observed.exit.ended.is_some() { "the program" } else { "the program and all that it had started" };
    let message = format!("the memory limit of {megabytes} MB was reached and the kernel ended {ended}");
    let remedy = "work on less data at once, use smaller types, or raise limits.memory_mb; files in the workspace count as memory";
    let verdict = failed(Outcome::OomKilled, Fault::Limit, message, Some(remedy));
    limit(verdict, "more memory", format!("limits.memory_mb = {megabytes}"), remedy)
}

fn signaled(signal: i32, observed: &Observed<'_>) -> Verdict {
    let (name, meaning) = signal_name(signal);
    if signal == SIGXFSZ {
        return disk_limit(observed, "a file grew past the file size limit".to_owned());
    }
    if signal == SIGSYS {
        let message = format!("a forbidden system call ended the program ({name})");
        return failed(Outcome::Denied, Fault::Policy, message, None);
    }
    let mut verdict = failed(
        Outcome::Signaled,
        Fault::User,
        format!("ended by signal {signal} ({name}: {meaning})"),
        (signal != SIGKILL).then_some(
            "usually a fault in native code: a wrong pointer through ctypes, a bug in an extension module, or too deep recursion",
        ),
    );
    if let Some(error) = &mut verdict.error {
        error.kind = name.to_owned();
    }
    verdict
}

fn disk_limit(observed: &Observed<'_>, message: String) -> Verdict {
    let (disk, file) = (observed.limits.disk_bytes >> 20, observed.limits.file_size_bytes >> 20);
    let remedy = "write less, delete files no longer needed, or raise limits.disk_mb";
    let verdict = failed(Outcome::DiskLimit, Fault::Limit, message, Some(remedy));
    limit(verdict, "more disk", format!("limits.disk_mb = {disk}, limits.file_size_mb = {file}"), remedy)
}

fn exited(code: i32, observed: &Observed<'_>) -> Verdict {
    if observed.runner && !observed.begun {
        let message = format!("the interpreter ended with exit code {code} before it was ready; see stderr");
        return failed(Outcome::Infra, Fault::Infra, message, None);
    }
    if observed.runner && observed.claim.is_none() && code == RUNNER_DISCONNECTED {
        return disconnected("it was closed");
    }
    if code == 0 {
        return Verdict {
            status: Status::Completed,
            outcome: Outcome::Exited,
            fault: None,
            exit_code: Some(0),
            error: None,
            denials: Vec::new(),
        };
    }
    if let Some(claim) = observed.claim.and_then(|claim| claim.error.as_ref()) {
        return Verdict { exit_code: Some(code), ..exception(claim, observed) };
    }
    let mut verdict = failed(Outcome::Exited, Fault::User, format!("the program ended with exit code {code}"), None);
    if let Some(error) = &mut verdict.error {
        error.kind = "SystemExit".to_owned();
    }
    Verdict { exit_code: Some(code), ..verdict }
}

/// The runner's connection was tampered with; only the user's code could have done that.
fn disconnected(detail: &str) -> Verdict {
    let message = format!("the interpreter's connection to the host broke: {detail}");
    let hint = "the code wrote to or closed a descriptor it did not open; leave descriptors above 2 alone";
    failed(Outcome::Lost, Fault::User, message, Some(hint))
}

/// An uncaught error, or the limit behind it where the host saw the limit being hit.
fn exception(claim: &GuestError, observed: &Observed<'_>) -> Verdict {
    let says = |text: &str| claim.message.contains(text);
    let refused_process = claim.errno == Some(EAGAIN) || says("can't start new thread");
    let no_room = matches!(claim.errno, Some(ENOSPC | EDQUOT)) && observed.disk_full;
    let too_large = claim.errno == Some(EFBIG);
    let mut verdict = if refused_process && observed.exit.process_limit_hits > 0 {
        let remedy = "start fewer processes and threads at once, or raise limits.processes";
        failed(Outcome::ProcessLimit, Fault::Limit, String::new(), Some(remedy))
    } else if no_room || too_large {
        disk_limit(observed, String::new())
    } else if let (Some(EPERM), Some(refused)) = (claim.errno, observed.refused.first()) {
        let remedy = format!("{}: {}; instead: {}", refused.what, refused.rule, refused.remedy);
        failed(Outcome::Denied, Fault::Policy, String::new(), Some(&remedy))
    } else {
        failed(Outcome::Exception, Fault::User, String::new(), None)
    };
    // Of a limit the host knows more than the guest: its name and how to raise it.
    let ours = verdict.error.take().and_then(|error| error.hint);
    let denial = claim.refused.as_ref().and_then(|refused| claimed_denial(refused, observed.read_only));
    let closed = denial.as_ref().filter(|denial| observed.read_only && denial.kind == PATH);
    let closed = closed.map(|denial| format!("{}: {}", denial.rule, denial.remedy));
    let hint = ours.or(closed).or_else(|| claim.hint.clone());
    verdict.denials.extend(denial);
    verdict.error = Some(ExecutionError {
        code: verdict.outcome.as_str().to_owned(),
        kind: claim.kind.clone(),
        message: claim.message.clone(),
        line: claim.line,
        traceback: claim.traceback.clone(),
        hint,
    });
    verdict
}

/// What the interpreter says that the sandbox refused. Places and networks are refused by what is not there, of which the host sees nothing.
fn claimed_denial(refused: &GuestRefusal, read_only: bool) -> Option<Denial> {
    let (rule, remedy) = match refused.kind.as_str() {
        "network" => (
            "there is no network in this sandbox",
            "use data that is there: send files with the request or upload them to the session; packages belong into the image",
        ),
        PATH if read_only => (
            "nothing can be written in this sandbox, whose template is read-only, and the host's own files are not there",
            "print the result or leave it as the last expression, or use a template that is not read-only",
        ),
        PATH => (
            "writable are /data, /tmp, /var/tmp, /home/sandbox and /dev/shm only, and the host's own files are not there",
            "use the working directory (/data) or /tmp",
        ),
        _ => return None,
    };
    const MOST: usize = 300;
    let what = refused.what.chars().take(MOST).collect();
    Some(Denial { kind: refused.kind.clone(), what, rule: rule.to_owned(), remedy: remedy.to_owned() })
}

/// Name and meaning of a signal.
fn signal_name(signal: i32) -> (&'static str, &'static str) {
    match signal {
        1 => ("SIGHUP", "hang-up"),
        2 => ("SIGINT", "interrupt"),
        3 => ("SIGQUIT", "quit"),
        4 => ("SIGILL", "illegal instruction"),
        5 => ("SIGTRAP", "trap"),
        6 => ("SIGABRT", "abort"),
        7 => ("SIGBUS", "bus error"),
        8 => ("SIGFPE", "arithmetic error"),
        9 => ("SIGKILL", "kill"),
        10 => ("SIGUSR1", "user signal"),
        11 => ("SIGSEGV", "segmentation fault"),
        12 => ("SIGUSR2", "user signal"),
        13 => ("SIGPIPE", "broken pipe"),
        14 => ("SIGALRM", "alarm clock"),
        15 => ("SIGTERM", "termination"),
        24 => ("SIGXCPU", "processor time limit"),
        25 => ("SIGXFSZ", "file size limit"),
        31 => ("SIGSYS", "bad system call"),
        _ => ("signal", "a signal"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        crate::spec::LimitPolicy::default().default
    }

    /// Decides on a run of the runner that ended so.
    fn verdict(killed: Option<KillReason>, exit: &ExitReport, claim: Option<GuestError>, disk_full: bool) -> Verdict {
        let claim = claim.map(|error| GuestResult { error: Some(error), exit_code: 0, ..GuestResult::default() });
        decide(&Observed {
            refused: &[],
            killed: killed.as_ref(),
            exit,
            claim: claim.as_ref(),
            runner: true,
            begun: true,
            disk_full,
            read_only: false,
            timeout: Duration::from_secs(1),
            limits: &limits(),
            output_hard_bytes: 64 << 20,
        })
    }

    fn ended(ended: Ended) -> ExitReport {
        ExitReport { ended: Some(ended), ..ExitReport::default() }
    }

    fn claim(errno: i64) -> Option<GuestError> {
        Some(GuestError { kind: "OSError".to_owned(), errno: Some(errno), ..GuestError::default() })
    }

    #[test]
    fn a_claim_of_an_error_does_not_turn_a_success_into_a_failure_nor_the_reverse() {
        let good = verdict(None, &ended(Ended::Exited(0)), claim(2), false);
        assert_eq!((good.outcome, good.status), (Outcome::Exited, Status::Completed));
        let bad = verdict(None, &ended(Ended::Exited(4)), None, false);
        assert_eq!((bad.outcome, bad.status, bad.exit_code), (Outcome::Exited, Status::Failed, Some(4)));
    }

    #[test]
    fn a_kill_with_the_kernels_oom_counter_raised_is_out_of_memory_and_without_it_a_signal() {
        let killed = |oom_kills| ExitReport { oom_kills, ..ended(Ended::Signaled(9)) };
        assert_eq!(verdict(None, &killed(1), None, false).outcome, Outcome::OomKilled);
        assert_eq!(verdict(None, &killed(0), None, false).outcome, Outcome::Signaled);
        // The whole sandbox went, process 1 included.
        let all = ExitReport { oom_kills: 3, ..ExitReport::default() };
        assert_eq!(verdict(None, &all, None, false).outcome, Outcome::OomKilled);
    }

    #[test]
    fn a_child_killed_for_memory_does_not_condemn_a_program_that_ended_well() {
        let survived = ExitReport { oom_kills: 1, ..ended(Ended::Exited(0)) };
        assert_eq!(verdict(None, &survived, None, false).outcome, Outcome::Exited);
    }

    #[test]
    fn a_limit_is_named_only_when_the_host_saw_it() {
        let hit = ExitReport { process_limit_hits: 2, ..ended(Ended::Exited(1)) };
        assert_eq!(verdict(None, &hit, claim(EAGAIN), false).outcome, Outcome::ProcessLimit);
        assert_eq!(verdict(None, &ended(Ended::Exited(1)), claim(EAGAIN), false).outcome, Outcome::Exception);
        assert_eq!(verdict(None, &ended(Ended::Exited(1)), claim(ENOSPC), true).outcome, Outcome::DiskLimit);
        assert_eq!(verdict(None, &ended(Ended::Exited(1)), claim(ENOSPC), false).outcome, Outcome::Exception);
    }

    #[test]
    fn an_error_of_permission_is_a_denial_only_when_the_host_has_refused_something() {
        let refused = Denial {
            kind: "syscall".to_owned(),
            what: "mount".to_owned(),
            rule: "closed".to_owned(),
            remedy: "copy files".to_owned(),
        };
        let told = |refused: &[Denial], errno| {
            let claim = GuestResult { error: claim(errno), ..GuestResult::default() };
            decide(&Observed {
                refused,
                killed: None,
                exit: &ended(Ended::Exited(1)),
                claim: Some(&claim),
                runner: true,
                begun: true,
                disk_full: false,
                read_only: false,
                timeout: Duration::from_secs(1),
                limits: &limits(),
                output_hard_bytes: 64 << 20,
            })
        };
        let denied = told(std::slice::from_ref(&refused), EPERM);
        assert_eq!((denied.outcome, denied.fault), (Outcome::Denied, Some(Fault::Policy)));
        assert_eq!(denied.denials, std::slice::from_ref(&refused));
        assert!(denied.error.unwrap().hint.unwrap().contains("copy files"));
        assert_eq!(told(&[], EPERM).outcome, Outcome::Exception);
        // Refused something, and failed for another reason.
        let other = told(std::slice::from_ref(&refused), 2);
        assert_eq!((other.outcome, other.denials.len()), (Outcome::Exception, 1));
    }

    #[test]
    fn what_a_guest_says_it_was_refused_is_bounded_and_of_a_known_kind() {
        let said = |kind: &str| GuestRefusal { kind: kind.to_owned(), what: "é".repeat(100_000) };
        let denial = claimed_denial(&said("path"), false).unwrap();
        assert!(denial.what.len() < 1000 && denial.rule.contains("/data"));
        assert!(claimed_denial(&said("network"), false).is_some() && claimed_denial(&said("syscall"), false).is_none());
    }

    #[test]
    fn what_the_host_did_comes_before_what_the_kernel_saw() {
        let killed = ended(Ended::Signaled(9));
        for (reason, outcome) in [
            (KillReason::TimedOut, Outcome::TimedOut),
            (KillReason::Cancelled, Outcome::Cancelled),
            (KillReason::OutputLimit, Outcome::OutputLimit),
            (KillReason::BrokenProtocol("x".to_owned()), Outcome::Lost),
        ] {
            assert_eq!(verdict(Some(reason), &killed, None, false).outcome, outcome);
        }
        // Also when the host has not seen the end of it in time.
        let unseen = ExitReport { lost: true, ..ExitReport::default() };
        assert_eq!(verdict(Some(KillReason::TimedOut), &unseen, None, false).outcome, Outcome::TimedOut);
        assert_eq!(verdict(Some(KillReason::StartTimeout), &unseen, None, false).outcome, Outcome::Lost);
    }

    #[test]
    fn our_faults_are_ours() {
        let step = |caller| FailedStep { step: "mount /proc".to_owned(), cause: "EPERM".to_owned(), caller };
        let failed = ExitReport { failed_step: Some(step(false)), ..ExitReport::default() };
        assert_eq!(verdict(None, &failed, None, false).fault, Some(Fault::Infra));
        // The interpreter of the image is ours, a program of the caller's is not.
        assert_eq!(never_ran(&step(true), true).fault, Some(Fault::Infra));
        let not_found = never_ran(&step(true), false);
        assert_eq!((not_found.fault, not_found.exit_code), (Some(Fault::User), Some(127)));
        let lost = ExitReport { lost: true, ..ExitReport::default() };
        assert_eq!(verdict(None, &lost, None, false).outcome, Outcome::Lost);
    }
}
