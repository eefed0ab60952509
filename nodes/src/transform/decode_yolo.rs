//! Boxes from the output of a YOLO model.

use crate::tensor::boxes::{self, Best, ROW, Row};
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;

/// Converts the output of a YOLO model, `f32[candidates,numbers]` or `f32[numbers,candidates]`, into `boxes`
/// `f32[≤max_boxes,6]`: x0, y0, x1, y1, score, class, the highest score first, in pixels of the model's input image.
///
/// Each candidate with a score above `threshold` gives a box for its best class. Many candidates overlap, except with `layout:
/// v10`: put an `nms` node behind. Of more than `max_boxes` boxes, those with the highest scores are kept.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// The order of the numbers; by default the only one that the shape of the input allows.
    pub layout: Option<Layout>,
    /// The number of classes, to decide the layout and to refuse other outputs; by default the number that the shape of the input
    /// shows.
    pub classes: Option<usize>,
    /// Only boxes with a score above this are kept; 0.25 by default.
    #[serde(default = "quarter")]
    pub threshold: f32,
    /// Most boxes per message; 1000 by default.
    #[serde(default = "thousand")]
    pub max_boxes: usize,
    /// `true` gives a box for every class whose score is above `threshold`; by default only for the best class of a candidate.
    #[serde(default)]
    pub multi_label: bool,
}

/// Scoring more elements takes more than 50 µs.
const HEAVY: usize = 1 << 16;

fn quarter() -> f32 {
    0.25
}

fn thousand() -> usize {
    1000
}

/// The order of the numbers in the output of a YOLO model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// `f32[candidates,5+classes]`, as YOLOv5, v6 and v7: centre x, centre y, width, height, objectness, a score per class. The
    /// score of a box is that of the class times the objectness.
    V5,
    /// `f32[4+classes,candidates]`, as YOLOv8, v9, v11 and v12: centre x, centre y, width, height, a score per class.
    V8,
    /// `f32[candidates,6]`, as YOLOv10: x0, y0, x1, y1, score, class. The model has chosen the boxes itself.
    V10,
}

impl Layout {
    const ALL: [Layout; 3] = [Layout::V5, Layout::V8, Layout::V10];

    /// Returns the dims of candidates and of the numbers of each.
    fn dims(self) -> [usize; 2] {
        if self == Layout::V8 { [1, 0] } else { [0, 1] }
    }

    /// Returns how many of a candidate's numbers are not scores of classes.
    fn others(self) -> usize {
        match self {
            Layout::V5 => 5,
            Layout::V8 => 4,
            Layout::V10 => ROW,
        }
    }

    /// Returns candidates and classes of a shape, 1 class for [`Layout::V10`]; `None` if the shape has another layout.
    fn sizes(self, shape: &[Dim; 2], classes: Option<usize>) -> Option<Sizes> {
        let [candidates, numbers] = self.dims().map(|dim| &shape[dim]);
        let Dim::Fixed(numbers) = numbers else { return None };
        let scores = numbers.checked_sub(self.others())?;
        let fits = match self {
            Layout::V10 => scores == 0,
            _ => scores > 0 && classes.is_none_or(|classes| classes == scores),
        };
        fits.then(|| Sizes { layout: self, candidates: candidates.max(), classes: scores.max(1) })
    }
}

/// The name as written in YAML.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::V5 => "v5",
            Layout::V8 => "v8",
            Layout::V10 => "v10",
        })
    }
}

/// What a shape says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    layout: Layout,
    candidates: Option<usize>,
    classes: usize,
}

impl Sizes {
    /// Returns the layouts that a shape can have: the one of the config, or each for which there are more candidates than numbers.
    fn of(config: &Config, shape: &[Dim; 2]) -> Vec<Sizes> {
        let is_likely = |sizes: &Sizes| {
            let numbers = sizes.layout.others() + sizes.classes;
            config.layout.is_some()
                || config.classes.is_some()
                || sizes.layout == Layout::V10
                || sizes.candidates.is_none_or(|candidates| candidates > numbers)
        };
        let layouts = Layout::ALL.into_iter().filter(|layout| config.layout.is_none_or(|wanted| wanted == *layout));
        layouts.filter_map(|layout| layout.sizes(shape, config.classes)).filter(is_likely).collect()
    }
}

