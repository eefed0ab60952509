//! The accuracy of predictions.

use crate::tensor::boxes::{self, BoxRow};
use limen::message::{DType, PortSpec};
use limen::node::{Building, Connected, Cost, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Compares the inputs `predicted` and `truth` and reports how often the inputs agree.
///
/// With `task: labels`, both inputs are `i32[]`. The report contains `accuracy`, `correct` and
/// `total`.
///
/// With `task: boxes`, both inputs are `f32[≤n,6]`. The report contains `precision`, `recall`,
/// `true_positives`, `false_positives`, `missed` and `mean_average_precision`.
/// `mean_average_precision` is the COCO mean over classes (101 recall points), at the single
/// threshold `iou`. `mean_average_precision` requires a detector with a low score threshold. Scores
/// range from 0 to 1, with a resolution of 1/1024.
///
/// The node reports 0 for a ratio with a denominator of 0.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ScoreConfig {
    /// What to compare. Default: `labels`.
    #[serde(default)]
    pub task: Task,
    /// Minimum intersection over union, 0 to 1, of a predicted box and a matching true box of the
    /// same class. Default: 0.5.
    #[serde(default = "half")]
    pub iou: f32,
}

fn half() -> f32 {
    0.5
}

/// What to compare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// One integer label per message.
    #[default]
    Labels,
    /// Boxes with classes. Predicted boxes are matched in descending order of score. Each true box
    /// is matched at most once.
    Boxes,
}

/// Runs `kind: score`; [`ScoreConfig`] says what it does.
#[derive(Debug)]
pub struct Score {
    task: Task,
    matcher: Matcher,
    iou: f32,
    /// Labels that agree, or predicted boxes that match a true box.
    right: u64,
    /// All labels, or all predicted boxes.
    predicted: u64,
    /// All true labels, or all true boxes.
    present: u64,
    curves: Curves,
}

/// Steps of the scores of predicted boxes.
const STEPS: usize = 1024;
/// The most classes whose precision is averaged.
const MAX_CLASSES: usize = 256;

/// The predictions of a class by their scores.
#[derive(Debug)]
struct Curve {
    class: u32,
    /// True boxes.
    present: u64,
    /// Of each step of the score: predictions that match, and all.
    steps: Box<[(u32, u32); STEPS]>,
}

impl Curve {
    fn new(class: u32) -> Self {
        Curve { class, present: 0, steps: Box::new([(0, 0); STEPS]) }
    }

    fn add(&mut self, score: f32, is_right: bool) {
        // NaN is the lowest score.
        let step = &mut self.steps[((score * STEPS as f32) as usize).min(STEPS - 1)];
        step.0 = step.0.saturating_add(u32::from(is_right));
        step.1 = step.1.saturating_add(1);
    }

    /// The mean, over 101 recalls, of the highest precision at that recall or beyond: Lin et al.,
    /// Microsoft COCO (2014), as pycocotools computes it.
    fn average_precision(&self) -> f64 {
        let (mut right, mut all) = (0, 0);
        let mut points = Vec::new();
        for (matching, predicted) in self.steps.iter().rev().filter(|(_, predicted)| *predicted > 0) {
            (right, all) = (right + u64::from(*matching), all + u64::from(*predicted));
            points.push((ratio(right, self.present), ratio(right, all)));
        }
        let best =
            |least: f64| points.iter().filter(|(recall, _)| *recall >= least).map(|(_, p)| *p).fold(0.0, f64::max);
        (0..=100).map(|percent| best(f64::from(percent) / 100.0)).sum::<f64>() / 101.0
    }
}

/// The predictions of all classes.
#[derive(Debug, Default)]
struct Curves {
    of: Vec<Curve>,
    /// Boxes of classes beyond the most.
    beyond: u64,
}

impl Curves {
    fn of(&mut self, row: &BoxRow) -> Option<&mut Curve> {
        let class = row[5].to_bits();
        let at = match self.of.iter().position(|curve| curve.class == class) {
            Some(at) => at,
            None if self.of.len() < MAX_CLASSES => {
                self.of.push(Curve::new(class));
                self.of.len() - 1
            }
            None => {
                self.beyond += 1;
                return None;
            }
        };
        self.of.get_mut(at)
    }

    /// The mean of the classes that have true boxes; 0 if there are none.
    fn mean_average_precision(&self) -> f64 {
        let present = self.of.iter().filter(|curve| curve.present > 0);
        let (sum, count) =
            present.fold((0.0, 0u32), |(sum, count), curve| (sum + curve.average_precision(), count + 1));
        if count == 0 { 0.0 } else { sum / f64::from(count) }
    }
}

