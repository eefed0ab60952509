//! The kind `infer`: a graph's choice of model, backend, batching and recorded case.
//!
//! Everything that can be wrong with a model node is found here, while the graph is planned, and said at once.

mod config;

use config::MAX_THREADS;
pub use config::{Choice, Config, Guard, Load, Require, RequireMemory, ShadowConfig, StateConfig, VerifyConfig};

use crate::cache;
use crate::calibration::{self, Calibration, Measured};
use crate::candidate::{Candidate, Job, ModelFiles, Verdict, order, reference, required};
use crate::caught;
use crate::in_flight::{InFlight, InFlightPrepared};
use crate::inspect::{Inspection, read_manifest};
use crate::mock::Mock;
use crate::onnx::{Loaded, ModelFile, Onnx, OnnxModel, OnnxPrepared, Runtime, State, batch_dims};
use crate::shadow::{AnySession, Comparison, Reference, ShadowPlan, compare, measure};
use crate::trial::{self, Steps};
use crate::verify::{Case, Tolerance};
use crate::weights::remote;
use limen::backend::{Backend, BackendError, Prepared};
use limen::files::FileError;
use limen::infer::InferPlan;
use limen::unit::{Span, show_bytes, show_ns};
use limen::{Given, PlanErrors, Planning};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The kind `infer`.
#[derive(Debug)]
pub struct Infer;

impl limen::infer::Infer for Infer {
    type Config = Config;

    fn plan(config: Config, given: &Given, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        let mut errors = PlanErrors::default();
        config.check(&mut errors);
        let case = config.case(cx, &mut errors);
        let planned = match (config.backend, &config.model) {
            (Choice::Mock, _) => match config.mock.clone().map(Mock::prepare) {
                Some(Ok(prepared)) => {
                    let least = prepared.least();
                    plan::<Mock>(&config, prepared, None, case.as_ref(), &Steps::default())
                        .map(|plan| plan.takes(least))
                }
                // Said above, field by field.
                _ => return Err(errors),
            },
            (_, None) => return Err(errors),
            (_, Some(model)) => trial::planned(&config, model, given, cx, case),
        };
        match planned {
            Ok(plan) => errors.into_result(plan),
            Err(others) => {
                errors.append(others);
                Err(errors)
            }
        }
    }
}

/// Reads a model's file, where it may lie.
pub(crate) fn read_model(model: &str, cx: &Planning<'_>) -> Result<ModelFile, PlanErrors> {
    let mut errors = PlanErrors::default();
    if let Err(why) = remote(model) {
        errors.at("model", why);
        return Err(errors);
    }
    let opened = cx.folders.open(model).map_err(|error| match error {
        FileError::Outside(why) => {
            errors
                .at("model", why)
                .help("write a path below the graph's folder, or allow another with `--allow-path DIR`");
            errors
        }
        error => {
            let why = format!("the file cannot be read: {}", std::io::Error::from(error));
            unreadable(model, &BackendError::Model(why))
        }
    });
    ModelFile::read(opened?).map_err(|error| unreadable(model, &error))
}

