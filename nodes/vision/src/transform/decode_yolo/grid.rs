//! The cells of an image, in which YOLOX gives boxes.

/// Pixels of a cell, in the order of the candidates.
const STRIDES: [usize; 3] = [8, 16, 32];
/// Cells for 32 × 32 pixels.
const CELLS: usize = 16 + 4 + 1;

/// Returns how many candidates [`YoloLayout::Yolox`](super::YoloLayout::Yolox) has for an input
/// image of so many pixels: one for each cell of 8, 16 and 32 pixels. `None` if a side is no
/// multiple of 32, or there are no cells.
pub fn cells(width: usize, height: usize) -> Option<usize> {
    let is_whole = width.is_multiple_of(32) && height.is_multiple_of(32);
    let cells = (width / 32).checked_mul(height / 32)?.checked_mul(CELLS)?;
    Some(cells).filter(|cells| is_whole && *cells > 0)
}

/// The cells of a model's input image, row by row, the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    /// Pixels, a multiple of 32.
    width: usize,
    height: usize,
}

impl Grid {
    /// Returns the cells of an image, or of a square one with so many candidates; `None` if the
    /// image has another number of cells.
    pub(super) fn of(candidates: usize, size: Option<[usize; 2]>) -> Option<Grid> {
        let side = (candidates / CELLS).isqrt().saturating_mul(32);
        let [width, height] = size.unwrap_or([side; 2]);
        (cells(width, height)? == candidates).then_some(Grid { width, height })
    }

    /// Returns the pixel at which a candidate's cell begins, and the pixels of the cell.
    pub(super) fn cell(self, candidate: usize) -> [f32; 3] {
        let mut at = candidate;
        for stride in STRIDES {
            let [columns, rows] = [self.width / stride, self.height / stride];
            if at < columns * rows {
                return [at % columns * stride, at / columns * stride, stride].map(|pixels| pixels as f32);
            }
            at -= columns * rows;
        }
        [0.0; 3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_candidates_is_that_of_cells() {
        for (cells, size, expected) in [
            (3549, None, Some([416, 416])),
            (8400, None, Some([640, 640])),
            (8400, Some([640, 640]), Some([640, 640])),
            (5040, Some([640, 384]), Some([640, 384])),
            (5040, None, None),
            (8400, Some([640, 641]), None),
            (8400, Some([usize::MAX - 31, usize::MAX - 31]), None),
            (25200, None, None),
            (0, None, None),
            (0, Some([0, 0]), None),
        ] {
            let found = Grid::of(cells, size).map(|grid| [grid.width, grid.height]);
            assert_eq!(found, expected, "{cells} {size:?}");
        }
    }

    /// Computed with `np.meshgrid` per stride, as exports of YOLOX are decoded.
    #[test]
    fn cells_are_counted_row_by_row_the_smallest_first() {
        let grid = Grid::of(5040, Some([640, 384])).unwrap();
        for (candidate, expected) in [
            (0, [0.0, 0.0, 8.0]),
            (81, [8.0, 8.0, 8.0]),
            (3839, [632.0, 376.0, 8.0]),
            (3840, [0.0, 0.0, 16.0]),
            (4801, [32.0, 0.0, 32.0]),
            (5039, [608.0, 352.0, 32.0]),
            (5040, [0.0; 3]),
        ] {
            assert_eq!(grid.cell(candidate), expected, "{candidate}");
        }
    }
}
