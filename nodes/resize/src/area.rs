//! The mean of the pixels that an output pixel covers, with the numbers of OpenCV's `INTER_AREA`.

/// A smaller part of a pixel does not count.
const LEAST: f64 = 1e-3;

/// A source pixel of one axis that an output pixel covers, and its weight.
#[derive(Clone, Copy, Debug)]
struct Share {
    from: usize,
    to: usize,
    weight: f32,
}

/// The buffers, which are reused for every image.
#[derive(Debug, Default)]
pub(crate) struct Area {
    columns: Vec<Share>,
    rows: Vec<Share>,
    /// A source row at the width of the output.
    row: Vec<f32>,
    /// A row of the output, of which all source rows so far have been added.
    sum: Vec<f32>,
}

impl Area {
    /// Returns how many bytes the buffers need to scale images of a shape to another: height,
    /// width, channels.
    pub(crate) fn bytes(from: [usize; 3], to: [usize; 3]) -> usize {
        // An output pixel covers at most two pixels of each axis in part.
        let shares =
            |axis: usize| from[axis].saturating_add(to[axis].saturating_mul(2)).saturating_mul(size_of::<Share>());
        let rows = to[1].saturating_mul(to[2]).saturating_mul(2 * size_of::<f32>());
        shares(0).saturating_add(shares(1)).saturating_add(rows)
    }

    /// Returns how many bytes the buffers hold.
    pub(crate) fn kept(&self) -> usize {
        size_of_val(&self.columns[..])
            + size_of_val(&self.rows[..])
            + size_of_val(&self.row[..])
            + size_of_val(&self.sum[..])
    }

    /// Scales an image of `C` channels to a size that is not larger; sizes are height and width,
    /// and the buffers have exactly their lengths.
    pub(crate) fn scale<const C: usize>(&mut self, from: [usize; 2], pixels: &[u8], to: [usize; 2], into: &mut [u8]) {
        // If an output pixel covers only whole pixels, they are added and the sum is divided once,
        // which rounds once.
        let whole = from[0].is_multiple_of(to[0]) && from[1].is_multiple_of(to[1]);
        let pixels_in_one = if whole { (from[0] / to[0]) * (from[1] / to[1]) } else { 1 };
        let factor = 1.0 / pixels_in_one as f32;
        // OpenCV rounds a half up only here.
        let quarters = whole && C != 2 && from == to.map(|side| 2 * side);
        let level =
            |sum: f32| if quarters { (sum * factor + 0.5) as u8 } else { (sum * factor).round_ties_even() as u8 };
        share(from[1], to[1], whole, &mut self.columns);
        share(from[0], to[0], whole, &mut self.rows);
        self.row.resize(to[1] * C, 0.0);
        self.sum.resize(to[1] * C, 0.0);
        for rows in self.rows.chunk_by(|a, b| a.to == b.to) {
            self.sum.fill(0.0);
            for share in rows {
                let source = &pixels[share.from * from[1] * C..][..from[1] * C];
                add_columns::<C>(&self.columns, source, &mut self.row);
                self.sum.iter_mut().zip(&self.row).for_each(|(sum, value)| *sum += value * share.weight);
            }
            let line = &mut into[rows[0].to * to[1] * C..][..to[1] * C];
            line.iter_mut().zip(&self.sum).for_each(|(to, sum)| *to = level(*sum));
        }
    }
}

fn add_columns<const C: usize>(columns: &[Share], source: &[u8], row: &mut [f32]) {
    row.fill(0.0);
    let (source, row) = (source.as_chunks::<C>().0, row.as_chunks_mut::<C>().0);
    for share in columns {
        for (sum, level) in row[share.to].iter_mut().zip(source[share.from]) {
            *sum += f32::from(level) * share.weight;
        }
    }
}

/// Lists what each output pixel of an axis covers; `whole` gives every pixel the weight 1.
fn share(from: usize, to: usize, whole: bool, shares: &mut Vec<Share>) {
    shares.clear();
    let scale = 1.0 / (to as f64 / from as f64);
    for at in 0..to {
        let mut add = |from: usize, weight: f64| shares.push(Share { from, to: at, weight: weight as f32 });
        if whole {
            let each = from / to;
            (at * each..(at + 1) * each).for_each(|from| add(from, 1.0));
            continue;
        }
        let begin = at as f64 * scale;
        let end = begin + scale;
        let width = scale.min(from as f64 - begin);
        let last = (end.floor() as usize).min(from - 1);
        let first = (begin.ceil() as usize).min(last);
        if first as f64 - begin > LEAST {
            add(first - 1, (first as f64 - begin) / width);
        }
        (first..last).for_each(|from| add(from, 1.0 / width));
        if end - last as f64 > LEAST {
            add(last, (end - last as f64).min(1.0).min(width) / width);
        }
    }
}
