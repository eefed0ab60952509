//! The parts of an image that boxes show.

use crate::tensor::filter::ResizeFilter;
use crate::tensor::frame::FrameBuffer;
use crate::tensor::{image, quads};
use limen::message::{Dim, Header, PortSpec};
use limen::node::{
    Building, Connected, Cost, Emit, Metrics, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform,
};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::Empty;
use limen_nodes_core::tensor::boxes::{self, BoxRow};
use limen_nodes_core::tensor::shape;
use schemars::JsonSchema;
use serde::Deserialize;

/// Upper bound of `max`.
const MAX_PARTS: usize = 1 << 10;

/// Crops images to boxes and scales each crop. Reads `image` `u8[h,w,c]` and `boxes` `f32[≤n,6]`.
/// For each row of `boxes`, the node produces one message `u8[height,width,c]`, called a part.
///
/// Rows of `boxes` are x0, y0, x1, y1, score, class. The node sends parts in the order of the rows.
/// `join` determines the header of each part, in which the node sets `part` and `parts` as in
/// `scatter`. `gather` reassembles the results: row `n` of the gathered message belongs to row `n`
/// of `boxes`.
///
/// A part contains every pixel that the part's box touches. A box outside the image produces a part
/// that shows only `fill`. The node drops all boxes after the first `max` boxes and counts the
/// dropped boxes (`left_out`). Detectors and `nms` send the boxes with the highest scores first.
///
/// The node reads either `boxes`, or `quads` `f32[≤n,8]` from `decode_db`. A row of `quads`
/// contains x and y of the corners: top left, top right, bottom right, bottom left. A part shows
/// the content of the quad, stretched to a rectangle. The rectangle's width is the longer of the
/// quad's top and bottom sides. Its height is the longer of the left and right sides. The pixel
/// levels match `cv2.warpPerspective` (`INTER_CUBIC`, `BORDER_REPLICATE`). The node rotates a
/// rectangle counterclockwise by 90° if its height is at least 1.5 times its width. Vertical text
/// thus becomes readable. The node then scales the rectangle like the part of a box. A part shows
/// only `fill` if its quad is less than 1 pixel wide or high. A part also shows only `fill` if its
/// quad covers more than twice the area of the image.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CropBoxesConfig {
    /// Width of the output in pixels.
    pub width: usize,
    /// Height of the output in pixels.
    pub height: usize,
    /// Maximum number of parts per image, at most 1024. Default: 8.
    #[serde(default = "eight")]
    pub max: usize,
    /// What to do with an image without boxes. Default: `drop`. With `send`, the node produces part
    /// 0 of 0, which shows only `fill`. `gather` converts part 0 of 0 to an empty message.
    #[serde(default)]
    pub empty: Empty,
    /// Whether the node preserves the aspect ratio of a part. Default: `false`, which scales a part
    /// to `width` and `height`. `true` scales a part to `height`, aligns the part left and fills
    /// the rest of `width`. With `true`, a part that would exceed `width` is scaled to `width`
    /// instead.
    #[serde(default)]
    pub keep_aspect: bool,
    /// Pixel level of all channels outside the image. Default: 0. For a model that pads images with
    /// 0 after normalization to [-1, 1], write 128.
    #[serde(default)]
    pub fill: u8,
    /// Interpolation filter, as in `resize`. Default: `linear`, as in `cv2.resize`.
    #[serde(default = "ResizeFilter::linear")]
    pub filter: ResizeFilter,
}

fn eight() -> usize {
    8
}

/// The pixels of an image that a box touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CroppedPart {
    /// First row and column.
    first: [usize; 2],
    /// Height and width, at least 1.
    size: [usize; 2],
}

impl CroppedPart {
    /// Returns the pixels of a box in an image of this height and width; `None` if there are none,
    /// or if a corner is NaN.
    fn of([x0, y0, x1, y1, ..]: BoxRow, [h, w]: [usize; 2]) -> Option<Self> {
        // Negative numbers become 0. So does NaN, but it is not below anything.
        let axis = |low: f32, high: f32, side: usize| {
            let (first, end) = (low.floor() as usize, (high.ceil() as usize).min(side));
            (low <= high && first < end).then(|| (first, end - first))
        };
        let ((top, height), (left, width)) = (axis(y0, y1, h)?, axis(x0, x1, w)?);
        Some(CroppedPart { first: [top, left], size: [height, width] })
    }
}

/// Returns the width of a part of this height and width at another height, at most `most`, as
/// Python programs compute it: in floating point, rounded up.
fn width_at([h, w]: [usize; 2], height: usize, most: usize) -> usize {
    let ratio = w as f64 / h as f64;
    ((height as f64 * ratio).ceil() as usize).clamp(1, most)
}

