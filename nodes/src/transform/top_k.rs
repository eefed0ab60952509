//! The places and values of the greatest elements.

use crate::boxes;
use limen::{
    Building, Cost, DType, Dim, Emit, Given, Message, Node, NodeError, PlanErrors, Planning, PortSpec, Ports, Tensor, Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Finds the `k` greatest elements of f32[n], the greatest first: `index` i32[k] and `value` f32[k].
///
/// Of equal elements the earlier comes first; what is not a number comes last.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// How many elements.
    pub k: usize,
}

/// The node.
#[derive(Debug)]
pub struct TopK {
    k: usize,
    order: Vec<u32>,
}

/// Puts the places of the `k` greatest values into `order`, without allocating once it has grown.
fn greatest(values: &[f32], k: usize, order: &mut Vec<u32>) {
    let compare = |a: &u32, b: &u32| boxes::by_score((values[*a as usize], *a as usize), (values[*b as usize], *b as usize));
    order.clear();
    order.extend(0..values.len() as u32);
    if k < order.len() {
        // Only the k greatest are sorted, which for small k is much less than sorting all.
        order.select_nth_unstable_by(k, compare);
        order.truncate(k);
    }
    order.sort_unstable_by(compare);
}

impl Node for TopK {
    type Config = Config;

    fn ports(config: &Config, given: &Given, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        // Of another rank the engine refuses it, comparing it with this.
        let length = match given.single().map(|spec| &spec.shape[..]) {
            Some([length]) => length.clone(),
            _ => Dim::Symbol("n".into()),
        };
        // More than an i32 can count cannot be answered.
        let longest = length.max().unwrap_or(usize::MAX).min(i32::MAX as usize);
        if !(1..=longest).contains(&config.k) {
            let message = format!("{} elements cannot be found, only 1 to {longest}", config.k);
            errors.at("k", message).help("write a number in that range");
        }
        let found = match length {
            Dim::AtMost(_) => Dim::AtMost(config.k),
            _ => Dim::Fixed(config.k),
        };
        let ports = Ports::new()
            .input("in", PortSpec::new(DType::F32, [length]))
            .output("index", PortSpec::new(DType::I32, [found.clone()]))
            .output("value", PortSpec::new(DType::F32, [found]))
            .cost(Cost::Medium);
        errors.into_result(ports)
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let longest = cx.inputs().first().and_then(|(_, spec)| spec.as_ref()?.max_elements());
        Ok(TopK { k: config.k, order: Vec::with_capacity(longest.unwrap_or(0)) })
    }
}

impl Transform for TopK {
    type In = Tensor;
    type Out = (Tensor, Tensor);

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        let values = input.body.as_slice::<f32>()?;
        greatest(values, self.k, &mut self.order);
        if out.0.is_connected() {
            let mut index = out.0.loan(input.header())?;
            index.set_len(0, self.order.len())?;
            index.as_mut_slice::<i32>()?.iter_mut().zip(&self.order).for_each(|(to, at)| *to = *at as i32);
            out.0.send(index);
        }
        if out.1.is_connected() {
            let mut value = out.1.loan(input.header())?;
            value.set_len(0, self.order.len())?;
            value.as_mut_slice::<f32>()?.iter_mut().zip(&self.order).for_each(|(to, at)| *to = values[*at as usize]);
            out.1.send(value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_come_first_and_ties_in_order() {
        const NAN: f32 = f32::NAN;
        for (values, k, expected) in [
            (&[0.1, 0.7, 0.2][..], 2, &[1, 2][..]),
            (&[0.5, 0.9, 0.5, 0.9, 0.5], 4, &[1, 3, 0, 2]),
            (&[0.0, -0.0, 0.0], 3, &[0, 1, 2]),
            (&[NAN, 1.0, NAN, 2.0], 3, &[3, 1, 0]),
            (&[1.0, 2.0], 5, &[1, 0]),
            (&[], 1, &[]),
        ] {
            let mut order = Vec::new();
            greatest(values, k, &mut order);
            assert_eq!(order, expected, "{values:?}");
        }
    }

    #[test]
    fn it_agrees_with_sorting_all() {
        let values: Vec<f32> = (0..1000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as f32).collect();
        let mut all: Vec<u32> = (0..1000).collect();
        all.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]));
        let mut order = Vec::new();
        for k in [1, 5, 100, 999, 1000] {
            greatest(&values, k, &mut order);
            assert_eq!(order, all[..k]);
        }
    }
}
