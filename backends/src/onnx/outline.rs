//! What an ONNX file says of itself: inputs, outputs, operators and weights, read without loading any.
//!
//! Runtimes believe what a file says. A damaged byte can make one allocate until the process is aborted, or go round in
//! circles for ever, and neither can be caught as a panic can. So the form of the file is checked here, before any of
//! them reads it.

use super::wire;
use crate::port_name;
use crate::weights::{check_sum, sha256};
use limen::backend::BackendError;
use limen::unit::show_bytes;
use limen::{DType, MAX_RANK};
use prost::Message;
use prost::bytes::Bytes;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One item of an input may have so many bytes; larger ones are taken for damage.
const MAX_ITEM_BYTES: u64 = 1 << 30;

/// Models of more nodes are refused: what runtimes do with a graph grows with the square of it.
const MAX_NODES: usize = 1 << 15;

/// Problems of one model that are told; the others are counted.
const MOST_WRONG: usize = 16;

/// Characters of a name that are repeated, where it is not the only one: a model can name a node once and have it said back for
/// each of ten thousand others.
const MOST_NAMED: usize = 100;

/// What an ONNX file says of itself.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Inputs, in the model's order.
    pub inputs: Vec<Input>,
    /// Names of the outputs, in the model's order.
    pub outputs: Vec<Output>,
    /// Operators, also those of subgraphs.
    pub ops: Vec<Op>,
    /// How many operators are one behind the other at most.
    pub depth: usize,
    /// Weights.
    pub weights: Vec<Weight>,
    /// The version of ONNX's own operators.
    pub opset: i64,
    /// The SHA-256 of its file, in hexadecimal digits.
    pub sha256: String,
    /// The files beside it that hold its weights, with the SHA-256 of each.
    pub files: BTreeMap<String, String>,
}

/// An input of a model.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its name in the model.
    pub name: String,
    /// Its name as a port.
    pub port: String,
    /// Its elements.
    pub elem: Elem,
    /// What its first dim is.
    pub lead: Lead,
    /// Its shape in the model.
    pub shape: Vec<Length>,
}

/// An output of a model.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its name in the model.
    pub name: String,
    /// Its name as a port.
    pub port: String,
    /// What the file declares it to be; what really comes out, only loading tells.
    pub declared: Option<String>,
}

/// What an input's first dim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// The batch, of any length.
    Batch,
    /// The batch, fixed at one item.
    One,
    /// Part of the item: the model knows no batch.
    None,
}

/// A dim of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// Always this long.
    Fixed(usize),
    /// The same wherever the name stands.
    Symbol(String),
}

/// An operator at work in a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The operator, with its domain where that is not ONNX's own: `Conv`, `com.microsoft.Gelu`.
    pub id: String,
    /// The node's name, below those of the nodes whose subgraphs it is in; a long one without its middle.
    pub node: String,
}

/// A weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Its name in the model.
    pub name: String,
    /// Its elements, in ONNX's word.
    pub elem: &'static str,
    /// Its shape.
    pub dims: Vec<u64>,
    /// The part of a file beside the model that holds it.
    pub external: Option<External>,
}

/// A part of a file beside the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// The file, as the model names it.
    pub file: String,
    /// Where the part begins, bytes.
    pub offset: u64,
    /// How long it is, bytes.
    pub length: u64,
}

/// Elements of an input or output that a port can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Elem {
    F32,
    U8,
    I8,
    U16,
    I16,
    I32,
    I64,
    Bool,
    F16,
    F64,
    U32,
    U64,
    BF16,
}

impl Elem {
    fn of(code: i32) -> Option<Elem> {
        Some(match code {
            1 => Elem::F32,
            2 => Elem::U8,
            3 => Elem::I8,
            4 => Elem::U16,
            5 => Elem::I16,
            6 => Elem::I32,
            7 => Elem::I64,
            9 => Elem::Bool,
            10 => Elem::F16,
            11 => Elem::F64,
            12 => Elem::U32,
            13 => Elem::U64,
            16 => Elem::BF16,
            _ => return None,
        })
    }

