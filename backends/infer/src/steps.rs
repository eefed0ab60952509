//! The steps of planning that run a model's code: recorded in the trial process, and replayed from
//! the record in the process that plans the graph.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// The result of a trial: the result of each step, and the checksums of the files it read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrialRecord {
    pub(crate) steps: BTreeMap<String, Value>,
    /// The SHA-256 of the model's file, under the empty name, and of each file of weights.
    pub(crate) sums: BTreeMap<String, String>,
    /// The checksums of what was recorded of the model, by the config field that names it.
    #[serde(default)]
    pub(crate) recorded: BTreeMap<String, String>,
}

impl TrialRecord {
    /// Returns the reasons why runtimes could not run the model.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &Value> {
        self.steps.iter().filter(|(step, _)| step.ends_with(FAILED)).map(|(_, why)| why)
    }

    /// Removes a step of every runtime.
    pub(crate) fn forget(&mut self, what: &str) {
        self.steps.retain(|step, _| step.split_once(' ').is_none_or(|(_, step)| step != what));
    }
}

/// The progress of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TrialProgress<'a> {
    /// The next step, and the runtime that takes it.
    Doing { runtime: Option<&'a str>, what: &'a str },
    /// The size of the model and its weights, in bytes.
    Size(u64),
}

/// Runs, records or replays the steps of planning that run a model's code.
#[derive(Default)]
pub(crate) struct TrialSteps {
    mode: Mode,
    /// Runtimes that crashed a trial, each with the error message: they are not tried again.
    pub(crate) dead: Vec<(String, String)>,
    /// Whether a file or a chosen runtime differs from the trial.
    changed: Cell<bool>,
}

