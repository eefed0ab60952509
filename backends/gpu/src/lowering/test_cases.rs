//! Models for tests of device programs: the shipped ones, and small ones with the operators of
//! exported models.

use crate::test_models::{Io, floats, graphs, ints, model_of_opset};
use limen_infer::BackendOptions;
use limen_infer::TractRuntime;
use limen_infer::internal::Given;
use limen_infer::onnx::{Artifact, CallInput, Length, Runtime};
use rten_onnx::onnx::{DataType as D, TensorProto};
use std::path::Path;
use tract_onnx::prelude::*;

/// A model with a length for every dim.
pub(crate) struct TestCase {
    pub(crate) name: String,
    pub(crate) model: TypedModel,
}

impl TestCase {
    /// Reads a model; each symbol gets the length `symbols`.
    pub(crate) fn of(name: &str, bytes: Vec<u8>, symbols: usize) -> TestCase {
        let artifact = Artifact::parse(Path::new("model.onnx"), bytes).unwrap();
        let length = |length: &Length| match length {
            Length::Fixed(length) => *length,
            Length::Symbol(_) => symbols,
        };
        let inputs = artifact.outline.inputs.iter();
        let given = inputs.map(|input| {
            let (name, item, varies) = (String::new(), input.shape.iter().map(length).collect(), Vec::new());
            Given::of(&CallInput { name, elem: input.elem, item, varies, batch_dim: None, constant: None }, 1)
        });
        let given: Vec<Given> = given.collect();
        let runtime = TractRuntime::load(artifact, &BackendOptions::default());
        let runtime = runtime.unwrap_or_else(|error| panic!("{name}: {error}"));
        TestCase { name: name.into(), model: runtime.typed(&given).unwrap_or_else(|error| panic!("{name}: {error}")) }
    }

    pub(crate) fn file(path: &Path, symbols: usize) -> TestCase {
        let bytes = limen::files::read(path, 1 << 30).unwrap();
        TestCase::of(&format!("{} of {symbols}", path.display()), bytes, symbols)
    }

    /// Inputs of call `call`: fractions from -1 to 1, bytes, and integers from 0 to 2.
    pub(crate) fn inputs(&self, call: u64) -> Vec<Tensor> {
        let mut random = Random(call + 1);
        let outlets = self.model.input_outlets().unwrap().iter();
        outlets
            .map(|outlet| {
                let fact = self.model.outlet_fact(*outlet).unwrap();
                let shape = fact.shape.as_concrete().unwrap();
                let len: usize = shape.iter().product();
                if fact.datum_type.is_float() {
                    let data: Vec<f32> = (0..len).map(|_| random.next()).collect();
                    let tensor = Tensor::from_shape(shape, &data).unwrap();
                    return tensor.cast_to_dt(fact.datum_type).unwrap().into_owned();
                }
                // Bytes of every value, indices that are few.
                let most = if fact.datum_type == DatumType::U8 { 127.5 } else { 1.5 };
                let data: Vec<i64> = (0..len).map(|_| (random.next() * most + most) as i64).collect();
                Tensor::from_shape(shape, &data).unwrap().cast_to_dt(fact.datum_type).unwrap().into_owned()
            })
            .collect()
    }

    /// The outputs that tract computes.
    pub(crate) fn expected(&self, inputs: &[Tensor]) -> Vec<Vec<f32>> {
        let plan = self.model.clone().into_optimized().unwrap().into_runnable().unwrap();
        let inputs = inputs.iter().cloned().map(IntoTValue::into_tvalue).collect();
        let outputs = plan.run(inputs).unwrap();
        outputs.iter().map(|output| numbers(output)).collect()
    }
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    let tensor = tensor.cast_to::<f32>().unwrap();
    tensor.try_as_plain_ram().unwrap().as_slice::<f32>().unwrap().to_vec()
}

