//! What a worker did when: the entries of its log, its turns and its sleeps, in pages that a reader
//! takes while the run goes on.
//!
//! Pages are allocated at the start. While none is free, what would have been written is counted.

use crate::host::sync::{Arc, AtomicU64, Ordering};
use crossbeam_queue::ArrayQueue;

/// Entries of a page, and pages of a worker.
const ENTRIES: usize = 2048;
const PAGES: usize = 8;
/// A page that is not full is handed over when it is this old, ns.
const OLD_NS: u64 = 100_000_000;

/// What an entry tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// What was recorded in a histogram of the worker, by its index.
    Recorded(u32),
    /// A turn of a node in which something moved.
    Turn(u32),
    /// The worker slept.
    Sleep,
}

/// A time of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanEntry {
    pub(crate) activity: Activity,
    pub(crate) messages: u32,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// Bytes of a worker's pages, for the plan's memory total.
pub(crate) fn pages_bytes() -> usize {
    PAGES * ENTRIES * size_of::<SpanEntry>()
}

/// The pages of a worker, shared with the reader.
pub(crate) struct Pages {
    free: ArrayQueue<Vec<SpanEntry>>,
    full: ArrayQueue<Vec<SpanEntry>>,
    lost: AtomicU64,
}

impl Pages {
    pub(crate) fn new() -> Self {
        let (free, full) = (ArrayQueue::new(PAGES), ArrayQueue::new(PAGES));
        (0..PAGES).for_each(|_| _ = free.push(Vec::with_capacity(ENTRIES)));
        Pages { free, full, lost: AtomicU64::new(0) }
    }

    /// Gives every entry of the pages that are full to `take`.
    pub(crate) fn read(&self, mut take: impl FnMut(SpanEntry)) {
        while let Some(mut page) = self.full.pop() {
            page.drain(..).for_each(&mut take);
            let _ = self.free.push(page);
        }
    }

    /// Entries that found no free page, since the last call.
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

/// The worker's end.
pub(crate) struct SpanWriter {
    pages: Arc<Pages>,
    page: Option<Vec<SpanEntry>>,
    begun: u64,
}

impl SpanWriter {
    pub(crate) fn new(pages: Arc<Pages>) -> Self {
        SpanWriter { pages, page: None, begun: 0 }
    }

    /// Writes an entry, or counts it.
    pub(crate) fn write(&mut self, entry: SpanEntry) {
        if self.page.is_none() {
            self.page = self.pages.free.pop();
            self.begun = entry.end;
        }
        let Some(page) = &mut self.page else {
            self.pages.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        page.push(entry);
        if page.len() == ENTRIES || entry.end.saturating_sub(self.begun) > OLD_NS {
            self.hand_over();
        }
    }

    /// Hands the page over, full or not.
    pub(crate) fn hand_over(&mut self) {
        if let Some(page) = self.page.take() {
            // There are no more pages than the queue holds.
            let _ = self.pages.full.push(page);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_page_is_counted_and_what_found_one_is_read_once() {
        let pages = Arc::new(Pages::new());
        let mut writer = SpanWriter::new(pages.clone());
        let room = (PAGES * ENTRIES) as u64;
        let write = |writer: &mut SpanWriter, n: u64| {
            for at in 0..n {
                writer.write(SpanEntry { activity: Activity::Sleep, messages: 0, begin: at, end: at + 1 });
            }
        };
        write(&mut writer, room + 5);
        let (mut read, mut last) = (0, None);
        pages.read(|entry| {
            assert!(last < Some(entry.begin));
            last = Some(entry.begin);
            read += 1;
        });
        assert_eq!((read, pages.take_lost(), pages.take_lost()), (room, 5, 0));
        write(&mut writer, 3);
        pages.read(|_| unreachable!("the page is neither full nor old"));
        writer.write(SpanEntry { activity: Activity::Sleep, messages: 0, begin: 0, end: OLD_NS + 2 });
        pages.read(|_| read += 1);
        assert_eq!((read, pages.take_lost()), (room + 4, 0));
    }
}
