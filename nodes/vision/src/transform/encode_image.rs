//! Images as the bytes of files.

use crate::tensor::image::{input_spec, largest, pixels};
use jpeg_encoder::{Encoder, ImageBuffer, JpegColorType, rgb_to_ycbcr};
use limen::message::{Content, DType, Dim, PortSpec};
use limen::node::{
    Building, Connected, Cost, Emit, LossCounter, Node, NodeError, PlanErrors, Planning, Ports, Transform,
};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::shape;
use schemars::JsonSchema;
use serde::Deserialize;

/// Encodes images `u8[h,w,channels]` as JPEG or PNG files, `u8[≤n]`. Images have 1 or 3 channels,
/// or 4 with `png`.
///
/// The node drops a file that is more than 64 KiB larger than the raw pixels, which may happen with
/// noise. `oversized` counts the dropped files.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct EncodeImageConfig {
    /// File format. Default: `jpeg`.
    #[serde(default)]
    pub format: ImageFormat,
    /// JPEG quality, 1 to 100. Default: 85.
    pub quality: Option<u8>,
}

/// Format of an image file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// Lossy.
    #[default]
    Jpeg,
    /// Lossless.
    Png,
}

/// What a file may have beyond its pixels.
const HEADERS: usize = 64 << 10;

/// Runs `kind: encode_image`; [`EncodeImageConfig`] says what it does.
#[derive(Debug)]
pub struct EncodeImage {
    format: ImageFormat,
    quality: u8,
    file: Vec<u8>,
    most: usize,
    oversized: LossCounter,
}

impl EncodeImage {
    fn encode(&mut self, [height, width, channels]: [usize; 3], pixels: &[u8]) -> Result<(), NodeError> {
        self.file.clear();
        match self.format {
            ImageFormat::Jpeg => {
                // Checked while planning only if the shape is known then.
                let sides = (u16::try_from(width), u16::try_from(height));
                let ((Ok(width), Ok(height)), 1 | 3) = (sides, channels) else {
                    let why = format!(
                        "expected at most 65,535 × 65,535 pixels with 1 or 3 channels, found {width} × {height} with {channels} channels"
                    );
                    return Err(NodeError::input("in", why));
                };
                let image = ImageRows { pixels, width, height, is_grey: channels == 1 };
                Encoder::new(&mut self.file, self.quality).encode_image(image).map_err(NodeError::other)
            }
            ImageFormat::Png => {
                let mut encoder = png::Encoder::new(&mut self.file, width as u32, height as u32);
                encoder.set_color(match channels {
                    1 => png::ColorType::Grayscale,
                    3 => png::ColorType::Rgb,
                    _ => png::ColorType::Rgba,
                });
                encoder.set_compression(png::Compression::Fast);
                let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels));
                written.map_err(NodeError::other)
            }
        }
    }
}

/// The rows of an image of 1 or 3 channels: one type for both, so that the encoder is compiled
/// once. Its own types are nine.
struct ImageRows<'a> {
    pixels: &'a [u8],
    width: u16,
    height: u16,
    is_grey: bool,
}

impl ImageBuffer for ImageRows<'_> {
    fn get_jpeg_color_type(&self) -> JpegColorType {
        if self.is_grey { JpegColorType::Luma } else { JpegColorType::Ycbcr }
    }

    fn width(&self) -> u16 {
        self.width
    }

    fn height(&self) -> u16 {
        self.height
    }

    fn fill_buffers(&self, y: u16, buffers: &mut [Vec<u8>; 4]) {
        let len = usize::from(self.width) * if self.is_grey { 1 } else { 3 };
        let row = &self.pixels[usize::from(y) * len..][..len];
        let [luma, cb, cr, _] = buffers;
        if self.is_grey {
            luma.extend_from_slice(row);
            return;
        }
        for [r, g, b] in row.as_chunks().0 {
            let colour = rgb_to_ycbcr(*r, *g, *b);
            luma.push(colour.0);
            cb.push(colour.1);
            cr.push(colour.2);
        }
    }
}

impl Node for EncodeImage {
    type Config = EncodeImageConfig;

