//! Lower bounds of the sizes of a model's tensors, computed before a runtime allocates them.
//!
//! A runtime that allocates more memory than there is aborts the process, which cannot be caught as a panic can; and a model
//! of a hundred bytes can ask for any amount, with a `Tile` or by adding a row to a column. So shapes that follow from
//! constants and attributes are propagated from node to node here. An unknown dim counts as 1, and the outputs of an operator
//! that is not modeled here have unknown shapes. Therefore a refused tensor really is that large; lengths that a model
//! computes while it runs are not covered.

use super::data_file::DataFile;
use super::node::{brief, graphs_of, label, name_of, order};
use super::wire;
use super::wrong::ModelProblems;
use limen::backend::BackendError;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Tensors with more elements are refused: 4 GiB of `f32`.
const MAX_ELEMENTS: u64 = 1 << 30;

/// Longer shapes are not propagated, nor constants with more elements: they are not shapes, and a file can use them many times.
const MAX_NUMBERS: usize = 64;

type Lengths = Vec<u64>;

/// Checks that no tensor of a graph exceeds [`MAX_ELEMENTS`].
///
/// # Errors
/// Every node whose output does.
pub(super) fn check(graph: &wire::Graph, data: &[DataFile]) -> Result<(), BackendError> {
    let mut wrong = ModelProblems::default();
    Scope { data, outer: None, shapes: BTreeMap::new(), numbers: BTreeMap::new() }.graph(graph, &mut wrong);
    wrong.into_result()
}

/// The known shapes and values of the tensors of a graph and of the graphs around it.
struct Scope<'a> {
    data: &'a [DataFile],
    outer: Option<&'a Scope<'a>>,
    /// Shared between tensors of the same shape: a model may have many nodes.
    shapes: BTreeMap<&'a str, Rc<Lengths>>,
    numbers: BTreeMap<&'a str, Vec<f64>>,
}

impl<'a> Scope<'a> {
    fn graph(mut self, graph: &'a wire::Graph, wrong: &mut ModelProblems) {
        for input in &graph.inputs {
            let tensor = input.kind.as_ref().and_then(|kind| kind.tensor.as_ref());
            let Some(shape) = tensor.and_then(|tensor| tensor.shape.as_ref()) else { continue };
            let length = |dim: &wire::Dimension| dim.length.and_then(|n| u64::try_from(n).ok()).unwrap_or(1);
            let shape = shape.dims.iter().map(length).collect();
            self.know(&input.name, Some(Rc::new(shape)), None);
        }
        for tensor in &graph.initializers {
            self.constant(&tensor.name, tensor);
        }
        for at in order(graph).unwrap_or_default() {
            let node = &graph.nodes[at];
            for inner in graphs_of(node) {
                let scope =
                    Scope { data: self.data, outer: Some(&self), shapes: BTreeMap::new(), numbers: BTreeMap::new() };
                scope.graph(inner, wrong);
            }
            let Some(output) = node.outputs.first() else { continue };
            if let (true, Some(tensor)) = (node.op == "Constant", find(node, "value").and_then(|a| a.tensor.as_ref())) {
                self.constant(output, tensor);
                continue;
            }
            let made = NodeShapes { node, scope: &self };
            let shape = made.same().or_else(|| made.shape().map(Rc::new));
            let numbers = made.numbers();
            if let Some(elements) =
                shape.as_ref().map(|shape| product(shape)).filter(|elements| *elements > MAX_ELEMENTS)
            {
                let (name, what) = (name_of(node), label(node));
                let of = if what == output { String::new() } else { format!(" of `{}`", brief(output)) };
                let most = MAX_ELEMENTS;
                wrong.push(|| {
                    format!("{name} makes a tensor{of} of {elements} elements or more; at most {most} are possible")
                });
            }
            self.know(output, shape, numbers);
        }
    }

