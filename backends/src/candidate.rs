//! The runtimes that a model may be given to, and why each fits or does not.

use crate::calibration::{Calibration, Measured};
use crate::infer::{Choice, Config};
use crate::onnx::{Artifact, Outline, Runtime};
use crate::shadow::{Reference, measure};
use crate::trial::Steps;
use crate::verify::{Case, Tolerance};
use limen::backend::{BackendError, Capabilities, Lack, Ops, Requirements};
use limen::infer::InferPlan;
use limen::unit::show_ns;
use limen::{Given, PlanErrors};
use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

/// What is to be planned.
pub(crate) struct Job<'a> {
    pub(crate) config: &'a Config,
    pub(crate) given: &'a Given,
    /// The model as the graph names it.
    pub(crate) model: &'a str,
    /// Its files, for whoever loads it.
    pub(crate) files: ModelFiles,
    pub(crate) case: Option<(Case, Tolerance)>,
    pub(crate) required: Requirements,
    /// What is asked of it, or was.
    pub(crate) steps: &'a Steps,
}

/// The files of a model, read once, for the runtimes that load it. They go with the plan of their node, or sooner.
pub(crate) struct ModelFiles {
    artifact: RefCell<Option<Artifact>>,
    /// Whether more than one runtime may ask for them.
    is_shared: bool,
}

impl ModelFiles {
    pub(crate) fn new(artifact: Artifact, is_shared: bool) -> Self {
        ModelFiles { artifact: RefCell::new(Some(artifact)), is_shared }
    }

    /// The files, which a single runtime is given without a copy.
    pub(crate) fn give(&self) -> Result<Artifact, BackendError> {
        let found = if self.is_shared { self.artifact.borrow().clone() } else { self.artifact.take() };
        found.ok_or_else(|| BackendError::Model("its files were given to another runtime".into()))
    }
}

/// How long a model is measured on a backend, alone and in batches.
const CALIBRATED: Duration = Duration::from_millis(50);

/// A runtime that this program knows.
pub(crate) struct Candidate {
    pub(crate) choice: Choice,
    pub(crate) name: &'static str,
    built: Option<Built>,
}

