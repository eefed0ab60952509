//! The states that streams leave from one call of a model to the next.

use super::{OnEnd, OnSkip};
use crate::message::payload::Header;

/// Where a stream's state begins anew.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Anew {
    pub(crate) on_skip: OnSkip,
    pub(crate) on_end: OnEnd,
}

/// The states of all streams, where a model has any.
pub(super) struct Streams<L> {
    /// By number of the source.
    streams: Vec<Stream<L>>,
    anew: Anew,
}

/// A stream's state, and where it stands.
#[derive(Default)]
struct Stream<L> {
    state: L,
    /// The number of the message that would be next.
    next: Option<u64>,
    segment: u16,
}

impl<L: Default> Streams<L> {
    /// One for each source, all of them at their beginning.
    pub(super) fn new(sources: usize, anew: Anew) -> Self {
        Streams { streams: std::iter::repeat_with(Stream::default).take(sources).collect(), anew }
    }

    pub(super) fn reset(&mut self) {
        self.streams.iter_mut().for_each(|stream| *stream = Stream::default());
    }

    /// Puts the states of some messages' streams into the lanes of a call, each taken out of its place.
    pub(super) fn lend<'a>(&mut self, headers: impl Iterator<Item = &'a Header>, lanes: &mut Vec<L>) {
        lanes.clear();
        for header in headers {
            let Some(stream) = self.streams.get_mut(usize::from(header.source)) else {
                lanes.push(L::default());
                continue;
            };
            let has_skipped = stream.next.is_some_and(|next| next != header.seq);
            let has_ended = stream.segment != header.segment;
            if (has_skipped && self.anew.on_skip == OnSkip::Reset) || (has_ended && self.anew.on_end == OnEnd::Reset) {
                stream.state = L::default();
            }
            lanes.push(std::mem::take(&mut stream.state));
        }
    }

    /// Puts them back. A message whose call failed has left nothing: to its stream it is missing.
    pub(super) fn settle<'a>(&mut self, headers: impl Iterator<Item = &'a Header>, lanes: &mut Vec<L>, done: bool) {
        for (header, lane) in headers.zip(lanes.drain(..)) {
            if let Some(stream) = self.streams.get_mut(usize::from(header.source)) {
                stream.state = lane;
                if done {
                    (stream.next, stream.segment) = (Some(header.seq.wrapping_add(1)), header.segment);
                }
            }
        }
    }
}
