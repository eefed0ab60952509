//! Messages: a header and a body.
//!
//! The payload of all stock nodes is [`Tensor`](crate::Tensor), a 16-byte handle whose header is in
//! its slot. A program that embeds the engine may send any small [`Plain`] value instead; its
//! header travels beside it.

use crate::base::policy::Qos;
use crate::host::clock::Time;
use crate::message::origins::{Origin, fresh};
use crate::message::pool::Pool;
use std::time::Duration;

/// The header of a message. 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct Header {
    /// Sequence number: the source's call that created this message, from 0; parts of one message
    /// share it.
    pub seq: u64,
    /// Origin time, as set by the source; the start of every end-to-end latency.
    pub origin: Time,
    /// When it becomes worthless; [`Time::NEVER`] by default.
    pub deadline: Time,
    /// Trace id, shared by everything derived from one message of one source.
    pub trace: u64,
    /// Which part of `parts` this is, from 0.
    pub part: u32,
    /// How many parts the message was split into; 1 if it was not.
    pub parts: u32,
    /// Its priority class.
    pub qos: Qos,
    /// Reserved bits.
    pub flags: u8,
    /// Index of the source in the plan; [`Header::NO_SOURCE`] for a message that a node creates by
    /// itself.
    pub source: u16,
    /// The segment of its source's stream; a new one begins when a file is read again or the source
    /// is rebuilt. A model's state is reset there.
    pub segment: u16,
    pub(crate) reserved: u16,
}

// `Row::set_header` reads it word by word.
const _: () = assert!(size_of::<Header>() == 4 * 8 + 2 * 4 + 2 + 3 * 2 && align_of::<Header>() == 8, "no padding");

impl Header {
    /// The source of a message that a node creates by itself, such as a safe command. Such a
    /// message belongs to no path: it is in no latency, meets no deadline and ends no silence.
    pub const NO_SOURCE: u16 = u16::MAX;

    /// Returns how long ago the message began: the time from its origin to `now`, a time of the
    /// run's clock ([`Emit::now`](crate::node::Emit::now),
    /// [`Building::clock`](crate::node::Building::clock)). It is zero if the origin is later.
    ///
    /// ```
    /// use limen::Time;
    /// use limen::message::Header;
    /// use std::time::Duration;
    /// let header = Header::new(0, Time(1_000));
    /// assert_eq!(header.age(Time(4_000)), Duration::from_micros(3));
    /// assert_eq!(header.age(Time(500)), Duration::ZERO);
    /// ```
    pub fn age(&self, now: Time) -> Duration {
        Duration::from_nanos(now.since(self.origin))
    }

    /// Creates the header of message `seq`, with origin `origin`.
    pub const fn new(seq: u64, origin: Time) -> Self {
        Header {
            seq,
            origin,
            deadline: Time::NEVER,
            trace: seq,
            part: 0,
            parts: 1,
            qos: Qos::Normal,
            flags: 0,
            source: 0,
            segment: 0,
            reserved: 0,
        }
    }
}

/// A message: a body and, through [`Message::header`], its header.
///
/// ```
/// use limen::message::{Header, Plain};
/// use limen::{Message, Time};
/// #[derive(Clone, Debug)]
/// struct Speed(f32);
/// impl Plain for Speed {}
///
/// let message = Message::new(Header::new(0, Time(1_000)), Speed(0.5));
/// assert_eq!(message.header().origin, Time(1_000));
/// assert_eq!(message.share().body.0, 0.5);
/// ```
#[derive(Debug)]
pub struct Message<T: Payload> {
    pub(crate) head: T::Head,
    /// The payload: a tensor, or a plain value.
    pub body: T,
}

impl<T: Payload> Message<T> {
    /// Returns the header.
    #[inline]
    pub fn header(&self) -> &Header {
        T::header(self)
    }

    /// Returns another handle to the message: tensors share their buffer, plain values are cloned.
    #[inline]
    pub fn share(&self) -> Self {
        T::share(self)
    }
}

