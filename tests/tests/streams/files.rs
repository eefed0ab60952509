//! Files: bytes, arrays and sound.

use super::{Graph, figures};
use limen::policy::WhenFull;

/// Pseudo-random bytes.
fn noise(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * i / 7 + i) as u8).collect()
}

#[test]
fn a_file_is_copied_unchanged_with_every_framing() {
    let graph = Graph::new();
    let text: String = (0..5_000).map(|n| format!("line {n} {}\n", "x".repeat(n % 97))).collect();
    graph.write("in.txt", &text);
    graph.write("in.bin", noise(300_001));
    for (source, sink, framing) in
        [("in.txt", "lines", "lines"), ("in.txt", "length", "lines"), ("in.bin", "raw", "raw")]
    {
        let nodes = format!(
            "  a: {{ kind: file, config: {{ path: {source}, framing: {framing}, max_bytes: 1000B }} }}\n  \
             b: {{ kind: file, config: {{ path: out, framing: {sink} }}, from: a }}\n"
        );
        let report = graph.run(&nodes);
        assert_eq!(report.exit_code(), 0);
        figures(&report, &[("b.unwritten", 0.0)]);
        if sink == "length" {
            let nodes = "  a: { kind: file, config: { path: out, framing: length, max_bytes: 1000B } }\n  \
                         b: { kind: file, config: { path: back }, from: a }\n";
            figures(&graph.run(nodes), &[("b.messages", 5_000.0)]);
            assert_eq!(graph.read("back"), text.as_bytes());
        } else {
            assert_eq!(graph.read("out"), graph.read(source), "{source}");
        }
    }
}

#[test]
fn a_line_that_is_too_long_fails_one_call() {
    let graph = Graph::new();
    graph.write("in.txt", format!("one\n{}\ntwo", "x".repeat(100_000)));
    let nodes = |policy: &str| {
        format!(
            "  a: {{ kind: file, config: {{ path: in.txt, max_bytes: 8B }}, on_error: {policy} }}\n  \
             b: {{ kind: file, config: {{ path: out.txt }}, from: a }}\n"
        )
    };
    let report = graph.run(&nodes("skip"));
    assert_eq!((report.exit_code(), report.failed_calls), (0, 1));
    assert!(
        report.failures[0].text.contains("in.txt: message 2 must be at most the planned 8, got 100000"),
        "{:?}",
        report.failures
    );
    assert_eq!(graph.read("out.txt"), b"one\ntwo\n");
    let report = graph.run(&nodes("stop"));
    assert_eq!(report.exit_code(), 1);
    assert_eq!(graph.read("out.txt"), b"one\n");
}

