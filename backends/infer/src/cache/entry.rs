//! Cached compiled models and trial results, so that a second start compiles and tries nothing.
//!
//! An entry is a file named by the hash of what it was made from: the model's content, the runtime
//! and its version and build, the device, which is the processor (a processor has no driver), and
//! this crate's version. It is written to a temporary file and renamed into place. Its checksum is
//! verified when it is read: an entry that is truncated, changed or made from something else is
//! compiled again, with a warning.

use crate::base::sha256;
use limen::files::PrivateBytes;
use limen::files::{self, Target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first line of an entry; the number is the version of the layout.
const MAGIC: &str = "limen cache 1";

/// Larger files are not read: this program does not write such entries.
pub(crate) const MAX_BYTES: u64 = 4 << 30;

/// The name and the extension of an entry's file: a hash of what the entry was made from, and the
/// type of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey(String, &'static str);

impl CacheKey {
    /// The key of a compiled model, from everything it depends on, in order.
    pub fn of(parts: &[&str]) -> Self {
        CacheKey::made_by(env!("CARGO_PKG_VERSION"), processor(), parts)
    }

    fn made_by(version: &str, processor: &str, parts: &[&str]) -> Self {
        let mut all = format!("{MAGIC}\n");
        for part in [version, processor].iter().chain(parts) {
            // With lengths, so that different lists of parts never give the same text.
            all.push_str(&format!("{} {part}\n", part.len()));
        }
        CacheKey(sha256(all.as_bytes()), "limen")
    }

    /// The key of a trial's result.
    pub(crate) fn of_trial(parts: &[&str]) -> Self {
        CacheKey(CacheKey::of(parts).0, "trial")
    }

    /// The key of pipelines that a driver compiled.
    pub fn of_pipelines(parts: &[&str]) -> Self {
        CacheKey(CacheKey::of(parts).0, "pipelines")
    }

    /// The key of kernels that NVIDIA's compiler made.
    pub fn of_cubin(parts: &[&str]) -> Self {
        CacheKey(CacheKey::of(parts).0, "cubin")
    }

    /// Returns the key as a file name without extension.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.{}", self.0, self.1))
    }
}

/// What `/proc/cpuinfo` says of a processor's make and features: on x86-64, then on Arm, then on
/// RISC-V.
const ABOUT: [&str; 12] = [
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "flags",
    "CPU implementer",
    "CPU variant",
    "CPU part",
    "CPU revision",
    "Features",
    "isa",
];

/// Returns the processor's name and features: code is compiled for these.
fn processor() -> &'static str {
    static PROCESSOR: OnceLock<String> = OnceLock::new();
    PROCESSOR.get_or_init(|| {
        let text = files::system_text("/proc/cpuinfo").unwrap_or_default();
        format!("{} {}", std::env::consts::ARCH, processors_in(&text))
    })
}

/// Returns the lines about make and features, each once: the cores of an Arm processor may differ.
fn processors_in(cpuinfo: &str) -> String {
    let is_about = |line: &&str| line.split_once(':').is_some_and(|(field, _)| ABOUT.contains(&field.trim()));
    let lines: BTreeSet<&str> = cpuinfo.lines().filter(is_about).collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

/// The result of a look-up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CacheLookup {
    /// The payload of the entry.
    Entry(Vec<u8>),
    /// There is no entry.
    Nothing,
    /// There is an entry that cannot be used, and why.
    Damaged(String),
}

pub(crate) fn read(folder: &Path, key: &CacheKey) -> CacheLookup {
    let path = key.path(folder);
    let bytes = match files::read(&path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return CacheLookup::Nothing,
        Err(error) => return CacheLookup::Damaged(format!("`{}` cannot be read: {error}", path.display())),
    };
    match payload(&bytes, key) {
        Ok(payload) => CacheLookup::Entry(payload.to_vec()),
        Err(why) => CacheLookup::Damaged(format!("`{}` {why}", path.display())),
    }
}

/// Returns the payload of an entry.
fn payload<'a>(bytes: &'a [u8], key: &CacheKey) -> Result<&'a [u8], &'static str> {
    let mut lines = bytes.splitn(4, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (magic, made_for, sum, payload) = (line(), line(), line(), line());
    if magic != MAGIC.as_bytes() {
        return Err("is not a cache file of this version");
    }
    if made_for != key.0.as_bytes() {
        return Err("was written for another cache key");
    }
    if sum != sha256(payload).as_bytes() {
        return Err("is truncated or changed");
    }
    Ok(payload)
}

/// The result of a look-up of what is run as compiled code.
#[derive(Debug)]
pub enum Kept {
    /// The payload of the entry.
    Entry(PrivateBytes),
    /// There is no entry.
    Nothing,
    /// There is an entry that cannot be used, and why.
    Unusable(String),
}

/// Reads an entry that only the user of this process can have written.
pub fn read_private(folder: &Path, key: &CacheKey) -> Kept {
    let path = key.path(folder);
    let bytes = match PrivateBytes::read(&path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Kept::Nothing,
        Err(error) => return Kept::Unusable(format!("`{}` cannot be read: {error}", path.display())),
    };
    match payload(&bytes, key).map(<[u8]>::len) {
        Ok(len) => {
            let head = bytes.len() - len;
            Kept::Entry(bytes.skip(head))
        }
        Err(why) => Kept::Unusable(format!("`{}` {why}", path.display())),
    }
}

/// As [`write`], for [`read_private`].
///
/// # Errors
/// The system's error.
pub fn write_private(folder: &Path, key: &CacheKey, payload: &[u8]) -> std::io::Result<()> {
    write_with(folder, key, payload, |file| file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)))
}

