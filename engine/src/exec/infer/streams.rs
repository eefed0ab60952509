//! The per-stream state of a model between calls.

use super::{OnEnd, OnSkip};
use crate::message::payload::Header;

/// When a stream's state is reset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResetRules {
    pub(crate) on_skip: OnSkip,
    pub(crate) on_end: OnEnd,
}

/// The state of all streams of a stateful model.
pub(super) struct Streams<L> {
    /// By source number.
    streams: Vec<StreamState<L>>,
    resets: ResetRules,
}

/// A stream's state and position.
#[derive(Default)]
struct StreamState<L> {
    state: L,
    /// The sequence number expected next.
    next: Option<u64>,
    segment: u16,
}

impl<L: Default> Streams<L> {
    /// Creates the initial state for each source.
    pub(super) fn new(sources: usize, resets: ResetRules) -> Self {
        Streams { streams: std::iter::repeat_with(StreamState::default).take(sources).collect(), resets }
    }

    pub(super) fn reset(&mut self) {
        self.streams.iter_mut().for_each(|stream| *stream = StreamState::default());
    }

    /// Moves the states of the messages' streams into the lanes of a call.
    pub(super) fn lend(&mut self, headers: &[Header], lanes: &mut Vec<L>) {
        lanes.clear();
        for header in headers {
            let Some(stream) = self.streams.get_mut(usize::from(header.source)) else {
                lanes.push(L::default());
                continue;
            };
            let has_skipped = stream.next.is_some_and(|next| next != header.seq);
            let has_ended = stream.segment != header.segment;
            if (has_skipped && self.resets.on_skip == OnSkip::Reset)
                || (has_ended && self.resets.on_end == OnEnd::Reset)
            {
                stream.state = L::default();
            }
            lanes.push(std::mem::take(&mut stream.state));
        }
    }

    /// Moves the states back. A message whose call failed counts as missing from its stream.
    pub(super) fn settle(&mut self, headers: &[Header], lanes: &mut Vec<L>, done: bool) {
        for (header, lane) in headers.iter().zip(lanes.drain(..)) {
            if let Some(stream) = self.streams.get_mut(usize::from(header.source)) {
                stream.state = lane;
                if done {
                    (stream.next, stream.segment) = (Some(header.seq.wrapping_add(1)), header.segment);
                }
            }
        }
    }
}
