//! Bounds of the shapes of a model's tensors, which follow from its inputs, constants and
//! attributes.
//!
//! They are propagated from node to node. An unknown dim has a length from 1 up, and the outputs of
//! an operator that is not modeled here have unknown shapes.

use super::data_file::DataFile;
use super::node::{graphs_of, order};
use super::node_shapes::{NodeShapes, find};
use super::wire;
use std::collections::HashMap;
use std::rc::Rc;

/// Longer shapes are not propagated, nor constants with more elements: they are not shapes, and a
/// file can use them many times.
pub(super) const MAX_NUMBERS: usize = 64;

/// The least and the greatest length of a dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) least: u64,
    /// `u64::MAX` if there is no bound.
    pub(super) most: u64,
}

impl Extent {
    pub(super) const UNKNOWN: Extent = Extent { least: 1, most: u64::MAX };

    pub(super) fn exactly(length: u64) -> Self {
        Extent { least: length, most: length }
    }

    /// A length that values decide. Its least counts as 1, as that of an unknown dim, but two
    /// bounds that are the same would be exact.
    pub(super) fn up_to(most: u64) -> Self {
        Extent { least: u64::from(most > 1), most }
    }

    pub(super) fn is_exact(self) -> bool {
        self.least == self.most
    }

    /// Applies a function that grows with its argument.
    pub(super) fn map(self, by: impl Fn(f64) -> f64) -> Self {
        self.map_each(&by, &by)
    }

    pub(super) fn map_each(self, least: impl Fn(f64) -> f64, most: impl Fn(f64) -> f64) -> Self {
        let greatest = if self.most == u64::MAX { u64::MAX } else { length(most(self.most as f64)) };
        Extent { least: length(least(self.least as f64)), most: greatest }
    }

    pub(super) fn plus(self, other: Extent) -> Self {
        Extent { least: self.least.saturating_add(other.least), most: self.most.saturating_add(other.most) }
    }

    /// The same without an upper bound.
    pub(super) fn or_more(self) -> Self {
        Extent { most: u64::MAX, ..self }
    }
}

pub(super) type Lengths = Vec<Extent>;

/// The known shapes and values of the tensors of a graph and of the graphs around it.
pub(super) struct ShapeScope<'a> {
    data: &'a [DataFile],
    outer: Option<&'a ShapeScope<'a>>,
    /// Shared between tensors of the same shape: a model may have many nodes.
    shapes: HashMap<&'a str, Rc<Lengths>>,
    numbers: HashMap<&'a str, Vec<f64>>,
    /// Shapes of tensors whose operator is not modeled.
    declared: HashMap<&'a str, Rc<Lengths>>,
}

impl<'a> ShapeScope<'a> {
    pub(super) fn new(data: &'a [DataFile]) -> Self {
        let (shapes, numbers, declared) = (HashMap::new(), HashMap::new(), HashMap::new());
        ShapeScope { data, outer: None, shapes, numbers, declared }
    }

