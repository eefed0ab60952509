//! The kind `infer`: runs a model with a choice of backend, batching and recorded case.
//!
//! Planning finds every error of the node and reports them together.

use crate::backend::Mock;
use crate::base::BackendOptions;
use crate::plan::{Choice, Config, Guard, Load, check_node, infer_plan};
use crate::steps::Steps;
use crate::trial;
use limen::backend::{Backend, Prepared};
use limen::infer::{DeviceSide, DeviceUse, InferPlan};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use limen::message::DType;
use limen::node::{Connected, PlanErrors, Planning};
#[cfg(feature = "cuda")]
use limen::policy::Isolation;

/// The kind `infer`.
#[derive(Debug)]
pub struct InferKind;

impl limen::infer::Infer for InferKind {
    type Config = Config;

    fn plan(config: Config, given: &Connected, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        let is_on_device = given.is_on_device();
        // Until the model is planned, only types matter.
        let given = &given.in_host_memory();
        let mut errors = PlanErrors::default();
        config.check(&mut errors);
        let recorded = config.recorded(cx, &mut errors);
        if !config.has_fitting_device() {
            return Err(errors);
        }
        let planned = match (config.backend, &config.model) {
            (Choice::Mock, _) => match config.mock.clone().map(Mock::prepare) {
                Some(Ok(prepared)) => {
                    let least = prepared.least();
                    let (case, steps) = (recorded.case.as_ref(), Steps::default());
                    check_node(&config, prepared.signature(), None, case)
                        .and_then(|()| infer_plan::<Mock>(&config, prepared, case, &steps))
                        .map(|plan| plan.takes(least))
                }
                // `config.check` reported it, field by field.
                _ => return Err(errors),
            },
            (_, None) => return Err(errors),
            (_, Some(model)) => {
                trial::planned(&config, model, given, cx, recorded).and_then(|plan| match is_on_device {
                    true => reside(plan, config.backend, &BackendOptions::of(cx)),
                    false => Ok(note_copies(&config, plan)),
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

    fn device(config: &Config) -> Option<DeviceUse> {
        let device = config.backend.device().filter(|_| why_copied(config).is_none())?;
        Some(DeviceUse { device: device.into(), side: DeviceSide::Both, is_optional: true })
    }
}

/// Returns the field because of which a model copies its messages within its calls: it gathers inputs, or needs values on the host.
fn why_copied(config: &Config) -> Option<&'static str> {
    let reasons = [
        ("resident: false", !config.resident),
        ("batch", config.batch.max > 1),
        ("state", !config.state.is_empty()),
        ("a constant input", !config.constants.is_empty()),
        ("in_flight", config.in_flight > 1),
        ("shadow", config.shadow.is_some()),
        ("fallback", config.fallback.is_some()),
        ("guard", config.guard != Guard::None),
        ("load: lazy", config.load != Load::Eager),
    ];
    reasons.into_iter().find_map(|(reason, holds)| holds.then_some(reason))
}

/// Notes why a model on a device copies its messages.
fn note_copies(config: &Config, plan: InferPlan) -> InferPlan {
    let why = why_copied(config).filter(|_| config.backend.device().is_some());
    why.into_iter()
        .fold(plan, |plan, why| plan.note(format!("its messages are copied within its calls, because of `{why}`")))
}

/// Keeps the messages of a model in the memory of the device that runs it.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn reside(plan: InferPlan, choice: Choice, options: &BackendOptions) -> Result<InferPlan, PlanErrors> {
    let mut errors = PlanErrors::default();
    for (name, spec) in plan.outputs() {
        // Bytes that a program computes are not packed as those that it reads.
        if let Some(spec) = spec.filter(|spec| !matches!(spec.dtype, DType::F32 | DType::I32)) {
            let message = format!("output `{name}` is {spec}; in the memory of a device it can be f32 or i32");
            errors.at("backend", message).help("write `resident: false`, or export the model with such an output");
        }
    }
    for (name, spec) in plan.inputs().chain(plan.outputs()) {
        if let Some(spec) = spec.filter(|spec| spec.fixed_shape().is_none()) {
            let message = format!("`{name}` is {spec}; in the memory of a device a model's tensors have fixed shapes");
            errors.at("backend", message).help("write `resident: false`, or put `pad` before");
        }
    }
    errors.into_result(match choice {
        #[cfg(feature = "cuda")]
        Choice::Cuda if options.isolation == Isolation::Process => {
            plan.on_device(crate::backend::isolated_device(options), DeviceSide::Both, ON_DEVICE)
        }
        #[cfg(feature = "cuda")]
        Choice::Cuda => plan.on_device(crate::backend::shared_cuda_device(options), DeviceSide::Both, ON_DEVICE),
        #[cfg(feature = "wgpu")]
        Choice::Wgpu => {
            let device = crate::backend::shared_device(options);
            plan.on_device(device, DeviceSide::Both, ON_DEVICE)
        }
        _ => plan,
    })
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn reside(plan: InferPlan, _: Choice, _: &BackendOptions) -> Result<InferPlan, PlanErrors> {
    Ok(plan)
}

/// The calls of a model that may be under way on a device.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
const ON_DEVICE: usize = 4;

#[cfg(test)]
mod tests;
