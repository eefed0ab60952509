//! The text of expressions in WGSL: every constant of a kernel is written into its text.

use crate::lowering::{Axis, Binary, Expr, Kernel, Number, Program, Read, Scalar, Source, Unary};
use std::collections::HashMap;

/// A variable or literal, and its type.
pub(super) type Atom = (String, Scalar);

/// The text of a kernel while it is written. The kernel's coordinates are the variables `c0`, `c1`, …
pub(super) struct Text<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    /// The arrays that it reads, in the order of their bindings.
    pub(super) arrays: Vec<usize>,
    pub(super) text: String,
    /// Elements that are in a variable already.
    pub(super) reads: HashMap<usize, Atom>,
    pub(super) folded: Option<Atom>,
    values: Vec<Atom>,
    names: usize,
}

/// Functions that WGSL does not have, or not as a model needs them, by their names.
const HELPERS: &[(&str, &str)] = &[
    // Literals of infinities and NaN are refused.
    ("special", "fn special(bits: u32) -> f32 { return bitcast<f32>(bits); }"),
    // Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26; absolute error below 1.5e-7.
    (
        "error_function",
        "fn error_function(x: f32) -> f32 {
let t = 1.0 / (1.0 + 0.3275911 * abs(x));
let p = t * (0.2548296 + t * (-0.28449674 + t * (1.4214137 + t * (-1.4531521 + t * 1.0614054))));
return sign(x) * (1.0 - p * exp(-x * x)); }",
    ),
    // WGSL's `pow` is not defined for negative bases.
    (
        "power",
        "fn power(a: f32, b: f32) -> f32 {
if (b == 0.0) { return 1.0; }
let p = pow(abs(a), b);
if (a >= 0.0) { return p; }
if (trunc(b) != b) { return bitcast<f32>(bitcast<u32>(a) | 0x7fc00000u); }
return select(p, -p, abs(b % 2.0) == 1.0); }",
    ),
    (
        "round_away",
        "fn round_away(x: f32) -> f32 { let t = trunc(x); return select(t, t + sign(x), abs(x - t) >= 0.5); }",
    ),
    // WGSL's division truncates.
    (
        "exact_add",
        "fn exact_add(a: i32, b: i32) -> i32 { let s = a + b; if (((a ^ s) & (b ^ s)) < 0) { fail(); } return s; }",
    ),
    (
        "exact_sub",
        "fn exact_sub(a: i32, b: i32) -> i32 { let d = a - b; if (((a ^ b) & (a ^ d)) < 0) { fail(); } return d; }",
    ),
    (
        "exact_mul",
        "fn exact_mul(a: i32, b: i32) -> i32 {
let p = a * b;
if (a == -1 && p == b && b != 0) { fail(); }
if (a != 0 && a != -1 && p / a != b) { fail(); }
return p; }",
    ),
    (
        "exact_div",
        "fn exact_div(a: i32, b: i32) -> i32 {
if (b == -1 && a != 0 && a == -a) { fail(); }
return select(a / select(b, 1, b == 0), 0, b == 0); }",
    ),
    ("exact_neg", "fn exact_neg(a: i32) -> i32 { if (a != 0 && a == -a) { fail(); } return -a; }"),
    ("exact_abs", "fn exact_abs(a: i32) -> i32 { if (a != 0 && a == -a) { fail(); } return abs(a); }"),
    (
        "exact_shift",
        "fn exact_shift(a: i32, b: i32) -> i32 {
let n = bitcast<u32>(b);
let s = select(a << (n & 31u), 0, n > 31u);
if (a != select(s >> (n & 31u), 0, n > 31u)) { fail(); }
return s; }",
    ),
    (
        "exact_cast",
        "fn exact_cast(a: f32) -> i32 { if (!(a >= -2147483648.0 && a < 2147483648.0)) { fail(); } return i32(a); }",
    ),
    ("floor_div", "fn floor_div(a: i32, b: i32) -> i32 { return select(a / b, (a - (b - 1)) / b, a < 0); }"),
    ("whole_div", "fn whole_div(a: i32, b: i32) -> i32 { return select(a / select(b, 1, b == 0), 0, b == 0); }"),
    ("whole_rem", "fn whole_rem(a: i32, b: i32) -> i32 { return select(a % select(b, 1, b == 0), 0, b == 0); }"),
    (
        "shift_left",
        "fn shift_left(a: i32, b: i32) -> i32 { let n = bitcast<u32>(b); return select(a << (n & 31u), 0, n > 31u); }",
    ),
    (
        "byte_of",
        "fn byte_of(word: u32, at: i32) -> i32 { return i32((word >> ((bitcast<u32>(at) & 3u) * 8u)) & 0xffu); }",
    ),
    // The remainder of an infinite divisor is the dividend.
    ("remainder", "fn remainder(a: f32, b: f32) -> f32 { return select(a % b, a, abs(b) > 3.4028234e38); }"),
    // `tanh` of large numbers is NaN where it is computed of exponentials.
    ("flat_tanh", "fn flat_tanh(x: f32) -> f32 { return tanh(clamp(x, -15.0, 15.0)); }"),
    ("sigmoid", "fn sigmoid(x: f32) -> f32 { return 1.0 / (1.0 + exp(-max(x, -87.0))); }"),
];

