//! Bounds of the shape that a node gives its outputs.

use super::shapes::{Extent, Lengths, MAX_NUMBERS, ShapeScope, elements, length, most_elements};
use super::wire;
use std::collections::HashMap;
use std::rc::Rc;

pub(super) fn find<'n>(node: &'n wire::Node, attribute: &str) -> Option<&'n wire::Attribute> {
    node.attributes.iter().find(|a| a.name == attribute)
}

fn exactly(number: f64) -> Extent {
    Extent::exactly(length(number))
}

/// Returns the shape to which all of these broadcast.
fn broadcast<'s>(shapes: impl Iterator<Item = &'s Lengths>) -> Lengths {
    let mut wide = Lengths::new();
    for shape in shapes {
        while wide.len() < shape.len() {
            wide.insert(0, Extent::exactly(1));
        }
        let at = wide.len() - shape.len();
        for (wide, dim) in wide[at..].iter_mut().zip(shape) {
            // A length other than 1 is that of all.
            let decided = [*wide, *dim].into_iter().find(|dim| dim.is_exact() && dim.least > 1);
            let most = decided.map_or(wide.most.max(dim.most), |dim| dim.most);
            *wide = Extent { least: wide.least.max(dim.least), most };
        }
    }
    wide
}

/// A node, with the scope of its inputs.
pub(super) struct NodeShapes<'n, 'a> {
    pub(super) node: &'n wire::Node,
    pub(super) scope: &'n ShapeScope<'a>,
}

