//! Runs a program on the CPU, element by element: what a device must compute, for tests and for the
//! device that has no hardware.

use super::kernel::{ArrayRead, Axis, BOX, Binary, Expr, Fold, How, Kernel, Number, Scalar, Suppression, Unary};
use super::program::{Program, Source};

/// Runs a program. Inputs and outputs are the bits of elements.
///
/// # Errors
/// An index outside of an array, which no program of [`lower`](super::lower) has.
pub(crate) fn interpret(program: &Program, inputs: &[&[u32]]) -> Result<Vec<Vec<u32>>, String> {
    let mut arrays: Vec<Vec<u32>> = program.arrays.iter().map(contents).collect();
    for (input, array) in std::iter::zip(inputs, &program.inputs) {
        arrays[*array].copy_from_slice(input);
    }
    for kernel in &program.kernels {
        run(program, kernel, &mut arrays).map_err(|error| format!("{}: {error}", kernel.name))?;
    }
    Ok(program.outputs.iter().map(|(array, _)| arrays[*array].clone()).collect())
}

fn contents(array: &super::program::Array) -> Vec<u32> {
    match &array.source {
        Source::Constant(bits) => bits.to_vec(),
        _ => vec![0; array.len],
    }
}

fn run(program: &Program, kernel: &Kernel, arrays: &mut [Vec<u32>]) -> Result<(), String> {
    if let Some(rule) = &kernel.suppression {
        let boxes = arrays[kernel.reads[0].array].iter().map(|bits| f32::from_bits(*bits)).collect::<Vec<_>>();
        arrays[kernel.write.array] = suppress(&boxes, rule).iter().map(|number| number.to_bits()).collect();
        return Ok(());
    }
    let fold_dims = kernel.fold.as_ref().map_or(&[][..], |fold| &fold.dims[..]);
    let mut at = vec![0; kernel.dims.len() + fold_dims.len()];
    for n in 0..kernel.len() {
        unflatten(n, &kernel.dims, &mut at);
        let mut folded = None;
        if let Some(fold) = &kernel.fold {
            let mut best = 0;
            for m in 0..fold_dims.iter().product() {
                unflatten(m, fold_dims, &mut at[kernel.dims.len()..]);
                let scope = InterpretScope { program, kernel, arrays, at: &at, folded: None, values: &[] };
                let value = scope.value(&fold.value)?;
                let (next, takes) = match folded {
                    None => (value, true),
                    Some(folded) => {
                        let next = fold_in(fold.how, folded, value)?;
                        is_fit(fold, folded, value)?;
                        next
                    }
                };
                folded = Some(next);
                best = if takes { m } else { best };
            }
            if matches!(fold.how, How::ArgMax { .. } | How::ArgMin { .. }) {
                folded = Some(Number::I32(best as i32));
            }
            // A fold over nothing.
            folded.get_or_insert(Number::F32(match fold.how {
                How::Product => 1.0,
                _ => 0.0,
            }));
        }
        let mut values = Vec::with_capacity(kernel.values.len());
        for value in &kernel.values {
            let value = InterpretScope { program, kernel, arrays, at: &at, folded, values: &values }.value(value)?;
            values.push(value);
        }
        let to = kernel.write.offset
            + std::iter::zip(&kernel.write.strides, &at).map(|(stride, at)| stride * *at as i64).sum::<i64>();
        let Some(value) = values.last() else { return Err("no value".into()) };
        let array = &mut arrays[kernel.write.array];
        let len = array.len();
        let place = usize::try_from(to).ok().and_then(|to| array.get_mut(to));
        *place.ok_or_else(|| format!("writes at {to} of {len}"))? = match value {
            Number::F32(value) => value.to_bits(),
            Number::I32(value) => *value as u32,
        };
    }
    Ok(())
}

fn suppress(numbers: &[f32], rule: &Suppression) -> Vec<f32> {
    let count = if rule.is_counted { numbers[rule.boxes * BOX] as usize } else { rule.boxes };
    let mut left: Vec<&[f32; BOX]> = numbers.as_chunks().0.iter().take(count).collect();
    left.retain(|row| !row[4].is_nan());
    // The sort is stable: of equal scores, the first one remains in front.
    left.sort_by(|a, b| b[4].partial_cmp(&a[4]).unwrap_or(std::cmp::Ordering::Equal));
    let mut chosen: Vec<&[f32; BOX]> = Vec::new();
    for row in left {
        let is_rival = |better: &[f32; BOX]| rule.across_classes || better[5] == row[5];
        if chosen.len() < rule.most && !chosen.iter().any(|better| is_rival(better) && overlap(better, row) > rule.iou)
        {
            chosen.push(row);
        }
    }
    let mut given: Vec<f32> = chosen.iter().flat_map(|row| row.iter().copied()).collect();
    given.resize(rule.most * BOX, 0.0);
    given.push(chosen.len() as f32);
    given
}

