//! Programs for tests of the languages of devices: of the test cases, of stock kinds, and of every
//! operation by itself.

use super::model::Lowering;
use super::test_cases::{TestCase, bytes, conv, matmul, operators, small_graphs, wide_integers};
use super::value::row_major;
use super::{
    Binary, Expr, Half, How, Number, Program, ProgramSteps, Scalar, Source, StridedValue, Suppression, Taps, Unary,
    lower,
};
use crate::test_models::graphs;

/// The lengths around those of tiles.
pub(crate) const LENGTHS: [usize; 9] = [15, 16, 17, 63, 64, 65, 127, 128, 129];

/// All programs, with their names.
pub(crate) fn programs() -> Vec<(String, Program)> {
    let mut programs = [stock(), operations(), folds()].concat();
    let models = operators().into_iter().chain(bytes()).chain(wide_integers().into_iter().map(|(case, ..)| case));
    let large = ["classify/classifier.onnx", "detect/detector.onnx"].map(|path| TestCase::file(&graphs(path), 1));
    let channels = LENGTHS.into_iter().flat_map(|n| [conv(1, n, 17, 5), conv(2, 5, n, 9), conv(1, 3, 9, n)]);
    let products = LENGTHS.into_iter().flat_map(|n| [matmul(n, 33, 20), matmul(18, n, 65), matmul(129, 9, n)]);
    for case in models.chain(small_graphs()).chain(large).chain(channels).chain(products) {
        let program = lower(&case.model).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let mut halved = program.clone();
        halved.halve(Half::F16);
        let is_halved = halved.arrays.iter().any(|array| array.is_half);
        programs.push((case.name.clone(), program));
        programs.extend(is_halved.then(|| (format!("{} in halves", case.name), halved)));
    }
    programs
}

/// Programs of stock kinds.
pub(crate) fn stock() -> Vec<(String, Program)> {
    let mut programs = Vec::new();
    let mut add = |name: &str, steps: ProgramSteps| programs.push((name.to_string(), steps.program()));
    let (mut steps, image) = ProgramSteps::new(&[6, 5, 3], true);
    let table: Vec<f32> = (0..256).map(|level| level as f32 / 255.0).collect();
    let numbers = steps.look_up("look_up", &ProgramSteps::ordered(&image, &[2, 0, 1]), &table);
    let normal = steps.normalize("normalize", &numbers, &[(0.5, 2.0), (0.25, 0.5), (0.0, 1.0)], 0);
    steps.output(&normal);
    add("numbers of an image", steps);
    let (mut steps, image) = ProgramSteps::new(&[11, 13, 3], true);
    steps.output_bytes(&ProgramSteps::part(&image, &[3, 2, 0], &[5, 7, 3]));
    add("a part of an image", steps);
    for (name, taps) in [("nearest", Taps::nearest as fn(usize, usize) -> Taps), ("linear", Taps::linear)] {
        let (mut steps, image) = ProgramSteps::new(&[40, 60, 3], true);
        let narrow = steps.scale("columns", &image, 1, &taps(60, 33));
        let small = steps.scale("rows", &narrow, 0, &taps(40, 17));
        let levels = steps.levels("levels", &small);
        let framed = steps.put("put", &levels, [20, 40], [2, 3], 7);
        steps.output_bytes(&framed);
        add(&format!("an image in a frame, scaled to {name}"), steps);
    }
    for shape in [&[1000][..], &[4, 5]] {
        let (mut steps, values) = ProgramSteps::new(shape, false);
        let found = steps.greatest("greatest", &values);
        let above = steps.at_least("at_least", &values, 0.25);
        found.iter().chain([&above]).for_each(|value| steps.output(value));
        add(&format!("the greatest of {shape:?}"), steps);
    }
    for (boxes, is_counted, across_classes) in [(1, false, false), (40, true, false), (300, false, true)] {
        let rule = Suppression { boxes, is_counted, most: 25, iou: 0.4, across_classes };
        let name = format!("{rule:?}");
        add(&name, ProgramSteps::suppress(&name, rule));
    }
    programs
}

/// A program that is being written, with inputs of one type.
struct Begun {
    lowering: Lowering,
    inputs: Vec<StridedValue>,
}

impl Begun {
    fn new(scalar: Scalar, shape: &[usize], inputs: usize) -> Begun {
        let mut lowering = Lowering::default();
        let input = |_| {
            let array = lowering.program.array(scalar, shape.iter().product(), Source::Input);
            lowering.program.inputs.push(array);
            StridedValue { array, scalar, shape: shape.to_vec(), offset: 0, strides: row_major(shape) }
        };
        let inputs = (0..inputs).map(input).collect();
        Begun { lowering, inputs }
    }