    fn ports(config: &EncodeImageConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if let Some(quality) = config.quality.filter(|quality| !(1..=100).contains(quality)) {
            errors
                .at("quality", format!("`quality` must be 1 to 100, got {quality}"))
                .help("write a number such as 85");
        }
        if config.quality.is_some() && config.format == ImageFormat::Png {
            errors
                .at("quality", "`quality` requires `format: jpeg`, got `png`")
                .help("remove `quality`, or write `format: jpeg`");
        }
        let dims = shape::image_dims(given.single());
        let most = if config.format == ImageFormat::Jpeg { 3 } else { 4 };
        if let Some([.., Dim::Fixed(channels)]) = dims
            && (*channels > most || !matches!(channels, 1 | 3 | 4))
        {
            let expected = if most == 3 { "1 or 3" } else { "1, 3 or 4" };
            let message = format!("expected {expected} channels, found {channels}");
            errors.input("in", message).help("convert the image with a `colour` node upstream");
        }
        let size = dims.and_then(largest);
        if let Some([height, width, _]) = size.filter(|[height, width, _]| *height > 65_500 || *width > 65_500) {
            errors
                .input("in", format!("width and height must be at most 65,500 pixels, got {width} × {height}"))
                .help("scale the image down with a `resize` node upstream");
        }
        let bytes = size.map_or(1 << 24, |[h, w, c]| h.saturating_mul(w).saturating_mul(c).saturating_add(HEADERS));
        let spec = PortSpec::new(DType::U8, [Dim::AtMost(bytes)]).with_content(Content::Bytes);
        let ports = Ports::new().input("in", input_spec(dims)).output("out", spec);
        errors.into_result(ports.cost(Cost::Heavy).selective().memory(bytes))
    }

    fn build(config: EncodeImageConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let planned = cx.outputs().first().and_then(|(_, spec)| spec.as_ref()?.max_bytes());
        let (quality, most) = (config.quality.unwrap_or(85), planned.unwrap_or(0));
        Ok(EncodeImage { format: config.format, quality, file: Vec::new(), most, oversized: cx.lost("oversized") })
    }
}

impl Transform for EncodeImage {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let (size, pixels) = pixels("in", &input.body)?;
        self.encode(size, pixels)?;
        if self.file.len() > self.most {
            let size = self.file.len();
            self.oversized.lose(1, || format!("the encoded image must be at most {} bytes, got {size}", self.most));
            return Ok(());
        }
        let mut file = out.loan(input.header())?;
        file.set_len(0, self.file.len())?;
        file.bytes_mut().copy_from_slice(&self.file);
        out.send(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::image_file::Encoded;

    fn image(height: usize, width: usize, channels: usize) -> Vec<u8> {
        let value = |at: usize| (at / channels % width * 255 / width.max(2)) as u8;
        (0..height * width * channels).map(value).collect()
    }

    #[test]
    fn what_a_jpeg_file_cannot_hold_is_an_error() {
        let mut node = EncodeImage {
            format: ImageFormat::Jpeg,
            quality: 95,
            file: Vec::new(),
            most: 1 << 20,
            oversized: LossCounter::default(),
        };
        for size in [[1, 65_536, 1], [65_536, 1, 3], [2, 2, 2], [2, 2, 4]] {
            let error = node.encode(size, &vec![0; size.iter().product()]).unwrap_err();
            assert!(error.to_string().contains("expected at most"), "{size:?}: {error}");
        }
    }

    /// The decoders are those of other authors.
    #[test]
    fn files_are_decoded_to_what_they_were() {
        for (format, channels, most) in [
            (ImageFormat::Png, 1, 0),
            (ImageFormat::Png, 3, 0),
            (ImageFormat::Png, 4, 0),
            (ImageFormat::Jpeg, 1, 6),
            (ImageFormat::Jpeg, 3, 6),
        ] {
            for (height, width) in [(1, 1), (7, 9), (48, 64)] {
                let mut node = EncodeImage {
                    format,
                    quality: 95,
                    file: Vec::new(),
                    most: 1 << 20,
                    oversized: LossCounter::default(),
                };
                let pixels = image(height, width, channels);
                node.encode([height, width, channels], &pixels).unwrap();
                let read = Encoded::new(&node.file).unwrap();
                assert_eq!((read.size().height, read.size().width, read.size().channels), (height, width, channels));
                let mut back = vec![0; pixels.len()];
                read.decode(&mut back).unwrap();
                let worst = pixels.iter().zip(&back).map(|(a, b)| a.abs_diff(*b)).max();
                assert!(worst <= Some(most), "{format:?} {height}x{width}x{channels}: {worst:?}");
            }
        }
    }
}
