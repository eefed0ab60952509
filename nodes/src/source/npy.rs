//! Arrays from NumPy `.npy` files.

use crate::file::input_file::{self, FileProblem};
use crate::pace::Pace;
use limen::files::InputFile;
use limen::message::{DType, MAX_RANK, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Source};
use limen::unit::Rate;
use limen::{Folders, Tensor};
use npyz::{Endianness, NpyHeader, Order, TypeChar};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

/// Reads an array from a NumPy `.npy` file, one item of its first dim per message: `value`, with the type of the array and the
/// shape of an item.
///
/// Type and shape are known while planning. From a truncated file the complete items are sent, then one call fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// The file, relative to the graph's folder.
    pub path: String,
    /// Items per second, such as `100Hz`: item `n` is due `n` periods after the first, and a late one keeps its due time as
    /// origin. By default items are sent as fast as the graph takes them.
    pub rate: Option<Rate>,
    /// How many times to read the file; 1 by default.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

/// Longest header in bytes. A header of an array of numbers needs a tenth of it; the rest is padding.
const MAX_HEADER: usize = 4 << 10;
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

/// Checks whether a header is safe to parse. The parser recurses and multiplies without overflow checks, so a hostile header
/// could end the process.
fn check_safe(text: &str) -> Result<(), String> {
    let mut depth = 0usize;
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > 4 {
            return Err("its header is nested too deeply for an array of numbers".into());
        }
    }
    // A product of numbers with 19 digits in total fits into 64 bits; one more digit belongs to the type.
    let digits = text.chars().filter(char::is_ascii_digit).count();
    if digits > 20 || text.to_ascii_lowercase().contains("0x") {
        return Err("its shape has more elements than any file holds".into());
    }
    Ok(())
}

impl ArrayHeader {
    fn read(from: &mut impl Read) -> Result<ArrayHeader, String> {
        let mut bytes = vec![0; 8];
        from.read_exact(&mut bytes).map_err(|_| "it is too short for a `.npy` file")?;
        if !bytes.starts_with(b"\x93NUMPY") {
            return Err("it is not a `.npy` file: it does not begin with `\\x93NUMPY`".into());
        }
        let prefix = if bytes[6] == 1 { 2 } else { 4 };
        let mut length = [0; 4];
        from.read_exact(&mut length[..prefix]).map_err(|_| "it ends within its header")?;
        bytes.extend_from_slice(&length[..prefix]);
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER {
            return Err(format!("it announces a header of {length} bytes; {MAX_HEADER} are enough for any array"));
        }
        let begin = bytes.len();
        bytes.resize(begin + length, 0);
        from.read_exact(&mut bytes[begin..]).map_err(|_| "it ends within its header")?;
        check_safe(&String::from_utf8_lossy(&bytes[begin..]))?;
        let header = NpyHeader::from_reader(&bytes[..]).map_err(|e| format!("its header cannot be read: {e}"))?;
        ArrayHeader::of(&header, bytes.len() as u64)
    }

    fn of(header: &NpyHeader, start: u64) -> Result<ArrayHeader, String> {
        let npyz::DType::Plain(kind) = header.dtype() else {
            return Err("its elements have fields; save each as a separate array".into());
        };
        let dtype = match (kind.type_char(), kind.size_field()) {
            (TypeChar::Float, 2) => DType::F16,
            (TypeChar::Float, 4) => DType::F32,
            (TypeChar::Float, 8) => DType::F64,
            (TypeChar::Int, 1) => DType::I8,
            (TypeChar::Int, 2) => DType::I16,
            (TypeChar::Int, 4) => DType::I32,
            (TypeChar::Int, 8) => DType::I64,
            (TypeChar::Uint | TypeChar::Bool, 1) => DType::U8,
            (TypeChar::Uint, 2) => DType::U16,
            (TypeChar::Uint, 4) => DType::U32,
            (TypeChar::Uint, 8) => DType::U64,
            _ => return Err(format!("its elements are {kind}; save it with `.astype('<f4')`")),
        };
        if kind.endianness() == Endianness::Big && dtype.size() > 1 {
            let text = format!("its elements are {kind}, in big-endian order; save it with `.astype('<f4')`");
            return Err(text);
        }
        let Some((items, shape)) = header.shape().split_first() else {
            return Err("it is a single value without a first dim; save it with `.reshape(1)`".into());
        };
        if header.order() == Order::Fortran && !shape.is_empty() {
            return Err("it is in Fortran order; save it with `numpy.ascontiguousarray`".into());
        }
        if shape.len() > MAX_RANK {
            return Err(format!("its items have {} dims, a tensor has at most {MAX_RANK}", shape.len()));
        }
        if shape.contains(&0) {
            return Err(format!("an item of shape {shape:?} has no elements"));
        }
        let too_large = || format!("an item of shape {shape:?} does not fit into memory");
        let shape: Vec<usize> =
            shape.iter().map(|n| usize::try_from(*n).map_err(|_| too_large())).collect::<Result<_, _>>()?;
        let size = PortSpec::fixed(dtype, shape.iter().copied()).max_bytes();
        let size = size.filter(|size| isize::try_from(*size).is_ok()).ok_or_else(too_large)?;
        Ok(ArrayHeader { dtype, items: *items, shape, size, start })
    }
}

