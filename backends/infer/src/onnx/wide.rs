//! The operators that use a constant of `int64` which does not fit 32 bits.
//!
//! Such a constant is followed through operators that only move elements. What it reaches is not
//! always concerned: the greatest `int64` as the end of a `Slice`, for example, means the end of
//! the dim in 32 bits too.

use super::data_file::DataFile;
use super::elems::INT64;
use super::node::{graphs_of, order};
use super::node_shapes::find;
use super::wire;
use std::collections::HashMap;

/// Operators whose output holds elements of their inputs, with the inputs that hold them: a bit for
/// each, all if there are none.
pub(super) const MOVING: [(&str, u32); 19] = [
    ("Compress", 1),
    ("Concat", u32::MAX),
    ("Expand", 1),
    ("Flatten", 1),
    ("Gather", 1),
    ("GatherElements", 1),
    ("GatherND", 1),
    ("Identity", 1),
    ("Pad", 0b101),
    ("Reshape", 1),
    ("ScatterElements", 0b101),
    ("ScatterND", 0b101),
    ("Slice", 1),
    ("Split", 1),
    ("Squeeze", 1),
    ("Tile", 1),
    ("Transpose", 1),
    ("Unsqueeze", 1),
    ("Where", 0b110),
];

/// On which side of the numbers of 32 bits a constant has elements.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Beyond {
    above: bool,
    below: bool,
}

impl Beyond {
    fn of(numbers: impl Iterator<Item = i64>) -> Self {
        numbers.fold(Beyond::default(), |beyond, number| Beyond {
            above: beyond.above || number > i64::from(i32::MAX),
            below: beyond.below || number < i64::from(i32::MIN),
        })
    }

    fn or(self, other: Beyond) -> Self {
        Beyond { above: self.above || other.above, below: self.below || other.below }
    }

    fn is_any(self) -> bool {
        self != Beyond::default()
    }
}

/// The wide constants of a graph, and of the graphs around it.
struct WideScope<'a> {
    wide: HashMap<&'a str, Beyond>,
    outer: Option<&'a WideScope<'a>>,
}

impl WideScope<'_> {
    fn get(&self, name: &str) -> Beyond {
        self.wide.get(name).copied().or_else(|| Some(self.outer?.get(name))).unwrap_or_default()
    }
}

/// Returns for each node of a graph and its subgraphs, in the order of the file and each before
/// those in it, whether its result depends on a constant that needs more than 32 bits.
pub(super) fn users(graph: &wire::Graph, data: &[DataFile]) -> Vec<bool> {
    let mut found = Vec::new();
    read(graph, data, None, &mut found);
    found
}

fn read(graph: &wire::Graph, data: &[DataFile], outer: Option<&WideScope<'_>>, found: &mut Vec<bool>) {
    let mut scope = WideScope { wide: HashMap::new(), outer };
    for tensor in &graph.initializers {
        scope.wide.insert(&tensor.name, of_tensor(tensor, data));
    }
    let mut is_user = vec![false; graph.nodes.len()];
    for at in order(graph).unwrap_or_default() {
        let node = &graph.nodes[at];
        let moved = made_by(node, &scope, data);
        is_user[at] = node.inputs.iter().enumerate().any(|(input, name)| uses(node, input, scope.get(name)));
        scope.wide.extend(node.outputs.iter().map(|output| (output.as_str(), moved)));
        // A result that is out of range leaves the graph.
        let leaves = || node.outputs.iter().any(|name| graph.outputs.iter().any(|output| output.name == *name));
        is_user[at] |= moved.is_any() && leaves();
    }
    for (node, is_user) in std::iter::zip(&graph.nodes, is_user) {
        found.push(is_user);
        graphs_of(node).for_each(|inner| read(inner, data, Some(&scope), found));
    }
}

fn is_standard(node: &wire::Node) -> bool {
    matches!(&*node.domain, "" | "ai.onnx")
}

/// Which inputs of a node only pass their elements on.
fn moving(node: &wire::Node) -> u32 {
    let is_whole = |node: &wire::Node| node.op == "Cast" && find(node, "to").and_then(|a| a.int) == Some(7);
    match MOVING.iter().find(|(op, _)| *op == node.op && is_standard(node)) {
        Some((_, inputs)) => *inputs,
        None => u32::from(is_standard(node) && is_whole(node)),
    }
}

