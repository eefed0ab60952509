//! The index of a recording, followed as a reader does that seeks: to each chunk, and to each
//! message in it.

use super::reader::{Channel, MAX_RECORD, RecordingReader, Schema};
use super::record;
use super::unpack::{Unpacking, check_total};
use mcap::records::{ChunkIndex, Record, op};
use std::collections::HashSet;
use std::io::{self, BufReader, Read, Seek};

/// Opcode and length of a record.
const HEAD: u64 = 9;
/// The footer's record, and the magic behind it.
const END: u64 = HEAD + 20 + mcap::MAGIC.len() as u64;
/// The record that ends the data.
const DATA_END: u64 = HEAD + 4;
/// Bytes read at a time for the checksum of the data.
const PIECE: u64 = 1 << 20;

/// Where an index is wrong, and how; or why that cannot be found out.
#[derive(Debug)]
enum IndexFault {
    Wrong(u64, String),
    Io(io::Error),
}

impl From<io::Error> for IndexFault {
    fn from(error: io::Error) -> Self {
        IndexFault::Io(error)
    }
}

fn wrong<T>(at: u64, why: impl Into<String>) -> Result<T, IndexFault> {
    Err(IndexFault::Wrong(at, why.into()))
}

/// Follows the index of a file of `size` bytes. `read` has read it to its end, where it found
/// `messages`, and nothing unreadable. Returns where a reader that seeks goes wrong, and how;
/// `None` if it finds every message, or if the file has no index.
///
/// # Errors
/// Input and output.
pub(crate) fn index_fault<R: Read>(
    from: BufReader<impl Read + Seek>,
    size: u64,
    read: &RecordingReader<R>,
    messages: u64,
) -> io::Result<Option<(u64, String)>> {
    let used = HashSet::new();
    let mut index = Index { from, at: 0, size, left: size, record: Vec::new(), chunk: Vec::new(), unpacked: 0, used };
    match index.follow(read, messages) {
        Ok(()) => Ok(None),
        Err(IndexFault::Wrong(at, why)) => Ok(Some((at, why))),
        Err(IndexFault::Io(error)) => Err(error),
    }
}

struct Index<R> {
    from: BufReader<R>,
    /// Where it reads next.
    at: u64,
    size: u64,
    /// Bytes that may still be read: every record is read once.
    left: u64,
    /// The record last read, and the records of the chunk last read.
    record: Vec<u8>,
    chunk: Vec<u8>,
    /// Bytes of all chunks so far.
    unpacked: u64,
    /// The channels that have messages.
    used: HashSet<u16>,
}

impl<R: Read + Seek> Index<R> {
    /// Reads the opcode and the length of the record at a place.
    fn head(&mut self, at: u64) -> Result<(u8, u64), IndexFault> {
        let mut head = [0; HEAD as usize];
        if at.checked_add(HEAD).is_none_or(|end| end > self.size) {
            return wrong(at, "the index points beyond the end of the file");
        }
        // No file is longer than an `i64` counts.
        self.from.seek_relative(at as i64 - self.at as i64)?;
        self.from.read_exact(&mut head)?;
        self.at = at + HEAD;
        let [opcode, length @ ..] = head;
        Ok((opcode, u64::from_le_bytes(length)))
    }

    /// Reads the record at a place into `record`, and returns its opcode.
    fn any(&mut self, at: u64) -> Result<u8, IndexFault> {
        let (opcode, length) = self.head(at)?;
        if length > (MAX_RECORD as u64).min(self.size - self.at) {
            return wrong(at, "the index points to a record that ends beyond the file");
        }
        let Some(left) = self.left.checked_sub(HEAD + length) else {
            return wrong(at, "the index points to a record repeatedly");
        };
        self.left = left;
        // At most MAX_RECORD.
        self.record.resize(length as usize, 0);
        self.from.read_exact(&mut self.record)?;
        self.at += length;
        Ok(opcode)
    }

    /// Reads the record at a place, which is to be of a type, into `record`.
    fn read(&mut self, at: u64, expected: u8, what: &str) -> Result<(), IndexFault> {
        if self.any(at)? == expected {
            return Ok(());
        }
        wrong(at, format!("the index points to {what} that does not exist"))
    }

