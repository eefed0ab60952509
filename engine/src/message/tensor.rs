//! Tensors: the payload of all stock nodes. A [`PortSpec`] declares the messages of a port; a message holds a
//! [`Tensor`], a 16-byte handle to a row of a pooled slot.

mod parse;

use crate::host::clock::Time;
use crate::message::device::DeviceTensor;
use crate::message::label::Label;
use crate::message::orientation::{Orientation, slerp};
use crate::message::origins::{Origin, Origins, fresh};
use crate::message::payload::{Header, Message, SealedPayload};
use crate::message::pool::{Inner, MAX_DYNAMIC, Pool, Row};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ptr::NonNull;

/// Tensors have at most this many dims.
pub const MAX_RANK: usize = 6;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DType {
    F32,
    F16,
    BF16,
    F64,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
}

impl DType {
    /// Returns the bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    /// Returns the name as written in YAML: `f32`, `u8`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F64 => "f64",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::U64 => "u64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that is a tensor's element. Sealed: there is one for each [`DType`]. `bytemuck::Pod`, because a
/// buffer of bytes is read as a slice of it.
pub trait Element: SealedElement + bytemuck::Pod + PartialOrd + Send + Sync + 'static {
    /// Its dtype.
    const DTYPE: DType;
}

/// Only this file implements it.
pub trait SealedElement {}

macro_rules! elements {
    ($($t:ty => $d:ident),* $(,)?) => { $(
        impl SealedElement for $t {}
        impl Element for $t { const DTYPE: DType = DType::$d; }
    )* };
}
elements! {
    f32 => F32, half::f16 => F16, half::bf16 => BF16, f64 => F64, i8 => I8, u8 => U8, i16 => I16, u16 => U16,
    i32 => I32, u32 => U32, i64 => I64, u64 => U64,
}

/// One dim of a port's shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Always this long.
    Fixed(usize),
    /// Any length, the same wherever the name occurs in one node's ports; bound while planning.
    Symbol(String),
    /// At most this long; each message has its own length.
    AtMost(usize),
    /// No known bound. A plan with such a dim is refused, naming the key that bounds it.
    Unbounded(&'static str),
}

impl Dim {
    /// Returns the greatest length, if known.
    pub fn max(&self) -> Option<usize> {
        match self {
            Dim::Fixed(n) | Dim::AtMost(n) => Some(*n),
            Dim::Symbol(_) | Dim::Unbounded(_) => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(n) => write!(f, "{n}"),
            Dim::Symbol(s) => f.write_str(s),
            Dim::AtMost(n) => write!(f, "≤{n}"),
            Dim::Unbounded(_) => f.write_str("?"),
        }
    }
}

/// The order of an image's dims, for ports that depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Height, width, channels: the order of cameras and files.
    Hwc,
    /// Channels, height, width: the order of most models.
    Chw,
}

/// The meaning of a tensor's elements, for sinks and hints: the same `u8[≤n]` may be a line, a packet or a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Content {
    /// Independent numbers.
    #[default]
    Numbers,
    /// The bytes of something else: a packet, a part of a file.
    Bytes,
    /// The bytes of text in UTF-8: a line, a name.
    Text,
}

/// The kind of memory that holds a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Memory {
    /// Ordinary memory.
    #[default]
    Host,
    /// Page-locked memory that a device can read and write.
    Pinned,
    /// The memory of device `n`.
    Device(u8),
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Memory::Host => f.write_str("host memory"),
            Memory::Pinned => f.write_str("pinned memory"),
            Memory::Device(n) => write!(f, "the memory of device {n}"),
        }
    }
}

