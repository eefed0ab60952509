//! The outputs of a model whose input shapes are known, from trial calls.
//!
//! A dim that the model does not declare may depend on the values of a message, or on its length.
//! Such a dim has a greatest length, from the node's config, from the operators before it or from
//! the trial, and each call may give fewer.

use super::input::{Input, Length};
use super::lengths::ValueLengths;
use super::outline::Output;
use super::runtime::{CallInput, batch_shape};
use super::session::SessionOutput;
use super::shapes::{Extent, most_elements};
use super::trial_call::OutputShapes;
use crate::steps::TRIAL;
use limen::backend::BackendError;
use limen::message::{DType, Dim, MAX_RANK, PortSpec};
use limen::unit::show_bytes;
use std::collections::{BTreeMap, HashMap};

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
    /// The outputs whose lengths depend on values, by their names in the model.
    pub(super) by_values: HashMap<String, ValueLengths>,
    /// The outputs of loops of which trial calls gave a row for each item.
    pub(super) row_per_item: Vec<usize>,
}

/// Why a model cannot be prepared.
#[derive(Debug)]
pub(crate) enum NotPrepared {
    /// A field of the config is wrong, or its model, on whichever backend: its name and why.
    Field(&'static str, String),
    /// A call before the graph starts failed on the node's values: what failed, and what to write.
    Call {
        why: String,
        help: &'static str,
    },
    Other(BackendError),
}

impl From<BackendError> for NotPrepared {
    fn from(error: BackendError) -> Self {
        NotPrepared::Other(error)
    }
}

impl From<NotPrepared> for BackendError {
    fn from(error: NotPrepared) -> Self {
        match error {
            NotPrepared::Field(_, why) => BackendError::Unsupported(why),
            NotPrepared::Call { why, help } => BackendError::Unsupported(format!("{why} ({help})")),
            NotPrepared::Other(error) => error,
        }
    }
}

impl NotPrepared {
    fn max(why: String) -> Self {
        NotPrepared::Field("max", why)
    }

    pub(super) fn state(why: String) -> Self {
        NotPrepared::Field("state", why)
    }
}

/// The most elements of an output whose size follows from its operators, as of one whose size the
/// config gives.
const MAX_INFERRED: u64 = 1 << 28;

/// Messages with more bytes are worth a remark, if they may be this large only because the largest
/// one is not known.
const LARGE: u64 = 1 << 20;

/// Where the greatest length of a dim comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BoundSource {
    Max,
    Operators,
    Trial,
}

