use super::cdr::CdrWriter;
use super::index::index_fault;
use super::meaning::{Channel, Meaning, Schemas};
use super::reader::{RecordingReader, Schema};
use super::topic::{ALL, Topic};
use super::writer::{RecordingWriter, Rotation};
use limen::message::{Content, DType, Dim, PortSpec};
use limen::unit::{Bytes, Span};
use limen::{Folders, Tensor, TensorMut};
use std::collections::BTreeMap;
use std::io::{BufReader, Cursor};
use std::path::Path;
use std::time::Duration;

mod chunks;

const STAMP: u64 = 1_700_000_000_123_456_789;

/// A tensor of a spec with other bytes each time; the first dim with a bound has `length`. Floats
/// are finite.
fn tensor(spec: &PortSpec, length: usize, salt: u8) -> Tensor {
    let mut tensor = TensorMut::alone(spec).unwrap();
    for (at, dim) in spec.shape.iter().enumerate() {
        if matches!(dim, Dim::AtMost(_)) {
            tensor.set_len(at, length).unwrap();
        }
    }
    let size = spec.dtype.size();
    for (at, byte) in tensor.bytes_mut().iter_mut().enumerate() {
        // The highest byte of a float decides whether it is finite; shorter bytes are letters.
        *byte = if at % size == size - 1 { 0x40 } else { (at as u8).wrapping_mul(31).wrapping_add(salt) & 0x7f };
    }
    tensor.freeze()
}

fn channel(spec: &PortSpec, meaning: Option<Meaning>, schemas: Schemas) -> Channel {
    let meaning = meaning.unwrap_or_else(|| Meaning::of(spec));
    assert_eq!(meaning.check(spec), Ok(()), "{meaning:?} {spec}");
    Channel::new("/topic".into(), meaning, schemas, "frame".into(), spec)
}

#[test]
fn every_tensor_is_read_as_it_was_recorded() {
    let mut cases = Vec::new();
    for dtype in ALL {
        for shape in [vec![], vec![Dim::Fixed(3)], vec![Dim::AtMost(9), Dim::Fixed(2)], vec![Dim::AtMost(9)]] {
            cases.push((PortSpec::new(dtype, shape), None));
        }
    }
    let fixed = |dtype, shape: &[usize]| PortSpec::fixed(dtype, shape.iter().copied());
    cases.extend([
        (PortSpec::image(4, 6, 3), None),
        (PortSpec::image(4, 6, 4), None),
        (PortSpec::image(4, 6, 1), None),
        (PortSpec::image(4, 6, 2), None),
        (fixed(DType::U8, &[4, 6]), Some(Meaning::Image)),
        (PortSpec::new(DType::U8, [Dim::AtMost(99)]).with_content(Content::Text), None),
        (PortSpec::new(DType::U8, [Dim::AtMost(99)]).with_content(Content::Bytes), Some(Meaning::CompressedImage)),
        (PortSpec::new(DType::F32, [Dim::AtMost(9), Dim::Fixed(6)]), Some(Meaning::Boxes)),
        (PortSpec::new(DType::F32, [Dim::AtMost(9), Dim::Fixed(5)]), Some(Meaning::PointCloud)),
        (PortSpec::new(DType::F32, [Dim::AtMost(9)]), Some(Meaning::Scan)),
    ]);
    for dtype in [DType::F32, DType::F64] {
        cases.push((fixed(dtype, &[6]), Some(Meaning::Imu)));
        cases.push((fixed(dtype, &[10]), Some(Meaning::Imu)));
        cases.push((fixed(dtype, &[6]), Some(Meaning::Twist)));
        cases.push((fixed(dtype, &[6]), Some(Meaning::Wrench)));
        cases.push((fixed(dtype, &[3]), Some(Meaning::Vector)));
        cases.push((fixed(dtype, &[7]), Some(Meaning::Pose)));
    }
    cases.push((fixed(DType::F64, &[3]), Some(Meaning::Location)));
    let mut message = b"of the message before".to_vec();
    for (spec, meaning) in cases {
        for schemas in [Schemas::Foxglove, Schemas::Ros2] {
            let channel = channel(&spec, meaning, schemas);
            let (encoding, data) = channel.definition();
            let schema = Schema { name: channel.schema.clone(), encoding: encoding.into(), data };
            let topic = Topic::new("/topic", Some(&schema), channel.message_encoding(), &channel.metadata);
            for length in [0, 1, 5, 9] {
                let case = format!("{spec} as {meaning:?} in {schemas:?} with {length}");
                let before = tensor(&spec, length, length as u8);
                channel.encode(&before, STAMP, &mut message).unwrap();
                let decoded = topic.decode(&message).unwrap_or_else(|why| panic!("{case}: {why}"));
                let planned = topic.spec(&decoded, 9);
                assert_eq!((planned.dtype, &planned.shape), (spec.dtype, &spec.shape), "{case}");
                assert_eq!(
                    (planned.layout, planned.content),
                    (spec.layout.filter(|_| spec.shape.len() != 3 || planned.layout.is_some()), spec.content),
                    "{case}"
                );
                assert!(decoded.fits(&spec), "{case}: {:?}", decoded.shape());
                let is_stamped = !channel.schema.starts_with("std_msgs/");
                assert_eq!(decoded.stamp, is_stamped.then_some(STAMP), "{case}");
                let mut after = TensorMut::alone(&spec).unwrap();
                decoded.write(&mut after).unwrap();
                let after = after.freeze();
                assert_eq!((after.shape(), after.bytes()), (before.shape(), before.bytes()), "{case}");
            }
            // Whatever is wrong with a message, it is refused or read.
            for cut in 0..message.len() {
                let _ = topic.decode(&message[..cut]);
            }
            let mut random = fastrand::Rng::with_seed(7);
            for _ in 0..200 {
                let mut damaged = message.clone();
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(..damaged.len());
                    damaged[at] = random.u8(..);
                }
                if let Ok(decoded) = topic.decode(&damaged)
                    && decoded.fits(&spec)
                {
                    decoded.write(&mut TensorMut::alone(&spec).unwrap()).unwrap();
                }
            }
        }
    }
}

