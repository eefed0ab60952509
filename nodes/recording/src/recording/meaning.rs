//! What the tensors of a recorded edge mean, and their messages in a recording.

use super::proto::Fields;
use super::schema::{descriptors, ros_definition};
use super::{CONTENT, DTYPE, NAMES, ORIENTATION, SHAPE, UNITS, ros};
use half::{bf16, f16};
use limen::Tensor;
use limen::message::{Content, DType, Dim, Label, Layout, PortSpec};
use limen::node::NodeError;
use limen_nodes_core::tensor::boxes::{self, ROW};
use limen_nodes_core::tensor::text::Values;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Meaning of the tensors of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// An image `u8[h,w]` or `u8[h,w,channels]` with 1, 3 (RGB) or 4 (RGBA) channels.
    Image,
    /// The bytes of a JPEG, PNG or WebP file.
    CompressedImage,
    /// Angular velocity in rad/s, then acceleration in m/s²: `f32[6]` or `f64[6]`. `[10]` starts
    /// with the orientation `x y z w`. The schema is always the ROS 2 schema.
    Imu,
    /// Points `f32[n,k]`: `x y z` in m, then intensity and other values.
    PointCloud,
    /// Boxes `f32[n,6]`: `x0 y0 x1 y1` in pixels, score, class. With `schemas: ros2`, boxes are
    /// recorded as `values`.
    Boxes,
    /// Position in m, then orientation: `x y z` and `x y z w`, `f32[7]` or `f64[7]`.
    Pose,
    /// Ranges of a laser scanner in m, `f32[n]`. The schema is always the ROS 2 schema.
    Scan,
    /// Linear velocity in m/s, then angular velocity in rad/s: `f32[6]` or `f64[6]`. The schema is
    /// always the ROS 2 schema.
    Twist,
    /// Force in N, then torque in N m: `f32[6]` or `f64[6]`. The schema is always the ROS 2 schema.
    Wrench,
    /// Vector, `x y z`: `f32[3]` or `f64[3]`. The schema is always the ROS 2 schema.
    Vector,
    /// Latitude and longitude in degrees, and altitude in m: `f64[3]`.
    Location,
    /// Numbers, text or bytes.
    Values,
}

/// Message schemas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Schemas {
    /// Foxglove schemas, encoded in Protocol Buffers.
    #[default]
    Foxglove,
    /// ROS 2 schemas, encoded in CDR.
    Ros2,
}

/// Most values of a point.
const MAX_POINT: usize = 16;

impl Meaning {
    /// The meaning of an edge for which the graph gives none.
    pub(crate) fn of(spec: &PortSpec) -> Meaning {
        if spec.layout == Some(Layout::Hwc) && Meaning::Image.check(spec).is_ok() {
            Meaning::Image
        } else {
            Meaning::Values
        }
    }

