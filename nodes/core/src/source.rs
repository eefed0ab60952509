//! Sources: nodes that create messages.
//!
//! A source with a `rate` is an open loop: message `n` is due `n` periods after the start, whatever
//! happens downstream, and its origin is that due time. A source that falls behind sends at once
//! and keeps the due time as origin, so that the delay shows in every latency measured from it.

pub mod csv;
pub mod file;
pub mod npy;
pub mod serial;
pub mod stdin;
pub mod synthetic;
pub mod tcp;
pub mod timer;
pub mod udp;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry
        .source::<csv::CsvSource>("csv")
        .source::<file::FileSource>("file")
        .source::<npy::NpySource>("npy")
        .source::<serial::SerialSource>("serial")
        .source::<stdin::Stdin>("stdin")
        .source::<synthetic::Synthetic>("synthetic")
        .source::<tcp::TcpSource>("tcp")
        .source::<timer::Timer>("timer")
        .source::<udp::UdpSource>("udp")
}
