//! The nearest pixel, where `fast_image_resize` would be compiled for a further type of source.

/// The buffer, which is reused for every image.
#[derive(Debug, Default)]
pub(crate) struct Nearest {
    columns: Vec<usize>,
}

impl Nearest {
    /// Returns how many bytes the buffer needs for an output of a width.
    pub(crate) fn bytes(width: usize) -> usize {
        width.saturating_mul(size_of::<usize>())
    }

    /// Returns how many bytes the buffers hold.
    pub(crate) fn kept(&self) -> usize {
        size_of_val(&self.columns[..])
    }

    /// Scales an image of `C` channels by taking for each pixel the one on which its centre falls;
    /// on the border of two, the later one. Shapes are height, width and `C`, and the buffers have
    /// exactly their lengths.
    pub(crate) fn scale<const C: usize>(&mut self, from: [usize; 3], pixels: &[u8], to: [usize; 3], into: &mut [u8]) {
        self.columns.clear();
        self.columns.extend(nearest(from[1], to[1]));
        let (wide, pixels) = (from[1], pixels.as_chunks::<C>().0);
        for (row, line) in nearest(from[0], to[0]).zip(into.as_chunks_mut::<C>().0.chunks_exact_mut(to[1])) {
            let source = &pixels[row * wide..(row + 1) * wide];
            line.iter_mut().zip(&self.columns).for_each(|(pixel, column)| *pixel = source[*column]);
        }
    }
}

/// The nearest position in the source for each one: the whole part of (at + 1/2) * from / to,
/// exactly, by addition.
fn nearest(from: usize, to: usize) -> impl Iterator<Item = usize> {
    // In parts of 1 / (2 * to); lengths fit in 32 bits.
    let (from, one) = (from as u64, 2 * to as u64);
    let (step, part) = (2 * from / one, 2 * from % one);
    let positions = std::iter::successors(Some((from / one, from % one)), move |(at, rest)| {
        let rest = rest + part;
        Some(if rest < one { (at + step, rest) } else { (at + step + 1, rest - one) })
    });
    positions.take(to).map(|(at, _)| at as usize)
}
