//! `limen-run new FOLDER --model FILE`: a graph that runs a model, from what its file says.
//!
//! Names and shapes only hint at what a model expects: the graph says in comments what was guessed, and runs as it stands, on data
//! that is written beside it.

use crate::text::escape::one_line;
use limen_backends::{Binding, Inspection, RecordRequest};
use std::fmt::Write;

/// Heights and widths for images whose size the model leaves open, in the order in which they are tried.
pub(super) const SIDES: [[usize; 2]; 4] = [[320, 320], [48, 320], [224, 224], [640, 640]];
/// Lengths for other dims that the model leaves open.
const SAMPLES: usize = 512;
const TOKENS: usize = 16;
/// Items of the data that is written beside a graph: at most so many, and at least three.
const ITEMS: usize = 32;
/// About how many bytes they have.
const BYTES: usize = 4 << 20;
/// The largest item of an input in bytes.
const MAX_ITEM: usize = 64 << 20;
/// Samples per second of the sound that is written beside a graph.
const RATE: u32 = 16_000;
/// The largest output that is written as a row of a table.
const MAX_COLUMNS: usize = 32;

/// Where the messages of a graph come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
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

/// A graph for a model, and the files that it reads.
#[derive(Debug)]
pub(super) struct ModelStarter {
    pub(super) graph: String,
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// How to record a case of the model; without the path.
    pub(super) record: RecordRequest,
}

/// A dim as the model declares it.
#[derive(Clone, Debug, PartialEq)]
enum Length {
    Fixed(usize),
    Open(String),
}

impl Length {
    fn or(&self, open: usize) -> usize {
        match self {
            Length::Fixed(length) => *length,
            Length::Open(_) => open,
        }
    }
}

/// An input or output of the model.
#[derive(Clone, Debug)]
struct Side {
    port: String,
    dtype: String,
    shape: Vec<Length>,
}

impl Side {
    /// Reads `f32[n,3,8,8]`; `None` without a declared type.
    fn of(binding: &Binding) -> Option<Side> {
        let (dtype, dims) = binding.spec.as_ref()?.split_once('[')?;
        let mut depth = 0;
        // The name of a dim may be an expression: `floor(a,2)`.
        let is_end = |letter: char| {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            letter == ',' && depth == 0
        };
        let dims = dims.strip_suffix(']')?.split(is_end).filter(|dim| !dim.is_empty());
        let length = |dim: &str| dim.parse().map_or_else(|_| Length::Open(dim.to_string()), Length::Fixed);
        Some(Side { port: binding.port.clone(), dtype: dtype.to_string(), shape: dims.map(length).collect() })
    }

    /// The shape of one item, without the batch.
    fn item(&self) -> &[Length] {
        match self.shape.split_first() {
            Some((Length::Open(_) | Length::Fixed(1), item)) => item,
            _ => &self.shape,
        }
    }

    /// Whether it has the lengths of another side, as far as both declare them.
    fn is_like(&self, other: &Side) -> bool {
        let same = |(a, b): (&Length, &Length)| a == b || matches!(a, Length::Open(_)) || matches!(b, Length::Open(_));
        self.dtype == other.dtype
            && self.shape.len() == other.shape.len()
            && std::iter::zip(&self.shape, &other.shape).all(same)
    }

    /// The name without what tells an input from an output: `state` for `state_in`, `stateN` and `next_state`.
    fn stem(&self) -> String {
        let words = ["next", "new", "prev", "past", "present", "in", "out", "input", "output", "n", "0", "1", "t"];
        let mut stem = self.port.clone();
        loop {
            let before = stem.clone();
            for word in words {
                for (head, tail) in [(format!("{word}_"), String::new()), (String::new(), format!("_{word}"))] {
                    let rest = stem.strip_prefix(&head).and_then(|rest| rest.strip_suffix(&tail));
                    stem = rest.filter(|rest| !rest.is_empty()).map_or(stem.clone(), str::to_string);
                }
            }
            for ending in ["n", "0", "out", "in"] {
                let rest = stem.strip_suffix(ending).filter(|rest| !rest.is_empty() && self.shape.len() > 1);
                stem = rest.map_or(stem.clone(), |rest| rest.trim_end_matches('_').to_string());
            }
            if stem == before || stem.is_empty() {
                return before;
            }
        }
    }

    fn elements(&self) -> Option<usize> {
        let lengths = self.item().iter().map(|length| if let Length::Fixed(n) = length { Some(*n) } else { None });
        lengths.product()
    }
}

