//! `limen-run new FOLDER`: writes a starter graph, or one that runs a model.

use super::inspect::reason;
use super::model_starter::{InputKind, ModelStarter, SIDES};
use limen::files;
use limen::policy::Trials;
use limen::{Options, Plan, Problems, Registry, Spec};
use limen_backends::{BackendOptions, record_case, trial};
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

/// Writes a graph that runs a model into a new folder, with a copy of the model and something to read. Returns the path of its
/// file, and why there is no recorded case, if so.
///
/// # Errors
/// When the file is not an ONNX model that declares its inputs, or the folder exists already or cannot be written.
pub fn begin_with_model(
    folder: &Path,
    model: &Path,
    input: Option<InputKind>,
    registry: Registry,
    trials: &Trials,
    options: &BackendOptions,
) -> io::Result<(PathBuf, Option<String>)> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", model.display()));
    let found = trial::inspect(model, trials).map_err(|error| invalid(reason(&error)))?;
    if found.format != "onnx" {
        return Err(invalid(format!("this is a .{} file, not an ONNX model", found.format)));
    }
    let file = model.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let starter = |sides| ModelStarter::of(&found, &file, &graph_name(folder), input, sides).map_err(invalid);
    let mut chosen = starter(SIDES[0])?;
    create(folder)?;
    let path = folder.join("graph.yaml");
    for name in std::iter::once(&file).chain(found.files.keys()) {
        let bytes = files::read(model.with_file_name(name), MAX_FILE);
        let bytes = bytes.map_err(|error| invalid(format!("`{name}` cannot be copied: {error}")))?;
        write(folder, name, &bytes)?;
    }
    for (name, bytes) in &chosen.files {
        write(folder, name, bytes)?;
    }
    // Planning tries the model within limits: on sizes of images, where they are open, until it takes one.
    let registry = registry.with_extension(options.clone());
    let trying = Options { trials: trials.clone(), ..Options::default() };
    let plan = |starter: &ModelStarter| -> io::Result<Result<(), String>> {
        write(folder, "graph.yaml", starter.graph.as_bytes())?;
        let planned = Spec::from_file(&path).and_then(|spec| Plan::with_options(spec, &registry, &trying));
        let first = |problems: Problems| problems.0.first().map_or(String::new(), |problem| problem.message.clone());
        Ok(planned.map(drop).map_err(first))
    };
    let mut planned = plan(&chosen)?;
    for sides in &SIDES[1..] {
        let other = starter(*sides)?;
        if planned.is_ok() || other.record == chosen.record {
            break;
        }
        if plan(&other)?.is_ok() {
            (planned, chosen) = (Ok(()), other);
        }
    }
    let recorded = planned
        .and_then(|()| record_case(&folder.join(&file), &chosen.record, options).map_err(|error| error.to_string()));
    let (mut graph, mut why) = (chosen.graph, None);
    match recorded {
        Ok(case) => {
            write(folder, "verify.npz", &case)?;
            graph = graph.replacen("backend: auto", "backend: auto, verify: { case: verify.npz }", 1);
            let about = "# the case was recorded with these sizes: leave `verify` out to change them";
            graph = graph.replacen("  model:\n", &format!("  model:                        {about}\n"), 1);
        }
        Err(error) => why = Some(error),
    }
    write(folder, "graph.yaml", graph.as_bytes())?;
    Ok((path, why))
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