/// Gives the model to the runtime that was chosen, or to the first that can. Where its code runs, it is a step of a trial. The
/// file is read here where it was not before: every runtime gets the bytes that were checked.
pub(crate) fn choose(
    config: &Config,
    model: &str,
    given: &Given,
    cx: &Planning<'_>,
    case: Option<(Case, Tolerance)>,
    steps: &Steps,
    file: Option<ModelFile>,
) -> Result<InferPlan, PlanErrors> {
    let mut errors = PlanErrors::default();
    steps.doing(None, "was read");
    let file = match file {
        Some(file) => file,
        None => read_model(model, cx)?,
    };
    let artifact = file.artifact().map_err(|error| unreadable(model, &error))?;
    let (outline, size) = (artifact.outline.clone(), artifact.size());
    for file in outline.files.keys() {
        // They were read; what is noted is that nothing of the graph may write them.
        let _ = cx.folders.admit_input(&Path::new(model).with_file_name(file).to_string_lossy());
    }
    if let Err(key) = steps.of(&outline, size, case.as_ref().map(|(case, _)| case)) {
        let recorded = config.verify.as_ref().and_then(|verify| verify.case.as_deref());
        let file = if key == "model" { model } else { recorded.unwrap_or_default() };
        errors
            .at(key, format!("`{file}` changed while the model was tried"))
            .help("start again when nobody writes to it any more");
        return Err(errors);
    }
    if let Some(sum) = &config.sha256
        && let Err(why) = outline.check_sum(sum)
    {
        errors.at("sha256", format!("`{model}` {why}"));
        return Err(errors);
    }
    if config.sha256.is_some()
        && config.manifest.is_none()
        && let Some(file) = outline.files.keys().next()
    {
        errors
            .at("sha256", format!("`{model}` has weights in `{file}`, which its own checksum does not cover"))
            .help(format!("write `manifest:`, which covers both: `limen-run inspect {model} --json` prints it"));
        return Err(errors);
    }
    if let Some(manifest) = &config.manifest {
        let read = remote(manifest)
            .and_then(|()| cx.folders.open(manifest).map_err(|error| error.to_string()))
            .and_then(|mut file| read_manifest(&mut file).map_err(|why| format!("`{manifest}` {why}")));
        match read {
            Ok(expected) => {
                let differences = expected.differences(&Inspection::of(&outline));
                if !differences.is_empty() {
                    let message = format!("`{model}` is not what `{manifest}` says: {}", differences.join("; "));
                    errors.at("manifest", message).help(format!(
                        "if the change is meant, write the manifest anew: `limen-run inspect {model} --json > {manifest}`"
                    ));
                }
            }
            Err(why) => _ = errors.at("manifest", why).help("`limen-run inspect MODEL --json` writes one"),
        }
        if errors.messages().next().is_some() {
            return Err(errors);
        }
    }
    let required = required(config, &outline);
    let mut verdicts: Vec<(Candidate, Verdict)> = Candidate::all()
        .into_iter()
        .map(|candidate| match (candidate.verdict(&required), steps.failed(candidate.name)) {
            (Verdict::Fits, Some(why)) => (candidate, Verdict::Failed(why)),
            (verdict, _) => (candidate, verdict),
        })
        .collect();
    let is_compared = config.verify.as_ref().is_some_and(|verify| verify.against.is_some()) || config.shadow.is_some();
    let is_shared = config.backend == Choice::Auto || is_compared || calibration::is_asked();
    let files = ModelFiles::new(artifact, is_shared);
    let job = Job { config, given, model, files, case, required, steps };
    let mut notes = Vec::new();
    let mut table = cache::folder().map(Calibration::read).unwrap_or_default();
    let measured = Measured::new(&outline.sha256, given, config.threads, config.batch.max);
    if let Some(folder) = cache::folder().filter(|_| calibration::is_asked()) {
        calibrate(&mut table, &verdicts, &job, &measured, &mut notes);
        if let Err(error) = table.write(folder) {
            notes.push(format!("what was measured cannot be kept in {}: {error}", folder.display()));
        }
    }
    let goes_by = order(&mut verdicts, &table, &measured);
    if config.backend == Choice::Auto {
        notes.push(goes_by);
    }
    let operators = Inspection::of(&outline).operators;
    let mut planned = None;
    for (candidate, verdict) in &mut verdicts {
        let is_asked = config.backend == Choice::Auto || config.backend == candidate.choice;
        if planned.is_some() || !is_asked || *verdict != Verdict::Fits {
            continue;
        }
        if !steps.admits(candidate.name) {
            *verdict = Verdict::Failed(vec!["it was not tried".into()]);
            continue;
        }
        match candidate.plan(&job) {
            Ok(plan) => {
                let dispatch = candidate.dispatch(operators.keys().map(String::as_str));
                let n = operators.len();
                let mut note = format!("{n} operator{}: {dispatch}", if n == 1 { "" } else { "s" });
                let older = operators.keys().find(|op| ["Softmax", "LogSoftmax", "Hardmax"].contains(&op.as_str()));
                if let Some(op) = older.filter(|_| outline.opset < 13) {
                    let opset = outline.opset;
                    note = format!(
                        "{note}; in opset {opset} {op} may mean something else than it does since 13: record a case"
                    );
                }
                let alone = table.alone(&measured, candidate.name, &candidate.version());
                let plan = plan.note(note);
                planned = Some(match alone {
                    Some(ns) => plan.measured(Span(Duration::from_nanos(ns))),
                    None => plan,
                });
            }
            // The others are no business of a graph that names its backend.
            Err(errors) if config.backend != Choice::Auto => return Err(errors),
            Err(errors) => {
                let why: Vec<String> = errors.messages().map(str::to_string).collect();
                steps.fail(candidate.name, &why);
                *verdict = Verdict::Failed(why);
            }
        }
    }
    let said: Vec<String> =
        verdicts.iter().map(|(candidate, verdict)| format!("`{}` {verdict}", candidate.name)).collect();
    if let Some(plan) = planned {
        return Ok(said.into_iter().chain(notes).fold(plan, InferPlan::note));
    }
    let fitting = verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Fits).map(|(candidate, _)| candidate.name);
    let fitting: Vec<String> = fitting.map(|name| format!("`backend: {name}`")).collect();
    let others = |name: &str| {
        let others = verdicts.iter().filter(|(other, verdict)| other.name != name && *verdict != Verdict::Fits);
        let others: Vec<String> = others.map(|(other, verdict)| format!("`{}` {verdict}", other.name)).collect();
        if others.is_empty() { String::new() } else { format!("; of the others {}", others.join(", and ")) }
    };
    match verdicts.iter().find(|(candidate, _)| candidate.choice == config.backend) {
        Some((candidate, Verdict::NotBuilt(name))) => {
            let message = format!("this program was built without the backend `{}`", candidate.name);
            let mut help = format!(
                "build limen-run with `--features {name}` (in a program of your own, that feature of limen-backends)"
            );
            if !fitting.is_empty() {
                help = format!("{help}, or write {}", fitting.join(" or "));
            }
            errors.at("backend", message).help(help + &others(name));
        }
        Some((candidate, verdict)) => {
            // What the graph itself requires is said where it does.
            let asked = config.require.clone().map(|require| candidate.verdict(&require.requirements()));
            let is_asked = matches!(asked, Some(Verdict::Lacks(_)));
            let field = if is_asked { "require" } else { "backend" };
            let instead = match (fitting.is_empty(), is_asked) {
                (false, _) => format!("write {}", fitting.join(" or ")),
                (true, true) => "require less, or take another backend".into(),
                (true, false) => "take another backend".into(),
            };
            let name = candidate.name;
            errors.at(field, format!("for `{model}`, `{name}` {verdict}")).help(instead + &others(name));
        }
        None => {
            let message = format!("nothing here runs `{model}`: {}", said.join("; "));
            errors
                .at("backend", message)
                .help("build this program with another backend, or export the model in another way");
        }
    }
    Err(errors)
}