/// The most pixels of a part between four corners, in images.
const MOST_IMAGES: usize = 2;
/// A part that is at least this many times as high as wide is turned.
const TURNED: f64 = 1.5;

/// Returns height and width of the part between four corners in an image of this height and width;
/// `None` if there is none. The lengths are rounded down, as in PaddleOCR.
fn size_of_quad(row: quads::QuadRow, [h, w]: [usize; 2]) -> Option<[usize; 2]> {
    let [a, b, c, d] = quads::corners(row);
    let length = |a: [f32; 2], b: [f32; 2]| {
        let (x, y) = (a[0] - b[0], a[1] - b[1]);
        (x * x + y * y).sqrt()
    };
    let size = [length(a, d).max(length(b, c)), length(a, b).max(length(c, d))].map(|side| side as usize);
    let pixels = size[0].checked_mul(size[1])?;
    let is_finite = row.iter().all(|at| at.is_finite());
    (is_finite && (1..=h.saturating_mul(w).saturating_mul(MOST_IMAGES)).contains(&pixels)).then_some(size)
}

/// Runs `kind: crop_boxes`; [`CropBoxesConfig`] says what it does.
#[derive(Debug)]
pub struct CropBoxes {
    frame: FrameBuffer,
    max: usize,
    empty: Empty,
    keep_aspect: bool,
    /// Whether the node takes quads in place of boxes.
    quads: bool,
    /// The pixels of a part.
    part: Vec<u8>,
    left_out: u64,
}

impl CropBoxes {
    /// Reads the pixels that a box touches and returns their height and width; `None` if there are
    /// none.
    fn cut_box(&mut self, from: [usize; 3], pixels: &[u8], row: BoxRow) -> Option<[usize; 2]> {
        let [h, w, channels] = from;
        let part = CroppedPart::of(row, [h, w])?;
        self.part.resize(part.size[0] * part.size[1] * channels, 0);
        image::copy_part(from, pixels, part.first, part.size, &mut self.part);
        Some(part.size)
    }

    /// Reads what is between four corners and returns its height and width; `None` if there is
    /// nothing.
    fn cut_quad(&mut self, from: [usize; 3], pixels: &[u8], row: quads::QuadRow) -> Result<Option<[usize; 2]>, String> {
        let channels = from[2];
        let Some([h, w]) = size_of_quad(row, [from[0], from[1]]) else { return Ok(None) };
        let turned = h as f64 / w as f64 >= TURNED;
        self.part.resize(h * w * channels, 0);
        limen_resize::cut(from, pixels, quads::corners(row), [h, w, channels], turned, &mut self.part)?;
        Ok(Some(if turned { [w, h] } else { [h, w] }))
    }

    /// Scales the pixels that were read, of this height and width, and sends them as part 0 of
    /// `parts`.
    fn send(
        &mut self,
        header: &Header,
        (size, parts): (Option<[usize; 2]>, u32),
        channels: usize,
        out: &mut Emit<Tensor>,
    ) -> Result<(), NodeError> {
        let mut part = out.loan(header)?;
        // The engine numbers the parts only if there are several; a single one would keep the
        // numbers of its input.
        (part.header_mut().part, part.header_mut().parts) = (0, parts);
        let (height, most) = (self.frame.height, self.frame.width);
        shape::set_shape(&mut part, &[height, most, channels])?;
        let into = part.as_mut_slice()?;
        match size {
            Some([h, w]) => {
                let to = if self.keep_aspect { width_at([h, w], height, most) } else { most };
                let drawn = self.frame.draw([h, w, channels], &self.part, [height, to], [0, 0], into);
                drawn.map_err(|why| NodeError::input("image", why))?;
            }
            None => self.frame.clear(into),
        }
        out.send(part);
        Ok(())
    }
}

impl Node for CropBoxes {
    type Config = CropBoxesConfig;

    fn ports(config: &CropBoxesConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        image::check_sides([("width", config.width), ("height", config.height)], &mut errors);
        if !(1..=MAX_PARTS).contains(&config.max) {
            errors
                .at("max", format!("`max` must be 1 to {MAX_PARTS}, got {}", config.max))
                .help("write a number such as 16");
        }
        let dims = shape::image_dims(given.input("image"));
        image::check_channels("image", dims, &mut errors);
        let (name, rows) = if quads::are_given(given) {
            (quads::PORT, quads::any_spec(given.input(quads::PORT)))
        } else {
            ("boxes", boxes::any_spec(given.input("boxes")))
        };
        let most = rows.shape.first().and_then(Dim::max).unwrap_or(usize::MAX);
        let spec = dims.map(|dims| image::of_size(config.height, config.width, dims));
        let input = image::input_spec(dims);
        let [frame, image] = [spec.as_ref(), Some(&input)].map(|spec| spec.and_then(PortSpec::max_bytes).unwrap_or(0));
        let images = if name == quads::PORT { MOST_IMAGES } else { 1 };
        let memory = image.saturating_mul(images).saturating_add(frame);
        let emits = config.max.min(most).max(1);
        let out = OutPort { name: "out".into(), spec, emits, rows: 1, forwards: Vec::new() };
        let ports = Ports::new().input("image", input).input(name, rows).out_port(out);
        errors.into_result(ports.selective().scatters().memory(memory).cost(Cost::Heavy))
    }

