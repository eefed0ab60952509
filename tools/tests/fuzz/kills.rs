//! The program is killed (SIGKILL) at a random moment while it writes every kind of file: older
//! files stay whole, incomplete files are readable as far as they were written, and the next run
//! works and reports them.

use super::program;
use limen_tests::fuzz::{attack_in_children, pick};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A sink that writes a file.
struct Sink {
    kind: &'static str,
    /// The file's name, in `out`.
    file: &'static str,
    config: &'static str,
    from: &'static str,
    /// Whether it can append to a file.
    appends: bool,
}

const SINKS: &[Sink] = &[
    Sink { kind: "csv", file: "table.csv", config: "", from: "n", appends: true },
    Sink { kind: "jsonl", file: "lines.jsonl", config: "", from: "n", appends: true },
    Sink { kind: "file", file: "raw.bin", config: ", framing: length", from: "s", appends: true },
    Sink { kind: "wav", file: "sound.wav", config: ", sample_rate: 16kHz", from: "s", appends: false },
    Sink { kind: "npy", file: "array.npy", config: "", from: "s", appends: false },
];

/// Bytes of the header of an array, and of one item.
const ARRAY: (usize, usize) = (256, 640);

/// A graph with all sinks, each with its value of `exists:`.
fn graph(exists: &[&str]) -> String {
    let mut text =
        "version: 1\ngraph: kills\nnodes:\n  n: { kind: synthetic, config: { pattern: counter, count: 12000 } }\n  \
                    s: { kind: synthetic, config: { pattern: noise, dtype: f32, shape: [160, 1], count: 1200 } }\n"
            .to_string();
    for (Sink { kind, file, config, from, .. }, exists) in SINKS.iter().zip(exists) {
        text += &format!(
            "  {kind}: {{ kind: {kind}, config: {{ path: out/{file}, exists: {exists}{config} }}, from: {from} }}\n"
        );
    }
    text
}

/// The files of a folder with their contents.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_string(), fs::read(&path).unwrap())).collect()
}

/// The offset of the first sample of a sound.
fn samples(sound: &[u8]) -> Option<usize> {
    sound.windows(4).position(|word| word == b"data").map(|at| at + 8).filter(|at| *at <= sound.len())
}

/// Checks that bytes are a prefix of the whole file, and that a length in their header is correct.
fn is_readable(sink: &Sink, bytes: &[u8], whole: &[u8]) -> Result<(), String> {
    let is_begun = |from: usize| bytes.len() <= whole.len() && bytes.get(from..) == whole.get(from..bytes.len());
    let is_so = match sink.kind {
        // Nothing was written yet.
        _ if bytes.is_empty() => true,
        "wav" => samples(bytes).is_some_and(|from| {
            let said = u32::from_le_bytes(bytes[from - 4..from].try_into().unwrap()) as usize;
            is_begun(from) && said <= bytes.len() - from
        }),
        "npy" => {
            let text = String::from_utf8_lossy(bytes.get(..ARRAY.0).unwrap_or_default()).into_owned();
            let items = text.split_once("'shape': (").and_then(|(_, behind)| behind.split_once(','));
            let items = items.and_then(|(items, _)| items.parse::<usize>().ok());
            items.is_some_and(|items| is_begun(ARRAY.0) && items * ARRAY.1 <= bytes.len() - ARRAY.0)
        }
        _ => is_begun(0),
    };
    if is_so { Ok(()) } else { Err(format!("{}: {} bytes that are not a prefix of the file", sink.file, bytes.len())) }
}

/// The content of an older file after the next run has appended to it.
fn appended(sink: &Sink, older: &[u8], whole: &[u8]) -> Vec<u8> {
    let header = if sink.kind == "csv" { whole.iter().position(|b| *b == b'\n').unwrap() + 1 } else { 0 };
    [older, &whole[if older.is_empty() { 0 } else { header }..]].concat()
}

/// Checks a file after a run with this `exists:` was killed: the older file is whole, or the new
/// one is readable.
fn check_after_kill(
    sink: &Sink,
    exists: &str,
    older: Option<&Vec<u8>>,
    left: Option<&Vec<u8>>,
    whole: &[u8],
) -> Result<(), String> {
    let is_so = match (exists, left) {
        ("replace", left) => left == older || left.is_some_and(|left| left == whole),
        ("append", None) => older.is_none(),
        ("append", Some(left)) => {
            let older = older.map_or(&[][..], Vec::as_slice);
            left.starts_with(older) && appended(sink, older, whole).starts_with(left)
        }
        (_, None) => true,
        (_, Some(left)) => return is_readable(sink, left, whole),
    };
    let sizes = (older.map(Vec::len), left.map(Vec::len), whole.len());
    if is_so { Ok(()) } else { Err(format!("{}, {exists}: damaged, sizes {sizes:?}", sink.file)) }
}

