//! The plan of a node that runs an ONNX model.

use super::candidate::{Job, reference};
use super::compare::{against_reference, recorded_of};
use super::config::Load;
use super::infer_plan::infer_plan;
use super::load::prepare_onnx;
use crate::base::caught;
use crate::cache;
use crate::onnx::{Onnx, OnnxPrepared, Reference, Runtime, ShadowPlan, measure};
use crate::verify::Tolerance;
use limen::PlanErrors;
use limen::backend::Prepared;
use limen::infer::InferPlan;
use limen::unit::{show_bytes, show_ns};
use std::time::Duration;

/// The step in which a runtime says what compiling came to.
pub(crate) const COMPILED: &str = "said what it compiled";

/// How long one item and a batch are measured while planning.
const ADVISED: Duration = Duration::from_millis(5);

/// Plans a model for a runtime.
pub(super) fn plan_onnx<R: Runtime>(job: &Job<'_>) -> Result<InferPlan, PlanErrors> {
    let Job { config, model, steps, .. } = job;
    let mut prepared = prepare_onnx::<R>(job)?;
    let (bytes, parameters) = prepared.size();
    let threads = prepared.threads();
    let mut errors = PlanErrors::default();
    let mut compared = Vec::new();
    let itself = |reference: &Reference| {
        let is = reference.name == R::NAME;
        is.then(|| format!("`{}` is compared with itself, which finds only what differs between two calls", R::NAME))
    };
    if let Some(verify) = &config.verify
        && let Some(against) = verify.against
    {
        let tolerance = Tolerance { atol: verify.atol, rtol: verify.rtol };
        let (lines, wrong) = steps.step(R::NAME, "was compared with another backend", || {
            let (mut lines, mut wrong) = (Vec::new(), PlanErrors::default());
            match reference(against, job) {
                Ok(reference) => {
                    lines = against_reference(&prepared, &reference, tolerance, &mut wrong);
                    lines.extend(itself(&reference));
                    lines.extend(recorded_of(&reference, job, &mut wrong));
                }
                Err(why) => _ = wrong.at("verify.against", why),
            }
            (lines, wrong)
        });
        compared = lines;
        errors.append(wrong);
    }
    if let Some(shadow) = &config.shadow {
        let found = reference(shadow.backend, job).and_then(|reference| {
            reference.fits(prepared.signature(), config.batch.max)?;
            Ok(reference)
        });
        match found {
            Ok(reference) => {
                compared.push(format!("one in {} calls is repeated by `{}`", shadow.every, reference.name));
                compared.extend(itself(&reference));
                let tolerance = Tolerance { atol: shadow.atol, rtol: shadow.rtol };
                prepared.shadowed(ShadowPlan { reference, every: shadow.every, tolerance });
            }
            Err(why) => _ = errors.at("shadow.backend", why),
        }
    }
    if config.batch.max > 1
        && prepared.single().is_none()
        && config.load == Load::Eager
        && let Some([alone, together]) = steps.step(R::NAME, "was measured", || advise(&prepared, config.batch.max))
    {
        let (max, verdict) = (config.batch.max, if together < alone { "pays" } else { "does not pay" });
        let (alone, together) = (show_ns(alone), show_ns(together));
        compared.push(format!("a batch of {max} takes {together} an item, one alone {alone}: batching {verdict} here"));
    }
    let compiled = steps.step(R::NAME, COMPILED, || {
        let found = prepared.compiled()?;
        let ms = found.compile_ns as f64 / 1e6;
        let mut lines = vec![format!("compiled {} in {ms:.0} ms, {} from disk", found.compiled, found.from_disk)];
        lines.extend(found.warnings);
        Some(lines)
    });
    if let Some(lines) = compiled {
        compared.extend(lines);
    } else if cache::folder().is_some() {
        compared.push(format!("`{}` compiles nothing, so nothing compiled is kept", R::NAME));
    }
    let single = prepared.single().map(str::to_string);
    match infer_plan::<Onnx<R>>(config, prepared, single.as_deref(), job.case.as_ref(), steps) {
        Err(others) => {
            errors.append(others);
            Err(errors)
        }
        Ok(planned) => {
            let s = if threads == 1 { "" } else { "s" };
            let about = format!("{model}: {}, {parameters} parameters, {threads} thread{s}", show_bytes(bytes));
            let planned = planned.on_skip(config.on_skip).on_end(config.on_end).note(about);
            errors.into_result(compared.into_iter().fold(planned, InferPlan::note))
        }
    }
}

/// How long an item takes alone, and in a batch, ns.
fn advise<R: Runtime>(prepared: &OnnxPrepared<R>, max: usize) -> Option<[u64; 2]> {
    let session = prepared.session(max).ok()?;
    caught(|| measure(prepared.signature(), Box::new(session), max, ADVISED)).ok()?.ok()
}
