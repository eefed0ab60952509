//! Colours: the channels of a pixel, their order and their conversion.

use schemars::JsonSchema;
use serde::Deserialize;

/// The channels of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Colour {
    /// One channel of brightness.
    Grey,
    /// Red, green, blue: the channel order of image files and most models.
    Rgb,
    /// Blue, green, red: the channel order of OpenCV.
    Bgr,
    /// Red, green, blue, opacity.
    Rgba,
}

impl Colour {
    /// Returns the number of channels.
    pub(crate) fn channels(self) -> usize {
        match self {
            Colour::Grey => 1,
            Colour::Rgb | Colour::Bgr => 3,
            Colour::Rgba => 4,
        }
    }

    /// Returns the colours of an image file with this many channels.
    pub(crate) fn of_file(channels: usize) -> Option<Self> {
        match channels {
            1 => Some(Colour::Grey),
            3 => Some(Colour::Rgb),
            4 => Some(Colour::Rgba),
            _ => None,
        }
    }
}

/// Converts pixels. Grey is 0.299 red + 0.587 green + 0.114 blue; opacity is left out, and 255
/// where there was none.
pub(crate) fn convert(from: Colour, to: Colour, pixels: &[u8], into: &mut [u8]) {
    match from {
        Colour::Grey => convert_rgba::<1>(to, pixels, into, |[v]| [v, v, v, u8::MAX]),
        Colour::Rgb => convert_rgba::<3>(to, pixels, into, |[r, g, b]| [r, g, b, u8::MAX]),
        Colour::Bgr => convert_rgba::<3>(to, pixels, into, |[b, g, r]| [r, g, b, u8::MAX]),
        Colour::Rgba => convert_rgba::<4>(to, pixels, into, |rgba| rgba),
    }
}

fn convert_rgba<const N: usize>(to: Colour, pixels: &[u8], into: &mut [u8], rgba: impl Fn([u8; N]) -> [u8; 4]) {
    match to {
        Colour::Grey => each::<N, 1>(pixels, into, |pixel| [grey(rgba(pixel))]),
        Colour::Rgb => each::<N, 3>(pixels, into, |pixel| {
            let [r, g, b, _] = rgba(pixel);
            [r, g, b]
        }),
        Colour::Bgr => each::<N, 3>(pixels, into, |pixel| {
            let [r, g, b, _] = rgba(pixel);
            [b, g, r]
        }),
        Colour::Rgba => each::<N, 4>(pixels, into, rgba),
    }
}

/// The numbers of channels are compile-time constants, so that the loop has none inside.
fn each<const N: usize, const M: usize>(pixels: &[u8], into: &mut [u8], convert: impl Fn([u8; N]) -> [u8; M]) {
    for (to, from) in into.as_chunks_mut::<M>().0.iter_mut().zip(pixels.as_chunks::<N>().0) {
        *to = convert(*from);
    }
}

/// The brightness of a colour, with OpenCV's weights, which have 15 bits.
fn grey([r, g, b, _]: [u8; 4]) -> u8 {
    ((u32::from(r) * 9_798 + u32::from(g) * 19_235 + u32::from(b) * 3_735 + (1 << 14)) >> 15) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_change_their_order_and_their_number() {
        use Colour::{Bgr, Grey, Rgb, Rgba};
        for (from, to, pixels, expected) in [
            (Rgb, Bgr, &[1, 2, 3, 4, 5, 6][..], &[3, 2, 1, 6, 5, 4][..]),
            (Bgr, Rgb, &[1, 2, 3], &[3, 2, 1]),
            (Rgba, Rgb, &[1, 2, 3, 9, 4, 5, 6, 0], &[1, 2, 3, 4, 5, 6]),
            (Rgba, Bgr, &[1, 2, 3, 9], &[3, 2, 1]),
            (Rgb, Rgba, &[1, 2, 3], &[1, 2, 3, 255]),
            (Grey, Rgb, &[7, 8], &[7, 7, 7, 8, 8, 8]),
            (Grey, Bgr, &[7], &[7, 7, 7]),
            (Grey, Rgba, &[7], &[7, 7, 7, 255]),
            (Rgb, Rgb, &[1, 2, 3], &[1, 2, 3]),
            (Rgb, Grey, &[], &[]),
        ] {
            let mut converted = vec![0; pixels.len() / from.channels() * to.channels()];
            convert(from, to, pixels, &mut converted);
            assert_eq!(converted, expected, "{from:?} to {to:?}");
        }
    }

    /// The expected numbers are those of `cv2.cvtColor` (OpenCV 5.0.0) with `COLOR_RGB2GRAY`:
    /// colours that weights of 14 bits, or floating-point numbers, round otherwise.
    #[test]
    fn grey_is_that_of_opencv() {
        for (colour, expected) in [
            ([62, 44, 238], 71),
            ([81, 31, 106], 54),
            ([73, 53, 233], 79),
            ([34, 101, 132], 84),
            ([254, 33, 63], 103),
            ([235, 110, 76], 144),
            ([248, 194, 190], 210),
            ([255, 0, 0], 76),
            ([0, 255, 0], 150),
            ([0, 0, 255], 29),
        ] {
            let ([r, g, b], mut grey) = (colour, [0]);
            for (from, pixel) in
                [(Colour::Rgb, &[r, g, b][..]), (Colour::Bgr, &[b, g, r]), (Colour::Rgba, &[r, g, b, 9])]
            {
                convert(from, Colour::Grey, pixel, &mut grey);
                assert_eq!(grey, [expected], "{colour:?} from {from:?}");
            }
        }
        assert!((0..=255).all(|v| grey([v, v, v, 255]) == v));
    }
}
