//! Compiled models on disk, and what trials of models found, so that a second start compiles and tries nothing.
//!
//! An entry is a file named for what it was made from: the model's content, the runtime and its version, the processor, and
//! this crate's version. It is written beside its place and moved there, and its own checksum is compared when it is read: what was cut
//! short, changed or made by something else is compiled again and said so.

use crate::base::sha256;
use limen::files::{self, Target};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
#[cfg(any(feature = "ort", test))]
use std::sync::atomic::{AtomicU64, Ordering};

/// What an entry begins with; the number is that of the layout.
const MAGIC: &str = "limen cache 1";

/// Larger entries were not made here.
pub(crate) const MAX_BYTES: u64 = 4 << 30;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Keeps compiled models, and what [trials](crate::trial) of models found, in a folder, which is made when the first is written. Call it before anything is planned; what is said
/// later is not heard.
pub fn cache_in(folder: impl Into<PathBuf>) {
    let _ = FOLDER.set(folder.into());
}

/// Where compiled models are kept, if they are.
pub(crate) fn folder() -> Option<&'static Path> {
    FOLDER.get().map(PathBuf::as_path)
}

/// What a compiled model was made from, or what was tried, and so its name; and how its file's name ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String, &'static str);

impl Key {
    /// Of everything that the result depends on, in order.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let mut all = format!("{MAGIC}\n{}\n{}\n", env!("CARGO_PKG_VERSION"), processor());
        for part in parts {
            // With lengths, so that no two lists of parts read the same.
            all.push_str(&format!("{} {part}\n", part.len()));
        }
        Key(sha256(all.as_bytes()), "limen")
    }

    /// The same, of what a trial found.
    pub(crate) fn of_trial(parts: &[&str]) -> Self {
        Key(Key::of(parts).0, "trial")
    }

    /// The key as the name of a file.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.{}", self.0, self.1))
    }
}

/// The processor's name and what it can do: code is compiled for these.
fn processor() -> String {
    let text = files::system_text("/proc/cpuinfo").unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with("model name") || line.starts_with("flags"));
    format!("{} {}", std::env::consts::ARCH, lines.take(2).collect::<Vec<_>>().join("\n"))
}

/// What was found under a key: a compiled model, or what came of a trial.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The compiled model.
    Entry(Vec<u8>),
    /// Nothing.
    Nothing,
    /// Something that cannot be used, and why.
    Damaged(String),
}

pub(crate) fn read(folder: &Path, key: &Key) -> Found {
    let path = key.path(folder);
    let bytes = match files::read(&path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Found::Nothing,
        Err(error) => return Found::Damaged(format!("{}: {error}", path.display())),
    };
    let damaged = |why: &str| Found::Damaged(format!("{}: {why}", path.display()));
    let mut lines = bytes.splitn(4, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (magic, made_for, sum, payload) = (line(), line(), line(), line());
    if magic != MAGIC.as_bytes() {
        return damaged("is no compiled model, or of another version");
    }
    if made_for != key.0.as_bytes() {
        return damaged("was made from something else");
    }
    if sum != sha256(payload).as_bytes() {
        return damaged("is cut short or changed");
    }
    Found::Entry(payload.to_vec())
}

/// Writes an entry beside its place and moves it there, so that nobody ever sees half of one.
///
/// # Errors
/// What the system said.
pub(crate) fn write(folder: &Path, key: &Key, payload: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let (mut file, part) = Target::beneath(folder, format!("{}.{}", key.0, key.1))?.begin()?;
    let head = format!("{MAGIC}\n{}\n{}\n", key.0, sha256(payload));
    let written = file.write_all(head.as_bytes()).and_then(|()| file.write_all(payload)).and_then(|()| file.sync_all());
    match written {
        Ok(()) => part.finish(),
        Err(error) => {
            part.discard();
            Err(error)
        }
    }
}

/// A file of its own for what is being made, in a folder that is there now and can be written to.
///
/// # Errors
/// What the system said.
#[cfg(any(feature = "ort", test))]
pub(crate) fn room(folder: &Path) -> std::io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let room = beside(folder);
    Target::beneath(folder, room.file_name().unwrap_or_default())?.create_new()?;
    Ok(room)
}

/// A name that no other process or thread uses.
#[cfg(any(feature = "ort", test))]
fn beside(folder: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    folder.join(format!("new-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// What compiling came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compiled {
    /// Models compiled.
    pub compiled: u64,
    /// What that took, ns.
    pub compile_ns: u64,
    /// Taken from memory.
    pub hits: u64,
    /// Taken from disk.
    pub from_disk: u64,
    /// Put out of memory for others.
    pub evicted: u64,
    /// What was found on disk and could not be used, or could not be written there: sentences.
    pub warnings: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (key, other) = (Key::of(&["model", "ort"]), Key::of(&["mode", "lort"]));
        assert_ne!(key, other);
        assert_eq!(read(folder, &key), Found::Nothing);
        let payload = b"any\nbytes\n\0";
        write(folder, &key, payload).unwrap();
        assert_eq!(read(folder, &key), Found::Entry(payload.to_vec()));
        write(folder, &key, payload).unwrap();
        let names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [key.path(folder)], "nothing is left beside it");

        let whole = fs::read(key.path(folder)).unwrap();
        for cut in 0..whole.len() {
            fs::write(key.path(folder), &whole[..cut]).unwrap();
            assert!(matches!(read(folder, &key), Found::Damaged(_)), "{cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(key.path(folder), &changed).unwrap();
            assert!(matches!(read(folder, &key), Found::Damaged(_)), "{at}");
        }
        let room = room(&folder.join("made/now")).unwrap();
        assert!(room.is_file());
        assert!(super::room(&room).is_err(), "a file is no folder");
        fs::write(other.path(folder), &whole).unwrap();
        let Found::Damaged(why) = read(folder, &other) else { panic!("another's entry was taken") };
        assert!(why.ends_with("was made from something else"), "{why}");
    }
}
