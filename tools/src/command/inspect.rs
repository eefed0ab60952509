//! `limen-run inspect`: describes a model or a weights file, as text and as the manifest that a graph names.

use crate::text::escape::one_line;
use crate::text::table::Table;
use limen::backend::BackendError;
use limen::policy::Trials;
use limen_backends::{BackendOptions, Dispatch, trial};
use std::fmt::Write;
use std::path::Path;

/// The most weights of a model that are listed without being asked for.
const MAX_TENSORS: usize = 8;

/// Describes a file; `all` lists every weight of a model.
///
/// # Errors
/// When the file cannot be read or is malformed, or the trial process fails.
pub(crate) fn show_inspection(
    path: &Path,
    json: bool,
    all: bool,
    trials: &Trials,
    options: &BackendOptions,
) -> Result<String, BackendError> {
    let found = trial::inspect(path, trials)?;
    if json {
        return Ok(format!("{:#}\n", serde_json::json!(found)));
    }
    let mut text = String::new();
    let name = one_line(&path.file_name().unwrap_or_default().to_string_lossy());
    let opset = found.opset.map(|opset| format!(", opset {opset}")).unwrap_or_default();
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "{name}: {}{opset}, {} parameters, SHA-256 {}", found.format, found.parameters(), found.sha256);
    let dispatch = found.dispatch(options);
    if !found.operators.is_empty() {
        for (backend, dispatch) in &dispatch {
            let _ = writeln!(text, "{backend} {}: {}", verdict(dispatch), one_line(&dispatch.to_string()));
        }
    }
    let mut ports = Table::new(["<", "<port", "<in the model", "<type"]);
    for (what, bindings) in [("input", &found.inputs), ("output", &found.outputs)] {
        for binding in bindings {
            let spec = binding.spec.clone().unwrap_or_default();
            ports.row([what.to_string(), binding.port.clone(), binding.name.clone(), spec]);
        }
    }
    let mut operators = Table::new(["<operator", "count"].into_iter().chain(dispatch.iter().map(|(name, _)| *name)));
    for (operator, n) in &found.operators {
        let support = dispatch.iter().map(|(_, dispatch)| support(dispatch, operator));
        operators.row([operator.clone(), n.to_string()].into_iter().chain(support));
    }
    let mut tensors = Table::new(["<tensor", "<type", "<shape", "<in"]);
    // A model may have hundreds of weights; a file of weights is nothing else.
    let most = if all || found.operators.is_empty() { usize::MAX } else { MAX_TENSORS };
    let hidden = found.tensors.len().saturating_sub(most);
    for stored in found.tensors.iter().take(most) {
        let file = stored.file.clone().unwrap_or_default();
        tensors.row([stored.name.clone(), stored.dtype.clone(), format!("{:?}", stored.shape), file]);
    }
    for table in [ports, operators, tensors].iter().filter(|table| !table.is_empty()) {
        text.push('\n');
        table.write(&mut text);
    }
    if hidden > 0 {
        let _ = writeln!(text, "\n{hidden} tensors more: `--tensors` lists all");
    }
    Ok(text)
}

/// Whether a backend runs the model, in a few words.
fn verdict(dispatch: &Dispatch) -> &'static str {
    match dispatch {
        Dispatch::NotThere(_) => "is not there",
        Dispatch::Unsaid { deviating } if deviating.is_empty() => "shows it when it loads the model",
        Dispatch::Unsaid { .. } => "needs a recorded case",
        Dispatch::Known { unsupported, .. } if !unsupported.is_empty() => "does not run it",
        Dispatch::Known { deviating, .. } if !deviating.is_empty() => "needs a recorded case",
        Dispatch::Known { .. } => "has all operators",
    }
}

/// How a backend runs an operator, in a word.
fn support(dispatch: &Dispatch, operator: &String) -> String {
    match dispatch {
        Dispatch::NotThere(_) => "-",
        Dispatch::Unsaid { deviating } if deviating.iter().any(|(op, _)| op == operator) => "deviates",
        Dispatch::Unsaid { .. } => "?",
        Dispatch::Known { native, .. } if native.contains(operator) => "native",
        Dispatch::Known { rewritten, .. } if rewritten.contains(operator) => "rewritten",
        Dispatch::Known { deviating, .. } if deviating.iter().any(|(op, _)| op == operator) => "deviates",
        Dispatch::Known { .. } => "unsupported",
    }
    .to_string()
}
