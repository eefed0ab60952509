//! Stock kinds whose nodes can run on a device: `device: wgpu` or `device: cuda`.

use crate::backend::{PreparedProgram, ProgramBackend, ProgramDevice};
use crate::lowering::{Program, ProgramSteps, StridedValue, Suppression, Taps};
use limen::backend::{Backend, Signature, TensorSpec};
use limen::infer::{Batch, DeviceSide, InferPlan};
use limen::message::{Dim, Layout, PortSpec};
use limen::node::{Cost, Node, PlanErrors, Planning};
use limen::plan::{DevicePorts, OnDevice};
use limen::policy::Isolation;
use limen_infer::{BackendOptions, LayerConfig, LayersNode, MlpConfig, PlannedLayers};
use limen_nodes_core::transform::{argmax, normalize, threshold};
use limen_vision::tensor::ResizeFilter;
use limen_vision::transform::{crop, letterbox, nms, resize, to_tensor};
use std::marker::PhantomData;
use std::sync::Arc;

/// Adds a device to the kinds that can run on it.
pub(crate) fn register<A: ProgramDevice>(registry: limen::Registry) -> limen::Registry {
    registry
        .on_device::<On<A, to_tensor::ToTensor>>("to_tensor")
        .on_device::<On<A, normalize::Normalize>>("normalize")
        .on_device::<On<A, resize::Resize>>("resize")
        .on_device::<On<A, crop::Crop>>("crop")
        .on_device::<On<A, letterbox::Letterbox>>("letterbox")
        .on_device::<On<A, threshold::Threshold>>("threshold")
        .on_device::<On<A, argmax::Argmax>>("argmax")
        .on_device::<On<A, nms::Nms>>("nms")
        .on_device::<On<A, LayersNode<LayerConfig>>>("linear")
        .on_device::<On<A, LayersNode<MlpConfig>>>("mlp")
}

/// A kind on a device.
struct On<A, N>(PhantomData<fn() -> (A, N)>);

/// What a kind computes.
trait Lowered: Node {
    /// Whether the program also runs on messages of rows, as [`OnDevice::TAKES_ROWS`] says to the
    /// planner.
    const TAKES_ROWS: bool = false;

    /// Returns its program for messages of a shape, which has the greatest length of each dim.
    ///
    /// # Errors
    /// What of the config has no program.
    fn program(config: &Self::Config, shape: &[usize], ports: &DevicePorts) -> Result<Program, PlanErrors>;

    /// Returns what the plan says of the node.
    fn notes(_: &Self::Config) -> Vec<String> {
        Vec::new()
    }
}

impl<A: ProgramDevice, N: Lowered> OnDevice for On<A, N> {
    type Node = N;
    const DEVICE: &'static str = A::NAME;
    const TAKES_ROWS: bool = N::TAKES_ROWS;

    fn plan(config: N::Config, ports: &DevicePorts, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        match BackendOptions::of(cx).isolation {
            Isolation::Process => plan::<A::Isolated, N>(&config, ports, cx),
            _ => plan::<A, N>(&config, ports, cx),
        }
    }
}

/// Plans a kind on a device.
fn plan<A: ProgramDevice, N: Lowered>(
    config: &N::Config,
    ports: &DevicePorts,
    cx: &Planning<'_>,
) -> Result<InferPlan, PlanErrors> {
    let mut errors = PlanErrors::default();
    let longest = |(_, spec): &(String, PortSpec)| spec.shape.iter().map(Dim::max).collect();
    let shape: Vec<usize> = ports.inputs.first().and_then(longest).unwrap_or_default();
    let program = N::program(config, &shape, ports)?;
    let side = |(name, spec): &(String, PortSpec)| TensorSpec {
        name: name.clone(),
        dtype: spec.dtype,
        shape: spec.shape.clone(),
    };
    let (inputs, outputs) = (ports.inputs.iter().map(side).collect(), ports.outputs.iter().map(side).collect());
    let signature = Signature { inputs, outputs, max_batch: Some(1) };
    let options = BackendOptions::of(cx);
    let (device, cache, program) = (A::shared(&options), options.cache.clone(), Arc::new(program));
    let prepared = ProgramBackend::<A>::prepare(PreparedProgram { program, device: device.clone(), signature, cache });
    match prepared {
        Ok(prepared) => {
            let plan = InferPlan::new::<ProgramBackend<A>>(Arc::new(prepared), Batch::default()).cost(Cost::Light);
            let plan = plan.on_device(device, DeviceSide::Both, A::CALLS);
            Ok(N::notes(config).into_iter().fold(plan, InferPlan::note))
        }
        Err(error) => {
            errors.at("device", error.to_string()).help("remove `device` to compute on the CPU");
            Err(errors)
        }
    }
}

