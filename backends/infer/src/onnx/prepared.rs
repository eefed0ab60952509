//! A model with known shapes: trial runs find the shapes of its outputs, and whether it takes
//! batches.

use super::artifact::Artifact;
use super::constant::{ConstantInput, Constants};
use super::fallback::Fallback;
use super::input::{Input, LeadingDim, Length};
use super::lengths::{BoundInput, ValueLengths};
use super::loaded::Loaded;
use super::outline::{BoundShapes, Outline};
use super::outputs::{NotPrepared, OutputBounds, why_single};
use super::reference::Reference;
use super::runtime::{Call, CallInput, Precision, Provider, Runtime, capabilities};
use super::session::{OnnxSession, SessionInput, SessionOutput, buffer};
use super::shadow::ShadowPlan;
use super::shapes::Extent;
use super::trial_call::{Trial, TrialValues};
use crate::base::{Access, BackendOptions};
use crate::cache::Compiled;
use crate::steps::TrialSteps;
use crate::verify::Case;
use limen::backend::{Backend, BackendError, Capabilities, Prepared, Signature, TensorSpec, WorkerHost};
use limen::message::{DType, Dim};
use limen::policy::Trials;
use limen::text::nearest;
use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

/// A runtime as a backend.
pub struct Onnx<R>(PhantomData<R>);

impl<R> std::fmt::Debug for Onnx<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Onnx")
    }
}

/// A model's file and how to run it.
#[derive(Clone, Debug, Default)]
pub struct OnnxModel {
    /// Its file. Files of weights are found beside it, by their names in the model.
    pub path: PathBuf,
    /// The content of the file, if it is not to be read from `path`.
    pub bytes: Option<Vec<u8>>,
    /// Threads inside one call; 0 counts as 1.
    pub threads: usize,
    /// Shapes of one item by input, as far as they are known: they bind the symbolic dims. A dim
    /// that is [`Dim::AtMost`] varies from call to call; the model then takes one item in a call.
    pub shapes: BTreeMap<String, Vec<Dim>>,
    /// The greatest lengths of the dims of one item, by output, where the model does not declare
    /// them.
    pub max: BTreeMap<String, Vec<usize>>,
    /// Whether the first dim of each input is part of an item, although it is symbolic or 1.
    pub no_batch: bool,
    /// Batch sizes, ascending, to the next of which a batch is padded; by default the powers of two
    /// for a runtime that compiles for a batch size, and no padding for the others.
    pub buckets: Vec<usize>,
    /// Outputs that are inputs of the next call of the same stream.
    pub states: Vec<ModelState>,
    /// Inputs with the same value in every call, by port name.
    pub constants: BTreeMap<String, ConstantInput>,
    /// A case whose first item the trial run gets; zeros by default and, if the model fails on
    /// them, ones.
    pub sample: Option<Case>,
    /// Whether there is no trial run: the shapes of the outputs are those that the model declares.
    pub untried: bool,
    /// Whether a call fails if its inputs or outputs hold an infinity or NaN.
    pub finite: bool,
    /// Whether a session is prepared in its first call, and not before.
    pub lazy: bool,
    /// Whether every call has one item: the trial run on two items is then skipped.
    pub one_item: bool,
    /// How many shapes of calls stay prepared, for a runtime that compiles for them; 0 counts as 1.
    pub plans: usize,
    /// How precise its numbers are, for a runtime that can choose.
    pub precision: Precision,
    /// How an execution provider of ONNX Runtime is used.
    pub provider: Provider,
    /// The cache folder and the library of ONNX Runtime.
    pub options: BackendOptions,
}

/// An output that is an input of the next call of the same stream. It is not a port; the first call
/// gets zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelState {
    /// The port name of the input.
    pub input: String,
    /// The port name of the output.
    pub output: String,
    /// The index of its batch dim, from 0; by default the dim with the same name as the batch dim
    /// of the other inputs, or its only symbolic dim.
    pub batch_dim: Option<usize>,
}

