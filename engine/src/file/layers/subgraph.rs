//! Expands `subgraphs:`.
//!
//! A node with `subgraph: eye` is replaced by the nodes of `eye`, each named `node.inner`. Its
//! `config` sets the parameters, its inputs connect to the inner nodes that read `inputs/NAME`, and
//! other nodes connect to its `outputs` as to any node's. Its `nodes` are merged over the inner
//! ones, so that instances can differ.

use super::variable::Variables;
use super::{check_keys, merge};
use crate::base::document::{Key, Tree, Value};
use crate::base::error::{Place, Problem, Problems, suggest};
use crate::message::port_spec::PortSpec;
use std::collections::{BTreeMap, HashMap};

/// The maximum nesting depth of subgraphs.
const MAX_DEPTH: usize = 8;
/// The maximum number of nodes after expansion.
const MAX_NODES: usize = 20_000;
/// The name by which inner nodes refer to the subgraph's inputs.
const INPUTS: &str = "inputs";

/// The type that a subgraph declares for one of its ports.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    /// The node that sends it.
    pub(crate) node: String,
    /// Its port; `None` means its only one.
    pub(crate) output: Option<String>,
    /// The declared type.
    pub(crate) spec: PortSpec,
    /// The port, described for messages.
    pub(crate) port: String,
    /// Where the type was declared, or where the input is connected.
    pub(crate) place: Place,
}

/// Replaces the nodes made from subgraphs by their inner nodes.
pub(super) fn expand(
    graph: &mut Tree,
    subgraphs: Option<&Tree>,
    variables: &Variables<'_>,
    problems: &mut Problems,
) -> Vec<Expectation> {
    let mut known = Vec::new();
    if let Some(subgraphs) = subgraphs {
        if !matches!(subgraphs.value, Value::Map(_)) {
            let message = format!("`subgraphs` must be a map of subgraphs by name, got {}", subgraphs.value.describe());
            problems.push(
                Problem::new("E0105", subgraphs.place.clone(), message)
                    .help("write `subgraphs: { eye: { inputs: .., outputs: .., nodes: .. } }`"),
            );
        }
        known.extend(subgraphs.entries());
        for (key, subgraph) in subgraphs.entries() {
            let what = format!("subgraph `{}`", key.name);
            check_keys(subgraph, &what, &["parameters", "inputs", "outputs", "nodes", "paths"], problems);
        }
    }
    let is_subgraph = |(_, node): &(Key, Tree)| node.get("subgraph").is_some();
    if !graph.get("nodes").is_some_and(|nodes| nodes.entries().iter().any(is_subgraph)) {
        return Vec::new();
    }
    let mut expansion = Expansion {
        known: BTreeMap::new(),
        variables,
        problems,
        nodes: Vec::new(),
        paths: Vec::new(),
        outputs: HashMap::new(),
        declared: Vec::new(),
        full: false,
    };
    // Not collected: that would compile a sort for them.
    expansion.known.extend(known.into_iter().map(|(key, tree)| (key.name.as_str(), tree)));
    let Some(Tree { value: Value::Map(nodes), .. }) = graph.get_mut("nodes") else { return Vec::new() };
    let nodes = std::mem::take(nodes);
    let scope = NameScope { prefix: "", inputs: &BTreeMap::new(), within: &[] };
    for (key, node) in nodes {
        expansion.node(&key, node, &scope);
    }
    let (mut nodes, paths, expectations) = expansion.finish();
    if let Some(Tree { value: Value::Map(entries), .. }) = graph.get_mut("nodes") {
        entries.append(&mut nodes);
    }
    if !paths.is_empty() {
        match graph.get_mut("paths") {
            Some(Tree { value: Value::List(own), .. }) => own.extend(paths),
            Some(_) => {}
            None => {
                let place = graph.place.clone();
                if let Value::Map(entries) = &mut graph.value {
                    let key = Key { place: place.clone(), name: "paths".into() };
                    entries.push((key, Tree { place, value: Value::List(paths) }));
                }
            }
        }
    }
    expectations
}

