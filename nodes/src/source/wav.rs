//! Sound from WAV files.

use crate::file::input_file::{self, FileProblem};
use crate::pace::Pace;
use hound::{SampleFormat, WavReader, WavSpec};
use limen::files::InputFile;
use limen::message::{DType, Dim, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Source};
use limen::unit::Rate;
use limen::{Folders, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::BufReader;
use std::path::PathBuf;

/// Reads sound from a WAV file, `frames` frames per message: `sound` `f32[≤frames,channels]`, from −1 to 1;
/// `f32[frames,channels]` with `tail: pad`.
///
/// A frame is one sample of every channel. PCM of 8, 16, 24 and 32 bits and floats of 32 bits are supported. From a truncated
/// file the complete frames are sent, then one call fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// The file, relative to the graph's folder.
    pub path: String,
    /// Frames per message; the last message of a pass may have fewer.
    pub frames: usize,
    /// What to do with the last frames when they do not fill a message; `send` by default.
    #[serde(default)]
    pub tail: Tail,
    /// `true` sends messages at the speed of playback, each when its first frame is due; by default messages are sent as fast
    /// as the graph takes them.
    #[serde(default)]
    pub real_time: bool,
    /// How many times to read the file; 1 by default.
    #[serde(default = "one")]
    pub repeat: u32,
}

/// What to do with the last frames when they do not fill a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tail {
    /// Send them as a shorter message.
    #[default]
    Send,
    /// Pad them with silence, so that all messages have the same shape.
    Pad,
}

fn one() -> u32 {
    1
}

/// Most channels of a file.
const MAX_CHANNELS: u16 = 256;
/// Most frames of a message.
const MAX_FRAMES: usize = 1 << 20;

/// Opens a file and reads its header.
fn open(path: &str, folders: &Folders) -> Result<(PathBuf, WavReader<BufReader<InputFile>>), FileProblem> {
    let file = input_file::open(path, folders)?;
    let path = file.path().to_path_buf();
    let problem = |message: String| {
        (format!("`{}`: {message}", path.display()), "write the path of a WAV file with PCM or float samples")
    };
    let reader = WavReader::new(BufReader::with_capacity(64 << 10, file)).map_err(|e| problem(e.to_string()))?;
    check(reader.spec()).map_err(problem)?;
    Ok((path, reader))
}

fn check(spec: WavSpec) -> Result<(), String> {
    let WavSpec { channels, sample_rate, bits_per_sample, sample_format } = spec;
    if channels == 0 || channels > MAX_CHANNELS {
        return Err(format!("{channels} channels, expected 1 to {MAX_CHANNELS}"));
    }
    if sample_rate == 0 {
        return Err("a sample rate of 0 Hz".into());
    }
    match (sample_format, bits_per_sample) {
        (SampleFormat::Int, 8 | 16 | 24 | 32) | (SampleFormat::Float, 32) => Ok(()),
        (SampleFormat::Int, bits) => Err(format!("integer samples of {bits} bits, expected 8, 16, 24 or 32")),
        (SampleFormat::Float, bits) => Err(format!("float samples of {bits} bits, expected 32")),
    }
}

/// The node.
#[derive(Debug)]
pub struct Wav {
    sound: Sound,
    pace: Pace,
    frames: usize,
    tail: Tail,
    unseen: Vec<f32>,
}

/// An open file.
struct Sound {
    path: PathBuf,
    reader: WavReader<BufReader<InputFile>>,
    passes: u32,
    /// Frames per pass, and frames read in this pass.
    length: u32,
    at: u32,
    /// The last read reached the end of the file too early.
    is_truncated: bool,
}

impl std::fmt::Debug for Sound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {} of {}", self.path.display(), self.at, self.length)
    }
}

impl Sound {
    fn open(path: &str, folders: &Folders, repeat: u32) -> Result<Self, FileProblem> {
        let (path, reader) = open(path, folders)?;
        let length = reader.duration();
        Ok(Sound { path, reader, passes: if length == 0 { 0 } else { repeat }, length, at: 0, is_truncated: false })
    }

    fn channels(&self) -> usize {
        usize::from(self.reader.spec().channels)
    }

    fn rate(&self) -> u32 {
        self.reader.spec().sample_rate
    }

    fn is_done(&self) -> bool {
        self.passes == 0
    }

    /// The number of frames of the next message.
    fn next_frames(&self, most: usize) -> usize {
        most.min((self.length - self.at) as usize)
    }

