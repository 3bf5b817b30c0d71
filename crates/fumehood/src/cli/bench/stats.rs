//! From single measurements to the figures that are shown.

use serde::Serialize;

/// What one run of one thing measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    /// One value for each answer, in the unit of the figure.
    pub(super) values: Vec<f64>,
    /// Seconds in which they came, for the rate.
    pub(super) seconds: f64,
    /// Answers that were missing or wrong.
    pub(super) errors: u64,
    /// The first of them, in words.
    pub(super) complaints: Vec<String>,
}

impl Run {
    /// Notes a missing or wrong answer.
    pub(super) fn complain(&mut self, what: impl Into<String>) {
        const MOST: usize = 5;
        self.errors += 1;
        if self.complaints.len() < MOST {
            self.complaints.push(what.into());
        }
    }
}

/// A run, or the median of several, field by field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) errors: u64,
    pub(super) min: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
    /// Answers a second.
    pub(super) rate: f64,
}

impl Summary {
    pub(super) fn of(run: &Run) -> Self {
        let mut sorted = run.values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share| percentile(&sorted, share);
        Self {
            count: sorted.len() as u64,
            errors: run.errors,
            min: at(0.0),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
            rate: if run.seconds > 0.0 { sorted.len() as f64 / run.seconds } else { 0.0 },
        }
    }

    /// The median of each figure over several runs; counts and errors are added.
    pub(super) fn median_of(runs: &[Self]) -> Self {
        let mid = |field: fn(&Self) -> f64| median(runs.iter().map(field).collect());
        Self {
            count: runs.iter().map(|run| run.count).sum(),
            errors: runs.iter().map(|run| run.errors).sum(),
            min: mid(|run| run.min),
            p50: mid(|run| run.p50),
            p90: mid(|run| run.p90),
            p99: mid(|run| run.p99),
            max: mid(|run| run.max),
            rate: mid(|run| run.rate),
        }
    }
}

/// The smallest value that is not below this share of all (nearest rank: always a value that was measured). 0 of nothing.
pub(super) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// The middle value, or the mean of the two in the middle. 0 of nothing.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (length, middle) if length % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        let at = [0.0, 0.5, 0.9, 0.99, 1.0].map(|share| percentile(&hundred, share));
        assert_eq!(at, [1.0, 50.0, 90.0, 99.0, 100.0]);
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 0.5), 2.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn the_median_of_runs_is_taken_figure_by_figure() {
        assert_eq!([vec![], vec![3.0, 1.0, 2.0], vec![4.0, 1.0]].map(median), [0.0, 2.0, 2.5]);
        let run = |p50, max| Summary { count: 2, errors: 1, p50, max, ..Summary::default() };
        let all = Summary::median_of(&[run(1.0, 90.0), run(3.0, 10.0), run(2.0, 20.0)]);
        assert_eq!((all.count, all.errors, all.p50, all.max), (6, 3, 2.0, 20.0));
    }

    #[test]
    fn the_rate_is_of_right_answers_only() {
        let mut run = Run { values: vec![1.0; 10], seconds: 2.0, ..Run::default() };
        run.complain("wrong");
        assert_eq!((Summary::of(&run).rate, Summary::of(&run).errors), (5.0, 1));
    }
}
