//! Damaged and contradictory models.

use super::*;

on_every_runtime! {
    a_truncated_model_is_an_error
    a_damaged_model_never_panics
    contradictory_models_are_refused
    operators_that_do_not_exist_are_named
}

fn a_truncated_model_is_an_error<R: Runtime>() {
    for model in MODELS {
        let bytes = std::fs::read(graphs(&format!("{model}.onnx"))).unwrap();
        for part in 0..100 {
            let cut = bytes[..bytes.len() * part / 100].to_vec();
            let error = prepare_bytes::<R>(cut, &[]).unwrap_err().to_string();
            assert!(error.starts_with("cannot load the model: "), "{model} {part}: {error}");
            let what = if part == 0 { "an empty file" } else { "the ONNX model is truncated or damaged: " };
            assert!(error.contains(what), "{model} {part}: {error}");
        }
    }
}

/// Without the checks of this crate, rten loops forever on some of these and aborts the process on
/// others.
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

fn contradictory_models_are_refused<R: Runtime>() {
    let x: Io<'_> = ("x", D::FLOAT, &["n", "2"]);
    let y: Io<'_> = ("y", D::FLOAT, &["n", "2"]);
    let raw = |dims: &[i64], bytes: usize| onnx::TensorProto {
        raw_data: Some(vec![0; bytes].into()),
        ..floats("w", dims, &[])
    };
    let add: &[&str] = &["y = Add x w"];
    let cases: [(&[Io<'_>], onnx::TensorProto, &[&str], &str); 9] = [
        (&[x], raw(&[2], 7), add, "tensor `w` must have 8 bytes for float[2], got 7"),
        (&[x], raw(&[-2], 8), add, "tensor `w` must have dims of length 0 or more, got -2"),
        (&[x], floats("w", &[1 << 40], &[]), add, "tensor `w` must fit in the file of "),
        (&[x], raw(&[1 << 40, 1 << 40], 8), add, "must have a shape that fits in memory, got"),
        (&[x], floats("v", &[2], &[1.0, 2.0]), add, "node `y` (Add) reads `w`, which is not in the model"),
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
        (&[("x", D::FLOAT, &["n", "-2"])], raw(&[2], 8), add, "input `x` must have dims of length 1 or more, got -2"),
        (
            &[("x", D::FLOAT, &["n", "1099511627776"])],
            raw(&[1], 4),
            add,
            "input `x` must have at most 1.00 GiB per item, got 4096 GiB",
        ),
    ];
    for (inputs, weight, nodes, what) in cases {
        let error = prepare_bytes::<R>(model(inputs, &[y], &[weight], nodes), &[]).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    let many: Vec<String> = (0..40_000).map(|at| format!("a{at} = Relu x")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).chain(["y = Relu x"]).collect();
    let error = prepare_bytes::<R>(model(&[x], &[y], &[], &many), &[]).unwrap_err().to_string();
    assert!(error.contains("a model must have at most 32768 nodes, got 40001"), "{error}");
    let plain = model(&[x], &[y], &[floats("w", &[2], &[1.0, 2.0])], add);
    // Functions of a model, sparse weights of its graph.
    let sparse = field(15, &field(1, &field(8, b"s")));
    for (more, what) in [
        (field(25, &field(1, b"twice")), "the model defines local functions, such as `twice`"),
        // A decoder merges a second graph into the first.
        (field(7, &sparse), "tensor `s` must be dense, got a sparse tensor"),
        (field(7, &field(1, &field(5, &field(22, &[])))), "must be dense, got a sparse tensor"),
    ] {
        let error = prepare_bytes::<R>([&plain[..], &more].concat(), &[]).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    let error = prepare_bytes::<R>(model(&[x], &[("z", D::FLOAT, &["n"])], &[], &["y = Relu x"]), &[]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no node produces the output `z`"), "{error}");
}

fn operators_that_do_not_exist_are_named<R: Runtime>() {
    let bytes = model(&[("x", D::FLOAT, &["n"])], &[("y", D::FLOAT, &["n"])], &[], &["y = Frobnicate x"]);
    let error = prepare_bytes::<R>(bytes, &[]).unwrap_err();
    assert!(matches!(&error, BackendError::Unsupported(why) if why.contains("Frobnicate")), "{error}");
}
