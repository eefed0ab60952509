//! Items that differ in length, and what a model is tried on before its first message.

use super::*;

on_every_runtime! {
    messages_may_differ_in_length
    values_may_decide_a_length
    a_bound_follows_from_the_operators
    an_input_may_be_the_length_of_a_range
    a_length_that_values_decide_needs_a_bound
    a_model_that_fails_on_zeros_is_tried_on_other_numbers
    dropout_does_nothing
    a_scalar_may_follow_what_values_decide
    dims_of_one_name_have_one_length
    a_wrong_declaration_gives_way_to_what_the_model_returns
    a_state_that_grows_is_refused
    a_graph_carries_messages_of_every_length
}

fn prepare_model<R: Runtime>(
    bytes: &[u8],
    change: impl FnOnce(&mut OnnxModel),
) -> Result<OnnxPrepared<R>, BackendError> {
    let mut model =
        OnnxModel { path: "model.onnx".into(), bytes: Some(bytes.to_vec()), plans: 2, ..OnnxModel::default() };
    change(&mut model);
    Onnx::<R>::prepare(model)
}

/// Runs a session on one item and returns the shape and the numbers of its first output, with room
/// for 16 of them.
fn one<R: Runtime, T: limen::message::Element>(
    session: &mut OnnxSession<R>,
    x: &[f32],
    bounds: &[usize],
) -> Result<(Vec<usize>, Vec<T>), BackendError> {
    let (mut shape, mut y) = (bounds.to_vec(), vec![<T as bytemuck::Zeroable>::zeroed(); bounds.iter().product()]);
    let input = BatchRef { dtype: DType::F32, shape: &[x.len()], bytes: bytemuck::cast_slice(x) };
    let output = BatchMut { dtype: T::DTYPE, shape: &mut shape, bytes: bytemuck::cast_slice_mut(&mut y) };
    session.infer_one(&[input], &mut [output], &mut OnnxLane::default())?;
    y.truncate(shape.iter().product());
    Ok((shape, y))
}

fn messages_may_differ_in_length<R: Runtime>() {
    let twice = model(
        &[("x", D::FLOAT, &["n", "t"])],
        &[("y", D::FLOAT, &["n", "u"])],
        &[],
        &["a = Neg x", "y = Concat x a axis==1"],
    );
    let prepared = prepare_model::<R>(&twice, |model| {
        model.shapes = [("x".to_string(), vec![Dim::AtMost(4)])].into();
    });
    let prepared = prepared.unwrap();
    assert_eq!(prepared.signature().inputs[0].shape, [Dim::AtMost(4)]);
    assert_eq!(prepared.signature().outputs[0].shape, [Dim::AtMost(8)]);
    assert_eq!(prepared.single(), Some("the messages of input `x` differ in length"));
    let mut session = prepared.session(1).unwrap();
    let items = [&[1.0f32, 2.0][..], &[3.0], &[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0], &[7.0, 8.0, 9.0], &[5.0]];
    let found = answers(&items, |x| one::<R, f32>(&mut session, x, &[8]).unwrap());
    for (found, x) in std::iter::zip(found, items) {
        let expected: Vec<f32> = x.iter().copied().chain(x.iter().map(|x| -x)).collect();
        assert_eq!(found, (vec![2 * x.len()], expected));
    }
    let error = one::<R, f32>(&mut session, &[0.0; 5], &[8]).unwrap_err().to_string();
    assert!(error.contains("input `x` must be") && error.contains("got f32[5]"), "{error}");
    if let Some(compiled) = prepared.compiled().filter(|_| R::COMPILES) {
        // Four items and two for the trial; then 2, 1, 4, 2, 3, 1 and back, of which the last two
        // shapes are kept: 2 is there at first.
        assert_eq!((compiled.hits > 0, compiled.evicted > 0), (true, true), "{compiled:?}");
    }
}

/// The places of the numbers that are not 0.
fn places() -> Vec<u8> {
    model(
        &[("x", D::FLOAT, &["1", "4"])],
        &[("y", D::INT64, &["k", "2"])],
        &[],
        &["a = NonZero x", "y = Transpose a perm=1,0"],
    )
}