/// Every type of `geometry_msgs` is read as its numbers, whatever surrounds them, and refused where
/// it is cut.
#[test]
fn geometry_is_read_as_its_numbers() {
    let child = |name: &str| name == "TransformStamped";
    for (name, is_stamped, numbers, count) in [
        ("Vector3", false, 3, None),
        ("PointStamped", true, 3, None),
        ("QuaternionStamped", true, 4, None),
        ("PoseWithCovariance", false, 7, None),
        ("Transform", false, 7, None),
        ("TransformStamped", true, 7, None),
        ("TwistWithCovarianceStamped", true, 6, None),
        ("AccelStamped", true, 6, None),
        ("Wrench", false, 6, None),
        ("Inertia", false, 10, None),
        ("PoseArray", true, 7, Some(3)),
        ("PoseArray", true, 7, Some(0)),
    ] {
        let mut message = Vec::new();
        let mut cdr = CdrWriter::new(&mut message);
        if is_stamped {
            cdr.header(STAMP, "map");
        }
        if child(name) {
            cdr.text("base");
        }
        let values: Vec<f64> = (0..numbers * count.unwrap_or(1)).map(|n| n as f64 + 0.5).collect();
        if let Some(count) = count {
            cdr.u32(count as u32);
        }
        cdr.doubles(&values);
        let topic = Topic::new("/t", Some(&geometry(name)), "cdr", &BTreeMap::new());
        assert!(!topic.is_unknown(), "{name}");
        let decoded = topic.decode(&message).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(decoded.stamp, is_stamped.then_some(STAMP), "{name}");
        let mut tensor = TensorMut::alone(&topic.spec(&decoded, 9)).unwrap();
        decoded.write(&mut tensor).unwrap();
        let tensor = tensor.freeze();
        let shape = count.map_or(vec![numbers], |count| vec![count, numbers]);
        assert_eq!((&tensor.shape()[..], tensor.as_slice::<f64>().unwrap()), (&shape[..], &values[..]), "{name}");
        assert!((0..message.len()).all(|cut| topic.decode(&message[..cut]).is_err()), "{name}");
    }
    for name in ["Vector3WithCovariance", "Polygons", "Stamped", ""] {
        let topic = Topic::new("/t", Some(&geometry(name)), "cdr", &BTreeMap::new());
        assert!(topic.is_unknown(), "{name}");
    }
}

