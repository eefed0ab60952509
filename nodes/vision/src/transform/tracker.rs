//! The same object from frame to frame.

use crate::tensor::assignment::Assignment;
use limen::message::{DType, Dim, PortSpec};
use limen::node::{
    Building, Connected, Cost, Emit, Metrics, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform,
};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::boxes::{self, BoxRow, ROW};
use schemars::JsonSchema;
use serde::Deserialize;

/// Tracks objects from frame to frame: boxes `f32[≤n,6]` to `boxes` `f32[≤n,6]` and `ids`
/// `u32[≤n]`. Row `n` of `ids` is the id of the object in row `n` of `boxes`.
///
/// Each track has a constant-velocity Kalman filter for the centre and the sides of its box. The
/// node matches boxes to the predicted boxes of tracks. The matching maximizes the total
/// intersection over union. The algorithm is SORT (Bewley et al., 2016). An unmatched box begins a
/// new track.
///
/// The node sends a track once the track has matched `confirm` consecutive frames. The sent box is
/// the output of the Kalman filter. The score and the class of the sent box are those of the
/// matched box. The node does not send a track in a frame without a match. A sent track ends after
/// `max_age` frames without a match. A track that was never sent ends after one frame without a
/// match. The node detects lost frames by gaps in sequence numbers. Lost frames count towards
/// `max_age`. The node ignores boxes that are NaN, infinite or without an area, and counts them
/// (`unusable`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct TrackerConfig {
    /// Minimum intersection over union of a box and the predicted box of a track. Default: 0.3.
    #[serde(default = "iou")]
    pub iou: f32,
    /// Number of consecutive matched frames before the node sends a track. With `confirm: 1`, the
    /// node sends a track in its first frame. Default: 3.
    #[serde(default = "confirm")]
    pub confirm: u32,
    /// Number of frames without a match after which a sent track ends. Default: 30.
    #[serde(default = "max_age")]
    pub max_age: u32,
    /// Whether a track may match a box of a different class. Default: `false`.
    #[serde(default)]
    pub across_classes: bool,
    /// Maximum number of boxes per frame, at most 300. The node uses the boxes with the highest
    /// scores. Default: 100.
    #[serde(default = "max_boxes")]
    pub max_boxes: usize,
}

fn iou() -> f32 {
    0.3
}

fn confirm() -> u32 {
    3
}

fn max_age() -> u32 {
    30
}

fn max_boxes() -> usize {
    100
}

/// Upper bound of `max_boxes`: the time that the choice of pairs takes grows with its third power.
const MAX_BOXES: usize = 300;

/// How uncertain the position of a box is from frame to frame, and its velocity, as parts of the
/// box's sides. Those of DeepSORT (Wojke and others, 2017).
const POSITION: f64 = 1.0 / 20.0;
const VELOCITY: f64 = 1.0 / 160.0;

/// A position and its velocity a frame, each with its uncertainty: a Kalman filter (Kalman, 1960)
/// of two states.
#[derive(Debug, Clone, Copy)]
struct Moving {
    at: f64,
    velocity: f64,
    /// Variances of both, and their covariance.
    variances: [f64; 2],
    covariance: f64,
}

impl Moving {
    fn new(at: f64, side: f64) -> Moving {
        let variances = [(2.0 * POSITION * side).powi(2), (10.0 * VELOCITY * side).powi(2)];
        Moving { at, velocity: 0.0, variances, covariance: 0.0 }
    }

    /// Goes on by so many frames.
    fn predict(&mut self, frames: f64, side: f64) {
        let [position, velocity] = self.variances;
        self.at += self.velocity * frames;
        let noise = [(POSITION * side).powi(2) * frames, (VELOCITY * side).powi(2) * frames];
        self.variances =
            [position + frames * (2.0 * self.covariance + frames * velocity) + noise[0], velocity + noise[1]];
        self.covariance += frames * velocity;
    }

