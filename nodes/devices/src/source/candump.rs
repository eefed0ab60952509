//! Frames of logs of `candump`.

use crate::stream::can_frame::{self, CLASSIC, FD};
use limen::Tensor;
use limen::files::InputFile;
use limen::message::{Content, DType, Dim, PortSpec};
use limen::node::{
    Building, ClockSteps, Connected, Cost, Emit, LossCounter, Metrics, Next, Node, NodeError, PlanErrors, Planning,
    Ports, Source,
};
use limen::unit::{Bytes, Span};
use limen_nodes_core::file::input_file;
use limen_nodes_core::pace::{RecordedPace, Timeline};
use limen_nodes_core::stream::framing::Deframer;
use limen_nodes_core::stream::{self, Framing};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{ErrorKind, Read, Seek};
use std::time::Duration;

/// Reads CAN frames from a log of `candump -L` or of the sink `candump`. The output is `frame`
/// `u8[≤16]`, or `u8[≤72]` with `fd`, as in the source `can`.
///
/// The node sends each frame at its recorded time, relative to the first frame. `malformed` counts
/// lines that are not in the format of `candump -L`. Without `fd`, `too_large` counts CAN FD
/// frames. `bus_errors` counts the CAN controller's error frames in the log.
///
/// If the timestamps step back by more than 1 s, the node assumes that the recorded clock was set
/// back. The node then begins a new segment and reports the step as an event (`stepped_back`). The
/// next frame follows after the same interval as the previous frame.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CandumpSourceConfig {
    /// The file, relative to the graph's folder.
    pub path: String,
    /// Interface from which the frames were recorded, such as `can0`. By default, the node sends
    /// the frames of all interfaces.
    pub interface: Option<String>,
    /// Identifiers to send, such as `[0x123, 0x18FEF100]`. The node treats identifiers above 0x7FF
    /// as 29-bit identifiers. By default, the node sends all frames.
    #[serde(default)]
    pub ids: Vec<u32>,
    /// Whether to also send CAN FD frames, with up to 64 bytes of data. Default: `false`.
    #[serde(default)]
    pub fd: bool,
    /// Pace of the frames: `original` (default), `max` or a factor such as `2.0`. `max` sends as
    /// fast as the graph accepts frames. With `max`, origins count from the start of the run and
    /// keep their recorded spacing.
    #[serde(default)]
    pub pace: RecordedPace,
    /// Maximum pause between frames. The node shortens longer pauses to `max_gap`. Default: `1min`.
    #[serde(default = "max_gap")]
    pub max_gap: Span,
    /// Number of passes over the file. Default: 1.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn max_gap() -> Span {
    Span(Duration::from_secs(60))
}

fn one() -> u32 {
    1
}

/// The longest line: the stamp, the interface, and a frame of CAN FD in hexadecimal digits.
const MAX_LINE: usize = 256;

/// A frame that is read and not sent.
#[derive(Debug)]
struct FrameAhead {
    stamp: u64,
    frame: [u8; FD],
    length: usize,
}

/// Runs `kind: candump`; [`CandumpSourceConfig`] says what it does.
#[derive(Debug)]
pub struct CandumpSource {
    config: CandumpSourceConfig,
    file: InputFile,
    lines: Deframer,
    is_read: bool,
    passes: u32,
    timeline: Timeline,
    steps: ClockSteps,
    ahead: Option<FrameAhead>,
    has_sent: bool,
    read: u64,
    malformed: LossCounter,
    number: u64,
    too_large: LossCounter,
    bus_errors: u64,
}

impl CandumpSource {
    fn is_wanted(&self, interface: &str, id: u32) -> bool {
        let plain = id & !can_frame::REMOTE;
        // One above 11 bits is asked for without the flag that says so.
        let is_asked =
            |asked: &u32| plain == if *asked > can_frame::STANDARD { asked | can_frame::EXTENDED } else { *asked };
        self.config.interface.as_deref().is_none_or(|wanted| wanted == interface)
            && (self.config.ids.is_empty() || self.config.ids.iter().any(is_asked))
    }

    /// Reads a line; returns its frame if that is to be sent.
    fn parse(&mut self, line: &[u8]) -> Option<FrameAhead> {
        self.number += 1;
        let parsed = std::str::from_utf8(line).map_err(|_| "expected UTF-8 text").and_then(can_frame::parse_log);
        let (stamp, interface, frame, length) = match parsed {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return None,
            Err(why) => {
                let number = self.number;
                let why = || {
                    let shown: String = String::from_utf8_lossy(line).chars().take(80).collect();
                    format!("line {number}: {why}, found {shown:?}")
                };
                self.malformed.lose(1, why);
                return None;
            }
        };
        let id = can_frame::identifier(&frame);
        if id & can_frame::ERROR != 0 {
            self.bus_errors += 1;
            return None;
        }
        if !self.is_wanted(interface, id) {
            return None;
        }
        if length > CLASSIC && !self.config.fd {
            let number = self.number;
            self.too_large
                .lose(1, || format!("line {number}: found a CAN FD frame: write `fd: true` to send CAN FD frames"));
            return None;
        }
        Some(FrameAhead { stamp, frame, length })
    }

