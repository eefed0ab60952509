//! The nodes of a graph, as text, and the files that they read.

use super::bound::VaryingOutput;
use super::given::{Given, ImageSize};
use super::model::{Model, StarterOutput, YoloLayout};
use super::side::{Length, Side};
use super::{InputKind, RecordCase, Tried, sample};
use crate::text::paragraph::{WIDTH, width, wrapped};
use limen::message::{Dim, PortSpec};
use limen_infer::RecordRequest;
use std::fmt::Write;

/// The largest output that is written as a row of a table.
const MAX_COLUMNS: usize = 32;

/// The values of black and white that a model takes, and where they are known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueRange {
    values: &'static str,
    about: &'static str,
}

impl ValueRange {
    const GUESS: &'static str =
        "a guess: edit the values of black and white that the model was trained with, often [-1, 1]";
    pub(super) const UNIT: ValueRange = ValueRange { values: "[0, 1]", about: ValueRange::GUESS };
    pub(super) const SIGNED: ValueRange = ValueRange { values: "[-1, 1]", about: ValueRange::GUESS };
    pub(super) const YOLOX: ValueRange = ValueRange {
        values: "[0, 255]",
        about: "a guess: YOLOX is trained on levels from 0 to 255, often with blue before red (`colour`)",
    };
    pub(super) const ULTRALYTICS: ValueRange =
        ValueRange { values: "[0, 1]", about: "models of Ultralytics are trained on levels divided by 255" };
}

/// Writes the nodes of a graph.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) text: String,
    pub(super) files: Vec<(String, Vec<u8>)>,
    pub(super) records: Vec<RecordCase>,
    pub(super) warnings: Vec<String>,
    /// Whether the images come with the names of their files.
    is_named: bool,
}

impl Nodes {
    /// Adds a node, and returns its name, which is `name` unless another node has it. `about` is a
    /// comment; `inputs` is its line.
    pub(super) fn add(&mut self, name: &str, about: &str, kind: &str, config: &str, inputs: &str) -> String {
        let is_free = |name: &String| !self.text.contains(&format!("  {name}:"));
        let numbered = (2..).map(|n| format!("{name}_{n}"));
        let name = std::iter::once(name.to_string()).chain(numbered).find(is_free).unwrap_or_default();
        let begin = format!("  {name}:");
        let line = format!("{begin:<31} # {about}");
        let _ = match about {
            "" => writeln!(self.text, "{begin}"),
            _ if width(&line) <= WIDTH => writeln!(self.text, "{line}"),
            about => write!(self.text, "{begin}\n{}", comment(about)),
        };
        let _ = writeln!(self.text, "    kind: {kind}");
        if !config.is_empty() {
            let _ = writeln!(self.text, "    config: {{ {config} }}");
        }
        if !inputs.is_empty() {
            let _ = writeln!(self.text, "    {inputs}");
        }
        name
    }

    /// Adds the nodes before an input of a model, and returns the output to connect.
    pub(super) fn source(&mut self, side: &Side, given: &Given, layout: Option<&YoloLayout>, known: Known) -> String {
        let Known { asked, items, .. } = known;
        match given {
            Given::Image(frame) => {
                let is_guess = asked.is_none() && frame.channels == 1 && !side.says_image();
                let about =
                    if is_guess { "; a guess from the shape, which features may have too (`--input npy`)" } else { "" };
                let image = self.images(asked, frame.channels, about);
                let scaled = self.scaled(*frame, layout.is_some(), &image);
                self.pixels("pixels", side, *frame, layout.map_or(ValueRange::UNIT, |layout| layout.range), &scaled)
            }
            Given::Sound(shape) => {
                self.files.push(("sound.wav".into(), sample::tone()));
                let samples: usize = shape.iter().product();
                let config =
                    format!("path: sound.wav, frames: {samples}, sample_rate: 16kHz, channels: mono, tail: pad");
                let sound = self.add("sound", &about_sound(side, known), "wav", &config, "");
                let shape = if shape.len() == 1 { "[-1]".into() } else { format!("{shape:?}") };
                self.add("samples", "", "reshape", &format!("shape: {shape}"), &format!("from: {sound}"))
            }
            Given::Array(shape) => {
                let path = format!("{}.npy", side.port);
                let name = self.add(
                    &node_name(&side.port, "array"),
                    &about_array(side, known),
                    "npy",
                    &format!("path: {path}"),
                    "",
                );
                self.files.push((path, sample::array(&side.dtype, items, shape)));
                name
            }
        }
    }

