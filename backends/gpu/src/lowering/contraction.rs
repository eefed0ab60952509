//! Sums of products: matrix products, convolutions, and the pools that read windows as convolutions
//! do.

use super::kernel::{Axis, Binary, Expr, Fold, How, Number, Scalar};
use super::model::{Lowering, Operands, Refusal, is_wide, text};
use super::value::{StridedValue, row_major};
use tract_onnx::tract_core::axes::Axis as Label;
use tract_onnx::tract_core::internal::InOut;
use tract_onnx::tract_core::ops::cnn::{Conv, Deconv, KernelFormat, PaddingSpec, PoolSpec};
use tract_onnx::tract_core::ops::einsum::EinSum;

/// A window over the spatial dims of an image.
struct Window<'a> {
    spec: &'a PoolSpec,
    /// The image's dims: `n` if it has one, channels, spatial dims.
    n: Option<usize>,
    channels: usize,
    spatial: usize,
    before: Vec<usize>,
}

impl<'a> Window<'a> {
    fn new(spec: &'a PoolSpec, image: &[usize]) -> Window<'a> {
        let format = spec.data_format;
        let n = format.has_n().then_some(0);
        let spatial = format.h_axis();
        let channels = if format.c_is_last() { image.len() - 1 } else { usize::from(format.has_n()) };
        let lengths = &image[spatial..][..spec.rank()];
        let before = spec.computed_padding(lengths).iter().map(|dim| dim.pad_before).collect();
        Window { spec, n, channels, spatial, before }
    }

    /// Axes of the image along its spatial dims: the output's dims have their place there, the
    /// window's taps begin at `taps`.
    fn axes(&self, image: &StridedValue, taps: usize) -> Vec<Axis> {
        let axis = |at: usize| {
            let dim = self.spatial + at;
            let terms = vec![(dim, self.spec.stride(at) as i64), (taps + at, self.spec.dilation(at) as i64)];
            let mut axis = Axis::sum(terms, image.strides[dim]);
            axis.offset = -(self.before[at] as i64);
            axis.limit = Some(image.shape[dim] as i64);
            axis
        };
        (0..self.spec.rank()).map(axis).collect()
    }
}

impl Lowering {
    /// Any product of tensors along named axes.
    pub(super) fn einsum(
        &mut self,
        op: &EinSum,
        given: &Operands<'_>,
        shape: &[usize],
    ) -> Result<StridedValue, Refusal> {
        if op.q_params.is_some() {
            return Err("quantized parameters are not supported".into());
        }
        let inputs = given.all()?;
        let length = |label: &Label| {
            let of =
                |(input, value): (usize, &StridedValue)| label.inputs[input].iter().map(|dim| value.shape[*dim]).max();
            inputs.iter().enumerate().filter_map(of).max().unwrap_or(1)
        };
        // The output's dims in order, then the dims that are summed over.
        let mut dims: Vec<(usize, &Label)> = Vec::new();
        let mut fold = Vec::new();
        for label in op.axes.iter_all_axes() {
            match label.interface(InOut::Out(0)) {
                [dim] => dims.push((*dim, label)),
                [] => {
                    dims.push((shape.len() + fold.len(), label));
                    fold.push(length(label));
                }
                _ => return Err("each axis of an output must appear once".into()),
            }
        }
        let reads = inputs.iter().enumerate().map(|(input, value)| {
            let axis = |(dim, label): &(usize, &Label)| {
                let along = label.inputs[input].iter().map(|at| Axis::dim(*dim, value.stride(*at)));
                along.collect::<Vec<_>>()
            };
            value.read(dims.iter().flat_map(axis).collect())
        });
        let reads = reads.collect();
        let scalar = inputs.first().map_or(Scalar::F32, |input| input.scalar);
        let exact = is_wide(given.fact(0)?.datum_type);
        let product = (1..inputs.len()).fold(Expr::Read(0), |product, at| {
            let product = product.binary(Binary::Mul, Expr::Read(at));
            if exact { product.exact() } else { product }
        });
        if fold.is_empty() {
            return Ok(self.compute("EinSum", scalar, shape, None, reads, product));
        }
        let fold = Fold { dims: fold, how: How::Sum, exact, value: product };
        Ok(self.compute("EinSum", scalar, shape, Some(fold), reads, Expr::Folded))
    }

