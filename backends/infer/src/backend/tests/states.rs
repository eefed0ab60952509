//! States, which a session keeps for each stream.

use super::*;

on_every_runtime! {
    each_stream_has_its_own_state
}

/// A running sum for each stream: `y = x + state`, and `y` is the next state, with the batch in the
/// middle.
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
        (state("none", "next", None), "a state must name an input of the model"),
        (state("state", "none", None), "a state must name an output of the model"),
        (state("state", "next", Some(3)), "`batch_dim` of the state `state` must be less than its rank 3, got 3"),
        (state("x", "next", None), ""),
    ] {
        let error = prepare(vec![states]).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}