/// The context in which names of nodes are resolved.
struct NameScope<'a> {
    /// The prefix of the names, such as `left.`.
    prefix: &'a str,
    /// What the subgraph's inputs are connected to.
    inputs: &'a BTreeMap<String, Tree>,
    /// The enclosing subgraphs.
    within: &'a [&'a str],
}

/// A declared type whose producer is not yet resolved.
struct Declared {
    from: String,
    spec: PortSpec,
    port: String,
    place: Place,
}

struct Expansion<'a, 'p> {
    known: BTreeMap<&'a str, &'a Tree>,
    variables: &'a Variables<'a>,
    problems: &'p mut Problems,
    nodes: Vec<(Key, Tree)>,
    paths: Vec<Tree>,
    /// By the full name of an expanded node: its outputs and the inner ports behind them.
    outputs: HashMap<String, BTreeMap<String, String>>,
    declared: Vec<Declared>,
    full: bool,
}

impl Expansion<'_, '_> {
    fn problem(&mut self, code: &'static str, place: &Place, message: String, help: impl Into<String>) {
        self.problems.push(Problem::new(code, place.clone(), message).help(help));
    }

    fn node(&mut self, key: &Key, mut node: Tree, scope: &NameScope<'_>) {
        if self.full {
            return;
        }
        if self.nodes.len() >= MAX_NODES {
            self.full = true;
            // So large a part of a graph is not planned for the sake of further problems.
            self.nodes.truncate(1);
            let message = format!("the graph must expand to at most {MAX_NODES} nodes, got more");
            return self.problem("E0153", &key.place, message, "use fewer subgraphs, or subgraphs with fewer nodes");
        }
        self.connections(&mut node, scope);
        let name = format!("{}{}", scope.prefix, key.name);
        match node.take("subgraph") {
            None => self.nodes.push((Key { place: key.place.clone(), name }, node)),
            Some(subgraph) => self.subgraph_node(key, &name, &subgraph, node, scope),
        }
    }

    /// Replaces names in a node's connections by full names.
    fn connections(&mut self, node: &mut Tree, scope: &NameScope<'_>) {
        if let Some(from) = node.get_mut("from") {
            self.connection(from, scope);
        }
        if let Some(Tree { value: Value::Map(inputs), .. }) = node.get_mut("inputs") {
            for (_, from) in inputs {
                self.connection(from, scope);
            }
        }
    }

    fn connection(&mut self, connection: &mut Tree, scope: &NameScope<'_>) {
        let from = match &mut connection.value {
            Value::Map(_) => connection.get_mut("from"),
            _ => Some(&mut *connection),
        };
        // `spec` reports a value that is not text.
        let Some((from, text)) = from.and_then(|from| from.as_text().map(str::to_string).map(|text| (from, text)))
        else {
            return;
        };
        let input = if scope.within.is_empty() { None } else { text.strip_prefix(INPUTS) };
        match input.and_then(|rest| rest.strip_prefix('/').or_else(|| rest.is_empty().then_some(""))) {
            None => from.value = Value::Text(format!("{}{text}", scope.prefix)),
            Some(port) => {
                let only = scope.inputs.iter().next().filter(|_| port.is_empty() && scope.inputs.len() == 1);
                let Some(outer) = scope.inputs.get(port).or(only.map(|(_, outer)| outer)) else {
                    let place = from.place.clone();
                    let names = scope.inputs.keys().map(String::as_str);
                    let (message, help) = match port {
                        "" if !scope.inputs.is_empty() => {
                            let names: Vec<String> = names.map(|name| format!("`{INPUTS}/{name}`")).collect();
                            let help = format!("write one of {}", names.join(", "));
                            (format!("expected `{INPUTS}/NAME`, found `{text}`"), help)
                        }
                        _ => (format!("the subgraph has no input `{port}`"), suggest(port, names)),
                    };
                    return self.problem("E0155", &place, message, help);
                };
                if outer.value == Value::Null {
                    // Reported where the input is left open.
                    return;
                }
                // The outer connection overrides the inner one.
                let mut outer = outer.clone();
                merge::expand_from("from", &mut outer);
                merge::expand_from("from", connection);
                merge::overlay(connection, outer);
            }
        }
    }

