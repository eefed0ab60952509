//! Recordings that were not written for limen: times that jump, messages that do not fit, parts
//! that cannot be read.

use super::run;
use limen::{Clock, EventKind, SimulatedClock, Time, Turned};
use mcap::records::MessageHeader;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const MS: u64 = 1_000_000;
/// When the recording begins, ns since 1970.
const BEGIN: u64 = 1_700_000_000_000_000_000;

/// Writes points of ROS 2 with their stamps: `(log time, stamp, value)`.
fn record(path: &Path, messages: &[(u64, u64, f64)]) {
    let messages: Vec<_> =
        messages.iter().map(|(log_time, stamp, value)| (0, *log_time, *stamp, vec![*value, 0.0, 0.0])).collect();
    record_topics(path, &[("/p", "PointStamped")], &messages);
}

/// Writes messages of ROS 2 with their stamps, `(topic, log time, stamp, numbers)`; a topic has a
/// name and a type of `geometry_msgs`.
fn record_topics(path: &Path, topics: &[(&str, &str)], messages: &[(usize, u64, u64, Vec<f64>)]) {
    let mut writer = mcap::WriteOptions::new()
        .compression(None)
        .chunk_size(Some(64))
        .create(fs::File::create(path).unwrap())
        .unwrap();
    let mut channels = Vec::new();
    for (name, schema) in topics {
        let schema = writer.add_schema(&format!("geometry_msgs/msg/{schema}"), "ros2msg", b"").unwrap();
        channels.push(writer.add_channel(schema, name, "cdr", &BTreeMap::new()).unwrap());
    }
    for (topic, log_time, stamp, numbers) in messages {
        // The header of CDR, a stamp, an empty frame, and numbers that are aligned behind that
        // header.
        let mut data = vec![0, 1, 0, 0];
        data.extend(((stamp / 1_000_000_000) as i32).to_le_bytes());
        data.extend(((stamp % 1_000_000_000) as u32).to_le_bytes());
        data.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        numbers.iter().for_each(|number| data.extend(number.to_le_bytes()));
        let channel_id = channels[*topic];
        let header = MessageHeader { channel_id, sequence: 0, log_time: *log_time, publish_time: *log_time };
        writer.write_to_known_channel(&header, &data).unwrap();
    }
    writer.finish().unwrap();
}

/// Courses of 359 and 1 degrees have the mean 180, and four numbers may be a quaternion.
#[test]
fn angles_of_decode_are_refused_or_noted() {
    let folder = tempfile::tempdir().unwrap();
    let planned = |format: &str, field: &str| {
        let graph = format!(
            "
  s: {{ kind: stdin, config: {{ max_bytes: 128B }} }}
  d: {{ kind: decode, from: s, config: {{ {format}, fields: [{{ {field}, type: f64 }}] }} }}
  t: {{ kind: timer, config: {{ rate: 10Hz }} }}
  o: {{ kind: jsonl, inputs: {{ at: t, d: d }}, config: {{ path: o.jsonl }},
       join: {{ policy: by_time, within: 1s, anchor: at, pick: interpolate, patience: 16 }} }}"
        );
        let notes =
            |plan: limen::Plan| plan.nodes().iter().flat_map(|node| node.notes.clone()).collect::<Vec<_>>().join("\n");
        super::plan(folder.path(), &graph).map_or_else(|problems| problems, notes)
    };
    let (rmc, json) = ("format: nmea, sentence: rmc", "format: json");
    for (format, field, expected) in [
        (rmc, "name: way, path: course", "`d` cannot be interpolated: f64[] has an angle"),
        (rmc, "name: speed", ""),
        (json, "name: q, repeat: 4", "interpolates the four numbers of `d` one by one"),
        (json, "name: x, repeat: 3", ""),
        (json, "name: yaw, unit: rad", "`d` cannot be interpolated: f64[] has an angle"),
        (json, "name: heading", "interpolates `d` as plain numbers, such as 180 between 359 and 1 degrees"),
        (json, "name: yaw, path: pose.yaw", "interpolates `d` as plain numbers"),
        (json, "name: yaw, unit: deg/s", ""),
        (json, "name: p, path: pose.yaw", "interpolates `d` as plain numbers"),
        (json, "name: p, path: 'pose[\"yaw\"]', unit: rad", "`d` cannot be interpolated: f64[] has an angle"),
        (json, "name: p, path: 'course[0]'", "interpolates `d` as plain numbers"),
        (json, "name: p, path: course.x", ""),
        (json, "name: p, path: pose.yaw, unit: m", ""),
    ] {
        let said = planned(format, field);
        assert!(said.contains(expected) && said.contains("interpolate") != expected.is_empty(), "{field}: {said}");
    }
}