    fn build(config: CropBoxesConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let CropBoxesConfig { width, height, max, empty, keep_aspect, fill, filter } = config;
        let bytes =
            |ports: &[(String, Option<PortSpec>)]| ports.first().and_then(|(_, spec)| spec.as_ref()?.max_bytes());
        Ok(CropBoxes {
            frame: FrameBuffer::new(height, width, fill, filter, bytes(cx.outputs()).unwrap_or(0)),
            max,
            empty,
            keep_aspect,
            quads: cx.inputs().iter().any(|(name, _)| name == quads::PORT),
            part: Vec::with_capacity(bytes(cx.inputs()).unwrap_or(0)),
            left_out: 0,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("left_out", self.left_out as f64);
    }
}

impl Transform for CropBoxes {
    type In = (Tensor, Tensor);
    type Out = Tensor;

    fn apply(&mut self, input: (Message<Tensor>, Message<Tensor>), out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let header = *out.header_of::<Self::In>(&input);
        let (input, found) = &input;
        let (from, pixels) = image::pixels("image", &input.body)?;
        let (boxes, quads) =
            if self.quads { (&[][..], quads::rows(&found.body)?) } else { (boxes::rows(&found.body)?, &[][..]) };
        for row in boxes.iter().take(self.max) {
            let size = self.cut_box(from, pixels, *row);
            self.send(&header, (size, 1), from[2], out)?;
        }
        for row in quads.iter().take(self.max) {
            let size = self.cut_quad(from, pixels, *row).map_err(|why| NodeError::input("image", why))?;
            self.send(&header, (size, 1), from[2], out)?;
        }
        let rows = boxes.len() + quads.len();
        if rows == 0 && self.empty == Empty::Send {
            self.send(&header, (None, 0), from[2], out)?;
        }
        self.left_out += rows.saturating_sub(self.max) as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_all_pixels_that_its_box_touches() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let part = |first, size| Some(CroppedPart { first, size });
        for (corners, expected) in [
            ([2.0, 1.0, 5.0, 3.0], part([1, 2], [2, 3])),
            ([2.9, 1.9, 4.1, 2.1], part([1, 2], [2, 3])),
            ([2.5, 1.5, 2.5, 1.5], part([1, 2], [1, 1])),
            ([-4.0, -3.0, 100.0, 1.0], part([0, 0], [1, 10])),
            ([-inf, -inf, inf, inf], part([0, 0], [8, 10])),
            ([9.0, 7.0, 10.0, 8.0], part([7, 9], [1, 1])),
            // Outside, without a pixel, with swapped corners.
            ([10.0, 0.0, 12.0, 8.0], None),
            ([-5.0, 0.0, -1.0, 8.0], None),
            ([3.0, 0.0, 3.0, 8.0], None),
            ([5.5, 0.0, 5.2, 8.0], None),
            ([nan, 0.0, 5.0, 8.0], None),
            ([0.0, 0.0, 5.0, nan], None),
            ([inf, inf, inf, inf], None),
        ] {
            let [x0, y0, x1, y1] = corners;
            assert_eq!(CroppedPart::of([x0, y0, x1, y1, 0.9, 0.0], [8, 10]), expected, "{corners:?}");
        }
    }

    /// The expected widths were computed in Python 3.11 as
    /// `min(most, math.ceil(height * (w / float(h))))`.
    #[test]
    fn the_width_of_a_part_follows_its_aspect_ratio() {
        for ([h, w], height, expected) in [
            ([20, 100], 48, 240),
            ([32, 31], 48, 47),
            ([48, 321], 48, 320),
            ([1, 1], 48, 48),
            ([100, 1], 48, 1),
            ([5000, 1], 48, 1),
            ([49, 7], 49, 7),
            ([22, 161], 48, 320),
            ([60, 25], 48, 20),
        ] {
            assert_eq!(width_at([h, w], height, 320), expected, "{h} × {w} to {height}");
        }
    }
}
