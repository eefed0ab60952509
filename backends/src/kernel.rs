//! Kernels that a graph brings along: their config, the sizes that it computes, and the interface of a shader.

mod config;
mod expression;
mod interface;

pub use config::{KernelConfig, KernelOutput};
pub use expression::Expression;
pub(crate) use expression::Symbols;
pub(crate) use interface::{Constant, Interface, Variable};
