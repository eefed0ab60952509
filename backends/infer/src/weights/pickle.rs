//! The pickle of a PyTorch archive, read without running anything.
//!
//! A pickle is a program for a stack machine, which in Python may call any function. Here it can
//! build numbers, texts, lists and dicts, and describe tensors; each other operation, class or
//! function is rejected by its name. The numbers of operations and of values are limited, so a
//! pickle takes little more memory than its file, and no time beyond its length.

use super::byte_reader::ByteReader;
use super::encoding::Encoding;
use crate::onnx::brief;
use limen::message::DType;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The most operations: about 30,000 tensors.
const MAX_STEPS: usize = 1 << 20;

/// How deep lists and dicts may be in others.
const MAX_DEPTH: usize = 64;

/// The most dims of a tensor, as in PyTorch.
const MAX_DIMS: usize = 64;

/// The longest key of a storage. PyTorch counts storages.
const MAX_KEY: usize = 32;

/// A tensor that the pickle describes: a view of a storage.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TorchTensor {
    pub(super) name: String,
    pub(super) element: TorchElement,
    /// The index of its storage.
    pub(super) storage: usize,
    /// Its first element.
    pub(super) offset: u64,
    pub(super) shape: Vec<u64>,
    /// The distance of elements along each dim.
    pub(super) strides: Vec<u64>,
}

/// Elements that are stored one behind the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TorchStorage {
    /// The name of its file in `data/`.
    pub(super) key: String,
    pub(super) bytes: u64,
    /// Unless its tensors have the element type.
    element: Option<TorchElement>,
}

/// An element type of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TorchElement {
    pub(super) dtype: DType,
    /// Which FP8 the `u8` are.
    pub(super) float8: Option<Encoding>,
    pub(super) is_bool: bool,
}

impl TorchElement {
    /// Of the name of a dtype in `torch`.
    fn of_dtype(name: &str) -> Option<TorchElement> {
        let (dtype, float8) = match name {
            "float32" | "float" => (DType::F32, None),
            "float64" | "double" => (DType::F64, None),
            "float16" | "half" => (DType::F16, None),
            "bfloat16" => (DType::BF16, None),
            "int8" => (DType::I8, None),
            "uint8" | "bool" => (DType::U8, None),
            "int16" | "short" => (DType::I16, None),
            "uint16" => (DType::U16, None),
            "int32" | "int" => (DType::I32, None),
            "uint32" => (DType::U32, None),
            "int64" | "long" => (DType::I64, None),
            "uint64" => (DType::U64, None),
            "float8_e4m3fn" => (DType::U8, Some(Encoding::F8E4m3)),
            "float8_e5m2" => (DType::U8, Some(Encoding::F8E5m2)),
            _ => return None,
        };
        Some(TorchElement { dtype, float8, is_bool: name == "bool" })
    }

    /// Of the name of a storage in `torch`.
    fn of_storage(name: &str) -> Option<TorchElement> {
        let dtype = match name.strip_suffix("Storage")? {
            "Float" => "float32",
            "Double" => "float64",
            "Half" => "float16",
            "BFloat16" => "bfloat16",
            "Char" => "int8",
            "Byte" => "uint8",
            "Bool" => "bool",
            "Short" => "int16",
            "Int" => "int32",
            "Long" => "int64",
            _ => return None,
        };
        TorchElement::of_dtype(dtype)
    }
}

/// A class or function that a pickle may name.
#[derive(Clone, Copy)]
enum Global {
    OrderedDict,
    Size,
    Device,
    Storage(Option<TorchElement>),
    Dtype(TorchElement),
    /// The elements of its storage.
    Tensor,
    /// The elements of a storage of bytes; the element type is an argument.
    TypedTensor,
    Parameter,
}

impl Global {
    fn of(module: &str, name: &str) -> Option<Global> {
        Some(match (module, name) {
            ("collections", "OrderedDict") => Global::OrderedDict,
            ("torch", "Size") => Global::Size,
            ("torch", "device") => Global::Device,
            ("torch.storage" | "torch", "UntypedStorage") => Global::Storage(None),
            ("torch._utils", "_rebuild_tensor_v2") => Global::Tensor,
            ("torch._utils", "_rebuild_tensor_v3") => Global::TypedTensor,
            ("torch._utils", "_rebuild_parameter") => Global::Parameter,
            ("torch", name) => match TorchElement::of_storage(name) {
                Some(element) => Global::Storage(Some(element)),
                None => Global::Dtype(TorchElement::of_dtype(name)?),
            },
            _ => return None,
        })
    }
}

