//! How much of the host's processor one sandbox may spend with what it sends.
//!
//! Frames cost next to nothing to send and something to take in: a guest that sends without pause would keep a thread of the host
//! busy for as long as it likes. So the time that taking them in costs is measured by the processor clock of the thread that does it,
//! and paid from a bucket: [`AT_ONCE`] is in it at first and at most, and it fills with a [`PART`]th of one processor. While it is
//! empty frames stay in the socket, which makes the guest wait; output, the end, the deadline and cancellations are served as ever.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// What may be spent at once: more than the largest figures of an honest program cost.
const AT_ONCE: Duration = Duration::from_millis(500);
/// The bucket fills with this part of one processor.
const PART: u32 = 10;
/// So much is to be there again before more is taken in, so that a guest in debt does not wake a thread for every frame.
const QUANTUM: Duration = Duration::from_millis(5);

/// The bucket of one sandbox.
#[derive(Debug)]
pub(super) struct Share {
    /// When it is full again if nothing more is spent; it may be in debt until then.
    full: Instant,
    /// Nothing more is taken in before this.
    shut: Option<Instant>,
}

impl Share {
    pub(super) fn new(now: Instant) -> Self {
        Self { full: now, shut: None }
    }

    /// Pays for what has been done, even if that was more than there was.
    pub(super) fn spend(&mut self, cost: Duration, now: Instant) {
        self.full = self.full.max(now) + cost * PART;
        let filling = self.full - now;
        self.shut = filling.checked_sub(AT_ONCE * PART).map(|owed| now + owed + QUANTUM * PART);
    }

    /// When more may be taken in; `None` for at once.
    pub(super) fn again(&self, now: Instant) -> Option<Instant> {
        self.shut.filter(|shut| *shut > now)
    }
}

/// Processor time that this thread has used so far.
pub(super) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Takes frames in for so long, each for a millisecond of the processor, as fast as the share allows; what was spent.
    fn flood(share: &mut Share, begun: Instant, lasts: Duration) -> Duration {
        let (mut now, mut spent) = (begun, Duration::ZERO);
        while now < begun + lasts {
            match share.again(now) {
                Some(again) => now = again,
                None => {
                    now += MILLISECOND;
                    spent += MILLISECOND;
                    share.spend(MILLISECOND, now);
                }
            }
        }
        spent
    }

    #[test]
    fn a_flood_gets_half_a_second_and_then_a_tenth_of_one_processor() {
        let begun = Instant::now();
        let mut share = Share::new(begun);
        let first = flood(&mut share, begun, Duration::from_secs(10));
        assert!((1400..=1600).contains(&first.as_millis()), "{first:?}");
        let later = flood(&mut share, begun + Duration::from_secs(10), Duration::from_secs(100));
        assert!((9_800..=10_200).contains(&later.as_millis()), "{later:?}");
    }

    #[test]
    fn what_costs_little_never_waits() {
        let begun = Instant::now();
        let mut share = Share::new(begun);
        for turn in 1..10_000 {
            let now = begun + 20 * MILLISECOND * turn;
            assert_eq!(share.again(now), None);
            share.spend(MILLISECOND, now);
        }
    }

    #[test]
    fn one_large_piece_is_taken_whole_and_worked_off() {
        let begun = Instant::now();
        let mut share = Share::new(begun);
        share.spend(1500 * MILLISECOND, begun);
        // A second is owed.
        assert_eq!(share.again(begun), Some(begun + 1005 * MILLISECOND * 10));
        assert_eq!(share.again(begun + Duration::from_secs(11)), None);
    }

    #[test]
    fn a_rest_fills_it_no_further_than_at_first() {
        let begun = Instant::now();
        let mut share = Share::new(begun);
        share.spend(AT_ONCE, begun);
        let later = begun + Duration::from_secs(3600);
        share.spend(AT_ONCE - MILLISECOND, later);
        assert_eq!(share.again(later), None);
        share.spend(MILLISECOND, later);
        assert_eq!(share.again(later), Some(later + QUANTUM * PART));
    }

    #[test]
    fn work_of_this_thread_is_counted_and_waiting_is_not() {
        let before = processor_time();
        std::thread::sleep(20 * MILLISECOND);
        assert!(processor_time() - before < 15 * MILLISECOND);
        let begun = Instant::now();
        while processor_time() - before < 20 * MILLISECOND {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
    }
}
