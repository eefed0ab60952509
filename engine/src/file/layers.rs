//! The layers of a graph file: included files, a profile, overlays, settings, defaults and
//! subgraphs, merged into one flat tree in which every value has its place.
//!
//! Later layers win: the file over its includes, the chosen profile over the file, overlays over
//! that in their order, settings over all. Defaults fill missing keys. Variables are substituted
//! before subgraphs are expanded. This folder knows trees and files; the meaning of keys is up to
//! `spec`.

mod defaults;
mod include;
mod merge;
mod source_file;
mod subgraph;
mod variable;

use crate::base::document::{Key, Substituted, Tree, Value};
use crate::base::error::{Place, Problem, Problems, listed, suggest};
use crate::host::files::InputFile;
use crate::host::folders::Folders;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

pub use source_file::SourceFile;
pub(crate) use subgraph::Expectation;

/// The layers applied to a graph file.
///
/// ```
/// use limen::{Layers, Spec};
/// let text = "version: 1\nnodes:\n  a: { kind: camera, config: { rate: \"${LIMEN_RATE:-30Hz}\" } }\n";
/// let layers = Layers { set: vec!["nodes.a.core=1".into()], ..Layers::default() };
/// let spec = Spec::from_text_with(text, "g.yaml", &layers)?;
/// assert!(spec.to_yaml().contains("core: 1"));
/// assert!(spec.to_yaml().contains("rate: 30Hz"));
/// # Ok::<(), limen::Problems>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// The profile to apply, one of the graph's `profiles`.
    pub profile: Option<String>,
    /// Overlay files, applied in this order.
    pub overlays: Vec<PathBuf>,
    /// Settings `path=value`, such as `nodes.camera.config.rate=30Hz`, applied last.
    pub set: Vec<String>,
    /// Values for `${NAME}`; they take precedence over the environment.
    pub variables: BTreeMap<String, String>,
    /// Names of environment variables, besides `LIMEN_*`, that the graph may read.
    /// [`Spec::to_yaml`] shows the values of listed variables; others stay `${NAME}` there.
    ///
    /// [`Spec::to_yaml`]: crate::Spec::to_yaml
    pub env: Vec<String>,
    /// Folders besides the graph's own from which it may include files.
    pub allowed: Vec<PathBuf>,
}

/// A flat graph, the types its subgraphs declared for their ports, and the problems found.
pub(crate) struct Flat {
    pub(crate) tree: Tree,
    pub(crate) expectations: Vec<Expectation>,
    pub(crate) problems: Problems,
    /// Where the graph may read, and the files it consists of.
    pub(crate) folders: Folders,
}

/// The keys of a flat graph, in the order of printing.
const GRAPH: [&str; 6] = ["version", "graph", "run", "cores", "nodes", "paths"];
/// The keys of an overlay.
const OVERLAY: [&str; 8] = ["version", "graph", "nodes", "paths", "cores", "run", "defaults", "subgraphs"];

/// A limit on what subgraphs, parameters and defaults may add, so that a file of a few lines cannot
/// expand without bound.
pub(crate) struct Budget(Cell<usize>);

impl Budget {
    /// Four times the size of ten thousand nodes of a dozen values each.
    const ALL: usize = 500_000;

    /// Takes `size` from the budget and returns whether it sufficed; reports a problem the first
    /// time it does not.
    fn allows(&self, size: usize, place: &Place, problems: &mut Problems) -> bool {
        let left = self.0.get();
        if left >= size {
            self.0.set(left - size);
            return true;
        }
        if left > 0 {
            let message = "subgraphs, parameters and defaults must expand to at most 500000 values, got more";
            problems.push(
                Problem::new("E0153", place.clone(), message)
                    .help("write large values at single nodes, not in subgraphs or `defaults`"),
            );
        }
        self.0.set(0);
        false
    }
}

impl Layers {
    /// Reads a graph file and all its layers.
    pub(crate) fn load(&self, path: &Path) -> Result<Flat, Problems> {
        let file = path.display().to_string();
        let (text, opened) = include::read(path, &file, None).map_err(|problem| Problems(vec![problem]))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.flatten(&text, &file, folder, Some(&opened))
    }