    /// Reads frames and returns how many were complete: fewer than requested if the file is truncated.
    fn read(&mut self, into: &mut [f32]) -> usize {
        let spec = self.reader.spec();
        let mut read = 0;
        if spec.sample_format == SampleFormat::Float {
            for (to, sample) in into.iter_mut().zip(self.reader.samples::<f32>()) {
                let Ok(sample) = sample else { break };
                (*to, read) = (sample, read + 1);
            }
        } else {
            let scale = 1.0 / (1u64 << (spec.bits_per_sample - 1)) as f32;
            for (to, sample) in into.iter_mut().zip(self.reader.samples::<i32>()) {
                let Ok(sample) = sample else { break };
                (*to, read) = (sample as f32 * scale, read + 1);
            }
        }
        read / self.channels()
    }

    /// Advances by the frames that were read, of the frames that were expected.
    fn advance(&mut self, read: usize, wanted: usize) -> Result<(), NodeError> {
        self.at += read as u32;
        self.is_truncated = read < wanted;
        if self.at == self.length {
            (self.at, self.passes) = (0, self.passes - 1);
            self.reader.seek(0).map_err(|error| NodeError::file(&self.path, error))?;
        }
        Ok(())
    }

    /// Ends the stream and returns the error for a file that has fewer frames than its header announces.
    fn end_truncated(&mut self) -> NodeError {
        self.passes = 0;
        let why = format!("the header announces {} frames, but the file ends after {}", self.length, self.at);
        NodeError::input(self.path.display().to_string(), why)
    }
}

impl Node for Wav {
    type Config = Config;

    fn ports(config: &Config, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "0 passes send nothing").help("write 1 or more");
        }
        if config.frames == 0 || config.frames > MAX_FRAMES {
            let message = format!("{} frames per message, expected 1 to {MAX_FRAMES}", config.frames);
            errors.at("frames", message).help("write a number such as 512");
        }
        let mut ports = Ports::new().cost(Cost::Medium);
        match Sound::open(&config.path, cx.folders, config.repeat) {
            Ok(sound) => {
                let frames = config.frames.clamp(1, MAX_FRAMES);
                let frames = if config.tail == Tail::Pad { Dim::Fixed(frames) } else { Dim::AtMost(frames) };
                ports = ports.output("sound", PortSpec::new(DType::F32, [frames, Dim::Fixed(sound.channels())]));
                ports = ports.note(format!("{} frames per second", sound.rate()));
                if config.real_time {
                    ports = ports.rate(Rate(f64::from(sound.rate()) / config.frames.max(1) as f64));
                }
            }
            Err((message, help)) => {
                errors.at("path", message).help(help);
            }
        }
        errors.into_result(if config.real_time { ports.live() } else { ports })
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let sound = Sound::open(&config.path, cx.folders(), config.repeat)
            .map_err(|(message, _)| NodeError::input(&*config.path, message))?;
        let planned = cx.outputs().first().and_then(|(_, spec)| spec.as_ref()?.shape.last().cloned());
        if planned.is_some_and(|channels| channels != Dim::Fixed(sound.channels())) {
            let why =
                format!("it has {} channels, but had another number when the graph was planned", sound.channels());
            return Err(NodeError::input(&*config.path, why));
        }
        let rate = config.real_time.then(|| Rate(f64::from(sound.rate()) / config.frames as f64));
        Ok(Wav { sound, pace: Pace::new(rate), frames: config.frames, tail: config.tail, unseen: Vec::new() })
    }
}

