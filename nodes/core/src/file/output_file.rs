//! Files that sinks write: where they may be, what happens to an existing file, and writes of whole
//! messages.

mod append;
mod full;
#[cfg(test)]
mod tests;

pub use append::MessageEnd;
pub use full::FullDisk;
pub use full::OnFull;

use limen::Folders;
use limen::files::{self, MAX_NAME, PartialFile, names_folder, real_path};
use limen::node::{Claim, Metrics, NodeError, PlanErrors, Planning, Ports};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Action if the file already exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exists {
    /// Replace the file when the run ends. The existing file stays unchanged until the run ends.
    #[default]
    Replace,
    /// Append to the existing file.
    Append,
    /// Reject the graph.
    Fail,
}

/// Bytes collected before a write: enough to make writes rare, too few to matter.
const BUFFER: usize = 64 << 10;
/// Messages collected before a write.
const MAX_BUFFERED_MESSAGES: usize = 4 << 10;

/// Checks while planning that a file can be written, and claims it.
pub fn plan(path: &str, exists: Exists, cx: &Planning<'_>, ports: Ports, errors: &mut PlanErrors) -> Ports {
    let target = match cx.folders.output(path) {
        Ok(target) => target,
        Err(message) => {
            errors.at("path", message).help("write a path below the graph file's folder, or use `--out DIR`");
            return ports;
        }
    };
    if names_folder(path) {
        errors
            .at("path", format!("expected a file, found the folder `{path}`"))
            .help("write a path such as `out/result.csv`");
        return ports;
    }
    let length = target.file_name().map_or(0, |name| name.len());
    if length > MAX_NAME {
        errors
            .at("path", format!("the file name must have at most {MAX_NAME} bytes, got {length}"))
            .help(format!("write a name of at most {MAX_NAME} bytes"));
        return ports;
    }
    let mut ports = ports;
    if exists == Exists::Replace {
        for left in cx.folders.partial.left(&target) {
            let (part, kept) = (left.display(), files::kept_path(&target, &left));
            ports = ports.notice(format!(
                "renames `{part}`, which an interrupted run left, to `{}` when this run completes",
                kept.display()
            ));
        }
    }
    match fs::metadata(&target) {
        Ok(found) if !found.is_file() => {
            let what = if found.is_dir() { "folder" } else { "special file" };
            let message = format!("expected a regular file, found the {what} `{path}`");
            errors.at("path", message).help("write a path such as `out/result.csv`");
        }
        Ok(_) if exists == Exists::Fail => {
            let help = format!("remove `{path}`, or write `exists: replace` or `exists: append`");
            errors.at("path", format!("`{path}` already exists, which `exists: fail` rejects")).help(help);
        }
        // The last folder of the path may be created later.
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let help = format!("make `{path}` writable, or write another path");
            errors.at("path", format!("`{path}` cannot be written: {error}")).help(help);
        }
        found => {
            // What is appended to stays, so its folder is not written.
            let appends = exists == Exists::Append && found.is_ok();
            let check = if appends { files::check_writable } else { files::check_creatable };
            if let Err(error) = check(&target) {
                let help = format!("make `{path}` writable, use `--out DIR`, or write another path");
                errors.at("path", format!("`{path}` cannot be written: {error}")).help(help);
            }
        }
    }
    // The folder given with `--out` may be created after planning.
    let above = target.parent().and_then(Path::parent);
    if let (None, Some(above)) = (&cx.folders.out, above.filter(|a| !a.as_os_str().is_empty() && !a.is_dir())) {
        let message = format!("the folder `{}` does not exist", above.display());
        let help = format!("create `{}`, or write a path with at most one new folder", above.display());
        errors.at("path", message).help(help);
    }
    ports.claim(Claim::File(real_path(&target))).blocking()
}

