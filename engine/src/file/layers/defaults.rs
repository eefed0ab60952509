//! `defaults:`: values for keys that nodes and connections do not set.

use super::{Budget, check_keys, merge};
use crate::base::document::{Key, Tree, Value};
use crate::base::error::{Problem, Problems};

/// The identity of a node and its connections have no defaults.
const NODE: [&str; 8] = ["core", "cpu", "on_error", "criticality", "join", "budget", "fault", "config"];

/// Fills the nodes of a flat graph: the defaults of a kind precede those of all nodes.
pub(super) fn fill(graph: &mut Tree, defaults: &Tree, budget: &Budget, problems: &mut Problems) {
    if !check_keys(defaults, "`defaults`", &["node", "kinds", "input"], problems) {
        return;
    }
    let (node, input) = (defaults.get("node"), defaults.get("input"));
    if let Some(node) = node {
        check_keys(node, "`defaults.node`", &NODE[..6], problems);
    }
    for (key, kind) in defaults.get("kinds").map_or(&[][..], Tree::entries) {
        check_keys(kind, &format!("the defaults of kind `{}`", key.name), &NODE, problems);
    }
    if let Some(from) = input.and_then(|input| input.get("from")) {
        let message = "`from` cannot have a default";
        problems.push(Problem::new("E0103", from.place.clone(), message).help("write `from:` at each node"));
    }
    let Some(Tree { value: Value::Map(nodes), .. }) = graph.get_mut("nodes") else { return };
    for (_, this) in nodes.iter_mut().filter(|(_, node)| matches!(node.value, Value::Map(_))) {
        let kind = this.get("kind").and_then(Tree::as_text).and_then(|kind| defaults.get("kinds")?.get(kind));
        for with in [kind, node].into_iter().flatten() {
            if !budget.allows(with.size(), &with.place, problems) {
                return;
            }
            merge::fill(this, &without_conflict(with, this));
        }
        let Some(input) = input else { continue };
        let connections = this.get("inputs").map_or(1, |inputs| inputs.entries().len() + 1);
        if !budget.allows(input.size().saturating_mul(connections), &input.place, problems) {
            return;
        }
        if let Some(from) = this.get_mut("from") {
            fill_connection(from, input);
        }
        if let Some(Tree { value: Value::Map(inputs), .. }) = this.get_mut("inputs") {
            inputs.iter_mut().for_each(|(_, from)| fill_connection(from, input));
        }
    }
}

fn fill_connection(connection: &mut Tree, input: &Tree) {
    merge::expand_from("from", connection);
    // A `latest` edge holds one message, so a default capacity does not apply.
    let latest = connection.get("when_full").and_then(Tree::as_text) == Some("latest");
    let had = connection.get("capacity").is_some();
    merge::fill(connection, input);
    if latest && !had {
        connection.take("capacity");
    }
}

/// Drops a default `core` for a node with `cpu`, and vice versa.
fn without_conflict(defaults: &Tree, node: &Tree) -> Tree {
    let has = |key: &str| node.get(key).is_some();
    let conflicts = |key: &Key| (key.name == "core" && has("cpu")) || (key.name == "cpu" && has("core"));
    let entries = defaults.entries().iter().filter(|(key, _)| !conflicts(key)).cloned().collect();
    Tree { place: defaults.place.clone(), value: Value::Map(entries) }
}
