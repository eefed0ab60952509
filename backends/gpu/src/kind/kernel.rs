//! The kind `kernel`: runs a program that the graph brings along.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "wgpu")]
mod shader;

use super::DEVICES;
use crate::base::LONGEST_CALL;
use crate::kernel::{Expression, KernelConfig, Language, Symbols};
use limen::backend::{BackendError, Prepared, Signature, TensorSpec};
use limen::files::FileError;
use limen::infer::{DeviceSide, DeviceUse, Infer, InferPlan};
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Connected, Extensions, PlanErrors, Planning};
use limen::unit::{show_bytes, show_ns};
use limen_infer::BackendOptions;
use limen_infer::{Case, Tolerance};
use std::io::ErrorKind;

/// Registers kernels of the user's own on a device, as `kind: kernel`.
#[derive(Debug)]
pub struct KernelKind;

/// A source has at most this many bytes.
const MAX_SOURCE: u64 = 1 << 20;
/// Compiled code has at most this many.
const MAX_CODE: u64 = 64 << 20;

/// What every kernel has.
struct Ports {
    symbols: Symbols,
    signature: Signature,
    /// Workgroups or blocks along each dim.
    groups: [u32; 3],
    /// Outputs that begin as a copy of an input, by their numbers.
    in_place: Vec<(usize, usize)>,
}

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
                let why = format!("the graph is not allowed to run the kernel `{}`", config.source);
                errors.at("source", why).help(format!("{how} if you trust the graph"));
            }
        }
        let limit = config.time_limit.map(|limit| limit.as_nanos());
        if let Some(limit) = limit.filter(|limit| !(1..=LONGEST_CALL.as_nanos() as u64).contains(limit)) {
            let (most, limit) = (LONGEST_CALL.as_secs(), show_ns(limit));
            errors
                .at("time_limit", format!("`time_limit` must be above 0 s and at most {most} s, got {limit}"))
                .help("write a time such as `500ms`");
        }
        let language = check_device(&config, &mut errors);
        let most = if language == Some(Language::Cubin) { MAX_CODE } else { MAX_SOURCE };
        let source = source(&config.source, most, cx);
        let source = source.map_err(|(why, help)| _ = errors.at("source", why).help(help)).ok();
        match config.device() {
            #[cfg(feature = "wgpu")]
            "wgpu" => shader::plan(&config, source, given, errors, cx),
            #[cfg(feature = "cuda")]
            "cuda" => cuda::plan(&config, language.zip(source), given, errors, cx),
            _ => {
                // Its ports all the same, for what is wrong with them.
                let _ = source;
                ports(&config, given, &mut errors)?;
                Err(errors)
            }
        }
    }

    fn device(config: &KernelConfig, _: &Extensions) -> Option<DeviceUse> {
        Some(DeviceUse { device: config.device().into(), side: DeviceSide::Both, is_optional: false })
    }
}

/// Returns the language of the source, if this program has the device that runs it.
fn check_device(config: &KernelConfig, errors: &mut PlanErrors) -> Option<Language> {
    let (device, language) = (config.device(), config.language());
    match DEVICES.into_iter().find(|(name, ..)| *name == device) {
        None => {
            let message = format!("`device` must be `wgpu` or `cuda`, got `{device}`");
            errors.at("device", message).help("write `device: wgpu` or `device: cuda`");
        }
        Some((_, false, help)) => {
            let field = if config.device.is_some() { "device" } else { "source" };
            errors.at(field, format!("this program was built without the device `{device}`")).help(help);
        }
        Some(_) => {}
    }
    let of = language.filter(|language| language.device() == device);
    // A shader may have any name.
    if of.is_none() && (language.is_some() || device == "cuda") {
        let ends = if device == "cuda" { "`.cu`, `.ptx` or `.cubin`" } else { "`.wgsl`" };
        let message = format!("`source` must be a file {ends} for `device: {device}`, got `{}`", config.source);
        errors.at("source", message).help(format!("name a file {ends}, or write another `device`"));
    }
    of
}

