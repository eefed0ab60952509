//! Unpacking the records of a chunk, a piece at a time: a chunk may have 256 MiB, and its node's
//! neighbours wait meanwhile.

use super::reader::MAX_RECORD;
use super::record;
use limen::files::read_up_to;
use lz4_flex::frame::FrameDecoder;
use mcap::records::{Record, op};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder as ZstdDecoder};
use std::fmt;
use std::io::Cursor;

/// Bytes that are unpacked at a time.
pub(super) const PIECE: usize = 1 << 20;
/// Blocks of zstd that are decoded at a time, each of 128 KiB at most.
const BLOCKS: usize = PIECE >> 17;
/// The chunks of a file may unpack to so many bytes, whatever the file has.
const FREE: u64 = if cfg!(test) { 64 << 20 } else { 4 << 30 };
/// And to so many times the bytes of the file beyond that.
const MAX_RATIO: u64 = 1000;

/// Refuses chunks that unpack to far more bytes than any recording has, after so many bytes of the
/// file.
pub(super) fn check_total(unpacked: u64, file: u64) -> Result<(), String> {
    if unpacked > file.saturating_mul(MAX_RATIO).max(FREE) {
        return Err(format!("the chunks decompress to more than {MAX_RATIO} times the size of the file"));
    }
    Ok(())
}

type ByteCursor = Cursor<Vec<u8>>;

enum Decoder {
    Plain(ByteCursor),
    Lz4(Box<FrameDecoder<ByteCursor>>),
    Zstd(Box<ZstdDecoder>, ByteCursor),
}

/// A chunk whose records are being unpacked.
pub(super) struct Unpacking {
    decoder: Decoder,
    /// The bytes that it should have, and their checksum, or 0.
    size: usize,
    crc: u32,
    hasher: crc32fast::Hasher,
}

impl fmt::Debug for Unpacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacking").field("size", &self.size).finish_non_exhaustive()
    }
}

/// Grows a buffer so that `more` bytes fit, at most to `most` at once.
pub(super) fn grow(buffer: &mut Vec<u8>, more: usize, most: usize) {
    if buffer.capacity() - buffer.len() < more {
        // Doubled, as a length that the file gives is not to be trusted.
        buffer.reserve_exact(more.max(buffer.len()).min(most.saturating_sub(buffer.len())).max(more));
    }
}

fn zstd(error: impl fmt::Display) -> String {
    format!("a zstd chunk cannot be decompressed: {error}")
}

impl Unpacking {
    /// Begins to unpack the chunk in a record, which it takes if it can.
    ///
    /// # Errors
    /// What is wrong with the chunk.
    pub(super) fn new(record: &mut Vec<u8>) -> Result<Self, String> {
        let Record::Chunk { header, data } = record::parse(op::CHUNK, record)? else {
            return Err("expected a chunk, found another record".into());
        };
        let size = usize::try_from(header.uncompressed_size).ok().filter(|size| *size <= MAX_RECORD);
        let size = size
            .ok_or_else(|| format!("a chunk must be at most {MAX_RECORD} bytes, got {}", header.uncompressed_size))?;
        // Times, size, checksum, and two lengths stand before the records.
        let begin = 40 + header.compression.len();
        let end = begin + data.len();
        record.truncate(end);
        let mut bytes = Cursor::new(std::mem::take(record));
        bytes.set_position(begin as u64);
        let decoder = match header.compression.as_str() {
            "" => Decoder::Plain(bytes),
            "lz4" => Decoder::Lz4(Box::new(FrameDecoder::new(bytes))),
            "zstd" => {
                let mut decoder = ZstdDecoder::new();
                decoder.init(&mut bytes).map_err(zstd)?;
                Decoder::Zstd(Box::new(decoder), bytes)
            }
            other => return Err(format!("expected a chunk compressed with `lz4`, `zstd` or nothing, found `{other}`")),
        };
        Ok(Unpacking { decoder, size, crc: header.uncompressed_crc, hasher: crc32fast::Hasher::new() })
    }

    /// Unpacks a piece more. Returns whether that was the last.
    ///
    /// # Errors
    /// What is wrong with the chunk.
    pub(super) fn go_on(&mut self, into: &mut Vec<u8>) -> Result<bool, String> {
        let before = into.len();
        // One byte more tells that there are too many.
        let most = PIECE.min((self.size + 1).saturating_sub(before));
        grow(into, most, self.size + 1);
        into.resize(before + most, 0);
        let (read, is_end) = self.read(&mut into[before..])?;
        into.truncate(before + read);
        self.hasher.update(&into[before..]);
        if into.len() > self.size || (is_end && into.len() < self.size) {
            return Err(format!("expected {} bytes from a chunk, found {}", self.size, into.len()));
        }
        if is_end && self.crc != 0 && std::mem::take(&mut self.hasher).finalize() != self.crc {
            return Err("a chunk does not match its checksum".into());
        }
        Ok(is_end)
    }

    /// Fills the buffer as far as one piece goes. Returns how far, and whether there is no more.
    fn read(&mut self, into: &mut [u8]) -> Result<(usize, bool), String> {
        match &mut self.decoder {
            Decoder::Plain(bytes) => {
                let read = read_up_to(bytes, into).map_err(|e| e.to_string())?;
                Ok((read, read < into.len()))
            }
            Decoder::Lz4(decoder) => {
                let read =
                    read_up_to(decoder, into).map_err(|e| format!("an lz4 chunk cannot be decompressed: {e}"))?;
                Ok((read, read < into.len()))
            }
            Decoder::Zstd(decoder, bytes) => {
                // A frame keeps its window back, so a piece may come to nothing.
                if !decoder.is_finished() && decoder.can_collect() < into.len() {
                    let blocks = BlockDecodingStrategy::UptoBlocks(BLOCKS);
                    decoder.decode_blocks(bytes, blocks).map_err(zstd)?;
                }
                let read = read_up_to(&mut **decoder, into).map_err(zstd)?;
                Ok((read, decoder.is_finished() && decoder.can_collect() == 0 && read < into.len()))
            }
        }
    }

    /// Returns the record for its memory.
    pub(super) fn into_record(self) -> Vec<u8> {
        match self.decoder {
            Decoder::Plain(bytes) | Decoder::Zstd(_, bytes) => bytes.into_inner(),
            Decoder::Lz4(decoder) => decoder.into_inner().into_inner(),
        }
    }
}
