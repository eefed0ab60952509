//! Valid files of the formats that graphs read: the starting points of attacks.

use crate::files::{npy, wav};
use crate::protobuf::{model, node};
use limen::message::DType;
use limen_infer::{Encoding, WeightConfig};
use std::path::Path;

/// A file that a node reads.
#[derive(Debug)]
pub struct ReaderCase {
    /// The nodes of a graph; `r` is the reader.
    pub nodes: String,
    /// The name of the file.
    pub file: &'static str,
    /// What is damaged.
    pub content: Vec<u8>,
    /// Makes the file of it, with the checksums that a reader would refuse otherwise.
    pub wrap: fn(&[u8]) -> Vec<u8>,
    /// The other files of the graph.
    beside: Vec<(&'static str, Vec<u8>)>,
}

impl ReaderCase {
    /// Writes the files, with this content, into a folder.
    ///
    /// # Panics
    /// When the folder cannot be written.
    #[expect(clippy::disallowed_methods, reason = "attacks make their own files")]
    pub fn write(&self, folder: &Path, content: &[u8]) {
        for (name, bytes) in &self.beside {
            std::fs::write(folder.join(name), bytes).expect("a file");
        }
        std::fs::write(folder.join(self.file), (self.wrap)(content)).expect("a file");
    }

    /// The graph. With `skip`, it goes on after an error.
    pub fn graph(&self, skip: bool) -> String {
        let reader = if skip { "  r: { on_error: skip, " } else { "  r: { " };
        format!("version: 1\nnodes:\n{}run: {{ max_memory: 256MiB }}\n", self.nodes.replace("  r: { ", reader))
    }

    fn source(config: &str, output: &str, file: &'static str, content: Vec<u8>) -> Self {
        let nodes = format!("  r: {{ {config} }}\n  z: {{ kind: 'null', from: {output} }}\n");
        ReaderCase { nodes, file, content, wrap: <[u8]>::to_vec, beside: Vec::new() }
    }

