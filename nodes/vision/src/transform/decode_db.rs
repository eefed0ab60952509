//! Boxes of text from a map of probabilities.

use crate::tensor::quads::{self, RegionOutline};
use crate::tensor::regions::{MAX_PIXELS, PixelMembership, Region, Regions};
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Many, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::boxes::{self, Best, BoxRow};
use schemars::JsonSchema;
use serde::Deserialize;
use std::cmp::Ordering;

/// Decodes the output of a text detector with differentiable binarization (DB): a probability map
/// `f32[h,w]` or `f32[1,h,w]` to `boxes` `f32[≤max_boxes,6]`.
///
/// Rows of `boxes` are x0, y0, x1, y1 in pixels of the map, score, class 0. Boxes are ordered from
/// top to bottom, and from left to right within a line. Boxes belong to one line if their upper
/// edges are less than 10 pixels apart.
///
/// Neighbouring pixels above `threshold`, including diagonal neighbours, form one region. Each
/// region produces one box, parallel to the edges of the map. The score of the box is the mean
/// probability of the region. The node expands the box on every side by area · `unclip` /
/// perimeter, and clips the box to the map. The node drops regions less than 3 pixels wide or high.
///
/// `quads` `f32[≤max_boxes,8]` is an optional second output. Row `n` of `quads` is the smallest
/// rotated rectangle around the region of row `n` of `boxes`. A row of `quads` contains x and y of
/// the corners: top left, top right, bottom right, bottom left. As in PaddleOCR, pixel centres have
/// integer coordinates, and the sides pass through the centres of the outermost pixels. The node
/// expands the rectangle like a box, and moves corners outside the map to the edge of the map.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct DecodeDbConfig {
    /// Probability above which a pixel is text. Default: 0.3.
    #[serde(default = "threshold")]
    pub threshold: f32,
    /// Whether to expand text regions by one pixel to the right, down and diagonally to the lower
    /// right. Dilation merges regions that are one pixel apart, like `use_dilation` in PaddleOCR.
    /// Default: `false`.
    #[serde(default)]
    pub dilation: bool,
    /// Minimum score of a box; the node drops boxes with a lower score. Default: 0.6.
    #[serde(default = "box_threshold")]
    pub box_threshold: f32,
    /// Expansion factor. Each side of a box moves outwards by area · `unclip` / perimeter. Default:
    /// 1.5.
    #[serde(default = "unclip")]
    pub unclip: f32,
    /// Maximum number of boxes per message, at most 1000. The node keeps the boxes with the highest
    /// scores. Default: 100.
    #[serde(default = "max_boxes")]
    pub max_boxes: usize,
}

fn threshold() -> f32 {
    0.3
}

fn box_threshold() -> f32 {
    0.6
}

fn unclip() -> f32 {
    1.5
}

fn max_boxes() -> usize {
    100
}

/// Upper bound of `max_boxes`. Sorting into lines compares neighbours until nothing changes, so
/// more would take too long.
const MAX_BOXES: usize = 1000;
/// Pixels of the smallest side of a region.
const MIN_SIDE: f32 = 3.0;
/// Boxes whose upper edges differ by less, in pixels, are in one line.
const SAME_LINE: f32 = 10.0;

/// Expands a box on every side by area · `unclip` / perimeter, as far as a map of `width` ×
/// `height` reaches.
fn expanded([left, top, right, bottom]: [f32; 4], unclip: f32, width: usize, height: usize) -> [f32; 4] {
    let (w, h) = (right - left, bottom - top);
    let by = w * h * unclip / (2.0 * (w + h));
    [(left - by).max(0.0), (top - by).max(0.0), (right + by).min(width as f32), (bottom + by).min(height as f32)]
}

/// A box and the region that it is around.
#[derive(Debug, Clone, Copy)]
struct FoundBox {
    row: BoxRow,
    region: usize,
}

