//! Chooses a runtime for a model.

use super::backend_name::{AUTO, ORT};
use super::candidate::{Candidate, PlanRequest, Refused};
use super::config::{BatchDim, InferConfig, RecordedModel, Require};
use super::dispatch::Dispatch;
use super::inputs::ModelInputs;
use super::model_file::{ModelFiles, read_model, unreadable};
use super::order::order;
use super::provider::OrtDevice;
use super::registered::CPU;
use super::runtimes::Runtimes;
use super::verdict::RuntimeVerdict;
use crate::base::BackendOptions;
use crate::cache::{Calibration, Measured, MeasuredTime, Measurement};
use crate::inspect::{Inspection, read_manifest};
use crate::onnx::{Elem, NARROWS_FLOATS, Outline, UncheckedModel};
use crate::steps::TrialSteps;
use limen::backend::Requirements;
use limen::files::{FileError, memory_name, remote_scheme};
use limen::infer::InferPlan;
use limen::node::{Connected, PlanErrors, Planning};
use limen::unit::{Span, show_ns};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Plans the model on the configured runtime, or with `auto` on the first that can run it.
/// Everything that runs the model's code is a step of a trial. The file is read here unless `file`
/// holds it: every runtime gets the bytes that were checked.
pub(crate) fn choose(
    config: &InferConfig,
    model: &str,
    given: &Connected,
    cx: &Planning<'_>,
    recorded: RecordedModel,
    steps: &TrialSteps,
    file: Option<UncheckedModel>,
) -> Result<InferPlan, PlanErrors> {
    let mut errors = PlanErrors::default();
    steps.announce(None, "was read");
    let file = match file {
        Some(file) => file,
        None => read_model(model, cx)?,
    };
    let artifact = file.artifact(&|size| steps.announce_size(size)).map_err(|error| unreadable(model, &error))?;
    let artifact = match config.batch_dim {
        BatchDim::First => artifact,
        BatchDim::None => artifact.without_batch(),
    };
    let (outline, size) = (artifact.outline.clone(), artifact.size());
    for file in outline.files.keys().filter(|_| memory_name(model).is_none() && remote_scheme(model).is_none()) {
        // The files were read already; this registers them, so that no node of the graph may write
        // to them.
        let _ = cx.folders.admit_input(&Path::new(model).with_file_name(file).to_string_lossy());
    }
    if let Err(key) = steps.check_files(outline.sums(), size, recorded.sums()) {
        let file = match key {
            "model" => Some(model),
            "trial" => config.trial_file(),
            _ => config.verify.as_ref().and_then(|verify| verify.case.as_deref()),
        };
        let file = file.unwrap_or_default();
        errors
            .at(key, format!("`{file}` changed while the model was tried"))
            .help(format!("start again when no other process writes to `{file}`"));
        return Err(errors);
    }
    check_identity(config, model, &outline, cx)?;
    let options = BackendOptions::of(cx);
    let options = &*options;
    check_narrowing(config, model, &outline, &mut errors);
    let runtimes = Runtimes::of(cx.extensions);
    let candidates = runtimes.candidates(config, options);
    let needed = required(Require::default(), config, &outline);
    let required = required(config.require.clone().unwrap_or_default(), config, &outline);
    check_compared(config, &candidates, &needed, &mut errors);
    let inputs = match ModelInputs::of(config, &outline, given, &recorded) {
        Ok(inputs) => {
            check_batch_ranges(config, &outline, &inputs, &mut errors);
            errors.into_result(inputs)?
        }
        Err(others) => {
            errors.append(others);
            return Err(errors);
        }
    };
    let inputs = &inputs;
    // A case, or a comparison with another backend, shows whether the model's numbers are right all
    // the same.
    let is_verified = |candidate: &Candidate<'_>| {
        let is_other = |against: &str| {
            let called = candidates.iter().find(|other| other.is_called(against));
            called.is_some_and(|other| other.backend != candidate.backend)
        };
        let Some(verify) = &config.verify else { return false };
        verify.case.is_some() || verify.against.as_deref().is_some_and(is_other)
    };
    let cache = options.cache.as_deref();
    let mut table = cache.map(Calibration::read).unwrap_or_default();
    let sums = outline.sums().into_values().collect::<Vec<_>>().join(" ");
    let measured = Measured::new(&sums, given, config.threads, config.batch.max, &config.call_options());
    let judged = |candidate: &Candidate<'_>, is_asked: bool, table: &Calibration| {
        // Looking for the drivers of a device takes time.
        let is_unmeasured = || !options.calibrate && !table.has(&measured, candidate.name);
        if candidate.needs_measuring(config) && candidate.built.is_some() && is_unmeasured() {
            return RuntimeVerdict::NotMeasured;
        }
        let verdict = candidate.verdict_if_asked(&required, is_asked);
        if verdict != RuntimeVerdict::Fits {
            return verdict;
        }
        if let Some(why) = steps.failed(candidate.name) {
            return RuntimeVerdict::Failed(why);
        }
        let refusals = candidate.refusals(&outline.ops);
        if !refusals.is_empty() {
            return RuntimeVerdict::Refuses(refusals);
        }
        // A device that the node does not name computes what ONNX defines, or is not used.
        let is_named = candidate.computes_on == CPU || candidate.serves(config);
        let is_free = is_named && is_verified(candidate);
        let deviations = if is_free { Vec::new() } else { candidate.deviations(&outline.ops) };
        let is_narrowing = |what: &str| what == NARROWS_FLOATS && config.allow_narrowing;
        let deviations = deviations.into_iter().filter(|(_, what)| !is_narrowing(what));
        let deviations = deviations.map(|(op, what)| format!("{} {what} (node `{}`)", op.id, op.node));
        let rounds = if is_named { None } else { candidate.device.rounds(&BTreeMap::new()) };
        match deviations.chain(rounds.map(|(_, what)| what.to_string())).collect::<Vec<_>>() {
            none if none.is_empty() => verdict,
            some => RuntimeVerdict::Deviates(some),
        }
    };
    let is_asked = |candidate: &Candidate<'_>| candidate.is_asked(config) || options.calibrate;
    let mut verdicts: Vec<(Candidate<'_>, RuntimeVerdict)> =
        candidates.iter().map(|candidate| (*candidate, judged(candidate, is_asked(candidate), &table))).collect();
    let is_compared = config.verify.as_ref().is_some_and(|verify| verify.against.is_some())
        || config.shadow.is_some()
        || config.fallback.is_some();
    let is_shared = config.serving() == AUTO || is_compared || options.calibrate;
    let files = ModelFiles::new(artifact, is_shared);
    let job = PlanRequest {
        config,
        options,
        runtimes,
        candidates: &candidates,
        inputs,
        model,
        files,
        recorded,
        required: needed,
        steps,
    };
    let mut notes = Vec::new();
    if let Some(folder) = cache.filter(|_| options.calibrate) {
        calibrate(&mut table, &verdicts, &job, &measured, &mut notes);
        if let Err(error) = table.write(folder) {
            notes.push(format!("the measured times cannot be written to `{}`: {error}", folder.display()));
        }
    }
    if config.serving() == AUTO {
        for (candidate, verdict) in verdicts.iter_mut().filter(|(candidate, _)| candidate.needs_measuring(config)) {
            if *verdict == RuntimeVerdict::Fits {
                *verdict = by_measurement(candidate, &table, &measured);
            }
        }
        notes.push(order(&mut verdicts, &table, &measured));
    }
    let planned = first_that_plans(&mut verdicts, &job, &outline, &table, &measured)?;
    if let Some(mut plan) = planned {
        if config.serving() == AUTO {
            plan = passed_over(&verdicts, &table, &measured).into_iter().fold(plan, InferPlan::notice);
        }
        // It was compared with, so it was called.
        let against = config.verify.as_ref().and_then(|verify| verify.against.as_deref());
        for (_, verdict) in
            verdicts.iter_mut().filter(|(candidate, _)| against.is_some_and(|against| candidate.is_called(against)))
        {
            *verdict = RuntimeVerdict::Runs;
        }
        let why =
            "the output must be a tensor, got a sequence or a map: export a tensor (scikit-learn: `zipmap: False`)";
        let plan = outline.left_out.iter().fold(plan, |plan, port| plan.left_out(port, why));
        return Ok(describe(&verdicts).into_iter().chain(notes).fold(plan, InferPlan::note));
    }
    // To suggest another backend, a library that was not asked for is loaded too.
    let asked = verdicts.into_iter().map(|(candidate, verdict)| match verdict {
        RuntimeVerdict::NotAsked => (candidate, judged(&candidate, true, &table)),
        verdict => (candidate, verdict),
    });
    Err(none_fits(&asked.collect::<Vec<_>>(), config, model))
}

