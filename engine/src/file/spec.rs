//! The structure of a graph file, with the place of everything that a later check may reject.
//!
//! Knows the file's own structure, units and names; knows no node kinds and opens no other file.
//! Every problem of the file is found in one pass.

mod nodes;
mod paths;

pub(crate) use nodes::{MAX_CAPACITY, deprecated_in_join};
pub(crate) use paths::WrittenPath;

use crate::base::deprecation::Deprecation;
use crate::base::document::{Key, Tree, Value};
use crate::base::error::{Place, Problem, Problems, listed, suggest};
use crate::base::policy::{
    Criticality, EdgePolicy, Isolation, NodePolicy, OnMiss, RealTime, Schedule, Telemetry, Wait,
};
use crate::base::unit::{Bytes, Span};
use crate::file::layers::{Expectation, Flat, Layers};
use crate::file::record::recorders;
use crate::host::files::is_file_url;
use crate::host::folders::Folders;
use schemars::JsonSchema;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// A graph file, read and parsed, with its layers applied. [`Plan::new`](crate::Plan::new) checks
/// the kinds of its nodes.
///
/// ```
/// use limen::Spec;
/// let text = "version: 1\ngraph: robot\nnodes: { a: { kind: x } }";
/// let spec = Spec::from_text(text, "robot.yaml")?;
/// assert_eq!(spec.name, "robot");
/// # Ok::<(), limen::Problems>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spec {
    /// The graph's name (`graph:`). A file without one has its stem as name, a text has an empty
    /// one.
    pub name: String,
    /// The file, as given.
    pub file: String,
    /// Where the graph may read and write.
    pub folders: Folders,
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) paths: Vec<PathSpec>,
    pub(crate) cores: BTreeMap<usize, CoreSpec>,
    pub(crate) run: RunSpec,
    pub(crate) place: Place,
    /// The flat tree it was read from.
    tree: Tree,
    /// The types that subgraphs declared for their ports.
    pub(crate) expectations: Vec<Expectation>,
    pub(crate) doubt: Doubt,
}

/// What of a graph could not be read, so that what seems to be missing or to be the default may not
/// be. The problems are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubt {
    /// Everything was read; the values that are wrong have their defaults.
    #[default]
    None,
    /// A key of the graph is unknown: it may have been meant for one that is missing.
    Keys,
    /// Nodes may be missing: a layer or a subgraph could not be applied.
    Nodes,
}

impl Doubt {
    /// What the problems of the layers leave open.
    fn of(problems: &Problems) -> Doubt {
        let of = |problem: &Problem| match problem.code {
            "E0104" | "E0106" | "E0151" => Doubt::None,
            _ => Doubt::Nodes,
        };
        problems.0.iter().map(of).max().unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    pub(crate) place: Place,
    /// Empty if it could not be read.
    pub(crate) kind: Placed<String>,
    pub(crate) config: Tree,
    pub(crate) inputs: Vec<InputSpec>,
    /// Inputs with a constant value, by port.
    pub(crate) constants: Vec<(Key, Tree)>,
    pub(crate) core: Option<Placed<usize>>,
    pub(crate) cpu: Option<Placed<usize>>,
    pub(crate) policy: NodePolicy,
    /// The places of its values.
    pub(crate) places: Places,
    /// The keys of its config that had old names.
    pub(crate) deprecations: Vec<Deprecation>,
    /// Whether one of its keys or connections could not be read, so that what it seems to lack may
    /// not be missing.
    pub(crate) in_doubt: bool,
}

impl NodeSpec {
    /// The key of the config that holds constant inputs.
    pub(crate) const CONSTANTS: &str = "constants";

    /// Returns the keys of constant inputs that the config has too.
    pub(crate) fn repeated_constants(&self) -> impl Iterator<Item = &Key> {
        let there = self.config.get(Self::CONSTANTS);
        self.constants
            .iter()
            .map(|(port, _)| port)
            .filter(move |port| there.is_some_and(|there| there.get(&port.name).is_some()))
    }

