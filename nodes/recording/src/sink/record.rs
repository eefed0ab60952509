//! Recordings of edges as MCAP files.

use crate::recording::inputs::{InputTopics, TopicConfig};
use crate::recording::meaning::Schemas;
use crate::recording::reader::MAX_RECORD;
use crate::recording::writer::{RecordingWriter, Rotation};
use limen::node::{
    Building, Connected, Cost, Metrics, Node, NodeError, OneOf, Picked, PlanErrors, Planning, Ports, Progress, Sink,
};
use limen::unit::{Bytes, Span, show_ns};
use limen::{Clock, Tensor, Time};
use limen_nodes_core::file::output_file::{self, Exists, FullDisk, OnFull};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Records the node's inputs to an MCAP file. Inputs may have any names. Each input is a topic:
/// `/image` for the input `image`, `/camera/image` for `camera.image`.
///
/// Images, texts and numbers have schemas that Foxglove and the MCAP libraries read. For other
/// tensors, `as` assigns the meaning. The log time of a message is the time at which this node
/// reads the message. The publish time of a message is the message's origin. Without `capacity`, an
/// input queues at most 4096 messages and 64 MiB.
///
/// If the process ends abnormally, the file lacks at most the last 1 s or 4 MiB of messages,
/// whichever is less. `limen-run recover` then writes the missing index. The node never overwrites
/// a file: if `drive.mcap` exists, the node writes `drive-0002.mcap`. If the write of a chunk
/// fails, the node counts the messages of the chunk as lost (`unwritten` or `disk_full`). A chunk
/// has at most 1 MiB plus one message. With `on_error: skip`, or while the disk is full, the node
/// tries a new file once a second.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct RecordConfig {
    /// The file, such as `out/drive.mcap`, relative to the graph's folder or to the folder given
    /// with `--out`. The node creates the last folder of the path.
    pub path: String,
    /// What to do with a file that already exists. Default: `number`.
    #[serde(default)]
    pub exists: ExistsRecording,
    /// What to do when the disk is full. Default: `drop`.
    #[serde(default)]
    pub on_full: OnFull,
    /// Message schemas. Default: `foxglove`.
    #[serde(default)]
    pub schemas: Schemas,
    /// Topic, meaning and frame of inputs, by input name: `{ boxes: { as: boxes }, imu: { topic:
    /// /imu/data, as: imu, frame: base } }`. `as` accepts the following values. `image`: `u8[h,w]`
    /// or `u8[h,w,3]`. `compressed_image`: the bytes of an image file. `imu`: `[6]` with angular
    /// velocity and acceleration, or `[10]` with the orientation first. `point_cloud`: `f32[n,3]`
    /// or more columns. `boxes`: `f32[n,6]`. `pose`: `[7]` with position and orientation.
    /// `location`: `f64[3]` with latitude, longitude and altitude. `scan`: ranges `f32[n]`, with
    /// `angles: [from, to]` and optionally `ranges: [least, most]`. `twist`: `[6]` with linear and
    /// angular velocity. `wrench`: `[6]` with force and torque. `vector`: `[3]`. `values`: any
    /// tensor.
    #[serde(default)]
    pub topics: BTreeMap<String, TopicConfig>,
    /// Size at which the node begins a new file, such as `1GiB`, at least `1MiB`. By default, the
    /// node begins a new file after 65536 chunks. A chunk contains 0.5 s or 1 MiB of messages.
    pub max_size: Option<Bytes>,
    /// Duration after which the node begins a new file, such as `10min`, at least `1s`. Default:
    /// unlimited.
    pub max_time: Option<Span>,
}

/// What to do with a file that already exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExistsRecording {
    /// Write another file with the next free number: `drive-0002.mcap`.
    #[default]
    Number,
    /// Reject the graph.
    Fail,
}

/// How many bytes of messages an input holds by default, so that a disk may stall.
const BUFFERED: usize = 64 << 20;
/// The largest message: a reader takes chunks of [`MAX_RECORD`], and a chunk has up to 1 MiB beside
/// it.
const MAX_MESSAGE: usize = MAX_RECORD - (4 << 20);
/// The smallest file that is followed by another.
const SMALLEST_FILE: u64 = 1 << 20;

/// Runs `kind: record`; [`RecordConfig`] says what it does.
#[derive(Debug)]
pub struct RecordNode {
    writer: RecordingWriter,
    clock: Clock,
    /// What to add to a time of the run for that of the wall clock.
    offset: u64,
}

