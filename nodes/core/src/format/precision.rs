//! Whether a floating-point type keeps the digits of a number in a text.

use super::record::Value;
use limen::message::DType;

/// The advice for an input of numbers that have lost digits already.
pub const READ_AS_F64: &str = "write `type: f64` at the source, because `cast` cannot restore digits";

/// Returns whether a type keeps every digit that a text gives a value, as `f32` does not for
/// `1700000000.123`. Integer types are exact or refuse a value, so they keep all.
pub(crate) fn keeps(dtype: DType, text: &[u8], value: Value) -> bool {
    match (dtype, value) {
        // Beyond these, a type has some whole numbers only, and is printed with other digits.
        (DType::F32, Value::Whole(value)) => value.unsigned_abs() <= 1 << 24,
        (DType::F64, Value::Whole(value)) => value.unsigned_abs() <= 1 << 53,
        (DType::F32, Value::Fraction(value)) if value.is_finite() => {
            let rounded = f64::from(value as f32);
            rounded == value || (rounded - value).abs() <= half_unit(text)
        }
        _ => true,
    }
}

/// Returns half of the last digit's unit: 0.0005 of `1.234`, with a margin for the rounding of this
/// number.
fn half_unit(text: &[u8]) -> f64 {
    let text = text.trim_ascii();
    let end = text.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(text.len());
    let exponent = text.get(end + 1..).and_then(|text| str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0);
    let decimals = text[..end].iter().rev().position(|byte| *byte == b'.').unwrap_or(0) as i32;
    0.500_001 * 10f64.powi(i32::saturating_sub(exponent, decimals))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::row::parse;

    #[test]
    fn digits_that_a_type_rounds_away_are_seen() {
        for (text, f32, f64) in [
            ("0", true, true),
            ("0.1", true, true),
            ("-9.81", true, true),
            ("8.147691", true, true),
            ("1e-3", true, true),
            ("1.5e38", true, true),
            ("0.100000001", true, true),
            ("16777216", true, true),
            ("nan", true, true),
            ("-inf", true, true),
            ("", true, true),
            ("16777217", false, true),
            ("16777217.0", false, true),
            ("345600.123", false, true),
            ("1700000000.123456", false, true),
            ("13.404954123", false, true),
            ("9.812345678901234", false, true),
            ("1e39", false, true),
            ("1403636579758555392", false, false),
            ("33554432", false, true),
            ("1403636579758555393", false, false),
            ("-9007199254740992", false, true),
            ("9007199254740993", false, false),
        ] {
            let value = parse(text.as_bytes()).unwrap();
            let kept = |dtype| keeps(dtype, text.as_bytes(), value);
            assert_eq!((kept(DType::F32), kept(DType::F64), kept(DType::I64)), (f32, f64, true), "{text}");
        }
    }
}