    /// Expands a node made from a subgraph.
    fn subgraph_node(&mut self, key: &Key, name: &str, subgraph: &Tree, mut node: Tree, scope: &NameScope<'_>) {
        check_keys(
            &node,
            &format!("subgraph node `{}`", key.name),
            &["subgraph", "config", "from", "inputs", "nodes", "core", "on_error"],
            self.problems,
        );
        let Some(wanted) = subgraph.as_text() else {
            let message = format!("`subgraph` must be a name, got {}", subgraph.value.describe());
            return self.problem("E0105", &subgraph.place, message, "write `subgraph: eye`");
        };
        let Some((&wanted, &definition)) = self.known.get_key_value(wanted) else {
            let help = suggest(wanted, self.known.keys().copied());
            return self.problem("E0153", &subgraph.place, format!("unknown subgraph `{wanted}`"), help);
        };
        if scope.within.contains(&wanted) || scope.within.len() >= MAX_DEPTH {
            let (message, help) = if scope.within.contains(&wanted) {
                (format!("subgraph `{wanted}` contains itself"), format!("remove node `{}`", key.name))
            } else {
                let help = format!("replace node `{}` by the nodes of subgraph `{wanted}`", key.name);
                (format!("subgraphs must be nested at most {MAX_DEPTH} deep"), help)
            };
            return self.problem("E0153", &subgraph.place, message, help);
        }
        let Some(parameters) = self.parameters(key, wanted, definition, node.get("config")) else { return };
        let parameters = parameters.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let inputs = self.inputs(key, wanted, definition, &mut node);
        let prefix = format!("{name}.");
        let within: Vec<&str> = scope.within.iter().copied().chain([wanted]).collect();
        let inner = NameScope { prefix: &prefix, inputs: &inputs, within: &within };
        let mut nodes = definition
            .get("nodes")
            .cloned()
            .unwrap_or(Tree { place: definition.place.clone(), value: Value::Map(Vec::new()) });
        if let Some(mut over) = node.take("nodes") {
            let mut unknown = Vec::new();
            if let Value::Map(entries) = &mut over.value {
                unknown = entries.extract_if(.., |(key, _)| nodes.get(&key.name).is_none()).collect();
            }
            for (key, _) in unknown {
                let message = format!("subgraph `{wanted}` has no node `{}`", key.name);
                let help = suggest(&key.name, nodes.entries().iter().map(|(key, _)| key.name.as_str()));
                self.problem("E0153", &key.place, message, help);
            }
            merge::overlay(&mut nodes, over);
        }
        self.variables.substitute(&mut nodes, &parameters, self.problems);
        self.outputs(key, name, wanted, definition);
        let Value::Map(nodes) = nodes.value else {
            let message = format!("`nodes` of subgraph `{wanted}` must be a map, got {}", nodes.value.describe());
            return self.problem("E0105", &nodes.place, message, "write `nodes: { small: { kind: .. } }`");
        };
        let defaults: Vec<(Key, Tree)> = node
            .entries()
            .iter()
            .filter(|(key, _)| matches!(key.name.as_str(), "core" | "on_error"))
            .cloned()
            .collect();
        let defaults = Tree { place: node.place.clone(), value: Value::Map(defaults) };
        for (key, mut one) in nodes {
            merge::fill(&mut one, &defaults);
            self.node(&key, one, &inner);
        }
        if let Some(Tree { value: Value::List(paths), .. }) = definition.get("paths") {
            for path in paths {
                let mut path = path.clone();
                self.variables.substitute(&mut path, &parameters, self.problems);
                for end in ["from", "to"] {
                    if let Some(end) = path.get_mut(end)
                        && let Some(text) = end.as_text()
                    {
                        end.value = Value::Text(format!("{prefix}{text}"));
                    }
                }
                self.paths.push(path);
            }
        }
    }