    /// Takes a position that was measured.
    fn update(&mut self, measured: f64, side: f64) {
        let [position, velocity] = self.variances;
        let sum = position + (POSITION * side).powi(2);
        let gains = [position / sum, self.covariance / sum];
        let off = measured - self.at;
        self.at += gains[0] * off;
        self.velocity += gains[1] * off;
        self.variances = [position * (1.0 - gains[0]), velocity - gains[1] * self.covariance];
        self.covariance *= 1.0 - gains[0];
    }
}

/// An object that is followed.
#[derive(Debug, Clone)]
struct Track {
    id: u32,
    /// The middle of the box and its sides.
    parts: [Moving; 4],
    score: f32,
    class: f32,
    /// Frames in a row with a box, and frames since the last one.
    hits: u32,
    missed: u32,
    is_confirmed: bool,
}

/// Middle and sides of a box, and what errors are measured by along each.
fn parts_of(row: &BoxRow) -> [f64; 4] {
    let [left, top, right, bottom, ..] = row.map(f64::from);
    [(left + right) / 2.0, (top + bottom) / 2.0, right - left, bottom - top]
}

impl Track {
    fn new(id: u32, row: &BoxRow) -> Track {
        let parts = parts_of(row);
        let sides = [parts[2], parts[3], parts[2], parts[3]];
        let parts = std::array::from_fn(|at| Moving::new(parts[at], sides[at]));
        Track { id, parts, score: row[4], class: row[5], hits: 1, missed: 0, is_confirmed: false }
    }

    fn sides(&self) -> [f64; 4] {
        // A side that shrinks to nothing would make its filter certain.
        let [width, height] = [2, 3].map(|at: usize| self.parts[at].at.max(1e-3));
        [width, height, width, height]
    }

    fn predict(&mut self, frames: f64) {
        let sides = self.sides();
        self.parts.iter_mut().zip(sides).for_each(|(part, side)| part.predict(frames, side));
    }

    fn update(&mut self, row: &BoxRow) {
        let sides = self.sides();
        for ((part, measured), side) in self.parts.iter_mut().zip(parts_of(row)).zip(sides) {
            part.update(measured, side);
        }
        (self.score, self.class, self.hits, self.missed) = (row[4], row[5], self.hits.saturating_add(1), 0);
    }

    /// The box that it has, or is expected to have.
    fn row(&self) -> BoxRow {
        let [x, y, ..] = self.parts.map(|part| part.at);
        let [width, height, ..] = self.sides();
        let corners =
            [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0].map(|corner| corner as f32);
        [corners[0], corners[1], corners[2], corners[3], self.score, self.class]
    }
}

/// Runs `kind: tracker`; [`TrackerConfig`] says what it does.
#[derive(Debug)]
pub struct Tracker {
    config: TrackerConfig,
    tracks: Vec<Track>,
    /// The boxes of the frame, and those that no track took.
    boxes: Vec<BoxRow>,
    is_taken: Vec<bool>,
    expected: Vec<BoxRow>,
    pairs: Vec<(usize, usize)>,
    /// The overlap of each track and box.
    overlaps: Vec<f32>,
    assignment: Assignment,
    next: u32,
    /// The number of the message before.
    seq: Option<u64>,
    unusable: u64,
    refused: u64,
}

impl Tracker {
    fn new(config: TrackerConfig) -> Tracker {
        let most = config.max_boxes;
        Tracker {
            tracks: Vec::with_capacity(2 * most),
            boxes: Vec::with_capacity(most),
            is_taken: Vec::with_capacity(most),
            expected: Vec::with_capacity(2 * most),
            pairs: Vec::with_capacity(most),
            overlaps: Vec::with_capacity(2 * most * most),
            assignment: Assignment::new(2 * most),
            next: 1,
            seq: None,
            unusable: 0,
            refused: 0,
            config,
        }
    }

