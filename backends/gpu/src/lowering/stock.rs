//! Programs of stock kinds, for nodes that run on a device. Images are bytes, of which a word has
//! four.

use super::kernel::{ArrayRead, Axis, BOX, Binary, Expr, Fold, How, Kernel, Number, Scalar, Suppression, Unary, Write};
use super::model::Lowering;
use super::program::{Program, Source};
use super::value::{StridedValue, row_major};
use limen_infer::Activation;
use limen_infer::internal::DenseLayer;

/// A program that is being written, with one input.
pub(crate) struct ProgramSteps {
    lowering: Lowering,
}

/// How an image is scaled along an axis: each element is a sum of `window` others.
pub(crate) struct Taps {
    pub(crate) window: usize,
    /// By element, then by tap: the index of the other element, and its weight.
    pub(crate) indices: Vec<u32>,
    pub(crate) weights: Vec<f32>,
}

impl Taps {
    /// The nearest element.
    pub(crate) fn nearest(from: usize, to: usize) -> Taps {
        // As the host rounds it: two pixels may be equally near.
        let scale = from as f64 / to as f64;
        let at = |n: usize| (scale * 0.5 + scale * n as f64) as usize;
        let indices = (0..to).map(|n| at(n).min(from - 1) as u32).collect();
        Taps { window: 1, indices, weights: vec![1.0; to] }
    }

    /// Between the two nearest elements, as OpenCV's `INTER_LINEAR`.
    pub(crate) fn linear(from: usize, to: usize) -> Taps {
        let mut taps = Taps { window: 2, indices: Vec::new(), weights: Vec::new() };
        for n in 0..to {
            let at = ((n as f64 + 0.5) * from as f64 / to as f64 - 0.5).clamp(0.0, (from - 1) as f64);
            let (first, rest) = (at.floor(), at.fract() as f32);
            taps.indices.extend([first as u32, (first as u32 + 1).min(from as u32 - 1)]);
            taps.weights.extend([1.0 - rest, rest]);
        }
        taps
    }

    /// A triangle that widens where the image shrinks, as Pillow's `BILINEAR`.
    pub(crate) fn triangle(from: usize, to: usize) -> Taps {
        let scale = from as f64 / to as f64;
        let support = scale.max(1.0);
        let window = ((support * 2.0).ceil() as usize + 1).min(from);
        let mut taps = Taps { window, indices: Vec::new(), weights: Vec::new() };
        for n in 0..to {
            let center = (n as f64 + 0.5) * scale;
            let first = ((center - support).floor().max(0.0) as usize).min(from - window);
            let weight = |tap: usize| (1.0 - ((first + tap) as f64 + 0.5 - center).abs() / support).max(0.0);
            let sum: f64 = (0..window).map(weight).sum();
            taps.indices.extend((0..window).map(|tap| (first + tap) as u32));
            taps.weights.extend((0..window).map(|tap| (weight(tap) / sum) as f32));
        }
        taps
    }
}

impl ProgramSteps {
    /// Begins a program with an input: of bytes, or of `f32`.
    pub(crate) fn new(shape: &[usize], is_bytes: bool) -> (ProgramSteps, StridedValue) {
        let mut lowering = Lowering::default();
        let (scalar, source) = match is_bytes {
            true => (Scalar::I32, Source::Bytes),
            false => (Scalar::F32, Source::Input),
        };
        let array = lowering.program.array(scalar, shape.iter().product(), source);
        lowering.program.inputs.push(array);
        let input = StridedValue { array, scalar, shape: shape.to_vec(), offset: 0, strides: row_major(shape) };
        (ProgramSteps { lowering }, input)
    }

    /// A part of a tensor.
    pub(crate) fn part(from: &StridedValue, first: &[usize], shape: &[usize]) -> StridedValue {
        let begin = std::iter::zip(first, &from.strides).map(|(at, stride)| *at as i64 * stride).sum::<i64>();
        StridedValue { offset: from.offset + begin, shape: shape.to_vec(), ..from.clone() }
    }

    /// A tensor with its dims in another order.
    pub(crate) fn ordered(from: &StridedValue, dims: &[usize]) -> StridedValue {
        let (shape, strides) = dims.iter().map(|dim| (from.shape[*dim], from.strides[*dim])).unzip();
        StridedValue { shape, strides, ..from.clone() }
    }

