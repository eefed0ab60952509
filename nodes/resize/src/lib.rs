//! Scales images of 8-bit samples in 1 to 4 channels, and cuts parts out of them.
//!
//! With the filters of Pillow (`fast_image_resize`) or the numbers of OpenCV ([`Filter::Linear`], [`Filter::Area`], [`cut`]).
//!
//! `fast_image_resize` is generic, so all of its code that limen uses is compiled here: for 1, 3 and 4 channels, every precision and SIMD
//! instruction set, which takes long. This crate does not depend on limen, so Cargo builds both in parallel.

mod area;
mod linear;
mod nearest;
mod warp;

use area::Area;
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3, U8x4};
use fast_image_resize::{FilterType, ImageView, MulDiv, PixelTrait, ResizeAlg, ResizeOptions};
use linear::{Linear, Spacing};
use nearest::Nearest;
pub use warp::cut;

/// An interpolation filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// A triangle filter that widens with the scale: Pillow's `BILINEAR`. A level may differ by 1, more where alpha is low.
    Bilinear,
    /// The nearest pixel: Pillow's `NEAREST`, OpenCV's `INTER_NEAREST_EXACT`. Where two are equally near, it may be the other one.
    Nearest,
    /// A windowed sinc that widens with the scale: the filter of Pillow's `LANCZOS`. Levels at sharp edges differ by tens: the order of
    /// the axes may be another.
    Lanczos3,
    /// Between the two nearest pixels of each axis, also when shrinking: OpenCV's `INTER_LINEAR`. With 1, 3 or 4 channels every level is
    /// the same.
    Linear,
    /// The mean of the covered area: OpenCV's `INTER_AREA`. With 1, 3 or 4 channels every level is the same.
    Area,
}

impl Filter {
    /// Returns how many bytes a resizer keeps at most for images of a shape, or smaller ones, that are scaled to another: height, width,
    /// channels.
    pub fn bytes(self, from: [usize; 3], to: [usize; 3]) -> usize {
        let product = |lengths: [usize; 3]| bytes(lengths).unwrap_or(usize::MAX);
        let [height, width, channels] = from;
        let as_four = product([height, width, 4]);
        match self {
            Filter::Nearest => Nearest::bytes(to[1]),
            Filter::Linear => Linear::bytes(to),
            Filter::Area => Linear::bytes(to).saturating_add(Area::bytes(from, to)),
            Filter::Bilinear | Filter::Lanczos3 => {
                // Grey with alpha is copied to four channels, before and after.
                let copies = if channels == 2 { as_four.saturating_add(product([to[0], to[1], 4])) } else { 0 };
                let (of_pixel, weighted) = if channels.is_multiple_of(2) { (4, as_four) } else { (channels, 0) };
                product([to[0], width, of_pixel]).saturating_add(weighted).saturating_add(copies)
            }
        }
    }
}

/// A resizer with its buffers, which are reused for every image.
#[derive(Debug)]
pub struct Resizer {
    method: Method,
    resizer: fast_image_resize::Resizer,
    alpha: MulDiv,
    /// Images whose colours are multiplied by their alpha.
    weighted: Vec<u8>,
    nearest: Nearest,
    linear: Linear,
    area: Area,
    /// Images of grey with alpha, as four channels.
    grey: Vec<u8>,
    out: Vec<u8>,
}

/// Whose numbers a filter gives.
#[derive(Debug)]
enum Method {
    Pillow(ResizeOptions),
    OpenCvLinear,
    OpenCvArea,
}

