//! Generated test scenes with known objects, for the graphs that detect and track.
//!
//! A scene is a dark noisy background with one to five plain shapes on it:
//! squares (class 0), discs (class 1) and upright triangles (class 2). The same
//! seed and frame number always give the same bytes, on every machine: all the
//! arithmetic is on integers. `graphs/detect/train.py` holds the same generator
//! in Python, and trains the detector with it. A checksum asserted on both sides
//! keeps the two in step, so a change here needs the same change there.
//!
//! [`render`] draws other shapes for every frame, [`render_moving`] the same shapes
//! a little further on.

/// The most objects that a scene can hold.
pub(crate) const MAX_OBJECTS: usize = 5;

/// Bounds of an object's side in pixels, both included.
const SIDE: (u64, u64) = (20, 56);

/// How many random positions are tried for an object before it is left out.
const TRIES: usize = 20;

/// The SplitMix64 generator: one word of state, good enough for images.
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included; the span must be small.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + (((self.next() >> 32) * (high - low + 1)) >> 32)
    }

    /// The same as [`between`](Self::between), for a colour channel.
    fn level(&mut self, low: u8, high: u8) -> u8 {
        self.between(u64::from(low), u64::from(high)) as u8
    }
}

/// A square area of the frame: left, top and side in pixels.
#[derive(Clone, Copy, Default)]
struct Area {
    x: usize,
    y: usize,
    side: usize,
}

impl Area {
    /// Whether the intersection over union with `other` is above one tenth.
    fn collides(self, other: Area) -> bool {
        let overlap = |a: usize, b: usize| (a + self.side).min(b + other.side).saturating_sub(a.max(b));
        let shared = overlap(self.x, other.x) * overlap(self.y, other.y);
        let union = self.side * self.side + other.side * other.side - shared;
        shared * 10 > union
    }

    /// The columns, relative to the left edge, that `class` fills in `row`.
    ///
    /// Each shape is symmetric, so a row is described by the largest distance of
    /// a filled pixel centre from the axis. Distances are in half pixels, which
    /// keeps them whole for even and odd sides alike.
    fn columns(self, class: u64, row: usize) -> std::ops::Range<usize> {
        let side = self.side;
        let from_axis = |column: usize| (2 * column + 1).abs_diff(side);
        let inside = |column: usize| match class {
            0 => true,
            1 => from_axis(column).pow(2) + from_axis(row).pow(2) <= side * side,
            _ => from_axis(column) <= row + 1,
        };
        let first = (0..side).find(|&column| inside(column)).unwrap_or(side);
        first..side.saturating_sub(first).max(first)
    }
}

/// What an object looks like.
#[derive(Clone, Copy, Default)]
struct ObjectShape {
    class: u64,
    side: usize,
    colour: [u8; 3],
}

impl ObjectShape {
    /// Draws lots for the next shape.
    fn random(random: &mut SplitMix64) -> ObjectShape {
        let class = random.between(0, 2);
        let side = random.between(SIDE.0, SIDE.1) as usize;
        // One strong and one weak channel make a saturated colour.
        let strong = random.between(0, 2) as usize;
        let weak = (strong + random.between(1, 2) as usize) % 3;
        let mut colour = [0; 3];
        colour[strong] = random.level(200, 255);
        colour[weak] = random.level(0, 40);
        colour[3 - strong - weak] = random.level(0, 255);
        ObjectShape { class, side, colour }
    }

    /// Paints the shape into an area of its side, and returns the row of its box.
    fn paint(self, area: Area, width: usize, pixels: &mut [u8]) -> [f32; 6] {
        for row in 0..area.side {
            let columns = area.columns(self.class, row);
            let start = (area.y + row) * width + area.x;
            let span = (start + columns.start) * 3..(start + columns.end) * 3;
            for pixel in pixels[span].chunks_exact_mut(3) {
                pixel.copy_from_slice(&self.colour);
            }
        }
        let [left, top, right, bottom] =
            [area.x, area.y, area.x + area.side, area.y + area.side].map(|edge| edge as f32);
        [left, top, right, bottom, 1.0, self.class as f32]
    }
}

/// Fills a frame with the levels `base` and noise.
fn fill(base: [u8; 3], noise: u32, pixels: &mut [u8]) {
    for (index, pixel) in pixels.chunks_exact_mut(3).enumerate() {
        // The generator would be too slow here: a short hash of the pixel's
        // position is enough for noise.
        let mut hash = (index as u32 ^ noise).wrapping_mul(0x9E37_79B1);
        hash = (hash ^ (hash >> 15)).wrapping_mul(0x85EB_CA77);
        hash ^= hash >> 13;
        for (channel, level) in pixel.iter_mut().enumerate() {
            *level = base[channel] + ((hash >> (8 * channel)) & 31) as u8;
        }
    }
}

fn check_size(width: usize, height: usize, pixels: &[u8]) {
    assert_eq!(pixels.len(), height * width * 3, "wrong size of the frame");
    assert!(width.min(height) >= SIDE.1 as usize, "the frame is smaller than the largest object");
}