/// The intersection over union of two boxes.
fn overlap(a: &[f32; BOX], b: &[f32; BOX]) -> f32 {
    if a[..4].iter().chain(&b[..4]).any(|corner| corner.is_nan()) {
        return 0.0;
    }
    let side = |low: f32, high: f32| (high - low).max(0.0);
    let area = |of: &[f32; BOX]| side(of[0], of[2]) * side(of[1], of[3]);
    let shared = side(a[0].max(b[0]), a[2].min(b[2])) * side(a[1].max(b[1]), a[3].min(b[3]));
    let union = area(a) + area(b) - shared;
    if union > 0.0 { shared / union } else { 0.0 }
}

fn unflatten(mut n: usize, dims: &[usize], at: &mut [usize]) {
    for (dim, at) in std::iter::zip(dims, at).rev() {
        *at = n % dim;
        n /= dim;
    }
}

/// Fails where an exact fold leaves 32 bits.
fn is_fit(fold: &Fold, folded: Number, value: Number) -> Result<(), String> {
    let (true, Number::I32(a), Number::I32(b)) = (fold.exact, folded, value) else { return Ok(()) };
    let fits = match fold.how {
        How::Sum => a.checked_add(b).is_some(),
        How::Product => a.checked_mul(b).is_some(),
        _ => true,
    };
    if fits { Ok(()) } else { Err("does not fit 32 bits".into()) }
}

/// Returns the folded value, and whether `value` took its place.
fn fold_in(how: How, folded: Number, value: Number) -> Result<(Number, bool), String> {
    let op = match how {
        How::Sum => Binary::Add,
        How::Product => Binary::Mul,
        How::Max => Binary::Max,
        How::Min => Binary::Min,
        How::ArgMax { last } | How::ArgMin { last } => {
            let compare = match (how, last) {
                (How::ArgMax { .. }, true) => Binary::GreaterEqual,
                (How::ArgMax { .. }, false) => Binary::Greater,
                (_, true) => Binary::LessEqual,
                (_, false) => Binary::Less,
            };
            let takes = binary(compare, value, folded)? == Number::I32(1);
            return Ok((if takes { value } else { folded }, takes));
        }
    };
    Ok((binary(op, folded, value)?, true))
}

struct InterpretScope<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    arrays: &'a [Vec<u32>],
    at: &'a [usize],
    folded: Option<Number>,
    values: &'a [Number],
}

impl InterpretScope<'_> {
    fn value(&self, expr: &Expr) -> Result<Number, String> {
        Ok(match expr {
            Expr::Read(at) => self.read(&self.kernel.reads[*at])?,
            Expr::Folded => self.folded.ok_or("nothing is folded")?,
            Expr::Value(at) => *self.values.get(*at).ok_or("a value is used before it is computed")?,
            Expr::Number(number) => *number,
            Expr::Unary(op, a) => unary(*op, self.value(a)?)?,
            Expr::Binary(op, a, b) => binary(*op, self.value(a)?, self.value(b)?)?,
            Expr::Select(on, a, b) => {
                let on = self.value(on)?;
                self.value(if on == Number::I32(0) { b } else { a })?
            }
            Expr::Cast(to, a) => match (to, self.value(a)?) {
                (Scalar::F32, Number::I32(value)) => Number::F32(value as f32),
                (Scalar::I32, Number::F32(value)) => Number::I32(value as i32),
                (_, same) => same,
            },
            Expr::Exact(a) => self.exact(a)?,
        })
    }

    fn exact(&self, expr: &Expr) -> Result<Number, String> {
        let wide = |a: &Expr| match self.value(a)? {
            Number::I32(value) => Ok(i64::from(value)),
            Number::F32(value) => Ok::<_, String>(value as i64),
        };
        let value = match expr {
            Expr::Unary(Unary::Neg, a) => -wide(a)?,
            Expr::Unary(Unary::Abs, a) => wide(a)?.abs(),
            Expr::Cast(Scalar::I32, a) => wide(a)?,
            Expr::Binary(Binary::Add, a, b) => wide(a)? + wide(b)?,
            Expr::Binary(Binary::Sub, a, b) => wide(a)? - wide(b)?,
            Expr::Binary(Binary::Mul, a, b) => wide(a)? * wide(b)?,
            other => return self.value(other),
        };
        i32::try_from(value).map(Number::I32).map_err(|_| "does not fit 32 bits".into())
    }

    fn read(&self, read: &ArrayRead) -> Result<Number, String> {
        let mut index = read.offset;
        for axis in &read.axes {
            match self.index(axis)? {
                Some(along) => index += along * axis.stride,
                None => return Ok(read.outside),
            }
        }
        let array = &self.arrays[read.array];
        let bits = usize::try_from(index).ok().and_then(|index| array.get(index));
        let bits = *bits.ok_or_else(|| format!("reads at {index} of {}", array.len()))?;
        Ok(match self.program.arrays[read.array].scalar {
            Scalar::F32 => Number::F32(f32::from_bits(bits)),
            Scalar::I32 => Number::I32(bits as i32),
        })
    }

    fn index(&self, axis: &Axis) -> Result<Option<i64>, String> {
        let mut index = axis.offset + axis.terms.iter().map(|(dim, factor)| factor * self.at[*dim] as i64).sum::<i64>();
        if let Some(table) = axis.table {
            match self.read(&self.kernel.reads[table])? {
                Number::I32(value) => index += i64::from(value),
                Number::F32(_) => return Err("a table of indices has fractions".into()),
            }
        }
        if axis.exact && index.rem_euclid(axis.divisor) != 0 {
            return Ok(None);
        }
        let index = index.div_euclid(axis.divisor);
        let is_outside = axis.limit.is_some_and(|limit| !(0..limit).contains(&index));
        Ok((!is_outside).then_some(index))
    }
}

