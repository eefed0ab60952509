//! Mutated graphs: each is planned or refused, and nothing else happens. H1, H2, H6.

use limen::{Layers, Plan, Spec};
use limen_tests::fuzz::{attack, files, pick, root};
use std::path::Path;

/// Values in the wrong place.
const WORDS: &[&str] = &[
    "~",
    "0",
    "-1",
    "1e99",
    "9223372036854775808",
    "18446744073709551615",
    "true",
    "[]",
    "{}",
    "\"\"",
    "x",
    "ä\u{202e}",
    ".nan",
    "10ms",
    "0s",
    "584y",
    "1Hz",
    "0Hz",
    "1e30Hz",
    "8EiB",
    "0B",
    "block",
    "latest",
    "drop_oldest",
    "fail",
    "restart",
    "{ restart: { max: 1 } }",
    "[1, 2]",
    "u8[480,640,3]",
    "f32[≤9999999999,9]",
    "../../etc/passwd",
    "/dev/zero",
    "${LIMEN_X}",
    "${LIMEN_X:-1}",
    "null",
    "pass",
    "merge",
    "synthetic",
    "by_time",
    "zip",
    "sample",
    "16777216",
    "all",
];

/// Keys of graph files.
const KEYS: &[&str] = &[
    "from",
    "when_full",
    "capacity",
    "soft_capacity",
    "urgent_capacity",
    "max_bytes",
    "max_age",
    "expect_every",
    "on_gap",
    "core",
    "cpu",
    "on_error",
    "criticality",
    "join",
    "budget",
    "fault",
    "qos",
    "clock",
    "kind",
    "config",
    "inputs",
    "subgraph",
    "include",
    "deadline",
    "on_miss",
];

/// Lines to append to any graph: subgraphs, profiles, defaults.
const LAYERS: &[&str] = &[
    "subgraphs:\n  g: { parameters: { p: 1 }, inputs: { x: any }, outputs: { y: n }, nodes: { n: { kind: merge, inputs: { a: inputs/x } } } }\n",
    "subgraphs:\n  g: { nodes: { n: { subgraph: g } } }\n",
    "profiles:\n  p: { nodes: { n: { kind: timer, config: { rate: 1Hz } } }, run: { stop: 1ms } }\n",
    "defaults:\n  node: { core: 0 }\n  input: { capacity: 4 }\n",
    "run: { max_memory: 1KiB }\n",
    "run: { strict: true, mlock: true }\n",
    "cores: { 0: { wait: spin, rt: fifo }, 1: { schedule: deadline } }\n",
    "paths: [{ from: a, to: b, deadline: 1ns, on_miss: stop }]\n",
];

/// The ranges of names and numbers in a line.
fn tokens(line: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut begin = None;
    for (at, c) in line.char_indices().chain([(line.len(), ' ')]) {
        let is_part = c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '<' | '≤');
        match (is_part, begin) {
            (true, None) => begin = Some(at),
            (false, Some(from)) => {
                found.push(from..at);
                begin = None;
            }
            _ => {}
        }
    }
    found
}

