//! An open file and the columns that are read from it.

use super::CsvSourceConfig;
use super::columns::{self, Column, ColumnName, ROW, Selected};
use super::rows::{CsvRows, RowRead};
use crate::format::field::{Field, FieldPort};
use crate::format::precision::keeps;
use crate::format::record::{Record, Value};
use crate::format::row;
use limen::Folders;
use limen::message::{DType, Label};
use limen::node::{NodeError, NodeErrorKind, PlanErrors};
use std::io;

/// Upper bound of `max_bytes`.
pub(super) const LONGEST_ROW: u64 = 1 << 30;

/// How many rows decide the type of the output `row`.
const SURVEYED: usize = 1000;

/// The bytes of a field that a message shows.
const SHOWN: usize = 40;

/// What planning knows of a table.
#[derive(Debug, Default)]
pub(super) struct PlannedTable {
    pub(super) ports: Vec<FieldPort>,
    /// What the plan should tell.
    pub(super) notes: Vec<String>,
}

/// An open file and the columns to read.
#[derive(Debug)]
pub(super) struct CsvTable {
    /// The path as the config has it, for messages.
    path: String,
    reader: CsvRows,
    /// Where the first row begins.
    start: (u64, u64),
    /// The number of columns in the first line.
    width: usize,
    columns: Vec<Selected>,
    fields: Vec<Field>,
    record: Record,
    /// The type of columns without one of their own, if it is not the config's: numbers that it
    /// would round are errors.
    inferred: Option<DType>,
}

/// Whether a text is a number or a missing one.
fn is_number(text: &str) -> bool {
    row::parse(text.as_bytes()).is_some()
}

/// Whether a row has numbers and nothing else.
fn are_numbers(texts: &[String]) -> bool {
    let is_there = |text: &String| row::parse(text.as_bytes()) != Some(Value::Missing);
    texts.iter().all(|text| is_number(text)) && texts.iter().any(is_there)
}

impl CsvTable {
    /// Opens a file and finds the columns. `row` is the type of the output `row` if it was planned
    /// before.
    ///
    /// # Errors
    /// All problems with the file's first line and the config.
    pub(super) fn open(
        config: &CsvSourceConfig,
        folders: &Folders,
        row: Option<DType>,
    ) -> Result<(CsvTable, PlannedTable), PlanErrors> {
        let mut errors = PlanErrors::default();
        let mut planned = PlannedTable::default();
        let file = match folders.open(&config.path) {
            Ok(file) => file,
            Err(error) => {
                errors.at("path", error.to_string()).help(error.help());
                return Err(errors);
            }
        };
        let shown = file.path().display().to_string();
        let max = config.max_bytes.0;
        let mut reader = CsvRows::new(file, usize::try_from(max.clamp(1, LONGEST_ROW)).unwrap_or_default());
        let mut start = reader.place();
        let width = match reader.read(usize::MAX) {
            Ok(RowRead::Row(width)) => width,
            Ok(RowRead::End) => {
                let message = format!("expected a line of column names or numbers in `{shown}`, found none");
                errors.at("path", message).help("write the path of a file with rows");
                return Err(errors);
            }
            Ok(RowRead::TooLong(_) | RowRead::NotYet) => {
                let message =
                    format!("the first line of `{shown}` must be at most {max} bytes (`max_bytes`), got more");
                errors.at("max_bytes", message).help("write a larger `max_bytes`");
                return Err(errors);
            }
            Err(error) => {
                errors
                    .at("path", format!("`{shown}` cannot be read: {error}"))
                    .help("write the path of a file that can be read");
                return Err(errors);
            }
        };
        let first: Option<Vec<String>> =
            (0..width).map(|n| Some(str::from_utf8(reader.field(n)).ok()?.trim().to_string())).collect();
        let Some(first) = first else {
            let message = format!("the first line of `{shown}` must be UTF-8");
            errors.at("path", message).help(format!("convert `{shown}` to UTF-8"));
            return Err(errors);
        };
        if let (None, [name]) = (config.header, &first[..])
            && let Some(mark) = name.chars().find(|c| matches!(c, ';' | '\t'))
        {
            let name: String = name.escape_debug().take(SHOWN).collect();
            let message =
                format!("expected columns separated by commas in the first line of `{shown}`, found `{name}`");
            errors.at("path", message).help(format!(
                "separate the columns by commas, write `header: true` for a single column, or use `kind: file` and \
                 `kind: decode` with `format: csv, delimiter: \"{}\"`",
                mark.escape_debug()
            ));
            return Err(errors);
        }
        let has_names = config.header.unwrap_or_else(|| !are_numbers(&first));
        if has_names {
            start = reader.place();
        }
        if config.header.is_none() {
            let numbers: Vec<&String> = first.iter().filter(|text| !text.is_empty() && is_number(text)).collect();
            match numbers.first() {
                _ if !has_names => planned.notes.push(format!(
                    "the first row of `{}` is data, because all values are numbers: write `header: true` for names",
                    config.path
                )),
                Some(number) => planned.notes.push(format!(
                    "the first row of `{}` names the columns, including the number `{number}`: write `header: false` for data",
                    config.path
                )),
                None => {}
            }
        }
        let columns = selected(config, has_names.then_some(&first[..]), width, &mut errors);
        let mut table = CsvTable {
            path: config.path.clone(),
            reader,
            start,
            width,
            columns,
            fields: Vec::new(),
            record: Record::new(&[], &[]),
            inferred: config.dtype.is_none().then_some(row.unwrap_or(DType::F32)),
        };
        if let Err(error) = table.rewind() {
            errors.at("path", error.to_string()).help("write the path of a file that can be read");
        }
        if config.dtype.is_none() && row.is_none() && errors.messages().next().is_none() {
            table.survey(&mut planned, &mut errors);
        }
        let row = config.dtype.or(table.inferred).unwrap_or(DType::F32);
        match columns::ports(&table.columns, row) {
            Ok(ports) => planned.ports = ports,
            Err((i, key, message, help)) => {
                let at = table.columns[i].listed.map_or("columns".into(), |listed| format!("columns[{listed}].{key}"));
                errors.at(at, message).help(help);
            }
        }
        table.fields = table.columns.iter().map(|column| column.field(row)).collect();
        table.record = Record::new(&table.fields, &planned.ports);
        errors.into_result((table, planned))
    }