    /// Adds a source of images, and returns its output. `about` is added to its comment.
    pub(super) fn images(&mut self, asked: Option<InputKind>, channels: usize, about: &str) -> String {
        let name = if asked == Some(InputKind::Camera) {
            let config = format!("pattern: ramp, width: 640, height: 480, channels: {channels}, rate: 30Hz, count: 90");
            self.add("camera", "generated images: there is no kind for cameras yet", "synthetic", &config, "")
        } else {
            self.is_named = true;
            if self.files.iter().all(|(name, _)| name != "images/sample.png") {
                self.files.push(("images/sample.png".into(), sample::IMAGE.to_vec()));
            }
            let config = format!("path: \"images/*\", channels: {channels}");
            self.add("camera", &format!("the files of `images`, of any size{about}"), "image_files", &config, "")
        };
        format!("{name}/image")
    }

    /// Adds what scales images, into a frame or without keeping their aspect ratio, and returns its
    /// output.
    pub(super) fn scaled(&mut self, frame: ImageSize, is_framed: bool, image: &str) -> String {
        let ImageSize { width, height, about: size, .. } = frame;
        let (kind, output, filter) = if is_framed {
            ("letterbox", "/image", None)
        } else {
            ("resize", "", Some("scales as Pillow does; `filter: linear` as OpenCV does"))
        };
        let about: Vec<&str> = filter.into_iter().chain(size).collect();
        let config = format!("width: {width}, height: {height}");
        self.add("scaled", &about.join("; "), kind, &config, &format!("from: {image}")) + output
    }

    /// Adds what makes an image of the right size the input of a model, and returns the output to
    /// connect.
    pub(super) fn pixels(
        &mut self,
        name: &str,
        side: &Side,
        frame: ImageSize,
        range: ValueRange,
        from: &str,
    ) -> String {
        let layout = match (&*side.dtype, frame.is_planar) {
            ("u8", false) => return from.into(),
            ("u8", true) => return self.add("planes", "", "transpose", "order: [2, 0, 1]", &format!("from: {from}")),
            (_, true) => "chw",
            (_, false) => "hwc",
        };
        let ValueRange { values, about } = range;
        let config = format!("dtype: {}, layout: {layout}, range: {values}", side.dtype);
        self.add(name, about, "to_tensor", &config, &format!("from: {from}"))
    }

    /// Adds a model: `inputs` are its connections, `request` says how to call it.
    pub(super) fn infer(
        &mut self,
        name: &str,
        model: &Model,
        inputs: &[String],
        mut request: RecordRequest,
        mut notes: Vec<String>,
        tried: &Tried,
    ) -> String {
        let trial = tried.models.get(name).cloned().unwrap_or_default();
        let mut config = format!("model: {}, backend: auto", scalar(&model.file));
        if let Some(why) = &model.no_batch {
            config.push_str(", batch_dim: none");
            request.no_batch = true;
            notes
                .push(format!("`batch_dim: none` makes the first dim of each input part of a message, a guess: {why}"));
        }
        let case = if name == "model" { "verify.npz".into() } else { format!("{name}.npz") };
        let about = if trial.has_case {
            let _ = write!(config, ", verify: {{ case: {case} }}");
            "the case was recorded with these sizes: remove `verify` to change the sizes"
        } else {
            ""
        };
        if !request.states.is_empty() {
            let pairs = request
                .states
                .iter()
                .map(|(input, output)| format!("{{ input: {}, output: {} }}", port(input), port(output)));
            let _ = write!(config, ", state: [{}]", pairs.collect::<Vec<_>>().join(", "));
        }
        let mut bounds = VaryingOutput::all(model);
        bounds.retain(|bound| !tried.is_exact(name, &bound.port));
        if !bounds.is_empty() {
            let mut shown = Vec::new();
            for bound in &bounds {
                let seen = trial.longest.get(&bound.port).copied();
                shown.push(bound.show(bound.length(seen)));
                request.max.insert(bound.port.clone(), bound.lengths(bound.trial_length()));
                let found =
                    seen.map_or("no trial produced rows".into(), |seen| format!("a trial on noise produced {seen}"));
                notes.push(format!(
                    "`{}` has a row for each part that the model finds; a call with more rows than `max` fails; {found}",
                    bound.port
                ));
            }
            let _ = write!(config, ", max: {{ {} }}", shown.join(", "));
        }
        let narrowed = narrowed(model);
        if !narrowed.is_empty() {
            config.push_str(", allow_narrowing: true");
            let note = format!(
                "the model {}; `allow_narrowing` accepts f32 (7 digits) instead: a decision tree may choose another leaf",
                narrowed.join(", ")
            );
            self.warnings.push(format!("`{name}`: {note}"));
            notes.push(note);
        }
        let name = self.add(name, about, "infer", &config, &format!("inputs: {{ {} }}", inputs.join(", ")));
        // The notes are long: they stand in lines of their own.
        if let Some(at) = self.text.rfind("    config: ") {
            let notes: String = notes.iter().map(|note| comment(note)).collect();
            self.text.insert_str(at, &notes);
        }
        self.records.push(RecordCase { node: name.clone(), file: model.file.clone(), case, request });
        name
    }

