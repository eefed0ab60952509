//! Messages of recordings in MCAP files.

use crate::recording::reader::{Progress, Unreadable};
use crate::recording::recorded_clock::RecordedClock;
use crate::recording::survey::{FileReader, OTHER_CLOCK, TopicPorts, begin, open, survey, topic_of};
use crate::recording::topic::Topic;
use limen::message::{MAX_PORTS, PortSpec};
use limen::node::{
    Building, ClockSteps, Connected, Cost, Emit, LossCounter, Many, Metrics, Next, Node, NodeError, OutPort,
    PlanErrors, Planning, Ports, Source,
};
use limen::unit::Span;
use limen::{Folders, Tensor, Time};
use limen_nodes_core::format::excerpt::excerpt;
use limen_nodes_core::pace::RecordedPace;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Sends the messages of an MCAP file, one topic per port. Port `image` reads `/image`, and
/// `camera.image` reads `/camera/image`, unless `topics` assigns another topic.
///
/// From a recording of `record`, the node produces the recorded tensors. In other recordings, such
/// as ROS 2 bags, the node decodes messages with these schemas to tensors:
///
/// `sensor_msgs`: Image (`u8[h,w,3]` and similar), CompressedImage (bytes), Imu, PointCloud2,
/// LaserScan (ranges, `f32[≤n]`), NavSatFix (`f64[3]`, NaN without a fix). Imu is `f64[10]`:
/// orientation, angular velocity, acceleration. If the first message has no orientation, Imu is
/// `f64[6]`. Missing estimates in Imu are NaN. PointCloud2 is `f32[≤n,fields]`: `x y z`, the
/// intensity if present, then the other fields of the first message. If a field has 64-bit floats
/// or 32-bit integers, PointCloud2 is `f64[≤n,fields]`.
///
/// `geometry_msgs`: Vector3, Point (`f64[3]`), Quaternion (`f64[4]`), Pose, Transform (`f64[7]`),
/// Twist, Accel, Wrench (`f64[6]`), Inertia (`f64[10]`), PoseArray (`f64[≤n,7]`), Polygon
/// (`f32[≤n,3]`). The node also decodes the stamped variants of these types, and omits covariances.
///
/// `nav_msgs`: Odometry (`f64[13]`). `std_msgs`: numbers, arrays, String. Foxglove: RawImage,
/// CompressedImage, PointCloud, PoseInFrame, LocationFix. The node sends messages of other schemas
/// as bytes. The node reads chunks compressed with zstd or lz4.
///
/// The first message of a topic determines the dtype and the dims. The longest message in the first
/// 256 MiB of uncompressed data determines the maximum length. The node counts messages that do not
/// fit the output's type (`oversized`), messages that cannot be decoded (`malformed`) and
/// unreadable parts of the file (`unreadable`). The sequence number of a message is the recorded
/// sequence number, or otherwise the message's index in the topic. The origin of a message is the
/// timestamp in the message, or otherwise the message's publish time (see `stamps`).
///
/// If the time of a topic steps back by more than 1 s, the node assumes that the recorded clock was
/// set back. The topic then continues at its previous offset from other topics. A new segment
/// begins, and an event reports the step (`stepped_back`). A topic with a constant recording delay
/// keeps the delay.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ReplayConfig {
    /// The file, relative to the graph's folder.
    pub path: String,
    /// Topics by port, for ports whose names differ from the topic: `{ image: /camera/image_raw }`.
    #[serde(default)]
    pub topics: BTreeMap<String, String>,
    /// Pace of the messages: `original` (default), `max` or a factor such as `2.0`. `max` sends as
    /// fast as the graph accepts messages. With `max`, origins count from the start of the run and
    /// keep their recorded spacing. Nodes that match or measure by origin therefore behave as in
    /// the recording. With `max`, latencies are meaningless.
    #[serde(default)]
    pub pace: RecordedPace,
    /// Origin of a message: the timestamp in the message (`header`), or the time of recording
    /// (`log`). Default: `header`. The node ignores a timestamp that differs from the time of
    /// recording by more than one day.
    #[serde(default)]
    pub stamps: Stamps,
    /// Maximum pause between messages. The node shortens longer pauses to `max_gap`, except with
    /// `pace: max`. Default: `1min`.
    #[serde(default = "max_gap")]
    pub max_gap: Span,
    /// Number of passes over the file. Default: 1.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

