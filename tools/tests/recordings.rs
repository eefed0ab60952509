//! Recordings of graphs: what is recorded replays the same, a full disk loses what is counted, and
//! mistakes are named.

use crate::program::Folder;
use limen_recording::reader::RecordingReader;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// A graph of two sources whose edges are written as JSON Lines.
const GRAPH: &str = "
version: 1
run: { record: { path: run.mcap, except: [noise] } }
nodes:
  cam: { kind: synthetic, config: { pattern: scenes, width: 64, height: 56, count: 12 } }
  noise: { kind: synthetic, config: { pattern: noise, shape: [3], dtype: f16, count: 20 } }
  boxes: { kind: jsonl, inputs: { v: cam/boxes }, config: { path: boxes.jsonl } }
  image: { kind: jsonl, inputs: { v: cam/image }, config: { path: image.jsonl } }
  other: { kind: 'null', from: noise }
";

#[test]
fn what_a_run_records_replays_the_same() {
    let folder = Folder::with("record", GRAPH);
    let read = |name: &str| fs::read(folder.0.join(name)).unwrap();
    let ran = folder.run("graph.yaml --json");
    let json = ran.expect(0, "", "").json();
    assert_eq!(json["metrics"]["record.recorded"], 24.0, "{}", ran.out);
    let replay = |pace: &str| {
        format!(
            "version: 1\nnodes:\n  bag: {{ kind: replay, config: {{ path: run.mcap, pace: {pace}, repeat: 2, topics: {{ p: /cam/image }} }} }}\n  \
             boxes: {{ kind: jsonl, inputs: {{ v: bag/cam.boxes }}, config: {{ path: boxes2.jsonl }} }}\n  \
             image: {{ kind: jsonl, inputs: {{ v: bag/p }}, config: {{ path: image2.jsonl }} }}\n  \
             shared: {{ kind: 'null', from: bag/p }}\n"
        )
    };
    for pace in ["max", "original", "50.0"] {
        fs::write(folder.0.join("replay.yaml"), replay(pace)).unwrap();
        let json = folder.run("replay.yaml --json").expect(0, "", "").json();
        assert_eq!((&json["degraded"], &json["bugs"]), (&false.into(), &serde_json::json!([])));
        for name in ["boxes", "image"] {
            let (once, twice) = (read(&format!("{name}.jsonl")), read(&format!("{name}2.jsonl")));
            assert!(twice.starts_with(&once), "{name} at {pace}");
            let (lines, again) = (String::from_utf8(once).unwrap(), String::from_utf8(twice).unwrap());
            let values = |text: &str| -> Vec<serde_json::Value> {
                text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["v"].clone()).collect()
            };
            // The second pass continues the sequence numbers.
            assert_eq!(values(&again), [values(&lines), values(&lines)].concat(), "{name} at {pace}");
            assert!(again.lines().last().unwrap().starts_with("{\"seq\":23,"), "{name} at {pace}");
        }
    }
    // A second run overwrites nothing.
    let before = read("run.mcap");
    folder.run("graph.yaml -q").expect(0, "", "");
    assert_eq!(read("run.mcap"), before);
    assert!(folder.0.join("run-0002.mcap").exists());
    folder.run("recover run.mcap").expect(0, "run.mcap is complete: 24 messages of 2 topics", "");
}

