//! `auto_pad: SAME_LOWER` as explicit pads, for runtimes that pad at the other end.
//!
//! Of an odd sum of padding, `SAME_LOWER` puts the larger part before the data and `SAME_UPPER`
//! behind it. The sum is known where the stride is 1, where the length is that of an input of the
//! model, and for a `ConvTranspose`. Elsewhere the operator runs with `SAME_UPPER` on data that is
//! reversed, and so is its result.

use super::edit::{constant, ints, list, made, replace_nodes};
use super::node::name_of;
use super::wire;
use prost::Message;
use std::cell::RefCell;

/// How many operators longer each node makes the longest chain.
pub(crate) const LONGER: usize = 2;

const LOWER: &[u8] = b"SAME_LOWER";

/// The most dims of a window.
const MAX_DIMS: usize = 8;

/// Returns the file of a model without `SAME_LOWER`; `None` if there is none.
///
/// # Errors
/// A node whose padding depends on a length that is not known before the call.
pub(crate) fn without_same_lower(file: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Some(graph) = wire::Model::decode(file).ok().and_then(|model| model.graph) else { return Ok(None) };
    let refused = RefCell::new(None);
    let edited = replace_nodes(file, &graph, |node| {
        let is_lower = node.attributes.iter().any(|a| a.name == "auto_pad" && *a.text == *LOWER);
        if !is_lower || !matches!(&*node.domain, "" | "ai.onnx") {
            return None;
        }
        let nodes = Padded::of(node, &graph).and_then(|padded| padded.nodes());
        if nodes.is_none() {
            let why = || {
                format!(
                    "expected a padding that is known before the call, found `auto_pad: SAME_LOWER` at {}",
                    name_of(node)
                )
            };
            refused.borrow_mut().get_or_insert_with(why);
        }
        nodes
    });
    match refused.into_inner() {
        Some(why) => Err(why),
        None => Ok(edited),
    }
}

/// A node with `SAME_LOWER`.
struct Padded<'a> {
    node: &'a wire::Node,
    /// How many elements each dim of a window covers, and its stride.
    windows: Vec<(i64, i64)>,
    /// The lengths of the dims, where they are declared.
    lengths: Option<Vec<i64>>,
}

impl<'a> Padded<'a> {
    fn of(node: &'a wire::Node, graph: &wire::Graph) -> Option<Self> {
        let weights = || {
            let weights = graph.initializers.iter().find(|tensor| Some(&tensor.name) == node.inputs.get(1))?;
            weights.dims.get(2..)
        };
        let kernel = find(node, "kernel_shape").map(|a| &*a.ints).filter(|dims| !dims.is_empty()).or_else(weights)?;
        let rank = kernel.len();
        let list = |name: &str| match find(node, name).map(|a| &a.ints) {
            Some(list) if !list.is_empty() => Some(list.clone()).filter(|list| list.len() == rank),
            _ => Some(vec![1; rank]),
        };
        let (strides, dilations) = (list("strides")?, list("dilations")?);
        let is_usual = |list: &[i64]| list.iter().all(|number| (1..1 << 31).contains(number));
        if rank > MAX_DIMS || !(is_usual(kernel) && is_usual(&strides) && is_usual(&dilations)) {
            return None;
        }
        let covered = std::iter::zip(kernel, dilations).map(|(kernel, dilation)| (kernel - 1) * dilation + 1);
        let input = graph.inputs.iter().find(|input| Some(&input.name) == node.inputs.first());
        let shape = input.and_then(|input| input.kind.as_ref()?.tensor.as_ref()?.shape.as_ref());
        let lengths = shape.filter(|shape| shape.dims.len() == rank + 2);
        Some(Padded {
            node,
            windows: std::iter::zip(covered, strides).collect(),
            lengths: lengths.and_then(|shape| shape.dims[2..].iter().map(|dim| dim.length).collect()),
        })
    }

    /// Returns the nodes that compute the same.
    fn nodes(&self) -> Option<Vec<wire::Node>> {
        match self.sums() {
            Some(sums) => {
                let mut pads: Vec<i64> = sums.iter().map(|sum| sum - sum / 2).collect();
                pads.extend(sums.iter().map(|sum| sum / 2));
                Some(vec![self.with(vec![ints("pads", &pads)])])
            }
            None => self.reversed(),
        }
    }

    /// Returns the sums of the padding of each dim, if they are known.
    fn sums(&self) -> Option<Vec<i64>> {
        if self.node.op == "ConvTranspose" {
            let added = find(self.node, "output_padding").map(|a| a.ints.clone()).unwrap_or_default();
            let is_given = find(self.node, "output_shape").is_some_and(|a| !a.ints.is_empty());
            let sum = |(at, (covered, stride)): (usize, &(i64, i64))| {
                let added = added.get(at).copied().unwrap_or(0);
                covered.checked_add(added)?.checked_sub(*stride).filter(|sum| *sum >= 0)
            };
            return self.windows.iter().enumerate().map(sum).collect::<Option<_>>().filter(|_| !is_given);
        }
        let sum = |(at, (covered, stride)): (usize, &(i64, i64))| {
            if *stride == 1 {
                return Some(covered - 1);
            }
            let length = *self.lengths.as_ref()?.get(at)?;
            let left = if length % stride == 0 { *stride } else { length % stride };
            (length > 0).then(|| (covered - left).max(0))
        };
        self.windows.iter().enumerate().map(sum).collect()
    }

    /// Returns the node with other padding.
    fn with(&self, padding: Vec<wire::Attribute>) -> wire::Node {
        let mut node = self.node.clone();
        node.attributes.retain(|a| !matches!(&*a.name, "auto_pad" | "pads"));
        node.attributes.extend(padding);
        node
    }

