//! The kind `infer`: a graph's choice of model, backend, batching and recorded case.
//!
//! Everything that can be wrong with a model node is found here, while the graph is planned, and said at once.

use crate::mock::{Mock, MockConfig};
use crate::verify::{Case, Tolerance};
use limen::backend::{Backend, Prepared};
use limen::infer::{Batch, InferPlan};
use limen::{Given, PlanErrors, Planning};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

/// More threads than this inside one call are refused as a mistake: no CPU has a use for them.
const MAX_THREADS: usize = 256;

/// The kind `infer`.
#[derive(Debug)]
pub struct Infer;

/// Runs a model on the messages of its inputs, one at a time or in batches.
///
/// The ports are the model's inputs and outputs by name, in lower case and with `_` for whatever a graph file cannot
/// write (`input.1` is `input_1`). With a single input, `from:` needs no name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Config {
    /// The model's file, relative to the graph's folder. Every backend but `mock` needs one.
    pub model: Option<String>,
    /// What runs the model.
    #[serde(default)]
    pub backend: Choice,
    /// How messages are put together: `{ max: 8, within: 2ms }`. One at a time by default.
    #[serde(default)]
    pub batch: Batch,
    /// Threads inside one call. More than one pays only for large models; small ones get slower.
    #[serde(default = "one")]
    pub threads: usize,
    /// Recorded inputs and outputs, run once while planning: a graph whose model gives other numbers does not start.
    pub verify: Option<VerifyConfig>,
    /// What the backend `mock` takes, gives and does wrong.
    pub mock: Option<MockConfig>,
}

/// What runs a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// ONNX models on the CPU.
    #[default]
    Rten,
    /// No model: answers of the right shape after a set time.
    Mock,
}

/// A recorded case and how near to it the model must come.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct VerifyConfig {
    /// An `.npz` whose arrays are the model's inputs and outputs, of any number of items.
    pub case: String,
    /// A number may be off by this.
    #[serde(default = "default_atol")]
    pub atol: f64,
    /// And by this part of the recorded number.
    #[serde(default = "default_rtol")]
    pub rtol: f64,
}

fn one() -> usize {
    1
}

/// Runtimes differ in the order of their sums; on the models tried rten and onnxruntime agreed to 1.5e-6 of the largest
/// output, so this is far above noise and far below a wrong operator.
fn default_atol() -> f64 {
    1e-4
}

fn default_rtol() -> f64 {
    1e-3
}

impl Config {
    /// What is wrong without looking at any file.
    fn check(&self, errors: &mut PlanErrors) {
        if self.batch.max == 0 {
            errors.at("batch.max", "a batch has at least one message");
        }
        match self.batch.stride {
            Some(0) => _ = errors.at("batch.stride", "0 messages would leave after each batch, so none ever would"),
            Some(stride) if stride > self.batch.max => {
                let max = self.batch.max;
                errors
                    .at("batch.stride", format!("{stride} is more than the {max} messages of a batch"))
                    .help(format!("write at most {max}, or raise batch.max"));
            }
            _ => {}
        }
        if self.threads == 0 || self.threads > MAX_THREADS {
            errors.at("threads", format!("{} threads inside a call; from 1 to {MAX_THREADS} make sense", self.threads));
        }
        if let Some(verify) = &self.verify {
            for (field, value) in [("verify.atol", verify.atol), ("verify.rtol", verify.rtol)] {
                if !(value >= 0.0 && value.is_finite()) {
                    errors.at(field, format!("{value} is not a tolerance; it is a number from 0 up"));
                }
            }
        }
        match (self.backend, &self.mock, &self.model) {
            (Choice::Mock, None, _) => {
                let help = "write `mock: { inputs: { image: f32[1,8,8] }, outputs: { logits: f32[10] } }`";
                errors.at("mock", "backend `mock` needs to be told its inputs and outputs").help(help);
            }
            (Choice::Mock, Some(mock), _) => mock.check(errors),
            (_, Some(_), _) => {
                errors.at("mock", "is for the backend `mock` only").help("write `backend: mock`, or leave `mock:` out");
            }
            (_, None, None) => {
                errors.at("model", "is missing").help("write the path of the model, relative to the graph's folder");
            }
            _ => {}
        }
        if self.backend == Choice::Mock && self.model.is_some() {
            errors.at("model", "backend `mock` runs no model").help("leave `model:` out, or choose another backend");
        }
    }

    /// The recorded case, where there is one and it can be read.
    fn case(&self, cx: &Planning<'_>, errors: &mut PlanErrors) -> Option<(Case, Tolerance)> {
        let verify = self.verify.as_ref()?;
        let tolerance = Tolerance { atol: verify.atol, rtol: verify.rtol };
        let path = cx.folders.input(&verify.case).map_err(|why| _ = errors.at("verify.case", why)).ok()?;
        let wrong = |e| _ = errors.at("verify.case", format!("`{}` {e}", verify.case));
        Some((Case::read(&path).map_err(wrong).ok()?, tolerance))
    }
}

impl limen::infer::Infer for Infer {
    type Config = Config;

    fn plan(config: Config, given: &Given, cx: &mut Planning<'_>) -> Result<InferPlan, PlanErrors> {
        let mut errors = PlanErrors::default();
        config.check(&mut errors);
        let case = config.case(cx, &mut errors);
        match config.backend {
            Choice::Rten => plan_rten(&config, given, cx, case, errors),
            Choice::Mock => {
                let Some(Ok(prepared)) = config.mock.clone().map(Mock::prepare) else {
                    // Said above, field by field.
                    return Err(errors);
                };
                plan::<Mock>(&config, prepared, None, case, errors)
            }
        }
    }
}

