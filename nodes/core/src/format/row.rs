//! Numbers in rows of text, as CSV files have them.

use super::field::{Field, overlaps};
use super::record::{Fault, Record, Value};
use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use limen::node::PlanErrors;

/// The numbers of a row.
#[derive(Debug)]
pub struct Row {
    /// The columns that are read, in their order, each with its field.
    columns: Vec<(usize, usize)>,
    reader: Reader,
    /// The text of a column.
    text: Vec<u8>,
}

/// The most columns of a row.
pub const MOST: usize = 1 << 16;

/// The most bytes that a column with a number may have.
const LONGEST: usize = 128;

/// Returns the first column of each field.
pub fn columns(fields: &[Field]) -> Vec<usize> {
    let mut end = 0usize;
    let begin = |field: &Field| {
        let begin = field.column.unwrap_or(end);
        end = begin.saturating_add(field.count());
        begin
    };
    fields.iter().map(begin).collect()
}

/// Returns the character between columns, and reports one that cannot be.
pub fn delimiter(given: Option<char>, errors: &mut PlanErrors) -> u8 {
    let Some(given) = given else { return b',' };
    match u8::try_from(given) {
        Ok(byte)
            if byte.is_ascii()
                && !byte.is_ascii_alphanumeric()
                && !matches!(byte, b'\r' | b'\n' | b'"' | b'.' | b'-' | b'+') =>
        {
            byte
        }
        _ => {
            let message = format!("expected an ASCII character that is not part of a number, found {given:?}");
            errors.at("delimiter", message).help("write an ASCII character such as `,`, `;` or `\"\\t\"`");
            b','
        }
    }
}

/// Reports fields that have no column of their own, or a column beyond what a message can have.
pub fn check(fields: &[Field], errors: &mut PlanErrors) {
    for (i, field) in fields.iter().enumerate() {
        field.allow(i, &["column"], "csv", errors);
    }
    let ranges: Vec<(usize, usize, usize)> = columns(fields)
        .into_iter()
        .zip(fields)
        .enumerate()
        .map(|(at, (begin, field))| (begin, begin.saturating_add(field.count()), at))
        .collect();
    for (_, end, at) in ranges.iter().filter(|(_, end, _)| *end > MOST) {
        let message = format!("the last column of `{}` must be below {MOST}, got {}", fields[*at].name, end - 1);
        errors.at(format!("fields[{at}].name"), message).help("write a lower `column` or `repeat`");
    }
    for (one, other, (begin, _)) in overlaps(ranges) {
        let (one, name) = (&fields[one].name, &fields[other].name);
        let message = format!("column {begin} belongs to both `{one}` and `{name}`");
        let help = format!("write a `column` of `{name}` that `{one}` does not use");
        errors.at(format!("fields[{other}].name"), message).help(help);
    }
}

impl Row {
    /// Creates a reader of rows with these fields.
    pub fn new(fields: &[Field], delimiter: u8) -> Row {
        let columns = columns(fields).into_iter().zip(fields).enumerate();
        let each =
            |(at, (begin, field)): (usize, (usize, &Field))| (begin..begin + field.count()).map(move |of| (of, at));
        let mut columns: Vec<(usize, usize)> = columns.flat_map(each).collect();
        columns.sort_unstable();
        let reader = ReaderBuilder::new().delimiter(delimiter).build();
        Row { columns, reader, text: vec![0; LONGEST] }
    }

    /// Reads a row.
    pub fn read(&mut self, message: &[u8], record: &mut Record) -> Result<(), Fault> {
        record.clear();
        self.reader.reset();
        let Row { columns, reader, text } = self;
        let mut wanted = columns.iter().peekable();
        let (mut rest, mut column, mut written) = (message, 0, 0);
        loop {
            let (result, read, more) = reader.read_field(rest, &mut text[written..]);
            rest = &rest[read..];
            written += more;
            match result {
                // The end of the message is the end of the row, which an empty input says.
                ReadFieldResult::InputEmpty => {}
                // Text that no field names may be of any length.
                ReadFieldResult::OutputFull if wanted.peek().is_none_or(|(of, _)| *of != column) => written = 0,
                ReadFieldResult::OutputFull => {
                    return Err(Fault::Syntax(format!("column {column} must have at most {LONGEST} bytes, got more")));
                }
                ReadFieldResult::Field { record_end } => {
                    if let Some((_, field)) = wanted.next_if(|(of, _)| *of == column) {
                        let value = parse(&text[..written]).ok_or(Fault::NoNumber { field: *field })?;
                        record.put(*field, value)?;
                    }
                    (column, written) = (column + 1, 0);
                    if record_end {
                        break;
                    }
                }
                ReadFieldResult::End => break,
            }
        }
        // An empty message is a row of one empty column.
        if message.is_empty()
            && let [(0, field)] = columns[..]
        {
            record.put(field, Value::Missing)?;
        }
        if rest.iter().any(|byte| !matches!(byte, b'\r' | b'\n')) {
            return Err(Fault::Syntax("expected one row, found more".into()));
        }
        record.finish()
    }
}

/// The words that mean a missing value to pandas, and therefore in the files of many programs;
/// `nan` is a number of Rust, too.
const MISSING: [&str; 15] = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "None",
    "n/a", "null",
];

/// Returns the number of a column; `None` for other text and for a number beyond the range of
/// `f64`.
pub(crate) fn parse(text: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(text).ok()?.trim();
    // Fractions have a `.`, an exponent or letters, which `i128` refuses.
    if let Ok(whole) = text.parse() {
        return Some(Value::Whole(whole));
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_nan() => Some(Value::Missing),
        Ok(value) if value.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit()) => None,
        Ok(value) => Some(Value::Fraction(value)),
        Err(_) => MISSING.contains(&text).then_some(Value::Missing),
    }
}
