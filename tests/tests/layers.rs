//! Layers of a graph: includes, profiles, overlays, settings, variables, defaults and subgraphs,
//! and the errors of each.

use limen::{Layers, Plan, Problems, Spec};
use limen_tests::registry;
use std::path::PathBuf;

/// A temporary folder with files.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self, layers: &Layers) -> Result<Spec, Problems> {
        Spec::from_file_with(self.path("graph.yaml"), layers)
    }

    /// The problems, without the name of the folder.
    fn problems(&self, layers: &Layers) -> Vec<String> {
        let folder = format!("{}/", self.0.path().display());
        let problems = self.load(layers).expect_err("there is something wrong");
        problems.0.iter().map(|problem| problem.to_string().replace(&folder, "")).collect()
    }
}

fn set(settings: &[&str]) -> Layers {
    Layers { set: settings.iter().map(ToString::to_string).collect(), ..Layers::default() }
}

/// The flat graph of a text, after its configs are read.
fn flat(text: &str, layers: &Layers) -> String {
    shown(&Spec::from_text_with(text, "g.yaml", layers).unwrap_or_else(|problems| panic!("{problems}\n{text}")))
}

fn shown(spec: &Spec) -> String {
    registry().read_configs(spec);
    spec.to_yaml()
}

fn problems(text: &str, layers: &Layers) -> Vec<String> {
    let problems = match Spec::from_text_with(text, "g.yaml", layers) {
        Ok(spec) => Plan::new(spec, &registry()).expect_err("there is something wrong"),
        Err(problems) => problems,
    };
    problems.0.iter().map(ToString::to_string).collect()
}

/// Each problem has the expected beginning and part.
#[track_caller]
fn expect(found: &[String], expected: &[(&str, &str)]) {
    let all = found.join("\n");
    assert_eq!(found.len(), expected.len(), "{all}");
    for (found, (start, part)) in found.iter().zip(expected) {
        assert!(found.starts_with(start) && found.contains(part), "{found}\nexpected {start} .. {part}");
        assert!(found.contains("help: "), "no remedy: {found}");
    }
}

const TWO: &str = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 3 } }\n  b: { kind: collect, from: a }\n";

#[test]
fn settings_have_the_type_of_their_place() {
    for (setting, expected) in [
        ("nodes.a.config.count=7", "count: 7"),
        ("nodes.a.core=1", "core: 1"),
        ("nodes.b.from.capacity=4", "from:\n      from: a\n      capacity: 4"),
        ("nodes.b.from={ from: a, when_full: latest }", "when_full: latest"),
        ("nodes.b.on_error=skip", "on_error: skip"),
        ("run.stop=5s", "run:\n  stop: 5s"),
        ("graph=other", "graph: other"),
        ("nodes.a.config=", "a:\n    kind: numbers\n  b"),
    ] {
        let yaml = flat(TWO, &set(&[setting]));
        assert!(yaml.contains(expected), "{setting}:\n{yaml}");
    }
    // A word is text or a number, as its place requires.
    let yaml = flat("version: 1\ngraph: x\nnodes:\n  a: { kind: numbers }\n", &set(&["graph=null"]));
    assert!(yaml.contains("graph: "), "{yaml}");
}

#[test]
fn a_setting_without_a_target_is_refused() {
    for (setting, part) in [
        ("nodes.a.core", "found no `=`"),
        ("nodes..core=1", "expected names separated by dots"),
        ("nodes.a.kind.core=1", "expected a map with key `core`, found `numbers`"),
        ("nodes.b.from={ from: a", "invalid YAML"),
    ] {
        expect(&problems(TWO, &set(&[setting])), &[(&format!("--set {setting}: error[E0152]"), part)]);
    }
    // The value is checked like any other.
    expect(&problems(TWO, &set(&["nodes.a.colour=1"])), &[("--set nodes.a.colour=1: error[E0103]", "unknown key")]);
    expect(&problems(TWO, &set(&["nodes.a.core=x"])), &[("--set nodes.a.core=x: error[E0106]", "got x")]);
}