    pub(super) fn conv(&mut self, op: &Conv, given: &Operands<'_>, shape: &[usize]) -> Result<StridedValue, Refusal> {
        if op.q_params.is_some() {
            return Err("quantized parameters are not supported".into());
        }
        let image = given.value(0)?;
        let window = Window::new(&op.pool_spec, &image.shape);
        let axes = window.axes(&image, shape.len() + 1);
        self.convolve("Conv", &window, axes, (op.group, op.kernel_fmt), given, shape)
    }

    pub(super) fn deconv(
        &mut self,
        op: &Deconv,
        given: &Operands<'_>,
        shape: &[usize],
    ) -> Result<StridedValue, Refusal> {
        let (image, spec) = (given.value(0)?, &op.pool_spec);
        let window = Window::new(spec, &image.shape);
        let lengths = &image.shape[window.spatial..][..spec.rank()];
        let (dilations, strides) = (spec.dilations(), spec.strides());
        let padding =
            spec.padding.compute_for_deconv(lengths, &spec.kernel_shape, &dilations, &strides, &op.adjustments);
        let padding = padding.map_err(text)?;
        // A tap reaches the places of the output that its element of the image lies at.
        let taps = shape.len() + 1;
        let axis = |at: usize| {
            let dim = window.spatial + at;
            let terms = vec![(dim, 1), (taps + at, -(dilations[at] as i64))];
            let mut axis = Axis::sum(terms, image.strides[dim]);
            axis.offset = padding[at].pad_before as i64;
            (axis.divisor, axis.exact) = (strides[at] as i64, strides[at] != 1);
            axis.limit = Some(image.shape[dim] as i64);
            axis
        };
        let axes = (0..spec.rank()).map(axis).collect();
        self.convolve("ConvTranspose", &window, axes, (op.group, op.kernel_format), given, shape)
    }

    /// A sum over the channels of a group and the taps of a window, whose axes of the image are
    /// given.
    fn convolve(
        &mut self,
        name: &str,
        window: &Window<'_>,
        mut axes: Vec<Axis>,
        (groups, format): (usize, KernelFormat),
        given: &Operands<'_>,
        shape: &[usize],
    ) -> Result<StridedValue, Refusal> {
        let (image, weights, bias) = (given.value(0)?, given.value(1)?, given.value(2)?);
        let (rank, groups) = (shape.len(), groups.max(1));
        let ins = (window.spec.input_channels / groups) as i64;
        let outs = (window.spec.output_channels / groups) as i64;
        // Behind the output's dims: the channels of a group, and the taps.
        let taps = rank + 1;
        let kernel = &weights.shape;
        let lengths = format.hw(kernel);
        let fold: Vec<usize> = [ins as usize].into_iter().chain(lengths.iter().copied()).collect();
        let group = |stride: i64| {
            let mut axis = Axis::dim(window.channels, stride);
            axis.divisor = outs;
            axis
        };

        axes.extend(window.n.map(|n| Axis::dim(n, image.stride(n))));
        axes.push(Axis::dim(rank, image.strides[window.channels]));
        if groups > 1 {
            axes.push(group(image.strides[window.channels] * ins));
        }
        let image = image.read(axes);

        let (o, i) = (format.o_axis(kernel), format.i_axis(kernel));
        let mut axes = vec![Axis::dim(window.channels, weights.strides[o]), Axis::dim(rank, weights.strides[i])];
        if groups > 1 && format != KernelFormat::OIHW {
            // The groups lie behind each other along the input channels, not along the output
            // channels.
            axes.push(group(weights.strides[i] * ins - weights.strides[o] * outs));
        }
        let first = format.h_axis();
        axes.extend((0..lengths.len()).map(|at| Axis::dim(taps + at, weights.strides[first + at])));
        let weights = weights.read(axes);

        let bias = match bias.shape.len() {
            0 => bias.read(Vec::new()),
            _ => bias.read(vec![Axis::dim(window.channels, bias.stride(0))]),
        };
        let product = Expr::Read(0).binary(Binary::Mul, Expr::Read(1));
        let fold = Fold { dims: fold, how: How::Sum, exact: false, value: product };
        let value = Expr::Folded.binary(Binary::Add, Expr::Read(2));
        Ok(self.compute(name, Scalar::F32, shape, Some(fold), vec![weights, image, bias], value))
    }

