//! Deprecated keys in the files of a graph as they are written: also in profiles and subgraphs that
//! a plan would not use.

use super::registry::Registry;
use crate::base::deprecation::Deprecation;
use crate::base::document::Tree;
use crate::file::layers::SourceFile;
use crate::file::spec::deprecated_in_join;
use std::collections::HashMap;

/// The name of the subgraph that declares a node (empty for the graph), and the node's own name.
type NodeName<'t> = (&'t str, &'t str);

impl Registry {
    /// Returns the deprecated keys in the files of one graph, in the order of the files.
    ///
    /// ```
    /// # let registry = limen::Registry::new();
    /// # let path = std::env::temp_dir().join(format!("limen-deprecated-{}.yaml", std::process::id()));
    /// # std::fs::write(&path, "version: 1\nnodes: {}\n")?;
    /// let files = limen::Layers::default().source_files(&path)?;
    /// for found in registry.deprecated_keys(&files) {
    ///     println!("{}: {} -> {}", found.place, found.old, found.new);
    /// }
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deprecated_keys(&self, files: &[SourceFile]) -> Vec<Deprecation> {
        let nodes: Vec<Vec<(NodeName<'_>, &Tree)>> = files.iter().map(|file| nodes_of(&file.tree)).collect();
        let mut known: HashMap<NodeName<'_>, Vec<&Tree>> = HashMap::new();
        nodes.iter().flatten().for_each(|(name, node)| known.entry(*name).or_default().push(node));
        let mut all = Vec::new();
        for (file, nodes) in files.iter().zip(&nodes) {
            let mut found = Vec::new();
            let mut check = |kind: &str, has_inputs: bool, node: &Tree| {
                let config = node.get("config").into_iter();
                found.extend(config.flat_map(|config| self.deprecated_in(kind, has_inputs, config)));
                found.extend(node.get("join").and_then(deprecated_in_join));
            };
            nodes.iter().for_each(|(name, node)| check_node(*name, node, &known, &mut check));
            let profiles = entries(&file.tree, "profiles").map(|(_, profile)| profile);
            for defaults in std::iter::once(&file.tree).chain(profiles).filter_map(|layer| layer.get("defaults")) {
                for (kind, node) in entries(defaults, "kinds") {
                    [false, true].into_iter().for_each(|has_inputs| check(kind, has_inputs, node));
                }
            }
            found.sort_by_key(|found| (found.place.line, found.place.column));
            found.dedup();
            all.extend(found);
        }
        all
    }
}

fn entries<'t>(tree: &'t Tree, key: &str) -> impl Iterator<Item = (&'t str, &'t Tree)> {
    tree.get(key).map_or(&[][..], Tree::entries).iter().map(|(key, value)| (key.name.as_str(), value))
}

/// Returns the nodes of a file: those of the graph, of its subgraphs, and of its profiles.
fn nodes_of(file: &Tree) -> Vec<(NodeName<'_>, &Tree)> {
    let mut nodes = Vec::new();
    for layer in std::iter::once(file).chain(entries(file, "profiles").map(|(_, profile)| profile)) {
        let own = std::iter::once(("", layer)).chain(entries(layer, "subgraphs"));
        nodes.extend(own.flat_map(|(of, graph)| entries(graph, "nodes").map(move |(name, node)| ((of, name), node))));
    }
    nodes
}

/// Passes a node with its kind on, and the nodes that an instance of a subgraph changes. A profile
/// may leave the kind to the graph.
fn check_node<'t>(
    name: NodeName<'t>,
    node: &'t Tree,
    known: &HashMap<NodeName<'t>, Vec<&'t Tree>>,
    check: &mut impl FnMut(&str, bool, &Tree),
) {
    let find = |key: &str| {
        let same = known.get(&name).into_iter().flatten().copied();
        std::iter::once(node).chain(same).find_map(|node| node.get(key))
    };
    let text = |key: &str| find(key).and_then(Tree::as_text);
    if let Some(kind) = text("kind") {
        check(kind, find("from").or(find("inputs")).is_some(), node);
    }
    if let Some(subgraph) = text("subgraph") {
        entries(node, "nodes").for_each(|(inner, node)| check_node((subgraph, inner), node, known, check));
    }
}
