//! A message of a recording as a tensor.

use super::proto;
use half::{bf16, f16};
use limen::TensorMut;
use limen::message::{DType, Dim, Label, MAX_RANK, PortSpec};

/// The elements of a message, where they lie in it.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "it stays on the stack while a message is read")]
pub(crate) enum Elements<'a> {
    /// In the order and form of the tensor.
    Plain(&'a [u8]),
    /// Rows of `row` bytes, each at a multiple of `step`; with `swap`, red and blue of each pixel
    /// of so many bytes are exchanged.
    Rows { data: &'a [u8], step: usize, row: usize, swap: Option<usize> },
    /// Points at multiples of `stride`, each with a value of a type at an offset for each column,
    /// which has the name of its field.
    Points { data: &'a [u8], stride: usize, columns: [(usize, DType); MAX_COLUMNS], names: [&'a [u8]; MAX_COLUMNS] },
    /// A few numbers.
    Numbers([f64; 13]),
    /// Packed varints of integers.
    Varints(&'a [u8]),
    /// One integer.
    Integer(u64),
    /// 32-bit floats of a tensor with shorter ones.
    Shorter(&'a [u8]),
}

/// Most values of a point.
pub(crate) const MAX_COLUMNS: usize = 16;

/// Puts the values of a point in order by the names of their fields: `x`, `y`, `z` and `intensity`,
/// if there is one, then the others as they are. Returns the type that holds them all: `f64` if a
/// value may be one that `f32` rounds, such as a time.
///
/// # Errors
/// There is no `x`, `y` or `z`.
pub(crate) fn point_columns(names: &mut [&[u8]], columns: &mut [(usize, DType)]) -> Result<DType, String> {
    const FIRST: [&[u8]; 4] = [b"x", b"y", b"z", b"intensity"];
    if names.is_empty() {
        return Err("expected a value for each point, found none".into());
    }
    if let Some(missing) = FIRST[..3].iter().find(|name| !names.contains(name)) {
        return Err(no_field(missing, names));
    }
    let mut order: [usize; MAX_COLUMNS] = std::array::from_fn(|at| at);
    let order = &mut order[..names.len()];
    order.sort_by_key(|at| FIRST.iter().position(|first| *first == names[*at]).unwrap_or(FIRST.len()));
    let mut sorted = [(&b""[..], (0, DType::F32)); MAX_COLUMNS];
    for (to, from) in sorted.iter_mut().zip(order) {
        *to = (names[*from], columns[*from]);
    }
    for ((name, column), from) in names.iter_mut().zip(&mut *columns).zip(sorted) {
        (*name, *column) = from;
    }
    Ok(columns_type(columns))
}

fn columns_type(columns: &[(usize, DType)]) -> DType {
    let is_long = |(_, dtype): &(usize, DType)| matches!(dtype, DType::F64 | DType::I32 | DType::U32);
    if columns.iter().any(is_long) { DType::F64 } else { DType::F32 }
}

fn no_field(missing: &[u8], names: &[&[u8]]) -> String {
    let listed: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
    format!("expected points with a field `{}`, found the fields {}", missing.escape_ascii(), listed.join(", "))
}

/// A message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoded<'a> {
    /// When it was made, in ns since 1970, if it says so.
    pub(crate) stamp: Option<u64>,
    pub(crate) dtype: DType,
    dims: [usize; MAX_RANK],
    rank: usize,
    /// Whether its first dim, the second or both may differ from message to message.
    pub(crate) varies: bool,
    pub(crate) elements: Elements<'a>,
}

impl<'a> Decoded<'a> {
    pub(crate) fn new(stamp: Option<u64>, dtype: DType, shape: &[usize], elements: Elements<'a>) -> Self {
        let mut dims = [0; MAX_RANK];
        let rank = shape.len().min(MAX_RANK);
        dims[..rank].copy_from_slice(&shape[..rank]);
        Decoded { stamp, dtype, dims, rank, varies: false, elements }
    }

    /// A few numbers: `f64`, or `f32` if these were recorded.
    pub(crate) fn numbers(stamp: Option<u64>, recorded: Option<DType>, values: &[f64]) -> Self {
        let mut all = [0.0; 13];
        all[..values.len()].copy_from_slice(values);
        let dtype = recorded.filter(|dtype| *dtype == DType::F32).unwrap_or(DType::F64);
        Decoded::new(stamp, dtype, &[values.len()], Elements::Numbers(all))
    }

    /// A message whose first dim varies.
    pub(crate) fn varying(self) -> Self {
        Decoded { varies: true, ..self }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    fn elements(&self) -> Option<usize> {
        self.shape().iter().try_fold(1usize, |n, dim| n.checked_mul(*dim))
    }

    /// Checks that the elements are all there.
    pub(crate) fn check(self) -> Result<Self, String> {
        let expected = self.elements().and_then(|n| n.checked_mul(self.dtype.size()));
        let expected = expected.ok_or_else(|| format!("the shape must fit 64 bits, got {:?}", self.shape()))?;
        let there = match self.elements {
            Elements::Plain(bytes) => bytes.len(),
            Elements::Rows { data, step, row, .. } => {
                let rows = self.shape().first().copied().unwrap_or(0);
                if row > step || rows.checked_mul(step).is_none_or(|all| all.saturating_sub(step - row) > data.len()) {
                    return Err(format!("expected {rows} rows of {step} bytes, found {} bytes", data.len()));
                }
                rows * row
            }
            Elements::Points { data, stride, .. } => {
                let points = self.shape().first().copied().unwrap_or(0);
                if points.checked_mul(stride).is_none_or(|all| all > data.len()) {
                    return Err(format!("expected {points} points of {stride} bytes, found {} bytes", data.len()));
                }
                return Ok(self);
            }
            Elements::Varints(data) => {
                let values = proto::varints(data).try_fold(0usize, |n, value| value.map(|_| n + 1));
                values.ok_or("expected values as varints, found malformed bytes")? * self.dtype.size()
            }
            Elements::Shorter(bytes) => bytes.len() / 2,
            Elements::Numbers(_) | Elements::Integer(_) => return Ok(self),
        };
        if there == expected {
            Ok(self)
        } else {
            Err(format!("expected {expected} bytes for the shape {:?}, found {there}", self.shape()))
        }
    }

    /// Returns the names of the columns of points.
    pub(crate) fn point_names(&self) -> Option<&[&'a [u8]]> {
        let Elements::Points { names, .. } = &self.elements else { return None };
        names.get(..self.dims[1])
    }

    /// Returns the message in the shape of its port, which follows from the topic's first message.
    /// Points have the port's columns, by the names of their fields. A message of an IMU whose
    /// orientation came later than the first message, or went, has NaN for the orientation, or
    /// none.
    ///
    /// # Errors
    /// Points have no field of a name.
    pub(crate) fn for_port(mut self, spec: &PortSpec, labels: &[Label]) -> Result<Self, String> {
        match &mut self.elements {
            Elements::Points { columns, names, .. } => {
                let (from, fields) = (*columns, &names[..self.dims[1]]);
                for (at, label) in labels.iter().enumerate().take(MAX_COLUMNS) {
                    // A field of several values has as many columns.
                    let nth = labels[..at].iter().filter(|other| other.name() == label.name()).count();
                    let found =
                        fields.iter().enumerate().filter(|(_, name)| **name == label.name().as_bytes()).nth(nth);
                    let (place, _) = found.ok_or_else(|| no_field(label.name().as_bytes(), fields))?;
                    columns[at] = from[place];
                }
                if !labels.is_empty() {
                    self.dims[1] = labels.len();
                    let dtype = columns_type(&columns[..labels.len().min(MAX_COLUMNS)]);
                    self.dtype = if spec.dtype == DType::F64 { DType::F64 } else { dtype };
                }
            }
            Elements::Numbers(values) => match (&self.dims[..self.rank], &spec.shape[..]) {
                ([6], [Dim::Fixed(10)]) => {
                    values.copy_within(..6, 4);
                    values[..4].fill(f64::NAN);
                    self.dims[0] = 10;
                }
                ([10], [Dim::Fixed(6)]) => {
                    values.copy_within(4..10, 0);
                    self.dims[0] = 6;
                }
                _ => {}
            },
            _ => {}
        }
        Ok(self)
    }

    /// Whether the message fits a port.
    pub(crate) fn fits(&self, spec: &PortSpec) -> bool {
        let fits = |(length, dim): (&usize, &Dim)| match dim {
            Dim::Fixed(n) => length == n,
            dim => dim.max().is_some_and(|most| *length <= most),
        };
        self.dtype == spec.dtype && self.rank == spec.shape.len() && self.shape().iter().zip(&spec.shape).all(fits)
    }

    /// Writes the elements into a slot of a port that it fits.
    pub(crate) fn write(&self, to: &mut TensorMut) -> Result<(), limen::node::NodeError> {
        for (dim, length) in self.shape().iter().enumerate() {
            to.set_len(dim, *length)?;
        }
        let out = to.bytes_mut();
        match self.elements {
            Elements::Plain(bytes) => copy(bytes, out),
            Elements::Rows { data, step, row, swap } => {
                for (to, from) in out.chunks_exact_mut(row.max(1)).zip(data.chunks(step.max(1))) {
                    copy(from, to);
                }
                if let Some(pixel) = swap {
                    out.chunks_exact_mut(pixel.max(3)).for_each(|pixel| pixel.swap(0, 2));
                }
            }
            Elements::Points { data, stride, columns, .. } => {
                let width = self.shape().get(1).copied().unwrap_or(1).min(MAX_COLUMNS);
                let size = self.dtype.size();
                for (to, point) in out.chunks_exact_mut(width.max(1) * size).zip(data.chunks(stride.max(1))) {
                    for ((offset, dtype), to) in columns[..width].iter().zip(to.chunks_exact_mut(size)) {
                        let value = value(point, *offset, *dtype);
                        match self.dtype {
                            DType::F64 => copy(&value.to_le_bytes(), to),
                            _ => copy(&(value as f32).to_le_bytes(), to),
                        }
                    }
                }
            }
            Elements::Numbers(values) => match self.dtype {
                DType::F32 => each(out, values.iter().map(|v| (*v as f32).to_le_bytes())),
                _ => each(out, values.iter().map(|v| v.to_le_bytes())),
            },
            Elements::Varints(data) => {
                let values = proto::varints(data).flatten();
                match self.dtype.size() {
                    1 => each(out, values.map(|v| [v as u8])),
                    2 => each(out, values.map(|v| (v as u16).to_le_bytes())),
                    4 => each(out, values.map(|v| (v as u32).to_le_bytes())),
                    _ => each(out, values.map(u64::to_le_bytes)),
                }
            }
            Elements::Integer(value) => copy(&value.to_le_bytes(), out),
            Elements::Shorter(bytes) => {
                let values = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
                match self.dtype {
                    DType::BF16 => each(out, values.map(|v| bf16::from_f32(v).to_le_bytes())),
                    _ => each(out, values.map(|v| f16::from_f32(v).to_le_bytes())),
                }
            }
        }
        Ok(())
    }
}

/// Copies as much as fits; sizes were checked before.
fn copy(from: &[u8], to: &mut [u8]) {
    let n = from.len().min(to.len());
    to[..n].copy_from_slice(&from[..n]);
}

fn each<const N: usize>(out: &mut [u8], values: impl Iterator<Item = [u8; N]>) {
    out.as_chunks_mut().0.iter_mut().zip(values).for_each(|(to, value)| *to = value);
}

/// Reads a value of a point as a float; 0 if it is not there.
fn value(point: &[u8], offset: usize, dtype: DType) -> f64 {
    let from = point.get(offset..).unwrap_or(&[]);
    macro_rules! read {
        ($type:ty) => {
            from.first_chunk().map(|bytes| f64::from(<$type>::from_le_bytes(*bytes)))
        };
    }
    let value = match dtype {
        DType::I8 => read!(i8),
        DType::U8 => read!(u8),
        DType::I16 => read!(i16),
        DType::U16 => read!(u16),
        DType::I32 => read!(i32),
        DType::U32 => read!(u32),
        DType::F64 => read!(f64),
        _ => read!(f32),
    };
    value.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_points_are_ordered_by_their_names() {
        let (f32, f64, u16, u32) = (DType::F32, DType::F64, DType::U16, DType::U32);
        for (fields, expected) in [
            (&[("x", f32), ("y", f32), ("z", f32)][..], Ok((f32, vec![0, 1, 2]))),
            (&[("ring", u16), ("z", f32), ("intensity", f32), ("y", f32), ("x", f32)], Ok((f32, vec![4, 3, 1, 2, 0]))),
            (&[("x", f32), ("y", f32), ("z", f32), ("timestamp", f64)], Ok((f64, vec![0, 1, 2, 3]))),
            (&[("x", f32), ("y", f32), ("z", f32), ("t", u32)], Ok((f64, vec![0, 1, 2, 3]))),
            (&[("x", f32), ("range", f32)], Err("expected points with a field `y`, found the fields x, range")),
            (&[], Err("expected a value for each point, found none")),
        ] {
            let mut names: Vec<&[u8]> = fields.iter().map(|(name, _)| name.as_bytes()).collect();
            let mut columns: Vec<(usize, DType)> =
                fields.iter().enumerate().map(|(at, (_, dtype))| (at, *dtype)).collect();
            let found = point_columns(&mut names, &mut columns);
            let found = found.map(|dtype| (dtype, columns.iter().map(|(at, _)| *at).collect()));
            assert_eq!(found, expected.map_err(String::from));
        }
    }
}