/// Matches predicted boxes with true boxes, reusing its buffers.
#[derive(Debug, Default)]
struct Matcher {
    order: Vec<(f32, usize)>,
    free: Vec<bool>,
}

impl Matcher {
    /// Tells of each predicted box whether it matches a true box, and returns how many do. The
    /// highest score is matched first, each box with the unmatched true box of its class that it
    /// overlaps most.
    fn match_boxes(
        &mut self,
        predicted: &[BoxRow],
        truth: &[BoxRow],
        iou: f32,
        mut judged: impl FnMut(&BoxRow, bool),
    ) -> u64 {
        self.order.clear();
        self.order.extend(predicted.iter().map(|row| row[4]).zip(0..));
        self.order.sort_unstable_by(|a, b| boxes::by_score(*a, *b));
        self.free.clear();
        self.free.resize(truth.len(), true);
        let mut found = 0;
        for (_, at) in &self.order {
            let row = &predicted[*at];
            let candidates = truth.iter().zip(&self.free).map(|(t, is_free)| *is_free && t[5] == row[5]);
            let mut best = (iou, None);
            for (i, _) in candidates.enumerate().filter(|(_, fits)| *fits) {
                let overlap = boxes::iou(row, &truth[i]);
                // The first of equal overlaps wins. Boxes without overlap never match, even if
                // `iou` is 0.
                if overlap > 0.0 && (overlap > best.0 || best.1.is_none() && overlap == best.0) {
                    best = (overlap, Some(i));
                }
            }
            if let Some(i) = best.1 {
                self.free[i] = false;
                found += 1;
            }
            judged(row, best.1.is_some());
        }
        found
    }
}

