//! Shaders in WGSL.

use super::{Ports, plain, ports, refuse_fields, text, verify};
use crate::backend::{KernelModel, WgpuKernel};
use crate::device::Api;
use crate::kernel::{Interface, KernelConfig, OverrideConstant, Symbols, Variable};
use limen::backend::{Backend, BackendError, Signature};
use limen::infer::{Batch, DeviceSide, InferPlan};
use limen::message::PortSpec;
use limen::node::{Connected, Cost, PlanErrors, Planning};
use limen_infer::BackendOptions;
use std::sync::Arc;
use std::time::Duration;

/// Plans a shader.
///
/// # Errors
/// All that is wrong with it, and with what was found before.
pub(super) fn plan(
    config: &KernelConfig,
    source: Option<Vec<u8>>,
    given: &Connected,
    mut errors: PlanErrors,
    cx: &Planning<'_>,
) -> Result<InferPlan, PlanErrors> {
    let of_cuda = [
        ("block", !config.block.is_empty()),
        ("shared", config.shared.is_some()),
        ("arguments", !config.arguments.is_empty()),
        ("defines", !config.defines.is_empty()),
    ];
    refuse_fields("CUDA", &of_cuda, &mut errors);
    let source = source.and_then(|source| text(config, source, &mut errors));
    let interface = source.as_ref().and_then(|source| {
        let found = Interface::of(source, config.entry.as_deref());
        let help = format!("correct `{}`, or write another `entry`", config.source);
        let wrong = |why| _ = errors.at("source", format!("`{}`: {why}", config.source)).help(help);
        found.map_err(wrong).ok()
    });
    let Ports { symbols, signature, groups, in_place } = ports(config, given, &mut errors)?;
    if let Some(interface) = &interface {
        check_variables(config, interface, &signature, &mut errors);
    }
    let constants = constants(config, interface.as_ref(), &symbols, &mut errors);
    errors.into_result(())?;
    let (Some(source), Some(interface)) = (source, interface) else { return Err(PlanErrors::default()) };
    let options = BackendOptions::of(cx);
    let device = crate::backend::shared_device(&options);
    let time_limit = config.time_limit.map(|limit| Duration::from_nanos(limit.as_nanos()));
    let (source, cache) = (source.into(), options.cache.clone());
    let model = KernelModel { source, interface, constants, groups, signature, in_place, time_limit, device, cache };
    let [x, y, z] = model.interface.workgroup;
    let note = format!("{} workgroups of {x} x {y} x {z} threads", groups.map(|n| n.to_string()).join(" x "));
    let mut errors = PlanErrors::default();
    let prepared = WgpuKernel::prepare(model).map_err(|error| {
        let help = match &error {
            BackendError::Unavailable(_) => "run on a machine with a Vulkan driver, or remove the node".into(),
            _ => format!("correct the source in `{}`, or change `grid` or `constants`", config.source),
        };
        errors.at("source", format!("`{}`: {}", config.source, plain(error))).help(help);
        errors
    })?;
    let verified = config.verify.as_ref().map(|file| verify(config, file, &prepared, cx)).transpose()?;
    let device = prepared.device();
    let plan = InferPlan::new::<WgpuKernel>(Arc::new(prepared), Batch::default()).cost(Cost::Medium).note(note);
    let plan = verified.into_iter().fold(plan, InferPlan::note);
    Ok(plan.on_device(device, DeviceSide::Both, <crate::backend::WgpuApi as Api>::CALLS))
}

