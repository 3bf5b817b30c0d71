//! What may happen to a job, as one pure function; every change of its row goes through it.
//!
//! ```text
//!               begin               finish
//!    waiting ----------> begun -----------------> ended (the execution on record says how)
//!      ^  |               |  \--lose, no attempt left--> dead --revive--> waiting
//!      |  \--cancel--> ended
//!      \--lose, attempts left; give back--/
//! ```

/// Where a job is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// For a worker to take it.
    Waiting {
        /// How often it was begun.
        attempt: u32,
    },
    /// A worker has it.
    Begun {
        /// How often it was begun, this time included.
        attempt: u32,
        /// Who.
        worker: String,
        /// Until when, unless renewed; milliseconds since 1970.
        lease_ms: i64,
    },
    /// Its worker went away and it may not be begun again: its execution is `lost`, unless somebody revives it.
    Dead {
        /// How often it was begun.
        attempt: u32,
    },
    /// Over.
    Ended,
}

/// What somebody wants to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobRequest<'a> {
    /// `worker` runs it, until `lease_ms` at first.
    Begin {
        /// Who.
        worker: &'a str,
        /// Until when.
        lease_ms: i64,
    },
    /// `worker` says that the attempt which it began has ended.
    Finish {
        /// Who.
        worker: &'a str,
        /// Which attempt.
        attempt: u32,
    },
    /// `worker` gives back what has not run yet: it counts as never begun.
    GiveBack {
        /// Who.
        worker: &'a str,
        /// Which attempt.
        attempt: u32,
    },
    /// The worker of this attempt went away, or ends; what ran is gone.
    Lose {
        /// Which attempt.
        attempt: u32,
    },
    /// Somebody does not want it any more.
    Cancel,
    /// Somebody wants a dead one to be tried again, as if it had never been begun.
    Revive,
}

/// A request that a job in this state does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {state:?} does not accept {request}")]
pub struct Refused {
    state: JobState,
    request: String,
}

/// The state after `request`; `max_attempts` is how often the job may be begun.
///
/// # Errors
/// When a job in this state does not accept it.
pub fn accept(state: &JobState, request: &JobRequest<'_>, max_attempts: u32) -> Result<JobState, Refused> {
    let refused = || Refused { state: state.clone(), request: format!("{request:?}") };
    match (state, request) {
        (JobState::Waiting { attempt }, JobRequest::Begin { worker, lease_ms }) => {
            Ok(JobState::Begun { attempt: attempt + 1, worker: (*worker).to_owned(), lease_ms: *lease_ms })
        }
        (JobState::Waiting { .. }, JobRequest::Cancel) => Ok(JobState::Ended),
        (JobState::Begun { attempt, worker, .. }, JobRequest::Finish { worker: by, attempt: of })
            if worker == by && attempt == of =>
        {
            Ok(JobState::Ended)
        }
        (JobState::Begun { attempt, worker, .. }, JobRequest::GiveBack { worker: by, attempt: of })
            if worker == by && attempt == of =>
        {
            Ok(JobState::Waiting { attempt: attempt - 1 })
        }
        (JobState::Begun { attempt, .. }, JobRequest::Lose { attempt: of }) if attempt == of => {
            Ok(if *attempt < max_attempts {
                JobState::Waiting { attempt: *attempt }
            } else {
                JobState::Dead { attempt: *attempt }
            })
        }
        (JobState::Dead { .. }, JobRequest::Revive) => Ok(JobState::Waiting { attempt: 0 }),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORKERS: [&str; 2] = ["w1", "w2"];

    fn request() -> impl Strategy<Value = JobRequest<'static>> {
        let worker = || prop::sample::select(&WORKERS[..]);
        prop_oneof![
            worker().prop_map(|worker| JobRequest::Begin { worker, lease_ms: 1 }),
            (worker(), 0..4_u32).prop_map(|(worker, attempt)| JobRequest::Finish { worker, attempt }),
            (worker(), 0..4_u32).prop_map(|(worker, attempt)| JobRequest::GiveBack { worker, attempt }),
            (0..4_u32).prop_map(|attempt| JobRequest::Lose { attempt }),
            Just(JobRequest::Cancel),
        ]
    }

    proptest! {
        #[test]
        fn a_job_ends_once_and_is_begun_no_more_often_than_it_may(
            requests in prop::collection::vec(request(), 0..60),
            max_attempts in 1..=10_u32,
        ) {
            let mut state = JobState::Waiting { attempt: 0 };
            let (mut ends, mut lost) = (0, 0);
            for request in &requests {
                let Ok(next) = accept(&state, request, max_attempts) else { continue };
                let final_ = |state: &JobState| matches!(state, JobState::Ended | JobState::Dead { .. });
                prop_assert!(!final_(&state), "{state:?} accepted {request:?}");
                ends += u32::from(final_(&next));
                lost += u32::from(matches!(request, JobRequest::Lose { .. }));
                if let JobState::Begun { attempt, .. } = &next {
                    prop_assert!(*attempt <= max_attempts);
                    prop_assert_eq!(*attempt, lost + 1);
                }
                state = next;
            }
            prop_assert!(ends <= 1);
        }

        #[test]
        fn only_who_began_an_attempt_ends_it(attempt in 1..4_u32, of in 0..5_u32, by in 0..2_usize) {
            let state = JobState::Begun { attempt, worker: WORKERS[0].to_owned(), lease_ms: 0 };
            let right = attempt == of && by == 0;
            prop_assert_eq!(accept(&state, &JobRequest::Finish { worker: WORKERS[by], attempt: of }, 9).is_ok(), right);
            prop_assert_eq!(accept(&state, &JobRequest::GiveBack { worker: WORKERS[by], attempt: of }, 9).is_ok(), right);
            prop_assert_eq!(accept(&state, &JobRequest::Lose { attempt: of }, 9).is_ok(), attempt == of);
            prop_assert!(accept(&state, &JobRequest::Cancel, 9).is_err());
        }
    }

    #[test]
    fn one_that_was_given_back_has_all_its_attempts_and_a_dead_one_gets_them_again() {
        let begun =
            accept(&JobState::Waiting { attempt: 0 }, &JobRequest::Begin { worker: "w", lease_ms: 1 }, 1).unwrap();
        let back = accept(&begun, &JobRequest::GiveBack { worker: "w", attempt: 1 }, 1).unwrap();
        assert_eq!(back, JobState::Waiting { attempt: 0 });
        let dead = accept(&begun, &JobRequest::Lose { attempt: 1 }, 1).unwrap();
        assert_eq!(dead, JobState::Dead { attempt: 1 });
        assert_eq!(accept(&dead, &JobRequest::Revive, 1), Ok(JobState::Waiting { attempt: 0 }));
    }
}
