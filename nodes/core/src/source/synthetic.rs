//! Generated tensors, for benchmarks, tests and graphs without files.

use crate::pace::Pace;
use crate::pattern::scene::{self, MAX_OBJECTS};
use crate::pattern::{self, Ramp};
use crate::tensor::boxes;
use limen::Tensor;
use limen::message::{DType, Header, MAX_RANK, PortSpec, TensorMut};
use limen::node::{
    Building, Connected, Cost, Emit, Many, Next, Node, NodeError, PlanErrors, Planning, Ports, Room, Source,
};
use limen::unit::Rate;
use schemars::JsonSchema;
use serde::Deserialize;

/// Filling a tensor of this size takes tens of microseconds, which makes the node heavy.
const HEAVY_BYTES: usize = 64 << 10;
/// The smallest side of a scene in pixels: that of its largest object.
const MIN_SCENE: usize = 56;

/// Generates images or plain tensors. The same config produces the same data on every machine.
///
/// `counter` produces `value`. `noise` produces `value` if `shape` is set. Otherwise, the output is
/// `image` `u8[height,width,channels]`. `scenes` and `moving` also produce the ground-truth boxes:
/// `boxes` `f32[≤5,6]`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct SyntheticConfig {
    /// What to generate.
    pub pattern: Pattern,
    /// Width of the images in pixels, at least 56 for `scenes` and `moving`. Required if the output
    /// is `image`.
    pub width: Option<usize>,
    /// Height of the images in pixels, at least 56 for `scenes` and `moving`. Required if the
    /// output is `image`.
    pub height: Option<usize>,
    /// Channels of the images: 1 to 3 for `ramp`, 3 for `scenes` and `moving`, at least 1 for
    /// `noise`. Default: 3.
    pub channels: Option<usize>,
    /// Shape of `value`, for `counter` and `noise`. Default for `counter`: a scalar.
    pub shape: Option<Vec<usize>>,
    /// Element type of `value`. Default: `u64` for `counter`, `u8` for `noise`.
    pub dtype: Option<DType>,
    /// Messages per second, such as `30Hz`. The scheduled time of message `n` is `n` periods after
    /// the first message. The origin of a message is the message's scheduled time, even if the
    /// message is late. By default, the node sends messages as fast as the graph accepts messages.
    pub rate: Option<Rate>,
    /// Number of messages to send. Default: unlimited.
    pub count: Option<u64>,
    /// Seed of `noise`, `scenes` and `moving`. Default: 0.
    #[serde(default)]
    pub seed: u64,
}

/// What to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Moving diagonal sawtooth: ((x·(c+1))/2 + (y·(3−c))/2 + 7·n) mod 256, with integer divisions.
    /// x is the column, y the row, c the channel, and n the sequence number of the message.
    Ramp,
    /// Random numbers. Integers cover the whole range of their type. Floats are in [0, 1).
    Noise,
    /// Squares (class 0), discs (class 1) and triangles (class 2) on a dark background, with their
    /// boxes.
    Scenes,
    /// Five shapes of `scenes` that move in straight lines and turn back at the edges. A row of
    /// `boxes` describes the same shape in every message.
    Moving,
    /// The first element is the sequence number of the message. All other elements are unspecified.
    Counter,
}

impl Pattern {
    /// Whether it draws shapes and sends their boxes.
    fn has_boxes(self) -> bool {
        matches!(self, Pattern::Scenes | Pattern::Moving)
    }

    fn name(self) -> &'static str {
        self.into()
    }
}

