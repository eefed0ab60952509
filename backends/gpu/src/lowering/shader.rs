//! The source texts of kernels for a device's compiler, in one of three forms: a thread for each
//! element, a workgroup for each element, or a workgroup for a tile of elements. The language is a
//! [`Dialect`]; the forms and expressions are the same in all of them.

mod cooperative;
mod dialect;
mod direct;
mod expression;
mod fold;
mod suppression;
mod text;
mod tiling;

use self::cooperative::{LONG_FOLD, cooperative};
pub(crate) use self::dialect::{Dialect, EntryPoint, KernelArguments, ShaderPlace};
use self::direct::direct;
use self::suppression::suppression;
use self::text::Text;
use self::tiling::Tiling;
use super::{Kernel, Program};

/// Threads of a workgroup of one dim.
const THREADS: usize = 64;
/// More elements than this occupy a device with a thread each.
const FEW: usize = 4096;
/// Indices are integers of 32 bits, with a sign.
const LARGEST: usize = i32::MAX as usize;

/// What a device can run at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width {
    /// The workgroups along a dim.
    pub(crate) most: usize,
    /// As many workgroups occupy it; with fewer, tiles are made smaller.
    pub(crate) busy: usize,
}

/// The shader of a kernel.
#[derive(Debug)]
pub(crate) struct Shader {
    pub(crate) text: String,
    /// The arrays of its arguments; it writes the last one.
    pub(crate) arrays: Vec<usize>,
    /// Whether a counter for faults is an argument behind them.
    pub(crate) exact: bool,
    /// The threads of a workgroup.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "WGSL has it in the text"))]
    pub(crate) block: [u32; 3],
    /// How many workgroups it takes.
    pub(crate) groups: [u32; 3],
    /// The turns of the loops of one thread, for drivers that end them early.
    #[cfg_attr(not(feature = "wgpu"), expect(dead_code, reason = "only drivers of wgpu do"))]
    pub(crate) turns: usize,
}

/// What is known of a form once it is written.
struct WrittenForm {
    block: [usize; 3],
    groups: [usize; 3],
    turns: usize,
}

/// Writes the shader of a kernel, which reports a fault by `number`.
///
/// # Errors
/// What cannot be written.
pub(crate) fn shader(
    dialect: &dyn Dialect,
    program: &Program,
    kernel: &Kernel,
    number: usize,
    width: Width,
) -> Result<Shader, String> {
    let arrays = kernel.arrays().into_iter().chain([kernel.write.array]);
    let largest = arrays.map(|array| program.arrays[array].words().saturating_mul(4)).max().unwrap_or(0);
    if largest > LARGEST {
        return Err(format!("an array must have at most {LARGEST} bytes, got {largest}"));
    }
    let mut text = Text::new(dialect, program, kernel, number);
    let fold: usize = kernel.fold.as_ref().map_or(0, |fold| fold.dims.iter().product());
    let form = if let Some(rule) = &kernel.suppression {
        suppression(&mut text, rule)
    } else if let Some(tiling) = Tiling::of(program, kernel, width) {
        tiling.write(&mut text)?
    } else if fold >= LONG_FOLD && kernel.len() <= FEW {
        cooperative(&mut text, kernel, width.most)?
    } else {
        direct(&mut text, kernel, width.most)?
    };
    let WrittenForm { block, groups, turns } = form;
    if groups[1] > width.most || groups[2] > width.most {
        let (most, elements) = (width.most, kernel.len());
        return Err(format!(
            "the grid must be at most {most} along each dim, got {groups:?} for an array of {elements} elements"
        ));
    }
    let (block, groups) = (block.map(|count| count as u32), groups.map(|count| count as u32));
    let (text, arrays) = text.finish();
    Ok(Shader { text, arrays, exact: kernel.is_exact(), block, groups, turns })
}

/// Spreads workgroups over two dims.
fn spread(groups: usize, most: usize) -> [usize; 3] {
    let rows = groups.div_ceil(most).max(1);
    [groups.div_ceil(rows), rows, 1]
}

pub(super) fn numbered(dims: &[usize], first: usize) -> Vec<(usize, usize)> {
    dims.iter().enumerate().map(|(at, length)| (first + at, *length)).collect()
}
