//! Copies of a worker's histograms for a reader: only the blocks of counts in which something was
//! recorded.
//!
//! A copy has for each histogram, in the order of the worker, the number of its blocks and how many
//! of its counts are estimated, then for each block its place and its counts. Most counts of a
//! histogram are never used: a copy of all takes as much memory as the histograms, in pages that
//! are touched only as far as it is written.

use crate::ledger::buckets::{BLOCK, Buckets, counts_of, record_block};
use crate::ledger::{Counts, Recorded};

/// Words of a histogram in front of its blocks.
const HEAD: usize = 2;

/// Counts looked at between two pauses of a copy: 32 KiB, a few µs.
const PIECE: usize = 4096;

/// The most words that a histogram takes in a copy.
pub(crate) fn copied_words(digits: u8) -> usize {
    HEAD + counts_of(digits) / BLOCK * (BLOCK + 1)
}

/// The most bytes that a histogram takes in a copy.
pub(crate) fn copy_bytes(digits: u8) -> usize {
    copied_words(digits) * size_of::<u64>()
}

/// A copy of all histograms in progress.
pub(crate) struct Copying {
    to: Box<[u64]>,
    written: usize,
    hist: usize,
    /// Blocks of the histogram that were looked at, and where its head is.
    block: usize,
    head: usize,
}

impl Copying {
    pub(crate) fn new(to: Box<[u64]>) -> Self {
        Copying { to, written: 0, hist: 0, block: 0, head: 0 }
    }

    pub(crate) fn into_words(self) -> Box<[u64]> {
        self.to
    }

    /// Copies the next piece of the histograms; true if that was the last.
    pub(super) fn copy_piece(&mut self, hists: &[Buckets]) -> bool {
        let mut left = PIECE;
        while let Some(buckets) = hists.get(self.hist) {
            if left == 0 {
                return false;
            }
            if self.block == 0 {
                self.head = self.written;
                self.to[self.head] = 0;
                self.written += HEAD;
            }
            let counts = buckets.counts_in_use().get(self.block * BLOCK..).unwrap_or_default();
            let looked = counts.len().min(left);
            for (at, block) in counts[..looked].chunks_exact(BLOCK).enumerate() {
                if *block != [0; BLOCK] {
                    self.to[self.written] = (self.block + at) as u64;
                    self.to[self.written + 1..][..BLOCK].copy_from_slice(block);
                    self.to[self.head] += 1;
                    self.written += BLOCK + 1;
                }
            }
            self.block += looked / BLOCK;
            left = left.saturating_sub(looked.max(BLOCK));
            if looked == counts.len() {
                self.to[self.head + 1] = buckets.stood_for;
                (self.hist, self.block) = (self.hist + 1, 0);
            }
        }
        true
    }
}

/// Reads the histograms of a copy one after the other; those of an empty one have no counts.
pub(crate) struct Copies<'a>(pub(crate) &'a [u64]);

impl<'a> Iterator for Copies<'a> {
    type Item = CopiedHistogram<'a>;

    fn next(&mut self) -> Option<CopiedHistogram<'a>> {
        let [blocks, stood_for, rest @ ..] = self.0 else {
            return Some(CopiedHistogram { blocks: &[], stood_for: 0 });
        };
        let (blocks, rest) = rest.split_at(*blocks as usize * (BLOCK + 1));
        self.0 = rest;
        Some(CopiedHistogram { blocks, stood_for: *stood_for })
    }
}

/// A histogram in a copy.
pub(crate) struct CopiedHistogram<'a> {
    blocks: &'a [u64],
    stood_for: u64,
}