/// Returns `part / all`, or 0 if `all` is 0, so that a gate on it fails when nothing was compared.
fn ratio(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

impl Node for Score {
    type Config = ScoreConfig;

    fn ports(config: &ScoreConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if !(0.0..=1.0).contains(&config.iou) {
            errors.at("iou", format!("`iou` must be 0 to 1, got {}", config.iou)).help("write a number from 0 to 1");
        }
        let spec = |port| match config.task {
            Task::Labels => PortSpec::fixed(DType::I32, []),
            Task::Boxes => boxes::any_spec(given.input(port)),
        };
        let mut ports = Ports::new().input("predicted", spec("predicted")).input("truth", spec("truth"));
        if config.task == Task::Boxes {
            ports = ports.memory(MAX_CLASSES * size_of::<[(u32, u32); STEPS]>());
        }
        errors.into_result(ports.cost(if config.task == Task::Boxes { Cost::Medium } else { Cost::Light }))
    }

    fn build(config: ScoreConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Score {
            task: config.task,
            matcher: Matcher::default(),
            iou: config.iou,
            right: 0,
            predicted: 0,
            present: 0,
            curves: Curves::default(),
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        let (right, predicted, present) = (self.right, self.predicted, self.present);
        match self.task {
            Task::Labels => {
                to.set("accuracy", ratio(right, predicted));
                to.set("correct", right as f64);
                to.set("total", predicted as f64);
            }
            Task::Boxes => {
                to.set("precision", ratio(right, predicted));
                to.set("recall", ratio(right, present));
                to.set("true_positives", right as f64);
                to.set("false_positives", (predicted - right) as f64);
                to.set("missed", (present - right) as f64);
                to.set("mean_average_precision", self.curves.mean_average_precision());
                if self.curves.beyond > 0 {
                    let beyond = self.curves.beyond;
                    to.note(format!(
                        "boxes of classes beyond {MAX_CLASSES}, which the mean average precision excludes: {beyond}"
                    ));
                }
            }
        }
    }
}

impl Sink for Score {
    type In = (Tensor, Tensor);

    fn take(&mut self, (predicted, truth): (Message<Tensor>, Message<Tensor>)) -> Result<(), NodeError> {
        match self.task {
            Task::Labels => {
                let (predicted, truth) = (predicted.body.as_slice::<i32>()?, truth.body.as_slice::<i32>()?);
                self.right += u64::from(predicted == truth);
                self.predicted += 1;
                self.present += 1;
            }
            Task::Boxes => {
                let (predicted, truth) = (boxes::rows(&predicted.body)?, boxes::rows(&truth.body)?);
                // First, so that classes of wrong predictions do not take their places.
                for row in truth {
                    if let Some(curve) = self.curves.of(row) {
                        curve.present += 1;
                    }
                }
                let curves = &mut self.curves;
                self.right += self.matcher.match_boxes(predicted, truth, self.iou, |row, is_right| {
                    if let Some(curve) = curves.of(row) {
                        curve.add(row[4], is_right);
                    }
                });
                self.predicted += predicted.len() as u64;
                self.present += truth.len() as u64;
            }
        }
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
    fn each_true_box_is_matched_at_most_once() {
        // Boxes of side 10: 2 apart they overlap by 2/3, 5 apart by 1/3.
        let truth = [row(0.0, 1.0, 0.0), row(50.0, 1.0, 1.0)];
        for (predicted, iou, expected) in [
            (vec![row(0.0, 0.9, 0.0), row(50.0, 0.8, 1.0)], 0.5, 2),
            (vec![row(0.0, 0.9, 0.0), row(1.0, 0.8, 0.0)], 0.5, 1),
            (vec![row(0.0, 0.9, 1.0)], 0.5, 0),
            (vec![row(2.0, 0.9, 0.0)], 0.5, 1),
            (vec![row(2.0, 0.9, 0.0)], 0.7, 0),
            (vec![row(5.0, 0.9, 0.0)], 0.5, 0),
            (vec![row(0.0, 0.9, 0.0)], 1.0, 1),
            (vec![row(20.0, 0.9, 0.0)], 0.0, 0),
            (vec![row(f32::NAN, f32::NAN, 0.0)], 0.5, 0),
            (vec![], 0.5, 0),
        ] {
            let found = Matcher::default().match_boxes(&predicted, &truth, iou, |_, _| {});
            assert_eq!(found, expected, "{predicted:?} at {iou}");
        }
    }

    #[test]
    fn the_box_with_the_highest_score_is_matched_first() {
        // Both overlap the first true box. The higher score overlaps it more and takes it; the
        // other one matches the second.
        let truth = [row(0.0, 1.0, 0.0), row(6.0, 1.0, 0.0)];
        let predicted = [row(3.0, 0.6, 0.0), row(1.0, 0.9, 0.0)];
        assert_eq!(Matcher::default().match_boxes(&predicted, &truth, 0.5, |_, _| {}), 2);
    }

    /// The figures are those of pycocotools 2.0.11 for the same boxes (`COCOeval`, `iouThrs` 0.5,
    /// one size, 100 detections).
    #[test]
    fn the_mean_average_precision_is_that_of_coco() {
        let truth = |class| [row(0.0, 1.0, class), row(50.0, 1.0, class), row(100.0, 1.0, class)];
        for (predicted, classes, expected) in [
            // All found, each with another score.
            (vec![row(0.0, 0.9, 0.0), row(50.0, 0.8, 0.0), row(100.0, 0.7, 0.0)], 1, 1.0),
            // One is missed.
            (vec![row(0.0, 0.9, 0.0), row(50.0, 0.8, 0.0)], 1, 67.0 / 101.0),
            // A wrong one before the second.
            (
                vec![row(0.0, 0.9, 0.0), row(200.0, 0.85, 0.0), row(50.0, 0.8, 0.0)],
                1,
                (34.0 + 33.0 * 2.0 / 3.0) / 101.0,
            ),
            // A class without predictions, and predictions of a class without true boxes.
            (vec![row(0.0, 0.9, 0.0), row(50.0, 0.8, 0.0), row(100.0, 0.7, 0.0), row(0.0, 0.9, 7.0)], 2, 0.5),
            (vec![row(0.0, f32::NAN, 0.0), row(50.0, 5.0, 0.0), row(100.0, -1.0, 0.0)], 1, 1.0),
            (vec![], 1, 0.0),
        ] {
            let mut curves = Curves::default();
            let truth: Vec<BoxRow> = (0..classes).flat_map(|class| truth(class as f32)).collect();
            Matcher::default().match_boxes(&predicted, &truth, 0.5, |row, is_right| {
                curves.of(row).unwrap().add(row[4], is_right);
            });
            truth.iter().for_each(|row| curves.of(row).unwrap().present += 1);
            assert!(
                (curves.mean_average_precision() - expected).abs() < 1e-9,
                "{predicted:?}: {}",
                curves.mean_average_precision()
            );
        }
    }

    #[test]
    fn a_ratio_with_denominator_0_is_0() {
        assert_eq!(ratio(0, 0), 0.0);
        assert_eq!(ratio(3, 4), 0.75);
    }
}