/// An error of one field.
fn refused<T>(field: &str, message: &str, help: &str) -> Result<T, PlanErrors> {
    let mut errors = PlanErrors::default();
    errors.at(field, message).help(help);
    Err(errors)
}

impl Lowered for to_tensor::ToTensor {
    fn program(
        config: &to_tensor::ToTensorConfig,
        shape: &[usize],
        ports: &DevicePorts,
    ) -> Result<Program, PlanErrors> {
        if config.dtype != to_tensor::Float::F32 {
            return refused("dtype", "`dtype` must be `f32` on a device, got `f16`", "write `dtype: f32`");
        }
        let (mut steps, pixels) = ProgramSteps::new(shape, true);
        let is_chw = ports.outputs.first().is_some_and(|(_, spec)| spec.layout == Some(Layout::Chw));
        let ordered = if is_chw { ProgramSteps::ordered(&pixels, &[2, 0, 1]) } else { pixels };
        let numbers = steps.look_up("to_tensor", &ordered, &config.numbers());
        steps.output(&numbers);
        Ok(steps.program())
    }
}

impl Lowered for normalize::Normalize {
    fn program(
        config: &normalize::NormalizeConfig,
        shape: &[usize],
        ports: &DevicePorts,
    ) -> Result<Program, PlanErrors> {
        let (mut steps, values) = ProgramSteps::new(shape, false);
        let is_hwc = ports.outputs.first().is_some_and(|(_, spec)| spec.layout == Some(Layout::Hwc));
        let numbers = config.channels();
        let dim = if is_hwc || shape.len() != 3 { shape.len().saturating_sub(1) } else { 0 };
        let normal = steps.normalize("normalize", &values, &numbers, dim);
        steps.output(&normal);
        Ok(steps.program())
    }
}

/// The longest side of an image that is scaled: tables of its pixels are kept.
const MAX_SIDE: usize = 1 << 15;

/// Returns how a filter scales along an axis.
fn taps(filter: ResizeFilter, channels: usize, from: usize, to: usize) -> Result<Taps, PlanErrors> {
    if let Some(side) = [from, to].iter().find(|side| !(1..=MAX_SIDE).contains(*side)) {
        let message = format!("a side of an image must have 1 to {MAX_SIDE} pixels on a device, got {side}");
        return refused("device", &message, "remove `device`, or connect smaller images");
    }
    match filter {
        ResizeFilter::Nearest => Ok(Taps::nearest(from, to)),
        ResizeFilter::Linear => Ok(Taps::linear(from, to)),
        ResizeFilter::Bilinear if channels.is_multiple_of(2) => refused(
            "filter",
            "`filter: bilinear` does not support opacity on a device",
            "write `filter: linear`, or remove `device`",
        ),
        ResizeFilter::Bilinear => Ok(Taps::triangle(from, to)),
        ResizeFilter::Area | ResizeFilter::Lanczos3 => {
            let name = if filter == ResizeFilter::Area { "area" } else { "lanczos3" };
            let message = format!("`filter` must be `nearest`, `linear` or `bilinear` on a device, got `{name}`");
            refused("filter", &message, "write `filter: linear`, or remove `device`")
        }
    }
}

/// Scales an image to a height and a width.
fn scaled(
    steps: &mut ProgramSteps,
    image: &StridedValue,
    [h, w]: [usize; 2],
    filter: ResizeFilter,
) -> Result<StridedValue, PlanErrors> {
    let channels = image.shape[2];
    let rows = taps(filter, channels, image.shape[0], h)?;
    let columns = taps(filter, channels, image.shape[1], w)?;
    let narrow = steps.scale("resize", image, 1, &columns);
    let whole = steps.scale("resize", &narrow, 0, &rows);
    Ok(steps.levels("resize", &whole))
}

