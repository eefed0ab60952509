//! Files that sinks write: where they may be, what becomes of an older one, and that they are never half of anything.

use limen::{Claim, Folders, Metrics, NodeError, PlanErrors, Planning, Ports};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What becomes of a file that is there already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exists {
    /// It is replaced when the run has ended; until then it stays as it is.
    #[default]
    Replace,
    /// What is written is added to it.
    Append,
    /// The graph is refused.
    Fail,
}

/// Large enough that writing seldom waits, small enough not to matter.
const BUFFER: usize = 64 << 10;
/// Messages are written together, at most so many.
const MOST_MESSAGES: usize = 4 << 10;

/// Checks while planning that a file can be written, and claims it.
pub(crate) fn plan(path: &str, exists: Exists, cx: &Planning<'_>, ports: Ports, errors: &mut PlanErrors) -> Ports {
    let target = match cx.folders.output(path) {
        Ok(target) => target,
        Err(message) => {
            errors.at("path", message).help("write a path below the graph file's folder, use `--out DIR`, or allow another folder with `--allow-path DIR`");
            return ports;
        }
    };
    if target.file_name().is_none() {
        errors.at("path", format!("`{path}` names no file")).help("write a path such as `out/result.csv`");
        return ports;
    }
    match fs::metadata(&target) {
        Ok(found) if !found.is_file() => {
            let what = if found.is_dir() { "a folder" } else { "not a regular file" };
            errors.at("path", format!("`{path}` is {what}, and a file is to be written")).help("write another path");
        }
        Ok(_) if exists == Exists::Fail => {
            let help = "remove it, or write `exists: replace` or `exists: append`";
            errors.at("path", format!("`{path}` is there already, and `exists` is `fail`")).help(help);
        }
        _ => {}
    }
    // A folder given on the command line may be made after planning.
    let above = target.parent().and_then(Path::parent);
    if let (None, Some(above)) = (&cx.folders.out, above.filter(|a| !a.as_os_str().is_empty() && !a.is_dir())) {
        let message = format!("there is no folder `{}`; only the last folder of a path is made", above.display());
        errors.at("path", message).help("make it, or write to a folder beside the graph");
    }
    ports.claim(Claim::File(real(&target))).blocking()
}

/// The same path for the same file, however it is written, as far as folders exist.
fn real(target: &Path) -> PathBuf {
    let folder = target.parent().and_then(|folder| fs::canonicalize(folder).ok());
    let in_folder = || Some(folder?.join(target.file_name()?));
    let absolute = || std::path::absolute(target).unwrap_or_else(|_| target.to_path_buf());
    fs::canonicalize(target).ok().or_else(in_folder).unwrap_or_else(absolute)
}

/// A file being written. What is written can be seen under its name when it is complete, or at once if it is added to
/// an older one.
///
/// A message is accepted whole or not at all: what was accepted and could not be written, because the disk is full, stays
/// here, is tried again, and is counted if it never gets there.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: File,
    path: PathBuf,
    /// Where it is until it is complete.
    temporary: Option<PathBuf>,
    /// Whether it continues something.
    pub(crate) continues: bool,
    /// What has been accepted and not written, and where in it messages end.
    buffer: Vec<u8>,
    ends: Vec<usize>,
    written: u64,
}