/// Compares a model's files with the node's `sha256` and `manifest`.
fn check_identity(config: &InferConfig, model: &str, outline: &Outline, cx: &Planning<'_>) -> Result<(), PlanErrors> {
    let mut errors = PlanErrors::default();
    if let Some(sum) = &config.sha256
        && let Err(why) = outline.check_sum(sum)
    {
        errors
            .at("sha256", format!("`{model}` {why}"))
            .help("if the change is intended, write the SHA-256 of the new file in `sha256`");
        return Err(errors);
    }
    if config.sha256.is_some()
        && config.manifest.is_none()
        && let Some(file) = outline.files.keys().next()
    {
        errors.at("sha256", format!("`sha256` covers `{model}`, but not its weights in `{file}`")).help(
            "run `limen-run inspect MODEL --json > MODEL.json` and write `manifest: MODEL.json` instead of `sha256`",
        );
        return Err(errors);
    }
    if let Some(manifest) = &config.manifest {
        let help = "run `limen-run inspect MODEL --json > MODEL.json`";
        let opened = cx.folders.open(manifest).map_err(|error| match &error {
            FileError::NotFetched { help, .. } => (error.to_string(), help.clone()),
            _ => (error.to_string(), help.into()),
        });
        let read = opened
            .and_then(|mut file| read_manifest(&mut file).map_err(|why| (format!("`{manifest}` {why}"), help.into())));
        match read {
            Ok(expected) => {
                let differences = expected.differences(&Inspection::of(outline));
                if !differences.is_empty() {
                    let message = format!("`{model}` differs from `{manifest}`: {}", differences.join("; "));
                    errors.at("manifest", message).help(format!(
                        "if the change is intended, write the output of `limen-run inspect MODEL --json` to \
                         `{manifest}`"
                    ));
                }
            }
            Err((why, help)) => _ = errors.at("manifest", why).help(help),
        }
    }
    errors.into_result(())
}

