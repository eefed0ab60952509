//! Nodes that begin messages.
//!
//! Those with a `rate` are open loops: message `n` is due at the start plus `n` periods whatever happens downstream,
//! and its origin is that intended time. A source that falls behind sends at once and keeps the intended origin, so
//! that the delay shows in every latency that is measured from it.

pub mod csv;
pub mod file;
pub mod image_files;
pub mod npy;
pub mod serial;
pub mod stdin;
pub mod synthetic;
pub mod tcp;
pub mod timer;
pub mod udp;
pub mod wav;