/// Draws scene `frame` of `seed` and returns the number of objects on it.
///
/// `pixels` is filled with `height` rows of `width` RGB pixels. One row of `boxes`
/// per object is set to left, top, right, bottom, score (always 1) and class, in
/// the order in which the objects were drawn: a later object covers an earlier one
/// in their small overlap. The other rows are unchanged. Nothing is allocated.
///
/// # Panics
///
/// Panics if `pixels` does not hold exactly `height * width * 3` bytes, or if the frame
/// is smaller than the largest object, which has a side of 56 pixels.
pub(crate) fn render(
    seed: u64,
    frame: u64,
    width: usize,
    height: usize,
    pixels: &mut [u8],
    boxes: &mut [[f32; 6]; MAX_OBJECTS],
) -> usize {
    check_size(width, height, pixels);

    // The seed is mixed before it is combined with the frame number, so that
    // adjacent seeds do not share scenes.
    let key = SplitMix64(seed).next();
    let mut random = SplitMix64(key ^ frame);

    let base = [(); 3].map(|()| random.level(16, 64));
    let noise = (random.next() >> 32) as u32;
    fill(base, noise, pixels);

    let mut areas = [Area::default(); MAX_OBJECTS];
    let mut placed = 0;
    for _ in 0..random.between(1, MAX_OBJECTS as u64) {
        let shape = ObjectShape::random(&mut random);
        let side = shape.side;
        let free = (0..TRIES).find_map(|_| {
            let x = random.between(0, (width - side) as u64) as usize;
            let y = random.between(0, (height - side) as u64) as usize;
            let area = Area { x, y, side };
            let blocked = areas[..placed].iter().any(|&other| area.collides(other));
            (!blocked).then_some(area)
        });
        let Some(area) = free else { continue };

        boxes[placed] = shape.paint(area, width, pixels);
        areas[placed] = area;
        placed += 1;
    }
    placed
}

/// Positions and speeds of moving objects are in this fraction of a pixel.
const STEPS: u64 = 8;

/// Bounds of a moving object's speed along each axis, both included: half a pixel
/// to three pixels a frame.
const SPEED: (u64, u64) = (STEPS / 2, STEPS * 3);

/// Draws frame `frame` of the moving scene of `seed`: five shapes before one background, each of
/// which moves at a constant speed and turns back at the edges of the frame.
///
/// Row `n` of `boxes` is the same object in every frame; a later object covers an earlier one where
/// they meet. Pixels and boxes are otherwise those of [`render`], and the noise of every frame is
/// another. Nothing is allocated, and no frame depends on another.
///
/// # Panics
///
/// Panics where [`render`] does.
pub(crate) fn render_moving(
    seed: u64,
    frame: u64,
    width: usize,
    height: usize,
    pixels: &mut [u8],
    boxes: &mut [[f32; 6]; MAX_OBJECTS],
) {
    check_size(width, height, pixels);
    let mut random = SplitMix64(SplitMix64(seed).next());
    let base = [(); 3].map(|()| random.level(16, 64));
    let noise = (SplitMix64(random.next() ^ frame).next() >> 32) as u32;
    fill(base, noise, pixels);
    for row in boxes {
        let shape = ObjectShape::random(&mut random);
        let mut along = |length: usize| {
            let room = (length - shape.side) as u64;
            let begin = random.between(0, room) * STEPS;
            let speed = random.between(SPEED.0, SPEED.1);
            // On the way back if it began in the second half.
            let begin = if random.between(0, 1) == 0 { begin } else { 2 * room * STEPS - begin };
            to_and_fro(begin, speed, frame, room)
        };
        let (x, y) = (along(width), along(height));
        *row = shape.paint(Area { x, y, side: shape.side }, width, pixels);
    }
}

