//! The outline of an ONNX file: inputs, outputs, operators and weights, read without a runtime.
//!
//! Runtimes trust the file. A damaged byte can make one allocate until the process is aborted, or
//! loop forever, and neither can be caught as a panic can. So the structure of the file is checked
//! here, before a runtime reads it.

use super::contents::{Contents, Op, Weight};
use super::elem::Elem;
use super::elems::Elems;
use super::input::{Input, LeadingDim, Length, Unbound};
use super::lengths::{ValueShaped, decided_by_values};
use super::node::order;
use super::wire;
use crate::base::{check_sum, port_name};
use limen::backend::BackendError;
use limen::message::Dim;
use prost::Message;
use prost::bytes::Bytes;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The outline of an ONNX file.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Inputs, in the model's order.
    pub inputs: Vec<Input>,
    /// Outputs that are tensors, in the model's order. Sequences and maps, which no port carries,
    /// are left out.
    pub outputs: Vec<Output>,
    /// The port names of the other outputs.
    pub left_out: Vec<String>,
    /// Operators, including those of subgraphs.
    pub ops: Vec<Op>,
    /// The length of the longest chain of operators.
    pub depth: usize,
    /// The tensors that are stored in the file.
    pub weights: Vec<Weight>,
    /// The version of the standard ONNX operator set.
    pub opset: i64,
    /// Notes of the exporter by key, such as the symbols that a model reads; texts of at most 1 MiB
    /// in all.
    pub metadata: BTreeMap<String, String>,
    /// The SHA-256 of its file, in hexadecimal digits.
    pub sha256: String,
    /// The files beside it that hold its weights, with the SHA-256 of each.
    pub files: BTreeMap<String, String>,
    /// Whether the first dim of its inputs may be a batch.
    pub(super) has_batch: bool,
    /// What bounds the lengths that depend on values, if an output has such.
    pub(super) value_shaped: Option<Arc<ValueShaped>>,
}

/// An output of a model.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its name in the model.
    pub name: String,
    /// Its port name.
    pub port: String,
    /// Its declaration, if it has one; only a call shows the actual shape.
    pub declared: Option<Input>,
    /// Its element type, if it is declared or follows from its operators, and a port can carry it.
    pub elem: Option<Elem>,
    /// Whether operators whose output shape depends on values come before it.
    pub depends_on_values: bool,
}

/// The shape of one item of each input, in order, and the length of each symbolic dim.
#[derive(Clone, Debug)]
pub(crate) struct BoundShapes {
    pub(crate) items: Vec<Vec<Dim>>,
    pub(crate) symbols: BTreeMap<String, Dim>,
}

impl Outline {
    /// Reads and checks the outline of a file with the SHA-256 `sum`, and returns its graph too for
    /// further checks.
    ///
    /// # Errors
    /// When the file is malformed or contradictory; names the tensor or node.
    pub(super) fn read(file: &Bytes, sum: String) -> Result<(Outline, wire::Graph), BackendError> {
        let model = match wire::Model::decode(file.clone()) {
            Ok(model) if model.ir_version.is_some() && model.graph.is_some() => model,
            other => {
                // Every exporter writes the field `ir_version` first; other files rarely begin with
                // these bytes.
                let why = match other {
                    Err(why) if matches!(file[..], [8, 1..=32, ..]) && file.len() > 2 => {
                        format!("the ONNX model is truncated or damaged: {why}")
                    }
                    _ => format!("expected an ONNX model, found {} bytes of another format", file.len()),
                };
                return Err(BackendError::Model(why));
            }
        };
        let wire::Model { graph, opsets, functions, metadata, .. } = model;
        if let Some(first) = functions.first() {
            let why = format!(
                "the model defines local functions, such as `{}`: inline all functions with \
                 `onnx.inliner.inline_local_functions`",
                first.name
            );
            return Err(BackendError::Unsupported(why));
        }
        let Some(graph) = graph else { return Err(BackendError::Model("the model contains no graph".into())) };
        let Contents { ops, depth, weights: constants } = Contents::read(&graph, &opsets, file.len() as u64)?;
        let opset = |o: &&wire::OpSet| o.domain.is_empty() || o.domain == "ai.onnx";
        let weights: HashSet<&str> = graph.initializers.iter().map(|w| w.name.as_str()).collect();
        let elems = Elems::of(&graph, &order(&graph).unwrap_or_default(), None);
        let dependent = decided_by_values(&graph, &HashSet::new());
        let inputs = graph.inputs.iter().filter(|input| !weights.contains(input.name.as_str()));
        let outline = Outline {
            inputs: inputs.map(Input::read).collect::<Result<_, _>>().map_err(BackendError::Unsupported)?,
            outputs: graph
                .outputs
                .iter()
                .filter(|output| is_tensor(output))
                .map(|output| Output {
                    name: output.name.clone(),
                    port: port_name(&output.name),
                    declared: Input::read(output).ok(),
                    elem: elems.get(&output.name).and_then(Elem::of),
                    depends_on_values: dependent.contains_key(output.name.as_str()),
                })
                .collect(),
            left_out: graph.outputs.iter().filter(|output| !is_tensor(output)).map(|o| port_name(&o.name)).collect(),
            ops,
            depth,
            weights: constants,
            opset: opsets.iter().find(opset).map_or(0, |o| o.version),
            metadata: texts(&metadata),
            sha256: sum,
            files: BTreeMap::new(),
            has_batch: true,
            value_shaped: None,
        };
        if outline.outputs.is_empty() && !graph.outputs.is_empty() {
            return Err(BackendError::Unsupported(
                "an output of the model must be a tensor, got only sequences or maps".into(),
            ));
        }
        distinct(outline.inputs.iter().map(|input| &input.port))?;
        distinct(outline.outputs.iter().map(|output| &output.port))?;
        Ok((outline, graph))
    }

