//! The runtimes that may run a model, and the input of planning it.

use super::backend_name::{AUTO, ORT};
use super::config::{InferConfig, RecordedModel};
use super::dispatch::Dispatch;
use super::inputs::ModelInputs;
use super::model_file::ModelFiles;
use super::provider::OrtDevice;
use super::registered::{CPU, Registered};
use super::runtimes::Runtimes;
use super::verdict::RuntimeVerdict;
use crate::base::{BackendOptions, caught};
use crate::cache::Measurement;
use crate::onnx::{Compared, Op, Reference, compare, measure};
use crate::steps::TrialSteps;
use limen::backend::{BackendError, Capabilities, MissingCapability, Ops, Requirements};
use limen::infer::InferPlan;
use limen::node::PlanErrors;
use std::ops::Deref;
use std::time::Duration;

/// A node to plan.
pub(crate) struct PlanRequest<'a> {
    pub(crate) config: &'a InferConfig,
    /// The backend options of the program.
    pub(crate) options: &'a BackendOptions,
    pub(crate) runtimes: &'a Runtimes,
    /// The runtimes that the node may use.
    pub(crate) candidates: &'a [Candidate<'a>],
    pub(crate) inputs: &'a ModelInputs,
    /// The model's path as the graph file has it.
    pub(crate) model: &'a str,
    /// Its files, for the runtimes that load it.
    pub(crate) files: ModelFiles,
    pub(crate) recorded: RecordedModel,
    /// What the model and its calls require of a runtime, without `require:`.
    pub(crate) required: Requirements,
    /// Runs, records or replays the steps that run the model's code.
    pub(crate) steps: &'a TrialSteps,
}

/// Why a runtime does not run the model of a node.
pub(crate) enum Refused {
    /// The node has to change, whichever runtime it takes.
    Node(PlanErrors),
    /// A call failed, or gave other numbers than were recorded: not the runtime's fault if every
    /// runtime says so.
    Call(PlanErrors),
    /// Another runtime may run it.
    Runtime(PlanErrors),
}

impl Refused {
    pub(crate) fn errors(self) -> PlanErrors {
        match self {
            Refused::Node(errors) | Refused::Call(errors) | Refused::Runtime(errors) => errors,
        }
    }
}

impl From<PlanErrors> for Refused {
    fn from(errors: PlanErrors) -> Self {
        Refused::Runtime(errors)
    }
}

/// How long a model is measured on a backend, alone and in batches.
const MEASURED_FOR: Duration = Duration::from_millis(50);

/// A runtime, built into this program or not, with the program's options.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(super) runtime: Registered,
    pub(super) options: &'a BackendOptions,
}

impl Deref for Candidate<'_> {
    type Target = Registered;
    fn deref(&self) -> &Registered {
        &self.runtime
    }
}

