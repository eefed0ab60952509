//! The operators and weights of a model, checked for consistency.

use super::elem::{Elem, elem_of};
use super::elems::Elems;
use super::node::{brief, graphs_of, label, name_of, order};
use super::ranks::ranks;
use super::wire;
use super::wrong::ModelProblems;
use limen::backend::BackendError;
use prost::bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Models with more nodes are refused: runtimes take time quadratic in the number of nodes.
const MAX_NODES: usize = 1 << 15;

/// An operator that a node of a model uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// The operator, with its domain unless that is ONNX's default: `Conv`, `com.microsoft.Gelu`.
    pub id: String,
    /// The node's name, prefixed with the names of the nodes whose subgraphs it is in; a long name
    /// without its middle.
    pub node: String,
    /// The version of its operator set; 0 if the model does not declare it.
    pub opset: i64,
    /// The ranks of its first and second input and of its first output, where the model declares
    /// them or they follow from operators.
    pub ranks: [Option<usize>; 3],
    /// Which of its first 32 inputs it has: a bit for each.
    inputs: u32,
    /// The numbers by which a `Resize` multiplies lengths, where they are constant.
    pub scales: Option<Vec<f32>>,
    /// Whether its result depends on a constant of `int64` that does not fit 32 bits.
    pub has_wide_constant: bool,
    /// The element types of its first and second input and of its first output, as ONNX numbers
    /// them; 0 where they are not known.
    elems: [i32; 3],
    /// Those of its [`ATTRIBUTES`] that it has.
    attributes: HashMap<String, AttributeValue>,
}

/// The attributes that are kept: the others decide nothing before the model is loaded.
const ATTRIBUTES: [&str; 17] = [
    "activations",
    "alpha",
    "auto_pad",
    "axis",
    "clip",
    "coordinate_transformation_mode",
    "dilations",
    "direction",
    "input_forget",
    "linear_before_reset",
    "mode",
    "nearest_mode",
    "output_padding",
    "output_shape",
    "pads",
    "select_last_index",
    "to",
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum AttributeValue {
    Int(i64),
    Float(f32),
    Word(String),
    Ints(Vec<i64>),
}

/// The longest word that is kept of an attribute.
const MAX_WORD: usize = 32;

/// The most words that are kept of a list: one more than any operator has.
const MAX_WORDS: usize = 7;

/// The most integers that are kept of a list: two for each dim of a window.
const MAX_INTS: usize = 16;

impl Op {
    /// Whether it has an input at this place, which is not left out.
    pub fn has_input(&self, at: u32) -> bool {
        self.inputs.checked_shr(at).is_some_and(|inputs| inputs & 1 == 1)
    }

    /// Returns the element types of its first and second input and of its first output, where they
    /// are known.
    pub fn elems(&self) -> [Option<Elem>; 3] {
        self.elems.map(Elem::of)
    }

    /// Returns one of its [`ATTRIBUTES`]. Of another it would say that no node has it.
    fn attribute(&self, name: &str) -> Option<&AttributeValue> {
        debug_assert!(ATTRIBUTES.contains(&name), "the attribute `{name}` is not kept");
        self.attributes.get(name)
    }

    /// Returns the attribute `axis`, `input_forget`, `linear_before_reset`, `select_last_index` or
    /// `to`.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).and_then(|value| if let AttributeValue::Int(int) = value { Some(*int) } else { None })
    }

    /// Returns the attribute `alpha` or `clip`.
    pub fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name)
            .and_then(|value| if let AttributeValue::Float(float) = value { Some(*float) } else { None })
    }

    /// Returns the attribute `dilations`, `output_padding`, `output_shape` or `pads`; empty if it
    /// has none.
    pub fn ints(&self, name: &str) -> &[i64] {
        match self.attribute(name) {
            Some(AttributeValue::Ints(ints)) => ints,
            _ => &[],
        }
    }

    /// Returns the attribute `auto_pad`, `direction`, `mode`, `nearest_mode` or
    /// `coordinate_transformation_mode`, or `activations` with a space between words.
    pub fn word(&self, name: &str) -> Option<&str> {
        self.attribute(name).and_then(|value| if let AttributeValue::Word(word) = value { Some(&**word) } else { None })
    }
}