#[test]
fn later_layers_override_earlier_ones() {
    let folder = Folder::with(&[
        (
            "graph.yaml",
            "version: 1\ninclude: [parts/run.yaml]\nrun: { stop: 2s }\ndefaults: { node: { core: 0 } }\n\
             nodes:\n  a: { kind: numbers, config: { count: 1 } }\n  b: { kind: collect, from: a }\n\
             profiles: { robot: { nodes: { a: { config: { count: 2 }, core: 1 } } } }\n",
        ),
        ("parts/run.yaml", "version: 1\nrun: { stop: 1s, watchdog: 9s }\n"),
        ("over.yaml", "nodes: { a: { config: { count: 3 } }, b: { from: { capacity: 9 } } }\n"),
    ]);
    let layers = Layers { profile: Some("robot".into()), ..Layers::default() };
    let yaml = shown(&folder.load(&layers).unwrap());
    for part in ["count: 2", "stop: 2s", "watchdog: 9s", "core: 1", "core: 0"] {
        assert!(yaml.contains(part), "{part}\n{yaml}");
    }
    let layers = Layers { overlays: vec![folder.path("over.yaml")], ..layers };
    let yaml = shown(&folder.load(&layers).unwrap());
    assert!(yaml.contains("count: 3") && yaml.contains("capacity: 9") && yaml.contains("from: a"), "{yaml}");
    let layers = Layers { set: vec!["nodes.a.config.count=4".into()], ..layers };
    let spec = folder.load(&layers).unwrap();
    assert!(shown(&spec).contains("count: 4"));
    let places = spec.to_yaml_with_places();
    assert!(places.contains("count: 4 # --set nodes.a.config.count=4"), "{places}");
    assert!(places.contains("graph.yaml:4:27"), "{places}");
}

#[test]
fn variables_are_values_and_never_structure() {
    let text = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: \"${LIMEN_TEST_COUNT:-5}\" } }\n  \
                b: { kind: collect, from: \"${UPSTREAM}\" }\n  c: { kind: collect, from: a, config: { note: \"$${x} $5\" } }\n";
    let layers =
        Layers { variables: [("UPSTREAM".to_string(), "a".to_string())].into_iter().collect(), ..Layers::default() };
    let yaml = flat(text, &layers);
    assert!(yaml.contains("count: 5") && yaml.contains("from: a"), "{yaml}");
    assert!(yaml.contains("$${x} $5"), "escaping is preserved when it is read again: {yaml}");
    // A value cannot add keys.
    let layers = Layers {
        variables: [("UPSTREAM".to_string(), "{ from: a, capacity: 1 }".to_string())].into_iter().collect(),
        ..Layers::default()
    };
    assert!(problems(text, &layers)[0].contains("expected `node` or `node/port`, found"));
    for (value, part) in [
        ("${HOME}", "not allowed to read the variable `HOME`"),
        ("${LIMEN_TEST_NOT_SET}", "`LIMEN_TEST_NOT_SET` is not set"),
        ("${LIMEN_X", "expected `}` at the end"),
        ("${rate}", "unknown parameter `rate`"),
        ("${}", "unknown parameter ``"),
    ] {
        let text =
            format!("version: 1\nnodes:\n  a: {{ kind: numbers }}\n  b: {{ kind: collect, from: \"{value}\" }}\n");
        let found = problems(&text, &Layers::default());
        assert!(found.iter().any(|f| f.starts_with("g.yaml:4:29: error[E0151]") && f.contains(part)), "{found:?}");
    }
}

/// The value of a variable may be text or a number: its place decides, and the flat form preserves
/// that.
#[test]
fn the_flat_form_preserves_the_type_of_variables() {
    let text = r#"
version: 1
nodes:
  a: { kind: "${LIMEN_TEST_KIND:-1}", core: "${LIMEN_TEST_CORE:-1}", config: { count: "${N}", note: "${N}" } }
  "true": { kind: collect, from: "${LIMEN_TEST_FROM:-true}" }
"#;
    for value in
        ["1", "true", "null", "~", "", "1e3", " 7 ", "0x10", "a # b", "}", "1 # }", "1\n", "b", "${x}", "$${N}"]
    {
        let variables = [("N".to_string(), value.to_string())];
        let layers = Layers { variables: variables.into_iter().collect(), ..Layers::default() };
        let spec = Spec::from_text_with(text, "g.yaml", &layers).unwrap_or_else(|problems| panic!("{problems}"));
        let yaml = spec.to_yaml();
        for part in ["kind: '1'", "from: 'true'", "core: 1"] {
            assert!(yaml.replace('"', "'").contains(part), "{part}\n{yaml}");
        }
        let again =
            Spec::from_text(&yaml, "flat.yaml").unwrap_or_else(|problems| panic!("{value:?}: {problems}\n{yaml}"));
        assert!(again == spec, "{value:?}\n{yaml}");
        assert_eq!(again.to_yaml(), yaml, "{value:?}");
    }
    // After the kind has read its config, the type is known.
    let registry = limen::Registry::new().with(limen_tests::stock_nodes);
    let text = "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter, count: \"${N}\" } }\n  \
                b: { kind: csv, from: a, config: { path: \"${N}\" } }\n";
    let variables = [("N".to_string(), "7".to_string())];
    let layers = Layers { variables: variables.into_iter().collect(), ..Layers::default() };
    let spec = Spec::from_text_with(text, "g.yaml", &layers).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(spec.to_yaml().matches("${:-7}").count(), 2, "{}", spec.to_yaml());
    registry.read_configs(&spec);
    let yaml = spec.to_yaml().replace('"', "'");
    assert!(yaml.contains("count: 7") && yaml.contains("path: '7'"), "{yaml}");
    assert!(Spec::from_text(&yaml, "flat.yaml").unwrap() == spec);
}

