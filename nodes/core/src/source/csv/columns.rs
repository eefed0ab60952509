//! The columns of a table: which are read, as which type, and on which output.

use crate::format::field::{Field, FieldPort};
use limen::message::{DType, Label};
use schemars::JsonSchema;
use serde::Deserialize;

/// The output of columns without a type of their own.
pub(super) const ROW: &str = "row";

/// Name or index of a column.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected the name of a column, or the number of a column from 0")]
pub enum ColumnName {
    /// Name of the column in the first line.
    Name(String),
    /// Index of the column, from 0.
    Number(u32),
}

/// A column to read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected a column such as `time`, `0` or `{ name: time, type: i64 }`"
)]
pub enum Column {
    /// Name or index (from 0) of a column in the output `row`.
    Plain(ColumnName),
    /// Column with a separate type and output.
    Typed {
        /// Name or index (from 0) of the column.
        name: ColumnName,
        /// Element type, such as `i64` for timestamps in nanoseconds.
        #[serde(rename = "type")]
        dtype: DType,
        /// Name of the output. Columns of the same type may share an output. Default: the name of
        /// the column.
        to: Option<String>,
    },
}

impl Column {
    pub(super) fn name(&self) -> &ColumnName {
        match self {
            Column::Plain(name) | Column::Typed { name, .. } => name,
        }
    }
}

/// A column that is read.
#[derive(Debug, Clone)]
pub(super) struct Selected {
    /// Its number in the file.
    pub(super) at: usize,
    /// Its name, or its number if the file has no names, for messages.
    pub(super) name: String,
    pub(super) label: Label,
    /// The number of the config's list, if there is one.
    pub(super) listed: Option<usize>,
    /// The type and the output that the config gives it.
    pub(super) typed: Option<(DType, Option<String>)>,
}

/// Returns the name and the unit of a column: `ax (m/s²)`.
pub(super) fn label(column: &str) -> Label {
    let parts = column.strip_suffix(')').and_then(|column| column.split_once('('));
    let (name, unit) = parts.unwrap_or((column, ""));
    Label::of(name.trim(), unit.trim())
}

impl Selected {
    fn dtype(&self, row: DType) -> DType {
        self.typed.as_ref().map_or(row, |(dtype, _)| *dtype)
    }

    /// Returns the name of its output.
    fn port(&self) -> &str {
        match &self.typed {
            None => ROW,
            Some((_, Some(to))) => to,
            Some((_, None)) if !self.label.name().is_empty() => self.label.name(),
            Some((_, None)) => &self.name,
        }
    }

    /// Returns the column as a field of a record.
    pub(super) fn field(&self, row: DType) -> Field {
        Field {
            name: self.name.clone(),
            dtype: self.dtype(row),
            repeat: None,
            to: None,
            unit: None,
            offset: None,
            endian: None,
            path: None,
            column: None,
        }
    }
}

/// Returns the outputs of columns. `row` is the type of the plain ones. The output `row` and one
/// that columns share are vectors, another is a scalar.
///
/// # Errors
/// The number of a column, the key of its config, what is wrong, and the way out.
pub(super) fn ports(columns: &[Selected], row: DType) -> Result<Vec<FieldPort>, (usize, &'static str, String, String)> {
    let mut ports = Vec::<FieldPort>::new();
    for (i, column) in columns.iter().enumerate() {
        let (name, dtype) = (column.port(), column.dtype(row));
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || !name.chars().all(is_name) {
            let help = "add `to:` with letters, digits, `_` and `-`, such as `to: time`";
            return Err((i, "to", format!("`{name}` is not a valid output name"), help.into()));
        }
        match ports.iter_mut().find(|port| port.name == name) {
            None => {
                let length = (name == ROW).then_some(1);
                let labels = if name == ROW || column.typed.is_none() || !column.label.unit().is_empty() {
                    vec![column.label.clone()]
                } else {
                    Vec::new()
                };
                ports.push(FieldPort { name: name.into(), dtype, length, fields: vec![i], labels });
            }
            Some(port) if port.dtype != dtype => {
                let message =
                    format!("type mismatch: column `{}` is {dtype}, output `{name}` is {}", column.name, port.dtype);
                let help = format!("write `type: {}`, or another `to`", port.dtype);
                return Err((i, "type", message, help));
            }
            Some(port) => {
                port.length = Some(port.length.unwrap_or(1) + 1);
                port.fields.push(i);
            }
        }
    }
    for port in ports.iter_mut().filter(|port| port.length.is_some()) {
        port.labels = port.fields.iter().map(|i| columns[*i].label.clone()).collect();
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_share_the_output_that_they_name() {
        let column = |name: &str, typed: Option<(DType, Option<&str>)>| Selected {
            at: 0,
            name: name.into(),
            label: label(name),
            listed: None,
            typed: typed.map(|(dtype, to)| (dtype, to.map(String::from))),
        };
        let described = |columns: &[Selected]| match ports(columns, DType::F32) {
            Ok(ports) => {
                ports.iter().map(|port| format!("{} {}", port.name, port.spec())).collect::<Vec<_>>().join(", ")
            }
            Err((i, key, message, _)) => format!("{i}.{key}: {message}"),
        };
        let (i64, f64) = (DType::I64, DType::F64);
        for (columns, expected) in [
            (vec![column("x", None)], "row f32[1]"),
            (vec![column("t (ns)", Some((i64, None))), column("x", None), column("y", None)], "t i64[], row f32[2]"),
            (vec![column("#t [ns]", Some((i64, Some("t")))), column("x", None)], "t i64[], row f32[1]"),
            (vec![column("lat", Some((f64, Some("at")))), column("lon", Some((f64, Some("at"))))], "at f64[2]"),
            (vec![column("t", Some((f64, Some("row"))))], "row f64[1]"),
            (vec![column("#t", Some((i64, None)))], "0.to: `#t` is not a valid output name"),
            (
                vec![column("x", None), column("t", Some((i64, Some("row"))))],
                "1.type: type mismatch: column `t` is i64, output `row` is f32",
            ),
        ] {
            assert_eq!(described(&columns), expected);
        }
    }
}