/// Returns the [`ATTRIBUTES`] of a node that are a number, a word or a list of words.
fn attributes(node: &wire::Node) -> HashMap<String, AttributeValue> {
    // A list is never left out: what it says is not the default, even if it is too long or no text.
    let word = |text: &Bytes| String::from_utf8_lossy(&text[..text.len().min(MAX_WORD)]).into_owned();
    let words = |texts: &[Bytes]| texts.iter().take(MAX_WORDS).map(word).collect::<Vec<_>>().join(" ");
    let few = |ints: &[i64]| ints.iter().take(MAX_INTS).copied().collect();
    let value = |attribute: &wire::Attribute| match (
        attribute.integer(),
        attribute.number(),
        std::str::from_utf8(&attribute.text),
    ) {
        _ if !attribute.texts.is_empty() => Some(AttributeValue::Word(words(&attribute.texts))),
        _ if !attribute.ints.is_empty() => Some(AttributeValue::Ints(few(&attribute.ints))),
        (Some(int), _, _) => Some(AttributeValue::Int(int)),
        (_, Some(float), _) => Some(AttributeValue::Float(float)),
        (_, _, Ok(word)) if !word.is_empty() && word.len() <= MAX_WORD => Some(AttributeValue::Word(word.to_string())),
        _ => None,
    };
    node.attributes
        .iter()
        .filter(|attribute| ATTRIBUTES.contains(&attribute.name.as_str()))
        .filter_map(|attribute| Some((attribute.name.clone(), value(attribute)?)))
        .collect()
}

/// Returns which of its first 32 inputs a node has.
fn given(node: &wire::Node) -> u32 {
    node.inputs.iter().take(32).enumerate().fold(0, |given, (at, name)| given | u32::from(!name.is_empty()) << at)
}

/// The most scales of a `Resize`: one for each dim.
const MAX_SCALES: usize = 16;

/// Returns the constant scales of a `Resize`.
fn scales<'a>(node: &wire::Node, constant: impl Fn(&str) -> Option<&'a wire::Tensor>) -> Option<Vec<f32>> {
    let name = node.inputs.get(2).filter(|name| node.op == "Resize" && !name.is_empty())?;
    let tensor = constant(name).filter(|tensor| tensor.elem == 1)?;
    let scales: Vec<f32> = match &tensor.raw {
        Some(raw) => raw.as_chunks().0.iter().take(MAX_SCALES).map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        None => tensor.floats.iter().take(MAX_SCALES).copied().collect(),
    };
    Some(scales).filter(|scales| !scales.is_empty())
}

/// A tensor that is stored in the model's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Its name in the model.
    pub name: String,
    /// The name of its element type in ONNX.
    pub elem: &'static str,
    /// Its shape.
    pub dims: Vec<u64>,
    /// The part of a file beside the model that holds it.
    pub external: Option<External>,
}

impl Weight {
    /// Reads what a tensor of a model is, in a file of the given size, and checks its data against
    /// its type and shape.
    pub(super) fn read(tensor: &wire::Tensor, name: &str, file_bytes: u64) -> Result<Weight, String> {
        let (elem, bits) = elem_of(tensor.elem);
        if let Some(dim) = tensor.dims.iter().find(|dim| **dim < 0) {
            return Err(format!("must have dims of length 0 or more, got {dim}"));
        }
        let dims: Vec<u64> = tensor.dims.iter().map(|dim| *dim as u64).collect();
        let elements = dims.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim));
        let Some(elements) = elements.filter(|n| n.checked_mul(bits.max(1)).is_some()) else {
            return Err(format!("must have a shape that fits in memory, got {dims:?}"));
        };
        let bytes = (elements * bits).div_ceil(8);
        let mut external = None;
        if tensor.location == 1 {
            let entry = |key: &str| tensor.external.iter().find(|entry| entry.key == key).map(|entry| &*entry.value);
            let number = |key: &str, default: u64| match entry(key).map(str::parse) {
                None => Ok(default),
                Some(Ok(number)) => Ok(number),
                Some(Err(_)) => Err(format!(
                    "must have a number as {key} in another file, got `{}`",
                    entry(key).unwrap_or_default()
                )),
            };
            let (offset, length) = (number("offset", 0)?, number("length", bytes)?);
            if bits > 0 && length != bytes {
                return Err(format!("must have {bytes} bytes in another file for {elem}{dims:?}, got {length}"));
            }
            external = Some(External { file: entry("location").unwrap_or_default().to_string(), offset, length });
        } else {
            match &tensor.raw {
                Some(raw) if bits > 0 && raw.len() as u64 != bytes => {
                    return Err(format!("must have {bytes} bytes for {elem}{dims:?}, got {}", raw.len()));
                }
                // As single numbers, elements take at least a byte each, or half a byte for 4-bit
                // types.
                None if elements / 2 > file_bytes => {
                    return Err(format!("must fit in the file of {file_bytes} bytes, got {elements} elements"));
                }
                _ => {}
            }
        }
        Ok(Weight { name: name.to_string(), elem, dims, external })
    }
}

