//! What the file of a model says: inputs and outputs with their dims, and what they hint at.

use super::TriedModel;
use super::given::Frame;
use limen_backends::{Binding, Inspection};
use limen_nodes::transform::decode_yolo;

/// Words in the names of inputs, and of their dims.
const IMAGE_WORDS: [&str; 5] = ["image", "img", "pixel", "picture", "photo"];
const SOUND_WORDS: [&str; 6] = ["audio", "sound", "wav", "speech", "voice", "pcm"];
const FEATURE_WORDS: [&str; 7] = ["spec", "mel", "mfcc", "embed", "feat", "fbank", "stft"];
const SEQUENCE_WORDS: [&str; 6] = ["frame", "time", "seq", "step", "sample", "token"];

fn has_word(name: &str, words: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    words.iter().any(|word| name.contains(word))
}

/// A dim as the model declares it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Length {
    Fixed(usize),
    Open(String),
}

impl Length {
    pub(super) fn or(&self, open: usize) -> usize {
        match self {
            Length::Fixed(length) => *length,
            Length::Open(_) => open,
        }
    }
}

/// A model, with the name of its file.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) file: String,
    pub(super) inputs: Vec<Side>,
    pub(super) outputs: Vec<Output>,
    /// The symbols that it reads, one per line, if its file has them.
    pub(super) alphabet: Option<String>,
}

/// An output of a model.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) port: String,
    /// Its type and dims, if the file declares them.
    pub(super) side: Option<Side>,
    /// Whether its lengths depend on values, as behind `NonZero`.
    pub(super) depends_on_values: bool,
}

/// The shape of the boxes of a YOLO model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A row for each candidate.
    Rows,
    /// A column for each candidate.
    Columns,
}

/// How `decode_yolo` reads the boxes of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct YoloLayout {
    /// The layout as written in its config.
    pub(super) config: String,
    /// Where the layout is known from.
    pub(super) about: String,
}

/// A declared input or output.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) port: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<Length>,
    /// Whether a dim behind the first is the batch of the inputs, as in the state of a recurrent layer.
    pub(super) has_inner_batch: bool,
    /// Whether the model takes f64, where messages have f32.
    pub(super) is_narrowed: bool,
}

impl Model {
    /// # Errors
    /// When the file does not declare its inputs.
    pub(super) fn of(found: &Inspection, file: &str) -> Result<Model, String> {
        let mut inputs: Vec<Side> = found.inputs.iter().filter_map(Side::of).collect();
        if inputs.is_empty() || inputs.len() != found.inputs.len() {
            return Err("it does not declare inputs with types and shapes".into());
        }
        let first = |side: &Side| side.shape.first().filter(|dim| matches!(dim, Length::Open(_))).cloned();
        let batches: Vec<Length> = inputs.iter().filter_map(first).collect();
        for side in &mut inputs {
            let is_fixed = matches!(side.shape.first(), Some(Length::Fixed(_)));
            side.has_inner_batch = is_fixed && side.shape.iter().any(|dim| batches.contains(dim));
            side.is_narrowed = found.narrows(&side.port);
        }
        let output = |output: &Binding| Output {
            port: output.port.clone(),
            side: Side::of(output),
            depends_on_values: found.depends_on_values(&output.port),
        };
        Ok(Model {
            file: file.to_string(),
            inputs,
            outputs: found.outputs.iter().map(output).collect(),
            alphabet: found.metadata("character").map(str::to_string),
        })
    }

    /// The pairs of inputs and outputs that are a state: of like shape, with at least two dims, and names with the same stem.
    pub(super) fn states(&self) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        // An image that becomes an image is no state.
        for input in self.inputs.iter().filter(|input| input.shape.len() > 1 && input.image_dims().is_none()) {
            let is_free = |output: &&Side| pairs.iter().all(|(_, taken)| *taken != output.port);
            let sides = self.outputs.iter().filter_map(|output| output.side.as_ref());
            let mut like = sides.filter(|output| input.is_like(output)).filter(is_free);
            if let Some(output) = like.find(|output| input.stem() == output.stem()) {
                pairs.push((input.port.clone(), output.port.clone()));
            }
        }
        // A model has at least one input that is no state.
        let inputs = self.inputs.iter().filter(|input| !input.is_sample_rate()).count();
        if pairs.len() == inputs { Vec::new() } else { pairs }
    }

    /// Returns the names and types of some of its sides, for a message.
    pub(super) fn show<'a>(sides: impl Iterator<Item = (&'a str, Option<&'a Side>)>) -> String {
        let show = |(port, side): (&str, Option<&Side>)| match side {
            Some(side) => format!("`{port}` {}", side.spec()),
            None => format!("`{port}`"),
        };
        sides.map(show).collect::<Vec<_>>().join(", ")
    }
}

