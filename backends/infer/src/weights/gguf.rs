//! GGUF files: metadata, and tensors by name.
//!
//! Elements in blocks of 4 or 8 bits are widened to `f32`, with the same numbers as
//! `gguf.quants.dequantize` of the Python package `gguf`.

use super::byte_reader::ByteReader;
use super::encoding::room;
use super::file::{FileTensor, TensorInfo};
use crate::array::Weights;
use crate::onnx::brief;
use limen::message::DType;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// The most dims of a tensor.
const MAX_DIMS: u32 = 4;

/// How deep lists of metadata may be in others.
const MAX_DEPTH: u8 = 4;

/// The longest text of metadata that is kept whole.
const MAX_TEXT: usize = 80;

/// The most bytes of metadata that are kept.
const MAX_METADATA: usize = 1 << 20;

/// The places of tensors are multiples of this, unless the metadata has another alignment.
const ALIGNMENT: u64 = 32;

/// The fewest bytes of an entry of metadata: the length of its key, its type and its value.
const LEAST_ENTRY: u64 = 8 + 4 + 1;

/// The fewest bytes of a tensor: the length of its name, the number of its dims, its type, its
/// place.
const LEAST_TENSOR: u64 = 8 + 4 + 4 + 8;

/// A type of elements: its name, how many elements are a block, and the bytes of a block.
struct BlockType {
    name: &'static str,
    elements: u64,
    bytes: u64,
}

impl BlockType {
    /// The type with this number in `ggml.h`.
    fn of(code: u32) -> Option<BlockType> {
        let (name, elements, bytes) = match code {
            0 => ("f32", 1, 4),
            1 => ("f16", 1, 2),
            2 => ("q4_0", 32, 18),
            3 => ("q4_1", 32, 20),
            6 => ("q5_0", 32, 22),
            7 => ("q5_1", 32, 24),
            8 => ("q8_0", 32, 34),
            9 => ("q8_1", 32, 36),
            10 => ("q2_k", 256, 84),
            11 => ("q3_k", 256, 110),
            12 => ("q4_k", 256, 144),
            13 => ("q5_k", 256, 176),
            14 => ("q6_k", 256, 210),
            15 => ("q8_k", 256, 292),
            16 => ("iq2_xxs", 256, 66),
            17 => ("iq2_xs", 256, 74),
            18 => ("iq3_xxs", 256, 98),
            19 => ("iq1_s", 256, 50),
            20 => ("iq4_nl", 32, 18),
            21 => ("iq3_s", 256, 110),
            22 => ("iq2_s", 256, 82),
            23 => ("iq4_xs", 256, 136),
            24 => ("i8", 1, 1),
            25 => ("i16", 1, 2),
            26 => ("i32", 1, 4),
            27 => ("i64", 1, 8),
            28 => ("f64", 1, 8),
            29 => ("iq1_m", 256, 56),
            30 => ("bf16", 1, 2),
            34 => ("tq1_0", 256, 54),
            35 => ("tq2_0", 256, 66),
            39 => ("mxfp4", 32, 17),
            40 => ("nvfp4", 64, 36),
            41 => ("q1_0", 128, 18),
            _ => return None,
        };
        Some(BlockType { name, elements, bytes })
    }
}

/// A tensor of the file.
struct GgufTensor {
    name: String,
    code: u32,
    /// The dims, the outermost first as in NumPy. The file has them the other way round.
    shape: Vec<u64>,
    /// The place of its blocks in the file.
    at: u64,
    /// The bytes of its blocks, if the type is known.
    bytes: Option<u64>,
}

impl GgufTensor {
    fn type_name(&self) -> Cow<'static, str> {
        BlockType::of(self.code).map_or_else(|| format!("type {}", self.code).into(), |block| block.name.into())
    }
}

/// A file whose header was read.
pub(crate) struct GgufFile<'a> {
    bytes: &'a [u8],
    metadata: BTreeMap<String, String>,
    tensors: Vec<GgufTensor>,
}