/// The bits of an input as a device has them.
pub(crate) fn device_bits(input: &Tensor) -> Vec<u32> {
    if input.datum_type().is_float() {
        return numbers(input).into_iter().map(f32::to_bits).collect();
    }
    numbers(input).into_iter().map(|value| value as i32 as u32).collect()
}

/// Fails if an output differs by more than a part of the greatest expected number.
pub(crate) fn compare(name: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (at, (found, expected)) in std::iter::zip(found, expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{name}: output {at}");
        let scale = expected.iter().fold(1e-3f32, |scale, value| scale.max(value.abs()));
        for (place, (a, b)) in std::iter::zip(found, expected).enumerate() {
            let is_equal = (a - b).abs() <= 1e-4 * scale || (a.is_nan() && b.is_nan());
            assert!(is_equal, "{name}: output {at} has {a} at {place}, not {b}; the greatest is {scale}");
        }
    }
}

/// Numbers from -1 to 1, the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

fn weight(name: &str, dims: &[i64]) -> TensorProto {
    let seed = name.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte));
    let len: i64 = dims.iter().product();
    let mut random = Random(seed);
    floats(name, dims, &(0..len).map(|_| random.next()).collect::<Vec<_>>())
}

const F: D = D::FLOAT;

/// The models of the graphs that are small enough for [`interpret`](super::interpret).
pub(crate) fn small_graphs() -> Vec<TestCase> {
    let models = ["digits/digits.onnx", "listen/listener.onnx", "fusion/steer.onnx"];
    models.into_iter().flat_map(|path| [1, 3].map(|batch| TestCase::file(&graphs(path), batch))).collect()
}

/// A convolution from `ins` to `outs` channels.
pub(crate) fn conv(batch: usize, ins: usize, outs: usize, width: usize) -> TestCase {
    let dims = [batch, ins, 3, width].map(|length| length.to_string());
    let dims: Vec<&str> = dims.iter().map(String::as_str).collect();
    let w = [weight("w", &[outs as i64, ins as i64, 3, 3]), weight("b", &[outs as i64])];
    let nodes = ["c = Conv x w b pads=1,1,1,1", "y = Relu c"];
    let bytes = model_of_opset(18, &[("x", F, &dims)], &[("y", F, &["n", "c", "h", "w"])], &w, &nodes);
    TestCase::of(&format!("conv {batch}x{ins}x3x{width} to {outs}"), bytes, 1)
}

/// Models whose matrix products a vendor's library computes: how many each has, of how many a
/// kernel goes on with the elements, and how many there are with 16 bits between operators.
#[cfg(feature = "cuda")]
pub(crate) fn products() -> Vec<(TestCase, [usize; 3])> {
    type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str], Vec<TensorProto>, &'a [&'a str], [usize; 3]);
    let cases: Vec<Case<'_>> = vec![
        ("plain", &["12", "20"], &["12", "33"], vec![weight("w", &[20, 33])], &["y = MatMul x w"], [1, 0, 0]),
        (
            "with a bias",
            &["12", "20"],
            &["12", "33"],
            vec![weight("w", &[33, 20]), weight("b", &[33])],
            &["y = Gemm x w b transB==1"],
            [1, 0, 0],
        ),
        (
            "with a bias and an end",
            &["12", "20"],
            &["12", "33"],
            vec![weight("w", &[20, 33]), weight("b", &[33])],
            &["p = MatMul x w", "s = Add p b", "y = Relu s"],
            [1, 1, 0],
        ),
        (
            "of three dims",
            &["3", "12", "20"],
            &["3", "12", "33"],
            vec![weight("w", &[20, 33])],
            &["p = MatMul x w", "y = Tanh p"],
            [1, 1, 0],
        ),
        (
            "in a batch, with itself",
            &["2", "3", "12", "20"],
            &["2", "3", "12", "12"],
            vec![],
            &["t = Transpose x perm=0,1,3,2", "y = MatMul x t"],
            [1, 0, 1],
        ),
        (
            "of transposed rows",
            &["20", "12"],
            &["12", "33"],
            vec![weight("w", &[20, 33])],
            &["t = Transpose x", "y = MatMul t w"],
            [1, 0, 0],
        ),
        (
            "a convolution of single pixels",
            &["2", "20", "3", "5"],
            &["2", "33", "3", "5"],
            vec![weight("w", &[33, 20, 1, 1]), weight("b", &[33])],
            &["y = Conv x w b"],
            [1, 1, 0],
        ),
        ("too short", &["7", "20"], &["7", "33"], vec![weight("w", &[20, 33])], &["y = MatMul x w"], [0, 0, 0]),
        (
            "with neighbours",
            &["1", "20", "9", "9"],
            &["1", "33", "9", "9"],
            vec![weight("w", &[33, 20, 3, 3])],
            &["y = Conv x w pads=1,1,1,1"],
            [0, 0, 0],
        ),
    ];
    let cases = cases.into_iter().map(|(name, x, y, weights, nodes, counts)| {
        let bytes = model_of_opset(18, &[("x", F, x)], &[("y", F, y)], &weights, nodes);
        (TestCase::of(&format!("a product {name}"), bytes, 1), counts)
    });
    cases.collect()
}

