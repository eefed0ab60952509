//! The initialisers of a model: its constant tensors, read without the rest of the model.

use super::contents::Weight;
use super::data_file::open_beside;
use super::elem::{Elem, elem_of};
use super::node::brief;
use super::wire;
use limen::files::Neighbours;
use limen::unit::show_bytes;
use prost::Message;
use prost::bytes::{Buf, Bytes};
use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The most initialisers of a model.
const MAX_INITIALIZERS: usize = 1 << 16;

/// The most bytes of an initialiser besides its raw data. As a message, each can take 24 bytes.
const MAX_MESSAGE: usize = 16 << 20;

/// The initialisers of a model, in the model's order.
pub(crate) struct Initializers {
    /// The name and the message of each.
    tensors: Vec<(String, Bytes)>,
    sparse: Vec<String>,
    /// The bytes of the model's file.
    size: u64,
}

/// An initialiser that was read.
pub(crate) struct Initializer {
    /// The element type.
    pub(crate) elem: Elem,
    /// The length of each dim, the outermost first.
    pub(crate) dims: Vec<u64>,
    /// The elements, in little-endian order.
    pub(crate) bytes: Vec<u8>,
    /// Whether the elements are in a file beside the model.
    pub(crate) is_external: bool,
}

/// A tensor, of which only the name is read.
#[derive(Clone, PartialEq, prost::Message)]
struct NamedTensor {
    #[prost(string, tag = "8")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NamedSparseTensor {
    #[prost(message, optional, tag = "1")]
    values: Option<NamedTensor>,
}

/// The fields of a message that are messages or bytes and have this number: slices of the message.
/// The rest is skipped, so that a model of many nodes takes no memory.
fn parts(message: &Bytes, number: usize) -> Result<Vec<Bytes>, String> {
    let mut rest = message.clone();
    let mut found = Vec::new();
    while rest.has_remaining() {
        let varint = |rest: &mut Bytes| prost::decode_length_delimiter(rest).map_err(|error| error.to_string());
        let key = varint(&mut rest)?;
        let length = match key & 7 {
            0 => {
                varint(&mut rest)?;
                0
            }
            1 => 8,
            2 => varint(&mut rest)?,
            5 => 4,
            other => return Err(format!("a field must have the type 0, 1, 2 or 5, got {other}")),
        };
        if length > rest.remaining() {
            return Err(format!("expected a field of {length} bytes, found {}", rest.remaining()));
        }
        let part = rest.split_to(length);
        if key == number << 3 | 2 {
            if found.len() == MAX_INITIALIZERS {
                return Err(format!("a graph must have at most {MAX_INITIALIZERS} initialisers, got more"));
            }
            found.push(part);
        }
    }
    Ok(found)
}

impl Initializers {
    /// Finds the initialisers of a model.
    ///
    /// # Errors
    /// A message that continues "the file …", if it is not a model.
    pub(crate) fn parse(file: &Bytes) -> Result<Self, String> {
        let damaged = |why: String| format!("is not a readable ONNX model: {why}");
        let graph = parts(file, 7).map_err(damaged)?.pop();
        let graph = graph.ok_or_else(|| damaged("expected a graph, found none".into()))?;
        let undecodable = |error: prost::DecodeError| damaged(error.to_string());
        let tensor = |message: Bytes| Ok((NamedTensor::decode(message.clone()).map_err(undecodable)?.name, message));
        let sparse =
            |message| Ok(NamedSparseTensor::decode(message).map_err(undecodable)?.values.unwrap_or_default().name);
        Ok(Initializers {
            tensors: parts(&graph, 5).map_err(damaged)?.into_iter().map(tensor).collect::<Result<_, String>>()?,
            sparse: parts(&graph, 15).map_err(damaged)?.into_iter().map(sparse).collect::<Result<_, String>>()?,
            size: file.len() as u64,
        })
    }

