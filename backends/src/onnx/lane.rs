//! What a call leaves for the next one of its stream.

/// The state of one stream; that of its beginning is zeros.
#[derive(Clone, Debug, Default)]
pub struct OnnxLane {
    pub(super) states: Vec<Vec<u8>>,
}
