//! Runs that do not start: every file stays as it was, and nothing of theirs is left.

use crate::program::Folder;
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;

const SINKS: &str = "
  s: { kind: timer, config: { rate: 1kHz, count: 30 } }
  c: { kind: csv, config: { path: out/result.csv }, from: s }
  n: { kind: npy, config: { path: out/result.npy }, from: s }
  j: { kind: jsonl, config: { path: out/result.jsonl }, from: s }
  r: { kind: record, config: { path: out/drive.mcap }, from: s }
";

/// The files of a folder and of `out` in it.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = [folder.to_path_buf(), folder.join("out")].into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}

fn results(folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    fs::create_dir_all(folder.0.join("out")).unwrap();
    for name in ["out/result.csv", "out/result.npy", "out/result.jsonl", "out/drive.mcap", "t.pb", "r.html", "p.svg"] {
        fs::write(folder.0.join(name), "precious").unwrap();
    }
    contents(&folder.0)
}

const OPTIONS: &str = "-q --trace t.pb --report r.html --svg p.svg --histograms h";

/// Promise (files): A failed start leaves every file as it was.
#[test]
fn a_failed_start_leaves_every_file_as_it_was() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (name, node, words) in [
        ("port", format!("t: {{ kind: tcp, config: {{ listen: {port} }} }}"), ""),
        (
            "device",
            "t: { kind: serial, config: { path: /dev/limen-none, baud: 9600 } }".to_string(),
            "--allow-path /dev",
        ),
    ] {
        let graph = format!("version: 1\nnodes:{SINKS}  {node}\n  z: {{ kind: 'null', from: t }}\n");
        let folder = Folder::with(name, &graph);
        let before = results(&folder);
        let ran = folder.run(&format!("graph.yaml {OPTIONS} {words}"));
        ran.expect(1, "", "nothing has run");
        assert!(contents(&folder.0) == before, "{name}: {:?}\n{}", contents(&folder.0).keys(), ran.err);
    }
}

/// Promise (files): A start that runs out of descriptors leaves every file as it was.
///
/// Descriptors run out at every place of a start.
#[test]
fn a_start_without_descriptors_leaves_every_file_as_it_was() {
    let folder = Folder::with("descriptors", &format!("version: 1\nnodes:{SINKS}"));
    let mut failed = 0;
    for most in 4..60 {
        let before = results(&folder);
        let ran = folder.run_after(&format!("ulimit -n {most}"), &format!("graph.yaml {OPTIONS}"));
        if ran.code == Some(0) {
            break;
        }
        // Below a few descriptors, not even the graph is read.
        if ran.err.contains("nothing has run") || ran.err.contains("nothing was started") {
            failed += 1;
            assert!(contents(&folder.0) == before, "{most}: {:?}\n{}", contents(&folder.0).keys(), ran.err);
        }
    }
    assert!(failed > 3, "{failed} starts failed");
}
