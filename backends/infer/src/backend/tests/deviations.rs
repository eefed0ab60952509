//! Where a runtime computes otherwise than ONNX defines.

use super::*;

on_every_runtime! {
    a_runtime_deviates_from_onnx_only_where_it_says
    an_integer_beyond_32_bits_is_right_or_fails_the_call
}

/// The error names the operator.
fn an_integer_beyond_32_bits_is_right_or_fails_the_call<R: Runtime>() {
    let (x, y) = (("x", D::FLOAT, &["3"][..]), ("y", D::FLOAT, &["3"][..]));
    let weights = [ints("b", &[1 << 20])];
    type Row<'a> = (&'a [&'a str], [f32; 3], [f32; 3]);
    let rows: [Row<'_>; 3] = [
        (&["a = Cast x to==7", "y = Cast a to==1"], [3e9, 1.0, -3e9], [3e9, 1.0, -3e9]),
        (&["a = Cast x to==7", "y = Cast a to==1"], [2e9, 1.5, -2e9], [2e9, 1.0, -2e9]),
        (
            &["a = Cast x to==7", "c = Mul a b", "d = Div c b", "y = Cast d to==1"],
            [4096.0, 1.0, -1.0],
            [4096.0, 1.0, -1.0],
        ),
    ];
    for (nodes, given, expected) in rows {
        let bytes = model_of_opset(18, &[x], &[y], &weights, nodes);
        let mut session = prepare_bytes::<R>(bytes, &[]).unwrap().session(1).unwrap();
        let mut found = [0f32; 3];
        match call(&mut session, 1, bytemuck::cast_slice(&given), &[3], &mut found) {
            Ok(()) => assert_eq!(found, expected, "{nodes:?}"),
            Err(error) => {
                let said = error.to_string();
                assert!(!matches!(R::NAME, "tract" | "ort") && given != [2e9, 1.5, -2e9], "{said}");
                let node = if nodes.len() > 2 { "Mul (node `c`)" } else { "Cast (node `a`)" };
                assert!(said.contains(node) && said.contains("does not fit 32 bits"), "{said}");
            }
        }
    }
}

/// Expected are the results that ONNX defines. A runtime gives them, or refuses the model, or lists
/// the operator as a deviation; what it lists is really otherwise.
fn a_runtime_deviates_from_onnx_only_where_it_says<R: Runtime>() {
    let vector = floats("v", &[2], &[1.0, 10.0]);
    let one = |name: &str| floats(name, &[1, 1, 1], &[1.0]);
    let reverse = [(0.5f32 + 1f32.tanh()).tanh(), 1f32.tanh()];
    let forward = [0.5f32.tanh(), (1.0 + 0.5f32.tanh()).tanh()];
    let celu = |x: f32, alpha: f32| x.max(0.0) + (alpha * ((x / alpha).exp() - 1.0)).min(0.0);
    let swish = |x: f32, alpha: f32| x / (1.0 + (-alpha * x).exp());
    let quarters = [0.25f32; 8];
    let halves = [0.5f32; 8];
    let (rnn, scales) = ([one("w"), one("r")], [floats("e", &[0], &[]), floats("s", &[4], &[1.0, 1.0, 1.0, 2.0])]);
    let cubic: Vec<f32> = cubic_upsampled();
    let corners = |scale: f32| [floats("e", &[0], &[]), floats("s", &[4], &[1.0, 1.0, scale, scale])];
    let (fraction, whole) = (corners(0.6), corners(2.0));
    // From ONNX's cases `test_resize_upsample_scales_linear_align_corners` and
    // `test_maxunpool_export_with_output_shape`.
    let thirds: Vec<f32> =
        [3, 4, 5, 6, 5, 6, 7, 8, 7, 8, 9, 10, 9, 10, 11, 12].iter().map(|n| *n as f32 / 3.0).collect();
    let indices = onnx::TensorProto { dims: vec![1, 1, 2, 2], ..ints("i", &[5, 7, 13, 15]) };
    let unpooled = |width: usize, at: [usize; 4]| {
        let mut all = vec![0.0; width * width];
        std::iter::zip(at, [5.0, 6.0, 7.0, 8.0]).for_each(|(at, number)| all[at] = number);
        all
    };
    let (unpool, padded) = ([indices.clone()], [indices, ints("o", &[1, 1, 5, 5])]);
    let (inner, outer) = (unpooled(4, [5, 7, 13, 15]), unpooled(5, [6, 8, 16, 18]));
    let identity = floats("w", &[2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let first = [ints("z", &[0]), ints("one", &[1]), floats("w", &[1, 2], &[0.0, 0.0])];
    type Row<'a> = (i64, &'a [&'a str], &'a [onnx::TensorProto], &'a [&'a str], &'a [f32], &'a [&'a str], &'a [f32]);
    // ONNX defines the mode CRD by a reshape to [2, 2, 2, height, width].
    let wide: Vec<f32> = (0u16..48).map(f32::from).collect();
    let columns_first: Vec<f32> = (0u16..48)
        .map(|at| (at / 24, at / 6 % 4, at % 6))
        .map(|(channel, row, column)| {
            f32::from((channel * 4 + row % 2 * 2 + column % 2) * 6 + row / 2 * 3 + column / 2)
        })
        .collect();
    let counts = [0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    let one_tap = floats("w", &[1, 1, 2], &[10.0, 1.0]);
    let lower = [1.0, 12.0, 23.0, 34.0];
    let seven = [floats("s", &[], &[0.7]), floats("one", &[], &[1.0])];
    let rows: &[Row<'_>] = &[
        // Halves of the scale, the first two to even. The product with its reciprocal would round
        // these up.
        (
            18,
            &["a = QuantizeLinear x s", "y = DequantizeLinear a one"],
            &seven,
            &["1", "4"],
            &[41.649_998, 10.849_999, f32::INFINITY, -1e30],
            &["1", "4"],
            &[59.0, 15.0, 255.0, 0.0],
        ),
        // All attributes are optional.
        (
            18,
            &["y = Conv x w"],
            std::slice::from_ref(&one_tap),
            &["1", "1", "4"],
            &[1.0, 2.0, 3.0, 4.0],
            &["1", "1", "3"],
            &[12.0, 23.0, 34.0],
        ),
        (
            18,
            &["y = Conv x w kernel_shape=2 strides=1 auto_pad=:SAME_LOWER"],
            std::slice::from_ref(&one_tap),
            &["1", "1", "4"],
            &[1.0, 2.0, 3.0, 4.0],
            &["1", "1", "4"],
            &lower,
        ),
        (
            18,
            &["a = Neg x", "b = Neg a", "y = Conv b w kernel_shape=2 strides=2 auto_pad=:SAME_LOWER"],
            std::slice::from_ref(&one_tap),
            &["1", "1", "5"],
            &[1.0, 2.0, 3.0, 4.0, 5.0],
            &["1", "1", "3"],
            &[1.0, 23.0, 45.0],
        ),
        (
            18,
            &["a = Neg x", "b = Neg a", "y = MaxPool b kernel_shape=2 strides=2 auto_pad=:SAME_LOWER"],
            &[],
            &["1", "1", "5"],
            &[1.0, 2.0, 3.0, 4.0, 5.0],
            &["1", "1", "3"],
            &[1.0, 3.0, 5.0],
        ),
        (
            18,
            &["b = Cast x to==9", "y = Cast b to==1"],
            &[],
            &["5"],
            &[0.0, -0.0, 0.5, f32::NAN, 2.0],
            &["5"],
            &[0.0, 0.0, 1.0, 1.0, 1.0],
        ),
        (
            18,
            &["y = Mod x w fmod==1"],
            &[floats("w", &[1, 3, 2], &[3.0, 2.0, 1.0, 2.0, 2.0, 3.0])],
            &["2", "1", "1"],
            &[7.0, 5.0],
            &["2", "3", "2"],
            &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 2.0, 1.0, 0.0, 1.0, 1.0, 2.0],
        ),
        (18, &["y = Softplus x"], &[], &["3"], &[0.0, 100.0, -100.0], &["3"], &[2f32.ln(), 100.0, 0.0]),
        (18, &["y = Sign x"], &[], &["3"], &[-2.0, 0.0, 3.0], &["3"], &[-1.0, 0.0, 1.0]),
        (18, &["a = ArgMax x axis==0", "y = Cast a to==1"], &[], &["3"], &[1.0, 2.0, 2.0], &["1"], &[1.0]),
        (
            18,
            &["a = ArgMax x axis==0 select_last_index==1", "y = Cast a to==1"],
            &[],
            &["3"],
            &[1.0, 2.0, 2.0],
            &["1"],
            &[2.0],
        ),
        (18, &["a = ArgMin x axis==0", "y = Cast a to==1"], &[], &["3"], &[2.0, 1.0, 1.0], &["1"], &[1.0]),
        (
            18,
            &["a = ArgMin x axis==0 select_last_index==1", "y = Cast a to==1"],
            &[],
            &["3"],
            &[2.0, 1.0, 1.0],
            &["1"],
            &[2.0],
        ),
        (11, &["y = Softmax x axis==1"], &[], &["2", "2", "2"], &[1.0; 8], &["2", "2", "2"], &quarters),
        (11, &["y = Softmax x"], &[], &["2", "2", "2"], &[1.0; 8], &["2", "2", "2"], &quarters),
        (11, &["y = Softmax x axis==2"], &[], &["2", "2", "2"], &[1.0; 8], &["2", "2", "2"], &halves),
        (13, &["y = Softmax x axis==1"], &[], &["2", "2", "2"], &[1.0; 8], &["2", "2", "2"], &halves),
        (11, &["a = LogSoftmax x axis==1", "y = Exp a"], &[], &["2", "2", "2"], &[1.0; 8], &["2", "2", "2"], &quarters),
        (
            18,
            &["y = MatMul x v"],
            std::slice::from_ref(&vector),
            &["2", "2"],
            &[1.0, 2.0, 3.0, 4.0],
            &["2"],
            &[21.0, 43.0],
        ),
        (
            18,
            &["a = MatMul x v", "y = Add a x2"],
            &[vector.clone(), floats("x2", &[2, 1], &[0.0, 0.0])],
            &["2", "1", "2"],
            &[1.0, 2.0, 3.0, 4.0],
            &["2", "1"],
            &[21.0, 43.0],
        ),
        (
            18,
            &["y = Resize x e s mode=:cubic"],
            &scales,
            &["1", "1", "1", "4"],
            &[1.0, 2.0, 3.0, 4.0],
            &["1", "1", "1", "8"],
            &cubic,
        ),
        (
            18,
            &["a = Cast x to==10", "b = Celu a alpha=~1", "y = Cast b to==1"],
            &[],
            &["3"],
            &[-2.0, 0.0, 3.0],
            &["3"],
            &[-2.0, 0.0, 3.0].map(|x| celu(x, 1.0)),
        ),
        (18, &["y = Celu x"], &[], &["3"], &[-2.0, 0.0, 3.0], &["3"], &[-2.0, 0.0, 3.0].map(|x| celu(x, 1.0))),
        (18, &["y = Celu x alpha=~2"], &[], &["3"], &[-2.0, 0.0, 3.0], &["3"], &[-2.0, 0.0, 3.0].map(|x| celu(x, 2.0))),
        (24, &["y = Swish x"], &[], &["3"], &[-2.0, 0.0, 3.0], &["3"], &[-2.0, 0.0, 3.0].map(|x| swish(x, 1.0))),
        (
            24,
            &["y = Swish x alpha=~2"],
            &[],
            &["3"],
            &[-2.0, 0.0, 3.0],
            &["3"],
            &[-2.0, 0.0, 3.0].map(|x| swish(x, 2.0)),
        ),
        (
            18,
            &["y = DepthToSpace x blocksize==2 mode=:CRD"],
            &[],
            &["1", "8", "2", "3"],
            &wide,
            &["1", "2", "4", "6"],
            &columns_first,
        ),
        (
            18,
            &["y = DepthToSpace x blocksize==2 mode=:CRD"],
            &[],
            &["1", "8", "1", "1"],
            &counts,
            &["1", "2", "2", "2"],
            &counts,
        ),
        (
            18,
            &["y = DepthToSpace x blocksize==2"],
            &[],
            &["1", "8", "1", "1"],
            &counts,
            &["1", "2", "2", "2"],
            &[0.0, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0],
        ),
        (
            28,
            &["y = SpaceToDepth x blocksize==2 mode=:CRD"],
            &[],
            &["1", "2", "2", "2"],
            &counts,
            &["1", "8", "1", "1"],
            &counts,
        ),
        (
            13,
            &["y = SpaceToDepth x blocksize==2"],
            &[],
            &["1", "2", "2", "2"],
            &counts,
            &["1", "8", "1", "1"],
            &[0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0],
        ),
        (
            18,
            &["y = Resize x e s mode=:linear coordinate_transformation_mode=:align_corners"],
            &fraction,
            &["1", "1", "2", "4"],
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
            &["1", "1", "1", "2"],
            &[1.0, 22.0 / 7.0],
        ),
        (
            18,
            &["y = Resize x e s mode=:linear coordinate_transformation_mode=:align_corners"],
            &whole,
            &["1", "1", "2", "2"],
            &[1.0, 2.0, 3.0, 4.0],
            &["1", "1", "4", "4"],
            &thirds,
        ),
        (
            11,
            &["y = MaxUnpool x i kernel_shape=2,2 strides=2,2"],
            &unpool,
            &["1", "1", "2", "2"],
            &[5.0, 6.0, 7.0, 8.0],
            &["1", "1", "4", "4"],
            &inner,
        ),
        (
            11,
            &["y = MaxUnpool x i o kernel_shape=2,2 strides=2,2"],
            &padded,
            &["1", "1", "2", "2"],
            &[5.0, 6.0, 7.0, 8.0],
            &["1", "1", "5", "5"],
            &outer,
        ),
        // The rank of its input is declared nowhere, and follows from that of `x`.
        (
            11,
            &["a = MatMul x w", "b = Softmax a axis==2", "y = Identity b"],
            std::slice::from_ref(&identity),
            &["2", "2", "2"],
            &[1.0; 8],
            &["2", "2", "2"],
            &halves,
        ),
        // The symbolic batch is 1 here.
        (
            18,
            &["l = Shape x", "n = Gather l z", "e = Equal n one", "y = Where e x w"],
            &first,
            &["n", "2"],
            &[1.0, 2.0],
            &["n", "2"],
            &[1.0, 2.0],
        ),
        (18, &["y = RNN x w r hidden_size==1"], &rnn, &["2", "1", "1"], &[0.5, 1.0], &["2", "1", "1", "1"], &forward),
        (
            18,
            &["y = RNN x w r hidden_size==1 direction=:reverse"],
            &rnn,
            &["2", "1", "1"],
            &[0.5, 1.0],
            &["2", "1", "1", "1"],
            &reverse,
        ),
    ];
    let mut ran = 0;
    for (opset, nodes, weights, dims, x, out_dims, expected) in rows {
        let bytes = model_of_opset(*opset, &[("x", D::FLOAT, dims)], &[("y", D::FLOAT, out_dims)], weights, nodes);
        let outline = Artifact::parse(Path::new("m.onnx"), bytes.clone()).unwrap().outline;
        let concerns = |op: &Op| R::deviations().iter().any(|deviation| deviation.is_of(op));
        let deviates = outline.ops.iter().any(concerns);
        let prepared = match prepare_bytes::<R>(bytes, &[]) {
            Ok(prepared) => prepared,
            Err(BackendError::Unsupported(_)) => continue,
            Err(error) => panic!("{nodes:?}: {error}"),
        };
        let lengths = |spec: &TensorSpec| spec.shape.iter().map(|dim| dim.max().unwrap()).collect::<Vec<usize>>();
        let (input, output) = (&prepared.signature().inputs[0], &prepared.signature().outputs[0]);
        let (input, output) = (lengths(input), lengths(output));
        let mut y = vec![0f32; output.iter().product()];
        call(&mut prepared.session(1).unwrap(), 1, bytemuck::cast_slice(x), &input, &mut y).unwrap();
        let is_right =
            y.len() == expected.len() && std::iter::zip(&y, *expected).all(|(y, expected)| (y - expected).abs() < 1e-3);
        assert_eq!(is_right, !deviates, "opset {opset}, {nodes:?}: {y:?}, not {expected:?}");
        ran += 1;
    }
    assert!(ran > rows.len() / 2, "{ran} of {} models ran", rows.len());
}

/// The numbers 1 to 4, interpolated cubically to twice as many: ONNX's weights for half pixels,
/// with -0.75, edges repeated.
fn cubic_upsampled() -> Vec<f32> {
    let weight = |distance: f32| {
        let (a, d) = (-0.75, distance.abs());
        if d <= 1.0 {
            ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
        } else {
            ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
        }
    };
    let at = |n: usize| {
        let x = (n as f32 + 0.5) / 2.0 - 0.5;
        let from = x.floor() as i32 - 1;
        (from..from + 4).map(|i| weight(x - i as f32) * (i.clamp(0, 3) + 1) as f32).sum()
    };
    (0..8).map(at).collect()
}

/// The table of docs/models.md is that of the program; `LIMEN_BLESS=1` rewrites it.
#[cfg(all(feature = "rten", feature = "tract", feature = "ort"))]
#[test]
fn the_page_lists_all_deviations() {
    use crate::onnx::Deviation;
    use std::fmt::Write as _;
    let mut table = String::from("| backend | operators | what the backend does |\n|---|---|---|\n");
    let mut list = |backend: &str, deviations: &[Deviation]| {
        let mut written: Vec<&str> = Vec::new();
        for what in deviations.iter().map(|deviation| deviation.what) {
            if written.contains(&what) {
                continue;
            }
            let ops = deviations.iter().filter(|deviation| deviation.what == what);
            let ops = ops.map(|deviation| match deviation.op {
                Deviation::ANY => deviation.op.to_string(),
                op => format!("`{op}`"),
            });
            let ops: Vec<String> = ops.collect();
            let backend = if written.is_empty() { backend } else { "" };
            written.push(what);
            let _ = writeln!(table, "| {backend} | {} | {what} |", ops.join(", "));
        }
    };
    list("`rten`", crate::backend::RtenRuntime::deviations());
    list("`tract`, `wgpu`, `cuda`", crate::backend::TractRuntime::deviations());
    list("`ort`, on every device", crate::backend::OrtRuntime::deviations());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("<!-- deviations -->\n").unwrap();
    let (_, behind) = rest.split_once("<!-- end of deviations -->").unwrap();
    let made = format!("{before}<!-- deviations -->\n{table}<!-- end of deviations -->{behind}");
    if std::env::var_os("LIMEN_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(
        made == page || std::env::var_os("LIMEN_BLESS").is_some(),
        "docs/models.md is out of date; LIMEN_BLESS=1 rewrites it"
    );
}
