//! Image files: the size from the header, and the pixels as `u8[height, width, channels]`.
//!
//! PNG with 8 bits per channel or less and JPEG, told apart by their first bytes. Colour profiles
//! and orientation tags are not applied.

use super::jpeg_scan;
use crate::tensor::image::MAX_SIDE;
use limen::files::InputFile;
use limen::node::NodeError;
use std::fmt;
use std::io::{BufRead, BufReader, Cursor, Read, Seek};
use std::path::PathBuf;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::{ZByteReaderTrait, ZCursor};
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// The largest ratio of decoded bytes to bytes of a file. DEFLATE expands a byte to at most 1032,
/// and each of their bits may be a pixel of four bytes. JPEG needs at least one bit per block,
/// which is less.
const MAX_EXPANSION: u64 = 1032 * 8 * 4;

/// Bytes that the PNG decoder may allocate for metadata and for one row.
const MAX_METADATA: usize = 64 << 20;

const PNG_SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A];
const JPEG_SIGNATURE: [u8; 3] = [0xFF, 0xD8, 0xFF];

/// Height, width and channels of a decoded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Pixels from top to bottom.
    pub height: usize,
    /// Pixels from left to right.
    pub width: usize,
    /// 1 grey, 3 RGB, 4 RGBA.
    pub channels: usize,
}

impl Size {
    pub(crate) fn bytes(self) -> usize {
        self.height * self.width * self.channels
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {} pixels with {} channels", self.width, self.height, self.channels)
    }
}

/// A file that matched a path.
#[derive(Clone, Debug)]
pub(crate) struct MatchedFile {
    /// The path to show in messages.
    pub(crate) path: PathBuf,
    /// The path with symbolic links resolved, which is the one to open.
    pub(crate) real: PathBuf,
}

/// The format of a file, from its first bytes.
enum FileFormat {
    Png,
    Jpeg,
}

impl FileFormat {
    fn of(bytes: &[u8]) -> Result<FileFormat, String> {
        if bytes.starts_with(&PNG_SIGNATURE) {
            Ok(FileFormat::Png)
        } else if bytes.starts_with(&JPEG_SIGNATURE) {
            Ok(FileFormat::Jpeg)
        } else {
            Err("not a PNG or JPEG file".into())
        }
    }
}

/// Reads a PNG file's header.
fn open_png<R: BufRead + Seek>(file: R) -> Result<(png::Reader<R>, Size), String> {
    let mut options = png::DecodeOptions::default();
    options.set_ignore_adler32(false);
    let mut decoder = png::Decoder::new_with_options(file, options);
    decoder.set_limits(png::Limits { bytes: MAX_METADATA });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    // Palettes become RGB, samples of 1 to 4 bits become 8 bits, and a transparent colour becomes
    // an alpha channel.
    decoder.set_transformations(png::Transformations::EXPAND);
    let reader = decoder.read_info().map_err(|e| e.to_string())?;
    if reader.output_color_type().1 == png::BitDepth::Sixteen {
        return Err(
            "expected 8 bits per channel, found 16: convert the file to 8 bits per channel, or to an array for `kind: npy`"
                .into(),
        );
    }
    let (width, height) = reader.info().size();
    let channels = match reader.output_color_type().0 {
        png::ColorType::Grayscale | png::ColorType::GrayscaleAlpha => 1,
        png::ColorType::Rgb | png::ColorType::Indexed => 3,
        png::ColorType::Rgba => 4,
    };
    let size = Size { height: height as usize, width: width as usize, channels };
    Ok((reader, size))
}

/// Reads a JPEG file's header.
fn open_jpeg<R: ZByteReaderTrait>(file: R) -> Result<(JpegDecoder<R>, Size), String> {
    let options = DecoderOptions::default().set_strict_mode(true).set_max_width(usize::MAX).set_max_height(usize::MAX);
    let mut decoder = JpegDecoder::new_with_options(file, options);
    decoder.decode_headers().map_err(|e| e.to_string())?;
    let (Some((width, height)), Some(colors)) = (decoder.dimensions(), decoder.input_colorspace()) else {
        return Err("expected a size in the JPEG header, found none".into());
    };
    let components = decoder.info().map_or(0, |info| info.components);
    if !matches!(components, 1 | 3 | 4) {
        return Err(format!("expected 1, 3 or 4 colour components, found {components}"));
    }
    let (channels, colors) = match colors {
        ColorSpace::Luma => (1, ColorSpace::Luma),
        // YCbCr, CMYK and the rest.
        _ => (3, ColorSpace::RGB),
    };
    decoder.set_options(decoder.options().jpeg_set_out_colorspace(colors));
    Ok((decoder, Size { height, width, channels }))
}