/// What a graph gives to an input.
enum Given {
    /// Height, width, channels, and whether the channels come first.
    Image {
        height: usize,
        width: usize,
        channels: usize,
        is_planar: bool,
    },
    /// Samples of a message.
    Sound(usize),
    Array(Vec<usize>),
}

impl Given {
    fn of(side: &Side, [high, wide]: [usize; 2], is_sound: bool, asked: Option<InputKind>) -> Given {
        let channels = |length: &Length| matches!(length, Length::Fixed(1 | 3));
        let is_number = matches!(&*side.dtype, "f32" | "f16" | "u8");
        let kind = |kinds: &[InputKind]| asked.is_none_or(|asked| kinds.contains(&asked));
        let image = |height: &Length, width: &Length, c: &Length, is_planar| Given::Image {
            height: height.or(high),
            width: width.or(wide),
            channels: c.or(3),
            is_planar,
        };
        match side.item() {
            [c, h, w] if is_number && channels(c) && kind(&[InputKind::Images, InputKind::Camera]) => {
                image(h, w, c, true)
            }
            [h, w, c] if is_number && channels(c) && kind(&[InputKind::Images, InputKind::Camera]) => {
                image(h, w, c, false)
            }
            [samples]
                if side.dtype == "f32" && (is_sound || asked == Some(InputKind::Wav)) && kind(&[InputKind::Wav]) =>
            {
                Given::Sound(samples.or(SAMPLES))
            }
            item => {
                let is_long =
                    side.dtype == "f32" && item.iter().filter(|dim| matches!(dim, Length::Open(_))).count() == 1;
                let open = if is_long { SAMPLES } else { TOKENS };
                Given::Array(item.iter().map(|length| length.or(open)).collect())
            }
        }
    }

    fn shape(&self) -> Vec<usize> {
        match self {
            Given::Image { height, width, channels, is_planar: true } => vec![*channels, *height, *width],
            Given::Image { height, width, channels, is_planar: false } => vec![*height, *width, *channels],
            Given::Sound(samples) => vec![*samples],
            Given::Array(shape) => shape.clone(),
        }
    }
}

/// The pairs of inputs and outputs that are a state: of like shape, with at least two dims, and names with the same stem.
fn states(inputs: &[Side], outputs: &[Side]) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    // An image that becomes an image is no state.
    let is_image = |side: &Side| matches!(Given::of(side, SIDES[0], false, None), Given::Image { .. });
    for input in inputs.iter().filter(|input| input.shape.len() > 1 && !is_image(input)) {
        let is_free = |output: &&Side| pairs.iter().all(|(_, taken)| *taken != output.port);
        let mut like = outputs.iter().filter(|output| input.is_like(output)).filter(is_free);
        if let Some(output) = like.find(|output| input.stem() == output.stem()) {
            pairs.push((input.port.clone(), output.port.clone()));
        }
    }
    // A model has at least one input that is no state.
    if pairs.len() == inputs.iter().filter(|input| !is_sample_rate(input)).count() { Vec::new() } else { pairs }
}

/// Whether an input is a number of samples per second.
fn is_sample_rate(side: &Side) -> bool {
    matches!(&*side.port, "sr" | "rate" | "sample_rate" | "sampling_rate" | "samplerate") && side.elements() == Some(1)
}

/// The layout of an output with the boxes of a YOLO model, for an image.
fn yolo_layout(output: &Side) -> Option<&'static str> {
    // Numbers of a box, and boxes.
    let is_row = |length: &Length| matches!(length, Length::Fixed(6..=300));
    let is_many = |length: &Length| matches!(length, Length::Open(_) | Length::Fixed(1000..));
    match output.item() {
        [row, many] if is_row(row) && is_many(many) => Some("v8"),
        [many, row] if is_row(row) && is_many(many) => Some("v5"),
        _ => None,
    }
}

