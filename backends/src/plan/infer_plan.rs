//! Plans a node that runs a model, on any backend.

use super::config::Config;
use crate::backend::{InFlight, InFlightPrepared};
use crate::onnx::Precision;
use crate::steps::{Steps, VERIFY_CASE};
use crate::verify::{Case, Tolerance};
use limen::backend::{Backend, Signature};
use limen::infer::InferPlan;
use limen::node::PlanErrors;
use std::sync::Arc;

/// The way out for a recorded case that does not fit its model.
pub(super) const CASE_ADVICE: &str =
    "record the case with the model and the shapes of this graph, or leave `verify:` out";

/// The way out for a recorded case that a model does not reproduce.
fn differs_advice(backend: &str, precision: Precision) -> String {
    if precision != Precision::F32 {
        let precision = precision.name();
        return format!(
            "write a greater `atol`, if the answers are good enough, or leave `precision: {precision}` out"
        );
    }
    let such_as = if backend == "ort" { "" } else { ", such as `backend: ort`" };
    format!(
        "if it was recorded with this model, try another backend{such_as}; else record it again, or leave `verify:` out"
    )
}

/// Checks that a model takes the batches of its node, and that the recorded case fits it. `single` says why it takes one item in a
/// call, if so.
pub(crate) fn check_node(
    config: &Config,
    signature: &Signature,
    single: Option<&str>,
    case: Option<&(Case, Tolerance)>,
) -> Result<(), PlanErrors> {
    let mut errors = PlanErrors::default();
    if let Some(most) = signature.max_batch.filter(|most| config.batch.max > *most) {
        let because = single.map(|why| format!(": {why}")).unwrap_or_default();
        let message = format!("the model takes at most {most} in a call{because}");
        errors
            .at("batch.max", message)
            .help("write a smaller batch; more take a model with a symbolic first dim and messages of one size");
    }
    if let (Some(file), Some((case, _))) = (config.case_file(), case) {
        for wrong in case.fit(signature).err().into_iter().flatten() {
            errors.at(VERIFY_CASE, format!("`{file}`: {wrong}")).help(CASE_ADVICE);
        }
    }
    errors.into_result(())
}

/// Runs the recorded case on the model itself.
pub(crate) fn infer_plan<B: Backend>(
    config: &Config,
    prepared: B::Prepared,
    case: Option<&(Case, Tolerance)>,
    steps: &Steps,
) -> Result<InferPlan, PlanErrors> {
    let mut errors = PlanErrors::default();
    let mut verified = None;
    if let (Some((case, tolerance)), Some(file)) = (case, config.case_file()) {
        let tried = steps.step(B::NAME, "ran the recorded case", || {
            match case.try_on(&prepared, config.batch.max, *tolerance) {
                Ok(tried) if tried.items == 1 => Ok(format!("verified with the item of {file}: {tried}")),
                Ok(tried) => Ok(format!("verified with the {} items of {file}: {tried}", tried.items)),
                Err(wrong) => Err(wrong.iter().map(|error| format!("`{file}`: {error}")).collect::<Vec<_>>()),
            }
        });
        match tried {
            Ok(line) => verified = Some(line),
            Err(wrong) => {
                wrong.into_iter().for_each(|error| {
                    _ = errors.at(VERIFY_CASE, error).help(differs_advice(B::NAME, config.precision))
                });
            }
        }
    }
    errors.into_result(())?;
    let plan = match config.in_flight {
        0 | 1 => InferPlan::new::<B>(Arc::new(prepared), config.batch),
        most => InferPlan::new::<InFlight<B>>(Arc::new(InFlightPrepared::new(prepared, most)), config.batch)
            .helpers(most)
            .note(format!("up to {most} calls at once, each on its own thread")),
    };
    let plan = config.keep_warm.into_iter().fold(plan, InferPlan::keep_warm);
    Ok(match verified {
        Some(line) => plan.note(line),
        None => plan,
    })
}
