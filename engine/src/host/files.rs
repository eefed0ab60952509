//! The door: the one place where files that a graph, a model or the command line names are opened.
//!
//! What is read is a regular file: it is looked at before it is opened, so that no pipe is waited for and no device acts, and
//! everything that is asked of it is asked of what was opened. Only [`Folders::open_device`] opens something else: a character
//! device that the command line allowed. What is read as a whole has a bound; who reads a file piece by piece ([`Read`]) bounds
//! what it keeps of it.
//!
//! Where a graph names a file, its path is followed to its end, admitted, and opened as it came out, through no link,
//! whatever becomes of the names meanwhile. `RESOLVE_BENEATH` is not used: it would refuse a link that leads to a folder that was
//! allowed. `RESOLVE_NO_SYMLINKS` on the path that was admitted closes the same gap; where the kernel lacks `openat2`, the path is
//! walked step by step and no step may be a link.
//!
//! What is written lies in a folder that is held open. It gets its name when it is complete ([`Target::begin`]), unless it is added
//! to what is there ([`Target::append`]) or was asked to be new ([`Target::create_new`]), which are seen under their names at once.
//!
//! It does not lock out other programs: a file can be written by somebody else while it is read.

#![allow(clippy::disallowed_methods, reason = "the one place")]

mod output;
#[cfg(test)]
mod tests;

pub use output::{
    MAX_NAME, Part, Target, is_deleted, left, names_folder, outlive_size_limit, replace, shortened, unfinished,
};

use crate::base::unit::show_bytes;
use crate::host::folders::Folders;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, fs};

/// Links that are followed in one path: as many as the kernel follows.
const MAX_LINKS: usize = 40;
/// More of what the kernel says of itself is not read.
const MAX_SYSTEM: u64 = 4 << 20;
/// What is asked of every file that is opened for its bytes: a pipe is not waited for, and a terminal does not become ours.
const PLAIN: OFlag = OFlag::O_CLOEXEC.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);

/// Why a file of a graph cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// It lies where the graph may not read or write; the sentence says what to allow.
    Outside(String),
    /// It is a folder, a pipe, a socket or a device, or its name is that of one.
    Irregular(String),
    /// What the system answered, and the path.
    System(PathBuf, io::Error),
}

impl FileError {
    /// A way out.
    pub fn help(&self) -> &'static str {
        match self {
            FileError::Outside(_) => {
                "write a file below the graph file's folder, or allow another folder with `--allow-path DIR`"
            }
            FileError::Irregular(_) => "write the path of a file",
            FileError::System(..) => "write the path of a file that is there",
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Outside(why) | FileError::Irregular(why) => f.write_str(why),
            FileError::System(path, error) => write!(f, "`{}`: {error}", path.display()),
        }
    }
}

impl std::error::Error for FileError {}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Outside(why) => io::Error::new(ErrorKind::PermissionDenied, why),
            FileError::Irregular(why) => io::Error::new(ErrorKind::InvalidInput, why),
            FileError::System(_, error) => error,
        }
    }
}

/// Which file it is, whatever names lead to it.
type Id = (u64, u64);

fn id(stat: &FileStat) -> Id {
    (stat.st_dev, stat.st_ino)
}

/// What something is that is no regular file.
fn what(stat: &FileStat) -> Option<&'static str> {
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    match kind {
        SFlag::S_IFREG => None,
        SFlag::S_IFDIR => Some("a folder"),
        SFlag::S_IFIFO => Some("a pipe"),
        SFlag::S_IFSOCK => Some("a socket"),
        SFlag::S_IFLNK => Some("a link"),
        _ => Some("a device"),
    }
}

/// Opens a regular file by two steps of `open`: what it is, which has no effect on it, and its bytes.
fn regular(open: impl Fn(OFlag) -> nix::Result<OwnedFd>, written: &str) -> Result<(File, FileStat), FileError> {
    let system = |error: Errno| FileError::System(written.into(), error.into());
    let seen = open(OFlag::O_PATH | OFlag::O_CLOEXEC).and_then(fstat).map_err(system)?;
    if what(&seen).is_some() {
        return Err(FileError::Irregular(format!("`{written}` is not a regular file")));
    }
    let file = File::from(open(OFlag::O_RDONLY | PLAIN).map_err(system)?);
    let stat = fstat(&file).map_err(system)?;
    if id(&stat) != id(&seen) {
        return Err(FileError::Irregular(format!("`{written}` was exchanged while it was opened")));
    }
    Ok((file, stat))
}