/// Returns the size of a file's image, from its header alone.
pub(crate) fn size_of_file(MatchedFile { path, real }: &MatchedFile) -> Result<Size, NodeError> {
    let bad = |why: String| NodeError::input(path.display().to_string(), why);
    let file = InputFile::again(real).map_err(|e| NodeError::file(path, e))?;
    let bytes = file.size();
    let mut file = BufReader::new(file);
    let size = match FileFormat::of(file.fill_buf().map_err(|e| NodeError::file(path, e))?).map_err(bad)? {
        FileFormat::Png => open_png(file).map(|(_, size)| size),
        FileFormat::Jpeg => open_jpeg(file).map(|(_, size)| size),
    };
    let size = size.map_err(bad)?;
    if size.width > MAX_SIDE || size.height > MAX_SIDE {
        return Err(bad(format!("width and height must be at most {MAX_SIDE} pixels, got {size}")));
    }
    if size.bytes() == 0 {
        return Err(bad(format!("width and height must be at least 1 pixel, got {size}")));
    }
    // Memory is planned from the header, so the header is checked against what the file could hold.
    if size.bytes() as u64 > bytes.saturating_mul(MAX_EXPANSION) {
        let (most, got) = (bytes.saturating_mul(MAX_EXPANSION), size.bytes());
        return Err(bad(format!(
            "the image in a file of {bytes} bytes must have at most {most} bytes, got {got} ({size})"
        )));
    }
    Ok(size)
}

/// Reads a file into a buffer, reusing its capacity. A file larger than any image of that size is
/// an error.
pub(crate) fn read(
    MatchedFile { path, real }: &MatchedFile,
    largest: Size,
    into: &mut Vec<u8>,
) -> Result<(), NodeError> {
    // An uncompressed file with 16 bits per channel is twice as large; the rest allows for
    // metadata.
    let most = 2 * largest.bytes() as u64 + (16 << 20);
    into.clear();
    let file = InputFile::again(real).map_err(|e| NodeError::file(path, e))?;
    let read = file.take(most + 1).read_to_end(into).map_err(|e| NodeError::file(path, e))?;
    if read as u64 > most {
        let why = format!("the file must be at most {most} bytes for {largest}, got more");
        return Err(NodeError::input(path.display().to_string(), why));
    }
    Ok(())
}

/// An image whose header was read.
pub struct Encoded<'a> {
    decoder: Decoder<'a>,
    size: Size,
    /// The file.
    bytes: &'a [u8],
}

impl fmt::Debug for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes.len(), self.size)
    }
}