    /// Adds the nodes that take the output of a YOLO model for boxes in pixels of the image, and
    /// returns the last.
    pub(super) fn boxes(&mut self, layout: &YoloLayout, most: Option<usize>, from: &str) -> String {
        let mut from = from.to_string();
        if let Some((dim, numbers)) = layout.kept {
            let about = "without the coefficients of masks or the points of poses";
            from = self.add("kept", about, "slice", &format!("dim: {dim}, to: {numbers}"), &format!("from: {from}"));
        }
        let most = most.map_or(String::new(), |most| format!(", max_boxes: {most}"));
        let of_decoder = if layout.overlaps { "" } else { &*most };
        let config = format!("layout: {}, threshold: 0.25{of_decoder}", layout.config);
        let mut boxes = self.add("decoded", &layout.about, "decode_yolo", &config, &format!("from: {from}"));
        if layout.overlaps {
            boxes = self.add("boxes", "", "nms", &format!("iou: 0.45{most}"), &format!("from: {boxes}"));
        }
        self.unletterbox("boxes", &boxes)
    }

    /// Adds a recording of the images with their boxes, by the names of the classes.
    pub(super) fn drawn(&mut self, names: &[String], image: &str, boxes: &str) {
        let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        let inputs = format!("inputs: {{ image: {image}, boxes: {boxes} }}");
        let drawn = self.add("drawn", "", "draw", &format!("labels: [{}]", names.join(", ")), &inputs);
        let picture = self.add("picture", "", "encode_image", "", &format!("from: {drawn}"));
        let config = "path: out/drawn.mcap, topics: { image: { as: compressed_image } }";
        self.add("recording", "Foxglove shows it", "record", config, &format!("inputs: {{ image: {picture} }}"));
    }

    /// Adds what converts `boxes`, or `quads`, in the frame of `scaled`, and returns its name.
    pub(super) fn unletterbox(&mut self, input: &str, from: &str) -> String {
        let inputs = format!("inputs: {{ {input}: {from}, placement: scaled/placement }}");
        self.add("placed", "in pixels of the image as it was", "unletterbox", "", &inputs)
    }

    /// Adds a file with an object per image. `more` is what stands behind the inputs.
    pub(super) fn objects(&mut self, path: &str, fields: &str, more: &str) {
        let name = if self.is_named { "name: camera/name, " } else { "" };
        let inputs = format!("inputs: {{ {name}{fields} }}{more}");
        self.add("list", "", "jsonl", &format!("path: out/{path}.jsonl"), &inputs);
    }

    /// Adds the file of an output: what suits its type as planning found it, or else as the model
    /// declares it.
    pub(super) fn sink(&mut self, node: &str, output: &StarterOutput, tried: &Tried) {
        let name = &output.port;
        let declared = || output.side.as_ref().and_then(Side::elements);
        let elements = match &tried.ports {
            Some(ports) => ports.get(&format!("{node}/{name}")).map(elements_of),
            None if output.depends_on_values => Some(None),
            None => Some(declared()).filter(Option::is_some),
        };
        let kind = match elements {
            // Neither a table nor an array has rows of several lengths.
            Some(None) => "jsonl",
            Some(Some(..=MAX_COLUMNS)) => "csv",
            // It is written before planning has found the type; it takes any.
            None if tried.ports.is_some() => "jsonl",
            _ => "npy",
        };
        let config = format!("path: out/{name}.{kind}");
        let from = format!("{node}/{name}");
        let inputs =
            if kind == "jsonl" { format!("inputs: {{ {}: {from} }}", port(name)) } else { format!("from: {from}") };
        self.add(&node_name(name, "file"), "", kind, &config, &inputs);
    }
}