const EYES: &str = "\
version: 1
subgraphs:
  eye:
    parameters: { step: 1 }
    inputs: { in: any }
    outputs: { out: second }
    nodes:
      first: { kind: step, from: { from: inputs/in, capacity: 4 } }
      second: { kind: step, from: first, on_error: stop }
    paths: []
  pair:
    inputs: { in: ~ }
    outputs: { out: b }
    nodes:
      a: { subgraph: eye, from: inputs }
      b: { subgraph: eye, inputs: { in: a/out } }
nodes:
  end: { kind: collect, from: both }
  source: { kind: numbers, config: { count: 10 } }
  both: { subgraph: pair, from: { from: source, when_full: drop_oldest }, core: 0, on_error: skip, nodes: { a: { core: 1 } } }
";

#[test]
fn subgraphs_expand_to_nodes_with_dots() {
    let spec = Spec::from_text(EYES, "g.yaml").unwrap_or_else(|problems| panic!("{problems}"));
    let yaml = spec.to_yaml();
    for part in [
        "both.a.first:\n    kind: step\n    from:\n      from: source\n      capacity: 4\n      when_full: drop_oldest\n    core: 1\n    on_error: skip",
        "both.b.first:\n    kind: step\n    from:\n      from: both.a.second\n      capacity: 4\n    core: 0\n    on_error: skip",
        "both.b.second:\n    kind: step\n    from: both.b.first\n    on_error: stop\n    core: 0",
        "end:\n    kind: collect\n    from: both.b.second",
    ] {
        assert!(yaml.contains(part), "{part}\n--- in\n{yaml}");
    }
    assert!(!yaml.contains("subgraph"));
    // It reads back equal, and runs.
    assert!(Spec::from_text(&yaml, "flat.yaml").unwrap() == spec);
    let report = Plan::new(spec, &registry()).unwrap().wire().unwrap().start().unwrap().wait();
    assert_eq!(report.node("end").map(|node| node.done), Some(10));
}

