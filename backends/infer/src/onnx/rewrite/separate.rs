//! The weights of a model in a buffer of their own, for a runtime that copies those inside the file
//! but not those beside it.

use super::edit::{GRAPH, replace};
use super::wire;
use prost::Message;

/// The field numbers of `onnx.proto`.
const INITIALIZER: u32 = 5;
const RAW: u32 = 9;
/// The value of `data_location` for bytes in another file.
const EXTERNAL: i32 = 1;

/// The start of each weight is a multiple of it, in bytes: enough for every dtype.
const ALIGNMENT: usize = 8;
/// Smaller weights stay in the model.
const LEAST_BYTES: usize = 1 << 10;

/// The fields of a weight that say what its bytes are.
#[derive(Clone, PartialEq, Message)]
struct WeightForm {
    #[prost(int32, tag = "2")]
    elem: i32,
    #[prost(int32, tag = "14")]
    location: i32,
}

/// The fields of a weight that say where its bytes are.
#[derive(Clone, PartialEq, Message)]
struct BytesPlace {
    #[prost(message, repeated, tag = "13")]
    external: Vec<wire::Entry>,
    #[prost(int32, tag = "14")]
    location: i32,
}

/// Returns the file of a model whose large weights of the types `elems` are in the file `name`
/// beside it, and leaves in `file` the content of that file. They are moved inside `file`, not
/// copied. `None` if there are no such weights; `file` is then as it was.
pub(crate) fn separate_weights(file: &mut Vec<u8>, name: &str, elems: &[i32]) -> Option<Vec<u8>> {
    let start = file.as_ptr().addr();
    if !start.is_multiple_of(ALIGNMENT) {
        return None;
    }
    let mut moves: Vec<(usize, usize, usize)> = Vec::new();
    let (mut end, mut fits) = (0usize, true);
    let model = replace(file, GRAPH, |graph| {
        let graph = replace(graph, INITIALIZER, |tensor| {
            let form = WeightForm::decode(tensor).ok()?;
            if !elems.contains(&form.elem) || form.location != 0 {
                return None;
            }
            let mut place = Vec::new();
            let mut rest = replace(tensor, RAW, |raw| {
                if raw.len() < LEAST_BYTES {
                    return None;
                }
                let (from, to) = (raw.as_ptr().addr() - start, end.next_multiple_of(ALIGNMENT));
                // What stands before the bytes of a weight is longer than the alignment. Of several
                // such fields the last counts.
                fits &= to <= from && place.is_empty();
                moves.push((from, to, raw.len()));
                end = to + raw.len();
                let entry = |key: &str, value: String| wire::Entry { key: key.into(), value };
                let (offset, length) = (to.to_string(), raw.len().to_string());
                let external = vec![entry("location", name.into()), entry("offset", offset), entry("length", length)];
                place = BytesPlace { external, location: EXTERNAL }.encode_to_vec();
                Some(Vec::new())
            })?;
            rest.extend(place);
            Some(vec![rest])
        })?;
        Some(vec![graph])
    })?;
    if !fits {
        return None;
    }
    for (from, to, length) in moves {
        file.copy_within(from..from + length, to);
    }
    file.truncate(end);
    Some(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::{floats, model};
    use rten_onnx::onnx::{DataType as D, TensorProto};

    const FLOAT: i32 = 1;

    fn raw(name: &str, values: usize, dtype: D) -> TensorProto {
        let bytes: Vec<u8> = (0..values * 4).map(|at| (at * 7 + name.len()) as u8).collect();
        let tensor = floats(name, &[values as i64], &[]);
        TensorProto { raw_data: Some(bytes.into()), data_type: Some(dtype), ..tensor }
    }

    fn file(weights: &[TensorProto]) -> Vec<u8> {
        let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
        model(&[x], &[y], weights, &["y = Relu x"])
    }

    fn weights(file: &[u8]) -> Vec<wire::Tensor> {
        wire::Model::decode(file).unwrap().graph.unwrap().initializers
    }

    #[test]
    fn large_weights_are_separated_and_keep_their_bytes() {
        let all = [
            raw("small", 8, D::FLOAT),
            raw("a", 300, D::FLOAT),
            floats("typed", &[2], &[1.0, 2.0]),
            raw("bcd", 4001, D::FLOAT),
            raw("other", 2000, D::INT32),
            raw("ef", 513, D::FLOAT),
        ];
        let whole = file(&all);
        let mut buffer = whole.clone();
        let separated = weights(&separate_weights(&mut buffer, "w.data", &[FLOAT]).unwrap());
        let mut end = 0;
        for (before, after) in std::iter::zip(weights(&whole), separated) {
            assert_eq!((&before.name, &before.dims, before.elem), (&after.name, &after.dims, after.elem));
            if ["small", "typed", "other"].contains(&&*before.name) {
                assert_eq!(before, after);
                continue;
            }
            let entry = |key: &str| &after.external.iter().find(|entry| entry.key == key).unwrap().value;
            let (offset, length): (usize, usize) = (entry("offset").parse().unwrap(), entry("length").parse().unwrap());
            assert_eq!((entry("location").as_str(), offset % ALIGNMENT, after.raw), ("w.data", 0, None));
            assert_eq!(buffer[offset..offset + length], before.raw.unwrap()[..], "{}", before.name);
            end = offset + length;
        }
        assert_eq!(buffer.len(), end);
    }

    #[test]
    fn a_file_without_large_weights_or_a_damaged_one_is_left_alone() {
        let whole = file(&[raw("small", 8, D::FLOAT), raw("large", 300, D::FLOAT)]);
        let twice = replace(&whole, GRAPH, |graph| {
            let graph = replace(graph, INITIALIZER, |tensor| {
                Some(vec![replace(tensor, RAW, |raw| Some(vec![raw.to_vec(), raw.to_vec()]))?])
            })?;
            Some(vec![graph])
        });
        for (mut given, elems) in [
            (file(&[raw("small", 8, D::FLOAT)]), &[FLOAT][..]),
            (whole.clone(), &[2]),
            (whole[..whole.len() - 700].to_vec(), &[FLOAT]),
            (twice.unwrap(), &[FLOAT]),
        ] {
            let before = given.clone();
            assert_eq!(separate_weights(&mut given, "w.data", elems), None);
            assert_eq!(given, before);
        }
        for length in 0..whole.len() {
            let _ = separate_weights(&mut whole[..length].to_vec(), "w.data", &[FLOAT]);
        }
    }
}