impl<R: Runtime> Backend for Onnx<R> {
    const NAME: &'static str = R::BACKEND;
    type Model = OnnxModel;
    type Prepared = OnnxPrepared<R>;

    /// With default options: `ort` loads its default library, which is then the only one of this
    /// process.
    fn probe() -> Result<Capabilities, BackendError> {
        capabilities::<R>(&BackendOptions::default())
    }

    fn prepare(mut model: OnnxModel) -> Result<OnnxPrepared<R>, BackendError> {
        let with_dims = |artifact: Artifact| if model.no_batch { artifact.without_batch() } else { artifact };
        let loaded = match model.bytes.take() {
            Some(bytes) => Arc::new(Loaded::of(with_dims(Artifact::parse(&model.path, bytes)?), &model.options)?),
            None => Loaded::share(with_dims(Artifact::open(&model.path, Trials::MAX_SIZE)?), &model.options)?,
        };
        let batch_dims = batch_dims(&loaded.outline, &model.states)?;
        for (port, constant) in &model.constants {
            constant.check(port, &loaded.outline).map_err(BackendError::Unsupported)?;
            model.shapes.insert(port.clone(), constant.shape.iter().copied().map(Dim::Fixed).collect());
        }
        let bound = loaded.outline.bind(&model.shapes, &batch_dims).map_err(|unbound| {
            let all: Vec<_> = unbound.iter().map(|u| format!("input `{}`: {}", u.input, u.why)).collect();
            BackendError::Unsupported(all.join("; "))
        })?;
        Ok(OnnxPrepared::new(loaded, bound, &model, &TrialSteps::default())?)
    }
}

/// Returns the index of each input's batch dim.
///
/// # Errors
/// A state that the model does not have, or whose `batch_dim` it does not have.
pub(crate) fn batch_dims(outline: &Outline, states: &[ModelState]) -> Result<Vec<Option<usize>>, BackendError> {
    fn unsupported<T>(why: String) -> Result<T, BackendError> {
        Err(BackendError::Unsupported(why))
    }
    let (inputs, outputs) = (outline.inputs.iter().map(|input| &input.port), outline.outputs.iter().map(|o| &o.port));
    let (inputs, outputs): (Vec<&String>, Vec<&String>) = (inputs.collect(), outputs.collect());
    for state in states {
        for (side, name, ports) in [("input", &state.input, &inputs), ("output", &state.output, &outputs)] {
            if !ports.contains(&name) {
                let there: Vec<String> = ports.iter().map(|port| format!("`{port}`")).collect();
                let there = there.join(", ");
                return unsupported(format!("a state must name an {side} of the model ({there}), got `{name}`"));
            }
        }
    }
    let state_of = |input: &Input| states.iter().find(|state| state.input == input.port);
    let batches: Vec<&Length> = outline
        .inputs
        .iter()
        .filter(|input| state_of(input).is_none() && input.lead == LeadingDim::Batch)
        .filter_map(|input| input.shape.first())
        .collect();
    let dim_of = |input: &Input| match state_of(input) {
        None => Ok(input.batch_dim()),
        Some(ModelState { batch_dim: Some(dim), .. }) if *dim >= input.shape.len() => unsupported(format!(
            "`batch_dim` of the state `{}` must be less than its rank {}, got {dim}",
            input.port,
            input.shape.len()
        )),
        Some(ModelState { batch_dim: Some(dim), .. }) => Ok(Some(*dim)),
        Some(_) => {
            let is_symbol = |dim: &Length| matches!(dim, Length::Symbol(_));
            let only = input.shape.iter().position(is_symbol);
            // Without a batch a length of the state is that of an item.
            let only = only.filter(|_| outline.has_batch);
            let only = only.filter(|_| input.shape.iter().filter(|dim| is_symbol(dim)).count() == 1);
            Ok(input.shape.iter().position(|dim| batches.contains(&dim)).or(only))
        }
    };
    outline.inputs.iter().map(dim_of).collect()
}

