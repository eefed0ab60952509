//! The kind `kernel`: runs a shader that the graph brings along.

use crate::backend::{KernelModel, LONGEST_CALL, WgpuKernel};
use crate::base::{BackendOptions, refuse_remote};
use crate::device::Api;
use crate::kernel::{Constant, Interface, KernelConfig, Symbols, Variable};
use crate::verify::{Case, Tolerance};
use limen::backend::{Backend, Signature, TensorSpec};
use limen::infer::{Batch, DeviceSide, DeviceUse, Infer, InferPlan};
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Connected, Cost, PlanErrors, Planning};
use std::sync::Arc;
use std::time::Duration;

/// The kind `kernel`.
#[derive(Debug)]
pub struct KernelKind;

/// A shader has at most this many bytes.
const MAX_SOURCE: u64 = 1 << 20;

impl Infer for KernelKind {
    type Config = KernelConfig;

    fn plan(config: KernelConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        let mut errors = PlanErrors::default();
        let options = BackendOptions::of(cx);
        for (is_allowed, how) in [
            (config.allow_kernels, "write `allow_kernels: true`"),
            (options.allow_kernels, "start with `--allow-kernels`"),
        ] {
            if !is_allowed {
                let why = format!("`{}` is a program of the graph, which is not allowed to run", config.source);
                errors.at("source", why).help(format!("{how}, if you trust the graph"));
            }
        }
        if config.time_limit.is_some_and(|limit| !(1..=LONGEST_CALL.as_nanos() as u64).contains(&limit.as_nanos())) {
            let most = LONGEST_CALL.as_secs();
            errors
                .at("time_limit", format!("a call can take more than 0 and at most {most} s"))
                .help("write a time such as `500ms`");
        }
        if config.device != "wgpu" {
            let message = format!("there is no device `{}` for kernels", config.device);
            errors.at("device", message).help("write `wgpu`");
        }
        let source = source(&config.source, cx);
        let source = source
            .map_err(|why| _ = errors.at("source", why).help("name a file in WGSL below the graph's folder"))
            .ok();
        let interface = source.as_ref().and_then(|source| {
            let found = Interface::of(source, config.entry.as_deref());
            let wrong = |why| _ = errors.at("source", format!("`{}`: {why}", config.source)).help("correct the shader");
            found.map_err(wrong).ok()
        });
        if config.inputs.is_empty() {
            errors.at("inputs", "is empty; a kernel runs on the messages of its inputs").help("name one");
            return Err(errors);
        }
        let is_missing = |port: &&String| connected(&config, given, port).is_none();
        for port in config.inputs.keys().filter(is_missing) {
            errors.input(port, format!("`{port}`: nothing is connected, or its type is not known")).help("connect it");
        }
        if config.inputs.keys().any(|port| is_missing(&port)) {
            // Lengths would only follow from it.
            return Err(errors);
        }
        let symbols = symbols(&config, given, &mut errors);
        let signature = signature(&config, given, &symbols, &mut errors);
        let groups = grid(&config, &symbols, &mut errors);
        let in_place = in_place(&config, &signature, &mut errors);
        if let Some(interface) = &interface {
            check_variables(&config, interface, &signature, &mut errors);
        }
        let constants = constants(&config, interface.as_ref(), &symbols, &mut errors);
        errors.into_result(())?;
        let (Some(source), Some(interface)) = (source, interface) else { return Err(PlanErrors::default()) };
        let device = crate::backend::shared_device(options);
        let time_limit = config.time_limit.map(|limit| Duration::from_nanos(limit.as_nanos()));
        let (source, cache) = (source.into(), options.cache.clone());
        let model =
            KernelModel { source, interface, constants, groups, signature, in_place, time_limit, device, cache };
        let [x, y, z] = model.interface.workgroup;
        let note = format!("{} workgroups of {x} x {y} x {z} threads", groups.map(|n| n.to_string()).join(" x "));
        let mut errors = PlanErrors::default();
        let prepared = WgpuKernel::prepare(model).map_err(|error| {
            errors
                .at("source", format!("`{}`: {error}", config.source))
                .help("change the shader, or its grid and constants");
            errors
        })?;
        let verified = config.verify.as_ref().map(|file| verify(&config, file, &prepared, cx)).transpose()?;
        let device = prepared.device();
        let plan = InferPlan::new::<WgpuKernel>(Arc::new(prepared), Batch::default()).cost(Cost::Medium).note(note);
        let plan = verified.into_iter().fold(plan, InferPlan::note);
        Ok(plan.on_device(device, DeviceSide::Both, <crate::backend::WgpuApi as Api>::CALLS))
    }

    fn device(config: &KernelConfig) -> Option<DeviceUse> {
        Some(DeviceUse { device: config.device.clone(), side: DeviceSide::Both, is_optional: false })
    }
}

/// Reads a shader.
fn source(path: &str, cx: &Planning<'_>) -> Result<String, String> {
    refuse_remote(path)?;
    let mut file = cx.folders.open(path).map_err(|error| format!("`{path}`: {}", std::io::Error::from(error)))?;
    let bytes = file.read_whole(MAX_SOURCE).map_err(|error| format!("`{path}`: {error}"))?;
    String::from_utf8(bytes).map_err(|_| format!("`{path}` is no text in UTF-8"))
}

