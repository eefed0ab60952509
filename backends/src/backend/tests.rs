//! Tests of every runtime that is built in.

use super::answers::answers;
use crate::base::{BackendOptions, caught};
use crate::onnx::test_models::{Io, case_of, external, field, floats, graphs, ints, model, model_of_opset};
use crate::onnx::{
    Artifact, Constant, Loaded, ModelState, Onnx, OnnxLane, OnnxModel, OnnxPrepared, OnnxSession, Op, Runtime,
};
use crate::verify::Tolerance;
use limen::backend::{Backend, BackendError, BatchMut, BatchRef, Prepared, Session, TensorSpec};
use limen::message::{DType, Dim};
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
        #[cfg(feature = "tract")]
        mod tract { $(#[test] fn $test() { super::$test::<crate::backend::TractRuntime>() })* }
        #[cfg(feature = "ort")]
        mod ort { $(#[test] fn $test() { super::$test::<crate::backend::OrtRuntime>() })* }
    };
}

mod deviations;
mod lengths;
mod recurrent;
#[cfg(all(feature = "ort", any(feature = "rten", feature = "tract")))]
mod rewritten;

on_every_runtime! {
    the_shipped_models_have_their_signatures
    the_shipped_models_give_the_recorded_numbers
    outputs_that_differ_from_the_recorded_ones_are_named
    a_batch_of_eight_is_eight_batches_of_one
    batches_are_padded_to_what_was_compiled
    a_truncated_model_is_an_error
    a_damaged_model_never_panics
    a_file_of_another_kind_is_named
    contradictory_models_are_refused
    symbolic_dims_get_their_lengths_from_connected_inputs
    a_declared_batch_that_the_model_does_not_compute_is_detected
    fixed_and_missing_batch_dims_take_one_item
    wide_integers_travel_as_i32_and_names_become_ports
    operators_that_do_not_exist_are_named
    unaligned_buffers_are_copied
    nodes_with_the_same_file_share_its_weights
    weights_may_be_in_files_beside_the_model
    more_threads_give_the_same_numbers
    each_stream_has_its_own_state
    constants_are_part_of_every_call
    a_length_of_minus_one_is_unknown
    a_lazy_model_is_prepared_by_its_first_call
    a_model_for_one_item_is_not_tried_on_two
    the_guard_detects_non_finite_numbers
}

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

fn the_shipped_models_have_their_signatures<R: Runtime>() {
    let shown = |model: &str| {
        let prepared = prepare::<R>(&format!("{model}.onnx"));
        let signature = prepared.signature();
        assert_eq!((signature.max_batch, prepared.single()), (None, None));
        let sides = signature.inputs.iter().chain(&signature.outputs);
        let text = |s: &TensorSpec| format!("{} {}", s.name, limen::message::PortSpec::new(s.dtype, s.shape.clone()));
        sides.map(text).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(shown(MODELS[0]), "image f32[1,8,8], logits f32[10]");
    assert_eq!(shown(MODELS[1]), "image f32[3,224,224], logits f32[100]");
    assert_eq!(shown(MODELS[2]), "image f32[3,192,256], scores f32[768,3], boxes f32[768,4]");
}

fn the_shipped_models_give_the_recorded_numbers<R: Runtime>() {
    for (model, items) in MODELS.into_iter().zip([8, 1, 1]) {
        let prepared = prepare::<R>(&format!("{model}.onnx"));
        for batch in [1, 3, 8] {
            assert_eq!(case_of(model).check(&prepared, batch, STRICT).unwrap(), items, "{model} {batch}");
        }
    }
}

fn outputs_that_differ_from_the_recorded_ones_are_named<R: Runtime>() {
    let exact = Tolerance { atol: 0.0, rtol: 0.0 };
    let prepared = prepare::<R>("digits/digits.onnx");
    let wrong = case_of(MODELS[0]).perturbed("logits").check(&prepared, 8, exact).unwrap_err();
    let text = wrong[0].to_string();
    assert!(text.starts_with("output `logits` differs from what was recorded: at ["), "{text}");
    assert!(text.contains("apart where 0 is allowed (atol 0, rtol 0)") && text.contains("of 80 numbers"), "{text}");
}

fn pixels(images: usize) -> Vec<f32> {
    (0..images * 64).map(|i| (i * 37 % 101) as f32 / 101.0).collect()
}

/// \[D5\]
fn a_batch_of_eight_is_eight_batches_of_one<R: Runtime>() {
    let prepared = prepare::<R>("digits/digits.onnx");
    let pixels = pixels(8);
    let mut session = prepared.session(8).unwrap();
    let items: Vec<&[f32]> = std::iter::once(&pixels[..]).chain(pixels.chunks(64)).collect();
    let found = answers(&items, |x| numbers(&mut session, &[1, 8, 8], x, 10).unwrap());
    for (alone, together) in found[1..].iter().zip(found[0].chunks(10)) {
        // Kernels may sum in another order for another batch size.
        assert!(std::iter::zip(alone, together).all(|(a, b)| (a - b).abs() < 1e-5), "{alone:?} {together:?}");
    }
}

fn batches_are_padded_to_what_was_compiled<R: Runtime>() {
    let path = graphs("digits/digits.onnx");
    let model = OnnxModel { path, buckets: vec![2, 5], ..OnnxModel::default() };
    let mut session = Onnx::<R>::prepare(model).unwrap().session(7).unwrap();
    let pixels = pixels(7);
    let items: Vec<&[f32]> = (1..=7).map(|batch| &pixels[..batch * 64]).collect();
    let found = answers(&items, |x| numbers(&mut session, &[1, 8, 8], x, 10).unwrap());
    for some in &found {
        assert!(std::iter::zip(some, &found[6]).all(|(a, b)| (a - b).abs() < 1e-5), "{some:?} {found:?}");
    }
    let error = call(&mut session, 8, &[0; 8 * 256], &[1, 8, 8], &mut [0f32; 80]).unwrap_err().to_string();
    assert!(error.contains("a batch of 8 is more than was planned"), "{error}");
}

fn a_truncated_model_is_an_error<R: Runtime>() {
    for model in MODELS {
        let bytes = std::fs::read(graphs(&format!("{model}.onnx"))).unwrap();
        for part in 0..100 {
            let cut = bytes[..bytes.len() * part / 100].to_vec();
            let error = prepare_bytes::<R>(cut, &[]).unwrap_err().to_string();
            assert!(error.starts_with("not a readable model: "), "{model} {part}: {error}");
            let what = if part == 0 { "an empty file" } else { "a truncated or damaged ONNX model: " };
            assert!(error.contains(what), "{model} {part}: {error}");
        }
    }
}

/// Without the checks of this crate, rten loops forever on some of these and aborts the process on others.
fn a_damaged_model_never_panics<R: Runtime>() {
    let bytes = std::fs::read(graphs("digits/digits.onnx")).unwrap();
    // A generator with a fixed seed, so that a failure can be reproduced.
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    // Most of the file is weights, where damage is not an error; names mark its structure.
    let named: Vec<usize> =
        (0..bytes.len() - 6).filter(|i| bytes[*i..*i + 6].iter().all(u8::is_ascii_graphic)).collect();
    for _ in 0..300 {
        let mut damaged = bytes.clone();
        for _ in 0..=random(3) {
            let at = (named[random(named.len())] + random(40)).saturating_sub(20);
            damaged[at] = if random(2) == 0 { random(256) as u8 } else { damaged[at] ^ 1 << random(8) };
        }
        let _ = prepare_bytes::<R>(damaged, &[]);
    }
}

fn a_lazy_model_is_prepared_by_its_first_call<R: Runtime>() {
    let model = |lazy| OnnxModel { path: graphs("digits/digits.onnx"), lazy, ..OnnxModel::default() };
    let case = case_of("digits/digits.onnx");
    let prepared = Onnx::<R>::prepare(model(true)).unwrap();
    let before = prepared.compiled().map_or(0, |found| found.compiled);
    let mut session = prepared.session(5).unwrap();
    assert!(!session.is_ready() && session.first_call().is_none());
    assert_eq!(prepared.compiled().map_or(0, |found| found.compiled), before);
    answers(&[pixels(1), pixels(2)], |x| numbers(&mut session, &[1, 8, 8], x, 10).unwrap());
    assert!(session.is_ready() && session.first_call().is_some_and(|took| !took.is_zero()));
    assert_eq!(session.metadata().threads, 1);
    assert!(case.check(&prepared, 5, STRICT).is_ok());
}

fn a_model_for_one_item_is_not_tried_on_two<R: Runtime>() {
    // From bytes, so that it is not shared with other tests.
    let bytes = std::fs::read(graphs("digits/digits.onnx")).unwrap();
    let model = |one_item| OnnxModel { bytes: Some(bytes.clone()), one_item, ..OnnxModel::default() };
    let (one, any) = (Onnx::<R>::prepare(model(true)).unwrap(), Onnx::<R>::prepare(model(false)).unwrap());
    assert_eq!((one.signature().max_batch, any.signature().max_batch), (Some(1), None));
    let compiled = |prepared: &OnnxPrepared<R>| prepared.compiled().map_or(0, |found| found.compiled);
    if R::NAME == "tract" {
        assert_eq!((compiled(&one), compiled(&any)), (1, 2));
    }
    assert!(case_of("digits/digits.onnx").check(&one, 1, STRICT).is_ok());
    let error = one.session(2).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("the model takes 1, it was loaded for calls with one item"), "{error}");
}

fn open<R: Runtime>(path: &Path) -> Result<Arc<Loaded<R>>, String> {
    let loaded = Artifact::open(path).and_then(|artifact| Loaded::share(artifact, &BackendOptions::default()));
    loaded.map_err(|error| error.to_string())
}

fn a_file_of_another_kind_is_named<R: Runtime>() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, what) in [
        (&b"nodes:\n  camera:\n"[..], "this is text, not an ONNX model"),
        (b"", "this is an empty file"),
        (b"\x89PNG\r\n\x1a\n", "this is a PNG image"),
        (b"PK\x03\x04abc", "this is a zip archive, as PyTorch"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (&[1, 2, 3, 4, 0, 0, 0, 0, 9], "this is not an ONNX model"),
    ] {
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, bytes).unwrap();
        let error = open::<R>(&path).err().unwrap();
        assert!(error.contains(what), "{what}: {error}");
    }
    for (path, what) in
        [(folder.path().join("none.onnx"), "No such file"), (folder.path().into(), "is not a regular file")]
    {
        let error = open::<R>(&path).err().unwrap();
        assert!(error.contains(what), "{what}: {error}");
    }
}

