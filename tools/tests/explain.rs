//! Every code of a problem is explained, and its example has that problem.

use limen::{Plan, Spec};
use std::collections::BTreeSet;
use std::path::Path;

/// Codes named in the sources of the engine.
fn used() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut todo = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src")];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                todo.push(entry);
                continue;
            }
            let text = std::fs::read_to_string(&entry).unwrap();
            for part in text.split('"').filter(|part| part.len() == 5 && part.starts_with("E0")) {
                found.insert(part.to_string());
            }
        }
    }
    found
}

#[test]
fn every_code_is_explained() {
    let explained: BTreeSet<String> = limen_run::codes().iter().map(|code| code.code.to_string()).collect();
    assert_eq!(explained, used());
    assert_eq!(explained.len(), limen_run::codes().len(), "a code is there twice");
}

#[test]
fn every_example_has_its_code() {
    let registry = limen_run::registry();
    for code in limen_run::codes() {
        let Some(example) = code.example else { continue };
        let problems = match Spec::from_text(example, "example.yaml").and_then(|spec| Plan::new(spec, &registry)) {
            Ok(_) => panic!("{}: its example has no problem:\n{example}", code.code),
            Err(problems) => problems,
        };
        let found: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
        assert!(problems.0.iter().any(|problem| problem.code == code.code), "{}: {found:#?}\n{example}", code.code);
    }
}

#[test]
fn explanations_of_codes_and_kinds_are_complete_and_fit_80_columns() {
    let registry = limen_run::registry();
    for code in limen_run::codes() {
        let text = limen_run::explain(&code.code.to_lowercase(), &registry).unwrap();
        assert!(text.contains(code.title) && text.contains("What to do: "), "{text}");
        assert!(text.lines().all(|line| line.starts_with("    ") || line.chars().count() <= 80), "{text}");
    }
    for kind in registry.kinds() {
        let text = limen_run::explain(&kind.name, &registry).unwrap();
        assert!(text.starts_with(&format!("{} (", kind.name)), "{text}");
        // The type of every setting is described, whatever its schema looks like.
        assert!(!text.contains(": a value"), "{text}");
    }
    assert!(limen_run::explain("E9999", &registry).is_none() && limen_run::explain("gizmo", &registry).is_none());
}

/// Keys of a graph, join policies and counters lead to where they are defined.
#[test]
fn words_of_graphs_and_reports_are_explained() {
    let registry = limen_run::registry();
    for (word, parts) in [
        ("unmatched", &["docs/policies.md"][..]),
        ("expect_every", &["In a graph: The longest gap", "docs/policies.md, When nothing comes:"]),
        ("on_gap", &["In a graph: ", "docs/policies.md, When nothing comes:"]),
        ("by_time", &["docs/policies.md, "]),
        ("patience", &["docs/policies.md, "]),
        ("anchor", &["docs/policies.md, "]),
        ("on_error", &["docs/policies.md, When a call fails:"]),
        ("drop_oldest", &["docs/policies.md, When an edge is full:"]),
        ("superseded", &["docs/"]),
        ("malformed", &["Kinds with this word: ", "decode"]),
        ("too_large", &["Kinds with this word: ", "tcp", "udp"]),
        ("disk_full", &["Kinds with this word: "]),
        ("reconnect", &["docs/sensors.md"]),
        ("max_age", &["In a graph: "]),
        ("starves", &["docs/"]),
    ] {
        let text = limen_run::explain(word, &registry).unwrap_or_else(|| panic!("{word}"));
        assert!(text.starts_with(&format!("{word}\n")), "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{word}: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().count() < 60 && !text.contains("]("), "{text}");
    }
}

/// Kinds with the word in their name come first. Words of fewer than four letters are searched in
/// names only.
#[test]
fn the_help_for_an_unknown_kind_names_kinds_that_mention_it() {
    let registry = limen_run::registry();
    for (kind, expected) in [
        ("boxes", "write one of `crop_boxes`, `decode_boxes`, "),
        ("jpeg", "write one of `decode_image`, `encode_image`"),
        ("the", "`limen-run kinds` describes each"),
    ] {
        let graph = format!("version: 1\nnodes:\n  a: {{ kind: {kind} }}\n");
        let problems = Spec::from_text(&graph, "graph.yaml").and_then(|spec| Plan::new(spec, &registry)).err().unwrap();
        let text = problems.to_string();
        assert!(text.contains(expected), "{text}");
    }
}
