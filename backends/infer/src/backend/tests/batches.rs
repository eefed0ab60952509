//! Calls with several items, and models that take only one.

use super::*;

on_every_runtime! {
    a_batch_of_eight_is_eight_batches_of_one
    batches_are_padded_to_what_was_compiled
    a_declared_batch_that_the_model_does_not_compute_is_detected
    fixed_and_missing_batch_dims_take_one_item
    a_length_of_minus_one_is_unknown
    a_model_for_one_item_is_not_tried_on_two
    items_that_change_each_other_are_found
    a_first_dim_may_be_part_of_an_item
}

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
    assert!(error.contains("the batch size must be at most"), "{error}");
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
            assert!(error.contains("at most 1 for this model, got"), "{error}");
        }
        // A runtime with symbolic shapes may infer that only one item is possible, and refuse the
        // model.
        Err(error) => assert!(matches!(error, BackendError::Unsupported(_)), "{error}"),
    }
    // The batch of the output comes last.
    let turned = model(&[("x", D::FLOAT, &["n", "4"])], &[("y", D::FLOAT, &["4", "n"])], &[], &["y = Transpose x"]);
    let prepared = prepare_bytes::<R>(turned, &[]).unwrap();
    assert_eq!(prepared.single(), Some("output `y` is [4, 1] for one item and [4, 2] for two items"));
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
    assert_eq!(prepared.single(), Some("input `x` has no batch dim"));
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
    assert!(error.contains("the model was loaded for calls with one item"), "{error}");
}

fn items_that_change_each_other_are_found<R: Runtime>() {
    const DIFFERS: &str = "items changes output `y` by";
    let same = Ok(());
    let zero = || {
        vec![
            ints("zero", &[0]),
            ints("one", &[1]),
            rten_onnx::onnx::TensorProto { dims: Vec::new(), ..ints("axis", &[0]) },
            floats("none", &[], &[0.0]),
            floats("ten", &[], &[10.0]),
            floats("many", &[], &[1e5]),
            floats("turn", &[4, 4], &std::array::from_fn::<f32, 16, _>(|at| (at as f32 * 0.7).sin())),
        ]
    };
    let lstm = || {
        let weights = |name, from: f32| -> Vec<f32> { (0..32).map(|n| (n as f32 * from).sin() + name).collect() };
        vec![
            floats("w", &[1, 8, 4], &weights(0.0, 0.7)),
            floats("r", &[1, 8, 2], &weights(0.1, 1.3)[..16]),
            ints("one", &[1]),
        ]
    };
    let items = (("x", D::FLOAT, &["n", "4"][..]), ("y", D::FLOAT, &["n", "4"][..]));
    let steps = (("x", D::FLOAT, &["t", "1", "4"][..]), ("y", D::FLOAT, &["t", "1", "2"][..]));
    let class = (items.0, ("y", D::INT64, &["n"][..]));
    for ((x, y), weights, nodes, expected) in [
        (items, zero(), &["y = Tanh x"][..], same),
        (items, zero(), &["a = ReduceMax x zero", "y = Sub x a"], Err(DIFFERS)),
        (
            items,
            zero(),
            &["a = Transpose x perm=1,0", "b = MatMul x a", "c = Softmax b axis==1", "y = MatMul c x"],
            Err(DIFFERS),
        ),
        (steps, lstm(), &["a = LSTM x w r hidden_size==2", "y = Squeeze a one"], Err(DIFFERS)),
        (class, zero(), &["y = ArgMax x axis==1 keepdims==0"], same),
        // Only large numbers change those beside them: of either sign, also only other large ones
        // or only the item after.
        (items, zero(), &["a = Sub x ten", "b = Relu a", "c = ReduceMax b zero", "y = Add x c"], Err(DIFFERS)),
        (items, zero(), &["a = Sub x many", "b = Relu a", "c = ReduceMax b zero", "y = Add x c"], Err(DIFFERS)),
        (
            items,
            zero(),
            &["n = Neg x", "a = Sub n ten", "b = Relu a", "c = ReduceMax b zero", "y = Add x c"],
            Err(DIFFERS),
        ),
        (
            items,
            zero(),
            &["a = Sub x ten", "b = Relu a", "c = ReduceMax b zero", "d = Mul b c", "y = Add x d"],
            Err(DIFFERS),
        ),
        (
            items,
            zero(),
            &["a = Sub x ten", "b = Relu a", "c = CumSum b axis", "d = Sub c b", "y = Add x d"],
            Err(DIFFERS),
        ),
        // Large numbers round, overflow and saturate in each item alone.
        (items, zero(), &["a = Exp x", "y = Tanh x"], same),
        (items, zero(), &["a = MatMul x turn", "b = Sin a", "c = Exp a", "y = Add b c"], same),
        (items, zero(), &["a = MatMul x turn", "y = Softmax a axis==1"], same),
        (items, zero(), &["y = Mul x none"], Err("the outputs are the same for all items")),
    ] {
        let prepared = prepare_bytes::<R>(model(&[x], &[y], &weights, nodes), &[]).unwrap();
        assert_eq!(prepared.single(), None, "{nodes:?}");
        for max in [2, 5] {
            match (compare_items(&prepared, max, None), expected) {
                (ItemComparison::Same, Ok(())) => {}
                (ItemComparison::Differs(why) | ItemComparison::Unknown(why), Err(part)) if why.contains(part) => {}
                (found, _) => panic!("{nodes:?} with {max}: {found:?}"),
            }
        }
    }
    // Only the states change each other, so the first call shows nothing.
    let state = ("state", D::FLOAT, &["n", "4"][..]);
    let next = ("next", D::FLOAT, &["n", "4"][..]);
    for (nodes, expected) in [
        (&["y = Add x state", "next = Tanh x"][..], true),
        (&["a = ReduceMax state zero", "y = Add x a", "next = Tanh x"], false),
    ] {
        let bytes = model(&[items.0, state], &[items.1, next], &zero(), nodes);
        let states = vec![ModelState { input: "state".into(), output: "next".into(), batch_dim: None }];
        let model = OnnxModel { bytes: Some(bytes), path: "m.onnx".into(), states, ..OnnxModel::default() };
        let found = compare_items(&Onnx::<R>::prepare(model).unwrap(), 3, None);
        assert_eq!(found == ItemComparison::Same, expected, "{nodes:?}: {found:?}");
    }
}

