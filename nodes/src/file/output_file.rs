//! Files that sinks write: where they may be, what happens to an existing file, and writes of whole messages.

mod append;

pub(crate) use append::MessageEnd;

use limen::Folders;
use limen::files::{self, MAX_NAME, Part, names_folder, real_path};
use limen::node::{Claim, Metrics, NodeError, PlanErrors, Planning, Ports};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What to do with a file that already exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exists {
    /// Replace it when the run ends; until then it is unchanged.
    #[default]
    Replace,
    /// Append to it.
    Append,
    /// Refuse the graph.
    Fail,
}

/// Bytes collected before a write: enough to make writes rare, too few to matter.
const BUFFER: usize = 64 << 10;
/// Messages collected before a write.
const MAX_BUFFERED_MESSAGES: usize = 4 << 10;

/// Checks while planning that a file can be written, and claims it.
pub(crate) fn plan(path: &str, exists: Exists, cx: &Planning<'_>, ports: Ports, errors: &mut PlanErrors) -> Ports {
    let target = match cx.folders.output(path) {
        Ok(target) => target,
        Err(message) => {
            errors.at("path", message).help("write a path below the graph file's folder, use `--out DIR`, or allow another folder with `--allow-path DIR`");
            return ports;
        }
    };
    if names_folder(path) {
        errors
            .at("path", format!("`{path}` is a folder, expected a file"))
            .help("write a path such as `out/result.csv`");
        return ports;
    }
    let length = target.file_name().map_or(0, |name| name.len());
    if length > MAX_NAME {
        errors
            .at("path", format!("the file's name has {length} bytes, the file system allows {MAX_NAME}"))
            .help("write a shorter name");
        return ports;
    }
    let mut ports = ports;
    if exists == Exists::Replace {
        for left in files::left(&target) {
            let (part, kept) = (left.display(), files::kept_path(&target, &left));
            ports = ports.notice(format!(
                "finds `{part}`, left by an interrupted run; it becomes `{}` when this run completes",
                kept.display()
            ));
        }
    }
    match fs::metadata(&target) {
        Ok(found) if !found.is_file() => {
            let what = if found.is_dir() { "a folder" } else { "not a regular file" };
            errors.at("path", format!("`{path}` is {what}, expected a file")).help("write another path");
        }
        Ok(_) if exists == Exists::Fail => {
            let help = "remove it, or write `exists: replace` or `exists: append`";
            errors.at("path", format!("`{path}` already exists, and `exists` is `fail`")).help(help);
        }
        // The last folder of the path may be created later.
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let help = "make it writable, or write another path";
            errors.at("path", format!("`{path}` cannot be written: {error}")).help(help);
        }
        found => {
            // What is appended to stays, so its folder is not written.
            let appends = exists == Exists::Append && found.is_ok();
            let check = if appends { files::check_writable } else { files::check_creatable };
            if let Err(error) = check(&target) {
                let help = "make it writable, use `--out DIR`, or write another path";
                errors.at("path", format!("`{path}` cannot be written: {error}")).help(help);
            }
        }
    }
    // The folder given with `--out` may be created after planning.
    let above = target.parent().and_then(Path::parent);
    if let (None, Some(above)) = (&cx.folders.out, above.filter(|a| !a.as_os_str().is_empty() && !a.is_dir())) {
        let message = format!("there is no folder `{}`; only the last folder of a path is created", above.display());
        errors.at("path", message).help("create it, or write to a folder beside the graph file");
    }
    ports.claim(Claim::File(real_path(&target))).blocking()
}

/// A file being written. With [`Exists::Replace`] it appears under its name when it is complete, otherwise as it is written.
///
/// A file that was neither finished nor has accepted a message is discarded: its run did not begin, and every file is as it was.
///
/// A message is accepted whole or not at all. An accepted message that cannot be written, because the disk is full, stays in
/// the buffer, is retried, and is counted as lost if it is never written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: File,
    path: PathBuf,
    /// Until it is finished or discarded.
    part: Option<Part>,
    /// Whether the file had content when it was opened.
    pub(crate) continues: bool,
    /// What the report says of an unfinished message at the end of the file that is appended to.
    torn: Option<String>,
    /// The bytes of the file that is appended to that remain, if it ends with an unfinished message. Cut when the run writes first.
    whole: Option<u64>,
    /// Bytes accepted but not yet written, and where messages end in them.
    buffer: Vec<u8>,
    ends: Vec<usize>,
    written: u64,
    /// Messages written completely.
    messages: u64,
    /// The file was deleted while it was open.
    is_deleted: bool,
}

