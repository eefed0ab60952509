//! The states that streams leave from one call of a model to the next.

use super::OnSkip;
use crate::payload::Header;

/// The states of all streams, where a model has any.
pub(super) struct Streams<L> {
    /// By number of the source: the state, and the number of the message that would be next.
    states: Vec<(L, Option<u64>)>,
    on_skip: OnSkip,
}

impl<L: Default> Streams<L> {
    /// One for each source, all of them at their beginning.
    pub(super) fn new(sources: usize, on_skip: OnSkip) -> Self {
        Streams { states: std::iter::repeat_with(Default::default).take(sources).collect(), on_skip }
    }

    pub(super) fn reset(&mut self) {
        self.states.iter_mut().for_each(|state| *state = (L::default(), None));
    }

    /// Puts the states of some messages' streams into the lanes of a call, each taken out of its place.
    pub(super) fn lend<'a>(&mut self, headers: impl Iterator<Item = &'a Header>, lanes: &mut Vec<L>) {
        lanes.clear();
        for header in headers {
            let Some((state, next)) = self.states.get_mut(usize::from(header.source)) else {
                lanes.push(L::default());
                continue;
            };
            if self.on_skip == OnSkip::Reset && next.is_some_and(|next| next != header.seq) {
                *state = L::default();
            }
            lanes.push(std::mem::take(state));
        }
    }

    /// Puts them back. A message whose call failed has left nothing: to its stream it is missing.
    pub(super) fn settle<'a>(&mut self, headers: impl Iterator<Item = &'a Header>, lanes: &mut Vec<L>, done: bool) {
        for (header, lane) in headers.zip(lanes.drain(..)) {
            if let Some((state, next)) = self.states.get_mut(usize::from(header.source)) {
                *state = lane;
                if done {
                    *next = Some(header.seq.wrapping_add(1));
                }
            }
        }
    }
}
