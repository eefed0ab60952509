//! Image scaling that keeps the aspect ratio.

use crate::tensor::filter::ResizeFilter;
use crate::tensor::frame::FrameBuffer;
use crate::tensor::image;
use crate::tensor::placement::Placement;
use limen::message::PortSpec;
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::shape;
use schemars::JsonSchema;
use serde::Deserialize;

/// Scales images to fit a frame, keeps the aspect ratio, and fills the rest of the frame. Converts
/// `u8[h,w,c]` to `image` `u8[height,width,c]` and `placement` `f32[6]`.
///
/// `placement` describes the position of the image in the frame: scale x, scale y, left, top,
/// source width, source height. `unletterbox` uses `placement` to map boxes back to the source
/// image. With `order: scale_first`, the size and the position of the scaled image match
/// `LetterBox` of the package ultralytics.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct LetterboxConfig {
    /// Width of the frame in pixels.
    pub width: usize,
    /// Height of the frame in pixels.
    pub height: usize,
    /// Pixel level of all channels outside the image. Default: 114.
    #[serde(default = "fill")]
    pub fill: u8,
    /// Position of the image in the frame: `center` or `top_left`. Default: `center`.
    #[serde(default)]
    pub at: Alignment,
    /// Order of scaling the image and filling the rest of the frame. Default: `scale_first`.
    #[serde(default)]
    pub order: FillOrder,
    /// Interpolation filter, as in `resize`. Default: `linear`, as in `cv2.resize`.
    #[serde(default = "ResizeFilter::linear")]
    pub filter: ResizeFilter,
}

fn fill() -> u8 {
    114
}

/// Position of an image in a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Alignment {
    /// Centred.
    #[default]
    Center,
    /// At the top left.
    TopLeft,
}

/// Order of scaling and filling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FillOrder {
    /// Scales the image to a whole number of pixels, then fills the rest of the frame.
    #[default]
    ScaleFirst,
    /// Extends the image with `fill` to the aspect ratio of the frame, then scales the result.
    /// Matches `cv2.copyMakeBorder` followed by `cv2.resize`. For a square frame, the node extends
    /// the image to a square. The edge of the scaled image may fall inside a pixel. If the filled
    /// width or height is odd, `at: center` puts the smaller half of the fill at the left or at the
    /// top.
    FillFirst,
}

/// The height and width of a scaled image, and its first row and column in the frame.
#[derive(Debug, PartialEq, Eq)]
struct ImagePlace {
    size: [usize; 2],
    first: [usize; 2],
}

impl ImagePlace {
    /// The place of an image in a frame of the given height and width; no length is 0.
    fn new([h, w]: [usize; 2], [height, width]: [usize; 2], at: Alignment) -> Self {
        // The roundings, halves to even, are those of LetterBox.
        let scale = (height as f64 / h as f64).min(width as f64 / w as f64);
        let scaled = |side: usize, most: usize| ((side as f64 * scale).round_ties_even() as usize).clamp(1, most);
        let size = [scaled(h, height), scaled(w, width)];
        let before = |free: usize| match at {
            Alignment::Center => (free as f64 / 2.0 - 0.1).round_ties_even() as usize,
            Alignment::TopLeft => 0,
        };
        ImagePlace { size, first: [before(height - size[0]), before(width - size[1])] }
    }

    /// The height and width of an image that was filled to the aspect ratio of a frame, and the
    /// first row and column of the image in it; no length is 0.
    fn filled([h, w]: [usize; 2], [height, width]: [usize; 2], at: Alignment) -> Self {
        // One side stays as it is.
        let scale = (h as f64 / height as f64).max(w as f64 / width as f64);
        let grown = |side: usize, frame: usize| ((frame as f64 * scale).round_ties_even() as usize).max(side);
        let size = [grown(h, height), grown(w, width)];
        let before = |free: usize| if at == Alignment::Center { free / 2 } else { 0 };
        ImagePlace { size, first: [before(size[0] - h), before(size[1] - w)] }
    }

