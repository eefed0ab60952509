//! Transforms with two inputs.

use super::{number, value};
use limen::node::{Building, Connected, Emit, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Adds the numbers of two inputs. Fails if their sequence numbers differ.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct PairConfig {
    /// Whether sequence numbers may differ.
    #[serde(default)]
    pub(crate) any: bool,
}

/// See [`PairConfig`].
#[derive(Debug, Default)]
pub(crate) struct Pair {
    any: bool,
    sets: u64,
}

impl Node for Pair {
    type Config = PairConfig;
    fn ports(_: &PairConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input("a", number()).input("b", number()).output("out", number()))
    }
    fn build(config: PairConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Pair { any: config.any, sets: 0 })
    }
    fn metrics(&self, to: &mut Metrics) {
        to.set("sets", self.sets as f64);
    }
}

impl Transform for Pair {
    type In = (Tensor, Tensor);
    type Out = Tensor;
    fn apply(&mut self, (a, b): (Message<Tensor>, Message<Tensor>), out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.sets += 1;
        if !self.any && a.header().seq != b.header().seq {
            return Err(NodeError::input("pair", "sequence numbers differ"));
        }
        let mut tensor = out.loan(a.header())?;
        tensor.as_mut_slice::<u64>()?[0] = value(&a)? + value(&b)?;
        out.send(tensor);
        Ok(())
    }
}

/// Forwards its input `a`. It cannot be planned unless `a` and `b` are connected and the size of
/// `a` is known.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SizedConfig {}

/// See [`SizedConfig`].
#[derive(Debug)]
pub(crate) struct Sized;

impl Node for Sized {
    type Config = SizedConfig;
    fn ports(_: &SizedConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if !["a", "b"].iter().all(|port| given.inputs().any(|(name, _)| name == *port)) {
            errors.connections([("a".into(), None), ("b".into(), Some("leave it to `a`".into()))]);
        } else if given.input("a").is_none_or(|spec| spec.max_elements().is_none()) {
            errors.input("a", "its size is not known");
        }
        let spec = given.input("a").cloned();
        let ports = Ports::new().input_any("a").input_any("b").output_forwarding("out", spec, "a");
        errors.into_result(ports)
    }
    fn build(_: SizedConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Sized)
    }
}

impl Transform for Sized {
    type In = (Tensor, Tensor);
    type Out = Tensor;
    fn apply(&mut self, (a, _): (Message<Tensor>, Message<Tensor>), out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        out.send(a);
        Ok(())
    }
}
