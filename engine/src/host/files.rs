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

use crate::base::unit::show_bytes;
use crate::host::folders::Folders;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, fs};

/// Links that are followed in one path: as many as the kernel follows.
const MAX_LINKS: usize = 40;
/// More of what the kernel says of itself is not read.
const MAX_SYSTEM: u64 = 4 << 20;
/// What earlier runs left of one file is looked at so many times.
const MAX_LEFT: usize = 16;
/// Most bytes of a file's name, on every file system that matters here.
pub const MAX_NAME: usize = 255;
/// A file's name is repeated in that of its part up to so many bytes: what stands around it takes up to 24.
const MAX_REPEATED: usize = 224;
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

    /// The place of an output of the graph, whose last folder is made.
    ///
    /// # Errors
    /// Why nothing can be written there.
    pub fn target(&self, path: &str) -> Result<Target, FileError> {
        let (joined, real) = self.place_output(path).map_err(FileError::Outside)?;
        let system = |error: io::Error| FileError::System(joined.clone(), error);
        let (Some(above), Some(name), false) = (real.parent(), real.file_name(), names_folder(path)) else {
            return Err(FileError::Irregular(format!("`{path}` names no file")));
        };
        let target = Target::make(above, name, joined.clone()).map_err(system)?;
        // A link that leads in a circle is still one.
        if target.there() == Some("a link") {
            return Err(system(Errno::ELOOP.into()));
        }
        Ok(Target { read: self.read.clone(), ..target })
    }
}

/// Whether a path can only be that of a folder.
pub fn names_folder(path: &str) -> bool {
    path.is_empty() || ["/", "/.", "/.."].iter().any(|end| path.ends_with(end)) || [".", ".."].contains(&path)
}

/// A place for a file, in a folder that is held open: whatever becomes of the names above it, the file comes into this one.
#[derive(Debug)]
pub struct Target {
    folder: OwnedFd,
    name: OsString,
    path: PathBuf,
    read: FilesRead,
}

