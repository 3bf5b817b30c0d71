//! What a sandbox was refused, counted.

use parking_lot::Mutex;

use crate::execution::Denial;

/// Different things noted at a time; a program can think of endlessly many.
const MOST: usize = 32;

/// What the programs of one sandbox were refused since somebody looked last. Noted before the program hears of it, so that whatever it says afterwards
/// comes later.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Vec<(Denial, u64)>>);

impl Refusals {
    /// Takes note of something; the same once more is counted.
    pub fn note(&self, denial: Denial) {
        let mut noted = self.0.lock();
        if let Some((_, times)) = noted.iter_mut().find(|(known, _)| *known == denial) {
            *times += 1;
        } else if noted.len() < MOST {
            noted.push((denial, 1));
        }
    }

    /// What there is, in the order in which it came first.
    pub fn take(&self) -> Vec<Denial> {
        let noted = std::mem::take(&mut *self.0.lock());
        noted.into_iter().map(counted).collect()
    }
}

fn counted((denial, times): (Denial, u64)) -> Denial {
    match times {
        1 => denial,
        _ => Denial { what: format!("{}, {times} times", denial.what), ..denial },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(what: impl Into<String>) -> Denial {
        Denial { kind: "syscall".to_owned(), what: what.into(), rule: String::new(), remedy: String::new() }
    }

    #[test]
    fn the_same_is_counted_and_the_rest_is_bounded() {
        let refusals = Refusals::default();
        for what in ["mount", "ptrace", "mount"] {
            refusals.note(denial(what));
        }
        let taken: Vec<_> = refusals.take().into_iter().map(|denial| denial.what).collect();
        assert_eq!(taken, ["mount, 2 times", "ptrace"]);
        assert!(refusals.take().is_empty());
        (0..1000).for_each(|number| refusals.note(denial(number.to_string())));
        assert_eq!(refusals.take().len(), MOST);
    }
}
