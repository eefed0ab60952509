//! A graph for two models: the first finds parts of an image, the second reads each.

use super::given::ImageSize;
use super::model::{Model, StarterOutput, YoloLayout};
use super::nodes::{self, Nodes, ValueRange};
use super::side::Side;
use super::{InputKind, Tried};
use limen_infer::RecordRequest;

/// Height and width for images in which text is found, where the model leaves them open.
const PAGE: [usize; 2] = [640, 640];
/// Those of a line of text: long ones are not squeezed.
const LINE: [usize; 2] = [48, 800];
/// Those of other parts.
const PART: [usize; 2] = [224, 224];
/// Items of a recorded case: those of images are large.
const ITEMS: usize = 3;
/// The most parts of an image.
const PARTS: usize = 100;

/// How the output of the first model becomes boxes.
enum BoxSource {
    /// A map of the probability of text.
    Text,
    /// The boxes of a YOLO model.
    Boxes(YoloLayout),
}

/// What the second model says of a part.
#[derive(Clone, Copy)]
enum PartReading {
    /// The scores of this many symbols, step by step.
    Text(usize),
    /// The scores of classes.
    Class,
    Other,
}

/// A model with one image as input.
struct ImageModel<'a> {
    model: &'a Model,
    input: &'a Side,
}

impl<'a> ImageModel<'a> {
    fn of(model: &'a Model) -> Option<Self> {
        match &model.inputs[..] {
            [input] if input.image_dims().is_some() => Some(ImageModel { model, input }),
            _ => None,
        }
    }

    /// Adds the model behind its pixels.
    fn add(&self, nodes: &mut Nodes, name: &str, frame: ImageSize, pixels: &str, tried: &Tried) -> String {
        let port = self.input.port.clone();
        let inputs = [format!("{}: {pixels}", nodes::port(&port))];
        let shape = frame.shape();
        let request = RecordRequest { items: ITEMS, shapes: [(port, shape)].into(), ..RecordRequest::default() };
        nodes.infer(name, self.model, &inputs, request, Vec::new(), tried)
    }
}

/// Adds the nodes of a chain.
///
/// # Errors
/// When the models do not fit each other; with what they have and what is expected.
pub(super) fn chain(
    nodes: &mut Nodes,
    first: &Model,
    second: &Model,
    asked: Option<InputKind>,
    tried: &Tried,
) -> Result<(), String> {
    if matches!(asked, Some(InputKind::Wav | InputKind::Npy)) {
        return Err("two models expect images: remove `--input`, or write `--input images` or `--input camera`".into());
    }
    let (detector, output, found) = detector(first, tried)?;
    let (reader, read) = reader(second)?;

    let sides = if matches!(found, BoxSource::Text) { PAGE } else { tried.sides };
    let Some(frame) = ImageSize::of(detector.input, sides) else { return Err(wrong_first(first)) };
    let line = if matches!(read, PartReading::Text(_)) { LINE } else { PART };
    let Some(part) = ImageSize::of(reader.input, line) else { return Err(wrong_second(second)) };

    let camera = nodes.images(asked, frame.channels, "");
    let is_text = matches!((&found, read), (BoxSource::Text, _) | (_, PartReading::Text(_)));
    // Models that read text are trained on images as OpenCV reads them.
    let bgr = if is_text && frame.channels == 3 {
        let about = "a guess: most models for text expect blue before red";
        nodes.add("bgr", about, "colour", "to: bgr", &format!("from: {camera}"))
    } else {
        camera.clone()
    };
    let placed = match &found {
        BoxSource::Text => ("quads", find_text(nodes, &detector, frame, output, &bgr, tried)),
        BoxSource::Boxes(layout) => {
            let scaled = nodes.scaled(frame, true, &camera);
            let pixels = nodes.pixels("pixels", detector.input, frame, layout.range, &scaled);
            let name = detector.add(nodes, "detector", frame, &pixels, tried);
            ("boxes", nodes.boxes(layout, Some(PARTS), &format!("{name}/{}", output.port)))
        }
    };
    let image = if matches!(read, PartReading::Text(_)) { &bgr } else { &camera };
    let image = coloured(nodes, image, [frame.channels, part.channels]);
    read_parts(nodes, &reader, read, part, &image, (placed.0, &placed.1), tried)
}

