//! Image scaling.

use crate::tensor::shape;
use limen::message::{DType, Dim, Layout, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_resize::Resizer;
use schemars::JsonSchema;
use serde::Deserialize;

/// Largest side of an image, in pixels.
const MAX_SIDE: usize = 1 << 15;

/// Scales images `u8[h,w,c]` to `u8[height,width,c]`, without keeping their aspect ratio.
///
/// Unless the filter is `nearest`, shrinking averages over all source pixels, as Pillow does.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// Width of the output in pixels.
    pub width: usize,
    /// Height of the output in pixels.
    pub height: usize,
    /// The interpolation filter; `bilinear` by default.
    #[serde(default)]
    pub filter: Filter,
}

/// An interpolation filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// A triangle filter that widens with the scale: Pillow's `BILINEAR`, which most models were trained with.
    #[default]
    Bilinear,
    /// The nearest pixel: fast and coarse.
    Nearest,
    /// A windowed sinc: sharp and slow.
    Lanczos3,
}

impl From<Filter> for limen_resize::Filter {
    fn from(filter: Filter) -> Self {
        match filter {
            Filter::Bilinear => limen_resize::Filter::Bilinear,
            Filter::Nearest => limen_resize::Filter::Nearest,
            Filter::Lanczos3 => limen_resize::Filter::Lanczos3,
        }
    }
}

/// The node.
#[derive(Debug)]
pub struct Resize {
    resizer: Resizer,
    width: usize,
    height: usize,
}

impl Node for Resize {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        for (field, side) in [("width", config.width), ("height", config.height)] {
            if !(1..=MAX_SIDE).contains(&side) {
                errors.at(field, format!("{side} pixels, expected 1 to {MAX_SIDE}"));
            }
        }
        let dims = shape::image_dims(given);
        if let Some([.., Dim::Fixed(channels)]) = dims
            && !(1..=4).contains(channels)
        {
            let message = format!("the image has {channels} channels, expected 1 to 4");
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
        Ok(Resize { resizer: Resizer::new(config.filter.into()), width: config.width, height: config.height })
    }
}

impl Transform for Resize {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let shape = input.body.shape();
        let &[h, w, c] = &*shape else {
            return Err(NodeError::input("in", format!("{:?} is not an image, expected u8[h,w,c]", input.body)));
        };
        let pixels = input.body.as_slice::<u8>()?;
        let mut image = out.loan(input.header())?;
        let to = [self.height, self.width, c];
        shape::set_shape(&mut image, &to)?;
        self.resizer.scale([h, w, c], pixels, to, image.as_mut_slice()?).map_err(|why| NodeError::input("in", why))?;
        out.send(image);
        Ok(())
    }
}