/// A value on the stack. Lists, dicts, texts, storages and tensors are in tables of the machine, so
/// that a value is small and values that contain each other can be dropped.
#[derive(Clone, Copy)]
enum PickleValue {
    /// A value of which no tensor is made: `None`, a float, bytes, a device.
    Other,
    Int(i64),
    Text(usize),
    /// A list or a tuple.
    List(usize),
    Dict(usize),
    Global(Global),
    Storage(usize),
    Tensor(usize),
}

#[derive(Default)]
struct Machine<'a> {
    stack: Vec<PickleValue>,
    /// The height of the stack at each mark.
    marks: Vec<usize>,
    memo: HashMap<u32, PickleValue>,
    texts: Vec<&'a str>,
    lists: Vec<Vec<PickleValue>>,
    dicts: Vec<Vec<(PickleValue, PickleValue)>>,
    storages: Vec<TorchStorage>,
    /// By key: a storage is named by each of its tensors.
    storage_of: HashMap<&'a str, usize>,
    tensors: Vec<TorchTensor>,
}

/// Reads a pickle, and returns its tensors by name, and their storages. The name of a tensor is the
/// keys of the dicts and the indices of the lists that it is in, with dots between.
///
/// # Errors
/// A message that continues "the file …".
pub(super) fn read_pickle(bytes: &[u8]) -> Result<(Vec<TorchTensor>, Vec<TorchStorage>), String> {
    let mut machine = Machine::default();
    let root = machine.run(ByteReader::new(bytes))?;
    let mut walk = Walk { machine: &machine, visits: bytes.len(), letters: 4 * bytes.len(), found: Vec::new() };
    walk.visit(root, &mut Vec::new())?;
    let found = walk.found;
    let mut names = HashSet::new();
    if let Some(twice) = found.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        return Err(format!("has two tensors `{}`: save the tensors under different keys", brief(&twice.name)));
    }
    Ok((found, machine.storages))
}

fn damaged(why: &str) -> String {
    format!("has a damaged index: {why}")
}

impl<'a> Machine<'a> {
    /// Runs the program, and returns its result.
    fn run(&mut self, mut from: ByteReader<'a>) -> Result<PickleValue, String> {
        for _ in 0..MAX_STEPS {
            let at = from.at();
            match self.step(&mut from) {
                Ok(Some(result)) => return Ok(result),
                Ok(None) => {}
                Err(why) if why.starts_with(UNSUPPORTED) => return Err(why),
                Err(why) => return Err(format!("{why} (at byte {at} of `data.pkl`)")),
            }
        }
        Err(format!(
            "must have at most {MAX_STEPS} operations in the index, got more: save the tensors to several files"
        ))
    }

