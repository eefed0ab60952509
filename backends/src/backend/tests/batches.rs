//! Calls with several items, and models that take only one.

use super::*;

on_every_runtime! {
    a_batch_of_eight_is_eight_batches_of_one
    batches_are_padded_to_what_was_compiled
    a_declared_batch_that_the_model_does_not_compute_is_detected
    fixed_and_missing_batch_dims_take_one_item
    a_length_of_minus_one_is_unknown
    a_model_for_one_item_is_not_tried_on_two
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
