//! Graphs that a program makes. What is built is the YAML of a graph, and it is read as any other: nothing can be said here that a
//! file cannot say, and the other way round.

use crate::base::document::{Key, Tree, Value};
use crate::base::error::{Place, Problem, Problems};
use crate::base::policy::WhenFull;
use crate::file::spec::Spec;
use serde::Serialize;

/// A graph in the making.
///
/// ```
/// use limen::{Connection, GraphBuilder, NodeBuilder, Spec};
/// use limen::policy::WhenFull;
/// use std::collections::BTreeMap;
/// let graph = GraphBuilder::new("pixels")
///     .node("camera", NodeBuilder::new("synthetic").config(BTreeMap::from([("pattern", "ramp")])).core(0))
///     .node("end", NodeBuilder::new("null").from(Connection::new("camera/image").when_full(WhenFull::Latest)))
///     .with("run", BTreeMap::from([("stop", "5s")]));
/// let yaml = graph.to_yaml();
/// let spec = graph.build()?;
/// assert!(spec == Spec::from_text(&yaml, "pixels.yaml")?);
/// assert!(spec == Spec::from_text(&spec.to_yaml(), "again.yaml")?);
/// # Ok::<(), limen::Problems>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a graph is made by `build`"]
pub struct GraphBuilder {
    map: Map,
    nodes: Map,
}

/// A node in the making: see [`GraphBuilder`].
#[derive(Clone, Debug)]
#[must_use = "a node is added by `GraphBuilder::node`"]
pub struct NodeBuilder {
    map: Map,
    inputs: Map,
}

/// A connection in the making: a node or `node/port`, and how the edge from there behaves.
///
/// ```
/// use limen::Connection;
/// use limen::policy::WhenFull;
/// let edge = Connection::new("camera/image").capacity(8).when_full(WhenFull::DropOldest).with("max_age", "50ms");
/// # let _ = edge;
/// ```
#[derive(Clone, Debug)]
#[must_use = "a connection is given to `NodeBuilder::from` or `NodeBuilder::input`"]
pub struct Connection(Map);

/// The entries of a map, and what could not be written as YAML.
#[derive(Clone, Debug, Default)]
struct Map {
    entries: Vec<(Key, Tree)>,
    problems: Vec<Problem>,
}

fn nowhere() -> Place {
    Place { file: "<graph>".into(), line: 0, column: 0 }
}

impl Map {
    fn set(&mut self, key: &str, value: impl Serialize) {
        match Tree::of(&value) {
            Ok(tree) => self.put(key, tree),
            Err(error) => {
                let message = format!("`{key}` cannot be written as YAML: {error}");
                self.problems
                    .push(Problem::new("E0104", nowhere(), message).help("give text, numbers, lists and maps"));
            }
        }
    }

    /// Sets a key, in the place of an earlier value.
    fn put(&mut self, key: &str, tree: Tree) {
        match self.entries.iter_mut().find(|(known, _)| known.name == key) {
            Some((_, value)) => *value = tree,
            None => self.entries.push((Key { place: nowhere(), name: key.into() }, tree)),
        }
    }

    fn put_map(&mut self, key: &str, mut map: Map) {
        self.problems.append(&mut map.problems);
        self.put(key, Tree { place: nowhere(), value: Value::Map(map.entries) });
    }
}

impl GraphBuilder {
    /// A graph of this name without nodes.
    pub fn new(name: &str) -> Self {
        let mut map = Map::default();
        map.set("version", 1);
        map.set("graph", name);
        GraphBuilder { map, nodes: Map::default() }
    }

    /// Adds a node. One of the same name is replaced.
    pub fn node(mut self, name: &str, node: NodeBuilder) -> Self {
        let mut map = node.map;
        if !node.inputs.entries.is_empty() {
            map.put_map("inputs", node.inputs);
        }
        self.nodes.put_map(name, map);
        self
    }

    /// Sets any other key of a graph: `run`, `cores`, `paths`, `defaults`, `subgraphs`, `profiles`.
    pub fn with(mut self, key: &str, value: impl Serialize) -> Self {
        self.map.set(key, value);
        self
    }

    /// The graph's file.
    pub fn to_yaml(&self) -> String {
        self.tree().to_yaml(false)
    }

    /// Reads what was built.
    ///
    /// # Errors
    /// Every problem, as for a file; places are those of [`GraphBuilder::to_yaml`].
    pub fn build(self) -> Result<Spec, Problems> {
        let problems = [&self.map.problems[..], &self.nodes.problems[..]].concat();
        if problems.is_empty() { Spec::from_text(&self.to_yaml(), "<graph>") } else { Err(Problems(problems)) }
    }

    fn tree(&self) -> Tree {
        let mut map = self.map.clone();
        map.put_map("nodes", self.nodes.clone());
        Tree { place: nowhere(), value: Value::Map(map.entries) }
    }
}

impl NodeBuilder {
    /// A node of a kind.
    pub fn new(kind: &str) -> Self {
        let mut map = Map::default();
        map.set("kind", kind);
        NodeBuilder { map, inputs: Map::default() }
    }

    /// A node that is made of one of the graph's `subgraphs`.
    pub fn subgraph(name: &str) -> Self {
        let mut map = Map::default();
        map.set("subgraph", name);
        NodeBuilder { map, inputs: Map::default() }
    }

    /// What the kind takes: a map, or a struct that serializes as one.
    pub fn config(self, config: impl Serialize) -> Self {
        self.with("config", config)
    }

    /// What its only input takes from.
    pub fn from(mut self, connection: impl Into<Connection>) -> Self {
        self.map.put_map("from", connection.into().0);
        self
    }

    /// What one of its inputs takes from.
    pub fn input(mut self, port: &str, connection: impl Into<Connection>) -> Self {
        self.inputs.put_map(port, connection.into().0);
        self
    }

    /// The core of the run it is turned on.
    pub fn core(self, core: usize) -> Self {
        self.with("core", core)
    }

    /// Sets any other key of a node: `on_error`, `join`, `budget`, `fault`, `qos`, `clock`.
    pub fn with(mut self, key: &str, value: impl Serialize) -> Self {
        self.map.set(key, value);
        self
    }
}

impl Connection {
    /// From `node` or `node/port`.
    pub fn new(from: &str) -> Self {
        let mut map = Map::default();
        map.set("from", from);
        Connection(map)
    }

    /// Messages it holds.
    pub fn capacity(self, capacity: usize) -> Self {
        self.with("capacity", capacity)
    }

    /// What happens when it is full.
    pub fn when_full(self, when_full: WhenFull) -> Self {
        self.with("when_full", when_full.name())
    }

    /// Sets any other key of a connection, such as `max_age`.
    pub fn with(mut self, key: &str, value: impl Serialize) -> Self {
        self.0.set(key, value);
        self
    }
}

impl From<&str> for Connection {
    fn from(from: &str) -> Self {
        Connection::new(from)
    }
}