    /// Returns the parameters of a subgraph for one node.
    fn parameters(
        &mut self,
        key: &Key,
        wanted: &str,
        definition: &Tree,
        config: Option<&Tree>,
    ) -> Option<Vec<(String, Tree)>> {
        let declared = definition.get("parameters").map_or(&[][..], Tree::entries);
        let mut ok = true;
        for (given, _) in config.map_or(&[][..], Tree::entries) {
            if !declared.iter().any(|(key, _)| key.name == given.name) {
                let message = format!("subgraph `{wanted}` has no parameter `{}`", given.name);
                let help = suggest(&given.name, declared.iter().map(|(key, _)| key.name.as_str()));
                self.problem("E0154", &given.place, message, help);
                ok = false;
            }
        }
        let mut parameters = Vec::new();
        for (parameter, default) in declared {
            let given = config.and_then(|config| config.get(&parameter.name));
            let mut value = given.unwrap_or(default).clone();
            if value.value == Value::Null {
                let message =
                    format!("`{}` does not set the parameter `{}` of subgraph `{wanted}`", key.name, parameter.name);
                self.problem("E0154", &key.place, message, format!("write `config: {{ {}: .. }}`", parameter.name));
                ok = false;
            }
            if given.is_none() {
                self.variables.substitute(&mut value, &HashMap::new(), self.problems);
            }
            parameters.push((parameter.name.clone(), value));
        }
        ok.then_some(parameters)
    }

    /// Returns the connections of a subgraph's inputs, and records the types it declares for them.
    fn inputs(&mut self, key: &Key, wanted: &str, definition: &Tree, node: &mut Tree) -> BTreeMap<String, Tree> {
        let declared = definition.get("inputs").map_or(&[][..], Tree::entries);
        let mut inputs = BTreeMap::new();
        if let Some(from) = node.take("from") {
            match declared {
                [(port, _)] => {
                    inputs.insert(port.name.clone(), from);
                }
                _ => {
                    let n = declared.len();
                    let message = format!("`from` requires a single input, got {n} inputs of subgraph `{wanted}`");
                    let help = if n == 0 { "remove `from`" } else { "write `inputs: { NAME: node/port }`" };
                    self.problem("E0155", &from.place, message, help);
                }
            }
        }
        if let Some(Tree { value: Value::Map(given), .. }) = node.take("inputs") {
            for (port, from) in given {
                if !declared.iter().any(|(known, _)| known.name == port.name) {
                    let message = format!("subgraph `{wanted}` has no input `{}`", port.name);
                    let help = suggest(&port.name, declared.iter().map(|(key, _)| key.name.as_str()));
                    self.problem("E0155", &port.place, message, help);
                }
                inputs.insert(port.name, from);
            }
        }
        for (port, spec) in declared {
            let Some(given) = inputs.get(&port.name) else {
                let message = format!("input `{}` of `{}` is not connected", port.name, key.name);
                self.problem("E0155", &key.place, message, format!("write `inputs: {{ {}: node/port }}`", port.name));
                inputs.insert(port.name.clone(), Tree { place: key.place.clone(), value: Value::Null });
                continue;
            };
            let from = if matches!(given.value, Value::Map(_)) { given.get("from") } else { Some(given) };
            let Some((text, place)) = from.and_then(|from| Some((from.as_text()?.to_string(), from.place.clone())))
            else {
                continue;
            };
            self.declare(spec, format!("input `{}` of `{}`", port.name, key.name), text, &place);
        }
        inputs
    }

    /// Records the inner ports behind a subgraph's outputs, and the types it declares for them.
    fn outputs(&mut self, key: &Key, name: &str, wanted: &str, definition: &Tree) {
        let mut outputs = BTreeMap::new();
        for (port, output) in definition.get("outputs").map_or(&[][..], Tree::entries) {
            let from = if matches!(output.value, Value::Map(_)) { output.get("from") } else { Some(output) };
            let Some(text) = from.and_then(Tree::as_text) else {
                let found = output.value.describe();
                let message = format!("output `{}` of subgraph `{wanted}` must be a node, got {found}", port.name);
                self.problem(
                    "E0155",
                    &port.place,
                    message,
                    "write `node/port`, or `{ from: node/port, spec: \"f32[10]\" }`",
                );
                continue;
            };
            let inner = text.split('/').next().unwrap_or(text);
            if definition.get("nodes").and_then(|nodes| nodes.get(inner)).is_none() {
                let message = format!("subgraph `{wanted}` has no node `{inner}` for its output `{}`", port.name);
                let nodes = definition.get("nodes").map_or(&[][..], Tree::entries);
                let help = suggest(inner, nodes.iter().map(|(key, _)| key.name.as_str()));
                self.problem("E0155", &output.place, message, help);
                continue;
            }
            let from = format!("{name}.{text}");
            if let Some(spec) = output.get("spec") {
                let place = spec.place.clone();
                self.declare(spec, format!("output `{}` of `{}`", port.name, key.name), from.clone(), &place);
            }
            outputs.insert(port.name.clone(), from);
        }
        self.outputs.insert(name.to_string(), outputs);
    }

