//! Kernels of CUDA.

use super::{Ports, grid, plain, ports, refuse_fields, text, verify};
use crate::backend::{
    CudaApi, CudaArgument, CudaKernel, CudaKernelModel, CudaSource, IsolatedCuda, KernelCode, KernelDevice,
    isolated_device, port_bytes, shared_cuda_device,
};
use crate::device::SharedDevice;
use crate::kernel::{KernelArgument, KernelConfig, Language, Symbols};
use limen::backend::{Backend, BackendError, Signature};
use limen::infer::{Batch, DeviceSide, InferPlan};
use limen::node::{Connected, Cost, PlanErrors, Planning};
use limen::policy::Isolation;
use limen::unit::show_bytes;
use limen_infer::BackendOptions;
use std::sync::Arc;
use std::time::Duration;

/// The most blocks along each dim, as every GPU has them.
const MAX_BLOCKS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
/// The most threads of a block along each dim.
const MAX_THREADS: [u32; 3] = [1024, 1024, 64];

/// Plans a kernel of CUDA.
///
/// # Errors
/// All that is wrong with it, and with what was found before.
pub(super) fn plan(
    config: &KernelConfig,
    source: Option<(Language, Vec<u8>)>,
    given: &Connected,
    mut errors: PlanErrors,
    cx: &Planning<'_>,
) -> Result<InferPlan, PlanErrors> {
    let language = config.language();
    refuse_fields("WGSL", &[("constants", !config.constants.is_empty())], &mut errors);
    refuse_fields(
        "CUDA C",
        &[("defines", !config.defines.is_empty() && language != Some(Language::CudaC))],
        &mut errors,
    );
    let Some(entry) = &config.entry else {
        errors
            .at("entry", "`entry` is missing")
            .help("write the kernel's name as `entry: NAME`, and declare `NAME` as `extern \"C\" __global__`");
        ports(config, given, &mut errors)?;
        return Err(errors);
    };
    let Ports { symbols, signature, groups: blocks, in_place } = ports(config, given, &mut errors)?;
    let threads = grid("block", &config.block, &symbols, &mut errors);
    for (field, numbers, most) in [("grid", blocks, MAX_BLOCKS), ("block", threads, MAX_THREADS)] {
        let along = ["x", "y", "z"].into_iter().zip(numbers).zip(most);
        for ((axis, number), most) in along.filter(|((_, number), most)| number > most) {
            let message = format!("`{field}` must be at most {most} along {axis}, got {number}");
            errors.at(field, message).help(format!("write at most {most}, and let each thread compute more elements"));
        }
    }
    let shared = config.shared.as_ref().map(|shared| shared.length(&symbols)).transpose().and_then(|bytes| {
        let bytes = bytes.unwrap_or(0);
        u32::try_from(bytes).map_err(|_| format!("`shared` must be at most {} bytes, got {bytes}", u32::MAX))
    });
    let help = "write the size of the shared memory per block in bytes, such as 1024";
    let shared = shared.map_err(|why| _ = errors.at("shared", why).help(help)).unwrap_or(0);
    let arguments = arguments(config, &signature, &in_place, &symbols, &mut errors);
    let defines = defines(config, &symbols, &mut errors);
    let source = source.and_then(|(language, bytes)| {
        Some(match language {
            Language::CudaC => CudaSource::Text(text(config, bytes, &mut errors)?, defines),
            Language::Ptx => CudaSource::Ptx(text(config, bytes, &mut errors)?),
            Language::Cubin | Language::Wgsl => CudaSource::Code(bytes),
        })
    });
    errors.into_result(())?;
    let Some(source) = source else { return Err(PlanErrors::default()) };
    let code = KernelCode {
        name: config.source.clone(),
        source,
        entry: entry.clone(),
        arguments,
        blocks,
        threads,
        shared,
        inputs: signature.inputs.len(),
        outputs: signature.outputs.iter().map(port_bytes).collect(),
        in_place,
    };
    let options = BackendOptions::of(cx);
    match options.isolation {
        Isolation::Process => prepare::<IsolatedCuda>(config, code, signature, isolated_device(&options), cx),
        _ => prepare::<CudaApi>(config, code, signature, shared_cuda_device(&options), cx),
    }
}

