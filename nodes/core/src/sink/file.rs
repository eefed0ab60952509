//! Messages as lines or records of a file.

use crate::file::output_file::{self, Exists, FullDisk, MessageEnd, OnFull, OutputFile};
use crate::stream::{self, Framing};
use limen::message::PortSpec;
use limen::node::{Building, Connected, Cost, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Writes the bytes of every message to a file.
///
/// A `file` source with the same `framing` reads the file back. Elements of more than one byte are
/// written in little-endian order.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct FileSinkConfig {
    /// Path of the file, relative to the graph's folder or to the folder given with `--out`. If the
    /// last folder of the path does not exist, the node creates it.
    pub path: String,
    /// Action if the file already exists. Default: `replace`.
    #[serde(default)]
    pub exists: Exists,
    /// Action if the disk is full. Default: `drop`.
    #[serde(default)]
    pub on_full: OnFull,
    /// How messages are separated in the byte stream. Default: `lines`.
    #[serde(default)]
    pub framing: Framing,
}

/// Runs `kind: file`; [`FileSinkConfig`] says what it does.
#[derive(Debug)]
pub struct FileSink {
    file: OutputFile,
    framing: Framing,
    frame: Vec<u8>,
}

impl Node for FileSink {
    type Config = FileSinkConfig;

    fn ports(config: &FileSinkConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let ports = stream::takes_bytes(given, config.framing, &mut errors).cost(Cost::Medium);
        let ports = output_file::plan(&config.path, config.exists, cx, ports, &mut errors);
        errors.into_result(ports)
    }

    fn build(config: FileSinkConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let mut file = OutputFile::open(cx.folders(), &config.path, config.exists, FullDisk::new(config.on_full, cx))?;
        match (config.framing, config.framing.delimiter()) {
            (Framing::Length | Framing::LengthLe, _) => {
                file.resume(MessageEnd::Length { is_big: config.framing == Framing::Length })?;
            }
            (_, Some(mark)) => file.resume(MessageEnd::Mark(mark))?,
            (Framing::Fixed, None) => {
                let spec = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
                if let Some(bytes) = spec.and_then(PortSpec::max_bytes) {
                    file.resume(MessageEnd::Size(bytes as u64))?;
                }
            }
            // Nothing in the file says where its messages end.
            (_, None) => {}
        }
        Ok(FileSink { file, framing: config.framing, frame: Vec::new() })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("messages", self.file.messages() as f64);
        self.file.metrics(to);
    }
}

impl Sink for FileSink {
    type In = Tensor;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        self.frame.clear();
        self.framing.write(input.body.bytes(), &mut self.frame)?;
        self.file.write(&self.frame)?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NodeError> {
        self.file.flush()
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        self.file.finish()
    }
}