    /// Takes the boxes of a frame, so many frames after the one before.
    fn frame(&mut self, rows: &[BoxRow], frames: u32) {
        let is_usable = |row: &BoxRow| row.iter().all(|n| n.is_finite()) && row[2] > row[0] && row[3] > row[1];
        self.boxes.clear();
        for row in rows {
            match is_usable(row) {
                false => self.unusable += 1,
                true if self.boxes.len() < self.config.max_boxes => self.boxes.push(*row),
                // The one with the lowest score makes room for a better one.
                true => {
                    let lowest = self.boxes.iter_mut().min_by(|a, b| a[4].total_cmp(&b[4]));
                    if let Some(lowest) = lowest.filter(|lowest| lowest[4] < row[4]) {
                        *lowest = *row;
                    }
                    self.refused += 1;
                }
            }
        }
        // Frames that were lost are frames without a box.
        let lost = frames.saturating_sub(1);
        self.tracks.retain(|track| track.missed.saturating_add(lost) <= self.config.max_age);
        self.tracks.iter_mut().for_each(|track| track.predict(f64::from(frames)));
        self.pair();
        let Tracker { tracks, boxes, is_taken, pairs, config, .. } = self;
        is_taken.clear();
        is_taken.resize(boxes.len(), false);
        for track in tracks.iter_mut() {
            track.missed = track.missed.saturating_add(frames);
        }
        for (track, row) in pairs.iter() {
            is_taken[*row] = true;
            let track = &mut tracks[*track];
            // A frame without a box ends a row of hits, one that was lost does not.
            track.hits = if track.missed > frames { 0 } else { track.hits };
            track.update(&boxes[*row]);
            track.is_confirmed |= track.hits >= config.confirm;
        }
        // One that was not confirmed ends at once.
        tracks.retain(|track| track.missed == 0 || track.is_confirmed && track.missed <= config.max_age);
        for (row, _) in boxes.iter().zip(is_taken.iter()).filter(|(_, is_taken)| !**is_taken) {
            if tracks.len() == 2 * config.max_boxes {
                // The one that has been away longest.
                let oldest = tracks.iter().enumerate().max_by_key(|(_, track)| track.missed).map(|(at, _)| at);
                oldest.map(|at| tracks.remove(at));
            }
            let mut track = Track::new(self.next, row);
            track.is_confirmed = config.confirm <= 1;
            self.next = self.next.checked_add(1).unwrap_or(1);
            tracks.push(track);
        }
    }

    /// Finds the tracks and boxes that belong together.
    fn pair(&mut self) {
        let Tracker { tracks, boxes, expected, pairs, overlaps, assignment, config, .. } = self;
        expected.clear();
        expected.extend(tracks.iter().map(Track::row));
        let overlap = |expected: &BoxRow, row: &BoxRow| {
            let same = config.across_classes || expected[5] == row[5];
            let iou = if same { boxes::iou(expected, row) } else { 0.0 };
            // Below the limit all are the same, so that such a pair costs another nothing.
            if iou >= config.iou { iou } else { 0.0 }
        };
        overlaps.clear();
        for expected in expected.iter() {
            overlaps.extend(boxes.iter().map(|row| overlap(expected, row)));
        }
        let overlap = |track: usize, row: usize| f64::from(overlaps[track * boxes.len() + row]);
        pairs.clear();
        let (n, m) = (expected.len(), boxes.len());
        if n <= m {
            let found = assignment.solve(n, m, |track, row| -overlap(track, row)).enumerate();
            pairs.extend(found.filter_map(|(row, track)| Some((track?, row))));
        } else {
            let found = assignment.solve(m, n, |row, track| -overlap(track, row)).enumerate();
            pairs.extend(found.filter_map(|(track, row)| Some((track, row?))));
        }
        pairs.retain(|(track, row)| overlap(*track, *row) > 0.0);
    }

    /// The tracks that are sent.
    fn sent(&self) -> impl Iterator<Item = &Track> {
        self.tracks.iter().filter(|track| track.is_confirmed && track.missed == 0)
    }
}

impl Node for Tracker {
    type Config = TrackerConfig;

