//! The memory that a single message touches on its way through a worker.
//!
//! While a worker sleeps, its memory leaves the nearest caches and the table of its pages. A
//! message then waits for one line after the other. Fetched together, they arrive in the time of a
//! few.

use crate::host::instructions::prefetch;
use std::collections::HashSet;

/// Bytes of a cache line: of x86-64 and most of aarch64. Where lines are longer, some are named
/// twice.
const LINE: usize = 64;
/// Most bytes of a value that count: one that is larger is seldom touched whole.
const MOST_OF_VALUE: usize = 2048;
/// Most lines of a footprint. More would take longer to fetch than a message takes, and displace
/// each other.
const MOST: usize = 512;

/// Lines of the stack below the caller's frame that are fetched as well.
const STACK: usize = 16;

/// The addresses of cache lines, collected once: nothing is read to find them.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    lines: Vec<usize>,
    seen: HashSet<usize>,
}

impl Footprint {
    /// Adds the first `bytes` of what lies at an address. What is freed or moved later does no
    /// harm.
    pub(crate) fn add<T: ?Sized>(&mut self, at: *const T, bytes: usize) {
        self.add_at(at.addr(), bytes);
    }

    fn add_at(&mut self, at: usize, bytes: usize) {
        let first = at / LINE;
        // An empty list has no memory, and an address below a line.
        let lines = if bytes == 0 || first == 0 { 0 } else { (at % LINE + bytes).div_ceil(LINE) };
        for line in first..first + lines {
            if self.lines.len() < MOST && self.seen.insert(line) {
                self.lines.push(line * LINE);
            }
        }
    }

    /// Adds the cache lines of a value, of a large one the first.
    pub(crate) fn add_value<T: ?Sized>(&mut self, value: &T) {
        self.add(value, size_of_val(value).min(MOST_OF_VALUE));
    }

    /// Ends the collection.
    pub(crate) fn settle(&mut self) {
        self.seen = HashSet::new();
        self.lines.shrink_to_fit();
    }

    /// Starts to load all lines, and the part of the stack that deeper calls will use.
    #[inline(never)]
    pub(crate) fn fetch(&self) {
        self.lines.iter().for_each(|line| prefetch(*line));
        let here = 0_u8;
        (0..STACK).for_each(|line| prefetch((&raw const here).addr().wrapping_sub(line * LINE)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_named_once_and_there_are_not_too_many() {
        let mut footprint = Footprint::default();
        let memory = vec![0_u8; 2 * MOST * LINE];
        let start = memory.as_ptr().align_offset(LINE);
        let at = |offset: usize| memory[start + offset..].as_ptr();
        for (offset, bytes, lines) in [(0, 1, 1), (10, 54, 1), (10, 55, 2), (60, 8, 2), (130, 0, 2), (128, 128, 4)] {
            footprint.add(at(offset), bytes);
            assert_eq!(footprint.lines.len(), lines, "{bytes} bytes at {offset}");
        }
        footprint.fetch();
        footprint.add(at(0), MOST * LINE + 1);
        assert_eq!(footprint.lines.len(), MOST);
        footprint.settle();
        assert!(footprint.lines.iter().all(|line| line % LINE == 0));
        footprint.fetch();
    }
}