/// Returns what is connected to an input. The only one needs no name in the graph.
fn connected<'a>(config: &KernelConfig, given: &'a Connected, port: &str) -> Option<&'a PortSpec> {
    given.input(port).or_else(|| given.single().filter(|_| config.inputs.len() == 1))
}

/// Returns the lengths of the named dims.
fn symbols(config: &KernelConfig, given: &Connected, errors: &mut PlanErrors) -> Symbols {
    let mut symbols = Symbols::new();
    for (port, dims) in &config.inputs {
        let Some(spec) = connected(config, given, port) else { continue };
        let Some(shape) = spec.fixed_shape() else {
            errors
                .input(port, format!("{spec} has no fixed shape, which a kernel needs"))
                .help("put a `pad` node between");
            continue;
        };
        if shape.len() != dims.len() {
            let message = format!("gets {spec}, with {} dims, where the config names {}", shape.len(), dims.len());
            errors.at(format!("inputs.{port}"), message).help("name each dim of the messages");
            continue;
        }
        for (dim, length) in std::iter::zip(dims, shape) {
            let length = length as i64;
            let before = match dim.name() {
                Some(name) => *symbols.entry(name.into()).or_insert(length),
                None => match dim.value(&Symbols::new()) {
                    Ok(fixed) => fixed,
                    Err(_) => {
                        let message = format!("`{dim}` is computed; a dim of an input is a name or a number");
                        errors.at(format!("inputs.{port}"), message).help("give it a name");
                        continue;
                    }
                },
            };
            if before != length {
                let message = format!("gets {spec}: dim `{dim}` is {length} there, and {before} elsewhere");
                errors.at(format!("inputs.{port}"), message).help("give dims of different lengths different names");
            }
        }
    }
    symbols
}

/// Returns the tensors of the ports.
fn signature(config: &KernelConfig, given: &Connected, symbols: &Symbols, errors: &mut PlanErrors) -> Signature {
    let mut inputs = Vec::new();
    for port in config.inputs.keys() {
        let Some(spec) = connected(config, given, port) else { continue };
        if !matches!(spec.dtype, DType::F32 | DType::I32 | DType::U8) {
            let message = format!("gets elements of {}; on the device there are f32, i32 and u8", spec.dtype);
            errors.input(port, message).help("put a `cast` node between");
        }
        inputs.push(TensorSpec { name: port.clone(), dtype: spec.dtype, shape: spec.shape.clone() });
    }
    let mut outputs = Vec::new();
    for (port, output) in &config.outputs {
        let shape: Result<Vec<Dim>, String> =
            output.shape.iter().map(|dim| dim.length(symbols).map(Dim::Fixed)).collect();
        if !matches!(output.dtype, DType::F32 | DType::I32) {
            let message = format!("a kernel gives f32 or i32, not {}", output.dtype);
            errors.at(format!("outputs.{port}.dtype"), message).help("write one of them, and put a `cast` node behind");
        }
        match shape {
            Ok(shape) => outputs.push(TensorSpec { name: port.clone(), dtype: output.dtype, shape }),
            Err(why) => {
                _ = errors.at(format!("outputs.{port}.shape"), why).help("write lengths and the names of `inputs`")
            }
        }
    }
    Signature { inputs, outputs, max_batch: Some(1) }
}

/// Returns the workgroups along each dim.
fn grid(config: &KernelConfig, symbols: &Symbols, errors: &mut PlanErrors) -> [u32; 3] {
    let mut groups = [1; 3];
    if config.grid.is_empty() || config.grid.len() > 3 {
        errors
            .at("grid", format!("has {} numbers", config.grid.len()))
            .help("write workgroups along one to three dims");
        return groups;
    }
    for (groups, written) in groups.iter_mut().zip(&config.grid) {
        let found = written.length(symbols).and_then(|n| u32::try_from(n).map_err(|_| format!("`{written}` is {n}")));
        match found {
            Ok(n) => *groups = n,
            Err(why) => _ = errors.at("grid", why).help("write lengths and the names of `inputs`"),
        }
    }
    groups
}

/// Returns which outputs begin as a copy of which input.
fn in_place(config: &KernelConfig, signature: &Signature, errors: &mut PlanErrors) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (output, input) in &config.in_place {
        let field = format!("in_place.{output}");
        let of = |ports: &[TensorSpec], name: &str| ports.iter().position(|port| port.name == *name);
        let (Some(to), Some(from)) = (of(&signature.outputs, output), of(&signature.inputs, input)) else {
            errors
                .at(field, format!("`{output}: {input}` names no output and input of the node"))
                .help("write an output and the input that it begins as");
            continue;
        };
        let (to_spec, from_spec) = (&signature.outputs[to], &signature.inputs[from]);
        if (to_spec.dtype, &to_spec.shape) != (from_spec.dtype, &from_spec.shape) {
            let show = |port: &TensorSpec| PortSpec::new(port.dtype, port.shape.iter().cloned()).to_string();
            let message = format!("`{output}` is {} and `{input}` {}", show(to_spec), show(from_spec));
            errors.at(field, message).help("both must have the same type and shape");
            continue;
        }
        pairs.push((to, from));
    }
    pairs
}

