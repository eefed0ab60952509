//! Tensors with a value around them.

use crate::tensor::view::{self, ElementView};
use crate::tensor::{cost, shape};
use arrayvec::ArrayVec;
use half::{bf16, f16};
use limen::message::{DType, Dim, MAX_RANK, PortSpec};
use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;

/// Pads tensors of any type with a constant value.
///
/// `before` and `after` set the number of elements to add at each end of a dim. Instead, `to` sets
/// the shape of the output. With `to`, dims of variable length (`≤n`) become fixed, as most models
/// require.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct PadConfig {
    /// Shape of the output, one length per dim. The node adds the missing elements at the end of
    /// each dim. `to` cannot be combined with `before` or `after`.
    pub to: Option<Vec<usize>>,
    /// Number of elements to add before the first element of each dim, one number per dim. Default:
    /// 0.
    pub before: Option<Vec<usize>>,
    /// Number of elements to add after the last element of each dim, one number per dim. Default:
    /// 0.
    pub after: Option<Vec<usize>>,
    /// Value of the added elements. The element type must be able to hold the value. Default: 0.
    #[serde(default)]
    #[schemars(with = "f64")]
    pub value: FillValue,
}

/// A number of a config: whole ones keep all their digits.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum FillValue {
    /// A whole number.
    Signed(i64),
    /// A whole number beyond `i64`.
    Unsigned(u64),
    /// A fraction, or a number beyond `u64`.
    Float(f64),
}

impl Default for FillValue {
    fn default() -> Self {
        FillValue::Signed(0)
    }
}

impl FillValue {
    /// Returns the number, if it is whole.
    fn whole(self) -> Option<i128> {
        match self {
            FillValue::Signed(value) => Some(value.into()),
            FillValue::Unsigned(value) => Some(value.into()),
            FillValue::Float(value) => (value.trunc() == value).then_some(value as i128),
        }
    }

    fn float(self) -> f64 {
        match self {
            FillValue::Signed(value) => value as f64,
            FillValue::Unsigned(value) => value as f64,
            FillValue::Float(value) => value,
        }
    }
}

impl fmt::Display for FillValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FillValue::Signed(value) => value.fmt(f),
            FillValue::Unsigned(value) => value.fmt(f),
            FillValue::Float(value) => value.fmt(f),
        }
    }
}

/// Runs `kind: pad`; [`PadConfig`] says what it does.
#[derive(Debug)]
pub struct Pad {
    before: [usize; MAX_RANK],
    /// `None` if the shape of the output is fixed by `to`.
    after: Option<[usize; MAX_RANK]>,
    value: ElementBytes,
}

/// The bytes of one element.
pub(crate) type ElementBytes = ArrayVec<u8, 8>;

/// Returns an element of a value; `None` if the type cannot hold it. Floats are rounded.
pub(crate) fn element(dtype: DType, value: FillValue) -> Option<ElementBytes> {
    macro_rules! whole {
        ($t:ty) => {
            ElementBytes::from_iter(<$t>::try_from(value.whole()?).ok()?.to_ne_bytes())
        };
    }
    let float = value.float();
    macro_rules! float {
        ($element:expr) => {{
            let element = $element;
            // A finite value must not become an infinity.
            if float.is_finite() && !element.is_finite() {
                return None;
            }
            ElementBytes::from_iter(element.to_ne_bytes())
        }};
    }
    Some(match dtype {
        DType::F32 => float!(float as f32),
        DType::F16 => float!(f16::from_f64(float)),
        DType::BF16 => float!(bf16::from_f64(float)),
        DType::F64 => float!(float),
        DType::I8 => whole!(i8),
        DType::U8 => whole!(u8),
        DType::I16 => whole!(i16),
        DType::U16 => whole!(u16),
        DType::I32 => whole!(i32),
        DType::U32 => whole!(u32),
        DType::I64 => whole!(i64),
        DType::U64 => whole!(u64),
    })
}

/// Repeats an element.
pub(crate) fn fill(bytes: &mut [u8], element: &[u8]) {
    match element {
        [] => {}
        // Such as 0: faster than one by one.
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => bytes.fill(*first),
        _ => bytes.chunks_exact_mut(element.len()).for_each(|to| to.copy_from_slice(element)),
    }
}

