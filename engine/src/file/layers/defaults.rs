//! `defaults:`: what nodes and connections say that do not say it themselves.

use super::{Budget, check_keys, merge};
use crate::base::document::{Key, Tree, Value};
use crate::base::error::{Problem, Problems};

/// Keys that name what a node is and takes from have no default.
const NODE: [&str; 7] = ["core", "cpu", "on_error", "join", "budget", "fault", "config"];

/// Fills the nodes of a flat graph: a kind's defaults before those of all nodes.
pub(super) fn fill(graph: &mut Tree, defaults: &Tree, budget: &Budget, problems: &mut Problems) {
    if !check_keys(defaults, "`defaults`", &["node", "kinds", "input"], problems) {
        return;
    }
    let (node, input) = (defaults.get("node"), defaults.get("input"));
    if let Some(node) = node {
        check_keys(node, "the defaults of nodes", &NODE[..6], problems);
    }
    for (key, kind) in defaults.get("kinds").map_or(&[][..], Tree::entries) {
        check_keys(kind, &format!("the defaults of kind `{}`", key.name), &NODE, problems);
    }
    if let Some(from) = input.and_then(|input| input.get("from")) {
        let message = "a connection's `from` has no default";
        problems.push(Problem::new("E0103", from.place.clone(), message).help("write it at each node"));
    }
    let Some(Tree { value: Value::Map(nodes), .. }) = graph.get_mut("nodes") else { return };
    for (_, this) in nodes.iter_mut().filter(|(_, node)| matches!(node.value, Value::Map(_))) {
        let kind = this.get("kind").and_then(Tree::as_text).and_then(|kind| defaults.get("kinds")?.get(kind));
        for with in [kind, node].into_iter().flatten() {
            if !budget.allows(with.size(), &with.place, problems) {
                return;
            }
            merge::fill(this, &without_twin(with, this));
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
    merge::lengthen("from", connection);
    // The latest message is one message, whatever other edges hold.
    let latest = connection.get("when_full").and_then(Tree::as_text) == Some("latest");
    let had = connection.get("capacity").is_some();
    merge::fill(connection, input);
    if latest && !had {
        connection.take("capacity");
    }
}

/// A default `core` is none for a node that has a `cpu`, and the other way round.
fn without_twin(defaults: &Tree, node: &Tree) -> Tree {
    let has = |key: &str| node.get(key).is_some();
    let twin = |key: &Key| (key.name == "core" && has("cpu")) || (key.name == "cpu" && has("core"));
    let entries = defaults.entries().iter().filter(|(key, _)| !twin(key)).cloned().collect();
    Tree { place: defaults.place.clone(), value: Value::Map(entries) }
}