fn contradictory_models_are_refused<R: Runtime>() {
    let x: Io<'_> = ("x", D::FLOAT, &["n", "2"]);
    let y: Io<'_> = ("y", D::FLOAT, &["n", "2"]);
    let raw = |dims: &[i64], bytes: usize| onnx::TensorProto {
        raw_data: Some(vec![0; bytes].into()),
        ..floats("w", dims, &[])
    };
    let add: &[&str] = &["y = Add x w"];
    let cases: [(&[Io<'_>], onnx::TensorProto, &[&str], &str); 9] = [
        (&[x], raw(&[2], 7), add, "tensor `w` has 7 bytes; float[2] takes 8"),
        (&[x], raw(&[-2], 8), add, "tensor `w` has a dim of length -2"),
        (&[x], floats("w", &[1 << 40], &[]), add, "tensor `w` has 1099511627776 elements, in a file of"),
        (&[x], raw(&[1 << 40, 1 << 40], 8), add, "which does not fit in memory"),
        (&[x], floats("v", &[2], &[1.0, 2.0]), add, "node `y` (Add) takes `w`, which is not in the model"),
        (
            &[x],
            floats("w", &[2], &[1.0, 2.0]),
            &["a = Add b w", "b = Add a x", "y = Add b x"],
            "depends on its own output",
        ),
        (
            &[x],
            floats("w", &[2], &[1.0, 2.0]),
            &["y = Add x w", "y = Sub x w"],
            "tensor `y` is the output of two nodes",
        ),
        (&[("x", D::FLOAT, &["n", "-2"])], raw(&[2], 8), add, "input `x` has a dim of length -2"),
        (
            &[("x", D::FLOAT, &["n", "1099511627776"])],
            raw(&[1], 4),
            add,
            "input `x` has 4096 GiB in one item; at most 1.00 GiB are possible",
        ),
    ];
    for (inputs, weight, nodes, what) in cases {
        let error = prepare_bytes::<R>(model(inputs, &[y], &[weight], nodes), &[]).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    let many: Vec<String> = (0..40_000).map(|at| format!("a{at} = Relu x")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).chain(["y = Relu x"]).collect();
    let error = prepare_bytes::<R>(model(&[x], &[y], &[], &many), &[]).unwrap_err().to_string();
    assert!(error.contains("it has 40001 nodes; at most 32768 are possible"), "{error}");
    let plain = model(&[x], &[y], &[floats("w", &[2], &[1.0, 2.0])], add);
    // Functions of a model, sparse weights of its graph.
    let sparse = field(15, &field(1, &field(8, b"s")));
    for (more, what) in [
        (field(25, &field(1, b"twice")), "it defines functions (1), the first is `twice`"),
        // A decoder merges a second graph into the first.
        (field(7, &sparse), "tensor `s` is sparse; export it as a dense tensor"),
        (field(7, &field(1, &field(5, &field(22, &[])))), "is sparse; export it as a dense tensor"),
    ] {
        let error = prepare_bytes::<R>([&plain[..], &more].concat(), &[]).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    let error = prepare_bytes::<R>(model(&[x], &[("z", D::FLOAT, &["n"])], &[], &["y = Relu x"]), &[]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the output `z` is not in the model"), "{error}");
}

fn symbolic_dims_get_their_lengths_from_connected_inputs<R: Runtime>() {
    let bytes = model(
        &[("a", D::FLOAT, &["n", "h", "w"]), ("b", D::FLOAT, &["n", "h", "w"])],
        &[("y", D::FLOAT, &["n", "h", "w"])],
        &[],
        &["y = Add a b"],
    );
    let bound = prepare_bytes::<R>(bytes.clone(), &[("a", &[2, 3])]).unwrap();
    assert_eq!(bound.signature().inputs[1].shape, [Dim::Fixed(2), Dim::Fixed(3)]);
    assert_eq!(bound.signature().outputs[0].shape, [Dim::Fixed(2), Dim::Fixed(3)]);
    assert_eq!(bound.signature().max_batch, None);
    for (shapes, why) in [
        (&[][..], "input `a`: dim `h` of f32[h,w] has no length: connect an input whose size is known"),
        (&[("a", &[2, 3][..]), ("b", &[2, 4])], "input `b`: dim `w` is 4 here and 3 at `a`"),
        (&[("a", &[2][..])], "input `a`: one item is f32[h,w]; the connected shape is [2]"),
    ] {
        let error = prepare_bytes::<R>(bytes.clone(), shapes).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

fn a_declared_batch_that_the_model_does_not_compute_is_detected<R: Runtime>() {
    // The model declares the batch `n` and reshapes to 1.
    let reshaped = model(
        &[("x", D::FLOAT, &["n", "4"])],
        &[("y", D::FLOAT, &["m", "4"])],
        &[ints("shape", &[1, 4])],
        &["y = Reshape x shape"],
    );
    match prepare_bytes::<R>(reshaped, &[]) {
        Ok(prepared) => {
            assert_eq!(prepared.signature().max_batch, Some(1));
            let single = prepared.single().unwrap();
            assert!(single.contains("a trial run on two items failed"), "{single}");
            let error = prepared.session(2).unwrap_err().to_string();
            assert!(error.contains("the model takes 1, a trial run"), "{error}");
        }
        // A runtime with symbolic shapes may infer that only one item is possible, and refuse the model.
        Err(error) => assert!(matches!(error, BackendError::Unsupported(_)), "{error}"),
    }
    // The batch of the output comes last.
    let turned = model(&[("x", D::FLOAT, &["n", "4"])], &[("y", D::FLOAT, &["4", "n"])], &[], &["y = Transpose x"]);
    let prepared = prepare_bytes::<R>(turned, &[]).unwrap();
    assert_eq!(prepared.single(), Some("its output `y` is [4, 1] for one item and [4, 2] for two"));
    assert_eq!(prepared.signature().outputs[0].shape, [Dim::Fixed(4), Dim::Fixed(1)]);
}

fn fixed_and_missing_batch_dims_take_one_item<R: Runtime>() {
    let fixed = model(&[("x", D::FLOAT, &["1", "4"])], &[("y", D::FLOAT, &["1", "4"])], &[], &["y = Relu x"]);
    let prepared = prepare_bytes::<R>(fixed, &[]).unwrap();
    assert_eq!(
        (prepared.signature().max_batch, &*prepared.signature().outputs[0].shape),
        (Some(1), &[Dim::Fixed(4)][..])
    );
    let mut session = prepared.session(1).unwrap();
    let items = [[1.0, -1.0, 2.0, -2.0], [-3.0, 4.0, 0.0, 5.0]];
    let found = answers(&items, |x| numbers(&mut session, &[4], x, 4).unwrap());
    assert_eq!(found, [[1.0, 0.0, 2.0, 0.0], [0.0, 4.0, 0.0, 5.0]]);

    let none = model(
        &[("x", D::FLOAT, &["4"]), ("scale", D::FLOAT, &[])],
        &[("y", D::FLOAT, &["4"])],
        &[],
        &["y = Mul x scale"],
    );
    let prepared = prepare_bytes::<R>(none, &[]).unwrap();
    assert_eq!(prepared.single(), Some("its input `x` has no batch dim of its own"));
    assert_eq!(prepared.signature().inputs[1].shape, []);
    assert_eq!(prepared.signature().outputs[0].shape, [Dim::Fixed(4)]);
}

fn wide_integers_travel_as_i32_and_names_become_ports<R: Runtime>() {
    let bytes = model(
        &[("Input.1", D::INT64, &["n", "2"])],
        &[("out:0", D::INT64, &["n", "2"])],
        &[],
        &["out:0 = Neg Input.1"],
    );
    let prepared = prepare_bytes::<R>(bytes, &[]).unwrap();
    let input = &prepared.signature().inputs[0];
    assert_eq!((&*input.name, input.dtype), ("input_1", DType::I32));
    let output = &prepared.signature().outputs[0];
    assert_eq!((&*output.name, output.dtype), ("out_0", DType::I32));
    let mut session = prepared.session(1).unwrap();
    let found = answers(&[[5, -7], [i32::MAX, 0]], |x: &[i32; 2]| {
        let mut y = [0i32; 2];
        let input = BatchRef { dtype: DType::I32, shape: &[2], bytes: bytemuck::cast_slice(x) };
        let output = BatchMut { dtype: DType::I32, shape: &mut [2], bytes: bytemuck::cast_slice_mut(&mut y) };
        session.infer_one(&[input], &mut [output], &mut OnnxLane::default()).map(|()| y).unwrap()
    });
    assert_eq!(found, [[-5, 7], [-i32::MAX, 0]]);

    let twice = [("x", D::FLOAT, &["n"][..]), ("X", D::FLOAT, &["n"])];
    let error = prepare_bytes::<R>(model(&twice, &[("y", D::FLOAT, &["n"])], &[], &["y = Add x X"]), &[]).unwrap_err();
    assert!(error.to_string().contains("would both be port `x`"), "{error}");
}

fn operators_that_do_not_exist_are_named<R: Runtime>() {
    let bytes = model(&[("x", D::FLOAT, &["n"])], &[("y", D::FLOAT, &["n"])], &[], &["y = Frobnicate x"]);
    let error = prepare_bytes::<R>(bytes, &[]).unwrap_err();
    assert!(matches!(&error, BackendError::Unsupported(why) if why.contains("Frobnicate")), "{error}");
}

/// PaddlePaddle writes it for the batch.
fn a_length_of_minus_one_is_unknown<R: Runtime>() {
    let bytes = model(&[("x", D::FLOAT, &["-1", "2"])], &[("y", D::FLOAT, &["-1", "2"])], &[], &["y = Relu x"]);
    let prepared = prepare_bytes::<R>(bytes, &[]).unwrap();
    assert_eq!(prepared.single(), None);
    let mut session = prepared.session(3).unwrap();
    let items = [&[1.0f32, -1.0, 2.0, -2.0, 3.0, -3.0][..], &[-4.0, 4.0]];
    let found = answers(&items, |x| numbers(&mut session, &[2], x, 2).unwrap());
    assert_eq!(found, [&[1.0, 0.0, 2.0, 0.0, 3.0, 0.0][..], &[0.0, 4.0]]);
}

/// A constant is not a port. One without a batch dim is shared by all items, one with a batch dim is repeated.
fn constants_are_part_of_every_call<R: Runtime>() {
    let ios = [("x", D::FLOAT, &["n", "2"][..]), ("factor", D::INT64, &[][..]), ("offset", D::FLOAT, &["n", "2"][..])];
    let nodes = ["a = Cast factor to==1", "b = Mul x a", "y = Add b offset"];
    let bytes = model(&ios, &[("y", D::FLOAT, &["n", "2"])], &[], &nodes);
    let constant = |shape: &[usize], values: &[f64]| Constant { shape: shape.to_vec(), values: values.to_vec() };
    let prepare = |factor: Constant, offset: Constant| {
        let constants = BTreeMap::from([("factor".to_string(), factor), ("offset".to_string(), offset)]);
        let path = "model.onnx".into();
        Onnx::<R>::prepare(OnnxModel { path, bytes: Some(bytes.clone()), constants, ..OnnxModel::default() })
    };
    let prepared = prepare(constant(&[], &[3.0]), constant(&[2], &[0.5, 1.0])).unwrap();
    let ports: Vec<&str> = prepared.signature().inputs.iter().map(|input| input.name.as_str()).collect();
    assert_eq!((ports, prepared.single()), (vec!["x"], None));
    let mut session = prepared.session(4).unwrap();
    let items = [&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0][..], &[7.0, 8.0]];
    let found = answers(&items, |x| numbers(&mut session, &[2], x, 2).unwrap());
    assert_eq!(found, [&[3.5, 7.0, 9.5, 13.0, 15.5, 19.0][..], &[21.5, 25.0]]);
    for (factor, offset, why) in [
        (constant(&[1], &[3.0]), constant(&[2], &[0.5, 1.0]), "has the shape [1]; an item of `factor` is i32[]"),
        (constant(&[], &[0.5]), constant(&[2], &[0.5, 1.0]), "holds 0.5, which i32 cannot"),
        (constant(&[], &[3.0]), constant(&[3], &[0.5; 3]), "has the shape [3]; an item of `offset` is f32[2]"),
    ] {
        let error = prepare(factor, offset).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

fn unaligned_buffers_are_copied<R: Runtime>() {
    let prepared = prepare::<R>("digits/digits.onnx");
    let mut session = prepared.session(1).unwrap();
    let pixels = pixels(2);
    let images: Vec<&[u8]> = pixels.chunks(64).map(bytemuck::cast_slice).collect();
    let mut shifted = vec![0; images[0].len() + 8];
    let at = (1..5).find(|at| !(shifted.as_ptr() as usize + at).is_multiple_of(4)).unwrap();
    let found = answers(&[(0, false), (0, true), (1, false), (1, true)], |&(image, is_skewed)| {
        let mut y = [0f32; 10];
        let image: &[u8] = images[image];
        let skewed = &mut shifted[at..at + image.len()];
        skewed.copy_from_slice(image);
        let bytes = if is_skewed { skewed } else { image };
        call(&mut session, 1, bytes, &[1, 8, 8], &mut y).map(|()| y).unwrap()
    });
    assert_eq!((found[0], found[2]), (found[1], found[3]));
    let error = call(&mut session, 1, &images[0][..60], &[1, 8, 8], &mut [0f32; 10]).unwrap_err();
    assert!(matches!(error, BackendError::Call(_)), "{error}");
}

fn nodes_with_the_same_file_share_its_weights<R: Runtime>() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let relu = |out: &str| {
        let node = format!("{out} = Relu x");
        model(&[("x", D::FLOAT, &["n"])], &[(out, D::FLOAT, &["n"])], &[], &[&node])
    };
    std::fs::write(&path, relu("y")).unwrap();
    let one = open::<R>(&path).unwrap();
    assert!(Arc::ptr_eq(&one, &open(&folder.path().join("./m.onnx")).unwrap()));
    let kept = BackendOptions { cache: Some(folder.path().into()), ..BackendOptions::default() };
    let kept = Loaded::<R>::share(Artifact::open(&path).unwrap(), &kept).unwrap();
    assert!(!Arc::ptr_eq(&one, &kept), "another graph keeps what is compiled elsewhere");
    std::fs::write(&path, relu("other")).unwrap();
    assert_eq!(open::<R>(&path).unwrap().outline.outputs[0].name, "other");
    // The bytes that were read are the bytes that run, even if the file changes.
    let read = Artifact::open(&path).unwrap();
    std::fs::write(&path, relu("newer")).unwrap();
    assert_eq!(Loaded::<R>::share(read, &BackendOptions::default()).unwrap().outline.outputs[0].name, "other");
}

fn weights_may_be_in_files_beside_the_model<R: Runtime>() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("inside/m.onnx");
    std::fs::create_dir(folder.path().join("inside")).unwrap();
    let prepare = |location: &str, length: &str| {
        let weights = external("w", &[2], location, 4, length.parse().unwrap());
        let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
        std::fs::write(&path, model(&[x], &[y], &[weights], &["y = Add x w"])).unwrap();
        Onnx::<R>::prepare(OnnxModel { path: path.clone(), ..OnnxModel::default() })
    };
    let data = |at: &str| std::fs::write(folder.path().join(at), bytemuck::cast_slice::<f32, u8>(&[9.0, 1.0, 2.0]));
    data("outside.data").unwrap();
    std::os::unix::fs::symlink("../outside.data", folder.path().join("inside/link.data")).unwrap();
    std::fs::write(folder.path().join("inside/short.data"), [0; 8]).unwrap();
    for (location, length, what) in [
        ("m.onnx.data", "8", "`m.onnx.data`, which cannot be read: No such file"),
        ("../outside.data", "8", "`../outside.data`, which is outside the model's folder"),
        ("/etc/passwd", "8", "`/etc/passwd`, which is outside the model's folder"),
        ("link.data", "8", "`link.data`, which is a link out of the model's folder"),
        ("short.data", "8", "`short.data`, which has 8 bytes; `w` takes 8 from offset 4"),
        ("m.onnx.data", "9", "tensor `w` has 9 bytes in another file; float[2] takes 8"),
    ] {
        let error = prepare(location, length).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    data("inside/m.onnx.data").unwrap();
    let prepared = prepare("m.onnx.data", "8").unwrap();
    let mut session = prepared.session(1).unwrap();
    let found = answers(&[[0.0, 0.0], [3.0, 4.0]], |x| numbers(&mut session, &[2], x, 2).unwrap());
    assert_eq!(found, [[1.0, 2.0], [4.0, 6.0]]);
}

fn more_threads_give_the_same_numbers<R: Runtime>() {
    let path = graphs("detect/detector.onnx");
    let prepared = Onnx::<R>::prepare(OnnxModel { path, threads: 2, ..OnnxModel::default() }).unwrap();
    assert_eq!(case_of(MODELS[2]).check(&prepared, 1, STRICT).unwrap(), 1);
    let metadata = prepared.session(1).unwrap().metadata();
    assert_eq!(metadata.copied_out, 768 * 7 * 4);
    assert!(caught(|| drop(prepared)).is_ok());
}

/// A running sum for each stream: `y = x + state`, and `y` is the next state, with the batch in the middle.
fn each_stream_has_its_own_state<R: Runtime>() {
    let bytes = model(
        &[("x", D::FLOAT, &["n", "2", "1"]), ("state", D::FLOAT, &["2", "n", "1"])],
        &[("y", D::FLOAT, &["n", "2", "1"]), ("next", D::FLOAT, &["2", "n", "1"])],
        &[],
        &["before = Transpose state perm=1,0,2", "y = Add x before", "next = Transpose y perm=1,0,2"],
    );
    let state =
        |input: &str, output: &str, batch_dim| ModelState { input: input.into(), output: output.into(), batch_dim };
    let prepare = |states: Vec<ModelState>| {
        let model = OnnxModel { bytes: Some(bytes.clone()), path: "m.onnx".into(), states, ..OnnxModel::default() };
        Onnx::<R>::prepare(model)
    };
    let prepared = prepare(vec![state("state", "next", None)]).unwrap();
    let signature = prepared.signature();
    assert_eq!((signature.inputs.len(), signature.outputs.len(), signature.max_batch), (1, 1, None));
    assert!(prepared.is_stateful());
    let mut session = prepared.session(3).unwrap();
    let mut run = |lanes: &mut [OnnxLane], x: &[f32]| {
        let mut y = vec![0f32; x.len()];
        let input = BatchRef { dtype: DType::F32, shape: &[2, 1], bytes: bytemuck::cast_slice(x) };
        let output = BatchMut { dtype: DType::F32, shape: &mut [2, 1], bytes: bytemuck::cast_slice_mut(&mut y) };
        session.infer_batch(lanes.len(), &[input], &mut [output], lanes).map(|()| y)
    };
    let mut lanes = [OnnxLane::default(), OnnxLane::default()];
    assert_eq!(run(&mut lanes, &[1.0, 2.0, 10.0, 20.0]).unwrap(), [1.0, 2.0, 10.0, 20.0]);
    assert_eq!(run(&mut lanes, &[1.0, 2.0, 10.0, 20.0]).unwrap(), [2.0, 4.0, 20.0, 40.0]);
    assert_eq!(run(&mut lanes[1..], &[1.0, 1.0]).unwrap(), [21.0, 41.0]);
    lanes.swap(0, 1);
    assert_eq!(run(&mut lanes, &[0.0; 4]).unwrap(), [21.0, 41.0, 2.0, 4.0]);
    lanes[0] = OnnxLane::default();
    assert_eq!(run(&mut lanes, &[0.0; 4]).unwrap(), [0.0, 0.0, 2.0, 4.0]);
    // Each stream begins anew, whatever the session computed before.
    let sums = answers(&[[1.0, 2.0], [10.0, 20.0]], |x| {
        let mut lanes = [OnnxLane::default()];
        [0; 3].map(|_| run(&mut lanes, x).unwrap())
    });
    assert_eq!(sums[0], [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]);
    assert_eq!(sums[1], [[10.0, 20.0], [20.0, 40.0], [30.0, 60.0]]);
    for (states, why) in [
        (state("none", "next", None), "the state `none` is not an input of the model"),
        (state("state", "none", None), "the state `none` is not an output of the model"),
        (state("state", "next", Some(3)), "the state `state` has 3 dims; `batch_dim` is 3"),
        (state("x", "next", None), ""),
    ] {
        let error = prepare(vec![states]).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

/// Only rten: runtimes that compile handle shapes that depend on values in different ways.
#[cfg(feature = "rten")]
#[test]
fn an_unplanned_shape_is_an_error_that_names_model_and_tensor() {
    let bytes = model(
        &[("x", D::FLOAT, &["n", "2"])],
        &[("y", D::INT64, &["2", "k"])],
        &[floats("zero", &[1], &[0.0])],
        &["is_zero = Equal x zero", "y = NonZero is_zero"],
    );
    let max = [("y".to_string(), vec![2, 1])].into();
    let model = OnnxModel { path: "model.onnx".into(), bytes: Some(bytes), max, ..OnnxModel::default() };
    let mut session = crate::backend::Rten::prepare(model).unwrap().session(1).unwrap();
    let rows = [
        (DType::F32, &[2][..], [0.0f32, 1.0], ""),
        (
            DType::F32,
            &[2],
            [0.0, 0.0],
            "`model.onnx`: output `y` is i32[2, 2]; i32[2, 1] was planned; write its greatest lengths, `max: { y: [...] }`",
        ),
        (DType::I32, &[2], [0.0, 1.0], "`model.onnx`: input `x` is i32[2]; f32[2] was planned"),
        (DType::F32, &[1, 2], [0.0, 1.0], "`model.onnx`: input `x` is f32[1, 2]; f32[2] was planned"),
    ];
    let found = answers(&rows, |(dtype, shape, x, _)| {
        let input = BatchRef { dtype: *dtype, shape, bytes: bytemuck::cast_slice(x) };
        let mut y = [0i32; 4];
        let output = BatchMut { dtype: DType::I32, shape: &mut [2, 1], bytes: bytemuck::cast_slice_mut(&mut y) };
        session.infer_one(&[input], &mut [output], &mut OnnxLane::default()).map_err(|error| error.to_string())
    });
    for (found, (.., why)) in std::iter::zip(found, rows) {
        assert_eq!(found, if why.is_empty() { Ok(()) } else { Err(format!("inference failed: {why}")) });
    }
}

/// \[D4\]
fn the_guard_detects_non_finite_numbers<R: Runtime>() {
    let bytes = model(&[("x", D::FLOAT, &["n", "2"])], &[("y", D::FLOAT, &["n", "2"])], &[], &["y = Log x"]);
    let check = |found: &Result<(), String>, why: &str| match why {
        "" => assert_eq!(found, &Ok(())),
        why => assert!(found.as_ref().is_err_and(|error| error.contains(why)), "{why}: {found:?}"),
    };
    for (finite, rows) in [
        (
            true,
            &[
                ([1.0, 1.0], ""),
                ([1.0, f32::INFINITY], "input `x` holds inf at element 1, under `guard: finite`"),
                ([f32::NAN, 1.0], "input `x` holds NaN at element 0"),
                ([1.0, 0.0], "output `y` holds -inf at element 1"),
            ][..],
        ),
        (false, &[([f32::NAN, 0.0], ""), ([1.0, 1.0], "")]),
    ] {
        let model = OnnxModel { bytes: Some(bytes.clone()), path: "m.onnx".into(), finite, ..OnnxModel::default() };
        let mut session = Onnx::<R>::prepare(model).unwrap().session(1).unwrap();
        let found = answers(rows, |(x, _)| numbers(&mut session, &[2], x, 2).map(drop));
        std::iter::zip(&found, rows).for_each(|(found, (_, why))| check(found, why));
    }
    // In a batch the item is named; padding is not checked.
    let buckets = vec![4];
    let how = OnnxModel { bytes: Some(bytes), path: "m.onnx".into(), finite: true, buckets, ..OnnxModel::default() };
    let mut session = Onnx::<R>::prepare(how).unwrap().session(4).unwrap();
    let rows = [
        ([1.0; 6], ""),
        ([1.0, 1.0, 1.0, f32::NAN, 1.0, 1.0], "input `x` holds NaN at element 1 of item 1 of 3"),
        ([1.0, 1.0, 1.0, 1.0, 0.0, 1.0], "output `y` holds -inf at element 0 of item 2 of 3"),
    ];
    let found = answers(&rows, |(x, _)| numbers(&mut session, &[2], x, 2).map(drop));
    std::iter::zip(&found, rows).for_each(|(found, (_, why))| check(found, why));
    // The same for states, whose batch dim is in the middle.
    let bytes = model(
        &[("x", D::FLOAT, &["n", "2", "1"]), ("state", D::FLOAT, &["2", "n", "1"])],
        &[("next", D::FLOAT, &["2", "n", "1"]), ("y", D::FLOAT, &["n", "2", "1"])],
        &[],
        &["before = Transpose state perm=1,0,2", "y = Add x before", "next = Transpose y perm=1,0,2"],
    );
    let (states, buckets) =
        (vec![ModelState { input: "state".into(), output: "next".into(), batch_dim: None }], vec![4]);
    let how =
        OnnxModel { bytes: Some(bytes), path: "m.onnx".into(), finite: true, states, buckets, ..OnnxModel::default() };
    let mut session = Onnx::<R>::prepare(how).unwrap().session(4).unwrap();
    let rows = [
        ([0.0, 0.0, 0.0, f32::MAX], "output `next` holds inf at element 1 of item 1 of 2"),
        ([0.0, 0.0, 0.0, 1.0], ""),
    ];
    let found = answers(&rows, |(x, _)| {
        let (mut lanes, mut y) = ([OnnxLane::default(), OnnxLane::default()], [0.0f32; 4]);
        let mut step = || {
            let input = BatchRef { dtype: DType::F32, shape: &[2, 1], bytes: bytemuck::cast_slice(x) };
            let output = BatchMut { dtype: DType::F32, shape: &mut [2, 1], bytes: bytemuck::cast_slice_mut(&mut y) };
            session.infer_batch(2, &[input], &mut [output], &mut lanes).map_err(|error| error.to_string())
        };
        assert_eq!(step(), Ok(()));
        step()
    });
    std::iter::zip(&found, rows).for_each(|(found, (_, why))| check(found, why));
    let mut session = prepare::<R>("digits/digits.onnx").session(2).unwrap();
    let error = call(&mut session, 0, &[], &[1, 8, 8], &mut []).unwrap_err().to_string();
    assert!(error.contains("the batch is empty"), "{error}");
}
