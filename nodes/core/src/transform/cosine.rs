//! The similarity of vectors.

use crate::file::input_file::{self, FileProblem};
use crate::tensor::cost;
use limen::files::InputFile;
use limen::message::{DType, Dim, PortSpec};
use limen::node::{
    Building, Connected, Cost, Emit, Many, MessageSet, Node, NodeError, PlanErrors, Planning, Ports, Transform,
};
use limen::{Folders, Tensor};
use limen_npy::ElementKind;
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{BufReader, Read};

/// Computes the cosine of the angle between vectors, from −1 to 1.
///
/// Vectors with the same direction have a similarity of 1. The similarity to a zero vector is 0. A
/// vector that contains NaN or infinity fails the call.
///
/// With `references`, the node finds the most similar reference for each input vector `f32[d]`. The
/// output `index` (`i32[]`) is the index of the reference, from 0. The output `similarity` is
/// `f32[]`. If several references are equally similar, the node selects the first one.
///
/// Without `references`, the node compares the inputs `a` and `b`, both `f32[d]`. The output is
/// `similarity` (`f32[]`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CosineConfig {
    /// NumPy `.npy` file with one reference vector per row (`f32[n,d]`). The path is relative to
    /// the graph's folder. By default, the node compares the inputs `a` and `b`.
    pub references: Option<String>,
}

/// The shape of the references in a file, positioned at the first.
struct ReferenceFile {
    file: BufReader<InputFile>,
    count: usize,
    length: usize,
}

impl ReferenceFile {
    fn open(path: &str, folders: &Folders) -> Result<Self, FileProblem> {
        let file = input_file::open(path, folders)?;
        let size = file.size();
        let mut file = BufReader::with_capacity(64 << 10, file);
        let shape = limen_npy::NpyHeader::read(&mut file).map_err(|error| error.to_string());
        match shape.and_then(|header| reference_shape(&header, size)) {
            Ok([count, length]) => Ok(ReferenceFile { file, count, length }),
            Err(why) => Err((
                format!("`{path}`: {why}"),
                "save an array with a vector per row: `numpy.save(path, numpy.ascontiguousarray(vectors, 'float32'))`"
                    .into(),
            )),
        }
    }

    /// Reads all vectors and divides each by its length.
    fn read(mut self) -> std::io::Result<Vec<f32>> {
        let mut vectors = Vec::with_capacity(self.count * self.length);
        let mut bytes = vec![0; self.length * size_of::<f32>()];
        for at in 0..self.count {
            self.file.read_exact(&mut bytes)?;
            let start = vectors.len();
            vectors.extend(bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)));
            let inverse = inverse_length(&vectors[start..]);
            if let Some(value) = vectors[start..].iter().find(|value| !value.is_finite()) {
                let why = format!("the elements of vector {at} must be finite, got {value}");
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
            }
            vectors[start..].iter_mut().for_each(|value| *value = (f64::from(*value) * inverse) as f32);
        }
        Ok(vectors)
    }
}

/// Returns number and length of the vectors in a file of `size` bytes.
fn reference_shape(header: &limen_npy::NpyHeader, size: u64) -> Result<[usize; 2], String> {
    let element = &header.element;
    if (element.kind, element.size, element.is_big_endian) != (ElementKind::Float, 4, false) {
        return Err(format!("expected elements of type <f4, found {element}"));
    }
    if header.is_fortran {
        return Err("expected C order, found Fortran order".into());
    }
    let [count, length] = header.shape[..] else {
        return Err(format!("expected 2 dims, found {}", header.shape.len()));
    };
    let needed = count.checked_mul(length).and_then(|n| n.checked_mul(4)?.checked_add(header.start as u64));
    if !(1..=i32::MAX as u64).contains(&count) || length == 0 || needed.is_none_or(|needed| needed > size) {
        return Err(format!("expected {count} vectors of {length} elements, found a file of {size} bytes"));
    }
    let as_size =
        |n| usize::try_from(n).map_err(|_| format!("the array must fit into memory, got the shape {:?}", header.shape));
    Ok([as_size(count)?, as_size(length)?])
}

/// Returns 1 / the length of a vector, 0 if that is 0.
fn inverse_length(vector: &[f32]) -> f64 {
    let square: f64 = vector.iter().map(|value| f64::from(*value).powi(2)).sum();
    if square == 0.0 { 0.0 } else { 1.0 / square.sqrt() }
}