#[cfg(feature = "rten")]
fn plan_rten(
    config: &Config,
    given: &Given,
    cx: &Planning<'_>,
    case: Option<(Case, Tolerance)>,
    mut errors: PlanErrors,
) -> Result<InferPlan, PlanErrors> {
    use crate::rten::{Rten, RtenPrepared, loaded::Loaded};

    let Some(model) = &config.model else { return Err(errors) };
    let path = match cx.folders.input(model) {
        Ok(path) => path,
        Err(why) => {
            errors
                .at("model", why)
                .help("write a path below the graph's folder, or allow another with `--allow-path DIR`");
            return Err(errors);
        }
    };
    let loaded = match Loaded::open(&path) {
        Ok(loaded) => loaded,
        Err(error) => {
            errors.at("model", format!("`{model}`: {error}")).help("name a complete ONNX model below the graph's folder; `verify:` and `limen-run --plan` say what was loaded");
            return Err(errors);
        }
    };
    let shapes = loaded
        .inputs()
        .filter_map(|name| {
            // With a single input the graph file need not name it.
            let only = given.inputs().count() == 1 && loaded.inputs().count() == 1;
            let spec = given.input(name).or_else(|| given.single().filter(|_| only));
            Some((name.to_string(), spec?.fixed_shape()?))
        })
        .collect();
    let items = match loaded.bind(&shapes) {
        Ok(items) => items,
        Err(unbound) => {
            for unbound in unbound {
                errors.input(unbound.input, unbound.why);
            }
            return Err(errors);
        }
    };
    let about = loaded.about();
    match RtenPrepared::new(loaded, items, config.threads.min(MAX_THREADS)) {
        Ok(prepared) => {
            let single = prepared.single().map(str::to_string);
            let planned = plan::<Rten>(config, prepared, single.as_deref(), case, errors)?;
            let s = if config.threads == 1 { "" } else { "s" };
            Ok(planned.note(format!("{model}: {about}, {} thread{s}", config.threads)))
        }
        Err(error) => {
            errors.at("model", format!("`{model}`: {error}")).help("name a complete ONNX model below the graph's folder; `verify:` and `limen-run --plan` say what was loaded");
            Err(errors)
        }
    }
}

#[cfg(not(feature = "rten"))]
fn plan_rten(
    _: &Config,
    _: &Given,
    _: &Planning<'_>,
    _: Option<(Case, Tolerance)>,
    mut errors: PlanErrors,
) -> Result<InferPlan, PlanErrors> {
    let error = errors.at("backend", "this program was built without the backend `rten`");
    error.help("build it with the cargo feature `rten` of limen-backends");
    Err(errors)
}

/// Checks batching and the recorded case against the model itself.
fn plan<B: Backend>(
    config: &Config,
    prepared: B::Prepared,
    single: Option<&str>,
    case: Option<(Case, Tolerance)>,
    mut errors: PlanErrors,
) -> Result<InferPlan, PlanErrors> {
    let signature = prepared.signature();
    if let Some(most) = signature.max_batch.filter(|most| config.batch.max > *most) {
        let because = single.map(|why| format!(": {why}")).unwrap_or_default();
        let message = format!("the model takes at most {most} in a call{because}");
        errors.at("batch.max", message).help("export the model with a symbolic first dim, or write a smaller batch");
    }
    let mut verified = None;
    if let (Some((case, tolerance)), Some(verify)) = (case, &config.verify) {
        match case.check(&prepared, config.batch.max, tolerance) {
            Ok(1) => verified = Some(format!("verified with the item of {}", verify.case)),
            Ok(items) => verified = Some(format!("verified with the {items} items of {}", verify.case)),
            Err(wrong) => {
                for error in wrong {
                    errors.at("verify.case", format!("`{}`: {error}", verify.case));
                }
            }
        }
    }
    errors.into_result(())?;
    let plan = InferPlan::new::<B>(Arc::new(prepared), config.batch);
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

    /// Plans a config in the folder of a shipped graph; answers the plan or its errors as text.
    fn plan(graph: &str, config: serde_json::Value) -> Result<String, String> {
        let config = serde_json::from_value(config).map_err(|e| e.to_string())?;
        let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs").join(graph);
        let folders = Folders { graph, ..Folders::default() };
        let mut cx = Planning { node: "digit", folders: &folders };
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
        fails(json!({ "model": "train.py" }), &["`train.py`: not a readable model: this is text, not an ONNX model"]);
        fails(json!({ "model": "data/0000-7.png" }), &["\"model\""]);
        fails(json!({ "model": "../detect/detector.onnx" }), &["\"model\"", "leaves the graph's folder"]);
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
        fails(json!({ "backend": "mock" }), &["\"mock\"), message: \"backend `mock` needs to be told"]);
        let wrong = json!({ "inputs": { "x": "f32[?]" }, "outputs": {} });
        fails(json!({ "backend": "mock", "mock": wrong }), &["\"mock.inputs.x\"", "\"mock.outputs\""]);
    }

    #[test]
    fn backends_that_do_not_exist_are_told_from_those_that_do() {
        let why = plan("digits", json!({ "backend": "tract" })).unwrap_err();
        assert_eq!(why, "unknown variant `tract`, expected `rten` or `mock`");
        if cfg!(not(feature = "rten")) {
            fails(json!({ "model": "digits.onnx" }), &["was built without the backend `rten`", "cargo feature `rten`"]);
        }
    }

    #[test]
    fn the_schema_says_what_the_kind_is() {
        let schema = schemars::schema_for!(Config);
        let about = schema.get("description").and_then(|d| d.as_str()).unwrap();
        assert!(about.starts_with("Runs a model on the messages of its inputs"), "{about}");
    }
}
