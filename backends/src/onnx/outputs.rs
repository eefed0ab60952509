//! The outputs of a model whose input shapes are known: trial calls find them.
//!
//! A dim that the model does not declare may depend on the values of a message, or on its length. Such a dim has a greatest length,
//! from the node's config or from the trial, and each call may give fewer.

use super::input::{Input, Length};
use super::loaded::Loaded;
use super::outline::Output;
use super::prepared::OnnxModel;
use super::runtime::{Call, CallInput, Runtime, batch_shape};
use super::session::{SessionOutput, buffer};
use crate::base::Access;
use crate::steps::Steps;
use limen::backend::{BackendError, BatchRef};
use limen::message::{DType, Dim, MAX_RANK, PortSpec};
use std::collections::BTreeMap;

/// Dtype and shape of each output of a call.
pub(super) type OutputShapes = Vec<(DType, Vec<usize>)>;

/// What a trial call gives to the inputs that are ports; the others have their constant, or zeros as states do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialValues {
    Recorded,
    Zeros,
    Ones,
}

impl TrialValues {
    fn name(self) -> &'static str {
        match self {
            TrialValues::Recorded => "recorded values",
            TrialValues::Zeros => "zeros",
            TrialValues::Ones => "ones",
        }
    }
}

/// Calls a model before the graph starts, to see what it returns.
pub(super) struct Trial<'a, R: Runtime> {
    pub(super) loaded: &'a Loaded<R>,
    pub(super) shared: &'a R::Shared,
    pub(super) call: &'a Call,
    pub(super) model: &'a OnnxModel,
    pub(super) steps: &'a Steps,
}

impl<R: Runtime> Trial<'_, R> {
    /// Calls it with one item: on a recorded one if there is one, else on zeros and, if they fail, on ones.
    ///
    /// # Errors
    /// Why each of them failed.
    pub(super) fn one_item(&self) -> Result<(TrialValues, OutputShapes), BackendError> {
        let kinds = match self.model.sample {
            Some(_) => &[TrialValues::Recorded][..],
            None => &[TrialValues::Zeros, TrialValues::Ones],
        };
        let mut failed: Vec<String> = Vec::new();
        for values in kinds {
            match self.call_with(*values, 1, self.call) {
                Ok(found) => return Ok((*values, found)),
                Err(why) if failed.iter().any(|other| other.ends_with(&why)) => {}
                Err(why) => failed.push(format!("a trial run on {} failed: {why}", values.name())),
            }
        }
        let mut why = failed.join("; ");
        // Other numbers help only where a call failed, and not where the runtime refuses the model.
        if self.model.sample.is_none() && why.contains("inference failed") {
            why.push_str("; write `trial: FILE.npz` with an item that it takes, or `trial: first_message`");
        }
        Err(BackendError::Unsupported(why))
    }

    /// Calls it with two items.
    pub(super) fn two_items(&self, values: TrialValues) -> Result<OutputShapes, String> {
        self.call_with(values, 2, self.call)
    }

    /// Calls it with one item whose varying lengths are half of the greatest.
    pub(super) fn shorter_item(&self, values: TrialValues) -> Result<OutputShapes, String> {
        let halved = |input: &CallInput| CallInput {
            item: std::iter::zip(&input.item, &input.varies)
                .map(|(length, varies)| if *varies { length.div_ceil(2) } else { *length })
                .collect(),
            ..input.clone()
        };
        self.call_with(values, 1, &Call { inputs: self.call.inputs.iter().map(halved).collect(), ..self.call.clone() })
    }

    /// Makes a call, as one step of the trial.
    fn call_with(&self, values: TrialValues, batch: usize, call: &Call) -> Result<OutputShapes, String> {
        let call = Call { batches: vec![batch], ..call.clone() };
        let plural = if batch == 1 { "" } else { "s" };
        let shorter =
            if call.inputs.iter().zip(&self.call.inputs).all(|(a, b)| a.item == b.item) { "" } else { " shorter" };
        let what = format!("ran it on {}, {batch}{shorter} item{plural}", values.name());
        let found: Result<RecordedShapes, String> = self.steps.step(R::NAME, &what, || {
            let found = self.run(values, batch, &call).map_err(|error| error.to_string())?;
            Ok(found.into_iter().map(|(dtype, shape)| (dtype.name().to_string(), shape)).collect())
        });
        parse(found?, call.outputs.len())
    }

    fn run(&self, values: TrialValues, batch: usize, call: &Call) -> Result<OutputShapes, BackendError> {
        let OnnxModel { constants, states, sample, .. } = self.model;
        let ports = || self.loaded.outline.inputs.iter().map(|declared| &declared.port);
        let shapes: Vec<Vec<usize>> = call.inputs.iter().map(|input| input.shape(batch)).collect();
        let mut buffers = Vec::new();
        for ((input, port), shape) in std::iter::zip(&call.inputs, ports()).zip(&shapes) {
            let dtype = input.elem.dtype();
            let bytes = shape.iter().try_fold(dtype.size(), |n, dim| n.checked_mul(*dim));
            let bytes = bytes.filter(|n| *n <= isize::MAX as usize / 8);
            let wrong = || format!("input `{}` has the shape {shape:?}, which does not fit in memory", input.name);
            let bytes = bytes.ok_or_else(|| BackendError::Unsupported(wrong()))?;
            let mut words = buffer(bytes);
            let to = &mut bytemuck::cast_slice_mut(&mut words)[..bytes];
            let (access, is_state) = (Access::for_dtype(dtype), states.iter().any(|state| state.input == *port));
            match (constants.get(port), values) {
                (Some(constant), _) => constant.fill(access, to),
                (None, TrialValues::Ones) if !is_state => access.write(std::iter::repeat(1.0), to),
                (None, TrialValues::Recorded) => {
                    let item = input.item.iter().product();
                    if is_state {
                        // It starts from zeros.
                    } else if let Some(first) = sample.as_ref().and_then(|sample| sample.first_item(port, item)) {
                        access.write(std::iter::repeat_n(first, batch).flatten(), to);
                    }
                }
                (None, _) => {}
            }
            buffers.push((words, bytes));
        }
        let inputs: Vec<BatchRef<'_>> = std::iter::zip(&call.inputs, &shapes)
            .zip(&buffers)
            .map(|((input, shape), (words, bytes))| BatchRef {
                dtype: input.elem.dtype(),
                shape,
                bytes: &bytemuck::cast_slice(words)[..*bytes],
            })
            .collect();
        let mut found = vec![None; call.outputs.len()];
        self.loaded.runner(self.shared, call)?.run(batch, &inputs, &mut |at, output| {
            if let Some(found) = found.get_mut(at) {
                *found = Some((output.dtype, output.shape.to_vec()));
            }
            Ok(())
        })?;
        let missing = |at: usize| {
            let name = &self.loaded.outline.outputs[at].port;
            BackendError::Unsupported(format!("output `{name}` is not a tensor that a port can carry"))
        };
        found.into_iter().enumerate().map(|(at, found)| found.ok_or_else(|| missing(at))).collect()
    }
}