    fn ports(config: &TrackerConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if !(config.iou > 0.0 && config.iou < 1.0) {
            errors
                .at("iou", format!("`iou` must be above 0 and below 1, got {}", config.iou))
                .help("write a number between 0 and 1");
        }
        if !(1..=MAX_BOXES).contains(&config.max_boxes) {
            let message = format!("`max_boxes` must be 1 to {MAX_BOXES}, got {}", config.max_boxes);
            errors.at("max_boxes", message).help("write a number such as 100");
        }
        for (key, value) in [("confirm", config.confirm), ("max_age", config.max_age)] {
            if value == 0 {
                errors.at(key, format!("`{key}` must be at least 1, got 0")).help("write 1 or more");
            }
        }
        let most = config.max_boxes.clamp(1, MAX_BOXES);
        let ids = PortSpec::new(DType::U32, [Dim::AtMost(most)]);
        let output =
            |name: &str, spec| OutPort { name: name.into(), spec: Some(spec), emits: 1, rows: 1, forwards: Vec::new() };
        let ports = Ports::new().input("in", boxes::any_spec(given.single()));
        let ports = ports.out_port(output("boxes", boxes::spec(most))).out_port(output("ids", ids));
        errors.into_result(ports.cost(if most > 50 { Cost::Heavy } else { Cost::Medium }))
    }

    fn build(config: TrackerConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Tracker::new(config))
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("tracks", f64::from(self.next - 1));
        to.set("unusable", self.unusable as f64);
        to.set("refused", self.refused as f64);
    }
}

