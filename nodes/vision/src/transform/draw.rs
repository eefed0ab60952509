//! Boxes and their labels, drawn into images.

use crate::tensor::image;
use embedded_graphics::Pixel;
use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle, ascii};
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::primitives::Rectangle;
use embedded_graphics::text::Baseline;
use embedded_graphics::text::renderer::TextRenderer;
use limen::Tensor;
use limen::message::{DType, Dim, PortSpec};
use limen::node::{
    Building, Connected, Emit, Many, MessageSet, Metrics, Node, NodeError, OutPort, PlanErrors, Planning, Ports,
    Transform,
};
use limen_nodes_core::tensor::boxes::{self, BoxRow};
use limen_nodes_core::tensor::{cost, joined, shape};
use schemars::JsonSchema;
use serde::Deserialize;
use std::convert::Infallible;
use std::fmt::Write as _;

/// Draws boxes into images: `image` `u8[h,w,c]` with 1, 3 or 4 channels and `boxes` `f32[≤n,6]`.
/// The optional input `ids` `u32[≤n]` adds an id to each box.
///
/// `decode_boxes`, `decode_yolo`, `nms` and `tracker` produce `boxes`, and `tracker` also produces
/// `ids`. The colour of a box depends on the id of the box. Without `ids`, the colour depends on
/// the class. The label above a box shows the class (name or number), the score in percent and the
/// id. The node clips boxes to the image. The node does not draw boxes with a NaN or infinite
/// corner, and counts them (`left_out`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct DrawConfig {
    /// Names of the classes, in class order. A class without a name appears as a number.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Line width in pixels. Default: 2.
    #[serde(default = "two")]
    pub line: u32,
    /// Text size. Default: `medium`.
    #[serde(default)]
    pub text: TextSize,
    /// Minimum score of a drawn box. Default: 0.
    #[serde(default)]
    pub threshold: f32,
}

fn two() -> u32 {
    2
}

/// How large labels are drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextSize {
    /// No text.
    None,
    /// Characters of 5 by 8 pixels.
    Small,
    /// Characters of 7 by 13 pixels.
    #[default]
    Medium,
    /// Characters of 10 by 20 pixels.
    Large,
}

impl TextSize {
    fn font(self) -> Option<&'static MonoFont<'static>> {
        match self {
            TextSize::None => None,
            TextSize::Small => Some(&ascii::FONT_5X8),
            TextSize::Medium => Some(&ascii::FONT_7X13),
            TextSize::Large => Some(&ascii::FONT_10X20),
        }
    }
}

/// Colours that are told apart on most images, each with the colour of text on it.
const COLOURS: [([u8; 3], [u8; 3]); 10] = [
    ([230, 60, 50], [255; 3]),
    ([60, 180, 75], [0; 3]),
    ([255, 220, 25], [0; 3]),
    ([40, 100, 220], [255; 3]),
    ([245, 130, 48], [0; 3]),
    ([145, 30, 180], [255; 3]),
    ([70, 240, 240], [0; 3]),
    ([240, 50, 230], [0; 3]),
    ([210, 245, 60], [0; 3]),
    ([0, 128, 128], [255; 3]),
];

fn colours(of: u32) -> [Rgb888; 2] {
    let (line, text) = COLOURS[of as usize % COLOURS.len()];
    [line, text].map(|[r, g, b]| Rgb888::new(r, g, b))
}

/// The pixels of an image.
struct Canvas<'a> {
    pixels: &'a mut [u8],
    height: usize,
    width: usize,
    channels: usize,
}

impl Canvas<'_> {
    /// Writes a colour to a pixel's channels: the luminance (BT.601) if there is one.
    fn put(pixel: &mut [u8], colour: Rgb888) {
        let [r, g, b] = [colour.r(), colour.g(), colour.b()];
        match pixel {
            [r_to, g_to, b_to, alpha @ ..] => {
                (*r_to, *g_to, *b_to) = (r, g, b);
                alpha.fill(255);
            }
            [grey, ..] => {
                let [r, g, b] = [r, g, b].map(u32::from);
                *grey = ((299 * r + 587 * g + 114 * b) / 1000) as u8;
            }
            [] => {}
        }
    }
}

impl OriginDimensions for Canvas<'_> {
    fn size(&self) -> Size {
        // A side has at most 32768 pixels.
        Size::new(self.width as u32, self.height as u32)
    }
}

