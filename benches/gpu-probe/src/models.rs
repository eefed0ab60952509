//! Models through tract-cuda: whether they load, whether the results are right, how fast they are, which operators stay on the CPU.
//!
//! The reference is tract's CPU runtime on the same file and inputs. Each model runs in a separate process: tract-cuda
//! keeps one context per process, and panics if it cannot.

#[cfg(not(feature = "tract"))]
use crate::Options;

/// The files in the folder given with `--models`, with the input shape of one item.
#[cfg(feature = "tract")]
const MODELS: [(&str, &[usize]); 3] = [("mlp", &[64]), ("resnet18", &[3, 224, 224]), ("former", &[64, 128])];

#[cfg(not(feature = "tract"))]
pub fn section(_: &Options) -> Result<(), String> {
    Err("built without the feature `tract`".into())
}

#[cfg(not(feature = "tract"))]
pub fn one(_: &Options, _: &str, _: &str) -> Result<(), String> {
    Err("built without the feature `tract`".into())
}

#[cfg(feature = "tract")]
pub use with_tract::{one, section};

#[cfg(feature = "tract")]
mod with_tract {
    use super::MODELS;
    use crate::Options;
    use crate::check::{self, micros, sampled};
    use crate::child::{self, End};
    use crate::report::Finding;
    use std::collections::{BTreeMap, HashMap};
    use std::path::Path;
    use std::time::{Duration, Instant};
    use tract_gpu::fact::DeviceTypedFactExt;
    use tract_onnx::prelude::*;
    use tract_onnx::tract_core::internal::bail;
    // Registers the runtime `cuda`.
    use tract_cuda as _;

    const BUDGET: Duration = Duration::from_secs(3);

    /// NVRTC compiles tract's kernels at their first use.
    const LIMIT: Duration = Duration::from_secs(400);

    pub fn section(options: &Options) -> Result<(), String> {
        if options.models.is_none() {
            return Err("no folder of models: --models".into());
        }
        for (name, _) in MODELS {
            for batch in ["1", "8"] {
                let (findings, end) =
                    child::start(child::again(&options.child(&["child", "models", name, batch]))?, LIMIT)?.findings();
                for finding in findings {
                    finding.tell();
                }
                if end != End::Done {
                    Finding::missing(format!("{name}, {batch} items"), end).tell();
                }
            }
        }
        Ok(())
    }

    /// Measures one model with one number of items.
    pub fn one(options: &Options, name: &str, batch: &str) -> Result<(), String> {
        let folder = options.models.as_deref().ok_or("no folder of models")?;
        let items: usize = batch.parse().map_err(|_| format!("`{batch}` is not a number of items"))?;
        let (_, shape) =
            MODELS.iter().find(|(known, _)| *known == name).ok_or_else(|| format!("there is no model `{name}`"))?;
        let shape: Vec<usize> = [items].iter().chain(shape.iter()).copied().collect();
        measure(&folder.join(format!("{name}.onnx")), &format!("{name}, {batch} items"), &shape).map_err(|error| {
            let parts: Vec<String> = error.chain().map(ToString::to_string).collect();
            parts.join(": ")
        })
    }

    fn measure(file: &Path, name: &str, shape: &[usize]) -> TractResult<()> {
        let model = load(file, shape[0])?;
        let values = check::random(shape.iter().product());
        let input = || -> TractResult<TVec<TValue>> { Ok(tvec!(Tensor::from_shape(shape, &values)?.into())) };
        let floats = |outputs: &TVec<TValue>| -> TractResult<Vec<f32>> {
            let output = outputs[0].cast_to::<f32>()?;
            Ok(output.to_plain_array_view::<f32>()?.iter().copied().collect())
        };

        let on_cpu = model.clone().into_optimized()?.into_runnable()?;
        let want = floats(&on_cpu.run(input()?)?)?;
        let times = sampled(10, 200, BUDGET, || {
            let began = Instant::now();
            on_cpu.run(input()?)?;
            TractResult::Ok(micros(began))
        })?;
        Finding::median(format!("{name}: tract on the CPU"), times, "us").note("one thread").tell();

        let Some(runtime) = runtime_for_name("cuda")? else { bail!("tract has no runtime `cuda`") };
        let began = Instant::now();
        let prepared = runtime.prepare(model)?;
        Finding::number(format!("{name}: prepared for the GPU"), micros(began) / 1e3, "ms", 1).tell();
        places(&*prepared, name)?;
        let mut state = prepared.spawn()?;
        let began = Instant::now();
        let got = floats(&state.run(input()?)?)?;
        Finding::number(format!("{name}: first run"), micros(began) / 1e3, "ms", 1).tell();
        let scale = want.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        // The tolerance that limen uses between two backends.
        let first = check::compare(&got, &want, 1e-3 * f64::from(scale), 0.0);
        let mut last = Vec::new();
        let times = sampled(30, 2000, BUDGET, || {
            let began = Instant::now();
            let outputs = state.run(input()?)?;
            last = floats(&outputs)?;
            TractResult::Ok(micros(began))
        })?;
        let checked = first.and(check::compare(&last, &want, 1e-3 * f64::from(scale), 0.0));
        Finding::median(format!("{name}: run, with upload and download"), times, "us")
            .note(format!("largest value {scale:.2e}"))
            .checked(&checked)
            .tell();
        Ok(())
    }

    /// Loads a model, and sets the values of its symbols afterwards: setting concrete shapes before makes some files fail.
    fn load(file: &Path, items: usize) -> TractResult<TypedModel> {
        let template = tract_onnx::onnx().model_for_path(file)?.into_typed()?.into_decluttered()?;
        let mut lengths = HashMap::new();
        for dim in template.input_fact(0)?.shape.iter() {
            if let TDim::Sym(symbol) = dim {
                lengths.insert(symbol.clone(), (items as i64).into());
            }
        }
        template.set_symbols(&lengths)
    }

    /// Counts operators by place: an operator whose output is a device tensor runs on the device.
    fn places(prepared: &dyn Runnable, name: &str) -> TractResult<()> {
        let Some(model) = prepared.typed_model() else { bail!("the prepared model cannot be looked into") };
        let (mut device, mut moves) = (0, 0);
        let mut cpu: BTreeMap<String, usize> = BTreeMap::new();
        for node in model.nodes() {
            let op = node.op.name();
            if op == "Source" || op == "Const" {
                continue;
            }
            if op.contains("Sync") {
                moves += 1;
            } else if node.outputs.iter().all(|outlet| outlet.fact.as_device_fact().is_some()) {
                device += 1;
            } else {
                *cpu.entry(op.to_string()).or_default() += 1;
            }
        }
        let names: Vec<String> = cpu.iter().map(|(op, count)| format!("{count} {op}")).collect();
        Finding::number(format!("{name}: operators on the CPU"), cpu.values().sum::<usize>() as f64, "", 1)
            .note(format!("{device} on the device, {moves} moves between them"))
            .note(names.join(", "))
            .tell();
        Ok(())
    }
}
