//! A session of a model: it pads batches, gathers and keeps states, and checks and copies outputs.

use super::fallback::Fallback;
use super::lane::OnnxLane;
use super::loaded::{Guarded, Loaded};
use super::runtime::{Call, DeviceCalls, Runner, Runtime, batch_shape};
use super::shadow::Shadow;
use crate::base::Access;
use limen::backend::{
    BackendError, BatchMut, BatchRef, DeviceCall, EnqueuedCalls, Helpers, Session, SessionMetadata, Ticket,
};
use limen::message::DType;
use limen::node::{MAX_PORTS, Metrics};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An output with known shape.
#[derive(Clone, Debug)]
pub(super) struct SessionOutput {
    pub(super) port: String,
    pub(super) dtype: DType,
    /// The shape of one item, with the greatest length of each dim that varies.
    pub(super) item: Vec<usize>,
    /// Which dims of an item vary from call to call; a call then has one item.
    pub(super) varies: Vec<bool>,
    pub(super) batch_dim: Option<usize>,
    /// Whether `max:` gives the lengths of the dims that vary.
    pub(super) by_max: bool,
}

impl SessionOutput {
    /// Bytes of the largest item.
    pub(super) fn item_bytes(&self) -> usize {
        self.item.iter().product::<usize>() * self.dtype.size()
    }

    /// Returns the contiguous bytes of one item: with the batch dim in the middle, items are
    /// interleaved in pieces of this size.
    fn piece(&self) -> usize {
        self.item[self.batch_dim.unwrap_or_default()..].iter().product::<usize>() * self.dtype.size()
    }
}

/// Returns a zeroed buffer of 8-byte words, which is aligned for every dtype.
pub(super) fn buffer(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(8)]
}

/// An input as a session passes it to its runner.
#[derive(Debug)]
pub(super) struct SessionInput {
    pub(super) port: String,
    pub(super) dtype: DType,
    /// The model's shape; the batch dim, and lengths that vary, are set for each call.
    pub(super) shape: Vec<usize>,
    /// The greatest length of each dim of an item if any of them varies; otherwise empty.
    pub(super) bounds: Vec<usize>,
    /// Bytes of the largest item.
    pub(super) item_bytes: usize,
    pub(super) batch_dim: Option<usize>,
    /// The index of its state, if it is one and not a port.
    pub(super) state: Option<usize>,
    /// Whether it has the same value in every call, and is not a port.
    pub(super) is_constant: bool,
    /// Holds a padded batch, states gathered from lanes, or a constant for each item; otherwise
    /// empty.
    pub(super) buffer: Vec<u64>,
}

impl SessionInput {
    /// Returns its bytes in a call with `size` items.
    pub(super) fn bytes(&self, size: usize) -> usize {
        self.item_bytes * if self.batch_dim.is_some() { size } else { 1 }
    }

    /// Returns the contiguous bytes of one item, and how many such pieces an item has.
    fn strides(&self) -> (usize, usize) {
        let pieces = self.shape[..self.batch_dim.unwrap_or_default()].iter().product::<usize>().max(1);
        (self.item_bytes / pieces, pieces)
    }
}

/// A model on one thread. Inputs are passed without a copy, unless they are padded; outputs are
/// copied out of the runtime.
pub struct OnnxSession<R: Runtime> {
    /// Created in the first call if the model is loaded lazily.
    pub(super) runner: Option<Guarded<R::Runner>>,
    pub(super) shared: Arc<R::Shared>,
    pub(super) call: Call,
    /// The time of the first call, including preparation.
    pub(super) first_call: Option<Duration>,
    /// All inputs of the model, including states.
    pub(super) inputs: Vec<SessionInput>,
    /// All outputs of the model, with the index of the state if it is one.
    pub(super) outputs: Vec<(SessionOutput, Option<usize>)>,
    /// The states after a call: stored in the lanes only once the whole call has succeeded.
    pub(super) next: Vec<Vec<u64>>,
    /// The batch sizes of calls, ascending; any size if empty.
    pub(super) buckets: Vec<usize>,
    /// Dims with one name whose length varies: the inputs, and the dims of their items.
    pub(super) alike: Vec<Vec<(usize, usize)>>,
    pub(super) loaded: Arc<Loaded<R>>,
    pub(super) finite: bool,
    pub(super) shadow: Option<Shadow>,
    pub(super) fallback: Option<Fallback>,
    /// The time of the calls before the run.
    pub(super) warm_up: Option<Duration>,
    /// Zeros for each input, as many as the largest call on zeros has needed.
    pub(super) zeros: Vec<Vec<u64>>,
    /// Calls that were made as two of half the items.
    pub(super) halved: u64,
}

