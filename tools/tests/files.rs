//! Files that a graph names: their types, their places, and incomplete output.

use crate::program::{Folder, Ran, SLOW, signal, signal_until_it_ends};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::process::Stdio;

/// A graph that copies a file.
fn copying(from: &str, to: &str, exists: &str) -> String {
    format!(
        "version: 1\nnodes:\n  in: {{ kind: file, config: {{ path: {from} }} }}\n  \
         out: {{ kind: file, config: {{ path: {to}, exists: {exists} }}, from: in }}\n"
    )
}

/// Promise (files): A graph writes no file that it reads, nor its own file.
///
/// A graph that appends to its own input would run until the disk is full.
#[test]
fn a_graph_writes_nothing_that_it_reads() {
    let folder = Folder::with("reads", "");
    let at = |name: &str| folder.0.join(name);
    fs::write(at("data"), "one\ntwo\n").unwrap();
    fs::write(at("part.yaml"), "run: { stop: 1s }\n").unwrap();
    fs::hard_link(at("data"), at("hard")).unwrap();
    symlink("data", at("link")).unwrap();
    fs::create_dir(at("out")).unwrap();
    symlink("../data", at("out/data")).unwrap();
    for (from, to, read) in [
        ("data", "data", "data"),
        ("data", "link", "data"),
        ("link", "data", "link"),
        ("data", "hard", "data"),
        ("data", "graph.yaml", "graph.yaml"),
        ("data", "part.yaml", "part.yaml"),
    ] {
        for exists in ["append", "replace"] {
            let graph = copying(from, to, exists).replace("version: 1", "version: 1\ninclude: [part.yaml]");
            fs::write(at("graph.yaml"), &graph).unwrap();
            let ran = folder.run("graph.yaml");
            let expected = "`out` overwrites ";
            ran.expect(2, "", "error[E0132]").expect(2, "", expected).expect(2, "", read);
            assert_eq!(fs::read_to_string(at("data")).unwrap(), "one\ntwo\n");
            assert_eq!(fs::read_to_string(at("graph.yaml")).unwrap(), graph);
        }
    }
    // In another output folder a file of the same name is another file, unless a link leads back.
    fs::write(at("graph.yaml"), copying("data", "copy", "append")).unwrap();
    folder.run("graph.yaml -q --out elsewhere").expect(0, "", "");
    assert_eq!(fs::read_to_string(at("elsewhere/copy")).unwrap(), "one\ntwo\n");
    fs::write(at("graph.yaml"), copying("data", "data", "append")).unwrap();
    folder.run("graph.yaml --out out").expect(2, "", "links to a file outside the output folder");
}

/// Promise (files): Options such as `--histograms` and `--cache` overwrite no file that the graph
/// reads or writes.
#[test]
fn options_overwrite_no_file_that_the_graph_reads_or_writes() {
    let kept = format!("{}.trial", "0a".repeat(32));
    let nothing = |path: &str| {
        format!("nodes:\n  in: {{ kind: file, config: {{ path: {path} }} }}\n  out: {{ kind: 'null', from: in }}\n")
    };
    let writing = |path: &str| copying("other", path, "replace").replace("version: 1\n", "");
    for (graph, name, words, expected) in [
        (nothing("summary.json"), "graph.yaml", "--histograms .", "`./summary.json`, which the graph reads as"),
        (nothing("in/summary.csv"), "graph.yaml", "--histograms in", "`in/summary.csv`, which the graph reads as"),
        (nothing("in/../in/run.json"), "graph.yaml", "--histograms ./in", "`./in/run.json`, which the graph reads as"),
        (nothing("data"), "graph.yaml", "--histograms in", "`in/summary.json`, which the graph reads as"),
        (nothing("graph.hlog"), "graph.yaml", "--histograms .", "`./graph.hlog`, which the graph reads as"),
        (nothing("in.hgrm"), "graph.yaml", "--histograms .", "`./in.hgrm`, which the graph reads as"),
        (nothing("other"), "run.json", "--histograms .", "`./run.json`, which the graph reads as `run.json`"),
        (nothing("other"), "graph.yaml", "--overlay run.json --histograms .", "which the graph reads as `run.json`"),
        (writing("in/run.json"), "graph.yaml", "--histograms in", "`in/run.json`, which the node `out` writes"),
        (writing("x.hgrm"), "graph.yaml", "--out in --histograms in", "`in/x.hgrm`, which the node `out` writes"),
        (nothing(&kept), "graph.yaml", "--cache .", ".trial`, which the graph reads as"),
    ] {
        let folder = Folder::with("command-line", "");
        let at = |name: &str| folder.0.join(name);
        fs::create_dir(at("in")).unwrap();
        for name in ["summary.json", "in/summary.csv", "in/run.json", "data", "graph.hlog", "in.hgrm", "other", &kept] {
            fs::write(at(name), "precious\n").unwrap();
        }
        fs::hard_link(at("data"), at("in/summary.json")).unwrap();
        fs::write(at("run.json"), "run: { stop: 1s }\n").unwrap();
        fs::write(at(name), format!("version: 1\ngraph: graph\n{graph}")).unwrap();
        let all = || -> Vec<(String, Vec<u8>)> {
            let files = [at("."), at("in")].into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
            let files = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
            let mut all: Vec<_> = files.map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect();
            all.sort();
            all
        };
        let before = all();
        for verb in ["check", "run"] {
            let ran = folder.run(&format!("{verb} {name} {words}"));
            ran.expect(2, "", expected).expect(2, "", "name another folder; nothing has run");
        }
        assert!(all() == before, "{words}");
        folder.run(&format!("run {name} -q --histograms elsewhere")).expect(0, "", "");
    }
}