impl OutputFile {
    /// Opens the file, creating the last folder of its path.
    pub(crate) fn open(folders: &Folders, path: &str, exists: Exists) -> Result<Self, NodeError> {
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
        (file.continues, file.part) = (continues, Some(part));
        Ok(file)
    }

    fn of(file: File, path: PathBuf) -> Self {
        let (buffer, ends) = (Vec::with_capacity(BUFFER), Vec::with_capacity(MAX_BUFFERED_MESSAGES));
        let (part, continues, written, messages, is_deleted) = (None, false, 0, 0, false);
        OutputFile { file, path, part, continues, torn: None, whole: None, buffer, ends, written, messages, is_deleted }
    }

    /// Opens the file that is appended to, to read its beginning.
    pub(crate) fn open_existing(&self) -> Result<files::InputFile, NodeError> {
        let opened = match &self.part {
            Some(part) => part.open(),
            None => Err(ErrorKind::NotFound.into()),
        };
        opened.map_err(|e| NodeError::file(&self.path, e))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reports how many messages were accepted but not written, and an unfinished message that was found, if any.
    pub(crate) fn metrics(&self, to: &mut Metrics) {
        if self.unwritten() > 0 {
            to.lost("unwritten", self.unwritten());
        }
        if let Some(torn) = &self.torn {
            to.set("torn", 1.0);
            to.note(format!("`{}`: {torn}", self.path.display()));
        }
    }

    /// The number of messages that were accepted but not written, or were lost with a deleted file.
    pub(crate) fn unwritten(&self) -> u64 {
        self.ends.len() as u64 + if self.is_deleted { self.messages } else { 0 }
    }

    /// The number of bytes accepted but not yet written.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Makes room for a message. If it fails, no message can be accepted at the moment.
    pub(crate) fn make_room(&mut self) -> Result<(), NodeError> {
        if self.buffer.len() >= BUFFER || self.ends.len() >= MAX_BUFFERED_MESSAGES { self.flush() } else { Ok(()) }
    }

    /// Appends bytes of a message, after [`OutputFile::make_room`].
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Marks the end of a message.
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
        if let Some(whole) = self.whole {
            self.file.set_len(whole).map_err(|error| self.write_error(error))?;
            self.whole = None;
        }
        let (done, failed) = write_to(&mut self.file, &self.buffer);
        self.written += done as u64;
        self.buffer.drain(..done);
        let before = self.ends.len();
        self.ends.retain(|end| *end > done);
        self.messages += (before - self.ends.len()) as u64;
        self.ends.iter_mut().for_each(|end| *end -= done);
        self.is_deleted = files::is_deleted(&self.file);
        if self.is_deleted {
            let text = format!(
                "it was deleted while it was written; the {} messages in it are lost",
                self.messages + self.ends.len() as u64
            );
            return Err(NodeError::file(&self.path, io::Error::new(ErrorKind::NotFound, text)));
        }
        failed.map_or(Ok(()), |error| Err(self.write_error(error)))
    }

    /// Overwrites bytes at an offset of the file, which must have been flushed.
    pub(crate) fn overwrite(&self, at: u64, bytes: &[u8]) -> Result<(), NodeError> {
        self.file.write_all_at(bytes, at).map_err(|error| self.write_error(error))
    }

    #[cold]
    fn write_error(&self, error: io::Error) -> NodeError {
        let (written, unwritten) = (self.written, self.unwritten());
        let text = format!("{error}; {written} bytes are written, {unwritten} messages after them are not");
        NodeError::file(&self.path, io::Error::new(error.kind(), text))
    }