    /// A node that reads a file while it is planned, and then gets numbers of this shape.
    fn transform(config: &str, shape: &str, output: &str, file: &'static str, content: Vec<u8>) -> Self {
        let numbers = format!("kind: synthetic, config: {{ pattern: noise, shape: {shape}, dtype: f32, count: 3 }}");
        let reader = ReaderCase::source(&format!("{config}, from: a"), output, file, content);
        ReaderCase { nodes: format!("  a: {{ {numbers} }}\n{}", reader.nodes), ..reader }
    }
}

/// A file of every reader.
pub fn readers() -> Vec<ReaderCase> {
    let source = ReaderCase::source;
    let numbers: String = (0..40).map(|n| format!("{n},{},\"{n}.5\"\n", n * 3)).collect();
    let csv = [b"a,b,c\n", numbers.as_bytes()].concat();
    let lines: Vec<u8> = (0..60).flat_map(|n| format!("line {n}\r\n").into_bytes()).collect();
    let sized = |le: bool| {
        let message = |n: u32| {
            let length = if le { n.to_le_bytes() } else { n.to_be_bytes() };
            [&length[..], &vec![n as u8; n as usize]].concat()
        };
        (0..40).flat_map(message).collect::<Vec<u8>>()
    };
    let letters: Vec<u8> = (b'a'..=b'z').flat_map(|letter| [letter, b'\n']).collect();
    let items = npy("<f4", &[3, 2], &f32s(6));
    let trial = |content: Vec<u8>, wrap| {
        let config = "kind: infer, config: { model: m.onnx, backend: rten, trial: f.npz }";
        let beside = vec![("m.onnx", model(&[node("Relu", &["x"], "y", "", &[])], &[]))];
        ReaderCase { beside, wrap, ..ReaderCase::transform(config, "[2]", "r/y", "f.npz", content) }
    };
    let images = ReaderCase {
        beside: vec![("s0.png", image(&png_parts(5, 3, 3)))],
        wrap: image,
        ..source("kind: image_files, config: { path: 's*.png', channels: 3 }", "r/image", "s1.png", png_parts(2, 9, 1))
    };
    let sound: Vec<i16> = (0..400).map(|n| n * 81).collect();
    let wav = || wav(2, 8000, &sound);
    vec![
        source("kind: csv, config: { path: f.csv, columns: [a, b, c], max_bytes: 1KiB }", "r", "f.csv", csv),
        source("kind: npy, config: { path: f.npy }", "r", "f.npy", npy("<f4", &[6, 4], &f32s(24))),
        source("kind: wav, config: { path: f.wav, frames: 16 }", "r", "f.wav", wav()),
        source("kind: wav, config: { path: f.wav, frames: 16, sample_rate: 11025Hz }", "r", "f.wav", wav()),
        source(
            "kind: wav, config: { path: f.wav, frames: 7, sample_rate: 16kHz, channels: mono, context: 3, tail: pad }",
            "r",
            "f.wav",
            wav(),
        ),
        source("kind: file, config: { path: f.bin, max_bytes: 64B }", "r", "f.bin", lines.clone()),
        source("kind: file, config: { path: f.bin, max_bytes: 64B, framing: fixed }", "r", "f.bin", lines),
        source("kind: file, config: { path: f.bin, max_bytes: 64B, framing: raw }", "r", "f.bin", sized(true)),
        source("kind: file, config: { path: f.bin, max_bytes: 64B, framing: length }", "r", "f.bin", sized(false)),
        source("kind: file, config: { path: f.bin, max_bytes: 64B, framing: length_le }", "r", "f.bin", sized(true)),
        source("kind: file, config: { path: f.bin, max_bytes: 64B, framing: cobs }", "r", "f.bin", stuffed()),
        source("kind: file, config: { path: f.bin, max_bytes: 64B, framing: slip }", "r", "f.bin", escaped()),
        source("kind: candump, config: { path: f.log, pace: max }", "r", "f.log", candump()),
        source("kind: y4m, config: { path: f.y4m, pace: max }", "r/image", "f.y4m", y4m(6, 4, 5)),
        source("kind: replay, config: { path: f.mcap, pace: max }", "r/x", "f.mcap", recorded(&records(9))),
        // The lengths within records are damaged, and the checksum of their chunk is right.
        ReaderCase {
            wrap: recorded,
            ..source("kind: replay, config: { path: f.mcap, pace: max }", "r/x", "f.mcap", records(9))
        },
        ReaderCase {
            wrap: bombs,
            ..source("kind: replay, config: { path: f.mcap, pace: max }", "r/x", "f.mcap", vec![0x01, 0x11, 0x21, 0])
        },
        source("kind: image_files, config: { path: f.png }", "r/image", "f.png", image(&png_parts(7, 4, 1))),
        source(
            "kind: image_files, config: { path: f.jpg }",
            "r/image",
            "f.jpg",
            include_bytes!("../../fuzz/seeds/12x9.jpg").to_vec(),
        ),
        images,
        ReaderCase::transform("kind: decode_ctc, config: { alphabet: f.txt }", "[5, 27]", "r/text", "f.txt", letters),
        ReaderCase::transform(
            "kind: cosine, config: { references: f.npy }",
            "[4]",
            "r/index",
            "f.npy",
            npy("<f4", &[6, 4], &f32s(24)),
        ),
        trial(npz(&items), <[u8]>::to_vec),
        trial(items, npz),
    ]
}

/// Frames in COBS: two bytes, of which every other one is zero.
fn stuffed() -> Vec<u8> {
    (0..40).flat_map(|n| if n % 2 == 0 { [3, n | 1, 7, 0] } else { [2, n, 1, 0] }).collect()
}

/// Frames in SLIP, with both escapes.
fn escaped() -> Vec<u8> {
    (0..40).flat_map(|n| [n, 0xdb, 0xdc + n % 2, 0xc0]).collect()
}

/// A log of a CAN bus: identifiers of both lengths, CAN FD, a remote frame.
fn candump() -> Vec<u8> {
    let frames = ["123#0102", "18FEF100#", "213##1000102030405060708090A0B", "7FF#R"];
    let line = |n: usize| format!("(1700000000.{:06}) can0 {}\n", n * 10_000, frames[n % frames.len()]);
    (0..40).map(line).collect::<String>().into_bytes()
}

/// A video of grey levels with two planes of colour.
fn y4m(width: usize, height: usize, frames: u8) -> Vec<u8> {
    let frame = |n: u8| [&b"FRAME\n"[..], &vec![n * 40; width * height * 3 / 2]].concat();
    let head = format!("YUV4MPEG2 W{width} H{height} F30:1 Ip A1:1 C420jpeg\n");
    head.into_bytes().into_iter().chain((0..frames).flat_map(frame)).collect()
}

/// A record of a recording.
fn record(opcode: u8, content: &[u8]) -> Vec<u8> {
    [&[opcode][..], &(content.len() as u64).to_le_bytes(), content].concat()
}

/// The records of numbers in ROS 2's notation.
fn records(messages: u32) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let schema =
        [&1u16.to_le_bytes()[..], &text("std_msgs/msg/Float64"), &text("ros2msg"), &text("float64 data")].concat();
    let channel = [&[1, 0, 1, 0][..], &text("/x"), &text("cdr"), &text("")].concat();
    let message = |n: u32| {
        let time = (u64::from(n) * 1_000_000).to_le_bytes();
        let number = f64::from(n).to_le_bytes();
        record(5, &[&[1, 0][..], &n.to_le_bytes(), &time, &time, &[0, 1, 0, 0], &number].concat())
    };
    [record(3, &schema), record(4, &channel), (0..messages).flat_map(message).collect()].concat()
}

