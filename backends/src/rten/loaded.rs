//! A model as its file describes it: read, recognised, checked and shared, with its symbolic dims still open.

use super::onnx;
use crate::{caught, port_name};
use ::rten::{
    DataType, Dimension, LoadError, LoadErrorKind, Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value,
    ValueOrView, ValueType,
};
use limen::backend::BackendError;
use limen::unit::show_bytes;
use limen::{DType, MAX_RANK};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

/// Larger files are refused before they are read: a path may lead to a disk image as well as to a model.
const MAX_MODEL_BYTES: u64 = 1 << 30;

/// A model as its file describes it, with its weights; shared by all nodes that run it.
pub(crate) struct Loaded {
    model: Model,
    bytes: u64,
    pub(super) inputs: Vec<Declared>,
    pub(super) outputs: Vec<(NodeId, String)>,
}

/// An input as the file declares it.
pub(super) struct Declared {
    pub(super) id: NodeId,
    /// As a port.
    pub(super) name: String,
    pub(super) dtype: DType,
    /// Shape of one item.
    dims: Vec<Dimension>,
    pub(super) lead: Lead,
}

/// What an input's first dim is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Lead {
    /// The batch, of any length.
    Batch,
    /// The batch, fixed at one item.
    One,
    /// Part of the item: the model knows no batch.
    None,
}

/// An input with a dim that has no length yet.
pub(crate) struct Unbound {
    pub(crate) input: String,
    pub(crate) why: String,
}

type Key = (PathBuf, SystemTime, u64);

/// Models in use, so that nodes that name the same file share its weights. Held weakly: a model goes with its last node.
static IN_USE: Mutex<Vec<(Key, Weak<Loaded>)>> = Mutex::new(Vec::new());

impl Loaded {
    /// Loads a file, or takes it from another node that runs the very same one.
    pub(crate) fn open(path: &Path) -> Result<Arc<Loaded>, BackendError> {
        let unreadable = |e: std::io::Error| BackendError::Model(format!("the file cannot be read: {e}"));
        let file = File::open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if !about.is_file() {
            return Err(BackendError::Model("this is not a file".into()));
        }
        if about.len() > MAX_MODEL_BYTES {
            let (size, most) = (show_bytes(about.len()), show_bytes(MAX_MODEL_BYTES));
            return Err(BackendError::Model(format!("the file has {size}; at most {most} are loaded")));
        }
        let key = path.canonicalize().ok().zip(about.modified().ok()).map(|(path, time)| (path, time, about.len()));
        // Held while loading, so that two plans made at once do not load the same model twice.
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|(_, model)| model.strong_count() > 0);
        if let Some(loaded) = in_use.iter().find(|(k, _)| Some(k) == key.as_ref()).and_then(|(_, m)| m.upgrade()) {
            return Ok(loaded);
        }
        let mut bytes = Vec::new();
        // The length is checked again: what is not a plain file has none, and a file can grow.
        file.take(MAX_MODEL_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_MODEL_BYTES {
            return Err(BackendError::Model(format!("the file has more than {}", show_bytes(MAX_MODEL_BYTES))));
        }
        let loaded = Arc::new(Loaded::parse(path, bytes)?);
        if let Some(key) = key {
            in_use.push((key, Arc::downgrade(&loaded)));
        }
        Ok(loaded)
    }

    /// Reads a model from the content of its file.
    pub(super) fn parse(path: &Path, bytes: Vec<u8>) -> Result<Loaded, BackendError> {
        if let Some(other) = recognise(&bytes) {
            return Err(BackendError::Model(format!("this is {other}, not an ONNX model")));
        }
        onnx::check(&bytes).map_err(|why| BackendError::Model(format!("this is {why}")))?;
        let size = bytes.len() as u64;
        let mut options = ModelOptions::with_all_ops();
        for (name, data) in data_files(path, MAX_MODEL_BYTES.saturating_sub(size))? {
            options.external_data(&name, data);
        }
        let model = match caught(|| options.load(bytes)) {
            Ok(Ok(model)) => model,
            Ok(Err(error)) => return Err(load_error(&error)),
            Err(panic) => return Err(BackendError::Model(format!("rten cannot load it, {panic}"))),
        };
        let mut loaded = Loaded { model, bytes: size, inputs: Vec::new(), outputs: Vec::new() };
        for id in loaded.model.input_ids() {
            loaded.inputs.push(loaded.declared(*id)?);
        }
        for id in loaded.model.output_ids() {
            loaded.outputs.push((*id, loaded.port(*id)));
        }
        distinct(loaded.inputs.iter().map(|d| &d.name))?;
        distinct(loaded.outputs.iter().map(|(_, name)| name))?;
        Ok(loaded)
    }

