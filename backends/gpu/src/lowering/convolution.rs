//! Convolutions within a program, for devices whose vendor has a library for them.

use super::kernel::{ArrayRead, Axis, Expr, Kernel, Number, Scalar, Write};
use super::product::linear;
use super::program::{Program, Source, Storage};
use super::value::row_major;

/// Images in an array: how many, their channels, layers, rows and columns, and the distances of
/// elements along each. An image of two dims has one layer, one of one dim has one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Images {
    pub(crate) array: usize,
    pub(crate) offset: usize,
    pub(crate) lengths: [usize; 5],
    pub(crate) strides: [usize; 5],
}

/// An element of `y` is the sum of `w * x` over the taps of a window and the channels of a group;
/// outside of `x` there are zeros.
///
/// If it is transposed, the places of the window are those of `x`: there, an element of `x` is
/// weighted and added to each element of `y` at which a tap lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Convolution {
    pub(crate) x: Images,
    /// The array of the weights, and where they begin in it, without gaps.
    pub(crate) w: (usize, usize),
    /// Output channels, input channels of a group, layers, rows, columns; if it is transposed,
    /// input channels and output channels of a group.
    pub(crate) taps: [usize; 5],
    pub(crate) y: Images,
    pub(crate) is_transposed: bool,
    pub(crate) groups: usize,
    /// Of layers, rows and columns, as are the others: zeros on each side, from one place of the
    /// window to the next, from one tap to the next.
    pub(crate) pads: [usize; 3],
    pub(crate) strides: [usize; 3],
    pub(crate) dilations: [usize; 3],
    /// If there are not as many zeros on both sides: then `x` is an array of its own with zeros
    /// around, which is still to be added.
    pub(crate) padding: Option<Box<Padding>>,
    /// If the weights are the other way round in their array: the kernel's read of them, and its
    /// axes when they are not. Then `w` is an array of its own, which is still to be added.
    pub(crate) reordered: Option<(usize, Vec<Axis>)>,
    /// If a library computes more elements than the kernel, on the sides of the result: the length
    /// of each dim, and how many of its elements are in front of the kernel's.
    pub(crate) larger: Option<Vec<(usize, usize)>>,
    /// Whether the kernel computes more of each element, so that `y` is an array of its own, which
    /// is still to be added.
    pub(crate) continues: bool,
}

/// How an image gets zeros around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Padding {
    /// Which of the kernel's reads is that of the image.
    read: usize,
    /// The axes by which the kernel reads the image with its zeros.
    axes: Vec<Axis>,
    /// The image without them, and how many layers, rows and columns of zeros are before it.
    of: Images,
    before: [usize; 3],
}

/// A dim of the kernel or of its fold, and a factor of its coordinate.
type Term = Option<(usize, i64)>;

/// An axis of the image along which a window moves: what lies at
/// `(place + tap + offset) / divisor`, if that is a whole number.
#[derive(Clone, Copy)]
struct Spatial {
    /// The place of the window, and the tap in it.
    place: Term,
    tap: Term,
    offset: i64,
    divisor: i64,
    length: usize,
    stride: i64,
}

/// The axis that an image of fewer dims does not have.
const NONE: Spatial = Spatial { place: None, tap: None, offset: 0, divisor: 1, length: 1, stride: 0 };

/// How a library counts along an axis.
#[derive(Clone, Copy, Default)]
struct AxisSteps {
    pad: usize,
    stride: usize,
    dilation: usize,
    /// The length of the image with as many zeros as the window reaches, or of the result that a
    /// library computes of a transposed one.
    span: usize,
    /// How many of these are in front of the image, or of the kernel's result.
    before: usize,
    /// Whether the image or the result fits without them.
    fits: bool,
}

/// The axes of the image of a convolution, each with the distance of elements.
#[derive(Default)]
struct Axes {
    image: Term,
    /// The channel in a group.
    channel: Term,
    /// The first channel of the group, and how many output channels share it.
    group: Option<(i64, usize)>,
    spatial: Vec<Spatial>,
    offset: i64,
}

