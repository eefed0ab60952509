//! The buffers between messages and a model: for the inputs of a batch, and for its outputs.

use super::flight::Flight;
use super::stage::Held;
use crate::message::MAX_PORTS;
use crate::message::device::DeviceTensor;
use crate::message::pool::Pool;
use crate::message::port_spec::{DType, Dim, PortSpec};
use crate::message::tensor::{Tensor, TensorMut};
use crate::node::Many;
use crate::node::backend::{BackendError, BatchMut, BatchRef, TensorSpec};
use crate::port::emit::Emit;
use crate::port::error::NodeError;
use arrayvec::ArrayVec;
use std::collections::VecDeque;

/// Shape and buffer of one input or output of the model.
pub(super) struct BatchBuffer {
    dtype: DType,
    /// The shape of one item; in a call, that of its item if lengths vary.
    shape: Vec<usize>,
    /// The greatest length of each dim.
    bounds: Vec<usize>,
    /// Whether the length of a dim varies from item to item.
    varies: bool,
    /// Bytes of the largest item.
    pub(super) item_bytes: usize,
    /// The buffer in which a batch is assembled; for an unconnected output, where its values go. In
    /// 8-byte words, so that it is aligned for every dtype.
    pub(super) buffer: Vec<u64>,
}

impl BatchBuffer {
    /// Without a buffer if the messages are on a device.
    pub(super) fn new(spec: &TensorSpec, max: usize, is_on_device: bool) -> Result<Self, NodeError> {
        let port = PortSpec::new(spec.dtype, spec.shape.iter().cloned());
        let shape: Option<Vec<usize>> = spec.shape.iter().map(Dim::max).collect();
        let (Some(shape), Some(item_bytes)) = (shape, port.max_bytes()) else {
            let why = format!("every dim of {port} must have a bound: connect inputs of a known size");
            return Err(NodeError::input(&*spec.name, why));
        };
        let varies = port.fixed_shape().is_none();
        if varies && max > 1 {
            let why = format!("the batch must be 1 because the items of {port} differ in length, got {max}");
            return Err(NodeError::input(&*spec.name, why));
        }
        let bounds = shape.clone();
        // On a device, the memory of a message has the length of its first dim.
        if is_on_device && port.shape.iter().skip(1).any(|dim| !matches!(dim, Dim::Fixed(_))) {
            let why = format!("only the first dim of {port} may vary on a device");
            return Err(NodeError::input(&*spec.name, why));
        }
        let words = if is_on_device { 0 } else { item_bytes.saturating_mul(max).div_ceil(8) };
        let mut buffer = Vec::new();
        if buffer.try_reserve_exact(words).is_err() {
            return Err(NodeError::input(&*spec.name, format!("cannot allocate a batch of {max} for {port}")));
        }
        buffer.resize(words, 0);
        Ok(BatchBuffer { dtype: spec.dtype, shape, bounds, varies, item_bytes, buffer })
    }
}

/// The inputs of a call with the first `n` messages held. Several messages are copied into one
/// dense buffer; a single one is read in place.
pub(super) fn batches<'a>(
    sides: &'a mut [BatchBuffer],
    held: &'a VecDeque<Held>,
    n: usize,
) -> ArrayVec<BatchRef<'a>, MAX_PORTS> {
    let batch = |(i, side): (usize, &'a mut BatchBuffer)| {
        let bytes = match (held.front(), n) {
            (Some(only), 1) if side.varies => {
                side.shape.copy_from_slice(&only.set[i].body.shape());
                only.set[i].body.bytes()
            }
            (Some(only), 1) if only.set[i].body.bytes().len() == side.item_bytes => only.set[i].body.bytes(),
            _ => {
                let buffer: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut side.buffer)[..n * side.item_bytes];
                for (held, row) in held.iter().zip(buffer.chunks_exact_mut(side.item_bytes.max(1))) {
                    row.copy_from_slice(held.set[i].body.bytes());
                }
                &*buffer
            }
        };
        BatchRef { dtype: side.dtype, shape: &side.shape, bytes }
    };
    sides.iter_mut().enumerate().map(batch).collect()
}

/// Has `write` fill one slot per port with the outputs of a call, and emits the rows of the
/// messages that leave.
pub(super) fn emit_rows(
    emit: &mut Emit<Many<Tensor>>,
    outputs: &mut [BatchBuffer],
    flight: &Flight,
    write: impl FnOnce(&mut [BatchMut<'_>]) -> Result<(), BackendError>,
) -> Result<(), NodeError> {
    let mut slots = Slots::new();
    take_slots(emit, &mut slots)?;
    let mut outs = ArrayVec::<BatchMut<'_>, MAX_PORTS>::new();
    for (side, slot) in outputs.iter_mut().zip(&mut slots) {
        let bytes = match slot {
            Some(slot) => Pool::batch_bytes(slot, flight.n),
            None => &mut bytemuck::cast_slice_mut(&mut side.buffer)[..flight.n * side.item_bytes],
        };
        // The session may have written another shape in an earlier call.
        side.shape.copy_from_slice(&side.bounds);
        outs.push(BatchMut { dtype: side.dtype, shape: &mut side.shape, bytes });
    }
    write(&mut outs)?;
    drop(outs);
    for (side, slot) in outputs.iter().zip(&mut slots).filter(|(side, _)| side.varies) {
        let Some(slot) = slot else { continue };
        side.shape.iter().enumerate().try_for_each(|(dim, length)| slot.set_len(dim, *length))?;
    }
    send_rows(emit, &mut slots, flight);
    Ok(())
}

/// As [`emit_rows`], with outputs on a device.
pub(super) fn emit_device_rows(
    emit: &mut Emit<Many<Tensor>>,
    flight: &Flight,
    write: impl FnOnce(&[Option<DeviceTensor<'_>>]) -> Result<(), NodeError>,
) -> Result<(), NodeError> {
    let mut slots = Slots::new();
    take_slots(emit, &mut slots)?;
    let outs: ArrayVec<_, MAX_PORTS> =
        slots.iter().map(|slot| slot.as_ref().and_then(|slot| slot.0.on_device())).collect();
    write(&outs)?;
    drop(outs);
    send_rows(emit, &mut slots, flight);
    Ok(())
}

type Slots = ArrayVec<Option<TensorMut>, MAX_PORTS>;

/// Takes a slot for each port. An unconnected output has none: what is written there is discarded.
#[inline]
fn take_slots(emit: &mut Emit<Many<Tensor>>, slots: &mut Slots) -> Result<(), NodeError> {
    for port in emit.ports.iter_mut() {
        let slot = if port.is_connected() { port.pool().map(|pool| pool.take()).transpose()? } else { None };
        slots.push(slot);
    }
    Ok(())
}

/// Emits the rows of the messages that leave with a call.
#[inline]
fn send_rows(emit: &mut Emit<Many<Tensor>>, slots: &mut Slots, flight: &Flight) {
    for (port, slot) in emit.ports.iter_mut().zip(slots.drain(..)) {
        for row in slot.into_iter().flat_map(|slot| Pool::rows(slot, flight.headers.iter().copied(), &flight.origins)) {
            port.send(row);
        }
    }
}