/// A chunk of so many bytes of records, compressed as told, with the checksum of the records, or 0.
fn chunk(compression: &str, size: u64, crc: u32, data: &[u8]) -> Vec<u8> {
    let name = [&(compression.len() as u32).to_le_bytes()[..], compression.as_bytes()].concat();
    let data = [&(data.len() as u64).to_le_bytes()[..], data].concat();
    record(6, &[&[0; 16][..], &size.to_le_bytes(), &crc.to_le_bytes(), &name, &data].concat())
}

/// A recording of these chunks, without an index.
fn recording(chunks: &[u8]) -> Vec<u8> {
    let magic = b"\x89MCAP0\r\n";
    [&magic[..], &record(1, b"\x04\0\0\0ros2\0\0\0\0"), chunks, &record(15, &[0; 4]), &record(2, &[0; 20]), magic]
        .concat()
}

/// A recording of these records in one chunk, whose checksum is right.
fn recorded(records: &[u8]) -> Vec<u8> {
    recording(&chunk("", records.len() as u64, crc(records), records))
}

/// A recording of a whole chunk and of bombs in zstd. Each byte makes one: the MiB that it unpacks
/// to, whether it says so, and whether it has one record or as many as there is room for.
fn bombs(recipe: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let whole = records(2);
    let mut chunks = chunk("", whole.len() as u64, crc(&whole), &whole);
    for byte in recipe.iter().take(12) {
        let blocks = usize::from(byte & 7) << 3;
        // A window of 8 MiB; then blocks of one byte that is repeated. The opcode and the length of
        // a record are zeros, or all ones.
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68];
        for at in 1..=blocks {
            let head = (BLOCK as u32) << 3 | 1 << 1 | u32::from(at == blocks);
            frame.extend_from_slice(&head.to_le_bytes()[..3]);
            frame.push(if byte & 0x10 == 0 { 0 } else { 0xff });
        }
        let size = if byte & 0x20 == 0 { blocks * BLOCK } else { 3000 };
        chunks.extend(chunk("zstd", size as u64, 0, &frame));
    }
    recording(&chunks)
}

/// A file of weights.
#[derive(Debug)]
pub struct WeightsCase {
    /// How it is loaded.
    pub config: WeightConfig,
    /// What is damaged.
    pub content: Vec<u8>,
    /// Makes the file of it.
    pub wrap: fn(&[u8]) -> Vec<u8>,
}

impl WeightsCase {
    fn new(file: &str, content: Vec<u8>) -> Self {
        WeightsCase { config: WeightConfig::of(file), content, wrap: <[u8]>::to_vec }
    }

    fn named(file: &str, content: &[u8], tensor: &str) -> Self {
        let case = WeightsCase::new(file, content.to_vec());
        WeightsCase { config: WeightConfig { tensor: Some(tensor.into()), ..case.config }, ..case }
    }