impl Convolution {
    /// Returns the convolution that a kernel begins with.
    pub(crate) fn of(program: &Program, kernel: &Kernel) -> Option<Convolution> {
        let fold = kernel.fold.as_ref().filter(|fold| !fold.exact)?;
        let [a, b] = fold.factors()?.map(|at| &kernel.reads[at]);
        let storage = |read: &ArrayRead| program.arrays[read.array].storage();
        let is_number = |read: &ArrayRead| {
            program.arrays[read.array].scalar == Scalar::F32
                && storage(read) != Storage::Byte
                && read.outside == Number::F32(0.0)
        };
        if !is_number(a) || !is_number(b) || storage(a) != storage(b) {
            return None;
        }
        let [first, second] = fold.factors()?;
        [[first, second], [second, first]].into_iter().find_map(|factors| Convolution::with(program, kernel, factors))
    }

    /// The convolution of a kernel's reads: of the weights and of the image.
    fn with(program: &Program, kernel: &Kernel, [weights, image]: [usize; 2]) -> Option<Convolution> {
        let (w, x) = (&kernel.reads[weights], &kernel.reads[image]);
        let rank = kernel.dims.len();
        let lengths: Vec<usize> = kernel.dims.iter().chain(&kernel.fold.as_ref()?.dims).copied().collect();
        let (w_offset, w_strides) = linear(w, &lengths)?;
        // The output channel is the only dim of the output on which the weights depend.
        let mut channels = (0..rank).filter(|dim| w_strides[*dim] != 0);
        let (out, None) = (channels.next(), channels.next()) else { return None };
        let axes = Axes::of(x, &kernel.dims, out)?;
        let length = |dim: Option<usize>| dim.map_or(1, |dim| lengths[dim]);
        let dim = |term: Term| term.map(|(dim, _)| dim);
        let of_term = |term: Term| length(dim(term));
        let (outs, ins, images) = (length(out), of_term(axes.channel), of_term(axes.image));
        let groups = match axes.group {
            Some((_, shared)) if shared > 0 && outs.is_multiple_of(shared) => outs / shared,
            Some(_) => return None,
            None => 1,
        };
        let channel_stride = match (axes.channel, axes.group) {
            (Some((_, stride)), Some((group, _))) if group != stride.checked_mul(ins as i64)? => return None,
            (Some((_, stride)), _) => Some(stride),
            (None, group) => group.map(|(stride, _)| stride),
        };
        let spatial = match axes.spatial[..] {
            [columns] => [NONE, NONE, columns],
            [rows, columns] => [NONE, rows, columns],
            [layers, rows, columns] => [layers, rows, columns],
            _ => return None,
        };
        let is_transposed = spatial.iter().any(Spatial::is_transposed);
        let of_taps = spatial.map(|axis| of_term(axis.tap));
        let of_w = [out, dim(axes.channel), dim(spatial[0].tap), dim(spatial[1].tap), dim(spatial[2].tap)];
        let taps = [outs, ins, of_taps[0], of_taps[1], of_taps[2]];
        let is_packed = std::iter::zip(of_w, row_major(&taps))
            .all(|(dim, stride)| dim.is_none_or(|dim| lengths[dim] == 1 || w_strides[dim] == stride));
        let places = spatial.map(|axis| dim(axis.place));
        let of_y = [dim(axes.image), out, places[0], places[1], places[2]];
        // Each dim has its part: none is only repeated.
        let has_part = |dim: usize| of_y.contains(&Some(dim)) || of_w[1..].contains(&Some(dim));
        if !is_packed || !(0..lengths.len()).all(has_part) {
            return None;
        }
        let (mut taps, mut reordered) = (taps, None);
        if is_transposed {
            // A library wants the weights the other way round.
            [taps[0], taps[1]] = [groups * ins, outs / groups];
            if ins > 1 && taps[1] > 1 {
                let Source::Constant(_) = program.arrays[w.array].source else { return None };
                reordered = Some((weights, reordered_axes(of_w, taps, groups)));
            }
        }
        let mut steps = [AxisSteps::default(); 3];
        for (steps, axis) in std::iter::zip(&mut steps, &spatial) {
            let (places, taps) = (of_term(axis.place), of_term(axis.tap));
            *steps = if is_transposed { axis.transposed(places, taps) } else { axis.forward(places, taps) }?;
        }
        let is_fitting = steps.iter().all(|steps| steps.fits);
        let given = [
            axes.image.map(|(_, stride)| stride),
            channel_stride,
            stride_of(&spatial[0]),
            stride_of(&spatial[1]),
            stride_of(&spatial[2]),
        ];
        let [layers, rows, columns] = spatial.map(|axis| axis.length);
        let x_lengths = [images, groups * ins, layers, rows, columns];
        let x = Images::new(x.array, x.offset + axes.offset, x_lengths, given)?;
        // What a library computes of the result.
        let mut larger: Vec<(usize, usize)> = kernel.dims.iter().map(|length| (*length, 0)).collect();
        for (steps, axis) in std::iter::zip(&steps, &spatial) {
            match axis.place {
                Some((dim, _)) if is_transposed => larger[dim] = (steps.span, steps.before),
                None if is_transposed && !steps.fits => return None,
                _ => {}
            }
        }
        let y_dims: Vec<usize> = larger.iter().map(|(length, _)| *length).collect();
        let y_lengths = of_y.map(|dim| dim.map_or(1, |dim| y_dims[dim]));
        let written = |array: usize, offset: i64, strides: &[i64]| {
            Images::new(array, offset, y_lengths, of_y.map(|dim| dim.map(|dim| strides[dim])))
        };
        let write = &kernel.write;
        let is_whole = kernel.values[..] == [Expr::Folded]
            && program.arrays[write.array].storage() == program.arrays[x.array].storage()
            && (is_fitting || !is_transposed);
        let whole = is_whole.then(|| written(write.array, write.offset, &write.strides)).flatten();
        let y = whole.or_else(|| written(usize::MAX, 0, &row_major(&y_dims)))?;
        let (w, continues) = ((w.array, usize::try_from(w_offset).ok()?), whole.is_none());
        let larger = (is_transposed && !is_fitting).then_some(larger);
        let [pads, strides, dilations] =
            [|steps: AxisSteps| steps.pad, |steps: AxisSteps| steps.stride, |steps: AxisSteps| steps.dilation]
                .map(|of| steps.map(of));
        let found = Convolution {
            x,
            w,
            taps,
            y,
            is_transposed,
            groups,
            pads,
            strides,
            dilations,
            padding: None,
            reordered,
            larger,
            continues,
        };
        if is_transposed || is_fitting {
            return Some(found);
        }
        found.padded(image, &axes, &spatial, &steps, out)
    }

