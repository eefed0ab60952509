//! A sum of products of two factors, as that of matrices or of a convolution: a workgroup for a
//! tile of elements, whose factors its threads share.

use super::dialect::{EntryPoint, ShaderPlace};
use super::text::Text;
use super::{Width, WrittenForm, numbered};
use crate::lowering::{Kernel, Number, Program, Scalar};

/// A tile has this many threads along each side, and holds this many factors along the fold.
const SIDE: usize = 16;
/// Shorter sides than this are not worth a tile.
const SHORTEST: usize = 8;

/// `m` are the dims of the first factor only, `n` those of the second only.
pub(super) struct Tiling {
    factors: [usize; 2],
    m: Vec<(usize, usize)>,
    n: Vec<(usize, usize)>,
    batch: Vec<(usize, usize)>,
    fold: Vec<(usize, usize)>,
    /// The sides of a tile.
    sides: [usize; 2],
}

fn length(dims: &[(usize, usize)]) -> usize {
    dims.iter().map(|(_, length)| length).product()
}

impl Tiling {
    pub(super) fn of(program: &Program, kernel: &Kernel, width: Width) -> Option<Tiling> {
        let fold = kernel.fold.as_ref()?;
        let [a, b] = fold.factors()?;
        let is_float = |at: usize| program.arrays[kernel.reads[at].array].scalar == Scalar::F32;
        let has_table = |at: usize| kernel.reads[at].axes.iter().any(|axis| axis.table.is_some());
        if !is_float(a) || !is_float(b) || has_table(a) || has_table(b) {
            return None;
        }
        let [mut m, mut n, batch] = kernel.sides(&kernel.reads[a], &kernel.reads[b]);
        let mut factors = [a, b];
        // Threads beside each other store elements beside each other.
        if m.last().map(|(dim, _)| dim) > n.last().map(|(dim, _)| dim) {
            (m, n) = (n, m);
            factors = [b, a];
        }
        let fold = numbered(&fold.dims, kernel.dims.len());
        if [&m, &n, &fold].into_iter().any(|dims| length(dims) < SHORTEST) {
            return None;
        }
        let side = |length: usize| [64, 32].into_iter().find(|side| length * 4 >= side * 3).unwrap_or(SIDE);
        let mut sides = [side(length(&m)), side(length(&n))];
        let tiles = |sides: [usize; 2]| length(&m).div_ceil(sides[0]) * length(&n).div_ceil(sides[1]) * length(&batch);
        while tiles(sides) < width.busy && sides != [SIDE; 2] {
            let longer = usize::from(sides[1] > sides[0]);
            sides[longer] /= 2;
        }
        let tiling = Tiling { factors, m, n, batch, fold, sides };
        tiling.groups().iter().all(|groups| *groups <= width.most).then_some(tiling)
    }

    fn groups(&self) -> [usize; 3] {
        [length(&self.n).div_ceil(self.sides[1]), length(&self.m).div_ceil(self.sides[0]), length(&self.batch)]
    }

    pub(super) fn write(&self, text: &mut Text<'_>) -> Result<WrittenForm, String> {
        let [tall, wide] = self.sides;
        let (rows, columns) = (tall / SIDE, wide / SIDE);
        let (m, n, k) = (length(&self.m), length(&self.n), length(&self.fold));
        // The end of one element.
        text.line(&text.dialect.finish(&text.arguments));
        text.coordinates("b", &self.batch);
        text.coordinates("m", &self.m);
        text.coordinates("n", &self.n);
        text.folded = Some(("folded".into(), Scalar::F32));
        text.store()?;
        text.line("}");
        text.reads.clear();

        let block = [SIDE, SIDE, 1];
        let shared = [("left", Scalar::F32, tall * SIDE), ("right", Scalar::F32, wide * SIDE)];
        text.entry(&EntryPoint { block, places: &[ShaderPlace::Group, ShaderPlace::Local], shared: &shared });
        let whole = |text: &Text<'_>, value: &str| text.call("i32", &[value]);
        let (x, y) = (whole(text, "local.x"), whole(text, "local.y"));
        text.constants(&[("x", &x), ("y", &y), ("thread", &format!("x + y * {SIDE}"))]);
        let m0 = format!("{} * {tall}", whole(text, "group.y"));
        let n0 = format!("{} * {wide}", whole(text, "group.x"));
        let b = whole(text, "group.z");
        text.constants(&[("m0", &m0), ("n0", &n0), ("b", &b)]);
        text.coordinates("b", &self.batch);
        let zero = text.dialect.number(Number::F32(0.0));
        for row in 0..rows {
            (0..columns).for_each(|column| text.variable(&format!("s{row}_{column}"), &zero));
        }
        text.begin_loop("k0", "0", k, SIDE);
        let threads = SIDE * SIDE;
        for load in 0..rows {
            let places = [format!("m0 + e / {SIDE}"), format!("k0 + e % {SIDE}")];
            self.load(text, load * threads, "left", places, ("m", m, &self.m), self.factors[0])?;
        }
        for load in 0..columns {
            let places = [format!("n0 + e % {wide}"), format!("k0 + e / {wide}")];
            self.load(text, load * threads, "right", places, ("n", n, &self.n), self.factors[1])?;
        }
        text.line(text.dialect.barrier());
        text.begin_loop("k", "0", SIDE, 1);
        for row in 0..rows {
            text.constant(&format!("l{row}"), &format!("left[(y + {}) * {SIDE} + k]", row * SIDE));
        }
        for column in 0..columns {
            text.constant(&format!("r{column}"), &format!("right[k * {wide} + x + {}]", column * SIDE));
        }
        for row in 0..rows {
            (0..columns).for_each(|column| text.line(&format!("s{row}_{column} += l{row} * r{column};")));
        }
        text.line(&format!("}}\n{}\n}}", text.dialect.barrier()));
        for row in 0..rows {
            for column in 0..columns {
                let (m_at, n_at) = (format!("m0 + y + {}", row * SIDE), format!("n0 + x + {}", column * SIDE));
                let end = text.dialect.finished(&text.arguments, ["b", &m_at, &n_at, &format!("s{row}_{column}")]);
                text.line(&format!("if ({m_at} < {m} && {n_at} < {n}) {{ {end} }}"));
            }
        }
        text.line("}");
        Ok(WrittenForm { block, groups: self.groups(), turns: k + k.div_ceil(SIDE) })
    }

    /// Loads an element of a tile; `places` are its coordinates along the side and the fold.
    fn load(
        &self,
        text: &mut Text<'_>,
        first: usize,
        into: &str,
        places: [String; 2],
        (side, limit, dims): (&str, usize, &[(usize, usize)]),
        factor: usize,
    ) -> Result<(), String> {
        let [along, fold] = &places;
        let dialect = text.dialect;
        let e = dialect.constant("e", &format!("thread + {first}"));
        text.line(&format!("{{ {e} {} {}", dialect.constant(side, along), dialect.constant("k", fold)));
        text.variable("value", &dialect.number(Number::F32(0.0)));
        text.line(&format!("if ({side} < {limit} && k < {}) {{", length(&self.fold)));
        text.coordinates(side, dims);
        text.coordinates("k", &self.fold);
        let (element, _) = text.read(factor)?;
        text.reads.clear();
        text.line(&format!("value = {element}; }}\n{into}[e] = value; }}"));
        Ok(())
    }
}
