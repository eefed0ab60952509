//! Image files: what their header says, and their pixels as `u8[height, width, channels]`.

use image::{ColorType, DynamicImage, ImageDecoder, ImageError, ImageReader, Limits};
use limen::files::InputFile;
use limen::node::NodeError;
use std::fmt;
use std::io::{BufReader, Cursor, Read};
use std::path::PathBuf;

/// Largest side of an image, in pixels: far above any camera, far below what overflows a size.
const MAX_SIDE: u32 = 1 << 15;

/// No file decodes to more than so many times its size: DEFLATE makes at most 1032 bytes of one, and each of their bits may stand for a pixel
/// of four bytes. JPEG needs a bit for a block.
const MOST_EXPANDED: u64 = 1032 * 8 * 4;

/// The size of a decoded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl Size {
    fn of(decoder: &impl ImageDecoder) -> Size {
        let (width, height) = decoder.dimensions();
        let color = decoder.color_type();
        let channels = match (color.has_color(), color.has_alpha()) {
            (false, _) => 1,
            (true, false) => 3,
            (true, true) => 4,
        };
        Size { height: height as usize, width: width as usize, channels }
    }

    pub(crate) fn bytes(self) -> usize {
        self.height * self.width * self.channels
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {} pixels with {} channels", self.width, self.height, self.channels)
    }
}

/// A file that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Its path as people know it.
    pub(crate) path: PathBuf,
    /// Its path without links, by which it is opened.
    pub(crate) real: PathBuf,
}

fn limits(max_alloc: u64) -> Limits {
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(MAX_SIDE), Some(MAX_SIDE));
    limits.max_alloc = Some(max_alloc);
    limits
}

/// The size of a file's image, from its header alone.
pub(crate) fn size_of_file(Found { path, real }: &Found) -> Result<Size, NodeError> {
    let bad = |error: ImageError| NodeError::input(path.display().to_string(), error);
    let file = InputFile::again(real).map_err(|e| NodeError::file(path, e))?;
    let bytes = file.size();
    let reader = ImageReader::new(BufReader::new(file)).with_guessed_format().map_err(|e| NodeError::file(path, e))?;
    let mut reader = reader;
    reader.limits(limits(512 << 20));
    let size = Size::of(&reader.into_decoder().map_err(bad)?);
    if size.bytes() == 0 {
        return Err(NodeError::input(path.display().to_string(), format!("the image is empty: {size}")));
    }
    // What memory is planned for hangs on the header, so it is held against what the file could hold.
    if size.bytes() as u64 > bytes.saturating_mul(MOST_EXPANDED) {
        let why = format!("its header says {size}, which {bytes} bytes cannot hold");
        return Err(NodeError::input(path.display().to_string(), why));
    }
    Ok(size)
}

/// Reads a file into a buffer that keeps its room. A file that is larger than any image of the size is not read.
pub(crate) fn read(Found { path, real }: &Found, size: Size, into: &mut Vec<u8>) -> Result<(), NodeError> {
    // Uncompressed and with 16 bits a channel it is twice as large; the rest is for metadata.
    let most = 2 * size.bytes() as u64 + (16 << 20);
    into.clear();
    let file = InputFile::again(real).map_err(|e| NodeError::file(path, e))?;
    let read = file.take(most + 1).read_to_end(into).map_err(|e| NodeError::file(path, e))?;
    if read as u64 > most {
        let why = format!("the file is larger than {most} bytes, too large for {size}");
        return Err(NodeError::input(path.display().to_string(), why));
    }
    Ok(())
}