/// Numbers that lose their names in another shape are no less an angle.
#[test]
fn angles_stay_angles_in_another_shape() {
    let folder = tempfile::tempdir().unwrap();
    for (field, is_refused) in [("name: yaw, unit: rad", true), ("name: x, unit: rad", false)] {
        for node in ["kind: reshape, config: { shape: [1] }, from: d", "kind: stack, inputs: { a: d, b: d }"] {
            let graph = format!(
                "
  s: {{ kind: stdin, config: {{ max_bytes: 128B }} }}
  d: {{ kind: decode, from: s, config: {{ format: json, fields: [{{ {field}, type: f64 }}] }} }}
  n: {{ {node} }}
  t: {{ kind: timer, config: {{ rate: 10Hz }} }}
  o: {{ kind: jsonl, inputs: {{ at: t, y: n }}, config: {{ path: o.jsonl }},
       join: {{ policy: by_time, within: 1s, anchor: at, pick: interpolate, patience: 16 }} }}"
            );
            let said = super::plan(folder.path(), &graph).map_or_else(|problems| problems, |_| String::new());
            assert_eq!(said.contains("has an angle"), is_refused, "{field}, {node}: {said}");
            assert_eq!(said.is_empty(), !is_refused, "{field}, {node}: {said}");
        }
    }
}

/// A formula keeps what its input is as long as its result is an angle, too.
#[test]
fn a_formula_is_interpolated_unless_its_result_is_an_angle() {
    let folder = tempfile::tempdir().unwrap();
    for (input, formula, is_refused) in [
        ("name: yaw, unit: rad", "x", true),
        ("name: yaw, unit: rad", "-x + pi", true),
        ("name: yaw, unit: rad", "deg(x)", true),
        ("name: yaw, unit: rad", "if(sin(x) > 0, x, 0)", true),
        ("name: yaw, unit: rad", "sin(x)", false),
        ("name: yaw, unit: rad", "2 * cos(x / 2) + 1", false),
        ("name: yaw, unit: rad", "if(x > 0, 1, 0)", false),
        ("name: yaw, unit: rad", "atan2(sin(x), cos(x))", true),
        ("name: n, unit: m", "atan2(x, 2)", true),
        ("name: n, unit: m", "sin(atan2(x, 2))", false),
        ("name: n, unit: m", "x * 2", false),
    ] {
        let graph = format!(
            "
  s: {{ kind: stdin, config: {{ max_bytes: 128B }} }}
  d: {{ kind: decode, from: s, config: {{ format: json, fields: [{{ {input}, type: f64 }}] }} }}
  m: {{ kind: map, inputs: {{ x: d }}, config: {{ outputs: {{ y: '{formula}' }} }} }}
  t: {{ kind: timer, config: {{ rate: 10Hz }} }}
  o: {{ kind: jsonl, inputs: {{ at: t, y: m }}, config: {{ path: o.jsonl }},
       join: {{ policy: by_time, within: 1s, anchor: at, pick: interpolate, patience: 16 }} }}"
        );
        let said = super::plan(folder.path(), &graph).err().unwrap_or_default();
        let why = "`y` cannot be interpolated: f64[] has an angle";
        assert_eq!((said.contains(why), said.is_empty()), (is_refused, !is_refused), "{formula}: {said}");
    }
}