/// A loaded model with known shapes.
pub struct OnnxPrepared<R: Runtime> {
    loaded: Arc<Loaded<R>>,
    shared: Arc<R::Shared>,
    call: Call,
    outputs: Vec<SessionOutput>,
    /// The input and output of each state.
    states: Vec<(usize, usize)>,
    constants: Constants,
    signature: Signature,
    single: Option<String>,
    notes: Vec<String>,
    buckets: Vec<usize>,
    /// Dims with one name whose length varies: the inputs, and the dims of their items.
    alike: Vec<Vec<(usize, usize)>>,
    finite: bool,
    lazy: bool,
    /// Whether the model is not to be run before the first message.
    untried: bool,
    shadow: Option<ShadowPlan>,
    fallback: Option<Reference>,
}

impl<R: Runtime> std::fmt::Debug for OnnxPrepared<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnnxPrepared").field("runtime", &R::NAME).field("signature", &self.signature).finish()
    }
}

impl<R: Runtime> OnnxPrepared<R> {
    /// Tries the model, to find the shapes of its outputs and whether it takes batches.
    pub(crate) fn new(
        loaded: Arc<Loaded<R>>,
        bound: BoundShapes,
        model: &OnnxModel,
        steps: &TrialSteps,
    ) -> Result<Self, NotPrepared> {
        let outline = &loaded.outline;
        let batch_dims = batch_dims(outline, &model.states)?;
        let inputs = std::iter::zip(&outline.inputs, &bound.items).zip(&batch_dims);
        let inputs = inputs.map(|((declared, item), batch_dim)| CallInput {
            name: declared.name.clone(),
            elem: declared.elem,
            item: item.iter().map(|dim| dim.max().unwrap_or(1)).collect(),
            varies: item.iter().map(|dim| matches!(dim, Dim::AtMost(_))).collect(),
            batch_dim: *batch_dim,
            constant: model.constants.get(&declared.port).cloned(),
        });
        let names = outline.outputs.iter().map(|output| output.name.clone()).collect();
        let threads = model.threads.max(1);
        let (plans, precision, provider) = (model.plans, model.precision, model.provider.clone());
        let inputs = inputs.collect();
        let call = Call { inputs, outputs: names, threads, batches: Vec::new(), plans, precision, provider };
        let at = |port: &str, ports: &[String]| ports.iter().position(|other| other == port).unwrap_or_default();
        let in_ports: Vec<String> = outline.inputs.iter().map(|input| input.port.clone()).collect();
        let out_ports: Vec<String> = outline.outputs.iter().map(|output| output.port.clone()).collect();
        let states: Vec<(usize, usize)> =
            model.states.iter().map(|state| (at(&state.input, &in_ports), at(&state.output, &out_ports))).collect();
        if let Some(port) = model.max.keys().find(|port| !out_ports.contains(port)) {
            let is_state = |port: &String| model.states.iter().any(|state| state.output == *port);
            let there: Vec<&str> = out_ports.iter().filter(|port| !is_state(port)).map(String::as_str).collect();
            let near = nearest(port, there.iter().copied()).map(|near| format!("; did you mean `{near}`?"));
            let (near, there) = (near.unwrap_or_default(), there.join("`, `"));
            return Err(NotPrepared::Field(
                "max",
                format!("`max` must name an output (`{there}`), got `{port}`{near}"),
            ));
        }

        let shared = loaded.runtime.share(&call)?;
        let trial = Trial { loaded: &*loaded, shared: &shared, call: &call, model, steps };
        let varying = call.inputs.iter().position(|input| input.varies.contains(&true));
        let mut bounds = OutputBounds {
            declared: &outline.outputs,
            symbols: &bound.symbols,
            batches: std::iter::zip(&outline.inputs, &batch_dims)
                .filter_map(|(input, dim)| input.shape.get((*dim)?))
                .collect(),
            max: &model.max,
            inputs_vary: varying.is_some(),
            by_values: value_lengths(outline, &bound, &batch_dims, &call, &model.constants),
            row_per_item: Vec::new(),
        };
        let state_of = |at| input_of(&states, at).map(|input| &call.inputs[input]);
        if let Some((input, _)) = states.iter().find(|(input, _)| call.inputs[*input].varies.contains(&true)) {
            let why = format!(
                "the state `{}` must have fixed lengths, got lengths that differ between calls",
                in_ports[*input]
            );
            return Err(NotPrepared::state(why));
        }
        let (values, one) = match model.untried {
            true => (None, bounds.as_declared(state_of)?),
            false => trial.one_item().map(|(values, found)| (Some(values), found))?,
        };
        if let Some(values) = values.filter(|_| varying.is_none() && bounds.may_have_rows(&one)) {
            bounds.row_per_item = trial.outputs_with_a_row_per_item(values);
        }
        let shorter = values.filter(|_| varying.is_some()).and_then(|values| trial.shorter_item(values).ok());
        let (outputs, mut notes) = bounds.outputs(&one, shorter.as_ref(), state_of)?;
        let has_no_batch = |at: usize| match states.iter().any(|(input, _)| *input == at) {
            true => batch_dims[at].is_none(),
            // All items share a constant.
            false if model.constants.contains_key(&in_ports[at]) && batch_dims[at].is_none() => false,
            false => outline.inputs[at].lead != LeadingDim::Batch,
        };
        let varying_output = outputs.iter().find(|output| output.varies.contains(&true));
        let single = if let Some(at) = (0..in_ports.len()).find(|at| has_no_batch(*at)) {
            Some(format!("input `{}` has no batch dim", in_ports[at]))
        } else if let Some(at) = varying {
            Some(format!("the messages of input `{}` differ in length", in_ports[at]))
        } else if let Some(output) = varying_output {
            Some(format!("output `{}` differs in length", output.port))
        } else if model.one_item {
            Some("the model was loaded for calls with one item".into())
        } else {
            // A model can declare a batch that it does not support, for example with a reshape to
            // [1, …] inside.
            match values.map(|values| trial.two_items(values)) {
                None => Some("the model was not tried".into()),
                Some(Err(error)) => Some(format!("a trial run on two items failed: {error}")),
                Some(Ok(two)) => why_single(&outputs, &one, &two),
            }
        };
        match values {
            None => notes.push("the model was not tried: its outputs have the declared shapes".into()),
            Some(TrialValues::Ones) => notes.push("the model fails on zeros, so limen tried it on ones".into()),
            Some(TrialValues::Zeros | TrialValues::Recorded | TrialValues::Noise) => {}
        }

        let varying_dims = bound.symbols.iter().filter(|(_, length)| matches!(length, Dim::AtMost(_)));
        let alike = varying_dims.map(|(symbol, _)| outline.dims_named(symbol, &batch_dims)).collect();
        let max_batch = single.as_ref().map(|_| 1);
        let signature = signature_of(&in_ports, &call.inputs, &outputs, &states, &model.constants, max_batch)?;
        let (buckets, shadow, fallback) = (model.buckets.clone(), None, None);
        let OnnxModel { finite, lazy, untried, .. } = *model;
        let (shared, constants) = (Arc::new(shared), model.constants.clone());
        Ok(OnnxPrepared {
            loaded,
            shared,
            call,
            outputs,
            states,
            constants,
            signature,
            single,
            notes,
            buckets,
            alike,
            finite,
            lazy,
            untried,
            shadow,
            fallback,
        })
    }