impl OutputBounds<'_> {
    /// Returns the outputs of a model from the trial calls: on one item, and on a shorter one if
    /// lengths vary; and lines that say where the bounds of lengths come from. `states` has the
    /// input of each output that is a state.
    ///
    /// # Errors
    /// Outputs that no port can carry, that have a length without a bound, or that are a state and
    /// do not match its input.
    pub(super) fn outputs<'a>(
        &self,
        one: &OutputShapes,
        shorter: Option<&OutputShapes>,
        states: impl Fn(usize) -> Option<&'a CallInput>,
    ) -> Result<(Vec<SessionOutput>, Vec<String>), NotPrepared> {
        let mut lines = Vec::new();
        let sides = one.iter().enumerate().map(|(at, (dtype, shape))| {
            let (side, source) = self.output(at, *dtype, shape, shorter.map(|shorter| &shorter[at].1), states(at))?;
            let (port, item) = (&side.port, &side.item);
            if states(at).is_some() && side.varies.contains(&true) {
                let why = format!(
                    "the state `{port}` must have the lengths of its input, got lengths that differ between calls"
                );
                return Err(NotPrepared::state(why));
            }
            if let Some(input) = states(at)
                && (input.item != *item || input.elem.dtype() != *dtype)
            {
                let (takes, as_what) = (&input.item, input.elem.dtype());
                return Err(NotPrepared::state(format!(
                    "the state `{port}` must be {as_what}{takes:?}, as its input, got {dtype}{item:?}"
                )));
            }
            if item.len() > MAX_RANK || item.contains(&0) {
                let why = format!("output `{port}` must have at most {MAX_RANK} dims, none of length 0, got {item:?}");
                return Err(NotPrepared::Field("model", why));
            }
            lines.extend(source.map(|source| self.line(at, &side, source)));
            Ok(side)
        });
        let sides = sides.collect::<Result<_, _>>()?;
        Ok((sides, lines))
    }

    /// Returns a line that says where the bound of an output comes from.
    fn line(&self, at: usize, side: &SessionOutput, source: BoundSource) -> String {
        let (port, bytes) = (&side.port, side.item_bytes() as u64);
        let dims = std::iter::zip(&side.item, &side.varies);
        let dims = dims.map(|(length, varies)| if *varies { Dim::AtMost(*length) } else { Dim::Fixed(*length) });
        let spec = PortSpec::new(side.dtype, dims);
        let by = self.by_values.get(&self.declared[at].name).map_or("", |lengths| &lengths.decided_by);
        let is_inferred = source == BoundSource::Operators;
        let source = match source {
            BoundSource::Max => "set by `max:`".to_string(),
            BoundSource::Operators => format!("the largest that {by} can produce for inputs of this size"),
            BoundSource::Trial => "measured in the trial run on the longest inputs".into(),
        };
        let more = if bytes > LARGE && is_inferred {
            format!("; a smaller `max: {{ {port}: {:?} }}` uses less memory", side.item)
        } else {
            String::new()
        };
        format!("output `{port}` is {spec}, {} per message: {source}{more}", show_bytes(bytes))
    }

    fn output(
        &self,
        at: usize,
        dtype: DType,
        shape: &[usize],
        shorter: Option<&Vec<usize>>,
        state: Option<&CallInput>,
    ) -> Result<(SessionOutput, Option<BoundSource>), NotPrepared> {
        let Output { name, port, declared, .. } = &self.declared[at];
        let by_values = self.by_values.get(name).filter(|_| state.is_none());
        let inferred =
            by_values.and_then(|lengths| inferred(lengths, shape.len())).filter(|bounds| fits(bounds, shape));
        let declared = declared.as_ref().filter(|declared| declared.shape.len() == shape.len());
        let dim_of = |dim: usize| declared.and_then(|declared| declared.shape.get(dim));
        let batch_dim = match state {
            Some(input) => input.batch_dim,
            // A length that depends on values may be 1 by chance.
            None if by_values.is_some()
                && !self.row_per_item.contains(&at)
                && !dim_of(0).is_some_and(|dim| self.is_batch(dim))
                && !inferred.and_then(<[Extent]>::first).is_some_and(|dim| dim.is_exact()) =>
            {
                None
            }
            None => (!self.batches.is_empty() && shape.first() == Some(&1)).then_some(0),
        };
        if let Some(dim) = batch_dim.filter(|dim| shape.get(*dim) != Some(&1)) {
            return Err(NotPrepared::state(format!(
                "dim {dim} of the state `{port}` must be 1 for one item, got {dtype}{shape:?}"
            )));
        }
        let rank = shape.len() - usize::from(batch_dim.is_some());
        let mut max = self.max_of(port, rank, batch_dim.is_some(), state).map_err(NotPrepared::max)?;
        let (mut item, mut varies, mut source) = (Vec::new(), Vec::new(), None);
        for (dim, length) in shape.iter().enumerate().filter(|(dim, _)| Some(*dim) != batch_dim) {
            let (length, is_varying) = match dim_of(dim) {
                // Some files declare a length that the model does not give.
                Some(Length::Fixed(fixed)) if fixed == length => {
                    max.fixed(port, item.len(), *fixed).map_err(NotPrepared::max)?;
                    (*fixed, false)
                }
                Some(Length::Symbol(symbol)) if self.symbols.get(symbol) == Some(&Dim::Fixed(*length)) => {
                    max.fixed(port, item.len(), *length).map_err(NotPrepared::max)?;
                    (*length, false)
                }
                Some(Length::Symbol(symbol))
                    if self.symbols.contains_key(symbol) && !max.is_whole() && state.is_none() =>
                {
                    source = source.or(Some(BoundSource::Trial));
                    (*length, true)
                }
                _ => match (max.next(), by_values) {
                    (Some(most), _) => {
                        source = Some(BoundSource::Max);
                        (most, true)
                    }
                    (None, Some(lengths)) => match inferred.map(|inferred| inferred[dim]) {
                        Some(extent) if extent.is_exact() => (*length, false),
                        Some(extent) => {
                            source = Some(BoundSource::Operators);
                            (extent.most as usize, true)
                        }
                        None => {
                            let name = dim_of(dim).map_or(String::new(), |length| format!(", `{length}`"));
                            return Err(NotPrepared::max(format!(
                                "output `{port}` has a length that depends on values (dim {}{name}; {}): write the greatest \
                                 length, `max: {{ {port}: [{}] }}`",
                                item.len(),
                                lengths.decided_by,
                                self.example(at, shape, batch_dim)
                            )));
                        }
                    },
                    (None, None) => {
                        let is_shorter = |shorter: &Vec<usize>| shorter.get(dim) != Some(length);
                        // A state that was not tried has the lengths of its input.
                        let is_varying = self.inputs_vary && shorter.map_or(state.is_none(), is_shorter);
                        source = source.or(is_varying.then_some(BoundSource::Trial));
                        (*length, is_varying)
                    }
                },
            };
            item.push(length);
            varies.push(is_varying);
        }
        let varying = varies.iter().filter(|varies| **varies).count();
        if varying > MAX_VARYING {
            return Err(NotPrepared::Field(
                "model",
                format!("output `{port}` must have at most {MAX_VARYING} dims that may vary, got {varying}"),
            ));
        }
        let by_max = source == Some(BoundSource::Max);
        Ok((SessionOutput { port: port.clone(), dtype, item, varies, batch_dim, by_max }, source))
    }

    /// Whether a declared dim is that of the batch.
    fn is_batch(&self, dim: &Length) -> bool {
        !self.batches.is_empty() && (*dim == Length::Fixed(1) || self.batches.contains(&dim))
    }

    /// Whether the first dim of an output whose lengths depend on values may be the batch, which
    /// trial calls then show.
    pub(super) fn may_have_rows(&self, one: &OutputShapes) -> bool {
        let is_loop = |output: &Output| self.by_values.get(&output.name).is_some_and(|lengths| lengths.is_loop);
        !self.batches.is_empty()
            && std::iter::zip(self.declared, one)
                .any(|(output, (_, shape))| is_loop(output) && shape.first() == Some(&1))
    }

    /// Returns the greatest lengths that the config gives for an output with items of `rank` dims.
    /// They may have one for the batch, too.
    fn max_of(
        &self,
        port: &str,
        rank: usize,
        has_batch: bool,
        state: Option<&CallInput>,
    ) -> Result<MaxLengths<'_>, String> {
        match self.max.get(port).map(Vec::as_slice) {
            Some(_) if state.is_some() => {
                Err(format!("`{port}` is a state, whose lengths `max` cannot set: remove `{port}` from `max`"))
            }
            None => Ok(MaxLengths::None),
            Some(lengths) if lengths.len() == rank => Ok(MaxLengths::Whole(lengths)),
            Some([length]) => Ok(MaxLengths::First(*length)),
            Some([_, rest @ ..]) if has_batch && rest.len() == rank => Ok(MaxLengths::Whole(rest)),
            Some(lengths) => {
                let given = lengths.len();
                Err(format!("`max.{port}` must have one length per dim of an item ({rank}), got {given}"))
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
    ) -> Result<OutputShapes, NotPrepared> {
        let one = |(at, output): (usize, &Output)| match &output.declared {
            Some(declared) => self.declared_shape(at, declared, states(at)).map_err(NotPrepared::max),
            None => {
                let why = format!("output `{}` does not declare its type and shape", output.port);
                Err(NotPrepared::Field(TRIAL, why))
            }
        };
        self.declared.iter().enumerate().map(one).collect()
    }

    fn declared_shape(
        &self,
        at: usize,
        declared: &Input,
        state: Option<&CallInput>,
    ) -> Result<(DType, Vec<usize>), String> {
        let Output { name, port, .. } = &self.declared[at];
        let inferred = self.by_values.get(name).and_then(|lengths| inferred(lengths, declared.shape.len()));
        let batch_dim = match state {
            Some(input) => input.batch_dim,
            None => declared.shape.first().is_some_and(|dim| self.is_batch(dim)).then_some(0),
        };
        if let Some(input) =
            state.filter(|input| input.item.len() + usize::from(batch_dim.is_some()) == declared.shape.len())
        {
            self.max_of(port, input.item.len(), batch_dim.is_some(), state)?;
            let mut shape = input.item.clone();
            batch_dim.into_iter().for_each(|dim| shape.insert(dim.min(shape.len()), 1));
            return Ok((declared.elem.dtype(), shape));
        }
        let rank = declared.shape.len() - usize::from(batch_dim.is_some());
        let mut max = self.max_of(port, rank, batch_dim.is_some(), state)?;
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
                    let inferred = || inferred.map(|inferred| inferred[at].most as usize);
                    let bound = if max.is_whole() { max.next() } else { known.or_else(|| max.next()) };
                    let bound = bound.or_else(inferred);
                    bound.ok_or_else(|| {
                        format!("output `{port}` does not declare the length of `{symbol}`: write the length in `max`")
                    })?
                }
            };
            shape.push(length);
        }
        Ok((declared.elem.dtype(), shape))
    }
}