    fn know(&mut self, name: &'a str, shape: Option<Rc<Lengths>>, numbers: Option<Vec<f64>>) {
        if let Some(shape) = shape.filter(|shape| shape.len() <= MAX_NUMBERS) {
            self.shapes.insert(name, shape);
        }
        if let Some(numbers) = numbers.filter(|numbers| numbers.len() <= MAX_NUMBERS) {
            self.numbers.insert(name, numbers);
        }
    }

    fn constant(&mut self, name: &'a str, tensor: &'a wire::Tensor) {
        let shape: Lengths = tensor.dims.iter().map(|dim| u64::try_from(*dim).unwrap_or(0)).collect();
        let count = Some(product(&shape)).filter(|count| *count <= MAX_NUMBERS as u64);
        let numbers = count.and_then(|count| self.read(tensor, count as usize));
        self.know(name, Some(Rc::new(shape)), numbers);
    }

    /// Returns the values of a small tensor, from any of the places where a file can have them.
    fn read(&self, tensor: &wire::Tensor, count: usize) -> Option<Vec<f64>> {
        let written: Vec<f64> = match tensor.elem {
            1 => tensor.floats.iter().map(|n| f64::from(*n)).collect(),
            6 => tensor.ints.iter().map(|n| f64::from(*n)).collect(),
            7 => tensor.longs.iter().map(|n| *n as f64).collect(),
            11 => tensor.doubles.clone(),
            _ => return None,
        };
        if written.len() == count {
            return Some(written);
        }
        let size = if matches!(tensor.elem, 7 | 11) { 8 } else { 4 };
        let bytes = match &tensor.raw {
            Some(raw) => &raw[..],
            None => {
                let entry = |key: &str| tensor.external.iter().find(|e| e.key == key).map(|e| e.value.as_str());
                let file = self.data.iter().find(|file| Some(file.name.as_str()) == entry("location"))?;
                let from: usize = entry("offset").unwrap_or("0").parse().ok()?;
                file.bytes.get(from..from.checked_add(count * size)?)?
            }
        };
        let number = |bytes: &[u8]| match *bytes {
            [a, b, c, d] if tensor.elem == 1 => f64::from(f32::from_le_bytes([a, b, c, d])),
            [a, b, c, d] => f64::from(i32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] if tensor.elem == 11 => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
            [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]) as f64,
            _ => 0.0,
        };
        (bytes.len() == count * size).then(|| bytes.chunks_exact(size).map(number).collect())
    }

    fn shape_of(&self, name: &str) -> Option<&Rc<Lengths>> {
        self.shapes.get(name).or_else(|| self.outer?.shape_of(name))
    }

    fn numbers_of(&self, name: &str) -> Option<&Vec<f64>> {
        self.numbers.get(name).or_else(|| self.outer?.numbers_of(name))
    }
}

fn find<'n>(node: &'n wire::Node, attribute: &str) -> Option<&'n wire::Attribute> {
    node.attributes.iter().find(|a| a.name == attribute)
}

fn product(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |n, dim| n.saturating_mul(*dim))
}

/// Converts a length. Negative ones become 0: they are left to the runtime to refuse.
fn length(number: f64) -> u64 {
    number as u64
}

/// Returns the shape to which all of these broadcast.
fn broadcast<'s>(shapes: impl Iterator<Item = &'s Lengths>) -> Lengths {
    let mut wide = Lengths::new();
    for shape in shapes {
        while wide.len() < shape.len() {
            wide.insert(0, 1);
        }
        let at = wide.len() - shape.len();
        wide[at..].iter_mut().zip(shape).for_each(|(wide, dim)| *wide = (*wide).max(*dim));
    }
    wide
}

/// A node, with the scope of its inputs.
struct NodeShapes<'n, 'a> {
    node: &'n wire::Node,
    scope: &'n Scope<'a>,
}

