//! Sound files.

pub(crate) mod sound_file;
