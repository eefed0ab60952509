//! Scales images of 8-bit samples in 1 to 4 channels.
//!
//! `fast_image_resize` is generic, so all of its code that limen uses is compiled here: for 1, 3 and 4 channels, every filter and SIMD
//! instruction set. That takes longer than compiling all nodes. This crate does not depend on limen, so Cargo builds both in parallel.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3, U8x4};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions};

/// An interpolation filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// A triangle filter that widens with the scale: Pillow's `BILINEAR`.
    Bilinear,
    /// The nearest pixel.
    Nearest,
    /// A windowed sinc.
    Lanczos3,
}

/// A resizer with its buffers, which are reused for every image.
#[derive(Debug)]
pub struct Resizer {
    resizer: fast_image_resize::Resizer,
    options: ResizeOptions,
    /// Images of grey with alpha, as four channels.
    grey: Vec<u8>,
    out: Vec<u8>,
}

impl Resizer {
    /// A resizer for one filter.
    pub fn new(filter: Filter) -> Self {
        let options = ResizeOptions::new().resize_alg(match filter {
            Filter::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
            Filter::Nearest => ResizeAlg::Nearest,
            Filter::Lanczos3 => ResizeAlg::Convolution(FilterType::Lanczos3),
        });
        Resizer { resizer: fast_image_resize::Resizer::new(), options, grey: Vec::new(), out: Vec::new() }
    }

    /// Scales an image from one buffer into another; shapes are height, width, channels. With 2 or 4 channels the last one is alpha: unless
    /// the filter is [`Filter::Nearest`], colours are weighted by it.
    ///
    /// # Errors
    /// A message, if a length is 0, the number of channels is not 1 to 4 or differs, or a buffer is too small for its shape.
    ///
    /// ```
    /// use limen_resize::{Filter, Resizer};
    ///
    /// let mut half = [0; 2];
    /// Resizer::new(Filter::Nearest).scale([1, 4, 1], &[1, 50, 100, 200], [1, 2, 1], &mut half).unwrap();
    /// assert_eq!(half, [50, 200]);
    /// ```
    pub fn scale(&mut self, from: [usize; 3], pixels: &[u8], to: [usize; 3], into: &mut [u8]) -> Result<(), String> {
        if from.iter().chain(&to).any(|length| *length == 0 || u32::try_from(*length).is_err()) {
            return Err(format!("{from:?} cannot be scaled to {to:?}"));
        }
        let [.., channels] = from;
        if to[2] != channels {
            return Err(format!("{channels} channels, expected {}", to[2]));
        }
        match channels {
            1 => self.scale_as::<U8>(from, pixels, to, into),
            2 => self.scale_grey_alpha(from, pixels, to, into),
            3 => self.scale_as::<U8x3>(from, pixels, to, into),
            4 => self.scale_as::<U8x4>(from, pixels, to, into),
            n => Err(format!("{n} channels, expected 1 to 4")),
        }
    }

    /// Grey with alpha, as three equal colours with alpha: a fourth type of pixels would take a third longer to
    /// compile.
    fn scale_grey_alpha(
        &mut self,
        from: [usize; 3],
        pixels: &[u8],
        to: [usize; 3],
        into: &mut [u8],
    ) -> Result<(), String> {
        let [size, scaled] = [from, to].map(|[height, width, _]| [height, width, 4]);
        let bytes = |[height, width, _]: [usize; 3]| height.checked_mul(width).and_then(|n| n.checked_mul(2));
        let fits = bytes(from).is_some_and(|n| n <= pixels.len()) && bytes(to).is_some_and(|n| n <= into.len());
        if !fits {
            return Err("a buffer is too small for its shape".into());
        }
        let (mut grey, mut out) = (std::mem::take(&mut self.grey), std::mem::take(&mut self.out));
        grey.clear();
        grey.extend(pixels.chunks_exact(2).take(from[0] * from[1]).flat_map(|p| [p[0], p[0], p[0], p[1]]));
        out.resize(to[0] * to[1] * 4, 0);
        let result = self.scale_as::<U8x4>(size, &grey, scaled, &mut out);
        if result.is_ok() {
            for (to, from) in into.chunks_exact_mut(2).zip(out.chunks_exact(4)) {
                to.copy_from_slice(&from[2..]);
            }
        }
        (self.grey, self.out) = (grey, out);
        result
    }