/// Sorts boxes from top to bottom, and those of a line from left to right.
///
/// A box moves before those above it that are in its line and right of it. This is how detectors of
/// this family define the order of reading; "in one line" is not transitive, so no comparison of
/// two boxes could.
fn sort_lines(found: &mut [FoundBox]) {
    let corner = |found: &FoundBox| [found.row[1], found.row[0]];
    found.sort_unstable_by(|a, b| corner(a).partial_cmp(&corner(b)).unwrap_or(Ordering::Equal));
    for last in 1..found.len() {
        for at in (0..last).rev() {
            let ([top, left], [lower_top, lower_left]) = (corner(&found[at]), corner(&found[at + 1]));
            if (lower_top - top).abs() >= SAME_LINE || lower_left >= left {
                break;
            }
            found.swap(at, at + 1);
        }
    }
}

/// Runs `kind: decode_db`; [`DecodeDbConfig`] says what it does.
#[derive(Debug)]
pub struct DecodeDb {
    config: DecodeDbConfig,
    regions: Regions,
    best: Best,
    found: Vec<FoundBox>,
    outline: RegionOutline,
}

/// Returns height and width of a map with two dims, or three of which the first is 1.
fn dims<T>(shape: &[T], is_one: impl Fn(&T) -> bool) -> Option<[&T; 2]> {
    match shape {
        [height, width] => Some([height, width]),
        [one, height, width] if is_one(one) => Some([height, width]),
        _ => None,
    }
}

impl DecodeDb {
    fn new(config: DecodeDbConfig, width: usize, height: usize, quads: bool) -> Self {
        // `Best` keeps what is above its threshold; here a score equal to it is kept.
        let threshold = config.box_threshold.next_down();
        let best = Best::new(threshold, config.max_boxes, Regions::most(width, height));
        DecodeDb {
            regions: Regions::new(width, height, quads),
            best,
            found: Vec::with_capacity(config.max_boxes),
            outline: RegionOutline::new(if quads { height } else { 0 }),
            config,
        }
    }

    /// Finds the boxes with the highest scores, in the order of reading.
    fn find(&mut self, map: &[f32], width: usize, height: usize) {
        let DecodeDbConfig { threshold, dilation, unclip, .. } = self.config;
        self.regions.find(map, width, PixelMembership { threshold, dilation });
        self.best.clear();
        for (at, region) in self.regions.iter() {
            let [left, top, right, bottom] = region.corners();
            if right - left >= MIN_SIDE && bottom - top >= MIN_SIDE {
                self.best.offer(region.mean(), at);
            }
        }
        self.found.clear();
        for (score, at) in self.best.sorted() {
            let corners = self.regions.get(*at).map_or([0.0; 4], Region::corners);
            let [x0, y0, x1, y1] = expanded(corners, unclip, width, height);
            self.found.push(FoundBox { row: [x0, y0, x1, y1, *score, 0.0], region: *at });
        }
        sort_lines(&mut self.found);
    }

    /// Writes the boxes that were found.
    fn write_boxes(&self, rows: &mut [BoxRow]) {
        rows.iter_mut().zip(&self.found).for_each(|(row, found)| *row = found.row);
    }

    /// Writes the quads of the boxes that were found.
    fn write_quads(&mut self, width: usize, height: usize, rows: &mut [quads::QuadRow]) {
        let last = [width, height].map(|side| side.saturating_sub(1) as f32);
        for (row, found) in rows.iter_mut().zip(&self.found) {
            self.outline.clear();
            self.regions.outline(found.region, width, &mut self.outline);
            *row = self.outline.quad(self.config.unclip);
            row.as_chunks_mut()
                .0
                .iter_mut()
                .for_each(|[x, y]| (*x, *y) = (x.clamp(0.0, last[0]), y.clamp(0.0, last[1])));
        }
    }
}

impl Node for DecodeDb {
    type Config = DecodeDbConfig;