/// Measures the model on every backend that fits.
fn calibrate(
    table: &mut Calibration,
    verdicts: &[(Candidate, Verdict)],
    job: &Job<'_>,
    of: &Measured,
    notes: &mut Vec<String>,
) {
    for (candidate, _) in verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Fits) {
        let Some([alone, together]) = candidate.measure(job) else { continue };
        let (name, max) = (candidate.name, job.config.batch.max);
        table.set(of, name, &candidate.version(), [alone, together]);
        let mut note = format!("`{name}`: {} an item alone", show_ns(alone));
        if max > 1 {
            note.push_str(&format!(", {} in a batch of {max}", show_ns(together)));
        }
        notes.push(note);
    }
}

fn unreadable(model: &str, error: &BackendError) -> PlanErrors {
    let mut errors = PlanErrors::default();
    errors.at("model", format!("`{model}`: {error}")).help(
        "name a complete ONNX model below the graph's folder; `verify:` and `limen-run --plan` say what was loaded",
    );
    errors
}

/// The step in which a runtime says what compiling came to.
pub(crate) const COMPILED: &str = "said what it compiled";

/// Plans a model for a runtime.
pub(crate) fn plan_onnx<R: Runtime>(job: &Job<'_>) -> Result<InferPlan, PlanErrors> {
    let Job { config, model, required, steps, .. } = job;
    let mut prepared = prepare_onnx::<R>(job)?;
    let (bytes, parameters) = prepared.size();
    let threads = prepared.threads();
    let mut errors = PlanErrors::default();
    let mut compared = Vec::new();
    let itself = |reference: &Reference| {
        let is = reference.name == R::NAME;
        is.then(|| format!("`{}` is compared with itself, which finds only what differs between two calls", R::NAME))
    };
    if let Some(verify) = &config.verify
        && let Some(against) = verify.against
    {
        let tolerance = Tolerance { atol: verify.atol, rtol: verify.rtol };
        let (lines, wrong) = steps.step(R::NAME, "was compared with another backend", || {
            let (mut lines, mut wrong) = (Vec::new(), PlanErrors::default());
            match reference(against, job, required) {
                Ok(reference) => {
                    lines = against_reference(&prepared, &reference, tolerance, &mut wrong);
                    lines.extend(itself(&reference));
                    lines.extend(recorded_of(&reference, job, &mut wrong));
                }
                Err(why) => _ = wrong.at("verify.against", why),
            }
            (lines, wrong)
        });
        compared = lines;
        errors.append(wrong);
    }
    if let Some(shadow) = &config.shadow {
        let found = reference(shadow.backend, job, required).and_then(|reference| {
            reference.fits(prepared.signature(), config.batch.max)?;
            Ok(reference)
        });
        match found {
            Ok(reference) => {
                compared.push(format!("one in {} calls is repeated by `{}`", shadow.every, reference.name));
                compared.extend(itself(&reference));
                let tolerance = Tolerance { atol: shadow.atol, rtol: shadow.rtol };
                prepared.shadowed(ShadowPlan { reference, every: shadow.every, tolerance });
            }
            Err(why) => _ = errors.at("shadow.backend", why),
        }
    }
    if config.batch.max > 1
        && prepared.single().is_none()
        && config.load == Load::Eager
        && let Some([alone, together]) = steps.step(R::NAME, "was measured", || advise(&prepared, config.batch.max))
    {
        let (max, verdict) = (config.batch.max, if together < alone { "pays" } else { "does not pay" });
        let (alone, together) = (show_ns(alone), show_ns(together));
        compared.push(format!("a batch of {max} takes {together} an item, one alone {alone}: batching {verdict} here"));
    }
    let compiled = steps.step(R::NAME, COMPILED, || {
        let found = prepared.compiled()?;
        let ms = found.compile_ns as f64 / 1e6;
        let mut lines = vec![format!("compiled {} in {ms:.0} ms, {} from disk", found.compiled, found.from_disk)];
        lines.extend(found.warnings);
        Some(lines)
    });
    if let Some(lines) = compiled {
        compared.extend(lines);
    } else if cache::folder().is_some() {
        compared.push(format!("`{}` compiles nothing, so nothing compiled is kept", R::NAME));
    }
    let single = prepared.single().map(str::to_string);
    match plan::<Onnx<R>>(config, prepared, single.as_deref(), job.case.as_ref(), steps) {
        Err(others) => {
            errors.append(others);
            Err(errors)
        }
        Ok(planned) => {
            let s = if threads == 1 { "" } else { "s" };
            let about = format!("{model}: {}, {parameters} parameters, {threads} thread{s}", show_bytes(bytes));
            let planned = planned.on_skip(config.on_skip).on_end(config.on_end).note(about);
            errors.into_result(compared.into_iter().fold(planned, InferPlan::note))
        }
    }
}

