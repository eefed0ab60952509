//! What languages of shaders do not have in common.

use crate::lowering::{Number, Scalar, Storage};

/// The arguments of a kernel: its arrays `a0`, `a1`, …, of which it writes the last one, and behind
/// them a counter for faults.
#[derive(Debug)]
pub(crate) struct KernelArguments {
    pub(crate) arrays: Vec<Storage>,
    /// What the kernel writes to the counter if it fails, if it may. The greatest number of a call
    /// remains there.
    pub(crate) fault: Option<usize>,
}

/// What a thread knows of its place, as a variable of the entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShaderPlace {
    /// `id`: the thread among all of them, along three dims.
    Id,
    /// `group`: its workgroup, along three dims.
    Group,
    /// `local`: the thread within its workgroup, along three dims.
    Local,
    /// `thread`: its number within a workgroup of one dim, without a sign.
    Thread,
}

/// The beginning of the function that a device calls.
#[derive(Debug)]
pub(crate) struct EntryPoint<'a> {
    /// Threads of a workgroup.
    pub(crate) block: [usize; 3],
    pub(crate) places: &'a [ShaderPlace],
    /// Arrays that the threads of a workgroup share, with their lengths.
    pub(crate) shared: &'a [(&'a str, Scalar, usize)],
}

/// A language in which shaders are written.
///
/// Blocks, conditions, loops, comparisons, indices, and the arithmetic of fractions look alike in
/// all of them. Functions go by the names that WGSL has or [`helpers`](Dialect::helpers) of WGSL
/// give: `i32` and `f32` convert, `select` takes the second of its arguments where the third is
/// true. Integers wrap around.
pub(crate) trait Dialect {
    /// The name of a type.
    fn type_of(&self, scalar: Scalar) -> &'static str;

    /// A literal.
    fn number(&self, number: Number) -> String;

    /// The declaration of a name whose value stays.
    fn constant(&self, name: &str, value: &str) -> String;

    /// The declaration of a variable.
    fn variable(&self, name: &str, value: &str) -> String;

    /// A call of a function.
    fn call(&self, function: &str, arguments: &[&str]) -> String;

    /// A call of a function that may fail the kernel.
    fn checked(&self, function: &str, arguments: &[&str]) -> String;

    /// A sum (`+`), difference (`-`) or product (`*`) of integers.
    fn whole(&self, operator: &str, a: &str, b: &str) -> String;

    /// The number 0 minus an integer.
    fn negative(&self, a: &str) -> String;

    /// The bits of a number, without a sign.
    fn bits(&self, a: &str) -> String;

    /// An element of an array.
    fn element(&self, storage: Storage, array: usize, index: &str) -> String;

    /// A number as an array stores it.
    fn stored(&self, storage: Storage, value: &str) -> String;

    /// Waits for the other threads of the workgroup.
    fn barrier(&self) -> &'static str;

    /// Declares a name for a shared element, which is the same for all threads of the workgroup:
    /// they have waited for each other since it was written, and wait for each other until all have
    /// read it.
    fn uniform(&self, name: &str, element: &str) -> String;

    /// Begins the function that stores the element of batch `b`, row `m` and column `n` of a tiled
    /// product, a fraction `folded`.
    fn finish(&self, arguments: &KernelArguments) -> String;

    /// Calls that function.
    fn finished(&self, arguments: &KernelArguments, of: [&str; 4]) -> String;

    /// Begins the function that the device calls.
    fn entry(&self, arguments: &KernelArguments, entry: &EntryPoint<'_>) -> String;

    /// What is in front of all functions.
    fn head(&self, arguments: &KernelArguments) -> String;

    /// Functions that the language does not have, or not as a model needs them, by their names.
    /// Each may call those before it.
    fn helpers(&self) -> &'static [(&'static str, &'static str)];
}