    /// Finds the type of the output `row`: `f32`, or `f64` if the first rows have a number with
    /// more digits than `f32` keeps.
    fn survey(&mut self, planned: &mut PlannedTable, errors: &mut PlanErrors) {
        for _ in 0..SURVEYED {
            match self.reader.read(self.width) {
                Ok(RowRead::Row(fields)) if fields == self.width => {}
                Ok(RowRead::Row(_) | RowRead::TooLong(_) | RowRead::NotYet) => continue,
                Ok(RowRead::End) | Err(_) => break,
            }
            for column in self.columns.iter().filter(|column| column.typed.is_none()) {
                let text = self.reader.field(column.at);
                let Some(value) = row::parse(text) else { continue };
                let (shown, name) = (String::from_utf8_lossy(text.trim_ascii()), &column.name);
                if !keeps(DType::F64, text, value) {
                    let at = column.listed.map_or("columns".into(), |listed| format!("columns[{listed}]"));
                    let message = format!("f64 cannot represent `{shown}` of the column `{name}` exactly");
                    errors.at(at, message).help(integer_help(name));
                    let _ = self.rewind();
                    return;
                }
                if self.inferred == Some(DType::F32) && !keeps(DType::F32, text, value) {
                    self.inferred = Some(DType::F64);
                    planned.notes.push(format!(
                        "`{ROW}` is f64, because f32 rounds `{shown}` of column `{name}`: write `type: f32` to allow rounding"
                    ));
                }
            }
        }
        let _ = self.rewind();
    }

    /// Goes back to the first row.
    pub(super) fn rewind(&mut self) -> Result<(), NodeError> {
        self.reader.rewind(self.start).map_err(|error| self.read_error(error))
    }

    /// Returns the numbers of an output in the row that was read last, in native byte order.
    pub(super) fn port(&self, port: usize) -> &[u8] {
        self.record.port(port)
    }

    /// Returns what tells the place of the first missing value in the row that was read last, if it
    /// has one.
    pub(super) fn missing(&self) -> Option<impl Fn() -> String> {
        let column = self.record.missing()?;
        Some(move || format!("{}:{}: column `{}`", self.path, self.reader.line, self.columns[column].name))
    }

    /// Reads the next row, and returns whether it was read to its end; `None` at the end of the
    /// file.
    pub(super) fn read(&mut self) -> Option<Result<bool, NodeError>> {
        let place = |line: u64| format!("{}:{line}", self.path);
        match self.reader.read(self.width) {
            Ok(RowRead::Row(fields)) if fields == self.width => Some(self.parse().map(|()| true)),
            Ok(RowRead::Row(fields)) => {
                let s = if self.width == 1 { "" } else { "s" };
                let why = format!("expected {} field{s} as in the first line, found {fields}", self.width);
                Some(Err(NodeError::input(place(self.reader.line), why)))
            }
            Ok(RowRead::TooLong(bytes)) => {
                let (what, bound) = (place(self.reader.line), self.reader.longest());
                Some(Err(NodeErrorKind::TooLarge { what, size: bytes, bound, key: "max_bytes" }.into()))
            }
            Ok(RowRead::NotYet) => Some(Ok(false)),
            Ok(RowRead::End) => None,
            Err(error) => Some(Err(self.read_error(error))),
        }
    }

