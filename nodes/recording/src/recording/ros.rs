//! ROS 2's messages as tensors, and tensors as ROS 2's messages.

use super::cdr::{CdrReader, CdrWriter};
use super::decoded::{Decoded, Elements, MAX_COLUMNS, point_columns};
use super::meaning::{Channel, Meaning, doubles, image_encoding, image_format, image_size, point_value};
use limen::Tensor;
use limen::message::DType;
use limen::node::NodeError;
use limen_nodes_core::tensor::text::Values;

/// The name of a type of `std_msgs` that holds elements of a type.
pub(crate) fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => "Float32",
        DType::F64 => "Float64",
        DType::I8 => "Int8",
        DType::U8 => "UInt8",
        DType::I16 => "Int16",
        DType::U16 => "UInt16",
        DType::I32 => "Int32",
        DType::U32 => "UInt32",
        DType::I64 => "Int64",
        DType::U64 => "UInt64",
    }
}

fn element_type(name: &str) -> Option<DType> {
    Some(match name {
        "Float32" => DType::F32,
        "Float64" => DType::F64,
        "Int8" => DType::I8,
        "UInt8" | "Bool" | "Byte" | "Char" => DType::U8,
        "Int16" => DType::I16,
        "UInt16" => DType::U16,
        "Int32" => DType::I32,
        "UInt32" => DType::U32,
        "Int64" => DType::I64,
        "UInt64" => DType::U64,
        _ => return None,
    })
}

/// Whether messages of a type are read as tensors.
pub(crate) fn is_known(schema: &str) -> bool {
    matches!(
        schema,
        "sensor_msgs/msg/Image"
            | "sensor_msgs/msg/CompressedImage"
            | "sensor_msgs/msg/Imu"
            | "sensor_msgs/msg/PointCloud2"
            | "sensor_msgs/msg/LaserScan"
            | "sensor_msgs/msg/NavSatFix"
            | "nav_msgs/msg/Odometry"
            | "std_msgs/msg/String"
    ) || schema.strip_prefix(GEOMETRY).is_some_and(|name| Geometry::of(name).is_some())
        || schema
            .strip_prefix("std_msgs/msg/")
            .is_some_and(|name| element_type(name.strip_suffix("MultiArray").unwrap_or(name)).is_some())
}

/// Whether messages of a type are text.
pub(crate) fn is_text(schema: &str) -> bool {
    schema == "std_msgs/msg/String"
}

/// Reads a message of a type that [`is_known`]; `dtype` is the recorded type of the elements, if
/// known.
pub(crate) fn decode<'a>(schema: &str, message: &'a [u8], dtype: Option<DType>) -> Result<Decoded<'a>, String> {
    let mut cdr = CdrReader::new(message)?;
    let numbers = |stamp, values: &[f64]| Decoded::numbers(stamp, dtype, values);
    match schema {
        "sensor_msgs/msg/Image" => image(&mut cdr),
        "sensor_msgs/msg/CompressedImage" => {
            let stamp = cdr.header()?;
            cdr.text()?;
            let data = cdr.sequence(1)?;
            Ok(Decoded::new(stamp, DType::U8, &[data.len()], Elements::Plain(data)).varying())
        }
        "sensor_msgs/msg/Imu" => {
            let stamp = cdr.header()?;
            let orientation = cdr.doubles::<4>()?;
            let has_orientation = cdr.doubles::<9>()?[0] != NOT_MEASURED;
            let mut measured = || -> Result<[f64; 3], String> {
                let values = cdr.doubles::<3>()?;
                Ok(if cdr.doubles::<9>()?[0] == NOT_MEASURED { [f64::NAN; 3] } else { values })
            };
            let (angular, linear) = (measured()?, measured()?);
            let mut values = [0.0; 10];
            values[..4].copy_from_slice(&orientation);
            values[4..7].copy_from_slice(&angular);
            values[7..].copy_from_slice(&linear);
            Ok(if has_orientation { numbers(stamp, &values) } else { numbers(stamp, &values[4..]) })
        }
        "sensor_msgs/msg/PointCloud2" => points(&mut cdr),
        "sensor_msgs/msg/LaserScan" => {
            let stamp = cdr.header()?;
            for _ in 0..7 {
                cdr.f32()?;
            }
            floats(stamp, &mut cdr)
        }
        "sensor_msgs/msg/NavSatFix" => {
            let stamp = cdr.header()?;
            let has_fix = cdr.i8()? >= 0;
            cdr.u16()?;
            let position = cdr.doubles::<3>()?;
            Ok(numbers(stamp, &if has_fix { position } else { [f64::NAN; 3] }))
        }
        "nav_msgs/msg/Odometry" => {
            let stamp = cdr.header()?;
            cdr.text()?;
            let mut values = [0.0; 13];
            values[..7].copy_from_slice(&cdr.doubles::<7>()?);
            cdr.doubles::<36>()?;
            values[7..].copy_from_slice(&cdr.doubles::<6>()?);
            Ok(numbers(stamp, &values))
        }
        "std_msgs/msg/String" => {
            let text = cdr.text()?;
            Ok(Decoded::new(None, DType::U8, &[text.len()], Elements::Plain(text)).varying())
        }
        _ => match (schema.strip_prefix("std_msgs/msg/"), schema.strip_prefix(GEOMETRY).and_then(Geometry::of)) {
            (Some(name), _) => standard(name, &mut cdr, dtype),
            (None, Some(of)) => geometry(of, &mut cdr, dtype),
            (None, None) => Err("the type of the message is unknown".into()),
        },
    }
}