    /// Does the same for a text, with includes relative to `folder`. `opened` is the file the text
    /// comes from, if any.
    pub(crate) fn flatten(
        &self,
        text: &str,
        file: &str,
        folder: &Path,
        opened: Option<&InputFile>,
    ) -> Result<Flat, Problems> {
        let mut tree = Tree::parse(text, file).map_err(|problem| Problems(vec![problem]))?;
        let folders = Folders { graph: folder.to_path_buf(), allowed: self.allowed.clone(), ..Folders::default() };
        opened.into_iter().for_each(|file| folders.read.note(file));
        if !matches!(tree.value, Value::Map(_)) {
            // `spec` reports the problem.
            return Ok(Flat { tree, expectations: Vec::new(), problems: Problems::default(), folders });
        }
        let mut problems = Problems::default();
        let real = opened.map(|file| file.real().to_path_buf());
        include::include(&mut tree, real, &folders, self, &mut problems, None);
        self.apply_profile(&mut tree, &mut problems);
        for path in &self.overlays {
            self.apply_overlay(&mut tree, path, &folders, &mut problems);
        }
        for setting in &self.set {
            apply_setting(&mut tree, setting, &mut problems);
        }
        let subgraphs = tree.take("subgraphs");
        let defaults = tree.take("defaults");
        let budget = Budget(Cell::new(Budget::ALL));
        let variables = variable::Variables::new(self, &budget);
        variables.substitute(&mut tree, &HashMap::new(), &mut problems);
        let expectations = subgraph::expand(&mut tree, subgraphs.as_ref(), &variables, &mut problems);
        if let Some(mut defaults) = defaults {
            variables.substitute(&mut defaults, &HashMap::new(), &mut problems);
            defaults::fill(&mut tree, &defaults, &budget, &mut problems);
        }
        if let Value::Map(entries) = &mut tree.value {
            let order = |key: &Key| GRAPH.iter().position(|known| *known == key.name);
            entries.sort_by_key(|(key, _)| order(key).unwrap_or(GRAPH.len()));
        }
        Ok(Flat { tree, expectations, problems, folders })
    }

    fn apply_profile(&self, tree: &mut Tree, problems: &mut Problems) {
        let profiles = tree.take("profiles");
        if let Some(Tree { place, value }) = &profiles
            && !matches!(value, Value::Map(_))
        {
            let message = format!("`profiles` must be a map of overlays by name, got {}", value.describe());
            problems
                .push(Problem::new("E0105", place.clone(), message).help("write `profiles: { robot: { nodes: .. } }`"));
        }
        let mut known: Vec<(Key, Tree)> = match profiles {
            Some(Tree { value: Value::Map(entries), .. }) => entries,
            _ => Vec::new(),
        };
        for (key, profile) in &known {
            check_keys(profile, &format!("profile `{}`", key.name), &OVERLAY, problems);
        }
        let Some(name) = &self.profile else { return };
        match known.iter().position(|(key, _)| key.name == *name) {
            Some(at) => overlay_map(tree, known.swap_remove(at).1),
            None => {
                let help = suggest(name, known.iter().map(|(key, _)| key.name.as_str()));
                let message = format!("unknown profile `{name}`");
                problems.push(Problem::new("E0150", start_of(tree), message).help(help));
            }
        }
    }

