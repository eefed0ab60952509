//! The text of expressions: the value of every operation gets a name.

use super::dialect::Dialect;
use super::text::{Atom, Text};
use crate::lowering::{Binary, Expr, Number, Scalar, Unary};

impl Text<'_> {
    /// Computes an expression into a variable.
    pub(super) fn expr(&mut self, expr: &Expr) -> Result<Atom, String> {
        Ok(match expr {
            Expr::Read(at) => self.read(*at)?,
            Expr::Folded => self.folded.clone().ok_or("the kernel has no fold")?,
            Expr::Value(at) => self.values.get(*at).cloned().ok_or("a value is used before it is computed")?,
            Expr::Number(value) => (self.dialect.number(*value), value.scalar()),
            Expr::Unary(op, a) => {
                let a = self.expr(a)?;
                let (text, scalar) = unary(self.dialect, *op, &a)?;
                (self.name(&text), scalar)
            }
            Expr::Binary(Binary::Pow, a, b) if **b == Expr::f32(2.0) => {
                let a = self.expr(a)?;
                let (text, scalar) = binary(self.dialect, Binary::Mul, &a, &a)?;
                (self.name(&text), scalar)
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                let (text, scalar) = binary(self.dialect, *op, &a, &b)?;
                (self.name(&text), scalar)
            }
            Expr::Select(on, a, b) => {
                let (on, a, b) = (self.expr(on)?, self.expr(a)?, self.expr(b)?);
                if a.1 != b.1 {
                    return Err("both values of a selection must have one type".into());
                }
                let is_second = format!("{} != {}", on.0, self.dialect.number(Number::zero(on.1)));
                (self.name(&self.call("select", &[&b.0, &a.0, &is_second])), a.1)
            }
            Expr::Cast(to, a) => {
                let (a, _) = self.expr(a)?;
                (self.name(&self.call(cast(*to), &[&a])), *to)
            }
            Expr::Exact(a) => self.exact(a)?,
        })
    }

    fn exact(&mut self, expr: &Expr) -> Result<Atom, String> {
        let text = match expr {
            Expr::Cast(Scalar::I32, a) => {
                let (a, _) = self.expr(a)?;
                self.dialect.checked("exact_cast", &[&a])
            }
            Expr::Unary(op @ (Unary::Abs | Unary::Neg), a) => {
                let function = if *op == Unary::Abs { "exact_abs" } else { "exact_neg" };
                let (a, _) = self.expr(a)?;
                self.dialect.checked(function, &[&a])
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
                self.dialect.checked(function, &[&a.0, &b.0])
            }
            other => return self.expr(other),
        };
        Ok((self.name(&text), Scalar::I32))
    }
}

/// The function that converts to a type.
fn cast(to: Scalar) -> &'static str {
    match to {
        Scalar::F32 => "f32",
        Scalar::I32 => "i32",
    }
}

/// 1 where it is so, 0 elsewhere.
fn truth(dialect: &dyn Dialect, condition: &str) -> Atom {
    let [no, yes] = [0, 1].map(|value| dialect.number(Number::I32(value)));
    (dialect.call("select", &[&no, &yes, condition]), Scalar::I32)
}

fn unary(dialect: &dyn Dialect, op: Unary, (a, scalar): &Atom) -> Result<Atom, String> {
    use Unary::*;
    let whole = match op {
        Not => return Ok(truth(dialect, &format!("{a} == {}", dialect.number(Number::zero(*scalar))))),
        IsInf | IsNan if *scalar == Scalar::F32 => {
            let op = if op == IsInf { "==" } else { ">" };
            return Ok(truth(dialect, &format!("({} & 0x7fffffffu) {op} 0x7f800000u", dialect.bits(a))));
        }
        _ => *scalar == Scalar::I32,
    };
    let call = |function: &str| dialect.call(function, &[a]);
    let text = match op {
        Abs => call("abs"),
        Neg if whole => dialect.negative(a),
        Neg => format!("-({a})"),
        Sign => call("sign"),
        BitNot if whole => format!("~({a})"),
        Ceil | Floor | Round | RoundEven if whole => a.clone(),
        _ if whole || op == BitNot => return Err(format!("{op:?} is not defined for {scalar:?}")),
        Acos => call("acos"),
        Acosh => call("acosh"),
        Asin => call("asin"),
        Asinh => call("asinh"),
        Atan => call("atan"),
        Atanh => call("atanh"),
        Ceil => call("ceil"),
        Cos => call("cos"),
        Cosh => call("cosh"),
        Erf => call("error_function"),
        Exp => call("exp"),
        Floor => call("floor"),
        Ln => call("log"),
        Recip => format!("{} / {a}", dialect.number(Number::F32(1.0))),
        Round => call("round_away"),
        RoundEven => call("round"),
        Sigmoid => call("sigmoid"),
        Sin => call("sin"),
        Sinh => call("sinh"),
        Sqrt => call("sqrt"),
        Tan => call("tan"),
        Tanh => call("flat_tanh"),
        BitNot | IsInf | IsNan | Not => return Err(format!("{op:?} is not defined for {scalar:?}")),
    };
    Ok((text, *scalar))
}

fn binary(dialect: &dyn Dialect, op: Binary, (a, scalar): &Atom, (b, other): &Atom) -> Result<Atom, String> {
    use Binary::*;
    if scalar != other {
        return Err(format!("{op:?} expects two numbers of one type"));
    }
    let infix = |op: &str| format!("{a} {op} {b}");
    let is = |op: &str| Ok(truth(dialect, &infix(op)));
    let call = |function: &str| dialect.call(function, &[a, b]);
    let whole = *scalar == Scalar::I32;
    let both = |op: &str| {
        let zero = dialect.number(Number::I32(0));
        Ok(truth(dialect, &format!("({a} != {zero}) {op} ({b} != {zero})")))
    };
    let text = match op {
        Equal => return is("=="),
        NotEqual => return is("!="),
        Greater => return is(">"),
        GreaterEqual => return is(">="),
        Less => return is("<"),
        LessEqual => return is("<="),
        And if whole => return both("&&"),
        Or if whole => return both("||"),
        Xor if whole => return both("!="),
        Add if whole => dialect.whole("+", a, b),
        Sub if whole => dialect.whole("-", a, b),
        Mul if whole => dialect.whole("*", a, b),
        Add => infix("+"),
        Sub => infix("-"),
        Mul => infix("*"),
        Div if whole => call("whole_div"),
        Rem if whole => call("whole_rem"),
        Div => infix("/"),
        Rem => call("remainder"),
        Max => call("max"),
        Min => call("min"),
        Pow if !whole => call("power"),
        BitAnd if whole => infix("&"),
        BitOr if whole => infix("|"),
        BitXor if whole => infix("^"),
        ShiftLeft if whole => call("shift_left"),
        ShiftRight if whole => format!("{a} >> {}", dialect.call("min", &[&dialect.bits(b), "31u"])),
        _ => return Err(format!("{op:?} is not defined for {scalar:?}")),
    };
    Ok((text, *scalar))
}
