//! The messages of a topic as tensors.

use super::decoded::{Decoded, Elements, MAX_COLUMNS, point_columns};
use super::proto::{self, ProtoValue};
use super::reader::Schema;
use super::schema::mismatch;
use super::{CONTENT, DTYPE, NAMES, ORIENTATION, SHAPE, UNITS, ros};
use limen::message::{Content, DType, Dim, Label, Layout, MAX_RANK, PortSpec};
use std::collections::BTreeMap;

/// How the messages of a topic are read.
#[derive(Debug, Clone, PartialEq)]
enum TopicForm {
    /// A message of `foxglove.*`.
    Foxglove(Foxglove),
    /// A message of `limen.*`; with the recorded type of the elements.
    Own(Option<DType>),
    /// A message of ROS 2, by its type; with the recorded type of the elements.
    Ros(String, Option<DType>),
    /// As it is.
    Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Foxglove {
    RawImage,
    CompressedImage,
    PointCloud,
    ImageAnnotations,
    PoseInFrame,
    LocationFix,
}

/// A topic of a recording.
#[derive(Debug, Clone)]
pub(crate) struct Topic {
    pub(crate) name: String,
    /// The name of its schema, or the encoding of its messages.
    pub(crate) schema: String,
    form: TopicForm,
    content: Content,
    /// What a recording of limen says about its tensors.
    recorded: Option<PortSpec>,
    /// How its schema differs from what is read of messages of that name.
    mismatch: Option<String>,
}

/// All element types.
pub(crate) const ALL: [DType; 12] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
];

/// Returns the element type of a name.
fn dtype(name: &str) -> Option<DType> {
    ALL.into_iter().find(|dtype| dtype.name() == name)
}

/// Reads dims such as `2,≤100,6`.
fn dims(written: &str) -> Option<Vec<Dim>> {
    if written.is_empty() {
        return Some(Vec::new());
    }
    let dims: Option<Vec<Dim>> = written
        .split(',')
        .map(|dim| match dim.strip_prefix('≤') {
            Some(most) => most.parse().ok().map(Dim::AtMost),
            None => dim.parse().ok().map(Dim::Fixed),
        })
        .collect();
    dims.filter(|dims| dims.len() <= MAX_RANK && dims.iter().all(|dim| dim.max() != Some(0)))
}

/// Reads names and units of numbers; those that are none are left out.
fn labels(metadata: &BTreeMap<String, String>) -> Vec<Label> {
    let parts = |key| metadata.get(key).into_iter().flat_map(|parts| parts.split(',')).take(Label::MAX_COUNT + 1);
    let (names, units): (Vec<&str>, Vec<&str>) = (parts(NAMES).collect(), parts(UNITS).collect());
    (0..names.len().max(units.len()))
        .map(|at| Label::of(names.get(at).unwrap_or(&""), units.get(at).unwrap_or(&"")))
        .collect()
}

impl Topic {
    /// Describes a topic by its channel and its schema.
    pub(crate) fn new(
        name: &str,
        schema: Option<&Schema>,
        encoding: &str,
        metadata: &BTreeMap<String, String>,
    ) -> Topic {
        let definition = schema;
        let schema = schema.map_or("", |schema| &schema.name);
        let known = metadata.get(DTYPE).and_then(|name| dtype(name));
        let form = match encoding {
            "protobuf" => match schema {
                "foxglove.RawImage" => TopicForm::Foxglove(Foxglove::RawImage),
                "foxglove.CompressedImage" => TopicForm::Foxglove(Foxglove::CompressedImage),
                "foxglove.PointCloud" => TopicForm::Foxglove(Foxglove::PointCloud),
                // Boxes of other programs are only lines and texts.
                "foxglove.ImageAnnotations" if known.is_some() => TopicForm::Foxglove(Foxglove::ImageAnnotations),
                "foxglove.PoseInFrame" => TopicForm::Foxglove(Foxglove::PoseInFrame),
                "foxglove.LocationFix" => TopicForm::Foxglove(Foxglove::LocationFix),
                _ if schema.starts_with("limen.") && known.is_some() => TopicForm::Own(known),
                _ => TopicForm::Bytes,
            },
            "cdr" if ros::is_known(schema) => TopicForm::Ros(schema.into(), known),
            _ => TopicForm::Bytes,
        };
        let content = match (metadata.get(CONTENT).map(String::as_str), &form) {
            (Some("text"), _) => Content::Text,
            (Some("bytes"), _) => Content::Bytes,
            (Some(_), _) => Content::Numbers,
            (None, TopicForm::Ros(schema, _)) if ros::is_text(schema) => Content::Text,
            (None, TopicForm::Ros(schema, _)) if schema == "sensor_msgs/msg/CompressedImage" => Content::Bytes,
            (None, TopicForm::Foxglove(Foxglove::CompressedImage)) => Content::Bytes,
            (None, TopicForm::Bytes) if encoding == "json" => Content::Text,
            (None, TopicForm::Bytes) => Content::Bytes,
            (None, _) => Content::Numbers,
        };
        let schema = if schema.is_empty() { format!("without a schema, in {encoding}") } else { schema.to_string() };
        let mut topic = Topic { name: name.into(), schema, form, content, recorded: None, mismatch: None };
        let recorded = known.zip(metadata.get(SHAPE).and_then(|shape| dims(shape)));
        if topic.form != TopicForm::Bytes {
            topic.mismatch = definition.and_then(|of| mismatch(&of.name, &of.encoding, &of.data));
            let labels = labels(metadata);
            let orientation = metadata.get(ORIENTATION).map(|at| at.parse());
            topic.recorded = recorded.map(|(dtype, dims)| {
                let spec = topic.finished(PortSpec::new(dtype, dims)).with_labels(labels);
                match orientation {
                    Some(Ok(at)) => spec.with_quaternion(at),
                    Some(Err(_)) => spec.with_orientation(),
                    None => spec,
                }
            });
        }
        topic
    }