impl Candidate<'_> {
    /// Whether it is the runtime of a node's backend, which is not `auto`.
    pub(crate) fn serves(&self, config: &InferConfig) -> bool {
        self.backend == config.serving() && self.device == config.provider
    }

    /// Whether it is what `against:` and `shadow:` call by this name: ONNX Runtime on the CPU for
    /// `ort`, and on a device for `ort-webgpu`.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name
    }

    /// Whether the node may use it, to run its model or to compare it.
    pub(crate) fn is_asked(&self, config: &InferConfig) -> bool {
        [self.backend, self.name, AUTO].iter().any(|name| config.names(name))
    }

    /// Whether only a measurement lets `auto` select it: it is on a device.
    pub(crate) fn needs_measuring(&self, config: &InferConfig) -> bool {
        config.serving() == AUTO && self.computes_on != CPU
    }

    /// Returns what a node writes to have this runtime instead of its own.
    pub(crate) fn written_in(&self, config: &InferConfig) -> String {
        match (config.provider, self.backend) {
            _ if self.device != OrtDevice::Cpu => {
                format!("`backend: {}` with `provider: {}`", self.backend, self.device.name())
            }
            (OrtDevice::Cpu, _) => format!("`backend: {}`", self.name),
            (_, ORT) => "`provider: cpu`".into(),
            _ => format!("`backend: {}` without `provider:`", self.name),
        }
    }

    /// Whether it meets the requirements.
    pub(crate) fn verdict(&self, required: &Requirements) -> RuntimeVerdict {
        let Some(built) = &self.built else { return RuntimeVerdict::NotBuilt(self.feature) };
        match (built.probe)(self.options) {
            Err(error) => RuntimeVerdict::Unavailable(error.to_string()),
            Ok(capabilities) => {
                let mut lacks = capabilities.lacks(required);
                // Those of the config belong to no node, so nothing folds them.
                let missing = required.ops.iter().filter(|(op, node)| node.is_empty() && (built.only_folds)(op));
                lacks.extend(missing.map(|(op, node)| MissingCapability::Op { op: op.clone(), node: node.clone() }));
                match lacks.is_empty() {
                    true => RuntimeVerdict::Fits,
                    false => RuntimeVerdict::Lacks(lacks),
                }
            }
        }
    }

    /// Like [`Candidate::verdict`], without loading a library that the node does not ask for.
    pub(crate) fn verdict_if_asked(&self, required: &Requirements, is_asked: bool) -> RuntimeVerdict {
        match self.built {
            Some(built) if built.is_library && !is_asked => RuntimeVerdict::NotAsked,
            _ => self.verdict(required),
        }
    }

    /// Returns why the runtime refuses a model with these nodes, although it has their operators:
    /// the first node of each operator.
    pub(crate) fn refusals(&self, nodes: &[Op]) -> Vec<String> {
        let Some(built) = self.built else { return Vec::new() };
        let mut refused: Vec<(&Op, &str)> = Vec::new();
        for node in nodes {
            if let Some(what) = (built.refuses)(node)
                && refused.iter().all(|(other, _)| other.id != node.id)
            {
                refused.push((node, what));
            }
        }
        refused.iter().map(|(node, what)| format!("{} with {what} (node `{}`)", node.id, node.node)).collect()
    }

    /// Returns what the runtime computes otherwise than ONNX in a model with these operators: an
    /// operator, the first node with it, and what it does there.
    pub(crate) fn deviations<'a>(&self, ops: &'a [Op]) -> Vec<(&'a Op, &'static str)> {
        let known = self.built.map(|built| (built.deviations)()).unwrap_or_default();
        let found = known.iter().filter_map(|deviation| {
            let op = ops.iter().find(|op| deviation.is_of(op))?;
            Some((op, deviation.what))
        });
        found.collect()
    }

    /// Whether it says which operators it has before it loads a model.
    pub(crate) fn lists_operators(&self) -> bool {
        let found = self.built.and_then(|built| (built.probe)(self.options).ok());
        found.is_some_and(|found| found.ops != Ops::Unlisted)
    }

    /// Returns the version and the build of the runtime, for the names of cached results; empty if
    /// it is unavailable.
    pub(crate) fn version(&self) -> String {
        self.built.map(|built| (built.build)(self.options)).unwrap_or_default()
    }

    /// Returns how the runtime handles each operator of a model.
    pub(crate) fn dispatch<'a>(&self, operators: impl Iterator<Item = &'a str>, ops: &[Op]) -> Dispatch {
        let Some(built) = &self.built else {
            return Dispatch::NotThere(self.verdict(&Requirements::default()).to_string());
        };
        let deviating = self.deviations(ops);
        let deviating: Vec<(String, &str)> = deviating.into_iter().map(|(op, what)| (op.id.clone(), what)).collect();
        let known = match (built.listed)(self.options) {
            Err(error) => return Dispatch::NotThere(RuntimeVerdict::Unavailable(error.to_string()).to_string()),
            Ok(Capabilities { ops: Ops::Unlisted, .. }) => return Dispatch::Unsaid { deviating },
            Ok(Capabilities { ops: Ops::Listed(known), .. }) => known,
        };
        let (mut native, mut rewritten, mut unsupported) = (Vec::new(), Vec::new(), Vec::new());
        for op in operators {
            let is_lacking = ops.iter().any(|node| node.id == op && (built.lacks)(node));
            let list = match known.contains(op) && !is_lacking {
                false => &mut unsupported,
                true if deviating.iter().any(|(other, _)| other == op) => continue,
                true if (built.rewrites)(op) => &mut rewritten,
                true => &mut native,
            };
            list.push(op.to_string());
        }
        Dispatch::Known { native, rewritten, deviating, unsupported }
    }

    /// Measures the time of calls with messages in host memory: per item, alone and in a batch.
    /// Copies to and from a device are part of such calls. What is on a device is first compared
    /// with `on_cpu`.
    ///
    /// # Errors
    /// Why the model cannot be measured or compared.
    pub(crate) fn measure(&self, job: &PlanRequest<'_>, on_cpu: Option<&Candidate<'_>>) -> Result<Measurement, String> {
        let why = |error: BackendError| error.to_string();
        job.steps.step(self.name, "measured the model", || {
            let own = self.load(job)?;
            if self.computes_on != CPU {
                let other = on_cpu.ok_or("no backend on the CPU runs the model, so its outputs cannot be compared")?;
                let other = other.load(job)?;
                own.fits(&other.signature, 1)?;
                let sessions = [(own.session)(1).map_err(why)?, (other.session)(1).map_err(why)?];
                let compare = || compare(&own.signature, sessions, job.config.tolerance());
                match caught(compare)?.map_err(why)? {
                    Compared::Calls(found) => {
                        if let Some(what) = found.beyond(other.name) {
                            return Ok(Measurement::Differs(what));
                        }
                    }
                    Compared::Not(why) => return Err(format!("its outputs were not compared: {why}")),
                }
            }
            let max = job.config.batch.max.min(own.signature.max_batch.unwrap_or(usize::MAX)).max(1);
            let session = (own.session)(max).map_err(why)?;
            let times = caught(|| measure(&own.signature, session, max, MEASURED_FOR))?.map_err(why)?;
            Ok(Measurement::Times(times))
        })
    }

    /// Loads the model to compare or measure it.
    fn load(&self, job: &PlanRequest<'_>) -> Result<Reference, String> {
        let built = self.built.ok_or_else(|| RuntimeVerdict::NotBuilt(self.feature).to_string())?;
        (built.reference)(job).map_err(|refused| refused.errors().messages().collect::<Vec<_>>().join("; "))
    }

    pub(crate) fn plan(&self, job: &PlanRequest<'_>) -> Result<InferPlan, Refused> {
        match &self.built {
            Some(built) => (built.plan)(job),
            None => Err(PlanErrors::default().into()),
        }
    }
}