/// The messages of a port: element type, shape of one message, layout, content, labels and memory.
///
/// ```
/// use limen::message::{DType, Dim, PortSpec};
/// let boxes = PortSpec::new(DType::F32, [Dim::AtMost(300), Dim::Fixed(6)]);
/// assert_eq!(boxes.to_string(), "f32[≤300,6]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PortSpec {
    /// Element type.
    pub dtype: DType,
    /// Shape of one message; empty for a scalar.
    pub shape: Vec<Dim>,
    /// Order of an image's dims, if it matters.
    pub layout: Option<Layout>,
    /// Meaning of the elements. Any content may enter any port whose type and shape fit.
    pub content: Content,
    /// The kind of memory that holds the buffer.
    pub memory: Memory,
    /// One for a scalar, otherwise one for each place of the last dim.
    pub(crate) labels: Vec<Label>,
    /// Which elements are an orientation or an angle.
    pub(crate) orientation: Orientation,
}

impl PortSpec {
    /// Creates a spec in host memory.
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = Dim>) -> Self {
        let shape = shape.into_iter().collect();
        PortSpec {
            dtype,
            shape,
            layout: None,
            content: Content::default(),
            memory: Memory::Host,
            labels: Vec::new(),
            orientation: Orientation::None,
        }
    }

    /// Creates a spec with fixed dims in host memory.
    pub fn fixed(dtype: DType, shape: impl IntoIterator<Item = usize>) -> Self {
        PortSpec::new(dtype, shape.into_iter().map(Dim::Fixed))
    }

    /// Creates the spec of an image of `height` × `width` with `channels`, as cameras deliver it.
    pub fn image(height: usize, width: usize, channels: usize) -> Self {
        PortSpec::fixed(DType::U8, [height, width, channels]).with_layout(Layout::Hwc)
    }

    /// Sets the element type.
    #[must_use]
    pub fn with_dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Sets the layout.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// Sets the content.
    #[must_use]
    pub fn with_content(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    /// Sets names and units of its numbers: one label for a scalar, otherwise one for each place of the last dim, of which there may be
    /// [`Label::MAX_COUNT`].
    ///
    /// ```
    /// use limen::message::{DType, Label, PortSpec};
    /// let axes = ["ax", "ay", "az"].map(|name| Label::new(name, "m/s²").unwrap());
    /// let acceleration = PortSpec::fixed(DType::F32, [3]).with_labels(axes);
    /// assert_eq!(acceleration.labels()[1].name(), "ay");
    /// ```
    #[must_use]
    pub fn with_labels(mut self, labels: impl IntoIterator<Item = Label>) -> Self {
        self.labels = labels.into_iter().take(Label::MAX_COUNT + 1).collect();
        self
    }

    /// Removes the units, for a node whose results have others; the names stay. The numbers of a quaternion are then an orientation in an
    /// unknown layout, as after [`PortSpec::with_orientation`].
    #[must_use]
    pub fn without_units(mut self) -> Self {
        self.orientation = self.orientation.anywhere();
        self.labels = self.labels.into_iter().map(Label::without_unit).collect();
        self
    }

    /// Returns names and units of its numbers: one for a scalar, otherwise one for each place of the last dim. Empty if none are known, or
    /// if they are not as many, because the shape was changed since.
    pub fn labels(&self) -> &[Label] {
        let places = match self.shape.last() {
            None => Some(1),
            Some(Dim::Fixed(length)) => Some(*length),
            Some(_) => None,
        };
        if places.is_some_and(|places| places == self.labels.len() && places <= Label::MAX_COUNT) {
            &self.labels
        } else {
            &[]
        }
    }

    /// Returns whether messages are text, to be shown as such.
    pub fn is_text(&self) -> bool {
        self.content == Content::Text && self.dtype == DType::U8 && self.shape.len() == 1
    }

    /// Returns the number of elements of the largest message; `None` if a dim is not bound or the product overflows.
    pub fn max_elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, d| n.checked_mul(d.max()?))
    }

    /// Returns the bytes of the largest message; `None` if a dim is not bound or the product overflows.
    pub fn max_bytes(&self) -> Option<usize> {
        self.max_elements()?.checked_mul(self.dtype.size())
    }

    /// Returns the shape, if every dim is fixed.
    pub fn fixed_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(|d| if let Dim::Fixed(n) = d { Some(*n) } else { None }).collect()
    }

    /// Checks whether messages of `given` may enter a port with this spec; `Err` describes the mismatch.
    pub(crate) fn accepts(&self, given: &PortSpec) -> Result<(), String> {
        if self.dtype != given.dtype {
            return Err(format!("elements are {}, not {}", given.dtype, self.dtype));
        }
        if let (Some(want), Some(have)) = (self.layout, given.layout)
            && want != have
        {
            return Err(format!("the layout is {have:?}, not {want:?}").to_lowercase());
        }
        if self.memory != given.memory {
            return Err(format!("the buffer is in {:?} memory, not {:?}", given.memory, self.memory).to_lowercase());
        }
        if self.shape.len() != given.shape.len() {
            return Err(format!("it has {} dims, not {}", given.shape.len(), self.shape.len()));
        }
        for (i, (want, have)) in self.shape.iter().zip(&given.shape).enumerate() {
            let fits = match (want, have) {
                (Dim::Fixed(w), Dim::Fixed(h)) => w == h,
                (Dim::AtMost(w), Dim::Fixed(h) | Dim::AtMost(h)) => h <= w,
                (Dim::Symbol(_), _) => true,
                _ => false,
            };
            if !fits {
                return Err(format!("dim {i} is {have}, not {want}"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, dim) in self.shape.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}

/// The shape of one message: up to [`MAX_RANK`] lengths, by value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: usize,
}

impl Shape {
    pub(crate) fn from_iter(dims: impl Iterator<Item = usize>) -> Self {
        let mut shape = Shape { dims: [1; MAX_RANK], rank: 0 };
        for d in dims.take(MAX_RANK) {
            shape.dims[shape.rank] = d;
            shape.rank += 1;
        }
        shape
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.iter().product()
    }
}

impl std::ops::Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.dims[..self.rank]
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The misuse of a tensor, or an empty pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// Read as another element type.
    #[error("the tensor holds {actual}, not {asked}")]
    DType {
        /// The tensor's element type.
        actual: DType,
        /// The requested element type.
        asked: DType,
    },
    /// A length above the bound of its dim.
    #[error("{length} is more than the {bound} planned for dim {dim}")]
    TooLong {
        /// The dim.
        dim: usize,
        /// The requested length.
        length: usize,
        /// The planned bound.
        bound: usize,
    },
    /// A length set on a dim that is fixed.
    #[error("dim {dim} is fixed at {length}")]
    FixedDim {
        /// The dim.
        dim: usize,
        /// Its length.
        length: usize,
    },
    /// Its elements are in the memory of a device, where the host cannot read or write them.
    #[error("the tensor is in the memory of a device; a `to_host` node copies it to host memory")]
    OnDevice,
    /// Every slot of the pool is in use.
    #[error("all {slots} slots of pool `{pool}` are in use")]
    PoolEmpty {
        /// The pool, named as its port.
        pool: String,
        /// How many slots it has.
        slots: usize,
    },
}

/// A handle to an immutable tensor in a pooled slot; 16 bytes. Sharing and dropping are cheap and never allocate.
///
/// Tensors that outlive their graph keep their pool's memory alive until the last of them is dropped.
pub struct Tensor {
    /// Two pointers and nothing else, so that the compiler passes the handle in two registers.
    pub(crate) row: NonNull<Row>,
    pub(crate) data: NonNull<u8>,
}

// SAFETY: a tensor gives shared access to plain bytes that no thread writes while a reference is counted (`pool.rs`),
// and the count is atomic, so a tensor may be moved to and read from any thread.
unsafe impl Send for Tensor {}
// SAFETY: as for `Send`: all access through `&Tensor` is reading.
unsafe impl Sync for Tensor {}

impl Tensor {
    #[inline]
    fn inner(&self) -> &Inner {
        // SAFETY: `Inner` is freed only when no slot of it is referenced (`pool::Guard`); this handle is a
        // reference.
        unsafe { Row::pool(self.row) }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.inner().dtype
    }

    /// Returns the shape of this message.
    pub fn shape(&self) -> Shape {
        // SAFETY: this handle is a counted reference; lengths are written only while it is uniquely held.
        unsafe { self.inner().shape(self.row) }
    }

    /// Returns the elements, dense and row-major.
    ///
    /// # Errors
    /// [`TensorError::DType`] if the tensor has another element type, [`TensorError::OnDevice`] if its elements are not in host memory.
    #[inline]
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        check_dtype::<T>(self.inner())?;
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// Returns where the elements lie on a device; `None` if they are in host memory.
    pub fn on_device(&self) -> Option<DeviceTensor<'_>> {
        // SAFETY: this handle is a counted reference.
        unsafe { self.inner().on_device(self.row) }
    }

    /// Returns the bytes of the elements; none if they are on a device.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: this handle is a counted reference, and a slot is written only while it has a single `TensorMut`.
        unsafe { Row::bytes(self.row, self.data) }
    }

    /// Returns another handle to the same tensor.
    ///
    /// # Panics
    /// Aborts, as `Arc::clone` does, at 2³¹ handles to its buffer, which is possible only if handles are leaked.
    #[inline]
    pub fn share(&self) -> Tensor {
        // SAFETY: this handle is a counted reference.
        unsafe { Row::share(self.row) };
        Tensor { row: self.row, data: self.data }
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: as for `bytes`: rows' headers are written only while uniquely held.
        unsafe { Row::header(self.row) }
    }

    /// Visits the origin of each source upstream of this message.
    pub(crate) fn each_origin(&self, see: &mut dyn FnMut(Origin)) {
        let (inner, header) = (self.inner(), self.header());
        let mut has_own = false;
        if inner.has_origins() {
            // SAFETY: this handle is a counted reference; origins are written only while the slot is uniquely held.
            unsafe {
                inner.each_origin(self.row, &mut |origin| {
                    has_own |= origin.source == header.source;
                    see(origin);
                });
            }
        }
        if !has_own {
            see(fresh(header.source, header.origin));
        }
    }

    /// Copies the content into a slot of a pool made for it; `None` if the pool has no free slot.
    pub(crate) fn copy_to(&self, pool: &mut Pool) -> Option<TensorMut> {
        let mut copy = pool.take_any()?;
        *copy.header_mut() = *self.header();
        if copy.0.inner().has_origins() {
            let mut origins = Origins::default();
            self.each_origin(&mut |origin| origins.add(origin));
            // SAFETY: `copy` is the only handle to its slot.
            unsafe { copy.0.inner().set_origins(copy.0.row, &origins) };
        }
        for (dim, length) in self.shape().iter().enumerate() {
            copy.set_len(dim, *length).ok()?;
        }
        // The elements of a tensor on a device are not copied here.
        if copy.bytes_mut().len() != self.bytes().len() || self.inner().is_on_device() {
            return None;
        }
        copy.bytes_mut().copy_from_slice(self.bytes());
        Some(copy)
    }

    /// Converts it to a writable tensor, if this is the only handle to the slot.
    ///
    /// # Errors
    /// The tensor itself, if the slot is shared.
    pub fn into_mut(self) -> Result<TensorMut, Tensor> {
        if self.is_unique() { Ok(TensorMut(self)) } else { Err(self) }
    }

    /// Whether this is the only handle to the slot.
    #[inline]
    fn is_unique(&self) -> bool {
        // SAFETY: this handle is a counted reference.
        unsafe { Row::is_unique(self.row) }
    }
}

