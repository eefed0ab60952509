//! The CPU time of a process's threads. The kernel keeps it, so the run is not asked.

use limen::files::system_text;
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// The most threads that are looked at.
const THREADS: usize = 4096;
/// The bytes that Linux keeps of a thread's name.
const NAME: usize = 15;

/// The CPU time of threads, ns, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadTimes {
    at: Option<Instant>,
    used: BTreeMap<String, u64>,
}

impl ThreadTimes {
    /// Reads those of a process; none if it is not to be seen from here.
    pub(crate) fn read(pid: u32) -> Self {
        let mut used: BTreeMap<String, u64> = BTreeMap::new();
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().take(THREADS);
        for thread in threads {
            let text = |file: &str| system_text(thread.path().join(file)).ok();
            let time = text("schedstat").and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
            if let (Some(name), Some(time)) = (text("comm"), time) {
                *used.entry(name.trim_end().into()).or_default() += time;
            }
        }
        ThreadTimes { at: Some(Instant::now()), used }
    }

    /// The part of a CPU that a thread has used since `before`.
    pub(crate) fn used(&self, name: &str, before: &ThreadTimes) -> Option<f64> {
        let name = name.get(..NAME).unwrap_or(name);
        let within = self.at?.saturating_duration_since(before.at?).as_nanos();
        // One that was not there before has begun since.
        let used = self.used.get(name)?.saturating_sub(before.used.get(name).copied().unwrap_or(0));
        (within > 0).then(|| used as f64 / within as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::TryRecvError;

    #[test]
    fn a_thread_that_works_is_seen() {
        let worker = std::thread::Builder::new().name("top-test-works".into());
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let worker = worker.spawn(move || while stopped.try_recv() != Err(TryRecvError::Disconnected) {}).unwrap();
        let read = || ThreadTimes::read(std::process::id());
        let end = Instant::now() + std::time::Duration::from_secs(60);
        let before = read();
        let mut now = read();
        while now.used("top-test-works", &before).is_none_or(|used| used == 0.0) {
            now = read();
            assert!(Instant::now() < end, "{now:?}");
        }
        assert_eq!(now.used("none", &before), None);
        assert!(ThreadTimes::read(0).used.is_empty());
        drop(stop);
        worker.join().unwrap();
    }
}