/// Decodes an image of a known size into its place.
pub(crate) fn decode(bytes: &[u8], size: Size, into: &mut [u8]) -> Result<(), String> {
    let words = |error: ImageError| error.to_string();
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| e.to_string())?;
    let mut reader = reader;
    // 16-bit pixels, one copy of them, and the decoder's own tables.
    reader.limits(limits(4 * size.bytes() as u64 + (64 << 20)));
    let decoder = reader.into_decoder().map_err(words)?;
    let found = Size::of(&decoder);
    if found != size {
        return Err(format!("{found}, where the first file has {size}; put files of one size under one path"));
    }
    match decoder.color_type() {
        ColorType::L8 | ColorType::Rgb8 | ColorType::Rgba8 if decoder.total_bytes() == into.len() as u64 => {
            decoder.read_image(into).map_err(words)
        }
        _ => {
            let image = DynamicImage::from_decoder(decoder).map_err(words)?;
            let pixels = match size.channels {
                1 => image.into_luma8().into_raw(),
                3 => image.into_rgb8().into_raw(),
                _ => image.into_rgba8().into_raw(),
            };
            if pixels.len() != into.len() {
                return Err(format!("it decodes to {} bytes, not to {}", pixels.len(), into.len()));
            }
            into.copy_from_slice(&pixels);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ImageFormat, Luma, LumaA, Rgb, Rgba};

    fn png(image: impl Into<DynamicImage>) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image.into().write_to(&mut bytes, ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    fn size(channels: usize) -> Size {
        Size { height: 1, width: 2, channels }
    }

    /// A header alone plans no memory.
    #[test]
    fn a_size_that_its_file_cannot_hold_is_refused() {
        let crc = |bytes: &[u8]| {
            let bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            !bytes.iter().fold(!0u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc)))
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("a.png");
        let size_of_file = |path: &PathBuf| size_of_file(&Found { path: path.clone(), real: path.clone() });
        let mut bytes = png(image::RgbaImage::new(1, 1));
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(size_of_file(&path).unwrap(), Size { height: 1, width: 1, channels: 4 });
        for side in [16..20, 20..24] {
            bytes[side].copy_from_slice(&MAX_SIDE.to_be_bytes());
        }
        let sum = crc(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&sum.to_be_bytes());
        bytes.resize(1024, 0);
        std::fs::write(&path, &bytes).unwrap();
        let said = size_of_file(&path).unwrap_err().to_string();
        let expected = "its header says 32768 × 32768 pixels with 4 channels, which 1024 bytes cannot hold";
        assert!(said.contains(expected), "{said}");
        // As many pixels of one colour as a file can have are let pass.
        std::fs::write(&path, png(image::GrayImage::new(1 << 14, 1 << 13))).unwrap();
        assert!(size_of_file(&path).is_ok());
    }

    #[test]
    fn pixels_come_as_8_bits_in_1_3_or_4_channels() {
        let grey = image::GrayImage::from_fn(2, 1, |x, _| Luma([10 + x as u8]));
        let grey_alpha = image::GrayAlphaImage::from_fn(2, 1, |x, _| LumaA([10 + x as u8, 99]));
        let rgb = image::RgbImage::from_fn(2, 1, |x, _| Rgb([1, 2, x as u8]));
        let rgba = image::RgbaImage::from_fn(2, 1, |x, _| Rgba([1, 2, x as u8, 4]));
        let deep = image::ImageBuffer::<Luma<u16>, _>::from_fn(2, 1, |x, _| Luma([257 * (10 + x as u16)]));
        for (bytes, expected) in [
            (png(grey), vec![10, 11]),
            (png(grey_alpha), vec![10, 11]),
            (png(rgb), vec![1, 2, 0, 1, 2, 1]),
            (png(rgba), vec![1, 2, 0, 4, 1, 2, 1, 4]),
            (png(deep), vec![10, 11]),
        ] {
            let mut pixels = vec![0; expected.len()];
            decode(&bytes, size(expected.len() / 2), &mut pixels).unwrap();
            assert_eq!(pixels, expected);
        }
    }

    #[test]
    fn what_is_no_image_of_the_size_is_refused_in_words() {
        let grey = png(image::GrayImage::new(2, 1));
        let cut = grey[..grey.len() - 20].to_vec();
        for (bytes, expected) in [
            (png(image::GrayImage::new(3, 1)), "3 × 1 pixels with 1 channels, where the first file has 2 × 1"),
            (png(image::RgbImage::new(2, 1)), "3 channels"),
            (cut, ""),
            (b"no image at all".to_vec(), "format"),
            (Vec::new(), "format"),
        ] {
            let error = decode(&bytes, size(1), &mut [0; 2]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
