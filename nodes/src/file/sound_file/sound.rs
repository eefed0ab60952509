//! Sound as messages have it: resampled, and read several times.

use super::resampler::{Ratio, Resampler};
use super::{FileProblem, SoundFile};
use limen::Folders;
use limen::node::NodeError;

/// An open file and what its frames become.
#[derive(Debug)]
pub(crate) struct Format {
    file: SoundFile,
    /// Frames per second of the messages.
    rate: u32,
    /// `None` if the file has that rate.
    ratio: Option<Ratio>,
}

/// The field of the config that has a problem, and the problem.
type FieldProblem = (&'static str, FileProblem);

impl Format {
    /// Opens a file whose messages have `rate` frames per second; by default the rate of the file.
    pub(crate) fn open(path: &str, is_mono: bool, rate: Option<u32>, folders: &Folders) -> Result<Self, FieldProblem> {
        let file = SoundFile::open(path, folders, is_mono).map_err(|problem| ("path", problem))?;
        let rate = rate.unwrap_or(file.rate());
        let ratio = (rate != file.rate()).then(|| Ratio::new(file.rate(), rate)).transpose();
        let ratio =
            ratio.map_err(|message| ("sample_rate", (message, "write another rate, such as `16kHz`".into())))?;
        Ok(Format { file, rate, ratio })
    }

    /// Returns the frames per second of the messages.
    pub(crate) fn rate(&self) -> u32 {
        self.rate
    }

    /// Returns the number of samples in a frame of the messages.
    pub(crate) fn channels(&self) -> usize {
        self.file.channels()
    }

    pub(crate) fn is_resampled(&self) -> bool {
        self.ratio.is_some()
    }

    /// Returns the bytes that a resampler allocates.
    pub(crate) fn bytes(&self) -> usize {
        self.ratio.map_or(0, |ratio| ratio.bytes(self.file.channels()))
    }

    /// Returns why there is nothing to send, if so.
    pub(crate) fn why_empty(&self) -> Option<String> {
        let frames = self.file.length();
        let after =
            if self.is_resampled() { format!(", none after resampling to {} Hz", self.rate) } else { String::new() };
        let s = if frames == 1 { "" } else { "s" };
        (self.frames(frames) == 0)
            .then(|| format!("{} has {frames} frame{s} at {} Hz{after}", self.file.shown(), self.file.rate()))
    }

    /// Returns a line for the plan.
    pub(crate) fn note(&self) -> String {
        match self.ratio {
            None => format!("{} frames per second", self.rate),
            Some(_) => format!("resampled from {} to {} frames per second", self.file.rate(), self.rate),
        }
    }

    /// Returns the number of frames per pass, after resampling, of as many in the file.
    fn frames(&self, of_file: u32) -> u64 {
        self.ratio.map_or(of_file.into(), |ratio| ratio.frames(of_file.into()))
    }
}

/// A file that is read several times.
#[derive(Debug)]
pub(crate) struct Sound {
    format: Format,
    resampler: Option<Resampler>,
    passes: u32,
    /// Frames per pass, and frames read in this pass, both after resampling.
    length: u64,
    at: u64,
    is_truncated: bool,
}

impl Sound {
    pub(crate) fn new(format: Format, repeat: u32) -> Self {
        let resampler = format.ratio.map(|ratio| Resampler::new(ratio, format.file.channels()));
        let length = format.frames(format.file.length());
        let passes = if length == 0 { 0 } else { repeat };
        Sound { format, resampler, passes, length, at: 0, is_truncated: false }
    }

    pub(crate) fn channels(&self) -> usize {
        self.format.file.channels()
    }

    /// Returns whether the next frame is the first of a pass.
    pub(crate) fn is_at_start(&self) -> bool {
        self.at == 0
    }

    /// Returns whether the last read reached the end of the file too early.
    pub(crate) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    pub(crate) fn is_done(&self) -> bool {
        self.passes == 0
    }

    /// Returns the number of frames of the next message.
    pub(crate) fn next_frames(&self, most: usize) -> usize {
        usize::try_from(self.length - self.at).map_or(most, |left| left.min(most))
    }

    /// Reads frames and returns how many were complete: fewer than requested if the file is truncated.
    pub(crate) fn read(&mut self, into: &mut [f32]) -> usize {
        let Format { file, .. } = &mut self.format;
        let Some(resampler) = &mut self.resampler else { return file.read(into) };
        resampler.fill(into, |more| file.read(more));
        let wanted = into.len() / file.channels();
        if !file.has_ended() {
            return wanted;
        }
        // After the end the resampler takes silence, which is not sent.
        let left = self.format.frames(self.format.file.at()).saturating_sub(self.at);
        usize::try_from(left).map_or(wanted, |left| left.min(wanted))
    }

    /// Advances by the frames that were read, of the frames that were expected.
    pub(crate) fn advance(&mut self, read: usize, wanted: usize) -> Result<(), NodeError> {
        self.at += read as u64;
        self.is_truncated = read < wanted;
        if self.at == self.length {
            (self.at, self.passes) = (0, self.passes - 1);
            self.resampler.iter_mut().for_each(Resampler::restart);
            self.format.file.rewind()?;
        }
        Ok(())
    }

    /// Ends the stream and returns the error for a file that has fewer frames than its header announces.
    pub(crate) fn end_truncated(&mut self) -> NodeError {
        self.passes = 0;
        self.format.file.truncated()
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
        read_as(bytes, frames, repeat, None, false)
    }

    fn read_as(bytes: &[u8], frames: usize, repeat: u32, rate: Option<u32>, is_mono: bool) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.wav"), bytes).unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let mut sound = match Format::open("s.wav", is_mono, rate, &folders) {
            Ok(format) => Sound::new(format, repeat),
            Err((_, (message, _))) => return vec![message],
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
    fn channels_are_mixed_to_their_mean() {
        let stereo = file(1, 2, 8000, 4, 16, 12, b"\0\x40\0\xc0\0\x40\0\x20\0\0\0\x20");
        assert_eq!(read_as(&stereo, 2, 1, None, true), ["[0.0, 0.375]", "[0.125]"]);
        let mono = file(1, 1, 8000, 2, 16, 4, b"\0\x40\0\xc0");
        assert_eq!(read_as(&mono, 9, 1, None, true), ["[0.5, -0.5]"]);
    }

    #[test]
    fn a_resampled_pass_has_the_frames_of_its_duration() {
        let count = |said: &[String]| -> Vec<usize> { said.iter().map(|said| said.matches('.').count()).collect() };
        let sound = file(1, 1, 8000, 2, 16, 6000, &[0x40; 6000]);
        // 3000 frames become 6000 or 1500; every pass is the same.
        let twice = read_as(&sound, 2500, 2, Some(16_000), false);
        assert_eq!(count(&twice), [2500, 2500, 1000, 2500, 2500, 1000]);
        assert_eq!(twice[..3], twice[3..]);
        assert_eq!(count(&read_as(&sound, 2500, 1, Some(4_000), true)), [1500]);
        assert_eq!(read_as(&file(1, 1, 48_000, 2, 16, 2, &[0; 2]), 9, 3, Some(16_000), false), [""; 0]);
        let refused = read_as(&file(1, 1, 100_003, 2, 16, 2, &[0; 2]), 9, 1, Some(16_000), false);
        assert!(refused[0].contains("100003 frames per second cannot become 16000"), "{refused:?}");
    }

    #[test]
    fn a_truncated_file_is_resampled_up_to_its_end() {
        for (frames, expected) in [(150, &[150, 50][..]), (100, &[100, 100]), (9_000, &[200])] {
            let said = read_as(&file(1, 1, 8000, 2, 16, 6000, &[0x40; 200]), frames, 3, Some(16_000), false);
            let (error, messages) = said.split_last().unwrap();
            let found: Vec<usize> = messages.iter().map(|said| said.matches('.').count()).collect();
            assert_eq!(found, expected, "{frames}: {said:?}");
            assert!(error.ends_with("announces 3000 frames, but the file ends after 100"), "{error}");
        }
    }

    #[test]
    fn a_truncated_file_gives_gives_its_complete_frames_and_then_an_error() {
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
            (file(1, 1, 8000, 2, 16, u32::MAX, b"1234"), "its header has no length"),
            (file(1, 1, 8000, 1, 8, u32::MAX, b"1234"), "its header has no length"),
            (file(1, 2, 8000, 4, 16, 6, b"123456"), "invalid data chunk"),
            (file(2, 1, 8000, 2, 16, 4, b"1234"), "not supported"),
            (file(3, 1, 8000, 8, 64, 8, &[0; 8]), "not 32"),
            (b"RIFF".to_vec(), ""),
            (b"MThd".to_vec(), ""),
            (b"".to_vec(), ""),
            (b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\xff".to_vec(), ""),
            (b"RIFF\0\0\0\0WAVEdata\x04\0\0\0".to_vec(), "missing fmt"),
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
