//! Offset and length of weights in other files, written out for runtimes that expect them: ONNX
//! lets both be left out.

use super::edit::{GRAPH, replace};
use super::outline::Outline;
use super::wire::{Entry, Tensor};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::collections::HashMap;

/// The field numbers of `onnx.proto`.
const INITIALIZER: u32 = 5;
const EXTERNAL: u32 = 13;

/// Returns the file of a model in which each weight in another file has its offset and its length;
/// `None` if none lacks one.
pub(crate) fn with_external_places(file: &[u8], outline: &Outline) -> Option<Vec<u8>> {
    let places = outline.weights.iter().filter_map(|weight| Some((&*weight.name, weight.external.as_ref()?)));
    let places: HashMap<&str, _> = places.collect();
    if places.is_empty() {
        return None;
    }
    replace(file, GRAPH, |graph| {
        let graph = replace(graph, INITIALIZER, |raw| {
            let tensor = Tensor::decode(raw).ok()?;
            let place = places.get(&*tensor.name).filter(|_| tensor.location == 1)?;
            let numbers = [("offset", place.offset), ("length", place.length)];
            let missing = numbers.iter().filter(|(key, _)| tensor.external.iter().all(|entry| entry.key != *key));
            let mut whole = raw.to_vec();
            for (key, number) in missing {
                let entry = Entry { key: key.to_string(), value: number.to_string() }.encode_to_vec();
                encode_key(EXTERNAL, WireType::LengthDelimited, &mut whole);
                encode_varint(entry.len() as u64, &mut whole);
                whole.extend(entry);
            }
            (whole.len() > raw.len()).then(|| vec![whole])
        })?;
        Some(vec![graph])
    })
}