/// A part of a file beside the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// The file, as the model names it.
    pub file: String,
    /// The offset of the part in bytes.
    pub offset: u64,
    /// The length of the part in bytes.
    pub length: u64,
}

/// The contents of a graph and its subgraphs.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) ops: Vec<Op>,
    /// The length of the longest chain of operators.
    pub(super) depth: usize,
    pub(super) weights: Vec<Weight>,
}

impl Contents {
    /// Reads and checks a graph and its subgraphs, in a file of the given size.
    ///
    /// # Errors
    /// Every error, with the tensor or node.
    pub(super) fn read(graph: &wire::Graph, opsets: &[wire::OpSet], file_bytes: u64) -> Result<Self, BackendError> {
        let nodes = nodes(graph);
        if nodes > MAX_NODES {
            return Err(BackendError::Model(format!("a model must have at most {MAX_NODES} nodes, got {nodes}")));
        }
        let mut reader =
            ContentsReader { opsets, file_bytes, found: Contents::default(), wrong: ModelProblems::default() };
        reader.graph(graph, "", None, None);
        reader.wrong.into_result()?;
        Ok(reader.found)
    }
}

/// Walks a graph and its subgraphs.
struct ContentsReader<'a> {
    opsets: &'a [wire::OpSet],
    file_bytes: u64,
    found: Contents,
    wrong: ModelProblems,
}

/// The names of the tensors of a graph and of the graphs around it.
struct Names<'a> {
    names: HashSet<&'a str>,
    outer: Option<&'a Names<'a>>,
}

impl Names<'_> {
    fn contains(&self, name: &str) -> bool {
        self.names.contains(name) || self.outer.is_some_and(|outer| outer.contains(name))
    }
}

