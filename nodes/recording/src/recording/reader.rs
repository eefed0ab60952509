//! Reading MCAP files: every intact message of whatever is there, and a count of what is not.
//!
//! Lengths are checked before anything is allocated: a record, or a chunk when it is unpacked, has
//! at most [`MAX_RECORD`] bytes, and all chunks together at most 4 GiB or 1000 times the bytes of
//! the file. A chunk that does not agree with its checksum is skipped whole. Behind a record that
//! is cut or whose length makes no sense nothing can be found again, and the rest of the file is
//! unreadable.
//!
//! Everything is done in steps of 1 MiB at most, so a node can leave off between two.

use super::record;
use super::unpack::{PIECE, Unpacking, check_total, grow};
use limen::files::read_up_to;
use mcap::records::{MessageHeader, Record, op};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

/// Most bytes of a record, or of a chunk when it is decompressed.
pub const MAX_RECORD: usize = 256 << 20;
/// Most channels, and most schemas: what their numbers allow would take gigabytes.
const MAX_CHANNELS: usize = 4096;
/// Most bytes of all schemas, channels and metadata.
const MAX_DEFINITIONS: usize = 64 << 20;
/// Opcode and length.
const HEAD: usize = 9;
/// The work of a step, beside the bytes that it handles.
const STEP: u64 = 64;

/// A schema of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schema {
    /// The name, such as `foxglove.RawImage`.
    pub name: String,
    /// The encoding, such as `protobuf`.
    pub encoding: String,
    /// The schema itself.
    pub data: Vec<u8>,
}

/// A channel of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// The name of the topic, such as `/camera/image`.
    pub topic: String,
    /// The number of its schema; 0 if it has none.
    pub schema: u16,
    /// The encoding of its messages.
    pub encoding: String,
    /// What the writer noted about it.
    pub metadata: BTreeMap<String, String>,
}

/// What could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// Bytes of the file, or of chunks as they are when decompressed.
    pub bytes: u64,
    /// In how many places.
    pub places: u64,
    /// Where the first of them lie, and why they cannot be read.
    pub first: Option<(u64, String)>,
    /// Where the last of them lies, and why it cannot be read.
    pub latest: Option<(u64, String)>,
    /// Whether the file lacks its end.
    pub is_cut: bool,
}

impl Unreadable {
    fn add(&mut self, at: u64, bytes: u64, why: impl Into<String>) {
        self.bytes += bytes;
        self.places += 1;
        self.latest = Some((at, why.into()));
        if self.first.is_none() {
            self.first.clone_from(&self.latest);
        }
    }
}

/// A message of a recording.
#[derive(Debug)]
pub struct RecordedMessage<'a> {
    /// Channel, sequence number and times.
    pub header: MessageHeader,
    /// The message, in the encoding of its channel.
    pub data: &'a [u8],
}

/// Reads the messages of a recording, in the order of the file.
#[derive(Debug)]
pub struct RecordingReader<R> {
    from: R,
    /// Bytes read of the file, and its length.
    at: u64,
    size: u64,
    schemas: BTreeMap<u16, Schema>,
    channels: BTreeMap<u16, Channel>,
    metadata: Vec<(String, BTreeMap<String, String>)>,
    /// Bytes of schemas, channels and metadata, and how many messages and attachments have been
    /// seen.
    defined: usize,
    messages: u64,
    attachments: u64,
    profile: String,
    /// The record last read, and what is left to read of it.
    record: Vec<u8>,
    reading: Option<RecordReading>,
    /// The records of the chunk that is being read, and what is left to unpack of it.
    chunk: Vec<u8>,
    unpacking: Option<(u64, Unpacking)>,
    /// Whether the chunk is damaged: then only what it defines is kept, because later chunks rely
    /// on it.
    is_damaged: bool,
    /// Bytes of all chunks, and the work so far, in bytes.
    unpacked: u64,
    work: u64,
    /// Where the next record of the chunk begins, where the chunk lies in the file, and whether its
    /// bytes lie there as they are.
    next: usize,
    chunk_at: u64,
    is_plain: bool,
    /// The message last read, in the chunk.
    message: std::ops::Range<usize>,
    unreadable: Unreadable,
    /// The checksum of the index, once the data has ended.
    index: Index,
    is_done: bool,
}

