//! Luma and chroma as red, green and blue.

/// Coefficients of a conversion, in 2⁻¹⁶.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct YuvToRgb {
    black: i32,
    luma: i32,
    red_v: i32,
    green_u: i32,
    green_v: i32,
    blue_u: i32,
}

impl YuvToRgb {
    /// By ITU-R BT.709 or BT.601, with luma from 0 to 255 or from 16 to 235.
    pub(crate) fn new(is_709: bool, is_full_range: bool) -> Self {
        let (red, blue) = if is_709 { (0.2126, 0.0722) } else { (0.299, 0.114) };
        let green = 1.0 - red - blue;
        let (luma, chroma) = if is_full_range { (1.0, 1.0) } else { (255.0 / 219.0, 255.0 / 224.0) };
        let fixed = |value: f64| (value * 65536.0).round() as i32;
        YuvToRgb {
            black: if is_full_range { 0 } else { 16 },
            luma: fixed(luma),
            red_v: fixed(2.0 * (1.0 - red) * chroma),
            green_u: fixed(2.0 * (1.0 - blue) * blue / green * chroma),
            green_v: fixed(2.0 * (1.0 - red) * red / green * chroma),
            blue_u: fixed(2.0 * (1.0 - blue) * chroma),
        }
    }

    /// The parts of a colour that the pixels of a chroma sample share.
    #[inline(always)]
    fn chroma(&self, u: u8, v: u8) -> [i32; 3] {
        let (u, v) = (i32::from(u) - 128, i32::from(v) - 128);
        const HALF: i32 = 1 << 15;
        [self.red_v * v + HALF, -self.green_u * u - self.green_v * v + HALF, self.blue_u * u + HALF]
    }

    #[inline(always)]
    fn pixel(&self, y: u8, [r, g, b]: [i32; 3]) -> [u8; 3] {
        let y = (i32::from(y) - self.black) * self.luma;
        [r, g, b].map(|part| ((y + part) >> 16).clamp(0, 255) as u8)
    }

    /// Converts rows of two pixels in four bytes, Y U Y V; each row begins at a multiple of `stride`.
    pub(crate) fn yuyv(&self, frame: &[u8], stride: usize, width: usize, into: &mut [u8]) {
        for (row, into) in frame.chunks(stride.max(1)).zip(into.chunks_exact_mut((width * 3).max(1))) {
            for ([y0, u, y1, v], into) in row.as_chunks().0.iter().zip(into.chunks_mut(6)) {
                let chroma = self.chroma(*u, *v);
                let (first, second) = into.split_at_mut(3);
                first.copy_from_slice(&self.pixel(*y0, chroma));
                // A row of odd width ends with half a pair.
                if let Some(second) = second.first_chunk_mut() {
                    *second = self.pixel(*y1, chroma);
                }
            }
        }
    }

    /// Converts a plane of Y and one of U and V in turn, half as high; rows of both begin at multiples of `stride`.
    pub(crate) fn nv12(&self, frame: &[u8], stride: usize, (height, width): (usize, usize), into: &mut [u8]) {
        let stride = stride.max(1);
        let (luma, chroma) = frame.split_at(frame.len().min(stride * height));
        let rows = luma.chunks(stride).zip(into.chunks_exact_mut((width * 3).max(1)));
        for (at, (luma, into)) in rows.enumerate() {
            let chroma = chroma.get(at / 2 * stride..).unwrap_or_default();
            for ((luma, [u, v]), into) in luma.chunks(2).zip(chroma.as_chunks().0).zip(into.chunks_mut(6)) {
                let shared = self.chroma(*u, *v);
                for (y, into) in luma.iter().zip(into.as_chunks_mut().0) {
                    *into = self.pixel(*y, shared);
                }
            }
        }
    }

    /// Converts planes without gaps of Y, U and V. A sample of chroma stands for `across` pixels of each of `down` rows.
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
            let pixels = luma.chunks(across).zip(into.chunks_mut(3 * across));
            for (((luma, into), u), v) in pixels.zip(u).zip(v) {
                let shared = self.chroma(*u, *v);
                for (y, into) in luma.iter().zip(into.as_chunks_mut().0) {
                    *into = self.pixel(*y, shared);
                }
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
    fn planes_of_every_sampling_are_the_same_picture() {
        let convert = YuvToRgb::new(false, false);
        let (height, width) = (3_usize, 5_usize);
        let luma: Vec<u8> = (0..15).map(|at| 16 + at * 14).collect();
        for (down, across) in [(1, 1), (1, 2), (2, 2)] {
            let (rows, columns) = (height.div_ceil(down), width.div_ceil(across));
            let u: Vec<u8> = (0..rows * columns).map(|at| (at * 17 % 256) as u8).collect();
            let v: Vec<u8> = u.iter().map(|u| 255 - u).collect();
            let mut into = [0; 45];
            convert.planar(&[&luma[..], &u, &v].concat(), (height, width), (down, across), &mut into);
            for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
                let chroma = row / down * columns + column / across;
                let at = row * width + column;
                let expected = convert.pixel(luma[at], convert.chroma(u[chroma], v[chroma]));
                assert_eq!(into[at * 3..][..3], expected, "{down} {across}: {row} {column}");
            }
        }
    }
}
