//! Reading MCAP files: every intact message of whatever is there, and a count of what is not.
//!
//! Lengths are checked before anything is allocated: a record, or a chunk when it is decompressed, has at most [`MAX_RECORD`] bytes. A
//! chunk that does not agree with its checksum is skipped whole. Behind a record that is cut or whose length makes no sense nothing can
//! be found again, and the rest of the file is unreadable.

use super::record;
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
    /// The topic.
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
    /// Whether the file lacks its end.
    pub is_cut: bool,
}

impl Unreadable {
    fn add(&mut self, at: u64, bytes: u64, why: impl Into<String>) {
        self.bytes += bytes;
        self.places += 1;
        self.first.get_or_insert_with(|| (at, why.into()));
    }
}

/// A message of a recording.
#[derive(Debug)]
pub struct Recorded<'a> {
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
    /// Bytes of schemas, channels and metadata, and how many messages and attachments have been seen.
    defined: usize,
    messages: u64,
    attachments: u64,
    profile: String,
    /// The record last read, and the records of the chunk that is being read.
    record: Vec<u8>,
    chunk: Vec<u8>,
    /// Where the next record of the chunk begins, where the chunk lies in the file, and whether its bytes lie there as they are.
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

/// Where the reader is.
enum Step {
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
            let why = if size == 0 { "it is empty" } else { "it does not begin as an MCAP file" };
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
            chunk: Vec::new(),
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
    pub fn next_message(&mut self) -> io::Result<Option<Recorded<'_>>> {
        loop {
            match self.step()? {
                Step::End => {
                    self.message = 0..0;
                    return Ok(None);
                }
                Step::Other => {}
                Step::Message(header, range) => {
                    self.messages += 1;
                    self.message = range;
                    return Ok(Some(Recorded { header, data: self.message() }));
                }
            }
        }
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

    fn step(&mut self) -> io::Result<Step> {
        if self.next < self.chunk.len() {
            return Ok(self.in_chunk());
        }
        if self.is_done {
            return Ok(Step::End);
        }
        let start = self.at;
        let mut head = [0; HEAD];
        let read = read_up_to(&mut self.from, &mut head)?;
        self.at += read as u64;
        if read < HEAD {
            return Ok(self.cut(start, "it ends without its summary"));
        }
        let (opcode, length) = (head[0], length_of(&head));
        let left = self.size.saturating_sub(self.at);
        if length > left {
            if opcode == op::CHUNK && left <= MAX_RECORD as u64 {
                return self.cut_chunk(start, left as usize);
            }
            return Ok(self.cut(start, "it ends within a record"));
        }
        if opcode == 0 || (length > MAX_RECORD as u64 && may_hold_messages(opcode)) {
            self.is_done = true;
            let why = format!("a record of type {opcode:#04x} with {length} bytes");
            self.unreadable.add(start, self.size.saturating_sub(start), why);
            return Ok(Step::End);
        }
        if !is_read(opcode) {
            self.attachments += u64::from(opcode == op::ATTACHMENT);
            self.index.write_all(&head)?;
            let skipped = io::copy(&mut (&mut self.from).take(length), &mut self.index)?;
            self.at += skipped;
            return Ok(if skipped < length { self.cut(start, "it ends within a record") } else { Step::Other });
        }
        // The length was checked against the file and the limit.
        self.record.resize(length as usize, 0);
        let read = read_up_to(&mut self.from, &mut self.record)?;
        self.at += read as u64;
        if read < self.record.len() {
            return Ok(self.cut(start, "it ends within a record"));
        }
        let record = std::mem::take(&mut self.record);
        self.index.write_all(&head)?;
        let step = match opcode {
            op::FOOTER => self.footer(start, &record)?,
            _ => {
                self.index.write_all(&record)?;
                self.top(start, opcode, &record)
            }
        };
        if opcode == op::DATA_END {
            self.index.0 = Some(crc32fast::Hasher::new());
        }
        self.record = record;
        Ok(step)
    }

    /// The file ends before its end.
    fn cut(&mut self, start: u64, why: &str) -> Step {
        self.is_done = true;
        self.unreadable.is_cut = true;
        let bytes = self.size.max(self.at).saturating_sub(start);
        if bytes > 0 {
            self.unreadable.add(start, bytes, why);
        }
        Step::End
    }