impl DrawTarget for Canvas<'_> {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(at, colour) in pixels {
            let (Ok(x), Ok(y)) = (usize::try_from(at.x), usize::try_from(at.y)) else { continue };
            if x < self.width && y < self.height {
                let begin = (y * self.width + x) * self.channels;
                Canvas::put(&mut self.pixels[begin..begin + self.channels], colour);
            }
        }
        Ok(())
    }

    fn fill_solid(&mut self, area: &Rectangle, colour: Rgb888) -> Result<(), Infallible> {
        let side = |begin: i32, length: u32, most: usize| {
            let end = (i64::from(begin) + i64::from(length)).clamp(0, most as i64);
            (i64::from(begin).clamp(0, most as i64) as usize, end as usize)
        };
        let (left, right) = side(area.top_left.x, area.size.width, self.width);
        let (top, bottom) = side(area.top_left.y, area.size.height, self.height);
        for row in top..bottom.max(top) {
            let pixels =
                &mut self.pixels[(row * self.width + left) * self.channels..][..(right - left) * self.channels];
            pixels.chunks_exact_mut(self.channels).for_each(|pixel| Canvas::put(pixel, colour));
        }
        Ok(())
    }
}

/// The corners of a box in whole pixels, at most one line outside of the image; `None` if one is no
/// number.
fn corners([left, top, right, bottom, ..]: &BoxRow, canvas: &Canvas<'_>, line: u32) -> Option<[i32; 4]> {
    let outside = line as f32 + 1.0;
    let place = |at: f32, most: usize| at.is_finite().then(|| at.round().clamp(-outside, most as f32 + outside) as i32);
    let (w, h) = (canvas.width, canvas.height);
    Some([place(*left, w)?, place(*top, h)?, place(*right, w)?, place(*bottom, h)?])
}

/// Runs `kind: draw`; [`DrawConfig`] says what it does.
#[derive(Debug)]
pub struct Draw {
    config: DrawConfig,
    /// The places of the inputs in a set: image, boxes, ids.
    places: [Option<usize>; 3],
    text: String,
    left_out: u64,
}

const INPUTS: [&str; 3] = ["image", "boxes", "ids"];

impl Draw {
    fn new(config: DrawConfig, names: &[String]) -> Draw {
        let places = INPUTS.map(|input| names.iter().position(|name| name == input));
        Draw { config, places, text: String::with_capacity(64), left_out: 0 }
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, row: &BoxRow, id: Option<u32>) {
        let Draw { config, text, .. } = self;
        if row[4] < config.threshold {
            return;
        }
        let Some([left, top, right, bottom]) = corners(row, canvas, config.line) else {
            self.left_out += 1;
            return;
        };
        // A class beyond numbers of colours is one all the same.
        let class = row[5].max(0.0) as u32;
        let [colour, ink] = colours(id.unwrap_or(class));
        let (width, height) = ((right - left).max(0) as u32, (bottom - top).max(0) as u32);
        let is_outside = right <= 0 || bottom <= 0 || left >= canvas.width as i32 || top >= canvas.height as i32;
        if width == 0 || height == 0 || is_outside {
            return;
        }
        let line = config.line.min(width).min(height);
        let far = line as i32;
        let sides = [
            (left, top, width, line),
            (left, bottom - far, width, line),
            (left, top, line, height),
            (right - far, top, line, height),
        ];
        for (x, y, width, height) in sides {
            let Ok(()) = canvas.fill_solid(&Rectangle::new(Point::new(x, y), Size::new(width, height)), colour);
        }
        let Some(font) = config.text.font() else { return };
        text.clear();
        // Writing to a string cannot fail.
        let _ = match config.labels.get(class as usize) {
            _ if row[5].is_nan() => write!(text, "?"),
            Some(label) => write!(text, "{label}"),
            None => write!(text, "{class}"),
        };
        if row[4].is_finite() {
            let _ = write!(text, " {:.0}%", row[4] * 100.0);
        }
        if let Some(id) = id {
            let _ = write!(text, " #{id}");
        }
        let style = MonoTextStyle::new(font, ink);
        let size = style.measure_string(text, Point::zero(), Baseline::Top).bounding_box.size;
        // Above the box, or within it where the image begins; further left where the image ends.
        let high = size.height as i32;
        let x = left.min(canvas.width as i32 - size.width as i32 - 2).max(0);
        let at = Point::new(x, if top >= high { top - high } else { top });
        let Ok(()) = canvas.fill_solid(&Rectangle::new(at, size + Size::new(2, 0)), colour);
        let Ok(_) = style.draw_string(text, at + Point::new(1, 0), Baseline::Top, canvas);
    }
}

impl Node for Draw {
    type Config = DrawConfig;