    fn follow(&mut self, read: &RecordingReader<impl Read>, messages: u64) -> Result<(), IndexFault> {
        let Some(end) = self.size.checked_sub(END) else { return Ok(()) };
        self.read(end, op::FOOTER, "a footer")?;
        let Ok(Record::Footer(footer)) = record::parse(op::FOOTER, &self.record) else {
            return wrong(end, "the footer cannot be read");
        };
        let start = footer.summary_start;
        if start == 0 {
            return Ok(());
        }
        self.check_data(start)?;
        let (mut at, mut chunks, mut found, mut expected) = (start, 0, 0, None);
        let (mut schemas, mut channels) = (HashSet::new(), HashSet::new());
        while at < end {
            let opcode = self.any(at)?;
            let next = self.at;
            let record = std::mem::take(&mut self.record);
            // The others, which no index has, lead nowhere.
            let is_followed = matches!(
                opcode,
                op::SCHEMA
                    | op::CHANNEL
                    | op::CHUNK_INDEX
                    | op::ATTACHMENT_INDEX
                    | op::STATISTICS
                    | op::METADATA_INDEX
                    | op::SUMMARY_OFFSET
            );
            let parsed = is_followed.then(|| record::parse(opcode, &record));
            let is_right = match parsed {
                Some(Ok(Record::ChunkIndex(index))) => {
                    chunks += 1;
                    found += self.follow_chunk(at, &index)?;
                    true
                }
                Some(Ok(Record::Statistics(statistics))) => {
                    expected = Some(statistics.chunk_count);
                    true
                }
                Some(Ok(Record::Schema { header, data })) => {
                    let schema = Schema { name: header.name, encoding: header.encoding, data: data.into_owned() };
                    schemas.insert(header.id);
                    read.schema(header.id) == Some(&schema)
                }
                Some(Ok(Record::Channel(record))) => {
                    let mcap::records::Channel { id, schema_id, topic, message_encoding, metadata } = record;
                    let channel = Channel { topic, schema: schema_id, encoding: message_encoding, metadata };
                    channels.insert(id);
                    read.channel(id) == Some(&channel)
                }
                Some(Ok(Record::SummaryOffset(group))) => {
                    group.group_length == 0 || self.head(group.group_start)?.0 == group.group_opcode
                }
                Some(Ok(_)) | None => true,
                Some(Err(_)) => false,
            };
            if !is_right {
                return wrong(at, format!("a record of type {opcode:#04x} of the index does not match the data"));
            }
            at = next;
        }
        // A writer may leave out all schemas and all channels if there are no chunks, and those
        // without messages. With chunks, a reader that seeks takes them from here.
        let schema = |number: &u16| read.channel(*number).map_or(0, |channel| channel.schema);
        let (has_schemas, has_channels) = (chunks > 0 || !schemas.is_empty(), chunks > 0 || !channels.is_empty());
        let lacks_channel = has_channels && !self.used.is_subset(&channels);
        let mut needed = self.used.iter().map(schema).filter(|number| *number > 0);
        if lacks_channel || (has_schemas && needed.any(|number| !schemas.contains(&number))) {
            return wrong(start, "the index lacks a schema or a channel of the data");
        }
        if chunks == 0 {
            return Ok(());
        }
        if let Some(expected) = expected.filter(|expected| *expected != chunks) {
            return wrong(start, format!("expected {expected} chunks in the index, found {chunks}"));
        }
        if found != messages {
            return wrong(start, format!("expected {messages} messages in the index, found {found}"));
        }
        Ok(())
    }

    /// Compares the data, which ends at `end`, with its checksum, if it has one.
    fn check_data(&mut self, end: u64) -> Result<(), IndexFault> {
        let Some(at) = end.checked_sub(DATA_END) else { return wrong(end, "the index begins within the data") };
        self.read(at, op::DATA_END, "an end of the data")?;
        let crc = self.record.first_chunk().map_or(0, |crc| u32::from_le_bytes(*crc));
        if crc == 0 {
            return Ok(());
        }
        self.from.seek_relative(-(self.at as i64))?;
        self.at = at;
        let (mut hasher, mut left) = (crc32fast::Hasher::new(), at);
        while left > 0 {
            self.record.resize(left.min(PIECE) as usize, 0);
            self.from.read_exact(&mut self.record)?;
            hasher.update(&self.record);
            left -= self.record.len() as u64;
        }
        if hasher.finalize() == crc {
            Ok(())
        } else {
            wrong(at, "the data does not match its checksum: a message may be damaged")
        }
    }