fn values_may_decide_a_length<R: Runtime>() {
    for max in [vec![3], vec![3, 2]] {
        let prepared = prepare_model::<R>(&places(), |model| model.max = [("y".to_string(), max)].into()).unwrap();
        assert_eq!(prepared.signature().outputs[0].shape, [Dim::AtMost(3), Dim::Fixed(2)]);
        let mut session = prepared.session(1).unwrap();
        let rows = [
            ([0.0, 1.0, 0.0, 2.0], &[0, 1, 0, 3][..]),
            ([0.0; 4], &[]),
            ([3.0, 0.0, 0.0, 0.0], &[0, 0]),
            ([0.0, 1.0, 1.0, 1.0], &[0, 1, 0, 2, 0, 3]),
        ];
        let found = answers(&rows, |(x, _)| one::<R, i32>(&mut session, x, &[3, 2]).unwrap());
        for (found, (_, expected)) in std::iter::zip(found, rows) {
            assert_eq!(found, (vec![expected.len() / 2, 2], expected.to_vec()));
        }
        let error = one::<R, i32>(&mut session, &[1.0; 4], &[3, 2]).unwrap_err().to_string();
        assert!(
            error.contains("output `y` must be at most 3 long (`max.y`), got 4 in i32[4, 2]: raise `max.y`"),
            "{error}"
        );
    }
}

/// Without `max:`: of four numbers at most four are not 0.
fn a_bound_follows_from_the_operators<R: Runtime>() {
    let prepared = prepare_model::<R>(&places(), |_| ()).unwrap();
    assert_eq!(prepared.signature().outputs[0].shape, [Dim::AtMost(4), Dim::Fixed(2)]);
    let mut session = prepared.session(1).unwrap();
    for (x, expected) in [
        ([1.0; 4], &[0, 0, 0, 1, 0, 2, 0, 3][..]),
        ([0.0; 4], &[]),
        ([0.0, 0.0, 3.0, 0.0], &[0, 2]),
        ([1.0; 4], &[0, 0, 0, 1, 0, 2, 0, 3]),
    ] {
        let (shape, y) = one::<R, i32>(&mut session, &x, &[4, 2]).unwrap();
        assert_eq!((shape, &y[..]), (vec![expected.len() / 2, 2], expected));
    }
}

fn an_input_may_be_the_length_of_a_range<R: Runtime>() {
    let bytes = model(
        &[("x", D::FLOAT, &["1", "1"])],
        &[("y", D::FLOAT, &["k"])],
        &[ints("none", &[]), floats("zero", &[], &[0.0]), floats("step", &[], &[1.0])],
        &["a = Reshape x none", "y = Range zero a step"],
    );
    let error = prepare_model::<R>(&bytes, |_| ()).unwrap_err().to_string();
    assert!(error.contains("depends on values (dim 0, `k`; node `y` (Range))"), "{error}");
    let prepared = prepare_model::<R>(&bytes, |model| model.max = [("y".to_string(), vec![5])].into()).unwrap();
    let mut session = prepared.session(1).unwrap();
    for most in [2u8, 5, 0, 3, 2] {
        let expected: Vec<f32> = (0..most).map(f32::from).collect();
        let found = one::<R, f32>(&mut session, &[f32::from(most)], &[5]).unwrap();
        assert_eq!(found, (vec![usize::from(most)], expected));
    }
    assert!(one::<R, f32>(&mut session, &[6.0], &[5]).is_err());
}