    /// The dtype of the port that carries it: `i64` and `bool` travel as `i32`, and `f64` as `f32`, whatever runs the
    /// model, so that a graph does not change with its backend.
    pub fn dtype(self) -> DType {
        match self {
            Elem::F32 | Elem::F64 => DType::F32,
            Elem::U8 => DType::U8,
            Elem::I8 => DType::I8,
            Elem::U16 => DType::U16,
            Elem::I16 => DType::I16,
            Elem::I32 | Elem::I64 | Elem::Bool => DType::I32,
            Elem::F16 => DType::F16,
            Elem::U32 => DType::U32,
            Elem::U64 => DType::U64,
            Elem::BF16 => DType::BF16,
        }
    }
}

/// ONNX's word for a type of elements, and the bits of one; 0 where they have no fixed number.
fn elem_of(code: i32) -> (&'static str, u64) {
    match code {
        1 => ("float", 32),
        2 => ("uint8", 8),
        3 => ("int8", 8),
        4 => ("uint16", 16),
        5 => ("int16", 16),
        6 => ("int32", 32),
        7 => ("int64", 64),
        8 => ("string", 0),
        9 => ("bool", 8),
        10 => ("float16", 16),
        11 => ("double", 64),
        12 => ("uint32", 32),
        13 => ("uint64", 64),
        14 => ("complex64", 64),
        15 => ("complex128", 128),
        16 => ("bfloat16", 16),
        17..=20 | 24 => ("float8", 8),
        21 => ("uint4", 4),
        22 => ("int4", 4),
        23 => ("float4e2m1", 4),
        _ => ("unknown", 0),
    }
}

impl Outline {
    /// Reads the form of a file; its graph comes along for who looks further.
    ///
    /// # Errors
    /// What is wrong with it, naming tensor or node.
    pub(super) fn read(file: &Bytes) -> Result<(Outline, wire::Graph), BackendError> {
        let model = match wire::Model::decode(file.clone()) {
            Ok(model) if model.ir_version.is_some() && model.graph.is_some() => model,
            other => {
                // Every exporter writes the format's version first; nothing else begins so.
                let why = match other {
                    Err(why) if matches!(file[..], [8, 1..=32, ..]) && file.len() > 2 => {
                        format!("this is an ONNX model that is cut short or damaged: {why}")
                    }
                    _ => format!("this is not an ONNX model: nothing in its {} bytes reads as one", file.len()),
                };
                return Err(BackendError::Model(why));
            }
        };
        let wire::Model { graph, opsets, functions, .. } = model;
        if let Some(first) = functions.first() {
            let why = format!(
                "it has functions of its own, {} of them, first `{}`; `onnx.inliner.inline_local_functions` puts what they do in their place",
                functions.len(),
                first.name
            );
            return Err(BackendError::Unsupported(why));
        }
        let Some(graph) = graph else { return Err(BackendError::Model("it holds no graph".into())) };
        let nodes = nodes(&graph);
        if nodes > MAX_NODES {
            return Err(BackendError::Model(format!("it has {nodes} nodes; at most {MAX_NODES} are taken")));
        }
        let mut reader = Reader {
            file_bytes: file.len() as u64,
            ops: Vec::new(),
            depth: 0,
            weights: Vec::new(),
            wrong: Wrong::default(),
        };
        reader.graph(&graph, "", None);
        reader.wrong.into_result()?;
        let opset = |o: &&wire::OpSet| o.domain.is_empty() || o.domain == "ai.onnx";
        let weights: BTreeSet<&str> = graph.initializers.iter().map(|w| w.name.as_str()).collect();
        let inputs = graph.inputs.iter().filter(|input| !weights.contains(input.name.as_str()));
        let outline = Outline {
            inputs: inputs.map(Input::read).collect::<Result<_, _>>().map_err(BackendError::Unsupported)?,
            outputs: graph
                .outputs
                .iter()
                .map(|output| Output {
                    name: output.name.clone(),
                    port: port_name(&output.name),
                    declared: Input::read(output).ok().map(|declared| declared.declared()),
                })
                .collect(),
            ops: reader.ops,
            depth: reader.depth,
            weights: reader.weights,
            opset: opsets.iter().find(opset).map_or(0, |o| o.version),
            sha256: sha256(file),
            files: BTreeMap::new(),
        };
        distinct(outline.inputs.iter().map(|input| &input.port))?;
        distinct(outline.outputs.iter().map(|output| &output.port))?;
        Ok((outline, graph))
    }