impl ModelStarter {
    /// Writes a graph for a model in `file`, a path from the graph's folder. `sides` are for an image of open size.
    ///
    /// # Errors
    /// When the file is not a model, or does not declare its inputs.
    pub(super) fn of(
        found: &Inspection,
        file: &str,
        name: &str,
        asked: Option<InputKind>,
        sides: [usize; 2],
    ) -> Result<Self, String> {
        let dims = sides;
        let sides = |bindings: &[Binding]| -> Vec<Side> { bindings.iter().filter_map(Side::of).collect() };
        let (inputs, outputs) = (sides(&found.inputs), sides(&found.outputs));
        if inputs.is_empty() || inputs.len() != found.inputs.len() {
            return Err("it does not declare inputs with types and shapes".into());
        }
        let states = states(&inputs, &outputs);
        let is_state = |port: &str| states.iter().any(|(input, output)| input == port || output == port);
        let (constant, ports): (Vec<&Side>, Vec<&Side>) =
            inputs.iter().filter(|input| !is_state(&input.port)).partition(|input| is_sample_rate(input));
        let is_sound = !constant.is_empty()
            || ports.iter().any(|side| ["audio", "sound", "wav", "speech"].iter().any(|word| side.port.contains(word)));

        let mut starter = Writer { is_detector: false, is_named: false, nodes: String::new(), files: Vec::new() };
        let is_image = |side: &Side| matches!(Given::of(side, dims, is_sound, asked), Given::Image { .. });
        let boxes = match &ports[..] {
            [only] if is_image(only) && found.outputs.len() == 1 => outputs.first().and_then(yolo_layout),
            _ => None,
        };
        starter.is_detector = boxes.is_some();
        let mut connections = Vec::new();
        let mut record = RecordRequest { items: ITEMS, states: states.clone(), ..RecordRequest::default() };
        for (at, side) in ports.iter().enumerate() {
            let given = Given::of(side, dims, is_sound, asked);
            let bytes = given.shape().iter().try_fold(4, |bytes: usize, length| bytes.checked_mul(*length));
            if bytes.is_none_or(|bytes| bytes > MAX_ITEM) {
                let shape = given.shape();
                return Err(format!("an item of its input `{}` would be {shape:?}, more than 64 MiB", side.port));
            }
            record.items = record.items.min(items(&given.shape()));
            record.shapes.insert(side.port.clone(), given.shape());
            let from = starter.source(side, &given, asked);
            // A state belongs to the messages of one input.
            let stream = if at == 0 && !states.is_empty() && ports.len() > 1 { ", stream: true" } else { "" };
            connections.push(match stream {
                "" => format!("{}: {from}", side.port),
                stream => format!("{}: {{ from: {from}{stream} }}", side.port),
            });
        }
        for side in &constant {
            record.constants.insert(side.port.clone(), f64::from(RATE));
            connections.push(format!("{}: {{ value: {RATE} }}", side.port));
        }
        let quoted = scalar(file);
        let mut config = format!("model: {quoted}, backend: auto");
        if !states.is_empty() {
            let pairs = states.iter().map(|(input, output)| format!("{{ input: {input}, output: {output} }}"));
            let _ = write!(config, ", state: [{}]", pairs.collect::<Vec<_>>().join(", "));
        }
        let _ = writeln!(starter.nodes, "  model:\n    kind: infer\n    config: {{ {config} }}");
        let _ = writeln!(starter.nodes, "    inputs: {{ {} }}", connections.join(", "));
        for output in found.outputs.iter().filter(|output| !is_state(&output.port)) {
            let side = outputs.iter().find(|side| side.port == output.port);
            match boxes {
                Some(layout) => starter.boxes(layout, &output.port),
                None => starter.sink(&output.port, side),
            }
        }
        let mut graph = format!(
            "# Runs {}, as far as its file says how. `limen-run explain KIND` describes a kind of node.\n",
            one_line(file)
        );
        let _ = writeln!(graph, "version: 1\ngraph: {name}\nnodes:\n{}", starter.nodes.trim_end());
        Ok(ModelStarter { graph, files: starter.files, record })
    }
}

/// Returns a text as YAML reads it: quoted unless it is plain.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_word =
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_plain) && text.contains('.');
    if is_word { text.into() } else { serde_json::Value::from(text).to_string() }
}

/// Returns the name of a node beside a port.
fn node_name(port: &str, suffix: &str) -> String {
    let port: String = port.chars().take(50).collect();
    format!("{}_{suffix}", port.trim_end_matches('_'))
}

/// Writes the nodes of a graph.
struct Writer {
    is_detector: bool,
    /// Whether the images come with the names of their files.
    is_named: bool,
    nodes: String,
    files: Vec<(String, Vec<u8>)>,
}

impl Writer {
    /// Returns a name that no node has yet.
    fn unused(&self, name: &str) -> String {
        let is_free = |name: &String| !self.nodes.contains(&format!("  {name}:"));
        let numbered = (2..).map(|n| format!("{name}_{n}"));
        std::iter::once(name.to_string()).chain(numbered).find(is_free).unwrap_or_default()
    }