impl Output {
    /// Returns the shape of one item, if it is declared.
    pub(super) fn item(&self) -> &[Length] {
        self.side.as_ref().map_or(&[], Side::item)
    }

    /// Returns how to read the boxes of a YOLO model in this form. `tried` tells YOLOX, which gives no pixels, from others with a box for
    /// each cell.
    pub(super) fn yolo_layout(&self, form: Form, frame: Frame, tried: Option<&TriedModel>) -> YoloLayout {
        let Frame { width, height, .. } = frame;
        let cells = decode_yolo::cells(width, height).map(Length::Fixed);
        let may_be_yolox = form == Form::Rows && cells.is_some_and(|cells| self.item().first() == Some(&cells));
        let size = if width == height { String::new() } else { format!(", width: {width}, height: {height}") };
        let yolox = format!("yolox{size}");
        let other = match form {
            Form::Rows => "v5",
            Form::Columns => "v8",
        };
        let greatest = tried.and_then(|tried| tried.greatest.get(&self.port)).filter(|_| may_be_yolox);
        let (config, about) = match greatest {
            // The centre of some cell lies behind the middle of the image.
            Some(greatest) if *greatest <= width.min(height) as f32 / 2.0 => {
                (yolox, format!("by a trial: its greatest number, {greatest:.1}, is too small for a pixel"))
            }
            Some(greatest) => (
                other.into(),
                format!("by a trial: its greatest number, {greatest:.1}, can be a pixel, which `yolox` does not give"),
            ),
            None if may_be_yolox => {
                (other.into(), format!("a guess from the shape; the other possibility is `layout: {yolox}`"))
            }
            None => (other.into(), "the layout is a guess from the shape".into()),
        };
        YoloLayout { config, about }
    }

    /// Returns the form of the boxes of a YOLO model, if it has their shape.
    pub(super) fn yolo_form(&self) -> Option<Form> {
        // Numbers of a box, and boxes.
        let is_row = |length: &Length| matches!(length, Length::Fixed(6..=300));
        let is_many = |length: &Length| matches!(length, Length::Open(_) | Length::Fixed(1000..));
        match self.item() {
            [row, many] if is_row(row) && is_many(many) => Some(Form::Columns),
            [many, row] if is_row(row) && is_many(many) => Some(Form::Rows),
            _ => None,
        }
    }

