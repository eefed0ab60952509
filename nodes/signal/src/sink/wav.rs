//! Sound as WAV files.

use hound::{SampleFormat, WavSpec, WavWriter};
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use limen::unit::Rate;
use limen::{Message, Tensor};
use limen_nodes_core::file::output_file::{self, Exists, FullDisk, OnFull, OutputFile};
use limen_nodes_core::pace;
use schemars::JsonSchema;
use serde::Deserialize;
use std::cell::RefCell;
use std::io::{self, Seek, SeekFrom, Write};
use std::rc::Rc;

/// Writes sound to a WAV file: `f32[frames,channels]` or `i16[frames,channels]`. A message with a
/// single channel may omit the channel dim.
///
/// A WAV file has at most 4 GiB. A call that would exceed this size fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct WavSinkConfig {
    /// The file, relative to the graph's folder or to the folder given with `--out`. The node
    /// creates the last folder of the path.
    pub path: String,
    /// Frames per second, such as `16kHz`.
    pub sample_rate: Rate,
    /// What to do with a file that already exists: `replace` or `fail`. Default: `replace`.
    #[serde(default)]
    pub exists: Exists,
    /// What to do when the disk is full. Default: `drop`.
    #[serde(default)]
    pub on_full: OnFull,
}

/// Most bytes of samples in a file, leaving room for its header.
const MAX_BYTES: u64 = u32::MAX as u64 - (64 << 10);

/// The file, shared between the WAV writer and the node.
#[derive(Clone, Debug)]
struct SharedFile(Rc<RefCell<OutputFile>>);

impl Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().push(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush().map_err(io::Error::other)
    }
}

impl Seek for SharedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.borrow_mut().seek(to)
    }
}

/// Runs `kind: wav`; [`WavSinkConfig`] says what it does.
pub struct WavSink {
    // Dropped before the file, whose header it completes.
    writer: WavWriter<SharedFile>,
    file: Rc<RefCell<OutputFile>>,
    bytes: u64,
    frame_bytes: u64,
    /// Bytes of the header, whose last four hold the number of bytes of samples.
    header: u64,
}

impl std::fmt::Debug for WavSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} with {} frames", self.file.borrow().path(), self.frames())
    }
}

/// Returns the WAV format for a spec, or the message and the help of an error.
fn sound(spec: &PortSpec, rate: Rate) -> Result<WavSpec, (String, &'static str)> {
    let wrong = |help| Err((format!("expected f32[frames,channels] or i16[frames,channels], found {spec}"), help));
    let (bits_per_sample, sample_format) = match spec.dtype {
        DType::F32 => (32, SampleFormat::Float),
        DType::I16 => (16, SampleFormat::Int),
        _ => return wrong("put a `cast` node upstream of this node"),
    };
    let channels = match spec.shape[..] {
        [_] => 1,
        [_, Dim::Fixed(channels @ 1..=256)] => channels as u16,
        _ => return wrong("connect f32[frames,channels] with 1 to 256 channels"),
    };
    Ok(WavSpec { channels, sample_rate: rate.0 as u32, bits_per_sample, sample_format })
}

impl WavSink {
    /// Brings the sizes in the header up to date with what is written, without seeking: unwritten
    /// samples stay pending at the end of the file.
    fn update_header(&self) -> Result<(), NodeError> {
        let mut file = self.file.borrow_mut();
        // While even the header is in the buffer, it is right.
        let Some(samples) = file.whole_bytes().checked_sub(self.header) else { return Ok(()) };
        // `MAX_BYTES` keeps the sizes within 32 bits.
        for (at, size) in [(4, samples + self.header - 8), (self.header - 4, samples)] {
            file.overwrite(at, &u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes())?;
        }
        Ok(())
    }

    /// The frames in the file.
    fn frames(&self) -> u64 {
        self.file.borrow().whole_bytes().saturating_sub(self.header) / self.frame_bytes.max(1)
    }

