//! MCAP files as they are recorded: each byte of a message is copied once or not at all, and added
//! to one checksum.
//!
//! The format: <https://mcap.dev/spec>. The writer of the crate `mcap` copies a message into its
//! chunk, adds it to two checksums, and hands the chunk on whole.
//!
//! A chunk begins as one that is empty and complete. The records behind it, which may also stand
//! outside chunks, become its own when the length and the checksum in its header are written, at
//! its end. Whatever ends the process, the file is a valid beginning of an MCAP file up to its last
//! whole record.

use mcap::records::{MessageHeader, op};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::unix::fs::FileExt;

/// Bytes that are collected before they go to the file, and of a long message that go at a time. A
/// kernel keeps what one call writes in pages of up to that size, and a call of 64 KiB costs twice
/// as much for each byte.
const PIECE: usize = 1 << 20;
/// A part of a message with so many bytes goes to the file from where it is.
const DIRECT: usize = 256 << 10;
/// So many bytes are added to the checksum at a time, while they are in a core's cache.
const HASHED: usize = 32 << 10;
/// Messages of a chunk.
const MAX_ENTRIES: usize = 1 << 14;
/// Opcode and length of a record.
const HEAD: usize = 9;
/// The record of a chunk without its records: times, size, checksum, the length of a name, and the
/// length of the records.
const CHUNK_HEAD: usize = HEAD + 40;
/// A file reserves as many bytes of the disk as it has, so many at most: a write into reserved
/// blocks costs the kernel a quarter less, and files that grow side by side do not lie between each
/// other. What was reserved and not written does not count as the file's length.
const RESERVED: u64 = 64 << 20;
/// So many times as much must be free, so that no other program misses it.
const FREE: u64 = 16;
/// By so many bytes the index grows.
const GROWTH: usize = 64 << 10;

/// Where a message of the chunk is.
#[derive(Debug, Clone, Copy)]
struct ChunkEntry {
    channel: u16,
    log_time: u64,
    offset: u64,
}

/// The chunk that is being written.
#[derive(Debug)]
struct Chunk {
    /// Where its record begins in the file.
    at: u64,
    /// Bytes of its records.
    size: u64,
    crc: crc32fast::Hasher,
    /// The earliest and the latest message.
    times: Option<(u64, u64)>,
}

/// An MCAP file being written.
#[derive(Debug)]
pub(crate) struct McapFile {
    file: File,
    /// Bytes in the file.
    end: u64,
    /// Bytes of the file up to which blocks are reserved; `None` if that failed.
    reserved: Option<u64>,
    /// What follows them.
    buffer: Vec<u8>,
    /// Bytes of the buffer that are no records of the chunk, or are in its checksum.
    hashed: usize,
    chunk: Option<Chunk>,
    /// The messages of the chunk, and how many of them each channel has.
    entries: Vec<ChunkEntry>,
    counts: Vec<usize>,
    /// The messages of the file, by channel, and the earliest and the latest.
    totals: Vec<u64>,
    times: Option<(u64, u64)>,
    /// The records that the end of the file repeats, or has itself.
    schemas: Vec<u8>,
    schema_count: u16,
    channels: Vec<u8>,
    chunk_index: Vec<u8>,
    chunk_count: u32,
    metadata_index: Vec<u8>,
    metadata_count: u32,
}

/// Appends numbers, texts and records in the notation of MCAP.
trait Append {
    fn put(&mut self, bytes: &[u8]);
    fn text(&mut self, text: &str);
    /// Appends what is preceded by its length in four bytes.
    fn list(&mut self, fill: impl FnOnce(&mut Vec<u8>));
    fn record(&mut self, opcode: u8, fill: impl FnOnce(&mut Vec<u8>));
}

