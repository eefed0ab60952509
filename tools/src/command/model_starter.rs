//! `limen-run new FOLDER --model FILE`: a graph that runs a model, or two, from what their files
//! say.
//!
//! Names and shapes only hint at what a model expects: the graph says in comments what was guessed,
//! and runs as it stands, on data that is written beside it.

mod bound;
mod chain;
mod given;
mod model;
mod nodes;
mod sample;
mod side;
mod states;
mod ultralytics;

use crate::text::escape::one_line;
use crate::text::paragraph::{WIDTH, wrapped};
use clap::ValueEnum;
use given::{Given, ITEMS, OpenLengths, SIZE_OF_METADATA, items};
use limen::message::PortSpec;
use limen_infer::{Inspection, RecordRequest};
use model::Model;
use nodes::{Known, Nodes};
use sample::RATE;
use side::Side;
use states::States;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use ultralytics::Ultralytics;

/// Heights and widths for images whose size the model leaves open, in the order in which they are
/// tried.
const SIDES: [[usize; 2]; 4] = [[320, 320], [48, 320], [224, 224], [640, 640]];

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
    pub(super) records: Vec<RecordCase>,
    /// What the graph does that a user has to know.
    pub(super) warnings: Vec<String>,
}

/// How to record a case of a model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordCase {
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
    /// The types of the models' outputs by `node/port`, as far as planning has found them; `None`
    /// if it was not asked.
    pub(super) ports: Option<BTreeMap<String, PortSpec>>,
    /// Why there are no states, though names and shapes show some.
    pub(super) no_states: Option<String>,
    /// Whether the first dims of the model's inputs are not a batch; `None` if its outputs decide.
    pub(super) no_batch: Option<bool>,
    /// The outputs, as `node/port`, that need no greatest lengths.
    pub(super) exact: BTreeSet<String>,
    /// Whether no output has greatest lengths.
    pub(super) is_exact: bool,
}

impl Tried {
    /// Whether an output needs no greatest lengths.
    fn is_exact(&self, node: &str, port: &str) -> bool {
        self.is_exact || self.exact.contains(&format!("{node}/{port}"))
    }
}

/// Returns the heights and widths to try for images whose size the models leave open, in their
/// order.
pub(super) fn sides(models: &[(Inspection, String)]) -> Vec<[usize; 2]> {
    let trained = models.first().and_then(|(found, _)| Ultralytics::of(found)).and_then(|trained| trained.sides);
    trained.into_iter().chain(SIDES).collect()
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
    /// When a file is not a model or does not declare its inputs, or there is no graph for these
    /// models.
    pub(super) fn of(
        models: &[(Inspection, String)],
        name: &str,
        asked: Option<InputKind>,
        tried: &Tried,
    ) -> Result<Self, String> {
        let read = |(found, file): &(Inspection, String)| {
            Model::of(found, file).map_err(|why| if models.len() > 1 { format!("`{file}`: {why}") } else { why })
        };
        let mut models: Vec<Model> = models.iter().map(read).collect::<Result<_, _>>()?;
        if let [model] = &mut models[..] {
            let why = match tried.no_batch {
                None => model.declares_no_batch(),
                Some(true) => Some("the model does not run with this dim as a batch".into()),
                Some(false) => None,
            };
            why.into_iter().for_each(|why| model.without_batch(why));
        }
        ModelStarter::for_models(&models, name, asked, tried)
    }

    fn for_models(models: &[Model], name: &str, asked: Option<InputKind>, tried: &Tried) -> Result<Self, String> {
        let mut nodes = Nodes::default();
        match models {
            [model] => single(&mut nodes, model, asked, tried)?,
            [first, second] => chain::chain(&mut nodes, first, second, asked, tried)?,
            other => {
                return Err(format!(
                    "expected one model, or two (a detector, and a model for each part that the detector finds), found {}",
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

    /// Returns the graph with a comment that says why it does not run.
    pub(super) fn graph_with(&self, reason: &str) -> String {
        let reason = one_line(&format!("It does not run yet: {reason}"));
        let (head, rest) = self.graph.split_once("version: 1").unwrap_or(("", &self.graph));
        let comment: String = wrapped(&reason, WIDTH - 2).lines().map(|line| format!("# {line}\n")).collect();
        format!("{head}{comment}version: 1{rest}")
    }
}

/// Adds the nodes for one model.
fn single(nodes: &mut Nodes, model: &Model, asked: Option<InputKind>, tried: &Tried) -> Result<(), String> {
    let found = States::of(model);
    let (states, notes) = match &tried.no_states {
        Some(why) if !found.pairs.is_empty() => {
            let pairs = found.pairs.iter().map(|(input, output)| format!("`{input}` and `{output}`"));
            let pairs = pairs.collect::<Vec<_>>().join(", ");
            (Vec::new(), vec![format!("{pairs} look like a state, but cannot be a state here: {}", one_line(why))])
        }
        _ => (found.pairs, found.notes),
    };
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
    let mut open = OpenLengths::of(model, tried.sides);
    let mut given: Vec<Given> = std::iter::zip(&ports, sounds)
        .map(|(side, is_sound)| Given::of(side, tried.sides, is_sound, asked, &mut open))
        .collect::<Result<_, _>>()?;
    if model.trained.as_ref().is_some_and(|trained| trained.sides == Some(tried.sides)) {
        let frames =
            given.iter_mut().filter_map(|given| if let Given::Image(frame) = given { Some(frame) } else { None });
        frames.for_each(|frame| frame.about = frame.about.and(Some(SIZE_OF_METADATA)));
    }
    let layout = match &given[..] {
        [Given::Image(frame)] => model.yolo_layout(*frame, tried.models.get("model")),
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
        inputs.push(format!("{}: {from}", nodes::port(&side.port)));
    }
    for side in &constant {
        request.constants.insert(side.port.clone(), f64::from(RATE));
        inputs.push(format!("{}: {{ value: {RATE} }}", nodes::port(&side.port)));
    }
    let name = nodes.infer("model", model, &inputs, request, notes, tried);
    let mut outputs = model.outputs.iter().filter(|output| !is_state(&output.port));
    if let Some(layout) = &layout
        && let Some(output) = outputs.next()
    {
        let placed = nodes.boxes(layout, None, &format!("{name}/{}", output.port));
        nodes.objects("boxes", &format!("boxes: {placed}"), "");
        if !layout.names.is_empty() {
            nodes.drawn(&layout.names, "camera/image", &placed);
        }
    }
    outputs.for_each(|output| nodes.sink(&name, output, tried));
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
        "{} cannot be the `--input` of a model that expects {}: remove `--input`, or write {}",
        name(&asked),
        Model::show(model.inputs.iter().map(|side| (&*side.port, Some(side)))),
        fitting.map(name).collect::<Vec<_>>().join(" or ")
    )
}

#[cfg(test)]
mod tests;
