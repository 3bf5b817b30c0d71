//! Time, injected.

use time::OffsetDateTime;
use time::macros::format_description;

/// Tells the wall-clock time; durations are measured with [`std::time::Instant`].
pub trait Clock: Send + Sync {
    /// Now, in UTC.
    fn now(&self) -> OffsetDateTime;

    /// Now, as RFC 3339 text with milliseconds.
    fn stamp(&self) -> String {
        let form = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
        self.now().format(form).unwrap_or_default()
    }
}

/// The system's clock.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the system")]
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }
}
