//! Schemas that are written into recordings, so that every reader can decode the messages: Protocol
//! Buffers descriptors and ROS 2 message definitions.

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet,
};
use std::sync::LazyLock;

/// The file of `google.protobuf.Timestamp`.
const TIMESTAMP_FILE: &str = "google/protobuf/timestamp.proto";

/// Foxglove's messages.
static FOXGLOVE: LazyLock<Vec<DescriptorProto>> =
    LazyLock::new(|| messages("foxglove", include_str!("foxglove.proto")));

/// The messages of ROS 2 whose fields follow no rule, each behind a line with its name.
const ROS: &str = include_str!("ros2.msg");

/// The types of a field with values in limen's own messages, which are named after them:
/// `limen.Float`, `limen.FloatArray`.
const VALUES: &[(&str, &str)] = &[
    ("Float", "float"),
    ("Double", "double"),
    ("Int32", "int32"),
    ("UInt32", "uint32"),
    ("SFixed32", "sfixed32"),
    ("Fixed32", "fixed32"),
    ("SFixed64", "sfixed64"),
    ("Fixed64", "fixed64"),
];

/// A field by its name, number and type. A type with `*` is repeated; `Timestamp` is that of
/// Google, `enum NAME` one of the message, and another name with a capital is a message of the same
/// file.
fn field(package: &str, message: &str, (name, number, written): (&str, i32, &str)) -> FieldDescriptorProto {
    let of = written.trim_start_matches('*');
    let (kind, type_name) = match of {
        "double" => (Type::Double, None),
        "float" => (Type::Float, None),
        "fixed32" => (Type::Fixed32, None),
        "fixed64" => (Type::Fixed64, None),
        "sfixed32" => (Type::Sfixed32, None),
        "sfixed64" => (Type::Sfixed64, None),
        "int32" => (Type::Int32, None),
        "uint32" => (Type::Uint32, None),
        "string" => (Type::String, None),
        "bytes" => (Type::Bytes, None),
        "Timestamp" => (Type::Message, Some(".google.protobuf.Timestamp".to_string())),
        _ => match of.strip_prefix("enum ") {
            Some(name) => (Type::Enum, Some(format!(".{package}.{message}.{name}"))),
            None => (Type::Message, Some(format!(".{package}.{of}"))),
        },
    };
    let label = if written.starts_with('*') { Label::Repeated } else { Label::Optional };
    FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        label: Some(label.into()),
        r#type: Some(kind.into()),
        type_name,
        ..FieldDescriptorProto::default()
    }
}

fn message(package: &str, name: &str, fields: &[(&str, i32, &str)]) -> DescriptorProto {
    DescriptorProto {
        name: Some(name.into()),
        field: fields.iter().map(|one| field(package, name, *one)).collect(),
        ..DescriptorProto::default()
    }
}

/// Reads messages of Protocol Buffers, as far as Foxglove's need it: a line for each field,
/// enumerations before the fields that have them.
fn messages(package: &str, text: &str) -> Vec<DescriptorProto> {
    let mut all: Vec<DescriptorProto> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        let number = words.last().and_then(|number| number.parse().ok());
        match (&words[..], all.last_mut(), number) {
            (["message", name, "{"], ..) => all.push(message(package, name, &[])),
            (["enum", name, "{"], Some(of), _) => {
                of.enum_type.push(EnumDescriptorProto { name: Some((*name).into()), ..EnumDescriptorProto::default() });
            }
            ([name, "=", _], Some(of), Some(number)) => {
                let value =
                    EnumValueDescriptorProto { name: Some((*name).into()), number: Some(number), options: None };
                if let Some(one) = of.enum_type.last_mut() {
                    one.value.push(value);
                }
            }
            ([repeated @ .., kind, name, "=", _], Some(of), Some(number)) => {
                let is_enum = of.enum_type.iter().any(|one| one.name() == *kind);
                let mark = if repeated.is_empty() { "" } else { "*" };
                let written = format!("{mark}{}{kind}", if is_enum { "enum " } else { "" });
                let one = field(package, of.name(), (name, number, &written));
                of.field.push(one);
            }
            _ => {}
        }
    }
    all
}

