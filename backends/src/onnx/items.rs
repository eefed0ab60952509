//! Compares items alone with items that share a call. The first dim of a model can be symbolic and yet not be a batch, such as the
//! steps of a sequence: the items of a call then change each other's numbers.

use super::buffers::Buffers;
use super::compare::{Difference, random};
use super::elem::Elem;
use super::lane::OnnxLane;
use super::measure::MAX_MEASURED_BYTES;
use super::outline::Outline;
use super::prepared::OnnxPrepared;
use super::reference::AnySession;
use super::runtime::Runtime;
use crate::base::{Access, caught};
use crate::verify::{Case, Tolerance};
use limen::backend::{BackendError, BatchRef, Prepared, Signature};
use limen::message::DType;
use serde::{Deserialize, Serialize};

/// The most items that are called alone.
const ITEMS: usize = 4;

/// The result of comparing items alone with items that share a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ItemComparison {
    /// An item has the same numbers in both.
    Same,
    /// An item has other numbers beside others; which.
    Differs(String),
    /// The calls show nothing, and why.
    Unknown(String),
}

/// The source of the numbers of an item.
#[derive(Clone, Copy)]
enum Draw<'a> {
    /// Recorded items. A single one is followed by its numbers in reverse order.
    Recorded(&'a Case),
    /// Random floats of either sign, of which every other item has greater ones, and integers 0 and 1.
    Signed,
    /// Random floats from 0 to 1, and one integer.
    Positive(f64),
}

impl Draw<'_> {
    /// Returns `len` numbers of an item for an input.
    fn numbers(self, item: usize, input: usize, port: &str, dtype: DType, len: usize) -> Vec<f64> {
        let is_float = !Access::for_dtype(dtype).holds_only_whole();
        let next = random((1 + item * 64 + input) as u64);
        let drawn = std::iter::repeat_with(next).take(len);
        match self {
            Draw::Recorded(case) => {
                match (case.item(port, item, len), case.item(port, 0, len), case.item(port, 1, len)) {
                    (Some(numbers), ..) => numbers,
                    (None, Some(only), None) if item % 2 == 1 => only.into_iter().rev().collect(),
                    (None, Some(first), _) => first,
                    // As in the trial run.
                    (None, None, _) => vec![0.0; len],
                }
            }
            Draw::Signed if is_float => {
                let largest = if item % 2 == 1 { 4.0 } else { 1.0 };
                drawn.map(|number| (number * 2.0 - 1.0) * largest).collect()
            }
            Draw::Signed => drawn.map(f64::round).collect(),
            Draw::Positive(_) if is_float => drawn.collect(),
            Draw::Positive(integer) => vec![integer; len],
        }
    }
}

/// Calls a model with items alone and with up to `max` of them in one call, and compares the outputs.
pub(crate) fn compare_items<R: Runtime>(
    prepared: &OnnxPrepared<R>,
    max: usize,
    recorded: Option<&Case>,
) -> ItemComparison {
    let mut why = None;
    let drawn = [Draw::Signed, Draw::Positive(0.0), Draw::Positive(1.0)];
    for draw in recorded.map(Draw::Recorded).into_iter().chain(drawn) {
        match caught(|| compare_drawn(prepared, max, draw)).and_then(|found| found) {
            Ok(found) => return found,
            Err(error) => why = why.or(Some(error)),
        }
    }
    ItemComparison::Unknown(why.unwrap_or_default())
}

/// # Errors
/// Why these items show nothing.
fn compare_drawn<R: Runtime>(prepared: &OnnxPrepared<R>, max: usize, draw: Draw<'_>) -> Result<ItemComparison, String> {
    let signature = prepared.signature();
    let buckets = prepared.buckets(max);
    let bytes = |specs| Buffers::new(specs, 1).0.iter().map(|buffer| buffer.item_bytes).sum::<usize>();
    let bytes = bytes(&signature.inputs) + bytes(&signature.outputs);
    let most = (MAX_MEASURED_BYTES / bytes.max(1)).clamp(2, max.max(2));
    // A call that is padded, if calls are, and the largest one.
    let padded = (1..most).find(|size| !buckets.is_empty() && !buckets.contains(size));
    let session = |max| -> Result<AnySession, String> { Ok(Box::new(prepared.cold_session(max).map_err(failed)?)) };
    // A state is part of the second call.
    let steps = if prepared.is_stateful() { 2 } else { 1 };
    let calls = ItemCalls { signature, draw, steps };

    let mut one = session(1)?;
    let mut alone: Vec<Vec<Buffers>> = Vec::new();
    while alone.len() < ITEMS && !calls.differ(&alone) {
        alone.push(calls.call(&mut one, &[alone.len()]).map_err(failed)?);
    }
    let tolerances = calls.tolerances(prepared.outline(), &alone);
    let mut several = session(max)?;
    for size in padded.into_iter().chain([most]) {
        // The last item differs from the others.
        let items: Vec<usize> = (0..alone.len()).rev().cycle().take(size).collect();
        let together = calls.call(&mut several, &items).map_err(failed)?;
        let Some((item, found)) = calls.difference(&items, &together, &alone, &tolerances) else { continue };
        let again = [calls.call(&mut session(1)?, &[item]).map_err(failed)?];
        let before = std::slice::from_ref(&alone[item]);
        if calls.difference(&[0], &again[0], before, &tolerances).is_some() {
            return Err("two calls with the same item have different outputs".into());
        }
        let call = if size == 1 { "padding".into() } else { format!("a call of {size} items") };
        return Ok(ItemComparison::Differs(format!("{call} {found}")));
    }
    match calls.differ(&alone) {
        true => Ok(ItemComparison::Same),
        false => Err("the outputs are the same for all items that were tried".into()),
    }
}