impl Transform for Tracker {
    type In = Tensor;
    type Out = (Tensor, Tensor);

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        let seq = input.header().seq;
        let before = self.seq.replace(seq);
        let frames = before.map_or(1, |before| seq.saturating_sub(before).clamp(1, u64::from(self.config.max_age) + 1));
        self.frame(boxes::rows(&input.body)?, u32::try_from(frames).unwrap_or(u32::MAX));
        let count = self.sent().count();
        if out.0.is_connected() {
            let mut rows = out.0.loan(input.header())?;
            rows.set_len(0, count)?;
            let numbers = rows.as_mut_slice::<f32>()?.chunks_exact_mut(ROW);
            numbers.zip(self.sent()).for_each(|(to, track)| to.copy_from_slice(&track.row()));
            out.0.send(rows);
        }
        if out.1.is_connected() {
            let mut ids = out.1.loan(input.header())?;
            ids.set_len(0, count)?;
            ids.as_mut_slice::<u32>()?.iter_mut().zip(self.sent()).for_each(|(to, track)| *to = track.id);
            out.1.send(ids);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker(keys: &str) -> Tracker {
        Tracker::new(serde_json::from_str(&format!("{{{keys}}}")).unwrap_or_else(|error| panic!("{keys}: {error}")))
    }

    fn row(x: f32, y: f32, size: f32) -> BoxRow {
        [x - size / 2.0, y - size / 2.0, x + size / 2.0, y + size / 2.0, 0.9, 0.0]
    }

    /// The numbers of the tracks that are sent, and the middles of their boxes.
    fn sent(tracker: &Tracker) -> Vec<(u32, f32, f32)> {
        let each = |track: &Track| (track.id, track.parts[0].at as f32, track.parts[1].at as f32);
        tracker.sent().map(each).collect()
    }

    #[test]
    fn objects_that_pass_each_other_keep_their_numbers() {
        // Two that cross at a distance below their size, one that stands still; every fifth box of
        // the first is missing.
        let mut tracker = tracker(r#""confirm": 1"#);
        let mut random = fastrand::Rng::with_seed(2);
        let places = |t: f32| [(20.0 + 3.0 * t, 50.0), (200.0 - 3.0 * t, 58.0), (100.0, 150.0)];
        let mut first = Vec::new();
        for frame in 0..60u32 {
            let mut order = [0, 1, 2];
            random.shuffle(&mut order);
            let mut noise = || random.f32() - 0.5;
            let rows: Vec<BoxRow> = order
                .into_iter()
                .filter(|object| *object != 0 || frame % 5 != 4)
                .map(|object| {
                    let (x, y) = places(frame as f32)[object];
                    row(x + noise(), y + noise(), 24.0)
                })
                .collect();
            tracker.frame(&rows, 1);
            let found = sent(&tracker);
            assert_eq!(found.len(), rows.len(), "frame {frame}");
            for (id, x, y) in found {
                let near = |(at_x, at_y): (f32, f32)| (at_x - x).hypot(at_y - y);
                let distances = places(frame as f32).map(near);
                let object = (0..3).min_by(|a, b| distances[*a].total_cmp(&distances[*b])).unwrap();
                if frame == 0 {
                    first.push((id, object));
                }
                assert!(first.contains(&(id, object)), "frame {frame}: {id} is {object} of {first:?}");
                assert!(distances[object] < 4.0, "frame {frame}: off by {}", distances[object]);
            }
        }
        assert_eq!(tracker.next, 4);
    }

    #[test]
    fn tracks_are_sent_when_they_are_confirmed_and_end_when_they_are_away() {
        let mut tracker = tracker(r#""confirm": 3, "max_age": 2"#);
        let ids = |tracker: &Tracker| sent(tracker).iter().map(|(id, ..)| *id).collect::<Vec<_>>();
        let seen = [row(10.0, 10.0, 10.0)];
        // Whether the object is seen, how many frames later, and who is sent.
        for (at, (is_seen, frames, expected)) in [
            (true, 1, &[][..]),
            (true, 1, &[]),
            (true, 1, &[1]),
            (false, 1, &[]),
            (false, 1, &[]),
            (true, 1, &[1]),
            // Frames that were lost count, too.
            (false, 3, &[]),
            (true, 1, &[]),
            (false, 1, &[]),
            (true, 1, &[]),
            (true, 1, &[]),
            (true, 1, &[3]),
        ]
        .into_iter()
        .enumerate()
        {
            tracker.frame(if is_seen { &seen } else { &[] }, frames);
            assert_eq!(ids(&tracker), expected, "frame {at}");
        }
    }

    #[test]
    fn frames_that_are_lost_on_the_way_keep_no_track_from_being_sent() {
        let mut tracker = tracker(r#""confirm": 3, "max_age": 5"#);
        let seen = [row(10.0, 10.0, 10.0)];
        for expected in [0, 0, 1, 1] {
            tracker.frame(&seen, 2);
            assert_eq!(sent(&tracker).len(), expected);
        }
        // After more than `max_age` it is another.
        tracker.frame(&seen, 7);
        assert_eq!((sent(&tracker).len(), tracker.next), (0, 3));
    }

    #[test]
    fn classes_scores_and_boxes_that_are_none_are_told_apart() {
        let mut apart = tracker(r#""confirm": 1"#);
        let mut across = tracker(r#""confirm": 1, "across_classes": true"#);
        for tracker in [&mut apart, &mut across] {
            tracker.frame(&[row(10.0, 10.0, 10.0)], 1);
            let mut other = row(10.0, 10.0, 10.0);
            other[5] = 1.0;
            tracker.frame(&[other, [f32::NAN; 6], [5.0, 5.0, 5.0, 9.0, 1.0, 0.0]], 1);
            assert_eq!(tracker.unusable, 2);
        }
        assert_eq!((apart.next, across.next), (3, 2));
        let mut few = tracker(r#""confirm": 1, "max_boxes": 2"#);
        let rows: Vec<BoxRow> = [0.1, 0.5, 0.3, 0.9]
            .into_iter()
            .zip(0u8..)
            .map(|(score, at)| {
                let mut row = row(100.0 * f32::from(at), 0.0, 10.0);
                row[4] = score;
                row
            })
            .collect();
        few.frame(&rows, 1);
        let mut scores: Vec<f32> = few.sent().map(|track| track.score).collect();
        scores.sort_unstable_by(f32::total_cmp);
        assert_eq!((scores, few.refused), (vec![0.5, 0.9], 2));
    }

    #[test]
    fn an_object_of_constant_velocity_is_found_after_frames_without_it() {
        let mut tracker = tracker(r#""confirm": 1, "iou": 0.1"#);
        for frame in 0..40u8 {
            tracker.frame(&[row(4.0 * f32::from(frame), 0.0, 20.0)], 1);
        }
        // Ten frames later it is 40 pixels on, twice its size.
        tracker.frame(&[row(4.0 * 49.0, 0.0, 20.0)], 10);
        assert_eq!(sent(&tracker).iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [1]);
        let velocity = tracker.tracks[0].parts[0].velocity;
        assert!((velocity - 4.0).abs() < 0.2, "{velocity}");
    }
}
