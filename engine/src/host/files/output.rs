//! Writing files: a target in a folder that is held open, and a partial file that gets its name
//! when complete.

use super::partial::{MAX_REPEATED, PartialFiles, is_left, kept_name, shortened};
use super::{Content, FileError, FilesRead, Id, InputFile, PLAIN, id, open_real, real_path, regular, what};
use crate::host::folders::Folders;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, fstat, fstatat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The longest file name, in bytes, on all common file systems.
pub const MAX_NAME: usize = 255;

impl Folders {
    /// Prepares an output of the graph; creates the last folder of its path.
    ///
    /// # Errors
    /// The reason that nothing can be written there.
    pub fn target(&self, path: &str) -> Result<Target, FileError> {
        let (joined, real) = self.place_output(path).map_err(FileError::Outside)?;
        let system = |error: io::Error| FileError::System(joined.clone(), error);
        let (Some(above), Some(name), false) = (real.parent(), real.file_name(), names_folder(path)) else {
            return Err(FileError::Irregular(format!("expected the path of a file, found `{path}`")));
        };
        let target = Target::make(above, name, joined.clone()).map_err(system)?;
        // Only a cyclic link is still a link after resolving.
        if target.there() == Some("a link") {
            return Err(system(Errno::ELOOP.into()));
        }
        Ok(Target { read: self.read.clone(), partial: self.partial.clone(), ..target })
    }
}

/// Returns whether a path can only name a folder.
pub fn names_folder(path: &str) -> bool {
    path.is_empty() || ["/", "/.", "/.."].iter().any(|end| path.ends_with(end)) || [".", ".."].contains(&path)
}

/// A place for a file in a folder that is held open: the file goes there even if names above it
/// change.
#[derive(Debug)]
pub struct Target {
    folder: OwnedFd,
    name: OsString,
    path: PathBuf,
    read: FilesRead,
    partial: PartialFiles,
}

impl Target {
    /// Prepares a file in an existing folder named by the command line or a program. A link of that
    /// name in it is not followed.
    ///
    /// # Errors
    /// The system's error.
    pub fn beneath(folder: &Path, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = name.as_ref();
        if name.is_empty() || name.as_bytes().contains(&b'/') || name == "." || name == ".." {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                format!("expected the name of a file, found `{}`", name.display()),
            ));
        }
        let opened = openat(AT_FDCWD, folder, FOLDER, Mode::empty())?;
        Ok(Target::within(opened, name, folder.join(name)))
    }

    /// Prepares a file in an open folder.
    pub(super) fn within(folder: OwnedFd, name: &OsStr, path: PathBuf) -> Self {
        Target { folder, name: name.into(), path, read: FilesRead::default(), partial: PartialFiles::default() }
    }

    /// Prepares a file in a folder whose path has no links. Creates the folder, but no folder above
    /// it.
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
        Ok(Target::within(opened, name, path))
    }

    /// Returns its path as written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of another file in the same folder.
    fn beside(&self, name: &OsStr) -> PathBuf {
        // A link may lead to a file with another name, in another folder.
        let is_own = self.path.file_name() == Some(&self.name);
        if is_own { self.path.with_file_name(name) } else { real_path(&self.path).with_file_name(name) }
    }

    /// Returns what is there if it is not a regular file.
    pub(super) fn there(&self) -> Option<&'static str> {
        let stat = fstatat(&self.folder, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
        stat.ok().as_ref().and_then(what)
    }

    fn found(&self) -> Option<Id> {
        let stat = fstatat(&self.folder, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
        stat.ok().as_ref().map(id)
    }

    fn create(&self, name: &OsStr, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | PLAIN;
        let file = File::from(openat(&self.folder, name, flags, Mode::from_bits_truncate(0o666))?);
        match what(&fstat(&file)?) {
            None => Ok(file),
            Some(what) => {
                Err(io::Error::new(ErrorKind::InvalidInput, format!("expected a regular file, found {what}")))
            }
        }
    }

    /// Opens the file for appending; creates it if missing. [`PartialFile::discard`] removes the
    /// file only if it was created here.
    ///
    /// # Errors
    /// The system's error; also if it is not a regular file, or the graph reads it.
    pub fn append(self) -> io::Result<(File, PartialFile)> {
        // Checked first: opening a pipe or a device may have side effects.
        if let Some(what) = self.there() {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("expected a regular file, found {what}")));
        }
        match self.create(&self.name, OFlag::O_APPEND | OFlag::O_EXCL) {
            Ok(file) => return self.begun_new(file),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let file = self.create(&self.name, OFlag::O_APPEND)?;
        if self.read.find_open(&file).is_some() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the graph reads the same file"));
        }
        Ok((file, PartialFile::begin(self, PartPlace::Existing, Vec::new())))
    }

    /// Begins a file that must not exist, and has its name at once. [`PartialFile::discard`]
    /// removes the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn begin_new(self) -> io::Result<(File, PartialFile)> {
        let file = self.create_new()?;
        self.begun_new(file)
    }

    fn begun_new(self, file: File) -> io::Result<(File, PartialFile)> {
        let made = id(&fstat(&file)?);
        Ok((file, PartialFile::begin(self, PartPlace::New(made), Vec::new())))
    }

    /// Creates the file, which must not exist.
    ///
    /// # Errors
    /// The system's error.
    pub fn create_new(&self) -> io::Result<File> {
        self.create(&self.name, OFlag::O_EXCL)
    }

    /// Opens the existing file for reading.
    fn open(&self) -> io::Result<InputFile> {
        let name = self.name.as_os_str();
        let open = |flags: OFlag| openat(&self.folder, name, flags | OFlag::O_NOFOLLOW, Mode::empty());
        let (file, stat) = regular(&open, &self.path.display().to_string())?;
        let (path, real) = (self.path.clone(), real_path(&self.path));
        Ok(InputFile { content: Content::Disk(file, stat), path, real, remote: None })
    }

    /// Begins a file that gets its name when it is complete. Until then it lies beside its target
    /// as `.NAME.PID.part` (a long name is shortened) and is locked (`flock`), which distinguishes
    /// it from leftovers of dead processes.
    ///
    /// # Errors
    /// The system's error.
    pub fn begin(self) -> io::Result<(File, PartialFile)> {
        if self.read.find(&self.path).is_some() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the graph reads the same file"));
        }
        // The partial file's name is short enough in any case, so check now what would fail at the
        // end.
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
                    // A search for leftovers may hold the lock for a moment. Without locks in the
                    // file system, leftovers are not recognised, and nothing else is lost.
                    let _ = file.lock();
                    let left = self.left(&name);
                    return Ok((file, PartialFile::begin(self, PartPlace::Beside(name), left)));
                }
                // Process ids repeat, especially in containers.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Returns leftovers of earlier runs, and notes the partial file that was begun now.
    fn left(&self, begun: &OsStr) -> Vec<OsString> {
        let real = real_path(&self.path);
        let Some(folder) = real.parent() else { return Vec::new() };
        let left = self.partial.left_in(folder, &self.folder, &self.name);
        self.partial.note(folder, begun);
        left
    }
}

