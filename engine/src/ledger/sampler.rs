//! Which of a source's bursts are recorded.

use crate::base::policy::Telemetry;

/// Of saturated bursts, one in this many is recorded, with this weight.
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
}

/// Bursts at least this far apart are all recorded, at negligible cost, ns.
const APART: u64 = 20_000;

impl Sampler {
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        let whole = if telemetry == Telemetry::Auto { ONE_IN } else { 0 };
        Sampler { telemetry, count: 0, whole, last: 0 }
    }

    /// The weight of the burst that began at `now`; 0 if it is not recorded.
    #[inline]
    pub(crate) fn weight(&mut self, after_idle: bool, now: u64) -> u32 {
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
            if due { ONE_IN } else { 0 }
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
            let begun: Vec<u32> = (0..16).map(|n| sampler.weight(first && n == 0, now)).collect();
            assert_eq!(begun, [1; 16]);
            let weights: Vec<u32> = (0..32).map(|n| sampler.weight(false, now + n)).collect();
            assert_eq!(weights.iter().sum::<u32>(), 32);
            assert_eq!(weights.iter().filter(|w| **w > 0).count(), 2);
        }
        let slow: Vec<u32> = (1..100).map(|n| sampler.weight(false, now + n * 2 * APART)).collect();
        assert_eq!(slow, [1; 99]);
        let mut sampler = Sampler::new(Telemetry::Sampled);
        let slow: u32 = (1..=160).map(|n| u32::from(sampler.weight(false, n * APART) > 0)).sum();
        assert_eq!(slow, 10);
        assert_eq!(Sampler::new(Telemetry::Off).weight(true, 0), 0);
    }
}
