//! A recorded case: its arrays, how they are read, and whether they fit a model.

use crate::array::{Weights, read_npz};
use crate::base::Access;
use crate::base::sha256;
use crate::base::{caught, port_name};
use limen::backend::{BackendError, Signature, TensorSpec};
use limen::files::InputFile;
use limen::message::Dim;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Larger cases are refused: a case is a handful of items, and a zip can unpack to far more than
/// its own size.
const MAX_BYTES: u64 = 64 << 20;

/// The most items of a case. Empty items take no bytes.
const MAX_ITEMS: usize = 1 << 16;

/// An error of a case, or of the model that fails it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The file cannot be read as an `.npz`.
    #[error("is not a readable .npz: {0}")]
    File(std::io::Error),
    /// An array cannot be used.
    #[error("array `{array}` {why}")]
    Array {
        /// Its name.
        array: String,
        /// What is wrong with it.
        why: String,
    },
    /// An input or output of the model has no array.
    #[error("expected an array for the {side} `{name}`, found {there}")]
    Missing {
        /// `input` or `output`.
        side: &'static str,
        /// The name in the model.
        name: String,
        /// The arrays of the case.
        there: String,
    },
    /// An array is neither an input nor an output.
    #[error("expected arrays of the inputs and outputs of the model ({there}), found `{array}`")]
    Unknown {
        /// Its name.
        array: String,
        /// The model's inputs and outputs.
        there: String,
    },
    /// An array does not have the shape of its input or output.
    #[error("array `{array}`: expected {expected}, found {found:?}")]
    Shape {
        /// Its name.
        array: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape it should have.
        expected: String,
    },
    /// The model fails on the case, or its outputs differ.
    #[error(transparent)]
    Model(#[from] BackendError),
}

/// A recorded case: arrays by name. Clones share the arrays.
#[derive(Clone, Debug)]
pub struct Case {
    pub(super) arrays: Arc<BTreeMap<String, Weights>>,
}

impl Case {
    /// Reads an `.npz`.
    ///
    /// # Errors
    /// [`CaseError::File`] or [`CaseError::Array`], naming the array.
    pub fn read(path: &Path) -> Result<Case, CaseError> {
        Case::read_file(InputFile::open(path).map_err(CaseError::File)?)
    }

    /// Like [`read`](Case::read), from an open file.
    ///
    /// # Errors
    /// Like [`read`](Case::read).
    #[doc(hidden)]
    pub fn read_file(file: InputFile) -> Result<Case, CaseError> {
        let invalid = |why: String| CaseError::File(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
        // The zip and npy readers are third-party code that may panic on some files.
        caught(|| Case::read_npz(file)).map_err(invalid)?
    }

    /// Returns the first `len` numbers of the array of a port: its first item, repeated if it is
    /// shorter than the longest one.
    pub(crate) fn first_item(&self, port: &str, len: usize) -> Option<impl Iterator<Item = f64> + Clone + '_> {
        let array = self.arrays.get(port).filter(|array| !array.bytes.is_empty())?;
        Some(Access::for_dtype(array.dtype).values(&array.bytes).cycle().take(len))
    }

    /// Returns an item of an input, all of whose items have `len` numbers; `None` if it has fewer
    /// items.
    pub(crate) fn item(&self, port: &str, at: usize, len: usize) -> Option<Vec<f64>> {
        let array = self.arrays.get(port)?;
        let bytes = len * array.dtype.size();
        let item = array.bytes.get(at * bytes..(at + 1) * bytes)?;
        Some(Access::for_dtype(array.dtype).values(item).collect())
    }

    /// Whether an input has two items that differ.
    pub(crate) fn has_different_items(&self, inputs: &[TensorSpec]) -> bool {
        inputs.iter().any(|spec| {
            let Some(array) = self.arrays.get(&spec.name) else { return false };
            let items = items_in(&array.shape, spec).unwrap_or_default().max(1);
            let mut items = array.bytes.chunks((array.bytes.len() / items).max(1));
            let first = items.next();
            items.any(|item| Some(item) != first)
        })
    }

    /// Returns why the arrays cannot be items of some inputs, each with its array. Arrays of the
    /// outputs are not looked at: only a trial shows their shapes.
    pub(crate) fn misfits(&self, inputs: &[TensorSpec], outputs: &[&str]) -> Vec<CaseError> {
        let wrong = |(name, array): (&String, &Weights)| {
            let there = || list(inputs.iter().map(|spec| &*spec.name).chain(outputs.iter().copied()));
            match inputs.iter().find(|spec| spec.name == *name) {
                None if outputs.contains(&&**name) => None,
                None => Some(CaseError::Unknown { array: name.clone(), there: there() }),
                Some(spec) if items_in(&array.shape, spec).is_none_or(|items| items == 0) => {
                    let (array, found, expected) = (name.clone(), array.shape.clone(), shape_text(spec));
                    Some(CaseError::Shape { array, found, expected })
                }
                Some(spec) => not_held(array, spec),
            }
        };
        self.arrays.iter().filter_map(wrong).collect()
    }

    /// Returns the inputs and outputs that have no array.
    pub(crate) fn missing(&self, inputs: &[TensorSpec], outputs: &[&str]) -> Vec<CaseError> {
        let inputs = inputs.iter().map(|spec| ("input", &*spec.name));
        let sides = inputs.chain(outputs.iter().map(|name| ("output", *name)));
        let missing = sides.filter(|(_, name)| !self.arrays.contains_key(*name));
        missing.map(|(side, name)| self.lacks(side, name)).collect()
    }

