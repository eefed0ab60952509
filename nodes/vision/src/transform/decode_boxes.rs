//! Boxes from the outputs of a detector.

use limen::message::{DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::boxes::{self, Best, BoxRow, ROW};
use schemars::JsonSchema;
use serde::Deserialize;

/// Decodes the output of an object detector: `scores` `f32[cells,classes]` and `boxes`
/// `f32[cells,4]` to `boxes` `f32[≤max_boxes,6]`.
///
/// Rows of the output are x0, y0, x1, y1, score, class, sorted by descending score. Cells are
/// `stride` pixels apart and numbered row by row. Each cell produces a box for every class with a
/// score above `threshold`. If there are more than `max_boxes` boxes, the node keeps the boxes with
/// the highest scores.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct DecodeBoxesConfig {
    /// Distance between neighbouring cells in pixels.
    pub stride: usize,
    /// Width of the model's input image in pixels.
    pub width: usize,
    /// Height of the model's input image in pixels.
    pub height: usize,
    /// Score above which the node keeps a box. Default: 0.5.
    #[serde(default = "half")]
    pub threshold: f32,
    /// Maximum number of boxes per message.
    pub max_boxes: usize,
    /// Meaning of the four numbers of a box. Default: `ltrb`.
    #[serde(default)]
    pub form: BoxForm,
}

fn half() -> f32 {
    0.5
}

/// Meaning of the four numbers of a box.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BoxForm {
    /// Distances in pixels from the centre of the cell to the left, top, right and bottom edge.
    #[default]
    Ltrb,
}

/// Runs `kind: decode_boxes`; [`DecodeBoxesConfig`] says what it does.
#[derive(Debug)]
pub struct DecodeBoxes {
    grid: CellGrid,
    /// Boxes by index: `cell · classes + class`.
    best: Best,
}

/// The grid of cells.
#[derive(Clone, Copy, Debug)]
struct CellGrid {
    stride: usize,
    columns: usize,
}

impl CellGrid {
    /// Returns the corners of a cell's box from the distances of its edges.
    fn corners(self, cell: usize, [left, top, right, bottom]: [f32; 4]) -> [f32; 4] {
        let centre = |at: usize| (at as f32 + 0.5) * self.stride as f32;
        let (x, y) = (centre(cell % self.columns), centre(cell / self.columns));
        [x - left, y - top, x + right, y + bottom]
    }
}

impl Node for DecodeBoxes {
    type Config = DecodeBoxesConfig;

    fn ports(config: &DecodeBoxesConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        for (field, n) in [
            ("stride", config.stride),
            ("width", config.width),
            ("height", config.height),
            ("max_boxes", config.max_boxes),
        ] {
            if n == 0 {
                errors.at(field, format!("`{field}` must be at least 1, got 0")).help("write 1 or more");
            }
        }
        if config.threshold.is_nan() {
            errors.at("threshold", "`threshold` must be a number, got NaN").help("write a number, such as 0.5");
        }
        let stride = config.stride.max(1);
        let (columns, rows) = (config.width / stride, config.height / stride);
        let cells = columns.saturating_mul(rows);
        let classes = given.input("scores").and_then(|spec| spec.shape.get(1).cloned());
        for port in ["scores", "boxes"] {
            let Some(spec) = given.input(port) else { continue };
            if let Some(Dim::Fixed(n)) = spec.shape.first()
                && *n != cells
            {
                let message = format!(
                    "expected {columns} × {rows} = {cells} cells for {} × {} pixels with a stride of {stride}, found {n} in {spec}",
                    config.width, config.height
                );
                errors.input(port, message).help("write `stride`, `width` and `height` of the model's input image");
            }
        }
        let scores = classes.as_ref().and_then(Dim::max).unwrap_or(0).saturating_mul(cells);
        let classes = classes.unwrap_or_else(|| Dim::Symbol("classes".into()));
        let ports = Ports::new()
            .input("scores", PortSpec::new(DType::F32, [Dim::Fixed(cells), classes]))
            .input("boxes", PortSpec::new(DType::F32, [Dim::Fixed(cells), Dim::Fixed(4)]))
            .output("boxes", boxes::spec(config.max_boxes))
            .memory(Best::bytes(config.max_boxes, scores))
            .cost(Cost::Medium);
        errors.into_result(ports)
    }

    fn build(config: DecodeBoxesConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let stride = config.stride.max(1);
        let most = cx.inputs().first().and_then(|(_, spec)| spec.as_ref()?.max_elements());
        Ok(DecodeBoxes {
            grid: CellGrid { stride, columns: (config.width / stride).max(1) },
            best: Best::new(config.threshold, config.max_boxes, most.unwrap_or(0)),
        })
    }
}

impl Transform for DecodeBoxes {
    type In = (Tensor, Tensor);
    type Out = Tensor;

    fn apply(&mut self, input: (Message<Tensor>, Message<Tensor>), out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let header = out.header_of::<Self::In>(&input);
        let (scores, edges) = &input;
        let classes = scores.body.shape().get(1).copied().unwrap_or(1).max(1);
        let edges = edges.body.as_slice::<f32>()?.as_chunks::<4>().0;
        self.best.clear();
        scores.body.as_slice::<f32>()?.iter().zip(0..).for_each(|(score, at)| self.best.offer(*score, at));
        let best = self.best.sorted();
        let mut found = out.loan(header)?;
        found.set_len(0, best.len())?;
        let (rows, _) = found.as_mut_slice::<f32>()?.as_chunks_mut::<ROW>();
        for (row, (score, at)) in rows.iter_mut().zip(best) {
            let (cell, class) = (at / classes, at % classes);
            let Some(edges) = edges.get(cell) else {
                return Err(NodeError::input(
                    "boxes",
                    format!("expected a box for each cell with scores, found none for cell {cell}"),
                ));
            };
            *row = to_row(self.grid.corners(cell, *edges), *score, class);
        }
        out.send(found);
        Ok(())
    }
}

fn to_row([x0, y0, x1, y1]: [f32; 4], score: f32, class: usize) -> BoxRow {
    [x0, y0, x1, y1, score, class as f32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_numbered_row_by_row_and_boxes_are_relative_to_their_centres() {
        let grid = CellGrid { stride: 8, columns: 32 };
        for (cell, edges, expected) in [
            (0, [0.0; 4], [4.0, 4.0, 4.0, 4.0]),
            (0, [4.0, 4.0, 4.0, 4.0], [0.0, 0.0, 8.0, 8.0]),
            (1, [1.0, 2.0, 3.0, 4.0], [11.0, 2.0, 15.0, 8.0]),
            (33, [10.0, 0.0, 0.0, 0.5], [2.0, 12.0, 12.0, 12.5]),
        ] {
            assert_eq!(grid.corners(cell, edges), expected, "cell {cell}");
        }
    }
}
