//! Numbers with more digits than `f32` has: every kind that moves, writes or reads them keeps each
//! digit, or planning refuses the graph.

use super::{plan, run};
use std::fs;

/// Numbers that `f32` loses, and some that `f64` loses, each with a type that has all of its
/// digits.
const NUMBERS: [(&str, &str); 6] = [
    ("i64", "1700000001"),
    // 2^53 + 1
    ("i64", "9007199254740993"),
    // Nanoseconds since 1970.
    ("i64", "1403636579758555393"),
    ("i64", "-9223372036854775808"),
    ("u64", "18446744073709551615"),
    // A longitude.
    ("f64", "-122.41941550000001"),
];

#[test]
fn numbers_keep_their_digits_on_every_way() {
    for (dtype, number) in NUMBERS {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("in.csv"), format!("v\n{number}\n{number}\n")).unwrap();
        let moved = format!(
            "
  in: {{ kind: csv, config: {{ path: in.csv, columns: [{{ name: v, type: {dtype} }}] }} }}
  one: {{ kind: reshape, config: {{ shape: [1] }}, from: in/v }}
  pair: {{ kind: concat, inputs: {{ a: one, b: one }} }}
  rows: {{ kind: stack, inputs: {{ a: pair, b: pair }} }}
  turned: {{ kind: transpose, config: {{ order: [1, 0] }}, from: rows }}
  part: {{ kind: slice, config: {{ index: 1 }}, from: turned }}
  flat: {{ kind: pad, config: {{ to: [2] }}, from: part }}
  j: {{ kind: jsonl, inputs: {{ v: in/v, w: flat }}, config: {{ path: out.jsonl }} }}
  c: {{ kind: csv, inputs: {{ w: flat }}, config: {{ path: out.csv }} }}
  n: {{ kind: npy, from: flat, config: {{ path: out.npy }} }}
  r: {{ kind: record, inputs: {{ v: in/v, w: flat }}, config: {{ path: out.mcap }} }}
  ros: {{ kind: record, inputs: {{ v: in/v, w: flat }}, config: {{ path: ros.mcap, schemas: ros2 }} }}"
        );
        run(folder.path(), &moved);
        let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let object = |seq: usize| format!("{{\"seq\":{seq},\"v\":{number},\"w\":[{number},{number}]}}\n");
        let both = object(0) + &object(1);
        assert_eq!(text("out.jsonl"), both, "{dtype}");
        assert_eq!(text("out.csv"), format!("seq,w_0,w_1\n0,{number},{number}\n1,{number},{number}\n"));
        // What was written is read again.
        let typed = format!("name: w_0, type: {dtype}, to: w");
        let read = format!(
            "
  npy: {{ kind: npy, config: {{ path: out.npy }} }}
  a: {{ kind: jsonl, inputs: {{ w: npy }}, config: {{ path: a.jsonl }} }}
  bag: {{ kind: replay, config: {{ path: out.mcap, pace: max }} }}
  b: {{ kind: jsonl, inputs: {{ v: bag/v, w: bag/w }}, join: {{ patience: 16 }}, config: {{ path: b.jsonl }} }}
  ros: {{ kind: replay, config: {{ path: ros.mcap, pace: max }} }}
  c: {{ kind: jsonl, inputs: {{ v: ros/v, w: ros/w }}, join: {{ patience: 16 }}, config: {{ path: c.jsonl }} }}
  table: {{ kind: csv, config: {{ path: out.csv, columns: [{{ {typed} }}, {{ name: w_1, type: {dtype}, to: w }}] }} }}
  d: {{ kind: jsonl, inputs: {{ w: table/w }}, config: {{ path: d.jsonl }} }}
  lines: {{ kind: file, config: {{ path: out.jsonl }} }}
  json: {{ kind: decode, from: lines, config: {{ format: json, fields: [{{ name: v, type: {dtype} }}, {{ name: w, type: {dtype}, repeat: 2 }}] }} }}
  e: {{ kind: jsonl, inputs: {{ v: json/v, w: json/w }}, join: {{ patience: 16 }}, config: {{ path: e.jsonl }} }}
  again: {{ kind: encode, inputs: {{ v: json/v, w: json/w }}, join: {{ patience: 16 }}, config: {{ format: json, fields: [{{ name: v, type: {dtype} }}, {{ name: w, type: {dtype}, repeat: 2 }}] }} }}
  f: {{ kind: file, from: again, config: {{ path: f.jsonl }} }}"
        );
        run(folder.path(), &read);
        let flat = both.replace(&format!("\"v\":{number},"), "");
        for (name, expected) in [("a", &flat), ("b", &both), ("c", &both), ("d", &flat), ("e", &both)] {
            assert_eq!(&text(&format!("{name}.jsonl")), expected, "{dtype} {name}");
        }
        assert_eq!(text("f.jsonl").trim_end().lines().next().unwrap(), object(0).trim_end().replace("\"seq\":0,", ""));
    }
}

