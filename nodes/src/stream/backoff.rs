//! When to try again what has failed: after 0.1 s, twice as long after each further failure, 5 s at most.

use limen::Time;
use std::hash::{DefaultHasher, Hash, Hasher};

/// After the first failure, ns.
const FIRST: u64 = 100_000_000;
/// After many, ns.
const LONGEST: u64 = 5_000_000_000;

/// Says when to try again. Each time is drawn from a half of the step up to the whole, so that many who lost the same
/// partner do not come back at the same moment.
#[derive(Debug)]
pub(crate) struct Backoff {
    step: u64,
    random: fastrand::Rng,
}

impl Backoff {
    /// One for a node; what it draws depends on the node's name and on when it was built.
    pub(crate) fn new(node: &str, now: Time) -> Self {
        let mut hasher = DefaultHasher::new();
        (node, now.0).hash(&mut hasher);
        Backoff { step: FIRST, random: fastrand::Rng::with_seed(hasher.finish()) }
    }

    /// It has failed: when to try again.
    pub(crate) fn after(&mut self, now: Time) -> Time {
        let step = self.step;
        self.step = (step * 2).min(LONGEST);
        now + self.random.u64(step / 2..=step)
    }

    /// It has worked.
    pub(crate) fn reset(&mut self) {
        self.step = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_up_to_5_s_and_begin_anew() {
        let mut backoff = Backoff::new("a", Time(7));
        let steps = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000];
        for round in 0..2 {
            for step in steps {
                let step = step * 1_000_000;
                let waited = backoff.after(Time(1_000)).since(Time(1_000));
                assert!((step / 2..=step).contains(&waited), "round {round}: {waited} of {step}");
            }
            backoff.reset();
        }
    }

    #[test]
    fn two_nodes_do_not_come_back_together() {
        let drawn = |node| Backoff::new(node, Time(7)).after(Time(0));
        assert_ne!(drawn("a"), drawn("b"));
        assert_eq!(drawn("a"), drawn("a"));
    }
}
