//! How long each backend takes for each model on this processor: measured once, kept beside the compiled models, and what
//! `backend: auto` goes by from then on.

use crate::cache;
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

fn path(folder: &Path) -> PathBuf {
    folder.join(format!("{}.json", cache::Key::of(&["calibration"]).name()))
}

fn key(model: &str, backend: &str, batch: usize) -> String {
    format!("{model} {backend} {batch}")
}

impl Calibration {
    /// What was found on this processor; nothing where there is no table or it cannot be read: it is only a measurement.
    pub(crate) fn read(folder: &Path) -> Self {
        let text = fs::read_to_string(path(folder)).unwrap_or_default();
        Calibration(serde_json::from_str(&text).unwrap_or_default())
    }

    pub(crate) fn get(&self, model: &str, backend: &str, batch: usize) -> Option<u64> {
        self.0.get(&key(model, backend, batch)).copied()
    }

    pub(crate) fn set(&mut self, model: &str, backend: &str, batch: usize, ns: u64) {
        self.0.insert(key(model, backend, batch), ns);
    }

    /// Writes the table beside its place and moves it there.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let beside = cache::beside(folder);
        fs::write(&beside, serde_json::to_string_pretty(&self.0)?)?;
        fs::rename(&beside, path(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Calibration::read(folder.path()), Calibration::default());
        let mut table = Calibration::default();
        table.set("model", "ort", 8, 17);
        table.write(folder.path()).unwrap();
        let read = Calibration::read(folder.path());
        assert_eq!(
            (read.get("model", "ort", 8), read.get("model", "ort", 1), read.get("other", "ort", 8)),
            (Some(17), None, None)
        );
        fs::write(path(folder.path()), "{").unwrap();
        assert_eq!(Calibration::read(folder.path()), Calibration::default());
    }
}