    /// Records that messages of `from` must have the declared type.
    fn declare(&mut self, spec: &Tree, port: String, from: String, place: &Place) {
        if spec.value == Value::Null || spec.as_text() == Some("any") {
            return;
        }
        match spec.as_text().map(str::parse) {
            Some(Ok(spec)) => self.declared.push(Declared { from, spec, port, place: place.clone() }),
            Some(Err(error)) => {
                self.problem("E0155", &spec.place, error, "write `u8[480,640,3]`, `f32[≤100,6]` or `any`")
            }
            None => {
                let message = format!("the type of a port must be text, got {}", spec.value.describe());
                self.problem("E0155", &spec.place, message, "write `\"u8[480,640,3]\"`, in quotes, or `any`");
            }
        }
    }

    /// Resolves connections to expanded nodes.
    fn finish(mut self) -> (Vec<(Key, Tree)>, Vec<Tree>, Vec<Expectation>) {
        let mut nodes = std::mem::take(&mut self.nodes);
        for (_, node) in &mut nodes {
            if let Some(from) = node.get_mut("from") {
                self.look_up(from);
            }
            if let Some(Tree { value: Value::Map(inputs), .. }) = node.get_mut("inputs") {
                inputs.iter_mut().for_each(|(_, from)| self.look_up(from));
            }
        }
        let mut expectations = Vec::new();
        for declared in std::mem::take(&mut self.declared) {
            // A wrong name is reported where it is used.
            let Ok(from) = self.resolve(&declared.from) else { continue };
            let (node, output) = match from.split_once('/') {
                Some((node, output)) => (node.to_string(), Some(output.to_string())),
                None => (from, None),
            };
            expectations.push(Expectation {
                node,
                output,
                spec: declared.spec,
                port: declared.port,
                place: declared.place,
            });
        }
        (nodes, self.paths, expectations)
    }

    fn look_up(&mut self, connection: &mut Tree) {
        let from = match &mut connection.value {
            Value::Map(_) => connection.get_mut("from"),
            _ => Some(connection),
        };
        let Some(from) = from else { return };
        let Some(text) = from.as_text() else { return };
        match self.resolve(text) {
            Ok(resolved) => from.value = Value::Text(resolved),
            Err((message, help)) => {
                let place = from.place.clone();
                self.problem("E0155", &place, message, help);
            }
        }
    }

    /// Returns the node and port behind a name, resolving outputs of subgraphs.
    fn resolve(&self, text: &str) -> Result<String, (String, String)> {
        let mut text = text.to_string();
        loop {
            let (node, port) = match text.split_once('/') {
                Some((node, port)) => (node, Some(port)),
                None => (text.as_str(), None),
            };
            let Some(outputs) = self.outputs.get(node) else { return Ok(text) };
            let found = match port {
                Some(port) => outputs.get(port),
                None => outputs.values().next().filter(|_| outputs.len() == 1),
            };
            let Some(found) = found else {
                let Some(port) = port else {
                    let names: Vec<String> = outputs.keys().map(|port| format!("`{node}/{port}`")).collect();
                    let help = match names.is_empty() {
                        true => "connect another node".into(),
                        false => format!("write one of {}", names.join(", ")),
                    };
                    return Err((format!("expected one output of `{node}`, found {}", outputs.len()), help));
                };
                let help = suggest(port, outputs.keys().map(String::as_str));
                return Err((format!("`{node}` has no output `{port}`"), help));
            };
            text = found.clone();
        }
    }
}