impl Target {
    /// A place in a folder that the command line names, or a program. The folder is there; a link of that name in it is not
    /// followed.
    ///
    /// # Errors
    /// What the system answered.
    pub fn beneath(folder: &Path, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = name.as_ref();
        if name.is_empty() || name.as_bytes().contains(&b'/') || name == "." || name == ".." {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("`{}` names no file", name.display())));
        }
        let opened = openat(AT_FDCWD, folder, FOLDER, Mode::empty())?;
        Ok(Target { folder: opened, name: name.into(), path: folder.join(name), read: FilesRead::default() })
    }

    /// A place in a folder whose path has no links. The folder is made, but nothing above it.
    fn make(folder: &Path, name: &OsStr, path: PathBuf) -> io::Result<Self> {
        let opened = match (open_real(folder, FOLDER), folder.parent(), folder.file_name()) {
            (Err(Errno::ENOENT), Some(above), Some(last)) => {
                let above = open_real(above, FOLDER)?;
                match mkdirat(&above, last, Mode::from_bits_truncate(0o777)) {
                    Ok(()) | Err(Errno::EEXIST) => openat(&above, last, FOLDER | OFlag::O_NOFOLLOW, Mode::empty())?,
                    Err(error) => return Err(error.into()),
                }
            }
            (opened, ..) => opened?,
        };
        Ok(Target { folder: opened, name: name.into(), path, read: FilesRead::default() })
    }

    /// Its path as it was written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of another file in the same folder.
    fn beside(&self, name: &OsStr) -> PathBuf {
        // A link may lead to a file of another name, in another folder.
        let is_own = self.path.file_name() == Some(&self.name);
        if is_own { self.path.with_file_name(name) } else { real_path(&self.path).with_file_name(name) }
    }

    /// What is there, where it is no regular file.
    fn there(&self) -> Option<&'static str> {
        let stat = fstatat(&self.folder, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
        stat.ok().as_ref().and_then(what)
    }

    fn create(&self, name: &OsStr, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | PLAIN;
        let file = File::from(openat(&self.folder, name, flags, Mode::from_bits_truncate(0o666))?);
        match what(&fstat(&file)?) {
            None => Ok(file),
            Some(what) => Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {what}, not a regular file"))),
        }
    }

    /// Opens the file so that everything is written behind what it holds; makes it where there is none.
    ///
    /// # Errors
    /// What the system answered; what is no regular file, or a file that the same graph reads.
    pub fn append(&self) -> io::Result<File> {
        // Looked at first: opening a pipe or a device may do something.
        if let Some(what) = self.there() {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {what}, not a regular file")));
        }
        let file = self.create(&self.name, OFlag::O_APPEND)?;
        if self.read.find_open(&file).is_some() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the graph reads the same file"));
        }
        Ok(file)
    }

    /// Makes the file, which must not be there.
    ///
    /// # Errors
    /// What the system answered.
    pub fn create_new(&self) -> io::Result<File> {
        self.create(&self.name, OFlag::O_EXCL)
    }

    /// Opens what is there for reading.
    ///
    /// # Errors
    /// As [`InputFile::open`].
    pub fn open(&self) -> io::Result<InputFile> {
        let name = self.name.as_os_str();
        let open = |flags: OFlag| openat(&self.folder, name, flags | OFlag::O_NOFOLLOW, Mode::empty());
        let (file, stat) = regular(open, &self.path.display().to_string())?;
        Ok(InputFile { file, stat, path: self.path.clone(), real: real_path(&self.path) })
    }

    /// Begins a file that gets its name when it is complete. Until then it lies beside its place with a name of its own,
    /// `.NAME.PID.part` (a long name is shortened there), and is locked (`flock`), which tells it from what a process left that is gone.
    ///
    /// # Errors
    /// What the system answered.
    pub fn begin(self) -> io::Result<(File, Part)> {
        if self.read.find(&self.path).is_some() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the graph reads the same file"));
        }
        // The part's name fits in any case, and its own would be refused when all is written.
        if fstatat(&self.folder, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) == Err(Errno::ENAMETOOLONG) {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let (process, repeated) = (std::process::id(), shortened(&self.name, MAX_REPEATED));
        for number in 1..=u16::MAX {
            let mut name = OsString::from(".");
            name.push(&repeated);
            name.push(if number == 1 { format!(".{process}.part") } else { format!(".{process}-{number}.part") });
            match self.create(&name, OFlag::O_EXCL) {
                Ok(file) => {
                    // Whoever looks for leftovers may hold the lock for a moment. A file system without locks costs no more than a
                    // leftover that is not recognised.
                    let _ = file.lock();
                    let path = self.beside(&name);
                    let left = self.left(&name);
                    parts_begun().push(path.clone());
                    return Ok((file, Part { target: self, name, path, left }));
                }
                // Numbers of processes come again, in containers above all.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// What earlier runs left of this file: parts that nobody has locked.
    fn left(&self, own: &OsStr) -> Vec<OsString> {
        let Some(Ok(entries)) = real_path(&self.path).parent().map(fs::read_dir) else { return Vec::new() };
        let names = entries.filter_map(Result::ok).map(|entry| entry.file_name());
        let repeated = shortened(&self.name, MAX_REPEATED);
        let parts = names.filter(|name| name != own && is_part_of(name, &repeated));
        parts.filter(|name| self.is_left(name)).take(MAX_LEFT).collect()
    }

    fn is_left(&self, name: &OsStr) -> bool {
        let open = |flags: OFlag| openat(&self.folder, name, flags | OFlag::O_NOFOLLOW, Mode::empty());
        regular(open, "").is_ok_and(|(file, _)| file.try_lock().is_ok())
    }
}

/// How folders are opened: to be the beginning of paths.
const FOLDER: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// A name of at most so many bytes, which are 17 or more: a longer one is cut, and ends with a digest of the whole.
pub fn shortened(name: &OsStr, most: usize) -> OsString {
    let bytes = name.as_bytes();
    if bytes.len() <= most {
        return name.to_owned();
    }
    // FNV-1a: the same in every version, so that what an earlier one left is recognised.
    let digest = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    // A character is not cut in its middle.
    let mut end = most.saturating_sub(17);
    while end > 0 && bytes[end] & 0b1100_0000 == 0b1000_0000 {
        end -= 1;
    }
    let mut short = OsStr::from_bytes(&bytes[..end]).to_owned();
    short.push(format!("~{digest:016x}"));
    short
}

/// Whether a name is `.FILE.123.part` or `.FILE.123-2.part`.
fn is_part_of(name: &OsStr, file: &OsStr) -> bool {
    let rest = name.as_bytes().strip_prefix(b".").and_then(|rest| rest.strip_prefix(file.as_bytes()));
    let number = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".part"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(|b| b.is_ascii_digit() || *b == b'-'))
}

/// Files that were begun and have not got their names.
static PARTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn parts_begun() -> MutexGuard<'static, Vec<PathBuf>> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The files that this process has begun and not completed: what a program that leaves at once can tell its user.
pub fn unfinished() -> Vec<PathBuf> {
    parts_begun().clone()
}

/// The name of a file that is being written, which it has until it is complete.
#[derive(Debug)]
pub struct Part {
    target: Target,
    name: OsString,
    path: PathBuf,
    left: Vec<OsString>,
}

impl Part {
    /// Where the file lies until it is complete.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What earlier runs left that were not there to complete it. It goes when this one is completed, as an older file would.
    pub fn left(&self) -> impl Iterator<Item = PathBuf> {
        self.left.iter().map(|name| self.target.beside(name))
    }

    /// Gives the file its name, in place of an older one.
    ///
    /// # Errors
    /// What the system answered, and where the file lies.
    pub fn finish(self) -> io::Result<()> {
        self.rename().map_err(|error| {
            let why = format!("{error}; what was written lies in {}", self.path.display());
            io::Error::new(error.kind(), why)
        })
    }

    fn rename(&self) -> io::Result<()> {
        let Target { folder, name, .. } = &self.target;
        let renamed = renameat(folder, self.name.as_os_str(), folder, name.as_os_str());
        if matches!(renamed, Ok(()) | Err(nix::errno::Errno::ENOENT)) {
            self.forget();
        }
        renamed?;
        for name in self.left.iter().filter(|name| self.target.is_left(name)) {
            let _ = unlinkat(folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
        Ok(())
    }

    /// Removes the file.
    pub fn discard(self) {
        // Nothing more can be done about one that stays.
        let _ = unlinkat(&self.target.folder, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        self.forget();
    }

    fn forget(&self) {
        parts_begun().retain(|path| *path != self.path);
    }
}

/// What earlier runs left of a file that they had begun and not completed.
pub fn left(path: &Path) -> Vec<PathBuf> {
    let real = real_path(path);
    let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else { return Vec::new() };
    let Ok(opened) = open_real(folder, FOLDER) else { return Vec::new() };
    let target = Target { folder: opened, name: name.into(), path: path.to_path_buf(), read: FilesRead::default() };
    target.left(OsStr::new("")).iter().map(|name| target.beside(name)).collect()
}

/// Whether an open regular file has no name any more: what is written to it is lost when it is closed.
pub fn is_deleted(file: &impl AsFd) -> bool {
    fstat(file).is_ok_and(|stat| what(&stat).is_none() && stat.st_nlink == 0)
}

/// Has a write beyond the limit on the size of files (`ulimit -f`) be an error of its node, where it would end the process: of
/// this thread, and of those that it starts from now on. Workers do it by themselves.
pub fn outlive_size_limit() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    // The signal stays pending, and the write answers EFBIG. Where a system refuses, all is as it was.
    let _ = signals.thread_block();
}

/// Writes a file as a whole in place of an older one: nobody ever sees half of it. A link of that name is replaced, not followed.
///
/// # Errors
/// What the system answered.
pub fn replace(folder: &Path, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
    let (mut file, part) = Target::beneath(folder, name)?.begin()?;
    let replaced = io::Write::write_all(&mut file, bytes).and_then(|()| part.rename());
    if replaced.is_err() {
        part.discard();
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::time::Instant;

    /// `graph/` with files, and links to inside and outside.
    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["graph", "graph/sub", "outside"] {
            fs::create_dir(at(name)).unwrap();
        }
        for name in ["graph/a", "graph/sub/b", "outside/c"] {
            fs::write(at(name), name).unwrap();
        }
        nix::unistd::mkfifo(&at("graph/pipe"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        for (to, name) in [
            ("a", "graph/to-a"),
            ("sub/../to-a", "graph/to-to-a"),
            ("../outside", "graph/to-outside"),
            ("../outside/c", "graph/to-c"),
            ("../outside/none", "graph/to-none"),
            ("/dev/zero", "graph/zero"),
            ("circle", "graph/circle"),
        ] {
            symlink(to, at(name)).unwrap();
        }
        folder
    }

    #[test]
    fn only_regular_files_are_opened_and_only_where_a_graph_may_read() {
        let folder = tree();
        let of = |allowed: &[&str]| Folders {
            graph: folder.path().join("graph"),
            allowed: allowed.iter().map(|name| folder.path().join(name)).collect(),
            ..Folders::default()
        };
        for (path, allowed, expected) in [
            ("a", false, "graph/a"),
            ("./sub/../to-to-a", false, "graph/a"),
            ("sub/b", false, "graph/sub/b"),
            ("to-c", true, "outside/c"),
            ("to-outside/c", true, "outside/c"),
            ("../outside/c", true, "outside/c"),
            ("to-c", false, "--allow-path"),
            ("to-none", false, "--allow-path"),
            ("to-outside/c", false, "--allow-path"),
            ("zero", true, "--allow-path"),
            ("/etc/hostname", true, "--allow-path"),
            ("none", false, "No such file"),
            ("pipe", false, "`pipe` is not a regular file"),
            ("sub", false, "`sub` is not a regular file"),
            ("", false, "is not a regular file"),
            ("circle", false, "symbolic links"),
            ("a/b", false, "Not a directory"),
            ("a\0b", false, ""),
        ] {
            let folders = of(if allowed { &["outside"] } else { &[] });
            match folders.open(path) {
                Ok(mut file) => {
                    assert_eq!(file.read_whole(100).unwrap(), expected.as_bytes(), "{path}");
                    assert_eq!(folders.read.find(&folder.path().join(expected)).as_deref(), Some(file.path()));
                }
                Err(error) => assert!(error.to_string().contains(expected), "{path}: {error}"),
            }
        }
    }

    #[test]
    fn a_link_that_comes_into_a_path_is_not_followed() {
        let folder = tree();
        let real = folder.path().canonicalize().unwrap();
        let flags = OFlag::O_RDONLY | PLAIN;
        for (path, expected) in [
            ("graph/a", None),
            ("graph/sub/b", None),
            ("graph", None),
            ("graph/to-a", Some(Errno::ELOOP)),
            ("graph/to-outside/c", Some(Errno::ELOOP)),
            ("graph/none", Some(Errno::ENOENT)),
        ] {
            for flags in [flags, OFlag::O_PATH | OFlag::O_CLOEXEC] {
                // Step by step, a link in the middle is no folder.
                let stepwise = if path.contains("side/c") { Some(Errno::ENOTDIR) } else { expected };
                assert_eq!(open_real(&real.join(path), flags).err(), expected, "{path}");
                assert_eq!(walk(&real.join(path), flags).err(), stepwise, "{path}");
            }
        }
        assert_eq!((walk(Path::new("/"), flags).err(), open_real(Path::new("/"), flags).err()), (None, None));
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tree();
        let began = Instant::now();
        let error = InputFile::open(folder.path().join("graph/pipe")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let target = Target::beneath(&folder.path().join("graph"), "pipe").unwrap();
        assert_eq!(target.append().unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(began.elapsed() < std::time::Duration::from_secs(60));
    }

    #[test]
    fn a_read_has_a_bound() {
        let folder = tree();
        let path = folder.path().join("graph/a");
        assert_eq!(read(&path, 7).unwrap(), b"graph/a");
        assert_eq!(read(&path, 6).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert!(system_text("/proc/self/status").unwrap().contains("VmRSS"));
    }

    #[test]
    fn a_file_that_is_read_is_known_by_any_name() {
        let folder = tree();
        let at = |name: &str| folder.path().join("graph").join(name);
        fs::hard_link(at("a"), at("hard")).unwrap();
        let folders = Folders { graph: at(""), ..Folders::default() };
        let planned = folders.clone();
        folders.open("to-a").unwrap();
        for name in ["a", "hard", "to-to-a"] {
            assert_eq!(planned.read.find(&at(name)), Some(at("to-a")), "{name}");
            assert!(planned.target(name).unwrap().append().is_err(), "{name}");
            assert!(planned.target(name).unwrap().begin().is_err(), "{name}");
        }
        let others = folders.read.detached();
        folders.open("sub/b").unwrap();
        assert_eq!((folders.read.find(&at("sub/b")).is_some(), others.find(&at("sub/b"))), (true, None));
    }

    #[test]
    fn a_folder_that_becomes_a_link_leads_nowhere() {
        let folder = tree();
        let at = |name: &str| folder.path().join(name);
        let folders = Folders { graph: at("graph"), ..Folders::default() };
        let inside = folder.path().canonicalize().unwrap().join("graph/sub");
        // Admitted, and not opened yet.
        let input = folders.admit_input("sub/b").unwrap();
        let target = |name: &str| folders.target(&format!("sub/{name}")).unwrap();
        let (begun, appended, new) = (target("begun"), target("appended"), target("new"));
        fs::rename(at("graph/sub"), at("graph/moved")).unwrap();
        symlink("../outside", at("graph/sub")).unwrap();
        fs::write(at("outside/b"), "outside").unwrap();
        // Without `openat2` a link in the middle is no folder.
        let is_refused = |error: io::Error| {
            [Errno::ELOOP, Errno::ENOTDIR].iter().any(|refused| error.raw_os_error() == Some(*refused as i32))
        };
        assert!(is_refused(InputFile::again(&input).unwrap_err()));
        assert!(is_refused(Target::make(&inside, "made".as_ref(), at("graph/sub/made")).unwrap_err()));
        assert!(folders.open("sub/b").unwrap_err().to_string().contains("--allow-path"));
        // What was opened before stays where it was, whatever it is called by now.
        begun.begin().unwrap().1.finish().unwrap();
        appended.append().unwrap();
        new.create_new().unwrap();
        for name in ["begun", "appended", "new"] {
            assert!(at("graph/moved").join(name).is_file() && !at("outside").join(name).exists(), "{name}");
        }
    }

    #[test]
    fn a_name_of_any_length_that_a_file_may_have_can_be_written() {
        let folder = tree();
        let graph = folder.path().join("graph");
        for (letter, length) in [("a", 224), ("a", 225), ("a", MAX_NAME), ("ä", MAX_NAME / 2), ("€", MAX_NAME / 3)] {
            let name = letter.repeat(length);
            let (file, part) = Target::beneath(&graph, &name).unwrap().begin().unwrap();
            assert!(part.path().is_file() && part.path().to_str().is_some(), "{name}");
            drop(file);
            // Nobody has locked it any more, as when a process was killed.
            assert_eq!(left(&graph.join(&name)), [part.path()], "{name}");
            part.finish().unwrap();
            assert!(graph.join(&name).is_file() && left(&graph.join(&name)).is_empty(), "{name}");
        }
        assert!(Target::beneath(&graph, "a".repeat(MAX_NAME + 1)).unwrap().begin().is_err());
        let (one, other) = ("a".repeat(300) + "1", "a".repeat(300) + "2");
        assert_ne!(shortened(one.as_ref(), 100), shortened(other.as_ref(), 100));
        assert_eq!(shortened(one.as_ref(), 100).len(), 100);
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_link_is_not_followed() {
        let folder = tree();
        let graph = folder.path().join("graph");
        replace(&graph, "to-c", b"new").unwrap();
        assert_eq!(
            (fs::read(graph.join("to-c")).unwrap(), fs::read(folder.path().join("outside/c")).unwrap()),
            (b"new".to_vec(), b"outside/c".to_vec())
        );
        for name in ["", ".", "..", "a/b"] {
            assert!(replace(&graph, name, b"").is_err(), "{name}");
        }
        assert!(replace(&graph, "sub", b"").is_err());
        let names = fs::read_dir(&graph).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(
            !names.into_iter().any(|name| name.as_bytes().ends_with(b".part") && name.as_bytes().starts_with(b".to-c"))
        );
    }
}