/// Writes an entry to a temporary file and renames it into place, so that readers never see a
/// partial one.
///
/// # Errors
/// The system's error.
pub(crate) fn write(folder: &Path, key: &CacheKey, payload: &[u8]) -> std::io::Result<()> {
    write_with(folder, key, payload, |_| Ok(()))
}

fn write_with(
    folder: &Path,
    key: &CacheKey,
    payload: &[u8],
    begin: impl FnOnce(&fs::File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let (mut file, part) = Target::beneath(folder, format!("{}.{}", key.0, key.1))?.begin()?;
    let head = format!("{MAGIC}\n{}\n{}\n", key.0, sha256(payload));
    let written = begin(&file)
        .and_then(|()| file.write_all(head.as_bytes()))
        .and_then(|()| file.write_all(payload))
        .and_then(|()| file.sync_all());
    match written {
        Ok(()) => part.finish(),
        Err(error) => {
            part.discard();
            Err(error)
        }
    }
}

/// Creates a temporary file in `folder`, which is created if it is missing, and returns its path.
///
/// # Errors
/// The system's error.
pub(crate) fn room(folder: &Path) -> std::io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let room = beside(folder);
    Target::beneath(folder, room.file_name().unwrap_or_default())?.create_new()?;
    Ok(room)
}

/// Returns a path that no other process or thread uses.
fn beside(folder: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    folder.join(format!("new-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// Counts of compilations and cache hits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compiled {
    /// Models compiled.
    pub compiled: u64,
    /// Time spent compiling, ns.
    pub compile_ns: u64,
    /// Compiled models reused from memory.
    pub hits: u64,
    /// Compiled models read from disk.
    pub from_disk: u64,
    /// Compiled models dropped from memory to make room.
    pub evicted: u64,
    /// Entries on disk that could not be used or written, one message each.
    pub warnings: Vec<String>,
}

impl Compiled {
    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Compiled) {
        self.compiled += other.compiled;
        self.compile_ns += other.compile_ns;
        self.hits += other.hits;
        self.from_disk += other.from_disk;
        self.evicted += other.evicted;
        self.warnings.extend(other.warnings.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_changes_with_each_of_its_parts() {
        let key = |version, processor, parts: &[&str]| CacheKey::made_by(version, processor, parts);
        let usual = key("0.1.0", "x86_64", &["model", "ort", "build 1"]);
        assert_eq!(usual, key("0.1.0", "x86_64", &["model", "ort", "build 1"]));
        for other in [
            key("0.1.1", "x86_64", &["model", "ort", "build 1"]),
            key("0.1.0", "aarch64", &["model", "ort", "build 1"]),
            key("0.1.0", "x86_64", &["other", "ort", "build 1"]),
            key("0.1.0", "x86_64", &["model", "rten", "build 1"]),
            key("0.1.0", "x86_64", &["model", "ort", "build 2"]),
            key("0.1.0", "x86_64", &["model", "ort"]),
        ] {
            assert_ne!(usual, other);
        }
    }

    #[test]
    fn a_processor_is_known_by_the_make_and_features_of_all_its_cores() {
        let of = |text: &str| processors_in(text);
        let intel = "processor : 0\nmodel : 85\nmodel name : Xeon\nflags : sse avx\ncpu MHz : 2000\n";
        assert_eq!(of(intel), "flags : sse avx\nmodel : 85\nmodel name : Xeon");
        assert_eq!(of(intel), of(&intel.repeat(2).replace("processor : 0", "processor : 1").replace("2000", "1999")));
        assert_ne!(of(intel), of(&intel.replace("avx", "avx avx2")));
        // The big and the little cores of an Arm processor, which has no name there.
        let arm = |part: &str| format!("processor : 0\nFeatures : fp asimd\nCPU part : {part}\n");
        assert_ne!(of(&arm("0xd05")), of(&arm("0xd0b")));
        assert_eq!(of(&(arm("0xd05") + &arm("0xd0b"))), of(&(arm("0xd0b") + &arm("0xd05"))));
        assert!(!processor().is_empty());
    }

    #[test]
    fn an_entry_is_read_back_and_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (key, other) = (CacheKey::of(&["model", "ort"]), CacheKey::of(&["mode", "lort"]));
        assert_ne!(key, other);
        assert_eq!(read(folder, &key), CacheLookup::Nothing);
        let payload = b"any\nbytes\n\0";
        write(folder, &key, payload).unwrap();
        assert_eq!(read(folder, &key), CacheLookup::Entry(payload.to_vec()));
        write(folder, &key, payload).unwrap();
        let names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [key.path(folder)], "nothing is left beside it");

        let whole = fs::read(key.path(folder)).unwrap();
        for cut in 0..whole.len() {
            fs::write(key.path(folder), &whole[..cut]).unwrap();
            assert!(matches!(read(folder, &key), CacheLookup::Damaged(_)), "{cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(key.path(folder), &changed).unwrap();
            assert!(matches!(read(folder, &key), CacheLookup::Damaged(_)), "{at}");
        }
        let room = room(&folder.join("made/now")).unwrap();
        assert!(room.is_file());
        assert!(super::room(&room).is_err(), "a file is not a folder");
        fs::write(other.path(folder), &whole).unwrap();
        let CacheLookup::Damaged(why) = read(folder, &other) else { panic!("the entry of another key was accepted") };
        assert!(why.ends_with("was written for another cache key"), "{why}");
    }
}