/// The node.
#[derive(Debug)]
pub struct DecodeYolo {
    layout: Layout,
    classes: usize,
    threshold: f32,
    multi_label: bool,
    /// Boxes by index: `candidate · classes + class`.
    best: Best,
    /// Score and class of every candidate, for [`Layout::V8`].
    highest: Vec<(f32, usize)>,
}

/// Returns the greater score with its index; of equal scores the first.
fn greater(a: (f32, usize), b: (f32, usize)) -> (f32, usize) {
    if b.0 > a.0 { b } else { a }
}

impl DecodeYolo {
    fn new(config: &Config, sizes: Sizes) -> Self {
        let candidates = sizes.candidates.unwrap_or(0);
        let boxes = if config.multi_label { candidates.saturating_mul(sizes.classes) } else { candidates };
        let needs_highest = sizes.layout == Layout::V8 && !config.multi_label;
        DecodeYolo {
            layout: sizes.layout,
            classes: sizes.classes,
            threshold: config.threshold,
            multi_label: config.multi_label,
            best: Best::new(config.threshold, config.max_boxes, boxes),
            highest: Vec::with_capacity(if needs_highest { candidates } else { 0 }),
        }
    }

    /// Collects the boxes of an output.
    fn collect(&mut self, values: &[f32], candidates: usize) {
        self.best.clear();
        match self.layout {
            Layout::V5 => self.collect_rows(values),
            Layout::V8 => self.collect_columns(values.get(4 * candidates..).unwrap_or_default(), candidates),
            Layout::V10 => {
                let rows: &[Row] = values.as_chunks().0;
                rows.iter().zip(0..).for_each(|(row, at)| self.best.offer(row[4], at));
            }
        }
    }

    /// Collects boxes from rows of four numbers, the objectness, and a score per class.
    fn collect_rows(&mut self, values: &[f32]) {
        for (row, candidate) in values.chunks_exact(5 + self.classes).zip(0..) {
            // Scores are at most 1, so none is above the objectness, and most candidates end here.
            let objectness = row[4];
            if objectness > self.threshold {
                let scores = row[5..].iter().map(|score| score * objectness).zip(candidate * self.classes..);
                if self.multi_label {
                    scores.for_each(|(score, at)| self.best.offer(score, at));
                } else {
                    let (score, at) = scores.fold((f32::NEG_INFINITY, 0), greater);
                    self.best.offer(score, at);
                }
            }
        }
    }

    /// Collects boxes from the scores of all candidates for each class.
    fn collect_columns(&mut self, scores: &[f32], candidates: usize) {
        let columns = scores.chunks_exact(candidates.max(1)).zip(0..);
        if self.multi_label {
            for (scores, class) in columns {
                scores.iter().zip(0..).for_each(|(score, at)| self.best.offer(*score, at * self.classes + class));
            }
            return;
        }
        self.highest.clear();
        self.highest.resize(candidates, (f32::NEG_INFINITY, 0));
        for (scores, class) in columns {
            self.highest
                .iter_mut()
                .zip(scores)
                .for_each(|(highest, score)| *highest = greater(*highest, (*score, class)));
        }
        let highest = self.highest.iter().zip(0..);
        highest.for_each(|((score, class), at)| self.best.offer(*score, at * self.classes + class));
    }

    /// Writes the rows of the best boxes.
    fn write(&mut self, values: &[f32], candidates: usize, rows: &mut [Row]) {
        // The distance from number to number of a candidate, and from candidate to candidate.
        let (number, step) = match self.layout {
            Layout::V8 => (candidates, 1),
            layout => (1, layout.others() + self.classes),
        };
        for (row, (score, at)) in rows.iter_mut().zip(self.best.sorted()) {
            if self.layout == Layout::V10 {
                *row = values.as_chunks().0[*at];
                continue;
            }
            let (candidate, class) = (at / self.classes, at % self.classes);
            let [x, y, width, height] = [0, 1, 2, 3].map(|n| values[candidate * step + n * number]);
            let (left, up) = (width / 2.0, height / 2.0);
            *row = [x - left, y - up, x + left, y + up, *score, class as f32];
        }
    }
}

