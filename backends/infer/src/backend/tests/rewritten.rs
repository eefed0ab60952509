//! Models of which a runtime gets other operators, compared with ONNX Runtime.

use super::*;
use crate::backend::OrtRuntime;
use crate::onnx::test_subgraphs::with_if;

/// Makes the same calls in one session of a runtime and in one of ONNX Runtime, each on some items.
/// The model's input is `x`.
fn as_ort<R: Runtime>(model: &OnnxModel, calls: &[(usize, &[f32])], what: &str) {
    let ours = Onnx::<R>::prepare(model.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let theirs = Onnx::<OrtRuntime>::prepare(model.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(ours.signature().outputs, theirs.signature().outputs, "{what}");
    let most = calls.iter().map(|(batch, _)| *batch).max().unwrap();
    let lengths = |spec: &TensorSpec| spec.shape.iter().map(|dim| dim.max().unwrap()).collect::<Vec<usize>>();
    let (x, y) = (lengths(&ours.signature().inputs[0]), lengths(&ours.signature().outputs[0]));
    let (mut ours, mut theirs) = (ours.session(most).unwrap(), theirs.session(most).unwrap());
    assert!(calls.len() > 2);
    for (batch, numbers) in calls {
        let mut found =
            [vec![0f32; y.iter().product::<usize>() * batch], vec![1f32; y.iter().product::<usize>() * batch]];
        let numbers = bytemuck::cast_slice(numbers);
        call(&mut ours, *batch, numbers, &x, &mut found[0]).unwrap_or_else(|error| panic!("{what}: {error}"));
        call(&mut theirs, *batch, numbers, &x, &mut found[1]).unwrap_or_else(|error| panic!("{what}: {error}"));
        let apart = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-5 * b.abs().max(1.0);
        assert!(!std::iter::zip(&found[0], &found[1]).any(apart), "{what}: {found:?}");
    }
}

/// A limit of 0, which is also the one of a node without a limit, keeps no box.
#[cfg(feature = "tract")]
#[test]
fn at_most_0_boxes_are_none() {
    let (x, y) = (("x", D::FLOAT, &["1", "1", "3"][..]), ("y", D::FLOAT, &["1", "1"][..]));
    let apart = [0.0, 0.0, 1.0, 1.0, 0.0, 5.0, 1.0, 6.0, 0.0, 9.0, 1.0, 10.0];
    let weights = [
        floats("boxes", &[1, 3, 4], &apart),
        ints("zero", &[0]),
        ints("two", &[2]),
        floats("iou", &[1], &[0.5]),
        floats("score", &[1], &[0.6]),
    ];
    for limit in ["", "zero", "_ iou", "zero iou score", "two", "two iou score", "two _ _"] {
        // The sum of the indices of the boxes.
        let nodes = [&format!("a = NonMaxSuppression boxes x {limit}"), "s = ReduceSum a", "y = Cast s to==1"];
        let bytes = Some(model(&[x], &[y], &weights, &nodes));
        let given = OnnxModel { path: "m.onnx".into(), bytes, ..OnnxModel::default() };
        let calls: [(usize, &[f32]); 3] = [(1, &[0.9, 0.7, 0.5]), (1, &[0.1, 0.2, 0.3]), (1, &[0.7, 0.8, 0.9])];
        as_ort::<crate::backend::TractRuntime>(&given, &calls, limit);
    }
}

#[cfg(feature = "tract")]
mod branches {
    use super::*;
    use crate::backend::TractRuntime;

    const CALLS: [(usize, &[f32]); 4] =
        [(1, &[1.0, -2.0]), (2, &[3.0, 4.0, -5.0, 6.0]), (1, &[-7.0, 1.0]), (2, &[-3.0, -4.0, -5.0, -6.0])];

    fn graph(outputs: &[Io<'_>], weights: &[onnx::TensorProto], nodes: &[&str]) -> Vec<u8> {
        model(&[], outputs, weights, nodes)
    }

    fn y(shape: &'static [&'static str]) -> [Io<'static>; 1] {
        [("y", D::FLOAT, shape)]
    }

    #[test]
    fn a_constant_input_decides() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        // Of one shape only with the other rate.
        let holds = graph(&y(&["n", "2"]), &[floats("w", &[2], &[1.0, 2.0])], &["y = Add x w"]);
        let fails = graph(&y(&["n", "1"]), &[], &["y = ReduceSum x axis keepdims==1"]);
        let x = [("x", D::FLOAT, &["n", "2"][..]), ("rate", D::INT64, &[][..])];
        let weights = [ints("sixteen", &[16000]), ints("axis", &[1])];
        let nodes = ["condition = Equal rate sixteen"];
        let outer = model(&x, &[("y", D::FLOAT, &["n", "m"])], &weights, &nodes);
        let file = with_if(&outer, "condition", "y", &holds, &fails);
        std::fs::write(&path, file).unwrap();
        let at = |rate: f64| OnnxModel {
            path: path.clone(),
            constants: BTreeMap::from([("rate".to_string(), ConstantInput { shape: vec![], values: vec![rate] })]),
            ..OnnxModel::default()
        };
        // Both share the loaded model.
        let kept = Onnx::<TractRuntime>::prepare(at(8000.0)).unwrap();
        for rate in [16000.0, 8000.0, 16000.0] {
            as_ort::<TractRuntime>(&at(rate), &CALLS, &format!("{rate}"));
        }
        drop(kept);
    }

    /// Only one branch fits the length.
    #[test]
    fn a_shape_decides() {
        let squeezed = graph(&y(&["n", "2"]), &[ints("axis", &[1])], &["y = Squeeze x axis"]);
        let same = graph(&y(&["n", "2"]), &[ints("axis", &[1])], &["y = ReduceMax x axis keepdims==0"]);
        let weights = [ints("dim", &[1]), ints("one", &[1])];
        let nodes = ["shape = Shape x", "length = Gather shape dim", "condition = Equal length one"];
        let outer = model_of_opset(20, &[("x", D::FLOAT, &["n", "k", "2"])], &y(&["n", "2"]), &weights, &nodes);
        let bytes = with_if(&outer, "condition", "y", &squeezed, &same);
        for k in [1, 3] {
            let shapes = BTreeMap::from([("x".to_string(), vec![Dim::Fixed(k), Dim::Fixed(2)])]);
            let (bytes, path) = (Some(bytes.clone()), "m.onnx".into());
            let numbers: Vec<f32> = (0..4 * k).map(|at| (at * 7 % 11) as f32).collect();
            let calls = [(1, &numbers[..2 * k]), (2, &numbers[..]), (1, &numbers[2 * k..])];
            as_ort::<TractRuntime>(&OnnxModel { path, bytes, shapes, ..OnnxModel::default() }, &calls, &k.to_string());
        }
    }

    #[test]
    fn the_number_of_items_decides() {
        let (negative, same) = (["y = Neg x"], ["y = Identity x"]);
        let [negative, same] = [negative, same].map(|nodes| graph(&y(&["n", "2"]), &[], &nodes));
        let weights = [ints("dim", &[0]), ints("one", &[1])];
        let nodes = ["shape = Shape x", "length = Gather shape dim", "condition = Equal length one"];
        let outer = model(&[("x", D::FLOAT, &["n", "2"])], &y(&["n", "2"]), &weights, &nodes);
        let bytes = Some(with_if(&outer, "condition", "y", &negative, &same));
        let model = OnnxModel { path: "m.onnx".into(), bytes, ..OnnxModel::default() };
        as_ort::<TractRuntime>(&model, &CALLS, "batch");
    }

    /// The inner condition is a weight, and the inner branch that does not run would fail.
    #[test]
    fn a_branch_may_hold_branches() {
        let double = graph(&y(&["n", "k"]), &[], &["y = Add x half"]);
        let wrong = graph(&y(&["n", "k"]), &[ints("axis", &[1])], &["y = Squeeze x axis"]);
        let flag = |name: &str, value: u8| onnx::TensorProto {
            name: Some(name.into()),
            data_type: Some(D::BOOL),
            raw_data: Some(vec![value].into()),
            ..Default::default()
        };
        let inner = graph(&y(&["n", "k"]), &[flag("inner", 0)], &["half = Mul x x"]);
        let inner = with_if(&inner, "inner", "y", &wrong, &double);
        let outer = model(&[("x", D::FLOAT, &["n", "k"])], &y(&["n", "k"]), &[flag("outer", 1)], &[]);
        let bytes = Some(with_if(&outer, "outer", "y", &inner, &wrong));
        let shapes = BTreeMap::from([("x".to_string(), vec![Dim::Fixed(2)])]);
        let model = OnnxModel { path: "m.onnx".into(), bytes, shapes, ..OnnxModel::default() };
        as_ort::<TractRuntime>(&model, &CALLS, "nested");
    }

    /// Both branches run in one session.
    #[test]
    fn a_message_decides() {
        let (negative, same) = (["y = Neg x"], ["y = Identity x"]);
        let [negative, same] = [negative, same].map(|nodes| graph(&y(&["1", "2"]), &[], &nodes));
        let nodes = ["sum = ReduceSum x keepdims==0", "condition = Greater sum zero"];
        let outer = model(&[("x", D::FLOAT, &["1", "2"])], &y(&["1", "2"]), &[floats("zero", &[], &[0.0])], &nodes);
        let bytes = Some(with_if(&outer, "condition", "y", &negative, &same));
        let model = OnnxModel { path: "m.onnx".into(), bytes, ..OnnxModel::default() };
        let calls: [(usize, &[f32]); 4] = [(1, &[1.0, 2.0]), (1, &[-1.0, -2.0]), (1, &[3.0, 2.0]), (1, &[-4.0, 2.0])];
        as_ort::<TractRuntime>(&model, &calls, "message");
    }

    #[test]
    fn squeeze_without_axes_drops_every_dim_of_length_one() {
        for opset in [9, 11, 13, 18] {
            for shape in [&["n", "1", "2"][..], &["n", "2"], &["n", "1", "2", "1"]] {
                let x = ("x", D::FLOAT, shape);
                let bytes = model_of_opset(opset, &[x], &y(&["n", "2"]), &[], &["a = Squeeze x", "y = Neg a"]);
                let model = OnnxModel { path: "m.onnx".into(), bytes: Some(bytes), ..OnnxModel::default() };
                let calls: [(usize, &[f32]); 3] = [(1, &[1.0, 2.0]), (1, &[-1.0, -2.0]), (1, &[3.0, 2.0])];
                as_ort::<TractRuntime>(&model, &calls, &format!("{opset} {shape:?}"));
            }
        }
    }
}

#[cfg(feature = "rten")]
mod channels {
    use super::*;
    use crate::backend::RtenRuntime;

    fn model_of(opset: i64, node: &str, dims: &[&str]) -> OnnxModel {
        let node = node.replace(" x ", " a ");
        let (x, y) = (("x", D::FLOAT, dims), ("y", D::FLOAT, dims));
        let bytes = Some(model_of_opset(opset, &[x], &[y], &[], &["a = Neg x", &node]));
        OnnxModel { path: "m.onnx".into(), bytes, ..OnnxModel::default() }
    }

    #[test]
    fn a_mean_over_channels_is_lrn() {
        let numbers: Vec<f32> = (0..2 * 6 * 2 * 3).map(|at| (at * 37 % 41) as f32 / 4.0 - 5.0).collect();
        let calls: [(usize, &[f32]); 3] = [(1, &numbers[..36]), (2, &numbers), (1, &numbers[36..])];
        for opset in [8, 12, 13, 18] {
            for node in [
                "y = LRN x size==3",
                "y = LRN x size==3 alpha=~0.5 beta=~0.6 bias=~2",
                "y = LRN x size==5 alpha=~2",
                "y = LRN x size==1 beta=~1",
                "y = LRN x size==11 alpha=~0.3",
            ] {
                for dims in [&["n", "6", "2", "3"][..], &["n", "4", "1", "9"]] {
                    let what = format!("opset {opset}, {node}, {dims:?}");
                    as_ort::<RtenRuntime>(&model_of(opset, node, dims), &calls, &what);
                }
            }
        }
    }

    /// ONNX Runtime has no even windows, nor fewer than four dims. Computed with NumPy from the sum
    /// in ONNX's definition.
    #[test]
    fn the_larger_half_of_an_even_window_is_behind() {
        let x = [-1.0f32, 2.0, -3.0, -4.0, 5.0, -6.0];
        for (size, expected) in [
            (2, [0.408248, -0.534522, 0.588348, 0.617213, -0.635000, 0.986393]),
            (4, [0.353553, -0.5, 0.566946, 0.603022, -0.795557, 1.069044]),
        ] {
            let node = format!("y = LRN x size=={size} alpha=~2 beta=~0.5");
            for (dims, item) in
                [(&["n", "6"][..], &[6][..]), (&["n", "6", "1"], &[6, 1]), (&["n", "6", "1", "1"], &[6, 1, 1])]
            {
                let mut session = Onnx::<RtenRuntime>::prepare(model_of(18, &node, dims)).unwrap().session(1).unwrap();
                for _ in 0..3 {
                    let mut y = [0f32; 6];
                    call(&mut session, 1, bytemuck::cast_slice(&x), item, &mut y).unwrap();
                    assert!(
                        std::iter::zip(y, expected).all(|(a, b)| (a - b).abs() < 1e-5f32),
                        "{node}, {dims:?}: {y:?}"
                    );
                }
            }
        }
    }
}
