//! Compares items alone with items that share a call. The first dim of a model can be symbolic and
//! yet not be a batch, such as the steps of a sequence: the items of a call then change each
//! other's numbers.

use super::buffers::ModelBuffers;
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

/// The numbers of items that may change those beside them although smaller ones do not.
#[derive(Clone, Copy)]
enum EdgeItems {
    Small,
    Positive,
    Negative,
    Mixed,
    NotANumber,
}

/// What is tried beside an item. NaN comes last: some models fail with it.
const OTHERS: [EdgeItems; 4] = [EdgeItems::Positive, EdgeItems::Negative, EdgeItems::Mixed, EdgeItems::NotANumber];
/// The items whose numbers must stay.
const KEPT: [EdgeItems; 2] = [EdgeItems::Small, EdgeItems::Mixed];
/// The magnitudes of [`EdgeItems::Mixed`], in turns.
const MAGNITUDES: [f64; 8] = [1e3, -1e3, 30.0, -30.0, 1e-3, -1e6, 1e6, -1e-3];
/// More than this may be a length or a number of steps.
const LARGEST_INTEGER: f64 = 1e3;

impl EdgeItems {
    fn name(self) -> &'static str {
        match self {
            EdgeItems::Small => "small numbers",
            EdgeItems::Positive => "large numbers",
            EdgeItems::Negative => "large negative numbers",
            EdgeItems::Mixed => "small and large numbers",
            EdgeItems::NotANumber => "NaN",
        }
    }

    /// Returns a number of an item from one that was drawn from 0 to 1.
    fn number(self, at: usize, drawn: f64) -> f64 {
        let large = || 10f64.powf(2.0 + 6.0 * drawn);
        match self {
            EdgeItems::Small => drawn * 2.0 - 1.0,
            EdgeItems::Positive => large(),
            EdgeItems::Negative => -large(),
            EdgeItems::Mixed => MAGNITUDES[at % MAGNITUDES.len()] * (0.5 + drawn),
            EdgeItems::NotANumber => f64::NAN,
        }
    }
}

/// The source of the numbers of an item.
#[derive(Clone, Copy)]
enum ItemNumbers<'a> {
    /// Recorded items. A single one is followed by its numbers in reverse order.
    Recorded(&'a Case),
    /// Random floats of either sign, of which every other item has greater ones, and integers 0
    /// and 1.
    Signed,
    /// Random floats from 0 to 1, and one integer.
    Positive(f64),
    /// Numbers of one kind. Integers are 0 and 1 unless they are drawn, too.
    Edge { edge: EdgeItems, draws_integers: bool },
}

impl ItemNumbers<'_> {
    /// Returns `len` numbers of an item for an input.
    fn numbers(self, item: usize, input: usize, port: &str, dtype: DType, len: usize) -> Vec<f64> {
        let is_float = !Access::for_dtype(dtype).holds_only_whole();
        let next = random((1 + item * 64 + input) as u64);
        let drawn = std::iter::repeat_with(next).take(len);
        match self {
            ItemNumbers::Recorded(case) => {
                match (case.item(port, item, len), case.item(port, 0, len), case.item(port, 1, len)) {
                    (Some(numbers), ..) => numbers,
                    (None, Some(only), None) if item % 2 == 1 => only.into_iter().rev().collect(),
                    (None, Some(first), _) => first,
                    // As in the trial run.
                    (None, None, _) => vec![0.0; len],
                }
            }
            ItemNumbers::Signed if is_float => {
                let largest = if item % 2 == 1 { 4.0 } else { 1.0 };
                drawn.map(|number| (number * 2.0 - 1.0) * largest).collect()
            }
            ItemNumbers::Signed => drawn.map(f64::round).collect(),
            ItemNumbers::Positive(_) if is_float => drawn.collect(),
            ItemNumbers::Positive(integer) => vec![integer; len],
            ItemNumbers::Edge { edge, draws_integers } if is_float || draws_integers => {
                let bound = if is_float || dtype.size() < 4 { f64::INFINITY } else { LARGEST_INTEGER };
                let numbers = drawn.enumerate().map(|(at, drawn)| edge.number(item + at, drawn));
                numbers.map(|number| number.clamp(-bound, bound)).collect()
            }
            ItemNumbers::Edge { .. } => drawn.map(f64::round).collect(),
        }
    }
}

