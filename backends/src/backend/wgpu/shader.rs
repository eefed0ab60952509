//! Shaders of kernels, in one of three forms: a thread for each element, a workgroup for each element, or a workgroup for a tile of
//! elements.

use super::suppression::suppression;
use super::wgsl::{Atom, Text, number, type_of};
use crate::lowering::{Binary, Expr, Fold, How, Kernel, Number, Program, Read, Scalar};

/// Threads of a workgroup.
const THREADS: usize = 64;
/// Folds shorter than this are too short for a workgroup each.
const LONG_FOLD: usize = 256;
/// More elements than this occupy a device with a thread each.
const FEW: usize = 4096;
/// A tile has this many threads along each side, and holds this many factors along the fold.
const SIDE: usize = 16;
/// Shorter sides than this are not worth a tile.
const SHORTEST: usize = 8;
/// What a device can run at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Width {
    /// The workgroups along a dim.
    pub(super) most: usize,
    /// As many workgroups occupy it; with fewer, tiles are made smaller.
    pub(super) busy: usize,
}

/// The shader of a kernel.
#[derive(Debug)]
pub(super) struct Shader {
    pub(super) text: String,
    /// The arrays of its bindings; it writes the last one.
    pub(super) arrays: Vec<usize>,
    /// Whether a buffer for faults is bound behind them.
    pub(super) exact: bool,
    /// How many workgroups it takes.
    pub(super) groups: [u32; 3],
    /// The turns of the loops of one thread.
    pub(super) turns: usize,
}

/// Writes the shader of a kernel, which reports a fault by `number`.
///
/// # Errors
/// What cannot be written in WGSL.
pub(super) fn shader(program: &Program, kernel: &Kernel, number: usize, width: Width) -> Result<Shader, String> {
    if let Some(rule) = &kernel.suppression {
        return Ok(suppression(kernel, rule));
    }
    let most = width.most;
    let mut text = Text::new(program, kernel);
    let fold: usize = kernel.fold.as_ref().map_or(0, |fold| fold.dims.iter().product());
    let (groups, turns) = if let Some(tiling) = Tiling::of(program, kernel, width) {
        (tiling.write(&mut text)?, fold + fold.div_ceil(SIDE))
    } else if fold >= LONG_FOLD && kernel.len() <= FEW {
        (cooperative(&mut text, kernel, most)?, fold.div_ceil(THREADS) + THREADS)
    } else {
        // Those of inner loops, and of the loops around them.
        (direct(&mut text, kernel, most)?, fold.saturating_mul(2))
    };
    if groups[1] > most || groups[2] > most {
        return Err(format!("{} elements are more than the device counts", kernel.len()));
    }
    let (text, arrays) = text.finish(number);
    Ok(Shader { text, arrays, exact: kernel.is_exact(), groups: groups.map(|count| count as u32), turns })
}

/// Spreads workgroups over two dims.
fn spread(groups: usize, most: usize) -> [usize; 3] {
    let rows = groups.div_ceil(most).max(1);
    [groups.div_ceil(rows), rows, 1]
}

fn numbered(dims: &[usize], first: usize) -> Vec<(usize, usize)> {
    dims.iter().enumerate().map(|(at, length)| (first + at, *length)).collect()
}

fn direct(text: &mut Text<'_>, kernel: &Kernel, most: usize) -> Result<[usize; 3], String> {
    let groups = spread(kernel.len().div_ceil(THREADS), most);
    text.line(&format!("@compute @workgroup_size({THREADS})"));
    text.line("fn main(@builtin(global_invocation_id) id: vec3<u32>) {");
    text.line(&format!("let n = i32(id.x + id.y * {}u);", groups[0] * THREADS));
    text.line(&format!("if (n >= {}) {{ return; }}", kernel.len()));
    text.coordinates("n", &numbered(&kernel.dims, 0));
    if let Some(fold) = &kernel.fold {
        let rank = kernel.dims.len();
        hoist(text, kernel, &fold.value)?;
        let scalar = begin(text, scalar_of(text, &fold.value)?, fold);
        let outer = text.reads.clone();
        for (at, length) in fold.dims.iter().enumerate() {
            let c = format!("c{}", rank + at);
            text.line(&format!("for (var {c} = 0; {c} < {length}; {c}++) {{"));
        }
        let place = if fold.dims.is_empty() { "0i".into() } else { format!("c{rank}") };
        let value = text.expr(&fold.value)?;
        take(text, fold, &value.0, &place);
        text.line(&"}".repeat(fold.dims.len()));
        text.reads = outer;
        text.folded = Some(result(fold.how, scalar));
    }
    text.store()?;
    text.line("}");
    Ok(groups)
}

