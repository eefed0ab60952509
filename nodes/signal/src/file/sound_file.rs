//! Sound in WAV files.

mod resampler;
mod sound;
mod wave;

use limen::Folders;
use limen::files::InputFile;
use limen::node::NodeError;
use limen_nodes_core::file::input_file::{self, FileProblem};
use std::fmt;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::path::PathBuf;

pub(crate) use sound::{Sound, SoundFormat};
use wave::{Coding, Wave};

/// Most channels of a file.
const MAX_CHANNELS: u16 = 256;

/// Most bytes that are read at once; a frame has fewer.
const MAX_READ: usize = 64 << 10;

/// An open file, positioned at a frame.
pub(crate) struct SoundFile {
    path: PathBuf,
    file: BufReader<InputFile>,
    wave: Wave,
    /// Samples of which the mean is one output sample.
    mixed: usize,
    /// Frames read since the file was opened or rewound.
    at: u64,
    has_ended: bool,
    /// The bytes of some frames.
    bytes: Vec<u8>,
}

impl fmt::Debug for SoundFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} of {}", self.path.display(), self.at, self.wave.length)
    }
}

impl SoundFile {
    /// Opens a file and reads its header. With `is_mono`, frames are the mean of all channels.
    pub(crate) fn open(path: &str, folders: &Folders, is_mono: bool) -> Result<Self, FileProblem> {
        let file = input_file::open(path, folders)?;
        let path = file.path().to_path_buf();
        let size = file.size();
        let mut file = BufReader::with_capacity(MAX_READ, file);
        let wave = Wave::read(&mut file, size).map_err(|message| {
            let help =
                "write the path of a WAV file with PCM or float samples, or convert the file: `ffmpeg -i IN OUT.wav`";
            (format!("`{}`: {message}", path.display()), help.into())
        })?;
        let mixed = if is_mono { usize::from(wave.channels) } else { 1 };
        Ok(SoundFile { path, file, wave, mixed, at: 0, has_ended: false, bytes: Vec::new() })
    }

    /// Returns the path, to be shown.
    pub(crate) fn shown(&self) -> String {
        format!("`{}`", self.path.display())
    }

    /// Returns the number of samples in a frame as it is read.
    pub(crate) fn channels(&self) -> usize {
        usize::from(self.wave.channels) / self.mixed
    }

    /// Returns the frames per second.
    pub(crate) fn rate(&self) -> u32 {
        self.wave.rate
    }

    /// Returns the number of frames according to the header.
    pub(crate) fn length(&self) -> u64 {
        self.wave.length
    }

    /// Returns the number of frames read since the file was opened or rewound.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Returns whether a read since then has reached the end.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Reads frames and returns how many were complete: fewer than requested at the end of the
    /// file.
    pub(crate) fn read(&mut self, into: &mut [f32]) -> usize {
        let (frame, channels) = (self.wave.frame(), self.channels());
        let mut frames = 0;
        for to in into.chunks_mut(MAX_READ / frame * channels) {
            let wanted = to.len() / channels;
            let left = usize::try_from(self.wave.length - self.at).unwrap_or(usize::MAX);
            self.bytes.resize(wanted.min(left) * frame, 0);
            let read = read_all(&mut self.file, &mut self.bytes) / frame;
            decode(self.wave.coding, &self.bytes[..read * frame], self.mixed, to);
            self.at += read as u64;
            frames += read;
            if read < wanted {
                self.has_ended = true;
                break;
            }
        }
        frames
    }

    /// Goes to the first frame.
    pub(crate) fn rewind(&mut self) -> Result<(), NodeError> {
        (self.at, self.has_ended) = (0, false);
        let sought = self.file.seek(SeekFrom::Start(self.wave.start));
        sought.map(drop).map_err(|error| NodeError::file(&self.path, error))
    }

    /// Returns the error for a file that has fewer frames than its header announces.
    pub(crate) fn truncated(&self) -> NodeError {
        let why = format!("expected {} frames, found {}: the file is truncated", self.wave.length, self.at);
        NodeError::input(self.path.display().to_string(), why)
    }
}

/// Reads until `into` is full or the file ends, and returns the number of bytes. A failed read
/// counts as the end.
fn read_all(file: &mut impl Read, into: &mut [u8]) -> usize {
    let mut read = 0;
    while read < into.len() {
        match file.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(bytes) => read += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    read
}

/// Decodes samples to −1 to 1, each the mean of `mixed`.
fn decode(coding: Coding, bytes: &[u8], mixed: usize, into: &mut [f32]) {
    fn each<const N: usize>(bytes: &[u8], mixed: usize, into: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
        for (group, to) in bytes.as_chunks().0.chunks_exact(mixed).zip(into) {
            *to = group.iter().map(|sample| decode(*sample)).sum::<f32>() / mixed as f32;
        }
    }
    match coding {
        Coding::U8 => each(bytes, mixed, into, |[byte]| (f32::from(byte) - 128.0) / 128.0),
        Coding::I16 => each(bytes, mixed, into, |two| f32::from(i16::from_le_bytes(two)) / 32_768.0),
        Coding::I24 => each(bytes, mixed, into, |[a, b, c]| of_i32(i32::from_le_bytes([0, a, b, c]))),
        Coding::I32 => each(bytes, mixed, into, |four| of_i32(i32::from_le_bytes(four))),
        Coding::F32 => each(bytes, mixed, into, f32::from_le_bytes),
        Coding::F64 => each(bytes, mixed, into, |eight| f64::from_le_bytes(eight) as f32),
    }
}

fn of_i32(sample: i32) -> f32 {
    sample as f32 / 2_147_483_648.0
}
