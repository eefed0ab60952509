//! The text of a shader while it is written: every constant of a kernel is written into it.

use super::dialect::{Dialect, EntryPoint, KernelArguments};
use crate::lowering::{ArrayRead, Axis, Kernel, Program, Scalar};
use std::collections::HashMap;

/// A variable or literal, and its type.
pub(super) type Atom = (String, Scalar);

/// The text of a kernel while it is written. The kernel's coordinates are the variables `c0`, `c1`,
/// …
pub(super) struct Text<'a> {
    pub(super) dialect: &'a dyn Dialect,
    program: &'a Program,
    kernel: &'a Kernel,
    /// Its arrays in the order of the arguments; the one that it writes is the last.
    arrays: Vec<usize>,
    pub(super) arguments: KernelArguments,
    text: String,
    /// Elements that are in a variable already.
    pub(super) reads: HashMap<usize, Atom>,
    pub(super) folded: Option<Atom>,
    pub(super) values: Vec<Atom>,
    names: usize,
}

impl<'a> Text<'a> {
    /// Begins a text. If the kernel may fail, it does so by writing `number`.
    pub(super) fn new(dialect: &'a dyn Dialect, program: &'a Program, kernel: &'a Kernel, number: usize) -> Text<'a> {
        let mut arrays = kernel.arrays();
        arrays.push(kernel.write.array);
        let storages = arrays.iter().map(|array| program.arrays[*array].storage()).collect();
        let arguments = KernelArguments { arrays: storages, fault: kernel.is_exact().then_some(number) };
        let (text, reads, folded, values) = (String::new(), HashMap::new(), None, Vec::new());
        Text { dialect, program, kernel, arrays, arguments, text, reads, folded, values, names: 0 }
    }

    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(super) fn call(&self, function: &str, arguments: &[&str]) -> String {
        self.dialect.call(function, arguments)
    }

    pub(super) fn constant(&mut self, name: &str, value: &str) {
        self.line(&self.dialect.constant(name, value));
    }

    /// Declares several on a line.
    pub(super) fn constants(&mut self, of: &[(&str, &str)]) {
        let declared: Vec<String> = of.iter().map(|(name, value)| self.dialect.constant(name, value)).collect();
        self.line(&declared.join(" "));
    }

    pub(super) fn variable(&mut self, name: &str, value: &str) {
        self.line(&self.dialect.variable(name, value));
    }

    /// Begins a loop that counts.
    pub(super) fn begin_loop(&mut self, name: &str, first: &str, end: usize, step: usize) {
        let first = self.dialect.variable(name, first);
        let next = if step == 1 { format!("{name}++") } else { format!("{name} += {step}") };
        self.line(&format!("for ({first} {name} < {end}; {next}) {{"));
    }

    pub(super) fn entry(&mut self, entry: &EntryPoint<'_>) {
        self.line(&self.dialect.entry(&self.arguments, entry));
    }

    /// Puts a value into a new name.
    pub(super) fn name(&mut self, value: &str) -> String {
        let name = self.new_name();
        self.constant(&name, value);
        name
    }

    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("t{}", self.names - 1)
    }

    /// The whole text, with the functions that it calls, and the arrays of its arguments.
    pub(super) fn finish(self) -> (String, Vec<usize>) {
        let mut called: Vec<&str> = Vec::new();
        for (name, helper) in self.dialect.helpers().iter().rev() {
            let call = format!("{name}(");
            if self.text.contains(&call) || called.iter().any(|helper| helper.contains(&call)) {
                called.push(helper);
            }
        }
        let mut text = self.dialect.head(&self.arguments);
        for helper in called.iter().rev() {
            text = text + helper + "\n";
        }
        (text + &self.text, self.arrays)
    }

    /// Sets the coordinates of some dims, each with its length, from their number in row-major
    /// order.
    pub(super) fn coordinates(&mut self, of: &str, dims: &[(usize, usize)]) {
        let mut stride = 1;
        for (at, (dim, length)) in dims.iter().enumerate().rev() {
            let shifted = if stride == 1 { of.to_string() } else { format!("{of} / {stride}") };
            let rest = if at == 0 { shifted } else { format!("({shifted}) % {length}") };
            self.constant(&format!("c{dim}"), &rest);
            stride *= length;
        }
    }