    /// Returns the node on reversed data, with the larger part of the padding behind it.
    fn reversed(&self) -> Option<Vec<wire::Node>> {
        let (x, y) = (self.node.inputs.first()?, self.node.outputs.first()?);
        // Where a window is shorter than its stride, elements at the end are in no window.
        let is_covering = self.windows.iter().all(|(covered, stride)| covered >= stride);
        let is_one = self.node.outputs.iter().filter(|output| !output.is_empty()).count() == 1;
        if self.node.op == "ConvTranspose" || !is_covering || !is_one {
            return None;
        }
        let rank = self.windows.len();
        let named = |what: &str| format!("{y}/same_lower/{what}");
        let axes: Vec<i64> = (2..rank as i64 + 2).collect();
        let (starts, ends, along) = (named("starts"), named("ends"), named("axes"));
        let reverse = |from: &str, to: &str| made("Slice", &[from, &starts, &ends, &along, &starts], to, Vec::new());
        let upper = wire::Attribute {
            name: "auto_pad".into(),
            text: prost::bytes::Bytes::from_static(b"SAME_UPPER"),
            kind: 3,
            ..wire::Attribute::default()
        };
        let mut node = self.with(vec![upper]);
        let mut nodes = vec![
            constant(&starts, list(&vec![-1; rank])),
            constant(&ends, list(&vec![-i64::from(i32::MAX); rank])),
            constant(&along, list(&axes)),
            reverse(x, &named("x")),
        ];
        node.inputs[0] = named("x");
        node.outputs[0] = named("y");
        if matches!(&*node.op, "Conv" | "ConvInteger") {
            nodes.push(reverse(node.inputs.get(1)?, &named("weights")));
            node.inputs[1] = named("weights");
        }
        nodes.extend([node, reverse(&named("y"), y)]);
        Some(nodes)
    }
}

fn find<'n>(node: &'n wire::Node, attribute: &str) -> Option<&'n wire::Attribute> {
    node.attributes.iter().find(|a| a.name == attribute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::{floats, model};
    use rten_onnx::onnx::DataType as D;

    fn edited(dims: &[&str], node: &str) -> Result<Option<wire::Graph>, String> {
        let weights = floats("w", &[1, 1, 4], &[1.0; 4]);
        let file = model(&[("x", D::FLOAT, dims)], &[("y", D::FLOAT, &["n", "1", "m"])], &[weights], &[node]);
        let file = without_same_lower(&file)?;
        Ok(file.map(|file| wire::Model::decode(&*file).unwrap().graph.unwrap()))
    }

    #[test]
    fn the_larger_part_is_before() {
        for (length, node, pads) in [
            ("m", "y = Conv x w kernel_shape=4 auto_pad=:SAME_LOWER", [2, 1]),
            ("m", "y = Conv x w auto_pad=:SAME_LOWER", [2, 1]),
            ("m", "y = MaxPool x kernel_shape=2 dilations=3 auto_pad=:SAME_LOWER", [2, 1]),
            ("7", "y = MaxPool x kernel_shape=2 strides=2 auto_pad=:SAME_LOWER", [1, 0]),
            ("8", "y = MaxPool x kernel_shape=2 strides=2 auto_pad=:SAME_LOWER", [0, 0]),
            ("7", "y = MaxPool x kernel_shape=4 strides=3 auto_pad=:SAME_LOWER", [2, 1]),
            ("7", "y = MaxPool x kernel_shape=1 strides=3 auto_pad=:SAME_LOWER", [0, 0]),
            ("m", "y = ConvTranspose x w strides=1 auto_pad=:SAME_LOWER", [2, 1]),
            ("m", "y = ConvTranspose x w strides=3 auto_pad=:SAME_LOWER", [1, 0]),
        ] {
            let graph = edited(&["n", "1", length], node).unwrap().unwrap();
            let [node] = &graph.nodes[..] else { panic!("{:?}", graph.nodes) };
            assert_eq!(find(node, "pads").unwrap().ints, pads, "{length}, {node:?}");
            assert!(find(node, "auto_pad").is_none());
        }
        assert_eq!(edited(&["n", "1", "m"], "y = Conv x w auto_pad=:SAME_UPPER"), Ok(None));
    }

    #[test]
    fn lengths_that_are_not_known_are_reversed_or_refused() {
        let ops = |node: &str| {
            let graph = edited(&["n", "1", "m"], node)?.unwrap();
            Ok::<_, String>(graph.nodes.into_iter().map(|node| node.op).collect::<Vec<_>>().join(" "))
        };
        let constants = "Constant Constant Constant";
        assert_eq!(
            ops("y = Conv x w strides=2 auto_pad=:SAME_LOWER").unwrap(),
            format!("{constants} Slice Slice Conv Slice")
        );
        assert_eq!(
            ops("y = AveragePool x kernel_shape=3 strides=2 auto_pad=:SAME_LOWER").unwrap(),
            format!("{constants} Slice AveragePool Slice")
        );
        let why = ops("y = MaxPool x kernel_shape=2 strides=3 auto_pad=:SAME_LOWER").unwrap_err();
        assert!(why.ends_with("found `auto_pad: SAME_LOWER` at node `y` (MaxPool)"), "{why}");
    }

    #[test]
    fn a_damaged_file_is_left_alone() {
        let node = "y = MaxPool x kernel_shape=2 strides=2 auto_pad=:SAME_LOWER";
        let file = model(&[("x", D::FLOAT, &["n", "1", "m"])], &[("y", D::FLOAT, &["n", "1", "m"])], &[], &[node]);
        (0..file.len()).for_each(|length| _ = without_same_lower(&file[..length]));
        assert!(without_same_lower(&file).is_ok_and(|edited| edited.is_some()));
    }
}
