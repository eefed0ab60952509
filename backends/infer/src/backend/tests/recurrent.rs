//! Recurrent operators.

use super::*;

on_every_runtime! {
    recurrent_models_remember_nothing_between_calls
    recurrent_operators_deviate_only_where_a_runtime_says
    the_batch_of_a_recurrent_operator_may_have_no_length_yet
}

/// Two streams of three steps.
const STREAMS: [[f32; 3]; 2] = [[1.0, 2.0, 3.0], [-1.0, 0.0, 1.0]];

/// What an LSTM makes of them, as below.
const LSTM: [[f32; 3]; 2] = [[0.17427, 0.511985, 0.788972], [-0.0652085, -0.0523366, 0.120956]];

/// A model with one hidden unit, all weights of which are 0.5 and 0.7: `y = LSTM x w r clip=~0.3`.
/// `lengths` says 2 of 3 steps.
fn steps(op: &str, node: &str) -> Vec<u8> {
    let gates = match op {
        "RNN" => 1,
        "GRU" => 3,
        _ => 4,
    };
    let of = |name, value| floats(name, &[1, gates, 1], &[value; 4][..gates as usize]);
    let lengths = onnx::TensorProto {
        data_type: Some(D::INT32),
        int32_data: vec![2],
        int64_data: Vec::new(),
        ..ints("lengths", &[2])
    };
    let (x, y) = (("x", D::FLOAT, &["3", "1", "1"][..]), ("y", D::FLOAT, &["3", "1", "1", "1"][..]));
    model(&[x], &[y], &[of("w", 0.5), of("r", 0.7), lengths], &[&format!("y = {op} x w r hidden_size==1 {node}")])
}

/// The outputs for both streams, several times in one session; none if the runtime refuses the
/// model.
fn outputs<R: Runtime>(model: Vec<u8>) -> Option<Vec<Vec<f32>>> {
    let prepared = match prepare_bytes::<R>(model, &[]) {
        Ok(prepared) => prepared,
        Err(BackendError::Unsupported(_)) => return None,
        Err(error) => panic!("{error}"),
    };
    let shape: Vec<usize> = prepared.signature().inputs[0].shape.iter().map(|dim| dim.max().unwrap()).collect();
    let mut session = prepared.session(1).unwrap();
    Some(answers(&STREAMS, |x| numbers(&mut session, &shape, x, 3).unwrap()))
}

fn recurrent_models_remember_nothing_between_calls<R: Runtime>() {
    // The only kind of GRU that rten has.
    let nodes = [("RNN", ""), ("GRU", "linear_before_reset==1"), ("LSTM", "")];
    let ran = nodes.into_iter().filter_map(|(op, node)| {
        let found = outputs::<R>(steps(op, node))?;
        assert!(found[0] != found[1] && found[0].iter().all(|y| *y != 0.0), "{op}: {found:?}");
        Some(op)
    });
    let ran: Vec<&str> = ran.collect();
    assert!(ran.contains(&"LSTM") && ran.contains(&"GRU"), "{ran:?}");
}

/// Without a first state, which would have the length.
fn the_batch_of_a_recurrent_operator_may_have_no_length_yet<R: Runtime>() {
    let of = |name, value| floats(name, &[1, 4, 1], &[value; 4]);
    let (x, y) = (("x", D::FLOAT, &["n", "3", "1"][..]), ("y", D::FLOAT, &["n", "3", "1", "1"][..]));
    let nodes = ["a = Transpose x perm=1,0,2", "b = LSTM a w r hidden_size==1", "y = Transpose b perm=2,0,1,3"];
    let prepared = prepare_bytes::<R>(model(&[x], &[y], &[of("w", 0.5), of("r", 0.7)], &nodes), &[]).unwrap();
    let mut session = prepared.session(2).unwrap();
    let items = [&STREAMS.concat()[..], &STREAMS[0], &STREAMS[1]].map(<[f32]>::to_vec);
    let found = answers(&items, |x| numbers(&mut session, &[3, 1], x, 3).unwrap());
    for (found, expected) in [(&found[0], LSTM.concat()), (&found[1], LSTM[0].to_vec()), (&found[2], LSTM[1].to_vec())]
    {
        assert!(std::iter::zip(found, &expected).all(|(y, expected)| (y - expected).abs() < 1e-5), "{found:?}");
    }
}

/// Expected are the numbers of ONNX Runtime 1.32 in Python. A runtime gives them, or refuses the
/// model, or lists the operator as a deviation; what it lists is really otherwise.
fn recurrent_operators_deviate_only_where_a_runtime_says<R: Runtime>() {
    const GRU: [[f32; 3]; 2] = [[0.174468, 0.327533, 0.419028], [-0.287649, -0.179089, 0.0575494]];
    let short = |[first, second]: [[f32; 3]; 2]| [[first[0], first[1], 0.0], [second[0], second[1], 0.0]];
    for (op, node, expected) in [
        ("RNN", "activations=@Tanh", [[0.462117, 0.867647, 0.970877], [-0.462117, -0.312652, 0.273963]]),
        ("RNN", "activations=@Softsign", [[0.333333, 0.552239, 0.653568], [-0.333333, -0.189189, 0.268775]]),
        ("RNN", "clip=~0.3", [[0.291313; 3], [-0.291313, -0.201139, 0.291313]]),
        ("RNN", "_ lengths", [[0.462117, 0.867647, 0.0], [-0.462117, -0.312652, 0.0]]),
        ("GRU", "linear_before_reset==1 activations=@Sigmoid,Tanh", GRU),
        (
            "GRU",
            "linear_before_reset==1 activations=@Sigmoid,Softsign",
            [[0.125847, 0.224144, 0.287556], [-0.207486, -0.130063, 0.0448358]],
        ),
        ("GRU", "linear_before_reset==1 clip=~0.3", [[0.12397, 0.195184, 0.236092], [-0.167342, -0.107931, 0.0619699]]),
        ("GRU", "_ lengths linear_before_reset==1", short(GRU)),
        ("LSTM", "activations=@Sigmoid,Tanh,Tanh", LSTM),
        (
            "LSTM",
            "activations=@HardSigmoid,Tanh,Tanh",
            [[0.162226, 0.472712, 0.784098], [-0.073108, -0.0563532, 0.109161]],
        ),
        ("LSTM", "clip=~0.3", [[0.0952412, 0.147941, 0.177114], [-0.0524879, -0.0386314, 0.0697562]]),
        ("LSTM", "input_forget==1", [[0.17427, 0.446401, 0.620141], [-0.0652085, -0.0542587, 0.133862]]),
        ("LSTM", "_ lengths", short(LSTM)),
    ] {
        let bytes = steps(op, node);
        let outline = Artifact::parse(Path::new("m.onnx"), bytes.clone()).unwrap().outline;
        let deviates = R::deviations().iter().any(|known| known.op == op && known.is_of(&outline.ops[0]));
        let Some(found) = outputs::<R>(bytes) else {
            assert!(!deviates, "{op} {node} is refused");
            continue;
        };
        let is_right = |(found, expected): (&Vec<f32>, [f32; 3])| {
            std::iter::zip(found, expected).all(|(found, expected)| (found - expected).abs() < 1e-5)
        };
        assert_eq!(std::iter::zip(&found, expected).all(is_right), !deviates, "{op} {node}: {found:?}");
    }
}
