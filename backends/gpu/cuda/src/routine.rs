//! What a library of NVIDIA's computes in the order of a stream.

use crate::context::Context;
use crate::convolution::Convolution;
use crate::error::Error;
use crate::memory::Buffer;
use crate::product::Product;
use cudarc::driver::sys::CUstream;
use std::ffi::c_void;
use std::sync::Arc;

/// A computation of a library, ready to be enqueued ([`Stream::compute`](crate::Stream::compute)).
#[derive(Clone, Debug)]
pub enum Routine {
    /// A matrix product of cuBLASLt: of `a` and `b`.
    Product(Arc<Product>),
    /// A convolution of cuDNN: of the image and the weights.
    Convolution(Arc<Convolution>),
}

impl Routine {
    /// Returns how much memory it needs beside its arrays.
    pub fn workspace(&self) -> usize {
        match self {
            Routine::Product(product) => product.workspace(),
            Routine::Convolution(convolution) => convolution.workspace(),
        }
    }

    /// Enqueues it; the memory is that of both factors and of the result.
    pub(crate) fn enqueue(&self, stream: CUstream, arrays: [&Buffer; 3], workspace: &Buffer) -> Result<(), Error> {
        match self {
            Routine::Product(product) => product.enqueue(stream, arrays, workspace),
            Routine::Convolution(convolution) => convolution.enqueue(stream, arrays, workspace),
        }
    }
}

/// The type of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// 32 bits.
    F32,
    /// 16 bits of IEEE 754.
    F16,
    /// The upper half of an `F32`.
    Bf16,
}

impl ElementType {
    pub(crate) fn bytes(self) -> usize {
        match self {
            ElementType::F32 => 4,
            ElementType::F16 | ElementType::Bf16 => 2,
        }
    }
}

/// Where the arrays of a routine begin and end in their memory, and what it needs beside them, in
/// bytes.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) ranges: [(usize, usize); 3],
    pub(crate) workspace: usize,
}

impl Extent {
    /// Compares it with memory, and returns where the arrays begin on the device.
    pub(crate) fn addresses(
        &self,
        context: &Arc<Context>,
        arrays: [&Buffer; 3],
        workspace: &Buffer,
    ) -> Result<[*mut c_void; 3], Error> {
        for (buffer, (_, end)) in std::iter::zip(arrays, self.ranges) {
            if !Arc::ptr_eq(buffer.context(), context) || end > buffer.bytes() {
                return Err(Error::Refused(format!("an array must end within {} bytes, got {end}", buffer.bytes())));
            }
        }
        if !Arc::ptr_eq(workspace.context(), context) || workspace.bytes() < self.workspace {
            let (least, bytes) = (self.workspace, workspace.bytes());
            return Err(Error::Refused(format!(
                "the workspace must have at least {least} bytes on the device, got {bytes}"
            )));
        }
        let at = |place: usize| (arrays[place].address() + self.ranges[place].0 as u64) as *mut c_void;
        Ok([at(0), at(1), at(2)])
    }
}
