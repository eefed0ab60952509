//! Plans a node that runs a model, on any backend.

use super::config::InferConfig;
use crate::backend::{InFlight, InFlightPrepared};
use crate::onnx::Precision;
use crate::steps::{TrialSteps, VERIFY_CASE};
use crate::verify::{Case, CaseError, Tolerance};
use limen::backend::{Backend, Prepared, Signature};
use limen::infer::InferPlan;
use limen::node::PlanErrors;
use std::sync::Arc;

/// The way out for a recorded case that does not fit its model.
pub(super) const CASE_ADVICE: &str = "record the case with the model and the shapes of this graph, or remove `verify:`";

/// The way out for a recorded case that a model reproduces only alone or only in batches.
const ITEMS_ADVICE: &str =
    "write `max: 1`, because an item's numbers depend on the call's other items, or write a greater `atol`";

/// The way out for a recorded case that a model does not reproduce.
fn differs_advice(backend: &str, precision: Precision) -> String {
    if precision != Precision::F32 {
        let precision = precision.name();
        return format!("write a greater `atol` in `verify`, or remove `precision: {precision}`");
    }
    let such_as = if backend == "ort" { "" } else { ", such as `backend: ort`" };
    format!("try another backend{such_as}, record the case again with this model, or remove `verify:`")
}

/// Says in which calls the errors occurred.
fn only(wrong: Vec<String>, calls: &str) -> Vec<String> {
    wrong.into_iter().map(|error| format!("only {calls}: {error}")).collect()
}

/// Checks that a model takes the batches of its node, and that the recorded case fits it. `single`
/// says why it takes one item in a call, if so.
pub(crate) fn check_node(
    config: &InferConfig,
    signature: &Signature,
    single: Option<&str>,
    case: Option<&(Case, Tolerance)>,
) -> Result<(), PlanErrors> {
    let mut errors = PlanErrors::default();
    if let Some(most) = signature.max_batch.filter(|most| config.batch.max > *most) {
        let because = single.map(|why| format!(": {why}")).unwrap_or_default();
        let message = format!("`batch.max` must be at most {most} for this model, got {}{because}", config.batch.max);
        let help = "or export the model with a symbolic first dim and connect messages of one size";
        errors.at("batch.max", message).help(format!("write `max: {most}`, {help}"));
    }
    let required = config.require.as_ref().map_or(0, |require| require.max_batch);
    if let Some(most) = signature.max_batch.filter(|most| required > *most) {
        let because = single.map(|why| format!(": {why}")).unwrap_or_default();
        let message = format!("`require.max_batch` must be at most {most} for this model, got {required}{because}");
        errors
            .at("require.max_batch", message)
            .help(format!("write `max_batch: {most}`, or export the model with a symbolic first dim"));
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
    config: &InferConfig,
    prepared: B::Prepared,
    case: Option<&(Case, Tolerance)>,
    steps: &TrialSteps,
) -> Result<InferPlan, PlanErrors> {
    let mut errors = PlanErrors::default();
    let mut verified = None;
    if let (Some((case, tolerance)), Some(file)) = (case, config.case_file()) {
        let max = config.batch.max;
        let is_one = case.fit(prepared.signature()).is_ok_and(|items| items == 1);
        let is_single = max == 1 || is_one || prepared.is_stateful();
        let tried = steps.step(B::NAME, "ran the recorded case", || {
            let run = |max| {
                let wrong = |wrong: Vec<CaseError>| wrong.iter().map(CaseError::to_string).collect::<Vec<_>>();
                case.try_on(&prepared, max, *tolerance).map_err(wrong)
            };
            match (run(max), if is_single { None } else { Some(run(1)) }) {
                (Ok(tried), None | Some(Ok(_))) if tried.items == 1 => {
                    Ok(format!("verified with the item of {file}: {tried}"))
                }
                (Ok(tried), None | Some(Ok(_))) => {
                    Ok(format!("verified with the {} items of {file}: {tried}", tried.items))
                }
                (Err(wrong), None | Some(Err(_))) => Err((true, wrong)),
                // Items that were recorded in one call say nothing of an item alone, and the other
                // way round.
                (Err(wrong), Some(Ok(_))) => Err((false, only(wrong, "in calls of several items"))),
                (Ok(_), Some(Err(wrong))) => Err((false, only(wrong, "one item at a time"))),
            }
        });
        match tried {
            Ok(line) => verified = Some(line),
            Err((is_other, wrong)) => {
                for error in wrong {
                    let error = format!("`{file}`: {error}");
                    match is_other {
                        true => errors.at(VERIFY_CASE, error).help(differs_advice(B::NAME, config.precision)),
                        false => errors.at("batch.max", error).help(ITEMS_ADVICE),
                    };
                }
            }
        }
    }
    errors.into_result(())?;
    let plan = match config.in_flight {
        0 | 1 => InferPlan::new::<B>(Arc::new(prepared), config.batch),
        most => InferPlan::new::<InFlight<B>>(Arc::new(InFlightPrepared::new(prepared, most)), config.batch)
            .helpers(most)
            .note(format!("up to {most} calls at once, each on a separate, unpinned thread")),
    };
    let plan = config.keep_warm.into_iter().fold(plan, InferPlan::keep_warm);
    Ok(match verified {
        Some(line) => plan.note(line),
        None => plan,
    })
}