    /// Whether its messages are read only as bytes, because their schema is not known.
    pub(crate) fn is_unknown(&self) -> bool {
        self.form == TopicForm::Bytes && self.content != Content::Text
    }

    /// Adds content and layout to a spec.
    fn finished(&self, spec: PortSpec) -> PortSpec {
        let spec = spec.with_content(self.content);
        let is_image = match &self.form {
            TopicForm::Foxglove(Foxglove::RawImage) => true,
            TopicForm::Ros(schema, _) => schema == "sensor_msgs/msg/Image",
            _ => false,
        };
        if is_image && spec.shape.len() == 3 { spec.with_layout(Layout::Hwc) } else { spec }
    }

    /// Returns the spec of a port for messages such as one, of which the largest has `longest` in
    /// its first dim; that of the recording, if it has one.
    pub(crate) fn spec(&self, like: &Decoded<'_>, longest: usize) -> PortSpec {
        let spec = self.plain_spec(like, longest);
        // By the shape of the port, which a first message may not have.
        with_orientation(&self.schema, spec)
    }

    fn plain_spec(&self, like: &Decoded<'_>, longest: usize) -> PortSpec {
        if let Some(recorded) = &self.recorded {
            return recorded.clone();
        }
        let mut dims: Vec<Dim> = like.shape().iter().map(|length| Dim::Fixed(*length)).collect();
        if let Some(first) = dims.first_mut().filter(|_| like.varies) {
            *first = Dim::AtMost(longest.max(1));
        }
        // Names that cannot be labels find no column of a later message.
        let label = |name: &&[u8]| Label::new(std::str::from_utf8(name).unwrap_or("\""), "").ok();
        let labels: Option<Vec<Label>> = like.point_names().and_then(|names| names.iter().map(label).collect());
        self.finished(PortSpec::new(like.dtype, dims)).with_labels(labels.unwrap_or_default())
    }

    /// Returns whether a recording of limen says what its tensors are.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Reads a message.
    ///
    /// # Errors
    /// Why it is not one of its schema.
    pub(crate) fn decode<'a>(&self, data: &'a [u8]) -> Result<Decoded<'a>, String> {
        if let Some(mismatch) = &self.mismatch {
            return Err(mismatch.clone());
        }
        let decoded = match &self.form {
            TopicForm::Foxglove(form) => foxglove(*form, data, self.recorded.as_ref()),
            TopicForm::Own(dtype) => own(data, dtype.unwrap_or(DType::F32), self.recorded.as_ref()),
            TopicForm::Ros(schema, dtype) => ros::decode(schema, data, *dtype),
            TopicForm::Bytes => Ok(Decoded::new(None, DType::U8, &[data.len()], Elements::Plain(data)).varying()),
        }?;
        // A grey image may have been recorded with a dim of its only channel.
        let decoded = match &self.recorded {
            Some(recorded) if recorded.shape.len() == 3 && recorded.dtype == decoded.dtype => match *decoded.shape() {
                [height, width] => Decoded::new(decoded.stamp, decoded.dtype, &[height, width, 1], decoded.elements),
                _ => decoded,
            },
            _ => decoded,
        };
        // A port for such tensors would have no elements.
        let fixed = if decoded.varies { decoded.shape().get(1..).unwrap_or_default() } else { decoded.shape() };
        if self.recorded.is_none() && fixed.contains(&0) {
            return Err(format!("expected a shape with elements, found {:?}", decoded.shape()));
        }
        decoded.check()
    }

    /// Reads a message for a port of the topic.
    ///
    /// # Errors
    /// Why it is not one of its schema, or has no field of the port.
    pub(crate) fn decode_for<'a>(&self, port: &PortSpec, data: &'a [u8]) -> Result<Decoded<'a>, String> {
        // In a recording of limen, the fields of points have the order of the port, and names of
        // their own.
        let columns = if self.is_recorded() { &[] } else { port.labels() };
        self.decode(data)?.for_port(port, columns)
    }
}

