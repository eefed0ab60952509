//! What the inputs and outputs of a model become.

use super::*;

on_every_runtime! {
    symbolic_dims_get_their_lengths_from_connected_inputs
    wide_integers_travel_as_i32_and_names_become_ports
    constants_are_part_of_every_call
    bools_are_0_or_1
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
        (&[][..], "input `a`: dim `h` of f32[h,w] has no length: connect a node whose output has a known size"),
        (&[("a", &[2, 3][..]), ("b", &[2, 4])], "input `b`: dim `w` must be 3, as at `a`, got 4"),
        (&[("a", &[2][..])], "input `a`: expected f32[h,w] as one item, found [2]"),
    ] {
        let error = prepare_bytes::<R>(bytes.clone(), shapes).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
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
    assert!(error.to_string().contains("must be unique, got `x`"), "{error}");
}

/// A constant is not a port. One without a batch dim is shared by all items, one with a batch dim
/// is repeated.
fn constants_are_part_of_every_call<R: Runtime>() {
    let ios = [("x", D::FLOAT, &["n", "2"][..]), ("factor", D::INT64, &[][..]), ("offset", D::FLOAT, &["n", "2"][..])];
    let nodes = ["a = Cast factor to==1", "b = Mul x a", "y = Add b offset"];
    let bytes = model(&ios, &[("y", D::FLOAT, &["n", "2"])], &[], &nodes);
    let constant = |shape: &[usize], values: &[f64]| ConstantInput { shape: shape.to_vec(), values: values.to_vec() };
    let prepare = |factor: ConstantInput, offset: ConstantInput| {
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
        (
            constant(&[1], &[3.0]),
            constant(&[2], &[0.5, 1.0]),
            "expected i32[] as one item of `factor`, found the shape [1]",
        ),
        (constant(&[], &[0.5]), constant(&[2], &[0.5, 1.0]), "must fit in i32, got 0.5"),
        (
            constant(&[], &[3.0]),
            constant(&[3], &[0.5; 3]),
            "expected f32[2] as one item of `offset`, found the shape [3]",
        ),
    ] {
        let error = prepare(factor, offset).unwrap_err().to_string();
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
            "`model.onnx`: output `y` must be at most 1 long (`max.y`), got 2 in i32[2, 2]: raise `max.y`",
        ),
        (DType::I32, &[2], [0.0, 1.0], "`model.onnx`: input `x` must be f32[2], got i32[2]"),
        (DType::F32, &[1, 2], [0.0, 1.0], "`model.onnx`: input `x` must be f32[2], got f32[1, 2]"),
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

/// A port carries bools as `i32`: every number but 0 is true, and true leaves a model as 1.
fn bools_are_0_or_1<R: Runtime>() {
    let given = [0, 1, 2, -1, i32::MIN];
    let is_set = [0, 1, 1, 1, 1];
    let is_unset = [1, 0, 0, 0, 0];
    for (nodes, weights, expected) in [
        (&["y = Identity x"][..], &[][..], is_set),
        (&["y = Not x"], &[], is_unset),
        (&["y = Xor x yes"], &["yes"], is_unset),
        (&["y = Equal x yes"], &["yes"], is_set),
        (&["y = And x yes"], &["yes"], is_set),
        (&["a = Cast x to==1", "y = Cast a to==9"], &[], is_set),
    ] {
        let weights: Vec<_> = weights.iter().map(|name| boolean(name, true)).collect();
        let bytes = model(&[("x", D::BOOL, &["5"])], &[("y", D::BOOL, &["5"])], &weights, nodes);
        let prepared = match prepare_bytes::<R>(bytes, &[]) {
            Ok(prepared) => prepared,
            // tract does not compare bools.
            Err(BackendError::Unsupported(_)) if R::NAME == "tract" => continue,
            Err(error) => panic!("{nodes:?}: {error}"),
        };
        let mut found = [7i32; 5];
        let input = BatchRef { dtype: DType::I32, shape: &[5], bytes: bytemuck::cast_slice(&given) };
        let output = BatchMut { dtype: DType::I32, shape: &mut [], bytes: bytemuck::cast_slice_mut(&mut found) };
        prepared.session(1).unwrap().infer_batch(1, &[input], &mut [output], &mut [OnnxLane::default()]).unwrap();
        assert_eq!(found, expected, "{nodes:?}");
    }
}

fn boolean(name: &str, value: bool) -> onnx::TensorProto {
    onnx::TensorProto {
        name: Some(name.into()),
        data_type: Some(onnx::DataType::BOOL),
        raw_data: Some(vec![u8::from(value)].into()),
        ..Default::default()
    }
}