    /// Returns the size of its files in bytes, and the number of its parameters.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.loaded.bytes, self.loaded.outline.parameters())
    }

    /// Returns the runtime's compilation counts, if it compiles.
    pub(crate) fn compiled(&self) -> Option<Compiled> {
        self.loaded.runtime.compiled()
    }

    /// Returns the number of threads inside one call.
    pub(crate) fn threads(&self) -> usize {
        self.call.threads
    }

    /// Repeats some of the calls on another backend.
    pub(crate) fn set_shadow(&mut self, shadow: ShadowPlan) {
        self.shadow = Some(shadow);
    }

    /// Sets what makes the calls that fail because the device is lost.
    pub(crate) fn set_fallback(&mut self, fallback: Reference) {
        self.fallback = Some(fallback);
    }

    /// Returns why the model takes only one item per call, if so.
    pub fn single(&self) -> Option<&str> {
        self.single.as_deref()
    }

    /// Returns what is known of the model without a runtime.
    pub(super) fn outline(&self) -> &Outline {
        &self.loaded.outline
    }

    /// Returns lines about its trial, and about the bounds of lengths that vary.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Makes a session that has not made a call: those that measure make the calls they need.
    ///
    /// # Errors
    /// As [`Prepared::session`].
    pub(crate) fn cold_session(&self, max_batch: usize) -> Result<OnnxSession<R>, BackendError> {
        let max_batch = max_batch.max(1);
        if let Some(most) = self.signature.max_batch.filter(|most| max_batch > *most) {
            let why = self.single.as_deref().unwrap_or_default();
            return Err(BackendError::Unsupported(format!(
                "the batch size must be at most {most} for this model, got {max_batch}: {why}"
            )));
        }
        let buckets = self.buckets(max_batch);
        let batches = if buckets.is_empty() { vec![max_batch] } else { buckets.clone() };
        let call = Call { batches, ..self.call.clone() };
        let runner = match self.lazy {
            true => None,
            false => Some(self.loaded.runner(&self.shared, &call)?),
        };
        let is_padded = !buckets.is_empty() && max_batch > 1;
        let inputs = call.inputs.iter().enumerate().map(|(at, input)| {
            let state = self.states.iter().position(|(state, _)| *state == at);
            let item_bytes = input.item.iter().product::<usize>() * input.elem.dtype().size();
            let port = &self.loaded.outline.inputs[at].port;
            let constant = self.constants.get(port);
            let room = if state.is_some() || constant.is_some() || is_padded { item_bytes * max_batch } else { 0 };
            let mut buffer = buffer(room);
            if let Some(constant) = constant {
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer);
                constant.fill(Access::for_dtype(input.elem.dtype()), &mut bytes[..room]);
            }
            SessionInput {
                port: port.clone(),
                dtype: input.elem.dtype(),
                shape: input.shape(max_batch),
                bounds: if input.varies.contains(&true) { input.item.clone() } else { Vec::new() },
                item_bytes,
                batch_dim: input.batch_dim,
                state,
                is_constant: constant.is_some(),
                buffer,
            }
        });
        let next = self.states.iter().map(|(_, output)| buffer(self.outputs[*output].item_bytes() * max_batch));
        let outputs = self.outputs.iter().enumerate().map(|(at, side)| {
            let state = self.states.iter().position(|(_, state)| *state == at);
            (side.clone(), state)
        });
        let (inputs, outputs) = (inputs.collect(), outputs.collect());
        let shadow = self.shadow.as_ref().map(|shadow| shadow.begin(max_batch)).transpose()?;
        let fallback = self.fallback.as_ref().map(|reference| Fallback::begin(reference, max_batch)).transpose()?;
        Ok(OnnxSession {
            runner,
            shared: self.shared.clone(),
            call,
            first_call: None,
            inputs,
            outputs,
            next: next.collect(),
            buckets,
            alike: self.alike.clone(),
            loaded: self.loaded.clone(),
            finite: self.finite,
            shadow,
            fallback,
            warm_up: None,
            zeros: Vec::new(),
            halved: 0,
        })
    }

    /// Returns the sizes to which batches of up to `max_batch` are padded; empty if they are not
    /// padded.
    pub(super) fn buckets(&self, max_batch: usize) -> Vec<usize> {
        let mut buckets: Vec<usize> = self.buckets.iter().copied().filter(|n| (1..max_batch).contains(n)).collect();
        if R::COMPILES && self.buckets.is_empty() {
            buckets = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < max_batch).collect();
        }
        if R::COMPILES || R::PREFERS_ONE_SIZE || !self.buckets.is_empty() {
            buckets.push(max_batch);
        }
        buckets
    }
}