/// Returns one number per dim.
fn per_dim(list: Option<&Vec<usize>>) -> [usize; MAX_RANK] {
    let list = list.map_or(&[][..], Vec::as_slice);
    std::array::from_fn(|dim| list.get(dim).copied().unwrap_or(0))
}

impl PadConfig {
    /// Reports what is wrong whatever the input is.
    fn check(&self, errors: &mut PlanErrors) {
        let has_sides = self.before.is_some() || self.after.is_some();
        match &self.to {
            None if !has_sides => {
                errors.node("expected `to`, `before` or `after`, found none").help("add `to`, `before` or `after`");
            }
            Some(_) if has_sides => {
                let message = "`to` excludes `before` and `after`";
                errors.at("to", message).help("remove `to`, or remove `before` and `after`");
            }
            to => {
                for (i, _) in to.iter().flatten().enumerate().filter(|(_, length)| **length == 0) {
                    errors.at(format!("to[{i}]"), "a length must be at least 1, got 0").help("write 1 or more");
                }
            }
        }
    }

    /// Returns the output's dims, and reports what does not fit the input.
    fn planned(&self, spec: &PortSpec, errors: &mut PlanErrors) -> Option<Vec<Dim>> {
        let rank = spec.shape.len();
        for (field, list) in [("to", &self.to), ("before", &self.before), ("after", &self.after)] {
            if let Some(list) = list.as_ref().filter(|list| list.len() != rank) {
                let message = format!("expected one number per dim of {spec}, found {}", list.len());
                errors.at(field, message).help("write one number per dim of the input");
            }
        }
        if element(spec.dtype, self.value).is_none() {
            let message = format!("`value` must be a value of {1}, got {0}", self.value, spec.dtype);
            errors.at("value", message).help(format!("write a value of {}, such as 0", spec.dtype));
        }
        if let Some(to) = &self.to {
            for (i, (length, to)) in spec.shape.iter().zip(to).enumerate() {
                if let Some(most) = length.max().filter(|most| most > to) {
                    let message = format!("`to[{i}]` must be at least {most} for {spec}, got {to}");
                    let help = format!("write {most} or more, or add a `slice` node upstream");
                    errors.at(format!("to[{i}]"), message).help(help);
                }
            }
        }
        let (before, after) = (per_dim(self.before.as_ref()), per_dim(self.after.as_ref()));
        // A sum that saturates does not fit into memory, which the engine reports. A dim without a
        // bound is a problem of the input.
        let longer = |dim: usize, length: usize| length.saturating_add(before[dim]).saturating_add(after[dim]);
        let dims = spec.shape.iter().enumerate().map(|(dim, length)| match (&self.to, length) {
            (Some(to), Dim::Fixed(_) | Dim::AtMost(_)) => to.get(dim).copied().map(Dim::Fixed),
            (None, Dim::Fixed(length)) => Some(Dim::Fixed(longer(dim, *length))),
            (None, Dim::AtMost(most)) => Some(Dim::AtMost(longer(dim, *most))),
            _ => None,
        });
        dims.take(MAX_RANK).collect()
    }
}

impl Node for Pad {
    type Config = PadConfig;

    fn ports(config: &PadConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        config.check(&mut errors);
        let out = given.single().and_then(|spec| {
            let mut out = PortSpec::new(spec.dtype, config.planned(spec, &mut errors)?);
            out.layout = spec.layout;
            Some(out.with_orientation_of(spec))
        });
        let cost = cost::of_spec(out.as_ref());
        errors.into_result(shape::gives(shape::takes(given.single().cloned()), out).cost(cost))
    }

    fn build(config: PadConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let spec = cx.inputs().first().and_then(|(_, spec)| spec.as_ref());
        Ok(Pad {
            before: per_dim(config.before.as_ref()),
            after: config.to.is_none().then(|| per_dim(config.after.as_ref())),
            value: spec.and_then(|spec| element(spec.dtype, config.value)).unwrap_or_default(),
        })
    }
}