/// Opens a path that has no links, and fails where it has got one since. Where the kernel is older than 5.6, or a sandbox
/// hides the call, the path is walked step by step.
fn open_real(real: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new().flags(flags);
    // A link may lead to another folder that was allowed, which RESOLVE_BENEATH would refuse. That is why the path was resolved
    // and admitted before; it leads where it led then.
    let how = how.resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    match openat2(AT_FDCWD, real, how) {
        Err(Errno::ENOSYS | Errno::EPERM) => walk(real, flags),
        opened => opened,
    }
}

/// [`open_real`] for older kernels.
fn walk(real: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let step = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut at = openat(AT_FDCWD, "/", step, Mode::empty())?;
    let mut names = real.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let Some(mut name) = names.next() else { return openat(at, ".", flags, Mode::empty()) };
    for next in names {
        at = openat(&at, name, step, Mode::empty())?;
        name = next;
    }
    let opened = openat(&at, name, flags | OFlag::O_NOFOLLOW, Mode::empty())?;
    // With O_PATH a link itself is opened, where anything else is refused.
    if flags.contains(OFlag::O_PATH) && what(&fstat(&opened)?) == Some("a link") {
        return Err(Errno::ELOOP);
    }
    Ok(opened)
}

/// The path after following links, step by step, for as much of it as exists; also of a link to what is not there.
pub fn real_path(path: &Path) -> PathBuf {
    // Of an empty path nothing absolute can be made.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut todo: Vec<OsString> = parts(&absolute);
    let (mut real, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = todo.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(part);
        // More links than that are a circle, which nothing opens.
        let Some(leads_to) = fs::read_link(&real).ok().filter(|_| links < MAX_LINKS) else { continue };
        links += 1;
        real.pop();
        if leads_to.is_absolute() {
            real = PathBuf::from("/");
        }
        todo.extend(parts(&leads_to));
    }
    real
}

/// The names of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

/// A regular file that was opened for reading.
#[derive(Debug)]
pub struct InputFile {
    file: File,
    stat: FileStat,
    path: PathBuf,
    real: PathBuf,
}

impl InputFile {
    /// Opens a file that the command line names, or a program.
    ///
    /// # Errors
    /// What the system answered; [`ErrorKind::InvalidInput`] for what is no regular file.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let open = |flags| openat(AT_FDCWD, path, flags, Mode::empty());
        let (file, stat) = regular(open, &path.display().to_string())?;
        Ok(InputFile { file, stat, path: path.to_path_buf(), real: real_path(path) })
    }

    /// Opens a file again, by the path without links that [`InputFile::real`] gave.
    ///
    /// # Errors
    /// What the system answered; also where a link has come into the path, or the file is none any more.
    pub fn again(real: &Path) -> io::Result<Self> {
        let (file, stat) = regular(|flags| open_real(real, flags), &real.display().to_string())?;
        Ok(InputFile { file, stat, path: real.to_path_buf(), real: real.to_path_buf() })
    }

    /// Its path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path without links.
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// Bytes it had when it was opened.
    pub fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or_default()
    }

    /// Reads it from where it stands to its end, where that is no more than `most` bytes.
    ///
    /// # Errors
    /// What the system answered; [`ErrorKind::FileTooLarge`] for a longer one, of which no more is read.
    pub fn read_whole(&mut self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // Its size says nothing: it can grow, and the kernel's own files have none.
        self.file.by_ref().take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::Error::new(ErrorKind::FileTooLarge, format!("has more than {}", show_bytes(most))));
        }
        Ok(bytes)
    }
}

impl Read for InputFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.file.read(into)
    }
}

impl Seek for InputFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Reads a regular file that the command line names, or a program, of at most so many bytes.
///
/// # Errors
/// As [`InputFile::open`] and [`InputFile::read_whole`].
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    InputFile::open(path)?.read_whole(most)
}