/// The dtype and shape of each output of a trial call, as recorded.
type RecordedShapes = Vec<(String, Vec<usize>)>;

/// Parses and checks the recorded outputs of a trial call: they may come from the cache on disk.
fn parse(found: RecordedShapes, outputs: usize) -> Result<OutputShapes, String> {
    let wrong = || "the recorded result of its trial is not of this model".to_string();
    let known = |name: &str| name.parse::<PortSpec>().ok().map(|spec| spec.dtype);
    let fits = |(name, shape): (String, Vec<usize>)| {
        let dtype = known(&name)?;
        let bytes = shape.iter().try_fold(dtype.size(), |n, dim| n.checked_mul(*dim))?;
        (bytes <= isize::MAX as usize / 8).then_some((dtype, shape))
    };
    let found: Option<Vec<_>> = found.into_iter().map(fits).collect();
    found.filter(|found| found.len() == outputs).ok_or_else(wrong)
}

/// What is known about a model's outputs besides the trial.
pub(super) struct OutputBounds<'a> {
    pub(super) declared: &'a [Output],
    /// The lengths of symbolic dims, from the inputs.
    pub(super) symbols: &'a BTreeMap<String, Dim>,
    /// The names of the batch dims of the inputs.
    pub(super) batches: Vec<&'a Length>,
    /// The greatest lengths that the config gives, by port.
    pub(super) max: &'a BTreeMap<String, Vec<usize>>,
    /// Whether the items of an input differ in length.
    pub(super) inputs_vary: bool,
}