fn failed(error: BackendError) -> String {
    format!("a call failed: {error}")
}

/// Calls of a model with drawn items.
struct ItemCalls<'a> {
    signature: &'a Signature,
    draw: Draw<'a>,
    steps: usize,
}

impl ItemCalls<'_> {
    /// Makes a call with these items in order; with states one more, in which each stream gets the next item. Returns the outputs of
    /// each call.
    fn call(&self, session: &mut AnySession, items: &[usize]) -> Result<Vec<Buffers>, BackendError> {
        let size = items.len();
        let mut lanes = vec![OnnxLane::default(); size];
        let call = |step: usize| {
            let mut inputs = Buffers::new(&self.signature.inputs, size);
            for (at, input) in inputs.0.iter_mut().enumerate() {
                let (dtype, bytes, port) = (input.spec.dtype, input.item_bytes, input.spec.name.clone());
                let room: &mut [u8] = bytemuck::cast_slice_mut(&mut input.words);
                for (item, room) in std::iter::zip(items, room.chunks_exact_mut(bytes.max(1))) {
                    let numbers = self.draw.numbers(item + step, at, &port, dtype, bytes / dtype.size());
                    Access::for_dtype(dtype).write(numbers, room);
                }
            }
            let given: Vec<BatchRef<'_>> = inputs.batches(size).collect();
            let mut outputs = Buffers::new(&self.signature.outputs, size);
            outputs.run(session, size, &given, &mut lanes)?;
            Ok(outputs)
        };
        (0..self.steps).map(call).collect()
    }

    /// Whether two of the items have different numbers in an output.
    fn differ(&self, alone: &[Vec<Buffers>]) -> bool {
        let differs = |(a, b): (BatchRef<'_>, BatchRef<'_>)| {
            let access = Access::for_dtype(a.dtype);
            std::iter::zip(access.values(a.bytes), access.values(b.bytes))
                .any(|(a, b)| a.is_finite() && b.is_finite() && a != b)
        };
        let outputs = |item: &Vec<Buffers>, other: &Vec<Buffers>| {
            std::iter::zip(item, other).any(|(a, b)| std::iter::zip(a.batches(1), b.batches(1)).any(differs))
        };
        alone.split_last().is_some_and(|(last, before)| before.iter().any(|other| outputs(last, other)))
    }

    /// Returns how far an item's numbers may be from those of the same item alone, by output. Integers are the same, unless they come
    /// from rounded floats.
    fn tolerances(&self, outline: &Outline, alone: &[Vec<Buffers>]) -> Vec<Tolerance> {
        let is_coarse = is_coarse(outline);
        let tolerance = |(at, dtype): (usize, DType)| {
            let access = Access::for_dtype(dtype);
            let numbers = alone.iter().flatten().flat_map(|outputs| {
                let output = &outputs.0[at];
                access.values(output.batch(1).bytes).collect::<Vec<_>>()
            });
            let largest = numbers.filter(|number| number.is_finite()).fold(0.0, |most: f64, n| most.max(n.abs()));
            let atol = match (access.holds_only_whole(), is_coarse) {
                (true, false) => 0.0,
                (true, true) => 1.0,
                // Where all are near 0, rounding leaves more than that.
                (false, false) => 1e-4 * largest.max(1e-2),
                (false, true) => 2e-2 * largest,
            };
            Tolerance { atol, rtol: 0.0 }
        };
        self.signature.outputs.iter().map(|spec| spec.dtype).enumerate().map(tolerance).collect()
    }

    /// Returns the first item of a call whose outputs are not as alone, and what differs.
    fn difference(
        &self,
        items: &[usize],
        together: &[Buffers],
        alone: &[Vec<Buffers>],
        tolerances: &[Tolerance],
    ) -> Option<(usize, String)> {
        let size = items.len();
        for (at, item) in items.iter().enumerate() {
            for (together, alone) in std::iter::zip(together, &alone[*item]) {
                let outputs = std::iter::zip(&together.0, &alone.0).zip(tolerances);
                for ((together, alone), tolerance) in outputs {
                    let expected = alone.batch(1);
                    let got = together.batch(size);
                    let item_bytes = expected.bytes.len();
                    let got = BatchRef { bytes: &got.bytes[at * item_bytes..(at + 1) * item_bytes], ..got };
                    let Difference { worst, largest, over, .. } = Difference::between(expected, got, *tolerance);
                    if over > 0 {
                        let name = &alone.spec.name;
                        let changed =
                            format!("changes output `{name}` by {worst:.2e}, whose largest number is {largest:.3}");
                        return Some((*item, changed));
                    }
                }
            }
        }
        None
    }
}

/// Whether a model rounds numbers between its inputs and outputs, so that a call of another size may round to the other side.
fn is_coarse(outline: &Outline) -> bool {
    let is_rounding = |op: &str| op.contains("Quantize") || op.starts_with("QLinear") || op.ends_with("Integer");
    let is_half = |elem: Elem| matches!(elem, Elem::F16 | Elem::BF16);
    outline.ops.iter().any(|op| is_rounding(&op.id))
        || outline.inputs.iter().any(|input| is_half(input.elem))
        || outline.weights.iter().any(|weight| matches!(weight.elem, "float16" | "bfloat16"))
}
