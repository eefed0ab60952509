//! The nodes of a model: their names, subgraphs and order.

use super::wire;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The most characters of a name in a message: a model can have one long name, which ten thousand
/// messages would repeat.
const MAX_NAME: usize = 100;

/// Returns a name, without its middle if it is long.
pub(crate) fn brief(name: &str) -> Cow<'_, str> {
    let half = MAX_NAME / 2;
    let cut = |name: &mut std::str::CharIndices<'_>| name.nth(half).map(|(at, _)| at);
    if name.len() <= MAX_NAME {
        return Cow::Borrowed(name);
    }
    match (cut(&mut name.char_indices()), name.char_indices().rev().nth(half - 1)) {
        (Some(head), Some((tail, _))) if head < tail => Cow::Owned(format!("{}…{}", &name[..head], &name[tail..])),
        _ => Cow::Borrowed(name),
    }
}

/// Returns the name of a node, or of its first output if it has none.
pub(super) fn label(node: &wire::Node) -> &str {
    match (node.name.as_str(), node.outputs.first()) {
        ("", Some(output)) => output,
        (name, _) => name,
    }
}

pub(super) fn name_of(node: &wire::Node) -> String {
    format!("node `{}` ({})", brief(label(node)), brief(&node.op))
}

/// Returns the subgraphs of a node.
pub(super) fn graphs_of(node: &wire::Node) -> impl Iterator<Item = &wire::Graph> {
    node.attributes.iter().flat_map(|attribute| attribute.graph.as_deref().into_iter().chain(&attribute.graphs))
}

/// Returns the tensors of the graphs around it that a graph uses.
fn captured(graph: &wire::Graph) -> HashSet<&str> {
    let mut used: HashSet<&str> = graph.outputs.iter().map(|output| output.name.as_str()).collect();
    for node in &graph.nodes {
        used.extend(node.inputs.iter().map(String::as_str));
        graphs_of(node).for_each(|inner| used.extend(captured(inner)));
    }
    let own = graph.inputs.iter().map(|input| &input.name).chain(graph.initializers.iter().map(|tensor| &tensor.name));
    for name in own.chain(graph.nodes.iter().flat_map(|node| &node.outputs)) {
        used.remove(name.as_str());
    }
    used
}

/// Returns the nodes of a graph in topological order; a node also depends on what its subgraphs
/// capture.
///
/// # Errors
/// A node that depends on its own output.
pub(super) fn order(graph: &wire::Graph) -> Result<Vec<usize>, &wire::Node> {
    let outputs =
        graph.nodes.iter().enumerate().flat_map(|(at, node)| node.outputs.iter().map(move |o| (o.as_str(), at)));
    let made: HashMap<&str, usize> = outputs.filter(|(output, _)| !output.is_empty()).collect();
    let sources = |node: &wire::Node| -> Vec<usize> {
        let inputs = node.inputs.iter().map(String::as_str).chain(graphs_of(node).flat_map(captured));
        inputs.filter_map(|input| made.get(input).copied()).collect()
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
