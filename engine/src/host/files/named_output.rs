//! Files that the command line or a program names for its output: a regular file is replaced once
//! the new one is whole, a pipe or a character device is written into, and anything else is
//! refused.
//!
//! Nothing but a regular file is ever replaced by a rename: `/dev/null` stays a device,
//! `/dev/stdout` a link.

use super::output::FOLDER;
use super::{FileError, PartialFile, Target, check_creatable, check_writable, real_path};
use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, fcntl, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, stat};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::Path;

/// A file that an option names for output.
#[derive(Debug)]
pub struct NamedOutput {
    file: File,
    /// `None` for a pipe or a device, which has no other name until it is complete.
    part: Option<PartialFile>,
}

/// What a path leads to.
enum PathKind {
    /// A regular file, or nothing yet.
    File,
    /// A pipe, a character device or a descriptor of this process, which is written into.
    Stream,
}

fn kind(path: &Path) -> Result<PathKind, FileError> {
    let refused =
        |what: &str| Err(FileError::Irregular(format!("expected a file, found {what}: `{}`", path.display())));
    let found = match stat(path) {
        Ok(found) => found,
        Err(_) if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            return refused("a folder");
        }
        Err(nix::errno::Errno::ENOENT) => return Ok(PathKind::File),
        Err(error) => return Err(FileError::System(path.to_path_buf(), error.into())),
    };
    match SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT {
        // A shell has opened the file and holds it: another file under its name would not be seen.
        SFlag::S_IFREG if is_descriptor(path) => Ok(PathKind::Stream),
        SFlag::S_IFREG => Ok(PathKind::File),
        SFlag::S_IFIFO | SFlag::S_IFCHR => Ok(PathKind::Stream),
        SFlag::S_IFDIR => refused("a folder"),
        SFlag::S_IFSOCK => refused("a socket"),
        _ => refused("a block device"),
    }
}

/// The maximum number of links followed: the kernel's own limit.
const MAX_LINKS: usize = 40;

/// Whether a path names a descriptor, as `/dev/stdout` and `/dev/fd/3` do.
fn is_descriptor(path: &Path) -> bool {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Ok(folder) = fs::canonicalize(folder) else { return false };
        if folder.starts_with("/proc") && folder.ends_with("fd") {
            return true;
        }
        let Some(name) = path.file_name() else { return false };
        let Ok(leads_to) = fs::read_link(folder.join(name)) else { return false };
        path = folder.join(leads_to);
    }
    false
}

/// Checks that output can be written to a path, and creates and opens nothing. Folders of the path
/// may be missing.
///
/// # Errors
/// What is there, if it is a folder, a socket or a block device; the system's error if nothing may
/// be written there.
pub fn check_output(path: &Path) -> Result<(), FileError> {
    match kind(path)? {
        PathKind::File => check_creatable(path),
        PathKind::Stream => check_writable(path),
    }
}

/// Opens a pipe or a device that output goes to later, so that its reader stays until then; returns
/// `None` for a file. A pipe is not waited for.
///
/// # Errors
/// As [`check_output`]; also for a pipe that nobody reads.
pub fn hold_output(path: &Path) -> io::Result<Option<File>> {
    match kind(path)? {
        PathKind::File => Ok(None),
        PathKind::Stream => open_stream(path).map(Some).map_err(|error| match error.raw_os_error() {
            Some(code) if code == nix::errno::Errno::ENXIO as i32 => {
                io::Error::new(error.kind(), "no process reads the pipe: start the reader of the pipe first")
            }
            _ => error,
        }),
    }
}

impl NamedOutput {
    /// Begins output to a path. A link is followed, and stays.
    ///
    /// # Errors
    /// As [`check_output`]; also for a pipe that nobody reads.
    pub fn begin(path: &Path) -> io::Result<Self> {
        match kind(path)? {
            PathKind::Stream => Ok(NamedOutput { file: open_stream(path)?, part: None }),
            PathKind::File => {
                let real = real_path(path);
                let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else {
                    return Err(ErrorKind::IsADirectory.into());
                };
                let opened = openat(AT_FDCWD, folder, FOLDER, Mode::empty())?;
                let (file, part) = Target::within(opened, name, real.clone()).begin()?;
                Ok(NamedOutput { file, part: Some(part) })
            }
        }
    }

    /// Splits it into the file and, unless it is a pipe or a device, the part that is to be
    /// finished or discarded.
    pub fn into_parts(self) -> (File, Option<PartialFile>) {
        (self.file, self.part)
    }

