//! `limen-run migrate`: what it shows, what it changes in files, and its exit codes.

use crate::program::{Folder, says};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// Keys in every style, with `PATH` in place of those that have an old name, and CRLF.
const GRAPH: &str = r#"# größe: device
version: 1
include: parts/more.yaml
defaults: { kinds: { serial: { config: { PATH: default, framing: length } } } }
subgraphs:
  line: { inputs: { in: any }, nodes: { port: { kind: serial, config: { PATH: s1, baud: 9600 }, from: inputs/in } } }
nodes:
  # device: a comment
  a: { kind: timer, config: { rate: 1Hz, count: 1 } }
  instance: { subgraph: line, nodes: { port: { config: { PATH: s2 } } }, from: a }
  two: { kind: serial, config: { "framing": length, 'PATH': s3, baud: 9600 }, from: a } # größe 'device'
  anchor: { kind: serial, config: &config { PATH: s4, baud: 9600 }, from: a }
  device:
    kind: serial
    config:
      PATH  : s5 # device
      baud: 9600
    from: a
profiles:
  robot: { nodes: { two: { config: { "PATH": s6 } }, device: { config: *config } } }
"#;
/// With a byte order mark, and two of the keys in a line.
const MORE: &str = "\u{feff}nodes: { t: { kind: serial, config: { PATH: größe, baud: 9600 }, from: a }, \
                    s: { kind: serial, config: { PATH: s7, baud: 9600 }, from: a } }\n";

fn written(text: &str, key: &str) -> String {
    text.replace("PATH", key)
}

#[test]
fn only_deprecated_keys_change() {
    let old = written(GRAPH, "device").replace('\n', "\r\n");
    let folder = Folder::with("migrate", &old);
    let at = |name: &str| folder.0.join(name);
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    fs::create_dir(at("parts")).unwrap();
    fs::write(at("parts/more.yaml"), written(MORE, "device")).unwrap();
    fs::set_permissions(at("graph.yaml"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("graph.yaml", at("link.yaml")).unwrap();

    let shown = folder.run("migrate graph.yaml");
    shown.expect(1, "@@ -16 +16 @@\n-      device  : s5 # device\n+      path  : s5 # device\n", "");
    shown.expect(1, "--- ./parts/more.yaml\n+++ ./parts/more.yaml\n@@ -1 +1 @@\n", "");
    assert_eq!((read("graph.yaml"), read("parts/more.yaml")), (old, written(MORE, "device")));
    says(&folder.run("check graph.yaml"), 0, &["deprecated name of `path`", "or run `limen-run migrate graph.yaml`"]);

    // Each file once, under any name.
    let changed = folder.run("migrate --write link.yaml graph.yaml");
    changed.expect(0, "link.yaml: renamed 7 keys\n./parts/more.yaml: renamed 2 keys\n", "");
    assert_eq!(changed.out.lines().count(), 2, "{}", changed.out);
    assert_eq!(read("graph.yaml"), written(GRAPH, "path").replace('\n', "\r\n"));
    assert_eq!(read("parts/more.yaml"), written(MORE, "path"));
    assert_eq!(fs::metadata(at("graph.yaml")).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(at("link.yaml").symlink_metadata().unwrap().is_symlink());
    let checked = folder.run("check graph.yaml");
    assert!(!checked.expect(0, "ok", "").out.contains("deprecated"), "{}", checked.out);
    for words in ["migrate graph.yaml", "migrate --write graph.yaml"] {
        folder.run(words).expect(0, "no deprecated keys in 2 files\n", "");
    }
}

#[test]
fn an_overlay_is_migrated_with_its_graph() {
    let line = "version: 1\nnodes:\n  s: { kind: serial, config: { device: none, baud: 9600 } }\n  z: { kind: 'null', from: s }\n";
    let folder = Folder::with("migrate-overlay", line);
    let overlay = folder.0.join("over.yaml");
    fs::write(&overlay, "nodes: { s: { config: { device: /dev/null } } }\n").unwrap();
    folder.run("migrate --write graph.yaml --overlay over.yaml").expect(0, "over.yaml: renamed 1 key\n", "");
    assert_eq!(fs::read_to_string(&overlay).unwrap(), "nodes: { s: { config: { path: /dev/null } } }\n");
}

#[test]
fn a_key_that_is_not_written_as_its_name_is_left_to_the_user() {
    let line = "version: 1\nnodes:\n  s: { kind: serial, config: { \"dev\\x69ce\": none, baud: 9600 } }\n  z: { kind: 'null', from: s }\n";
    let folder = Folder::with("migrate-escaped", line);
    for words in ["migrate graph.yaml", "migrate --write graph.yaml"] {
        let expected = "change by hand: `device`, a deprecated name of `path`: write `path` (graph.yaml:3:32)\n";
        folder.run(words).expect(1, expected, "");
    }
    assert_eq!(fs::read_to_string(folder.0.join("graph.yaml")).unwrap(), line);
}

/// No file is written when one cannot be read, and none outside the folders of the graph.
#[test]
fn a_graph_that_cannot_be_read_changes_nothing() {
    let line = "version: 1\ninclude: INCLUDED\nnodes:\n  s: { kind: serial, config: { device: none } }\n";
    let folder = Folder::with("migrate-refused", "");
    let inner = folder.0.join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(folder.0.join("above.yaml"), "nodes: { t: { kind: serial, config: { device: none } } }\n").unwrap();
    fs::write(inner.join("wrong.yaml"), "nodes: [\n").unwrap();
    fs::write(inner.join("good.yaml"), line.replace("include: INCLUDED\n", "")).unwrap();
    for (included, expected) in [
        ("../above.yaml", "error[E0148]"),
        ("wrong.yaml", "inner/wrong.yaml:1:8: error[E0102]"),
        ("missing.yaml", "error[E0148]"),
        ("${LIMEN_NOT_SET}.yaml", "error[E0151]"),
    ] {
        let text = line.replace("INCLUDED", included);
        fs::write(inner.join("graph.yaml"), &text).unwrap();
        folder.run("migrate --write inner/good.yaml inner/graph.yaml").expect(2, "", expected);
        assert_eq!(fs::read_to_string(inner.join("graph.yaml")).unwrap(), text);
        assert!(fs::read_to_string(inner.join("good.yaml")).unwrap().contains("device"));
    }
    folder.run("migrate none.yaml").expect(2, "", "none.yaml: error[E0100]");
    fs::write(inner.join("graph.yaml"), line.replace("INCLUDED", "../above.yaml")).unwrap();
    folder.run("migrate --write inner/graph.yaml --allow-path .").expect(0, "above.yaml: renamed 1 key\n", "");
}
