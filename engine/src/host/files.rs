//! The only module that opens files named by a graph, a model or the command line.
//!
//! Only regular files are read. A file is checked before it is opened, so that no pipe blocks and
//! no device acts, and all further checks use the open descriptor. Only [`Folders::open_device`]
//! opens something else: a character device allowed on the command line. Reading a whole file has a
//! limit; callers that read piece by piece ([`Read`]) limit what they keep.
//!
//! A path in a graph is resolved, admitted, and opened in its resolved form without following
//! links, so later changes of names have no effect. `RESOLVE_BENEATH` is not used: it would refuse
//! a link to an allowed folder. `RESOLVE_NO_SYMLINKS` on the admitted path closes the same gap;
//! without `openat2` in the kernel, the path is walked step by step and no step may be a link.
//!
//! Outputs are written into a folder that is held open. A file gets its name when it is complete
//! ([`Target::begin`]), unless it is appended to ([`Target::append`]) or has to be new
//! ([`Target::begin_new`]); these are visible under their names at once. Whoever begins a file
//! finishes or discards it ([`PartialFile`]): a run that did not begin discards, and every file is
//! as it was.
//!
//! A path that begins with `mem:` is looked up among the files that the program holds in memory
//! ([`MemoryFiles`]), and nowhere else. A URL is looked up among the files that were fetched before
//! ([`RemoteFiles`]).
//!
//! Other programs are not locked out: they can write a file while it is read.

#![allow(clippy::disallowed_methods, reason = "the one place")]

mod memory;
mod named_output;
mod output;
mod partial;
mod remote;
#[cfg(test)]
mod tests;

use memory::MemoryBytes;
pub(crate) use memory::refuse_memory;
pub use memory::{MemoryFiles, memory_name};
pub use named_output::{NamedOutput, check_output, hold_output, write_output};
pub use output::{
    MAX_NAME, PartialFile, Target, check_creatable, check_writable, discard_unfinished, is_deleted, names_folder,
    outlive_size_limit, replace, replace_all, unfinished,
};
pub use partial::{PartialFiles, kept_path, shortened};
pub use remote::{FetchedFile, Neighbours, RemoteFiles, Sha256Function, remote_scheme, shown_url, url_beside};
pub(crate) use remote::{is_file_url, refuse_url};

use crate::base::error::nearest;
use crate::base::unit::show_bytes;
use crate::host::folders::Folders;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::geteuid;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, fs};

/// The maximum number of links followed in one path: the kernel's own limit.
const MAX_LINKS: usize = 40;
/// The longest text read from `/proc` and `/sys`.
const MAX_SYSTEM: u64 = 4 << 20;
/// Flags for opening any file for its bytes: do not block on a pipe, and do not adopt a controlling
/// terminal.
const PLAIN: OFlag = OFlag::O_CLOEXEC.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);

/// Why a file of a graph cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// It lies where the graph may not read or write; the message says what to allow.
    Outside(String),
    /// It is a folder, a pipe, a socket or a device, or its name can only be that of one.
    Irregular(String),
    /// It is a URL, and no usable copy was fetched.
    NotFetched {
        /// What is missing or wrong.
        message: String,
        /// The command that fetches it.
        help: String,
    },
    /// The path and the system's error.
    System(PathBuf, io::Error),
}

/// The most entries of a folder that are searched for a similar name.
const MAX_LISTED: usize = 1000;

impl FileError {
    /// Returns the name in its folder that is most similar to that of a file that is not there;
    /// `None` if none is close enough.
    pub fn similar(&self) -> Option<String> {
        let FileError::System(path, error) = self else { return None };
        let asked = path.file_name().filter(|_| error.kind() == ErrorKind::NotFound)?.to_string_lossy();
        let names = fs::read_dir(path.parent()?).ok()?.take(MAX_LISTED).flatten();
        let mut names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        nearest(&asked, names.iter().map(String::as_str)).map(str::to_string)
    }

    /// Returns a way out.
    pub fn help(&self) -> String {
        match self {
            FileError::Outside(_) => "write the path of a file below the graph file's folder".into(),
            FileError::Irregular(_) => "write the path of a regular file".into(),
            FileError::NotFetched { help, .. } => help.clone(),
            FileError::System(..) => match self.similar() {
                Some(name) => format!("did you mean `{name}`?"),
                None => "write the path of an existing file".into(),
            },
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Outside(why) | FileError::Irregular(why) | FileError::NotFetched { message: why, .. } => {
                f.write_str(why)
            }
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
            FileError::NotFetched { message, .. } => io::Error::new(ErrorKind::NotFound, message),
            FileError::System(_, error) => error,
        }
    }
}