/// The mark of an orientation follows the recorded shape, even if the first message has no
/// orientation.
#[test]
fn an_orientation_is_marked_by_the_shape_of_the_port() {
    let spec = |count| PortSpec::fixed(DType::F64, [count]);
    // Numbers without a schema of their own keep the mark that they are recorded with.
    for marked in [spec(7), spec(7).with_quaternion(3), spec(3).with_orientation()] {
        for schemas in [Schemas::Foxglove, Schemas::Ros2] {
            let channel = channel(&marked, None, schemas);
            let (encoding, data) = channel.definition();
            let schema = Schema { name: channel.schema.clone(), encoding: encoding.into(), data };
            let topic = Topic::new("/t", Some(&schema), channel.message_encoding(), &channel.metadata);
            let mut message = Vec::new();
            channel.encode(&tensor(&marked, 0, 1), STAMP, &mut message).unwrap();
            assert_eq!(topic.spec(&topic.decode(&message).unwrap(), 9), marked, "{}", channel.schema);
        }
    }
    let (short, long) = (spec(6), spec(10));
    let of = |spec: &PortSpec| channel(spec, Some(Meaning::Imu), Schemas::Ros2);
    let mut first = Vec::new();
    of(&short).encode(&tensor(&short, 0, 1), STAMP, &mut first).unwrap();
    for (recorded, expected) in [(&short, short.clone()), (&long, long.clone().with_quaternion(0))] {
        let channel = of(recorded);
        let (encoding, data) = channel.definition();
        let schema = Schema { name: channel.schema.clone(), encoding: encoding.into(), data };
        let topic = Topic::new("/imu", Some(&schema), channel.message_encoding(), &channel.metadata);
        let decoded = topic.decode(&first).unwrap();
        assert_eq!(decoded.shape(), [6]);
        let spec = topic.spec(&decoded, 9);
        assert_eq!(spec.clone().with_labels(Vec::new()), expected);
    }
}

/// A type of `geometry_msgs`, without its definition.
fn geometry(name: &str) -> Schema {
    Schema { name: format!("geometry_msgs/msg/{name}"), encoding: "ros2msg".into(), data: Vec::new() }
}

fn folders(graph: &Path) -> Folders {
    Folders { graph: graph.into(), ..Folders::default() }
}

fn writer(folder: &Path, rotation: Rotation) -> RecordingWriter {
    let spec = PortSpec::new(DType::U8, [Dim::AtMost(1 << 20)]);
    let channels = vec![channel(&spec, None, Schemas::Foxglove)];
    RecordingWriter::new(&folders(folder), "r.mcap", false, rotation, channels, BTreeMap::new(), 0).unwrap()
}

fn bytes(length: usize, salt: u8) -> Tensor {
    tensor(&PortSpec::new(DType::U8, [Dim::AtMost(1 << 20)]), length, salt)
}

/// Reads the sequence numbers of a recording, and what cannot be read.
fn sequences(file: &[u8]) -> (Vec<u32>, super::reader::Unreadable) {
    let mut reader = RecordingReader::new(file, file.len() as u64).unwrap();
    let mut found = Vec::new();
    while let Some(message) = reader.next_message().unwrap() {
        found.push(message.header.sequence);
    }
    (found, reader.unreadable().clone())
}