    /// Returns what the config has in place of the map of constant inputs, if that is something
    /// else.
    pub(crate) fn mistaken_constants(&self) -> Option<&Tree> {
        let there = self.config.get(Self::CONSTANTS);
        there.filter(|there| !matches!(there.value, Value::Map(_) | Value::Null))
    }

    /// Whether its `join` could not be read. That has been reported, and what follows from the
    /// default would not be true.
    pub(crate) fn has_unreadable_join(&self) -> bool {
        self.policy.join.is_none() && self.places.get("join").is_some()
    }

    /// Returns the node with its constant inputs in the config.
    pub(crate) fn with_constants(&self) -> NodeSpec {
        let mut node = self.clone();
        let mut constants = std::mem::take(&mut node.constants);
        if node.config.value == Value::Null {
            node.config.value = Value::Map(Vec::new());
        }
        // Its kind refuses a config that is no map.
        let Value::Map(config) = &mut node.config.value else { return node };
        match config.iter_mut().find(|(key, _)| key.name == Self::CONSTANTS).map(|(_, there)| &mut there.value) {
            Some(Value::Map(there)) => there.append(&mut constants),
            Some(there) => *there = Value::Map(constants),
            None => {
                // A kind that has no such key refuses it there.
                let place = constants.first().map_or_else(|| node.place.clone(), |(port, _)| port.place.clone());
                let key = Key { place: place.clone(), name: Self::CONSTANTS.into() };
                config.push((key, Tree { place, value: Value::Map(constants) }));
            }
        }
        node
    }
}

/// The places of a map's values, by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Vec<(Box<str>, Place)>);

impl Places {
    fn of(entries: &[(Key, Tree)]) -> Self {
        Places(entries.iter().map(|(key, value)| (key.name.as_str().into(), value.place.clone())).collect())
    }

