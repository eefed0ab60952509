//! Filters: how a scaled image is computed from its pixels.

use schemars::JsonSchema;
use serde::Deserialize;

/// An interpolation filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResizeFilter {
    /// Triangle filter that widens when an image shrinks, so that every pixel contributes. Matches
    /// Pillow's `BILINEAR` within 1 level. The difference is larger for almost transparent colours.
    #[default]
    Bilinear,
    /// Interpolation between the two nearest pixels of each axis, even if the image shrinks.
    /// Matches OpenCV's `INTER_LINEAR`, the default of `cv2.resize`, exactly for 1, 3 or 4
    /// channels.
    Linear,
    /// Mean of the covered area. Matches OpenCV's `INTER_AREA` exactly for 1, 3 or 4 channels.
    Area,
    /// Nearest pixel. `nearest` is fast and coarse. Matches Pillow's `NEAREST` and OpenCV's
    /// `INTER_NEAREST_EXACT`, except that OpenCV rarely picks another pixel at an exact tie.
    /// Differs from OpenCV's `INTER_NEAREST`, which picks the pixel to the left and above.
    Nearest,
    /// Windowed sinc that widens when an image shrinks. `lanczos3` is sharp and slow. The filter
    /// function is the same as in Pillow's `LANCZOS`. Levels at sharp edges differ from Pillow by
    /// tens (25 for black text on white), because Pillow clips intermediate overshoots. Pillow may
    /// also scale the axes in the other order.
    Lanczos3,
}

impl ResizeFilter {
    /// `linear`, the default of kinds that prepare images as Python programs with OpenCV do.
    pub(crate) fn linear() -> Self {
        ResizeFilter::Linear
    }
}

impl From<ResizeFilter> for limen_resize::Filter {
    fn from(filter: ResizeFilter) -> Self {
        match filter {
            ResizeFilter::Bilinear => limen_resize::Filter::Bilinear,
            ResizeFilter::Linear => limen_resize::Filter::Linear,
            ResizeFilter::Area => limen_resize::Filter::Area,
            ResizeFilter::Nearest => limen_resize::Filter::Nearest,
            ResizeFilter::Lanczos3 => limen_resize::Filter::Lanczos3,
        }
    }
}
