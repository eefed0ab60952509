//! Messages of bytes with numbers in them: packets at fixed offsets, JSON, CBOR, rows of text, sentences of NMEA 0183. What `decode` reads
//! and `encode` writes, with a checksum behind them or without.

pub(crate) mod crc;
pub(crate) mod excerpt;
pub(crate) mod field;
pub(crate) mod packet;
pub(crate) mod precision;
pub(crate) mod record;
pub(crate) mod row;
pub(crate) mod sentence;
pub(crate) mod sentence_writer;
pub(crate) mod template;
pub(crate) mod tree;

pub use crc::{Algorithm, Checksum};
pub use field::{Endian, Field};
pub use sentence::Sentence;
