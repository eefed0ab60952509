//! Luma and chroma as red, green and blue.

/// Pairs of pixels that are converted together: enough for the vectors of every CPU.
const PAIRS: usize = 32;
/// Luma of two pixels and the chroma that they share: Y U Y V.
type Pairs = [[u8; 4]; PAIRS];
/// Red, green and blue, from the lowest byte on.
type Colours = [u32; PAIRS];

/// The pixels of a block, and its bytes.
const PIXELS: usize = 2 * PAIRS;
const BYTES: usize = 3 * PIXELS;

/// Writes colours in turn, two in six bytes.
#[inline(always)]
fn write(first: impl Fn(usize) -> u32, second: impl Fn(usize) -> u32, into: &mut [u8]) {
    let last = into.len() / 6 - 1;
    for pair in 0..=last {
        let both = (u64::from(first(pair)) | u64::from(second(pair)) << 24).to_le_bytes();
        if pair < last {
            // What is too much is written over by the next one.
            into[pair * 6..][..8].copy_from_slice(&both);
        } else {
            into[pair * 6..][..6].copy_from_slice(&both[..6]);
        }
    }
}

/// Coefficients of a conversion, in 2⁻¹⁶.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct YuvToRgb {
    black: i32,
    luma: i32,
    red_v: i32,
    green_u: i32,
    green_v: i32,
    blue_u: i32,
}

impl YuvToRgb {
    /// By ITU-R BT.709 or BT.601, with luma from 0 to 255 or from 16 to 235.
    pub fn new(is_709: bool, is_full_range: bool) -> Self {
        let (red, blue) = if is_709 { (0.2126, 0.0722) } else { (0.299, 0.114) };
        let green = 1.0 - red - blue;
        let (luma, chroma) = if is_full_range { (1.0, 1.0) } else { (255.0 / 219.0, 255.0 / 224.0) };
        let fixed = |value: f64| (value * 65536.0).round() as i32;
        YuvToRgb {
            black: if is_full_range { 0 } else { 16 },
            luma: fixed(luma),
            red_v: fixed(2.0 * (1.0 - red) * chroma),
            green_u: fixed(-2.0 * (1.0 - blue) * blue / green * chroma),
            green_v: fixed(-2.0 * (1.0 - red) * red / green * chroma),
            blue_u: fixed(2.0 * (1.0 - blue) * chroma),
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
            let red = self.red_v * v + HALF;
            let green = self.green_u * u + self.green_v * v + HALF;
            let blue = self.blue_u * u + HALF;
            let colour = |y: i32| {
                let y = self.luma * (y - self.black);
                // It fits 16 bits, which vectors clamp at once.
                let part = |part: i32| (((y + part) >> 16) as i16).clamp(0, 255) as u32;
                part(red) | part(green) << 8 | part(blue) << 16
            };
            (first[at], second[at]) = (colour(byte(0)), colour(byte(2)));
        }
        (first, second)
    }

    /// Converts a row of pairs, of which `read` gives those of so many pixels from the pair with a
    /// number on.
    #[inline(always)]
    fn row(&self, into: &mut [u8], read: impl Fn(usize, usize, &mut Pairs)) {
        let mut pairs = [[0; 4]; PAIRS];
        let (blocks, rest) = into.as_chunks_mut::<BYTES>();
        let end = blocks.len() * PAIRS;
        for (block, into) in blocks.iter_mut().enumerate() {
            read(block * PAIRS, PIXELS, &mut pairs);
            let (first, second) = self.colours(&pairs);
            write(|pair| first[pair], |pair| second[pair], into);
        }
        if !rest.is_empty() {
            read(end, rest.len() / 3, &mut pairs);
            let (first, second) = self.colours(&pairs);
            let mut bytes = [0; BYTES];
            write(|pair| first[pair], |pair| second[pair], &mut bytes);
            rest.copy_from_slice(&bytes[..rest.len()]);
        }
    }

    /// Converts rows of two pixels in four bytes, Y U Y V; each row begins at a multiple of
    /// `stride`.
    pub fn yuyv(&self, frame: &[u8], stride: usize, width: usize, into: &mut [u8]) {
        for (row, into) in frame.chunks(stride.max(1)).zip(into.chunks_exact_mut((width * 3).max(1))) {
            let row = row.as_chunks().0;
            let most = into.len().min(row.len() * 6);
            self.row(&mut into[..most], |at, pixels, pairs| {
                let count = pixels.div_ceil(2);
                pairs[..count].copy_from_slice(&row[at..][..count]);
            });
        }
    }

    /// Converts a plane of Y and one of U and V in turn, half as high; rows of both begin at
    /// multiples of `stride`.
    pub fn nv12(&self, frame: &[u8], stride: usize, (height, width): (usize, usize), into: &mut [u8]) {
        let stride = stride.max(1);
        let (luma, chroma) = frame.split_at(frame.len().min(stride * height));
        let rows = luma.chunks(stride).zip(into.chunks_exact_mut((width * 3).max(1)));
        for (at, (luma, into)) in rows.enumerate() {
            let chroma = chroma.get(at / 2 * stride..).unwrap_or_default().as_chunks().0;
            let most = into.len().min(luma.len() * 3).min(chroma.len() * 6);
            self.row(&mut into[..most], |at, pixels, pairs| {
                let (whole, odd) = luma[at * 2..][..pixels].as_chunks();
                let chroma = &chroma[at..][..pixels.div_ceil(2)];
                let from = whole.iter().zip(chroma);
                pairs.iter_mut().zip(from).for_each(|(pair, ([y0, y1], [u, v]))| *pair = [*y0, *u, *y1, *v]);
                // A row of odd width ends with half a pair.
                if let ([y], Some([u, v])) = (odd, chroma.last()) {
                    pairs[whole.len()] = [*y, *u, *y, *v];
                }
            });
        }
    }

    /// Converts planes without gaps of Y, U and V. A sample of chroma stands for `across` pixels,
    /// one or two, of each of `down` rows.
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
                self.row(into, |at, pixels, pairs| {
                    let (whole, odd) = luma[at * 2..][..pixels].as_chunks();
                    let count = pixels.div_ceil(2);
                    let (u, v) = (&u[at..][..count], &v[at..][..count]);
                    let from = whole.iter().zip(u).zip(v);
                    pairs.iter_mut().zip(from).for_each(|(pair, (([y0, y1], u), v))| *pair = [*y0, *u, *y1, *v]);
                    if let ([y], Some(u), Some(v)) = (odd, u.last(), v.last()) {
                        pairs[whole.len()] = [*y, *u, *y, *v];
                    }
                });
                continue;
            }
            // Each pixel is the first of a pair of its own.
            let (mut pairs, mut bytes) = ([[0; 4]; PAIRS], [0; 3 * PAIRS]);
            for (block, into) in into.chunks_mut(3 * PAIRS).enumerate() {
                let at = block * PAIRS;
                let from = luma[at..].iter().zip(&u[at..]).zip(&v[at..]);
                pairs.iter_mut().zip(from).for_each(|(pair, ((y, u), v))| *pair = [*y, *u, *y, *v]);
                let (colours, _) = self.colours(&pairs);
                write(|pair| colours[pair * 2], |pair| colours[pair * 2 + 1], &mut bytes);
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
