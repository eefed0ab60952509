//! Sound as messages have it: resampled, and read several times.

use super::resampler::{Ratio, Resampler};
use super::{FileProblem, SoundFile};
use limen::Folders;
use limen::node::NodeError;

/// An open file and what its frames become.
#[derive(Debug)]
pub(crate) struct SoundFormat {
    file: SoundFile,
    /// Frames per second of the messages.
    rate: u32,
    /// `None` if the file has that rate.
    ratio: Option<Ratio>,
}

/// The field of the config that has a problem, and the problem.
type FieldProblem = (&'static str, FileProblem);

impl SoundFormat {
    /// Opens a file whose messages have `rate` frames per second; by default the rate of the file.
    pub(crate) fn open(path: &str, is_mono: bool, rate: Option<u32>, folders: &Folders) -> Result<Self, FieldProblem> {
        let file = SoundFile::open(path, folders, is_mono).map_err(|problem| ("path", problem))?;
        let rate = rate.unwrap_or(file.rate());
        let ratio = (rate != file.rate()).then(|| Ratio::new(file.rate(), rate)).transpose();
        let ratio =
            ratio.map_err(|message| ("sample_rate", (message, "write another rate, such as `16kHz`".into())))?;
        Ok(SoundFormat { file, rate, ratio })
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
        let after = if self.is_resampled() { format!(" after resampling to {} Hz", self.rate) } else { String::new() };
        (self.frames(frames) == 0).then(|| format!("{} must have at least 1 frame{after}, got 0", self.file.shown()))
    }

    /// Returns a line for the plan.
    pub(crate) fn note(&self) -> String {
        match self.ratio {
            None => format!("{} frames per second", self.rate),
            Some(_) => format!("resampled from {} to {} frames per second", self.file.rate(), self.rate),
        }
    }

    /// Returns the number of frames per pass, after resampling, of as many in the file.
    fn frames(&self, of_file: u64) -> u64 {
        self.ratio.map_or(of_file, |ratio| ratio.frames(of_file))
    }
}

/// A file that is read several times.
#[derive(Debug)]
pub(crate) struct Sound {
    format: SoundFormat,
    resampler: Option<Resampler>,
    passes: u32,
    /// Frames per pass, and frames read in this pass, both after resampling.
    length: u64,
    at: u64,
    is_truncated: bool,
}

impl Sound {
    pub(crate) fn new(format: SoundFormat, repeat: u32) -> Self {
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

    /// Reads frames and returns how many were complete: fewer than requested if the file is
    /// truncated.
    pub(crate) fn read(&mut self, into: &mut [f32]) -> usize {
        let SoundFormat { file, .. } = &mut self.format;
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

    /// Ends the stream and returns the error for a file that has fewer frames than its header
    /// announces.
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
        let mut sound = match SoundFormat::open("s.wav", is_mono, rate, &folders) {
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
        assert!(refused[0].contains("cannot resample from 100003 to 16000 frames"), "{refused:?}");
    }

    #[test]
    fn a_truncated_file_is_resampled_up_to_its_end() {
        for (frames, expected) in [(150, &[150, 50][..]), (100, &[100, 100]), (9_000, &[200])] {
            let said = read_as(&file(1, 1, 8000, 2, 16, 6000, &[0x40; 200]), frames, 3, Some(16_000), false);
            let (error, messages) = said.split_last().unwrap();
            let found: Vec<usize> = messages.iter().map(|said| said.matches('.').count()).collect();
            assert_eq!(found, expected, "{frames}: {said:?}");
            assert!(error.ends_with("expected 3000 frames, found 100: the file is truncated"), "{error}");
        }
    }

    #[test]
    fn a_truncated_file_gives_gives_its_complete_frames_and_then_an_error() {
        let said = read(&file(1, 1, 8000, 2, 16, u32::MAX - 1, b"\0\x40\0\x40\0\x40\0"), 2, 9);
        assert_eq!(said[..2], ["[0.5, 0.5]", "[0.5]"]);
        assert!(said[2].ends_with("expected 2147483647 frames, found 3: the file is truncated"), "{said:?}");
        assert_eq!(said.len(), 3);
    }

    fn chunk(name: &[u8; 4], bytes: &[u8]) -> Vec<u8> {
        let pad = &[0][..bytes.len() % 2];
        [name, &(bytes.len() as u32).to_le_bytes()[..], bytes, pad].concat()
    }

    /// The content of `fmt `, for one channel at 8 kHz.
    fn format(tag: u16, bytes: u16, bits: u16) -> Vec<u8> {
        file(tag, 1, 8000, bytes, bits, 0, b"")[20..36].to_vec()
    }

    /// The content of an extensible `fmt `.
    fn extensible(tag: u16, bytes: u16, valid: u16) -> Vec<u8> {
        let rest = b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71";
        let numbers = [22u16.to_le_bytes(), valid.to_le_bytes(), [4, 0], [0, 0], tag.to_le_bytes()].concat();
        [format(0xFFFE, bytes, 8 * bytes), numbers, rest.to_vec()].concat()
    }

    /// As other programs write them; all have been compared with libsndfile and FFmpeg.
    #[test]
    fn unusual_files_are_read() {
        let half = |tag: &[u8; 4], chunks: &[&[u8]]| [tag, &[0xFF; 4][..], b"WAVE", &chunks.concat()].concat();
        let pcm = chunk(b"fmt ", &format(1, 2, 16));
        let data = chunk(b"data", b"\0\x40\0\xc0");
        let unknown = b"data\xff\xff\xff\xff\0\x40\0\xc0";
        let ds64 = chunk(b"ds64", &[[0; 8], 4u64.to_le_bytes(), 2u64.to_le_bytes()].concat());
        let unpadded = b"LIST\x07\0\0\0INFOabc";
        let with =
            |format: Vec<u8>, samples: &[u8]| half(b"RIFF", &[&chunk(b"fmt ", &format), &chunk(b"data", samples)]);
        for (what, bytes) in [
            ("an odd chunk before the format", half(b"RIFF", &[&chunk(b"bext", &[7; 603]), &pcm, &data])),
            ("an odd chunk before the samples", half(b"RIFF", &[&pcm, &chunk(b"LIST", b"INFOabc"), &data])),
            ("an odd chunk without its pad", half(b"RIFF", &[&pcm, unpadded, &data])),
            ("an empty chunk", half(b"RIFF", &[&pcm, &chunk(b"cue ", b""), &data])),
            ("a long `fact`", half(b"RIFF", &[&pcm, &chunk(b"fact", &[1; 13]), &data])),
            ("chunks after the samples", half(b"RIFF", &[&pcm, &data, &chunk(b"id3 ", &[1; 33])])),
            ("a format with its size", with([format(1, 2, 16), vec![0, 0]].concat(), b"\0\x40\0\xc0")),
            ("a format with a rest", with([format(1, 2, 16), vec![9; 32]].concat(), b"\0\x40\0\xc0")),
            (
                "a rate of bytes of 0",
                half(
                    b"RIFF",
                    &[
                        &{
                            let mut pcm = pcm.clone();
                            pcm[16..20].fill(0);
                            pcm
                        },
                        &data,
                    ],
                ),
            ),
            ("a length that nobody wrote", half(b"RIFF", &[&pcm, unknown])),
            ("RF64", half(b"RF64", &[&ds64, &pcm, unknown, &chunk(b"LIST", b"INFO")])),
            ("BW64", half(b"BW64", &[&ds64, &pcm, unknown])),
            ("extensible, 16 bits", with(extensible(1, 2, 16), b"\0\x40\0\xc0")),
            ("extensible, bits not said", with(extensible(1, 2, 0), b"\0\x40\0\xc0")),
            ("12 bits in 16", with(format(1, 2, 12), b"\0\x40\0\xc0")),
            ("20 bits in 24", with(extensible(1, 3, 20), b"\0\0\x40\0\0\xc0")),
            ("24 bits in 32", with(extensible(1, 4, 24), b"\0\0\0\x40\0\0\0\xc0")),
            ("32 bits, with its size", with([format(1, 4, 32), vec![0, 0]].concat(), b"\0\0\0\x40\0\0\0\xc0")),
            ("extensible, float", with(extensible(3, 4, 32), &[0.5f32, -0.5].map(f32::to_le_bytes).concat())),
            ("64 bits, float", with(format(3, 8, 64), &[0.5f64, -0.5].map(f64::to_le_bytes).concat())),
        ] {
            assert_eq!(read(&bytes, 9, 2), ["[0.5, -0.5]"; 2], "{what}");
        }
        let cut = half(b"RIFF", &[&pcm, &unknown[..11]]);
        assert!(
            read(&cut, 9, 1)[1].ends_with("expected 2 frames, found 1: the file is truncated"),
            "{:?}",
            read(&cut, 9, 1)
        );
    }

    #[test]
    fn malformed_headers_are_refused() {
        for (bytes, expected) in [
            (file(1, 0, 8000, 2, 16, 4, b"1234"), "channels, found 0"),
            (file(1, 1, 0, 2, 16, 4, b"1234"), "the sample rate must be at least 1 Hz"),
            (file(1, 300, 8000, 600, 16, 600, &[0; 600]), "channels, found 300"),
            (file(1, 1, 8000, 0, 0, 4, b"1234"), "expected integer samples of 8, 16, 24 or 32 bits, found 0 bits"),
            (file(1, 1, 8000, 1, 16, 4, b"1234"), "expected a frame of 2 bytes for 1 × 16 bits, found 1"),
            (file(1, 1, 8000, 4, 24, 4, b"1234"), "expected a frame of 3 bytes for 1 × 24 bits, found 4"),
            (file(1, 1, 8000, 8, 64, 8, &[0; 8]), "bits, found 64 bits"),
            (file(1, 1, 8000, 2, u16::MAX, 8, &[0; 8]), "bits, found 65535 bits"),
            (file(3, 1, 8000, 2, 16, 8, &[0; 8]), "expected float samples of 32 or 64 bits, found 16 bits"),
            (file(1, 1, 8000, 2, 16, 3, b"123"), "whole frames of 2 bytes, found 3 bytes"),
            (file(1, 2, 8000, 4, 16, 6, b"123456"), "whole frames of 4 bytes, found 6 bytes"),
            (file(1, 1, 8000, 2, 16, 0, b"1234"), "declares 0 bytes of samples"),
            (file(2, 1, 8000, 2, 16, 4, b"1234"), "format 0x0002"),
            (file(7, 1, 8000, 1, 8, 4, b"1234"), "format 0x0007"),
            (file(0xFFFE, 1, 8000, 2, 16, 4, b"1234"), "format 0xfffe"),
            (b"RIFF".to_vec(), "ends before the samples"),
            (b"MThd\0\0\0\x06\0\0\0\x01".to_vec(), "expected `RIFF` and `WAVE`"),
            (b"RIFX\0\0\0\0WAVE".to_vec(), "expected `RIFF` and `WAVE`"),
            (b"".to_vec(), "ends before the samples"),
            (b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\xff".to_vec(), "ends before the samples"),
            (b"RIFF\0\0\0\0WAVEdata\x04\0\0\0".to_vec(), "expected a format chunk (`fmt `) before the samples"),
            (b"RIFF\0\0\0\0WAVEfmt \x04\0\0\0\0\0\0\0".to_vec(), "of at least 16 bytes, found 4"),
            ([&b"RIFF\0\0\0\0WAVE"[..], &b"junk\0\0\0\0".repeat(65)].concat(), "at most 64 chunks"),
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