/// Flags for opening folders as a base of paths.
pub(super) const FOLDER: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// The files of this process that were begun and are not complete, and whether they lie under a
/// temporary name.
static UNFINISHED: Mutex<BTreeMap<PathBuf, bool>> = Mutex::new(BTreeMap::new());

fn all_unfinished() -> MutexGuard<'static, BTreeMap<PathBuf, bool>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the partial files of this process, for a message of a program that exits early.
pub fn unfinished() -> Vec<PathBuf> {
    all_unfinished().iter().filter(|(_, is_partial)| **is_partial).map(|(path, _)| path.clone()).collect()
}

/// Removes every file that this process has begun and not completed. Meant for a program whose only
/// run did not start: a node that hangs while it is built keeps its worker from discarding the
/// files of the nodes before it.
pub fn discard_unfinished() {
    // A file that cannot be removed stays in the list, for a message.
    all_unfinished().retain(|path, _| fs::remove_file(path).is_err());
}

/// Where a file lies until it is complete.
#[derive(Debug)]
enum PartPlace {
    /// Beside its target, under this name.
    Beside(OsString),
    /// Under its own name, and it did not exist before.
    New(Id),
    /// Under its own name, appended to.
    Existing,
}

/// A file that is being written: [`finish`](PartialFile::finish) keeps it,
/// [`discard`](PartialFile::discard) leaves everything as it was before. Dropped without either, it
/// stays where it is.
#[derive(Debug)]
pub struct PartialFile {
    target: Target,
    place: PartPlace,
    path: PathBuf,
    left: Vec<OsString>,
}

impl PartialFile {
    fn begin(target: Target, place: PartPlace, left: Vec<OsString>) -> Self {
        let path = match &place {
            PartPlace::Beside(name) => target.beside(name),
            PartPlace::New(_) | PartPlace::Existing => target.path.clone(),
        };
        if !matches!(place, PartPlace::Existing) {
            all_unfinished().insert(path.clone(), matches!(place, PartPlace::Beside(_)));
        }
        PartialFile { target, place, path, left }
    }

    /// Returns where the file lies until it is complete.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the leftovers of earlier runs of this file.
    pub fn left(&self) -> impl Iterator<Item = PathBuf> {
        self.left.iter().map(|name| self.target.beside(name))
    }

    /// Opens the file that has the target's name for reading.
    ///
    /// # Errors
    /// As [`InputFile::open`].
    pub fn open(&self) -> io::Result<InputFile> {
        self.target.open()
    }

    /// Gives the file its name, replacing an older file, and removes leftovers of earlier runs.
    ///
    /// # Errors
    /// The system's error, and where the partial file lies.
    pub fn finish(self) -> io::Result<()> {
        self.complete(false)
    }