#[test]
fn problems_of_subgraphs_are_reported() {
    let change = |from: &str, to: &str| {
        assert!(EYES.contains(from), "{from}");
        problems(&EYES.replace(from, to), &Layers::default())
    };
    for (from, to, start, part) in [
        ("subgraph: pair", "subgraph: pare", "g.yaml:20:21: error[E0153]", "write one of `eye`, `pair`"),
        ("a: { subgraph: eye", "a: { subgraph: pair", "g.yaml:15:22: error[E0153]", "contains itself"),
        (
            "config: { count: 10 } }",
            "}\n  z: { subgraph: eye, from: source, config: { stap: 2 } }",
            "g.yaml:20:47: error[E0154]",
            "`step`",
        ),
        (
            "parameters: { step: 1 }",
            "parameters: { step: ~ }",
            "g.yaml:15:7: error[E0154]",
            "does not set the parameter `step`",
        ),
        ("inputs: { in: a/out }", "inputs: { inn: a/out }", "g.yaml:16:7: error[E0155]", "is not connected"),
        ("from: inputs }", "from: inputs/other }", "g.yaml:15:33: error[E0155]", "has no input `other`"),
        ("outputs: { out: b }", "outputs: { out: c }", "g.yaml:13:21: error[E0155]", "no node `c`"),
        ("from: both }", "from: both/image }", "g.yaml:18:31: error[E0155]", "has no output `image`"),
        (
            "nodes: { a: { core: 1 } } }",
            "nodes: { x: { core: 1 } } }",
            "g.yaml:20:109: error[E0153]",
            "has no node `x`",
        ),
        ("inputs: { in: any }", "inputs: { in: \"u8[\" }", "g.yaml:5:19: error[E0155]", "expected `]` at the end"),
        (
            "  source: {",
            "  both.a.first: { kind: numbers }\n  source: {",
            "g.yaml:8:7: error[E0149]",
            "duplicate node `both.a.first`",
        ),
        ("  pair:\n", "  pair:\n    colour: 1\n", "g.yaml:12:5: error[E0103]", "unknown key `colour`"),
    ] {
        let found = change(from, to);
        assert!(found.iter().any(|f| f.starts_with(start) && f.contains(part)), "{to}\n{}", found.join("\n"));
    }
    // Ten within ten within ten: expansion stops early.
    let mut bomb = String::from("version: 1\nsubgraphs:\n  s0: { nodes: { n: { kind: numbers } } }\n");
    for depth in 1..7 {
        bomb += &format!("  s{depth}:\n    nodes:\n");
        for n in 0..10 {
            bomb += &format!("      n{n}: {{ subgraph: s{} }}\n", depth - 1);
        }
    }
    bomb += "nodes: { x: { subgraph: s6 } }\n";
    assert!(problems(&bomb, &Layers::default())[0].contains("must expand to at most 20000 nodes"));
}

#[test]
fn declared_ports_of_subgraphs_are_checked() {
    let text = "version: 1\nsubgraphs:\n  s:\n    inputs: { in: \"SPEC\" }\n    nodes: { z: { kind: 'null', from: inputs/in } }\n\
                nodes:\n  a: { kind: synthetic, config: { pattern: counter, count: 1 } }\n  x: { subgraph: s, from: a }\n";
    let registry = limen::Registry::new().with(limen_tests::stock_nodes);
    let plan =
        |spec: &str| Spec::from_text(&text.replace("SPEC", spec), "g.yaml").and_then(|s| Plan::new(s, &registry));
    assert!(plan("u64").is_ok() && plan("any").is_ok());
    let problems = plan("f32[3]").expect_err("a counter is not f32");
    assert_eq!(problems.0.len(), 1, "{problems}");
    let text = problems.to_string();
    assert!(
        text.starts_with("g.yaml:8:27: error[E0156]") && text.contains("input `in` of `x` expects f32[3]"),
        "{text}"
    );
}

#[test]
fn defaults_fill_missing_keys() {
    let yaml = flat(
        "version: 1\ndefaults:\n  node: { on_error: skip, core: 1 }\n  kinds: { numbers: { config: { count: 4 }, on_error: stop } }\n  \
         input: { capacity: 8 }\nnodes:\n  a: { kind: numbers }\n  b: { kind: collect, from: a, cpu: 0 }\n  \
         c: { kind: collect, from: { from: a, when_full: latest }, on_error: detach }\n",
        &Layers::default(),
    );
    for part in [
        "a:\n    kind: numbers\n    config:\n      count: 4\n    on_error: stop\n    core: 1",
        "b:\n    kind: collect\n    from:\n      from: a\n      capacity: 8\n    cpu: 0\n    on_error: skip\n",
        "c:\n    kind: collect\n    from:\n      from: a\n      when_full: latest\n    on_error: detach",
    ] {
        assert!(yaml.contains(part), "{part}\n--- in\n{yaml}");
    }
    expect(
        &problems(
            "version: 1\ndefaults: { node: { kind: numbers }, nodes: {}, input: { from: a } }\nnodes:\n  a: { kind: numbers }\n",
            &Layers::default(),
        ),
        &[("g.yaml:2:21", "`kind`"), ("g.yaml:2:38", "`nodes`"), ("g.yaml:2:64", "`from`")],
    );
}