    /// Finds the next frame, or reads on. Returns whether there may be more.
    fn advance(&mut self) -> Result<bool, NodeError> {
        // Bounded: a log may have nothing that is wanted.
        for _ in 0..MAX_LINES {
            let found = match self.lines.take() {
                Some(found) => Some(found),
                None if self.is_read => self.lines.last(),
                None => {
                    match self.file.read(self.lines.space()) {
                        Ok(0) => self.is_read = true,
                        Ok(n) => self.lines.filled(n),
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) => return Err(NodeError::file(self.file.path(), error)),
                    }
                    continue;
                }
            };
            match found {
                Some(Ok(line)) => {
                    let line = self.lines.bytes(line).to_vec();
                    self.ahead = self.parse(&line);
                    if self.ahead.is_some() {
                        return Ok(true);
                    }
                }
                Some(Err(_)) => {
                    self.number += 1;
                    let number = self.number;
                    let why = || format!("line {number}: a line must be at most {MAX_LINE} bytes, got more");
                    self.malformed.lose(1, why);
                }
                None => return self.rewind(),
            }
        }
        Ok(true)
    }

    /// Begins the next pass. Returns whether there is one.
    fn rewind(&mut self) -> Result<bool, NodeError> {
        self.passes = self.passes.saturating_sub(1);
        // A file without frames would be read again and again.
        if self.passes == 0 || !self.has_sent {
            return Ok(false);
        }
        self.file.rewind().map_err(|error| NodeError::file(self.file.path(), error))?;
        self.lines.clear();
        (self.is_read, self.number) = (false, 0);
        self.timeline.rewind(None);
        Ok(true)
    }
}

/// Lines that one call reads.
const MAX_LINES: usize = 1 << 10;

impl Node for CandumpSource {
    type Config = CandumpSourceConfig;

    fn ports(config: &CandumpSourceConfig, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "`repeat` must be at least 1, got 0").help("write 1 or more");
        }
        can_frame::check_ids(&config.ids, &mut errors);
        if let Err((message, help)) = input_file::open(&config.path, cx.folders) {
            errors.at("path", message).help(help);
        }
        let bytes = if config.fd { FD } else { CLASSIC };
        let spec = PortSpec::new(DType::U8, [Dim::AtMost(bytes)]).with_content(Content::Bytes);
        let ports = config.pace.declare(Ports::new()).output("frame", spec).cost(Cost::Medium);
        errors.into_result(ports.memory(stream::buffer(Bytes(MAX_LINE as u64), Framing::Lines)))
    }

    fn build(config: CandumpSourceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(CandumpSource {
            file: cx.folders().open(&config.path)?,
            lines: Deframer::new(Framing::Lines, MAX_LINE),
            is_read: false,
            passes: config.repeat,
            timeline: Timeline::new(config.pace, config.max_gap.as_nanos()),
            steps: cx.clock_steps(),
            ahead: None,
            has_sent: false,
            read: 0,
            malformed: cx.lost("malformed"),
            number: 0,
            too_large: cx.lost("too_large"),
            bus_errors: 0,
            config,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("read", self.read as f64);
        to.set("bus_errors", self.bus_errors as f64);
        let (gaps, steps, path) = (self.timeline.gaps, self.steps.get(), &self.config.path);
        if gaps > 0 {
            let (s, were) = if gaps == 1 { ("", "was") } else { ("s", "were") };
            to.note(format!("{gaps} gap{s} of `{path}` longer than {:?} {were} shortened", self.config.max_gap.0));
        }
        if steps > 0 {
            to.note(format!("new segments because the time of `{path}` steps back by more than a second: {steps}"));
        }
        if self.too_large.get() > 0 {
            to.note("CAN FD frames were lost: write `fd: true` to send CAN FD frames");
        }
    }
}

impl Source for CandumpSource {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.ahead.is_none() {
            let passes = self.passes;
            if !self.advance()? {
                return Ok(Next::Done);
            }
            if self.passes != passes {
                out.begin_segment();
            }
        }
        let Some(ahead) = &self.ahead else { return Ok(Next::More) };
        let origin = match self.timeline.begin(ahead.stamp, out.now(), || out.clock()) {
            Ok(origin) => origin,
            Err(early) => return Ok(early),
        };
        if let Some(by) = self.timeline.step {
            self.steps.stepped_back(by);
            out.begin_segment();
        }
        if let Some(message) = can_frame::message(&ahead.frame[..ahead.length]) {
            stream::send(message, origin, out)?;
            self.read += 1;
        }
        (self.ahead, self.has_sent) = (None, true);
        Ok(Next::More)
    }
}
