//! Quads: rows of four corners in a tensor `f32[≤n,8]`, and the smallest rectangle around the
//! pixels of a region.

use limen::Tensor;
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Connected, NodeError};
use limen_nodes_core::tensor::shape;

/// Numbers in a row.
pub(crate) const ROW: usize = 8;

/// One row: x and y of the corners at the top left, top right, bottom right and bottom left, in
/// pixels from the centre of the first pixel.
pub(crate) type QuadRow = [f32; ROW];

/// The name of an input that takes quads in place of boxes.
pub(crate) const PORT: &str = "quads";

/// Returns whether a node has the input [`PORT`].
pub(crate) fn are_given(given: &Connected) -> bool {
    given.inputs().any(|(name, _)| name == PORT)
}

/// Returns the spec of at most `rows` quads.
pub(crate) fn spec(rows: usize) -> PortSpec {
    PortSpec::new(DType::F32, [Dim::AtMost(rows), Dim::Fixed(ROW)])
}

/// Returns the spec of a port that takes as many quads as the connected output can give.
pub(crate) fn any_spec(given: Option<&PortSpec>) -> PortSpec {
    shape::any_rows(given, ROW)
}

/// Returns the rows of a tensor.
pub(crate) fn rows(tensor: &Tensor) -> Result<&[QuadRow], NodeError> {
    Ok(tensor.as_slice::<f32>()?.as_chunks().0)
}

/// Returns the corners of a row, each x and y.
pub(crate) fn corners([x0, y0, x1, y1, x2, y2, x3, y3]: QuadRow) -> [[f32; 2]; 4] {
    [[x0, y0], [x1, y1], [x2, y2], [x3, y3]]
}

/// Returns the row of four corners: the two with the lowest x are those at the left.
fn ordered(mut corners: [[f32; 2]; 4]) -> QuadRow {
    corners.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    let by_height = |a: [f32; 2], b: [f32; 2]| if a[1] <= b[1] { [a, b] } else { [b, a] };
    let ([top_left, low_left], [top_right, low_right]) =
        (by_height(corners[0], corners[1]), by_height(corners[2], corners[3]));
    let [[x0, y0], [x1, y1], [x2, y2], [x3, y3]] = [top_left, top_right, low_right, low_left];
    [x0, y0, x1, y1, x2, y2, x3, y3]
}

/// A rectangle at any angle.
#[derive(Clone, Copy, Debug)]
struct Rectangle {
    /// A point, from which the sides are measured.
    from: [f64; 2],
    /// The direction of the first two sides, of length 1; that of the others is turned by 90°.
    along: [f64; 2],
    /// Where two sides begin and end in their direction, then the same of the other two.
    sides: [[f64; 2]; 2],
}

impl Rectangle {
    fn lengths(&self) -> [f64; 2] {
        self.sides.map(|[low, high]| high - low)
    }

    /// Moves every side outwards.
    fn expand(&mut self, by: f64) {
        self.sides = self.sides.map(|[low, high]| [low - by, high + by]);
    }

    fn corners(&self) -> [[f32; 2]; 4] {
        let [[left, right], [top, bottom]] = self.sides;
        let ([x, y], [along_x, along_y]) = (self.from, self.along);
        [[left, top], [right, top], [right, bottom], [left, bottom]]
            .map(|[a, b]| [(x + a * along_x - b * along_y) as f32, (y + a * along_y + b * along_x) as f32])
    }
}

/// The outermost pixels of a region, and their convex hull.
#[derive(Debug, Default)]
pub(crate) struct RegionOutline {
    /// x and y of the first and the last pixel of each row, from top to bottom.
    pixels: Vec<[i32; 2]>,
    hull: Vec<[i32; 2]>,
}

impl RegionOutline {
    /// Reserves memory for regions of at most this height.
    pub(crate) fn new(height: usize) -> Self {
        let pixels = RegionOutline::most(height);
        RegionOutline { pixels: Vec::with_capacity(pixels), hull: Vec::with_capacity(pixels + 1) }
    }

    /// Returns the most pixels of the outline of a region of this height.
    pub(crate) fn most(height: usize) -> usize {
        height.saturating_mul(2)
    }

    /// Forgets all pixels.
    pub(crate) fn clear(&mut self) {
        self.pixels.clear();
    }

    /// Adds the first and the last pixel of a row, which lies below all others.
    pub(crate) fn add(&mut self, y: u32, first: u32, last: u32) {
        self.pixels.push([first as i32, y as i32]);
        if last != first {
            self.pixels.push([last as i32, y as i32]);
        }
    }

    /// Returns the rectangle with the smallest area around the centres of all pixels, expanded on
    /// every side by area · `unclip` / perimeter.
    pub(crate) fn quad(&mut self, unclip: f32) -> QuadRow {
        self.enclose();
        let Some(mut rectangle) = self.rectangle() else {
            let [x, y] = self.pixels.first().map_or([0.0; 2], |pixel| pixel.map(|at| at as f32));
            return [x, y, x, y, x, y, x, y];
        };
        let [a, b] = rectangle.lengths();
        rectangle.expand(a * b * f64::from(unclip) / (2.0 * (a + b)));
        ordered(rectangle.corners())
    }

    /// Finds the convex hull, without pixels between its corners.
    fn enclose(&mut self) {
        fn add(hull: &mut Vec<[i32; 2]>, kept: usize, [x, y]: [i32; 2]) {
            while let [.., a, b] = hull[kept..] {
                let [ax, ay, bx, by] = [b[0] - a[0], b[1] - a[1], x - b[0], y - b[1]].map(i64::from);
                if ax * by > ay * bx {
                    break;
                }
                hull.pop();
            }
            hull.push([x, y]);
        }
        self.hull.clear();
        self.pixels.iter().for_each(|pixel| add(&mut self.hull, 0, *pixel));
        let last = self.hull.len().saturating_sub(1);
        self.pixels.iter().rev().skip(1).for_each(|pixel| add(&mut self.hull, last, *pixel));
        // The first pixel came twice.
        if self.hull.len() > 1 {
            self.hull.pop();
        }
    }

    /// Returns the rectangle with the smallest area around the hull; one of its sides lies on an
    /// edge. `None` if there is no edge.
    fn rectangle(&self) -> Option<Rectangle> {
        let points = || self.hull.iter().map(|point| point.map(f64::from));
        let mut best: Option<(f64, Rectangle)> = None;
        for (a, b) in points().zip(points().cycle().skip(1)) {
            let (x, y) = (b[0] - a[0], b[1] - a[1]);
            let length = x.hypot(y);
            if length == 0.0 {
                continue;
            }
            let along = [x / length, y / length];
            let mut sides = [[0.0_f64; 2]; 2];
            for point in points() {
                let (x, y) = (point[0] - a[0], point[1] - a[1]);
                let places = [x * along[0] + y * along[1], y * along[0] - x * along[1]];
                for ([low, high], at) in sides.iter_mut().zip(places) {
                    (*low, *high) = (low.min(at), high.max(at));
                }
            }
            let rectangle = Rectangle { from: a, along, sides };
            let [one, other] = rectangle.lengths();
            if best.is_none_or(|(area, _)| one * other < area) {
                best = Some((one * other, rectangle));
            }
        }
        best.map(|(_, rectangle)| rectangle)
    }
}