/// Promise (files): Stdout cannot be a file that the graph reads or writes.
#[test]
fn stdout_cannot_be_a_file_that_the_graph_reads_or_writes() {
    let folder = Folder::with("stdout", "");
    let at = |name: &str| folder.0.join(name);
    fs::write(at("graph.yaml"), copying("data", "copy", "replace")).unwrap();
    for (name, expected) in [
        ("data", "stdout is `./data`, which the graph reads; redirect stdout elsewhere"),
        ("graph.yaml", "stdout is `graph.yaml`, which the graph reads"),
        ("copy", "/copy`, which the node `out` writes"),
        ("report", ""),
    ] {
        fs::write(at("data"), "one\n").unwrap();
        let before = fs::read(at(name)).unwrap_or_default();
        for words in ["graph.yaml", "graph.yaml --json", "check graph.yaml"] {
            let file = fs::File::options().append(true).create(true).open(at(name)).unwrap();
            let ran = Ran::from(folder.command(words).stdout(file).output().unwrap());
            ran.expect(if expected.is_empty() { 0 } else { 2 }, "", expected);
            assert!(expected.is_empty() || fs::read(at(name)).unwrap() == before, "{name} {words}");
        }
        // Other problems do not change that.
        for words in
            ["graph.yaml --json --fail-on nonsense>1", "compile graph.yaml --cache kept", "plan --json graph.yaml"]
        {
            let file = fs::File::options().append(true).create(true).open(at(name)).unwrap();
            let ran = Ran::from(folder.command(words).stdout(file).output().unwrap());
            if !expected.is_empty() {
                ran.expect(2, "", expected);
                assert_eq!(fs::read(at(name)).unwrap(), before, "{name} {words}");
            }
        }
    }
}

/// Promise (files): A file name of any valid length can be written; a longer one is rejected.
#[test]
fn a_long_name_is_written_or_refused() {
    let folder = Folder::with("long", "");
    fs::write(folder.0.join("data"), "one\n").unwrap();
    for (length, exists) in [(200, "replace"), (240, "replace"), (255, "replace"), (255, "append"), (255, "fail")] {
        let name = "a".repeat(length);
        let _ = fs::remove_file(folder.0.join(&name));
        fs::write(folder.0.join("graph.yaml"), copying("data", &name, exists)).unwrap();
        folder.run("graph.yaml -q").expect(0, "", "");
        assert_eq!(fs::read_to_string(folder.0.join(&name)).unwrap(), "one\n", "{length}");
    }
    for path in ["a".repeat(256), format!("{}/b", "a".repeat(256)), "a/".repeat(2100) + "b"] {
        fs::write(folder.0.join("graph.yaml"), copying("data", &path, "replace")).unwrap();
        let ran = folder.run("check graph.yaml");
        ran.expect(2, "", "error[E0130]").expect(2, "", "write a");
    }
    // A graph without a name is called after its file, and so is its log.
    let name = "g".repeat(250) + ".yaml";
    fs::write(folder.0.join(&name), copying("data", "copy", "replace")).unwrap();
    folder.run(&format!("{name} -q --histograms h")).expect(0, "", "");
}