/// Promise (files): A stalling disk slows the source and loses no message.
///
/// Every write is as slow as on a stalling disk: the edge fills, then the source waits.
#[test]
fn a_stalling_disk_slows_the_source_and_loses_nothing() {
    let graph = Graph::new();
    let report = graph.turn(
        "  a: { kind: synthetic, config: { pattern: counter, rate: 1kHz, count: 40 } }\n  \
         b: { kind: csv, config: { path: out.csv }, fault: { delay: 5s }, from: { from: a, capacity: 4 } }\n",
    );
    assert_eq!((report.exit_code(), report.edges[0].sent, report.edges[0].received), (0, 40, 40));
    let rows = String::from_utf8(graph.read("out.csv")).unwrap();
    let numbers: Vec<u64> = rows.lines().skip(1).map(|row| row.split(',').nth(1).unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    // Messages for 40 ms took as long as the disk, so never more than an edge full was waiting.
    assert!(report.wall.as_secs() >= 190, "{:?}", report.wall);
}

/// Promise (files): A stalling disk slows a recording only after 64 MiB, and loses no message.
///
/// A recording's edge holds 64 MiB, then the source waits.
#[test]
fn a_stalling_disk_slows_what_is_recorded_and_loses_nothing() {
    let graph = Graph::new();
    let report = graph.turn(
        "  a: { kind: synthetic, config: { pattern: noise, shape: [4000000], rate: 10Hz, count: 40 } }\n  \
         b: { kind: record, config: { path: out.mcap }, fault: { delay: 1s }, inputs: { v: a } }\n",
    );
    let edge = &report.edges[0];
    assert_eq!((report.exit_code(), edge.sent, edge.received), (0, 40, 40));
    assert_eq!((edge.capacity, edge.when_full), (16, WhenFull::Block));
    figures(&report, &[("b.recorded", 40.0), ("b.unwritten", 0.0)]);
    assert!(report.wall.as_secs() >= 38, "{:?}", report.wall);
}

#[test]
fn an_array_is_copied_unchanged() {
    let graph = Graph::new();
    let numbers = "  a: { kind: synthetic, config: { pattern: noise, shape: [3, 5], dtype: f32, count: 100 } }\n  \
                   b: { kind: npy, config: { path: one.npy }, from: a }\n";
    figures(&graph.run(numbers), &[("b.items", 100.0)]);
    let copy =
        "  a: { kind: npy, config: { path: one.npy } }\n  b: { kind: npy, config: { path: two.npy }, from: a }\n";
    figures(&graph.run(copy), &[("b.items", 100.0)]);
    let (one, two) = (graph.read("one.npy"), graph.read("two.npy"));
    assert_eq!(one.len(), 256 + 100 * 15 * 4);
    assert!(one == two && one.starts_with(b"\x93NUMPY\x01\x00\xf6\x00{'descr': '<f4'"));
    let text = String::from_utf8_lossy(&one[10..256]).into_owned();
    assert!(text.contains("'shape': (100, 3, 5,)"), "{text}");
    // Scalars have no dims.
    let scalars = "  a: { kind: synthetic, config: { pattern: counter, count: 4 } }\n  \
                   b: { kind: npy, config: { path: n.npy }, from: a }\n";
    graph.run(scalars);
    let back = "  a: { kind: npy, config: { path: n.npy, repeat: 2 } }\n  b: { kind: jsonl, config: { path: n.txt }, from: a }\n";
    graph.run(back);
    let lines = String::from_utf8(graph.read("n.txt")).unwrap();
    let values: Vec<&str> = lines.lines().map(|line| line.split_once("\"in\":").unwrap().1).collect();
    assert_eq!(values, ["0}", "1}", "2}", "3}", "0}", "1}", "2}", "3}"]);
}

#[test]
fn sound_is_copied_unchanged() {
    let graph = Graph::new();
    let make = "  a: { kind: synthetic, config: { pattern: noise, shape: [250, 2], dtype: f32, count: 5 } }\n  \
                b: { kind: wav, config: { path: one.wav, sample_rate: 8kHz }, from: a }\n";
    figures(&graph.run(make), &[("b.frames", 1_250.0)]);
    let copy = "  a: { kind: wav, config: { path: one.wav, frames: 512 } }\n  \
                b: { kind: wav, config: { path: two.wav, sample_rate: 8kHz }, from: a }\n  \
                c: { kind: null, from: a }\n";
    figures(&graph.run(copy), &[("b.frames", 1_250.0), ("c.messages", 3.0)]);
    let (one, two) = (graph.read("one.wav"), graph.read("two.wav"));
    assert!(one == two && one.len() > 1_250 * 2 * 4);
    // At 8 kHz 1250 frames take 156 ms; the last message is due after 1024 of them.
    let nodes =
        "  a: { kind: wav, config: { path: one.wav, frames: 512, real_time: true } }\n  b: { kind: null, from: a }\n";
    let report = graph.run(nodes);
    assert!(report.wall.as_millis() >= 128, "{:?}", report.wall);
}

#[test]
fn a_truncated_file_gives_whole_messages_and_an_error() {
    let graph = Graph::new();
    graph.run(
        "  a: { kind: synthetic, config: { pattern: noise, shape: [10, 2], dtype: f32, count: 50 } }\n  \
         b: { kind: npy, config: { path: whole.npy }, from: a }\n  \
         c: { kind: wav, config: { path: whole.wav, sample_rate: 8kHz }, from: a }\n",
    );
    let (npy, wav) = (graph.read("whole.npy"), graph.read("whole.wav"));
    graph.write("cut.npy", &npy[..256 + 7 * 80 + 3]);
    graph.write("cut.wav", &wav[..wav.len() - 43 * 80 - 3]);
    for (source, messages, text) in [
        ("kind: npy, config: { path: cut.npy }", 7.0, "expected 50 items as in the header, found 7"),
        ("kind: wav, config: { path: cut.wav, frames: 10 }", 7.0, "expected 500 frames, found 69"),
    ] {
        for (policy, code) in [("stop", 1), ("skip", 0)] {
            let nodes = format!("  a: {{ {source}, on_error: {policy} }}\n  b: {{ kind: null, from: a }}\n");
            let report = graph.run(&nodes);
            assert_eq!((report.exit_code(), report.failed_calls), (code, 1), "{source} {policy}");
            assert!(report.failures[0].text.contains(text), "{:?}", report.failures);
            figures(&report, &[("b.messages", messages)]);
        }
    }
}

/// Promise (files): Input files that cannot be read are rejected before the run starts.
#[test]
fn unusable_files_are_refused_before_anything_starts() {
    let graph = Graph::new();
    graph.write("there.txt", "x");
    graph.write(
        "short.npy",
        b"\x93NUMPY\x01\x00\x50\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 99999999, 99999999), }",
    );
    std::os::unix::fs::symlink("/etc/hostname", graph.path().join("link")).unwrap();
    let sink = "  z: { kind: null, from: a }\n";
    for (source, expected) in [
        ("kind: file, config: { path: none.txt }", "No such file"),
        ("kind: file, config: { path: link }", "--allow-path"),
        ("kind: file, config: { path: ., max_bytes: 0B, repeat: 0 }", "not a regular file"),
        ("kind: file, config: { path: there.txt, max_bytes: 2GiB }", "write a size from 1B to 1GiB"),
        ("kind: npy, config: { path: there.txt }", "expected a `.npy` file, found fewer than 8 bytes"),
        ("kind: npy, config: { path: short.npy }", "expected a complete header, found the end of the file"),
        ("kind: wav, config: { path: there.txt, frames: 512 }", "there.txt"),
        ("kind: wav, config: { path: there.txt, frames: 0 }", "1 to 1048576"),
    ] {
        let text = graph.refused(&format!("  a: {{ {source} }}\n{sink}"));
        assert!(text.contains(expected) && text.contains("help: "), "{source}\n{text}");
    }
    let source = "  a: { kind: synthetic, config: { pattern: noise, shape: [4, 2], dtype: f32 } }\n";
    for (sink, expected) in [
        ("kind: file, config: { path: there.txt, exists: fail, framing: raw }", "already exists"),
        ("kind: file, config: { path: no/such/folder.txt, framing: raw }", "does not exist"),
        ("kind: file, config: { path: a.txt }", "expected text for lines"),
        ("kind: npy, config: { path: /dev/full }", "--allow-path"),
        ("kind: npy, config: { path: a.npy, exists: append }", "must be `replace` or `fail`, got `append`"),
        ("kind: wav, config: { path: a.wav, sample_rate: 0.5Hz }", "a whole number"),
        ("kind: stdout", "expected text for lines"),
    ] {
        let text = graph.refused(&format!("{source}  z: {{ {sink}, from: a }}\n"));
        assert!(text.contains(expected) && text.contains("help: "), "{sink}\n{text}");
    }
    let text = graph.refused(&format!("{source}  y: {{ kind: npy, config: {{ path: a }}, from: a }}\n  z: {{ kind: file, config: {{ path: ./a, framing: raw }}, from: a }}\n"));
    assert!(text.contains("both write to"), "{text}");
    let text = graph.refused(
        "  a: { kind: stdin }\n  b: { kind: stdin }\n  y: { kind: null, from: a }\n  z: { kind: null, from: b }\n",
    );
    assert!(text.contains("both use standard input"), "{text}");
}

/// Frames of a bus are written as they were read, and every line that is none is counted.
#[test]
fn a_log_of_candump_is_copied() {
    let graph = Graph::new();
    let line = |at: usize| {
        format!("({}.{:06}) can0 {:03X}#{:08X}\n", 1_700_000_000 + at / 100, at % 100 * 10_000, at % 2048, at)
    };
    let log: String = (0..3_000).map(line).collect();
    graph.write("in.log", format!("{log}junk\n(1.0) can0 123##0{}\n{}\n", "00".repeat(64), "x".repeat(1_000)));
    let nodes = |more: &str| {
        format!(
            "  a: {{ kind: candump, config: {{ path: in.log, pace: max{more} }} }}\n  \
             b: {{ kind: candump, config: {{ path: out.log }}, from: a }}\n"
        )
    };
    let figure = [("a.read", 3_000.0), ("a.malformed", 2.0), ("a.too_large", 1.0), ("b.rows", 3_000.0)];
    figures(&graph.run(&nodes("")), &figure);
    let frames = |text: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(text).lines().map(|line| line.split_once(' ').unwrap().1.to_string()).collect()
    };
    let stamps = |text: &[u8]| -> Vec<f64> {
        let stamp = |line: &str| line[1..].split_once(')').unwrap().0.parse().unwrap();
        String::from_utf8_lossy(text).lines().map(stamp).collect()
    };
    let out = graph.read("out.log");
    assert_eq!(frames(&out), frames(log.as_bytes()));
    for (copied, original) in stamps(&out).windows(2).zip(stamps(log.as_bytes()).windows(2)) {
        assert!((copied[1] - copied[0] - (original[1] - original[0])).abs() < 2e-6, "{copied:?} {original:?}");
    }
    figures(&graph.run(&nodes(", fd: true, ids: [0x123], repeat: 2")), &[("b.rows", 6.0), ("a.too_large", 0.0)]);
    // The clock is set back by 5 s after a second: frames stay 100 ms apart.
    let frame = |at: usize| format!("({}.{:06}) can0 123#00\n", 1_700_000_000 - at / 10 * 4, at % 10 * 100_000);
    graph.write("in.log", (0..20).map(frame).collect::<String>());
    figures(&graph.run(&nodes("")), &[("a.read", 20.0), ("a.clock_steps", 1.0)]);
    let copied = stamps(&graph.read("out.log"));
    assert!(copied.windows(2).all(|pair| (pair[1] - pair[0] - 0.1).abs() < 2e-6), "{copied:?}");
    let text = graph.refused(&nodes(", ids: [0x20000000], repeat: 0"));
    assert!(text.contains("at most 29 bits") && text.contains("must be at least 1, got 0"), "{text}");
}

