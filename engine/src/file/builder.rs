//! Graphs built by a program. The builder makes the YAML of a graph, which is read like any other:
//! builder and file can express the same graphs.

use crate::base::document::{Key, Tree, Value};
use crate::base::error::{Place, Problem, Problems};
use crate::base::policy::WhenFull;
use crate::file::spec::Spec;
use serde::Serialize;

/// A builder of a graph.
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
#[must_use = "call `build` to make the graph"]
pub struct GraphBuilder {
    map: Map,
    nodes: Map,
}

/// A builder of a node: see [`GraphBuilder`].
#[derive(Clone, Debug)]
#[must_use = "add the node with `GraphBuilder::node`"]
pub struct NodeBuilder {
    map: Map,
    inputs: Map,
}

/// A builder of a connection: the node or `node/port` it comes from, and the policy of its edge.
///
/// ```
/// use limen::Connection;
/// use limen::policy::WhenFull;
/// let edge = Connection::new("camera/image").capacity(8).when_full(WhenFull::DropOldest).with("max_age", "50ms");
/// # let _ = edge;
/// ```
#[derive(Clone, Debug)]
#[must_use = "pass the connection to `NodeBuilder::from` or `NodeBuilder::input`"]
pub struct Connection(Map);

/// The entries of a map, and the values that could not be converted to YAML.
#[derive(Clone, Debug, Default)]
struct Map {
    entries: Vec<(Key, Tree)>,
    problems: Vec<Problem>,
}

fn no_place() -> Place {
    Place { file: "<graph>".into(), line: 0, column: 0 }
}

impl Map {
    fn set(&mut self, key: &str, value: impl Serialize) {
        match Tree::of(&value) {
            Ok(tree) => self.put(key, tree),
            Err(error) => {
                let message = format!("cannot convert `{key}` to YAML: {error}");
                self.problems
                    .push(Problem::new("E0104", no_place(), message).help("use text, numbers, lists and maps"));
            }
        }
    }

    /// Sets a key, replacing an earlier value.
    fn put(&mut self, key: &str, tree: Tree) {
        match self.entries.iter_mut().find(|(known, _)| known.name == key) {
            Some((_, value)) => *value = tree,
            None => self.entries.push((Key { place: no_place(), name: key.into() }, tree)),
        }
    }

    fn put_map(&mut self, key: &str, mut map: Map) {
        self.problems.append(&mut map.problems);
        self.put(key, Tree { place: no_place(), value: Value::Map(map.entries) });
    }
}

impl GraphBuilder {
    /// Creates a graph without nodes.
    pub fn new(name: &str) -> Self {
        let mut map = Map::default();
        map.set("version", 1);
        map.set("graph", name);
        GraphBuilder { map, nodes: Map::default() }
    }

    /// Adds a node, replacing one of the same name.
    pub fn node(mut self, name: &str, node: NodeBuilder) -> Self {
        let mut map = node.map;
        if !node.inputs.entries.is_empty() {
            map.put_map("inputs", node.inputs);
        }
        self.nodes.put_map(name, map);
        self
    }

    /// Sets another key of the graph: `run`, `cores`, `paths`, `defaults`, `subgraphs`, `profiles`.
    pub fn with(mut self, key: &str, value: impl Serialize) -> Self {
        self.map.set(key, value);
        self
    }

    /// Returns the graph file.
    pub fn to_yaml(&self) -> String {
        self.tree().to_yaml(false)
    }

    /// Reads the graph.
    ///
    /// # Errors
    /// Every problem, as for a file; places refer to [`GraphBuilder::to_yaml`].
    pub fn build(self) -> Result<Spec, Problems> {
        let problems = [&self.map.problems[..], &self.nodes.problems[..]].concat();
        if problems.is_empty() { Spec::from_text(&self.to_yaml(), "<graph>") } else { Err(Problems(problems)) }
    }

    fn tree(&self) -> Tree {
        let mut map = self.map.clone();
        map.put_map("nodes", self.nodes.clone());
        Tree { place: no_place(), value: Value::Map(map.entries) }
    }
}

impl NodeBuilder {
    /// Creates a node of a kind.
    pub fn new(kind: &str) -> Self {
        let mut map = Map::default();
        map.set("kind", kind);
        NodeBuilder { map, inputs: Map::default() }
    }

    /// Creates a node made from one of the graph's `subgraphs`.
    pub fn subgraph(name: &str) -> Self {
        let mut map = Map::default();
        map.set("subgraph", name);
        NodeBuilder { map, inputs: Map::default() }
    }

    /// What the kind takes: a map, or a struct that serializes as one, by the same `serde` that
    /// reads it from a graph file.
    pub fn config(self, config: impl Serialize) -> Self {
        self.with("config", config)
    }

    /// Connects its only input.
    pub fn from(mut self, connection: impl Into<Connection>) -> Self {
        self.map.put_map("from", connection.into().0);
        self
    }

    /// Connects one of its inputs.
    pub fn input(mut self, port: &str, connection: impl Into<Connection>) -> Self {
        self.inputs.put_map(port, connection.into().0);
        self
    }

    /// Gives one of a model's inputs the same value in every call: a number, or a list of numbers.
    /// As in a graph file, other kinds refuse it (`E0163`), and so does a model whose input is no
    /// such value.
    ///
    /// ```
    /// use limen::{GraphBuilder, NodeBuilder};
    /// use std::collections::BTreeMap;
    /// let voice = NodeBuilder::new("infer").config(BTreeMap::from([("model", "voice.onnx")]));
    /// let yaml = GraphBuilder::new("voice").node("voice", voice.input("sound", "mic").constant("sr", 16000)).to_yaml();
    /// assert!(yaml.contains("sr:\n        value: 16000\n"), "{yaml}");
    /// ```
    pub fn constant(mut self, port: &str, value: impl Serialize) -> Self {
        let mut constant = Map::default();
        constant.set("value", value);
        self.inputs.put_map(port, constant);
        self
    }

    /// Sets the core of the run on which it runs.
    pub fn core(self, core: usize) -> Self {
        self.with("core", core)
    }

    /// Sets another key of the node: `on_error`, `criticality`, `join`, `budget`, `fault`, `qos`,
    /// `clock`.
    pub fn with(mut self, key: &str, value: impl Serialize) -> Self {
        self.map.set(key, value);
        self
    }
}

impl Connection {
    /// Creates a connection from `node` or `node/port`.
    pub fn new(from: &str) -> Self {
        let mut map = Map::default();
        map.set("from", from);
        Connection(map)
    }

    /// Sets how many messages the edge holds.
    pub fn capacity(self, capacity: usize) -> Self {
        self.with("capacity", capacity)
    }

    /// Sets what happens when the edge is full.
    pub fn when_full(self, when_full: WhenFull) -> Self {
        self.with("when_full", when_full.name())
    }

    /// Sets another key of the connection, such as `max_age`.
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
