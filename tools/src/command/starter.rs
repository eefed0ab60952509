//! `limen-run new FOLDER`: writes a starter graph, or one that runs a model.

use super::inspect::reason;
use super::model_starter::{InputKind, ModelStarter, RecordCase, Tried, TriedModel, sides};
use super::trial_run::{show, try_run};
use limen::files;
use limen::message::{Dim, PortSpec};
use limen::policy::Trials;
use limen::{Options, Plan, Registry, Spec};
use limen_infer::{BackendOptions, RecordedCase, record_case, trial};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// A graph that runs as it is, with comments on what to change.
const STARTER: &str = include_str!("starter.yaml");

/// Writes a starter graph into a new folder, and returns the path of its file.
///
/// # Errors
/// When the folder exists already, or cannot be created.
pub fn begin(folder: &Path) -> io::Result<PathBuf> {
    let name = graph_name(folder);
    create(folder)?;
    files::replace(folder, "graph.yaml", STARTER.replace("graph: robot", &format!("graph: {name}")).as_bytes())?;
    Ok(folder.join("graph.yaml"))
}

/// Writes a graph that runs a model, or two in a chain, into a new folder, with copies of the
/// models and something to read, and runs it for a few messages. Returns the path of its file, and
/// what a user has to know of it: what it rounds, and why there is no recorded case of a model, if
/// so.
///
/// # Errors
/// When a file is not an ONNX model that declares its inputs, two models do not fit each other, or
/// the folder exists already or cannot be written. When the graph does not run; it is written all
/// the same, and begins with the reason as a comment.
pub fn begin_with_models(
    folder: &Path,
    models: &[PathBuf],
    input: Option<InputKind>,
    registry: Registry,
    trials: &Trials,
    options: &BackendOptions,
) -> io::Result<(PathBuf, Vec<String>)> {
    let shown: Vec<String> = models.iter().map(|model| model.display().to_string()).collect();
    let shown = shown.join(", ");
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{shown}: {why}"));
    let mut found = Vec::new();
    for model in models {
        let which = if models.len() > 1 { format!("`{}`: ", model.display()) } else { String::new() };
        let wrong = |why: String| invalid(format!("{which}{why}"));
        let file = model.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let inspection = trial::inspect(model, trials).map_err(|error| wrong(reason(&error)))?;
        if inspection.format != "onnx" {
            return Err(wrong(format!("expected an ONNX model, found a .{} file", inspection.format)));
        }
        found.push((inspection, file));
    }
    let starter = |tried: &Tried| ModelStarter::of(&found, &graph_name(folder), input, tried).map_err(invalid);
    let sides = sides(&found);
    starter(&Tried { sides: sides[0], ..Tried::default() })?;
    let copies = std::iter::zip(models, &found).flat_map(|(model, (found, file))| {
        std::iter::once(file).chain(found.files.keys()).map(move |name| (model, name))
    });
    let copies: Vec<(&PathBuf, &String)> = copies.collect();
    if let Some(at) = (1..copies.len()).find(|at| copies[..*at].iter().any(|(_, name)| *name == copies[*at].1)) {
        return Err(invalid(format!(
            "expected models with different file names, found `{}` twice: rename a model and its weights file",
            copies[at].1
        )));
    }
    create(folder)?;
    for (model, name) in copies {
        let bytes = files::read(model.with_file_name(name), trials.max_size());
        let bytes = bytes.map_err(|error| invalid(format!("`{name}` cannot be copied: {error}")))?;
        write(folder, name, &bytes)?;
    }
    let path = folder.join("graph.yaml");
    let registry = registry.with_extension(options.clone());
    let trying = Options { trials: trials.clone(), ..Options::default() };
    let tried_files = RefCell::new(BTreeSet::new());
    let planned = |tried: &Tried| {
        let starter = starter(tried)?;
        tried_files.borrow_mut().extend(starter.files.iter().map(|(name, _)| name.clone()));
        plan(&starter, &path, &registry, &trying)
    };
    let attempt = |sides: &[[usize; 2]], no_batch: Option<bool>| -> io::Result<Attempt> {
        let (mut notes, mut cases) = (Vec::new(), Vec::new());
        let (mut tried, mut problem) = choose(sides, no_batch, starter, planned)?;
        if problem.is_none() {
            for record in starter(&tried)?.records {
                cases.extend(record_one(folder, record, options, &mut tried, &mut notes));
            }
        }
        let mut chosen = starter(&tried)?;
        tried_files.borrow_mut().extend(cases.iter().map(|(name, _)| name.clone()));
        chosen.files.extend(cases);
        write_all(folder, &chosen, &chosen.graph)?;
        if problem.is_none() {
            problem = try_run(&path, &registry, &trying).err();
        }
        Ok(Attempt { chosen, problem, notes })
    };
    let graph_with = |no_batch| -> io::Result<String> {
        Ok(starter(&Tried { sides: sides[0], no_batch, ..Tried::default() })?.graph)
    };
    // First as the model declares it, then the other way.
    let mut result = attempt(&sides, None)?;
    for no_batch in [Some(false), Some(true)] {
        if result.problem.is_some() && graph_with(no_batch)? != graph_with(None)? {
            let other = attempt(&sides[..1], no_batch)?;
            result = if other.problem.is_none() { other } else { result };
        }
    }
    let Attempt { chosen, problem, mut notes } = result;
    write_all(folder, &chosen, &chosen.graph)?;
    for name in tried_files.into_inner().iter().filter(|name| chosen.files.iter().all(|(other, _)| other != *name)) {
        std::fs::remove_file(folder.join(name))?;
        // The folder of the images.
        Path::new(name).parent().into_iter().for_each(|parent| _ = std::fs::remove_dir(folder.join(parent)));
    }
    if let Some(why) = problem {
        write_all(folder, &chosen, &chosen.graph_with(&why))?;
        let why = format!("{} does not run: {why}", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    notes.extend(chosen.warnings);
    Ok((path, notes))
}

/// What came of a graph.
struct Attempt {
    chosen: ModelStarter,
    /// Why it does not run, if so.
    problem: Option<String>,
    /// What a user has to know.
    notes: Vec<String>,
}

/// The types of the outputs of a planned graph by `node/port`, or why it cannot be planned.
type PlannedTypes = Result<BTreeMap<String, PortSpec>, String>;

/// Writes a graph, and plans it: planning tries its models within limits.
fn plan(starter: &ModelStarter, path: &Path, registry: &Registry, options: &Options) -> io::Result<PlannedTypes> {
    write_all(path.parent().unwrap_or(Path::new("")), starter, &starter.graph)?;
    let planned = Spec::from_file(path).and_then(|spec| Plan::with_options(spec, registry, options));
    Ok(planned.map_err(|problems| show(&problems)).map(|plan| {
        let outputs = plan.nodes().iter().flat_map(|node| node.outputs.iter().map(move |output| (node, output)));
        let known = outputs.filter_map(|(node, output)| Some((node, output, output.spec.clone()?)));
        known.map(|(node, output, spec)| (format!("{}/{}", node.name, output.name), spec)).collect()
    }))
}

/// Tries graphs for models: with sizes of images where those are open, without states, and without
/// greatest lengths. Returns what the first that can be planned was made from, or else the first
/// with the reason why it cannot.
fn choose(
    sides: &[[usize; 2]],
    no_batch: Option<bool>,
    starter: impl Fn(&Tried) -> io::Result<ModelStarter>,
    planned: impl Fn(&Tried) -> io::Result<PlannedTypes>,
) -> io::Result<(Tried, Option<String>)> {
    let begin = |sides: [usize; 2]| Tried { sides, no_batch, ports: Some(BTreeMap::new()), ..Tried::default() };
    let (mut refused, mut first) = (Vec::new(), None);
    for sides in sides {
        let mut tried = begin(*sides);
        loop {
            let graph = starter(&tried)?.graph;
            if refused.contains(&graph) {
                break;
            }
            let why = match planned(&tried)? {
                Ok(ports) => {
                    return Ok((without_lengths(Tried { ports: Some(ports), ..tried }, starter, planned)?, None));
                }
                Err(why) => why,
            };
            refused.push(graph);
            first.get_or_insert_with(|| (tried.clone(), why.clone()));
            if tried.no_states.is_some() {
                break;
            }
            tried.no_states = Some(why);
        }
    }
    let (tried, why) = first.unwrap_or_else(|| (begin(sides[0]), "the graph was not tried".into()));
    Ok((tried, Some(why)))
}

/// Leaves the greatest lengths out of those outputs that need none.
fn without_lengths(
    mut tried: Tried,
    starter: impl Fn(&Tried) -> io::Result<ModelStarter>,
    planned: impl Fn(&Tried) -> io::Result<PlannedTypes>,
) -> io::Result<Tried> {
    let exact = Tried { is_exact: true, ..tried.clone() };
    if starter(&exact)?.graph == starter(&tried)?.graph {
        return Ok(tried);
    }
    let is_fixed = |spec: &PortSpec| spec.shape.iter().all(|dim| matches!(dim, Dim::Fixed(_)));
    if let Ok(ports) = planned(&exact)? {
        tried.exact = ports.iter().filter(|(_, spec)| is_fixed(spec)).map(|(port, _)| port.clone()).collect();
        let fixed = ports.into_iter().filter(|(port, _)| tried.exact.contains(port));
        tried.ports.get_or_insert_default().extend(fixed);
    }
    Ok(tried)
}

/// Writes a graph and the files that it reads.
fn write_all(folder: &Path, starter: &ModelStarter, graph: &str) -> io::Result<()> {
    for (name, bytes) in &starter.files {
        write(folder, name, bytes)?;
    }
    write(folder, "graph.yaml", graph.as_bytes())
}

/// Records a case of a model in a graph's folder, and returns its file, unless there is none.
fn record_one(
    folder: &Path,
    record: RecordCase,
    options: &BackendOptions,
    tried: &mut Tried,
    notes: &mut Vec<String>,
) -> Option<(String, Vec<u8>)> {
    let RecordCase { node, file, case, request } = record;
    match record_case(&folder.join(&file), &request, options) {
        Ok(RecordedCase { npz, longest, greatest }) => {
            tried.models.insert(node, TriedModel { has_case: npz.is_some(), longest, greatest });
            if npz.is_none() {
                notes.push(format!("no case was recorded for `{file}`: its outputs are empty on noise"));
            }
            Some((case, npz?))
        }
        Err(error) => {
            notes.push(format!("no case was recorded for `{file}`: {error}"));
            None
        }
    }
}

/// Writes a file below a folder.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = folder.join(name);
    let folder = path.parent().unwrap_or(folder);
    std::fs::create_dir_all(folder)?;
    files::replace(folder, path.file_name().unwrap_or_default(), bytes)
}

/// Returns the name of a graph in a folder.
fn graph_name(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' }).collect();
    let name = if name.starts_with(|c: char| c.is_ascii_lowercase()) { name } else { format!("graph-{name}") };
    name.trim_end_matches('-').to_string()
}

/// Creates the folder of a graph, and those around it.
fn create(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(error.kind(), "already exists: choose another name"),
        _ => error,
    })
}