    fn parse(&mut self) -> Result<(), NodeError> {
        self.record.clear();
        for (i, (column, field)) in self.columns.iter().zip(&self.fields).enumerate() {
            let text = self.reader.field(column.at);
            let value = row::parse(text);
            let is_kept = match (value, self.inferred) {
                (Some(value), Some(dtype)) if column.typed.is_none() => keeps(dtype, text, value),
                _ => true,
            };
            match value {
                Some(value) if is_kept && self.record.put(i, value).is_ok() => {}
                _ => return Err(self.refusal(column, field.dtype, value)),
            }
        }
        Ok(())
    }

    /// The error of a field that is not a number of its type.
    #[cold]
    fn refusal(&self, column: &Selected, dtype: DType, value: Option<Value>) -> NodeError {
        let text = self.reader.field(column.at);
        let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]);
        let why = match value {
            None => format!("expected a number, found `{text}`"),
            Some(Value::Missing) => {
                format!("{dtype} cannot represent the missing value `{text}`: write `type: f64`")
            }
            Some(_) if column.typed.is_some() => format!("expected {dtype}, found `{text}`"),
            Some(_) if dtype == DType::F32 && self.inferred.is_some() => {
                format!("f32 cannot represent `{text}` exactly: write `type: f64`, or `type: f32` to allow rounding")
            }
            Some(_) if self.inferred.is_some() => {
                format!("{dtype} cannot represent `{text}` exactly: {}", integer_help(&column.name))
            }
            Some(_) => format!("expected {dtype}, found `{text}`"),
        };
        NodeError::input(format!("{}:{}: column `{}`", self.path, self.reader.line, column.name), why)
    }

    fn read_error(&self, error: io::Error) -> NodeError {
        NodeError::file(self.reader.file.path(), error)
    }
}

/// The way out for a whole number that floating-point types round.
fn integer_help(name: &str) -> String {
    format!("write `{{ name: '{name}', type: i64, to: time }}` in `columns`")
}

/// Returns the columns that a config selects, and reports those that do not exist.
fn selected(
    config: &CsvSourceConfig,
    names: Option<&[String]>,
    width: usize,
    errors: &mut PlanErrors,
) -> Vec<Selected> {
    let one = |at: usize, listed: Option<usize>, typed| {
        let name = names.and_then(|names| names.get(at).cloned());
        let label = name.as_deref().map_or_else(|| Label::of("", ""), columns::label);
        Selected { at, name: name.unwrap_or_else(|| at.to_string()), label, listed, typed }
    };
    if config.columns.is_empty() {
        return (0..width).map(|at| one(at, None, None)).collect();
    }
    let mut columns = Vec::new();
    for (i, wanted) in config.columns.iter().enumerate() {
        let at = match (wanted.name(), names) {
            (ColumnName::Number(at), _) => Some(*at as usize).filter(|at| *at < width),
            (ColumnName::Name(name), Some(names)) => names.iter().position(|other| other == name),
            (ColumnName::Name(_), None) => None,
        };
        let typed = match wanted {
            Column::Plain(_) => None,
            Column::Typed { dtype, to, .. } => Some((*dtype, to.clone())),
        };
        match (at, wanted.name(), names) {
            (Some(at), _, _) => columns.push(one(at, Some(i), typed)),
            (None, ColumnName::Number(at), _) => {
                let message = format!("a column number must be 0 to {}, got {at}", width - 1);
                errors.at(format!("columns[{i}]"), message).help(format!("write a number from 0 to {}", width - 1));
            }
            (None, ColumnName::Name(name), Some(names)) => {
                let message = format!("unknown column `{name}`");
                errors.at(format!("columns[{i}]"), message).help(format!("write one of `{}`", names.join("`, `")));
            }
            (None, ColumnName::Name(name), None) => {
                let message = format!("expected a column number, found `{name}`: the first line of the file is data");
                let help = "write a number from 0, or `header: true` if the first line names the columns";
                errors.at(format!("columns[{i}]"), message).help(help);
            }
        }
    }
    columns
}
