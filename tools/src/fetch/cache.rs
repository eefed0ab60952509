//! The folder of fetched files. A file is named by its SHA-256. Until it is complete, it is named
//! by the URL that it comes from, and is locked by the process that fetches it.

use super::lock::LockedFile;
use limen::files::{self, InputFile, Target, read_up_to};
use limen_infer::internal::{sha256, sha256_of};
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How many processes at once may fetch the same URL.
const MAX_PARTS: usize = 16;
/// The longest entity tag that is kept.
const MAX_TAG: u64 = 512;
/// What is read at once.
const PIECE: usize = 64 << 10;

/// Returns the folder for fetched files below a cache, by default below the user's.
pub(super) fn fetched_folder(cache: Option<&Path>) -> Result<PathBuf, String> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.map(Path::to_path_buf).or_else(|| {
        let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        Some(caches?.join("limen"))
    });
    let cache = cache.ok_or("the folder for caches is unknown: add `--cache DIR`, or set HOME")?;
    Ok(cache.join("fetched"))
}

/// The folder of fetched files.
#[derive(Debug)]
pub(super) struct FetchCache {
    folder: PathBuf,
}

/// What [`FetchCache::evict`] did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Eviction {
    /// Removed files.
    pub(super) files: usize,
    /// Bytes of all files that are left.
    pub(super) left: u64,
}

impl FetchCache {
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(FetchCache { folder })
    }

    /// Returns the path of a whole file.
    pub(super) fn path_in(folder: &Path, sha256: &str) -> PathBuf {
        folder.join(sha256)
    }

    pub(super) fn path(&self, sha256: &str) -> PathBuf {
        FetchCache::path_in(&self.folder, sha256)
    }

    /// Returns whether a file is there and has the size and the checksum of the lock.
    pub(super) fn has(&self, locked: &LockedFile) -> bool {
        let Ok(mut file) = InputFile::open(self.path(&locked.sha256)) else { return false };
        if file.size() != locked.size {
            return false;
        }
        // A file can grow while it is read.
        let sum = sha256_of(&mut Read::by_ref(&mut file).take(locked.size.saturating_add(1)));
        sum.is_ok_and(|sum| sum == locked.sha256)
    }

    /// Notes that a file is used now; it is evicted after all that were used before.
    pub(super) fn touch(&self, sha256: &str) {
        let (path, now) = (self.path(sha256), TimeSpec::UTIME_NOW);
        // The order of eviction is all that depends on it.
        let _ = utimensat(AT_FDCWD, &path, &now, &now, UtimensatFlags::NoFollowSymlink);
    }

    /// Opens the incomplete file of a URL, which this process alone writes until it is dropped.
    pub(super) fn begin(&self, url: &str) -> io::Result<Part> {
        let url = sha256(url.as_bytes());
        let mut number = 0;
        while number < MAX_PARTS {
            let name = format!(".{url}.{number}.part");
            let (file, _) = Target::beneath(&self.folder, &name)?.append()?;
            if file.try_lock().is_err() {
                number += 1;
                continue;
            }
            let path = self.folder.join(&name);
            // Another process may have completed it between the two calls above.
            let (held, named) = (file.metadata()?, fs::symlink_metadata(&path));
            if named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())) {
                return Part::open(file, path);
            }
        }
        Err(io::Error::new(ErrorKind::ResourceBusy, format!("{MAX_PARTS} other processes fetch the same file")))
    }

    /// Gives a complete file its name.
    pub(super) fn finish(&self, part: Part, sha256: &str) -> io::Result<()> {
        part.file.sync_all()?;
        fs::rename(&part.path, self.path(sha256))?;
        part.forget_tag();
        Ok(())
    }

    /// Removes the least recently used files until all together have at most so many bytes. Keeps
    /// those with the checksums in `kept`, and those that a process is fetching.
    pub(super) fn evict(&self, kept: &BTreeSet<String>, most: u64) -> io::Result<Eviction> {
        let mut found: Vec<(SystemTime, u64, String)> = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let (Ok(name), about) = (entry.file_name().into_string(), entry.metadata()?) else { continue };
            if about.is_file() {
                found.push((about.modified()?, about.len(), name));
            }
        }
        found.sort();
        let mut eviction = Eviction { files: 0, left: found.iter().map(|(_, size, _)| size).sum() };
        for (_, size, name) in found {
            if eviction.left <= most {
                break;
            }
            let is_sum = name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
            let path = self.folder.join(&name);
            if (is_sum && !kept.contains(&name)) || (name.ends_with(".part") && self.is_left(&name)) {
                fs::remove_file(&path)?;
                let _ = fs::remove_file(path.with_extension("tag"));
                eviction = Eviction { files: eviction.files + 1, left: eviction.left - size };
            }
        }
        Ok(eviction)
    }

    /// Returns whether no process writes an incomplete file.
    fn is_left(&self, name: &str) -> bool {
        let opened = Target::beneath(&self.folder, name).and_then(Target::append);
        opened.is_ok_and(|(file, _)| file.try_lock().is_ok())
    }
}

/// An incomplete file: its bytes so far, their checksum, and the server's tag of this version.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: PathBuf,
    sum: Sha256,
    len: u64,
    tag: Option<String>,
    /// Whether bytes of an earlier answer are part of it.
    is_resumed: bool,
}

