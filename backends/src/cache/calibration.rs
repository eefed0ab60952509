//! How long each backend takes for each model on this processor: measured once, kept beside the compiled models, and what
//! `backend: auto` goes by from then on.

use super::entry::Key;
use limen::files;
use limen::node::Connected;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Measures every backend on every model that is planned from now on, and keeps what was found in the folder of
/// [`cache_in`](crate::cache_in).
pub fn calibrate() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Whether that was asked for.
pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Nanoseconds an item, by model, backend and items in a call.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Calibration(BTreeMap<String, u64>);

/// What a time depends on, besides the backend and its version: the model, what is connected to it, and how it is called.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    model: String,
    batch: usize,
}

impl Measured {
    /// A model with this checksum, of inputs of these shapes, on so many threads, in calls of so many items.
    pub(crate) fn new(sha256: &str, given: &Connected, threads: usize, batch: usize) -> Self {
        let mut model = format!("{sha256} {threads} threads");
        for (_, spec) in given.inputs() {
            model.push_str(&spec.map_or_else(|| " ?".to_string(), |spec| format!(" {spec}")));
        }
        Measured { model, batch }
    }

    fn key(&self, backend: &str, version: &str, batch: usize) -> String {
        format!("{} {backend} ({version}) {batch}", self.model)
    }
}

/// A longer table is none of ours.
const MAX_BYTES: u64 = 16 << 20;

fn name() -> String {
    format!("{}.json", Key::of(&["calibration"]).name())
}

fn path(folder: &Path) -> PathBuf {
    folder.join(name())
}

impl Calibration {
    /// What was found on this processor; nothing where there is no table or it cannot be read: it is only a measurement.
    pub(crate) fn read(folder: &Path) -> Self {
        let text = files::read(path(folder), MAX_BYTES).unwrap_or_default();
        Calibration(serde_json::from_slice(&text).unwrap_or_default())
    }

    pub(crate) fn get(&self, of: &Measured, backend: &str, version: &str) -> Option<u64> {
        self.0.get(&of.key(backend, version, of.batch)).copied()
    }

    /// How long a call with one item takes.
    pub(crate) fn alone(&self, of: &Measured, backend: &str, version: &str) -> Option<u64> {
        self.0.get(&of.key(backend, version, 1)).copied()
    }

    /// Keeps how long an item takes alone, and in a batch.
    pub(crate) fn set(&mut self, of: &Measured, backend: &str, version: &str, [alone, together]: [u64; 2]) {
        self.0.insert(of.key(backend, version, 1), alone);
        self.0.insert(of.key(backend, version, of.batch), together);
    }

    /// Writes the table beside its place and moves it there.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        files::replace(folder, name(), serde_json::to_string_pretty(&self.0)?.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Calibration::read(folder.path()), Calibration::default());
        let given = Connected::default();
        let of = |model: &str, threads, batch| Measured::new(model, &given, threads, batch);
        let mut table = Calibration::default();
        table.set(&of("model", 1, 8), "ort", "1.22", [30, 17]);
        table.write(folder.path()).unwrap();
        let read = Calibration::read(folder.path());
        for (of, backend, version, expected) in [
            (of("model", 1, 8), "ort", "1.22", Some(17)),
            (of("model", 1, 1), "ort", "1.22", Some(30)),
            (of("model", 1, 4), "ort", "1.22", None),
            (of("other", 1, 8), "ort", "1.22", None),
            (of("model", 2, 8), "ort", "1.22", None),
            (of("model", 1, 8), "ort", "1.23", None),
            (of("model", 1, 8), "rten", "1.22", None),
        ] {
            assert_eq!(read.get(&of, backend, version), expected, "{of:?} {backend} {version}");
        }
        assert_eq!(read.alone(&of("model", 1, 8), "ort", "1.22"), Some(30));
        fs::write(path(folder.path()), "{").unwrap();
        assert_eq!(Calibration::read(folder.path()), Calibration::default());
    }
}