    /// Returns the place of a key's value, if it is set.
    pub(crate) fn get(&self, key: &str) -> Option<&Place> {
        self.0.iter().find(|(name, _)| **name == *key).map(|(_, place)| place)
    }
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// A connection, as its consumer writes it.
#[derive(Clone, Debug)]
pub(crate) struct InputSpec {
    /// The consumer's port; `None` for `from:`, which means its only one.
    pub(crate) port: Option<String>,
    pub(crate) place: Place,
    pub(crate) node: String,
    pub(crate) output: Option<String>,
    pub(crate) policy: EdgePolicy,
    /// The places of its values.
    pub(crate) places: Places,
}

impl InputSpec {
    /// Returns the place of a key's value, or that of the connection.
    pub(crate) fn place_of(&self, key: &str) -> &Place {
        self.places.get(key).unwrap_or(&self.place)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PathSpec {
    pub(crate) place: Place,
    /// The place of its deadline, or its own.
    pub(crate) deadline_place: Place,
    /// Empty if it could not be read, as `to`.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) deadline: Option<Span>,
    pub(crate) on_miss: OnMiss,
    pub(crate) criticality: Criticality,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct CoreSpec {
    /// How an idle worker waits.
    #[serde(default)]
    pub(crate) wait: Wait,
    /// Which of its nodes takes its turn next.
    #[serde(default)]
    pub(crate) schedule: Schedule,
    /// The real-time policy to ask the kernel for.
    pub(crate) rt: Option<RealTime>,
    #[serde(skip)]
    pub(crate) place: Place,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct RunSpec {
    /// How long a stop may take; 2s by default.
    #[serde(default = "RunSpec::default_stop")]
    pub(crate) stop: Span,
    /// How long it may take to build all nodes; 5min by default.
    #[serde(default = "RunSpec::default_start")]
    pub(crate) start: Span,
    /// A turn that takes longer is reported; 1s by default.
    #[serde(default = "RunSpec::default_watchdog")]
    pub(crate) watchdog: Span,
    /// An edge that loses a larger fraction of a second's messages is reported; 0.01 by default.
    #[serde(default)]
    #[schemars(with = "f64", range(min = 0, max = 1))]
    pub(crate) drops_above: Fraction,
    /// A refusal by the system ends the run.
    #[serde(default)]
    pub(crate) strict: bool,
    /// Keep all memory of the process in RAM.
    #[serde(default)]
    pub(crate) mlock: bool,
    /// A plan that needs more is refused.
    pub(crate) max_memory: Option<Bytes>,
    /// The place of `max_memory`.
    #[serde(skip)]
    pub(crate) max_memory_place: Place,
    /// Histograms begin after this time.
    pub(crate) warmup: Option<Span>,
    /// What is recorded; `auto` by default.
    #[serde(default)]
    pub(crate) telemetry: Telemetry,
    /// Whether `cuda` is used in a process of its own, which may end alone.
    #[serde(default)]
    pub(crate) isolation: Isolation,
    /// `limen-run` serves the run to `limen-top`, as `--monitor` does.
    #[serde(default)]
    pub(crate) monitor: bool,
}

/// A fraction from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Fraction(pub(crate) f64);

impl TryFrom<f64> for Fraction {
    type Error = String;

    fn try_from(fraction: f64) -> Result<Fraction, String> {
        if (0.0..=1.0).contains(&fraction) {
            Ok(Fraction(fraction))
        } else {
            Err(format!("expected a fraction from 0 to 1, found {fraction}"))
        }
    }
}

impl Default for Fraction {
    /// One in a hundred.
    fn default() -> Self {
        Fraction(0.01)
    }
}

impl RunSpec {
    fn default_stop() -> Span {
        Span(Duration::from_secs(2))
    }

    fn default_start() -> Span {
        Span(Duration::from_secs(300))
    }

    fn default_watchdog() -> Span {
        Span(Duration::from_secs(1))
    }
}

impl Default for RunSpec {
    fn default() -> Self {
        RunSpec {
            stop: Self::default_stop(),
            start: Self::default_start(),
            watchdog: Self::default_watchdog(),
            drops_above: Fraction::default(),
            strict: false,
            mlock: false,
            max_memory: None,
            max_memory_place: Place::default(),
            warmup: None,
            telemetry: Telemetry::default(),
            isolation: Isolation::default(),
            monitor: false,
        }
    }
}

impl Spec {
    /// Reads a graph file and its includes.
    ///
    /// # Errors
    /// Every problem of the file: unreadable, not YAML, unknown keys, wrong values, wrong names.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Spec, Problems> {
        Spec::from_file_with(path, &Layers::default())
    }

    /// Reads a graph file with a profile, overlays and settings.
    ///
    /// # Errors
    /// Every problem of the file, as in [`Spec::from_file`], and every problem of the layers.
    pub fn from_file_with(path: impl AsRef<Path>, layers: &Layers) -> Result<Spec, Problems> {
        let (spec, problems) = Spec::read_file(path.as_ref(), layers)?;
        if problems.is_empty() { Ok(spec) } else { Err(Spec::settle(problems)) }
    }

    /// Reads as much as possible of a graph file; returns it with its problems.
    pub(crate) fn read_file(path: &Path, layers: &Layers) -> Result<(Spec, Problems), Problems> {
        let (mut spec, problems) = Spec::read(layers.load(path)?);
        if spec.name.is_empty() {
            spec.name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        }
        Ok((spec, problems))
    }

    /// Reads a graph from text. Relative paths start at the current folder. `file` is the name of
    /// the text in messages.
    ///
    /// # Errors
    /// Every problem of the text: not YAML, unknown keys, wrong values, wrong names.
    ///
    /// ```
    /// let error = limen::Spec::from_text("version: 1\nnodes: {}\nspeed: 3", "g.yaml").unwrap_err();
    /// assert!(error.to_string().starts_with("g.yaml:2:8: error[E0113]: the graph has no nodes"));
    /// assert!(error.to_string().contains("g.yaml:3:1: error[E0103]: unknown key `speed`"));
    /// ```
    pub fn from_text(text: &str, file: &str) -> Result<Spec, Problems> {
        Spec::from_text_with(text, file, &Layers::default())
    }

    /// Reads a graph from text with a profile, overlays and settings.
    ///
    /// # Errors
    /// Every problem of the text and of the layers.
    pub fn from_text_with(text: &str, file: &str, layers: &Layers) -> Result<Spec, Problems> {
        let (spec, problems) = Spec::read(layers.flatten(text, file, Path::new("."), None)?);
        if problems.is_empty() { Ok(spec) } else { Err(Spec::settle(problems)) }
    }

    /// Adds a file in memory, which the graph names `mem:NAME`; it replaces an earlier one of the
    /// same name. Every node that opens one input file takes such a name: a model, its recorded
    /// case, weights, an array, a table. The plan drops the bytes that only models read. It keeps
    /// the others until its run ends, because a node reads them again when it is restarted; they
    /// count against `run.max_memory`. The bytes of `include_bytes!` take no memory of their own,
    /// and do not count.
    ///
    /// ```
    /// # const GRAPH: &str = "version: 1\nnodes:\n  a: { kind: x }\n";
    /// let weights: [f32; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    /// let bytes: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
    /// // In the graph: `weight: { file: "mem:head", dtype: f32, shape: [2, 3] }`.
    /// let spec = limen::Spec::from_text(GRAPH, "graph.yaml")?.with_file("head", bytes);
    /// assert_eq!(spec.folders.memory.get("head").map(<[u8]>::len), Some(24));
    /// # Ok::<(), limen::Problems>(())
    /// ```
    #[must_use]
    pub fn with_file(mut self, name: impl Into<String>, bytes: impl Into<Cow<'static, [u8]>>) -> Spec {
        self.folders.memory.add(name, bytes);
        self
    }

    /// Returns the files of other machines that the configs of its nodes name, each once, with the
    /// place of the first mention: every text that is the URL of a file. The address of a service,
    /// such as `https://viewer.example`, has no file.
    ///
    /// ```
    /// let text = "version: 1\nnodes:\n  a: { kind: infer, config: { model: 'hf://acme/voice/model.onnx' } }";
    /// let spec = limen::Spec::from_text(text, "graph.yaml")?;
    /// let (url, place) = &spec.remote_files()[0];
    /// assert_eq!((url.as_str(), place.line), ("hf://acme/voice/model.onnx", 3));
    /// # Ok::<(), limen::Problems>(())
    /// ```
    pub fn remote_files(&self) -> Vec<(String, Place)> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        // The constants of a node are tensors.
        let mut todo: Vec<&Tree> = self.nodes.iter().rev().map(|node| &node.config).collect();
        while let Some(tree) = todo.pop() {
            match &tree.value {
                Value::List(items) => todo.extend(items.iter().rev()),
                Value::Map(entries) => todo.extend(entries.iter().rev().map(|(_, value)| value)),
                _ => {
                    let url = tree.as_text().filter(|text| is_file_url(text) && seen.insert(text.to_string()));
                    found.extend(url.map(|url| (url.to_string(), tree.place.clone())));
                }
            }
        }
        found
    }

    fn read(flat: Flat) -> (Spec, Problems) {
        let mut problems = flat.problems;
        let doubt = Doubt::of(&problems);
        let mut spec = SpecReader { problems: &mut problems, misnamed: HashSet::new() }.graph(&flat.tree);
        spec.doubt = spec.doubt.max(doubt);
        (spec.tree, spec.expectations, spec.folders) = (flat.tree, flat.expectations, flat.folders);
        (spec, problems)
    }

    /// Drops the tree, which is needed only for printing.
    pub(crate) fn forget_tree(&mut self) {
        self.tree.value = Value::Null;
    }

    /// Sorts problems for display.
    pub(crate) fn settle(mut problems: Problems) -> Problems {
        // Other problems at the place of an unset variable are consequences.
        let unset: Vec<Place> = problems.0.iter().filter(|p| p.code == "E0151").map(|p| p.place.clone()).collect();
        problems.0.retain(|p| p.code == "E0151" || !unset.contains(&p.place));
        problems.sorted()
    }

    /// Returns the graph as one flat file, which loads back equal. Values of variables not listed
    /// in [`Layers::env`] stay `${NAME}`.
    pub fn to_yaml(&self) -> String {
        self.tree.to_yaml(false)
    }

    /// Does the same, with the place of each value as a comment.
    pub fn to_yaml_with_places(&self) -> String {
        self.tree.to_yaml(true)
    }
}

/// Specs are equal if their content is, ignoring places.
impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.tree.has_same_content(&other.tree)
    }
}

struct SpecReader<'a> {
    problems: &'a mut Problems,
    /// The nodes whose names are wrong.
    misnamed: HashSet<String>,
}

impl SpecReader<'_> {
    fn problem(&mut self, code: &'static str, place: &Place, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem::new(code, place.clone(), message).help(help));
    }

