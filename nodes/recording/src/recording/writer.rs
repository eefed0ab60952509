//! Writing MCAP files that are readable up to the last flush, whatever ends the process.
//!
//! Long messages go to the kernel at once, from where they are, and short ones together. A chunk
//! ends, and all of it is then in the file, when it has [`CHUNK`] bytes, and [`FLUSH_NS`] after its
//! first message at the latest. What the kernel has taken survives the end of the process.

use super::mcap_file::McapFile;
use super::meaning::{Channel, Schemas};
use limen::files::{PartialFile, Target};
use limen::node::NodeError;
use limen::unit::{Bytes, Span};
use limen::{Folders, Tensor};
use limen_nodes_core::file::output_file::FullDisk;
use mcap::records::MessageHeader;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Bytes of a chunk.
const CHUNK: usize = 1 << 20;
/// How long a message may wait in memory, ns.
const FLUSH_NS: u64 = 500_000_000;
/// After so many chunks a new file begins: the file's index is kept in memory until it is written
/// at the end.
const MAX_CHUNKS: u32 = 1 << 16;
/// How long to wait after a failed write before a new file is tried, ns.
const RETRY_NS: u64 = 1_000_000_000;
/// The most files of one name.
const MAX_FILES: u32 = 9999;

/// When a new file begins.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rotation {
    /// At so many bytes.
    pub(crate) size: Option<Bytes>,
    /// After so long.
    pub(crate) time: Option<Span>,
}

/// A file being written.
#[derive(Debug)]
struct Open {
    writer: McapFile,
    part: PartialFile,
    /// The numbers of the channels.
    ids: Vec<u16>,
    path: PathBuf,
    /// When it began.
    since: u64,
    chunks: u32,
    /// Bytes that are complete.
    complete: u64,
}

/// Writes messages of several channels to a file, and to the next one when that is due.
#[derive(Debug)]
pub(crate) struct RecordingWriter {
    folders: Folders,
    path: String,
    rotation: Rotation,
    channels: Vec<Channel>,
    metadata: BTreeMap<String, String>,
    open: Option<Open>,
    /// The number of the next file.
    number: u32,
    /// After a failed write: when to try again.
    retry_at: u64,
    message: Vec<u8>,
    /// Messages and bytes in the chunk, and when it has to be written.
    pending: u64,
    pending_bytes: usize,
    due: u64,
    /// Figures of all files.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) full: FullDisk,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) file_count: u64,
}

/// Returns the path of file `number`: `drive.mcap`, `drive-0002.mcap`.
fn numbered(path: &str, number: u32) -> String {
    if number <= 1 {
        return path.to_string();
    }
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    let stem = extension.and_then(|extension| path.strip_suffix(extension)?.strip_suffix('.'));
    match (stem, extension) {
        (Some(stem), Some(extension)) => format!("{stem}-{number:04}.{extension}"),
        _ => format!("{path}-{number:04}"),
    }
}

/// The most paths that are kept for the report.
const MAX_NAMED: usize = 3;

impl RecordingWriter {
    /// Begins the first file. With `must_be_new`, it must not exist; otherwise the next number
    /// without a file is taken.
    pub(crate) fn new(
        folders: &Folders,
        path: &str,
        must_be_new: bool,
        rotation: Rotation,
        channels: Vec<Channel>,
        metadata: BTreeMap<String, String>,
        now: u64,
    ) -> Result<Self, NodeError> {
        let mut writer = RecordingWriter {
            folders: folders.clone(),
            path: path.to_string(),
            rotation,
            channels,
            metadata,
            open: None,
            number: 1,
            retry_at: 0,
            message: Vec::new(),
            pending: 0,
            pending_bytes: 0,
            due: u64::MAX,
            messages: 0,
            bytes: 0,
            full: FullDisk::default(),
            files: Vec::new(),
            file_count: 0,
        };
        writer.begin(must_be_new, now)?;
        Ok(writer)
    }

    /// Returns the memory that it takes, for messages of at most `largest` bytes.
    pub(crate) fn memory(largest: usize, channels: usize) -> usize {
        let index = MAX_CHUNKS as usize * (McapFile::INDEX + McapFile::INDEX_OF_CHANNEL * channels);
        largest.saturating_add(McapFile::memory(channels) + index)
    }

