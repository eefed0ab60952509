//! Conversion of colours.

use crate::tensor::colour::{self, Colour};
use crate::tensor::image;
use limen::message::Dim;
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::shape;
use schemars::JsonSchema;
use serde::Deserialize;

/// Converts the colours of images: `u8[h,w,c]` to `u8[h,w,k]`. `grey` has 1 channel, `rgb` and
/// `bgr` have 3, `rgba` has 4.
///
/// Grey is 0.299 red + 0.587 green + 0.114 blue, rounded as in OpenCV's `cvtColor`. A conversion
/// from `rgba` drops the opacity. A conversion to `rgba` sets the opacity to 255.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ConvertConfig {
    /// Channels of the input. Default: `rgb`.
    #[serde(default = "rgb")]
    pub from: Colour,
    /// Channels of the output.
    pub to: Colour,
}

fn rgb() -> Colour {
    Colour::Rgb
}

/// Runs `kind: colour`; [`ConvertConfig`] says what it does.
#[derive(Debug)]
pub struct Convert(ConvertConfig);

impl Node for Convert {
    type Config = ConvertConfig;

    fn ports(config: &ConvertConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.from == config.to {
            let name = format!("{:?}", config.to).to_lowercase();
            let message = format!("`from` and `to` must differ, got `{name}` twice");
            errors.at("to", message).help("write another colour in `to`, or remove the node");
        }
        let dims = shape::image_dims(given.single());
        if let Some([.., Dim::Fixed(channels)]) = dims
            && *channels != config.from.channels()
        {
            let expected = config.from.channels();
            let s = if expected == 1 { "" } else { "s" };
            let message = format!("expected {expected} channel{s} for `from`, found {channels}");
            let help = match Colour::of_file(*channels) {
                Some(Colour::Grey) => "write `from: grey`",
                Some(Colour::Rgba) => "write `from: rgba`",
                Some(_) => "write `from: rgb` or `from: bgr`",
                None => "connect an image u8[h,w,c] with 1, 3 or 4 channels, such as the input of a `to_tensor` node",
            };
            errors.at("from", message).help(help);
        }
        let input = dims.cloned().unwrap_or_else(shape::any_image);
        let [h, w, _] = input;
        let spec = |colour: Colour| image::spec([h.clone(), w.clone(), Dim::Fixed(colour.channels())]);
        let output = dims.map(|_| spec(config.to));
        errors.into_result(shape::gives(shape::takes(Some(spec(config.from))), output).cost(Cost::Medium))
    }

    fn build(config: ConvertConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Convert(config))
    }
}

impl Transform for Convert {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let ConvertConfig { from, to } = self.0;
        let ([h, w, _], pixels) = image::pixels("in", &input.body)?;
        let mut image = out.loan(input.header())?;
        shape::set_shape(&mut image, &[h, w, to.channels()])?;
        colour::convert(from, to, pixels, image.as_mut_slice()?);
        out.send(image);
        Ok(())
    }
}
