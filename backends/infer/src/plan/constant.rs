//! Constant inputs of a model, as a graph file has them.

use crate::onnx::ConstantInput;
use serde::{Deserialize, Serialize};

/// A number, or a list of them, or of lists: `16000`, `[0.5, 0.5]`, `[[1, 0], [0, 1]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a list of numbers: `{ value: 16000 }`, `{ value: [0.5, 0.5] }`")]
pub enum ConstantConfig {
    /// Taken as 1 or 0.
    Flag(bool),
    /// The value of every element.
    Number(f64),
    /// The value of a variable or parameter, which may be a number.
    Text(String),
    /// Elements, or rows of them.
    List(Vec<ConstantConfig>),
}

impl ConstantConfig {
    /// Returns its shape and numbers.
    ///
    /// # Errors
    /// A text that is no number, an empty list, or rows of different shapes.
    pub(crate) fn constant(&self) -> Result<ConstantInput, String> {
        let one = |value: f64| Ok(ConstantInput { shape: Vec::new(), values: vec![value] });
        match self {
            ConstantConfig::Flag(flag) => one(f64::from(u8::from(*flag))),
            ConstantConfig::Number(number) => one(*number),
            ConstantConfig::Text(text) => match text.trim().parse() {
                Ok(number) => one(number),
                Err(_) => Err(format!("expected a number, found `{text}`")),
            },
            ConstantConfig::List(rows) => {
                let mut all = ConstantInput::default();
                for (at, row) in rows.iter().enumerate() {
                    let ConstantInput { shape, mut values } = row.constant()?;
                    if at > 0 && all.shape != shape {
                        return Err(format!(
                            "element {at} must have the shape {:?} of the other elements, got {shape:?}",
                            all.shape
                        ));
                    }
                    all.shape = shape;
                    all.values.append(&mut values);
                }
                if rows.is_empty() {
                    return Err("expected at least one element, found none".into());
                }
                all.shape.insert(0, rows.len());
                Ok(all)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_rows_have_their_shape() {
        for (json, shape, values) in [
            (json!(16000), &[][..], &[16000.0][..]),
            (json!("16000"), &[], &[16000.0]),
            (json!(true), &[], &[1.0]),
            (json!([0.5, 1]), &[2], &[0.5, 1.0]),
            (json!([[1, 0, 0], [0, 1, 0]]), &[2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
        ] {
            let found = serde_json::from_value::<ConstantConfig>(json.clone()).unwrap().constant();
            assert_eq!(found, Ok(ConstantInput { shape: shape.to_vec(), values: values.to_vec() }), "{json}");
        }
        for (json, why) in [
            (json!("fast"), "expected a number, found `fast`"),
            (json!([]), "expected at least one element"),
            (json!([[1], [1, 2]]), "element 1 must have the shape [1] of the other elements, got [2]"),
        ] {
            let error = serde_json::from_value::<ConstantConfig>(json.clone()).unwrap().constant().unwrap_err();
            assert!(error.contains(why), "{json}: {error}");
        }
    }
}