    /// The number of a table for each element, which is an index into it.
    pub(crate) fn look_up(&mut self, name: &str, from: &StridedValue, table: &[f32]) -> StridedValue {
        let bits = table.iter().map(|number| number.to_bits()).collect();
        let table = self.lowering.constant_bits(Scalar::F32, bits, vec![table.len()]);
        let index = Axis { table: Some(0), ..Axis::sum(Vec::new(), 1) };
        let reads = vec![from.at(from.shape.len()), table.read(vec![index])];
        self.lowering.compute(name, Scalar::F32, &from.shape, None, reads, Expr::Read(1))
    }

    /// `(element - mean) * inverse`, with numbers for all elements or for each coordinate of a dim.
    pub(crate) fn normalize(
        &mut self,
        name: &str,
        from: &StridedValue,
        numbers: &[(f32, f32)],
        dim: usize,
    ) -> StridedValue {
        let rank = from.shape.len();
        let mut shape = vec![1; rank];
        if numbers.len() > 1 {
            shape[dim] = numbers.len();
        }
        let mut side = |of: fn(&(f32, f32)) -> f32| {
            let bits = numbers.iter().map(|both| of(both).to_bits()).collect();
            self.lowering.constant_bits(Scalar::F32, bits, shape.clone())
        };
        let (mean, inverse) = (side(|both| both.0), side(|both| both.1));
        let value = Expr::Read(0).binary(Binary::Sub, Expr::Read(1)).binary(Binary::Mul, Expr::Read(2));
        self.lowering.map(name, Scalar::F32, &from.shape, &[from, &mean, &inverse], value)
    }

    /// A product of the last dim with the matrix of a layer, plus its bias, with its activation.
    pub(crate) fn layer(&mut self, name: &str, from: &StridedValue, layer: &DenseLayer) -> StridedValue {
        let outputs = layer.bias.len();
        let mut constant = |numbers: &[f32], shape: Vec<usize>| {
            let bits = numbers.iter().map(|number| number.to_bits()).collect();
            self.lowering.constant_bits(Scalar::F32, bits, shape)
        };
        let matrix = constant(&layer.matrix, vec![outputs, layer.inputs]);
        let bias = constant(&layer.bias, vec![outputs]);
        let rank = from.shape.len();
        let (last, k) = (rank - 1, rank);
        let along = |dim: usize| Axis::dim(if dim == last { k } else { dim }, from.stride(dim));
        let reads = vec![
            from.read((0..rank).map(along).collect()),
            matrix.read(vec![Axis::dim(last, matrix.stride(0)), Axis::dim(k, matrix.stride(1))]),
            bias.read(vec![Axis::dim(last, bias.stride(0))]),
        ];
        let product = Expr::Read(0).binary(Binary::Mul, Expr::Read(1));
        let fold = Fold { dims: vec![layer.inputs], how: How::Sum, exact: false, value: product };
        let sum = Expr::Folded.binary(Binary::Add, Expr::Read(2));
        let value = match layer.activation {
            Activation::None => sum,
            // 0 for NaN, as on the host.
            Activation::Relu => {
                let is_positive = sum.clone().binary(Binary::Greater, Expr::f32(0.0));
                Expr::Select(is_positive.into(), sum.into(), Expr::f32(0.0).into())
            }
            Activation::Sigmoid => of_numbers(sum, Unary::Sigmoid),
            Activation::Tanh => of_numbers(sum, Unary::Tanh),
        };
        let shape: Vec<usize> = from.shape[..last].iter().copied().chain([outputs]).collect();
        self.lowering.compute(name, Scalar::F32, &shape, Some(fold), reads, value)
    }

    /// 1 where an element is at least a number, 0 elsewhere and for NaN.
    pub(crate) fn at_least(&mut self, name: &str, from: &StridedValue, number: f32) -> StridedValue {
        let value = Expr::Read(0).binary(Binary::GreaterEqual, Expr::f32(number));
        self.lowering.map(name, Scalar::I32, &from.shape, &[from], value)
    }

