//! What the kernel says of a thread: the CPU time it used, when it did not run and why, and the
//! pages it was given.

use crate::host::files::open_system;
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Reads the usage of the thread that made it.
#[derive(Debug)]
pub(crate) struct UsageReader {
    /// `None` if the kernel counts no waits for a CPU.
    waits: Option<File>,
}

impl UsageReader {
    /// Opens what the calling thread reads.
    pub(crate) fn new() -> Self {
        UsageReader { waits: open_system("/proc/thread-self/schedstat").ok() }
    }

    /// How long the thread was ready and waited for a CPU, ns.
    fn waited_ns(&self) -> Option<u64> {
        let mut text = [0; 96];
        let length = self.waits.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

/// The usage of a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadUsage {
    /// Time on a CPU, ns.
    pub(crate) cpu_ns: u64,
    /// How long it was ready and waited for a CPU, ns; 0 if the kernel does not say.
    pub(crate) waited_ns: u64,
    /// How often it waited in the kernel, and how often the kernel took the CPU away.
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
    /// Pages it was given without and with a read from a disk.
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    /// The CPU it runs on.
    pub(crate) cpu: usize,
}

impl UsageReader {
    /// Asks the kernel: three system calls. `None` if it does not say.
    pub(crate) fn read(&self) -> Option<ThreadUsage> {
        // Miri knows none of these calls.
        if cfg!(miri) {
            return None;
        }
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        let number = |value: i64| u64::try_from(value).unwrap_or_default();
        Some(ThreadUsage {
            cpu_ns: number(time.tv_sec()) * 1_000_000_000 + number(time.tv_nsec()),
            waited_ns: self.waited_ns().unwrap_or_default(),
            voluntary: number(usage.voluntary_context_switches()),
            involuntary: number(usage.involuntary_context_switches()),
            minor_faults: number(usage.minor_page_faults()),
            major_faults: number(usage.major_page_faults()),
            cpu: nix::sched::sched_getcpu().unwrap_or_default(),
        })
    }
}

impl ThreadUsage {
    /// Returns what was used since `then`; the CPU remains.
    pub(crate) fn since(&self, then: &ThreadUsage) -> ThreadUsage {
        ThreadUsage {
            cpu_ns: self.cpu_ns.saturating_sub(then.cpu_ns),
            waited_ns: self.waited_ns.saturating_sub(then.waited_ns),
            voluntary: self.voluntary.saturating_sub(then.voluntary),
            involuntary: self.involuntary.saturating_sub(then.involuntary),
            minor_faults: self.minor_faults.saturating_sub(then.minor_faults),
            major_faults: self.major_faults.saturating_sub(then.major_faults),
            cpu: self.cpu,
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_touches_memory_and_yields_its_cpu_is_seen() {
        let reader = UsageReader::new();
        let before = reader.read().expect("Linux says it");
        // Beyond the sizes that an allocator keeps for later: other tests may have touched its
        // pages.
        let mut pages = vec![0_u8; 34 << 20];
        pages.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&pages);
        let (send, receive) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || receive.recv().map(|()| std::thread::current().id()));
        send.send(()).expect("it waits");
        other.join().expect("no panic").expect("a message");
        let used = reader.read().expect("Linux says it").since(&before);
        assert!(used.cpu_ns > 0);
        assert!(used.minor_faults > 0, "{used:?}");
    }
}
