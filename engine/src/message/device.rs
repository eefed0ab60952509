//! Tensors whose elements lie in the memory of a device.
//!
//! Such a tensor is a [`Tensor`](crate::Tensor) like any other: the same handle, row, header and
//! count. Only its elements lie elsewhere: its pool refers to memory that the device allocated, and
//! the backends that run on the device find it there.

use crate::host::sync::DynArc;
use crate::message::port_spec::PortSpec;
use std::any::Any;
use std::fmt;

/// A device with memory of its own, in which ports keep their messages.
pub trait Device: fmt::Debug + Send + Sync + 'static {
    /// Returns its number, by which [`Memory::Device`](crate::message::Memory::Device) refers to
    /// it.
    fn number(&self) -> u8;

    /// Returns its name, as in YAML.
    fn name(&self) -> &str;

    /// Returns the bytes that a pool takes on the device.
    ///
    /// # Errors
    /// Why the device cannot hold such messages.
    fn pool_bytes(&self, pool: &DevicePool<'_>) -> Result<usize, String>;

    /// Allocates a pool.
    ///
    /// # Errors
    /// If the device has no memory for it, or is not available.
    fn allocate(&self, pool: &DevicePool<'_>) -> Result<DynArc<dyn DeviceMemory>, String>;
}

/// The memory of one pool on a device. A backend finds its own type again by [`Any`].
pub trait DeviceMemory: Any + fmt::Debug + Send + Sync {}

/// A pool to be allocated on a device.
#[derive(Clone, Copy, Debug)]
pub struct DevicePool<'a> {
    /// Its name, that of its port.
    pub name: &'a str,
    /// The messages. Where the first dim varies, their memory has its length behind the elements.
    pub spec: &'a PortSpec,
    /// How many slots it has.
    pub slots: usize,
    /// How many messages share a slot.
    pub rows: usize,
}

/// Where the elements of a tensor lie on a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTensor<'a> {
    /// The memory of its pool.
    pub memory: &'a DynArc<dyn DeviceMemory>,
    /// Its slot of the pool.
    pub slot: usize,
    /// Its place in the slot.
    pub row: usize,
}
