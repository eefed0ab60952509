//! Headers of WAV files: RIFF, and RF64 and BW64, whose sizes have 64 bits.
//!
//! `hound`, which writes them, reads neither pad bytes after odd chunks nor samples that are
//! left-aligned in wider containers.

use std::io::{self, BufRead, Seek, SeekFrom};

/// Most chunks before the samples, which are few in any file.
const MAX_CHUNKS: usize = 64;

/// Bytes of a chunk that are looked at.
const MOST_OF_CHUNK: usize = 40;

/// The rest of the GUID of a format, after its first two bytes.
const GUID: [u8; 14] = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71];

/// How a sample is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// 8 bits without a sign.
    U8,
    I16,
    I24,
    I32,
    F32,
    F64,
}

impl Coding {
    /// The coding of a container of `bits` bits.
    fn of(is_float: bool, bits: u16) -> Option<Coding> {
        Some(match (is_float, bits) {
            (false, 8) => Coding::U8,
            (false, 16) => Coding::I16,
            (false, 24) => Coding::I24,
            (false, 32) => Coding::I32,
            (true, 32) => Coding::F32,
            (true, 64) => Coding::F64,
            _ => return None,
        })
    }

    pub(super) fn bytes(self) -> usize {
        match self {
            Coding::U8 => 1,
            Coding::I16 => 2,
            Coding::I24 => 3,
            Coding::I32 | Coding::F32 => 4,
            Coding::F64 => 8,
        }
    }
}

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wave {
    pub(super) channels: u16,
    /// Frames per second.
    pub(super) rate: u32,
    pub(super) coding: Coding,
    /// The offset of the first frame.
    pub(super) start: u64,
    /// Frames. Without a length in the header, a part of a frame at the end of the file counts as
    /// one.
    pub(super) length: u64,
}

impl Wave {
    /// Bytes of a frame.
    pub(super) fn frame(&self) -> usize {
        usize::from(self.channels) * self.coding.bytes()
    }

    /// Reads the header of a file of `size` bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(file: &mut (impl BufRead + Seek), size: u64) -> Result<Wave, String> {
        let cut = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "the file ends before the samples".to_string(),
            _ => error.to_string(),
        };
        let mut start = [0; 12];
        file.read_exact(&mut start).map_err(cut)?;
        if !matches!(&start[..4], b"RIFF" | b"RF64" | b"BW64") || &start[8..] != b"WAVE" {
            return Err("expected `RIFF` and `WAVE` at the beginning of a WAV file, found other bytes".into());
        }
        let (mut format, mut long) = (None, None);
        for _ in 0..MAX_CHUNKS {
            let mut head = [0; 8];
            file.read_exact(&mut head).map_err(cut)?;
            let [a, b, c, d, length @ ..] = head;
            let length = u32::from_le_bytes(length);
            if [a, b, c, d] == *b"data" {
                let (channels, rate, coding) =
                    format.ok_or("expected a format chunk (`fmt `) before the samples, found none")?;
                let start = file.stream_position().map_err(cut)?;
                let mut wave = Wave { channels, rate, coding, start, length: 0 };
                let frame = wave.frame() as u64;
                let rest = size.saturating_sub(start);
                wave.length = match (length, long) {
                    // The chunk `ds64` has the length, or nobody went back to write it, and the
                    // samples end with the file.
                    (u32::MAX, Some(long)) => whole_frames(long, frame)?,
                    (u32::MAX, None) => rest.div_ceil(frame),
                    (0, _) if rest >= frame => {
                        return Err("the header declares 0 bytes of samples: the recording was interrupted".into());
                    }
                    (length, _) => whole_frames(length.into(), frame)?,
                };
                return Ok(wave);
            }
            let mut chunk = [0; MOST_OF_CHUNK];
            let used = MOST_OF_CHUNK.min(length as usize);
            match &[a, b, c, d] {
                b"fmt " if format.is_some() => return Err("expected one format chunk (`fmt `), found two".into()),
                b"fmt " => {
                    file.read_exact(&mut chunk[..used]).map_err(cut)?;
                    format = Some(read_format(&chunk[..used])?);
                }
                b"ds64" => {
                    file.read_exact(&mut chunk[..used]).map_err(cut)?;
                    long = chunk[8..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).filter(|_| used >= 16);
                }
                _ => {
                    file.seek(SeekFrom::Current(length.into())).map_err(cut)?;
                    skip_pad(file, length).map_err(cut)?;
                    continue;
                }
            }
            file.seek(SeekFrom::Current(i64::from(length) - used as i64)).map_err(cut)?;
            skip_pad(file, length).map_err(cut)?;
        }
        Err(format!("expected at most {MAX_CHUNKS} chunks before the samples, found more"))
    }
}

/// Skips the zero that makes a chunk of odd length even. Some programs leave it out; no chunk's
/// name begins with a zero.
fn skip_pad(file: &mut impl BufRead, length: u32) -> io::Result<()> {
    if length % 2 == 1 && file.fill_buf()?.first() == Some(&0) {
        file.consume(1);
    }
    Ok(())
}

fn whole_frames(bytes: u64, frame: u64) -> Result<u64, String> {
    if !bytes.is_multiple_of(frame) {
        return Err(format!("expected whole frames of {frame} bytes, found {bytes} bytes of samples"));
    }
    Ok(bytes / frame)
}

/// Reads the chunk `fmt `: channels, frames per second and coding.
fn read_format(chunk: &[u8]) -> Result<(u16, u32, Coding), String> {
    let u16_at = |at: usize| chunk.get(at..at + 2).map(|two| u16::from_le_bytes([two[0], two[1]]));
    let rate = chunk.get(4..8).and_then(|four| four.first_chunk()).map(|four| u32::from_le_bytes(*four));
    let (Some(tag), Some(channels), Some(rate), Some(frame), Some(bits)) =
        (u16_at(0), u16_at(2), rate, u16_at(12), u16_at(14))
    else {
        return Err(format!("expected a format chunk (`fmt `) of at least 16 bytes, found {}", chunk.len()));
    };
    let tag = match chunk.get(24..40) {
        Some(guid) if tag == 0xFFFE && guid[2..] == GUID => u16::from_le_bytes([guid[0], guid[1]]),
        _ => tag,
    };
    let is_float = match tag {
        1 => false,
        3 => true,
        _ => return Err(format!("expected samples in PCM (1) or float (3), found format {tag:#06x}")),
    };
    if channels == 0 || channels > super::MAX_CHANNELS {
        return Err(format!("expected 1 to {} channels, found {channels}", super::MAX_CHANNELS));
    }
    if rate == 0 {
        return Err("the sample rate must be at least 1 Hz, got 0".into());
    }
    // Samples of fewer bits than their container have zeros below them, so all bits of the
    // container are read.
    let container = bits.checked_next_multiple_of(8).unwrap_or(bits);
    let Some(coding) = Coding::of(is_float, container) else {
        let (what, expected) = if is_float { ("float", "32 or 64") } else { ("integer", "8, 16, 24 or 32") };
        return Err(format!("expected {what} samples of {expected} bits, found {bits} bits"));
    };
    let expected = usize::from(channels) * coding.bytes();
    if usize::from(frame) != expected {
        return Err(format!("expected a frame of {expected} bytes for {channels} × {bits} bits, found {frame}"));
    }
    Ok((channels, rate, coding))
}