    fn encoded(file: &str, content: Vec<u8>, encoding: Encoding, tensor: &str) -> Self {
        let case = WeightsCase::named(file, &content, tensor);
        WeightsCase { config: WeightConfig { encoding: Some(encoding), ..case.config }, ..case }
    }
}

/// A file that PyTorch, `gguf` or `onnx` wrote.
macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../backends/infer/fixtures/", $name))
    };
}

/// A file of weights in every format and encoding.
pub fn weights() -> Vec<WeightsCase> {
    let (array, file) = (npy("<f4", &[6, 4], &f32s(24)), "w.safetensors");
    // A layer of 32 inputs and 16 outputs in 4 groups.
    let layer = |qweight: &[usize], index: bool| {
        let words =
            |count: u32| (0..count).flat_map(|n| n.wrapping_mul(0x9e37_79b1).to_le_bytes()).collect::<Vec<u8>>();
        let scales: Vec<u8> = (0..64u16).flat_map(|n| (0x2c00 + 37 * n).to_le_bytes()).collect();
        let groups: Vec<u8> = (0..32i32).flat_map(|input| (input * 7 % 4).to_le_bytes()).collect();
        let mut tensors = vec![
            ("l.qweight", "I32", qweight, words(64)),
            ("l.qzeros", "I32", &[4, 2][..], words(8)),
            ("l.scales", "F16", &[4, 16], scales),
        ];
        if index {
            tensors.push(("l.g_idx", "I32", &[32], groups));
        }
        safetensors(&tensors)
    };
    let codes = || (0..24).map(|n| n * 10).collect::<Vec<u8>>();
    let scaled = safetensors(&[("w", "F8_E4M3", &[6, 4], codes()), ("s", "F32", &[6, 1], f32s(6))]);
    let scaled = WeightsCase::encoded(file, scaled, Encoding::F8E4m3, "w");
    let raw = WeightsCase::new("w.bin", f32s(24));
    let raw_config = WeightConfig { dtype: Some(DType::F32), shape: Some(vec![6, 4]), ..raw.config };
    vec![
        WeightsCase::new(file, safetensors(&[("w", "F32", &[6, 4], f32s(24))])),
        WeightsCase::new("w.npy", array.clone()),
        WeightsCase::new("w.npz", npz(&array)),
        WeightsCase { wrap: npz, ..WeightsCase::new("w.npz", array) },
        WeightsCase::encoded(file, layer(&[4, 16], false), Encoding::Gptq, "l"),
        WeightsCase::encoded(file, layer(&[4, 16], true), Encoding::Gptq, "l"),
        WeightsCase::encoded(file, layer(&[4, 16], true), Encoding::GptqV2, "l"),
        WeightsCase::encoded(file, layer(&[32, 2], false), Encoding::Awq, "l"),
        WeightsCase::new(file, safetensors(&[("w", "F8_E4M3", &[6, 4], codes())])),
        WeightsCase::new(file, safetensors(&[("w", "F8_E5M2", &[6, 4], codes())])),
        WeightsCase::encoded(file, safetensors(&[("w", "U8", &[24], codes())]), Encoding::F8E5m2, "w"),
        WeightsCase { config: WeightConfig { scale: Some("s".into()), ..scaled.config }, ..scaled },
        WeightsCase { config: raw_config, ..raw },
        WeightsCase { wrap: pt, ..WeightsCase::new("w.pt", torch_pickle()) },
        WeightsCase::named("w.pt", fixture!("views.pt"), "windows"),
        WeightsCase::named("w.ckpt", fixture!("checkpoint.ckpt"), "state_dict.0.weight"),
        WeightsCase::named("w.gguf", fixture!("blocks.gguf"), "q4_k"),
        WeightsCase::named("w.gguf", fixture!("blocks.gguf"), "cube"),
        WeightsCase::named("w.onnx", fixture!("weights.onnx"), "int16.typed"),
    ]
}

fn f32s(count: u8) -> Vec<u8> {
    (0..count).flat_map(|n| f32::from(n).to_le_bytes()).collect()
}

