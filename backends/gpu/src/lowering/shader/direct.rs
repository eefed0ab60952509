//! A thread for each element.

use super::dialect::{EntryPoint, ShaderPlace};
use super::text::Text;
use super::{THREADS, WrittenForm, fold, numbered, spread};
use crate::lowering::{Kernel, Number};

pub(super) fn direct(text: &mut Text<'_>, kernel: &Kernel, most: usize) -> Result<WrittenForm, String> {
    let groups = spread(kernel.len().div_ceil(THREADS), most);
    let block = [THREADS, 1, 1];
    text.entry(&EntryPoint { block, places: &[ShaderPlace::Id], shared: &[] });
    let n = text.call("i32", &[&format!("id.x + id.y * {}u", groups[0] * THREADS)]);
    text.constant("n", &n);
    text.line(&format!("if (n >= {}) {{ return; }}", kernel.len()));
    text.coordinates("n", &numbered(&kernel.dims, 0));
    if let Some(of) = &kernel.fold {
        let rank = kernel.dims.len();
        fold::hoist(text, kernel, &of.value)?;
        let scalar = fold::begin(text, of)?;
        let outer = text.reads.clone();
        for (at, length) in of.dims.iter().enumerate() {
            text.begin_loop(&format!("c{}", rank + at), "0", *length, 1);
        }
        let place = if of.dims.is_empty() { text.dialect.number(Number::I32(0)) } else { format!("c{rank}") };
        let value = text.expr(&of.value)?;
        fold::take(text, of, scalar, &value.0, &place);
        text.line(&"}".repeat(of.dims.len()));
        text.reads = outer;
        text.folded = Some(fold::result(of.how, scalar));
    }
    text.store()?;
    text.line("}");
    // Those of inner loops, and of the loops around them.
    let turns = kernel.fold.as_ref().map_or(0, |fold| fold.dims.iter().product::<usize>()).saturating_mul(2);
    Ok(WrittenForm { block, groups, turns })
}