/// The first covariance of what an IMU does not measure, by the definition of its message.
const NOT_MEASURED: f64 = -1.0;

const GEOMETRY: &str = "geometry_msgs/msg/";

/// A type of `geometry_msgs`: what comes before its numbers, and the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Geometry {
    has_header: bool,
    /// The name of the frame that a transform leads to.
    has_child: bool,
    /// How many it has; covariances, which follow, are left out.
    numbers: usize,
    /// A sequence of so many numbers each, of floats of 32 or 64 bits.
    of: Option<DType>,
}

impl Geometry {
    /// The most numbers that a type has.
    const MOST: usize = 10;

    fn of(name: &str) -> Option<Self> {
        let (name, has_header) = name.strip_suffix("Stamped").map_or((name, name == "PoseArray"), |name| (name, true));
        let (base, has_covariance) = name.strip_suffix("WithCovariance").map_or((name, false), |name| (name, true));
        let (numbers, of) = match base {
            "Pose" => (7, None),
            "Twist" | "Accel" => (6, None),
            _ if has_covariance => return None,
            "Vector3" | "Point" | "Pose2D" => (3, None),
            "Quaternion" => (4, None),
            "Wrench" => (6, None),
            "Transform" => (7, None),
            "Inertia" => (10, None),
            "Polygon" => (3, Some(DType::F32)),
            "PoseArray" => (7, Some(DType::F64)),
            _ => return None,
        };
        Some(Geometry { has_header, has_child: base == "Transform" && has_header, numbers, of })
    }
}

fn geometry<'a>(of: Geometry, cdr: &mut CdrReader<'a>, recorded: Option<DType>) -> Result<Decoded<'a>, String> {
    let stamp = if of.has_header { cdr.header()? } else { None };
    if of.has_child {
        cdr.text()?;
    }
    if let Some(dtype) = of.of {
        little(cdr)?;
        let data = cdr.records(dtype.size(), of.numbers)?;
        let shape = [data.len() / (dtype.size() * of.numbers), of.numbers];
        return Ok(Decoded::new(stamp, dtype, &shape, Elements::Plain(data)).varying());
    }
    let mut values = [0.0; Geometry::MOST];
    for value in &mut values[..of.numbers] {
        *value = cdr.f64()?;
    }
    Ok(Decoded::numbers(stamp, recorded, &values[..of.numbers]))
}

/// A sequence of numbers.
fn floats<'a>(stamp: Option<u64>, cdr: &mut CdrReader<'a>) -> Result<Decoded<'a>, String> {
    little(cdr)?;
    let data = cdr.sequence(4)?;
    Ok(Decoded::new(stamp, DType::F32, &[data.len() / 4], Elements::Plain(data)).varying())
}

fn little(cdr: &CdrReader<'_>) -> Result<(), String> {
    if cdr.is_big_endian() { Err("expected little-endian numbers, found big-endian numbers".into()) } else { Ok(()) }
}