    /// The greatest value of each window, or its sum: divided by the number of its taps if `count`
    /// says so, padding included or not.
    pub(super) fn pool(
        &mut self,
        name: &str,
        spec: &PoolSpec,
        given: &Operands<'_>,
        shape: &[usize],
        sum: Option<Option<bool>>,
    ) -> Result<StridedValue, Refusal> {
        let image = given.value(0)?;
        let window = Window::new(spec, &image.shape);
        let rank = shape.len();
        let mut axes = window.axes(&image, rank);
        axes.extend(window.n.map(|n| Axis::dim(n, image.stride(n))));
        axes.push(Axis::dim(window.channels, image.stride(window.channels)));
        let mut read = image.read(axes);
        let dims = spec.kernel_shape.to_vec();
        let fold = |how| Some(Fold { dims: dims.clone(), how, exact: false, value: Expr::Read(0) });
        let Some(count) = sum else {
            read.outside = match image.scalar {
                Scalar::F32 => Number::F32(f32::MIN),
                Scalar::I32 => Number::I32(i32::MIN),
            };
            return Ok(self.compute(name, image.scalar, shape, fold(How::Max), vec![read], Expr::Folded));
        };
        let (reads, value) = match count {
            None => (vec![read], Expr::Folded),
            Some(includes_padding) => {
                // The number of taps inside of the image, with the padding that the model asks for,
                // for each place of the window.
                let places = &shape[window.spatial..][..spec.rank()];
                let inside = |at: usize, place: usize| {
                    let first = (place * spec.stride(at)) as i64 - window.before[at] as i64;
                    let length = image.shape[window.spatial + at] as i64;
                    let tap = |tap: usize| first + (tap * spec.dilation(at)) as i64;
                    let padded = match &spec.padding {
                        _ if !includes_padding => 0..length,
                        PaddingSpec::ExplicitOnnxPool(before, after, _) | PaddingSpec::Explicit(before, after) => {
                            -(before[at] as i64)..length + after[at] as i64
                        }
                        _ => i64::MIN..i64::MAX,
                    };
                    (0..dims[at]).filter(|at| padded.contains(&tap(*at))).count()
                };
                let mut scales = vec![1.0f32];
                for (at, length) in places.iter().enumerate() {
                    let counts: Vec<f32> = (0..*length).map(|place| inside(at, place).max(1) as f32).collect();
                    scales = scales.iter().flat_map(|scale| counts.iter().map(move |count| scale * count)).collect();
                }
                let bits = scales.iter().map(|count| (1.0 / count).to_bits()).collect();
                let table = self.constant_bits(Scalar::F32, bits, places.to_vec());
                let strides = row_major(places);
                let axes = strides.iter().enumerate().map(|(at, stride)| Axis::dim(window.spatial + at, *stride));
                (vec![read, table.read(axes.collect())], Expr::Folded.binary(Binary::Mul, Expr::Read(1)))
            }
        };
        Ok(self.compute(name, image.scalar, shape, fold(How::Sum), reads, value))
    }
}