impl Resizer {
    /// A resizer for one filter.
    pub fn new(filter: Filter) -> Self {
        // Alpha is applied here: see `scale_weighted`.
        let pillow = |algorithm| Method::Pillow(ResizeOptions::new().resize_alg(algorithm).use_alpha(false));
        Resizer {
            method: match filter {
                Filter::Bilinear => pillow(ResizeAlg::Convolution(FilterType::Bilinear)),
                Filter::Nearest => pillow(ResizeAlg::Nearest),
                Filter::Lanczos3 => pillow(ResizeAlg::Convolution(FilterType::Lanczos3)),
                Filter::Linear => Method::OpenCvLinear,
                Filter::Area => Method::OpenCvArea,
            },
            resizer: fast_image_resize::Resizer::new(),
            alpha: MulDiv::new(),
            weighted: Vec::new(),
            nearest: Nearest::default(),
            linear: Linear::default(),
            area: Area::default(),
            grey: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Scales an image from one buffer into another; shapes are height, width, channels. With 2 or 4 channels the last one is alpha:
    /// [`Filter::Bilinear`] and [`Filter::Lanczos3`] weight colours by it.
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
        let (pixels, into) = checked(from, pixels, to, into)?;
        let Method::Pillow(options) = self.method else {
            self.scale_as_opencv(from, pixels, to, into);
            return Ok(());
        };
        match (from[2], options.algorithm) {
            (2, ResizeAlg::Nearest) => self.nearest.scale::<2>(from, pixels, to, into),
            (4, ResizeAlg::Nearest) => self.nearest.scale::<4>(from, pixels, to, into),
            _ => return self.scale_as_pillow(&options, from, pixels, to, into),
        }
        Ok(())
    }

    fn scale_as_pillow(
        &mut self,
        options: &ResizeOptions,
        from: [usize; 3],
        pixels: &[u8],
        to: [usize; 3],
        into: &mut [u8],
    ) -> Result<(), String> {
        match from[2] {
            1 => self.scale_as::<U8>(options, from, pixels, to, into),
            2 => self.scale_grey_alpha(options, from, pixels, to, into),
            3 => self.scale_as::<U8x3>(options, from, pixels, to, into),
            _ => self.scale_weighted(options, from, pixels, to, into),
        }
    }

    fn scale_as_opencv(&mut self, from: [usize; 3], pixels: &[u8], to: [usize; 3], into: &mut [u8]) {
        match from[2] {
            1 => self.sample::<1>(from, pixels, to, into),
            2 => self.sample::<2>(from, pixels, to, into),
            3 => self.sample::<3>(from, pixels, to, into),
            _ => self.sample::<4>(from, pixels, to, into),
        }
    }

    fn sample<const C: usize>(
        &mut self,
        [height, width, _]: [usize; 3],
        pixels: &[u8],
        [h, w, _]: [usize; 3],
        into: &mut [u8],
    ) {
        let (from, to) = ([height, width], [h, w]);
        let is_area = matches!(self.method, Method::OpenCvArea);
        if from == to {
            into.copy_from_slice(pixels);
        } else if is_area && h <= height && w <= width {
            self.area.scale::<C>(from, pixels, to, into);
        } else {
            let spacing = if is_area { Spacing::Edges } else { Spacing::Centres };
            self.linear.scale::<C>(spacing, from, pixels, to, into);
        }
    }

    /// Grey with alpha, as three equal colours with alpha: a fourth type of pixels would take a third longer to
    /// compile.
    fn scale_grey_alpha(
        &mut self,
        options: &ResizeOptions,
        from: [usize; 3],
        pixels: &[u8],
        to: [usize; 3],
        into: &mut [u8],
    ) -> Result<(), String> {
        let [size, scaled] = [from, to].map(|[height, width, _]| [height, width, 4]);
        let (mut grey, mut out) = (std::mem::take(&mut self.grey), std::mem::take(&mut self.out));
        grey.clear();
        grey.extend(pixels.chunks_exact(2).take(from[0] * from[1]).flat_map(|p| [p[0], p[0], p[0], p[1]]));
        out.resize(to[0] * to[1] * 4, 0);
        let result = self.scale_weighted(options, size, &grey, scaled, &mut out);
        if result.is_ok() {
            for (to, from) in into.chunks_exact_mut(2).zip(out.chunks_exact(4)) {
                to.copy_from_slice(&from[2..]);
            }
        }
        (self.grey, self.out) = (grey, out);
        result
    }

    /// Four channels, with colours weighted by alpha. The library does the same with `use_alpha`, but then all its passes are compiled
    /// for a second type of source.
    fn scale_weighted(
        &mut self,
        options: &ResizeOptions,
        from: [usize; 3],
        pixels: &[u8],
        to: [usize; 3],
        into: &mut [u8],
    ) -> Result<(), String> {
        if from == to {
            into.copy_from_slice(pixels);
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.weighted);
        buffer.resize(pixels.len(), 0);
        let mut weighted = image::<U8x4>(from, &mut buffer)?;
        self.alpha.multiply_alpha_typed(&image_ref(from, pixels)?, &mut weighted).map_err(|e| e.to_string())?;
        let mut target = image::<U8x4>(to, into)?;
        self.scale_view(options, &weighted, &mut target)?;
        self.alpha.divide_alpha_inplace_typed(&mut target).map_err(|e| e.to_string())?;
        self.weighted = buffer;
        Ok(())
    }

    fn scale_as<P: PixelTrait>(
        &mut self,
        options: &ResizeOptions,
        from: [usize; 3],
        pixels: &[u8],
        to: [usize; 3],
        into: &mut [u8],
    ) -> Result<(), String> {
        self.scale_view(options, &image_ref::<P>(from, pixels)?, &mut image(to, into)?)
    }

    fn scale_view<P: PixelTrait>(
        &mut self,
        options: &ResizeOptions,
        source: &impl ImageView<Pixel = P>,
        target: &mut TypedImage<'_, P>,
    ) -> Result<(), String> {
        self.resizer.resize_typed(source, target, options).map_err(|e| e.to_string())
    }
}

fn image_ref<P: PixelTrait>([height, width, _]: [usize; 3], bytes: &[u8]) -> Result<TypedImageRef<'_, P>, String> {
    TypedImageRef::from_buffer(width as u32, height as u32, bytes).map_err(|e| e.to_string())
}

