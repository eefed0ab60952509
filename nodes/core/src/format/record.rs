//! The numbers of one message while it is read, in whatever order they come.

use super::field::{Field, FieldPlace, FieldPort, places};
use super::precision::keeps;
use crate::tensor::number::{Number, with_type};
use bytemuck::{bytes_of, pod_read_unaligned};
use limen::message::DType;
use std::fmt;

/// A number as a message has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(i128),
    /// Any other number.
    Fraction(f64),
    /// A value that is left out: `null`, an empty column. As a fraction it is NaN.
    Missing,
}

/// What is wrong with a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A message of another length.
    Length {
        /// The bytes of the message.
        found: usize,
        /// The bytes that it should have.
        expected: usize,
        /// Whether it may also be longer.
        least: bool,
    },
    /// A checksum that does not fit the message.
    Checksum {
        /// The checksum in the message.
        found: u32,
        /// The checksum of the message.
        expected: u32,
    },
    /// What a parser says.
    Syntax(String),
    /// A field that is not there.
    NotFound {
        /// The index of the field.
        field: usize,
    },
    /// A field that is there more than once.
    Twice {
        /// The index of the field.
        field: usize,
    },
    /// An array of another length.
    Count {
        /// The index of the field.
        field: usize,
        /// The numbers in the array.
        found: usize,
        /// The numbers that it should have.
        expected: usize,
    },
    /// A number that the type cannot have.
    OutOfRange {
        /// The index of the field.
        field: usize,
        /// The number.
        value: Value,
    },
    /// A number of which the type has only the nearest one.
    Rounded {
        /// The index of the field.
        field: usize,
        /// The number.
        value: Value,
    },
    /// Something else than a number.
    NoNumber {
        /// The index of the field.
        field: usize,
    },
    /// Something else than an array.
    NoArray {
        /// The index of the field.
        field: usize,
        /// The numbers that the array should have.
        expected: usize,
    },
    /// Something else than an object or an array, where a path goes on.
    NoBranch,
}

impl Fault {
    /// The fault in words, with the names of the fields.
    pub fn text(&self, fields: &[Field]) -> String {
        let name = |field: &usize| format!("`{}`", fields.get(*field).map_or("", |field| &field.name));
        match self {
            Fault::Length { found, expected, least } => {
                format!("expected {}{expected} bytes, found {found}", if *least { "at least " } else { "" })
            }
            Fault::Checksum { found, expected } => {
                // Of two bytes, and of four.
                let is_turned = [found.swap_bytes() >> 16, found.swap_bytes()].contains(expected);
                let hint = if is_turned { ": write the other value of `endian`" } else { "" };
                format!("expected the checksum {expected:x}, found {found:x}{hint}")
            }
            Fault::Syntax(text) => text.clone(),
            Fault::NotFound { field } => format!("{} is missing", name(field)),
            Fault::Twice { field } => format!("{} occurs twice", name(field)),
            Fault::Count { field, found, expected } => {
                format!("expected {expected} numbers in {}, found {found}", name(field))
            }
            Fault::OutOfRange { field, value } => {
                let dtype = fields.get(*field).map(|field| field.dtype.to_string()).unwrap_or_default();
                format!("expected {dtype} in {}, found {value}", name(field))
            }
            Fault::Rounded { field, value } => {
                let dtype = fields.get(*field).map(|field| field.dtype.to_string()).unwrap_or_default();
                format!("{} is {value}, which {dtype} would round{}", name(field), exact_type(*value))
            }
            Fault::NoNumber { field } => format!("{} is not a number", name(field)),
            Fault::NoArray { field, expected } => format!("{} is not an array of {expected} numbers", name(field)),
            Fault::NoBranch => "expected an object or an array, found a value".into(),
        }
    }
}

/// The advice to write a type that has a number; empty if there is none.
fn exact_type(value: Value) -> &'static str {
    match value {
        Value::Whole(value) if value.unsigned_abs() <= 1 << 53 => ": write `type: f64` or `type: i64`",
        Value::Whole(value) if i64::try_from(value).is_ok() => ": write `type: i64`",
        Value::Whole(value) if u64::try_from(value).is_ok() => ": write `type: u64`",
        Value::Whole(_) | Value::Missing => "",
        Value::Fraction(_) => ": write `type: f64`",
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Whole(value) => write!(f, "{value}"),
            Value::Fraction(value) => write!(f, "{value}"),
            Value::Missing => f.write_str("null"),
        }
    }
}

/// The numbers of the fields of a message: each is written once.
#[derive(Debug)]
pub struct Record {
    slots: Vec<FieldSlot>,
    /// The elements of each port, in native byte order.
    ports: Vec<Vec<u8>>,
    /// Whether numbers that lose digits in their type are refused.
    is_exact: bool,
    /// What is wrong, if a parser's error cannot carry it.
    pub fault: Option<Fault>,
    /// The first field of the message with a value that is left out.
    missing: Option<usize>,
}