    /// Writes all bytes, and gives the file its name.
    ///
    /// # Errors
    /// The system's error; an older file is as it was then.
    pub fn write(self, bytes: &[u8]) -> io::Result<()> {
        let NamedOutput { mut file, part } = self;
        match (file.write_all(bytes), part) {
            (Ok(()), Some(part)) => part.finish(),
            (Err(error), Some(part)) => {
                part.discard();
                Err(error)
            }
            (written, None) => written,
        }
    }
}

/// Opens a pipe, a device or a descriptor for writing, at its end.
fn open_stream(path: &Path) -> io::Result<File> {
    let found = stat(path)?;
    let is_same = |other: &FileStat| (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino);
    // What is written later to the same stream follows: its position is shared.
    let (stdout, stderr) = (io::stdout(), io::stderr());
    for own in [stdout.as_fd(), stderr.as_fd()] {
        if is_descriptor(path) && fstat(own).is_ok_and(|own| is_same(&own)) {
            return Ok(File::from(own.try_clone_to_owned()?));
        }
    }
    // Without waiting for a reader of a pipe, and without adopting a terminal.
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = File::from(openat(AT_FDCWD, path, flags | OFlag::O_NONBLOCK, Mode::empty())?);
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    Ok(file)
}

/// Writes a file that an option names, as [`NamedOutput`] does.
///
/// # Errors
/// As [`NamedOutput::begin`] and [`NamedOutput::write`].
pub fn write_output(path: &Path, bytes: &[u8]) -> io::Result<()> {
    NamedOutput::begin(path)?.write(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::path::PathBuf;

    /// Promise (files): Replacing a file keeps the symbolic link that names it.
    #[test]
    fn only_regular_files_are_replaced_and_links_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        for (to, name) in
            [("file", "link"), ("new", "to-new"), ("/dev/null", "null"), ("pipe", "to-pipe"), ("circle", "circle")]
        {
            symlink(to, at(name)).unwrap();
        }
        nix::unistd::mkfifo(&at("pipe"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, expected) in [
            ("file", ""),
            ("link", ""),
            ("to-new", ""),
            ("null", ""),
            ("/dev/null", ""),
            (".", "expected a file, found a folder: `"),
            ("", "expected a file, found a folder: `"),
            ("socket", "expected a file, found a socket: `"),
            ("circle", "symbolic links"),
            ("file/below", "Not a directory"),
        ] {
            let path = at(name);
            let checked = check_output(&path);
            assert_eq!(checked.is_ok(), expected.is_empty(), "{name}: {checked:?}");
            match (write_output(&path, b"new"), checked) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(checked)) => {
                    assert!(error.to_string().contains(expected), "{name}: {error}");
                    assert!(checked.to_string().contains(expected), "{name}: {checked}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!((read("file"), read("new")), ("new".into(), "new".into()));
        for link in ["link", "to-new", "null"] {
            assert!(at(link).symlink_metadata().unwrap().is_symlink(), "{link}");
        }
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        // A pipe without a reader is refused, and does not block.
        assert_eq!(write_output(&at("pipe"), b"x").unwrap_err().raw_os_error(), Some(nix::errno::Errno::ENXIO as i32));
        let held = hold_output(&at("pipe")).unwrap_err();
        assert_eq!(held.to_string(), "no process reads the pipe: start the reader of the pipe first");
        assert!(hold_output(&at("file")).unwrap().is_none() && hold_output(Path::new("/dev/null")).unwrap().is_some());
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let mut reader = File::from(openat(AT_FDCWD, &at("pipe"), flags, Mode::empty()).unwrap());
        for name in ["pipe", "to-pipe"] {
            write_output(&at(name), b"through").unwrap();
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "through", "{name}");
        }
        assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
        let parts = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(!parts.into_iter().any(|name| name.to_string_lossy().ends_with(".part")));
    }

    #[test]
    fn a_descriptor_is_recognised_through_links() {
        let folder = tempfile::tempdir().unwrap();
        symlink("/dev/stdout", folder.path().join("out")).unwrap();
        symlink("/proc/self/fd/1", folder.path().join("self")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for (path, expected) in [
            (PathBuf::from("/dev/stdout"), true),
            (PathBuf::from("/dev/fd/1"), true),
            (folder.path().join("out"), true),
            (folder.path().join("self"), true),
            (folder.path().join("file"), false),
            (PathBuf::from("/dev/null"), false),
            (folder.path().join("none"), false),
        ] {
            assert_eq!(is_descriptor(&path), expected, "{}", path.display());
        }
    }
}
