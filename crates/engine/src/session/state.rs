//! What may happen to a session, as one pure function. The state of its sandbox is another thing, which is
//! [`crate::backend`]'s: a session in any state can lose it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a session is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Its interpreter is being started; executions wait.
    Creating,
    /// It waits for an execution.
    Idle,
    /// An execution runs.
    Running,
    /// Everything in it stands still until it is resumed, or the next execution comes.
    Paused,
    /// It was ended on purpose; `reason` says by whom or what.
    Closed,
    /// Its sandbox went away; `reason` says why.
    Lost,
}

impl SessionState {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Closed | Self::Lost)
    }
}

/// What happens to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEvent {
    /// Its interpreter is loaded.
    Started,
    /// An execution begins.
    Begun,
    /// Nothing runs any more.
    Rested,
    /// Everything in it was made to stand still.
    Paused,
    /// It goes on.
    Resumed,
    /// Somebody does not want it any more, or its time is over.
    Closed,
    /// Its sandbox went away, or never came.
    Lost,
}

/// An event that a session in this state cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session that is {state:?} cannot be {event:?}")]
pub struct Refused {
    /// Where the session stays.
    pub state: SessionState,
    /// What it does not take.
    pub event: SessionEvent,
}

impl SessionState {
    /// The state after `event`.
    ///
    /// # Errors
    /// When a session in this state cannot take it.
    pub fn after(self, event: SessionEvent) -> Result<Self, Refused> {
        use SessionEvent::{Begun, Closed, Lost, Paused, Rested, Resumed, Started};
        match (self, event) {
            (Self::Creating, Started) | (Self::Running, Rested) | (Self::Paused, Resumed) => Ok(Self::Idle),
            (Self::Idle, Begun) => Ok(Self::Running),
            (Self::Idle, Paused) => Ok(Self::Paused),
            (state, Closed) if !state.is_final() => Ok(Self::Closed),
            (state, Lost) if !state.is_final() => Ok(Self::Lost),
            (state, event) => Err(Refused { state, event }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENTS: [SessionEvent; 7] = [
        SessionEvent::Started,
        SessionEvent::Begun,
        SessionEvent::Rested,
        SessionEvent::Paused,
        SessionEvent::Resumed,
        SessionEvent::Closed,
        SessionEvent::Lost,
    ];

    proptest! {
        #[test]
        fn a_session_starts_once_ends_once_and_runs_one_thing_at_a_time(
            events in prop::collection::vec(prop::sample::select(&EVENTS[..]), 0..60),
        ) {
            let mut state = SessionState::Creating;
            let (mut started, mut ended, mut running, mut paused) = (0, 0, 0, 0);
            for event in events {
                let Ok(next) = state.after(event) else { continue };
                prop_assert!(!state.is_final(), "{:?} took {:?}", state, event);
                started += u32::from(event == SessionEvent::Started);
                ended += u32::from(next.is_final());
                running += i32::from(event == SessionEvent::Begun) - i32::from(event == SessionEvent::Rested);
                paused += i32::from(event == SessionEvent::Paused) - i32::from(event == SessionEvent::Resumed);
                prop_assert!((0..=1).contains(&(running + paused)), "{:?}", next);
                if !next.is_final() {
                    prop_assert_eq!(next == SessionState::Running, running == 1);
                    prop_assert_eq!(next == SessionState::Paused, paused == 1);
                    prop_assert_eq!(next == SessionState::Creating, started == 0);
                }
                state = next;
            }
            prop_assert!(started <= 1 && ended <= 1);
        }
    }

    #[test]
    fn any_session_that_has_not_ended_can_be_closed_or_lost_and_none_twice() {
        use SessionState::{Closed, Creating, Idle, Lost, Paused, Running};
        for state in [Creating, Idle, Running, Paused] {
            assert_eq!(state.after(SessionEvent::Closed), Ok(Closed));
            assert_eq!(state.after(SessionEvent::Lost), Ok(Lost));
        }
        for state in [Closed, Lost] {
            assert!(EVENTS.iter().all(|event| state.after(*event) == Err(Refused { state, event: *event })));
        }
    }
}