/// Returns the number of elements of a port's messages, if it is the same in each.
fn elements_of(spec: &PortSpec) -> Option<usize> {
    let length = |dim: &Dim| if let Dim::Fixed(length) = dim { Some(*length) } else { None };
    spec.shape.iter().map(length).product()
}

/// What is known of all inputs of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) asked: Option<InputKind>,
    /// Whether the model takes the sample rate as an input.
    pub(super) has_rate: bool,
    /// Whether it takes other data too.
    pub(super) has_others: bool,
    /// Items of the arrays.
    pub(super) items: usize,
}

/// Returns the comment at a recording: what of it is a guess.
fn about_sound(side: &Side, Known { asked, has_rate, .. }: Known) -> String {
    let is_open = side.item().iter().any(|dim| matches!(dim, Length::Open(_)));
    let guesses = [
        (is_open, "`frames`"),
        (!has_rate, "`sample_rate`"),
        (asked.is_none() && !has_rate, "that it is sound (else `--input npy`)"),
    ];
    let guesses: Vec<&str> = guesses.iter().filter(|(is_guess, _)| *is_guess).map(|(_, guess)| *guess).collect();
    let guesses = if guesses.is_empty() { String::new() } else { format!("; guesses: {}", guesses.join(", ")) };
    format!("a recording{guesses}; `context: N` repeats the last N samples of the previous message")
}

/// Returns the comment at an array: what is a guess, and what other data the input may be.
fn about_array(side: &Side, Known { asked, has_others, .. }: Known) -> String {
    let is_open = side.item().iter().any(|dim| matches!(dim, Length::Open(_)));
    let lengths = if is_open { "; lengths that the model leaves open are a guess" } else { "" };
    let other = if asked.is_some() {
        ""
    } else if side.image_dims().is_some() {
        "; a guess from the names: it has the shape of an image (`--input images`)"
    } else if side.may_be_sound() && !has_others {
        "; if it is sound, `--input wav` reads a recording"
    } else {
        ""
    };
    format!("one item of the array per message{lengths}{other}")
}

/// Returns a text as lines of a comment in a node.
fn comment(text: &str) -> String {
    // Code is not broken.
    let mut is_code = false;
    let joined = text.chars().map(|c| {
        is_code ^= c == '`';
        if c == ' ' && is_code { '\u{a0}' } else { c }
    });
    let lines = wrapped(&joined.collect::<String>(), WIDTH - 6).replace('\u{a0}', " ");
    lines.lines().map(|line| format!("    # {line}\n")).collect()
}

/// Returns what a model does with f64, which its node has in f32.
fn narrowed(model: &Model) -> Vec<String> {
    let named = |ports: Vec<String>| if ports.is_empty() { None } else { Some(ports.join(", ")) };
    let inputs = model.inputs.iter().filter(|input| input.is_narrowed).map(|input| format!("`{}`", input.port));
    let outputs = model.outputs.iter().filter(|output| output.is_narrowed).map(|output| format!("`{}`", output.port));
    let sides = [("expects f64 at", named(inputs.collect())), ("produces f64 at", named(outputs.collect()))];
    let mut narrowed: Vec<String> =
        sides.into_iter().filter_map(|(what, at)| Some(format!("{what} {}", at?))).collect();
    if narrowed.is_empty() && model.computes_f64 {
        narrowed.push("computes with f64, which `rten` does in f32".into());
    }
    narrowed
}

/// Returns a text as YAML reads it: quoted unless it is plain.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_word =
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_plain) && text.contains('.');
    if is_word { text.into() } else { quoted(text) }
}

/// Returns the name of a port as YAML reads it: quoted if it is the word for another value.
pub(super) fn port(name: &str) -> String {
    if matches!(name, "null" | "true" | "false") { quoted(name) } else { name.into() }
}

/// Returns a text in quotes, as YAML and the variables of a graph read it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text.replace("${", "$${")).to_string()
}

/// Returns the name of a node beside a port.
fn node_name(port: &str, suffix: &str) -> String {
    let port: String = port.chars().take(50).collect();
    format!("{}_{suffix}", port.trim_end_matches('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_quoted_where_yaml_would_read_something_else() {
        assert_eq!(scalar("m-1.onnx"), "m-1.onnx");
        assert_eq!(scalar("320n.onnx"), r#""320n.onnx""#);
        assert_eq!(scalar("a, b: {c}\nd.onnx"), r#""a, b: {c}\nd.onnx""#);
        assert_eq!(scalar("${HOME}.onnx"), r#""$${HOME}.onnx""#);
    }
}