    fn scale_as<P: PixelTrait>(
        &mut self,
        from: [usize; 3],
        pixels: &[u8],
        to: [usize; 3],
        into: &mut [u8],
    ) -> Result<(), String> {
        let source = TypedImageRef::<P>::from_buffer(from[1] as u32, from[0] as u32, pixels);
        let target = TypedImage::<P>::from_buffer(to[1] as u32, to[0] as u32, into);
        let (source, mut target) = (source.map_err(|e| e.to_string())?, target.map_err(|e| e.to_string())?);
        self.resizer.resize_typed(&source, &mut target, &self.options).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(filter: Filter, from: [usize; 3], pixels: &[u8], to: [usize; 3], expected: &[u8]) {
        let mut out = vec![0; to.iter().product()];
        Resizer::new(filter).scale(from, pixels, to, &mut out).unwrap();
        let far = out.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(out.len() == expected.len() && far <= Some(1), "{filter:?} {from:?}: {out:?}, expected {expected:?}");
    }

    /// The expected numbers are those of Pillow 13.
    #[test]
    fn bilinear_matches_pillow() {
        let row = [0, 10, 20, 30, 40, 50, 60, 70];
        check(Filter::Bilinear, [1, 8, 1], &row, [1, 4, 1], &[7, 25, 45, 63]);
        check(Filter::Bilinear, [1, 8, 1], &row, [1, 3, 1], &[11, 35, 59]);
        check(Filter::Bilinear, [2, 1, 1], &[0, 100], [4, 1, 1], &[0, 25, 75, 100]);
        let colours = [255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];
        check(Filter::Bilinear, [2, 2, 3], &colours, [1, 1, 3], &[128, 128, 128]);
    }

    #[test]
    fn shrinking_a_ramp_matches_pillow() {
        let pixel = |at: usize| {
            let (c, x, y) = (at % 3, at / 3 % 64, at / 3 / 64);
            ((x * (c + 1) / 2 + y * (3 - c) / 2 + 35) % 256) as u8
        };
        let pixels: Vec<u8> = (0..48 * 64 * 3).map(pixel).collect();
        let mut out = vec![0; 17 * 23 * 3];
        Resizer::new(Filter::Bilinear).scale([48, 64, 3], &pixels, [17, 23, 3], &mut out).unwrap();
        for (row, column, expected) in [(3, 5, [56, 59, 61]), (16, 22, [134, 143, 150]), (8, 11, [86, 91, 94])] {
            let at = (row * 23 + column) * 3;
            assert!(out[at..at + 3].iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 1), "{row} {column}");
        }
        let sum: i64 = out.iter().map(|v| i64::from(*v)).sum();
        assert!((sum - 105_219).abs() < out.len() as i64 / 10, "{sum}");
    }

    /// The invisible pixel does not count; the expected numbers are Pillow's, for `LA`.
    #[test]
    fn colours_are_weighted_by_alpha() {
        check(Filter::Bilinear, [1, 2, 2], &[10, 255, 200, 0], [1, 1, 2], &[9, 128]);
        check(Filter::Bilinear, [1, 4, 2], &[10, 255, 200, 0, 100, 128, 50, 64], [1, 2, 2], &[21, 128, 83, 82]);
        check(Filter::Nearest, [1, 4, 2], &[1, 2, 50, 51, 100, 0, 200, 9], [1, 2, 2], &[50, 51, 200, 9]);
    }

    #[test]
    fn nearest_copies_pixels_unchanged() {
        check(Filter::Nearest, [1, 4, 1], &[1, 50, 100, 200], [1, 2, 1], &[50, 200]);
        check(Filter::Nearest, [1, 2, 1], &[1, 200], [1, 4, 1], &[1, 1, 200, 200]);
        check(Filter::Lanczos3, [1, 2, 1], &[7, 7], [3, 3, 1], &[7; 9]);
    }

    #[test]
    fn unsupported_channels_and_wrong_sizes_are_errors() {
        let mut scaler = Resizer::new(Filter::Bilinear);
        for (from, pixels, to) in [([1, 1, 5], 5, [1, 1, 5]), ([1, 1, 3], 3, [1, 1, 1]), ([2, 2, 1], 3, [1, 1, 1])] {
            assert!(scaler.scale(from, &vec![0; pixels], to, &mut vec![0; to.iter().product()]).is_err(), "{from:?}");
        }
    }
}
