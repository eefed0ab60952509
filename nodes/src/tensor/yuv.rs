//! Luma and chroma as red, green and blue.

/// A factor in 2⁻¹⁶, as a whole number and a part of one: the product of a part and a byte takes 32 bits, and vectors have a single
/// instruction for products of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Factor {
    whole: i16,
    part: i16,
}

impl Factor {
    fn new(value: f64) -> Self {
        let fixed = (value * 65536.0).round() as i32;
        let whole = (fixed + (1 << 15)) >> 16;
        Factor { whole: whole as i16, part: (fixed - (whole << 16)) as i16 }
    }

    #[inline(always)]
    fn times(self, value: i32) -> i32 {
        // The compiler sees that both have 16 bits.
        let value = i32::from(value as i16);
        i32::from(self.part) * value + ((i32::from(self.whole) * value) << 16)
    }
}

/// Pairs of pixels that are converted together: enough for the vectors of every CPU.
const PAIRS: usize = 32;
/// Luma of two pixels and the chroma that they share: Y U Y V.
type Pairs = [[u8; 4]; PAIRS];
/// Red, green and blue, from the lowest byte on.
type Colours = [u32; PAIRS];

/// Writes colours in turn, two in six bytes; what is left of the last eight does not matter.
#[inline(always)]
fn write(first: impl Fn(usize) -> u32, second: impl Fn(usize) -> u32, pairs: usize, into: &mut [u8; 6 * PAIRS + 2]) {
    for pair in 0..pairs {
        let both = u64::from(first(pair)) | u64::from(second(pair)) << 24;
        into[pair * 6..][..8].copy_from_slice(&both.to_le_bytes());
    }
}

/// Coefficients of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct YuvToRgb {
    black: i32,
    luma: Factor,
    red_v: Factor,
    green_u: Factor,
    green_v: Factor,
    blue_u: Factor,
}

impl YuvToRgb {
    /// By ITU-R BT.709 or BT.601, with luma from 0 to 255 or from 16 to 235.
    pub(crate) fn new(is_709: bool, is_full_range: bool) -> Self {
        let (red, blue) = if is_709 { (0.2126, 0.0722) } else { (0.299, 0.114) };
        let green = 1.0 - red - blue;
        let (luma, chroma) = if is_full_range { (1.0, 1.0) } else { (255.0 / 219.0, 255.0 / 224.0) };
        YuvToRgb {
            black: if is_full_range { 0 } else { 16 },
            luma: Factor::new(luma),
            red_v: Factor::new(2.0 * (1.0 - red) * chroma),
            green_u: Factor::new(-2.0 * (1.0 - blue) * blue / green * chroma),
            green_v: Factor::new(-2.0 * (1.0 - red) * red / green * chroma),
            blue_u: Factor::new(2.0 * (1.0 - blue) * chroma),
        }
    }

    /// Returns the colours of the first and of the second pixels.
    #[inline(always)]
    fn colours(&self, pairs: &Pairs) -> (Colours, Colours) {
        const HALF: i32 = 1 << 15;
        let (mut first, mut second) = ([0; PAIRS], [0; PAIRS]);
        for at in 0..PAIRS {
            // In words of the size of a result, nothing has to be moved from vector to vector.
            let word = u32::from_le_bytes(pairs[at]);
            let byte = |n: u32| (word >> (8 * n) & 255) as i32;
            let (u, v) = (byte(1) - 128, byte(3) - 128);
            let red = self.red_v.times(v) + HALF;
            let green = self.green_u.times(u) + self.green_v.times(v) + HALF;
            let blue = self.blue_u.times(u) + HALF;
            let colour = |y: i32| {
                let y = self.luma.times(y - self.black);
                let part = |part: i32| ((y + part) >> 16).clamp(0, 255) as u32;
                part(red) | part(green) << 8 | part(blue) << 16
            };
            (first[at], second[at]) = (colour(byte(0)), colour(byte(2)));
        }
        (first, second)
    }

    /// Converts a row of pairs, which `read` gives from the one with a number on.
    #[inline(always)]
    fn row(&self, into: &mut [u8], mut read: impl FnMut(usize, &mut Pairs)) {
        let mut pairs = [[0; 4]; PAIRS];
        let mut bytes = [0; 6 * PAIRS + 2];
        for (block, into) in into.chunks_mut(6 * PAIRS).enumerate() {
            read(block * PAIRS, &mut pairs);
            let (first, second) = self.colours(&pairs);
            write(|pair| first[pair], |pair| second[pair], PAIRS, &mut bytes);
            into.copy_from_slice(&bytes[..into.len()]);
        }
    }

