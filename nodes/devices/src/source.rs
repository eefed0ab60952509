//! Sources: nodes that create messages.

pub mod audio;
pub mod can;
pub mod candump;
pub mod v4l2;