/// Calls a model with items alone and with up to `max` of them in one call, and compares the
/// outputs.
pub(crate) fn compare_items<R: Runtime>(
    prepared: &OnnxPrepared<R>,
    max: usize,
    recorded: Option<&Case>,
) -> ItemComparison {
    let mut why = None;
    let drawn = [ItemNumbers::Signed, ItemNumbers::Positive(0.0), ItemNumbers::Positive(1.0)];
    for draw in recorded.map(ItemNumbers::Recorded).into_iter().chain(drawn) {
        match caught(|| compare_drawn(prepared, max, draw)).and_then(|found| found) {
            Ok(ItemComparison::Same) => return compare_edges(prepared, max),
            Ok(found) => return found,
            Err(error) => why = why.or(Some(error)),
        }
    }
    ItemComparison::Unknown(why.unwrap_or_default())
}

/// Looks for items whose numbers depend on the size of those beside them. Calls that fail show
/// nothing.
fn compare_edges<R: Runtime>(prepared: &OnnxPrepared<R>, max: usize) -> ItemComparison {
    // Large integers are no valid indices.
    for draws_integers in [true, false] {
        match caught(|| changed_by_edges(prepared, max, draws_integers)).and_then(|found| found) {
            Ok(None) => break,
            Ok(Some(what)) => return ItemComparison::Differs(what),
            Err(_) => {}
        }
    }
    ItemComparison::Same
}

/// Makes calls of one size in which every other item stays and those beside it change. A runtime
/// computes an item at one position in one way, so large numbers round alike in each call. Returns
/// what differs.
///
/// # Errors
/// Why the calls show nothing.
fn changed_by_edges<R: Runtime>(
    prepared: &OnnxPrepared<R>,
    max: usize,
    draws_integers: bool,
) -> Result<Option<String>, String> {
    let signature = prepared.signature();
    let size = largest_call(signature, max);
    let mut session: AnySession = Box::new(prepared.cold_session(max).map_err(failed)?);
    let calls = ItemCalls { signature, steps: if prepared.is_stateful() { 2 } else { 1 } };
    // In a call of two, an item may depend only on the one before it or only on the one after it.
    for kept in 0..if size == 2 { 2 } else { 1 } {
        let is_kept = |at: usize| at % 2 == kept;
        let count = (0..size).filter(|at| is_kept(*at)).count();
        for shift in 0..KEPT.len().div_ceil(count) {
            let items = |others: &[EdgeItems]| -> Vec<_> {
                let edge = |at: usize| match is_kept(at) {
                    true => KEPT[(at / 2 + shift) % KEPT.len()],
                    false => others[at / 2 % others.len()],
                };
                (0..size).map(|at| (ItemNumbers::Edge { edge: edge(at), draws_integers }, at)).collect()
            };
            let mut call = |others: &[EdgeItems]| calls.call(&mut session, &items(others)).map_err(failed);
            let before = call(&[EdgeItems::Small])?;
            // Some kernels take a slower way for several numbers if one of them is large, and round
            // otherwise.
            let tolerances = |at| calls.tolerances(prepared.outline(), std::slice::from_ref(&before), (at, size));
            let (numbers, nan) = OTHERS.split_at(OTHERS.len() - 1);
            for others in numbers.chunks(size - count).chain([nan]) {
                let changed = call(others)?;
                let difference = |got: &[ModelBuffers]| {
                    (0..size)
                        .filter(|at| is_kept(*at))
                        .find_map(|at| difference((got, at, size), (&before, at, size), &tolerances(at)))
                };
                let Some(found) = difference(&changed) else { continue };
                if difference(&call(&[EdgeItems::Small])?).is_some() {
                    return Err(NOT_REPEATABLE.into());
                }
                let names: Vec<&str> = others.iter().map(|edge| edge.name()).collect();
                return Ok(Some(format!(
                    "a call of {size} items {found}, if the other items have {}",
                    names.join(" or ")
                )));
            }
        }
    }
    Ok(None)
}