/// The mark of a quaternion goes as far as its numbers are those of an orientation.
#[test]
fn a_pose_that_is_scaled_or_mixed_with_numbers_is_not_interpolated() {
    let folder = tempfile::tempdir().unwrap();
    let messages = [(0, BEGIN, BEGIN, vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), (1, BEGIN, BEGIN, vec![0.0; 3])];
    record_topics(&folder.path().join("drive.mcap"), &[("/pose", "PoseStamped"), ("/p", "PointStamped")], &messages);
    let numbers = "{ kind: synthetic, config: { pattern: noise, shape: [7], dtype: f64, count: 1 } }";
    for (node, is_refused) in [
        ("kind: pass, from: r/pose", false),
        ("kind: cast, from: r/pose, config: { dtype: f32 }", false),
        ("kind: cast, from: r/pose, config: { dtype: f64, scale: 2 }", true),
        ("kind: cast, from: r/pose, config: { dtype: f64, offset: 1 }", true),
        ("kind: merge, inputs: { a: r/pose, b: r/pose }", false),
        ("kind: merge, inputs: { a: r/pose, b: n }", true),
        ("kind: merge, inputs: { a: n, b: r/pose }", true),
    ] {
        let numbers =
            if node.contains(" n ") || node.contains(" n,") { format!("\n  n: {numbers}") } else { String::new() };
        let graph = format!(
            "
  r: {{ kind: replay, config: {{ path: drive.mcap, pace: max }} }}{numbers}
  s: {{ {node} }}
  out:
    kind: jsonl
    inputs: {{ p: r/p, pose: s }}
    join: {{ policy: by_time, within: 100ms, anchor: p, pick: interpolate, patience: 16 }}
    config: {{ path: out.txt }}"
        );
        let said = super::plan(folder.path(), &graph).err().unwrap_or_default();
        let why = "`pose` cannot be interpolated";
        assert_eq!((said.contains(why), said.is_empty()), (is_refused, !is_refused), "{node}: {said}");
    }
}

/// A robot that turns by 6 degrees every 100 ms, past 180 degrees, where the numbers of its
/// orientation change their sign.
#[test]
fn a_pose_between_two_is_interpolated_on_the_sphere() {
    let folder = tempfile::tempdir().unwrap();
    let yaw = |degrees: f64| {
        let half = degrees.to_radians() / 2.0;
        [half.sin(), half.cos()]
    };
    let mut messages = Vec::new();
    for n in 0..6u64 {
        let (time, degrees) = (BEGIN + n * 100 * MS, (350.0 + 6.0 * n as f64) % 360.0 - 180.0);
        let [z, w] = yaw(degrees);
        messages.push((0, time, time, vec![n as f64, 0.0, 0.0, 0.0, 0.0, z, w]));
        if n < 5 {
            messages.push((1, time + 50 * MS, time + 50 * MS, vec![0.0; 3]));
        }
    }
    record_topics(&folder.path().join("drive.mcap"), &[("/pose", "PoseStamped"), ("/p", "PointStamped")], &messages);
    let graph = "
  r: { kind: replay, config: { path: drive.mcap, pace: max } }
  out:
    kind: jsonl
    inputs: { p: r/p, pose: r/pose }
    join: { policy: by_time, within: 100ms, anchor: p, pick: interpolate, patience: 16 }
    config: { path: out.txt }";
    let report = run(folder.path(), graph);
    let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
    assert_eq!(text.lines().count(), 5, "{text} {:?}", report.notes);
    for (n, line) in text.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let pose: Vec<f64> = line["pose"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect();
        let ([z, w], norm) = (yaw(173.0 + 6.0 * n as f64), pose[3..].iter().map(|n| n * n).sum::<f64>().sqrt());
        assert!((pose[0] - (n as f64 + 0.5)).abs() < 1e-9 && (norm - 1.0).abs() < 1e-12, "{pose:?}");
        assert!(((pose[5] * z + pose[6] * w).abs() - 1.0).abs() < 1e-12, "{pose:?}, expected {z} {w}");
    }
    // Beside other numbers and after a change of shape, its place is not known.
    for change in [
        "{ kind: concat, inputs: { p: r/p, pose: r/pose } }",
        "{ kind: window, from: r/pose, config: { length: 1, tail: drop } }",
        "{ kind: slice, from: r/pose, config: { step: -1 } }",
        "{ kind: map, inputs: { p: r/pose }, config: { outputs: { y: 'p + 1' } } }",
    ] {
        let changed = format!("{}\n  changed: {change}", graph.replace("pose: r/pose }", "pose: changed }"));
        let problems = super::plan(folder.path(), &changed).expect_err(change);
        assert!(problems.contains("has an angle, or an orientation at an unknown position"), "{problems}");
    }
    // Of three numbers, one is an angle.
    record_topics(&folder.path().join("drive.mcap"), &[("/pose", "Pose2DStamped"), ("/p", "PointStamped")], &messages);
    let problems = super::plan(folder.path(), graph).expect_err("refused");
    assert!(problems.contains("has an angle, or an orientation at an unknown position"), "{problems}");
}

