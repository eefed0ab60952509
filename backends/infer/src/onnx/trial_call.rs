//! Calls of a model before the graph starts, to see what it returns.

use super::constant::ConstantInput;
use super::loaded::Loaded;
use super::outputs::NotPrepared;
use super::prepared::OnnxModel;
use super::runtime::{Call, CallInput, Runtime};
use super::session::buffer;
use crate::base::Access;
use crate::steps::TrialSteps;
use limen::backend::{BackendError, BatchRef};
use limen::message::{DType, PortSpec};

/// Dtype and shape of each output of a call.
pub(super) type OutputShapes = Vec<(DType, Vec<usize>)>;

/// What a trial call gives to the inputs that are ports; the others have their constant, or zeros
/// as states do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum TrialValues {
    #[strum(serialize = "recorded values")]
    Recorded,
    Zeros,
    Ones,
    /// Other numbers for each element, from -1 to 1; zeros and ones if they are whole.
    Noise,
}

impl TrialValues {
    fn name(self) -> &'static str {
        self.into()
    }
}

/// Calls a model before the graph starts, to see what it returns.
pub(super) struct Trial<'a, R: Runtime> {
    pub(super) loaded: &'a Loaded<R>,
    pub(super) shared: &'a R::Shared,
    pub(super) call: &'a Call,
    pub(super) model: &'a OnnxModel,
    pub(super) steps: &'a TrialSteps,
}

impl<R: Runtime> Trial<'_, R> {
    /// Calls it with one item: on a recorded one if there is one, else on zeros and, if they fail,
    /// on ones.
    ///
    /// # Errors
    /// Why each of them failed.
    pub(super) fn one_item(&self) -> Result<(TrialValues, OutputShapes), NotPrepared> {
        let kinds = match self.model.sample {
            Some(_) => &[TrialValues::Recorded][..],
            None => &[TrialValues::Zeros, TrialValues::Ones],
        };
        let mut failed: Vec<(TrialValues, String)> = Vec::new();
        for values in kinds {
            match self.call_with(*values, 1, self.call) {
                Ok(found) => return Ok((*values, found)),
                Err(why) if failed.iter().any(|(_, other)| *other == why) => {}
                Err(why) => failed.push((*values, why)),
            }
        }
        // Other numbers help where a call failed, and not where the runtime refuses the model,
        // which may depend on a constant.
        let is_call = failed.iter().any(|(_, why)| why.contains("inference failed"));
        let has_constants = !self.model.constants.is_empty();
        let constants = self.constants();
        let failed = failed
            .into_iter()
            .map(|(values, why)| format!("a trial run on {}{constants} failed: {why}", values.name()));
        let why = failed.collect::<Vec<_>>().join("; ");
        let help = match (self.model.sample.is_some(), has_constants) {
            _ if !is_call && !has_constants => return Err(BackendError::Unsupported(why).into()),
            (false, true) => {
                "write another value, write `trial: FILE.npz` with an item that the model accepts, write \
                 `trial: first_message`, or use another backend"
            }
            (false, false) => {
                "write `trial: FILE.npz` with an item that the model accepts, write `trial: first_message`, or use another \
                 backend"
            }
            (true, true) => "write another value, or record an item that the model accepts",
            (true, false) => "record an item that the model accepts",
        };
        Err(NotPrepared::Call { why, help })
    }

    /// Returns the constants that each call gets, for a message: ` with `sr` = 44100`.
    fn constants(&self) -> String {
        let show = |(port, constant): (&String, &ConstantInput)| match &constant.values[..] {
            [value] if constant.shape.is_empty() => format!("`{port}` = {value}"),
            values if values.len() <= 4 => {
                let values: Vec<String> = values.iter().map(f64::to_string).collect();
                format!("`{port}` = [{}]", values.join(", "))
            }
            _ => format!("`{port}` of shape {:?}", constant.shape),
        };
        let shown: Vec<String> = self.model.constants.iter().map(show).collect();
        if shown.is_empty() { String::new() } else { format!(" with {}", shown.join(", ")) }
    }

    /// Calls it with two items.
    pub(super) fn two_items(&self, values: TrialValues) -> Result<OutputShapes, String> {
        self.call_with(values, 2, self.call)
    }

    /// Returns the outputs whose first dim is as long as there are items, in calls with one, two
    /// and three items of two kinds.
    pub(super) fn outputs_with_a_row_per_item(&self, values: TrialValues) -> Vec<usize> {
        let mut found: Vec<usize> = (0..self.call.outputs.len()).collect();
        for (values, items) in [values, TrialValues::Noise].into_iter().flat_map(|kind| (1..=3).map(move |n| (kind, n)))
        {
            let Ok(shapes) = self.call_with(values, items, self.call) else { return Vec::new() };
            found.retain(|at| shapes[*at].1.first() == Some(&items));
        }
        found
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
        let what = format!("ran the model on {}, {batch}{shorter} item{plural}", values.name());
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
            let wrong = || format!("input `{}` must have a shape that fits in memory, got {shape:?}", input.name);
            let bytes = bytes.ok_or_else(|| BackendError::Unsupported(wrong()))?;
            let mut words = buffer(bytes);
            let to = &mut bytemuck::cast_slice_mut(&mut words)[..bytes];
            let (access, is_state) = (Access::for_dtype(dtype), states.iter().any(|state| state.input == *port));
            match (constants.get(port), values) {
                (Some(constant), _) => constant.fill(access, to),
                (None, TrialValues::Ones) if !is_state => access.write(std::iter::repeat(1.0), to),
                (None, TrialValues::Noise) if !is_state => {
                    // A linear congruential generator (Numerical Recipes): the same numbers on
                    // every machine.
                    let mut state = 1u32;
                    let is_whole = access.holds_only_whole();
                    let numbers = std::iter::repeat_with(|| {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        if is_whole { f64::from(state >> 31) } else { f64::from(state >> 8) / f64::from(1 << 23) - 1.0 }
                    });
                    access.write(numbers, to);
                }
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
            BackendError::Unsupported(format!("output `{name}` must be a tensor of a type that ports support"))
        };
        found.into_iter().enumerate().map(|(at, found)| found.ok_or_else(|| missing(at))).collect()
    }
}

/// The dtype and shape of each output of a trial call, as recorded.
type RecordedShapes = Vec<(String, Vec<usize>)>;

/// Parses and checks the recorded outputs of a trial call: they may come from the cache on disk.
fn parse(found: RecordedShapes, outputs: usize) -> Result<OutputShapes, String> {
    let wrong = || "the recorded result of the trial is not of this model".to_string();
    let known = |name: &str| name.parse::<PortSpec>().ok().map(|spec| spec.dtype);
    let fits = |(name, shape): (String, Vec<usize>)| {
        let dtype = known(&name)?;
        let bytes = shape.iter().try_fold(dtype.size(), |n, dim| n.checked_mul(*dim))?;
        (bytes <= isize::MAX as usize / 8).then_some((dtype, shape))
    };
    let found: Option<Vec<_>> = found.into_iter().map(fits).collect();
    found.filter(|found| found.len() == outputs).ok_or_else(wrong)
}