/// A file being written. With [`Exists::Replace`] it appears under its name when it is complete,
/// otherwise as it is written.
///
/// A file that was neither finished nor has accepted a message is discarded: its run did not begin,
/// and every file is as it was.
///
/// A message is accepted whole or not at all. An accepted message that cannot be written, because
/// the disk is full, stays in the buffer, is retried, and is counted as lost if it is never
/// written. A file that is cut short ends with a whole message.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    path: PathBuf,
    /// Until it is finished or discarded.
    part: Option<PartialFile>,
    /// Whether the file had content when it was opened.
    pub(crate) continues: bool,
    /// What the report says of an unfinished message at the end of the file that is appended to.
    torn: Option<String>,
    /// The bytes of the file that is appended to that remain, if it ends with an unfinished
    /// message. Cut when the run writes first.
    whole: Option<u64>,
    /// Bytes accepted but not yet written, and where messages end in them.
    buffer: Vec<u8>,
    ends: Vec<usize>,
    written: u64,
    /// How many of them come before the first message, and how many belong to a message whose end
    /// is in the buffer.
    head: u64,
    begun: u64,
    full: FullDisk,
    /// Messages written completely.
    messages: u64,
    /// The file was deleted while it was open.
    is_deleted: bool,
}

impl OutputFile {
    /// Opens the file, creating the last folder of its path.
    pub fn open(folders: &Folders, path: &str, exists: Exists, full: FullDisk) -> Result<Self, NodeError> {
        let target = folders.target(path)?;
        let path = target.path().to_path_buf();
        let at = |error| NodeError::file(path.clone(), error);
        let begun = match exists {
            Exists::Replace => target.begin(),
            Exists::Append => target.append(),
            // There is no older file to keep until the end.
            Exists::Fail => target.begin_new(),
        };
        let (file, part) = begun.map_err(at)?;
        let continues = file.metadata().is_ok_and(|m| m.len() > 0);
        let mut file = OutputFile::of(file, path);
        (file.continues, file.part, file.full) = (continues, Some(part), full);
        Ok(file)
    }

    fn of(file: File, path: PathBuf) -> Self {
        let (buffer, ends) = (Vec::with_capacity(BUFFER), Vec::with_capacity(MAX_BUFFERED_MESSAGES));
        OutputFile {
            file,
            path,
            part: None,
            continues: false,
            torn: None,
            whole: None,
            buffer,
            ends,
            written: 0,
            head: 0,
            begun: 0,
            full: FullDisk::default(),
            messages: 0,
            is_deleted: false,
        }
    }

    /// Opens the file that is appended to, to read its beginning.
    pub(crate) fn open_existing(&self) -> Result<files::InputFile, NodeError> {
        let opened = match &self.part {
            Some(part) => part.open(),
            None => Err(ErrorKind::NotFound.into()),
        };
        opened.map_err(|e| NodeError::file(&self.path, e))
    }

    /// The path, as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reports the messages that are not written when the node ends, and an unfinished message that
    /// was found, if any.
    pub fn metrics(&self, to: &mut Metrics) {
        self.full.metrics(self.ends.len() as u64, to);
        if let Some(torn) = &self.torn {
            to.set("torn", 1.0);
            to.note(format!("`{}`: {torn}", self.path.display()));
        }
    }

    /// The number of bytes accepted but not yet written.
    pub fn buffered_bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Makes room for a message. If it fails, no message can be accepted at the moment; nor if it
    /// returns false, because the disk is full: the message is counted as lost.
    pub fn make_room(&mut self) -> Result<bool, NodeError> {
        if !self.has_messages() {
            self.head = self.written + self.buffer.len() as u64;
        }
        if self.has_room() {
            return Ok(true);
        }
        self.flush()?;
        let has_room = self.has_room();
        if !has_room {
            self.full.lose(1);
        }
        Ok(has_room)
    }

    fn has_room(&self) -> bool {
        self.buffer.len() < BUFFER && self.ends.len() < MAX_BUFFERED_MESSAGES
    }

    /// Appends bytes of a message, after [`OutputFile::make_room`].
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Marks the end of a message.
    pub fn end_message(&mut self) {
        self.ends.push(self.buffer.len());
    }