/// Returns the first model, its output, and how that becomes boxes.
fn detector<'a>(model: &'a Model, tried: &Tried) -> Result<(ImageModel<'a>, &'a StarterOutput, BoxSource), String> {
    let (Some(image), [output, others @ ..]) = (ImageModel::of(model), &model.outputs[..]) else {
        return Err(wrong_first(model));
    };
    let layout = ImageSize::of(image.input, tried.sides)
        .and_then(|frame| model.yolo_layout(frame, tried.models.get("detector")));
    let found = match layout {
        Some(layout) => BoxSource::Boxes(layout),
        None if others.is_empty() && output.is_map() => BoxSource::Text,
        None => return Err(wrong_first(model)),
    };
    Ok((image, output, found))
}

/// Returns the second model, and what it says.
fn reader(model: &Model) -> Result<(ImageModel<'_>, PartReading), String> {
    let (Some(image), [output, rest @ ..]) = (ImageModel::of(model), &model.outputs[..]) else {
        return Err(wrong_second(model));
    };
    let read = match (output.classes_of_steps(), output.classes()) {
        _ if !rest.is_empty() => PartReading::Other,
        (Some(classes), _) => PartReading::Text(classes),
        (None, Some(_)) => PartReading::Class,
        (None, None) => PartReading::Other,
    };
    Ok((image, read))
}

fn wrong_first(model: &Model) -> String {
    wrong(
        "first",
        model,
        "one image as input, and one output: a map of text such as [n,1,h,w] for an image [n,3,h,w], or the boxes of a YOLO model such \
         as [n,84,8400]",
    )
}

fn wrong_second(model: &Model) -> String {
    wrong("second", model, "one image as input, such as [n,3,224,224], and at least one output")
}

fn wrong(which: &str, model: &Model, expected: &str) -> String {
    let inputs = Model::show(model.inputs.iter().map(|side| (&*side.port, Some(side))));
    let outputs = Model::show(model.outputs.iter().map(|output| (&*output.port, output.side.as_ref())));
    format!(
        "the {which} of two models must have {expected}; `{}` expects {inputs} and produces {outputs}: begin with one `--model`, and \
         add an `infer` node for the other model",
        model.file
    )
}

/// Adds the nodes that find lines of text, and returns the last.
fn find_text(
    nodes: &mut Nodes,
    detector: &ImageModel<'_>,
    frame: ImageSize,
    output: &StarterOutput,
    image: &str,
    tried: &Tried,
) -> String {
    let config = format!("width: {}, height: {}, at: top_left, fill: 0", frame.width, frame.height);
    let about = "edit the size to that of your images: multiples of 32 in which letters are legible";
    let scaled = nodes.add("scaled", about, "letterbox", &config, &format!("from: {image}"));
    let pixels = nodes.pixels("pixels", detector.input, frame, ValueRange::UNIT, &format!("{scaled}/image"));
    let pixels = if detector.input.dtype == "f32" && frame.channels == 3 {
        let about = "a guess: PP-OCR is trained with these of ImageNet; [0.5] and [0.5] give [-1, 1]";
        let config = "mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]";
        nodes.add("normalized", about, "normalize", config, &format!("from: {pixels}"))
    } else {
        pixels
    };
    let name = detector.add(nodes, "detector", frame, &pixels, tried);
    let from = format!("from: {name}/{}", output.port);
    let config = format!("threshold: 0.3, box_threshold: 0.6, unclip: 1.5, max_boxes: {PARTS}");
    let decoded = nodes.add(
        "decoded",
        "edit the thresholds; `dilation: true` joins regions a pixel apart",
        "decode_db",
        &config,
        &from,
    );
    nodes.unletterbox("quads", &format!("{decoded}/quads"))
}

/// Returns an image with other channels than it has.
fn coloured(nodes: &mut Nodes, image: &str, channels: [usize; 2]) -> String {
    let config = match channels {
        [3, 1] => "to: grey",
        [1, 3] => "from: grey, to: rgb",
        _ => return image.into(),
    };
    nodes.add("coloured", "", "colour", config, &format!("from: {image}"))
}