/// Returns the outputs whose lengths depend on values, with what is known of them for calls with
/// one item.
fn value_lengths(
    outline: &Outline,
    bound: &BoundShapes,
    batch_dims: &[Option<usize>],
    call: &Call,
    constants: &Constants,
) -> HashMap<String, ValueLengths> {
    let Some(graph) = &outline.value_shaped else { return HashMap::new() };
    let extent = |dim: &Dim| match dim {
        Dim::AtMost(most) => Extent::up_to(*most as u64),
        dim => Extent::exactly(dim.max().unwrap_or(1) as u64),
    };
    let mut symbols: HashMap<&str, Extent> =
        bound.symbols.iter().map(|(symbol, dim)| (symbol.as_str(), extent(dim))).collect();
    let inputs = std::iter::zip(&outline.inputs, &bound.items).zip(std::iter::zip(&call.inputs, batch_dims));
    let inputs = inputs.map(|((declared, item), (input, batch_dim))| {
        let mut shape: Vec<Extent> = item.iter().map(extent).collect();
        if let Some(dim) = batch_dim.filter(|dim| *dim <= shape.len()) {
            shape.insert(dim, Extent::exactly(1));
            if let Some(Length::Symbol(symbol)) = declared.shape.get(dim) {
                symbols.entry(symbol).or_insert(Extent::exactly(1));
            }
        }
        let constant = constants.get(&declared.port).map(|constant| &constant.values[..]);
        BoundInput { name: &input.name, shape, constant }
    });
    let inputs: Vec<BoundInput<'_>> = inputs.collect();
    graph.outputs(&inputs, &symbols)
}

