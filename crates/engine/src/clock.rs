//! Time, injected.

use time::OffsetDateTime;
use time::macros::format_description;

/// Tells the wall-clock time; durations are measured with [`std::time::Instant`].
pub trait Clock: Send + Sync {
    /// Now, in UTC.
    fn now(&self) -> OffsetDateTime;

    /// Now, as RFC 3339 text with milliseconds.
    fn stamp(&self) -> String {
        text(self.now())
    }

    /// So long from now, in the same form.
    fn stamp_after(&self, duration: std::time::Duration) -> String {
        text(self.now() + duration)
    }
}

fn text(time: OffsetDateTime) -> String {
    let form = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    time.format(form).unwrap_or_default()
}

/// A time of a file, in seconds since 1970 and nanoseconds, in the same form.
#[must_use]
pub fn stamp_of(seconds: i64, nanoseconds: u32) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).and_then(|time| time.replace_nanosecond(nanoseconds));
    text(time.unwrap_or(OffsetDateTime::UNIX_EPOCH))
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
