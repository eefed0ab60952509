//! Nodes with one input and one output that need nothing else of [`Node`] and [`Transform`]: the
//! config is the node.

use crate::message::payload::Message;
use crate::message::port_spec::PortSpec;
use crate::message::tensor::{Tensor, TensorMut};
use crate::node::planning::{Building, Connected, Planning};
use crate::node::ports::{OutPort, Ports};
use crate::node::{Node, PlanErrors, Transform};
use crate::port::emit::Emit;
use crate::port::error::NodeError;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// A node that modifies each tensor in place, or only reads it, and forwards it. The type is its
/// own config; the input is `in`, the output `out`. State is kept in fields with `#[serde(skip)]`.
///
/// ```
/// use limen::node::prelude::*;
///
/// /// Adds to every byte, and stays within what a byte can hold.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Brighten {
///     /// How much.
///     by: u8,
/// }
///
/// impl InPlace for Brighten {
///     fn apply(&mut self, tensor: &mut TensorMut) -> Result<(), NodeError> {
///         for byte in tensor.as_mut_slice::<u8>()? {
///             *byte = byte.saturating_add(self.by);
///         }
///         Ok(())
///     }
/// }
///
/// let registry = limen::Registry::new().in_place::<Brighten>("brighten");
/// # assert_eq!(registry.kinds().count(), 1);
/// ```
pub trait InPlace: DeserializeOwned + JsonSchema + Send + Sized + 'static {
    /// Checks the config against the connected input, if its spec is known.
    ///
    /// # Errors
    /// Everything that is wrong, naming fields and the input `in`.
    fn check(&self, input: Option<&PortSpec>) -> Result<(), PlanErrors> {
        let _ = input;
        Ok(())
    }

    /// Processes one tensor, which is then forwarded.
    ///
    /// # Errors
    /// The message counts as failed and is not sent; `on_error` decides what follows.
    fn apply(&mut self, tensor: &mut TensorMut) -> Result<(), NodeError>;
}

/// A node that computes one output tensor from each input tensor. The type is its own config; the
/// input is `in`, the output `out`. State is kept in fields with `#[serde(skip)]`.
///
/// ```
/// use limen::node::prelude::*;
///
/// /// The mean of an image's bytes.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Mean {}
///
/// impl OneToOne for Mean {
///     fn output(&self, _: Option<&PortSpec>) -> Result<Option<PortSpec>, PlanErrors> {
///         Ok(Some(PortSpec::fixed(DType::F32, [])))
///     }
///
///     fn apply(&mut self, input: &Tensor, output: &mut TensorMut) -> Result<(), NodeError> {
///         let bytes = input.as_slice::<u8>()?;
///         let sum: f32 = bytes.iter().map(|byte| f32::from(*byte)).sum();
///         output.as_mut_slice::<f32>()?[0] = sum / bytes.len().max(1) as f32;
///         Ok(())
///     }
/// }
///
/// let registry = limen::Registry::new().one_to_one::<Mean>("mean");
/// # assert_eq!(registry.kinds().count(), 1);
/// ```
pub trait OneToOne: DeserializeOwned + JsonSchema + Send + Sized + 'static {
    /// Returns the spec of the output for the connected input; `None` if it is not known yet.
    ///
    /// # Errors
    /// Everything that is wrong with the config or with what is connected, naming fields and the
    /// input `in`.
    fn output(&self, input: Option<&PortSpec>) -> Result<Option<PortSpec>, PlanErrors>;

    /// Fills one tensor from another. The output holds what an earlier message left, and is as long
    /// as its spec allows: [`TensorMut::set_len`] shortens it.
    ///
    /// # Errors
    /// The message counts as failed and nothing is sent; `on_error` decides what follows.
    fn apply(&mut self, input: &Tensor, output: &mut TensorMut) -> Result<(), NodeError>;
}

fn takes(input: Option<&PortSpec>) -> Ports {
    match input {
        Some(spec) => Ports::new().input("in", spec.clone()),
        None => Ports::new().input_any("in"),
    }
}

/// The node that runs an [`InPlace`].
pub(crate) struct InPlaceNode<N>(N);

impl<N: InPlace> Node for InPlaceNode<N> {
    type Config = N;
    fn ports(config: &N, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let input = given.single();
        config.check(input)?;
        Ok(takes(input).output_forwarding("out", input.cloned(), "in"))
    }
    fn build(config: N, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(InPlaceNode(config))
    }
}

impl<N: InPlace> Transform for InPlaceNode<N> {
    type In = TensorMut;
    type Out = Tensor;
    #[inline]
    fn apply(&mut self, mut tensor: TensorMut, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.0.apply(&mut tensor)?;
        out.send(tensor);
        Ok(())
    }
}

/// The node that runs a [`OneToOne`].
pub(crate) struct OneToOneNode<N>(N);

impl<N: OneToOne> Node for OneToOneNode<N> {
    type Config = N;
    fn ports(config: &N, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let input = given.single();
        let spec = config.output(input)?;
        Ok(takes(input).out_port(OutPort { name: "out".into(), spec, emits: 1, rows: 1, forwards: Vec::new() }))
    }
    fn build(config: N, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(OneToOneNode(config))
    }
}

impl<N: OneToOne> Transform for OneToOneNode<N> {
    type In = Tensor;
    type Out = Tensor;
    #[inline]
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut output = out.loan(input.header())?;
        self.0.apply(&input.body, &mut output)?;
        out.send(output);
        Ok(())
    }
}