/// How long an item takes alone, and in a batch, ns.
fn advise<R: Runtime>(prepared: &OnnxPrepared<R>, max: usize) -> Option<[u64; 2]> {
    let session = prepared.session(max).ok()?;
    caught(|| measure(prepared.signature(), Box::new(session), max, ADVISED)).ok()?.ok()
}

/// How long one item and a batch are measured while planning.
const ADVISED: Duration = Duration::from_millis(5);

/// Loads a model to be compared with.
pub(crate) fn reference_onnx<R: Runtime>(job: &Job<'_>) -> Result<Reference, PlanErrors> {
    let prepared = prepare_onnx::<R>(job)?;
    let signature = prepared.signature().clone();
    let is_stateful = prepared.is_stateful();
    let session = move |max_batch| prepared.session(max_batch).map(|session| Box::new(session) as AnySession);
    Ok(Reference { name: R::NAME, signature, is_stateful, session: Box::new(session) })
}

/// Asks both the same: lines for the plan; what is too far apart is an error, with how long both took beside it.
fn against_reference<R: Runtime>(
    prepared: &OnnxPrepared<R>,
    reference: &Reference,
    tolerance: Tolerance,
    errors: &mut PlanErrors,
) -> Vec<String> {
    let signature = prepared.signature();
    let run = || {
        reference.fits(signature, 1)?;
        let session = |wrong: BackendError| wrong.to_string();
        let sessions = [Box::new(prepared.session(1).map_err(session)?), (reference.session)(1).map_err(session)?];
        compare(signature, sessions, tolerance).map_err(session)
    };
    match caught(run).and_then(|found| found) {
        Ok(found) => found.judge(reference.name, tolerance, errors),
        Err(why) => {
            errors.at("verify.against", why);
            Vec::new()
        }
    }
}

impl Comparison {
    /// Lines for the plan. What is too far apart is an error, and the lines are beside it: nobody sees the plan then.
    fn judge(self, reference: &str, tolerance: Tolerance, errors: &mut PlanErrors) -> Vec<String> {
        let (serving, other) = (micros(self.times.0), micros(self.times.1));
        let calls = self.calls;
        let mut lines =
            vec![format!("against `{reference}`, {calls} calls: a call takes {serving} µs here and {other} µs there")];
        let mut wrong = Vec::new();
        for (output, found) in self.differences {
            let (worst, largest) = (found.worst, found.largest);
            let line =
                format!("output `{output}` is at most {worst:.2e} from `{reference}`'s, whose largest is {largest:.3}");
            if found.over > 0 {
                let Tolerance { atol, rtol } = tolerance;
                let over = found.over;
                wrong.push(format!("{line}; {over} numbers are further apart than atol {atol}, rtol {rtol} allow"));
            } else {
                lines.push(line);
            }
        }
        let last = wrong.len();
        for (at, wrong) in wrong.into_iter().enumerate() {
            let error = errors.at("verify.against", wrong);
            if at + 1 == last {
                error.help(format!("{}; allow more, or take another backend", lines.join("; ")));
            }
        }
        lines
    }
}

