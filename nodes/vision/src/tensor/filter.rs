//! Filters: how a scaled image is computed from its pixels.

use schemars::JsonSchema;
use serde::Deserialize;

/// An interpolation filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResizeFilter {
    /// A triangle filter that widens with the scale, so that no pixel is left out: Pillow's
    /// `BILINEAR`. A level may differ by 1; with opacity, colours that are almost transparent
    /// differ by more.
    #[default]
    Bilinear,
    /// Between the two nearest pixels of each axis, also when shrinking: OpenCV's `INTER_LINEAR`,
    /// the default of `cv2.resize`. With 1, 3 or 4 channels every level is the same.
    Linear,
    /// The mean of the covered area: OpenCV's `INTER_AREA`. With 1, 3 or 4 channels every level is
    /// the same.
    Area,
    /// The nearest pixel, fast and coarse: Pillow's `NEAREST` and OpenCV's `INTER_NEAREST_EXACT`;
    /// where two pixels are equally near, OpenCV rarely takes the other one. OpenCV's
    /// `INTER_NEAREST` is different: it takes the pixel to the left and above.
    Nearest,
    /// A windowed sinc that widens with the scale, sharp and slow: the filter of Pillow's
    /// `LANCZOS`. At sharp edges levels differ by tens (25 for black text on white), because Pillow
    /// may scale the axes in the other order, and overshoots are clipped in between.
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