/// Device and inode: identifies a file regardless of its names.
type Id = (u64, u64);

fn id(stat: &FileStat) -> Id {
    (stat.st_dev, stat.st_ino)
}

/// Returns what something is if it is not a regular file.
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

/// Opens a regular file in two steps: `O_PATH` to check its type without side effects, then for
/// reading.
fn regular(open: &dyn Fn(OFlag) -> nix::Result<OwnedFd>, written: &str) -> Result<(File, FileStat), FileError> {
    let system = |error: Errno| FileError::System(written.into(), error.into());
    let seen = open(OFlag::O_PATH | OFlag::O_CLOEXEC).and_then(fstat).map_err(system)?;
    if what(&seen).is_some() {
        return Err(FileError::Irregular(format!("`{written}` is not a regular file")));
    }
    let file = File::from(open(OFlag::O_RDONLY | PLAIN).map_err(system)?);
    let stat = fstat(&file).map_err(system)?;
    if id(&stat) != id(&seen) {
        return Err(FileError::Irregular(format!("`{written}` was replaced while it was opened")));
    }
    Ok((file, stat))
}

/// Opens a path that has no links, and fails if one has appeared since. If the kernel is older than
/// 5.6, or a sandbox hides the call, walks the path step by step.
fn open_real(real: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new().flags(flags);
    // RESOLVE_BENEATH would refuse a link to another allowed folder. The path was therefore
    // resolved and admitted before, and must still lead to the same place.
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
    // With O_PATH a link itself is opened, where other flags fail.
    if flags.contains(OFlag::O_PATH) && what(&fstat(&opened)?) == Some("a link") {
        return Err(Errno::ELOOP);
    }
    Ok(opened)
}

/// Resolves links, step by step, for as much of a path as exists, including links to missing files.
pub fn real_path(path: &Path) -> PathBuf {
    // `absolute` refuses an empty path.
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
        // More links form a cycle, which cannot be opened.
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

/// Returns the names of a path, last first.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

/// A regular file, or a file in memory, opened for reading.
#[derive(Debug)]
pub struct InputFile {
    content: Content,
    path: PathBuf,
    real: PathBuf,
    /// The fetched files of which it is one, and its URL.
    remote: Option<(RemoteFiles, String)>,
}

#[derive(Debug)]
enum Content {
    Disk(File, FileStat),
    /// The bytes, and the files among which the program holds them.
    Memory(Cursor<MemoryBytes>, MemoryFiles),
}

impl InputFile {
    /// Opens a file in memory by its path, `mem:NAME`.
    fn in_memory(files: &MemoryFiles, name: &str, path: &str) -> Result<Self, FileError> {
        let bytes = files.share(name).map_err(|error| FileError::System(path.into(), error))?;
        let content = Content::Memory(Cursor::new(bytes), files.clone());
        Ok(InputFile { content, path: path.into(), real: path.into(), remote: None })
    }

    /// Opens a file named by the command line or a program.
    ///
    /// # Errors
    /// The system's error; [`ErrorKind::InvalidInput`] if it is not a regular file.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let open = |flags| openat(AT_FDCWD, path, flags, Mode::empty());
        let (file, stat) = regular(&open, &path.display().to_string())?;
        let (path, real) = (path.to_path_buf(), real_path(path));
        Ok(InputFile { content: Content::Disk(file, stat), path, real, remote: None })
    }

    /// Opens a file again by its path without links, as returned by [`InputFile::real`].
    ///
    /// # Errors
    /// The system's error, also if a link has appeared in the path or the file is gone.
    pub fn again(real: &Path) -> io::Result<Self> {
        let (file, stat) = regular(&|flags| open_real(real, flags), &real.display().to_string())?;
        let (path, real) = (real.to_path_buf(), real.to_path_buf());
        Ok(InputFile { content: Content::Disk(file, stat), path, real, remote: None })
    }

    /// Returns where the files beside it are found; `None` if beside it on the disk.
    pub fn neighbours(&self) -> Option<Neighbours> {
        match (&self.content, &self.remote) {
            (Content::Memory(_, files), _) => Some(Neighbours::Memory(files.clone())),
            (Content::Disk(..), Some((files, url))) => Some(Neighbours::Remote(files.clone(), url.clone())),
            (Content::Disk(..), None) => None,
        }
    }

    /// Returns its path as given; the URL of a fetched file, without its revision.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its path without links; that of a file in memory as given.
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// Returns its size in bytes at the time of opening.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Disk(_, stat) => u64::try_from(stat.st_size).unwrap_or_default(),
            Content::Memory(bytes, _) => bytes.get_ref().as_ref().len() as u64,
        }
    }

    /// Reads from the current position to the end, at most `most` bytes.
    ///
    /// # Errors
    /// The system's error; [`ErrorKind::FileTooLarge`] if there are more bytes.
    pub fn read_whole(&mut self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // The size is not reliable: a file can grow, and those of the kernel have size 0.
        bytes.try_reserve_exact(usize::try_from(self.size().min(most)).unwrap_or_default())?;
        let most_read = most.saturating_add(1);
        match &mut self.content {
            Content::Disk(file, _) => file.take(most_read).read_to_end(&mut bytes)?,
            Content::Memory(content, _) => content.take(most_read).read_to_end(&mut bytes)?,
        };
        if bytes.len() as u64 > most {
            return Err(io::Error::new(
                ErrorKind::FileTooLarge,
                format!("the file must be at most {}, got more", show_bytes(most)),
            ));
        }
        Ok(bytes)
    }
}