impl<'a> CopiedHistogram<'a> {
    /// The blocks with their places, in ascending order.
    fn blocks(&self) -> impl Iterator<Item = (u64, &'a [u64])> + use<'a> {
        self.blocks.chunks_exact(BLOCK + 1).map(|block| (block[0], &block[1..]))
    }

    /// Returns what was recorded since an earlier copy; `None` if nothing was.
    pub(crate) fn since(&self, then: &Self, digits: u8) -> Option<Recorded> {
        let mut histogram = Counts::new(digits);
        // Counts only grow, so every block of the earlier copy is in this one.
        let mut earlier = then.blocks().peekable();
        for (place, now) in self.blocks() {
            let then = earlier.next_if(|(its, _)| *its == place).map_or(&[0; BLOCK][..], |(_, counts)| counts);
            if now != then {
                let grown = now.iter().zip(then).map(|(now, then)| now.saturating_sub(*then));
                record_block(&mut histogram, place as usize, grown);
            }
        }
        let stood_for = self.stood_for.saturating_sub(then.stood_for);
        let samples = histogram.len().saturating_sub(stood_for);
        (!histogram.is_empty()).then_some(Recorded { samples, histogram })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Meter, PathPart};

    fn copy(meter: &mut Meter, words: Box<[u64]>) -> (Box<[u64]>, usize) {
        meter.fold();
        meter.fold_zeros();
        let mut copying = Copying::new(words);
        while !meter.copy_piece(&mut copying) {}
        let written = copying.written;
        (copying.into_words(), written)
    }

    #[test]
    fn what_was_recorded_since_a_copy_is_found_by_its_changes() {
        let mut meter = Meter::new(None);
        let hists = [2, 3, 2].map(|digits| (digits, meter.histogram(digits, PathPart::Other)));
        let words = hists.iter().map(|(digits, _)| copied_words(*digits)).sum();
        // Only the first two are used. The buffers take turns, and what they had before does not
        // matter.
        let mut buffers = [vec![u64::MAX; words].into_boxed_slice(), vec![u64::MAX; words].into_boxed_slice()];
        let mut is_first = true;
        for (values, weight) in
            [(&[5, 5, 70_000, 60_000_000_000][..], 1), (&[], 1), (&[5, 1_000_000], 16), (&[0, 60_000_000_000], 1)]
        {
            for value in values {
                hists[..2].iter().for_each(|(_, hist)| meter.record(*hist, *value, 1, weight, 1));
            }
            let [before, free] = buffers;
            let (now, written) = copy(&mut meter, free);
            assert!(written <= 3 * HEAD + 2 * 6 * (BLOCK + 1), "{written} words");
            let earlier = if is_first { &[][..] } else { &before[..] };
            for (((digits, hist), now), then) in hists.iter().zip(Copies(&now)).zip(Copies(earlier)) {
                let mut expected = Counts::new(*digits);
                let is_used = hist.index() < 2;
                values.iter().filter(|_| is_used).for_each(|value| expected.record(*value, u64::from(weight)));
                match now.since(&then, *digits) {
                    None => assert!(expected.is_empty(), "{values:?}"),
                    Some(found) => {
                        assert!(found.histogram == expected, "{values:?}");
                        assert_eq!(found.samples, values.len() as u64);
                    }
                }
            }
            buffers = [now, before];
            is_first = false;
        }
    }

    #[test]
    fn a_copy_of_full_histograms_has_room() {
        let mut meter = Meter::new(None);
        let digits = [2, 3];
        for digits in digits {
            let hist = meter.histogram(digits, PathPart::Other);
            (0..36).flat_map(|bit| (0..64).map(move |part| (1u64 << bit) + (part << bit) / 64)).for_each(|value| {
                meter.record(hist, value, 1, 1, 1);
            });
        }
        let words: usize = digits.map(copied_words).iter().sum();
        let (copied, written) = copy(&mut meter, vec![0; words].into_boxed_slice());
        assert!(written > words / 2 && written <= words, "{written} of {words}");
        for (copied, digits) in Copies(&copied).zip(digits) {
            let all = copied.since(&CopiedHistogram { blocks: &[], stood_for: 0 }, digits).unwrap();
            assert_eq!(all.histogram.len(), 36 * 64);
        }
    }
}