/// A number or an array of `std_msgs`.
fn standard<'a>(name: &str, cdr: &mut CdrReader<'a>, recorded: Option<DType>) -> Result<Decoded<'a>, String> {
    let (of, is_array) = name.strip_suffix("MultiArray").map_or((name, false), |of| (of, true));
    let dtype = element_type(of).ok_or("the type of the message is unknown")?;
    // Shorter floats are recorded as those of 32 bits.
    let shorter = recorded.filter(|recorded| matches!(recorded, DType::F16 | DType::BF16) && dtype == DType::F32);
    if is_array {
        little(cdr)?;
        let mut shape = [0usize; limen::message::MAX_RANK];
        let rank = cdr.length(12)?;
        for at in 0..rank {
            cdr.text()?;
            let size = cdr.u32()? as usize;
            cdr.u32()?;
            *shape.get_mut(at).ok_or("expected at most 6 dims, found more")? = size;
        }
        cdr.u32()?;
        let data = cdr.sequence(dtype.size())?;
        let flat = [data.len() / dtype.size()];
        let shape = if rank == 0 { &flat[..] } else { &shape[..rank] };
        let elements = if shorter.is_some() { Elements::Shorter(data) } else { Elements::Plain(data) };
        return Ok(Decoded::new(None, shorter.unwrap_or(dtype), shape, elements).varying());
    }
    let bits = match dtype.size() {
        1 => u64::from(cdr.u8()?),
        2 => u64::from(cdr.u16()?),
        4 => u64::from(cdr.u32()?),
        _ => cdr.u64()?,
    };
    Ok(match shorter {
        Some(shorter) => {
            let value = f32::from_bits(bits as u32);
            let bits = if shorter == DType::F16 {
                half::f16::from_f32(value).to_bits()
            } else {
                half::bf16::from_f32(value).to_bits()
            };
            Decoded::new(None, shorter, &[], Elements::Integer(bits.into()))
        }
        None => Decoded::new(None, dtype, &[], Elements::Integer(bits)),
    })
}

/// The pixels of an encoding: type, channels, and bytes of a pixel whose red and blue are
/// exchanged.
pub(crate) fn pixels(encoding: &str) -> Option<(DType, usize, Option<usize>)> {
    Some(match encoding {
        "mono8" | "8UC1" => (DType::U8, 1, None),
        "rgb8" | "8UC3" => (DType::U8, 3, None),
        "rgba8" | "8UC4" => (DType::U8, 4, None),
        "bgr8" => (DType::U8, 3, Some(3)),
        "bgra8" => (DType::U8, 4, Some(4)),
        "mono16" | "16UC1" => (DType::U16, 1, None),
        "32FC1" => (DType::F32, 1, None),
        _ => return None,
    })
}

/// An image of an encoding; grey ones have no dim of channels.
pub(crate) fn pixel_rows<'a>(
    stamp: Option<u64>,
    encoding: &str,
    (height, width, step): (usize, usize, usize),
    data: &'a [u8],
) -> Result<Decoded<'a>, String> {
    let (dtype, channels, swap) = pixels(encoding).ok_or_else(|| {
        format!(
            "expected the encoding mono8, mono16, rgb8, rgba8, bgr8, bgra8, 8UC1, 8UC3, 8UC4, 16UC1 or 32FC1, found \
                 `{encoding}`"
        )
    })?;
    let row = width.checked_mul(channels * dtype.size());
    let row = row.ok_or_else(|| format!("a row must fit 64 bits, got {width} pixels"))?;
    let shape: &[usize] = if channels == 1 { &[height, width] } else { &[height, width, channels] };
    Ok(Decoded::new(stamp, dtype, shape, Elements::Rows { data, step, row, swap }))
}

fn image<'a>(cdr: &mut CdrReader<'a>) -> Result<Decoded<'a>, String> {
    let stamp = cdr.header()?;
    let (height, width) = (cdr.u32()? as usize, cdr.u32()? as usize);
    let encoding = cdr.text()?;
    let is_big = cdr.u8()? != 0;
    let step = cdr.u32()? as usize;
    let data = cdr.sequence(1)?;
    let decoded = pixel_rows(stamp, &String::from_utf8_lossy(encoding), (height, width, step), data)?;
    if is_big && decoded.dtype.size() > 1 {
        return Err("expected little-endian pixels, found big-endian pixels".into());
    }
    Ok(decoded)
}

