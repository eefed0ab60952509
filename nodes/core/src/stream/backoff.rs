//! Exponential backoff: 0.1 s after the first failure, doubled by each further one, 5 s at most.

use limen::Time;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The delay after the first failure, ns.
const FIRST: u64 = 100_000_000;
/// The longest delay, ns.
const LONGEST: u64 = 5_000_000_000;

/// Decides when to retry. Each delay is drawn at random from half the step to the whole step, so
/// that many nodes that lost the same peer do not reconnect at the same moment.
#[derive(Debug)]
pub(crate) struct Backoff {
    step: u64,
    random: fastrand::Rng,
}

impl Backoff {
    /// Creates the backoff of a node, seeded by the node's name and by when it was built.
    pub(crate) fn new(node: &str, now: Time) -> Self {
        let mut hasher = DefaultHasher::new();
        (node, now.0).hash(&mut hasher);
        Backoff { step: FIRST, random: fastrand::Rng::with_seed(hasher.finish()) }
    }

    /// Records a failure and returns when to retry.
    pub(crate) fn after(&mut self, now: Time) -> Time {
        let step = self.step;
        self.step = (step * 2).min(LONGEST);
        now + self.random.u64(step / 2..=step)
    }

    /// Records a success: the next failure starts with the shortest delay.
    pub(crate) fn reset(&mut self) {
        self.step = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_5_s_and_start_over_after_a_success() {
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
    fn two_nodes_do_not_retry_at_the_same_time() {
        let drawn = |node| Backoff::new(node, Time(7)).after(Time(0));
        assert_ne!(drawn("a"), drawn("b"));
        assert_eq!(drawn("a"), drawn("a"));
    }
}