/// Returns the sum of the products.
fn product(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Returns the similarity for a scaled product: within −1 and 1 whatever was rounded; `None` if it
/// is NaN.
fn similarity(scaled: f64) -> Option<f32> {
    (!scaled.is_nan()).then(|| scaled.clamp(-1.0, 1.0) as f32)
}

/// Returns index and similarity of the most similar reference, all of which have length 1 or 0.
fn nearest(vector: &[f32], references: &[f32]) -> Option<(usize, f32)> {
    let inverse = inverse_length(vector);
    let mut best = None;
    for (reference, at) in references.chunks_exact(vector.len().max(1)).zip(0..) {
        let found = similarity(product(vector, reference) * inverse)?;
        if best.is_none_or(|(_, best)| found > best) {
            best = Some((at, found));
        }
    }
    best
}

/// Runs `kind: cosine`; [`CosineConfig`] says what it does.
#[derive(Debug)]
pub struct Cosine {
    /// Without references, two inputs are compared.
    references: Option<Vec<f32>>,
}

impl Node for Cosine {
    type Config = CosineConfig;

    fn ports(config: &CosineConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let similarity = PortSpec::fixed(DType::F32, []);
        let Some(path) = &config.references else {
            // The engine refuses another rank or length when it compares `b` with the dim of `a`.
            let length = given.input("a").or(given.input("b")).and_then(|spec| spec.shape.first().cloned());
            let vector = PortSpec::new(DType::F32, [length.unwrap_or_else(|| Dim::Symbol("d".into()))]);
            if given.inputs().any(|(name, _)| name == "in") {
                errors
                    .node("the input `in` requires `references`")
                    .help("write `references: FILE.npy`, or `inputs: { a: .., b: .. }`");
            }
            return errors.into_result(
                Ports::new()
                    .input("a", vector.clone())
                    .input("b", vector)
                    .output("similarity", similarity)
                    .cost(Cost::Medium),
            );
        };
        let mut ports = Ports::new().cost(Cost::Medium);
        ports = match ReferenceFile::open(path, cx.folders) {
            Ok(ReferenceFile { count, length, .. }) => {
                let elements = count.saturating_mul(length);
                ports
                    .cost(cost::of(elements).max(Cost::Medium))
                    .memory(elements.saturating_mul(size_of::<f32>()))
                    .note(format!("references: {count}"))
                    .input("in", PortSpec::fixed(DType::F32, [length]))
            }
            Err((message, help)) => {
                errors.at("references", message).help(help);
                ports.input_any("in")
            }
        };
        errors.into_result(ports.output("index", PortSpec::fixed(DType::I32, [])).output("similarity", similarity))
    }

    fn build(config: CosineConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let Some(path) = config.references else { return Ok(Cosine { references: None }) };
        let opened = ReferenceFile::open(&path, cx.folders()).map_err(|(why, _)| NodeError::input(&*path, why))?;
        // The file may have been replaced since planning.
        let planned = cx.inputs().first().and_then(|(_, spec)| spec.as_ref()?.max_elements());
        if let Some(planned) = planned.filter(|planned| *planned != opened.length) {
            let found = opened.length;
            let why = format!("expected vectors of {planned} elements as planned, found {found}: restart the graph");
            return Err(NodeError::input(&*path, why));
        }
        let references = opened.read().map_err(|error| NodeError::file(&path, error))?;
        Ok(Cosine { references: Some(references) })
    }
}

impl Transform for Cosine {
    type In = Many<Tensor>;
    type Out = Many<Tensor>;

    fn apply(&mut self, input: MessageSet<Tensor>, out: &mut Emit<Many<Tensor>>) -> Result<(), NodeError> {
        let header = out.header_of::<Self::In>(&input);
        let vector = input[0].body.as_slice::<f32>()?;
        let (found, name) = match &self.references {
            Some(references) => (nearest(vector, references), "in"),
            None => {
                let other = input.get(1).map_or(Ok(&[][..]), |other| other.body.as_slice::<f32>())?;
                if other.len() != vector.len() {
                    let why = format!("expected {} elements as in `a`, found {}", vector.len(), other.len());
                    return Err(NodeError::input("b", why));
                }
                let scale = inverse_length(vector) * inverse_length(other);
                let wrong = if vector.iter().all(|value| value.is_finite()) { "b" } else { "a" };
                (similarity(product(vector, other) * scale).map(|similarity| (0, similarity)), wrong)
            }
        };
        let (at, best) = found.ok_or_else(|| NodeError::input(name, "the elements of a vector must be finite"))?;
        for port in out.iter_mut().filter(|port| port.is_connected()) {
            let mut tensor = port.loan(header)?;
            match port.name() {
                "index" => tensor.as_mut_slice::<i32>()?[0] = at as i32,
                _ => tensor.as_mut_slice::<f32>()?[0] = best,
            }
            port.send(tensor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> Vec<f32> {
        (0..15).map(|i| ((i * i * 37 + i * 11 + 5) % 1000) as f32 / 1000.0 - 0.5).collect()
    }

    /// The expected similarities are those of NumPy: `dot(x, y) / norm(x) / norm(y)`.
    #[test]
    fn the_similarity_is_the_cosine_of_the_angle() {
        let values = numbers();
        let (x, others) = values.split_at(3);
        let expected = [-0.405_408_5, -0.382_232_4, 0.060_351_62, 0.886_197];
        for (y, expected) in others.chunks_exact(3).zip(expected) {
            let found = similarity(product(x, y) * inverse_length(x) * inverse_length(y)).unwrap();
            assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
        }
    }

    #[test]
    fn the_first_of_the_most_similar_references_wins() {
        const NAN: f32 = f32::NAN;
        let half = 0.5f32.sqrt();
        let references = [0.0, 0.0, 1.0, 0.0, half, half, half, half, -1.0, 0.0];
        for (vector, expected) in [
            ([5.0, 5.0], Some((2, 1.0))),
            ([2.0, 0.0], Some((1, 1.0))),
            ([-3e38, 0.0], Some((4, 1.0))),
            ([0.0, -1.0], Some((0, 0.0))),
            ([0.0, 0.0], Some((0, 0.0))),
            ([NAN, 1.0], None),
            ([f32::INFINITY, 1.0], None),
        ] {
            let found = nearest(&vector, &references);
            assert_eq!(found.map(|(at, _)| at), expected.map(|(at, _)| at), "{vector:?}");
            assert!(
                found.zip(expected).is_none_or(|((_, a), (_, b)): (_, (_, f32))| (a - b).abs() < 1e-6),
                "{found:?}"
            );
        }
        assert_eq!(nearest(&[1.0], &[]), None);
    }

    #[test]
    fn references_are_read_from_a_file_and_have_length_1() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let write = |kind: &str, order: &str, shape: &str, bytes: &[u8]| {
            let text = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}");
            let file = [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), bytes].concat();
            std::fs::write(folder.path().join("v.npy"), file).unwrap();
            ReferenceFile::open("v.npy", &folders)
        };
        let vectors: Vec<u8> = [3.0f32, 4.0, 0.0, 0.0].iter().flat_map(|n| n.to_le_bytes()).collect();
        let file = write("<f4", "False", "(2, 2)", &vectors).unwrap_or_else(|(message, _)| panic!("{message}"));
        assert_eq!((file.count, file.length), (2, 2));
        assert_eq!(file.read().unwrap(), [0.6, 0.8, 0.0, 0.0]);
        let infinite: Vec<u8> = [3.0, 4.0, f32::INFINITY, 0.0].iter().flat_map(|n| n.to_le_bytes()).collect();
        let file = write("<f4", "False", "(2, 2)", &infinite).unwrap_or_else(|(message, _)| panic!("{message}"));
        assert!(file.read().unwrap_err().to_string().contains("vector 1 must be finite"));
        for (kind, order, shape, expected) in [
            ("<f8", "False", "(1, 2)", "found <f8"),
            (">f4", "False", "(2, 2)", "found >f4"),
            ("<f4", "True", "(2, 2)", "Fortran order"),
            ("<f4", "False", "(4,)", "expected 2 dims, found 1"),
            ("<f4", "False", "(3, 2)", "found a file of"),
            ("<f4", "False", "(0, 2)", "0 vectors"),
            ("<f4", "False", "(2, 0)", "of 0 elements"),
            ("<f4", "False", "(18446744073709551615, 2)", "found a file of"),
            ("<f4", "False", "(4294967296, 4294967296)", "found a file of"),
        ] {
            let Err((message, _)) = write(kind, order, shape, &vectors) else { panic!("not refused: {shape}") };
            assert!(message.starts_with("`v.npy`: ") && message.contains(expected), "{message}");
        }
    }
}