/// Compares the shader's buffers with the ports.
fn check_variables(config: &KernelConfig, interface: &Interface, signature: &Signature, errors: &mut PlanErrors) {
    let names: Vec<String> = interface.variables.iter().map(|variable| format!("`{}`", variable.name)).collect();
    let is_port = |name: &String| config.inputs.contains_key(name) || config.outputs.contains_key(name);
    for Variable { name, binding, .. } in interface.variables.iter().filter(|variable| !is_port(&variable.name)) {
        let message = format!("`{name}` (binding {binding}) is neither an input nor an output of the node");
        errors.at("source", message).help("name it in `inputs` or `outputs`");
    }
    let sides = [("inputs", &signature.inputs, false), ("outputs", &signature.outputs, true)];
    for (side, ports, is_written) in sides {
        for port in ports {
            let field = format!("{side}.{}", port.name);
            if !is_written && config.in_place.values().any(|input| *input == port.name) {
                if interface.variables.iter().any(|variable| variable.name == port.name) {
                    let message =
                        format!("the shader has a variable `{}`, whose elements are those of an output", port.name);
                    errors
                        .at(field, message)
                        .help("leave the variable out of the shader, or the input out of `in_place`");
                }
                continue;
            }
            let Some(variable) = interface.variables.iter().find(|variable| variable.name == port.name) else {
                let message = format!("its entry point uses no variable `{}`, only {}", port.name, names.join(", "));
                errors.at(field, message).help("name a `var<storage, …>` of the shader");
                continue;
            };
            if variable.is_written != is_written {
                let access = if is_written { "read_write" } else { "read" };
                errors
                    .at(field.clone(), format!("`{}` has another access", port.name))
                    .help(format!("declare it `var<storage, {access}>`"));
            }
            match variable.scalar {
                Some(scalar) if scalar.holds(port.dtype) => {}
                Some(scalar) => {
                    let message = format!("is {}, and the shader's elements are {}", port.dtype, scalar.name());
                    errors
                        .at(field.clone(), message)
                        .help("`f32` and `i32` are those of WGSL; `u8` is packed, four in a `u32`");
                }
                None => {
                    _ = errors
                        .at(field.clone(), "its elements are no numbers of 32 bits")
                        .help("declare an `array<f32>`")
                }
            }
            let bytes = PortSpec::new(port.dtype, port.shape.iter().cloned()).max_bytes().unwrap_or(0);
            if bytes.next_multiple_of(4).max(4) < variable.least {
                let message = format!("has {bytes} bytes, and the shader's array takes {}", variable.least);
                errors.at(field, message).help("declare an array without a length");
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
                let message = format!("is {value}, and `override {name}` of the shader is whole");
                errors.at(format!("constants.{name}"), message).help("write a whole number, or declare it `f32`");
            }
            Ok(value) => values.extend(known.map(|known| (known.key.clone(), value))),
            Err(why) => _ = errors.at(format!("constants.{name}"), why).help("write a number or the names of `inputs`"),
        }
    }
    let Some(interface) = interface else { return values };
    for name in config.constants.keys().filter(|name| !interface.constants.iter().any(|known| known.name == **name)) {
        let known: Vec<String> = interface.constants.iter().map(|known| format!("`{}`", known.name)).collect();
        let known = if known.is_empty() { "it has none".into() } else { format!("there are {}", known.join(", ")) };
        let message = format!("the shader has no `override {name}`: {known}");
        errors.at(format!("constants.{name}"), message).help("leave it out");
    }
    let is_without = |known: &&Constant| !known.has_value && !config.constants.contains_key(&known.name);
    for Constant { name, .. } in interface.constants.iter().filter(is_without) {
        let message = format!("`override {name}` of the shader has no value");
        errors.at("source", message).help(format!("write `constants: {{ {name}: … }}`"));
    }
    values
}

/// Runs the recorded case.
fn verify(
    config: &KernelConfig,
    file: &str,
    prepared: &crate::backend::PreparedKernel,
    cx: &Planning<'_>,
) -> Result<String, PlanErrors> {
    let mut errors = PlanErrors::default();
    let tolerance = Tolerance { atol: config.atol, rtol: 0.0 };
    let opened = cx.folders.open(file).map_err(|error| format!("`{file}`: {}", std::io::Error::from(error)));
    let case = opened.and_then(|opened| Case::read_file(opened).map_err(|error| format!("`{file}`: {error}")));
    let tried = case.and_then(|case| {
        let tried = case.try_on(prepared, 1, tolerance);
        tried.map_err(|wrong| wrong.iter().map(|error| format!("`{file}`: {error}")).collect::<Vec<_>>().join("; "))
    });
    match tried {
        Ok(tried) => Ok(format!("verified with {file}: {tried}")),
        Err(why) => {
            errors.at("verify", why).help("record it again, or leave it out");
            Err(errors)
        }
    }
}