/// Runs the recorded case on the reference too: a line for the plan, where it gives the same there.
fn recorded_of(reference: &Reference, job: &Job<'_>, errors: &mut PlanErrors) -> Option<String> {
    let (case, tolerance) = job.case.as_ref()?;
    let file = job.config.verify.as_ref()?.case.as_ref()?;
    let (max, name) = (job.config.batch.max, reference.name);
    match case.check_with(&reference.signature, reference.is_stateful, &reference.session, max, *tolerance) {
        Ok(tried) => Some(format!("`{name}` gives what {file} says too: {tried}")),
        Err(wrong) => {
            wrong.into_iter().for_each(|error| _ = errors.at("verify.case", format!("`{file}` on `{name}`: {error}")));
            None
        }
    }
}

fn micros(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e6)
}

/// Loads a model into a runtime and tries it out.
fn prepare_onnx<R: Runtime>(job: &Job<'_>) -> Result<OnnxPrepared<R>, PlanErrors> {
    let Job { config, given, model, steps, .. } = job;
    steps.doing(Some(R::NAME), "loaded it");
    let loaded = job.files.give().and_then(Loaded::<R>::share).map_err(|error| unreadable(model, &error))?;
    let states: Vec<State> = config
        .state
        .iter()
        .map(|state| State { input: state.input.clone(), output: state.output.clone(), batch_dim: state.batch_dim })
        .collect();
    let mut errors = PlanErrors::default();
    let batch_dims = match batch_dims(&loaded.outline, &states) {
        Ok(batch_dims) => batch_dims,
        Err(error) => {
            errors.at("state", error.to_string());
            return Err(errors);
        }
    };
    let inputs = || loaded.outline.inputs.iter().filter(|input| states.iter().all(|state| state.input != input.port));
    let shapes = inputs()
        .filter_map(|input| {
            // With a single input the graph file need not name it.
            let only = given.inputs().count() == 1 && inputs().count() == 1;
            let spec = given.input(&input.port).or_else(|| given.single().filter(|_| only));
            Some((input.port.clone(), spec?.fixed_shape()?))
        })
        .collect();
    let items = match loaded.outline.bind(&shapes, &batch_dims) {
        Ok(items) => items,
        Err(unbound) => {
            for unbound in unbound {
                errors.input(unbound.input, unbound.why);
            }
            return Err(errors);
        }
    };
    let threads = config.threads.clamp(1, MAX_THREADS);
    let finite = config.guard == Guard::Finite;
    let lazy = config.load == Load::Lazy;
    let (buckets, one_item) = (config.buckets.clone(), config.batch.max == 1);
    let how = OnnxModel { threads, buckets, states, finite, lazy, one_item, ..OnnxModel::default() };
    OnnxPrepared::<R>::new(loaded, items, &how, steps).map_err(|error| unreadable(model, &error))
}

