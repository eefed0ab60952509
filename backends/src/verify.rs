//! Recorded cases: inputs of a model with the outputs that another runtime computed for them.
//!
//! Every runtime silently computes wrong numbers for some operator, so a model node can have a case, which is run once when
//! the graph is planned, through the session type that will serve the graph. A case is an `.npz` whose arrays have the names
//! and shapes of the model's inputs and outputs: `[items, …]`.

use crate::base::Access;
use crate::base::sha256;
use crate::base::{caught, port_name};
use crate::weights::{Weights, read_npz};
use limen::backend::{BackendError, BatchMut, BatchRef, Prepared, Session, Signature, TensorSpec};
use limen::files::InputFile;
use limen::message::Dim;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Larger cases are refused: a case is a handful of items, and a zip can unpack to far more than its own size.
const MAX_BYTES: u64 = 64 << 20;

/// The most items of a case. Empty items take no bytes.
const MAX_ITEMS: usize = 1 << 16;

/// How far a number may be from the recorded one: `atol + rtol × |recorded|`, as in NumPy's `allclose`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The absolute part.
    pub atol: f64,
    /// The relative part.
    pub rtol: f64,
}

impl Tolerance {
    fn allows(self, expected: f64) -> f64 {
        self.atol + self.rtol * expected.abs()
    }

    /// Returns 0 for a number within the tolerance, else its distance as a multiple of the allowed one.
    pub(crate) fn excess(self, expected: f64, got: f64) -> f64 {
        // Equality covers equal infinities, whose distance is NaN.
        if expected == got || (expected.is_nan() && got.is_nan()) {
            return 0.0;
        }
        let distance = (expected - got).abs();
        if distance <= self.allows(expected) && distance.is_finite() {
            return 0.0;
        }
        if distance.is_finite() { distance / self.allows(expected) } else { f64::INFINITY }
    }
}

/// An error of a case, or of the model that fails it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The file cannot be read as an `.npz`.
    #[error("is not a readable .npz: {0}")]
    File(std::io::Error),
    /// An array cannot be used.
    #[error("array `{array}`: {why}")]
    Array {
        /// Its name.
        array: String,
        /// What is wrong with it.
        why: String,
    },
    /// An input or output of the model has no array.
    #[error("has no array for the {side} `{name}`; it has: {there}")]
    Missing {
        /// `input` or `output`.
        side: &'static str,
        /// The name in the model.
        name: String,
        /// The arrays of the case.
        there: String,
    },
    /// An array is neither an input nor an output.
    #[error("array `{array}` is neither an input nor an output of the model, which has: {there}")]
    Unknown {
        /// Its name.
        array: String,
        /// The model's inputs and outputs.
        there: String,
    },
    /// An array does not have the shape of its input or output.
    #[error("array `{array}` is {found:?}; expected {expected}")]
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
    arrays: Arc<BTreeMap<String, Weights>>,
}

/// The result of a case whose recorded outputs the model reproduces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tried {
    pub(crate) items: usize,
    /// The largest distance from the recorded values, by output.
    off: Vec<(String, f64)>,
    time_per_item: Duration,
}

impl Tried {
    /// Adds another run of the same case.
    fn add(&mut self, other: Tried) {
        for ((_, off), (_, other)) in self.off.iter_mut().zip(other.off) {
            *off = off.max(other);
        }
        // The first call of a session prepares it.
        self.time_per_item = self.time_per_item.min(other.time_per_item);
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (output, off) in &self.off {
            write!(f, "`{output}` at most {off:.2e} off, ")?;
        }
        write!(f, "{:.1} µs an item", self.time_per_item.as_secs_f64() * 1e6)
    }
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
    pub(crate) fn read_file(file: InputFile) -> Result<Case, CaseError> {
        let invalid = |why: String| CaseError::File(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
        // The zip and npy readers are third-party code that may panic on some files.
        caught(|| Case::read_npz(file)).map_err(invalid)?
    }

    /// Returns the first `len` numbers of the array of a port: its first item, repeated if it is shorter than the longest one.
    pub(crate) fn first_item(&self, port: &str, len: usize) -> Option<impl Iterator<Item = f64> + Clone + '_> {
        let array = self.arrays.get(port).filter(|array| !array.bytes.is_empty())?;
        Some(Access::for_dtype(array.dtype).values(&array.bytes).cycle().take(len))
    }