    /// Returns the entries of a map; reports every unknown key.
    fn map<'t>(&mut self, tree: &'t Tree, what: &str, known: &[&str]) -> &'t [(Key, Tree)] {
        match &tree.value {
            Value::Map(entries) => {
                for (key, _) in entries.iter().filter(|(k, _)| !known.contains(&k.name.as_str())) {
                    let help = suggest(&key.name, known.iter().copied());
                    self.problem("E0103", &key.place, format!("unknown key `{}` in {what}", key.name), help);
                }
                entries
            }
            other => {
                let message = format!("{what} must be a map, got {}", other.describe());
                self.problem("E0105", &tree.place, message, format!("write a map (keys: {})", listed(known)));
                &[]
            }
        }
    }

    fn text(&mut self, tree: &Tree, key: &str) -> Option<String> {
        if tree.as_text().is_none() {
            let message = format!("`{key}` must be a name, got {}", tree.value.describe());
            let help = match (key, &tree.value) {
                ("from", Value::List(_)) => "write `inputs: { a: .., b: .. }`".into(),
                _ => format!("write a name such as `{key}: camera`"),
            };
            self.problem("E0105", &tree.place, message, help);
        }
        tree.as_text().map(str::to_string)
    }

    fn number(&mut self, tree: &Tree, key: &str, range: std::ops::RangeInclusive<i128>) -> Option<Placed<usize>> {
        match (tree.as_int(), &tree.value) {
            (Some(n), _) if range.contains(&n) => Some(Placed { value: n as usize, place: tree.place.clone() }),
            (_, other) => {
                let (least, most) = range.into_inner();
                let found = other.scalar().unwrap_or_else(|| other.describe());
                let message = format!("`{key}` must be {least} to {most}, got {found}");
                self.problem("E0106", &tree.place, message, format!("write a number such as `{key}: 1`"));
                None
            }
        }
    }

    fn name(&mut self, key: &Key, what: &str) {
        if !is_name(&key.name) {
            let message = format!("the name of {what} must match `[a-z][a-z0-9_-]{{0,63}}`, got `{}`", key.name);
            let fits = |c: char| if is_name_character(c) { c } else { '_' };
            let near: String = key.name.to_lowercase().chars().map(fits).take(64).collect();
            let near = near.trim_matches(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit());
            let near = if is_name(near) { near } else { "camera" };
            self.problem("E0110", &key.place, message, format!("write a name such as `{near}`"));
        }
    }

    /// The node that a name stands for: that of `camera` may be written `Camera`, which is
    /// reported.
    fn meant(&self, node: String) -> String {
        self.misnamed.iter().find(|there| there.eq_ignore_ascii_case(&node)).cloned().unwrap_or(node)
    }

    fn graph(&mut self, tree: &Tree) -> Spec {
        let mut spec = Spec {
            name: String::new(),
            file: tree.place.file.to_string(),
            folders: Folders { graph: ".".into(), ..Folders::default() },
            nodes: Vec::new(),
            paths: Vec::new(),
            cores: BTreeMap::new(),
            run: RunSpec::default(),
            place: tree.place.clone(),
            tree: Tree { place: tree.place.clone(), value: Value::Null },
            expectations: Vec::new(),
            doubt: Doubt::None,
        };
        if tree.value == Value::Null {
            self.problem("E0113", &tree.place, "the file is empty", "write `version: 1` and `nodes:`");
            return spec;
        }
        let known =
            ["version", "graph", "nodes", "paths", "cores", "run", "include", "defaults", "subgraphs", "profiles"];
        let mut record = None;
        let (before, entries) = (self.problems.0.len(), self.map(tree, "the graph", &known));
        if !matches!(tree.get("nodes"), Some(Tree { value: Value::Map(_), .. })) {
            spec.doubt = Doubt::Nodes;
        } else if self.problems.0.len() > before {
            spec.doubt = Doubt::Keys;
        }
        for (key, value) in entries {
            match key.name.as_str() {
                "version" if value.as_int() != Some(1) => {
                    let version = value.value.scalar().unwrap_or_else(|| value.value.describe());
                    let message = format!("`version` must be 1, got {version}");
                    self.problem("E0111", &value.place, message, "write `version: 1`");
                }
                "graph" => {
                    if let Some(name) = self.text(value, "graph") {
                        self.name(&Key { place: value.place.clone(), name: name.clone() }, "a graph");
                        spec.name = name;
                    }
                }
                "nodes" => spec.nodes = self.nodes(value),
                "paths" => spec.paths = self.paths(value),
                "cores" => spec.cores = self.cores(value),
                "run" => {
                    record = value.get("record");
                    spec.run = value.without("record").read(self.problems).unwrap_or_default();
                    let limit = value.entries().iter().find(|(key, _)| key.name == "max_memory");
                    spec.run.max_memory_place = limit.map(|(_, value)| value.place.clone()).unwrap_or_default();
                }
                _ => {}
            }
        }
        let lacks = |key: &str| {
            matches!(tree.value, Value::Map(_)) && tree.get(key).is_none() && !tree.has_misspelt(key, &self.problems.0)
        };
        let (lacks_version, lacks_nodes) = (lacks("version"), lacks("nodes"));
        if lacks_version {
            self.problem("E0111", &tree.place, "`version` is missing", "write `version: 1`");
        }
        match tree.get("nodes") {
            Some(nodes) if matches!(&nodes.value, Value::Map(entries) if entries.is_empty()) => {
                self.problem(
                    "E0113",
                    &nodes.place,
                    "the graph has no nodes",
                    "write `nodes:` with a source and a sink",
                );
            }
            None if lacks_nodes => {
                self.problem("E0113", &tree.place, "the graph has no nodes", "write `nodes:` with a source and a sink");
            }
            _ => {}
        }
        if let Some(record) = record {
            spec.nodes.extend(recorders(record, &spec.nodes, self.problems));
        }
        spec
    }

    fn cores(&mut self, tree: &Tree) -> BTreeMap<usize, CoreSpec> {
        let Value::Map(entries) = &tree.value else {
            let message = format!("`cores` must be a map of core numbers, got {}", tree.value.describe());
            self.problem("E0105", &tree.place, message, "write `cores: { 1: { wait: spin } }`");
            return BTreeMap::new();
        };
        let mut cores = BTreeMap::new();
        for (key, value) in entries {
            match key.name.parse::<usize>() {
                Ok(core) if core < 1024 => {
                    let read = value.read(self.problems).unwrap_or_default();
                    let spec = CoreSpec { place: value.place.clone(), ..read };
                    if let Some(rt) = spec.rt.filter(|rt| !(1..=99).contains(&rt.priority)) {
                        let message = format!("`priority` must be 1 to 99, got {}", rt.priority);
                        let help = "write `priority: 40`, below the 50 and 99 of kernel threads";
                        self.problem("E0106", &value.place, message, help);
                    }
                    cores.insert(core, spec);
                }
                _ => {
                    let message = format!("a core must be 0 to 1023, got {}", key.name);
                    self.problem("E0106", &key.place, message, "write a core number such as `1`");
                }
            }
        }
        cores
    }
}

/// Returns whether a name is `[a-z][a-z0-9_-]*` of at most 64 characters, or several such names
/// joined by dots (nodes of subgraphs).
fn is_name(name: &str) -> bool {
    let begins = |part: &str| part.starts_with(|c: char| c.is_ascii_lowercase());
    let part = |part: &str| part.len() <= 64 && begins(part) && part.chars().all(is_name_character);
    name.len() <= 200 && name.split('.').all(part)
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-'
}
