//! `guard: finite`.

use super::*;

on_every_runtime! {
    the_guard_detects_non_finite_numbers
}

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
                ([1.0, f32::INFINITY], "input `x` must be finite (`guard: finite`), got inf at element 1"),
                ([f32::NAN, 1.0], "input `x` must be finite (`guard: finite`), got NaN at element 0"),
                ([1.0, 0.0], "output `y` must be finite (`guard: finite`), got -inf at element 1"),
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
        ([1.0, 1.0, 1.0, f32::NAN, 1.0, 1.0], "got NaN at element 1 of item 1 of 3"),
        ([1.0, 1.0, 1.0, 1.0, 0.0, 1.0], "got -inf at element 0 of item 2 of 3"),
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
        (
            [0.0, 0.0, 0.0, f32::MAX],
            "output `next` must be finite (`guard: finite`), got inf at element 1 of item 1 of 2",
        ),
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
    assert!(error.contains("a batch must have at least one item"), "{error}");
}