    /// The same of an image with zeros around it: more on one side than on the other are none of a
    /// library's.
    fn padded(
        self,
        read: usize,
        of: &Axes,
        spatial: &[Spatial; 3],
        steps: &[AxisSteps; 3],
        out: Option<usize>,
    ) -> Option<Convolution> {
        let [images, channels, ..] = self.x.lengths;
        let lengths = [images, channels, steps[0].span, steps[1].span, steps[2].span];
        let distances = row_major(&lengths);
        let along = |term: Term, at: usize| term.map(|(dim, _)| Axis::dim(dim, distances[at]));
        let to_group = distances[1] * self.taps[1] as i64;
        let group = of.group.zip(out);
        let group = group.map(|((_, shared), out)| Axis { divisor: shared as i64, ..Axis::dim(out, to_group) });
        let window = |at: usize| {
            let axis = &spatial[at];
            let terms: Vec<(usize, i64)> = axis.place.into_iter().chain(axis.tap).collect();
            (!terms.is_empty()).then(|| Axis::sum(terms, distances[2 + at]))
        };
        let axes = [along(of.image, 0), along(of.channel, 1), group, window(0), window(1), window(2)];
        let before = steps.map(|steps| steps.before);
        let padding = Padding { read, axes: axes.into_iter().flatten().collect(), of: self.x, before };
        let x = Images::new(usize::MAX, 0, lengths, [0, 1, 2, 3, 4].map(|at| Some(distances[at])))?;
        Some(Convolution { x, pads: [0; 3], padding: Some(Box::new(padding)), ..self })
    }