    /// Compares the SHA-256 of the file with what it must be.
    pub(crate) fn check_sum(&self, expected: &str) -> Result<(), String> {
        check_sum(&self.sha256, expected)
    }

    /// Elements of all weights.
    pub fn parameters(&self) -> u64 {
        self.weights.iter().map(|w| w.dims.iter().product::<u64>()).sum()
    }

    /// Gives every dim of every input a length, from the shapes of what is connected: the shape of one item, for each
    /// input, in order. `batch_dims` says which dim of each is the batch.
    pub(crate) fn bind(
        &self,
        given: &BTreeMap<String, Vec<usize>>,
        batch_dims: &[Option<usize>],
    ) -> Result<Vec<Vec<usize>>, Vec<Unbound>> {
        let mut lengths: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        let mut wrong = Vec::new();
        for (input, batch_dim) in self.inputs.iter().zip(batch_dims) {
            let Some(shape) = given.get(&input.port) else { continue };
            let item = input.item(*batch_dim);
            if shape.len() != item.len() {
                // With fixed dims there is nothing to bind; the plan compares the two and names what lies between.
                if !item.iter().any(|dim| matches!(dim, Length::Symbol(_))) {
                    continue;
                }
                let why = format!("one item is {}; what is connected is {shape:?}", input.show(*batch_dim));
                wrong.push(input.unbound(why));
                continue;
            }
            for (dim, length) in item.into_iter().zip(shape) {
                let Length::Symbol(symbol) = dim else { continue };
                match lengths.get(symbol.as_str()) {
                    Some((other, at)) if other != length => {
                        wrong.push(input.unbound(format!("dim `{symbol}` is {length} here and {other} at `{at}`")));
                    }
                    Some(_) => {}
                    None => _ = lengths.insert(symbol, (*length, &input.port)),
                }
            }
        }
        let mut items = Vec::new();
        for (input, batch_dim) in self.inputs.iter().zip(batch_dims) {
            let mut item = Vec::new();
            for dim in input.item(*batch_dim) {
                match dim {
                    Length::Fixed(length) => item.push(*length),
                    Length::Symbol(symbol) => match lengths.get(symbol.as_str()) {
                        Some((length, _)) if *length > 0 => item.push(*length),
                        _ if wrong.iter().any(|w: &Unbound| w.input == input.port) => {}
                        _ => {
                            let item = input.show(*batch_dim);
                            let why = format!(
                                "dim `{symbol}` of {item} has no length: connect an input whose shape is fixed"
                            );
                            wrong.push(input.unbound(why));
                        }
                    },
                }
            }
            items.push(item);
        }
        if wrong.is_empty() { Ok(items) } else { Err(wrong) }
    }
}

/// An input with a dim that has no length yet.
#[derive(Debug)]
pub(crate) struct Unbound {
    pub(crate) input: String,
    pub(crate) why: String,
}

impl Input {
    /// Type and dims as the file has them: `f32[n,1,8,8]`.
    pub(crate) fn declared(&self) -> String {
        let dims: Vec<String> = self
            .shape
            .iter()
            .map(|length| match length {
                Length::Fixed(n) => n.to_string(),
                Length::Symbol(name) => name.clone(),
            })
            .collect();
        format!("{}[{}]", self.elem.dtype(), dims.join(","))
    }