    fn ports(config: &DecodeDbConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        for (field, value) in [("threshold", config.threshold), ("box_threshold", config.box_threshold)] {
            if !(0.0..=1.0).contains(&value) {
                errors.at(field, format!("`{field}` must be 0 to 1, got {value}")).help("write a number from 0 to 1");
            }
        }
        if !(0.0..=100.0).contains(&config.unclip) {
            errors
                .at("unclip", format!("`unclip` must be 0 to 100, got {}", config.unclip))
                .help("write a number from 0 to 100");
        }
        if !(1..=MAX_BOXES).contains(&config.max_boxes) {
            errors
                .at("max_boxes", format!("`max_boxes` must be 1 to {MAX_BOXES}, got {}", config.max_boxes))
                .help("write a number such as 100");
        }
        let mut ports = Ports::new().output("boxes", boxes::spec(config.max_boxes)).cost(Cost::Heavy);
        // Any other name is refused by the engine, which then says what the outputs are.
        let has_quads = given.outputs().any(|port| port != "boxes");
        if has_quads {
            ports = ports.output("quads", quads::spec(config.max_boxes));
        }
        ports = match given.single() {
            Some(spec) => {
                let map = dims(&spec.shape, |dim| *dim == Dim::Fixed(1));
                let size = map.and_then(|[height, width]| Some((height.max()?, width.max()?)));
                match (map, size) {
                    (None, _) => {
                        let message = format!("expected a map of probabilities, found {spec}");
                        errors.input("in", message).help("connect a map of type f32[h,w] or f32[1,h,w]");
                    }
                    (_, Some((height, width))) if height.saturating_mul(width) > MAX_PIXELS => {
                        errors
                            .input("in", format!("expected at most {MAX_PIXELS} pixels, found {spec}"))
                            .help("scale the image down upstream of the model");
                    }
                    (_, Some((height, width))) => {
                        ports = ports.memory(Regions::memory(width, height, has_quads));
                    }
                    _ => {}
                }
                ports.input("in", PortSpec::new(DType::F32, spec.shape.iter().cloned()))
            }
            None => ports.input_any("in"),
        };
        errors.into_result(ports)
    }

    fn build(config: DecodeDbConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let spec = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
        let map = spec.and_then(|spec| dims(&spec.shape, |_| true));
        let size = map.and_then(|[height, width]| Some((height.max()?, width.max()?)));
        let (height, width) = size.ok_or_else(|| NodeError::input("in", "the shape is unknown during planning"))?;
        Ok(DecodeDb::new(config, width, height, cx.outputs().len() > 1))
    }
}