#[derive(Default)]
enum Mode {
    /// Steps run in this process and are not recorded.
    #[default]
    Here,
    /// Results are recorded, and progress is reported to the function.
    Recording(RefCell<TrialRecord>, fn(TrialProgress<'_>)),
    /// Recorded results are returned instead of running the steps.
    Replaying(TrialRecord),
}

impl TrialSteps {
    pub(crate) fn recording(dead: Vec<(String, String)>, report: fn(TrialProgress<'_>)) -> Self {
        TrialSteps { mode: Mode::Recording(RefCell::default(), report), dead, ..TrialSteps::default() }
    }

    pub(crate) fn replaying(record: TrialRecord, dead: Vec<(String, String)>) -> Self {
        TrialSteps { mode: Mode::Replaying(record), dead, ..TrialSteps::default() }
    }

    pub(crate) fn into_record(self) -> TrialRecord {
        match self.mode {
            Mode::Recording(record, _) => record.into_inner(),
            Mode::Here | Mode::Replaying(_) => TrialRecord::default(),
        }
    }

    /// Reports the next step, in words that follow the name of the runtime (`ran the model on
    /// zeros`).
    pub(crate) fn announce(&self, runtime: Option<&str>, what: &str) {
        if let Mode::Recording(_, report) = &self.mode {
            report(TrialProgress::Doing { runtime, what });
        }
    }

    /// Reports the size of the model and its weights, as far as it is known: to read them may take
    /// long.
    pub(crate) fn announce_size(&self, size: u64) {
        if let Mode::Recording(_, report) = &self.mode {
            report(TrialProgress::Size(size));
        }
    }

    /// Runs one step of a runtime, or returns its recorded result.
    pub(crate) fn step<T: Serialize + DeserializeOwned>(
        &self,
        runtime: &str,
        what: &str,
        work: impl FnOnce() -> T,
    ) -> T {
        let key = format!("{runtime} {what}");
        match &self.mode {
            Mode::Here => work(),
            Mode::Recording(record, _) => {
                self.announce(Some(runtime), what);
                let found = work();
                if let Ok(value) = serde_json::to_value(&found) {
                    record.borrow_mut().steps.insert(key, value);
                }
                found
            }
            Mode::Replaying(record) => {
                let found = record.steps.get(&key).and_then(|value| T::deserialize(value).ok());
                found.unwrap_or_else(work)
            }
        }
    }

    /// Records that a runtime cannot run the model.
    pub(crate) fn fail(&self, runtime: &str, messages: &[String]) {
        let _ = self.step(runtime, FAILED, || messages.to_vec());
    }

    /// Returns why a runtime could not run the model in the trial.
    pub(crate) fn failed(&self, runtime: &str) -> Option<Vec<String>> {
        if let Some((_, why)) = self.dead.iter().find(|(name, _)| name == runtime) {
            return Some(vec![why.clone()]);
        }
        let Mode::Replaying(record) = &self.mode else { return None };
        Vec::deserialize(record.steps.get(&format!("{runtime} {FAILED}"))?).ok()
    }

    /// Whether a runtime may load the model in this process: after a trial, only if the trial used
    /// that runtime. A runtime that it did not use is considered now because something changed
    /// since.
    pub(crate) fn admits(&self, runtime: &str) -> bool {
        let Mode::Replaying(record) = &self.mode else { return true };
        let was_tried = record.steps.keys().any(|step| step.split_once(' ').is_some_and(|(name, _)| name == runtime));
        self.changed.set(self.changed.get() || !was_tried);
        was_tried
    }

    /// Records the checksums of the files and their total size in bytes; when replaying, compares
    /// them with the record.
    ///
    /// # Errors
    /// The config field of the first file that differs.
    pub(crate) fn check_files(
        &self,
        sums: BTreeMap<String, String>,
        size: u64,
        recorded: BTreeMap<String, String>,
    ) -> Result<(), &'static str> {
        match &self.mode {
            Mode::Here => Ok(()),
            Mode::Recording(record, report) => {
                let mut record = record.borrow_mut();
                (record.sums, record.recorded) = (sums, recorded);
                drop(record);
                report(TrialProgress::Size(size));
                Ok(())
            }
            Mode::Replaying(record) => {
                let check = |same: bool, field| if same { Ok(()) } else { Err(field) };
                let mut fields = [VERIFY_CASE, TRIAL].into_iter();
                let same = check(record.sums == sums, "model").and_then(|()| {
                    fields.try_for_each(|field| check(record.recorded.get(field) == recorded.get(field), field))
                });
                self.changed.set(self.changed.get() || same.is_err());
                same
            }
        }
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.changed.get()
    }
}

const FAILED: &str = "failed";

/// The config fields that name what was recorded of a model.
pub(crate) const VERIFY_CASE: &str = "verify.case";
pub(crate) const TRIAL: &str = "trial";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::{Artifact, Outline};
    use crate::verify::Case;
    use std::sync::Arc;

    #[test]
    fn a_file_that_changed_since_its_trial_is_named() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../graphs/digits/");
        let artifact =
            Artifact::open(format!("{folder}digits.onnx").as_ref(), limen::policy::Trials::MAX_SIZE).unwrap();
        let case = Case::read(format!("{folder}verify.npz").as_ref()).unwrap();
        let other = case.clone().perturbed("logits");
        let sums = |case: Option<&Case>, trial: Option<&Case>| -> BTreeMap<String, String> {
            let both = [(VERIFY_CASE, case), (TRIAL, trial)].into_iter();
            both.filter_map(|(field, case)| Some((field.to_string(), case?.digest()))).collect()
        };
        let tried = TrialSteps::recording(Vec::new(), |_| ());
        tried.check_files(artifact.outline.sums(), 1, sums(Some(&case), Some(&case))).unwrap();
        let record = tried.into_record();

        let mut other_model = Outline::clone(&artifact.outline);
        other_model.sha256 = "0".repeat(64);
        let other_model = Arc::new(other_model);
        for (outline, recorded, changed) in [
            (&artifact.outline, sums(Some(&case), Some(&case)), None),
            (&other_model, sums(Some(&case), Some(&case)), Some("model")),
            (&artifact.outline, sums(Some(&other), Some(&case)), Some("verify.case")),
            (&artifact.outline, sums(None, Some(&case)), Some("verify.case")),
            (&artifact.outline, sums(Some(&case), Some(&other)), Some("trial")),
            (&artifact.outline, sums(Some(&case), None), Some("trial")),
            (&artifact.outline, sums(Some(&other), Some(&other)), Some("verify.case")),
        ] {
            let steps = TrialSteps::replaying(record.clone(), Vec::new());
            assert_eq!(steps.check_files(outline.sums(), 1, recorded).err(), changed);
            assert_eq!(steps.is_changed(), changed.is_some());
        }
    }
}
