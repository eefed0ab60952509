//! Regions of connected pixels in a map of numbers.

use crate::tensor::quads::RegionOutline;

/// The most pixels of a map: positions are 32 bits.
pub(crate) const MAX_PIXELS: usize = 1 << 30;

/// Connected pixels, or a region that became part of another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    /// The region that it is part of; its own index if none.
    whole: u32,
    left: u32,
    top: u32,
    right: u32,
    bottom: u32,
    pixels: u32,
    sum: f64,
}

impl Region {
    /// Returns the edges of the box around it: left, top, right, bottom.
    pub(crate) fn corners(&self) -> [f32; 4] {
        [self.left, self.top, self.right + 1, self.bottom + 1].map(|at| at as f32)
    }

    /// Returns the mean of its pixels.
    pub(crate) fn mean(&self) -> f32 {
        (self.sum / f64::from(self.pixels)) as f32
    }
}

/// Which pixels of a map are in a region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PixelMembership {
    /// Those above this.
    pub(crate) threshold: f32,
    /// With those at the right of such a pixel, below it, and at the lower right of it.
    pub(crate) dilation: bool,
}

impl PixelMembership {
    /// Returns whether a pixel of a row is in a region; the row above is empty if there is none.
    fn contains(self, row: &[f32], above: &[f32], at: usize) -> bool {
        let is_over = |row: &[f32], at: usize| row.get(at).is_some_and(|pixel| *pixel > self.threshold);
        let left = at.wrapping_sub(1);
        is_over(row, at) || self.dilation && (is_over(row, left) || is_over(above, at) || is_over(above, left))
    }
}

/// The regions of a map, found row by row.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    all: Vec<Region>,
    /// One more than the region of each pixel, or 0, in rows with a border of one on both sides;
    /// row 0 is above the map.
    labels: Vec<u32>,
    /// The rows of `labels`. If there are fewer than those of the map, they are used again: finding
    /// needs two, outlines need all.
    rows: usize,
}

impl Regions {
    /// Reserves memory for maps of at most this size; `outlines` says whether [`Regions::outline`]
    /// will be called.
    pub(crate) fn new(width: usize, height: usize, outlines: bool) -> Self {
        let rows = if outlines { height + 1 } else { 2 };
        let labels = Vec::with_capacity(rows.saturating_mul(width + 2));
        Regions { all: Vec::with_capacity(Regions::most(width, height)), labels, rows }
    }

    /// Returns the bytes that are reserved for maps of this size.
    pub(crate) fn memory(width: usize, height: usize, outlines: bool) -> usize {
        let labels = if outlines { width.saturating_add(2).saturating_mul(height.saturating_add(1)) } else { 0 };
        let regions = Regions::most(width, height).saturating_mul(size_of::<Region>());
        regions.saturating_add(labels.saturating_mul(size_of::<u32>()))
    }

    /// Returns the most regions that a map can begin: no two first pixels are neighbours.
    pub(crate) fn most(width: usize, height: usize) -> usize {
        width.div_ceil(2).saturating_mul(height.div_ceil(2))
    }

    /// Returns where the labels of a row begin; row 0 is above the map.
    fn labels_at(&self, row: usize, width: usize) -> usize {
        row % self.rows.max(1) * (width + 2)
    }

    /// Finds the regions of the pixels that are a member.
    pub(crate) fn find(&mut self, map: &[f32], width: usize, member: PixelMembership) {
        self.all.clear();
        self.labels.clear();
        self.labels.resize(self.rows * (width + 2), 0);
        let mut pixels_above = &[][..];
        for (pixels, y) in map.chunks_exact(width.max(1)).zip(0_u32..) {
            let [above, row] = [0, 1].map(|next| self.labels_at(y as usize + next, width));
            // A row that is used again has the labels of an earlier one.
            if y as usize + 1 >= self.rows {
                self.labels[row..][..width + 2].fill(0);
            }
            for (pixel, x) in pixels.iter().zip(0_u32..) {
                let at = x as usize;
                if !member.contains(pixels, pixels_above, at) {
                    continue;
                }
                // The four neighbours that were seen: left above, above, right above, left.
                let labels = &self.labels;
                let seen = [labels[above + at], labels[above + at + 1], labels[above + at + 2], labels[row + at]];
                let mut region = None;
                for neighbour in seen.into_iter().filter_map(|label| label.checked_sub(1)) {
                    let whole = self.whole(neighbour);
                    region = Some(region.map_or(whole, |region| self.unite(region, whole)));
                }
                let region = region.unwrap_or_else(|| self.begin(x, y));
                self.labels[row + at + 1] = region + 1;
                let region = &mut self.all[region as usize];
                (region.left, region.right, region.bottom) = (region.left.min(x), region.right.max(x), y);
                // Beside a pixel above the threshold may be one that is no number, which becomes 0.
                (region.pixels, region.sum) = (region.pixels + 1, region.sum + f64::from(pixel.max(0.0)));
            }
            pixels_above = pixels;
        }
    }