fn file(name: &str, package: &str, message_type: Vec<DescriptorProto>) -> FileDescriptorProto {
    let depends = name != TIMESTAMP_FILE;
    FileDescriptorProto {
        name: Some(name.into()),
        package: Some(package.into()),
        dependency: depends.then(|| TIMESTAMP_FILE.to_string()).into_iter().collect(),
        message_type,
        syntax: Some("proto3".into()),
        ..FileDescriptorProto::default()
    }
}

/// Returns the descriptors of all messages of the package that a schema's name begins with:
/// `foxglove.RawImage`, `limen.Float`.
pub(crate) fn descriptors(schema: &str) -> Vec<u8> {
    let timestamp = DescriptorProto {
        name: Some("Timestamp".into()),
        field: vec![
            FieldDescriptorProto { r#type: Some(Type::Int64.into()), ..field("", "", ("seconds", 1, "int32")) },
            field("", "", ("nanos", 2, "int32")),
        ],
        ..DescriptorProto::default()
    };
    let timestamp = file(TIMESTAMP_FILE, "google.protobuf", vec![timestamp]);
    let own = if schema.starts_with("foxglove.") {
        file("foxglove.proto", "foxglove", FOXGLOVE.clone())
    } else {
        let mut messages = vec![
            message("limen", "Text", &[("timestamp", 1, "Timestamp"), ("value", 2, "string")]),
            message("limen", "Bytes", &[("timestamp", 1, "Timestamp"), ("value", 2, "bytes"), ("shape", 3, "*uint32")]),
        ];
        for (name, of) in VALUES {
            let one = [("timestamp", 1, "Timestamp"), ("value", 2, *of)];
            messages.push(message("limen", name, &one));
            let repeated = format!("*{of}");
            let array = [("timestamp", 1, "Timestamp"), ("values", 2, repeated.as_str()), ("shape", 3, "*uint32")];
            messages.push(message("limen", &format!("{name}Array"), &array));
        }
        file("limen.proto", "limen", messages)
    };
    FileDescriptorSet { file: vec![timestamp, own] }.encode_to_vec()
}

/// The definitions of ROS 2 messages, by their types, as `ros2msg` schemas hold them: the message,
/// and behind lines of `=` those it uses.
pub(crate) fn ros_definition(name: &str) -> Option<String> {
    let name = name.replacen("/msg/", "/", 1);
    let mut text = ros_fields(&name)?;
    let mut all = Vec::new();
    add_used(&name, &mut all);
    for used in all {
        text.push_str(&format!("\n{}\nMSG: {used}\n{}", "=".repeat(80), ros_fields(&used)?));
    }
    Some(text)
}

/// Adds the messages that a ROS 2 message uses, each before those that it uses itself.
fn add_used(name: &str, all: &mut Vec<String>) {
    let package = name.split('/').next().unwrap_or_default();
    for line in ros_fields(name).unwrap_or_default().lines() {
        let of = line.split([' ', '[']).next().unwrap_or_default();
        let of = if of.contains('/') { of.to_string() } else { format!("{package}/{of}") };
        if ros_fields(&of).is_some() && !all.contains(&of) {
            all.push(of.clone());
            add_used(&of, all);
        }
    }
}

/// The fields of a ROS 2 message.
fn ros_fields(name: &str) -> Option<String> {
    let listed = ROS.split("MSG: ").filter_map(|message| message.split_once('\n'));
    if let Some((_, fields)) = { listed }.find(|(listed, _)| *listed == name) {
        return Some(fields.trim_end().into());
    }
    if let Some(name) = name.strip_prefix("geometry_msgs/") {
        return geometry_fields(name);
    }
    let of = name.strip_prefix("std_msgs/")?;
    let (of, is_array) = of.strip_suffix("MultiArray").map_or((of, false), |of| (of, true));
    let of = match of {
        "Bool" | "Byte" | "Char" | "Float32" | "Float64" | "Int8" | "UInt8" | "Int16" | "UInt16" | "Int32"
        | "UInt32" | "Int64" | "UInt64" => of.to_lowercase(),
        _ => return None,
    };
    Some(if is_array { format!("MultiArrayLayout layout\n{of}[] data") } else { format!("{of} data") })
}

/// The fields of a message of `geometry_msgs`.
fn geometry_fields(name: &str) -> Option<String> {
    if name == "PoseArray" {
        return Some("std_msgs/Header header\nPose[] poses".into());
    }
    let of = name.strip_suffix("Stamped").unwrap_or(name);
    let base = of.strip_suffix("WithCovariance").unwrap_or(of);
    let fields = match base {
        "Vector3" | "Point" => "float64 x\nfloat64 y\nfloat64 z",
        "Point32" => "float32 x\nfloat32 y\nfloat32 z",
        "Pose2D" => "float64 x\nfloat64 y\nfloat64 theta",
        "Quaternion" => "float64 x\nfloat64 y\nfloat64 z\nfloat64 w",
        "Pose" => "Point position\nQuaternion orientation",
        "Twist" | "Accel" => "Vector3 linear\nVector3 angular",
        "Wrench" => "Vector3 force\nVector3 torque",
        "Transform" => "Vector3 translation\nQuaternion rotation",
        "Inertia" => {
            "float64 m\nVector3 com\nfloat64 ixx\nfloat64 ixy\nfloat64 ixz\nfloat64 iyy\nfloat64 iyz\nfloat64 izz"
        }
        "Polygon" => "Point32[] points",
        _ => return None,
    };
    // What a message with a header, or with a covariance, calls that of which it is one.
    let field = base.trim_end_matches('3').to_lowercase();
    Some(if of != name {
        let child = if base == "Transform" { "string child_frame_id\n" } else { "" };
        format!("std_msgs/Header header\n{child}{of} {field}")
    } else if base != of {
        format!("{base} {field}\nfloat64[36] covariance")
    } else {
        fields.into()
    })
}

/// A longer schema is not compared: it may be made to take memory or time. Those of ROS 2 and
/// Foxglove have a few kilobytes.
const MOST_COMPARED: usize = 64 << 10;
/// Characters of a field of a schema that an error shows.
const MOST_SHOWN: usize = 80;

/// Type and name of each field of a definition of ROS 2, without packages, bounds, constants and
/// defaults.
fn typed_names(definition: &str) -> impl Iterator<Item = (String, &str)> {
    definition.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (of, rest) = line.split_once(char::is_whitespace)?;
        let name = rest.split_whitespace().next()?;
        let of = of.rsplit('/').next().unwrap_or(of).to_lowercase();
        // `string<=20`, `Point32[<=9]`.
        let (unbounded, is_list) = (of.split("<=").next().unwrap_or(&of), of.ends_with(']'));
        let end = if is_list && !unbounded.ends_with(']') { "]" } else { "" };
        let (element, list) =
            unbounded.split_once('[').map_or((unbounded, ""), |(element, _)| (element, &unbounded[element.len()..]));
        // Three names of one byte.
        let element = if matches!(element, "bool" | "byte" | "char") { "uint8" } else { element };
        (!rest.contains('=')).then(|| (format!("{element}{list}{end}"), name))
    })
}