impl<T: Plain> Message<T> {
    /// Creates a message of a plain value; `header` is usually that of the message it derives from.
    #[inline]
    pub fn new(header: Header, body: T) -> Self {
        Message { head: header, body }
    }
}

/// A type that can be the body of a message: [`Tensor`](crate::Tensor) and, through [`Plain`],
/// small values. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a payload",
    note = "a payload is `limen::Tensor`, or a small type with `impl limen::message::Plain for {Self} {{}}`"
)]
pub trait Payload: SealedPayload {}

impl<T: SealedPayload> Payload for T {}

/// The operations of the engine on a body.
pub trait SealedPayload: Send + Sized + 'static {
    /// Data beside the body: the header, or nothing if the body has it.
    type Head: Send + std::fmt::Debug + 'static;
    fn header(message: &Message<Self>) -> &Header;
    /// Visits the origin of each source upstream.
    #[allow(private_interfaces, reason = "implemented here only")]
    fn each_origin(message: &Message<Self>, see: &mut dyn FnMut(Origin)) {
        let header = Self::header(message);
        see(fresh(header.source, header.origin));
    }
    fn set_part(message: &mut Message<Self>, part: u32, parts: u32);
    fn share(message: &Message<Self>) -> Message<Self>;
    /// Replaces the header, if this is the only handle.
    fn with_header(message: Message<Self>, header: &Header) -> Message<Self>;
    /// Copies the content into a pool's buffer; `None` if there is no room.
    fn copy(message: &Message<Self>, pool: Option<&mut Pool>) -> Option<Message<Self>>;
    /// Interpolates between two messages, on the sphere where `quaternion` says that one begins,
    /// otherwise linearly; `None` if their types do not support it.
    fn interpolate(
        before: &Message<Self>,
        after: &Message<Self>,
        at: Time,
        pool: &mut Pool,
        quaternion: Option<usize>,
    ) -> Option<Message<Self>> {
        let _ = (before, after, at, pool, quaternion);
        None
    }
    /// Whether it is the only handle to a buffer of the pool; always true without buffers.
    fn is_sole(message: &Message<Self>, pool: Option<&Pool>) -> bool;
    /// Bytes of the body, as they count against an edge's cap.
    fn bytes(message: &Message<Self>) -> usize {
        size_of_val(&message.body)
    }
}

/// A small value that is moved by value, for programs that embed the engine. At most 64 bytes,
/// checked at compile time.
///
/// ```
/// #[derive(Clone, Debug)]
/// struct Pose { x: f32, y: f32, heading: f32 }
/// impl limen::message::Plain for Pose {}
/// ```
///
/// A type that is not `Send` cannot be one:
///
/// ```compile_fail,E0277
/// #[derive(Clone, Debug)]
/// struct Pose(std::rc::Rc<f32>);
/// impl limen::message::Plain for Pose {}
/// ```
pub trait Plain: Clone + Send + std::fmt::Debug + 'static {}

impl<T: Plain> SealedPayload for T {
    type Head = Header;
    #[inline]
    fn header(message: &Message<Self>) -> &Header {
        &message.head
    }
    fn set_part(message: &mut Message<Self>, part: u32, parts: u32) {
        (message.head.part, message.head.parts) = (part, parts);
    }
    fn with_header(message: Message<Self>, header: &Header) -> Message<Self> {
        Message { head: *header, ..message }
    }
    fn copy(message: &Message<Self>, _: Option<&mut Pool>) -> Option<Message<Self>> {
        Some(message.share())
    }
    fn is_sole(_: &Message<Self>, _: Option<&Pool>) -> bool {
        true
    }
    #[inline]
    fn share(message: &Message<Self>) -> Message<Self> {
        const { assert!(size_of::<T>() <= 64, "a plain payload must be at most 64 bytes: use a tensor") };
        Message { head: message.head, body: message.body.clone() }
    }
}