    fn ports(config: &DrawConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if !(1..=64).contains(&config.line) {
            errors.at("line", format!("`line` must be 1 to 64, got {}", config.line)).help("write a number such as 2");
        }
        if config.threshold.is_nan() {
            errors.at("threshold", "`threshold` must be a number, got NaN").help("write a number from 0 to 1");
        }
        let longest = config.labels.iter().map(String::len).max().unwrap_or(0);
        if longest > 64 {
            errors.at("labels", format!("a label must be at most 64 bytes, got {longest}")).help("shorten the label");
        }
        for (name, _) in given.inputs().filter(|(name, _)| !INPUTS.contains(name)) {
            errors
                .input(name, format!("expected `image`, `boxes` or `ids`, found the input `{name}`"))
                .help("write `image`, `boxes` or `ids` in `inputs`");
        }
        for name in INPUTS.iter().take(2).filter(|input| given.inputs().all(|(name, _)| name != **input)) {
            let help = "write `inputs: { image: camera, boxes: boxes }`";
            errors.node(format!("input `{name}` is not connected")).help(help);
        }
        let spec = |input: &str| given.inputs().find(|(name, _)| *name == input).and_then(|(_, spec)| spec);
        let dims = shape::image_dims(spec("image"));
        if let Some([.., channels]) = dims
            && !matches!(channels, Dim::Fixed(1 | 3 | 4))
        {
            errors
                .input("image", format!("expected 1, 3 or 4 channels, found {channels}"))
                .help("connect an image with 1, 3 or 4 channels");
        }
        let image = image::input_spec(dims);
        let most =
            dims.and_then(image::largest).map_or(0, |[h, w, channels]| h.saturating_mul(w).saturating_mul(channels));
        let ports = given.inputs().fold(Ports::new(), |ports, (name, given)| match name {
            "image" => ports.input(name, image.clone()),
            "boxes" => ports.input(name, boxes::any_spec(given)),
            "ids" => {
                let rows = given.and_then(|spec| spec.shape.first().cloned());
                let rows = rows.unwrap_or_else(|| Dim::Symbol("n".into()));
                ports.input(name, PortSpec::new(DType::U32, [rows]))
            }
            name => ports.input_any(name),
        });
        let spec = dims.is_some().then_some(image);
        let out = OutPort { name: "out".into(), spec, emits: 1, rows: 1, forwards: Vec::new() };
        errors.into_result(ports.out_port(out).cost(cost::of(most / 8)))
    }

    fn build(config: DrawConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Draw::new(config, &joined::names(cx)))
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("left_out", self.left_out as f64);
    }
}

impl Transform for Draw {
    type In = Many<Tensor>;
    type Out = Tensor;

