//! Messages: headers and payloads, pooled tensors in host memory and on devices, and the origins of
//! the sources upstream of a message.

pub(crate) mod device;
pub(crate) mod label;
pub(crate) mod orientation;
pub(crate) mod origins;
pub(crate) mod payload;
#[allow(unsafe_code, reason = "slots are handed out under a counting protocol that loom checks")]
pub(crate) mod pool;
pub(crate) mod port_spec;
#[allow(unsafe_code, reason = "handles give access to the pool's slots")]
pub(crate) mod tensor;

pub use device::{Device, DeviceMemory, DevicePool, DeviceTensor};
pub use label::Label;
pub use payload::{Header, Message, Payload, Plain};
pub use port_spec::{Content, DType, Dim, Layout, MAX_RANK, Memory, PortSpec};
pub use tensor::{Element, Shape, Tensor, TensorError, TensorMut};

/// A node has at most this many inputs, and at most this many outputs.
pub const MAX_PORTS: usize = 16;