    /// Whether arrays are still to be added before it can be computed.
    pub(super) fn is_apart(&self) -> bool {
        self.continues || self.padding.is_some() || self.reordered.is_some()
    }

    /// Adds an array of the weights in the order of a library.
    pub(super) fn reorder(&mut self, program: &mut Program, at: usize) {
        let Some((read, axes)) = self.reordered.take() else { return };
        let Source::Constant(bits) = &program.arrays[self.w.0].source else { return };
        let [_, outs, taps @ ..] = self.taps;
        let (ins, taps) = (self.taps[0] / self.groups, taps.iter().product::<usize>());
        let group = |of: usize| {
            let first = self.w.1 + of * outs * ins * taps;
            let weights = move |(input, out)| first + (out * ins + input) * taps;
            (0..ins).flat_map(move |input| (0..outs).map(move |out| (input, out))).map(weights)
        };
        let order = (0..self.groups).flat_map(group);
        let reordered: Vec<u32> = order.flat_map(|first| &bits[first..][..taps]).copied().collect();
        let is_half = program.arrays[self.w.0].is_half;
        let array = program.array(Scalar::F32, reordered.len(), Source::Constant(reordered.into()));
        program.arrays[array].is_half = is_half;
        program.kernels[at].reads[read] = ArrayRead { array, offset: 0, axes, outside: Number::F32(0.0) };
        program.drop_unread();
        self.w = (array, 0);
    }

    /// Puts a kernel that copies the image and zeros around it in front of the kernel of the
    /// convolution, and adds an array for them.
    pub(super) fn pad(&mut self, program: &mut Program, at: usize) {
        let Some(padding) = self.padding.take() else { return };
        let Padding { read, axes, of, before } = *padding;
        let lengths = self.x.lengths;
        let array = program.array(Scalar::F32, lengths.iter().product(), Source::Computed);
        program.arrays[array].is_half = program.arrays[of.array].storage() == Storage::Half;
        let along = |dim: usize| {
            let axis = Axis::dim(dim, of.strides[dim] as i64);
            match dim.checked_sub(2) {
                Some(side) => Axis { offset: -(before[side] as i64), limit: Some(of.lengths[dim] as i64), ..axis },
                None => axis,
            }
        };
        let copied = ArrayRead {
            array: of.array,
            offset: of.offset as i64,
            axes: (0..lengths.len()).map(along).collect(),
            outside: Number::F32(0.0),
        };
        let kernel = Kernel {
            name: format!("Pad of {}", program.kernels[at].name),
            dims: lengths.to_vec(),
            fold: None,
            reads: vec![copied],
            values: vec![Expr::Read(0)],
            write: Write { array, offset: 0, strides: row_major(&lengths) },
            fails: None,
            suppression: None,
        };
        program.kernels[at].reads[read] = ArrayRead { array, offset: 0, axes, outside: Number::F32(0.0) };
        program.kernels.insert(at, kernel.without_single_dims());
        self.x.array = array;
    }
}

/// The axes by which a kernel reads the weights of a transposed convolution in the order of a
/// library, by the dims of its output channels, input channels, layers, rows and columns.
fn reordered_axes(of_w: [Option<usize>; 5], taps: [usize; 5], groups: usize) -> Vec<Axis> {
    let strides = row_major(&taps);
    let [inputs, shared, ..] = taps;
    let along = |at: usize, of: usize| of_w[at].map(|dim| Axis::dim(dim, strides[of]));
    // The next output channel is in the next group after so many.
    let to_group = strides[0] * (inputs / groups) as i64 - strides[1] * shared as i64;
    let group = of_w[0].filter(|_| groups > 1);
    let group = group.map(|out| Axis { divisor: shared as i64, ..Axis::dim(out, to_group) });
    [along(0, 1), along(1, 0), along(2, 2), along(3, 3), along(4, 4), group].into_iter().flatten().collect()
}