/// A file of tensors, each with name, type, shape and bytes.
fn safetensors(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let (mut about, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let begin = data.len();
        data.extend_from_slice(bytes);
        about.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{}]}}"#,
            data.len()
        ));
    }
    let mut about = format!("{{{}}}", about.join(","));
    about.extend(std::iter::repeat_n(' ', about.len().next_multiple_of(8) - about.len()));
    [&(about.len() as u64).to_le_bytes()[..], about.as_bytes(), &data].concat()
}

/// The CRC-32 of ZIP and PNG.
fn crc(content: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in content {
        sum ^= u32::from(*byte);
        (0..8).for_each(|_| sum = (sum >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(sum & 1)));
    }
    !sum
}

/// A ZIP archive of one array `x`, uncompressed.
fn npz(array: &[u8]) -> Vec<u8> {
    zip(&[("x.npy", array)])
}

/// A file of PyTorch with this pickle, and a storage of 24 numbers.
fn pt(pickle: &[u8]) -> Vec<u8> {
    zip(&[("w/data.pkl", pickle), ("w/data/0", &f32s(24))])
}

/// The pickle of a dict with one tensor, a view of a storage.
fn torch_pickle() -> Vec<u8> {
    [
        &b"\x80\x02}q\0X\x01\0\0\0wq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\0\0\0storageq\x03"[..],
        b"ctorch\nFloatStorage\nq\x04X\x01\0\0\x000q\x05X\x03\0\0\0cpuq\x06K\x18tq\x07QK\x01K\x03K\x05\x86q\x08",
        b"K\x01K\x04\x86q\x09\x89ccollections\nOrderedDict\nq\x0a)Rq\x0btq\x0cRq\x0ds.",
    ]
    .concat()
}

/// A ZIP archive of these files, uncompressed.
fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let (name, size) = (name.as_bytes(), (content.len() as u32).to_le_bytes());
        let place = (archive.len() as u32).to_le_bytes();
        // Version, flags, method, time, date; checksum and sizes; lengths of the name and of the
        // extra field.
        let about = [
            &[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0][..],
            &crc(content).to_le_bytes(),
            &size,
            &size,
            &[name.len() as u8, 0, 0, 0],
        ]
        .concat();
        archive.extend([b"PK\x03\x04".as_slice(), &about, name, content].concat());
        directory.extend([b"PK\x01\x02\x14\0".as_slice(), &about, &[0; 10], &place, name].concat());
    }
    let count = [files.len() as u8, 0];
    let places = [(directory.len() as u32).to_le_bytes(), (archive.len() as u32).to_le_bytes()].concat();
    let end = [b"PK\x05\x06\0\0\0\0".as_slice(), &count, &count, &places, &[0, 0]].concat();
    [archive, directory, end].concat()
}

/// The header of a PNG of 8 bits and this many channels, 1 or 3, and then its pixels, which are not
/// compressed.
fn png_parts(width: u8, height: u8, channels: u8) -> Vec<u8> {
    let header = [0, 0, 0, width, 0, 0, 0, height, 8, channels - 1, 0, 0, 0];
    let row: Vec<u8> = (0..=width * channels).map(|n| n * 9).collect();
    // The filter of each row is 0, as the first number.
    let rows = row.repeat(usize::from(height));
    let length = (rows.len() as u16).to_le_bytes();
    let (a, b) = rows
        .iter()
        .fold((1u32, 0u32), |(a, b), byte| ((a + u32::from(*byte)) % 65521, (a + b + u32::from(*byte)) % 65521));
    let sum = (b << 16 | a).to_be_bytes();
    let inverse = [!length[0], !length[1]];
    [&header[..], &[0x78, 0x01, 0x01], &length, &inverse, &rows, &sum].concat()
}

/// A PNG of a header and pixels, with the checksums of both.
fn image(parts: &[u8]) -> Vec<u8> {
    let (header, pixels) = parts.split_at(parts.len().min(13));
    let chunk = |name: &[u8; 4], content: &[u8]| {
        let named = [&name[..], content].concat();
        [&(content.len() as u32).to_be_bytes()[..], &named, &crc(&named).to_be_bytes()].concat()
    };
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", &[])].concat()
}
