//! What is written: a place in a folder that is held open, and the part that gets its name when it is complete.

use super::{FileError, FilesRead, InputFile, PLAIN, open_real, real_path, regular, what};
use crate::host::folders::Folders;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What earlier runs left of one file is looked at so many times.
const MAX_LEFT: usize = 16;
/// Most bytes of a file's name, on every file system that matters here.
pub const MAX_NAME: usize = 255;
/// A file's name is repeated in that of its part up to so many bytes: what stands around it takes up to 24.
const MAX_REPEATED: usize = 224;

impl Folders {
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
    pub(super) fn make(folder: &Path, name: &OsStr, path: PathBuf) -> io::Result<Self> {
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
    pub(super) fn there(&self) -> Option<&'static str> {
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
