//! Compares a model on the backend that will serve it with another backend.

use super::candidate::PlanRequest;
use crate::base::{BEYOND_TOLERANCE, caught};
use crate::onnx::{Compared, Comparison, OnnxPrepared, Reference, Runtime, compare};
use crate::verify::{CaseError, Tolerance};
use limen::backend::{BackendError, Prepared};
use limen::node::PlanErrors;
use std::time::Duration;

/// Runs both on the same inputs and returns lines for the plan. Outputs beyond the tolerance are
/// among the lines if `is_reported`, else errors, which also say how long both took.
pub(super) fn against_reference<R: Runtime>(
    prepared: &OnnxPrepared<R>,
    reference: &Reference,
    tolerance: Tolerance,
    is_reported: bool,
    errors: &mut PlanErrors,
) -> Vec<String> {
    let signature = prepared.signature();
    let run = || {
        reference.fits(signature, 1)?;
        let session = |wrong: BackendError| wrong.to_string();
        let sessions = [Box::new(prepared.session(1).map_err(session)?), (reference.session)(1).map_err(session)?];
        compare(signature, sessions, tolerance).map_err(session)
    };
    match caught(run).and_then(|found| found) {
        Ok(Compared::Calls(found)) => found.judge(reference.name, tolerance, is_reported, errors),
        Ok(Compared::Not(why)) => {
            let name = reference.name;
            vec![format!(
                "not compared with `{name}`, because each call on random numbers of varying lengths failed: {why}; write \
                 `verify: {{ case: FILE.npz, against: {name} }}`"
            )]
        }
        Err(why) => {
            errors.at("verify.against", why);
            Vec::new()
        }
    }
}

impl Comparison {
    /// Returns the first output that differs by more than the tolerance, and by how much.
    pub(super) fn beyond(&self, reference: &str) -> Option<String> {
        let (output, found) = self.differences.iter().find(|(_, found)| found.over > 0)?;
        Some(match &found.shapes {
            Some((theirs, ours)) => format!("output `{output}` is {ours:?}, and {theirs:?} on `{reference}`"),
            None => format!("output `{output}` is up to {:.2e} from the output of `{reference}`", found.worst),
        })
    }

    /// Returns lines for the plan. Outputs beyond the tolerance are errors, whose help has the
    /// lines because a failed plan is not shown; lines like the others if `is_reported`.
    fn judge(self, reference: &str, tolerance: Tolerance, is_reported: bool, errors: &mut PlanErrors) -> Vec<String> {
        let (serving, other) = (micros(self.times.0), micros(self.times.1));
        let calls = self.calls;
        let mut lines = vec![format!(
            "against `{reference}`, {calls} calls: {serving} µs per call here, {other} µs per call on `{reference}`"
        )];
        let mut wrong = Vec::new();
        for (output, found) in self.differences {
            let (worst, largest) = (found.worst, found.largest);
            let line = format!(
                "output `{output}` differs from `{reference}` by at most {worst:.2e} (largest number {largest:.3})"
            );
            if let Some((theirs, ours)) = found.shapes {
                wrong.push(format!("output `{output}` must be {theirs:?}, as on `{reference}`, got {ours:?}"));
            } else if found.over > 0 {
                let Tolerance { atol, rtol } = tolerance;
                let over = found.over;
                wrong.push(format!("{line}; numbers beyond atol {atol}, rtol {rtol}: {over}"));
            } else {
                lines.push(line);
            }
        }
        if is_reported {
            lines.extend(wrong.into_iter().map(|wrong| format!("{BEYOND_TOLERANCE}{wrong}")));
            return lines;
        }
        let last = wrong.len();
        for (at, wrong) in wrong.into_iter().enumerate() {
            let error = errors.at("verify.against", wrong);
            if at + 1 == last {
                error.help(format!("write a greater `atol` or `rtol`, or use another backend ({})", lines.join("; ")));
            }
        }
        lines
    }
}

/// Runs the recorded case on the reference too, and returns a line for the plan if the outputs
/// match. Those that do not are among the lines if `is_reported`, else errors.
pub(super) fn check_case_on(
    reference: &Reference,
    job: &PlanRequest<'_>,
    is_reported: bool,
    errors: &mut PlanErrors,
) -> Vec<String> {
    let Some((case, tolerance)) = &job.recorded.case else { return Vec::new() };
    let Some(file) = job.config.verify.as_ref().and_then(|verify| verify.case.as_ref()) else { return Vec::new() };
    let (max, name) = (job.config.batch.max, reference.name);
    match case.check_with(&reference.signature, reference.is_stateful, &reference.session, max, *tolerance) {
        Ok(tried) => vec![format!("`{name}` reproduces {file} too: {tried}")],
        Err(wrong) => {
            // That it does not fit the model is said of the backend that serves.
            let of_model = wrong.into_iter().filter(|error| matches!(error, CaseError::Model(_)));
            let of_model = of_model.map(|error| format!("`{file}` on `{name}`: {error}"));
            if is_reported {
                return of_model.map(|error| format!("{BEYOND_TOLERANCE}{error}")).collect();
            }
            of_model.for_each(|error| _ = errors.at("verify.case", error));
            Vec::new()
        }
    }
}