/// Returns what every kernel has; problems are reported.
///
/// # Errors
/// If an input is not connected, from which lengths would follow.
fn ports(config: &KernelConfig, given: &Connected, errors: &mut PlanErrors) -> Result<Ports, PlanErrors> {
    if config.inputs.is_empty() {
        errors.at("inputs", "`inputs` must have at least 1 entry, got 0").help("write `inputs: { x: [h, w] }`");
        return Err(std::mem::take(errors));
    }
    let is_missing = |port: &&String| connected(config, given, port).is_none();
    for port in config.inputs.keys().filter(is_missing) {
        let message = format!("expected messages of a known type at `{port}`, found none");
        errors.input(port, message).help(format!("connect an output to `{port}`"));
    }
    if config.inputs.keys().any(|port| is_missing(&port)) {
        return Err(std::mem::take(errors));
    }
    let symbols = symbols(config, given, errors);
    let signature = signature(config, given, &symbols, errors);
    let groups = grid("grid", &config.grid, &symbols, errors);
    let in_place = in_place(config, &signature, errors);
    Ok(Ports { symbols, signature, groups, in_place })
}

/// Reports fields that are for another device.
fn refuse_fields(of: &str, fields: &[(&str, bool)], errors: &mut PlanErrors) {
    for (field, _) in fields.iter().filter(|(_, is_given)| *is_given) {
        errors.at(*field, format!("`{field}` requires a kernel of {of}")).help(format!("remove `{field}`"));
    }
}

/// Returns an error of a kernel without what it is to a backend.
fn plain(error: BackendError) -> String {
    match error {
        BackendError::Unsupported(why) => why,
        error => error.to_string(),
    }
}

/// Reads a source.
///
/// # Errors
/// The message and the help.
fn source(path: &str, most: u64, cx: &Planning<'_>) -> Result<Vec<u8>, (String, String)> {
    let mut file = cx.folders.open(path).map_err(|error| match error {
        FileError::NotFetched { message, help } => (message, help),
        error => (
            format!("`{path}`: {}", std::io::Error::from(error)),
            "name a file below the graph's folder: `.wgsl`, `.cu`, `.ptx` or `.cubin`".into(),
        ),
    })?;
    file.read_whole(most).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => (
            format!("`{path}` must be at most {}, got more", show_bytes(most)),
            "write the path of a smaller file".into(),
        ),
        _ => (format!("`{path}` cannot be read: {error}"), "write the path of a file that can be read".into()),
    })
}

/// Returns a source as text.
fn text(config: &KernelConfig, source: Vec<u8>, errors: &mut PlanErrors) -> Option<String> {
    let no_text = |_| {
        let message = format!("`{}` is not UTF-8 text", config.source);
        errors.at("source", message).help(format!("save `{}` as UTF-8", config.source));
    };
    String::from_utf8(source).map_err(no_text).ok()
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
                .input(port, format!("expected a fixed shape, found {spec}"))
                .help("put a `pad` node upstream of this node");
            continue;
        };
        if shape.len() != dims.len() {
            let message = format!("`inputs.{port}` must have one name per dim of {spec}, got {}", dims.len());
            errors.at(format!("inputs.{port}"), message).help("write one name for each dim, such as `[h, w]`");
            continue;
        }
        for (dim, length) in std::iter::zip(dims, shape) {
            let length = length as i64;
            let before = match dim.name() {
                Some(name) => *symbols.entry(name.into()).or_insert(length),
                None => match dim.value(&Symbols::new()) {
                    Ok(fixed) => fixed,
                    Err(_) => {
                        let message = format!("expected a name or a number, found `{dim}`");
                        errors.at(format!("inputs.{port}"), message).help("write a name such as `h`");
                        continue;
                    }
                },
            };
            if before != length {
                let message = format!("dim `{dim}` must be {before}, got {length} in `{port}`, {spec}");
                errors
                    .at(format!("inputs.{port}"), message)
                    .help("write different names for dims of different lengths");
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
            let message = format!("expected elements of f32, i32 or u8, found {}", spec.dtype);
            errors.input(port, message).help("put a `cast` node upstream of this node");
        }
        inputs.push(TensorSpec { name: port.clone(), dtype: spec.dtype, shape: spec.shape.clone() });
    }
    let mut outputs = Vec::new();
    for (port, output) in &config.outputs {
        let shape: Result<Vec<Dim>, String> =
            output.shape.iter().map(|dim| dim.length(symbols).map(Dim::Fixed)).collect();
        let is_cuda = config.device() == "cuda";
        let is_possible = match output.dtype {
            DType::F32 | DType::I32 => true,
            dtype => is_cuda && dtype == DType::U8,
        };
        if !is_possible {
            let given = if is_cuda { "f32, i32 or u8" } else { "f32 or i32" };
            let message = format!("`outputs.{port}.dtype` must be {given}, got {}", output.dtype);
            errors
                .at(format!("outputs.{port}.dtype"), message)
                .help("write `dtype: f32`, and put a `cast` node downstream of this node");
        }
        match shape {
            Ok(shape) => outputs.push(TensorSpec { name: port.clone(), dtype: output.dtype, shape }),
            Err(why) => {
                let help = "write lengths of at least 1, or expressions of dims that `inputs` names";
                errors.at(format!("outputs.{port}.shape"), why).help(help);
            }
        }
    }
    Signature { inputs, outputs, max_batch: Some(1) }
}

