//! Filters: how a scaled image is computed from its pixels.

use schemars::JsonSchema;
use serde::Deserialize;

/// An interpolation filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResizeFilter {
    /// Triangle filter. If an image shrinks, the filter widens to cover every pixel. Matches
    /// Pillow's `BILINEAR` within 1 level, except in almost transparent colours.
    #[default]
    Bilinear,
    /// Interpolation between the two nearest pixels along each axis, even if the image shrinks.
    /// Identical to OpenCV's `INTER_LINEAR` (the default of `cv2.resize`) for 1, 3 or 4 channels.
    Linear,
    /// Mean of the source pixels that an output pixel covers. Identical to OpenCV's `INTER_AREA`
    /// for 1, 3 or 4 channels.
    Area,
    /// Nearest pixel. `nearest` is fast and coarse. Matches Pillow's `NEAREST` and OpenCV's
    /// `INTER_NEAREST_EXACT`. In rare exact ties, OpenCV picks a different pixel. Differs from
    /// OpenCV's `INTER_NEAREST`, which picks the pixel to the left and above.
    Nearest,
    /// Windowed sinc, as in Pillow's `LANCZOS`. If an image shrinks, the filter widens. `lanczos3`
    /// is sharp and slow. At sharp edges, the result differs from Pillow by tens of levels (25 for
    /// black text on white). The reason is that Pillow clips intermediate overshoots. Pillow may
    /// also scale the two axes in a different order.
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