impl<'a> GgufFile<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// A message that continues "the file …".
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let mut from = ByteReader::new(bytes);
        let start = from.take(4)?;
        if start != b"GGUF" {
            return Err(format!("must begin with `GGUF`, got `{}`", start.escape_ascii()));
        }
        match from.u32()? {
            2 | 3 => {}
            version if matches!(version.swap_bytes(), 1..=3) => {
                return Err("is a big-endian GGUF file, expected little-endian: convert the file with \
                     `gguf-convert-endian FILE little` of the Python package `gguf`"
                    .into());
            }
            version => {
                let why = format!("must be a GGUF file of version 2 or 3, got {version}");
                return Err(format!("{why}: convert the model again with a current llama.cpp"));
            }
        }
        let (tensors, entries) = (from.u64()?, from.u64()?);
        let fits = |what: &str, count: u64, least: u64, left: u64| match count.checked_mul(least) {
            Some(bytes) if bytes <= left => Ok(()),
            _ => Err(format!("is truncated: expected {count} {what}, found {left} bytes")),
        };
        fits("entries of metadata", entries, LEAST_ENTRY, from.left())?;
        let mut file = GgufFile { bytes, metadata: BTreeMap::new(), tensors: Vec::new() };
        let (mut alignment, mut letters) = (ALIGNMENT, 0);
        for _ in 0..entries {
            let key = text(&mut from)?;
            let kind = from.u32()?;
            let value = value(&mut from, kind, 0).map_err(|why| format!("{why} (metadata `{}`)", brief(&key)))?;
            if key == "general.alignment" {
                let number = value.parse().ok().filter(|alignment: &u64| alignment.is_power_of_two());
                alignment = number.ok_or_else(|| format!("must have a power of two as alignment, got {value}"))?;
            }
            letters += key.len() + value.len();
            if letters <= MAX_METADATA {
                file.metadata.insert(key.into_owned(), value);
            }
        }
        fits("tensors", tensors, LEAST_TENSOR, from.left())?;
        for _ in 0..tensors {
            file.tensors.push(tensor(&mut from)?);
        }
        let first = (from.at() as u64).next_multiple_of(alignment);
        file.place(first, alignment)?;
        Ok(file)
    }

    /// Checks that the tensors lie in the file and apart from each other, and have names of their
    /// own.
    fn place(&mut self, first: u64, alignment: u64) -> Result<(), String> {
        let mut names = HashSet::new();
        for tensor in &mut self.tensors {
            let wrong = |why: String| format!("has the tensor `{}`, which {why}", brief(&tensor.name));
            if !names.insert(tensor.name.as_str()) {
                let name = brief(&tensor.name);
                return Err(format!("has two tensors `{name}`: save the tensors under different names"));
            }
            let length = self.bytes.len() as u64;
            let start = tensor.at.checked_add(first).filter(|_| tensor.at.is_multiple_of(alignment));
            let end = start.and_then(|start| start.checked_add(tensor.bytes.unwrap_or(0)));
            let Some(start) = start.filter(|_| end.is_some_and(|end| end <= length)) else {
                let (at, takes) = (tensor.at, tensor.bytes.unwrap_or(0));
                let left = length.saturating_sub(first);
                return Err(wrong(format!(
                    "must have {takes} bytes at a multiple of {alignment} in {left} bytes of data, got the offset {at}"
                )));
            };
            tensor.at = start;
        }
        let mut by_place: Vec<&GgufTensor> = self.tensors.iter().filter(|tensor| tensor.bytes > Some(0)).collect();
        by_place.sort_by_key(|tensor| tensor.at);
        let overlap = by_place.windows(2).find(|pair| pair[0].at + pair[0].bytes.unwrap_or(0) > pair[1].at);
        match overlap {
            Some(pair) => {
                Err(format!("has the overlapping tensors `{}` and `{}`", brief(&pair[0].name), brief(&pair[1].name)))
            }
            None => Ok(()),
        }
    }

    pub(super) fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|tensor| &*tensor.name)
    }

    pub(super) fn listed(&self) -> Vec<TensorInfo> {
        let info = |tensor: &GgufTensor| TensorInfo {
            name: tensor.name.clone(),
            dtype: tensor.type_name().into_owned(),
            shape: tensor.shape.clone(),
            bytes: tensor.bytes,
        };
        self.tensors.iter().map(info).collect()
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// A message that continues "the file …".
    pub(super) fn read(&self, at: usize) -> Result<FileTensor, String> {
        let tensor = &self.tensors[at];
        let wrong = |why: String| format!("has the tensor `{}`, which {why}", brief(&tensor.name));
        let shape = tensor.shape.iter().map(|dim| usize::try_from(*dim)).collect::<Result<Vec<_>, _>>();
        let shape =
            shape.map_err(|_| wrong(format!("must have a shape that fits in memory, got {:?}", tensor.shape)))?;
        // `place` found it in the file.
        let blocks = &self.bytes[tensor.at as usize..][..tensor.bytes.unwrap_or(0) as usize];
        let widen = |size: usize, dequantize: fn(&[u8], &mut Vec<f32>)| {
            let mut bytes = Vec::with_capacity(room(&shape)?);
            let mut numbers = Vec::new();
            for block in blocks.chunks_exact(size) {
                numbers.clear();
                dequantize(block, &mut numbers);
                bytes.extend_from_slice(bytemuck::cast_slice(&numbers));
            }
            let weights = Weights::new(DType::F32, shape.clone(), bytes)?;
            Ok(Weights { widened: Some(tensor.type_name().into_owned()), ..weights })
        };
        let weights = match tensor.code {
            0 => Weights::new(DType::F32, shape.clone(), blocks.to_vec()),
            1 => Weights::new(DType::F16, shape.clone(), blocks.to_vec()),
            2 => widen(18, q4_0),
            8 => widen(34, q8_0),
            12 => widen(144, q4_k),
            _ => Err(format!(
                "must have elements of type f32, f16, q8_0, q4_0 or q4_k, got {}: save the tensor as `.npy` with \
                 `gguf.quants.dequantize` of the Python package `gguf`",
                tensor.type_name()
            )),
        };
        Ok(FileTensor::new(tensor.name.clone(), weights.map_err(wrong)?))
    }
}

