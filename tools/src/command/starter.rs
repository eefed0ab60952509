//! `limen-run new FOLDER`: writes a starter graph, or one that runs a model.

use super::inspect::reason;
use super::model_starter::{InputKind, ModelStarter, Record, SIDES, Tried, TriedModel};
use limen::files;
use limen::policy::Trials;
use limen::{Options, Plan, Problems, Registry, Spec};
use limen_backends::{BackendOptions, RecordedCase, record_case, trial};
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

/// Writes a graph that runs a model, or two in a chain, into a new folder, with copies of the models and something to read. Returns
/// the path of its file, and what a user has to know of it: what it rounds, and why there is no recorded case of a model, if so.
///
/// # Errors
/// When a file is not an ONNX model that declares its inputs, two models do not fit each other, or the folder exists already or cannot
/// be written.
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
            return Err(wrong(format!("this is a .{} file, not an ONNX model", inspection.format)));
        }
        found.push((inspection, file));
    }
    let starter = |tried: &Tried| ModelStarter::of(&found, &graph_name(folder), input, tried).map_err(invalid);
    let mut tried = Tried { sides: SIDES[0], ..Tried::default() };
    let chosen = starter(&tried)?;
    let copies = std::iter::zip(models, &found).flat_map(|(model, (found, file))| {
        std::iter::once(file).chain(found.files.keys()).map(move |name| (model, name))
    });
    let copies: Vec<(&PathBuf, &String)> = copies.collect();
    if let Some(at) = (1..copies.len()).find(|at| copies[..*at].iter().any(|(_, name)| *name == copies[*at].1)) {
        return Err(invalid(format!(
            "two files are called `{}`: rename a model, and its file of weights",
            copies[at].1
        )));
    }
    create(folder)?;
    for (model, name) in copies {
        let bytes = files::read(model.with_file_name(name), MAX_FILE);
        let bytes = bytes.map_err(|error| invalid(format!("`{name}` cannot be copied: {error}")))?;
        write(folder, name, &bytes)?;
    }
    // Planning tries the models within limits: on sizes of images, where they are open, until they take one.
    let path = folder.join("graph.yaml");
    let registry = registry.with_extension(options.clone());
    let trying = Options { trials: trials.clone(), ..Options::default() };
    let plan = |starter: &ModelStarter| -> io::Result<Result<(), String>> {
        for (name, bytes) in &starter.files {
            write(folder, name, bytes)?;
        }
        write(folder, "graph.yaml", starter.graph.as_bytes())?;
        let planned = Spec::from_file(&path).and_then(|spec| Plan::with_options(spec, &registry, &trying));
        let first = |problems: Problems| problems.0.first().map_or(String::new(), |problem| problem.message.clone());
        Ok(planned.map(drop).map_err(first))
    };
    let mut planned = plan(&chosen)?;
    for sides in &SIDES[1..] {
        let other = starter(&Tried { sides: *sides, ..Tried::default() })?;
        if planned.is_ok() || other.records == chosen.records {
            break;
        }
        if plan(&other)?.is_ok() {
            (planned, tried.sides) = (Ok(()), *sides);
        }
    }
    let mut notes = Vec::new();
    match planned {
        Err(why) => notes.push(format!("no case was recorded: {why}")),
        Ok(()) => {
            for record in starter(&tried)?.records {
                record_one(folder, record, options, &mut tried, &mut notes)?;
            }
        }
    }
    let chosen = starter(&tried)?;
    for (name, bytes) in &chosen.files {
        write(folder, name, bytes)?;
    }
    write(folder, "graph.yaml", chosen.graph.as_bytes())?;
    notes.extend(chosen.warnings);
    Ok((path, notes))
}

/// Records a case of a model in a graph's folder.
fn record_one(
    folder: &Path,
    record: Record,
    options: &BackendOptions,
    tried: &mut Tried,
    notes: &mut Vec<String>,
) -> io::Result<()> {
    let Record { node, file, case, request } = record;
    match record_case(&folder.join(&file), &request, options) {
        Ok(RecordedCase { npz, longest, greatest }) => {
            match &npz {
                Some(npz) => write(folder, &case, npz)?,
                None => notes.push(format!("no case was recorded of `{file}`: its outputs are empty on noise")),
            }
            tried.models.insert(node, TriedModel { has_case: npz.is_some(), longest, greatest });
        }
        Err(error) => notes.push(format!("no case was recorded of `{file}`: {error}")),
    }
    Ok(())
}

/// The largest file of a model.
const MAX_FILE: u64 = 2 << 30;

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
        io::ErrorKind::AlreadyExists => io::Error::new(error.kind(), "it exists already: choose another name"),
        _ => error,
    })
}