#[test]
fn types_that_differ_are_not_joined() {
    for (dtype, number) in NUMBERS {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("in.csv"), format!("v,x\n{number},1.5\n")).unwrap();
        for kind in ["concat", "stack"] {
            let graph = format!(
                "
  in: {{ kind: csv, config: {{ path: in.csv, columns: [{{ name: v, type: {dtype} }}, {{ name: x, type: f32 }}] }} }}
  a: {{ kind: reshape, config: {{ shape: [1] }}, from: in/v }}
  b: {{ kind: reshape, config: {{ shape: [1] }}, from: in/x }}
  j: {{ kind: {kind}, inputs: {{ a: a, b: b }} }}
  z: {{ kind: 'null', from: j }}"
            );
            let problems = plan(folder.path(), &graph).expect_err("refused");
            assert!(problems.contains("add a `cast`"), "{kind}: {problems}");
        }
    }
}

/// A `cast` would only hide that their digits are lost.
#[test]
fn positions_of_f32_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.csv"), "a,b,c\n48,11.5,500\n").unwrap();
    let nmea = "format: nmea, sentence: gll, fields: [{ name: lat, path: latitude, type: f64 }]";
    let encode = format!("kind: encode, inputs: {{ lat: in/a }}, config: {{ {nmea} }}");
    let record = "kind: record, inputs: { fix: in/fix }, config: { path: o.mcap, topics: { fix: { as: location } } }";
    for (dtype, sink, expected) in [
        ("f32", &*encode, "f32 cannot hold degrees such as -122.4194155"),
        ("f64", &*encode, ""),
        ("f32", record, "`location` expects f64[3], found f32[3] in `fix`"),
        ("f64", record, ""),
    ] {
        let column = |name: &str, more: &str| format!("{{ name: {name}, type: {dtype}{more} }}");
        let columns = match sink == record {
            true => ["a", "b", "c"].map(|name| column(name, ", to: fix")).join(", "),
            false => column("a", ""),
        };
        let graph = format!(
            "
  in: {{ kind: csv, config: {{ path: in.csv, columns: [{columns}] }} }}
  z: {{ {sink} }}{}",
            if sink == record { "" } else { "\n  y: { kind: 'null', from: z }" }
        );
        let said = plan(folder.path(), &graph).err().unwrap_or_default();
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{dtype}: {said}");
        assert_eq!(said.contains("write `type: f64` at the source"), !expected.is_empty(), "{said}");
    }
}

#[test]
fn missing_values_of_rows_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    for (table, missing, expected) in [
        ("x,y\n1,2\n,3\n4,nan\n", 2.0, "rows with missing values, which are NaN: 2 (first: t.csv:3: column `x`"),
        ("x,y\n1,2\n", 0.0, ""),
    ] {
        fs::write(folder.path().join("t.csv"), table).unwrap();
        let report = run(folder.path(), "  t: { kind: csv, config: { path: t.csv } }\n  z: { kind: 'null', from: t }");
        let notes = report.notes.join("\n");
        assert_eq!(report.metric("missing"), Some(missing), "{table}");
        assert!(notes.contains(expected) && notes.contains("missing") != expected.is_empty(), "{table}: {notes}");
    }
}

/// A value that a message leaves out is NaN in the table, and the report says how often.
#[test]
fn missing_values_of_messages_are_counted() {
    let fix = "$GPGGA,123519.00,4807.03800,N,01131.00000,E,1,08,0.90,545.40,M,46.90,M,,*59";
    let no_fix = "$GPGGA,,,,,,0,00,99.99,,,,,,*48";
    let gga = "format: nmea, sentence: gga, fields: [{ name: lat, path: latitude, type: f64 }]";
    for (lines, config, missing, expected) in [
        (
            [r#"{"a": 1}"#, r#"{"a": null}"#, r#"{"a": null}"#],
            "format: json, fields: [{ name: a, type: f64 }]",
            2.0,
            r#"messages with missing values, which are NaN: 2 (first: `a` is missing: "{\"a\": null}")"#,
        ),
        (
            ["1;2", "3;", "4;5"],
            "format: csv, delimiter: ';', fields: [{ name: b, type: f32, column: 1 }]",
            1.0,
            "`b` is missing: \"3;\"",
        ),
        ([no_fix, fix, fix], gga, 1.0, "`lat` is missing: \"$GPGGA,,,"),
        ([fix, fix, fix], gga, 0.0, ""),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("t.txt"), lines.join("\n")).unwrap();
        let graph = format!(
            "
  f: {{ kind: file, config: {{ path: t.txt, framing: lines }} }}
  d: {{ kind: decode, from: f, config: {{ {config} }} }}
  o: {{ kind: csv, from: d, config: {{ path: o.csv }} }}"
        );
        let report = run(folder.path(), &graph);
        assert_eq!((report.metric("missing"), report.metric("rows")), (Some(missing), Some(3.0)), "{config}");
        let notes = report.notes.join("\n");
        assert!(notes.contains(expected) && notes.contains("missing") != expected.is_empty(), "{config}: {notes}");
    }
}