impl Node for DecodeYolo {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.threshold.is_nan() {
            errors.at("threshold", "NaN is not a threshold").help("write a number, such as 0.25");
        }
        for (field, n) in [("max_boxes", Some(config.max_boxes)), ("classes", config.classes)] {
            if n == Some(0) {
                errors.at(field, "0 is not possible").help("write 1 or more");
            }
        }
        let mut ports = Ports::new();
        let shape = given.single().and_then(|spec| <&[Dim; 2]>::try_from(&spec.shape[..]).ok());
        let mut most = config.max_boxes;
        if let Some(shape) = shape {
            let spec = PortSpec::new(DType::F32, shape.iter().cloned());
            match &Sizes::of(config, shape)[..] {
                [] => {
                    let wanted = config.layout.map_or(String::new(), |layout| format!(" {layout}"));
                    let classes = config.classes.map_or(String::new(), |classes| format!(" with {classes} classes"));
                    errors.input("in", format!("{spec} is not the output of a YOLO{wanted} model{classes}")).help(
                        "expected f32[candidates,5+classes] (v5), f32[4+classes,candidates] (v8) or f32[candidates,6] (v10)",
                    );
                }
                [sizes] => {
                    let Sizes { layout, candidates, classes } = *sizes;
                    if config.multi_label && layout == Layout::V10 {
                        errors
                            .at("multi_label", "a candidate of layout v10 has one class")
                            .help("remove `multi_label`");
                    }
                    let per_candidate = if config.multi_label { classes } else { 1 };
                    let boxes = candidates.map(|candidates| candidates.saturating_mul(per_candidate));
                    most = boxes.map_or(most, |boxes| boxes.min(most));
                    let classes = if layout == Layout::V10 { String::new() } else { format!(", {classes} classes") };
                    ports = ports.note(format!("{spec} has layout {layout}{classes}"));
                }
                several => {
                    let choices: Vec<String> = several.iter().map(|s| format!("`layout: {}`", s.layout)).collect();
                    errors
                        .at("layout", format!("{spec} can have several layouts"))
                        .help(format!("write {}", choices.join(" or ")));
                }
            }
        }
        let elements = given.single().and_then(PortSpec::max_elements);
        let shape = shape.cloned().unwrap_or_else(|| ["a", "b"].map(|name| Dim::Symbol(name.into())));
        let ports = ports
            .input("in", PortSpec::new(DType::F32, shape))
            .output("boxes", boxes::spec(most))
            .cost(if elements.is_some_and(|n| n > HEAVY) { Cost::Heavy } else { Cost::Medium });
        errors.into_result(ports)
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let spec = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
        let shape = spec.and_then(|spec| <&[Dim; 2]>::try_from(&spec.shape[..]).ok());
        match shape.map(|shape| Sizes::of(&config, shape)).as_deref() {
            Some([sizes]) => Ok(DecodeYolo::new(&config, *sizes)),
            _ => Err(NodeError::input("in", "its layout is not known while planning")),
        }
    }
}

