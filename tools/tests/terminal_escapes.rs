//! Text from files, models, libraries and the command line never reaches the terminal with control
//! characters.

use crate::program::{Folder, Ran};
use limen_tests::protobuf::field;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Bidirectional controls and line ends that YAML and JSON accept.
const BARE: &str = "a\u{202e}\u{2066}\u{200f}\u{85}\u{2028}b";
/// The same with cursor movements, which names of files may contain.
const NAME: &str = "a\u{202e}\u{2066}\u{200f}\u{85}\u{2028}\u{1b}[2J\r\u{7f}b";
/// The same with characters that end a text in other formats.
const EVIL: &str = "a\u{202e}\u{2066}\u{200f}\u{85}\u{2028}\u{1b}[2J\r\u{7f}\0b";

/// The control characters of an output.
fn controls(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '\n' | '\t') && limen::text::is_terminal_control(*c)).collect()
}

/// Runs with words that may hold spaces.
fn run(folder: &Folder, words: &[&OsStr]) -> Ran {
    let output = folder.command("").args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// A model of one operator, with the given names.
fn model(op: &str, domain: &str, node: &str, tensor: &str) -> Vec<u8> {
    let value = |name: &str| {
        let dims = [field(1, field(2, "n")), field(1, [8, 2])].concat();
        [field(1, name), field(2, field(1, [vec![8, 1], field(2, dims)].concat()))].concat()
    };
    let node = [field(1, tensor), field(2, "y"), field(3, node), field(4, op), field(7, domain)].concat();
    let graph = [field(1, node), field(2, "g"), field(11, value(tensor)), field(12, value("y"))].concat();
    let opset = |domain: &str| field(8, [field(1, domain), vec![16, 17]].concat());
    [vec![8, 8], field(7, graph), opset(""), opset(domain)].concat()
}

const MODEL: &str = "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: noise, shape: [2], dtype: f32, count: 2 } }\n  \
                     m: { kind: infer, config: { model: MODEL }, from: a }\n  b: { kind: 'null', from: m }\n";
const SINK: &str = "  out: { kind: 'null', from: in }\n";

/// A YAML string in quotes, with any character.
fn quoted(text: &str) -> String {
    let plain = |c: char| if c == '"' || c == '\\' { format!("\\{c}") } else { format!("\\U{:08x}", u32::from(c)) };
    format!("\"{}\"", text.chars().map(plain).collect::<String>())
}

/// Promise (output): No file, model, library or argument can control the terminal.
#[test]
fn no_input_controls_the_terminal() {
    let in_quotes = quoted(EVIL);
    let bare = format!("\"{BARE}\"");
    let file = |text: &str| format!("version: 1\nnodes:\n  in: {{ kind: {text} }}\n{SINK}");
    let mut graphs = vec![
        format!(
            "version: 1\ngraph: {in_quotes}\nnodes:\n  in: {{ kind: synthetic, config: {{ pattern: counter, count: 1 }} }}\n{SINK}"
        ),
        format!("version: 1\nnodes:\n  {in_quotes}: {{ kind: 'null' }}\n"),
        format!("version: 1\n{in_quotes}: 1\nnodes: {{}}\n"),
        format!("version: 1\ninclude: [{in_quotes}]\nnodes: {{}}\n"),
        format!("version: 1\nnodes:\n  in: {{ kind: synthetic, from: {in_quotes} }}\n"),
        format!("a: &{BARE} 1\nb: *{BARE}x\n{BARE}: [\n"),
        format!("version: 1\n? [{in_quotes}]\n: 1\n"),
        format!("a: !{BARE} 1\n{in_quotes}: 1\n{in_quotes}: 2\n"),
        format!("version: ${{{BARE}}}\n"),
        MODEL.replace("MODEL", &in_quotes),
        MODEL.replace("MODEL", &format!("good.onnx, sha256: {in_quotes}")),
        MODEL.replace("MODEL", &format!("good.onnx, manifest: {in_quotes}")),
        MODEL.replace("MODEL", "good.onnx, manifest: manifest.json"),
        MODEL.replace("MODEL", &format!("good.onnx, verify: {{ case: {in_quotes} }}")),
    ];
    for text in [&in_quotes, &bare] {
        graphs.extend([
            file(&text.to_string()),
            file(&format!("synthetic, config: {{ pattern: {text} }}")),
            file(&format!("synthetic, config: {{ {text}: 1 }}")),
            file(&format!("synthetic, config: {{ pattern: counter, rate: {text} }}")),
            file(&format!("synthetic, config: {{ pattern: counter }}, core: {text}")),
            file(&format!("file, config: {{ path: {text} }}")),
            file(&format!("csv, config: {{ path: {text} }}")),
            file(&format!("image_files, config: {{ pattern: {text}, width: 1, height: 1 }}")),
            file(&format!("tcp, config: {{ connect: {text} }}")),
            file(&format!("serial, config: {{ path: {text} }}")),
        ]);
    }
    graphs.extend(
        ["table.csv", "good.onnx", "manifest.json"].map(|path| file(&format!("csv, config: {{ path: {path} }}"))),
    );
    graphs.extend(["table.csv", "good.onnx"].map(|path| file(&format!("npy, config: {{ path: {path} }}"))));
    graphs.extend(["table.csv", "good.onnx"].map(|path| file(&format!("wav, config: {{ path: {path} }}"))));
    let models = ["op.onnx", "domain.onnx", "node.onnx", "tensor.onnx", "text.onnx"];
    graphs.extend(models.map(|name| MODEL.replace("MODEL", name)));

    let folder = Folder::with("evil", "");
    let at = |name: &str| folder.0.join(name);
    fs::write(at("table.csv"), format!("x,{EVIL}\n1,{EVIL}\n\"{EVIL}\n")).unwrap();
    fs::write(at("manifest.json"), format!("{{ \"{BARE}\": \"{BARE}\" }}")).unwrap();
    fs::write(at("text.onnx"), EVIL).unwrap();
    fs::write(at("good.onnx"), model("Relu", "", "n", "x")).unwrap();
    for (name, [op, domain, node, tensor]) in [
        ("op.onnx", [EVIL, "", "n", "x"]),
        ("domain.onnx", ["Relu", EVIL, "n", "x"]),
        ("node.onnx", ["Nothing", "", EVIL, "x"]),
        ("tensor.onnx", ["Relu", "", "n", EVIL]),
    ] {
        fs::write(at(name), model(op, domain, node, tensor)).unwrap();
    }
    let expect = |ran: Ran, what: &str| {
        let all = format!("{}{}", ran.out, ran.err);
        // `expand` into a file keeps some characters: see below.
        let shown = if what.starts_with("expand") {
            ran.out.replace(['\u{202e}', '\u{2066}', '\u{200f}'], "") + &ran.err
        } else {
            all.clone()
        };
        let seen = controls(&shown);
        assert!(seen.is_empty(), "{what}: {seen:?} in {all:?}");
        assert!(ran.code.is_some_and(|code| code != 101) && !all.contains("panicked at"), "{what}: {all}");
        for noise in ["Option<", "DuplicateKeyPolicy", "untagged", "deserialize"] {
            assert!(!all.contains(noise), "{what}: {noise:?} in {all}");
        }
    };
    for text in &graphs {
        fs::write(at("graph.yaml"), text).unwrap();
        for words in
            ["graph.yaml", "graph.yaml --json", "graph.yaml --log-format json", "plan graph.yaml", "expand graph.yaml"]
        {
            expect(folder.run(words), &format!("{words}: {text}"));
        }
    }
    for name in models.into_iter().chain(["good.onnx"]) {
        for words in ["inspect", "inspect --json", "inspect --model-limits none"] {
            expect(folder.run(&format!("{words} {name}")), &format!("{words} {name}"));
        }
    }
    // Names of files, and other words of the command line.
    let graph = &graphs[0];
    let name = OsString::from(format!("{NAME}.yaml"));
    for text in [graph, "version: 1\nspeed: 3\n", "version: [\n"] {
        fs::write(at(&format!("{NAME}.yaml")), text).unwrap();
        fs::write(at("graph.yaml"), text).unwrap();
        for verb in ["run", "check", "plan", "expand", "dot", "inspect"] {
            expect(run(&folder, &[verb.as_ref(), &name]), &format!("{verb} {name:?}: {text}"));
            expect(run(&folder, &[verb.as_ref(), &name, "--json".as_ref()]), &format!("{verb} {name:?} --json"));
        }
    }
    fs::write(at("graph.yaml"), graph).unwrap();
    let evil: &OsStr = NAME.as_ref();
    for option in [
        "--profile",
        "--overlay",
        "--shadow",
        "--set",
        "--duration",
        "--frames",
        "--cores",
        "--out",
        "--allow-path",
        "--onnxruntime",
        "--cache",
        "--model-limits",
        "--telemetry",
        "--histograms",
        "--interval",
        "--fail-on",
        "--log-format",
        "--env",
    ] {
        expect(run(&folder, &["graph.yaml".as_ref(), option.as_ref(), evil]), option);
        let taken = ["graph.yaml".as_ref(), option.as_ref(), evil, "--log-format".as_ref(), "json".as_ref()];
        expect(run(&folder, &taken), option);
    }
    for words in [&[evil][..], &["explain".as_ref(), evil], &["graph.yaml".as_ref(), evil], &["new".as_ref(), evil]] {
        expect(run(&folder, words), &format!("{words:?}"));
    }
    expect(run(&folder, &["new".as_ref(), evil]), "new, again");
    expect(run(&folder, &["check".as_ref(), OsStr::from_bytes(b"\xff\x1b.yaml")]), "no UTF-8");
}

/// Promise (output): A name with a line end cannot imitate a message of limen.
#[test]
fn a_name_with_a_line_end_forges_no_message() {
    let forged = "x\nerror[E9999]: all is lost";
    let folder = Folder::with("forged", "");
    let quoted = quoted(forged);
    for graph in [
        format!("version: 1\nnodes:\n  {quoted}: {{ kind: 'null' }}\n"),
        format!("version: 1\nnodes:\n  in: {{ kind: {quoted} }}\n"),
        format!("version: 1\nnodes:\n  in: {{ kind: file, config: {{ path: {quoted} }} }}\n{SINK}"),
        MODEL.replace("MODEL", &quoted),
    ] {
        fs::write(folder.0.join("graph.yaml"), &graph).unwrap();
        let ran = folder.run("check graph.yaml");
        assert!(!ran.err.lines().any(|line| line.trim_start().starts_with("error[E9999]")), "{}", ran.err);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        let json = folder.run("check graph.yaml --log-format json");
        for line in json.err.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        }
    }
}