    /// The placement of an image of this height and width that was filled before it was scaled to a
    /// frame.
    fn filled_placement(&self, [h, w]: [usize; 2], [height, width]: [usize; 2]) -> Placement {
        let scale = [width as f64 / self.size[1] as f64, height as f64 / self.size[0] as f64];
        let first = [self.first[1] as f64 * scale[0], self.first[0] as f64 * scale[1]];
        Placement {
            scale: scale.map(|scale| scale as f32),
            first: first.map(|first| first as f32),
            size: [w as f32, h as f32],
        }
    }

    fn placement(&self, [h, w]: [usize; 2]) -> Placement {
        let scale = |axis: usize, side: usize| (self.size[axis] as f64 / side as f64) as f32;
        Placement {
            scale: [scale(1, w), scale(0, h)],
            first: [self.first[1] as f32, self.first[0] as f32],
            size: [w as f32, h as f32],
        }
    }
}

impl LetterboxConfig {
    /// Returns where an image of a height and a width lies in the frame: its scaled height and
    /// width, its first row and column, and the numbers of its placement. `None` if it is filled
    /// before it is scaled.
    pub fn place(&self, image: [usize; 2]) -> Option<([usize; 2], [usize; 2], [f32; 6])> {
        if self.order == FillOrder::FillFirst || image.contains(&0) {
            return None;
        }
        let place = ImagePlace::new(image, [self.height, self.width], self.at);
        Some((place.size, place.first, place.placement(image).numbers()))
    }
}

/// Returns [`ImagePlace::filled`], if an image of that size is possible.
fn filled(image: [usize; 2], frame: [usize; 2], at: Alignment) -> Result<ImagePlace, String> {
    let place = ImagePlace::filled(image, frame, at);
    if place.size.iter().any(|side| *side > image::MAX_SIDE) {
        let ([h, w], [height, width]) = (image, place.size);
        let most = image::MAX_SIDE;
        return Err(format!(
            "the filled image must have sides of at most {most} pixels, got {width} × {height} for an image of {w} × {h}"
        ));
    }
    Ok(place)
}

/// Runs `kind: letterbox`; [`LetterboxConfig`] says what it does.
#[derive(Debug)]
pub struct Letterbox {
    frame: FrameBuffer,
    at: Alignment,
    order: FillOrder,
    /// The image with the rest filled, before it is scaled.
    filled: Vec<u8>,
}

impl Letterbox {
    /// Fills the rest of an image, so that it has a size, and scales it to the frame.
    fn draw_filled(
        &mut self,
        [h, w, channels]: [usize; 3],
        pixels: &[u8],
        place: &ImagePlace,
        into: &mut [u8],
    ) -> Result<(), String> {
        let ImagePlace { size: [height, width], first: [top, left] } = *place;
        self.filled.resize(height * width * channels, 0);
        self.frame.clear(&mut self.filled);
        image::put_part([height, width, channels], &mut self.filled, [top, left], [h, w], pixels);
        let to = [self.frame.height, self.frame.width];
        self.frame.draw([height, width, channels], &self.filled, to, [0, 0], into)
    }
}

impl Node for Letterbox {
    type Config = LetterboxConfig;

    fn ports(config: &LetterboxConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        image::check_sides([("width", config.width), ("height", config.height)], &mut errors);
        let dims = shape::image_dims(given.single());
        image::check_channels("in", dims, &mut errors);
        let spec = dims.map(|dims| image::of_size(config.height, config.width, dims));
        let mut memory = spec.as_ref().and_then(PortSpec::max_bytes).unwrap_or(0);
        if config.order == FillOrder::FillFirst
            && config.width > 0
            && config.height > 0
            && let Some([h, w, channels]) = dims.and_then(image::largest)
        {
            match filled([h, w], [config.height, config.width], config.at) {
                Ok(ImagePlace { size: [height, width], .. }) => memory += height * width * channels,
                Err(why) => {
                    errors
                        .at("order", why)
                        .help("write `order: scale_first`, or scale the images down upstream of this node");
                }
            }
        }
        let frames = OutPort { name: "image".into(), spec, emits: 1, rows: 1, forwards: Vec::new() };
        let ports = shape::takes(Some(image::input_spec(dims))).out_port(frames);
        errors.into_result(ports.output("placement", Placement::spec()).memory(memory).cost(Cost::Heavy))
    }