/// Checks that no input loses digits on its way into the model, and no output on its way out.
fn check_narrowing(config: &InferConfig, model: &str, outline: &Outline, errors: &mut PlanErrors) {
    if config.allow_narrowing {
        return;
    }
    for input in outline.inputs.iter().filter(|input| input.elem == Elem::F64) {
        errors
            .at("model", format!("`{model}` expects `f64` at `{}`, found `f32`", input.port))
            .help("export the model with `f32` inputs, or write `allow_narrowing: true` if seven digits are enough");
    }
    for output in outline.outputs.iter().filter(|output| output.elem == Some(Elem::F64)) {
        errors
            .at("model", format!("expected `f32` at output `{}` of `{model}`, found `f64`", output.port))
            .help("export the model with `f32` outputs, or write `allow_narrowing: true` if seven digits are enough");
    }
}

/// Checks that this program has the backends that the one that serves is compared with.
fn check_compared(config: &InferConfig, candidates: &[Candidate<'_>], needed: &Requirements, errors: &mut PlanErrors) {
    for (key, name) in config.compared() {
        let Some(candidate) = candidates.iter().find(|candidate| candidate.is_called(name)) else { continue };
        // `require:` is about the backend that serves.
        let verdict = candidate.verdict(needed);
        let way = match &verdict {
            RuntimeVerdict::NotBuilt(feature) => way_to_build(feature),
            RuntimeVerdict::Unavailable(_) if candidate.backend == ORT => {
                "name the library of ONNX Runtime with `--onnxruntime FILE`".into()
            }
            RuntimeVerdict::Unavailable(_) => format!("install what `{name}` requires"),
            _ => continue,
        };
        let message = format!("the backend of `{key}`: `{}` {verdict}", candidate.name);
        errors.at(key, message).help(format!("{way}, name another backend, or remove `{key}`"));
    }
}

/// Operators that scale by the range of all their elements, which are those of a whole batch.
const RANGED: [&str; 3] =
    ["DynamicQuantizeLinear", "com.microsoft.DynamicQuantizeLSTM", "com.microsoft.DynamicQuantizeMatMul"];

/// Checks that the numbers of an item do not depend on the others in its call, unless a case shows
/// that it does not matter.
fn check_batch_ranges(config: &InferConfig, outline: &Outline, inputs: &ModelInputs, errors: &mut PlanErrors) {
    let is_shown = config.batch.max <= 1 || inputs.has_batch_case;
    if let Some(op) = outline.ops.iter().find(|op| !is_shown && RANGED.contains(&op.id.as_str())) {
        let (id, node) = (&op.id, &op.node);
        let message = format!(
            "{id} (node `{node}`) scales by the range of a whole batch: an item's numbers depend on the call's other items"
        );
        errors.at("batch.max", message).help(batch_advice(config));
    }
}

/// Returns what to write if the items of a call may change each other's numbers.
pub(super) fn batch_advice(config: &InferConfig) -> &'static str {
    match config.state.is_empty() {
        true => "write `max: 1`, or `verify: { case: FILE.npz }` with a recorded case of at least two different items",
        // The items of such a case are successive steps of one stream.
        false => "write `max: 1`",
    }
}