/// Promise (files): A recording that is cut at any byte is read up to its last whole message.
#[test]
fn a_cut_file_gives_every_message_that_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Rotation::default());
    for seq in 0..16 {
        writer.write(0, &bytes(3600, seq as u8), seq, STAMP, STAMP + seq, seq).unwrap();
        if seq % 4 == 3 {
            writer.flush_due(u64::MAX).unwrap();
        }
    }
    writer.finish(0).unwrap();
    let file = std::fs::read(folder.path().join("r.mcap")).unwrap();
    assert!((60_000..70_000).contains(&file.len()), "{}", file.len());
    assert_eq!(sequences(&file).0, (0..16).collect::<Vec<u32>>());
    assert_eq!(sequences(&file).1, super::reader::Unreadable::default());
    let mut before = 0;
    for cut in mcap::MAGIC.len()..file.len() {
        let (found, unreadable) = sequences(&file[..cut]);
        assert!(found.iter().copied().eq(0..found.len() as u32), "cut at {cut}: {found:?}");
        assert!(found.len() >= before, "cut at {cut}");
        assert!(unreadable.is_cut && unreadable.bytes < 4000, "cut at {cut}: {unreadable:?}");
        before = found.len();
    }
    assert_eq!(before, 16);
    assert!(RecordingReader::new(&file[..7], 7).is_err());
}

/// Promise (files): A damaged byte of a recording is detected, and damage to one chunk costs no
/// message of another.
///
/// Whatever byte of a finished file is damaged: the messages are all there and right, or the reader
/// says that something is not. Damage to one chunk costs no message of another, though only the
/// first defines the channels.
#[test]
fn damage_is_found_or_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Rotation::default());
    for seq in 0..16 {
        writer.write(0, &bytes(200, seq as u8), seq, STAMP, STAMP + seq, seq).unwrap();
        if seq % 4 == 3 {
            writer.flush_due(u64::MAX).unwrap();
        }
    }
    writer.finish(0).unwrap();
    let file = std::fs::read(folder.path().join("r.mcap")).unwrap();
    let read = |file: &[u8]| {
        let mut reader = RecordingReader::new(file, file.len() as u64).unwrap();
        let mut found = Vec::new();
        while let Some(message) = reader.next_message().unwrap() {
            found.push((message.header.sequence, message.header.log_time, message.data.to_vec()));
        }
        (found, reader.unreadable().clone())
    };
    let (whole, intact) = read(&file);
    assert_eq!((whole.len(), intact), (16, super::reader::Unreadable::default()));
    let mut first_chunk = 0;
    for at in mcap::MAGIC.len()..file.len() {
        for bit in [0, 6] {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            let (found, unreadable) = read(&damaged);
            assert!(found == whole || unreadable.places > 0, "byte {at}, bit {bit}: {} messages", found.len());
            if found == whole[4..] {
                first_chunk += 1;
            }
        }
    }
    // Damage to the data of the first four messages loses these alone.
    assert!(first_chunk > 4 * 200, "{first_chunk}");
}

/// Promise (files): A recording is readable at whatever moment its process ends.
#[test]
fn a_file_is_readable_after_every_message() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Rotation::default());
    for seq in 0..80 {
        let length = [10, 50_000, 300_000, 15_000, 600_000][seq as usize % 5];
        writer.write(0, &bytes(length, seq as u8), seq, STAMP, STAMP + seq, seq).unwrap();
        let (found, unreadable) = sequences(&std::fs::read(folder.path().join("r.mcap")).unwrap());
        assert!(found.iter().copied().eq(0..found.len() as u32), "{found:?}");
        assert!(found.len() as u64 > seq || length < 262_144, "{seq}: {}", found.len());
        assert_eq!((unreadable.places, unreadable.is_cut), (0, true), "{seq}: {unreadable:?}");
    }
}

/// Blocks are reserved ahead, do not count as the file's length, and are given back.
#[test]
fn a_finished_file_takes_no_more_room_than_it_needs() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Rotation::default());
    for seq in 0..20 {
        writer.write(0, &bytes(1 << 20, seq as u8), seq, STAMP, STAMP + seq, seq).unwrap();
    }
    let found = || std::fs::metadata(folder.path().join("r.mcap")).unwrap();
    let (length, blocks) = (found().len(), found().blocks() * 512);
    assert!((20 << 20..21 << 20).contains(&length), "{length}");
    // Not every file system can.
    let system = nix::sys::statfs::statfs(folder.path()).unwrap().filesystem_type();
    assert!(
        system != nix::sys::statfs::EXT4_SUPER_MAGIC || blocks >= length + (1 << 20),
        "{blocks} for {length} bytes"
    );
    writer.finish(0).unwrap();
    let (length, blocks) = (found().len(), found().blocks() * 512);
    assert!(blocks <= length + (64 << 10), "{blocks} for {length} bytes");
    assert_eq!(sequences(&std::fs::read(folder.path().join("r.mcap")).unwrap()).0.len(), 20);
}

