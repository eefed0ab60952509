//! NVIDIA GPUs: contexts, memory, streams, events, kernels and graphs of the CUDA driver, its
//! compiler NVRTC, matrix products of cuBLASLt and convolutions of cuDNN.
//!
//! A crate of its own, because everything here ends in unsafe calls. What it adds to them:
//!
//! - Nothing panics where a library, or a function in it, is missing ([`MissingLibrary`]).
//! - Memory, modules and graphs live as long as the work that uses them ([`StreamEvent`]), so that
//!   no safe call frees what the device still reads or writes.
//! - Memory of the host is not readable while the device may write it ([`PinnedBuffer`]).
//! - An error says what to do about it ([`Class`]).
//!
//! Only [`Stream::launch`] is unsafe: what a kernel does is not known here.

mod compiler;
mod context;
mod convolution;
mod error;
mod graph;
mod library;
mod memory;
mod module;
mod product;
mod routine;
mod stream;

pub use compiler::{Image, compile, version};
pub use context::{Context, Info, devices};
pub use convolution::{Convolution, ConvolutionSpec, Images};
pub use error::{Class, Error};
pub use graph::Graph;
pub use library::{Library, MissingLibrary};
pub use memory::{Buffer, CopyDirection, PinnedBuffer};
pub use module::{Function, FunctionInfo, Module};
pub use product::{Multiplication, Operand, Product};
pub use routine::{ElementType, Routine};
pub use stream::{Argument, Grid, Stream, StreamEvent};
