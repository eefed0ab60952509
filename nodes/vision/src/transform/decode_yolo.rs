//! Boxes from the output of a YOLO model.

mod grid;
mod layout;

use limen::message::{DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::boxes::{self, Best, BoxRow, ROW};
use limen_nodes_core::tensor::{cost, shape};
use schemars::JsonSchema;
use serde::Deserialize;

use grid::Grid;
use layout::Sizes;

pub use grid::cells;
pub use layout::YoloLayout;

/// Decodes the output of a YOLO model, `f32[candidates,numbers]` or `f32[numbers,candidates]`, to
/// `boxes` `f32[≤max_boxes,6]`.
///
/// Rows of `boxes` are x0, y0, x1, y1, score, class, sorted by descending score. Coordinates are in
/// pixels of the model's input image. Each candidate with a score above `threshold` produces a box
/// for its best class. If there are more than `max_boxes` boxes, the node keeps the boxes with the
/// highest scores. The boxes of many candidates overlap, except with `layout: v10`. To remove
/// overlapping boxes, add an `nms` node downstream.
///
/// Some models produce additional numbers per candidate, such as the coefficients of masks or the
/// points of a pose. For such a model, add a `slice` node upstream that keeps only the boxes and
/// classes. If the dims of the model's output are swapped, add a `transpose` node with `order: [1,
/// 0]` upstream. Scores must be probabilities, and centres must be in pixels. If a score is above
/// 1.1 or the centres are not in pixels, the call fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct DecodeYoloConfig {
    /// Layout of the output. Default: the only layout that fits the input shape. A `v5` output
    /// requires `layout` or `classes`, because a `v8` output with swapped dims may have the same
    /// shape. With one candidate per cell of a square image, `layout` is required, because `v5` and
    /// `yolox` have the same shape. YOLOv6 and YOLOX, for example, have one candidate per cell
    /// (8400 for 640 × 640 pixels).
    pub layout: Option<YoloLayout>,
    /// Width of the model's input image in pixels, for `yolox`. Default: the width of a square
    /// image.
    pub width: Option<usize>,
    /// Height of the model's input image in pixels, for `yolox`. Default: the height of a square
    /// image.
    pub height: Option<usize>,
    /// Number of classes. limen rejects inputs with a different number of classes or with swapped
    /// dims. `classes` does not distinguish `v5` from `yolox`. By default, limen derives the number
    /// of classes from the input shape. The shape must have more candidates than numbers per
    /// candidate.
    pub classes: Option<usize>,
    /// Score above which the node keeps a box. Default: 0.25.
    #[serde(default = "quarter")]
    pub threshold: f32,
    /// Maximum number of boxes per message. Default: 1000.
    #[serde(default = "thousand")]
    pub max_boxes: usize,
    /// Whether a candidate produces a box for every class with a score above `threshold`. Default:
    /// `false`, which produces a box only for the best class.
    #[serde(default)]
    pub multi_label: bool,
}

/// A score above this is no probability, even if a model in 8 bits has rounded it.
const MAX_SCORE: f32 = 1.1;

/// Of so many candidates of a model, some have their centre this far from the corner of the image,
/// in pixels.
const MANY: usize = 100;
const NEAR: f32 = 8.0;
/// The centre of a box of YOLOX is not so many cells from its own.
const FAR: f32 = 32.0;

fn quarter() -> f32 {
    0.25
}

fn thousand() -> usize {
    1000
}

/// The lengths of the buffers.
struct BufferLengths {
    /// Boxes of an output, at most.
    boxes: usize,
    /// Candidates of which the highest score is computed first.
    highest: usize,
}

impl BufferLengths {
    fn of(config: &DecodeYoloConfig, sizes: Sizes) -> Self {
        let candidates = sizes.candidates.unwrap_or(0);
        let boxes = if config.multi_label { candidates.saturating_mul(sizes.classes) } else { candidates };
        let needs_highest = sizes.layout == YoloLayout::V8 && !config.multi_label;
        BufferLengths { boxes, highest: if needs_highest { candidates } else { 0 } }
    }
}

