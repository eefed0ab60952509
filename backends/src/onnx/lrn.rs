//! `LRN`, normalization across channels, as a mean over them, for runtimes that lack it.

use super::edit::replace_nodes;
use super::wire;
use prost::Message;

/// The most nodes that are replaced, and the widest window: models that have it have a few of width 5.
const MOST: usize = 64;
const WIDEST: i64 = 1 << 10;

/// How many operators longer each node makes the longest chain.
pub(crate) const LONGER: usize = 8;

/// Returns the file of a model with other operators for each `LRN` of its graph; `None` if there is none, or there are too many.
pub(crate) fn without_lrn(file: &[u8]) -> Option<Vec<u8>> {
    let model = wire::Model::decode(file).ok()?;
    let graph = model.graph?;
    let is_standard = |domain: &str| matches!(domain, "" | "ai.onnx");
    let opset = model.opsets.iter().find(|set| is_standard(&set.domain)).map_or(0, |set| set.version);
    let is_lrn = |node: &wire::Node| node.op == "LRN" && is_standard(&node.domain);
    if graph.nodes.iter().filter(|node| is_lrn(node)).count() > MOST {
        return None;
    }
    replace_nodes(file, &graph, |node| if is_lrn(node) { expanded(node, opset) } else { None })
}

/// Returns `x / (bias + alpha * mean(x²))^beta`, with the mean over the channels around each, as many as its `size`.
fn expanded(node: &wire::Node, opset: i64) -> Option<Vec<wire::Node>> {
    let (x, y) = (node.inputs.first()?, node.outputs.first()?);
    let find = |name: &str| node.attributes.iter().find(|attribute| attribute.name == name);
    let float = |name: &str, default: f32| find(name).and_then(|attribute| attribute.float).unwrap_or(default);
    let size = find("size")?.int.filter(|size| (1..=WIDEST).contains(size))?;
    // Of an even window the larger half lies behind.
    let before = (size - 1) / 2;
    let named = |what: &str| format!("{y}/lrn/{what}");
    let make = |op: &str, inputs: &[&str], output: &str, attributes: Vec<wire::Attribute>| wire::Node {
        inputs: inputs.iter().map(|input| input.to_string()).collect(),
        outputs: vec![output.to_string()],
        name: output.to_string(),
        op: op.to_string(),
        attributes,
        domain: String::new(),
    };
    let constant = |name: &str, tensor: wire::Tensor| make("Constant", &[], &named(name), vec![tensor_of(tensor)]);
    let number = |number: f32| wire::Tensor { elem: 1, floats: vec![number], ..wire::Tensor::default() };
    let list = |longs: &[i64]| wire::Tensor {
        dims: vec![longs.len() as i64],
        elem: 7,
        longs: longs.to_vec(),
        ..wire::Tensor::default()
    };
    let window = vec![
        ints("kernel_shape", &[size, 1]),
        // rten takes strides for an image if there are none.
        ints("strides", &[1, 1]),
        ints("pads", &[before, 0, size - 1 - before, 0]),
        wire::Attribute { name: "count_include_pad".into(), int: Some(1), kind: INT, ..wire::Attribute::default() },
    ];
    let (axes, axis) = match opset < 13 {
        true => (vec![ints("axes", &[1])], None),
        false => (Vec::new(), Some(named("axis"))),
    };
    let flat = named("flat");
    let unsqueezed: Vec<&str> = [flat.as_str()].into_iter().chain(axis.as_deref()).collect();
    let step = |op: &str, inputs: [&str; 2], output: &str| make(op, &inputs, output, Vec::new());
    Some(vec![
        constant("rows", list(&[0, 0, -1])),
        constant("axis", list(&[1])),
        constant("alpha", number(float("alpha", 1e-4))),
        constant("beta", number(float("beta", 0.75))),
        constant("bias", number(float("bias", 1.0))),
        make("Shape", &[x], &named("shape"), Vec::new()),
        step("Mul", [x, x], &named("square")),
        step("Reshape", [&named("square"), &named("rows")], &flat),
        make("Unsqueeze", &unsqueezed, &named("plane"), axes),
        make("AveragePool", &[&named("plane")], &named("means"), window),
        step("Reshape", [&named("means"), &named("shape")], &named("mean")),
        step("Mul", [&named("mean"), &named("alpha")], &named("scaled")),
        step("Add", [&named("scaled"), &named("bias")], &named("sum")),
        step("Pow", [&named("sum"), &named("beta")], &named("power")),
        make("Div", &[x, &named("power")], y, Vec::new()),
    ])
}

/// Types of attributes.
const INT: i32 = 2;
const TENSOR: i32 = 4;
const INTS: i32 = 7;

fn ints(name: &str, ints: &[i64]) -> wire::Attribute {
    wire::Attribute { name: name.into(), ints: ints.to_vec(), kind: INTS, ..wire::Attribute::default() }
}

fn tensor_of(tensor: wire::Tensor) -> wire::Attribute {
    wire::Attribute { name: "value".into(), tensor: Some(tensor), kind: TENSOR, ..wire::Attribute::default() }
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