/// Models whose convolutions a vendor's library computes, and how many each has.
#[cfg(feature = "cuda")]
pub(crate) fn convolutions() -> Vec<(TestCase, usize)> {
    type Case<'a> = (&'a str, &'a [&'a str], Vec<TensorProto>, &'a [&'a str], usize);
    let image: &[&str] = &["2", "4", "9", "7"];
    let w = |dims: &[i64]| vec![weight("w", dims), weight("b", &dims[..1])];
    let t = |dims: &[i64]| vec![weight("w", dims)];
    let cases: Vec<Case<'_>> = vec![
        ("with a bias", image, w(&[6, 4, 3, 3]), &["y = Conv x w b pads=1,1,1,1"], 1),
        ("that goes on", image, w(&[6, 4, 3, 3]), &["c = Conv x w b pads=1,1,1,1", "y = Relu c"], 1),
        ("of even taps", image, w(&[6, 4, 2, 4]), &["y = Conv x w b"], 1),
        ("with steps and gaps", image, w(&[6, 4, 3, 2]), &["y = Conv x w b strides=2,3 pads=2,1,2,1 dilations=2,3"], 1),
        ("in two groups", image, w(&[6, 2, 3, 3]), &["y = Conv x w b group==2 pads=1,1,1,1"], 1),
        ("of each channel", image, w(&[4, 1, 3, 3]), &["y = Conv x w b group==4 strides=2,2"], 1),
        ("of each channel to two", image, w(&[8, 1, 3, 3]), &["y = Conv x w b group==4"], 1),
        ("of single pixels with steps", image, w(&[6, 4, 1, 1]), &["y = Conv x w b strides=2,2"], 1),
        (
            "of many single pixels with steps",
            &["1", "9", "9", "16"],
            w(&[9, 9, 1, 1]),
            &["y = Conv x w b strides=2,2"],
            1,
        ),
        ("of whole images", image, w(&[6, 4, 9, 7]), &["y = Conv x w b"], 1),
        ("of rows", image, w(&[6, 4, 1, 7]), &["y = Conv x w b"], 1),
        ("of one image", &["1", "4", "9", "7"], w(&[6, 4, 3, 3]), &["y = Conv x w b"], 1),
        ("to one channel", image, w(&[1, 4, 3, 3]), &["y = Conv x w b"], 1),
        ("of one channel", &["2", "1", "9", "7"], w(&[6, 1, 3, 3]), &["y = Conv x w b"], 1),
        ("of one dim", &["2", "3", "20"], w(&[4, 3, 5]), &["y = Conv x w b pads=2,2 strides=3"], 1),
        (
            "of what a transpose gives",
            &["2", "9", "4", "7"],
            w(&[6, 4, 3, 3]),
            &["t = Transpose x perm=0,2,1,3", "c = Conv t w b", "y = Transpose c perm=0,2,3,1"],
            1,
        ),
        (
            "of what another gives",
            image,
            [w(&[4, 4, 3, 3]), vec![weight("v", &[5, 4, 3, 3])]].concat(),
            &["c = Conv x w b pads=1,1,1,1", "s = Sigmoid c", "m = Mul c s", "a = Add m x", "y = Conv a v"],
            2,
        ),
        ("with zeros on one side", image, w(&[6, 4, 3, 3]), &["y = Conv x w b pads=0,0,1,1"], 1),
        ("with steps and zeros on one side", image, w(&[6, 4, 3, 3]), &["y = Conv x w b pads=0,1,1,0 strides=2,2"], 1),
        (
            "in groups, of what is behind",
            &["1", "4", "20"],
            w(&[8, 2, 3]),
            &["c = Conv x w b group==2 pads=4,0 dilations=2", "y = Relu c"],
            1,
        ),
        ("with more zeros than an image", &["2", "3", "2", "2"], w(&[4, 3, 5, 4]), &["y = Conv x w b pads=0,2,3,1"], 1),
        ("of three dims", &["1", "2", "5", "6", "7"], w(&[3, 2, 2, 2, 2]), &["y = Conv x w b"], 1),
        (
            "of three dims with steps, gaps and zeros",
            &["2", "4", "5", "6", "7"],
            w(&[6, 2, 2, 3, 2]),
            &["c = Conv x w b group==2 strides=2,1,3 dilations=1,2,2 pads=1,0,2,0,1,2", "y = Relu c"],
            1,
        ),
        (
            "of single voxels with steps",
            &["2", "4", "5", "6", "7"],
            w(&[6, 4, 1, 1, 1]),
            &["y = Conv x w b strides=2,2,2"],
            1,
        ),
        ("transposed", image, t(&[4, 5, 3, 3]), &["y = ConvTranspose x w"], 1),
        ("transposed, with steps", image, t(&[4, 5, 3, 3]), &["y = ConvTranspose x w strides=2,2"], 1),
        (
            "transposed, with steps beyond the taps",
            image,
            t(&[4, 5, 2, 1]),
            &["c = ConvTranspose x w strides=3,2", "y = Relu c"],
            1,
        ),
        (
            "transposed, with gaps, zeros and a bias",
            image,
            [t(&[4, 5, 3, 2]), vec![weight("b", &[5])]].concat(),
            &["y = ConvTranspose x w b strides=2,3 dilations=2,1 pads=1,1,1,1 output_padding=1,2"],
            1,
        ),
        (
            "transposed, with less on one side",
            image,
            t(&[4, 5, 3, 3]),
            &["c = ConvTranspose x w strides=2,2 pads=0,1,1,0", "y = Relu c"],
            1,
        ),
        ("transposed, with less in front", image, t(&[4, 5, 3, 3]), &["y = ConvTranspose x w pads=2,1,0,0"], 1),
        ("transposed, in groups", image, t(&[4, 3, 3, 3]), &["y = ConvTranspose x w group==2 strides=2,2"], 1),
        (
            "transposed, of each channel",
            image,
            t(&[4, 1, 4, 4]),
            &["y = ConvTranspose x w group==4 strides=2,2 pads=1,1,1,1"],
            1,
        ),
        (
            "transposed, of each channel to two",
            image,
            t(&[4, 2, 3, 3]),
            &["y = ConvTranspose x w group==4 strides=2,2"],
            1,
        ),
        (
            "transposed, of what another gives",
            image,
            [w(&[4, 4, 3, 3]), vec![weight("v", &[4, 5, 2, 2])]].concat(),
            &["c = Conv x w b pads=1,1,1,1", "r = Relu c", "t = ConvTranspose r v strides=2,2", "y = Sigmoid t"],
            2,
        ),
        ("transposed, of one dim", &["2", "3", "20"], t(&[3, 4, 5]), &["y = ConvTranspose x w strides=2 pads=2,2"], 1),
        (
            "transposed, of three dims",
            &["2", "3", "4", "3", "5"],
            t(&[3, 4, 2, 3, 2]),
            &["y = ConvTranspose x w strides=2,1,2 pads=1,0,0,0,0,1"],
            1,
        ),
        ("no convolution, but a product of a row", &["1", "20"], w(&[33, 20]), &["y = Gemm x w b transB==1"], 0),
        ("of a single pixel", &["1", "20", "1", "1"], w(&[33, 20, 1, 1]), &["y = Conv x w b"], 0),
        ("no convolution, but a pool", image, vec![], &["y = AveragePool x kernel_shape=3,3"], 0),
    ];
    let cases = cases.into_iter().map(|(name, x, weights, nodes, count)| {
        let y: Vec<String> = x.iter().enumerate().map(|(at, _)| format!("y{at}")).collect();
        let y: Vec<&str> = y.iter().map(String::as_str).collect();
        let bytes = model_of_opset(18, &[("x", F, x)], &[("y", F, &y)], &weights, nodes);
        (TestCase::of(&format!("a convolution {name}"), bytes, 1), count)
    });
    cases.collect()
}