/// Returns the input that an output goes to as a state.
fn input_of(states: &[(usize, usize)], output: usize) -> Option<usize> {
    states.iter().find(|(_, state)| *state == output).map(|(input, _)| *input)
}

/// Returns the inputs and outputs of a model that are ports.
///
/// # Errors
/// When no output is left, or a node cannot have these ports.
fn signature_of(
    in_ports: &[String],
    inputs: &[CallInput],
    outputs: &[SessionOutput],
    states: &[(usize, usize)],
    constants: &Constants,
    max_batch: Option<usize>,
) -> Result<Signature, NotPrepared> {
    let mut signature = Signature { max_batch, ..Signature::default() };
    for (at, (port, input)) in std::iter::zip(in_ports, inputs).enumerate() {
        if !states.iter().any(|(state, _)| *state == at) && !constants.contains_key(port) {
            signature.inputs.push(spec(port, input.elem.dtype(), &input.item, &input.varies));
        }
    }
    for (at, output) in outputs.iter().enumerate() {
        if input_of(states, at).is_none() {
            signature.outputs.push(spec(&output.port, output.dtype, &output.item, &output.varies));
        }
    }
    if let Some((_, output)) = states.first().filter(|_| signature.outputs.is_empty()) {
        let output = &outputs[*output].port;
        let why = format!(
            "the only output `{output}` is a state, which is not a port: export `{output}` again through `Identity`"
        );
        return Err(NotPrepared::state(why));
    }
    signature.check().map_err(|error| NotPrepared::Field("model", error.to_string()))?;
    Ok(signature)
}

fn spec(name: &str, dtype: DType, item: &[usize], varies: &[bool]) -> TensorSpec {
    let dim = |(length, varies): (&usize, &bool)| if *varies { Dim::AtMost(*length) } else { Dim::Fixed(*length) };
    TensorSpec { name: name.to_string(), dtype, shape: std::iter::zip(item, varies).map(dim).collect() }
}

impl<R: Runtime> Prepared for OnnxPrepared<R> {
    type Session = OnnxSession<R>;

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn is_stateful(&self) -> bool {
        !self.states.is_empty()
    }

    fn worker_host(&self) -> Option<WorkerHost> {
        R::WORKER_HOST.filter(|_| self.call.threads <= 1)
    }

    fn session(&self, max_batch: usize) -> Result<OnnxSession<R>, BackendError> {
        let mut session = self.cold_session(max_batch)?;
        // A model that may not be tried is not to be run on made-up numbers.
        if R::WARMS_UP && !self.untried {
            session.warm_up()?;
        }
        Ok(session)
    }
}
