//! `run: { record: ... }`: nodes that record every connection of a graph, added to those that the
//! file declares.

use super::spec::{InputSpec, NodeSpec, Placed, Places};
use crate::base::document::{Key, Tree, Value};
use crate::base::error::{Problem, Problems};
use crate::base::policy::{EdgePolicy, NodePolicy};
use crate::message::MAX_PORTS;
use std::path::Path;

/// The kind of the nodes, and the name of the first.
const RECORD: &str = "record";

/// Returns the path of the file of part `number`: `drive.mcap`, `drive.2.mcap`, `drive.3.mcap`.
fn part(path: &str, number: usize) -> String {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    let stem = extension.and_then(|extension| path.strip_suffix(extension)?.strip_suffix('.'));
    match (number, stem, extension) {
        (1, ..) => path.to_string(),
        (_, Some(stem), Some(extension)) => format!("{stem}.{number}.{extension}"),
        _ => format!("{path}.{number}"),
    }
}

/// The outputs to which something is connected, each once: node, and port if it is written.
fn connected(nodes: &[NodeSpec]) -> Vec<(String, Option<String>)> {
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    for input in nodes.iter().flat_map(|node| &node.inputs) {
        let output = (input.node.clone(), input.output.clone());
        // A node whose port one consumer leaves out has only one.
        let is_same = |(node, port): &(String, Option<String>)| {
            *node == output.0 && (port.is_none() || output.1.is_none() || *port == output.1)
        };
        match found.iter_mut().find(|there| is_same(there)) {
            Some(there) => there.1 = there.1.take().or(output.1),
            None => found.push(output),
        }
    }
    found
}

/// Returns the outputs that the keys `only` or `except` choose; reports names without an output.
fn chosen(
    config: &mut Tree,
    outputs: Vec<(String, Option<String>)>,
    problems: &mut Problems,
) -> Vec<(String, Option<String>)> {
    let mut listed = |key: &str, problems: &mut Problems| {
        let tree = config.take(key)?;
        let Value::List(entries) = &tree.value else {
            let message = format!("`{key}` must be a list of nodes and ports, got {}", tree.value.describe());
            problems
                .push(Problem::new("E0105", tree.place, message).help(format!("write `{key}: [camera, model/boxes]`")));
            return None;
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.as_text().unwrap_or_default();
            let fits = |(node, port): &(String, Option<String>)| match name.split_once('/') {
                Some((of, output)) => of == node && port.as_deref().is_none_or(|port| port == output),
                None => name == node,
            };
            if !outputs.iter().any(fits) {
                let message = format!("no input is connected to `{name}`");
                let help = "write a node, or `node/port`, that another node reads";
                problems.push(Problem::new("E0114", entry.place.clone(), message).help(help));
            }
            names.push(name.to_string());
        }
        Some(names)
    };
    let (only, except) = (listed("only", problems), listed("except", problems));
    let is_named = |names: &[String], (node, port): &(String, Option<String>)| {
        names.iter().any(|name| match name.split_once('/') {
            Some((of, output)) => of == node && port.as_deref().is_none_or(|port| port == output),
            None => name == node,
        })
    };
    let kept = outputs.into_iter().filter(|output| {
        only.as_deref().is_none_or(|only| is_named(only, output))
            && !except.as_deref().is_some_and(|except| is_named(except, output))
    });
    kept.collect()
}

/// Returns the nodes that record the graph as `run.record` says: a path, or the config of a node of
/// kind `record`, beside which it may have `only` or `except`, lists of outputs. A node takes at
/// most 16 inputs, so a larger graph gets several, each with a file.
pub(super) fn recorders(record: &Tree, nodes: &[NodeSpec], problems: &mut Problems) -> Vec<NodeSpec> {
    let place = record.place.clone();
    let mut config = record.clone();
    if record.as_text().is_some() {
        let path = Key { place: place.clone(), name: "path".into() };
        config.value = Value::Map(vec![(path, record.clone())]);
    }
    if !matches!(config.value, Value::Map(_)) {
        let message = format!("`record` must be a path or a map, got {}", record.value.describe());
        problems.push(Problem::new("E0105", place, message).help("write `record: out/run.mcap`"));
        return Vec::new();
    }
    let before = problems.0.len();
    let outputs = chosen(&mut config, connected(nodes), problems);
    if outputs.is_empty() && problems.0.len() == before {
        let help = "remove `only` and `except`, or connect the nodes";
        problems
            .push(Problem::new("E0105", place.clone(), "`record` must select at least 1 connection, got 0").help(help));
    }
    let path = config.get("path").and_then(Tree::as_text).map(str::to_string);
    let mut recorders = Vec::new();
    for (at, outputs) in outputs.chunks(MAX_PORTS).enumerate() {
        let name = if at == 0 { RECORD.to_string() } else { format!("{RECORD}-{}", at + 1) };
        if nodes.iter().any(|node| node.name == name) {
            let message = format!("`run.record` adds the node `{name}`, which the graph already defines");
            let help = "rename the node of the graph, or remove `run.record`";
            problems.push(Problem::new("E0110", place.clone(), message).help(help));
        }
        let mut config = config.clone();
        if let (Some(path), Some(there)) = (&path, config.get_mut("path")) {
            there.value = Value::Text(part(path, at + 1));
        }
        let inputs = outputs.iter().map(|(node, output)| InputSpec {
            port: Some(output.as_ref().map_or_else(|| node.clone(), |output| format!("{node}.{output}"))),
            place: place.clone(),
            node: node.clone(),
            output: output.clone(),
            policy: EdgePolicy::default(),
            places: Places::default(),
        });
        recorders.push(NodeSpec {
            name,
            place: place.clone(),
            kind: Placed { value: RECORD.into(), place: place.clone() },
            config,
            inputs: inputs.collect(),
            constants: Vec::new(),
            core: None,
            cpu: None,
            policy: NodePolicy::default(),
            places: Places::default(),
            deprecations: Vec::new(),
            in_doubt: false,
        });
    }
    recorders
}