/// Returns how many items the largest call has that is compared.
fn largest_call(signature: &Signature, max: usize) -> usize {
    let bytes = |specs| ModelBuffers::new(specs, 1).0.iter().map(|buffer| buffer.item_bytes).sum::<usize>();
    let bytes = bytes(&signature.inputs) + bytes(&signature.outputs);
    (MAX_MEASURED_BYTES / bytes.max(1)).clamp(2, max.max(2))
}

/// # Errors
/// Why these items show nothing.
fn compare_drawn<R: Runtime>(
    prepared: &OnnxPrepared<R>,
    max: usize,
    draw: ItemNumbers<'_>,
) -> Result<ItemComparison, String> {
    let signature = prepared.signature();
    let buckets = prepared.buckets(max);
    let most = largest_call(signature, max);
    // A call that is padded, if calls are, and the largest one.
    let padded = (1..most).find(|size| !buckets.is_empty() && !buckets.contains(size));
    let session = |max| -> Result<AnySession, String> { Ok(Box::new(prepared.cold_session(max).map_err(failed)?)) };
    // A state is part of the second call.
    let steps = if prepared.is_stateful() { 2 } else { 1 };
    let calls = ItemCalls { signature, steps };

    let mut one = session(1)?;
    let mut alone: Vec<Vec<ModelBuffers>> = Vec::new();
    while alone.len() < ITEMS && !calls.differ(&alone) {
        alone.push(calls.call(&mut one, &[(draw, alone.len())]).map_err(failed)?);
    }
    let tolerances = calls.tolerances(prepared.outline(), &alone, (0, 1));
    let mut several = session(max)?;
    for size in padded.into_iter().chain([most]) {
        // The last item differs from the others.
        let items: Vec<usize> = (0..alone.len()).rev().cycle().take(size).collect();
        let drawn: Vec<_> = items.iter().map(|item| (draw, *item)).collect();
        let together = calls.call(&mut several, &drawn).map_err(failed)?;
        let differs = |(at, item): (usize, &usize)| {
            let found = difference((&together, at, size), (&alone[*item], 0, 1), &tolerances);
            found.map(|found| (*item, found))
        };
        let Some((item, found)) = items.iter().enumerate().find_map(differs) else { continue };
        let again = calls.call(&mut session(1)?, &[(draw, item)]).map_err(failed)?;
        if difference((&again, 0, 1), (&alone[item], 0, 1), &tolerances).is_some() {
            return Err(NOT_REPEATABLE.into());
        }
        let call = if size == 1 { "padding".into() } else { format!("a call of {size} items") };
        return Ok(ItemComparison::Differs(format!("{call} {found}")));
    }
    match calls.differ(&alone) {
        true => Ok(ItemComparison::Same),
        false => Err("the outputs are the same for all items that were tried".into()),
    }
}

/// Why a difference shows nothing.
const NOT_REPEATABLE: &str = "two calls with the same item produce different outputs";

/// Returns an item of a batch.
fn item_of(batch: BatchRef<'_>, at: usize, size: usize) -> BatchRef<'_> {
    let bytes = batch.bytes.len() / size;
    BatchRef { bytes: &batch.bytes[at * bytes..(at + 1) * bytes], ..batch }
}

/// Returns how an item of one call differs from an item of another one, each with its position and
/// the size of its call.
fn difference(
    (got, at, size): (&[ModelBuffers], usize, usize),
    (expected, other, other_size): (&[ModelBuffers], usize, usize),
    tolerances: &[Tolerance],
) -> Option<String> {
    for (got, expected) in std::iter::zip(got, expected) {
        let outputs = std::iter::zip(&got.0, &expected.0).zip(tolerances);
        for ((got, expected), tolerance) in outputs {
            let name = &expected.spec.name;
            let expected = item_of(expected.batch(other_size), other, other_size);
            let got = item_of(got.batch(size), at, size);
            let Difference { worst, largest, over, .. } = Difference::between(expected, got, *tolerance);
            if over > 0 {
                return Some(format!("changes output `{name}` by {worst:.2e} (largest number {largest:.3})"));
            }
        }
    }
    None
}

fn failed(error: BackendError) -> String {
    format!("a call failed: {error}")
}

/// Calls of a model with drawn items.
struct ItemCalls<'a> {
    signature: &'a Signature,
    steps: usize,
}