fn max_gap() -> Span {
    Span(Duration::from_secs(60))
}

/// Origin of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stamps {
    /// The timestamp in the message.
    #[default]
    Header,
    /// The time of recording.
    Log,
}

/// Reading a message of this size takes tens of microseconds, which makes the node heavy.
const HEAVY_BYTES: usize = 64 << 10;

/// How much one call reads and unpacks without sending anything, so that it takes some
/// milliseconds.
const READ_AT_ONCE: u64 = 4 << 20;

/// What reading came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplayRead {
    /// A message is ready.
    Message,
    /// There may be more.
    NotYet,
    End,
}

/// A message that is read and not sent.
#[derive(Debug, Clone, Copy)]
struct MessageAhead {
    port: usize,
    channel: u16,
    seq: u64,
    /// When it is due, and its origin, in ns from the start.
    due: u64,
    origin: i128,
    /// Whether a clock was set back before it.
    begins_segment: bool,
}

/// Counters of what was not sent.
#[derive(Debug, Default)]
struct Lost {
    malformed: LossCounter,
    oversized: LossCounter,
    unreadable: LossCounter,
    other_clock: u64,
    gaps: u64,
}

/// Runs `kind: replay`; [`ReplayConfig`] says what it does.
#[derive(Debug)]
pub struct Replay {
    config: ReplayConfig,
    path: PathBuf,
    folders: Folders,
    reader: FileReader,
    ports: Vec<(String, PortSpec)>,
    topics: BTreeMap<u16, Option<(usize, Topic)>>,
    factor: Option<f64>,
    passes: u32,
    start: Option<Time>,
    /// The clocks that gave the log times and the origins of the current pass.
    logs: RecordedClock,
    stamps: RecordedClock,
    /// The continuous log time at which the current pass began, and the latest, in ns since 1970;
    /// what was taken out of gaps.
    first: Option<i128>,
    latest: Option<i128>,
    skipped: i128,
    /// When the current pass began and when the latest message was due, ns from the start.
    pass_start: u64,
    latest_due: u64,
    /// By port: the last sequence number sent, and what to add to those of this pass.
    seqs: Vec<(Option<u64>, u64)>,
    ahead: Option<MessageAhead>,
    lost: Lost,
    steps: ClockSteps,
    unreadable: Unreadable,
    is_done: bool,
}

impl Replay {
    /// Reads up to the next message that can be sent, at most so far that other nodes of the worker
    /// need not wait for long.
    fn read_ahead(&mut self) -> Result<ReplayRead, NodeError> {
        let until = self.reader.work() + READ_AT_ONCE;
        loop {
            let read = self.reader.read_on(until);
            // Every pass finds the same places.
            let (found, counted) = (self.reader.unreadable(), self.lost.unreadable.get());
            let why =
                || found.latest.as_ref().map_or_else(String::new, |(at, why)| format!("from byte {at} on: {why}"));
            self.lost.unreadable.lose(found.places.saturating_sub(counted), why);
            let header = match read.map_err(|error| NodeError::file(&self.path, error))? {
                Progress::Message(header) => header,
                Progress::NotYet => return Ok(ReplayRead::NotYet),
                Progress::End => return Ok(ReplayRead::End),
            };
            let number = header.channel_id;
            if !self.topics.contains_key(&number) {
                let names = self.ports.iter().map(|(name, _)| name.as_str()).collect();
                let ports = TopicPorts { names, topics: &self.config.topics };
                let port = topic_of(&self.reader, number).and_then(|topic| Some((ports.find(&topic.name)?, topic)));
                self.topics.insert(number, port);
            }
            let Some(Some((port, topic))) = self.topics.get(&number) else { continue };
            let (port, spec) = (*port, &self.ports[*port].1);
            let decoded = match topic.decode_for(spec, self.reader.message()) {
                Ok(decoded) if decoded.fits(spec) => decoded,
                Ok(decoded) => {
                    let why = || {
                        format!(
                            "expected {spec}, found {1}{2:?} in a message of {0}",
                            topic.name,
                            decoded.dtype,
                            decoded.shape()
                        )
                    };
                    self.lost.oversized.lose(1, why);
                    continue;
                }
                Err(why) => {
                    let message = self.reader.message();
                    let why = || {
                        let shown = excerpt(message, message.len(), false);
                        format!("a message of {} ({}) is malformed: {why}{shown}", topic.name, topic.schema)
                    };
                    self.lost.malformed.lose(1, why);
                    continue;
                }
            };
            let own = match self.config.stamps {
                Stamps::Header => decoded.stamp.or(Some(header.publish_time).filter(|time| *time > 0)),
                Stamps::Log => None,
            };
            let stamp = own.filter(|stamp| stamp.abs_diff(header.log_time) <= OTHER_CLOCK);
            self.lost.other_clock += u64::from(own.is_some() && stamp.is_none());
            let counts = !topic.is_recorded();
            self.ahead = Some(self.place(
                port,
                number,
                header.sequence,
                counts,
                header.log_time,
                stamp.unwrap_or(header.log_time),
            ));
            return Ok(ReplayRead::Message);
        }
    }