    /// Flushes the buffer and completes the file.
    pub(crate) fn finish(&mut self) -> Result<(), NodeError> {
        self.flush()?;
        self.complete()
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

/// Writes as much as the system takes. Returns how many bytes that was, and the error if it was not all.
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
        OutputFile::flush(self).map_err(io::Error::other)?;
        self.file.seek(to)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if !self.has_messages() {
            return self.part.take().into_iter().for_each(Part::discard);
        }
        // The run was interrupted. What was accepted may still be useful, and an error can no longer be reported.
        let _ = OutputFile::flush(self);
        let _ = self.complete();
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
    fn an_existing_file_is_kept_until_the_new_one_is_complete() {
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
            assert_eq!(read(), text, "the file gets its name even if it was not finished");
        }
        assert_eq!(fs::read_dir(folder.join("out")).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn an_existing_file_is_appended_to_or_refused_as_configured() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let open = |exists| OutputFile::open(&folders(folder), "a.txt", exists);
        for (text, continues) in [("one ", false), ("two", true)] {
            let mut file = open(Exists::Append).unwrap();
            assert_eq!(file.continues, continues);
            file.write(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(folder.join("a.txt")).unwrap(), "one two");
        assert!(
            matches!(open(Exists::Fail), Err(error) if matches!(error.kind(), limen::node::NodeErrorKind::File { .. }))
        );
        assert!(OutputFile::open(&folders(folder), "b.txt", Exists::Fail).is_ok());
        assert!(OutputFile::open(&folders(folder), "no/such/a.txt", Exists::Replace).is_err());
        assert!(OutputFile::open(&folders(folder), "../a.txt", Exists::Replace).is_err());
    }

    #[test]
    fn deleting_the_file_during_the_run_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for exists in [Exists::Append, Exists::Fail, Exists::Replace] {
            let mut file = OutputFile::open(&folders(folder), "a.txt", exists).unwrap();
            file.write(b"one").unwrap();
            file.flush().unwrap();
            fs::remove_file(fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()).unwrap();
            file.write(b"two").unwrap();
            let error = file.finish().unwrap_err().to_string();
            let expected = "a.txt: it was deleted while it was written; the 2 messages in it are lost";
            assert!(error.ends_with(expected), "{exists:?}: {error}");
            assert_eq!(file.unwritten(), 2, "{exists:?}");
        }
    }

    #[test]
    fn symbolic_links_are_followed_only_into_allowed_folders() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for name in ["graph", "out", "outside", "out/sub"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        fs::write(folder.join("outside/there"), "precious").unwrap();
        let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, folder.join(at)).unwrap();
        for at in ["graph", "out"] {
            link("../outside/new", &format!("{at}/new"));
            link("../outside/there", &format!("{at}/there"));
            link("../outside", &format!("{at}/folder"));
            link("inside", &format!("{at}/first"));
            link("circle", &format!("{at}/circle"));
        }
        let of = |out: bool, allowed: bool| Folders {
            graph: folder.join("graph"),
            out: out.then(|| folder.join("out")),
            allowed: if allowed { vec![folder.join("outside")] } else { Vec::new() },
            ..Folders::default()
        };
        for (out, exists) in [(false, true), (false, false), (true, true), (true, false)]
            .map(|(out, append)| (out, if append { Exists::Append } else { Exists::Replace }))
        {
            for path in ["new", "there", "folder/new"] {
                let error = OutputFile::open(&of(out, false), path, exists).unwrap_err().to_string();
                assert!(error.contains("leaves the") && error.contains("--allow-path"), "{path}: {error}");
                let mut errors = PlanErrors::default();
                let cx = Planning {
                    node: "n",
                    folders: &of(out, false),
                    trials: &limen::policy::Trials::default(),
                    extensions: &limen::node::Extensions::default(),
                    isolation: limen::policy::Isolation::None,
                };
                plan(path, exists, &cx, Ports::new(), &mut errors);
                assert!(errors.into_result(()).is_err(), "{path}");
            }
            let circle = OutputFile::open(&of(out, false), "circle", exists).unwrap_err().to_string();
            assert!(circle.contains("symbolic links") || circle.contains("a link"), "{circle}");
            assert_eq!(fs::read_dir(folder.join("outside")).unwrap().count(), 1, "nothing was created outside");
            // Links inside are followed, even to a file that does not exist yet.
            let mut file = OutputFile::open(&of(out, false), "first", exists).unwrap();
            file.write(b"x").unwrap();
            file.finish().unwrap();
            let inside = folder.join(if out { "out/inside" } else { "graph/inside" });
            assert!(fs::symlink_metadata(&inside).unwrap().is_file(), "{exists:?}");
            fs::remove_file(inside).unwrap();
            OutputFile::open(&of(out, true), "new", exists).unwrap().finish().unwrap();
            fs::remove_file(folder.join("outside/new")).unwrap();
        }
        assert_eq!(fs::read_to_string(folder.join("outside/there")).unwrap(), "precious");
    }