    fn port(&self, id: NodeId) -> String {
        port_name(self.model.node_info(id).and_then(|info| info.name()).unwrap_or("unnamed"))
    }

    fn declared(&self, id: NodeId) -> Result<Declared, BackendError> {
        let name = self.port(id);
        let info = self.model.node_info(id);
        let unsupported = |why: &str| Err(BackendError::Unsupported(format!("input `{name}` {why}")));
        let dtype = match info.as_ref().and_then(|info| info.dtype()) {
            Some(ValueType::Tensor(dtype)) => match dtype_of(dtype) {
                Some(dtype) => dtype,
                None => return unsupported("has elements of a type that ports do not have"),
            },
            Some(_) => return unsupported("is a sequence; ports carry tensors"),
            None => return unsupported("does not declare its element type"),
        };
        let Some(mut dims) = info.and_then(|info| info.shape()) else {
            return unsupported("does not declare its shape; export the model with one");
        };
        let lead = match dims.first() {
            Some(Dimension::Symbolic(_)) => Lead::Batch,
            Some(Dimension::Fixed(1)) => Lead::One,
            _ => Lead::None,
        };
        if lead != Lead::None {
            dims.remove(0);
        }
        if dims.len() > MAX_RANK {
            return unsupported(&format!("has {} dims in one item; at most {MAX_RANK} fit", dims.len()));
        }
        if dims.contains(&Dimension::Fixed(0)) {
            return unsupported("has a dim of length 0");
        }
        Ok(Declared { id, name, dtype, dims, lead })
    }

    /// Names of the inputs, in the model's order.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().map(|d| d.name.as_str())
    }

    /// What a plan says of the file.
    pub(crate) fn about(&self) -> String {
        let parameters = caught(|| self.model.total_params()).unwrap_or(0);
        format!("{}, {parameters} parameters", show_bytes(self.bytes))
    }

    /// Gives every dim of every input a length, from the shapes of what is connected: the shape of one item, for each
    /// input, in order.
    pub(crate) fn bind(&self, given: &BTreeMap<String, Vec<usize>>) -> Result<Vec<Vec<usize>>, Vec<Unbound>> {
        let mut lengths: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        let mut wrong = Vec::new();
        for input in &self.inputs {
            let Some(shape) = given.get(&input.name) else { continue };
            if shape.len() != input.dims.len() {
                // With fixed dims there is nothing to bind; the plan compares the two and names what lies between.
                if !input.dims.iter().any(|dim| matches!(dim, Dimension::Symbolic(_))) {
                    continue;
                }
                let why = format!("one item is {}; what is connected is {shape:?}", input.item_text());
                wrong.push(Unbound { input: input.name.clone(), why });
                continue;
            }
            for (dim, length) in input.dims.iter().zip(shape) {
                let Dimension::Symbolic(symbol) = dim else { continue };
                match lengths.get(symbol.as_str()) {
                    Some((other, at)) if other != length => {
                        let why = format!("dim `{symbol}` is {length} here and {other} at `{at}`");
                        wrong.push(Unbound { input: input.name.clone(), why });
                    }
                    Some(_) => {}
                    None => _ = lengths.insert(symbol, (*length, &input.name)),
                }
            }
        }
        let mut items = Vec::new();
        for input in &self.inputs {
            let mut item = Vec::new();
            for dim in &input.dims {
                match dim {
                    Dimension::Fixed(length) => item.push(*length),
                    Dimension::Symbolic(symbol) => match lengths.get(symbol.as_str()) {
                        Some((length, _)) if *length > 0 => item.push(*length),
                        _ if wrong.iter().any(|w: &Unbound| w.input == input.name) => {}
                        _ => {
                            let why = format!(
                                "dim `{symbol}` of {} has no length: connect an input whose shape is fixed",
                                input.item_text()
                            );
                            wrong.push(Unbound { input: input.name.clone(), why });
                        }
                    },
                }
            }
            items.push(item);
        }
        if wrong.is_empty() { Ok(items) } else { Err(wrong) }
    }

    /// Runs the model; a panic in it is an error.
    pub(super) fn run(
        &self,
        inputs: Vec<(NodeId, ValueOrView<'_>)>,
        outputs: &[NodeId],
        pool: &Arc<ThreadPool>,
    ) -> Result<Vec<Value>, BackendError> {
        let options = RunOptions::default().with_thread_pool(Some(pool.clone()));
        match caught(|| self.model.run(inputs, outputs, Some(options))) {
            Ok(Ok(values)) if values.len() == outputs.len() => Ok(values),
            Ok(Ok(values)) => Err(BackendError::Call(format!("{} of {} outputs came", values.len(), outputs.len()))),
            Ok(Err(error)) => Err(BackendError::call(error)),
            Err(panic) => Err(BackendError::Call(format!("rten cannot run it, {panic}"))),
        }
    }
}