impl SyntheticConfig {
    /// Returns the name and the spec of the first output.
    fn spec(&self, errors: &mut PlanErrors) -> (&'static str, PortSpec) {
        let takes_shape = matches!(self.pattern, Pattern::Counter | Pattern::Noise);
        let of_shape = self.pattern == Pattern::Counter || takes_shape && self.shape.is_some();
        let pattern = self.pattern.name();
        let mut forbid = |field: &str, is_there: bool, instead: &str| {
            if is_there {
                errors
                    .at(field, format!("`pattern: {pattern}` accepts {instead}, not `{field}`"))
                    .help(format!("remove `{field}`"));
            }
        };
        if of_shape {
            let instead = "`shape` and `dtype`";
            forbid("width", self.width.is_some(), instead);
            forbid("height", self.height.is_some(), instead);
            forbid("channels", self.channels.is_some(), instead);
            let shape = self.shape.clone().unwrap_or_default();
            for (i, _) in shape.iter().enumerate().filter(|(_, length)| **length == 0) {
                errors.at(format!("shape[{i}]"), "a length must be at least 1, got 0").help("write 1 or more");
            }
            if shape.len() > MAX_RANK {
                let message = format!("a tensor must have at most {MAX_RANK} dims, got {}", shape.len());
                errors.at("shape", message).help("merge dims: write `[6]` instead of `[2, 3]`");
            }
            let default = if self.pattern == Pattern::Counter { DType::U64 } else { DType::U8 };
            return ("value", PortSpec::fixed(self.dtype.unwrap_or(default), shape));
        }
        let instead = "`width`, `height` and `channels`";
        forbid("shape", self.shape.is_some(), instead);
        forbid("dtype", self.dtype.is_some(), instead);
        let least = if self.pattern.has_boxes() { MIN_SCENE } else { 1 };
        let mut side = |field: &str, value: Option<usize>| match value {
            Some(n) if n >= least => n,
            Some(n) => {
                let message = format!("`{field}` must be at least {least} for `pattern: {pattern}`, got {n}");
                errors.at(field, message).help(format!("write {least} or more"));
                least
            }
            None => {
                let other = if takes_shape { ", or `shape: [256]`" } else { "" };
                let message = format!("`pattern: {pattern}` requires `{field}`");
                errors.node(message).help(format!("add `{field}: 256`{other}"));
                least
            }
        };
        let (width, height) = (side("width", self.width), side("height", self.height));
        let channels = self.channels.unwrap_or(3);
        let fits = match self.pattern {
            Pattern::Ramp => (1..=3).contains(&channels),
            Pattern::Scenes | Pattern::Moving => channels == 3,
            Pattern::Noise | Pattern::Counter => channels >= 1,
        };
        if !fits {
            let range = match self.pattern {
                Pattern::Ramp => "1 to 3",
                Pattern::Scenes | Pattern::Moving => "3",
                Pattern::Noise | Pattern::Counter => "at least 1",
            };
            let message = format!("`channels` must be {range} for `pattern: {pattern}`, got {channels}");
            errors.at("channels", message).help("write `channels: 3`");
        }
        ("image", PortSpec::image(height, width, channels))
    }
}

/// Runs `kind: synthetic`; [`SyntheticConfig`] says what it does.
#[derive(Debug)]
pub struct Synthetic {
    draw: PatternDraw,
    pace: Pace,
}

/// How a message is drawn.
#[derive(Debug)]
enum PatternDraw {
    Counter,
    Noise { seed: u64 },
    Ramp(Ramp),
    Scenes { seed: u64, width: usize, height: usize, is_moving: bool, unseen: Vec<u8> },
}

impl Node for Synthetic {
    type Config = SyntheticConfig;

    fn ports(config: &SyntheticConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let (name, spec) = config.spec(&mut errors);
        let bytes = spec.max_bytes();
        if bytes.is_none_or(|n| n > isize::MAX as usize) {
            errors.node(format!("a message must fit into memory, got {spec}")).help("write a smaller size");
        }
        let is_heavy = bytes.is_some_and(|n| n >= HEAVY_BYTES);
        let mut ports = Ports::new().output(name, spec).cost(if is_heavy { Cost::Heavy } else { Cost::Light });
        if config.pattern.has_boxes() {
            ports = ports.output("boxes", boxes::spec(MAX_OBJECTS));
        }
        ports = Pace::declare(config.rate, if config.rate.is_some() { ports.live() } else { ports });
        ports = match config.count {
            Some(count) => ports.total(count),
            None => ports.endless(),
        };
        errors.into_result(ports)
    }

    fn build(config: SyntheticConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        let seed = config.seed;
        let (width, height) = (config.width.unwrap_or(0), config.height.unwrap_or(0));
        let draw = match config.pattern {
            Pattern::Counter => PatternDraw::Counter,
            Pattern::Noise => PatternDraw::Noise { seed },
            Pattern::Ramp => PatternDraw::Ramp(Ramp::new(width, height, config.channels.unwrap_or(3))),
            Pattern::Scenes | Pattern::Moving => {
                let is_moving = config.pattern == Pattern::Moving;
                PatternDraw::Scenes { seed, width, height, is_moving, unseen: Vec::new() }
            }
        };
        Ok(Synthetic { draw, pace: Pace::new(config.rate).at_most(config.count) })
    }
}

impl PatternDraw {
    #[inline(never)]
    fn send(&mut self, header: &Header, out: &mut Emit<Many<Tensor>>) -> Result<(), NodeError> {
        if let PatternDraw::Scenes { seed, width, height, is_moving, unseen } = self {
            let mut rows = [[0.0; boxes::ROW]; MAX_OBJECTS];
            let mut render = |pixels: &mut [u8]| {
                if *is_moving {
                    scene::render_moving(*seed, header.seq, *width, *height, pixels, &mut rows);
                    MAX_OBJECTS
                } else {
                    scene::render(*seed, header.seq, *width, *height, pixels, &mut rows)
                }
            };
            let found = if out[0].is_connected() {
                let mut image = out[0].loan(header)?;
                let found = render(image.bytes_mut());
                out[0].send(image);
                found
            } else {
                unseen.resize(*width * *height * 3, 0);
                render(unseen)
            };
            if out[1].is_connected() {
                let mut truth = out[1].loan(header)?;
                truth.set_len(0, found)?;
                truth.as_mut_slice::<f32>()?.copy_from_slice(rows[..found].as_flattened());
                out[1].send(truth);
            }
            return Ok(());
        }
        let mut tensor = out[0].loan(header)?;
        match self {
            PatternDraw::Ramp(ramp) => ramp.fill(header.seq, tensor.bytes_mut()),
            PatternDraw::Noise { seed } => pattern::noise(*seed, header.seq, &mut tensor)?,
            PatternDraw::Counter | PatternDraw::Scenes { .. } => pattern::count(header.seq, &mut tensor)?,
        }
        out[0].send(tensor);
        Ok(())
    }
}

