//! The limits of a trial: those requested, else limits that follow from the model's size.

use limen::policy::Trials;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::Duration;

/// The largest items of a call that limits are computed for.
const MAX_ITEMS: u64 = 1 << 30;

/// The limits that the user requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RequestedLimits {
    /// The largest model: others are refused.
    size: u64,
    memory: Option<u64>,
    cpu: Option<Duration>,
    wall: Option<Duration>,
}

/// The limits of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes.
    pub(super) memory: u64,
    pub(super) cpu: Duration,
    pub(super) wall: Duration,
}

/// The calls of a trial, from which its limits follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrialCalls {
    /// Runtimes that load the model.
    pub(super) runtimes: u64,
    pub(super) threads: u64,
    /// Items in a call.
    pub(super) items: u64,
    /// Bytes of an item, as far as they are known.
    pub(super) item: u64,
}

impl RequestedLimits {
    pub(super) fn new(trials: &Trials) -> Self {
        let &Trials { memory, cpu, wall, .. } = trials;
        RequestedLimits { size: trials.max_size(), memory, cpu, wall }
    }

    /// Returns the largest size of a model's files.
    pub(super) fn max_size(&self) -> u64 {
        self.size
    }

    pub(super) fn is_memory_asked(&self) -> bool {
        self.memory.is_some()
    }

    /// Returns the limits for a model of `size` bytes, as far as the size is known by now.
    ///
    /// Runtimes hold a model's weights several times while they rewrite and pack them, and its
    /// intermediate tensors. The models tried needed less than a tenth of these limits.
    pub(super) fn of(&self, size: u64, calls: TrialCalls) -> Limits {
        let size = size.min(self.size);
        // The intermediate tensors of a small convolution of a large image are many times the
        // image.
        let input = calls.item.saturating_mul(calls.items).min(MAX_ITEMS);
        let weights = size.saturating_mul(16 * calls.runtimes);
        let memory = (1u64 << 30).saturating_add(weights);
        let memory = memory.saturating_add(calls.items.saturating_sub(1).saturating_mul(128 << 20));
        let memory = memory.saturating_add(128 * input);
        let seconds = (10 + (size >> 20) + (input >> 20)).saturating_mul(calls.runtimes);
        Limits {
            memory: self.memory.unwrap_or_else(|| memory.min(all_memory())),
            cpu: self.cpu.unwrap_or(Duration::from_secs(seconds.saturating_mul(calls.threads))),
            wall: self.wall.unwrap_or(Duration::from_secs(seconds.saturating_mul(3))),
        }
    }

    /// Returns the limits for the largest model.
    pub(super) fn most(&self, calls: TrialCalls) -> Limits {
        self.of(self.size, calls)
    }
}

/// Returns the machine's memory in bytes: a trial that needs more fails an allocation before the
/// kernel kills a process.
fn all_memory() -> u64 {
    // Limits are computed for each line of a trial's output; this never changes.
    static ALL: OnceLock<u64> = OnceLock::new();
    *ALL.get_or_init(|| {
        let text = limen::files::system_text("/proc/meminfo").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        kib.map_or(u64::MAX, |kib| kib * 1024)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_from_the_size_unless_they_are_requested() {
        let calls = TrialCalls { runtimes: 1, threads: 1, items: 1, item: 0 };
        let limits = |trials: Trials| RequestedLimits::new(&trials);
        let small = limits(Trials::default()).of(0, calls);
        assert_eq!((small.cpu, small.wall), (Duration::from_secs(10), Duration::from_secs(30)));
        let large = limits(Trials::default()).of(100 << 20, TrialCalls { runtimes: 2, threads: 4, ..calls });
        assert_eq!((large.cpu, large.wall), (Duration::from_secs(880), Duration::from_secs(660)));
        assert!(large.memory > small.memory || large.memory == all_memory());
        // Three planes of 1080 by 1920.
        let picture = limits(Trials::default()).of(0, TrialCalls { item: 24_883_200, ..calls });
        assert!(picture.memory > 4_000_000_000 || picture.memory == all_memory());
        assert_eq!(picture.cpu, Duration::from_secs(33));
        assert_eq!(limits(Trials::default()).of(u64::MAX, calls), limits(Trials::default()).most(calls));
        let asked = Trials { memory: Some(7), wall: Some(Duration::from_secs(1)), ..Trials::default() };
        let asked = limits(asked).of(0, calls);
        let large = limits(Trials { size: Some(3 << 30), ..Trials::default() });
        assert_eq!(large.of(3 << 30, calls).cpu, Duration::from_secs(10 + 3072));
        assert_eq!(large.of(u64::MAX, calls), large.most(calls));
        assert_eq!((asked.memory, asked.cpu, asked.wall), (7, small.cpu, Duration::from_secs(1)));
    }
}