/// Compares the definition of a type of ROS 2 and those that it uses with what is read; says how it
/// differs.
fn ros_mismatch(schema: &str, definition: &str) -> Option<String> {
    let mut name = schema.replacen("/msg/", "/", 1);
    let mut fields = String::new();
    for line in definition.lines().chain(["===="]) {
        if let Some(next) = line.strip_prefix("MSG: ") {
            name = next.trim().replacen("/msg/", "/", 1);
        } else if !line.starts_with("====") {
            fields.push_str(line);
            fields.push('\n');
        } else {
            // A message without fields says nothing.
            let has_fields = typed_names(&fields).next().is_some();
            if let Some(expected) = ros_fields(&name).filter(|_| has_fields)
                && let Some((found, expected)) = first_difference(&fields, &expected)
            {
                return Some(format!("expected {expected} in `{name}` of the schema, found {found}"));
            }
            fields.clear();
            name.clear();
        }
    }
    None
}

/// The first field in which two definitions differ, in words.
fn first_difference(found: &str, expected: &str) -> Option<(String, String)> {
    let shown = |field: Option<(String, &str)>| match field {
        Some((of, name)) => format!("`{}`", format!("{of} {name}").chars().take(MOST_SHOWN).collect::<String>()),
        None => "nothing".into(),
    };
    let (mut found, mut expected) = (typed_names(found), typed_names(expected));
    loop {
        match (found.next(), expected.next()) {
            (None, None) => return None,
            (found, expected) if found != expected => return Some((shown(found), shown(expected))),
            _ => {}
        }
    }
}