impl OutputBounds<'_> {
    /// Returns the outputs of a model from the trial calls: on one item, and on a shorter one if lengths vary. `states` has the
    /// input of each output that is a state.
    ///
    /// # Errors
    /// Outputs that no port can carry, that have a length without a bound, or that are a state and do not match its input.
    pub(super) fn outputs<'a>(
        &self,
        one: &OutputShapes,
        shorter: Option<&OutputShapes>,
        states: impl Fn(usize) -> Option<&'a CallInput>,
    ) -> Result<Vec<SessionOutput>, BackendError> {
        let sides = one.iter().enumerate().map(|(at, (dtype, shape))| {
            let side = self.output(at, *dtype, shape, shorter.map(|shorter| &shorter[at].1), states(at))?;
            let (port, item) = (&side.port, &side.item);
            if let Some(input) = states(at)
                && (input.item != *item || input.elem.dtype() != *dtype || side.varies.contains(&true))
            {
                let (takes, as_what) = (&input.item, input.elem.dtype());
                return Err(format!("the state `{port}` is {dtype}{item:?} as output and {as_what}{takes:?} as input"));
            }
            if item.len() > MAX_RANK || item.contains(&0) {
                let why =
                    format!("output `{port}` is {item:?}; a port carries at most {MAX_RANK} dims, none of length 0");
                return Err(why);
            }
            Ok(side)
        });
        sides.collect::<Result<_, _>>().map_err(BackendError::Unsupported)
    }

    fn output(
        &self,
        at: usize,
        dtype: DType,
        shape: &[usize],
        shorter: Option<&Vec<usize>>,
        state: Option<&CallInput>,
    ) -> Result<SessionOutput, String> {
        let Output { port, declared, depends_on_values, .. } = &self.declared[at];
        let declared = declared.as_ref().filter(|declared| declared.shape.len() == shape.len());
        let dim_of = |dim: usize| declared.and_then(|declared| declared.shape.get(dim));
        let batch_dim = match state {
            Some(input) => input.batch_dim,
            // A length that depends on values may be 1 by chance.
            None if *depends_on_values && !dim_of(0).is_some_and(|dim| self.is_batch(dim)) => None,
            None => (!self.batches.is_empty() && shape.first() == Some(&1)).then_some(0),
        };
        if let Some(dim) = batch_dim.filter(|dim| shape.get(*dim) != Some(&1)) {
            return Err(format!(
                "the state `{port}` is {dtype}{shape:?} for one item, whose dim {dim} is not its batch"
            ));
        }
        let mut max = self.max_of(port, shape.len() - usize::from(batch_dim.is_some()))?;
        let (mut item, mut varies) = (Vec::new(), Vec::new());
        for (dim, length) in shape.iter().enumerate().filter(|(dim, _)| Some(*dim) != batch_dim) {
            let (length, is_varying) = match dim_of(dim) {
                // Some files declare a length that the model does not give.
                Some(Length::Fixed(fixed)) if fixed == length => {
                    max.fixed(port, item.len(), *fixed)?;
                    (*fixed, false)
                }
                Some(Length::Symbol(symbol)) if self.symbols.get(symbol) == Some(&Dim::Fixed(*length)) => {
                    max.fixed(port, item.len(), *length)?;
                    (*length, false)
                }
                Some(Length::Symbol(symbol)) if self.symbols.contains_key(symbol) && !max.is_whole() => (*length, true),
                _ => match max.next() {
                    Some(most) => (most, true),
                    None if *depends_on_values && state.is_none() => {
                        let name = dim_of(dim).map_or(String::new(), |length| format!(", `{length}`"));
                        return Err(format!(
                            "output `{port}` has a length that depends on values (dim {}{name}): write its greatest length, \
                             `max: {{ {port}: [{}] }}`",
                            item.len(),
                            self.example(at, shape, batch_dim)
                        ));
                    }
                    None => {
                        let is_shorter = |shorter: &Vec<usize>| shorter.get(dim) != Some(length);
                        (*length, self.inputs_vary && shorter.is_none_or(is_shorter))
                    }
                },
            };
            item.push(length);
            varies.push(is_varying);
        }
        let varying = varies.iter().filter(|varies| **varies).count();
        if varying > MAX_VARYING {
            return Err(format!(
                "output `{port}` has {varying} dims that may vary, of which messages have at most {MAX_VARYING}: declare their \
                 lengths in the model"
            ));
        }
        Ok(SessionOutput { port: port.clone(), dtype, item, varies, batch_dim })
    }

    /// Whether a declared dim is that of the batch.
    fn is_batch(&self, dim: &Length) -> bool {
        !self.batches.is_empty() && (*dim == Length::Fixed(1) || self.batches.contains(&dim))
    }

    /// Returns the greatest lengths that the config gives for an output with items of `rank` dims.
    fn max_of(&self, port: &str, rank: usize) -> Result<MaxLengths<'_>, String> {
        match self.max.get(port).map(Vec::as_slice) {
            None => Ok(MaxLengths::None),
            Some(lengths) if lengths.len() == rank => Ok(MaxLengths::Whole(lengths)),
            Some([length]) => Ok(MaxLengths::First(*length)),
            Some(lengths) => {
                let given = lengths.len();
                Err(format!("`max` has {given} lengths for output `{port}`, whose items have {rank} dims"))
            }
        }
    }

    /// Returns an item's dims for a message: the declared ones, and 100 for those to be replaced.
    fn example(&self, at: usize, shape: &[usize], batch_dim: Option<usize>) -> String {
        let declared = self.declared[at].declared.as_ref().filter(|declared| declared.shape.len() == shape.len());
        let dims = (0..shape.len()).filter(|dim| Some(*dim) != batch_dim).map(|dim| {
            match declared.map(|declared| &declared.shape[dim]) {
                Some(Length::Fixed(length)) => length.to_string(),
                _ => "100".into(),
            }
        });
        dims.collect::<Vec<_>>().join(", ")
    }

    /// Returns the outputs as declared, for a model that is not tried before its first message.
    ///
    /// # Errors
    /// An output without a declared type, or with a dim that has no length.
    pub(super) fn as_declared<'a>(
        &self,
        states: impl Fn(usize) -> Option<&'a CallInput>,
    ) -> Result<OutputShapes, String> {
        let one = |(at, output): (usize, &Output)| match &output.declared {
            Some(declared) => self.declared_shape(declared, &output.port, states(at)),
            None => Err(format!("output `{}` does not declare its type and shape", output.port)),
        };
        self.declared.iter().enumerate().map(one).collect()
    }

    fn declared_shape(
        &self,
        declared: &Input,
        port: &str,
        state: Option<&CallInput>,
    ) -> Result<(DType, Vec<usize>), String> {
        let batch_dim = match state {
            Some(input) => input.batch_dim,
            None => declared.shape.first().is_some_and(|dim| self.is_batch(dim)).then_some(0),
        };
        let mut max = self.max_of(port, declared.shape.len() - usize::from(batch_dim.is_some()))?;
        let mut shape = Vec::new();
        for (at, dim) in declared.shape.iter().enumerate() {
            let length = match dim {
                _ if Some(at) == batch_dim => 1,
                Length::Fixed(length) => {
                    max.fixed(port, at - usize::from(batch_dim.is_some_and(|batch| batch < at)), *length)?;
                    *length
                }
                Length::Symbol(symbol) => {
                    let known = self.symbols.get(symbol).and_then(Dim::max);
                    let bound = if max.is_whole() { max.next() } else { known.or_else(|| max.next()) };
                    bound.ok_or_else(|| {
                        format!("output `{port}` declares no length for `{symbol}`: write `max:` with its greatest one")
                    })?
                }
            };
            shape.push(length);
        }
        Ok((declared.elem.dtype(), shape))
    }
}