    fn lacks(&self, side: &'static str, name: &str) -> CaseError {
        CaseError::Missing { side, name: name.to_string(), there: list(self.arrays.keys().map(String::as_str)) }
    }

    /// Returns a SHA-256 of all arrays: their names, dtypes, shapes and bytes.
    pub(crate) fn digest(&self) -> String {
        let mut all = String::new();
        for (name, array) in self.arrays.iter() {
            all.push_str(&format!("{name:?} {} {:?} {}\n", array.dtype, array.shape, sha256(&array.bytes)));
        }
        sha256(all.as_bytes())
    }

    /// Returns the case with the first number of an array changed by 0.001.
    #[cfg(test)]
    pub(crate) fn perturbed(mut self, array: &str) -> Case {
        if let Some(array) = Arc::make_mut(&mut self.arrays).get_mut(array) {
            let access = Access::for_dtype(array.dtype);
            let first = access.values(&array.bytes).next().unwrap_or_default();
            access.write([first + 1e-3], &mut array.bytes);
        }
        self
    }

    fn read_npz(file: InputFile) -> Result<Case, CaseError> {
        let file = std::io::BufReader::new(file);
        let arrays = read_npz(file, MAX_BYTES, |_| true).map_err(|(array, error)| match array {
            Some(array) => CaseError::Array { array, why: error.to_string() },
            None => CaseError::File(error),
        })?;
        // Cases are matched by port name, whatever the exporter wrote.
        let arrays = arrays.into_iter().map(|(name, array)| (port_name(&name), array));
        Ok(Case { arrays: Arc::new(arrays.collect()) })
    }

    /// Returns the number of items if the arrays match the model's inputs and outputs.
    pub(crate) fn fit(&self, signature: &Signature) -> Result<usize, Vec<CaseError>> {
        let mut wrong = Vec::new();
        let mut items = None;
        for (side, specs) in [("input", &signature.inputs), ("output", &signature.outputs)] {
            for spec in specs {
                let name = spec.name.clone();
                let Some(array) = self.arrays.get(&name) else {
                    wrong.push(self.lacks(side, &name));
                    continue;
                };
                let found = array.shape.clone();
                match items_in(&array.shape, spec) {
                    Some(n) if (1..=MAX_ITEMS).contains(&n) && items.is_none_or(|items| items == n) => items = Some(n),
                    Some(n) if n > MAX_ITEMS => {
                        let why = format!("must have at most {MAX_ITEMS} items, got {n}");
                        wrong.push(CaseError::Array { array: name, why });
                    }
                    Some(0) => wrong
                        .push(CaseError::Array { array: name, why: "must have at least one item, got none".into() }),
                    Some(_) => {
                        let expected = format!("{} items, as in the other arrays", items.unwrap_or(0));
                        wrong.push(CaseError::Shape { array: name, found, expected });
                    }
                    None => wrong.push(CaseError::Shape { array: name, found, expected: shape_text(spec) }),
                }
                if side == "input" && items_in(&array.shape, spec).is_some() {
                    wrong.extend(not_held(array, spec));
                }
            }
        }
        let specs = || signature.inputs.iter().chain(&signature.outputs);
        for array in self.arrays.keys().filter(|name| specs().all(|s| s.name != **name)) {
            wrong.push(CaseError::Unknown { array: array.clone(), there: list(specs().map(|s| &*s.name)) });
        }
        match items {
            Some(items) if wrong.is_empty() => Ok(items),
            _ => Err(wrong),
        }
    }
}

/// Returns the numbers of an array.
pub(super) fn values(array: &Weights) -> impl Iterator<Item = f64> {
    Access::for_dtype(array.dtype).values(&array.bytes)
}

/// Returns the first number of an array that an input cannot hold.
fn not_held(array: &Weights, spec: &TensorSpec) -> Option<CaseError> {
    let access = Access::for_dtype(spec.dtype);
    let value = values(array).find(|value| !access.holds(*value))?;
    let why = format!("must have values that fit in {}, got {value}", spec.dtype);
    Some(CaseError::Array { array: spec.name.clone(), why })
}

/// Returns how many items of a spec an array holds: its first dim, or 1 if it has the shape of one
/// item.
fn items_in(shape: &[usize], spec: &TensorSpec) -> Option<usize> {
    let item = item_of(shape, spec);
    let fits = |(length, dim): (&usize, &Dim)| match dim {
        Dim::AtMost(most) => length <= most,
        dim => dim.max() == Some(*length),
    };
    let is_item = item.len() == spec.shape.len() && std::iter::zip(item, &spec.shape).all(fits);
    is_item.then(|| if item.len() < shape.len() { shape[0] } else { 1 })
}

/// Returns the shape of one item of an array: without its first dim, unless the array is one item.
pub(super) fn item_of<'a>(shape: &'a [usize], spec: &TensorSpec) -> &'a [usize] {
    if shape.len() > spec.shape.len() { &shape[1..] } else { shape }
}

fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().map(|n| format!("`{n}`")).collect();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

fn shape_text(spec: &TensorSpec) -> String {
    let dims: Vec<_> = std::iter::once("items".to_string()).chain(spec.shape.iter().map(Dim::to_string)).collect();
    format!("[{}]", dims.join(", "))
}