    /// The file ends within a chunk: what is there of one that is not compressed is read, without its checksum.
    fn cut_chunk(&mut self, start: u64, left: usize) -> io::Result<Step> {
        /// Times, size and checksum come before the length of the name of the compression, and the size behind it.
        const NAME: usize = 28;
        const RECORDS: usize = NAME + 4 + 8;
        self.record.resize(left, 0);
        let read = read_up_to(&mut self.from, &mut self.record)?;
        self.at += read as u64;
        let records = self.record.get(RECORDS..read).filter(|_| self.record[NAME..NAME + 4] == [0; 4]);
        let Some(records) = records else { return Ok(self.cut(start, "it ends within a chunk")) };
        self.chunk.clear();
        self.chunk.extend_from_slice(records);
        (self.next, self.chunk_at, self.is_plain) = (0, start + (HEAD + RECORDS) as u64, true);
        (self.is_done, self.unreadable.is_cut) = (true, true);
        Ok(Step::Other)
    }

    /// The end of the file: the checksum of the index, and the magic.
    fn footer(&mut self, start: u64, record: &[u8]) -> io::Result<Step> {
        let mut magic = [0; mcap::MAGIC.len()];
        let read = read_up_to(&mut self.from, &mut magic)?;
        self.at += read as u64;
        if magic != mcap::MAGIC {
            return Ok(self.cut(start, "it ends within its last bytes"));
        }
        self.is_done = true;
        let (covered, crc) = record.split_at(record.len().min(16));
        let crc = crc.first_chunk().map_or(0, |crc| u32::from_le_bytes(*crc));
        if let Some(mut hasher) = self.index.0.take()
            && crc != 0
        {
            hasher.update(covered);
            if hasher.finalize() != crc {
                self.unreadable.add(start, record.len() as u64, "the index does not agree with its checksum");
            }
        }
        Ok(Step::End)
    }

    /// Handles a record that is not in a chunk.
    fn top(&mut self, start: u64, opcode: u8, record: &[u8]) -> Step {
        let bytes = (record.len() + HEAD) as u64;
        match opcode {
            op::MESSAGE => {
                // As a chunk of one record.
                (self.chunk_at, self.is_plain) = (start, true);
                self.chunk.clear();
                self.chunk.push(opcode);
                self.chunk.extend_from_slice(&(record.len() as u64).to_le_bytes());
                self.chunk.extend_from_slice(record);
                self.next = 0;
                Step::Other
            }
            op::CHUNK => {
                self.chunk.clear();
                self.next = 0;
                (self.chunk_at, self.is_plain) = (start, false);
                if let Err(why) = unpack(record, &mut self.chunk) {
                    self.unreadable.add(start, bytes, why);
                    self.define_again();
                    self.chunk.clear();
                }
                Step::Other
            }
            op::STATISTICS => {
                // A damaged type of a record would hide it.
                let counted = match record::parse(opcode, record) {
                    Ok(Record::Statistics(statistics)) => statistics.message_count,
                    _ => self.messages,
                };
                if counted != self.messages && self.unreadable.places == 0 {
                    let why = format!("the index counts {counted} messages, and {} are there", self.messages);
                    self.unreadable.add(start, bytes, why);
                }
                Step::Other
            }
            _ => {
                if let Err(why) = self.define(opcode, record) {
                    self.unreadable.add(start, bytes, why);
                }
                Step::Other
            }
        }
    }

    /// Keeps what a chunk defines that is damaged elsewhere: later chunks rely on it. A definition that is damaged itself shows as
    /// messages that are malformed.
    fn define_again(&mut self) {
        let chunk = std::mem::take(&mut self.chunk);
        let mut rest = &chunk[..];
        while let Some(length) = rest.first_chunk::<HEAD>().and_then(|head| usize::try_from(length_of(head)).ok())
            && let Some(record) = rest[HEAD..].get(..length)
        {
            if matches!(rest[0], op::SCHEMA | op::CHANNEL) {
                // One that cannot be read is a part of the chunk that has been counted.
                let _ = self.define(rest[0], record);
            }
            rest = &rest[HEAD + length..];
        }
        self.chunk = chunk;
    }