/// Video comes at its own pace, as often as asked for, and up to the frame in which the file ends.
#[test]
fn a_video_is_sent_frame_by_frame() {
    let graph = Graph::new();
    let frame = |at: u8| [&b"FRAME\n"[..], &[at; 24]].concat();
    let video: Vec<u8> =
        [b"YUV4MPEG2 W4 H4 F200:1 C420jpeg\n".to_vec()].into_iter().chain((16..26).map(frame)).flatten().collect();
    graph.write("in.y4m", &video);
    let nodes = |more: &str| {
        format!(
            "  a: {{ kind: y4m, config: {{ path: in.y4m{more} }} }}\n  \
             b: {{ kind: npy, config: {{ path: out.npy }}, from: a }}\n"
        )
    };
    for (more, frames) in [("", 10.0), (", pace: max, repeat: 3", 30.0), (", pace: 4.0, repeat: 2", 20.0)] {
        let begin = std::time::Instant::now();
        figures(&graph.run(&nodes(more)), &[("a.frames", frames), ("b.items", frames)]);
        assert!(!more.is_empty() || begin.elapsed().as_millis() >= 45, "ten frames at 200 Hz");
    }
    assert!(graph.read("out.npy").windows(20).any(|window| window == &b"'shape': (20, 4, 4, 3)"[..20]));
    graph.write("in.y4m", &video[..video.len() - 1]);
    let report = graph.run(&nodes(", pace: max"));
    assert_eq!((report.metric("b.items"), report.exit_code()), (Some(9.0), 1));
    assert!(report.failures[0].text.contains("in.y4m: frame 10: the input ends within"), "{:?}", report.failures);
    for (header, part) in [
        ("YUV4MPEG2 W4 H4 C420p10", "`420p10`"),
        ("YUV4MPEG2 W4 H4 It", "interlaced"),
        ("RIFF", "YUV4MPEG2"),
        ("YUV4MPEG2 W4 H4", "does not declare a frame rate"),
    ] {
        graph.write("in.y4m", format!("{header}\nFRAME\n{}", "x".repeat(24)));
        let text = graph.refused(&nodes(""));
        assert!(text.contains(part), "{header}: {text}");
    }
    let text = graph.refused("  a: { kind: y4m, config: { width: 4 } }\n  b: { kind: 'null', from: a }\n");
    assert!(text.contains("`width` and `height`"), "{text}");
}
