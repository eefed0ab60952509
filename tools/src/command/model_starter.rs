//! `limen-run new FOLDER --model FILE`: a graph that runs a model, or two, from what their files say.
//!
//! Names and shapes only hint at what a model expects: the graph says in comments what was guessed, and runs as it stands, on data
//! that is written beside it.

mod bound;
mod chain;
mod given;
mod model;
mod nodes;
mod sample;
mod side;

use crate::text::escape::one_line;
use clap::ValueEnum;
use given::{Given, ITEMS, items};
use limen_backends::{Inspection, RecordRequest};
use model::Model;
use nodes::{Known, Nodes};
use sample::RATE;
use side::Side;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Heights and widths for images whose size the model leaves open, in the order in which they are tried.
pub(super) const SIDES: [[usize; 2]; 4] = [[320, 320], [48, 320], [224, 224], [640, 640]];

/// Where the messages of a graph come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputKind {
    /// Image files.
    Images,
    /// A camera; until there is one, generated images.
    Camera,
    /// A WAV file.
    Wav,
    /// A NumPy array.
    Npy,
}

/// A graph for models, and the files that it reads.
#[derive(Debug)]
pub(super) struct ModelStarter {
    pub(super) graph: String,
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// The case to record of each model.
    pub(super) records: Vec<Record>,
    /// What the graph does that a user has to know.
    pub(super) warnings: Vec<String>,
}

/// How to record a case of a model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    /// The node that runs the model.
    pub(super) node: String,
    /// The model's file.
    pub(super) file: String,
    /// The file for the case.
    pub(super) case: String,
    pub(super) request: RecordRequest,
}

/// What trying the models has shown so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// Height and width for images whose size a model leaves open.
    pub(super) sides: [usize; 2],
    /// By the name of the node.
    pub(super) models: BTreeMap<String, TriedModel>,
}

/// What trying a model has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct TriedModel {
    pub(super) has_case: bool,
    /// The greatest length that an output gave.
    pub(super) longest: BTreeMap<String, usize>,
    /// The greatest number that an output gave.
    pub(super) greatest: BTreeMap<String, f32>,
}

impl ModelStarter {
    /// Writes a graph for models, each with its path from the graph's folder.
    ///
    /// # Errors
    /// When a file is not a model or does not declare its inputs, or there is no graph for these models.
    pub(super) fn of(
        models: &[(Inspection, String)],
        name: &str,
        asked: Option<InputKind>,
        tried: &Tried,
    ) -> Result<Self, String> {
        let read = |(found, file): &(Inspection, String)| {
            Model::of(found, file).map_err(|why| if models.len() > 1 { format!("`{file}`: {why}") } else { why })
        };
        let models: Vec<Model> = models.iter().map(read).collect::<Result<_, _>>()?;
        ModelStarter::for_models(&models, name, asked, tried)
    }

    fn for_models(models: &[Model], name: &str, asked: Option<InputKind>, tried: &Tried) -> Result<Self, String> {
        let mut nodes = Nodes::default();
        match models {
            [model] => single(&mut nodes, model, asked, tried)?,
            [first, second] => chain::chain(&mut nodes, first, second, asked, tried)?,
            other => {
                return Err(format!(
                    "{} models; a graph begins with one, or with two: a detector, and a model for each part that it finds",
                    other.len()
                ));
            }
        }
        let files: Vec<String> = models.iter().map(|model| one_line(&model.file)).collect();
        let files = files.join(" and ");
        let says = if models.len() == 1 { "its file says" } else { "their files say" };
        let mut graph =
            format!("# Runs {files}, as far as {says} how.\n# `limen-run explain KIND` describes a kind of node.\n");
        let _ = writeln!(graph, "version: 1\ngraph: {name}\nnodes:\n{}", nodes.text.trim_end());
        let Nodes { files, records, warnings, .. } = nodes;
        Ok(ModelStarter { graph, files, records, warnings })
    }
}

