//! Parsing of specs: `u8[480,640,3]`, `f32[<=300,6]`, `u64`.

use super::{DType, Dim, MAX_RANK, PortSpec};
use crate::base::error::listed;
use std::str::FromStr;
use strum::VariantNames;

impl FromStr for PortSpec {
    type Err = String;

    /// Parses an element type and the shape of one message. A dim is a length, or `<=` and the
    /// greatest one.
    ///
    /// ```
    /// use limen::message::{DType, Dim, PortSpec};
    /// let boxes: PortSpec = "f32[<=300,6]".parse().unwrap();
    /// assert_eq!(boxes, PortSpec::new(DType::F32, [Dim::AtMost(300), Dim::Fixed(6)]));
    /// assert_eq!("u64".parse(), Ok(PortSpec::fixed(DType::U64, [])));
    /// ```
    ///
    /// # Errors
    /// Describes the part that is not understood.
    fn from_str(text: &str) -> Result<PortSpec, String> {
        let (name, dims) = match text.trim().split_once('[') {
            None => (text.trim(), ""),
            Some((name, rest)) => match rest.strip_suffix(']') {
                Some(dims) => (name.trim_end(), dims),
                None => return Err(format!("expected `]` at the end of `{text}`")),
            },
        };
        let dtype = name.parse().map_err(|_| {
            format!("`{text}`: unknown element type `{name}`, expected one of {}", listed(DType::VARIANTS))
        })?;
        let mut shape = Vec::new();
        for dim in dims.split(',').map(str::trim).filter(|_| !dims.trim().is_empty()) {
            let most = dim.strip_prefix("<=").or_else(|| dim.strip_prefix('≤'));
            match (most.unwrap_or(dim).trim().parse::<usize>(), most) {
                (Ok(n), None) if n > 0 => shape.push(Dim::Fixed(n)),
                (Ok(n), Some(_)) if n > 0 => shape.push(Dim::AtMost(n)),
                _ => {
                    return Err(format!("`{text}`: expected a length such as `480` or `<=300`, found `{dim}`"));
                }
            }
        }
        if shape.len() > MAX_RANK {
            return Err(format!("`{text}` must have at most {MAX_RANK} dims, got {}", shape.len()));
        }
        Ok(PortSpec::new(dtype, shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_specs_parse_and_malformed_ones_are_refused() {
        for text in ["u8[480,640,3]", "f32[≤300,6]", "bf16[1]"] {
            assert_eq!(text.parse::<PortSpec>().unwrap().to_string(), text);
        }
        for text in ["", "u9[1]", "u8[1", "u8[0]", "u8[-1]", "u8[<=0]", "u8[a]", "u8[1,,2]", "f32[1,1,1,1,1,1,1]"] {
            assert!(text.parse::<PortSpec>().is_err(), "{text:?}");
        }
    }
}
