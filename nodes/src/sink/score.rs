//! The accuracy of predictions.

use crate::tensor::boxes::{self, Row};
use limen::message::{DType, PortSpec};
use limen::node::{Building, Connected, Cost, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Compares the inputs `predicted` and `truth` and reports how often they agree.
///
/// With `task: labels`, both are `i32[]`, and the report has `accuracy`, `correct`, `total`. With `task: boxes`, both are
/// `f32[≤n,6]`, and the report has `precision`, `recall`, `true_positives`, `false_positives`, `missed`. Ratios whose
/// denominator is 0 are 0.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// What to compare; `labels` by default.
    #[serde(default)]
    pub task: Task,
    /// A predicted box matches a true box of its class if their intersection over union is at least this; 0.5 by default.
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
    /// One integer per message.
    #[default]
    Labels,
    /// Boxes with classes; each true box is matched at most once. Predicted boxes are matched in the order of their scores.
    Boxes,
}

/// The node.
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
}

/// Matches predicted boxes with true boxes, reusing its buffers.
#[derive(Debug, Default)]
struct Matcher {
    order: Vec<(f32, usize)>,
    free: Vec<bool>,
}

impl Matcher {
    /// Returns how many predicted boxes match a true box. The highest score is matched first, each box with the unmatched true
    /// box of its class that it overlaps most.
    fn count_matches(&mut self, predicted: &[Row], truth: &[Row], iou: f32) -> u64 {
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
                // The first of equal overlaps wins. Boxes without overlap never match, even if `iou` is 0.
                if overlap > 0.0 && (overlap > best.0 || best.1.is_none() && overlap == best.0) {
                    best = (overlap, Some(i));
                }
            }
            if let Some(i) = best.1 {
                self.free[i] = false;
                found += 1;
            }
        }
        found
    }
}

/// Returns `part / all`, or 0 if `all` is 0, so that a gate on it fails when nothing was compared.
fn ratio(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

impl Node for Score {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if !(0.0..=1.0).contains(&config.iou) {
            errors.at("iou", format!("{} is not an overlap", config.iou)).help("write a number from 0 to 1");
        }
        let spec = |port| match config.task {
            Task::Labels => PortSpec::fixed(DType::I32, []),
            Task::Boxes => boxes::any_spec(given.input(port)),
        };
        let ports = Ports::new().input("predicted", spec("predicted")).input("truth", spec("truth"));
        errors.into_result(ports.cost(if config.task == Task::Boxes { Cost::Medium } else { Cost::Light }))
    }

    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Score {
            task: config.task,
            matcher: Matcher::default(),
            iou: config.iou,
            right: 0,
            predicted: 0,
            present: 0,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        let Score { right, predicted, present, .. } = *self;
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
                self.right += self.matcher.count_matches(predicted, truth, self.iou);
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

    fn row(x: f32, score: f32, class: f32) -> Row {
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
            assert_eq!(Matcher::default().count_matches(&predicted, &truth, iou), expected, "{predicted:?} at {iou}");
        }
    }

    #[test]
    fn the_box_with_the_highest_score_is_matched_first() {
        // Both overlap the first true box. The higher score overlaps it more and takes it; the other one matches the second.
        let truth = [row(0.0, 1.0, 0.0), row(6.0, 1.0, 0.0)];
        let predicted = [row(3.0, 0.6, 0.0), row(1.0, 0.9, 0.0)];
        assert_eq!(Matcher::default().count_matches(&predicted, &truth, 0.5), 2);
    }

    #[test]
    fn a_ratio_with_denominator_0_is_0() {
        assert_eq!(ratio(0, 0), 0.0);
        assert_eq!(ratio(3, 4), 0.75);
    }
}