    /// Reads a graph. Passes the shape of each output of a node to `made`.
    pub(super) fn read(&mut self, graph: &'a wire::Graph, made: &mut dyn FnMut(&wire::Node, &str, &Lengths)) {
        for input in
            graph.inputs.iter().filter(|input| !self.shapes.contains_key(input.name.as_str())).collect::<Vec<_>>()
        {
            let tensor = input.kind.as_ref().and_then(|kind| kind.tensor.as_ref());
            let Some(shape) = tensor.and_then(|tensor| tensor.shape.as_ref()) else { continue };
            let length = |dim: &wire::Dimension| dim.length.and_then(|n| u64::try_from(n).ok());
            let shape = shape.dims.iter().map(|dim| length(dim).map_or(Extent::UNKNOWN, Extent::exactly)).collect();
            self.know(&input.name, Some(Rc::new(shape)), None);
        }
        for tensor in &graph.initializers {
            self.constant(&tensor.name, tensor);
        }
        for at in order(graph).unwrap_or_default() {
            let node = &graph.nodes[at];
            for inner in graphs_of(node) {
                let mut scope = ShapeScope { outer: Some(&*self), ..ShapeScope::new(self.data) };
                scope.read(inner, made);
            }
            let Some(first) = node.outputs.first() else { continue };
            if let (true, Some(tensor)) = (node.op == "Constant", find(node, "value").and_then(|a| a.tensor.as_ref())) {
                self.constant(first, tensor);
                continue;
            }
            for (at, output) in node.outputs.iter().enumerate() {
                let source = NodeShapes { node, scope: &*self };
                let shape = match at {
                    0 => source.same().or_else(|| source.shape().map(Rc::new)),
                    _ => source.further(at).map(Rc::new),
                };
                let shape = shape.or_else(|| self.declared.get(output.as_str()).cloned());
                let numbers = if at == 0 { source.numbers() } else { None };
                if let Some(shape) = &shape {
                    made(node, output, shape);
                }
                self.know(output, shape, numbers);
            }
        }
    }

    /// Sets the shape of a tensor, and its values if it is constant.
    pub(super) fn know(&mut self, name: &'a str, shape: Option<Rc<Lengths>>, numbers: Option<Vec<f64>>) {
        if let Some(shape) = shape.filter(|shape| shape.len() <= MAX_NUMBERS) {
            self.shapes.insert(name, shape);
        }
        if let Some(numbers) = numbers.filter(|numbers| numbers.len() <= MAX_NUMBERS) {
            self.numbers.insert(name, numbers);
        }
    }

    /// Sets the shape of a tensor for the case that its operator is not modeled.
    pub(super) fn declare(&mut self, name: &'a str, shape: Lengths) {
        self.declared.insert(name, Rc::new(shape));
    }

    fn constant(&mut self, name: &'a str, tensor: &'a wire::Tensor) {
        let shape = tensor.dims.iter().map(|dim| Extent::exactly(u64::try_from(*dim).unwrap_or(0))).collect();
        let numbers = self.numbers_in(tensor);
        self.know(name, Some(Rc::new(shape)), numbers);
    }

    /// Returns the values of a tensor, if it is small.
    pub(super) fn numbers_in(&self, tensor: &wire::Tensor) -> Option<Vec<f64>> {
        let dims = tensor.dims.iter().map(|dim| u64::try_from(*dim).unwrap_or(0));
        let count = dims.fold(1, u64::saturating_mul);
        self.values(tensor, usize::try_from(count).ok().filter(|count| *count <= MAX_NUMBERS)?)
    }

    /// Returns the values of a tensor, from any of the places where a file can have them.
    fn values(&self, tensor: &wire::Tensor, count: usize) -> Option<Vec<f64>> {
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

    pub(super) fn shape_of(&self, name: &str) -> Option<&Rc<Lengths>> {
        self.shapes.get(name).or_else(|| self.outer?.shape_of(name))
    }

    pub(super) fn numbers_of(&self, name: &str) -> Option<&Vec<f64>> {
        self.numbers.get(name).or_else(|| self.outer?.numbers_of(name))
    }
}

/// Returns the least number of elements of a shape.
pub(super) fn least_elements(shape: &[Extent]) -> u64 {
    shape.iter().fold(1, |n, dim| n.saturating_mul(dim.least))
}

/// Returns the greatest number of elements of a shape.
pub(super) fn most_elements(shape: &[Extent]) -> u64 {
    shape.iter().fold(1, |n, dim| n.saturating_mul(dim.most))
}

pub(super) fn elements(shape: &[Extent]) -> Extent {
    Extent { least: least_elements(shape), most: most_elements(shape) }
}

/// Converts a length. Negative ones become 0: they are left to the runtime to refuse.
pub(super) fn length(number: f64) -> u64 {
    number as u64
}