    /// Returns the names, also of sparse initialisers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|(name, _)| name).chain(&self.sparse).map(String::as_str)
    }

    /// Returns the names of the files beside the model that hold initialisers.
    ///
    /// # Errors
    /// A message that continues "the file …".
    pub(crate) fn data_files(&self) -> Result<BTreeSet<String>, String> {
        let mut found = BTreeSet::new();
        for (name, message) in &self.tensors {
            let wrong = |why: String| format!("has the tensor `{}`, which is not readable: {why}", brief(name));
            for entry in parts(message, 13).map_err(wrong)? {
                let entry = wire::Entry::decode(entry).map_err(|error| wrong(error.to_string()))?;
                if entry.key == "location" {
                    found.insert(entry.value);
                }
            }
        }
        Ok(found)
    }

    /// Reads an initialiser of at most `most` bytes. `model` is the path of the model;
    /// `neighbours` has the files beside the model, if the model is not on the disk.
    ///
    /// # Errors
    /// A message that continues "the file …".
    pub(crate) fn read(
        &self,
        name: &str,
        model: &Path,
        neighbours: Option<&Neighbours>,
        most: u64,
    ) -> Result<Initializer, String> {
        let wrong = |why: String| format!("has the tensor `{}`, which {why}", brief(name));
        let Some((_, message)) = self.tensors.iter().find(|(tensor, _)| tensor == name) else {
            return Err(wrong("must be dense, got a sparse tensor".into()));
        };
        let raw: usize = parts(message, 9).map_err(wrong)?.iter().map(Bytes::len).sum();
        if message.len() - raw > MAX_MESSAGE {
            let [most, got] = [MAX_MESSAGE, message.len() - raw].map(|bytes| show_bytes(bytes as u64));
            return Err(wrong(format!(
                "must have at most {most} of single numbers, got {got}: make the tensor with \
                 `onnx.numpy_helper.from_array`"
            )));
        }
        let tensor = &wire::Tensor::decode(message.clone()).map_err(|error| wrong(error.to_string()))?;
        let Weight { elem: type_name, dims, external, .. } = Weight::read(tensor, name, self.size).map_err(wrong)?;
        let (_, bits) = elem_of(tensor.elem);
        let Some(elem) = Elem::of(tensor.elem) else {
            return Err(wrong(format!(
                "must have numbers or bools as elements, got {type_name}: save the tensor as `.npy` with \
                 `onnx.numpy_helper.to_array(tensor).astype(\"f4\")`"
            )));
        };
        let takes = dims.iter().fold(bits / 8, |bytes, dim| bytes.saturating_mul(*dim));
        if takes > most {
            return Err(wrong(format!("must be at most {}, got {}", show_bytes(most), show_bytes(takes))));
        }
        let bytes = match &external {
            Some(part) => {
                let wrong = |why: String| {
                    format!("has the tensor `{}`, whose weight file `{}` {why}", brief(name), brief(&part.file))
                };
                let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let mut file = open_beside(model, folder, neighbours, &part.file).map_err(wrong)?;
                if part.offset.checked_add(part.length).is_none_or(|end| end > file.size()) {
                    let (size, length, offset) = (file.size(), part.length, part.offset);
                    return Err(wrong(format!(
                        "must have {length} bytes at offset {offset}, got a file of {size} bytes"
                    )));
                }
                let mut read = || {
                    let mut bytes = Vec::new();
                    file.seek(SeekFrom::Start(part.offset))?;
                    (&mut file).take(part.length).read_to_end(&mut bytes)?;
                    Ok(bytes)
                };
                read().map_err(|error: std::io::Error| wrong(format!("cannot be read: {error}")))?
            }
            None => elements(tensor, elem, takes),
        };
        if bytes.len() as u64 != takes {
            return Err(wrong(format!("must have {takes} bytes for {type_name}{dims:?}, got {}", bytes.len())));
        }
        Ok(Initializer { elem, dims, bytes, is_external: external.is_some() })
    }
}

/// The elements that a tensor has in the model's file: as bytes, or as numbers of a type that is
/// wide enough; at most one more than `takes` bytes of them.
fn elements(tensor: &wire::Tensor, elem: Elem, takes: u64) -> Vec<u8> {
    fn bytes<T: Copy, const N: usize>(numbers: &[T], takes: u64, of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        let most = usize::try_from(takes / N as u64 + 1).unwrap_or(usize::MAX);
        numbers.iter().take(most).flat_map(|number| of(*number)).collect()
    }
    if let Some(raw) = &tensor.raw {
        return raw.to_vec();
    }
    match elem {
        Elem::F32 => bytes(&tensor.floats, takes, f32::to_le_bytes),
        Elem::F64 => bytes(&tensor.doubles, takes, f64::to_le_bytes),
        Elem::I64 => bytes(&tensor.longs, takes, i64::to_le_bytes),
        Elem::U64 => bytes(&tensor.ulongs, takes, u64::to_le_bytes),
        Elem::U32 => bytes(&tensor.ulongs, takes, |number| (number as u32).to_le_bytes()),
        Elem::I32 => bytes(&tensor.ints, takes, i32::to_le_bytes),
        // The bits of 16-bit floats are integers too.
        Elem::I16 | Elem::U16 | Elem::F16 | Elem::BF16 => {
            bytes(&tensor.ints, takes, |number| (number as u16).to_le_bytes())
        }
        Elem::I8 | Elem::U8 | Elem::Bool => bytes(&tensor.ints, takes, |number| [number as u8]),
    }
}