    pub(super) fn scalar_of(&self, read: usize) -> Scalar {
        self.program.arrays[self.kernel.reads[read].array].scalar
    }

    /// Reads an element into a variable.
    pub(super) fn read(&mut self, at: usize) -> Result<Atom, String> {
        if let Some(atom) = self.reads.get(&at) {
            return Ok(atom.clone());
        }
        let read: &ArrayRead = &self.kernel.reads[at];
        let mut index = Vec::new();
        let mut offset = read.offset;
        let mut inside = Vec::new();
        for axis in &read.axes {
            if axis.is_linear() {
                index.extend(axis.terms.iter().map(|(dim, factor)| times(&format!("c{dim}"), factor * axis.stride)));
                offset += axis.offset * axis.stride;
                continue;
            }
            let along = self.along(axis, &mut inside)?;
            index.push(times(&along, axis.stride));
        }
        if offset != 0 || index.is_empty() {
            index.push(offset.to_string());
        }
        let place = self
            .arrays
            .iter()
            .position(|array| *array == read.array)
            .ok_or("an array is not an argument of the kernel")?;
        let storage = self.program.arrays[read.array].storage();
        let element = self.dialect.element(storage, place, &index.join(" + "));
        let name = if inside.is_empty() {
            self.name(&element)
        } else {
            let name = self.new_name();
            self.variable(&name, &self.dialect.number(read.outside));
            self.line(&format!("if ({}) {{ {name} = {element}; }}", inside.join(" && ")));
            name
        };
        let atom = (name, self.scalar_of(at));
        self.reads.insert(at, atom.clone());
        Ok(atom)
    }

    /// The index along an axis, and when it lies inside.
    fn along(&mut self, axis: &Axis, inside: &mut Vec<String>) -> Result<String, String> {
        let mut sum: Vec<String> = axis.terms.iter().map(|(dim, factor)| times(&format!("c{dim}"), *factor)).collect();
        if let Some(table) = axis.table {
            let (name, scalar) = self.read(table)?;
            if scalar != Scalar::I32 {
                return Err("a table of indices must have integers".into());
            }
            sum.push(name);
        }
        if axis.offset != 0 || sum.is_empty() {
            sum.push(axis.offset.to_string());
        }
        // A table may hold any number, so the sum may wrap around.
        let sum = match axis.table {
            Some(_) => sum.into_iter().reduce(|a, b| self.dialect.whole("+", &a, &b)).unwrap_or_default(),
            None => sum.join(" + "),
        };
        let mut name = self.name(&sum);
        if axis.divisor != 1 {
            if axis.exact {
                inside.push(format!("{name} % {} == 0", axis.divisor));
            }
            let is_positive =
                axis.table.is_none() && axis.offset >= 0 && axis.terms.iter().all(|(_, factor)| *factor >= 0);
            let divisor = axis.divisor.to_string();
            name = match is_positive {
                true => self.name(&format!("{name} / {divisor}")),
                false => self.name(&self.call("floor_div", &[&name, &divisor])),
            };
        }
        if let Some(limit) = axis.limit {
            inside.push(format!("{name} >= 0 && {name} < {limit}"));
        }
        Ok(name)
    }

    /// Computes the values of the kernel and stores the last one.
    pub(super) fn store(&mut self) -> Result<(), String> {
        let kernel = self.kernel;
        for value in &kernel.values {
            let atom = self.expr(value)?;
            self.values.push(atom);
        }
        let (value, scalar) = self.values.last().cloned().ok_or("the kernel has no value")?;
        let (write, array) = (&kernel.write, &self.program.arrays[kernel.write.array]);
        if scalar != array.scalar {
            return Err(format!("type mismatch: the value is {scalar:?}, the array {:?}", array.scalar));
        }
        let strides = write.strides.iter().enumerate().map(|(dim, stride)| times(&format!("c{dim}"), *stride));
        let index: Vec<String> = strides.chain([write.offset.to_string()]).collect();
        let value = self.dialect.stored(array.storage(), &value);
        self.line(&format!("a{}[{}] = {value};", self.arrays.len() - 1, index.join(" + ")));
        Ok(())
    }
}

fn times(name: &str, factor: i64) -> String {
    if factor == 1 { name.into() } else { format!("{name} * {factor}") }
}