    /// Places a message in time and in the sequence of its port.
    fn place(&mut self, port: usize, channel: u16, sequence: u32, counts: bool, log: u64, stamp: u64) -> MessageAhead {
        let logged = self.logs.place(channel, log, self.latest, None);
        let stamped = self.stamps.place(channel, stamp, Some(logged.time), Some(self.logs.shift));
        // A step of both is one: stamps follow the log.
        let step = logged.step.or(stamped.step);
        if let Some(by) = step {
            self.steps.stepped_back(by);
        }
        let first = *self.first.get_or_insert(logged.time);
        let latest = self.latest.unwrap_or(first);
        let most = i128::from(self.config.max_gap.as_nanos());
        if self.factor.is_some() && logged.time - latest > most {
            self.skipped += logged.time - latest - most;
            self.lost.gaps += 1;
        }
        self.latest = Some(latest.max(logged.time));
        let scaled = |ns: i128| match self.factor {
            Some(factor) if factor != 1.0 => (ns as f64 / factor) as i128,
            _ => ns,
        };
        let since = |time: i128| time - first - self.skipped;
        let due = (scaled(since(logged.time)).clamp(0, i128::from(u64::MAX)) as u64).saturating_add(self.pass_start);
        let origin = scaled(since(stamped.time)) + i128::from(self.pass_start);
        self.latest_due = self.latest_due.max(due);
        let (last, base) = &mut self.seqs[port];
        let seq = match *last {
            _ if !counts && last.is_none_or(|last| last < *base) => *base + u64::from(sequence),
            // The file has the last 32 bits.
            Some(last) if !counts => {
                let ahead = sequence.wrapping_sub((last - *base) as u32);
                if ahead < 1 << 31 { last + u64::from(ahead) } else { *base + u64::from(sequence) }
            }
            last => last.map_or(0, |last| last + 1),
        };
        *last = Some(seq);
        MessageAhead { port, channel, seq, due, origin, begins_segment: step.is_some() }
    }

    /// Begins the next pass. Returns whether there is one.
    fn rewind(&mut self) -> Result<bool, NodeError> {
        let unreadable = self.reader.unreadable();
        if self.unreadable.places == 0 && !self.unreadable.is_cut {
            self.unreadable = unreadable.clone();
        }
        self.passes = self.passes.saturating_sub(1);
        // A file without messages would be read again and again.
        if self.passes == 0 || self.first.is_none() {
            return Ok(false);
        }
        let again = self.folders.open(&self.config.path).map_err(std::io::Error::from);
        self.reader = again.and_then(begin).map_err(|error| NodeError::file(&self.path, error))?;
        self.topics.clear();
        (self.first, self.latest, self.skipped, self.pass_start) = (None, None, 0, self.latest_due);
        (self.logs, self.stamps) = Default::default();
        for (last, base) in &mut self.seqs {
            *base = last.map_or(*base, |last| last + 1);
        }
        Ok(true)
    }