    fn apply(&mut self, input: MessageSet<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let [Some(image_at), Some(boxes_at), ids_at] = self.places else {
            return Err(NodeError::input("image", "`image` and `boxes` must be connected"));
        };
        let image = &input[image_at];
        let ([height, width, channels], from) = image::pixels("image", &image.body)?;
        let rows = boxes::rows(&input[boxes_at].body)?;
        let ids = ids_at.map(|at| input[at].body.as_slice::<u32>()).transpose()?;
        if let Some(ids) = ids.filter(|ids| ids.len() != rows.len()) {
            return Err(NodeError::input(
                "ids",
                format!("expected one id per box, found {} ids for {} boxes", ids.len(), rows.len()),
            ));
        }
        let header = out.header_of::<Self::In>(&input);
        let mut tensor = out.loan(header)?;
        shape::set_shape(&mut tensor, &[height, width, channels])?;
        let pixels = tensor.bytes_mut();
        pixels.copy_from_slice(from);
        let mut canvas = Canvas { pixels, height, width, channels };
        for (at, row) in rows.iter().enumerate() {
            self.draw(&mut canvas, row, ids.map(|ids| ids[at]));
        }
        out.send(tensor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is drawn into a black image; `#` is a pixel that is not black.
    fn drawn(
        keys: &str,
        [height, width, channels]: [usize; 3],
        rows: &[BoxRow],
        ids: Option<&[u32]>,
    ) -> (Vec<u8>, Draw) {
        let config = serde_json::from_str(&format!("{{{keys}}}")).unwrap_or_else(|error| panic!("{keys}: {error}"));
        let mut draw = Draw::new(config, &[]);
        let mut pixels = vec![0; height * width * channels];
        let mut canvas = Canvas { pixels: &mut pixels, height, width, channels };
        for (at, row) in rows.iter().enumerate() {
            draw.draw(&mut canvas, row, ids.map(|ids| ids[at]));
        }
        (pixels, draw)
    }

    fn picture(pixels: &[u8], width: usize, channels: usize) -> Vec<String> {
        let of = |pixel: &[u8]| if pixel.iter().any(|level| *level != 0) { '#' } else { '.' };
        pixels.chunks(width * channels).map(|row| row.chunks(channels).map(of).collect()).collect()
    }

    #[test]
    fn boxes_are_lines_that_the_image_cuts_off() {
        let row = |left: f32, top: f32, right: f32, bottom: f32| [left, top, right, bottom, 1.0, 0.0];
        for (row, expected) in [
            (row(1.0, 1.0, 6.0, 5.0), ["........", ".#####..", ".#...#..", ".#...#..", ".#####..", "........"]),
            (row(-3.0, 2.4, 3.0, 99.0), ["........", "........", "###.....", "..#.....", "..#.....", "..#....."]),
            (row(f32::MIN, f32::MIN, f32::MAX, f32::MAX), ["........"; 6]),
            // One pixel, none, and corners that are swapped.
            (row(3.0, 3.0, 4.0, 4.0), ["........", "........", "........", "...#....", "........", "........"]),
            (row(3.0, 3.0, 3.0, 3.0), ["........"; 6]),
            (row(6.0, 5.0, 1.0, 1.0), ["........"; 6]),
            (row(20.0, 2.0, 30.0, 4.0), ["........"; 6]),
        ] {
            for channels in [1, 3, 4] {
                let (pixels, draw) = drawn(r#""line": 1, "text": "none""#, [6, 8, channels], &[row], None);
                assert_eq!(picture(&pixels, 8, channels), expected, "{row:?}, {channels} channels");
                assert_eq!(draw.left_out, 0);
            }
        }
        let bad = [row(f32::NAN, 0.0, 1.0, 1.0), row(0.0, 0.0, f32::INFINITY, 1.0)];
        let (pixels, draw) = drawn("", [6, 8, 3], &bad, None);
        assert!(pixels.iter().all(|level| *level == 0) && draw.left_out == 2);
    }

    #[test]
    fn colours_are_those_of_ids_or_classes() {
        let row = [0.0, 0.0, 4.0, 4.0, 0.5, 1.0];
        let first = |keys: &str, channels: usize, ids: Option<&[u32]>| {
            drawn(&format!("{keys}\"text\": \"none\""), [4, 4, channels], &[row], ids).0[..channels].to_vec()
        };
        assert_eq!(first("", 3, None), [60, 180, 75]);
        assert_eq!(first("", 3, Some(&[13])), [40, 100, 220]);
        assert_eq!(first("", 4, None), [60, 180, 75, 255]);
        assert_eq!(first("", 1, None), [132]);
        assert_eq!(first(r#""threshold": 0.6, "#, 3, None), [0, 0, 0]);
    }

    #[test]
    fn labels_stand_above_a_box_or_within_it() {
        let row = [2.0, 12.0, 60.0, 30.0, 0.87, 1.0];
        let (pixels, _) = drawn(r#""labels": ["a", "it"], "text": "small""#, [32, 64, 1], &[row], Some(&[5]));
        // White text on the colour of the box, whose luminance is lower.
        let text = |pixels: &[u8]| {
            (4..12)
                .map(|row| pixels[row * 64 + 2..row * 64 + 49].iter().filter(|level| **level == 255).count())
                .sum::<usize>()
        };
        assert!(text(&pixels) > 50, "{}", text(&pixels));
        let (other, _) = drawn(r#""labels": ["a", "at"], "text": "small""#, [32, 64, 1], &[row], Some(&[5]));
        assert_ne!(text(&pixels), text(&other));
        // A box that is not in the image has no label in it.
        for outside in
            [[-90.0, -90.0, -50.0, -50.0], [70.0, 3.0, 90.0, 9.0], [5.0, 5.0, 5.0, 9.0], [9.0, 9.0, 5.0, 5.0]]
        {
            let outside = [outside[0], outside[1], outside[2], outside[3], 0.9, 0.0];
            let (pixels, _) = drawn("", [32, 64, 1], &[outside], None);
            assert!(pixels.iter().all(|level| *level == 0), "{outside:?}");
        }
        // There is no room above.
        let high = [2.0, 3.0, 60.0, 30.0, 0.87, 1.0];
        let (pixels, _) = drawn(r#""text": "small""#, [32, 64, 1], &[high], None);
        assert!(pixels[..3 * 64].iter().all(|level| *level == 0));
        assert!(pixels[5 * 64 + 4..5 * 64 + 20].iter().any(|level| *level != 0));
        // Text of any length and characters that the font does not have change nothing outside of
        // the image.
        drawn(r#""labels": ["\n\u00e9\u0000🦀 a long label"], "text": "large""#, [4, 4, 3], &[[0.0; 6]], None);
    }
}
