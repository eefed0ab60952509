//! Damaged files of every format and every framing: a source reads them or fails, and never panics. H3, S7, N1.

use limen::Folders;
use limen_backends::WeightConfig;
use limen_tests::fuzz::{attack, damage, files, pick, root};
use std::path::Path;
use std::time::Duration;

/// An `.npy` file.
fn array() -> Vec<u8> {
    let header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (6, 4), }";
    let mut npy = [b"\x93NUMPY\x01\x00".as_slice(), &118u16.to_le_bytes(), header].concat();
    npy.resize(127, b' ');
    npy.push(b'\n');
    npy.extend((0..24).flat_map(|n| (n as f32).to_le_bytes()));
    npy
}

/// A ZIP archive of one uncompressed file.
fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    let mut sum = u32::MAX;
    for byte in content {
        sum ^= u32::from(*byte);
        (0..8).for_each(|_| sum = (sum >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(sum & 1)));
    }
    let size = (content.len() as u32).to_le_bytes();
    // Version, flags, method, time, date; checksum and sizes; lengths of the name and of the extra field.
    let about =
        [&[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0][..], &(!sum).to_le_bytes(), &size, &size, &[name.len() as u8, 0, 0, 0]]
            .concat();
    let file = [b"PK\x03\x04".as_slice(), &about, name.as_bytes(), content].concat();
    let entry = [b"PK\x01\x02\x14\0".as_slice(), &about, &[0; 14], name.as_bytes()].concat();
    let places = [(entry.len() as u32).to_le_bytes(), (file.len() as u32).to_le_bytes()].concat();
    let end = [b"PK\x05\x06\0\0\0\0\x01\0\x01\0".as_slice(), &places, &[0, 0]].concat();
    [file, entry, end].concat()
}

/// Config of a reader, the name of its file, and a valid file.
fn readers() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let numbers: String = (0..40).map(|n| format!("{n},{},\"{n}.5\"\n", n * 3)).collect();
    let lines: String = (0..60).map(|n| format!("line {n}\r\n")).collect();
    let sized = |le: bool| {
        let message = |n: u32| {
            let length = if le { n.to_le_bytes() } else { n.to_be_bytes() };
            [&length[..], &vec![n as u8; n as usize]].concat()
        };
        (0..40).flat_map(message).collect::<Vec<u8>>()
    };
    let samples: Vec<u8> = (0..400i16).flat_map(i16::to_le_bytes).collect();
    let chunk = |name: &[u8], content: &[u8]| [name, &(content.len() as u32).to_le_bytes(), content].concat();
    let format = [1u16.to_le_bytes(), 2u16.to_le_bytes()].concat();
    let format = [format, 8000u32.to_le_bytes().to_vec(), 32000u32.to_le_bytes().to_vec(), vec![4, 0, 16, 0]].concat();
    let wav = chunk(b"RIFF", &[b"WAVE".as_slice(), &chunk(b"fmt ", &format), &chunk(b"data", &samples)].concat());
    let mut readers = vec![
        ("kind: csv, config: { path: f.csv, columns: [a, b, c] }", "f.csv", [b"a,b,c\n", numbers.as_bytes()].concat()),
        ("kind: file, config: { path: f.bin, max_bytes: 64B }", "f.bin", lines.into_bytes()),
        ("kind: file, config: { path: f.bin, max_bytes: 64B, framing: raw }", "f.bin", sized(true)),
        ("kind: file, config: { path: f.bin, max_bytes: 64B, framing: length }", "f.bin", sized(false)),
        ("kind: file, config: { path: f.bin, max_bytes: 64B, framing: length_le }", "f.bin", sized(true)),
        ("kind: npy, config: { path: f.npy }", "f.npy", array()),
        ("kind: wav, config: { path: f.wav, frames: 16 }", "f.wav", wav),
    ];
    let small = |end: &str| {
        let mut found: Vec<Vec<u8>> =
            files(&root().join("graphs"), &[end]).into_iter().map(|path| std::fs::read(path).unwrap()).collect();
        found.sort_by_key(Vec::len);
        found.into_iter().next()
    };
    if let Some(png) = small("png") {
        readers.push(("kind: image_files, config: { path: f.png }", "f.png", png));
    }
    if let Some(jpeg) = small("jpg") {
        readers.push(("kind: image_files, config: { path: f.jpg }", "f.jpg", jpeg));
    }
    readers
}

