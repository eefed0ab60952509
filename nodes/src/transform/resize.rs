//! Images of another size.

use crate::tensor::shape;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use limen::message::{DType, Dim, Layout, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Largest side of an image, in pixels.
const MAX_SIDE: usize = 1 << 15;

/// Scales images `u8[h,w,c]` to `u8[height,width,c]`, without keeping their proportions.
///
/// Shrinking averages over all pixels (as Pillow does), so that nothing is skipped.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// Width of the output in pixels.
    pub width: usize,
    /// Height of the output in pixels.
    pub height: usize,
    /// How pixels are weighed; `bilinear` by default.
    #[serde(default)]
    pub filter: Filter,
}

/// How the pixels of a scaled image are weighed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// A triangle as wide as the scale asks for: Pillow's `BILINEAR`, what most models were trained with.
    #[default]
    Bilinear,
    /// The nearest pixel: fast, and coarse.
    Nearest,
    /// A windowed sinc: sharp, and slow.
    Lanczos3,
}

impl Filter {
    fn options(self) -> ResizeOptions {
        ResizeOptions::new().resize_alg(match self {
            Filter::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
            Filter::Nearest => ResizeAlg::Nearest,
            Filter::Lanczos3 => ResizeAlg::Convolution(FilterType::Lanczos3),
        })
    }
}

/// The node.
#[derive(Debug)]
pub struct Resize {
    scaler: Scaler,
    width: usize,
    height: usize,
}

/// The resizer with its buffers, which are used again for every image.
#[derive(Debug)]
struct Scaler {
    resizer: Resizer,
    options: ResizeOptions,
}

impl Scaler {
    fn new(filter: Filter) -> Self {
        Scaler { resizer: Resizer::new(), options: filter.options() }
    }

    /// Scales between two buffers; shapes are height, width, channels.
    fn scale(&mut self, from: [usize; 3], pixels: &[u8], to: [usize; 3], into: &mut [u8]) -> Result<(), String> {
        let [height, width, channels] = from;
        let kind = match channels {
            1 => PixelType::U8,
            2 => PixelType::U8x2,
            3 => PixelType::U8x3,
            4 => PixelType::U8x4,
            n => return Err(format!("{n} channels, where 1 to 4 can be scaled")),
        };
        if to[2] != channels {
            return Err(format!("{channels} channels, where {} were planned", to[2]));
        }
        let source = ImageRef::new(width as u32, height as u32, pixels, kind).map_err(|e| e.to_string())?;
        let mut target = Image::from_slice_u8(to[1] as u32, to[0] as u32, into, kind).map_err(|e| e.to_string())?;
        self.resizer.resize(&source, &mut target, &self.options).map_err(|e| e.to_string())
    }
}

impl Node for Resize {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        for (field, side) in [("width", config.width), ("height", config.height)] {
            if !(1..=MAX_SIDE).contains(&side) {
                errors.at(field, format!("{side} pixels, where 1 to {MAX_SIDE} are possible"));
            }
        }
        let dims = shape::image_dims(given);
        if let Some([.., Dim::Fixed(channels)]) = dims
            && !(1..=4).contains(channels)
        {
            let message = format!("what arrives has {channels} channels, where 1 to 4 can be scaled");
            errors
                .input("in", message)
                .help("the channels of an image are its last dim; put this node before `to_tensor`");
        }
        let image = |dims: [Dim; 3]| PortSpec::new(DType::U8, dims).with_layout(Layout::Hwc);
        let input = image(dims.cloned().unwrap_or_else(shape::any_image));
        let output = dims.map(|[.., c]| image([Dim::Fixed(config.height), Dim::Fixed(config.width), c.clone()]));
        errors.into_result(shape::gives(shape::takes(Some(input)), output).cost(Cost::Heavy))
    }

    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Resize { scaler: Scaler::new(config.filter), width: config.width, height: config.height })
    }
}

impl Transform for Resize {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let shape = input.body.shape();
        let &[h, w, c] = &*shape else {
            return Err(NodeError::input("in", format!("{:?} is no image: it should be u8[h,w,c]", input.body)));
        };
        let pixels = input.body.as_slice::<u8>()?;
        let mut image = out.loan(input.header())?;
        let to = [self.height, self.width, c];
        shape::set_shape(&mut image, &to)?;
        self.scaler.scale([h, w, c], pixels, to, image.as_mut_slice()?).map_err(|why| NodeError::input("in", why))?;
        out.send(image);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(filter: Filter, from: [usize; 3], pixels: &[u8], to: [usize; 3], expected: &[u8]) {
        let mut out = vec![0; to.iter().product()];
        Scaler::new(filter).scale(from, pixels, to, &mut out).unwrap();
        let far = out.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(out.len() == expected.len() && far <= Some(1), "{filter:?} {from:?}: {out:?}, expected {expected:?}");
    }

    /// The expected numbers are those of Pillow 13.
    #[test]
    fn bilinear_is_that_of_pillow() {
        let row = [0, 10, 20, 30, 40, 50, 60, 70];
        check(Filter::Bilinear, [1, 8, 1], &row, [1, 4, 1], &[7, 25, 45, 63]);
        check(Filter::Bilinear, [1, 8, 1], &row, [1, 3, 1], &[11, 35, 59]);
        check(Filter::Bilinear, [2, 1, 1], &[0, 100], [4, 1, 1], &[0, 25, 75, 100]);
        let colours = [255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];
        check(Filter::Bilinear, [2, 2, 3], &colours, [1, 1, 3], &[128, 128, 128]);
    }

    #[test]
    fn a_ramp_shrinks_as_in_pillow() {
        let pixel = |at: usize| {
            let (c, x, y) = (at % 3, at / 3 % 64, at / 3 / 64);
            ((x * (c + 1) / 2 + y * (3 - c) / 2 + 35) % 256) as u8
        };
        let pixels: Vec<u8> = (0..48 * 64 * 3).map(pixel).collect();
        let mut out = vec![0; 17 * 23 * 3];
        Scaler::new(Filter::Bilinear).scale([48, 64, 3], &pixels, [17, 23, 3], &mut out).unwrap();
        for (row, column, expected) in [(3, 5, [56, 59, 61]), (16, 22, [134, 143, 150]), (8, 11, [86, 91, 94])] {
            let at = (row * 23 + column) * 3;
            assert!(out[at..at + 3].iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 1), "{row} {column}");
        }
        let sum: i64 = out.iter().map(|v| i64::from(*v)).sum();
        assert!((sum - 105_219).abs() < out.len() as i64 / 10, "{sum}");
    }

    #[test]
    fn nearest_takes_pixels_as_they_are() {
        check(Filter::Nearest, [1, 4, 1], &[1, 50, 100, 200], [1, 2, 1], &[50, 200]);
        check(Filter::Nearest, [1, 2, 1], &[1, 200], [1, 4, 1], &[1, 1, 200, 200]);
        check(Filter::Lanczos3, [1, 2, 1], &[7, 7], [3, 3, 1], &[7; 9]);
    }

    #[test]
    fn what_cannot_be_scaled_is_an_error() {
        let mut scaler = Scaler::new(Filter::Bilinear);
        for (from, pixels, to) in [([1, 1, 5], 5, [1, 1, 5]), ([1, 1, 3], 3, [1, 1, 1]), ([2, 2, 1], 3, [1, 1, 1])] {
            assert!(scaler.scale(from, &vec![0; pixels], to, &mut vec![0; to.iter().product()]).is_err(), "{from:?}");
        }
    }
}