fn cooperative(text: &mut Text<'_>, kernel: &Kernel, most: usize) -> Result<[usize; 3], String> {
    let fold = kernel.fold.as_ref().ok_or("it folds nothing")?;
    let (rank, length) = (kernel.dims.len(), fold.dims.iter().product::<usize>());
    let groups = spread(kernel.len(), most);
    let scalar = scalar_of(text, &fold.value)?;
    text.line(&format!("var<workgroup> parts: array<{}, {THREADS}>;", type_of(scalar)));
    text.line(&format!("var<workgroup> places: array<i32, {THREADS}>;"));
    text.line(&format!("@compute @workgroup_size({THREADS})"));
    text.line("fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {");
    // Every thread reaches the barriers, those of elements that do not exist as well.
    text.line(&format!("let number = i32(id.x + id.y * {}u);", groups[0]));
    text.line(&format!("let n = min(number, {});", kernel.len() - 1));
    text.coordinates("n", &numbered(&kernel.dims, 0));
    hoist(text, kernel, &fold.value)?;
    begin(text, scalar, fold);
    let outer = text.reads.clone();
    text.line(&format!("for (var m = i32(thread); m < {length}; m += {THREADS}) {{"));
    text.coordinates("m", &numbered(&fold.dims, rank));
    let value = text.expr(&fold.value)?;
    take(text, fold, &value.0, "m");
    text.line("}");
    text.reads = outer;
    text.line("parts[thread] = folded;");
    let by_place = matches!(fold.how, How::ArgMax { .. } | How::ArgMin { .. });
    if by_place {
        text.line("places[thread] = place;");
    }
    text.line("workgroupBarrier();");
    text.line(&format!("for (var half = {}u; half > 0u; half /= 2u) {{", THREADS / 2));
    text.line("if (thread < half) {");
    let joined = match fold.how {
        how @ (How::Sum | How::Product) if fold.exact => format!("{}(parts[thread], parts[thread + half])", exact(how)),
        How::Sum => "parts[thread] + parts[thread + half]".into(),
        How::Product => "parts[thread] * parts[thread + half]".into(),
        How::Max => "max(parts[thread], parts[thread + half])".into(),
        How::Min => "min(parts[thread], parts[thread + half])".into(),
        How::ArgMax { .. } | How::ArgMin { .. } => String::new(),
    };
    match fold.how {
        How::ArgMax { last } | How::ArgMin { last } => {
            let better = if matches!(fold.how, How::ArgMax { .. }) { ">" } else { "<" };
            let behind = if last { ">" } else { "<" };
            text.line("let a = parts[thread]; let b = parts[thread + half];");
            text.line("let at = places[thread]; let other = places[thread + half];");
            text.line(&format!("if (b {better} a || (b == a && other {behind} at)) {{"));
            text.line("parts[thread] = b; places[thread] = other; }");
        }
        _ => text.line(&format!("parts[thread] = {joined};")),
    }
    text.line("}\nworkgroupBarrier();\n}");
    text.line(&format!("if (thread == 0u && number < {}) {{", kernel.len()));
    text.folded = Some(match by_place {
        true => ("places[0]".into(), Scalar::I32),
        false => ("parts[0]".into(), scalar),
    });
    text.store()?;
    text.line("}\n}");
    Ok(groups)
}

/// The type of what is folded: that of its first read, as expressions keep it.
fn scalar_of(text: &Text<'_>, expr: &Expr) -> Result<Scalar, String> {
    Ok(match expr {
        Expr::Read(at) => text.scalar_of(*at),
        Expr::Number(number) => number.scalar(),
        Expr::Cast(to, _) => *to,
        Expr::Unary(crate::lowering::Unary::Not, _) => Scalar::I32,
        Expr::Unary(_, a) | Expr::Exact(a) => scalar_of(text, a)?,
        Expr::Binary(op, _, _) if op.compares() => Scalar::I32,
        Expr::Binary(_, a, _) | Expr::Select(_, a, _) => scalar_of(text, a)?,
        Expr::Folded | Expr::Value(_) => return Err("folds what it has folded".into()),
    })
}