    fn read(value: &wire::Value) -> Result<Input, String> {
        let port = port_name(&value.name);
        let unsupported = |why: String| Err(format!("input `{port}` {why}"));
        let tensor = match &value.kind {
            Some(wire::Type { tensor: Some(tensor), .. }) => tensor,
            Some(wire::Type { sequence: Some(_), .. }) => {
                return unsupported("is a sequence; ports carry tensors".into());
            }
            _ => return unsupported("does not declare its element type".into()),
        };
        let Some(elem) = Elem::of(tensor.elem) else {
            let (word, _) = elem_of(tensor.elem);
            return unsupported(format!("has elements of type {word}, which ports do not have"));
        };
        let Some(shape) = &tensor.shape else {
            return unsupported("does not declare its shape; export the model with one".into());
        };
        let mut dims = Vec::new();
        for (at, dim) in shape.dims.iter().enumerate() {
            dims.push(match (dim.length, dim.symbol.as_deref()) {
                (Some(length), _) if length < 0 => return unsupported(format!("has a dim of length {length}")),
                (Some(0), _) => return unsupported("has a dim of length 0".into()),
                (Some(length), _) => Length::Fixed(length as usize),
                (None, Some(symbol)) if !symbol.is_empty() && symbol != "?" => Length::Symbol(symbol.to_string()),
                // Two dims without a name need not be the same.
                _ => Length::Symbol(format!("{port}.{at}")),
            });
        }
        let lead = match dims.first() {
            Some(Length::Symbol(_)) => Lead::Batch,
            Some(Length::Fixed(1)) => Lead::One,
            _ => Lead::None,
        };
        if dims.len() > MAX_RANK + 1 {
            return unsupported(format!("has {} dims; at most {MAX_RANK} and a batch fit", dims.len()));
        }
        let fixed = dims.iter().map(|dim| if let Length::Fixed(length) = dim { *length as u64 } else { 1 });
        let bytes = fixed.fold(elem.dtype().size() as u64, u64::saturating_mul);
        if bytes > MAX_ITEM_BYTES {
            let (has, most) = (show_bytes(bytes), show_bytes(MAX_ITEM_BYTES));
            return unsupported(format!("has {has} in one item; at most {most} fit"));
        }
        Ok(Input { name: value.name.clone(), port, elem, lead, shape: dims })
    }

    /// Its shape without the batch.
    pub fn item(&self, batch_dim: Option<usize>) -> Vec<&Length> {
        let dims = self.shape.iter().enumerate();
        dims.filter(|(at, _)| Some(*at) != batch_dim).map(|(_, dim)| dim).collect()
    }

    /// Which dim is its batch, where it is no state.
    pub fn batch_dim(&self) -> Option<usize> {
        (self.lead != Lead::None).then_some(0)
    }

    /// One item: `f32[3,h,w]`.
    fn show(&self, batch_dim: Option<usize>) -> String {
        let dims: Vec<_> = self.item(batch_dim).into_iter().map(ToString::to_string).collect();
        format!("{}[{}]", self.elem.dtype(), dims.join(","))
    }

    fn unbound(&self, why: String) -> Unbound {
        Unbound { input: self.port.clone(), why }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Fixed(length) => write!(f, "{length}"),
            Length::Symbol(symbol) => f.write_str(symbol),
        }
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), BackendError> {
    let mut seen = BTreeSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(BackendError::Unsupported(format!("two tensors of the model would both be port `{name}`"))),
        None => Ok(()),
    }
}

/// Goes through a graph and those inside it.
struct Reader {
    file_bytes: u64,
    ops: Vec<Op>,
    depth: usize,
    weights: Vec<Weight>,
    wrong: Wrong,
}

/// What is wrong with a model: the first of it in words, the rest as a number.
#[derive(Default)]
pub(super) struct Wrong {
    told: Vec<String>,
    more: usize,
}

impl Wrong {
    pub(super) fn push(&mut self, why: impl FnOnce() -> String) {
        if self.told.len() < MOST_WRONG {
            self.told.push(why());
        } else {
            self.more += 1;
        }
    }

    /// # Errors
    /// Everything that is wrong.
    pub(super) fn into_result(mut self) -> Result<(), BackendError> {
        if self.more > 0 {
            self.told.push(format!("and {} more", self.more));
        }
        if self.told.is_empty() { Ok(()) } else { Err(BackendError::Model(self.told.join("; "))) }
    }
}