impl<R: Runtime> std::fmt::Debug for OnnxSession<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnnxSession").field("runtime", &R::NAME).field("buckets", &self.buckets).finish()
    }
}

impl<R: Runtime> OnnxSession<R> {
    /// Makes a call or, where the device has no memory left for it and the model has no state, one
    /// of each half of its items.
    fn call_in_parts(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lanes: &mut [OnnxLane],
    ) -> Result<(), BackendError> {
        match self.call(batch, inputs, outputs, lanes) {
            // A part that has succeeded has stored its states, which a failed call leaves as they
            // were.
            Err(BackendError::OutOfMemory(_)) if batch > 1 && self.next.is_empty() => {}
            ended => return ended,
        }
        self.halved += 1;
        let first = batch / 2;
        for (from, to) in [(0, first), (first, batch)] {
            let part = |bytes: usize| from * (bytes / batch)..to * (bytes / batch);
            let ins: arrayvec::ArrayVec<BatchRef<'_>, MAX_PORTS> = inputs
                .iter()
                .map(|input| BatchRef { bytes: &input.bytes[part(input.bytes.len())], ..*input })
                .collect();
            let mut outs: arrayvec::ArrayVec<BatchMut<'_>, MAX_PORTS> = outputs
                .iter_mut()
                .map(|BatchMut { dtype, shape, bytes }| {
                    let part = part(bytes.len());
                    BatchMut { dtype: *dtype, shape, bytes: &mut bytes[part] }
                })
                .collect();
            self.call_in_parts(to - from, &ins, &mut outs, lanes)?;
        }
        Ok(())
    }
}

impl<R: Runtime> Session for OnnxSession<R> {
    type Lane = OnnxLane;

    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lanes: &mut [OnnxLane],
    ) -> Result<(), BackendError> {
        let mut result = self.call_in_parts(batch, inputs, outputs, lanes);
        if let (Err(error), Some(fallback)) = (&result, &mut self.fallback)
            && Fallback::takes(error)
        {
            result = fallback.call(batch, inputs, outputs, lanes);
        }
        result.map_err(|error| match error {
            BackendError::Call(why) => BackendError::Call(format!("`{}`: {why}", self.loaded.file)),
            other => other,
        })
    }

    fn keep_warm(&mut self) -> Result<(), BackendError> {
        // What the model makes of zeros does not matter, also if it is an error of the call.
        match self.call_on_zeros(self.buckets.first().copied().unwrap_or(1)) {
            Err(BackendError::Call(_)) => Ok(()),
            // The next call opens the device again, or the fallback makes it.
            Err(error) if self.fallback.is_some() && Fallback::takes(&error) => Ok(()),
            other => other,
        }
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        // Only models on a device finish their calls later.
        self.on_device().map_or(Ok(false), |calls| calls.begin(helpers))
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        if call.batch != 1 || !self.next.is_empty() || self.inputs.iter().any(|input| input.is_constant) {
            return Err(BackendError::Unsupported("batches, states and constants in calls on a device".into()));
        }
        let file = self.loaded.file.clone();
        let calls = self.on_device().ok_or_else(|| BackendError::Unsupported("calls on a device".into()))?;
        calls.enqueue(call).map_err(|error| match error {
            BackendError::Call(why) => BackendError::Call(format!("`{file}`: {why}")),
            other => other,
        })
    }

    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        Some(self.on_device()?.enqueued())
    }

    fn figures(&self, metrics: &mut Metrics) {
        if let Some(first) = self.first_call {
            metrics.set("first_call_ms", first.as_secs_f64() * 1e3);
        }
        if let Some(took) = self.warm_up {
            metrics.set("warm_up_ms", took.as_secs_f64() * 1e3);
        }
        if let Some(compiled) = self.loaded.runtime.compiled() {
            metrics.set("compiled", compiled.compiled as f64);
            metrics.set("compile_ms", compiled.compile_ns as f64 / 1e6);
            metrics.set("compile_hits", compiled.hits as f64);
            metrics.set("compile_from_disk", compiled.from_disk as f64);
            metrics.set("compile_evicted", compiled.evicted as f64);
        }
        if self.halved > 0 {
            metrics.set("halved_calls", self.halved as f64);
        }
        if let Some(shadow) = &self.shadow {
            shadow.figures(metrics);
        }
        self.fallback.iter().for_each(|fallback| fallback.figures(metrics));
    }

    fn resume(&mut self, figures: &Metrics) {
        if let Some(shadow) = &mut self.shadow {
            shadow.resume(figures);
        }
        self.fallback.iter_mut().for_each(|fallback| fallback.resume(figures));
    }

    fn metadata(&self) -> SessionMetadata {
        let copied_out = self.outputs.iter().map(|(side, _)| side.item_bytes()).sum();
        let buffers =
            self.inputs.iter().map(|input| input.buffer.len()).chain(self.next.iter().map(Vec::len)).sum::<usize>();
        let shared = self.loaded.bytes;
        let memory = shared + 8 * buffers as u64;
        match &self.runner {
            Some(runner) => SessionMetadata { copied_out, memory, shared, ..runner.runner.metadata() },
            // Not prepared yet.
            None => SessionMetadata {
                copied_out,
                memory,
                shared,
                device: R::DEVICE.into(),
                threads: self.call.threads,
                ..SessionMetadata::default()
            },
        }
    }
}