impl Drop for Tensor {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle is a reference to its slot, and this is its last use.
        unsafe { Row::release(self.row) };
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype(), self.shape())
    }
}

impl SealedPayload for Tensor {
    type Head = ();
    #[inline]
    fn header(message: &Message<Self>) -> &Header {
        message.body.header()
    }
    #[allow(private_interfaces, reason = "implemented in this crate only")]
    fn each_origin(message: &Message<Self>, see: &mut dyn FnMut(Origin)) {
        message.body.each_origin(see);
    }
    fn set_part(message: &mut Message<Self>, part: u32, parts: u32) {
        if message.body.is_unique() {
            // SAFETY: `message` is borrowed mutably and its slot has no other handle, so nothing else reads the row.
            let header = unsafe { Row::header_mut(message.body.row) };
            (header.part, header.parts) = (part, parts);
        }
    }
    #[inline]
    fn share(message: &Message<Self>) -> Message<Self> {
        Message { head: (), body: message.body.share() }
    }
    fn with_header(message: Message<Self>, header: &Header) -> Message<Self> {
        match message.body.into_mut() {
            Ok(mut tensor) => {
                *tensor.header_mut() = *header;
                tensor.into()
            }
            Err(shared) => shared.into(),
        }
    }
    fn copy(message: &Message<Self>, pool: Option<&mut Pool>) -> Option<Message<Self>> {
        Some(message.body.copy_to(pool?)?.into())
    }
    fn interpolate(
        before: &Message<Self>,
        after: &Message<Self>,
        at: Time,
        pool: &mut Pool,
        quaternion: Option<usize>,
    ) -> Option<Message<Self>> {
        let (from, to) = (before.header().origin, after.header().origin);
        if before.body.dtype() != after.body.dtype() || before.body.shape() != after.body.shape() {
            return None;
        }
        let mut made = before.body.copy_to(pool)?;
        let part = at.since(from) as f64 / to.since(from).max(1) as f64;
        made.header_mut().origin = at;
        match made.dtype() {
            DType::F32 => blend::<f32>(&mut made, &after.body, part, quaternion, |value| value as f32)?,
            DType::F64 => blend::<f64>(&mut made, &after.body, part, quaternion, |value| value)?,
            _ => return None,
        }
        Some(made.into())
    }
    fn is_sole(message: &Message<Self>, pool: Option<&Pool>) -> bool {
        message.body.is_unique() && pool.is_some_and(|pool| pool.is_home_of(message.body.inner()))
    }
    fn bytes(message: &Message<Self>) -> usize {
        message.body.shape().elements() * message.body.dtype().size()
    }
}

