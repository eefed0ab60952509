//! Nodes for tests, which carry numbers: every tensor is a `u64[]`.

mod fault;
mod numbers;
mod one_input;
mod sinks;
mod two_inputs;

pub(crate) use fault::{Fault, FaultSink};
pub(crate) use numbers::Numbers;
pub(crate) use one_input::{Add, Hasty, Split, Step};
pub(crate) use sinks::{Collect, Trail};
pub(crate) use two_inputs::{Pair, Sized};

use limen::message::{DType, PortSpec};
use limen::node::NodeError;
use limen::{Message, Tensor};

/// The type that every port of these nodes carries.
fn number() -> PortSpec {
    PortSpec::fixed(DType::U64, [])
}

fn value(message: &Message<Tensor>) -> Result<u64, NodeError> {
    Ok(message.body.as_slice::<u64>()?[0])
}
