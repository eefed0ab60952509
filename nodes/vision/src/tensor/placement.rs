//! Placements: where an image lies in a frame that it was scaled into.

use crate::tensor::quads;
use limen::Tensor;
use limen::message::{DType, PortSpec};
use limen::node::NodeError;
use limen_nodes_core::tensor::boxes;

/// Numbers of a placement.
const NUMBERS: usize = 6;

/// Where an image lies in a frame. In a message it is `f32[6]`, with the numbers in the order of
/// these fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placement {
    /// Pixels of the frame for one pixel of the image.
    pub(crate) scale: [f32; 2],
    /// First column and first row of the image in the frame.
    pub(crate) first: [f32; 2],
    /// Width and height of the image before it was scaled.
    pub(crate) size: [f32; 2],
}

impl Placement {
    /// Returns the spec of a placement.
    pub(crate) fn spec() -> PortSpec {
        PortSpec::fixed(DType::F32, [NUMBERS])
    }

    pub(crate) fn numbers(self) -> [f32; NUMBERS] {
        let Placement { scale: [sx, sy], first: [left, top], size: [width, height] } = self;
        [sx, sy, left, top, width, height]
    }

    /// Reads a placement from a tensor of [`Placement::spec`].
    pub(crate) fn of(tensor: &Tensor) -> Result<Self, NodeError> {
        let numbers = tensor.as_slice::<f32>()?;
        match *numbers {
            [sx, sy, left, top, width, height]
                if numbers.iter().all(|n| n.is_finite()) && sx > 0.0 && sy > 0.0 && width >= 0.0 && height >= 0.0 =>
            {
                Ok(Placement { scale: [sx, sy], first: [left, top], size: [width, height] })
            }
            _ => Err(NodeError::input(
                "placement",
                format!("expected the placement of an image (scale, offset, size), found {numbers:?}"),
            )),
        }
    }

    /// Converts a box in the frame into one in the image, clipped to the image. A corner that is
    /// NaN stays NaN.
    pub(crate) fn to_image(self, [x0, y0, x1, y1, score, class]: boxes::BoxRow) -> boxes::BoxRow {
        let back = |at: f32, axis: usize| self.back(at, axis, self.size[axis]);
        [back(x0, 0), back(y0, 1), back(x1, 0), back(y1, 1), score, class]
    }

    /// Converts a quad in the frame into one in the image, whose corners outside the image are
    /// moved to its last pixel.
    pub(crate) fn quad_to_image(self, mut row: quads::QuadRow) -> quads::QuadRow {
        for corner in row.as_chunks_mut::<2>().0 {
            for (at, axis) in corner.iter_mut().zip(0..) {
                *at = self.back(*at, axis, (self.size[axis] - 1.0).max(0.0));
            }
        }
        row
    }

    fn back(self, at: f32, axis: usize, most: f32) -> f32 {
        ((at - self.first[axis]) / self.scale[axis]).clamp(0.0, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::TensorMut;

    #[test]
    fn boxes_are_moved_scaled_and_clipped() {
        let placement = Placement { scale: [0.5, 0.25], first: [0.0, 140.0], size: [1280.0, 720.0] };
        for (row, expected) in [
            ([10.0, 150.0, 20.0, 160.0, 0.9, 3.0], [20.0, 40.0, 40.0, 80.0, 0.9, 3.0]),
            ([-5.0, 0.0, 1e9, f32::INFINITY, 0.9, 3.0], [0.0, 0.0, 1280.0, 720.0, 0.9, 3.0]),
        ] {
            assert_eq!(placement.to_image(row), expected, "{row:?}");
        }
        let quad = [10.0, 150.0, -5.0, 160.0, 1e9, 0.0, f32::INFINITY, 999.0];
        assert_eq!(placement.quad_to_image(quad), [20.0, 40.0, 0.0, 80.0, 1279.0, 0.0, 1279.0, 719.0]);
        assert!(placement.to_image([f32::NAN, 0.0, 0.0, 0.0, 0.0, 0.0])[0].is_nan());
    }

    #[test]
    fn numbers_that_are_no_placement_are_refused() {
        for (numbers, is_one) in [
            ([0.5, 0.5, 0.0, 140.0, 1280.0, 720.0], true),
            ([0.0, 0.5, 0.0, 140.0, 1280.0, 720.0], false),
            ([0.5, -0.5, 0.0, 140.0, 1280.0, 720.0], false),
            ([0.5, 0.5, 0.0, 140.0, -1.0, 720.0], false),
            ([0.5, 0.5, 0.0, 140.0, 1280.0, f32::NAN], false),
            ([0.5, 0.5, f32::INFINITY, 140.0, 1280.0, 720.0], false),
        ] {
            let mut tensor = TensorMut::alone(&Placement::spec()).unwrap();
            tensor.as_mut_slice::<f32>().unwrap().copy_from_slice(&numbers);
            let read = Placement::of(&tensor.freeze());
            assert_eq!(read.ok().map(Placement::numbers), is_one.then_some(numbers));
        }
    }
}