impl Read for InputFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.content {
            Content::Disk(file, _) => file.read(into),
            Content::Memory(bytes, _) => bytes.read(into),
        }
    }
}

impl Seek for InputFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &mut self.content {
            Content::Disk(file, _) => file.seek(to),
            Content::Memory(bytes, _) => bytes.seek(to),
        }
    }
}

/// Reads a regular file named by the command line or a program, of at most `most` bytes.
///
/// # Errors
/// As [`InputFile::open`] and [`InputFile::read_whole`].
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    InputFile::open(path)?.read_whole(most)
}

/// Reads until the buffer is full or there is no more, and returns the number of bytes.
///
/// # Errors
/// The system's error.
pub fn read_up_to(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The content of a file that only the user of this process can have written: it is theirs, and its
/// group and others may not write it.
#[derive(Debug, PartialEq, Eq)]
pub struct PrivateBytes {
    bytes: Vec<u8>,
    begin: usize,
}

impl PrivateBytes {
    /// Reads a regular file of at most `most` bytes.
    ///
    /// # Errors
    /// As [`read`]; [`ErrorKind::PermissionDenied`] if another user may have written it.
    pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Self> {
        let mut file = InputFile::open(path)?;
        let Content::Disk(_, stat) = &file.content else { return Err(ErrorKind::InvalidInput.into()) };
        let writable = Mode::S_IWGRP | Mode::S_IWOTH;
        if stat.st_uid != geteuid().as_raw() || Mode::from_bits_truncate(stat.st_mode).intersects(writable) {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "the file must be writable by this user only"));
        }
        Ok(PrivateBytes { bytes: file.read_whole(most)?, begin: 0 })
    }

    /// Drops bytes from the front.
    #[must_use]
    pub fn skip(self, bytes: usize) -> Self {
        PrivateBytes { begin: self.begin.saturating_add(bytes).min(self.bytes.len()), ..self }
    }
}

impl std::ops::Deref for PrivateBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }
}

/// Opens a file of the system, to be read again and again.
///
/// # Errors
/// The system's error.
pub(crate) fn open_system(path: &str) -> io::Result<File> {
    File::open(path)
}