impl ContentsReader<'_> {
    /// Reads a graph inside the node `within`, with the tensors of the graphs around it.
    fn graph(&mut self, graph: &wire::Graph, within: &str, outer: Option<&Names<'_>>, outer_elems: Option<&Elems<'_>>) {
        let mut seen = Names { names: HashSet::new(), outer };
        for tensor in &graph.initializers {
            self.tensor(tensor, &tensor.name);
            seen.names.insert(&tensor.name);
        }
        for tensor in &graph.sparse_initializers {
            let name = tensor.values.as_ref().map_or("", |values| &values.name);
            self.wrong.push(|| sparse(name));
            seen.names.insert(name);
        }
        seen.names.extend(graph.inputs.iter().map(|input| input.name.as_str()));
        let mut made: HashMap<&str, usize> = HashMap::new();
        for (at, node) in graph.nodes.iter().enumerate() {
            for output in node.outputs.iter().filter(|output| !output.is_empty()) {
                if made.insert(output, at).is_some() {
                    self.wrong.push(|| format!("tensor `{}` is the output of two nodes", brief(output)));
                }
            }
        }
        for node in &graph.nodes {
            for input in node.inputs.iter().filter(|input| !input.is_empty()) {
                if !seen.contains(input) && !made.contains_key(input.as_str()) {
                    let what = || format!("{} reads `{}`, which is not in the model", name_of(node), brief(input));
                    self.wrong.push(what);
                }
            }
        }
        for output in &graph.outputs {
            if !seen.contains(&output.name) && !made.contains_key(output.name.as_str()) {
                self.wrong.push(|| format!("no node produces the output `{}`", brief(&output.name)));
            }
        }
        let order = order(graph).unwrap_or_else(|node| {
            self.wrong.push(|| format!("{} depends on its own output: the graph has a cycle", name_of(node)));
            Vec::new()
        });
        let mut depths = vec![1; graph.nodes.len()];
        for at in &order {
            let before = graph.nodes[*at].inputs.iter().filter_map(|input| made.get(input.as_str()));
            depths[*at] = 1 + before.map(|before| depths[*before]).max().unwrap_or(0);
            self.found.depth = self.found.depth.max(depths[*at]);
        }
        seen.names.extend(made.keys().copied());
        let ranks = ranks(graph, &order);
        let elems = Elems::of(graph, &order, outer_elems);
        let weights: HashMap<&str, &wire::Tensor> =
            graph.initializers.iter().map(|weight| (weight.name.as_str(), weight)).collect();
        let constant = |name: &str| {
            let made = || graph.nodes.get(*made.get(name)?).filter(|node| node.op == "Constant");
            let value = || made()?.attributes.iter().find_map(|attribute| attribute.tensor.as_ref());
            weights.get(name).copied().or_else(value)
        };
        let rank_of = |tensor: Option<&String>| tensor.and_then(|tensor| ranks.get(tensor.as_str()).copied());
        let type_of = |tensor: Option<&String>| tensor.and_then(|tensor| elems.get(tensor)).unwrap_or(0);
        for node in &graph.nodes {
            let name = brief(label(node));
            let path =
                if within.is_empty() { name.to_string() } else { brief(&format!("{within}/{name}")).into_owned() };
            let id = match node.domain.as_str() {
                "" | "ai.onnx" => node.op.clone(),
                domain => format!("{domain}.{}", node.op),
            };
            let is_standard = |domain: &str| matches!(domain, "" | "ai.onnx");
            let of = |set: &&wire::OpSet| {
                set.domain == node.domain || (is_standard(&set.domain) && is_standard(&node.domain))
            };
            self.found.ops.push(Op {
                id,
                node: path.clone(),
                opset: self.opsets.iter().find(of).map_or(0, |set| set.version),
                inputs: given(node),
                ranks: [node.inputs.first(), node.inputs.get(1), node.outputs.first()].map(rank_of),
                scales: scales(node, constant),
                // The constants may be in other files, which are read later.
                has_wide_constant: false,
                elems: [node.inputs.first(), node.inputs.get(1), node.outputs.first()].map(type_of),
                attributes: attributes(node),
            });
            for attribute in &node.attributes {
                if attribute.sparse.is_some() || !attribute.sparses.is_empty() {
                    self.wrong.push(|| sparse(label(node)));
                }
                for tensor in attribute.tensor.iter().chain(&attribute.tensors) {
                    self.tensor(tensor, &name);
                }
            }
            graphs_of(node).for_each(|inner| self.graph(inner, &path, Some(&seen), Some(&elems)));
        }
    }

    /// Records a constant tensor, and checks its data against its type and shape.
    fn tensor(&mut self, tensor: &wire::Tensor, name: &str) {
        match Weight::read(tensor, name, self.file_bytes) {
            Ok(weight) => self.found.weights.push(weight),
            Err(why) => self.wrong.push(|| format!("tensor `{}` {why}", brief(name))),
        }
    }
}

/// Counts the nodes of a graph and its subgraphs.
fn nodes(graph: &wire::Graph) -> usize {
    let inner = |node: &wire::Node| graphs_of(node).map(nodes).sum::<usize>();
    graph.nodes.len() + graph.nodes.iter().map(inner).sum::<usize>()
}

/// Sparse tensors are refused: their dims can have any size, and a runtime makes them dense.
fn sparse(name: &str) -> String {
    format!("tensor `{}` must be dense, got a sparse tensor", brief(name))
}

#[cfg(all(test, feature = "rten"))]
mod tests {
    use super::*;
    use crate::onnx::test_models::model;
    use prost::Message;
    use rten_onnx::onnx::DataType as D;

    /// proto3 leaves out a 0, and only the type of an attribute tells that from one without a
    /// value.
    #[test]
    fn an_attribute_may_leave_out_a_0() {
        let (x, y) = (("x", D::FLOAT, &["2", "2"][..]), ("y", D::FLOAT, &["2", "2"][..]));
        for node in ["y = LogSoftmax x axis==1", "y = Celu x alpha=~1"] {
            let mut file = wire::Model::decode(&*model(&[x], &[y], &[], &[node])).unwrap();
            let attribute = &mut file.graph.as_mut().unwrap().nodes[0].attributes[0];
            (attribute.int, attribute.float) = (None, None);
            let found = &Contents::read(&file.graph.unwrap(), &file.opsets, 1000).unwrap().ops[0];
            let (int, float) = (found.int("axis"), found.float("alpha"));
            assert_eq!((int, float), if node.contains("axis") { (Some(0), None) } else { (None, Some(0.0)) }, "{node}");
        }
    }
}
