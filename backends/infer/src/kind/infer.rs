//! The kind `infer`: runs a model with a choice of backend, batching and recorded case.
//!
//! Planning finds every error of the node and reports them together.

use crate::backend::Mock;
use crate::base::BackendOptions;
use crate::plan::{Guard, InferConfig, Load, MOCK, Runtimes, check_node, infer_plan};
use crate::steps::TrialSteps;
use crate::trial;
use limen::backend::{Backend, Prepared};
use limen::infer::{DeviceSide, DeviceUse, InferPlan};
use limen::message::{DType, Device};
use limen::node::{Connected, Extensions, PlanErrors, Planning};
use std::sync::Arc;

/// Runs ONNX models in a graph, as `kind: infer`.
#[derive(Debug)]
pub struct InferKind;

impl limen::infer::Infer for InferKind {
    type Config = InferConfig;

    fn plan(config: InferConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        let is_on_device = given.is_on_device();
        // Until the model is planned, only types matter.
        let given = &given.in_host_memory();
        let runtimes = Runtimes::of(cx.extensions);
        config.check_names(runtimes)?;
        let mut errors = PlanErrors::default();
        config.check(runtimes, &mut errors);
        let recorded = config.recorded(cx, &mut errors);
        if !config.has_fitting_device(runtimes) {
            return Err(errors);
        }
        let planned = match (&*config.backend, &config.model) {
            (MOCK, _) => match config.mock.clone().map(Mock::prepare) {
                Some(Ok(prepared)) => {
                    let least = prepared.least();
                    let (case, steps) = (recorded.case.as_ref(), TrialSteps::default());
                    check_node(&config, prepared.signature(), None, case)
                        .and_then(|()| infer_plan::<Mock>(&config, prepared, case, &steps))
                        .map(|plan| plan.takes(least))
                }
                // `config.check` reported it, field by field.
                _ => return Err(errors),
            },
            (_, None) => return Err(errors),
            (_, Some(model)) => {
                let device = || runtimes.get(&config.backend)?.memory(&BackendOptions::of(cx));
                trial::planned(&config, model, given, cx, recorded).and_then(|plan| {
                    match is_on_device.then(device).flatten() {
                        Some(device) => reside(plan, device),
                        None => Ok(note_copies(&config, runtimes, plan)),
                    }
                })
            }
        };
        match planned {
            Ok(plan) => errors.into_result(plan),
            Err(others) => {
                errors.append(others);
                Err(errors)
            }
        }
    }

    fn device(config: &InferConfig, extensions: &Extensions) -> Option<DeviceUse> {
        let device =
            Runtimes::of(extensions).get(&config.backend)?.memory_name().filter(|_| why_copied(config).is_none())?;
        Some(DeviceUse { device: device.into(), side: DeviceSide::Both, is_optional: true })
    }
}

/// Returns the field because of which a model copies its messages within its calls: it gathers
/// inputs, or needs values on the host.
fn why_copied(config: &InferConfig) -> Option<&'static str> {
    let reasons = [
        ("resident: false", !config.resident),
        ("batch", config.batch.max > 1),
        ("state", !config.state.is_empty()),
        ("value", !config.constants.is_empty()),
        ("in_flight", config.in_flight > 1),
        ("shadow", config.shadow.is_some()),
        ("fallback", config.fallback.is_some()),
        ("guard", config.guard != Guard::None),
        ("load: lazy", config.load != Load::Eager),
    ];
    reasons.into_iter().find_map(|(reason, holds)| holds.then_some(reason))
}

/// Notes why a model on a device copies its messages.
fn note_copies(config: &InferConfig, runtimes: &Runtimes, plan: InferPlan) -> InferPlan {
    let can_reside = runtimes.get(&config.backend).is_some_and(|runtime| runtime.memory_name().is_some());
    let why = why_copied(config).filter(|_| can_reside);
    why.into_iter().fold(plan, |plan, why| plan.note(format!("each call copies its messages, because of `{why}`")))
}

/// Keeps the messages of a model in the memory of the device that runs it.
fn reside(plan: InferPlan, device: Arc<dyn Device>) -> Result<InferPlan, PlanErrors> {
    let mut errors = PlanErrors::default();
    for (name, spec) in plan.outputs() {
        // Bytes that a program computes are not packed as those that it reads.
        if let Some(spec) = spec.filter(|spec| !matches!(spec.dtype, DType::F32 | DType::I32)) {
            let message = format!("output `{name}` must be f32 or i32 in device memory, got {spec}");
            errors.at("backend", message).help("write `resident: false`, or export the model with an f32 output");
        }
    }
    for (name, spec) in plan.inputs().chain(plan.outputs()) {
        if let Some(spec) = spec.filter(|spec| spec.fixed_shape().is_none()) {
            let message = format!("`{name}` must have a fixed shape in device memory, got {spec}");
            errors.at("backend", message).help("write `resident: false`, or put a `pad` node upstream of this node");
        }
    }
    errors.into_result(plan.on_device(device, DeviceSide::Both, ON_DEVICE))
}

/// The calls of a model that may be under way on a device.
const ON_DEVICE: usize = 4;

#[cfg(test)]
mod tests;