#[test]
fn silences_are_shortened_and_a_clock_that_was_set_back_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let hour = 3_600_000 * MS;
    let times = [BEGIN, BEGIN + 10 * MS, BEGIN + hour, BEGIN + hour + 10 * MS, BEGIN - hour, BEGIN - hour + 10 * MS];
    let messages: Vec<_> = times.iter().zip(0..).map(|(time, value)| (*time, *time, f64::from(value))).collect();
    record(&folder.path().join("r.mcap"), &messages);
    let graph = "
  bag: { kind: replay, config: { path: r.mcap, max_gap: 50ms } }
  out: { kind: jsonl, from: bag/p, config: { path: out.txt } }";
    let report = run(folder.path(), graph);
    let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
    assert_eq!(text.lines().count(), 6, "{text}");
    for expected in
        ["1 gap longer than 50ms was shortened", "because the recorded time steps back by more than a second: 1"]
    {
        assert!(report.notes.iter().any(|note| note.contains(expected)), "{expected}: {:?}", report.notes);
    }
}

/// Promise (joins): A clock step within a recording costs a join by time no pair.
#[test]
fn pairs_are_made_on_both_sides_of_a_step_of_the_clock() {
    // `/a` and `/b` at 10 Hz, 3 ms apart. By how many ms the log and the stamps of both are set
    // back every 2 s, by how many `/b` is logged late, and how often a clock is set back.
    for (case, log_back, stamps_back, late, steps) in [
        ("the recorder's clock", 5_000, [5_000, 5_000], 0, 2),
        ("by little more than a second", 1_300, [1_300, 1_300], 0, 2),
        ("the stamps are of another clock", 5_000, [0, 0], 0, 2),
        ("one of them", 5_000, [5_000, 0], 0, 2),
        ("only the stamps", 0, [5_000, 5_000], 0, 2),
        ("one topic is late", 0, [0, 0], 1_500, 0),
        ("one topic is late, and the clock is set back", 5_000, [5_000, 5_000], 1_500, 2),
        ("nothing", 0, [0, 0], 0, 0),
    ] {
        let mut messages = Vec::new();
        for n in 0..60u64 {
            for (at, offset) in [0, 3].into_iter().enumerate() {
                let (made, logged) = (100 * n + offset, 100 * n + offset + at as u64 * late);
                let set_back = |time: u64, by: u64| BEGIN + time * MS - (time / 2_000).min(2) * by * MS;
                let (log, stamp) = (set_back(logged, log_back), set_back(made, stamps_back[at]));
                messages.push((logged, (at, log, stamp, vec![n as f64, 0.0, 0.0])));
            }
        }
        messages.sort_by_key(|(logged, _)| *logged);
        let messages: Vec<_> = messages.into_iter().map(|(_, message)| message).collect();
        for pace in ["original", "max"] {
            let folder = tempfile::tempdir().unwrap();
            let topics = [("/a", "PointStamped"), ("/b", "PointStamped")];
            record_topics(&folder.path().join("r.mcap"), &topics, &messages);
            let graph = format!(
                "
  bag: {{ kind: replay, config: {{ path: r.mcap, pace: {pace} }} }}
  out:
    kind: jsonl
    inputs: {{ a: bag/a, b: bag/b }}
    join: {{ policy: by_time, within: 10ms, anchor: a, patience: 20 }}
    config: {{ path: out.txt }}"
            );
            let plan = super::plan(folder.path(), &graph).unwrap_or_else(|problems| panic!("{problems}"));
            let clock = SimulatedClock::new(Time(1_000_000_000));
            let mut driven = plan.wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
            let mut told = 0;
            loop {
                match driven.turn() {
                    Turned::Worked => clock.advance(1_000),
                    Turned::Idle(time) => clock.advance_to(time.max(clock.now() + 1_000)),
                    Turned::Ended => break,
                }
                for event in driven.events() {
                    let EventKind::SteppedBack { count, .. } = event.kind else { continue };
                    told += count;
                }
            }
            let report = driven.finish();
            let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
            let pairs: Vec<(&str, &str)> = text
                .lines()
                .filter_map(|line| {
                    let (a, b) = line.split_once("\"b\":[")?;
                    Some((a.split_once("[")?.1.split(',').next()?, b.split(',').next()?))
                })
                .collect();
            let numbers: Vec<String> = (0..60).map(|n| n.to_string()).collect();
            let expected: Vec<_> = numbers.iter().map(|n| (n.as_str(), n.as_str())).collect();
            assert_eq!(pairs, expected, "{case}, {pace}: {:?}", report.notes);
            assert_eq!(report.metric("bag.clock_steps"), Some(f64::from(steps)), "{case}, {pace}");
            if pace == "original" {
                assert_eq!(told, u64::try_from(steps).unwrap(), "{case}");
            }
        }
    }
}

