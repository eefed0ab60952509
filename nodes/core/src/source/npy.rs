//! Arrays from NumPy `.npy` files.

use crate::file::input_file::{self, FileProblem};
use crate::pace::Pace;
use limen::files::InputFile;
use limen::message::{DType, MAX_RANK, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Source};
use limen::unit::Rate;
use limen::{Folders, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

/// Reads an array from a NumPy `.npy` file and sends one item of the first dim per message. `value`
/// has the element type of the array and the shape of an item. Bools become `u8`: 0 or 1.
///
/// The type and shape are known during planning. If the file is truncated, the node sends the
/// complete items, then one call fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct NpySourceConfig {
    /// Path of the file, relative to the graph's folder.
    pub path: String,
    /// Items per second, such as `100Hz`. The scheduled time of item `n` is `n` periods after the
    /// first item. The origin of an item is the item's scheduled time, even if the item is late. By
    /// default, the node sends items as fast as the graph accepts items.
    pub rate: Option<Rate>,
    /// Number of passes over the file, at least 1. Default: 1.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

/// Reading an item of this size takes tens of microseconds, which makes the node heavy.
const HEAVY_BYTES: usize = 64 << 10;

/// The header of a file.
#[derive(Debug, PartialEq)]
struct ArrayHeader {
    dtype: DType,
    /// The number of items.
    items: u64,
    /// The shape of one item.
    shape: Vec<usize>,
    /// Bytes of an item.
    size: usize,
    /// Byte offset of the first item.
    start: u64,
}

impl ArrayHeader {
    /// Reads a header.
    ///
    /// # Errors
    /// What is wrong with it, and how to save the array instead.
    fn read(from: &mut impl Read) -> Result<ArrayHeader, FileProblem> {
        let again = |array: &str| format!("save the array again: `numpy.save(file, {array})`");
        let other = |message: String| (message, again("numpy.ascontiguousarray(array)"));
        let limen_npy::NpyHeader { element, is_fortran, shape, start } =
            limen_npy::NpyHeader::read(from).map_err(|error| match error {
                limen_npy::HeaderError::Fields => {
                    (error.to_string(), "save each field: `numpy.save(file, array['NAME'])`".into())
                }
                _ => other(error.to_string()),
            })?;
        let Some(dtype) = element.number().and_then(|number| number.parse::<DType>().ok()) else {
            let is_complex = element.to_string().get(1..2) == Some("c");
            let parts = if is_complex { "numpy.stack([array.real, array.imag], -1)" } else { "array.astype('<f8')" };
            return Err((format!("expected elements of a type such as <f4, found {element}"), again(parts)));
        };
        if element.is_big_endian && dtype.size() > 1 {
            let little = element.to_string().replace('>', "<");
            let help = again(&format!("array.astype('{little}')"));
            return Err((format!("expected little-endian elements, found {element}"), help));
        }
        let Some((items, shape)) = shape.split_first() else {
            return Err(("expected at least one dim, found a single value".into(), again("array.reshape(1)")));
        };
        if is_fortran && !shape.is_empty() {
            return Err(other("expected C order, found Fortran order".into()));
        }
        if shape.len() > MAX_RANK {
            let message = format!("an item must have at most {MAX_RANK} dims, got {}", shape.len());
            return Err((message, again("array.reshape(len(array), -1)")));
        }
        if shape.contains(&0) {
            let message = format!("an item must have at least one element, got the shape {shape:?}");
            return Err((message, "write the path of an array with elements".into()));
        }
        let too_large = || {
            let message = format!("an item must fit into memory, got the shape {shape:?}");
            (message, "write the path of an array with smaller items".to_string())
        };
        let shape: Vec<usize> =
            shape.iter().map(|n| usize::try_from(*n).map_err(|_| too_large())).collect::<Result<_, _>>()?;
        let size = PortSpec::fixed(dtype, shape.iter().copied()).max_bytes();
        let size = size.filter(|size| isize::try_from(*size).is_ok()).ok_or_else(too_large)?;
        Ok(ArrayHeader { dtype, items: *items, shape, size, start: start as u64 })
    }
}

/// Opens a file and reads its header.
fn open(
    config: &NpySourceConfig,
    folders: &Folders,
) -> Result<(PathBuf, BufReader<InputFile>, ArrayHeader), FileProblem> {
    let file = input_file::open(&config.path, folders)?;
    let path = file.path().to_path_buf();
    let problem = |(message, help): FileProblem| (format!("`{}`: {message}", path.display()), help);
    let length = file.size();
    let mut file = BufReader::with_capacity(64 << 10, file);
    let header = ArrayHeader::read(&mut file).map_err(problem)?;
    // Memory for items is planned from the header, so require that the file holds at least one.
    if header.items > 0 && length.saturating_sub(header.start) < header.size as u64 {
        let message = format!("expected at least {} bytes for one item, found a file of {length} bytes", header.size);
        return Err(problem((message, "write the path of a file that is complete".into())));
    }
    Ok((path, file, header))
}

/// Runs `kind: npy`; [`NpySourceConfig`] says what it does.
#[derive(Debug)]
pub struct NpySource {
    path: PathBuf,
    file: BufReader<InputFile>,
    header: ArrayHeader,
    pace: Pace,
    passes: u32,
    /// Items sent in this pass.
    at: u64,
    unseen: Vec<u8>,
}

impl NpySource {
    fn is_done(&self) -> bool {
        self.passes == 0 || self.header.items == 0
    }

    /// Reads an item and advances to the next. An item that cannot be read ends the stream.
    fn read(&mut self, into: &mut [u8]) -> Result<(), NodeError> {
        if let Err(error) = self.file.read_exact(into) {
            self.passes = 0;
            if error.kind() != std::io::ErrorKind::UnexpectedEof {
                return Err(NodeError::file(&self.path, error));
            }
            let why = format!(
                "expected {} items as in the header, found {}: the file is truncated",
                self.header.items, self.at
            );
            return Err(NodeError::input(self.path.display().to_string(), why));
        }
        self.at += 1;
        if self.at == self.header.items {
            (self.at, self.passes) = (0, self.passes - 1);
            self.file.seek(SeekFrom::Start(self.header.start)).map_err(|e| NodeError::file(&self.path, e))?;
        }
        Ok(())
    }
}

impl Node for NpySource {
    type Config = NpySourceConfig;

    fn ports(config: &NpySourceConfig, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "`repeat` must be at least 1, got 0").help("write 1 or more");
        }
        let mut ports = Pace::declare(config.rate, Ports::new());
        match open(config, cx.folders) {
            Ok((_, _, header)) => {
                let cost = if header.size >= HEAVY_BYTES { Cost::Heavy } else { Cost::Medium };
                let total = header.items.saturating_mul(config.repeat.into());
                ports = ports.output("value", PortSpec::fixed(header.dtype, header.shape)).cost(cost).total(total);
            }
            Err((message, help)) => {
                errors.at("path", message).help(help);
            }
        }
        errors.into_result(ports)
    }

    fn build(config: NpySourceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let opened = open(&config, cx.folders());
        let (path, file, header) = opened.map_err(|(message, _)| NodeError::input(&*config.path, message))?;
        // The file may have been replaced since planning.
        let planned = cx.outputs().first().and_then(|(_, spec)| spec.clone());
        let found = PortSpec::fixed(header.dtype, header.shape.iter().copied());
        if let Some(planned) = planned.filter(|planned| *planned != found) {
            return Err(NodeError::input(
                &*config.path,
                format!("expected items {planned} as planned, found {found}: restart the graph"),
            ));
        }
        let pace = Pace::new(config.rate);
        Ok(NpySource { path, file, header, pace, passes: config.repeat, at: 0, unseen: Vec::new() })
    }
}

