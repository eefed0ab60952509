//! `LRN`, normalization across channels, as a mean over them, for runtimes that lack it.

use super::edit::{constant, int, ints, list, made, number, replace_nodes};
use super::node::graphs_of;
use super::wire;
use prost::Message;

/// The most nodes that are replaced, and the widest window: models that have it have a few of
/// width 5.
const MOST: usize = 64;
const WIDEST: i64 = 1 << 10;

/// How many operators longer each node makes the longest chain.
pub(crate) const LONGER: usize = 8;

/// Returns the file of a model with other operators for each `LRN` of its graph; `None` if there is
/// none, or there are too many.
pub(crate) fn without_lrn(file: &[u8]) -> Option<Vec<u8>> {
    let model = wire::Model::decode(file).ok()?;
    let graph = model.graph?;
    let is_standard = |domain: &str| matches!(domain, "" | "ai.onnx");
    let opset = model.opsets.iter().find(|set| is_standard(&set.domain)).map_or(0, |set| set.version);
    let is_lrn = |node: &wire::Node| node.op == "LRN" && is_standard(&node.domain);
    if count(&graph, &is_lrn) > MOST {
        return None;
    }
    replace_nodes(file, &graph, |node| if is_lrn(node) { expanded(node, opset) } else { None })
}

fn count(graph: &wire::Graph, is: &impl Fn(&wire::Node) -> bool) -> usize {
    graph
        .nodes
        .iter()
        .map(|node| usize::from(is(node)) + graphs_of(node).map(|inner| count(inner, is)).sum::<usize>())
        .sum()
}

/// Returns `x / (bias + alpha * mean(x²))^beta`, with the mean over the channels around each, as
/// many as its `size`.
fn expanded(node: &wire::Node, opset: i64) -> Option<Vec<wire::Node>> {
    let (x, y) = (node.inputs.first()?, node.outputs.first()?);
    let find = |name: &str| node.attributes.iter().find(|attribute| attribute.name == name);
    let float = |name: &str, default: f32| find(name).and_then(|attribute| attribute.number()).unwrap_or(default);
    let size = find("size")?.integer().filter(|size| (1..=WIDEST).contains(size))?;
    // Of an even window the larger half lies behind.
    let before = (size - 1) / 2;
    let named = |what: &str| format!("{y}/lrn/{what}");
    let plain = |op: &str, inputs: &[&str], output: &str| made(op, inputs, output, Vec::new());
    let window = vec![
        ints("kernel_shape", &[size, 1]),
        // rten takes strides for an image if there are none.
        ints("strides", &[1, 1]),
        ints("pads", &[before, 0, size - 1 - before, 0]),
        int("count_include_pad", 1),
    ];
    let (axes, axis) = match opset < 13 {
        true => (vec![ints("axes", &[1])], None),
        false => (Vec::new(), Some(named("axis"))),
    };
    let flat = named("flat");
    let unsqueezed: Vec<&str> = [flat.as_str()].into_iter().chain(axis.as_deref()).collect();
    Some(vec![
        constant(&named("rows"), list(&[0, 0, -1])),
        constant(&named("axis"), list(&[1])),
        constant(&named("alpha"), number(float("alpha", 1e-4))),
        constant(&named("beta"), number(float("beta", 0.75))),
        constant(&named("bias"), number(float("bias", 1.0))),
        plain("Shape", &[x], &named("shape")),
        plain("Mul", &[x, x], &named("square")),
        plain("Reshape", &[&named("square"), &named("rows")], &flat),
        made("Unsqueeze", &unsqueezed, &named("plane"), axes),
        made("AveragePool", &[&named("plane")], &named("means"), window),
        plain("Reshape", &[&named("means"), &named("shape")], &named("mean")),
        plain("Mul", &[&named("mean"), &named("alpha")], &named("scaled")),
        plain("Add", &[&named("scaled"), &named("bias")], &named("sum")),
        plain("Pow", &[&named("sum"), &named("beta")], &named("power")),
        plain("Div", &[x, &named("power")], y),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::model;
    use rten_onnx::onnx::DataType as D;

    #[test]
    fn only_a_few_of_a_usual_width_are_replaced() {
        let (x, y) = (("x", D::FLOAT, &["n", "3", "2", "2"][..]), ("y", D::FLOAT, &["n", "3", "2", "2"][..]));
        let nodes = |nodes: &[&str]| {
            let file = without_lrn(&model(&[x], &[y], &[], nodes))?;
            Some(wire::Model::decode(&*file).unwrap().graph.unwrap().nodes.len())
        };
        assert_eq!(nodes(&["y = Relu x"]), None);
        assert_eq!(nodes(&["a = Relu x", "y = LRN a size==3"]), Some(16));
        for odd in ["y = LRN x", "y = LRN x size==0", "y = LRN x size==-5", "y = LRN x size==1099511627776"] {
            assert_eq!(nodes(&[odd]), None, "{odd}");
        }
        let many: Vec<String> = (0..MOST).map(|at| format!("a{at} = LRN x size==3")).collect();
        let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(nodes(&many), Some(MOST * 15));
        many.push("y = LRN x size==3");
        assert_eq!(nodes(&many), None);
    }

    #[test]
    fn a_damaged_file_is_left_alone() {
        let x = ("x", D::FLOAT, &["n", "2"][..]);
        let file = model(&[x], &[("y", D::FLOAT, &["n", "2"])], &[], &["y = LRN x size==3"]);
        for length in 0..file.len() {
            let _ = without_lrn(&file[..length]);
        }
        assert!(without_lrn(&file).is_some());
    }
}