    fn output(&mut self, value: StridedValue) {
        self.lowering.program.outputs.push((value.array, value.shape));
    }
}

/// As many numbers has an input of [`operations`].
pub(crate) const PAIRS: usize = 400;

/// Every operation with an output of its own, of two inputs with [`PAIRS`] numbers; those that fail
/// where a result does not fit are alone in their programs.
pub(crate) fn operations() -> Vec<(String, Program)> {
    use Binary::*;
    use Unary::*;
    let of = |scalar: Scalar, values: Vec<(Scalar, Expr)>| {
        let mut begun = Begun::new(scalar, &[PAIRS], 2);
        for (to, value) in values {
            let inputs: Vec<&StridedValue> = begun.inputs.iter().collect();
            let value = begun.lowering.map(&format!("{value:?}"), to, &[PAIRS], &inputs, value);
            begun.output(value);
        }
        begun.lowering.program
    };
    let (a, b) = (|| Expr::Read(0), || Expr::Read(1));
    let (f, i) = (Scalar::F32, Scalar::I32);
    let any = [Abs, Neg, Sign, Ceil, Floor, Round, RoundEven];
    let of_fractions =
        [Acos, Acosh, Asin, Asinh, Atan, Atanh, Cos, Cosh, Erf, Exp, Ln, Recip, Sigmoid, Sin, Sinh, Sqrt, Tan, Tanh];
    let compared = [Equal, NotEqual, Greater, GreaterEqual, Less, LessEqual];
    let both = [Add, Sub, Mul, Div, Rem, Max, Min];
    let of_integers = [And, Or, Xor, BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight];
    let select = |on: Expr, a: Expr, b: Expr| Expr::Select(on.into(), a.into(), b.into());
    let mut fractions: Vec<(Scalar, Expr)> = any.iter().chain(&of_fractions).map(|op| (f, a().unary(*op))).collect();
    fractions.extend(both.iter().chain(&[Pow]).map(|op| (f, a().binary(*op, b()))));
    fractions.extend([Not, IsInf, IsNan].map(|op| (i, a().unary(op))));
    fractions.extend(compared.map(|op| (i, a().binary(op, b()))));
    fractions.push((f, a().binary(Pow, Expr::f32(2.0))));
    fractions.push((i, Expr::Cast(i, a().into())));
    fractions.push((f, select(a().binary(Less, b()), a(), Expr::f32(f32::INFINITY))));
    let mut integers: Vec<(Scalar, Expr)> = any.iter().chain(&[Not, BitNot]).map(|op| (i, a().unary(*op))).collect();
    integers.extend(both.iter().chain(&compared).chain(&of_integers).map(|op| (i, a().binary(*op, b()))));
    integers.push((f, Expr::Cast(f, a().into())));
    integers.push((i, select(a(), b(), Expr::Number(Number::I32(i32::MIN)))));
    let mut programs = vec![("fractions".to_string(), of(f, fractions)), ("integers".to_string(), of(i, integers))];
    let cast = Expr::Cast(i, a().into()).exact();
    programs.push(("an exact cast".to_string(), of(f, vec![(i, cast)])));
    let exact = [Add, Sub, Mul, Div, ShiftLeft].map(|op| a().binary(op, b()).exact());
    for value in exact.into_iter().chain([Abs, Neg].map(|op| a().unary(op).exact())) {
        programs.push((format!("{value:?}"), of(i, vec![(i, value)])));
    }
    programs
}

/// Every fold, of rows for a thread and of rows for a workgroup.
pub(crate) fn folds() -> Vec<(String, Program)> {
    let places = [true, false].into_iter().flat_map(|last| [How::ArgMax { last }, How::ArgMin { last }]);
    let mut programs = Vec::new();
    for how in [How::Sum, How::Product, How::Max, How::Min].into_iter().chain(places) {
        for (scalar, length) in [(Scalar::F32, 20), (Scalar::F32, 700), (Scalar::I32, 20), (Scalar::I32, 700)] {
            for exact in [false, true] {
                if exact && (scalar == Scalar::F32 || !matches!(how, How::Sum | How::Product)) {
                    continue;
                }
                let mut begun = Begun::new(scalar, &[3, length], 1);
                let value = begun.lowering.reduce("fold", &begun.inputs[0], &[1], how, Expr::Read(0), Expr::Folded);
                let kernel = begun.lowering.program.kernels.last_mut();
                if let Some(fold) = kernel.and_then(|kernel| kernel.fold.as_mut()) {
                    fold.exact = exact;
                }
                begun.output(value);
                let name = format!("{how:?} of {length} {scalar:?}, exact: {exact}");
                programs.push((name, begun.lowering.program));
            }
        }
    }
    programs
}
