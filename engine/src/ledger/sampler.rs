//! Which of a source's bursts are recorded.

use crate::base::policy::Telemetry;

/// Of saturated bursts, one in this many is recorded, with at most this weight.
const ONE_IN: u32 = 16;

/// Decides which of a source's bursts are recorded; the decision travels with the messages.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    telemetry: Telemetry,
    count: u32,
    /// Bursts still recorded individually before `auto` starts sampling.
    whole: u32,
    /// When the last burst began.
    last: u64,
    /// Messages that no recorded burst has stood for yet. Bursts differ in size, so without this
    /// number the weights could add up to more messages than there were.
    owed: u64,
}

/// Bursts at least this far apart are all recorded, at negligible cost, ns.
const APART: u64 = 20_000;

impl Sampler {
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        let whole = if telemetry == Telemetry::Auto { ONE_IN } else { 0 };
        Sampler { telemetry, count: 0, whole, last: 0, owed: 0 }
    }

    /// The weight of the burst of `n` messages, 1 or more, that began at `now`; 0 if it is not
    /// recorded. It stands for messages of earlier bursts.
    #[inline]
    pub(crate) fn weight(&mut self, after_idle: bool, now: u64, n: u64) -> u32 {
        let is_apart = now.saturating_sub(self.last) >= APART;
        self.last = now;
        // Comparisons: a jump table would be one more cache line.
        if self.telemetry == Telemetry::Auto && (after_idle || is_apart) {
            (self.count, self.whole) = (0, ONE_IN - 1);
            1
        } else if self.telemetry == Telemetry::Full {
            1
        } else if self.telemetry == Telemetry::Off {
            0
        } else if self.whole > 0 {
            self.whole -= 1;
            1
        } else {
            let due = self.count == 0;
            self.count = (self.count + 1) % ONE_IN;
            self.owed += n;
            if !due {
                return 0;
            }
            let weight = (self.owed / n).min(u64::from(ONE_IN));
            self.owed -= weight * n;
            weight as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saturated_source_records_one_burst_in_sixteen_for_sixteen() {
        let mut sampler = Sampler::new(Telemetry::Auto);
        let mut now = 0;
        for (first, pause) in [(false, 1), (true, 1), (true, 1), (false, APART + 32)] {
            now += pause;
            let begun: Vec<u32> = (0..16).map(|n| sampler.weight(first && n == 0, now, 1)).collect();
            assert_eq!(begun, [1; 16]);
            let weights: Vec<u32> = (0..32).map(|n| sampler.weight(false, now + n, 1)).collect();
            assert_eq!(weights.iter().filter(|w| **w > 0).count(), 2);
        }
        let slow: Vec<u32> = (1..100).map(|n| sampler.weight(false, now + n * 2 * APART, 1)).collect();
        assert_eq!(slow, [1; 99]);
        let mut sampler = Sampler::new(Telemetry::Sampled);
        let slow: u32 = (1..=160).map(|n| u32::from(sampler.weight(false, n * APART, 1) > 0)).sum();
        assert_eq!(slow, 10);
        assert_eq!(Sampler::new(Telemetry::Off).weight(true, 0, 1), 0);
    }

    #[test]
    fn recorded_messages_stand_for_no_more_than_there_were() {
        type Size = fn(u64) -> u64;
        // The percentage that is counted at least: large bursts that only small ones stand for are
        // not.
        let sizes: [(Size, u64); 4] =
            [(|_| 1, 99), (|_| 64, 99), (|n| 1 + n * 7 % 61, 90), (|n| if n % 16 == 0 { 64 } else { 1 }, 99)];
        for telemetry in [Telemetry::Sampled, Telemetry::Auto] {
            for (size, percentage) in sizes {
                let mut sampler = Sampler::new(telemetry);
                let (mut all, mut stood_for) = (0, 0);
                for n in 0..10_000 {
                    all += size(n);
                    stood_for += size(n) * u64::from(sampler.weight(false, n, size(n)));
                    assert!(stood_for <= all, "{telemetry:?}, burst {n}: {stood_for} of {all}");
                }
                assert!(stood_for * 100 >= all * percentage, "{telemetry:?}: {stood_for} of {all}");
            }
        }
    }
}