impl Source for Wav {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.sound.is_done() {
            return Ok(Next::Done);
        }
        let origin = match self.pace.begin(out.now(), || out.clock()) {
            Ok(origin) => origin,
            Err(early) => return Ok(early),
        };
        if self.sound.is_truncated {
            return Err(self.sound.end_truncated());
        }
        let frames = self.sound.next_frames(self.frames);
        let read = if out.is_connected() {
            let header = out.header(origin);
            let mut sound = out.loan(&header)?;
            sound.set_len(0, if self.tail == Tail::Pad { self.frames } else { frames })?;
            let samples = sound.as_mut_slice()?;
            let channels = self.sound.channels();
            let read = self.sound.read(&mut samples[..frames * channels]);
            if read > 0 {
                match self.tail {
                    Tail::Send => sound.set_len(0, read)?,
                    Tail::Pad => samples[read * channels..].fill(0.0),
                }
                out.send(sound);
            }
            read
        } else {
            self.unseen.resize(frames * self.sound.channels(), 0.0);
            self.sound.read(&mut self.unseen)
        };
        self.sound.advance(read, frames)?;
        if self.sound.at == 0 {
            out.begin_segment();
        }
        if read == 0 {
            return Err(self.sound.end_truncated());
        }
        Ok(if self.sound.is_done() { Next::Done } else { self.pace.then(out.now()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a WAV file with an arbitrary header.
    fn file(tag: u16, channels: u16, rate: u32, align: u16, bits: u16, announced: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0".to_vec();
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&channels.to_le_bytes());
        bytes.extend_from_slice(&rate.to_le_bytes());
        bytes.extend_from_slice(&rate.wrapping_mul(align.into()).to_le_bytes());
        bytes.extend_from_slice(&align.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(b"data");
        bytes.extend_from_slice(&announced.to_le_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    /// Returns every message or error of a file as text.
    fn read(bytes: &[u8], frames: usize, repeat: u32) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.wav"), bytes).unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let mut sound = match Sound::open("s.wav", &folders, repeat) {
            Ok(sound) => sound,
            Err((message, _)) => return vec![message],
        };
        let mut said = Vec::new();
        while !sound.is_done() {
            let wanted = sound.next_frames(frames);
            let mut samples = vec![0.0; wanted * sound.channels()];
            let read = sound.read(&mut samples);
            if read > 0 {
                said.push(format!("{:?}", &samples[..read * sound.channels()]));
            }
            sound.advance(read, wanted).unwrap();
            if sound.is_truncated {
                said.push(sound.end_truncated().to_string());
            }
        }
        said
    }

    #[test]
    fn samples_are_scaled_to_minus_1_to_1() {
        let stereo = file(1, 2, 8000, 4, 16, 12, b"\0\x40\0\xc0\xff\x7f\0\x80\0\0\0\x20");
        assert_eq!(read(&stereo, 2, 1), ["[0.5, -0.5, 0.9999695, -1.0]", "[0.0, 0.25]"]);
        assert_eq!(read(&stereo, 3, 2), ["[0.5, -0.5, 0.9999695, -1.0, 0.0, 0.25]"; 2]);
        assert_eq!(read(&file(1, 1, 8000, 1, 8, 3, b"\x80\xc0\x00"), 9, 1), ["[0.0, 0.5, -1.0]"]);
        assert_eq!(read(&file(1, 1, 8000, 3, 24, 6, b"\0\0\x40\0\0\x80"), 9, 1), ["[0.5, -1.0]"]);
        assert_eq!(read(&file(1, 1, 8000, 4, 32, 4, b"\0\0\0\xc0"), 9, 1), ["[-0.5]"]);
        assert_eq!(read(&file(3, 1, 8000, 4, 32, 4, &0.75f32.to_le_bytes()), 9, 1), ["[0.75]"]);
        assert_eq!(read(&file(1, 1, 8000, 2, 16, 0, b""), 9, 3), [""; 0]);
    }

    #[test]
    fn a_truncated_file_gives_its_complete_frames_and_then_an_error() {
        let said = read(&file(1, 1, 8000, 2, 16, u32::MAX - 1, b"\0\x40\0\x40\0\x40\0"), 2, 9);
        assert_eq!(said[..2], ["[0.5, 0.5]", "[0.5]"]);
        assert!(said[2].ends_with("announces 2147483647 frames, but the file ends after 3"), "{said:?}");
        assert_eq!(said.len(), 3);
    }

    #[test]
    fn malformed_headers_are_refused() {
        for (bytes, expected) in [
            (file(1, 0, 8000, 2, 16, 4, b"1234"), "zero channels"),
            (file(1, 1, 0, 2, 16, 4, b"1234"), "0 Hz"),
            (file(1, 300, 8000, 600, 16, 600, &[0; 600]), "300 channels"),
            (file(1, 1, 8000, 0, 0, 4, b"1234"), "bits per sample is 0"),
            (file(1, 1, 8000, 1, 16, 4, b"1234"), "sample bits exceeds"),
            (file(1, 1, 8000, 2, 12, 4, b"1234"), "multiple of 8"),
            (file(1, 1, 8000, 8, 64, 8, &[0; 8]), "64 bits"),
            (file(1, 1, 8000, 2, 16, 3, b"123"), "not a multiple"),
            (file(1, 2, 8000, 4, 16, 6, b"123456"), "invalid data chunk"),
            (file(2, 1, 8000, 2, 16, 4, b"1234"), "not supported"),
            (file(3, 1, 8000, 8, 64, 8, &[0; 8]), "not 32"),
            (b"RIFF".to_vec(), ""),
            (b"MThd".to_vec(), ""),
            (b"".to_vec(), ""),
            (b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\xff".to_vec(), ""),
            (b"RIFF\0\0\0\0WAVEdata\xff\xff\xff\xff".to_vec(), "missing fmt"),
        ] {
            let said = read(&bytes, 4, 1);
            assert!(
                said.len() == 1 && said[0].contains("s.wav`: ") && said[0].contains(expected),
                "{expected}: {said:?}"
            );
        }
        let whole = file(1, 1, 8000, 2, 16, 4, b"1234");
        for cut in 0..whole.len() {
            let said = read(&whole[..cut], 4, 1);
            assert!(said.last().is_some_and(|last| last.contains("s.wav")), "{cut}: {said:?}");
        }
    }
}
