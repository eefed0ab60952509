//! Plans a node that runs an ONNX model.

use super::candidate::{PlanRequest, Refused, reference};
use super::choose::batch_advice;
use super::compare::{against_reference, check_case_on};
use super::config::Load;
use super::infer_plan::{check_node, infer_plan};
use super::load::prepare_onnx;
use crate::base::caught;
use crate::onnx::{ItemComparison, Onnx, OnnxPrepared, Reference, Runtime, ShadowPlan, compare_items, measure};
use crate::verify::Tolerance;
use limen::backend::Prepared;
use limen::infer::{Batch, InferPlan};
use limen::node::PlanErrors;
use limen::unit::{show_bytes, show_ns};
use std::time::Duration;

/// The step in which a runtime reports what it compiled.
pub(crate) const COMPILED: &str = "reported what it compiled";

/// How long one item and a batch are each measured while planning.
const MEASURED_FOR: Duration = Duration::from_millis(5);

/// Plans a model for a runtime.
pub(super) fn plan_onnx<R: Runtime>(job: &PlanRequest<'_>) -> Result<InferPlan, Refused> {
    let PlanRequest { config, model, steps, .. } = job;
    let mut prepared = prepare_onnx::<R>(job)?;
    let (bytes, parameters) = prepared.size();
    let threads = prepared.threads();
    let mut errors = PlanErrors::default();
    let case = job.recorded.case.as_ref();
    let checked = check_node(config, prepared.signature(), prepared.single(), case);
    checked.err().into_iter().for_each(|wrong| errors.append(wrong));
    let depends = check_items(&prepared, job, &mut errors);
    let is_of_node = errors.messages().next().is_some();
    let mut lines: Vec<String> = R::device(job.options).into_iter().map(|device| format!("runs on {device}")).collect();
    lines.extend(compare_with_reference(&prepared, job, &mut errors));
    lines.extend(add_shadow(&mut prepared, job, &mut errors));
    lines.extend(add_fallback(&mut prepared, job, &mut errors));
    lines.extend(depends);
    lines.extend(batching_advice(&prepared, job));
    lines.extend(compilation_lines(&prepared, job));
    lines.extend(quantization_advice::<R>(job));
    lines.extend_from_slice(prepared.notes());
    let planned = infer_plan::<Onnx<R>>(config, prepared, case.filter(|_| !is_of_node), steps).map(|planned| {
        let threads = match threads {
            1 => "1 thread".to_string(),
            several => format!("{several} unpinned threads per call"),
        };
        let about = format!("{model}: {}, {parameters} parameters, {threads}", show_bytes(bytes));
        let planned = planned.on_skip(config.on_skip).on_end(config.on_end).note(about);
        lines.into_iter().fold(planned, InferPlan::note)
    });
    let refused = match (is_of_node, errors.messages().next().is_none()) {
        (true, _) => Refused::Node,
        (false, true) => Refused::Call,
        (false, false) => Refused::Runtime,
    };
    let planned = match planned {
        Ok(planned) => errors.into_result(planned),
        Err(others) => {
            errors.append(others);
            Err(errors)
        }
    };
    planned.map_err(refused)
}

/// Checks that an item has the same numbers alone and beside others in its call, unless messages
/// stay as context for the next call. A recorded case that was reproduced both ways permits it, and
/// a line then says what differs.
fn check_items<R: Runtime>(
    prepared: &OnnxPrepared<R>,
    job: &PlanRequest<'_>,
    errors: &mut PlanErrors,
) -> Option<String> {
    let Batch { max, stride, .. } = job.config.batch;
    if max <= 1 || prepared.single().is_some() || stride.is_some_and(|stride| stride < max) {
        return None;
    }
    let sample = job.recorded.sample();
    let found = job.steps.step(R::NAME, "compared single items with a batch", || compare_items(prepared, max, sample));
    let depends = "an item's numbers depend on the call's other items";
    match found {
        ItemComparison::Same => None,
        ItemComparison::Differs(what) if job.inputs.has_batch_case => Some(format!("{depends}: {what}")),
        ItemComparison::Unknown(_) if job.inputs.has_batch_case => None,
        ItemComparison::Differs(what) => {
            errors.at("batch.max", format!("{depends}: {what}")).help(batch_advice(job.config));
            None
        }
        ItemComparison::Unknown(why) => {
            errors
                .at("batch.max", format!("limen cannot test whether {depends}: {why}"))
                .help(batch_advice(job.config));
            None
        }
    }
}

/// Returns a warning if the reference is the backend that serves.
fn self_comparison<R: Runtime>(reference: &Reference) -> Option<String> {
    let is = reference.name == R::NAME;
    is.then(|| format!("`{}` is compared with itself, which finds only differences between two calls", R::NAME))
}

/// Reports why a backend does not run the model beside the one that serves, and the key that asks
/// for it.
fn not_compared(key: &str, why: &str, errors: &mut PlanErrors) {
    let help = format!("name another backend that runs the model, or remove `{key}`");
    errors.at(key, format!("the backend of `{key}`: {why}")).help(help);
}

