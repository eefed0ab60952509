//! Regions of connected pixels in a map of numbers.

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

/// The regions of a map, found row by row.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    all: Vec<Region>,
    /// One more than the region of each pixel of the row above, or 0; with a border of one on both sides.
    above: Vec<u32>,
    /// The same for the current row.
    row: Vec<u32>,
}

impl Regions {
    /// Reserves memory for maps of at most this size.
    pub(crate) fn new(width: usize, height: usize) -> Self {
        let row = || Vec::with_capacity(width + 2);
        Regions { all: Vec::with_capacity(Regions::most(width, height)), above: row(), row: row() }
    }

    /// Returns the most regions that a map can begin: no two first pixels are neighbours.
    pub(crate) fn most(width: usize, height: usize) -> usize {
        width.div_ceil(2).saturating_mul(height.div_ceil(2))
    }

    /// Finds the regions of the pixels above a threshold.
    pub(crate) fn find(&mut self, map: &[f32], width: usize, threshold: f32) {
        self.all.clear();
        self.row.clear();
        self.row.resize(width + 2, 0);
        for (pixels, y) in map.chunks_exact(width.max(1)).zip(0..) {
            std::mem::swap(&mut self.row, &mut self.above);
            self.row.clear();
            self.row.resize(width + 2, 0);
            for (pixel, x) in pixels.iter().zip(0_u32..).filter(|(pixel, _)| **pixel > threshold) {
                let at = x as usize;
                // The four neighbours that were seen: left above, above, right above, left.
                let seen = [self.above[at], self.above[at + 1], self.above[at + 2], self.row[at]];
                let mut region = None;
                for neighbour in seen.into_iter().filter_map(|label| label.checked_sub(1)) {
                    let whole = self.whole(neighbour);
                    region = Some(region.map_or(whole, |region| self.unite(region, whole)));
                }
                let region = region.unwrap_or_else(|| self.begin(x, y));
                self.row[at + 1] = region + 1;
                let region = &mut self.all[region as usize];
                (region.left, region.right, region.bottom) = (region.left.min(x), region.right.max(x), y);
                (region.pixels, region.sum) = (region.pixels + 1, region.sum + f64::from(*pixel));
            }
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
            let mut regions = Regions::new(width, height);
            let capacity = (regions.all.capacity(), regions.row.capacity(), regions.above.capacity());
            let dot = |at: usize| if (at / width) & 1 == 0 && (at % width) & 1 == 0 { 1.0 } else { f32::NAN };
            let map: Vec<f32> = (0..width * height).map(dot).collect();
            for _ in 0..2 {
                regions.find(&map, width, 0.5);
                assert_eq!(regions.iter().count(), Regions::most(width, height), "{width} × {height}");
            }
            regions.find(&vec![1.0; width * height], width, 0.5);
            assert_eq!(regions.iter().count(), usize::from(width * height > 0));
            assert_eq!((regions.all.capacity(), regions.row.capacity(), regions.above.capacity()), capacity, "it grew");
        }
    }
}
