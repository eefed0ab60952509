//! Convolutions within a program, for devices whose vendor has a library for them.

use super::kernel::{Axis, Expr, Kernel, Number, Read, Scalar, Write};
use super::product::linear;
use super::program::{Program, Source, Storage};
use super::value::row_major;

/// Images in an array: how many, their channels, rows and columns, and the distances of elements along each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Images {
    pub(crate) array: usize,
    pub(crate) offset: usize,
    pub(crate) lengths: [usize; 4],
    pub(crate) strides: [usize; 4],
}

/// An element of `y` is the sum of `w * x` over the taps of a window and the channels of a group; outside of `x` there are zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Convolution {
    pub(crate) x: Images,
    /// The array of the weights, and where they begin in it, without gaps.
    pub(crate) w: (usize, usize),
    /// Output channels, input channels of a group, rows, columns.
    pub(crate) taps: [usize; 4],
    pub(crate) y: Images,
    pub(crate) groups: usize,
    /// Of rows and columns, as are the others: zeros on each side, from one place of the window to the next, from one tap to the next.
    pub(crate) pads: [usize; 2],
    pub(crate) strides: [usize; 2],
    pub(crate) dilations: [usize; 2],
    /// If there are not as many zeros on both sides: then `x` is an array of its own with zeros around, which is still to be added.
    pub(crate) padding: Option<Box<Padding>>,
    /// Whether the kernel computes more of each element, so that `y` is an array of its own, which is still to be added.
    pub(crate) continues: bool,
}

/// How an image gets zeros around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Padding {
    /// Which of the kernel's reads is that of the image.
    read: usize,
    /// The axes by which the kernel reads the image with its zeros.
    axes: Vec<Axis>,
    /// The image without them, and how many rows and columns of zeros are before it.
    of: Images,
    before: [usize; 2],
}

/// A dim of the kernel or of its fold, and a factor of its coordinate.
type Term = Option<(usize, i64)>;