/// A name without its middle, where it is long.
pub(super) fn brief(name: &str) -> Cow<'_, str> {
    let half = MOST_NAMED / 2;
    let cut = |name: &mut std::str::CharIndices<'_>| name.nth(half).map(|(at, _)| at);
    if name.len() <= MOST_NAMED {
        return Cow::Borrowed(name);
    }
    match (cut(&mut name.char_indices()), name.char_indices().rev().nth(half - 1)) {
        (Some(head), Some((tail, _))) if head < tail => Cow::Owned(format!("{}…{}", &name[..head], &name[tail..])),
        _ => Cow::Borrowed(name),
    }
}

/// The names of a graph's tensors, and of those of the graphs around it.
struct Seen<'a> {
    names: BTreeSet<&'a str>,
    outer: Option<&'a Seen<'a>>,
}

impl Seen<'_> {
    fn contains(&self, name: &str) -> bool {
        self.names.contains(name) || self.outer.is_some_and(|outer| outer.contains(name))
    }
}

/// Its dims could say anything, and a runtime makes it dense.
fn sparse(name: &str) -> String {
    format!("tensor `{}` is sparse; export it with all its elements", brief(name))
}

/// Nodes of a graph and of those inside it.
fn nodes(graph: &wire::Graph) -> usize {
    let inner = |node: &wire::Node| graphs_of(node).map(nodes).sum::<usize>();
    graph.nodes.len() + graph.nodes.iter().map(inner).sum::<usize>()
}

/// The graphs inside a node.
pub(super) fn graphs_of(node: &wire::Node) -> impl Iterator<Item = &wire::Graph> {
    node.attributes.iter().flat_map(|attribute| attribute.graph.as_deref().into_iter().chain(&attribute.graphs))
}

impl Reader {
    /// A graph inside nodes of these names, which sees these tensors of theirs.
    fn graph(&mut self, graph: &wire::Graph, within: &str, outer: Option<&Seen<'_>>) {
        let mut seen = Seen { names: BTreeSet::new(), outer };
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
        let mut made: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, node) in graph.nodes.iter().enumerate() {
            for output in node.outputs.iter().filter(|output| !output.is_empty()) {
                if made.insert(output, at).is_some() {
                    self.wrong.push(|| format!("tensor `{}` is made by two nodes", brief(output)));
                }
            }
        }
        for node in &graph.nodes {
            for input in node.inputs.iter().filter(|input| !input.is_empty()) {
                if !seen.contains(input) && !made.contains_key(input.as_str()) {
                    let what = || format!("{} takes `{}`, which is nowhere in the model", name_of(node), brief(input));
                    self.wrong.push(what);
                }
            }
        }
        for output in &graph.outputs {
            if !seen.contains(&output.name) && !made.contains_key(output.name.as_str()) {
                self.wrong.push(|| format!("the output `{}` is nowhere in the model", brief(&output.name)));
            }
        }
        match order(graph) {
            Err(node) => self.wrong.push(|| format!("{} waits for itself: the graph is a circle", name_of(node))),
            Ok(order) => {
                let mut depths = vec![1; graph.nodes.len()];
                for at in order {
                    let before = graph.nodes[at].inputs.iter().filter_map(|input| made.get(input.as_str()));
                    depths[at] = 1 + before.map(|before| depths[*before]).max().unwrap_or(0);
                    self.depth = self.depth.max(depths[at]);
                }
            }
        }
        seen.names.extend(made.keys().copied());
        for node in &graph.nodes {
            let name = brief(label(node));
            let path =
                if within.is_empty() { name.to_string() } else { brief(&format!("{within}/{name}")).into_owned() };
            let id = match node.domain.as_str() {
                "" | "ai.onnx" => node.op.clone(),
                domain => format!("{domain}.{}", node.op),
            };
            self.ops.push(Op { id, node: path.clone() });
            for attribute in &node.attributes {
                if attribute.sparse.is_some() || !attribute.sparses.is_empty() {
                    self.wrong.push(|| sparse(label(node)));
                }
                for tensor in attribute.tensor.iter().chain(&attribute.tensors) {
                    self.tensor(tensor, &name);
                }
            }
            graphs_of(node).for_each(|inner| self.graph(inner, &path, Some(&seen)));
        }
    }

    /// Notes a constant tensor, and whether its data can be what its type and shape say.
    fn tensor(&mut self, tensor: &wire::Tensor, name: &str) {
        match self.weight(tensor, name) {
            Ok(weight) => self.weights.push(weight),
            Err(why) => self.wrong.push(|| format!("tensor `{}` {why}", brief(name))),
        }
    }

    fn weight(&self, tensor: &wire::Tensor, name: &str) -> Result<Weight, String> {
        let (elem, bits) = elem_of(tensor.elem);
        if let Some(dim) = tensor.dims.iter().find(|dim| **dim < 0) {
            return Err(format!("has a dim of length {dim}"));
        }
        let dims: Vec<u64> = tensor.dims.iter().map(|dim| *dim as u64).collect();
        let elements = dims.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim));
        let Some(elements) = elements.filter(|n| n.checked_mul(bits.max(1)).is_some()) else {
            return Err(format!("has the shape {dims:?}, which no memory holds"));
        };
        let bytes = (elements * bits).div_ceil(8);
        let mut external = None;
        if tensor.location == 1 {
            let entry = |key: &str| tensor.external.iter().find(|entry| entry.key == key).map(|entry| &*entry.value);
            let number = |key: &str, default: u64| match entry(key).map(str::parse) {
                None => Ok(default),
                Some(Ok(number)) => Ok(number),
                Some(Err(_)) => Err(format!("lies in another file at {key} `{}`", entry(key).unwrap_or_default())),
            };
            let (offset, length) = (number("offset", 0)?, number("length", bytes)?);
            if bits > 0 && length != bytes {
                return Err(format!("has {length} bytes in another file; {elem}{dims:?} takes {bytes}"));
            }
            external = Some(External { file: entry("location").unwrap_or_default().to_string(), offset, length });
        } else {
            match &tensor.raw {
                Some(raw) if bits > 0 && raw.len() as u64 != bytes => {
                    return Err(format!("has {} bytes; {elem}{dims:?} takes {bytes}", raw.len()));
                }
                // Written number by number, each takes a byte at least, unless two share one.
                None if elements / 2 > self.file_bytes => {
                    return Err(format!("has {elements} elements, in a file of {} bytes", self.file_bytes));
                }
                _ => {}
            }
        }
        Ok(Weight { name: name.to_string(), elem, dims, external })
    }
}