fn a_length_that_values_decide_needs_a_bound<R: Runtime>() {
    for (max, why) in [
        (Some(vec![3, 7]), "`max.y` must be 2 at dim 1, as the model declares, got 7"),
        (Some(vec![3, 2, 1]), "`max.y` must have one length per dim of an item (2), got 3"),
    ] {
        let max = max.map(|max| ("y".to_string(), max));
        let error = prepare_model::<R>(&places(), |model| model.max = max.into_iter().collect()).unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    let error = prepare_model::<R>(&places(), |model| model.max = [("z".to_string(), vec![1])].into()).unwrap_err();
    assert!(error.to_string().contains("`max` must name an output (`y`), got `z`"), "{error}");
}

/// The index is `5 - 5x`: out of range for zeros, the first for ones.
fn a_model_that_fails_on_zeros_is_tried_on_other_numbers<R: Runtime>() {
    let at = |five: f32| {
        model(
            &[("x", D::FLOAT, &["1", "1"])],
            &[("y", D::FLOAT, &["1", "1"])],
            &[floats("five", &[1], &[five]), floats("table", &[3], &[7.0, 8.0, 9.0])],
            &["a = Mul x five", "b = Sub five a", "c = Cast b to==7", "y = Gather table c"],
        )
    };
    let prepared = prepare_model::<R>(&at(5.0), |_| ()).unwrap();
    assert_eq!(prepared.notes(), ["the model fails on zeros, so limen tried it on ones"]);
    let mut session = prepared.session(1).unwrap();
    let found = answers(&[0.8, 1.0], |x| one::<R, f32>(&mut session, &[*x], &[1]).unwrap().1);
    assert_eq!(found, [[8.0], [7.0]]);

    // On a recorded item it does not fail.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items.npz");
    crate::verify::test_files::write_npz(&path, &[("x", crate::verify::test_files::f32s("(2, 1)", &[0.8, 0.0]))]);
    let prepared = prepare_model::<R>(&at(5.0), |model| model.sample = Some(crate::verify::Case::read(&path).unwrap()));
    assert!(prepared.unwrap().notes().is_empty());

    // 7 - 7x where the table has three: it fails on all of them, and has the shapes it declares.
    let outside = model(
        &[("x", D::FLOAT, &["1", "1"])],
        &[("y", D::FLOAT, &["1", "1"])],
        &[floats("seven", &[1], &[7.0]), floats("table", &[3], &[7.0, 8.0, 9.0])],
        &["b = Add x seven", "c = Cast b to==7", "y = Gather table c"],
    );
    let error = prepare_model::<R>(&outside, |_| ()).unwrap_err().to_string();
    assert!(error.contains("a trial run on zeros failed: ") && error.contains("`trial: first_message`"), "{error}");
    let prepared = prepare_model::<R>(&outside, |model| model.untried = true).unwrap();
    assert!(prepared.notes().iter().any(|note| note.starts_with("the model was not tried")));
    let mut session = prepared.session(1).unwrap();
    let found = answers(&[-6.0, 0.0, -7.0], |x| one::<R, f32>(&mut session, &[*x], &[1]).ok());
    assert_eq!(found, [Some((vec![1], vec![8.0])), None, Some((vec![1], vec![7.0]))]);
}

fn dropout_does_nothing<R: Runtime>() {
    let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
    let bytes = model(&[x], &[y], &[floats("ratio", &[], &[0.9])], &["a = Relu x", "b = Dropout a ratio", "y = Neg b"]);
    let prepared = prepare_model::<R>(&bytes, |_| ()).unwrap();
    let mut session = prepared.session(1).unwrap();
    let found = answers(&[[3.0, -1.0], [-2.0, 4.0]], |x| one::<R, f32>(&mut session, x, &[2]).unwrap().1);
    assert_eq!(found, [[-3.0, 0.0], [0.0, -4.0]]);
}

fn a_scalar_may_follow_what_values_decide<R: Runtime>() {
    let bytes = model(
        &[("x", D::FLOAT, &["1", "4"])],
        &[("y", D::FLOAT, &[])],
        &[],
        &["a = NonZero x", "b = Cast a to==1", "y = ReduceSum b keepdims==0"],
    );
    let prepared = prepare_model::<R>(&bytes, |_| ()).unwrap();
    assert_eq!(prepared.signature().outputs[0].shape, []);
    let mut session = prepared.session(1).unwrap();
    let found = answers(&[[0.0, 1.0, 0.0, 2.0], [0.0; 4]], |x| one::<R, f32>(&mut session, x, &[]).unwrap());
    assert_eq!(found, [(vec![], vec![4.0]), (vec![], vec![0.0])]);
}

/// A runtime might broadcast the shorter one.
fn dims_of_one_name_have_one_length<R: Runtime>() {
    let side = |name| (name, D::FLOAT, &["n", "t"][..]);
    let bytes = model(&[side("a"), side("b")], &[side("y")], &[], &["y = Add a b"]);
    let shapes = ["a", "b"].map(|port| (port.to_string(), vec![Dim::AtMost(4)])).into();
    let prepared = prepare_model::<R>(&bytes, |model| model.shapes = shapes).unwrap();
    let mut session = prepared.session(1).unwrap();
    let mut add = |a: &[f32], b: &[f32]| {
        let (mut shape, mut y) = ([4], [0f32; 4]);
        let input = |x| BatchRef { dtype: DType::F32, shape: &[], bytes: bytemuck::cast_slice::<f32, u8>(x) };
        let (a_shape, b_shape) = ([a.len()], [b.len()]);
        let inputs = [BatchRef { shape: &a_shape, ..input(a) }, BatchRef { shape: &b_shape, ..input(b) }];
        let output = BatchMut { dtype: DType::F32, shape: &mut shape, bytes: bytemuck::cast_slice_mut(&mut y) };
        let result = session.infer_one(&inputs, &mut [output], &mut OnnxLane::default());
        result.map(|()| y[..shape[0]].to_vec()).map_err(|error| error.to_string())
    };
    let items = [(&[1.0, 2.0][..], &[3.0, 4.0][..]), (&[1.0, 2.0], &[3.0]), (&[1.0], &[3.0])];
    let found = answers(&items, |(a, b)| add(a, b));
    assert_eq!((&found[0], &found[2]), (&Ok(vec![4.0, 6.0]), &Ok(vec![4.0])));
    let error = found[1].as_ref().unwrap_err();
    assert!(error.contains("`a` and `b` must have the same length, got 2 and 1"), "{error}");
}

fn a_wrong_declaration_gives_way_to_what_the_model_returns<R: Runtime>() {
    let bytes =
        model(&[("x", D::FLOAT, &["n", "2"])], &[("y", D::FLOAT, &["n", "3"])], &[], &["y = Concat x x axis==1"]);
    // A runtime may refuse the file instead.
    if let Ok(prepared) = prepare_model::<R>(&bytes, |_| ()) {
        assert_eq!(prepared.signature().outputs[0].shape, [Dim::Fixed(4)]);
    }
}

fn a_state_that_grows_is_refused<R: Runtime>() {
    let bytes = model(
        &[("x", D::FLOAT, &["1", "1"]), ("past", D::FLOAT, &["1", "p"])],
        &[("y", D::FLOAT, &["1", "1"]), ("present", D::FLOAT, &["1", "q"])],
        &[],
        &["y = Neg x", "present = Concat past x axis==1"],
    );
    let state = ModelState { input: "past".into(), output: "present".into(), batch_dim: None };
    let error = prepare_model::<R>(&bytes, |model| model.states = vec![state]).unwrap_err().to_string();
    assert!(error.contains("dim 1 of the state `present` must be 1 for one item, got f32[1, 2]"), "{error}");
}

/// Through the engine: the first output has twice the elements, the second goes nowhere, the third
/// has as many as are not 0.
fn a_graph_carries_messages_of_every_length<R: Runtime>() {
    let name = R::NAME;
    for (more, figures) in [
        (String::new(), None),
        ("in_flight: 3".to_string(), None),
        (format!("shadow: {{ backend: {name}, every: 1 }}"), Some([15.0, 0.0, 0.0])),
        (format!("verify: {{ against: {name} }}"), None),
    ] {
        carry::<R>(&more, figures);
    }
}

/// Sends messages through a model with `more` in its config, and expects these figures of its
/// shadow.
fn carry<R: Runtime>(more: &str, figures: Option<[f64; 3]>) {
    let side = |name, dims| (name, D::FLOAT, dims);
    let bytes = model(
        &[side("x", &["n", "t"][..])],
        &[side("twice", &["n", "u"]), side("same", &["n", "t"]), ("places", D::INT64, &["2", "k"])],
        &[],
        &["same = Neg x", "twice = Concat x same axis==1", "places = NonZero x"],
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.onnx"), bytes).unwrap();
    let (path, name) = (folder.path().join("graph.yaml"), R::NAME);
    let text = format!(
        "version: 1\nnodes:\n  a: {{ kind: inlet, config: {{ spec: \"f32[<=4]\" }} }}\n  m:\n    kind: infer\n    \
         config: {{ model: m.onnx, backend: {name}, max: {{ places: 3 }}, plans: 2, {more} }}\n    from: a\n    on_error: skip\n  \
         z: {{ kind: outlet, config: {{ hold: 10 }}, from: m/twice }}\n  \
         p: {{ kind: outlet, config: {{ hold: 10 }}, from: m/places }}\n"
    );
    std::fs::write(&path, text).unwrap();
    let registry = limen::Registry::new().with(crate::register);
    let registry = registry.inlet::<limen::Tensor>("inlet").outlet::<limen::Tensor>("outlet");
    let plan = limen::Plan::new(limen::Spec::from_file(&path).unwrap(), &registry).unwrap();
    let mut graph = plan.wire().unwrap();
    let mut inlet = graph.inlet::<limen::Tensor>("a").unwrap();
    let mut outlets = ["z", "p"].map(|name| graph.outlet::<limen::Tensor>(name).unwrap());
    let running = graph.start().unwrap();
    let wait = std::time::Duration::from_secs(120);
    let mut sent = [&[1.0f32, 2.0, 0.0][..], &[3.0], &[1.0, 0.0, 0.0, 4.0], &[5.0; 4], &[0.0, 0.0], &[7.0, 8.0, 9.0]];
    for _ in 0..3 {
        for x in &sent {
            let mut message = inlet.loan(&inlet.header()).unwrap();
            message.set_len(0, x.len()).unwrap();
            message.as_mut_slice::<f32>().unwrap().copy_from_slice(x);
            inlet.send(message).unwrap();
        }
        // With more places than `max` allows the call fails.
        for x in sent.iter().filter(|x| x.iter().filter(|x| **x != 0.0).count() <= 3) {
            let [twice, places] = outlets.each_mut().map(|outlet| outlet.recv_timeout(wait).unwrap());
            let expected: Vec<f32> = x.iter().copied().chain(x.iter().map(|x| -x)).collect();
            assert_eq!(twice.body.as_slice::<f32>().unwrap(), expected, "{more}");
            let at: Vec<i32> = (0..).zip(*x).filter(|(_, x)| **x != 0.0).map(|(at, _)| at).collect();
            assert_eq!(places.body.shape()[..], [2, at.len()], "{more}");
            assert_eq!(places.body.as_slice::<i32>().unwrap()[at.len()..], at, "{more}");
        }
        sent.reverse();
    }
    inlet.close();
    let report = running.wait();
    assert!(report.bugs.is_empty(), "{:?}", report.bugs);
    let node = report.nodes.iter().find(|node| node.name == "m").unwrap();
    assert_eq!((node.done, node.failed), (15, 3), "{more}");
    if let Some(expected) = figures {
        let figure = |name: &str| node.metrics.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        let found = ["shadow_compared", "shadow_over", "shadow_failed"].map(figure);
        assert_eq!(found, expected.map(Some), "{more}");
    }
}

/// A loop that ends when a number is large enough: calls with one, two and three items show whether
/// its output has a row for each.
#[cfg(feature = "rten")]
#[test]
fn the_output_of_a_loop_is_a_batch_if_trials_show_it() {
    use crate::backend::RtenRuntime;
    use crate::onnx::test_subgraphs::looped;

    let file = |last: &str| {
        let inputs = [("i", D::INT64, &[][..]), ("c", D::BOOL, &[]), ("v", D::FLOAT, &["a", "3"])];
        let outputs = [("c2", D::BOOL, &[][..]), ("v2", D::FLOAT, &["a", "3"])];
        let weights = [floats("one", &[], &[1.0]), floats("limit", &[], &[9.0])];
        let nodes = ["v2 = Add v one", "m = ReduceMax v2 keepdims==0", "c2 = Less m limit"];
        let body = model(&inputs, &outputs, &weights, &nodes);
        let outer =
            model(&[("x", D::FLOAT, &["n", "3"])], &[("y", D::FLOAT, &["k", "3"])], &[ints("first", &[0])], &[last]);
        looped(outer, &["", "", "x"], &["z"], &body)
    };
    let prepared = prepare_model::<RtenRuntime>(&file("y = Neg z"), |_| ()).unwrap();
    assert_eq!((&prepared.signature().outputs[0].shape[..], prepared.single()), (&[Dim::Fixed(3)][..], None));
    let found = numbers(&mut prepared.session(2).unwrap(), &[3], &[8.0, 1.0, 2.0, 3.0, 4.0, 5.0], 3).unwrap();
    assert_eq!(found, [-9.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
    // A greatest length as for an output without a batch.
    let bounded = |model: &mut OnnxModel| model.max = [("y".to_string(), vec![1, 3])].into();
    let prepared = prepare_model::<RtenRuntime>(&file("y = Neg z"), bounded).unwrap();
    assert_eq!(prepared.signature().outputs[0].shape, [Dim::Fixed(3)]);
    // One row for any number of items.
    let error = prepare_model::<RtenRuntime>(&file("y = ReduceMax z first"), |_| ()).unwrap_err().to_string();
    assert!(error.contains("depends on values (dim 0, `k`; node `loop` (Loop))"), "{error}");
    let prepared = prepare_model::<RtenRuntime>(&file("y = ReduceMax z first"), bounded).unwrap();
    assert_eq!(prepared.signature().outputs[0].shape, [Dim::AtMost(1), Dim::Fixed(3)]);
}