fn micros(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e6)
}

#[cfg(all(test, feature = "rten"))]
mod tests {
    use super::*;
    use crate::backend::RtenRuntime;
    use crate::base::BackendOptions;
    use crate::onnx::{AnySession, Artifact, Onnx, OnnxLane, OnnxModel};
    use crate::plan::Runtimes;
    use crate::plan::config::{InferConfig, RecordedModel};
    use crate::plan::inputs::ModelInputs;
    use crate::plan::model_file::ModelFiles;
    use crate::steps::TrialSteps;
    use crate::verify::Case;
    use limen::backend::Backend;
    use limen::node::Connected;
    use std::path::Path;

    #[test]
    fn a_reference_with_other_outputs_is_an_error() {
        struct Zeros;
        impl limen::backend::Session for Zeros {
            type Lane = OnnxLane;
            fn infer_batch(
                &mut self,
                _: usize,
                _: &[limen::backend::BatchRef<'_>],
                outputs: &mut [limen::backend::BatchMut<'_>],
                _: &mut [Self::Lane],
            ) -> Result<(), BackendError> {
                outputs.iter_mut().for_each(|output| output.bytes.fill(0));
                Ok(())
            }
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs/digits/digits.onnx");
        let model = OnnxModel { path: path.clone(), ..OnnxModel::default() };
        let prepared = <Onnx<RtenRuntime> as Backend>::prepare(model).unwrap();
        let reference = Reference {
            name: "other",
            signature: prepared.signature().clone(),
            is_stateful: false,
            session: Box::new(|_| Ok(Box::new(Zeros) as AnySession)),
        };
        let config =
            serde_json::json!({ "model": "digits.onnx", "verify": { "case": "verify.npz", "against": "rten" } });
        let config: InferConfig = serde_json::from_value(config).unwrap();
        let tolerance = Tolerance { atol: 1e-4, rtol: 1e-3 };
        let case = Some((Case::read(&path.with_file_name("verify.npz")).unwrap(), tolerance));
        let recorded = RecordedModel { case, trial: None };
        let required = limen::backend::Requirements::default();
        let (artifact, model) = (Artifact::open(&path, limen::policy::Trials::MAX_SIZE).unwrap(), "digits.onnx");
        let given = Connected::of([("image".to_string(), None)]);
        let inputs = &ModelInputs::of(&config, &artifact.outline, &given, &recorded).unwrap();
        let steps = &TrialSteps::default();
        let files = ModelFiles::new(artifact, true);
        let options = &BackendOptions::default();
        let runtimes = &Runtimes::default();
        let (config, candidates) = (&config, &[][..]);
        let job =
            PlanRequest { config, options, runtimes, candidates, inputs, model, files, recorded, required, steps };
        let mut errors = PlanErrors::default();
        assert_eq!(check_case_on(&reference, &job, false, &mut errors), Vec::<String>::new());
        let why = errors.messages().next().unwrap();
        assert!(why.starts_with("`verify.npz` on `other`: output `logits` differs from the recorded output"), "{why}");

        let mut errors = PlanErrors::default();
        let lines = check_case_on(&reference, &job, true, &mut errors);
        assert_eq!((errors.messages().next(), lines.len()), (None, 1));
        assert!(
            lines[0].starts_with("beyond the tolerance: `verify.npz` on `other`: output `logits` differs"),
            "{lines:?}"
        );

        // The times are also part of the error about outputs beyond the tolerance.
        let mut errors = PlanErrors::default();
        against_reference(&prepared, &reference, tolerance, false, &mut errors);
        let text = format!("{errors:?}");
        for part in ["output `logits` differs from", "numbers beyond atol", "µs per call here", "µs per call on"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut errors = PlanErrors::default();
        let lines = against_reference(&prepared, &reference, tolerance, true, &mut errors);
        assert_eq!(errors.messages().next(), None);
        assert!(lines.iter().any(|line| line.starts_with(BEYOND_TOLERANCE)), "{lines:?}");
        let signature = limen::backend::Signature { outputs: Vec::new(), ..reference.signature.clone() };
        let mut errors = PlanErrors::default();
        against_reference(&prepared, &Reference { signature, ..reference }, tolerance, false, &mut errors);
        let why = errors.messages().next().unwrap();
        assert_eq!(why, "output 0 must be `logits` f32[10], got absent on `other`");
    }
}