/// Loads the model into the backend that another one is compared with.
///
/// # Errors
/// Why the backend cannot run the model.
pub(crate) fn reference(backend: &str, job: &PlanRequest<'_>) -> Result<Reference, String> {
    let candidate = job.candidates.iter().find(|candidate| candidate.is_called(backend));
    let candidate = candidate
        .ok_or_else(|| format!("expected one of {}, found `{backend}`", job.runtimes.of_models().join(", ")))?;
    match candidate.verdict(&job.required) {
        RuntimeVerdict::Fits => {
            candidate.load(job).map_err(|why| format!("`{}` cannot run the model: {why}", candidate.name))
        }
        verdict => Err(format!("`{}` {verdict}", candidate.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::registered::Built;
    use serde_json::json;

    #[test]
    fn a_library_is_loaded_only_where_a_node_names_it() {
        let options = BackendOptions::default();
        let known = *Runtimes::default().get(ORT).unwrap();
        let built = Built {
            probe: |_| Err(BackendError::Unavailable("looked for".into())),
            listed: |_| Err(BackendError::Unavailable("looked for".into())),
            build: |_| String::new(),
            is_library: true,
            plan: |_| Err(PlanErrors::default().into()),
            reference: |_| Err(PlanErrors::default().into()),
            rewrites: |_| false,
            refuses: |_| None,
            only_folds: |_| false,
            lacks: |_| false,
            deviations: || &[],
            precisions: &[],
            memory: None,
            opens_first: None,
        };
        let of = |built| Registered { built: Some(built), ..known }.candidate(&options);
        let (library, linked) = (of(built), of(Built { is_library: false, ..built }));
        for (config, is_loaded) in [
            (json!({ "backend": "rten" }), false),
            (json!({ "backend": "ort" }), true),
            (json!({ "backend": "auto" }), true),
            (json!({ "backend": "rten", "verify": { "against": "ort" } }), true),
            (json!({ "backend": "rten", "shadow": { "backend": "ort" } }), true),
            (json!({ "backend": "rten", "shadow": { "backend": "tract" } }), false),
        ] {
            let is_asked = library.is_asked(&serde_json::from_value(config.clone()).unwrap());
            let verdict = |candidate: Candidate<'_>| candidate.verdict_if_asked(&Requirements::default(), is_asked);
            assert_eq!(verdict(library) != RuntimeVerdict::NotAsked, is_loaded, "{config}");
            assert_ne!(verdict(linked), RuntimeVerdict::NotAsked, "{config}");
        }
    }
}