/// Returns whether `auto` may select a runtime on a device that fits.
fn by_measurement(candidate: &Candidate<'_>, table: &Calibration, measured: &Measured) -> RuntimeVerdict {
    match table.get(measured, candidate.name, &candidate.version()) {
        Some(MeasuredTime::Ns(_)) => RuntimeVerdict::Fits,
        Some(MeasuredTime::Differs(what)) => RuntimeVerdict::Differs(what.clone()),
        None => RuntimeVerdict::NotMeasured,
    }
}

/// Returns notices about runtimes that were measured to be faster than the one that runs the model,
/// and why they do not run it.
fn passed_over(verdicts: &[(Candidate<'_>, RuntimeVerdict)], table: &Calibration, of: &Measured) -> Vec<String> {
    let Some((chosen, _)) = verdicts.iter().find(|(_, verdict)| *verdict == RuntimeVerdict::Runs) else {
        return Vec::new();
    };
    let least = |candidate: &Candidate<'_>| table.least(of, candidate.name);
    let faster = verdicts.iter().filter(|(candidate, verdict)| {
        let is_refused = !matches!(verdict, RuntimeVerdict::Fits | RuntimeVerdict::Differs(_));
        is_refused && least(candidate).is_some_and(|ns| least(chosen).is_none_or(|of_chosen| ns < of_chosen))
    });
    let notice = |(candidate, verdict): &(Candidate<'_>, RuntimeVerdict)| {
        let why = match verdict {
            RuntimeVerdict::NotMeasured => {
                "has another version now: run `limen-run calibrate GRAPH --cache DIR`".into()
            }
            verdict => verdict.to_string(),
        };
        format!("`auto` selected `{}`: `{}` was measured to be faster, but {why}", chosen.name, candidate.name)
    };
    faster.map(notice).collect()
}

/// Returns what the model and its calls require of a runtime, in addition to `require:`.
fn required(require: Require, config: &InferConfig, outline: &Outline) -> Requirements {
    let mut required = require.requirements();
    required.max_batch = required.max_batch.max(config.batch.max);
    required.threads = config.threads;
    required.memory.push(limen::message::Memory::Host);
    for input in &outline.inputs {
        required.dtypes.push((input.elem.dtype(), format!("input `{}`", input.port)));
        required.max_rank = required.max_rank.max(input.item(input.batch_dim()).len());
    }
    required.ops.extend(outline.ops.iter().map(|op| (op.id.clone(), op.node.clone())));
    required
}

/// Returns the plan of the first runtime that fits, is asked for and can load the model. The
/// verdicts of the others say why not.
fn first_that_plans(
    verdicts: &mut [(Candidate<'_>, RuntimeVerdict)],
    job: &PlanRequest<'_>,
    outline: &Outline,
    table: &Calibration,
    measured: &Measured,
) -> Result<Option<InferPlan>, PlanErrors> {
    let PlanRequest { config, steps, .. } = job;
    let operators = Inspection::of(outline).operators;
    // What has to change in the node for the first runtime that could run its model then.
    let mut refused = None;
    // What the first runtime says of a call, if all that were tried refuse one.
    let (mut call, mut only_calls) = (None, true);
    for (candidate, verdict) in verdicts {
        let is_asked = config.serving() == AUTO || candidate.serves(config);
        if !is_asked || *verdict != RuntimeVerdict::Fits {
            continue;
        }
        if !steps.admits(candidate.name) {
            *verdict = RuntimeVerdict::Failed(vec!["the model was not tried".into()]);
            continue;
        }
        match candidate.plan(job) {
            Ok(plan) => {
                *verdict = RuntimeVerdict::Runs;
                let dispatch = candidate.dispatch(operators.keys().map(String::as_str), &outline.ops).of_loaded();
                let n = operators.len();
                let mut note = format!("{n} operator{}", if n == 1 { "" } else { "s" });
                if !matches!(dispatch, Dispatch::Unsaid { .. }) {
                    note = format!("{note}: {dispatch}");
                }
                let unchecked = config.require.as_ref().is_some_and(|require| !require.ops.is_empty());
                let unchecked = unchecked && !candidate.lists_operators();
                let alone = table.alone(measured, candidate.name, &candidate.version());
                let plan = plan.note(note);
                let plan = match candidate.needs_measuring(config) {
                    true => plan.note("`auto`: each call copies its messages to the device and back"),
                    false => plan,
                };
                let plan = match unchecked {
                    true => plan.note(format!(
                        "`{}` does not list its operators: `require.ops` was not checked",
                        candidate.name
                    )),
                    false => plan,
                };
                return Ok(Some(match alone {
                    Some(ns) => plan.measured(Span(Duration::from_nanos(ns))),
                    None => plan,
                }));
            }
            // With a named backend no other is tried.
            Err(refused) if config.serving() != AUTO => return Err(refused.errors()),
            Err(why) => {
                match &why {
                    Refused::Node(errors) => refused = refused.or_else(|| Some(errors.clone())),
                    Refused::Call(errors) => call = call.or_else(|| Some(errors.clone())),
                    Refused::Runtime(_) => only_calls = false,
                }
                let errors = why.errors();
                let why: Vec<String> = errors.messages().map(str::to_string).collect();
                steps.fail(candidate.name, &why);
                *verdict = RuntimeVerdict::Failed(why);
            }
        }
    }
    refused.or(call.filter(|_| only_calls)).map_or(Ok(None), Err)
}

/// Returns a line about each runtime.
fn describe(verdicts: &[(Candidate<'_>, RuntimeVerdict)]) -> Vec<String> {
    verdicts.iter().map(|(candidate, verdict)| format!("`{}` {verdict}", candidate.name)).collect()
}

/// Returns how to get a runtime that is not built in.
fn way_to_build(feature: &str) -> String {
    let package = if ["wgpu", "cuda12"].contains(&feature) { "limen-gpu" } else { "limen-infer" };
    format!("build limen-run with `--features {feature}` (in a program, the feature `{feature}` of {package})")
}

/// Returns the error that no requested runtime runs the model, with what to write instead.
fn none_fits(verdicts: &[(Candidate<'_>, RuntimeVerdict)], config: &InferConfig, model: &str) -> PlanErrors {
    let mut errors = PlanErrors::default();
    let lines = describe(verdicts);
    // A backend that does not list its operators is no answer to a config that requires some.
    let asks_for_operators = config.require.as_ref().is_some_and(|require| !require.ops.is_empty());
    let fits = |(candidate, verdict): &&(Candidate<'_>, RuntimeVerdict)| {
        *verdict == RuntimeVerdict::Fits && (!asks_for_operators || candidate.lists_operators())
    };
    let fitting: Vec<String> =
        verdicts.iter().filter(fits).map(|(candidate, _)| candidate.written_in(config)).collect();
    let others = |name: &str| {
        let others = verdicts.iter().filter(|(other, verdict)| other.name != name && *verdict != RuntimeVerdict::Fits);
        let others: Vec<String> = others.map(|(other, verdict)| format!("`{}` {verdict}", other.name)).collect();
        if others.is_empty() { String::new() } else { format!(" ({})", others.join("; ")) }
    };
    match verdicts.iter().find(|(candidate, _)| candidate.serves(config)) {
        Some((candidate, RuntimeVerdict::NotBuilt(feature))) => {
            let message = format!("this program was built without the backend `{}`", candidate.name);
            let mut help = way_to_build(feature);
            if !fitting.is_empty() {
                help = format!("{help}, or write {}", fitting.join(" or "));
            }
            errors.at("backend", message).help(help + &others(candidate.name));
        }
        Some((candidate, verdict)) => {
            // A requirement of the config itself is reported at `require`.
            let asked = config.require.clone().map(|require| candidate.verdict(&require.requirements()));
            let is_asked = matches!(asked, Some(RuntimeVerdict::Lacks(_)));
            let field = match is_asked {
                true => "require",
                false if candidate.device != OrtDevice::Cpu => "provider",
                false => "backend",
            };
            let instead = match (fitting.is_empty(), is_asked) {
                _ if matches!(verdict, RuntimeVerdict::Deviates(_)) => {
                    let mut record = "write `verify: { case: FILE.npz }` with a recorded case".to_string();
                    if matches!(verdict, RuntimeVerdict::Deviates(what) if what.iter().all(|what| what.contains(NARROWS_FLOATS)))
                    {
                        record = "write `allow_narrowing: true` if seven digits are enough".into();
                    }
                    let or =
                        if fitting.is_empty() { String::new() } else { format!(", or write {}", fitting.join(" or ")) };
                    format!("{record}{or}")
                }
                (false, _) => format!("write {}", fitting.join(" or ")),
                (true, true) => "remove what the backend lacks from `require`, or use another backend".into(),
                (true, false) => "use another backend".into(),
            };
            let name = candidate.name;
            errors.at(field, format!("for `{model}`, `{name}` {verdict}")).help(instead + &others(name));
        }
        None => {
            let message = format!("no backend of this program runs `{model}`: {}", lines.join("; "));
            let is_missing = |(candidate, verdict): &(Candidate<'_>, RuntimeVerdict)| {
                candidate.backend == ORT && matches!(verdict, RuntimeVerdict::Unavailable(_))
            };
            let is_not_built =
                |(_, verdict): &(Candidate<'_>, RuntimeVerdict)| matches!(verdict, RuntimeVerdict::NotBuilt(_));
            let is_failed =
                |(_, verdict): &(Candidate<'_>, RuntimeVerdict)| matches!(verdict, RuntimeVerdict::Failed(_));
            let is_verified = config.verify.is_some() && verdicts.iter().any(is_failed);
            let ways = [
                is_verified.then_some("write a greater `atol` or `rtol` in `verify`"),
                verdicts.iter().any(is_missing).then_some("name the library of ONNX Runtime with `--onnxruntime FILE`"),
                verdicts.iter().any(is_not_built).then_some("build this program with another backend"),
                Some("export the model with other operators"),
            ];
            errors.at("backend", message).help(ways.into_iter().flatten().collect::<Vec<_>>().join(", or "));
        }
    }
    errors
}

/// Measures the model on every backend that fits, those on the CPU first.
fn calibrate(
    table: &mut Calibration,
    verdicts: &[(Candidate<'_>, RuntimeVerdict)],
    job: &PlanRequest<'_>,
    of: &Measured,
    notes: &mut Vec<String>,
) {
    // What the others are compared with.
    let mut on_cpu = None;
    for (candidate, _) in verdicts.iter().filter(|(_, verdict)| *verdict == RuntimeVerdict::Fits) {
        let (name, max, version) = (candidate.name, job.config.batch.max, candidate.version());
        let found = match candidate.measure(job, on_cpu) {
            Ok(found) => found,
            Err(why) => {
                table.forget(of, name, &version);
                notes.push(format!("`{name}` was not measured: {why}"));
                continue;
            }
        };
        let note = match &found {
            Measurement::Times([alone, together]) => {
                let mut note = format!("`{name}`: {} per item alone", show_ns(*alone));
                if max > 1 {
                    note.push_str(&format!(", {} in a batch of {max}", show_ns(*together)));
                }
                match candidate.computes_on {
                    CPU => on_cpu = on_cpu.or(Some(candidate)),
                    _ => note.push_str(", with the copies to the device and back"),
                }
                note
            }
            Measurement::Differs(what) => format!("`{name}` computed other numbers: {what}"),
        };
        table.set(of, name, &version, found);
        notes.push(note);
    }
}

#[cfg(all(test, feature = "rten"))]
mod tests;