    fn build(config: LetterboxConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let LetterboxConfig { width, height, fill, at, order, filter } = config;
        let most = cx.outputs().first().and_then(|(_, spec)| spec.as_ref()?.max_bytes()).unwrap_or(0);
        let largest = cx.inputs().first().and_then(|(_, spec)| image::largest(shape::image_dims(spec.as_ref())?));
        let filled = match largest.filter(|_| order == FillOrder::FillFirst) {
            Some([h, w, channels]) => filled([h, w], [height, width], at)
                .map(|place| place.size[0] * place.size[1] * channels)
                .map_err(|why| NodeError::input("in", why))?,
            None => 0,
        };
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(filled).map_err(NodeError::other)?;
        Ok(Letterbox { frame: FrameBuffer::new(height, width, fill, filter, most), at, order, filled: buffer })
    }
}

impl Transform for Letterbox {
    type In = Tensor;
    type Out = (Tensor, Tensor);

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        let ([h, w, c], pixels) = image::pixels("in", &input.body)?;
        if h == 0 || w == 0 {
            return Err(NodeError::input("in", format!("expected an image with pixels, found {:?}", input.body)));
        }
        let (height, width) = (self.frame.height, self.frame.width);
        let place = match self.order {
            FillOrder::ScaleFirst => ImagePlace::new([h, w], [height, width], self.at),
            FillOrder::FillFirst => {
                filled([h, w], [height, width], self.at).map_err(|why| NodeError::input("in", why))?
            }
        };
        if out.0.is_connected() {
            let mut image = out.0.loan(input.header())?;
            shape::set_shape(&mut image, &[height, width, c])?;
            let into = image.as_mut_slice()?;
            match self.order {
                FillOrder::ScaleFirst => self.frame.draw([h, w, c], pixels, place.size, place.first, into),
                FillOrder::FillFirst => self.draw_filled([h, w, c], pixels, &place, into),
            }
            .map_err(|why| NodeError::input("in", why))?;
            out.0.send(image);
        }
        if out.1.is_connected() {
            let mut placement = out.1.loan(input.header())?;
            let numbers = match self.order {
                FillOrder::ScaleFirst => place.placement([h, w]),
                FillOrder::FillFirst => place.filled_placement([h, w], [height, width]),
            };
            placement.as_mut_slice()?.copy_from_slice(&numbers.numbers());
            out.1.send(placement);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected numbers were computed with the formulas of ultralytics' `LetterBox` in Python
    /// 3.11: `round(side * r)` and `round(free / 2 - 0.1)`.
    #[test]
    fn size_and_place_are_those_of_the_python_package() {
        for (image, frame, size, first) in [
            ([720, 1280], [640, 640], [360, 640], [140, 0]),
            ([1080, 810], [640, 640], [640, 480], [0, 80]),
            ([480, 640], [640, 640], [480, 640], [80, 0]),
            ([375, 500], [416, 416], [312, 416], [52, 0]),
            ([333, 777], [384, 672], [288, 672], [48, 0]),
            ([7, 5], [10, 10], [10, 7], [0, 1]),
            ([5, 7], [12, 9], [6, 9], [3, 0]),
            ([3, 2], [7, 7], [7, 5], [0, 1]),
            ([1, 1000], [64, 640], [1, 640], [31, 0]),
            ([427, 640], [640, 640], [427, 640], [106, 0]),
            ([612, 612], [641, 640], [640, 640], [0, 0]),
        ] {
            assert_eq!(
                ImagePlace::new(image, frame, Alignment::Center),
                ImagePlace { size, first },
                "{image:?} in {frame:?}"
            );
            assert_eq!(ImagePlace::new(image, frame, Alignment::TopLeft), ImagePlace { size, first: [0, 0] });
        }
        // There it is 0, which is no size.
        assert_eq!(
            ImagePlace::new([1, 10_000], [64, 640], Alignment::Center),
            ImagePlace { size: [1, 640], first: [31, 0] }
        );
    }
}
