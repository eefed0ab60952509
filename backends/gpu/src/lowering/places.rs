//! Operators that take elements by their place.

use super::kernel::{ArrayRead, Axis, Binary, Expr, Fold, How, Number, Scalar};
use super::model::{Lowering, Operands, Refusal, text, uniform};
use super::value::StridedValue;
use tract_onnx::tract_core::internal::DimLike;
use tract_onnx::tract_core::ops::array::{OneHot, Pad, PadMode, Trilu};
use tract_onnx::tract_core::ops::nn::Resize;

impl Lowering {
    /// Elements whose index along an axis is read from a table.
    pub(super) fn gather(
        &mut self,
        name: &str,
        axis: usize,
        data: &StridedValue,
        table: &StridedValue,
        shape: &[usize],
    ) -> Result<StridedValue, Refusal> {
        let rank = table.shape.len();
        let dims = (0..rank).map(|dim| Axis::dim(axis + dim, table.stride(dim))).collect();
        let table = table.read(dims);
        let length = data.shape[axis] as i64;
        let read = |from_end: bool| {
            let along = |dim: usize| match dim.cmp(&axis) {
                std::cmp::Ordering::Less => Axis::dim(dim, data.stride(dim)),
                std::cmp::Ordering::Greater => Axis::dim(dim + rank - 1, data.stride(dim)),
                std::cmp::Ordering::Equal => Axis {
                    table: Some(0),
                    offset: if from_end { length } else { 0 },
                    limit: Some(length),
                    ..Axis::sum(Vec::new(), data.strides[dim])
                },
            };
            data.read((0..data.shape.len()).map(along).collect())
        };
        Ok(self.take_from_table(name, table, read, data.scalar, shape))
    }

    /// Elements at the indices of a table; a negative one counts from the end.
    fn take_from_table(
        &mut self,
        name: &str,
        table: ArrayRead,
        read: impl Fn(bool) -> ArrayRead,
        scalar: Scalar,
        shape: &[usize],
    ) -> StridedValue {
        let is_negative = Expr::Read(0).binary(Binary::Less, Expr::Number(Number::I32(0)));
        let value = Expr::Select(is_negative.into(), Expr::Read(2).into(), Expr::Read(1).into());
        self.compute(name, scalar, shape, None, vec![table, read(false), read(true)], value)
    }

    /// Elements at their own place, but for the index along an axis, which is read from a table.
    pub(super) fn gather_elements(
        &mut self,
        name: &str,
        axis: usize,
        data: &StridedValue,
        table: &StridedValue,
        shape: &[usize],
    ) -> StridedValue {
        let length = data.shape[axis] as i64;
        let read = |from_end: bool| {
            let along = |dim: usize| match dim == axis {
                true => Axis {
                    table: Some(0),
                    offset: if from_end { length } else { 0 },
                    limit: Some(length),
                    ..Axis::sum(Vec::new(), data.strides[dim])
                },
                false => Axis::dim(dim, data.stride(dim)),
            };
            data.read((0..data.shape.len()).map(along).collect())
        };
        self.take_from_table(name, table.at(shape.len()), read, data.scalar, shape)
    }

    /// The coordinate along a dim, as a number.
    fn coordinate(&mut self, dim: usize, length: usize) -> ArrayRead {
        let table = self.constant_bits(Scalar::I32, (0..length as u32).collect(), vec![length]);
        table.read(vec![Axis::dim(dim, 1)])
    }

    pub(super) fn one_hot(
        &mut self,
        name: &str,
        op: &OneHot,
        x: &StridedValue,
        shape: &[usize],
    ) -> Result<StridedValue, Refusal> {
        let [on, off] = [&op.on, &op.off].map(|tensor| uniform(tensor).ok_or("the values must be numbers"));
        let (on, off) = (on?, off?);
        if x.scalar != Scalar::I32 {
            return Err("the indices must be integers".into());
        }
        let dims = (0..x.shape.len()).map(|dim| Axis::dim(dim + usize::from(dim >= op.axis), x.stride(dim)));
        let reads = vec![x.read(dims.collect()), self.coordinate(op.axis, op.dim)];
        let int = |value: i32| Expr::Number(Number::I32(value));
        let length = i32::try_from(op.dim).map_err(text)?;
        let is_negative = Expr::Read(0).binary(Binary::Less, int(0));
        let from_end = Expr::Read(0).binary(Binary::Add, int(length));
        let index = Expr::Select(is_negative.into(), from_end.into(), Expr::Read(0).into());
        let is_there = index.binary(Binary::Equal, Expr::Read(1));
        let value = Expr::Select(is_there.into(), Expr::Number(on).into(), Expr::Number(off).into());
        Ok(self.compute(name, on.scalar(), shape, None, reads, value))
    }