/// The numbers of a field.
#[derive(Debug)]
struct FieldSlot {
    place: FieldPlace,
    /// How many of them have been written.
    filled: usize,
}

impl Record {
    /// Creates the numbers of a message, none of which is written.
    pub fn new(fields: &[Field], ports: &[FieldPort]) -> Record {
        let slots = places(fields, ports).into_iter().map(|place| FieldSlot { place, filled: 0 }).collect();
        let ports = ports.iter().map(|port| vec![0; port.bytes()]).collect();
        Record { slots, ports, is_exact: false, fault: None, missing: None }
    }

    /// As [`Record::new`], and refuses a whole number that its type rounds, and a greater fraction
    /// of which its type loses digits.
    pub fn exact(fields: &[Field], ports: &[FieldPort]) -> Record {
        Record { is_exact: true, ..Record::new(fields, ports) }
    }

    /// Begins another message.
    pub fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.filled = 0);
        self.fault = None;
        self.missing = None;
    }

    /// The first field of the message with a value that is left out, which is NaN in the port.
    pub fn missing(&self) -> Option<usize> {
        self.missing
    }

    /// The elements of a port, in native byte order.
    pub fn port(&self, port: usize) -> &[u8] {
        &self.ports[port]
    }

    /// Writes the next number of a field.
    pub fn put(&mut self, field: usize, value: Value) -> Result<(), Fault> {
        let slot = &mut self.slots[field];
        let FieldPlace { port, offset, count, dtype } = slot.place;
        if slot.filled == count {
            return Err(Fault::Twice { field });
        }
        let bytes = &mut self.ports[port][offset + slot.filled * dtype.size()..];
        with_type!(dtype, T, {
            let number = converted::<T>(value).ok_or(Fault::OutOfRange { field, value })?;
            if self.is_exact && is_rounded(dtype, value, number) {
                return Err(Fault::Rounded { field, value });
            }
            bytes[..size_of::<T>()].copy_from_slice(bytes_of(&number));
        });
        slot.filled += 1;
        if value == Value::Missing {
            self.missing.get_or_insert(field);
        }
        Ok(())
    }

    /// How many numbers a field has.
    pub fn count(&self, field: usize) -> usize {
        self.slots[field].place.count
    }

    /// How many numbers of a field have been written.
    pub fn filled(&self, field: usize) -> usize {
        self.slots[field].filled
    }

    /// Whether all numbers are there.
    pub fn finish(&self) -> Result<(), Fault> {
        let missing = self.slots.iter().enumerate().find(|(_, slot)| slot.filled != slot.place.count);
        match missing {
            None => Ok(()),
            Some((field, FieldSlot { filled: 0, .. })) => Err(Fault::NotFound { field }),
            Some((field, slot)) => Err(Fault::Count { field, found: slot.filled, expected: slot.place.count }),
        }
    }
}

/// The greatest whole number up to which an `f64` has every whole number.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

/// The number in a type; `None` if it is out of the type's range, or a fraction for an integer
/// type. A fraction is rounded.
fn converted<T: Number>(value: Value) -> Option<T> {
    match value {
        Value::Whole(value) if T::IS_WHOLE => {
            let number = T::from_whole(value);
            (number.to_whole() == value).then_some(number)
        }
        Value::Whole(value) => converted(Value::Fraction(value as f64)),
        Value::Fraction(value) if T::IS_WHOLE => {
            let is_whole = value.fract() == 0.0 && value.abs() <= MOST_EXACT;
            is_whole.then(|| converted(Value::Whole(value as i128)))?
        }
        Value::Fraction(value) => {
            let number = T::from_f64(value);
            (number.to_f64().is_finite() || !value.is_finite()).then_some(number)
        }
        Value::Missing => (!T::IS_WHOLE).then(|| T::from_f64(f64::NAN)),
    }
}

/// Whether a number lost digits in its type. A fraction that is smaller than the whole numbers
/// which `f32` lacks is a measurement: its last digits may be rounded.
fn is_rounded<T: Number>(dtype: DType, value: Value, number: T) -> bool {
    match value {
        Value::Whole(value) if !T::IS_WHOLE => number.to_f64() as i128 != value,
        Value::Fraction(fraction) if dtype == DType::F32 && fraction.abs() > f64::from(1 << 24) => {
            // Only the digits of an inexact number are counted, which takes its text.
            number.to_f64() != fraction && !keeps(dtype, format!("{fraction:e}").as_bytes(), value)
        }
        _ => false,
    }
}

