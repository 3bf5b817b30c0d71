//! Time, injected.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Tells the wall-clock time; durations are measured with [`std::time::Instant`].
pub trait Clock: Send + Sync {
    /// Now, in UTC.
    fn now(&self) -> OffsetDateTime;

    /// Now, as RFC 3339 text with milliseconds.
    fn stamp(&self) -> String {
        let now = self.now();
        now.replace_millisecond(now.millisecond()).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
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
