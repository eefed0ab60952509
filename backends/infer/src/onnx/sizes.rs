//! Checks the sizes of a model's tensors before a runtime allocates them.
//!
//! A runtime that allocates more memory than there is aborts the process, which cannot be caught as
//! a panic can; and a model of a hundred bytes can ask for any amount, with a `Tile` or by adding a
//! row to a column. So the least lengths that follow from constants and attributes are checked
//! here. An unknown dim counts as 1, and the outputs of an operator that is not modeled in
//! [`shapes`](super::shapes) have unknown shapes. Therefore a refused tensor really is that large;
//! lengths that a model computes while it runs are not covered.

use super::data_file::DataFile;
use super::node::{brief, label, name_of};
use super::shapes::{ShapeScope, least_elements};
use super::wire;
use super::wrong::ModelProblems;
use limen::backend::BackendError;

/// Tensors with more elements are refused: 4 GiB of `f32`.
const MAX_ELEMENTS: u64 = 1 << 30;

/// Checks that no tensor of a graph exceeds [`MAX_ELEMENTS`].
///
/// # Errors
/// Every node whose output does.
pub(super) fn check(graph: &wire::Graph, data: &[DataFile]) -> Result<(), BackendError> {
    let mut wrong = ModelProblems::default();
    ShapeScope::new(data).read(graph, &mut |node, output, shape| {
        let elements = least_elements(shape);
        if elements > MAX_ELEMENTS {
            let (name, what) = (name_of(node), label(node));
            let of = if what == output { String::new() } else { format!(" in `{}`", brief(output)) };
            let most = MAX_ELEMENTS;
            wrong.push(|| format!("{name} must produce at most {most} elements{of}, got {elements} or more"));
        }
    });
    wrong.into_result()
}

#[cfg(test)]
mod tests {
    use super::{check, wire};
    use crate::onnx::Artifact;
    use crate::onnx::test_models::{floats, ints, model};
    use rten_onnx::onnx::DataType as D;
    use rten_onnx::onnx::TensorProto;