/// An element in native byte order as a number of a message.
pub fn value_of(dtype: DType, bytes: &[u8]) -> Value {
    with_type!(dtype, T, {
        let number: T = pod_read_unaligned(bytes);
        if T::IS_WHOLE { Value::Whole(number.to_whole()) } else { Value::Fraction(number.to_f64()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_type_or_are_refused() {
        let fits = |dtype: DType, value: Value| -> Option<Value> {
            with_type!(dtype, T, converted::<T>(value).map(|number| value_of(dtype, bytes_of(&number))))
        };
        for (dtype, value, expected) in [
            (DType::U8, Value::Whole(255), Some(Value::Whole(255))),
            (DType::U8, Value::Whole(256), None),
            (DType::U8, Value::Whole(-1), None),
            (DType::I64, Value::Whole(i128::from(i64::MIN)), Some(Value::Whole(i128::from(i64::MIN)))),
            (DType::U64, Value::Whole(i128::from(u64::MAX)), Some(Value::Whole(i128::from(u64::MAX)))),
            (DType::U64, Value::Whole(i128::from(u64::MAX) + 1), None),
            (DType::I32, Value::Fraction(3.0), Some(Value::Whole(3))),
            (DType::I32, Value::Fraction(-0.0), Some(Value::Whole(0))),
            (DType::I32, Value::Fraction(3.5), None),
            (DType::I64, Value::Fraction(1e17), None),
            (DType::I64, Value::Fraction(f64::NAN), None),
            (DType::I64, Value::Missing, None),
            (DType::F32, Value::Fraction(0.1), Some(Value::Fraction(f64::from(0.1f32)))),
            (DType::F32, Value::Fraction(f64::INFINITY), Some(Value::Fraction(f64::INFINITY))),
            (DType::F32, Value::Fraction(1e39), None),
            (DType::F16, Value::Whole(70_000), None),
            (DType::F16, Value::Whole(3), Some(Value::Fraction(3.0))),
        ] {
            assert_eq!(fits(dtype, value), expected, "{dtype} {value}");
        }
        let missing = fits(DType::F64, Value::Missing);
        assert!(matches!(missing, Some(Value::Fraction(value)) if value.is_nan()));
    }

    #[test]
    fn numbers_that_lose_digits_are_refused_by_an_exact_record() {
        let most = i128::from(u64::MAX);
        for (dtype, value, expected) in [
            (DType::F32, Value::Whole(16_777_216), Ok(())),
            (
                DType::F32,
                Value::Whole(16_777_217),
                Err("`t` is 16777217, which f32 would round: write `type: f64` or `type: i64`"),
            ),
            // A multiple of 128.
            (DType::F32, Value::Whole(1_700_000_000), Ok(())),
            (
                DType::F32,
                Value::Whole(-1_700_000_001),
                Err("`t` is -1700000001, which f32 would round: write `type: f64` or `type: i64`"),
            ),
            (DType::F32, Value::Fraction(0.1), Ok(())),
            (DType::F32, Value::Fraction(-122.419_415_500_000_01), Ok(())),
            (DType::F32, Value::Fraction(1.5e30), Ok(())),
            (DType::F32, Value::Fraction(f64::NEG_INFINITY), Ok(())),
            (DType::F32, Value::Missing, Ok(())),
            (
                DType::F32,
                Value::Fraction(1_700_000_000.123_456),
                Err("`t` is 1700000000.123456, which f32 would round: write `type: f64`"),
            ),
            (DType::F16, Value::Whole(2_048), Ok(())),
            (
                DType::F16,
                Value::Whole(2_049),
                Err("`t` is 2049, which f16 would round: write `type: f64` or `type: i64`"),
            ),
            (
                DType::BF16,
                Value::Whole(257),
                Err("`t` is 257, which bf16 would round: write `type: f64` or `type: i64`"),
            ),
            (DType::F64, Value::Whole(1_700_000_001), Ok(())),
            (
                DType::F64,
                Value::Whole((1 << 53) + 1),
                Err("`t` is 9007199254740993, which f64 would round: write `type: i64`"),
            ),
            (
                DType::F64,
                Value::Whole(most),
                Err("`t` is 18446744073709551615, which f64 would round: write `type: u64`"),
            ),
            (DType::I64, Value::Whole((1 << 53) + 1), Ok(())),
            (DType::U64, Value::Whole(most), Ok(())),
        ] {
            let text = format!(r#"{{"name": "t", "type": "{dtype}"}}"#);
            let fields: [Field; 1] = [serde_json::from_str(&text).unwrap()];
            let ports = super::super::field::ports(&fields, &mut limen::node::PlanErrors::default());
            let put = |mut record: Record| record.put(0, value).map_err(|fault| fault.text(&fields));
            assert_eq!(put(Record::exact(&fields, &ports)), expected.map_err(String::from), "{dtype} {value}");
            assert_eq!(put(Record::new(&fields, &ports)), Ok(()), "{dtype} {value}");
        }
    }
}