/// Reads a file to its end or first error; returns whether a message was read.
fn read(folder: &Path, config: &str) -> Result<bool, String> {
    // `image_files` has several outputs.
    let from = if config.contains("image_files") { "r/image" } else { "r" };
    let text = format!(
        "version: 1\nnodes:\n  r: {{ {config} }}\n  z: {{ kind: 'null', from: {from} }}\nrun: {{ max_memory: 256MiB }}\n"
    );
    let mut spec = limen::Spec::from_text(&text, "graph.yaml").map_err(|problems| problems.to_string())?;
    spec.folders.graph = folder.to_path_buf();
    let Ok(plan) = limen::Plan::new(spec, &limen_tests::registry()) else { return Ok(false) };
    let Ok(mut running) = plan.wire().and_then(limen::Wired::start) else { return Ok(false) };
    let has_ended = running.wait_for(Duration::from_secs(10));
    let report = running.wait();
    let failures: Vec<String> = report.failures.iter().map(|failure| format!("{failure:?}")).collect();
    if !has_ended || !report.bugs.is_empty() || report.failures.iter().any(|failure| failure.panicked) {
        return Err(format!("ended: {has_ended}, {}; {}", report.bugs.join("; "), failures.join("; ")));
    }
    Ok(report.node("r").is_some_and(|node| node.taken > 0))
}

/// \[S7\]
#[test]
fn damaged_files_are_read_or_refused() {
    let readers = readers();
    let folder = tempfile::tempdir().unwrap();
    for (config, file, bytes) in &readers {
        std::fs::write(folder.path().join(file), bytes).unwrap();
        assert_eq!(read(folder.path(), config), Ok(true), "{config}, undamaged");
    }
    attack("data", 600, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (config, file, bytes) = pick(&mut rng, &readers);
        let mut bytes = bytes.clone();
        damage(&mut rng, &mut bytes);
        std::fs::write(folder.path().join(file), &bytes).unwrap();
        read(folder.path(), config).map_err(|why| format!("{config}: {why}"))
    });
}

#[test]
fn damaged_weights_are_read_or_refused() {
    let about = br#"{"w":{"dtype":"F32","shape":[6,4],"data_offsets":[0,96]}}  "#;
    let tensors = [&(about.len() as u64).to_le_bytes()[..], about, &[1; 96]].concat();
    let kinds = [("w.safetensors", tensors), ("w.npy", array()), ("w.npz", archive("w.npy", &array()))];
    let folder = tempfile::tempdir().unwrap();
    let folders = Folders { graph: folder.path().to_path_buf(), ..Folders::default() };
    let load = |file: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(file), bytes).unwrap();
        WeightConfig::of(file).load(&folders)
    };
    for (file, bytes) in &kinds {
        assert_eq!(load(file, bytes).map(|weights| weights.shape), Ok(vec![6, 4]), "{file}, undamaged");
    }
    attack("weights", 600, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (file, bytes) = pick(&mut rng, &kinds);
        let mut bytes = bytes.clone();
        damage(&mut rng, &mut bytes);
        match load(file, &bytes) {
            Ok(weights) if weights.elements() * weights.dtype.size() > 64 * bytes.len() + 4096 => {
                Err(format!("{file}: {} bytes became {} elements", bytes.len(), weights.elements()))
            }
            Ok(_) => Ok(true),
            Err((_, why)) if why.is_empty() => Err(format!("{file}: refused without a message")),
            Err(_) => Ok(false),
        }
    });
}
