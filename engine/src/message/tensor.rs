//! Tensors: the payload of all stock nodes. A [`PortSpec`] declares the messages of a port; a
//! message holds a [`Tensor`], a 16-byte handle to a row of a pooled slot.

use crate::host::clock::Time;
use crate::message::device::DeviceTensor;
use crate::message::orientation::slerp;
use crate::message::origins::{Origin, Origins, fresh};
use crate::message::payload::{Header, Message, SealedPayload};
use crate::message::pool::{Inner, MAX_DYNAMIC, Pool, PoolRow};
use crate::message::port_spec::{DType, MAX_RANK, PortSpec};
use std::fmt;
use std::ptr::NonNull;

/// A Rust type that is a tensor's element. Sealed: there is one for each [`DType`].
/// `bytemuck::Pod`, because a buffer of bytes is read as a slice of it.
pub trait Element: SealedElement + bytemuck::Pod + PartialOrd + Send + Sync + 'static {
    /// The element type of tensors of this type.
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
    #[error("expected a tensor of {asked}, found {actual}")]
    DType {
        /// The tensor's element type.
        actual: DType,
        /// The requested element type.
        asked: DType,
    },
    /// A length above the bound of its dim.
    #[error("dim {dim} must be at most the planned {bound}, got {length}")]
    TooLong {
        /// Index of the dim.
        dim: usize,
        /// The requested length.
        length: usize,
        /// The planned bound.
        bound: usize,
    },
    /// A length set on a dim that is fixed.
    #[error("the length of dim {dim} must stay {length}")]
    FixedDim {
        /// Index of the dim.
        dim: usize,
        /// The fixed length of the dim.
        length: usize,
    },
    /// Its elements are in the memory of a device, where the host cannot read or write them.
    #[error("the tensor must be in host memory, got device memory: add a `to_host` node")]
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

/// A handle to an immutable tensor in a pooled slot; 16 bytes. Sharing and dropping are cheap and
/// never allocate. The elements are dense and row-major.
///
/// ```
/// use limen::TensorMut;
/// use limen::message::{DType, PortSpec, TensorError};
/// let tensor = TensorMut::alone(&PortSpec::fixed(DType::U8, [2, 3])).unwrap().freeze();
/// assert_eq!(tensor.dtype(), DType::U8);
/// assert_eq!(tensor.shape()[..], [2, 3]);
/// assert_eq!(tensor.as_slice::<u8>().unwrap(), [0; 6]);
/// assert!(matches!(tensor.as_slice::<f32>(), Err(TensorError::DType { .. })));
/// ```
///
/// Tensors that outlive their graph keep their pool's memory alive until the last of them is
/// dropped.
pub struct Tensor {
    /// Two pointers and nothing else, so that the compiler passes the handle in two registers.
    pub(crate) row: NonNull<PoolRow>,
    pub(crate) data: NonNull<u8>,
}

// SAFETY: a tensor gives shared access to plain bytes that no thread writes while a reference is
// counted (`pool.rs`), and the count is atomic, so a tensor may be moved to and read from any
// thread.
unsafe impl Send for Tensor {}
// SAFETY: as for `Send`: all access through `&Tensor` is reading.
unsafe impl Sync for Tensor {}

impl Tensor {
    #[inline]
    fn inner(&self) -> &Inner {
        // SAFETY: `Inner` is freed only when no slot of it is referenced (`pool::Guard`); this
        // handle is a reference.
        unsafe { PoolRow::pool(self.row) }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.inner().dtype
    }

    /// Returns the shape of this message.
    pub fn shape(&self) -> Shape {
        // SAFETY: this handle is a counted reference; lengths are written only while it is uniquely
        // held.
        unsafe { self.inner().shape(self.row) }
    }