    /// Makes the first dim of each input part of an item.
    pub(super) fn remove_batch(&mut self) {
        self.has_batch = false;
        self.inputs.iter_mut().for_each(|input| input.lead = LeadingDim::None);
    }

    /// Returns the SHA-256 of its file, under the empty name, and of each file of weights.
    pub(crate) fn sums(&self) -> BTreeMap<String, String> {
        let mut sums = self.files.clone();
        sums.insert(String::new(), self.sha256.clone());
        sums
    }

    /// Compares the SHA-256 of the file with the expected one.
    pub(crate) fn check_sum(&self, expected: &str) -> Result<(), String> {
        check_sum(&self.sha256, expected)
    }

    /// Returns the number of elements of all weights.
    pub fn parameters(&self) -> u64 {
        self.weights.iter().map(|w| w.dims.iter().product::<u64>()).sum()
    }

    /// Binds every symbolic dim to a length, or to a greatest one, from the connected shapes
    /// `given`. `batch_dims` has the index of each input's batch dim.
    pub(crate) fn bind(
        &self,
        given: &BTreeMap<String, Vec<Dim>>,
        batch_dims: &[Option<usize>],
    ) -> Result<BoundShapes, Vec<Unbound>> {
        let mut lengths: HashMap<&str, (&Dim, &str)> = HashMap::new();
        let mut wrong = Vec::new();
        for (input, batch_dim) in self.inputs.iter().zip(batch_dims) {
            let Some(shape) = given.get(&input.port) else { continue };
            let item = input.item(*batch_dim);
            if shape.len() != item.len() {
                // Fixed dims need no binding; planning compares the specs and reports the mismatch.
                if !item.iter().any(|dim| matches!(dim, Length::Symbol(_))) {
                    continue;
                }
                let shape: Vec<String> = shape.iter().map(Dim::to_string).collect();
                let shape = shape.join(", ");
                let why = format!("expected {} as one item, found [{shape}]", input.show(*batch_dim));
                wrong.push(input.unbound(why));
                continue;
            }
            for (dim, length) in item.into_iter().zip(shape) {
                let Length::Symbol(symbol) = dim else { continue };
                match lengths.get(symbol.as_str()) {
                    Some((other, at)) if *other != length => {
                        wrong
                            .push(input.unbound(format!("dim `{symbol}` must be {other}, as at `{at}`, got {length}")));
                    }
                    Some(_) => {}
                    None => _ = lengths.insert(symbol, (length, &input.port)),
                }
            }
        }
        let mut items = Vec::new();
        for (input, batch_dim) in self.inputs.iter().zip(batch_dims) {
            let mut item = Vec::new();
            for dim in input.item(*batch_dim) {
                match dim {
                    Length::Fixed(length) => item.push(Dim::Fixed(*length)),
                    Length::Symbol(symbol) => match lengths.get(symbol.as_str()) {
                        Some((length, _)) if length.max().is_some_and(|most| most > 0) => item.push((*length).clone()),
                        _ if wrong.iter().any(|w: &Unbound| w.input == input.port) => {}
                        _ => {
                            let item = input.show(*batch_dim);
                            let why = format!(
                                "dim `{symbol}` of {item} has no length: connect a node whose output has a known size"
                            );
                            wrong.push(Unbound { symbol: Some(symbol.clone()), ..input.unbound(why) });
                        }
                    },
                }
            }
            items.push(item);
        }
        // Not collected: that would compile a sort for them.
        let mut symbols = BTreeMap::new();
        symbols.extend(lengths.into_iter().map(|(symbol, (length, _))| (symbol.to_string(), length.clone())));
        if wrong.is_empty() { Ok(BoundShapes { items, symbols }) } else { Err(wrong) }
    }
}

/// The most metadata that is kept of a model, in bytes.
const MAX_METADATA: usize = 1 << 20;

/// Returns those entries that are text, as long as there is room.
fn texts(metadata: &[wire::Metadata]) -> BTreeMap<String, String> {
    let mut room = MAX_METADATA;
    let text = |bytes: &Bytes| std::str::from_utf8(bytes).ok().map(str::to_string);
    let kept = metadata.iter().filter_map(|entry| {
        // An entry takes memory even if it is empty.
        let left = room.checked_sub(entry.key.len() + entry.value.len() + size_of::<(String, String)>())?;
        let kept = (text(&entry.key)?, text(&entry.value)?);
        room = left;
        Some(kept)
    });
    kept.collect()
}

/// Whether an output is a tensor, as far as it says.
fn is_tensor(output: &wire::ValueInfo) -> bool {
    output.kind.as_ref().is_none_or(|kind| kind.tensor.is_some())
}

impl Outline {
    /// Returns the inputs that have a symbolic dim, and its place in their items.
    pub(super) fn dims_named(&self, symbol: &str, batch_dims: &[Option<usize>]) -> Vec<(usize, usize)> {
        let dims = |(at, (input, batch_dim)): (usize, (&Input, &Option<usize>))| {
            let is_named = |length: &Length| matches!(length, Length::Symbol(name) if name == symbol);
            let item = input.item(*batch_dim);
            (0..item.len()).filter(|dim| is_named(item[*dim])).map(|dim| (at, dim)).collect::<Vec<_>>()
        };
        self.inputs.iter().zip(batch_dims).enumerate().flat_map(dims).collect()
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), BackendError> {
    let mut seen = HashSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(BackendError::Unsupported(format!(
            "port names must be unique, got `{name}` for two tensors of the model"
        ))),
        None => Ok(()),
    }
}