    /// Keeps a schema, a channel or metadata.
    fn define(&mut self, opcode: u8, record: &[u8]) -> Result<(), String> {
        self.defined = self.defined.saturating_add(record.len());
        if self.defined > MAX_DEFINITIONS {
            return Err(format!("its schemas, channels and metadata have more than {MAX_DEFINITIONS} bytes"));
        }
        match record::parse(opcode, record)? {
            Record::Header(header) => self.profile = header.profile,
            Record::Schema { header, data } if header.id > 0 => {
                if self.schemas.len() >= MAX_CHANNELS && !self.schemas.contains_key(&header.id) {
                    return Err(format!("it has more than {MAX_CHANNELS} schemas"));
                }
                let schema = Schema { name: header.name, encoding: header.encoding, data: data.into_owned() };
                self.schemas.entry(header.id).or_insert(schema);
            }
            Record::Channel(mcap::records::Channel { id, schema_id, topic, message_encoding, metadata }) => {
                if self.channels.len() >= MAX_CHANNELS && !self.channels.contains_key(&id) {
                    return Err(format!("it has more than {MAX_CHANNELS} channels"));
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
    fn in_chunk(&mut self) -> Step {
        let at = self.chunk_at + if self.is_plain { self.next as u64 } else { 0 };
        let rest = &self.chunk[self.next..];
        let length = rest.first_chunk::<HEAD>().map(length_of).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length <= rest.len().saturating_sub(HEAD)) else {
            self.unreadable.add(at, rest.len() as u64, "a chunk ends within a record");
            self.next = self.chunk.len();
            return Step::Other;
        };
        let (start, opcode) = (self.next + HEAD, rest[0]);
        self.next = start + length;
        if opcode == op::MESSAGE {
            let header = match record::parse(opcode, &self.chunk[start..self.next]) {
                Ok(Record::Message { header, data }) => Some((header, data.len())),
                _ => None,
            };
            return match header.filter(|(header, _)| self.channels.contains_key(&header.channel_id)) {
                Some((header, data)) => Step::Message(header, self.next - data..self.next),
                None => {
                    let why = if header.is_some() {
                        "a message of a channel that is not defined"
                    } else {
                        "a message without times"
                    };
                    self.unreadable.add(at, (length + HEAD) as u64, why);
                    Step::Other
                }
            };
        }
        if matches!(opcode, op::SCHEMA | op::CHANNEL) {
            let chunk = std::mem::take(&mut self.chunk);
            if let Err(why) = self.define(opcode, &chunk[start..self.next]) {
                self.unreadable.add(at, (length + HEAD) as u64, why);
            }
            self.chunk = chunk;
        }
        Step::Other
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

/// Reads until the buffer is full or the file ends.
fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match from.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Decompresses the records of a chunk and checks them.
pub(super) fn unpack(record: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
    let Record::Chunk { header, data } = record::parse(op::CHUNK, record)? else {
        return Err("it is not a chunk".into());
    };
    let size = usize::try_from(header.uncompressed_size).ok().filter(|size| *size <= MAX_RECORD);
    let size = size.ok_or_else(|| format!("a chunk of {} bytes", header.uncompressed_size))?;
    // The size is the file's word, so the buffer grows as bytes come.
    let most = size as u64 + 1;
    match header.compression.as_str() {
        "" => into.extend_from_slice(&data),
        "lz4" => {
            let mut from = lz4_flex::frame::FrameDecoder::new(&data[..]).take(most);
            from.read_to_end(into).map_err(|e| format!("a chunk in lz4: {e}"))?;
        }
        "zstd" => {
            let decoder =
                ruzstd::decoding::StreamingDecoder::new(&data[..]).map_err(|e| format!("a chunk in zstd: {e}"))?;
            decoder.take(most).read_to_end(into).map_err(|e| format!("a chunk in zstd: {e}"))?;
        }
        other => return Err(format!("a chunk in `{other}`, which is not known")),
    }
    if into.len() != size {
        return Err(format!("a chunk of {size} bytes has {}", into.len()));
    }
    let crc = header.uncompressed_crc;
    if crc != 0 && crc32fast::hash(into) != crc {
        return Err("a chunk does not agree with its checksum".into());
    }
    Ok(())
}