fn stride_of(axis: &Spatial) -> Option<i64> {
    (axis.length > 1).then_some(axis.stride)
}

impl Images {
    /// Fills in distances along which there is one element; `None` if two elements are one, or lie
    /// backwards.
    fn new(array: usize, offset: i64, lengths: [usize; 5], given: [Option<i64>; 5]) -> Option<Images> {
        let mut strides = [1; 5];
        let mut behind = 1;
        for at in (0..lengths.len()).rev() {
            strides[at] = match given[at] {
                Some(stride) if lengths[at] > 1 => usize::try_from(stride).ok().filter(|stride| *stride > 0)?,
                _ => behind,
            };
            behind = behind.max(strides[at].checked_mul(lengths[at])?);
        }
        // No element is two of them: a matrix whose rows would count as pixels is none of a
        // convolution's images.
        let mut along: Vec<(usize, usize)> =
            std::iter::zip(strides, lengths).filter(|(_, length)| *length > 1).collect();
        along.sort_unstable();
        if along.windows(2).any(|pair| pair[1].0 < pair[0].0.saturating_mul(pair[0].1)) {
            return None;
        }
        Some(Images { array, offset: usize::try_from(offset).ok()?, lengths, strides })
    }
}

impl Axes {
    /// Sorts the axes of an image; `None` if they are not those of a convolution.
    fn of(x: &ArrayRead, dims: &[usize], out: Option<usize>) -> Option<Axes> {
        let (mut axes, mut images, rank) = (Axes::default(), Vec::new(), dims.len());
        for axis in &x.axes {
            if axis.table.is_some() {
                return None;
            }
            let is_plain = axis.divisor == 1 && axis.limit.is_none();
            match axis.terms[..] {
                _ if axis.limit.is_some() => axes.spatial.push(Spatial::of(axis, rank)?),
                [] if is_plain => axes.offset += axis.offset * axis.stride,
                [(dim, 1)] if Some(dim) == out && axes.group.is_none() && axis.limit.is_none() && axis.offset == 0 => {
                    axes.group = Some((axis.stride, usize::try_from(axis.divisor).ok()?));
                }
                [(dim, 1)] if is_plain && axis.offset == 0 && dim < rank => images.push((dim, axis.stride)),
                [(dim, 1)] if is_plain && axis.offset == 0 && axes.channel.is_none() => {
                    axes.channel = Some((dim, axis.stride));
                }
                _ => return None,
            }
        }
        if axes.spatial.is_empty() {
            axes.spatial = pixels(&mut images, dims)?;
        }
        axes.image = images.pop();
        images.is_empty().then_some(axes)
    }
}

/// The axes of a window of one tap, from one place of which to the next it goes on by several
/// elements; what remains is another axis.
fn pixels(axes: &mut Vec<(usize, i64)>, dims: &[usize]) -> Option<Vec<Spatial>> {
    axes.sort_unstable();
    // If it goes on by one element, it is a matrix product.
    let (_, step) = *axes.last().filter(|(_, stride)| *stride > 1)?;
    // All but the first of three or more, which is that of images.
    let spatial = axes.split_off(axes.len().saturating_sub(2).min(1));
    let of_axis = |(dim, stride): (usize, i64)| {
        let factor = if stride % step == 0 { step } else { 1 };
        let length = (dims[dim] - 1).checked_mul(usize::try_from(factor).ok()?)?.checked_add(1)?;
        Some(Spatial { place: Some((dim, factor)), length, stride: stride / factor, ..NONE })
    };
    spatial.into_iter().map(of_axis).collect()
}

