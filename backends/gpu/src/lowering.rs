//! Programs for devices, lowered from models. No API of a device is named here: a program is what a
//! call computes; how a device compiles, stores and runs it is the device's.

mod contraction;
#[cfg(feature = "cuda")]
mod convolution;
mod fuse;
#[cfg(test)]
mod interpret;
mod kernel;
mod model;
mod operators;
mod places;
#[cfg(feature = "cuda")]
mod product;
mod program;
mod recurrent;
#[cfg(feature = "cuda")]
mod routine;
mod scan;
mod shader;
mod stock;
#[cfg(test)]
pub(crate) mod test_cases;
#[cfg(all(test, feature = "cuda"))]
pub(crate) mod test_programs;
#[cfg(test)]
mod tests;
mod value;

#[cfg(feature = "cuda")]
pub(crate) use convolution::{Convolution, Images};
#[cfg(test)]
pub(crate) use interpret::interpret;
pub(crate) use kernel::{ArrayRead, Axis, BOX, Binary, Expr, Fold, How, Kernel, Number, Scalar, Suppression, Unary};
pub(crate) use model::lower;
#[cfg(feature = "cuda")]
pub(crate) use product::{Matrix, Product};
#[cfg(feature = "cuda")]
pub(crate) use program::Array;
pub(crate) use program::{Half, Program, Source, Storage};
#[cfg(feature = "cuda")]
pub(crate) use routine::Routine;
pub(crate) use shader::{Dialect, EntryPoint, KernelArguments, Shader, ShaderPlace, Width, shader};
pub(crate) use stock::{ProgramSteps, Taps};
pub(crate) use value::StridedValue;