/// Adds the nodes for one model.
fn single(nodes: &mut Nodes, model: &Model, asked: Option<InputKind>, tried: &Tried) -> Result<(), String> {
    let states = model.states();
    let is_state = |port: &str| states.iter().any(|(input, output)| input == port || output == port);
    let inputs = || model.inputs.iter().filter(|input| !is_state(&input.port));
    // A rate without another input is data.
    let is_alone = inputs().all(Side::is_sample_rate);
    let (constant, ports): (Vec<&Side>, Vec<&Side>) = inputs().partition(|input| input.is_sample_rate() && !is_alone);
    if let Some(asked) = asked.filter(|asked| !ports.iter().any(|side| asked.fits(side))) {
        return Err(wrong_input(model, &ports, asked));
    }
    let has_rate = !constant.is_empty();
    let sounds = sounds(&ports, asked, has_rate, !states.is_empty());

    let mut inputs = Vec::new();
    let mut request = RecordRequest { items: ITEMS, states: states.clone(), ..RecordRequest::default() };
    let given: Vec<Given> = std::iter::zip(&ports, sounds)
        .map(|(side, is_sound)| Given::of(side, tried.sides, is_sound, asked))
        .collect::<Result<_, _>>()?;
    let layout = match (&given[..], &model.outputs[..]) {
        ([Given::Image(frame)], [output]) => {
            output.yolo_form().map(|form| output.yolo_layout(form, *frame, tried.models.get("model")))
        }
        _ => None,
    };
    // Arrays of one length, so that no message is left alone.
    request.items = given.iter().map(|given| items(&given.shape())).fold(ITEMS, usize::min);
    let known = Known { asked, has_rate, has_others: ports.len() > 1, items: request.items };
    for (at, (side, given)) in std::iter::zip(&ports, &given).enumerate() {
        request.shapes.insert(side.port.clone(), given.shape());
        let from = nodes.source(side, given, layout.as_ref(), known);
        // A state belongs to the messages of one input.
        let is_stream = at == 0 && !states.is_empty() && ports.len() > 1;
        let from = if is_stream { format!("{{ from: {from}, stream: true }}") } else { from };
        inputs.push(format!("{}: {from}", side.port));
    }
    for side in &constant {
        request.constants.insert(side.port.clone(), f64::from(RATE));
        inputs.push(format!("{}: {{ value: {RATE} }}", side.port));
    }
    let name = nodes.infer("model", model, &inputs, request, tried);
    for output in model.outputs.iter().filter(|output| !is_state(&output.port)) {
        match layout {
            Some(ref layout) => {
                let placed = nodes.boxes(layout, None, &format!("{name}/{}", output.port));
                nodes.objects("boxes", &format!("boxes: {placed}"), "");
            }
            None => nodes.sink(&name, output),
        }
    }
    Ok(())
}

/// Returns which of the inputs are recordings.
fn sounds(ports: &[&Side], asked: Option<InputKind>, has_rate: bool, has_state: bool) -> Vec<bool> {
    let is_asked = asked == Some(InputKind::Wav);
    let is_sound = |side: &&Side| {
        let is_input = has_state && (side.port == "input" || side.port.starts_with("input_"));
        InputKind::Wav.fits(side) && (side.says_sound() || side.may_be_sound() && (has_rate || is_input))
    };
    let sounds: Vec<bool> = ports.iter().map(is_sound).collect();
    match asked {
        Some(InputKind::Wav) | None if sounds.contains(&true) => sounds,
        _ => ports.iter().map(|side| is_asked && InputKind::Wav.fits(side)).collect(),
    }
}

/// Says which values of `--input` there are for a model.
fn wrong_input(model: &Model, ports: &[&Side], asked: InputKind) -> String {
    let name =
        |kind: &InputKind| kind.to_possible_value().map_or(String::new(), |value| format!("`{}`", value.get_name()));
    let fitting = InputKind::value_variants().iter().filter(|kind| ports.iter().any(|side| kind.fits(side)));
    format!(
        "{} cannot be the `--input` of a model that takes {}: leave it out, or write {}",
        name(&asked),
        Model::show(model.inputs.iter().map(|side| (&*side.port, Some(side)))),
        fitting.map(name).collect::<Vec<_>>().join(" or ")
    )
}

#[cfg(test)]
mod tests;