/// An axis of the image along which a window moves.
#[derive(Clone, Copy, Default)]
struct Spatial {
    /// The place of the window, and the tap in it.
    place: Term,
    tap: Term,
    pad: usize,
    length: usize,
    stride: i64,
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
        let storage = |read: &Read| program.arrays[read.array].storage();
        let is_number = |read: &Read| {
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
    fn with(program: &Program, kernel: &Kernel, [of_w, of_x]: [usize; 2]) -> Option<Convolution> {
        let (w, x) = (&kernel.reads[of_w], &kernel.reads[of_x]);
        let rank = kernel.dims.len();
        let lengths: Vec<usize> = kernel.dims.iter().chain(&kernel.fold.as_ref()?.dims).copied().collect();
        let (w_offset, w_strides) = linear(w, &lengths)?;
        // The output channel is the only dim of the output on which the weights depend.
        let mut channels = (0..rank).filter(|dim| w_strides[*dim] != 0);
        let (out, None) = (channels.next(), channels.next()) else { return None };
        let axes = Axes::of(x, &kernel.dims, out)?;
        let length = |dim: Option<usize>| dim.map_or(1, |dim| lengths[dim]);
        let of_term = |term: Term| length(term.map(|(dim, _)| dim));
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
        // One dim is that of columns.
        let [rows, columns] = match axes.spatial[..] {
            [columns] => [Spatial { length: 1, ..Spatial::default() }, columns],
            [rows, columns] => [rows, columns],
            _ => return None,
        };
        let spatial = [rows, columns];
        let taps = [outs, ins, of_term(rows.tap), of_term(columns.tap)];
        let dim = |term: Term| term.map(|(dim, _)| dim);
        let of_taps = [out, dim(axes.channel), dim(rows.tap), dim(columns.tap)];
        let is_packed = std::iter::zip(of_taps, row_major(&taps))
            .all(|(dim, stride)| dim.is_none_or(|dim| lengths[dim] == 1 || w_strides[dim] == stride));
        let of_y = [dim(axes.image), out, dim(rows.place), dim(columns.place)];
        // Each dim has its part: none is only repeated.
        let has_part = |dim: usize| of_y.contains(&Some(dim)) || of_taps[1..].contains(&Some(dim));
        if !is_packed || !(0..lengths.len()).all(has_part) {
            return None;
        }
        let (mut strides, mut dilations, mut spans) = ([1; 2], [1; 2], [1; 2]);
        let mut is_padded = false;
        for (at, axis) in spatial.iter().enumerate() {
            let (places, taps) = (of_term(axis.place), of_term(axis.tap));
            dilations[at] =
                usize::try_from(axis.tap.map_or(1, |(_, factor)| factor)).ok().filter(|factor| *factor > 0)?;
            let field = dilations[at] * (taps - 1) + 1;
            let room = (axis.length + 2 * axis.pad).checked_sub(field);
            strides[at] = match axis.place {
                Some((_, factor)) => usize::try_from(factor).ok().filter(|factor| *factor > 0)?,
                None => room.map_or(1, |room| room + 1),
            };
            spans[at] = (places - 1) * strides[at] + field;
            is_padded |= room.is_none_or(|room| room / strides[at] + 1 != places);
        }
        let given = [axes.image.map(|(_, stride)| stride), channel_stride, stride_of(&rows), stride_of(&columns)];
        let x_lengths = [images, groups * ins, rows.length, columns.length];
        let x = Images::new(x.array, x.offset + axes.offset, x_lengths, given)?;
        let y_lengths = [images, outs, of_term(rows.place), of_term(columns.place)];
        let written = |array: usize, offset: i64, strides: &[i64]| {
            Images::new(array, offset, y_lengths, of_y.map(|dim| dim.map(|dim| strides[dim])))
        };
        let write = &kernel.write;
        let is_whole = kernel.values[..] == [Expr::Folded]
            && program.arrays[write.array].storage() == program.arrays[x.array].storage();
        let whole = is_whole.then(|| written(write.array, write.offset, &write.strides)).flatten();
        let y = whole.or_else(|| written(usize::MAX, 0, &row_major(&kernel.dims)))?;
        let pads = spatial.map(|axis| axis.pad);
        let (w, continues) = ((w.array, usize::try_from(w_offset).ok()?), whole.is_none());
        let found = Convolution { x, w, taps, y, groups, pads, strides, dilations, padding: None, continues };
        if !is_padded {
            return Some(found);
        }
        // Zeros on one side more than on the other are none of a library's.
        let lengths = [images, groups * ins, spans[0], spans[1]];
        let distances = row_major(&lengths);
        let along = |term: Term, at: usize| term.map(|(dim, _)| Axis::dim(dim, distances[at]));
        let group = axes
            .group
            .zip(out)
            .map(|((_, shared), out)| Axis { divisor: shared as i64, ..Axis::dim(out, distances[1] * ins as i64) });
        let window = |axis: &Spatial, at: usize| {
            let terms: Vec<(usize, i64)> = axis.place.into_iter().chain(axis.tap).collect();
            (!terms.is_empty()).then(|| Axis::sum(terms, distances[at]))
        };
        let axes = [along(axes.image, 0), along(axes.channel, 1), group, window(&rows, 2), window(&columns, 3)];
        let padding = Padding { read: of_x, axes: axes.into_iter().flatten().collect(), of: x, before: pads };
        let x = Images::new(usize::MAX, 0, lengths, [0, 1, 2, 3].map(|at| Some(distances[at])))?;
        Some(Convolution { x, pads: [0; 2], padding: Some(Box::new(padding)), ..found })
    }

    /// Puts a kernel that copies the image and zeros around it in front of the kernel of the convolution, and adds an array for them.
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
        let copied = Read {
            array: of.array,
            offset: of.offset as i64,
            axes: (0..4).map(along).collect(),
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
        program.kernels[at].reads[read] = Read { array, offset: 0, axes, outside: Number::F32(0.0) };
        program.kernels.insert(at, kernel.without_single_dims());
        self.x.array = array;
    }
}

fn stride_of(axis: &Spatial) -> Option<i64> {
    (axis.length > 1).then_some(axis.stride)
}

impl Images {
    /// Fills in distances along which there is one element; `None` if two elements are one, or lie backwards.
    fn new(array: usize, offset: i64, lengths: [usize; 4], given: [Option<i64>; 4]) -> Option<Images> {
        let mut strides = [1; 4];
        let mut behind = 1;
        for at in (0..4).rev() {
            strides[at] = match given[at] {
                Some(stride) if lengths[at] > 1 => usize::try_from(stride).ok().filter(|stride| *stride > 0)?,
                _ => behind,
            };
            behind = behind.max(strides[at].checked_mul(lengths[at])?);
        }
        // No element is two of them: a matrix whose rows would count as pixels is none of a convolution's images.
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
    fn of(x: &Read, dims: &[usize], out: Option<usize>) -> Option<Axes> {
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

/// The axes of a window of one tap, from one place of which to the next it goes on by several elements; what remains is another axis.
fn pixels(axes: &mut Vec<(usize, i64)>, dims: &[usize]) -> Option<Vec<Spatial>> {
    axes.sort_unstable();
    // If it goes on by one element, it is a matrix product.
    let (_, step) = *axes.last().filter(|(_, stride)| *stride > 1)?;
    let spatial = axes.split_off(axes.len().saturating_sub(2));
    let of_axis = |(dim, stride): (usize, i64)| {
        let factor = if stride % step == 0 { step } else { 1 };
        let length = (dims[dim] - 1).checked_mul(usize::try_from(factor).ok()?)?.checked_add(1)?;
        Some(Spatial { place: Some((dim, factor)), tap: None, pad: 0, length, stride: stride / factor })
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
        let pad = usize::try_from(-axis.offset).ok()?;
        let length = usize::try_from(axis.limit?).ok().filter(|length| *length > 0)?;
        (axis.divisor == 1).then_some(Spatial { place, tap, pad, length, stride: axis.stride })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lowering::test_cases::{compare, convolutions, device_bits, small_graphs};
    use crate::lowering::{Routine, Source, interpret, lower};

    /// Splits all convolutions that go on, copies the images of those with other zeros on two sides, and returns how many there are, and
    /// how they are described.
    fn split_all(program: &mut Program) -> Vec<(usize, Convolution)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < program.kernels.len() {
            let routine = Routine::of(program, &program.kernels[at]);
            if let Some(mut routine @ Routine::Convolution(_)) = routine {
                if routine.is_padded() {
                    routine.pad(program, at);
                    at += 1;
                }
                let place = at;
                if routine.continues() {
                    routine.split(program, at);
                    at += 1;
                }
                let Routine::Convolution(convolution) = routine else { unreachable!() };
                found.push((place, convolution));
            }
            at += 1;
        }
        found
    }

    /// What a library computes from the description, with arrays of a call.
    fn computed(program: &Program, of: &Convolution, x: &[f32], w: &[f32]) -> Vec<f32> {
        let at = |images: &Images, place: [usize; 4]| {
            images.offset + std::iter::zip(place, images.strides).map(|(at, stride)| at * stride).sum::<usize>()
        };
        let mut y = vec![f32::NAN; program.arrays[of.y.array].len];
        let ([images, outs, rows, columns], [_, ins, tap_rows, tap_columns]) = (of.y.lengths, of.taps);
        let each = |lengths: [usize; 4]| {
            let strides = row_major(&lengths).into_iter().map(|stride| stride as usize).collect::<Vec<_>>();
            (0..lengths.iter().product::<usize>())
                .map(move |n| std::array::from_fn::<usize, 4, _>(|dim| n / strides[dim] % lengths[dim]))
        };
        for [image, out, row, column] in each([images, outs, rows, columns]) {
            let first = out / (outs / of.groups) * ins;
            let taps = each([1, ins, tap_rows, tap_columns]).map(|[_, channel, tap_row, tap_column]| {
                let from = |axis: usize, place: usize, tap: usize| {
                    (place * of.strides[axis] + tap * of.dilations[axis])
                        .checked_sub(of.pads[axis])
                        .filter(|at| *at < of.x.lengths[2 + axis])
                };
                let weight = ((out * ins + channel) * tap_rows + tap_row) * tap_columns + tap_column;
                match (from(0, row, tap_row), from(1, column, tap_column)) {
                    (Some(row), Some(column)) => {
                        x[at(&of.x, [image, first + channel, row, column])] * w[of.w.1 + weight]
                    }
                    _ => 0.0,
                }
            });
            y[at(&of.y, [image, out, row, column])] = taps.sum();
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
