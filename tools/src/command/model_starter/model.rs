//! What the file of a model says, and what its outputs hint at.

use super::TriedModel;
use super::given::ImageSize;
use super::nodes::ValueRange;
use super::side::{Length, Side};
use super::ultralytics::{ModelTask, Ultralytics};
use crate::text::escape::one_line;
use limen_infer::{Binding, Inspection};
#[cfg(feature = "vision")]
use limen_vision::transform::decode_yolo::cells;

/// Without the crate of `decode_yolo`, no model is taken for YOLOX.
#[cfg(not(feature = "vision"))]
fn cells(_: usize, _: usize) -> Option<usize> {
    None
}

/// A model, with the name of its file.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) file: String,
    pub(super) inputs: Vec<Side>,
    pub(super) outputs: Vec<StarterOutput>,
    /// Whether it computes with f64 in between, which some backends do in f32.
    pub(super) computes_f64: bool,
    /// The symbols that it reads, one per line, if its file has them.
    pub(super) alphabet: Option<String>,
    /// What Ultralytics wrote into its file.
    pub(super) trained: Option<Ultralytics>,
    /// Why its first dims are not a batch, if so.
    pub(super) no_batch: Option<String>,
}

/// An output of a model.
#[derive(Clone, Debug)]
pub(super) struct StarterOutput {
    pub(super) port: String,
    /// Its type and dims, if the file declares them.
    pub(super) side: Option<Side>,
    /// Whether its elements are f64 in the model.
    pub(super) is_narrowed: bool,
    /// Whether its lengths depend on values, as behind `NonZero`.
    pub(super) depends_on_values: bool,
}

/// The shape of the boxes of a YOLO model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum YoloBoxes {
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
    /// The values of black and white that such a model takes.
    pub(super) range: ValueRange,
    /// The dim of the numbers of a box, and how many of them `decode_yolo` reads, if there are
    /// more.
    pub(super) kept: Option<(usize, usize)>,
    /// Whether boxes may overlap.
    pub(super) overlaps: bool,
    /// The names of the classes, if they are known.
    pub(super) names: Vec<String>,
}

impl Model {
    /// # Errors
    /// When the file does not declare its inputs.
    pub(super) fn of(found: &Inspection, file: &str) -> Result<Model, String> {
        let mut inputs: Vec<Side> = found.inputs.iter().filter_map(Side::of).collect();
        if inputs.is_empty() || inputs.len() != found.inputs.len() {
            return Err("the model must declare inputs with types and shapes".into());
        }
        let first = |side: &Side| side.shape.first().filter(|dim| matches!(dim, Length::Open(_))).cloned();
        let batches: Vec<Length> = inputs.iter().filter_map(first).collect();
        for side in &mut inputs {
            let is_fixed = matches!(side.shape.first(), Some(Length::Fixed(_)));
            side.has_inner_batch = is_fixed && side.shape.iter().any(|dim| batches.contains(dim));
            side.is_narrowed = found.narrows(&side.port);
        }
        let output = |output: &Binding| StarterOutput {
            port: output.port.clone(),
            side: Side::of(output),
            is_narrowed: found.narrows(&output.port),
            depends_on_values: found.depends_on_values(&output.port),
        };
        Ok(Model {
            file: file.to_string(),
            inputs,
            outputs: found.outputs.iter().map(output).collect(),
            computes_f64: found.computes_f64(),
            alphabet: found.metadata("character").map(str::to_string),
            trained: Ultralytics::of(found),
            no_batch: None,
        })
    }

    /// Returns why the first dims of the inputs cannot be a batch: no output has one. An image
    /// without a batch is not expected.
    pub(super) fn declares_no_batch(&self) -> Option<String> {
        let batch = self.inputs.iter().find_map(|side| match side.shape.first() {
            Some(Length::Open(name)) => Some(name),
            _ => None,
        })?;
        let is_batch = |dim: &Length| matches!(dim, Length::Open(name) if name == batch);
        let has_none = |output: &StarterOutput| {
            let shape = output.side.as_ref().map_or(&[][..], |side| &side.shape);
            matches!(shape.first(), Some(Length::Fixed(2..))) && !shape.iter().any(is_batch)
        };
        let is_sure = self.outputs.iter().all(has_none) && self.inputs.iter().all(|side| side.image_dims().is_none());
        is_sure.then(|| format!("no output has the dim `{}`", one_line(batch)))
    }

    /// Makes the first dims of its inputs and outputs part of an item.
    pub(super) fn without_batch(&mut self, why: String) {
        let outputs = self.outputs.iter_mut().filter_map(|output| output.side.as_mut());
        for side in self.inputs.iter_mut().chain(outputs) {
            (side.is_whole, side.has_inner_batch) = (true, false);
        }
        self.no_batch = Some(why);
    }