fn unary(op: Unary, a: Number) -> Result<Number, String> {
    use Unary::*;
    Ok(match (op, a) {
        (Not, a) => Number::I32(i32::from(a == Number::zero(a.scalar()))),
        (BitNot, Number::I32(a)) => Number::I32(!a),
        (Abs, Number::I32(a)) => Number::I32(a.wrapping_abs()),
        (Neg, Number::I32(a)) => Number::I32(a.wrapping_neg()),
        (Sign, Number::I32(a)) => Number::I32(a.signum()),
        (Ceil | Floor | Round | RoundEven, Number::I32(a)) => Number::I32(a),
        (IsInf, Number::F32(a)) => Number::I32(i32::from(a.is_infinite())),
        (IsNan, Number::F32(a)) => Number::I32(i32::from(a.is_nan())),
        (_, Number::I32(_)) => return Err(format!("{op:?} of an integer")),
        (_, Number::F32(a)) => Number::F32(match op {
            Abs => a.abs(),
            Acos => a.acos(),
            Acosh => a.acosh(),
            Asin => a.asin(),
            Asinh => a.asinh(),
            Atan => a.atan(),
            Atanh => a.atanh(),
            Ceil => a.ceil(),
            Cos => a.cos(),
            Cosh => a.cosh(),
            Erf => erf(a),
            Exp => a.exp(),
            Floor => a.floor(),
            Ln => a.ln(),
            Neg => -a,
            Recip => a.recip(),
            Round => a.round(),
            RoundEven => a.round_ties_even(),
            Sigmoid => 1.0 / (1.0 + (-a).exp()),
            Sign if a == 0.0 => 0.0,
            Sign => a.signum(),
            Sin => a.sin(),
            Sinh => a.sinh(),
            Sqrt => a.sqrt(),
            Tan => a.tan(),
            Tanh => a.tanh(),
            Not | BitNot | IsInf | IsNan => return Err(format!("{op:?} of a fraction")),
        }),
    })
}

/// The error function: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26; absolute
/// error below 1.5e-7.
fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let poly = t * (0.254_829_6 + t * (-0.284_496_74 + t * (1.421_413_7 + t * (-1.453_152_1 + t * 1.061_405_4))));
    (1.0 - poly * (-x * x).exp()).copysign(x)
}

fn binary(op: Binary, a: Number, b: Number) -> Result<Number, String> {
    use Binary::*;
    let truth = |is: bool| Number::I32(i32::from(is));
    Ok(match (a, b) {
        (Number::F32(a), Number::F32(b)) => match op {
            Equal => truth(a == b),
            NotEqual => truth(a != b),
            Greater => truth(a > b),
            GreaterEqual => truth(a >= b),
            Less => truth(a < b),
            LessEqual => truth(a <= b),
            Add => Number::F32(a + b),
            Sub => Number::F32(a - b),
            Mul => Number::F32(a * b),
            Div => Number::F32(a / b),
            Rem => Number::F32(a % b),
            Max => Number::F32(a.max(b)),
            Min => Number::F32(a.min(b)),
            Pow => Number::F32(a.powf(b)),
            And | Or | Xor | BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight => {
                return Err(format!("{op:?} of fractions"));
            }
        },
        (Number::I32(a), Number::I32(b)) => match op {
            Equal => truth(a == b),
            NotEqual => truth(a != b),
            Greater => truth(a > b),
            GreaterEqual => truth(a >= b),
            Less => truth(a < b),
            LessEqual => truth(a <= b),
            And => truth(a != 0 && b != 0),
            Or => truth(a != 0 || b != 0),
            Xor => truth((a != 0) != (b != 0)),
            Add => Number::I32(a.wrapping_add(b)),
            Sub => Number::I32(a.wrapping_sub(b)),
            Mul => Number::I32(a.wrapping_mul(b)),
            Div => Number::I32(if b == 0 { 0 } else { a.wrapping_div(b) }),
            Rem => Number::I32(if b == 0 { 0 } else { a.wrapping_rem(b) }),
            Max => Number::I32(a.max(b)),
            Min => Number::I32(a.min(b)),
            Pow => return Err("a power of integers".into()),
            BitAnd => Number::I32(a & b),
            BitOr => Number::I32(a | b),
            BitXor => Number::I32(a ^ b),
            ShiftLeft => Number::I32(a.checked_shl(b as u32).unwrap_or(0)),
            ShiftRight => Number::I32(a >> (b as u32).min(31)),
        },
        _ => return Err(format!("{op:?} of a fraction and an integer")),
    })
}