    fn apply_overlay(&self, tree: &mut Tree, path: &Path, folders: &Folders, problems: &mut Problems) {
        let file = path.display().to_string();
        let overlay = include::read(path, &file, None).and_then(|(text, opened)| {
            folders.read.note(&opened);
            Tree::parse(&text, &file)
        });
        match overlay {
            Ok(overlay) => {
                if check_keys(&overlay, "an overlay", &OVERLAY, problems) {
                    overlay_map(tree, overlay);
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
}

/// Merges a map into a graph. A value of another type was reported, or is null.
fn overlay_map(tree: &mut Tree, over: Tree) {
    if matches!(over.value, Value::Map(_)) {
        merge::overlay(tree, over);
    }
}

/// A longer path cannot exist in a graph.
const MAX_STEPS: usize = 32;

/// Returns the place of the graph as a whole: its file.
fn start_of(tree: &Tree) -> Place {
    Place { line: 0, ..tree.place.clone() }
}

/// Reports unknown keys, and a value that is no map; returns whether it can be used.
fn check_keys(tree: &Tree, what: &str, known: &[&str], problems: &mut Problems) -> bool {
    if !matches!(tree.value, Value::Map(_) | Value::Null) {
        let message = format!("{what} must be a map, got {}", tree.value.describe());
        let help = format!("write a map (keys: {})", listed(known));
        problems.push(Problem::new("E0105", tree.place.clone(), message).help(help));
        return false;
    }
    for (key, _) in tree.entries().iter().filter(|(key, _)| !known.contains(&key.name.as_str())) {
        let message = format!("unknown key `{}` in {what}", key.name);
        problems
            .push(Problem::new("E0103", key.place.clone(), message).help(suggest(&key.name, known.iter().copied())));
    }
    true
}

/// Applies a setting such as `nodes.camera.config.rate=30Hz`.
fn apply_setting(tree: &mut Tree, setting: &str, problems: &mut Problems) {
    let place = Place { file: format!("--set {setting}").into(), line: 0, column: 0 };
    let mut wrong = |message: String, help: &str| {
        problems.push(Problem::new("E0152", place.clone(), message).help(help));
    };
    let Some((path, text)) = setting.split_once('=') else {
        return wrong("expected `PATH=VALUE`, found no `=`".into(), "write `--set nodes.camera.config.rate=30Hz`");
    };
    let mut value = match text.trim_start().starts_with(['{', '[']) {
        // Structures are YAML; a scalar has the type its place expects.
        true => match Tree::parse(text, &place.file) {
            Ok(tree) => tree.value,
            Err(problem) => return wrong(problem.message, "write one map or list, such as `{ from: camera }`"),
        },
        false if matches!(text.trim(), "" | "~") => Value::Null,
        false => Value::Substituted(Substituted::new(text.into(), None)),
    };
    place_all(&mut value, &place);
    let steps: Vec<&str> = path.split(['.', '[']).map(|step| step.trim_end_matches(']')).collect();
    if steps.len() > MAX_STEPS || steps.iter().any(|step| step.is_empty()) {
        let path: String = path.chars().take(80).collect();
        return wrong(format!("expected names separated by dots, found `{path}`"), "write `--set nodes.camera.core=1`");
    }
    if let ["nodes", node @ .., _] = &steps[..]
        && !node.is_empty()
        && let Some(nodes) = tree.get("nodes")
        && !(1..=node.len()).any(|n| nodes.get(&node[..n].join(".")).is_some())
    {
        let names = nodes.entries().iter().map(|(key, _)| key.name.as_str());
        return wrong(format!("`{path}`: unknown node `{}`", node[0]), &suggest(node[0], names));
    }
    if let Err(at) = set_at(tree, &steps, Tree { place: place.clone(), value }, &place) {
        wrong(format!("`{path}`: {at}"), "run `limen-run expand GRAPH` to list the keys of the graph");
    }
}

/// Sets the place of a value and everything in it.
fn place_all(value: &mut Value, place: &Place) {
    let inner: &mut dyn Iterator<Item = &mut Tree> = match value {
        Value::List(items) => &mut items.iter_mut(),
        Value::Map(entries) => &mut entries.iter_mut().map(|(key, tree)| {
            key.place = place.clone();
            tree
        }),
        _ => return,
    };
    inner.for_each(|tree| {
        tree.place = place.clone();
        place_all(&mut tree.value, place);
    });
}

/// Merges a value at a path, creating missing maps on the way.
fn set_at(here: &mut Tree, steps: &[&str], value: Tree, place: &Place) -> Result<(), String> {
    if here.value == Value::Null {
        here.value = Value::Map(Vec::new());
    }
    match &mut here.value {
        Value::List(items) => {
            let (step, rest) = (steps[0], &steps[1..]);
            let length = items.len();
            let item = step.parse::<usize>().ok().and_then(|at| items.get_mut(at));
            let item =
                item.ok_or_else(|| format!("expected a position in a list of length {length}, found `{step}`"))?;
            if rest.is_empty() {
                merge::overlay(item, value);
                return Ok(());
            }
            set_at(item, rest, value, place)
        }
        Value::Map(entries) => {
            // Names may contain dots: the longest existing name wins.
            let joined = |n: usize| steps[..n].join(".");
            let known = (1..=steps.len()).rev().find(|n| entries.iter().any(|(key, _)| key.name == joined(*n)));
            let n = known.unwrap_or(1);
            let name = joined(n);
            if n == steps.len() {
                let key = Key { place: place.clone(), name };
                let over = Tree { place: place.clone(), value: Value::Map(vec![(key, value)]) };
                merge::overlay(here, over);
                return Ok(());
            }
            if known.is_none() {
                let empty = Tree { place: place.clone(), value: Value::Map(Vec::new()) };
                entries.push((Key { place: place.clone(), name }, empty));
            }
            let at = match known {
                Some(_) => entries.iter().position(|(key, _)| key.name == joined(n)).unwrap_or_default(),
                None => entries.len() - 1,
            };
            let (key, inner) = &mut entries[at];
            // `from: camera` is short for `from: { from: camera }`.
            merge::expand_from(&key.name, inner);
            set_at(inner, &steps[n..], value, place)
        }
        other => Err(format!("expected a map with key `{}`, found {}", steps[0], other.describe())),
    }
}