impl Declared {
    fn item_text(&self) -> String {
        let dims: Vec<_> = self
            .dims
            .iter()
            .map(|d| match d {
                Dimension::Fixed(n) => n.to_string(),
                Dimension::Symbolic(name) => name.clone(),
            })
            .collect();
        format!("{}[{}]", self.dtype, dims.join(","))
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), BackendError> {
    let mut seen = std::collections::BTreeSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(BackendError::Unsupported(format!("two tensors of the model would both be port `{name}`"))),
        None => Ok(()),
    }
}

/// What a file is that is not a model, by how it begins.
fn recognise(bytes: &[u8]) -> Option<&'static str> {
    let begins = |magic: &[u8]| bytes.starts_with(magic);
    if bytes.is_empty() {
        return Some("an empty file");
    }
    if begins(b"version https://git-lfs") {
        return Some("a Git LFS pointer (fetch the file itself with `git lfs pull`)");
    }
    let kinds: [(&[u8], &str); 8] = [
        (b"\x89PNG", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"PK\x03\x04", "a zip archive, as PyTorch and NumPy write them"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"\x89HDF", "an HDF5 file, as Keras writes them"),
        (b"GGUF", "a GGUF file"),
        (b"RTEN", "a model in rten's own format"),
        (b"\x7fELF", "an executable"),
    ];
    if let Some((_, name)) = kinds.iter().find(|(magic, _)| begins(magic)) {
        return Some(name);
    }
    if bytes.get(4..8) == Some(b"TFL3") {
        return Some("a TensorFlow Lite model");
    }
    // A protobuf begins with a field's tag and soon has bytes that no text has.
    let head = &bytes[..bytes.len().min(512)];
    let is_text = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..);
    (head.iter().all(is_text) && String::from_utf8_lossy(head).chars().filter(|c| *c == '\u{fffd}').count() <= 1)
        .then_some("text")
}

/// The files beside a model that may hold its weights: named as it is, ending in `.data…` or `.onnx_data…`, as rten
/// demands. They are read here, and not by rten, which would believe whatever length the model claims for them.
fn data_files(path: &Path, mut most: u64) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
    let Some(stem) = path.file_stem().and_then(|s| s.to_str()) else { return Ok(Vec::new()) };
    let Some(folder) = path.parent() else { return Ok(Vec::new()) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut found = Vec::new();
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let ending = Path::new(&name).extension().and_then(|e| e.to_str()).unwrap_or_default();
        let holds_data = ending.starts_with("data") || ending.starts_with("onnx_data");
        // Only a plain file: a link could lead out of the folders that the graph may read.
        let plain = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !holds_data || !plain || !name.starts_with(stem) {
            continue;
        }
        let unreadable = |e: std::io::Error| BackendError::Model(format!("`{name}` beside it cannot be read: {e}"));
        let mut bytes = Vec::new();
        File::open(entry.path()).map_err(unreadable)?.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        most = most.checked_sub(bytes.len() as u64).ok_or_else(|| {
            BackendError::Model(format!("with `{name}` it has more than {}", show_bytes(MAX_MODEL_BYTES)))
        })?;
        found.push((name, bytes));
    }
    Ok(found)
}

fn load_error(error: &LoadError) -> BackendError {
    match error.kind() {
        LoadErrorKind::OperatorInvalid => BackendError::Unsupported(error.to_string()),
        LoadErrorKind::ExternalDataError => BackendError::Model(format!(
            "its weights are in another file: {error}; that file lies beside the model, and its name begins as the model's"
        )),
        _ => BackendError::Model(error.to_string()),
    }
}

pub(super) fn dtype_of(dtype: DataType) -> Option<DType> {
    match dtype {
        DataType::Float => Some(DType::F32),
        DataType::Int32 => Some(DType::I32),
        DataType::Int8 => Some(DType::I8),
        DataType::UInt8 => Some(DType::U8),
        _ => None,
    }
}