/// What a node is called.
pub(super) fn label(node: &wire::Node) -> &str {
    match (node.name.as_str(), node.outputs.first()) {
        ("", Some(output)) => output,
        (name, _) => name,
    }
}

pub(super) fn name_of(node: &wire::Node) -> String {
    format!("node `{}` ({})", brief(label(node)), brief(&node.op))
}

/// The nodes of a graph, each behind those that make what it takes.
///
/// # Errors
/// A node that needs what is made from its own outputs.
pub(super) fn order(graph: &wire::Graph) -> Result<Vec<usize>, &wire::Node> {
    let outputs =
        graph.nodes.iter().enumerate().flat_map(|(at, node)| node.outputs.iter().map(move |o| (o.as_str(), at)));
    let made: BTreeMap<&str, usize> = outputs.filter(|(output, _)| !output.is_empty()).collect();
    let sources = |node: &wire::Node| -> Vec<usize> {
        node.inputs.iter().filter_map(|input| made.get(input.as_str()).copied()).collect()
    };
    let mut waits = vec![0; graph.nodes.len()];
    let mut takers = vec![Vec::new(); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        let sources = sources(node);
        waits[at] = sources.len();
        sources.into_iter().for_each(|source| takers[source].push(at));
    }
    let mut order: Vec<usize> = (0..waits.len()).filter(|at| waits[*at] == 0).collect();
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        next += 1;
        for taker in &takers[at] {
            waits[*taker] -= 1;
            if waits[*taker] == 0 {
                order.push(*taker);
            }
        }
    }
    match waits.iter().position(|waits| *waits > 0) {
        Some(at) => Err(&graph.nodes[at]),
        None => Ok(order),
    }
}