impl<'n> NodeShapes<'n, '_> {
    fn input(&self, at: usize) -> Option<&'n str> {
        self.node.inputs.get(at).map(String::as_str).filter(|name| !name.is_empty())
    }

    fn of(&self, at: usize) -> Option<&'n Lengths> {
        self.scope.shape_of(self.input(at)?).map(|shape| &**shape)
    }

    /// Returns the shape of an input that has `rank` dims, even if nothing is known of it.
    fn of_rank(&self, at: usize, rank: usize) -> Lengths {
        self.of(at).filter(|x| x.len() == rank).cloned().unwrap_or_else(|| vec![Extent::UNKNOWN; rank])
    }

    /// Returns the shape of its first input, if its output has the same.
    pub(super) fn same(&self) -> Option<Rc<Lengths>> {
        self.scope.shape_of(self.input(0).filter(|_| keeps_shape(&self.node.op))?).cloned()
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
        find(self.node, attribute).and_then(wire::Attribute::integer).unwrap_or(default)
    }

    /// Returns the node's `axis`; a negative one counts from the end of `rank` dims.
    fn axis(&self, default: i64, rank: usize) -> Option<usize> {
        let axis = self.int("axis", default);
        usize::try_from(if axis < 0 { axis.checked_add(rank as i64)? } else { axis }).ok()
    }

    /// Returns a constant input, or the attribute that had its role in older opsets.
    fn either(&self, at: usize, attribute: &str) -> Option<Vec<f64>> {
        self.given(at).map(<[f64]>::to_vec).or_else(|| self.ints(attribute))
    }

    /// Like [`NodeShapes::either`], for axes of `rank` dims: negative ones count from the end.
    fn axes(&self, at: usize, rank: usize) -> Option<Vec<usize>> {
        let axes = self.either(at, "axes")?.into_iter();
        Some(axes.map(|axis| length(if axis < 0.0 { axis + rank as f64 } else { axis }) as usize).collect())
    }

    /// Returns the values of its output, for operators that compute shapes from constants.
    pub(super) fn numbers(&self) -> Option<Vec<f64>> {
        match self.node.op.as_str() {
            "Constant" => {
                let floats = || Some(find(self.node, "value_floats")?.floats.iter().map(|n| f64::from(*n)).collect());
                let int = || Some(vec![find(self.node, "value_int")?.integer()? as f64]);
                let float = || Some(vec![f64::from(find(self.node, "value_float")?.number()?)]);
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
            "Shape" if ["start", "end"].iter().all(|name| find(self.node, name).is_none()) => {
                self.of(0)?.iter().map(|dim| dim.is_exact().then_some(dim.least as f64)).collect()
            }
            "Gather" => {
                let (from, at) = (self.given(0).filter(|_| self.of(0).is_some_and(|x| x.len() == 1))?, self.given(1)?);
                let place = |at: &f64| length(if *at < 0.0 { at + from.len() as f64 } else { *at }) as usize;
                at.iter().map(|at| from.get(place(at)).copied()).collect()
            }
            op @ ("Add" | "Sub" | "Mul" | "Div") => {
                let (a, b) = (self.given(0)?, self.given(1)?);
                let count = if a.len() == 1 { b.len() } else { a.len() };
                let is_alike = [a, b].iter().all(|numbers| numbers.len() == 1 || numbers.len() == count);
                let pairs = a.iter().cycle().zip(b.iter().cycle()).take(if is_alike { count } else { 0 });
                let made = pairs.map(|(a, b)| match op {
                    "Add" => a + b,
                    "Sub" => a - b,
                    "Mul" => a * b,
                    _ => a / b,
                });
                // A division of integers leaves no fraction; the type is not known here.
                let made: Vec<f64> = made.collect();
                Some(made).filter(|made| !made.is_empty() && made.iter().all(|n| n.fract() == 0.0))
            }
            _ => None,
        }
    }

    /// Returns the shape of an output behind the first.
    pub(super) fn further(&self, at: usize) -> Option<Lengths> {
        match self.node.op.as_str() {
            "TopK" => self.shape(),
            "Split" => self.part(at),
            "Unique" => Some(vec![Extent::up_to(most_elements(self.of(0)?))]),
            _ => None,
        }
    }

    /// Returns bounds of the shape of its first output.
    pub(super) fn shape(&self) -> Option<Lengths> {
        let scaled = |by: &[f64]| {
            self.of_rank(0, by.len()).iter().zip(by).map(|(dim, by)| dim.map(|n| (n * by).floor())).collect()
        };
        match self.node.op.as_str() {
            "ConstantOfShape" => self.given(0).map(|shape| shape.iter().copied().map(exactly).collect()),
            "RandomNormal" | "RandomUniform" => self.ints("shape").map(|s| s.into_iter().map(exactly).collect()),
            "Expand" => {
                let to: Lengths = self.given(1)?.iter().copied().map(exactly).collect();
                let x = self.of(0).cloned().unwrap_or_else(|| vec![Extent::UNKNOWN; to.len()]);
                Some(broadcast([&x, &to].into_iter()))
            }
            "Tile" => self.given(1).map(scaled),
            "Upsample" => self.given(1).map(scaled),
            "Resize" => {
                let is = |at: usize| self.given(at).filter(|numbers| !numbers.is_empty());
                let shape: Lengths = match is(3) {
                    Some(sizes) => sizes.iter().copied().map(exactly).collect(),
                    None => is(2).or_else(|| is(1).filter(|_| self.node.inputs.len() == 2)).map(scaled)?,
                };
                let is_plain = ["axes", "keep_aspect_ratio_policy"].iter().all(|name| find(self.node, name).is_none());
                Some(if is_plain { shape } else { shape.into_iter().map(Extent::or_more).collect() })
            }
            "Range" => match [self.given(0)?.first(), self.given(1)?.first(), self.given(2)?.first()] {
                [Some(from), Some(to), Some(step)] => Some(vec![exactly(((to - from) / step).ceil())]),
                _ => None,
            },
            "Pad" => {
                let pads = self.either(1, "pads")?;
                let (before, behind) = pads.split_at(pads.len() / 2);
                let x = self.of_rank(0, before.len());
                let dims = x.iter().zip(before.iter().zip(behind));
                let padded = dims.map(|(dim, (before, behind))| dim.map(|n| n + before + behind));
                // With axes, the pads are those of some dims only.
                Some(padded.map(|dim| if self.input(3).is_some() { dim.or_more() } else { dim }).collect())
            }
            "OneHot" => {
                let depth = exactly(*self.given(1)?.first()?);
                let Some(mut whole) = self.of(0).cloned() else { return Some(vec![depth.or_more()]) };
                let axis = self.axis(-1, whole.len() + 1)?;
                (axis <= whole.len()).then(|| whole.insert(axis, depth))?;
                Some(whole)
            }
            "TopK" => {
                let attribute = || find(self.node, "k").and_then(wire::Attribute::integer).map(|k| k as f64);
                let k = exactly(self.given(1).and_then(|k| k.first().copied()).or_else(attribute)?);
                // Of an unknown input shape only `k` is known.
                let Some(mut whole) = self.of(0).cloned() else { return Some(vec![k.or_more()]) };
                let axis = self.axis(-1, whole.len())?;
                *whole.get_mut(axis)? = k;
                Some(whole)
            }
            "Concat" => {
                let parts: Option<Vec<&Lengths>> = (0..self.node.inputs.len()).map(|at| self.of(at)).collect();
                let parts = parts?;
                let mut whole = (*parts.first()?).clone();
                let axis = self.axis(0, whole.len())?;
                *whole.get_mut(axis)? = parts
                    .iter()
                    .map(|p| p.get(axis).copied().unwrap_or(Extent::UNKNOWN))
                    .fold(Extent::exactly(0), Extent::plus);
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
            "GatherND" => {
                let (x, indices) = (self.of(0)?, self.of(1)?);
                let (deep, places) = indices.split_last().filter(|(deep, _)| deep.is_exact())?;
                let behind = usize::try_from(self.int("batch_dims", 0)).ok()?.checked_add(deep.least as usize)?;
                Some([places, x.get(behind..)?].concat())
            }
            "GatherElements" => self.of(1).cloned(),
            "Transpose" => {
                let x = self.of(0)?;
                match self.ints("perm") {
                    Some(perm) => perm.into_iter().map(|at| x.get(at as usize).copied()).collect(),
                    None => Some(x.iter().rev().copied().collect()),
                }
            }
            "Reshape" => self.reshaped(),
            "Flatten" => {
                let x = self.of(0)?;
                let axis = self.axis(1, x.len())?;
                Some(vec![elements(x.get(..axis)?), elements(x.get(axis..)?)])
            }
            "Unsqueeze" => {
                let x = self.of(0)?;
                let rank = x.len() + self.either(1, "axes")?.len();
                let axes = self.axes(1, rank)?;
                let mut rest = x.iter().copied();
                let mut dim = |at| match axes.contains(&at) {
                    true => Extent::exactly(1),
                    false => rest.next().unwrap_or(Extent::UNKNOWN),
                };
                Some((0..rank).map(&mut dim).collect())
            }
            "Squeeze" => {
                let x = self.of(0)?;
                let axes = self.axes(1, x.len())?;
                Some(x.iter().enumerate().filter(|(at, _)| !axes.contains(at)).map(|(_, dim)| *dim).collect())
            }
            "Slice" => self.slice(),
            "Split" => self.part(0),
            "Shape" => Some(vec![Extent::exactly(self.of(0)?.len() as u64)]),
            "NonZero" => {
                let x = self.of(0)?;
                Some(vec![Extent::exactly(x.len() as u64), Extent::up_to(most_elements(x))])
            }
            "Compress" | "Unique" => {
                let mut x = self.of(0)?.clone();
                match find(self.node, "axis") {
                    None => Some(vec![Extent::up_to(most_elements(&x))]),
                    Some(_) => {
                        let axis = self.axis(0, x.len())?;
                        let dim = x.get_mut(axis)?;
                        *dim = Extent::up_to(dim.most);
                        Some(x)
                    }
                }
            }
            "NonMaxSuppression" => {
                let [batch, classes, boxes] = self.of(1)?[..] else { return None };
                let most = self.given(2).and_then(|most| most.first()).filter(|most| **most >= 1.0);
                let most = most.map_or(boxes.most, |most| length(*most).min(boxes.most));
                let found = most.saturating_mul(batch.most).saturating_mul(classes.most);
                Some(vec![Extent::up_to(found), Extent::exactly(3)])
            }
            "ArgMax" | "ArgMin" => {
                let x = self.of(0)?;
                Some(self.reduced(x, &[self.axis(0, x.len())?]))
            }
            op if op.starts_with("Reduce") => {
                let x = self.of(0)?;
                match (self.axes(1, x.len()), self.input(1)) {
                    (None, Some(_)) => None,
                    (None, None) if self.int("noop_with_empty_axes", 0) != 0 => Some(x.clone()),
                    (None, None) => Some(self.reduced(x, &(0..x.len()).collect::<Vec<_>>())),
                    (Some(axes), _) => Some(self.reduced(x, &axes)),
                }
            }
            "GlobalAveragePool" | "GlobalMaxPool" => {
                let x = self.of(0)?;
                Some(x.iter().enumerate().map(|(at, dim)| if at < 2 { *dim } else { Extent::exactly(1) }).collect())
            }
            "Conv" | "ConvInteger" | "ConvTranspose" | "MaxPool" | "AveragePool" => self.windows(),
            op if BROADCASTING.split_whitespace().any(|known| known == op) => {
                let inputs = (0..self.node.inputs.len()).filter_map(|at| self.of(at));
                let shape = Some(broadcast(inputs)).filter(|shape| !shape.is_empty())?;
                let is_known = (0..self.node.inputs.len()).all(|at| self.of(at).is_some());
                Some(if is_known { shape } else { shape.into_iter().map(Extent::or_more).collect() })
            }
            _ => None,
        }
    }

    /// Returns a shape without some dims, which keep the length 1 unless `keepdims` is 0.
    fn reduced(&self, x: &Lengths, axes: &[usize]) -> Lengths {
        let is_kept = self.int("keepdims", 1) != 0;
        let dims = x.iter().enumerate().filter(|(at, _)| is_kept || !axes.contains(at));
        dims.map(|(at, dim)| if axes.contains(&at) { Extent::exactly(1) } else { *dim }).collect()
    }

    fn reshaped(&self) -> Option<Lengths> {
        let (x, to) = (self.of(0), self.given(1)?);
        let mut shape: Lengths = Vec::new();
        for (at, dim) in to.iter().enumerate() {
            let copied = || x.and_then(|x| x.get(at).copied()).unwrap_or(Extent::UNKNOWN);
            shape.push(if *dim == 0.0 { copied() } else { exactly(dim.max(1.0)) });
        }
        if let Some(at) = to.iter().position(|dim| *dim == -1.0) {
            let others = elements(&shape);
            shape[at] = match x.map(|x| elements(x)) {
                Some(x) => Extent {
                    least: (x.least / others.least.max(1)).max(1),
                    most: if x.most == u64::MAX { x.most } else { x.most / others.most.max(1) },
                },
                None => Extent::UNKNOWN,
            };
        }
        Some(shape)
    }

    fn slice(&self) -> Option<Lengths> {
        let mut x = self.of(0)?.clone();
        let known = (self.either(1, "starts"), self.either(2, "ends"));
        let axes = match (self.axes(3, x.len()), self.input(3)) {
            (None, Some(_)) => None,
            (axes, _) => Some(axes.unwrap_or_else(|| (0..x.len()).collect())),
        };
        let steps = if self.input(4).is_some() { self.given(4) } else { Some(&[][..]) };
        let ((Some(starts), Some(ends)), Some(axes), Some(steps)) = (known, axes, steps) else {
            return Some(x.into_iter().map(|dim| Extent::up_to(dim.most)).collect());
        };
        for (n, (start, end)) in starts.into_iter().zip(ends).enumerate() {
            let step = steps.get(n).copied().unwrap_or(1.0);
            let dim = x.get_mut(*axes.get(n)?)?;
            let count = |length: f64| {
                let place = |at: f64| (if at < 0.0 { at + length } else { at }).clamp(0.0, length);
                ((place(end) - place(start)) / step).ceil().max(0.0)
            };
            // From the front the count grows with the length.
            *dim = if step > 0.0 && (dim.is_exact() || (start >= 0.0 && end >= 0.0)) {
                let most = length(count(dim.most as f64));
                if dim.is_exact() { Extent::exactly(most) } else { Extent::up_to(most) }
            } else {
                Extent::up_to(dim.most)
            };
        }
        Some(x)
    }

    /// Returns the shape of an output of `Split`.
    fn part(&self, at: usize) -> Option<Lengths> {
        let mut x = self.of(0)?.clone();
        let axis = self.axis(0, x.len())?;
        let dim = x.get_mut(axis)?;
        *dim = match (self.either(1, "split"), self.input(1)) {
            (Some(sizes), _) => exactly(*sizes.get(at)?),
            // In parts of the same length, of which the last may be shorter.
            (None, None) => dim.map_each(|_| 1.0, |n| (n / self.node.outputs.len().max(1) as f64).ceil()),
            (None, Some(_)) => Extent::up_to(dim.most),
        };
        Some(x)
    }

    /// Returns the output shape of an equation without ellipsis: each letter is a dim.
    fn einsum(&self) -> Option<Lengths> {
        let equation = String::from_utf8(find(self.node, "equation")?.text.to_vec()).ok()?;
        let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, output) = equation.split_once("->").filter(|_| !equation.contains('.'))?;
        let mut lengths: HashMap<char, Extent> = HashMap::new();
        for (at, letters) in inputs.split(',').enumerate() {
            let count = letters.chars().count();
            for (letter, dim) in letters.chars().zip(self.of_rank(at, count.min(MAX_NUMBERS))) {
                let length = lengths.entry(letter).or_insert(Extent::exactly(1));
                *length = Extent { least: length.least.max(dim.least), most: length.most.max(dim.most) };
            }
        }
        Some(output.chars().map(|letter| lengths.get(&letter).copied().unwrap_or(Extent::UNKNOWN)).collect())
    }

    /// Returns the output shape of convolution and pooling.
    fn windows(&self) -> Option<Lengths> {
        let op = self.node.op.as_str();
        let (x, weight) = (self.of(0), self.of(1).filter(|_| op.starts_with("Conv")));
        let kernel =
            self.ints("kernel_shape").or_else(|| Some(weight?.get(2..)?.iter().map(|n| n.least as f64).collect()))?;
        let rank = kernel.len();
        let at = |list: &Option<Vec<f64>>, at: usize, default: f64| {
            list.as_ref().and_then(|list| list.get(at).copied()).unwrap_or(default)
        };
        let [strides, dilations, pads] = ["strides", "dilations", "pads"].map(|name| self.ints(name));
        let [more, sizes] = ["output_padding", "output_shape"].map(|name| self.ints(name));
        let is_same = find(self.node, "auto_pad").is_some_and(|attribute| attribute.text.starts_with(b"SAME"));
        let round_up = self.int("ceil_mode", 0) != 0;
        let of_x = |dim: usize| x.and_then(|x| x.get(dim).copied()).unwrap_or(Extent::UNKNOWN);
        let channels = match (op, weight) {
            ("Conv" | "ConvInteger", Some(weight)) => weight.first().copied(),
            ("ConvTranspose", Some(weight)) => {
                weight.get(1).map(|n| n.map(|n| n * length(self.int("group", 1) as f64) as f64))
            }
            _ => Some(of_x(1)),
        };
        let mut shape = vec![of_x(0), channels.unwrap_or(Extent::UNKNOWN)];
        for (dim, across) in kernel.iter().enumerate() {
            let (stride, pad) = (at(&strides, dim, 1.0).max(1.0), at(&pads, dim, 0.0) + at(&pads, rank + dim, 0.0));
            let window = at(&dilations, dim, 1.0) * (across - 1.0) + 1.0;
            let made = |long: f64, round: fn(f64) -> f64| {
                let made = match (op, &sizes) {
                    ("ConvTranspose", Some(_)) => at(&sizes, dim, 1.0),
                    ("ConvTranspose", None) if is_same => stride * long,
                    ("ConvTranspose", None) => stride * (long - 1.0) + window - pad + at(&more, dim, 0.0),
                    _ if is_same => (long / stride).ceil(),
                    _ => round((long + pad - window) / stride) + 1.0,
                };
                made.max(1.0)
            };
            let most = if round_up { f64::ceil } else { f64::floor };
            shape.push(of_x(2 + dim).map_each(|long| made(long, f64::floor), |long| made(long, most)));
        }
        Some(shape)
    }
}

/// Whether the output of an operator has the shape of its first input.
pub(super) fn keeps_shape(op: &str) -> bool {
    SHAPE_PRESERVING.split_whitespace().any(|known| known == op)
}

/// Operators that broadcast their inputs to one shape.
pub(super) const BROADCASTING: &str = "\
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod \
    Mul Or Pow Sub Sum Where Xor";

/// Operators whose output has the shape of their first input.
pub(super) const SHAPE_PRESERVING: &str = "\
    Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization BitwiseNot Cast CastLike Ceil Clip Cos Cosh CumSum \
    DequantizeLinear Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf \
    IsNaN LayerNormalization LeakyRelu Log LogSoftmax LpNormalization Mish Neg Not PRelu QuantizeLinear Reciprocal Relu \
    Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan \
    Tanh ThresholdedRelu Trilu";