impl<'n> NodeShapes<'n, '_> {
    fn input(&self, at: usize) -> Option<&'n str> {
        self.node.inputs.get(at).map(String::as_str).filter(|name| !name.is_empty())
    }

    fn of(&self, at: usize) -> Option<&'n Lengths> {
        self.scope.shape_of(self.input(at)?).map(|shape| &**shape)
    }

    /// Returns the shape of its first input, if its output has the same.
    fn same(&self) -> Option<Rc<Lengths>> {
        let is_same = SHAPE_PRESERVING.split_whitespace().any(|known| known == self.node.op);
        self.scope.shape_of(self.input(0).filter(|_| is_same)?).cloned()
    }

    /// Returns the values of a constant input.
    fn given(&self, at: usize) -> Option<&'n [f64]> {
        self.scope.numbers_of(self.input(at)?).map(Vec::as_slice)
    }

    fn ints(&self, attribute: &str) -> Option<Vec<f64>> {
        let ints = Some(&find(self.node, attribute)?.ints).filter(|ints| ints.len() <= MAX_NUMBERS)?;
        Some(ints.iter().map(|n| *n as f64).collect())
    }

    fn int(&self, attribute: &str, default: i64) -> i64 {
        find(self.node, attribute).and_then(|a| a.int).unwrap_or(default)
    }

    /// Returns the node's `axis`; a negative one counts from the end of `rank` dims.
    fn axis(&self, default: i64, rank: usize) -> Option<usize> {
        let axis = self.int("axis", default);
        usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok()
    }

    /// Returns a constant input, or the attribute that had its role in older opsets.
    fn either(&self, at: usize, attribute: &str) -> Option<Vec<f64>> {
        self.given(at).map(<[f64]>::to_vec).or_else(|| self.ints(attribute))
    }

    /// Returns the values of its output, for operators that compute shapes from constants.
    fn numbers(&self) -> Option<Vec<f64>> {
        match self.node.op.as_str() {
            "Constant" => {
                let floats = || Some(find(self.node, "value_floats")?.floats.iter().map(|n| f64::from(*n)).collect());
                let int = || Some(vec![find(self.node, "value_int")?.int? as f64]);
                let float = || Some(vec![f64::from(find(self.node, "value_float")?.float?)]);
                self.ints("value_ints").or_else(int).or_else(floats).or_else(float)
            }
            "Identity" | "Cast" | "Squeeze" | "Unsqueeze" | "Reshape" => self.given(0).map(<[f64]>::to_vec),
            "Concat" => {
                let mut whole = Vec::new();
                for at in 0..self.node.inputs.len() {
                    whole.extend_from_slice(self.given(at)?);
                    if whole.len() > MAX_NUMBERS {
                        return None;
                    }
                }
                Some(whole)
            }
            _ => None,
        }
    }

    /// Returns a lower bound of the shape of its first output.
    fn shape(&self) -> Option<Lengths> {
        let ones = |rank: usize| vec![1; rank];
        let scaled = |by: &[f64]| {
            let x = self.of(0).filter(|x| x.len() == by.len()).cloned().unwrap_or_else(|| ones(by.len()));
            x.iter().zip(by).map(|(dim, by)| length((*dim as f64 * by).floor())).collect()
        };
        match self.node.op.as_str() {
            "ConstantOfShape" => self.given(0).map(|shape| shape.iter().copied().map(length).collect()),
            "RandomNormal" | "RandomUniform" => self.ints("shape").map(|s| s.into_iter().map(length).collect()),
            "Expand" => {
                let to: Lengths = self.given(1)?.iter().copied().map(length).collect();
                Some(broadcast(self.of(0).into_iter().chain([&to])))
            }
            "Tile" => self.given(1).map(scaled),
            "Upsample" => self.given(1).map(scaled),
            "Resize" => {
                let is = |at: usize| self.given(at).filter(|numbers| !numbers.is_empty());
                match is(3) {
                    Some(sizes) => Some(sizes.iter().copied().map(length).collect()),
                    None => is(2).or_else(|| is(1).filter(|_| self.node.inputs.len() == 2)).map(scaled),
                }
            }
            "Range" => match [self.given(0)?.first(), self.given(1)?.first(), self.given(2)?.first()] {
                [Some(from), Some(to), Some(step)] => Some(vec![length(((to - from) / step).ceil())]),
                _ => None,
            },
            "Pad" => {
                let pads = self.either(1, "pads")?;
                let (before, behind) = pads.split_at(pads.len() / 2);
                let x = self.of(0).filter(|x| x.len() == before.len()).cloned().unwrap_or_else(|| ones(before.len()));
                let dims = x.iter().zip(before.iter().zip(behind));
                Some(dims.map(|(dim, (before, behind))| length(*dim as f64 + before + behind)).collect())
            }
            "OneHot" => {
                let depth = length(*self.given(1)?.first()?);
                Some(self.of(0).into_iter().flatten().copied().chain([depth]).collect())
            }
            "TopK" => {
                let attribute = || find(self.node, "k").and_then(|a| a.int).map(|k| k as f64);
                let k = self.given(1).and_then(|k| k.first().copied()).or_else(attribute)?;
                // Of an unknown input shape only `k` is known.
                let Some(mut whole) = self.of(0).cloned() else { return Some(vec![length(k)]) };
                let axis = self.axis(-1, whole.len())?;
                *whole.get_mut(axis)? = length(k);
                Some(whole)
            }
            "Concat" => {
                let parts: Option<Vec<&Lengths>> = (0..self.node.inputs.len()).map(|at| self.of(at)).collect();
                let parts = parts?;
                let mut whole = (*parts.first()?).clone();
                let axis = self.axis(0, whole.len())?;
                *whole.get_mut(axis)? =
                    parts.iter().map(|p| p.get(axis).copied().unwrap_or(1)).fold(0, u64::saturating_add);
                Some(whole)
            }
            "MatMul" | "MatMulInteger" => {
                let (a, b) = (self.of(0)?, self.of(1)?);
                let ([outer_a @ .., m, _], [outer_b @ .., _, n]) = (&a[..], &b[..]) else { return None };
                let mut whole = broadcast([&outer_a.to_vec(), &outer_b.to_vec()].into_iter());
                whole.extend([*m, *n]);
                Some(whole)
            }
            "Gemm" => {
                let (a, b) = (self.of(0)?, self.of(1)?);
                let m = a.get(usize::from(self.int("transA", 0) != 0))?;
                let n = b.get(usize::from(self.int("transB", 0) == 0))?;
                Some(vec![*m, *n])
            }
            "Einsum" => self.einsum(),
            "Gather" => {
                let (x, indices) = (self.of(0)?, self.of(1)?);
                let axis = self.axis(0, x.len())?;
                let (before, behind) = (x.get(..axis)?, x.get(axis + 1..)?);
                Some([before, indices, behind].concat())
            }
            "Transpose" => {
                let x = self.of(0)?;
                match self.ints("perm") {
                    Some(perm) => perm.into_iter().map(|at| x.get(at as usize).copied()).collect(),
                    None => Some(x.iter().rev().copied().collect()),
                }
            }
            "Reshape" => {
                let (x, to) = (self.of(0), self.given(1)?);
                let mut shape: Lengths = Vec::new();
                for (at, dim) in to.iter().enumerate() {
                    let copied = || x.and_then(|x| x.get(at).copied()).unwrap_or(1);
                    shape.push(if *dim == 0.0 { copied() } else { length(dim.max(1.0)) });
                }
                if let (Some(at), Some(x)) = (to.iter().position(|dim| *dim == -1.0), x) {
                    shape[at] = (product(x) / product(&shape).max(1)).max(1);
                }
                Some(shape)
            }
            "Unsqueeze" => {
                let (x, mut axes) = (self.of(0)?, self.either(1, "axes")?);
                let rank = (x.len() + axes.len()) as f64;
                axes.iter_mut().filter(|axis| **axis < 0.0).for_each(|axis| *axis += rank);
                let mut rest = x.iter().copied();
                Some(
                    (0..rank as usize)
                        .map(|at| if axes.contains(&(at as f64)) { 1 } else { rest.next().unwrap_or(1) })
                        .collect(),
                )
            }
            "Squeeze" => {
                let (x, axes) = (self.of(0)?, self.either(1, "axes"));
                let rank = x.len() as f64;
                let axes = axes?.into_iter().map(|axis| if axis < 0.0 { axis + rank } else { axis });
                let axes: Vec<f64> = axes.collect();
                let kept = x.iter().enumerate().filter(|(at, _)| !axes.contains(&(*at as f64)));
                Some(kept.map(|(_, dim)| *dim).collect())
            }
            "Conv" | "ConvInteger" | "ConvTranspose" | "MaxPool" | "AveragePool" => self.windows(),
            op if BROADCASTING.split_whitespace().any(|known| known == op) => {
                let inputs = (0..self.node.inputs.len()).filter_map(|at| self.of(at));
                Some(broadcast(inputs)).filter(|shape| !shape.is_empty())
            }
            _ => None,
        }
    }

    /// Returns the output shape of an equation without ellipsis: each letter is a dim.
    fn einsum(&self) -> Option<Lengths> {
        let equation = String::from_utf8(find(self.node, "equation")?.text.to_vec()).ok()?;
        let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, output) = equation.split_once("->").filter(|_| !equation.contains('.'))?;
        let mut lengths: BTreeMap<char, u64> = BTreeMap::new();
        for (at, letters) in inputs.split(',').enumerate() {
            let shape = self.of(at).into_iter().flatten().copied();
            for (letter, dim) in letters.chars().zip(shape) {
                let length = lengths.entry(letter).or_insert(1);
                *length = (*length).max(dim);
            }
        }
        Some(output.chars().map(|letter| lengths.get(&letter).copied().unwrap_or(1)).collect())
    }

    /// Returns the output shape of convolution and pooling.
    fn windows(&self) -> Option<Lengths> {
        let op = self.node.op.as_str();
        let (x, weight) = (self.of(0), self.of(1).filter(|_| op.starts_with("Conv")));
        let kernel =
            self.ints("kernel_shape").or_else(|| Some(weight?.get(2..)?.iter().map(|n| *n as f64).collect()))?;
        let rank = kernel.len();
        let at = |list: &Option<Vec<f64>>, at: usize, default: f64| {
            list.as_ref().and_then(|list| list.get(at).copied()).unwrap_or(default)
        };
        let [strides, dilations, pads] = ["strides", "dilations", "pads"].map(|name| self.ints(name));
        let [more, sizes] = ["output_padding", "output_shape"].map(|name| self.ints(name));
        let channels = match (op, weight) {
            ("Conv" | "ConvInteger", Some(weight)) => weight.first().copied(),
            ("ConvTranspose", Some(weight)) => {
                weight.get(1).map(|n| n.saturating_mul(length(self.int("group", 1) as f64)))
            }
            _ => x.and_then(|x| x.get(1).copied()),
        };
        let mut shape = vec![x.and_then(|x| x.first().copied()).unwrap_or(1), channels.unwrap_or(1)];
        for (dim, across) in kernel.iter().enumerate() {
            let long = x.and_then(|x| x.get(2 + dim).copied()).unwrap_or(1) as f64;
            let (stride, pad) = (at(&strides, dim, 1.0).max(1.0), at(&pads, dim, 0.0) + at(&pads, rank + dim, 0.0));
            let window = at(&dilations, dim, 1.0) * (across - 1.0) + 1.0;
            let long = match (op, &sizes) {
                ("ConvTranspose", Some(_)) => at(&sizes, dim, 1.0),
                ("ConvTranspose", None) => stride * (long - 1.0) + window - pad + at(&more, dim, 0.0),
                _ => ((long + pad - window) / stride).floor() + 1.0,
            };
            shape.push(length(long.max(1.0)));
        }
        Some(shape)
    }
}