/// The greatest of each column of a message: with a batch, each row would be an item.
fn a_first_dim_may_be_part_of_an_item<R: Runtime>() {
    let file = model(
        &[("x", D::FLOAT, &["points", "2"])],
        &[("y", D::FLOAT, &["2"]), ("z", D::FLOAT, &["points", "2"])],
        &[ints("zero", &[0])],
        &["y = ReduceMax x zero keepdims==0", "z = Sub x y"],
    );
    let model = OnnxModel {
        path: "m.onnx".into(),
        bytes: Some(file),
        no_batch: true,
        shapes: [("x".to_string(), vec![Dim::Fixed(3), Dim::Fixed(2)])].into(),
        ..OnnxModel::default()
    };
    let prepared = Onnx::<R>::prepare(model).unwrap();
    let shapes: Vec<&[Dim]> = prepared.signature().outputs.iter().map(|spec| &spec.shape[..]).collect();
    assert_eq!(shapes, [&[Dim::Fixed(2)][..], &[Dim::Fixed(3), Dim::Fixed(2)]]);
    assert_eq!(prepared.single(), Some("input `x` has no batch dim"));
    let mut session = prepared.session(1).unwrap();
    let (x, mut y, mut z) = ([1f32, 6.0, 3.0, 4.0, 2.0, 5.0], [0f32; 2], [0f32; 6]);
    let given = BatchRef { dtype: DType::F32, shape: &[3, 2], bytes: bytemuck::cast_slice(&x) };
    let mut outputs = [
        BatchMut { dtype: DType::F32, shape: &mut [2], bytes: bytemuck::cast_slice_mut(&mut y) },
        BatchMut { dtype: DType::F32, shape: &mut [3, 2], bytes: bytemuck::cast_slice_mut(&mut z) },
    ];
    session.infer_one(&[given], &mut outputs, &mut OnnxLane::default()).unwrap();
    assert_eq!((y, z), ([3.0, 6.0], [-2.0, 0.0, 0.0, -2.0, -1.0, -1.0]));
}
