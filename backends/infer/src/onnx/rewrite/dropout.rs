//! `Dropout` in a model that is not trained, where it does nothing: an `Identity`, for runtimes
//! that lack it.

use super::edit::{made, replace_nodes};
use super::node::graphs_of;
use super::wire;
use prost::Message;
use std::collections::{HashMap, HashSet};

/// Returns the file of a model with `Identity` for each `Dropout` of its graph that drops nothing;
/// `None` if there is none.
pub(crate) fn without_dropout(file: &[u8]) -> Option<Vec<u8>> {
    let graph = wire::Model::decode(file).ok()?.graph?;
    let (mut read, mut weights) = (HashSet::new(), HashMap::new());
    collect(&graph, &mut read, &mut weights);
    let is_false = |name: &str| {
        weights.get(name).is_some_and(|weight| match &weight.raw {
            Some(raw) => **raw == [0],
            None => weight.ints == [0],
        })
    };
    let drops_nothing = |node: &wire::Node| {
        let mask = node.outputs.get(1).is_some_and(|mask| !mask.is_empty() && read.contains(mask.as_str()));
        let training = node.inputs.get(2).is_none_or(|training| training.is_empty() || is_false(training));
        node.op == "Dropout" && matches!(&*node.domain, "" | "ai.onnx") && training && !mask
    };
    replace_nodes(file, &graph, |node| {
        let (x, y) = (node.inputs.first()?, node.outputs.first()?);
        drops_nothing(node).then(|| vec![made("Identity", &[x], y, Vec::new())])
    })
}

/// Collects which tensors a graph and its subgraphs read, and their weights.
fn collect<'a>(graph: &'a wire::Graph, read: &mut HashSet<&'a str>, weights: &mut HashMap<&'a str, &'a wire::Tensor>) {
    read.extend(graph.outputs.iter().map(|output| output.name.as_str()));
    weights.extend(graph.initializers.iter().map(|weight| (weight.name.as_str(), weight)));
    for node in &graph.nodes {
        read.extend(node.inputs.iter().map(String::as_str));
        graphs_of(node).for_each(|inner| collect(inner, read, weights));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::{floats, model};
    use rten_onnx::onnx::DataType as D;

    #[test]
    fn dropout_becomes_identity_where_it_drops_nothing() {
        let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
        let weights = [floats("ratio", &[], &[0.5])];
        let ops = |nodes: &[&str]| {
            let file = without_dropout(&model(&[x], &[y], &weights, nodes))?;
            let graph = wire::Model::decode(&*file).unwrap().graph.unwrap();
            assert_eq!(graph.initializers.len(), 1);
            Some(graph.nodes.iter().map(|node| format!("{} {}", node.op, node.inputs.join(" "))).collect::<Vec<_>>())
        };
        assert_eq!(ops(&["y = Relu x"]), None);
        assert_eq!(ops(&["a = Relu x", "y = Dropout a ratio"]).unwrap(), ["Relu x", "Identity a"]);
        assert_eq!(ops(&["a = Dropout x", "y = Dropout a"]).unwrap(), ["Identity x", "Identity a"]);
        // `ratio` is not known to be false.
        assert_eq!(ops(&["y = Dropout x ratio ratio"]), None);
    }

    #[test]
    fn a_damaged_file_is_left_alone() {
        let x = ("x", D::FLOAT, &["n", "2"][..]);
        let file = model(&[x], &[("y", D::FLOAT, &["n", "2"])], &[], &["y = Dropout x"]);
        for length in 0..file.len() {
            let _ = without_dropout(&file[..length]);
        }
        assert!(without_dropout(&file).is_some());
    }
}