fn points<'a>(cdr: &mut CdrReader<'a>) -> Result<Decoded<'a>, String> {
    let stamp = cdr.header()?;
    let (height, width) = (cdr.u32()? as usize, cdr.u32()? as usize);
    let mut columns = [(0usize, DType::F32); MAX_COLUMNS];
    let mut used = 0;
    let mut names = [&b""[..]; MAX_COLUMNS];
    for _ in 0..cdr.length(16)? {
        let name = cdr.text()?;
        let (offset, kind, count) = (cdr.u32()? as usize, cdr.u8()?, cdr.u32()? as usize);
        let dtype = match kind {
            1 => DType::I8,
            2 => DType::U8,
            3 => DType::I16,
            4 => DType::U16,
            5 => DType::I32,
            6 => DType::U32,
            7 => DType::F32,
            8 => DType::F64,
            _ => return Err(format!("the type of a field must be 1 to 8, got {kind}")),
        };
        for at in 0..count.min(MAX_COLUMNS + 1) {
            *columns.get_mut(used).ok_or("expected at most 16 values for each point, found more")? =
                (offset.saturating_add(at * dtype.size()), dtype);
            names[used] = name;
            used += 1;
        }
    }
    if cdr.u8()? != 0 {
        return Err("expected little-endian points, found big-endian points".into());
    }
    let (stride, row) = (cdr.u32()? as usize, cdr.u32()? as usize);
    let data = cdr.sequence(1)?;
    if stride == 0 || used == 0 {
        return Err("expected a value for each point, found none".into());
    }
    if height > 1 && width.checked_mul(stride) != Some(row) {
        return Err("expected rows of points without padding, found padding".into());
    }
    if columns[..used].iter().any(|(offset, dtype)| offset.saturating_add(dtype.size()) > stride) {
        return Err("a field ends outside the point".into());
    }
    let dtype = point_columns(&mut names[..used], &mut columns[..used])?;
    let points = height.checked_mul(width);
    let points = points.ok_or_else(|| format!("the number of points must fit 64 bits, got {height} × {width}"))?;
    Ok(Decoded::new(stamp, dtype, &[points, used], Elements::Points { data, stride, columns, names }).varying())
}