impl RecordConfig {
    fn inputs(&self) -> InputTopics<'_> {
        InputTopics { topics: &self.topics, schemas: self.schemas }
    }

    fn check(&self, given: &Connected, errors: &mut PlanErrors) {
        self.inputs().check(given, errors);
        if let Some(size) = self.max_size.filter(|size| size.0 < SMALLEST_FILE) {
            errors
                .at("max_size", format!("`max_size` must be at least 1MiB, got {}B", size.0))
                .help("write 1MiB or more");
        }
        if let Some(time) = self.max_time.filter(|time| time.as_nanos() < 1_000_000_000) {
            errors
                .at("max_time", format!("`max_time` must be at least 1s, got {}", show_ns(time.as_nanos())))
                .help("write 1s or more");
        }
    }
}

impl Node for RecordNode {
    type Config = RecordConfig;

    fn ports(config: &RecordConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        config.check(given, &mut errors);
        let mut ports = Ports::new().cost(Cost::Medium).buffers(BUFFERED);
        let (mut largest, mut inputs) = (0, 0);
        for (name, spec) in given.inputs() {
            ports = match spec {
                Some(spec) => ports.input(name, spec.clone()),
                None => ports.input_any(name),
            };
            if let Some(spec) = spec {
                let bytes = config.inputs().largest(name, spec);
                if bytes > MAX_MESSAGE {
                    let message =
                        format!("a recorded message must be at most {MAX_MESSAGE} bytes, got {bytes} for {spec}");
                    errors
                        .input(name, message)
                        .help(format!("make the messages of `{name}` smaller upstream, or remove the input `{name}`"));
                }
                largest = bytes.max(largest);
            }
            inputs += 1;
        }
        if config.exists == ExistsRecording::Fail
            && cx.folders.output(&config.path).is_ok_and(|path| path.symlink_metadata().is_ok())
        {
            let message = format!("`{}` already exists", config.path);
            errors.at("path", message).help(format!("remove `{}`, or write `exists: number`", config.path));
        }
        let mut ports = ports.memory(RecordingWriter::memory(largest, inputs));
        if config.max_time.is_some() {
            ports = ports.by_clock("max_time");
        }
        let ports = output_file::plan(&config.path, Exists::Append, cx, ports, &mut errors);
        errors.into_result(ports)
    }

    fn build(config: RecordConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let channels = config.inputs().channels(cx)?;
        let metadata = BTreeMap::from([
            ("run".to_string(), cx.run_id().to_string()),
            ("node".to_string(), cx.node().to_string()),
            ("version".to_string(), env!("CARGO_PKG_VERSION").to_string()),
        ]);
        let rotation = Rotation { size: config.max_size, time: config.max_time };
        let must_be_new = config.exists == ExistsRecording::Fail;
        let (folders, now) = (cx.folders(), cx.now().0);
        let mut writer = RecordingWriter::new(folders, &config.path, must_be_new, rotation, channels, metadata, now)?;
        writer.full = FullDisk::new(config.on_full, cx);
        Ok(RecordNode { writer, offset: cx.wall_offset(), clock: cx.clock() })
    }

    fn metrics(&self, to: &mut Metrics) {
        let writer = &self.writer;
        to.set("recorded", writer.messages as f64);
        to.set("bytes", writer.bytes as f64);
        to.set("files", writer.file_count as f64);
        let mut paths: Vec<String> = writer.files.iter().map(|path| path.display().to_string()).collect();
        if writer.file_count > paths.len() as u64 {
            paths.push(format!("{} more", writer.file_count - paths.len() as u64));
        }
        to.note(format!("recorded {} messages to {}", writer.messages, paths.join(", ")));
    }
}

impl Sink for RecordNode {
    type In = OneOf<Tensor>;
    const WAITS: bool = true;

    fn take(&mut self, input: Picked<Tensor>) -> Result<(), NodeError> {
        let now = self.clock.now().0;
        let header = input.message.header();
        let (seq, stamp) = (header.seq, header.origin.0.saturating_add(self.offset));
        let log_time = now.saturating_add(self.offset);
        self.writer.write(input.input, &input.message.body, seq, stamp, log_time, now)
    }

    fn progress(&mut self) -> Result<Progress, NodeError> {
        self.writer.flush_due(self.clock.now().0)?;
        Ok(Progress::Takes(Time(self.writer.due())))
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        self.writer.finish(self.clock.now().0)
    }
}