    /// Checks that tensors of a spec can have the meaning.
    ///
    /// # Errors
    /// What they would have to be.
    pub(crate) fn check(self, spec: &PortSpec) -> Result<(), &'static str> {
        let fixed = |length: usize| spec.shape == [Dim::Fixed(length)] && matches!(spec.dtype, DType::F32 | DType::F64);
        let fits = match (self, &spec.shape[..]) {
            (Meaning::Values, _) => true,
            (Meaning::Image, [_, _] | [_, _, Dim::Fixed(1 | 3 | 4)]) | (Meaning::CompressedImage, [_]) => {
                spec.dtype == DType::U8
            }
            (Meaning::Imu, _) => fixed(6) || fixed(10),
            (Meaning::Scan, [_]) => spec.dtype == DType::F32,
            (Meaning::Twist | Meaning::Wrench, _) => fixed(6),
            (Meaning::PointCloud, [_, Dim::Fixed(3..=MAX_POINT)]) | (Meaning::Boxes, [_, Dim::Fixed(ROW)]) => {
                spec.dtype == DType::F32
            }
            (Meaning::Pose, _) => fixed(7),
            (Meaning::Vector, _) => fixed(3),
            // As `f32`, degrees such as -122.4194155 are half a metre away.
            (Meaning::Location, _) => fixed(3) && spec.dtype == DType::F64,
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.expected()) }
    }

    /// The word in YAML.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// The greatest length of the message of a tensor, in bytes, but for a kilobyte of other
    /// fields.
    pub(crate) fn largest(self, spec: &PortSpec) -> Option<usize> {
        /// A box with its lines, its text and its numbers.
        const BOX: usize = 512;
        match self {
            Meaning::Boxes => spec.max_elements()?.checked_mul(BOX / ROW),
            // Negative integers take ten bytes, and invalid text three for one.
            _ => match spec.dtype {
                DType::I8 | DType::I16 => spec.max_elements()?.checked_mul(10),
                DType::F16 | DType::BF16 | DType::U16 => spec.max_elements()?.checked_mul(4),
                _ if spec.is_text() => spec.max_bytes()?.checked_mul(3),
                _ => spec.max_bytes(),
            },
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Meaning::Image => "u8[h,w] or u8[h,w,c] with 1, 3 or 4 channels",
            Meaning::CompressedImage => "the bytes of a file, u8[≤n]",
            Meaning::Imu => "f32 or f64 with the shape [6] or [10]",
            Meaning::PointCloud => "f32[n,k] with 3 to 16 values for each point",
            Meaning::Boxes => "f32[n,6]",
            Meaning::Pose => "f32 or f64 with the shape [7]",
            Meaning::Scan => "f32[n]",
            Meaning::Twist | Meaning::Wrench => "f32 or f64 with the shape [6]",
            Meaning::Vector => "f32 or f64 with the shape [3]",
            Meaning::Location => "f64[3]",
            Meaning::Values => "any tensor",
        }
    }
}

/// How a laser scanner measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scan {
    /// The angles of the first and the last range, rad.
    pub(crate) angles: [f32; 2],
    /// The least and the greatest valid range, m.
    pub(crate) ranges: [f32; 2],
}

impl Default for Scan {
    fn default() -> Self {
        Scan { angles: [0.0; 2], ranges: [0.0, f32::INFINITY] }
    }
}

/// How the tensors of an edge are written: what becomes a channel of a recording.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) topic: String,
    pub(crate) schema: String,
    pub(super) meaning: Meaning,
    pub(crate) encoding: Schemas,
    pub(super) frame: String,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(super) is_text: bool,
    pub(super) scan: Scan,
}

/// Writes dims as a channel's metadata holds them.
fn written(shape: &[Dim]) -> String {
    shape.iter().map(Dim::to_string).collect::<Vec<_>>().join(",")
}