/// Adds the nodes that cut the parts out and read them.
fn read_parts(
    nodes: &mut Nodes,
    reader: &ImageModel<'_>,
    read: PartReading,
    frame: ImageSize,
    image: &str,
    (shape, placed): (&str, &str),
    tried: &Tried,
) -> Result<(), String> {
    let is_text = matches!(read, PartReading::Text(_));
    let fitted = if is_text { "keep_aspect: true, fill: 128, " } else { "" };
    let config = format!("width: {}, height: {}, {fitted}max: {PARTS}, empty: send", frame.width, frame.height);
    let about = if is_text { "a wider line is squeezed to this width" } else { "" };
    let inputs = format!("inputs: {{ image: {image}, {shape}: {placed} }}");
    let parts = nodes.add("parts", about, "crop_boxes", &config, &inputs);
    let range = if is_text { ValueRange::SIGNED } else { ValueRange::UNIT };
    let pixels = nodes.pixels("part_pixels", reader.input, frame, range, &parts);
    let name = match read {
        PartReading::Text(_) => "reader",
        PartReading::Class => "classifier",
        PartReading::Other => "second",
    };
    let name = reader.add(nodes, name, frame, &pixels, tried);
    let from = |output: &StarterOutput| format!("{name}/{}", output.port);
    let first = reader.model.outputs.first().map(from).unwrap_or_default();
    // The outputs of the parts, which become those of an image.
    let results: Vec<(String, String)> = match read {
        PartReading::Text(classes) => {
            let (alphabet, space, about) = alphabet(reader.model, classes)?;
            nodes.files.push(("alphabet.txt".into(), alphabet.into_bytes()));
            let config = format!("alphabet: alphabet.txt, space: {space}");
            let read = nodes.add("read", about, "decode_ctc", &config, &format!("from: {first}"));
            vec![("text".into(), format!("{read}/text")), ("score".into(), format!("{read}/score"))]
        }
        PartReading::Class => {
            let about = "if the scores are not probabilities, add a `softmax` upstream";
            let best = nodes.add("best", about, "argmax", "", &format!("from: {first}"));
            vec![("class".into(), format!("{best}/index")), ("score".into(), format!("{best}/value"))]
        }
        PartReading::Other => reader.model.outputs.iter().map(|output| (output.port.clone(), from(output))).collect(),
    };
    let mut fields = vec![format!("{shape}: {placed}")];
    for (field, from) in results {
        let about = if field == "text" { "a line of text for each part" } else { "a row for each part" };
        let all =
            nodes.add(&format!("{field}_all"), about, "gather", &format!("max: {PARTS}"), &format!("from: {from}"));
        // Two inputs of a node have two names.
        let field = if matches!(&*field, "name" | "boxes" | "quads") { format!("{field}_2") } else { field };
        fields.push(format!("{}: {all}", nodes::port(&field)));
    }
    let path = if is_text { "lines" } else { "parts" };
    nodes.objects(path, &fields.join(", "), &format!("\n    join: {{ patience: {PARTS} }}"));
    Ok(())
}

/// Returns the symbols of a model of text, whether a space follows them, and what is to know about
/// them.
fn alphabet(model: &Model, classes: usize) -> Result<(String, bool, &'static str), String> {
    let Some(symbols) = &model.alphabet else {
        let symbols: String = (1..classes).map(|class| format!("[{class}]\n")).collect();
        return Ok((symbols, false, "write the model's symbols into alphabet.txt, one per line, without the blank"));
    };
    let count = symbols.lines().count();
    // The class 0 is the blank.
    let space = match classes.checked_sub(count) {
        Some(1) => false,
        Some(2) => true,
        _ => {
            let (one, two) = (count + 1, count + 2);
            return Err(format!(
                "`{}` must produce {one} classes (the symbols of the metadata `character` and a blank) or {two} (and a \
                 space), got {classes}",
                model.file
            ));
        }
    };
    Ok((symbols.lines().map(|symbol| format!("{symbol}\n")).collect(), space, "the symbols of the model's metadata"))
}