impl<R: Runtime> OnnxSession<R> {
    #[cfg(test)]
    pub(crate) fn is_ready(&self) -> bool {
        self.runner.is_some()
    }

    #[cfg(test)]
    pub(crate) fn first_call(&self) -> Option<Duration> {
        self.first_call
    }

    /// Returns what makes calls on a device, if the model runs on one.
    fn on_device(&mut self) -> Option<&mut dyn DeviceCalls> {
        self.runner.as_mut()?.runner.on_device()
    }

    fn call(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lanes: &mut [OnnxLane],
    ) -> Result<(), BackendError> {
        let states = self.next.len();
        let constants = self.inputs.iter().filter(|input| input.is_constant).count();
        if inputs.len() + states + constants != self.inputs.len() || outputs.len() + states != self.outputs.len() {
            let (i, o) = (inputs.len(), outputs.len());
            let takes = self.inputs.len().saturating_sub(states + constants);
            let makes = self.outputs.len().saturating_sub(states);
            return Err(BackendError::Call(format!(
                "expected {takes} inputs and {makes} outputs for the model, found {i} and {o}"
            )));
        }
        if batch == 0 {
            return Err(BackendError::Call("a batch must have at least one item, got none".into()));
        }
        if states > 0 && lanes.len() != batch {
            let lanes = lanes.len();
            return Err(BackendError::Call(format!(
                "a call must have a stream for each of its {batch} items, got {lanes}"
            )));
        }
        if self.first_call.is_none() {
            let started = Instant::now();
            if self.runner.is_none() {
                self.runner = Some(self.loaded.runner(&self.shared, &self.call)?);
            }
            self.first_call = Some(Duration::ZERO);
            let result = self.call(batch, inputs, outputs, lanes);
            self.first_call = Some(started.elapsed());
            return result;
        }
        let is_compared = self.shadow.as_mut().is_some_and(|shadow| shadow.is_due(lanes));
        // The smallest planned size that is large enough.
        let size = match self.buckets.iter().find(|size| **size >= batch) {
            Some(size) => *size,
            None if self.buckets.is_empty() => batch,
            None => {
                let most = self.buckets.last().copied().unwrap_or_default();
                return Err(BackendError::Call(format!("the batch size must be at most {most}, got {batch}")));
            }
        };
        let mut given = inputs.iter();
        for input in &mut self.inputs {
            if let Some(dim) = input.batch_dim {
                input.shape[dim] = size;
            }
            match input.state {
                Some(state) => gather(input, state, size, lanes),
                None if input.is_constant => {}
                None => {
                    let given = input_bytes(input, given.next())?;
                    if self.finite {
                        // The batch dim of a port comes first, so items are contiguous.
                        let item = given.len() / batch;
                        guard(("input", &input.port), input.dtype, (item, batch, batch), given)?;
                    }
                    if input.bounds.is_empty() {
                        pad(input, given, batch, size)?;
                    }
                }
            }
        }
        for dims in &self.alike {
            check_alike(dims, &self.inputs)?;
        }
        let mut given = inputs.iter();
        let mut whole = arrayvec::ArrayVec::<BatchRef<'_>, { 2 * MAX_PORTS }>::new();
        for input in &self.inputs {
            let is_padded = size != batch && input.batch_dim.is_some();
            let given = if input.state.is_none() && !input.is_constant { given.next() } else { None };
            let bytes = match given {
                Some(given) if !is_padded => given.bytes,
                _ => &bytemuck::cast_slice(&input.buffer)[..input.bytes(size)],
            };
            whole.push(BatchRef { dtype: input.dtype, shape: &input.shape, bytes });
        }
        let (sides, next, finite, mut received) = (&self.outputs, &mut self.next, self.finite, 0);
        let runner = self.runner.as_mut().ok_or_else(|| BackendError::Call("the model is not loaded".into()))?;
        runner.run(size, &whole, &mut |at, output| {
            let Some((side, state)) = sides.get(at) else { return Ok(()) };
            check(side, size, output)?;
            if finite {
                let (used, size) = if side.batch_dim.is_some() { (batch, size) } else { (1, 1) };
                let piece = if side.varies.contains(&true) { output.bytes.len() } else { side.piece() };
                guard(("output", &side.port), side.dtype, (piece, used, size), output.bytes)?;
            }
            received += 1;
            match state {
                Some(state) => {
                    let into: &mut [u8] = bytemuck::cast_slice_mut(&mut next[*state]);
                    into[..output.bytes.len()].copy_from_slice(output.bytes);
                    Ok(())
                }
                None => {
                    let port = at - sides[..at].iter().filter(|(_, state)| state.is_some()).count();
                    copy(side, batch, output, &mut outputs[port])
                }
            }
        })?;
        if received != sides.len() {
            return Err(BackendError::Call(format!(
                "expected {} outputs from the runtime, found {received}",
                sides.len()
            )));
        }
        for input in &self.inputs {
            if let Some(state) = input.state {
                scatter(input, state, size, bytemuck::cast_slice(&self.next[state]), lanes);
            }
        }
        if let Some(shadow) = self.shadow.as_mut().filter(|_| is_compared) {
            shadow.compare(batch, inputs, outputs);
        }
        Ok(())
    }
}