/// Operators that broadcast their inputs to one shape.
const BROADCASTING: &str = "\
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod \
    Mul Or Pow Sub Sum Where Xor";

/// Operators whose output has the shape of their first input.
const SHAPE_PRESERVING: &str = "\
    Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization BitwiseNot Cast CastLike Ceil Clip Cos Cosh CumSum \
    DequantizeLinear Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf \
    IsNaN LayerNormalization LeakyRelu Log LogSoftmax LpNormalization Mish Neg Not PRelu QuantizeLinear Reciprocal Relu \
    Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan \
    Tanh ThresholdedRelu Trilu";

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
                "node `y` (Range) makes a tensor of 2000000000000",
            ),
            (&[ints("w", &[M, M])], &["y = Tile x w"], "node `y` (Tile) makes a tensor of 2199023255552 elements"),
            (
                &[ints("w", &[M, 1])],
                &["a = Tile x w", "y = Tile a w"],
                "node `y` (Tile) makes a tensor of 2199023255552",
            ),
            (
                &[ints("w", &[M, M])],
                &["y = ConstantOfShape w"],
                "node `y` (ConstantOfShape) makes a tensor of 1099511627776",
            ),
            (&[ints("w", &[M, M, 2])], &["y = Expand x w"], "node `y` (Expand) makes a tensor of 2199023255552"),
            (
                &[ints("a", &[0]), ints("b", &[1 << 40]), ints("c", &[1])],
                &["y = Range a b c"],
                "node `y` (Range) makes a tensor of 1099511627776",
            ),
            (
                &[ints("e", &[]), ints("w", &[M, M])],
                &["y = Resize x e e w"],
                "(Resize) makes a tensor of 1099511627776",
            ),
            (
                &[floats("e", &[0], &[]), floats("w", &[2], &[1e6, 1e6])],
                &["y = Resize x e w"],
                "(Resize) makes a tensor of 2000000000000",
            ),
            (&[ints("w", &[M, 0, 0, M])], &["y = Pad x w"], "(Pad) makes a tensor of 1099514773506"),
            (
                &[ints("w", &[1 << 40]), ints("v", &[0, 1])],
                &["y = OneHot x w v"],
                "(OneHot) makes a tensor of 2199023255552",
            ),
            (&[ints("w", &[1 << 40])], &["y = TopK x w"], "(TopK) makes a tensor of 1099511627776"),
            (
                &[wide("r", &[1, 1 << 16]), wide("c", &[1 << 16, 1])],
                &["y = Add r c"],
                "node `y` (Add) makes a tensor of 4294967296 elements or more; at most 1073741824 are possible",
            ),
            (
                &[wide("r", &[1, 1 << 16]), wide("c", &[1 << 16, 1])],
                &["y = MatMul c r"],
                "(MatMul) makes a tensor of 4294967296",
            ),
            (
                &[wide("r", &[1 << 16]), ints("zero", &[0]), ints("one", &[1])],
                &["a = Unsqueeze r zero", "b = Unsqueeze r one", "y = Mul a b"],
                "(Mul) makes a tensor of 4294967296",
            ),
            (&[], &doubled, "node `a30` (Concat) makes a tensor of 2147483648"),
            (
                &[wide("k", &[1, 2, 1])],
                &["y = ConvTranspose x k output_shape=1099511627776"],
                "(ConvTranspose) makes a tensor of 2199023255552",
            ),
            (&[], &["w = Constant value_ints=1048576,1048576", "v = Identity w", "y = Tile x v"], "(Tile) makes"),
            (&[ints("w", &[many, many])], &["y = Tile x w"], "of 18446744073709551615 elements"),
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