fn foxglove<'a>(form: Foxglove, data: &'a [u8], recorded: Option<&PortSpec>) -> Result<Decoded<'a>, String> {
    let dtype = recorded.map(|spec| spec.dtype);
    let mut stamp = None;
    let mut numbers = [0usize; 8];
    let mut doubles = [0.0f64; 8];
    let (mut bytes, mut encoding) = (&[][..], "");
    let mut columns = [(0usize, DType::F32); MAX_COLUMNS];
    let mut names = [&b""[..]; MAX_COLUMNS];
    let (mut used, mut pose) = (0, [0.0; 7]);
    let stamp_tag = match form {
        Foxglove::ImageAnnotations => 5,
        Foxglove::LocationFix => 6,
        _ => 1,
    };
    for field in proto::read(data) {
        let (tag, value) = field?;
        if tag == stamp_tag {
            stamp = value.timestamp().filter(|stamp| *stamp > 0);
            continue;
        }
        match (form, tag) {
            (Foxglove::RawImage, 4) => encoding = value.text().unwrap_or_default(),
            (Foxglove::RawImage, 6)
            | (Foxglove::CompressedImage, 2)
            | (Foxglove::PointCloud, 6)
            | (Foxglove::ImageAnnotations, 1000) => {
                bytes = value.bytes().ok_or("expected the data as bytes, found another type")?;
            }
            (Foxglove::PointCloud, 5) => {
                let field = value.bytes().ok_or("expected a message for each field, found another type")?;
                let to = columns.get_mut(used).ok_or("expected at most 16 values for each point, found more")?;
                (names[used], *to) = column(field)?;
                used += 1;
            }
            (Foxglove::PoseInFrame, 3) => {
                pose = read_pose(value.bytes().ok_or("expected a message for the pose, found another type")?)?
            }
            (Foxglove::LocationFix, 1..=3) => doubles[tag as usize] = value.double().unwrap_or(0.0),
            (Foxglove::RawImage, 2 | 3 | 5) | (Foxglove::PointCloud, 4) => {
                numbers[tag as usize] = value.number().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            }
            _ => {}
        }
    }
    Ok(match form {
        Foxglove::RawImage => ros::pixel_rows(stamp, encoding, (numbers[3], numbers[2], numbers[5]), bytes)?,
        Foxglove::CompressedImage => Decoded::new(stamp, DType::U8, &[bytes.len()], Elements::Plain(bytes)).varying(),
        Foxglove::PointCloud => {
            let dtype = point_columns(&mut names[..used], &mut columns[..used])?;
            let stride = numbers[4];
            if stride == 0 || used == 0 {
                return Err("expected a value for each point, found none".into());
            }
            if columns[..used].iter().any(|(offset, dtype)| offset.saturating_add(dtype.size()) > stride) {
                return Err("a field ends outside the point".into());
            }
            let elements = Elements::Points { data: bytes, stride, columns, names };
            Decoded::new(stamp, dtype, &[bytes.len() / stride, used], elements).varying()
        }
        Foxglove::ImageAnnotations => {
            Decoded::new(stamp, DType::F32, &[bytes.len() / 24, 6], Elements::Plain(bytes)).varying()
        }
        Foxglove::PoseInFrame => Decoded::numbers(stamp, dtype, &pose),
        Foxglove::LocationFix => Decoded::numbers(stamp, dtype, &doubles[1..4]),
    })
}

