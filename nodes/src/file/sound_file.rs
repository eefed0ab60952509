//! Sound in WAV files.

mod resampler;
mod sound;

use crate::file::input_file::{self, FileProblem};
use hound::{SampleFormat, WavReader, WavSpec};
use limen::Folders;
use limen::files::InputFile;
use limen::node::NodeError;
use limen::unit::Rate;
use std::fmt;
use std::io::{BufReader, Read as _, Seek as _};
use std::path::PathBuf;

pub(crate) use sound::{Format, Sound};

/// Most channels of a file.
const MAX_CHANNELS: u16 = 256;

/// Returns a number of frames per second, which files store as a whole number.
pub(crate) fn frames_per_second(Rate(rate): Rate) -> Result<u32, String> {
    if rate.fract() != 0.0 || !(1.0..=1e7).contains(&rate) {
        return Err(format!("{rate} frames per second, expected a whole number from 1 to 10 million"));
    }
    Ok(rate as u32)
}

/// An open file, positioned at a frame.
pub(crate) struct SoundFile {
    path: PathBuf,
    reader: WavReader<BufReader<InputFile>>,
    /// Samples of which the mean is one output sample.
    mixed: usize,
    /// Frames according to the header, and frames read since the file was opened or rewound.
    length: u32,
    at: u32,
    has_ended: bool,
}

impl fmt::Debug for SoundFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} of {}", self.path.display(), self.at, self.length)
    }
}

impl SoundFile {
    /// Opens a file and reads its header. With `is_mono`, frames are the mean of all channels.
    pub(crate) fn open(path: &str, folders: &Folders, is_mono: bool) -> Result<Self, FileProblem> {
        let file = input_file::open(path, folders)?;
        let path = file.path().to_path_buf();
        let problem = |message: String| {
            (
                format!("`{}`: {message}", path.display()),
                "write the path of a WAV file with PCM or float samples".into(),
            )
        };
        let mut file = BufReader::with_capacity(64 << 10, file);
        if is_of_unknown_length(&mut file) {
            let message = "its header has no length, as in a file that was written to a pipe";
            return Err((
                format!("`{}`: {message}", path.display()),
                "write the file again with its length, such as with `ffmpeg -i IN.wav OUT.wav`".into(),
            ));
        }
        file.rewind().map_err(|e| problem(e.to_string()))?;
        let reader = WavReader::new(file).map_err(|e| problem(e.to_string()))?;
        check(reader.spec()).map_err(problem)?;
        let mixed = if is_mono { usize::from(reader.spec().channels) } else { 1 };
        let length = reader.duration();
        Ok(SoundFile { path, reader, mixed, length, at: 0, has_ended: false })
    }

    /// Returns the path, to be shown.
    pub(crate) fn shown(&self) -> String {
        format!("`{}`", self.path.display())
    }

    /// Returns the number of samples in a frame as it is read.
    pub(crate) fn channels(&self) -> usize {
        usize::from(self.reader.spec().channels) / self.mixed
    }

    /// Returns the frames per second.
    pub(crate) fn rate(&self) -> u32 {
        self.reader.spec().sample_rate
    }

    /// Returns the number of frames according to the header.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    /// Returns the number of frames read since the file was opened or rewound.
    pub(crate) fn at(&self) -> u32 {
        self.at
    }

    /// Returns whether a read since then has reached the end.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Reads frames and returns how many were complete: fewer than requested at the end of the file.
    pub(crate) fn read(&mut self, into: &mut [f32]) -> usize {
        let spec = self.reader.spec();
        let samples = if spec.sample_format == SampleFormat::Float {
            fill(into, self.reader.samples::<f32>().map_while(Result::ok), self.mixed)
        } else {
            let scale = 1.0 / (1u64 << (spec.bits_per_sample - 1)) as f32;
            fill(into, self.reader.samples::<i32>().map_while(Result::ok).map(|n| n as f32 * scale), self.mixed)
        };
        let frames = samples / self.channels();
        self.at += frames as u32;
        self.has_ended |= samples < into.len();
        frames
    }

    /// Goes to the first frame.
    pub(crate) fn rewind(&mut self) -> Result<(), NodeError> {
        (self.at, self.has_ended) = (0, false);
        self.reader.seek(0).map_err(|error| NodeError::file(&self.path, error))
    }

    /// Returns the error for a file that has fewer frames than its header announces.
    pub(crate) fn truncated(&self) -> NodeError {
        let why = format!("the header announces {} frames, but the file ends after {}", self.length, self.at);
        NodeError::input(self.path.display().to_string(), why)
    }
}

/// Most chunks before the data, which are few in any file.
const MAX_CHUNKS: usize = 64;

/// Returns whether the header has the greatest number as the length of its data: a program that writes to a pipe cannot go back to
/// write the length.
fn is_of_unknown_length(file: &mut BufReader<InputFile>) -> bool {
    let mut start = [0; 12];
    if file.read_exact(&mut start).is_err() || !start.starts_with(b"RIFF") {
        return false;
    }
    for _ in 0..MAX_CHUNKS {
        let mut chunk = [0; 8];
        if file.read_exact(&mut chunk).is_err() {
            return false;
        }
        let [a, b, c, d, length @ ..] = chunk;
        let length = u32::from_le_bytes(length);
        if [a, b, c, d] == *b"data" {
            return length == u32::MAX;
        }
        // Chunks have an even number of bytes.
        if file.seek_relative(i64::from(length) + i64::from(length % 2)).is_err() {
            return false;
        }
    }
    false
}

/// Fills `into` with the means of `mixed` samples each and returns how many means there were.
fn fill(into: &mut [f32], mut samples: impl Iterator<Item = f32>, mixed: usize) -> usize {
    for (filled, to) in into.iter_mut().enumerate() {
        let mut sum = 0.0;
        for _ in 0..mixed {
            let Some(sample) = samples.next() else { return filled };
            sum += sample;
        }
        *to = sum / mixed as f32;
    }
    into.len()
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