/// Returns what the outputs of a node hold of wide constants.
fn made_by(node: &wire::Node, scope: &WideScope<'_>, data: &[DataFile]) -> Beyond {
    match node.op.as_str() {
        "Constant" | "ConstantOfShape" if is_standard(node) => {
            node.attributes.iter().fold(Beyond::default(), |beyond, attribute| {
                let tensor = attribute.tensor.as_ref().map(|tensor| of_tensor(tensor, data)).unwrap_or_default();
                let ints = attribute.int.iter().chain(&attribute.ints).copied();
                beyond.or(tensor).or(Beyond::of(ints))
            })
        }
        _ => {
            let inputs = moving(node);
            let moved = node.inputs.iter().take(32).enumerate().filter(|(at, _)| inputs >> at & 1 == 1);
            moved.fold(Beyond::default(), |beyond, (_, name)| beyond.or(scope.get(name)))
        }
    }
}

/// Whether the result of a node depends on an input beyond 32 bits, where it does not pass it on.
fn uses(node: &wire::Node, input: usize, beyond: Beyond) -> bool {
    let is_moved = moving(node).checked_shr(input as u32).is_some_and(|inputs| inputs & 1 == 1);
    if !beyond.is_any() || is_moved {
        return false;
    }
    match (node.op.as_str(), input) {
        // A bound that no number of 32 bits reaches.
        ("Clip", 1) => beyond.above,
        ("Clip", 2) => beyond.below,
        // An end, the most turns, the most boxes.
        ("Slice", 1..) | ("Loop", 0) | ("NonMaxSuppression", 2) => false,
        _ => true,
    }
}

/// Returns where the numbers of a tensor lie, from any of the places where a file can have them.
fn of_tensor(tensor: &wire::Tensor, data: &[DataFile]) -> Beyond {
    if tensor.elem != INT64 {
        return Beyond::default();
    }
    let of_bytes = |bytes: &[u8]| Beyond::of(bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)));
    let external = || {
        let entry = |key: &str| tensor.external.iter().find(|e| e.key == key).map(|e| e.value.as_str());
        let file = data.iter().find(|file| Some(file.name.as_str()) == entry("location"))?;
        let from: usize = entry("offset").unwrap_or("0").parse().ok()?;
        let count =
            tensor.dims.iter().try_fold(8, |count: usize, dim| count.checked_mul(usize::try_from(*dim).ok()?))?;
        file.bytes.get(from..from.checked_add(count)?).map(of_bytes)
    };
    match &tensor.raw {
        _ if tensor.location == 1 => external().unwrap_or_default(),
        Some(raw) => of_bytes(raw),
        None => Beyond::of(tensor.longs.iter().copied()),
    }
}

#[cfg(test)]
mod tests {
    use super::users;
    use crate::onnx::test_models::{ints, model};
    use crate::onnx::wire;
    use prost::Message;
    use rten_onnx::onnx::DataType as D;

    #[test]
    fn wide_constants_are_followed_to_their_users() {
        let (x, y) = (("x", D::INT64, &["n"][..]), ("y", D::INT64, &["n"][..]));
        let weights = [
            ints("wide", &[1, 3_000_000_000]),
            ints("low", &[i64::MIN]),
            ints("most", &[i64::MAX]),
            ints("zero", &[0]),
        ];
        for (nodes, expected) in [
            (&["y = Add x zero"][..], &[false][..]),
            (&["y = Add x wide"], &[true]),
            (&["a = Cast wide to==1", "y = Mul a x"], &[true, false]),
            (&["a = Gather wide x", "b = Unsqueeze a zero", "y = Mod b x"], &[false, false, true]),
            (&["a = Constant value_int==3000000000", "y = Less x a"], &[false, true]),
            (&["a = Constant value_ints=1,-3000000000", "y = Mod x a"], &[false, true]),
            (&["a = Where x wide x", "y = Mod a x"], &[false, true]),
            (&["y = Concat x wide axis==0"], &[true]),
            (&["y = Slice x zero most"], &[false]),
            (&["a = Concat zero most axis==0", "y = Slice x zero a"], &[false, false]),
            (&["y = Clip x low most"], &[false]),
            (&["y = Clip x most low"], &[true]),
            (&["y = Clip x _ low"], &[true]),
            (&["y = Loop most zero x"], &[false]),
            // Out of order.
            (&["y = Mod a x", "a = Identity wide"], &[true, false]),
        ] {
            let file = model(&[x], &[y], &weights, nodes);
            let graph = wire::Model::decode(&*file).unwrap().graph.unwrap();
            assert_eq!(users(&graph, &[]), expected, "{nodes:?}");
        }
    }
}