/// Compares the shader's buffers with the ports.
fn check_variables(config: &KernelConfig, interface: &Interface, signature: &Signature, errors: &mut PlanErrors) {
    let names: Vec<String> = interface.variables.iter().map(|variable| format!("`{}`", variable.name)).collect();
    let is_port = |name: &String| config.inputs.contains_key(name) || config.outputs.contains_key(name);
    for Variable { name, binding, .. } in interface.variables.iter().filter(|variable| !is_port(&variable.name)) {
        let message = format!("`{name}` (binding {binding}) is neither an input nor an output of the node");
        errors.at("source", message).help(format!("add `{name}` to `inputs` or `outputs`"));
    }
    let sides = [("inputs", &signature.inputs, false), ("outputs", &signature.outputs, true)];
    for (side, ports, is_written) in sides {
        for port in ports {
            let field = format!("{side}.{}", port.name);
            if !is_written && config.in_place.values().any(|input| *input == port.name) {
                if interface.variables.iter().any(|variable| variable.name == port.name) {
                    let message = format!("the shader must not declare `{}`: `in_place` makes it an output", port.name);
                    errors
                        .at(field, message)
                        .help(format!("remove `{}` from the shader, or from `in_place`", port.name));
                }
                continue;
            }
            let Some(variable) = interface.variables.iter().find(|variable| variable.name == port.name) else {
                let used = if names.is_empty() { "none".into() } else { names.join(", ") };
                let message = format!("expected a variable of the entry point ({used}), found `{}`", port.name);
                errors.at(field, message).help("write the name of a `var<storage, …>` that the entry point uses");
                continue;
            };
            if variable.is_written != is_written {
                let access = if is_written { "read_write" } else { "read" };
                let found = if is_written { "read" } else { "read_write" };
                let name = &port.name;
                let message = format!("expected `{name}` as `var<storage, {access}>`, found `var<storage, {found}>`");
                errors
                    .at(field.clone(), message)
                    .help(format!("declare `{name}` as `var<storage, {access}>` in the shader"));
            }
            match variable.scalar {
                Some(scalar) if scalar.holds(port.dtype) => {}
                Some(scalar) => {
                    let (name, dtype) = (&port.name, port.dtype);
                    let message = format!("type mismatch: `{name}` is {dtype}, the shader has {}", scalar.name());
                    let help = format!("declare `{name}` as an array of `f32`, `i32`, or `u32` for four `u8` each");
                    errors.at(field.clone(), message).help(help);
                }
                None => {
                    _ = errors
                        .at(field.clone(), format!("the elements of `{}` must be 32-bit numbers", port.name))
                        .help(format!("declare `{}` as an `array<f32>`", port.name))
                }
            }
            let bytes = PortSpec::new(port.dtype, port.shape.iter().cloned()).max_bytes().unwrap_or(0);
            if bytes.next_multiple_of(4).max(4) < variable.least {
                let message =
                    format!("the shader's `{}` must have at most {bytes} bytes, got {}", port.name, variable.least);
                errors.at(field, message).help(format!("declare `{}` as an array without a length", port.name));
            }
        }
    }
}

/// Returns the values of the shader's constants.
fn constants(
    config: &KernelConfig,
    interface: Option<&Interface>,
    symbols: &Symbols,
    errors: &mut PlanErrors,
) -> Vec<(String, f64)> {
    let mut values = Vec::new();
    for (name, written) in &config.constants {
        let known = interface.and_then(|interface| interface.constants.iter().find(|known| known.name == *name));
        match written.value(symbols) {
            Ok(value) if value.fract() != 0.0 && known.is_some_and(|known| !known.is_float) => {
                let message = format!("`constants.{name}` must be a whole number, got {value}");
                let help = format!("write a whole number, or declare `{name}` as `f32` in the shader");
                errors.at(format!("constants.{name}"), message).help(help);
            }
            Ok(value) => values.extend(known.map(|known| (known.key.clone(), value))),
            Err(why) => {
                let help = "write a number, or an expression of dims that `inputs` names";
                errors.at(format!("constants.{name}"), why).help(help);
            }
        }
    }
    let Some(interface) = interface else { return values };
    for name in config.constants.keys().filter(|name| !interface.constants.iter().any(|known| known.name == **name)) {
        let known: Vec<String> = interface.constants.iter().map(|known| format!("`{}`", known.name)).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        let message = format!("expected an `override` of the shader ({known}), found `{name}`");
        errors.at(format!("constants.{name}"), message).help(format!("remove `constants.{name}`"));
    }
    let is_without = |known: &&OverrideConstant| !known.has_value && !config.constants.contains_key(&known.name);
    for OverrideConstant { name, .. } in interface.constants.iter().filter(is_without) {
        let message = format!("`override {name}` of the shader has no value");
        errors.at("source", message).help(format!("write `constants: {{ {name}: 1 }}` with the value of `{name}`"));
    }
    values
}
