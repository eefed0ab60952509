//! A workgroup for each element: its threads fold parts, and then the parts.

use super::dialect::{EntryPoint, ShaderPlace};
use super::text::Text;
use super::{THREADS, WrittenForm, fold, numbered, spread};
use crate::lowering::{How, Kernel, Scalar};

/// Folds shorter than this are too short for a workgroup each.
pub(super) const LONG_FOLD: usize = 256;

pub(super) fn cooperative(text: &mut Text<'_>, kernel: &Kernel, most: usize) -> Result<WrittenForm, String> {
    let of = kernel.fold.as_ref().ok_or("the kernel has no fold")?;
    let (rank, length) = (kernel.dims.len(), of.dims.iter().product::<usize>());
    let groups = spread(kernel.len(), most);
    let scalar = fold::scalar_of(text, &of.value)?;
    let block = [THREADS, 1, 1];
    let shared = [("parts", scalar, THREADS), ("places", Scalar::I32, THREADS)];
    text.entry(&EntryPoint { block, places: &[ShaderPlace::Group, ShaderPlace::Thread], shared: &shared });
    // Every thread reaches the barriers, those of elements that do not exist as well.
    let number = text.call("i32", &[&format!("group.x + group.y * {}u", groups[0])]);
    text.constant("number", &number);
    let n = text.call("min", &["number", &(kernel.len() - 1).to_string()]);
    text.constant("n", &n);
    text.coordinates("n", &numbered(&kernel.dims, 0));
    fold::hoist(text, kernel, &of.value)?;
    fold::begin(text, of)?;
    let outer = text.reads.clone();
    let first = text.call("i32", &["thread"]);
    text.begin_loop("m", &first, length, THREADS);
    text.coordinates("m", &numbered(&of.dims, rank));
    let value = text.expr(&of.value)?;
    fold::take(text, of, scalar, &value.0, "m");
    text.line("}");
    text.reads = outer;
    text.line("parts[thread] = folded;");
    let by_place = matches!(of.how, How::ArgMax { .. } | How::ArgMin { .. });
    if by_place {
        text.line("places[thread] = place;");
    }
    text.line(text.dialect.barrier());
    let half = text.dialect.variable("half", &format!("{}u", THREADS / 2));
    text.line(&format!("for ({half} half > 0u; half /= 2u) {{"));
    text.line("if (thread < half) {");
    match of.how {
        How::ArgMax { last } | How::ArgMin { last } => {
            let better = if matches!(of.how, How::ArgMax { .. }) { ">" } else { "<" };
            let behind = if last { ">" } else { "<" };
            text.constants(&[("a", "parts[thread]"), ("b", "parts[thread + half]")]);
            text.constants(&[("at", "places[thread]"), ("other", "places[thread + half]")]);
            text.line(&format!("if (b {better} a || (b == a && other {behind} at)) {{"));
            text.line("parts[thread] = b; places[thread] = other; }");
        }
        _ => {
            let joined = fold::joined(text, of, scalar, "parts[thread]", "parts[thread + half]");
            text.line(&format!("parts[thread] = {joined};"));
        }
    }
    text.line(&format!("}}\n{}\n}}", text.dialect.barrier()));
    text.line(&format!("if (thread == 0u && number < {}) {{", kernel.len()));
    text.folded = Some(match by_place {
        true => ("places[0]".into(), Scalar::I32),
        false => ("parts[0]".into(), scalar),
    });
    text.store()?;
    text.line("}\n}");
    Ok(WrittenForm { block, groups, turns: length.div_ceil(THREADS) + THREADS })
}