/// Appends a tensor as a message, but leaves out its bytes where the message has them as they are;
/// returns where they belong.
pub(crate) fn encode_around(
    channel: &Channel,
    tensor: &Tensor,
    stamp: u64,
    buffer: &mut Vec<u8>,
) -> Result<Option<usize>, NodeError> {
    let (meaning, frame, is_text) = (channel.meaning, &*channel.frame, channel.is_text);
    let mut cdr = CdrWriter::new(buffer);
    let (shape, length) = (tensor.shape(), tensor.bytes().len());
    match meaning {
        Meaning::Image => {
            let (height, width, channels) = image_size(&shape);
            cdr.header(stamp, frame);
            cdr.u32(height as u32);
            cdr.u32(width as u32);
            cdr.text(image_encoding(channels));
            cdr.put([0]);
            cdr.u32((width * channels) as u32);
            return Ok(Some(cdr.sequence_place(length, 1)));
        }
        Meaning::CompressedImage => {
            cdr.header(stamp, frame);
            cdr.text(image_format(tensor.bytes()));
            return Ok(Some(cdr.sequence_place(length, 1)));
        }
        Meaning::Imu => {
            let (orientation, rest) = if shape[0] == 10 {
                let values = doubles::<10>(tensor)?;
                let mut rest = [0.0; 6];
                rest.copy_from_slice(&values[4..]);
                (Some([values[0], values[1], values[2], values[3]]), rest)
            } else {
                (None, doubles::<6>(tensor)?)
            };
            cdr.header(stamp, frame);
            cdr.doubles(&orientation.unwrap_or([0.0, 0.0, 0.0, 1.0]));
            let covariance = |is_measured: bool| {
                let mut covariance = [0.0; 9];
                covariance[0] = if is_measured { 0.0 } else { NOT_MEASURED };
                covariance
            };
            cdr.doubles(&covariance(orientation.is_some_and(|values| !values[0].is_nan())));
            for values in rest.as_chunks::<3>().0 {
                cdr.doubles(values);
                cdr.doubles(&covariance(!values[0].is_nan()));
            }
        }
        Meaning::PointCloud => {
            let (points, values) = (shape[0] as u32, shape[1]);
            cdr.header(stamp, frame);
            cdr.u32(1);
            cdr.u32(points);
            cdr.u32(values as u32);
            for at in 0..values {
                cdr.text(&point_value(at));
                cdr.u32((at * 4) as u32);
                cdr.put([7]);
                cdr.u32(1);
            }
            cdr.put([0]);
            cdr.u32((values * 4) as u32);
            cdr.u32(points.saturating_mul((values * 4) as u32));
            let place = cdr.sequence_place(length, 1);
            cdr.put([u8::from(tensor.as_slice::<f32>()?.iter().all(|value| value.is_finite()))]);
            return Ok(Some(place));
        }
        Meaning::Pose => {
            cdr.header(stamp, frame);
            cdr.doubles(&doubles::<7>(tensor)?);
        }
        Meaning::Scan => {
            let ([first, last], [least, most]) = (channel.scan.angles, channel.scan.ranges);
            // Between each two ranges.
            let step = (last - first) / shape[0].saturating_sub(1).max(1) as f32;
            cdr.header(stamp, frame);
            // The times are not known.
            [first, last, step, 0.0, 0.0, least, most].iter().for_each(|value| cdr.put(value.to_le_bytes()));
            let place = cdr.sequence_place(length, 4);
            // There are no intensities.
            cdr.u32(0);
            return Ok(Some(place));
        }
        Meaning::Twist | Meaning::Wrench => {
            cdr.header(stamp, frame);
            cdr.doubles(&doubles::<6>(tensor)?);
        }
        Meaning::Vector => {
            cdr.header(stamp, frame);
            cdr.doubles(&doubles::<3>(tensor)?);
        }
        Meaning::Location => {
            let position = doubles::<3>(tensor)?;
            cdr.header(stamp, frame);
            // Without a fix.
            cdr.put([if position[0].is_nan() { u8::MAX } else { 0 }]);
            cdr.put(1u16.to_le_bytes());
            cdr.doubles(&position);
            cdr.doubles(&[0.0; 9]);
            cdr.put([0]);
        }
        Meaning::Boxes | Meaning::Values if is_text => cdr.text(&String::from_utf8_lossy(tensor.bytes())),
        Meaning::Boxes | Meaning::Values => return put_values(&mut cdr, tensor),
    }
    Ok(None)
}

fn put_values(cdr: &mut CdrWriter<'_>, tensor: &Tensor) -> Result<Option<usize>, NodeError> {
    let shape = tensor.shape();
    let longer: Option<Vec<u8>> = match Values::of(tensor)? {
        Values::F16(values) => Some(values.iter().flat_map(|v| v.to_f32().to_le_bytes()).collect()),
        Values::BF16(values) => Some(values.iter().flat_map(|v| v.to_f32().to_le_bytes()).collect()),
        _ => None,
    };
    let size = if longer.is_some() { 4 } else { tensor.dtype().size() };
    let bytes = longer.as_deref().unwrap_or(tensor.bytes());
    if shape.is_empty() {
        match size {
            1 => cdr.put([bytes[0]]),
            2 => cdr.put([bytes[0], bytes[1]]),
            4 => cdr.put(*bytes.first_chunk::<4>().unwrap_or(&[0; 4])),
            _ => cdr.put(*bytes.first_chunk::<8>().unwrap_or(&[0; 8])),
        }
        return Ok(None);
    }
    cdr.u32(shape.len() as u32);
    for (at, length) in shape.iter().enumerate() {
        cdr.text("");
        cdr.u32(*length as u32);
        cdr.u32(shape[at..].iter().fold(1u32, |n, dim| n.saturating_mul(*dim as u32)));
    }
    cdr.u32(0);
    if longer.is_none() {
        return Ok(Some(cdr.sequence_place(bytes.len(), size)));
    }
    cdr.sequence(bytes, size);
    Ok(None)
}