    /// Accepts a message. Returns false as [`OutputFile::make_room`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<bool, NodeError> {
        let has_room = self.make_room()?;
        if has_room {
            self.push(bytes);
            self.end_message();
        }
        Ok(has_room)
    }

    /// Writes what is buffered, unless the disk was full just now. While it stays full and no
    /// message came since, that is no further failure.
    pub fn flush(&mut self) -> Result<(), NodeError> {
        if self.full.waits() {
            return Ok(());
        }
        let (was_full, written) = (self.full.is_full(), self.write_all());
        self.full.tell_once(was_full, self.messages + self.ends.len() as u64, written)
    }

    fn write_all(&mut self) -> Result<(), NodeError> {
        if let Some(whole) = self.whole {
            self.file.set_len(whole).map_err(|error| self.write_error(error))?;
            self.whole = None;
        }
        let (done, failed) = write_to(&mut self.file, &self.buffer);
        self.written += done as u64;
        self.buffer.drain(..done);
        let before = self.ends.len();
        let whole = self.ends.iter().rfind(|end| **end <= done);
        self.begun = whole.map_or(self.begun + done as u64, |end| (done - end) as u64);
        self.ends.retain(|end| *end > done);
        let more = (before - self.ends.len()) as u64;
        self.messages += more;
        self.ends.iter_mut().for_each(|end| *end -= done);
        if files::is_deleted(&self.file) {
            // When it is noticed, those that were written before are lost as well.
            let lost = if self.is_deleted { more } else { self.messages };
            self.full.unwritten.lose(lost, || "the file was deleted during the run".into());
            self.is_deleted = true;
            let text = format!(
                "the file was deleted during the run; messages lost: {}",
                self.messages + self.ends.len() as u64
            );
            return Err(NodeError::file(&self.path, io::Error::new(ErrorKind::NotFound, text)));
        }
        match failed {
            Some(error) => Err(self.write_error(error)),
            None => {
                self.full.is_over();
                Ok(())
            }
        }
    }

    /// Overwrites bytes at an offset of the file, which must have been flushed.
    pub fn overwrite(&mut self, at: u64, bytes: &[u8]) -> Result<(), NodeError> {
        self.file.write_all_at(bytes, at).map_err(|error| self.write_error(error))
    }

    #[cold]
    fn write_error(&mut self, error: io::Error) -> NodeError {
        let (written, unwritten) = (self.written, self.ends.len());
        let text = format!("{error}; bytes written: {written}, messages not written: {unwritten}");
        self.full.judge(NodeError::file(&self.path, io::Error::new(error.kind(), text)))
    }

    /// The bytes of whole messages in the file, with what comes before the first.
    pub fn whole_bytes(&self) -> u64 {
        (self.written - self.begun).max(self.head.min(self.written))
    }

    /// The number of messages written completely.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Writes what is buffered, for the last time. Where the disk is full and the node goes on, the
    /// file ends with the last message that fits; the others are counted as lost.
    pub fn settle(&mut self) -> Result<(), NodeError> {
        let written = self.write_all();
        if written.is_err() && self.full.is_full() {
            self.cut_short();
            self.full.lose(self.ends.len() as u64);
            self.buffer.clear();
            self.ends.clear();
        }
        written
    }

    /// Writes what is buffered and completes the file.
    pub fn finish(&mut self) -> Result<(), NodeError> {
        let settled = self.settle();
        if settled.is_err() && !self.full.is_full() {
            return settled;
        }
        self.complete().and(settled)
    }

    /// Removes the beginning of a message whose end is not in the file.
    fn cut_short(&mut self) {
        let torn = self.written - self.whole_bytes();
        let cut = self.file.metadata().and_then(|file| self.file.set_len(file.len().saturating_sub(torn)));
        // If that fails as well, a reader finds the unfinished message at the end.
        if cut.is_ok() {
            (self.written, self.begun) = (self.written - torn, 0);
        }
    }

    /// Whether a message was accepted.
    fn has_messages(&self) -> bool {
        self.messages > 0 || !self.ends.is_empty()
    }

    fn complete(&mut self) -> Result<(), NodeError> {
        match self.part.take() {
            Some(part) => part.finish_keeping_left().map_err(|e| NodeError::file(&self.path, e)),
            None => Ok(()),
        }
    }
}

/// Writes as much as the system takes. Returns how many bytes that was, and the error if it was not
/// all.
fn write_to(file: &mut impl Write, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut done = 0;
    while done < bytes.len() {
        match file.write(&bytes[done..]) {
            Ok(0) => return (done, Some(ErrorKind::WriteZero.into())),
            Ok(n) => done += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

/// For libraries that write a file format. Their writes do not end a message.
impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        OutputFile::flush(self).map_err(io::Error::other)
    }
}

impl Seek for OutputFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.write_all().map_err(io::Error::other)?;
        self.file.seek(to)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if !self.has_messages() {
            return self.part.take().into_iter().for_each(PartialFile::discard);
        }
        // The run was interrupted. What was accepted may still be useful, and an error can no
        // longer be reported.
        if self.write_all().is_err() {
            self.cut_short();
        }
        let _ = self.complete();
    }
}
