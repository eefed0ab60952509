//! Numbers that a formula reads by a name, as it reads inputs.

use schemars::JsonSchema;
use serde::Deserialize;

/// A constant input of a formula.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or a list of numbers")]
pub enum FormulaConstant {
    /// The same number for each element.
    Number(f64),
    /// A number for each element of the last dim.
    List(Vec<f64>),
}