/// Returns the bytes of an input, if it has the planned dtype and shape: the length alone does not
/// tell. Notes lengths that vary.
fn input_bytes<'a>(input: &mut SessionInput, given: Option<&BatchRef<'a>>) -> Result<&'a [u8], BackendError> {
    let item = &mut input.shape[usize::from(input.batch_dim.is_some())..];
    match given {
        Some(given)
            if !input.bounds.is_empty() && is_within(given.shape, &input.bounds) && given.dtype == input.dtype =>
        {
            item.copy_from_slice(given.shape);
            let (has, bytes) = (given.bytes.len(), given.shape.iter().product::<usize>() * given.dtype.size());
            if has != bytes {
                let port = &input.port;
                return Err(BackendError::Call(format!(
                    "input `{port}` must have {bytes} bytes for its shape, got {has}"
                )));
            }
            Ok(given.bytes)
        }
        Some(given) if given.dtype == input.dtype && given.shape == item => Ok(given.bytes),
        Some(BatchRef { dtype, shape, .. }) => {
            let (port, planned) = (&input.port, input.dtype);
            let (item, most) = match &input.bounds[..] {
                [] => (&*item, ""),
                bounds => (bounds, "at most "),
            };
            Err(BackendError::Call(format!("input `{port}` must be {most}{planned}{item:?}, got {dtype}{shape:?}")))
        }
        None => Err(BackendError::Call(format!("expected a message for input `{}`, found none", input.port))),
    }
}