    /// Returns how to read the first output of a YOLO model as boxes, if it has their shape.
    pub(super) fn yolo_layout(&self, frame: ImageSize, tried: Option<&TriedModel>) -> Option<YoloLayout> {
        let output = self.outputs.first()?;
        let known = self.trained.as_ref().map(|trained| (trained.task, output.trained_layout(trained)));
        match known {
            Some((_, Some(layout))) => Some(layout),
            Some((ModelTask::Parts | ModelTask::Other, None)) => None,
            _ if self.outputs.len() > 1 => None,
            _ => Some(output.guessed_layout(output.yolo_form()?, frame, tried)),
        }
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

impl StarterOutput {
    /// Returns the shape of one item, if it is declared.
    pub(super) fn item(&self) -> &[Length] {
        self.side.as_ref().map_or(&[], Side::item)
    }

    /// Returns how to read the boxes of a YOLO model in this form. `tried` tells YOLOX, which gives
    /// no pixels, from others with a box for each cell.
    fn guessed_layout(&self, form: YoloBoxes, frame: ImageSize, tried: Option<&TriedModel>) -> YoloLayout {
        let ImageSize { width, height, .. } = frame;
        let cells = cells(width, height).map(Length::Fixed);
        let may_be_yolox = form == YoloBoxes::Rows && cells.is_some_and(|cells| self.item().first() == Some(&cells));
        let size = if width == height { String::new() } else { format!(", width: {width}, height: {height}") };
        let yolox = format!("yolox{size}");
        let other = match form {
            YoloBoxes::Rows => "v5",
            YoloBoxes::Columns => "v8",
        };
        let greatest = tried.and_then(|tried| tried.greatest.get(&self.port)).filter(|_| may_be_yolox);
        let (config, about) = match greatest {
            Some(greatest) if *greatest <= 1.0 => (
                yolox,
                format!(
                    "the layout is a guess: the greatest number of a trial, {greatest:.1}, is too small for a pixel; centres from 0 to 1 \
                     mean another detector"
                ),
            ),
            // The centre of some cell lies behind the middle of the image.
            Some(greatest) if *greatest <= width.min(height) as f32 / 2.0 => {
                (yolox, format!("the layout by a trial: the greatest number, {greatest:.1}, is too small for a pixel"))
            }
            Some(greatest) => (
                other.into(),
                format!(
                    "the layout by a trial: the greatest number, {greatest:.1}, can be a pixel, which `yolox` does not produce"
                ),
            ),
            None if may_be_yolox => (
                other.into(),
                format!("the layout is a guess from the shape; the other possibility is `layout: {yolox}`"),
            ),
            None => (other.into(), "the layout is a guess from the shape".into()),
        };
        let range = if config.starts_with("yolox") { ValueRange::YOLOX } else { ValueRange::UNIT };
        YoloLayout { config, about, range, kept: None, overlaps: true, names: Vec::new() }
    }

    /// Returns the layout of a model that Ultralytics exported: `f32[n,6]` from one that chooses
    /// boxes, `f32[4+classes,n]` and, of YOLOv5, `f32[n,5+classes]` from others; masks and poses
    /// add numbers. `None` for other shapes.
    fn trained_layout(&self, trained: &Ultralytics) -> Option<YoloLayout> {
        let Ultralytics { names, is_end_to_end, task, .. } = trained;
        let is_many = |length: &Length| matches!(length, Length::Open(_) | Length::Fixed(1000..));
        let classes = names.len();
        let (layout, dim, needed, found) = match self.item() {
            [_, Length::Fixed(found)] if *is_end_to_end => ("v10", 1, 6, *found),
            [Length::Fixed(found), many] if is_many(many) => ("v8", 0, 4 + classes, *found),
            [many, Length::Fixed(found)] if is_many(many) => ("v5", 1, 5 + classes, *found),
            _ => return None,
        };
        // Without the number of classes it is not known which numbers are scores.
        let is_known = classes > 0 || layout == "v10";
        let fits = match task {
            ModelTask::Detect => found == needed,
            ModelTask::Parts => found > needed,
            ModelTask::Other => false,
        };
        if !is_known || !fits {
            return None;
        }
        Some(YoloLayout {
            config: layout.into(),
            about: "the layout and the classes of the model's metadata".into(),
            range: ValueRange::ULTRALYTICS,
            kept: (found > needed).then_some((dim, needed)),
            overlaps: layout != "v10",
            names: names.clone(),
        })
    }

    /// Returns the form of the boxes of a YOLO model, if it has their shape.
    pub(super) fn yolo_form(&self) -> Option<YoloBoxes> {
        // Numbers of a box, and boxes.
        let is_row = |length: &Length| matches!(length, Length::Fixed(6..=300));
        let is_many = |length: &Length| matches!(length, Length::Open(_) | Length::Fixed(1000..));
        match self.item() {
            [row, many] if is_row(row) && is_many(many) => Some(YoloBoxes::Columns),
            [many, row] if is_row(row) && is_many(many) => Some(YoloBoxes::Rows),
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
            let frame = ImageSize { width, height, channels: 3, is_planar: true, about: None };
            let greatest = greatest.map(|greatest| ("y".to_string(), greatest)).into_iter().collect();
            let tried = TriedModel { greatest, ..TriedModel::default() };
            let y = &model.outputs[0];
            let layout = y.guessed_layout(y.yolo_form().unwrap(), frame, Some(&tried));
            assert_eq!(layout.config, expected, "{spec}");
            assert!(layout.about.contains(about), "{spec}: {}", layout.about);
        }
    }

    #[test]
    fn the_meaning_of_an_output_follows_from_its_shape() {
        for (spec, layout, is_map, classes, steps) in [
            ("f32[n,84,anchors]", Some(YoloBoxes::Columns), false, None, None),
            ("f32[1,25200,85]", Some(YoloBoxes::Rows), false, None, Some(85)),
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