/// Returns how many there are along each dim.
fn grid(field: &str, lengths: &[Expression], symbols: &Symbols, errors: &mut PlanErrors) -> [u32; 3] {
    let mut groups = [1; 3];
    if lengths.is_empty() || lengths.len() > 3 {
        let message = match lengths.len() {
            0 => format!("`{field}` is missing"),
            n => format!("`{field}` must have 1 to 3 numbers, got {n}"),
        };
        errors.at(field, message).help("write one number for each of 1 to 3 dims, such as `[16, 16]`");
        return groups;
    }
    for (groups, written) in groups.iter_mut().zip(lengths) {
        let too_large = |n: usize| format!("`{written}` must be at most {}, got {n}", u32::MAX);
        let found = written.length(symbols).and_then(|n| u32::try_from(n).map_err(|_| too_large(n)));
        match found {
            Ok(n) => *groups = n,
            Err(why) => {
                let help = "write numbers from 1 to 4294967295, or expressions of dims that `inputs` names, such as \
                            `ceil_div(h, 16)`";
                errors.at(field, why).help(help);
            }
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
                .at(field, format!("expected an output and an input of the node, found `{output}: {input}`"))
                .help("write `OUTPUT: INPUT` with names of `outputs` and `inputs`");
            continue;
        };
        let (to_spec, from_spec) = (&signature.outputs[to], &signature.inputs[from]);
        if (to_spec.dtype, &to_spec.shape) != (from_spec.dtype, &from_spec.shape) {
            let show = |port: &TensorSpec| PortSpec::new(port.dtype, port.shape.iter().cloned()).to_string();
            let message = format!("type mismatch: `{output}` is {}, `{input}` is {}", show(to_spec), show(from_spec));
            let help = format!("change `outputs.{output}`, or remove `in_place.{output}`");
            errors.at(field, message).help(help);
            continue;
        }
        pairs.push((to, from));
    }
    pairs
}

/// Runs the recorded case.
fn verify(
    config: &KernelConfig,
    file: &str,
    prepared: &impl Prepared,
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
            errors.at("verify", why).help(format!("record `{file}` again, or remove `verify`"));
            Err(errors)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_the_device_says_how_to_build_one_with_it() {
        for ((device, is_built, way), source) in DEVICES.into_iter().zip(["k.wgsl", "k.cu"]) {
            if is_built {
                continue;
            }
            let text = format!(
                "version: 1\nnodes:\n  a: {{ kind: inlet, config: {{ spec: \"f32[3]\" }} }}\n  k:\n    kind: kernel\n    \
                 config: {{ source: {source}, inputs: {{ x: [n] }}, outputs: {{ y: {{ dtype: f32, shape: [n] }} }}, grid: [1] }}\n    \
                 from: a\n  z: {{ kind: outlet, from: k }}\n"
            );
            let spec = limen::Spec::from_text(&text, "g.yaml").unwrap();
            let problems = limen::Plan::new(spec, &crate::register(limen_infer::register(limen::Registry::new())))
                .unwrap_err()
                .to_string();
            let expected = format!("built without the device `{device}`");
            assert!(problems.contains(&expected) && problems.contains(way), "{problems}");
        }
    }
}
