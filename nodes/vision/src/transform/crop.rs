//! A part of each image.

use crate::tensor::image;
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::shape;
use schemars::JsonSchema;
use serde::Deserialize;

/// Crops images to a rectangle: `u8[h,w,c]` to `u8[height,width,c]`.
///
/// The rectangle must be inside the image. If an image is smaller than the rectangle, the call
/// fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CropConfig {
    /// First column of the rectangle. Default: 0.
    #[serde(default)]
    pub x: usize,
    /// First row of the rectangle. Default: 0.
    #[serde(default)]
    pub y: usize,
    /// Width of the rectangle in pixels.
    pub width: usize,
    /// Height of the rectangle in pixels.
    pub height: usize,
}

impl CropConfig {
    /// Describes what of the rectangle is outside an image of this height and width, with the field
    /// that says so.
    fn outside(&self, [h, w]: [usize; 2]) -> impl Iterator<Item = (&'static str, String)> {
        let sides = [("width", "x", self.x, self.width, w, "column"), ("height", "y", self.y, self.height, h, "row")];
        sides.into_iter().filter_map(|(field, first, start, length, most, unit)| {
            let end = start.saturating_add(length);
            let s = if most == 1 { "" } else { "s" };
            (end > most).then(|| {
                (field, format!("`{first}` + `{field}` must be at most the {most} {unit}{s} of the image, got {end}"))
            })
        })
    }
}

/// Runs `kind: crop`; [`CropConfig`] says what it does.
#[derive(Debug)]
pub struct Crop(CropConfig);

impl Node for Crop {
    type Config = CropConfig;

    fn ports(config: &CropConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        image::check_sides([("width", config.width), ("height", config.height)], &mut errors);
        let dims = shape::image_dims(given.single());
        if let Some([h, w, _]) = dims {
            let most = [h, w].map(|dim| dim.max().unwrap_or(usize::MAX));
            for (field, message) in config.outside(most) {
                errors.at(field, message).help(format!("write a smaller `{field}`"));
            }
        }
        let output = dims.map(|dims| image::of_size(config.height, config.width, dims));
        errors.into_result(shape::gives(shape::takes(Some(image::input_spec(dims))), output).cost(Cost::Medium))
    }

    fn build(config: CropConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Crop(config))
    }
}

impl Transform for Crop {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let CropConfig { x, y, width, height } = self.0;
        let (from, pixels) = image::pixels("in", &input.body)?;
        if let Some((_, message)) = self.0.outside([from[0], from[1]]).next() {
            return Err(NodeError::input("in", message));
        }
        let mut part = out.loan(input.header())?;
        shape::set_shape(&mut part, &[height, width, from[2]])?;
        image::copy_part(from, pixels, [y, x], [height, width], part.as_mut_slice()?);
        out.send(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rectangle_that_leaves_the_image_is_described() {
        let config = |x, y, width, height| CropConfig { x, y, width, height };
        for (config, expected) in [
            (config(0, 0, 4, 3), &[][..]),
            (config(3, 2, 1, 1), &[]),
            (config(3, 0, 2, 3), &["width"]),
            (config(4, 3, 1, 1), &["width", "height"]),
            (config(usize::MAX, 0, usize::MAX, 1), &["width"]),
        ] {
            let outside: Vec<_> = config.outside([3, 4]).map(|(field, _)| field).collect();
            assert_eq!(outside, expected, "{config:?}");
        }
        let said: Vec<_> = config(0, 0, 2, 3).outside([2, 1]).map(|(_, message)| message).collect();
        let expected = [
            "`x` + `width` must be at most the 1 column of the image, got 2",
            "`y` + `height` must be at most the 2 rows of the image, got 3",
        ];
        assert_eq!(said, expected);
    }
}