/// Promise (files): limen rejects pipes and devices as files without waiting for them.
#[test]
fn irregular_files_are_refused_without_waiting() {
    let folder = Folder::with("irregular", "");
    nix::unistd::mkfifo(&folder.0.join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    symlink("/dev/zero", folder.0.join("zero")).unwrap();
    for (kind, path, expected) in [
        ("csv", "pipe", "`pipe` is not a regular file"),
        ("file", "pipe", "`pipe` is not a regular file"),
        ("npy", "pipe", "`pipe` is not a regular file"),
        ("csv", "zero", "--allow-path"),
        ("csv", ".", "`.` is not a regular file"),
    ] {
        let graph = format!(
            "version: 1\nnodes:\n  in: {{ kind: {kind}, config: {{ path: {path} }} }}\n  out: {{ kind: 'null', from: in }}\n"
        );
        fs::write(folder.0.join("graph.yaml"), graph).unwrap();
        folder.run("check graph.yaml").expect(2, "", expected);
    }
    folder.run("check pipe").expect(2, "", "expected a regular file");
    fs::write(folder.0.join("graph.yaml"), copying("graph.yaml", "new/", "replace")).unwrap();
    folder.run("check graph.yaml").expect(2, "", "expected a file, found the folder `new/`");
}

/// Before the run, not after it.
#[test]
fn a_pipe_that_nobody_reads_is_refused_before_the_run() {
    let folder = Folder::with("pipes", "");
    let pipe = folder.0.join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
    fs::write(folder.0.join("data"), "one\n").unwrap();
    fs::write(folder.0.join("graph.yaml"), copying("data", "copy", "replace")).unwrap();
    for option in ["--report", "--trace", "--svg"] {
        let ran = folder.run(&format!("graph.yaml -q {option} pipe"));
        ran.expect(2, "", &format!("{option} pipe: no process reads the pipe: start the reader of the pipe first"));
        assert!(!folder.0.join("copy").exists(), "{option}");
    }
    // One that is read has a single end, after the whole page.
    let reader = std::thread::spawn(move || fs::read_to_string(pipe).unwrap());
    // At first the reader may not have opened it yet.
    let mut runs = std::iter::repeat_with(|| folder.run("graph.yaml -q --report pipe")).take(100);
    runs.find(|ran| ran.code != Some(2)).unwrap().expect(0, "", "");
    assert!(reader.join().unwrap().ends_with("</html>\n"));
}

/// Promise (files): A graph does not write through a link out of its output folder, with or without
/// `--out`.
///
/// Not even through a link that points to a new file.
#[test]
fn outputs_do_not_leave_the_folder_through_links() {
    let folder = Folder::with("links", "");
    let at = |name: &str| folder.0.join(name);
    for name in ["graph", "graph/out", "outside"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("outside/there"), "precious").unwrap();
    fs::write(at("graph/data"), "one\n").unwrap();
    for (to, name) in [("../outside/new", "graph/new"), ("../../outside/there", "graph/out/there")] {
        symlink(to, at(name)).unwrap();
    }
    fs::write(at("graph/graph.yaml"), copying("data", "new", "append")).unwrap();
    folder.run("graph/graph.yaml").expect(2, "", "`new` leaves the graph's folder: run with `--allow-path ");
    fs::write(at("graph/graph.yaml"), copying("data", "there", "replace")).unwrap();
    folder.run("graph/graph.yaml --out graph/out").expect(2, "", "`there` links to a file outside the output folder");
    assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(at("outside/there")).unwrap(), "precious");
}