/// Opens a file and reads its header.
fn open(config: &Config, folders: &Folders) -> Result<(PathBuf, BufReader<InputFile>, ArrayHeader), FileProblem> {
    let file = input_file::open(&config.path, folders)?;
    let path = file.path().to_path_buf();
    let help = "save the array again with `numpy.save`";
    let problem = |message: String| (format!("`{}`: {message}", path.display()), help);
    let length = file.size();
    let mut file = BufReader::with_capacity(64 << 10, file);
    let header = ArrayHeader::read(&mut file).map_err(problem)?;
    // Memory for items is planned from the header, so require that the file holds at least one.
    if header.items > 0 && length.saturating_sub(header.start) < header.size as u64 {
        let message = format!("an item has {} bytes, but the whole file has {length}", header.size);
        return Err(problem(message));
    }
    Ok((path, file, header))
}

/// The node.
#[derive(Debug)]
pub struct Npy {
    path: PathBuf,
    file: BufReader<InputFile>,
    header: ArrayHeader,
    pace: Pace,
    passes: u32,
    /// Items sent in this pass.
    at: u64,
    unseen: Vec<u8>,
}

impl Npy {
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
            let why = format!("the header announces {} items, but the file ends after {}", self.header.items, self.at);
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

impl Node for Npy {
    type Config = Config;

    fn ports(config: &Config, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "0 passes send nothing").help("write 1 or more");
        }
        let mut ports = Ports::new().rate(config.rate);
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

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let opened = open(&config, cx.folders());
        let (path, file, header) = opened.map_err(|(message, _)| NodeError::input(&*config.path, message))?;
        // The file may have been replaced since planning.
        let planned = cx.outputs().first().and_then(|(_, spec)| spec.clone());
        let found = PortSpec::fixed(header.dtype, header.shape.iter().copied());
        if planned.is_some_and(|planned| planned != found) {
            return Err(NodeError::input(
                &*config.path,
                format!("its items are {found}, but were different when the graph was planned"),
            ));
        }
        let pace = Pace::new(config.rate);
        Ok(Npy { path, file, header, pace, passes: config.repeat, at: 0, unseen: Vec::new() })
    }
}

impl Source for Npy {
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
            Err(message) => message,
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
            ("'>f4'", "(10, 3)", "big-endian"),
            ("'<c8'", "(10, 3)", "save it with `.astype('<f4')`"),
            ("'|O'", "(10, 3)", "its elements are |O"),
            ("[('a', '<f4'), ('b', '<i4')]", "(10,)", "have fields"),
            ("'<f4'", "(10, 0)", "has no elements"),
            ("'<f4'", "(1, 1, 1, 1, 1, 1, 1, 1)", "7 dims"),
            ("'<f4'", "(-1, 3)", "cannot be negative"),
            ("'<f4'", "(2, 3", "cannot be read"),
            ("'<f4'", "(1, 4611686018427387904, 4)", "more elements than any file holds"),
            ("'<f4'", "(1, 9223372036854775807)", "more elements than any file holds"),
            ("'<f4'", "(0xffffffffffffffff, 0xffffffffffffffff)", "more elements than any file holds"),
            ("'<f8'", "(1, 99999999, 99999999)", "1 × f64[99999999,99999999] from"),
        ] {
            let found = read(&file(1, &dict(kind, "False", shape)));
            assert!(found.contains(expected), "{kind} {shape}: {found}");
        }
        assert!(read(&file(1, &dict("'<f4'", "True", "(10, 3)"))).contains("Fortran order"));
        assert!(read(&file(1, &dict("'<f4'", "True", "(10,)"))).starts_with("10 × f32[]"));
        assert!(read(&file(3, &dict("'<f4'", "False", "(10, 3)"))).starts_with("10 × f32[3]"));
    }

    #[test]
    fn malformed_and_hostile_headers_are_refused() {
        let deep = "(".repeat(4_000);
        for (bytes, expected) in [
            (b"".to_vec(), "too short"),
            (b"\x93NUMPY".to_vec(), "too short"),
            (b"PK\x03\x04....".to_vec(), "not a `.npy` file"),
            (b"\x93NUMPY\x01\x00".to_vec(), "within its header"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "header of 4294967295 bytes"),
            (b"\x93NUMPY\x01\x00\x50\x00{'descr'".to_vec(), "within its header"),
            (file(1, &deep), "nested too deeply"),
            (file(9, &dict("'<f4'", "False", "(1,)")), "cannot be read"),
            (file(1, "{}"), "cannot be read"),
            (file(1, "\u{0}\u{1}"), "cannot be read"),
        ] {
            let found = read(&bytes);
            assert!(found.contains(expected), "{expected}: {found}");
        }
        let whole = file(1, &dict("'<f4'", "False", "(10, 3)"));
        for cut in 0..whole.len() {
            assert!(ArrayHeader::read(&mut &whole[..cut]).is_err());
        }
    }
}