/// What the crate `mcap` finds by the index is what was recorded.
#[test]
fn others_find_every_message_by_the_index() {
    let bytes = PortSpec::new(DType::U8, [Dim::AtMost(1 << 20)]);
    let halves = PortSpec::new(DType::F16, [Dim::AtMost(1 << 18)]);
    let cases = [
        (bytes.clone(), None),
        (bytes.clone().with_content(Content::Bytes), Some(Meaning::CompressedImage)),
        (halves, None),
        (PortSpec::image(300, 400, 3), None),
        (bytes.with_content(Content::Text), None),
    ];
    for schemas in [Schemas::Foxglove, Schemas::Ros2] {
        let channels = || {
            let channel = |(at, (spec, meaning)): (usize, &(PortSpec, Option<Meaning>))| {
                let mut channel = channel(spec, *meaning, schemas);
                channel.topic = format!("/{at}");
                channel
            };
            cases.iter().enumerate().map(channel).collect::<Vec<_>>()
        };
        let folder = tempfile::tempdir().unwrap();
        let folders = folders(folder.path());
        let (rotation, metadata) = (Rotation::default(), BTreeMap::from([("key".to_string(), "value".to_string())]));
        let mut writer = RecordingWriter::new(&folders, "r.mcap", true, rotation, channels(), metadata, 0).unwrap();
        let mut expected = Vec::new();
        for seq in 0..200 {
            let at = seq as usize % cases.len();
            let length = [0, 30, 1000, 16_000, 40_000, 262_144][seq as usize / cases.len() % 6];
            let tensor = tensor(&cases[at].0, length, seq as u8);
            writer.write(at, &tensor, seq, STAMP, STAMP + seq, 0).unwrap();
            let mut message = Vec::new();
            channels()[at].encode(&tensor, STAMP, &mut message).unwrap();
            expected.push((format!("/{at}"), seq as u32, STAMP + seq, STAMP, message));
        }
        writer.finish(0).unwrap();
        let file = std::fs::read(folder.path().join("r.mcap")).unwrap();
        let summary = mcap::Summary::read(&file).unwrap().unwrap();
        let statistics = summary.stats.as_ref().unwrap();
        assert_eq!((statistics.message_count, statistics.metadata_count), (200, 1));
        assert_eq!((statistics.message_start_time, statistics.message_end_time), (STAMP, STAMP + 199));
        assert_eq!(statistics.chunk_count as usize, summary.chunk_indexes.len());
        assert!(statistics.channel_message_counts.values().eq(&[40; 5]));
        assert_eq!((summary.channels.len(), summary.schemas.len()), (5, statistics.schema_count as usize));
        assert_eq!(mcap::read::metadata(&file, &summary.metadata_indexes[0]).unwrap().metadata["key"], "value");
        let found = |message: mcap::Message<'_>| {
            let mcap::Message { channel, sequence, log_time, publish_time, data } = message;
            (channel.topic.clone(), sequence, log_time, publish_time, data.into_owned())
        };
        let mut by_index = Vec::new();
        for chunk in summary.chunk_indexes.iter().filter(|chunk| !chunk.message_index_offsets.is_empty()) {
            for entry in summary.read_message_indexes(&file, chunk).unwrap().values().flatten() {
                by_index.push(found(summary.seek_message(&file, chunk, entry).unwrap()));
            }
        }
        by_index.sort_by_key(|message| message.1);
        assert!(by_index == expected, "{schemas:?}: {} messages by the index", by_index.len());
        let in_order: Vec<_> =
            mcap::MessageStream::new(&file).unwrap().map(|message| found(message.unwrap())).collect();
        assert!(in_order == expected, "{schemas:?}: {} messages in order", in_order.len());
    }
}