    /// Converts rows of two pixels in four bytes, Y U Y V; each row begins at a multiple of `stride`.
    pub(crate) fn yuyv(&self, frame: &[u8], stride: usize, width: usize, into: &mut [u8]) {
        for (row, into) in frame.chunks(stride.max(1)).zip(into.chunks_exact_mut((width * 3).max(1))) {
            let row = row.as_chunks().0;
            let most = into.len().min(row.len() * 6);
            self.row(&mut into[..most], |at, pairs| {
                pairs.iter_mut().zip(&row[at..]).for_each(|(pair, from)| *pair = *from);
            });
        }
    }

    /// Converts a plane of Y and one of U and V in turn, half as high; rows of both begin at multiples of `stride`.
    pub(crate) fn nv12(&self, frame: &[u8], stride: usize, (height, width): (usize, usize), into: &mut [u8]) {
        let stride = stride.max(1);
        let (luma, chroma) = frame.split_at(frame.len().min(stride * height));
        let rows = luma.chunks(stride).zip(into.chunks_exact_mut((width * 3).max(1)));
        for (at, (luma, into)) in rows.enumerate() {
            let chroma = chroma.get(at / 2 * stride..).unwrap_or_default().as_chunks().0;
            let most = into.len().min(luma.len() * 3).min(chroma.len() * 6);
            self.row(&mut into[..most], |at, pairs| {
                let (whole, odd) = luma[at * 2..].as_chunks();
                let from = whole.iter().zip(&chroma[at..]);
                pairs.iter_mut().zip(from).for_each(|(pair, ([y0, y1], [u, v]))| *pair = [*y0, *u, *y1, *v]);
                // A row of odd width ends with half a pair.
                if let (Some(pair), Some([u, v]), [y]) = (pairs.get_mut(whole.len()), chroma.get(at + whole.len()), odd)
                {
                    *pair = [*y, *u, *y, *v];
                }
            });
        }
    }

