//! What is run: programs whose answer is known and different for each request, so that a wrong or mixed-up one shows.

use std::fmt::Write as _;
use std::sync::Arc;

use fastrand::Rng;

/// Name under which a program finds its file.
pub(super) const FILE: &str = "data.csv";
/// Rows of the table in `describe`.
const ROWS: u64 = 10_000;

/// One request and its only right answer.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) code: String,
    /// Content of [`FILE`].
    pub(super) file: Option<Arc<str>>,
    /// All of standard output.
    pub(super) expected: String,
}

/// A kind of program.
#[derive(Debug, Clone)]
pub(super) enum Program {
    /// One line.
    OneLine,
    /// `describe()` of a table that comes with the request.
    Describe(Table),
    /// A chart drawn and saved.
    Chart,
}

/// A table and what is known about it.
#[derive(Debug, Clone)]
pub(super) struct Table {
    csv: Arc<str>,
    largest: u64,
    sum: u64,
}

impl Table {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let mut csv = "id,region,amount,price,share\n".to_owned();
        let (mut largest, mut sum) = (0, 0);
        for id in 0..ROWS {
            let region = ["north", "east", "south", "west"][rng.usize(..4)];
            let (amount, price, share) = (rng.u64(..1_000_000), rng.f64() * 900.0, rng.f64());
            (largest, sum) = (amount.max(largest), sum + amount);
            // Writing into a string cannot fail.
            writeln!(csv, "{id},{region},{amount},{price:.2},{share:.5}").ok();
        }
        Self { csv: csv.into(), largest, sum }
    }
}

impl Program {
    /// The next request of this kind.
    pub(super) fn job(&self, rng: &mut Rng) -> Job {
        let (a, b) = (rng.u64(10_000..100_000_000), rng.u64(10_000..100_000_000));
        let token = a * b;
        match self {
            Self::OneLine => Job { code: format!("print({a}*{b})"), file: None, expected: format!("{token}\n") },
            Self::Describe(Table { csv, largest, sum }) => Job {
                code: format!(
                    "import pandas as pd\n\
                     table = pd.read_csv('{FILE}')\n\
                     summary = table.describe()\n\
                     print({a}*{b}, int(summary.loc['count', 'price']), int(summary.loc['max', 'amount']), \
                     int(table['amount'].sum()))"
                ),
                file: Some(Arc::clone(csv)),
                expected: format!("{token} {ROWS} {largest} {sum}\n"),
            },
            // Closed after saving: what is left open would be shown, which is drawing it a second time.
            Self::Chart => Job {
                code: format!(
                    "import io\n\
                     import numpy as np\n\
                     import matplotlib.pyplot as plt\n\
                     x = np.linspace(0, 20, 500)\n\
                     figure, axes = plt.subplots(figsize=(6, 4))\n\
                     axes.plot(x, np.sin(x), label='sine')\n\
                     axes.plot(x, np.exp(-x / 5), label='decay')\n\
                     axes.set_title('request {token}')\n\
                     axes.legend()\n\
                     png = io.BytesIO()\n\
                     figure.savefig(png, format='png', dpi=100)\n\
                     plt.close(figure)\n\
                     print({a}*{b}, png.getvalue()[1:4].decode(), len(png.getvalue()) > 5000)"
                ),
                file: None,
                expected: format!("{token} PNG True\n"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_asks_for_the_same_and_no_two_requests_are_alike() {
        let jobs = |seed| {
            let mut rng = Rng::with_seed(seed);
            (0..100).map(|_| Program::OneLine.job(&mut rng)).map(|job| (job.code, job.expected)).collect::<Vec<_>>()
        };
        assert_eq!(jobs(1), jobs(1));
        assert_ne!(jobs(1), jobs(2));
        let answers: std::collections::BTreeSet<_> = jobs(1).into_iter().map(|(_, expected)| expected).collect();
        assert_eq!(answers.len(), 100);
    }
}