impl Spatial {
    fn of(axis: &Axis, rank: usize) -> Option<Spatial> {
        let (mut place, mut tap) = (None, None);
        for (dim, factor) in &axis.terms {
            let of = if *dim < rank { &mut place } else { &mut tap };
            if of.replace((*dim, *factor)).is_some() {
                return None;
            }
        }
        let length = usize::try_from(axis.limit?).ok().filter(|length| *length > 0)?;
        let Axis { offset, divisor, stride, exact, .. } = *axis;
        (divisor == 1 || exact).then_some(Spatial { place, tap, offset, divisor, length, stride })
    }

    /// Whether it goes through the image backwards from tap to tap, or meets an element at some of
    /// the places only.
    fn is_transposed(&self) -> bool {
        self.divisor != 1 || self.tap.is_some_and(|(_, factor)| factor < 0)
    }

    /// How a window of so many taps moves over the image, to so many places.
    fn forward(&self, places: usize, taps: usize) -> Option<AxisSteps> {
        let positive = |term: Term| usize::try_from(term.map_or(1, |(_, factor)| factor)).ok().filter(|of| *of > 0);
        let pad = usize::try_from(-self.offset).ok()?;
        let dilation = positive(self.tap)?;
        let field = dilation * (taps - 1) + 1;
        let room = (self.length + 2 * pad).checked_sub(field);
        let stride = match self.place {
            Some(_) => positive(self.place)?,
            None => room.map_or(1, |room| room + 1),
        };
        let fits = room.is_some_and(|room| room / stride + 1 == places);
        Some(AxisSteps { pad, stride, dilation, span: (places - 1) * stride + field, before: pad, fits })
    }