/// The most dims of a message that vary.
const MAX_VARYING: usize = 4;

/// The greatest lengths that the config gives for the dims of an output.
enum MaxLengths<'a> {
    None,
    /// For the first dim whose length is not known otherwise.
    First(usize),
    /// For each dim that is left.
    Whole(&'a [usize]),
}

impl MaxLengths<'_> {
    fn is_whole(&self) -> bool {
        matches!(self, MaxLengths::Whole(_))
    }

    /// Returns the length of the next dim, whose length is not known otherwise.
    fn next(&mut self) -> Option<usize> {
        match self {
            MaxLengths::None => None,
            MaxLengths::First(length) => {
                let length = *length;
                *self = MaxLengths::None;
                Some(length)
            }
            MaxLengths::Whole(lengths) => {
                let (first, rest) = lengths.split_first()?;
                *lengths = rest;
                Some(*first)
            }
        }
    }

    /// Passes over a dim that the model declares.
    fn fixed(&mut self, port: &str, dim: usize, declared: usize) -> Result<(), String> {
        match self.is_whole().then(|| self.next()).flatten() {
            Some(given) if given != declared => Err(format!(
                "`max` gives {given} for dim {dim} of output `{port}`, which the model declares as {declared}"
            )),
            _ => Ok(()),
        }
    }
}

/// Why a model takes one item in a call, from its outputs for one item and for two; `None` if it takes more.
pub(super) fn why_single(sides: &[SessionOutput], one: &OutputShapes, two: &OutputShapes) -> Option<String> {
    let at = (0..sides.len()).find(|at| {
        let side = &sides[*at];
        side.batch_dim.is_none() || two[*at].1 != batch_shape(&side.item, side.batch_dim, 2)
    })?;
    let (one, two) = (&one[at].1, &two[at].1);
    Some(format!("its output `{}` is {one:?} for one item and {two:?} for two", sides[at].port))
}