/// Runs `kind: decode_yolo`; [`DecodeYoloConfig`] says what it does.
#[derive(Debug)]
pub struct DecodeYolo {
    layout: YoloLayout,
    classes: usize,
    threshold: f32,
    multi_label: bool,
    grid: Option<Grid>,
    /// Boxes by index: `candidate · classes + class`.
    best: Best,
    /// Score and class of every candidate, for [`YoloLayout::V8`].
    highest: Vec<(f32, usize)>,
}

/// Returns the greater score with its index; of equal scores the first.
fn greater(a: (f32, usize), b: (f32, usize)) -> (f32, usize) {
    if b.0 > a.0 { b } else { a }
}

impl DecodeYolo {
    fn new(config: &DecodeYoloConfig, sizes: Sizes) -> Self {
        let buffers = BufferLengths::of(config, sizes);
        DecodeYolo {
            layout: sizes.layout,
            classes: sizes.classes,
            threshold: config.threshold,
            multi_label: config.multi_label,
            grid: sizes.grid,
            best: Best::new(config.threshold, config.max_boxes, buffers.boxes),
            highest: Vec::with_capacity(buffers.highest),
        }
    }

    /// Collects the boxes of an output.
    fn collect(&mut self, values: &[f32], candidates: usize) {
        self.best.clear();
        match self.layout {
            YoloLayout::V5 | YoloLayout::Yolox => self.collect_rows(values),
            YoloLayout::V8 => self.collect_columns(values.get(4 * candidates..).unwrap_or_default(), candidates),
            YoloLayout::V10 => {
                let rows: &[BoxRow] = values.as_chunks().0;
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

    /// Returns the distance from number to number of a candidate, and from candidate to candidate.
    fn steps(&self, candidates: usize) -> [usize; 2] {
        match self.layout {
            YoloLayout::V8 => [candidates, 1],
            layout => [1, layout.others() + self.classes],
        }
    }

    /// Returns what is wrong with the centres of an output, if they have another meaning than in
    /// this layout.
    fn misplaced(&mut self, values: &[f32], candidates: usize) -> Option<&'static str> {
        if candidates < MANY || self.best.sorted().is_empty() {
            return None;
        }
        let [number, step] = self.steps(candidates);
        let centre = |candidate: usize| [0, 1].map(|n| values[candidate * step + n * number].abs());
        match self.layout {
            YoloLayout::V10 => None,
            // The last cell is the one at the lower right.
            YoloLayout::Yolox => centre(candidates - 1).iter().any(|cells| *cells > FAR).then_some(
                "expected the last box within 32 cells of its cell, found it farther away: write `layout: v5` if the model outputs pixels",
            ),
            YoloLayout::V5 | YoloLayout::V8 => {
                let is_near = (0..candidates).all(|candidate| centre(candidate).iter().all(|pixels| *pixels < NEAR));
                let may_be_yolox = self.layout == YoloLayout::V5 && Grid::of(candidates, None).is_some();
                is_near.then_some(match may_be_yolox {
                    true => {
                        "expected box centres in pixels, found all centres within 8 pixels of the corner: write `layout: yolox` for \
                         a YOLOX model, or export the model with boxes in pixels"
                    }
                    false => {
                        "expected box centres in pixels, found all centres within 8 pixels of the corner; export the model with boxes \
                         in pixels"
                    }
                })
            }
        }
    }

    /// Writes the rows of the best boxes.
    fn write(&mut self, values: &[f32], candidates: usize, rows: &mut [BoxRow]) {
        let [number, step] = self.steps(candidates);
        for (row, (score, at)) in rows.iter_mut().zip(self.best.sorted()) {
            if self.layout == YoloLayout::V10 {
                *row = values.as_chunks().0[*at];
                continue;
            }
            let (candidate, class) = (at / self.classes, at % self.classes);
            let [mut x, mut y, mut width, mut height] = [0, 1, 2, 3].map(|n| values[candidate * step + n * number]);
            if let Some([left, up, stride]) = self.grid.map(|grid| grid.cell(candidate)) {
                (x, y) = (x.mul_add(stride, left), y.mul_add(stride, up));
                (width, height) = (width.exp() * stride, height.exp() * stride);
            }
            let (left, up) = (width / 2.0, height / 2.0);
            *row = [x - left, y - up, x + left, y + up, *score, class as f32];
        }
    }
}

impl Node for DecodeYolo {
    type Config = DecodeYoloConfig;

    fn ports(config: &DecodeYoloConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.threshold.is_nan() {
            errors.at("threshold", "`threshold` must be a number, got NaN").help("write a number, such as 0.25");
        }
        for (field, n) in [("max_boxes", Some(config.max_boxes)), ("classes", config.classes)] {
            if n == Some(0) {
                errors.at(field, format!("`{field}` must be at least 1, got 0")).help("write 1 or more");
            }
        }
        if config.width.is_some() != config.height.is_some() {
            let [field, other] = if config.width.is_some() { ["width", "height"] } else { ["height", "width"] };
            errors
                .at(field, format!("`{field}` requires `{other}`"))
                .help(format!("write `{other}`, or remove `{field}`"));
        }
        let mut ports = Ports::new();
        let shape = shape::matrix_dims(given.single());
        let (mut most, mut memory) = (config.max_boxes, 0);
        if let Some(shape) = shape {
            let spec = PortSpec::new(DType::F32, shape.iter().cloned());
            match &Sizes::of(config, shape)[..] {
                [] => {
                    let wanted = config.layout.map_or(String::new(), |layout| format!(" {layout}"));
                    let classes = config.classes.map_or(String::new(), |classes| format!(" with {classes} classes"));
                    let message = format!("expected the output of a YOLO{wanted} model{classes}, found {spec}");
                    errors.input("in", message).help(config.advice(shape));
                }
                [Sizes { layout: YoloLayout::V5, classes, .. }]
                    if config.layout.is_none() && config.classes.is_none() =>
                {
                    let message = format!(
                        "ambiguous layout: {spec} matches a v5 model with {classes} classes, and a v8 model with {} and swapped dims",
                        classes + 1
                    );
                    errors.at("classes", message).help(format!(
                        "write `classes: {classes}` for v5, or add a `transpose` node with `order: [1, 0]` upstream for v8"
                    ));
                }
                [sizes] => {
                    let Sizes { layout, candidates, classes, .. } = *sizes;
                    if config.multi_label && layout == YoloLayout::V10 {
                        errors
                            .at("multi_label", "`multi_label` must be false for layout v10, got true")
                            .help("remove `multi_label`");
                    }
                    let buffers = BufferLengths::of(config, *sizes);
                    most = candidates.map_or(most, |_| buffers.boxes.min(most));
                    memory = Best::bytes(config.max_boxes, buffers.boxes)
                        .saturating_add(buffers.highest.saturating_mul(size_of::<(f32, usize)>()));
                    let classes =
                        if layout == YoloLayout::V10 { String::new() } else { format!(", {classes} classes") };
                    ports = ports.note(format!("{spec} has layout {layout}{classes}"));
                }
                several => {
                    let choices: Vec<String> = several.iter().map(|s| format!("`layout: {}`", s.layout)).collect();
                    errors
                        .at("layout", format!("ambiguous layout: {spec} matches several layouts"))
                        .help(format!("write {}", choices.join(" or ")));
                }
            }
        }
        let shape = shape.cloned().unwrap_or_else(|| ["a", "b"].map(|name| Dim::Symbol(name.into())));
        let ports = ports
            .input("in", PortSpec::new(DType::F32, shape))
            .output("boxes", boxes::spec(most))
            .memory(memory)
            .cost(cost::of_spec(given.single()).max(Cost::Medium));
        errors.into_result(ports)
    }

    fn build(config: DecodeYoloConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let spec = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
        match shape::matrix_dims(spec).map(|shape| Sizes::of(&config, shape)).as_deref() {
            Some([sizes]) => Ok(DecodeYolo::new(&config, *sizes)),
            _ => Err(NodeError::input("in", "the layout is unknown during planning")),
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
        if let Some((score, _)) = self.best.sorted().first()
            && *score > MAX_SCORE
        {
            let why = format!(
                "a score must be 0 to 1, got {score}: add a `slice` node upstream for a model with masks or poses (see \
                 `limen-run explain decode_yolo`)"
            );
            return Err(NodeError::input("in", why));
        }
        if let Some(why) = self.misplaced(values, candidates) {
            return Err(NodeError::input("in", why));
        }
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

    fn config(layout: Option<YoloLayout>, classes: Option<usize>) -> DecodeYoloConfig {
        DecodeYoloConfig {
            layout,
            width: None,
            height: None,
            classes,
            threshold: 0.25,
            max_boxes: 4,
            multi_label: false,
        }
    }

    /// The expected rows are those of a NumPy implementation of what Ultralytics does before
    /// suppression, on the same numbers: with objectness, `conf = scores * objectness`; then
    /// `scores.max(1)`, or with `multi_label` `nonzero(scores > threshold)`; then a stable
    /// descending sort of which the first are kept, and corners from `x ∓ w / 2`.
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
            (YoloLayout::V5, [4, 8], false, &[of_rows[0], of_rows[2]][..]),
            (YoloLayout::V5, [4, 8], true, &of_rows),
            (YoloLayout::V8, [8, 4], false, &of_columns[..2]),
            (YoloLayout::V8, [8, 4], true, &of_columns),
        ] {
            let classes = if layout == YoloLayout::V5 { 3 } else { 4 };
            let config =
                DecodeYoloConfig { max_boxes: expected.len(), multi_label, ..config(Some(layout), Some(classes)) };
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

    /// The expected row is that of a NumPy implementation of the decoding that exports of YOLOX
    /// leave out: `np.meshgrid` per stride of 8, 16 and 32 for 64 × 64 pixels,
    /// `(xy + grid) * stride`, `exp(wh) * stride`.
    #[test]
    fn boxes_of_yolox_are_placed_by_their_cells() {
        let mut numbers = vec![0.0; 84 * 6];
        // Row 2, column 1 of the cells of 16 pixels.
        numbers[(64 + 9) * 6..][..6].copy_from_slice(&[0.25, -0.5, 0.5, -0.25, 0.75, 0.5]);
        let config = config(Some(YoloLayout::Yolox), Some(1));
        let [sizes] = Sizes::of(&config, &[84, 6].map(Dim::Fixed))[..] else { panic!() };
        let mut node = DecodeYolo::new(&config, sizes);
        node.collect(&numbers, 84);
        let mut found = [[0.0; ROW]];
        node.write(&numbers, 84, &mut found);
        let expected = [6.810_23, 17.769_594, 33.189_77, 30.230_406, 0.375, 0.0];
        for (found, expected) in found[0].iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
        }
    }

    #[test]
    fn centres_that_have_another_meaning_are_refused() {
        for (layout, first, last, expected) in [
            (YoloLayout::V5, [0.5, 0.5], [1.5, -0.5], Some("`layout: yolox`")),
            (YoloLayout::V5, [4.0, 4.0], [400.0, 400.0], None),
            (YoloLayout::Yolox, [0.5, 0.5], [1.5, -0.5], None),
            (YoloLayout::Yolox, [4.0, 4.0], [400.0, 400.0], Some("`layout: v5`")),
        ] {
            let mut numbers = vec![0.0; 189 * 6];
            numbers[..6].copy_from_slice(&[first[0], first[1], 1.0, 1.0, 0.75, 1.0]);
            numbers[188 * 6..][..2].copy_from_slice(&last);
            let config = config(Some(layout), Some(1));
            let [sizes] = Sizes::of(&config, &[189, 6].map(Dim::Fixed))[..] else { panic!() };
            let mut node = DecodeYolo::new(&config, sizes);
            node.collect(&numbers, 189);
            let found = node.misplaced(&numbers, 189);
            assert!(found.is_some() == expected.is_some(), "{layout}: {found:?}");
            assert!(found.is_none_or(|found| found.contains(expected.unwrap_or_default())), "{layout}: {found:?}");
        }
    }

    #[test]
    fn scores_that_are_nan_and_outputs_without_candidates_give_no_boxes() {
        for layout in YoloLayout::ALL {
            for multi_label in [false, true] {
                let config = DecodeYoloConfig { multi_label, ..config(Some(layout), None) };
                let classes = if layout == YoloLayout::V10 { 1 } else { 2 };
                let sizes = Sizes { layout, candidates: Some(3), classes, grid: None };
                let mut node = DecodeYolo::new(&config, sizes);
                for (values, candidates) in [(&[f32::NAN; 21][..], 3), (&[], 0)] {
                    node.collect(values, candidates);
                    assert_eq!(node.best.sorted(), [], "{layout}");
                }
            }
        }
    }
}