    /// The index of the first greatest element, and its value; NaN counts as less than any. The
    /// call fails if all are NaN.
    pub(crate) fn greatest(&mut self, name: &str, from: &StridedValue) -> [StridedValue; 2] {
        let len = from.len();
        let flat = StridedValue { shape: vec![len], strides: vec![1], ..from.clone() };
        let is_nan = Expr::Read(0).unary(Unary::IsNan);
        let least = Expr::Select(is_nan.clone().into(), Expr::f32(f32::NEG_INFINITY).into(), Expr::Read(0).into());
        let index = self.lowering.reduce(name, &flat, &[0], How::ArgMax { last: false }, least.clone(), Expr::Folded);
        let value = self.lowering.reduce(name, &flat, &[0], How::Max, least, Expr::Folded);
        let is_nan = Expr::Select(is_nan.into(), Expr::f32(1.0).into(), Expr::f32(0.0).into());
        let nans = self.lowering.reduce(name, &flat, &[0], How::Min, is_nan.clone(), Expr::Folded);
        let first = self.lowering.reduce(name, &flat, &[0], How::ArgMin { last: false }, is_nan, Expr::Folded);
        // Beyond 32 bits where the smallest truth value is 1, which fails the call.
        let most = Expr::Number(Number::I32(i32::MAX));
        let all = Expr::Cast(Scalar::I32, Expr::Read(1).into());
        let sum = Expr::Exact(most.clone().binary(Binary::Add, all).into());
        let none = sum.binary(Binary::Sub, most);
        // If no number is greater than what NaN counts as, the first number is.
        let is_least = Expr::Read(2).binary(Binary::Equal, Expr::f32(f32::NEG_INFINITY));
        let found = Expr::Select(is_least.into(), Expr::Read(3).into(), Expr::Read(0).into());
        let checked = found.binary(Binary::Add, none);
        let [index, nans, value, first] = [index, nans, value, first].map(scalar_of);
        let index = self.lowering.map(name, Scalar::I32, &[], &[&index, &nans, &value, &first], checked);
        if let Some(kernel) = self.lowering.program.kernels.last_mut() {
            kernel.fails = Some("expected at least one number, found only NaN".into());
        }
        [index, value]
    }

    /// Scales along a dim, to `f32`.
    pub(crate) fn scale(&mut self, name: &str, x: &StridedValue, dim: usize, taps: &Taps) -> StridedValue {
        let to = taps.indices.len() / taps.window;
        let shape = vec![to, taps.window];
        let indices = self.lowering.constant_bits(Scalar::I32, taps.indices.clone(), shape.clone());
        let weights = taps.weights.iter().map(|weight| weight.to_bits()).collect();
        let weights = self.lowering.constant_bits(Scalar::F32, weights, shape);
        let rank = x.shape.len();
        let of_table = |table: &StridedValue| table.read(vec![Axis::dim(dim, taps.window as i64), Axis::dim(rank, 1)]);
        let along = |other: usize| match other == dim {
            true => Axis { table: Some(0), ..Axis::sum(Vec::new(), x.strides[dim]) },
            false => Axis::dim(other, x.stride(other)),
        };
        let reads = vec![of_table(&indices), of_table(&weights), x.read((0..rank).map(along).collect())];
        let mut scaled = x.shape.clone();
        scaled[dim] = to;
        let element = match x.scalar {
            Scalar::F32 => Expr::Read(2),
            Scalar::I32 => Expr::Cast(Scalar::F32, Expr::Read(2).into()),
        };
        let value = Expr::Read(1).binary(Binary::Mul, element);
        let fold = Fold { dims: vec![taps.window], how: How::Sum, exact: false, value };
        self.lowering.compute(name, Scalar::F32, &scaled, Some(fold), reads, Expr::Folded)
    }

    /// The nearest levels, 0 to 255.
    pub(crate) fn levels(&mut self, name: &str, x: &StridedValue) -> StridedValue {
        let number = |value: f32| Expr::f32(value);
        let whole = Expr::Read(0).binary(Binary::Add, number(0.5)).unary(Unary::Floor);
        let kept = whole.binary(Binary::Max, number(0.0)).binary(Binary::Min, number(255.0));
        self.lowering.map(name, Scalar::I32, &x.shape, &[x], Expr::Cast(Scalar::I32, kept.into()))
    }