/// Promise (files): A damaged index of a recording is detected, or does not change what is read.
#[test]
fn an_index_that_leads_astray_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Rotation::default());
    for seq in 0..9 {
        writer.write(0, &bytes(40, seq as u8), seq, STAMP, STAMP + seq, seq).unwrap();
        if seq % 3 == 2 {
            writer.flush_due(u64::MAX).unwrap();
        }
    }
    writer.finish(0).unwrap();
    let mut file = std::fs::read(folder.path().join("r.mcap")).unwrap();
    let crc = file.len() - mcap::MAGIC.len() - 4;
    file[crc..crc + 4].fill(0);
    let seek = |file: &[u8]| -> Result<Vec<_>, mcap::McapError> {
        let summary = mcap::Summary::read(file)?.expect("an index");
        let mut found = Vec::new();
        for chunk in summary.chunk_indexes.iter().filter(|chunk| !chunk.message_index_offsets.is_empty()) {
            for entry in summary.read_message_indexes(file, chunk)?.values().flatten() {
                let message = summary.seek_message(file, chunk, entry)?;
                found.push((message.sequence, message.log_time, message.channel.topic.clone(), message.data.to_vec()));
            }
        }
        found.sort();
        Ok(found)
    };
    let fault = |file: &[u8]| {
        let mut reader = RecordingReader::new(file, file.len() as u64).unwrap();
        let mut messages = 0;
        while reader.next_message().unwrap().is_some() {
            messages += 1;
        }
        match reader.unreadable() {
            unreadable if unreadable.places > 0 || unreadable.is_cut => Some((0, "unreadable".to_string())),
            _ => index_fault(BufReader::new(Cursor::new(file)), file.len() as u64, &reader, messages).unwrap(),
        }
    };
    let whole = seek(&file).unwrap();
    assert_eq!((whole.len(), fault(&file)), (9, None));
    let mut led_astray = 0;
    for at in mcap::MAGIC.len()..file.len() {
        for bit in [0, 2, 7] {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            let found = fault(&damaged);
            led_astray += usize::from(found.as_ref().is_some_and(|(_, why)| why != "unreadable"));
            if found.is_none() {
                assert!(seek(&damaged).is_ok_and(|found| found == whole), "byte {at}, bit {bit} of {}", file.len());
            }
        }
    }
    // With chunks in it, an index has their channels and schemas.
    for (channels, schemas, chunks, is_whole) in
        [(true, true, true, true), (false, true, true, false), (true, false, true, false), (false, false, false, true)]
    {
        let mut cursor = Cursor::new(Vec::new());
        let options = mcap::WriteOptions::new().repeat_channels(channels).repeat_schemas(schemas);
        let mut writer = options.emit_chunk_indexes(chunks).create(&mut cursor).unwrap();
        let schema = writer.add_schema("s", "jsonschema", b"{}").unwrap();
        let channel = writer.add_channel(schema, "/t", "json", &BTreeMap::new()).unwrap();
        let header = mcap::records::MessageHeader { channel_id: channel, sequence: 0, log_time: 1, publish_time: 1 };
        writer.write_to_known_channel(&header, b"{}").unwrap();
        writer.finish().unwrap();
        drop(writer);
        assert_eq!(fault(&cursor.into_inner()).is_none(), is_whole, "{channels} {schemas} {chunks}");
    }
    // A record that no index has may hold anything, also an attachment that is cut.
    let mut odd = file.clone();
    let footer = file.len() - mcap::MAGIC.len() - 29;
    odd.splice(footer..footer, [&[0x09, 32, 0, 0, 0, 0, 0, 0, 0][..], &[0; 32]].concat());
    assert_eq!(fault(&odd), None);
    // Reading from the beginning does not find these.
    assert!(led_astray > 300, "{led_astray}");
}