    fn write(&mut self, input: &Tensor) -> Result<(), hound::Error> {
        // Writes go to the buffer of the file and cannot fail.
        if let Ok(samples) = input.as_slice::<f32>() {
            samples.iter().try_for_each(|sample| self.writer.write_sample(*sample))
        } else {
            let samples = input.as_slice::<i16>().unwrap_or_default();
            samples.iter().try_for_each(|sample| self.writer.write_sample(*sample))
        }
    }
}

impl Node for WavSink {
    type Config = WavSinkConfig;

    fn ports(config: &WavSinkConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.exists == Exists::Append {
            errors
                .at("exists", "`exists` must be `replace` or `fail` for a WAV file, got `append`")
                .help("write `exists: replace` or `exists: fail`");
        }
        if let Err(message) = pace::frames_per_second(config.sample_rate) {
            errors.at("sample_rate", message).help("write a rate such as `16kHz`");
        }
        let mut ports = Ports::new().cost(Cost::Medium);
        ports = match given.single() {
            Some(spec) => {
                if let Err((message, help)) = sound(spec, config.sample_rate) {
                    errors.input("in", message).help(help);
                }
                ports.input("in", spec.clone())
            }
            None => ports.input_any("in"),
        };
        let ports = output_file::plan(&config.path, config.exists, cx, ports, &mut errors);
        errors.into_result(ports)
    }

    fn build(config: WavSinkConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let given = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
        let given = given.ok_or_else(|| NodeError::input("in", "the shape of the input is unknown during planning"))?;
        let spec = sound(given, config.sample_rate).map_err(|(message, _)| NodeError::input("in", message))?;
        let file = Rc::new(RefCell::new(OutputFile::open(
            cx.folders(),
            &config.path,
            config.exists,
            FullDisk::new(config.on_full, cx),
        )?));
        let writer = WavWriter::new(SharedFile(file.clone()), spec).map_err(NodeError::other)?;
        let header = file.borrow().buffered_bytes();
        let frame_bytes = u64::from(spec.channels) * u64::from(spec.bits_per_sample / 8);
        Ok(WavSink { writer, file, bytes: 0, frame_bytes, header })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("frames", self.frames() as f64);
        self.file.borrow().metrics(to);
    }
}

impl Sink for WavSink {
    type In = Tensor;

    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let bytes = input.body.bytes().len() as u64;
        if self.bytes + bytes > MAX_BYTES {
            let what = self.file.borrow().path().display().to_string();
            return Err(NodeError::input(
                what,
                "a WAV file must have at most 4 GiB, got more: write `kind: npy` or `kind: file`",
            ));
        }
        if !self.file.borrow_mut().make_room()? {
            return Ok(());
        }
        self.write(&input.body).map_err(NodeError::other)?;
        self.file.borrow_mut().end_message();
        self.bytes += bytes;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NodeError> {
        let flushed = self.file.borrow_mut().flush();
        flushed.and(self.update_header())
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        let settled = self.file.borrow_mut().settle();
        self.update_header()?;
        settled.and(self.file.borrow_mut().finish())
    }
}

impl Drop for WavSink {
    fn drop(&mut self) {
        // The run was interrupted: the header counts only the samples that were written. An error
        // can no longer be reported.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_with_frames_and_channels_is_sound() {
        let rate = Rate(16_000.0);
        for (spec, expected) in [
            (PortSpec::new(DType::F32, [Dim::AtMost(512), Dim::Fixed(2)]), Ok((2, 32))),
            (PortSpec::new(DType::I16, [Dim::AtMost(512)]), Ok((1, 16))),
            (PortSpec::fixed(DType::U8, [512]), Err("put a `cast` node upstream of this node")),
            (PortSpec::fixed(DType::F32, [512, 0]), Err("with 1 to 256 channels")),
            (PortSpec::fixed(DType::F32, []), Err("with 1 to 256 channels")),
        ] {
            match (sound(&spec, rate), expected) {
                (Ok(found), Ok(expected)) => assert_eq!((found.channels, found.bits_per_sample), expected, "{spec}"),
                (Err((message, help)), Err(expected)) => assert!(help.contains(expected), "{spec}: {message}"),
                (found, _) => panic!("{spec}: {found:?}"),
            }
        }
    }
}
