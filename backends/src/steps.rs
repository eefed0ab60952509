//! What is asked of a model while its node is planned: recorded where it is tried, and answered from the record where the
//! graph is planned.

use crate::verify::Case;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// What a trial found out about a model, by step, and of which files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) steps: BTreeMap<String, Value>,
    /// The SHA-256 of the model's file, under an empty name, and of the files of its weights.
    pub(crate) sums: BTreeMap<String, String>,
    /// The digest of the recorded case, where there is one.
    #[serde(default)]
    pub(crate) case: Option<String>,
}

impl Record {
    /// Why runtimes could not run the model.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &Value> {
        self.steps.iter().filter(|(step, _)| step.ends_with(FAILED)).map(|(_, why)| why)
    }

    /// Forgets a step of every runtime.
    pub(crate) fn forget(&mut self, what: &str) {
        self.steps.retain(|step, _| step.split_once(' ').is_none_or(|(_, step)| step != what));
    }
}

/// How far a trial is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress<'a> {
    /// What is done next, and by which runtime.
    Doing { runtime: Option<&'a str>, what: &'a str },
    /// How large the model turned out to be, in bytes.
    Size(u64),
}

/// The steps of planning a model in which its code is run.
#[derive(Default)]
pub(crate) struct Steps {
    mode: Mode,
    /// Runtimes in which the trial died, each with what was said of it: they are not tried again.
    pub(crate) dead: Vec<(String, String)>,
    /// Whether something is another than it was in the trial.
    changed: Cell<bool>,
}

#[derive(Default)]
enum Mode {
    /// Models are tried in this process, and nobody else asks.
    #[default]
    Here,
    /// What is found is recorded, and what is begun is told.
    Recording(RefCell<Record>, fn(Progress<'_>)),
    /// What was found is not asked again.
    Replaying(Record),
}

impl Steps {
    pub(crate) fn recording(dead: Vec<(String, String)>, tell: fn(Progress<'_>)) -> Self {
        Steps { mode: Mode::Recording(RefCell::default(), tell), dead, ..Steps::default() }
    }

    pub(crate) fn replaying(record: Record, dead: Vec<(String, String)>) -> Self {
        Steps { mode: Mode::Replaying(record), dead, ..Steps::default() }
    }

    pub(crate) fn into_record(self) -> Record {
        match self.mode {
            Mode::Recording(record, _) => record.into_inner(),
            Mode::Here | Mode::Replaying(_) => Record::default(),
        }
    }

    /// Says what is done next, in words that follow the name of the runtime.
    pub(crate) fn doing(&self, runtime: Option<&str>, what: &str) {
        if let Mode::Recording(_, tell) = &self.mode {
            tell(Progress::Doing { runtime, what });
        }
    }

    /// Does one step of a runtime, or says what came of it where it was tried.
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
                self.doing(Some(runtime), what);
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

    /// Remembers that a runtime cannot run the model.
    pub(crate) fn fail(&self, runtime: &str, messages: &[String]) {
        let _ = self.step(runtime, FAILED, || messages.to_vec());
    }

    /// Why a runtime could not run the model where it was tried.
    pub(crate) fn failed(&self, runtime: &str) -> Option<Vec<String>> {
        if let Some((_, why)) = self.dead.iter().find(|(name, _)| name == runtime) {
            return Some(vec![why.clone()]);
        }
        let Mode::Replaying(record) = &self.mode else { return None };
        Vec::deserialize(record.steps.get(&format!("{runtime} {FAILED}"))?).ok()
    }

    /// Whether a runtime may be given the model in this process: where a trial came before, only if it was tried there. One that was
    /// not is chosen for something that has changed since.
    pub(crate) fn admits(&self, runtime: &str) -> bool {
        let Mode::Replaying(record) = &self.mode else { return true };
        let was_tried = record.steps.keys().any(|step| step.split_once(' ').is_some_and(|(name, _)| name == runtime));
        self.changed.set(self.changed.get() || !was_tried);
        was_tried
    }

    /// Notes which files are tried, and what they come to in bytes; where they were tried before, whether they are the same.
    ///
    /// # Errors
    /// The key of the first that is not.
    pub(crate) fn of(
        &self,
        sums: BTreeMap<String, String>,
        size: u64,
        case: Option<&Case>,
    ) -> Result<(), &'static str> {
        match &self.mode {
            Mode::Here => Ok(()),
            Mode::Recording(record, tell) => {
                let mut record = record.borrow_mut();
                (record.sums, record.case) = (sums, case.map(Case::digest));
                drop(record);
                tell(Progress::Size(size));
                Ok(())
            }
            Mode::Replaying(record) => {
                let held = |same: bool, key| if same { Ok(()) } else { Err(key) };
                let same = held(record.sums == sums, "model")
                    .and_then(|()| held(record.case == case.map(Case::digest), "verify.case"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::{Artifact, Outline};
    use std::sync::Arc;

    #[test]
    fn what_changed_while_it_was_tried_is_named() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs/digits/");
        let artifact = Artifact::open(format!("{folder}digits.onnx").as_ref()).unwrap();
        let case = Case::read(format!("{folder}verify.npz").as_ref()).unwrap();
        let tried = Steps::recording(Vec::new(), |_| ());
        tried.of(artifact.outline.sums(), 1, Some(&case)).unwrap();
        let record = tried.into_record();

        let other_model = Arc::new(Outline { sha256: "0".repeat(64), ..Outline::clone(&artifact.outline) });
        let other_case = case.clone().perturbed("logits");
        for (outline, case, changed) in [
            (&artifact.outline, Some(&case), None),
            (&other_model, Some(&case), Some("model")),
            (&artifact.outline, Some(&other_case), Some("verify.case")),
            (&artifact.outline, None, Some("verify.case")),
        ] {
            let steps = Steps::replaying(record.clone(), Vec::new());
            assert_eq!(steps.of(outline.sums(), 1, case).err(), changed);
            assert_eq!(steps.is_changed(), changed.is_some());
        }
    }
}