impl Transform for DecodeYolo {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let values = input.body.as_slice()?;
        let candidates = input.body.shape().get(self.layout.dims()[0]).copied().unwrap_or(0);
        self.collect(values, candidates);
        let mut found = out.loan(input.header())?;
        found.set_len(0, self.best.sorted().len())?;
        self.write(values, candidates, found.as_mut_slice::<f32>()?.as_chunks_mut::<ROW>().0);
        out.send(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(layout: Option<Layout>, classes: Option<usize>) -> Config {
        Config { layout, classes, threshold: 0.25, max_boxes: 4, multi_label: false }
    }

    #[test]
    fn the_shape_decides_the_layout_unless_several_fit() {
        use Layout::{V5, V8, V10};
        for (shape, layout, classes, expected) in [
            ([25200, 85], None, None, &[(V5, 80)][..]),
            ([84, 8400], None, None, &[(V8, 80)]),
            ([5, 8400], None, None, &[(V8, 1)]),
            ([300, 6], None, None, &[(V5, 1), (V10, 1)]),
            ([300, 6], None, Some(80), &[(V10, 1)]),
            ([300, 6], Some(V10), None, &[(V10, 1)]),
            ([300, 6], Some(V5), Some(1), &[(V5, 1)]),
            ([300, 6], Some(V8), None, &[(V8, 296)]),
            ([20, 85], None, None, &[(V8, 16)]),
            ([20, 85], None, Some(80), &[(V5, 80)]),
            ([20, 20], None, None, &[]),
            ([84, 8400], None, Some(79), &[]),
            ([84, 8400], Some(V10), None, &[]),
            ([8400, 4], Some(V8), None, &[(V8, 8396)]),
            ([8400, 5], Some(V5), None, &[]),
            ([0, 0], None, None, &[]),
        ] {
            let found: Vec<_> = Sizes::of(&config(layout, classes), &shape.map(Dim::Fixed))
                .iter()
                .map(|s| (s.layout, s.classes))
                .collect();
            assert_eq!(found, expected, "{shape:?} {layout:?} {classes:?}");
        }
        assert_eq!(Sizes::of(&config(None, None), &[Dim::AtMost(300), Dim::AtMost(6)]), []);
    }

    /// The expected rows are those of a NumPy implementation of what Ultralytics does before suppression, on the same numbers:
    /// with objectness, `conf = scores * objectness`; then `scores.max(1)`, or with `multi_label` `nonzero(scores > threshold)`;
    /// then a stable descending sort of which the first are kept, and corners from `x ∓ w / 2`.
    #[test]
    fn boxes_are_those_of_another_implementation() {
        // Four candidates of three or four classes.
        let numbers: [f32; 32] = std::array::from_fn(|i| ((i * i * 37 + i * 11 + 5) % 1000) as f32 / 1000.0);
        let of_rows = [
            [-0.0825, -0.1325, 0.0925, 0.2385, 0.631385, 0.0],
            [-0.0825, -0.1325, 0.0925, 0.2385, 0.573695, 2.0],
            [0.4295, 0.2675, 0.7325, 0.5425, 0.289863, 2.0],
        ];
        let of_columns = [
            [0.0695, 0.6475, 0.6725, 1.1425, 0.903, 3.0],
            [0.0025, 0.7845, 0.1035, 1.1855, 0.885, 0.0],
            [0.0695, 0.6475, 0.6725, 1.1425, 0.831, 1.0],
        ];
        for (layout, shape, multi_label, expected) in [
            (Layout::V5, [4, 8], false, &[of_rows[0], of_rows[2]][..]),
            (Layout::V5, [4, 8], true, &of_rows),
            (Layout::V8, [8, 4], false, &of_columns[..2]),
            (Layout::V8, [8, 4], true, &of_columns),
        ] {
            let config = Config { max_boxes: expected.len(), multi_label, ..config(Some(layout), None) };
            let [sizes] = Sizes::of(&config, &shape.map(Dim::Fixed))[..] else { panic!("{layout}") };
            let mut node = DecodeYolo::new(&config, sizes);
            let candidates = sizes.candidates.unwrap();
            let mut found = vec![[0.0; ROW]; expected.len()];
            for _ in 0..2 {
                node.collect(&numbers, candidates);
                assert_eq!(node.best.sorted().len(), expected.len());
                node.write(&numbers, candidates, &mut found);
                for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                    assert!((found - expected).abs() < 1e-6, "{layout} {multi_label}: {found} is not {expected}");
                }
            }
        }
    }

    #[test]
    fn scores_that_are_nan_and_outputs_without_candidates_give_no_boxes() {
        for layout in Layout::ALL {
            for multi_label in [false, true] {
                let config = Config { multi_label, ..config(Some(layout), None) };
                let sizes = Sizes { layout, candidates: Some(3), classes: if layout == Layout::V10 { 1 } else { 2 } };
                let mut node = DecodeYolo::new(&config, sizes);
                for (values, candidates) in [(&[f32::NAN; 21][..], 3), (&[], 0)] {
                    node.collect(values, candidates);
                    assert_eq!(node.best.sorted(), [], "{layout}");
                }
            }
        }
    }
}