/// Promise (files): A killed run damages no earlier file; what it wrote is readable, and the next
/// run names the leftovers.
///
/// Attack (kills): SIGKILL at a random moment while every kind of file is written; expected: older
/// files are intact, written data is readable, the next run reports the leftovers
#[test]
fn a_killed_run_damages_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, out) = (folder.path(), folder.path().join("out"));
    let all = |words: &str| {
        let _ = fs::remove_dir_all(&out);
        fs::write(folder.join("graph.yaml"), graph(&["replace"; 5])).unwrap();
        let begun = Instant::now();
        let ran = program(folder, &format!("graph.yaml {words}")).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        (content(&out), begun.elapsed())
    };
    let (small, _) = all("-q --set nodes.n.config.count=7 --set nodes.s.config.count=3");
    let (whole, length) = all("-q --histograms hist");
    attack_in_children("kills", 30, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let _ = fs::remove_dir_all(&out);
        fs::create_dir(&out).unwrap();
        let mut exists = Vec::new();
        for sink in SINKS {
            let mode =
                *pick(&mut rng, if sink.appends { &["replace", "append", "fail"][..] } else { &["replace", "fail"] });
            if mode != "fail" && rng.u8(..4) > 0 {
                fs::write(out.join(sink.file), &small[sink.file]).unwrap();
            }
            exists.push(mode);
        }
        let older = content(&out);
        fs::write(folder.join("graph.yaml"), graph(&exists)).unwrap();

        let mut child = program(folder, "graph.yaml -q --histograms hist")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        // A random moment.
        std::thread::sleep(length.mul_f64(rng.f64() * 1.1).min(Duration::from_secs(5)));
        child.kill().map_err(|error| error.to_string())?;
        let is_killed = child.wait().map_err(|error| error.to_string())?.signal().is_some();

        let left = content(&out);
        let mut parts = Vec::new();
        for (sink, exists) in SINKS.iter().zip(&exists) {
            check_after_kill(sink, exists, older.get(sink.file), left.get(sink.file), &whole[sink.file])?;
            let name = format!(".{}.{}.part", sink.file, child.id());
            if let Some(bytes) = left.get(&name) {
                is_readable(sink, bytes, &whole[sink.file])?;
                parts.push(name);
            }
        }
        let strange = left.keys().find(|name| !parts.contains(name) && !SINKS.iter().any(|sink| sink.file == *name));
        if let Some(name) = strange {
            return Err(format!("an unknown file `{name}` is left"));
        }

        let again = program(folder, "graph.yaml --histograms hist").output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&again.stderr);
        let now = content(&out);
        let is_there =
            SINKS.iter().zip(&exists).any(|(sink, exists)| *exists == "fail" && left.contains_key(sink.file));
        if is_there {
            // The next run is refused, and changes nothing.
            let is_refused = again.status.code() == Some(2) && said.contains("already exists") && now == left;
            return if is_refused { Ok(is_killed) } else { Err(format!("not refused ({}): {said}", again.status)) };
        }
        if !again.status.success() {
            return Err(format!("the next run: {}: {said}", again.status));
        }
        if let Some(part) = parts.iter().find(|part| !said.contains(*part)) {
            return Err(format!("the next run does not report `{part}`: {said}"));
        }
        for (sink, exists) in SINKS.iter().zip(&exists) {
            let expected = match (*exists, left.get(sink.file)) {
                ("append", Some(left)) => appended(sink, left, &whole[sink.file]),
                _ => whole[sink.file].clone(),
            };
            if now.get(sink.file) != Some(&expected) {
                return Err(format!("{}, {exists}: the next run has not written it", sink.file));
            }
        }
        let figures = content(&folder.join("hist"));
        if let Some(part) = now.keys().chain(figures.keys()).find(|name| name.ends_with(".part")) {
            return Err(format!("`{part}` is left after a complete run"));
        }
        let is_json = |name: &str| serde_json::from_slice::<serde_json::Value>(&figures[name]).is_ok();
        if !["summary.json", "run.json"].into_iter().all(is_json) {
            return Err("the figures are not JSON".into());
        }
        Ok(is_killed)
    });
}