/// How a value is read: types of one class are read alike.
#[derive(Debug, PartialEq, Eq)]
enum Class {
    Whole,
    Double,
    /// With a length before it.
    Bytes,
    /// Not as anything.
    Other,
}

fn class(of: Type) -> Class {
    match of {
        Type::Double => Class::Double,
        Type::String | Type::Bytes | Type::Message => Class::Bytes,
        Type::Float | Type::Sint32 | Type::Sint64 | Type::Group => Class::Other,
        _ => Class::Whole,
    }
}

/// Compares the descriptors of a message of Foxglove, and of those that it uses, with what is read;
/// says how they differ.
fn foxglove_mismatch(schema: &str, data: &[u8]) -> Option<String> {
    const USED: [&str; 4] = ["PackedElementField", "Pose", "Vector3", "Quaternion"];
    let set = FileDescriptorSet::decode(data).ok()?;
    let messages = set.file.iter().filter(|file| file.package() == "foxglove").flat_map(|file| &file.message_type);
    for theirs in messages.filter(|message| message.name() == schema || USED.contains(&message.name())) {
        let Some(ours) = FOXGLOVE.iter().find(|ours| ours.name() == theirs.name()) else { continue };
        for ours in &ours.field {
            let Some(other) = theirs.field.iter().find(|other| other.number() == ours.number()) else { continue };
            let is_repeated = |field: &FieldDescriptorProto| field.label() == Label::Repeated;
            let is_same = other.name() == ours.name()
                && class(other.r#type()) == class(ours.r#type())
                && is_repeated(other) == is_repeated(ours);
            if !is_same {
                let shown = |field: &FieldDescriptorProto| -> String {
                    let repeated = if is_repeated(field) { "repeated " } else { "" };
                    let of = format!("{:?}", field.r#type()).to_lowercase();
                    format!("{repeated}{of} {}", field.name()).chars().take(MOST_SHOWN).collect()
                };
                let (found, expected) = (shown(other), shown(ours));
                return Some(format!(
                    "expected `{expected}` as field {} of the schema, found `{found}`",
                    ours.number()
                ));
            }
        }
    }
    None
}

/// Says how a schema differs from what is read of messages of that name; `None` if it does not, or
/// is not compared: interface definitions (`ros2idl`) and what is longer than [`MOST_COMPARED`].
pub(crate) fn mismatch(name: &str, encoding: &str, data: &[u8]) -> Option<String> {
    if data.is_empty() || data.len() > MOST_COMPARED {
        return None;
    }
    match (encoding, name.strip_prefix("foxglove.")) {
        ("ros2msg", _) => ros_mismatch(name, &String::from_utf8_lossy(data)),
        ("protobuf", Some(name)) => foxglove_mismatch(name, data),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_differs_from_what_is_read_is_told() {
        let imu = ros_definition("sensor_msgs/msg/Imu").unwrap();
        let commented = imu
            .replace(
                "std_msgs/Header header",
                "# A comment = nothing\nuint8 KIND=3 # three\n\nstd_msgs/msg/Header   header  # when",
            )
            .replace("MSG: geometry_msgs/Vector3", "MSG: geometry_msgs/msg/Vector3");
        for (name, text, expected) in [
            ("sensor_msgs/msg/Imu", imu.clone(), None),
            ("sensor_msgs/msg/Imu", commented, None),
            ("sensor_msgs/msg/Imu", String::new(), None),
            ("geometry_msgs/msg/PoseWithCovarianceStamped", "Header header\nPoseWithCovariance pose".into(), None),
            ("std_msgs/msg/String", "string<=20 data \"a\"".into(), None),
            ("geometry_msgs/msg/Polygon", "geometry_msgs/Point32[<=9] points".into(), None),
            (
                "sensor_msgs/msg/Imu",
                imu.replace(
                    "float64[9] linear_acceleration_covariance",
                    "float64[9] linear_acceleration_covariance\nfloat64 temperature",
                ),
                Some("expected nothing in `sensor_msgs/Imu` of the schema, found `float64 temperature`"),
            ),
            (
                "sensor_msgs/msg/Imu",
                imu.replace("float64 x\nfloat64 y\nfloat64 z\nfloat64 w", "float64 w\nfloat64 x\nfloat64 y\nfloat64 z"),
                Some("expected `float64 x` in `geometry_msgs/Quaternion` of the schema, found `float64 w`"),
            ),
            // What is read alike is no difference.
            ("std_msgs/msg/Bool", "bool data".into(), None),
            ("std_msgs/msg/Header", "time stamp\nstring frame_id".into(), None),
            ("std_msgs/msg/String", "====\nMSG: std_msgs/String\nstring data\n".into(), None),
            ("std_msgs/msg/UInt8MultiArray", "MultiArrayLayout layout\r\n\tbyte[] data".into(), None),
            ("std_msgs/msg/Bool", "float64 data".into(), Some("expected `uint8 data`")),
            (
                "std_msgs/msg/Float32",
                "float64 data".into(),
                Some("expected `float32 data` in `std_msgs/Float32` of the schema, found `float64 data`"),
            ),
        ] {
            let found = mismatch(name, "ros2msg", text.as_bytes());
            assert_eq!(found.is_some(), expected.is_some(), "{name}: {found:?}");
            assert!(
                expected.is_none_or(|expected| found.as_ref().is_some_and(|found| found.contains(expected))),
                "{found:?}"
            );
        }
        let descriptors = descriptors("foxglove.RawImage");
        assert_eq!(mismatch("foxglove.RawImage", "protobuf", &descriptors), None);
        let mut set = FileDescriptorSet::decode(&descriptors[..]).unwrap();
        let width = &mut set.file[1].message_type[0].field[2];
        width.r#type = Some(Type::Uint32.into());
        let alike = set.encode_to_vec();
        assert_eq!(mismatch("foxglove.RawImage", "protobuf", &alike), None);
        for (name, of, shown) in [("width", Type::Double, "double width"), ("height", Type::Fixed32, "fixed32 height")]
        {
            let width = &mut set.file[1].message_type[0].field[2];
            (width.name, width.r#type) = (Some(name.into()), Some(of.into()));
            let found = mismatch("foxglove.RawImage", "protobuf", &set.encode_to_vec()).unwrap();
            assert_eq!(found, format!("expected `fixed32 width` as field 2 of the schema, found `{shown}`"));
        }
        // What is made to take memory, time or the stack is not compared.
        assert_eq!(mismatch("foxglove.RawImage", "protobuf", &[0x0a, 0].repeat(1 << 20)), None);
        let deep = format!("geometry_msgs/msg/{}", "Stamped".repeat(200_000));
        assert_eq!(mismatch(&deep, "ros2msg", b"float64 x"), None);
        assert_eq!(mismatch("std_msgs/msg/String", "ros2msg", format!("MSG: {deep}\nfloat64 x").as_bytes()), None);
    }
}