impl Append for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.put(&(text.len() as u32).to_le_bytes());
        self.put(text.as_bytes());
    }

    fn list(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.len();
        self.put(&[0; 4]);
        fill(self);
        let length = (self.len() - start - 4) as u32;
        self[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn record(&mut self, opcode: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.len();
        self.put(&[0; HEAD]);
        fill(self);
        let length = (self.len() - start - HEAD) as u64;
        self[start] = opcode;
        self[start + 1..start + HEAD].copy_from_slice(&length.to_le_bytes());
    }
}

/// The longest period that has both.
fn joined(times: Option<(u64, u64)>, with: (u64, u64)) -> Option<(u64, u64)> {
    Some(times.map_or(with, |(first, last)| (first.min(with.0), last.max(with.1))))
}

/// Returns the record of a chunk up to its records. Without any it is complete.
fn chunk_head(times: Option<(u64, u64)>, size: u64, crc: u32) -> [u8; CHUNK_HEAD] {
    let mut head = [0; CHUNK_HEAD];
    let (first, last) = times.unwrap_or((0, 0));
    let mut rest = &mut head[..];
    for field in [
        &[op::CHUNK][..],
        &(size + (CHUNK_HEAD - HEAD) as u64).to_le_bytes(),
        &first.to_le_bytes(),
        &last.to_le_bytes(),
        &size.to_le_bytes(),
        &crc.to_le_bytes(),
        // No compression.
        &0u32.to_le_bytes(),
        &size.to_le_bytes(),
    ] {
        let (to, others) = rest.split_at_mut(field.len());
        to.copy_from_slice(field);
        rest = others;
    }
    head
}

impl McapFile {
    /// Bytes of memory for each chunk of the file, and for each channel in it.
    pub(crate) const INDEX: usize = HEAD + 64;
    pub(crate) const INDEX_OF_CHANNEL: usize = 10;

    /// Bytes of memory besides.
    pub(crate) fn memory(channels: usize) -> usize {
        // The message index goes to the buffer, too.
        let entries = MAX_ENTRIES * (size_of::<ChunkEntry>() + 16) + channels * (HEAD + 6 + 64);
        PIECE + 4 * DIRECT + entries + GROWTH
    }

    /// Begins a file.
    pub(crate) fn new(file: File, profile: &str, library: &str) -> Self {
        let mut buffer = Vec::with_capacity(PIECE + 4 * DIRECT + MAX_ENTRIES * 16);
        buffer.put(mcap::MAGIC);
        buffer.record(op::HEADER, |header| {
            header.text(profile);
            header.text(library);
        });
        McapFile {
            file,
            end: 0,
            reserved: Some(0),
            buffer,
            hashed: 0,
            chunk: None,
            entries: Vec::with_capacity(MAX_ENTRIES),
            counts: Vec::new(),
            totals: Vec::new(),
            times: None,
            schemas: Vec::new(),
            schema_count: 0,
            channels: Vec::new(),
            chunk_index: Vec::new(),
            chunk_count: 0,
            metadata_index: Vec::new(),
            metadata_count: 0,
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Bytes in the file.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Adds metadata, which stands before all chunks.
    pub(crate) fn metadata(&mut self, name: &str, metadata: &BTreeMap<String, String>) {
        let at = self.buffer.len();
        self.buffer.record(op::METADATA, |record| {
            record.text(name);
            record.list(|list| put_map(list, metadata));
        });
        let length = (self.buffer.len() - at) as u64;
        self.metadata_index.record(op::METADATA_INDEX, |index| {
            index.put(&(self.end + at as u64).to_le_bytes());
            index.put(&length.to_le_bytes());
            index.text(name);
        });
        self.metadata_count += 1;
    }

    /// Adds a schema to the chunk, and returns its number.
    pub(crate) fn schema(&mut self, name: &str, encoding: &str, schema: &[u8]) -> io::Result<u16> {
        self.schema_count = self.schema_count.checked_add(1).ok_or(ErrorKind::InvalidInput)?;
        let at = self.schemas.len();
        self.schemas.record(op::SCHEMA, |record| {
            record.put(&self.schema_count.to_le_bytes());
            record.text(name);
            record.text(encoding);
            record.put(&(schema.len() as u32).to_le_bytes());
            record.put(schema);
        });
        self.begin_chunk()?;
        append(&mut self.chunk, &mut self.buffer, &self.schemas[at..]);
        Ok(self.schema_count)
    }

    /// Adds a channel to the chunk, and returns its number.
    pub(crate) fn channel(
        &mut self,
        schema: u16,
        topic: &str,
        encoding: &str,
        metadata: &BTreeMap<String, String>,
    ) -> io::Result<u16> {
        let number = u16::try_from(self.totals.len() + 1).map_err(|_| ErrorKind::InvalidInput)?;
        let at = self.channels.len();
        self.channels.record(op::CHANNEL, |record| {
            record.put(&number.to_le_bytes());
            record.put(&schema.to_le_bytes());
            record.text(topic);
            record.text(encoding);
            record.list(|list| put_map(list, metadata));
        });
        self.begin_chunk()?;
        append(&mut self.chunk, &mut self.buffer, &self.channels[at..]);
        self.totals.push(0);
        self.counts.push(0);
        Ok(number)
    }

    /// Adds a message to the chunk: the parts in their order. Its channel has been added.
    pub(crate) fn message(&mut self, header: &MessageHeader, parts: [&[u8]; 3]) -> io::Result<()> {
        self.begin_chunk()?;
        let at = usize::from(header.channel_id).checked_sub(1);
        let (Some(at), Some(chunk)) = (at.filter(|at| *at < self.counts.len()), &mut self.chunk) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let MessageHeader { channel_id: channel, sequence, log_time, publish_time } = *header;
        let length = parts.iter().map(|part| part.len() as u64).sum::<u64>() + 22;
        let mut head = [0; HEAD + 22];
        head[0] = op::MESSAGE;
        head[1..9].copy_from_slice(&length.to_le_bytes());
        head[9..11].copy_from_slice(&channel.to_le_bytes());
        head[11..15].copy_from_slice(&sequence.to_le_bytes());
        head[15..23].copy_from_slice(&log_time.to_le_bytes());
        head[23..].copy_from_slice(&publish_time.to_le_bytes());
        self.entries.push(ChunkEntry { channel, log_time, offset: chunk.size });
        self.counts[at] += 1;
        chunk.times = joined(chunk.times, (log_time, log_time));
        chunk.size += HEAD as u64 + length;
        self.buffer.put(&head);
        for part in parts {
            if part.len() < DIRECT {
                self.buffer.put(part);
            } else {
                self.direct(part)?;
            }
        }
        if self.buffer.len() >= PIECE {
            return self.spill();
        }
        if self.buffer.len() - self.hashed >= HASHED {
            self.hash();
        }
        Ok(())
    }

    /// Whether the chunk has as many messages as one may have.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_ENTRIES
    }

    /// Ends the chunk, whose records are then all in the file.
    pub(crate) fn finish_chunk(&mut self) -> io::Result<()> {
        self.hash();
        let Some(Chunk { at, size, crc, times }) = self.chunk.take() else { return self.spill() };
        let head = chunk_head(times, size, crc.finalize());
        let length = CHUNK_HEAD as u64 + size;
        let index_at = at + length;
        self.chunk_index.reserve_exact(if self.chunk_index.capacity() - self.chunk_index.len() < GROWTH / 2 {
            GROWTH
        } else {
            0
        });
        let index_length = self.put_message_index();
        self.chunk_index.record(op::CHUNK_INDEX, |index| {
            let (first, last) = times.unwrap_or((0, 0));
            for number in [first, last, at, length] {
                index.put(&number.to_le_bytes());
            }
            index.list(|list| {
                let mut offset = index_at;
                for (channel, count) in numbered(&self.counts).filter(|(_, count)| *count > 0) {
                    list.put(&channel.to_le_bytes());
                    list.put(&offset.to_le_bytes());
                    offset += index_record(count) as u64;
                }
            });
            index.put(&index_length.to_le_bytes());
            index.text("");
            index.put(&size.to_le_bytes());
            index.put(&size.to_le_bytes());
        });
        self.chunk_count += 1;
        for (total, count) in self.totals.iter_mut().zip(&mut self.counts) {
            *total += *count as u64;
            *count = 0;
        }
        self.entries.clear();
        self.times = times.map_or(self.times, |times| joined(self.times, times));
        let is_in_file = self.end > at;
        if !is_in_file {
            self.buffer[..CHUNK_HEAD].copy_from_slice(&head);
        }
        self.spill()?;
        // Its records are behind it, so it may have them now.
        if is_in_file { self.file.write_all_at(&head, at) } else { Ok(()) }
    }

    /// Appends the places of the chunk's messages by channel; returns the bytes.
    fn put_message_index(&mut self) -> u64 {
        let start = self.buffer.len();
        // Where the next entry of each channel goes.
        let mut next = Vec::with_capacity(self.counts.len());
        for (channel, count) in numbered(&self.counts) {
            next.push(self.buffer.len() + HEAD + 6);
            if count > 0 {
                self.buffer.record(op::MESSAGE_INDEX, |index| {
                    index.put(&channel.to_le_bytes());
                    index.list(|list| list.resize(list.len() + 16 * count, 0));
                });
            }
        }
        for ChunkEntry { channel, log_time, offset } in &self.entries {
            let next = &mut next[usize::from(*channel) - 1];
            self.buffer[*next..*next + 8].copy_from_slice(&log_time.to_le_bytes());
            self.buffer[*next + 8..*next + 16].copy_from_slice(&offset.to_le_bytes());
            *next += 16;
        }
        (self.buffer.len() - start) as u64
    }

    /// Ends the file with its index. Nothing may follow.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.finish_chunk()?;
        // The checksum of the data is left out, as those of the chunks cover it.
        self.buffer.record(op::DATA_END, |record| record.put(&[0; 4]));
        self.spill()?;
        let mut statistics = Vec::new();
        statistics.record(op::STATISTICS, |record| {
            record.put(&self.totals.iter().sum::<u64>().to_le_bytes());
            record.put(&self.schema_count.to_le_bytes());
            record.put(&(self.totals.len() as u32).to_le_bytes());
            // Attachments.
            record.put(&0u32.to_le_bytes());
            record.put(&self.metadata_count.to_le_bytes());
            record.put(&self.chunk_count.to_le_bytes());
            let (first, last) = self.times.unwrap_or((0, 0));
            record.put(&first.to_le_bytes());
            record.put(&last.to_le_bytes());
            record.list(|list| {
                for (channel, total) in numbered(&self.totals).filter(|(_, total)| *total > 0) {
                    list.put(&channel.to_le_bytes());
                    list.put(&total.to_le_bytes());
                }
            });
        });
        let groups = [
            (op::SCHEMA, &self.schemas),
            (op::CHANNEL, &self.channels),
            (op::STATISTICS, &statistics),
            (op::CHUNK_INDEX, &self.chunk_index),
            (op::METADATA_INDEX, &self.metadata_index),
        ];
        let start = self.end;
        let mut at = start;
        let (mut offsets, mut crc) = (Vec::new(), crc32fast::Hasher::new());
        for (opcode, records) in groups.into_iter().filter(|(_, records)| !records.is_empty()) {
            offsets.record(op::SUMMARY_OFFSET, |offset| {
                offset.put(&[opcode]);
                offset.put(&at.to_le_bytes());
                offset.put(&(records.len() as u64).to_le_bytes());
            });
            crc.update(records);
            self.file.write_all(records)?;
            at += records.len() as u64;
        }
        let mut last = offsets;
        last.record(op::FOOTER, |footer| {
            footer.put(&start.to_le_bytes());
            footer.put(&at.to_le_bytes());
            footer.put(&[0; 4]);
        });
        // The checksum covers the footer before it.
        let covered = last.len() - 4;
        crc.update(&last[..covered]);
        last[covered..].copy_from_slice(&crc.finalize().to_le_bytes());
        last.put(mcap::MAGIC);
        self.file.write_all(&last)?;
        self.end = at + last.len() as u64;
        self.give_back();
        Ok(())
    }

    /// Reserves blocks ahead if so many more bytes have none.
    fn reserve(&mut self, more: u64) {
        let end = self.end + more;
        if self.reserved.is_none_or(|reserved| end <= reserved) {
            return;
        }
        let length = more + end.min(RESERVED);
        // Blocks of memory would be taken from the machine, and gain nothing.
        let Ok(system) = fstatfs(&self.file) else { return };
        let free = system.blocks_available().saturating_mul(u64::try_from(system.block_size()).unwrap_or(0));
        if system.filesystem_type() == TMPFS_MAGIC || free / FREE < length {
            return;
        }
        let (Ok(from), Ok(bytes)) = (i64::try_from(self.end), i64::try_from(length)) else { return };
        match fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, from, bytes) {
            Ok(()) => self.reserved = Some(self.end + length),
            // A signal came; the next write tries again.
            Err(Errno::EINTR) => {}
            // The file system cannot, or a quota is used up: then every block is left to whoever
            // writes first.
            Err(_) => {
                // It may have got a part.
                let _ = self.file.set_len(self.end);
                self.reserved = None;
            }
        }
    }

    /// Gives the blocks back that were reserved and not written. If that fails, the file is as
    /// good, and takes more room.
    fn give_back(&self) {
        if self.reserved.is_some_and(|reserved| reserved > 0) {
            let _ = self.file.set_len(self.end);
        }
    }

    fn begin_chunk(&mut self) -> io::Result<()> {
        if self.chunk.is_none() {
            self.spill()?;
            self.buffer.put(&chunk_head(None, 0, 0));
            self.hashed = CHUNK_HEAD;
            self.chunk = Some(Chunk { at: self.end, size: 0, crc: crc32fast::Hasher::new(), times: None });
        }
        Ok(())
    }

    /// Adds what is in the buffer to the checksum of the chunk.
    fn hash(&mut self) {
        if let Some(chunk) = &mut self.chunk {
            chunk.crc.update(&self.buffer[self.hashed..]);
            self.hashed = self.buffer.len();
        }
    }

    /// Writes the buffer to the file.
    fn spill(&mut self) -> io::Result<()> {
        self.hash();
        self.write_with(&[])
    }

    /// Writes a long part of a message behind the buffer.
    fn direct(&mut self, part: &[u8]) -> io::Result<()> {
        self.hash();
        for piece in part.chunks(PIECE) {
            if let Some(chunk) = &mut self.chunk {
                chunk.crc.update(piece);
            }
            self.write_with(piece)?;
        }
        Ok(())
    }

    /// Writes the buffer and other bytes.
    fn write_with(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reserve((self.buffer.len() + bytes.len()) as u64);
        let mut slices = [IoSlice::new(&self.buffer), IoSlice::new(bytes)];
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.file.write_vectored(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => IoSlice::advance_slices(&mut rest, n),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.end += (self.buffer.len() + bytes.len()) as u64;
        self.buffer.clear();
        self.hashed = 0;
        Ok(())
    }
}

/// Appends a record to the chunk.
fn append(chunk: &mut Option<Chunk>, buffer: &mut Vec<u8>, record: &[u8]) {
    buffer.put(record);
    if let Some(chunk) = chunk {
        chunk.size += record.len() as u64;
    }
}

fn put_map(to: &mut Vec<u8>, map: &BTreeMap<String, String>) {
    for (key, value) in map {
        to.text(key);
        to.text(value);
    }
}

/// Something of each channel, with the channel's number.
fn numbered<T: Copy>(of: &[T]) -> impl Iterator<Item = (u16, T)> {
    (1..).zip(of.iter().copied())
}

/// Bytes of the record of a channel's messages in a chunk.
fn index_record(count: usize) -> usize {
    HEAD + 6 + 16 * count
}