/// Promise (output): `--json` escapes control characters, so programs read the original text.
#[test]
fn json_output_keeps_every_character() {
    for c in EVIL.chars().filter(|c| limen::text::is_terminal_control(*c)) {
        let name = format!("a{c}b");
        let graph = format!(
            "version: 1\ngraph: {}\nnodes:\n  in: {{ kind: synthetic, config: {{ pattern: counter, count: 1 }} }}\n{SINK}",
            quoted(&name)
        );
        let folder = Folder::with(&format!("json-{:x}", u32::from(c)), &graph);
        let ran = folder.run("graph.yaml --json");
        let said = if ran.code == Some(0) {
            ran.json()["graph"].clone()
        } else {
            ran.json()["problems"][0]["message"].clone()
        };
        assert!(said.as_str().unwrap().contains(c), "{}", ran.out);
    }
}

/// If stdout is not a terminal, `expand` writes every character of the graph as it is.
#[test]
fn expand_writes_the_same_graph_into_a_file() {
    let path = "a\u{202e}\u{200f}b.csv";
    let file = |path: &str| {
        format!(
            "version: 1\nnodes:\n  in: {{ kind: file, config: {{ path: {path} }} }}\n  out: {{ kind: 'null', from: in }}\n"
        )
    };
    for written in [path.to_string(), format!("'{path}'"), format!("\"{path}\""), quoted(path)] {
        let folder = Folder::with("expand", &file(&written));
        let first = folder.run("expand graph.yaml");
        assert_eq!(first.code, Some(0), "{}", first.err);
        fs::write(folder.0.join("graph.yaml"), &first.out).unwrap();
        let again = folder.run("expand graph.yaml");
        // Without the places, which differ.
        let bare =
            |text: &str| text.lines().map(|line| line.split(" #").next().unwrap().to_string()).collect::<Vec<_>>();
        assert_eq!(bare(&again.out), bare(&first.out), "{written}");
        assert!(first.out.contains(path), "{}", first.out);
    }
}
