//! Image scaling.

use crate::tensor::filter::ResizeFilter;
use crate::tensor::image;
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::shape;
use limen_resize::Resizer;
use schemars::JsonSchema;
use serde::Deserialize;

/// Scales images `u8[h,w,c]` to `u8[height,width,c]`. The aspect ratio may change. To keep the
/// aspect ratio, use `letterbox`.
///
/// Choose the filter that the model's training used. For Pillow, use `bilinear`, `nearest` or
/// `lanczos3`. For OpenCV, use `linear` (the default of `cv2.resize`), `area` or `nearest`. When an
/// image shrinks, `bilinear`, `area` and `lanczos3` average over all pixels. `linear` and `nearest`
/// use only the nearest pixels.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ResizeConfig {
    /// Width of the output in pixels.
    pub width: usize,
    /// Height of the output in pixels.
    pub height: usize,
    /// Interpolation filter. Default: `bilinear`, as in Pillow.
    #[serde(default)]
    pub filter: ResizeFilter,
}

/// Runs `kind: resize`; [`ResizeConfig`] says what it does.
#[derive(Debug)]
pub struct Resize {
    resizer: Resizer,
    width: usize,
    height: usize,
}

impl Node for Resize {
    type Config = ResizeConfig;

    fn ports(config: &ResizeConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        image::check_sides([("width", config.width), ("height", config.height)], &mut errors);
        let dims = shape::image_dims(given.single());
        image::check_channels("in", dims, &mut errors);
        let output = dims.map(|dims| image::of_size(config.height, config.width, dims));
        let most = dims.and_then(image::largest);
        let buffers = most.map_or(0, |[h, w, c]| {
            limen_resize::Filter::from(config.filter).bytes([h, w, c], [config.height, config.width, c])
        });
        let ports = shape::takes(Some(image::input_spec(dims))).memory(buffers);
        errors.into_result(shape::gives(ports, output).cost(Cost::Heavy))
    }

    fn build(config: ResizeConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Resize { resizer: Resizer::new(config.filter.into()), width: config.width, height: config.height })
    }
}

impl Transform for Resize {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let (from, pixels) = image::pixels("in", &input.body)?;
        let to = [self.height, self.width, from[2]];
        let mut image = out.loan(input.header())?;
        shape::set_shape(&mut image, &to)?;
        self.resizer.scale(from, pixels, to, image.as_mut_slice()?).map_err(|why| NodeError::input("in", why))?;
        out.send(image);
        Ok(())
    }
}