/// A product of two inputs, `m x k` and `k x n`.
pub(crate) fn matmul(m: usize, k: usize, n: usize) -> TestCase {
    let (m, k, n) = (m.to_string(), k.to_string(), n.to_string());
    let inputs: [Io<'_>; 2] = [("a", F, &[&m, &k]), ("b", F, &[&k, &n])];
    let bytes = model_of_opset(18, &inputs, &[("y", F, &[&m, &n])], &[], &["y = MatMul a b"]);
    TestCase::of(&format!("matmul {m}x{k}x{n}"), bytes, 1)
}

/// Models of integers that have 64 bits in the file and 32 on a device, with the bits of an input
/// whose results fit, and of one whose results do not.
pub(crate) fn wide_integers() -> Vec<(TestCase, u32, u32)> {
    let case = |dtype: D, weights: &[TensorProto], node: &str, fits: u32, fails: u32| {
        let out: &[&str] = if node.contains("Reduce") { &["1", "2"] } else { &["2", "2"] };
        let bytes = model_of_opset(18, &[("x", dtype, &["2", "2"])], &[("y", D::INT64, out)], weights, &[node]);
        (TestCase::of(node, bytes, 1), fits, fails)
    };
    let (five, axes) = (ints("five", &[5]), ints("axes", &[0]));
    let (low, high) = (i32::MIN as u32, i32::MAX as u32);
    let minus = |n: i32| -n as u32;
    vec![
        case(D::INT64, std::slice::from_ref(&five), "y = Add x five", high - 5, high - 4),
        case(D::INT64, std::slice::from_ref(&five), "y = Sub x five", low + 5, low + 4),
        case(D::INT64, &[], "y = Mul x x", 46_340, 46_341),
        case(D::INT64, &[], "y = Mul x x", minus(46_340), minus(65_536)),
        case(D::INT64, &[], "y = Neg x", high, low),
        case(D::INT64, &[], "y = Abs x", minus(7), low),
        case(D::INT64, std::slice::from_ref(&axes), "y = ReduceSum x axes", (1 << 30) - 1, 1 << 30),
        case(D::INT64, std::slice::from_ref(&axes), "y = ReduceProd x axes", 46_340, 46_341),
        case(D::INT64, &[], "y = MatMul x x", 32_767, 32_768),
        case(F, &[], "y = Cast x to==7", 2e9f32.to_bits(), 3e9f32.to_bits()),
    ]
}

/// Models of images whose elements are bytes, in lengths that are whole words and that are not.
pub(crate) fn bytes() -> Vec<TestCase> {
    let case = |width: &str, nodes: &[&str]| {
        let (x, y) = ([("x", D::UINT8, &["1", "3", "5", width][..])], [("y", F, &["?a", "?b", "?c", "?d"][..])]);
        let w = [weight("w", &[2, 3, 3, 3]), ints("pads", &[0, 0, 1, 2, 0, 0, 0, 1])];
        TestCase::of(&format!("{} of {width}", nodes.join("; ")), model_of_opset(18, &x, &y, &w, nodes), 1)
    };
    let nodes: [&[&str]; 3] = [
        &["f = Cast x to==1", "y = Conv f w pads=1,1,1,1"],
        &["p = Pad x pads", "y = Cast p to==1"],
        &["t = Transpose x perm=0,3,2,1", "f = Cast t to==1", "y = Sqrt f"],
    ];
    ["4", "7"].into_iter().flat_map(|width| nodes.map(|nodes| case(width, nodes))).collect()
}

/// Small models.
pub(crate) fn operators() -> Vec<TestCase> {
    let mut cases = Vec::new();
    let mut add = |x: &[&str], weights: &[TensorProto], nodes: &[&str]| {
        let dims = ["?a", "?b", "?c", "?d", "?e"];
        // The rank of the output is not checked where its dims have no names.
        let rank = x.len();
        let bytes = model_of_opset(18, &[("x", F, x)], &[("y", F, &dims[..rank])], weights, nodes);
        cases.push(TestCase::of(&nodes.join("; "), bytes, 2));
    };
    let image: &[&str] = &["2", "4", "9", "7"];
    let w = [weight("w", &[6, 2, 3, 3]), weight("b", &[6])];
    let odd = [weight("s", &[]), weight("each", &[4])];
    add(image, &odd, &["a = Abs s", "q = QuantizeLinear x a", "y = DequantizeLinear q a"]);
    add(image, &odd, &["a = Abs each", "q = QuantizeLinear x a axis==1", "y = DequantizeLinear q a axis==1"]);
    add(image, &w, &["y = Conv x w b group==2 strides=2,1 pads=1,0,2,1 dilations=1,2"]);
    add(image, &[weight("w", &[8, 1, 3, 3])], &["c = Conv x w group==4 pads=1,1,1,1", "y = Relu c"]);
    let w = [weight("w", &[5, 4, 1, 1]), weight("b", &[5])];
    add(image, &w, &["c = Conv x w b", "s = Sigmoid c", "y = Mul c s"]);
    add(image, &w, &["c = Conv x w b strides=2,2", "y = HardSwish c"]);
    add(&["2", "3", "20"], &[weight("w", &[4, 3, 5])], &["y = Conv x w pads=4,0 dilations=1 strides=3"]);
    add(image, &[weight("w", &[4, 3, 3, 2])], &["y = ConvTranspose x w strides=2,3 pads=1,0,0,1"]);
    add(image, &[], &["y = MaxPool x kernel_shape=3,2 strides=2,2 pads=1,0,1,1"]);
    add(image, &[], &["y = AveragePool x kernel_shape=3,3 strides=2,2 pads=1,1,1,1"]);
    add(image, &[], &["y = AveragePool x kernel_shape=3,3 pads=1,1,1,1 count_include_pad==1"]);
    add(image, &[], &["y = GlobalAveragePool x"]);
    add(image, &[], &["t = Transpose x perm=0,1,3,2", "y = MatMul x t"]);
    add(image, &[weight("w", &[7, 5])], &["m = MatMul x w", "y = Softmax m axis==-1"]);
    add(image, &[], &["y = LogSoftmax x axis==1"]);
    let w = [weight("s", &[7]), weight("b", &[7])];
    add(image, &w, &["y = LayerNormalization x s b"]);
    let w = [weight("s", &[4]), weight("b", &[4])];
    add(image, &w, &["y = InstanceNormalization x s b"]);
    add(image, &[ints("axes", &[2])], &["y = ReduceMax x axes"]);
    add(image, &[ints("axes", &[1, 3])], &["y = ReduceMean x axes"]);
    add(image, &[ints("axes", &[0])], &["y = ReduceL2 x axes"]);
    add(image, &[], &["a = ArgMax x axis==3", "y = Cast a to==1"]);
    add(image, &[], &["a = ArgMin x axis==1 select_last_index==1", "y = Cast a to==1"]);
    add(image, &[ints("at", &[3, -1, 0])], &["y = Gather x at axis==2"]);
    let w = [ints("from", &[6, 1]), ints("to", &[0, 4]), ints("axes", &[2, 1]), ints("steps", &[-2, 1])];
    add(image, &w, &["s = Slice x from to axes steps", "r = Relu s", "y = Concat s r s axis==1"]);
    add(image, &[ints("pads", &[0, 1, 2, 0, 0, 0, 1, 3])], &["y = Pad x pads"]);
    add(image, &[ints("pads", &[0, 1, 2, 0, 0, 0, 1, 3])], &["y = Pad x pads mode=:reflect"]);
    add(image, &[ints("pads", &[0, 1, 2, 0, 0, 0, 1, 3])], &["y = Pad x pads mode=:edge"]);
    let w = [ints("shape", &[2, 2, 18, 7])];
    add(image, &w, &["t = Transpose x perm=1,0,2,3", "y = Reshape t shape"]);
    let w = [floats("none", &[0], &[]), floats("s", &[4], &[1., 1., 2., 3.])];
    add(
        image,
        &w,
        &["y = Resize x none s mode=:nearest coordinate_transformation_mode=:asymmetric nearest_mode=:floor"],
    );
    add(image, &w, &["y = Resize x none s mode=:linear"]);
    let w = [floats("none", &[0], &[]), floats("s", &[4], &[1., 1., 0.6, 1.5])];
    add(image, &w, &["y = Resize x none s mode=:cubic coordinate_transformation_mode=:align_corners"]);
    let w = [weight("w", &[4, 1, 1]), floats("zero", &[], &[0.0])];
    add(image, &w, &["g = Greater x zero", "m = Mul x w", "y = Where g x m"]);
    let w = [floats("two", &[], &[2.5]), floats("one", &[], &[1.1])];
    let smooth = ["e = Erf x", "t = Tanh x", "g = Add e t", "a = Abs g", "o = Add a one", "l = Log o", "p = Pow o two"];
    add(image, &w, &[&smooth[..], &["q = Sqrt p", "s = Sin q", "d = Div s o", "k = Mul d l", "y = Exp k"]].concat());
    // Beyond the range of bytes.
    let far = [floats("far", &[], &[600.0])];
    for narrow in [2, 3, 4, 5] {
        let cast = format!("c = Cast m to=={narrow}");
        add(image, &far, &["m = Mul x far", &cast, "y = Cast c to==1"]);
    }
    add(image, &w, &["m = Mul x two", "r = Round m", "f = Floor m", "c = Ceil m", "rf = Add r f", "y = Mul rf c"]);
    let w = [weight("w", &[1, 15, 7]), weight("r", &[1, 15, 5]), weight("b", &[1, 30]), ints("axes", &[1])];
    for before in [0, 1] {
        let gru = format!("z = GRU x w r b hidden_size==5 linear_before_reset=={before}");
        add(&["4", "2", "7"], &w, &[&gru, "y = Squeeze z axes"]);
    }
    let w = [weight("w", &[2, 20, 7]), weight("r", &[2, 20, 5]), weight("b", &[2, 40]), ints("shape", &[4, 2, 10])];
    let lstm = "z = LSTM x w r b hidden_size==5 direction=:bidirectional";
    add(&["4", "2", "7"], &w, &[lstm, "y = Reshape z shape"]);
    cases
}
