//! Sources: nodes that create messages.

pub mod wav;