impl ItemCalls<'_> {
    /// Makes a call with these items in order; with states one more, in which each stream gets the
    /// next item. Returns the outputs of each call.
    fn call(
        &self,
        session: &mut AnySession,
        items: &[(ItemNumbers<'_>, usize)],
    ) -> Result<Vec<ModelBuffers>, BackendError> {
        let size = items.len();
        let mut lanes = vec![OnnxLane::default(); size];
        let call = |step: usize| {
            let mut inputs = ModelBuffers::new(&self.signature.inputs, size);
            for (at, input) in inputs.0.iter_mut().enumerate() {
                let (dtype, bytes, port) = (input.spec.dtype, input.item_bytes, input.spec.name.clone());
                let room: &mut [u8] = bytemuck::cast_slice_mut(&mut input.words);
                for ((draw, item), room) in std::iter::zip(items, room.chunks_exact_mut(bytes.max(1))) {
                    let numbers = draw.numbers(item + step, at, &port, dtype, bytes / dtype.size());
                    Access::for_dtype(dtype).write(numbers, room);
                }
            }
            let given: Vec<BatchRef<'_>> = inputs.batches(size).collect();
            let mut outputs = ModelBuffers::new(&self.signature.outputs, size);
            outputs.run(session, size, &given, &mut lanes)?;
            Ok(outputs)
        };
        (0..self.steps).map(call).collect()
    }

    /// Whether two of the items have different numbers in an output.
    fn differ(&self, alone: &[Vec<ModelBuffers>]) -> bool {
        let differs = |(a, b): (BatchRef<'_>, BatchRef<'_>)| {
            let access = Access::for_dtype(a.dtype);
            std::iter::zip(access.values(a.bytes), access.values(b.bytes))
                .any(|(a, b)| a.is_finite() && b.is_finite() && a != b)
        };
        let outputs = |item: &Vec<ModelBuffers>, other: &Vec<ModelBuffers>| {
            std::iter::zip(item, other).any(|(a, b)| std::iter::zip(a.batches(1), b.batches(1)).any(differs))
        };
        alone.split_last().is_some_and(|(last, before)| before.iter().any(|other| outputs(last, other)))
    }

    /// Returns how far the numbers of an item may be from those in these calls, by output. The item
    /// has the same position in each, and the calls have the same size. Integers are the same,
    /// unless they come from rounded floats.
    fn tolerances(
        &self,
        outline: &Outline,
        calls: &[Vec<ModelBuffers>],
        (position, size): (usize, usize),
    ) -> Vec<Tolerance> {
        let is_coarse = is_coarse(outline);
        let tolerance = |(at, dtype): (usize, DType)| {
            let access = Access::for_dtype(dtype);
            let outputs = calls.iter().flatten().map(|outputs| outputs.0[at].batch(size));
            let numbers = outputs.flat_map(|output| access.values(item_of(output, position, size).bytes));
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
}

/// Whether a model rounds numbers between its inputs and outputs, so that a call of another size
/// may round to the other side.
fn is_coarse(outline: &Outline) -> bool {
    let is_rounding = |op: &str| op.contains("Quantize") || op.starts_with("QLinear") || op.ends_with("Integer");
    let is_half = |elem: Elem| matches!(elem, Elem::F16 | Elem::BF16);
    outline.ops.iter().any(|op| is_rounding(&op.id))
        || outline.inputs.iter().any(|input| is_half(input.elem))
        || outline.weights.iter().any(|weight| matches!(weight.elem, "float16" | "bfloat16"))
}