/// Moves values towards later ones by a part of the way: the quaternion at `quaternion` on the sphere, other numbers linearly.
fn blend<T: Element + Into<f64>>(
    values: &mut TensorMut,
    after: &Tensor,
    part: f64,
    quaternion: Option<usize>,
    narrow: impl Fn(f64) -> T,
) -> Option<()> {
    let (values, after) = (values.as_mut_slice::<T>().ok()?, after.as_slice::<T>().ok()?);
    let four = |values: &[T], at| Some(values.get(at..)?.first_chunk::<4>()?.map(Into::into));
    let turned = match quaternion {
        Some(at) => Some((at, slerp(four(values, at)?, four(after, at)?, part))),
        None => None,
    };
    for (value, after) in values.iter_mut().zip(after) {
        let (from, to): (f64, f64) = ((*value).into(), (*after).into());
        *value = narrow(from + part * (to - from));
    }
    if let Some((at, turned)) = turned {
        values[at..].iter_mut().zip(turned).for_each(|(value, number)| *value = narrow(number));
    }
    Some(())
}

/// The only handle to a slot, which may therefore be written. [`TensorMut::freeze`] or sending turns it into a
/// [`Tensor`].
pub struct TensorMut(pub(crate) Tensor);

impl TensorMut {
    /// Allocates a zeroed tensor that belongs to no graph, for tests of a node.
    ///
    /// ```
    /// use limen::TensorMut;
    /// use limen::message::{DType, PortSpec};
    /// let mut pixels = TensorMut::alone(&PortSpec::fixed(DType::F32, [2, 3])).unwrap();
    /// pixels.as_mut_slice::<f32>().unwrap()[5] = 1.5;
    /// assert_eq!(pixels.freeze().as_slice::<f32>().unwrap(), [0.0, 0.0, 0.0, 0.0, 0.0, 1.5]);
    /// ```
    ///
    /// # Errors
    /// As text: a dim has no bound, the size overflows, or the memory cannot be allocated.
    pub fn alone(spec: &PortSpec) -> Result<Self, String> {
        Pool::new("alone", spec, 1, 1)?.take().map_err(|error| error.to_string())
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype()
    }