impl Source for NpySource {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.is_done() {
            return Ok(Next::Done);
        }
        let origin = match self.pace.begin(out.now(), || out.clock()) {
            Ok(origin) => origin,
            Err(early) => return Ok(early),
        };
        if out.is_connected() {
            let header = out.header(origin);
            let mut item = out.loan(&header)?;
            self.read(item.bytes_mut())?;
            out.send(item);
        } else {
            let mut unseen = std::mem::take(&mut self.unseen);
            unseen.resize(self.header.size, 0);
            let read = self.read(&mut unseen);
            self.unseen = unseen;
            read?;
        }
        if self.at == 0 {
            out.begin_segment();
        }
        Ok(if self.is_done() { Next::Done } else { self.pace.then(out.now()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the beginning of a file, as NumPy writes it.
    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend_from_slice(&[version, 0]);
        let length = (text.len() as u32).to_le_bytes();
        bytes.extend_from_slice(if version == 1 { &length[..2] } else { &length });
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    fn dict(kind: &str, order: &str, shape: &str) -> String {
        format!("{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}   \n")
    }

    fn read(bytes: &[u8]) -> String {
        match ArrayHeader::read(&mut &bytes[..]) {
            Ok(h) => format!("{} × {} from {}", h.items, PortSpec::fixed(h.dtype, h.shape), h.start),
            Err((message, help)) => format!("{message}: {help}"),
        }
    }

    #[test]
    fn type_and_shape_are_read_from_the_header() {
        for (kind, shape, expected) in [
            ("'<f4'", "(10, 3)", "10 × f32[3] from"),
            ("'<f2'", "(10,)", "10 × f16[] from"),
            ("'|u1'", "(2, 480, 640, 3)", "2 × u8[480,640,3] from"),
            ("'|b1'", "(1, 1)", "1 × u8[1] from"),
            ("'<i8'", "(0, 4)", "0 × i64[4] from"),
            ("'<u2'", "(18446744073709551,)", "18446744073709551 × u16[] from"),
            ("'<f4'", "()", "single value"),
            (
                "'>f4'",
                "(10, 3)",
                "little-endian elements, found >f4: save the array again: `numpy.save(file, array.astype('<f4'))`",
            ),
            ("'>i8'", "(10, 3)", "array.astype('<i8')"),
            ("'<c8'", "(10, 3)", "numpy.stack([array.real, array.imag], -1)"),
            ("'<f16'", "(10, 3)", "array.astype('<f8')"),
            ("'|O'", "(10, 3)", "found |O"),
            ("[('a', '<f4'), ('b', '<i4')]", "(10,)", "found elements with fields: save each field"),
            ("'<f4'", "(10, 0)", "at least one element"),
            ("'<f4'", "(1, 1, 1, 1, 1, 1, 1, 1)", "at most 6 dims, got 7"),
            ("'<f4'", "(-1, 3)", "a length must be at least 0"),
            ("'<f4'", "(2, 3", "expected a number at byte 57"),
            ("'<f4'", "(1, 4611686018427387904, 4)", "must fit into memory"),
            ("'<f4'", "(1, 9223372036854775807)", "must fit into memory"),
            ("'<f4'", "(1, 18446744073709551615, 18446744073709551615)", "must fit into memory"),
            ("'<f8'", "(1, 99999999, 99999999)", "1 × f64[99999999,99999999] from"),
        ] {
            let found = read(&file(1, &dict(kind, "False", shape)));
            assert!(found.contains(expected), "{kind} {shape}: {found}");
        }
        assert!(read(&file(1, &dict("'<f4'", "True", "(10, 3)"))).contains("Fortran order"));
        assert!(read(&file(1, &dict("'<f4'", "True", "(10,)"))).starts_with("10 × f32[]"));
        assert!(read(&file(3, &dict("'<f4'", "False", "(10, 3)"))).starts_with("10 × f32[3]"));
    }
}