    /// Returns why the arrays cannot be items of some inputs, each with its array.
    pub(crate) fn misfits(&self, inputs: &[TensorSpec]) -> Vec<CaseError> {
        let wrong = |(name, array): (&String, &Weights)| {
            let there = || list(inputs.iter().map(|spec| &spec.name));
            match inputs.iter().find(|spec| spec.name == *name) {
                None => Some(CaseError::Unknown { array: name.clone(), there: there() }),
                Some(spec) if items_in(&array.shape, spec).is_none_or(|items| items == 0) => {
                    let (array, found, expected) = (name.clone(), array.shape.clone(), shape_text(spec));
                    Some(CaseError::Shape { array, found, expected })
                }
                Some(_) => None,
            }
        };
        self.arrays.iter().filter_map(wrong).collect()
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

    /// Runs the case three times in one session, at most `max_batch` items per call, compares the outputs, and returns the number
    /// of its items. The second time, the calls are made in the opposite order, except those of a model with a state: a runtime
    /// may keep something from one call to the next that it should not.
    ///
    /// # Errors
    /// Every mismatch between the case and the model's signature; else [`BackendError::Verify`] for the first output that
    /// differs, or the error of the call that failed.
    pub fn check<P: Prepared>(
        &self,
        prepared: &P,
        max_batch: usize,
        tolerance: Tolerance,
    ) -> Result<usize, Vec<CaseError>> {
        self.try_on(prepared, max_batch, tolerance).map(|tried| tried.items)
    }

    /// Like [`check`](Case::check), with the distance of each output and the time per item.
    pub(crate) fn try_on<P: Prepared>(
        &self,
        prepared: &P,
        max_batch: usize,
        tolerance: Tolerance,
    ) -> Result<Tried, Vec<CaseError>> {
        let session = |batch| prepared.session(batch).map(Box::new);
        self.check_with(prepared.signature(), prepared.is_stateful(), session, max_batch, tolerance)
    }

    /// Like [`try_on`](Case::try_on), for a model whose runtime is known only at run time.
    pub(crate) fn check_with<S: Session + ?Sized>(
        &self,
        signature: &Signature,
        is_stateful: bool,
        session: impl FnOnce(usize) -> Result<Box<S>, BackendError>,
        max_batch: usize,
        tolerance: Tolerance,
    ) -> Result<Tried, Vec<CaseError>> {
        let items = self.fit(signature)?;
        // The items of a stateful model are successive steps of one stream.
        let most = if is_stateful { 1 } else { signature.max_batch.unwrap_or(usize::MAX) };
        let batch = max_batch.min(most).clamp(1, items);
        let starts: Vec<usize> = (0..items).step_by(batch).collect();
        let reverse = || if is_stateful { starts.clone() } else { starts.iter().rev().copied().collect() };
        let run = || {
            let mut session = session(batch)?;
            let mut tried = self.run(signature, &mut *session, items, batch, &starts, tolerance)?;
            for starts in [reverse(), starts.clone()] {
                let again =
                    self.run(signature, &mut *session, items, batch, &starts, tolerance).map_err(
                        |error| match error {
                            CaseError::Model(BackendError::Verify { output, difference }) => {
                                let difference = format!("the first time as recorded, later {difference}");
                                BackendError::Verify { output, difference }.into()
                            }
                            other => other,
                        },
                    )?;
                tried.add(again);
            }
            Ok(tried)
        };
        match caught(run) {
            Ok(result) => result.map_err(|e: CaseError| vec![e]),
            Err(panic) => Err(vec![BackendError::Call(panic).into()]),
        }
    }

    /// Returns the number of items if the arrays match the model's inputs and outputs.
    fn fit(&self, signature: &Signature) -> Result<usize, Vec<CaseError>> {
        let mut wrong = Vec::new();
        let mut items = None;
        for (side, specs) in [("input", &signature.inputs), ("output", &signature.outputs)] {
            for spec in specs {
                let name = spec.name.clone();
                let Some(array) = self.arrays.get(&name) else {
                    wrong.push(CaseError::Missing { side, name, there: list(self.arrays.keys()) });
                    continue;
                };
                let found = array.shape.clone();
                match items_in(&array.shape, spec) {
                    Some(n) if (1..=MAX_ITEMS).contains(&n) && items.is_none_or(|items| items == n) => items = Some(n),
                    Some(n) if n > MAX_ITEMS => {
                        let why = format!("has {n} items; at most {MAX_ITEMS} are possible");
                        wrong.push(CaseError::Array { array: name, why });
                    }
                    Some(0) => wrong.push(CaseError::Array { array: name, why: "has no items".into() }),
                    Some(_) => {
                        let expected = format!("{} items, as in the other arrays", items.unwrap_or(0));
                        wrong.push(CaseError::Shape { array: name, found, expected });
                    }
                    None => wrong.push(CaseError::Shape { array: name, found, expected: shape_text(spec) }),
                }
                let access = Access::for_dtype(spec.dtype);
                if side == "input"
                    && items_in(&array.shape, spec).is_some()
                    && let Some(value) = values(array).find(|value| !access.holds(*value))
                {
                    let why = format!("holds {value}, which the model's {} cannot", spec.dtype);
                    wrong.push(CaseError::Array { array: spec.name.clone(), why });
                }
            }
        }
        let specs = || signature.inputs.iter().chain(&signature.outputs);
        for array in self.arrays.keys().filter(|name| specs().all(|s| s.name != **name)) {
            wrong.push(CaseError::Unknown { array: array.clone(), there: list(specs().map(|s| &s.name)) });
        }
        match items {
            Some(items) if wrong.is_empty() => Ok(items),
            _ => Err(wrong),
        }
    }

    fn run<S: Session + ?Sized>(
        &self,
        signature: &Signature,
        session: &mut S,
        items: usize,
        batch: usize,
        starts: &[usize],
        tolerance: Tolerance,
    ) -> Result<Tried, CaseError> {
        let mut took = Duration::ZERO;
        let mut lane = S::Lane::default();
        // Of an array, whose items may be shorter than the longest.
        let recorded = |specs: &[TensorSpec]| -> Vec<Vec<usize>> {
            specs.iter().map(|spec| item_of(&self.arrays[&spec.name].shape, spec).to_vec()).collect()
        };
        let (in_shapes, out_shapes) = (recorded(&signature.inputs), recorded(&signature.outputs));
        let mut worst: Vec<Worst> = signature.outputs.iter().map(|_| Worst::default()).collect();
        for start in starts.iter().copied() {
            let n = batch.min(items - start);
            // The values of items `start..start + n`; an array without an items dim has a single item.
            let part = |name: &str, len: usize| {
                let array = &self.arrays[name];
                let size = array.dtype.size();
                Access::for_dtype(array.dtype).values(&array.bytes[start * len * size..(start + n) * len * size])
            };
            let in_bytes: Vec<Vec<u8>> = signature
                .inputs
                .iter()
                .zip(&in_shapes)
                .map(|(spec, shape)| {
                    let len = shape.iter().product();
                    let mut bytes = vec![0; n * len * spec.dtype.size()];
                    Access::for_dtype(spec.dtype).write(part(&spec.name, len), &mut bytes);
                    bytes
                })
                .collect();
            let mut given_shapes: Vec<Vec<usize>> = signature.outputs.iter().map(item_shape).collect();
            let mut out_bytes: Vec<Vec<u8>> = std::iter::zip(&signature.outputs, &given_shapes)
                .map(|(spec, shape)| vec![0; n * shape.iter().product::<usize>() * spec.dtype.size()])
                .collect();
            let inputs: Vec<BatchRef<'_>> = signature
                .inputs
                .iter()
                .zip(&in_shapes)
                .zip(&in_bytes)
                .map(|((spec, shape), bytes)| BatchRef { dtype: spec.dtype, shape, bytes })
                .collect();
            let mut outputs: Vec<BatchMut<'_>> = signature
                .outputs
                .iter()
                .zip(&mut given_shapes)
                .zip(&mut out_bytes)
                .map(|((spec, shape), bytes)| BatchMut { dtype: spec.dtype, shape, bytes })
                .collect();
            let begun = Instant::now();
            session.infer_batch(n, &inputs, &mut outputs, std::slice::from_mut(&mut lane))?;
            took += begun.elapsed();
            if let Some(at) = (0..out_shapes.len()).find(|at| out_shapes[*at] != given_shapes[*at]) {
                let difference = format!("its shape is {:?}, recorded {:?}", given_shapes[at], out_shapes[at]);
                return Err(BackendError::Verify { output: signature.outputs[at].name.clone(), difference }.into());
            }
            for (((spec, shape), bytes), worst) in
                signature.outputs.iter().zip(&out_shapes).zip(&out_bytes).zip(&mut worst)
            {
                let len = shape.iter().product();
                let expected = part(&spec.name, len);
                let got = Access::for_dtype(spec.dtype).values(bytes);
                for (i, (expected, got)) in expected.zip(got).enumerate() {
                    worst.see(start * len + i, expected, got, tolerance);
                }
            }
        }
        let mut off = Vec::new();
        for (spec, worst) in signature.outputs.iter().zip(worst) {
            if let Some(difference) = worst.difference(&self.arrays[&spec.name].shape, tolerance) {
                return Err(BackendError::Verify { output: spec.name.clone(), difference }.into());
            }
            off.push((spec.name.clone(), worst.distance));
        }
        Ok(Tried { items, off, time_per_item: took / u32::try_from(items).unwrap_or(u32::MAX) })
    }
}

/// Returns the numbers of an array.
fn values(array: &Weights) -> impl Iterator<Item = f64> {
    Access::for_dtype(array.dtype).values(&array.bytes)
}

/// Returns how many items of a spec an array holds: its first dim, or 1 if it has the shape of one item.
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
fn item_of<'a>(shape: &'a [usize], spec: &TensorSpec) -> &'a [usize] {
    if shape.len() > spec.shape.len() { &shape[1..] } else { shape }
}