/// Reads a file below `/proc` or `/sys`, up to 4 MiB.
///
/// # Errors
/// The system's error; [`ErrorKind::InvalidInput`] if it is not a regular file.
pub fn system_text(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    let open = |flags| openat(AT_FDCWD, path, flags, Mode::empty());
    let (file, _) = regular(&open, &path.display().to_string())?;
    let mut text = String::new();
    file.take(MAX_SYSTEM).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a character device for reading and writing, without blocking and without making it the
/// controlling terminal.
fn open_device(real: &Path) -> io::Result<File> {
    let seen = fstat(open_real(real, OFlag::O_PATH | OFlag::O_CLOEXEC)?)?;
    let wrong = || io::Error::new(ErrorKind::InvalidInput, "not a serial device");
    let is_device = SFlag::from_bits_truncate(seen.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
    // Opening a device of another type may have side effects.
    if !is_device {
        return Err(wrong());
    }
    let file = File::from(open_real(real, OFlag::O_RDWR | PLAIN)?);
    if id(&fstat(&file)?) == id(&seen) { Ok(file) } else { Err(wrong()) }
}

/// The files opened for reading by a graph, which none of its nodes may write. All clones of one
/// [`Folders`] share them.
#[derive(Clone, Debug, Default)]
pub struct FilesRead(Arc<Mutex<HashMap<Id, PathBuf>>>);

impl FilesRead {
    fn all(&self) -> MutexGuard<'_, HashMap<Id, PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the set; later additions are not shared.
    #[must_use]
    pub fn detached(&self) -> Self {
        FilesRead(Arc::new(Mutex::new(self.all().clone())))
    }

    /// Records that a file is read. A file in memory cannot be written, so it is not recorded.
    pub fn note(&self, file: &InputFile) {
        if let Content::Disk(_, stat) = &file.content {
            self.all().entry(id(stat)).or_insert_with(|| file.path.clone());
        }
    }

    /// Returns the path under which a file is read, whatever name `path` uses for it.
    pub fn find(&self, path: &Path) -> Option<PathBuf> {
        let stat = nix::sys::stat::stat(path).ok()?;
        self.all().get(&id(&stat)).cloned()
    }

    /// Returns the path under which an open file is read.
    pub fn find_open(&self, file: &impl AsFd) -> Option<PathBuf> {
        let stat = fstat(file).ok()?;
        self.all().get(&id(&stat)).cloned()
    }
}

impl Folders {
    /// Opens an input of the graph: a regular file below its folder or an allowed one; `mem:NAME`,
    /// which the program holds in memory; or a URL whose file was fetched before.
    ///
    /// # Errors
    /// The reason that it cannot be opened.
    pub fn open(&self, path: &str) -> Result<InputFile, FileError> {
        if let Some(name) = memory_name(path) {
            return InputFile::in_memory(&self.memory, name, path);
        }
        if remote_scheme(path).is_none() {
            return self.open_joined(&self.graph.join(path), path);
        }
        let file = self.remote.open(path)?;
        self.read.note(&file);
        Ok(file)
    }

    /// Admits an input to be opened later; returns its path without links for [`InputFile::again`].
    ///
    /// # Errors
    /// As [`Folders::open`].
    pub fn admit_input(&self, path: &str) -> Result<PathBuf, FileError> {
        refuse_memory(path).and_then(|()| refuse_url(path)).map_err(FileError::Irregular)?;
        let real = real_path(&self.graph.join(path));
        self.admit(&real, path).map_err(FileError::Outside)?;
        let stat = nix::sys::stat::lstat(&real).map_err(|error| FileError::System(real.clone(), error.into()))?;
        if what(&stat).is_some() {
            return Err(FileError::Irregular(format!("`{path}` is not a regular file")));
        }
        self.read.all().entry(id(&stat)).or_insert_with(|| real.clone());
        Ok(real)
    }

    /// Does the same as [`Folders::open`] for a path relative to another folder; messages show
    /// `written`.
    pub(crate) fn open_joined(&self, joined: &Path, written: &str) -> Result<InputFile, FileError> {
        let real = real_path(joined);
        self.admit(&real, written).map_err(FileError::Outside)?;
        let opened = regular(&|flags| open_real(&real, flags), written).map_err(|error| match error {
            FileError::System(_, error) => FileError::System(joined.to_path_buf(), error),
            error => error,
        });
        let (file, stat) = opened?;
        let file = InputFile { content: Content::Disk(file, stat), path: joined.to_path_buf(), real, remote: None };
        self.read.note(&file);
        Ok(file)
    }

    /// Opens a device of the graph, such as a serial one: an allowed character device, for reading
    /// and writing, without blocking.
    ///
    /// # Errors
    /// As [`Folders::open`]; [`ErrorKind::InvalidInput`] if it is not a character device.
    pub fn open_device(&self, path: &str) -> io::Result<File> {
        let real = real_path(&self.graph.join(path));
        self.admit(&real, path).map_err(FileError::Outside)?;
        open_device(&real)
    }
}