fn image<P: PixelTrait>([height, width, _]: [usize; 3], bytes: &mut [u8]) -> Result<TypedImage<'_, P>, String> {
    TypedImage::from_buffer(width as u32, height as u32, bytes).map_err(|e| e.to_string())
}

/// Returns exactly the bytes of both images, if one can become the other.
fn checked<'a, 'b>(
    from: [usize; 3],
    pixels: &'a [u8],
    to: [usize; 3],
    into: &'b mut [u8],
) -> Result<(&'a [u8], &'b mut [u8]), String> {
    if from.iter().chain(&to).any(|length| *length == 0 || u32::try_from(*length).is_err()) {
        return Err(format!("{from:?} cannot be scaled to {to:?}"));
    }
    match (from[2], to[2]) {
        (channels @ 1..=4, other) if channels == other => {}
        (channels @ 1..=4, other) => return Err(format!("{channels} channels, expected {other}")),
        (channels, _) => return Err(format!("{channels} channels, expected 1 to 4")),
    }
    bytes(from)
        .and_then(|n| pixels.get(..n))
        .zip(bytes(to).and_then(|n| into.get_mut(..n)))
        .ok_or_else(|| "a buffer is too small for its shape".into())
}

fn bytes(shape: [usize; 3]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, length| n.checked_mul(*length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels that look random.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    /// The FNV-1a hash of all levels, so that one number stands for an image.
    fn hash(levels: &[u8]) -> u32 {
        levels.iter().fold(0x811C_9DC5, |hash, level| (hash ^ u32::from(*level)).wrapping_mul(0x0100_0193))
    }

    fn scaled(filter: Filter, from: [usize; 3], [h, w]: [usize; 2]) -> Vec<u8> {
        let mut resizer = Resizer::new(filter);
        let mut scaled = |from: [usize; 3], to: [usize; 3]| {
            let mut out = vec![0; to.iter().product()];
            resizer.scale(from, &noise(from.iter().product()), to, &mut out).unwrap();
            out
        };
        // The buffers have been used for a smaller and for a larger image.
        scaled([9, 8, 1], [4, 3, 1]);
        scaled([3, 2, 4], [70, 300, 4]);
        scaled(from, [h, w, from[2]])
    }

    /// The expected hashes are those of `cv2.resize` (OpenCV 5.0.0 and 4.10.0 give the same) with `INTER_LINEAR` and `INTER_AREA` for the
    /// same noise.
    #[test]
    fn every_level_is_that_of_opencv() {
        for (from, to, linear, area) in [
            ([7, 9, 3], [5, 4], 0xACE1_C381, 0x2117_6D98),
            ([7, 9, 1], [20, 31], 0x76B6_FA2C, 0x52F6_37EA),
            ([48, 64, 3], [24, 32], 0x21F1_7C54, 0x21F1_7C54),
            ([48, 64, 4], [17, 100], 0xE2C3_714A, 0x00F4_DE02),
            ([90, 120, 1], [30, 40], 0x5C8F_7A6C, 0xCA76_5C6A),
            ([1, 1, 3], [3, 5], 0xB24D_0AB8, 0xB24D_0AB8),
            ([45, 60, 4], [9, 20], 0xDE4B_F8AB, 0x8CA1_4AD0),
            ([5, 200, 3], [60, 7], 0x2D4A_626B, 0x1A28_DB8D),
            ([33, 47, 3], [33, 20], 0x1B4D_C10B, 0xC3CD_6DD9),
            ([300, 500, 3], [187, 311], 0xE646_9EB8, 0x95B3_8DB7),
        ] {
            for (filter, expected) in [(Filter::Linear, linear), (Filter::Area, area)] {
                assert_eq!(hash(&scaled(filter, from, to)), expected, "{filter:?} {from:?} to {to:?}");
            }
        }
    }

    /// The expected hashes are those of `cv2.getPerspectiveTransform` to `[0, 0], [w, 0], [w, h], [0, h]`, `cv2.warpPerspective` with
    /// `INTER_CUBIC` and `BORDER_REPLICATE` (OpenCV 5.0.0 on x86), and `numpy.rot90`, for the same noise.
    #[test]
    fn every_level_between_four_corners_is_that_of_opencv() {
        for (channels, corners, to, turned, expected) in [
            (1, [[5.5, 4.25], [45.2, 10.0], [43.0, 25.7], [3.1, 19.0]], [15, 40], false, 0x4340_2C8B),
            (3, [[20.0, 3.0], [30.0, 5.0], [25.0, 38.0], [15.0, 35.0]], [33, 10], true, 0x321D_6F0C),
            (4, [[-5.0, -4.0], [70.0, 2.0], [66.0, 50.0], [0.0, 45.0]], [49, 75], false, 0xF747_1460),
            (3, [[2.0, 2.0], [42.0, 2.0], [42.0, 22.0], [2.0, 22.0]], [20, 40], false, 0x161D_54FD),
            (2, [[10.5, 8.5], [50.1, 3.3], [52.9, 20.2], [12.4, 30.6]], [22, 41], false, 0xDB61_7148),
        ] {
            let mut part = vec![0; to[0] * to[1] * channels];
            let pixels = noise(40 * 60 * channels);
            cut([40, 60, channels], &pixels, corners, [to[0], to[1], channels], turned, &mut part).unwrap();
            assert_eq!(hash(&part), expected, "{corners:?}");
        }
    }

    #[test]
    fn corners_anywhere_are_harmless() {
        for value in [0.0, -1.0, 1e30, -1e30, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE] {
            for at in 0..8 {
                let mut corners = [[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [0.0, 3.0]];
                corners[at / 2][at % 2] = value;
                cut([3, 4, 1], &[9; 12], corners, [3, 4, 1], at > 3, &mut [0; 12]).unwrap();
            }
        }
    }

    /// The expected hashes are those of Pillow 13 with `NEAREST`, and of `cv2.resize` with `INTER_NEAREST_EXACT`.
    #[test]
    fn every_nearest_pixel_is_that_of_pillow() {
        for (from, to, expected) in [
            ([7, 9, 3], [5, 4], 0xCF98_7A78),
            ([7, 9, 1], [20, 31], 0xFC92_979F),
            ([48, 64, 3], [24, 32], 0xCCDA_3580),
            ([90, 120, 1], [30, 40], 0x5C8F_7A6C),
            ([5, 200, 3], [60, 7], 0xCCE2_65ED),
            ([33, 47, 3], [33, 20], 0x01B0_08E1),
        ] {
            assert_eq!(hash(&scaled(Filter::Nearest, from, to)), expected, "{from:?} to {to:?}");
        }
    }

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
    fn the_buffers_are_as_large_as_announced() {
        for filter in [Filter::Bilinear, Filter::Nearest, Filter::Lanczos3, Filter::Linear, Filter::Area] {
            for (from, [h, w]) in
                [([40, 60, 3], [20, 30]), ([40, 60, 2], [90, 31]), ([7, 9, 4], [5, 40]), ([9, 8, 1], [9, 8])]
            {
                let to = [h, w, from[2]];
                let mut resizer = Resizer::new(filter);
                resizer.scale(from, &noise(from.iter().product()), to, &mut vec![0; to.iter().product()]).unwrap();
                let crate_buffers = resizer.resizer.size_of_internal_buffers();
                let kept = crate_buffers
                    + resizer.weighted.len()
                    + resizer.grey.len()
                    + resizer.out.len()
                    + resizer.nearest.kept()
                    + resizer.linear.kept()
                    + resizer.area.kept();
                // The crate aligns its buffers.
                assert!(kept <= filter.bytes(from, to) + 64, "{filter:?} {from:?} to {to:?}: {kept}");
            }
            assert_eq!(filter.bytes([0; 3], [0; 3]), 0);
            filter.bytes([usize::MAX; 3], [usize::MAX; 3]);
        }
    }

    #[test]
    fn unsupported_channels_and_wrong_sizes_are_errors() {
        for filter in [Filter::Bilinear, Filter::Nearest, Filter::Lanczos3, Filter::Linear, Filter::Area] {
            let mut resizer = Resizer::new(filter);
            for (from, pixels, to, room) in [
                ([1, 1, 5], 5, [1, 1, 5], 5),
                ([1, 1, 3], 3, [1, 1, 1], 1),
                ([2, 2, 1], 3, [1, 1, 1], 1),
                ([2, 2, 1], 4, [1, 2, 1], 1),
                ([2, 2, 2], 8, [1, 2, 2], 3),
                ([0, 2, 1], 4, [1, 1, 1], 1),
                ([2, 2, 1], 4, [0, 1, 1], 1),
                ([usize::MAX, 2, 1], 4, [1, 1, 1], 1),
                ([1 << 31, 1 << 31, 4], 4, [1, 1, 4], 4),
            ] {
                let result = resizer.scale(from, &vec![0; pixels], to, &mut vec![0; room]);
                assert!(result.is_err(), "{filter:?} {from:?} to {to:?}");
                let corners = [[0.0; 2]; 4];
                let result = cut(from, &vec![0; pixels], corners, to, true, &mut vec![0; room]);
                assert!(result.is_err(), "{from:?} to {to:?}");
            }
        }
    }
}
