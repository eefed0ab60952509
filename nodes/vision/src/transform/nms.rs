//! Non-maximum suppression: one box per object.

use limen::message::Dim;
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::boxes::{self, BoxRow, ROW};
use schemars::JsonSchema;
use serde::Deserialize;

/// Upper bound of `max_boxes`. Every box is compared with all boxes kept so far, so more would take
/// too long.
const MAX_BOXES: usize = 300;

/// Removes boxes that overlap a box with a higher score (greedy non-maximum suppression):
/// `f32[≤n,6]` to `f32[≤max_boxes,6]`, sorted by descending score.
///
/// The node compares only boxes of the same class. With `across_classes`, the node compares all
/// boxes. The node removes boxes with a NaN score.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct NmsConfig {
    /// Maximum intersection over union with a kept box. The node removes boxes with a greater
    /// intersection over union. Default: 0.5.
    #[serde(default = "half")]
    pub iou: f32,
    /// Maximum number of boxes per message, at most 300. Default: 300.
    #[serde(default = "most")]
    pub max_boxes: usize,
    /// Whether to compare boxes of different classes, like `cv2.dnn.NMSBoxes`. Default: `false`.
    #[serde(default)]
    pub across_classes: bool,
}

fn half() -> f32 {
    0.5
}

fn most() -> usize {
    MAX_BOXES
}

/// Runs `kind: nms`; [`NmsConfig`] says what it does.
#[derive(Debug)]
pub struct Nms {
    rule: Rule,
    order: Vec<(f32, usize)>,
    kept: Vec<BoxRow>,
}

/// Which boxes remain.
#[derive(Clone, Copy, Debug)]
struct Rule {
    iou: f32,
    most: usize,
    across_classes: bool,
}

/// Keeps the boxes with the highest scores, greedily.
fn suppress(rows: &[BoxRow], rule: Rule, order: &mut Vec<(f32, usize)>, kept: &mut Vec<BoxRow>) {
    order.clear();
    order.extend(rows.iter().map(|row| row[4]).zip(0..).filter(|(score, _)| !score.is_nan()));
    order.sort_unstable_by(|a, b| boxes::by_score(*a, *b));
    kept.clear();
    for (_, at) in order.iter() {
        if kept.len() == rule.most {
            break;
        }
        let row = &rows[*at];
        let is_rival = |better: &BoxRow| rule.across_classes || better[5] == row[5];
        if !kept.iter().any(|better| is_rival(better) && boxes::iou(better, row) > rule.iou) {
            kept.push(*row);
        }
    }
}

impl Node for Nms {
    type Config = NmsConfig;

    fn ports(config: &NmsConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if !(0.0..=1.0).contains(&config.iou) {
            errors.at("iou", format!("`iou` must be 0 to 1, got {}", config.iou)).help("write a number from 0 to 1");
        }
        if !(1..=MAX_BOXES).contains(&config.max_boxes) {
            let message = format!("`max_boxes` must be 1 to {MAX_BOXES}, got {}", config.max_boxes);
            errors.at("max_boxes", message).help("write a number such as 100");
        }
        let input = boxes::any_spec(given.single());
        let most = input.shape.first().and_then(Dim::max).map_or(config.max_boxes, |n| n.min(config.max_boxes));
        let rows = input.shape.first().and_then(Dim::max).unwrap_or(0);
        let order = rows.saturating_mul(size_of::<(f32, usize)>());
        let kept = config.max_boxes.min(MAX_BOXES) * size_of::<BoxRow>();
        let ports = Ports::new().input("in", input).output("out", boxes::spec(most)).cost(Cost::Medium);
        errors.into_result(ports.memory(order.saturating_add(kept)))
    }

    fn build(config: NmsConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let rows = cx.inputs().first().and_then(|(_, spec)| spec.as_ref()?.shape.first()?.max());
        Ok(Nms {
            rule: Rule { iou: config.iou, most: config.max_boxes, across_classes: config.across_classes },
            order: Vec::with_capacity(rows.unwrap_or(0)),
            kept: Vec::with_capacity(config.max_boxes),
        })
    }
}

impl Transform for Nms {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        suppress(boxes::rows(&input.body)?, self.rule, &mut self.order, &mut self.kept);
        let mut tensor = out.loan(input.header())?;
        tensor.set_len(0, self.kept.len())?;
        tensor.as_mut_slice::<f32>()?.as_chunks_mut::<ROW>().0.copy_from_slice(&self.kept);
        out.send(tensor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(x: f32, score: f32, class: f32) -> BoxRow {
        [x, 0.0, x + 10.0, 10.0, score, class]
    }

    #[test]
    fn a_box_is_removed_for_an_overlapping_one_of_its_class_with_a_higher_score() {
        // Two boxes of side 10 that are 2 apart overlap by 2/3, 5 apart by 1/3.
        for (rows, iou, most, expected) in [
            (vec![row(0.0, 0.6, 0.0), row(2.0, 0.9, 0.0)], 0.5, 300, vec![0.9]),
            (vec![row(0.0, 0.6, 0.0), row(2.0, 0.9, 1.0)], 0.5, 300, vec![0.9, 0.6]),
            (vec![row(0.0, 0.6, 0.0), row(5.0, 0.9, 0.0)], 0.5, 300, vec![0.9, 0.6]),
            (vec![row(0.0, 0.6, 0.0), row(5.0, 0.9, 0.0)], 0.3, 300, vec![0.9]),
            // The first box suppresses the second, so the third, which overlaps only the second, is
            // kept.
            (vec![row(0.0, 0.9, 0.0), row(3.0, 0.8, 0.0), row(6.0, 0.7, 0.0)], 0.5, 300, vec![0.9, 0.7]),
            (vec![row(0.0, 0.5, 0.0), row(0.0, 0.5, 0.0)], 0.5, 300, vec![0.5]),
            (vec![row(0.0, 0.1, 0.0), row(50.0, 0.3, 0.0), row(99.0, 0.2, 0.0)], 0.5, 2, vec![0.3, 0.2]),
            (vec![row(0.0, f32::NAN, 0.0), row(f32::NAN, 0.4, 0.0)], 0.5, 300, vec![0.4]),
            (vec![], 0.5, 300, vec![]),
        ] {
            let (mut order, mut kept) = (Vec::new(), Vec::new());
            suppress(&rows, Rule { iou, most, across_classes: false }, &mut order, &mut kept);
            let scores: Vec<f32> = kept.iter().map(|row| row[4]).collect();
            assert_eq!(scores, expected, "{rows:?}");
        }
        let rows = [row(0.0, 0.6, 0.0), row(2.0, 0.9, 1.0), row(50.0, 0.3, 2.0)];
        let (mut order, mut kept) = (Vec::new(), Vec::new());
        suppress(&rows, Rule { iou: 0.5, most: 300, across_classes: true }, &mut order, &mut kept);
        assert_eq!(kept, [rows[1], rows[2]]);
    }
}
