//! Sinks: nodes that consume messages. `console`, `csv`, `jsonl` and `null` take any number of
//! inputs, under any names.

pub mod console;
pub mod csv;
pub mod file;
pub mod jsonl;
pub mod npy;
pub mod null;
pub mod score;
pub mod serial;
pub mod stdout;
pub mod tcp;
pub mod udp;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry
        .sink::<console::Console>("console")
        .sink::<csv::CsvSink>("csv")
        .sink::<file::FileSink>("file")
        .sink::<jsonl::Jsonl>("jsonl")
        .sink::<npy::NpySink>("npy")
        .sink::<null::Null>("null")
        .sink::<score::Score>("score")
        .sink::<serial::SerialSink>("serial")
        .sink::<stdout::Stdout>("stdout")
        .sink::<tcp::TcpSink>("tcp")
        .sink::<udp::UdpSink>("udp")
}
