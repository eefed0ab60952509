//! The state of a stream between calls.

/// The state of one stream; empty at first, which stands for zeros.
#[derive(Clone, Debug, Default)]
pub struct OnnxLane {
    pub(super) states: Vec<Vec<u8>>,
}
