//! Frames of a CAN bus as a log.

use crate::stream::can_frame;
use limen::node::{Building, Connected, Cost, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use limen::{Message, Tensor};
use limen_nodes_core::file::output_file::{self, Exists, FullDisk, MessageEnd, OnFull, OutputFile};
use limen_nodes_core::stream::{self, Framing};
use schemars::JsonSchema;
use serde::Deserialize;

/// Writes CAN frames to a log in the format of `candump -L`. Messages have the format of the source
/// `can`.
///
/// `canplayer`, SavvyCAN, `cantools` and python-can read this log format. The timestamp of a line
/// is the origin of the message. If a message is not a valid frame, the call fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CandumpSinkConfig {
    /// The file, relative to the graph's folder or to the folder given with `--out`. The node
    /// creates the last folder of the path.
    pub path: String,
    /// What to do with a file that already exists. Default: `replace`.
    #[serde(default)]
    pub exists: Exists,
    /// What to do when the disk is full. Default: `drop`.
    #[serde(default)]
    pub on_full: OnFull,
    /// Interface name in the lines of the log. Default: `can0`.
    #[serde(default = "interface")]
    pub interface: String,
}

fn interface() -> String {
    "can0".into()
}

/// Runs `kind: candump`; [`CandumpSinkConfig`] says what it does.
#[derive(Debug)]
pub struct CandumpSink {
    file: OutputFile,
    interface: String,
    /// What to add to a time of the run for that of the wall clock.
    offset: u64,
    line: Vec<u8>,
}

impl Node for CandumpSink {
    type Config = CandumpSinkConfig;

    fn ports(config: &CandumpSinkConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        can_frame::check_interface(&config.interface, &mut errors);
        let ports = stream::takes_bytes(given, Framing::Raw, &mut errors).cost(Cost::Medium);
        let ports = output_file::plan(&config.path, config.exists, cx, ports, &mut errors);
        errors.into_result(ports)
    }

    fn build(config: CandumpSinkConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let mut file = OutputFile::open(cx.folders(), &config.path, config.exists, FullDisk::new(config.on_full, cx))?;
        file.resume(MessageEnd::Mark(b'\n'))?;
        Ok(CandumpSink { file, interface: config.interface, offset: cx.wall_offset(), line: Vec::new() })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("rows", self.file.messages() as f64);
        self.file.metrics(to);
    }
}

impl Sink for CandumpSink {
    type In = Tensor;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let stamp = input.header().origin.0.saturating_add(self.offset);
        self.line.clear();
        can_frame::write_log(input.body.bytes(), stamp, &self.interface, &mut self.line)
            .map_err(|why| NodeError::input("a message", why))?;
        self.file.write(&self.line)?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NodeError> {
        self.file.flush()
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        self.file.finish()
    }
}