/// The checksum of what follows the data.
#[derive(Debug, Default)]
struct Index(Option<crc32fast::Hasher>);

impl Write for Index {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(hasher) = &mut self.0 {
            hasher.update(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A record that is being read, or passed over.
#[derive(Debug)]
struct RecordReading {
    /// Where it begins, and its first bytes.
    start: u64,
    head: [u8; HEAD],
    /// Bytes that are not read yet.
    left: u64,
    is_kept: bool,
    /// Whether the file ends within it.
    is_cut: bool,
}

/// What reading on came to.
#[derive(Debug)]
pub(crate) enum Progress {
    Message(MessageHeader),
    /// The work was done, and there may be more.
    NotYet,
    End,
}

/// Where the reader is.
enum ReaderStep {
    /// A message is in `chunk` at the range.
    Message(MessageHeader, std::ops::Range<usize>),
    /// Something else was read.
    Other,
    End,
}

impl<R: Read> RecordingReader<R> {
    /// Begins to read a file of `size` bytes.
    ///
    /// # Errors
    /// Input and output; `InvalidData` if it is not an MCAP file.
    pub fn new(mut from: R, size: u64) -> io::Result<Self> {
        let mut magic = [0; mcap::MAGIC.len()];
        let read = read_up_to(&mut from, &mut magic)?;
        if magic != mcap::MAGIC {
            let why = if size == 0 { "the file is empty" } else { "not an MCAP file" };
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(RecordingReader {
            from,
            at: read as u64,
            size,
            schemas: BTreeMap::new(),
            channels: BTreeMap::new(),
            metadata: Vec::new(),
            defined: 0,
            messages: 0,
            attachments: 0,
            profile: String::new(),
            record: Vec::new(),
            reading: None,
            chunk: Vec::new(),
            unpacking: None,
            is_damaged: false,
            unpacked: 0,
            work: 0,
            next: 0,
            chunk_at: 0,
            is_plain: false,
            message: 0..0,
            unreadable: Unreadable::default(),
            index: Index::default(),
            is_done: false,
        })
    }

    /// Returns the next message; `None` at the end, or where the rest cannot be read.
    ///
    /// # Errors
    /// Input and output, but not what is wrong with the file: that is counted.
    pub fn next_message(&mut self) -> io::Result<Option<RecordedMessage<'_>>> {
        Ok(match self.read_on(u64::MAX)? {
            Progress::Message(header) => Some(RecordedMessage { header, data: self.message() }),
            Progress::NotYet | Progress::End => None,
        })
    }

    /// Reads up to the next message, or until the work of this reader is `until`.
    ///
    /// # Errors
    /// As [`next_message`](Self::next_message).
    pub(crate) fn read_on(&mut self, until: u64) -> io::Result<Progress> {
        self.message = 0..0;
        loop {
            match self.step()? {
                ReaderStep::End => return Ok(Progress::End),
                ReaderStep::Other if self.work >= until => return Ok(Progress::NotYet),
                ReaderStep::Other => {}
                ReaderStep::Message(header, range) => {
                    self.messages += 1;
                    self.message = range;
                    return Ok(Progress::Message(header));
                }
            }
        }
    }

    /// Returns the work so far: bytes that were read, unpacked and handled, and something for each
    /// record.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Returns how many bytes the chunks had that have been read.
    pub(crate) fn unpacked(&self) -> u64 {
        self.unpacked
    }

    /// Returns the message that was read last; empty before the first and at the end.
    pub fn message(&self) -> &[u8] {
        self.chunk.get(self.message.clone()).unwrap_or_default()
    }

    /// Returns a channel that has been read.
    pub fn channel(&self, number: u16) -> Option<&Channel> {
        self.channels.get(&number)
    }

    /// Returns the channels that have been read, by number.
    pub fn channels(&self) -> impl Iterator<Item = (u16, &Channel)> {
        self.channels.iter().map(|(number, channel)| (*number, channel))
    }

    /// Returns the schemas that have been read, by number.
    pub fn schemas(&self) -> impl Iterator<Item = (u16, &Schema)> {
        self.schemas.iter().map(|(number, schema)| (*number, schema))
    }

    /// Returns a schema that has been read.
    pub fn schema(&self, number: u16) -> Option<&Schema> {
        self.schemas.get(&number)
    }

    /// Returns the metadata that has been read.
    pub fn metadata(&self) -> &[(String, BTreeMap<String, String>)] {
        &self.metadata
    }

    /// Returns the file's profile, such as `ros2`.
    pub fn profile(&self) -> &str {
        &self.profile
    }

    /// Returns how many attachments were passed over.
    pub fn attachments(&self) -> u64 {
        self.attachments
    }

    /// Returns what could not be read so far.
    pub fn unreadable(&self) -> &Unreadable {
        &self.unreadable
    }

    /// Returns how many bytes of the file have been read.
    pub fn position(&self) -> u64 {
        self.at
    }

    fn step(&mut self) -> io::Result<ReaderStep> {
        self.work += STEP;
        if let Some((start, unpacking)) = self.unpacking.take() {
            return Ok(self.unpack_on(start, unpacking));
        }
        if self.next < self.chunk.len() {
            return Ok(self.in_chunk());
        }
        if self.is_done {
            return Ok(ReaderStep::End);
        }
        if let Some(reading) = self.reading.take() {
            return self.read_record(reading);
        }
        let start = self.at;
        let mut head = [0; HEAD];
        let read = read_up_to(&mut self.from, &mut head)?;
        self.at += read as u64;
        if read < HEAD {
            return Ok(self.cut(start, "the file ends without a summary"));
        }
        let (opcode, length) = (head[0], length_of(&head));
        let left = self.size.saturating_sub(self.at);
        let is_cut = length > left;
        if is_cut && !(opcode == op::CHUNK && left <= MAX_RECORD as u64) {
            return Ok(self.cut(start, "the file ends within a record"));
        }
        if opcode == 0 || (!is_cut && length > MAX_RECORD as u64 && may_hold_messages(opcode)) {
            self.is_done = true;
            let why = format!("invalid record: type {opcode:#04x}, {length} bytes");
            self.unreadable.add(start, self.size.saturating_sub(start), why);
            return Ok(ReaderStep::End);
        }
        let is_kept = is_read(opcode);
        self.attachments += u64::from(opcode == op::ATTACHMENT);
        self.index.write_all(&head)?;
        self.record.clear();
        if opcode == op::MESSAGE {
            // It is read as a chunk of one record.
            self.record.extend_from_slice(&head);
        }
        self.read_record(RecordReading { start, head, left: length.min(left), is_kept, is_cut })
    }

    /// Reads a piece more of a record, and handles it when it is whole.
    fn read_record(&mut self, mut reading: RecordReading) -> io::Result<ReaderStep> {
        let most = reading.left.min(PIECE as u64) as usize;
        if !reading.is_kept {
            self.record.clear();
        }
        let before = self.record.len();
        // The length was checked against the file and the limit.
        grow(&mut self.record, most, before + reading.left as usize);
        self.record.resize(before + most, 0);
        let read = read_up_to(&mut self.from, &mut self.record[before..])?;
        self.record.truncate(before + read);
        (self.at, self.work, reading.left) =
            (self.at + read as u64, self.work + read as u64, reading.left - read as u64);
        if read < most && !reading.is_cut {
            return Ok(self.cut(reading.start, "the file ends within a record"));
        }
        let opcode = reading.head[0];
        if opcode != op::FOOTER {
            self.index.write_all(&self.record[before..])?;
        }
        if reading.left > 0 && read == most {
            self.reading = Some(reading);
            return Ok(ReaderStep::Other);
        }
        if !reading.is_kept {
            return Ok(ReaderStep::Other);
        }
        if reading.is_cut {
            return Ok(self.cut_chunk(reading.start));
        }
        let mut record = std::mem::take(&mut self.record);
        let step = match opcode {
            op::FOOTER => self.footer(reading.start, &record)?,
            _ => self.top(reading.start, opcode, &mut record),
        };
        if opcode == op::DATA_END {
            self.index.0 = Some(crc32fast::Hasher::new());
        }
        self.record = record;
        Ok(step)
    }

    /// Unpacks a piece more of a chunk.
    fn unpack_on(&mut self, start: u64, mut unpacking: Unpacking) -> ReaderStep {
        let before = self.chunk.len();
        let result = unpacking.go_on(&mut self.chunk);
        let more = (self.chunk.len() - before) as u64;
        (self.work, self.unpacked) = (self.work + PIECE as u64, self.unpacked + more);
        if let Err(why) = check_total(self.unpacked, self.at) {
            self.chunk.clear();
            self.is_done = true;
            self.unreadable.add(start, self.size.saturating_sub(start), why);
            return ReaderStep::End;
        }
        match result {
            Ok(false) => self.unpacking = Some((start, unpacking)),
            Ok(true) => self.record = unpacking.into_record(),
            Err(why) => self.damaged(start, unpacking.into_record().len(), why),
        }
        ReaderStep::Other
    }

    /// Counts a chunk that is damaged.
    fn damaged(&mut self, start: u64, length: usize, why: String) {
        self.unreadable.add(start, (length + HEAD) as u64, why);
        self.is_damaged = true;
    }

    /// The file ends before its end.
    fn cut(&mut self, start: u64, why: &str) -> ReaderStep {
        self.is_done = true;
        self.unreadable.is_cut = true;
        let bytes = self.size.max(self.at).saturating_sub(start);
        if bytes > 0 {
            self.unreadable.add(start, bytes, why);
        }
        ReaderStep::End
    }

    /// The file ends within a chunk: what is there of one that is not compressed is read, without
    /// its checksum.
    fn cut_chunk(&mut self, start: u64) -> ReaderStep {
        /// Times, size and checksum come before the length of the name of the compression, and the
        /// size behind it.
        const NAME: usize = 28;
        const RECORDS: usize = NAME + 4 + 8;
        if self.record.len() < RECORDS || self.record[NAME..NAME + 4] != [0; 4] {
            return self.cut(start, "the file ends within a chunk");
        }
        // The records stay where they are.
        self.chunk = std::mem::take(&mut self.record);
        (self.next, self.chunk_at, self.is_plain, self.is_damaged) = (RECORDS, start + HEAD as u64, true, false);
        (self.is_done, self.unreadable.is_cut) = (true, true);
        ReaderStep::Other
    }

    /// The end of the file: the checksum of the index, and the magic.
    fn footer(&mut self, start: u64, record: &[u8]) -> io::Result<ReaderStep> {
        let mut magic = [0; mcap::MAGIC.len()];
        let read = read_up_to(&mut self.from, &mut magic)?;
        self.at += read as u64;
        if magic != mcap::MAGIC {
            return Ok(self.cut(start, "the file ends within the closing magic bytes"));
        }
        self.is_done = true;
        let (covered, crc) = record.split_at(record.len().min(16));
        let crc = crc.first_chunk().map_or(0, |crc| u32::from_le_bytes(*crc));
        if let Some(mut hasher) = self.index.0.take()
            && crc != 0
        {
            hasher.update(covered);
            if hasher.finalize() != crc {
                self.unreadable.add(start, record.len() as u64, "the index does not match its checksum");
            }
        }
        Ok(ReaderStep::End)
    }

    /// Handles a record that is not in a chunk.
    fn top(&mut self, start: u64, opcode: u8, record: &mut Vec<u8>) -> ReaderStep {
        let bytes = (record.len() + HEAD) as u64;
        self.is_damaged = false;
        match opcode {
            op::MESSAGE => {
                (self.chunk_at, self.is_plain, self.next) = (start, true, 0);
                std::mem::swap(&mut self.chunk, record);
                ReaderStep::Other
            }
            op::CHUNK => {
                self.chunk.clear();
                self.next = 0;
                (self.chunk_at, self.is_plain) = (start, false);
                let length = record.len();
                match Unpacking::new(record) {
                    Ok(unpacking) => self.unpacking = Some((start, unpacking)),
                    Err(why) => self.damaged(start, length, why),
                }
                ReaderStep::Other
            }
            op::STATISTICS => {
                // A damaged type of a record would hide it.
                let counted = match record::parse(opcode, record) {
                    Ok(Record::Statistics(statistics)) => statistics.message_count,
                    _ => self.messages,
                };
                if counted != self.messages && self.unreadable.places == 0 {
                    let why = format!("the index counts {counted} messages, found {}", self.messages);
                    self.unreadable.add(start, bytes, why);
                }
                ReaderStep::Other
            }
            _ => {
                if let Err(why) = self.define(opcode, record) {
                    self.unreadable.add(start, bytes, why);
                }
                ReaderStep::Other
            }
        }
    }

    /// Keeps a schema, a channel or metadata.
    fn define(&mut self, opcode: u8, record: &[u8]) -> Result<(), String> {
        self.defined = self.defined.saturating_add(record.len());
        if self.defined > MAX_DEFINITIONS {
            return Err(format!("schemas, channels and metadata must have at most {MAX_DEFINITIONS} bytes, got more"));
        }
        match record::parse(opcode, record)? {
            Record::Header(header) => self.profile = header.profile,
            Record::Schema { header, data } if header.id > 0 => {
                if self.schemas.len() >= MAX_CHANNELS && !self.schemas.contains_key(&header.id) {
                    return Err(format!("a recording must have at most {MAX_CHANNELS} schemas, got more"));
                }
                let schema = Schema { name: header.name, encoding: header.encoding, data: data.into_owned() };
                self.schemas.entry(header.id).or_insert(schema);
            }
            Record::Channel(mcap::records::Channel { id, schema_id, topic, message_encoding, metadata }) => {
                if self.channels.len() >= MAX_CHANNELS && !self.channels.contains_key(&id) {
                    return Err(format!("a recording must have at most {MAX_CHANNELS} channels, got more"));
                }
                let channel = Channel { topic, schema: schema_id, encoding: message_encoding, metadata };
                self.channels.entry(id).or_insert(channel);
            }
            Record::Metadata(metadata) if self.metadata.len() < MAX_CHANNELS => {
                self.metadata.push((metadata.name, metadata.metadata));
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the next record of the chunk.
    fn in_chunk(&mut self) -> ReaderStep {
        let at = self.chunk_at + if self.is_plain { self.next as u64 } else { 0 };
        let rest = &self.chunk[self.next..];
        let length = rest.first_chunk::<HEAD>().map(length_of).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length <= rest.len().saturating_sub(HEAD)) else {
            if !self.is_damaged {
                self.unreadable.add(at, rest.len() as u64, "a chunk ends within a record");
            }
            self.next = self.chunk.len();
            return ReaderStep::Other;
        };
        let (start, opcode) = (self.next + HEAD, rest[0]);
        self.next = start + length;
        if matches!(opcode, op::MESSAGE | op::SCHEMA | op::CHANNEL) {
            self.work += length as u64;
        }
        if opcode == op::MESSAGE && self.is_damaged {
            return ReaderStep::Other;
        }
        if opcode == op::MESSAGE {
            let header = match record::parse(opcode, &self.chunk[start..self.next]) {
                Ok(Record::Message { header, data }) => Some((header, data.len())),
                _ => None,
            };
            return match header.filter(|(header, _)| self.channels.contains_key(&header.channel_id)) {
                Some((header, data)) => ReaderStep::Message(header, self.next - data..self.next),
                None => {
                    let why = if header.is_some() {
                        "the channel of a message is undefined"
                    } else {
                        "a message ends within its header"
                    };
                    self.unreadable.add(at, (length + HEAD) as u64, why);
                    ReaderStep::Other
                }
            };
        }
        if matches!(opcode, op::SCHEMA | op::CHANNEL) {
            let chunk = std::mem::take(&mut self.chunk);
            // One of a damaged chunk is a part of what has been counted.
            if let Err(why) = self.define(opcode, &chunk[start..self.next])
                && !self.is_damaged
            {
                self.unreadable.add(at, (length + HEAD) as u64, why);
            }
            self.chunk = chunk;
        }
        ReaderStep::Other
    }
}

fn length_of(head: &[u8; HEAD]) -> u64 {
    let [_, length @ ..] = *head;
    u64::from_le_bytes(length)
}

/// Whether a record is read; attachments and indexes are passed over.
fn is_read(opcode: u8) -> bool {
    may_hold_messages(opcode) || matches!(opcode, op::DATA_END | op::STATISTICS)
}

fn may_hold_messages(opcode: u8) -> bool {
    matches!(opcode, op::MESSAGE | op::CHUNK | op::HEADER | op::FOOTER | op::SCHEMA | op::CHANNEL | op::METADATA)
}