/// Begins a fold: the variable `folded`, and `place` where the coordinate is wanted.
fn begin(text: &mut Text<'_>, scalar: Scalar, fold: &Fold) -> Scalar {
    let extreme = |f: f32, i: i32| match scalar {
        Scalar::F32 => number(Number::F32(f)),
        Scalar::I32 => number(Number::I32(i)),
    };
    let first = match fold.how {
        How::Sum => extreme(0.0, 0),
        How::Product => extreme(1.0, 1),
        How::Max | How::ArgMax { .. } => extreme(f32::NEG_INFINITY, i32::MIN),
        How::Min | How::ArgMin { .. } => extreme(f32::INFINITY, i32::MAX),
    };
    text.line(&format!("var folded: {} = {first};", type_of(scalar)));
    if matches!(fold.how, How::ArgMax { .. } | How::ArgMin { .. }) {
        text.line("var place = 2147483647i;");
    }
    scalar
}

fn exact(how: How) -> &'static str {
    if how == How::Sum { "exact_add" } else { "exact_mul" }
}

/// Folds one value.
fn take(text: &mut Text<'_>, fold: &Fold, value: &str, place: &str) {
    let how = fold.how;
    let line = match how {
        How::Sum | How::Product if fold.exact => format!("folded = {}(folded, {value});", exact(how)),
        How::Sum => format!("folded += {value};"),
        How::Product => format!("folded *= {value};"),
        How::Max => format!("folded = max(folded, {value});"),
        How::Min => format!("folded = min(folded, {value});"),
        How::ArgMax { last } | How::ArgMin { last } => {
            let op = match (how, last) {
                (How::ArgMax { .. }, true) => ">=",
                (How::ArgMax { .. }, false) => ">",
                (_, true) => "<=",
                (_, false) => "<",
            };
            format!("if (place == 2147483647i || {value} {op} folded) {{ folded = {value}; place = {place}; }}")
        }
    };
    text.line(&line);
}

fn result(how: How, scalar: Scalar) -> Atom {
    match how {
        How::ArgMax { .. } | How::ArgMin { .. } => ("place".into(), Scalar::I32),
        _ => ("folded".into(), scalar),
    }
}

/// Reads what does not change along the fold.
fn hoist(text: &mut Text<'_>, kernel: &Kernel, value: &Expr) -> Result<(), String> {
    let mut reads = Vec::new();
    value.map_leaves(&mut |leaf| {
        if let Expr::Read(at) = leaf {
            reads.push(*at);
        }
        leaf.clone()
    });
    let is_outer = |at: &usize| !dims_of(kernel, &kernel.reads[*at]).iter().any(|dim| *dim >= kernel.dims.len());
    reads.iter().filter(|at| is_outer(at)).try_for_each(|at| text.read(*at).map(drop))
}

/// The dims whose coordinates a read depends on.
fn dims_of(kernel: &Kernel, read: &Read) -> Vec<usize> {
    let axes = read.axes.iter();
    let of_axis = |axis: &crate::lowering::Axis| {
        let table = axis.table.map(|table| dims_of(kernel, &kernel.reads[table])).unwrap_or_default();
        axis.terms.iter().map(|(dim, _)| *dim).chain(table).collect::<Vec<_>>()
    };
    axes.flat_map(of_axis).collect()
}

