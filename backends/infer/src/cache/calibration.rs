//! The time each backend takes for each model on this processor: measured once and kept beside the
//! compiled models. From then on `backend: auto` ranks the backends by it.

use super::entry::CacheKey;
use limen::files;
use limen::node::Connected;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Times by model, backend and items per call.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Calibration(BTreeMap<String, MeasuredTime>);

/// What `calibrate` found for calls of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum MeasuredTime {
    /// Nanoseconds per item.
    Ns(u64),
    /// The outputs differ from those of a backend on the CPU, and how.
    Differs(String),
}

/// What `calibrate` found for a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Measurement {
    /// Nanoseconds per item in a call with one item and in a full batch.
    Times([u64; 2]),
    /// The outputs differ from those of a backend on the CPU, and how.
    Differs(String),
}

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
        format!("{}{version}) {batch}", self.prefix(backend))
    }

    /// The beginning of the keys of a backend, whichever version it has.
    fn prefix(&self, backend: &str) -> String {
        format!("{}{}", self.model, named(backend))
    }
}

/// The part of a key with the name of a backend.
fn named(backend: &str) -> String {
    format!(" {backend} (")
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

    /// Whether any model was measured with a backend.
    pub(crate) fn has_any(&self, backend: &str) -> bool {
        let name = named(backend);
        self.0.keys().any(|key| key.contains(&name))
    }

    /// Whether a model was measured with a backend, of any version.
    pub(crate) fn has(&self, of: &Measured, backend: &str) -> bool {
        let prefix = of.prefix(backend);
        self.0.range(prefix.clone()..).next().is_some_and(|(key, _)| key.starts_with(&prefix))
    }

    pub(crate) fn get(&self, of: &Measured, backend: &str, version: &str) -> Option<&MeasuredTime> {
        self.0.get(&of.key(backend, version, of.batch))
    }

    /// Returns the least time per item that was measured with a backend, of any version, ns.
    pub(crate) fn least(&self, of: &Measured, backend: &str) -> Option<u64> {
        let (prefix, end) = (of.prefix(backend), format!(") {}", of.batch));
        let own = self.0.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let times = own.filter(|(key, _)| key.ends_with(&end)).filter_map(|(_, time)| match time {
            MeasuredTime::Ns(ns) => Some(*ns),
            MeasuredTime::Differs(_) => None,
        });
        times.min()
    }

    /// Returns the time of a call with one item, ns.
    pub(crate) fn alone(&self, of: &Measured, backend: &str, version: &str) -> Option<u64> {
        match self.0.get(&of.key(backend, version, 1))? {
            MeasuredTime::Ns(ns) => Some(*ns),
            MeasuredTime::Differs(_) => None,
        }
    }

    /// Stores what was found for a backend.
    pub(crate) fn set(&mut self, of: &Measured, backend: &str, version: &str, found: Measurement) {
        let times = match found {
            Measurement::Times(times) => times.map(MeasuredTime::Ns),
            Measurement::Differs(what) => [MeasuredTime::Differs(what.clone()), MeasuredTime::Differs(what)],
        };
        for (batch, time) in std::iter::zip([1, of.batch], times) {
            self.0.insert(of.key(backend, version, batch), time);
        }
    }

    /// Removes what was found for a backend.
    pub(crate) fn forget(&mut self, of: &Measured, backend: &str, version: &str) {
        for batch in [1, of.batch] {
            self.0.remove(&of.key(backend, version, batch));
        }
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
        table.set(&of("model", 1, 8), "ort", "1.22", Measurement::Times([30, 17]));
        table.set(&of("model", 1, 8), "wgpu", "30", Measurement::Differs("by 1".into()));
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
            assert_eq!(
                read.get(&of, backend, version),
                expected.map(MeasuredTime::Ns).as_ref(),
                "{of:?} {backend} {version}"
            );
        }
        assert_eq!(read.alone(&of("model", 1, 8), "ort", "1.22"), Some(30));
        assert_eq!(["ort", "wgpu"].map(|name| read.least(&of("model", 1, 8), name)), [Some(17), None]);
        assert_eq!(read.get(&of("model", 1, 8), "wgpu", "30"), Some(&MeasuredTime::Differs("by 1".into())));
        for (name, model, expected) in [("wgpu", "model", true), ("gpu", "model", false), ("wgpu", "other", false)] {
            assert_eq!((read.has(&of(model, 1, 8), name), read.has_any(name)), (expected, name == "wgpu"), "{name}");
        }
        let mut read = read;
        read.forget(&of("model", 1, 8), "wgpu", "30");
        assert_eq!((read.has_any("wgpu"), read.has_any("ort")), (false, true));
        fs::write(path(folder.path()), "{").unwrap();
        assert_eq!(Calibration::read(folder.path()), Calibration::default());
    }
}