    fn read(weights: &[TensorProto], nodes: &[&str]) -> Result<(), String> {
        let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "m"][..]));
        let file = model(&[x], &[y], weights, nodes);
        Artifact::parse("m.onnx".as_ref(), file).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn shapes_that_follow_from_constants_are_limited() {
        const M: i64 = 1 << 20;
        let wide = |name: &str, dims: &[i64]| floats(name, dims, &vec![0.0; dims.iter().product::<i64>() as usize]);
        let doubled: Vec<String> = (0..31).map(|n| format!("a{} = Concat a{n} a{n}", n + 1)).collect();
        let doubled: Vec<&str> =
            ["a0 = Identity x"].into_iter().chain(doubled.iter().map(String::as_str)).chain(["y = Relu a31"]).collect();
        let many = i64::from(u8::MAX) << 32;
        let double = |name: &str, number: f64| TensorProto {
            data_type: Some(D::DOUBLE),
            raw_data: Some(number.to_le_bytes().to_vec().into()),
            ..floats(name, &[], &[])
        };
        let cases: [(&[TensorProto], &[&str], &str); 18] = [
            (
                &[double("a", 0.0), double("b", 1e12), double("c", 0.5)],
                &["y = Range a b c"],
                "node `y` (Range) must produce at most 1073741824 elements, got 2000000000000",
            ),
            (
                &[ints("w", &[M, M])],
                &["y = Tile x w"],
                "node `y` (Tile) must produce at most 1073741824 elements, got 2199023255552",
            ),
            (
                &[ints("w", &[M, 1])],
                &["a = Tile x w", "y = Tile a w"],
                "node `y` (Tile) must produce at most 1073741824 elements, got 2199023255552",
            ),
            (
                &[ints("w", &[M, M])],
                &["y = ConstantOfShape w"],
                "node `y` (ConstantOfShape) must produce at most 1073741824 elements, got 1099511627776",
            ),
            (
                &[ints("w", &[M, M, 2])],
                &["y = Expand x w"],
                "node `y` (Expand) must produce at most 1073741824 elements, got 2199023255552",
            ),
            (
                &[ints("a", &[0]), ints("b", &[1 << 40]), ints("c", &[1])],
                &["y = Range a b c"],
                "node `y` (Range) must produce at most 1073741824 elements, got 1099511627776",
            ),
            (
                &[ints("e", &[]), ints("w", &[M, M])],
                &["y = Resize x e e w"],
                "(Resize) must produce at most 1073741824 elements, got 1099511627776",
            ),
            (
                &[floats("e", &[0], &[]), floats("w", &[2], &[1e6, 1e6])],
                &["y = Resize x e w"],
                "(Resize) must produce at most 1073741824 elements, got 2000000000000",
            ),
            (
                &[ints("w", &[M, 0, 0, M])],
                &["y = Pad x w"],
                "(Pad) must produce at most 1073741824 elements, got 1099514773506",
            ),
            (
                &[ints("w", &[1 << 40]), ints("v", &[0, 1])],
                &["y = OneHot x w v"],
                "(OneHot) must produce at most 1073741824 elements, got 2199023255552",
            ),
            (
                &[ints("w", &[1 << 40])],
                &["y = TopK x w"],
                "(TopK) must produce at most 1073741824 elements, got 1099511627776",
            ),
            (
                &[wide("r", &[1, 1 << 16]), wide("c", &[1 << 16, 1])],
                &["y = Add r c"],
                "node `y` (Add) must produce at most 1073741824 elements, got 4294967296 or more",
            ),
            (
                &[wide("r", &[1, 1 << 16]), wide("c", &[1 << 16, 1])],
                &["y = MatMul c r"],
                "(MatMul) must produce at most 1073741824 elements, got 4294967296",
            ),
            (
                &[wide("r", &[1 << 16]), ints("zero", &[0]), ints("one", &[1])],
                &["a = Unsqueeze r zero", "b = Unsqueeze r one", "y = Mul a b"],
                "(Mul) must produce at most 1073741824 elements, got 4294967296",
            ),
            (&[], &doubled, "node `a30` (Concat) must produce at most 1073741824 elements, got 2147483648"),
            (
                &[wide("k", &[1, 2, 1])],
                &["y = ConvTranspose x k output_shape=1099511627776"],
                "(ConvTranspose) must produce at most 1073741824 elements, got 2199023255552",
            ),
            (
                &[],
                &["w = Constant value_ints=1048576,1048576", "v = Identity w", "y = Tile x v"],
                "(Tile) must produce at most",
            ),
            (&[ints("w", &[many, many])], &["y = Tile x w"], "got 18446744073709551615 or more"),
        ];
        for (weights, nodes, why) in cases {
            let error = read(weights, nodes).expect_err(why);
            assert!(error.contains(why), "{why}: {error}");
        }
        for (weights, nodes) in [
            (&[ints("w", &[1 << 10, 1 << 10])][..], &["y = Tile x w"][..]),
            (&[ints("w", &[-1, 2])], &["y = Reshape x w"]),
            (&[ints("w", &[-5, -5])], &["y = ConstantOfShape w"]),
            (&[ints("w", &[1, 2, 3])], &["y = Tile x w"]),
            (&[ints("w", &[7])], &["y = Gather x w axis=9"]),
            (&[], &["a = Shape x", "y = ConstantOfShape a"]),
        ] {
            assert_eq!(read(weights, nodes), Ok(()), "{nodes:?}");
        }
    }

    /// `k` replaces the length of `axis` and leaves the other dims.
    #[test]
    fn top_k_changes_the_length_of_its_axis_only() {
        let weight = |name: &str, dims: &[i64], longs: Vec<i64>| {
            let elem = if longs.is_empty() { 1 } else { 7 };
            wire::Tensor { name: name.into(), dims: dims.to_vec(), elem, longs, ..Default::default() }
        };
        let node = |op: &str, inputs: [&str; 2], output: &str, axis: i64| wire::Node {
            op: op.into(),
            inputs: inputs.map(String::from).to_vec(),
            outputs: vec![output.into()],
            attributes: vec![wire::Attribute { name: "axis".into(), int: Some(axis), ..Default::default() }],
            ..Default::default()
        };
        for (axis, is_large) in [(0, false), (-2, false), (1, true), (-1, true)] {
            let graph = wire::Graph {
                initializers: vec![
                    weight("r", &[40_000, 3], vec![]),
                    weight("c", &[40_000, 1], vec![]),
                    weight("k", &[1], vec![40_000]),
                ],
                nodes: vec![node("TopK", ["r", "k"], "a", axis), node("Add", ["a", "c"], "y", 0)],
                ..Default::default()
            };
            assert_eq!(check(&graph, &[]).is_ok(), !is_large, "{axis}");
        }
    }
}