/// The number of an output that is furthest from its recorded value.
#[derive(Default)]
struct Worst {
    at: usize,
    expected: f64,
    got: f64,
    excess: f64,
    wrong: usize,
    seen: usize,
    /// The largest absolute difference.
    distance: f64,
}

impl Worst {
    fn see(&mut self, at: usize, expected: f64, got: f64, tolerance: Tolerance) {
        let excess = tolerance.excess(expected, got);
        self.seen += 1;
        self.wrong += usize::from(excess > 0.0);
        if expected != got {
            self.distance = self.distance.max((expected - got).abs());
        }
        if excess > self.excess {
            *self = Worst { at, expected, got, excess, ..*self };
        }
    }

    fn difference(&self, shape: &[usize], tolerance: Tolerance) -> Option<String> {
        if self.wrong == 0 {
            return None;
        }
        let mut index = vec![0; shape.len()];
        let mut rest = self.at;
        for (i, dim) in index.iter_mut().zip(shape).rev() {
            (*i, rest) = (rest % dim.max(&1), rest / dim.max(&1));
        }
        let Worst { expected, got, wrong, seen, .. } = self;
        let (apart, allowed) = (show((expected - got).abs()), show(tolerance.allows(*expected)));
        let Tolerance { atol, rtol } = tolerance;
        Some(format!(
            "at {index:?} expected {}, got {}: {apart} apart where {allowed} is allowed (atol {atol}, rtol {rtol}); \
             {wrong} of {seen} numbers differ, this one most",
            show(*expected),
            show(*got)
        ))
    }
}