/// Returns the bounds that follow from the operators before an output, if all its dims have one.
fn inferred(lengths: &ValueLengths, rank: usize) -> Option<&[Extent]> {
    lengths.shape.as_deref().filter(|bounds| bounds.len() == rank && most_elements(bounds) <= MAX_INFERRED)
}

/// Whether a trial call gave what the bounds say. Otherwise an operator differs from what is known
/// of it.
fn fits(bounds: &[Extent], shape: &[usize]) -> bool {
    let fits = |(bound, length): (&Extent, &usize)| {
        let length = *length as u64;
        length == bound.most || (!bound.is_exact() && length < bound.most)
    };
    std::iter::zip(bounds, shape).all(fits)
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
            Some(given) if given != declared => {
                Err(format!("`max.{port}` must be {declared} at dim {dim}, as the model declares, got {given}"))
            }
            _ => Ok(()),
        }
    }
}

/// Why a model takes one item in a call, from its outputs for one item and for two; `None` if it
/// takes more.
pub(super) fn why_single(sides: &[SessionOutput], one: &OutputShapes, two: &OutputShapes) -> Option<String> {
    let at = (0..sides.len()).find(|at| {
        let side = &sides[*at];
        side.batch_dim.is_none() || two[*at].1 != batch_shape(&side.item, side.batch_dim, 2)
    })?;
    let (one, two) = (&one[at].1, &two[at].1);
    Some(format!("output `{}` is {one:?} for one item and {two:?} for two items", sides[at].port))
}
