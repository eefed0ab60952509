//! Images from the bytes of files.

use crate::file::image_file::Encoded;
use crate::tensor::colour::{Colour, convert};
use crate::tensor::image::check_sides;
use limen::message::{DType, Dim, PortSpec};
use limen::node::{
    Building, Connected, Cost, Emit, LossCounter, Node, NodeError, PlanErrors, Planning, Ports, Transform,
};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Decodes JPEG or PNG files, `u8[≤n]`, to images `u8[height,width,channels]`.
///
/// The node drops images that have a different size or cannot be decoded, and counts them
/// (`malformed`). The report shows the first dropped image. The node converts between grey and RGB
/// as `channels` requires.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct DecodeImageConfig {
    /// Width of the images in pixels.
    pub width: usize,
    /// Height of the images in pixels.
    pub height: usize,
    /// Channels of the output: 1 (grey) or 3 (RGB). Default: 3.
    #[serde(default = "channels")]
    pub channels: usize,
}

fn channels() -> usize {
    3
}

/// Runs `kind: decode_image`; [`DecodeImageConfig`] says what it does.
#[derive(Debug)]
pub struct DecodeImage {
    size: (usize, usize),
    colour: Colour,
    /// Pixels with other channels than those of the output.
    pixels: Vec<u8>,
    malformed: LossCounter,
}

impl DecodeImage {
    fn decode(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<(), String> {
        let image = Encoded::new(bytes)?;
        let size = image.size();
        if (size.height, size.width) != self.size {
            return Err(format!("expected {} × {} pixels, found {size}", self.size.1, self.size.0));
        }
        let from =
            Colour::of_file(size.channels).ok_or_else(|| format!("expected 1, 3 or 4 channels, found {size}"))?;
        if from == self.colour {
            return image.decode(into);
        }
        self.pixels.resize(size.bytes(), 0);
        image.decode(&mut self.pixels)?;
        convert(from, self.colour, &self.pixels, into);
        Ok(())
    }
}

impl Node for DecodeImage {
    type Config = DecodeImageConfig;

    fn ports(config: &DecodeImageConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let DecodeImageConfig { width, height, channels } = *config;
        check_sides([("width", width), ("height", height)], &mut errors);
        if !matches!(channels, 1 | 3) {
            errors
                .at("channels", format!("`channels` must be 1 or 3, got {channels}"))
                .help("write 3 for RGB, or 1 for grey");
        }
        let input = match given.single() {
            Some(spec) if spec.dtype == DType::U8 && spec.shape.len() == 1 => spec.clone(),
            Some(spec) => {
                errors
                    .input("in", format!("expected the bytes of a file, u8[≤n], found {spec}"))
                    .help("connect bytes, such as the output of `replay` or `file`");
                spec.clone()
            }
            None => PortSpec::new(DType::U8, [Dim::AtMost(1 << 24)]),
        };
        let ports = Ports::new().input("in", input).output("out", PortSpec::image(height, width, channels));
        errors.into_result(ports.cost(Cost::Heavy).selective().memory(height.saturating_mul(width).saturating_mul(4)))
    }

    fn build(config: DecodeImageConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let colour = if config.channels == 1 { Colour::Grey } else { Colour::Rgb };
        let size = (config.height, config.width);
        Ok(DecodeImage { size, colour, pixels: Vec::new(), malformed: cx.lost("malformed") })
    }
}

impl Transform for DecodeImage {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut image = out.loan(input.header())?;
        match self.decode(input.body.bytes(), image.bytes_mut()) {
            Ok(()) => out.send(image),
            Err(why) => self.malformed.lose(1, || why),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32, color: png::ColorType, pixels: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(color);
        encoder.write_header().unwrap().write_image_data(pixels).unwrap();
        file
    }

    #[test]
    fn images_of_another_size_are_refused_and_channels_are_converted() {
        let node = |channels: usize| DecodeImage {
            size: (1, 2),
            colour: if channels == 1 { Colour::Grey } else { Colour::Rgb },
            pixels: Vec::new(),
            malformed: LossCounter::default(),
        };
        let rgb = png(2, 1, png::ColorType::Rgb, &[10, 10, 10, 255, 0, 0]);
        let grey = png(2, 1, png::ColorType::Grayscale, &[7, 9]);
        let mut into = [0; 6];
        node(3).decode(&rgb, &mut into).unwrap();
        assert_eq!(into, [10, 10, 10, 255, 0, 0]);
        node(3).decode(&grey, &mut into).unwrap();
        assert_eq!(into, [7, 7, 7, 9, 9, 9]);
        let mut into = [0; 2];
        node(1).decode(&rgb, &mut into).unwrap();
        assert_eq!(into, [10, 76]);
        let wide = png(3, 1, png::ColorType::Grayscale, &[1, 2, 3]);
        for (bytes, expected) in
            [(&wide[..], "3 × 1"), (b"", "not a PNG or JPEG"), (&rgb[..20], ""), (b"GIF89a", "not a PNG or JPEG")]
        {
            let error = node(1).decode(bytes, &mut into).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        for cut in 0..rgb.len() {
            let _ = node(1).decode(&rgb[..cut], &mut into);
        }
    }
}