/// Checks the length of an input; if the batch is smaller than the call, copies it into the buffer
/// and pads it with zeros.
fn pad(input: &mut SessionInput, given: &[u8], batch: usize, size: usize) -> Result<(), BackendError> {
    let (takes, total) = (input.bytes(batch), input.bytes(size));
    if given.len() != takes {
        let has = given.len();
        return Err(BackendError::Call(format!(
            "input `{}` must have {takes} bytes for a batch of {batch}, got {has}",
            input.port
        )));
    }
    if total != takes {
        let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut input.buffer);
        let (used, rest) = buffer[..total].split_at_mut(takes);
        used.copy_from_slice(given);
        // Stale padding could hold denormals, which make kernels slow.
        rest.fill(0);
    }
    Ok(())
}

/// Gathers the states of all lanes in the buffer of one input.
fn gather(input: &mut SessionInput, state: usize, size: usize, lanes: &[OnnxLane]) {
    let (piece, pieces) = input.strides();
    let (total, size) = (input.bytes(size), if input.batch_dim.is_some() { size } else { 1 });
    let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut input.buffer);
    buffer[..total].fill(0);
    for (lane, values) in lanes.iter().enumerate() {
        let Some(values) = values.states.get(state) else { continue };
        for (n, values) in values.chunks_exact(piece.max(1)).enumerate().take(pieces) {
            let to = (n * size + lane) * piece;
            buffer[to..to + piece].copy_from_slice(values);
        }
    }
}

/// Scatters the output of a state to the lanes.
fn scatter(input: &SessionInput, state: usize, size: usize, from: &[u8], lanes: &mut [OnnxLane]) {
    let size = if input.batch_dim.is_some() { size } else { 1 };
    let (piece, _) = input.strides();
    for (lane, values) in lanes.iter_mut().enumerate() {
        if values.states.len() <= state {
            values.states.resize(state + 1, Vec::new());
        }
        let values = &mut values.states[state];
        values.resize(input.item_bytes, 0);
        for (n, values) in values.chunks_exact_mut(piece.max(1)).enumerate() {
            let at = (n * size + lane) * piece;
            values.copy_from_slice(&from[at..at + piece]);
        }
    }
}

/// Fails on an infinity or NaN in the first `used` of `size` items, which are interleaved in pieces
/// of `piece` bytes. The padding behind them may hold anything.
fn guard(
    (side, port): (&str, &str),
    dtype: DType,
    (piece, used, size): (usize, usize, usize),
    bytes: &[u8],
) -> Result<(), BackendError> {
    let access = Access::for_dtype(dtype);
    if access.holds_only_whole() {
        return Ok(());
    }
    for (n, row) in bytes.chunks((piece * size).max(1)).enumerate() {
        let row = &row[..row.len().min(piece * used)];
        let Some(at) = access.values(row).position(|value| !value.is_finite()) else { continue };
        let value = access.values(row).nth(at).unwrap_or(f64::NAN);
        let elements = (piece / dtype.size()).max(1);
        let (item, element) = (at / elements, n * elements + at % elements);
        let item = if size == 1 { String::new() } else { format!(" of item {item} of {used}") };
        let message =
            format!("{side} `{port}` must be finite (`guard: finite`), got {value} at element {element}{item}");
        return Err(BackendError::Call(message));
    }
    Ok(())
}

/// Checks that dims with one name have one length: a runtime may broadcast the shorter one.
fn check_alike(dims: &[(usize, usize)], inputs: &[SessionInput]) -> Result<(), BackendError> {
    let length = |(at, dim): &(usize, usize)| {
        let input = &inputs[*at];
        (input.shape[usize::from(input.batch_dim.is_some()) + dim], &input.port)
    };
    let mut lengths = dims.iter().map(length);
    let Some((first, at)) = lengths.next() else { return Ok(()) };
    match lengths.find(|(other, _)| *other != first) {
        Some((other, there)) => {
            Err(BackendError::Call(format!("`{at}` and `{there}` must have the same length, got {first} and {other}")))
        }
        None => Ok(()),
    }
}

