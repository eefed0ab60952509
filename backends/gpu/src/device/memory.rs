//! The memory of a pool on a device.

use super::api::{Api, DeviceFault};
use super::call::SharedCall;
use limen::backend::BackendError;
use limen::message::{DeviceMemory, DevicePool, DeviceTensor, Dim, PortSpec};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The slots of a pool.
pub(crate) struct PoolMemory<A: Api> {
    name: String,
    row_bytes: usize,
    slot_bytes: usize,
    slots: Box<[Mutex<DeviceSlot<A>>]>,
}

/// A slot: its memory, and the call that wrote it last.
pub(super) struct DeviceSlot<A: Api> {
    pub(super) generation: u32,
    pub(super) buffer: Arc<A::Buffer>,
    pub(super) writer: Option<Arc<SharedCall<A>>>,
}

impl<A: Api> fmt::Debug for PoolMemory<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMemory").field("name", &self.name).field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl<A: Api> DeviceMemory for PoolMemory<A> {}

/// The way out for messages that cannot be on a device.
pub(super) const INSTEAD: &str =
    "to use host memory, remove `device` at the stock kind, or write `resident: false` at the model";

/// The bytes of a count.
pub(super) const COUNT: usize = 4;

/// Whether messages of a spec differ in their first dim, so that its length has to be kept beside
/// the elements.
pub(super) fn is_counted(spec: &PortSpec) -> bool {
    spec.fixed_shape().is_none()
}

/// Returns where the count of a message lies behind its elements, or would lie; copies take whole
/// words.
pub(super) fn count_place(spec: &PortSpec) -> Option<usize> {
    spec.max_bytes()?.checked_next_multiple_of(COUNT)
}

/// Returns the bytes of a row and of a slot.
pub(super) fn slot_layout<A: Api>(pool: &DevicePool<'_>) -> Result<(usize, usize), String> {
    let spec = pool.spec;
    let mut dims = spec.shape.iter();
    let first = dims.next().is_none_or(|first| first.max().is_some());
    if !first || !dims.all(|dim| matches!(dim, Dim::Fixed(_))) {
        let expected = "expected a fixed shape, or only a first dim that varies up to a bound";
        return Err(format!("{expected}, found {spec}: {INSTEAD}"));
    }
    // A buffer is never empty.
    let whole =
        count_place(spec).map(|bytes| if is_counted(spec) { bytes.checked_add(COUNT) } else { Some(bytes.max(4)) });
    let whole = whole.flatten();
    let row = if pool.rows > 1 { whole.and_then(|bytes| bytes.checked_next_multiple_of(A::ROW_ALIGN)) } else { whole };
    let row = row.ok_or_else(|| format!("the size of {spec} must fit 64 bits, got more"))?;
    let slot = row.checked_mul(pool.rows).ok_or_else(|| format!("the size of {spec} must fit 64 bits, got more"))?;
    match A::refuses(spec) {
        Some(why) => Err(format!("{why}: {INSTEAD}")),
        None => Ok((row, slot)),
    }
}

impl<A: Api> PoolMemory<A> {
    pub(super) fn new(generation: u32, api: &A, pool: &DevicePool<'_>) -> Result<Self, String> {
        let (row_bytes, slot_bytes) = slot_layout::<A>(pool)?;
        let slot = || {
            let buffer = api.buffer(slot_bytes).map_err(|fault| BackendError::from(fault).to_string())?;
            Ok(Mutex::new(DeviceSlot { generation, buffer: Arc::new(buffer), writer: None }))
        };
        let slots = std::iter::repeat_with(slot).take(pool.slots).collect::<Result<_, String>>()?;
        Ok(PoolMemory { name: pool.name.into(), row_bytes, slot_bytes, slots })
    }

    /// Returns the memory of a tensor, its slot, and where the tensor begins in the slot.
    pub(super) fn of<'a>(
        tensor: &DeviceTensor<'a>,
    ) -> Result<(&'a Self, MutexGuard<'a, DeviceSlot<A>>, usize), BackendError> {
        let memory: &dyn Any = &**tensor.memory;
        let found = memory.downcast_ref::<Self>().and_then(|memory| Some((memory, memory.slots.get(tensor.slot)?)));
        let (memory, slot) = found.ok_or_else(|| {
            BackendError::Call(format!(
                "expected a tensor in the memory of `{}`, found a tensor in another memory",
                A::NAME
            ))
        })?;
        Ok((memory, slot.lock().unwrap_or_else(PoisonError::into_inner), tensor.row * memory.row_bytes))
    }

    /// Gives a slot memory of another generation.
    pub(super) fn renew(&self, slot: &mut DeviceSlot<A>, generation: u32, api: &A) -> Result<(), DeviceFault> {
        *slot = DeviceSlot { generation, buffer: Arc::new(api.buffer(self.slot_bytes)?), writer: None };
        Ok(())
    }
}

/// Returns the buffer of a tensor, and where the tensor begins in it.
pub(crate) fn buffer_of<A: Api>(tensor: &DeviceTensor<'_>) -> Result<(Arc<A::Buffer>, usize), BackendError> {
    let (_, slot, at) = PoolMemory::<A>::of(tensor)?;
    Ok((slot.buffer.clone(), at))
}
