//! A part of an image between four corners, as OpenCV's `warpPerspective` computes it.

/// Pixels of each axis that a pixel of the output is computed from.
const TAPS: usize = 4;

/// Fills an image with the part of another between four corners, x and y from the centre of the
/// first pixel: those that become its corners at the top left, top right, bottom right and bottom
/// left. Shapes are height, width, channels; corners may be anywhere.
///
/// Levels between pixels are those of OpenCV's `INTER_CUBIC`, beyond the image those of the nearest
/// pixel (`BORDER_REPLICATE`). Most are the same as in OpenCV 5 on x86, the others off by one.
/// OpenCV 4 and other processors round places to 32nds of a pixel.
///
/// With `turned`, the image is then turned to the left by 90°, so that it has the shape width,
/// height, channels.
///
/// # Errors
/// A message, if a length is 0, the number of channels is not 1 to 4 or differs, or a buffer is too
/// small for its shape.
///
/// ```
/// // The middle of a row, backwards.
/// let mut part = [0; 2];
/// let corners = [[2.0, 0.0], [0.0, 0.0], [0.0, 1.0], [2.0, 1.0]];
/// limen_resize::cut([1, 4, 1], &[1, 50, 100, 200], corners, [1, 2, 1], false, &mut part).unwrap();
/// assert_eq!(part, [100, 50]);
/// ```
pub fn cut(
    from: [usize; 3],
    pixels: &[u8],
    corners: [[f32; 2]; 4],
    to: [usize; 3],
    turned: bool,
    into: &mut [u8],
) -> Result<(), String> {
    let (pixels, into) = crate::checked(from, pixels, to, into)?;
    let [h, w, channels] = to;
    let view = WarpView::new(corners, [h, w]);
    let width = if turned { h } else { w };
    for (line, at) in into.chunks_exact_mut(width * channels).zip(0..) {
        // The column and row of the part, before it is turned, of each pixel.
        let place = |along: usize| view.source(if turned { [w - 1 - at, along] } else { [along, at] });
        match channels {
            1 => fill::<1>(from, pixels, place, line),
            2 => fill::<2>(from, pixels, place, line),
            3 => fill::<3>(from, pixels, place, line),
            _ => fill::<4>(from, pixels, place, line),
        }
    }
    Ok(())
}

/// Fills a line of the output, for each pixel of which `place` returns x and y in the image.
fn fill<const C: usize>(
    [height, width, _]: [usize; 3],
    pixels: &[u8],
    place: impl Fn(usize) -> [f64; 2],
    line: &mut [u8],
) {
    let pixels = pixels.as_chunks::<C>().0;
    for (to, along) in line.as_chunks_mut::<C>().0.iter_mut().zip(0..) {
        let [x, y] = place(along);
        let (rows, columns) = (taps(y, height), taps(x, width));
        let mut sum = [0.0; C];
        for (row, of_row) in rows {
            for (column, of_column) in columns {
                let pixel = pixels[row * width + column];
                sum.iter_mut().zip(pixel).for_each(|(sum, level)| *sum += f32::from(level) * (of_row * of_column));
            }
        }
        // The cast saturates.
        *to = sum.map(|sum| sum.round_ties_even() as u8);
    }
}

/// Returns the pixels of an axis around a place, and their weights.
fn taps(at: f64, side: usize) -> [(usize, f32); TAPS] {
    // The casts saturate, and NaN becomes 0.
    let before = at.floor() as i64;
    let weights = cubic((at - at.floor()) as f32);
    let pixel = |tap: usize| before.saturating_add(tap as i64 - 1).clamp(0, side as i64 - 1) as usize;
    std::array::from_fn(|tap| (pixel(tap), weights[tap]))
}

/// Returns the weights of four pixels for a place from 0 to 1 between the second and the third.
fn cubic(place: f32) -> [f32; TAPS] {
    const A: f32 = -0.75;
    let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let [first, second, third] = [far(place + 1.0), near(place), near(1.0 - place)];
    [first, second, third, 1.0 - first - second - third]
}

/// How the pixels of a part lie in the image: the numerators of x and y, and their denominator,
/// each of column, row and 1.
#[derive(Debug)]
struct WarpView([[f64; 3]; 3]);

impl WarpView {
    /// The view of a part of this height and width.
    fn new(corners: [[f32; 2]; 4], [h, w]: [usize; 2]) -> Self {
        let [[x0, y0], [x1, y1], [x2, y2], [x3, y3]] = corners.map(|corner| corner.map(f64::from));
        // The sum is 0 for a parallelogram, which has no perspective.
        let (sum_x, sum_y) = (x0 - x1 + x2 - x3, y0 - y1 + y2 - y3);
        let [right_x, right_y, low_x, low_y] = [x1 - x2, y1 - y2, x3 - x2, y3 - y2];
        let [g, h1] = if sum_x == 0.0 && sum_y == 0.0 {
            [0.0; 2]
        } else {
            let area = right_x * low_y - low_x * right_y;
            [(sum_x * low_y - low_x * sum_y) / area, (right_x * sum_y - sum_x * right_y) / area]
        };
        let row = |a: f64, b: f64, c: f64| [a / w as f64, b / h as f64, c];
        WarpView([
            row(x1 - x0 + g * x1, x3 - x0 + h1 * x3, x0),
            row(y1 - y0 + g * y1, y3 - y0 + h1 * y3, y0),
            row(g, h1, 1.0),
        ])
    }

    /// Returns where a pixel of the part lies in the image.
    fn source(&self, [column, row]: [usize; 2]) -> [f64; 2] {
        let (column, row) = (column as f64, row as f64);
        let [x, y, under] = self.0.map(|[a, b, c]| a * column + b * row + c);
        [x / under, y / under]
    }
}