/// What the kernel says of itself and of this process in a file below `/proc` or `/sys`: its first 4 MiB.
///
/// # Errors
/// What the system answered; [`ErrorKind::InvalidInput`] for what is no regular file.
pub fn system_text(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    let open = |flags| openat(AT_FDCWD, path, flags, Mode::empty());
    let (file, _) = regular(open, &path.display().to_string())?;
    let mut text = String::new();
    file.take(MAX_SYSTEM).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a character device for reading and writing, without waiting for it and without its becoming the process's terminal.
fn open_device(real: &Path) -> io::Result<File> {
    let seen = fstat(open_real(real, OFlag::O_PATH | OFlag::O_CLOEXEC)?)?;
    let wrong = || io::Error::new(ErrorKind::InvalidInput, "it is no serial device");
    let is_device = SFlag::from_bits_truncate(seen.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
    // A device that is something else may act on being opened.
    if !is_device {
        return Err(wrong());
    }
    let file = File::from(open_real(real, OFlag::O_RDWR | PLAIN)?);
    if id(&fstat(&file)?) == id(&seen) { Ok(file) } else { Err(wrong()) }
}

/// The files that were opened for reading in the name of a graph: nothing of the same graph may write them. All copies of one
/// [`Folders`] share them.
#[derive(Clone, Debug, Default)]
pub struct FilesRead(Arc<Mutex<BTreeMap<Id, PathBuf>>>);

impl FilesRead {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Id, PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same files, of which no copy hears what else is read.
    #[must_use]
    pub fn detached(&self) -> Self {
        FilesRead(Arc::new(Mutex::new(self.all().clone())))
    }

    /// Notes that a file is read.
    pub fn note(&self, file: &InputFile) {
        self.all().entry(id(&file.stat)).or_insert_with(|| file.path.clone());
    }

    /// The path under which a file is read, by whatever name it is asked for.
    pub fn find(&self, path: &Path) -> Option<PathBuf> {
        let stat = nix::sys::stat::stat(path).ok()?;
        self.all().get(&id(&stat)).cloned()
    }

    /// The path under which an open file is read.
    pub fn find_open(&self, file: &impl AsFd) -> Option<PathBuf> {
        let stat = fstat(file).ok()?;
        self.all().get(&id(&stat)).cloned()
    }
}

impl Folders {
    /// Opens an input of the graph: a regular file below its folder, or below an allowed one.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open(&self, path: &str) -> Result<InputFile, FileError> {
        self.open_joined(&self.graph.join(path), path)
    }

    /// Admits an input that is opened later, by [`InputFile::again`] with the path without links that this gives.
    ///
    /// # Errors
    /// As [`Folders::open`].
    pub fn admit_input(&self, path: &str) -> Result<PathBuf, FileError> {
        let real = real_path(&self.graph.join(path));
        self.admit(&real, path).map_err(FileError::Outside)?;
        let stat = nix::sys::stat::lstat(&real).map_err(|error| FileError::System(real.clone(), error.into()))?;
        if what(&stat).is_some() {
            return Err(FileError::Irregular(format!("`{path}` is not a regular file")));
        }
        self.read.all().entry(id(&stat)).or_insert_with(|| real.clone());
        Ok(real)
    }

    /// [`Folders::open`] for a path that begins elsewhere; `written` stands in messages.
    pub(crate) fn open_joined(&self, joined: &Path, written: &str) -> Result<InputFile, FileError> {
        let real = real_path(joined);
        self.admit(&real, written).map_err(FileError::Outside)?;
        let opened = regular(|flags| open_real(&real, flags), written).map_err(|error| match error {
            FileError::System(_, error) => FileError::System(joined.to_path_buf(), error),
            error => error,
        });
        let (file, stat) = opened?;
        let file = InputFile { file, stat, path: joined.to_path_buf(), real };
        self.read.note(&file);
        Ok(file)
    }

    /// Opens a device of the graph, such as a serial one: a character device that was allowed, for reading and writing, without
    /// waiting for it.
    ///
    /// # Errors
    /// As [`Folders::open`]; [`ErrorKind::InvalidInput`] for what is no such device.
    pub fn open_device(&self, path: &str) -> io::Result<File> {
        let real = real_path(&self.graph.join(path));
        self.admit(&real, path).map_err(FileError::Outside)?;
        open_device(&real)
    }
}