    /// The part of a matrix above or below a diagonal.
    pub(super) fn triangle(
        &mut self,
        name: &str,
        op: &Trilu,
        given: &Operands<'_>,
        shape: &[usize],
    ) -> Result<StridedValue, Refusal> {
        let (x, rank) = (given.value(0)?, shape.len());
        let Some(Number::I32(diagonal)) = given.number(1) else { return Err("the diagonal must be constant".into()) };
        let reads =
            vec![x.at(rank), self.coordinate(rank - 2, shape[rank - 2]), self.coordinate(rank - 1, shape[rank - 1])];
        // Far diagonals have everything on one side.
        let diagonal = diagonal.clamp(-(1 << 30), 1 << 30);
        let edge = Expr::Read(1).binary(Binary::Add, Expr::Number(Number::I32(diagonal)));
        let cut = if op.upper { Binary::Less } else { Binary::Greater };
        let is_cut = Expr::Read(2).binary(cut, edge);
        let zero = Expr::Number(Number::zero(x.scalar));
        let value = Expr::Select(is_cut.into(), zero.into(), Expr::Read(0).into());
        Ok(self.compute(name, x.scalar, shape, None, reads, value))
    }

    pub(super) fn pad(
        &mut self,
        name: &str,
        op: &Pad,
        x: &StridedValue,
        shape: &[usize],
    ) -> Result<StridedValue, Refusal> {
        let mut reads: Vec<ArrayRead> = Vec::new();
        let mut axes = Vec::new();
        for (dim, (before, after)) in op.pads.iter().enumerate() {
            let (length, before) = (x.shape[dim] as i64, *before as i64);
            let mut axis = Axis::dim(dim, x.strides[dim]);
            match &op.mode {
                PadMode::Constant(_) => (axis.offset, axis.limit) = (-before, Some(length)),
                _ if shape[dim] == x.shape[dim] => {}
                mode => {
                    let index = |at: i64| match mode {
                        PadMode::Edge => at.clamp(0, length - 1),
                        _ if at < 0 => -at,
                        _ if at >= length => 2 * (length - 1) - at,
                        _ => at,
                    };
                    let table: Vec<i64> = (0..shape[dim] as i64).map(|at| index(at - before)).collect();
                    if table.iter().any(|at| !(0..length).contains(at)) {
                        return Err(format!(
                            "reflect padding of dim {dim} must be at most {}, got {before} and {after}",
                            length - 1
                        ));
                    }
                    axis = Axis { table: Some(reads.len() + 1), ..Axis::sum(Vec::new(), x.strides[dim]) };
                    let bits = table.into_iter().map(|at| at as u32).collect();
                    let table = self.constant_bits(Scalar::I32, bits, vec![shape[dim]]);
                    reads.push(table.read(vec![Axis::dim(dim, 1)]));
                }
            }
            axes.push(axis);
        }
        let mut read = x.read(axes);
        if let PadMode::Constant(value) = &op.mode {
            read.outside = match x.scalar {
                Scalar::F32 => Number::F32(value.cast_to_scalar().map_err(text)?),
                Scalar::I32 => Number::I32(value.cast_to_scalar().map_err(text)?),
            };
        }
        reads.insert(0, read);
        Ok(self.compute(name, x.scalar, shape, None, reads, Expr::Read(0)))
    }

    /// Resizes along one axis after the other, with tables of indices and weights.
    pub(super) fn resize(
        &mut self,
        name: &str,
        op: &Resize,
        given: &Operands<'_>,
        shape: &[usize],
    ) -> Result<StridedValue, Refusal> {
        let mut x = given.value(0)?;
        let scales = match op.optional_scales_input {
            Some(at) if given.fact(at).is_ok_and(|fact| fact.shape.volume().to_usize().is_ok_and(|len| len > 0)) => {
                let tensor = given.constant(at)?;
                let tensor = tensor.cast_to::<f32>().map_err(text)?;
                tensor.try_as_plain_ram().map_err(text)?.as_slice::<f32>().map_err(text)?.to_vec()
            }
            _ => std::iter::zip(shape, &x.shape).map(|(to, from)| *to as f32 / *from as f32).collect(),
        };
        for (axis, scale) in scales.into_iter().enumerate() {
            let (from, to) = (x.shape[axis], shape[axis]);
            if from == to && scale == 1.0 {
                continue;
            }
            let plan = op.plan_axis(scale, from, to);
            if plan.extrapolated.contains(&true) {
                return Err("reads outside of the image are not supported".into());
            }
            let table = |bits: Vec<u32>| (bits, vec![to, plan.window]);
            let (bits, dims) = table(plan.indices.iter().map(|at| *at as u32).collect());
            let indices = self.constant_bits(Scalar::I32, bits, dims);
            let (bits, dims) = table(plan.weights.iter().map(|weight| weight.to_bits()).collect());
            let weights = self.constant_bits(Scalar::F32, bits, dims);
            let rank = x.shape.len();
            let of_table =
                |table: &StridedValue| table.read(vec![Axis::dim(axis, plan.window as i64), Axis::dim(rank, 1)]);
            let along = |dim: usize| match dim == axis {
                true => Axis { table: Some(0), ..Axis::sum(Vec::new(), x.strides[dim]) },
                false => Axis::dim(dim, x.stride(dim)),
            };
            let reads = vec![of_table(&indices), of_table(&weights), x.read((0..rank).map(along).collect())];
            let mut resized = x.shape.clone();
            resized[axis] = to;
            let value = Expr::Read(1).binary(Binary::Mul, Expr::Read(2));
            let fold = Fold { dims: vec![plan.window], how: How::Sum, exact: false, value };
            x = self.compute(name, x.scalar, &resized, Some(fold), reads, Expr::Folded);
        }
        Ok(x)
    }
}