    /// An image in a frame, from a row and a column on; the rest has a level.
    pub(crate) fn put(
        &mut self,
        name: &str,
        image: &StridedValue,
        frame: [usize; 2],
        first: [usize; 2],
        fill: u8,
    ) -> StridedValue {
        let axis = |dim: usize| Axis {
            offset: if dim < 2 { -(first[dim] as i64) } else { 0 },
            limit: (dim < 2).then_some(image.shape[dim] as i64),
            ..Axis::dim(dim, image.strides[dim])
        };
        let mut read = image.read((0..3).map(axis).collect());
        read.outside = Number::I32(i32::from(fill));
        let shape = [frame[0], frame[1], image.shape[2]];
        self.lowering.compute(name, Scalar::I32, &shape, None, vec![read], Expr::Read(0))
    }

    /// Numbers that are the same in each call.
    pub(crate) fn numbers(&mut self, name: &str, numbers: &[f32]) -> StridedValue {
        let bits = numbers.iter().map(|number| number.to_bits()).collect();
        let constant = self.lowering.constant_bits(Scalar::F32, bits, vec![numbers.len()]);
        self.lowering.copy(name, &constant)
    }

    /// Begins a program with an input of boxes, and their count behind them if that varies, and
    /// adds the chosen ones as its output, with their count behind them.
    pub(crate) fn suppress(name: &str, rule: Suppression) -> ProgramSteps {
        let mut lowering = Lowering::default();
        let program = &mut lowering.program;
        let taken = rule.boxes * BOX + usize::from(rule.is_counted);
        let given = rule.most * BOX + 1;
        let from = program.array(Scalar::F32, taken, Source::Input);
        program.inputs.push(from);
        let array = program.array(Scalar::F32, given, Source::Computed);
        program.outputs.push((array, vec![given]));
        program.kernels.push(Kernel {
            name: name.into(),
            dims: vec![given],
            fold: None,
            reads: vec![ArrayRead { array: from, offset: 0, axes: Vec::new(), outside: Number::F32(0.0) }],
            values: Vec::new(),
            write: Write { array, offset: 0, strides: vec![1] },
            fails: None,
            suppression: Some(rule),
        });
        ProgramSteps { lowering }
    }

    /// Adds an output whose elements are words.
    pub(crate) fn output(&mut self, value: &StridedValue) {
        let value = match self.lowering.program.arrays[value.array].source {
            Source::Computed if value.is_whole() => value.clone(),
            _ => self.lowering.copy("output", value),
        };
        self.lowering.program.outputs.push((value.array, value.shape));
    }

    /// Adds an output of bytes: words of four elements each, and zeros at the end.
    pub(crate) fn output_bytes(&mut self, value: &StridedValue) {
        let value = match value.is_whole() {
            true => value.clone(),
            false => self.lowering.copy("output", value),
        };
        let len = value.len();
        let read = |byte: i64| {
            let at = Axis { offset: byte, limit: Some(len as i64), ..Axis::sum(vec![(0, 4)], 1) };
            StridedValue { shape: vec![len], strides: vec![1], ..value.clone() }.read(vec![at])
        };
        let shifted = |byte: i32| {
            let by = Expr::Number(Number::I32(8 * byte));
            Expr::Read(byte as usize).binary(Binary::ShiftLeft, by)
        };
        let word = (1..4).fold(Expr::Read(0), |word, byte| word.binary(Binary::BitOr, shifted(byte)));
        let words = len.div_ceil(4);
        let reads = (0..4).map(read).collect();
        let packed = self.lowering.compute("output", Scalar::I32, &[words], None, reads, word);
        self.lowering.program.outputs.push((packed.array, packed.shape));
    }

    /// Returns the program.
    pub(crate) fn program(self) -> Program {
        let mut program = self.lowering.program;
        program.kernels = program.kernels.into_iter().map(Kernel::without_single_dims).collect();
        super::fuse::fuse(&mut program);
        program.drop_unread();
        program
    }
}

/// A function of numbers, and NaN for NaN: on some devices, functions that are bounded give their
/// bound for it.
fn of_numbers(of: Expr, function: Unary) -> Expr {
    let is_nan = of.clone().unary(Unary::IsNan);
    Expr::Select(is_nan.into(), of.clone().into(), of.unary(function).into())
}

/// A tensor with one element, without dims.
fn scalar_of(value: StridedValue) -> StridedValue {
    StridedValue { shape: Vec::new(), strides: Vec::new(), ..value }
}
