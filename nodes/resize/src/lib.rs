//! Scales images of 8-bit samples in 1 to 4 channels, and cuts parts out of them.
//!
//! With the filters of Pillow (`fast_image_resize`) or the numbers of OpenCV ([`Filter::Linear`],
//! [`Filter::Area`], [`cut`]).
//!
//! `fast_image_resize` is generic, so all of its code that limen uses is compiled here: for 1, 3
//! and 4 channels, every precision and SIMD instruction set, which takes long. This crate does not
//! depend on limen, so Cargo builds both in parallel.

mod area;
mod linear;
mod nearest;
mod warp;

use area::Area;
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3, U8x4};
use fast_image_resize::{FilterType, MulDiv, PixelTrait, ResizeAlg, ResizeOptions};
use linear::{Linear, Spacing};
use nearest::Nearest;
pub use warp::cut;

/// An interpolation filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// A triangle filter that widens with the scale: Pillow's `BILINEAR`. A level may differ by 1,
    /// more where alpha is low.
    Bilinear,
    /// The nearest pixel: Pillow's `NEAREST`, OpenCV's `INTER_NEAREST_EXACT`. Where two are equally
    /// near, it may be the other one.
    Nearest,
    /// A windowed sinc that widens with the scale: the filter of Pillow's `LANCZOS`. Levels at
    /// sharp edges differ by tens: the order of the axes may be another.
    Lanczos3,
    /// Between the two nearest pixels of each axis, also when shrinking: OpenCV's `INTER_LINEAR`.
    /// With 1, 3 or 4 channels every level is the same.
    Linear,
    /// The mean of the covered area: OpenCV's `INTER_AREA`. With 1, 3 or 4 channels every level is
    /// the same.
    Area,
}

impl Filter {
    /// Returns how many bytes a resizer keeps at most for images of a shape, or smaller ones, that
    /// are scaled to another: height, width, channels.
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

    /// Scales an image from one buffer into another; shapes are height, width, channels. With 2 or
    /// 4 channels the last one is alpha: [`Filter::Bilinear`] and [`Filter::Lanczos3`] weight
    /// colours by it.
    ///
    /// # Errors
    /// A message, if a length is 0, the number of channels is not 1 to 4 or differs, or a buffer is
    /// too small for its shape.
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

    /// Returns how many bytes its buffers hold: never more than [`Filter::bytes`], but for the
    /// alignment of one buffer.
    pub fn kept(&self) -> usize {
        let own = self.weighted.len() + self.grey.len() + self.out.len();
        let others = self.nearest.kept() + self.linear.kept() + self.area.kept();
        self.resizer.size_of_internal_buffers() + own + others
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

    /// Grey with alpha, as three equal colours with alpha: a fourth type of pixels would take a
    /// third longer to compile.
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

    /// Four channels, with colours weighted by alpha. The library does the same with `use_alpha`,
    /// but then all its passes are compiled for a second type of source.
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
        self.resizer.resize_typed(&weighted, &mut target, options).map_err(|e| e.to_string())?;
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
        let (source, mut target) = (image_ref::<P>(from, pixels)?, image(to, into)?);
        self.resizer.resize_typed(&source, &mut target, options).map_err(|e| e.to_string())
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
        return Err(format!("lengths must be 1 to {}, got {from:?} and {to:?}", u32::MAX));
    }
    match (from[2], to[2]) {
        (channels @ 1..=4, other) if channels == other => {}
        (channels @ 1..=4, other) => return Err(format!("expected {other} channels, found {channels}")),
        (channels, _) => return Err(format!("expected 1 to 4 channels, found {channels}")),
    }
    bytes(from)
        .and_then(|n| pixels.get(..n))
        .zip(bytes(to).and_then(|n| into.get_mut(..n)))
        .ok_or_else(|| "each buffer must have room for the shape of an image".into())
}

fn bytes(shape: [usize; 3]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, length| n.checked_mul(*length))
}