/// Whether a shape has no dim longer than its bound.
fn is_within(shape: &[usize], bounds: &[usize]) -> bool {
    shape.len() == bounds.len() && std::iter::zip(shape, bounds).all(|(length, most)| length <= most)
}

/// Checks that an output has the planned dtype and shape.
fn check(side: &SessionOutput, size: usize, output: BatchRef<'_>) -> Result<(), BackendError> {
    // Dim by dim: this runs in every call, and allocates only for the error.
    let (before, behind) = side.item.split_at(side.batch_dim.unwrap_or_default());
    let batch = side.batch_dim.is_some().then_some(&size);
    let mut planned = before.iter().chain(batch).chain(behind);
    let mut varies = side.varies.iter();
    let is_planned = output.shape.len() == side.item.len() + usize::from(side.batch_dim.is_some())
        && output.shape.iter().enumerate().all(|(at, length)| {
            let is_varying = Some(at) != side.batch_dim && *varies.next().unwrap_or(&false);
            planned.next().is_some_and(|planned| length == planned || (is_varying && length < planned))
        });
    let bytes = output.shape.iter().product::<usize>() * side.dtype.size();
    if output.dtype != side.dtype || !is_planned || output.bytes.len() != bytes {
        return Err(BackendError::Call(not_planned(side, size, output)));
    }
    Ok(())
}

/// Returns why an output is not as planned, and what to write.
fn not_planned(side: &SessionOutput, size: usize, output: BatchRef<'_>) -> String {
    let SessionOutput { port, dtype, batch_dim, by_max, .. } = side;
    let (received, shape, planned) = (output.dtype, output.shape, batch_shape(&side.item, *batch_dim, size));
    let why = format!("output `{port}` must be {dtype}{planned:?}, got {received}{shape:?}");
    if received != *dtype || shape.len() != planned.len() {
        return why;
    }
    let item = shape.iter().enumerate().filter(|(dim, _)| Some(*dim) != *batch_dim).map(|(_, length)| *length);
    let mut dims = std::iter::zip(item.clone(), &side.item).zip(&side.varies);
    if let Some(((gave, allows), _)) = dims.find(|((gave, most), varies)| **varies && gave > most)
        && *by_max
    {
        return format!(
            "output `{port}` must be at most {allows} long (`max.{port}`), got {gave} in {received}{shape:?}: raise \
             `max.{port}`"
        );
    }
    let lengths: Vec<usize> = std::iter::zip(item, &side.item).map(|(gave, planned)| gave.max(*planned)).collect();
    format!("{why}: write the greatest lengths, `max: {{ {port}: {lengths:?} }}`")
}

/// Copies the items of an output without the padding.
fn copy(side: &SessionOutput, batch: usize, output: BatchRef<'_>, into: &mut BatchMut<'_>) -> Result<(), BackendError> {
    if side.varies.contains(&true) && into.dtype == side.dtype {
        let item =
            output.shape.iter().enumerate().filter(|(at, _)| Some(*at) != side.batch_dim).map(|(_, length)| length);
        into.shape.iter_mut().zip(item).for_each(|(to, length)| *to = *length);
        let room = into.bytes.len();
        let to = into.bytes.get_mut(..output.bytes.len());
        let too_small = || {
            let (port, got) = (&side.port, output.bytes.len());
            BackendError::Call(format!("output `{port}` must have at most {room} bytes, got {got}"))
        };
        to.ok_or_else(too_small)?.copy_from_slice(output.bytes);
        return Ok(());
    }
    let used = if side.batch_dim.is_some() { batch } else { 1 } * side.item_bytes();
    if into.dtype != side.dtype || into.bytes.len() != used {
        let (has, dtype, SessionOutput { port, dtype: received, .. }) = (into.bytes.len(), into.dtype, side);
        return Err(BackendError::Call(format!(
            "the buffer of output `{port}` must have {used} bytes of {received}, got {has} of {dtype}"
        )));
    }
    into.bytes.copy_from_slice(&output.bytes[..used]);
    Ok(())
}