    #[test]
    fn temporary_files_of_an_interrupted_run_are_reported_and_kept_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        // A process with the same id, as in a container, and one that is still writing.
        let own = format!(".a.txt.{}.part", std::process::id());
        for name in [&own, ".a.txt.77.part", ".a.txt.77-2.part", ".a.txt.mine.part", ".ba.txt.77.part"] {
            fs::write(folder.join(name), "older").unwrap();
        }
        let busy = File::create(folder.join(".a.txt.78.part")).unwrap();
        busy.lock().unwrap();
        let cx = Planning {
            node: "n",
            folders: &folders(folder),
            trials: &limen::policy::Trials::default(),
            extensions: &limen::node::Extensions::default(),
            isolation: limen::policy::Isolation::None,
        };
        let mut errors = PlanErrors::default();
        let ports = plan("a.txt", Exists::Replace, &cx, Ports::new(), &mut errors);
        let notices = format!("{ports:?}");
        for (name, is_left) in [(&*own, true), (".77.part", true), (".77-2.part", true), (".78.part", false)] {
            assert_eq!(notices.contains(name), is_left, "{name}: {notices}");
        }
        let mut file = OutputFile::open(&folders(folder), "a.txt", Exists::Replace).unwrap();
        assert_eq!(fs::read_to_string(folder.join(&own)).unwrap(), "older", "nothing is overwritten");
        let part = file.part.as_ref().unwrap().path().to_path_buf();
        assert!(files::unfinished().contains(&part));
        file.finish().unwrap();
        assert!(!files::unfinished().contains(&part));
        let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        let kept = ["a-interrupted-77-2.txt".to_string(), "a-interrupted-77.txt".to_string()];
        let own = format!("a-interrupted-{}.txt", std::process::id());
        let mut expected = vec![".a.txt.78.part".to_string(), ".a.txt.mine.part".into(), ".ba.txt.77.part".into(), own];
        expected.extend(kept.clone());
        expected.push("a.txt".into());
        expected.sort();
        assert_eq!(names, expected);
        assert!(kept.iter().all(|name| notices.contains(name)), "{notices}");
        for name in kept {
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "older");
        }
    }

    #[test]
    fn if_the_final_rename_fails_the_error_names_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut file = OutputFile::open(&folders(folder), "a.txt", Exists::Replace).unwrap();
        file.write(b"one").unwrap();
        fs::create_dir(folder.join("a.txt")).unwrap();
        let error = file.finish().unwrap_err().to_string();
        let part = folder.join(format!(".a.txt.{}.part", std::process::id()));
        assert!(error.ends_with(&format!("the data is in {}", part.display())), "{error}");
        assert_eq!(fs::read_to_string(&part).unwrap(), "one");
        assert!(files::unfinished().contains(&part));
    }

    #[test]
    fn messages_that_do_not_fit_on_a_full_disk_are_counted_and_retried() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut file = OutputFile::of(full, "full.txt".into());
        file.write(b"one").unwrap();
        file.write(b"two").unwrap();
        let error = file.flush().unwrap_err().to_string();
        assert!(error.starts_with("full.txt: No space left on device"), "{error}");
        assert!(error.ends_with("0 bytes are written, 2 messages after them are not"), "{error}");
        // Messages are accepted only while the buffer has room: it is bounded.
        let taken = (0..).take_while(|_| file.write(&[0; 1 << 10]).is_ok()).count();
        assert_eq!((taken, file.unwritten()), (64, 66));
        let folder = tempfile::tempdir().unwrap();
        file.file = File::create(folder.path().join("full.txt")).unwrap();
        file.flush().unwrap();
        assert_eq!((file.written, file.unwritten()), (6 + (64 << 10), 0));
    }

    /// As another user, if the test runs as root: root may write everywhere.
    fn as_another_user<T: Send>(check: impl FnOnce() -> T + Send) -> T {
        // Of this thread only.
        std::thread::scope(|scope| {
            let checked = scope.spawn(|| {
                if nix::unistd::geteuid().is_root() {
                    nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
                }
                check()
            });
            checked.join().unwrap()
        })
    }

    /// \[S6\]
    #[test]
    fn planning_refuses_folders_and_files_that_may_not_be_written_and_creates_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mode = |name: &str, mode: u32| {
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        for (name, bits) in [("", 0o755), ("open", 0o777), ("shut", 0o555)] {
            fs::create_dir_all(folder.join(name)).unwrap();
            mode(name, bits);
        }
        for (name, bits) in [("open/log", 0o666), ("open/old", 0o444), ("shut/log", 0o666)] {
            fs::write(folder.join(name), "x").unwrap();
            mode(name, bits);
        }
        let graph = folders(folder);
        let out = Folders { out: Some(folder.join("shut/new/out")), ..folders(folder) };
        for (folders, path, exists, expected) in [
            (&graph, "open/new", Exists::Replace, ""),
            (&graph, "open/new", Exists::Append, ""),
            (&graph, "open/made/new", Exists::Fail, ""),
            (&graph, "open/old", Exists::Replace, ""),
            (&graph, "open/old", Exists::Append, "Permission denied"),
            (&graph, "shut/new", Exists::Replace, "Permission denied"),
            (&graph, "shut/new", Exists::Append, "Permission denied"),
            (&graph, "shut/new", Exists::Fail, "Permission denied"),
            (&graph, "shut/made/new", Exists::Replace, "Permission denied"),
            (&graph, "shut/log", Exists::Replace, "Permission denied"),
            (&graph, "shut/log", Exists::Append, ""),
            (&graph, "open/log/new", Exists::Replace, "Not a directory"),
            (&out, "new", Exists::Replace, "Permission denied"),
        ] {
            let found = as_another_user(|| {
                let cx = Planning {
                    node: "n",
                    folders,
                    trials: &limen::policy::Trials::default(),
                    extensions: &limen::node::Extensions::default(),
                    isolation: limen::policy::Isolation::None,
                };
                let mut errors = PlanErrors::default();
                plan(path, exists, &cx, Ports::new(), &mut errors);
                format!("{:?}", errors.into_result(()))
            });
            assert_eq!(expected.is_empty(), found == "Ok(())", "{path} {exists:?}: {found}");
            assert!(found.contains(expected), "{path} {exists:?}: {found}");
        }
        assert_eq!(fs::read_dir(folder.join("open")).unwrap().count(), 2);
        assert_eq!(fs::read_dir(folder.join("shut")).unwrap().count(), 1);
    }

    /// A disk with scripted answers: each call takes that many bytes or fails; after the last answer it takes everything.
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
    fn a_failed_write_is_retried_or_reported_with_the_number_of_bytes_written() {
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
            // Once the disk works again, the rest is written, and nothing twice.
            assert!(matches!(write_to(&mut disk, &all[done..]), (_, None)));
            assert_eq!(disk.holds, all, "{errno:?}");
        }
        let mut disk = Disk { answers: vec![Ok(3), Ok(0)].into_iter(), holds: Vec::new() };
        assert!(matches!(write_to(&mut disk, all), (3, Some(error)) if error.kind() == ErrorKind::WriteZero));
    }

    /// \[S5\] A pseudo-terminal whose other end was closed answers EIO, as a broken disk does.
    #[test]
    fn messages_that_a_broken_device_rejects_are_reported_and_counted() {
        let pty = nix::pty::openpty(None, None).unwrap();
        drop(pty.master);
        let mut file = OutputFile::of(File::from(pty.slave), "broken".into());
        file.write(b"one").unwrap();
        let error = file.flush().unwrap_err().to_string();
        assert!(error.starts_with("broken: Input/output error"), "{error}");
        assert!(error.ends_with("0 bytes are written, 1 messages after them are not"), "{error}");
        assert_eq!(file.unwritten(), 1);
    }

    #[test]
    fn planning_refuses_paths_that_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("there.txt"), "x").unwrap();
        let folders = folders(folder);
        let cx = Planning {
            node: "n",
            folders: &folders,
            trials: &limen::policy::Trials::default(),
            extensions: &limen::node::Extensions::default(),
            isolation: limen::policy::Isolation::None,
        };
        for (path, exists, expected) in [
            ("new.txt", Exists::Fail, ""),
            ("out/new.txt", Exists::Replace, ""),
            ("there.txt", Exists::Append, ""),
            ("there.txt", Exists::Fail, "already exists"),
            (".", Exists::Replace, "a folder"),
            ("new/", Exists::Replace, "a folder"),
            ("out/new/.", Exists::Append, "a folder"),
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