    /// Whether it is a map of the size of an image, such as the probability of text at each pixel.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.item(), [Length::Fixed(1), Length::Open(_), Length::Open(_)])
    }

    /// Returns the number of classes if it has their scores.
    pub(super) fn classes(&self) -> Option<usize> {
        match self.item() {
            [Length::Fixed(classes @ 2..)] => Some(*classes),
            _ => None,
        }
    }

    /// Returns the number of classes if it has their scores for each step of a sequence.
    pub(super) fn classes_of_steps(&self) -> Option<usize> {
        match self.item() {
            [Length::Open(_) | Length::Fixed(2..), Length::Fixed(classes @ 2..)] => Some(*classes),
            _ => None,
        }
    }
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
        Some(Side {
            port: binding.port.clone(),
            dtype: dtype.to_string(),
            shape: dims.map(length).collect(),
            has_inner_batch: false,
            is_narrowed: false,
        })
    }

    /// Returns its type, with `?` for dims that are open: `f32[?,3,8,8]`.
    fn spec(&self) -> String {
        let show = |length: &Length| match length {
            Length::Fixed(length) => length.to_string(),
            Length::Open(_) => "?".into(),
        };
        format!("{}[{}]", self.dtype, self.shape.iter().map(show).collect::<Vec<_>>().join(","))
    }

    /// The shape of one item, without the batch.
    pub(super) fn item(&self) -> &[Length] {
        match self.shape.split_first() {
            Some((Length::Open(_) | Length::Fixed(1), item)) => item,
            _ => &self.shape,
        }
    }

    /// Returns height, width, channels, and whether the channels come first, if it can be an image.
    pub(super) fn image_dims(&self) -> Option<([&Length; 3], bool)> {
        let channels = |length: &Length| matches!(length, Length::Fixed(1 | 3));
        if self.has_inner_batch || !matches!(&*self.dtype, "f32" | "f16" | "u8") {
            return None;
        }
        match self.item() {
            [c, h, w] if channels(c) => Some(([h, w, c], true)),
            [h, w, c] if channels(c) => Some(([h, w, c], false)),
            _ => None,
        }
    }

    /// Whether its name says that it is an image.
    pub(super) fn says_image(&self) -> bool {
        has_word(&self.port, &IMAGE_WORDS)
    }

    /// Whether its name says that it is a recording, or the name of a dim that it has samples.
    pub(super) fn says_sound(&self) -> bool {
        let is_named = has_word(&self.port, &SOUND_WORDS) || self.has_dim(&["sample", "audio"]);
        is_named && !has_word(&self.port, &FEATURE_WORDS)
    }

    /// Whether names say that it is no image, even if it has the shape of one: sound, features, or a sequence.
    pub(super) fn says_no_image(&self) -> bool {
        let is_named = has_word(&self.port, &SOUND_WORDS) || has_word(&self.port, &FEATURE_WORDS);
        (is_named || self.has_dim(&SEQUENCE_WORDS)) && !self.says_image()
    }

    /// Whether it can be a recording with at least 10 ms in an item, as far as its shape says.
    pub(super) fn may_be_sound(&self) -> bool {
        let is_long = |dim: &Length| matches!(dim, Length::Open(_) | Length::Fixed(160..));
        self.is_row() && self.item().iter().any(is_long) && !has_word(&self.port, &FEATURE_WORDS)
    }

    /// Whether its items are numbers in a row: at most one length is not 1.
    pub(super) fn is_row(&self) -> bool {
        let item = self.item();
        self.dtype == "f32" && !item.is_empty() && item.iter().filter(|dim| **dim != Length::Fixed(1)).count() <= 1
    }

    /// Whether the name of an open dim of an item has one of these words.
    fn has_dim(&self, words: &[&str]) -> bool {
        self.item().iter().any(|dim| matches!(dim, Length::Open(name) if has_word(name, words)))
    }

    /// Whether it is a number of samples per second.
    pub(super) fn is_sample_rate(&self) -> bool {
        matches!(&*self.port, "sr" | "rate" | "sample_rate" | "sampling_rate" | "samplerate")
            && self.elements() == Some(1)
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

    /// Returns the number of elements of an item, if its lengths are declared.
    pub(super) fn elements(&self) -> Option<usize> {
        let lengths = self.item().iter().map(|length| if let Length::Fixed(n) = length { Some(*n) } else { None });
        lengths.product()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::inspection;
    use super::*;

    #[test]
    fn a_state_has_a_like_name_and_shape() {
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
            // As many layers as an image has colours.
            (&[("x", "f32[n,t]"), ("h0", "f32[3,n,64]")], &[("hn", "f32[3,n,64]")], &["h0 hn"]),
            // All inputs cannot be states.
            (&[("state", "f32[2,n,64]")], &[("next_state", "f32[2,n,64]")], &[]),
            // Another shape, or nothing in common but the shape.
            (&[("state", "f32[2,n,64]")], &[("staten", "f32[2,n,32]")], &[]),
            (&[("x", "f32[n,4]")], &[("y", "f32[n,4]")], &[]),
        ] {
            let model = Model::of(&inspection(inputs, outputs), "m.onnx").unwrap();
            let pairs: Vec<String> = model.states().into_iter().map(|(a, b)| format!("{a} {b}")).collect();
            assert_eq!(pairs, expected, "{inputs:?}");
        }
    }

    #[test]
    fn boxes_that_are_no_pixels_are_those_of_yolox() {
        let guess = "the layout is a guess from the shape";
        for (spec, [width, height], greatest, expected, about) in [
            ("f32[1,3549,6]", [416, 416], Some(4.0), "yolox", "by a trial: its greatest number, 4.0, is too small"),
            ("f32[1,5040,85]", [640, 384], Some(4.0), "yolox, width: 640, height: 384", "by a trial"),
            ("f32[1,8400,85]", [640, 640], Some(650.0), "v5", "by a trial: its greatest number, 650.0, can be a pixel"),
            ("f32[1,8400,85]", [640, 640], None, "v5", "the other possibility is `layout: yolox`"),
            ("f32[1,5040,85]", [640, 384], None, "v5", "is `layout: yolox, width: 640, height: 384`"),
            ("f32[1,25200,85]", [640, 640], Some(4.0), "v5", guess),
            ("f32[1,84,8400]", [640, 640], Some(4.0), "v8", guess),
            // As many cells, but no multiples of 32.
            ("f32[1,8400,85]", [650, 650], Some(4.0), "v5", guess),
        ] {
            let model = Model::of(&inspection(&[("x", "f32[n,4]")], &[("y", spec)]), "m.onnx").unwrap();
            let frame = Frame { width, height, channels: 3, is_planar: true, is_open: false };
            let greatest = greatest.map(|greatest| ("y".to_string(), greatest)).into_iter().collect();
            let tried = TriedModel { greatest, ..TriedModel::default() };
            let y = &model.outputs[0];
            let layout = y.yolo_layout(y.yolo_form().unwrap(), frame, Some(&tried));
            assert_eq!(layout.config, expected, "{spec}");
            assert!(layout.about.contains(about), "{spec}: {}", layout.about);
        }
    }

    #[test]
    fn names_say_what_an_input_is_no_image_of() {
        for (port, spec, no_image, sound, may_be_sound) in [
            ("degraded_audio", "f32[n,1,frames,257]", true, true, false),
            ("input", "f32[n,3,frames,160]", true, false, false),
            ("mel_window", "f32[n,1,80,40]", true, false, false),
            ("audio_embed", "f32[n,512]", true, false, false),
            ("rater_embed", "f32[n,64]", true, false, false),
            ("waveform", "f32[n,1,t]", true, true, true),
            ("input", "f32[n,samples]", true, true, true),
            ("input", "f32[n,43844,1]", false, false, true),
            ("input", "f32[n,4]", false, false, false),
            ("x", "f32[n,3,h,w]", false, false, false),
            ("images", "f32[frames,3,h,w]", false, false, false),
            ("image_features", "f32[n,1,h,w]", false, false, false),
        ] {
            let model = Model::of(&inspection(&[(port, spec)], &[("y", "f32[n,4]")]), "m.onnx").unwrap();
            let x = &model.inputs[0];
            let found = (x.says_no_image(), x.says_sound(), x.may_be_sound());
            assert_eq!(found, (no_image, sound, may_be_sound), "{port} {spec}");
        }
    }

    #[test]
    fn the_meaning_of_an_output_follows_from_its_shape() {
        for (spec, layout, is_map, classes, steps) in [
            ("f32[n,84,anchors]", Some(Form::Columns), false, None, None),
            ("f32[1,25200,85]", Some(Form::Rows), false, None, Some(85)),
            ("f32[a,1,b,c]", None, true, None, None),
            ("f32[a,1,32,32]", None, false, None, None),
            ("f32[n,10]", None, false, Some(10), None),
            ("f32[n,t,6625]", None, false, None, Some(6625)),
            ("f32[n,1]", None, false, None, None),
        ] {
            let model = Model::of(&inspection(&[("x", "f32[n,4]")], &[("y", spec)]), "m.onnx").unwrap();
            let y = &model.outputs[0];
            let found = (y.yolo_form(), y.is_map(), y.classes(), y.classes_of_steps());
            assert_eq!(found, (layout, is_map, classes, steps), "{spec}");
        }
    }
}