/// By the stamps in the messages, points that were logged together are apart; by the times of the
/// log they are not.
#[test]
fn origins_are_stamps_or_times_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let day = 86_400_000 * MS;
    let messages = [(BEGIN, BEGIN, 0.0), (BEGIN, BEGIN + 7 * MS, 1.0), (BEGIN, BEGIN + 3 * day, 2.0)];
    record(&folder.path().join("r.mcap"), &messages);
    for (stamps, distances) in [("header", [7 * MS, 0]), ("log", [0, 0])] {
        let graph = format!(
            "
  bag: {{ kind: replay, config: {{ path: r.mcap, pace: max, stamps: {stamps} }} }}
  z: {{ kind: outlet, from: bag/p }}"
        );
        let mut wired =
            super::plan(folder.path(), &graph).unwrap_or_else(|problems| panic!("{problems}")).wire().unwrap();
        let mut outlet = wired.outlet::<limen::Tensor>("z").unwrap();
        let running = wired.start().unwrap();
        let mut origins = Vec::new();
        while let Ok(message) = outlet.recv() {
            origins.push(message.header().origin.0);
        }
        let report = running.wait();
        assert_eq!([origins[1] - origins[0], origins[2] - origins[0]], distances, "{stamps}");
        // A stamp days away is of another clock.
        let is_told = report.notes.iter().any(|note| note.contains("differ from the log time by more than a day: 1"));
        assert_eq!(is_told, stamps == "header", "{:?}", report.notes);
    }
}

/// A chunk whose bytes do not agree with its checksum is counted, and what is around it is sent.
#[test]
fn what_cannot_be_read_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.mcap");
    let messages: Vec<_> = (0..5).map(|n| (BEGIN + n * MS, BEGIN + n * MS, 10.0 + n as f64)).collect();
    record(&path, &messages);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(8).position(|found| found == 12f64.to_le_bytes()).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let graph = "
  bag: { kind: replay, config: { path: r.mcap, pace: max } }
  out: { kind: jsonl, from: bag/p, config: { path: out.txt } }";
    let report = run(folder.path(), graph);
    let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
    let found: Vec<&str> = text.lines().filter_map(|line| line.split_once("[")?.1.split(',').next()).collect();
    assert_eq!(found, ["10", "11", "13", "14"], "{text}");
    let metric = |name: &str| report.metric(&format!("bag.{name}"));
    assert_eq!((metric("unreadable"), metric("malformed"), metric("oversized")), (Some(1.0), Some(0.0), Some(0.0)));
    assert!(metric("unreadable_bytes").is_some_and(|bytes| bytes >= 64.0));
}
