//! The same elements with their dims in another order.

use crate::tensor::view::{self, ElementView};
use crate::tensor::{cost, shape};
use limen::message::{Layout, MAX_RANK, PortSpec};
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Reorders the dims of a tensor of any type.
///
/// For example, `order: [2, 0, 1]` changes `[h,w,c]` to `[c,h,w]`. If the output is an image in the
/// layout `hwc` or `chw`, the output declares this layout. Otherwise, the output does not declare a
/// layout.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct TransposeConfig {
    /// Dims of the input in the order of the output. Each dim occurs once.
    pub order: Vec<usize>,
}

/// Runs `kind: transpose`; [`TransposeConfig`] says what it does.
#[derive(Debug)]
pub struct Transpose {
    order: Vec<usize>,
}

fn ordered(layout: Layout, order: &[usize]) -> Option<Layout> {
    match (layout, order) {
        (layout, [0, 1, 2]) => Some(layout),
        (Layout::Hwc, [2, 0, 1]) => Some(Layout::Chw),
        (Layout::Chw, [1, 2, 0]) => Some(Layout::Hwc),
        _ => None,
    }
}

/// Reports an order that does not have each dim once. `rank` is that of the input, if known.
fn check(order: &[usize], rank: Option<usize>, errors: &mut PlanErrors) {
    if order.len() > MAX_RANK {
        let message = format!("a tensor must have at most {MAX_RANK} dims, got {}", order.len());
        errors.at("order", message).help("write each dim of the input once");
        return;
    }
    if let Some(rank) = rank.filter(|rank| *rank != order.len()) {
        let s = if rank == 1 { "" } else { "s" };
        let message = format!("expected {rank} dim{s} as in the input, found {}", order.len());
        errors.at("order", message).help("write each dim of the input once");
    }
    let rank = rank.unwrap_or(order.len());
    for (i, dim) in order.iter().enumerate() {
        if *dim >= rank {
            let last = rank.saturating_sub(1);
            let message = format!("a dim must be 0 to {last}, got {dim}");
            errors.at(format!("order[{i}]"), message).help(format!("write each dim from 0 to {last} once"));
        } else if order[..i].contains(dim) {
            errors.at(format!("order[{i}]"), format!("dim {dim} occurs twice")).help("write each dim once");
        }
    }
}

impl Node for Transpose {
    type Config = TransposeConfig;

    fn ports(config: &TransposeConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let (order, spec) = (&config.order, given.single());
        check(order, spec.map(|spec| spec.shape.len()), &mut errors);
        let out = spec.map(|spec| {
            let mut out = PortSpec::new(spec.dtype, order.iter().filter_map(|dim| spec.shape.get(*dim)).cloned());
            out.layout = spec.layout.and_then(|layout| ordered(layout, order));
            out.with_orientation_of(spec)
        });
        let cost = cost::of_spec(out.as_ref());
        errors.into_result(shape::gives(shape::takes(spec.cloned()), out).cost(cost))
    }

    fn build(config: TransposeConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Transpose { order: config.order })
    }
}

impl Transform for Transpose {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut tensor = out.loan(input.header())?;
        let source = ElementView::whole(&input.body.shape()).ordered(&self.order);
        view::take(&input.body, &source, &mut tensor)?;
        out.send(tensor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_dim_once() {
        for (order, rank, expected) in [
            (&[2, 0, 1][..], Some(3), None),
            (&[2, 0, 1], None, None),
            (&[], Some(0), None),
            (&[0, 1], Some(3), Some("expected 3 dims as in the input, found 2")),
            (&[0, 0], None, Some("dim 0 occurs twice")),
            (&[0, 2], Some(2), Some("a dim must be 0 to 1, got 2")),
            (&[usize::MAX], None, Some("a dim must be 0 to 0")),
            (&[0; 7], None, Some("a tensor must have at most 6 dims, got 7")),
        ] {
            let mut errors = PlanErrors::default();
            check(order, rank, &mut errors);
            let errors: Vec<String> = errors.messages().map(String::from).collect();
            assert!(errors.first().map(String::as_str).unwrap_or_default().starts_with(expected.unwrap_or_default()));
            assert_eq!(errors.is_empty(), expected.is_none(), "{order:?}: {errors:?}");
        }
    }

    #[test]
    fn a_layout_follows_its_dims() {
        for (layout, order, expected) in [
            (Layout::Hwc, [2, 0, 1], Some(Layout::Chw)),
            (Layout::Chw, [1, 2, 0], Some(Layout::Hwc)),
            (Layout::Chw, [0, 1, 2], Some(Layout::Chw)),
            (Layout::Chw, [2, 0, 1], None),
            (Layout::Hwc, [1, 0, 2], None),
        ] {
            assert_eq!(ordered(layout, &order), expected, "{layout:?} {order:?}");
        }
    }
}