    /// Converts planes without gaps of Y, U and V. A sample of chroma stands for `across` pixels, one or two, of each of `down` rows.
    pub(crate) fn planar(
        &self,
        frame: &[u8],
        (height, width): (usize, usize),
        (down, across): (usize, usize),
        into: &mut [u8],
    ) {
        let chroma_width = width.div_ceil(across);
        let (luma, chroma) = frame.split_at(frame.len().min(height * width));
        let (u, v) = chroma.split_at(chroma.len().min(height.div_ceil(down) * chroma_width));
        let rows = luma.chunks(width.max(1)).zip(into.chunks_exact_mut((width * 3).max(1)));
        for (at, (luma, into)) in rows.enumerate() {
            let [u, v] = [u, v].map(|plane| plane.get(at / down * chroma_width..).unwrap_or_default());
            let chroma = u.len().min(v.len());
            let most = into.len().min(luma.len() * 3).min(chroma * across * 3);
            let into = &mut into[..most];
            if across == 2 {
                self.row(into, |at, pairs| {
                    let (whole, odd) = luma[at * 2..].as_chunks();
                    let from = whole.iter().zip(&u[at..]).zip(&v[at..]);
                    pairs.iter_mut().zip(from).for_each(|(pair, (([y0, y1], u), v))| *pair = [*y0, *u, *y1, *v]);
                    let end = at + whole.len();
                    if let (Some(pair), [y], true) = (pairs.get_mut(whole.len()), odd, end < chroma) {
                        *pair = [*y, u[end], *y, v[end]];
                    }
                });
                continue;
            }
            // Each pixel is the first of a pair of its own.
            let (mut pairs, mut bytes) = ([[0; 4]; PAIRS], [0; 6 * PAIRS + 2]);
            for (block, into) in into.chunks_mut(3 * PAIRS).enumerate() {
                let at = block * PAIRS;
                let from = luma[at..].iter().zip(&u[at..]).zip(&v[at..]);
                pairs.iter_mut().zip(from).for_each(|(pair, ((y, u), v))| *pair = [*y, *u, *y, *v]);
                let (colours, _) = self.colours(&pairs);
                write(|pair| colours[pair * 2], |pair| colours[pair * 2 + 1], PAIRS / 2, &mut bytes);
                into.copy_from_slice(&bytes[..into.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standards' own formulas, in floats.
    fn expected(y: u8, u: u8, v: u8, is_709: bool, is_full_range: bool) -> [f64; 3] {
        let (luma, chroma) =
            if is_full_range { (f64::from(y), 1.0) } else { ((f64::from(y) - 16.0) * 255.0 / 219.0, 255.0 / 224.0) };
        let (u, v) = ((f64::from(u) - 128.0) * chroma, (f64::from(v) - 128.0) * chroma);
        let rgb = match is_709 {
            true => [luma + 1.5748 * v, luma - 0.187_324 * u - 0.468_124 * v, luma + 1.8556 * u],
            false => [luma + 1.402 * v, luma - 0.344_136 * u - 0.714_136 * v, luma + 1.772 * u],
        };
        rgb.map(|part| part.clamp(0.0, 255.0))
    }

    #[test]
    fn colours_are_those_of_the_standards() {
        for (is_709, is_full) in [(false, false), (false, true), (true, false), (true, true)] {
            let convert = YuvToRgb::new(is_709, is_full);
            for y in (0..=255).step_by(5) {
                for u in (0..=255).step_by(17) {
                    for v in (0..=255).step_by(17) {
                        let mut into = [0; 6];
                        convert.yuyv(&[y, u, y, v], 4, 2, &mut into);
                        let expected = expected(y, u, v, is_709, is_full);
                        let is_close = (0..3).all(|at| (f64::from(into[at]) - expected[at]).abs() <= 0.51);
                        assert!(is_close && into[..3] == into[3..], "{y} {u} {v}: {into:?}, expected {expected:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn planes_and_strides_are_respected() {
        let convert = YuvToRgb::new(false, true);
        // Two rows of three pixels, in rows of five bytes; grey but for the pair at the right.
        let frame = [10, 20, 30, 0, 0, 40, 50, 60, 0, 0, 128, 128, 128, 255, 0];
        let mut into = [9; 18];
        convert.nv12(&frame, 5, (2, 3), &mut into);
        assert_eq!(into[..6], [10, 10, 10, 20, 20, 20]);
        assert_eq!(into[6..9], [208, 0, 30]);
        assert_eq!(into[9..15], [40, 40, 40, 50, 50, 50]);
        let mut into = [9; 18];
        convert.yuyv(&[1, 128, 2, 128, 3, 128, 0, 128, 7, 7, 4, 128, 5, 128, 6, 128, 0, 128], 10, 3, &mut into);
        assert_eq!(into, [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6]);
        // A frame that is too short changes what it has.
        let mut into = [9; 18];
        convert.nv12(&frame[..7], 5, (2, 3), &mut into);
        assert_eq!(into, [9; 18]);
    }

    #[test]
    fn rows_of_every_width_and_sampling_are_the_same_picture() {
        let convert = YuvToRgb::new(false, false);
        let height = 3_usize;
        // Fewer pixels than are converted together, as many, and more.
        for (width, (down, across)) in [1_usize, 5, 64, 131]
            .into_iter()
            .flat_map(|width| [(1, 1), (1, 2), (2, 2)].map(|sampling| (width, sampling)))
        {
            let (rows, columns) = (height.div_ceil(down), width.div_ceil(across));
            let luma: Vec<u8> = (0..height * width).map(|at| (at * 14 % 256) as u8).collect();
            let u: Vec<u8> = (0..rows * columns).map(|at| (at * 17 % 256) as u8).collect();
            let v: Vec<u8> = u.iter().map(|u| 255 - u).collect();
            let chroma = |row: usize, column: usize| row / down * columns + column / across;
            let is_right = |into: &[u8]| {
                into.chunks(3).enumerate().all(|(at, found)| {
                    let chroma = chroma(at / width, at % width);
                    let expected = expected(luma[at], u[chroma], v[chroma], false, false);
                    found.iter().zip(expected).all(|(found, expected)| (f64::from(*found) - expected).abs() <= 0.51)
                })
            };
            let mut into = vec![0; height * width * 3];
            convert.planar(&[&luma[..], &u, &v].concat(), (height, width), (down, across), &mut into);
            assert!(is_right(&into), "planes, {width}: {down} {across}");
            if across == 1 {
                continue;
            }
            into.fill(0);
            let stride = columns * 2;
            let padded = |row: &[u8]| [row, &vec![0; stride - row.len()]].concat();
            if down == 2 {
                let pairs = u.iter().zip(&v).flat_map(|(u, v)| [*u, *v]);
                let frame: Vec<u8> = luma.chunks(width).flat_map(padded).chain(pairs).collect();
                convert.nv12(&frame, stride, (height, width), &mut into);
            } else {
                let pair = |row: usize, pair: usize| {
                    let y = |column: usize| luma[row * width + column.min(width - 1)];
                    let at = row * columns + pair;
                    [y(pair * 2), u[at], y(pair * 2 + 1), v[at]]
                };
                let frame: Vec<u8> = (0..height)
                    .flat_map(|row| (0..columns).map(move |at| (row, at)))
                    .flat_map(|(row, at)| pair(row, at))
                    .collect();
                convert.yuyv(&frame, columns * 4, width, &mut into);
            }
            assert!(is_right(&into), "in turn, {width}: {down} {across}");
        }
    }
}
