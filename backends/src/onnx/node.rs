//! The nodes of a model: what they are called, what is inside them, and their order.

use super::wire;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Characters of a name that are repeated, where it is not the only one: a model can name a node once and have it said back for
/// each of ten thousand others.
const MOST_NAMED: usize = 100;

/// A name without its middle, where it is long.
pub(super) fn brief(name: &str) -> Cow<'_, str> {
    let half = MOST_NAMED / 2;
    let cut = |name: &mut std::str::CharIndices<'_>| name.nth(half).map(|(at, _)| at);
    if name.len() <= MOST_NAMED {
        return Cow::Borrowed(name);
    }
    match (cut(&mut name.char_indices()), name.char_indices().rev().nth(half - 1)) {
        (Some(head), Some((tail, _))) if head < tail => Cow::Owned(format!("{}…{}", &name[..head], &name[tail..])),
        _ => Cow::Borrowed(name),
    }
}

/// What a node is called.
pub(super) fn label(node: &wire::Node) -> &str {
    match (node.name.as_str(), node.outputs.first()) {
        ("", Some(output)) => output,
        (name, _) => name,
    }
}

pub(super) fn name_of(node: &wire::Node) -> String {
    format!("node `{}` ({})", brief(label(node)), brief(&node.op))
}

/// The graphs inside a node.
pub(super) fn graphs_of(node: &wire::Node) -> impl Iterator<Item = &wire::Graph> {
    node.attributes.iter().flat_map(|attribute| attribute.graph.as_deref().into_iter().chain(&attribute.graphs))
}

/// The nodes of a graph, each behind those that make what it takes.
///
/// # Errors
/// A node that needs what is made from its own outputs.
pub(super) fn order(graph: &wire::Graph) -> Result<Vec<usize>, &wire::Node> {
    let outputs =
        graph.nodes.iter().enumerate().flat_map(|(at, node)| node.outputs.iter().map(move |o| (o.as_str(), at)));
    let made: BTreeMap<&str, usize> = outputs.filter(|(output, _)| !output.is_empty()).collect();
    let sources = |node: &wire::Node| -> Vec<usize> {
        node.inputs.iter().filter_map(|input| made.get(input.as_str()).copied()).collect()
    };
    let mut waits = vec![0; graph.nodes.len()];
    let mut takers = vec![Vec::new(); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        let sources = sources(node);
        waits[at] = sources.len();
        sources.into_iter().for_each(|source| takers[source].push(at));
    }
    let mut order: Vec<usize> = (0..waits.len()).filter(|at| waits[*at] == 0).collect();
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        next += 1;
        for taker in &takers[at] {
            waits[*taker] -= 1;
            if waits[*taker] == 0 {
                order.push(*taker);
            }
        }
    }
    match waits.iter().position(|waits| *waits > 0) {
        Some(at) => Err(&graph.nodes[at]),
        None => Ok(order),
    }
}
