//! What an ONNX file says of itself: inputs, outputs, operators and weights, read without loading any.
//!
//! Runtimes believe what a file says. A damaged byte can make one allocate until the process is aborted, or go round in
//! circles for ever, and neither can be caught as a panic can. So the form of the file is checked here, before any of
//! them reads it.

use super::contents::{Contents, Op, Weight};
use super::input::{Input, Length, Unbound};
use super::wire;
use crate::base::{check_sum, port_name, sha256};
use limen::backend::BackendError;
use prost::Message;
use prost::bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

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
        let Contents { ops, depth, weights: constants } = Contents::read(&graph, file.len() as u64)?;
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
            ops,
            depth,
            weights: constants,
            opset: opsets.iter().find(opset).map_or(0, |o| o.version),
            sha256: sha256(file),
            files: BTreeMap::new(),
        };
        distinct(outline.inputs.iter().map(|input| &input.port))?;
        distinct(outline.outputs.iter().map(|output| &output.port))?;
        Ok((outline, graph))
    }

    /// The SHA-256 of its file, under an empty name, and of the files of its weights.
    pub(crate) fn sums(&self) -> BTreeMap<String, String> {
        let mut sums = self.files.clone();
        sums.insert(String::new(), self.sha256.clone());
        sums
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

fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), BackendError> {
    let mut seen = BTreeSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(BackendError::Unsupported(format!("two tensors of the model would both be port `{name}`"))),
        None => Ok(()),
    }
}