    /// Runs an operation. The names are those of Python's `pickletools`.
    fn step(&mut self, from: &mut ByteReader<'a>) -> Result<Option<PickleValue>, String> {
        let value = match from.u8()? {
            // PROTO
            0x80 => {
                from.u8()?;
                return Ok(None);
            }
            // FRAME
            0x95 => {
                from.u64()?;
                return Ok(None);
            }
            // MARK
            b'(' => {
                self.marks.push(self.stack.len());
                return Ok(None);
            }
            // STOP
            b'.' => return self.pop().map(Some),
            // NONE, NEWTRUE, NEWFALSE
            b'N' | 0x88 | 0x89 => PickleValue::Other,
            // BINFLOAT
            b'G' => {
                from.u64()?;
                PickleValue::Other
            }
            // BININT, BININT1, BININT2
            b'J' => PickleValue::Int(i32::from_le_bytes(from.array()?).into()),
            b'K' => PickleValue::Int(from.u8()?.into()),
            b'M' => PickleValue::Int(u16::from_le_bytes(from.array()?).into()),
            // LONG1
            0x8a => {
                let length = from.u8()?;
                match from.take(length.into())? {
                    digits if digits.len() <= 8 => {
                        let is_negative = digits.last().is_some_and(|last| *last >= 0x80);
                        let mut number = [if is_negative { 0xff } else { 0 }; 8];
                        number[..digits.len()].copy_from_slice(digits);
                        PickleValue::Int(i64::from_le_bytes(number))
                    }
                    _ => PickleValue::Other,
                }
            }
            // BINUNICODE, SHORT_BINUNICODE
            b'X' => {
                let length = from.u32()?;
                self.text(from.take(length.into())?)?
            }
            0x8c => {
                let length = from.u8()?;
                self.text(from.take(length.into())?)?
            }
            // BINBYTES, SHORT_BINBYTES
            b'B' => {
                let length = from.u32()?;
                from.take(length.into())?;
                PickleValue::Other
            }
            b'C' => {
                let length = from.u8()?;
                from.take(length.into())?;
                PickleValue::Other
            }
            // EMPTY_LIST, EMPTY_TUPLE, EMPTY_DICT
            b']' | b')' => self.list(Vec::new()),
            b'}' => self.dict(),
            // TUPLE, TUPLE1, TUPLE2, TUPLE3
            b't' => {
                let items = self.marked()?;
                self.list(items)
            }
            count @ 0x85..=0x87 => {
                let first = self.stack.len().checked_sub(usize::from(count - 0x84)).ok_or_else(empty)?;
                let items = self.stack.split_off(first);
                self.list(items)
            }
            // APPEND, APPENDS
            b'a' => {
                let item = self.pop()?;
                return self.append(vec![item]);
            }
            b'e' => {
                let items = self.marked()?;
                return self.append(items);
            }
            // SETITEM, SETITEMS
            b's' => {
                let first = self.stack.len().checked_sub(2).ok_or_else(empty)?;
                let items = self.stack.split_off(first);
                return self.set(&items);
            }
            b'u' => {
                let items = self.marked()?;
                return self.set(&items);
            }
            // BINPUT, LONG_BINPUT, MEMOIZE
            b'q' => return self.memoize(from.u8()?.into()),
            b'r' => return self.memoize(from.u32()?),
            0x94 => {
                let next = u32::try_from(self.memo.len()).unwrap_or(u32::MAX);
                return self.memoize(next);
            }
            // BINGET, LONG_BINGET
            b'h' => self.remembered(from.u8()?.into())?,
            b'j' => self.remembered(from.u32()?)?,
            // GLOBAL, STACK_GLOBAL
            b'c' => {
                let [module, name] = [from.line()?, from.line()?].map(String::from_utf8_lossy);
                global(&module, &name)?
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let [module, name] = [module, name].map(|value| self.text_of(value));
                global(module?, name?)?
            }
            // BINPERSID
            b'Q' => {
                let id = self.pop()?;
                self.storage(id)?
            }
            // REDUCE
            b'R' => {
                let (arguments, called) = (self.pop()?, self.pop()?);
                self.call(called, arguments)?
            }
            // BUILD: attributes of an OrderedDict, which hold no tensors.
            b'b' => {
                self.pop()?;
                return match self.stack.last() {
                    Some(PickleValue::Dict(_)) => Ok(None),
                    _ => Err(unsupported("operation", "BUILD")),
                };
            }
            other => return Err(unsupported("operation", &operation(other))),
        };
        self.stack.push(value);
        Ok(None)
    }