impl Transform for DecodeDb {
    type In = Tensor;
    type Out = Many<Tensor>;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Many<Tensor>>) -> Result<(), NodeError> {
        let shape = input.body.shape();
        let Some([height, width]) = dims(&shape, |length| *length == 1) else {
            return Err(NodeError::input("in", format!("expected a map of probabilities, found {:?}", input.body)));
        };
        self.find(input.body.as_slice()?, *width, *height);
        for port in out.iter_mut().filter(|port| port.is_connected()) {
            let mut rows = port.loan(input.header())?;
            rows.set_len(0, self.found.len())?;
            let numbers = rows.as_mut_slice::<f32>()?;
            match port.name() {
                "quads" => self.write_quads(*width, *height, numbers.as_chunks_mut().0),
                _ => self.write_boxes(numbers.as_chunks_mut().0),
            }
            port.send(rows);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(map: &[f32], width: usize, config: DecodeDbConfig) -> Vec<BoxRow> {
        let height = map.len() / width.max(1);
        let mut node = DecodeDb::new(config, width, height, false);
        (0..2).for_each(|_| node.find(map, width, height));
        node.found.iter().map(|found| found.row).collect()
    }

    fn config(threshold: f32, box_threshold: f32) -> DecodeDbConfig {
        DecodeDbConfig { threshold, dilation: false, box_threshold, unclip: 1.5, max_boxes: 100 }
    }

    /// The map is made of blocks of 4 × 4 pixels and noise. The expected boxes are those of SciPy:
    /// `ndimage.label` with `structure=ones((3, 3))`, `find_objects`, the mean of each label's
    /// pixels, and the sorting of PaddleOCR's `sorted_boxes`.
    #[test]
    fn regions_are_those_of_another_implementation() {
        let noise = |i: usize| ((i * i * 37 + i * 11 + 5) % 1000) as f32 / 1000.0;
        let pixel = |i: usize| noise(i / 40 / 4 * 10 + i % 40 / 4) * 0.75 + noise(i) * 0.25;
        let map: Vec<f32> = (0..24 * 40).map(pixel).collect();
        for (threshold, expected) in [
            (0.3, &[][..]),
            (
                0.65,
                &[
                    [0.0, 2.33333, 6.66667, 9.66667, 0.782],
                    [0.0, 7.32, 20.68, 24.0, 0.75261],
                    [10.09091, 6.09091, 17.90909, 16.90909, 0.74089],
                    [14.375, 6.375, 40.0, 24.0, 0.75003],
                    [16.42857, 0.0, 27.57143, 10.57143, 0.81226],
                    [24.69231, 0.0, 34.30769, 10.30769, 0.7942],
                ],
            ),
            (
                0.7,
                &[
                    [0.0, 2.5, 5.5, 9.5, 0.79693],
                    [10.5, 6.5, 17.5, 13.5, 0.81294],
                    [18.5, 0.0, 25.5, 5.5, 0.854],
                    [19.5, 7.5, 40.0, 24.0, 0.77319],
                    [24.69231, 0.0, 34.30769, 10.30769, 0.81691],
                    [2.5, 10.5, 9.5, 17.5, 0.83283],
                    [2.5, 18.5, 9.5, 24.0, 0.77044],
                    [5.69231, 12.69231, 18.30769, 22.30769, 0.78195],
                    [22.71429, 14.71429, 29.28571, 20.28571, 0.76986],
                    [35.71429, 10.71429, 40.0, 17.28571, 0.7427],
                ],
            ),
        ] {
            let found = decode(&map, 40, config(threshold, 0.6));
            assert_eq!(found.len(), expected.len(), "{threshold}: {found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} is not {expected:?}");
                assert_eq!(found[5], 0.0);
            }
        }
    }

    #[test]
    fn regions_that_meet_late_are_one() {
        let draw = |rows: &[&str]| -> Vec<f32> {
            rows.iter().flat_map(|row| row.bytes()).map(|b| if b == b'#' { 0.75 } else { 0.0 }).collect()
        };
        // The box without expansion: `unclip` is 0.
        for (rows, expected) in [
            (&["#.#.#", "#.#.#", "#####"][..], &[[0.0, 0.0, 5.0, 3.0]][..]),
            (&["..#..", ".#.#.", "#...#", ".#.#.", "..#.."], &[[0.0, 0.0, 5.0, 5.0]]),
            (&["###.###", "###.###", "###.###"], &[[0.0, 0.0, 3.0, 3.0], [4.0, 0.0, 7.0, 3.0]]),
            (&["####", "####"], &[]),
            (&["##", "##", "##"], &[]),
            (&["...", "...", "..."], &[]),
            (&[], &[]),
        ] {
            let width = rows.first().map_or(0, |row| row.len());
            let found = decode(&draw(rows), width, DecodeDbConfig { unclip: 0.0, ..config(0.3, 0.75) });
            let boxes: Vec<_> = found.iter().map(|row| [row[0], row[1], row[2], row[3]]).collect();
            assert_eq!(boxes, expected, "{rows:?}");
            assert!(found.iter().all(|row| row[4] == 0.75), "{rows:?}");
        }
    }

    #[test]
    fn the_boxes_with_the_highest_scores_are_kept_in_the_order_of_reading() {
        let mut map = vec![0.0; 60 * 40];
        let mut fill = |left: usize, top: usize, value: f32| {
            (0..16).for_each(|i| map[(top + i / 4) * 60 + left + i % 4] = value);
        };
        for (left, top, value) in [(40, 2, 0.9), (20, 8, 0.8), (0, 5, 0.7), (10, 30, 0.95), (0, 22, 0.65)] {
            fill(left, top, value);
        }
        for (max_boxes, expected) in [(100, &[0.7, 0.8, 0.9, 0.65, 0.95][..]), (3, &[0.8, 0.9, 0.95]), (1, &[0.95])] {
            let found = decode(&map, 60, DecodeDbConfig { max_boxes, ..config(0.3, 0.6) });
            let scores: Vec<_> = found.iter().map(|row| row[4]).collect();
            assert_eq!(scores, expected, "{found:?}");
        }
    }
}