/// One that is built into it.
#[derive(Clone, Copy)]
struct Built {
    probe: fn() -> Result<Capabilities, BackendError>,
    plan: fn(&Job<'_>) -> Result<InferPlan, PlanErrors>,
    reference: fn(&Job<'_>) -> Result<Reference, PlanErrors>,
    rewrites: fn(&str) -> bool,
}

impl Candidate {
    #[cfg(any(feature = "rten", feature = "tract", feature = "ort"))]
    fn built<R: Runtime>(choice: Choice) -> Self {
        let built = Built {
            probe: R::probe,
            plan: crate::infer::plan_onnx::<R>,
            reference: crate::infer::reference_onnx::<R>,
            rewrites: R::rewrites,
        };
        Candidate { choice, name: R::NAME, built: Some(built) }
    }

    /// Every runtime, in the order in which `auto` takes them: the fastest first, as measured on nine models.
    pub(crate) fn all() -> [Candidate; 3] {
        #[cfg(not(all(feature = "rten", feature = "tract", feature = "ort")))]
        let missing = |choice, name| Candidate { choice, name, built: None };
        #[cfg(feature = "ort")]
        let ort = Candidate::built::<crate::ort::OrtRuntime>(Choice::Ort);
        #[cfg(not(feature = "ort"))]
        let ort = missing(Choice::Ort, "ort");
        #[cfg(feature = "rten")]
        let rten = Candidate::built::<crate::rten::RtenRuntime>(Choice::Rten);
        #[cfg(not(feature = "rten"))]
        let rten = missing(Choice::Rten, "rten");
        #[cfg(feature = "tract")]
        let tract = Candidate::built::<crate::tract::TractRuntime>(Choice::Tract);
        #[cfg(not(feature = "tract"))]
        let tract = missing(Choice::Tract, "tract");
        [ort, rten, tract]
    }

    /// Whether it can do what is required.
    pub(crate) fn verdict(&self, required: &Requirements) -> Verdict {
        let Some(built) = &self.built else { return Verdict::NotBuilt(self.name) };
        match (built.probe)() {
            Err(error) => Verdict::Unavailable(error.to_string()),
            Ok(capabilities) => match capabilities.lacks(required) {
                lacks if lacks.is_empty() => Verdict::Fits,
                lacks => Verdict::Lacks(lacks),
            },
        }
    }

    /// The version of the runtime; none where it is not there.
    pub(crate) fn version(&self) -> String {
        self.built.and_then(|built| (built.probe)().ok()).map(|found| found.version).unwrap_or_default()
    }

    /// What it says of operators.
    pub(crate) fn dispatch<'a>(&self, operators: impl Iterator<Item = &'a str>) -> Dispatch {
        let Some(built) = &self.built else { return Dispatch::NotThere(Verdict::NotBuilt(self.name).to_string()) };
        let known = match (built.probe)() {
            Err(error) => return Dispatch::NotThere(Verdict::Unavailable(error.to_string()).to_string()),
            Ok(Capabilities { ops: Ops::Unlisted, .. }) => return Dispatch::Unsaid,
            Ok(Capabilities { ops: Ops::Listed(known), .. }) => known,
        };
        let (mut native, mut rewritten, mut unsupported) = (Vec::new(), Vec::new(), Vec::new());
        for op in operators {
            let list = match known.contains(op) {
                false => &mut unsupported,
                true if (built.rewrites)(op) => &mut rewritten,
                true => &mut native,
            };
            list.push(op.to_string());
        }
        Dispatch::Known { native, rewritten, unsupported }
    }

    /// How long an item of the model takes here, alone and in a batch, ns.
    pub(crate) fn measure(&self, job: &Job<'_>) -> Option<[u64; 2]> {
        let built = self.built?;
        job.steps.step(self.name, "was measured with it", || {
            let reference = (built.reference)(job).ok()?;
            let max = job.config.batch.max.min(reference.signature.max_batch.unwrap_or(usize::MAX)).max(1);
            let session = (reference.session)(max).ok()?;
            crate::caught(|| measure(&reference.signature, session, max, CALIBRATED)).ok()?.ok()
        })
    }

    pub(crate) fn plan(&self, job: &Job<'_>) -> Result<InferPlan, PlanErrors> {
        match &self.built {
            Some(built) => (built.plan)(job),
            None => Err(PlanErrors::default()),
        }
    }
}

/// Puts the backend that was measured as the fastest first; what was never measured comes last, in the order it had. Says by
/// what the order goes.
pub(crate) fn order(verdicts: &mut [(Candidate, Verdict)], table: &Calibration, of: &Measured) -> String {
    let measured = |candidate: &Candidate| table.get(of, candidate.name, &candidate.version());
    verdicts.sort_by_cached_key(|(candidate, _)| measured(candidate).unwrap_or(u64::MAX));
    let known = verdicts.iter().filter_map(|(candidate, _)| Some((candidate.name, measured(candidate)?)));
    let known: Vec<String> = known.map(|(name, ns)| format!("`{name}` {}", show_ns(ns))).collect();
    if known.is_empty() {
        let names: Vec<&str> = verdicts.iter().map(|(candidate, _)| candidate.name).collect();
        return format!("`auto` goes by its usual order, {}: nothing was measured", names.join(", "));
    }
    format!("`auto` goes by what was measured: {} an item", known.join(", "))
}

/// The backend that another is compared with, with the model loaded.
///
/// # Errors
/// Why it cannot be.
pub(crate) fn reference(choice: Choice, job: &Job<'_>, required: &Requirements) -> Result<Reference, String> {
    let all = Candidate::all();
    let candidate = all.iter().find(|candidate| candidate.choice == choice);
    let candidate = candidate.ok_or("a model can be compared with `rten`, `tract` or `ort`")?;
    match (candidate.verdict(required), &candidate.built) {
        (Verdict::Fits, Some(built)) => (built.reference)(job).map_err(|errors| {
            format!("`{}` cannot run it: {}", candidate.name, errors.messages().collect::<Vec<_>>().join("; "))
        }),
        (verdict, _) => Err(format!("`{}` {verdict}", candidate.name)),
    }
}

/// What becomes of a model's operators in a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// It is not there, and why.
    NotThere(String),
    /// It publishes no list: loading the model tells.
    Unsaid,
    /// It says of each what it makes of it.
    Known {
        /// It has a kernel of that name.
        native: Vec<String>,
        /// Loading makes others of it, or a constant.
        rewritten: Vec<String>,
        /// It does not know it.
        unsupported: Vec<String>,
    },
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dispatch::NotThere(why) => f.write_str(why),
            Dispatch::Unsaid => f.write_str("publishes no list of its operators: loading the model tells"),
            Dispatch::Known { native, rewritten, unsupported } => {
                write!(f, "{} native", native.len())?;
                if !rewritten.is_empty() {
                    write!(f, ", {} rewritten ({})", rewritten.len(), rewritten.join(", "))?;
                }
                if !unsupported.is_empty() {
                    write!(f, ", {} unsupported ({})", unsupported.len(), unsupported.join(", "))?;
                }
                Ok(())
            }
        }
    }
}

/// Whether a runtime can do what is required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fits,
    NotBuilt(&'static str),
    Unavailable(String),
    Lacks(Vec<Lack>),
    /// It said that it could, and then could not.
    Failed(Vec<String>),
}

