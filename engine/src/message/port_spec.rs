//! What a port declares of its messages: element type, shape, layout, content, labels and memory. A
//! graph is checked by it.

mod parse;

use crate::message::label::Label;
use crate::message::orientation::Orientation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Tensors have at most this many dims.
pub const MAX_RANK: usize = 6;

/// The type of a tensor's elements.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Deserialize,
    JsonSchema,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
#[strum(serialize_all = "lowercase")]
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
    ///
    /// ```
    /// use limen::message::DType;
    /// assert_eq!((DType::F32.size(), DType::F32.name()), (4, "f32"));
    /// ```
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    /// Returns the name as written in YAML: `f32`, `u8`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
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
    /// Height, width, channels. Most cameras and image files use this order.
    Hwc,
    /// Channels, height, width. Most models use this order.
    Chw,
}

/// The meaning of a tensor's elements, for sinks and hints: the same `u8[≤n]` may be a line, a
/// packet or a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Content {
    /// Plain numbers, neither raw bytes nor text.
    #[default]
    Numbers,
    /// Raw bytes, such as a packet or part of a file.
    Bytes,
    /// UTF-8 text, such as a line or a name.
    Text,
}

/// The kind of memory that holds a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Memory {
    /// Ordinary memory.
    #[default]
    Host,
    /// The memory of device `n`.
    Device(u8),
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Memory::Host => f.write_str("host memory"),
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

    /// Sets names and units of its numbers: one label for a scalar, otherwise one for each place of
    /// the last dim, of which there may be [`Label::MAX_COUNT`].
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

    /// Removes the units, for a node whose results have others; the names stay. The numbers of a
    /// quaternion are then an orientation in an unknown layout, as after
    /// [`PortSpec::with_orientation`].
    #[must_use]
    pub fn without_units(mut self) -> Self {
        self.orientation = self.orientation.anywhere();
        self.labels = self.labels.into_iter().map(Label::without_unit).collect();
        self
    }

    /// Returns names and units of its numbers: one for a scalar, otherwise one for each place of
    /// the last dim. Empty if none are known, or if they are not as many, because the shape was
    /// changed since.
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

    /// Returns the number of elements of the largest message; `None` if a dim is not bound or the
    /// product overflows.
    pub fn max_elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, d| n.checked_mul(d.max()?))
    }

    /// Returns the bytes of the largest message; `None` if a dim is not bound or the product
    /// overflows.
    ///
    /// ```
    /// use limen::message::{DType, Dim, PortSpec};
    /// assert_eq!(PortSpec::image(480, 640, 3).max_bytes(), Some(921_600));
    /// let unbounded = PortSpec::new(DType::F32, [Dim::Symbol("n".into())]);
    /// assert_eq!(unbounded.max_bytes(), None);
    /// ```
    pub fn max_bytes(&self) -> Option<usize> {
        self.max_elements()?.checked_mul(self.dtype.size())
    }

    /// Returns the shape, if every dim is fixed.
    pub fn fixed_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(|d| if let Dim::Fixed(n) = d { Some(*n) } else { None }).collect()
    }

    /// Checks whether messages of `given` may enter a port with this spec; `Err` describes the
    /// mismatch.
    pub(crate) fn accepts(&self, given: &PortSpec) -> Result<(), String> {
        if self.dtype != given.dtype {
            return Err(format!("expected {} elements, found {}", self.dtype, given.dtype));
        }
        if let (Some(want), Some(have)) = (self.layout, given.layout)
            && want != have
        {
            return Err(format!("expected the layout {want:?}, found {have:?}").to_lowercase());
        }
        if self.memory != given.memory {
            return Err(format!("expected {}, found {}", self.memory, given.memory));
        }
        if self.shape.len() != given.shape.len() {
            return Err(format!("expected rank {}, found rank {}", self.shape.len(), given.shape.len()));
        }
        for (i, (want, have)) in self.shape.iter().zip(&given.shape).enumerate() {
            let fits = match (want, have) {
                (Dim::Fixed(w), Dim::Fixed(h)) => w == h,
                (Dim::AtMost(w), Dim::Fixed(h) | Dim::AtMost(h)) => h <= w,
                (Dim::Symbol(_), _) => true,
                _ => false,
            };
            if !fits {
                return Err(format!("dim {i} must be {want}, got {have}"));
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
