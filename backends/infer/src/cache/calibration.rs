//! The time each backend takes for each model on this processor: measured once and kept beside the
//! compiled models. From then on `backend: auto` ranks the backends by it.

use super::entry::CacheKey;
use limen::files;
use limen::node::Connected;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Nanoseconds per item, by model, backend and items per call.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Calibration(BTreeMap<String, u64>);

/// What a time depends on, besides the processor, the backend and its version: the model, its
/// inputs' shapes, its threads, its batch, and the options of its calls.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    model: String,
    batch: usize,
}

impl Measured {
    /// A model with this checksum, connected to `given`, on `threads` threads, in calls of `batch`
    /// items, with these other options.
    pub(crate) fn new(sums: &str, given: &Connected, threads: usize, batch: usize, options: &str) -> Self {
        let mut model = format!("{sums} {threads} threads {options}");
        for (_, spec) in given.inputs() {
            model.push_str(&spec.map_or_else(|| " ?".to_string(), |spec| format!(" {spec}")));
        }
        Measured { model, batch }
    }

    fn key(&self, backend: &str, version: &str, batch: usize) -> String {
        format!("{} {backend} ({version}) {batch}", self.model)
    }
}

/// A longer file is not a table that this program wrote.
const MAX_BYTES: u64 = 16 << 20;

fn name() -> String {
    format!("{}.json", CacheKey::of(&["calibration"]).name())
}

fn path(folder: &Path) -> PathBuf {
    folder.join(name())
}

impl Calibration {
    /// Reads the table of this processor. It is empty if there is none or it cannot be read: times
    /// can be measured again.
    pub(crate) fn read(folder: &Path) -> Self {
        let text = files::read(path(folder), MAX_BYTES).unwrap_or_default();
        Calibration(serde_json::from_slice(&text).unwrap_or_default())
    }

    pub(crate) fn get(&self, of: &Measured, backend: &str, version: &str) -> Option<u64> {
        self.0.get(&of.key(backend, version, of.batch)).copied()
    }

    /// Returns the time of a call with one item.
    pub(crate) fn alone(&self, of: &Measured, backend: &str, version: &str) -> Option<u64> {
        self.0.get(&of.key(backend, version, 1)).copied()
    }

    /// Sets the time per item in a call with one item and in a full batch.
    pub(crate) fn set(&mut self, of: &Measured, backend: &str, version: &str, [alone, together]: [u64; 2]) {
        self.0.insert(of.key(backend, version, 1), alone);
        self.0.insert(of.key(backend, version, of.batch), together);
    }

    /// Writes the table to a temporary file and renames it into place.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        files::replace(folder, name(), serde_json::to_string_pretty(&self.0)?.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_times_are_read_back_for_the_same_model_and_call_only() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Calibration::read(folder.path()), Calibration::default());
        let given = Connected::default();
        let of = |model: &str, threads, batch| Measured::new(model, &given, threads, batch, "");
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
            (Measured::new("model", &given, 1, 8, "guard"), "ort", "1.22", None),
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