/// Prepares a kernel on a device.
fn prepare<A: KernelDevice>(
    config: &KernelConfig,
    code: KernelCode,
    signature: Signature,
    device: Arc<SharedDevice<A>>,
    cx: &Planning<'_>,
) -> Result<InferPlan, PlanErrors> {
    let (blocks, threads, shared) = (code.blocks, code.threads, code.shared);
    let model = CudaKernelModel {
        code: Arc::new(code),
        signature,
        time_limit: config.time_limit.map(|limit| Duration::from_nanos(limit.as_nanos())),
        device: device.clone(),
        cache: BackendOptions::of(cx).cache.clone(),
    };
    let mut errors = PlanErrors::default();
    let prepared = CudaKernel::<A>::prepare(model).map_err(|error| {
        let help = match &error {
            BackendError::Unavailable(_) => "run on a machine with an NVIDIA GPU and driver, or remove the node".into(),
            _ => format!(
                "correct the source in `{}`, or match `entry`, `arguments`, `block` and `shared` to the source",
                config.source
            ),
        };
        errors.at("source", format!("`{}`: {}", config.source, plain(error))).help(help);
        errors
    })?;
    let show = |numbers: [u32; 3]| numbers.map(|number| number.to_string()).join(" x ");
    let info = prepared.info();
    let note = format!(
        "{} blocks of {} threads (at most {}); {} registers and {} of local memory per thread, {} of shared memory per block",
        show(blocks),
        show(threads),
        info.threads,
        info.registers,
        show_bytes(info.local as u64),
        show_bytes(info.shared as u64 + u64::from(shared)),
    );
    let note = match A::IS_APART {
        true => format!("{note}; in a separate process"),
        false => note,
    };
    let verified = config.verify.as_ref().map(|file| verify(config, file, &prepared, cx)).transpose()?;
    let plan = InferPlan::new::<CudaKernel<A>>(Arc::new(prepared), Batch::default()).cost(Cost::Medium).note(note);
    let plan = verified.into_iter().fold(plan, InferPlan::note);
    Ok(plan.on_device(device, DeviceSide::Both, A::CALLS))
}

/// Returns what the kernel gets.
fn arguments(
    config: &KernelConfig,
    signature: &Signature,
    in_place: &[(usize, usize)],
    symbols: &Symbols,
    errors: &mut PlanErrors,
) -> Vec<CudaArgument> {
    let ports: Vec<&str> = signature.inputs.iter().chain(&signature.outputs).map(|port| &*port.name).collect();
    let names = || ports.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut found = Vec::new();
    for (at, argument) in config.arguments.iter().enumerate() {
        let field = format!("arguments.{at}");
        match argument {
            KernelArgument::Port(name) => match ports.iter().position(|port| port == name) {
                Some(port) => found.push(CudaArgument::Port(port)),
                None => {
                    let message = format!("expected a port ({}), found `{name}`", names());
                    errors
                        .at(field, message)
                        .help("write the name of a port, or a number with a type such as `{ i32: h }`");
                }
            },
            KernelArgument::Number(number) => match number.bytes(symbols) {
                Ok(bytes) => found.push(CudaArgument::Number { bytes, size: number.size() }),
                Err(why) => {
                    let help = "write a number that fits the type, or an expression of dims that `inputs` names";
                    errors.at(field, why).help(help);
                }
            },
        }
    }
    if config.arguments.is_empty() {
        let help =
            format!("write the kernel's parameters in order: ports ({}), and numbers such as `{{ i32: 5 }}`", names());
        errors.at("arguments", "`arguments` is missing").help(help);
        return found;
    }
    let is_copied = |port: usize| in_place.iter().any(|(_, from)| *from == port);
    let is_given = |port: usize| found.iter().any(|argument| matches!(argument, CudaArgument::Port(at) if *at == port));
    for (at, name) in ports.iter().enumerate().filter(|(at, _)| !is_given(*at) && !is_copied(*at)) {
        let side = if at < signature.inputs.len() { "inputs" } else { "outputs" };
        let message = format!("`arguments` must name `{name}`");
        let help = format!("write `{name}` in `arguments`, in the place of the kernel's pointer");
        errors.at(format!("{side}.{name}"), message).help(help);
    }
    found
}

/// Returns macros as options of the compiler.
fn defines(config: &KernelConfig, symbols: &Symbols, errors: &mut PlanErrors) -> Vec<String> {
    let mut options = Vec::new();
    for (name, value) in &config.defines {
        let field = format!("defines.{name}");
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !is_name {
            let help = "write letters, digits and `_`, starting with a letter or `_`";
            errors.at(&*field, format!("`{name}` is not a valid macro name")).help(help);
            continue;
        }
        match value.text(symbols) {
            Ok(text) => options.push(format!("-D{name}={text}")),
            Err(why) => _ = errors.at(field, why).help("write a number, or an expression of dims that `inputs` names"),
        }
    }
    options
}