    /// Returns the shape of this message.
    pub fn shape(&self) -> Shape {
        self.0.shape()
    }

    /// Returns the elements, dense and row-major.
    ///
    /// # Errors
    /// As [`Tensor::as_slice`].
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        self.0.as_slice()
    }

    /// Returns the elements for writing.
    ///
    /// # Errors
    /// As [`Tensor::as_slice`].
    #[inline]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        check_dtype::<T>(self.0.inner())?;
        Ok(bytemuck::cast_slice_mut(self.bytes_mut()))
    }

    /// Returns the bytes of the elements for writing.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: this is the only handle to the slot and it is borrowed mutably.
        unsafe { Row::bytes_mut(self.0.row, self.0.data) }
    }

    /// Sets the run-time length of a dim declared with a bound. Elements are dense in the new shape; set lengths before
    /// writing.
    ///
    /// # Errors
    /// [`TensorError::TooLong`] above the bound, [`TensorError::FixedDim`] if the dim has no run-time length.
    pub fn set_len(&mut self, dim: usize, length: usize) -> Result<(), TensorError> {
        let inner = self.0.inner();
        let bound = inner.dims.get(dim).copied().unwrap_or(0);
        let Some(index) = inner.dynamic.iter().position(|d| *d == dim) else {
            return if length == bound { Ok(()) } else { Err(TensorError::FixedDim { dim, length: bound }) };
        };
        if length > bound {
            return Err(TensorError::TooLong { dim, length, bound });
        }
        // SAFETY: this is the only handle to the slot and it is borrowed mutably.
        unsafe { inner.set_len(self.0.row, index, length as u32) };
        Ok(())
    }

    /// Returns the header of the message.
    pub fn header(&self) -> &Header {
        self.0.header()
    }

    /// Sets the header.
    #[inline(always)]
    pub(crate) fn set_header(&mut self, header: &Header) {
        // SAFETY: this is the only handle to the slot.
        unsafe { Row::set_header(self.0.row, header) }
    }

    /// Returns the header of the message for writing.
    pub fn header_mut(&mut self) -> &mut Header {
        // SAFETY: this is the only handle to the slot and it is borrowed mutably.
        unsafe { Row::header_mut(self.0.row) }
    }

    /// Turns it into a read-only tensor.
    #[inline]
    pub fn freeze(self) -> Tensor {
        self.0
    }
}

impl fmt::Debug for TensorMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Tensor> for Message<Tensor> {
    #[inline]
    fn from(body: Tensor) -> Self {
        Message { head: (), body }
    }
}

impl From<TensorMut> for Message<Tensor> {
    #[inline]
    fn from(tensor: TensorMut) -> Self {
        Message { head: (), body: tensor.0 }
    }
}

#[inline]
fn check_dtype<T: Element>(inner: &Inner) -> Result<(), TensorError> {
    if Some(T::DTYPE) == inner.host_dtype { Ok(()) } else { Err(misuse(inner, T::DTYPE)) }
}

/// Why a tensor cannot be read as elements of a type.
#[cold]
fn misuse(inner: &Inner, asked: DType) -> TensorError {
    if inner.is_on_device() { TensorError::OnDevice } else { TensorError::DType { actual: inner.dtype, asked } }
}

const _: () = assert!(size_of::<Tensor>() == 16 && size_of::<Header>() == 48 && MAX_DYNAMIC <= MAX_RANK);