/// Promise (files): On a full disk, every recorded message is in the file, or counted as lost or
/// failed.
#[test]
fn a_full_disk_loses_what_is_counted() {
    let graph = |count: u32, rest: &str| {
        format!(
            "version: 1\nnodes:\n  noise: {{ kind: synthetic, config: {{ pattern: noise, shape: [100000], count: {count} }} }}\n  \
             rec: {{ kind: record, from: noise, config: {{ path: r.mcap }}{rest} }}\n"
        )
    };
    for (rest, code) in [("", 1), (", on_error: skip", 0)] {
        let folder = Folder::with("full-recording", &graph(60, rest));
        // In units of 512 bytes or of 1024: between 2 and 5 MB.
        let ran = folder.run_after("ulimit -f 4500", "graph.yaml --json");
        let json = ran.expect(code, "", "").json();
        let number = |key: &str| json["metrics"][format!("rec.{key}")].as_f64().unwrap() as u64;
        let node = json["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "rec").unwrap();
        let (done, failed) = (node["done"].as_u64().unwrap(), node["failed"].as_u64().unwrap());
        assert!(failed > 0 && number("recorded") > 10, "{}", ran.out);
        assert_eq!(number("recorded") + number("unwritten"), done, "{}", ran.out);
        assert_eq!(json["bugs"], serde_json::json!([]));
        let text = json["failures"][0]["message"]
            .as_str()
            .or(json["failures"][0]["text"].as_str())
            .unwrap_or_default()
            .to_string();
        assert!(text.contains("r.mcap: File too large") && text.contains("messages lost earlier: "), "{text}");
        // Nothing but whole chunks is left.
        folder.run("recover r.mcap").expect(0, " read back", "");
        let recovered = format!("{} messages of 1 topic", number("recorded"));
        if rest.is_empty() {
            folder.run("recover r-recovered.mcap").expect(0, &recovered, "");
        }
    }
}

/// The times at which the messages of a recording began, each less the first, ms.
fn origins(path: &Path) -> Vec<u64> {
    let file = fs::read(path).unwrap();
    let mut reader = RecordingReader::new(&file[..], file.len() as u64).unwrap();
    let mut times = Vec::new();
    while let Some(message) = reader.next_message().unwrap() {
        times.push(message.header.publish_time);
    }
    times.iter().map(|time| (time - times[0]) / 1_000_000).collect()
}

/// What goes by origins covers recorded time at `original` and `max`, what goes by the clock only
/// at `original`; otherwise the run says so.
#[test]
fn times_cover_as_much_of_a_recording_as_the_page_says() {
    let folder = Folder::with(
        "times",
        "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter, rate: 10Hz, count: 50 } }\n  \
         r: { kind: record, inputs: { v: a }, config: { path: r.mcap } }\n",
    );
    folder.run("graph.yaml --simulated -q").expect(0, "", "");
    let end = "  z: { kind: 'null', from: n }\n";
    for (nodes, figure, by_clock, expected) in [
        ("  n: { kind: throttle, config: { rate: 5Hz }, from: bag/v }\n", "z.messages", "", [25, 13, 25]),
        ("  n: { kind: debounce, config: { quiet: 60ms }, from: bag/v }\n", "z.messages", "`quiet` of `n`", [50, 1, 1]),
        (
            "  n: { kind: pass, from: { from: bag/v, expect_every: 60ms } }\n",
            "gaps",
            "`expect_every` of `n/in`",
            [49, 0, 0],
        ),
        (
            "  n: { kind: pass, fault: { delay: 60ms }, from: bag/v }\n",
            "missed",
            "the deadline of `bag` to `z`",
            [50, 50, 1],
        ),
    ] {
        for (pace, expected) in ["original", "2.0", "max"].into_iter().zip(expected) {
            let paths = if figure == "missed" { "paths: [{ from: bag, to: z, deadline: 50ms }]\n" } else { "" };
            let bag = format!("  bag: {{ kind: replay, config: {{ path: r.mcap, pace: {pace} }} }}\n");
            fs::write(folder.0.join("graph.yaml"), format!("version: 1\nnodes:\n{bag}{nodes}{end}{paths}")).unwrap();
            let ran = folder.run("graph.yaml --simulated --json");
            let json = ran.expect(0, "", "").json();
            assert_eq!(json["metrics"][figure], f64::from(expected), "{pace}, {nodes}");
            let notes = json["notes"].to_string();
            assert_eq!(notes.contains("covers 2 s of the recording"), pace == "2.0", "{nodes}{notes}");
            assert_eq!(ran.err.contains("covers 2 s of the recording"), pace == "2.0", "{nodes}{}", ran.err);
            let ahead = format!(
                "`bag` runs ahead of the clock, so these settings do not follow its recorded times: {by_clock}"
            );
            let is_noted = pace == "max" && !by_clock.is_empty();
            assert_eq!(notes.contains(&ahead), is_noted, "{pace}, {nodes}{notes}");
            assert_eq!(notes.contains("runs ahead of the clock"), is_noted, "{pace}, {nodes}{notes}");
        }
    }
}

/// Every source of recorded times says what no recorded time passes for, and every time that goes
/// by the clock is named.
#[test]
fn times_by_the_clock_are_noted_behind_every_recording() {
    let folder = Folder::with(
        "by-clock",
        "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter, shape: [2], dtype: f32, rate: 10Hz, count: 5 } }\n  \
         r: { kind: record, inputs: { v: a }, config: { path: r.mcap } }\n",
    );
    folder.run("graph.yaml --simulated -q").expect(0, "", "");
    fs::write(folder.0.join("v.y4m"), [&b"YUV4MPEG2 W2 H2 F10:1 C420jpeg\nFRAME\n"[..], &[128; 6]].concat()).unwrap();
    fs::write(folder.0.join("c.log"), "(1600000000.000000) can0 123#00\n(1600000000.100000) can0 123#01\n").unwrap();
    let sources = [("replay", "r.mcap", "s/v"), ("y4m", "v.y4m", "s/image"), ("candump", "c.log", "s/frame")];
    let gathered =
        "  t: { kind: scatter, from: FROM }\n  n: { kind: gather, config: { max: 16, within: 1s }, from: t }\n";
    for (nodes, key) in [
        ("  n: { kind: debounce, config: { quiet: 60ms }, from: FROM }\n", "`quiet` of `n`"),
        ("  n: { kind: delay, config: { by: 60ms }, from: FROM }\n", "`by` of `n`"),
        ("  n: { kind: pass, from: { from: FROM, max_age: 60ms } }\n", "`max_age` of `n/in`"),
        ("  n: { kind: record, inputs: { v: FROM }, config: { path: o.mcap, max_time: 1s } }\n", "`max_time` of `n`"),
        (gathered, "`within` of `n`"),
        (&gathered.replace(", within: 1s", ""), ""),
        ("  n: { kind: pass, from: FROM }\n", ""),
    ] {
        let paces = if key.contains("max_age") { &["original", "2.0", "max"][..] } else { &["max"] };
        for ((kind, path, from), pace) in
            sources.iter().flat_map(|source| paces.iter().map(move |pace| (*source, *pace)))
        {
            let source = format!("  s: {{ kind: {kind}, config: {{ path: {path}, pace: {pace} }} }}\n");
            let nodes = nodes.replace("FROM", from);
            fs::write(folder.0.join("graph.yaml"), format!("version: 1\nnodes:\n{source}{nodes}")).unwrap();
            let plan = folder.run("graph.yaml --plan").expect(0, "", "").out.clone();
            let words = plan.split_whitespace().collect::<Vec<_>>().join(" ");
            let says =
                format!("`s` runs ahead of the clock, so these settings do not follow its recorded times: {key}");
            let is_noted = pace == "max" && !key.is_empty();
            assert_eq!(words.contains(&says), is_noted, "{kind} {pace} {key}\n{plan}");
            assert_eq!(words.contains("runs ahead of the clock"), is_noted, "{kind} {pace} {key}\n{plan}");
            assert_eq!(words.contains("covers 2 s of the recording"), pace == "2.0", "{kind} {pace} {key}\n{plan}");
        }
    }
}

/// On a simulated clock the recorded times are those of the replay, whatever the machine does
/// meanwhile.
#[test]
fn a_recording_replays_on_a_simulated_clock() {
    let folder = Folder::with(
        "simulated",
        "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter, rate: 10Hz, count: 50 } }\n  \
         r: { kind: record, inputs: { v: a }, config: { path: r.mcap } }\n",
    );
    let json = folder.run("graph.yaml --simulated --json").expect(0, "", "").json();
    let wall = |json: &serde_json::Value| (json["wall_s"].as_f64().unwrap() * 1e3).round();
    assert_eq!(wall(&json), 4900.0);
    assert!(json["notes"][0].as_str().unwrap().starts_with("on a simulated clock"), "{json}");
    let recorded: Vec<u64> = (0..50).map(|n| n * 100).collect();
    assert_eq!(origins(&folder.0.join("r.mcap")), recorded);
    // One more message behind another pass, one period after the last.
    for (pace, repeat, length, expected) in [
        ("original", 1, 4900.0, recorded.clone()),
        ("2.0", 1, 2450.0, recorded.iter().map(|ms| ms / 2).collect()),
        ("original", 2, 9800.0, recorded.iter().copied().chain(recorded.iter().map(|ms| ms + 4900)).collect()),
    ] {
        let graph = format!(
            "version: 1\nnodes:\n  bag: {{ kind: replay, config: {{ path: r.mcap, pace: {pace}, repeat: {repeat} }} }}\n  \
             slow: {{ kind: timer, config: {{ rate: 4Hz, count: 10 }} }}\n  \
             pair: {{ kind: csv, inputs: {{ v: bag/v, t: slow }}, join: {{ policy: sample, trigger: t }}, config: {{ path: pairs.csv }} }}\n  \
             r: {{ kind: record, inputs: {{ v: bag/v }}, config: {{ path: again.mcap }} }}\n"
        );
        fs::write(folder.0.join("replay.yaml"), graph).unwrap();
        let (mut pairs, mut paths, mut shortest) = (Vec::new(), Vec::new(), f64::INFINITY);
        for _ in 0..2 {
            let begun = Instant::now();
            let json = folder.run("replay.yaml --simulated --json").expect(0, "", "").json();
            shortest = begun.elapsed().as_secs_f64().min(shortest);
            assert_eq!(wall(&json), length, "{pace}");
            let again = folder.0.join("again.mcap");
            assert_eq!(origins(&again), expected, "{pace} x {repeat}");
            fs::remove_file(again).unwrap();
            pairs.push(fs::read_to_string(folder.0.join("pairs.csv")).unwrap());
            paths.push(json["paths"].clone());
        }
        assert!(pairs[0] == pairs[1] && paths[0] == paths[1], "{pairs:?} {paths:?}");
        // Beside other load the program may need more than the shorter times for itself.
        assert!(repeat == 1 || shortest * 1000.0 < length, "simulated time was waited for: {shortest} s");
    }
}

#[test]
fn what_keeps_the_machines_time_is_not_simulated() {
    let folder = Folder::with(
        "not-simulated",
        "version: 1\nnodes:\n  a: { kind: stdin, config: { framing: lines, max_bytes: 64B } }\n  b: { kind: 'null', from: a }\n",
    );
    folder.run("graph.yaml --simulated").expect(2, "", "`a` (stdin) needs real time");
    let unpaced = "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: record, from: a, config: { path: b.mcap } }\n";
    fs::write(folder.0.join("unpaced.yaml"), unpaced).unwrap();
    folder.run("unpaced.yaml --simulated --duration 1s").expect(2, "", "`a` must have a `rate` or an end");
    assert!(!folder.0.join("b.mcap").exists());
    folder.run("unpaced.yaml --simulated --frames 9").expect(0, "b: in 9 sent = 9 received", "");
    folder.run("graph.yaml --simulated --metrics 0").expect(2, "", "cannot be used with");
    // An endless source has the duration by the simulated clock.
    fs::write(folder.0.join("endless.yaml"), "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter, rate: 10Hz } }\n  b: { kind: 'null', from: a }\n").unwrap();
    let json = folder.run("endless.yaml --simulated --duration 1h --json").expect(0, "", "").json();
    let done = json["nodes"][1]["done"].as_u64().unwrap();
    assert!((36_000..=36_001).contains(&done), "{done}");
    assert_eq!(json["outcome"], "stopped");
}

#[test]
fn mistakes_about_recordings_are_named() {
    let folder = Folder::with("mistaken-recording", GRAPH);
    folder.run("graph.yaml -q").expect(0, "", "");
    fs::write(folder.0.join("text.mcap"), "no recording").unwrap();
    let replay = |config: &str, port: &str| {
        format!(
            "nodes:\n  bag: {{ kind: replay, config: {{ {config} }} }}\n  out: {{ kind: 'null', inputs: {{ v: bag/{port} }} }}\n"
        )
    };
    let record = |config: &str| {
        format!(
            "nodes:\n  a: {{ kind: synthetic, config: {{ pattern: noise, shape: [3], dtype: f32, count: 9 }} }}\n  out: {{ kind: record, inputs: {{ v: a, w: a }}, config: {{ path: x.mcap, {config} }} }}\n"
        )
    };
    for (graph, expected) in [
        (replay("path: text.mcap", "x"), "not an MCAP file"),
        (replay("path: none.mcap", "x"), "No such file"),
        (replay("path: run.mcap", "cam.imag"), "expected an output for a topic with messages, found `cam.imag`"),
        (replay("path: run.mcap", "cam/boxes"), "write `bag/cam.boxes`"),
        (replay("path: run.mcap", "").replace("bag/", "bag"), "write one of `bag/cam.boxes`, `bag/cam.image`"),
        (replay("path: run.mcap", "x"), "`cam.boxes` for /cam/boxes (foxglove"),
        (replay("path: run.mcap, topics: { x: /none }", "x"), "expected a topic with messages, found `/none`"),
        (replay("path: run.mcap, pace: 0", "cam.boxes"), "found 0"),
        (replay("path: run.mcap, repeat: 0", "cam.boxes"), "`repeat` must be at least 1, got 0"),
        (record("topics: { z: { as: imu } }"), "expected an input of this node, found `z`"),
        (
            record("topics: { v: { as: imu } }"),
            "`imu` expects f32 or f64 with the shape [6] or [10], found f32[3] in `v`",
        ),
        (record("topics: { v: { topic: /w } }"), "two inputs have the topic `/w`"),
        (record("max_size: 1KiB"), "`max_size` must be at least 1MiB"),
        (record("max_time: 1ms"), "write 1s or more"),
    ] {
        let expected = expected.replace("(foxglove", "(limen");
        fs::write(folder.0.join("graph.yaml"), format!("version: 1\n{graph}")).unwrap();
        let ran = folder.run("graph.yaml");
        assert!(ran.code == Some(2) && ran.err.contains(&expected), "{graph}: {}", ran.err);
    }
    fs::write(folder.0.join("x.mcap"), "precious").unwrap();
    fs::write(folder.0.join("graph.yaml"), format!("version: 1\n{}", record("exists: fail"))).unwrap();
    folder.run("graph.yaml").expect(2, "", "`x.mcap` already exists");
    // A file that is not readable, or of which nothing is left, never ends with 0.
    let whole = fs::read(folder.0.join("run.mcap")).unwrap();
    fs::write(folder.0.join("empty.mcap"), "").unwrap();
    fs::write(folder.0.join("magic.mcap"), &whole[..8]).unwrap();
    fs::write(folder.0.join("head.mcap"), &whole[..100]).unwrap();
    for (words, code, expected) in [
        ("recover none.mcap", 1, "No such file"),
        ("recover text.mcap", 1, "not an MCAP file"),
        ("recover empty.mcap", 1, "the file is empty"),
        ("recover magic.mcap", 1, "no message can be recovered"),
        ("recover head.mcap", 1, "no message can be recovered"),
        ("recover run.mcap --out /", 0, "run.mcap is complete"),
    ] {
        let ran = folder.run(words);
        assert!(format!("{}{}", ran.out, ran.err).contains(expected), "{words}: {}{}", ran.out, ran.err);
        assert_eq!(ran.code, Some(code), "{words}");
    }
    // An index that leads to the wrong place, with its checksum left out: a reader that seeks would
    // not find the messages.
    let mut astray = whole;
    let end = astray.len();
    let summary = u64::from_le_bytes(astray[end - 28..end - 20].try_into().unwrap()) as usize;
    astray[end - 12..end - 8].fill(0);
    let mut at = summary;
    while astray[at] != 8 {
        at += 9 + u64::from_le_bytes(astray[at + 1..at + 9].try_into().unwrap()) as usize;
    }
    astray[at + 9 + 16] ^= 1;
    fs::write(folder.0.join("astray.mcap"), &astray).unwrap();
    folder.run("recover astray.mcap").expect(0, ": the index points to a record that ends beyond the file", "");
    folder.run("recover astray-recovered.mcap").expect(0, "is complete: 24 messages of 2 topics", "");
    assert_eq!(fs::read_to_string(folder.0.join("x.mcap")).unwrap(), "precious");
}

/// Names and units of numbers go on through nodes, into tables and through a recording.
#[test]
fn names_and_units_travel_into_tables_and_recordings() {
    let graph = "
version: 1
nodes:
  bytes: { kind: file, config: { path: log.txt, framing: lines } }
  imu:
    kind: decode
    from: bytes
    config:
      format: csv
      fields:
        - { name: ax, type: f32, unit: m/s², to: acc }
        - { name: ay, type: f32, unit: m/s², to: acc }
        - { name: temp, type: f32, unit: °C }
        - { name: raw, type: u16, repeat: 2 }
        - { name: gyro, type: f32, repeat: 2, unit: rad/s }
  turned: { kind: slice, from: imu/acc, config: { from: -1, step: -1 } }
  both: { kind: concat, inputs: { a: imu/acc, b: imu/gyro }, config: {} }
  g: { kind: map, from: imu/acc, config: { outputs: { acc: { formula: 'in / 9.80665', unit: g }, plain: 'in * 2' } } }
  hot: { kind: map, from: imu/temp, config: { outputs: { kelvin: { formula: 'in + 273.15', unit: K, dtype: f64 } } } }
  level: { kind: threshold, from: imu/acc, config: { at: 1.0 } }
  table:
    kind: csv
    inputs:
      { acc: imu/acc, temp: imu/temp, raw: imu/raw, gyro: imu/gyro, turned: turned, both: both, g: g/acc, plain: g/plain, k: hot/kelvin, level: level }
    config: { path: table.csv }
  rec: { kind: record, inputs: { acc: imu/acc, temp: imu/temp }, config: { path: r.mcap } }
";
    let folder = Folder::with("units", graph);
    fs::write(folder.0.join("log.txt"), "1,2,20,7,8,0.1,0.2\n3,4,21,9,10,0.3,0.4\n").unwrap();
    folder.run("graph.yaml -q").expect(0, "", "");
    let header = |name: &str| {
        let table = fs::read_to_string(folder.0.join(name)).unwrap();
        table.lines().next().unwrap_or_default().to_string()
    };
    let expected = "seq,acc_ax (m/s²),acc_ay (m/s²),temp (°C),raw_0,raw_1,gyro_0 (rad/s),gyro_1 (rad/s),turned_ay (m/s²),turned_ax (m/s²),\
         both_ax (m/s²),both_ay (m/s²),both_2 (rad/s),both_3 (rad/s),g_ax (g),g_ay (g),plain_ax,plain_ay,k (K),level_ax,level_ay";
    assert_eq!(header("table.csv"), expected);
    let again = "version: 1
nodes:
  bag: { kind: replay, config: { path: r.mcap, pace: max } }
  table: { kind: csv, inputs: { acc: bag/acc, temp: bag/temp }, join: { patience: 16 }, config: { path: again.csv } }
";
    fs::write(folder.0.join("again.yaml"), again).unwrap();
    folder.run("again.yaml -q").expect(0, "", "");
    assert_eq!(header("again.csv"), "seq,acc_ax (m/s²),acc_ay (m/s²),temp (°C)");
    // A table that was written is read with its names.
    let third = "version: 1
nodes:
  rows: { kind: csv, config: { path: again.csv, columns: ['acc_ay (m/s²)', 'temp (°C)'] } }
  table: { kind: csv, inputs: { r: rows }, config: { path: third.csv } }
";
    fs::write(folder.0.join("third.yaml"), third).unwrap();
    folder.run("third.yaml -q").expect(0, "", "");
    assert_eq!(header("third.csv"), "seq,r_acc_ay (m/s²),r_temp (°C)");
    // Numbers in one unit do not become a field in another.
    let wrong = graph.replace(
        "  rec: {",
        "  out: { kind: encode, inputs: { temp: imu/temp }, config: { format: struct, fields: [{ name: temp, type: f32, unit: K }] } }\n  \
         odd: { kind: map, from: imu/raw, config: { outputs: { x: { formula: in, unit: 'a,b' } } } }\n  \
         end: { kind: 'null', inputs: { a: out, b: odd/x } }\n  rec: {",
    );
    fs::write(folder.0.join("wrong.yaml"), wrong).unwrap();
    let ran = folder.run("check wrong.yaml");
    ran.expect(2, "", "unit mismatch: the input has `°C`, the field expects `K`");
    assert!(ran.err.contains("`unit` must have no comma, quote or control character, got \"a,b\""), "{}", ran.err);
}