    /// Creates the next file that does not exist.
    fn create(&mut self, must_be_new: bool) -> Result<(File, PartialFile), NodeError> {
        loop {
            let path = numbered(&self.path, self.number);
            let target: Target = self.folders.target(&path)?;
            let path = target.path().to_path_buf();
            match target.begin_new() {
                Ok(begun) => return Ok(begun),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && !must_be_new && self.number < MAX_FILES => {
                    self.number += 1;
                }
                Err(error) => return Err(NodeError::file(path, error)),
            }
        }
    }

    /// Begins the next file. One for which the disk has no room is removed again.
    fn begin(&mut self, must_be_new: bool, now: u64) -> Result<(), NodeError> {
        let (file, part) = self.create(must_be_new)?;
        let path = part.path().to_path_buf();
        match self.begin_file(file, &path) {
            Ok((writer, ids)) => {
                let complete = writer.end();
                let open = Open { writer, part, ids, path, since: now, chunks: 1, complete };
                if self.files.len() < MAX_NAMED {
                    self.files.push(open.path.clone());
                }
                self.file_count += 1;
                self.number += 1;
                self.open = Some(open);
                Ok(())
            }
            Err(error) => {
                // If that fails too, the next number is taken: a file is never overwritten.
                part.discard();
                Err(error)
            }
        }
    }

    /// Writes what comes before the messages.
    fn begin_file(&self, file: File, path: &Path) -> Result<(McapFile, Vec<u16>), NodeError> {
        let wrong = |error: io::Error| NodeError::file(path, error);
        let is_ros = self.channels.iter().all(|channel| channel.encoding == Schemas::Ros2);
        let library = concat!("limen ", env!("CARGO_PKG_VERSION"));
        let mut writer = McapFile::new(file, if is_ros { "ros2" } else { "" }, library);
        writer.metadata("limen", &self.metadata);
        let (mut schemas, mut ids) = (HashMap::new(), Vec::new());
        for channel in &self.channels {
            let (encoding, schema) = channel.definition();
            let number = match schemas.entry((&channel.schema, encoding)) {
                Entry::Occupied(there) => *there.get(),
                Entry::Vacant(new) => *new.insert(writer.schema(&channel.schema, encoding, &schema).map_err(wrong)?),
            };
            let encoding = channel.message_encoding();
            ids.push(writer.channel(number, &channel.topic, encoding, &channel.metadata).map_err(wrong)?);
        }
        writer.finish_chunk().map_err(wrong)?;
        Ok((writer, ids))
    }

    /// Records a tensor of a channel: made at `stamp`, taken at `log_time`, both in ns since 1970.
    pub(crate) fn write(
        &mut self,
        channel: usize,
        tensor: &Tensor,
        seq: u64,
        stamp: u64,
        log_time: u64,
        now: u64,
    ) -> Result<(), NodeError> {
        let place = self.channels[channel].encode_around(tensor, stamp, &mut self.message)?;
        if !self.make_ready(now)? {
            self.full.lose(1);
            return Ok(());
        }
        let Some(open) = &mut self.open else { return Err(NodeError::input(&*self.path, "no recording file is open")) };
        let header = MessageHeader {
            channel_id: open.ids[channel],
            // The format has 32 bits.
            sequence: seq as u32,
            log_time,
            publish_time: stamp,
        };
        if self.pending == 0 {
            self.due = now.saturating_add(FLUSH_NS);
        }
        self.pending += 1;
        let (before, after) = self.message.split_at(place.unwrap_or(self.message.len()));
        let elements = if place.is_some() { tensor.bytes() } else { &[] };
        if let Err(error) = open.writer.message(&header, [before, elements, after]) {
            return Err(self.fail(error, true, now));
        }
        self.pending_bytes += self.message.len() + elements.len();
        if self.pending_bytes >= CHUNK || open.writer.is_full() { self.flush_chunk(true, now) } else { Ok(()) }
    }