impl Part {
    fn open(file: File, path: PathBuf) -> io::Result<Self> {
        let mut part = Part { file, path, sum: Sha256::new(), len: 0, tag: None, is_resumed: false };
        part.tag = files::read(part.tag_path(), MAX_TAG).ok().and_then(|tag| String::from_utf8(tag).ok());
        if part.tag.is_none() {
            part.restart()?;
            return Ok(part);
        }
        let (mut there, mut piece) = (InputFile::open(&part.path)?, vec![0; PIECE]);
        loop {
            match read_up_to(&mut there, &mut piece)? {
                0 => break,
                read => {
                    part.sum.update(&piece[..read]);
                    part.len += read as u64;
                }
            }
        }
        Ok(part)
    }

    fn tag_path(&self) -> PathBuf {
        self.path.with_extension("tag")
    }

    fn forget_tag(&self) {
        // Without it, the next process begins again.
        let _ = fs::remove_file(self.tag_path());
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Returns the tag for going on with this file, if it has bytes and the server said one.
    pub(super) fn tag(&self) -> Option<&str> {
        self.tag.as_deref().filter(|_| self.len > 0)
    }

    /// Notes that an answer goes on where the file ends.
    pub(super) fn resume(&mut self) {
        self.is_resumed = true;
    }

    /// Drops all bytes.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.forget_tag();
        self.file.set_len(0)?;
        (self.sum, self.len, self.tag, self.is_resumed) = (Sha256::new(), 0, None, false);
        Ok(())
    }

    /// Keeps the tag of an answer that begins the file. Weak tags do not promise the same bytes.
    pub(super) fn set_tag(&mut self, tag: Option<&str>) {
        let strong = tag.filter(|tag| tag.starts_with('"') && tag.len() as u64 <= MAX_TAG);
        let path = self.tag_path();
        if let (Some(tag), Some(folder), Some(name)) = (strong, path.parent(), path.file_name())
            && files::replace(folder, name, tag.as_bytes()).is_ok()
        {
            self.tag = Some(tag.to_string());
        }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.sum.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Returns the checksum of all bytes.
    pub(super) fn sha256(&self) -> String {
        self.sum.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(cache: &FetchCache, content: &str, age: u64) -> String {
        let mut part = cache.begin(content).unwrap();
        part.append(content.as_bytes()).unwrap();
        let sum = part.sha256();
        cache.finish(part, &sum).unwrap();
        let file = File::options().append(true).open(cache.path(&sum)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 - age)).unwrap();
        sum
    }

    #[test]
    fn the_least_recently_used_files_are_evicted_but_not_those_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let cache = FetchCache::open(folder.path().join("fetched")).unwrap();
        let [oldest, older, newer, newest] =
            [("oldest", 4), ("older", 3), ("newer", 2), ("newest", 1)].map(|(name, age)| file(&cache, name, age));
        let names = || fs::read_dir(folder.path().join("fetched")).unwrap().count();
        let kept = BTreeSet::from([oldest.clone()]);
        assert_eq!(cache.evict(&kept, 22).unwrap(), Eviction { files: 0, left: 22 });
        assert_eq!(cache.evict(&kept, 21).unwrap(), Eviction { files: 1, left: 17 });
        assert!(!cache.path(&older).exists());
        cache.touch(&newer);
        assert_eq!(cache.evict(&kept, 12).unwrap(), Eviction { files: 1, left: 11 });
        assert!(!cache.path(&newest).exists() && cache.path(&newer).exists());
        // What a process fetches stays; what a process left does not.
        let mut fetching = cache.begin("url").unwrap();
        fetching.append(b"0123456789").unwrap();
        assert_eq!(cache.evict(&kept, 0).unwrap(), Eviction { files: 1, left: 16 });
        drop(fetching);
        assert_eq!(cache.evict(&kept, 0).unwrap(), Eviction { files: 1, left: 6 });
        assert!(cache.path(&oldest).exists() && names() == 1);
    }

    #[test]
    fn two_processes_fetch_the_same_file_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| FetchCache::open(folder.path().to_path_buf()).unwrap());
        let (mut first, mut second) = (one.begin("url").unwrap(), other.begin("url").unwrap());
        assert_ne!(first.path, second.path);
        first.append(b"same").unwrap();
        second.append(b"same").unwrap();
        let sum = first.sha256();
        one.finish(first, &sum).unwrap();
        other.finish(second, &sum).unwrap();
        let locked = LockedFile { sha256: sum.clone(), size: 4, revision: None };
        assert!(one.has(&locked) && fs::read_dir(folder.path()).unwrap().count() == 1);
        fs::write(one.path(&sum), "sane").unwrap();
        assert!(!one.has(&locked));
    }

    #[test]
    fn a_file_is_resumed_only_with_a_strong_tag() {
        let folder = tempfile::tempdir().unwrap();
        let cache = FetchCache::open(folder.path().to_path_buf()).unwrap();
        for (tag, expected) in [(Some("\"v1\""), 5), (Some("W/\"v1\""), 0), (None, 0)] {
            let mut part = cache.begin("url").unwrap();
            part.restart().unwrap();
            part.set_tag(tag);
            part.append(b"01234").unwrap();
            drop(part);
            let again = cache.begin("url").unwrap();
            assert_eq!((again.len(), again.tag().is_some()), (expected, expected > 0), "{tag:?}");
            assert_eq!(again.sha256(), sha256(&b"01234"[..expected as usize]));
        }
    }
}