    /// Unpacks the chunk in the record.
    fn unpack(&mut self) -> Result<(), String> {
        self.chunk.clear();
        let mut unpacking = Unpacking::new(&mut self.record)?;
        while !unpacking.go_on(&mut self.chunk)? {}
        self.unpacked += self.chunk.len() as u64;
        check_total(self.unpacked, self.size)
    }

    /// Follows the index of one chunk, described at `from`; returns its messages.
    fn follow_chunk(&mut self, from: u64, index: &ChunkIndex) -> Result<u64, IndexFault> {
        let at = index.chunk_start_offset;
        self.read(at, op::CHUNK, "a chunk")?;
        if self.record.len() as u64 + HEAD != index.chunk_length {
            return wrong(
                from,
                format!(
                    "the index declares {} bytes for a chunk, found {}",
                    index.chunk_length,
                    self.record.len() as u64 + HEAD
                ),
            );
        }
        if let Err(why) = self.unpack() {
            return wrong(at, why);
        }
        if index.uncompressed_size != self.chunk.len() as u64 {
            return wrong(
                from,
                format!(
                    "the index declares {} bytes of records for a chunk, found {}",
                    index.uncompressed_size,
                    self.chunk.len()
                ),
            );
        }
        let messages = messages(&self.chunk);
        let times = index.message_start_time..=index.message_end_time;
        if let Some(message) = messages.iter().find(|message| !times.contains(&message.time)) {
            return wrong(
                from,
                format!(
                    "expected messages from {} to {} ns in the chunk, as in the index, found one at {} ns",
                    index.message_start_time, index.message_end_time, message.time
                ),
            );
        }
        self.used.extend(messages.iter().map(|message| message.channel));
        let mut is_indexed = vec![false; messages.len()];
        for (channel, at) in &index.message_index_offsets {
            self.read(*at, op::MESSAGE_INDEX, "a message index")?;
            let Ok(Record::MessageIndex(found)) = record::parse(op::MESSAGE_INDEX, &self.record) else {
                return wrong(*at, "a message index cannot be read");
            };
            for entry in &found.records {
                let expected = ChunkMessage { at: entry.offset, channel: *channel, time: entry.log_time };
                match messages.binary_search_by_key(&entry.offset, |message| message.at) {
                    Ok(n) if found.channel_id == *channel && messages[n] == expected && !is_indexed[n] => {
                        is_indexed[n] = true;
                    }
                    _ => return wrong(*at, "the index points to a message that does not exist"),
                }
            }
        }
        // An index may leave out where messages are.
        let has_places = !index.message_index_offsets.is_empty() || index.message_index_length > 0;
        let missing = is_indexed.iter().filter(|is_indexed| !**is_indexed).count();
        if has_places && missing > 0 {
            return wrong(from, format!("messages of a chunk that are missing from the index: {missing}"));
        }
        Ok(messages.len() as u64)
    }
}

/// A message of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChunkMessage {
    at: u64,
    channel: u16,
    time: u64,
}

/// Returns the messages of a chunk in their order.
fn messages(chunk: &[u8]) -> Vec<ChunkMessage> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some([opcode, length @ ..]) = chunk.get(at..).and_then(|rest| rest.first_chunk::<{ HEAD as usize }>()) {
        let body = at + HEAD as usize;
        let end = usize::try_from(u64::from_le_bytes(*length)).ok().and_then(|length| body.checked_add(length));
        let Some(record) = end.and_then(|end| chunk.get(body..end)) else { break };
        if let (op::MESSAGE, Ok(Record::Message { header, .. })) = (*opcode, record::parse(*opcode, record)) {
            found.push(ChunkMessage { at: at as u64, channel: header.channel_id, time: header.log_time });
        }
        at = body + record.len();
    }
    found
}