/// Promise (files): An option that names an output file replaces only a regular file; it writes
/// into pipes and devices.
#[test]
fn options_replace_only_regular_files() {
    let graph = "version: 1\nnodes:\n  s: { kind: synthetic, config: { pattern: counter, count: 9 } }\n  z: { kind: 'null', from: s }\n";
    let folder = Folder::with("devices", graph);
    let at = |name: &str| folder.0.join(name);
    let kind = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().file_type();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    symlink("/dev/null", at("null")).unwrap();
    fs::write(at("old"), "old").unwrap();
    symlink("old", at("link")).unwrap();
    folder.run("graph.yaml -q --histograms h").expect(0, "", "");
    for option in ["--report", "--trace", "--dot", "--svg", "--mermaid"] {
        folder.run(&format!("graph.yaml -q {option} null")).expect(0, "", "");
        folder.run(&format!("graph.yaml -q {option} /dev/null")).expect(0, "", "");
        fs::write(at("old"), "old").unwrap();
        folder.run(&format!("graph.yaml -q {option} link")).expect(0, "", "");
        assert!(kind(&at("link")).is_symlink() && fs::read(at("old")).unwrap() != b"old", "{option}");
        for (path, what) in [("socket", "a socket"), ("h", "a folder"), ("new/", "a folder")] {
            for verb in ["run", "check"] {
                let ran = folder.run(&format!("{verb} graph.yaml -q {option} {path}"));
                ran.expect(2, "", &format!("expected a file, found {what}: `{path}`; nothing has run"));
            }
        }
        folder.run(&format!("check graph.yaml --report made/{option}")).expect(0, "", "");
        assert!(!at("made").exists(), "a check makes no folder");
    }
    let drawn = folder.run("graph.yaml -q --dot /dev/stdout");
    drawn.expect(0, "digraph", "");
    let to_file = fs::File::create(at("redirected")).unwrap();
    assert!(folder.command("graph.yaml -q --dot /dev/stdout").stdout(to_file).status().unwrap().success());
    assert!(fs::read_to_string(at("redirected")).unwrap().contains("digraph"));
    for (words, code) in [
        ("hist plot h --svg null", 0),
        ("hist convert h null --to json", 0),
        ("hist convert h /dev/stdout --to csv", 0),
        ("hist plot h --svg socket", 1),
    ] {
        folder.run(words).expect(code, "", "");
    }
    assert!(kind(&at("null")).is_symlink());
    assert!(std::os::unix::fs::FileTypeExt::is_char_device(&kind(std::path::Path::new("/dev/null"))));
}

/// Promise (files): A run that a second signal ends names its incomplete files.
///
/// Incomplete files have temporary names, so the program names them.
#[test]
fn a_second_signal_names_the_incomplete_files() {
    let table = "  table: { kind: csv, config: { path: out.csv }, from: numbers }\n  seen: ";
    let folder = Folder::with("second", &SLOW.replace("  seen: ", table));
    let mut child = folder.command("graph.yaml").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    signal(&child, "INT");
    for _ in 0..2 {
        err.read_line(&mut String::new()).unwrap();
    }
    signal_until_it_ends(&mut child, "INT");
    let mut said = String::new();
    err.read_to_string(&mut said).unwrap();
    out.read_to_string(&mut String::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let part = format!(".out.csv.{}.part", child.id());
    assert!(said.contains(&format!("{part} is the written part of an incomplete file")), "{said}");
    assert!(folder.0.join(&part).is_file());
    let rows = fs::read(folder.0.join(&part)).unwrap();
    // The next run reports the incomplete file, and keeps it under another name when its own file
    // is complete.
    let kept = format!("out-interrupted-{}.csv", child.id());
    let ran = folder.run("graph.yaml --frames 1");
    let expected =
        format!("`table` renames `./{part}`, which an interrupted run left, to `./{kept}` when this run completes");
    ran.expect(0, "", &expected);
    assert!(!folder.0.join(&part).exists() && folder.0.join("out.csv").is_file());
    assert_eq!(fs::read(folder.0.join(kept)).unwrap(), rows);
}

/// Promise (files): A file size limit (`ulimit -f`) is an error of the node, and headers match the
/// data written.
#[test]
fn a_file_size_limit_is_an_error_of_the_node() {
    let graph = "
version: 1
nodes:
  noise: { kind: synthetic, config: { pattern: noise, dtype: f32, shape: [1000, 2], count: 50 } }
  sound: { kind: wav, config: { path: out.wav, sample_rate: 16kHz }, from: noise, on_error: detach }
  nothing: { kind: 'null', from: noise }
";
    let folder = Folder::with("limit", graph);
    let ran = folder.run_after("ulimit -f 100", "graph.yaml --json");
    let json = ran.json();
    assert_eq!((ran.code, &json["degraded"]), (Some(0), &true.into()), "{}", ran.out);
    // The file has whole messages, and the header counts them.
    let sound = fs::read(folder.0.join("out.wav")).unwrap();
    let number = |at: usize| u32::from_le_bytes(sound[at..at + 4].try_into().unwrap()) as usize;
    let data = sound.windows(4).position(|window| window == b"data").unwrap();
    let (header, samples) = (data + 8, number(data + 4));
    assert_eq!((sound.len(), number(4)), (header + samples, samples + header - 8));
    assert!(samples > 40_000 && samples.is_multiple_of(8 * 1000), "{samples}");
}