/// Checks batching and the recorded case against the model itself.
fn plan<B: Backend>(
    config: &Config,
    prepared: B::Prepared,
    single: Option<&str>,
    case: Option<&(Case, Tolerance)>,
    steps: &Steps,
) -> Result<InferPlan, PlanErrors> {
    let mut errors = PlanErrors::default();
    let signature = prepared.signature();
    if let Some(most) = signature.max_batch.filter(|most| config.batch.max > *most) {
        let because = single.map(|why| format!(": {why}")).unwrap_or_default();
        let message = format!("the model takes at most {most} in a call{because}");
        errors.at("batch.max", message).help("export the model with a symbolic first dim, or write a smaller batch");
    }
    let mut verified = None;
    let file = config.verify.as_ref().and_then(|verify| verify.case.as_ref());
    if let (Some((case, tolerance)), Some(file)) = (case, file) {
        let tried = steps.step(B::NAME, "ran the recorded case", || {
            match case.try_on(&prepared, config.batch.max, *tolerance) {
                Ok(tried) if tried.items == 1 => Ok(format!("verified with the item of {file}: {tried}")),
                Ok(tried) => Ok(format!("verified with the {} items of {file}: {tried}", tried.items)),
                Err(wrong) => Err(wrong.iter().map(|error| format!("`{file}`: {error}")).collect::<Vec<_>>()),
            }
        });
        match tried {
            Ok(line) => verified = Some(line),
            Err(wrong) => wrong.into_iter().for_each(|error| _ = errors.at("verify.case", error)),
        }
    }
    errors.into_result(())?;
    let plan = match config.in_flight {
        0 | 1 => InferPlan::new::<B>(Arc::new(prepared), config.batch),
        most => InferPlan::new::<InFlight<B>>(Arc::new(InFlightPrepared::new(prepared, most)), config.batch)
            .helpers(most)
            .note(format!("up to {most} calls at once, each on a thread of its own")),
    };
    Ok(match verified {
        Some(line) => plan.note(line),
        None => plan,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::Folders;
    use std::path::Path;

    /// A manifest of this very model is nothing to say; one that was written for another names every difference.
    #[cfg(feature = "rten")]
    #[test]
    fn a_model_is_what_its_manifest_says() {
        let state = serde_json::json!([{ "input": "state", "output": "next_state" }]);
        let config =
            |manifest: &str| serde_json::json!({ "model": "listener.onnx", "state": state, "manifest": manifest });
        plan("listen", config("listener.json")).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/listen");
        let text = std::fs::read_to_string(folder.join("listener.json")).unwrap();
        let other = text.replace("f32[batch,80,1]", "f32[batch,160,1]").replace("\"readout\"", "\"other\"");
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("listener.json"), other).unwrap();
        std::fs::copy(folder.join("listener.onnx"), elsewhere.path().join("listener.onnx")).unwrap();
        let why = plan(&elsewhere.path().to_string_lossy(), config("listener.json")).unwrap_err();
        for part in ["input `sound` is `sound` f32[batch,80,1], in the manifest", "weight `other`", "weight `readout`"]
        {
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    /// Plans a config in the folder of a shipped graph; answers the plan or its errors as text.
    fn plan(graph: &str, config: serde_json::Value) -> Result<String, String> {
        let config = serde_json::from_value(config).map_err(|e| e.to_string())?;
        let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs").join(graph);
        let folders = Folders { graph, ..Folders::default() };
        let mut cx = Planning { node: "digit", folders: &folders, trials: &limen::Trials::default() };
        let planned = <Infer as limen::infer::Infer>::plan(config, &Given::default(), &mut cx);
        planned.map(|plan| format!("{plan:?}")).map_err(|errors| format!("{errors:?}"))
    }

    fn fails(config: serde_json::Value, with: &[&str]) {
        let why = plan("digits", config).unwrap_err();
        for part in with {
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    macro_rules! json { ($($t:tt)*) => { serde_json::json!($($t)*) }; }

    #[cfg(feature = "rten")]
    #[test]
    fn a_model_is_planned_and_verified() {
        let planned = plan(
            "digits",
            json!({ "model": "digits.onnx", "batch": { "max": 8, "within": "2ms" }, "verify": { "case": "verify.npz" } }),
        )
        .unwrap();
        for part in [
            "\"image\"",
            "\"logits\"",
            "backend rten",
            "verified with the 8 items of verify.npz",
            "154 KiB, ",
            "1 thread\"",
        ] {
            assert!(planned.contains(part), "{part}: {planned}");
        }
    }

    #[cfg(feature = "rten")]
    #[test]
    fn everything_wrong_is_said_at_once() {
        fails(
            json!({
                "model": "none.onnx", "threads": 0, "batch": { "max": 4, "stride": 5 }, "mock": { "inputs": {}, "outputs": {} },
                "verify": { "case": "none.npz", "atol": -1.0 },
            }),
            &[
                "Field(\"model\"), message: \"`none.onnx`: not a readable model: the file cannot be read: No such file",
                "Field(\"threads\"), message: \"0 threads",
                "Field(\"batch.stride\"), message: \"5 is more than the 4 messages",
                "Field(\"mock\"), message: \"is for the backend `mock` only",
                "Field(\"verify.case\"), message: \"`none.npz` is not a readable .npz: No such file",
                "Field(\"verify.atol\"), message: \"-1 is not a tolerance",
            ],
        );
        fails(
            json!({ "batch": { "max": 0, "stride": 0 } }),
            &["\"model\"), message: \"is missing", "\"batch.max\"", "none ever would"],
        );
        fails(
            json!({ "model": "digits.onnx", "manifest": "train.py" }),
            &["\"manifest\"), message: \"`train.py` is no"],
        );
        fails(json!({ "model": "train.py" }), &["`train.py`: not a readable model: this is text, not an ONNX model"]);
        fails(json!({ "model": "data/0000-7.png" }), &["\"model\""]);
        fails(json!({ "model": "../detect/detector.onnx" }), &["\"model\"", "leaves the graph's folder"]);
    }

    #[cfg(feature = "rten")]
    #[test]
    fn nothing_is_fetched() {
        for scheme in ["http", "https", "s3", "gs", "hf"] {
            let file = format!("{scheme}://a.b/c.onnx");
            for (field, config) in [
                ("model", json!({ "model": file })),
                ("manifest", json!({ "model": "digits.onnx", "manifest": file })),
                ("verify.case", json!({ "model": "digits.onnx", "verify": { "case": file } })),
            ] {
                let why = format!("\"{field}\"), message: \"`{file}`: nothing is fetched over `{scheme}://`");
                fails(config, &[&why]);
            }
        }
    }

    /// To open a pipe is to wait for whoever writes to it, and nobody does.
    #[cfg(feature = "rten")]
    #[test]
    fn a_pipe_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits/digits.onnx");
        std::fs::copy(digits, folder.path().join("digits.onnx")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
        assert!(made.success());
        for (config, field) in [
            (json!({ "model": "pipe" }), "model"),
            (json!({ "model": "digits.onnx", "verify": { "case": "pipe" } }), "verify.case"),
            (json!({ "model": "digits.onnx", "manifest": "pipe" }), "manifest"),
        ] {
            let graph = folder.path().to_string_lossy().into_owned();
            let (say, said) = std::sync::mpsc::channel();
            std::thread::spawn(move || say.send(plan(&graph, config)));
            let why = said.recv_timeout(Duration::from_secs(20)).expect(field).unwrap_err();
            assert!(why.contains(&format!("\"{field}\"")) && why.contains("`pipe`"), "{field}: {why}");
            assert!(why.contains("is not a regular file"), "{field}: {why}");
        }
    }

    #[cfg(feature = "rten")]
    #[test]
    fn other_numbers_than_recorded_stop_the_plan() {
        let verify = json!({ "case": "verify.npz", "atol": 0.0, "rtol": 0.0 });
        fails(
            json!({ "model": "digits.onnx", "verify": verify }),
            &["\"verify.case\"", "`verify.npz`: output `logits` differs from what was recorded: at ["],
        );
    }

    /// A golden set on two backends, both times with the numbers of the file.
    #[cfg(feature = "rten")]
    #[test]
    fn a_case_is_run_on_the_reference_too() {
        let config = json!({ "model": "digits.onnx", "verify": { "case": "verify.npz", "against": "rten" } });
        let planned = plan("digits", config.clone()).unwrap();
        for part in ["against `rten`, 32 calls: a call takes", "`rten` gives what verify.npz says too"] {
            assert!(planned.contains(part), "{part}: {planned}");
        }

        struct Zeros;
        impl limen::backend::Session for Zeros {
            type Lane = crate::onnx::OnnxLane;
            fn infer_batch(
                &mut self,
                _: usize,
                _: &[limen::backend::BatchRef<'_>],
                outputs: &mut [limen::backend::BatchMut<'_>],
                _: &mut [Self::Lane],
            ) -> Result<(), BackendError> {
                outputs.iter_mut().for_each(|output| output.bytes.fill(0));
                Ok(())
            }
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits/digits.onnx");
        let model = OnnxModel { path: path.clone(), ..OnnxModel::default() };
        let prepared = <Onnx<crate::rten::RtenRuntime> as Backend>::prepare(model).unwrap();
        let reference = Reference {
            name: "other",
            signature: prepared.signature().clone(),
            is_stateful: false,
            session: Box::new(|_| Ok(Box::new(Zeros) as AnySession)),
        };
        let config: Config = serde_json::from_value(config).unwrap();
        let tolerance = Tolerance { atol: 1e-4, rtol: 1e-3 };
        let case = Some((Case::read(&path.with_file_name("verify.npz")).unwrap(), tolerance));
        let (given, required) = (Given::default(), limen::backend::Requirements::default());
        let (artifact, model) = (crate::onnx::Artifact::open(&path).unwrap(), "digits.onnx");
        let steps = &Steps::default();
        let files = ModelFiles::new(artifact, true);
        let job = Job { config: &config, given: &given, model, files, case, required, steps };
        let mut errors = PlanErrors::default();
        assert_eq!(recorded_of(&reference, &job, &mut errors), None);
        let why = errors.messages().next().unwrap();
        assert!(why.starts_with("`verify.npz` on `other`: output `logits` differs from what was recorded"), "{why}");

        // How long both took is said of outputs that are too far apart as well.
        let mut errors = PlanErrors::default();
        against_reference(&prepared, &reference, tolerance, &mut errors);
        let text = format!("{errors:?}");
        for part in ["output `logits` is at most", "numbers are further apart", "µs here and", "µs there"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let signature = limen::backend::Signature { outputs: Vec::new(), ..reference.signature.clone() };
        let mut errors = PlanErrors::default();
        against_reference(&prepared, &Reference { signature, ..reference }, tolerance, &mut errors);
        let why = errors.messages().next().unwrap();
        assert_eq!(why, "output 0 is none by `other`, and `logits` f32[10] here");
    }

    #[test]
    fn a_mock_is_planned_without_a_model() {
        let mock =
            json!({ "inputs": { "x": "f32[2]" }, "outputs": { "y": "i32[3]" }, "latency": "1ms", "max_batch": 2 });
        let planned = plan("digits", json!({ "backend": "mock", "mock": mock })).unwrap();
        assert!(planned.contains("backend mock") && planned.contains("\"y\""), "{planned}");
        fails(
            json!({ "backend": "mock", "mock": mock, "model": "digits.onnx", "batch": { "max": 3 } }),
            &["backend `mock` runs no model", "\"batch.max\"), message: \"the model takes at most 2 in a call"],
        );
        let mock = json!({ "inputs": { "x": "f32" }, "outputs": { "y": "f32" } });
        let all = json!({ "backend": "mock", "mock": mock, "guard": "finite", "buckets": [1], "load": "lazy",
            "state": [{ "input": "x", "output": "y" }], "batch": { "max": 100_000_000 } });
        fails(
            all,
            &["\"guard\"", "\"buckets\"", "\"load\"", "\"state\"", "100000000 messages in one call; at most 65536"],
        );
        fails(json!({ "backend": "mock" }), &["\"mock\"), message: \"backend `mock` needs to be told"]);
        let wrong = json!({ "inputs": { "x": "f32[?]" }, "outputs": {} });
        fails(json!({ "backend": "mock", "mock": wrong }), &["\"mock.inputs.x\"", "\"mock.outputs\""]);
    }

    /// Whichever are there: it takes the first of its order.
    #[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
    #[test]
    fn auto_takes_the_first_that_can() {
        let planned = plan("digits", json!({ "model": "digits.onnx", "backend": "auto" })).unwrap();
        let usual = "`auto` goes by its usual order, ort, rten, tract: nothing was measured";
        assert!(planned.contains(usual), "{planned}");
        let first = ["ort", "rten", "tract"].into_iter().find(|name| planned.contains(&format!("`{name}` fits")));
        assert!(planned.contains(&format!("\"backend {}\"", first.unwrap())), "{planned}");
        for name in ["ort", "rten", "tract"] {
            assert!(planned.contains(&format!("`{name}` ")), "{name}: {planned}");
        }
        let config = json!({ "model": "digits.onnx", "backend": "auto", "require": { "device": "npu" } });
        fails(config, &["\"backend\"), message: \"nothing here runs `digits.onnx`: `", "no device `npu`, only cpu"]);
    }

    /// Determinants are ONNX Runtime's alone: the plan is good, and says why it is not one of the others.
    #[cfg(all(feature = "rten", feature = "tract", feature = "ort"))]
    #[test]
    fn what_only_one_backend_can_run_is_planned_with_the_others_reasons() {
        use crate::onnx::tests::model;
        use rten_onnx::onnx::DataType;
        let folder = tempfile::tempdir().unwrap();
        let x = ("x", DataType::FLOAT, &["n", "2", "2"][..]);
        let file = model(&[x], &[("y", DataType::FLOAT, &["n"][..])], &[], &["y = Det x"]);
        std::fs::write(folder.path().join("m.onnx"), file).unwrap();
        for backend in ["auto", "ort"] {
            let config = json!({ "model": "m.onnx", "backend": backend });
            let planned = plan(&folder.path().to_string_lossy(), config).unwrap();
            let others = ["`rten` has no operator Det (node `y`", "`tract` has no operator Det (node `y`"];
            for part in ["\"backend ort\"", "`ort` fits"].into_iter().chain(others) {
                assert!(planned.contains(part), "{backend}, {part}: {planned}");
            }
        }
    }

    /// An operator is looked for inside of branches and loops as well, and named with the nodes it is in.
    #[cfg(feature = "rten")]
    #[test]
    fn an_operator_inside_of_a_subgraph_is_missed() {
        use crate::onnx::tests::{branches, model};
        use rten_onnx::onnx::DataType;
        let folder = tempfile::tempdir().unwrap();
        let io = |name| (name, DataType::FLOAT, &["n"][..]);
        let inner = model(&[], &[io("z")], &[], &["z = Frobnicate x"]);
        let file = branches(model(&[io("x")], &[io("y")], &[], &["y = Relu x"]), &inner);
        std::fs::write(folder.path().join("m.onnx"), file).unwrap();
        let why = plan(&folder.path().to_string_lossy(), json!({ "model": "m.onnx" })).unwrap_err();
        let others = if cfg!(feature = "ort") { "write `backend: ort`" } else { "of the others `ort` is not built in" };
        for part in ["for `m.onnx`, `rten` has no operator Frobnicate (node `both/z` of the model)", others] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[test]
    fn backends_that_do_not_exist_are_told_from_those_that_are_not_built_in() {
        let why = plan("digits", json!({ "backend": "torch" })).unwrap_err();
        assert_eq!(why, "unknown variant `torch`, expected one of `rten`, `tract`, `ort`, `auto`, `mock`");
        for (name, is_built) in
            [("rten", cfg!(feature = "rten")), ("tract", cfg!(feature = "tract")), ("ort", cfg!(feature = "ort"))]
        {
            if !is_built {
                let because = format!("was built without the backend `{name}`");
                let help = format!("--features {name}");
                fails(json!({ "model": "digits.onnx", "backend": name }), &["\"backend\")", &because, &help]);
            }
        }
    }

    #[test]
    fn the_schema_says_what_the_kind_is() {
        let schema = schemars::schema_for!(Config);
        let about = schema.get("description").and_then(|d| d.as_str()).unwrap();
        assert!(about.starts_with("Runs a model on the messages of its inputs"), "{about}");
    }
}