impl Channel {
    pub(crate) fn new(topic: String, meaning: Meaning, schemas: Schemas, frame: String, spec: &PortSpec) -> Channel {
        let is_array = !spec.shape.is_empty();
        let is_text = spec.is_text();
        // Foxglove has no schemas for an IMU, a twist and the like, and reads those of ROS 2, scans
        // as well; ROS 2 has no standard one for boxes.
        let (encoding, meaning) = match (schemas, meaning) {
            (_, Meaning::Imu | Meaning::Scan | Meaning::Twist | Meaning::Wrench | Meaning::Vector) => {
                (Schemas::Ros2, meaning)
            }
            (Schemas::Ros2, Meaning::Boxes) => (schemas, Meaning::Values),
            _ => (schemas, meaning),
        };
        let schema = match (encoding, meaning) {
            (Schemas::Foxglove, Meaning::Image) => "foxglove.RawImage".into(),
            (Schemas::Foxglove, Meaning::CompressedImage) => "foxglove.CompressedImage".into(),
            (Schemas::Foxglove, Meaning::PointCloud) => "foxglove.PointCloud".into(),
            (Schemas::Foxglove, Meaning::Boxes) => "foxglove.ImageAnnotations".into(),
            (Schemas::Foxglove, Meaning::Pose) => "foxglove.PoseInFrame".into(),
            (Schemas::Foxglove, Meaning::Location) => "foxglove.LocationFix".into(),
            (Schemas::Foxglove, _) => match spec.dtype {
                _ if is_text => "limen.Text".into(),
                DType::U8 if is_array => "limen.Bytes".into(),
                dtype => format!("limen.{}{}", own_type(dtype), if is_array { "Array" } else { "" }),
            },
            (Schemas::Ros2, Meaning::Image) => "sensor_msgs/msg/Image".into(),
            (Schemas::Ros2, Meaning::CompressedImage) => "sensor_msgs/msg/CompressedImage".into(),
            (Schemas::Ros2, Meaning::Imu) => "sensor_msgs/msg/Imu".into(),
            (Schemas::Ros2, Meaning::PointCloud) => "sensor_msgs/msg/PointCloud2".into(),
            (Schemas::Ros2, Meaning::Scan) => "sensor_msgs/msg/LaserScan".into(),
            (Schemas::Ros2, Meaning::Twist) => "geometry_msgs/msg/TwistStamped".into(),
            (Schemas::Ros2, Meaning::Wrench) => "geometry_msgs/msg/WrenchStamped".into(),
            (Schemas::Ros2, Meaning::Vector) => "geometry_msgs/msg/Vector3Stamped".into(),
            (Schemas::Ros2, Meaning::Pose) => "geometry_msgs/msg/PoseStamped".into(),
            (Schemas::Ros2, Meaning::Location) => "sensor_msgs/msg/NavSatFix".into(),
            (Schemas::Ros2, _) if is_text => "std_msgs/msg/String".into(),
            (Schemas::Ros2, _) => {
                format!("std_msgs/msg/{}{}", ros::type_name(spec.dtype), if is_array { "MultiArray" } else { "" })
            }
        };
        let content = match spec.content {
            Content::Bytes => "bytes",
            Content::Text => "text",
            _ => "numbers",
        };
        let mut metadata = BTreeMap::from([
            (DTYPE.to_string(), spec.dtype.name().to_string()),
            (SHAPE.to_string(), written(&spec.shape)),
            (CONTENT.to_string(), content.to_string()),
        ]);
        for (key, part) in [(NAMES, Label::name as fn(&Label) -> &str), (UNITS, Label::unit)] {
            if spec.labels().iter().any(|label| !part(label).is_empty()) {
                let parts: Vec<&str> = spec.labels().iter().map(part).collect();
                metadata.insert(key.to_string(), parts.join(","));
            }
        }
        if let Some(at) = spec.quaternion() {
            metadata.insert(ORIENTATION.to_string(), at.to_string());
        } else if spec.has_unknown_orientation() {
            metadata.insert(ORIENTATION.to_string(), "unknown".to_string());
        }
        Channel { topic, schema, meaning, encoding, frame, metadata, is_text, scan: Scan::default() }
    }

    /// Says how the scanner measures whose ranges it has.
    pub(crate) fn with_scan(self, scan: Scan) -> Channel {
        Channel { scan, ..self }
    }

    /// Returns the encoding of its schema and the schema.
    pub(crate) fn definition(&self) -> (&'static str, Vec<u8>) {
        match self.encoding {
            Schemas::Foxglove => ("protobuf", descriptors(&self.schema)),
            Schemas::Ros2 => ("ros2msg", ros_definition(&self.schema).unwrap_or_default().into_bytes()),
        }
    }