/// Reads a text, as far as it is UTF-8.
fn text<'a>(from: &mut ByteReader<'a>) -> Result<Cow<'a, str>, String> {
    let length = from.u64()?;
    from.take(length).map(String::from_utf8_lossy)
}

/// Reads a value of metadata, and returns it as a text: shortened, and of a list only the type and
/// the length.
fn value(from: &mut ByteReader<'_>, kind: u32, depth: u8) -> Result<String, String> {
    let value = match kind {
        0 => from.u8()?.to_string(),
        1 => i8::from_le_bytes(from.array()?).to_string(),
        2 => u16::from_le_bytes(from.array()?).to_string(),
        3 => i16::from_le_bytes(from.array()?).to_string(),
        4 => from.u32()?.to_string(),
        5 => i32::from_le_bytes(from.array()?).to_string(),
        6 => f32::from_le_bytes(from.array()?).to_string(),
        7 => (from.u8()? != 0).to_string(),
        8 => shortened(&text(from)?),
        9 if depth < MAX_DEPTH => {
            let (of, length) = (from.u32()?, from.u64()?);
            let (name, size) = match of {
                0 => ("u8", 1),
                1 => ("i8", 1),
                2 => ("u16", 2),
                3 => ("i16", 2),
                4 => ("u32", 4),
                5 => ("i32", 4),
                6 => ("f32", 4),
                7 => ("bool", 1),
                8 => ("string", 0),
                9 => ("list", 0),
                10 => ("u64", 8),
                11 => ("i64", 8),
                12 => ("f64", 8),
                other => return Err(format!("must have lists of type 0 to 12, got {other}")),
            };
            match size {
                // Each has a length at least, so the bytes of the file limit the loop.
                0 => (0..length).try_for_each(|_| match of {
                    8 => text(from).map(drop),
                    _ => value(from, of, depth + 1).map(drop),
                })?,
                size => drop(from.take(length.saturating_mul(size))?),
            }
            format!("{name}[{length}]")
        }
        9 => return Err(format!("must have at most {MAX_DEPTH} levels of lists, got more")),
        10 => from.u64()?.to_string(),
        11 => i64::from_le_bytes(from.array()?).to_string(),
        12 => f64::from_le_bytes(from.array()?).to_string(),
        other => return Err(format!("must have values of type 0 to 12, got {other}")),
    };
    Ok(value)
}