/// Promise (files): The memory for the schemas of a recording is bounded; further schemas are
/// skipped and counted.
#[test]
fn definitions_take_bounded_memory() {
    let record = |opcode: u8, body: &[u8]| [&[opcode][..], &(body.len() as u64).to_le_bytes(), body].concat();
    let schema = |id: u16, length: usize| {
        let text = |text: &[u8]| [&(text.len() as u32).to_le_bytes()[..], text].concat();
        record(0x03, &[&id.to_le_bytes()[..], &text(b"s"), &text(b"e"), &text(&vec![b'x'; length])].concat())
    };
    let begin = [mcap::MAGIC, &record(0x01, &[0; 8])[..]].concat();
    for (count, length, unreadable) in [(4096, 0, 0), (4097, 0, 1), (4100, 0, 4), (9, 8 << 20, 2)] {
        let mut file = begin.clone();
        (1..=count).for_each(|id| file.extend(schema(id, length)));
        let mut reader = RecordingReader::new(&file[..], file.len() as u64).unwrap();
        while reader.next_message().unwrap().is_some() {}
        assert_eq!(
            reader.unreadable().places,
            unreadable,
            "{count} schemas of {length} bytes: {:?}",
            reader.unreadable()
        );
    }
}

#[test]
fn files_follow_each_other_and_none_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("r-0002.mcap"), "precious").unwrap();
    for run in 0..2 {
        let rotation = Rotation { size: Some(Bytes(1 << 20)), time: None };
        let mut writer = writer(folder.path(), rotation);
        for seq in 0..30 {
            writer.write(0, &bytes(100_000, seq as u8), seq, STAMP, STAMP, seq).unwrap();
        }
        writer.finish(0).unwrap();
        assert_eq!((writer.messages, writer.file_count), (30, 3), "run {run}");
    }
    let mut names: Vec<String> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expected = ["r-0002.mcap", "r-0003.mcap", "r-0004.mcap", "r-0005.mcap", "r-0006.mcap", "r-0007.mcap", "r.mcap"];
    assert_eq!(names, expected);
    assert_eq!(std::fs::read_to_string(folder.path().join("r-0002.mcap")).unwrap(), "precious");
    let mut found = Vec::new();
    for name in ["r.mcap", "r-0003.mcap", "r-0004.mcap"] {
        let (sequences, unreadable) = sequences(&std::fs::read(folder.path().join(name)).unwrap());
        assert_eq!(unreadable, super::reader::Unreadable::default());
        found.extend(sequences);
    }
    assert_eq!(found, (0..30).collect::<Vec<u32>>());
}

#[test]
fn a_file_ends_after_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation { size: None, time: Some(Span(Duration::from_secs(1))) };
    let mut writer = writer(folder.path(), rotation);
    for (seq, tenths) in [0, 9, 10, 19, 20, 45].into_iter().enumerate() {
        writer.write(0, &bytes(10, 1), seq as u64, STAMP, STAMP, tenths * 100_000_000).unwrap();
    }
    writer.finish(0).unwrap();
    let read = |name: &str| sequences(&std::fs::read(folder.path().join(name)).unwrap()).0;
    let files = ["r.mcap", "r-0002.mcap", "r-0003.mcap", "r-0004.mcap"].map(read);
    assert_eq!(files, [vec![0, 1], vec![2, 3], vec![4], vec![5]]);
}

/// Promise (files): A recorded message is in the file after half a second, even if the file is not
/// finished.
#[test]
fn a_message_waits_half_a_second_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Rotation::default());
    let read = || sequences(&std::fs::read(folder.path().join("r.mcap")).unwrap()).0;
    assert_eq!(writer.due(), u64::MAX);
    writer.write(0, &bytes(10, 1), 0, STAMP, STAMP, 1_000).unwrap();
    writer.write(0, &bytes(10, 2), 1, STAMP, STAMP, 400_000_000).unwrap();
    assert_eq!(writer.due(), 500_001_000);
    writer.flush_due(500_000_999).unwrap();
    assert_eq!(read(), [0u32; 0]);
    writer.flush_due(500_001_000).unwrap();
    assert_eq!((read(), writer.due()), (vec![0, 1], u64::MAX));
    // A MiB does not wait.
    for seq in 2..13 {
        writer.write(0, &bytes(100_000, 3), seq, STAMP, STAMP, 600_000_000).unwrap();
    }
    assert_eq!((read().len(), writer.due()), (13, u64::MAX));
}