/// A sum of products of two factors, computed in tiles: `m` are the dims of the first factor only, `n` those of the second only.
struct Tiling {
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
    fn of(program: &Program, kernel: &Kernel, width: Width) -> Option<Tiling> {
        let fold = kernel.fold.as_ref().filter(|fold| fold.how == How::Sum)?;
        let Expr::Binary(Binary::Mul, a, b) = &fold.value else { return None };
        let (&Expr::Read(a), &Expr::Read(b)) = (&**a, &**b) else { return None };
        let is_float = |at: usize| program.arrays[kernel.reads[at].array].scalar == Scalar::F32;
        let has_table = |at: usize| kernel.reads[at].axes.iter().any(|axis| axis.table.is_some());
        if !is_float(a) || !is_float(b) || has_table(a) || has_table(b) {
            return None;
        }
        let (of_a, of_b) = (dims_of(kernel, &kernel.reads[a]), dims_of(kernel, &kernel.reads[b]));
        let (mut m, mut n, mut batch) = (Vec::new(), Vec::new(), Vec::new());
        for (dim, length) in numbered(&kernel.dims, 0) {
            match (of_a.contains(&dim), of_b.contains(&dim)) {
                (true, false) => m.push((dim, length)),
                (false, true) => n.push((dim, length)),
                _ => batch.push((dim, length)),
            }
        }
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

    fn write(&self, text: &mut Text<'_>) -> Result<[usize; 3], String> {
        let [tall, wide] = self.sides;
        let (rows, columns) = (tall / SIDE, wide / SIDE);
        let (m, n, k) = (length(&self.m), length(&self.n), length(&self.fold));
        // The end of one element.
        text.line("fn finish(b: i32, m: i32, n: i32, folded: f32) {");
        text.coordinates("b", &self.batch);
        text.coordinates("m", &self.m);
        text.coordinates("n", &self.n);
        text.folded = Some(("folded".into(), Scalar::F32));
        text.store()?;
        text.line("}");
        text.reads.clear();

        text.line(&format!("var<workgroup> left: array<f32, {}>;", tall * SIDE));
        text.line(&format!("var<workgroup> right: array<f32, {}>;", wide * SIDE));
        text.line(&format!("@compute @workgroup_size({SIDE}, {SIDE})"));
        text.line("fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {");
        text.line(&format!("let x = i32(local.x); let y = i32(local.y); let thread = x + y * {SIDE};"));
        text.line(&format!("let m0 = i32(group.y) * {tall}; let n0 = i32(group.x) * {wide}; let b = i32(group.z);"));
        text.coordinates("b", &self.batch);
        for row in 0..rows {
            (0..columns).for_each(|column| text.line(&format!("var s{row}_{column} = 0.0f;")));
        }
        text.line(&format!("for (var k0 = 0; k0 < {k}; k0 += {SIDE}) {{"));
        let threads = SIDE * SIDE;
        for load in 0..rows {
            text.line(&format!(
                "{{ let e = thread + {}; let m = m0 + e / {SIDE}; let k = k0 + e % {SIDE};",
                load * threads
            ));
            self.load(text, "left", ("m", m, &self.m), k, self.factors[0])?;
        }
        for load in 0..columns {
            text.line(&format!(
                "{{ let e = thread + {}; let n = n0 + e % {wide}; let k = k0 + e / {wide};",
                load * threads
            ));
            self.load(text, "right", ("n", n, &self.n), k, self.factors[1])?;
        }
        text.line("workgroupBarrier();");
        text.line(&format!("for (var k = 0; k < {SIDE}; k++) {{"));
        for row in 0..rows {
            text.line(&format!("let l{row} = left[(y + {}) * {SIDE} + k];", row * SIDE));
        }
        for column in 0..columns {
            text.line(&format!("let r{column} = right[k * {wide} + x + {}];", column * SIDE));
        }
        for row in 0..rows {
            (0..columns).for_each(|column| text.line(&format!("s{row}_{column} += l{row} * r{column};")));
        }
        text.line("}\nworkgroupBarrier();\n}");
        for row in 0..rows {
            for column in 0..columns {
                let (m_at, n_at) = (format!("m0 + y + {}", row * SIDE), format!("n0 + x + {}", column * SIDE));
                text.line(&format!(
                    "if ({m_at} < {m} && {n_at} < {n}) {{ finish(b, {m_at}, {n_at}, s{row}_{column}); }}"
                ));
            }
        }
        text.line("}");
        Ok(self.groups())
    }

    /// Loads an element of a tile; the block is begun already.
    fn load(
        &self,
        text: &mut Text<'_>,
        into: &str,
        (side, limit, dims): (&str, usize, &[(usize, usize)]),
        k: usize,
        factor: usize,
    ) -> Result<(), String> {
        text.line("var value = 0.0f;");
        text.line(&format!("if ({side} < {limit} && k < {k}) {{"));
        text.coordinates(side, dims);
        text.coordinates("k", &self.fold);
        let (element, _) = text.read(factor)?;
        text.reads.clear();
        text.line(&format!("value = {element}; }}\n{into}[e] = value; }}"));
        Ok(())
    }
}