/// What it says after the runtime's name.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Fits => f.write_str("fits"),
            Verdict::NotBuilt(name) => write!(f, "is not built in (cargo feature `{name}`)"),
            Verdict::Unavailable(why) => write!(f, "is {why}"),
            Verdict::Lacks(lacks) => {
                // One operator may be missing at a hundred nodes.
                let mut shown: Vec<String> = Vec::new();
                let mut more = 0;
                for lack in lacks {
                    let seen = |other: &Lack| matches!((lack, other), (Lack::Op { op: a, .. }, Lack::Op { op: b, .. }) if a == b);
                    let is_first = lacks.iter().position(seen).is_none_or(|first| std::ptr::eq(lack, &lacks[first]));
                    if is_first {
                        shown.push(lack.to_string());
                    } else {
                        more += 1;
                    }
                }
                let more = if more > 0 { format!(" and {more} more of them") } else { String::new() };
                write!(f, "has {}{more}", shown.join(", "))
            }
            Verdict::Failed(why) => write!(f, "cannot run it: {}", why.join("; ")),
        }
    }
}

/// What a model, and its graph, ask of a runtime.
pub(crate) fn required(config: &Config, outline: &Outline) -> Requirements {
    let mut required = config.require.clone().unwrap_or_default().requirements();
    required.max_batch = required.max_batch.max(config.batch.max);
    required.threads = config.threads;
    required.memory.push(limen::Memory::Host);
    for input in &outline.inputs {
        required.dtypes.push((input.elem.dtype(), format!("input `{}`", input.port)));
        required.max_rank = required.max_rank.max(input.item(input.batch_dim()).len());
    }
    required.ops.extend(outline.ops.iter().map(|op| (op.id.clone(), op.node.clone())));
    required
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::{Require, RequireMemory};
    use limen::{DType, Memory};

    fn verdicts() -> Vec<(Candidate, Verdict)> {
        Candidate::all().into_iter().map(|candidate| (candidate, Verdict::Fits)).collect()
    }

    #[test]
    fn auto_takes_the_fastest_that_was_measured() {
        let of = Measured::new("model", &Given::default(), 1, 1);
        let version =
            |name: &str| Candidate::all().into_iter().find(|candidate| candidate.name == name).unwrap().version();
        for (measured, order_of, said) in [
            (&[][..], ["ort", "rten", "tract"], "its usual order, ort, rten, tract: nothing was measured"),
            (&[("tract", 20)], ["tract", "ort", "rten"], "what was measured: `tract` 20 ns an item"),
            (
                &[("ort", 30), ("rten", 10), ("tract", 20)],
                ["rten", "tract", "ort"],
                "what was measured: `rten` 10 ns, `tract` 20 ns, `ort` 30 ns an item",
            ),
        ] {
            let mut table = Calibration::default();
            measured.iter().for_each(|(name, ns)| table.set(&of, name, &version(name), [*ns, *ns]));
            let mut verdicts = verdicts();
            let line = order(&mut verdicts, &table, &of);
            let names: Vec<_> = verdicts.iter().map(|(candidate, _)| candidate.name).collect();
            assert_eq!((&names[..], line), (&order_of[..], format!("`auto` goes by {said}")));
        }
    }

    #[test]
    fn every_requirement_of_a_graph_is_compared() {
        let all = Require {
            device: Some("gpu".into()),
            dtypes: vec![DType::F64],
            max_batch: 9,
            max_rank: 10,
            ops: vec!["Frobnicate".into()],
            memory: Some(RequireMemory::Pinned),
            streams: true,
            graph_capture: true,
        };
        let required = all.requirements();
        let mut can = Capabilities::cpu("1", [DType::F32], Ops::Listed(["Conv".to_string()].into()));
        can.max_batch = Some(8);
        let lacks: Vec<String> = can.lacks(&required).iter().map(ToString::to_string).collect();
        let pinned = Memory::Pinned;
        assert_eq!(
            lacks,
            [
                "no device `gpu`, only cpu",
                "no elements of type f64 (required)",
                "no batches of 9, at most 8",
                "no tensors of 10 dims, at most 6",
                &format!("no inputs or outputs in {pinned}"),
                "no operator Frobnicate",
                "no calls that finish later",
                "no calls that are recorded and replayed",
            ]
        );
        assert_eq!(can.lacks(&Require::default().requirements()), []);
    }

    #[test]
    fn an_operator_that_is_missing_at_many_nodes_is_said_once() {
        let lack = |op: &str, node: &str| Lack::Op { op: op.into(), node: node.into() };
        let lacks = vec![lack("Foo", "a"), lack("Bar", "b/c"), lack("Foo", "d"), lack("Foo", "e")];
        let said = Verdict::Lacks(lacks).to_string();
        let expected =
            "has no operator Foo (node `a` of the model), no operator Bar (node `b/c` of the model) and 2 more of them";
        assert_eq!(said, expected);
        assert_eq!(Verdict::NotBuilt("ort").to_string(), "is not built in (cargo feature `ort`)");
    }
}
