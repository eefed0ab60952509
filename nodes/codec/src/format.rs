//! What `decode` reads and `encode` writes: packets at fixed offsets, JSON, CBOR, rows of text,
//! sentences of NMEA 0183, with a checksum behind them or without.

pub(crate) mod crc;
pub(crate) mod message_format;
pub(crate) mod packet;
pub(crate) mod sentence;
pub(crate) mod sentence_writer;
pub(crate) mod template;
pub(crate) mod tree;

pub use crc::{Algorithm, Checksum};
pub use message_format::MessageFormat;
pub use sentence::Sentence;