    /// Returns the elements, dense and row-major.
    ///
    /// # Errors
    /// [`TensorError::DType`] if the tensor has another element type, [`TensorError::OnDevice`] if
    /// its elements are not in host memory.
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
        // SAFETY: this handle is a counted reference, and a slot is written only while it has a
        // single `TensorMut`.
        unsafe { PoolRow::bytes(self.row, self.data) }
    }

    /// Returns another handle to the same tensor.
    ///
    /// # Panics
    /// Aborts, as `Arc::clone` does, at 2³¹ handles to its buffer, which is possible only if
    /// handles are leaked.
    #[inline]
    pub fn share(&self) -> Tensor {
        // SAFETY: this handle is a counted reference.
        unsafe { PoolRow::share(self.row) };
        Tensor { row: self.row, data: self.data }
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: as for `bytes`: rows' headers are written only while uniquely held.
        unsafe { PoolRow::header(self.row) }
    }

    /// Visits the origin of each source upstream of this message.
    pub(crate) fn each_origin(&self, see: &mut dyn FnMut(Origin)) {
        let (inner, header) = (self.inner(), self.header());
        let mut has_own = false;
        if inner.has_origins() {
            // SAFETY: this handle is a counted reference; origins are written only while the slot
            // is uniquely held.
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
    /// ```
    /// use limen::TensorMut;
    /// use limen::message::{DType, PortSpec};
    /// let tensor = TensorMut::alone(&PortSpec::fixed(DType::U8, [4])).unwrap().freeze();
    /// let other = tensor.share();
    /// let tensor = tensor.into_mut().unwrap_err();
    /// drop(other);
    /// assert!(tensor.into_mut().is_ok());
    /// ```
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
        unsafe { PoolRow::is_unique(self.row) }
    }
}

impl Drop for Tensor {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle is a reference to its slot, and this is its last use.
        unsafe { PoolRow::release(self.row) };
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
            // SAFETY: `message` is borrowed mutably and its slot has no other handle, so nothing
            // else reads the row.
            let header = unsafe { PoolRow::header_mut(message.body.row) };
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

/// Moves values towards later ones by a part of the way: the quaternion at `quaternion` on the
/// sphere, other numbers linearly.
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

/// The only handle to a slot, which may therefore be written. [`TensorMut::freeze`] or sending
/// turns it into a [`Tensor`].
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
    /// [`TensorError::DType`] if the tensor has another element type, [`TensorError::OnDevice`] if
    /// its elements are not in host memory.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        self.0.as_slice()
    }

    /// Returns the elements for writing.
    ///
    /// # Errors
    /// [`TensorError::DType`] if the tensor has another element type, [`TensorError::OnDevice`] if
    /// its elements are not in host memory.
    #[inline]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        check_dtype::<T>(self.0.inner())?;
        Ok(bytemuck::cast_slice_mut(self.bytes_mut()))
    }

    /// Returns the bytes of the elements for writing.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: this is the only handle to the slot and it is borrowed mutably.
        unsafe { PoolRow::bytes_mut(self.0.row, self.0.data) }
    }

    /// Sets the run-time length of a dim declared with a bound
    /// ([`Dim::AtMost`](crate::message::Dim::AtMost)). Elements are dense in the new shape. Set
    /// lengths before writing.
    ///
    /// ```
    /// use limen::TensorMut;
    /// use limen::message::{DType, Dim, PortSpec};
    /// let spec = PortSpec::new(DType::F32, [Dim::AtMost(300), Dim::Fixed(6)]);
    /// let mut boxes = TensorMut::alone(&spec).unwrap();
    /// boxes.set_len(0, 2).unwrap();
    /// assert_eq!(boxes.as_slice::<f32>().unwrap().len(), 12);
    /// assert!(boxes.set_len(0, 301).is_err());
    /// ```
    ///
    /// # Errors
    /// [`TensorError::TooLong`] above the bound, [`TensorError::FixedDim`] if the dim has no
    /// run-time length.
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

    /// Replaces the header; call it before the message is shared.
    #[inline(always)]
    pub(crate) fn set_header(&mut self, header: &Header) {
        // SAFETY: this is the only handle to the slot.
        unsafe { PoolRow::set_header(self.0.row, header) }
    }

    /// Returns the header of the message for writing.
    pub fn header_mut(&mut self) -> &mut Header {
        // SAFETY: this is the only handle to the slot and it is borrowed mutably.
        unsafe { PoolRow::header_mut(self.0.row) }
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