    /// Makes sure that a file is open, and begins the next one if it is due. Returns false while a
    /// full disk is not tried again.
    fn make_ready(&mut self, now: u64) -> Result<bool, NodeError> {
        let is_over = self.open.as_ref().is_some_and(|open| {
            let size = open.complete + self.pending_bytes as u64;
            open.chunks >= MAX_CHUNKS
                || self.rotation.size.is_some_and(|most| size >= most.0)
                || self.rotation.time.is_some_and(|most| now.saturating_sub(open.since) >= most.as_nanos())
        });
        if is_over {
            self.finish(now)?;
        }
        if self.open.is_none() {
            if now < self.retry_at && self.full.is_full() {
                return Ok(false);
            }
            if now < self.retry_at {
                return Err(NodeError::input(
                    &*self.path,
                    "no file is open after a failed write: limen retries once per second",
                ));
            }
            let begun = self.begin(false, now);
            if begun.is_err() {
                self.retry_at = now.saturating_add(RETRY_NS);
            }
            begun.map_err(|error| self.full.judge(error))?;
            self.full.is_over();
        }
        Ok(true)
    }

    /// When the chunk has to be written; the largest number if it is empty.
    pub(crate) fn due(&self) -> u64 {
        if self.pending > 0 { self.due } else { u64::MAX }
    }

    /// Writes the chunk if it is due.
    pub(crate) fn flush_due(&mut self, now: u64) -> Result<(), NodeError> {
        if now >= self.due() { self.flush_chunk(false, now) } else { Ok(()) }
    }

    fn flush_chunk(&mut self, in_call: bool, now: u64) -> Result<(), NodeError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if let Err(error) = open.writer.finish_chunk() {
            return Err(self.fail(error, in_call, now));
        }
        open.chunks += 1;
        let before = open.complete;
        open.complete = open.writer.end();
        if limen::files::is_deleted(open.writer.file()) {
            let gone = io::Error::new(ErrorKind::NotFound, "the file was deleted during the recording");
            return Err(self.fail(gone, in_call, now));
        }
        self.messages += self.pending;
        self.bytes += open.complete - before;
        (self.pending, self.pending_bytes) = (0, 0);
        Ok(())
    }

    /// Gives up the file; what is in it stays readable. Its message of the failing call is counted
    /// by the engine.
    fn fail(&mut self, error: io::Error, in_call: bool, now: u64) -> NodeError {
        let lost = self.pending.saturating_sub(u64::from(in_call));
        (self.pending, self.pending_bytes) = (0, 0);
        self.retry_at = now.saturating_add(RETRY_NS);
        let Some(open) = self.open.take() else {
            self.full.lose_by(&error, lost);
            return NodeError::input(&*self.path, error);
        };
        let Open { writer, part, path, complete, .. } = open;
        // It has its name, so this cannot fail.
        let _ = part.finish();
        // What follows is cut off. If cutting fails as well, a reader counts what it cannot read.
        let _ = writer.file().set_len(complete);
        let text = format!("{error} (complete bytes: {complete}, messages lost earlier: {lost})");
        let judged = self.full.judge(NodeError::file(path, io::Error::new(error.kind(), text)));
        self.full.lose_by(&error, lost);
        judged
    }

    /// Completes the file with its index.
    pub(crate) fn finish(&mut self, now: u64) -> Result<(), NodeError> {
        self.flush_chunk(false, now)?;
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let finished = open.writer.finish();
        let _ = open.part.finish();
        let Err(error) = finished else { return Ok(()) };
        let _ = open.writer.file().set_len(open.complete);
        let text = format!("cannot write the index: {error}: run `limen-run recover` to write the index");
        Err(self.full.judge(NodeError::file(open.path, io::Error::new(error.kind(), text))))
    }
}

impl Drop for RecordingWriter {
    fn drop(&mut self) {
        // Without a message the run did not begin.
        if self.messages + self.pending == 0 {
            return self.open.take().into_iter().for_each(|open| open.part.discard());
        }
        // The run was interrupted, and an error can no longer be reported.
        let _ = self.finish(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_numbered_before_their_extension() {
        for (path, number, expected) in [
            ("out/drive.mcap", 1, "out/drive.mcap"),
            ("out/drive.mcap", 2, "out/drive-0002.mcap"),
            ("drive", 12, "drive-0012"),
            ("a.b/drive", 3, "a.b/drive-0003"),
        ] {
            assert_eq!(numbered(path, number), expected);
        }
    }
}