pub(super) fn type_of(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::F32 => "f32",
        Scalar::I32 => "i32",
    }
}

pub(super) fn number(number: Number) -> String {
    match number {
        Number::F32(value) if value.is_finite() => format!("{value:?}f"),
        Number::F32(value) => format!("special({:#x}u)", value.to_bits()),
        // A minus sign is an operator: the magnitude of this number does not fit.
        Number::I32(i32::MIN) => "(-2147483647i - 1i)".into(),
        Number::I32(value) => format!("{value}i"),
    }
}

impl<'a> Text<'a> {
    pub(super) fn new(program: &'a Program, kernel: &'a Kernel) -> Text<'a> {
        let (arrays, text) = (kernel.arrays(), String::new());
        let (reads, values) = (HashMap::new(), Vec::new());
        Text { program, kernel, arrays, text, reads, folded: None, values, names: 0 }
    }

    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Puts a value into a new variable.
    fn name(&mut self, value: &str) -> String {
        let name = format!("t{}", self.names);
        self.names += 1;
        self.line(&format!("let {name} = {value};"));
        name
    }

    /// The bindings, and the functions that the text calls. If the kernel may fail, it does so by writing `number`.
    pub(super) fn finish(mut self, number: usize) -> (String, Vec<usize>) {
        let mut arrays = std::mem::take(&mut self.arrays);
        arrays.push(self.kernel.write.array);
        let mut head = String::new();
        for (at, array) in arrays.iter().enumerate() {
            let access = if at + 1 == arrays.len() { "read_write" } else { "read" };
            let array = &self.program.arrays[*array];
            let of = match array.source {
                Source::Bytes => "u32",
                _ if array.is_half => "f16",
                _ => type_of(array.scalar),
            };
            head += &format!("@group(0) @binding({at}) var<storage, {access}> a{at}: array<{of}>;\n");
        }
        if arrays.iter().any(|array| self.program.arrays[*array].is_half) {
            head = format!("enable f16;\n{head}");
        }
        if self.kernel.is_exact() {
            head += &format!("@group(0) @binding({}) var<storage, read_write> fault: atomic<u32>;\n", arrays.len());
            head += &format!("fn fail() {{ atomicMax(&fault, {number}u); }}\n");
        }
        for (name, helper) in HELPERS {
            if self.text.contains(&format!("{name}(")) {
                head = head + helper + "\n";
            }
        }
        (head + &self.text, arrays)
    }

    /// Sets the coordinates of some dims, each with its length, from their number in row-major order.
    pub(super) fn coordinates(&mut self, of: &str, dims: &[(usize, usize)]) {
        let mut stride = 1;
        for (at, (dim, length)) in dims.iter().enumerate().rev() {
            let shifted = if stride == 1 { of.to_string() } else { format!("{of} / {stride}") };
            let rest = if at == 0 { shifted } else { format!("({shifted}) % {length}") };
            self.line(&format!("let c{dim} = {rest};"));
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
        let read: &Read = &self.kernel.reads[at];
        let mut index = Vec::new();
        let mut offset = read.offset;
        let mut inside = Vec::new();
        for axis in &read.axes {
            let sum: Vec<String> = axis.terms.iter().map(|(dim, factor)| times(&format!("c{dim}"), *factor)).collect();
            if axis.is_linear() {
                index.extend(axis.terms.iter().map(|(dim, factor)| times(&format!("c{dim}"), factor * axis.stride)));
                offset += axis.offset * axis.stride;
                continue;
            }
            let along = self.along(axis, sum, &mut inside)?;
            index.push(times(&along, axis.stride));
        }
        if offset != 0 || index.is_empty() {
            index.push(offset.to_string());
        }
        let place = self.arrays.iter().position(|array| *array == read.array).ok_or("an array has no binding")?;
        let index = index.join(" + ");
        let element = match self.program.arrays[read.array].source {
            Source::Bytes => format!("byte_of(a{place}[({index}) / 4], {index})"),
            _ if self.program.arrays[read.array].is_half => format!("f32(a{place}[{index}])"),
            _ => format!("a{place}[{index}]"),
        };
        let name = if inside.is_empty() {
            self.name(&element)
        } else {
            let name = format!("t{}", self.names);
            self.names += 1;
            let outside = number(read.outside);
            self.line(&format!("var {name} = {outside};"));
            self.line(&format!("if ({}) {{ {name} = {element}; }}", inside.join(" && ")));
            name
        };
        let atom = (name, self.scalar_of(at));
        self.reads.insert(at, atom.clone());
        Ok(atom)
    }

    /// The index along an axis, and when it lies inside.
    fn along(&mut self, axis: &Axis, mut sum: Vec<String>, inside: &mut Vec<String>) -> Result<String, String> {
        if let Some(table) = axis.table {
            let (name, scalar) = self.read(table)?;
            if scalar != Scalar::I32 {
                return Err("a table of indices has fractions".into());
            }
            sum.push(name);
        }
        if axis.offset != 0 || sum.is_empty() {
            sum.push(axis.offset.to_string());
        }
        let mut name = self.name(&sum.join(" + "));
        if axis.divisor != 1 {
            if axis.exact {
                inside.push(format!("{name} % {} == 0", axis.divisor));
            }
            let is_positive =
                axis.table.is_none() && axis.offset >= 0 && axis.terms.iter().all(|(_, factor)| *factor >= 0);
            name = match is_positive {
                true => self.name(&format!("{name} / {}", axis.divisor)),
                false => self.name(&format!("floor_div({name}, {})", axis.divisor)),
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
        let (value, scalar) = self.values.last().cloned().ok_or("it has no value")?;
        let write = &kernel.write;
        if scalar != self.program.arrays[write.array].scalar {
            return Err(format!("stores {scalar:?} as {:?}", self.program.arrays[write.array].scalar));
        }
        let strides = write.strides.iter().enumerate().map(|(dim, stride)| times(&format!("c{dim}"), *stride));
        let index: Vec<String> = strides.chain([write.offset.to_string()]).collect();
        let value = if self.program.arrays[write.array].is_half { format!("f16({value})") } else { value };
        self.line(&format!("a{}[{}] = {value};", self.arrays.len(), index.join(" + ")));
        Ok(())
    }

    /// Computes an expression into a variable.
    pub(super) fn expr(&mut self, expr: &Expr) -> Result<Atom, String> {
        Ok(match expr {
            Expr::Read(at) => self.read(*at)?,
            Expr::Folded => self.folded.clone().ok_or("nothing is folded")?,
            Expr::Value(at) => self.values.get(*at).cloned().ok_or("a value is used before it is computed")?,
            Expr::Number(value) => (number(*value), value.scalar()),
            Expr::Unary(op, a) => {
                let a = self.expr(a)?;
                let (text, scalar) = unary(*op, &a)?;
                (self.name(&text), scalar)
            }
            Expr::Binary(Binary::Pow, a, b) if **b == Expr::f32(2.0) => {
                let (a, scalar) = self.expr(a)?;
                (self.name(&format!("{a} * {a}")), scalar)
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                let (text, scalar) = binary(*op, &a, &b)?;
                (self.name(&text), scalar)
            }
            Expr::Select(on, a, b) => {
                let (on, a, b) = (self.expr(on)?, self.expr(a)?, self.expr(b)?);
                if a.1 != b.1 {
                    return Err("selects a fraction or an integer".into());
                }
                let zero = number(Number::zero(on.1));
                (self.name(&format!("select({}, {}, {} != {zero})", b.0, a.0, on.0)), a.1)
            }
            Expr::Cast(to, a) => {
                let (a, _) = self.expr(a)?;
                (self.name(&format!("{}({a})", type_of(*to))), *to)
            }
            Expr::Exact(a) => self.exact(a)?,
        })
    }

    fn exact(&mut self, expr: &Expr) -> Result<Atom, String> {
        let text = match expr {
            Expr::Cast(Scalar::I32, a) => format!("exact_cast({})", self.expr(a)?.0),
            Expr::Unary(op @ (Unary::Abs | Unary::Neg), a) => {
                let function = if *op == Unary::Abs { "exact_abs" } else { "exact_neg" };
                format!("{function}({})", self.expr(a)?.0)
            }
            Expr::Binary(op, a, b) => {
                let function = match op {
                    Binary::Add => "exact_add",
                    Binary::Sub => "exact_sub",
                    Binary::Mul => "exact_mul",
                    Binary::Div => "exact_div",
                    Binary::ShiftLeft => "exact_shift",
                    _ => return self.expr(expr),
                };
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                format!("{function}({}, {})", a.0, b.0)
            }
            other => return self.expr(other),
        };
        Ok((self.name(&text), Scalar::I32))
    }
}

fn times(name: &str, factor: i64) -> String {
    if factor == 1 { name.into() } else { format!("{name} * {factor}") }
}

fn unary(op: Unary, (a, scalar): &Atom) -> Result<Atom, String> {
    use Unary::*;
    let whole = match op {
        Not => return Ok((format!("select(0i, 1i, {a} == {})", number(Number::zero(*scalar))), Scalar::I32)),
        IsInf | IsNan if *scalar == Scalar::F32 => {
            let op = if op == IsInf { "==" } else { ">" };
            let bits = format!("(bitcast<u32>({a}) & 0x7fffffffu) {op} 0x7f800000u");
            return Ok((format!("select(0i, 1i, {bits})"), Scalar::I32));
        }
        _ => *scalar == Scalar::I32,
    };
    let text = match op {
        Abs => format!("abs({a})"),
        Neg => format!("-({a})"),
        Sign => format!("sign({a})"),
        BitNot if whole => format!("~({a})"),
        Ceil | Floor | Round | RoundEven if whole => a.clone(),
        _ if whole || op == BitNot => return Err(format!("{op:?} of {scalar:?}")),
        Acos => format!("acos({a})"),
        Acosh => format!("acosh({a})"),
        Asin => format!("asin({a})"),
        Asinh => format!("asinh({a})"),
        Atan => format!("atan({a})"),
        Atanh => format!("atanh({a})"),
        Ceil => format!("ceil({a})"),
        Cos => format!("cos({a})"),
        Cosh => format!("cosh({a})"),
        Erf => format!("error_function({a})"),
        Exp => format!("exp({a})"),
        Floor => format!("floor({a})"),
        Ln => format!("log({a})"),
        Recip => format!("1.0 / {a}"),
        Round => format!("round_away({a})"),
        RoundEven => format!("round({a})"),
        Sigmoid => format!("sigmoid({a})"),
        Sin => format!("sin({a})"),
        Sinh => format!("sinh({a})"),
        Sqrt => format!("sqrt({a})"),
        Tan => format!("tan({a})"),
        Tanh => format!("flat_tanh({a})"),
        BitNot | IsInf | IsNan | Not => return Err(format!("{op:?} of {scalar:?}")),
    };
    Ok((text, *scalar))
}

fn binary(op: Binary, (a, scalar): &Atom, (b, other): &Atom) -> Result<Atom, String> {
    use Binary::*;
    if scalar != other {
        return Err(format!("{op:?} of a fraction and an integer"));
    }
    let truth = |text: String| Ok((format!("select(0i, 1i, {text})"), Scalar::I32));
    let infix = |op: &str| format!("{a} {op} {b}");
    let whole = *scalar == Scalar::I32;
    let text = match op {
        Equal => return truth(infix("==")),
        NotEqual => return truth(infix("!=")),
        Greater => return truth(infix(">")),
        GreaterEqual => return truth(infix(">=")),
        Less => return truth(infix("<")),
        LessEqual => return truth(infix("<=")),
        And if whole => return truth(format!("({a} != 0i) && ({b} != 0i)")),
        Or if whole => return truth(format!("({a} != 0i) || ({b} != 0i)")),
        Xor if whole => return truth(format!("({a} != 0i) != ({b} != 0i)")),
        Add => infix("+"),
        Sub => infix("-"),
        Mul => infix("*"),
        Div if whole => format!("whole_div({a}, {b})"),
        Rem if whole => format!("whole_rem({a}, {b})"),
        Div => infix("/"),
        Rem => format!("remainder({a}, {b})"),
        Max => format!("max({a}, {b})"),
        Min => format!("min({a}, {b})"),
        Pow if !whole => format!("power({a}, {b})"),
        BitAnd if whole => infix("&"),
        BitOr if whole => infix("|"),
        BitXor if whole => infix("^"),
        ShiftLeft if whole => format!("shift_left({a}, {b})"),
        ShiftRight if whole => format!("{a} >> min(bitcast<u32>({b}), 31u)"),
        _ => return Err(format!("{op:?} of {scalar:?}")),
    };
    Ok((text, *scalar))
}