/// Where something is that goes from 0 to `room` pixels and back, over and over.
fn to_and_fro(begin: u64, speed: u64, frame: u64, room: u64) -> usize {
    let there = room * STEPS;
    if there == 0 {
        return 0;
    }
    let at = (begin + (frame % (2 * there)) * speed) % (2 * there);
    (at.min(2 * there - at) / STEPS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 256;
    const HEIGHT: usize = 192;

    /// The checksum that `graphs/detect/train.py` asserts as well.
    const CHECKSUM: u64 = 0x0A63_C8C8_8C0A_C248;

    fn scene(seed: u64, frame: u64) -> (Vec<u8>, Vec<[f32; 6]>) {
        let mut pixels = vec![0; HEIGHT * WIDTH * 3];
        let mut boxes = [[0.0; 6]; MAX_OBJECTS];
        let count = render(seed, frame, WIDTH, HEIGHT, &mut pixels, &mut boxes);
        (pixels, boxes[..count].to_vec())
    }

    /// Folds bytes into an FNV-1a hash.
    fn fold(hash: u64, bytes: &[u8]) -> u64 {
        bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
    }

    #[test]
    fn scenes_agree_with_the_python_generator() {
        let mut hash = 0xCBF2_9CE4_8422_2325;
        for frame in 0..8 {
            let (pixels, boxes) = scene(7, frame);
            hash = fold(hash, &pixels);
            for value in boxes.iter().flatten() {
                hash = fold(hash, &(*value as u16).to_le_bytes());
            }
        }
        assert_eq!(hash, CHECKSUM, "the checksum is {hash:#018x}");
    }

    #[test]
    fn boxes_are_square_inside_the_frame_and_nearly_apart() {
        let mut counts = [0; MAX_OBJECTS + 1];
        let mut classes = [0; 3];
        for frame in 0..200 {
            let (_, boxes) = scene(3, frame);
            counts[boxes.len()] += 1;
            for (i, &[x0, y0, x1, y1, score, class]) in boxes.iter().enumerate() {
                assert!(x0 >= 0.0 && y0 >= 0.0 && x1 <= WIDTH as f32 && y1 <= HEIGHT as f32);
                assert!(x1 - x0 == y1 - y0 && (20.0..=56.0).contains(&(x1 - x0)));
                assert_eq!(score, 1.0);
                classes[class as usize] += 1;
                for &[a0, b0, a1, b1, ..] in &boxes[..i] {
                    let shared = (x1.min(a1) - x0.max(a0)).max(0.0) * (y1.min(b1) - y0.max(b0)).max(0.0);
                    let union = (x1 - x0).powi(2) + (a1 - a0).powi(2) - shared;
                    assert!(shared <= 0.1 * union + 1e-3);
                }
            }
        }
        assert_eq!(counts[0], 0);
        assert!(counts[1..].iter().all(|&count| count > 10), "{counts:?}");
        assert!(classes.iter().all(|&count| count > 50), "{classes:?}");
    }

    #[test]
    fn moving_objects_keep_their_row_and_speed() {
        let moving = |frame| {
            let mut pixels = vec![0; HEIGHT * WIDTH * 3];
            let mut boxes = [[0.0; 6]; MAX_OBJECTS];
            render_moving(11, frame, WIDTH, HEIGHT, &mut pixels, &mut boxes);
            (pixels, boxes)
        };
        let (mut turned, mut before) = ([0; 2 * MAX_OBJECTS], moving(0).1);
        let mut directions = [0.0; 2 * MAX_OBJECTS];
        for frame in 1..600 {
            let (pixels, boxes) = moving(frame);
            // Nothing lies above the last object.
            let [x0, y0, x1, y1, ..] = boxes[MAX_OBJECTS - 1].map(|edge| edge as usize);
            let bottom = &pixels[((y1 - 1) * WIDTH + (x0 + x1) / 2) * 3..][..3];
            assert!(y0 < y1 && bottom.iter().any(|&level| level >= 200), "frame {frame}");
            for (n, (now, then)) in boxes.iter().zip(&before).enumerate() {
                assert!(now[0] >= 0.0 && now[1] >= 0.0 && now[2] <= WIDTH as f32 && now[3] <= HEIGHT as f32);
                assert_eq!((now[2] - now[0], now[4], now[5]), (then[2] - then[0], 1.0, then[5]));
                assert_eq!(now[2] - now[0], now[3] - now[1]);
                for axis in 0..2 {
                    let step = now[axis] - then[axis];
                    assert!(step.abs() <= 3.0, "frame {frame}, object {n}: {step} pixels");
                    let direction = &mut directions[2 * n + axis];
                    if step * *direction < 0.0 {
                        turned[2 * n + axis] += 1;
                    }
                    if step != 0.0 {
                        *direction = step;
                    }
                }
            }
            before = boxes;
        }
        assert!(turned.iter().all(|&turns| turns > 0), "{turned:?}");
        assert_ne!(moving(3).0, moving(4).0);
        // No frame number overflows.
        moving(u64::MAX);
    }

    #[test]
    fn a_lone_object_fills_its_box_to_the_edges() {
        let mut seen = [false; 3];
        for frame in 0..200 {
            let (pixels, boxes) = scene(5, frame);
            let &[[x0, y0, x1, y1, _, class]] = boxes.as_slice() else {
                continue;
            };
            seen[class as usize] = true;
            // The background stays below 96 in every channel, and an object's
            // strong channel starts at 200.
            let bright: Vec<_> = pixels
                .chunks_exact(3)
                .enumerate()
                .filter(|(_, pixel)| pixel.iter().any(|&level| level >= 200))
                .map(|(index, _)| (index % WIDTH, index / WIDTH))
                .collect();
            let columns = bright.iter().map(|&(x, _)| x);
            let rows = bright.iter().map(|&(_, y)| y);
            assert_eq!(columns.clone().min(), Some(x0 as usize));
            assert_eq!(columns.max(), Some(x1 as usize - 1));
            assert_eq!(rows.clone().min(), Some(y0 as usize));
            assert_eq!(rows.max(), Some(y1 as usize - 1));
        }
        assert_eq!(seen, [true; 3]);
    }
}