impl Transform for Pad {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut padded = out.loan(input.header())?;
        let shape = input.body.shape();
        if let Some(after) = &self.after {
            for (dim, length) in shape.iter().enumerate() {
                padded.set_len(dim, self.before[dim] + length + after[dim])?;
            }
        }
        fill(padded.bytes_mut(), &self.value);
        let whole = ElementView::whole(&padded.shape());
        let sides = shape.iter().zip(self.before).enumerate();
        let inner = sides.fold(whole, |view, (dim, (length, before))| view.part(dim, before, *length, 1));
        view::put(&input.body, &mut padded, &inner)?;
        out.send(padded);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_must_be_one_of_the_element_type() {
        for (dtype, value, expected) in [
            (DType::U8, 255.0, Some(&[255][..])),
            (DType::U8, 256.0, None),
            (DType::U8, -1.0, None),
            (DType::U8, 0.5, None),
            (DType::I8, -128.0, Some(&[0x80])),
            (DType::I32, f64::NAN, None),
            (DType::I32, f64::INFINITY, None),
            (DType::I64, -9_223_372_036_854_775_808.0, Some(&[0, 0, 0, 0, 0, 0, 0, 0x80])),
            (DType::U64, 18_446_744_073_709_551_616.0, None),
            (DType::U16, -0.0, Some(&[0, 0])),
            // numpy.float32(0.1).tobytes(), and so on.
            (DType::F32, 0.1, Some(&[0xcd, 0xcc, 0xcc, 0x3d])),
            (DType::F32, f64::NEG_INFINITY, Some(&[0, 0, 0x80, 0xff])),
            (DType::F32, 1e39, None),
            (DType::F16, 0.1, Some(&[0x66, 0x2e])),
            (DType::F16, 70_000.0, None),
            (DType::F64, 1e300, Some(&[0x9c, 0x75, 0x00, 0x88, 0x3c, 0xe4, 0x37, 0x7e])),
        ] {
            let expected = expected.map(|bytes| {
                let bytes = bytes.iter().copied();
                if cfg!(target_endian = "big") { bytes.rev().collect() } else { bytes.collect::<ElementBytes>() }
            });
            assert_eq!(element(dtype, FillValue::Float(value)), expected, "{value} as {dtype}");
        }
        let bf16 = element(DType::BF16, FillValue::Signed(-2)).unwrap();
        assert_eq!(bf16[..], bf16::from_f32(-2.0).to_ne_bytes());
        for (text, expected) in [
            ("9007199254740993", 9_007_199_254_740_993_i64),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
            ("1e3", 1000),
        ] {
            let value = serde_json::from_str(text).unwrap();
            assert_eq!(element(DType::I64, value).unwrap()[..], expected.to_ne_bytes(), "{text}");
        }
        assert_eq!(element(DType::U64, serde_json::from_str("18446744073709551615").unwrap()).unwrap()[..], [0xFF; 8]);
    }

    #[test]
    fn a_shape_is_enlarged_or_filled() {
        for (text, spec, expected) in [
            (r#"{"to":[16,80]}"#, "f32[<=16,80]", "f32[16,80]"),
            (r#"{"to":[16,80]}"#, "f32[3,4]", "f32[16,80]"),
            (r#"{"before":[1,0],"after":[1,2]}"#, "f32[3,4]", "f32[5,6]"),
            (r#"{"before":[1,0]}"#, "f32[<=3,4]", "f32[≤4,4]"),
            (r#"{"after":[18446744073709551615]}"#, "u8[3]", "u8[18446744073709551615]"),
            (r#"{"to":[16]}"#, "f32[<=17]", "`to[0]` must be at least 17 for f32[≤17], got 16"),
            (r#"{"to":[16,1]}"#, "f32[16]", "expected one number per dim of f32[16], found 2"),
            (r#"{"after":[]}"#, "f32[16]", "found 0"),
            (r#"{"to":[16],"value":-1}"#, "u8[16]", "must be a value of u8, got -1"),
            (r#"{"to":[0]}"#, "f32[2]", "a length must be at least 1, got 0"),
            (r#"{"to":[2],"after":[1]}"#, "f32[2]", "excludes"),
            (r#"{"value":2}"#, "f32[2]", "expected `to`, `before` or `after`, found none"),
        ] {
            let (config, spec): (PadConfig, PortSpec) = (serde_json::from_str(text).unwrap(), spec.parse().unwrap());
            let mut errors = PlanErrors::default();
            config.check(&mut errors);
            let shape = config.planned(&spec, &mut errors);
            match errors.into_result(()) {
                Ok(()) => assert_eq!(PortSpec::new(spec.dtype, shape.unwrap()).to_string(), expected),
                Err(errors) => assert!(format!("{errors:?}").contains(expected), "{text}: {errors:?}"),
            }
        }
    }
}
