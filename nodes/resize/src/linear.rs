//! Interpolation between two pixels of each axis, with the numbers of OpenCV: weights of 11 bits,
//! and sums that are shifted where OpenCV shifts them.

/// The weight of a whole pixel.
const WHOLE: f32 = 2048.0;

/// Where the pixels of the output lie in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// Centres on centres: OpenCV's `INTER_LINEAR`.
    Centres,
    /// Edges on edges: OpenCV's `INTER_AREA` where an axis is enlarged.
    Edges,
}

impl Spacing {
    /// Returns the source pixel before an output pixel, -1 before the first one, and how far the
    /// output pixel is behind it, from 0 to 1.
    fn place(self, at: usize, from: usize, to: usize) -> (isize, f32) {
        let enlargement = to as f64 / from as f64;
        let scale = 1.0 / enlargement;
        match self {
            Spacing::Centres => {
                let place = ((at as f64 + 0.5) * scale - 0.5) as f32;
                (place.floor() as isize, place - place.floor())
            }
            Spacing::Edges => {
                let before = (at as f64 * scale).floor();
                let behind = ((at + 1) as f64 - (before + 1.0) * enlargement) as f32;
                (before as isize, if behind > 0.0 { behind - behind.floor() } else { 0.0 })
            }
        }
    }
}

/// Two source pixels of one axis and their weights.
#[derive(Clone, Copy, Debug)]
struct Pair {
    at: [usize; 2],
    weights: [i16; 2],
}

impl Pair {
    fn new((before, behind): (isize, f32), from: usize) -> Self {
        let clipped = |at: isize| usize::try_from(at).unwrap_or(0).min(from - 1);
        let weight = |part: f32| (part * WHOLE).round_ties_even() as i16;
        Pair { at: [clipped(before), clipped(before + 1)], weights: [weight(1.0 - behind), weight(behind)] }
    }

    /// A pair of columns. Beyond the first and the last one the nearest has the whole weight.
    fn of_columns(at: usize, from: usize, to: usize, spacing: Spacing) -> Self {
        let (before, behind) = spacing.place(at, from, to);
        let inside = before >= 0 && before + 1 < from as isize;
        Pair::new((before.max(0), if inside { behind } else { 0.0 }), from)
    }

    /// A pair of rows. Beyond the first and the last one both are the nearest. That is the same,
    /// apart from how the result is rounded.
    fn of_rows(at: usize, from: usize, to: usize, spacing: Spacing) -> Self {
        Pair::new(spacing.place(at, from, to), from)
    }
}

/// The buffers, which are reused for every image.
#[derive(Debug, Default)]
pub(crate) struct Linear {
    columns: Vec<Pair>,
    /// Two source rows at the width of the output, in 128ths of a level.
    rows: [Vec<i16>; 2],
}

impl Linear {
    /// Returns how many bytes the buffers need for an output of height, width and channels.
    pub(crate) fn bytes([_, width, channels]: [usize; 3]) -> usize {
        let rows = channels.saturating_mul(2 * size_of::<i16>());
        width.saturating_mul(rows.saturating_add(size_of::<Pair>()))
    }

    /// Returns how many bytes the buffers hold.
    pub(crate) fn kept(&self) -> usize {
        size_of_val(&self.columns[..]) + self.rows.iter().map(|row| size_of_val(&row[..])).sum::<usize>()
    }

    /// Scales an image of `C` channels; sizes are height and width, and the buffers have exactly
    /// their lengths.
    pub(crate) fn scale<const C: usize>(
        &mut self,
        spacing: Spacing,
        from: [usize; 2],
        pixels: &[u8],
        to: [usize; 2],
        into: &mut [u8],
    ) {
        self.columns.clear();
        self.columns.extend((0..to[1]).map(|at| Pair::of_columns(at, from[1], to[1], spacing)));
        self.rows.iter_mut().for_each(|row| row.resize(to[1] * C, 0));
        // The source rows that the buffers hold.
        let mut held = [usize::MAX; 2];
        for (at, line) in into.chunks_exact_mut(to[1] * C).enumerate() {
            let Pair { at: wanted, weights } = Pair::of_rows(at, from[0], to[0], spacing);
            if held[1] == wanted[0] {
                self.rows.swap(0, 1);
                held.swap(0, 1);
            }
            for ((row, held), wanted) in self.rows.iter_mut().zip(&mut held).zip(wanted) {
                if *held != wanted {
                    let source = &pixels[wanted * from[1] * C..][..from[1] * C];
                    between_columns::<C>(&self.columns, source, row);
                    *held = wanted;
                }
            }
            between_rows([&self.rows[0], &self.rows[1]], weights, line);
        }
    }
}

fn between_columns<const C: usize>(columns: &[Pair], source: &[u8], row: &mut [i16]) {
    let (source, row) = (source.as_chunks::<C>().0, row.as_chunks_mut::<C>().0);
    for (value, pair) in row.iter_mut().zip(columns) {
        let (left, right) = (source[pair.at[0]], source[pair.at[1]]);
        let [a, b] = pair.weights.map(i32::from);
        for channel in 0..C {
            value[channel] = ((i32::from(left[channel]) * a + i32::from(right[channel]) * b) >> 4) as i16;
        }
    }
}

fn between_rows(rows: [&[i16]; 2], weights: [i16; 2], line: &mut [u8]) {
    let part = |value: i16, weight: i16| (i32::from(value) * i32::from(weight)) >> 16;
    for ((level, upper), lower) in line.iter_mut().zip(rows[0]).zip(rows[1]) {
        *level = ((part(*upper, weights[0]) + part(*lower, weights[1]) + 2) >> 2) as u8;
    }
}