impl Source for Synthetic {
    type Out = Many<Tensor>;

    // It is called from two places, for messages alone and in bursts.
    #[inline(always)]
    fn next(&mut self, out: &mut Emit<Many<Tensor>>) -> Result<Next, NodeError> {
        let origin = match self.pace.begin(out.now(), || out.clock()) {
            Ok(origin) => origin,
            Err(early) => return Ok(early),
        };
        let header = out.header(origin);
        if let PatternDraw::Counter = self.draw {
            let mut tensor = out[0].loan(&header)?;
            count(&mut tensor, header.seq)?;
            out[0].send(tensor);
        } else {
            self.draw.send(&header, out)?;
        }
        Ok(self.pace.then(out.now()))
    }

    #[inline]
    fn next_burst(&mut self, room: &mut Room<'_, Many<Tensor>>) -> Result<Next, NodeError> {
        let (now, most) = (room.now(), self.pace.at_once());
        if most > 0 && matches!(self.draw, PatternDraw::Counter) {
            let made = room.fill_port(0, most, now, |tensor, seq| {
                self.pace.begin_at_once();
                count(tensor, seq)
            })?;
            if made > 0 {
                return Ok(self.pace.then(now));
            }
        }
        room.each(|out| self.next(out))
    }
}

/// Writes the number of a message.
// Inlined: benchmarks send millions of these per second.
#[inline(always)]
fn count(tensor: &mut TensorMut, seq: u64) -> Result<(), NodeError> {
    match tensor.as_mut_slice::<u64>() {
        Ok(elements) => elements[0] = seq,
        Err(_) => pattern::count(seq, tensor)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &str, expected: &str) {
        let config: SyntheticConfig = serde_json::from_str(config).unwrap();
        let mut errors = PlanErrors::default();
        let (name, spec) = config.spec(&mut errors);
        match errors.into_result(()) {
            Ok(()) => assert_eq!(format!("{name} {spec}"), expected),
            Err(errors) => assert!(format!("{errors:?}").contains(expected), "{errors:?}"),
        }
    }

    #[test]
    fn each_pattern_accepts_its_own_fields() {
        check(r#"{"pattern":"ramp","width":64,"height":48}"#, "image u8[48,64,3]");
        check(r#"{"pattern":"ramp","width":64,"height":48,"channels":1}"#, "image u8[48,64,1]");
        check(
            r#"{"pattern":"ramp","width":64,"height":48,"channels":4}"#,
            "`channels` must be 1 to 3 for `pattern: ramp`, got 4",
        );
        check(r#"{"pattern":"ramp","width":64}"#, "`pattern: ramp` requires `height`");
        check(r#"{"pattern":"ramp","width":64,"height":0}"#, "at least 1");
        check(
            r#"{"pattern":"ramp","width":64,"height":48,"dtype":"f32"}"#,
            "`pattern: ramp` accepts `width`, `height` and `channels`, not `dtype`",
        );
        check(r#"{"pattern":"scenes","width":256,"height":192}"#, "image u8[192,256,3]");
        check(r#"{"pattern":"scenes","width":40,"height":192}"#, "must be at least 56 for `pattern: scenes`, got 40");
        check(r#"{"pattern":"moving","width":256,"height":192}"#, "image u8[192,256,3]");
        check(r#"{"pattern":"moving","width":256,"height":40}"#, "must be at least 56 for `pattern: moving`, got 40");
        check(r#"{"pattern":"noise","width":8,"height":8,"channels":5}"#, "image u8[8,8,5]");
        check(r#"{"pattern":"noise","shape":[3,2],"dtype":"f32"}"#, "value f32[3,2]");
        check(r#"{"pattern":"noise","shape":[3,0]}"#, "shape[1]");
        check(r#"{"pattern":"counter"}"#, "value u64[]");
        check(r#"{"pattern":"counter","shape":[16],"dtype":"u8"}"#, "value u8[16]");
        check(r#"{"pattern":"counter","width":16}"#, "`pattern: counter` accepts `shape` and `dtype`, not `width`");
        check(r#"{"pattern":"counter","shape":[1,1,1,1,1,1,1]}"#, "at most 6 dims, got 7");
    }
}
