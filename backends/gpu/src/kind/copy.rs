//! The kinds `to_device` and `to_host`, which planning inserts where they are missing.

use super::DEVICES;
use crate::base::{CopyDevice, Devices};
use limen::infer::{DeviceSide, DeviceUse, Infer, InferPlan};
use limen::message::PortSpec;
use limen::node::{Connected, Extensions, PlanErrors, Planning};
#[cfg(feature = "cuda")]
use limen::policy::Isolation;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use limen_infer::BackendOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

/// Copies messages of fixed shapes from the input `in` to the output `out`, between host memory and
/// the memory of a device. limen inserts `to_device` and `to_host` nodes automatically where the
/// two ends of a connection use different memory. A graph may also contain `to_device` and
/// `to_host` nodes explicitly.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CopyConfig {
    /// The device: `wgpu` or `cuda`. The build must support this device.
    pub device: String,
}

impl CopyConfig {
    /// Returns the device of this name.
    fn device(&self, cx: &Planning<'_>) -> Result<Arc<dyn CopyDevice>, PlanErrors> {
        let own = cx.extensions.get::<Devices>().map(|devices| devices.0.as_slice()).unwrap_or_default();
        if let Some(device) = own.iter().find(|device| device.name() == self.device) {
            return Ok(device.clone());
        }
        #[cfg(feature = "wgpu")]
        if self.device == "wgpu" {
            return Ok(crate::backend::shared_device(&BackendOptions::of(cx)));
        }
        #[cfg(feature = "cuda")]
        if self.device == "cuda" {
            let options = BackendOptions::of(cx);
            return Ok(match options.isolation {
                Isolation::Process => crate::backend::isolated_device(&options),
                _ => crate::backend::shared_cuda_device(&options),
            });
        }
        let mut errors = PlanErrors::default();
        let names = own.iter().map(|device| device.name());
        let names = names.chain(DEVICES.into_iter().filter(|(_, is_built, _)| *is_built).map(|(name, ..)| name));
        let names: Vec<&str> = names.collect();
        let (message, help) = match names.first() {
            Some(first) => (
                format!("`device` must be `{}`, got `{}`", names.join("` or `"), self.device),
                format!("write `device: {first}`, or remove the node"),
            ),
            None => (format!("this program has no devices, got `device: {}`", self.device), "remove the node".into()),
        };
        errors.at("device", message).help(help);
        Err(errors)
    }
}

/// Plans a copy of the only input.
fn plan(
    config: &CopyConfig,
    given: &Connected,
    cx: &Planning<'_>,
    copy: fn(Arc<dyn CopyDevice>, &PortSpec) -> InferPlan,
) -> Result<InferPlan, PlanErrors> {
    let device = config.device(cx)?;
    let Some(spec) = given.single() else {
        let mut errors = PlanErrors::default();
        errors
            .input("in", "the type of the input is unknown: the input comes from a later node of a cycle")
            .help("close the cycle with a connection between nodes in host memory");
        return Err(errors);
    };
    Ok(copy(device, spec))
}

/// Copies messages to the memory of a device. Planning inserts this node where it is needed.
#[derive(Debug)]
pub struct ToDeviceKind;

impl Infer for ToDeviceKind {
    type Config = CopyConfig;

    fn plan(config: CopyConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        plan(&config, given, cx, |device, spec| device.to_device(spec))
    }

    fn device(config: &CopyConfig, _: &Extensions) -> Option<DeviceUse> {
        Some(DeviceUse { device: config.device.clone(), side: DeviceSide::Outputs, is_optional: false })
    }
}

/// Copies messages from the memory of a device to host memory. Planning inserts this node where it
/// is needed.
#[derive(Debug)]
pub struct ToHostKind;

impl Infer for ToHostKind {
    type Config = CopyConfig;

    fn plan(config: CopyConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        plan(&config, given, cx, |device, spec| device.to_host(spec))
    }

    fn device(config: &CopyConfig, _: &Extensions) -> Option<DeviceUse> {
        Some(DeviceUse { device: config.device.clone(), side: DeviceSide::Inputs, is_optional: false })
    }
}
