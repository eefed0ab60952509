//! What each format reads and refuses, as tables.

use super::*;

fn config(format: &str, fields: &str, keys: &str) -> DecodeConfig {
    let text = format!("{{\"format\": \"{format}\", \"fields\": [{fields}] {keys}}}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns what planning reports.
fn errors(config: &DecodeConfig, most: Option<usize>) -> Vec<String> {
    let mut errors = PlanErrors::default();
    planned(config, most, &mut errors);
    errors.messages().map(str::to_string).collect()
}

/// Returns the outputs for a message: name, type and shape, bytes in little-endian order; without
/// any if it is not accepted.
fn read(node: &mut Decode, message: &[u8]) -> Vec<(String, String, Vec<u8>)> {
    let Some(message) = node.accept(message) else { return Vec::new() };
    let out = |(at, port): (usize, &FieldPort)| {
        let mut bytes = vec![0; port.bytes()];
        node.reader.copy(at, message, &mut bytes);
        if cfg!(target_endian = "big") {
            bytes.chunks_exact_mut(port.dtype.size()).for_each(<[u8]>::reverse);
        }
        (port.name.clone(), port.spec().to_string(), bytes)
    };
    ports(&node.fields, &mut PlanErrors::default()).iter().enumerate().map(out).collect()
}

/// Returns the numbers of all outputs, each an `f64`.
fn numbers(node: &mut Decode, message: &[u8]) -> Vec<f64> {
    let outputs = read(node, message);
    assert!(outputs.iter().all(|(_, spec, _)| spec.starts_with("f64")));
    let bytes = outputs.iter().flat_map(|(_, _, bytes)| bytes.chunks_exact(8));
    bytes.map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn fields_are_read_at_their_offset_with_their_type_and_byte_order() {
    let bytes: Vec<u8> = (0..16).collect();
    let (a, b) = (r#"{"name": "a", "type": "u16"}"#, r#"{"name": "b", "type": "u32"}"#);
    type Expected<'a> = &'a [(&'a str, &'a str, &'a [u8])];
    let cases: [(String, &str, Expected<'_>); 9] = [
        (format!("{a}, {b}"), "", &[("a", "u16[]", &[0, 1]), ("b", "u32[]", &[2, 3, 4, 5])]),
        (format!("{a}, {b}"), r#", "endian": "big""#, &[("a", "u16[]", &[1, 0]), ("b", "u32[]", &[5, 4, 3, 2])]),
        (r#"{"name": "a", "type": "u16", "endian": "big"}"#.into(), r#", "size": 16"#, &[("a", "u16[]", &[1, 0])]),
        (r#"{"name": "t", "type": "f64", "offset": 8}"#.into(), "", &[("t", "f64[]", &[8, 9, 10, 11, 12, 13, 14, 15])]),
        (
            format!(r#"{{"name": "x", "type": "i8", "offset": 9}}, {a}"#),
            "",
            &[("x", "i8[]", &[9]), ("a", "u16[]", &[10, 11])],
        ),
        // Fields may overlap.
        (
            format!(r#"{a}, {{"name": "low", "type": "u8", "offset": 0}}"#),
            "",
            &[("a", "u16[]", &[0, 1]), ("low", "u8[]", &[0])],
        ),
        (
            r#"{"name": "v", "type": "i16", "repeat": 3, "endian": "big"}"#.into(),
            "",
            &[("v", "i16[3]", &[1, 0, 3, 2, 5, 4])],
        ),
        (r#"{"name": "v", "type": "u8", "repeat": 1}"#.into(), "", &[("v", "u8[1]", &[0])]),
        // One output from several fields, in the order of the fields instead of their offsets.
        (
            format!(
                r#"{{"name": "x", "type": "u16", "offset": 4, "to": "v"}}, {b}, {{"name": "y", "type": "u16", "offset": 0, "repeat": 2, "to": "v"}}"#
            ),
            "",
            &[("v", "u16[3]", &[4, 5, 0, 1, 2, 3]), ("b", "u32[]", &[6, 7, 8, 9])],
        ),
    ];
    for (fields, keys, expected) in cases {
        let config = config("struct", &fields, keys);
        assert_eq!(errors(&config, Some(bytes.len())), [""; 0], "{fields}");
        let found = read(&mut Decode::new(config, LossCounter::default()), &bytes);
        let found: Vec<_> = found.iter().map(|(name, spec, bytes)| (&**name, &**spec, &**bytes)).collect();
        assert_eq!(found, expected, "{fields}");
    }
}

#[test]
fn all_errors_of_a_config_are_reported_at_once() {
    let field = |keys: &str| format!(r#"{{"name": "a", "type": "f32"{keys}}}"#);
    let many: Vec<String> = (0..17).map(|n| format!(r#"{{"name": "n{n}", "type": "u8"}}"#)).collect();
    let cases: [(String, &str, Option<usize>, &[&str]); 11] = [
        (String::new(), "", None, &["`fields` must have at least 1 entry, got 0"]),
        (
            field(""),
            r#", "size": 0"#,
            None,
            &["`size` must be at least 1, got 0", "must end at byte 0 or earlier (`size`), got 4"],
        ),
        (field(""), r#", "size": 40"#, Some(32), &["`size` must be at most 32 (the longest message), got 40"]),
        (field(""), "", Some(3), &["`a` must end at byte 3 or earlier (the longest message), got 4"]),
        (
            field(r#", "offset": 8"#),
            r#", "size": 11"#,
            Some(64),
            &["`a` must end at byte 11 or earlier (`size`), got 12"],
        ),
        (field(r#", "repeat": 18446744073709551615"#), "", Some(64), &["`a` must end at byte 64 or earlier"]),
        (field(r#", "repeat": 0"#), "", None, &["`repeat` must be at least 1, got 0"]),
        (format!("{}, {}", field(""), field("")), "", None, &["duplicate field `a`"]),
        (
            format!(r#"{}, {{"name": "b", "type": "u16", "to": "a"}}"#, field("")),
            "",
            None,
            &["field `b` is u16, port `a` is f32"],
        ),
        (
            r#"{"name": "a/b", "type": "u8", "to": ""}"#.into(),
            "",
            None,
            &["`a/b` is not a valid port name", "`` is not a valid port name"],
        ),
        (many.join(", "), "", None, &["at most 16 ports, got 17"]),
    ];
    for (fields, keys, most, expected) in cases {
        let found = errors(&config("struct", &fields, keys), most);
        assert_eq!(found.len(), expected.len(), "{fields}: {found:?}");
        assert!(found.iter().zip(expected).all(|(found, text)| found.contains(text)), "{fields}: {found:?}");
    }
}

#[test]
fn malformed_messages_are_counted_and_the_first_is_shown() {
    let field = r#"{"name": "a", "type": "u32"}"#;
    let long = [7u8; 80];
    for (keys, messages, malformed, says) in [
        ("", [&b"1234"[..], b"12345"], 0, None),
        ("", [b"12", b"123"], 2, Some("expected at least 4 bytes, found 2: 31 32")),
        (r#", "size": 4"#, [b"1234", b"\n2345"], 1, Some("expected 4 bytes, found 5: 0a 32 33 34 35")),
        (r#", "size": 4"#, [b"", b"1234"], 1, Some("expected 4 bytes, found 0")),
        (r#", "size": 4"#, [&long, b"1234"], 1, Some("07 07 07 ...")),
    ] {
        let mut node = Decode::new(config("struct", field, keys), LossCounter::default());
        for message in messages {
            node.accept(message);
        }
        let note = node.malformed.first();
        assert_eq!((node.malformed.get(), note.is_some()), (malformed, says.is_some()));
        assert!(note.as_deref().unwrap_or_default().ends_with(says.unwrap_or_default()), "{note:?}");
    }
}

#[test]
fn objects_and_rows_are_read_by_paths_and_columns() {
    let objects = r#"{"name": "x", "type": "f64", "path": "pose.x"}, {"name": "v", "type": "f64", "repeat": 3},
        {"name": "last", "type": "f64", "path": "list[1].n"}"#;
    let rows = r#"{"name": "x", "type": "f64", "column": 1}, {"name": "v", "type": "f64", "repeat": 2}, {"name": "t", "type": "f64", "column": 0}"#;
    let gga = r#"{"name": "latitude", "type": "f64"}, {"name": "up", "type": "f64", "path": "altitude"}, {"name": "satellites", "type": "f64"}"#;
    let fix = b"$GPGGA,092750.000,5321.6802,N,00630.3372,W,1,8,1.03,61.7,M,55.2,M,,*76";
    type Cases<'a> = &'a [(&'a [u8], Result<&'a [f64], &'a str>)];
    let nan = f64::NAN;
    let cases: [(&str, &str, &str, Cases<'_>); 8] = [
        (
            "json",
            objects,
            "",
            &[
                (br#"{"pose":{"x":1.5,"y":{}},"v":[1,-2,3e2],"list":[[],{"n":true}],"z":"\u00e9"}"#, Ok(&[1.5, 1.0, -2.0, 300.0, 1.0])),
                (br#" {"list": [0, {"n": null}], "v": [0,0,null], "pose": {"x": 9007199254740992}} "#, Ok(&[9007199254740992.0, 0.0, 0.0, nan, nan])),
                (br#"{"pose":{"x":18446744073709551615}}"#, Err("`x` is 18446744073709551615, which f64 would round: write `type: u64`")),
                (br#"{"pose":{"x":9007199254740993}}"#, Err("`x` is 9007199254740993, which f64 would round: write `type: i64`")),
                (br#"{"pose":{"x":1},"v":[1,2],"list":[0,{"n":0}]}"#, Err("expected 3 numbers in `v`, found 2")),
                (br#"{"pose":{"x":1},"v":[1,2,3,4],"list":[0,{"n":0}]}"#, Err("expected 3 numbers in `v`, found 4")),
                (br#"{"pose":{"x":1},"v":7,"list":[0,{"n":0}]}"#, Err("`v` is not an array of 3 numbers")),
                (br#"{"pose":{"x":"1"}}"#, Err("`x` is not a number: \"{")),
                (br#"{"pose":{"x":1,"x":2}}"#, Err("`x` occurs twice")),
                (br#"{"v":[1,2,3],"v":[1,2,3]}"#, Err("`v` occurs twice")),
                (br#"{"pose":3}"#, Err("expected an object or an array, found a value")),
                (br#"{"v":[1,2,3],"list":[0,{"n":1}]}"#, Err("`x` is missing")),
                (br#"{"pose":{"x":1}"#, Err("EOF while parsing")),
                (br#"{"pose":{"x":1e999}}"#, Err("number out of range")),
                (br#"{"pose":{"x":1},"v":[1,2,3],"list":[0,{"n":1}]}{"#, Err("trailing characters")),
                (b"\xff", Err("expected value at line 1 column 1: ff")),
                (b"", Err("EOF while parsing a value at line 1 column 0")),
            ],
        ),
        (
            "cbor",
            objects,
            "",
            &[
                // {"pose": {"x": 1.5 as f16, 7: 0}, "v": [1, -2, 300.0 as f32], "list":
                // [_ "a", {"n": undefined}]}
                (
                    b"\xa3\x64pose\xa2\x61x\xf9\x3e\x00\x07\x00\x61v\x83\x01\x21\xfa\x43\x96\x00\x00\x64list\x9f\x61a\xa1\x61n\xf7\xff",
                    Ok(&[1.5, 1.0, -2.0, 300.0, nan]),
                ),
                (b"\xa1\x61v\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x01", Err("")),
                (b"\xa1\x61v\x83\x01\x02\x03", Err("`x` is missing: a1 61 76 83 01 02 03")),
                (b"\xa1\x64pose\xa1\x61x\x1b\xff\xff\xff\xff\xff\xff\xff\xff", Err("`x` is 18446744073709551615, which f64 would round: write `type: u64`")),
                (b"\xa1\x64pose\xa1\x61x\x3b\xff\xff\xff\xff\xff\xff\xff\xfe", Err("`x` is -18446744073709551615, which f64 would round")),
                // Numbers of 17 bytes with a tag.
                (b"\xa1\x64pose\xa1\x61x\xc2\x51\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", Err("")),
                (b"\xa0\x00", Err("expected the end of the message after the value, found more bytes: a0 00")),
                (b"", Err("")),
            ],
        ),
        (
            "csv",
            rows,
            r#", "delimiter": ";""#,
            &[
                (b"9;1.5;-2; 3e1 ;text\r\n", Ok(&[1.5, -2.0, 30.0, 9.0])),
                (b"\"9\";;inf;NaN", Ok(&[nan, f64::INFINITY, nan, 9.0])),
                (&[&b"9;1;2;3;"[..], &[b'x'; 500]].concat(), Ok(&[1.0, 2.0, 3.0, 9.0])),
                (b"9;1;2", Err("expected 2 numbers in `v`, found 1: \"9;1;2\"")),
                (b"9;1,5;2;3", Err("`x` is not a number")),
                (b"9;1;2;3\n9;1;2;3", Err("expected one row, found more")),
                (b"", Err("`x` is missing")),
            ],
        ),
        (
            "nmea",
            gga,
            r#", "sentence": "gga""#,
            &[
                (fix, Ok(&[53.361336666666666, 61.70000076293945, 8.0])),
                (b"$GPGGA,,,,,,0,00,99.99,,,,,,*48\r\n", Ok(&[nan, nan, 0.0])),
                (b"$PUBX,00,081350.00*3E", Ok(&[])),
                (b"$GPXYZ,1*51", Ok(&[])),
                (b"$GPGGA,092750.000,9100.0000,S,00630.3372,W,1,8,1.03,61.7,M,55.2,M,,*6A", Err("`latitude` must be -90 to 90 degrees, got -91")),
                (b"$GPGGA,1*4B", Err("expected the values of a GGA sentence")),
                (b"GPGGA,1*4B", Err("expected `$` at the beginning")),
                (b"$GPGGA,1", Err("expected a checksum")),
                (b"$GPRMC,225446.33,A,4916.45,N,12311.12,W,000.5,054.7,191194,020.3,E,A*2B", Ok(&[])),
                (b"$GPGGA,092750.000,5321.6802,N,00630.3372,W,1,8,1.03,61.7,M,55.2,M,,*77", Err("expected the checksum `76`, found `77`")),
                (b"\xff", Err("expected UTF-8 text, found other bytes: ff")),
            ],
        ),
        // What receivers send beside the standard: zones with a sign, variations of 0, the epoch of
        // GPS, no quality.
        (
            "nmea",
            r#"{"name": "date", "type": "f64"}, {"name": "zone", "type": "f64"}"#,
            r#", "sentence": "zda""#,
            &[
                (b"$GPZDA,005947.00,08,07,2010,+00,00*4E", Ok(&[20_100_708.0, 0.0])),
                (b"$GPZDA,005948.00,08,07,2010,00,00*6A", Ok(&[20_100_708.0, 0.0])),
                (b"$GPZDA,005948.00,08,07,2010,+05,+30*6C", Ok(&[20_100_708.0, 330.0])),
                (b"$GPZDA,005948.00,08,07,2010,-05,30*41", Ok(&[20_100_708.0, -330.0])),
                (b"$GPZDA,005948.00,08,07,2010,-05,-30*6C", Ok(&[20_100_708.0, -330.0])),
                (b"$GPZDA,005948.00,08,07,2010,05,*6F", Ok(&[20_100_708.0, 300.0])),
                (b"$GPZDA,005948.00,08,07,2010,05,-30*41", Err("expected the values of a ZDA sentence")),
                (b"$GPZDA,005948.00,08,07,2010,-05,+30*6A", Err("expected the values of a ZDA sentence")),
                (b"$GPZDA,005948.00,08,07,2010,05,75*6D", Err("expected the values of a ZDA sentence")),
            ],
        ),
        (
            "nmea",
            r#"{"name": "date", "type": "f64"}, {"name": "magnetic_variation", "type": "f64"}"#,
            r#", "sentence": "rmc""#,
            &[
                (b"$GPRMC,212607.891,V,,,,,,,181207,0,N*5C", Ok(&[20_071_218.0, nan])),
                (b"$GPRMC,235946.005,V,8960.000000,N,00000.000000,E,0.000,0.00,050180,,,N*47", Ok(&[19_800_105.0, nan])),
            ],
        ),
        (
            "nmea",
            r#"{"name": "latitude", "type": "f64"}, {"name": "quality", "type": "f64"}"#,
            r#", "sentence": "gga""#,
            &[(b"$GPGGA,105025.80,5612.9999,N,00306.7096,W,,2,60.000,160.002,M,,M,,*56", Ok(&[56.216_665, nan]))],
        ),
        // Without a mode, as before version 2.3 of the standard.
        (
            "nmea",
            r#"{"name": "latitude", "type": "f64"}, {"name": "valid", "type": "f64"}"#,
            r#", "sentence": "gll""#,
            &[
                (b"$GPGLL,4916.45,N,12311.12,W,225444,A*31", Ok(&[49.274166666666666, 1.0])),
                (b"$GPGLL,4916.45,N,12311.12,W,225444,A,A*5C", Ok(&[49.274166666666666, 1.0])),
                (b"$GPGLL,,,,,225444,V*07", Ok(&[nan, 0.0])),
                (b"$GPGLL,,,,,,*50", Err("expected the values of a GLL sentence")),
            ],
        ),
    ];
    for (format, fields, keys, messages) in cases {
        let config = config(format, fields, keys);
        assert_eq!(errors(&config, Some(4096)), [""; 0], "{format}");
        for (message, expected) in messages {
            let mut node = Decode::new(config.clone(), LossCounter::default());
            // A message before it leaves nothing behind.
            for _ in 0..2 {
                let found = numbers(&mut node, message);
                let shown = String::from_utf8_lossy(message);
                match expected {
                    Ok(expected) => {
                        let is_same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                        let is_equal = found.len() == expected.len() && found.iter().zip(*expected).all(is_same);
                        assert!(is_equal, "{shown}: {found:?} {:?}", node.malformed.first());
                        assert_eq!(node.malformed.get(), 0, "{shown}");
                    }
                    Err(says) => {
                        assert!(found.is_empty() && node.malformed.get() > 0, "{shown}: {found:?}");
                        let note = node.malformed.first().unwrap();
                        assert!(note.starts_with(*says), "{shown}: {note}");
                    }
                }
            }
        }
    }
}

#[test]
fn checksums_are_compared_and_are_no_part_of_a_message() {
    let field = r#"{"name": "a", "type": "u16"}"#;
    for (format, keys, message, expected) in [
        ("struct", r#", "size": 2, "crc": "crc8""#, &b"\x34\x12\xd3"[..], Ok(0x1234u16)),
        ("json", r#", "crc": {"of": "crc32", "endian": "big"}"#, b"{\"a\":7}\x00\x41\x0b\x29", Ok(7)),
        ("struct", r#", "crc": "crc8""#, b"\x34\x12\xff", Err("expected the checksum d3, found ff: 34 12 ff")),
        ("struct", r#", "crc": "crc32""#, b"\x34\x12", Err("expected at least 4 bytes, found 2: 34 12")),
    ] {
        let config = config(format, field, keys);
        assert_eq!(errors(&config, Some(64)), [""; 0]);
        let mut node = Decode::new(config, LossCounter::default());
        let found = read(&mut node, message);
        let found = found.first().map(|(_, _, bytes)| u16::from_le_bytes(bytes[..].try_into().unwrap()));
        match expected {
            Ok(number) => assert_eq!(found, Some(number), "{:?}", node.malformed.first()),
            Err(says) => assert_eq!(node.malformed.first().as_deref(), Some(says)),
        }
    }
    // A checksum leaves less room for fields.
    let found = errors(&config("struct", field, r#", "crc": "crc16_modbus""#), Some(3));
    assert!(
        found.len() == 1 && found[0].contains("`a` must end at byte 1 or earlier (the longest message), got 2"),
        "{found:?}"
    );
}

#[test]
fn keys_of_other_formats_and_impossible_places_are_refused() {
    for (format, fields, keys, expected) in [
        (
            "json",
            r#"{"name": "a", "type": "u8", "offset": 1}"#,
            r#", "size": 3"#,
            &["`size` is not a key of `format: json`", "`offset` is not a key of `format: json`"][..],
        ),
        ("json", r#"{"name": "a", "type": "u8", "path": "a..b"}"#, "", &["`a..b` is not a path: a key is empty"]),
        (
            "cbor",
            r#"{"name": "a", "type": "u8"}, {"name": "b", "type": "u8", "path": "a"}, {"name": "c", "type": "u8", "path": "a.b"}"#,
            "",
            &[
                "`b` reads `a`, which contains the value of another field",
                "`c` reads `a.b`, which is a part of the value of another field",
            ],
        ),
        (
            "json",
            r#"{"name": "a", "type": "u8", "path": "x[0]"}, {"name": "b", "type": "u8", "path": "x.y"}, {"name": "c", "type": "u8", "path": "x"}"#,
            "",
            &[
                "`b` reads `x.y`, which has the key `y` where another path has an index",
                "`c` reads `x`, which contains the value of another field",
            ],
        ),
        (
            "csv",
            r#"{"name": "a", "type": "u8", "repeat": 3}, {"name": "b", "type": "u8", "column": 2}"#,
            "",
            &["column 2 belongs to both `a` and `b`"],
        ),
        (
            "csv",
            r#"{"name": "a", "type": "u8", "column": 18446744073709551615}"#,
            r#", "delimiter": "é""#,
            &["not part of a number", "the last column of `a` must be below 65536"],
        ),
        (
            "csv",
            r#"{"name": "a", "type": "u8", "path": "x"}"#,
            r#", "delimiter": "0""#,
            &["found '0'", "`path` is not a key of `format: csv`"],
        ),
        ("nmea", r#"{"name": "latitude", "type": "f64"}"#, "", &["reads sentences of one type"]),
        (
            "nmea",
            r#"{"name": "a", "type": "u8", "path": "speed"}, {"name": "hdop", "type": "f32", "repeat": 2}"#,
            r#", "sentence": "gga""#,
            &["expected a value of the sentence, found `speed`", "one number"],
        ),
        (
            "nmea",
            r#"{"name": "time", "type": "f32"}, {"name": "date", "type": "f32"}, {"name": "latitude", "type": "f16"}, {"name": "longitude", "type": "f32"}, {"name": "course", "type": "f32"}"#,
            r#", "sentence": "rmc""#,
            &[
                "f32 cannot hold a time such as 86399.99",
                "f32 cannot hold a date such as 20261125",
                "f16 cannot hold degrees such as -122.4194155",
                "f32 cannot hold degrees such as -122.4194155",
            ],
        ),
        (
            "struct",
            r#"{"name": "a", "type": "u8", "path": "x", "column": 1}"#,
            r#", "sentence": "gga""#,
            &["`sentence` is not a key", "`path` is not a key", "`column` is not a key"],
        ),
    ] {
        let found = errors(&config(format, fields, keys), None);
        assert_eq!(found.len(), expected.len(), "{fields}: {found:?}");
        assert!(found.iter().zip(expected).all(|(found, text)| found.contains(text)), "{fields}: {found:?}");
    }
}

/// Messages that are damaged anywhere are read or refused, and never stop a run.
#[test]
fn damaged_messages_are_read_or_refused() {
    let objects = r#"{"name": "a", "type": "i16", "path": "p.x"}, {"name": "v", "type": "f32", "repeat": 3}"#;
    let rows = r#"{"name": "a", "type": "i16"}, {"name": "v", "type": "f32", "repeat": 3}"#;
    let cases: [(&str, &str, &str, &[u8]); 5] = [
        ("json", objects, "", br#"{"p":{"x":-7,"s":"\u00e9\n"},"v":[1.5,2e3,null],"more":[{"a":[1]}]}"#),
        (
            "cbor",
            objects,
            "",
            b"\xa2\x61p\xa1\x61x\x26\x61v\x83\xf9\x3e\x00\xfa\x43\x96\x00\x00\xfb\x40\x09\x21\xfb\x54\x44\x2d\x18",
        ),
        ("csv", rows, "", b"12,\"1.5\",-2e3,inf\r\n"),
        (
            "nmea",
            r#"{"name": "latitude", "type": "f64"}"#,
            r#", "sentence": "gga""#,
            b"$GPGGA,092750.000,5321.6802,N,00630.3372,W,1,8,1.03,61.7,M,55.2,M,,*76",
        ),
        (
            "nmea",
            r#"{"name": "date", "type": "u32"}"#,
            r#", "sentence": "rmc""#,
            b"$GPRMC,225446.33,A,4916.45,N,12311.12,W,000.5,054.7,191194,020.3,E,A*2B",
        ),
    ];
    let mut random = fastrand::Rng::with_seed(25);
    for (format, fields, keys, message) in cases {
        let mut node = Decode::new(config(format, fields, keys), LossCounter::default());
        assert!(node.accept(message).is_some(), "{:?}", node.malformed.first());
        let (mut good, total) = (0, 20_000u64);
        for _ in 0..total {
            let mut damaged = message.to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..damaged.len());
                match random.u8(..4) {
                    0 => damaged[at] = random.u8(..),
                    1 => damaged[at] ^= 1 << random.u8(..8),
                    2 => damaged.truncate(at.max(1)),
                    _ => damaged.insert(at, message[random.usize(..message.len())]),
                }
            }
            // A right checksum lets the damage in.
            if let Some(end) = damaged.iter().rposition(|byte| *byte == b'*').filter(|end| format == "nmea" && *end > 0)
            {
                let sum = damaged[1..end].iter().fold(0, |sum, byte| sum ^ byte);
                damaged.truncate(end);
                damaged.extend_from_slice(format!("*{sum:02X}").as_bytes());
            }
            good += u64::from(node.accept(&damaged).is_some());
        }
        assert!(good > 0 && node.malformed.get() + node.other.get() + good == total, "{format}: {good}");
    }
}