/// Mutates the text of a graph; the result is usually still a graph.
fn mutate(rng: &mut fastrand::Rng, text: &str, other: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let others: Vec<&str> = other.lines().collect();
    let words: Vec<String> =
        lines.iter().flat_map(|line| tokens(line).into_iter().map(|at| line[at].to_string())).collect();
    for _ in 0..=rng.usize(..3) {
        if lines.is_empty() {
            break;
        }
        let at = rng.usize(..lines.len());
        let places = tokens(&lines[at]);
        match rng.u8(..12) {
            0 => _ = lines.remove(at),
            1 => lines.insert(rng.usize(..lines.len()), lines[at].clone()),
            2 => {
                let to = rng.usize(..lines.len());
                lines.swap(at, to);
            }
            3 => lines[at].insert_str(0, "  "),
            4 => lines[at] = lines[at].trim_start_matches("  ").to_string(),
            5 if !others.is_empty() => lines.insert(at, (*pick(rng, &others)).to_string()),
            6 => {
                let keys = lines[at].find('{').map(|brace| brace + 1);
                let entry = format!(" {}: {},", pick(rng, KEYS), pick::<&str>(rng, WORDS));
                if let Some(brace) = keys {
                    lines[at].insert_str(brace, &entry);
                }
            }
            7 => lines.push((*pick(rng, LAYERS)).to_string()),
            _ if places.is_empty() => {}
            8 => {
                _ = {
                    let place = pick(rng, &places).clone();
                    lines[at].drain(place).count()
                }
            }
            9 | 10 => {
                let place = pick(rng, &places).clone();
                let word = if words.is_empty() { String::new() } else { pick(rng, &words).clone() };
                lines[at].replace_range(place, &word);
            }
            _ => {
                let place = pick(rng, &places).clone();
                lines[at].replace_range(place, pick::<&str>(rng, WORDS));
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Returns whether a text is planned. The messages of a refused one must contain no control
/// characters.
fn check(text: &str, folder: &Path, layers: &Layers) -> Result<bool, String> {
    let wrong = |problems: limen::Problems| {
        if problems.is_empty() {
            return Err(format!("refused without a message:\n{text}"));
        }
        let said = problems.to_string();
        match said.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
            Some(c) => Err(format!("{c:?} in the message:\n{said:?}")),
            None => Ok(false),
        }
    };
    let mut spec = match Spec::from_text_with(text, "graph.yaml", layers) {
        Ok(spec) => spec,
        Err(problems) => return wrong(problems),
    };
    // The flat form means the same.
    let flat = spec.to_yaml();
    let again = Spec::from_text(&flat, "graph.yaml")
        .map_err(|problems| format!("its flat form is refused: {problems}\n{flat}"));
    if layers.variables.is_empty() && !flat.replace("${:-", "").contains("${") {
        let again = again?;
        if again != spec && !spec.name.is_empty() {
            return Err(format!("its flat form differs:\n{text}\n---\n{flat}"));
        }
    }
    spec.folders.graph = folder.to_path_buf();
    let (nodes, plan) = (flat.len(), Plan::new(spec, &limen_tests::registry()));
    match plan {
        Ok(plan) if plan.memory().total() > plan.memory().limit => {
            Err(format!("planned with more memory than allowed ({nodes} bytes of text)"))
        }
        Ok(_) => Ok(true),
        Err(problems) => wrong(problems),
    }
}

/// Attack (graphs): shipped and invalid graphs with lines and words exchanged, under subgraphs,
/// profiles, defaults and settings; expected: planned, or refused with a fix; the flat form has the
/// same result
#[test]
fn mutated_graphs_are_planned_or_refused() {
    let shipped = files(&root().join("graphs"), &["yaml"]);
    let hostile = files(&root().join("tests/hostile"), &["yaml"]);
    let texts: Vec<(std::path::PathBuf, String)> = shipped
        .into_iter()
        .chain(hostile)
        .map(|path| (path.parent().unwrap().to_path_buf(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    let mut planned = Vec::new();
    attack("graphs", 1500, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (folder, text) = pick(&mut rng, &texts);
        let (_, other) = pick(&mut rng, &texts);
        let text = mutate(&mut rng, text, other);
        let mut layers = Layers::default();
        if rng.u8(..4) == 0 {
            layers.profile = Some("p".into());
        }
        if rng.u8(..4) == 0 {
            layers.set.push(format!(
                "nodes.{}.{}={}",
                pick(&mut rng, &["a", "s", "n", "camera"]),
                pick(&mut rng, KEYS),
                pick::<&str>(&mut rng, WORDS)
            ));
        }
        let found = check(&text, folder, &layers).map_err(|why| format!("{why}\n--- of\n{text}"));
        planned.extend(found.as_ref().is_ok_and(|is_planned| *is_planned).then_some(seed));
        found
    });
}

/// Each of these once caused a panic, a hang or a wrong message.
#[test]
fn graphs_that_once_failed_are_handled() {
    for path in files(&root().join("tests/fuzz/cases"), &["yaml"]) {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = check(&text, &root().join("graphs/policies"), &Layers::default());
        assert!(found.is_ok(), "{}: {}", path.display(), found.unwrap_err());
    }
}