/// Formats a number with the digits of an f32; as f64 it would show rounding noise.
fn show(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value}") } else { format!("{}", value as f32) }
}

fn list<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.into_iter().map(|n| format!("`{n}`")).collect();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

/// Returns the shape of the longest item.
fn item_shape(spec: &TensorSpec) -> Vec<usize> {
    spec.shape.iter().map(|d| d.max().unwrap_or(0)).collect()
}

fn shape_text(spec: &TensorSpec) -> String {
    let dims: Vec<_> = std::iter::once("items".to_string()).chain(spec.shape.iter().map(Dim::to_string)).collect();
    format!("[{}]", dims.join(", "))
}

#[cfg(test)]
pub(crate) mod test_files {
    use std::io::Write;
    use std::path::Path;

    /// Returns the bytes of an `.npy` file.
    pub(crate) fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let mut header = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}").into_bytes();
        header.push(b'\n');
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00".as_slice(), &length, &header, data].concat()
    }

    pub(crate) fn f32s(shape: &str, data: &[f32]) -> Vec<u8> {
        npy("'<f4'", "False", shape, bytemuck::cast_slice(data))
    }

    /// Writes an `.npz`.
    pub(crate) fn write_npz(path: &Path, arrays: &[(&str, Vec<u8>)]) {
        let mut npz = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
        for (name, bytes) in arrays {
            npz.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
            npz.write_all(bytes).unwrap();
        }
        npz.finish().unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::test_files::{f32s, npy, write_npz};
    use super::*;
    use crate::backend::{Mock, MockConfig, MockPrepared};
    use crate::weights::parse_npy;
    use limen::backend::Backend;

    fn read(arrays: &[(&str, Vec<u8>)]) -> Result<Case, CaseError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("case.npz");
        write_npz(&path, arrays);
        Case::read(&path)
    }

    /// Takes two bytes and returns their sum, and their sum plus one.
    fn mock(change: impl FnOnce(&mut MockConfig)) -> MockPrepared {
        let one = |name: &str, spec: &str| BTreeMap::from([(name.to_string(), spec.to_string())]);
        let mut config = MockConfig { inputs: one("x", "u8[2]"), outputs: one("y", "f32[2]"), ..MockConfig::default() };
        change(&mut config);
        Mock::prepare(config).unwrap()
    }

    fn check(arrays: &[(&str, Vec<u8>)], prepared: &MockPrepared) -> Result<usize, String> {
        let tolerance = Tolerance { atol: 0.1, rtol: 0.01 };
        let wrong = |all: Vec<CaseError>| all.iter().map(CaseError::to_string).collect::<Vec<_>>().join("; ");
        read(arrays).unwrap().check(prepared, 2, tolerance).map_err(wrong)
    }

    fn x() -> (&'static str, Vec<u8>) {
        ("x", npy("'|u1'", "False", "(3, 2)", &[1, 2, 3, 4, 50, 50]))
    }

    #[test]
    fn a_case_is_run_in_batches_and_compared() {
        let right = ("Y", f32s("(3, 2)", &[3.0, 4.05, 7.0, 8.0, 100.0, 102.0]));
        // Three items in batches of two; `Y` matches the port `y`.
        assert_eq!(check(&[x(), right.clone()], &mock(|_| ())), Ok(3));
        assert_eq!(check(&[x(), right], &mock(|m| m.max_batch = Some(1))), Ok(3));
    }

    #[test]
    fn the_error_names_the_number_furthest_off() {
        let y = ("y", f32s("(3, 2)", &[3.0, 4.2, 7.0, f32::NAN, 100.0, 101.0]));
        assert_eq!(
            check(&[x(), y], &mock(|_| ())),
            Err("output `y` differs from what was recorded: at [1, 1] expected NaN, got 8: NaN apart where NaN is allowed \
                 (atol 0.1, rtol 0.01); 2 of 6 numbers differ, this one most"
                .into())
        );
        let y = ("y", f32s("(3, 2)", &[3.0, 4.0, 7.0, 8.0, 100.0, 103.5]));
        let why = check(&[x(), y], &mock(|_| ())).unwrap_err();
        assert!(why.contains("at [2, 1] expected 103.5, got 101: 2.5 apart where 1.135 is allowed"), "{why}");
    }

    #[test]
    fn tolerance_follows_numpy() {
        let tolerance = Tolerance { atol: 0.1, rtol: 0.01 };
        for (expected, got, right) in [
            (0.0, 0.1, true),
            (0.0, 0.11, false),
            (100.0, 101.1, true),
            (100.0, 101.2, false),
            (f64::NAN, f64::NAN, true),
            (1.0, f64::NAN, false),
            (f64::INFINITY, f64::INFINITY, true),
            (f64::INFINITY, f64::NEG_INFINITY, false),
            (f64::INFINITY, 1.0, false),
        ] {
            assert_eq!(tolerance.excess(expected, got) == 0.0, right, "{expected} {got}");
        }
        assert!(Tolerance { atol: 0.0, rtol: 0.0 }.excess(0.0, 1e-30) > 0.0);
    }

    #[test]
    fn a_case_that_does_not_fit_reports_every_mismatch() {
        let why =
            check(&[("x", npy("'<i8'", "False", "(1, 2)", &[0; 16])), ("z", f32s("(1,)", &[0.0]))], &mock(|_| ()));
        let why = why.unwrap_err();
        assert!(why.contains("has no array for the output `y`; it has: `x`, `z`"), "{why}");
        assert!(why.contains("array `z` is neither an input nor an output of the model, which has: `x`, `y`"), "{why}");
        let big = ("x", npy("'<i2'", "False", "(1, 2)", &[0, 1, 0, 0]));
        let why = check(&[big, ("y", f32s("(2, 2)", &[0.0; 4]))], &mock(|_| ())).unwrap_err();
        assert!(why.contains("array `x`: holds 256, which the model's u8 cannot"), "{why}");
        assert!(why.contains("array `y` is [2, 2]; expected 1 items, as in the other arrays"), "{why}");
        let why = check(&[x(), ("y", f32s("(3, 3)", &[0.0; 9]))], &mock(|_| ())).unwrap_err();
        assert_eq!(why, "array `y` is [3, 3]; expected [items, 2]");
    }

    #[test]
    fn failures_and_panics_of_the_model_are_errors() {
        let y = || ("y", f32s("(3, 2)", &[0.0; 6]));
        assert!(check(&[x(), y()], &mock(|m| m.fail_at = Some(2))).unwrap_err().contains("call 2 fails"));
        assert!(check(&[x(), y()], &mock(|m| m.panic_at = Some(1))).unwrap_err().contains("it panicked: mock: call 1"));
    }

    #[test]
    fn arrays_of_every_type_are_read() {
        for (descr, data, values) in [
            ("'<f2'", vec![0, 0x3c], [1.0]),
            ("'>f4'", vec![0x3f, 0x80, 0, 0], [1.0]),
            ("'<f8'", 1.5f64.to_le_bytes().to_vec(), [1.5]),
            ("'<i8'", (-7i64).to_le_bytes().to_vec(), [-7.0]),
            ("'<u2'", vec![0, 1], [256.0]),
            ("'|b1'", vec![1], [1.0]),
        ] {
            let array = parse_npy(&npy(descr, "False", "(1,)", &data)).unwrap();
            assert_eq!(super::values(&array).collect::<Vec<_>>(), values, "{descr}");
        }
    }

    #[test]
    fn arrays_that_cannot_be_used_are_errors() {
        let deep = format!("({})", "(".repeat(500));
        for (bytes, why) in [
            (npy("'<f4'", "True", "(1, 1)", &[0; 4]), "is in Fortran order"),
            (npy("'<c8'", "False", "(1,)", &[0; 8]), "elements are '<c8'"),
            (npy("[('a', '<f4')]", "False", "(1,)", &[0; 4]), "has fields"),
            (npy("'<f4'", "False", "(2,)", &[0; 4]), "array `a`: has 4 bytes of numbers; f32[2] takes 8"),
            (npy("'<f4'", "False", "(1,)", &[0; 8]), "array `a`: has 8 bytes of numbers; f32[1] takes 4"),
            (
                npy("'<f4'", "False", "(99999999999,)", &[0; 4]),
                "array `a`: takes 373 GiB; the arrays of a file may take 64.0 MiB",
            ),
            (npy("'<f4'", "False", "(99999999999, 99999999999)", &[0; 4]), "array `a`: "),
            (npy("'<f4'", "False", &deep, &[]), "a header that NumPy does not write"),
            (b"\x93NUMPY\x02\x00\xff\xff".to_vec(), "truncated or oversized header"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(), "truncated or oversized header"),
            (b"".to_vec(), "is not an .npy"),
        ] {
            let error = read(&[("a", bytes)]).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
        let error = Case::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml").as_path()).unwrap_err();
        assert!(error.to_string().starts_with("is not a readable .npz: "), "{error}");
    }
}
