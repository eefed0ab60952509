//! Tests of every runtime that is built in.

use super::answers::answers;
use crate::base::{BackendOptions, caught};
use crate::onnx::test_models::{Io, external, field, floats, graphs, ints, model, model_of_opset};
use crate::onnx::test_subgraphs::case_of;
use crate::onnx::{
    Artifact, ConstantInput, ItemComparison, Loaded, ModelState, Onnx, OnnxLane, OnnxModel, OnnxPrepared, OnnxSession,
    Op, Runtime, compare_items,
};
use crate::verify::Tolerance;
use limen::backend::{Backend, BackendError, BatchMut, BatchRef, Prepared, Session, TensorSpec};
use limen::message::{DType, Dim, Memory};
use limen::policy::Trials;
use rten_onnx::onnx;
use rten_onnx::onnx::DataType as D;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const STRICT: Tolerance = Tolerance { atol: 1e-4, rtol: 1e-3 };
const MODELS: [&str; 3] = ["digits/digits", "classify/classifier", "detect/detector"];

/// Makes a test of each of these functions with every runtime.
macro_rules! on_every_runtime {
    ($($test:ident)*) => {
        #[cfg(feature = "rten")]
        mod rten { $(#[test] fn $test() { super::$test::<crate::backend::RtenRuntime>() })* }
        #[cfg(feature = "rten")]
        mod warmed { $(#[test] fn $test() { super::$test::<crate::backend::tests::warm_up::Warmed>() })* }
        #[cfg(feature = "tract")]
        mod tract { $(#[test] fn $test() { super::$test::<crate::backend::TractRuntime>() })* }
        #[cfg(feature = "ort")]
        mod ort { $(#[test] fn $test() { super::$test::<crate::backend::OrtRuntime>() })* }
    };
}

mod batches;
mod capabilities;
mod deviations;
mod files;
mod guard;
mod lengths;
#[cfg(feature = "ort")]
mod nvidia;
mod ports;
mod recurrent;
#[cfg(all(feature = "ort", any(feature = "rten", feature = "tract")))]
mod rewritten;
mod shipped_models;
mod states;
#[cfg(feature = "rten")]
mod warm_up;
#[cfg(feature = "ort")]
mod webgpu;
mod wrong_models;

fn prepare<R: Runtime>(path: &str) -> OnnxPrepared<R> {
    Onnx::<R>::prepare(OnnxModel { path: graphs(path), ..OnnxModel::default() }).unwrap()
}

fn prepare_bytes<R: Runtime>(bytes: Vec<u8>, shapes: &[(&str, &[usize])]) -> Result<OnnxPrepared<R>, BackendError> {
    let fixed = |shape: &[usize]| shape.iter().copied().map(Dim::Fixed).collect();
    let shapes = shapes.iter().map(|(name, shape)| (name.to_string(), fixed(shape))).collect();
    Onnx::<R>::prepare(OnnxModel { path: "model.onnx".into(), bytes: Some(bytes), shapes, ..OnnxModel::default() })
}

/// Runs a session with one f32 input and one f32 output.
fn call<R: Runtime>(
    session: &mut OnnxSession<R>,
    batch: usize,
    x: &[u8],
    item: &[usize],
    y: &mut [f32],
) -> Result<(), BackendError> {
    let input = BatchRef { dtype: DType::F32, shape: item, bytes: x };
    let output = BatchMut { dtype: DType::F32, shape: &mut [], bytes: bytemuck::cast_slice_mut(y) };
    session.infer_batch(batch, &[input], &mut [output], &mut vec![OnnxLane::default(); batch])
}

/// Like [`call`], with as many items of this shape as there are, and this many numbers for each.
fn numbers<R: Runtime>(
    session: &mut OnnxSession<R>,
    item: &[usize],
    x: &[f32],
    each: usize,
) -> Result<Vec<f32>, String> {
    let batch = x.len() / item.iter().product::<usize>();
    let mut y = vec![9f32; batch * each];
    let called = call(session, batch, bytemuck::cast_slice(x), item, &mut y);
    called.map(|()| y).map_err(|error| error.to_string())
}

fn pixels(images: usize) -> Vec<f32> {
    (0..images * 64).map(|i| (i * 37 % 101) as f32 / 101.0).collect()
}