    /// Begins a region and returns its index.
    fn begin(&mut self, x: u32, y: u32) -> u32 {
        let whole = self.all.len() as u32;
        self.all.push(Region { whole, left: x, top: y, right: x, bottom: y, pixels: 0, sum: 0.0 });
        whole
    }

    /// Returns the region that a region is part of, and shortens the way to it.
    fn whole(&mut self, mut at: u32) -> u32 {
        loop {
            let next = self.all[at as usize].whole;
            if next == at {
                return at;
            }
            self.all[at as usize].whole = self.all[next as usize].whole;
            at = next;
        }
    }

    /// Makes the later of two whole regions part of the other, and returns that.
    fn unite(&mut self, a: u32, b: u32) -> u32 {
        if a == b {
            return a;
        }
        let (kept, part) = (a.min(b), a.max(b));
        let gone = self.all[part as usize];
        self.all[part as usize].whole = kept;
        let whole = &mut self.all[kept as usize];
        (whole.left, whole.right) = (whole.left.min(gone.left), whole.right.max(gone.right));
        (whole.top, whole.bottom) = (whole.top.min(gone.top), whole.bottom.max(gone.bottom));
        (whole.pixels, whole.sum) = (whole.pixels + gone.pixels, whole.sum + gone.sum);
        kept
    }

    /// Returns the regions that are not part of others, with their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Region)> {
        self.all.iter().enumerate().filter(|(at, region)| region.whole as usize == *at)
    }

    /// Adds the outermost pixels of a region to an empty outline; the map is that in which it was
    /// found, of this width.
    pub(crate) fn outline(&mut self, region: usize, width: usize, outline: &mut RegionOutline) {
        let Some(Region { left, top, right, bottom, .. }) = self.all.get(region).copied() else { return };
        for y in top..=bottom {
            let labels = self.labels_at(y as usize + 1, width) + 1;
            let mut is_inside = |x: &u32| {
                let label = self.labels[labels + *x as usize];
                label.checked_sub(1).is_some_and(|label| self.whole(label) as usize == region)
            };
            if let Some(first) = (left..=right).find(&mut is_inside) {
                let last = (first..=right).rev().find(is_inside).unwrap_or(first);
                outline.add(y, first, last);
            }
        }
    }

    /// Returns a region by its index.
    pub(crate) fn get(&self, at: usize) -> Option<&Region> {
        self.all.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_begins_as_many_regions_as_were_reserved() {
        // Dots that touch nothing, the most that fit, and NaN, which is above no threshold.
        for (width, height) in [(1, 1), (7, 7), (6, 4), (1, 5), (5, 0), (0, 0)] {
            let mut regions = Regions::new(width, height, true);
            let capacity = (regions.all.capacity(), regions.labels.capacity());
            let member = PixelMembership { threshold: 0.5, dilation: false };
            let dot = |at: usize| if (at / width) & 1 == 0 && (at % width) & 1 == 0 { 1.0 } else { f32::NAN };
            let map: Vec<f32> = (0..width * height).map(dot).collect();
            for _ in 0..2 {
                regions.find(&map, width, member);
                assert_eq!(regions.iter().count(), Regions::most(width, height), "{width} × {height}");
            }
            regions.find(&vec![1.0; width * height], width, member);
            assert_eq!(regions.iter().count(), usize::from(width * height > 0));
            assert_eq!((regions.all.capacity(), regions.labels.capacity()), capacity, "it grew");
        }
    }
}