    /// Returns the encoding of its messages.
    pub(crate) fn message_encoding(&self) -> &'static str {
        match self.encoding {
            Schemas::Foxglove => "protobuf",
            Schemas::Ros2 => "cdr",
        }
    }

    /// Writes a tensor as a message with a stamp in ns since 1970, replacing the buffer's content.
    pub(crate) fn encode(&self, tensor: &Tensor, stamp: u64, buffer: &mut Vec<u8>) -> Result<(), NodeError> {
        if let Some(place) = self.encode_around(tensor, stamp, buffer)? {
            buffer.extend_from_slice(tensor.bytes());
            buffer[place..].rotate_right(tensor.bytes().len());
        }
        Ok(())
    }

    /// As [`encode`](Channel::encode), but leaves out the bytes of the tensor where the message has
    /// them as they are; returns where they belong.
    pub(crate) fn encode_around(
        &self,
        tensor: &Tensor,
        stamp: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<usize>, NodeError> {
        buffer.clear();
        if self.encoding == Schemas::Ros2 {
            return ros::encode_around(self, tensor, stamp, buffer);
        }
        let mut fields = Fields(buffer);
        let (shape, length) = (tensor.shape(), tensor.bytes().len());
        match self.meaning {
            Meaning::Image => {
                let (height, width, channels) = image_size(&shape);
                fields.timestamp(1, stamp);
                fields.fixed32(2, width as u32);
                fields.fixed32(3, height as u32);
                fields.text(4, image_encoding(channels));
                fields.fixed32(5, (width * channels) as u32);
                fields.text(7, &self.frame);
                return Ok(Some(fields.bytes_place(6, length)));
            }
            Meaning::CompressedImage => {
                fields.timestamp(1, stamp);
                let place = fields.bytes_place(2, length);
                fields.text(3, image_format(tensor.bytes()));
                fields.text(4, &self.frame);
                return Ok(Some(place));
            }
            Meaning::PointCloud => {
                let values = shape[1];
                fields.timestamp(1, stamp);
                fields.text(2, &self.frame);
                fields.message(3, |pose| put_pose(pose, &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]));
                fields.fixed32(4, (values * 4) as u32);
                for at in 0..values {
                    fields.message(5, |field| {
                        field.text(1, &point_value(at));
                        field.fixed32(2, (at * 4) as u32);
                        field.varint(3, 7);
                    });
                }
                return Ok(Some(fields.bytes_place(6, length)));
            }
            Meaning::Boxes => {
                fields.timestamp(5, stamp);
                put_boxes(&mut fields, boxes::rows(tensor)?, stamp);
                fields.bytes(1000, tensor.bytes());
            }
            Meaning::Pose => {
                fields.timestamp(1, stamp);
                fields.text(2, &self.frame);
                let values = doubles::<7>(tensor)?;
                fields.message(3, |pose| put_pose(pose, &values));
            }
            Meaning::Location => {
                let [latitude, longitude, altitude] = doubles::<3>(tensor)?;
                fields.double(1, latitude);
                fields.double(2, longitude);
                fields.double(3, altitude);
                fields.timestamp(6, stamp);
                fields.text(7, &self.frame);
            }
            // Those of ROS 2 were written above.
            Meaning::Imu | Meaning::Scan | Meaning::Twist | Meaning::Wrench | Meaning::Vector | Meaning::Values => {
                fields.timestamp(1, stamp);
                return put_values(&mut fields, tensor, self.is_text);
            }
        }
        Ok(None)
    }
}

/// Height, width and channels.
pub(crate) fn image_size(shape: &[usize]) -> (usize, usize, usize) {
    match shape {
        [height, width, channels] => (*height, *width, *channels),
        [height, width] => (*height, *width, 1),
        _ => (0, 0, 1),
    }
}

pub(crate) fn image_encoding(channels: usize) -> &'static str {
    match channels {
        3 => "rgb8",
        4 => "rgba8",
        _ => "mono8",
    }
}

/// The format of a file, from its first bytes.
pub(crate) fn image_format(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => "png",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "webp",
        _ => "jpeg",
    }
}

/// The name of a point's value.
pub(crate) fn point_value(at: usize) -> String {
    { ["x", "y", "z", "intensity"].get(at) }.map_or_else(|| format!("value_{at}"), |name| (*name).to_string())
}

/// The numbers of a small tensor.
pub(crate) fn doubles<const N: usize>(tensor: &Tensor) -> Result<[f64; N], NodeError> {
    let mut values = [0.0; N];
    match tensor.dtype() {
        DType::F64 => values.iter_mut().zip(tensor.as_slice::<f64>()?).for_each(|(value, from)| *value = *from),
        _ => values.iter_mut().zip(tensor.as_slice::<f32>()?).for_each(|(value, from)| *value = f64::from(*from)),
    }
    Ok(values)
}

fn put_pose(pose: &mut Fields<'_>, values: &[f64; 7]) {
    let (position, orientation) = values.split_at(3);
    pose.message(1, |fields| (1..).zip(position).for_each(|(tag, value)| fields.double(tag, *value)));
    pose.message(2, |fields| (1..).zip(orientation).for_each(|(tag, value)| fields.double(tag, *value)));
}

/// Colours of boxes, by class.
const COLOURS: [[f64; 3]; 6] =
    [[0.0, 0.6, 1.0], [1.0, 0.5, 0.0], [0.2, 0.8, 0.2], [0.9, 0.2, 0.3], [0.6, 0.4, 0.9], [0.9, 0.8, 0.1]];

