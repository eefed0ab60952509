//! Messages of sensors in ROS 2, and what they say of numbers that they do not have.

use super::run;
use mcap::records::MessageHeader;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// When the recording begins, ns since 1970.
const BEGIN: u64 = 1_700_000_000_000_000_000;

/// Numbers of CDR, each aligned behind the header.
struct Cdr(Vec<u8>);

impl Cdr {
    /// A message that begins with a header with a frame.
    fn stamped() -> Self {
        let mut cdr = Cdr(vec![0, 1, 0, 0]);
        cdr.put(&1_700_000_000_i32.to_le_bytes());
        cdr.put(&0_u32.to_le_bytes());
        cdr.text("f");
        cdr
    }

    fn put(&mut self, bytes: &[u8]) {
        while !(self.0.len() - 4).is_multiple_of(bytes.len()) {
            self.0.push(0);
        }
        self.0.extend(bytes);
    }

    fn text(&mut self, text: &str) {
        self.put(&(text.len() as u32 + 1).to_le_bytes());
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn doubles(&mut self, values: &[f64]) {
        values.iter().for_each(|value| self.put(&value.to_le_bytes()));
    }
}

/// Records messages of a type on `/x`, replays them, and returns what a `jsonl` sink writes.
fn replayed(folder: &Path, schema: &str, messages: &[Vec<u8>]) -> (Vec<serde_json::Value>, limen::Report) {
    let file = fs::File::create(folder.join("r.mcap")).unwrap();
    let mut writer = mcap::WriteOptions::new().compression(None).create(file).unwrap();
    let schema = writer.add_schema(schema, "ros2msg", b"").unwrap();
    let channel_id = writer.add_channel(schema, "/x", "cdr", &BTreeMap::new()).unwrap();
    for (message, n) in messages.iter().zip(0..) {
        let time = BEGIN + u64::from(n) * 1_000_000;
        let header = MessageHeader { channel_id, sequence: n, log_time: time, publish_time: time };
        writer.write_to_known_channel(&header, message).unwrap();
    }
    writer.finish().unwrap();
    let graph = "
  bag: { kind: replay, config: { path: r.mcap, pace: max } }
  out: { kind: jsonl, from: bag/x, config: { path: out.txt } }";
    let report = run(folder, graph);
    let text = fs::read_to_string(folder.join("out.txt")).unwrap();
    let values = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["in"].take());
    (values.collect(), report)
}

/// `sensor_msgs/Imu`: what has -1 as its first covariance is to be disregarded.
/// `sensor_msgs/NavSatStatus`: -1 is no fix.
#[test]
fn what_a_sensor_does_not_measure_is_nan() {
    let folder = tempfile::tempdir().unwrap();
    let imu = |covariances: [f64; 3]| {
        let mut cdr = Cdr::stamped();
        for (values, covariance) in
            [&[0.0, 0.0, 0.0, 1.0][..], &[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]].iter().zip(covariances)
        {
            cdr.doubles(values);
            cdr.doubles(&[covariance, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        }
        cdr.0
    };
    let messages = [imu([0.0; 3]), imu([0.0, -1.0, 0.0]), imu([0.0, 0.0, -1.0]), imu([-1.0, 0.1, -1.0])];
    let (values, _) = replayed(folder.path(), "sensor_msgs/msg/Imu", &messages);
    let expected = serde_json::json!([
        [0, 0, 0, 1, 1, 2, 3, 4, 5, 6],
        [0, 0, 0, 1, null, null, null, 4, 5, 6],
        [0, 0, 0, 1, 1, 2, 3, null, null, null],
        [null, null, null, null, 1, 2, 3, null, null, null],
    ]);
    assert_eq!(serde_json::Value::from(values), expected);

    let fix = |status: i8| {
        let mut cdr = Cdr::stamped();
        cdr.put(&status.to_le_bytes());
        cdr.put(&1_u16.to_le_bytes());
        cdr.doubles(&[47.5, 8.5, 400.0]);
        cdr.doubles(&[0.0; 9]);
        cdr.put(&[0]);
        cdr.0
    };
    let (values, _) = replayed(folder.path(), "sensor_msgs/msg/NavSatFix", &[fix(0), fix(-1), fix(2)]);
    let expected = serde_json::json!([[47.5, 8.5, 400], [null, null, null], [47.5, 8.5, 400]]);
    assert_eq!(serde_json::Value::from(values), expected);
}

/// Points have the columns of the first message, by the names of their fields.
#[test]
fn fields_of_later_points_are_found_by_their_names() {
    const FLOAT: u8 = 7;
    const U16: u8 = 4;
    let folder = tempfile::tempdir().unwrap();
    // One point with `x`, `y`, `z`, and more fields: name, type, bytes.
    let cloud = |more: &[(&str, u8, &[u8])]| {
        let (mut point, mut fields) = (Vec::<u8>::new(), Vec::new());
        let xyz = [1.0_f32, 2.0, 3.0].map(f32::to_le_bytes);
        let first = ["x", "y", "z"].into_iter().zip(&xyz).map(|(name, bytes)| (name, FLOAT, &bytes[..]));
        for (name, kind, bytes) in first.chain(more.iter().copied()) {
            fields.push((name, point.len() as u32, kind));
            point.extend(bytes);
        }
        let mut cdr = Cdr::stamped();
        for number in [1, 1, fields.len() as u32] {
            cdr.put(&number.to_le_bytes());
        }
        for (name, offset, kind) in fields {
            cdr.text(name);
            cdr.put(&offset.to_le_bytes());
            cdr.put(&[kind]);
            cdr.put(&1_u32.to_le_bytes());
        }
        cdr.put(&[0]);
        for number in [point.len() as u32; 3] {
            cdr.put(&number.to_le_bytes());
        }
        cdr.0.extend(point);
        cdr.put(&[1]);
        cdr.0
    };
    let (ring, tag, time) = (("ring", U16, &[7, 0][..]), ("tag", U16, &[9, 0][..]), ("t", 8, &[0; 8][..]));
    let messages =
        [cloud(&[ring, tag]), cloud(&[tag, ring]), cloud(&[tag]), cloud(&[time, tag, ring]), cloud(&[ring, tag])];
    let (values, report) = replayed(folder.path(), "sensor_msgs/msg/PointCloud2", &messages);
    let row = [[1, 2, 3, 7, 9]];
    assert_eq!(serde_json::Value::from(values), serde_json::json!([row, row, row, row]));
    assert_eq!(report.metric("bag.malformed"), Some(1.0));
    let is_told = report
        .notes
        .iter()
        .any(|note| note.contains("expected points with a field `ring`, found the fields x, y, z, tag"));
    assert!(is_told, "{:?}", report.notes);
}