impl OutputFile {
    /// Opens the file, making the last folder of its path.
    pub(crate) fn open(folders: &Folders, path: &str, exists: Exists) -> Result<Self, NodeError> {
        let path = folders.output(path).map_err(|why| NodeError::input(path, why))?;
        let at = |path: &Path| {
            let path = path.to_path_buf();
            move |error| NodeError::file(path, error)
        };
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty() && !f.is_dir()) {
            fs::create_dir(folder).or_else(|e| if folder.is_dir() { Ok(()) } else { Err(e) }).map_err(at(folder))?;
        }
        // A link is followed, so that the file it points to is replaced and not the link.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let (file, temporary) = match exists {
            Exists::Replace => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let temporary = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
                (File::create(&temporary).map_err(at(&temporary))?, Some(temporary))
            }
            Exists::Append => (OpenOptions::new().append(true).create(true).open(&path).map_err(at(&path))?, None),
            // Nothing older is there to be spared, and making it anew is what refuses it.
            Exists::Fail => (File::create_new(&path).map_err(at(&path))?, None),
        };
        let continues = temporary.is_none() && file.metadata().is_ok_and(|m| m.len() > 0);
        let mut file = OutputFile::of(file, path);
        (file.continues, file.temporary) = (continues, temporary);
        Ok(file)
    }

    fn of(file: File, path: PathBuf) -> Self {
        let (buffer, ends) = (Vec::with_capacity(BUFFER), Vec::with_capacity(MOST_MESSAGES));
        OutputFile { file, path, temporary: None, continues: false, buffer, ends, written: 0 }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Says how many messages were accepted and never written, where there are any.
    pub(crate) fn metrics(&self, to: &mut Metrics) {
        if self.unwritten() > 0 {
            to.lost("unwritten", self.unwritten());
        }
    }

    /// How many messages were accepted and have not been written.
    pub(crate) fn unwritten(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Makes room for a message. Where this fails nothing more can be accepted at the moment.
    pub(crate) fn make_room(&mut self) -> Result<(), NodeError> {
        if self.buffer.len() >= BUFFER || self.ends.len() >= MOST_MESSAGES { self.flush() } else { Ok(()) }
    }

    /// Adds bytes of a message for which there is room.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// What was added last ends a message.
    pub(crate) fn end_message(&mut self) {
        self.ends.push(self.buffer.len());
    }

    /// Accepts a message.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), NodeError> {
        self.make_room()?;
        self.push(bytes);
        self.end_message();
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<(), NodeError> {
        let (done, failed) = write_to(&mut self.file, &self.buffer);
        self.written += done as u64;
        self.buffer.drain(..done);
        self.ends.retain(|end| *end > done);
        self.ends.iter_mut().for_each(|end| *end -= done);
        failed.map_or(Ok(()), |error| Err(self.blame(error)))
    }

    /// Writes over what stands at a place of the file, which has been flushed.
    pub(crate) fn overwrite(&self, at: u64, bytes: &[u8]) -> Result<(), NodeError> {
        self.file.write_all_at(bytes, at).map_err(|error| self.blame(error))
    }

    #[cold]
    fn blame(&self, error: io::Error) -> NodeError {
        let (written, waiting) = (self.written, self.unwritten());
        let text = format!("{error}; {written} bytes are written, {waiting} messages behind them are not");
        NodeError::file(&self.path, io::Error::new(error.kind(), text))
    }

    /// Writes what is buffered and gives the file its name.
    pub(crate) fn finish(&mut self) -> Result<(), NodeError> {
        self.flush()?;
        self.give_name()
    }

    fn give_name(&mut self) -> Result<(), NodeError> {
        if let Some(temporary) = self.temporary.take() {
            fs::rename(&temporary, &self.path).map_err(|e| NodeError::file(&self.path, e))?;
        }
        Ok(())
    }
}

/// Writes as much as the system takes: how much that was, and what it said where it was not all.
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

/// For libraries that write a format: what they write is not yet a message.
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
        OutputFile::flush(self).map_err(io::Error::other)?;
        self.file.seek(to)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // The run was cut short: what there is may still be of use, and there is nobody left to tell of an error.
        let _ = OutputFile::flush(self);
        let _ = self.give_name();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;

    fn folders(graph: &Path) -> Folders {
        Folders { graph: graph.into(), ..Folders::default() }
    }

    #[test]
    fn an_older_file_stays_until_the_new_one_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let path = folder.join("out/a.txt");
        let read = || fs::read_to_string(&path).unwrap_or_default();
        for (old, text, finish) in [("", "one", true), ("one", "two", false)] {
            let mut file = OutputFile::open(&folders(folder), "out/a.txt", Exists::Replace).unwrap();
            file.write(text.as_bytes()).unwrap();
            OutputFile::flush(&mut file).unwrap();
            assert_eq!(read(), old);
            assert!(!file.continues);
            if finish {
                file.finish().unwrap();
                assert_eq!(read(), text);
            }
            drop(file);
            assert_eq!(read(), text, "what there is gets its name even without an end");
        }
        assert_eq!(fs::read_dir(folder.join("out")).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_file_is_continued_or_refused_as_the_config_says() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let open = |exists| OutputFile::open(&folders(folder), "a.txt", exists);
        for (text, continues) in [("one ", false), ("two", true)] {
            let mut file = open(Exists::Append).unwrap();
            assert_eq!(file.continues, continues);
            file.write(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(folder.join("a.txt")).unwrap(), "one two");
        assert!(matches!(open(Exists::Fail), Err(error) if matches!(error.kind(), limen::NodeErrorKind::File { .. })));
        assert!(OutputFile::open(&folders(folder), "b.txt", Exists::Fail).is_ok());
        assert!(OutputFile::open(&folders(folder), "no/such/a.txt", Exists::Replace).is_err());
        assert!(OutputFile::open(&folders(folder), "../a.txt", Exists::Replace).is_err());
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted_and_tried_again() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut file = OutputFile::of(full, "full.txt".into());
        file.write(b"one").unwrap();
        file.write(b"two").unwrap();
        let error = file.flush().unwrap_err().to_string();
        assert!(error.starts_with("full.txt: No space left on device"), "{error}");
        assert!(error.ends_with("0 bytes are written, 2 messages behind them are not"), "{error}");
        // As many as there is room for, and then no more: nothing grows without bound.
        let taken = (0..).take_while(|_| file.write(&[0; 1 << 10]).is_ok()).count();
        assert_eq!((taken, file.unwritten()), (64, 66));
        let folder = tempfile::tempdir().unwrap();
        file.file = File::create(folder.path().join("full.txt")).unwrap();
        file.flush().unwrap();
        assert_eq!((file.written, file.unwritten()), (6 + (64 << 10), 0));
    }

    /// A disk that does as it is told: so many bytes are taken, or an error is answered, call after call; then all.
    struct Disk {
        answers: std::vec::IntoIter<Result<usize, Errno>>,
        holds: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = self.answers.next().unwrap_or(Ok(bytes.len()))?.min(bytes.len());
            self.holds.extend_from_slice(&bytes[..n]);
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// \[S5\]
    #[test]
    fn whatever_a_disk_answers_is_gone_on_with_or_said_with_the_bytes_that_were_written() {
        let all = b"0123456789";
        let stops =
            [Errno::EIO, Errno::ENOSPC, Errno::EROFS, Errno::EDQUOT, Errno::EFBIG, Errno::EAGAIN, Errno::ESTALE];
        let stops = stops.map(|errno| (vec![Ok(4), Err(Errno::EINTR), Ok(1), Err(errno)], 5, Some(errno)));
        let goes_on =
            [(vec![], 10, None), (vec![Err(Errno::EINTR), Err(Errno::EINTR)], 10, None), (vec![Ok(1); 9], 10, None)];
        for (answers, expected, errno) in goes_on.into_iter().chain(stops) {
            let mut disk = Disk { answers: answers.into_iter(), holds: Vec::new() };
            let (done, error) = write_to(&mut disk, all);
            assert_eq!((done, error.and_then(|e| e.raw_os_error())), (expected, errno.map(|e| e as i32)), "{errno:?}");
            assert_eq!(disk.holds, all[..done], "{errno:?}");
            // Once the disk is well again the rest follows, and nothing twice.
            assert!(matches!(write_to(&mut disk, &all[done..]), (_, None)));
            assert_eq!(disk.holds, all, "{errno:?}");
        }
        let mut disk = Disk { answers: vec![Ok(3), Ok(0)].into_iter(), holds: Vec::new() };
        assert!(matches!(write_to(&mut disk, all), (3, Some(error)) if error.kind() == ErrorKind::WriteZero));
    }

    /// \[S5\] The other end of a line that was hung up answers EIO, as a disk does that is broken.
    #[test]
    fn what_a_broken_device_does_not_take_is_said_and_counted() {
        let pty = nix::pty::openpty(None, None).unwrap();
        drop(pty.master);
        let mut file = OutputFile::of(File::from(pty.slave), "broken".into());
        file.write(b"one").unwrap();
        let error = file.flush().unwrap_err().to_string();
        assert!(error.starts_with("broken: Input/output error"), "{error}");
        assert!(error.ends_with("0 bytes are written, 1 messages behind them are not"), "{error}");
        assert_eq!(file.unwritten(), 1);
    }

    #[test]
    fn planning_finds_what_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("there.txt"), "x").unwrap();
        let folders = folders(folder);
        let cx = Planning { node: "n", folders: &folders };
        for (path, exists, expected) in [
            ("new.txt", Exists::Fail, ""),
            ("out/new.txt", Exists::Replace, ""),
            ("there.txt", Exists::Append, ""),
            ("there.txt", Exists::Fail, "is there already"),
            (".", Exists::Replace, "a folder"),
            ("a/b/c.txt", Exists::Replace, "there is no folder"),
            ("../x.txt", Exists::Replace, "--allow-path"),
        ] {
            let mut errors = PlanErrors::default();
            plan(path, exists, &cx, Ports::new(), &mut errors);
            match errors.into_result(()) {
                Ok(()) => assert_eq!(expected, "", "{path}"),
                Err(errors) => {
                    let text = format!("{errors:?}");
                    assert!(!expected.is_empty() && text.contains(expected), "{path}: {text}");
                }
            }
        }
    }
}
