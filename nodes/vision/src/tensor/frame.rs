//! Frames: images of one size, into which other images are scaled.

use crate::tensor::filter::ResizeFilter;
use crate::tensor::image;
use limen_resize::Resizer;

/// A frame and the buffers to fill it, which are reused for every image.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// The level of all channels where there is no image.
    fill: u8,
    resizer: Resizer,
    /// The scaled image.
    scaled: Vec<u8>,
}

impl FrameBuffer {
    /// `most` is the number of bytes of the largest frame.
    pub(crate) fn new(height: usize, width: usize, fill: u8, filter: ResizeFilter, most: usize) -> Self {
        FrameBuffer { height, width, fill, resizer: Resizer::new(filter.into()), scaled: Vec::with_capacity(most) }
    }

    /// Fills the frame.
    pub(crate) fn clear(&self, into: &mut [u8]) {
        into.fill(self.fill);
    }

    /// Scales an image to a height and a width that fit into the frame, puts it at the given first
    /// row and column, and fills the rest.
    pub(crate) fn draw(
        &mut self,
        from: [usize; 3],
        pixels: &[u8],
        [h, w]: [usize; 2],
        first: [usize; 2],
        into: &mut [u8],
    ) -> Result<(), String> {
        let channels = from[2];
        if [h, w] == [self.height, self.width] {
            return self.resizer.scale(from, pixels, [h, w, channels], into);
        }
        self.scaled.resize(h * w * channels, 0);
        self.resizer.scale(from, pixels, [h, w, channels], &mut self.scaled)?;
        self.clear(into);
        image::put_part([self.height, self.width, channels], into, first, [h, w], &self.scaled);
        Ok(())
    }
}
