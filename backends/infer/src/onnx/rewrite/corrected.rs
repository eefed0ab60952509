//! Operators that some runtimes compute otherwise at an edge, as others: `Softplus`, whose
//! exponential overflows, as its input where that is large; `LogSoftmax` as a difference;
//! `ReduceL2` of nothing as the `Abs` that it is; `NonMaxSuppression` of at most 0 boxes, which
//! tract takes for any number, with at most -1; and `QuantizeLinear`, which rten multiplies by a
//! rounded reciprocal, with a division before it.

use super::edit::{constant, float, int, ints, list, made, number, replace_nodes};
use super::known_dims::KnownDims;
use super::wire;
use prost::Message;

/// How many operators longer each node makes the longest chain.
pub(crate) const LONGER: usize = 5;

/// From here on `Softplus` of a number differs from it by less than half a unit in the last place
/// of 32 bits.
const LINEAR: f32 = 20.0;

/// The `data_type` of bytes.
const UINT8: i32 = 2;

/// With any zero point this is more than 8 bits hold.
const BEYOND_8_BITS: f32 = 1024.0;

/// Returns the file of a model with other operators for each node with one of these operators;
/// `None` if there is none.
pub(crate) fn with_corrections(file: &[u8], ops: &[&str]) -> Option<Vec<u8>> {
    let model = wire::Model::decode(file).ok()?;
    let is_standard = |domain: &str| matches!(domain, "" | "ai.onnx");
    let opset = model.opsets.iter().find(|set| is_standard(&set.domain)).map_or(0, |set| set.version);
    let graph = model.graph?;
    let dims = KnownDims::of(&graph);
    replace_nodes(file, &graph, |node| {
        if !is_standard(&node.domain) || !ops.contains(&&*node.op) {
            return None;
        }
        let (x, y) = (node.inputs.first()?, node.outputs.first()?);
        match node.op.as_str() {
            "Softplus" => Some(softplus(x, y)),
            "ReduceL2" => {
                let is_noop =
                    node.attributes.iter().any(|a| a.name == "noop_with_empty_axes" && a.integer() != Some(0));
                let has_axes = node.inputs.get(1).is_some_and(|axes| !axes.is_empty());
                (is_noop && !has_axes).then(|| vec![made("Abs", &[x], y, Vec::new())])
            }
            "QuantizeLinear" => {
                let scale = node.inputs.get(1)?;
                let is_one = dims.get(scale).is_some_and(|dims| dims.iter().all(|dim| *dim == Some(1)));
                Some(quantize(node, x, scale, y, is_one))
            }
            "NonMaxSuppression" => Some(non_max_suppression(node, y)),
            "LogSoftmax" => {
                let axis = node.attributes.iter().find(|a| a.name == "axis").and_then(wire::Attribute::integer);
                Some(log_softmax(x, y, axis, opset))
            }
            _ => None,
        }
    })
}

fn plain(op: &str, inputs: &[&str], output: &str) -> wire::Node {
    made(op, inputs, output, Vec::new())
}

fn softplus(x: &str, y: &str) -> Vec<wire::Node> {
    let named = |what: &str| format!("{y}/softplus/{what}");
    vec![
        constant(&named("bound"), number(LINEAR)),
        plain("Greater", &[x, &named("bound")], &named("is_linear")),
        plain("Softplus", &[x], &named("below")),
        plain("Where", &[&named("is_linear"), x, &named("below")], y),
    ]
}

/// Returns the quotient by the scales, limited to numbers that 32 bits hold, and its
/// `QuantizeLinear` by 1.
fn quantize(node: &wire::Node, x: &str, scale: &str, y: &str, is_one: bool) -> Vec<wire::Node> {
    let named = |what: &str| format!("{y}/quantize/{what}");
    let [shape, unit, each, scales, units, limited, ones] =
        ["shape", "unit", "each", "scales", "units", "limited", "ones"].map(named);
    let axis = node.attributes.iter().filter(|a| a.name == "axis").cloned().collect();
    let mut node = node.clone();
    (node.inputs[0], node.inputs[1]) = (limited.clone(), ones.clone());
    // By a single number rten multiplies by the reciprocal, too, so each element gets its own
    // scale.
    let mut nodes = vec![plain("Shape", &[x], &shape)];
    match is_one {
        true => nodes.extend([constant(&ones, number(1.0)), plain("Expand", &[scale, &shape], &scales)]),
        false => nodes.extend([
            plain("Div", &[scale, scale], &ones),
            // The product of 1 and a scale along the axis, whatever the rank.
            constant(&unit, wire::Tensor { elem: UINT8, ints: vec![1], ..wire::Tensor::default() }),
            plain("Expand", &[&unit, &shape], &each),
            made("DequantizeLinear", &[&each, scale], &scales, axis),
        ]),
    }
    nodes.extend([
        plain("Div", &[x, &scales], &units),
        made("Clip", &[&units], &limited, vec![float("min", -BEYOND_8_BITS), float("max", BEYOND_8_BITS)]),
        node,
    ]);
    nodes
}