    /// Gives the file its name as [`PartialFile::finish`] does, but keeps leftovers of earlier runs
    /// under other names (`kept_path`). An empty leftover is removed.
    ///
    /// # Errors
    /// As [`PartialFile::finish`].
    pub fn finish_keeping_left(self) -> io::Result<()> {
        self.complete(true)
    }

    fn complete(&self, keeps_left: bool) -> io::Result<()> {
        self.rename(keeps_left).map_err(|error| {
            let why = format!("{error} (the data is in {})", self.path.display());
            io::Error::new(error.kind(), why)
        })
    }

    fn rename(&self, keeps_left: bool) -> io::Result<()> {
        let Target { folder, name, .. } = &self.target;
        let PartPlace::Beside(temporary) = &self.place else {
            self.forget();
            return Ok(());
        };
        let renamed = renameat(folder, temporary.as_os_str(), folder, name.as_os_str());
        if matches!(renamed, Ok(()) | Err(Errno::ENOENT)) {
            self.forget();
        }
        renamed?;
        for left in self.left.iter().filter(|left| is_left(folder, left)) {
            let size = fstatat(folder, left.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW).map_or(0, |stat| stat.st_size);
            if keeps_left && size > 0 {
                // If its other name is taken, the leftover stays where it is.
                let kept = kept_name(name, left);
                let _ = renameat2(folder, left.as_os_str(), folder, kept.as_os_str(), RenameFlags::RENAME_NOREPLACE);
            } else {
                let _ = unlinkat(folder, left.as_os_str(), UnlinkatFlags::NoRemoveDir);
            }
        }
        Ok(())
    }

    /// Removes the file, unless it existed before.
    pub fn discard(self) {
        let name = match &self.place {
            PartPlace::Beside(name) => name,
            // A worker that hung may get here late, when the name has another file.
            PartPlace::New(made) if self.target.found() != Some(*made) => return self.forget(),
            PartPlace::New(_) => &self.target.name,
            PartPlace::Existing => return,
        };
        // If removing fails, nothing more can be done.
        let _ = unlinkat(&self.target.folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        self.forget();
    }

    fn forget(&self) {
        all_unfinished().remove(&self.path);
    }
}

/// Checks that a file could be created or replaced at a path, and creates nothing: the folder, or
/// the nearest one above it that exists, must be a folder that this process may write.
///
/// # Errors
/// The folder and the system's error.
pub fn check_creatable(path: &Path) -> Result<(), FileError> {
    let real = real_path(path);
    let is_missing = |folder: &&Path| folder.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound);
    let Some(folder) = real.ancestors().skip(1).find(|folder| !is_missing(folder)) else { return Ok(()) };
    let wrong = |error: Errno| FileError::System(folder.to_path_buf(), error.into());
    if !folder.is_dir() {
        return Err(wrong(Errno::ENOTDIR));
    }
    faccessat(AT_FDCWD, folder, AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS).map_err(wrong)
}

/// Checks that an existing file may be written, without opening it.
///
/// # Errors
/// The system's error.
pub fn check_writable(path: &Path) -> Result<(), FileError> {
    let allowed = faccessat(AT_FDCWD, path, AccessFlags::W_OK, AtFlags::AT_EACCESS);
    allowed.map_err(|error| FileError::System(path.to_path_buf(), error.into()))
}

/// Returns whether an open regular file has been deleted, so that written data is lost when it is
/// closed.
pub fn is_deleted(file: &impl AsFd) -> bool {
    fstat(file).is_ok_and(|stat| what(&stat).is_none() && stat.st_nlink == 0)
}

/// Makes a write beyond the file size limit (`ulimit -f`) an error of its node instead of ending
/// the process, for this thread and those it starts from now on. Workers do it by themselves.
pub fn outlive_size_limit() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    // With the signal blocked, the write fails with EFBIG. If blocking fails, nothing changes.
    let _ = signals.thread_block();
}

/// Replaces a file atomically. A link of that name is replaced, not followed.
///
/// # Errors
/// The system's error.
pub fn replace(folder: &Path, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
    replace_among(&PartialFiles::default(), folder, name.as_ref(), bytes)
}

/// Replaces files of a folder, each as [`replace`] does, until one fails. The folder is searched
/// for leftovers once.
///
/// # Errors
/// The name of the file that could not be replaced, and the system's error.
pub fn replace_all<'a>(
    folder: &Path,
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<(), (&'a str, io::Error)> {
    let partial = PartialFiles::default();
    let mut files = files.into_iter();
    files.try_for_each(|(name, bytes)| {
        replace_among(&partial, folder, name.as_ref(), bytes).map_err(|error| (name, error))
    })
}

fn replace_among(partial: &PartialFiles, folder: &Path, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let target = Target { partial: partial.clone(), ..Target::beneath(folder, name)? };
    let (mut file, part) = target.begin()?;
    let replaced = io::Write::write_all(&mut file, bytes).and_then(|()| part.rename(false));
    if replaced.is_err() {
        part.discard();
    }
    replaced
}