enum Decoder<'a> {
    Png(Box<png::Reader<Cursor<&'a [u8]>>>),
    Jpeg(Box<JpegDecoder<ZCursor<&'a [u8]>>>),
}

impl<'a> Encoded<'a> {
    /// Reads the header of a file.
    pub fn new(bytes: &'a [u8]) -> Result<Self, String> {
        Ok(match FileFormat::of(bytes)? {
            FileFormat::Png => {
                let (reader, size) = open_png(Cursor::new(bytes))?;
                Encoded { decoder: Decoder::Png(Box::new(reader)), size, bytes }
            }
            FileFormat::Jpeg => {
                let (decoder, size) = open_jpeg(ZCursor::new(bytes))?;
                Encoded { decoder: Decoder::Jpeg(Box::new(decoder)), size, bytes }
            }
        })
    }

    /// Returns the size of the decoded image.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Gives a grey image with opacity four channels instead of the grey alone.
    #[must_use]
    pub(crate) fn with_opacity(mut self) -> Self {
        if let Decoder::Png(reader) = &self.decoder
            && reader.output_color_type().0 == png::ColorType::GrayscaleAlpha
        {
            self.size.channels = 4;
        }
        self
    }

    /// Decodes the image into a buffer of its size.
    pub fn decode(self, into: &mut [u8]) -> Result<(), String> {
        match self.decoder {
            Decoder::Png(reader) => decode_png(*reader, self.size, into),
            Decoder::Jpeg(mut decoder) => {
                // zune-jpeg leaves the last rows of some damaged files unwritten, and the buffer
                // may hold an earlier image.
                into.fill(128);
                decoder.decode_into(into).map_err(|e| e.to_string())?;
                jpeg_scan::check(self.bytes)
            }
        }
    }
}

fn decode_png<R: BufRead + Seek>(mut reader: png::Reader<R>, size: Size, into: &mut [u8]) -> Result<(), String> {
    let (color, _) = reader.output_color_type();
    let bytes = reader.output_buffer_size().ok_or("the size of the image must fit 64 bits, got more")?;
    if bytes == into.len() {
        return reader.next_frame(into).map(drop).map_err(|e| e.to_string());
    }
    let mut samples = vec![0; bytes];
    reader.next_frame(&mut samples).map_err(|e| e.to_string())?;
    let of_pixel = color.samples();
    if samples.len() / of_pixel * size.channels != into.len() {
        return Err(format!("expected {1} samples in the image data, found {0}", samples.len(), into.len()));
    }
    for (pixel, found) in into.chunks_exact_mut(size.channels).zip(samples.chunks_exact(of_pixel)) {
        match (found, size.channels) {
            (&[grey, alpha], 4) => pixel.copy_from_slice(&[grey, grey, grey, alpha]),
            // Only grey images with alpha have more samples per pixel than the result.
            _ => pixel.copy_from_slice(&found[..size.channels]),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PNG file of the samples, 8 or 16 bits each.
    fn png_of(width: u32, height: u32, color: png::ColorType, depth: png::BitDepth, samples: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(color);
        encoder.set_depth(depth);
        encoder.write_header().unwrap().write_image_data(samples).unwrap();
        bytes
    }

    fn grey(width: u32, height: u32) -> Vec<u8> {
        let samples = vec![0; (width * height) as usize];
        png_of(width, height, png::ColorType::Grayscale, png::BitDepth::Eight, &samples)
    }

    fn decode(bytes: &[u8], into: &mut [u8]) -> Result<Size, String> {
        let encoded = Encoded::new(bytes)?;
        let size = encoded.size();
        encoded.decode(into).map(|()| size)
    }

    #[test]
    fn a_header_that_announces_more_pixels_than_the_file_can_hold_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("a.png");
        let size_of_file = |path: &PathBuf| size_of_file(&MatchedFile { path: path.clone(), real: path.clone() });
        let mut bytes = png_of(1, 1, png::ColorType::Rgba, png::BitDepth::Eight, &[0; 4]);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(size_of_file(&path).unwrap(), Size { height: 1, width: 1, channels: 4 });
        for side in [16..20, 20..24] {
            bytes[side].copy_from_slice(&(MAX_SIDE as u32).to_be_bytes());
        }
        let sum = crc32fast::hash(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&sum.to_be_bytes());
        bytes.resize(1024, 0);
        std::fs::write(&path, &bytes).unwrap();
        let said = size_of_file(&path).unwrap_err().to_string();
        let expected = "in a file of 1024 bytes must have at most 33816576 bytes, got 4294967296 (32768 × 32768 pixels";
        assert!(said.contains(expected), "{said}");
        // A real image with a very high compression ratio is accepted.
        std::fs::write(&path, grey(1 << 14, 1 << 13)).unwrap();
        assert!(size_of_file(&path).is_ok());
    }

    #[test]
    fn pixels_come_as_8_bits_in_1_3_or_4_channels() {
        use png::{BitDepth::*, ColorType::*};
        for (color, depth, samples, expected) in [
            (Grayscale, Eight, vec![10, 11], vec![10, 11]),
            (GrayscaleAlpha, Eight, vec![10, 99, 11, 99], vec![10, 11]),
            (Rgb, Eight, vec![1, 2, 0, 1, 2, 1], vec![1, 2, 0, 1, 2, 1]),
            (Rgba, Eight, vec![1, 2, 0, 4, 1, 2, 1, 4], vec![1, 2, 0, 4, 1, 2, 1, 4]),
            // A bit a pixel is black or white.
            (Grayscale, One, vec![0b0100_0000], vec![0, 255]),
        ] {
            let bytes = png_of(2, 1, color, depth, &samples);
            let mut pixels = vec![0; expected.len()];
            let size = Size { height: 1, width: 2, channels: expected.len() / 2 };
            assert_eq!((decode(&bytes, &mut pixels).unwrap(), pixels), (size, expected));
        }
    }

    /// Each chunk has a checksum, and so have the pixels of all.
    #[test]
    fn a_damaged_png_is_refused() {
        let samples: Vec<u8> = (0..32 * 24 * 3u32).map(|i| ((i * i) >> 3) as u8).collect();
        let file = png_of(32, 24, png::ColorType::Rgb, png::BitDepth::Eight, &samples);
        let decoded = |bytes: &[u8]| {
            let mut pixels = vec![7; samples.len()];
            decode(bytes, &mut pixels).map(|_| pixels)
        };
        // The last chunk, whose checksum begins here, has no pixels.
        let end = file.len() - 4;
        assert_eq!(decoded(&[&file[..], b"rest"].concat()).as_ref(), Ok(&samples));
        for at in 0..end {
            assert!(decoded(&file[..at]).is_err(), "cut after {at} of {} bytes", file.len());
            let mut damaged = file.clone();
            damaged[at] ^= 0x10;
            assert!(at >= end - 8 || decoded(&damaged).is_err(), "byte {at} of {}", file.len());
        }
        // The last bytes of the data are a checksum of all pixels; that of the chunk is made right
        // again.
        let mut damaged = file.clone();
        damaged[end - 13] ^= 0x10;
        let data = file.windows(4).position(|name| name == b"IDAT").unwrap();
        let sum = crc32fast::hash(&damaged[data..end - 12]);
        damaged[end - 12..end - 8].copy_from_slice(&sum.to_be_bytes());
        assert!(decoded(&damaged).is_err());
    }

    /// Depth in millimetres must not lose its low bits.
    #[test]
    fn images_of_16_bits_are_refused() {
        for color in
            [png::ColorType::Grayscale, png::ColorType::GrayscaleAlpha, png::ColorType::Rgb, png::ColorType::Rgba]
        {
            let bytes = png_of(1, 1, color, png::BitDepth::Sixteen, &vec![7; 2 * color.samples()]);
            let why = Encoded::new(&bytes).err().unwrap();
            assert!(why.starts_with("expected 8 bits per channel, found 16"), "{why}");
        }
    }

    #[test]
    fn the_opacity_of_grey_images_is_kept_where_there_are_four_channels() {
        use png::{BitDepth::*, ColorType::*};
        for (color, depth, samples, expected) in [
            (GrayscaleAlpha, Eight, vec![10, 99, 11, 0], vec![10, 10, 10, 99, 11, 11, 11, 0]),
            (Grayscale, Eight, vec![10, 11], vec![10, 11]),
        ] {
            let bytes = png_of(2, 1, color, depth, &samples);
            let encoded = Encoded::new(&bytes).unwrap().with_opacity();
            assert_eq!(encoded.size().bytes(), expected.len(), "{color:?}");
            let mut pixels = vec![0; expected.len()];
            encoded.decode(&mut pixels).unwrap();
            assert_eq!(pixels, expected, "{color:?}");
        }
    }

    /// A JPEG file as Pillow 12 wrote it: 8 × 16 pixels, the upper half 10, the lower half 200.
    const JPEG: &str = "ffd8ffe000104a46494600010100000100010000ffdb004300100b0c0e0c0a100e0d0e1211101318281a181616183123251d283a333d3c3933383740\
        485c4e404457453738506d51575f626768673e4d71797064785c656763ffc0000b080010000801011100ffc400150001010000000000000000000000000000\
        0607ffc40014100100000000000000000000000000000000ffda0008010100003f0008afbfffd9";

    fn bytes_of(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn a_damaged_jpeg_shows_nothing_of_an_earlier_image() {
        let decoded = |hex: &str| {
            let mut pixels = [7; 128];
            decode(&bytes_of(hex), &mut pixels).map(|_| pixels)
        };
        let pixels = decoded(JPEG).unwrap();
        assert!(pixels[..64].iter().all(|p| p.abs_diff(10) < 3) && pixels[64..].iter().all(|p| p.abs_diff(200) < 3));
        // Markers instead of the last rows, or of all.
        for (from, to) in [("afbfffd9", "ffe00002ffd9"), ("08afbfffd9", "ffe00002ffd9"), ("afbfffd9", "ffdb0002ffd9")] {
            if let Ok(pixels) = decoded(&JPEG.replace(from, to)) {
                assert!(!pixels.contains(&7), "{to}: {pixels:?}");
            }
        }
        let two = JPEG.replace("ffc0000b080010000801011100", "ffc0000e080010000802011100021100");
        let two = two.replace("ffda0008010100003f00", "ffda000a0201000200003f00");
        assert_eq!(decoded(&two).unwrap_err(), "expected 1, 3 or 4 colour components, found 2");
    }

    #[test]
    fn a_file_that_is_not_an_image_or_does_not_fill_its_buffer_is_refused() {
        let cut = grey(2, 1);
        let cut = cut[..cut.len() - 20].to_vec();
        for (bytes, expected) in [
            (grey(3, 1), "expected 2 samples in the image data, found 3"),
            (cut, ""),
            (b"no image at all".to_vec(), "not a PNG or JPEG"),
            (Vec::new(), "not a PNG or JPEG"),
        ] {
            let error = decode(&bytes, &mut [0; 2]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
