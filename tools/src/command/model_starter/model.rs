//! What the file of a model says, and what its outputs hint at.

use super::TriedModel;
use super::given::Frame;
use super::side::{Length, Side};
use limen_backends::{Binding, Inspection};
use limen_nodes::transform::decode_yolo;

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

/// The values of black and white with which YOLOX is trained.
pub(super) const YOLOX_RANGE: &str = "[0, 255]";

impl YoloLayout {
    /// Returns the values of black and white that such a model probably takes.
    pub(super) fn range(&self) -> &'static str {
        if self.config.starts_with("yolox") { YOLOX_RANGE } else { "[0, 1]" }
    }
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
            Some(greatest) if *greatest <= 1.0 => (
                yolox,
                format!(
                    "the layout is a guess: the greatest number of a trial, {greatest:.1}, is too small for a pixel; centres from 0 to 1 are \
                     those of another detector"
                ),
            ),
            // The centre of some cell lies behind the middle of the image.
            Some(greatest) if *greatest <= width.min(height) as f32 / 2.0 => {
                (yolox, format!("the layout by a trial: the greatest number, {greatest:.1}, is too small for a pixel"))
            }
            Some(greatest) => (
                other.into(),
                format!(
                    "the layout by a trial: the greatest number, {greatest:.1}, can be a pixel, which `yolox` does not give"
                ),
            ),
            None if may_be_yolox => (
                other.into(),
                format!("the layout is a guess from the shape; the other possibility is `layout: {yolox}`"),
            ),
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
            ("f32[1,3549,6]", [416, 416], Some(0.6), "yolox", "is a guess: the greatest number of a trial, 0.6"),
            ("f32[1,3549,6]", [416, 416], Some(4.0), "yolox", "by a trial: the greatest number, 4.0, is too small"),
            ("f32[1,5040,85]", [640, 384], Some(4.0), "yolox, width: 640, height: 384", "by a trial"),
            ("f32[1,8400,85]", [640, 640], Some(650.0), "v5", "by a trial: the greatest number, 650.0, can be a pixel"),
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