#[test]
fn includes_stay_in_the_folder_and_are_limited() {
    let graph = "version: 1\ninclude: [FILE]\nnodes:\n  a: { kind: numbers }\n  b: { kind: collect, from: a }\n";
    let outside = Folder::with(&[("x.yaml", "version: 1\n")]);
    let folder = Folder::with(&[
        ("self.yaml", "version: 1\ninclude: [graph.yaml]\n"),
        ("twice.yaml", "version: 1\nnodes: { a: { kind: numbers } }\n"),
        ("broken.yaml", "nodes: [\n"),
        ("colour.yaml", "colour: 1\n"),
        ("many.yaml", &format!("include: [{}]\n", "colour.yaml, ".repeat(70))),
    ]);
    std::os::unix::fs::symlink(outside.path("x.yaml"), folder.path("link.yaml")).unwrap();
    nix::unistd::mkfifo(&folder.path("fifo.yaml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let outer = outside.path("x.yaml").display().to_string();
    for (file, place, part) in [
        ("nowhere.yaml", "graph.yaml:2:11: error[E0148]", "cannot be read"),
        (outer.as_str(), "graph.yaml:2:11: error[E0148]", "leaves the graph's folder"),
        ("../x.yaml", "graph.yaml:2:11: error[E0148]", "x.yaml"),
        ("link.yaml", "graph.yaml:2:11: error[E0148]", "leaves the graph's folder"),
        ("fifo.yaml", "graph.yaml:2:11: error[E0148]", "expected a regular file"),
        ("/dev/zero", "graph.yaml:2:11: error[E0148]", "leaves the graph's folder"),
        ("self.yaml", "self.yaml:2:11: error[E0148]", "includes itself"),
        ("twice.yaml", "graph.yaml:4:3: error[E0149]", "duplicate `a` in `nodes`"),
        ("broken.yaml", "broken.yaml:", "invalid YAML"),
        ("colour.yaml", "colour.yaml:1:1: error[E0103]", "unknown key `colour`"),
        ("many.yaml", "many.yaml:1:", "at most 64 files"),
    ] {
        std::fs::write(folder.path("graph.yaml"), graph.replace("FILE", file)).unwrap();
        let found = folder.problems(&Layers::default());
        assert!(found.iter().any(|f| f.starts_with(place) && f.contains(part)), "{file}:\n{}", found.join("\n"));
    }
    std::fs::write(folder.path("graph.yaml"), graph.replace("FILE", &outer)).unwrap();
    let allowed = Layers { allowed: vec![outside.0.path().to_path_buf()], ..Layers::default() };
    assert!(folder.load(&allowed).is_ok(), "files of an allowed folder can be included");
}

#[test]
fn expansion_of_a_small_file_is_limited() {
    let value = "x".repeat(30_000);
    let parameter = format!(
        "version: 1\nsubgraphs:\n  s: {{ parameters: {{ p: 1 }}, nodes: {{ n: {{ kind: numbers, config: {{ label: [{}] }} }} }} }}\n\
         nodes:\n{}",
        "\"${p}\", ".repeat(1000),
        (0..100).map(|i| format!("  x{i}: {{ subgraph: s, config: {{ p: {value} }} }}\n")).collect::<String>()
    );
    let long =
        format!("version: 1\nnodes: {{ a: {{ kind: \"{}\" }} }}\n", "${LIMEN_X:-yyyyyyyyyyyyyyyy}".repeat(10_000));
    let defaults = format!(
        "version: 1\ndefaults: {{ node: {{ budget: [{}] }} }}\nnodes:\n{}",
        "1, ".repeat(10_000),
        (0..1000).map(|i| format!("  n{i}: {{ kind: numbers }}\n")).collect::<String>()
    );
    for (text, part) in [(parameter, "at most 500000"), (long, "at most 64 KiB"), (defaults, "at most 500000")] {
        let found = problems(&text, &Layers::default());
        assert!(found.iter().any(|f| f.contains(part)), "{part}: {}", found[0]);
    }
}

#[test]
fn empty_layers_change_nothing() {
    let folder =
        Folder::with(&[("graph.yaml", &format!("{TWO}profiles: {{ dev: ~ }}\n")), ("empty.yaml", "# nothing\n")]);
    let bare = folder.load(&Layers::default()).unwrap();
    let layers = Layers { profile: Some("dev".into()), overlays: vec![folder.path("empty.yaml")], ..Layers::default() };
    assert!(folder.load(&layers).unwrap() == bare);
}

#[test]
fn an_unknown_profile_is_refused() {
    let text = format!("{TWO}profiles: {{ robot: {{}}, dev: {{ colour: 1 }} }}\n");
    let layers = Layers { profile: Some("robo".into()), ..Layers::default() };
    expect(
        &problems(&text, &layers),
        &[("g.yaml: error[E0150]", "did you mean `robot`?"), ("g.yaml:5:31: error[E0103]", "in profile `dev`")],
    );
}
