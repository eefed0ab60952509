//! Kernels that a graph brings along: their config, the sizes that it computes, and the interface
//! of a shader.

mod config;
mod expression;
#[cfg(feature = "wgpu")]
mod interface;

#[cfg_attr(not(feature = "cuda"), allow(unused_imports))]
pub(crate) use config::Language;
pub use config::{ArgumentNumber, KernelArgument, KernelConfig, KernelNumber, KernelOutput};
pub use expression::Expression;
pub(crate) use expression::Symbols;
#[cfg(feature = "wgpu")]
pub(crate) use interface::{Interface, OverrideConstant, Variable};
