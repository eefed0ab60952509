//! Origins: when each source upstream of a message began its part.
//!
//! A message has one header, which names one source. Downstream of a join, the pool has a table
//! beside its rows with an entry for each possible source, so that every path has its own latency.
//! The stage carries origins from the messages a call takes to those it sends; nodes never see
//! them. Without a join upstream there is no table.

use crate::host::clock::Time;
use arrayvec::ArrayVec;

/// Most sources tracked for one message.
pub(crate) const MOST_ORIGINS: usize = 32;

/// When a source began its part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The source's number.
    pub(crate) source: u16,
    /// Its message was already used in an earlier call, where its latency was judged.
    pub(crate) reused: bool,
    pub(crate) begun: u64,
}

/// Bit above every valid time; marks a reused origin.
const REUSED: u64 = 1 << 63;
/// A table entry without an origin.
pub(crate) const NO_ORIGIN: u64 = u64::MAX;

impl Origin {
    /// Packs it into a table entry.
    pub(crate) fn packed(self) -> u64 {
        (self.begun & !REUSED).min(REUSED - 2) | if self.reused { REUSED } else { 0 }
    }

    /// Unpacks a source's table entry; `None` if it is empty.
    pub(crate) fn unpacked(source: u16, packed: u64) -> Option<Origin> {
        (packed != NO_ORIGIN).then_some(Origin { source, reused: packed & REUSED != 0, begun: packed & !REUSED })
    }
}

/// The origins of one message, one for each source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(ArrayVec<Origin, MOST_ORIGINS>);

impl Origins {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds an origin. Of several of one source the oldest counts; a reused one counts only if
    /// there is no other.
    pub(crate) fn add(&mut self, origin: Origin) {
        match self.0.iter_mut().find(|other| other.source == origin.source) {
            Some(other) if (origin.reused, origin.begun) < (other.reused, other.begun) => *other = origin,
            Some(_) => {}
            // Planning has found sources that do not fit: their paths are listed as not judged.
            None => _ = self.0.try_push(origin),
        }
    }

    pub(crate) fn of(&self, source: u16) -> Option<Origin> {
        self.0.iter().find(|origin| origin.source == source).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Origin> {
        self.0.iter().copied()
    }
}

/// The origins of a node's recent calls, for messages it sends in later calls than the one they
/// derive from.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The origins of the current call, and source and sequence number of each of its messages.
    pub(crate) now: Origins,
    now_keys: ArrayVec<(u16, u64), { crate::message::MAX_PORTS }>,
    /// Ring of earlier calls: source and sequence number of the first message, then the origins in
    /// the order of `sources`.
    past: Vec<u64>,
    sources: Vec<u16>,
    kept: usize,
    next: usize,
}

impl Trace {
    /// Creates a trace that keeps the origins of `kept` calls from these sources.
    pub(crate) fn new(sources: Vec<u16>, kept: usize) -> Self {
        let past = vec![NO_ORIGIN; kept * (sources.len() + 2)];
        Trace { past, sources, kept, ..Trace::default() }
    }

    /// Begins a call whose messages, if any, are added next.
    pub(crate) fn begin(&mut self) {
        self.now.clear();
        self.now_keys.clear();
    }

    /// Adds a message with this header to the call.
    pub(crate) fn takes(&mut self, source: u16, seq: u64) {
        let is_kept = self.now_keys.try_push((source, seq)).is_ok();
        debug_assert!(is_kept, "a call takes at most a message of each input");
    }

    /// Keeps the call, now complete, for later ones, if any can refer to it.
    pub(crate) fn keep(&mut self) {
        let (Some((source, seq)), true) = (self.now_keys.first(), self.kept > 0) else { return };
        let width = self.sources.len() + 2;
        let row = &mut self.past[self.next * width..(self.next + 1) * width];
        (row[0], row[1]) = (u64::from(*source), *seq);
        for (place, source) in row[2..].iter_mut().zip(&self.sources) {
            *place = self.now.of(*source).map_or(NO_ORIGIN, Origin::packed);
        }
        self.next = (self.next + 1) % self.kept;
    }

    /// Returns the origins of a message sent with this header: those of the call that took a
    /// message with it, by default the current one.
    pub(crate) fn of(&self, source: u16, seq: u64) -> Origins {
        if self.kept == 0 || self.now_keys.contains(&(source, seq)) {
            return self.now.clone();
        }
        let width = self.sources.len() + 2;
        let row = self.past.chunks_exact(width).find(|row| (row[0], row[1]) == (u64::from(source), seq));
        let Some(row) = row else { return self.now.clone() };
        let mut origins = Origins::default();
        for (packed, source) in row[2..].iter().zip(&self.sources) {
            Origin::unpacked(*source, *packed).into_iter().for_each(|origin| origins.add(origin));
        }
        origins
    }
}

/// Creates an origin that is not reused.
pub(crate) fn fresh(source: u16, begun: Time) -> Origin {
    Origin { source, reused: false, begun: begun.0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_origin_of_a_source_counts_and_a_reused_one_only_alone() {
        let origin = |begun, reused| Origin { source: 3, reused, begun };
        for (added, expected) in [
            (vec![origin(5, false), origin(4, false), origin(6, false)], origin(4, false)),
            (vec![origin(2, true), origin(5, false)], origin(5, false)),
            (vec![origin(5, false), origin(2, true)], origin(5, false)),
            (vec![origin(5, true), origin(2, true)], origin(2, true)),
        ] {
            let mut origins = Origins::default();
            added.iter().for_each(|origin| origins.add(*origin));
            assert_eq!(origins.iter().collect::<Vec<_>>(), [expected], "{added:?}");
            assert_eq!(Origin::unpacked(3, expected.packed()), Some(expected));
        }
        assert_eq!(Origin::unpacked(3, NO_ORIGIN), None);
        assert_ne!(origin(u64::MAX, true).packed(), NO_ORIGIN);
    }

    #[test]
    fn a_message_sent_later_has_the_origins_of_the_call_it_derives_from() {
        let mut trace = Trace::new(vec![0, 1], 3);
        for seq in 0..5 {
            trace.begin();
            trace.takes(0, seq);
            trace.now.add(fresh(0, Time(100 + seq)));
            trace.now.add(fresh(1, Time(200 + seq)));
            trace.keep();
        }
        let begun = |trace: &Trace, seq| trace.of(0, seq).iter().map(|origin| origin.begun).collect::<Vec<_>>();
        assert_eq!(begun(&trace, 4), [104, 204]);
        assert_eq!(begun(&trace, 2), [102, 202]);
        // No longer kept: the current call's origins are used.
        assert_eq!(begun(&trace, 0), [104, 204]);
        trace.begin();
        assert_eq!(begun(&trace, 3), [103, 203]);
        assert!(begun(&trace, 9).is_empty());
    }
}