/// Offset and type of a `foxglove.PackedElementField`.
fn column(field: &[u8]) -> Result<(&[u8], (usize, DType)), String> {
    let (mut name, mut offset, mut kind) = (&b""[..], 0, 0);
    for field in proto::read(field) {
        match field? {
            (1, value) => name = value.bytes().unwrap_or_default(),
            (2, value) => offset = value.number().unwrap_or(0),
            (3, value) => kind = value.number().unwrap_or(0),
            _ => {}
        }
    }
    let dtype = match kind {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::U16,
        4 => DType::I16,
        5 => DType::U32,
        6 => DType::I32,
        7 => DType::F32,
        8 => DType::F64,
        _ => return Err(format!("the type of a field must be 1 to 8, got {kind}")),
    };
    Ok((name, (usize::try_from(offset).unwrap_or(usize::MAX), dtype)))
}

/// Marks which numbers of a schema's messages are an orientation or an angle.
fn with_orientation(schema: &str, spec: PortSpec) -> PortSpec {
    let name = schema.rsplit(['/', '.']).next().unwrap_or(schema);
    let name = name.strip_suffix("Stamped").unwrap_or(name);
    match name.strip_suffix("WithCovariance").unwrap_or(name) {
        "Pose" | "PoseInFrame" | "Odometry" | "Transform" => spec.with_quaternion(3),
        "Quaternion" => spec.with_quaternion(0),
        // An IMU without an orientation has six numbers.
        "Imu" if spec.fixed_shape().as_deref() != Some(&[6]) => spec.with_quaternion(0),
        "Pose2D" => spec.with_orientation(),
        _ => spec,
    }
}

/// A `foxglove.Pose`: position, then orientation.
fn read_pose(data: &[u8]) -> Result<[f64; 7], String> {
    let mut pose = [0.0; 7];
    for field in proto::read(data) {
        let (tag, value) = field?;
        let (start, most) = match tag {
            1 => (0, 3),
            2 => (3, 4),
            _ => continue,
        };
        for field in
            proto::read(value.bytes().ok_or("expected a message for each part of the pose, found another type")?)
        {
            let (tag, value) = field?;
            if let Some(value) = value.double().filter(|_| (1..=most).contains(&tag)) {
                pose[start + tag as usize - 1] = value;
            }
        }
    }
    Ok(pose)
}

/// A message of `limen.*`.
fn own<'a>(data: &'a [u8], dtype: DType, recorded: Option<&PortSpec>) -> Result<Decoded<'a>, String> {
    let (mut stamp, mut values, mut shape) = (None, None, None);
    for field in proto::read(data) {
        match field? {
            (1, value) => stamp = value.timestamp().filter(|stamp| *stamp > 0),
            (2, value) => values = Some(value),
            (3, value) => shape = value.bytes(),
            _ => {}
        }
    }
    let is_scalar = recorded.is_some_and(|spec| spec.shape.is_empty());
    // Zeros and empty arrays may be left out.
    let values = values.unwrap_or(if is_scalar { ProtoValue::Varint(0) } else { ProtoValue::Bytes(&[]) });
    let ProtoValue::Bytes(bytes) = values else {
        let bits = values.number().unwrap_or(0);
        let bits = match dtype {
            DType::F16 => half::f16::from_f32(f32::from_bits(bits as u32)).to_bits().into(),
            DType::BF16 => half::bf16::from_f32(f32::from_bits(bits as u32)).to_bits().into(),
            _ => bits,
        };
        return Ok(Decoded::new(stamp, dtype, &[], Elements::Integer(bits)));
    };
    let (elements, length) = match dtype {
        DType::F16 | DType::BF16 => (Elements::Shorter(bytes), bytes.len() / 4),
        DType::I8 | DType::I16 | DType::U16 => (Elements::Varints(bytes), proto::varints(bytes).count()),
        _ => (Elements::Plain(bytes), bytes.len() / dtype.size()),
    };
    let mut dims = [0usize; MAX_RANK];
    let shape = match shape {
        None => {
            dims[0] = length;
            &dims[..1]
        }
        Some(shape) => {
            let mut rank = 0;
            for length in proto::varints(shape) {
                let length = length.and_then(|n| usize::try_from(n).ok()).ok_or("the shape is malformed")?;
                *dims.get_mut(rank).ok_or("expected at most 6 dims, found more")? = length;
                rank += 1;
            }
            &dims[..rank]
        }
    };
    Ok(Decoded::new(stamp, dtype, shape, elements).varying())
}