    /// Writes the nodes before an input of the model, and returns the output to connect.
    fn source(&mut self, side: &Side, given: &Given, asked: Option<InputKind>) -> String {
        let port = &side.port;
        match given {
            Given::Image { height, width, channels, is_planar } => {
                let (camera, scaled) = (self.unused("camera"), self.unused("scaled"));
                if asked == Some(InputKind::Camera) {
                    let _ = writeln!(
                        self.nodes,
                        "  {camera}:                       # generated images: there is no kind for cameras yet\n    kind: synthetic\n    \
                         config: {{ pattern: ramp, width: 640, height: 480, rate: 30Hz, count: 90 }}"
                    );
                } else {
                    self.is_named = true;
                    self.files.push(("images/sample.png".into(), SAMPLE.to_vec()));
                    let _ = writeln!(
                        self.nodes,
                        "  {camera}:                       # the files of `images`, of any size\n    kind: image_files\n    \
                         config: {{ path: \"images/*\", channels: {channels} }}"
                    );
                }
                let kind = if self.is_detector { "letterbox" } else { "resize" };
                let _ = writeln!(
                    self.nodes,
                    "  {scaled}:\n    kind: {kind}\n    config: {{ width: {width}, height: {height} }}\n    from: {camera}/image"
                );
                let from = if self.is_detector { format!("{scaled}/image") } else { scaled };
                if side.dtype == "u8" {
                    if !is_planar {
                        return from;
                    }
                    let planes = self.unused("planes");
                    let _ = writeln!(
                        self.nodes,
                        "  {planes}:\n    kind: transpose\n    config: {{ order: [2, 0, 1] }}\n    from: {from}"
                    );
                    return planes;
                }
                let layout = if *is_planar { "chw" } else { "hwc" };
                let (dtype, pixels) = (&side.dtype, self.unused("pixels"));
                let _ = writeln!(
                    self.nodes,
                    "  {pixels}:                       # the values of black and white as in the model's training, often [-1, 1]\n    \
                     kind: to_tensor\n    config: {{ dtype: {dtype}, layout: {layout}, range: [0, 1] }}\n    from: {from}"
                );
                pixels
            }
            Given::Sound(samples) => {
                self.files.push(("sound.wav".into(), tone()));
                let (sound, flat) = (self.unused("sound"), self.unused("samples"));
                let _ = writeln!(
                    self.nodes,
                    "  {sound}:                        # a recording; `context: N` repeats the last N samples of the message before\n    \
                     kind: wav\n    config: {{ path: sound.wav, frames: {samples}, sample_rate: 16kHz, channels: mono, tail: pad }}\n  \
                     {flat}:\n    kind: reshape\n    config: {{ shape: [-1] }}\n    from: {sound}"
                );
                flat
            }
            Given::Array(shape) => {
                self.files.push((format!("{port}.npy"), array(&side.dtype, shape)));
                let name = self.unused(&node_name(port, "array"));
                let _ = writeln!(
                    self.nodes,
                    "  {name}:   # one item of the array per message\n    kind: npy\n    config: {{ path: {port}.npy }}"
                );
                name
            }
        }
    }

    /// Writes the nodes behind the only output of a YOLO model.
    fn boxes(&mut self, layout: &str, port: &str) {
        let name = if self.is_named { "name: camera/name, " } else { "" };
        let _ = writeln!(
            self.nodes,
            "  decoded:                      # the layout is a guess from the shape\n    kind: decode_yolo\n    \
             config: {{ layout: {layout}, threshold: 0.25 }}\n    from: model/{port}\n  \
             boxes:\n    kind: nms\n    config: {{ iou: 0.45 }}\n    from: decoded\n  \
             placed:                       # in pixels of the image as it was\n    kind: unletterbox\n    \
             inputs: {{ boxes: boxes, placement: scaled/placement }}\n  \
             list:\n    kind: jsonl\n    config: {{ path: out/boxes.jsonl }}\n    inputs: {{ {name}boxes: placed }}"
        );
    }

    /// Writes the sink of an output.
    fn sink(&mut self, port: &str, side: Option<&Side>) {
        let columns = side.and_then(Side::elements);
        let kind = if columns.is_some_and(|columns| columns <= MAX_COLUMNS) { "csv" } else { "npy" };
        let name = self.unused(&node_name(port, "file"));
        let _ = writeln!(
            self.nodes,
            "  {name}:\n    kind: {kind}\n    config: {{ path: out/{port}.{kind} }}\n    from: model/{port}"
        );
    }
}

