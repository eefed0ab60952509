//! Watches for what keeps CPUs from doing as much as they can (`host::cpu_throttle`).

use crate::host::cpu_throttle::{CpuThrottle, ThrottleReader, Throttled};

/// The least time between two readings, and between two reports of what they showed, ns.
const READ_EVERY: u64 = 100_000_000;
const REPORT_EVERY: u64 = 1_000_000_000;
/// CPUs that are watched: two files stay open for each.
const CPUS: usize = 32;

/// A reader and some of its readings; by default, of nothing.
#[derive(Debug, Default)]
pub(crate) struct Throttling {
    reader: ThrottleReader,
    first: Throttled,
    reported: Throttled,
    last: Throttled,
    before: Throttled,
    last_at: u64,
    reported_at: u64,
}

impl Throttling {
    /// Reads what throttles the process and the CPUs of a run.
    pub(crate) fn new(cpus: impl IntoIterator<Item = usize>) -> Self {
        let cpus: Vec<usize> = cpus.into_iter().take(CPUS).collect();
        let reader = ThrottleReader::new(&cpus);
        let [first, reported, last, before] = std::array::from_fn(|_| reader.read());
        Throttling { reader, first, reported, last, before, last_at: 0, reported_at: 0 }
    }

    /// Reads anew, unless that was just now and `at_once` is not set. Calls `find` with the time of
    /// the reading before and everything that has throttled CPUs since, and `limited` with that
    /// time and each CPU whose highest frequency is lower than at the start of the run.
    pub(crate) fn look(
        &mut self,
        now: u64,
        at_once: bool,
        mut find: impl FnMut(u64, CpuThrottle),
        mut limited: impl FnMut(u64, usize),
    ) {
        if !at_once && now.saturating_sub(self.last_at) < READ_EVERY {
            return;
        }
        self.before.copy(&self.last);
        self.reader.read_into(&mut self.last);
        let since = std::mem::replace(&mut self.last_at, now);
        self.reader.between(&self.before, &self.last).for_each(|found| find(since, found));
        self.reader.limited(&self.first, &self.last).for_each(|cpu| limited(since, cpu));
    }

    /// Calls `report` with everything that has throttled CPUs since the last report, at most once
    /// in a second.
    pub(crate) fn report(&mut self, now: u64, report: impl FnMut(CpuThrottle)) {
        let is_due = self.reported_at == 0 || now.saturating_sub(self.reported_at) >= REPORT_EVERY;
        if is_due && self.reported != self.last {
            self.reader.between(&self.reported, &self.last).for_each(report);
            self.reported.copy(&self.last);
            self.reported_at = now;
        }
    }

    /// What has throttled CPUs during the run, in words.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.reader.between(&self.first, &self.last).map(|found| found.to_string()).collect()
    }
}