    fn send(&mut self, ahead: MessageAhead, start: Time, out: &mut Emit<Many<Tensor>>) -> Result<(), NodeError> {
        let origin = (i128::from(start.0) + ahead.origin).clamp(1, i128::from(Time::NEVER.0 - 1)) as u64;
        let mut header = out.header(Time(origin));
        header.seq = ahead.seq;
        header.trace = header.trace >> 48 << 48 | ahead.seq & ((1 << 48) - 1);
        let port = &mut out[ahead.port];
        if !port.is_connected() {
            return Ok(());
        }
        let mut tensor = port.loan(&header)?;
        if let Some(Some((_, topic))) = self.topics.get(&ahead.channel)
            && let Ok(decoded) = topic.decode_for(&self.ports[ahead.port].1, self.reader.message())
        {
            decoded.write(&mut tensor)?;
            port.send(tensor);
        }
        Ok(())
    }
}

impl Node for Replay {
    type Config = ReplayConfig;

    fn ports(config: &ReplayConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "`repeat` must be at least 1, got 0").help("write 1 or more");
        }
        let mut ports = config.pace.declare(Ports::new().cost(Cost::Medium).routes());
        let is_asked = given.outputs().next().is_some();
        let opened = open(&config.path, cx.folders);
        let surveyed = opened.and_then(|(path, mut reader)| {
            let problem = |error| {
                (format!("`{}`: {error}", path.display()), "write the path of a file that can be read".to_string())
            };
            let mut names: Vec<String> = given.outputs().map(str::to_string).collect();
            if names.is_empty() {
                // `from: bag` takes the only topic, or is told which there are.
                let none = TopicPorts { names: Vec::new(), topics: &config.topics };
                names = survey(&mut reader, &none).map_err(problem)?.ports(&config.topics);
                reader = open(&config.path, cx.folders)?.1;
            }
            let wanted = TopicPorts { names: names.iter().map(String::as_str).collect(), topics: &config.topics };
            let survey = survey(&mut reader, &wanted).map_err(problem)?;
            Ok((names, survey))
        });
        let (names, survey) = match surveyed {
            Ok(surveyed) => surveyed,
            Err((message, help)) => {
                errors.at("path", message).help(help);
                return errors.into_result(ports);
            }
        };
        for (port, topic) in &config.topics {
            if !survey.topics.contains_key(topic) && survey.is_whole {
                errors
                    .at(format!("topics.{port}"), format!("expected a topic with messages, found `{topic}`"))
                    .help(format!("write a topic of the file: {}", survey.list()));
            }
        }
        let (mut total, mut largest) = (0, 0);
        for (port, seen) in names.iter().zip(&survey.ports).take(MAX_PORTS) {
            match (&seen.spec, &seen.malformed) {
                (Some(spec), _) => {
                    ports = ports.out_port(OutPort {
                        name: port.to_string(),
                        spec: Some(spec.clone()),
                        emits: 1,
                        rows: 1,
                        forwards: Vec::new(),
                    });
                    ports = ports.note(format!("`{port}`: {} ({}), {spec}", seen.topic, seen.schema));
                    largest = largest.max(spec.max_bytes().unwrap_or(0));
                    total += seen.messages;
                    if seen.is_unknown {
                        ports = ports.notice(format!(
                            "sends messages of {} as bytes: the schema {} is unknown",
                            seen.topic, seen.schema
                        ));
                    }
                    if seen.has_other_clock && config.stamps == Stamps::Header {
                        ports = ports.notice(format!(
                            "ignores timestamps of {} that differ from the log time by more than a day: write `stamps: log` to ignore all timestamps",
                            seen.topic
                        ));
                    }
                }
                // Nothing takes it.
                (None, _) if !is_asked => {}
                (None, Some(why)) => {
                    let message = format!("no message of {} ({}) can be read: {why}", seen.topic, seen.schema);
                    errors.at("path", message).help("connect another output");
                }
                (None, None) if config.topics.get(port).is_some_and(|topic| !survey.topics.contains_key(topic)) => {}
                (None, None) => {
                    errors.node(format!("expected an output for a topic with messages, found `{port}`")).help(format!(
                        "connect an output of the file ({}), or write `topics: {{ {port}: /some/topic }}`",
                        survey.list()
                    ));
                }
            }
        }
        if let Some((at, why)) = &survey.unreadable.first {
            let Unreadable { bytes, places, .. } = &survey.unreadable;
            ports = ports.notice(format!(
                "cannot read {bytes} bytes of `{}` (places: {places}, first at byte {at}: {why})",
                config.path
            ));
        } else if survey.unreadable.is_cut {
            ports = ports
                .notice(format!("reads `{}`, which has no index because the recording was not finished", config.path));
        }
        if survey.is_whole {
            ports = ports.total(total.saturating_mul(u64::from(config.repeat)));
        }
        if largest >= HEAVY_BYTES {
            ports = ports.cost(Cost::Heavy);
        }
        errors.into_result(ports)
    }

    fn build(config: ReplayConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let (path, reader) =
            open(&config.path, cx.folders()).map_err(|(message, _)| NodeError::input(&*config.path, message))?;
        let mut ports = Vec::new();
        for (name, spec) in cx.outputs() {
            let unknown = || NodeError::input(&**name, "the shape is unknown during planning");
            ports.push((name.clone(), spec.clone().ok_or_else(unknown)?));
        }
        Ok(Replay {
            path,
            folders: cx.folders().clone(),
            reader,
            seqs: vec![(None, 0); ports.len()],
            ports,
            topics: BTreeMap::new(),
            factor: config.pace.factor(),
            passes: config.repeat,
            start: None,
            logs: RecordedClock::default(),
            stamps: RecordedClock::default(),
            first: None,
            latest: None,
            skipped: 0,
            steps: cx.clock_steps(),
            pass_start: 0,
            latest_due: 0,
            ahead: None,
            lost: Lost {
                malformed: cx.lost("malformed"),
                oversized: cx.lost("oversized"),
                unreadable: cx.lost("unreadable"),
                ..Lost::default()
            },
            unreadable: Unreadable::default(),
            is_done: false,
            config,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        let Lost { other_clock, gaps, .. } = &self.lost;
        let now = self.reader.unreadable();
        let unreadable = if now.places > self.unreadable.places { now } else { &self.unreadable };
        to.set("unreadable_bytes", unreadable.bytes as f64);
        if let Some((at, why)) = &unreadable.first {
            let Unreadable { bytes, places, .. } = unreadable;
            to.note(format!("unreadable bytes of the file: {bytes} (places: {places}, first at byte {at}: {why})"));
        }
        if *other_clock > 0 {
            to.note(format!(
                "timestamps ignored because they differ from the log time by more than a day: {other_clock}"
            ));
        }
        let steps = self.steps.get();
        if steps > 0 {
            to.note(format!("new segments because the recorded time steps back by more than a second: {steps}"));
        }
        if *gaps > 0 {
            let (s, were) = if *gaps == 1 { ("", "was") } else { ("s", "were") };
            to.note(format!("{gaps} gap{s} longer than {:?} {were} shortened", self.config.max_gap.0));
        }
    }
}

impl Source for Replay {
    type Out = Many<Tensor>;

    fn next(&mut self, out: &mut Emit<Many<Tensor>>) -> Result<Next, NodeError> {
        if self.is_done {
            return Ok(Next::Done);
        }
        if self.ahead.is_none() {
            let read = self.read_ahead();
            let again = match read {
                Ok(ReplayRead::Message) => Ok(true),
                Ok(ReplayRead::NotYet) => return Ok(Next::More),
                Ok(ReplayRead::End) => self.rewind(),
                Err(error) => Err(error),
            };
            self.is_done = !matches!(again, Ok(true));
            if !again? {
                return Ok(Next::Done);
            }
        }
        let Some(ahead) = self.ahead else {
            out.begin_segment();
            return Ok(Next::More);
        };
        let start = *self.start.get_or_insert(out.now());
        if self.factor.is_some() {
            let due = start + ahead.due;
            if due > out.now() && due > out.clock() {
                return Ok(Next::At(due));
            }
        }
        self.ahead = None;
        if ahead.begins_segment {
            out.begin_segment();
        }
        self.send(ahead, start, out)?;
        Ok(Next::More)
    }
}