    /// How a window of so many taps moves over a result of so many elements, to each element of the
    /// image.
    fn transposed(&self, elements: usize, taps: usize) -> Option<AxisSteps> {
        let dilation = usize::try_from(-self.tap.map_or(-1, |(_, factor)| factor)).ok()?;
        let (offset, stride) = (usize::try_from(self.offset).ok()?, usize::try_from(self.divisor).ok()?);
        if self.place.is_some_and(|(_, factor)| factor != 1) {
            return None;
        }
        // The windows reach so many elements, of which `offset` are in front of the result. A
        // library leaves out as many on both sides, and has up to `stride - 1` that no window
        // reaches behind them.
        let reach = stride * (self.length - 1) + dilation * (taps - 1) + 1;
        let before = (elements + 2 * offset + 1).saturating_sub(reach + stride);
        let pad = offset.checked_sub(before)?;
        let span = (before + elements).max(reach.checked_sub(2 * pad)?);
        // Far more than is asked for is not worth it.
        if span > 4 * elements + 1024 {
            return None;
        }
        Some(AxisSteps { pad, stride, dilation, span, before, fits: (span, before) == (elements, 0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lowering::test_cases::{compare, convolutions, device_bits, small_graphs};
    use crate::lowering::{Routine, Source, interpret, lower};

    /// Splits all convolutions that go on, copies the images of those with other zeros on two
    /// sides, and returns how many there are, and how they are described.
    fn split_all(program: &mut Program) -> Vec<(usize, Convolution)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < program.kernels.len() {
            let routine = Routine::of(program, &program.kernels[at]);
            if let Some(mut routine @ Routine::Convolution(_)) = routine {
                at += routine.lay_out(program, at);
                let place = at;
                if routine.continues() {
                    routine.split(program, at);
                    at += 1;
                }
                let Routine::Convolution(convolution) = routine else { unreachable!() };
                found.push((place, *convolution));
            }
            at += 1;
        }
        found
    }

    /// What a library computes from the description, with arrays of a call.
    fn computed(program: &Program, of: &Convolution, x: &[f32], w: &[f32]) -> Vec<f32> {
        let at = |images: &Images, place: [usize; 5]| {
            images.offset + std::iter::zip(place, images.strides).map(|(at, stride)| at * stride).sum::<usize>()
        };
        let each = |lengths: [usize; 5]| {
            let strides = row_major(&lengths).into_iter().map(|stride| stride as usize).collect::<Vec<_>>();
            (0..lengths.iter().product::<usize>())
                .map(move |n| std::array::from_fn::<usize, 5, _>(|dim| n / strides[dim] % lengths[dim]))
        };
        let weights = row_major(&of.taps);
        // The places of the window are those of the result, or of the image if it is transposed.
        let (windows, others) = if of.is_transposed { (&of.x, &of.y) } else { (&of.y, &of.x) };
        let [outs, ins] = [of.taps[0] / of.groups, of.taps[1]];
        let mut y = vec![f32::NAN; program.arrays[of.y.array].len];
        for place in each(of.y.lengths) {
            y[at(&of.y, place)] = 0.0;
        }
        for place in each(windows.lengths) {
            for tap in each([1, ins, of.taps[2], of.taps[3], of.taps[4]]) {
                let from: [Option<usize>; 3] = std::array::from_fn(|axis| {
                    (place[2 + axis] * of.strides[axis] + tap[2 + axis] * of.dilations[axis])
                        .checked_sub(of.pads[axis])
                        .filter(|at| *at < others.lengths[2 + axis])
                });
                let [Some(layer), Some(row), Some(column)] = from else { continue };
                let other = [place[0], place[1] / outs * ins + tap[1], layer, row, column];
                let weight = [place[1], tap[1], tap[2], tap[3], tap[4]];
                let weight: i64 = std::iter::zip(weight, &weights).map(|(at, stride)| at as i64 * stride).sum();
                let (from, to) = if of.is_transposed { (place, other) } else { (other, place) };
                y[at(&of.y, to)] += x[at(&of.x, from)] * w[of.w.1 + weight as usize];
            }
        }
        y
    }

    fn floats(bits: &[u32]) -> Vec<f32> {
        bits.iter().map(|bits| f32::from_bits(*bits)).collect()
    }

    #[test]
    fn convolutions_are_found_and_split_from_what_goes_on_with_them() {
        for (case, count) in convolutions() {
            let name = &case.name;
            let mut program = lower(&case.model).unwrap_or_else(|error| panic!("{name}: {error}"));
            let found = split_all(&mut program);
            assert_eq!(found.len(), count, "{name}: {:?}", program.kernels);
            let inputs = case.inputs(1);
            let bits: Vec<Vec<u32>> = inputs.iter().map(device_bits).collect();
            let slices: Vec<&[u32]> = bits.iter().map(Vec::as_slice).collect();
            let run = |program: &Program| {
                let outputs = interpret(program, &slices).unwrap();
                outputs.iter().map(|bits| floats(bits)).collect::<Vec<_>>()
            };
            compare(name, &run(&program), &case.expected(&inputs));
            // The description alone gives what its kernel computes, from what is before it.
            let Some((at, convolution)) = found.first() else { continue };
            program.kernels.truncate(at + 1);
            let array = |array: usize| {
                let mut before = program.clone();
                before.outputs = vec![(array, vec![before.arrays[array].len])];
                match &program.arrays[array].source {
                    Source::Constant(bits) => floats(bits),
                    Source::Input | Source::Bytes => floats(&bits[0]),
                    Source::Computed => run(&before).remove(0),
                }
            };
            let [x, w, y] = [convolution.x.array, convolution.w.0, convolution.y.array].map(array);
            compare(name, &[computed(&program, convolution, &x, &w)], &[y]);
        }
    }

    #[test]
    fn models_have_the_same_numbers_with_convolutions_apart() {
        for case in small_graphs() {
            let name = &case.name;
            let mut program = lower(&case.model).unwrap_or_else(|error| panic!("{name}: {error}"));
            split_all(&mut program);
            let inputs = case.inputs(2);
            let bits: Vec<Vec<u32>> = inputs.iter().map(device_bits).collect();
            let bits: Vec<&[u32]> = bits.iter().map(Vec::as_slice).collect();
            let outputs = interpret(&program, &bits).unwrap_or_else(|error| panic!("{name}: {error}"));
            let outputs: Vec<Vec<f32>> = outputs.iter().map(|bits| floats(bits)).collect();
            compare(name, &outputs, &case.expected(&inputs));
        }
    }
}