/// Returns a node with -1 for a limit that is 0 or left out.
fn non_max_suppression(node: &wire::Node, y: &str) -> Vec<wire::Node> {
    const LIMIT: usize = 2;
    let [none, zero, is_zero, most] = ["none", "zero", "is_zero", "most"].map(|what| format!("{y}/boxes/{what}"));
    let mut node = node.clone();
    node.inputs.resize(node.inputs.len().max(LIMIT + 1), String::new());
    let mut nodes = vec![constant(&none, list(&[-1]))];
    match std::mem::take(&mut node.inputs[LIMIT]) {
        limit if limit.is_empty() => node.inputs[LIMIT] = none,
        limit => {
            nodes.extend([
                constant(&zero, list(&[0])),
                plain("Equal", &[&limit, &zero], &is_zero),
                plain("Where", &[&is_zero, &none, &limit], &most),
            ]);
            node.inputs[LIMIT] = most;
        }
    }
    nodes.push(node);
    nodes
}

/// Returns `d - log(sum(exp(d)))` of the differences `d` to the greatest element.
fn log_softmax(x: &str, y: &str, axis: Option<i64>, opset: i64) -> Vec<wire::Node> {
    let named = |what: &str| format!("{y}/log_softmax/{what}");
    let [axes, most, difference, exp, sum, log] = ["axes", "most", "difference", "exp", "sum", "log"].map(named);
    // Operator set 13 covers one dim, earlier ones all from `axis` on; the axes of these operators
    // became inputs in 13 and 18.
    let from = axis.unwrap_or(1);
    let (flat, axis) = if opset < 13 { (named("flat"), 1) } else { (x.to_string(), axis.unwrap_or(-1)) };
    let reduce = |op: &str, from: &str, to: &str, takes_input: bool| match takes_input {
        true => plain(op, &[from, &axes], to),
        false => made(op, &[from], to, vec![ints("axes", &[axis])]),
    };
    let result = if opset < 13 { named("result") } else { y.to_string() };
    let mut nodes = vec![
        constant(&axes, list(&[axis])),
        reduce("ReduceMax", &flat, &most, opset >= 18),
        plain("Sub", &[&flat, &most], &difference),
        plain("Exp", &[&difference], &exp),
        reduce("ReduceSum", &exp, &sum, opset >= 13),
        plain("Log", &[&sum], &log),
        plain("Sub", &[&difference, &log], &result),
    ];
    if opset < 13 {
        let flatten = made("Flatten", &[x], &flat, vec![int("axis", from)]);
        nodes.insert(0, flatten);
        nodes.extend([plain("Shape", &[x], &named("shape")), plain("Reshape", &[&result, &named("shape")], y)]);
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::with_corrections;
    use crate::onnx::test_models::{floats, ints, model};
    use crate::onnx::wire;
    use prost::Message;
    use rten_onnx::onnx::DataType as D;

    const OPS: [&str; 5] = ["Softplus", "ReduceL2", "LogSoftmax", "NonMaxSuppression", "QuantizeLinear"];

    #[test]
    fn only_these_nodes_are_replaced() {
        let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
        let weights = [ints("axes", &[1]), floats("one", &[1], &[0.5]), floats("each", &[2], &[0.5; 2])];
        let ops = |node: &str| {
            let file = with_corrections(&model(&[x], &[y], &weights, &[node]), &OPS)?;
            let graph = wire::Model::decode(&*file).unwrap().graph.unwrap();
            Some(graph.nodes.into_iter().map(|node| node.op).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(ops("y = Softplus x").unwrap(), "Constant Greater Softplus Where");
        assert_eq!(ops("y = ReduceL2 x noop_with_empty_axes==1").unwrap(), "Abs");
        assert_eq!(ops("y = ReduceL2 x axes noop_with_empty_axes==1"), None);
        assert_eq!(ops("y = ReduceL2 x"), None);
        assert_eq!(ops("y = LogSoftmax x").unwrap(), "Constant ReduceMax Sub Exp ReduceSum Log Sub");
        assert_eq!(ops("y = NonMaxSuppression x x").unwrap(), "Constant NonMaxSuppression");
        assert_eq!(ops("y = NonMaxSuppression x x _ axes").unwrap(), "Constant NonMaxSuppression");
        assert_eq!(ops("y = NonMaxSuppression x x axes").unwrap(), "Constant Constant Equal Where NonMaxSuppression");
        assert_eq!(ops("y = QuantizeLinear x one").unwrap(), "Shape Constant Expand Div Clip QuantizeLinear");
        let by_axis = "Shape Div Constant Expand DequantizeLinear Div Clip QuantizeLinear";
        assert_eq!(ops("y = QuantizeLinear x each").unwrap(), by_axis);
        assert_eq!(ops("y = Relu x"), None);
        let file = model(&[x], &[y], &[], &["y = Softplus x"]);
        assert_eq!(with_corrections(&file, &["LogSoftmax"]), None);
        (0..file.len()).for_each(|length| _ = with_corrections(&file[..length], &OPS));
    }
}