/// Draws boxes as line loops, each with its class and score.
fn put_boxes(fields: &mut Fields<'_>, rows: &[boxes::BoxRow], stamp: u64) {
    for row in rows {
        let [x0, y0, x1, y1, score, class] = row.map(f64::from);
        let [r, g, b] = COLOURS[(class.max(0.0) as usize) % COLOURS.len()];
        let colour = |fields: &mut Fields<'_>| {
            (1..).zip([r, g, b, 1.0]).for_each(|(tag, value)| fields.double(tag, value));
        };
        let point = |fields: &mut Fields<'_>, x: f64, y: f64| {
            fields.double(1, x);
            fields.double(2, y);
        };
        fields.message(2, |lines| {
            lines.timestamp(1, stamp);
            lines.varint(2, 2);
            for (x, y) in [(x0, y0), (x1, y0), (x1, y1), (x0, y1)] {
                lines.message(3, |fields| point(fields, x, y));
            }
            lines.message(4, colour);
            lines.double(7, 2.0);
        });
        fields.message(3, |text| {
            text.timestamp(1, stamp);
            text.message(2, |fields| point(fields, x0, y0));
            text.text(3, &format!("{class} {score:.2}"));
            text.double(4, 12.0);
            text.message(5, colour);
        });
    }
}

/// The type of the values of limen's own messages.
fn own_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => "Float",
        DType::F64 => "Double",
        DType::I8 | DType::I16 => "Int32",
        DType::U8 | DType::U16 => "UInt32",
        DType::I32 => "SFixed32",
        DType::U32 => "Fixed32",
        DType::I64 => "SFixed64",
        DType::U64 => "Fixed64",
    }
}

/// Appends values, text or bytes as the fields of limen's own messages; returns where the bytes of
/// the tensor belong that are left out.
fn put_values(fields: &mut Fields<'_>, tensor: &Tensor, is_text: bool) -> Result<Option<usize>, NodeError> {
    let shape = tensor.shape();
    if is_text {
        fields.text(2, &String::from_utf8_lossy(tensor.bytes()));
        return Ok(None);
    }
    if shape.is_empty() {
        match Values::of(tensor)? {
            Values::F16(v) => fields.fixed32(2, v[0].to_f32().to_bits()),
            Values::BF16(v) => fields.fixed32(2, v[0].to_f32().to_bits()),
            Values::I8(v) => fields.varint(2, i64::from(v[0]) as u64),
            Values::I16(v) => fields.varint(2, i64::from(v[0]) as u64),
            Values::U8(v) => fields.varint(2, v[0].into()),
            Values::U16(v) => fields.varint(2, v[0].into()),
            Values::F32(v) => fields.fixed32(2, v[0].to_bits()),
            Values::I32(v) => fields.fixed32(2, v[0] as u32),
            Values::U32(v) => fields.fixed32(2, v[0]),
            Values::F64(v) => fields.double(2, v[0]),
            Values::I64(v) => fields.double(2, f64::from_bits(v[0] as u64)),
            Values::U64(v) => fields.double(2, f64::from_bits(v[0])),
        }
        return Ok(None);
    }
    let mut place = None;
    let mut converted = |values: &mut dyn FnMut(&mut Vec<u8>)| {
        fields.message(2, |fields| values(fields.0));
    };
    match Values::of(tensor)? {
        Values::F16(v) => {
            converted(&mut |to| v.iter().for_each(|v| to.extend_from_slice(&f16::to_f32(*v).to_le_bytes())))
        }
        Values::BF16(v) => {
            converted(&mut |to| v.iter().for_each(|v| to.extend_from_slice(&bf16::to_f32(*v).to_le_bytes())))
        }
        Values::I8(v) => {
            converted(&mut |to| v.iter().for_each(|v| prost::encoding::encode_varint(i64::from(*v) as u64, to)))
        }
        Values::I16(v) => {
            converted(&mut |to| v.iter().for_each(|v| prost::encoding::encode_varint(i64::from(*v) as u64, to)))
        }
        Values::U16(v) => converted(&mut |to| v.iter().for_each(|v| prost::encoding::encode_varint(u64::from(*v), to))),
        // The bytes of a packed field are those of the tensor: both are in little-endian order.
        _ => place = Some(fields.bytes_place(2, tensor.bytes().len())),
    }
    if shape.len() > 1 {
        fields.message(3, |fields| shape.iter().for_each(|n| prost::encoding::encode_varint(*n as u64, fields.0)));
    }
    Ok(place)
}
