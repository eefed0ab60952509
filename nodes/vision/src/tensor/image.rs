//! Images: tensors `u8[h,w,c]`, while planning and at run time.

use limen::Tensor;
use limen::message::{DType, Dim, Layout, PortSpec};
use limen::node::{NodeError, PlanErrors};
use limen_nodes_core::tensor::shape;

/// Largest side of an image, in pixels: far above any camera, far below what overflows a size.
pub(crate) const MAX_SIDE: usize = 1 << 15;

/// Returns the spec of an image.
pub(crate) fn spec(dims: [Dim; 3]) -> PortSpec {
    PortSpec::new(DType::U8, dims).with_layout(Layout::Hwc)
}

/// Returns the spec of a port that takes images of the connected dims, or of any if these are not
/// known.
pub(crate) fn input_spec(dims: Option<&[Dim; 3]>) -> PortSpec {
    spec(dims.cloned().unwrap_or_else(shape::any_image))
}

/// Returns the spec of images with the channels of another, but of one size.
pub(crate) fn of_size(height: usize, width: usize, dims: &[Dim; 3]) -> PortSpec {
    spec([Dim::Fixed(height), Dim::Fixed(width), dims[2].clone()])
}

/// Adds a problem for each side that no image has.
pub(crate) fn check_sides(sides: [(&str, usize); 2], errors: &mut PlanErrors) {
    for (field, side) in sides {
        if !(1..=MAX_SIDE).contains(&side) {
            errors
                .at(field, format!("`{field}` must be 1 to {MAX_SIDE} pixels, got {side}"))
                .help("write a number such as 640");
        }
    }
}

/// Adds a problem if the image at a port has a number of channels that cannot be scaled.
pub(crate) fn check_channels(port: &str, dims: Option<&[Dim; 3]>, errors: &mut PlanErrors) {
    if let Some([.., Dim::Fixed(channels)]) = dims
        && !(1..=4).contains(channels)
    {
        let message = format!("expected an image of 1 to 4 channels, found {channels}");
        errors
            .input(port, message)
            .help("connect an image u8[h,w,c] with 1 to 4 channels, such as the input of a `to_tensor` node");
    }
}

/// Returns the lengths of the largest image of these dims, none of which is 0; `None` if one has no
/// bound.
pub(crate) fn largest([h, w, channels]: &[Dim; 3]) -> Option<[usize; 3]> {
    Some([h.max()?.max(1), w.max()?.max(1), channels.max()?.max(1)])
}

/// Returns height, width and channels of an image, and its pixels.
pub(crate) fn pixels<'a>(port: &str, image: &'a Tensor) -> Result<([usize; 3], &'a [u8]), NodeError> {
    let shape = image.shape();
    match &*shape {
        &[h, w, c] => Ok(([h, w, c], image.as_slice()?)),
        _ => Err(NodeError::input(port, format!("expected an image u8[h,w,c], found {image:?}"))),
    }
}

/// Copies an image into a larger one, to row `top` and column `left`; the size is height and width.
pub(crate) fn put_part(
    [_, width, channels]: [usize; 3],
    into: &mut [u8],
    [top, left]: [usize; 2],
    [h, w]: [usize; 2],
    pixels: &[u8],
) {
    let (line, part) = (width * channels, w * channels);
    let rows = into.chunks_exact_mut(line.max(1)).skip(top).take(h);
    for (to, row) in rows.zip(pixels.chunks_exact(part.max(1))) {
        to[left * channels..][..part].copy_from_slice(row);
    }
}

/// Copies a rectangle of an image, with a height and a width, from its row `top` and its column
/// `left` on.
pub(crate) fn copy_part(
    [_, width, channels]: [usize; 3],
    pixels: &[u8],
    [top, left]: [usize; 2],
    [h, w]: [usize; 2],
    into: &mut [u8],
) {
    let (line, part) = (width * channels, w * channels);
    // `chunks_exact` panics on 0.
    let rows = pixels.chunks_exact(line.max(1)).skip(top).take(h);
    for (to, row) in into.chunks_exact_mut(part.max(1)).zip(rows) {
        to.copy_from_slice(&row[left * channels..][..part]);
    }
}