    fn pop(&mut self) -> Result<PickleValue, String> {
        // What lies before a mark is out of reach.
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(empty());
        }
        self.stack.pop().ok_or_else(empty)
    }

    /// Takes what was pushed after the last mark.
    fn marked(&mut self) -> Result<Vec<PickleValue>, String> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        Ok(self.stack.split_off(mark.ok_or_else(|| damaged("a mark is missing"))?))
    }

    fn memoize(&mut self, key: u32) -> Result<Option<PickleValue>, String> {
        let last = self.stack.last().ok_or_else(empty)?;
        self.memo.insert(key, *last);
        Ok(None)
    }

    fn remembered(&self, key: u32) -> Result<PickleValue, String> {
        self.memo.get(&key).copied().ok_or_else(|| damaged("expected a value, found an unknown reference"))
    }

    fn text(&mut self, bytes: &'a [u8]) -> Result<PickleValue, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("a text is not UTF-8"))?;
        self.texts.push(text);
        Ok(PickleValue::Text(self.texts.len() - 1))
    }

    fn list(&mut self, items: Vec<PickleValue>) -> PickleValue {
        self.lists.push(items);
        PickleValue::List(self.lists.len() - 1)
    }

    fn dict(&mut self) -> PickleValue {
        self.dicts.push(Vec::new());
        PickleValue::Dict(self.dicts.len() - 1)
    }

    fn append(&mut self, items: Vec<PickleValue>) -> Result<Option<PickleValue>, String> {
        match self.stack.last() {
            Some(PickleValue::List(list)) => self.lists[*list].extend(items),
            _ => return Err(damaged("expected a list to append to, found another value")),
        }
        Ok(None)
    }

    fn set(&mut self, items: &[PickleValue]) -> Result<Option<PickleValue>, String> {
        match self.stack.last() {
            Some(PickleValue::Dict(dict)) => {
                self.dicts[*dict].extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            _ => return Err(damaged("expected a dict to set a key in, found another value")),
        }
        Ok(None)
    }

    fn text_of(&self, value: PickleValue) -> Result<&'a str, String> {
        match value {
            PickleValue::Text(text) => Ok(self.texts[text]),
            _ => Err(damaged("expected a text, found another value")),
        }
    }

    fn list_of(&self, value: PickleValue) -> Result<&[PickleValue], String> {
        match value {
            PickleValue::List(list) => Ok(&self.lists[list]),
            _ => Err(damaged("expected a tuple, found another value")),
        }
    }

    /// A tuple of sizes.
    fn sizes(&self, value: PickleValue) -> Result<Vec<u64>, String> {
        let size = |value: &PickleValue| match value {
            PickleValue::Int(size) => {
                u64::try_from(*size).map_err(|_| damaged(&format!("a size must be 0 or more, got {size}")))
            }
            _ => Err(damaged("expected a size, found another value")),
        };
        match self.list_of(value)? {
            sizes if sizes.len() <= MAX_DIMS => sizes.iter().map(size).collect(),
            sizes => Err(damaged(&format!("a tensor must have at most {MAX_DIMS} dims, got {}", sizes.len()))),
        }
    }

    /// The storage of an ID: `("storage", type, key, device, elements)`.
    fn storage(&mut self, id: PickleValue) -> Result<PickleValue, String> {
        let &[_, PickleValue::Global(Global::Storage(element)), key, _, PickleValue::Int(elements)] =
            self.list_of(id)?
        else {
            return Err(damaged("expected a storage, found another value"));
        };
        let key = self.text_of(key)?;
        if key.len() > MAX_KEY {
            return Err(damaged(&format!("a key of a storage must have at most {MAX_KEY} bytes, got {}", key.len())));
        }
        let size = element.map_or(1, |element| element.dtype.size() as u64);
        let bytes = u64::try_from(elements).ok().and_then(|elements| elements.checked_mul(size));
        let bytes = bytes.ok_or_else(|| damaged(&format!("storage `{key}` has {elements} elements")))?;
        let storage = TorchStorage { key: key.to_string(), bytes, element };
        let next = self.storages.len();
        let at = *self.storage_of.entry(key).or_insert(next);
        if at == next {
            self.storages.push(storage);
        } else if self.storages[at] != storage {
            return Err(damaged(&format!("storage `{key}` has two sizes or types")));
        }
        Ok(PickleValue::Storage(at))
    }

    /// Calls what the pickle may call.
    fn call(&mut self, called: PickleValue, arguments: PickleValue) -> Result<PickleValue, String> {
        let PickleValue::Global(called) = called else {
            return Err(damaged("expected a function to call, found another value"));
        };
        let arguments = self.list_of(arguments)?;
        match (called, arguments) {
            (Global::OrderedDict, []) => Ok(self.dict()),
            (Global::Size, [sizes]) => Ok(*sizes),
            (Global::Device, _) => Ok(PickleValue::Other),
            (Global::Parameter, [tensor @ PickleValue::Tensor(_), ..]) => Ok(*tensor),
            (Global::Tensor, &[PickleValue::Storage(storage), PickleValue::Int(offset), shape, strides, ..]) => {
                let element = self.storages[storage].element;
                self.tensor(storage, element, offset, shape, strides)
            }
            (
                Global::TypedTensor,
                &[
                    PickleValue::Storage(storage),
                    PickleValue::Int(offset),
                    shape,
                    strides,
                    _,
                    _,
                    PickleValue::Global(Global::Dtype(of)),
                    ..,
                ],
            ) => self.tensor(storage, Some(of), offset, shape, strides),
            _ => Err(damaged("a call has unknown arguments")),
        }
    }

    fn tensor(
        &mut self,
        storage: usize,
        element: Option<TorchElement>,
        offset: i64,
        shape: PickleValue,
        strides: PickleValue,
    ) -> Result<PickleValue, String> {
        let (shape, strides) = (self.sizes(shape)?, self.sizes(strides)?);
        let offset =
            u64::try_from(offset).map_err(|_| damaged(&format!("an offset must be 0 or more, got {offset}")))?;
        let element = element.ok_or_else(|| damaged("a tensor has no element type"))?;
        if shape.len() != strides.len() {
            return Err(damaged(&format!(
                "a tensor of {} dims must have as many strides, got {}",
                shape.len(),
                strides.len()
            )));
        }
        let size = element.dtype.size() as u64;
        let count = shape.iter().try_fold(size, |count, dim| count.checked_mul(*dim));
        let Some(count) = count else {
            return Err(format!("must have tensors whose shapes fit in memory, got {shape:?}"));
        };
        let reach = |(dim, stride): (&u64, &u64)| (dim - 1).checked_mul(*stride);
        let end = || {
            let last =
                std::iter::zip(&shape, &strides).map(reach).try_fold(offset, |at, more| at.checked_add(more?))?;
            last.checked_add(1)?.checked_mul(size)
        };
        let TorchStorage { key, bytes, .. } = &self.storages[storage];
        if count > 0 && end().is_none_or(|end| end > *bytes) {
            let about = format!("{}{shape:?} from element {offset} on with the strides {strides:?}", element.dtype);
            return Err(format!("has a tensor {about} in storage `{key}`, which has {bytes} bytes"));
        }
        self.tensors.push(TorchTensor { name: String::new(), element, storage, offset, shape, strides });
        Ok(PickleValue::Tensor(self.tensors.len() - 1))
    }
}

