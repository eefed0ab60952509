//! Sources: nodes that create messages.

pub mod image_files;
pub mod y4m;