/// Cuts a long text.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

fn tensor(from: &mut ByteReader<'_>) -> Result<GgufTensor, String> {
    let name = text(from)?.into_owned();
    let wrong = |why: String| format!("has the tensor `{}`, which {why}", brief(&name));
    let dims = from.u32()?;
    if dims > MAX_DIMS {
        return Err(wrong(format!("must have at most {MAX_DIMS} dims, got {dims}")));
    }
    let mut shape = (0..dims).map(|_| from.u64()).collect::<Result<Vec<_>, _>>()?;
    let (code, at) = (from.u32()?, from.u64()?);
    let row = shape.first().copied().unwrap_or(1);
    shape.reverse();
    // The elements have to be countable even as `f32`.
    let elements = shape.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim));
    let elements = elements.filter(|n| n.checked_mul(8).is_some());
    let elements = elements.ok_or_else(|| wrong(format!("must have a shape that fits in memory, got {shape:?}")))?;
    let bytes = match BlockType::of(code) {
        Some(BlockType { name, elements: block, .. }) if !row.is_multiple_of(block) => {
            return Err(wrong(format!("must have rows of a multiple of {block} elements for {name}, got {row}")));
        }
        block => block.and_then(|block| (elements / block.elements).checked_mul(block.bytes)),
    };
    Ok(GgufTensor { name, code, shape, at, bytes })
}

/// The `f16` at the start of a block, as `f32`.
fn half(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// A scale, then 32 integers of 8 bits.
fn q8_0(block: &[u8], numbers: &mut Vec<f32>) {
    let scale = half(block, 0);
    numbers.extend(block[2..].iter().map(|byte| f32::from(byte.cast_signed()) * scale));
}

/// A scale, then 32 integers of 4 bits with the zero point 8: the lower halves of the bytes are the
/// first 16.
fn q4_0(block: &[u8], numbers: &mut Vec<f32>) {
    let scale = half(block, 0);
    let number = |bits: u8| scale * (f32::from(bits) - 8.0);
    numbers.extend(block[2..].iter().map(|byte| number(byte & 15)));
    numbers.extend(block[2..].iter().map(|byte| number(byte >> 4)));
}

/// Two scales, 8 scales and 8 minimums of 6 bits in 12 bytes, then 8 groups of 32 integers of 4
/// bits: of two groups, the lower halves of 32 bytes are the first.
fn q4_k(block: &[u8], numbers: &mut Vec<f32>) {
    let (scale, least) = (half(block, 0), half(block, 2));
    let six = &block[4..16];
    for group in 0..8 {
        let (of_scale, of_least) = match group {
            0..4 => (six[group] & 63, six[group + 4] & 63),
            _ => {
                ((six[group + 4] & 15) | ((six[group - 4] >> 6) << 4), (six[group + 4] >> 4) | ((six[group] >> 6) << 4))
            }
        };
        let (scale, least) = (scale * f32::from(of_scale), least * f32::from(of_least));
        let shift = 4 * (group % 2);
        let bytes = &block[16 + 32 * (group / 2)..][..32];
        numbers.extend(bytes.iter().map(|byte| scale * f32::from((byte >> shift) & 15) - least));
    }
}