impl Lowered for resize::Resize {
    fn program(config: &resize::ResizeConfig, shape: &[usize], _: &DevicePorts) -> Result<Program, PlanErrors> {
        let (mut steps, image) = ProgramSteps::new(shape, true);
        let levels = scaled(&mut steps, &image, [config.height, config.width], config.filter)?;
        steps.output_bytes(&levels);
        Ok(steps.program())
    }
}

impl Lowered for crop::Crop {
    fn program(config: &crop::CropConfig, shape: &[usize], _: &DevicePorts) -> Result<Program, PlanErrors> {
        let (mut steps, image) = ProgramSteps::new(shape, true);
        let part = ProgramSteps::part(&image, &[config.y, config.x, 0], &[config.height, config.width, shape[2]]);
        steps.output_bytes(&part);
        Ok(steps.program())
    }
}

impl Lowered for letterbox::Letterbox {
    fn program(config: &letterbox::LetterboxConfig, shape: &[usize], _: &DevicePorts) -> Result<Program, PlanErrors> {
        let Some((size, first, placement)) = config.place([shape[0], shape[1]]) else {
            return refused(
                "order",
                "`order` must be `scale_first` on a device, got `fill_first`",
                "write `order: scale_first`, or remove `device`",
            );
        };
        let (mut steps, image) = ProgramSteps::new(shape, true);
        let levels = scaled(&mut steps, &image, size, config.filter)?;
        let frame = steps.put("letterbox", &levels, [config.height, config.width], first, config.fill);
        steps.output_bytes(&frame);
        let numbers = steps.numbers("letterbox", &placement);
        steps.output(&numbers);
        Ok(steps.program())
    }
}

impl Lowered for threshold::Threshold {
    fn program(config: &threshold::ThresholdConfig, shape: &[usize], _: &DevicePorts) -> Result<Program, PlanErrors> {
        if let Some(release) = config.release.filter(|release| *release != config.at) {
            let message = format!("`release` must be {} (`at`) on a device, got {release}", config.at);
            return refused("release", &message, "remove `release` or `device`");
        }
        let (mut steps, values) = ProgramSteps::new(shape, false);
        let on = steps.at_least("threshold", &values, config.at);
        steps.output_bytes(&on);
        Ok(steps.program())
    }
}

impl Lowered for argmax::Argmax {
    fn program(_: &argmax::ArgmaxConfig, shape: &[usize], _: &DevicePorts) -> Result<Program, PlanErrors> {
        let (mut steps, values) = ProgramSteps::new(shape, false);
        steps.greatest("argmax", &values).iter().for_each(|value| steps.output(value));
        Ok(steps.program())
    }
}

/// The most boxes that `nms` chooses from on a device: there is a bit for each in memory that few
/// threads share.
const MAX_BOXES: usize = 1 << 16;

impl Lowered for nms::Nms {
    const TAKES_ROWS: bool = true;

    fn program(config: &nms::NmsConfig, shape: &[usize], ports: &DevicePorts) -> Result<Program, PlanErrors> {
        let boxes = shape.first().copied().unwrap_or(0);
        if boxes > MAX_BOXES {
            let message = format!("`nms` must have at most {MAX_BOXES} boxes on a device, got {boxes}");
            return refused("device", &message, "remove `device`");
        }
        let most = |(_, spec): &(String, PortSpec)| spec.shape.first().and_then(Dim::max);
        let rule = Suppression {
            boxes,
            is_counted: ports.inputs.iter().any(|(_, spec)| spec.fixed_shape().is_none()),
            most: ports.outputs.first().and_then(most).unwrap_or(config.max_boxes),
            iou: config.iou,
            across_classes: config.across_classes,
        };
        Ok(ProgramSteps::suppress("nms", rule).program())
    }
}

impl<C: 'static> Lowered for LayersNode<C>
where
    LayersNode<C>: Node<Config = PlannedLayers<C>>,
{
    fn program(config: &PlannedLayers<C>, shape: &[usize], _: &DevicePorts) -> Result<Program, PlanErrors> {
        let (mut steps, mut rows) = ProgramSteps::new(shape, false);
        for layer in config.dense() {
            rows = steps.layer("layer", &rows, &layer);
        }
        steps.output(&rows);
        Ok(steps.program())
    }

    fn notes(config: &PlannedLayers<C>) -> Vec<String> {
        config.notes()
    }
}

#[cfg(test)]
mod tests;
