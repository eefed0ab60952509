//! Repair of recordings whose end is missing, or whose index is wrong: every intact message goes
//! into a new file, which is then read back.

use super::index::index_fault;
use super::reader::Unreadable;
use super::survey::{FileReader, begin};
use limen::files::{InputFile, Target};
use mcap::records::{MessageHeader, Metadata};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, BufWriter, ErrorKind, Seek, Write};

/// Bytes of a chunk of the new file.
const CHUNK: u64 = 1 << 20;

/// What a repair found and wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// Messages that are in the new file.
    pub messages: u64,
    /// Their topics.
    pub topics: usize,
    /// Attachments, which are not in the new file.
    pub attachments: u64,
    /// What the old file has besides.
    pub unreadable: Unreadable,
}

/// What the messages of a file add up to: their number, and a checksum of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    messages: u64,
    crc: u32,
}

fn add(crc: &mut crc32fast::Hasher, header: &MessageHeader, data: &[u8]) {
    crc.update(&header.log_time.to_le_bytes());
    crc.update(&header.publish_time.to_le_bytes());
    crc.update(&header.sequence.to_le_bytes());
    crc.update(data);
}

/// Reads a recording and passes on each message; returns the sum of all.
fn read_all(
    reader: &mut FileReader,
    mut each: impl FnMut(&FileReader, &MessageHeader, &[u8]) -> io::Result<()>,
) -> io::Result<Sum> {
    let (mut messages, mut crc) = (0, crc32fast::Hasher::new());
    while let Some(message) = reader.next_message()? {
        let header = message.header;
        messages += 1;
        add(&mut crc, &header, message.data);
        each(reader, &header, reader.message())?;
    }
    Ok(Sum { messages, crc: crc.finalize() })
}

/// What a file holds that was read, with what is wrong with its index: a reader that seeks would
/// not find every message.
fn found(reader: &FileReader, sum: Sum, again: InputFile) -> io::Result<Repair> {
    let topics: HashSet<&str> = reader.channels().map(|(_, channel)| channel.topic.as_str()).collect();
    let (attachments, mut unreadable) = (reader.attachments(), reader.unreadable().clone());
    if unreadable.places == 0 && !unreadable.is_cut {
        unreadable.first = fault_of(again, reader, sum)?;
        unreadable.places = u64::from(unreadable.first.is_some());
    }
    Ok(Repair { messages: sum.messages, topics: topics.len(), attachments, unreadable })
}

fn fault_of(file: InputFile, read: &FileReader, sum: Sum) -> io::Result<Option<(u64, String)>> {
    let size = file.size();
    index_fault(BufReader::new(file), size, read, sum.messages)
}

/// Returns what a recording holds, without writing anything.
///
/// # Errors
/// Input and output; `InvalidData` if it is not an MCAP file.
pub fn inspect(file: InputFile) -> io::Result<Repair> {
    let again = InputFile::again(file.real())?;
    let mut reader = begin(file)?;
    let sum = read_all(&mut reader, |_, _, _| Ok(()))?;
    found(&reader, sum, again)
}

/// Writes the intact messages of a recording into a new file, which must not exist, and reads that
/// back.
///
/// # Errors
/// Input and output; `InvalidData` if the old file is not an MCAP file, or if the new one does not
/// hold the same messages. Then it is removed.
pub fn repair(file: InputFile, to: Target) -> io::Result<Repair> {
    if to.path().symlink_metadata().is_ok() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, format!("`{}` already exists", to.path().display())));
    }
    let old = InputFile::again(file.real())?;
    let mut reader = begin(file)?;
    let (written, part) = to.begin()?;
    let copied = copy(&mut reader, written);
    let again = || InputFile::open(part.path());
    let verified = copied.and_then(|sum| verify(again()?, again()?, sum).and_then(|()| found(&reader, sum, old)));
    match verified {
        Ok(found) => {
            part.finish()?;
            Ok(found)
        }
        Err(error) => {
            part.discard();
            Err(error)
        }
    }
}

fn wrong(error: mcap::McapError) -> io::Error {
    match error {
        mcap::McapError::Io(error) => error,
        other => io::Error::other(other),
    }
}

/// Adds a channel with its schema; returns its new number.
fn add_channel<W: Write + Seek>(reader: &FileReader, writer: &mut mcap::Writer<W>, number: u16) -> io::Result<u16> {
    let channel = reader.channel(number).ok_or(ErrorKind::InvalidData)?;
    let schema = match reader.schema(channel.schema) {
        Some(schema) => writer.add_schema(&schema.name, &schema.encoding, &schema.data).map_err(wrong)?,
        None => 0,
    };
    writer.add_channel(schema, &channel.topic, &channel.encoding, &channel.metadata).map_err(wrong)
}

fn copy(reader: &mut FileReader, to: std::fs::File) -> io::Result<Sum> {
    let to = BufWriter::new(to);
    let mut writer = None;
    let mut to = Some(to);
    let mut channels = HashMap::new();
    let mut create = |reader: &FileReader| -> io::Result<Option<mcap::Writer<_>>> {
        let Some(to) = to.take() else { return Ok(None) };
        let options = mcap::WriteOptions::new()
            .compression(None)
            .chunk_size(Some(CHUNK))
            .profile(reader.profile())
            .library(concat!("limen ", env!("CARGO_PKG_VERSION")));
        options.create(to).map(Some).map_err(wrong)
    };
    let sum = read_all(reader, |reader, header, data| {
        if writer.is_none() {
            writer = create(reader)?;
        }
        let Some(writer) = &mut writer else { return Err(ErrorKind::Other.into()) };
        let channel_id = match channels.entry(header.channel_id) {
            Entry::Occupied(there) => *there.get(),
            Entry::Vacant(new) => *new.insert(add_channel(reader, writer, header.channel_id)?),
        };
        let header = MessageHeader { channel_id, ..*header };
        writer.write_to_known_channel(&header, data).map_err(wrong)
    })?;
    if writer.is_none() {
        writer = create(reader)?;
    }
    let Some(mut writer) = writer else { return Err(ErrorKind::Other.into()) };
    for (name, metadata) in reader.metadata() {
        let metadata = Metadata { name: name.clone(), metadata: metadata.clone() };
        writer.write_metadata(&metadata).map_err(wrong)?;
    }
    writer.finish().map_err(wrong)?;
    writer.into_inner().flush()?;
    Ok(sum)
}

/// Reads a file that was written, from its beginning and by its index.
fn verify(file: InputFile, again: InputFile, expected: Sum) -> io::Result<()> {
    let wrong = |why: String| io::Error::new(ErrorKind::InvalidData, format!("cannot read the new file: {why}"));
    let mut reader = begin(file)?;
    let found = read_all(&mut reader, |_, _, _| Ok(()))?;
    if found != expected {
        return Err(wrong(format!("expected {1} messages, found {0}", found.messages, expected.messages)));
    }
    if let Some((at, why)) = &reader.unreadable().first {
        return Err(wrong(format!("{why}, from byte {at} on")));
    }
    match fault_of(again, &reader, expected)? {
        Some((at, why)) => Err(wrong(format!("{why}, at byte {at}"))),
        None => Ok(()),
    }
}