/// Compares the model with another backend, if `verify.against` names one.
fn compare_with_reference<R: Runtime>(
    prepared: &OnnxPrepared<R>,
    job: &PlanRequest<'_>,
    errors: &mut PlanErrors,
) -> Vec<String> {
    let Some(verify) = &job.config.verify else { return Vec::new() };
    let Some(against) = &verify.against else { return Vec::new() };
    let tolerance = Tolerance { atol: verify.atol, rtol: verify.rtol };
    let (lines, wrong) = job.steps.step(R::NAME, "was compared with another backend", || {
        let (mut lines, mut wrong) = (Vec::new(), PlanErrors::default());
        match reference(against, job) {
            Ok(reference) => {
                let is_reported = job.options.report_differences;
                lines = against_reference(prepared, &reference, tolerance, is_reported, &mut wrong);
                lines.extend(self_comparison::<R>(&reference));
                lines.extend(check_case_on(&reference, job, is_reported, &mut wrong));
            }
            Err(why) => not_compared("verify.against", &why, &mut wrong),
        }
        (lines, wrong)
    });
    errors.append(wrong);
    lines
}

/// Loads the model into a second backend, if `shadow` names one.
fn add_shadow<R: Runtime>(
    prepared: &mut OnnxPrepared<R>,
    job: &PlanRequest<'_>,
    errors: &mut PlanErrors,
) -> Vec<String> {
    let Some(shadow) = &job.config.shadow else { return Vec::new() };
    let found = reference(&shadow.backend, job).and_then(|reference| {
        reference.fits(prepared.signature(), job.config.batch.max)?;
        Ok(reference)
    });
    match found {
        Ok(reference) => {
            let calls = if shadow.every == 1 { "every call".into() } else { format!("one in {} calls", shadow.every) };
            let mut lines = vec![format!("`{}` repeats {calls}", reference.name)];
            lines.extend(self_comparison::<R>(&reference));
            let tolerance = Tolerance { atol: shadow.atol, rtol: shadow.rtol };
            prepared.set_shadow(ShadowPlan { reference, every: shadow.every, tolerance });
            lines
        }
        Err(why) => {
            not_compared("shadow.backend", &why, errors);
            Vec::new()
        }
    }
}

/// Loads the model into the backend of `fallback`.
fn add_fallback<R: Runtime>(
    prepared: &mut OnnxPrepared<R>,
    job: &PlanRequest<'_>,
    errors: &mut PlanErrors,
) -> Option<String> {
    let found = reference(job.config.fallback.as_ref()?, job).and_then(|reference| {
        reference.fits(prepared.signature(), job.config.batch.max)?;
        Ok(reference)
    });
    match found {
        Ok(reference) => {
            let line = format!("`{}` makes the calls while the device is lost", reference.name);
            prepared.set_fallback(reference);
            Some(line)
        }
        Err(why) => {
            not_compared("fallback", &why, errors);
            None
        }
    }
}

/// Measures an item alone and in a batch, for nodes with batches, and returns a line that says
/// whether batching pays off.
fn batching_advice<R: Runtime>(prepared: &OnnxPrepared<R>, job: &PlanRequest<'_>) -> Option<String> {
    let max = job.config.batch.max;
    if max <= 1 || prepared.single().is_some() || job.config.load != Load::Eager {
        return None;
    }
    let [alone, together] = job.steps.step(R::NAME, "was measured", || measure_batching(prepared, max))?;
    let verdict = if together < alone { "pays off" } else { "does not pay off" };
    let (alone, together) = (show_ns(alone), show_ns(together));
    Some(format!("a batch of {max} takes {together} per item, a single item takes {alone}: batching {verdict} here"))
}

/// Returns lines about what was compiled.
fn compilation_lines<R: Runtime>(prepared: &OnnxPrepared<R>, job: &PlanRequest<'_>) -> Vec<String> {
    let compiled = job.steps.step(R::NAME, COMPILED, || {
        let found = prepared.compiled()?;
        let ms = found.compile_ns as f64 / 1e6;
        let mut lines = vec![format!("compilations: {} in {ms:.0} ms, {} from disk", found.compiled, found.from_disk)];
        lines.extend(found.warnings);
        Some(lines)
    });
    let nothing = match &compiled {
        None => Some("compiles nothing"),
        Some(_) if !R::KEEPS_COMPILED => Some("does not cache what it compiles"),
        Some(_) => None,
    };
    let nothing = nothing.filter(|_| job.options.cache.is_some());
    let nothing = nothing.map(|what| format!("`{}` {what}, so the cache contains no compiled model", R::NAME));
    compiled.unwrap_or_default().into_iter().chain(nothing).collect()
}

/// Returns a warning if the runtime is often slower with the model's operators of 8 bits than with
/// those of f32.
fn quantization_advice<R: Runtime>(job: &PlanRequest<'_>) -> Option<String> {
    let (op, _) = job.required.ops.iter().find(|(op, _)| R::is_slow_in_8_bits(op))?;
    let name = R::NAME;
    let other = match name {
        "ort" => "quantize its convolutions with `QuantizeLinear` and `DequantizeLinear`",
        _ => "try `backend: ort`",
    };
    Some(format!("the model has {op} and is often slower on `{name}` than its f32 form: compare both, or {other}"))
}

/// Measures the time per item alone and in a batch, ns.
fn measure_batching<R: Runtime>(prepared: &OnnxPrepared<R>, max: usize) -> Option<[u64; 2]> {
    let time = |max: usize| {
        let session = prepared.cold_session(max).ok()?;
        caught(|| measure(prepared.signature(), Box::new(session), max, MEASURED_FOR)).ok()?.ok()
    };
    let [alone, together] = time(max)?;
    // Where batches are padded to the largest, an item alone is that of a node without batches.
    Some([if R::PREFERS_ONE_SIZE { time(1)?[0] } else { alone }, together])
}