/// An image of 8 × 8 pixels, so that the graph has something to read.
const SAMPLE: &[u8] = include_bytes!("../../../graphs/digits/data/0000-7.png");

/// A second of a tone of 440 Hz, as a WAV file of 16-bit samples.
fn tone() -> Vec<u8> {
    let bytes = 2 * RATE;
    let mut file = b"RIFF".to_vec();
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    file.extend(RATE.to_le_bytes());
    file.extend((2 * RATE).to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend(bytes.to_le_bytes());
    let sample = |n: u32| (8000.0 * (f64::from(n) * 440.0 / f64::from(RATE) * std::f64::consts::TAU).sin()) as i16;
    file.extend((0..RATE).flat_map(|n| sample(n).to_le_bytes()));
    file
}

/// Returns how many items of a shape are written.
fn items(item: &[usize]) -> usize {
    let bytes = item.iter().fold(4, |bytes: usize, length| bytes.saturating_mul(*length));
    (BYTES / bytes.max(1)).clamp(3, ITEMS)
}

/// Items of a shape as an `.npy` file: numbers from 0 to 1, or ones of a whole type.
fn array(dtype: &str, item: &[usize]) -> Vec<u8> {
    let shape: Vec<usize> = std::iter::once(items(item)).chain(item.iter().copied()).collect();
    let elements = shape.iter().product::<usize>();
    let (descriptor, one) = match dtype {
        "u8" => ("|u1", vec![1]),
        "i8" => ("|i1", vec![1]),
        "i16" => ("<i2", vec![1, 0]),
        "u16" => ("<u2", vec![1, 0]),
        "f16" => ("<f2", vec![0, 0x38]),
        "u32" => ("<u4", vec![1, 0, 0, 0]),
        "u64" => ("<u8", vec![1, 0, 0, 0, 0, 0, 0, 0]),
        "i32" => ("<i4", vec![1, 0, 0, 0]),
        _ => ("<f4", Vec::new()),
    };
    let mut file = limen_npy::header(descriptor, shape.iter().map(|length| *length as u64));
    match &one[..] {
        [] => {
            // A linear congruential generator (Numerical Recipes): the same numbers on every machine.
            let mut state = 1u32;
            file.extend((0..elements).flat_map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((state >> 8) as f32 / (1 << 24) as f32).to_le_bytes()
            }));
        }
        one => file.extend(std::iter::repeat_n(one, elements).flatten()),
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    type Sides<'a> = &'a [(&'a str, &'a str)];

    fn inspection(inputs: &[(&str, &str)], outputs: &[(&str, &str)]) -> Inspection {
        let binding = |(port, spec): &(&str, &str)| serde_json::json!({ "port": port, "name": port, "spec": spec });
        let sides = |sides: &[(&str, &str)]| sides.iter().map(binding).collect::<Vec<_>>();
        let (inputs, outputs) = (sides(inputs), sides(outputs));
        serde_json::from_value(
            serde_json::json!({ "format": "onnx", "sha256": "", "inputs": inputs, "outputs": outputs }),
        )
        .unwrap()
    }

    fn graph(inputs: &[(&str, &str)], outputs: &[(&str, &str)], asked: Option<InputKind>) -> String {
        ModelStarter::of(&inspection(inputs, outputs), "m.onnx", "robot", asked, SIDES[0]).unwrap().graph
    }

    #[test]
    fn the_nodes_follow_from_types_shapes_and_names() {
        let image = ("images", "f32[batch,3,height,width]");
        let cases: [(Sides<'_>, Sides<'_>, Option<InputKind>, &[&str]); 11] = [
            (&[image], &[("scores", "f32[batch,1000]")], None, &["kind: image_files", "layout: chw", "out/scores.npy"]),
            (&[image], &[("label", "i32[batch]")], Some(InputKind::Camera), &["kind: synthetic", "out/label.csv"]),
            (
                &[image],
                &[("output0", "f32[batch,84,anchors]")],
                None,
                &["kind: letterbox", "layout: v8", "kind: nms", "kind: unletterbox", "boxes.jsonl"],
            ),
            (&[image], &[("output0", "f32[1,25200,85]")], None, &["layout: v5"]),
            (&[image, ("right", "f32[n,3,h,w]")], &[("y", "f32[n,9]")], None, &["images: pixels, right: pixels_2"]),
            // An image that becomes an image.
            (&[("img_in", "f32[n,3,h,w]")], &[("img_out", "f32[n,3,h,w]")], None, &["img_in: pixels", "img_out.npy"]),
            (&[("x", "f32[n,floor(a,2),4]")], &[("y", "f32[n]")], None, &["path: x.npy"]),
            (&[("x", "u8[1,64,48,3]")], &[("y", "f32[1]")], None, &["width: 48, height: 64", "x: scaled"]),
            (
                &[("input", "f32[n,t]"), ("state", "f32[2,n,128]"), ("sr", "i32[]")],
                &[("output", "f32[n,1]"), ("staten", "f32[a,b,c]")],
                None,
                &["kind: wav", "state: [{ input: state, output: staten }]", "sr: { value: 16000 }", "out/output.csv"],
            ),
            (
                &[("input_ids", "i32[n,s]"), ("attention_mask", "i32[n,s]")],
                &[("hidden", "f32[n,s,384]")],
                None,
                &["path: input_ids.npy", "attention_mask: attention_mask_array", "out/hidden.npy"],
            ),
            (
                &[("a", "f32[n,4]"), ("b", "f32[n,4]"), ("h_in", "f32[1,n,8]")],
                &[("y", "f32[n,4]"), ("h_out", "f32[1,n,8]")],
                None,
                &["a: { from: a_array, stream: true }", "b: b_array", "input: h_in, output: h_out"],
            ),
        ];
        for (inputs, outputs, asked, expected) in cases {
            let graph = graph(inputs, outputs, asked);
            for part in expected {
                assert!(graph.contains(part), "{part}:\n{graph}");
            }
            limen::Spec::from_text(&graph, "graph.yaml").unwrap();
        }
    }

    #[test]
    fn a_name_is_text_and_a_huge_input_is_refused() {
        let found = inspection(&[("x", "f32[n,4]")], &[("y", "f32[n,4]")]);
        let graph = ModelStarter::of(&found, "a, b: {c}\nd.onnx", "robot", None, SIDES[0]).unwrap().graph;
        limen::Spec::from_text(&graph, "graph.yaml").unwrap();
        assert!(graph.contains(r#"model: "a, b: {c}\nd.onnx", backend"#), "{graph}");
        let found = inspection(&[("x", "f32[n,99999,99999,99999]")], &[("y", "f32[n,4]")]);
        assert_eq!(scalar("320n.onnx"), r#""320n.onnx""#);
        let why = ModelStarter::of(&found, "m.onnx", "robot", None, SIDES[0]).unwrap_err();
        assert!(why.contains("more than 64 MiB"), "{why}");
    }

    #[test]
    fn a_state_has_a_like_name_and_shape() {
        let side = |(port, spec): &(&str, &str)| {
            Side::of(&Binding { port: port.to_string(), name: String::new(), spec: Some(spec.to_string()) }).unwrap()
        };
        let pairs = |inputs: &[(&str, &str)], outputs: &[(&str, &str)]| {
            let sides = |all: &[(&str, &str)]| all.iter().map(side).collect::<Vec<_>>();
            states(&sides(inputs), &sides(outputs)).into_iter().map(|(a, b)| format!("{a} {b}")).collect::<Vec<_>>()
        };
        for (inputs, outputs, expected) in [
            (
                &[("x", "f32[n]"), ("h", "f32[2,n,64]"), ("c", "f32[2,n,64]")][..],
                &[("cn", "f32[2,n,64]"), ("hn", "f32[2,n,64]")][..],
                &["h hn", "c cn"][..],
            ),
            (&[("x", "f32[n]"), ("state", "f32[2,n,64]")], &[("next_state", "f32[2,n,64]")], &["state next_state"]),
            (
                &[("x", "f32[n]"), ("past_key", "f32[1,n,8]")],
                &[("present_key", "f32[1,n,8]")],
                &["past_key present_key"],
            ),
            // All inputs cannot be states.
            (&[("state", "f32[2,n,64]")], &[("next_state", "f32[2,n,64]")], &[]),
            // Another shape, or nothing in common but the shape.
            (&[("state", "f32[2,n,64]")], &[("staten", "f32[2,n,32]")], &[]),
            (&[("x", "f32[n,4]")], &[("y", "f32[n,4]")], &[]),
        ] {
            assert_eq!(pairs(inputs, outputs), expected, "{inputs:?}");
        }
    }
}