#[cfg(test)]
mod tests {
    use crate::file::spec::Spec;

    fn recorders(run: &str) -> Vec<(String, Vec<String>, String)> {
        let text = format!(
            "version: 1\nrun: {{ record: {run} }}\nnodes:\n  a: {{ kind: x }}\n  b: {{ kind: x, from: a }}\n  \
             c: {{ kind: x, inputs: {{ l: a/out, r: b/left, s: b/right }} }}\n"
        );
        let spec = Spec::from_text(&text, "g.yaml").unwrap();
        let added = spec.nodes.iter().filter(|node| node.kind.value == "record");
        let text = |node: &super::NodeSpec, key: &str| {
            node.config.get(key).and_then(super::Tree::as_text).unwrap_or_default().to_string()
        };
        added
            .map(|node| {
                let inputs = node.inputs.iter().map(|input| input.port.clone().unwrap_or_default()).collect();
                (node.name.clone(), inputs, text(node, "path"))
            })
            .collect()
    }

    #[test]
    fn every_connected_output_is_recorded_once() {
        let all = |names: &[&str]| -> Vec<String> { names.iter().map(|name| name.to_string()).collect() };
        for (run, inputs) in [
            ("out/r.mcap", all(&["a.out", "b.left", "b.right"])),
            ("{ path: out/r.mcap }", all(&["a.out", "b.left", "b.right"])),
            ("{ path: out/r.mcap, only: [b] }", all(&["b.left", "b.right"])),
            ("{ path: out/r.mcap, except: [b/left] }", all(&["a.out", "b.right"])),
        ] {
            assert_eq!(recorders(run), [("record".to_string(), inputs, "out/r.mcap".to_string())], "{run}");
        }
    }

    #[test]
    fn a_large_graph_is_recorded_to_several_files() {
        let mut text = String::from("version: 1\nrun: { record: r.mcap }\nnodes:\n  a: { kind: x }\n");
        for n in 0..20 {
            text.push_str(&format!(
                "  n{n}: {{ kind: x, from: {} }}\n",
                if n == 0 { "a".into() } else { format!("n{}", n - 1) }
            ));
        }
        let spec = Spec::from_text(&text, "g.yaml").unwrap();
        let added: Vec<_> = spec.nodes.iter().filter(|node| node.kind.value == "record").collect();
        let of = |at: usize| {
            (
                added[at].name.as_str(),
                added[at].inputs.len(),
                added[at].config.get("path").and_then(super::Tree::as_text),
            )
        };
        assert_eq!(of(0), ("record", 16, Some("r.mcap")));
        assert_eq!(of(1), ("record-2", 4, Some("r.2.mcap")));
    }

    #[test]
    fn the_number_of_a_part_comes_before_the_extension() {
        for (path, expected) in
            [("a/r.mcap", "a/r.2.mcap"), ("r", "r.2"), ("a.é//", "a.é//.2"), ("a.mcap/", "a.mcap/.2")]
        {
            assert_eq!(super::part(path, 2), expected);
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (run, expected) in [
            ("3", "g.yaml:2:16: error[E0105]: `record` must be a path or a map, got the number 3"),
            ("{ path: r.mcap, only: [c] }", "g.yaml:2:39: error[E0114]: no input is connected to `c`"),
            ("{ path: r.mcap, except: b }", "`except` must be a list of nodes and ports"),
            (
                "{ path: r.mcap, only: [] }",
                "g.yaml:2:16: error[E0105]: `record` must select at least 1 connection, got 0",
            ),
        ] {
            let text = format!(
                "version: 1\nrun: {{ record: {run} }}\nnodes:\n  a: {{ kind: x }}\n  b: {{ kind: x, from: a }}\n"
            );
            let error = Spec::from_text(&text, "g.yaml").unwrap_err().to_string();
            assert!(error.contains(expected), "{run}: {error}");
        }
        let text = "version: 1\nrun: { record: r.mcap }\nnodes:\n  a: { kind: x }\n  record: { kind: x, from: a }\n";
        let error = Spec::from_text(text, "g.yaml").unwrap_err().to_string();
        assert!(error.contains("adds the node `record`, which the graph already defines"), "{error}");
    }
}