fn empty() -> String {
    damaged("a value is missing")
}

/// Begins a message about what only Python can read. Its place in the pickle helps nobody.
const UNSUPPORTED: &str = "needs";

/// The message about what only Python can read.
fn unsupported(what: &str, name: &str) -> String {
    format!(
        "{UNSUPPORTED} the {what} `{}`, expected only tensors in dicts and lists: save the tensors with \
         `torch.save(model.state_dict(), FILE)`",
        brief(name)
    )
}

fn global(module: &str, name: &str) -> Result<PickleValue, String> {
    let found = Global::of(module, name).map(PickleValue::Global);
    found.ok_or_else(|| unsupported("Python object", &format!("{module}.{name}")))
}

/// The name of an operation that is not supported.
fn operation(code: u8) -> String {
    let name = match code {
        b'0' => "POP",
        b'1' => "POP_MARK",
        b'2' => "DUP",
        b'F' => "FLOAT",
        b'I' => "INT",
        b'L' => "LONG",
        b'P' => "PERSID",
        b'S' => "STRING",
        b'T' => "BINSTRING",
        b'U' => "SHORT_BINSTRING",
        b'V' => "UNICODE",
        b'd' => "DICT",
        b'g' => "GET",
        b'i' => "INST",
        b'l' => "LIST",
        b'o' => "OBJ",
        b'p' => "PUT",
        0x81 => "NEWOBJ",
        0x82..=0x84 => "EXT",
        0x8b => "LONG4",
        0x8d => "BINUNICODE8",
        0x8e => "BINBYTES8",
        0x8f => "EMPTY_SET",
        0x90 => "ADDITEMS",
        0x91 => "FROZENSET",
        0x92 => "NEWOBJ_EX",
        0x96 => "BYTEARRAY8",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        other => return format!("0x{other:02x}"),
    };
    name.to_string()
}

/// Finds the tensors of a value. Values can contain each other or be shared, so the steps and the
/// letters of all names are limited by the length of the pickle.
struct Walk<'m, 'a> {
    machine: &'m Machine<'a>,
    visits: usize,
    letters: usize,
    found: Vec<TorchTensor>,
}

impl Walk<'_, '_> {
    fn visit(&mut self, value: PickleValue, path: &mut Vec<PickleValue>) -> Result<(), String> {
        let too_much = || damaged("the values contain each other too often");
        self.visits = self.visits.checked_sub(1).ok_or_else(too_much)?;
        if path.len() > MAX_DEPTH {
            return Err(format!(
                "must have at most {MAX_DEPTH} levels of values, got more: save the tensors in a single dict"
            ));
        }
        match value {
            PickleValue::Tensor(tensor) => {
                let mut name = String::new();
                for (at, part) in path.iter().enumerate() {
                    let part = match part {
                        PickleValue::Text(text) => Cow::Borrowed(self.machine.texts[*text]),
                        PickleValue::Int(index) => Cow::Owned(index.to_string()),
                        _ => {
                            return Err(
                                "must have texts or integers as keys of tensors, got another key: rename the key"
                                    .into(),
                            );
                        }
                    };
                    self.letters = self.letters.checked_sub(part.len()).ok_or_else(too_much)?;
                    name.push_str(if at == 0 { "" } else { "." });
                    name.push_str(&part);
                }
                self.found.push(TorchTensor { name, ..self.machine.tensors[tensor].clone() });
            }
            PickleValue::List(list) => {
                for (at, item) in self.machine.lists[list].iter().enumerate() {
                    path.push(PickleValue::Int(at as i64));
                    self.visit(*item, path)?;
                    path.pop();
                }
            }
            PickleValue::Dict(dict) => {
                for (key, item) in &self.machine.dicts[dict] {
                    path.push(*key);
                    self.visit(*item, path)?;
                    path.pop();
                }
            }
            _ => {}
        }
        Ok(())
    }
}
